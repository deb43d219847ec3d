/** isolation.h - the face of an isolation backend: makes a sandbox from a plan, finds it again, takes it away.
 *  Only the launcher calls it: one thread, with rights. Backends: namespaces/; gvisor/, which puts a monitor into
 *  namespaces and parley-sandboxd --guest behind it (guest/). registry.c knows them all by name. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ISOLATION_STATS       7 /* descriptors of struct isolation_sandbox beside the pidfd */
#define ISOLATION_VOLUMES_MAX 8

/** What is made before it is known for whom: all of it can be warm. Checked by the launcher's policy before. Texts and
 *  descriptors are borrowed until isolation_backend.begin has returned. */
struct isolation_plan {
    uint32_t slot;           /* names the cgroup "s<slot>" */
    uint32_t uid_base;       /* host uid and gid of 0 inside; 65,536 of them */
    const char *lower_root;  /* the template's rootfs; read-only */
    const char *lower_usr;   /* the host's /usr for a template that has none of its own; else NULL */
    const char *area_path;   /* where it writes (storage/storage.h), ids 0..65535: idmapped by us; NULL: */
    int area_mount;          /* ... a detached mount that is the area, ids of the slot; else -1 */
    const char *socket_path; /* where init listens; its folder exists */
    gid_t socket_group;      /* who may connect */
    int init_program;        /* sealed memfd of parley-init */
    int network; /* the network namespace that it is born in, made for it alone, loopback up; the host's user
                    namespace owns it, so that nobody inside has a right over it */
};

/** What the kernel holds a sandbox to; changeable while it lives. */
struct isolation_limits {
    uint32_t cpu_milli, pids;
    uint64_t memory_bytes; /* no swap */
};

/** A folder of the host that is to be seen inside. */
struct isolation_volume {
    const char *source; /* real path on the host; a folder */
    const char *path;   /* inside; made when it is not there */
    bool read_only;
    bool
        is_squashed; /* one user's: `owner` on the host and the folder's group are the sandbox's user inside, all others
                        are nobody; neither may be root's, unless read-only. Else ids 0..65535 are those inside */
    uid_t owner;
};

/** What it becomes: all that is one lease's. */
struct isolation_life {
    const char *hostname;
    struct isolation_limits limits;
    uint64_t shared_bytes; /* of /dev/shm */
    uint64_t deadline_boot_ns;
    uint32_t uid, gid; /* of commands, inside */
    uint32_t open_files;
    bool root_allowed;
    const char *letter; /* for a guest (launcher_guest/letter.h); holds a key. NULL: none */
    size_t volume_count;
    struct isolation_volume volumes[ISOLATION_VOLUMES_MAX];
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
    int stats[ISOLATION_STATS]; /* kill, freeze, events, cpu, memory, oom, pids: see enum front_launcher_fd; -1 before
                                   it is warm */
    int birth;                  /* the dialogue with its init until it has become; then -1 */
};

#define ISOLATION_NONE ((struct isolation_sandbox){.init = -1, .stats = {-1, -1, -1, -1, -1, -1, -1}, .birth = -1})

/** One layer as `parley doctor` shows it. */
struct isolation_layer {
    char name[48];
    bool active;
    char detail[192]; /* what is missing and how to get it, or what is in force */
};
#define ISOLATION_LAYERS_MAX 24

/** What a sandbox of a backend cannot have; asked for, it is refused, and `parley doctor` tells. */
enum isolation_lack {
    ISOLATION_NO_EGRESS = 1 << 0,
    ISOLATION_NO_SNAPSHOTS = 1 << 1,
    ISOLATION_NO_VOLUMES = 1 << 2,
    ISOLATION_NO_ROOT = 1 << 3,       /* commands as root */
    ISOLATION_NO_ENTRYPOINT = 1 << 4, /* a command that is started with it */
    ISOLATION_NO_RESIZE = 1 << 5,     /* another memory limit than it was made with */
    ISOLATION_LACKS = 6
};

struct isolation_backend {
    const char *name;          /* as leases, heartbeats and doctor show it */
    bool is_guest;             /* what runs inside is parley-sandboxd --guest: requests are relayed to it */
    unsigned lacks;            /* bits of enum isolation_lack */
    const char *note;          /* how it holds limits otherwise than namespaces does, for doctor; NULL: as that */
    uint64_t memory_min_bytes; /* the least that a sandbox can be had with; 0: no more than others */
    uint32_t tasks_a_process, tasks_of_its_own; /* of the host, which isolation_limits.pids counts: for each process of
                                                   the sandbox (0: that one), and for what keeps it */
    /** Prepares the host once (own cgroup subtree, skeletons); a layer that cannot be had is an error. */
    bool (*start)(const char *state_folder, struct error *err);
    /** Tells each layer; returns how many. Changes nothing. */
    size_t (*probe)(struct isolation_layer layers[ISOLATION_LAYERS_MAX]);
    /** Begins to make a sandbox and returns while its child still works: made->init and ->birth are set. On failure
     *  nothing of it is left. Several may be on their way at once. It is a sandbox as any other from now on: its caller
     *  bounds the time it takes, and ends it at any stage by kill and remove. */
    bool (*begin)(const struct isolation_plan *plan, struct isolation_sandbox *made, struct error *err);
    /** To be called when made->birth is readable (poll): 1 it is warm and has its stats, 0 not yet, -1 failed (err says
     *  what its child said): the caller ends the slot. */
    int (*is_warm)(uint32_t slot, struct isolation_sandbox *made, struct error *err);
    /** Tells a warm one what it becomes: limits first, then the message. Returns at once; ->birth is readable when
     *  is_ready has news. False: the caller ends the slot. */
    bool (*become)(uint32_t slot, uint32_t uid_base, struct isolation_sandbox *warm, const struct isolation_life *life,
                   struct error *err);
    /** 1 init listens to the front (->birth is closed), 0 not yet, -1 failed. */
    int (*is_ready)(struct isolation_sandbox *made, struct error *err);
    /** Other limits for a living one. ERROR_INVALID when the kernel will not (memory below what is in use). */
    bool (*limit)(uint32_t slot, const struct isolation_limits *limits, struct error *err);
    /** The v2 cgroup that its commands are in, O_DIRECTORY, the caller's; -1 with err. NULL: they are not the host's. */
    int (*open_group)(uint32_t slot, struct error *err);
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

extern const struct isolation_backend isolation_namespaces, isolation_gvisor, isolation_microvm;

/** What microvm is made of, before its start or probe: the settings microvm_kernel (NULL: not set) and microvm_vmm.
 * Both are borrowed for good. */
void isolation_microvm_choose(const char *kernel, const char *vmm);

/* ---- which there are (registry.c) ---- */

#define ISOLATION_BACKENDS_MAX 4

/** The backends that a node offers, in the order of its setting; the first is what "auto" means. */
struct isolation_offer {
    const struct isolation_backend *list[ISOLATION_BACKENDS_MAX];
    size_t count;
};

/** The backend of that name, offered or not; NULL. */
const struct isolation_backend *isolation_find(const char *name) MUST_USE;

/** All that this program knows, one after the other; NULL behind the last. */
const struct isolation_backend *isolation_each(size_t index) MUST_USE;

/** Reads "namespaces,gvisor": names with commas (or blanks) between, each once. ERROR_INVALID names what there is. */
bool isolation_offer_parse(const char *text, struct isolation_offer *offer, struct error *err) MUST_USE;

/** The offered backend of that name, "auto" the first; NULL: ERROR_INVALID names those offered. */
const struct isolation_backend *isolation_choose(const struct isolation_offer *offer, const char *name,
                                                 struct error *err) MUST_USE;

/** "egress, snapshots": what the bits stand for, as words; `to` is always ended. */
void isolation_lacks_format(unsigned lacks, char *to, size_t size);

/** The v2 cgroup that sandboxes are made in, as /proc/PID/cgroup tells it, borrowed; NULL: found by itself. Before start.
 */
void isolation_use_cgroup(const char *path);

/** Before start: whether `namespaces` of an ordinary user may do without a controller that is not delegated to it; else
 *  that is an error of start. */
void isolation_allow_missing_limits(bool is_allowed);

/** After start: what nobody limits here, a bit each: 1 memory, 2 pids, 4 cpu. */
unsigned isolation_missing_limits(void) MUST_USE;

/** A process of some sandbox that a former launcher of this state folder made and that lives, 0 when there is none:
 *  for who must find its user namespace before anything else. */
pid_t isolation_find_living(const char *state_folder);

void isolation_close(struct isolation_sandbox *sandbox);
