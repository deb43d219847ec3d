/** fake_zygote.h - a zygote for tests: the test program itself, run inside from its program descriptor. What it does is
 *  its mode: keep to the rules of zygotes.h, or break one of them. */
#pragma once

#include "sandboxd/front_init/front_init.h"
#include "shared/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAKE_PROGRAM = 3, FAKE_INIT = 4 };
enum { FAKE_MEMORY, FAKE_STDIN, FAKE_STDOUT, FAKE_STDERR, FAKE_HELLO, FAKE_FDS };

static const char *fake_mode;

static inline int fake_is(const char *mode)
{
    return strcmp(fake_mode, mode) == 0;
}

/* True once in a sandbox: /dev/shm is its own. */
static inline int fake_first_time(void)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/dev/shm/%s", fake_mode);
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0;
}

static inline void fake_say(int socket, const void *bytes, size_t size)
{
    (void)!send(socket, bytes, size, MSG_NOSIGNAL);
}

static inline _Noreturn void fake_child(const int *fds, int orphaned)
{
    struct front_init_command command;
    struct error err = {0};
    void *memory;
    char byte, zygote[32];
    int32_t word = 0;
    (void)!read(orphaned, &byte, 1); /* the end: the one between was waited for */
    (void)snprintf(zygote, sizeof zygote, "%s", getenv("ZYGOTE"));
    setsid();
    for (int i = 0; i < 3; i++)
        dup2(fds[FAKE_STDIN + i], i);
    if (!front_init_command_read(fds[FAKE_MEMORY], &command, &memory, &err))
        _exit(80);
    if (chdir(command.cwd) < 0)
        word = errno;
    int hello = fcntl(fds[FAKE_HELLO], F_DUPFD_CLOEXEC, 20);
    if (fake_is("child-dies"))
        _exit(81);
    if (fake_is("word-of-8"))
        fake_say(hello, "\0\0\0\0\0\0\0", 8);
    if (fake_is("word-below-0"))
        word = -5;
    if (fake_is("word-with-fds"))
        (void)!fd_send_message(hello, &word, sizeof word, fds, FAKE_FDS, &err);
    else
        fake_say(hello, &word, sizeof word);
    if (fake_is("dies-after-word"))
        _exit(82);
    if (recv(hello, &byte, 1, 0) != 1 || byte != 'G')
        _exit(83);
    close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    for (int number = 1; number < 32; number++)
        signal(number, SIG_DFL);
    for (char *const *variable = command.variables; *variable; variable++)
        putenv(*variable);
    setenv("ZYGOTE", zygote, 1);
    execv(command.arguments[0], command.arguments);
    _exit(84);
}

static inline void fake_fork(const int *fds)
{
    int orphaned[2];
    (void)!pipe(orphaned);
    pid_t between = fork();
    if (between == 0) {
        pid_t child = fork();
        if (child == 0) {
            close(orphaned[1]);
            fake_child(fds, orphaned[0]);
        }
        _exit(0);
    }
    close(orphaned[0]);
    waitpid(between, NULL, 0);
    close(orphaned[1]);
}

/* The word comes from a process that the one at this socket has: it is init's child, but of another command. */
static inline void fake_let_puppet_say(int hello)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0puppet"};
    struct error err;
    int socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(socket_fd, (const struct sockaddr *)&address, sizeof(sa_family_t) + 7) == 0)
        (void)!fd_send_message(socket_fd, "x", 1, &hello, 1, &err);
    close(socket_fd);
}

/** An orphan that says the word for whoever asks; the command that leaves it goes on until its stdin ends. */
static inline _Noreturn void fake_puppet(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0puppet"};
    int fds[FD_MESSAGE_FDS], listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    size_t count;
    struct error err;
    char byte;
    int32_t word = 0;
    if (bind(listener, (const struct sockaddr *)&address, sizeof(sa_family_t) + 7) < 0 || listen(listener, 9) < 0)
        _exit(85);
    pid_t between = fork();
    if (between == 0) {
        if (fork() != 0)
            _exit(0);
        for (;;) {
            int connection = accept(listener, NULL, NULL);
            if (fd_receive_message(connection, &byte, 1, fds, &count, &err) == 1)
                fake_say(fds[0], &word, sizeof word); /* and keeps it */
            close(connection);
        }
    }
    waitpid(between, NULL, 0);
    (void)!write(1, "ready\n", 6);
    while (read(0, &byte, 1) > 0)
        continue;
    _exit(0);
}

static inline void fake_serve(const int *fds)
{
    int32_t word = 0, full = EAGAIN;
    if (fake_is("dies") || (fake_is("dies-once") && fake_first_time()))
        _exit(86);
    if (fake_is("hangs") || (fake_is("hangs-once") && fake_first_time()))
        pause();
    if (fake_is("slow")) /* until somebody gives up, or tells it by a file */
        while (access("/dev/shm/go", F_OK) != 0)
            usleep(1000);
    if (fake_is("says-itself"))
        fake_say(fds[FAKE_HELLO], &word, sizeof word);
    else if (fake_is("cannot-fork"))
        fake_say(fds[FAKE_HELLO], &full, sizeof full);
    else if (fake_is("puppet"))
        fake_let_puppet_say(fds[FAKE_HELLO]);
    else if (fake_is("keeps-child")) {
        if (fork() == 0) { /* its own, not init's */
            fake_say(fds[FAKE_HELLO], &word, sizeof word);
            pause();
        }
    } else if (fake_is("floods")) {
        for (;;)
            fake_say(FAKE_INIT, "more", 4);
    } else
        fake_fork(fds);
    for (int i = 0; i < FAKE_FDS; i++)
        close(fds[i]);
}

static inline void fake_begin(void)
{
    struct error said = {.kind = ERROR_NOT_FOUND, .message = "no such interpreter here"};
    const int fds[] = {0, 1, 2};
    if (fake_is("error"))
        fake_say(FAKE_INIT, &said, sizeof said);
    memset(said.message, 0xff, sizeof said.message);
    if (fake_is("bad-error"))
        fake_say(FAKE_INIT, &said, sizeof said);
    if (fake_is("error") || fake_is("bad-error"))
        _exit(0);
    if (fake_is("ready-with-fds"))
        (void)!fd_send_message(FAKE_INIT, "R", 1, fds, 3, &said);
    else
        fake_say(FAKE_INIT, "R", 1);
    if (fake_is("ready-twice"))
        fake_say(FAKE_INIT, "R", 1);
}

/** The first line of main: does not return when this process is a zygote, or its puppet. */
static inline void fake_zygote(int argc, char *argv[])
{
    if (argc == 2 && strcmp(argv[1], "--be-puppet") == 0)
        fake_puppet();
    if (argc != 3 || strcmp(argv[1], "--be-zygote") != 0)
        return;
    char byte, own[32];
    int fds[FD_MESSAGE_FDS];
    size_t count;
    struct error err;
    fake_mode = argv[2];
    (void)snprintf(own, sizeof own, "%d", getpid());
    setenv("ZYGOTE", own, 1);
    fake_begin();
    while (fd_receive_message(FAKE_INIT, &byte, 1, fds, &count, &err) == 1) {
        if (byte != 'S' || count != FAKE_FDS)
            _exit(87);
        fake_serve(fds);
    }
    _exit(0);
}
