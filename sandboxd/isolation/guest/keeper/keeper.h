/** keeper.h - parley-keeper, PID 1 around a guest: what its files share. One thread, one epoll set.
 *
 *  It finds what inherit.h says, in the root that namespaces.h says; is told by LI_GUEST which monitor it keeps, and by
 *  LI_BECOME the letter; starts the monitor in cgroup run/e1, so that the sandbox's limits hold all of it; and then
 * gives the front connections to the guest (front_init.h), keeps the hard deadline, and ends with the monitor. It reads
 * no byte of what goes through them. Static, libc only: see isolation/guest/guest.h. */
#pragma once

#include "sandboxd/init/inherit.h"
#include "sandboxd/launcher_init/launcher_init.h"

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KEEPER_LINE_BYTES 160

struct keeper {
    int epoll;
    int channel; /* SEQPACKET to the monitor's stdin: the letter, then connections */
    int output;  /* what the monitor writes to stdout and stderr */
    int signals, timer, listener;
    int front; /* -1: none is connected */
    size_t join_count;
    struct sock_fprog filter;
    struct li_guest guest;
    pid_t monitor;                /* 0: not started */
    bool is_up;                   /* the guest said so */
    bool has_ended;               /* the monitor, which is reaped */
    int status;                   /* of wait(2), then */
    char line[KEEPER_LINE_BYTES]; /* the last whole one of its output, */
    char part[KEEPER_LINE_BYTES]; /* and what follows it */
    size_t part_length;
    uint64_t deadline_boot_ns; /* 0 none */
    uint64_t end_boot_ns;      /* when it is killed, once it was asked to end; 0 not yet */
    bool leaving;
    int exit_code;
};

enum { KEEPER_ENDED = 0, KEEPER_FAILED = 1, KEEPER_DEADLINE = 10 };

/* ---- monitor.c ---- */

/** Starts it. `become` NULL: before the limits are known. */
bool monitor_start(struct keeper *keeper, const struct li_become *become, struct error *err) MUST_USE;
/** What it wrote; once the guest is up nothing of it matters. */
void monitor_read(struct keeper *keeper);
/** What it sent back: one packet, any, says that the guest is up. */
void monitor_hear(struct keeper *keeper);
/** Reaps whatever has died; has_ended when it was the monitor. */
void monitor_reap(struct keeper *keeper);
/** Sends it the letter in `memory`, a memfd. */
bool monitor_send_letter(const struct keeper *keeper, int memory, struct error *err) MUST_USE;
/** A connected stream socket to the guest; -1 with errno. */
int monitor_connect(const struct keeper *keeper) MUST_USE;
/** SIGTERM; it is killed `grace_ms` later. */
void monitor_terminate(struct keeper *keeper, uint64_t grace_ms, int exit_code);

/* ---- front.c ---- */

bool front_listen(struct keeper *keeper, struct error *err) MUST_USE;
void front_accept(struct keeper *keeper);
void front_hear(struct keeper *keeper);

/* ---- main.c ---- */

bool keeper_watch(struct keeper *keeper, int fd, struct error *err) MUST_USE;
/** The timer, for whichever of the deadline and the end is sooner. */
void keeper_arm(struct keeper *keeper);
