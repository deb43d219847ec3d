/* incident_view.c - an incident for people: how far it is, what could not be reached. */
#include "clients/cli/incident.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SUSPECTS_MAX = 100000, CALL_PATIENCE_S = 120, CALL_WAIT_FIRST_MS = 100, CALL_WAIT_LAST_MS = 5000 };

bool incident_call(const struct place *place, const char *method, const char *path, json_t *body, json_t **reply,
                   struct error *err)
{
    uint64_t until = clock_monotonic_ns() + CALL_PATIENCE_S * UINT64_C(1000000000);
    for (long wait_ms = CALL_WAIT_FIRST_MS;;
         wait_ms = wait_ms < CALL_WAIT_LAST_MS / 2 ? 2 * wait_ms : CALL_WAIT_LAST_MS) {
        struct error why = {0};
        if (negotiator_call(place, method, path, body, reply, &why))
            return true;
        if (why.kind != ERROR_RATE_LIMITED || clock_monotonic_ns() > until) {
            *err = why;
            return false;
        }
        nanosleep(&(struct timespec){.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000}, NULL);
    }
}

json_t *incident_fetch(const struct place *place, const char *id, struct error *err)
{
    json_t *reply = NULL;
    AUTO_FREE char *path = negotiator_path("/incidents", id, NULL);
    if (!incident_call(place, "GET", path, NULL, &reply, err))
        return NULL;
    json_t *incident = json_incref(json_object_get(reply, "incident"));
    json_decref(reply);
    if (incident == NULL)
        error_set(err, ERROR_INTERNAL, "the negotiator's answer is no incident");
    return incident;
}

json_t *incident_suspects(const struct place *place, const char *id, struct error *err)
{
    json_t *list = json_array();
    AUTO_FREE char *cursor = NULL;
    AUTO_FREE char *before = negotiator_path("/incidents", id, "suspects");
    do {
        AUTO_TEXT path = {0};
        json_t *page = NULL;
        text_append_string(&path, before);
        negotiator_query(&path, "cursor", cursor);
        if (!incident_call(place, "GET", path.data, NULL, &page, err)) {
            json_decref(list);
            return NULL;
        }
        json_array_extend(list, json_object_get(page, "suspects"));
        free(cursor);
        cursor = memory_string(json_string_value(json_object_get(page, "next")));
        json_decref(page);
    } while (cursor && json_array_size(list) < SUSPECTS_MAX);
    return list;
}

/* Whether the revocation is in force by now; what its incident noted else. */
static json_t *fetch_revocation(const struct place *place, const json_t *noted)
{
    json_t *reply = NULL;
    const char *id = json_string_value(json_object_get(noted, "id"));
    AUTO_FREE char *path = id ? negotiator_path("/revocations", id, NULL) : NULL;
    if (!path || !incident_call(place, "GET", path, NULL, &reply, &(struct error){0}))
        return json_deep_copy(noted);
    json_t *now = json_deep_copy(noted);
    const json_t *revocation = json_object_get(reply, "revocation");
    const char *state = json_string_value(json_object_get(revocation, "state"));
    json_object_set_new(now, "in_force", json_boolean(state && strcmp(state, "in_force") == 0));
    json_object_set(now, "missing", json_object_get(revocation, "missing"));
    json_decref(reply);
    return now;
}

static void show_revocation(const json_t *revocation)
{
    AUTO_FREE char *kind = cli_member(revocation, "kind"), *value = cli_member(revocation, "value");
    AUTO_FREE char *id = cli_member(revocation, "id"), *missing = cli_member(revocation, "missing");
    AUTO_FREE char *error = cli_member(revocation, "error");
    bool in_force = json_is_true(json_object_get(revocation, "in_force"));
    bool failed = json_object_get(revocation, "error") != NULL;
    printf("  revoked  %s %s  %s  %s%s\n", kind, value, id,
           failed     ? "FAILED: "
           : in_force ? "in force"
                      : "PENDING, missing: ",
           failed     ? error
           : in_force ? ""
                      : missing);
}

/* "unreachable" and "failed" are what somebody has to look after. */
static void show_suspect(const json_t *suspect)
{
    const json_t *sandbox = json_object_get(suspect, "sandbox");
    AUTO_FREE char *id = cli_member(sandbox, "id"), *name = cli_member(sandbox, "name");
    AUTO_FREE char *principal = cli_member(sandbox, "principal"), *node = cli_member(sandbox, "node");
    AUTO_FREE char *why = cli_member(suspect, "why"), *pause = cli_member(suspect, "pause");
    AUTO_FREE char *error = cli_member(suspect, "pause_error");
    const json_t *resume = json_object_get(suspect, "resume");
    AUTO_FREE char *resumed = resume ? cli_member(suspect, "resume") : NULL;
    bool is_bad = strcmp(pause, "unreachable") == 0 || strcmp(pause, "failed") == 0 || strcmp(pause, "pending") == 0;
    printf("  suspect  %s  %s of %s on %s  (%s)  pause: %s%s%s%s%s\n", id, name, principal, node, why, pause,
           is_bad && strcmp(error, "-") != 0 ? ": " : "", is_bad && strcmp(error, "-") != 0 ? error : "",
           resumed ? "  resume: " : "", resumed ? resumed : "");
}

static void show_parts(const json_t *incident, const json_t *suspects)
{
    size_t i;
    const json_t *each;
    json_array_foreach (json_object_get(incident, "revocations"), i, each)
        show_revocation(each);
    json_array_foreach (suspects, i, each)
        show_suspect(each);
}

static void show_head(const json_t *incident)
{
    AUTO_FREE char *id = cli_member(incident, "id"), *state = cli_member(incident, "state");
    AUTO_FREE char *step = cli_member(incident, "step"), *reason = cli_member(incident, "reason");
    AUTO_FREE char *by = cli_member(incident, "opened_by"), *at = cli_member(incident, "opened_at");
    AUTO_TEXT frozen = {0};
    size_t i;
    const json_t *each;
    json_array_foreach (json_object_get(incident, "frozen"), i, each) {
        AUTO_FREE char *name = cli_safe(json_string_value(each));
        text_append_format(&frozen, "%s%s", i ? ", " : "", name);
    }
    printf("%s  %s (%s)\n  reason   %s\n  opened   %s by %s\n  frozen   %s%s\n", id, state, step, reason, at, by,
           frozen.data ? frozen.data : "-", strcmp(state, "closed") == 0 ? "  (lifted)" : "");
}

static void renew_revocations(const struct place *place, json_t *incident)
{
    size_t i;
    const json_t *each;
    json_t *now = json_array();
    json_array_foreach (json_object_get(incident, "revocations"), i, each)
        json_array_append_new(now, fetch_revocation(place, each));
    json_object_set_new(incident, "revocations", now);
}

/* Without printing: the same question as show_parts answers. */
static bool is_whole(const json_t *incident, const json_t *suspects)
{
    size_t i;
    const json_t *each;
    json_array_foreach (json_object_get(incident, "revocations"), i, each) {
        if (!json_is_true(json_object_get(each, "in_force")))
            return false;
    }
    json_array_foreach (suspects, i, each) {
        const char *pause = json_string_value(json_object_get(each, "pause"));
        if (pause &&
            (strcmp(pause, "unreachable") == 0 || strcmp(pause, "failed") == 0 || strcmp(pause, "pending") == 0))
            return false;
    }
    return true;
}

int incident_show(const struct place *place, const char *id, bool json)
{
    struct error err = {0};
    json_t *incident = incident_fetch(place, id, &err);
    json_t *suspects = incident ? incident_suspects(place, id, &err) : NULL;
    if (suspects == NULL) {
        json_decref(incident);
        return cli_fail_usual(&err, CLI_FAILED);
    }
    renew_revocations(place, incident);
    bool whole = is_whole(incident, suspects);
    if (json) {
        cli_print_json(json_pack("{s:O, s:O}", "incident", incident, "suspects", suspects));
    } else {
        show_head(incident);
        show_parts(incident, suspects);
        if (!whole)
            printf("  NOT ALL OF IT WAS REACHED: see PENDING, unreachable and failed above\n");
    }
    json_decref(incident);
    json_decref(suspects);
    return whole ? CLI_OK : CLI_PENDING;
}
