/* lmdb_test.c - what only the durable engine promises: it is there after a reopen and after kill -9; one process at a
 * time; files for nobody else; a full disk, a full map, a damaged file are clear errors and lose nothing that was
 * acknowledged. */
#include "negotiator/ledger/ledger.h"
#include "shared/base/random.h"
#include "tests/unit/negotiator/ledger/stores.h"

#include <fcntl.h>
#include <lmdb.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MEBIBYTE ((size_t)1 << 20)

static bool put(struct kv *kv, const char *key, const void *data, size_t size, struct error *err)
{
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, key, data, size);
    if (!kv_batch_begin(kv, err))
        return false;
    enum kv_outcome outcome = kv_apply(kv, change, err);
    return kv_batch_end(kv, outcome == KV_FAILED ? NULL : err) && outcome == KV_APPLIED;
}

static uint64_t revision_of(struct kv *kv, const char *key)
{
    AUTO_KV_VALUE value = {0};
    CHECK(kv_get(kv, key, &value, NULL));
    return value.revision;
}

static bool count_pair(void *cookie, const char *key UNUSED, const struct kv_value *value UNUSED)
{
    ++*(size_t *)cookie;
    return true;
}

static size_t count_pairs(struct kv *kv)
{
    size_t count = 0;
    CHECK(kv_range(kv, "", NULL, 0, count_pair, &count, NULL));
    return count;
}

static void test_reopen(const char *folder)
{
    struct kv *kv = stores_open(STORES_LMDB, folder);
    CHECK(put(kv, "a", "1", 1, NULL) && put(kv, "b", "2", 1, NULL));
    uint64_t revision = revision_of(kv, "b");
    CHECK(revision == revision_of(kv, "a") + 1);
    AUTO(kv_change) *lost = kv_change_new();
    kv_change_put(lost, "lost", "x", 1);
    CHECK(kv_batch_begin(kv, NULL) && kv_apply(kv, lost, NULL) == KV_APPLIED);
    kv_free(kv); /* the batch did not end: nothing of it happened */

    kv = stores_open(STORES_LMDB, folder);
    CHECK(count_pairs(kv) == 2 && revision_of(kv, "b") == revision);
    CHECK(put(kv, "c", "3", 1, NULL));
    CHECK(revision_of(kv, "c") == revision + 1); /* revisions go on */
    kv_free(kv);
}

static void test_files(const char *folder)
{
    char below[4200], name[4300];
    struct stat file;
    umask(0);
    snprintf(below, sizeof below, "%s/new/ledger", folder);
    AUTO(kv) *kv = stores_open(STORES_LMDB, below);
    CHECK(stat(below, &file) == 0 && (file.st_mode & 0777) == 0700);
    snprintf(name, sizeof name, "%s/data.mdb", below);
    CHECK(stat(name, &file) == 0 && (file.st_mode & 0777) == 0600);
    snprintf(name, sizeof name, "%s/lock.mdb", below);
    CHECK(stat(name, &file) == 0 && (file.st_mode & 0777) == 0600);
    umask(022);

    struct error err = {0};
    CHECK(kv_lmdb_open(below, MEBIBYTE, &err) == NULL && err.kind == ERROR_CONFLICT);
    CHECK(put(kv, "a", "still ours", 10, &err));
    CHECK(kv_lmdb_open("/dev/null/x", MEBIBYTE, &err) == NULL && err.kind != ERROR_NONE);
}

/* Nothing is opened by path after kv_lmdb_open: the folder may become unreachable, as it does for a confined process.
 */
static void test_no_path_later(const char *folder)
{
    char moved[4200];
    snprintf(moved, sizeof moved, "%s.moved", folder);
    struct kv *kv = stores_open(STORES_LMDB, folder);
    CHECK(rename(folder, moved) == 0);
    CHECK(put(kv, "a", "1", 1, NULL) && revision_of(kv, "a") > 0 && count_pairs(kv) == 1);
    kv_free(kv);
    CHECK(rename(moved, folder) == 0);
    kv = stores_open(STORES_LMDB, folder);
    CHECK(count_pairs(kv) == 1);
    kv_free(kv);
}

static void test_full(const char *folder)
{
    static char big[100000];
    struct error err = {0};
    struct kv *kv = kv_lmdb_open(folder, MEBIBYTE, &err);
    CHECK(kv && put(kv, "small", "1", 1, &err));
    AUTO(kv_change) *small = kv_change_new();
    AUTO(kv_change) *huge = kv_change_new();
    kv_change_put(small, "first of a failing batch", "1", 1);
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "big/%d", i);
        kv_change_put(huge, key, big, sizeof big);
    }
    /* What breaks the batch takes all of it along, and says so to whoever comes later in it. */
    CHECK(kv_batch_begin(kv, &err));
    CHECK(kv_apply(kv, small, &err) == KV_APPLIED);
    CHECK(kv_apply(kv, huge, &err) == KV_FAILED && err.kind == ERROR_DISK_FULL);
    AUTO_KV_VALUE value = {0};
    CHECK(kv_apply(kv, small, &err) == KV_FAILED && err.kind == ERROR_DISK_FULL);
    CHECK(!kv_get(kv, "small", &value, &err) && err.kind == ERROR_DISK_FULL);
    err = (struct error){0};
    CHECK(!kv_batch_end(kv, &err) && err.kind == ERROR_DISK_FULL && strstr(err.message, "map_mb"));
    CHECK(count_pairs(kv) == 1);

    size_t filled = 0;
    for (char key[16]; filled < 100; filled++) {
        snprintf(key, sizeof key, "fill/%zu", filled);
        if (!put(kv, key, big, sizeof big, &err))
            break;
    }
    CHECK(filled > 4 && filled < 11 && err.kind == ERROR_DISK_FULL);
    unsigned full = 0, emptied = 100;
    CHECK(kv_usage(kv, &full, &err) && full > 60 && full <= 100);
    CHECK(count_pairs(kv) == filled + 1);
    CHECK(put(kv, "small", "2", 1, &err)); /* what fits still goes in */
    AUTO(kv_change) *gone = kv_change_new();
    kv_change_delete(gone, "fill/0");
    kv_change_delete(gone, "fill/1");
    kv_change_delete(gone, "fill/2");
    CHECK(kv_batch_begin(kv, &err) && kv_apply(kv, gone, &err) == KV_APPLIED && kv_batch_end(kv, &err));
    CHECK(kv_usage(kv, &emptied, &err) && emptied + 20 < full); /* freed pages are room, though the file stays */
    CHECK(kv_batch_begin(kv, &err) && kv_usage(kv, &emptied, &err) && kv_batch_end(kv, &err));
    for (int i = 0; i < 20; i++) { /* freed pages are used again, once a commit lies between */
        CHECK(put(kv, "small", "3", 1, &err));
        CHECK(put(kv, "fill/0", big, sizeof big, &err));
    }
    kv_free(kv);
    kv = stores_open(STORES_LMDB, folder);
    CHECK(count_pairs(kv) == filled - 1 && revision_of(kv, "small") > 0);
    kv_free(kv);
}

/* A commit that fails by itself, then one that does not. */
static void check_failed_commit(const char *folder, void (*shrink)(const char *), void (*widen)(const char *),
                                enum error_kind kind)
{
    static char big[200000];
    struct error err = {0};
    AUTO(kv) *kv = stores_open(STORES_LMDB, folder);
    CHECK(put(kv, "a", "1", 1, &err));
    uint64_t revision = revision_of(kv, "a");
    shrink(folder);
    AUTO(kv_change) *change = kv_change_new();
    kv_change_put(change, "a", "2", 1);
    kv_change_put(change, "big", big, sizeof big);
    CHECK(kv_batch_begin(kv, &err) && kv_apply(kv, change, &err) == KV_APPLIED);
    CHECK(!kv_batch_end(kv, &err) && err.kind == kind);
    CHECK(revision_of(kv, "a") == revision && count_pairs(kv) == 1);
    widen(folder);
    CHECK(put(kv, "b", "1", 1, &err));
    CHECK(revision_of(kv, "b") == revision + 1); /* the one that was not used */
    CHECK(kv_batch_begin(kv, &err) && kv_apply(kv, change, &err) == KV_APPLIED && kv_batch_end(kv, &err));
    CHECK(count_pairs(kv) == 3);
}

static void limit_files(const char *folder UNUSED)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = 64 * 1024;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void unlimit_files(const char *folder UNUSED)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* To LMDB a write that was cut short is EIO, and then there is room on the file system: not a full disk. */
static void test_failed_commit(const char *folder)
{
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    check_failed_commit(folder, limit_files, unlimit_files, ERROR_INTERNAL);
}

static void fill_disk(const char *folder)
{
    static char page[4096];
    char name[4200];
    snprintf(name, sizeof name, "%s/ballast", folder);
    AUTO_FD int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int pages = 0; pages < 1000 && write(fd, page, sizeof page) > 0; pages++)
        continue;
    CHECK(ftruncate(fd, lseek(fd, 0, SEEK_END) - 20 * 4096) == 0); /* room for a part of the commit */
}

static void free_disk(const char *folder)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/ballast", folder);
    CHECK(unlink(name) == 0);
}

static bool write_proc(const char *path, const char *text)
{
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* Root in a new user namespace is who we are outside (user_namespaces(7)). */
static bool become_root(void)
{
    char uids[32], gids[32];
    snprintf(uids, sizeof uids, "0 %u 1", geteuid());
    snprintf(gids, sizeof gids, "0 %u 1", getegid());
    return unshare(CLONE_NEWUSER) == 0 && write_proc("/proc/self/uid_map", uids) &&
           write_proc("/proc/self/setgroups", "deny") && write_proc("/proc/self/gid_map", gids);
}

/* A file system of 1 MiB of our own; a user without rights makes it in a user namespace. */
static bool mount_small(const char *folder)
{
    if ((geteuid() && !become_root()) || unshare(CLONE_NEWNS) != 0)
        return false;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") == 0;
}

static void test_full_disk(const char *folder)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        if (!mount_small(folder))
            _exit(77);
        check_failures = 0;
        check_failed_commit(folder, fill_disk, free_disk, ERROR_DISK_FULL);
        _exit(check_done());
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        fprintf(stderr, "full disk: left out, no file system can be mounted here\n");
    else
        CHECK(WEXITSTATUS(status) == 0);
}

/* --- kill -9 --- */

struct write {
    struct ledger *ledger;
    int told; /* pipe: numbers that were acknowledged */
    uint32_t number;
};

static enum kv_outcome write_number(struct kv *kv, void *argument, struct error *err)
{
    const struct write *write = argument;
    char key[32];
    snprintf(key, sizeof key, "n/%u", write->number);
    AUTO(kv_change) *change = kv_change_new();
    kv_change_expect(change, key, 0);
    kv_change_put(change, key, &write->number, sizeof write->number);
    return kv_apply(kv, change, err);
}

static void tell_number(void *argument, const struct error *err)
{
    struct write *one = argument;
    if (err->kind != ERROR_NONE || write(one->told, &one->number, sizeof one->number) != sizeof one->number)
        _exit(3);
    one->number += 16;
    ledger_submit(one->ledger, write_number, tell_number, one);
}

/* Sixteen writers that go on until they are killed. */
static void write_for_ever(const char *folder, int told)
{
    struct error err = {0};
    struct kv *kv = kv_lmdb_open(folder, 64 * MEBIBYTE, &err);
    struct ledger *ledger = kv ? ledger_start(kv, &err) : NULL;
    if (ledger == NULL)
        _exit(2);
    static struct write writes[16];
    for (uint32_t i = 0; i < 16; i++) {
        writes[i] = (struct write){ledger, told, i};
        ledger_submit(ledger, write_number, tell_number, &writes[i]);
    }
    for (;;)
        pause();
}

static void check_number(struct kv *kv, uint32_t number)
{
    char key[32];
    uint32_t stored;
    AUTO_KV_VALUE value = {0};
    snprintf(key, sizeof key, "n/%u", number);
    CHECK(kv_get(kv, key, &value, NULL));
    CHECK(value.size == sizeof stored);
    if (value.size == sizeof stored) {
        memcpy(&stored, value.data, sizeof stored);
        CHECK(stored == number);
    }
}

static void test_kill(const char *folder)
{
    int told[2], status = 0;
    CHECK(pipe2(told, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0)
        write_for_ever(folder, told[1]);
    close(told[1]);
    static uint32_t numbers[200000];
    uint32_t kill_at = 100 + random_below(1500);
    size_t count = 0;
    while (count < 200000 && read(told[0], &numbers[count], sizeof *numbers) == sizeof *numbers) {
        if (++count == kill_at)
            kill(child, SIGKILL);
    }
    close(told[0]);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(count >= kill_at);
    AUTO(kv) *kv = stores_open(STORES_LMDB, folder); /* the dead one's locks are gone */
    for (size_t i = 0; i < count; i++)
        check_number(kv, numbers[i]);
    /* What was not acknowledged may be there, whole or not at all: at most one batch. */
    CHECK(count_pairs(kv) >= count && count_pairs(kv) <= count + 16);
    CHECK(put(kv, "after", "1", 1, NULL) && revision_of(kv, "after") == count_pairs(kv));
}

/* --- damage --- */

static void fill(const char *folder)
{
    static char data[3000];
    memset(data, 'd', sizeof data);
    AUTO(kv) *kv = stores_open(STORES_LMDB, folder);
    for (int i = 0; i < 30; i++) {
        char key[16];
        snprintf(key, sizeof key, "key/%d", i);
        CHECK(put(kv, key, data, sizeof data, NULL));
    }
}

static int open_data(const char *folder)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/data.mdb", folder);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static void check_damaged(const char *folder)
{
    struct error err = {0};
    size_t count = 0;
    AUTO(kv) *kv = kv_lmdb_open(folder, 64 * MEBIBYTE, &err);
    CHECK(kv == NULL || !kv_range(kv, "", NULL, 0, count_pair, &count, &err));
    CHECK(err.kind == ERROR_INTERNAL && strstr(err.message, "restore"));
}

static void test_cut_short(const char *folder)
{
    fill(folder);
    AUTO_FD int fd = open_data(folder);
    CHECK(ftruncate(fd, 5L * 4096) == 0);
    check_damaged(folder);
}

static void test_foreign(const char *folder)
{
    static char noise[64 * 1024];
    fill(folder);
    AUTO_FD int fd = open_data(folder);
    random_bytes(noise, sizeof noise);
    CHECK(pwrite(fd, noise, sizeof noise, 0) == (ssize_t)sizeof noise);
    check_damaged(folder);
    CHECK(ftruncate(fd, 100) == 0);
    check_damaged(folder);
}

/* A record that this engine did not write, put there with LMDB itself; and a store of a later format. */
static void test_foreign_record(const char *folder)
{
    fill(folder);
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi records = 0, meta = 0;
    char name[] = "key/5", format[] = "format", bytes[] = "short";
    uint64_t later = 2;
    MDB_val key = {5, name}, data = {5, bytes}, format_key = {6, format}, number = {8, &later};
    CHECK(mdb_env_create(&env) == 0 && mdb_env_set_maxdbs(env, 2) == 0 && mdb_env_open(env, folder, 0, 0600) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0 && mdb_dbi_open(txn, "records", 0, &records) == 0);
    CHECK(mdb_put(txn, records, &key, &data, 0) == 0 && mdb_txn_commit(txn) == 0);
    mdb_env_close(env);
    check_damaged(folder);

    CHECK(mdb_env_create(&env) == 0 && mdb_env_set_maxdbs(env, 2) == 0 && mdb_env_open(env, folder, 0, 0600) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0 && mdb_dbi_open(txn, "meta", 0, &meta) == 0);
    CHECK(mdb_put(txn, meta, &format_key, &number, 0) == 0 && mdb_txn_commit(txn) == 0);
    mdb_env_close(env);
    struct error err = {0};
    CHECK(kv_lmdb_open(folder, MEBIBYTE, &err) == NULL && err.kind == ERROR_INTERNAL);
    CHECK(strstr(err.message, "format is 2"));
}

int main(void)
{
    static void (*const TESTS[])(const char *) = {
        test_kill, test_kill,          test_kill,      test_reopen,    test_files,   test_no_path_later,
        test_full, test_failed_commit, test_full_disk, test_cut_short, test_foreign, test_foreign_record};
    for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
        char folder[4096];
        stores_make_folder(folder);
        TESTS[i](folder);
        stores_remove_folder(folder);
    }
    return check_done();
}
