#include "sandboxd/guest/house.h"

#include "sandboxd/isolation/namespaces/seccomp.h"
#include "shared/base/confine.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/program.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool make_folder(const char *path, mode_t mode, gid_t group, struct error *err)
{
    if (!fd_make_folders(path, mode, err))
        return false;
    return (lchown(path, 0, group) == 0 && chmod(path, mode) == 0) ||
           error_set_errno(err, ERROR_INTERNAL, "give %s its owner and mode", path);
}

/* Through the folder's descriptor: a socket's address holds 107 characters. */
static bool bind_in(const char *path, int fd, gid_t group, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    AUTO_FD int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    const char *name = strchr(GUEST_SOCKET, '/') + 1;
    if (!text_format(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, name))
        return error_set(err, ERROR_TOO_LARGE, "the name of init's socket is too long");
    if (unlinkat(folder, name, 0) < 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_INTERNAL, "remove the old %s", name);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
        fchownat(folder, name, 0, group, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(folder, name, 0660, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bind init's socket in %s", path);
    return true;
}

static int bind_listener(const struct settings *settings, struct error *err)
{
    uid_t uid;
    gid_t gid;
    confine_find_user(settings->front_user, (uid_t)settings->front_uid, &uid, &gid);
    AUTO_FREE char *top = memory_printf("%s/sandboxd", settings->state);
    AUTO_FREE char *run = memory_printf("%s/run", top);
    AUTO_FREE char *folder = memory_printf("%s/%.*s", run, (int)strcspn(GUEST_SOCKET, "/"), GUEST_SOCKET);
    AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, ERROR_INTERNAL, "socket"), -1;
    bool is_made = make_folder(top, 0711, 0, err) && make_folder(run, 0711, 0, err) &&
                   make_folder(folder, 0710, gid, err) && bind_in(folder, fd, gid, err);
    return is_made ? TAKE_FD(fd) : -1;
}

static int open_program(const struct settings *settings, struct error *err)
{
    AUTO_FREE char *path = settings->init ? memory_string(settings->init) : program_beside("parley-init");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL, "the init of sandboxes (--init): %s",
                        path);
    return fd;
}

bool guest_house_open(struct guest_house *house, const struct settings *settings, struct error *err)
{
    house->listen = bind_listener(settings, err);
    if (house->listen >= 0)
        house->program = open_program(settings, err);
    if (house->program >= 0)
        house->seccomp = seccomp_build(SECCOMP_COMMANDS, err);
    return house->seccomp >= 0;
}

void guest_house_done(struct guest_house *house)
{
    const int held[] = {house->listen, house->program, house->seccomp};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        if (held[i] >= 0)
            close(held[i]);
    }
    *house = GUEST_HOUSE_NONE;
}
