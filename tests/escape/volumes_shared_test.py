"""Two sandboxes share a volume, and both are hostile: files are all that goes from one to the other. Descriptors do not, which
would outlive the one that made them (its memory, its area, its network namespace: then nobody's to limit or to end); nor do
rights, devices, or programs of another user."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

# Listens at a path, is given descriptors there, and says how many. Where no socket can be made, why.
TAKE = r"""
import os, socket, sys
here, there = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
try: here.bind(sys.argv[1])
except OSError as why: print('no socket', why.errno); sys.exit()
here.listen()
there.connect(sys.argv[1])
taker = here.accept()[0]
socket.send_fds(there, [b'x'], [os.memfd_create('m'), os.open('/', os.O_RDONLY), os.open('/proc/self/ns/net', os.O_RDONLY)])
print(len(socket.recv_fds(taker, 1, 10)[1]), 'descriptors')
"""

# All other ways by which a socket's name could come into a volume.
SNEAK = r"""
import ctypes, os, socket, stat, sys
volume, libc = sys.argv[1], ctypes.CDLL(None, use_errno=True)
try: os.unlink('/tmp/made')
except OSError: pass
made = socket.socket(socket.AF_UNIX); made.bind('/tmp/made')
os.makedirs('/tmp/folder', exist_ok=True)
if not os.path.exists('/tmp/folder/made'): socket.socket(socket.AF_UNIX).bind('/tmp/folder/made')
def bind_in_folder(): os.chdir(volume); socket.socket(socket.AF_UNIX).bind('relative')
def bind_by_proc(): socket.socket(socket.AF_UNIX).bind('/proc/self/fd/%d/byfd' % os.open(volume, os.O_RDONLY))
def bind_by_link(): os.path.islink('/tmp/link') or os.symlink(volume, '/tmp/link'); socket.socket(socket.AF_UNIX).bind('/tmp/link/bylink')
def exchange():
    open(volume + '/e', 'w').close()
    if libc.renameat2(-100, b'/tmp/made', -100, (volume + '/e').encode(), 2): raise OSError()
WAYS = {'bind': bind_in_folder, 'proc': bind_by_proc, 'link': bind_by_link,
        'mknod': lambda: os.mknod(volume + '/node', 0o600 | stat.S_IFSOCK), 'rename': lambda: os.rename('/tmp/made', volume + '/renamed'),
        'hard link': lambda: os.link('/tmp/made', volume + '/linked'), 'folder': lambda: os.rename('/tmp/folder', volume + '/folder'),
        'exchange': exchange}
for name, way in WAYS.items():
    child = os.fork()
    if child == 0:
        try: way(); print('made by', name, flush=True)
        except OSError: pass
        os._exit(0)
    os.waitpid(child, 0)
for folder, folders, names in os.walk(volume):
    for each in names:
        if stat.S_ISSOCK(os.lstat(os.path.join(folder, each)).st_mode): print('there is', each)
"""

PLANT = r"""
import os, shutil, stat, struct
shutil.copy('/usr/bin/id', '/data/id'); os.chown('/data/id', 0, 0); os.chmod('/data/id', 0o6755)
shutil.copy('/bin/cat', '/data/cat'); os.setxattr('/data/cat', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 10, 0, 0, 0))
open('/data/closed', 'w').write('of root'); os.chmod('/data/closed', 0o600)
for name, kind, number in (('null', stat.S_IFCHR, (1, 3)), ('disk', stat.S_IFBLK, (254, 0))):
    try: os.mknod('/data/' + name, 0o666 | kind, os.makedev(*number)); print('made', name)
    except OSError: pass
os.symlink('/proc/1/root/etc', '/data/etc'); os.symlink('/proc/1/environ', '/data/environ')
"""


@needs_root
class Shared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_ROOT_USER="allowed")
        cls.addClassCleanup(cls.deployment.close)
        cls.one, cls.two = (cls.deployment.negotiate(thread, volumes=[{"name": "shared", "path": "/data"}]) for thread in ("one", "two"))
        cls.below = cls.deployment.negotiate("below", volumes=[{"name": "shared", "path": "/workspace/deep/data"}])

    def python(self, grant, program, *arguments, **how):
        reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", program, *arguments], **how)
        self.assertEqual((reply.status, reply.json["exit_code"], reply.json["stderr"]), (200, 0, ""), reply)
        return reply.json["stdout"]

    def test_no_descriptor_goes_across(self):
        """It would within one sandbox, and in its own folders does."""
        for user in ({}, {"user": "root"}):
            for place in ("/tmp", "/dev/shm", "/run", "/workspace" if not user else "/root"):
                self.assertEqual(self.python(self.one, TAKE, f"{place}/take-{len(user)}", **user), "3 descriptors\n", place)
            self.assertEqual(self.python(self.one, TAKE, "/data/take", **user), "no socket 13\n")
            self.assertEqual(self.python(self.below, TAKE, "/workspace/deep/data/take", **user), "no socket 13\n")
            self.assertEqual(self.python(self.below, TAKE, f"/tmp/take-{len(user)}", **user), "3 descriptors\n")

    def test_no_socket_comes_there_by_another_way(self):
        for user in ({}, {"user": "root"}):
            self.assertEqual(self.python(self.one, SNEAK, "/data", **user), "")
            self.deployment.exec(self.one, cmd="rm -rf /tmp/made /tmp/folder /tmp/link", user="root")
        self.deployment.shell(self.one, "mkdir -p /workspace/like")
        self.assertIn("there is", self.python(self.one, SNEAK, "/workspace/like"), "it does not even work in a folder of one's own")

    def test_files_go_across_and_are_moved(self):
        """What volumes are for, with the wall that keeps sockets out."""
        self.deployment.shell(self.one, "mkdir -p /data/a/b /data/c && echo x > /data/a/b/f && mv /data/a/b /data/c/d && mkfifo /data/c/pipe "
                                        "&& ln /data/c/d/f /data/hard && ln -s hard /data/soft && mkdir -p /tmp/g/h && mv /tmp/g/h /workspace/h")
        self.assertEqual(self.deployment.shell(self.two, "cat /data/c/d/f /data/soft"), "x\nx\n")
        base = self.two["endpoints"]["http"]
        for method, path, body in (("PUT", "/files/data/c/put", b"y"), ("POST", "/files/data/c/put?op=move", {"to": "/data/moved"}),
                                   ("POST", "/files/data/moved?op=copy", {"to": "/workspace/copied"}), ("DELETE", "/files/data/moved", None)):
            self.assertLess(self.deployment.request(method, base + path, body, token=self.two["token"]).status, 300, path)
        self.assertEqual(self.deployment.shell(self.two, "cat /workspace/copied"), "y")

    def test_rights_do_not_go_across(self):
        self.assertEqual(self.python(self.one, PLANT, user="root"), "")
        said = self.deployment.exec(self.two, cmd="/data/id -u; grep CapEff < /dev/null; /data/cat /proc/self/status | grep CapEff; "
                                                  "cat /data/closed; ls /data/etc/; cat /data/environ").json
        self.assertEqual(said["stdout"].split(), ["1000", "CapEff:", "0" * 16], said)


if __name__ == "__main__":
    unittest.main()
