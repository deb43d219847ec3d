/* cgroup_limits.c - what the kernel holds the commands of a slot to; see cgroups.h. Memory is the one that a living
 * sandbox may be in the way of: v1 refuses a limit below what is in use (EBUSY), v2 would kill for it, so there we ask
 * before. */
#include "sandboxd/isolation/namespaces/cgroup_weights.h"
#include "sandboxd/isolation/namespaces/cgroups.h"

#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = CGROUP_PATH_BYTES + 64, VALUE_BYTES = 48, CPU_PERIOD_US = 100000 };

static int open_slot(const char *base, uint32_t slot, const char *rest, struct error *err)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/s%" PRIu32 "%s", base, slot, rest);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL, "open cgroup %s", path);
    return fd;
}

static bool write_at(int folder, const char *file, const char *value, struct error *err)
{
    AUTO_FD int fd = openat(folder, file, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) != (ssize_t)strlen(value))
        return error_set_errno(err, ERROR_INTERNAL, "cgroup: write %s to %s", value, file);
    return true;
}

static bool write_number_at(int folder, const char *file, uint64_t value, struct error *err)
{
    char text[VALUE_BYTES];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return write_at(folder, file, text, err);
}

/* UINT64_MAX for "max", and for what cannot be read. */
static uint64_t read_number_at(int folder, const char *file)
{
    char text[VALUE_BYTES];
    uint64_t value = UINT64_MAX;
    AUTO_FD int fd = openat(folder, file, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text);
    while (size > 0 && text[size - 1] == '\n')
        size--;
    if (size <= 0 || !text_parse_u64(text, (size_t)size, UINT64_MAX, &value))
        return UINT64_MAX;
    return value;
}

/* --- memory --- */

static const char LIMIT_V1[] = "memory.limit_in_bytes";
static const char WITH_SWAP[] = "memory.memsw.limit_in_bytes";
static const char TCP_LIMIT[] = "memory.kmem.tcp.limit_in_bytes";
enum { TCP_BUFFERS_PART = 8 };

static bool refuse_memory(int folder, const char *usage, uint64_t bytes, struct error *err)
{
    uint64_t used = read_number_at(folder, usage);
    return error_set(err, ERROR_INVALID,
                     "memory cannot be limited to %" PRIu64 " bytes: %" PRIu64 " are in use; end commands or remove "
                     "files first",
                     bytes, used);
}

/* Memory never exceeds memory with swap: upwards that one goes first, downwards last. Without swap accounting it is not
 * there (then swappiness is all there is). */
static bool write_pair_v1(int folder, uint64_t bytes, struct error *err)
{
    bool has_swap = faccessat(folder, WITH_SWAP, F_OK, 0) == 0;
    uint64_t before = read_number_at(folder, LIMIT_V1);
    bool upwards = before != UINT64_MAX && bytes > before;
    if (upwards && has_swap && !write_number_at(folder, WITH_SWAP, bytes, err))
        return false;
    struct error why = {0};
    bool is_set = write_number_at(folder, LIMIT_V1, bytes, &why);
    if (is_set && !upwards && has_swap && !write_number_at(folder, WITH_SWAP, bytes, &why)) {
        (void)!write_number_at(folder, LIMIT_V1, before, NULL);
        is_set = false;
    }
    if (is_set)
        return true;
    if (why.system_errno == EBUSY)
        return refuse_memory(folder, has_swap ? "memory.memsw.usage_in_bytes" : "memory.usage_in_bytes", bytes, err);
    if (err)
        *err = why;
    return false;
}

static bool limit_memory_v1(int folder, uint64_t bytes, struct error *err)
{
    if (!write_pair_v1(folder, bytes, err))
        return false;
    /* A host may refuse it: no limit of memory. */
    (void)!write_at(folder, "memory.swappiness", "0", NULL);
    /* v1 counts what lies in TCP's buffers apart from memory, and without a limit of its own. */
    return faccessat(folder, TCP_LIMIT, F_OK, 0) < 0 ||
           write_number_at(folder, TCP_LIMIT, bytes / TCP_BUFFERS_PART, err);
}

/* Asks the kernel for what is beyond (Linux 5.19), and looks whether it is gone. What is taken between look and limit
 * is killed for, as anything beyond a limit is. */
static bool make_room_v2(int folder, uint64_t bytes, struct error *err)
{
    uint64_t used = read_number_at(folder, "memory.current");
    if (used == UINT64_MAX || used <= bytes)
        return true;
    (void)!write_number_at(folder, "memory.reclaim", used - bytes, NULL);
    return read_number_at(folder, "memory.current") <= bytes || refuse_memory(folder, "memory.current", bytes, err);
}

static bool limit_memory_v2(int folder, uint64_t bytes, struct error *err)
{
    if (faccessat(folder, "memory.swap.max", F_OK, 0) == 0 && !write_at(folder, "memory.swap.max", "0", err))
        return false;
    return make_room_v2(folder, bytes, err) && write_number_at(folder, "memory.max", bytes, err) &&
           write_at(folder, "memory.oom.group", "0", err);
}

/* --- all --- */

static bool limit_cpu(int folder, bool v1, uint32_t milli, struct error *err)
{
    uint64_t quota_us = (uint64_t)milli * (CPU_PERIOD_US / 1000);
    char quota[VALUE_BYTES];
    snprintf(quota, sizeof quota, "%" PRIu64 " %d", quota_us, CPU_PERIOD_US);
    cgroup_weights_yield(folder);
    return v1 ? write_number_at(folder, "cpu.cfs_quota_us", quota_us, err) : write_at(folder, "cpu.max", quota, err);
}

static bool limit(int folder, enum cgroup_controller controller, bool v1, const struct isolation_limits *limits,
                  struct error *err)
{
    switch (controller) {
    case CGROUP_MEMORY:
        return v1 ? limit_memory_v1(folder, limits->memory_bytes, err)
                  : limit_memory_v2(folder, limits->memory_bytes, err);
    case CGROUP_PIDS:
        return write_number_at(folder, "pids.max", limits->pids, err);
    case CGROUP_CPU:
        return limit_cpu(folder, v1, limits->cpu_milli, err);
    case CGROUP_CONTROLLERS:
    default:
        return error_set(err, ERROR_INTERNAL, "no such controller");
    }
}

bool cgroup_slot_control(const struct cgroup_layout *layout, uint32_t slot, struct error *err)
{
    AUTO_FD int top = open_slot(layout->unified, slot, "", err);
    for (int i = 0; top >= 0 && i < CGROUP_CONTROLLERS; i++) {
        char enable[VALUE_BYTES];
        snprintf(enable, sizeof enable, "+%s", CGROUP_CONTROLLER_NAMES[i]);
        struct error why = {0};
        if (layout->v1[i][0] || layout->is_missing[i] || write_at(top, "cgroup.subtree_control", enable, &why))
            continue;
        if (why.system_errno == EBUSY)
            return error_set(err, ERROR_STARTING, "init has not left the top of its cgroups yet");
        if (err)
            *err = why;
        return false;
    }
    return top >= 0;
}

bool cgroup_slot_limit(const struct cgroup_layout *layout, uint32_t slot, const struct isolation_limits *limits,
                       struct error *err)
{
    /* Memory is the first: when it cannot be had, nothing was changed. */
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        bool v1 = layout->v1[i][0] != '\0';
        if (layout->is_missing[i])
            continue;
        AUTO_FD int folder = open_slot(v1 ? layout->v1[i] : layout->unified, slot, v1 ? "" : "/run", err);
        if (folder < 0 || !limit(folder, (enum cgroup_controller)i, v1, limits, err))
            return false;
    }
    return true;
}
