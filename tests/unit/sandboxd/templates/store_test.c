/* The store: one rename makes a version current; old ones stay while used; what was half-made is nobody's template. */
#include "sandboxd/templates/new_version.h"
#include "sandboxd/templates/store_lock.h"
#include "sandboxd/templates/templates.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[] = "/tmp/parley-template-store-XXXXXX";

static struct template_record named(const char *name)
{
    struct template_record record = {
        .kind = TEMPLATE_WHOLE, .uid = 1000, .gid = 1000, .source = "a test", .workdir = "/workspace"};
    snprintf(record.name, sizeof record.name, "%s", name);
    return record;
}

static bool is_there(const char *entry)
{
    AUTO_FREE char *path = memory_printf("%s/%s", folder, entry);
    struct stat status;
    return lstat(path, &status) == 0;
}

static size_t entries_like(const char *prefix)
{
    size_t count = 0;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries))
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(entries);
    return count;
}

static void put(const char *name, char version[static FRONT_LAUNCHER_NAME_BYTES])
{
    struct error err = {0};
    AUTO_NEW_VERSION fresh = NEW_VERSION_NONE;
    struct template_record record = named(name);
    struct template found;
    CHECK(new_version_begin(folder, &fresh, &err));
    AUTO_FREE char *file = memory_printf("%s/file", fresh.rootfs);
    CHECK(fd_write_file(file, 0644, "x", 1, &err));
    CHECK(new_version_commit(folder, &fresh, &record, &err));
    CHECK(templates_find(folder, name, &found, &err));
    memcpy(version, found.version, FRONT_LAUNCHER_NAME_BYTES);
}

static bool is_it(void *context, const char *version)
{
    return strcmp(context, version) == 0;
}

/* Cleaning removes by a process of its own. */
static void clean(const char *used)
{
    char context[FRONT_LAUNCHER_NAME_BYTES];
    snprintf(context, sizeof context, "%s", used);
    templates_clean(folder, is_it, context);
    for (int i = 0; i < 3000 && entries_like(STORE_PREFIX_GONE) > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    CHECK(entries_like(STORE_PREFIX_GONE) == 0);
}

static void test_versions(void)
{
    struct error err = {0};
    struct template found;
    char first[FRONT_LAUNCHER_NAME_BYTES];
    char second[FRONT_LAUNCHER_NAME_BYTES];
    CHECK(!templates_find(folder, "one", &found, &err) && err.kind == ERROR_NOT_FOUND);
    put("one", first);
    put("one", second);
    CHECK(strcmp(first, second) != 0);
    CHECK(templates_find(folder, "one", &found, &err));
    CHECK_TEXT(found.version, second);
    AUTO_FREE char *rootfs = memory_printf("%s/%s/rootfs", folder, second);
    CHECK_TEXT(found.rootfs, rootfs);
    CHECK(access(found.rootfs, F_OK) == 0);
    CHECK(templates_find_version(folder, first, &found, &err));
    clean(first);
    CHECK(is_there(first) && is_there(second));
    clean("none");
    CHECK(!is_there(first) && is_there(second));
    CHECK(!templates_find_version(folder, first, &found, &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(!templates_find_version(folder, "../etc", &found, &err) && err.kind == ERROR_NOT_FOUND);
}

static void test_list_and_remove(void)
{
    struct error err = {0};
    struct template *list = NULL;
    char version[FRONT_LAUNCHER_NAME_BYTES];
    put("two", version);
    put("alpha", version);
    CHECK(templates_list(folder, 256, &list) == 3);
    CHECK_TEXT(list[0].record.name, "alpha");
    CHECK_TEXT(list[2].record.name, "two");
    free(list);
    CHECK(templates_list(folder, 2, &list) == 2);
    free(list);
    CHECK(templates_remove(folder, "alpha", &err));
    CHECK(!templates_remove(folder, "alpha", &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(!templates_remove(folder, "base", &err) && err.kind == ERROR_FORBIDDEN);
    CHECK(!templates_remove(folder, "../x", &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(is_there(version)); /* somebody may use it */
    clean("none");
    CHECK(!is_there(version));
}

static void test_damaged(void)
{
    struct error err = {0};
    struct template *list = NULL;
    struct template found;
    AUTO_FREE char *evil = memory_printf("%s/evil", folder);
    AUTO_FREE char *swapped = memory_printf("%s/swapped", folder);
    char version[FRONT_LAUNCHER_NAME_BYTES];
    size_t before = templates_list(folder, 256, &list);
    free(list);
    CHECK(symlink("/etc", evil) == 0);
    CHECK(!templates_find(folder, "evil", &found, &err) && err.kind == ERROR_INVALID);
    put("other", version);
    CHECK(symlink(version, swapped) == 0); /* a link to another's version */
    CHECK(!templates_find(folder, "swapped", &found, &err) && err.kind == ERROR_INVALID);
    AUTO_FREE char *record = memory_printf("%s/%s/template", folder, version);
    CHECK(truncate(record, 100) == 0);
    CHECK(!templates_find(folder, "other", &found, &err) && err.kind == ERROR_INVALID);
    CHECK(templates_list(folder, 256, &list) == before);
    free(list);
    CHECK(templates_remove(folder, "evil", &err) && templates_remove(folder, "swapped", &err) &&
          templates_remove(folder, "other", &err));
    clean("none");
}

/* What an importer left that died at any moment. */
static void test_half_made(void)
{
    struct error err = {0};
    struct template *list = NULL;
    AUTO_NEW_VERSION alive = NEW_VERSION_NONE;
    CHECK(new_version_begin(folder, &alive, &err));
    pid_t child = fork();
    if (child == 0) {
        struct new_version fresh;
        CHECK(new_version_begin(folder, &fresh, &err));
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    AUTO_FREE char *link = memory_printf("%s/" STORE_PREFIX_LINK "00", folder);
    CHECK(symlink("two-0123456789abcdef", link) == 0);
    size_t templates = templates_list(folder, 256, &list);
    free(list);
    CHECK(entries_like(STORE_PREFIX_NEW) == 2);
    clean("none");
    CHECK(entries_like(STORE_PREFIX_NEW) == 1 && access(alive.rootfs, F_OK) == 0);
    CHECK(entries_like(STORE_PREFIX_LINK) == 0);
    CHECK(templates_list(folder, 256, &list) == templates);
    free(list);
    new_version_done(&alive);
    CHECK(entries_like(STORE_PREFIX_NEW) == 0);
}

static void test_commit_refuses(void)
{
    struct error err = {0};
    AUTO_NEW_VERSION fresh = NEW_VERSION_NONE;
    struct template_record record = named("Bad");
    CHECK(new_version_begin(folder, &fresh, &err));
    CHECK(!new_version_commit(folder, &fresh, &record, &err) && err.kind == ERROR_INVALID);
    CHECK(!is_there("Bad") && fresh.path[0] != '\0');
    AUTO_FREE char *blocked = memory_printf("%s/blocked", folder);
    CHECK(mkdir(blocked, 0700) == 0); /* the link cannot be renamed to it */
    record = named("blocked");
    CHECK(!new_version_commit(folder, &fresh, &record, &err));
    CHECK(access(fresh.rootfs, F_OK) == 0 && entries_like("blocked-") == 0);
    CHECK(rmdir(blocked) == 0);
}

/* A committing importer's version is not yet current: nobody may clean then. */
static void test_clean_waits_for_commits(void)
{
    char old[FRONT_LAUNCHER_NAME_BYTES];
    char version[FRONT_LAUNCHER_NAME_BYTES];
    put("two", old);
    put("two", version);
    int lock = store_lock(folder, STORE_LOCK_WAIT, NULL);
    CHECK(lock >= 0);
    clean("none");
    CHECK(is_there(old));
    close(lock);
    clean("none");
    CHECK(!is_there(old) && is_there(version));
}

static void test_base(void)
{
    struct error err = {0};
    struct template found;
    CHECK(!templates_describe_base(folder, &err) && err.kind == ERROR_NOT_FOUND);
    AUTO_FREE char *version = memory_printf("%s/base-0123456789abcdef", folder);
    AUTO_FREE char *link = memory_printf("%s/base", folder);
    CHECK(mkdir(version, 0755) == 0 && symlink("base-0123456789abcdef", link) == 0);
    CHECK(!templates_find(folder, "base", &found, &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(templates_describe_base(folder, &err));
    CHECK(templates_find(folder, "base", &found, &err));
    CHECK(found.record.kind == TEMPLATE_SKELETON && found.record.uid == 1000 && found.record.created_ms > 0);
    int64_t created = found.record.created_ms;
    CHECK(templates_describe_base(folder, &err) && templates_find(folder, "base", &found, &err));
    CHECK(found.record.created_ms == created);
    clean("none");
    CHECK(is_there("base-0123456789abcdef"));
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    test_versions();
    test_list_and_remove();
    test_damaged();
    test_half_made();
    test_commit_refuses();
    test_clean_waits_for_commits();
    test_base();
    CHECK(fd_remove_tree(folder, NULL));
    return check_done();
}
