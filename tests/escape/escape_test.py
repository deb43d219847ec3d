"""Each attempt of attempts.py works outside (as root) and fails inside, as the sandbox's user and as its root; afterwards
the neighbour still runs."""
import os
import platform
import secrets
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from attempts import ATTEMPTS, PRELUDE  # noqa: E402
from parley_testing import Deployment, needs_root  # noqa: E402


@needs_root
@unittest.skipUnless(platform.machine() == "x86_64", "system call numbers are x86_64's")
class Escape(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plant()
        cls.deployment = Deployment(PARLEY_ROOT_USER="allowed")
        cls.grant = cls.deployment.negotiate("escape")
        cls.neighbour = cls.deployment.negotiate("neighbour")

    @classmethod
    def plant(cls):
        """What there is to steal on the host."""
        cls.secret = secrets.token_hex(8)
        cls.name = secrets.token_hex(4)
        cls.secret_path = f"/var/tmp/parley-secret-{cls.name}"
        cls.shm_path = f"/dev/shm/parley-secret-{cls.name}"
        for path in (cls.secret_path, cls.shm_path):
            with open(path, "w") as planted:
                planted.write(cls.secret)
            os.chmod(path, 0o644)
        cls.marker = f"parley-victim-{cls.name}"
        cls.victim = subprocess.Popen(["/bin/bash", "-c", "while :; do sleep 600; done", cls.marker],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.listener = socket.create_server(("127.0.0.1", 0))
        cls.abstract = socket.socket(socket.AF_UNIX)
        cls.abstract.bind("\0" + cls.marker)
        cls.abstract.listen()

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()
        cls.victim.kill()
        cls.victim.wait()
        cls.listener.close()
        cls.abstract.close()
        for path in (cls.secret_path, cls.shm_path):
            os.unlink(path)
        cls.clear()

    @classmethod
    def clear(cls):
        """What attempts that succeeded outside have left."""
        for path in (f"/usr/lib/{cls.name}", f"/tmp/parley-null-{cls.name}", f"/tmp/id-{cls.name}"):
            if os.path.exists(path):
                os.unlink(path)

    def program(self, name, trace_target):
        text = ATTEMPTS[name]
        for key, value in {"secret": self.secret, "secret_path": self.secret_path, "shm_path": self.shm_path,
                           "probe_name": self.name, "victim": self.victim.pid, "marker": self.marker,
                           "port": self.listener.getsockname()[1], "abstract": self.marker,
                           "trace_target": trace_target}.items():
            text = text.replace("{" + key + "}", str(value))
        return PRELUDE + text

    def outside(self, name):
        self.clear()
        done = subprocess.run(["/usr/bin/python3", "-c", self.program(name, self.victim.pid)], capture_output=True,
                              text=True, timeout=30)
        return done.stdout, done.stderr

    def inside(self, name, **how):
        reply = self.deployment.exec(self.grant, argv=["/usr/bin/python3", "-c", self.program(name, 1)], timeout=30, **how)
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def attempt(self, name, **how):
        stdout, stderr = self.outside(name)
        if "ESCAPED" not in stdout:
            self.skipTest(f"does not work outside here either: {stderr.strip().splitlines()[-1:]}")
        result = self.inside(name, **how)
        self.assertNotIn("ESCAPED", result["stdout"], f"{name} got out")
        self.assertEqual(self.deployment.shell(self.neighbour, "echo alive"), "alive\n")


    def test_root_of_the_sandbox_writes_its_own_usr(self):
        """A root it is, or the attempts as root would show nothing."""
        self.assertEqual(self.deployment.shell(self.grant, f"id -u; touch /usr/lib/{self.name} && echo done", user="root"),
                         "0\ndone\n")
        self.assertEqual(self.deployment.shell(self.neighbour, f"ls /usr/lib | grep -c {self.name} || true"), "0\n")
        self.assertEqual(self.deployment.exec(self.neighbour, cmd="id -u", user="root").json["stdout"], "0\n")


def add(name):
    setattr(Escape, "test_" + name, lambda self: self.attempt(name))


# What is no way out for the root of a sandbox: its own /usr is a copy, and chroot leads nowhere but further in.
OF_ITS_ROOT = {"becomes_root", "writes_host_usr", "chroots_out"}


def add_as_root(name):
    setattr(Escape, "test_as_root_" + name, lambda self: self.attempt(name, user="root"))


for attempt_name in ATTEMPTS:
    add(attempt_name)
    if attempt_name not in OF_ITS_ROOT:
        add_as_root(attempt_name)

if __name__ == "__main__":
    unittest.main()
