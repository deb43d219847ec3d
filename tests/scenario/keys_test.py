"""API keys: role, end, limits, pinned actor, last use, rotation, and what deleting one takes with it; login tokens in their
place. Refusals included."""
import base64
import json
import os
import stat
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import b64, compact  # noqa: E402

UNKNOWN = "pk_" + "A" * 43


def claims_of(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@needs_root
class Keys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_AUTH_FAILURES_PER_MINUTE="0")
        cls.addClassCleanup(cls.deployment.close)

    def ask(self, method, path, body=None, token="", **more):
        return self.deployment.request(method, path, body, token=token, **more)

    def add(self, principal, **body):
        reply = self.ask("POST", "/keys", dict(body, principal=principal))
        self.assertEqual(reply.status, 201, reply)
        self.assertEqual(reply.headers["cache-control"], "no-store")
        return reply.json["key"], reply.json["api_key"]

    def negotiate(self, key, thread, expect=201, **body):
        reply = self.ask("POST", f"/threads/{thread}/sandbox", body, token=key)
        self.assertEqual(reply.status, expect, reply)
        return reply.json

    def use(self, grant, token=None):
        """The status of a use of that grant at its node."""
        return self.ask("GET", grant["endpoints"]["http"] + "/info", token=token or grant["token"]).status

    def wait_until(self, holds, seconds=30):
        until = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), until, self.deployment.logs())
            time.sleep(0.05)

    def works(self, key):
        return self.ask("GET", "/sandboxes", token=key).status == 200

    def test_a_key_is_its_principals_with_its_role(self):
        key, text = self.add("ada", note="first")
        self.assertEqual((key["principal"], key["role"], key["note"], key["last_used_at"]), ("ada", "user", "first", None))
        viewer, viewers = self.add("ada", role="viewer")
        self.assertTrue(self.works(text))
        self.assertEqual(self.negotiate(text, "roles")["sandbox"]["reused"], False)
        self.negotiate(viewers, "roles", 403)
        self.assertEqual(self.ask("GET", "/threads/roles/sandbox", token=viewers).status, 200)
        self.assertEqual(self.ask("DELETE", "/threads/roles/sandbox", token=text).status, 204)
        self.assertIsNotNone(self.ask("GET", f"/keys/{key['id']}").json["key"]["last_used_at"])
        # A text is in one answer and in no other.
        for path in ("/keys", f"/keys/{key['id']}", "/audit?all=1"):
            self.assertNotIn(text.encode(), self.ask("GET", path).body)

    def test_wrong_fields_are_refused_by_name(self):
        for body, word in (({}, "principal"), ({"principal": "a:b"}, "principal"), ({"principal": "a/b"}, "principal"),
                           ({"principal": 1}, "principal"), ({"role": "root"}, "role"), ({"role": None}, "role"),
                           ({"actor": "robot:x"}, "actor"), ({"actor": "human"}, "actor"), ({"actor": "agent:"}, "actor"),
                           ({"limits": {"sandboxes": 0}}, "sandboxes"), ({"limits": {"gpus": 1}}, "gpus"),
                           ({"limits": 3}, "limits"), ({"ttl": 0}, "ttl"), ({"ttl": "1"}, "ttl"), ({"ttl": 315360001}, "ttl"),
                           ({"expires_at": "tomorrow"}, "expires_at"), ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
                           ({"ttl": 60, "expires_at": "2099-01-01T00:00:00Z"}, "ttl"), ({"note": "x" * 257}, "note"),
                           ({"surprise": 1}, "surprise"), ({"api_key": UNKNOWN}, "api_key")):
            body = body if not body or "principal" in body else dict(body, principal="ada")
            reply = self.ask("POST", "/keys", body)
            self.assertEqual((reply.status, reply.code), (400, "INVALID_REQUEST"), (body, reply))
            self.assertIn(word, reply.json["error"]["message"])
        key, _ = self.add("ada")
        for body in ({}, {"principal": "eve"}, {"role": "x"}, {"id": "key_x"}):
            self.assertEqual(self.ask("PATCH", f"/keys/{key['id']}", body).status, 400, body)
        for body in ({"grace": -1}, {"grace": 86401}, {"grace": "1"}, {"now": True}):
            self.assertEqual(self.ask("POST", f"/keys/{key['id']}/rotate", body).status, 400, body)
        for query in ("limit=0", "limit=201", "cursor=x", "cursor=sbx_" + "a" * 20):
            self.assertEqual(self.ask("GET", "/keys?" + query).status, 400, query)
        for method in ("GET", "PATCH", "DELETE"):
            body = {"note": "x"} if method == "PATCH" else None
            for name in ("key_" + "a" * 20, "nonsense"):
                self.assertEqual(self.ask(method, f"/keys/{name}", body).status, 404)

    def test_lists_have_pages_and_show_what_is_ones_own(self):
        made = {self.add("pages")[0]["id"] for _ in range(5)}
        _, own = self.add("pages", role="viewer")
        seen, cursor, pages = [], "", 0
        while True:
            reply = self.ask("GET", "/keys?limit=2" + cursor, token=own).json
            self.assertLessEqual(len(reply["keys"]), 2)
            seen, pages = seen + [key["id"] for key in reply["keys"]], pages + 1
            if "next_cursor" not in reply:
                break
            cursor = "&cursor=" + reply["next_cursor"]
        self.assertEqual((len(seen), len(set(seen)), pages), (6, 6, 3))
        self.assertLess(made, set(seen))
        everybody = {key["principal"] for key in self.ask("GET", "/keys").json["keys"]}
        self.assertLessEqual({"admin", "pages"}, everybody)
        only = self.ask("GET", "/keys?principal=pages").json["keys"]
        self.assertEqual({key["id"] for key in only}, set(seen))
        self.assertEqual(self.ask("GET", "/keys?principal=admin", token=own).status, 404)

    def test_one_that_has_run_out_is_as_one_that_never_was(self):
        key, text = self.add("brief", ttl=2)
        self.assertTrue(self.works(text))
        login = self.ask("POST", "/auth/token", {"api_key": text}, token=None).json
        self.assertLessEqual(login["expires_at"], key["expires_at"])
        self.wait_until(lambda: not self.works(text))
        over, never = (self.ask("GET", "/sandboxes", token=each).json["error"] for each in (text, UNKNOWN))
        self.assertEqual(over["message"], never["message"])
        self.assertFalse(self.works(login["token"]))
        self.assertEqual(self.ask("POST", "/auth/token", {"api_key": text}, token=None).status, 401)
        self.assertEqual(self.ask("POST", f"/keys/{key['id']}/rotate").status, 409)
        self.assertEqual(self.ask("PATCH", f"/keys/{key['id']}", {"expires_at": None}).status, 200)
        self.assertTrue(self.works(text))

    def test_a_rotated_one_has_its_grace_and_no_more(self):
        key, first = self.add("turn")
        reply = self.ask("POST", f"/keys/{key['id']}/rotate", token=first)
        self.assertEqual((reply.status, reply.headers["cache-control"]), (200, "no-store"), reply)
        second = reply.json["api_key"]
        self.assertFalse(self.works(first))
        self.assertTrue(self.works(second))
        login = self.ask("POST", "/auth/token", {"api_key": second}, token=None).json["token"]
        reply = self.ask("POST", f"/keys/{key['id']}/rotate", {"grace": 3}, token=second)
        third, until = reply.json["api_key"], reply.json["key"]["old_until"]
        self.assertIsNotNone(until)
        self.assertTrue(self.works(second) and self.works(third) and self.works(login))
        # What is made of the old text in its grace ends with it, and changes of the key are those of both.
        late = self.ask("POST", "/auth/token", {"api_key": second}, token=None).json
        self.assertLessEqual(late["expires_at"], until)
        self.wait_until(lambda: not self.works(second))
        self.assertFalse(self.works(login) or self.works(late["token"]))
        self.assertTrue(self.works(third))
        self.assertIsNone(self.ask("GET", f"/keys/{key['id']}").json["key"]["old_until"])
        self.assertEqual(self.ask("GET", f"/keys/{key['id']}").json["key"]["id"], key["id"])

    def test_neither_a_login_token_nor_an_old_text_becomes_a_new_key(self):
        key, first = self.add("brief")
        other, _ = self.add("brief")
        login = self.ask("POST", "/auth/token", {"api_key": first}, token=None).json["token"]
        for each in (key, other):
            self.assertEqual(self.ask("POST", f"/keys/{each['id']}/rotate", token=login).status, 403)
        self.assertTrue(self.works(first))
        second = self.ask("POST", f"/keys/{key['id']}/rotate", {"grace": 600}, token=first).json["api_key"]
        self.assertEqual(self.ask("POST", f"/keys/{key['id']}/rotate", token=first).status, 403)
        self.assertTrue(self.works(first) and self.works(second))

    def test_what_is_granted_ends_with_a_key_that_runs_out(self):
        key, text = self.add("passing", ttl=60)
        grant = self.negotiate(text, "passing", ttl=600)
        self.assertLessEqual(grant["expires_at"], key["expires_at"])
        scopes = {"scopes": ["fs:ro"], "ttl": 600}
        for more in ({}, {"principal": "ada"}):
            share = self.ask("POST", "/threads/passing/sandbox/share", dict(scopes, **more), token=text)
            self.assertEqual(share.status, 201, share)
            self.assertLessEqual(share.json["expires_at"], key["expires_at"])
        for share in self.ask("GET", "/threads/passing/sandbox/shares", token=text).json["shares"]:
            self.assertLessEqual(share["until"], key["expires_at"])

    def test_a_users_key_gets_no_more_rights_by_rotating_another(self):
        strong, _ = self.add("ladder")
        boss, _ = self.add("ladder", role="admin")
        pinned, pinned_text = self.add("ladder", actor="agent:ci")
        limited, limited_text = self.add("ladder", limits={"sandboxes": 1})
        brief, brief_text = self.add("ladder", ttl=600)
        _, plain = self.add("ladder")
        _, other = self.add("stranger")
        for text, own in ((pinned_text, pinned), (limited_text, limited), (brief_text, brief)):
            for verb, path in (("POST", f"/keys/{strong['id']}/rotate"), ("DELETE", f"/keys/{strong['id']}")):
                self.assertEqual(self.ask(verb, path, token=text).status, 403, own)
        self.assertEqual(self.ask("POST", f"/keys/{boss['id']}/rotate", token=plain).status, 403)
        self.assertEqual(self.ask("POST", f"/keys/{pinned['id']}/rotate", token=plain).status, 200)
        self.assertEqual(self.ask("POST", f"/keys/{limited['id']}/rotate", token=limited_text).status, 200)
        for verb, path in (("POST", f"/keys/{strong['id']}/rotate"), ("DELETE", f"/keys/{strong['id']}"),
                           ("GET", f"/keys/{strong['id']}")):
            self.assertEqual(self.ask(verb, path, token=other).status, 404)
        self.assertEqual(self.ask("PATCH", f"/keys/{strong['id']}", {"role": "admin"}, token=plain).status, 403)
        self.assertEqual(self.ask("POST", "/keys", {"principal": "ladder"}, token=plain).status, 403)

    def test_a_pinned_actor_is_who_acts(self):
        key, text = self.add("robot", actor="agent:ci")
        grant = self.negotiate(text, "pinned")
        self.assertEqual(claims_of(grant["token"])["act"], "agent:ci")
        self.negotiate(text, "pinned", 200, actor={"type": "agent", "id": "ci"})
        for actor in ({"type": "agent", "id": "other"}, {"type": "human"}, {"type": "human", "id": "ada"}):
            reply = self.ask("POST", "/threads/pinned/sandbox", {"actor": actor}, token=text)
            self.assertEqual((reply.status, reply.code), (403, "FORBIDDEN"), reply)
            self.assertIn("agent:ci", reply.json["error"]["message"])
        # Nor does it give itself another one by sharing.
        for actor, status in (({"type": "human", "id": "ada"}, 403), ({"type": "human"}, 201), ({"type": "agent", "id": "ci"}, 201)):
            reply = self.ask("POST", "/threads/pinned/sandbox/share", {"scopes": ["fs:ro"], "actor": actor}, token=text)
            self.assertEqual(reply.status, status, reply)
        # Nor does it take over what another actor of the same principal holds.
        _, human = self.add("robot")
        held = self.negotiate(human, "by-hand", actor={"type": "human", "id": "ada"})
        reply = self.ask("POST", "/threads/by-hand/sandbox/refresh", {"current_token": held["token"]}, token=text)
        self.assertEqual(reply.status, 403, reply)
        # But what was shared with it without knowing of the pin becomes the pinned one's.
        shared = self.ask("POST", "/threads/lent/sandbox", {}).json
        shared = self.ask("POST", "/threads/lent/sandbox/share", {"principal": "robot", "scopes": ["shell:ro"]}).json
        reply = self.ask("POST", "/threads/lent/sandbox/refresh", {"current_token": shared["token"]}, token=text)
        self.assertEqual((reply.status, claims_of(reply.json["token"])["act"]), (200, "agent:ci"), reply)
        self.assertEqual(self.ask("PATCH", f"/keys/{key['id']}", {"actor": None}).json["key"]["actor"], None)
        self.negotiate(text, "pinned", 200, actor={"type": "human"})
        records = self.ask("GET", "/audit?all=1&thread=pinned&action=negotiate").json["records"]
        self.assertEqual({r["actor"] for r in records if r["outcome"] == "ok"}, {"agent:ci", "human"})

    def test_its_limits_hold(self):
        key, text = self.add("tight", limits={"sandboxes": 1})
        _, free = self.add("tight")
        self.negotiate(text, "tight-1")
        reply = self.ask("POST", "/threads/tight-2/sandbox", {}, token=text)
        self.assertEqual((reply.status, reply.code), (429, "QUOTA_EXCEEDED"), reply)
        self.negotiate(free, "tight-2")
        self.assertEqual(self.ask("PATCH", f"/keys/{key['id']}", {"limits": {"sandboxes": 3}}).status, 200)
        self.negotiate(text, "tight-3")

    def test_deleting_one_ends_what_was_granted_under_it(self):
        key, text = self.add("gone")
        _, stays = self.add("gone")
        granted = self.negotiate(text, "g1")
        refreshed = self.ask("POST", "/threads/g1/sandbox/refresh", {"current_token": granted["token"]}, token=text).json
        kept = self.negotiate(stays, "g2")
        both = self.negotiate(stays, "g3")
        both = self.ask("POST", "/threads/g3/sandbox/refresh", {"current_token": both["token"]}, token=text).json
        shared = self.ask("POST", "/threads/g1/sandbox/share", {"scopes": ["shell:ro"]}, token=text)
        self.assertEqual(shared.status, 201, shared)
        login = self.ask("POST", "/auth/token", {"api_key": text}, token=None).json["token"]
        for grant in (refreshed, kept, both):
            self.assertEqual(self.use(grant), 200)
        self.assertEqual(self.use(refreshed, shared.json["token"]), 200)
        self.assertTrue(self.works(login))
        self.assertEqual(self.ask("DELETE", f"/keys/{key['id']}").status, 204)
        self.assertFalse(self.works(text) or self.works(login))
        self.assertEqual(self.ask("GET", f"/keys/{key['id']}").status, 404)
        self.wait_until(lambda: self.use(refreshed) == self.use(both) == self.use(refreshed, shared.json["token"]) == 401)
        self.assertEqual(self.use(kept), 200)
        reply = self.ask("POST", "/threads/g1/sandbox/refresh", {"current_token": refreshed["token"]}, token=stays)
        self.assertEqual((reply.status, reply.code), (401, "TOKEN_REVOKED"), reply)
        # The sandbox is its principal's: another key of it negotiates on.
        self.assertEqual(self.use(self.negotiate(stays, "g1", 200)), 200)

    def test_the_last_admin_stays(self):
        own = [key for key in self.ask("GET", "/keys?principal=admin").json["keys"] if key["role"] == "admin"]
        admins = [key for key in self.ask("GET", "/keys").json["keys"] if key["role"] == "admin" and not key["expires_at"]]
        for key in admins:
            if key["id"] != own[0]["id"]:
                self.assertEqual(self.ask("DELETE", f"/keys/{key['id']}").status, 204)
        path = f"/keys/{own[0]['id']}"
        self.add("second", role="admin", ttl=600)  # one that runs out is no way back
        for method, body in (("DELETE", None), ("PATCH", {"role": "user"}), ("PATCH", {"ttl": 60})):
            reply = self.ask(method, path, body)
            self.assertEqual((reply.status, reply.code), (409, "CONFLICT"), reply)
        third, text = self.add("third", role="admin")
        self.assertEqual(self.ask("PATCH", path, {"note": "the first"}).status, 200)
        self.assertEqual(self.ask("PATCH", path, {"role": "user"}, token=text).status, 200)
        self.assertEqual(self.ask("GET", "/nodes").status, 403)
        self.assertEqual(self.ask("PATCH", path, {"role": "admin"}, token=text).status, 200)
        self.assertEqual(self.ask("DELETE", f"/keys/{third['id']}").status, 204)

    def test_all_of_it_outlives_the_negotiator(self):
        key, text = self.add("lasting", actor="agent:x", limits={"sandboxes": 7, "memory_mb": 900}, note="n")
        gone, gone_text = self.add("lasting")
        login = self.ask("POST", "/auth/token", {"api_key": text}, token=None).json["token"]
        self.assertEqual(self.ask("DELETE", f"/keys/{gone['id']}").status, 204)
        rotated = self.ask("POST", f"/keys/{key['id']}/rotate", {"grace": 600}).json["api_key"]
        used = self.ask("GET", f"/keys/{key['id']}", token=rotated).json["key"]["last_used_at"]
        self.assertEqual(self.deployment.cli("down").returncode, 0)
        self.deployment.up()
        after = self.ask("GET", f"/keys/{key['id']}").json["key"]
        self.assertEqual((after["actor"], after["limits"], after["note"]),
                         ("agent:x", {"sandboxes": 7, "memory_mb": 900}, "n"))
        self.assertGreaterEqual(after["last_used_at"], used)
        self.assertTrue(self.works(text) and self.works(rotated) and self.works(login))
        self.assertFalse(self.works(gone_text))
        self.deployment.kill("parley-negotiator")
        self.deployment.wait_ready()
        self.assertTrue(self.works(rotated))
        self.assertFalse(self.works(gone_text))

    def test_the_command(self):
        cli = self.deployment.cli
        kept = self.deployment.folder + "/new.key"
        made = cli("keys", "add", "cli-user", "--actor", "agent:b", "--limit", "sandboxes=3", "--ttl", "90d", "--note",
                   "build", "--key-file", kept)
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(kept, encoding="ascii") as file:
            text = file.read()
        self.assertEqual(stat.S_IMODE(os.stat(kept).st_mode), 0o600)
        self.assertNotIn(text, made.stdout + made.stderr)
        self.assertTrue(self.works(text))
        rows = json.loads(cli("keys", "--principal", "cli-user", "--json").stdout)
        self.assertEqual([(r["actor"], r["limits"]) for r in rows], [("agent:b", {"sandboxes": 3})])
        name = rows[0]["id"]
        shown = cli("keys", "show", name)
        self.assertIn("sandboxes=3", shown.stdout)
        self.assertIn(name, cli("keys").stdout)
        done = cli("keys", "set", name, "--role", "viewer", "--actor", "", "--limit", "", "--ttl", "never")
        self.assertEqual(done.returncode, 0, done.stderr)
        after = self.ask("GET", f"/keys/{name}").json["key"]
        self.assertEqual((after["role"], after["actor"], after["limits"], after["expires_at"]), ("viewer", None, {}, None))
        turned = cli("keys", "rotate", name, "--grace", "1m")
        self.assertIn("api key (shown once): pk_", turned.stdout)
        self.assertTrue(self.works(turned.stdout.split("once): ")[1].strip()) and self.works(text))
        self.assertEqual(cli("keys", "rm", name).returncode, 0)
        self.assertFalse(self.works(text))
        for words in (("frob",), ("add",), ("set", name), ("rm",), ("ls", "--grace", "3"), ("add", "x", "--ttl", "soon"),
                      ("add", "x", "--limit", "sandboxes"), ("show", "a", "b")):
            self.assertEqual(cli("keys", *words).returncode, 2, words)
        self.assertEqual(cli("keys", "show", "key_" + "a" * 20).returncode, 1)

    # ---- login tokens ----

    def login(self, key):
        reply = self.ask("POST", "/auth/token", {"api_key": key}, token=None)
        self.assertEqual((reply.status, reply.headers["cache-control"]), (200, "no-store"), reply)
        self.assertEqual(reply.json["token_type"], "Bearer")
        return reply.json["token"]

    def test_a_login_token_stands_for_its_key(self):
        key, text = self.add("lg", actor="agent:lg")
        token = self.login(text)
        self.assertLessEqual(claims_of(token)["exp"] - claims_of(token)["iat"], 900)
        grant = self.negotiate(token, "lg")
        self.assertEqual(claims_of(grant["token"])["act"], "agent:lg")
        self.assertEqual(self.ask("GET", "/nodes", token=token).status, 403)
        # A Bearer wins over a key beside it, whichever is good.
        beside = {"X-API-Key": self.deployment.key}
        self.assertEqual(self.ask("GET", "/nodes", token=token, headers=beside).status, 403)
        self.assertEqual(self.ask("GET", "/nodes", token=self.deployment.key, headers={"X-API-Key": text}).status, 200)
        # What the key may it may, as the key is now.
        self.assertEqual(self.ask("PATCH", f"/keys/{key['id']}", {"role": "viewer"}).status, 200)
        self.negotiate(token, "lg", 403)
        self.assertEqual(self.ask("GET", "/threads/lg/sandbox", token=token).status, 200)
        # No second one of the first, and no key by name.
        for body in ({"api_key": token}, {"api_key": UNKNOWN}, {"api_key": ""}, {"api_key": "pk_short"}):
            self.assertEqual(self.ask("POST", "/auth/token", body, token=None).status, 401, body)
        for body in ({}, {"api_key": 1}, {"api_key": text, "ttl": 9}):
            self.assertEqual(self.ask("POST", "/auth/token", body, token=None).status, 400, body)

    def test_neither_token_is_taken_for_the_other(self):
        _, text = self.add("mixed")
        token, grant = self.login(text), self.negotiate(text, "mixed")
        self.assertEqual(self.use(grant), 200)
        self.assertEqual(self.use(grant, token), 401)
        url = grant["endpoints"]["http"].replace("/s/" + grant["sandbox"]["id"], "/c/" + token)
        self.assertEqual(self.ask("GET", url + "/info").status, 401)
        self.assertFalse(self.works(grant["token"]))
        self.assertEqual(self.ask("POST", "/threads/mixed/sandbox/heartbeat", {}, token=token).status, 200)
        self.assertEqual(self.ask("POST", "/threads/mixed/sandbox/refresh", {"current_token": token}, token=text).status, 401)
        self.assertEqual(self.ask("POST", "/revocations", {"token": token, "reason": "x"}, token=None).status, 401)

    def test_a_forged_one_is_none(self):
        """Each from a good one, changed in one place."""
        _, text = self.add("forged")
        good = self.login(text)
        head, payload, mac = good.split(".")
        self.assertTrue(self.works(good))
        claims = claims_of(good)
        admin = self.ask("GET", "/keys?principal=admin").json["keys"][0]["id"]
        other = b64(compact(dict(claims, key=admin)))
        none = b64(b'{"alg":"none","typ":"login+jwt"}')
        flipped = ("A" if mac[0] != "A" else "B") + mac[1:]
        for forged in (f"{head}.{other}.{mac}", f"{head}.{payload}.{flipped}", f"{head}.{payload}.", f"{head}.{payload}",
                       f"{none}.{payload}.", f"{none}.{payload}.{mac}", f"{head}.{payload}.{mac}A", f"{head}..{mac}",
                       f"{head}.{payload}.{mac}.{mac}", f"{head}.{payload}=.{mac}", good + "x" * 5000, head, head + "."):
            self.assertFalse(self.works(forged), forged[:200])
        self.assertTrue(self.works(good))


@needs_root
class Guessing(unittest.TestCase):
    def test_login_counts_as_an_authentication_that_failed(self):
        with Deployment(PARLEY_AUTH_FAILURES_PER_MINUTE="5") as deployment:
            seen = [deployment.request("POST", "/auth/token", {"api_key": UNKNOWN}, token=None).status for _ in range(7)]
            self.assertEqual(seen, [401] * 5 + [429] * 2)
            reply = deployment.request("POST", "/auth/token", {"api_key": deployment.key}, token=None)
            self.assertEqual((reply.status, reply.code), (429, "RATE_LIMITED"))
            self.assertGreater(int(reply.headers["retry-after"]), 0)
            self.assertEqual(deployment.request("GET", "/healthz", token=None).status, 200)


if __name__ == "__main__":
    unittest.main()
