"""A snapshot holds what a hostile root inside left: links, pipes and sockets where a birth writes, links where a volume
is to be, and overlay's own attributes forged. What is restored from it, and forked from that, is as it was, sees nothing of
the host, and writes nothing there."""
import os
import secrets
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

# What overlay keeps in attributes (fs/overlayfs), on folders that have a lower one and on files that have none.
FORGE = r"""
import os
NAMES = ('redirect', 'opaque', 'origin', 'metacopy', 'whiteout', 'whiteouts', 'impure', 'nlink', 'uuid', 'overlay.opaque')
PLACES = {'/opt': b'/usr/lib', '/var': b'y', '/home': b'x', '/opt/f': b'{secret_path}', '/var/f': bytes(40)}
for place, value in PLACES.items():
    if place.endswith('f'): open(place, 'w').close()
    for name in NAMES:
        try: os.setxattr(place, 'user.overlay.' + name, value)
        except OSError: pass  # before Linux 6.7 they cannot be made at all
try: os.mknod('/opt/whiteout', 0o20000)
except OSError: pass
"""

LINKS = r"""
import os, shutil, socket
folder, name = '{how}'.split()
if folder == 'etc':
    shutil.rmtree('/etc'); os.symlink('{host}', '/etc')
else:
    for path in ('/etc/hosts', '/etc/hostname'):
        os.unlink(path)
        if name == 'link': os.symlink('{host}' + path[4:], path)
        if name == 'pipe': os.mkfifo(path)
        if name == 'socket': socket.socket(socket.AF_UNIX).bind(path)
os.symlink('{host}', '/data')
"""

LOOK = r"""
import os
for top in ('/opt', '/var', '/home', '/etc', '/data'):
    for folder, folders, files in os.walk(top):
        for name in sorted(folders + files):
            path = os.path.join(folder, name)
            if path in ('/etc/hosts', '/etc/hostname'): continue  # a copy leaves sockets out
            attributes = sorted((a, os.getxattr(path, a, follow_symlinks=False))
                                for a in os.listxattr(path, follow_symlinks=False))
            print(oct(os.lstat(path).st_mode), path, attributes)
"""


class Hostile:
    kind = ""

    @classmethod
    def setUpClass(cls):
        cls.host = f"/var/tmp/parley-host-{secrets.token_hex(6)}"
        cls.secret = secrets.token_hex(8)
        os.mkdir(cls.host, 0o777)
        os.chmod(cls.host, 0o777)
        for name in ("hosts", "hostname"):
            with open(f"{cls.host}/{name}", "w") as planted:
                planted.write(cls.secret)
            os.chmod(f"{cls.host}/{name}", 0o666)
        cls.deployment = Deployment(PARLEY_STORAGE=cls.kind, PARLEY_ROOT_USER="allowed", PARLEY_WARM="0")

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()
        for name in os.listdir(cls.host):
            os.unlink(f"{cls.host}/{name}")
        os.rmdir(cls.host)

    def python(self, grant, program, **values):
        for key, value in values.items():
            program = program.replace("{" + key + "}", value)
        reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", program], user="root", cwd="/")
        self.assertEqual((reply.status, reply.json["exit_code"]), (200, 0), reply)
        return reply.json["stdout"]

    def fork(self, grant, name):
        """Of a sandbox, its snapshot's."""
        reply = self.deployment.request("POST", f"/sandboxes/{grant['sandbox']['id']}/snapshots", {"name": name}, timeout=90)
        self.assertEqual(reply.status, 201, reply)
        return self.deployment.negotiate(name, template=f"snapshot:{name}")

    def check_host(self):
        self.assertEqual(sorted(os.listdir(self.host)), ["hostname", "hosts"])
        for name in ("hosts", "hostname"):
            with open(f"{self.host}/{name}") as planted:
                self.assertEqual(planted.read(), self.secret)

    def lives(self, tag, program, **values):
        """What its first life made, seen again in the second and third."""
        first = self.deployment.negotiate(f"{tag}-1")
        self.python(first, program, **values)
        was = self.python(first, LOOK)
        second = self.fork(first, f"{tag}-2")
        third = self.fork(second, f"{tag}-3")
        for grant in (second, third):
            self.assertEqual(self.python(grant, LOOK), was)
            said = self.deployment.exec(grant, cmd="timeout 5 cat /etc/hosts /etc/hostname /data/hosts /opt/f", cwd="/")
            self.assertNotIn(self.secret, said.json["stdout"])
        self.check_host()
        return f"{tag}-3"

    def test_forged_attributes(self):
        self.lives("forged", FORGE, secret_path=f"{self.host}/hosts")

    def test_links_pipes_and_sockets_where_a_birth_writes(self):
        for how in ("hosts link", "hosts pipe", "hosts socket", "etc link"):
            with self.subTest(how):
                made = self.lives(how.replace(" ", "-"), LINKS, how=how, host=self.host)
                for path in ("/data", "/data/below"):
                    reply = self.deployment.request("POST", "/threads/with-volume/sandbox", {
                        "template": f"snapshot:{made}", "volumes": [{"name": "data", "path": path}]})
                    self.assertEqual((reply.status, reply.code), (400, "INVALID_REQUEST"), reply)
                self.check_host()


@needs_root
class Btrfs(Hostile, unittest.TestCase):
    kind = "auto"


@needs_root
class Tmpfs(Hostile, unittest.TestCase):
    kind = "tmpfs"


if __name__ == "__main__":
    unittest.main()
