/* helper.c - the helper's main loop and its answers. */
#include "sandboxd/helpers/files/helper.h"

#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/names.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#define GONE_EVENTS (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)

typedef bool operation_function(struct helper *helper, struct error *err);

static operation_function *const OPERATIONS[] = {
    [FILES_STAT] = files_stat,     [FILES_OPEN] = files_open,   [FILES_LIST] = files_list,
    [FILES_GLOB] = files_glob,     [FILES_GREP] = files_grep,   [FILES_MKDIR] = files_mkdir,
    [FILES_REMOVE] = files_remove, [FILES_MOVE] = files_move,   [FILES_COPY] = files_copy,
    [FILES_CHMOD] = files_chmod,   [FILES_EDIT] = files_edit,   [FILES_WRITE] = files_write,
    [FILES_PIECE] = files_piece,   [FILES_WATCH] = files_watch, [FILES_PACK] = files_pack,
    [FILES_UNPACK] = files_unpack,
};

static int watched_socket = -1; /* for the signal handler */
static unsigned holds;

static short events_of(int socket)
{
    struct pollfd one = {.fd = socket, .events = POLLIN | POLLRDHUP};
    if (poll(&one, 1, 0) != 1)
        return 0;
    return one.revents;
}

/* SIGIO also says that the socket has room again, or that a packet came: only its end is ours. */
static void on_socket(int number)
{
    int kept = errno;
    (void)number;
    if (events_of(watched_socket) & GONE_EVENTS)
        _exit(0);
    errno = kept;
}

bool helper_is_gone(const struct helper *helper)
{
    return (events_of(helper->socket) & GONE_EVENTS) != 0;
}

static bool fail_gone(struct error *err)
{
    return error_set(err, ERROR_GONE, "nobody waits for this any more");
}

bool helper_is_wanted(const struct helper *helper, struct error *err)
{
    return !helper_is_gone(helper) || fail_gone(err);
}

static bool set_async(const struct helper *helper, bool is_async)
{
    int flags = fcntl(helper->socket, F_GETFL);
    return flags >= 0 && fcntl(helper->socket, F_SETFL, is_async ? flags | O_ASYNC : flags & ~O_ASYNC) == 0;
}

bool helper_end_with_front(struct helper *helper, struct error *err)
{
    const struct sigaction action = {.sa_handler = on_socket, .sa_flags = SA_RESTART};
    watched_socket = helper->socket;
    if (sigaction(SIGIO, &action, NULL) < 0 || fcntl(helper->socket, F_SETOWN, getpid()) < 0 ||
        !set_async(helper, true))
        return error_set_errno(err, ERROR_INTERNAL, "watching the front");
    return helper_is_wanted(helper, err);
}

static void mask_end(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    sigprocmask(how, &set, NULL);
}

void helper_hold_end(void)
{
    if (holds++ == 0)
        mask_end(SIG_BLOCK);
}

void helper_release_end(void)
{
    if (--holds == 0)
        mask_end(SIG_UNBLOCK);
}

bool helper_flush_with(struct helper *helper, int descriptor, struct error *err)
{
    size_t size = helper->packet.size;
    helper->packet.size = 0;
    return size == 0 ||
           fd_send_message(helper->socket, helper->packet.data, size, &descriptor, descriptor >= 0 ? 1 : 0, err);
}

bool helper_flush(struct helper *helper, struct error *err)
{
    return helper_flush_with(helper, -1, err);
}

bool helper_record(struct helper *helper, const struct files_record *record, struct error *err)
{
    struct error ignored;
    if (!front_files_record_check(record, &ignored)) {
        helper->skipped++;
        return true;
    }
    if (front_files_packet_add(&helper->packet, record))
        return true;
    if (!helper_flush(helper, err))
        return false;
    if (!front_files_packet_add(&helper->packet, record))
        helper->skipped++;
    return true;
}

int helper_take_commit(struct helper *helper, struct error *err)
{
    struct files_request request;
    AUTO_FREE void *memory = NULL;
    AUTO_FD int descriptor = -1;
    short events = events_of(helper->socket);
    if ((events & (POLLIN | GONE_EVENTS)) == 0)
        return 0;
    int got = front_files_request_receive(helper->socket, &request, &memory, &descriptor, err);
    if (got == 1 && request.operation == FILES_COMMIT && !helper->has_commit) {
        helper->has_commit = true;
        helper->commit_size = request.size;
        return 1;
    }
    if (got == 1)
        error_set(err, ERROR_INVALID, "only a commit was awaited");
    else
        fail_gone(err);
    return -1;
}

/* An error's sentence goes into JSON: whatever got into it must be UTF-8. */
static void make_sentence(struct error *err)
{
    if (err->kind <= ERROR_NONE || err->kind >= ERROR_KINDS)
        error_set(err, ERROR_INTERNAL, "the operation failed without a reason");
    size_t length = strnlen(err->message, sizeof err->message - 1);
    err->message[length] = 0;
    for (size_t at = 0; at < length; at++) {
        at += text_utf8_prefix(err->message + at, length - at);
        if (at < length)
            err->message[at] = '?';
    }
}

static bool serve(struct helper *helper, const struct files_request *request)
{
    struct error err = {0}, ignored;
    struct files_record end = {.kind = FILES_DONE};
    helper->request = request;
    names_forget();
    helper->count = helper->skipped = helper->commit_size = 0;
    helper->is_truncated = helper->has_commit = false;
    if (OPERATIONS[request->operation](helper, &err)) {
        end.count = helper->count;
        end.skipped = helper->skipped;
        end.is_truncated = helper->is_truncated;
    } else {
        make_sentence(&err);
        end.kind = FILES_ERROR;
        end.error = err;
    }
    (void)set_async(helper, false);
    /* A half-done answer stays: what was sent is true; the error ends it. */
    return helper_record(helper, &end, &ignored) && helper_flush(helper, &ignored);
}

/* False at the end. */
static bool take_request(struct helper *helper)
{
    struct files_request request;
    struct error ignored;
    AUTO_FREE void *memory = NULL;
    helper->descriptor = -1;
    if (front_files_request_receive(helper->socket, &request, &memory, &helper->descriptor, &ignored) != 1)
        return false;
    /* The commit of an operation that failed meanwhile. */
    bool goes_on = request.operation == FILES_COMMIT || serve(helper, &request);
    if (helper->descriptor >= 0)
        close(TAKE_FD(helper->descriptor));
    return goes_on;
}

_Noreturn void files_helper_run(int socket, int root_fd)
{
    static struct helper helper;
    helper = (struct helper){.socket = socket, .root_fd = root_fd, .descriptor = -1};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    int flags = fcntl(socket, F_GETFL);
    sigaction(SIGXFSZ, &ignore, NULL); /* a limit is told as EFBIG */
    umask(022);
    if (flags < 0 || fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) < 0)
        _exit(1);
    while (take_request(&helper)) {
    }
    _exit(0);
}
