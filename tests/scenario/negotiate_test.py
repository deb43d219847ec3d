"""Negotiation (protocol.md, 2): modes, hints, idempotency, races, and what bad input gets."""
import os
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402


@needs_root
class Negotiate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def post(self, thread, body=None, **more):
        return self.deployment.request("POST", f"/threads/{thread}/sandbox", {} if body is None else body, **more)

    def test_fifty_at_once_get_one_sandbox(self):
        with ThreadPoolExecutor(50) as pool:
            replies = list(pool.map(lambda _: self.post("race"), range(50)))
        self.assertEqual({r.status for r in replies}, {200, 201}, replies[0])
        self.assertEqual(len({r.json["sandbox"]["id"] for r in replies}), 1)
        self.assertEqual(len({r.json["jti"] for r in replies}), 50)
        self.assertEqual(sum(r.status == 201 for r in replies), 1)

    def test_reply_has_what_the_protocol_promises(self):
        reply = self.post("shape", {"actor": {"type": "agent", "id": "a1"}, "metadata": {"k": "v"}}).json
        self.assertEqual(reply["protocol_version"], "1.0")
        self.assertRegex(reply["sandbox"]["id"], r"^sbx_[a-z0-9]{20}$")
        self.assertEqual((reply["sandbox"]["state"], reply["sandbox"]["isolation"]), ("active", "namespaces"))
        self.assertEqual((reply["token_type"], reply["lease"]["thread_id"]), ("Bearer", "shape"))
        self.assertIn("process", reply["scopes"])
        self.assertEqual(reply["endpoints"]["http"], f"{self.deployment.node_url}/s/{reply['sandbox']['id']}")

    def test_modes(self):
        self.assertEqual(self.post("modes", {"mode": "attach_only"}).code, "NOT_FOUND")
        self.assertEqual(self.post("modes", {"mode": "create_only"}).status, 201)
        self.assertEqual(self.post("modes", {"mode": "create_only"}).code, "CONFLICT")
        self.assertEqual(self.post("modes", {"mode": "attach_only"}).status, 200)

    def test_hints(self):
        box = self.post("hint-a", {"name": "build-box"}).json
        self.assertEqual(box["sandbox"]["name"], "build-box")
        joined = self.post("hint-b", {"sandbox": "build-box"})
        self.assertEqual((joined.status, joined.json["sandbox"]["id"]), (200, box["sandbox"]["id"]))
        self.assertTrue(joined.json["hint"]["honored"])
        own = self.post("hint-c").json
        kept = self.post("hint-c", {"sandbox": "build-box"}).json
        self.assertEqual(kept["sandbox"]["id"], own["sandbox"]["id"])
        self.assertEqual((kept["hint"]["honored"], kept["hint"]["reason"]), (False, "thread_has_sandbox"))
        fallen = self.post("hint-d", {"sandbox": "no-such"}).json
        self.assertEqual((fallen["hint"]["honored"], fallen["hint"]["reason"]), (False, "not_found"))
        self.assertEqual(self.post("hint-e", {"sandbox": "no-such", "hint_policy": "require"}).code, "NOT_FOUND")
        self.assertEqual(self.post("hint-f", {"name": "build-box"}).code, "CONFLICT")

    def test_explicit_fields_that_differ_from_the_attached_conflict(self):
        self.post("fixed", {"resources": {"memory_mb": 256}})
        self.assertEqual(self.post("fixed", {"resources": {"memory_mb": 256}}).status, 200)
        other = self.post("fixed", {"resources": {"memory_mb": 300}})
        self.assertEqual(other.code, "CONFLICT")
        self.assertIn("memory_mb", other.json["error"]["message"])

    def test_idempotency_key(self):
        headers = {"Idempotency-Key": "k-1"}
        first = self.post("idem", {"ttl": 300}, headers=headers)
        again = self.post("idem", {"ttl": 300}, headers=headers)
        self.assertEqual(first.json["sandbox"]["id"], again.json["sandbox"]["id"])
        self.assertNotEqual(first.json["jti"], again.json["jti"])
        self.assertEqual(self.post("idem", {"ttl": 301}, headers=headers).code, "CONFLICT")
        self.deployment.request("DELETE", "/sandboxes/" + first.json["sandbox"]["id"])
        self.assertEqual(self.post("idem", {"ttl": 300}, headers=headers).status, 410)

    def test_release_ends_the_sandbox_with_its_last_lease(self):
        one = self.post("lease-a").json["sandbox"]
        self.post("lease-b", {"sandbox": one["id"]})
        self.assertEqual(self.deployment.request("DELETE", "/threads/lease-a/sandbox").status, 204)
        self.assertEqual(self.deployment.request("GET", "/sandboxes/" + one["id"]).json["state"], "active")
        self.assertEqual(self.deployment.request("GET", "/threads/lease-a/sandbox").status, 404)
        self.assertEqual(self.deployment.request("DELETE", "/threads/lease-b/sandbox").status, 204)
        self.wait_state(one["id"], "terminated", "released")

    def wait_state(self, sandbox, state, reason):
        until = time.monotonic() + 15
        while time.monotonic() < until:
            seen = self.deployment.request("GET", "/sandboxes/" + sandbox).json
            if seen["state"] == state:
                break
            time.sleep(0.05)
        self.assertEqual((seen["state"], seen.get("reason")), (state, reason))

    def test_deleting_tells_clients_that_it_is_gone(self):
        grant = self.deployment.negotiate("gone")
        self.assertIn(self.deployment.request("DELETE", "/sandboxes/" + grant["sandbox"]["id"]).status, (202, 204))
        self.wait_state(grant["sandbox"]["id"], "terminated", "deleted")
        reply = self.deployment.exec(grant, cmd="true")
        self.assertEqual((reply.status, reply.code), (410, "GONE"))
        self.assertIn("deleted", reply.json["error"]["message"])
        fresh = self.deployment.negotiate("gone")
        self.assertNotEqual(fresh["sandbox"]["id"], grant["sandbox"]["id"])

    def test_get_never_shows_a_token(self):
        grant = self.deployment.negotiate("quiet")
        for path in ("/threads/quiet/sandbox", "/sandboxes", "/sandboxes/" + grant["sandbox"]["id"]):
            reply = self.deployment.request("GET", path)
            self.assertEqual(reply.status, 200)
            self.assertNotIn(b"eyJ", reply.body)

    def test_capability_url(self):
        reply = self.post("curl", {"capability_url": True}).json
        url = reply["endpoints"].get("capability") or reply.get("capability_url")
        self.assertIn("/c/" + reply["token"], url)
        done = self.deployment.request("POST", url.rstrip("/") + "/exec", {"cmd": "echo hi", "stream": "none"}, token=None)
        self.assertEqual(done.json["stdout"], "hi\n")

    def test_bad_input_is_named(self):
        for body, word in (({"mod": "ensure"}, "mod"), ({"mode": "x"}, "mode"), ({"ttl": 59}, "ttl"),
                           ({"ttl": "900"}, "ttl"), ({"ttl": 1e300}, "ttl"), ({"scopes": "process"}, "scopes"),
                           ({"scopes": [1]}, "scopes"), ({"resources": {"cpus": 1}}, "cpus"),
                           ({"resources": {"memory_mb": -1}}, "memory_mb"), ({"name": "../x"}, "name"),
                           ({"sandbox": ""}, "sandbox"), ({"actor": {"type": "robot"}}, "actor"),
                           ({"metadata": {"a": 1}}, "metadata"), ({"idle_timeout": 1e9}, "idle_timeout"),
                           ({"network": {"egress": "all"}}, "network.egress"), ({"template": "nope"}, "template")):
            reply = self.post("bad", body)
            self.assertIn(reply.status, (400, 404), (body, reply))
            self.assertIn(word, reply.json["error"]["message"], body)

    def test_only_an_address_or_localhost_is_loopback(self):
        with tempfile.TemporaryDirectory() as state:
            for host in ("127.evil", "127.0.0.1.example", "127.1", "0.0.0.0", "::", "::ffff:127.0.0.1"):
                command = [os.path.join(BIN, "parley-negotiator"), "--state", state, "--host", host]
                done = subprocess.run(command, capture_output=True, text=True, timeout=30)
                self.assertEqual(done.returncode, 2, (host, done.stderr))
                self.assertIn("beyond loopback", done.stderr + done.stdout, host)

    def test_env_is_bounded(self):
        fits = {"A": "x" * 4000, "B_2": "y" * (4095 - 4003 - 5)}
        grant = self.post("env", {"env": fits}).json
        done = self.deployment.exec(grant, cmd="echo ${#A} ${#B_2} $C", env={"C": "own"})
        self.assertEqual(done.json["stdout"], "4000 %d own\n" % len(fits["B_2"]))
        for env in (dict(fits, B_2=fits["B_2"] + "y"), dict(fits, C=""), {"A": "ä" * 2047}):
            reply = self.post("env-large", {"env": env})
            self.assertEqual((reply.status, reply.code), (400, "INVALID_REQUEST"), reply)
            self.assertIn("env has more than 4095 bytes", reply.json["error"]["message"])

    def test_bad_json(self):
        for body in (b"{", b"[]", b"nul", b'{"ttl":900,"ttl":901}', b'{"mode":"\xff"}', b'{"a":"\\u0000"}',
                     b"[" * 5000 + b"]" * 5000, b'{"ttl":' + b"9" * 400 + b"}", b'{"x":' * 100 + b"1" + b"}" * 100):
            reply = self.post("bad", body, headers={"Content-Type": "application/json"})
            self.assertEqual((reply.status, reply.code), (400, "INVALID_REQUEST"), body[:40])

    def test_bad_thread_ids(self):
        for thread in ("..", ".", "a%2Fb", "a%00b", "%2e%2e", "x" * 129, "a b".replace(" ", "%20"), "%ff"):
            reply = self.post(thread)
            self.assertIn(reply.status, (400, 404), thread)
        self.assertEqual(self.post("x" * 128).status, 201)

    def test_who_is_asking(self):
        wrong = "pk_" + "A" * 43
        for headers in ({}, {"Authorization": "Bearer " + wrong}, {"X-API-Key": wrong}, {"Authorization": "Basic eDp5"},
                        {"Authorization": "Bearer"}):
            reply = self.deployment.request("POST", "/threads/x/sandbox", {}, token=None, headers=headers)
            self.assertEqual((reply.status, reply.code), (401, "UNAUTHENTICATED"), headers)
        for headers in ({"X-API-Key": self.deployment.key}, {"Authorization": "ApiKey " + self.deployment.key}):
            self.assertEqual(self.deployment.request("GET", "/sandboxes", token=None, headers=headers).status, 200)

    def test_unknown_routes_and_methods(self):
        self.assertEqual(self.deployment.request("GET", "/nope").status, 404)
        reply = self.deployment.request("PUT", "/sandboxes", b"")
        self.assertEqual(reply.status, 405)
        self.assertIn("GET", reply.headers["allow"])
        self.assertTrue(reply.headers["x-request-id"])

    def test_negotiator_restart_keeps_leases(self):
        grant = self.deployment.negotiate("restart")
        self.deployment.kill("parley-negotiator")
        self.assertEqual(self.deployment.exec(grant, cmd="echo on").json["stdout"], "on\n")
        self.deployment.wait_ready()
        again = self.deployment.negotiate("restart")
        self.assertEqual(again["sandbox"]["id"], grant["sandbox"]["id"])


if __name__ == "__main__":
    unittest.main()
