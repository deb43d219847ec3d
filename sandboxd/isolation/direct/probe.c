/* probe.c - what guest mode stands on, and what it leaves to what is around it. */
#include "sandboxd/isolation/direct/direct.h"

#include "shared/base/beneath.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void add(struct isolation_layer *layers, size_t *count, const char *name, bool active, const char *detail)
{
    if (*count == ISOLATION_LAYERS_MAX)
        return;
    struct isolation_layer *layer = &layers[(*count)++];
    *layer = (struct isolation_layer){.active = active};
    (void)!text_copy(layer->name, sizeof layer->name, name);
    (void)!text_copy(layer->detail, sizeof layer->detail, detail);
}

static bool has_openat2(void)
{
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    AUTO_FD int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof how);
    return fd >= 0;
}

size_t direct_probe(struct isolation_layer layers[ISOLATION_LAYERS_MAX])
{
    size_t count = 0;
    struct error err = {0};
    bool may = direct_check_rights(&err);
    bool opens = has_openat2(), punches = fd_can_punch();
    bool confines = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
    add(layers, &count, "guest", may, may ? "one sandbox; its walls are what stands around" : err.message);
    add(layers, &count, "users", may, "commands, front and init are three users; commands have no capability");
    add(layers, &count, "seccomp", true, "the list of calls that namespaces have, for every command");
    add(layers, &count, "kill a command with all it started", true,
        "by a supplementary group; process by process, not at once as by cgroup.kill");
    add(layers, &count, "paths", true, opens ? "openat2" : "walked by hand: this kernel has no openat2");
    add(layers, &count, "front: landlock", confines, confines ? "" : "this kernel has none");
    add(layers, &count, "output: holes", punches,
        punches ? "" : "this kernel punches none: what is dropped is cut off and the rest copied");
    add(layers, &count, "cpu, memory, pids, disk", false,
        "not limited by a guest, and refused when asked for: set them on what stands around it");
    add(layers, &count, "network, volumes, snapshots, pause", false, "not a guest's, and refused: the same");
    return count;
}
