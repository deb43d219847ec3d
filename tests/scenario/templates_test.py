"""Templates: what `docker save` and OCI tools write becomes one, with layers, whiteouts, users and all; a Debian suite can
be built; versions come and go while others are in use."""
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import images  # noqa: E402
from parley_testing.deployment import BIN, Deployment  # noqa: E402
from parley_testing.images import docker, entry, tar  # noqa: E402
from parley_testing.templates import Store  # noqa: E402

MIRROR = "http://deb.debian.org/debian"


def zstd(data):
    return subprocess.run(["zstd", "-q"], input=data, stdout=subprocess.PIPE, check=True).stdout


def has(program):
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.environ["PATH"].split(":"))


@unittest.skipUnless(os.geteuid() == 0, "templates are root's")
class Import(unittest.TestCase):
    def setUp(self):
        self.store = Store()
        self.addCleanup(self.store.close)

    def text(self, path, name="made"):
        with open(os.path.join(self.store.rootfs(name), path)) as file:
            return file.read()

    def exists(self, path):
        return os.path.lexists(os.path.join(self.store.rootfs(), path))

    def test_layers_and_whiteouts(self):
        low = tar(entry("kept", "low"), entry("changed", "low"), entry("gone", "low"), entry("d", kind="dir"),
                  entry("d/old", "low"), entry("d/sub", kind="dir"), entry("d/sub/old", "low"), entry("e", kind="dir"),
                  entry("e/a", "low"), entry("e/b", "low"), entry("was-dir", kind="dir"), entry("was-dir/x", "low"),
                  entry("was-file", "low"), entry("l", kind="symlink", link="d"), entry("bin", kind="symlink", link="usr/bin"),
                  entry("usr/bin/tool", "low"))
        high = tar(entry("changed", "high", mode=0o600), entry(".wh.gone", ""), entry(".wh.never-was", ""),
                   entry("d", kind="dir", mode=0o700), entry("d/new", "high"), entry("d/.wh..wh..opq", ""),
                   entry("e/.wh.a", ""), entry("was-dir", "high"), entry("was-file", kind="dir"),
                   entry("was-file/x", "high"), entry("bin/tool2", "high"), entry(".wh..wh.plnk/1.2", "aufs"),
                   entry("d/sub", kind="dir"), entry("d/sub/new", "high"))
        self.store.take(docker([low, high]))
        rootfs = self.store.rootfs()
        self.assertEqual((self.text("kept"), self.text("changed")), ("low", "high"))
        self.assertEqual(os.stat(rootfs + "/changed").st_mode & 0o777, 0o600)
        for name in ("gone", "d/old", "e/a", ".wh.gone", "d/.wh..wh..opq", ".wh..wh.plnk"):
            self.assertFalse(self.exists(name), name)
        self.assertEqual(sorted(os.listdir(rootfs + "/d")), ["new", "sub"])
        self.assertEqual(os.stat(rootfs + "/d").st_mode & 0o777, 0o700)
        self.assertEqual(self.text("e/b"), "low")
        self.assertEqual(self.text("was-dir"), "high")
        self.assertEqual(self.text("was-file/x"), "high")
        self.assertEqual(os.readlink(rootfs + "/bin"), "usr/bin")
        self.assertEqual(sorted(os.listdir(rootfs + "/usr/bin")), ["tool", "tool2"])

    def test_what_entries_have(self):
        long = "/".join(["a-rather-long-name-for-a-folder"] * 8) + "/ü-\N{SNOWMAN}"
        layer = tar(entry("f", "x", mode=0o640, uid=7, gid=8), entry("./d/", kind="dir", mode=0o1777), entry("hard", kind="link", link="./f"),
                    entry("soft", kind="symlink", link="/somewhere/else", uid=9), entry("pipe", kind="fifo", mode=0o622),
                    entry(long, "deep"), entry("latin\udce4", "raw"), entry("big-owner", "", uid=65535, gid=65535),
                    entry("empty", ""), entry("dash-", ""), entry("-rf", ""), entry("a b\tc", ""))
        made = self.store.take(docker([layer]))
        rootfs = self.store.rootfs()
        status = os.stat(rootfs + "/f")
        self.assertEqual((status.st_mode & 0o7777, status.st_uid, status.st_gid, status.st_nlink, status.st_mtime),
                         (0o640, 7, 8, 2, 1600000000))
        self.assertEqual(os.lstat(rootfs + "/soft").st_uid, 9)
        self.assertEqual(os.readlink(rootfs + "/soft"), "/somewhere/else")
        self.assertEqual(os.stat(rootfs + "/d").st_mode & 0o7777, 0o1777)
        self.assertEqual(os.stat(rootfs + "/big-owner").st_uid, 65535)
        self.assertEqual(self.text(long), "deep")
        self.assertIn("latin\udce4", os.listdir(rootfs))
        self.assertGreaterEqual(made["files"], 20)
        self.assertGreater(made["size_bytes"], 0)

    def test_docker_archives_of_all_times(self):
        layer, other = tar(entry("one", "1")), tar(entry("two", "2"))
        configuration = json.dumps(images.config([layer, other])).encode()
        name = images.sha256(configuration)
        manifest = [{"Config": f"blobs/sha256/{name}", "RepoTags": ["quay.io/some/Thing:2.1_x"], "Layers": [
            f"blobs/sha256/{images.sha256(layer)}", f"blobs/sha256/{images.sha256(other)}"]}]
        new = tar(entry("blobs", kind="dir"), entry(f"blobs/sha256/{name}", configuration),
                  entry(f"blobs/sha256/{images.sha256(layer)}", layer), entry(f"blobs/sha256/{images.sha256(other)}", other),
                  entry("manifest.json", json.dumps(manifest)), entry("repositories", "{}"))
        self.assertEqual(self.store.take(new, name=None)["name"], "thing-2.1_x")
        # A layer twice: the old ones had a link for the second.
        same = images.config([layer, layer])
        old = docker([layer, layer], same, members={"1/layer.tar": entry("1/layer.tar", kind="symlink", link="../0/layer.tar")},
                     tag="localhost:5000/a/b@sha256:" + "0" * 64)
        made = self.store.take(old, name=None)
        self.assertEqual(made["name"], "b")
        self.assertEqual(made["source"][:24], "docker-archive localhost")
        self.assertEqual(made["digest"], "sha256:" + images.sha256(json.dumps(same).encode()))
        self.assertEqual(self.store.take(docker([layer], tag=None), name=None)["name"], "archive")
        # A layer that lies there twice, the second time cut: the first counts, as its digest says.
        self.store.take(docker([layer], members={"./0/layer.tar": layer[:700], "0//x": b"", "zz": b""}))
        self.assertEqual(self.text("one"), "1")

    def test_packed_archives_and_stdin(self):
        good = docker([tar(entry("f", "x"))])
        packers = [gzip.compress, lzma.compress] + ([zstd] if has("zstd") else [])
        for pack in packers:
            self.store.take(pack(good))
            self.assertEqual(self.text("f"), "x")
        for data in (good, gzip.compress(good)):
            done = self.store.run("import", "-", "--name", "piped", "--json", data=data)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.text("f", "piped"), "x")

    def test_oci_layouts(self):
        layer, other = tar(entry("one", "1")), tar(entry(".wh.one", ""), entry("two", "2"))
        for packed in [None, gzip.compress] + ([zstd] if has("zstd") else []):
            oci = images.Oci()
            oci.index(oci.image([layer, other], packed=packed, annotations={"org.opencontainers.image.ref.name": "v3"}))
            made = self.store.take(oci.tar())
            self.assertEqual(made["source"], "oci-layout v3")
            self.assertEqual((self.exists("one"), self.text("two")), (False, "2"))
            folder = tempfile.mkdtemp(dir=self.store.folder)
            done = self.store.run("import", oci.write(folder), "--name", "of-folder", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["digest"], made["digest"])
            self.assertEqual(self.text("two", "of-folder"), "2")

    def test_an_index_of_platforms(self):
        layer, wrong = tar(entry("right", "")), tar(entry("wrong", ""))
        foreign = {**images.config([wrong]), "architecture": "s390x" if images.ARCHITECTURE != "s390x" else "amd64"}
        oci = images.Oci()
        nested = oci.blob({"schemaVersion": 2, "manifests": [
            oci.image([wrong], foreign, platform={"os": "linux", "architecture": foreign["architecture"]}),
            oci.image([layer], platform={"os": "linux", "architecture": images.ARCHITECTURE}),
            oci.image([wrong], platform={"os": "unknown", "architecture": "unknown"})]}, images.INDEX)
        self.store.take(oci.index(nested).tar())
        self.assertTrue(self.exists("right") and not self.exists("wrong"))
        ours = oci.image([layer], platform={"os": "linux", "architecture": images.ARCHITECTURE})
        self.assertIn("2 images", self.store.refuse(oci.index(ours, ours).tar()))
        other = oci.image([wrong], foreign, platform={"os": "linux", "architecture": foreign["architecture"]})
        self.assertIn("no image for linux/" + images.ARCHITECTURE, self.store.refuse(oci.index(other).tar()))
        unlabelled = oci.image([wrong], foreign)
        self.assertIn(foreign["architecture"], self.store.refuse(oci.index(unlabelled).tar()))
        deep = ours
        for _ in range(9):
            deep = oci.blob({"manifests": [deep]}, images.INDEX)
        self.assertIn("indexes", self.store.refuse(oci.index(deep).tar()))

    def described(self, passwd=None, group=None, **changes):
        files = [entry("etc/passwd", passwd)] if passwd is not None else []
        files += [entry("etc/group", group)] if group is not None else []
        layer = tar(entry("f", ""), *files)
        return self.store.take(docker([layer], images.config([layer], **changes)))

    def test_the_configuration(self):
        made = self.described(Env=["PATH=/x/bin:/bin", "EMPTY=", "no-name=1", "A=b=c"], WorkingDir="/srv/app/",
                              Entrypoint=["/bin/tini", "--"], Cmd=["run", "me"])
        self.assertEqual(made["env"], ["PATH=/x/bin:/bin", "EMPTY=", "A=b=c"])
        self.assertEqual((made["workdir"], made["entrypoint"]), ("/srv/app", ["/bin/tini", "--", "run", "me"]))
        self.assertTrue(os.path.isdir(self.store.rootfs() + "/srv/app"))
        self.assertEqual(os.stat(self.store.rootfs() + "/srv/app").st_uid, 1000)
        made = self.described(WorkingDir="/", Env=None, Cmd=None)
        self.assertEqual((made["workdir"], made["env"], made["entrypoint"]), ("/workspace", [], []))

    def test_users(self):
        passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1200:1300::/home/alice:/bin/sh\nwww:x:33:0::/:/bin/false"
        group = "root:x:0:\nstaff:x:50:alice\n"
        for user, wanted in (("", (1000, 1000)), ("root", (1000, 1000)), ("0:0", (1000, 1000)), ("alice", (1200, 1300)),
                             ("1200", (1200, 1300)), ("alice:staff", (1200, 50)), ("4000:5000", (4000, 5000)),
                             ("4000", (4000, 4000)), ("www", (33, 33)), ("4000:staff", (4000, 50))):
            made = self.described(passwd, group, User=user)
            self.assertEqual((made["uid"], made["gid"]), wanted, user)
            rows = [row.split(":") for row in self.text("etc/passwd").splitlines()]
            self.assertEqual(sum(row[2] == str(wanted[0]) for row in rows), 1, user)
            workspace = os.stat(self.store.rootfs() + "/workspace")
            self.assertEqual((workspace.st_uid, workspace.st_gid), wanted)
        self.described()  # without any /etc
        self.assertEqual([row.split(":")[2] for row in self.text("etc/passwd").splitlines()], ["0", "1000"])
        for name in ("proc", "dev", "sys", "tmp", "workspace", "etc"):
            self.assertTrue(os.path.isdir(self.store.rootfs() + "/" + name), name)
        self.assertEqual(os.stat(self.store.rootfs() + "/tmp").st_mode & 0o7777, 0o1777)

    def test_packages_for_scanners(self):
        status = ("Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2-1\nDescription: x\n more\n\n"
                  "Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n"
                  "Package: evil\x1b[31m\nStatus: install ok installed\nVersion: 1\n\n"
                  "Package: last\nStatus: install ok installed\nArchitecture: all\nVersion: 1:2~3+b4")
        self.store.take(docker([tar(entry("var/lib/dpkg/status", status))]))
        packages = [{"name": "bash", "version": "5.2-1", "architecture": "amd64"},
                    {"name": "last", "version": "1:2~3+b4", "architecture": "all"}]
        shown = json.loads(self.store.run("show", "made", "--packages", "--json").stdout)
        self.assertEqual((shown["manager"], shown["packages"]), ("dpkg", packages))
        self.assertEqual(self.store.run("show", "made", "--packages").stdout, b"bash 5.2-1 amd64\nlast 1:2~3+b4 all\n")
        with open(self.store.rootfs() + "/../packages.json") as file:
            self.assertEqual(json.load(file)["packages"], packages)
        apk = "C:Q1abc=\nP:musl\nV:1.2.4-r2\nA:x86_64\n\nP:busybox\nV:1.36-r5\nA:x86_64\nF:bin\n"
        self.store.take(docker([tar(entry("lib/apk/db/installed", apk))]))
        shown = json.loads(self.store.run("show", "made", "--packages", "--json").stdout)
        self.assertEqual((shown["manager"], [package["name"] for package in shown["packages"]]), ("apk", ["musl", "busybox"]))
        self.store.take(docker([tar(entry("var/lib/dpkg/status.d/base", "Package: base-files\nVersion: 12\n"))]))
        self.assertEqual(self.store.run("show", "made", "--packages").stdout, b"base-files 12 all\n")

    def test_versions_and_removal(self):
        first = self.store.take(docker([tar(entry("one", ""))]))
        second = self.store.take(docker([tar(entry("two", ""))]))
        self.assertNotEqual(first["version"], second["version"])
        self.assertTrue(os.path.isdir(f"{self.store.templates}/{first['version']}/rootfs"))  # somebody may use it
        listed = json.loads(self.store.run("ls", "--json").stdout)["templates"]
        self.assertEqual([template["version"] for template in listed], [second["version"]])
        self.assertIn(b"made", self.store.run("ls").stdout)
        self.assertEqual(self.store.run("rm", "base").returncode, 1)
        self.assertEqual(self.store.run("rm", "made").returncode, 0)
        self.assertEqual(self.store.run("rm", "made").returncode, 1)
        self.assertEqual(self.store.run("show", "made").returncode, 1)
        for name in ("base", "auto", "snapshot", "Big", "a/b", "../x", "", "x-0123456789abcdef"):
            done = self.store.run("import", self.store.put(docker([tar(entry("f", ""))])), "--name", name)
            self.assertEqual(done.returncode, 2, name)

    def test_the_child_has_no_rights(self):
        """Looked at from outside while it reads: ids of nobody, no network, no capability that counts, a filter."""
        layers = [tar(*[entry(f"f{number}-{i}", "x") for i in range(3000)]) for number in range(2)]
        path = self.store.put(docker(layers))
        child = subprocess.Popen([BIN + "/parley-template", "import", path, "--name", "big", "--state", self.store.state],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        child.stderr.readline()
        with open(f"/proc/{child.pid}/task/{child.pid}/children") as children:
            inner = int(children.read())
        os.kill(inner, signal.SIGSTOP)
        with open(f"/proc/{inner}/status") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        links = {kind: os.readlink(f"/proc/{inner}/ns/{kind}") for kind in ("user", "mnt", "pid", "net", "ipc", "uts")}
        root = os.listdir(f"/proc/{inner}/root")
        opened = [os.readlink(f"/proc/{inner}/fd/{fd}") for fd in os.listdir(f"/proc/{inner}/fd")]
        os.kill(inner, signal.SIGCONT)
        child.stderr.read()
        self.assertEqual(child.wait(), 0)
        uids = [int(uid) for uid in status["Uid"].split()]
        self.assertTrue(all(0x70000000 + 4000 * 65536 <= uid < 1 << 31 for uid in uids), uids)
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
        self.assertEqual(int(status["CapEff"], 16), 0b1011)  # CHOWN, DAC_OVERRIDE, FOWNER, of its own namespace
        for kind, link in links.items():
            self.assertNotEqual(link, os.readlink(f"/proc/self/ns/{kind}"), kind)
        self.assertEqual(root, [])
        self.assertFalse([name for name in opened if name.startswith("/etc") or name.endswith("/lock")], opened)

    def test_wrong_words(self):
        for words in ((), ("import",), ("import", "a", "b"), ("nonsense",), ("import", "/nonexistent", "--max-mb", "x"),
                      ("build", "x"), ("build", "Bad", "--suite", "bookworm"), ("show",), ("rm",), ("ls", "x")):
            self.assertEqual(self.store.run(*words).returncode, 2, words)
        self.assertEqual(self.store.run("import", "/nonexistent", "--name", "x").returncode, 1)
        for words in (("--suite", "no-such-suite"), ("--suite", "../../etc/passwd"), ("--suite", "bookworm", "--include", "a b;c"),
                      ("--suite", "bookworm", "--mirror", "file:///etc"), ("--suite", "bookworm", "--mirror", "-x"),
                      ("--suite", "bookworm", "--packages", "/nonexistent")):
            done = self.store.run("build", "x", *words)
            self.assertEqual(done.returncode, 1, words)
        self.assertEqual([name for name in self.store.entries() if name != ".lock"], [])


class Deployed(unittest.TestCase):
    """A deployment and its store."""

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_ROOT_USER="allowed")
        cls.store = Store(cls.deployment.state)

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()
        cls.store.close()

    def run_in(self, thread, template, *command, wanted=0):
        """Runs a command in the thread's sandbox, once the node has told its templates."""
        until = time.monotonic() + 60
        while True:
            done = self.deployment.cli("run", "--thread", thread, "--template", template, "--", *command)
            if done.returncode == wanted or time.monotonic() > until or "emplate" not in done.stderr:
                break
            time.sleep(0.2)
        self.assertEqual(done.returncode, wanted, (command, done, self.deployment.logs()))
        return done.stdout

    def gone(self, path):
        until = time.monotonic() + 60
        while os.path.lexists(path) and time.monotonic() < until:
            time.sleep(0.1)
        self.assertFalse(os.path.lexists(path), path)

    def end(self, thread):
        done = self.deployment.cli("rm", "--thread", thread)
        self.assertEqual(done.returncode, 0, done)


@unittest.skipUnless(os.geteuid() == 0, "needs root for the isolation")
@unittest.skipUnless(images.busybox(), "no static busybox")
class Run(Deployed):
    def take(self, name, *more, **changes):
        layer = images.small_layer(*more)
        return self.store.take(docker([layer], images.config([layer], Env=["PATH=/bin"], **changes)), name=name)

    def test_a_sandbox_of_an_image(self):
        self.take("tiny", entry("srv/app", kind="dir", uid=1234, gid=1235),
                  entry("srv/app/hello", "from the image\n", mode=0o666), entry("bin/su", images.busybox(), mode=0o4755),
                  User="alice", WorkingDir="/srv/app", Cmd=["sh", "-c", "echo never run by itself > /srv/app/ran"])
        seen = self.run_in("one", "tiny", "sh", "-c", "id -u; id -g; pwd; cat hello; echo $PATH; ls")
        self.assertEqual(seen.splitlines(), ["1234", "1235", "/srv/app", "from the image", "/bin", "hello"])
        self.run_in("one", "tiny", "/bin/su", "-c", "id -u", wanted=1)  # "must be suid to work properly"
        self.run_in("one", "tiny", "sh", "-c", "echo changed > hello; echo x > new; rm /bin/ls; echo w > /workspace/w")
        self.assertEqual(self.run_in("one", "tiny", "cat", "hello"), "changed\n")
        self.assertEqual(self.run_in("two", "tiny", "sh", "-c", "cat hello; ls; ls /workspace"), "from the image\nhello\n")
        with open(self.store.rootfs("tiny") + "/srv/app/hello") as file:
            self.assertEqual(file.read(), "from the image\n")
        self.end("one")
        self.end("two")

    def test_names_are_asked_for_where_the_node_answers(self):
        """Also in an image of a whole system, whose resolv.conf is a link to what nobody writes here."""
        self.take("linked", entry("etc/resolv.conf", kind="symlink", link="../run/systemd/resolve/stub-resolv.conf"))
        self.assertEqual(self.run_in("linked", "linked", "cat", "/etc/resolv.conf"), "nameserver 127.0.0.53\n")
        self.end("linked")

    def test_a_line_where_there_is_no_bash(self):
        self.take("plain")
        grant = self.deployment.negotiate("plain", template="plain")
        self.assertEqual(self.deployment.shell(grant, "echo $0; echo $((1 + 1))"), "/bin/sh\n2\n")
        done = self.deployment.exec(grant, argv=["/bin/bash", "-c", "true"])  # who names bash means bash
        self.assertEqual((done.status, "command not found: /bin/bash" in done.json["error"]["message"]), (400, True), done)
        self.end("plain")

    def test_versions_live_as_long_as_they_are_used(self):
        first = self.take("moving", entry("version", "1"))
        self.assertEqual(self.run_in("old", "moving", "cat", "/version"), "1")
        second = self.take("moving", entry("version", "2"))
        until = time.monotonic() + 60
        while self.run_in("new", "moving", "cat", "/version") != "2" and time.monotonic() < until:
            self.end("new")  # the node had not looked yet
        self.assertEqual(self.run_in("new", "moving", "cat", "/version"), "2")
        self.assertEqual(self.run_in("old", "moving", "sh", "-c", "cat /version; true"), "1")
        done = self.store.run("rm", "moving")
        self.assertEqual(done.returncode, 0, done)
        for thread, version in (("old", "1"), ("new", "2")):
            done = self.deployment.cli("run", "--thread", thread, "--", "cat", "/version")
            self.assertEqual((done.returncode, done.stdout), (0, version), done)
        folders = [os.path.join(self.store.templates, made["version"]) for made in (first, second)]
        self.assertTrue(os.path.isdir(folders[0]) and os.path.isdir(folders[1]))
        self.end("old")
        self.gone(folders[0])
        self.assertTrue(os.path.isdir(folders[1]))
        self.end("new")
        self.gone(folders[1])

    def test_a_snapshot_keeps_the_version_it_was_made_of(self):
        made = self.take("kept", entry("version", "1"))
        self.run_in("source", "kept", "sh", "-c", "cat /version; echo mine > /workspace/mine")
        done = self.deployment.cli("snapshot", "--thread", "source", "--name", "of-kept")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.store.run("rm", "kept").returncode, 0)
        self.end("source")
        self.assertEqual(self.run_in("again", "snapshot:of-kept", "cat", "/version", "/workspace/mine"), "1mine\n")
        self.assertTrue(os.path.isdir(os.path.join(self.store.templates, made["version"])))
        self.assertEqual(self.deployment.cli("snapshots", "rm", "of-kept").returncode, 0)
        self.assertEqual(self.run_in("again", "snapshot:of-kept", "cat", "/version"), "1")  # its sandbox lives on
        self.end("again")
        self.gone(os.path.join(self.store.templates, made["version"]))

    def test_odd_trees_make_sandboxes_all_the_same(self):
        """What init writes and mounts onto is what the image has there: links, pipes, folders."""
        odd = {"pipes": [entry("etc/hosts", kind="fifo", mode=0o666), entry("etc/hostname", kind="fifo", mode=0o666)],
               "links": [entry("etc/hosts", kind="symlink", link="/proc/self/mem"),
                         entry("etc/hostname", kind="symlink", link="/workspace/x"), entry("tmp", kind="symlink", link="/proc")],
               "folders": [entry("etc/hosts", kind="dir"), entry("etc/hostname", kind="dir"), entry("dev/null", "a file")],
               "closed": [entry("etc", kind="dir", mode=0), entry("workspace", kind="dir", mode=0), entry("tmp", kind="dir", mode=0)],
               "owned": [entry("./", kind="dir", uid=5, gid=6, mode=0o700), entry("proc", kind="dir", uid=7)],
               "workspace": [entry("workspace", kind="symlink", link="/proc/1/root")]}
        for name, entries in odd.items():
            with self.subTest(name):
                self.take(name, *entries)
                self.assertEqual(self.run_in(name, name, "sh", "-c", "echo fine; echo x > /dev/null"), "fine\n")
                self.end(name)

    def test_no_such_template(self):
        done = self.deployment.cli("run", "--thread", "none", "--template", "nowhere", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("nowhere", done.stderr)

    def test_the_cli_hands_on(self):
        done = self.deployment.cli("template", "ls", "--json")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("base", [template["name"] for template in json.loads(done.stdout)["templates"]])
        self.assertEqual(self.deployment.cli("template", "show", "base").returncode, 0)
        done = self.deployment.cli("template", "rm", "base", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["error"]["code"]), (1, "FORBIDDEN"))
        for words in ((), ("nonsense",), ("show",), ("import", "--nonsense", "x")):
            self.assertEqual(self.deployment.cli("template", *words).returncode, 2, words)
        self.assertIn("usage: parley template import", self.deployment.cli("template", "--help").stdout)


@unittest.skipUnless(os.geteuid() == 0, "needs root for the isolation")
@unittest.skipUnless(os.access("/usr/sbin/debootstrap", os.X_OK), "no debootstrap")
class Build(Deployed):
    def test_debian(self):
        reach = subprocess.run(["curl", "-sfI", "--max-time", "20", MIRROR + "/dists/bookworm/InRelease"],
                               stdout=subprocess.DEVNULL, check=False)
        if reach.returncode != 0:
            self.skipTest("no Debian mirror can be reached")
        with open(self.store.folder + "/wanted", "w") as wanted:
            wanted.write("# one a line\nless\n")
        done = self.deployment.cli("template", "build", "deb", "--suite", "bookworm", "--mirror", MIRROR, "--include", "ed",
                                   "--packages", self.store.folder + "/wanted", "--json", timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        made = json.loads(done.stdout)
        self.assertEqual(made["source"], "debootstrap bookworm " + MIRROR)
        self.assertRegex(made["digest"], "^sha256:[0-9a-f]{64}$")
        shown = json.loads(self.store.run("show", "deb", "--packages", "--json").stdout)
        names = [package["name"] for package in shown["packages"]]
        for name in ("bash", "dpkg", "ed", "less", "libc6"):
            self.assertIn(name, names)
        self.look_at(self.store.rootfs("deb"))
        seen = self.run_in("deb", "deb", "bash", "-c", "id -un; pwd; dpkg-query -W -f '${Package} ${Status}\\n' ed; "
                           "printf '1,$p\\nq\\n' | ed -s /etc/hostname | wc -l; touch /usr/x /workspace/x; ls /workspace")
        self.assertEqual(seen.splitlines(), ["user", "/workspace", "ed install ok installed", "1", "x"])

        self.install()

    def install(self):
        """A package, by who is root in there, which is nobody out here."""
        script = ("mkdir -p /tmp/p/DEBIAN /tmp/p/usr/share/thing && printf 'Package: thing\\nVersion: 1.0\\nArchitecture: all\\n"
                  "Maintainer: x\\nDescription: x\\n' > /tmp/p/DEBIAN/control && echo 'chown 33:33 /usr/share/thing' > "
                  "/tmp/p/DEBIAN/postinst && chmod 755 /tmp/p/DEBIAN/postinst && sed -i '1i#!/bin/sh' /tmp/p/DEBIAN/postinst && "
                  "dpkg-deb -b /tmp/p /tmp/p.deb >/dev/null && dpkg -i /tmp/p.deb >/dev/null && rm -r /tmp/p")
        plain = self.deployment.cli("run", "--thread", "deb", "--template", "deb", "--", "bash", "-c", script)
        self.assertNotEqual(plain.returncode, 0)
        self.assertIn("requires superuser privilege", plain.stderr)
        done = self.deployment.cli("run", "--thread", "deb", "--user", "root", "--", "bash", "-c", "rm -r /tmp/p /tmp/p.deb; " + script)
        self.assertEqual(done.returncode, 0, done)
        seen = self.run_in("deb", "deb", "bash", "-c", "stat -c %u:%g /usr/share/thing; dpkg-query -W -f '${Status}' thing")
        self.assertEqual(seen, "33:33\ninstall ok installed")
        self.assertFalse(os.path.exists(self.store.rootfs("deb") + "/usr/share/thing"))

    def look_at(self, rootfs):
        with open("/etc/hostname") as ours, open(rootfs + "/etc/hostname") as its:
            self.assertNotEqual(ours.read(), its.read())
        with open(rootfs + "/etc/resolv.conf") as file:
            self.assertEqual(file.read(), "")
        found = subprocess.run(["find", rootfs, "-type", "b", "-o", "-type", "c", "-o", "-type", "f", "-perm", "/6000"],
                               stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(found, b"")
        self.assertEqual(os.stat(rootfs + "/workspace").st_uid, 1000)
        self.assertFalse(os.path.exists(rootfs + "/debootstrap"))


if __name__ == "__main__":
    unittest.main()
