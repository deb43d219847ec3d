"""A sandbox whose disk is full: every change of its files that does not fit is 507 DISK_FULL with a sentence that says so,
leaves nothing half-done behind, and what makes room still works."""
import io
import os
import sys
import tarfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

MIB = 1 << 20
DISK_MB = 16


def tar_of(**files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, size in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = size
            archive.addfile(entry, io.BytesIO(os.urandom(size)))
    return out.getvalue()


@needs_root
class DiskFull(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("full", resources={"memory_mb": 256, "disk_mb": DISK_MB})
        cls.base = cls.grant["endpoints"]["http"]

    def ask(self, method, path, body=None, **headers):
        return self.deployment.request(method, self.base + path, body, token=self.grant["token"], timeout=90,
                                       headers={name.replace("_", "-"): value for name, value in headers.items()})

    def shell(self, command):
        return self.deployment.exec(self.grant, cmd=command).json

    def assert_full(self, reply):
        self.assertEqual((reply.status, reply.code), (507, "DISK_FULL"), reply)
        self.assertRegex(reply.json["error"]["message"], "(?i)is full|no space left|quota exceeded")

    def names(self):
        return sorted(self.shell("cd /workspace; ls -A")["stdout"].split())

    def setUp(self):
        self.shell("cd /workspace; rm -rf ./* ./.[!.]*; head -c 2000000 /dev/urandom > two; echo 'a line' > line; "
                   "mkdir there; head -c 64000000 /dev/urandom > filler 2>/dev/null")
        self.assertEqual(self.names(), ["filler", "line", "there", "two"])

    def test_what_does_not_fit(self):
        large = os.urandom(3 * MIB)
        self.assert_full(self.ask("PUT", "/files/workspace/large", large))
        self.assert_full(self.ask("PUT", "/files/workspace/two", large))
        self.assert_full(self.ask("POST", "/files/workspace/two?op=copy", {"to": "/workspace/there/two"}))
        self.assert_full(self.ask("PUT", "/archive/workspace/there", tar_of(one=3 * MIB), Content_Type="application/gzip"))
        self.assert_full(self.ask("POST", "/files/workspace/line?op=edit",
                                  {"edits": [{"old": "a line", "new": "x" * (900 << 10)}]}))
        # Nothing of these is left, and what was there is as it was.
        self.assertEqual(self.names(), ["filler", "line", "there", "two"])
        self.assertEqual(self.shell("cd /workspace; cat line; stat -c %s two; ls -A there | grep -v '^one$'")["stdout"],
                         "a line\n2000000\n")

    def test_a_piece(self):
        size = 8 * MIB
        self.assert_full(self.ask("PUT", "/files/workspace/pieces?upload=up-1", os.urandom(size // 2),
                                  Content_Range=f"bytes 0-{size // 2 - 1}/{size}"))
        self.assertEqual(self.ask("GET", "/files/workspace/line").status, 200)

    def test_room_can_be_made(self):
        self.assert_full(self.ask("PUT", "/files/workspace/large", os.urandom(3 * MIB)))
        self.assertEqual(self.ask("DELETE", "/files/workspace/filler").status, 204)
        self.assertEqual(self.ask("PUT", "/files/workspace/large", os.urandom(3 * MIB)).status // 100, 2)
        self.assertEqual(self.ask("POST", "/files/workspace/two?op=copy", {"to": "/workspace/again"}).status // 100, 2)

    def test_names_take_room_too(self):
        """The inodes of a tmpfs; on other storage metadata are within the quota, and so many folders may fit."""
        self.shell("cd /workspace; mkdir many; cd many; for i in $(seq 30000); do : > f$i || break; done 2>/dev/null")
        made = self.ask("POST", "/files/workspace/folder?op=mkdir")
        if made.status // 100 != 2:
            self.assert_full(made)
            self.assert_full(self.ask("PUT", "/files/workspace/empty", b""))


if __name__ == "__main__":
    unittest.main()
