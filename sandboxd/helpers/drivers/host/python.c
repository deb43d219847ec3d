/* python.c - finds the interpreter for python/zygote.py; where there is none, init is told so. */
#include "sandboxd/helpers/drivers/host/languages.h"

#include "sandboxd/helpers/drivers/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

extern const char driver_python[], driver_python_end[];

enum { PROGRAM = 3, ORDERS = 4 };

/* It reads its program where no position is moved, and finds the same text again when it starts anew. */
static const char BOOT[] = "import os;exec(compile(os.pread(3,os.fstat(3).st_size,0),'<parley>','exec'))";

static void become_python(const char *kind)
{
    char *path = host_find("python3");
    if (path == NULL)
        return;
    int program = host_memfd("python.py", driver_python, (size_t)(driver_python_end - driver_python));
    /* dup2(2) of a descriptor onto itself would leave it close-on-exec. */
    if (program == PROGRAM ? fcntl(program, F_SETFD, 0) < 0 : dup2(program, PROGRAM) < 0)
        host_failed("descriptor %d: %s", PROGRAM, strerror(errno));
    if (program != PROGRAM)
        close(program);
    execv(path, host_arguments((const char *const[]){"python3", "-c", BOOT, "zygote", kind, NULL}, NULL));
}

int python_zygote(const char *kind)
{
    become_python(kind);
    struct error err = {0};
    error_set(&err, ERROR_NOT_FOUND, "no python3 in this template");
    (void)send(ORDERS, &err, sizeof err, 0);
    return 1;
}
