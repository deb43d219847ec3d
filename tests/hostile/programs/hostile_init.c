/* hostile_init.c - PID 1 of a sandbox that lies to the front: the loop, and what it says to everybody. */
#include "tests/hostile/programs/hostile_init.h"

#include "sandboxd/init/inherit.h"
#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

void streams_make(int fds[static FI_FDS], int writes[static 2])
{
    for (int i = 0; i < 2; i++) {
        int ends[2], input[2];
        fds[FI_FD_STDOUT_MEMORY + i] = memfd_create("out", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 ||
            fcntl(fds[FI_FD_STDOUT_MEMORY + i], F_ADD_SEALS, F_SEAL_SHRINK) < 0)
            _exit(30);
        fds[FI_FD_STDOUT_PIPE + i] = ends[0];
        writes[i] = ends[1];
        if (i == 1)
            continue;
        if (pipe2(input, O_CLOEXEC | O_NONBLOCK) < 0)
            _exit(31);
        fds[FI_FD_STDIN_PIPE] = input[1];
        close(input[0]);
        fds[FI_FD_STDIN_MEMORY] = memfd_create("in", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        (void)fcntl(fds[FI_FD_STDIN_MEMORY], F_ADD_SEALS, F_SEAL_SHRINK);
    }
}

void started_send(int connection, const char *id, const int *fds, size_t count, bool has_stdin, bool is_terminal)
{
    struct front_init_message message = {.type = FI_STARTED};
    struct fi_started *started = &message.as.started;
    strncpy(started->id, id, sizeof started->id - 1);
    started->has_stdin = has_stdin;
    started->terminal = is_terminal;
    started->pid = 2;
    strncpy(started->title, "a\033[31mlie\n", sizeof started->title - 1);
    (void)raw_send(connection, &message, front_init_size(FI_STARTED), fds, count);
}

void exited_send(int connection, const char *id)
{
    struct front_init_message message = {.type = FI_EXITED};
    strncpy(message.as.exited.id, id, sizeof message.as.exited.id - 1);
    (void)raw_send(connection, &message, front_init_size(FI_EXITED), NULL, 0);
}

static void greet(const struct play *play)
{
    struct front_init_message message = {.type = FI_WELCOME, .as.welcome.version = FRONT_INIT_VERSION};
    (void)raw_send(play->connection, &message, front_init_size(FI_WELCOME), NULL, 0);
    message = (struct front_init_message){.type = FI_CURRENT};
    (void)raw_send(play->connection, &message, front_init_size(FI_CURRENT), NULL, 0);
}

static void take_start(struct play *play, const struct fi_start *start, int fd)
{
    struct front_init_command command = {0};
    AUTO_FREE void *memory = NULL;
    struct error err = {0};
    if (strncmp(start->id, "kernel.", 7) == 0)
        driver_play(play, start);
    else if (front_init_command_read(fd, &command, &memory, &err))
        command_play(play, start, command.arguments);
}

static void take_helper(struct play *play, int *fd)
{
    for (int i = 0; i < HELPERS_MAX; i++) {
        if (play->helpers[i] < 0) {
            play->helpers[i] = TAKE_FD(*fd);
            return;
        }
    }
}

static void take_message(struct play *play)
{
    struct front_init_message message;
    int fds[FD_MESSAGE_FDS];
    size_t count = 0;
    struct error err = {0};
    int got = front_init_receive(play->connection, &message, FI_FROM_FRONT, fds, &count, &err);
    if (got <= 0) {
        if (got == 0 || err.system_errno != EAGAIN)
            close(TAKE_FD(play->connection));
        return;
    }
    if (play->is_silent)
        ;
    else if (message.type == FI_START)
        take_start(play, &message.as.start, fds[0]);
    else if (message.type == FI_HELPER)
        take_helper(play, &fds[0]);
    else if (message.type == FI_DIAL)
        dial_play(play, &message.as.dial);
    else if (message.type == FI_LISTENERS)
        listeners_play(play);
    else if (message.type == FI_TERMINATE)
        _exit(0);
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void turn(struct play *play)
{
    struct pollfd all[2 + HELPERS_MAX] = {{.fd = INHERIT_FD_LISTEN, .events = POLLIN},
                                          {.fd = play->connection, .events = POLLIN}};
    for (int i = 0; i < HELPERS_MAX; i++)
        all[2 + i] = (struct pollfd){.fd = play->helpers[i], .events = POLLIN};
    if (poll(all, 2 + HELPERS_MAX, -1) <= 0)
        return;
    for (int i = 0; i < HELPERS_MAX; i++) {
        if (all[2 + i].revents && !helper_play(play, play->helpers[i]))
            close(TAKE_FD(play->helpers[i]));
    }
    if (all[1].revents)
        take_message(play);
    if (!(all[0].revents & POLLIN))
        return;
    if (play->connection >= 0)
        close(play->connection);
    play->connection = accept4(INHERIT_FD_LISTEN, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (play->connection >= 0)
        greet(play);
}

int main(void)
{
    static struct play play = {.connection = -1};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    memset(play.helpers, -1, sizeof play.helpers);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGCHLD, &ignore, NULL);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    launcher_play();
    for (;;)
        turn(&play);
}
