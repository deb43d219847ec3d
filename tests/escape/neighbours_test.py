"""What a sandbox can do to its neighbour, or learn of it: nothing, as no inode is both's. A lock and a watch are an
inode's, by whatever mount it is reached. Each attack is first seen to work where both ends are in one sandbox."""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

# All that is mounted and all devices: what another has locked is printed, the rest is locked as long as it is told to.
LOCKS = """
import fcntl, glob, os, sys, time
held, seen = [], set()
for path in sorted({line.split()[4] for line in open('/proc/self/mountinfo')} | set(glob.glob('/dev/*'))):
    try: held.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError: continue
    inode = os.fstat(held[-1]).st_dev, os.fstat(held[-1]).st_ino
    if inode in seen: continue
    seen.add(inode)
    try: fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: print(path)
    except OSError: pass
open('/workspace/' + sys.argv[1], 'w').write('')
time.sleep(int(sys.argv[2]))
"""

# Who writes to a device is seen, and that it does: 1 when anybody did until it was told "enough".
WATCH = """
import ctypes, os, time
libc, IN_MODIFY, IN_CLOSE_WRITE = ctypes.CDLL(None), 2, 8
watch = libc.inotify_init()
os.set_blocking(watch, False)
for path in (b'/dev', b'/dev/null', b'/dev/zero'): libc.inotify_add_watch(watch, path, IN_MODIFY | IN_CLOSE_WRITE)
open('/dev/shm/watches', 'w').write('')
while not os.path.exists('/dev/shm/enough'): time.sleep(0.05)
try: print(min(1, len(os.read(watch, 65536))))
except BlockingIOError: print(0)
"""


@needs_root
class Neighbours(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.grant = cls.deployment.negotiate("attacker")
        cls.neighbour = cls.deployment.negotiate("neighbour")

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()

    def start(self, program, *arguments):
        reply = self.deployment.exec(self.grant, argv=["/usr/bin/python3", "-c", program, *arguments], detach=True)
        self.assertEqual(reply.status, 201, reply)
        return reply.json["id"]

    def wait_for(self, path):
        deadline = time.monotonic() + 60
        while "yes" not in self.deployment.shell(self.grant, f"test -e {path} && echo yes || true"):
            self.assertLess(time.monotonic(), deadline, f"{path} does not come")
            time.sleep(0.05)

    def test_locks(self):
        self.start(LOCKS, "held", "600")
        self.wait_for("/workspace/held")
        again, other = (self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", LOCKS, "again", "0"]).json
                        for grant in (self.grant, self.neighbour))
        self.assertIn("/dev/null\n", again["stdout"], again)
        self.assertEqual((other["exit_code"], other["stdout"]), (0, ""), other)

    def watched(self, toucher):
        self.deployment.shell(self.grant, "rm -f /dev/shm/watches /dev/shm/enough")
        started = self.start(WATCH)
        self.wait_for("/dev/shm/watches")
        self.deployment.shell(toucher, "echo x > /dev/null; echo x > /dev/zero")
        self.deployment.shell(self.grant, ": > /dev/shm/enough")
        url = f"{self.grant['endpoints']['http']}/processes/{started}/output"
        deadline, events = time.monotonic() + 60, []
        while not any(event["type"] == "exit" for event in events):
            self.assertLess(time.monotonic(), deadline, "the watch does not end")
            events = self.deployment.request("GET", url, token=self.grant["token"]).events
        return "".join(event["data"] for event in events if event["type"] == "stdout")

    def test_watches(self):
        self.assertEqual(self.watched(self.grant), "1\n")
        self.assertEqual(self.watched(self.neighbour), "0\n")


if __name__ == "__main__":
    unittest.main()
