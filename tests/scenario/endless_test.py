"""Lives without end (protocol.md, 2): they go on while the negotiator says so, and end by themselves when it is gone; ends
are moved both ways; tokens for clients that never refresh die with whatever they hang on, and without contact."""
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

SOON = 30  # s: what is due has happened by then, also on a machine that has other things to do
ALONE = 10  # s that a sandbox lives on without the negotiator
ENDLESS = {"max_lifetime": None, "idle_timeout": None}


class Endless(unittest.TestCase):
    environment = {}

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(**cls.environment)
        cls.addClassCleanup(cls.deployment.close)

    def await_true(self, what, seconds=SOON):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            got = what()
            if got:
                return got
            time.sleep(0.1)
        self.fail("not in time\n" + self.deployment.logs())

    def ask(self, *arguments, **more):
        return self.deployment.request(*arguments, **more)

    def path(self, grant, verb=""):
        return "/sandboxes/" + grant["sandbox"]["id"] + verb

    def told(self, grant):
        return self.ask("GET", self.path(grant)).json

    def works(self, grant, token=None):
        return self.deployment.exec(grant, token=token, cmd="true").status == 200

    def ended(self, grant):
        told = self.told(grant)
        return told["state"] == "terminated" and told["reason"]

    @staticmethod
    def at(seconds):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


@needs_root
class Alone(Endless):
    """The promise: so long after the negotiator's last word at most."""
    environment = {"PARLEY_UNATTENDED_MAX": str(ALONE)}

    def test_the_negotiator_is_gone(self):
        endless = self.deployment.negotiate("endless", **ENDLESS)
        week = self.deployment.negotiate("week", max_lifetime=7 * 86400, idle_timeout=None, long=True)
        lease = endless["lease"]
        self.assertEqual((lease["max_expires_at"], lease["expires_at"], lease["idle_timeout"]), (None, None, None))
        self.assertIsNone(self.told(endless)["max_expires_at"])
        begun = time.monotonic()
        while time.monotonic() - begun < ALONE + 3:  # it is said again and again
            self.assertTrue(self.works(endless) and self.works(week))
            time.sleep(0.5)
        for pid in self.deployment.pids("parley"):  # the supervisor would start it anew
            os.kill(pid, signal.SIGKILL)
        self.deployment.kill("parley-negotiator")
        gone = time.monotonic()
        self.assertTrue(self.works(endless))
        self.await_true(lambda: not self.works(endless) and not self.works(week), ALONE + 40)
        self.assertLess(time.monotonic() - gone, ALONE + 20)
        self.deployment.up()
        for grant in (endless, week):  # as whichever sandboxd is there now knows: the old one, or none that had it
            self.assertIn(self.await_true(lambda: self.ended(grant)), ("max_lifetime", "node_lost"))


@needs_root
class Contact(Endless):
    environment = {"PARLEY_LONG_CONTACT_MAX": "5"}

    def test_a_long_token_needs_a_negotiator_that_is_heard(self):
        grant, plain = self.deployment.negotiate("contact", long=True), self.deployment.negotiate("contact")
        self.await_true(lambda: self.works(grant))
        for pid in self.deployment.pids("parley"):  # the supervisor would start it anew
            os.kill(pid, signal.SIGKILL)
        self.deployment.kill("parley-negotiator")
        refused = self.await_true(lambda: not self.works(grant) and self.deployment.exec(grant, cmd="true"))
        self.assertEqual((refused.status, refused.code), (401, "TOKEN_EXPIRED"))
        self.assertTrue(self.works(plain))  # with a token that ends soon by itself


@needs_root
class Ends(Endless):
    def renew(self, grant, seconds):
        return self.ask("POST", self.path(grant, "/renew"), {"expires_at": self.at(seconds)})

    def test_an_end_is_moved(self):
        grant = self.deployment.negotiate("moved", max_lifetime=6, long=True)
        second = self.deployment.negotiate("second", sandbox=grant["sandbox"]["id"], max_lifetime=6)
        reply = self.renew(grant, 3600)
        self.assertEqual(reply.status, 200, reply)
        told = reply.json["sandbox"]["max_expires_at"]
        self.assertGreater(told, self.at(3500))
        self.assertEqual(self.ask("GET", "/threads/second/sandbox").json["lease"]["max_expires_at"], told)
        time.sleep(7)  # past both ends that were
        self.assertTrue(self.works(grant))  # with the token of then
        self.assertEqual(self.renew(second, 3).status, 200)
        self.assertEqual(self.await_true(lambda: self.ended(grant)), "max_lifetime")
        self.assertEqual(self.renew(grant, 60).status, 410)
        events = self.ask("GET", f"/audit?action=sandbox.renew&sandbox={grant['sandbox']['id']}").json["records"]
        self.assertEqual({event["status"] for event in events}, {200, 410})

    def test_what_cannot_be_renewed(self):
        endless = self.deployment.negotiate("none", **ENDLESS)
        reply = self.renew(endless, 60)
        self.assertEqual((reply.status, reply.code), (409, "CONFLICT"))
        grant = self.deployment.negotiate("past")
        self.assertEqual(self.renew(grant, -5).status, 400)
        for body in ({}, {"expires_at": 5}, {"expires_at": "soon"}, {"expires_at": self.at(9), "more": 1}):
            self.assertEqual(self.ask("POST", self.path(grant, "/renew"), body).status, 400, body)

    def test_by_command(self):
        grant = self.deployment.negotiate("said", max_lifetime=600)
        done = self.deployment.cli("renew", grant["sandbox"]["name"], "--for", "2h")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("until " + self.told(grant)["max_expires_at"], done.stdout)
        self.assertGreater(self.told(grant)["max_expires_at"], self.at(7000))
        self.assertEqual(self.deployment.cli("renew", "--thread", "said", "--until", self.at(300)).returncode, 0)
        self.assertLess(self.told(grant)["max_expires_at"], self.at(310))
        for wrong in ((), ("--for", "0"), ("--for", "soon"), ("--until", "soon"), ("--for", "1h", "--until", self.at(9))):
            self.assertEqual(self.deployment.cli("renew", "--thread", "said", *wrong).returncode, 2, wrong)
        done = self.deployment.cli("run", "--thread", "never", "--lifetime", "never", "--idle-timeout", "never", "--", "true")
        self.assertEqual(done.returncode, 0, done)
        lease = self.ask("GET", "/threads/never/sandbox").json["lease"]
        self.assertEqual((lease["max_expires_at"], lease["idle_timeout"]), (None, None))

    def test_a_page_by_offset(self):
        made = [self.deployment.negotiate(f"page-{i}", metadata={"page": "x=y&z", "i": str(i)}) for i in range(3)]
        wanted = "/sandboxes?metadata=page%3Dx%253Dy%2526z"
        page = self.ask("GET", wanted + "&offset=1&limit=1").json
        self.assertEqual((page["total"], page["truncated"], page["offset"]), (3, False, 1))
        self.assertEqual([one["id"] for one in page["sandboxes"]], [made[1]["sandbox"]["id"]])
        self.assertEqual(self.ask("GET", wanted + "%26i%3D2").json["total"], 1)
        self.assertEqual(self.ask("GET", wanted + "&state=terminated").json["total"], 0)
        for bad in ("metadata=", "metadata=x", "metadata=%3Dx", "metadata=a%3D%25zz", "offset=-1", "offset=10001",
                    "offset=0&cursor=" + made[0]["sandbox"]["id"]):
            self.assertEqual(self.ask("GET", "/sandboxes?" + bad).status, 400, bad)

    def test_metadata_is_merged_and_pauses_may_be_strict(self):
        grant = self.deployment.negotiate("merged", metadata={"a": "1", "b": "2"})
        reply = self.ask("PATCH", self.path(grant, "/metadata"), {"a": None, "c": "3"})
        self.assertEqual((reply.status, reply.json["sandbox"]["metadata"]), (200, {"b": "2", "c": "3"}))
        self.assertEqual(self.ask("PATCH", self.path(grant, "/metadata"), {"a": 1}).status, 400)
        for verb, strict, status in (("resume", True, 409), ("pause", True, 200), ("pause", True, 409),
                                     ("pause", False, 200), ("resume", True, 200), ("resume", False, 200)):
            reply = self.ask("POST", self.path(grant, "/" + verb), {"strict": strict} if strict else {})
            self.assertEqual(reply.status, status, (verb, strict, reply))


@needs_root
class LongTokens(Endless):
    """Seen to work first, then not to."""

    def test_with_its_lease(self):
        one = self.deployment.negotiate("with-1", max_lifetime=5, long=True)
        two = self.deployment.negotiate("with-2", sandbox=one["sandbox"]["id"], long=True)
        self.assertGreater(one["expires_at"], self.at(6 * 86400))
        self.assertTrue(one["long"])
        self.assertTrue(self.works(one))
        self.await_true(lambda: self.deployment.exec(one, cmd="true").status == 401)
        self.assertTrue(self.works(two))
        self.assertEqual(self.ask("DELETE", "/threads/with-2/sandbox").status, 204)
        self.await_true(lambda: not self.works(two))

    def test_with_a_mark_and_its_sandbox(self):
        grant = self.deployment.negotiate("marked", long=True)
        by_id = self.ask("POST", self.path(grant, "/token"), {"long": True, "scopes": ["process"]}).json
        self.assertEqual((by_id["lease"]["thread_id"], by_id["scopes"]), ("marked", ["process"]))
        self.assertTrue(self.works(grant) and self.works(by_id))
        self.assertIn(self.ask("POST", "/revocations", {"jti": by_id["jti"], "reason": "test"}).status, (200, 202))
        self.await_true(lambda: self.deployment.exec(by_id, cmd="true").status == 401)
        self.assertTrue(self.works(grant))
        self.assertEqual(self.ask("DELETE", self.path(grant)).status, 204)
        self.await_true(lambda: self.deployment.exec(grant, cmd="true").status in (404, 410))

    def test_a_short_one_ends_when_it_was_asked_to(self):
        grant = self.deployment.negotiate("short")
        short = self.ask("POST", self.path(grant, "/token"), {"expires_at": self.at(2)}).json
        self.assertTrue(self.works(short))
        self.await_true(lambda: self.deployment.exec(short, cmd="true").status == 401)
        self.assertEqual(self.ask("POST", self.path(grant, "/token"), {"expires_at": self.at(-3)}).status, 400)

    def test_a_short_ttl_of_policy_bounds_them(self):
        """Whoever wrote it wanted no token of an agent to live longer; it may be older than long tokens."""
        self.addCleanup(self.deployment.request, "PUT", "/policy", {"roles": {}}, headers={"If-Match": "*"})
        key = self.ask("POST", "/keys", {"principal": "ann", "role": "user", "actor": "agent:a"}).json["api_key"]
        mine = self.deployment.request("POST", "/threads/agents/sandbox", {}, token=key).json

        def lives(policy, token=None):
            set_ = self.deployment.request("PUT", "/policy", {"roles": policy}, headers={"If-Match": "*"})
            self.assertEqual(set_.status, 200, set_)
            path, body = f"/sandboxes/{mine['sandbox']['id']}/token", {"long": True}
            if token:
                path, body = "/threads/agents/sandbox/refresh", {"current_token": token}
            reply = self.deployment.request("POST", path, body, token=key)
            self.assertIn(reply.status, (200, 201), reply)
            return reply.json

        week, minutes = self.at(6 * 86400), self.at(700)
        agent = {"ttl_max": 600}
        first = lives({})
        self.assertGreater(first["expires_at"], week)
        self.assertLess(lives({"user:agent": agent})["expires_at"], minutes)
        self.assertLess(lives({"user:agent": agent, "user": {"long": True}})["expires_at"], minutes)
        self.assertLess(lives({"user:agent": agent}, first["token"])["expires_at"], minutes)  # nor by a refresh
        self.assertGreater(lives({"user:agent": {**agent, "long": True}})["expires_at"], week)
        self.assertGreater(lives({"user": {"ttl_max": 600}, "user:agent": {"long": True}})["expires_at"], week)

    def test_the_network_is_given_by_name_alone(self):
        grant = self.deployment.negotiate("scoped")
        self.assertNotIn("network", grant["scopes"])
        self.assertEqual(self.ask("POST", self.path(grant, "/token"), {"scopes": ["network"]}).json["scopes"], ["network"])


@needs_root
class Bounds(Endless):
    environment = {"PARLEY_MAX_LIFETIME": "3600"}

    def test_an_operator_who_sets_one_is_heeded(self):
        for body in ({"max_lifetime": None}, {"max_lifetime": 3601}):
            reply = self.ask("POST", "/threads/bounded/sandbox", body)
            self.assertEqual((reply.status, reply.code), (400, "INVALID_REQUEST"))
            self.assertIn("3600", reply.json["error"]["message"])
        grant = self.deployment.negotiate("bounded", max_lifetime=3600, idle_timeout=None)
        reply = self.ask("POST", self.path(grant, "/renew"), {"expires_at": self.at(4000)})
        self.assertEqual((reply.status, reply.code), (403, "FORBIDDEN"))
        self.assertEqual(self.ask("POST", self.path(grant, "/renew"), {"expires_at": self.at(3500)}).status, 200)


if __name__ == "__main__":
    unittest.main()
