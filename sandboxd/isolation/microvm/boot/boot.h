/** boot.h - the first program inside a microVM: what the initramfs holds for it, and its parts.
 *
 *  Static, libc only, PID 1 of the guest. It loads the drivers, takes the network card up, mounts the sandbox's root
 *  (virtiofs) with fresh /proc, /sys, /dev and /run, starts the guest's front there with the letter on its standard
 *  input, reaps whatever is left to it, and powers the machine off when that program ends. */
#pragma once

#include "shared/base/error.h"

/* Names in the initramfs (microvm/initramfs.h writes them). */
#define BOOT_PROGRAM     "init"
#define BOOT_MODULES     "modules"     /* NN-name.ko, loaded in the order of their names */
#define BOOT_ARGUMENTS   "arguments"   /* argv of the guest's front, each with a NUL behind it */
#define BOOT_ENVIRONMENT "environment" /* its environment, likewise */
#define BOOT_LETTER      "letter"      /* 0400; removed once it is read */
#define BOOT_NETWORK     "network"     /* "ADDRESS NETMASK" of eth0 */

/** Loads all of /modules. ERROR_INTERNAL names the one that failed. */
bool boot_load_modules(struct error *err) MUST_USE;

/** Loopback and eth0 up, eth0 with the address of /network; no route beyond it. */
bool boot_raise_network(struct error *err) MUST_USE;

/** Mounts the root file system and what belongs on it, and makes it this process's root. */
bool boot_enter_root(struct error *err) MUST_USE;
