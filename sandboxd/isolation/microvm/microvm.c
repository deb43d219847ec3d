/* microvm.c - isolation microvm: a virtual machine with a kernel of its own around the guest (DESIGN.md). */
#include "sandboxd/isolation/microvm/microvm.h"
#include "sandboxd/isolation/guest/guest.h"
#include "sandboxd/isolation/microvm/parts.h"
#include "sandboxd/isolation/microvm/vmm.h"
#include "sandboxd/isolation/namespaces/namespaces.h"
#include "shared/base/memory.h"
#include "shared/base/program.h"
#include "shared/base/text.h"

#include <stdio.h>

#define SEEN          "/" MICROVM_GUEST_INSIDE /* where the guest sees its programs */
#define TEXT(number)  TEXT_(number)
#define TEXT_(number) #number

/* Processes are counted in the guest, where its front's threads are some of them; of the host's there are the threads
 * of monitor and file server, which are fewer than those. Both limits are the same number. */
enum { TASKS_OF_FRONT = 64 };

static struct guest_host host = GUEST_HOST_NONE_INIT;
static struct {
    const char *kernel, *vmm;
} chosen;

void isolation_microvm_choose(const char *kernel, const char *vmm)
{
    chosen.kernel = kernel;
    chosen.vmm = vmm;
}

/* With our own programs, in `folder`. */
static struct parts_settings find_parts(const char *folder)
{
    return (struct parts_settings){.kernel = chosen.kernel, .vmm = chosen.vmm, .programs = folder};
}

static bool start(const char *state_folder, struct error *err)
{
    static const char *const ARGUMENTS[] = {SEEN "/bin/parley-sandboxd",
                                            "--guest",
                                            "--guest-letter",
                                            "0",
                                            "--state",
                                            "/run/parley",
                                            "--log_level=warn",
                                            "--listen_host",
                                            VMM_GUEST_ADDRESS,
                                            "--insecure_http", /* the wire ends in the slot */
                                            "--sandboxd_port",
                                            TEXT(MICROVM_PORT),
                                            NULL};
    static const char *const ENVIRONMENT[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH=" SEEN "/lib",
                                              NULL};
    static const struct parts_front FRONT = {.arguments = ARGUMENTS, .environment = ENVIRONMENT};
    AUTO_FREE char *programs = program_folder();
    const struct parts_settings settings = find_parts(programs);
    if (!parts_check(&settings, err))
        return false;
    if (!guest_start(state_folder, "microvm", &host, err))
        return false;
    AUTO_FREE char *bundle = memory_printf("%s/guest", host.folder);
    return parts_make(&settings, &FRONT, host.folder, err) && guest_fill_bundle(bundle, SEEN, err);
}

static size_t probe(struct isolation_layer layers[ISOLATION_LAYERS_MAX])
{
    struct error err = {0};
    AUTO_FREE char *programs = program_folder();
    const struct parts_settings settings = find_parts(programs);
    const bool is_there = parts_check(&settings, &err);
    layers[0] = (struct isolation_layer){.name = "microvm parts", .active = is_there};
    if (is_there)
        (void)snprintf(layers[0].detail, sizeof layers[0].detail, "%.32s (TCG: no KVM, slow) and %.120s", settings.vmm,
                       settings.kernel);
    else
        (void)!text_copy(layers[0].detail, sizeof layers[0].detail, err.message);
    return 1;
}

static bool begin(const struct isolation_plan *plan, struct isolation_sandbox *made, struct error *err)
{
    const char *const arguments[] = {
        MICROVM_FOLDER "/" MICROVM_PROGRAM, chosen.vmm, "{memory_mib}", "{cpu_milli}", "{pids}", NULL};
    const struct guest_order order = {.arguments = arguments, .port = MICROVM_PORT, .starts_late = true};
    return guest_begin(&host, &order, plan, made, err);
}

static void stop(void)
{
    guest_stop(&host);
}

const struct isolation_backend isolation_microvm = {
    .name = "microvm",
    .is_guest = true,
    .lacks = ISOLATION_NO_EGRESS | ISOLATION_NO_SNAPSHOTS | ISOLATION_NO_VOLUMES | ISOLATION_NO_ROOT |
             ISOLATION_NO_ENTRYPOINT | ISOLATION_NO_RESIZE,
    .note = "memory: 128 MiB of it are the monitor's; pids: those at the start count, later ones do not; slow (TCG)",
    .memory_min_bytes = VMM_SANDBOX_MIN_BYTES,
    .tasks_of_its_own = TASKS_OF_FRONT,
    .start = start,
    .probe = probe,
    .begin = begin,
    .is_warm = namespaces_is_warm,
    .become = namespaces_become,
    .is_ready = namespaces_is_ready,
    .limit = namespaces_limit,
    .adopt = namespaces_adopt,
    .kill = namespaces_kill,
    .remove = namespaces_remove,
    .list = namespaces_list,
    .stop = stop};
