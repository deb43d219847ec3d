/* What the launcher refuses, whatever the front asks for. */
#include "sandboxd/launcher/policy.h"

#include "sandboxd/isolation/isolation.h"
#include "tests/unit/check.h"

#include <sys/resource.h>

static const int64_t NOW = 1763776862003;

static const struct settings SETTINGS = {.max_lifetime = 86400,
                                         .cpu_milli_max = 4000,
                                         .memory_mb_max = 1024,
                                         .disk_mb_max = 512,
                                         .pids_max = 1000,
                                         .open_files_max = 4096,
                                         .commands_max = 100,
                                         .output_mb = 16};
static const struct isolation_offer OFFER = {.list = {&isolation_namespaces}, .count = 1};
static const struct policy MEMORY = {.settings = &SETTINGS, .offer = &OFFER, .storage_is_memory = true};
static const struct policy DISK = {.settings = &SETTINGS, .offer = &OFFER};

static struct fl_prepare request(void)
{
    return (struct fl_prepare){.id = "sbx_0123456789abcdefghij",
                               .hostname = "box",
                               .template_name = "base",
                               .isolation = "auto",
                               .limits = {.cpu_milli = 1000, .pids = 256, .memory_bytes = 512 << 20},
                               .deadline_wall_ms = NOW + 3600000,
                               .epoch = 1};
}

/* The kind of the refusal; its sentence must hold `word`. */
static enum error_kind judged(const struct fl_prepare *prepare, const char *word)
{
    struct error err = {0};
    struct fl_limits limits = {.pids = 4711};
    if (policy_judge(&MEMORY, prepare, NOW, &limits, &err))
        return ERROR_NONE;
    CHECK(limits.pids == 4711);
    CHECK(strstr(err.message, word) != NULL);
    return err.kind;
}

static void test_limits(void)
{
    struct fl_limits limits = {0};
    struct fl_prepare prepare = request();
    CHECK(policy_judge(&MEMORY, &prepare, NOW, &limits, NULL));
    CHECK(limits.disk_bytes == 256 << 20 && limits.memory_bytes == 512 << 20); /* default: half of memory */
    prepare.limits.cpu_milli = 49;
    CHECK(judged(&prepare, "50..4000") == ERROR_INVALID);
    prepare.limits.cpu_milli = 4001;
    CHECK(judged(&prepare, "cpu (in thousandths)") == ERROR_INVALID);
    prepare = request();
    prepare.limits.pids = 15;
    CHECK(judged(&prepare, "16..1000") == ERROR_INVALID);
    prepare = request();
    prepare.limits.memory_bytes = (16 << 20) - 1;
    CHECK(judged(&prepare, "memory_mb") == ERROR_INVALID);
    prepare.limits.memory_bytes = UINT64_MAX;
    CHECK(judged(&prepare, "memory_mb must be 16..1024") == ERROR_INVALID);
    prepare = request();
    prepare.limits.disk_bytes = (512 << 20) + 1;
    CHECK(
        judged(&prepare, "storage tmpfs counts as memory: with memory_mb 512, disk_mb must be at most 334, not 512") ==
        ERROR_INVALID);
    prepare.limits.disk_bytes = (334 << 20) + 1;
    CHECK(judged(&prepare, "at most 334") == ERROR_INVALID);
    prepare.limits.disk_bytes = 334 << 20;
    CHECK(judged(&prepare, "") == ERROR_NONE);
    prepare = request();
    prepare.limits.memory_bytes = 1 << 30;
    prepare.limits.disk_bytes = 600 << 20;
    CHECK(judged(&prepare, "disk_mb") == ERROR_INVALID);
    prepare.limits.disk_bytes = 4096;
    CHECK(judged(&prepare, "disk_mb") == ERROR_INVALID);
}

/* All that the tmpfs of a sandbox can hold, with their inodes, leaves memory to run something in. */
static void test_disk_leaves_memory(void)
{
    for (uint64_t mib = 16; mib <= 1024; mib++) {
        struct fl_limits limits = {0};
        struct fl_prepare prepare = request();
        prepare.limits.memory_bytes = mib << 20;
        CHECK(policy_judge(&MEMORY, &prepare, NOW, &limits, NULL));
        uint64_t sizes = limits.disk_bytes + isolation_shared_bytes(limits.memory_bytes);
        uint64_t inodes = sizes / ISOLATION_BYTES_PER_INODE * ISOLATION_INODE_BYTES;
        uint64_t kept = limits.memory_bytes - sizes - inodes;
        CHECK(sizes + inodes < limits.memory_bytes);
        CHECK(kept >= limits.memory_bytes / 8 && (kept >= 64 << 20 || kept >= limits.memory_bytes / 2));
        CHECK(limits.disk_bytes >= 1 << 20 && limits.disk_bytes <= limits.memory_bytes / 2);
        CHECK(mib < 256 || limits.disk_bytes == limits.memory_bytes / 2);
    }
}

/* Where the disk is no memory it is judged by itself. */
static void test_disk(void)
{
    struct fl_limits limits = {0};
    struct fl_prepare prepare = request();
    CHECK(policy_judge(&DISK, &prepare, NOW, &limits, NULL));
    CHECK(limits.disk_bytes == 512 << 20); /* 1 GiB, or what one may have */
    prepare.limits.memory_bytes = 16 << 20;
    prepare.limits.disk_bytes = 512 << 20;
    CHECK(policy_judge(&DISK, &prepare, NOW, &limits, NULL));
    prepare.limits.disk_bytes++;
    struct error err = {0};
    CHECK(!policy_judge(&DISK, &prepare, NOW, &limits, &err) && strstr(err.message, "disk_mb must be 1..512"));
    prepare = request();
    prepare.volume_count = 1;
    prepare.volumes[0].size_bytes = 1024;
    CHECK(!policy_judge(&DISK, &prepare, NOW, &limits, &err) && strstr(err.message, "size_mb of a volume"));
}

static void test_counts(void)
{
    struct fl_limits limits = {0};
    struct fl_prepare prepare = request();
    CHECK(policy_judge(&DISK, &prepare, NOW, &limits, NULL));
    CHECK(limits.open_files == 4096 && limits.commands == 100 && limits.output_bytes == 16 << 20);
    prepare.limits.open_files = 15;
    CHECK(judged(&prepare, "open_files must be 16..4096") == ERROR_INVALID);
    prepare.limits.open_files = 4097;
    CHECK(judged(&prepare, "open_files") == ERROR_INVALID);
    prepare = request();
    prepare.limits.commands = 101;
    CHECK(judged(&prepare, "processes must be 1..100") == ERROR_INVALID);
    prepare = request();
    prepare.limits.output_bytes = 1024;
    CHECK(judged(&prepare, "output_mb must be 0.0625..1024 on this node") == ERROR_INVALID);
}

/* Of a living one: what is 0 stays, and all of it is judged together. */
static void test_changes(void)
{
    struct fl_limits now = {0};
    struct fl_limits limits = {.pids = 4711};
    struct error err = {0};
    struct fl_prepare prepare = request();
    CHECK(policy_judge(&MEMORY, &prepare, NOW, &now, NULL));
    CHECK(policy_judge_limits(&MEMORY, &now, &(struct fl_limits){.cpu_milli = 100}, &limits, &err));
    now.cpu_milli = 100;
    CHECK(memcmp(&limits, &now, sizeof now) == 0);
    limits.pids = 4711;
    CHECK(!policy_judge_limits(&MEMORY, &now, &(struct fl_limits){.memory_bytes = 64 << 20}, &limits, &err));
    CHECK(strstr(err.message, "disk_mb must be at most") && limits.pids == 4711); /* its disk no longer fits */
    CHECK(policy_judge_limits(&DISK, &now, &(struct fl_limits){.memory_bytes = 64 << 20}, &limits, &err));
    CHECK(!policy_judge_limits(&DISK, &now, &(struct fl_limits){.pids = 1}, &limits, &err));
    CHECK(!policy_judge_limits(&DISK, &now, &(struct fl_limits){.disk_bytes = 1}, &limits, &err));
}

static void test_names(void)
{
    struct fl_prepare prepare = request();
    memcpy(prepare.isolation, "none", 5);
    CHECK(judged(&prepare, "namespaces") == ERROR_INVALID);
    memcpy(prepare.isolation, "namespaces", 11);
    CHECK(judged(&prepare, "") == ERROR_NONE);
}

/* A level may need more memory than others, and say what it cannot have. */
static void test_what_the_level_has(void)
{
    static const struct isolation_offer offer = {.list = {&isolation_namespaces, &isolation_microvm}, .count = 2};
    const struct policy policy = {.settings = &SETTINGS, .offer = &offer};
    struct fl_prepare prepare = request();
    struct fl_limits limits = {0};
    struct error err = {0};
    prepare.limits.memory_bytes = 255ULL << 20;
    CHECK(policy_judge(&policy, &prepare, NOW, &limits, &err));
    memcpy(prepare.isolation, "microvm", 8);
    CHECK(!policy_judge(&policy, &prepare, NOW, &limits, &err) && err.kind == ERROR_INVALID);
    CHECK(strstr(err.message, "memory_mb must be at least 256 with isolation microvm, not 255"));
    prepare.limits.memory_bytes = 256ULL << 20;
    CHECK(policy_judge(&policy, &prepare, NOW, &limits, &err));
    prepare.network.mode = FL_NETWORK_PUBLIC;
    CHECK(!policy_judge(&policy, &prepare, NOW, &limits, &err) && strstr(err.message, "egress"));
    CHECK(!policy_judge_lack(&isolation_microvm, ISOLATION_NO_RESIZE, &err) && strstr(err.message, "another memory"));
    CHECK(policy_judge_lack(&isolation_namespaces, ISOLATION_NO_RESIZE, &err));
}

static void test_deadlines(void)
{
    struct fl_prepare prepare = request();
    prepare.deadline_wall_ms = NOW;
    CHECK(judged(&prepare, "passed") == ERROR_INVALID);
    prepare.deadline_wall_ms = NOW + 86400000;
    CHECK(judged(&prepare, "") == ERROR_NONE);
    prepare.deadline_wall_ms = NOW + 86400000 + 121000;
    CHECK(judged(&prepare, "86400 s") == ERROR_INVALID);
    prepare.deadline_wall_ms = INT64_MAX;
    CHECK(judged(&prepare, "max_lifetime") == ERROR_INVALID);
    struct error err = {0};
    CHECK(policy_judge_deadline(&SETTINGS, NOW, NOW + 1000, &err));
    CHECK(policy_judge_deadline(&SETTINGS, NOW, 1, &err)); /* an earlier one is always allowed */
    CHECK(!policy_judge_deadline(&SETTINGS, -5, INT64_MAX, &err));
    CHECK(policy_judge_deadline(&SETTINGS, NOW, NOW + 86400000, &err)); /* counted from when it is moved */
    CHECK(!policy_judge_deadline(&SETTINGS, NOW, NOW + 86400000 + 121000, &err));
}

/* What nobody here may have cannot be given: neither by default, nor on demand, nor to one that was told so before. */
static void test_what_the_node_has(void)
{
    const struct rlimit few = {.rlim_cur = 256, .rlim_max = 512};
    struct fl_limits now = {0}, limits = {0};
    struct fl_prepare prepare = request();
    CHECK(policy_judge(&DISK, &prepare, NOW, &now, NULL) && now.open_files == 4096);
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(policy_judge(&DISK, &prepare, NOW, &limits, NULL) && limits.open_files == 512);
    CHECK(policy_judge_limits(&DISK, &now, &(struct fl_limits){.pids = 100}, &limits, NULL));
    CHECK(limits.open_files == 512);
    prepare.limits.open_files = 513;
    CHECK(judged(&prepare, "open_files must be 16..512") == ERROR_INVALID);
}

static enum error_kind network_judged(const char *most, struct fl_network network)
{
    char text[16];
    struct error err = {0};
    struct settings settings = SETTINGS;
    snprintf(text, sizeof text, "%s", most);
    settings.egress_max = text;
    const struct policy policy = {.settings = &settings, .offer = &OFFER};
    struct fl_prepare prepare = request();
    struct fl_limits limits;
    prepare.network = network;
    bool is_right = policy_judge_network(&settings, &network, &err);
    CHECK(policy_judge(&policy, &prepare, NOW, &limits, NULL) == is_right);
    return is_right ? ERROR_NONE : err.kind;
}

static struct fl_network to(uint32_t address, uint8_t prefix)
{
    return (struct fl_network){
        .mode = FL_NETWORK_ALLOW, .net_count = 1, .nets = {{.address = address, .prefix = prefix}}};
}

static void test_networks(void)
{
    static const char *const MOST[] = {"none", "allow", "public"};
    const struct fl_network none = {.mode = FL_NETWORK_NONE}, public = {.mode = FL_NETWORK_PUBLIC};
    for (int i = 0; i < 3; i++) {
        CHECK(network_judged(MOST[i], none) == ERROR_NONE);
        CHECK(network_judged(MOST[i], to(0xCB007100, 24)) == (i >= 1 ? ERROR_NONE : ERROR_FORBIDDEN));
        CHECK(network_judged(MOST[i], public) == (i == 2 ? ERROR_NONE : ERROR_FORBIDDEN));
    }
    static const struct {
        uint32_t address;
        uint8_t prefix;
    } WRONG[] = {{0, 0},           {0x80000000, 1},  {0x0A000000, 8},  {0x7F000001, 32},
                 {0xA9FEA9FE, 32}, {0x64400000, 10}, {0xAC10FF00, 24}, {0xC0A80000, 24},
                 {0xE0000001, 32}, {0xFFFFFFFF, 32}, {0x08000000, 5}};
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++)
        CHECK(network_judged("public", to(WRONG[i].address, WRONG[i].prefix)) == ERROR_INVALID);
}

int main(void)
{
    test_networks();
    test_limits();
    test_disk_leaves_memory();
    test_disk();
    test_counts();
    test_changes();
    test_names();
    test_what_the_level_has();
    test_deadlines();
    test_what_the_node_has();
    return check_done();
}
