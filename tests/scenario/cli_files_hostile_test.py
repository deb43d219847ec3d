"""The CLI on files against a sandboxd that was taken over: what comes down stays in its folder, and harmless."""
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.fake import Fake, client_environment  # noqa: E402

PARLEY = os.path.join(BIN, "parley")


class HostileFiles(Fake):
    """A sandboxd that was taken over: it sends the archive and the list it is told to."""

    def __init__(self):
        super().__init__()
        self.archive, self.entries = b"", []

    def route(self, handler, path, query, body, credential):
        found = re.fullmatch(r"/s/[^/]+/(files|archive)/.*", path)
        if not found:
            return super().route(handler, path, query, body, credential)
        data = self.archive
        if "stat" in query:
            data = json.dumps({"path": "/workspace/x", "type": "folder", "mode": "0755"}).encode()
        elif "list" in query:
            data = "".join(json.dumps(entry) + "\n" for entry in [*self.entries, {"type": "done"}]).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


def tar_of(*members):
    """A tar of (name, type, data or link target, mode)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, content, mode in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, mode
            if kind == tarfile.REGTYPE:
                member.size = len(content)
            else:
                member.linkname = content
            tar.addfile(member, io.BytesIO(content) if kind == tarfile.REGTYPE else None)
    return made.getvalue()


class HostileSandbox(unittest.TestCase):
    """What comes down stays in its folder, and harmless."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="parley-cli-hostile-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.fake = HostileFiles()
        self.addCleanup(self.fake.close)
        self.environment = client_environment(self.fake, self.folder)
        os.makedirs(self.folder + "/to/out")
        self.outside = self.folder + "/outside"
        with open(self.outside, "w") as file:
            file.write("mine")
        os.link(self.outside, self.folder + "/to/out/shared")
        os.chmod(self.outside, 0o600)

    def cli(self, *arguments):
        return subprocess.run([PARLEY, *arguments], env=self.environment, cwd=self.folder + "/to", capture_output=True,
                              text=True, timeout=30)

    def test_archives(self):
        file, link, hard, folder = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
        for members in ([("../evil", file, b"x", 0o644)],
                        [(self.folder + "/evil", file, b"x", 0o644)],
                        [("up", link, "..", 0o777), ("up/../evil", file, b"x", 0o644)],
                        [("a", link, "b", 0o777), ("b", link, "..", 0o777), ("a/evil", file, b"x", 0o644)],
                        [("sub/..", file, b"x", 0o644)],
                        [("hard", hard, "../../outside", 0o644)],
                        [("hard", hard, self.outside, 0o644)],
                        [("hard", hard, "shared", 0o777), ("hard", file, b"evil", 0o777)],
                        [("..", folder, "", 0o777)],
                        [("null", tarfile.CHRTYPE, "", 0o666), ("root", file, b"x", 0o6777)]):
            self.fake.archive = tar_of(*members)
            done = self.cli("cp", "-r", ":out", ".")
            self.assertNotIn("Sanitizer", done.stderr)
            with self.subTest(members=[member[0] for member in members]):
                self.assertEqual(sorted(set(os.listdir(self.folder)) - {"config", "cache"}), ["outside", "to"])
                self.assertEqual(os.listdir(self.folder + "/to"), ["out"])
                with open(self.outside) as mine:
                    self.assertEqual((mine.read(), os.stat(self.outside).st_mode & 0o777), ("mine", 0o600))
                self.assertEqual([name for name in os.listdir(self.folder + "/to/out") if ".tmp_" in name], [])
        self.assertEqual(os.stat(self.folder + "/to/out/root").st_mode & 0o7777, 0o755)
        self.assertFalse(os.path.lexists(self.folder + "/to/out/null"))

    def test_lists(self):
        for path in ("../evil", "/evil", "a/../../evil", "", "a//b", "."):
            self.fake.entries = [{"path": path, "type": "symlink", "target": "x", "mode": "0777"}]
            self.cli("sync", ":out", ".")
            self.assertEqual(sorted(set(os.listdir(self.folder)) - {"config", "cache"}), ["outside", "to"], path)
        self.fake.entries = [{"path": "a\u001b]0;x\u0007\u009b2J", "type": "file", "mode": "0644", "size": 1}]
        done = self.cli("sync", "-n", ":out", "new")
        self.assertEqual(done.stdout, "+ a\\x1b]0;x\\x07\\x9b2J\n")
        self.assertEqual(self.cli("completion", "words", "cat", ":a").stdout, "")


if __name__ == "__main__":
    unittest.main()
