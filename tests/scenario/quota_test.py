"""Quotas: nobody has more than is given, however many ask at once, over HTTP and real nodes; what ended counts no more, over
kill -9 of the negotiator; who makes too many in a minute is told when to come back."""
import os
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

SMALL = {"cpu": 0.1, "memory_mb": 64, "pids": 32}


@needs_root
class Quota(unittest.TestCase):
    """One deployment; each test is another principal."""

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def key(self, principal, **more):
        reply = self.deployment.request("POST", "/keys", {"principal": principal, "role": "user", **more})
        self.assertEqual(reply.status, 201, reply)
        return reply.json["api_key"]

    def put(self, document):
        reply = self.deployment.request("PUT", "/policy", document, headers={"If-Match": "*"})
        self.assertEqual(reply.status, 200, reply)

    def ask(self, key, thread, **resources):
        return self.deployment.request("POST", f"/threads/{thread}/sandbox", {"resources": {**SMALL, **resources}}, token=key,
                                       timeout=90)

    def used(self, key, rule="quota.sandboxes"):
        rules = self.deployment.request("POST", "/policy/why", {}, token=key).json["rules"]
        return next(each["used"] for each in rules if each["rule"] == rule)

    def wait_used(self, key, count):
        until = time.monotonic() + 60
        while self.used(key) != count:
            self.assertLess(time.monotonic(), until, f"{self.used(key)} count, not {count}")
            time.sleep(0.1)

    def test_many_at_once(self):
        key = self.key("crowd")
        self.put({"roles": {"user": {"quota": {"sandboxes": 3}}}})
        replies = []
        clients = [threading.Thread(target=lambda i=i: replies.append(self.ask(key, f"t{i}"))) for i in range(20)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        self.assertEqual(sorted(each.status for each in replies), [201] * 3 + [429] * 17, replies)
        refused = next(each for each in replies if each.status == 429)
        self.assertEqual(refused.code, "QUOTA_EXCEEDED")
        self.assertIn("crowd has 3 of at most 3 sandboxes", refused.json["error"]["message"])
        self.assertNotIn("retry-after", refused.headers)  # nobody knows when one ends
        made = next(each for each in replies if each.status == 201).json
        paused = self.deployment.request("POST", f"/sandboxes/{made['sandbox']['id']}/pause", token=key)
        self.assertEqual(paused.status, 200, paused)
        self.assertEqual(self.ask(key, "more").code, "QUOTA_EXCEEDED")  # who sleeps takes his place
        self.deployment.kill("parley-negotiator")
        self.deployment.wait_ready()
        self.assertEqual(self.used(key), 3)
        self.deployment.request("DELETE", f"/sandboxes/{made['sandbox']['id']}", token=key)
        self.wait_used(key, 2)
        self.assertEqual(self.ask(key, "more").status, 201)
        self.assertEqual(self.ask(key, "even-more").status, 429)

    def test_amounts_and_limits_that_are_raised(self):
        key = self.key("heavy", limits={"memory_mb": 200})
        self.put({"principals": {"heavy": {"quota": {"memory_mb": 1000, "cpu_milli": 400}}}})
        first = self.ask(key, "a").json["sandbox"]["id"]
        reply = self.ask(key, "b", memory_mb=137)
        self.assertEqual(reply.code, "QUOTA_EXCEEDED")
        self.assertIn("API key's limits.memory_mb", reply.json["error"]["message"])
        self.assertEqual(self.ask(key, "b", memory_mb=100).status, 201)
        reply = self.deployment.request("PATCH", "/sandboxes/" + first, {"resources": {"cpu": 0.31}}, token=key)
        self.assertEqual(reply.code, "QUOTA_EXCEEDED")
        self.assertIn("heavy has 200 of at most 400 cpu_milli, 210 more", reply.json["error"]["message"])
        reply = self.deployment.request("PATCH", "/sandboxes/" + first, {"resources": {"cpu": 0.3}}, token=key)
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(self.used(key, "quota.cpu_milli"), 400)

    def test_too_many_in_a_minute(self):
        key = self.key("hasty")
        self.put({"roles": {"user": {"quota": {"creates_per_minute": 2}}}})
        self.assertEqual([self.ask(key, thread).status for thread in ("a", "b")], [201, 201])
        reply = self.ask(key, "c")
        self.assertEqual(reply.code, "QUOTA_EXCEEDED")
        self.assertTrue(0 < int(reply.headers["retry-after"]) <= 30, reply.headers)
        self.assertIn("hasty may make 2 sandboxes a minute (roles.user.quota.creates_per_minute)",
                      reply.json["error"]["message"])
        self.assertEqual(self.ask(key, "a").status, 200)

    def test_all_together(self):
        here = len(self.deployment.request("GET", "/sandboxes?all=1").json["sandboxes"])
        key, other = self.key("one"), self.key("two")
        self.put({"deployment": {"quota": {"sandboxes": 1}}})
        replies = [self.ask(key, "a"), self.ask(other, "a")]
        self.assertEqual(replies[1].code, "QUOTA_EXCEEDED", (here, replies))
        self.assertIn("deployment.quota.sandboxes", replies[1].json["error"]["message"])


if __name__ == "__main__":
    unittest.main()
