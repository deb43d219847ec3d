"""Revocation (protocol.md, 4): every selector, from the answer on; on nodes that are late; through kill -9 of each side."""
import datetime
import os
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import link  # noqa: E402


def time_text(seconds_from_now):
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds_from_now)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def revoke(self, query="", key="", reason="a test", **body):
        return self.deployment.request("POST", "/revocations" + query, dict(body, reason=reason), token=key)

    def status(self, grant, token=None):
        return self.deployment.request("GET", grant["endpoints"]["http"] + "/info",
                                       token=token or grant["token"]).status

    def find(self, made):
        return self.deployment.request("GET", "/revocations/" + made["id"]).json["revocation"]


@needs_root
class Revoke(Case):
    def test_every_selector_holds_from_the_answer_on(self):
        for name in ("jti", "token", "family", "sandbox", "thread", "principal", "scope", "lease", "all"):
            with self.subTest(selector=name):
                grant = self.deployment.negotiate("each")
                self.assertEqual(self.status(grant), 200)
                value = {"jti": grant["jti"], "token": grant["token"], "family": grant["jti"],
                         "sandbox": grant["sandbox"]["id"], "thread": "each", "principal": "admin", "scope": "process",
                         "lease": grant["lease"]["id"], "all": True}[name]
                reply = self.revoke(**{name: value})
                self.assertEqual(reply.status, 200, reply)
                self.assertEqual(self.status(grant), 401)
                made = reply.json["revocation"]
                self.assertEqual((made["state"], made["missing"], made["missing_count"]), ("in_force", [], 0))
                self.assertEqual(made["selector"], {"jti": grant["jti"]} if name == "token" else {name: value})
                self.assertEqual((made["reason"], made["by"]), ("a test", "admin"))
                self.assertEqual(made["before"] is None, name in ("jti", "token", "family", "lease"))
                self.assertEqual(self.find(made), made)
                # It bars nothing later, and the sandbox lives on.
                again = self.deployment.negotiate("each")
                self.assertEqual(again["sandbox"]["id"], grant["sandbox"]["id"])
                deadline = time.monotonic() + 5
                while self.status(again) != 200 and time.monotonic() < deadline:
                    time.sleep(0.1)
                self.assertEqual(self.status(again), 200)

    def test_a_link_alone(self):
        grant = self.deployment.negotiate("link")
        narrow = link(grant["token"], b'{"note":"one"}')
        narrower = link(narrow, b'{"note":"two"}')
        reply = self.revoke(key=None, token=narrow)  # by its holder, who has no API key
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(list(reply.json["revocation"]["selector"]), ["link"])
        self.assertIsNone(reply.json["revocation"]["by"])
        self.assertEqual([self.status(grant, t) for t in (grant["token"], narrow, narrower)], [200, 401, 401])
        self.assertEqual(self.revoke(link="lnk_0123456789012345678901").status, 200)

    def test_a_time(self):
        grant = self.deployment.negotiate("time")
        self.assertEqual(self.revoke(thread="time", before=time_text(-60)).status, 200)
        self.assertEqual(self.status(grant), 200)
        self.assertEqual(self.revoke(thread="time", before=time_text(60)).code, "INVALID_REQUEST")

    def test_streams_are_cut(self):
        grant = self.deployment.negotiate("streams")
        self.deployment.exec(grant, cmd="while sleep 0.1; do echo x; done", id="loop", detach=True)
        ended = []

        def follow():
            try:
                self.deployment.request("GET", grant["endpoints"]["http"] + "/processes/loop/output?follow=1",
                                        token=grant["token"], record=False)
            except Exception as cut:  # a connection that breaks is how a stream that is cut ends
                ended.append(cut)
            else:
                ended.append(None)

        reader = threading.Thread(target=follow)
        reader.start()
        time.sleep(1)
        self.assertTrue(reader.is_alive())
        self.assertEqual(self.revoke(jti=grant["jti"]).status, 200)
        reader.join(2)
        self.assertFalse(reader.is_alive(), ended)
        anew = self.deployment.negotiate("streams")
        alive = self.deployment.request("GET", anew["endpoints"]["http"] + "/processes/loop", token=anew["token"])
        self.assertEqual((alive.status, alive.json.get("state", "running")), (200, "running"), alive)

    def test_a_release_of_one_lease_of_two(self):
        one = self.deployment.negotiate("two-a", name="shared-box")
        two = self.deployment.negotiate("two-b", sandbox="shared-box")
        self.assertEqual(self.deployment.request("DELETE", "/threads/two-a/sandbox").status, 204)
        until = time.monotonic() + 5
        while self.status(one) == 200 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual((self.status(one), self.status(two)), (401, 200))

    def test_bad_requests(self):
        grant = self.deployment.negotiate("bad")
        for body, code in (({}, "INVALID_REQUEST"), ({"jti": grant["jti"], "all": True}, "INVALID_REQUEST"),
                           ({"all": False}, "INVALID_REQUEST"), ({"jti": 7}, "INVALID_REQUEST"),
                           ({"jti": ""}, "INVALID_REQUEST"), ({"jti": "a/b"}, "INVALID_REQUEST"),
                           ({"scope": "process shell"}, "INVALID_REQUEST"), ({"scope": "x"}, "INVALID_REQUEST"),
                           ({"jti": grant["jti"], "before": time_text(-1)}, "INVALID_REQUEST"),
                           ({"thread": "bad", "before": "yesterday"}, "INVALID_REQUEST"),
                           ({"thread": "bad", "surprise": 1}, "INVALID_REQUEST"),
                           ({"thread": "bad", "reason": ""}, "INVALID_REQUEST"),
                           ({"thread": "bad", "reason": "x" * 256}, "INVALID_REQUEST"),
                           ({"sandbox": "sbx_none"}, "NOT_FOUND"), ({"thread": "none"}, "NOT_FOUND"),
                           ({"lease": "lse_none"}, "NOT_FOUND"), ({"token": "a.b.c"}, "UNAUTHENTICATED")):
            self.assertEqual(self.revoke(**body).code, code, body)
        for body in ({"jti": grant["jti"]}, {"token": grant["token"][:-6] + "AAAAAA"}, {"all": True}):
            self.assertEqual(self.revoke(key=None, **body).code, "UNAUTHENTICATED", body)
            self.assertEqual(self.revoke(key="pk_" + "x" * 43, **body).code, "UNAUTHENTICATED", body)
        self.assertEqual(self.revoke(query="?principal=ada", thread="bad").code, "NOT_FOUND")
        self.assertEqual(self.revoke(query="?principal=ada", sandbox=grant["sandbox"]["id"]).code, "INVALID_REQUEST")
        self.assertEqual(self.status(grant), 200)

    def test_unknown_tokens_are_marked_all_the_same(self):
        self.deployment.negotiate("unknown")
        made = self.revoke(jti="tok_00000000000000000000").json["revocation"]
        self.assertEqual(made["state"], "in_force")
        self.assertIsNotNone(made["usable_until"])

    def test_lists(self):
        made = [self.revoke(scope="snapshot", reason=f"list {i}").json["revocation"] for i in range(4)]
        page = self.deployment.request("GET", "/revocations?limit=3").json
        self.assertEqual([r["id"] for r in page["revocations"]], [r["id"] for r in made[:0:-1]])
        rest = self.deployment.request("GET", f"/revocations?limit=3&cursor={page['next']}").json
        self.assertEqual(rest["revocations"][0]["id"], made[0]["id"])
        self.assertEqual(self.deployment.request("GET", "/revocations?all=1").status, 200)
        for path, status in (("?limit=0", 400), ("?limit=201", 400), ("?cursor=x", 400), ("?all=2", 400),
                             ("?cursor=rev_00000000000000000000", 400), ("/rev_00000000000000000000", 404), ("/x", 404)):
            self.assertEqual(self.deployment.request("GET", "/revocations" + path).status, status, path)


@needs_root
class Failures(Case):
    def test_1_a_node_that_does_not_answer(self):
        grant = self.deployment.negotiate("late")
        pids = self.deployment.pids("parley-sandboxd")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            reply = self.revoke(jti=grant["jti"])
            took = time.monotonic() - began
            shown = self.find(reply.json["revocation"])
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        self.assertEqual(reply.status, 202, reply)
        made = reply.json["revocation"]
        self.assertTrue(4.5 < took < 8, took)
        self.assertEqual((made["state"], made["missing_count"]), ("pending", 1))
        self.assertEqual(made["missing"], [grant["sandbox"]["node"]])
        self.assertEqual(made["usable_until"], grant["expires_at"])
        self.assertEqual(shown["state"], "pending")
        until = time.monotonic() + 20
        while self.find(made)["state"] != "in_force" and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(self.find(made)["state"], "in_force")
        self.assertEqual(self.status(grant), 401)

    def test_2_a_killed_negotiator(self):
        grant = self.deployment.negotiate("killed")
        made = self.revoke(jti=grant["jti"]).json["revocation"]
        self.deployment.kill("parley-negotiator")
        self.assertEqual(self.status(grant), 401)  # the node knows by itself
        self.deployment.wait_ready()
        until = time.monotonic() + 10
        while self.find(made)["state"] != "in_force" and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(self.find(made)["state"], "in_force")
        refresh = self.deployment.request("POST", "/threads/killed/sandbox/refresh", {"current_token": grant["token"]})
        self.assertEqual(refresh.code, "TOKEN_REVOKED")
        # Marks go to the node under the new ledger id too.
        later = self.deployment.negotiate("killed")
        self.assertEqual(self.revoke(jti=later["jti"]).status, 200)
        self.assertEqual([self.status(grant), self.status(later)], [401, 401])

    def test_3_a_killed_node(self):
        grant = self.deployment.negotiate("node")
        self.assertEqual(self.revoke(jti=grant["jti"]).status, 200)
        self.deployment.kill("parley-sandboxd")
        seen, until = set(), time.monotonic() + 15
        while time.monotonic() < until and 401 not in seen:
            try:
                seen.add(self.status(grant))
            except OSError:
                time.sleep(0.02)
        self.assertIn(401, seen)
        self.assertNotIn(200, seen)  # not even for a moment


if __name__ == "__main__":
    unittest.main()
