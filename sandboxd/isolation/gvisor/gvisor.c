/* gvisor.c - isolation gvisor: Debian's runsc keeps a kernel of its own around the guest (guest/guest.h).
 *
 * Platform ptrace: the one that Debian's runsc (20221219) has beside kvm, which hangs where /dev/kvm is not whole. No
 * network but the guest's own loopback; no cgroups of runsc's: the slot's hold all of it. One config.json serves all
 * sandboxes: whose it is comes by the letter. */
#include "sandboxd/isolation/guest/guest.h"
#include "sandboxd/isolation/namespaces/namespaces.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEEN "/.parley" /* where the guest sees its programs */
static const char RUNSC[] = "/usr/bin/runsc";
static const char HOW[] = "install the package runsc (apt install runsc)";

/* Its kernel has no limit of processes, and takes threads of the host for each (10 to 13 with ptrace, and some 50
 * for itself); where it gets none it ends. So the host's limit lets it have those that were asked for, and is the wall
 * behind which a fork bomb ends its own sandbox. */
enum { TASKS_A_PROCESS = 16, TASKS_OF_ITS_OWN = 256 };

static struct guest_host host = GUEST_HOST_NONE_INIT;

/* ---- config.json: the OCI runtime specification, 1.0.2 ---- */

static json_t *make_mount(const char *type, const char *source, const char *to, const char *option)
{
    json_t *options = option ? json_pack("[s]", option) : json_array();
    return json_pack("{s:s,s:s,s:s,s:o}", "type", type, "source", source, "destination", to, "options", options);
}

static json_t *make_process(void)
{
    /* What init needs: users, files of any owner, mounts and signals in the guest's kernel. None of it is a right on
     * the host. Commands have none of them. */
    static const char *const RIGHTS[] = {"CAP_CHOWN",      "CAP_DAC_OVERRIDE", "CAP_FOWNER",      "CAP_FSETID",
                                         "CAP_KILL",       "CAP_SETGID",       "CAP_SETUID",      "CAP_SETPCAP",
                                         "CAP_SYS_CHROOT", "CAP_SYS_ADMIN",    "CAP_SYS_RESOURCE"};
    json_t *rights = json_array();
    for (size_t i = 0; i < sizeof RIGHTS / sizeof RIGHTS[0]; i++)
        json_array_append_new(rights, json_string(RIGHTS[i]));
    json_t *sets = json_pack("{s:O,s:O,s:O}", "bounding", rights, "effective", rights, "permitted", rights);
    json_decref(rights);
    json_t *arguments = json_pack("[ssssssss]", SEEN "/bin/parley-sandboxd", "--guest", "--guest-letter", "0",
                                  "--guest-connections", "0", "--state", "/run/parley");
    json_t *variables = json_pack("[ss]", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH=" SEEN "/lib");
    return json_pack("{s:b,s:{s:i,s:i},s:o,s:o,s:s,s:o,s:b}", "terminal", 0, "user", "uid", 0, "gid", 0, "args",
                     arguments, "env", variables, "cwd", "/", "capabilities", sets, "noNewPrivileges", 0);
}

static json_t *make_spec(void)
{
    json_t *mounts = json_array();
    json_array_append_new(mounts, make_mount("proc", "proc", "/proc", NULL));
    json_array_append_new(mounts, make_mount("tmpfs", "tmpfs", "/dev", NULL));
    json_array_append_new(mounts, make_mount("tmpfs", "tmpfs", "/dev/shm", NULL));
    json_array_append_new(mounts, make_mount("tmpfs", "tmpfs", "/run", "mode=0755"));
    json_array_append_new(mounts, make_mount("bind", "/bundle/guest", SEEN, "ro"));
    json_t *namespaces =
        json_pack("[{s:s},{s:s},{s:s},{s:s}]", "type", "pid", "type", "mount", "type", "ipc", "type", "uts");
    return json_pack("{s:s,s:o,s:{s:s,s:b},s:s,s:o,s:{s:o}}", "ociVersion", "1.0.2", "process", make_process(), "root",
                     "path", "/sandbox", "readonly", 0, "hostname", "guest", "mounts", mounts, "linux", "namespaces",
                     namespaces);
}

static bool write_spec(const char *folder, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/config.json", folder);
    json_t *spec = make_spec();
    AUTO_FREE char *text = spec ? json_dumps(spec, JSON_INDENT(1)) : NULL;
    json_decref(spec);
    return text ? fd_write_file(path, 0644, text, strlen(text), err)
                : error_set(err, ERROR_INTERNAL, "cannot write runsc's config.json");
}

/* ---- the backend ---- */

static bool start(const char *state_folder, struct error *err)
{
    if (access(RUNSC, X_OK) < 0)
        return error_set(err, ERROR_NOT_FOUND, "there is no %s: %s, or leave gvisor out of the setting isolation",
                         RUNSC, HOW);
    if (!guest_start(state_folder, "gvisor", &host, err))
        return false;
    AUTO_FREE char *bundle = memory_printf("%s/guest", host.folder);
    return guest_fill_bundle(bundle, SEEN, err) && write_spec(host.folder, err);
}

static size_t probe(struct isolation_layer layers[ISOLATION_LAYERS_MAX])
{
    (void)guest_probe_program(&layers[0], "runsc", RUNSC, HOW);
    return 1;
}

static bool begin(const struct isolation_plan *plan, struct isolation_sandbox *made, struct error *err)
{
    /* The gofer, which opens files for the guest, and the kernel itself are put in namespaces and chroots of their own
     * within the keeper's, by runsc. */
    static const char *const ARGUMENTS[] = {RUNSC,
                                            "--root=/run/runsc",
                                            "--platform=ptrace",
                                            "--network=none",
                                            "--ignore-cgroups",
                                            "--log=/dev/null",
                                            "run",
                                            "--bundle=/bundle",
                                            "sandbox",
                                            NULL};
    const struct guest_order order = {.arguments = ARGUMENTS};
    return guest_begin(&host, &order, plan, made, err);
}

static void stop(void)
{
    guest_stop(&host);
}

const struct isolation_backend isolation_gvisor = {
    .name = "gvisor",
    .is_guest = true,
    .lacks = ISOLATION_NO_EGRESS | ISOLATION_NO_SNAPSHOTS | ISOLATION_NO_VOLUMES | ISOLATION_NO_ROOT |
             ISOLATION_NO_ENTRYPOINT,
    .note =
        "pids: not exactly, about so many processes before a fork bomb ends the sandbox; memory: beyond it ends the "
        "sandbox, not the command; no io_uring, no other kernel than its own (4.4)",
    .tasks_a_process = TASKS_A_PROCESS,
    .tasks_of_its_own = TASKS_OF_ITS_OWN,
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
