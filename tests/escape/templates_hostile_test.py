"""Archives that nobody honest wrote: each is refused with a sentence that names the layer and the entry, nothing outside
the new rootfs is touched, and nothing is left that could be taken for a template."""
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import images  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.images import docker, entry, tar  # noqa: E402
from parley_testing.templates import Store  # noqa: E402


@unittest.skipUnless(os.geteuid() == 0, "templates are root's")
class Hostile(unittest.TestCase):
    def setUp(self):
        self.store = Store()
        self.addCleanup(self.store.close)
        self.outside = tempfile.mkdtemp(prefix="parley-outside-")
        self.addCleanup(shutil.rmtree, self.outside)
        os.chmod(self.outside, 0o777)

    def refused(self, word, *entries, more=(), **options):
        """One layer of these entries, above a layer that is fine."""
        layers = [tar(entry("fine", "x"), entry("folder", kind="dir")), tar(*entries), *more]
        said = self.store.refuse(docker(layers), **options)
        self.assertIn(word, said)
        self.assertIn("layer 2 of ", said)
        self.nothing_is_left()
        return said

    def nothing_is_left(self):
        self.assertEqual([name for name in self.store.entries() if name != ".lock"], [])
        self.assertEqual(os.listdir(self.outside), [])

    def test_names_that_leave_the_tree(self):
        victim = self.outside + "/victim"
        self.refused("absolute", entry(victim, "x"))
        for name in ("../victim", "a/../../victim", "folder/../../../../../../../.." + victim, "..", "./..", "folder/.."):
            said = self.refused('".."', entry(name, "x"))
            self.assertIn(name[:40], said)

    def test_what_a_naive_tool_would_have_done(self):
        """The attack works where nobody guards: the same tar by tarfile without a filter writes outside."""
        data = tar(entry("link", kind="symlink", link=self.outside), entry("link/victim", "x"))
        with tempfile.TemporaryDirectory() as naive, tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(naive, filter="fully_trusted") if hasattr(tarfile, "fully_trusted_filter") else \
                archive.extractall(naive)
        self.assertEqual(os.listdir(self.outside), ["victim"])
        os.unlink(self.outside + "/victim")
        self.assertIn("link/victim", self.store.refuse(docker([data])))  # to nothing, in the tree
        self.nothing_is_left()
        self.store.take(docker([tar(entry(self.outside[1:], kind="dir")), data]))
        self.assertEqual(os.listdir(self.outside), [])
        self.assertEqual(os.readlink(self.store.rootfs() + "/link"), self.outside)
        # The link means what it means to who has the tree as /.
        with open(self.store.rootfs() + self.outside + "/victim") as inside:
            self.assertEqual(inside.read(), "x")

    def test_links_out_of_the_tree(self):
        self.refused("links out", entry("link", kind="symlink", link="../" * 8 + self.outside[1:]))
        self.refused("links out", entry("folder/link", kind="symlink", link="../../x"))
        self.refused("links to nothing", entry("link", kind="symlink", link=""))
        self.refused("absolute", entry("hard", kind="link", link="/etc/shadow"))
        self.refused('".."', entry("hard", kind="link", link="../../../../../../../etc/shadow"))
        self.refused("which is not there", entry("hard", kind="link", link="etc/shadow"))
        self.refused("a folder", entry("hard", kind="link", link="folder"))
        self.refused("to itself", entry("fine", kind="link", link="./fine"))
        # Through a link: the tree's own /etc, which has no shadow.
        self.refused("which is not there", entry("e", kind="symlink", link="/etc"), entry("hard", kind="link", link="e/shadow"))

    def test_a_link_as_a_parent_stays_inside(self):
        low = tar(entry("up", kind="symlink", link="/"), entry("loop", kind="symlink", link="loop"))
        self.assertIn("layer 2", self.store.refuse(docker([low, tar(entry("loop/x", "y"))])))
        self.nothing_is_left()
        self.store.take(docker([low, tar(entry("up/up/file", "y"))]))
        self.assertTrue(os.path.isfile(self.store.rootfs() + "/file"))

    def test_devices_sockets_and_owners(self):
        self.refused("device", entry("dev/sda", kind="block", device=(8, 0)))
        self.refused("device", entry("null", kind="char", device=(1, 3)))
        self.refused("device", entry("white", kind="char", device=(0, 0)))
        self.refused("65535", entry("mine", "x", uid=65536))
        self.refused("65535", entry("mine", "x", gid=2097151, pax={"gid": "4294967295"}))
        self.refused("65535", entry("mine", "x", pax={"uid": "-1"}))

    def test_whiteouts_take_only_what_lies_below(self):
        for name in (".wh..", ".wh...", ".wh.", "folder/.wh..", "folder/.wh...", "folder/.wh."):
            self.refused("whiteout", entry(name, ""))
        self.refused("whiteout", entry(".wh.folder/file", "x"))
        # A whiteout through a link does not leave the tree either.
        with open(self.outside + "/kept", "w"):
            pass
        low = tar(entry("out", kind="symlink", link=self.outside), entry("here", kind="dir"))
        self.store.take(docker([low, tar(entry("out/.wh.kept", ""), entry("out/.wh..wh..opq", ""))]))
        self.assertEqual(os.listdir(self.outside), ["kept"])
        os.unlink(self.outside + "/kept")

    def test_sizes_and_bombs(self):
        said = self.store.refuse(docker([tar(entry("big", "x", size=1 << 42))]), "--max-mb", "64")
        self.assertIn("bytes", said)
        zeros = tar(entry("zeros", b"\0" * (96 << 20)))
        packed = images.Oci()
        packed.index(packed.image([zeros], packed=gzip.compress))
        self.assertLess(len(packed.tar()), 1 << 20)
        self.assertIn("MiB", self.store.refuse(packed.tar(), "--max-mb", "64"))
        self.assertIn("entries", self.store.refuse(docker([tar(*[entry(f"f{i}", "") for i in range(50)])]),
                                                   "--max-entries", "20"))
        # Sparse: one that says it is larger than anything.
        sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "hole",
                  "GNU.sparse.realsize": str(1 << 60)}
        body = b"1\n%d\n1\n" % ((1 << 60) - 1)
        self.store.refuse(docker([tar(entry("hole", body.ljust(512, b"\0") + b"x", pax=sparse))]))
        behind = images.Oci()
        behind.index(behind.image([tar(entry("f", "x")) + b"\0" * (200 << 20)], packed=gzip.compress))
        self.assertIn("MiB", self.store.refuse(behind.tar(), "--max-mb", "8", "--max-entries", "100"))
        whole = gzip.compress(b"\0" * (200 << 20))
        self.assertIn("MiB", self.store.refuse(whole, "--max-mb", "8", "--max-entries", "100"))
        self.nothing_is_left()

    def test_the_same_blocks_over_and_over(self):
        layer = tar(entry("a", b"\0" * (8 << 20)))
        self.assertIn("MiB", self.store.refuse(docker([layer] * 12), "--max-mb", "64"))
        self.nothing_is_left()

    def test_deep_nesting_and_long_names(self):
        self.refused("deeper", entry("/".join("d" * 1 for _ in range(400)) + "/f", "x"))
        self.refused("longer", entry("n" * 300, "x"))
        self.refused("longer", entry("/".join(["n" * 200] * 25), "x"))
        self.refused("name", entry("./", "x"))
        deep = "/".join("d" for _ in range(250))
        self.store.take(docker([tar(entry(deep + "/f", "x"))]))
        self.assertEqual(self.store.run("rm", "made").returncode, 0)
        for _ in range(2):
            nested = b"[" * 100000
            self.assertIn("JSON", self.store.refuse(docker([tar(entry("f", ""))], manifest=nested)))

    def test_digests(self):
        layer, other = tar(entry("f", "x")), tar(entry("f", "y"))
        self.assertIn("digest", self.store.refuse(docker([layer], images.config([other]))))
        oci = images.Oci()
        oci.index(oci.image([layer], packed=gzip.compress))
        blob = next(name for name, data in oci.files.items() if data[:2] == b"\x1f\x8b")
        good = oci.files[blob]
        oci.files[blob] = gzip.compress(other)
        self.assertIn("layer 1 of 1", self.store.refuse(oci.tar()))
        oci.files[blob] = good + b"trailing"
        self.assertIn("layer 1 of 1", self.store.refuse(oci.tar()))
        oci.files[blob] = good[:-9]
        self.assertIn("layer 1 of 1", self.store.refuse(oci.tar()))
        oci.files[blob] = gzip.compress(layer, mtime=1)  # as long, and the same unpacked
        self.assertIn("the manifest says", self.store.refuse(oci.tar()))
        oci.files[blob] = good
        self.store.take(oci.tar())
        self.assertEqual(self.store.run("rm", "made").returncode, 0)
        for name in [name for name in oci.files if name.startswith("blobs/") and name != blob]:
            kept = oci.files[name]
            oci.files[name] = kept.replace(b"linux", b"linuX") if b"linux" in kept else kept + b" "
            self.assertIn("digest", self.store.refuse(oci.tar()), name)
            oci.files[name] = kept

    def test_trailing_bytes_count(self):
        """What lies behind a tar's end belongs to its digest."""
        layer = tar(entry("f", "x"))
        configuration = images.config([layer])
        self.assertIn("digest", self.store.refuse(docker([layer + b"\0" * 512], configuration)))

    def test_json(self):
        layer = tar(entry("f", "x"))
        name = images.sha256(json.dumps(images.config([layer])).encode()) + ".json"
        for manifest in (b"", b"{}", b"[]", b"[1]", b"[{}]", b'[{"Config": 1, "Layers": []}]', b"\xff\xfe", b"nul",
                         b'[{"Config": "%s", "Config": "x", "Layers": ["0/layer.tar"]}]' % name.encode(),
                         b'[{"Config": "%s", "Layers": ["../../etc/passwd"]}]' % name.encode(),
                         b'[{"Config": "%s", "Layers": ["0/layer.tar", "0/layer.tar"]}]' % name.encode(),
                         b'[{"Config": "../%s", "Layers": ["0/layer.tar"]}]' % name.encode(),
                         b'[{"Config": "%s", "Layers": ["0/layer.tar"]}, {}]' % name.encode(), b" " * (5 << 20)):
            self.store.refuse(docker([layer], manifest=manifest))
        for change in ({"os": "windows"}, {"architecture": "vax"}, {"rootfs": {}}, {"rootfs": {"diff_ids": ["x"]}},
                       {"config": {"User": "nobody-knows"}}, {"config": {"User": "70000"}},
                       {"config": {"WorkingDir": "../x"}}, {"config": {"WorkingDir": "/a/../../x"}}):
            self.store.refuse(docker([layer], {**images.config([layer]), **change}))
        self.nothing_is_left()

    def test_archives_that_are_none(self):
        layer = tar(entry("f", "x"))
        good = docker([layer])
        for bad in (b"", b"x", b"\0" * 10240, b"PK\3\4" + b"\0" * 100, good[:700], good[:len(good) // 2],
                    gzip.compress(good)[:-20], os.urandom(4096), tar(entry("manifest.json", kind="symlink", link="manifest.json"))):
            self.store.refuse(bad)
        twice = docker([layer], members={"./manifest.json": b"[]"})
        self.assertIn("two members", self.store.refuse(twice))
        self.nothing_is_left()

    def test_a_layout_folder_is_not_left(self):
        oci = images.Oci()
        oci.index(oci.image([tar(entry("f", "x"))]))
        folder = self.store.folder + "/layout"
        os.mkdir(folder)
        oci.write(folder)
        blob = next(name for name, data in oci.files.items() if name.startswith("blobs/") and b"\0" * 512 in data)
        os.rename(os.path.join(folder, blob), self.store.folder + "/elsewhere")
        os.symlink(self.store.folder + "/elsewhere", os.path.join(folder, blob))
        done = self.store.run("import", folder, "--name", "bad")
        self.assertEqual(done.returncode, 1)
        os.unlink(os.path.join(folder, blob))
        os.mkfifo(os.path.join(folder, blob))
        done = self.store.run("import", folder, "--name", "bad")
        self.assertEqual(done.returncode, 1)
        self.nothing_is_left()

    def test_no_file_is_set_uid_and_no_attribute_means_anything(self):
        capability = "\x01\0\0\x02\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0"
        layer = tar(entry("su", "x", mode=0o6755), entry("dir", kind="dir", mode=0o7777),
                    entry("cap", "x", mode=0o755, pax={"SCHILY.xattr.security.capability": capability,
                                                       "SCHILY.xattr.user.overlay.redirect": "/etc",
                                                       "SCHILY.xattr.trusted.overlay.opaque": "y",
                                                       "SCHILY.xattr.user.kept": "yes"}),
                    entry("opaque", kind="dir", pax={"SCHILY.xattr.user.overlay.opaque": "y"}))
        self.store.take(docker([layer]))
        rootfs = self.store.rootfs()
        self.assertEqual(os.stat(rootfs + "/su").st_mode & 0o7777, 0o755)
        self.assertEqual(os.stat(rootfs + "/dir").st_mode & 0o4000, 0)
        self.assertEqual(os.listxattr(rootfs + "/cap"), ["user.kept"])
        self.assertEqual(os.listxattr(rootfs + "/opaque"), [])

    def test_the_terminal_gets_no_control_characters(self):
        evil = "evil\x1b]0;owned\x07\u009b31m"
        done = self.store.run("import", self.store.put(docker([tar(entry(evil, kind="char"))])), "--name", "bad")
        self.assertEqual(done.returncode, 1)
        for byte in (b"\x1b", b"\x07", b"\xc2\x9b"):
            self.assertNotIn(byte, done.stderr + done.stdout)

    @staticmethod
    def child_of(pid):
        """The jailed child of an import, while there is one."""
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as children:
                return next(iter(children.read().split()), None)
        except OSError:
            return None

    def test_kill_9_leaves_no_template(self):
        """Wherever it hits: the template that was there stays, whole, or the new one is whole; the child dies with us."""
        self.store.take(docker([tar(entry("old", "x"))]))
        first = os.readlink(self.store.templates + "/made")
        layers = [tar(*[entry(f"{number}-{i}", os.urandom(300)) for i in range(count)])
                  for number, count in enumerate((400, 400, 6000))]
        path = self.store.put(docker(layers))
        children = []
        for number in range(8):
            child = subprocess.Popen([BIN + "/parley-sandboxd", "template", "import", path, "--name", "made", "--state",
                                      self.store.state], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if number < 3:
                for _ in range(number + 1):
                    child.stderr.readline()  # "layer N of 3"
                children.append(self.child_of(child.pid))
            else:
                time.sleep(0.004 * number)
            child.kill()
            child.communicate()
            current = os.readlink(self.store.templates + "/made")
            listed = json.loads(self.store.run("ls", "--json").stdout)["templates"]
            self.assertEqual([(template["name"], template["version"]) for template in listed], [("made", current)])
            wanted = "old" if current == first else "2-5999"
            self.assertTrue(os.path.exists(f"{self.store.templates}/{current}/rootfs/{wanted}"))
        children = [pid for pid in children if pid]
        self.assertTrue(children, "no kill came while a child worked")
        until = time.monotonic() + 60
        while any(os.path.exists("/proc/" + pid) for pid in children) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertFalse([pid for pid in children if os.path.exists("/proc/" + pid)])
        self.assertTrue([name for name in self.store.entries() if name.startswith(".new-")])


if __name__ == "__main__":
    unittest.main()
