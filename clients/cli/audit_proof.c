#include "clients/cli/audit_proof.h"

#include "clients/cli/cli.h"

#include "clients/c/call.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

enum { VERIFY_MS = 3600 * 1000, HASH_HEX = 64 };

int audit_verify(const struct place *place, const struct audit_head *head, bool json)
{
    struct error err = {0};
    AUTO_FREE char *url = memory_printf("%s/audit/verify", place->url);
    json_t *body = json_object();
    if (head) {
        json_object_set_new(body, "seq", json_integer((json_int_t)head->seq));
        json_object_set_new(body, "hash", json_string(head->hash));
    }
    struct call call = {
        .method = "POST", .url = url, .credential = place->api_key, .body = body, .timeout_ms = VERIFY_MS};
    json_t *reply = NULL;
    bool answered = call_json(&call, &reply, NULL, &err);
    json_decref(body);
    if (!answered)
        return cli_fail_usual(&err, CLI_FAILED);
    bool whole = json_is_true(json_object_get(reply, "ok"));
    AUTO_FREE char *records = cli_member(reply, "records");
    AUTO_FREE char *first = cli_member(reply, "first");
    AUTO_FREE char *sealed = cli_member(reply, "sealed");
    AUTO_FREE char *last = cli_member(reply, "last");
    AUTO_FREE char *hash = cli_member(reply, "hash");
    AUTO_FREE char *reason = cli_member(reply, "error");
    AUTO_FREE char *at = cli_member(reply, "at");
    if (json)
        cli_print_json(json_incref(reply));
    else if (whole)
        printf("whole: %s records, %s to %s, after %s sealed ones; head %s:%s%s\n", records, first, last, sealed, last,
               hash, head ? "; the head kept elsewhere is part of it" : "");
    else
        fprintf(stderr, "parley: the audit chain does not hold at record %s: %s\n", at, reason);
    json_decref(reply);
    return whole ? CLI_OK : CLI_FAILED;
}

/* What was exported so far: every record must follow the one before. */
struct link {
    json_int_t seq; /* 0 none yet */
    char hash[HASH_HEX + 1];
};

/* Whoever keeps the export can check this much without the key: no record left out, each naming the one before. */
static bool export_one(struct link *last, const json_t *record, struct error *err)
{
    json_int_t seq = json_integer_value(json_object_get(record, "seq"));
    const char *prev = json_string_value(json_object_get(record, "prev"));
    const char *hash = json_string_value(json_object_get(record, "hash"));
    if (!prev || !hash || seq <= 0)
        return error_set(err, ERROR_FORBIDDEN, "the records came without prev and hash: export needs an admin's key");
    if (last->seq != 0 && (seq != last->seq + 1 || strcmp(prev, last->hash) != 0))
        return error_set(err, ERROR_INTERNAL, "record %lld does not follow record %lld: see `parley audit verify`",
                         (long long)seq, (long long)last->seq);
    json_dumpf(record, stdout, JSON_COMPACT);
    putchar('\n');
    last->seq = seq;
    return text_copy(last->hash, sizeof last->hash, hash) ||
           error_set(err, ERROR_INTERNAL, "record %lld has a hash that is none", (long long)seq);
}

static bool export_page(struct link *last, const json_t *page, struct error *err)
{
    size_t index;
    json_t *record;
    json_array_foreach (json_object_get(page, "records"), index, record) {
        if (!export_one(last, record, err))
            return false;
    }
    return cli_flush(err);
}

int audit_export(const struct place *place, uint64_t from)
{
    struct error err = {0};
    struct link last = {0};
    uint64_t after = from ? from - 1 : 0;
    for (bool more = true; more;) {
        AUTO_FREE char *path =
            memory_printf("/audit?all=1&after=%llu&limit=%d", (unsigned long long)after, AUDIT_PAGE_RECORDS);
        json_t *page = NULL;
        if (!negotiator_call(place, "GET", path, NULL, &page, &err))
            return cli_fail_usual(&err, CLI_FAILED);
        bool written = export_page(&last, page, &err);
        const json_t *next = json_object_get(page, "next");
        more = json_is_integer(next) && (uint64_t)json_integer_value(next) > after;
        after = more ? (uint64_t)json_integer_value(next) : after;
        json_decref(page);
        if (!written)
            return cli_fail_usual(&err, CLI_FAILED);
    }
    return CLI_OK;
}
