/* python.c - finds the interpreter for python/zygote.py; where there is none, orders are taken here and told why. */
#include "sandboxd/helpers/drivers/host/languages.h"

#include "sandboxd/helpers/drivers/host/host.h"
#include "shared/base/fd.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

extern const char driver_python[], driver_python_end[];

enum { PROGRAM = 3, ORDERS = 4, ORDER_FDS = 5, IDLE_MS = 60000 };

/* It reads its program where no position is moved, and finds the same text again when it starts anew. */
static const char BOOT[] = "import os;exec(compile(os.pread(3,os.fstat(3).st_size,0),'<parley>','exec'))";

static void become_python(const char *kind)
{
    char *path = host_find("python3");
    if (path == NULL)
        return;
    int program = host_memfd("python.py", driver_python, (size_t)(driver_python_end - driver_python));
    if (dup2(program, PROGRAM) < 0)
        host_failed("dup2: %s", strerror(errno));
    if (program != PROGRAM)
        close(program);
    execv(path, host_arguments((const char *const[]){"python3", "-c", BOOT, "zygote", kind, NULL}, NULL));
}

/* As zygote.py's take_place. */
static _Noreturn void answer(const int fds[static ORDER_FDS], const char *kind)
{
    char go = 0;
    int none = 0;
    if (setsid() < 0 || dup2(fds[2], 1) < 0 || dup2(fds[3], 2) < 0 || send(fds[4], &none, sizeof none, 0) < 0 ||
        recv(fds[4], &go, 1, 0) != 1 || go != 'G')
        _exit(127);
    if (strcmp(kind, "contexts") == 0)
        host_failed("no python3 in this template");
    (void)!write(2, "python3: command not found\n", 27);
    _exit(127);
}

static void take_order(const char *kind)
{
    char byte;
    int fds[FD_MESSAGE_FDS];
    size_t count = 0;
    struct error err;
    if (fd_receive_message(ORDERS, &byte, 1, fds, &count, &err) != 1 || count != ORDER_FDS)
        _exit(0);
    pid_t between = fork();
    if (between == 0) {
        if (fork() == 0)
            answer(fds, kind);
        _exit(0);
    }
    if (between > 0)
        (void)waitpid(between, NULL, 0);
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

int python_zygote(const char *kind)
{
    become_python(kind);
    if (send(ORDERS, "R", 1, 0) != 1)
        return 1;
    while (poll(&(struct pollfd){.fd = ORDERS, .events = POLLIN}, 1, IDLE_MS) > 0)
        take_order(kind);
    return 0;
}
