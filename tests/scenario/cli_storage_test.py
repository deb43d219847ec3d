"""The CLI's commands on storage and limits: snapshot, snapshots, restore, fork, pause, resume, limits, volumes, templates,
top, and how run says what a new sandbox shall be like. First what they ask and
print, against a stand-in; then that they do it, against a deployment."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.fake import Fake, Refusal, client_environment  # noqa: E402

SANDBOX, SNAPSHOT = "sbx_" + "a" * 20, "snp_" + "s" * 20


def shown(**changes):
    return {"id": SANDBOX, "name": "brisk-otter", "state": "active", "template": "base", "storage": "btrfs", "node": "n1",
            "threads": ["t1"], "created_at": "2026-11-22T00:00:00.000Z", "max_expires_at": "2036-11-22T00:00:00.000Z",
            "resources": {"cpu": 0.5, "memory_mb": 512, "disk_mb": 1024, "pids": 256, "open_files": 65536,
                          "processes": 1000, "output_mb": 16}} | changes


def kept(**changes):
    return {"id": SNAPSHOT, "name": "installed", "state": "ready", "sandbox_id": SANDBOX, "template": "base", "node": "n1",
            "storage": "btrfs", "size_bytes": 3 << 20, "owner": "local", "created_at": "2026-11-22T00:00:00.000Z"} | changes


def used(**changes):
    return {"cpu": {"limit_milli": 500, "used_ms": 1500}, "memory": {"limit_bytes": 512 << 20, "used_bytes": 5 << 20,
            "oom_kills": 0}, "pids": {"limit": 256, "used": 3}, "disk": {"limit_bytes": 1 << 30, "used_bytes": 7 << 20,
            "storage": "btrfs"}, "commands": {"limit": 1000, "running": 2}, "output": {"limit_bytes": 16 << 20,
            "kept_bytes": 100}, "open_files": {"limit": 65536}, "paused": False,
            "started_at": "2026-11-22T00:00:00.000Z", "uptime_ms": 60000} | changes


class Words(unittest.TestCase):
    """What is sent, and what is said about the answer."""

    def setUp(self):
        self.fake = Fake()
        self.addCleanup(self.fake.close)
        self.folder = tempfile.mkdtemp(prefix="parley-fake-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = client_environment(self.fake, self.folder)
        self.answer("GET", "/sandboxes", 200, {"sandboxes": [shown()]})
        self.answer("GET", "/sandboxes/" + SANDBOX, 200, shown())
        self.answer("POST", f"/sandboxes/{SANDBOX}/snapshots", 201,
                    {"snapshot": kept(), "processes": {"running": 2, "included": False}})
        self.answer("DELETE", "/snapshots/" + SNAPSHOT, 204, {})

    def cli(self, *arguments, expect=0, **more):
        done = subprocess.run([os.path.join(BIN, "parley"), *arguments], env=self.environment, capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL, **more)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        self.assertNotIn("Sanitizer", done.stderr)
        return done

    def answer(self, method, path, status, value):
        self.fake.answers[method, path] = (status, value)

    def asked(self):
        """The requests so far, without credentials and lists."""
        return [one[:4] for one in self.fake.asked if one[:2] != ("GET", "/sandboxes")]

    # ---- what a new sandbox shall be like ----

    def test_wishes_become_members_of_the_negotiation(self):
        self.cli("run", "--thread", "w", "--template", "py", "--cpu", "0.5", "--memory", "2g", "--disk", "1.5GiB", "--pids",
                 "64", "--open-files", "1024", "--processes", "9", "--output", "8M", "--on-idle", "pause", "--idle-timeout", "60",
                 "--entrypoint", "serve -p 1", "--volume", "data:/data:ro:sub=a/b", "--volume", "/srv/models:/models", "--volume",
                 "big:/big:size=4g", "--", "true")
        self.assertEqual(self.fake.wishes, [("w", {
            "template": "py", "on_idle": "pause", "idle_timeout": 60, "entrypoint": ["sh", "-c", "serve -p 1"],
            "resources": {"cpu": 0.5, "memory_mb": 2048, "disk_mb": 1536, "pids": 64, "open_files": 1024, "processes": 9,
                          "output_mb": 8},
            "volumes": [{"name": "data", "path": "/data", "read_only": True, "sub_path": "a/b"},
                        {"host": "/srv/models", "path": "/models"},
                        {"name": "big", "path": "/big", "size_mb": 4096}]})])

    def test_wrong_amounts_are_told_and_nothing_is_asked(self):
        for words, told in ((("--memory", "512"), "512m"), (("--memory", "much"), "such as"), (("--memory", "1000k"), "whole"),
                            (("--memory", "-1g"), "such as"), (("--memory", "2gg"), "such as"), (("--memory", "15m"), "16m to"),
                            (("--memory", "0x10m"), "such as"), (("--memory", "9" * 40 + "m"), "such as"),
                            (("--memory", "nan"), "such as"), (("--memory", ""), "such as"), (("--cpu", "0"), "0.05"),
                            (("--cpu", "two"), "0.05"), (("--cpu", "1.0005"), "0.05"), (("--pids", "5"), "16 to"),
                            (("--output", "2g"), "1g"), (("--on-idle", "sleep"), "pause or stop"), (("--idle-timeout", "0"), "1 to"),
                            (("--volume", "data"), "NAME:/INSIDE"), (("--volume", "data:inside"), "NAME:/INSIDE"),
                            (("--volume", "./x:/x"), "absolute"), (("--volume", "a:/b:rx"), "rx"),
                            (("--volume", "a:/b:size=1"), "size="), (("--volume", ":/b"), "NAME:/INSIDE"),
                            (("--template", b"\xff"), "UTF-8"), (("--entrypoint", b"\xff"), "UTF-8"),
                            (("--volume", b"\xff:/b"), "UTF-8"), (("--env", "=x"), "NAME=VALUE")):
            with self.subTest(words):
                done = subprocess.run([os.path.join(BIN, "parley"), "run", *words, "--", "true"], env=self.environment,
                                      capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(told, done.stderr.decode(errors="replace"))
        self.assertEqual((self.fake.wishes, self.fake.asked), ([], []))

    def test_other_wishes_ask_again_and_a_conflict_says_what_helps(self):
        self.cli("run", "--thread", "w", "--memory", "1g", "--", "true")
        self.cli("run", "--thread", "w", "--memory", "1g", "--", "true")
        self.assertEqual(len(self.fake.wishes), 1, "the same wishes use the grant that is there")

        def judge(_thread, body):
            if body.get("resources"):
                raise Refusal(409, "CONFLICT", "the sandbox differs in resources.memory_mb")
        self.fake.judge_wish = judge
        done = self.cli("run", "--thread", "w", "--memory", "2g", "--", "true", expect=125)
        self.assertIn("differs in resources.memory_mb", done.stderr)
        self.assertIn("parley limits", done.stderr)
        self.cli("run", "--thread", "w", "--", "true")

    def test_a_command_as_root_says_so(self):
        self.cli("run", "--thread", "w", "--user", "root", "--", "true")
        self.cli("run", "--thread", "w", "--", "true")
        self.assertEqual(self.fake.users, ["root", None])

    # ---- snapshots ----

    def test_snapshot_of_a_name_an_id_a_thread_or_this_folder(self):
        for words in (("brisk-otter",), (SANDBOX,)):
            done = self.cli("snapshot", *words, "--name", "installed")
            self.assertEqual(self.asked()[-1], ("POST", f"/sandboxes/{SANDBOX}/snapshots", {}, {"name": "installed"}))
            self.assertEqual(done.stdout, SNAPSHOT + "\n")
            for told in ("installed", "3.0 MiB", "btrfs", "2 running commands are not part of it"):
                self.assertIn(told, done.stderr)
        self.fake.threads["t1"] = SANDBOX
        value = json.loads(self.cli("snapshot", "--thread", "t1", "--json").stdout)
        self.assertEqual(value["processes"], {"running": 2, "included": False})
        self.assertEqual(self.asked()[-1][3], {})
        done = self.cli("snapshot", expect=1)  # the folder's thread has none
        self.assertIn("no sandbox", done.stderr)
        for words in (("a", "b"), ("a", "--thread", "t")):
            self.cli("snapshot", *words, expect=2)

    def test_a_holder_of_a_capability_needs_no_key(self):
        token = self.fake.mint("t", SANDBOX)
        del self.environment["PARLEY_API_KEY"]
        done = subprocess.run([os.path.join(BIN, "parley"), "snapshot", "--token", "-", "--name", "mine"],
                              env=self.environment, input=token + "\n", capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, SNAPSHOT + "\n"), done.stderr)
        self.assertEqual(self.fake.asked[-1], ("POST", f"/sandboxes/{SANDBOX}/snapshots", {}, {"name": "mine"}, token))
        self.cli("snapshot", "--token", "x.y.z", expect=1)
        self.cli("snapshot", SANDBOX, "--token", token, expect=2)

    def test_snapshots_are_listed_and_removed_by_name(self):
        pages = {None: {"snapshots": [kept()], "next_cursor": "c2"},
                 "c2": {"snapshots": [kept(name="\x1b[2J", size_bytes=-5, created_at=7)], "next_cursor": None}}
        self.fake.answers["GET", "/snapshots"] = lambda query: (
            200, {"snapshots": [kept()] if query["name"] == "installed" else []} if "name" in query
            else pages[query.get("cursor")])
        rows = self.cli("snapshots").stdout.splitlines()
        self.assertEqual(len(rows), 3)
        for told in ("installed", SNAPSHOT, "ready", "3.0 MiB", "base", "n1", "btrfs", SANDBOX):
            self.assertIn(told, rows[1])
        self.assertIn("\\x1b[2J", rows[2])
        self.assertEqual([one["id"] for one in json.loads(self.cli("snapshots", "ls", "--json").stdout)], [SNAPSHOT] * 2)
        self.cli("snapshots", "rm", "installed", SNAPSHOT)
        self.assertEqual([one[:2] for one in self.asked() if one[0] == "DELETE"], [("DELETE", "/snapshots/" + SNAPSHOT)] * 2)
        self.assertIn('called "gone"', self.cli("snapshots", "rm", "gone", expect=1).stderr)
        self.cli("snapshots", "rm", expect=2)
        self.assertIn("ls, rm", self.cli("snapshots", "fly", expect=2).stderr)

    def test_restore_makes_a_sandbox_for_a_thread_that_has_none(self):
        done = self.cli("restore", "installed", "--thread", "r1", "--name", "second", "--memory", "1g")
        self.assertEqual(self.fake.wishes, [("r1", {"mode": "create_only", "template": "snapshot:installed", "name": "second",
                                                    "resources": {"memory_mb": 1024}, "wait": 30})])
        self.assertEqual(done.stdout, self.fake.threads["r1"] + "\n")
        self.cli("run", "--thread", "r1", "--", "true")
        self.assertEqual(len(self.fake.wishes), 1, "its grant is kept")
        done = self.cli("restore", "installed", "--thread", "r1", expect=1)
        self.assertIn("--thread NAME", done.stderr)
        self.assertEqual(json.loads(self.cli("restore", SNAPSHOT, "--thread", "r2", "--json").stdout),
                         {"sandbox": self.fake.threads["r2"], "sandbox_name": "brisk-otter", "thread": "r2",
                          "snapshot": SNAPSHOT})
        for words in ((), ("a", "b"), ("a", "--template", "x")):
            self.cli("restore", *words, expect=2)

    def test_restore_waits_for_a_long_copy(self):
        left = [3]

        def judge(thread, body):
            if left[0]:
                left[0] -= 1
                if body.get("mode") == "create_only":
                    self.fake.threads[thread] = SANDBOX
                raise Refusal(423, "STARTING", "the sandbox is being made")
        self.fake.judge_wish = judge
        self.cli("restore", "installed", "--thread", "slow")
        self.assertEqual([body["mode"] for _, body in self.fake.wishes], ["create_only"] + ["attach_only"] * 3)

    # ---- fork ----

    def test_fork_takes_one_snapshot_and_drops_it(self):
        done = self.cli("fork", "brisk-otter", "--count", "12", "--cpu", "2")
        names = [f"brisk-otter-fork-{n}" for n in range(1, 13)]
        self.assertEqual(sorted(self.fake.threads), sorted(names))
        for _, body in self.fake.wishes:
            self.assertEqual(body, {"mode": "create_only", "template": "snapshot:" + SNAPSHOT, "resources": {"cpu": 2.0},
                                    "wait": 30})
        self.assertEqual([one[:2] for one in self.asked()],
                         [("GET", "/sandboxes/" + SANDBOX), ("POST", f"/sandboxes/{SANDBOX}/snapshots"),
                          ("DELETE", "/snapshots/" + SNAPSHOT)])
        rows = done.stdout.splitlines()
        self.assertEqual([row.split()[0] for row in rows], ["THREAD"] + names)
        self.assertEqual([row.split()[2] for row in rows[1:]], [self.fake.threads[name] for name in names])
        self.cli("fork", "brisk-otter", "--count", "2")  # those names are taken: the next ones
        self.assertEqual(len(self.fake.threads), 14)
        self.assertIn("brisk-otter-fork-14", self.fake.threads)

    def test_fork_keeps_the_snapshot_when_asked(self):
        done = self.cli("fork", SANDBOX, "--threads", "a,b", "--keep", "--name", "base-of-ab", "--json")
        self.assertEqual(json.loads(done.stdout), {
            "snapshot": SNAPSHOT, "kept": True, "failed": [],
            "made": [{"thread": name, "sandbox": self.fake.threads[name], "sandbox_name": "brisk-otter"} for name in "ab"]})
        self.assertEqual(self.asked()[-1], ("POST", f"/sandboxes/{SANDBOX}/snapshots", {}, {"name": "base-of-ab"}))

    def test_fork_gives_an_account_when_not_all_were_made(self):
        def judge(thread, _body):
            if thread in ("b", "c"):
                raise Refusal(429, "QUOTA_EXCEEDED", "only so many \x1b[2J")
        self.fake.judge_wish = judge
        done = self.cli("fork", SANDBOX, "--threads", "a,b,c,d", expect=1)
        self.assertEqual([row.split()[0] for row in done.stdout.splitlines()], ["THREAD", "a", "d"])
        for told in ("b was not made: only so many \\x1b[2J", "c was not made", "2 of 4 were made"):
            self.assertIn(told, done.stderr)
        self.assertEqual(self.asked()[-1][:2], ("DELETE", "/snapshots/" + SNAPSHOT))
        self.assertIn("a", self.fake.threads, "what was made stays")
        value = json.loads(self.cli("fork", SANDBOX, "--threads", "b,e", "--json", expect=1).stdout)
        self.assertEqual((value["error"]["code"], value["kept"]), ("QUOTA_EXCEEDED", False))
        self.assertEqual([one["thread"] for one in value["made"]], ["e"])
        self.assertEqual([(one["thread"], one["error"]["code"]) for one in value["failed"]], [("b", "QUOTA_EXCEEDED")])

    def test_fork_tells_of_a_snapshot_that_stays_behind(self):
        self.answer("DELETE", "/snapshots/" + SNAPSHOT, 503, {"error": {"code": "NODE_UNREACHABLE", "message": "away"}})
        done = self.cli("fork", SANDBOX, "--threads", "a", expect=1)
        self.assertIn(f"parley snapshots rm {SNAPSHOT}", done.stderr)
        self.assertIn("a", done.stdout)

    def test_ctrl_c_leaves_no_snapshot_behind(self):
        asked, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def judge(_thread, _body):
            asked.set()
            go_on.wait(60)
        self.fake.judge_wish = judge
        child = subprocess.Popen([os.path.join(BIN, "parley"), "fork", SANDBOX, "--count", "30", "--json"],
                                 env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self.assertTrue(asked.wait(60))
            child.send_signal(signal.SIGINT)
            output, errors = child.communicate(timeout=60)
        finally:
            child.kill()
        self.assertEqual(child.returncode, 130, errors)
        account = json.loads(output)
        self.assertEqual((account["kept"], account["made"], len(account["failed"])), (False, [], 30))
        self.assertEqual(account["error"]["code"], "GONE")
        self.assertEqual(self.asked()[-1][:2], ("DELETE", "/snapshots/" + SNAPSHOT))

    def test_wrong_uses_of_fork(self):
        for words in ((), ("x",), ("x", "--count", "0"), ("x", "--count", "1001"), ("x", "--threads", "a,,b"),
                      ("x", "--threads", "a,a"), ("x", "--count", "2", "--threads", "a,b"), ("x", "y", "--count", "1"),
                      ("x", "--count", "1", "--thread", "t"), ("x", "--count", "1", "--name", "n"),
                      ("x", "--threads", "a", "--threads", "b")):
            self.cli("fork", *words, expect=2)
        self.assertEqual((self.asked(), self.fake.wishes), ([], []))

    # ---- pause, limits ----

    def test_pause_and_resume(self):
        for verb, state in (("pause", "paused"), ("resume", "active")):
            self.answer("POST", f"/sandboxes/{SANDBOX}/{verb}", 200, {"sandbox": shown(state=state)})
            self.assertEqual(self.cli(verb, "brisk-otter").stdout, f"brisk-otter {state}\n")
            self.assertEqual(self.asked()[-1], ("POST", f"/sandboxes/{SANDBOX}/{verb}", {}, {}))
            self.assertEqual([one["state"] for one in json.loads(self.cli(verb, SANDBOX, SANDBOX, "--json").stdout)],
                             [state] * 2)
            self.cli(verb, "x", "--thread", "t", expect=2)
        self.fake.threads["t1"] = SANDBOX
        self.cli("pause", "--thread", "t1")
        self.answer("GET", "/sandboxes", 200, {"sandboxes": []})
        done = self.cli("pause", "gone", SANDBOX, expect=1)
        self.assertIn('called "gone"', done.stderr)
        self.assertEqual(done.stdout, "brisk-otter paused\n")

    def test_limits_are_shown_and_changed(self):
        rows = dict(line.rsplit("  ", 1) for line in self.cli("limits", SANDBOX).stdout.splitlines())
        self.assertEqual({name.strip(): value.strip() for name, value in rows.items()},
                         {"cpu": "0.5", "memory": "512.0 MiB", "disk": "1.0 GiB", "pids": "256", "open files": "65536",
                          "processes": "1000", "output": "16.0 MiB"})
        self.answer("PATCH", "/sandboxes/" + SANDBOX, 200, {"sandbox": shown(resources={"memory_mb": 2048})})
        value = json.loads(self.cli("limits", "brisk-otter", "--memory", "2g", "--pids", "99", "--json").stdout)
        self.assertEqual(self.asked()[-1], ("PATCH", "/sandboxes/" + SANDBOX, {},
                                            {"resources": {"memory_mb": 2048, "pids": 99}}))
        self.assertEqual(value, {"memory_mb": 2048})
        for words in (("--volume", "a:/b"), ("a", "b"), ("a", "--thread", "t"), ("--memory", "1")):
            self.cli("limits", *words, expect=2)

    # ---- volumes, templates ----

    def test_volumes_and_templates(self):
        self.answer("GET", "/volumes", 200, {"volumes": [{"name": "data", "node": "n1", "size_bytes": 5 << 30,
                                                               "sandboxes": [SANDBOX, 5]}]})
        self.answer("DELETE", "/volumes/data", 204, {})
        self.answer("DELETE", "/volumes/busy", 409, {"error": {"code": "CONFLICT", "message": "a sandbox has it"}})
        self.assertRegex(self.cli("volumes").stdout, "data +n1 +5.0 GiB +- +" + SANDBOX + ",[?]\n")
        self.cli("volumes", "rm", "data")
        self.assertIn("a sandbox has it", json.loads(
            self.cli("volumes", "rm", "data", "busy", "--json", expect=1).stdout)["error"]["message"])
        self.answer("GET", "/templates", 200, {"templates": [
            {"name": "py", "digest": "sha256:" + "0" * 64, "size_bytes": 1 << 20, "source": "docker-archive \x1b",
             "created_at": "2026-11-22T00:00:00.000Z", "nodes": ["n1", "n2"], "allowed": True}]})
        row = self.cli("templates").stdout.splitlines()[1]
        for told in ("py", "true", "1.0 MiB", "n1,n2", "docker-archive \\x1b"):
            self.assertIn(told, row)
        self.cli("templates", "rm", "py", expect=2)

    # ---- ls, top ----

    def test_ls_shows_storage_and_paused(self):
        self.answer("GET", "/sandboxes", 200, {"sandboxes": [shown(state="paused"), shown(storage=None)]})
        head, row, plain = self.cli("ls").stdout.splitlines()
        self.assertIn("STORAGE", head)
        self.assertRegex(row, "paused +base +btrfs")
        self.assertRegex(plain, "active +base +- ")

    def test_top_of_all_once_in_a_pipe(self):
        usage = {"cpu_ms": 12300, "memory_bytes": 5 << 20, "disk_bytes": 7 << 20, "pids": 3, "at": "2026-11-22T00:00:00.000Z"}
        self.answer("GET", "/sandboxes", 200, {"sandboxes": [shown(usage=usage), shown(id="sbx_b", usage={"pids": []})]})
        head, row, plain = self.cli("top").stdout.splitlines()
        self.assertIn("MEMORY", head)
        for told in ("brisk-otter", "12.3s", "5.0 MiB/512.0 MiB", "7.0 MiB/1.0 GiB", " 3 "):
            self.assertIn(told, row)
        self.assertIn("-/512.0 MiB", plain)
        self.assertEqual(json.loads(self.cli("top", "--json").stdout)[0]["usage"], usage)
        for words in (("a", "b"), ("--interval", "0"), ("--interval", "31"), ("a", "--thread", "t")):
            self.cli("top", *words, expect=2)

    def test_top_of_one_asks_its_node(self):
        self.fake.metrics = [used(paused=True)]
        self.fake.threads["t1"] = SANDBOX
        said = self.cli("top", "brisk-otter").stdout
        for told in ("brisk-otter, up", "paused", "of 0.5 cores, 1.5 s used", "5.0 MiB of 512.0 MiB", "7.0 MiB of 1.0 GiB on btrfs",
                     "3 of 256", "2 of 1000", "100 B of 16.0 MiB"):
            self.assertIn(told, said)
        self.assertEqual(self.fake.wishes, [("t1", {"mode": "attach_only"})])
        self.assertEqual(json.loads(self.cli("top", SANDBOX, "--json").stdout), used(paused=True))
        self.answer("GET", "/sandboxes/" + SANDBOX, 200, shown(threads=[]))
        self.assertIn("no thread", self.cli("top", SANDBOX, expect=1).stderr)

    def top_on_a_terminal(self, until):
        """What it shows until that is so, and its errors and status if it ended by itself."""
        leader, follower = os.openpty()
        child = subprocess.Popen([os.path.join(BIN, "parley"), "top", SANDBOX, "--interval", "1"], env=self.environment,
                                 stdin=follower, stdout=follower, stderr=subprocess.PIPE)
        os.close(follower)
        said = b""
        try:
            while not until(said):
                said += os.read(leader, 4096)
            child.kill()
        except OSError:
            pass  # it ended: no terminal any more
        errors = child.communicate(timeout=60)[1]
        os.close(leader)
        return said, errors.decode(), child.returncode

    def test_top_follows_on_a_terminal(self):
        self.fake.metrics = [used(), used(cpu={"limit_milli": 500, "used_ms": 2500}, uptime_ms=64000)]
        self.fake.threads["t1"] = SANDBOX
        for end in (None, {"code": "TOKEN_EXPIRED", "message": "the token expired"}):
            self.fake.metrics_end = end
            self.top_on_a_terminal(lambda said: said.count(b"25 %") >= 2)  # it ended in between, and was taken up again
        watched = [one for one in self.fake.asked if one[1] == "/metrics/watch"]
        self.assertEqual(watched[0][2], {"interval": "1"})
        self.fake.metrics_end = {"code": "GONE", "message": "the sandbox ended: \x1b[2J idle_timeout"}
        del self.fake.threads["t1"]
        said, errors, status = self.top_on_a_terminal(lambda said: False)
        self.assertEqual(status, 1)
        self.assertIn("the sandbox ended: \\x1b[2J idle_timeout", errors)

    # ---- completion and help ----

    def words(self, *words):
        return self.cli("completion", "words", *words).stdout.split("\n")[:-1]

    def test_names_are_completed(self):
        self.answer("GET", "/sandboxes", 200, {"sandboxes": [shown(), shown(name="\x1b[2J")]})
        self.answer("GET", "/snapshots", 200, {"snapshots": [kept(), kept(name=""), kept(name=None)]})
        self.answer("GET", "/volumes", 200, {"volumes": [{"name": "data"}, {"name": "models"}]})
        self.answer("GET", "/templates", 200, {"templates": [{"name": "base"}, {"name": "py"}]})
        for words, found in ((("pau",), ["pause"]), (("pause", ""), ["brisk-otter"]), (("resume", "a", "br"), ["brisk-otter"]),
                             (("limits", "x"), []), (("fork", "b"), ["brisk-otter"]), (("snapshot", ""), ["brisk-otter"]),
                             (("top", ""), ["brisk-otter"]), (("restore", "inst"), ["installed"]),
                             (("snapshots", ""), ["ls", "rm"]), (("snapshots", "rm", ""), ["installed"]),
                             (("snapshots", "ls", ""), []), (("volumes", "rm", "m"), ["models"]), (("volumes", "r"), ["rm"]),
                             (("run", "--template", "p"), ["py"]), (("run", "--template", ""), ["base", "py", "snapshot:"]),
                             (("run", "--template=snapshot:i"), ["--template=snapshot:installed"]),
                             (("run", "--volume", "d"), ["data:/"]), (("run", "--on-idle", "p"), ["pause"]),
                             (("shell", "--user="), ["--user=root"]), (("run", "--sandbox=b"), ["--sandbox=brisk-otter"]),
                             (("run", "--mem"), ["--memory"]), (("restore", "--volu"), ["--volume"]),
                             (("templates", ""), ["ls"]), (("fork", "x", "--thre"), ["--threads", "--thread"])):
            with self.subTest(words):
                self.assertEqual(self.words(*words), found)

    def test_help_shows_how(self):
        for name in ("run", "shell", "snapshot", "restore", "fork", "limits"):
            self.assertIn("Examples:", self.cli(name, "--help").stdout)

    # ---- what every command keeps ----

    def test_hostile_shapes_end_in_words(self):
        self.fake.threads["t1"] = SANDBOX
        for shape in ([], {}, {"sandbox": 5}, {"sandboxes": 5, "snapshots": {}, "volumes": [[]], "templates": [{"nodes": 5}]},
                      {"snapshot": {"id": 5}}, {"id": SANDBOX, "resources": [], "threads": {}, "usage": "x"}):
            for method, path, words in (("POST", f"/sandboxes/{SANDBOX}/snapshots", ["snapshot", SANDBOX]),
                                        ("POST", f"/sandboxes/{SANDBOX}/snapshots", ["fork", SANDBOX, "--count", "1"]),
                                        ("POST", f"/sandboxes/{SANDBOX}/pause", ["pause", SANDBOX]),
                                        ("GET", "/snapshots", ["snapshots"]), ("GET", "/snapshots", ["snapshots", "rm", "x"]),
                                        ("GET", "/volumes", ["volumes"]), ("GET", "/templates", ["templates"]),
                                        ("GET", "/sandboxes", ["top"]), ("GET", "/sandboxes/" + SANDBOX, ["limits", SANDBOX]),
                                        ("GET", "/sandboxes/" + SANDBOX, ["top", SANDBOX])):
                self.answer(method, path, 200, shape)
                done = subprocess.run([os.path.join(BIN, "parley"), *words], env=self.environment, capture_output=True,
                                      text=True, timeout=60, stdin=subprocess.DEVNULL)
                self.assertIn(done.returncode, (0, 1), (words, shape, done.stderr))
                self.assertNotIn("Sanitizer", done.stderr)
        for metrics in ({}, [], {"cpu": 5, "memory": []}, used(cpu={"limit_milli": -1, "used_ms": "x"}, uptime_ms=-7)):
            self.fake.metrics = [metrics]
            self.answer("GET", "/sandboxes/" + SANDBOX, 200, shown())
            self.cli("top", SANDBOX)

    def test_failures_are_json_when_asked(self):
        self.answer("GET", "/sandboxes", 200, {"sandboxes": []})
        for words, status in ((("snapshot", "--json", "x"), 1), (("restore", "--json"), 2), (("fork", "--json", "x"), 2),
                              (("pause", "--json", "x", "y"), 1), (("limits", "--json", "x"), 1), (("volumes", "--json", "y"), 2),
                              (("snapshots", "--json", "rm"), 2), (("top", "--json", "x"), 1)):
            self.assertIn("code", json.loads(self.cli(*words, expect=status).stdout)["error"])


class Keeping:
    """What snapshots do to a deployment, whatever it keeps its files in."""
    STORAGE, SETTINGS = "auto", {}

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(start=False)
        cls.addClassCleanup(cls.deployment.close)
        cls.shared = os.path.join(cls.deployment.folder, "shared")
        os.makedirs(cls.shared + "/below")
        os.makedirs(cls.deployment.state)
        with open(cls.deployment.state + "/config.json", "w") as config:
            json.dump({"storage": cls.STORAGE, **cls.SETTINGS, "volume_hosts": cls.shared}, config)
        cls.deployment.up()

    def cli(self, *arguments, expect=0, **more):
        done = self.deployment.cli(*arguments, **more)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr + self.deployment.logs())
        return done

    def run_in(self, thread, *command, expect=0, options=()):
        return self.cli("run", "-n", "--thread", thread, *options, "--", *command, expect=expect).stdout

    def sandbox_of(self, thread):
        return self.deployment.request("GET", f"/threads/{thread}/sandbox").json["sandbox"]["id"]

    # ---- snapshots ----

    def test_a_snapshot_outlives_its_sandbox_and_restores_it_as_it_was(self):
        self.run_in("snap", "sh", "-c", "echo kept >a; mkdir d; ln -s ../a d/l; chmod 751 d; head -c 3000000 /dev/urandom >big")
        before = self.run_in("snap", "sh", "-c", "sha256sum a big; stat -c '%n %a %s %Y' a d big; readlink d/l")
        self.cli("run", "-d", "-n", "--thread", "snap", "--", "sleep", "1000")
        value = json.loads(self.cli("snapshot", "--thread", "snap", "--name", "whole", "--json").stdout)
        self.assertEqual(value["processes"], {"running": 1, "included": False})
        self.run_in("snap", "rm", "a")
        self.cli("rm", "--thread", "snap")
        self.assertIn("whole", self.cli("snapshots").stdout)
        self.cli("restore", "whole", "--thread", "snap-again")
        self.assertEqual(self.run_in("snap-again", "sh", "-c", "sha256sum a big; stat -c '%n %a %s %Y' a d big; readlink d/l"),
                         before)
        self.assertEqual(self.cli("restore", "whole", "--thread", "snap-again", expect=1).stdout, "")
        self.assertIn("name", self.cli("snapshot", "--thread", "snap-again", "--name", "whole", expect=1).stderr)
        self.cli("snapshots", "rm", "whole")
        self.assertNotIn("whole", self.cli("snapshots").stdout)
        self.cli("restore", "whole", "--thread", "snap-third", expect=1)
        self.assertEqual(self.run_in("snap-again", "cat", "a"), "kept\n", "it lives on")

    def test_a_snapshot_is_taken_in_the_midst_of_writing(self):
        """Every line of the log is whole, and those in the snapshot are its first ones."""
        self.cli("run", "-d", "-n", "--thread", "busy", "--", "sh", "-c",
                 "i=0; while :; do i=$((i+1)); echo $i >>log; done")
        while int(self.run_in("busy", "sh", "-c", "wc -l <log || echo 0")) < 1000:
            pass
        snapshot = self.cli("snapshot", "--thread", "busy").stdout.strip()
        self.cli("restore", snapshot, "--thread", "busy-then")
        numbers = [int(line) for line in self.run_in("busy-then", "cat", "log").splitlines()]
        self.assertGreaterEqual(len(numbers), 1000)
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        first = int(self.run_in("busy", "sh", "-c", "wc -l <log"))
        while int(self.run_in("busy", "sh", "-c", "wc -l <log")) <= first:
            pass  # it was let go on
        self.cli("snapshots", "rm", snapshot)
        for thread in ("busy", "busy-then"):
            self.cli("rm", "--thread", thread)

    def test_forks_are_alike_and_then_apart(self):
        self.run_in("root", "sh", "-c", "echo seed >seed")
        value = json.loads(self.cli("fork", "--thread", "root", "--count", "4", "--json").stdout)
        threads = [one["thread"] for one in value["made"]]
        self.assertEqual((len(set(threads)), value["failed"], value["kept"]), (4, [], False))
        self.assertEqual(len({one["sandbox"] for one in value["made"]}), 4)
        for thread in threads:
            self.run_in(thread, "sh", "-c", f"cat seed >mine; echo {thread} >>mine")
        for thread in threads:
            self.assertEqual(self.run_in(thread, "cat", "mine"), f"seed\n{thread}\n")
        self.assertNotIn("mine", self.run_in("root", "ls"))
        self.assertNotIn(value["snapshot"], self.cli("snapshots").stdout)
        self.cli("fork", "--thread", "root", "--threads", threads[0] + ",apart", "--keep", "--name", "of-root", expect=1)
        self.assertEqual(self.run_in("apart", "cat", "seed"), "seed\n")
        self.cli("snapshots", "rm", "of-root")
        for thread in threads + ["apart"]:
            self.cli("rm", "--thread", thread)

    def test_a_capability_with_that_scope_takes_one_and_no_other(self):
        self.run_in("holder", "true")
        token = self.cli("token", "--thread", "holder", "--raw").stdout.strip()
        scopes = json.loads(self.cli("token", "--thread", "holder").stdout)["scope"].split()
        if "snapshot" in scopes:
            done = self.cli("snapshot", "--token", "-", "--name", "by-holder", input=token)
            self.cli("snapshots", "rm", done.stdout.strip())
        narrowed = self.cli("token", "--token", "-", "--attenuate", "process", input=token).stdout
        self.assertIn("snapshot", self.cli("snapshot", "--token", "-", expect=1, input=narrowed).stderr)

    def test_the_storage_is_told(self):
        self.run_in("told", "true")
        row = next(line for line in self.cli("ls").stdout.splitlines() if self.sandbox_of("told") in line)
        self.assertRegex(row, "btrfs|tmpfs|folder" if self.STORAGE == "auto" else self.STORAGE)


@needs_root
class DeedsOnTmpfs(Keeping, unittest.TestCase):
    STORAGE, SETTINGS = "tmpfs", {"root_user": "allowed"}

    def test_root_inside_where_node_and_role_allow_it(self):
        self.assertEqual(self.run_in("root-in", "sh", "-c", "id -u; echo r >/usr/bin/mine; stat -c %u /usr/bin/mine",
                                     options=("--user", "root")), "0\n0\n")
        self.assertEqual(self.run_in("root-in", "sh", "-c", "id -u; cat /usr/bin/mine; echo u >/usr/bin/mine || true"),
                         "1000\nr\n")


@needs_root
class DeedsOnFolder(Keeping, unittest.TestCase):
    STORAGE = "folder"


@needs_root
class Deeds(Keeping, unittest.TestCase):
    """With what the host has, and all else they do."""

    # ---- pause, limits ----

    def test_nothing_runs_while_it_is_paused_and_use_wakes_it(self):
        self.cli("run", "-d", "-n", "--thread", "still", "--", "sh", "-c", "while :; do date +%s.%N >>ticks; sleep 0.05; done")
        while int(self.run_in("still", "sh", "-c", "wc -l <ticks || echo 0")) < 3:
            pass
        name = json.loads(self.cli("pause", "--thread", "still", "--json").stdout)[0]["name"]
        self.assertRegex(self.cli("ls").stdout, f"{name} .*paused")
        self.assertTrue(json.loads(self.cli("top", name, "--json").stdout)["paused"])
        used = json.loads(self.cli("top", name, "--json").stdout)["cpu"]["used_ms"]
        time.sleep(1)
        self.cli("ps", "--thread", "still")
        after = json.loads(self.cli("top", name, "--json").stdout)
        self.assertEqual((after["paused"], after["cpu"]["used_ms"]), (True, used))
        count = len(self.run_in("still", "cat", "ticks").splitlines())
        ticks = []
        while len(ticks) < count + 2:  # it goes on, and has a gap
            ticks = [float(line) for line in self.run_in("still", "cat", "ticks").splitlines()]
        self.assertGreater(max(b - a for a, b in zip(ticks, ticks[1:])), 0.9)
        self.assertFalse(json.loads(self.cli("top", name, "--json").stdout)["paused"])
        self.cli("pause", name)
        self.assertIn("active", self.cli("resume", name).stdout)
        self.cli("pause", name)
        self.cli("rm", name)

    def test_an_idle_one_is_paused_and_its_process_goes_on_with_the_next_use(self):
        options = ("--on-idle", "pause", "--idle-timeout", "1")
        self.cli("run", "-d", "-n", "--thread", "idle", *options, "--", "sleep", "1000")
        sandbox = self.sandbox_of("idle")
        until = time.monotonic() + 90
        while not re.search(f"{sandbox} +paused", self.cli("ls").stdout):
            self.assertLess(time.monotonic(), until, "nobody uses it")
            time.sleep(0.3)
        self.assertEqual(self.run_in("idle", "pgrep", "-c", "sleep", options=options), "1\n")
        self.cli("rm", sandbox)

    def test_limits_hold_and_are_changed_while_it_runs(self):
        self.run_in("small", "true", options=("--memory", "64m", "--pids", "32", "--cpu", "0.5"))
        name = self.sandbox_of("small")
        said = self.cli("limits", name).stdout
        for words in ("64.0 MiB", "32", "0.5"):
            self.assertIn(words, said)
        take = ("python3", "-c", "b = bytearray(150 << 20); print(len(b))")
        self.assertNotEqual(self.cli("run", "-n", "--thread", "small", "--", *take, expect=137).stdout, str(150 << 20))
        self.cli("limits", name, "--memory", "256m", "--pids", "64")
        self.assertEqual(self.run_in("small", *take), f"{150 << 20}\n")
        value = json.loads(self.cli("top", name, "--json").stdout)
        self.assertEqual((value["memory"]["limit_bytes"], value["pids"]["limit"]), (256 << 20, 64))
        self.assertIn("parley limits", self.cli("run", "-n", "--thread", "small", "--memory", "64m", "--", "true",
                                                expect=125).stderr)

    # ---- volumes, templates, root ----

    def test_a_volume_is_shared_and_outlives_its_sandboxes(self):
        self.run_in("v1", "sh", "-c", "echo one >/data/f; mkdir -p /data/sub; echo below >/data/sub/g",
                    options=("--volume", "data:/data"))
        self.assertEqual(self.run_in("v2", "sh", "-c", "cat /in/g; touch /in/h 2>/dev/null || echo ro",
                                     options=("--volume", "data:/in:ro:sub=sub")), "below\nro\n")
        self.assertIn("data", self.cli("volumes").stdout)
        self.assertIn("data", self.cli("volumes", "rm", "data", expect=1).stderr)
        for thread in ("v1", "v2"):
            self.cli("rm", "--thread", thread)
        self.assertEqual(self.run_in("v3", "cat", "/data/f", options=("--volume", "data:/data")), "one\n")
        self.cli("rm", "--thread", "v3")
        until = time.monotonic() + 60
        while self.deployment.cli("volumes", "rm", "data").returncode:
            self.assertLess(time.monotonic(), until, "nobody has it any more")
            time.sleep(0.2)
        self.assertNotIn("data", self.cli("volumes").stdout)

    def test_a_folder_of_the_host_that_is_allowed(self):
        os.chown(self.shared, 4711, 4711)
        with open(self.shared + "/below/given", "w") as file:
            file.write("host\n")
        self.assertEqual(self.run_in("host1", "sh", "-c", "cat /in/below/given; id -u >/in/made; stat -c %u /in/made",
                                     options=("--volume", self.shared + ":/in")), "host\n1000\n")
        with open(self.shared + "/made") as file:
            self.assertEqual((file.read(), os.fstat(file.fileno()).st_uid), ("1000\n", 4711))
        self.assertEqual(self.run_in("host2", "sh", "-c", "cat /in/given; (echo x >/in/given) 2>/dev/null || echo ro",
                                     options=("--volume", self.shared + ":/in:ro:sub=below")), "host\nro\n")
        for volume in ("/etc:/x", self.shared + "/..:/x", self.shared + ":/x:sub=../..", self.shared + ":/proc/x"):
            self.cli("run", "-n", "--thread", "host3", "--volume", volume, "--", "true", expect=125)

    def test_templates_are_listed_and_root_is_refused_unless_allowed(self):
        self.assertIn("base", self.cli("templates").stdout)
        self.cli("run", "-n", "--thread", "none", "--template", "not-there", "--", "true", expect=125)
        self.assertIn("root", self.cli("run", "-n", "--thread", "plain", "--user", "root", "--", "true", expect=125).stderr)

    def test_doctor_tells_the_storage(self):
        layers = json.loads(self.deployment.cli("doctor", "--json").stdout)
        self.assertEqual(len([one for one in layers if one["name"] == "storage"]), 1, layers)



if __name__ == "__main__":
    unittest.main()
