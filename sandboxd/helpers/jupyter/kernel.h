/** kernel.h - the kernel's process: started in a session of its own with /dev/null as stdin and pipes as stdout and
 * stderr, killed with the bridge. */
#pragma once

#include "sandboxd/helpers/jupyter/kernelspec.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct kernel {
    pid_t pid;      /* 0: none, or reaped; its process group's id too */
    pid_t group;    /* stays when pid is reaped: others of it may live */
    int outputs[2]; /* read ends of its stdout and stderr, non-blocking; -1 closed */
    int status;     /* of waitpid(2), once pid is 0 */
};

#define KERNEL_NONE ((struct kernel){.outputs = {-1, -1}})

/** Starts it; `connection_file` as told to it. While this process has one thread. NOT_FOUND: there is no such program;
 *  INTERNAL. */
bool kernel_start(struct kernel *kernel, const struct kernelspec *spec, const char *connection_file,
                  struct error *err) MUST_USE;

/** Sends `number` to its process group. */
void kernel_signal(const struct kernel *kernel, int number);

/** Reaps it if it ended: true once it has. */
bool kernel_has_ended(struct kernel *kernel) MUST_USE;

/** SIGKILL to its group, reaped, pipes closed. */
void kernel_end(struct kernel *kernel);

/** How it ended, as a sentence's end ("was killed by signal 9", "ended with status 3"), and as an exit status. */
void kernel_tell_end(const struct kernel *kernel, char *to, size_t size);
int kernel_exit_status(const struct kernel *kernel) MUST_USE;
