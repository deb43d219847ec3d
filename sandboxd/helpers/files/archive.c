/* archive.c - FILES_PACK and FILES_UNPACK: a folder as a tar, by the template's own. Both are for those who may see the
 * whole sandbox: tar follows what is in an archive as its user may. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#define TAR_BLOCK_BYTES 512 /* every plain tar is made of */

#define AUTO_TAR        __attribute__((cleanup(tar_done))) struct tar

static bool check_request(const struct helper *helper, struct error *err)
{
    struct stat status;
    if (is_scoped(helper->request->root))
        return error_set(err, ERROR_FORBIDDEN, "archives are not for tokens of a single folder");
    if (fstat(helper->descriptor, &status) < 0 || !S_ISFIFO(status.st_mode))
        return error_set(err, ERROR_INVALID, "an archive comes and goes through a pipe");
    return true;
}

static bool is_whole_sandbox(const struct helper *helper, int folder)
{
    struct stat status, top;
    return fstat(folder, &status) == 0 && fstat(helper->root_fd, &top) == 0 && status.st_dev == top.st_dev &&
           status.st_ino == top.st_ino;
}

bool files_pack(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    if (!check_request(helper, err) || !helper_end_with_front(helper, err))
        return false;
    AUTO_FD int folder = resolve_open(helper, request->root, request->path, O_RDONLY | O_DIRECTORY, err);
    if (folder < 0)
        return false;
    /* Not one file system alone: / and /usr are two. */
    const char *arguments[16] = {"-c", "--sort=name", "--ignore-failed-read", "-f", "-"};
    size_t count = 5;
    if (request->flags & FILES_GZIP)
        arguments[count++] = "-z";
    if (is_whole_sandbox(helper, folder)) {
        arguments[count++] = "--anchored";
        arguments[count++] = "--exclude=./proc/*";
        arguments[count++] = "--exclude=./sys/*";
        arguments[count++] = "--exclude=./dev/*";
    }
    arguments[count++] = "--";
    arguments[count] = ".";
    AUTO_TAR tar = {.errors = -1};
    if (!tar_start(&tar, folder, helper->descriptor, TAR_WRITES, arguments, err))
        return false;
    close(TAKE_FD(helper->descriptor)); /* so that the front sees the end when tar ends */
    struct pollfd polled = {.fd = tar.errors, .events = POLLIN};
    while (tar_listen(&tar))
        (void)poll(&polled, 1, -1);
    bool changed = false;
    if (!tar_end(&tar, &changed, err))
        return error_prefix(err, "packing");
    helper->skipped = tar.lines > 0 || !changed ? tar.lines : 1;
    return true;
}

/* Waits until `fd` is readable or ended, or, with fd -1, until all has been sent. A COMMIT is kept. False when the
 * front is gone. */
static bool wait_for(struct helper *helper, int fd, struct error *err)
{
    for (;;) {
        struct pollfd polled[2] = {{.fd = fd, .events = POLLIN},
                                   {.fd = helper->socket, .events = helper->has_commit ? 0 : POLLIN}};
        if (poll(polled, 2, -1) < 0 && errno != EINTR)
            return fail_errno(err, "poll");
        if (polled[1].revents && helper->has_commit)
            return error_set(err, ERROR_INTERNAL, "the front is gone");
        int taken = polled[1].revents ? helper_take_commit(helper, err) : 0;
        if (taken < 0)
            return false;
        if (polled[0].revents || (fd < 0 && helper->has_commit))
            return true;
    }
}

/* Whether the stream begins as gzip does (RFC 1952, 2.3.1). The byte stays in the pipe: tee(2) copies. 1, 0; -1. */
static int is_gzip(struct helper *helper, struct error *err)
{
    int ends[2];
    if (!wait_for(helper, helper->descriptor, err))
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set_errno(err, ERROR_NO_CAPACITY, "pipe");
        return -1;
    }
    unsigned char first = 0;
    ssize_t got = tee(helper->descriptor, ends[1], 1, 0);
    if (got < 0)
        fail_errno(err, "reading the archive");
    else if (got == 0)
        error_set(err, ERROR_INVALID, "the archive is empty");
    bool is_read = got == 1 && read(ends[0], &first, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return is_read ? first == 0x1f : -1;
}

/* The folder, made with those above it when it is not there. */
static int open_made(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    int folder = resolve_open(helper, request->root, request->path, O_RDONLY | O_DIRECTORY, err);
    if (folder >= 0 || err->system_errno != ENOENT)
        return folder;
    *err = (struct error){0};
    AUTO_PLACE place = PLACE_NONE;
    if (!resolve_parent_made(helper, request->root, request->path, true, &place, err))
        return -1;
    if (mkdirat(place.folder, place.name, 0755) < 0 && errno != EEXIST) {
        fail_errno(err, "making the folder");
        return -1;
    }
    return resolve_open(helper, request->root, request->path, O_RDONLY | O_DIRECTORY, err);
}

static bool unpack_into(struct helper *helper, int folder, struct error *err)
{
    const char *arguments[] = {"-x", "--no-same-owner", "--same-permissions", "-f", "-", NULL, NULL};
    int gzip = is_gzip(helper, err);
    if (gzip < 0)
        return false;
    arguments[5] = gzip ? "-z" : NULL;
    AUTO_TAR tar = {.errors = -1};
    if (!tar_start(&tar, folder, helper->descriptor, TAR_READS, arguments, err))
        return false;
    close(TAKE_FD(helper->descriptor)); /* so that the front sees when tar reads no more */
    while (tar_listen(&tar)) {
        if (!wait_for(helper, tar.errors, err))
            return false;
    }
    bool changed = false;
    if (!tar_end(&tar, &changed, err))
        return error_prefix(err, "unpacking (what came out before stays)");
    if (!helper->has_commit && !wait_for(helper, -1, err))
        return false;
    /* tar takes what ends between two files, or within a header, for an archive. */
    return gzip || helper->commit_size % TAR_BLOCK_BYTES == 0 ||
           error_set(err, ERROR_INVALID, "the archive was cut off (what came out before stays)");
}

bool files_unpack(struct helper *helper, struct error *err)
{
    if (!check_request(helper, err))
        return false;
    AUTO_FD int folder = open_made(helper, err);
    return folder >= 0 && unpack_into(helper, folder, err);
}
