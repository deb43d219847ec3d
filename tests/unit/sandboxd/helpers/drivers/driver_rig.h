/** driver_rig.h - a driver over pipes, as init would start it (descriptor 3 is its program; a zygote's orders are at
 * 4), and what it says of a run as one line of text: o[stdout] e[stderr] d[mime ...] u[mime ...: an update]
 * r[text/plain of the result] x[name: value] c[clear] =status */
#pragma once

#include "sandboxd/front_init/front_init.h"
#include "sandboxd/helpers/drivers/drivers.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { RIG_DEADLINE_MS = 60000, RIG_SUMMARY_BYTES = 1 << 16, RIG_END_BYTES = 4096 };

struct rig {
    pid_t pid;
    int in, out, err;
    char *data;
    size_t size, room;
    bool is_ended, has_exit_code; /* of the last run */
    int exit_code;
    char summary[RIG_SUMMARY_BYTES];
    json_t *last; /* the last frame of the kind that rig_keep names */
    const char *keep;
    json_t *ready;
    char last_kind; /* in the summary */
    json_t *with;   /* more members of each request; NULL: none */
};

/* --- a zygote, and the init that it has --- */

struct rig_zygote {
    pid_t pid;
    int orders;
};

static inline void rig_place(int fd, int number)
{
    if (fd == number ? fcntl(fd, F_SETFD, 0) < 0 : dup2(fd, number) < 0)
        _exit(125);
}

/* Descriptors 0.. of the child; then all others are closed. */
static inline _Noreturn void rig_become(const char *const *arguments, char *const *environment, const int *fds,
                                        int count)
{
    int high[8];
    for (int i = 0; i < count; i++)
        high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 100);
    for (int i = 0; i < count; i++)
        rig_place(high[i], i);
    setsid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvpe(arguments[0], (char *const *)(uintptr_t)arguments, environment);
    _exit(126);
}

static inline int rig_program(const char *language)
{
    struct error err = {0};
    int fd = driver_program(language, &err);
    CHECK_TEXT(err.message, "");
    return fd;
}

extern char **environ;

static inline struct rig_zygote rig_zygote_start(const struct driver_start *start, char *const *environment)
{
    int ends[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    struct rig_zygote zygote = {.pid = fork(), .orders = ends[0]};
    if (zygote.pid == 0)
        rig_become(start->zygote_arguments, environment ? environment : environ,
                   (int[]){null, null, 2, rig_program("python"), ends[1]}, 5);
    close(ends[1]);
    close(null);
    char ready[512];
    CHECK(recv(zygote.orders, ready, sizeof ready, 0) == 1 && ready[0] == 'R');
    return zygote;
}

static inline void rig_zygote_end(struct rig_zygote *zygote)
{
    int status;
    close(zygote->orders);
    CHECK(waitpid(zygote->pid, &status, 0) == zygote->pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What it says as a hello: 0 or an errno; its pid is what the kernel says it is. */
static inline int rig_hello(int hello, pid_t *pid)
{
    int number = -1;
    char control[CMSG_SPACE(sizeof(struct ucred))];
    struct msghdr message = {.msg_iov = &(struct iovec){&number, sizeof number},
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    CHECK(poll(&(struct pollfd){.fd = hello, .events = POLLIN}, 1, RIG_DEADLINE_MS) == 1);
    CHECK(recvmsg(hello, &message, 0) == sizeof number);
    struct ucred who = {0};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_CREDENTIALS)
        memcpy(&who, CMSG_DATA(header), sizeof who);
    *pid = who.pid;
    return number;
}

/* Its parent has to be the one who would be init: this process, as it is a subreaper. */
static inline void rig_check_orphan(pid_t pid)
{
    char path[64], text[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC), parent = 0;
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    const char *after = strrchr(text, ')');
    CHECK(after != NULL && sscanf(after, ") %*c %d", &parent) == 1);
    CHECK(parent == getpid());
}

/* The errno of the hello; rig has the child. */
static inline int rig_order(struct rig *rig, const struct rig_zygote *zygote, const struct front_init_command *command)
{
    struct error err = {0};
    int in[2], out[2], wrong[2], hello[2], one = 1;
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(wrong, O_CLOEXEC) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, hello) == 0);
    CHECK(setsockopt(hello[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one) == 0);
    int sealed = front_init_command_seal(command, &err);
    CHECK(sealed >= 0);
    const int fds[] = {sealed, in[0], out[1], wrong[1], hello[1]};
    CHECK(fd_send_message(zygote->orders, "S", 1, fds, 5, &err));
    for (int i = 0; i < 5; i++)
        close(fds[i]);
    *rig = (struct rig){.in = in[1], .out = out[0], .err = wrong[0]};
    int number = rig_hello(hello[0], &rig->pid);
    if (number == 0) {
        rig_check_orphan(rig->pid);
        CHECK(send(hello[0], "G", 1, 0) == 1);
    }
    close(hello[0]);
    return number;
}

/* --- a driver by itself --- */

/* `more`: another argument; NULL: none. */
static inline void rig_start_as(struct rig *rig, const char *language, const char *more, char *const *environment)
{
    struct driver_start start;
    struct error err = {0};
    int in[2], out[2];
    CHECK(driver_context(language, &start, &err));
    size_t count = 0;
    while (start.arguments[count])
        count++;
    start.arguments[count] = more;
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    *rig = (struct rig){.pid = fork(), .in = in[1], .out = out[0], .err = -1};
    if (rig->pid == 0)
        rig_become(start.arguments, environment ? environment : environ,
                   (int[]){in[0], out[1], 2, rig_program(language)}, 4);
    close(in[0]);
    close(out[1]);
}

static inline void rig_start(struct rig *rig, const char *language, char *const *environment)
{
    rig_start_as(rig, language, NULL, environment);
}

/* --- frames --- */

/* The next line without its end; NULL: there will be none. The caller frees. */
static inline char *rig_line(struct rig *rig)
{
    for (;;) {
        char *end = rig->size ? memchr(rig->data, '\n', rig->size) : NULL;
        if (end) {
            size_t length = (size_t)(end - rig->data);
            char *line = memory_copy(rig->data, length);
            rig->size -= length + 1;
            memmove(rig->data, end + 1, rig->size);
            return line;
        }
        if (rig->room - rig->size < 65536)
            rig->data = memory_resize(rig->data, rig->room += 1 << 20);
        if (poll(&(struct pollfd){.fd = rig->out, .events = POLLIN}, 1, RIG_DEADLINE_MS) != 1)
            return NULL;
        ssize_t got = read(rig->out, rig->data + rig->size, rig->room - rig->size);
        if (got <= 0)
            return NULL;
        rig->size += (size_t)got;
    }
}

static inline json_t *rig_frame(struct rig *rig)
{
    char *line = rig_line(rig);
    rig->is_ended = line == NULL;
    if (line == NULL)
        return NULL;
    CHECK(strlen(line) < DRIVER_FRAME_MAX);
    json_error_t error;
    json_t *frame = json_loads(line, JSON_ALLOW_NUL, &error);
    if (frame == NULL)
        (void)fprintf(stderr, "no JSON (%s): %.200s\n", error.text, line);
    CHECK(json_object_size(frame) == 1);
    free(line);
    return frame;
}

static inline void rig_add(struct rig *rig, const char *text, size_t size)
{
    size_t length = strlen(rig->summary);
    size_t room = sizeof rig->summary - 1 - length;
    for (size_t i = 0; i < (size < room ? size : room); i++)
        rig->summary[length + i] = text[i] ? text[i] : '0';
}

static inline void rig_add_text(struct rig *rig, char kind, json_t *text)
{
    char head[3] = {kind, '[', 0};
    size_t length = strlen(rig->summary);
    bool is_more =
        length > 0 && rig->last_kind == kind && rig->summary[length - 1] == ']' && (kind == 'o' || kind == 'e');
    if (is_more)
        rig->summary[length - 1] = 0;
    else
        rig_add(rig, head, 2);
    rig->last_kind = kind;
    /* What runs on until it is interrupted may say much: its end must find room. */
    length = strlen(rig->summary);
    size_t room = length < RIG_SUMMARY_BYTES - RIG_END_BYTES ? RIG_SUMMARY_BYTES - RIG_END_BYTES - length : 0;
    size_t size = json_string_length(text);
    rig_add(rig, json_string_value(text), size < room ? size : room);
    rig_add(rig, "]", 1);
}

static inline void rig_add_mimes(struct rig *rig, const char *head, json_t *data)
{
    const char *mime;
    json_t *value;
    rig->last_kind = head[0];
    rig_add(rig, head, 2);
    json_object_foreach (data, mime, value) {
        rig_add(rig, mime, strlen(mime));
        rig_add(rig, " ", 1);
    }
    rig_add(rig, "]", 1);
}

static inline void rig_add_frame(struct rig *rig, const char *kind, json_t *body)
{
    json_t *data = json_object_get(body, "data");
    if (strcmp(kind, "stdout") == 0 || strcmp(kind, "stderr") == 0) {
        rig_add_text(rig, kind[3] == 'o' ? 'o' : 'e', json_object_get(body, "text"));
    } else if (strcmp(kind, "display") == 0) {
        rig_add_mimes(rig, json_is_true(json_object_get(body, "update")) ? "u[" : "d[", data);
    } else if (strcmp(kind, "result") == 0) {
        rig_add_text(rig, 'r', json_object_get(data, "text/plain"));
    } else if (strcmp(kind, "error") == 0) {
        char text[2048];
        (void)snprintf(text, sizeof text, "x[%s: %.1900s]", json_string_value(json_object_get(body, "name")),
                       json_string_value(json_object_get(body, "value")));
        CHECK(json_is_array(json_object_get(body, "traceback")));
        rig_add(rig, text, strlen(text));
    } else if (strcmp(kind, "clear") == 0) {
        rig_add(rig, "c", 1);
    } else if (strcmp(kind, "done") == 0) {
        const char *status = json_string_value(json_object_get(body, "status"));
        rig_add(rig, "=", 1);
        rig_add(rig, status, strlen(status));
        rig->exit_code = (int)json_integer_value(json_object_get(body, "exit_code"));
        rig->has_exit_code = json_object_get(body, "exit_code") != NULL;
    }
}

/* Takes one frame into the summary; false: it was the last of the run, or there is none. */
static inline bool rig_take(struct rig *rig)
{
    json_t *frame = rig_frame(rig), *body;
    const char *kind = "";
    bool is_last = frame == NULL;
    json_object_foreach (frame, kind, body) {
        rig_add_frame(rig, kind, body);
        is_last = strcmp(kind, "done") == 0;
        if (rig->keep && strcmp(kind, rig->keep) == 0) {
            json_decref(rig->last);
            rig->last = json_incref(body);
        }
    }
    json_decref(frame);
    return !is_last;
}

static inline void rig_send(struct rig *rig, const char *code)
{
    struct error err = {0};
    if (getenv("RIG_TRACE"))
        (void)fprintf(stderr, "run: %.200s\n", code);
    json_t *request = json_pack("{s:{s:s,s:s}}", "run", "id", "run_\"1\"", "code", code);
    json_object_update(json_object_get(request, "run"), rig->with);
    char *line = json_dumps(request, JSON_COMPACT);
    memset(rig->summary, 0, sizeof rig->summary);
    CHECK(fd_write_all(rig->in, line, strlen(line), &err) && fd_write_all(rig->in, "\n", 1, &err));
    free(line);
    json_decref(request);
    bool is_started = false;
    json_t *frame;
    while (!is_started && (frame = rig_frame(rig)) != NULL) { /* what came between the runs is passed over */
        is_started = json_object_get(frame, "started") != NULL;
        json_decref(frame);
    }
}

static inline const char *rig_run(struct rig *rig, const char *code)
{
    rig_send(rig, code);
    while (rig_take(rig))
        ;
    return rig->summary;
}

/* SIGINT to the group once the code has said "go". */
static inline const char *rig_interrupt(struct rig *rig, const char *code)
{
    rig_send(rig, code);
    while (strstr(rig->summary, "go") == NULL && rig_take(rig))
        ;
    if (strstr(rig->summary, "go") == NULL)
        (void)fprintf(stderr, "no go of \"%s\" in \"%s\"\n", code, rig->summary);
    CHECK(strstr(rig->summary, "go") != NULL);
    CHECK(kill(-rig->pid, SIGINT) == 0);
    while (rig_take(rig))
        ;
    return rig->summary;
}

static inline void rig_ready(struct rig *rig, const char *language)
{
    json_t *frame = rig_frame(rig);
    rig->ready = json_incref(json_object_get(frame, "ready"));
    json_decref(frame);
    CHECK_TEXT(json_string_value(json_object_get(rig->ready, "language")), language);
    if (rig->ready == NULL)
        exit(check_done()); /* nothing else can hold */
    CHECK(json_string_value(json_object_get(rig->ready, "version")) != NULL);
}

static inline bool rig_implements(const struct rig *rig, const char *prefix)
{
    const char *is = json_string_value(json_object_get(rig->ready, "implementation"));
    return is && strncmp(is, prefix, strlen(prefix)) == 0;
}

/* No more requests: what is left of the output is passed over; the exit status. */
static inline int rig_end(struct rig *rig)
{
    int status = -1;
    close(rig->in);
    json_t *frame;
    while ((frame = rig_frame(rig)) != NULL)
        json_decref(frame);
    CHECK(waitpid(rig->pid, &status, 0) == rig->pid);
    close(rig->out);
    if (rig->err >= 0)
        close(rig->err);
    free(rig->data);
    json_decref(rig->last);
    json_decref(rig->ready);
    json_decref(rig->with);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* --- tables --- */

struct rig_cell {
    const char *code, *want; /* "~a|b": a and b are parts of it, in this order */
};

static inline bool rig_matches(const char *got, const char *want)
{
    if (want[0] != '~')
        return strcmp(got, want) == 0;
    char part[1024];
    for (const char *at = want + 1; *at;) {
        size_t length = strcspn(at, "|");
        memcpy(part, at, length);
        part[length] = 0;
        got = strstr(got, part);
        if (got == NULL)
            return false;
        got += length;
        at += length + (at[length] == '|');
    }
    return true;
}

#define RIG_CELLS(rig, cells)                                                                                          \
    do {                                                                                                               \
        for (size_t i_ = 0; i_ < sizeof(cells) / sizeof(cells)[0]; i_++) {                                             \
            const char *got_ = rig_run((rig), (cells)[i_].code);                                                       \
            if (!rig_matches(got_, (cells)[i_].want)) {                                                                \
                (void)fprintf(stderr, "%s: %s\n got  %.1000s\n want %s\n", __FILE__, (cells)[i_].code, got_,           \
                              (cells)[i_].want);                                                                       \
                check_failures++;                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
