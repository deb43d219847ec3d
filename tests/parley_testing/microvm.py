"""What tests of isolation microvm need: a kernel for the guests, which scripts/install test fetches, and QEMU."""
import glob
import os
import unittest

from .deployment import BIN, ROOT

KERNELS = glob.glob(os.path.join(ROOT, "build", "microvm-kernel", "boot", "vmlinuz-*"))
# Where the programs need not be those with sanitizers: all of a guest's are interpreted.
RELEASE = os.path.join(ROOT, "build", "release", "bin")
FAST = RELEASE if os.access(os.path.join(RELEASE, "parley-microvm"), os.X_OK) and "PARLEY_TEST_BIN" not in os.environ else BIN
PROGRAMS = ("/usr/bin/qemu-system-x86_64", "/usr/lib/qemu/virtiofsd")


def missing():
    """What is not there, or None."""
    if os.geteuid() != 0:
        return "needs root for the isolation"
    for program in PROGRAMS:
        if not os.access(program, os.X_OK):
            return f"no {program}"
    return None if KERNELS else "no kernel in build/microvm-kernel: scripts/microvm-kernel build/microvm-kernel"


def needs_microvm(test):
    return unittest.skipIf(missing(), missing())(test)


def settings(offered="namespaces,microvm"):
    """The environment of a node that offers it."""
    return {"PARLEY_ISOLATION": offered, "PARLEY_MICROVM_KERNEL": KERNELS[0] if KERNELS else "", "PARLEY_WARM": "0"}
