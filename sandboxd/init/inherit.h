/** inherit.h - what a sandbox's init finds when it starts: the contract between the isolation backends and init.
 *
 *  argv: "init", the count of v1 cgroup.procs descriptors (decimal, 0..INHERIT_JOIN_MAX). No environment, cwd "/". init
 *  is PID 1, uid 0 of its user namespace, with all its capabilities, no_new_privs, no seccomp filter of its own, not
 *  dumpable until execve (init sets PR_SET_DUMPABLE 0 again, first of all). Its limits are the most that a command may
 *  have. Handlers of signals are for init to reset. Descriptors 0, 1, 2 are /dev/null; nothing else is open
 *  beyond those below.
 *
 *  isolation/direct adds a third word to argv, "guest": then it need not be process 1 (it becomes the subreaper of what
 *  it starts: prctl(2)), there is no cgroup at INHERIT_FD_RUN and JOIN_COUNT is 0, commands are told apart by marks
 *  (init/mark.h); INHERIT_FD_AREA is something that it only holds open, so that the other end sees it end; SIGTERM,
 *  SIGINT and the end of INHERIT_FD_CONTROL end the sandbox.
 *
 *  It says LI_BARRIER at INHERIT_FD_CONTROL and waits for what it is to become (launcher_init.h): then it gives up its
 *  capabilities, and listens. */
#pragma once

#define INHERIT_FD_LISTEN                                                                                              \
    3 /* SOCK_SEQPACKET, bound, not listening: init calls listen(2), so SO_PEERCRED shows its uid */
#define INHERIT_FD_CONTROL 4 /* the launcher's socket (launcher_init.h); closed once it has become */
#define INHERIT_FD_RUN     5 /* v2 cgroup `run`, O_RDONLY | O_DIRECTORY; init's own: mkdir run/<n>, CLONE_INTO_CGROUP */
#define INHERIT_FD_SECCOMP 6 /* sealed memfd: struct sock_filter[], for every command (SECCOMP_SET_MODE_FILTER) */
#define INHERIT_FD_AREA                                                                                                \
    7 /* the root of a tmpfs area, O_RDONLY | O_DIRECTORY, kept for a later launcher (pidfd_getfd(2)); else closed */
#define INHERIT_FD_JOIN                                                                                                \
    8 /* first of the v1 cgroup.procs, O_WRONLY: a child writes "0" to each before it drops rights */

#define INHERIT_GUEST    "guest"

#define INHERIT_JOIN_MAX 4 /* memory, pids, cpu, and one to spare */

/* The user of template `base`, and where commands start. */
#define INHERIT_USER_UID  1000
#define INHERIT_USER_GID  1000
#define INHERIT_WORKSPACE "/workspace"
