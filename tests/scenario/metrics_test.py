"""GET /metrics and /metrics/watch of a real sandbox: figures that follow what it does, for any token, until that ends."""
import http.client
import json
import os
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402

MIB = 1 << 20


@needs_root
class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("metrics", resources={"cpu": 1, "memory_mb": 256, "disk_mb": 64, "pids": 100})
        cls.base = cls.grant["endpoints"]["http"]

    def metrics(self, token=None):
        reply = self.deployment.request("GET", self.base + "/metrics", token=token or self.grant["token"])
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def until(self, wanted, seconds=30):
        stop = time.monotonic() + seconds
        while True:
            figures = self.metrics()
            if wanted(figures):
                return figures
            self.assertLess(time.monotonic(), stop, figures)
            time.sleep(0.3)

    def test_limits_are_those_asked_for(self):
        figures = self.metrics()
        self.assertEqual((figures["cpu"]["limit_milli"], figures["memory"]["limit_bytes"], figures["pids"]["limit"],
                          figures["disk"]["limit_bytes"], figures["paused"]), (1000, 256 * MIB, 100, 64 * MIB, False))
        self.assertGreater(figures["uptime_ms"], 0)
        self.assertGreaterEqual(figures["commands"]["limit"], 1)

    def test_figures_follow(self):
        before = self.metrics()
        started = self.deployment.request("POST", self.base + "/exec", {
            "cmd": "head -c 20000000 /dev/urandom > /workspace/file; sleep 60 & seq 20000; sleep 61", "id": "busy",
            "detach": True}, token=self.grant["token"])
        self.assertEqual(started.status, 201, started)
        figures = self.until(lambda f: f["disk"]["used_bytes"] >= 19 * MIB
                             and f["output"]["kept_bytes"] > 100000)
        self.assertLess(figures["disk"]["used_bytes"], 40 * MIB)
        self.assertGreater(figures["cpu"]["used_ms"], before["cpu"]["used_ms"])
        self.assertEqual(figures["commands"]["running"], before["commands"]["running"] + 1)
        self.assertGreater(figures["pids"]["used"], before["pids"]["used"])
        self.deployment.request("DELETE", self.base + "/processes/busy", token=self.grant["token"])
        self.deployment.shell(self.grant, "rm /workspace/file")
        self.until(lambda f: f["commands"]["running"] == 0 and f["disk"]["used_bytes"] < 5 * MIB)

    def test_any_token_may_look(self):
        self.assertIn("cpu", self.metrics(link(self.grant["token"], compact({"scope": ""}))))
        self.assertEqual(self.deployment.request("GET", self.base + "/metrics", token="x.y.z").status, 401)
        self.assertEqual(self.deployment.request("GET", self.base + "/metrics?x=1", token=self.grant["token"]).status, 400)
        for interval in ("0", "61", "x"):
            reply = self.deployment.request("GET", self.base + f"/metrics/watch?interval={interval}",
                                            token=self.grant["token"])
            self.assertEqual(reply.status, 400, reply)

    def test_watching_ends_with_the_token(self):
        short = link(self.grant["token"], compact({"exp": int(time.time()) + 8}))
        reply = self.deployment.request("GET", self.base + "/metrics/watch?interval=1", token=short)
        self.assertEqual((reply.status, reply.headers["content-type"]), (200, "text/event-stream"))
        events = [json.loads(block.split("data: ")[1]) for block in reply.body.decode().split("\n\n") if block]
        self.assertGreaterEqual(sum(event["type"] == "metrics" for event in events), 2)
        self.assertEqual((events[-1]["type"], events[-1]["code"]), ("error", "TOKEN_EXPIRED"))

    def test_watching_ends_with_the_sandbox(self):
        grant = self.deployment.negotiate("metrics-ends")
        parts = urllib.parse.urlsplit(grant["endpoints"]["http"])
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", parts.path + "/metrics/watch?interval=1",
                           headers={"Authorization": "Bearer " + grant["token"]})
        answer = connection.getresponse()
        self.assertTrue(answer.readline().startswith(b"event: metrics"))
        self.assertEqual(self.deployment.request("DELETE", "/sandboxes/" + grant["sandbox"]["id"]).status, 204)
        rest = answer.read().decode()
        self.assertIn("event: error", rest)
        self.assertIn('"GONE"', rest)

    def test_what_is_paused_is_not_woken(self):
        grant = self.deployment.negotiate("metrics-paused")
        base, sandbox = grant["endpoints"]["http"], grant["sandbox"]["id"]
        paused = self.deployment.request("POST", f"/sandboxes/{sandbox}/pause")
        self.assertEqual(paused.status, 200, paused)
        for _ in range(2):
            figures = self.deployment.request("GET", base + "/metrics", token=grant["token"]).json
            self.assertTrue(figures["paused"])
        self.assertEqual(self.deployment.request("GET", base + "/info", token=grant["token"]).json["sandbox"]["state"],
                         "paused")
        self.assertEqual(self.deployment.shell(grant, "echo awake"), "awake\n")
        self.assertFalse(self.deployment.request("GET", base + "/metrics", token=grant["token"]).json["paused"])


if __name__ == "__main__":
    unittest.main()
