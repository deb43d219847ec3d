/* processes.c - the processes of a sandbox, by its cgroup and /proc. */
#include "sandboxd/evidence/page.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMMAND_BYTES = 4096, ARGUMENTS_MAX = 256, STATUS_BYTES = 8192, LEVELS = 4 };

/* One as /proc tells. */
struct seen {
    char status[STATUS_BYTES], stat[1024], command[COMMAND_BYTES + 1];
    size_t command_size;
};

/* Reads up to size - 1 bytes and a NUL; the number, 0 also of what is gone. */
static size_t read_some(int folder, const char *name, char *to, size_t size)
{
    AUTO_FD int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    while (fd >= 0 && length < size - 1) {
        ssize_t got = read(fd, to + length, size - 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    to[length] = '\0';
    return length;
}

/* The value of a line "Name:\t..." of status; "" when there is none. The kernel escapes line ends in names. */
static const char *line_of(const struct seen *seen, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = seen->status; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        if (strncmp(at, name, length) == 0 && at[length] == ':')
            return at + length + 1 + strspn(at + length + 1, "\t ");
    }
    return "";
}

static long long number_of(const struct seen *seen, const char *name)
{
    return strtoll(line_of(seen, name), NULL, 10);
}

/* The last one of "NSpid:\t4711\t12": as it is inside. */
static long long pid_inside(const struct seen *seen)
{
    const char *line = line_of(seen, "NSpid");
    size_t length = strcspn(line, "\n");
    while (length > 0 && line[length - 1] != '\t')
        length--;
    return strtoll(line + length, NULL, 10);
}

/* Fields 14, 15 (ticks of processor time) and 22 (of its start) of stat, counted behind the name's last ')'. */
static void times_of(const struct seen *seen, unsigned long long *cpu, unsigned long long *start)
{
    const char *at = strrchr(seen->stat, ')');
    *cpu = *start = 0;
    for (int field = 2; at && *at; field++) {
        if (field == 14 || field == 15)
            *cpu += strtoull(at, NULL, 10);
        if (field == 22)
            *start = strtoull(at, NULL, 10);
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
}

static json_t *arguments_of(const struct seen *seen)
{
    json_t *list = json_array();
    for (size_t at = 0; at < seen->command_size && json_array_size(list) < ARGUMENTS_MAX;) {
        size_t length = strnlen(seen->command + at, seen->command_size - at);
        json_array_append_new(list, page_text(seen->command + at, length));
        at += length + 1;
    }
    return list;
}

static json_t *describe(const struct page *page, const struct seen *seen, long long pid)
{
    unsigned long long cpu, start;
    const unsigned long long ticks = (unsigned long long)sysconf(_SC_CLK_TCK);
    const char *name = line_of(seen, "Name"), *state = line_of(seen, "State");
    times_of(seen, &cpu, &start);
    int64_t ago_ms = (int64_t)(clock_boot_ns() / 1000000) - (int64_t)(start * 1000 / ticks);
    json_t *item =
        json_pack("{s:I, s:I, s:I, s:o, s:o, s:o}", "pid", (json_int_t)pid, "pid_inside", (json_int_t)pid_inside(seen),
                  "ppid", (json_int_t)number_of(seen, "PPid"), "uid", page_id(page, (uint32_t)number_of(seen, "Uid")),
                  "name", page_text(name, strcspn(name, "\n")), "state", page_text(state, state[0] ? 1 : 0));
    json_object_set_new(item, "threads", json_integer(number_of(seen, "Threads")));
    json_object_set_new(item, "rss_bytes", json_integer(number_of(seen, "VmRSS") * 1024));
    json_object_set_new(item, "cpu_ms", json_integer((json_int_t)(cpu * 1000 / ticks)));
    json_object_set_new(item, "started_at", page_time(clock_wall_ms() - ago_ms));
    json_object_set_new(item, "command", arguments_of(seen));
    json_object_set_new(item, "command_cut", json_boolean(seen->command_size >= COMMAND_BYTES));
    return item;
}

static void look_at(struct page *page, long long pid)
{
    char path[64];
    struct seen seen;
    snprintf(path, sizeof path, "/proc/%lld", pid);
    AUTO_FD int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || read_some(folder, "status", seen.status, sizeof seen.status) == 0 ||
        read_some(folder, "stat", seen.stat, sizeof seen.stat) == 0)
        return; /* it has ended meanwhile */
    seen.command_size = read_some(folder, "cmdline", seen.command, sizeof seen.command);
    if (page_wants(page))
        page_add(page, describe(page, &seen, pid));
}

static void look_at_group(struct page *page, int group)
{
    AUTO_FD int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *procs = fd < 0 ? NULL : fdopen(dup(fd), "re");
    long long pid;
    while (procs && !page->is_full && fscanf(procs, "%lld", &pid) == 1)
        look_at(page, pid);
    if (procs)
        fclose(procs);
}

static void walk(struct page *page, int group, int levels)
{
    look_at_group(page, group);
    int own = openat(group, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = own < 0 ? NULL : fdopendir(own);
    const struct dirent *entry;
    while (folder && !page->is_full && (entry = readdir(folder)) != NULL) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        AUTO_FD int below = openat(group, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0 && levels > 0)
            walk(page, below, levels - 1);
        page->truncated |= below >= 0 && levels == 0;
    }
    if (folder)
        closedir(folder);
}

bool evidence_processes(const struct evidence_order *order, struct error *err)
{
    struct page page = {.order = order};
    walk(&page, order->folder, LEVELS);
    return page_end(&page, "processes", err);
}
