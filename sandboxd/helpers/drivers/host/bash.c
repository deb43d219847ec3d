/* bash.c - bash (or the /bin/sh that there is) as a context. It is an interactive shell without a terminal: so an error
 * or SIGINT ends the line and not the shell. It reads its lines from a pipe; the code of a run lies in a memfd of ours,
 * and what it reports goes to our control pipe, both opened by way of /proc, so that the shell and what it starts hold
 * no descriptor of ours. User code's stdin is /dev/null. */
#include "sandboxd/helpers/drivers/host/languages.h"

#include "sandboxd/helpers/drivers/host/host.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern const char driver_bash[], driver_bash_end[];

#define RESTORE                                                                                                        \
    "__parley=$(<\"$__parley_state\")\n\\builtin eval \"$__parley\"\n" /* what it complains of is nobody's yet */

struct shell {
    char *path;
    bool is_bash, is_revived, is_durable;
    unsigned again_count; /* SIGINTs of ours in this run */
    int lines, lines_in;  /* the pipe that it reads */
    int code, state;      /* memfds */
    char again[16];       /* "set -ex; ": what the run before had set, and we must not have */
    char report[256];
    size_t reported;
};

static void tell(struct host *host, const char *text)
{
    const struct shell *shell = host->own;
    size_t size = strlen(text);
    while (size > 0) {
        ssize_t wrote = write(shell->lines_in, text, size);
        if (wrote < 0 && errno != EINTR)
            return; /* it has ended, which the loop sees */
        text += wrote > 0 ? wrote : 0;
        size -= wrote > 0 ? (size_t)wrote : 0;
    }
}

/* Tells how the run ended; that of a run before is passed over. The empty line: after a quote that was left open in
 * eval, bash takes the next word, { too, for a command. */
static void ask_report(struct host *host)
{
    const char *plainly = ((const struct shell *)host->own)->is_bash ? "\\builtin " : "\\"; /* no alias of that name */
    AUTO_FREE char *line = memory_printf("\n{ %secho D %lld $? $- >/proc/%d/fd/%d; %sset +ex; } 2>/dev/null\n", plainly,
                                         host->count, getpid(), host->control_in, plainly);
    tell(host, line);
}

static void fill(int fd, const char *first, const char *bytes, size_t size)
{
    struct error err;
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 || !fd_write_all(fd, first, strlen(first), &err) ||
        !fd_write_all(fd, bytes, size, &err))
        host_failed("no memory for the code");
}

static pid_t group_of(const char *pid)
{
    char path[64], text[512] = "";
    int group = -1;
    (void)snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    const char *after = fd >= 0 && read(fd, text, sizeof text - 1) > 0 ? strrchr(text, ')') : NULL;
    return after && sscanf(after, ") %*c %*d %d", &group) == 1 ? group : -1;
}

/* A signal for what bash has started: a program that was on its way to execve(2) when the first SIGINT came has not
 * seen it. What runs in the background ignores that. */
static bool signal_programs(const struct host *host, int number)
{
    bool has_programs = false;
    DIR *folder = opendir("/proc");
    for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 0 && pid != getpid() && pid != host->child && group_of(entry->d_name) == getpgrp())
            has_programs = kill(pid, number) == 0 || has_programs;
    }
    if (folder)
        closedir(folder);
    return has_programs;
}

/* 'a path', for the shell. */
static char *quoted(const char *path)
{
    size_t size = 3;
    for (const char *at = path; *at; at++)
        size += *at == '\'' ? 4 : 1;
    char *text = memory_new(size), *to = text;
    *to++ = '\'';
    for (const char *at = path; *at; at++) {
        if (*at == '\'')
            to = stpcpy(to, "'\\'");
        *to++ = *at;
    }
    strcpy(to, "'");
    return text;
}

/* `cd path && `, "" without one. */
static char *go_there(const struct host *host, const char *plainly)
{
    if (host->cwd == NULL)
        return memory_string("");
    AUTO_FREE char *path = quoted(host->cwd);
    return memory_printf("%scd -- %s %s && ", plainly, path, host->merges ? "2>&1" : "");
}

/* One line: a SIGINT ends no more and no less than it, and never leaves an eval of what ran before. A durable one takes
 * the code as a file: then bash is not interactive for its length, and says nothing of jobs and ends. */
static char *line_of(const struct host *host)
{
    const struct shell *shell = host->own;
    const char *merge = host->merges ? " 2>&1" : "";
    AUTO_FREE char *there = go_there(host, shell->is_bash ? "\\builtin " : "\\");
    AUTO_FREE char *code = memory_printf("/proc/%d/fd/%d", getpid(), shell->code);
    if (!shell->is_bash)
        return memory_printf("__parley=$(\\cat %s); %s\\eval \"$__parley\" </dev/null%s\n", code, there, merge);
    if (shell->is_durable)
        return memory_printf("%s\\builtin . %s </dev/null%s\n", there, code, merge);
    return memory_printf("IFS= \\builtin read -r -d '' __parley <%s || :; "
                         "LINENO=0; %s\\builtin eval \"$__parley\" </dev/null%s\n",
                         code, there, merge);
}

static void run(struct host *host, const char *code, size_t size)
{
    struct shell *shell = host->own;
    if (memchr(code, 0, size) != NULL) {
        host->status = 2;
        host_error(host, "SyntaxError", "the code holds a NUL, which no shell can read");
        host_done(host, "error");
        return;
    }
    shell->again_count = 0;
    fill(shell->state, "", "", 0);
    fill(shell->code, shell->again, code, size);
    AUTO_FREE char *line = line_of(host);
    /* One that came, or that we sent, when the run before was just over ends this line instead. */
    if (host->may_be_interrupted) {
        (void)signal_programs(host, SIGINT); /* of the run before: bash would wait for them first */
        tell(host, ":\n:\n");
    }
    tell(host, line);
    ask_report(host);
}

/* Bash waits for a program that has not seen SIGINT: that gets another, or bash itself where there is none. A few times
 * at most: code may have a trap. Where the context is durable, what does not heed is killed. */
static void interrupt_again(struct host *host)
{
    struct shell *shell = host->own;
    unsigned count = shell->again_count++;
    if (count >= 3 && !shell->is_durable)
        return;
    if (!signal_programs(host, count < 3 ? SIGINT : SIGKILL))
        (void)kill(host->child, SIGINT);
    if (count >= 6)
        (void)kill(host->child, SIGKILL); /* another goes on */
    else
        ask_report(host);
}

static void end_run(struct host *host, int status)
{
    AUTO_FREE char *text = status > 128 ? memory_printf("exit status %d (signal %d)", status, status - 128)
                                        : memory_printf("exit status %d", status);
    bool is_interrupted = host->was_interrupted && status != 0;
    host->status = status;
    if (is_interrupted)
        (void)signal_programs(host, SIGINT); /* bash has left the line, perhaps without them */
    if (is_interrupted)
        host_error(host, "KeyboardInterrupt", "interrupted");
    else if (status != 0)
        host_error(host, "ExitStatus", text);
    host_done(host, is_interrupted ? "interrupted" : status != 0 ? "error" : "ok");
}

static void set_again(struct shell *shell, const char *flags)
{
    bool exits = strchr(flags, 'e') != NULL, traces = strchr(flags, 'x') != NULL;
    (void)snprintf(shell->again, sizeof shell->again, "%s%s%s%s", exits || traces ? "set -" : "", exits ? "e" : "",
                   traces ? "x" : "", exits || traces ? "; " : "");
}

static void take_report(struct host *host, const char *line)
{
    struct shell *shell = host->own;
    char flags[64] = "", version[64] = "";
    long long number;
    int status;
    if (sscanf(line, "R %63[^\n]", version) == 1 && !host->is_ready) {
        if (shell->is_revived) {
            host_drain(host, true);
            host->is_ready = true;
            return;
        }
        AUTO_FREE char *name =
            memory_printf("%s %s", shell->is_bash ? "bash" : shell->path, shell->is_bash ? version : "");
        host_ready(host, version, name);
    } else if (sscanf(line, "D %lld %d %63s", &number, &status, flags) >= 2 && host->is_running &&
               number == host->count) {
        set_again(shell, flags);
        host_drain(host, true);
        end_run(host, status);
    }
}

static void control(struct host *host, const char *bytes, size_t size)
{
    struct shell *shell = host->own;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != '\n') {
            if (shell->reported < sizeof shell->report - 1)
                shell->report[shell->reported++] = bytes[i];
            continue;
        }
        shell->report[shell->reported] = 0;
        shell->reported = 0;
        take_report(host, shell->report);
    }
}

static void finish(struct host *host)
{
    struct shell *shell = host->own;
    close(shell->lines_in);
    shell->lines_in = -1;
}

static void start_shell(struct host *host)
{
    struct shell *shell = host->own;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        host_failed("no pipe: %s", strerror(errno));
    shell->lines = ends[0];
    shell->lines_in = ends[1];
    static const char *const bash[] = {"bash", "--norc", "--noprofile", "--noediting", "-i", "+m", "+H", NULL};
    static const char *const plain[] = {"sh", "-i", NULL};
    host_spawn(host, shell->path, host_arguments(shell->is_bash ? bash : plain, NULL), shell->lines, NULL, 0);
    close(shell->lines);
    AUTO_FREE char *places = memory_printf("__parley_state=/proc/%d/fd/%d __parley_durable=%s\n", getpid(),
                                           shell->state, shell->is_durable ? "1" : "");
    tell(host, places);
    tell(host, driver_bash);
    AUTO_FREE char *last = memory_printf("%secho \"R ${BASH_VERSION:-sh}\" >/proc/%d/fd/%d\n",
                                         shell->is_revived ? RESTORE : "", getpid(), host->control_in);
    tell(host, last);
}

/* A shell that `set -e` ended left its state (bash.sh): another goes on with it, as for the caller only the run failed.
 * A durable context's is left by whatever ends the shell; where there is none, as it was killed or has become another
 * program, the next one begins as the first did. */
static bool revive(struct host *host, int status)
{
    struct shell *shell = host->own;
    char flags[64] = "";
    bool is_left = pread(shell->state, flags, sizeof flags - 1, 0) >= 2 && flags[0] == '#';
    if (!shell->is_bash || shell->lines_in < 0 || !host->is_ready || !(is_left || shell->is_durable))
        return false; /* one that ends as it starts is not followed for ever */
    flags[is_left ? strcspn(flags, "\n") : 0] = 0;
    set_again(shell, flags);
    close(shell->lines_in);
    if (host->is_running)
        end_run(host, status);
    host->is_ready = false;
    shell->is_revived = true;
    start_shell(host);
    return true;
}

int bash_context(bool is_durable)
{
    static const struct host_language language = {.name = "bash",
                                                  .run = run,
                                                  .control = control,
                                                  .interrupt = ask_report,
                                                  .still_runs = interrupt_again,
                                                  .finish = finish,
                                                  .revive = revive};
    struct shell shell = {.path = host_find("bash"), .lines_in = -1, .is_durable = is_durable};
    shell.is_bash = shell.path != NULL;
    if (shell.path == NULL && (shell.path = host_find("sh")) == NULL)
        host_failed("no bash in this template, and no sh");
    struct host host;
    host_init(&host, &language);
    host.own = &shell;
    shell.code = memfd_create("code", MFD_CLOEXEC);
    shell.state = memfd_create("state", MFD_CLOEXEC);
    if (shell.code < 0 || shell.state < 0)
        host_failed("no memfd: %s", strerror(errno));
    start_shell(&host);
    return host_serve(&host);
}

int bash_script(char **arguments)
{
    char *path = host_find("bash");
    if (path == NULL && (path = host_find("sh")) == NULL)
        return 127;
    execv(path, host_arguments((const char *const[]){"bash", NULL}, arguments + 1));
    return 126;
}
