#include "clients/cli/lines.h"

#include "shared/base/memory.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The pid of argv with its stdout at `out`; -1. */
static pid_t start(const char *const argv[], bool is_quiet, int out, struct error *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (is_quiet)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t pid = -1;
    size_t count = 0;
    while (argv[count])
        count++;
    char **words =
        memory_copy(argv, (count + 1) * sizeof *words); /* posix_spawn(3) changes none, and does not say so */
    int failed = posix_spawnp(&pid, argv[0], &actions, NULL, words, environ);
    free(words);
    posix_spawn_file_actions_destroy(&actions);
    if (failed == 0)
        return pid;
    error_set(err, ERROR_NOT_FOUND, "%s cannot be run: %s", argv[0], strerror(failed));
    return -1;
}

static void read_lines(int from, void (*take)(void *cookie, char *line), void *cookie)
{
    FILE *lines = fdopen(from, "r");
    char *line = NULL;
    size_t capacity = 0;
    while (lines && getline(&line, &capacity, lines) > 0) {
        line[strcspn(line, "\n")] = '\0';
        take(cookie, line);
    }
    free(line);
    if (lines)
        fclose(lines);
    else
        close(from);
}

bool lines_of(const char *const argv[], bool is_quiet, void (*take)(void *cookie, char *line), void *cookie,
              struct error *err)
{
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "pipe");
    pid_t pid = start(argv, is_quiet, ends[1], err);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return false;
    }
    read_lines(ends[0], take, cookie);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return error_set(err, ERROR_INTERNAL, "%s did not end by itself", argv[0]);
    return true;
}
