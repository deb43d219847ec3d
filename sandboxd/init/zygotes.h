/** zygotes.h - processes of which commands are forked, because what they have loaded takes long to load: interpreters.
 *
 *  A zygote is started as a command is (child.h): the commands' user, no rights, the seccomp program, a cgroup
 *  run/e<n> of its own; stdin, stdout and stderr are /dev/null. It is killed with the sandbox, and counts as no
 *  command. Whatever it says is hostile, as all of user code is. It finds
 *
 *      descriptor 3  the program that came with the START
 *      descriptor 4  a SOCK_SEQPACKET socket to init
 *
 *  zygote -> init  "R", once, when it takes orders. Until then it has ZYGOTES_READY_MS. Instead it may send a struct
 *                  error of error.h (int32 kind, int32 errno, 248 bytes of text with NUL) and exit: the commands that
 *                  wait for it are refused with that. It says nothing else: a packet more, and it is killed. It leaves
 * by itself when no order came for 60 s, and at the end of the socket. init -> zygote  an order: the byte "S" with 5
 * descriptors (SCM_RIGHTS): the command's memfd (its bytes: struct front_init_command; read with pread(2)), stdin,
 * stdout, stderr, hello.
 *
 *  For each order the zygote forks twice; the one between exits at once, is waited for, and the child becomes init's
 *  own. The zygote closes the five descriptors. The child makes a session (setsid), puts the streams at 0, 1, 2, closes
 *  all else but hello, sets signals and environment, enters cwd, and, once its parent is process 1, sends on hello
 *  (SOCK_SEQPACKET)
 *
 *      an int32, host order: 0, or the errno of what failed: of chdir, or (sent by the zygote itself) of fork: EAGAIN
 *      or ENOMEM
 *
 *  init takes its pid from SCM_CREDENTIALS, believes it when that is a child of init's, of the commands' uid and in the
 *  zygote's cgroup, moves it into the command's own, and sends the byte "G": only then may it run what is the user's.
 *  A child that finds the end of hello instead exits: the order was given up. The word must come within
 *  ZYGOTES_HELLO_MS of the order. A zygote that ends or breaks the rules fails its orders; each is given once more, to
 *  a new one, and then refused.
 *
 *  A START that says another program, zygote command or number of open files than the running one has is for a new
 *  one, which takes its place. */
#pragma once

#include "sandboxd/init/init.h"

#define ZYGOTES_FD       4
#define ZYGOTES_READY_MS 60000
#define ZYGOTES_HELLO_MS 10000

/** Before anything else here. */
void zygotes_open(struct init *init);

/** What a START asks of a zygote. The descriptors are borrowed. */
struct zygote_wish {
    uint8_t number; /* 1..FRONT_INIT_ZYGOTES */
    int program, command;
    uint32_t open_files; /* as in fi_start */
};

/** The running one when it is as wished, else a new one that is being started in its place. NULL with INVALID,
 * NO_CAPACITY, GONE, INTERNAL. */
struct zygote *zygotes_get(struct init *init, const struct zygote_wish *wish, struct error *err) MUST_USE;

/** It broke the rules, or does not answer: kills it, and fails its orders. */
void zygotes_end(struct init *init, struct zygote *zygote, const struct error *why);

/** Whether the one in that cgroup is one that takes orders now. */
bool zygotes_has(const struct init *init, uint64_t serial) MUST_USE;

/** Kills those that are not ready in time; tells the timer of the others. */
void zygotes_time_out(struct init *init, uint64_t now_boot_ns);

/** The sandbox is ending: no order is given any more, those given are refused. */
void zygotes_end_all(struct init *init);
