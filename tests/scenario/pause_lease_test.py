"""Pause and the rules of leases (protocol.md, 2): an idle sandbox that would rather sleep does, with its processes and all its
leases; nothing but use or an explicit resume wakes it; it ends in its time all the same. And what of a living one can be changed."""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

SOON = 30  # s: what is due has happened by then, also on a machine that has other things to do


class Leases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def ask(self, *arguments, **more):
        return self.deployment.request(*arguments, **more)

    def await_true(self, what, seconds=SOON):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            got = what()
            if got:
                return got
            time.sleep(0.1)
        self.fail("not in time\n" + self.deployment.logs())

    def told(self, grant):
        return self.ask("GET", "/sandboxes/" + grant["sandbox"]["id"]).json

    def await_state(self, grant, state):
        self.await_true(lambda: self.told(grant)["state"] == state)

    def post(self, grant, verb, body=None):
        return self.ask("POST", f"/sandboxes/{grant['sandbox']['id']}/{verb}", body)

    def cpu_used(self, grant):
        """Which does not wake it."""
        return self.ask("GET", grant["endpoints"]["http"] + "/metrics", token=grant["token"]).json["cpu"]["used_ms"]

    def spin(self, grant):
        self.assertEqual(self.deployment.exec(grant, cmd="while :; do :; done", id="spin", detach=True).status, 201)


@needs_root
class Pause(Leases):
    def test_nothing_runs_until_it_is_resumed(self):
        grant = self.deployment.negotiate("explicit", max_lifetime=600)
        self.spin(grant)
        reply = self.post(grant, "pause")
        self.assertEqual((reply.status, reply.json["sandbox"]["state"]), (200, "paused"))
        before = self.cpu_used(grant)
        time.sleep(1)
        self.assertEqual(self.cpu_used(grant), before)
        self.assertEqual(self.told(grant)["state"], "paused")
        self.assertEqual(self.post(grant, "pause").status, 200)
        again = self.deployment.negotiate("explicit")
        self.assertEqual((again["sandbox"]["state"], again["sandbox"]["reused"]), ("paused", True))
        reply = self.post(grant, "resume")
        self.assertEqual((reply.status, reply.json["sandbox"]["state"]), (200, "active"))
        self.await_true(lambda: self.cpu_used(grant) > before)

    def test_use_wakes_it_and_the_negotiator_hears_of_it(self):
        grant = self.deployment.negotiate("use", max_lifetime=600)
        self.spin(grant)
        self.assertEqual(self.post(grant, "pause").status, 200)
        self.assertEqual(self.deployment.shell(grant, "echo here"), "here\n")
        self.await_state(grant, "active")
        self.assertEqual(self.ask("GET", grant["endpoints"]["http"] + "/processes/spin",
                                  token=grant["token"]).json["state"], "running")

    def test_idle_ones_sleep_with_all_their_leases(self):
        first = self.deployment.negotiate("idle-1", idle_timeout=3, max_lifetime=600, on_idle="pause")
        self.deployment.negotiate("idle-2", idle_timeout=4, max_lifetime=600, sandbox=first["sandbox"]["id"])
        self.assertEqual(self.deployment.exec(first, cmd="exec sleep 1000", id="sleeper", detach=True).status, 201)
        self.await_state(first, "paused")
        for thread in ("idle-1", "idle-2"):
            lease = self.ask("GET", f"/threads/{thread}/sandbox").json["lease"]
            self.assertEqual(lease["expires_at"], lease["max_expires_at"])
        refreshed = self.ask("POST", "/threads/idle-1/sandbox/refresh", {"current_token": first["token"]})
        self.assertEqual(refreshed.status, 200, refreshed)
        self.assertEqual(self.ask("POST", "/threads/idle-2/sandbox/heartbeat", {}).status, 200)
        self.assertEqual(self.told(first)["state"], "paused")  # none of that wakes it
        self.assertEqual(self.deployment.shell(refreshed.json, "kill -0 $(pgrep -x sleep) && echo lives"), "lives\n")
        self.await_state(first, "active")
        self.await_state(first, "paused")  # and idle again
        self.assertEqual(self.ask("DELETE", "/threads/idle-1/sandbox").status, 204)
        self.assertEqual(self.told(first)["state"], "paused")
        self.assertEqual(self.ask("DELETE", "/threads/idle-2/sandbox").status, 204)
        self.await_state(first, "terminated")

    def test_its_longest_life_ends_it_asleep(self):
        grant = self.deployment.negotiate("old", max_lifetime=5)
        self.assertEqual(self.post(grant, "pause").status, 200)
        self.await_state(grant, "terminated")
        self.assertEqual(self.told(grant)["reason"], "max_lifetime")
        self.assertEqual(self.post(grant, "pause").status, 410)

    def test_a_revoked_token_does_not_wake_it(self):
        grant = self.deployment.negotiate("revoked", max_lifetime=600)
        self.spin(grant)
        self.assertEqual(self.post(grant, "pause").status, 200)
        reply = self.ask("POST", "/revocations", {"jti": grant["jti"], "reason": "test"})
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(self.deployment.exec(grant, cmd="true").status, 401)
        fresh = self.deployment.negotiate("revoked")
        before = self.cpu_used(fresh)
        time.sleep(0.5)
        self.assertEqual(self.cpu_used(fresh), before)
        self.assertEqual(self.told(grant)["state"], "paused")

    def test_it_sleeps_through_a_kill_of_the_negotiator(self):
        grant = self.deployment.negotiate("kill", max_lifetime=600)
        self.spin(grant)
        self.assertEqual(self.post(grant, "pause").status, 200)
        before = self.cpu_used(grant)
        self.deployment.kill("parley-negotiator")
        time.sleep(1)
        self.deployment.wait_ready()
        self.assertEqual(self.told(grant)["state"], "paused")
        time.sleep(3)  # heartbeats come
        self.assertEqual((self.told(grant)["state"], self.cpu_used(grant)), ("paused", before))
        self.assertEqual(self.post(grant, "resume").status, 200)
        self.await_true(lambda: self.cpu_used(grant) > before)


@needs_root
class Changes(Leases):
    def test_limits_are_in_force_when_the_answer_comes(self):
        grant = self.deployment.negotiate("limits", resources={"pids": 200, "memory_mb": 64})
        path = "/sandboxes/" + grant["sandbox"]["id"]
        reply = self.ask("PATCH", path, {"resources": {"pids": 32, "memory_mb": 128, "processes": 3}})
        self.assertEqual(reply.status, 200, reply)
        told = reply.json["sandbox"]["resources"]
        self.assertEqual((told["pids"], told["memory_mb"], told["processes"]), (32, 128, 3))
        metrics = self.ask("GET", grant["endpoints"]["http"] + "/metrics", token=grant["token"]).json
        self.assertEqual((metrics["pids"]["limit"], metrics["memory"]["limit_bytes"], metrics["commands"]["limit"]),
                         (32, 128 << 20, 3))
        self.assertEqual(self.told(grant)["resources"]["pids"], 32)

    def test_what_its_node_refuses_changes_nothing(self):
        grant = self.deployment.negotiate("refused")
        path = "/sandboxes/" + grant["sandbox"]["id"]
        before = self.told(grant)["resources"]
        reply = self.ask("PATCH", path, {"resources": {"memory_mb": 16777216}, "name": "not-that-way"})
        self.assertIn(reply.status, (400, 403, 503), reply)
        self.assertEqual(self.told(grant)["resources"], before)
        self.assertNotEqual(self.told(grant)["name"], "not-that-way")

    def test_name_metadata_and_what_it_does_when_idle(self):
        grant = self.deployment.negotiate("others", name="one-name", metadata={"a": "b"})
        path = "/sandboxes/" + grant["sandbox"]["id"]
        reply = self.ask("PATCH", path, {"name": "another-name", "metadata": {"c": "d"}, "on_idle": "pause"})
        self.assertEqual(reply.status, 200, reply)
        told = self.told(grant)
        self.assertEqual((told["name"], told["metadata"], told["on_idle"]), ("another-name", {"c": "d"}, "pause"))
        other = self.deployment.negotiate("others-2", name="one-name")
        taken = self.ask("PATCH", "/sandboxes/" + other["sandbox"]["id"], {"name": "another-name"})
        self.assertEqual(taken.code, "CONFLICT")
        self.assertEqual(self.ask("PATCH", path, {"template": "base"}).code, "INVALID_REQUEST")
        self.assertEqual(self.ask("PATCH", "/sandboxes/sbx_" + "a" * 20, {}).status, 404)

    def test_usage_is_told(self):
        grant = self.deployment.negotiate("usage")
        self.deployment.shell(grant, "head -c 3000000 /dev/urandom > /workspace/data; sync")
        usage = self.await_true(lambda: self.told(grant).get("usage"))
        self.assertGreaterEqual(usage["memory_bytes"], 0)
        self.await_true(lambda: self.told(grant)["usage"]["cpu_ms"] > 0)

    def test_an_entrypoint_runs_from_the_beginning(self):
        grant = self.deployment.negotiate("entry", entrypoint=["sh", "-c", "echo begun; pwd; exec sleep 1000"])
        base = grant["endpoints"]["http"] + "/processes/entrypoint"
        told = self.await_true(lambda: self.ask("GET", base, token=grant["token"]).json.get("state"))
        self.assertEqual(told, "running")
        output = self.await_true(lambda: self.ask("GET", base + "/output?raw=stdout", token=grant["token"]).body)
        self.assertTrue(output.startswith(b"begun\n"), output)
        again = self.deployment.negotiate("entry", entrypoint=["sh", "-c", "echo begun; pwd; exec sleep 1000"])
        self.assertTrue(again["sandbox"]["reused"])
        other = self.ask("POST", "/threads/entry/sandbox", {"entrypoint": ["true"]})
        self.assertEqual(other.code, "CONFLICT")
        self.assertIn("entrypoint", other.json["error"]["message"])


if __name__ == "__main__":
    unittest.main()
