#include "sandboxd/launcher/house.h"

#include "sandboxd/rootless/rootless.h"
#include "shared/base/confine.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/program.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROGRAM_MAX_BYTES = 64 * 1024 * 1024, DESCRIPTORS_WANTED = 256 * 1024, NETWORKS_READY = 32 };

static const char SHARED_FOLDER[] = "/run/parley";

static bool is_own_folder(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

/* An ordinary user's: the run-time folder of the user's logins (XDG_RUNTIME_DIR, by its usual name first, so that all
 * deployments find the same), else one in /tmp that nobody else has made. The caller frees. */
static char *shared_folder(struct error *err)
{
    if (!rootless_is_active())
        return memory_string(SHARED_FOLDER);
    const char *told = getenv("XDG_RUNTIME_DIR");
    uint32_t uid = rootless_outside(0);
    AUTO_FREE char *usual = memory_printf("/run/user/%" PRIu32, uid);
    if (is_own_folder(usual))
        return memory_printf("%s/parley", usual);
    if (told && told[0] == '/' && is_own_folder(told))
        return memory_printf("%s/parley", told);
    AUTO_FREE char *own = memory_printf("/tmp/parley-%" PRIu32, uid);
    if ((mkdir(own, 0700) == 0 || errno == EEXIST) && is_own_folder(own))
        return TAKE(own);
    error_set(err, ERROR_FORBIDDEN, "%s is somebody else's: set XDG_RUNTIME_DIR to a folder of yours", own);
    return NULL;
}

static bool make_folder(const char *path, mode_t mode, struct error *err)
{
    if (!fd_make_folders(path, mode, err))
        return false;
    if (chmod(path, mode) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "chmod %s", path);
    return true;
}

/* The state folder is shared with the negotiator: others may pass through it, and what else they may stays as it is. */
static bool make_state_folder(const char *path, struct error *err)
{
    struct stat status;
    if (!fd_make_folders(path, 0711, err))
        return false;
    if (stat(path, &status) < 0 || chmod(path, (status.st_mode & 07777) | 0011) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "chmod %s", path);
    return true;
}

static bool make_folders(struct house *house, const struct settings *settings, struct error *err)
{
    if (!make_state_folder(settings->state, err))
        return false;
    house->state = realpath(settings->state, NULL);
    if (house->state == NULL)
        return error_set_errno(err, ERROR_INTERNAL, "state folder %s", settings->state);
    house->folder = memory_printf("%s/sandboxd", house->state);
    house->records = memory_printf("%s/records", house->folder);
    house->run = memory_printf("%s/run", house->folder);
    house->snapshot_records = memory_printf("%s/snapshots", house->folder);
    house->templates = memory_printf("%s/templates", house->folder);
    house->node_file = memory_printf("%s/node.json", house->folder);
    house->incarnation_file = memory_printf("%s/incarnation", house->folder);
    return make_folder(house->folder, 0711, err) && make_folder(house->records, 0700, err) &&
           make_folder(house->snapshot_records, 0700, err) && make_folder(house->run, 0711, err);
}

/* A record lock (fcntl(2)) is this process's alone. One of flock(2) would be its children's, too: a birth or a job that
 * outlives a killed launcher for a moment would keep the next one away. */
bool house_lock(const char *folder, int *lock, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/lock", folder);
    AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_SETLK, &all) < 0 && (errno == EAGAIN || errno == EACCES))
        return error_set(err, ERROR_CONFLICT, "another parley-sandboxd runs on %s: stop it first, or give --state DIR",
                         folder);
    if (fcntl(fd, F_SETLK, &all) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "lock %s", path);
    *lock = TAKE_FD(fd);
    return true;
}

/* Mounts of ours are nobody's business, and nobody's unmounting is ours. */
static bool leave_mount_namespace(struct error *err)
{
    if (syscall(SYS_unshare, CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a private mount namespace");
    return true;
}

static bool read_init_program(struct house *house, const struct settings *settings, struct error *err)
{
    AUTO_FREE char *path = settings->init ? memory_string(settings->init) : program_beside("parley-init");
    size_t size = 0;
    AUTO_FREE char *bytes = fd_read_file(path, PROGRAM_MAX_BYTES, &size, err);
    if (bytes == NULL)
        return error_prefix(err, "the init of sandboxes (--init)");
    AUTO_FD int fd = fd_sealed_memfd("parley-init", bytes, size, err);
    if (fd < 0)
        return false;
    /* Executable, not readable: the kernel then keeps init undumpable from its first instruction (execve(2)). */
    if (fchmod(fd, 0511) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "chmod of init");
    house->init_program = TAKE_FD(fd);
    return true;
}

/* Some stay open for each sandbox, here and in the front, which inherits the limit: what a service is usually given
 * (20,000 or fewer) does not serve a thousand sandboxes, and root may take more (up to fs.nr_open). */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    const struct rlimit more = {.rlim_cur = DESCRIPTORS_WANTED, .rlim_max = DESCRIPTORS_WANTED};
    if (limit.rlim_max < DESCRIPTORS_WANTED && setrlimit(RLIMIT_NOFILE, &more) == 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Sandboxes need a limit of 1 (isolation/namespaces/capabilities.c), and nobody inside can raise one. */
static void raise_core_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) < 0 || limit.rlim_max > 0)
        return;
    limit.rlim_max = 1;
    if (setrlimit(RLIMIT_CORE, &limit) < 0)
        log_warn("launcher",
                 "started with core limit 0 for good: a program in core_pattern runs when a sandbox crashes");
}

static bool is_kept_by_snapshot(void *context, const char *version)
{
    return snapshots_are_of(context, version);
}

/* In the private mount namespace: the pool is mounted there. */
static bool open_stores(struct house *house, const struct settings *settings, struct error *err)
{
    struct storage_options options = {.kind = settings->storage,
                                      .state_folder = house->state,
                                      .has_slot_ids = rootless_is_active(),
                                      .pool_bytes_max = (uint64_t)settings->pool_mb_max << 20};
    struct catalog_users users = {.is_used = is_kept_by_snapshot, .context = &house->snapshots};
    house->storage = storage_open(&options, err);
    return house->storage &&
           snapshots_open(&house->snapshots, house->snapshot_records, house->storage, (size_t)settings->snapshots_max,
                          err) &&
           templates_describe_base(house->templates, err) &&
           catalog_open(&house->catalog, house->templates, users, err);
}

static bool open_networks(struct house *house, const struct settings *settings, struct error *err)
{
    const struct networks_options options = {.state = house->state,
                                             .net = settings->egress_net,
                                             .servers = settings->dns_servers,
                                             .resolv_conf = "/etc/resolv.conf",
                                             .shared_folder = SHARED_FOLDER,
                                             .egress_uid = (uint32_t)settings->egress_uid,
                                             .none_only = rootless_is_active(),
                                             .stock = NETWORKS_READY};
    house->networks = networks_open(&options, err);
    return house->networks != NULL;
}

/* All of them, or none: a level that was asked for is never left out in silence. */
static bool start_isolation(struct house *house, const struct settings *settings, struct error *err)
{
    struct isolation_offer offer;
    isolation_microvm_choose(settings->microvm_kernel, settings->microvm_vmm);
    if (!isolation_offer_parse(settings->isolation, &offer, err))
        return false;
    for (size_t i = 0; i < offer.count; i++) {
        if (!offer.list[i]->start(house->state, err))
            return error_prefix(err, "isolation %s", offer.list[i]->name);
        house->offer.list[house->offer.count++] = offer.list[i];
    }
    return true;
}

/* Of all deployments of this machine, or of this user. */
static bool start_slots(struct house *house, struct error *err)
{
    AUTO_FREE char *folder = shared_folder(err);
    AUTO_FREE char *slots = folder ? memory_printf("%s/slots", folder) : NULL;
    return slots && slots_start(&house->slots, slots, house->state, "/etc", err);
}

static bool open_house(struct house *house, const struct settings *settings, struct error *err)
{
    if (geteuid() != 0)
        return error_set(err, ERROR_FORBIDDEN, "the launcher must be root, of the host or of a user namespace");
    if (rootless_is_active() && rootless_slots() == 0)
        return error_set(err, ERROR_FORBIDDEN,
                         "this user namespace maps fewer than 65,537 ids: not even one sandbox's");
    isolation_use_cgroup(settings->cgroup);
    isolation_allow_missing_limits(text_equal(settings->missing_limits, "allow"));
    raise_descriptor_limit();
    raise_core_limit();
    confine_find_user(settings->front_user, (uid_t)settings->front_uid, &house->front_uid, &house->front_gid);
    return attachments_check_hosts(settings->volume_hosts, err) && make_folders(house, settings, err) &&
           house_lock(house->folder, &house->lock, err) && read_init_program(house, settings, err) &&
           leave_mount_namespace(err) && start_isolation(house, settings, err) && start_slots(house, err) &&
           open_networks(house, settings, err) && open_stores(house, settings, err);
}

bool house_open(struct house *house, const struct settings *settings, struct error *err)
{
    *house = (struct house){.lock = -1, .init_program = -1, .catalog.notify = -1};
    if (open_house(house, settings, err))
        return true;
    house_close(house);
    return false;
}

void house_close(struct house *house)
{
    char *texts[] = {house->state, house->folder,    house->records,   house->snapshot_records,
                     house->run,   house->templates, house->node_file, house->incarnation_file};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
    if (house->lock >= 0)
        close(house->lock);
    if (house->init_program >= 0)
        close(house->init_program);
    catalog_close(&house->catalog);
    snapshots_close(&house->snapshots);
    if (house->storage)
        storage_close(house->storage);
    networks_free(house->networks);
    slots_done(&house->slots);
    for (size_t i = house->offer.count; i > 0; i--)
        house->offer.list[i - 1]->stop();
    *house = (struct house){.lock = -1, .init_program = -1, .catalog.notify = -1};
}

bool house_start_sandboxes(struct house *house, const struct settings *settings, const struct sandboxes_watch *watch,
                           struct sandboxes *all, struct error *err)
{
    struct sandboxes_house needs = {.offer = house->offer,
                                    .run_folder = house->run,
                                    .record_folder = house->records,
                                    .front_group = house->front_gid,
                                    .init_program = house->init_program,
                                    .max = (uint32_t)settings->slots_max,
                                    .storage = house->storage,
                                    .networks = house->networks,
                                    .catalog = &house->catalog,
                                    .snapshots = &house->snapshots,
                                    .volumes = {.hosts = settings->volume_hosts,
                                                .state = house->state,
                                                .storage = house->storage,
                                                .default_bytes = (uint64_t)settings->volume_mb << 20},
                                    .warm = {.each = (uint32_t)settings->warm,
                                             .most = (uint32_t)settings->warm_max,
                                             .memory_kib = (uint64_t)settings->warm_memory_mb << 10},
                                    .watch = *watch};
    return sandboxes_start(all, &needs, &house->slots, err) &&
           networks_start_host(house->networks, clock_boot_ns(), err);
}
