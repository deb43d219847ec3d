/* incident_evidence.c - `parley incident evidence`: what is known of it in one file, and what could not be had. */
#include "clients/cli/bundle.h"
#include "clients/cli/incident.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is in a sandbox, and a node that is not ours any more, decide how much they tell. */
enum { RECORDS_MAX = 200000, PAGES_MAX = 5000, ITEMS_MAX = 500000, PART_BYTES_MAX = 256 << 20 };

struct gathering {
    const struct place *place;
    const char *id;
    json_t *incident, *suspects; /* owned */
    struct bundle *bundle;
    json_t *records; /* owned; the audit's, by seq */
};

/* Nothing that cannot be had keeps the rest away; only a bundle that cannot be written does. */

static bool add_call(struct gathering *g, const char *method, const char *path, const char *name, struct error *err)
{
    struct error why = {0};
    json_t *reply = NULL, *body = strcmp(method, "POST") == 0 ? json_object() : NULL;
    bool got = incident_call(g->place, method, path, body, &reply, &why);
    bool added = !got || bundle_add_json(g->bundle, name, reply, err);
    if (!got)
        bundle_miss(g->bundle, name, &why);
    json_decref(body);
    json_decref(reply);
    return added;
}

/* --- the audit --- */

static void take_records(struct gathering *g, const json_t *page)
{
    size_t i;
    json_t *each;
    json_array_foreach (json_object_get(page, "records"), i, each) {
        AUTO_FREE char *seq = memory_printf("%020lld", (long long)json_integer_value(json_object_get(each, "seq")));
        json_object_set(g->records, seq, each);
    }
}

static void gather_records(struct gathering *g, const char *filter, const char *value)
{
    struct error why = {0};
    AUTO_FREE char *what = memory_printf("audit records of %s %s", filter, value);
    json_int_t after = 0;
    for (int i = 0; i < PAGES_MAX && json_object_size(g->records) < RECORDS_MAX; i++) {
        AUTO_TEXT path = {0};
        json_t *page = NULL;
        text_append_format(&path, "/audit?all=1&limit=1000&after=%lld", (long long)after);
        negotiator_query(&path, filter, value);
        if (!incident_call(g->place, "GET", path.data, NULL, &page, &why)) {
            bundle_miss(g->bundle, what, &why);
            return;
        }
        take_records(g, page);
        json_int_t next = json_integer_value(json_object_get(page, "next"));
        json_decref(page);
        if (next <= after)
            return;
        after = next;
    }
    error_set(&why, ERROR_TOO_LARGE, "there are more than %d", RECORDS_MAX);
    bundle_miss(g->bundle, what, &why);
}

/* A selector's filter of GET /audit; NULL when there is none for it. */
static const char *filter_of(const char *kind)
{
    static const char *const FILTERS[][2] = {
        {"principal", "principal"}, {"thread", "thread"}, {"jti", "jti"}, {"family", "jti"}, {"link", "link"}};
    for (size_t i = 0; kind && i < sizeof FILTERS / sizeof *FILTERS; i++) {
        if (strcmp(kind, FILTERS[i][0]) == 0)
            return FILTERS[i][1];
    }
    return NULL;
}

static void gather_audit(struct gathering *g)
{
    size_t i;
    const json_t *each;
    static const char *const ACTIONS[] = {"incident.open", "incident.contained", "incident.evidence", "incident.close",
                                          "revoke"};
    for (i = 0; i < sizeof ACTIONS / sizeof *ACTIONS; i++)
        gather_records(g, "action", ACTIONS[i]);
    json_array_foreach (json_object_get(g->incident, "selectors"), i, each) {
        const char *filter = filter_of(json_string_value(json_object_get(each, "kind")));
        if (filter)
            gather_records(g, filter, json_string_value(json_object_get(each, "value")));
    }
    json_array_foreach (g->suspects, i, each) {
        const char *sandbox = json_string_value(json_object_get(json_object_get(each, "sandbox"), "id"));
        gather_records(g, "sandbox", sandbox);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool add_records(struct gathering *g, struct error *err)
{
    AUTO_TEXT lines = {0};
    size_t count = 0;
    const char *seq;
    json_t *record;
    AUTO_FREE const char **sorted = memory_array(json_object_size(g->records) + 1, sizeof *sorted);
    json_object_foreach (g->records, seq, record)
        sorted[count++] = seq;
    qsort(sorted, count, sizeof *sorted, by_name);
    for (size_t i = 0; i < count; i++) {
        AUTO_FREE char *line = json_dumps(json_object_get(g->records, sorted[i]), JSON_COMPACT);
        text_append_string(&lines, line ? line : "{}");
        text_append(&lines, "\n", 1);
    }
    return bundle_add(g->bundle, "audit/records.ndjson", lines.data, lines.length, err);
}

/* The proof comes last: its head is behind all records of the extract. */
static bool add_audit(struct gathering *g, struct error *err)
{
    gather_audit(g);
    return add_records(g, err) && add_call(g, "POST", "/audit/verify", "audit/verify.json", err) &&
           add_call(g, "GET", "/audit/head", "audit/head.json", err);
}

/* --- sandboxes --- */

/* One part of a sandbox's evidence as it comes in. */
struct part {
    const char *sandbox, *name;
    struct text lines;
    size_t items;
    json_t *last;   /* owned; the last page without its items */
    char *position; /* owned; of the next page, NULL: there is none */
};

static void part_cleanup(struct part *part)
{
    text_done(&part->lines);
    json_decref(part->last);
    free(part->position);
}

static bool is_full(const struct part *part)
{
    return part->items >= ITEMS_MAX || part->lines.length >= PART_BYTES_MAX;
}

static void take_items(struct part *part, const json_t *items)
{
    size_t i;
    const json_t *each;
    json_array_foreach (items, i, each) {
        AUTO_FREE char *line = is_full(part) ? NULL : json_dumps(each, JSON_COMPACT);
        if (line == NULL)
            continue;
        text_append_string(&part->lines, line);
        text_append(&part->lines, "\n", 1);
        part->items++;
    }
}

static bool fetch_page(const struct gathering *g, struct part *part, struct error *why)
{
    AUTO_FREE char *path = negotiator_path("/incidents", g->id, "evidence");
    json_t *reply = NULL;
    json_t *body = json_pack("{s:s, s:s, s:s}", "sandbox", part->sandbox, "part", part->name, "position",
                             part->position ? part->position : "");
    bool got = incident_call(g->place, "POST", path, body, &reply, why);
    json_t *page = json_object_get(reply, "evidence"), *items = json_object_get(page, "items");
    json_decref(body);
    if (got && !json_is_array(items))
        got = error_set(why, ERROR_INTERNAL, "the node's answer is no evidence");
    if (got) {
        take_items(part, items);
        free(part->position);
        part->position = memory_string(json_string_value(json_object_get(page, "next")));
        if (json_array_size(items) == 0)
            free(TAKE(part->position)); /* no page is empty but the last */
        json_object_del(page, "items");
        json_decref(part->last);
        part->last = json_incref(page);
    }
    json_decref(reply);
    return got;
}

/* What was had of a part stays when the rest cannot be. */
static bool add_part(struct gathering *g, const char *sandbox, const char *name, json_t *seen, struct error *err)
{
    __attribute__((cleanup(part_cleanup))) struct part part = {.sandbox = sandbox, .name = name};
    AUTO_FREE char *file = memory_printf("sandboxes/%s/%s.ndjson", sandbox, name);
    struct error why = {0};
    bool got = true;
    do
        got = fetch_page(g, &part, &why);
    while (got && part.position && !is_full(&part));
    if (got && (is_full(&part) || json_is_true(json_object_get(part.last, "truncated"))))
        error_set(&why, ERROR_TOO_LARGE, "there was more than is looked at");
    if (why.kind != ERROR_NONE)
        bundle_miss(g->bundle, file, &why);
    if (part.last == NULL)
        return true;
    json_object_set_new(part.last, "items", json_integer((json_int_t)part.items));
    json_object_set(seen, name, part.last);
    return bundle_add(g->bundle, file, part.lines.data, part.lines.length, err);
}

static bool add_sandbox(struct gathering *g, const char *id, struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/sandboxes", id, NULL);
    AUTO_FREE char *now = memory_printf("sandboxes/%s/now.json", id);
    AUTO_FREE char *how = memory_printf("sandboxes/%s/evidence.json", id);
    json_t *seen = json_object();
    bool added = add_call(g, "GET", path, now, err) && add_part(g, id, "processes", seen, err) &&
                 add_part(g, id, "files", seen, err) && bundle_add_json(g->bundle, how, seen, err);
    json_decref(seen);
    return added;
}

static bool add_sandboxes(struct gathering *g, struct error *err)
{
    size_t i;
    const json_t *each;
    json_array_foreach (g->suspects, i, each) {
        if (!add_sandbox(g, json_string_value(json_object_get(json_object_get(each, "sandbox"), "id")), err))
            return false;
    }
    return true;
}

static bool add_revocations(struct gathering *g, struct error *err)
{
    size_t i;
    const json_t *each;
    json_array_foreach (json_object_get(g->incident, "revocations"), i, each) {
        const char *id = json_string_value(json_object_get(each, "id"));
        AUTO_FREE char *path = id ? negotiator_path("/revocations", id, NULL) : NULL;
        AUTO_FREE char *name = id ? memory_printf("revocations/%s.json", id) : NULL;
        if (id && !add_call(g, "GET", path, name, err))
            return false;
    }
    return true;
}

/* --- all of it --- */

static json_t *about(const struct gathering *g)
{
    char now[CLOCK_TEXT_BYTES];
    clock_format(now, clock_wall_ms());
    return json_pack("{s:s, s:s, s:s, s:s}", "incident", g->id, "made_at", now, "by", "parley " PARLEY_VERSION, "notes",
                     "suspects.json: as it was before anything was revoked. processes, files: seen from outside, as of "
                     "evidence.json; their texts are those of whoever was in the sandbox. audit/records.ndjson: an "
                     "extract, each record with prev and hash; audit/verify.json: the proof of the whole chain, made "
                     "after it (specs/audit.md, 6).");
}

static bool gather(struct gathering *g, struct error *err)
{
    g->incident = incident_fetch(g->place, g->id, err);
    g->suspects = g->incident ? incident_suspects(g->place, g->id, err) : NULL;
    return g->suspects != NULL;
}

static bool fill(struct gathering *g, struct error *err)
{
    json_t *rest = about(g);
    bool done = bundle_add_json(g->bundle, "incident.json", g->incident, err) &&
                bundle_add_json(g->bundle, "suspects.json", g->suspects, err) && add_revocations(g, err) &&
                add_sandboxes(g, err) && add_audit(g, err) && bundle_finish(g->bundle, rest, err);
    json_decref(rest);
    return done;
}

static int tell(const struct gathering *g, const char *path, bool json)
{
    const json_t *missing = bundle_missing(g->bundle), *each;
    size_t i;
    if (json) {
        cli_print_json(json_pack("{s:s, s:O}", "file", path, "missing", missing));
    } else {
        AUTO_FREE char *safe = cli_safe(path);
        printf("%s: suspects: %zu, audit records: %zu\n", safe, json_array_size(g->suspects),
               json_object_size(g->records));
        json_array_foreach (missing, i, each) {
            AUTO_FREE char *what = cli_member(each, "what"), *why = cli_member(each, "why");
            printf("  not had: %s: %s\n", what, why);
        }
    }
    return json_array_size(missing) > 0 ? CLI_PENDING : CLI_OK;
}

int incident_evidence(const struct place *place, const char *id, const char *path, bool json)
{
    struct error err = {0};
    struct gathering g = {.place = place, .id = id, .records = json_object()};
    AUTO_FREE char *folder = memory_printf("incident-%s", id);
    AUTO_FREE char *file = path ? memory_string(path) : memory_printf("%s.tar.gz", folder);
    int status = CLI_FAILED;
    if (gather(&g, &err))
        g.bundle = bundle_new(file, folder, &err);
    if (g.bundle && fill(&g, &err))
        status = tell(&g, file, json);
    else
        cli_fail_usual(&err, CLI_FAILED);
    bundle_free(g.bundle);
    json_decref(g.incident);
    json_decref(g.suspects);
    json_decref(g.records);
    return status;
}
