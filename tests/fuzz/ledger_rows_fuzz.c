/* ledger_rows_fuzz.c - rows of a store that was damaged or put together by hand. The first byte says of which kind;
 * what is read is what is written again, and what cannot be is an error with a sentence. Audit: rows "number LF" apart
 * by NUL. */
#include "negotiator/fleet/fleet_internal.h"
#include "negotiator/leasing/families.h"
#include "negotiator/leasing/keeping/keeping_internal.h"
#include "negotiator/leasing/keeping/snapshot.h"
#include "negotiator/leasing/keeping/volumes_internal.h"
#include "negotiator/leasing/store.h"
#include "shared/base/memory.h"
#include "shared/capability/mark.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void put(struct kv *kv, const char *key, const void *data, size_t size)
{
    struct error err = {0};
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, key, data, size);
    require(kv_batch_begin(kv, &err));
    require(kv_apply(kv, change, &err) == KV_APPLIED && kv_batch_end(kv, &err));
}

static void read_sandbox(struct work *work, const char *data, size_t size)
{
    AUTO_SANDBOX sandbox = {.revision = 0}, again = {.revision = 0};
    if (!sandbox_parse(&sandbox, data, size, work->err))
        return;
    AUTO_FREE char *text = sandbox_format(&sandbox);
    require(sandbox_parse(&again, text, strlen(text), work->err) && strcmp(sandbox.id, again.id) == 0);
    AUTO_FREE char *same = sandbox_format(&again);
    require(strcmp(text, same) == 0);
    require(sandbox.state < SANDBOX_STATES);
}

static void read_lease(struct work *work, const char *data, size_t size)
{
    struct lease lease = {.revision = 0}, again = {.revision = 0};
    if (!lease_parse(&lease, data, size, work->err))
        return;
    AUTO_FREE char *text = lease_format(&lease);
    require(text == NULL || lease_parse(&again, text, strlen(text), work->err));
}

static void read_once(struct work *work, const char *data, size_t size)
{
    struct once once;
    put(work->kv, "once/x", data, size);
    if (store_get_once(work, "x", &once))
        require(strnlen(once.sandbox_id, sizeof once.sandbox_id) < sizeof once.sandbox_id);
}

static void read_node(struct work *work, const char *data, size_t size)
{
    struct fleet_row row, again;
    put(work->kv, "node/n1", data, size);
    if (!fleet_row_get(&row, work->kv, "n1", work->err))
        return;
    AUTO(kv_change) *change = kv_change_new();
    fleet_row_put(change, &row, "n1");
    require(kv_batch_begin(work->kv, work->err));
    require(kv_apply(work->kv, change, work->err) == KV_APPLIED && kv_batch_end(work->kv, work->err));
    require(fleet_row_get(&again, work->kv, "n1", work->err) && again.epoch == row.epoch);
}

static void read_key(struct work *work, const char *data, size_t size)
{
    static const struct key MASTER = {{1}};
    AUTO(principal_table) *table = principal_table_new(&MASTER);
    put(work->kv, "apikey/0000", data, size);
    require(principal_table_load(table, work->kv, work->err) || work->err->message[0]);
}

static void read_kept(struct work *work, const char *data, size_t size)
{
    struct snapshot snapshot;
    struct volume volume;
    put(work->kv, "snapshot/x", data, size);
    put(work->kv, "volume/p/x", data, size);
    (void)snapshot_get(work, "x", &snapshot);
    (void)volume_get(work, "p", "x", &volume);
}

static void read_family(struct work *work, const char *data, size_t size)
{
    struct family family;
    put(work->kv, "family/x", data, size);
    (void)family_get(work, "x", &family);
}

static void read_mark(struct work *work, const char *data, size_t size)
{
    struct mark mark, again;
    json_t *json = json_loadb(data, size, 0, NULL);
    if (json && mark_parse(&mark, json, work->err)) {
        json_t *told = mark_format(&mark);
        require(told && mark_parse(&again, told, work->err) && mark.number == again.number && mark.kind == again.kind);
        json_decref(told);
    }
    json_decref(json);
}

/* Heads, records and seals that are anything: the proof says so, the search goes on. */
static void read_audit(struct work *work, const char *data, size_t size)
{
    static const struct key KEY = {{1}};
    static const char *const PLACES[] = {"audit-head", "audit/00000000000000000001", "audit/00000000000000000002",
                                         "audit-seal/00000000000000000001"};
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES && size > 0; i++) {
        const char *end = memchr(data, '\0', size);
        size_t length = end ? (size_t)(end - data) : size;
        put(work->kv, PLACES[i], data, length);
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
    uint64_t count = 0, seq = 0;
    uint8_t hash[AUDIT_HASH_BYTES];
    struct error err = {0};
    require(!audit_verify(work->kv, &KEY, &count, &err) || count == 0); /* nobody guesses a hash */
    (void)audit_head(work->kv, &seq, hash, &err);
    json_decref(audit_list(work->kv, 0, 10, &err));
    struct audit_search search = {.filter = {.sandbox_id = "sbx_a"}, .limit = 10};
    while (!search.done && audit_search_step(work->kv, &search, &err))
        continue;
    audit_search_done(&search);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const READERS[])(struct work * work, const char *data, size_t size) = {
        read_sandbox, read_lease, read_once, read_node, read_key, read_kept, read_family, read_mark, read_audit};
    struct error err = {0};
    if (size == 0 || size > KV_VALUE_MAX_BYTES)
        return 0;
    AUTO(kv) *kv = kv_memory_new(0, 1);
    struct work work = {.kv = kv, .now = 1795369623951, .err = &err};
    AUTO_FREE char *copy = memory_copy(data + 1, size - 1);
    READERS[data[0] % (sizeof READERS / sizeof *READERS)](&work, copy, size - 1);
    return 0;
}
