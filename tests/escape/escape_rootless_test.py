"""The attempts of attempts/ once more, against sandboxes of an ordinary user: the same walls, made with fewer rights."""
import os
import platform
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from escape_test import Escapes, add_all, host_root_has  # noqa: E402
from parley_testing.rootless import RootlessDeployment, RootlessUser, needs_rootless  # noqa: E402


@needs_rootless
@unittest.skipUnless(platform.machine() == "x86_64", "system call numbers are x86_64's")
class Rootless(Escapes, unittest.TestCase):
    test_root_of_the_sandbox_writes_its_own_usr = None  # it cannot: the host's is read-only here
    test_a_crash_runs_nothing_on_the_host = None  # told by the host uid of the crashed, which is another here

    @classmethod
    def deploy(cls):
        cls.user = RootlessUser(slots=4)
        cls.addClassCleanup(cls.user.close)
        return RootlessDeployment(cls.user, PARLEY_ROOT_USER="allowed", PARLEY_WARM="0")

    @classmethod
    def negotiate(cls, thread, **_):
        return cls.deployment.negotiate(thread)  # without volumes

    def attempt(self, mechanism, attempt, user):
        """That it works outside escape_test.py has seen."""
        inside = self.run_once(user, mechanism)[attempt.name]
        if inside.what == "escaped" and not host_root_has(attempt.needs):
            self.skipTest(f"this host's root lacks capability {attempt.needs}: {attempt.wall}")
        self.assertNotEqual(inside.what, "escaped", f"{attempt.name} got out; it was to be stopped by: {attempt.wall}")


add_all(Rootless)

if __name__ == "__main__":
    unittest.main()
