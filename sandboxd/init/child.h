/** child.h - what happens between clone and execve: the cloned child becomes the user's command or says why not. */
#pragma once

#include "sandboxd/front_init/front_init.h"

#include <linux/filter.h>
#include <stdbool.h>
#include <sys/resource.h>

/** What holds for every command. */
struct child_plan {
    const int *join; /* v1 cgroup.procs, to write "0" to */
    size_t join_count;
    const struct sock_fprog *filter;
    struct rlimit files;
    uint32_t uid, gid;
    gid_t mark;   /* a supplementary group, see family.h; 0: none */
    bool as_root; /* uid and gid 0, with the capabilities of rights.h; else none */
};

/** What one command is. */
struct child_order {
    const struct front_init_command *command;
    int terminal_end;                      /* its standard streams and controlling terminal; -1: it has none, but: */
    int stdin_end, stdout_end, stderr_end; /* stdin_end -1: /dev/null */
    int program;                           /* its descriptor FRONT_INIT_PROGRAM; -1: none */
    int order_socket;                      /* of a zygote: its descriptor ZYGOTES_FD; -1: it is none */
    int refusal;                           /* a close-on-exec pipe: gets a struct error, or the end when execve came */
};

/** In the child only. ERROR_INVALID cwd, ERROR_NOT_FOUND command, ERROR_FORBIDDEN not executable, ERROR_TOO_LARGE
 *  arguments, else ERROR_INTERNAL. Allocates nothing. */
_Noreturn void child_run(const struct child_plan *plan, const struct child_order *order);

/** An order to a child that waits: one message, with the command's memfd, the refusal's pipe, and then the descriptors
 * that these flags tell of, in their order. No zygote is made of such a child. */
enum child_parcel_flag {
    CHILD_TERMINAL = 1, /* it stands for the three others; else stdout and stderr come */
    CHILD_STDIN = 2,    /* ... and this before them */
    CHILD_PROGRAM = 4
};
#define CHILD_FDS       6 /* at most */

#define CHILD_WAIT_NAME "init-spare" /* as ps shows it */

/** Sends one; `memory` is the command's memfd. False when the child is gone. */
bool child_send_order(int socket, const struct child_order *order, int memory) MUST_USE;

/** In a child made in advance (spare.h): gives up all rights, then waits on `socket` for one order, and becomes that
 * command. Leaves when the other end closes. */
_Noreturn void child_wait(const struct child_plan *plan, int socket);

/** In the child only: gives up all rights as a command does, and serves the front's file operations on `socket`; what
 * goes wrong before is told there (helpers.h). */
_Noreturn void child_help(const struct child_plan *plan, int socket);
