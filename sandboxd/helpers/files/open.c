/* open.c - OPEN: a descriptor for the front; or the bytes, where reading could make it wait. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/lines.h"

#include <errno.h>
#include <fcntl.h>

enum {
    DATA_BYTES = 32768,
    READ_MAX = 16 << 20 /* a file of /proc may have no end */
};

static bool send_data(struct helper *helper, int fd, struct error *err)
{
    char bytes[DATA_BYTES];
    for (;;) {
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(err, "read");
        if (got == 0)
            return true;
        const struct files_record data = {.kind = FILES_DATA, .text = {.data = bytes, .size = (size_t)got}};
        helper->count += (uint64_t)got;
        if (helper->count > READ_MAX)
            return error_set(err, ERROR_TOO_LARGE, "more than %d bytes", READ_MAX);
        if (!helper_record(helper, &data, err))
            return false;
    }
}

bool files_open(struct helper *helper, struct error *err)
{
    const struct files_request *request = helper->request;
    struct error ignored;
    struct stat status;
    AUTO_FD int fd = resolve_regular(helper, request->root, request->path, O_RDONLY, &status, err);
    if (fd < 0 || !helper_entry(helper, &status, fd, "", "", 0, err))
        return false;
    if (request->flags & FILES_LINES)
        return helper_end_with_front(helper, err) && lines_send(helper, fd, err);
    if (front_files_descriptor_check(fd, &ignored))
        return helper_flush_with(helper, fd, err);
    return send_data(helper, fd, err);
}
