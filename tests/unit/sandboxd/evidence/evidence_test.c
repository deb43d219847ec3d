/* Goal: whatever somebody makes on his disk is told as it is, none of it is followed or opened, all of it is bounded;
 * and whatever a process calls itself is text. */
#include "sandboxd/evidence/evidence.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char area[] = "/tmp/evidence-test-XXXXXX";

/* What was written: {path: item}, and the last line in *end; the caller decrefs both. */
static json_t *look(bool (*at)(const struct evidence_order *order, struct error *err), int folder, uint64_t skip,
                    const char *by, json_t **end)
{
    struct error err = {0};
    AUTO_FD int out = memfd_create("out", MFD_CLOEXEC);
    struct evidence_order order = {.folder = folder, .out = out, .uid_base = 100000, .skip = skip};
    CHECK(at(&order, &err));
    off_t size = lseek(out, 0, SEEK_END);
    AUTO_FREE char *text = memory_new((size_t)size + 1);
    CHECK(pread(out, text, (size_t)size, 0) == size);
    bool is_list = strcmp(by, "pid") == 0;
    json_t *found = is_list ? json_array() : json_object();
    char *rest = text;
    *end = NULL;
    for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n")) {
        json_t *item = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        CHECK(item != NULL && *end == NULL);
        if (json_object_get(item, "end"))
            *end = item;
        else if (is_list)
            json_array_append_new(found, item);
        else
            json_object_set_new(found, json_string_value(json_object_get(item, by)), item);
    }
    CHECK(*end != NULL);
    return found;
}

static const char *type_at(const json_t *found, const char *path)
{
    const char *type = json_string_value(json_object_get(json_object_get(found, path), "type"));
    return type ? type : "none";
}

static void put(int at, const char *name)
{
    AUTO_FD int fd = openat(at, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    CHECK(fd >= 0 && write(fd, "abc", 3) == 3);
}

static void test_files(void)
{
    json_t *end;
    AUTO_FD int top = open(area, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(mkdirat(top, "root", 0755) == 0 && mkdirat(top, "usr", 0755) == 0 && mkdirat(top, "usr/upper", 0755) == 0 &&
          mkdirat(top, "root/upper", 0755) == 0 && mkdirat(top, "root/upper/etc", 0700) == 0);
    AUTO_FD int etc = openat(top, "root/upper/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(etc, "made");
    put(etc, "bad\xff\\\n\x1b[2J");
    put(top, "usr/upper/tool");
    CHECK(symlinkat("/etc/shadow", etc, "link") == 0 && symlinkat("/", etc, "out") == 0);
    CHECK(mkfifoat(etc, "pipe", 0600) == 0); /* opening it would wait for ever */
    CHECK(mknodat(etc, "motd", S_IFCHR, makedev(0, 0)) == 0);
    CHECK(fchownat(etc, "made", 101000, 101000, 0) == 0);
    bool is_opaque = fsetxattr(etc, "trusted.overlay.opaque", "y", 1, 0) == 0;
    json_t *found = look(evidence_files, top, 0, "path", &end);
    CHECK_TEXT(type_at(found, "/etc"), "dir");
    CHECK(json_is_true(json_object_get(json_object_get(found, "/etc"), "replaced")) == is_opaque);
    CHECK_TEXT(type_at(found, "/etc/made"), "file");
    CHECK(json_integer_value(json_object_get(json_object_get(found, "/etc/made"), "uid")) == 1000);
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(found, "/etc/made"), "mode")), "0640");
    CHECK_TEXT(type_at(found, "/etc/bad\\xff\\\\\n\x1b[2J"), "file");
    CHECK_TEXT(type_at(found, "/etc/link"), "symlink");
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(found, "/etc/link"), "target")), "/etc/shadow");
    CHECK_TEXT(type_at(found, "/etc/out"), "symlink");
    CHECK_TEXT(type_at(found, "/etc/pipe"), "fifo");
    CHECK_TEXT(type_at(found, "/etc/motd"), "deleted");
    CHECK_TEXT(type_at(found, "/usr/tool"), "file");
    CHECK(json_object_size(found) == 8 && json_is_null(json_object_get(end, "next")));
    json_decref(found);
    json_decref(end);
    found = look(evidence_files, top, 7, "path", &end); /* behind the pages before */
    CHECK(json_object_size(found) == 1);
    json_decref(found);
    json_decref(end);
}

/* A layer that is a link is none; folders without end, and more files than a page has. */
static void test_bounds(void)
{
    json_t *end;
    char name[16];
    AUTO_FD int top = open(area, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(unlinkat(top, "usr/upper/tool", 0) == 0 && unlinkat(top, "usr/upper", AT_REMOVEDIR) == 0 &&
          symlinkat("/usr/bin", top, "usr/upper") == 0);
    int at = openat(top, "root/upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < EVIDENCE_ITEMS_MAX; i++) {
        snprintf(name, sizeof name, "n%d", i);
        put(at, name);
    }
    json_t *found = look(evidence_files, top, 0, "path", &end);
    CHECK(json_object_size(found) == EVIDENCE_ITEMS_MAX);
    CHECK(json_integer_value(json_object_get(end, "next")) == EVIDENCE_ITEMS_MAX);
    json_decref(found);
    json_decref(end);
    for (int i = 0; i < EVIDENCE_DEPTH_MAX + 50; i++) {
        CHECK(mkdirat(at, "d", 0755) == 0);
        int below = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = below;
    }
    close(at);
    found = look(evidence_files, top, EVIDENCE_ITEMS_MAX, "path", &end);
    CHECK(json_is_null(json_object_get(end, "next")) && json_is_true(json_object_get(end, "truncated")));
    CHECK(json_object_get(found, "/usr/sh") == NULL && json_object_get(found, "/usr/bash") == NULL);
    json_decref(found);
    json_decref(end);
}

/* A folder that looks like a cgroup, with a process that has a hostile name. */
static void test_processes(void)
{
    json_t *end;
    char procs[32];
    int ready[2];
    AUTO_FD int top = open(area, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(mkdirat(top, "group", 0755) == 0 && mkdirat(top, "group/e1", 0755) == 0 && pipe2(ready, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sleep", "\xff\x1b]0;x", "60", NULL);
        _exit(1);
    }
    close(ready[1]);
    char byte;
    CHECK(read(ready[0], &byte, 1) == 0); /* closed by its execve */
    snprintf(procs, sizeof procs, "%d\n999999999\n", (int)pid);
    AUTO_FD int fd = openat(top, "group/e1/cgroup.procs", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(write(fd, procs, strlen(procs)) == (ssize_t)strlen(procs));
    AUTO_FD int group = openat(top, "group", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    json_t *found = look(evidence_processes, group, 0, "pid", &end);
    const json_t *one = json_array_get(found, 0);
    CHECK(json_array_size(found) == 1 && json_integer_value(json_object_get(one, "pid")) == pid);
    CHECK(json_integer_value(json_object_get(one, "ppid")) == getpid());
    CHECK_TEXT(json_string_value(json_array_get(json_object_get(one, "command"), 0)), "\\xff\x1b]0;x");
    CHECK_TEXT(json_string_value(json_array_get(json_object_get(one, "command"), 1)), "60");
    CHECK(json_is_false(json_object_get(one, "command_cut")));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    json_decref(found);
    json_decref(end);
}

int main(void)
{
    if (geteuid() != 0) {
        puts("skipped: needs root");
        return 77;
    }
    CHECK(mkdtemp(area) != NULL);
    test_files();
    test_bounds();
    test_processes();
    AUTO_FREE char *command = memory_printf("rm -rf %s", area);
    CHECK(system(command) == 0); // NOLINT: a folder of our own
    return 0;
}
