"""Lives (protocol.md, 2): leases end by idleness and by age, each for itself; a sandbox ends with its last one, with its
reason; and at its hard deadline whoever of us still lives."""
import os
import random
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

SOON = 20  # s: what is due has happened by then, also on a machine that has other things to do


def holders(marker):
    """Host processes that run `sleep <marker>`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as words:
                    if words.read() == f"sleep\0{marker}\0".encode():
                        found.append(int(entry))
            except OSError:
                pass
    return found


class Lives(unittest.TestCase):
    def await_true(self, what, seconds=SOON):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            got = what()
            if got:
                return got
            time.sleep(0.1)
        self.fail("not in time\n" + self.deployment.logs())

    def told(self, grant):
        answer = self.deployment.request("GET", "/sandboxes/" + grant["sandbox"]["id"]).json
        return answer.get("sandbox", answer)

    def await_end(self, grant, reason, seconds=SOON):
        self.await_true(lambda: self.told(grant)["state"] == "terminated", seconds)
        self.assertEqual(self.told(grant)["reason"], reason)

    def lease(self, thread):
        reply = self.deployment.request("GET", f"/threads/{thread}/sandbox")
        return reply.json["lease"] if reply.status == 200 else None


@needs_root
class OfLeases(Lives):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def test_idle_ends_and_use_prolongs(self):
        grant = self.deployment.negotiate("idle", idle_timeout=4, max_lifetime=120)
        self.assertEqual(grant["lease"]["heartbeat_every"], 1)
        first = grant["lease"]["expires_at"]
        for _ in range(7):
            self.deployment.shell(grant, "true")
            time.sleep(1)
        self.assertEqual(self.told(grant)["state"], "active")
        self.assertGreater(self.lease("idle")["expires_at"], first)  # use at the node alone moved it
        ended = time.monotonic()
        self.await_end(grant, "idle_timeout")
        self.assertGreater(time.monotonic() - ended, 1.5)
        self.assertIsNone(self.lease("idle"))
        self.assertEqual(self.deployment.negotiate("idle")["sandbox"]["reused"], False)

    def test_output_of_a_command_that_nobody_waits_for_is_no_idleness(self):
        grant = self.deployment.negotiate("busy", idle_timeout=4, max_lifetime=120)
        made = self.deployment.request("POST", grant["endpoints"]["http"] + "/exec", token=grant["token"], body={
            "cmd": "for i in $(seq 8); do echo $i; sleep 1; done", "detach": True})
        self.assertEqual(made.status, 201, made)
        time.sleep(7)
        self.assertEqual(self.told(grant)["state"], "active")
        self.await_end(grant, "idle_timeout", 30)

    def test_age_ends_what_is_in_use(self):
        grant = self.deployment.negotiate("old", max_lifetime=4)
        began = time.monotonic()
        while time.monotonic() - began < 3:
            self.deployment.shell(grant, "true")
            time.sleep(0.3)
        self.await_end(grant, "max_lifetime")
        self.assertGreater(time.monotonic() - began, 3.5)

    def test_several_leases_end_one_by_one(self):
        one = self.deployment.negotiate("one", max_lifetime=5)
        two = self.deployment.negotiate("two", sandbox=one["sandbox"]["id"], max_lifetime=120)
        three = self.deployment.negotiate("three", sandbox=one["sandbox"]["id"], max_lifetime=120)
        self.assertEqual({g["sandbox"]["id"] for g in (two, three)}, {one["sandbox"]["id"]})
        self.await_true(lambda: self.lease("one") is None)
        time.sleep(2)  # past the deadline that the sandbox was made with: the later one was told at once
        self.assertEqual(self.deployment.shell(two, "echo here"), "here\n")
        self.assertEqual(self.told(two)["threads"], ["two", "three"])
        self.assertEqual(self.deployment.request("DELETE", "/threads/two/sandbox").status, 204)
        # The tokens of a lease that ended are refused, those of the others are not.
        self.await_true(lambda: self.deployment.exec(two, cmd="true").status == 401)
        self.assertEqual(self.deployment.shell(three, "echo still"), "still\n")
        self.assertEqual(self.deployment.request("DELETE", "/threads/three/sandbox").status, 204)
        self.await_end(three, "released")

    def test_reasons_are_kept(self):
        deleted = self.deployment.negotiate("deleted")
        released = self.deployment.negotiate("released")
        self.deployment.request("DELETE", "/sandboxes/" + deleted["sandbox"]["id"])
        self.deployment.request("DELETE", "/threads/released/sandbox")
        self.await_end(deleted, "deleted")
        self.await_end(released, "released")
        self.deployment.kill("parley-negotiator")
        self.deployment.kill("parley-sandboxd")
        time.sleep(0.5)
        self.deployment.wait_ready()
        self.assertEqual(self.told(deleted)["reason"], "deleted")
        self.assertEqual(self.told(released)["reason"], "released")

    def test_one_that_would_rather_sleep(self):
        grant = self.deployment.negotiate("pause", idle_timeout=3, max_lifetime=300, on_idle="pause")
        self.await_true(lambda: self.told(grant)["state"] == "paused")
        lease = self.lease("pause")
        self.assertEqual(lease["expires_at"], lease["max_expires_at"])
        self.assertEqual(self.deployment.shell(grant, "echo awake"), "awake\n")
        self.assertEqual(self.deployment.request("DELETE", "/threads/pause/sandbox").status, 204)
        self.await_end(grant, "released")

    def test_a_negotiator_that_was_away_ends_what_ran_out_meanwhile(self):
        idle = self.deployment.negotiate("away", idle_timeout=3, max_lifetime=120)
        used = self.deployment.negotiate("used", idle_timeout=20, max_lifetime=120)
        self.deployment.kill("parley-negotiator")
        self.deployment.shell(used, "true")  # the nodes go on by themselves
        time.sleep(1)
        self.deployment.wait_ready()
        self.await_end(idle, "idle_timeout")
        self.assertEqual(self.told(used)["state"], "active")


@needs_root
class OfDeadlines(Lives):
    """The supervisor goes first, so that nobody starts anew what is killed."""

    def setUp(self):
        self.deployment = Deployment()
        self.addCleanup(self.deployment.close)
        self.marker = str(random.randrange(10**8, 10**9))

    def start(self, lifetime):
        grant = self.deployment.negotiate("doomed", max_lifetime=lifetime)
        made = self.deployment.request("POST", grant["endpoints"]["http"] + "/exec", token=grant["token"],
                                       body={"argv": ["sleep", self.marker], "detach": True})
        self.assertEqual(made.status, 201, made)
        self.await_true(lambda: holders(self.marker))
        return grant

    def kill_for_good(self, *names):
        for pid in self.deployment.pids("parley"):
            os.kill(pid, signal.SIGKILL)
        for name in names:
            self.deployment.kill(name)
        time.sleep(0.5)
        for name in names:
            self.assertEqual(self.deployment.pids(name), [])

    def await_deadline(self, grant, began, lifetime):
        self.assertTrue(holders(self.marker))
        self.await_true(lambda: not holders(self.marker), lifetime + 15)
        lived = time.monotonic() - began
        self.assertGreater(lived, lifetime - 1.5)
        self.assertLess(lived, lifetime + 15)
        self.deployment.up()
        self.await_end(grant, "max_lifetime", 40)

    def test_by_sandboxd_without_a_negotiator(self):
        began = time.monotonic()
        grant = self.start(8)
        self.kill_for_good("parley-negotiator")
        self.assertNotEqual(self.deployment.pids("parley-sandboxd"), [])
        self.await_deadline(grant, began, 8)

    def test_by_init_without_anybody(self):
        began = time.monotonic()
        grant = self.start(10)
        self.kill_for_good("parley-negotiator", "parley-sandboxd")
        self.await_deadline(grant, began, 10)


if __name__ == "__main__":
    unittest.main()
