/** guest.h - guest mode: `parley-sandboxd --guest` serves one sandbox inside of something that isolates already: a VM,
 * a pod, a gVisor container. See DESIGN.md.
 *
 *  --guest-letter FD       required: where the letter is read from (launcher_guest/letter.h says what is in it)
 *  --guest-connections FD  a unix socket, SOCK_SEQPACKET or SOCK_STREAM. Each message is one byte (any) and carries one
 *                          descriptor (SCM_RIGHTS): a connected stream socket of any family, that is served as if it
 * had been accepted. A message without exactly one is dropped. Its end: no more come; what is there goes on. Without it
 * the guest listens at --listen_host and --sandboxd_port; with it it does not listen.
 *
 *  Both may be one descriptor, also 0 (gVisor hands on no others): the letter is its first packet then (or, of a stream
 *  socket, its first line), and each later one a connection.
 *
 *  The guest becomes init: the process that was started is parley-init from then on, which reaps what commands leave
 *  behind, and its first child is the launcher, whose child is the front. SIGTERM to it ends the sandbox: commands get
 *  SIGTERM, and 10 s. Its exit status is init's: 0 told to end, 10 its hard deadline came, 1 it could not start. It
 *  must be root where it runs, as commands are another user (the letter's uid), and the front a third (--front_uid).
 *
 *  Ready is what it says, once, on stderr: "guest ready sandbox=<id>". */
#pragma once

#include "sandboxd/front/front.h"
#include "sandboxd/launcher/settings.h"

/** How it was called. */
struct guest_options {
    int letter, connections; /* descriptors; connections -1: none */
};

/** Takes --guest-letter N and --guest-connections N out of argv. ERROR_INVALID. */
bool guest_take_options(int *argc, char *argv[], struct guest_options *options, struct error *err) MUST_USE;

#define GUEST_ENVIRONMENT "PARLEY_GUEST_CONNECTIONS" /* set for a guest's front alone, beside FRONT_ENVIRONMENT */

/** Whether this front is a guest's, and what it needs to know then. */
bool guest_is_front(struct front_guest *guest) MUST_USE;

/** Prints each layer as `parley-sandboxd --doctor` does; 0, or 1 when guest mode cannot be had here. */
int guest_doctor(void) MUST_USE;

/** The whole life of a guest. `argv` (with the program's name) is what its front is started with. Returns only when it
 *  could not start: 1, logged. */
int guest_main(const struct settings *settings, const struct guest_options *options, char *const argv[]) MUST_USE;
