#include "sandboxd/isolation/guest/guest.h"

#include "sandboxd/isolation/namespaces/namespaces.h"
#include "sandboxd/isolation/namespaces/seccomp.h"
#include "sandboxd/launcher_init/launcher_init.h"
#include "sandboxd/rootless/rootless.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/program.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROGRAM_MAX_BYTES = 16 * 1024 * 1024 };

/* ---- the start ---- */

static int read_keeper(struct error *err)
{
    size_t size = 0;
    AUTO_FREE char *path = program_beside("parley-keeper");
    AUTO_FREE char *bytes = fd_read_file(path, PROGRAM_MAX_BYTES, &size, err);
    AUTO_FD int fd = bytes ? fd_sealed_memfd("parley-keeper", bytes, size, err) : -1;
    if (fd < 0)
        return -1;
    /* Executable, not readable: the kernel then keeps it undumpable from its first instruction (execve(2)). */
    if (fchmod(fd, 0511) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "chmod of the keeper");
        return -1;
    }
    return TAKE_FD(fd);
}

static bool make_folder(const char *path, struct error *err)
{
    return fd_make_folders(path, 0755, err) &&
           (chmod(path, 0755) == 0 || error_set_errno(err, ERROR_INTERNAL, "chmod %s", path));
}

bool guest_start(const char *state_folder, const char *name, struct guest_host *host, struct error *err)
{
    if (rootless_is_active())
        return error_set(err, ERROR_FORBIDDEN, "isolation %s needs a parley-sandboxd that is root", name);
    if (!isolation_namespaces.start(state_folder, err))
        return false;
    AUTO_FREE char *guests = memory_printf("%s/sandboxd/guests", state_folder);
    AUTO_FREE char *folder = memory_printf("%s/%s", guests, name);
    /* Root's alone above: what lies there is seen by the mount of it. */
    if (!make_folder(guests, err) || !make_folder(folder, err))
        return false;
    if (chmod(guests, 0700) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "chmod %s", guests);
    if (host->keeper < 0)
        host->keeper = read_keeper(err);
    if (host->keeper >= 0 && host->seccomp < 0)
        host->seccomp = seccomp_build(SECCOMP_MONITOR, err);
    if (host->seccomp < 0)
        return false;
    free(host->folder);
    host->folder = TAKE(folder);
    return true;
}

void guest_stop(struct guest_host *host)
{
    if (host->keeper >= 0)
        close(host->keeper);
    if (host->seccomp >= 0)
        close(host->seccomp);
    free(host->folder);
    *host = (struct guest_host)GUEST_HOST_NONE_INIT;
    isolation_namespaces.stop();
}

/* ---- a birth ---- */

static bool write_order(const struct guest_order *order, struct li_guest *guest, struct error *err)
{
    size_t at = 0;
    for (const char *const *argument = order->arguments; *argument; argument++) {
        size_t length = strlen(*argument) + 1;
        if (at + length > sizeof guest->arguments || guest->argument_count == LAUNCHER_INIT_ARGUMENTS)
            return error_set(err, ERROR_TOO_LARGE, "the monitor's arguments are too many");
        memcpy(guest->arguments + at, *argument, length);
        at += length;
        guest->argument_count++;
    }
    guest->port = order->port;
    guest->starts_late = order->starts_late;
    return true;
}

bool guest_begin(const struct guest_host *host, const struct guest_order *order, const struct isolation_plan *plan,
                 struct isolation_sandbox *made, struct error *err)
{
    struct launcher_init_message message = {.type = LI_GUEST};
    const struct namespaces_guest guest = {.program = host->keeper, .seccomp = host->seccomp, .bundle = host->folder};
    if (!write_order(order, &message.as.guest, err) || !namespaces_begin(plan, &guest, made, err))
        return false;
    struct error why = {0};
    if (launcher_init_send(made->birth, &message, NULL, 0, &why))
        return true;
    (void)!isolation_namespaces.kill(plan->slot, NULL); /* its caller ends the slot, which nobody else is in */
    isolation_close(made);
    if (err)
        *err = why;
    return false;
}

bool guest_probe_program(struct isolation_layer *layer, const char *name, const char *path, const char *how)
{
    *layer = (struct isolation_layer){.active = access(path, X_OK) == 0};
    (void)!text_copy(layer->name, sizeof layer->name, name);
    (void)snprintf(layer->detail, sizeof layer->detail, layer->active ? "%.90s" : "no %.90s: %s", path, how);
    return layer->active;
}
