"""The CLI on files: cp both ways, sync by what differs, cat, put and edit as scripts need them, completion, man pages."""
import fcntl
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing.deployment import BIN, ROOT, Deployment, needs_root  # noqa: E402

PARLEY = os.path.join(BIN, "parley")


def read_all(fd):
    """What a terminal shows until its other side is closed."""
    shown = b""
    try:
        while piece := os.read(fd, 4096):
            shown += piece
    except OSError:
        pass
    os.close(fd)
    return shown


@needs_root
class CliFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="parley-cli-files-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.thread = "t-" + self.id().rsplit(".", 1)[1].replace("_", "-")

    def cli(self, command, *arguments, ok=True, **more):
        done = self.deployment.cli(command, "--thread", self.thread, *arguments, **more)
        errors = done.stderr if isinstance(done.stderr, str) else done.stderr.decode()
        self.assertNotIn("Sanitizer", errors)
        if ok:
            self.assertEqual(done.returncode, 0, errors)
        return done

    def inside(self, command):
        return self.cli("run", "-n", "--", "sh", "-c", command).stdout

    def local(self, name, data=b"", mode=0o644):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)
        return path

    # ---- cat, put, edit ----

    def test_put_and_cat(self):
        data = bytes(range(256)) * 5000
        self.cli("put", ":deep/er/file.bin", input=data, text=False)
        self.assertEqual(self.cli("cat", ":deep/er/file.bin", text=False).stdout, data)
        self.assertEqual(self.cli("cat", ":/workspace/deep/er/file.bin", text=False).stdout, data)
        self.assertEqual(self.inside("stat -c %U:%a deep/er/file.bin").split(":")[1], "644\n")
        told = json.loads(self.cli("put", "--json", ":deep/er/file.bin", "--mode", "0700", input="x").stdout)
        self.assertEqual(self.inside("stat -c %a deep/er/file.bin"), "700\n")
        self.cli("put", ":deep/er/file.bin", "--if-match", told["etag"], input="y")
        late = self.cli("put", ":deep/er/file.bin", "--if-match", told["etag"], input="z", ok=False)
        self.assertEqual(late.returncode, 1)
        taken = self.cli("put", ":deep/er/file.bin", "--new", input="z", ok=False)
        self.assertEqual(taken.returncode, 1)
        self.assertEqual(self.cli("cat", ":deep/er/file.bin").stdout, "y")

    def test_a_sandbox_by_its_id(self):
        """From a folder whose thread has another one: reached all the same, by a lease that it has, without one more."""
        self.cli("put", ":kept", input="here")
        listed = json.loads(self.deployment.cli("ls", "--json").stdout)
        meant = next(one for one in listed if self.thread in one["threads"])
        self.deployment.cli("put", "--thread", self.thread + "-other", ":kept", input="there")
        for words in (("cat", meant["id"] + ":kept"), ("cat", meant["name"] + ":kept")):
            done = self.deployment.cli(*words, cwd=self.folder)
            self.assertEqual((done.stdout, done.stderr), ("here", ""))
        self.deployment.cli("put", ":kept", input="elsewhere", cwd=self.folder)
        self.assertEqual(self.deployment.cli("cat", meant["id"] + ":kept", cwd=self.folder).stdout, "here")
        self.assertIn("ID", self.deployment.cli("ps", meant["id"], cwd=self.folder).stdout)
        now = next(one for one in json.loads(self.deployment.cli("ls", "--json").stdout) if one["id"] == meant["id"])
        self.assertEqual((now["threads"], now["max_expires_at"]), (meant["threads"], meant["max_expires_at"]))
        self.assertIn("no living sandbox", self.deployment.cli("cat", "nosuch:kept", cwd=self.folder).stderr)

    def test_words_that_are_wrong(self):
        for words, status in ((("cat", "local"), 2), (("cat", ":missing"), 1), (("put", ":a", ":b"), 2),
                              (("cp", "a", "b"), 2), (("cp", ":a"), 2), (("sync", "a", "b"), 2),
                              (("edit", ":a", "--old", "x"), 2), (("cat", ":../../.."), 2)):
            done = self.cli(*words, ok=False, input="")
            self.assertEqual(done.returncode, status, (words, done.stderr))
            self.assertRegex(done.stderr, "^parley( cat| cp| put| sync| edit)?: ")

    def test_edit(self):
        self.cli("put", ":a.txt", input="one two one\nthree\n")
        self.assertEqual(self.cli("edit", ":a.txt", "--old", "one", "--new", "1", ok=False).returncode, 1)
        self.assertEqual(self.cli("edit", ":a.txt", "--old", "four", "--new", "1", ok=False).returncode, 1)
        self.cli("edit", ":a.txt", "--old", "two", "--new", "zwei")
        self.cli("edit", ":a.txt", "--old", "one", "--new", "eins", "--all")
        self.assertEqual(self.cli("cat", ":a.txt").stdout, "eins zwei eins\nthree\n")

    def test_edit_in_an_editor(self):
        self.cli("put", ":a.txt", input="before\n")
        editor = self.local("editor", b"#!/bin/sh\nsed -i s/before/after/ \"$1\"\n", 0o755)
        environment = dict(self.deployment.environment, VISUAL=editor)
        done = subprocess.run([PARLEY, "edit", "--thread", self.thread, ":a.txt"], env=environment, capture_output=True)
        self.assertEqual((done.returncode, self.cli("cat", ":a.txt").stdout), (0, "after\n"), done.stderr)
        # Somebody else writes it while it is open: theirs stays, ours is not lost.
        rude = self.local("rude", f"#!/bin/sh\necho mine >\"$1\"\necho theirs | {PARLEY} put --thread {self.thread} "
                          ":a.txt\n".encode(), 0o755)
        environment["VISUAL"] = rude
        done = subprocess.run([PARLEY, "edit", "--thread", self.thread, ":a.txt"], env=environment, capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, self.cli("cat", ":a.txt").stdout), (1, "theirs\n"), done.stderr)
        kept = done.stderr.split("what you wrote is in ")[1].split()[0]
        with open(kept) as file:
            self.assertEqual(file.read(), "mine\n")
        shutil.rmtree(os.path.dirname(kept))

    # ---- cp ----

    def test_cp_files(self):
        script = self.local("run.sh", b"#!/bin/sh\necho ran\n", 0o755)
        odd = self.local("odd\n name:x", b"odd")
        self.cli("cp", script, odd, ":")
        self.assertEqual(self.inside("./run.sh"), "ran\n")
        self.cli("cp", script, ":bin/other")
        self.assertEqual(self.inside("bin/other"), "ran\n")
        os.mkdir(self.folder + "/back")
        self.cli("cp", ":run.sh", ":odd\n name:x", self.folder + "/back/")
        with open(self.folder + "/back/odd\n name:x", "rb") as file:
            self.assertEqual(file.read(), b"odd")
        self.assertEqual(os.stat(self.folder + "/back/run.sh").st_mode & 0o777, 0o755)
        self.cli("cp", ":run.sh", ":again.sh")
        self.assertEqual(self.inside("./again.sh"), "ran\n")
        self.assertEqual(self.cli("cp", self.folder, ":", ok=False).returncode, 1)  # a folder wants -r
        self.assertEqual(sorted(os.listdir(self.folder + "/back")), ["odd\n name:x", "run.sh"])

    def test_cp_folders(self):
        self.local("tree/a", b"a" * 100000)
        self.local("tree/sub/b", b"b", 0o700)
        self.local(b"tree/\xff\xfe".decode("utf-8", "surrogateescape"), b"bytes")
        os.symlink("sub/b", self.folder + "/tree/link")
        os.mkfifo(self.folder + "/tree/fifo")
        done = self.cli("cp", "-r", self.folder + "/tree", ":")
        self.assertIn("1 names", done.stderr)
        self.assertEqual(self.inside("cat tree/link; stat -c %a tree/sub/b; readlink tree/link; ls tree | wc -l"),
                         "b700\nsub/b\n4\n")
        self.inside("ln -s /etc/passwd tree/out; ln -s ../.. tree/up; mkfifo tree/f; chmod u+s tree/sub/b")
        done = self.cli("cp", "-r", ":tree", self.folder + "/back")
        self.assertEqual(sorted(os.listdir(os.fsencode(self.folder + "/back"))), [b"a", b"link", b"sub", b"\xff\xfe"])
        self.assertIn("3 names", done.stderr)
        self.assertEqual(os.stat(self.folder + "/back/sub/b").st_mode & 0o7777, 0o700)
        self.assertEqual(os.readlink(self.folder + "/back/link"), "sub/b")

    def test_cp_a_large_file_over_kills(self):
        """200 MB up and down while sandboxd is killed: whole, once, and no temporary left."""
        block = os.urandom(1 << 20)
        digest = hashlib.sha256()
        path = self.folder + "/large"
        with open(path, "wb") as file:
            for i in range(200):
                piece = i.to_bytes(8, "big") + block[8:]
                digest.update(piece)
                file.write(piece)
        over = threading.Event()

        def kill():
            while not over.wait(0.6):
                self.deployment.kill("parley-sandboxd")
                if over.wait(1.5):
                    return

        self.cli("run", "-n", "--", "true")
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            self.cli("cp", path, ":large")
            self.cli("cp", ":large", self.folder + "/back")
        finally:
            over.set()
            killer.join()
        self.deployment.wait_ready()
        self.assertEqual(self.inside("sha256sum <large; ls -A").split(),
                         [digest.hexdigest(), "-", "large"])
        with open(self.folder + "/back", "rb") as file:
            self.assertEqual(hashlib.file_digest(file, "sha256").hexdigest(), digest.hexdigest())
        self.assertEqual(sorted(os.listdir(self.folder)), ["back", "large"])

    def test_cp_to_a_full_disk(self):
        path = self.folder + "/large"
        with open(path, "wb") as file:
            file.truncate(300 << 20)
        self.cli("run", "--disk", "200m", "--", "true")
        done = self.cli("cp", path, ":large", ok=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "(?i)full|space")
        self.assertEqual(self.inside("ls -A | wc -l; echo x >small; cat small"), "0\nx\n")

    def test_progress(self):
        """A bar on a terminal, nothing in a pipe."""
        path = self.folder + "/large"
        with open(path, "wb") as file:
            file.truncate(150 << 20)
        self.assertEqual(self.cli("cp", path, ":large").stderr, "")
        main, side = pty.openpty()
        # Slow enough to be seen: the bar has half a second of patience.
        child = subprocess.Popen(["sh", "-c", "(cat; sleep 0.8; echo) | exec \"$0\" put --thread \"$1\" :slow", PARLEY,
                                  self.thread], env=self.deployment.environment, stdin=subprocess.PIPE, stderr=side)
        os.close(side)
        child.stdin.write(b"x" * 100000)
        child.stdin.close()
        shown = read_all(main)
        self.assertEqual(child.wait(), 0, shown)
        self.assertIn(b"KiB", shown)

    def test_stopped_by_a_signal(self):
        """Nothing half stays, here or there, and the bar is gone."""
        self.inside("truncate -s 20G zero; mkdir t; truncate -s 20G t/zero")  # more than comes before the signal
        with open(self.folder + "/large", "wb") as file:
            file.truncate(230 << 20)
        os.makedirs(self.folder + "/to")
        for words in (("cp", ":zero", self.folder + "/to/zero"), ("cp", "-r", ":t", self.folder + "/to/t"),
                      ("put", ":typed"), ("cp", self.folder + "/large", ":large")):
            main, side = pty.openpty()
            child = subprocess.Popen([PARLEY, words[0], "--thread", self.thread, *words[1:]], stdin=side, stderr=side,
                                     env=self.deployment.environment, start_new_session=True)
            os.close(side)
            until = time.monotonic() + 10
            while time.monotonic() < until:  # it has begun
                begun = [name for _, _, names in os.walk(self.folder + "/to") for name in names]
                if begun or words[1] == ":typed" and time.monotonic() > until - 9.5:
                    break
                if words[-1] == ":large" and time.monotonic() > until - 9.9:
                    break
                time.sleep(0.005)
            os.killpg(child.pid, signal.SIGINT)
            shown = read_all(main)
            with self.subTest(words=words):
                self.assertEqual(child.wait(10), -signal.SIGINT, shown)
                self.assertTrue(shown == b"" or shown.endswith(b"\r\x1b[K"), shown)
                self.assertEqual([name for _, _, names in os.walk(self.folder + "/to") for name in names], [])
            shutil.rmtree(self.folder + "/to")
            os.makedirs(self.folder + "/to")
        self.assertEqual(self.inside("ls -A"), "t\nzero\n")

    def test_bar_fits_its_row(self):
        name = self.local("long-" + "n" * 200)
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
        child = subprocess.Popen(["sh", "-c", "(cat \"$2\"; sleep 0.8; echo) | exec \"$0\" put --thread \"$1\" "
                                  ":$(basename $2)", PARLEY, self.thread, name], env=self.deployment.environment,
                                 stderr=side)
        os.close(side)
        rows = re.split(rb"\r\x1b\[K", read_all(main))
        self.assertEqual(child.wait(), 0, rows)
        self.assertTrue(any(b"nnn  " in row for row in rows), rows)
        self.assertLess(max(map(len, rows)), 50)

    def test_cp_to_what_is_no_file(self):
        """A FIFO or device is written to, a link followed: none of them is replaced."""
        self.inside("echo one >one")
        os.mkfifo(self.folder + "/fifo")
        with open(self.folder + "/real", "w") as file:
            file.write("old")
        os.symlink("real", self.folder + "/link")
        reader = subprocess.Popen(["cat", self.folder + "/fifo"], stdout=subprocess.PIPE)
        self.cli("cp", ":one", self.folder + "/fifo")
        self.assertEqual(reader.communicate(timeout=10)[0], b"one\n")
        self.cli("cp", ":one", self.folder + "/link")
        self.assertEqual(os.readlink(self.folder + "/link"), "real")
        with open(self.folder + "/real") as file:
            self.assertEqual(file.read(), "one\n")

    def test_another_sandbox_is_not_meant(self):
        self.cli("put", ":one", input="mine")
        for words in (("cat", "other-name:one"), ("put", "other-name:one"), ("cp", "other-name:one", self.folder + "/x")):
            done = self.cli(*words, ok=False, input="theirs")
            self.assertEqual((done.returncode, done.stdout), (1, ""), words)
            self.assertIn("other-name", done.stderr)
        self.assertEqual(self.cli("cat", ":one").stdout, "mine")

    def test_old_times_and_hard_links(self):
        self.inside("mkdir t; echo 1 >t/a; ln t/a t/b; touch -d '1960-01-01 00:00:00.5' t/a")
        self.cli("cp", "-r", ":t", self.folder + "/t")
        a, b = os.stat(self.folder + "/t/a"), os.stat(self.folder + "/t/b")
        self.assertEqual((a.st_ino, int(a.st_mtime)), (b.st_ino, -315619200))
        self.cli("cp", "-p", ":t/a", self.folder + "/a")
        self.assertEqual(os.stat(self.folder + "/a").st_mtime, -315619199.5)

    def test_a_sandbox_that_has_ended(self):
        """The grant that was kept is of no use any more: a command that begins gets another sandbox."""
        for words in (("put", ":one"), ("cp", self.local("two"), ":")):
            self.cli("put", ":zero", input="x")
            sandbox = self.deployment.negotiate(self.thread)["sandbox"]["id"]
            self.assertEqual(self.deployment.request("DELETE", "/sandboxes/" + sandbox).status // 100, 2)
            self.cli(*words, input="y")
            self.assertEqual(self.inside("ls").split(), [words[-1][1:] or "two"])

    def test_errors_name_the_file(self):
        self.assertIn(":/workspace/missing: ", self.cli("cat", ":missing", ok=False).stderr)
        self.assertIn(":/etc/new: ", self.cli("put", ":/etc/new", ok=False, input="").stderr)

    # ---- sync ----

    def sync(self, *arguments):
        return json.loads(self.cli("sync", "--json", *arguments).stdout)

    def test_sync_up(self):
        for i in range(300):
            self.local(f"tree/d{i % 7}/f{i}", str(i).encode())
        os.symlink("d0/f0", self.folder + "/tree/link")
        tree = self.folder + "/tree"
        told = self.sync(tree, ":tree")
        self.assertEqual((told["made"], told["replaced"]), (308, 0))
        told = self.sync(tree, ":tree")
        self.assertEqual((told["made"], told["replaced"], told["same"]), (0, 0, 308))
        self.local("tree/d1/f1", b"changed")
        os.chmod(tree + "/d2/f2", 0o755)
        os.unlink(tree + "/link")
        os.symlink("d1/f1", tree + "/link")
        shutil.rmtree(tree + "/d3")
        self.inside("echo theirs >tree/theirs")
        dry = self.cli("sync", "-n", "--delete", tree, ":tree").stdout.splitlines()
        self.assertEqual(dry, ["- d3", "- theirs", "~ d1/f1", "~ d2/f2", "~ link"])
        told = self.sync(tree, ":tree")
        self.assertEqual((told["replaced"], told["removed"]), (3, 0))
        self.assertEqual(self.inside("cat tree/theirs tree/link; stat -c %a tree/d2/f2; ls tree/d3 | wc -l"),
                         f"theirs\nchanged755\n{len(range(3, 300, 7))}\n")
        told = self.sync("--delete", tree, ":tree")
        self.assertEqual(told["removed"], 2)
        self.assertEqual(self.inside("ls tree | wc -l"), "7\n")

    def test_sync_down(self):
        self.inside("mkdir -p out/sub; echo a >out/a; echo b >out/sub/b; ln -s sub/b out/link; ln -s /etc out/etc; "
                    "printf x >\"$(printf 'out/\\377')\"")
        target = self.folder + "/out"
        told = self.sync(":out", target)
        self.assertEqual((told["made"], told["skipped"]), (5, 1))
        self.assertEqual(sorted(os.listdir(os.fsencode(target))), [b"a", b"link", b"sub", b"\xff"])
        self.assertEqual(self.sync(":out", target)["same"], 5)
        with open(target + "/mine", "w") as file:
            file.write("mine")
        self.inside("echo changed >out/a; rm out/link")
        told = self.sync(":out", target)
        self.assertEqual((told["replaced"], told["removed"]), (1, 0))
        self.assertTrue(os.path.lexists(target + "/mine"))
        self.sync("--delete", ":out", target)
        self.assertEqual(sorted(os.listdir(os.fsencode(target))), [b"a", b"sub", b"\xff"])

    def test_sync_excludes_and_kinds(self):
        self.local("tree/.git/config", b"x")
        self.local("tree/src/a.o", b"x")
        self.local("tree/src/a.c", b"x")
        self.inside("mkdir -p tree/.git/objects tree/src/a.c")
        arguments = ("--exclude", ".git", "--exclude", "*.o", self.folder + "/tree", ":tree")
        clash = self.cli("sync", *arguments, ok=False)
        self.assertEqual(clash.returncode, 1)
        self.assertIn("--delete", clash.stderr)
        self.sync("--delete", *arguments)
        self.assertEqual(self.inside("cat tree/src/a.c; ls -A tree/src; ls -A tree/.git"), "xa.c\nobjects\n")
        # What is excluded does not go with its folder.
        self.inside("mkdir -p tree/old/in/.git; touch tree/old/in/.git/mine tree/old/in/x tree/old/y")
        self.assertEqual(self.sync("--delete", *arguments)["removed"], 2)
        self.assertEqual(self.inside("cd tree/old && find . -type f"), "./in/.git/mine\n")

    def test_sync_down_again_with_any_umask(self):
        self.inside("mkdir out; echo a >out/a; chmod 666 out/a")
        for made in (1, 0):
            done = subprocess.run(["sh", "-c", "umask 077; exec \"$@\"", "-", PARLEY, "sync", "--json", "--thread",
                                   self.thread, ":out", self.folder + "/out"], env=self.deployment.environment,
                                  capture_output=True, text=True)
            told = json.loads(done.stdout)
            self.assertEqual((told["made"], told["replaced"]), (made, 0))
        self.assertEqual(os.stat(self.folder + "/out/a").st_mode & 0o777, 0o600)

    def test_sync_down_stays_in_its_folder(self):
        """A link that is here already, or that the sandbox makes of a folder meanwhile, leads nothing out."""
        outside = self.folder + "/outside"
        os.makedirs(outside)
        os.makedirs(self.folder + "/out")
        os.symlink(outside, self.folder + "/out/sub")
        self.inside("mkdir -p out/sub; echo evil >out/sub/evil")
        self.cli("sync", ":out", self.folder + "/out", ok=False)
        self.assertEqual(os.listdir(outside), [])

    # ---- completion and man pages ----

    def words(self, *words):
        return self.deployment.cli("completion", "words", *words).stdout.split("\n")[:-1]

    def test_completion(self):
        self.assertEqual(self.words("sn"), ["snapshot", "snapshots"])
        self.assertIn("--delete", self.words("sync", "--d"))
        self.assertIn("-r", self.words("cp", "-"))
        environment = self.deployment.environment
        for shell, check in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])):
            script = self.deployment.cli("completion", shell).stdout
            path = self.local("complete." + shell, script.encode())
            done = subprocess.run([*check, path], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_completion_in_shells(self):
        """Real shells on a terminal; names that are commands are quoted, those that steer a terminal left away."""
        environment = dict(self.deployment.environment, PATH=BIN + ":" + os.environ["PATH"], PS1="> ", HOME=self.folder)
        subprocess.run([PARLEY, "run", "-n", "--", "sh", "-c", "mkdir src 'd;touch pwned'; touch src/main.c 'my file' "
                        "'$(touch pwned)' \"b$(printf '\\033')x\" 'a:b'"], env=environment, cwd=self.folder, check=True)
        setup = {"bash": ("bash --norc --noprofile", "source <(parley completion bash)"),
                 "zsh": ("zsh -f", "autoload -U compinit; compinit -u; source <(parley completion zsh)"),
                 "fish": ("fish --no-config", "parley completion fish | source")}
        sockets = tempfile.TemporaryDirectory()
        self.addCleanup(sockets.cleanup)
        typed = (("parley syn", "parley sync"), ("parley cat :sr", "parley cat :src/main.c"),
                 ("parley cat :my", "parley cat :my\\ file"), ("parley cat :b", "parley cat :b"),
                 ("parley cat :a", "parley cat :a:b"), ("parley cat :\\$", "parley cat :\\$\\(touch\\ pwned\\)"),
                 ("parley cat :d", "parley cat :d\\;touch\\ pwned/"))
        for shell, (command, source) in setup.items():
            socket = f"{sockets.name}/{shell}"  # not where fish, that completes behind ':' by itself too, would find it

            def tmux(*words):
                return subprocess.run(["tmux", "-S", socket, *words], env=environment, cwd=self.folder, check=True,
                                      capture_output=True, text=True).stdout

            def shows(wanted, seconds=8):
                until = time.monotonic() + seconds
                while wanted not in (shown := tmux("capture-pane", "-p")) and time.monotonic() < until:
                    time.sleep(0.05)
                return shown

            tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "30", command)
            self.addCleanup(subprocess.run, ["tmux", "-S", socket, "kill-server"], capture_output=True)
            tmux("send-keys", "-l", source + "; echo re''ady")
            tmux("send-keys", "Enter")
            self.assertIn("ready\n", shows("ready\n"), shell)
            for word, wanted in typed:
                tmux("send-keys", "-l", word)
                tmux("send-keys", "Tab")
                if wanted.endswith("main.c"):
                    shows("src/")
                    tmux("send-keys", "Tab")
                with self.subTest(shell=shell, word=word):
                    self.assertIn(wanted, shows(wanted, 8 if wanted != word else 0.3))
                tmux("send-keys", "C-u")
        self.assertFalse(os.path.exists(self.folder + "/pwned"))

    def test_completion_of_paths(self):
        self.inside("mkdir -p src; touch src/main.c src/make readme; printf x >\"$(printf 'src/m\\033[2Jx')\"")
        environment = dict(self.deployment.environment)
        # The folder's own thread is used: it is that of the current folder.
        def complete(*words):
            return subprocess.run([PARLEY, "completion", "words", *words], env=environment, cwd=self.folder,
                                  capture_output=True, text=True).stdout.split("\n")[:-1]
        subprocess.run([PARLEY, "run", "-n", "--", "sh", "-c", "mkdir -p src; touch src/main.c src/make readme"],
                       env=environment, cwd=self.folder, check=True)
        self.assertEqual(complete("cat", ":s"), [":src/"])
        self.assertEqual(complete("cat", ":src/ma"), [":src/main.c", ":src/make"])

    def test_man_pages(self):
        pages = self.folder + "/man"
        subprocess.run([ROOT + "/scripts/manpages", PARLEY, pages], check=True, capture_output=True)
        commands = [line.split()[0] for line in self.deployment.cli("--help").stdout.splitlines()
                    if line.startswith("  ") and line[2] != " " and "  " in line[2:]]
        self.assertGreater(len(commands), 15)
        self.assertEqual(sorted(os.listdir(pages)),
                         sorted(["parley.1"] + [f"parley-{command}.1" for command in commands]))
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning",
                               *(os.path.join(pages, page) for page in os.listdir(pages))], capture_output=True, text=True)
        self.assertEqual(done.stdout, "")
        text = re.sub(".\\x08", "", subprocess.run(["mandoc", "-T", "ascii", pages + "/parley-sync.1"],
                                                capture_output=True, text=True).stdout)
        self.assertTrue(text.startswith("PARLEY-SYNC(1)"), text[:80])
        self.assertIn("SYNOPSIS", text)
        self.assertIn("--delete", text)


if __name__ == "__main__":
    unittest.main()
