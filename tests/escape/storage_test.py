"""A sandbox's disk limit holds, whatever it does, on the storage that the node has; the ioctls of btrfs give it nothing,
neither in its own files nor in a volume; a full disk is no dead end and nobody else's.

What counts is what the pool has lost on the host, not what the sandbox or the kernel's quota says. Each attack is seen
to work first where its limit is far away."""
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

MIB = 1 << 20
LIMIT_MB, ROOMY_MB, SLACK_MB = 32, 512, 8

# Each goes on until the kernel says no, or it has had three times the limit; then the program waits to be killed, as
# what is open counts.
ATTACKS = {
    "dd": "fd = new(0)\nwhile more(): os.write(fd, piece)",
    "small files": "while more(3000):\n    fd = new(count()); os.write(fd, piece[:2000]); os.close(fd)",
    "sparse files": "fd = new(0)\nwhile more(4096): os.pwrite(fd, piece[:4096], count() << 22)",
    "fallocate": "while more(): fd = new(count()); os.posix_fallocate(fd, 0, MIB); os.close(fd)",
    "punched holes": """
while more(8 * MIB):
    fd = new(count())
    for i in range(8): os.write(fd, piece)
    os.fsync(fd)
    libc.fallocate(fd, 3, ctypes.c_long(4096), ctypes.c_long(8 * MIB - 8192))
    os.close(fd)""",
    "truncated": """
while more(8 * MIB):
    fd = new(count())
    for i in range(8): os.write(fd, piece)
    os.fsync(fd); os.ftruncate(fd, 4096); os.ftruncate(fd, 1 << 40); os.close(fd)""",
    "unlinked but open": """
while more():
    if count() % 4 == 1: fd = new(number[0]); os.unlink(str(number[0]))
    os.write(fd, piece)
    os.fsync(fd)""",
    "no copy on write": """
import fcntl
while more(8 * MIB):
    fd = new(count())
    try: fcntl.ioctl(fd, 0x40086602, (0x800000).to_bytes(8, 'little'))
    except OSError: pass
    os.posix_fallocate(fd, 0, 8 * MIB)
    for i in range(8): os.write(fd, piece)
    os.close(fd)""",
    "without a name": "while more():\n    if count() % 4 == 1: fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)\n"
                      "    os.write(fd, piece)",
    "attributes": "while more(4000): fd = new(count()); os.setxattr(fd, 'user.a', piece[:3900]); os.close(fd)",
}

PROGRAM = """
import ctypes, os, time
libc = ctypes.CDLL(None)
MIB, MOST = 1 << 20, %(most)d
piece = os.urandom(MIB)
number, taken = [0], [0]
def count(): number[0] += 1; return number[0]
def more(bytes=MIB): taken[0] += bytes; return taken[0] <= MOST
def new(name): return os.open(str(name), os.O_RDWR | os.O_CREAT, 0o644)
os.makedirs('%(folder)s', exist_ok=True); os.chdir('%(folder)s')
folder = os.open('.', os.O_RDONLY)
told = os.open('/dev/shm/told', os.O_WRONLY | os.O_CREAT)
try:
%(attack)s
except OSError as why: os.write(told, b'%%d ' %% why.errno)
libc.syncfs(folder)
os.write(told, b'done')
time.sleep(600)
"""

# BTRFS_IOC_SUBVOL_CREATE, SNAP_CREATE_V2, SUBVOL_CREATE_V2, QGROUP_LIMIT, QGROUP_CREATE, QUOTA_CTL, SET_FEATURES,
# SNAP_DESTROY: what succeeded.
IOCTLS = """
import fcntl, os, sys
os.chdir(sys.argv[1])
folder = os.open('.', os.O_RDONLY)
name = lambda text: text.encode().ljust(4088, b'\\0')
v1 = lambda text: bytearray((0).to_bytes(8, 'little') + name(text))
v2 = lambda text: bytearray(folder.to_bytes(8, 'little') + bytes(48) + text.encode().ljust(4040, b'\\0'))
tries = {'subvolume': (0x5000940e, v1('loose')), 'snapshot': (0x50009417, v2('copy')),
         'subvolume2': (0x50009418, v2('loose2')),
         'limit': (0x8030942b, bytearray(bytes(8) + (1).to_bytes(8, 'little') + bytes([255] * 8) + bytes(24))),
         'quota': (0xc0109428, bytearray((2).to_bytes(8, 'little') + bytes(8))), 'destroy': (0x5000940f, v1('loose'))}
for what, (number, argument) in tries.items():
    if what not in (sys.argv[2:] or tries): continue
    try: fcntl.ioctl(folder, number, argument); print(what)
    except OSError: pass
"""


def in_launcher(deployment, program, *arguments):
    """Runs Python as the host's root where the pool is mounted."""
    launcher = min(deployment.pids("parley-sandboxd"))
    done = subprocess.run(["nsenter", "-m", "-t", str(launcher), "/usr/bin/python3", "-c", program, *arguments],
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class Held:
    """The attacks, for a deployment with one kind of storage."""
    kind, attacks = "", ()

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_STORAGE=cls.kind, PARLEY_WARM="0")

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()

    def setUp(self):
        self.threads = []

    def tearDown(self):
        for thread in self.threads:
            self.deployment.request("DELETE", f"/threads/{thread}/sandbox")

    def sandbox(self, disk_mb, **more):
        thread = f"{self._testMethodName}-{len(self.threads)}"
        self.threads.append(thread)
        grant = self.deployment.negotiate(thread, resources={"disk_mb": disk_mb, "memory_mb": 1024}, **more)
        self.assertEqual(grant["sandbox"]["storage"], self.kind)
        return grant

    def wait_for(self, what, seconds=120):
        deadline = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), deadline, "it does not happen")
            time.sleep(0.05)

    def attack(self, name, disk_mb):
        """MiB that the host has lost to it."""
        before = self.lost(None)
        grant = self.sandbox(disk_mb)
        attack = "\n".join("    " + line for line in ATTACKS[name].strip("\n").split("\n"))
        program = PROGRAM % {"most": 3 * LIMIT_MB * MIB, "folder": "/workspace/attack", "attack": attack}
        reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", program], detach=True)
        self.assertEqual(reply.status, 201, reply)
        told = ""

        def is_done():
            nonlocal told
            told = self.deployment.shell(grant, "cat /dev/shm/told 2>/dev/null || true")
            return told.endswith("done")
        self.wait_for(is_done)
        lost = self.lost(grant) - before
        thread = self.threads[-1]
        self.deployment.request("DELETE", f"/threads/{thread}/sandbox")
        return lost / MIB, told

    def test_attacks(self):
        for name in self.attacks:
            with self.subTest(name):
                freely, told = self.attack(name, ROOMY_MB)
                self.assertEqual(told, "done")
                self.assertGreater(freely, LIMIT_MB + SLACK_MB)
                held, told = self.attack(name, LIMIT_MB)
                self.assertLessEqual(held, LIMIT_MB + SLACK_MB)
                self.assertIn(told, ("28 done", "122 done"))

    def test_a_full_disk_is_no_dead_end(self):
        grant, neighbour = self.sandbox(LIMIT_MB), self.sandbox(LIMIT_MB)
        files = grant["endpoints"]["http"] + "/files/workspace/upload"
        self.deployment.exec(grant, cmd="dd if=/dev/zero of=/workspace/full bs=1M; echo x > /workspace/tiny")
        reply = self.deployment.request("PUT", files, "x" * (4 * MIB), token=grant["token"])
        self.assertEqual((reply.status, reply.code), (507, "DISK_FULL"), reply)
        self.assertEqual(self.deployment.shell(neighbour, "dd if=/dev/zero of=/workspace/f bs=1M count=16 2>&1 && echo ok"
                                               )[-3:], "ok\n")
        self.deployment.shell(grant, "rm /workspace/full")

        def is_written():
            return self.deployment.exec(grant, cmd="dd if=/dev/zero of=/workspace/f bs=1M count=16").json[
                "exit_code"] == 0
        self.wait_for(is_written)


@needs_root
class Btrfs(Held, unittest.TestCase):
    kind, attacks = "btrfs", tuple(ATTACKS)

    @classmethod
    def setUpClass(cls):
        try:
            super().setUpClass()
        except AssertionError as why:
            if "storage \"btrfs\" cannot be had" in str(why):
                raise unittest.SkipTest("no btrfs on this host") from why
            raise
        cls.pool = cls.deployment.state + "/sandboxd/storage/pool"

    def lost(self, grant):
        """Bytes of the pool in use, once what was removed is gone."""
        del grant
        return int(in_launcher(self.deployment, """
import fcntl, os, subprocess, sys, time
top, BTRFS_IOC_SYNC = os.open(sys.argv[1], os.O_RDONLY), 0x9408 # wakes what cleans
for i in range(6000):
    fcntl.ioctl(top, BTRFS_IOC_SYNC)
    if not subprocess.check_output(['btrfs', 'subvolume', 'list', '-d', sys.argv[1]]): break
    time.sleep(0.02)
fcntl.ioctl(top, BTRFS_IOC_SYNC)
pool = os.statvfs(sys.argv[1])
print((pool.f_blocks - pool.f_bfree) * pool.f_bsize)""", self.pool))

    def test_ioctls(self):
        """In its own files, an overlay, and in a volume, which is a bare btrfs."""
        grant = self.sandbox(LIMIT_MB, volumes=[{"name": "data", "path": "/data"}])
        self.assertEqual(self.deployment.shell(grant, "touch /data/here && stat -f -c %T /data"), "btrfs\n")
        for folder in ("/workspace", "/data", "/tmp"):
            reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", IOCTLS, folder])
            self.assertEqual((reply.json["exit_code"], reply.json["stdout"]), (0, ""), reply)
        outside = in_launcher(self.deployment, IOCTLS, self.volume_with("here"), "subvolume", "subvolume2", "snapshot",
                              "destroy")
        self.assertEqual(outside, "subvolume\nsnapshot\nsubvolume2\ndestroy\n")

    def volume_with(self, name):
        return in_launcher(self.deployment, "import glob, os, sys\n"
                           "print(os.path.dirname(glob.glob(sys.argv[1])[0]), end='')", f"{self.pool}/volumes/*/{name}")

    def test_a_full_disk_restored_is_no_dead_end(self):
        grant = self.sandbox(LIMIT_MB)
        self.deployment.exec(grant, cmd="dd if=/dev/zero of=/workspace/full bs=1M; cd /workspace; for i in $(seq 999); do "
                                        ": > $i || break; done; sync")
        reply = self.deployment.request("POST", f"/sandboxes/{grant['sandbox']['id']}/snapshots", {"name": "full"})
        self.assertEqual(reply.status, 201, reply)
        again = self.sandbox(LIMIT_MB, template="snapshot:full", volumes=[{"name": "any", "path": "/new/folder"}])
        self.assertEqual(self.deployment.shell(again, "rm /workspace/full && sync && hostname && cat /etc/hostname"),
                         f"{again['sandbox']['name']}\n" * 2)
        self.deployment.shell(again, "dd if=/dev/zero of=/workspace/f bs=1M count=16")

    def test_a_volume_is_held(self):
        grant = self.sandbox(ROOMY_MB, volumes=[{"name": "small", "path": "/data", "size_mb": LIMIT_MB}])
        reply = self.deployment.exec(grant, cmd="dd if=/dev/zero of=/data/f bs=1M count=100 2>&1; stat -c %s /data/f")
        self.assertLessEqual(int(reply.json["stdout"].split()[-1]), LIMIT_MB * MIB)

    def test_the_pool_is_nobodys(self):
        """Mounted for the launcher alone, and closed to the host's users should it be seen."""
        with open("/proc/self/mounts") as mounts:
            self.assertNotIn(self.pool, mounts.read())
        self.assertEqual(os.stat(os.path.dirname(self.pool)).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(self.pool + ".img").st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(self.pool), [])


@needs_root
class Tmpfs(Held, unittest.TestCase):
    kind, attacks = "tmpfs", ("dd", "small files", "sparse files", "fallocate", "unlinked but open", "without a name")

    def lost(self, grant):
        """Bytes of its tmpfs in use: blocks are pages of memory, there are no others."""
        if grant is None:
            return 0
        used = self.deployment.shell(grant, "stat -f -c '%b %f %S' /workspace").split()
        return (int(used[0]) - int(used[1])) * int(used[2])


if __name__ == "__main__":
    unittest.main()
