"""Snapshots (protocol.md, 2): what a sandbox has on disk, kept under a name; it outlives its sandbox, any number of others
begin with it, each on its own; what ran is not part of it; by key or by a capability with scope snapshot."""
import os
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402

SOON = 90  # s


class Snapshots(unittest.TestCase):
    environment = {}

    @classmethod
    def setUpClass(cls):
        if cls is Snapshots:
            raise unittest.SkipTest("the cases below")
        cls.deployment = Deployment(**cls.environment)
        cls.addClassCleanup(cls.deployment.close)

    def ask(self, *arguments, **more):
        return self.deployment.request(*arguments, **more)

    def take(self, grant, expect=201, token="", **body):
        reply = self.ask("POST", f"/sandboxes/{grant['sandbox']['id']}/snapshots", body, token=token, timeout=120)
        self.assertEqual(reply.status, expect, reply)
        return reply.json

    def await_true(self, what, seconds=SOON):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            got = what()
            if got:
                return got
            time.sleep(0.2)
        self.fail("not in time\n" + self.deployment.logs())

    def check_keep_and_begin(self, prefix):
        source = self.deployment.negotiate(prefix)
        self.deployment.shell(source, "mkdir -p /workspace/d && echo one > /workspace/d/f && ln -s d/f /workspace/l && "
                                      "chmod 750 /workspace/d && echo etc > /tmp/t")
        self.assertEqual(self.deployment.exec(source, cmd="exec sleep 1000", id="runs", detach=True).status, 201)
        taken = self.take(source, name=prefix + "-kept")
        snapshot = taken["snapshot"]
        self.assertEqual(taken["processes"], {"running": 1, "included": False})
        self.assertEqual((snapshot["state"], snapshot["sandbox_id"], snapshot["template"], snapshot["storage"]),
                         ("ready", source["sandbox"]["id"], "base", source["sandbox"]["storage"]))
        self.deployment.shell(source, "echo two > /workspace/d/f; kill -0 $(pgrep -x sleep)")  # it goes on
        forks = [self.deployment.negotiate(f"{prefix}-{n}", template=way) for n, way in
                 enumerate((f"snapshot:{prefix}-kept", "snapshot:" + snapshot["id"]))]
        for n, fork in enumerate(forks):
            self.assertEqual(fork["sandbox"]["snapshot"], snapshot["id"])
            self.assertEqual(self.deployment.shell(fork, "cat /workspace/l; stat -c %a /workspace/d; pgrep -x sleep | wc -l"),
                             "one\n750\n0\n")
            self.deployment.shell(fork, f"echo fork-{n} > /workspace/d/f")
        self.assertEqual([self.deployment.shell(fork, "cat /workspace/d/f") for fork in forks], ["fork-0\n", "fork-1\n"])
        self.assertEqual(self.deployment.shell(source, "cat /workspace/d/f"), "two\n")
        # It outlives its source, and those that began with it outlive it.
        self.assertEqual(self.ask("DELETE", "/sandboxes/" + source["sandbox"]["id"]).status, 204)
        self.await_true(lambda: self.ask("GET", "/sandboxes/" + source["sandbox"]["id"]).json["state"] == "terminated")
        late = self.deployment.negotiate(prefix + "-late", template=f"snapshot:{prefix}-kept")
        self.assertEqual(self.deployment.shell(late, "cat /workspace/d/f"), "one\n")
        self.assertEqual(self.ask("DELETE", "/snapshots/" + snapshot["id"]).status, 204)
        self.assertEqual(self.ask("GET", "/snapshots/" + snapshot["id"]).status, 404)
        self.assertEqual(self.ask("POST", f"/threads/{prefix}-gone/sandbox",
                                  {"template": f"snapshot:{prefix}-kept"}).status, 404)
        self.assertEqual(self.deployment.shell(late, "cat /workspace/d/f"), "one\n")
        self.await_true(lambda: not self.on_disk(snapshot["id"]))

    def on_disk(self, snapshot):
        """What a look from outside finds of it; btrfs pools are mounted where nobody sees them."""
        return [os.path.join(folder, name) for folder, folders, files in os.walk(self.deployment.state + "/sandboxd")
                for name in folders + files if snapshot in name]


@needs_root
class OnWhatTheHostHas(Snapshots):
    def test_keep_and_begin(self):
        self.check_keep_and_begin("auto")

    def test_by_capability(self):
        grant = self.deployment.negotiate("cap", scopes=["process", "snapshot"])
        self.assertEqual(self.take(grant, token=grant["token"])["snapshot"]["owner"], "admin")
        narrowed = link(grant["token"], compact({"scope": "snapshot"}))
        self.take(grant, token=narrowed, name="by-narrowed")
        without = link(grant["token"], compact({"scope": "process"}))
        self.take(grant, token=without, expect=403)
        other = self.deployment.negotiate("cap-other")
        self.take(grant, token=other["token"], expect=404)
        self.take(grant, token="x.y.z", expect=401)
        self.ask("POST", "/revocations", {"jti": grant["jti"], "reason": "test"})
        self.take(grant, token=grant["token"], expect=401)

    def test_lists_and_names(self):
        grant = self.deployment.negotiate("names")
        named = self.take(grant, name="the-only")["snapshot"]
        self.take(grant, name="the-only", expect=409)
        self.take(grant, name="Bad", expect=400)
        found = self.ask("GET", "/snapshots?name=the-only").json["snapshots"]
        self.assertEqual([each["id"] for each in found], [named["id"]])
        self.take(grant)
        page = self.ask("GET", f"/snapshots?sandbox={grant['sandbox']['id']}&limit=1").json
        self.assertEqual(len(page["snapshots"]), 1)
        self.assertTrue(page["next_cursor"])
        self.assertEqual(self.ask("GET", "/snapshots/" + named["id"]).json["snapshot"]["name"], "the-only")
        self.assertEqual(self.ask("DELETE", "/snapshots/" + named["id"]).status, 204)
        self.take(grant, name="the-only")

    def test_a_paused_one_stays_paused(self):
        grant = self.deployment.negotiate("asleep")
        self.deployment.shell(grant, "echo x > /workspace/f")
        path = "/sandboxes/" + grant["sandbox"]["id"]
        self.assertEqual(self.ask("POST", path + "/pause", {}).status, 200)
        self.take(grant, name="of-sleeper")
        self.assertEqual(self.ask("GET", path).json["state"], "paused")
        fork = self.deployment.negotiate("asleep-2", template="snapshot:of-sleeper")
        self.assertEqual((fork["sandbox"]["state"], self.deployment.shell(fork, "cat /workspace/f")), ("active", "x\n"))

    def test_its_node_is_away(self):
        grant = self.deployment.negotiate("away")
        taken = self.take(grant, name="away")["snapshot"]
        deployment = self.deployment
        for pid in deployment.pids("parley-sandboxd"):
            os.kill(pid, 19)  # STOP
        try:
            self.await_true(lambda: deployment.request("GET", "/nodes").json["nodes"][0]["state"] != "alive")
            reply = self.ask("POST", "/threads/away-2/sandbox", {"template": "snapshot:away"})
            self.assertEqual(reply.code, "NODE_UNREACHABLE")
            self.assertIn(taken["node"], reply.json["error"]["message"])
            self.assertEqual(self.ask("DELETE", "/snapshots/" + taken["id"]).status, 204)  # durable all the same
        finally:
            for pid in deployment.pids("parley-sandboxd"):
                os.kill(pid, 18)  # CONT
        deployment.wait_ready()
        self.assertEqual(self.ask("GET", "/snapshots/" + taken["id"]).status, 404)
        self.await_true(lambda: not self.on_disk(taken["id"]))


@needs_root
class InFolders(Snapshots):
    """The plain kind: a copy takes its time, and everything can be seen."""
    environment = {"PARLEY_STORAGE": "folder"}

    def test_keep_and_begin(self):
        self.check_keep_and_begin("folder")

    def test_one_that_is_left_half_made_goes(self):
        """kill -9 of the negotiator in the middle: there is no snapshot, and nothing of it stays on the node."""
        grant = self.deployment.negotiate("half", resources={"disk_mb": 2048})
        self.deployment.shell(grant, "head -c 400000000 /dev/zero > /workspace/big")
        failed = threading.Thread(target=self.try_to_take, args=(grant,))
        failed.start()
        self.await_true(lambda: self.ask("GET", "/snapshots").json["snapshots"])
        self.deployment.kill("parley-negotiator")
        failed.join()
        time.sleep(0.5)
        self.deployment.wait_ready()
        self.await_true(lambda: [each for each in self.ask("GET", "/snapshots").json["snapshots"]
                                 if each["sandbox_id"] == grant["sandbox"]["id"] and each["state"] != "ready"] == [])
        for each in self.ask("GET", "/snapshots").json["snapshots"]:  # it was quicker than the kill
            self.assertEqual(self.ask("DELETE", "/snapshots/" + each["id"]).status, 204)
        self.await_true(lambda: not self.on_disk("snp_"))
        self.assertEqual(self.deployment.shell(grant, "stat -c %s /workspace/big"), "400000000\n")

    def try_to_take(self, grant):
        try:
            self.ask("POST", f"/sandboxes/{grant['sandbox']['id']}/snapshots", {"name": "half"}, timeout=120)
        except OSError:
            pass


if __name__ == "__main__":
    unittest.main()
