/* The cache of grants: its lock between processes, what it keeps, what it forgets. */
#include "clients/c/grant_cache.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static json_t *entry_of(const char *sandbox_id, int64_t expires_ms)
{
    return json_pack("{s:s, s:I}", "sandbox_id", sandbox_id, "expires_ms", (json_int_t)expires_ms);
}

static void keep(const char *key, const char *sandbox_id, int64_t expires_ms)
{
    json_t *entry = entry_of(sandbox_id, expires_ms);
    grant_cache_store(-1, key, entry);
    json_decref(entry);
}

static bool is_kept(const char *key)
{
    json_t *entry = grant_cache_find(key);
    json_decref(entry);
    return entry != NULL;
}

static void check_entries(void)
{
    int64_t now = clock_wall_ms();
    keep("a", "sbx_1", now + 60000);
    keep("refreshable", "sbx_2", now - 30000); /* ended, but a refresh still takes it */
    keep("over", "sbx_2", now - 61000);
    CHECK(is_kept("a") && is_kept("refreshable") && !is_kept("over"));
    keep("b", "sbx_1", now + 60000);
    grant_cache_drop_sandbox("sbx_1");
    CHECK(!is_kept("a") && !is_kept("b") && is_kept("refreshable"));
    grant_cache_store(-1, "refreshable", NULL);
    CHECK(!is_kept("refreshable"));
}

static void check_lock(void)
{
    int first = -1, second = -1;
    CHECK(grant_cache_lock(&first, 0) && first >= 0);
    uint64_t before = clock_boot_ns();
    CHECK(!grant_cache_lock(&second, 100));
    CHECK(clock_boot_ns() - before >= 90000000);
    keep("held", "sbx_1", clock_wall_ms() + 60000); /* waits, then leaves it */
    CHECK(!is_kept("held"));
    json_t *entry = entry_of("sbx_1", clock_wall_ms() + 60000);
    grant_cache_store(first, "held", entry);
    json_decref(entry);
    CHECK(is_kept("held"));
    close(first);
    CHECK(grant_cache_lock(&second, 0) && second >= 0);
    close(second);
}

/* A killed holder gives it back; a stopped one does not, and nobody waits longer than told. */
static void check_dead_holder(void)
{
    int told[2];
    CHECK(pipe(told) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        int lock = -1;
        bool held = grant_cache_lock(&lock, 1000) && lock >= 0;
        (void)!write(told[1], held ? "y" : "n", 1);
        for (;;)
            pause();
    }
    char answer = 0;
    CHECK(read(told[0], &answer, 1) == 1 && answer == 'y');
    int lock = -1;
    kill(pid, SIGSTOP);
    CHECK(!grant_cache_lock(&lock, 50));
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK(grant_cache_lock(&lock, 1000) && lock >= 0);
    close(lock);
    close(told[0]);
    close(told[1]);
}

static void check_hostile_file(void)
{
    AUTO_FREE char *path = place_cache_path();
    CHECK(fd_write_file(path, 0600, "[1,2", 4, NULL));
    CHECK(!is_kept("a"));
    keep("a", "sbx_1", clock_wall_ms() + 60000);
    CHECK(is_kept("a"));
    struct stat facts;
    CHECK(stat(path, &facts) == 0 && (facts.st_mode & 0777) == 0600);
}

/* A full disk: what is spent by now must not be found again. */
static void check_unwritten(void)
{
    AUTO_FREE char *path = place_cache_path();
    struct rlimit before, none = {0};
    keep("a", "sbx_1", clock_wall_ms() + 60000);
    CHECK(is_kept("a") && getrlimit(RLIMIT_FSIZE, &before) == 0);
    none.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    keep("a", "sbx_1", clock_wall_ms() + 120000);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(!is_kept("a") && access(path, F_OK) != 0);
}

static void check_no_place(void)
{
    int lock = 7;
    setenv("XDG_CACHE_HOME", "/proc/none", 1);
    CHECK(grant_cache_lock(&lock, 1000) && lock == -1);
    keep("a", "sbx_1", clock_wall_ms() + 60000);
    CHECK(!is_kept("a"));
}

/* A grant for one wish is never given for another; how a wish is written does not matter. */
static void check_keys(void)
{
    char url[] = "http://127.0.0.1:1", api_key[] = "pk_x";
    const struct place place = {.url = url, .api_key = api_key};
    json_t *wishes[] = {NULL, json_pack("{s:s, s:{s:i, s:i}}", "template", "py", "resources", "cpu", 1, "pids", 64),
                        json_pack("{s:{s:i, s:i}, s:s}", "resources", "pids", 64, "cpu", 1, "template", "py"),
                        json_pack("{s:s, s:{s:i, s:i}}", "template", "py", "resources", "cpu", 1, "pids", 65)};
    char *keys[4];
    for (size_t i = 0; i < 4; i++)
        keys[i] = grant_cache_key(&place, &(struct grant_request){.thread = "t", .more = wishes[i]});
    CHECK(strcmp(keys[0], keys[1]) != 0 && strcmp(keys[1], keys[2]) == 0 && strcmp(keys[2], keys[3]) != 0);
    for (size_t i = 0; i < 4; i++) {
        free(keys[i]);
        json_decref(wishes[i]);
    }
}

int main(void)
{
    char folder[] = "/tmp/parley-cache-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    setenv("XDG_CACHE_HOME", folder, 1);
    unsetenv("SUDO_UID");
    check_keys();
    check_entries();
    check_lock();
    check_dead_holder();
    check_hostile_file();
    check_unwritten();
    check_no_place();
    CHECK(fd_remove_tree(folder, NULL));
    return check_done();
}
