#include "sandboxd/launcher/policy.h"

#include "sandboxd/network/network.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stddef.h>
#include <sys/resource.h>

/* The negotiator's clock, whose deadline it is, may be ahead; one that it moves on must not be refused for that, or the
 * sandbox dies. */
enum { CLOCK_SLACK_MS = 120000 };

static const uint64_t MIB = 1024ULL * 1024;
static const uint64_t MEMORY_MIN_BYTES = 16ULL * 1024 * 1024;
static const uint64_t DISK_MIN_BYTES = 1024ULL * 1024;
static const uint64_t KEPT_BYTES = 64ULL * 1024 * 1024; /* for processes, at least, where memory is twice that */
enum { CPU_MIN = 50, PIDS_MIN = 16 };

static const uint64_t DISK_DEFAULT_BYTES = 1024ULL * 1024 * 1024;
static const uint64_t OUTPUT_MIN_BYTES = 64ULL * 1024;
static const uint64_t OUTPUT_MAX_BYTES = 1024ULL * 1024 * 1024;
enum { OPEN_FILES_MIN = 16 };

static bool in_range(const char *field, uint64_t value, uint64_t min, uint64_t max, struct error *err)
{
    if (value >= min && value <= max)
        return true;
    return error_set(err, ERROR_INVALID, "%s must be %" PRIu64 "..%" PRIu64 " on this node, not %" PRIu64, field, min,
                     max, value);
}

/* As in_range, told in MiB: what was asked for is the user's `memory_mb`, say, and this is the answer. */
static bool bytes_in_range(const char *field, uint64_t value, uint64_t min, uint64_t max, struct error *err)
{
    const double mib = (double)MIB;
    if (value >= min && value <= max)
        return true;
    return error_set(err, ERROR_INVALID, "%s must be %.9g..%.9g on this node, not %.9g", field, (double)min / mib,
                     (double)max / mib, (double)value / mib);
}

/* Of what memory is there for a tmpfs, how many bytes its size may be: it needs its inodes, too. */
static uint64_t size_within(uint64_t memory_bytes)
{
    return memory_bytes / (ISOLATION_BYTES_PER_INODE + ISOLATION_INODE_BYTES) * ISOLATION_BYTES_PER_INODE;
}

/* So large that with disk and /dev/shm full there is memory to run commands in: the rm that makes room, for one. In
 * whole MiB, as disk_mb is. */
static uint64_t largest_disk(uint64_t memory_bytes)
{
    uint64_t kept = memory_bytes / 8 > KEPT_BYTES ? memory_bytes / 8 : KEPT_BYTES;
    kept = kept < memory_bytes / 2 ? kept : memory_bytes / 2;
    return (size_within(memory_bytes - kept) - isolation_shared_bytes(memory_bytes)) / MIB * MIB;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What is written is memory: then the disk is part of it. */
static bool judge_memory_disk(const struct settings *settings, struct fl_limits *limits, struct error *err)
{
    uint64_t most = largest_disk(limits->memory_bytes);
    if (limits->disk_bytes == 0)
        limits->disk_bytes = least(least(limits->memory_bytes / 2, most), (uint64_t)settings->disk_mb_max * MIB);
    return limits->disk_bytes <= most || error_set(err, ERROR_INVALID,
                                                   "storage tmpfs counts as memory: with memory_mb %" PRIu64
                                                   ", disk_mb must be at most %" PRIu64 ", not %" PRIu64,
                                                   limits->memory_bytes / MIB, most / MIB, limits->disk_bytes / MIB);
}

static bool judge_disk(const struct policy *policy, struct fl_limits *limits, struct error *err)
{
    uint64_t most = (uint64_t)policy->settings->disk_mb_max * MIB;
    if (policy->storage_is_memory && !judge_memory_disk(policy->settings, limits, err))
        return false;
    if (limits->disk_bytes == 0)
        limits->disk_bytes = least(DISK_DEFAULT_BYTES, most);
    return bytes_in_range("disk_mb", limits->disk_bytes, DISK_MIN_BYTES, most, err);
}

/* What the node itself was given is the most that a command can have of it. */
static uint64_t most_open_files(const struct settings *settings)
{
    struct rlimit own = {.rlim_max = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_NOFILE, &own);
    return least((uint64_t)settings->open_files_max, own.rlim_max);
}

/* Those that have a default: 0 asks for it. */
static bool judge_counts(const struct settings *settings, struct fl_limits *limits, struct error *err)
{
    uint64_t open_files = most_open_files(settings);
    if (limits->open_files == 0)
        limits->open_files = (uint32_t)open_files;
    if (limits->commands == 0)
        limits->commands = (uint32_t)settings->commands_max;
    if (limits->output_bytes == 0)
        limits->output_bytes = (uint64_t)settings->output_mb * MIB;
    return in_range("open_files", limits->open_files, OPEN_FILES_MIN, open_files, err) &&
           in_range("processes", limits->commands, 1, (uint64_t)settings->commands_max, err) &&
           bytes_in_range("output_mb", limits->output_bytes, OUTPUT_MIN_BYTES, OUTPUT_MAX_BYTES, err);
}

static bool judge_limits(const struct policy *policy, const struct fl_limits *asked, struct fl_limits *in_force,
                         struct error *err)
{
    const struct settings *settings = policy->settings;
    struct fl_limits limits = *asked;
    if (!in_range("cpu (in thousandths)", limits.cpu_milli, CPU_MIN, (uint64_t)settings->cpu_milli_max, err) ||
        !in_range("pids", limits.pids, PIDS_MIN, (uint64_t)settings->pids_max, err) ||
        !bytes_in_range("memory_mb", limits.memory_bytes, MEMORY_MIN_BYTES, (uint64_t)settings->memory_mb_max * MIB,
                        err) ||
        !judge_disk(policy, &limits, err) || !judge_counts(settings, &limits, err))
        return false;
    *in_force = limits;
    return true;
}

bool policy_judge_limits(const struct policy *policy, const struct fl_limits *now, const struct fl_limits *asked,
                         struct fl_limits *in_force, struct error *err)
{
    struct fl_limits limits = {.cpu_milli = asked->cpu_milli ? asked->cpu_milli : now->cpu_milli,
                               .pids = asked->pids ? asked->pids : now->pids,
                               .memory_bytes = asked->memory_bytes ? asked->memory_bytes : now->memory_bytes,
                               .disk_bytes = asked->disk_bytes ? asked->disk_bytes : now->disk_bytes,
                               .open_files = asked->open_files
                                                 ? asked->open_files
                                                 : (uint32_t)least(now->open_files, most_open_files(policy->settings)),
                               .commands = asked->commands ? asked->commands : now->commands,
                               .output_bytes = asked->output_bytes ? asked->output_bytes : now->output_bytes};
    return judge_limits(policy, &limits, in_force, err);
}

static bool judge_volume_sizes(const struct settings *settings, const struct fl_prepare *prepare, struct error *err)
{
    for (size_t i = 0; i < prepare->volume_count; i++) {
        uint64_t bytes = prepare->volumes[i].size_bytes;
        if (bytes &&
            !bytes_in_range("size_mb of a volume", bytes, DISK_MIN_BYTES, (uint64_t)settings->disk_mb_max * MIB, err))
            return false;
    }
    return true;
}

bool policy_judge_network(const struct settings *settings, const struct fl_network *network, struct error *err)
{
    static const char *const NAMES[] = {"none", "public", "allow"};
    bool is_within = network->mode == FL_NETWORK_NONE || text_equal(settings->egress_max, "public") ||
                     (network->mode == FL_NETWORK_ALLOW && text_equal(settings->egress_max, "allow"));
    if (!is_within)
        return error_set(err, ERROR_FORBIDDEN, "egress %s is more than this node gives (egress_max %s)",
                         NAMES[network->mode], settings->egress_max);
    return network_judge(network, err);
}

bool policy_judge_lack(const struct isolation_backend *backend, enum isolation_lack asked, struct error *err)
{
    char what[64];
    isolation_lacks_format((unsigned)asked, what, sizeof what);
    return !(backend->lacks & (unsigned)asked) ||
           error_set(err, ERROR_INVALID, "a sandbox of isolation %s cannot have %s", backend->name, what);
}

/* A guest has a kernel and a monitor to feed. */
static bool judge_least_memory(const struct isolation_backend *backend, const struct fl_limits *limits,
                               struct error *err)
{
    if (limits->memory_bytes >= backend->memory_min_bytes)
        return true;
    return error_set(err, ERROR_INVALID, "memory_mb must be at least %" PRIu64 " with isolation %s, not %" PRIu64,
                     backend->memory_min_bytes / MIB, backend->name, limits->memory_bytes / MIB);
}

static bool judge_isolation(const struct policy *policy, const struct fl_prepare *prepare, struct error *err)
{
    const struct isolation_backend *backend = isolation_choose(policy->offer, prepare->isolation, err);
    if (!backend)
        return false;
    return (prepare->network.mode == FL_NETWORK_NONE || policy_judge_lack(backend, ISOLATION_NO_EGRESS, err)) &&
           (prepare->volume_count == 0 || policy_judge_lack(backend, ISOLATION_NO_VOLUMES, err)) &&
           judge_least_memory(backend, &prepare->limits, err);
}

bool policy_judge(const struct policy *policy, const struct fl_prepare *prepare, int64_t now_wall_ms,
                  struct fl_limits *in_force, struct error *err)
{
    if (!judge_isolation(policy, prepare, err))
        return false;
    if (prepare->deadline_wall_ms <= now_wall_ms)
        return error_set(err, ERROR_INVALID, "the deadline has passed already");
    struct fl_limits limits = {0};
    if (!policy_judge_deadline(policy->settings, now_wall_ms, prepare->deadline_wall_ms, err) ||
        !judge_limits(policy, &prepare->limits, &limits, err) || !judge_volume_sizes(policy->settings, prepare, err) ||
        !policy_judge_network(policy->settings, &prepare->network, err))
        return false;
    *in_force = limits;
    return true;
}

bool policy_judge_deadline(const struct settings *settings, int64_t now_wall_ms, int64_t deadline_wall_ms,
                           struct error *err)
{
    int64_t span_ms = 0;
    if (!__builtin_sub_overflow(deadline_wall_ms, now_wall_ms, &span_ms) &&
        span_ms <= settings->max_lifetime * 1000 + CLOCK_SLACK_MS)
        return true;
    return error_set(err, ERROR_INVALID, "the deadline must be at most %" PRId64 " s ahead (max_lifetime)",
                     settings->max_lifetime);
}
