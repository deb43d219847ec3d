/** microvm.h - names that both sides of a microVM's wall use: the launcher, which provides what a machine is made of,
 *  and parley-microvm, which the keeper starts in the sandbox's slot (isolation/guest) and which makes one. */
#pragma once

/* The keeper's root: what the guest may see and write; the folder that the launcher made (parts.h), read-only; in that,
 * what the guest's front is made of. The host's /usr is there too: the monitor, the file server, their libraries. */
#define MICROVM_SANDBOX "/sandbox"
#define MICROVM_FOLDER  "/bundle"
#define MICROVM_GUEST   MICROVM_FOLDER "/guest"

/* Where MICROVM_GUEST is to be seen by the guest, read-only: a folder of its root that nothing else is in. */
#define MICROVM_GUEST_INSIDE ".parley"

/* In MICROVM_FOLDER. */
#define MICROVM_PROGRAM   "parley-microvm"
#define MICROVM_KERNEL    "kernel"
#define MICROVM_INITRAMFS "initramfs"

/* Where the front listens, inside the guest, and the monitor in the slot's network namespace. */
#define MICROVM_PORT 44772

/* What the monitor says at its standard input, once, when the guest's front has answered. */
#define MICROVM_READY 0x01
