/* pour.c - bytes out of the front's pipe into a file, by splice(2) where it can be. */
#include "sandboxd/helpers/files/put.h"

#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

enum { PIECE_BYTES = 65536 };

static const size_t SPLICE_BYTES = 1 << 20;

/* What a pipe gave: more than 0 bytes, 0 the end, -1 nothing now, or an error (*failed). */
static ssize_t settle(ssize_t got, bool *failed, struct error *err)
{
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
        *failed = true;
        fail_errno(err, "writing the file");
    }
    return got;
}

static ssize_t copy_some(const struct pour *pour, size_t size, bool is_dropped, bool *failed, struct error *err)
{
    char bytes[PIECE_BYTES];
    ssize_t got = read(pour->pipe, bytes, size < sizeof bytes ? size : sizeof bytes);
    if (got <= 0 || is_dropped)
        return settle(got, failed, err);
    /* One write at a time: errno tells a full disk from a file that is too large. */
    for (ssize_t done = 0; done < got;) {
        ssize_t written = write(pour->file, bytes + done, (size_t)(got - done));
        if (written < 0 && errno != EINTR)
            return settle(-1, failed, err);
        done += written > 0 ? written : 0;
    }
    return got;
}

static ssize_t move_some(const struct pour *pour, bool *failed, struct error *err)
{
    if (pour->poured < pour->skip) {
        uint64_t left = pour->skip - pour->poured;
        return copy_some(pour, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, true, failed, err);
    }
    if (pour->poured == pour->max) {
        ssize_t more = copy_some(pour, 1, true, failed, err);
        if (more > 0)
            *failed = !error_set(err, ERROR_INVALID, "more bytes came than were announced");
        return more;
    }
    uint64_t room = pour->max - pour->poured;
    size_t size = room < SPLICE_BYTES ? (size_t)room : SPLICE_BYTES;
    ssize_t got = splice(pour->pipe, NULL, pour->file, NULL, size, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (got < 0 && errno == EINVAL)
        return copy_some(pour, size, false, failed, err); /* a file system without it */
    return settle(got, failed, err);
}

/* Waits for the pipe (unless it ended) or the front. False: the front is gone or wrong. */
static bool wait_for(struct helper *helper, const struct pour *pour, bool has_ended, bool *is_readable,
                     struct error *err)
{
    struct pollfd both[] = {{.fd = has_ended ? -1 : pour->pipe, .events = POLLIN},
                            {.fd = helper->socket, .events = POLLIN | POLLRDHUP}};
    if (poll(both, 2, -1) < 0)
        return errno == EINTR || fail_errno(err, "poll");
    if (both[1].revents != 0 && helper_take_commit(helper, err) < 0)
        return false;
    *is_readable = both[0].revents != 0;
    return true;
}

bool pour_all(struct helper *helper, struct pour *pour, struct error *err)
{
    bool has_ended = false, failed = false;
    while (!has_ended || !helper->has_commit) {
        bool is_readable = false;
        if (!wait_for(helper, pour, has_ended, &is_readable, err))
            return false;
        if (!is_readable)
            continue;
        ssize_t got = move_some(pour, &failed, err);
        if (failed)
            return false;
        has_ended = got == 0;
        pour->poured += got > 0 ? (uint64_t)got : 0;
    }
    return pour->poured == helper->commit_size ||
           error_set(err, ERROR_INVALID, "%llu bytes came, %llu were announced", (unsigned long long)pour->poured,
                     (unsigned long long)helper->commit_size);
}
