"""What the host has for all is not for one sandbox to use up; what a sandbox has for itself it cannot fill so that
nothing works in it any more; and what it reads of the host is little."""
import errno
import glob
import os
import platform
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from attempts.program import PRELUDE  # noqa: E402
from parley_testing import Deployment, needs_root  # noqa: E402

# Takes as much as there is, says how much in a file, and keeps it until it is killed.
HOLD = "\nimport time\nopen('/tmp/taken', 'w').write(str(taken))\ntime.sleep(600)\n"

INOTIFY = PRELUDE + """
taken = 0
while taken < 1000 and libc.inotify_init() >= 0: taken += 1
""" + HOLD

TIMERS = PRELUDE + """
timer = ctypes.c_void_p()
taken = 0
while taken < 200000 and libc.syscall(222, 1, None, ctypes.byref(timer)) == 0: taken += 1
""" + HOLD

QUEUES = PRELUDE + """
librt = ctypes.CDLL('librt.so.1', use_errno=True)
taken = 0
while taken < 300 and librt.mq_open(b'/parley-%d' % taken, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0: taken += 1
""" + HOLD

TERMINALS = """
import os
held = []
try:
    while len(held) < 500: held.append(os.openpty())
except OSError: pass
taken = len(held)
""" + HOLD

# AIO contexts: the errno of the first attempt.
CONTEXTS = PRELUDE + """
context = ctypes.c_ulong(0)
print(0 if libc.syscall(206, 1, ctypes.byref(context)) == 0 else ctypes.get_errno())
"""

# Bytes queued in TCP connections to itself that nobody reads, at most 1 GiB.
TCP = """
import socket
listener = socket.create_server(('127.0.0.1', 0), backlog=1000)
held, taken, block = [], 0, bytes(1 << 20)
while taken < 1 << 30 and len(held) < 800:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
    one.settimeout(1)
    try:
        one.connect(listener.getsockname())
        held += [one, listener.accept()[0]]
        one.setblocking(False)
        while True: taken += one.send(block)
    except BlockingIOError: pass
    except OSError: break
""" + HOLD

FILL = r"""
import os
for folder in ('/tmp', '/dev/shm'):
    size, number = 0, 0
    with open(folder + '/fill', 'wb', buffering=0) as big:
        try:
            while True: size += big.write(bytes(1 << 16))
        except OSError as why: print(folder, 'full', why.errno, flush=True)
    try:
        while True:
            os.close(os.open(folder + '/%d' % number, os.O_CREAT | os.O_WRONLY))
            number += 1
    except OSError as why: print(folder, 'full', why.errno, flush=True)
"""

SYSTEM_V = PRELUDE + """
libc.shmat.restype = ctypes.c_void_p
for each in range(4):
    shared = check(libc.shmget(0, 32 << 20, 0o1600))
    ctypes.memset(libc.shmat(shared, None, 0), 1, 32 << 20)
print('filled')
"""

PLANT = """
import os, sys
os.setgroups([]); os.setresgid(1000, 1000, 1000); os.setresuid(1000, 1000, 1000)
for folder in ('tmp', 'run', 'var/tmp', 'run/lock', 'workspace', 'etc', '.'):
    try:
        open(sys.argv[1] + '/' + folder + '/planted', 'w').write('x')
        print('PLANTED in', folder)
    except OSError: pass
"""


def on_host(program, *arguments):
    return subprocess.run(["/usr/bin/python3", "-c", program, *arguments], capture_output=True, text=True,
                          timeout=60).stdout


@needs_root
@unittest.skipUnless(platform.machine() == "x86_64", "system call numbers are x86_64's")
class Budgets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.neighbour = cls.deployment.negotiate("neighbour")

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()

    def setUp(self):
        self.grant = self.deployment.negotiate(self._testMethodName, resources={"memory_mb": 256, "pids": 64})

    def tearDown(self):
        self.deployment.request("DELETE", f"/threads/{self._testMethodName}/sandbox")

    def hold(self, program):
        """Runs a program that ends in HOLD; how much it took."""
        grant = self.grant
        reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", program], detach=True)
        self.assertEqual(reply.status, 201, reply)
        return int(self.deployment.shell(grant, "until [ -s /tmp/taken ]; do sleep 0.05; done; cat /tmp/taken",
                                         timeout=60))

    def host_and_neighbour_can(self, program):
        """The same program takes something on the host as root, and in another sandbox."""
        alone = program.replace(HOLD, "\nprint(taken)\n")
        self.assertGreater(int(on_host(alone)), 0)
        reply = self.deployment.exec(self.neighbour, argv=["/usr/bin/python3", "-c", alone])
        self.assertGreater(int(reply.json["stdout"]), 0, reply)

    # ---- what the kernel counts by user ----

    def test_inotify(self):
        self.assertLess(self.hold(INOTIFY), 1000)
        self.host_and_neighbour_can(INOTIFY)

    def test_timers(self):
        self.assertLessEqual(self.hold(TIMERS), 4096)
        self.host_and_neighbour_can(TIMERS)

    def test_message_queues(self):
        self.assertLess(self.hold(QUEUES), 300)
        reply = self.deployment.exec(self.neighbour, argv=["/usr/bin/python3", "-c",
                                                           QUEUES.replace(HOLD, "\nprint(taken)\n")])
        self.assertGreater(int(reply.json["stdout"]), 0, reply)

    # ---- what the kernel counts for all ----

    def test_terminals(self):
        self.assertLessEqual(self.hold(TERMINALS), 64)

    def test_aio_contexts(self):
        reply = self.deployment.exec(self.grant, argv=["/usr/bin/python3", "-c", CONTEXTS])
        self.assertEqual(reply.json["stdout"], f"{errno.ENOSYS}\n", reply)

    def test_tcp_buffers(self):
        """256 MiB of memory; on cgroup v1 the buffers are an eighth on top, on v2 they are memory."""
        self.assertLess(self.hold(TCP) >> 20, 256)
        self.assertEqual(self.deployment.shell(self.grant, "echo alive"), "alive\n")

    # ---- what it has for itself ----

    def test_system_v_memory_ends_with_its_process(self):
        for _ in range(3):
            reply = self.deployment.exec(self.grant, argv=["/usr/bin/python3", "-c", SYSTEM_V])
            self.assertEqual(reply.json["stdout"], "filled\n", reply)
        self.assertEqual(self.deployment.shell(self.grant, "ipcs -m | grep -c 0x || true"), "0\n")

    # ---- the host ----

    def test_a_host_user_plants_nothing(self):
        os.chmod(self.deployment.folder, 0o755)
        try:
            self.assertEqual(on_host(PLANT, self.deployment.state + "/sandboxd/templates/base"), "")
            for skeleton in glob.glob(self.deployment.state + "/sandboxd/templates/base-*"):
                self.assertEqual(on_host(PLANT, skeleton), "")
        finally:
            os.chmod(self.deployment.folder, 0o700)

    def test_slots_are_for_root(self):
        for lock in glob.glob("/run/parley/slots/*"):
            with open(lock) as text:
                mine = text.read().startswith(self.deployment.state + "\n")
            self.assertTrue(not mine or os.stat(lock).st_mode & 0o777 == 0o600, lock)
        self.assertEqual(os.stat("/run/parley/slots").st_mode & 0o777, 0o700)

    def test_facts_of_the_host(self):
        with open("/proc/cmdline") as told:
            self.assertNotEqual(told.read(), "")
        self.assertEqual(self.deployment.shell(
            self.grant, "cd /proc; cat cmdline diskstats interrupts partitions buddyinfo 2>/dev/null | wc -c"), "0\n")
        self.assertEqual(self.deployment.shell(self.grant, "free -m > /dev/null; top -bn1 > /dev/null; echo fine"),
                         "fine\n")


@needs_root
class DiskOfMemory(unittest.TestCase):
    """storage tmpfs: what is written is memory that no OOM killer frees."""

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_STORAGE="tmpfs")
        cls.grant = cls.deployment.negotiate("full", resources={"memory_mb": 256})

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()

    def fill_and_clear(self, grant):
        reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", FILL], timeout=60)
        self.assertEqual(reply.json["stdout"].count(f"full {errno.ENOSPC}"), 4, reply)
        self.assertFalse(reply.json.get("oom"), reply)
        self.assertEqual(self.deployment.shell(grant, "python3 -c 'print(6 * 7)'"), "42\n")
        self.assertEqual(self.deployment.shell(grant, "find /tmp /dev/shm -type f -delete; echo > /tmp/x; echo made"),
                         "made\n")

    def test_a_full_disk(self):
        self.fill_and_clear(self.grant)

    def test_a_full_disk_as_large_as_can_be(self):
        refused = self.deployment.request("POST", "/threads/largest/sandbox",
                                          {"resources": {"memory_mb": 256, "disk_mb": 256}})
        self.assertEqual(refused.status, 400, refused)
        most = int(re.search(r"disk_mb must be at most (\d+)", refused.json["error"]["message"])[1])
        grant = self.deployment.negotiate("largest", resources={"memory_mb": 256, "disk_mb": most})
        self.fill_and_clear(grant)
        self.deployment.request("DELETE", "/threads/largest/sandbox")


if __name__ == "__main__":
    unittest.main()
