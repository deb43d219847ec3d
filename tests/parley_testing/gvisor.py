"""What tests of isolation gvisor need: Debian's runsc."""
import os
import unittest

RUNSC = "/usr/bin/runsc"


def missing():
    """What is not there, or None."""
    if os.geteuid() != 0:
        return "needs root for the isolation"
    return None if os.access(RUNSC, os.X_OK) else f"no {RUNSC}: apt install runsc"


def needs_gvisor(test):
    return unittest.skipIf(missing(), missing())(test)


def settings(offered="namespaces,gvisor"):
    """The environment of a node that offers it."""
    return {"PARLEY_ISOLATION": offered, "PARLEY_WARM": "0"}
