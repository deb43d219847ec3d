#include "negotiator/ledger/kv_internal.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* A record is its revision (u64, the machine's byte order, as LMDB's own numbers), the value's bytes and a NUL, so that
 * a walk can hand out strings without copying. The table "meta" holds the number of the last revision and the format.
 */
#define RECORD_OVERHEAD_BYTES (sizeof(uint64_t) + 1)
#define FORMAT                1
#define MAP_MIN_BYTES         ((size_t)1 << 20)
#define MAP_STEP_BYTES        ((size_t)1 << 16) /* a multiple of every page size */
#define DISK_FULL_BLOCKS      64

struct kv_lmdb {
    struct kv kv;
    int folder; /* holds the lock */
    MDB_env *env;
    MDB_dbi records, meta;
    MDB_txn *batch;   /* while in_batch */
    MDB_txn *reader;  /* for reads outside a batch; reset while `readers` is 0: it pins no pages then */
    unsigned readers; /* reads inside each other */
    uint64_t revision, revision_before; /* last used; when the batch began */
    struct error broken;                /* why this batch can only fail; ERROR_NONE */
};

static struct kv_lmdb *self(struct kv *kv)
{
    return (struct kv_lmdb *)kv;
}

static bool fail(struct error *err, int code, const char *doing)
{
    switch (code) {
    case MDB_MAP_FULL:
        return error_set(err, ERROR_DISK_FULL,
                         "%s: the ledger has grown to map_mb, the size it may have; start with a larger map_mb", doing);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        errno = code;
        return error_set_errno(err, ERROR_DISK_FULL, "%s: the store cannot grow; make room on its file system", doing);
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
        return error_set(err, ERROR_INTERNAL, "%s: data.mdb is damaged or no store (%s); restore it from a backup",
                         doing, mdb_strerror(code));
    case MDB_VERSION_MISMATCH:
        return error_set(err, ERROR_INTERNAL, "%s: data.mdb was written by another version of LMDB", doing);
    case MDB_PANIC:
        return error_set(err, ERROR_INTERNAL, "%s: an earlier write failed half-way; the store must be opened again",
                         doing);
    default:
        break;
    }
    if (code < 0)
        return error_set(err, ERROR_INTERNAL, "%s: %s", doing, mdb_strerror(code));
    errno = code;
    return error_set_errno(err, ERROR_INTERNAL, "%s", doing);
}

static bool damaged_record(struct error *err)
{
    return error_set(err, ERROR_INTERNAL, "the store: a record is damaged; restore data.mdb from a backup");
}

/* LMDB answers EIO for a write that was cut short, which is what the first one that meets a full disk is. */
static int commit_code(const struct kv_lmdb *store, int code)
{
    struct statvfs disk;
    if (code != EIO || fstatvfs(store->folder, &disk) != 0)
        return code;
    return disk.f_bavail < DISK_FULL_BLOCKS ? ENOSPC : EIO;
}

static MDB_val val(const void *data, size_t size)
{
    /* LMDB takes keys and data for reading through a pointer that is not const. */
    union {
        const void *from;
        void *to;
    } pointer = {.from = data};
    return (MDB_val){.mv_size = size, .mv_data = pointer.to};
}

/* --- reading --- */

static bool decode(const MDB_val *record, struct kv_value *value, struct error *err)
{
    char *bytes = record->mv_data;
    if (record->mv_size < RECORD_OVERHEAD_BYTES || bytes[record->mv_size - 1] != '\0')
        return damaged_record(err);
    value->data = bytes + sizeof value->revision;
    value->size = record->mv_size - RECORD_OVERHEAD_BYTES;
    memcpy(&value->revision, bytes, sizeof value->revision);
    return value->revision > 0 || damaged_record(err);
}

static bool read_begin(struct kv_lmdb *store, MDB_txn **txn, struct error *err)
{
    if (store->broken.kind != ERROR_NONE)
        return error_set(err, store->broken.kind, "%s", store->broken.message);
    if (store->kv.in_batch) {
        *txn = store->batch;
        return true;
    }
    int code = 0;
    if (store->reader == NULL)
        code = mdb_txn_begin(store->env, NULL, MDB_RDONLY, &store->reader);
    else if (store->readers == 0)
        code = mdb_txn_renew(store->reader);
    if (code)
        return fail(err, code, "reading the store");
    store->readers++;
    *txn = store->reader;
    return true;
}

static void read_end(struct kv_lmdb *store, const MDB_txn *txn)
{
    if (txn == store->reader && --store->readers == 0)
        mdb_txn_reset(store->reader);
}

static bool lmdb_get(struct kv *kv, const char *key, struct kv_value *value, struct error *err)
{
    struct kv_lmdb *store = self(kv);
    MDB_txn *txn = NULL;
    if (!read_begin(store, &txn, err))
        return false;
    MDB_val name = val(key, strlen(key)), record;
    struct kv_value inside = {0};
    int code = mdb_get(txn, store->records, &name, &record);
    bool read = code == MDB_NOTFOUND || (code ? fail(err, code, "reading the store") : decode(&record, &inside, err));
    if (read && code == 0)
        *value = (struct kv_value){memory_copy(inside.data, inside.size), inside.size, inside.revision};
    read_end(store, txn);
    return read;
}

struct walk {
    const char *first, *end;
    size_t limit;
    kv_visit *visit;
    void *cookie;
};

/* Visits one pair; *more gets whether the walk goes on. */
static bool walk_step(const struct walk *walk, const MDB_val *name, const MDB_val *record, bool *more,
                      struct error *err)
{
    char key[KV_KEY_MAX_BYTES + 1];
    if (name->mv_size >= sizeof key || memchr(name->mv_data, '\0', name->mv_size))
        return damaged_record(err);
    memcpy(key, name->mv_data, name->mv_size);
    key[name->mv_size] = '\0';
    *more = walk->end ? strcmp(key, walk->end) < 0 : strncmp(key, walk->first, strlen(walk->first)) == 0;
    if (!*more)
        return true;
    struct kv_value value;
    if (!decode(record, &value, err))
        return false;
    *more = walk->visit(walk->cookie, key, &value);
    return true;
}

static bool walk_all(const struct walk *walk, MDB_cursor *cursor, struct error *err)
{
    MDB_val name = val(walk->first, strlen(walk->first)), record;
    MDB_cursor_op move = name.mv_size ? MDB_SET_RANGE : MDB_FIRST;
    bool more = true;
    for (size_t visited = 0; more && (walk->limit == 0 || visited < walk->limit); visited++) {
        int code = mdb_cursor_get(cursor, &name, &record, move);
        if (code == MDB_NOTFOUND)
            return true;
        if (code)
            return fail(err, code, "walking the store");
        if (!walk_step(walk, &name, &record, &more, err))
            return false;
        move = MDB_NEXT;
    }
    return true;
}

static bool lmdb_range(struct kv *kv, const char *first, const char *end, size_t limit, kv_visit *visit, void *cookie,
                       struct error *err)
{
    struct kv_lmdb *store = self(kv);
    MDB_txn *txn = NULL;
    if (!read_begin(store, &txn, err))
        return false;
    MDB_cursor *cursor = NULL;
    int code = mdb_cursor_open(txn, store->records, &cursor);
    struct walk walk = {first, end, limit, visit, cookie};
    bool walked = code ? fail(err, code, "walking the store") : walk_all(&walk, cursor, err);
    if (cursor)
        mdb_cursor_close(cursor);
    read_end(store, txn);
    return walked;
}

/* --- writing --- */

static enum kv_outcome compare(struct kv_lmdb *store, const struct kv_step *step, struct error *err)
{
    MDB_val name = val(step->key, strlen(step->key)), record;
    struct kv_value value = {0};
    int code = mdb_get(store->batch, store->records, &name, &record);
    if (code && code != MDB_NOTFOUND) {
        fail(err, code, "reading the store");
        return KV_FAILED;
    }
    if (code == 0 && !decode(&record, &value, err))
        return KV_FAILED;
    return value.revision == step->revision ? KV_APPLIED : KV_CONFLICT;
}

static int write_step(struct kv_lmdb *store, const struct kv_step *step, uint64_t revision)
{
    MDB_val name = val(step->key, strlen(step->key));
    if (step->kind == KV_STEP_DELETE) {
        int code = mdb_del(store->batch, store->records, &name, NULL);
        return code == MDB_NOTFOUND ? 0 : code;
    }
    MDB_val record = {.mv_size = step->size + RECORD_OVERHEAD_BYTES};
    int code = mdb_put(store->batch, store->records, &name, &record, MDB_RESERVE);
    if (code)
        return code;
    char *bytes = record.mv_data;
    memcpy(bytes, &revision, sizeof revision);
    memcpy(bytes + sizeof revision, step->data, step->size + 1);
    return 0;
}

static enum kv_outcome lmdb_apply(struct kv *kv, const struct kv_change *change, struct error *err)
{
    struct kv_lmdb *store = self(kv);
    if (store->broken.kind != ERROR_NONE) {
        error_set(err, store->broken.kind, "%s", store->broken.message);
        return KV_FAILED;
    }
    bool writes = false;
    for (size_t i = 0; i < change->count; i++) {
        if (change->steps[i].kind != KV_STEP_EXPECT) {
            writes = true;
            continue;
        }
        enum kv_outcome outcome = compare(store, &change->steps[i], err);
        if (outcome != KV_APPLIED)
            return outcome;
    }
    for (size_t i = 0; i < change->count; i++) {
        if (change->steps[i].kind == KV_STEP_EXPECT)
            continue;
        int code = write_step(store, &change->steps[i], store->revision + 1);
        if (code == 0)
            continue;
        /* Part of the change may be there, and LMDB refuses to go on after most errors: the batch is lost. */
        fail(&store->broken, code, "writing the store");
        error_set(err, store->broken.kind, "%s", store->broken.message);
        return KV_FAILED;
    }
    store->revision += writes;
    return KV_APPLIED;
}

static bool lmdb_batch_begin(struct kv *kv, struct error *err)
{
    struct kv_lmdb *store = self(kv);
    int code = mdb_txn_begin(store->env, NULL, 0, &store->batch);
    if (code)
        return fail(err, code, "beginning a batch");
    store->revision_before = store->revision;
    return true;
}

static int put_number(MDB_txn *txn, MDB_dbi meta, const char *name, uint64_t number)
{
    MDB_val key = val(name, strlen(name)), data = val(&number, sizeof number);
    return mdb_put(txn, meta, &key, &data, 0);
}

static bool commit(struct kv_lmdb *store, MDB_txn *txn, struct error *err)
{
    if (store->broken.kind == ERROR_NONE && store->revision != store->revision_before) {
        int code = put_number(txn, store->meta, "revision", store->revision);
        if (code)
            fail(&store->broken, code, "writing the store");
    }
    if (store->broken.kind != ERROR_NONE) {
        mdb_txn_abort(txn);
        return error_set(err, store->broken.kind, "%s", store->broken.message);
    }
    int code = mdb_txn_commit(txn); /* frees it in any case */
    return code == 0 || fail(err, commit_code(store, code), "committing a batch");
}

static bool lmdb_batch_end(struct kv *kv, struct error *err)
{
    struct kv_lmdb *store = self(kv);
    bool committed = commit(store, TAKE(store->batch), err);
    if (!committed)
        store->revision = store->revision_before;
    store->broken = (struct error){0};
    return committed;
}

/* Pages below the last one that hold nothing: LMDB's own list of them (table 0), as its tool mdb_stat reads it. A
 * batch's transaction may not read it: a reader beside it may. */
static int count_free(struct kv_lmdb *store, size_t *pages)
{
    MDB_txn *txn = NULL;
    MDB_cursor *cursor = NULL;
    MDB_val key, list;
    int code = mdb_txn_begin(store->env, NULL, MDB_RDONLY, &txn);
    if (code == 0)
        code = mdb_cursor_open(txn, 0, &cursor);
    while (code == 0 && (code = mdb_cursor_get(cursor, &key, &list, MDB_NEXT)) == 0) {
        size_t count = 0; /* the list's first word */
        memcpy(&count, list.mv_data, list.mv_size < sizeof count ? 0 : sizeof count);
        *pages += count;
    }
    if (cursor)
        mdb_cursor_close(cursor);
    mdb_txn_abort(txn);
    return code == MDB_NOTFOUND ? 0 : code;
}

static bool lmdb_usage(struct kv *kv, unsigned *percent, struct error *err)
{
    struct kv_lmdb *store = self(kv);
    MDB_envinfo info = {0};
    MDB_stat stat_of = {.ms_psize = 1};
    size_t unused = 0;
    int code = mdb_env_info(store->env, &info);
    code = code ? code : mdb_env_stat(store->env, &stat_of);
    size_t all = info.me_mapsize / stat_of.ms_psize, used = info.me_last_pgno + 1;
    if (code == 0 && used > all / 2)
        code = count_free(store, &unused);
    *percent = all && unused < used ? (unsigned)((used - unused) * 100 / all) : 0;
    return code == 0 || fail(err, code, "asking how full the store is");
}

/* --- opening and closing --- */

static void kv_lmdb_free(struct kv_lmdb *store)
{
    if (store == NULL)
        return;
    if (store->reader)
        mdb_txn_abort(store->reader);
    if (store->batch)
        mdb_txn_abort(store->batch);
    if (store->env)
        mdb_env_close(store->env);
    if (store->folder >= 0)
        close(store->folder);
    free(store);
}
DEFINE_AUTO(kv_lmdb)

static void lmdb_free(struct kv *kv)
{
    kv_lmdb_free(self(kv));
}

static bool lock_folder(struct kv_lmdb *store, const char *folder, struct error *err)
{
    if (!fd_make_folders(folder, 0700, err))
        return false;
    store->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->folder < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", folder);
    if (flock(store->folder, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (errno == EWOULDBLOCK)
        return error_set(err, ERROR_CONFLICT, "the store in %s is in use by another process", folder);
    return error_set_errno(err, ERROR_INTERNAL, "flock %s", folder);
}

/* LMDB reads through a map, where a file that was cut short means SIGBUS. Grown back with zeros, which are no valid
 * page, the missing part is an error code. (It may be short without harm too: unused pages at its end.) */
static int grow_to_last_page(MDB_env *env)
{
    MDB_envinfo info;
    MDB_stat stat_of;
    int fd = -1, code = mdb_env_info(env, &info);
    if (code == 0)
        code = mdb_env_stat(env, &stat_of);
    if (code == 0)
        code = mdb_env_get_fd(env, &fd);
    if (code)
        return code;
    struct stat file;
    if (fstat(fd, &file) != 0)
        return errno;
    off_t needed = ((off_t)info.me_last_pgno + 1) * (off_t)stat_of.ms_psize;
    if (file.st_size < needed && ftruncate(fd, needed) != 0)
        return errno;
    return 0;
}

static bool open_env(struct kv_lmdb *store, const char *folder, size_t map_bytes, struct error *err)
{
    size_t map = map_bytes < MAP_MIN_BYTES ? MAP_MIN_BYTES : map_bytes / MAP_STEP_BYTES * MAP_STEP_BYTES;
    int dead = 0, code = mdb_env_create(&store->env);
    if (code == 0)
        code = mdb_env_set_mapsize(store->env, map);
    if (code == 0)
        code = mdb_env_set_maxdbs(store->env, 2);
    if (code == 0)
        code = mdb_env_open(store->env, folder, MDB_NOTLS, 0600);
    if (code == 0)
        code = mdb_reader_check(store->env, &dead);
    if (code == 0)
        code = grow_to_last_page(store->env);
    return code == 0 || fail(err, code, "opening the store");
}

/* *number stays as it is when the name is missing. */
static int get_number(MDB_txn *txn, MDB_dbi meta, const char *name, uint64_t *number)
{
    MDB_val key = val(name, strlen(name)), data;
    int code = mdb_get(txn, meta, &key, &data);
    if (code == 0 && data.mv_size != sizeof *number)
        return MDB_CORRUPTED;
    if (code == 0)
        memcpy(number, data.mv_data, sizeof *number);
    return code == MDB_NOTFOUND ? 0 : code;
}

static bool read_tables(struct kv_lmdb *store, MDB_txn *txn, struct error *err)
{
    uint64_t format = 0;
    MDB_stat records = {0};
    int code = mdb_dbi_open(txn, "records", MDB_CREATE, &store->records);
    if (code == 0)
        code = mdb_dbi_open(txn, "meta", MDB_CREATE, &store->meta);
    if (code == 0)
        code = mdb_stat(txn, store->records, &records);
    if (code == 0)
        code = get_number(txn, store->meta, "format", &format);
    if (code == 0)
        code = get_number(txn, store->meta, "revision", &store->revision);
    if (code == 0 && format == 0 && records.ms_entries == 0)
        code = put_number(txn, store->meta, "format", format = FORMAT);
    if (code)
        return fail(err, code, "opening the store");
    if (format != FORMAT)
        return error_set(err, ERROR_INTERNAL, "opening the store: its format is %llu, this program knows %d",
                         (unsigned long long)format, FORMAT);
    return true;
}

static bool open_tables(struct kv_lmdb *store, struct error *err)
{
    MDB_txn *txn = NULL;
    int code = mdb_txn_begin(store->env, NULL, 0, &txn);
    if (code)
        return fail(err, code, "opening the store");
    if (!read_tables(store, txn, err)) {
        mdb_txn_abort(txn);
        return false;
    }
    code = mdb_txn_commit(txn);
    return code == 0 || fail(err, code, "opening the store");
}

struct kv *kv_lmdb_open(const char *folder, size_t map_bytes, struct error *err)
{
    static const struct kv_engine ENGINE = {
        .get = lmdb_get,
        .range = lmdb_range,
        .apply = lmdb_apply,
        .batch_begin = lmdb_batch_begin,
        .batch_end = lmdb_batch_end,
        .usage = lmdb_usage,
        .free = lmdb_free,
    };
    AUTO(kv_lmdb) *store = memory_new(sizeof *store);
    store->kv.engine = &ENGINE;
    store->folder = -1;
    if (!lock_folder(store, folder, err))
        return NULL;
    if (!open_env(store, folder, map_bytes, err) || !open_tables(store, err)) {
        error_prefix(err, "%s", folder);
        return NULL;
    }
    struct kv_lmdb *opened = TAKE(store);
    return &opened->kv;
}
