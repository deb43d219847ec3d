"""Refresh and signs of life (protocol.md, 2): rotation, a lost reply, a leak, who may not; also through kill -9."""
import os
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import claims_of, link  # noqa: E402

SPENT_S = 30


@needs_root
class Refresh(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def refresh(self, thread, token, query="", key="", **body):
        return self.deployment.request("POST", f"/threads/{thread}/sandbox/refresh{query}",
                                       dict(body, current_token=token), token=key)

    def sign(self, thread, token="", body=None):
        return self.deployment.request("POST", f"/threads/{thread}/sandbox/heartbeat", body, token=token)

    def status(self, grant, token):
        return self.deployment.exec(grant, token=token, cmd="true").status

    def test_rotation(self):
        first = self.deployment.negotiate("rotate")
        reply = self.refresh("rotate", first["token"], ttl=120)
        self.assertEqual(reply.status, 200, reply)
        second = reply.json
        self.assertTrue(second["sandbox"]["reused"])
        for part in ("id", "name"):
            self.assertEqual(second["sandbox"][part], first["sandbox"][part])
        self.assertEqual(second["lease"]["id"], first["lease"]["id"])
        self.assertEqual((second["scopes"], second["endpoints"]), (first["scopes"], first["endpoints"]))
        self.assertNotEqual(second["jti"], first["jti"])
        claims = claims_of(second["token"])
        self.assertEqual((claims["fam"], claims["exp"] - claims["iat"]), (first["jti"], 120))
        # Both are good for a while, so that what is under way is not lost; then only the new one.
        self.assertEqual([self.status(first, g["token"]) for g in (first, second)], [200, 200])
        until = time.monotonic() + SPENT_S + 10
        while self.status(first, first["token"]) == 200 and time.monotonic() < until:
            time.sleep(1)
        self.assertGreater(time.monotonic(), until - 15)  # not before its time
        self.assertEqual([self.status(first, g["token"]) for g in (first, second)], [401, 200])

    def test_a_lost_reply_is_given_again(self):
        token = self.deployment.negotiate("lost")["token"]
        with ThreadPoolExecutor(20) as pool:
            replies = list(pool.map(lambda _: self.refresh("lost", token), range(20)))
        self.assertEqual({r.status for r in replies}, {200}, replies)
        self.assertEqual(len({r.json["token"] for r in replies}), 1)
        self.deployment.kill("parley-negotiator")
        self.deployment.wait_ready()
        self.assertEqual(self.refresh("lost", token).json["token"], replies[0].json["token"])

    def test_a_leak_revokes_the_family(self):
        first = self.deployment.negotiate("leak")
        second = self.refresh("leak", first["token"]).json["token"]
        third = self.refresh("leak", second).json["token"]
        self.assertEqual(self.status(first, third), 200)
        reply = self.refresh("leak", first["token"])
        self.assertEqual((reply.status, reply.code), (409, "TOKEN_REUSED"), reply)
        until = time.monotonic() + 5
        while self.status(first, third) == 200 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual({self.status(first, t) for t in (first["token"], second, third)}, {401})
        self.assertEqual(self.refresh("leak", third).code, "TOKEN_REVOKED")
        anew = self.deployment.negotiate("leak")
        self.assertEqual(anew["sandbox"]["id"], first["sandbox"]["id"])
        self.assertEqual(self.status(anew, anew["token"]), 200)

    def test_scopes_only_narrow(self):
        first = self.deployment.negotiate("narrow", scopes=["fs:rw", "process"])
        second = self.refresh("narrow", first["token"], scopes=["fs:ro", "shell"]).json
        self.assertEqual(second["scopes"], ["fs:ro"])
        self.assertEqual(self.refresh("narrow", second["token"], scopes=["process"]).json["scopes"], [])

    def test_who_may_not(self):
        token = self.deployment.negotiate("mine")["token"]
        self.deployment.negotiate("other")
        for reply, code in ((self.refresh("other", token), "NOT_FOUND"),
                            (self.refresh("none", token), "NOT_FOUND"),
                            (self.refresh("mine", token, query="?principal=ada"), "NOT_FOUND"),
                            (self.refresh("mine", token, query="?principal=admin"), "NOT_FOUND"),
                            (self.refresh("mine", token, key=token), "UNAUTHENTICATED"),
                            (self.refresh("mine", token, key=None), "UNAUTHENTICATED"),
                            (self.refresh("mine", link(token, b'{"note":"n"}')), "UNAUTHENTICATED"),
                            (self.refresh("mine", token[:-6] + "AAAAAA"), "UNAUTHENTICATED"),
                            (self.refresh("mine", "a.b.c"), "UNAUTHENTICATED"),
                            (self.refresh("mine", ""), "INVALID_REQUEST"),
                            (self.refresh("mine", 7), "INVALID_REQUEST"),
                            (self.refresh("mine", "x" * 5000), "INVALID_REQUEST"),
                            (self.refresh("mine", token, ttl=59), "INVALID_REQUEST"),
                            (self.refresh("mine", token, name="x"), "INVALID_REQUEST"),
                            (self.refresh("mine", token, scopes="process"), "INVALID_REQUEST")):
            self.assertEqual(reply.code, code, reply)
        self.assertEqual(self.refresh("mine", token).status, 200)

    def test_an_ended_lease_is_not_refreshed(self):
        token = self.deployment.negotiate("ended")["token"]
        self.deployment.request("DELETE", "/threads/ended/sandbox")
        self.assertEqual(self.refresh("ended", token).code, "NOT_FOUND")

    def test_signs_of_life(self):
        grant = self.deployment.negotiate("alive", idle_timeout=600)
        narrow = link(grant["token"], b'{"scope":"fs:ro"}')
        before = grant["lease"]["expires_at"]
        for token in ("", grant["token"], narrow):
            time.sleep(0.01)
            reply = self.sign("alive", token)
            self.assertEqual(reply.status, 200, reply)
            self.assertEqual(reply.json["sandbox"]["id"], grant["sandbox"]["id"])
            self.assertGreater(reply.json["lease"]["expires_at"], before)
            self.assertNotIn("token", reply.json)
            before = reply.json["lease"]["expires_at"]
        self.deployment.negotiate("alive-2")
        for reply, code in ((self.sign("alive-2", grant["token"]), "NOT_FOUND"), (self.sign("none"), "NOT_FOUND"),
                            (self.sign("alive", None), "UNAUTHENTICATED"), (self.sign("alive", "x"), "UNAUTHENTICATED"),
                            (self.sign("alive", body={"a": 1}), "INVALID_REQUEST")):
            self.assertEqual(reply.code, code, reply)


if __name__ == "__main__":
    unittest.main()
