/* tar.c - see tar.h. */
#include "sandboxd/helpers/files/tar.h"

#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 16
#define MESSAGE_BYTES 180 /* of what it said, in an error */
#define NOT_STARTED   127

static const char *const PLACES[] = {"/usr/bin/tar", "/bin/tar"};

static const char *find_tar(void)
{
    for (size_t i = 0; i < sizeof PLACES / sizeof PLACES[0]; i++) {
        if (access(PLACES[i], X_OK) == 0)
            return PLACES[i];
    }
    return NULL;
}

/* Waiting for data is tar's own business, so its pipe blocks. */
static void set_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_NONBLOCK))
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

/* In the child. Descriptors first go above those they are to become. */
static void take_descriptors(int folder, int pipe, int errors, enum tar_pipe direction)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int high[4] = {fcntl(folder, F_DUPFD_CLOEXEC, 10), fcntl(pipe, F_DUPFD_CLOEXEC, 10),
                   fcntl(errors, F_DUPFD_CLOEXEC, 10), fcntl(null, F_DUPFD_CLOEXEC, 10)};
    for (size_t i = 0; i < 4; i++) {
        if (high[i] < 0)
            _exit(NOT_STARTED);
    }
    bool is_placed = dup2(direction == TAR_READS ? high[1] : high[3], 0) == 0 &&
                     dup2(direction == TAR_WRITES ? high[1] : high[3], 1) == 1 && dup2(high[2], 2) == 2 &&
                     fchdir(high[0]) == 0 && syscall(SYS_close_range, 3U, (unsigned)INT_MAX, 0U) == 0;
    if (!is_placed)
        _exit(NOT_STARTED);
}

/* execve(2) takes texts that it might change, though it does not. */
static void copy_list(char *to[static ARGUMENTS_MAX + 2], char *text, size_t size, const char *const *list)
{
    size_t count = 0;
    for (; count <= ARGUMENTS_MAX && list[count]; count++) {
        if (!text_copy(text, size, list[count]))
            _exit(NOT_STARTED);
        to[count] = text;
        size -= strlen(text) + 1;
        text += strlen(text) + 1;
    }
    to[count] = NULL;
}

static _Noreturn void become_tar(const char *path, pid_t parent, const char *const *arguments)
{
    static const char *const ENVIRONMENT[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", NULL};
    const char *list[ARGUMENTS_MAX + 2] = {"tar"};
    char texts[2][1024], *argv[ARGUMENTS_MAX + 2], *envp[ARGUMENTS_MAX + 2];
    for (size_t i = 0; i < ARGUMENTS_MAX && arguments[i]; i++)
        list[i + 1] = arguments[i];
    copy_list(argv, texts[0], sizeof texts[0], list);
    copy_list(envp, texts[1], sizeof texts[1], ENVIRONMENT);
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGIO, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_DFL);
    (void)umask(022);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == parent)
        execve(path, argv, envp);
    _exit(NOT_STARTED);
}

bool tar_start(struct tar *tar, int folder, int pipe, enum tar_pipe direction, const char *const *arguments,
               struct error *err)
{
    *tar = (struct tar){.errors = -1};
    const char *path = find_tar();
    if (path == NULL)
        return error_set(err, ERROR_NOT_FOUND, "this template has no tar");
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "pipe");
    set_blocking(pipe);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        take_descriptors(folder, pipe, ends[1], direction);
        become_tar(path, parent, arguments);
    }
    close(ends[1]);
    if (pid < 0) {
        error_set_errno(err, ERROR_NO_CAPACITY, "fork");
        close(ends[0]);
        return false;
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    tar->pid = pid;
    tar->errors = ends[0];
    return true;
}

bool tar_listen(struct tar *tar)
{
    char part[TAR_ERRORS_BYTES];
    for (;;) {
        ssize_t got = read(tar->errors, part, sizeof part);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return true;
        if (got <= 0)
            return false;
        size_t size = (size_t)got, kept = sizeof tar->text - size;
        for (size_t i = 0; i < size; i++)
            tar->lines += part[i] == '\n';
        kept = kept < tar->size ? kept : tar->size;
        memmove(tar->text, tar->text + tar->size - kept, kept);
        memcpy(tar->text + kept, part, size);
        tar->size = kept + size;
    }
}

static const struct {
    const char *said;
    enum error_kind kind;
} KINDS[] = {
    {"No space left on device", ERROR_DISK_FULL},
    {"Disk quota exceeded", ERROR_DISK_FULL},
    {"Cannot exec", ERROR_NOT_FOUND}, /* gzip */
    {"does not look like a tar archive", ERROR_INVALID},
    {"Unexpected EOF", ERROR_INVALID},
    {"unexpected end of file", ERROR_INVALID},
    {"not in gzip format", ERROR_INVALID},
    {"invalid compressed data", ERROR_INVALID},
    {"Permission denied", ERROR_FORBIDDEN},
    {"Operation not permitted", ERROR_FORBIDDEN},
    {"Read-only file system", ERROR_FORBIDDEN},
};

static enum error_kind kind_of(const struct tar *tar)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (memmem(tar->text, tar->size, KINDS[i].said, strlen(KINDS[i].said)))
            return KINDS[i].kind;
    }
    return ERROR_CONFLICT;
}

/* The end of what it said, without the sentence that says only that there was something; ASCII alone. */
static void last_words(const struct tar *tar, char words[static MESSAGE_BYTES + 1])
{
    static const char *const EMPTY[] = {"tar: Exiting with failure status due to previous errors",
                                        "tar: Error is not recoverable: exiting now", "tar: Child returned status"};
    size_t end = tar->size;
    for (size_t i = 0; i < sizeof EMPTY / sizeof EMPTY[0]; i++) {
        const char *empty = memmem(tar->text, end, EMPTY[i], strlen(EMPTY[i]));
        end = empty ? (size_t)(empty - tar->text) : end;
    }
    end = end == 0 ? tar->size : end;
    while (end > 0 && tar->text[end - 1] == '\n')
        end--;
    size_t from = end > MESSAGE_BYTES ? end - MESSAGE_BYTES : 0;
    const char *line = from > 0 ? memchr(tar->text + from, '\n', end - from) : NULL;
    from = line ? (size_t)(line + 1 - tar->text) : from;
    size_t size = end - from;
    memcpy(words, tar->text + from, size);
    words[size] = '\0';
    for (char *at = words; at < words + size; at++) {
        if (*at == '\n')
            *at = ';';
        else if (*at < ' ' || *at > '~')
            *at = '?';
    }
}

bool tar_end(struct tar *tar, bool *changed, struct error *err)
{
    int status = 0;
    while (waitpid(tar->pid, &status, 0) < 0) {
        if (errno != EINTR)
            return error_set_errno(err, ERROR_INTERNAL, "waiting for tar");
    }
    tar->pid = 0;
    *changed = WIFEXITED(status) && WEXITSTATUS(status) == 1;
    if (WIFEXITED(status) && WEXITSTATUS(status) <= 1)
        return true;
    if (WIFSIGNALED(status))
        return error_set(err, ERROR_INTERNAL, "tar was ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == NOT_STARTED && tar->size == 0)
        return error_set(err, ERROR_NOT_FOUND, "this template's tar cannot be started");
    char words[MESSAGE_BYTES + 1];
    last_words(tar, words);
    return error_set(err, kind_of(tar), "%s", words[0] ? words : "tar failed and said nothing");
}

void tar_done(struct tar *tar)
{
    if (tar->pid > 0) {
        (void)kill(tar->pid, SIGKILL);
        while (waitpid(tar->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (tar->errors >= 0)
        close(tar->errors);
    *tar = (struct tar){.errors = -1};
}
