"""The next tenant of a slot has its ids, its cgroups, its folder's name, its place in the stage: and nothing of the former's. What
the former left is first seen to be there while it lives; then the slot is let again."""
import json
import os
import secrets
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.remains import held, living  # noqa: E402

# Leaves one of each; what it left is named after {name}. It goes on until it is killed, as do its children.
LEAVE = r"""
import ctypes, fcntl, os, pty, signal, socket, sys, time
name, key, libc, librt = sys.argv[1], int(sys.argv[2]), ctypes.CDLL(None), ctypes.CDLL('librt.so.1')
for number in range(1, 32) if sys.argv[3] == 'stays' else ():
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
for folder in ('/workspace', '/tmp', '/var/tmp', '/run', '/dev/shm', '/root', '/usr/lib', '/etc', '/home', '/opt'):
    try: open(folder + '/' + name, 'w').write(name)
    except OSError: pass
held = [pty.openpty(), socket.create_server(('', 7777)), os.memfd_create(name), os.open('/dev/null', os.O_RDWR)]
for address in ('\0' + name, '/tmp/s-' + name): held.append(socket.socket(socket.AF_UNIX)); held[-1].bind(address); held[-1].listen()
fcntl.flock(held[3], fcntl.LOCK_EX)
librt.mq_open(('/' + name).encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
libc.shmat(libc.shmget(key, 64, 0o1666), None, 0); libc.semget(key, 1, 0o1666)
os.environ['LEFT'] = name
for way in range(3):
    if os.fork() == 0:  # daemons, as well as one can: of a session of their own, of nobody's, with another name
        os.setsid(); os.fork() == 0 or os._exit(0); os.chdir('/')
        os.execve('/bin/sleep', [name, '100000'], dict(os.environ))
open('/tmp/left', 'w').close()
time.sleep(100000)
"""

# What there is of it: a word each.
LOOK = r"""
import ctypes, fcntl, glob, json, os, socket, sys
name, key, libc, librt = sys.argv[1], int(sys.argv[2]), ctypes.CDLL(None), ctypes.CDLL('librt.so.1')
found = []
def see(word, condition):
    try:
        if condition(): found.append(word)
    except OSError: pass
for folder in ('/workspace', '/tmp', '/var/tmp', '/run', '/dev/shm', '/root', '/usr/lib', '/etc', '/home', '/opt'):
    see('file ' + folder, lambda: os.path.lexists(folder + '/' + name))
def connects(family, address): socket.socket(family).connect(address); return True
see('port', lambda: connects(socket.AF_INET, ('127.0.0.1', 7777)))
see('abstract socket', lambda: connects(socket.AF_UNIX, '\0' + name))
see('socket', lambda: connects(socket.AF_UNIX, '/tmp/s-' + name))
see('queue', lambda: librt.mq_open(('/' + name).encode(), os.O_RDWR) >= 0)
see('memory', lambda: libc.shmget(key, 64, 0) >= 0)
see('semaphore', lambda: libc.semget(key, 1, 0) >= 0)
see('terminal', lambda: os.path.exists('/dev/pts/0'))
def locked():
    try: fcntl.flock(os.open('/dev/null', os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: return True
see('lock', locked)
mine = (str(os.getpid()), str(os.getppid()))
for path in glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/maps'):
    see('process', lambda: path.split('/')[2] not in mine and name.encode() in open(path, 'rb').read())
for path in glob.glob('/proc/[0-9]*/fd/*'):
    see('descriptor', lambda: name in os.readlink(path))
see('environment', lambda: name in str(os.environ))
see('hostname', lambda: name in open('/etc/hostname').read())
see('processes', lambda: len([each for each in os.listdir('/proc') if each.isdigit()]) > 8)
print(json.dumps(sorted(set(found))))
"""
LEFT = {"file /workspace", "file /tmp", "file /root", "file /usr/lib", "file /etc", "file /dev/shm", "port", "abstract socket", "socket", "queue", "memory", "semaphore", "terminal",
        "lock", "process", "descriptor"}


@needs_root
class Slots(unittest.TestCase):
    storage, warm, manner = "auto", "0", "goes"

    def look(self, deployment, grant, name, key, **how):
        reply = deployment.exec(grant, argv=["/usr/bin/python3", "-c", LOOK, name, str(key)], **how)
        self.assertEqual((reply.status, reply.json["exit_code"]), (200, 0), reply)
        # Whoever looks has the name in its own command line; a shell of its own is not there.
        return set(json.loads(reply.json["stdout"]))

    def let_again(self, deployment, slot):
        """A sandbox in that slot. They go round, so that none is let again soon; a new launcher begins with the first."""
        deployment.kill("parley-sandboxd")
        deployment.wait_ready()
        for number in range(40):
            grant = deployment.negotiate(f"next-{number}")
            if living(deployment.state)[grant["sandbox"]["id"]].slot == slot:
                return grant
        if os.path.exists(f"/run/parley/slots/{slot}") and f"/run/parley/slots/{slot}" not in held(deployment.state):
            self.skipTest(f"slot {slot} is another deployment's by now")
        raise AssertionError(f"slot {slot} is not let again")

    def tenants(self, **settings):
        name, key = "left-" + secrets.token_hex(6), secrets.randbits(30)
        with Deployment(PARLEY_ROOT_USER="allowed", PARLEY_STORAGE=self.storage, PARLEY_WARM=self.warm, **settings) as deployment:
            former = deployment.negotiate("former")
            slot = living(deployment.state)[former["sandbox"]["id"]].slot
            reply = deployment.exec(former, argv=["/usr/bin/python3", "-c", LEAVE, name, str(key), self.manner], detach=True, user="root")
            self.assertEqual(reply.status, 201, reply)
            deadline = time.monotonic() + 60
            while deployment.exec(former, cmd="rm /tmp/left", user="root").json["exit_code"] != 0:
                self.assertLess(time.monotonic(), deadline, "it leaves nothing")
            self.assertLessEqual(LEFT, self.look(deployment, former, name, key, user="root"))
            self.assertEqual(deployment.request("DELETE", "/threads/former/sandbox").status, 204)
            deadline = time.monotonic() + 60
            while held(deployment.state):
                self.assertLess(time.monotonic(), deadline, "the slot is not free")
                time.sleep(0.05)
            following = self.let_again(deployment, slot)
            for user in ({}, {"user": "root"}):
                self.assertEqual(self.look(deployment, following, name, key, **user), set())
            self.on_host(name, slot)

    def on_host(self, name, slot):
        """Nothing of it runs on under the slot's ids, in whatever cgroup."""
        first = 1879048192 + slot * 65536
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/status") as status, open(f"/proc/{pid}/cmdline", "rb") as words:
                    uid = int(next(line for line in status if line.startswith("Uid:")).split()[1])
                    self.assertFalse(first <= uid < first + 65536 and name.encode() in words.read(), pid)
            except (OSError, StopIteration):
                pass

    def test_the_next_tenant(self):
        self.tenants()


@needs_root
class OfMemory(Slots):
    storage, warm, manner = "tmpfs", "2", "stays"

    def test_the_next_tenant(self):
        """Slots of warm ones too, on storage that goes with its mount, after processes that heed no signal."""
        self.tenants()


if __name__ == "__main__":
    unittest.main()
