/** monitor.h - parley-microvm: makes one microVM inside a sandbox's slot, and stays as its parent.
 *
 *  Started by the keeper as root of the slot's user namespace, with the letter as the first message of its standard
 *  input (a socket). It begins two programs of the host, each with a root of its own in which nothing else is to be
 *  seen, and none of the slot's other processes:
 *   - the file server (virtiofsd), which has the slot's root file system and capabilities over it, and
 *   - the virtual machine monitor (vmm.h), which has neither files nor capabilities and another uid.
 *  When either ends, both do, and so does parley-microvm. Static, libc only. */
#pragma once

#include "sandboxd/isolation/microvm/boot/boot.h"
#include "sandboxd/isolation/microvm/vmm.h"
#include "shared/base/error.h"

#include <stddef.h>
#include <sys/types.h>

/* --- places.c: what the two see --- */

#define PLACES_FILES "/files" /* the slot's root, in the file server's own */

/** Makes a private mount namespace with both roots. */
bool places_make(struct error *err) MUST_USE;
/** Enters the programs' root; with the slot's files below PLACES_FILES or without. For a child of its own. */
bool places_enter(bool with_files, struct error *err) MUST_USE;

/* --- machine.c: what the guest is made of --- */

/** The letter: one message of a SEQPACKET socket, or all until the end of what else it is. */
bool machine_read_letter(int from, char **letter, size_t *size, struct error *err) MUST_USE;
/** A memfd of MICROVM_INITRAMFS with an archive behind it that holds the letter, which is wiped, and the limits. -1 on
 *  failure. */
int machine_make_initramfs(char *letter, size_t size, const struct boot_limits *limits, struct error *err) MUST_USE;

/** How fast the CPU's time stamp counter runs, to some parts in a million; takes 20 ms. 0: it has none. */
uint32_t machine_measure_tsc(void) MUST_USE;

/* --- programs.c: who runs --- */

/** Starts the file server; `listener` is the socket that it accepts the monitor at. Its pid, -1 on failure. */
pid_t programs_start_files(int listener, int errors, struct error *err) MUST_USE;
/** Starts the monitor. */
pid_t programs_start_machine(const struct vmm *vmm, const struct vmm_machine *machine, int errors,
                             struct error *err) MUST_USE;
/** Starts a process that ends with status 0 when somebody speaks HTTP at 127.0.0.1:port. */
pid_t programs_start_probe(uint16_t port, struct error *err) MUST_USE;
