"""kill -9 of launcher and front: no command dies, no byte of output is lost or doubled, nothing is left over."""
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.remains import held, living  # noqa: E402

NUMBERS = 4000
COUNTER = f"for i in $(seq 1 {NUMBERS}); do echo $i; [ $((i % 20)) -eq 0 ] && sleep 0.02; done"


@needs_root
class Adoption(unittest.TestCase):
    def setUp(self):
        self.deployment = Deployment()

    def tearDown(self):
        self.deployment.close()

    def ask(self, grant, method, path, body=None):
        return self.deployment.request(method, grant["endpoints"]["http"] + path, body, token=grant["token"])

    def await_node(self):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                if self.deployment.request("GET", self.deployment.node_url + "/readyz", token=None).status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        self.fail("sandboxd did not come back\n" + self.deployment.logs())

    def collect(self, grant, name):
        """Follows to the exit, resuming by offset over broken connections; the bytes and the exit event."""
        text, until = "", time.monotonic() + 60
        while time.monotonic() < until:
            try:
                events = self.ask(grant, "GET", f"/processes/{name}/output?follow=1&stdout_offset={len(text)}").events
            except (OSError, ValueError, Exception):  # noqa: B014  a cut stream ends anyhow: ask again
                time.sleep(0.05)
                continue
            for event in events:
                if event["type"] == "stdout":
                    self.assertEqual(event["offset"], len(text))
                    text += event["data"]
                if event["type"] == "exit":
                    return text, event
        self.fail("no exit seen\n" + self.deployment.logs())

    def test_every_number_once_through_kills(self):
        grant = self.deployment.negotiate("kills")
        self.assertEqual(self.ask(grant, "POST", "/exec", {"cmd": COUNTER, "id": "count", "detach": True}).status, 201)
        for _ in range(3):
            time.sleep(0.4)
            self.deployment.kill("parley-sandboxd")
            self.await_node()
        text, end = self.collect(grant, "count")
        self.assertEqual(text, "".join(f"{n}\n" for n in range(1, NUMBERS + 1)))
        self.assertEqual(end["exit_code"], 0)

    def test_the_cli_resumes_by_itself(self):
        import subprocess
        from parley_testing.deployment import BIN
        child = subprocess.Popen([os.path.join(BIN, "parley"), "run", "--", "bash", "-c", COUNTER + "; exit 6"],
                                 env=self.deployment.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        first = child.stdout.readline()
        self.deployment.kill("parley-sandboxd")
        rest = child.stdout.read()  # communicate() would lose what readline() buffered
        child.wait(90)
        self.assertEqual(first + rest, "".join(f"{n}\n" for n in range(1, NUMBERS + 1)))
        self.assertEqual(child.returncode, 6)

    def test_timeouts_and_exits_while_nobody_looks(self):
        grant = self.deployment.negotiate("away")
        self.ask(grant, "POST", "/exec", {"cmd": "sleep 600", "id": "late", "timeout": 1, "detach": True})
        self.ask(grant, "POST", "/exec", {"cmd": "sleep 0.5; echo bye; exit 4", "id": "short", "detach": True})
        for pid in self.deployment.pids("parley-sandboxd"):
            os.kill(pid, 19)
        time.sleep(1.5)
        self.deployment.kill("parley-sandboxd")
        self.await_node()
        text, end = self.collect(grant, "short")
        self.assertEqual((text, end["exit_code"]), ("bye\n", 4))
        _, end = self.collect(grant, "late")
        self.assertTrue(end["timed_out"])

    def test_only_the_front_dies(self):
        grant = self.deployment.negotiate("front")
        self.ask(grant, "POST", "/exec", {"cmd": "sleep 1; echo on", "id": "one", "detach": True})
        os.kill(max(self.deployment.pids("parley-sandboxd")), 9)
        time.sleep(0.1)
        self.await_node()
        self.assertEqual(self.collect(grant, "one")[0], "on\n")

    def test_the_sandbox_keeps_its_env(self):
        reply = self.deployment.request("POST", "/threads/env/sandbox", {"env": {"A": "1", "B": "ä = 2"}})
        grant = reply.json
        for kill in (lambda: None, lambda: self.deployment.kill("parley-sandboxd"),
                     lambda: os.kill(max(self.deployment.pids("parley-sandboxd")), 9)):
            kill()
            time.sleep(0.1)
            self.await_node()
            self.assertEqual(self.deployment.exec(grant, cmd="echo $A $B").json["stdout"], "1 ä = 2\n")
            own = self.deployment.exec(grant, cmd="echo $A $B", env={"A": "own"})
            self.assertEqual(own.json["stdout"], "own ä = 2\n")

    def split(self):
        """The launcher's pid, and its front's."""
        pids = self.deployment.pids("parley-sandboxd")
        front = next(pid for pid in pids if self.parent(pid) in pids)
        return next(pid for pid in pids if pid != front), front

    @staticmethod
    def parent(pid):
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[1])

    def init_of(self, grant):
        return living(self.deployment.state)[grant["sandbox"]["id"]].init

    def test_an_end_that_the_front_before_was_told_of(self):
        grant = self.deployment.negotiate("ended")
        _, front = self.split()
        negotiators = self.deployment.pids("parley-negotiator")
        for pid in negotiators:
            os.kill(pid, signal.SIGSTOP)
        try:
            os.kill(self.init_of(grant), signal.SIGKILL)
            time.sleep(1)
            self.assertEqual(self.ask(grant, "GET", "/info").status, 410)
            os.kill(front, signal.SIGKILL)
            time.sleep(0.3)
            self.await_node()
            reply = self.ask(grant, "GET", "/info")
            self.assertEqual((reply.status, reply.code), (410, "GONE"))
            self.assertIn("crashed", reply.json["error"]["message"])
            other = grant["token"][:-2] + ("AA" if grant["token"][-2:] != "AA" else "BB")
            self.assertEqual(self.deployment.request("GET", grant["endpoints"]["http"] + "/info", token=other).status, 401)
        finally:
            for pid in negotiators:
                os.kill(pid, signal.SIGCONT)

    def test_the_launcher_does_not_spin_over_a_dead_init(self):
        grant = self.deployment.negotiate("spin")
        launcher, front = self.split()
        os.kill(front, signal.SIGSTOP)  # it keeps its copy of init's pidfd
        try:
            os.kill(self.init_of(grant), signal.SIGKILL)
            time.sleep(0.5)
            before = self.ticks(launcher)
            time.sleep(1)
            self.assertLess(self.ticks(launcher) - before, 20)
        finally:
            os.kill(front, signal.SIGCONT)

    @staticmethod
    def ticks(pid):
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def test_whether_stdin_is_open_is_told(self):
        grant = self.deployment.negotiate("stdin")
        self.ask(grant, "POST", "/exec", {"cmd": "wc -c", "id": "fed", "stdin_open": True, "detach": True})
        self.assertEqual(self.ask(grant, "POST", "/processes/fed/stdin", b"abc").status, 200)
        os.kill(self.split()[1], signal.SIGKILL)
        time.sleep(0.3)
        self.await_node()
        self.assertEqual(self.ask(grant, "GET", "/processes/fed").json["stdin"], "open")
        self.assertEqual(self.ask(grant, "POST", "/processes/fed/stdin?eof=1", b"de").status, 200)
        self.assertEqual(self.collect(grant, "fed")[0], "5\n")
        self.assertEqual(self.ask(grant, "GET", "/processes/fed").json["stdin"], "closed")

    def test_deleting_after_adoption_leaves_nothing(self):
        grant = self.deployment.negotiate("clean")
        self.ask(grant, "POST", "/exec", {"cmd": "setsid sleep 333 & sleep 334", "id": "x", "detach": True})
        self.deployment.kill("parley-sandboxd")
        self.await_node()
        self.deployment.wait_ready()
        self.deployment.request("DELETE", "/sandboxes/" + grant["sandbox"]["id"])
        until = time.monotonic() + 25
        while time.monotonic() < until and held(self.deployment.state):
            time.sleep(0.1)
        self.assertEqual(held(self.deployment.state), [])

    def test_hard_deadline_without_sandboxd(self):
        grant = self.deployment.negotiate("deadline", max_lifetime=60)
        self.assertEqual(self.deployment.shell(grant, "echo in time"), "in time\n")
        info = self.ask(grant, "GET", "/info").json
        self.assertIn("deadline", str(info))


if __name__ == "__main__":
    unittest.main()
