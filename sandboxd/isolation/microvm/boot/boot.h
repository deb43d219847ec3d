/** boot.h - the first program inside a microVM: what the initramfs holds for it, and its parts.
 *
 *  Static, libc only, PID 1 of the guest. It loads the drivers, takes the network card up, mounts the sandbox's root
 *  (virtiofs) with fresh /proc, /sys, /dev and /run, starts the guest's front there with the letter on its standard
 *  input, reaps whatever is left to it, and powers the machine off when that program ends. */
#pragma once

#include "shared/base/error.h"

#include <stdint.h>

/* Names in the initramfs (microvm/initramfs.h writes them). */
#define BOOT_PROGRAM     "init"
#define BOOT_MODULES     "modules"     /* NN-name.ko, loaded in the order of their names */
#define BOOT_ARGUMENTS   "arguments"   /* argv of the guest's front, each with a NUL behind it */
#define BOOT_ENVIRONMENT "environment" /* its environment, likewise */
#define BOOT_LETTER      "letter"      /* 0400; removed once it is read */
#define BOOT_NETWORK     "network"     /* "ADDRESS NETMASK" of eth0 */

#define BOOT_LIMITS      "limits" /* struct boot_limits, as text: "PIDS INODES" */

/** What the guest is held to from within. */
struct boot_limits {
    uint32_t pids;   /* processes and threads, with those of the guest's front */
    uint32_t inodes; /* that its kernel may remember: the file server holds a descriptor for each */
};

/** Reads /limits. */
bool boot_read_limits(struct boot_limits *limits, struct error *err) MUST_USE;
/** A cgroup for all but this process; returns its cgroup.procs, to write "0" to: the guest sees no cgroup file system.
 *  -1 on failure. */
int boot_make_group(const struct boot_limits *limits, struct error *err) MUST_USE;
/** Has the kernel forget what it needs no more, if it remembers more than half of limits->inodes. `count` is
 *  /proc/sys/fs/inode-nr, `caches` is /proc/sys/vm/drop_caches (proc(5)). */
void boot_trim_inodes(const struct boot_limits *limits, int count, int caches);

/** Loads all of /modules. ERROR_INTERNAL names the one that failed. */
bool boot_load_modules(struct error *err) MUST_USE;

/** Loopback and eth0 up, eth0 with the address of /network; no route beyond it. */
bool boot_raise_network(struct error *err) MUST_USE;

/** Mounts the root file system and what belongs on it, and makes it this process's root. */
bool boot_enter_root(struct error *err) MUST_USE;
