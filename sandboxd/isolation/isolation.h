/** isolation.h - the face of an isolation backend: makes a sandbox from a plan, finds it again, takes it away.
 *  Only the launcher calls it: one thread, with rights. Backends: namespaces/. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ISOLATION_STATS 7 /* descriptors of struct isolation_sandbox beside the pidfd */

/** What is to be made. All checked by the launcher's policy before. */
struct isolation_plan {
    uint32_t slot;     /* names the cgroup "s<slot>" */
    uint32_t uid_base; /* host uid and gid of 0 inside; 65,536 of them */
    const char *hostname;
    const char *skeleton;    /* folder of the template: what / is made of (see namespaces/skeleton.h) */
    const char *socket_path; /* where init listens; its folder exists */
    gid_t socket_group;      /* who may connect */
    uint32_t cpu_milli, pids;
    uint64_t memory_bytes, disk_bytes;
    uint64_t deadline_boot_ns;
    int init_program; /* sealed memfd of parley-init */
};

/** Each of a sandbox's tmpfs has an inode for so many bytes of its size. One takes ISOLATION_INODE_BYTES of memory, by
 *  the kernel's own count (BOGO_INODE_SIZE). */
#define ISOLATION_BYTES_PER_INODE 8192
#define ISOLATION_INODE_BYTES     1024

/** How large /dev/shm is. */
static inline uint64_t isolation_shared_bytes(uint64_t memory_bytes)
{
    const uint64_t most = 64ULL << 20;
    return memory_bytes / 8 < most ? memory_bytes / 8 : most;
}

/** A living sandbox, with all descriptors; isolation_close closes them and leaves -1. */
struct isolation_sandbox {
    pid_t init_pid;
    uint64_t init_start;        /* field 22 of /proc/<pid>/stat: with the pid and the boot it names the process */
    int init;                   /* pidfd */
    int stats[ISOLATION_STATS]; /* kill, freeze, events, cpu, memory, oom, pids: see enum front_launcher_fd */
};

/** One layer as `parley doctor` shows it. */
struct isolation_layer {
    char name[48];
    bool active;
    char detail[192]; /* what is missing and how to get it, or what is in force */
};
#define ISOLATION_LAYERS_MAX 24

struct isolation_backend {
    const char *name;
    /** Prepares the host once (own cgroup subtree, skeletons); a layer that cannot be had is an error. */
    bool (*start)(const char *state_folder, struct error *err);
    /** Tells each layer; returns how many. Changes nothing. */
    size_t (*probe)(struct isolation_layer layers[ISOLATION_LAYERS_MAX]);
    /** Makes the sandbox; on failure nothing of it is left. Returns when init listens. */
    bool (*create)(const struct isolation_plan *plan, struct isolation_sandbox *made, struct error *err);
    /** Finds a running one again by slot, pid and start; ERROR_NOT_FOUND when it is gone. */
    bool (*adopt)(uint32_t slot, pid_t init_pid, uint64_t init_start, struct isolation_sandbox *found,
                  struct error *err);
    /** Kills whatever is in the slot; does not wait. Also for slots of which nothing is known. */
    bool (*kill)(uint32_t slot, struct error *err);
    /** Removes an empty slot's cgroups; ERROR_STARTING (retry) while something still dies in it. */
    bool (*remove)(uint32_t slot, struct error *err);
    /** Slots that have cgroups here, for finding orphans; returns the count, at most `max`. */
    size_t (*list)(uint32_t *slots, size_t max);
    /** Lets go of what start took; what lives goes on. With no slot left, the own cgroup subtree is removed. */
    void (*stop)(void);
};

extern const struct isolation_backend isolation_namespaces;

void isolation_close(struct isolation_sandbox *sandbox);
