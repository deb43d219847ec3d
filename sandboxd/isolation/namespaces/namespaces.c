#include "sandboxd/isolation/isolation.h"

#include "sandboxd/isolation/namespaces/cgroup_weights.h"
#include "sandboxd/isolation/namespaces/cgroups.h"
#include "sandboxd/isolation/namespaces/namespaces.h"
#include "sandboxd/isolation/namespaces/own_root.h"
#include "sandboxd/isolation/namespaces/probe.h"
#include "sandboxd/isolation/namespaces/proc.h"
#include "sandboxd/isolation/namespaces/recipe.h"
#include "sandboxd/isolation/namespaces/seccomp.h"
#include "sandboxd/isolation/namespaces/skeleton.h"
#include "sandboxd/isolation/namespaces/stage.h"
#include "sandboxd/isolation/namespaces/volumes.h"
#include "sandboxd/launcher_init/launcher_init.h"
#include "sandboxd/rootless/rootless.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What start found; one backend a process. */
static struct {
    struct cgroup_layout layout;
    char *stage_path; /* NULL: there is none */
    struct stage stage;
    int seccomp;
    uint64_t covers; /* of /proc */
    bool missing_limits_allowed;
    const char *kept_cgroup; /* NULL: none */
    char *own_roots; /* of a user's: where the slots' roots are (own_root.h); NULL: none */
} host = {.seccomp = -1, .stage = STAGE_NONE_INIT};

/* "parley-<8 hex>": two deployments on one machine do not meet. FNV-1a, folded. */
static void name_subtree(const char *state_folder, char name[static 16])
{
    uint64_t hash = 14695981039346656037ULL;
    for (const char *c = state_folder; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 1099511628211ULL;
    snprintf(name, 16, "parley-%08" PRIx32, (uint32_t)(hash ^ hash >> 32));
}

static bool find_layout(const char *name, struct error *err)
{
    return rootless_is_active() ? cgroup_layout_find_delegated("", name, host.missing_limits_allowed, &host.layout, err)
                                : cgroup_layout_find("", name, host.kept_cgroup, &host.layout, err);
}

static bool start_cgroups(const char *state_folder, struct error *err)
{
    char name[16];
    name_subtree(state_folder, name);
    AUTO_FREE char *file = memory_printf("%s/sandboxd/cgroups", state_folder);
    /* A later launcher may run in another cgroup than the first, but what lives is where it was made. */
    if (!cgroup_layout_load(&host.layout, file) &&
        (!find_layout(name, err) || !cgroup_layout_save(&host.layout, file, err)))
        return false;
    host.layout.is_delegated = rootless_is_active();
    if (!cgroup_layout_make(&host.layout, err))
        return false;
    cgroup_weights_join(&host.layout);
    /* Slower without, not weaker: the probe tells. */
    (void)!cgroup_layout_favor_moves(&host.layout, NULL);
    return true;
}

static bool start_stage(const char *state_folder, struct error *err)
{
    if (host.stage_path)
        return true;
    AUTO_FREE char *path = memory_printf("%s/sandboxd/stage", state_folder);
    host.covers = proc_find_covers();
    if (!stage_make(path, rootless_is_active(), &host.stage, err))
        return false;
    host.stage_path = TAKE(path);
    return true;
}

static bool open_own_roots(const char *state, struct error *err)
{
    AUTO_FREE char *folder = memory_printf("%s/sandboxd/roots", state);
    if (!own_root_open(folder, err))
        return false;
    host.own_roots = TAKE(folder);
    return true;
}

static bool start(const char *state_folder, struct error *err)
{
    if (geteuid() != 0)
        return error_set(err, ERROR_FORBIDDEN,
                         "the launcher must be root, of the host or of a user namespace (sandboxd/rootless)");
    char *real = realpath(state_folder, NULL);
    AUTO_FREE char *state = real;
    if (real == NULL)
        return error_set_errno(err, ERROR_INTERNAL, "state folder %s", state_folder);
    AUTO_FREE char *templates = memory_printf("%s/sandboxd/templates", state);
    AUTO_FREE char *base = memory_printf("%s/base", templates);
    if (!fd_make_folders(templates, 0700, err) || !start_cgroups(state, err))
        return false;
    if (rootless_is_active() && !host.own_roots && !open_own_roots(state, err))
        return false;
    /* A skeleton has folders that all may write to, and its /tmp is every sandbox's. */
    if (chmod(templates, 0700) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "chmod %s", templates);
    if (!skeleton_make(base, err))
        return false;
    if (host.seccomp < 0)
        host.seccomp = seccomp_build(SECCOMP_COMMANDS, err);
    return host.seccomp >= 0 && start_stage(state, err);
}

/* The descriptors of a living sandbox, as soon as they can be had. */
static bool take_stats(uint32_t slot, struct isolation_sandbox *made, struct error *err)
{
    return made->stats[0] >= 0 || (cgroup_slot_control(&host.layout, slot, err) &&
                                   cgroup_slot_open_stats(&host.layout, slot, made->stats, err));
}

static bool remove_failed(uint32_t slot)
{
    (void)!cgroup_slot_kill(&host.layout, slot, NULL);
    stage_remove_slot(&host.stage, slot);
    return cgroup_slot_remove(&host.layout, slot, NULL);
}

bool namespaces_begin(const struct isolation_plan *plan, const struct namespaces_guest *guest,
                      struct isolation_sandbox *made, struct error *err)
{
    struct error why = {0};
    AUTO_CGROUP_SLOT slot = CGROUP_SLOT_NONE;
    const struct recipe_host all = {.layout = &host.layout,
                                    .seccomp = guest ? guest->seccomp : host.seccomp,
                                    .stage = &host.stage,
                                    .covers = host.covers,
                                    .guest = guest,
                                    .is_rootless = rootless_is_active()};
    bool mine = cgroup_slot_make(&host.layout, plan->slot, plan->uid_base, &slot, &why);
    if (mine && recipe_begin(&all, &slot, plan, made, &why)) {
        /* Now, while the child works; where that is too soon, is_warm or become will. */
        (void)!take_stats(plan->slot, made, NULL);
        return true;
    }
    cgroup_slot_close(&slot);
    /* A slot that was taken already is another sandbox's. */
    if (why.kind != ERROR_CONFLICT) {
        unlink(plan->socket_path);
        if (!remove_failed(plan->slot))
            error_prefix(&why, "cgroups of slot %" PRIu32 " are left; before that", plan->slot);
    }
    if (err)
        *err = why;
    return false;
}

static bool begin(const struct isolation_plan *plan, struct isolation_sandbox *made, struct error *err)
{
    char root[OWN_ROOT_PATH_BYTES];
    struct isolation_plan own = *plan;
    if (!host.own_roots)
        return namespaces_begin(plan, NULL, made, err);
    own.lower_root = root;
    return own_root_make(host.own_roots, plan->slot, plan->uid_base, plan->lower_root, root, err) &&
           namespaces_begin(&own, NULL, made, err);
}

int namespaces_is_warm(uint32_t slot, struct isolation_sandbox *made, struct error *err)
{
    int heard = recipe_hear(made, LI_BARRIER, err);
    return heard == 1 && !take_stats(slot, made, err) ? -1 : heard;
}

bool namespaces_become(uint32_t slot, uint32_t uid_base, struct isolation_sandbox *warm,
                       const struct isolation_life *life, struct error *err)
{
    struct launcher_init_message message = {.type = LI_BECOME};
    struct li_become *to = &message.as.become;
    if (life->volume_count > LAUNCHER_INIT_VOLUMES)
        return error_set(err, ERROR_INVALID, "a sandbox takes up to %d volumes", LAUNCHER_INIT_VOLUMES);
    if (!text_copy(to->hostname, sizeof to->hostname, life->hostname))
        return error_set(err, ERROR_INVALID, "a hostname has up to %zu bytes", sizeof to->hostname - 1);
    to->deadline_boot_ns = life->deadline_boot_ns;
    to->shared_bytes = life->shared_bytes;
    to->uid = life->uid;
    to->gid = life->gid;
    to->open_files = life->open_files;
    to->root_allowed = life->root_allowed;
    to->cpu_milli = life->limits.cpu_milli;
    to->pids = life->limits.pids;
    to->memory_bytes = life->limits.memory_bytes;
    to->has_letter = life->letter != NULL;
    to->volume_count = (uint8_t)life->volume_count;
    for (size_t i = 0; i < life->volume_count; i++) {
        if (!text_copy(to->volumes[i].path, sizeof to->volumes[i].path, life->volumes[i].path))
            return error_set(err, ERROR_INVALID, "a volume's path has up to %zu bytes", sizeof to->volumes[i].path - 1);
    }
    AUTO_VOLUMES opened = VOLUMES_NONE;
    AUTO_FD int letter = life->letter ? fd_sealed_memfd("letter", life->letter, strlen(life->letter), err) : -1;
    int fds[LAUNCHER_INIT_FDS];
    if ((life->letter && letter < 0) || !take_stats(slot, warm, err) ||
        !cgroup_slot_limit(&host.layout, slot, &life->limits, err) ||
        !volumes_open(warm->init_pid, uid_base, life, &opened, err))
        return false;
    memcpy(fds, opened.mounts, opened.count * sizeof *fds);
    fds[opened.count] = letter;
    return launcher_init_send(warm->birth, &message, fds, opened.count + to->has_letter, err);
}

int namespaces_is_ready(struct isolation_sandbox *made, struct error *err)
{
    int heard = recipe_hear(made, LI_READY, err);
    if (heard == 1) {
        fd_empty(made->birth); /* its init may have said more, with descriptors: not ours to close unseen */
        close(made->birth);
        made->birth = -1;
    }
    return heard;
}

bool namespaces_limit(uint32_t slot, const struct isolation_limits *limits, struct error *err)
{
    return cgroup_slot_limit(&host.layout, slot, limits, err);
}

bool namespaces_adopt(uint32_t slot, pid_t init_pid, uint64_t init_start, struct isolation_sandbox *found,
                      struct error *err)
{
    struct isolation_sandbox adopted = ISOLATION_NONE;
    adopted.init_pid = init_pid;
    adopted.init_start = init_start;
    /* First the descriptor, then the question whose it is: the pid cannot change hands between. */
    AUTO_FD int pidfd = init_pid > 0 ? (int)syscall(SYS_pidfd_open, init_pid, 0U) : -1;
    bool is_it = pidfd >= 0 && init_start != 0 && recipe_start_time(init_pid) == init_start &&
                 cgroup_slot_has_init(&host.layout, slot, init_pid);
    if (!is_it)
        return error_set(err, ERROR_NOT_FOUND, "init of slot %" PRIu32 " is gone", slot);
    if (!cgroup_slot_open_stats(&host.layout, slot, adopted.stats, err))
        return false;
    adopted.init = TAKE_FD(pidfd);
    *found = adopted;
    return true;
}

bool namespaces_kill(uint32_t slot, struct error *err)
{
    return cgroup_slot_kill(&host.layout, slot, err);
}

bool namespaces_remove(uint32_t slot, struct error *err)
{
    stage_remove_slot(&host.stage, slot);
    return cgroup_slot_remove(&host.layout, slot, err);
}

static int open_group(uint32_t slot, struct error *err)
{
    return cgroup_slot_open_run(&host.layout, slot, err);
}

size_t namespaces_list(uint32_t *slots, size_t max)
{
    return cgroup_slot_list(&host.layout, slots, max);
}

void isolation_use_cgroup(const char *path)
{
    host.kept_cgroup = path;
}

const char *namespaces_kept_cgroup(void)
{
    return host.kept_cgroup;
}

void isolation_allow_missing_limits(bool is_allowed)
{
    host.missing_limits_allowed = is_allowed;
}

unsigned isolation_missing_limits(void)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
        bits |= host.layout.is_missing[i] ? 1U << i : 0;
    return bits;
}

static void stop(void)
{
    if (host.layout.unified[0]) {
        cgroup_weights_leave(&host.layout);
        cgroup_layout_remove(&host.layout);
    }
    if (host.seccomp >= 0)
        close(host.seccomp);
    if (host.stage_path)
        stage_remove(&host.stage, host.stage_path);
    if (host.own_roots)
        own_root_close(host.own_roots);
    free(host.own_roots);
    host.own_roots = NULL;
    free(host.stage_path);
    host.stage_path = NULL;
    host.layout = (struct cgroup_layout){0};
    host.seccomp = -1;
}

const struct isolation_backend isolation_namespaces = {.name = "namespaces",
                                                       .start = start,
                                                       .probe = probe_layers,
                                                       .begin = begin,
                                                       .is_warm = namespaces_is_warm,
                                                       .become = namespaces_become,
                                                       .is_ready = namespaces_is_ready,
                                                       .limit = namespaces_limit,
                                                       .open_group = open_group,
                                                       .adopt = namespaces_adopt,
                                                       .kill = namespaces_kill,
                                                       .remove = namespaces_remove,
                                                       .list = namespaces_list,
                                                       .stop = stop};

void isolation_close(struct isolation_sandbox *sandbox)
{
    if (sandbox->init >= 0)
        close(sandbox->init);
    if (sandbox->birth >= 0) {
        fd_empty(sandbox->birth);
        close(sandbox->birth);
    }
    for (size_t i = 0; i < ISOLATION_STATS; i++) {
        if (sandbox->stats[i] >= 0)
            close(sandbox->stats[i]);
    }
    *sandbox = ISOLATION_NONE;
}
