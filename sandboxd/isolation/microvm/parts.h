/** parts.h - what microVMs of this node are made of: a kernel, its drivers, and our programs, checked and put into one
 *  folder that slots see read-only (microvm.h). */
#pragma once

#include "shared/base/error.h"

#include <stddef.h>

/** Where an operator says they are. NULL: not said. */
struct parts_settings {
    const char *kernel;   /* microvm_kernel: a bzImage, "vmlinuz-VERSION" beside or below a lib/modules/VERSION */
    const char *vmm;      /* microvm_vmm: the name of a monitor (vmm.h) */
    const char *programs; /* the folder of parley-microvm and parley-microvm-boot */
};

/** What the guest's front is started with, in the guest. */
struct parts_front {
    const char *const *arguments;   /* argv, NULL-terminated */
    const char *const *environment; /* NULL-terminated */
};

/** The folder of the kernel's modules: of "DIR/vmlinuz-VERSION" it is DIR/../lib/modules/VERSION, which is right for an
 *  installed package and for one that was only unpacked (dpkg -x). The caller frees. NULL and ERROR_INVALID. */
char *parts_find_modules(const char *kernel, struct error *err) MUST_USE;

/** Whether all is there: ERROR_NOT_FOUND says what is missing and how to get it. Changes nothing. */
bool parts_check(const struct parts_settings *settings, struct error *err) MUST_USE;

/** Writes `folder` (0755, its files 0644 or 0755; each replaced as a whole): MICROVM_KERNEL, MICROVM_INITRAMFS and
 *  MICROVM_PROGRAM. ERROR_NOT_FOUND as parts_check. */
bool parts_make(const struct parts_settings *settings, const struct parts_front *front, const char *folder,
                struct error *err) MUST_USE;
