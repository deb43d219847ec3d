/** child.h - what happens between clone and execve: the cloned child becomes the user's command or says why not. */
#pragma once

#include "sandboxd/front_init/front_init.h"

#include <linux/filter.h>
#include <sys/resource.h>

struct child_plan {
    const struct front_init_command *command;
    int stdin_end, stdout_end, stderr_end; /* stdin_end -1: /dev/null */
    int refusal;                           /* a close-on-exec pipe: gets a struct error, or the end when execve came */
    const int *join;                       /* v1 cgroup.procs, to write "0" to */
    size_t join_count;
    const struct sock_fprog *filter;
    const struct rlimit *files;
};

/** In the child only. ERROR_INVALID cwd, ERROR_NOT_FOUND command, ERROR_FORBIDDEN not executable, ERROR_TOO_LARGE
 *  arguments, else ERROR_INTERNAL. Allocates nothing. */
_Noreturn void child_run(const struct child_plan *plan);
