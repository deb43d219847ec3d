/* files.c - one call: a helper is asked for, gets the request, and its packets are walked record by record. What comes
 * from the helper is hostile. */
#include "sandboxd/sandbox/files.h"

#include "sandboxd/sandbox/files_pool.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { PIPE_BYTES = 256 << 10, PACKETS_A_TURN = 16 }; /* so that one helper does not hold the loop */
static const uint64_t SHORT_NS = UINT64_C(30) * 1000000000;

/* Texts of a request, and so of our copy of it. */
#define TEXTS 9

struct files_call {
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    struct loop *loop;
    struct files_request request;
    char *texts[TEXTS]; /* the request's */
    int descriptor;     /* for the helper; -1: none, or sent */
    const struct files_events *events;
    void *cookie;
    struct files_loan *loan;  /* NULL once it was answered */
    struct loop_watch *watch; /* the helper's socket; NULL before that */
    struct loop_timer *limit; /* of a short operation */
    struct loop_timer *again; /* records wait in `packet` */
    bool paused, commits, committed;
    bool has_handed;  /* a descriptor to its caller */
    uint64_t records; /* told to its caller */
    uint64_t commit_size;
    char *packet; /* NULL, or FRONT_FILES_PACKET_MAX bytes */
    size_t at, size;
    int packet_descriptor; /* came with the packet; -1 */
    bool *freed;           /* set when it is freed inside one of its events */
};

static void ask(struct files_call *call, bool wants_new);
static void move_limit(struct files_call *call);
static void on_readable(void *cookie);

/* An operation that is answered soon, or not at all. */
static bool is_short(const struct files_request *request)
{
    switch (request->operation) {
    case FILES_OPEN:
        return (request->flags & FILES_LINES) == 0;
    case FILES_STAT:
    case FILES_MKDIR:
    case FILES_CHMOD:
    case FILES_EDIT:
        return true;
    case FILES_REMOVE:
        return (request->flags & FILES_RECURSIVE) == 0;
    case FILES_LIST:
    case FILES_GLOB:
    case FILES_GREP:
    case FILES_COPY:
    case FILES_MOVE: /* between file systems it is a copy */
    case FILES_WRITE:
    case FILES_PIECE:
    case FILES_WATCH:
    case FILES_PACK:
    case FILES_UNPACK:
    case FILES_COMMIT:
        break;
    }
    return false;
}

/* After its last word a helper may serve again, unless the operation was to last, or has had children, or leaves a heap
 * that a pattern made large, which would be the sandbox's memory while the helper waits. */
static bool leaves_helper(const struct files_request *request)
{
    return request->operation != FILES_WATCH && request->operation != FILES_PACK &&
           request->operation != FILES_UNPACK && request->operation != FILES_GREP;
}

/* ---- the end ---- */

/* Frees it, and gives the helper back: its socket when it may serve again, else it ends. */
static void call_free(struct files_call *call, bool is_reusable)
{
    if (call->freed)
        *call->freed = true;
    if (call->loan) {
        call->loan->call = NULL;
        files_loan_release(call->loan);
    }
    if (call->watch) {
        int socket = is_reusable ? fcntl(loop_watch_fd(call->watch), F_DUPFD_CLOEXEC, 0) : -1;
        if (socket < 0)
            fd_empty(loop_watch_fd(call->watch));
        loop_watch_free(call->watch);
        files_pool_return(call->all, call->sandbox_id, socket, call->has_handed);
    }
    registry_detach(sandboxes_registry(call->all), call->sandbox_id, clock_wall_ms());
    loop_timer_cancel(call->limit);
    loop_timer_cancel(call->again);
    if (call->descriptor >= 0)
        close(call->descriptor);
    fd_drop(call->packet_descriptor);
    for (size_t i = 0; i < TEXTS; i++)
        free(call->texts[i]);
    free(call->packet);
    free(call);
}

void files_cancel(struct files_call *call)
{
    if (call)
        call_free(call, false);
}

static void finish(struct files_call *call, bool is_reusable, const struct files_record *done, const struct error *err)
{
    const struct files_events *events = call->events;
    void *cookie = call->cookie;
    struct files_record last = done ? *done : (struct files_record){0};
    struct error why = err ? *err : (struct error){0};
    call_free(call, is_reusable);
    events->over(cookie, done ? &last : NULL, err ? &why : NULL);
}

static void fail(struct files_call *call, const struct error *err)
{
    finish(call, false, NULL, err);
}

/* The helper is gone without a word: with its sandbox, or killed by what runs in there. */
static void fail_lost(struct files_call *call)
{
    struct error err = {0};
    AUTO_REGISTRY_VIEW view = {0};
    if (registry_find(sandboxes_registry(call->all), call->sandbox_id, &view) && view.state == REGISTRY_LIVE)
        error_set(&err, ERROR_NO_CAPACITY,
                  "the file helper in the sandbox ended (killed, or out of memory); try again");
    else
        sandboxes_why_gone(call->all, call->sandbox_id, &err);
    fail(call, &err);
}

static void fail_broken(struct files_call *call, const char *what)
{
    struct error err = {0};
    error_set(&err, ERROR_INTERNAL, "the file helper in the sandbox broke the rules: %.120s", what);
    log_warn("sandbox", "%s sandbox=%s", err.message, call->sandbox_id);
    fail(call, &err);
}

static void on_limit(void *cookie)
{
    struct files_call *call = cookie;
    call->limit = NULL;
    struct error err = {0};
    AUTO_REGISTRY_VIEW view = {0};
    if (registry_find(sandboxes_registry(call->all), call->sandbox_id, &view) && view.paused) {
        move_limit(call); /* it answers when it runs again */
        return;
    }
    error_set(&err, ERROR_TIMEOUT, "the file helper in the sandbox has not answered for 30 s");
    fail(call, &err);
}

/* A sign of life of the helper, or none can be expected: the limit of a short operation begins anew. */
static void move_limit(struct files_call *call)
{
    if (!is_short(&call->request))
        return;
    loop_timer_cancel(TAKE(call->limit));
    if (!call->paused)
        call->limit = loop_timer_start(call->loop, clock_boot_ns() + SHORT_NS, on_limit, call);
}

/* ---- what the helper says ---- */

/* Also puts down the version as it is seen here: what is sent is cut from this file, not from what is told of it. */
static bool check_descriptor(int descriptor, struct files_record *record, struct error *err)
{
    struct stat seen;
    if (!front_files_descriptor_check(descriptor, err))
        return false;
    if (fstat(descriptor, &seen) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "fstat");
    record->version = (struct files_version){
        .inode = seen.st_ino,
        .size = (uint64_t)seen.st_size,
        .mtime_ns = (int64_t)seen.st_mtim.tv_sec * 1000000000 + seen.st_mtim.tv_nsec,
        .ctime_ns = (int64_t)seen.st_ctim.tv_sec * 1000000000 + seen.st_ctim.tv_nsec,
    };
    return true;
}

/* What a helper may say went wrong; a token's end, for one, is not its affair. */
static bool is_helpers_error(enum error_kind kind)
{
    static const enum error_kind KINDS[] = {ERROR_INVALID,      ERROR_FORBIDDEN,   ERROR_NOT_FOUND, ERROR_CONFLICT,
                                            ERROR_PRECONDITION, ERROR_TOO_LARGE,   ERROR_RANGE,     ERROR_RATE_LIMITED,
                                            ERROR_QUOTA,        ERROR_NO_CAPACITY, ERROR_TIMEOUT,   ERROR_DISK_FULL};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (KINDS[i] == kind)
            return true;
    return false;
}

static void tell_error(struct files_call *call, const struct files_record *record)
{
    struct error err = record->error;
    if (!is_helpers_error(err.kind))
        err.kind = ERROR_INTERNAL;
    err.message[sizeof err.message - 1] = 0;
    for (char *at = err.message; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    finish(call, leaves_helper(&call->request) && call->at == call->size, NULL, &err);
}

/* False when the call is over. */
static bool take_record(struct files_call *call, struct files_record *record)
{
    int descriptor = -1;
    if (record->kind == FILES_DONE && !front_files_is_complete(call->request.operation, call->records)) {
        fail_broken(call, "it is done, and told nothing");
        return false;
    }
    if (record->kind == FILES_DONE) {
        finish(call, leaves_helper(&call->request) && call->at == call->size, record, NULL);
        return false;
    }
    if (record->kind == FILES_ERROR) {
        tell_error(call, record);
        return false;
    }
    /* Else one that lies could keep the loop busy for ever with what nobody is told. */
    if (!front_files_is_awaited(call->request.operation, record->kind, call->records++)) {
        fail_broken(call, "a record that nobody awaits");
        return false;
    }
    if (record->kind == FILES_ENTRY && call->request.operation == FILES_OPEN)
        descriptor = TAKE_FD(call->packet_descriptor);
    struct error err = {0};
    if (descriptor >= 0 && !check_descriptor(descriptor, record, &err)) {
        fd_drop(descriptor);
        fail_broken(call, err.message);
        return false;
    }
    call->has_handed = call->has_handed || descriptor >= 0;
    bool freed = false;
    call->freed = &freed;
    call->events->record(call->cookie, record, descriptor);
    if (!freed)
        call->freed = NULL;
    return !freed;
}

/* False when the call is over, or paused. */
static bool walk(struct files_call *call)
{
    while (!call->paused && call->at < call->size) {
        struct files_record record;
        struct error err = {0};
        int got = front_files_packet_next(call->packet, call->size, &call->at, &record, &err);
        if (got < 0) {
            fail_broken(call, err.message);
            return false;
        }
        if (got == 0)
            call->at = call->size;
        else if (!take_record(call, &record))
            return false;
    }
    return !call->paused;
}

static void take_packet_descriptor(struct files_call *call, const int *fds, size_t count)
{
    fd_drop(TAKE_FD(call->packet_descriptor));
    if (count > 0) {
        call->packet_descriptor = fds[0];
        fd_drop_all(fds + 1, count - 1);
    }
}

/* False when there is nothing more now, or the call is over. */
static bool receive(struct files_call *call)
{
    int fds[FD_MESSAGE_FDS];
    size_t count = 0;
    struct error err = {0};
    if (!call->packet)
        call->packet = memory_new(FRONT_FILES_PACKET_MAX);
    ssize_t got =
        fd_receive_message(loop_watch_fd(call->watch), call->packet, FRONT_FILES_PACKET_MAX, fds, &count, &err);
    if (got < 0 && (err.system_errno == EAGAIN || err.system_errno == EINTR))
        return false;
    if (got < 0 && err.kind == ERROR_INVALID) {
        fail_broken(call, err.message);
        return false;
    }
    if (got <= 0) {
        fail_lost(call);
        return false;
    }
    take_packet_descriptor(call, fds, count);
    call->at = 0;
    call->size = (size_t)got;
    move_limit(call);
    return walk(call);
}

static void on_readable(void *cookie)
{
    for (int i = 0; i < PACKETS_A_TURN; i++)
        if (!receive(cookie))
            return;
}

/* ---- pausing ---- */

static void on_again(void *cookie)
{
    struct files_call *call = cookie;
    call->again = NULL;
    if (walk(call))
        loop_watch_readable(call->watch, on_readable, call);
}

void files_pause(struct files_call *call, bool is_paused)
{
    if (call->paused == is_paused)
        return;
    call->paused = is_paused;
    if (!call->watch)
        return;
    move_limit(call);
    if (is_paused) {
        loop_watch_readable(call->watch, NULL, NULL);
        loop_timer_cancel(TAKE(call->again));
    } else if (call->at < call->size) { /* not in here: the caller may be inside an event of its own */
        call->again = loop_timer_start(call->loop, clock_boot_ns(), on_again, call);
    } else {
        loop_watch_readable(call->watch, on_readable, call);
    }
}

/* ---- what the helper is told ---- */

static bool send_commit(struct files_call *call, struct error *err)
{
    struct files_request commit = {.operation = FILES_COMMIT,
                                   .size = call->commit_size,
                                   .root = "",
                                   .path = "",
                                   .to_root = "",
                                   .to_path = "",
                                   .pattern = "",
                                   .glob = "",
                                   .upload = ""};
    call->committed = true;
    return front_files_request_send(loop_watch_fd(call->watch), &commit, -1, err);
}

void files_commit(struct files_call *call, uint64_t size)
{
    struct error err = {0};
    call->commits = true;
    call->commit_size = size;
    /* One that cannot be told has ended, which its socket tells: with its own last word first, if it had one. */
    if (call->watch && !call->committed && !send_commit(call, &err) && err.system_errno == EAGAIN)
        (void)shutdown(loop_watch_fd(call->watch), SHUT_RDWR);
}

static void begin(struct files_call *call, int socket, bool is_new)
{
    struct error err = {0};
    call->watch = loop_watch_new(call->loop, socket);
    bool sent = front_files_request_send(socket, &call->request, call->descriptor, &err);
    if (!sent && !is_new && err.kind != ERROR_INVALID) { /* it ended meanwhile: nothing was done */
        fd_empty(socket);
        loop_watch_free(TAKE(call->watch));
        files_pool_return(call->all, call->sandbox_id, -1, false);
        ask(call, true);
        return;
    }
    if (!sent && err.kind != ERROR_INVALID) {
        fail_lost(call);
        return;
    }
    if (!sent) {
        fail(call, &err);
        return;
    }
    if (call->descriptor >= 0)
        close(TAKE_FD(call->descriptor));
    move_limit(call);
    if (!call->paused)
        loop_watch_readable(call->watch, on_readable, call);
    if (call->commits)
        files_commit(call, call->commit_size);
}

/* ---- asking for a helper ---- */

static void on_lent(void *cookie, const struct verb_answer *answer)
{
    struct files_loan *loan = cookie;
    struct files_call *call = loan->call;
    bool is_lent = answer->error.kind == ERROR_NONE;
    int socket = TAKE_FD(loan->socket);
    if (call) {
        call->loan = NULL;
        files_loan_release(loan); /* the call's */
    }
    if (call && is_lent)
        begin(call, socket, loan->is_new);
    else if (call)
        fail(call, &answer->error);
    else if (is_lent)
        files_pool_return(loan->all, loan->sandbox_id, socket, false);
    files_loan_release(loan);
}

/* The loops end, and the verb is not answered. */
static void on_dropped(void *cookie)
{
    files_loan_release(cookie);
}

static void ask(struct files_call *call, bool wants_new)
{
    struct files_loan *loan = memory_new(sizeof *loan);
    loan->holders = 2;
    loan->all = call->all;
    loan->call = call;
    loan->wants_new = wants_new;
    loan->socket = -1;
    memcpy(loan->sandbox_id, call->sandbox_id, sizeof loan->sandbox_id);
    call->loan = loan;
    struct verb *verb = verb_new(call->all, call->sandbox_id);
    verb->work = files_pool_lend;
    verb->done = on_lent;
    verb->dropped = on_dropped;
    verb->cookie = loan;
    verb_send(verb);
}

static void copy_texts(struct files_call *call, const struct files_request *request)
{
    const char *const from[TEXTS] = {request->root,    request->path,    request->to_root,
                                     request->to_path, request->pattern, request->glob,
                                     request->upload,  request->owner,   request->group};
    const char **const to[TEXTS] = {&call->request.root,    &call->request.path,    &call->request.to_root,
                                    &call->request.to_path, &call->request.pattern, &call->request.glob,
                                    &call->request.upload,  &call->request.owner,   &call->request.group};
    for (size_t i = 0; i < TEXTS; i++)
        *to[i] = call->texts[i] = memory_string(from[i] ? from[i] : "");
}

struct files_call *files_start(struct sandboxes *all, const char *sandbox_id, const struct files_request *request,
                               int descriptor, const struct files_events *events, void *cookie)
{
    struct files_call *call = memory_new(sizeof *call);
    call->all = all;
    call->loop = loop_current();
    call->request = *request;
    copy_texts(call, request);
    call->descriptor = descriptor;
    call->packet_descriptor = -1;
    call->events = events;
    call->cookie = cookie;
    if (!text_copy(call->sandbox_id, sizeof call->sandbox_id, sandbox_id))
        call->sandbox_id[0] = 0; /* no sandbox has that name */
    registry_attach(sandboxes_registry(all), call->sandbox_id);
    ask(call, false);
    return call;
}

bool files_pipe(int ends[2], int ours, struct error *err)
{
    int made[2];
    if (pipe2(made, O_CLOEXEC) != 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "make a pipe");
    if (!fd_set_nonblocking(made[ours], err)) {
        close(made[0]);
        close(made[1]);
        return false;
    }
    (void)fcntl(made[0], F_SETPIPE_SZ, PIPE_BYTES); /* fewer turns; refused beyond what one user may have (pipe(7)) */
    ends[0] = made[0];
    ends[1] = made[1];
    return true;
}
