"""Webhooks: what happens is sent, signed, in order and at least once, also when the receiver or the negotiator was away;
a slow receiver delays nobody else; a user's webhook reaches no address that is not public."""
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.receiver import Receiver, signed_by  # noqa: E402


def ids(bodies):
    return [body["data"]["id"] for body in bodies]


@needs_root
class Webhooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.listed = Receiver()
        cls.addClassCleanup(cls.listed.close)
        cls.deployment = Deployment(PARLEY_WEBHOOK_HOSTS=f"127.0.0.1:{cls.listed.port}", PARLEY_WEBHOOK_GIVE_UP="4")
        cls.addClassCleanup(cls.deployment.close)
        made = cls.deployment.request("POST", "/keys", {"principal": "ada", "role": "user"})
        cls.ada = made.json["api_key"]

    def make(self, url, token="", status=201, **more):
        made = self.deployment.request("POST", "/webhooks", {"url": url, **more}, token=token)
        self.assertEqual(made.status, status, made)
        if status == 201:
            self.addCleanup(self.deployment.request, "DELETE", "/webhooks/" + made.json["id"], token=token)
        return made.json

    def attach(self, thread, times=1):
        for _ in range(times):
            self.deployment.negotiate(thread)

    def look(self, webhook, enough, seconds=30):
        """GET of a webhook, as soon as enough(it)."""
        until = time.monotonic() + seconds
        while True:
            now = self.deployment.request("GET", "/webhooks/" + webhook["id"]).json
            if enough(now):
                return now
            self.assertLess(time.monotonic(), until, now)
            time.sleep(0.1)

    def test_events_are_sent_signed_and_in_order(self):
        with Receiver() as receiver:
            webhook = self.make(receiver.url, types=["sandbox.created", "token.*"])
            self.attach("signed", 4)
            bodies = receiver.wait(lambda bodies: len(bodies) >= 4)
            self.assertEqual([b["type"] for b in bodies], ["sandbox.created"] + ["token.issued"] * 3)
            self.assertEqual(ids(bodies), sorted(set(ids(bodies))))
            self.assertEqual({b["data"]["thread_id"] for b in bodies}, {"signed"})
            for headers, body in receiver.got:
                self.assertEqual(signed_by(webhook["secret"], headers, body), 1)
                self.assertEqual(signed_by("whsec_" + "A" * 43 + "=", headers, body), 0)
            names = [headers["webhook-id"] for headers, _ in receiver.got]
            self.assertEqual(len(set(names)), len(names))
            shown = self.look(webhook, lambda now: now["cursor"] >= ids(bodies)[-1])
            self.assertNotIn("secret", shown)
            told = self.deployment.request("GET", f"/webhooks/{webhook['id']}/deliveries").json["deliveries"]
            self.assertEqual([t["event"] for t in told], ids(bodies))
            self.assertEqual({(t["status"], t["delivered"]) for t in told}, {(200, True)})

    def test_a_rotated_secret_signs_beside_the_old_one_for_a_while(self):
        with Receiver() as receiver:
            webhook = self.make(receiver.url, types=["token.issued"])
            fresh = self.deployment.request("POST", f"/webhooks/{webhook['id']}/rotate", {})
            self.assertEqual(fresh.headers["cache-control"], "no-store")
            self.attach("rotated", 2)
            receiver.wait(lambda bodies: len(bodies) >= 1)
            headers, body = receiver.got[0]
            self.assertEqual([signed_by(s, headers, body) for s in (webhook["secret"], fresh.json["secret"])], [1, 1])
            last = self.deployment.request("POST", f"/webhooks/{webhook['id']}/rotate", {"grace": 0}).json["secret"]
            before = len(receiver.got)
            self.attach("rotated")
            receiver.wait(lambda bodies: len(bodies) > before)
            headers, body = receiver.got[-1]
            self.assertEqual([signed_by(s, headers, body) for s in (fresh.json["secret"], last)], [0, 1])

    def test_what_fails_is_tried_again_and_nothing_overtakes_it(self):
        def answer(body, number):
            return (503, {"Retry-After": "1"}) if number == 1 else 302 if number == 2 else 204
        with Receiver(answer) as receiver:
            webhook = self.make(receiver.url, types=["token.issued"])
            self.attach("tried", 3)
            bodies = receiver.wait(lambda bodies: len(bodies) >= 4)
            self.assertEqual(len(set(ids(bodies[:3]))), 1)
            self.assertEqual(len({headers["webhook-id"] for headers, _ in receiver.got[:3]}), 1)
            self.assertGreater(ids(bodies)[3], ids(bodies)[2])
            told = self.deployment.request("GET", f"/webhooks/{webhook['id']}/deliveries").json["deliveries"]
            self.assertEqual([t.get("status") for t in told[:3]], [503, 302, 204])

    def test_nothing_is_lost_when_the_negotiator_is_killed(self):
        gate = threading.Event()
        with Receiver(lambda body, number: 200 if gate.is_set() else 500) as receiver:
            webhook = self.make(receiver.url, types=["token.issued", "sandbox.created"])
            begin = self.deployment.request("GET", "/audit/head").json["seq"]
            self.attach("killed", 3)
            receiver.wait(lambda bodies: len(bodies) >= 1)
            self.deployment.kill("parley-negotiator")
            gate.set()
            self.deployment.wait_ready()
            self.deployment.request("PATCH", "/webhooks/" + webhook["id"], {"enabled": True})
            self.attach("killed", 3)
            wanted = [r["seq"] for r in self.deployment.request(
                "GET", f"/audit?after={begin}&thread=killed&action=negotiate").json["records"]]
            self.assertEqual(len(wanted), 6)
            receiver.wait(lambda bodies: set(wanted) <= set(ids(bodies)))
            first = list(dict.fromkeys(ids(receiver.bodies())))
            self.assertEqual([i for i in first if i in wanted], wanted)

    def test_a_slow_receiver_delays_no_other(self):
        hangs = threading.Event()
        with Receiver(lambda body, number: hangs.wait(60) and 200) as slow, Receiver() as quick:
            self.make(slow.url, types=["token.issued"])
            self.make(quick.url, types=["token.issued"])
            self.attach("slow", 4)
            slow.wait(lambda bodies: len(bodies) == 1)
            quick.wait(lambda bodies: len(bodies) >= 3)
            self.assertEqual(len(slow.got), 1)
            hangs.set()

    def test_ones_tests_leave_others_room(self):
        hangs = threading.Event()
        bob = self.deployment.request("POST", "/keys", {"principal": "bob", "role": "user"}).json["api_key"]
        with Receiver(lambda body, number: hangs.wait(60) and 200) as slow, Receiver() as quick:
            self.addCleanup(hangs.set)
            test = "/webhooks/" + self.make(slow.url, types=["volume.*"])["id"] + "/test"
            threads = [threading.Thread(target=self.deployment.request, args=("POST", test)) for _ in range(16)]
            for thread in threads:
                thread.start()
            slow.wait(lambda bodies: len(bodies) >= 4)
            made = self.deployment.request("POST", "/webhooks?principal=bob", {"url": quick.url, "types": ["volume.*"]})
            other = made.json["id"]
            self.addCleanup(self.deployment.request, "DELETE", "/webhooks/" + other)
            self.assertEqual(self.deployment.request("POST", f"/webhooks/{other}/test", token=bob).json["delivered"], True)
            self.assertEqual(len(slow.got), 4)
            hangs.set()
            for thread in threads:
                thread.join()

    def test_one_that_fails_for_too_long_is_disabled_and_says_so(self):
        with Receiver(500) as receiver, Receiver() as other:
            watcher = self.make(other.url, types=["webhook.disabled"])
            webhook = self.make(receiver.url, types=["token.issued"])
            self.attach("disabled", 2)
            now = self.look(webhook, lambda now: not now["enabled"])
            self.assertIn("failed for too long", now["reason"])
            self.assertIn(webhook["id"], other.wait(lambda bodies: bodies)[0]["data"]["detail"])
            self.assertTrue(watcher["enabled"])
            receiver.answer = 200
            before = len(receiver.got)
            self.deployment.request("PATCH", "/webhooks/" + webhook["id"], {"enabled": True})
            receiver.wait(lambda bodies: len(bodies) > before)
            self.look(webhook, lambda now: now["enabled"] and now["attempts"] == 0)

    def test_one_whose_receiver_is_gone_is_disabled_at_once(self):
        with Receiver(410) as receiver:
            webhook = self.make(receiver.url, types=["token.issued"])
            self.attach("gone", 2)
            now = self.look(webhook, lambda now: not now["enabled"])
            self.assertIn("410", now["reason"])

    def test_a_users_webhook_reaches_no_private_address(self):
        with Receiver() as inside:
            self.make(inside.url, token=self.ada, status=400)
            # The attack that counts: a name that is fine to look at, and leads here.
            for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "2130706433"):
                webhook = self.make(f"https://{host}:{inside.port}/", token=self.ada)
                told = self.deployment.request("POST", f"/webhooks/{webhook['id']}/test", token=self.ada).json
                self.assertEqual((told["delivered"], told["error"]), (False, "the address is not a public one"), host)
            self.assertEqual(inside.got, [])
            # An admin's reaches it: it is there.
            webhook = self.make(inside.url)
            self.assertTrue(self.deployment.request("POST", f"/webhooks/{webhook['id']}/test").json["delivered"])
            self.assertEqual(inside.bodies()[0]["type"], "webhook.test")
            # What an admin listed, a user may too, and it gets only his own.
            mine = self.make(self.listed.url, token=self.ada, types=["sandbox.created", "request.refused"])
            self.attach("not-hers")
            self.assertEqual(self.deployment.request("POST", "/threads/hers/sandbox", {}, token=self.ada).status, 201)
            bodies = []

            def has_come(_):  # what others' webhooks are sent comes there too
                bodies[:] = [json.loads(body) for headers, body in self.listed.got
                             if signed_by(mine["secret"], headers, body)]
                return any(b["type"] == "sandbox.created" for b in bodies)

            self.listed.wait(has_come)
            self.assertEqual({b["data"]["principal"] for b in bodies}, {"ada"})
            # Nobody takes over what an admin set: another URL is the user's again.
            self.assertEqual(self.deployment.request("PATCH", "/webhooks/" + mine["id"], {"url": inside.url},
                                                     token=self.ada).status, 400)

    def test_no_redirect_is_followed_and_no_long_answer_is_read(self):
        with Receiver() as inside, Receiver(lambda body, number: (302, {"Location": inside.url})) as receiver:
            webhook = self.make(receiver.url)
            told = self.deployment.request("POST", f"/webhooks/{webhook['id']}/test").json
            self.assertEqual((told["delivered"], told["status"]), (False, 302))
            self.assertEqual(inside.got, [])

    def test_others_webhooks_are_not_there(self):
        webhook = self.make(self.listed.url)
        for method, path, body in (("GET", "", None), ("PATCH", "", {"enabled": False}), ("DELETE", "", None),
                                   ("POST", "/rotate", {}), ("POST", "/test", None), ("GET", "/deliveries", None)):
            self.assertEqual(self.deployment.request(method, f"/webhooks/{webhook['id']}{path}", body,
                                                     token=self.ada).status, 404, (method, path))
        mine = self.make(self.listed.url, token=self.ada)
        shown = self.deployment.request("GET", "/webhooks", token=self.ada).json["webhooks"]
        self.assertIn(mine["id"], [w["id"] for w in shown])
        self.assertEqual({w["principal"] for w in shown}, {"ada"})
        everybody = self.deployment.request("GET", "/webhooks?all=1").json["webhooks"]
        self.assertLessEqual({"ada", "admin"}, {w["principal"] for w in everybody})
        self.assertEqual(self.deployment.request("GET", "/webhooks?all=1", token=self.ada).status, 403)
        self.assertEqual(self.deployment.request("POST", "/webhooks", {"url": self.listed.url, "all": True},
                                                 token=self.ada).status, 403)

    def test_who_loses_his_key_is_sent_nothing_more(self):
        made = self.deployment.request("POST", "/keys", {"principal": "eve", "role": "admin"}).json
        with Receiver() as receiver:
            webhook = self.make(receiver.url, token=made["api_key"], all=True, types=["token.issued"])
            self.attach("eve", 2)
            receiver.wait(lambda bodies: len(bodies) >= 1)
            self.assertEqual(self.deployment.request("PATCH", "/keys/" + made["key"]["id"], {"role": "user"}).status, 200)
            before = len(receiver.got)
            self.attach("eve", 2)
            self.assertIn("may not", self.look(webhook, lambda now: not now["enabled"])["reason"])
            self.assertEqual(len(receiver.got), before)

    def test_who_is_no_admin_any_more_reaches_what_a_user_may(self):
        made = self.deployment.request("POST", "/keys", {"principal": "mel", "role": "admin"}).json
        with Receiver() as receiver:
            webhook = self.make(receiver.url, token=made["api_key"], types=["sandbox.created"])
            self.deployment.request("POST", "/threads/mel-1/sandbox", {}, token=made["api_key"])
            receiver.wait(lambda bodies: len(bodies) >= 1)
            self.assertEqual(self.deployment.request("PATCH", "/keys/" + made["key"]["id"], {"role": "user"}).status, 200)
            before = len(receiver.got)
            self.deployment.request("POST", "/threads/mel-2/sandbox", {}, token=made["api_key"])
            self.look(webhook, lambda now: "failing_since" in now)
            self.assertEqual(len(receiver.got), before)
        self.deployment.request("DELETE", f"/webhooks/{webhook['id']}")

    def test_a_lesser_key_of_its_owner_cannot_send_everybodys_events_elsewhere(self):
        webhook = self.make(self.listed.url, all=True)
        lesser = self.deployment.request("POST", "/keys", {"principal": webhook["principal"], "role": "user"}).json
        for method, path, body in (("PATCH", "", {"url": "https://example.org/"}), ("POST", "/rotate", {}),
                                   ("PATCH", "", {"enabled": False}), ("DELETE", "", None)):
            self.assertEqual(self.deployment.request(method, f"/webhooks/{webhook['id']}{path}", body,
                                                     token=lesser["api_key"]).status, 403, (method, path))
        self.assertEqual(self.deployment.request("GET", f"/webhooks/{webhook['id']}").json["url"], self.listed.url)
        self.deployment.request("DELETE", f"/keys/{lesser['key']['id']}")

    def test_wrong_questions_are_refused(self):
        for body in ({}, {"url": 7}, {"url": "ftp://example.com/"}, {"url": "example.com"}, {"url": "http://example.com"},
                     {"url": "https://u:p@example.com/"}, {"url": "https://example.com/#f"},
                     {"url": "https://example.com/\n"}, {"url": "https://example.com/" + "a" * 2048},
                     {"url": "https://example.com", "types": "exec.*"}, {"url": "https://example.com", "types": ["a,b"]},
                     {"url": "https://example.com", "types": ["A"]}, {"url": "https://example.com", "secret": "x"},
                     {"url": "https://example.com", "all": 1}):
            self.assertEqual(self.deployment.request("POST", "/webhooks", body, token=self.ada).status, 400, body)
        self.assertEqual(self.deployment.request("GET", "/webhooks/whk_nope").status, 404)

    def test_there_are_so_many_and_no_more(self):
        for _ in range(20):
            made = self.deployment.request("POST", "/webhooks?principal=busy", {"url": "https://example.com/"})
            if made.status != 201:
                break
            self.addCleanup(self.deployment.request, "DELETE", "/webhooks/" + made.json["id"])
        self.assertEqual((made.status, made.code), (429, "QUOTA_EXCEEDED"))

    def test_parley_webhooks(self):
        kept = os.path.join(self.deployment.folder, "secret")
        done = self.deployment.cli("webhooks", "add", self.listed.url, "--type", "volume.*,node.*", "--secret-file", kept)
        self.assertEqual(done.returncode, 0, done.stderr)
        name = done.stdout.strip()
        with open(kept) as file:
            secret = file.read()
        self.assertNotIn(secret, done.stdout + done.stderr)
        self.assertEqual(os.stat(kept).st_mode & 0o777, 0o600)
        self.assertEqual(self.deployment.cli("webhooks", "test", name).stdout, "delivered\n")
        headers, body = next((h, b) for h, b in reversed(self.listed.got) if "webhook.test" in b)
        self.assertEqual(signed_by(secret, headers, body), 1)
        self.assertIn(name, self.deployment.cli("webhooks").stdout)
        self.assertEqual(self.deployment.cli("webhooks", "disable", name).returncode, 0)
        self.assertIn("disabled", self.deployment.cli("webhooks", "show", name).stdout)
        self.assertIn("whsec_", self.deployment.cli("webhooks", "rotate", name, "--grace", "0").stdout)
        self.assertEqual(self.deployment.cli("webhooks", "rm", name).returncode, 0)
        self.assertEqual(self.deployment.cli("webhooks", "show", name).returncode, 1)
        self.assertEqual(self.deployment.cli("webhooks", "add").returncode, 2)


@needs_root
class Names(unittest.TestCase):
    """A receiver whose servers of names do not answer: the machine asks one of this test, in a mount namespace."""

    def test_a_name_that_nobody_resolves_delays_no_other(self):
        with tempfile.TemporaryDirectory() as folder:
            deaf = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}.53"
            with open(os.path.join(folder, "resolv.conf"), "w") as file:
                file.write(f"nameserver {deaf}\n")
            done = subprocess.run(
                ["unshare", "-m", "sh", "-c", 'mount --bind "$1" /etc/resolv.conf && exec "$2" "$3" Deaf', "sh", file.name,
                 sys.executable, os.path.realpath(__file__)], env={**os.environ, "PARLEY_TEST_DEAF": deaf},
                capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


@unittest.skipUnless("PARLEY_TEST_DEAF" in os.environ, "run by Names")
class Deaf(unittest.TestCase):
    def test(self):
        asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(asked.close)
        asked.bind((os.environ["PARLEY_TEST_DEAF"], 53))
        asked.settimeout(60)
        with Receiver() as receiver, Deployment(RES_OPTIONS="timeout:30 attempts:5") as deployment:
            hook = "/webhooks/" + deployment.request("POST", "/webhooks", {"url": "https://deaf.example/"}).json["id"]
            deployment.request("POST", "/webhooks", {"url": receiver.url, "types": ["sandbox.created"]})
            deployment.negotiate("deaf")
            self.assertIn(b"deaf", asked.recv(512))
            until = time.monotonic() + 60
            while deployment.request("GET", hook).json["attempts"] == 0:
                self.assertLess(time.monotonic(), until, "whoever delivers waits for the name")
                time.sleep(0.2)
            receiver.wait(lambda bodies: len(bodies) == 1)


if __name__ == "__main__":
    unittest.main()
