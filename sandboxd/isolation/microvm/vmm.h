/** vmm.h - the face of a virtual machine monitor: what it is told of a machine, and what it gives back.
 *
 *  It is told: the kernel, the initramfs (which holds the sandbox's letter, so that no monitor needs a way of its own
 *  for secrets), memory, CPUs, the server of the root file system, and the port where the guest's front listens. It
 *  gives back: a process whose end is the machine's end (a guest that powers off ends it with exit status 0), and a
 *  socket to the guest's front, as often as asked. It is started in a network namespace that has loopback alone, and
 *  sees no file but its own program's. An implementation is one file and one row of vmm_find. Only libc: it is
 *  compiled into the static parley-microvm. */
#pragma once

#include "shared/base/error.h"

#include <stddef.h>
#include <stdint.h>

/** The tag under which the guest mounts its root (virtiofs). */
#define VMM_ROOT_TAG "root"

/** The guest's address, where it reaches its host's loopback at most through what is forwarded to it: the machine has
 *  no other network. The guest's front listens at VMM_GUEST_ADDRESS, any port. */
#define VMM_GUEST_ADDRESS "10.0.2.15"
#define VMM_GUEST_NETMASK "255.255.255.0"

/** The least memory of a sandbox, with whatever monitor. */
#define VMM_SANDBOX_MIN_BYTES (256ULL << 20)

#define VMM_CPUS_MAX          8

/** One machine. Descriptors are borrowed; they are read through /proc/self/fd. */
struct vmm_machine {
    int kernel;            /* bzImage */
    int initramfs;         /* one or more newc archives */
    uint64_t memory_bytes; /* of the guest; whole MiB */
    uint32_t tsc_khz;    /* of this machine's time stamp counter, which an interpreted guest reads too; 0: not known */
    uint32_t cpus;       /* 1..VMM_CPUS_MAX */
    int root_server;     /* connected to the vhost-user file system server */
    int console;         /* where the serial console is written to: a pipe */
    uint16_t host_port;  /* on 127.0.0.1 of the monitor's network namespace ... */
    uint16_t guest_port; /* ... leads to this one of VMM_GUEST_ADDRESS */
};

enum { VMM_ARGUMENTS_MAX = 64, VMM_TEXT_BYTES = 4096 };

/** A command line that vmm.describe fills; embedded, owns its texts. */
struct vmm_command {
    char *arguments[VMM_ARGUMENTS_MAX + 1]; /* NULL-terminated, into `text` */
    size_t count;
    char text[VMM_TEXT_BYTES];
    size_t used;
};

struct vmm {
    const char *name;
    const char *program;     /* where Debian has it */
    const char *package;     /* that holds it */
    uint64_t overhead_bytes; /* that the monitor takes beyond the guest's memory */
    /** Writes the whole command line; `program` is argv[0]. ERROR_INVALID when it does not fit, or the monitor cannot
     *  make such a machine. */
    bool (*describe)(const struct vmm_machine *machine, const char *program, struct vmm_command *command,
                     struct error *err);
};

extern const struct vmm vmm_qemu;

/** By name ("qemu"); NULL and ERROR_INVALID naming those there are. */
const struct vmm *vmm_find(const char *name, struct error *err) MUST_USE;

/** Appends one argument, formatted. ERROR_INVALID when there is no room. */
bool vmm_argument(struct vmm_command *command, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4))) MUST_USE;

/** How much memory a machine of a sandbox has: what the sandbox may take less what the monitor and the file server
 *  take beside it, in whole MiB. ERROR_INVALID names the least that a sandbox needs. */
bool vmm_memory(const struct vmm *vmm, uint64_t sandbox_bytes, uint64_t *guest_bytes, struct error *err) MUST_USE;

/** How many CPUs for so many thousandths of a core: rounded up, 1..VMM_CPUS_MAX. */
uint32_t vmm_cpus(uint32_t cpu_milli) MUST_USE;
