"""Events: what happens is told as it happens, once each and in order, also over a lost connection and a killed
negotiator; to the ones it is about and to admins who ask for all, and to nobody whose key is not good."""
import http.client
import json
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.sse import Events  # noqa: E402


@needs_root
class EventsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        made = cls.deployment.request("POST", "/keys", {"principal": "ada", "role": "user"})
        cls.ada = made.json["api_key"] if made.status == 201 else None

    def head(self):
        return self.deployment.request("GET", "/audit/head").json["seq"]

    def read(self, query, key=None, headers=None):
        """All events up to the newest."""
        with Events(self.deployment, "/events?follow=0&" + query, key=key, headers=headers) as events:
            self.assertEqual(events.status, 200)
            return list(events)

    def test_a_life_is_followed_as_it_happens(self):
        with Events(self.deployment, "/events?thread=life") as events:
            self.assertEqual(events.reply.getheader("Content-Type"), "text/event-stream")
            number, name, data = next(iter(events))
            self.assertEqual((name, data["after"]), ("ready", number))
            grant = self.deployment.negotiate("life")
            sandbox = grant["sandbox"]["id"]
            (at, name, data), = events.until(lambda name, data: True)
            self.assertEqual((name, data["sandbox_id"], data["jti"], data["id"]),
                             ("sandbox.created", sandbox, grant["jti"], at))
            self.deployment.shell(grant, "true")
            seen = events.until(lambda name, data: name == "exec.ended")
            self.assertEqual([s[1] for s in seen], ["exec.started", "exec.ended"])
            self.assertEqual(self.deployment.request("DELETE", "/threads/life/sandbox").status, 204)
            seen = events.until(lambda name, data: name == "lease.ended")
            self.assertNotIn("hash", seen[-1][2])
        with Events(self.deployment, f"/events?after={at}&sandbox={sandbox}") as events:
            seen = [s[1] for s in events.until(lambda name, data: name == "sandbox.ended" or name == "lease.ended")]
            self.assertEqual(seen[:3], ["ready", "exec.started", "exec.ended"])

    def test_resumed_by_id_nothing_is_lost_or_doubled_also_over_a_kill(self):
        begin = self.head()
        numbers = []
        with Events(self.deployment, f"/events?after={begin}&types=token.*,sandbox.created&thread=again") as events:
            self.deployment.negotiate("again")
            numbers.append(events.until(lambda name, data: name == "sandbox.created")[-1][0])
            for _ in range(3):
                self.deployment.negotiate("again")
            numbers.append(events.until(lambda name, data: name == "token.issued")[-1][0])
        self.deployment.kill("parley-negotiator")
        self.deployment.wait_ready()
        self.deployment.negotiate("again")
        with Events(self.deployment, "/events?types=token.*,sandbox.created&thread=again",
                    headers={"Last-Event-ID": str(numbers[-1])}) as events:
            stream = iter(events)
            while len(numbers) < 5:
                number, name, _ = next(stream)
                if name != "ready":
                    numbers.append(number)
        audit = self.deployment.request("GET", f"/audit?after={begin}&thread=again&action=negotiate").json["records"]
        self.assertEqual(numbers, [r["seq"] for r in audit])

    def test_of_many_events_each_comes_once_in_order(self):
        begin = self.head()
        grant = self.deployment.negotiate("many")
        for _ in range(120):  # more than one reading takes
            self.deployment.request("POST", "/threads/many/sandbox", {}, record=False)
        seen = self.read(f"after={begin}&thread=many")
        self.assertEqual([s[1] for s in seen], ["ready", "sandbox.created"] + ["token.issued"] * 120)
        self.assertEqual([s[0] for s in seen[1:]], sorted({s[0] for s in seen[1:]}))
        self.assertEqual({s[2]["sandbox_id"] for s in seen[1:]}, {grant["sandbox"]["id"]})
        self.assertEqual(len(self.read(f"after={begin}&thread=many&types=sandbox.*")), 2)
        self.assertEqual(self.read(f"after={begin}&thread=other")[0][1], "ready")

    def test_an_id_that_is_not_there_is_a_stated_gap(self):
        seen = self.read(f"after={self.head() + 1000}")
        self.assertEqual([s[1] for s in seen][:2], ["ready", "events.gap"])
        self.assertEqual(seen[1][2]["reason"], "restored")

    def test_wrong_questions_are_refused(self):
        for query in ("types=", "types=Exec", "types=a,,b", "types=" + ",".join("abcdefghijklmnopq"), "after=-1", "after=x",
                      "thread=..", "sandbox=nope", "since=yesterday", "follow=2", "all=2", "typ=exec.*"):
            self.assertEqual(self.deployment.request("GET", "/events?" + query).status, 400, query)
        self.assertEqual(self.deployment.request("GET", "/events", headers={"Last-Event-ID": "1 2"}).status, 400)
        self.assertEqual(self.deployment.request("GET", "/events", token="pk_" + "A" * 43).status, 401)
        self.assertEqual(self.deployment.request("GET", "/events?principal=nobody&follow=0").status, 200)

    def test_streams_of_one_principal_are_bounded(self):
        streams = []
        try:
            for _ in range(33):  # those of other tests may not have been missed yet
                streams.append(Events(self.deployment))
            statuses = [stream.status for stream in streams]
            self.assertEqual((statuses[0], statuses[-1], set(statuses)), (200, 429, {200, 429}))
        finally:
            for stream in streams:
                stream.close()
        until = time.monotonic() + 30
        while True:  # whoever left frees his place
            with Events(self.deployment, "/events?follow=0") as again:
                if again.status == 200 or time.monotonic() > until:
                    break
        self.assertEqual(again.status, 200)

    def test_only_ones_own_unless_an_admin_asks_for_all(self):
        if self.ada is None:
            self.skipTest("no POST /keys yet")
        begin = self.head()
        self.deployment.negotiate("secret-thread")
        mine = self.deployment.request("POST", "/threads/hers/sandbox", {}, token=self.ada)
        self.assertEqual(mine.status, 201, mine)
        self.assertEqual({s[2]["principal"] for s in self.read(f"after={begin}", key=self.ada)[1:]}, {"ada"})
        self.assertEqual({s[2]["principal"] for s in self.read(f"after={begin}")[1:]}, {"admin"})
        everybody = {s[2].get("principal") for s in self.read(f"after={begin}&all=1")[1:]}
        self.assertLessEqual({"ada", "admin"}, everybody)
        for query, status in (("all=1", 403), ("principal=admin", 404)):
            self.assertEqual(self.deployment.request("GET", "/events?" + query, token=self.ada).status, status, query)

    def test_a_deleted_keys_stream_ends(self):
        made = self.deployment.request("POST", "/keys", {"principal": "eve", "role": "viewer"})
        if made.status != 201:
            self.skipTest("no POST /keys yet")
        with Events(self.deployment, key=made.json["api_key"]) as events:
            next(iter(events))
            self.assertEqual(self.deployment.request("DELETE", "/keys/" + made.json["key"]["id"]).status, 204)
            try:
                events.until(lambda name, data: name == "error")
            except http.client.IncompleteRead:
                pass  # broken off is as good

    def test_parley_events(self):
        grant = self.deployment.negotiate("told")
        done = self.deployment.cli("events", "--thread", "told", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(e["type"], e["sandbox_id"]) for e in told], [("sandbox.created", grant["sandbox"]["id"])])
        self.assertIn("sandbox.created", self.deployment.cli("events", "--type", "sandbox.*", "--since", "15m").stdout)
        wrong = self.deployment.cli("events", "--type", "Exec")
        self.assertEqual((wrong.returncode, wrong.stdout), (1, ""), wrong.stderr)
        after = str(told[0]["id"] - 1)
        following = subprocess.Popen([os.path.join(BIN, "parley"), "events", "-f", "--thread", "told", "--json", "--after", after],
                                     env=self.deployment.environment, stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(json.loads(following.stdout.readline())["type"], "sandbox.created")
            self.deployment.kill("parley-negotiator")
            self.deployment.wait_ready()
            self.deployment.negotiate("told")
            self.assertEqual(json.loads(following.stdout.readline())["type"], "token.issued")
        finally:
            following.terminate()
            following.communicate()


if __name__ == "__main__":
    unittest.main()
