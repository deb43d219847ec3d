"""The CLI and its tokens (protocol.md, 2 and 10): a run outlives its token, processes share one grant without tripping
each other, a lost reply costs nothing, a leak is told. Against a stand-in whose tokens live for seconds."""
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.fake import KEY, Fake, client_environment  # noqa: E402

PARLEY = os.path.join(BIN, "parley")


class CliCase(unittest.TestCase):
    def setUp(self):
        self.fake = Fake()
        self.addCleanup(self.fake.close)
        self.folder = tempfile.mkdtemp(prefix="parley-fake-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = client_environment(self.fake, self.folder)

    def start(self, *arguments, stdin=subprocess.DEVNULL):
        child = subprocess.Popen([PARLEY, *arguments], env=self.environment, stdin=stdin, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, child)
        return child

    @staticmethod
    def end(child):
        if child.poll() is None:
            child.kill()
        child.communicate()

    def cli(self, *arguments, **more):
        done = subprocess.run([PARLEY, *arguments], env=self.environment, capture_output=True, text=True, timeout=60,
                              **({"stdin": subprocess.DEVNULL} | more if "input" not in more else more))
        self.assertNotIn("Sanitizer", done.stderr)
        return done

    def entry(self):
        """The one grant in the cache."""
        with open(self.folder + "/cache/parley/grants.json") as cached:
            grants = json.load(cached)
        self.assertEqual(len(grants), 1, grants)
        return next(iter(grants.values()))

    def age(self, seconds=0):
        """Makes the cached grant due."""
        path = self.folder + "/cache/parley/grants.json"
        with open(path) as cached:
            grants = json.load(cached)
        for grant in grants.values():
            grant["refresh_ms"] = int((time.time() - seconds) * 1000) - 1
        with open(path, "w") as cached:
            json.dump(grants, cached)

    def refresh_elsewhere(self, token):
        """As somebody does who has a copy of the token and the key."""
        request = urllib.request.Request(f"{self.fake.url}/threads/t/sandbox/refresh", method="POST",
                                         data=json.dumps({"current_token": token}).encode(),
                                         headers={"Authorization": "Bearer " + KEY})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)["token"]

    def run_lines(self, count, every):
        return self.start("run", "--thread", "t", "-n", "--", "lines", str(count), str(every))

    def check_lines(self, child, count, timeout=60):
        output, errors = child.communicate(timeout=timeout)
        self.assertEqual((child.returncode, output), (0, "".join(f"line {n}\n" for n in range(count))), errors)
        return errors


class Run(CliCase):
    def test_a_run_longer_than_its_tokens_life_does_not_notice(self):
        self.fake.ttl = 2  # streams end with the token they were opened with
        errors = self.check_lines(self.run_lines(35, 0.2), 35)
        self.assertEqual(errors, "")
        self.assertEqual((self.fake.negotiations, self.fake.leaks), (1, 0))
        self.assertGreaterEqual(self.fake.rotations, 3)
        self.assertLess(self.fake.rotations, 12, "it must not refresh all the time")

    def test_a_stream_that_outlives_its_token_is_not_touched(self):
        self.fake.ttl, self.fake.stream_grace, self.fake.spent_grace = 2, 3600, 0
        self.check_lines(self.run_lines(20, 0.2), 20)
        self.assertEqual((self.fake.negotiations, self.fake.refused_uses), (1, 0))

    def test_runs_share_one_grant(self):
        self.fake.ttl, self.fake.refresh_delay = 3, 0.2
        self.assertEqual(self.cli("run", "--thread", "t", "-n", "--", "true").returncode, 0)
        children = [self.run_lines(35, 0.2) for _ in range(3)]
        for child in children:
            self.assertEqual(self.check_lines(child, 35), "")
        self.assertEqual((self.fake.leaks, self.fake.negotiations), (0, 1))
        self.assertGreaterEqual(self.fake.rotations, 2)
        self.assertEqual(self.fake.refreshes, self.fake.rotations, "each token was presented once")

    def test_a_revoked_run_goes_on_with_a_new_token(self):
        child = self.run_lines(20, 0.1)
        while not self.fake.commands:
            time.sleep(0.02)
        time.sleep(0.3)
        self.fake.revoke_all()
        self.check_lines(child, 20)
        self.assertEqual(self.fake.negotiations, 2)

    def test_a_leak_during_a_run_is_told_and_survived(self):
        self.fake.ttl = 3
        child = self.run_lines(30, 0.2)
        while not self.fake.commands:
            time.sleep(0.02)
        self.refresh_elsewhere(self.refresh_elsewhere(self.entry()["token"]))
        errors = self.check_lines(child, 30)
        self.assertEqual(self.fake.leaks, 1)
        self.assertIn("revoked the whole family", errors)

    def test_another_sandbox_is_not_taken_for_the_commands_own(self):
        child = self.run_lines(100, 0.1)
        while not self.fake.commands:
            time.sleep(0.02)
        with self.fake.lock:
            self.fake.threads["t"] = "sbx_" + "z" * 20
            self.fake.revoke_all()
        output, errors = child.communicate(timeout=30)
        self.assertEqual(child.returncode, 125, output)
        self.assertIn("has another one now", errors)

    def test_no_byte_of_stdin_is_lost_to_a_dead_token(self):
        child = self.start("run", "--thread", "t", "--", "count", stdin=subprocess.PIPE)
        child.stdin.write("x" * 1000)
        child.stdin.flush()
        while not self.fake.commands or not next(iter(self.fake.commands.values())).stdin:
            time.sleep(0.02)
        self.fake.revoke_all()
        child.stdin.write("y" * 70000)
        output, errors = child.communicate(timeout=30)
        self.assertEqual((child.returncode, output), (0, "71000 bytes\n"), errors)

    def test_ending_during_a_refresh_does_not_wait_for_it(self):
        self.fake.ttl, self.fake.stream_grace = 5, 60
        child = self.run_lines(22, 0.2)
        time.sleep(2)
        self.fake.refresh_delay = 30
        started = time.monotonic()
        self.check_lines(child, 22)
        self.assertLess(time.monotonic() - started, 6)
        self.fake.refresh_delay = 0


class Shared(CliCase):
    def setUp(self):
        super().setUp()
        self.assertEqual(self.cli("run", "--thread", "t", "-n", "--", "true").returncode, 0)
        self.first = self.entry()

    def ps(self):
        done = self.cli("ps", "--thread", "t")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_a_fresh_grant_is_used_as_it_is(self):
        self.ps()
        self.assertEqual((self.fake.negotiations, self.fake.refreshes), (1, 0))

    def test_many_processes_refresh_once(self):
        self.age()
        self.fake.refresh_delay = 0.3
        children = [self.start("ps", "--thread", "t") for _ in range(6)]
        for child in children:
            _, errors = child.communicate(timeout=30)
            self.assertEqual(child.returncode, 0, errors)
        self.assertEqual((self.fake.refreshes, self.fake.negotiations), (1, 1))
        self.assertNotEqual(self.entry()["jti"], self.first["jti"])

    def test_a_lost_reply_gives_the_same_successor(self):
        self.age()
        self.fake.lose_replies = 1
        self.ps()
        self.assertEqual((self.fake.refreshes, self.fake.rotations, self.fake.leaks), (2, 1, 0))
        self.assertEqual(self.fake.negotiations, 1)

    def test_replies_lost_again_and_again(self):
        self.age()
        self.fake.lose_replies = 2
        self.ps()  # with the old token, which holds for a while
        self.assertEqual(self.entry()["jti"], self.first["jti"])
        self.ps()
        self.assertEqual((self.fake.rotations, self.fake.leaks, self.fake.negotiations), (1, 0, 1))

    def test_a_token_used_elsewhere_is_told_and_negotiated_anew(self):
        self.refresh_elsewhere(self.refresh_elsewhere(self.first["token"]))
        self.age()
        done = self.ps()
        self.assertEqual((self.fake.leaks, self.fake.negotiations), (1, 2))
        self.assertIn("revoked the whole family", done.stderr)
        self.assertEqual(self.ps().stderr, "")

    def test_refusals_of_a_refresh_are_negotiated_anew_in_silence(self):
        for refusal in ((401, "TOKEN_REVOKED", "gone"), (404, "NOT_FOUND", "no lease"), (401, "TOKEN_EXPIRED", "old"),
                        (400, "INVALID_REQUEST", "what?")):
            with self.subTest(refusal=refusal):
                before = self.fake.negotiations
                self.fake.refuse_refresh = refusal
                self.age()
                self.assertEqual(self.ps().stderr, "")
                self.assertEqual(self.fake.negotiations, before + 1)

    def test_a_token_that_holds_is_used_while_the_negotiator_is_away(self):
        self.age()
        for refusal in ((503, "NODE_UNREACHABLE", "starting"), (500, "INTERNAL", "oops"), (507, "DISK_FULL", "no"),
                        (429, "RATE_LIMITED", "later")):
            with self.subTest(refusal=refusal):
                self.fake.refuse_refresh = refusal
                self.ps()
                self.assertEqual(self.fake.negotiations, 1)

    def test_a_killed_holder_of_the_lock_holds_nobody_up(self):
        self.age()
        self.fake.refresh_delay = 20
        holder = self.start("ps", "--thread", "t")
        time.sleep(1)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        self.fake.refresh_delay = 0
        started = time.monotonic()
        self.ps()
        self.assertLess(time.monotonic() - started, 5)
        self.assertEqual((self.fake.leaks, self.fake.negotiations), (0, 1))

    def test_a_spent_cached_token_is_replaced(self):
        self.fake.revoke_all()
        self.ps()
        self.assertEqual(self.fake.negotiations, 2)
        done = self.cli("run", "--thread", "t", "-n", "--", "true")
        self.assertEqual((done.returncode, self.fake.negotiations), (0, 2), done.stderr)

    def test_token_refresh_renews_now(self):
        claims = json.loads(self.cli("token", "--thread", "t", "--refresh").stdout)
        self.assertEqual((claims["fam"], self.fake.rotations), (self.first["jti"], 1))
        self.assertEqual(claims["jti"], self.entry()["jti"])
        self.assertNotEqual(claims["jti"], self.first["jti"])
        self.assertEqual(self.cli("token", "--refresh", "--token", "x").returncode, 2)

    def test_without_a_cache_folder_it_works_all_the_same(self):
        self.environment["XDG_CACHE_HOME"] = "/proc/none"
        done = self.cli("run", "--thread", "t", "-n", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_cache_is_private_and_holds_no_key(self):
        path = self.folder + "/cache/parley/grants.json"
        for name in (path, path + ".lock"):
            self.assertEqual(stat.S_IMODE(os.stat(name).st_mode), 0o600, name)
        with open(path) as cached:
            self.assertNotIn(KEY, cached.read())


if __name__ == "__main__":
    unittest.main()
