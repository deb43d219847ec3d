/* vmm_test.c - a machine is described as asked for, within its bounds, and with no secret. */
#include "sandboxd/isolation/microvm/vmm.h"

#include "tests/unit/check.h"

static const struct vmm_machine MACHINE = {.kernel = 11,
                                           .initramfs = 12,
                                           .memory_bytes = 384ULL << 20,
                                           .cpus = 2,
                                           .root_server = 13,
                                           .console = 14,
                                           .host_port = 4001,
                                           .guest_port = 4002};

/* The argument behind `name`, NULL when there is none. */
static const char *value_of(const struct vmm_command *command, const char *name)
{
    for (size_t i = 0; i + 1 < command->count; i++) {
        if (strcmp(command->arguments[i], name) == 0)
            return command->arguments[i + 1];
    }
    return NULL;
}

static bool has(const struct vmm_command *command, const char *part)
{
    for (size_t i = 0; i < command->count; i++) {
        if (strstr(command->arguments[i], part) != NULL)
            return true;
    }
    return false;
}

static void test_qemu_is_told_all(void)
{
    static struct vmm_command command;
    struct error err = {0};
    CHECK(vmm_qemu.describe(&MACHINE, "/usr/bin/a-qemu", &command, &err));
    CHECK_TEXT(command.arguments[0], "/usr/bin/a-qemu");
    CHECK(command.arguments[command.count] == NULL);
    CHECK_TEXT(value_of(&command, "-m"), "384M");
    CHECK_TEXT(value_of(&command, "-smp"), "2");
    CHECK_TEXT(value_of(&command, "-kernel"), "/proc/self/fd/11");
    CHECK_TEXT(value_of(&command, "-initrd"), "/proc/self/fd/12");
    CHECK(has(&command, "socket,id=files,fd=13"));
    CHECK(has(&command, "path=/proc/self/fd/14"));
    CHECK(has(&command, "hostfwd=tcp:127.0.0.1:4001-10.0.2.15:4002"));
}

/* A guest that measures it itself hangs on a busy machine. */
static void test_qemu_tells_the_counters_speed(void)
{
    static struct vmm_command command;
    struct error err = {0};
    struct vmm_machine machine = MACHINE;
    CHECK(vmm_qemu.describe(&machine, "q", &command, &err) && !has(&command, "tsc_early_khz"));
    machine.tsc_khz = 2596122;
    CHECK(vmm_qemu.describe(&machine, "q", &command, &err) && has(&command, " tsc_early_khz=2596122"));
}

/* The hardware's virtualisation is not asked for: it need not be there; and the guest reaches nothing by its card. */
static void test_qemu_is_held(void)
{
    static struct vmm_command command;
    struct error err = {0};
    CHECK(vmm_qemu.describe(&MACHINE, "q", &command, &err));
    CHECK(!has(&command, "kvm"));
    CHECK(has(&command, "restrict=on"));
    CHECK(has(&command, "spawn=deny"));
    CHECK(has(&command, "-nodefaults") && has(&command, "-no-reboot"));
}

static void test_memory_leaves_room_for_the_monitor(void)
{
    struct error err = {0};
    uint64_t bytes = 1;
    CHECK(!vmm_memory(&vmm_qemu, 255ULL << 20, &bytes, &err));
    CHECK(err.kind == ERROR_INVALID && strstr(err.message, "at least 256") != NULL && bytes == 1);
    CHECK(vmm_memory(&vmm_qemu, 256ULL << 20, &bytes, &err) && bytes == 128ULL << 20);
    CHECK(vmm_memory(&vmm_qemu, (512ULL << 20) + 4097, &bytes, &err) && bytes == 384ULL << 20);
}

static void test_cpus(void)
{
    CHECK(vmm_cpus(50) == 1 && vmm_cpus(1000) == 1 && vmm_cpus(1001) == 2);
    CHECK(vmm_cpus(1000000) == VMM_CPUS_MAX && vmm_cpus(UINT32_MAX) == VMM_CPUS_MAX);
}

static void test_names(void)
{
    struct error err = {0};
    CHECK(vmm_find("qemu", &err) == &vmm_qemu);
    CHECK(vmm_find("kvmtool", &err) == NULL && err.kind == ERROR_INVALID && strstr(err.message, "qemu") != NULL);
    CHECK(vmm_find(NULL, &err) == NULL);
}

static void test_a_command_line_is_bounded(void)
{
    static struct vmm_command command;
    struct error err = {0};
    for (int i = 0; i < VMM_ARGUMENTS_MAX; i++)
        CHECK(vmm_argument(&command, &err, "%d", i));
    CHECK(!vmm_argument(&command, &err, "one more") && err.kind == ERROR_INVALID);
    command = (struct vmm_command){0};
    CHECK(!vmm_argument(&command, &err, "%*d", VMM_TEXT_BYTES, 1) && command.count == 0);
    CHECK(vmm_argument(&command, &err, "%*d", VMM_TEXT_BYTES - 1, 1) && command.count == 1);
}

int main(void)
{
    test_qemu_is_told_all();
    test_qemu_tells_the_counters_speed();
    test_qemu_is_held();
    test_memory_leaves_room_for_the_monitor();
    test_cpus();
    test_names();
    test_a_command_line_is_bounded();
    return check_done();
}
