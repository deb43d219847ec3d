/** tree_rig.h - a file helper in a child, on a temporary folder that it takes for the sandbox's "/", asked as the front
 *  would ask. The child looks for leaks before it ends. */
#pragma once

#include "sandboxd/front_files/front_files.h"
#include "sandboxd/helpers/files/helper.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define RIG_USER 1000
#define RIG_LEAK 99

struct rig {
    char folder[64];
    int root; /* of the folder */
    pid_t pid;
    int socket;
};

#ifdef __SANITIZE_ADDRESS__
int __lsan_do_recoverable_leak_check(void);
/* The helper ends by _exit, before which nothing would look. Not in its signal handler, where malloc may be locked. */
void _exit(int status);
_Noreturn void _exit(int status)
{
    sigset_t blocked;
    (void)sigprocmask(SIG_BLOCK, NULL, &blocked);
    if (status == 0 && !sigismember(&blocked, SIGIO) && geteuid() == 0 && __lsan_do_recoverable_leak_check())
        status = RIG_LEAK;
    for (;;)
        (void)syscall(SYS_exit_group, status);
}
#endif

/** Starts a helper; as root it may become RIG_USER. */
static inline void rig_start(struct rig *rig, uid_t user)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    rig->pid = fork();
    if (rig->pid == 0) {
        close(ends[0]);
        if (user != 0 && (setgid(user) < 0 || setuid(user) < 0))
            _exit(1);
        files_helper_run(ends[1], rig->root);
    }
    close(ends[1]);
    rig->socket = ends[0];
    struct timeval limit = {.tv_sec = 60};
    (void)setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/** Closes the front's end; the helper must end within seconds, by itself and without a leak. */
static inline void rig_stop(struct rig *rig)
{
    close(rig->socket);
    int status = -1;
    for (int i = 0; i < 1000 && waitpid(rig->pid, &status, WNOHANG) == 0; i++)
        (void)poll(NULL, 0, 10);
    if (status == -1) {
        (void)kill(rig->pid, SIGKILL);
        (void)waitpid(rig->pid, NULL, 0);
    }
    CHECK(status == 0);
}

static inline void rig_open(struct rig *rig)
{
    /* As a rule tmpfs, which is what a sandbox's own files are in, too. */
    (void)snprintf(rig->folder, sizeof rig->folder, "%s/parley-files-XXXXXX",
                   access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
    (void)signal(SIGPIPE, SIG_IGN);
    CHECK(mkdtemp(rig->folder) != NULL);
    CHECK(chmod(rig->folder, 0755) == 0);
    rig->root = open(rig->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(rig->root >= 0);
    rig_start(rig, 0);
}

/** By rm: no path can name what is 2,000 levels down. */
static inline void rig_close(struct rig *rig)
{
    rig_stop(rig);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/rm", "rm", "-rf", "--", rig->folder, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    close(rig->root);
}

static inline void rig_folder(const struct rig *rig, const char *path)
{
    CHECK(mkdirat(rig->root, path, 0755) == 0);
}

static inline void rig_write(const struct rig *rig, const char *path, const void *data, size_t size)
{
    int fd = openat(rig->root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static inline void rig_file(const struct rig *rig, const char *path, const char *text)
{
    rig_write(rig, path, text, strlen(text));
}

/** `levels` folders named `name` in one another, and a file "end" in the last. */
static inline void rig_deep(const struct rig *rig, const char *name, int levels)
{
    int at = dup(rig->root);
    for (int i = 0; i < levels; i++) {
        CHECK(mkdirat(at, name, 0755) == 0);
        int next = openat(at, name, O_RDONLY | O_DIRECTORY);
        close(at);
        at = next;
    }
    int fd = openat(at, "end", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "the end\n", 8) == 8);
    close(fd);
    close(at);
}

/** A record that outlives its packet; texts are NUL-terminated. */
struct got {
    struct files_record record;
    char *path, *text; /* text: also from, target */
};

struct answer {
    struct got *all; /* without the end */
    size_t count;
    struct files_record end; /* kind 0: none came */
};

static inline char *rig_text(struct files_bytes bytes)
{
    return memory_copy(bytes.data, bytes.size);
}

static inline void rig_keep(struct answer *answer, const struct files_record *record)
{
    if (record->kind == FILES_DONE || record->kind == FILES_ERROR) {
        answer->end = *record;
        return;
    }
    if ((answer->count & (answer->count - 1)) == 0)
        answer->all = memory_resize(answer->all, (answer->count * 2 + 1) * sizeof answer->all[0]);
    struct files_bytes text = record->target.size ? record->target : record->from.size ? record->from : record->text;
    answer->all[answer->count++] =
        (struct got){.record = *record, .path = rig_text(record->path), .text = rig_text(text)};
}

/** One packet more; false at the end of the socket, its limit of time or `wait_ms` (-1: none). */
static inline bool rig_more(struct rig *rig, struct answer *answer, int wait_ms)
{
    static char packet[FRONT_FILES_PACKET_MAX];
    struct pollfd polled = {.fd = rig->socket, .events = POLLIN};
    if (wait_ms >= 0 && poll(&polled, 1, wait_ms) <= 0)
        return false;
    ssize_t size = recv(rig->socket, packet, sizeof packet, 0);
    if (size <= 0)
        return false;
    struct files_record record;
    struct error err = {0};
    size_t at = 0;
    int next;
    while ((next = front_files_packet_next(packet, (size_t)size, &at, &record, &err)) == 1)
        rig_keep(answer, &record);
    CHECK(next == 0);
    return next == 0;
}

static inline void rig_send(struct rig *rig, const struct files_request *request, int descriptor)
{
    struct error err = {0};
    bool is_sent = front_files_request_send(rig->socket, request, descriptor, &err);
    if (!is_sent)
        (void)fprintf(stderr, "sending: %s\n", err.message);
    CHECK(is_sent);
}

static inline struct answer rig_ask(struct rig *rig, const struct files_request *request)
{
    struct answer answer = {0};
    rig_send(rig, request, -1);
    while (answer.end.kind == 0 && rig_more(rig, &answer, -1))
        ;
    CHECK(answer.end.kind != 0);
    return answer;
}

static inline void answer_done(struct answer *answer)
{
    for (size_t i = 0; i < answer->count; i++) {
        free(answer->all[i].path);
        free(answer->all[i].text);
    }
    free(answer->all);
    *answer = (struct answer){0};
}

/** The paths, one after another with a blank between, for comparison. The caller frees. */
static inline char *answer_paths(const struct answer *answer)
{
    char *all = memory_string("");
    for (size_t i = 0; i < answer->count; i++) {
        char *longer = memory_printf("%s%s%s", all, i ? " " : "", answer->all[i].path);
        free(all);
        all = longer;
    }
    return all;
}

#define CHECK_PATHS(answer, want)                                                                                      \
    do {                                                                                                               \
        char *paths_ = answer_paths(answer);                                                                           \
        CHECK_TEXT(paths_, want);                                                                                      \
        free(paths_);                                                                                                  \
    } while (0)

/** Asks and takes the end alone. */
static inline struct files_record rig_end(struct rig *rig, const struct files_request *request)
{
    struct answer answer = rig_ask(rig, request);
    struct files_record end = answer.end;
    answer_done(&answer);
    return end;
}

/** Expects an error of that kind with those words in it. */
static inline void check_error(const struct files_record *end, enum error_kind kind, const char *words)
{
    CHECK(end->kind == FILES_ERROR && end->error.kind == kind);
    if (end->kind != FILES_ERROR || end->error.kind != kind || strstr(end->error.message, words) == NULL)
        (void)fprintf(stderr, "error %d: \"%s\", expected %d with \"%s\"\n", end->error.kind, end->error.message, kind,
                      words);
    CHECK(strstr(end->error.message, words) != NULL);
}
