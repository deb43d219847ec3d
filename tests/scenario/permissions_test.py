"""Who may do what: the table of protocol.md, 1, as one matrix over every route that the negotiator serves, and the need of
a capability over every route of sandboxd. A route that has no row here fails: give it one in ROUTES (or OPEN), with what
each asker gets. Below: that nothing of one principal shows to another."""
import http.client
import itertools
import copy
import json
import os
import re
import subprocess
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402

ROUTE = re.compile(r"(?P<method>[A-Z*]+) (?P<path>/\S*)  carriers=(?P<carriers>\S+)  needs=(?P<needs>\S+)")
ASKERS = ("none", "wrong", "viewer", "user", "other", "as_owner", "admin")
NUMBERS = itertools.count()


def routes_of(plane):
    done = subprocess.run([os.path.join(BIN, f"parley-{plane}"), "--routes"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    return [ROUTE.fullmatch(line) for line in done.stdout.splitlines()]


class Row:
    """What each asker gets on one route. The thing that is asked about is ada's; made anew for each of them by `thing`, a
    name of a method of Matrix that returns what replaces the {parameters} (and "query"), with "body" what is sent.

    viewer, user    ada's keys of these roles
    other           bob, of role user, who asks for it as if it were his own
    as_owner        bob with ?principal=ada; None: the route knows no ?principal=
    admin           an admin, with ?principal=ada where there is as_owner
    Whoever shows no credential, or none that is valid, always gets 401."""

    def __init__(self, viewer, user, other, admin, thing="nothing", body=None, as_owner=None):
        self.thing, self.body = thing, body
        self.expected = {"none": 401, "wrong": 401, "viewer": viewer, "user": user, "other": other, "as_owner": as_owner,
                         "admin": admin}


def for_admins(body, admin, thing="nothing"):
    """Only admins; what they get is of a request that is let through and changes nothing."""
    return Row(403, 403, 403, admin, thing, body)


def of_thread(viewer, user, admin, thing="thread", body=None, other=404):
    return Row(viewer, user, other, admin, thing, body, as_owner=404)


def of_id(viewer, user, admin, thing, body=None):
    return Row(viewer, user, 404, admin, thing, body)


def of_list(as_owner=404, thing="nothing"):
    """One's own list, which is empty for others."""
    return Row(200, 200, 200, 200, thing, None, as_owner)


EGRESS = "/v1/sandboxes/{sandbox_id}/port/18080"
THREAD, SANDBOX, V1 = "/threads/{thread_id}/sandbox", "/sandboxes/{sandbox_id}", "/v1/sandboxes"
ROUTES = {
    ("POST", THREAD): of_thread(403, 200, 200, body={}, other=201),  # his own thread of that name
    ("GET", THREAD): of_thread(200, 200, 200),
    ("DELETE", THREAD): of_thread(403, 204, 204),
    ("POST", THREAD + "/refresh"): of_thread(403, 200, 404, "token"),  # a token's principal alone renews it
    ("POST", THREAD + "/heartbeat"): of_thread(403, 200, 200, body={}),
    ("POST", THREAD + "/share"): of_thread(403, 201, 201, body={"scopes": ["shell:ro"]}),
    ("GET", THREAD + "/shares"): of_thread(200, 200, 200),
    ("DELETE", THREAD + "/shares/{share_id}"): of_thread(403, 200, 200, "share"),
    ("POST", "/execute"): Row(403, 200, 200, 200, body={"code": "true", "language": "bash"}, as_owner=404),
    ("GET", "/sandboxes"): of_list(),
    ("GET", SANDBOX): of_id(200, 200, 200, "sandbox"),
    ("PATCH", SANDBOX): of_id(403, 200, 200, "sandbox", {"metadata": {"a": "b"}}),
    ("DELETE", SANDBOX): of_id(403, 204, 204, "sandbox"),
    ("POST", SANDBOX + "/pause"): of_id(403, 200, 200, "sandbox", {}),
    ("POST", SANDBOX + "/resume"): of_id(403, 200, 200, "sandbox", {}),
    ("POST", SANDBOX + "/renew"): of_id(403, 200, 200, "sandbox", {"expires_at": "2030-01-01T00:00:00Z"}),
    ("PATCH", SANDBOX + "/metadata"): of_id(403, 200, 200, "sandbox", {"a": "c"}),
    ("POST", SANDBOX + "/token"): of_id(403, 200, 200, "sandbox", {"scopes": ["fs:ro"]}),
    ("GET", SANDBOX + "/logs"): of_id(403, 404, 404, "sandbox"),  # it has no entrypoint
    ("POST", SANDBOX + "/snapshots"): of_id(403, 201, 201, "sandbox", {}),
    ("GET", "/snapshots"): of_list(),
    ("GET", "/snapshots/{snapshot_id}"): of_id(200, 200, 200, "snapshot"),
    ("DELETE", "/snapshots/{snapshot_id}"): of_id(403, 204, 204, "snapshot"),
    ("GET", "/templates"): Row(200, 200, 200, 200),
    ("GET", "/volumes"): of_list(),
    ("DELETE", "/volumes/{volume}"): of_thread(403, 204, 204, "volume"),
    ("POST", "/revocations"): Row(403, 200, 404, 200, "to_revoke"),
    ("GET", "/revocations"): of_list(),
    ("GET", "/revocations/{revocation_id}"): of_id(200, 200, 200, "revocation"),
    ("GET", "/nodes"): for_admins(None, 200),
    ("POST", "/nodes"): for_admins({}, 400),
    ("POST", "/nodes/{node}/drain"): for_admins({"drain": True}, 404, "no_node"),
    ("POST", "/nodes/{node}/rekey"): for_admins({}, 404, "no_node"),
    ("POST", "/nodes/{node}/lost"): for_admins({}, 404, "no_node"),
    ("GET", "/audit"): of_list(),
    ("GET", "/audit/head"): Row(200, 200, 200, 200),
    ("POST", "/audit/verify"): for_admins({}, 200),
    ("GET", "/events"): of_list(),
    ("POST", "/keys"): for_admins({}, 400),
    ("GET", "/keys"): of_list(),
    ("GET", "/keys/{key_id}"): of_id(200, 200, 200, "key"),
    ("PATCH", "/keys/{key_id}"): Row(403, 403, 403, 200, "key", {"note": "x"}),
    ("POST", "/keys/{key_id}/rotate"): of_id(403, 200, 200, "key", {}),
    ("DELETE", "/keys/{key_id}"): of_id(403, 204, 204, "key"),
    ("GET", "/policy"): for_admins(None, 200),
    ("PUT", "/policy"): for_admins({"surprise": 1}, 400),
    ("POST", "/policy/why"): Row(403, 200, 404, 200, body={"principal": "ada"}),
    ("POST", "/webhooks"): Row(403, 201, 201, 201, body={"url": "https://example.invalid/hook", "types": ["key.created"]}),
    ("GET", "/webhooks"): of_list(),
    ("GET", "/webhooks/{webhook_id}"): of_id(200, 200, 200, "webhook"),
    ("PATCH", "/webhooks/{webhook_id}"): of_id(403, 200, 200, "webhook", {"enabled": False}),
    ("DELETE", "/webhooks/{webhook_id}"): of_id(403, 204, 204, "webhook"),
    ("POST", "/webhooks/{webhook_id}/rotate"): of_id(403, 200, 200, "webhook", {}),
    ("POST", "/webhooks/{webhook_id}/test"): of_id(403, 200, 200, "webhook"),
    ("GET", "/webhooks/{webhook_id}/deliveries"): of_id(200, 200, 200, "webhook"),
    ("POST", "/incidents"): for_admins({}, 400),
    ("GET", "/incidents"): for_admins(None, 200),
    ("GET", "/incidents/{incident_id}"): for_admins(None, 404, "no_incident"),
    ("GET", "/incidents/{incident_id}/suspects"): for_admins(None, 404, "no_incident"),
    ("POST", "/incidents/{incident_id}/evidence"): for_admins({}, 400, "no_incident"),
    ("POST", "/incidents/{incident_id}/close"): for_admins({}, 404, "no_incident"),
    # Of OpenSandbox clients. What is not theirs is not there; nobody sends a role's limits to these 501s.
    ("POST", V1): Row(403, 202, 202, 202, body={"image": {"uri": "any"}, "entrypoint": ["true"], "resourceLimits": {}},
                      as_owner=404),
    ("GET", V1 + "/{sandbox_id}"): of_id(200, 200, 200, "sandbox"),
    ("DELETE", V1 + "/{sandbox_id}"): of_id(403, 204, 204, "sandbox"),
    ("GET", V1): of_list(),
    ("GET", V1 + "/{sandbox_id}/diagnostics/logs"): of_id(403, 200, 200, "sandbox"),
    ("GET", V1 + "/{sandbox_id}/diagnostics/events"): of_id(200, 200, 200, "sandbox"),
    ("PATCH", V1 + "/{sandbox_id}/metadata"): of_id(403, 200, 200, "sandbox", {"a": "b"}),
    ("POST", V1 + "/{sandbox_id}/pause"): of_id(403, 202, 202, "sandbox"),
    ("POST", V1 + "/{sandbox_id}/resume"): of_id(403, 409, 409, "sandbox"),  # it is awake
    ("POST", V1 + "/{sandbox_id}/renew-expiration"): of_id(403, 200, 200, "sandbox", {"expiresAt": "2030-01-01T00:00:00Z"}),
    ("GET", V1 + "/{sandbox_id}/endpoints/{port}"): of_id(403, 200, 200, "port_of_sandbox"),
    ("POST", V1 + "/{sandbox_id}/snapshots"): of_id(403, 202, 202, "sandbox", {}),
    ("GET", "/v1/snapshots"): of_list(),
    ("GET", "/v1/snapshots/{snapshot_id}"): of_id(200, 200, 200, "snapshot"),
    ("DELETE", "/v1/snapshots/{snapshot_id}"): of_id(403, 204, 204, "snapshot"),
    ("POST", "/v1/metrics/events"): Row(204, 204, 204, 204, body={}),
    ("GET", "/v1/pools"): Row(501, 501, 501, 501),
    ("POST", "/v1/pools"): Row(501, 501, 501, 501, body={}),
    ("GET", "/v1/pools/{pool}"): Row(501, 501, 501, 501, "pool"),
    ("PUT", "/v1/pools/{pool}"): Row(501, 501, 501, 501, "pool", {}),
    ("DELETE", "/v1/pools/{pool}"): Row(501, 501, 501, 501, "pool"),
    ("GET", EGRESS + "/policy"): of_id(200, 200, 200, "sandbox"),
    ("PATCH", EGRESS + "/policy"): of_id(403, 200, 200, "sandbox", [{"action": "deny", "target": "a.example"}]),
    ("DELETE", EGRESS + "/policy"): of_id(403, 200, 200, "sandbox", ["a.example"]),
    ("POST", EGRESS + "/policy"): of_id(403, 200, 200, "sandbox", {}),
    ("PUT", EGRESS + "/policy"): of_id(403, 200, 200, "sandbox", {}),
    # Nobody listens there; opensandbox_ports_test.py has what capabilities do.
    **{("*", prefix + SANDBOX + "/proxy/{port}" + rest): of_id(403, 502, 502, "unheard")
       for prefix in ("", "/v1") for rest in ("", "/{rest...}")},
}
# Whoever asks gets the same: for supervisors, for who is about to show a credential in the body, and what is sealed.
# Fifteen minutes must not become for ever.
NOT_BY_LOGIN = {("POST", "/keys/{key_id}/rotate")}
OPEN = {("GET", "/healthz"): 200, ("GET", "/readyz"): 200, ("POST", "/auth/token"): 400, ("POST", "/node/v1/message"): 401,
        ("POST", "/node/v1/enrol"): 400, ("GET", "/metrics"): 200, ("GET", "/health"): 200, ("GET", "/v1/health"): 200,
        ("GET", EGRESS + "/healthz"): 200, ("GET", EGRESS + "/credential-vault/{rest...}"): 501,
        **{(method, EGRESS + "/credential-vault"): 501 for method in ("GET", "POST", "PATCH", "DELETE")}}

# The same of sandboxd: routes that ask for no capability, and what one gets who shows none.
OPEN_NODE = {("GET", "/healthz"): 200, ("GET", "/readyz"): 200, ("GET", "/metrics"): 200, ("POST", "/node/v1/message"): 401}


def send(deployment, method, url, body=None, token=None, headers=None):
    """The status alone: some replies never end."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    sent = dict(headers or {}, **({"Authorization": "Bearer " + token} if token else {}))
    try:
        connection.request(method, parts.path + ("?" + parts.query if parts.query else ""),
                           None if body is None else json.dumps(body).encode(), sent)
        return connection.getresponse().status
    finally:
        connection.close()


class World(unittest.TestCase):
    """A deployment with ada (a user, and a viewer's key of hers), bob (another user) and an admin."""

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_AUTH_FAILURES_PER_MINUTE="0")
        cls.addClassCleanup(cls.deployment.close)
        cls.admin = cls.deployment.key
        cls.keys = {"none": None, "wrong": "pk_" + "A" * 43, "admin": cls.admin}
        for name, principal, role in (("viewer", "ada", "viewer"), ("user", "ada", "user"), ("other", "bob", "user")):
            cls.keys[name] = cls.ask("POST", "/keys", {"principal": principal, "role": role}, cls.admin).json["api_key"]
        cls.keys["as_owner"] = cls.keys["other"]

    @classmethod
    def ask(cls, method, path, body=None, token=None):
        return cls.deployment.request(method, path, body, token=token)

    def ada(self, method, path, body=None, expect=(200, 201)):
        reply = self.ask(method, path, body, self.keys["user"])
        self.assertIn(reply.status, expect, (method, path, reply))
        return reply.json

    # ---- ada's things ----

    def nothing(self):
        return {}

    def thread(self, **wish):
        name = f"t{next(NUMBERS)}"
        grant = self.ada("POST", f"/threads/{name}/sandbox", dict({"isolation": "namespaces"}, **wish))
        self.addCleanup(self.ask, "DELETE", f"/threads/{name}/sandbox", None, self.keys["user"])
        return {"thread_id": name, "grant": grant, "sandbox_id": grant["sandbox"]["id"]}

    sandbox = thread

    def unheard(self):
        return dict(self.thread(), port="3999", rest="x")

    def token(self):
        made = self.thread()
        return dict(made, body={"current_token": made["grant"]["token"]})

    def to_revoke(self):
        made = self.thread()
        return dict(made, body={"sandbox": made["sandbox_id"], "reason": "test"})

    def share(self):
        made = self.thread()
        self.ada("POST", f"/threads/{made['thread_id']}/sandbox/share", {"scopes": ["shell:ro"]})
        shares = self.ada("GET", f"/threads/{made['thread_id']}/sandbox/shares")["shares"]
        return dict(made, share_id=shares[0]["id"])

    def snapshot(self):
        made = self.thread()
        taken = self.ada("POST", f"/sandboxes/{made['sandbox_id']}/snapshots", {})["snapshot"]["id"]
        self.addCleanup(self.ask, "DELETE", f"/snapshots/{taken}", None, self.admin)
        return dict(made, snapshot_id=taken)

    def volume(self):
        name = f"v{next(NUMBERS)}"
        made = self.thread(volumes=[{"name": name, "path": "/data"}])
        self.assertEqual(self.ask("DELETE", f"/threads/{made['thread_id']}/sandbox", None, self.keys["user"]).status, 204)
        until = time.monotonic() + 30
        while self.ask("GET", f"/sandboxes/{made['sandbox_id']}", None, self.keys["user"]).json["state"] != "terminated":
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        self.addCleanup(self.ask, "DELETE", f"/volumes/{name}", None, self.keys["user"])
        return {"volume": name}

    def revocation(self):
        made = self.to_revoke()
        return {"revocation_id": self.ada("POST", "/revocations", made["body"])["revocation"]["id"]}

    def key(self):
        made = self.ask("POST", "/keys", {"principal": "ada"}, self.admin).json["key"]["id"]
        self.addCleanup(self.ask, "DELETE", f"/keys/{made}", None, self.admin)
        return {"key_id": made}

    def webhook(self):
        made = self.ada("POST", "/webhooks", {"url": "https://example.invalid/hook", "types": ["key.created"]})
        made = made.get("webhook", made)["id"]
        self.addCleanup(self.ask, "DELETE", f"/webhooks/{made}", None, self.admin)
        return {"webhook_id": made}

    def no_node(self):
        return {"node": "no-such-node"}

    def port_of_sandbox(self):
        return {**self.sandbox(), "port": "44772"}

    def pool(self):
        return {"pool": "default"}

    def no_incident(self):
        return {"incident_id": "inc_" + "a" * 20}


@needs_root
class Matrix(World):
    def test_every_route_has_its_row(self):
        served = {(row["method"], row["path"]): row for row in routes_of("negotiator")}
        known = set(ROUTES) | set(OPEN)
        self.assertEqual(set(served) - known, set(), "served, but who may is not said here")
        self.assertEqual(known - set(served), set(), "said here, but not served")
        for name, row in served.items():
            self.assertEqual(row["needs"] == "-", name in OPEN, name)

    def see(self, route, row, asker, token, made):
        path = re.sub(r"\{(\w+)(\.\.\.)?\}", lambda name: made[name[1]], route[1])
        if asker == "as_owner" or (asker == "admin" and row.expected["as_owner"] is not None):
            path += "?principal=ada"
        method = "GET" if route[0] == "*" else route[0]
        return send(self.deployment, method, self.deployment.url + path, made.get("body", row.body), token)

    def see_all(self, route, row, tokens):
        """Those who are refused ask about one thing, and leave it as it is; each of the others about one of his own."""
        refused = [asker for asker in tokens if (row.expected[asker] or 0) >= 400]
        others = [asker for asker in tokens if row.expected[asker] and asker not in refused]
        made = getattr(self, row.thing)()
        for asker in refused + others:
            with self.subTest(route=" ".join(route), asker=asker):
                self.assertEqual(self.see(route, row, asker, tokens[asker], made), row.expected[asker])
            if asker in others[:-1] and row.thing != "nothing":
                self.doCleanups()
                made = getattr(self, row.thing)()
        self.doCleanups()

    def test_who_may_do_what(self):
        for route, row in ROUTES.items():
            self.see_all(route, row, self.keys)

    def test_a_login_token_may_what_its_key_may(self):
        tokens = {asker: self.ask("POST", "/auth/token", {"api_key": self.keys[asker]}).json["token"]
                  for asker in ("viewer", "user", "other", "admin")}
        for route, row in ROUTES.items():
            if route in NOT_BY_LOGIN:
                row = copy.deepcopy(row)
                row.expected["user"] = 403
            self.see_all(route, row, tokens)

    def test_open_ones_are_the_same_for_everybody(self):
        for (method, path), expected in OPEN.items():
            for asker in ASKERS:
                with self.subTest(route=f"{method} {path}", asker=asker):
                    body = None if method == "GET" else {}
                    self.assertEqual(send(self.deployment, method, self.deployment.url + path, body, self.keys[asker]), expected)

    def test_every_route_of_a_node_needs_a_capability(self):
        """Of that sandbox, with the scope: no API key or login token does, nor another sandbox's."""
        own, other = self.thread()["grant"], self.thread()["grant"]
        login = self.ask("POST", "/auth/token", {"api_key": self.admin}).json["token"]
        without = link(own["token"], compact({"scope": ""}))
        self.assertEqual(send(self.deployment, "GET", own["endpoints"]["http"] + "/info", None, own["token"]), 200)
        for row in routes_of("sandboxd"):
            name = (row["method"], row["path"])
            self.assertEqual(row["needs"] == "-", name in OPEN_NODE, name)
            body = None if row["method"] in ("GET", "DELETE", "*") else {}
            method = "GET" if row["method"] == "*" else row["method"]
            path = re.sub(r"\{(\w+)(\.\.\.)?\}", lambda part: {"sandbox": own["sandbox"]["id"], "port": "3999"}.get(part[1], "x"),
                          row["path"])
            url = self.deployment.node_url + path
            with self.subTest(route=" ".join(name)):
                if name in OPEN_NODE:
                    self.assertEqual(send(self.deployment, method, url, body), OPEN_NODE[name])
                    continue
                later = "later" in row["carriers"]  # it may still be shown in the first frame: of a WebSocket
                for token in (None, self.admin, self.keys["user"], login, other["token"]):
                    unseen = token is None or token.startswith("pk_")  # a key beside a capability is not looked at
                    expected = 426 if later and unseen else 401
                    self.assertEqual(send(self.deployment, method, url, body, token), expected, token and token[:12])
                if row["needs"] != "any":
                    self.assertEqual(send(self.deployment, method, url, body, without), 403)


@needs_root
class Isolation(World):
    """Nothing of ada's shows to bob, whichever way he asks."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.name = "adas-box"

    def bob(self, method, path, body=None):
        return self.ask(method, path, body, self.keys["other"])

    def test_lists_and_names(self):
        made, kept, key = self.thread(name=self.name, metadata={"secret-project": "x"}), self.snapshot(), self.key()
        share, revoked = self.share(), self.revocation()
        for path, member in (("/sandboxes", "sandboxes"), ("/sandboxes?state=all", "sandboxes"), ("/snapshots", "snapshots"),
                             ("/volumes", "volumes"), ("/revocations", "revocations"), ("/keys", "keys"),
                             ("/audit", "records"), (f"/sandboxes?name={self.name}", "sandboxes"),
                             (f"/audit?sandbox={made['sandbox_id']}", "records"),
                             (f"/audit?thread={made['thread_id']}", "records")):
            reply = self.bob("GET", path)
            self.assertEqual(reply.status, 200, (path, reply))
            text = reply.body.decode()
            for word in ('"ada"', made["sandbox_id"], kept["snapshot_id"], key["key_id"], revoked["revocation_id"], self.name,
                         share["share_id"], "secret-project"):
                self.assertNotIn(word, text, path)
        for path in ("/audit?all=1", "/audit?principal=ada", "/revocations?all=1", "/events?all=1"):
            self.assertIn(send(self.deployment, "GET", self.deployment.url + path, None, self.keys["other"]), (403, 404), path)

    def test_hints(self):
        made = self.thread(name="adas-hint")
        for hint in ("adas-hint", made["sandbox_id"]):
            thread = f"b{next(NUMBERS)}"
            reply = self.bob("POST", f"/threads/{thread}/sandbox", {"sandbox": hint, "hint_policy": "require"})
            self.assertEqual(reply.status, 404, reply)
            none = self.bob("POST", f"/threads/{thread}/sandbox", {"sandbox": "no-such", "hint_policy": "require"})
            self.assertEqual(self.told(reply), self.told(none))
            reply = self.bob("POST", f"/threads/{thread}/sandbox", {"sandbox": hint})
            self.assertEqual((reply.status, reply.json["hint"]["honored"], reply.json["hint"]["reason"]), (201, False, "not_found"))
            self.assertNotEqual(reply.json["sandbox"]["id"], made["sandbox_id"])
            self.assertEqual(self.bob("DELETE", f"/threads/{thread}/sandbox").status, 204)
        # Her names are free for him.
        reply = self.bob("POST", "/threads/named/sandbox", {"name": "adas-hint"})
        self.assertEqual((reply.status, reply.json["sandbox"]["name"]), (201, "adas-hint"))
        self.bob("DELETE", "/threads/named/sandbox")

    @staticmethod
    def told(reply):
        """What a refusal says but for the names in it: it must not tell one that is not his from one that is not."""
        error = reply.json["error"]
        return reply.status, error["code"], re.sub(r"sbx_\w+|adas-hint|no-such|snp_\w+", "X", error["message"])

    def test_a_thread_of_the_same_name_is_another(self):
        made = self.thread()
        reply = self.bob("POST", f"/threads/{made['thread_id']}/sandbox", {})
        self.assertEqual(reply.status, 201)
        self.assertNotEqual(reply.json["sandbox"]["id"], made["sandbox_id"])
        self.assertEqual(self.bob("DELETE", f"/threads/{made['thread_id']}/sandbox").status, 204)
        self.assertEqual(self.ada("GET", f"/threads/{made['thread_id']}/sandbox")["sandbox"]["id"], made["sandbox_id"])

    def test_what_outlives_a_sandbox(self):
        kept, volume = self.snapshot(), self.volume()
        answers = [self.bob("POST", f"/threads/b{next(NUMBERS)}/sandbox", {"template": f"snapshot:{name}"})
                   for name in (kept["snapshot_id"], "snp_" + "a" * 20)]
        self.assertEqual([reply.status for reply in answers], [404, 404], answers)
        self.assertEqual(self.told(answers[0]), self.told(answers[1]))
        # A volume of her name is his own, empty one.
        reply = self.bob("POST", "/threads/bv/sandbox", {"volumes": [{"name": volume["volume"], "path": "/data"}]})
        self.assertEqual(reply.status, 201, reply)
        self.assertEqual(self.deployment.shell(reply.json, "ls -A /data | wc -l").strip(), "0")
        self.assertEqual(self.bob("DELETE", "/threads/bv/sandbox").status, 204)
        self.assertEqual([v["name"] for v in self.ada("GET", "/volumes")["volumes"]], [volume["volume"]])

    def test_revoking(self):
        """By any name of hers: her token stays good."""
        made = self.thread()
        claims = json.loads(compact_claims(made["grant"]["token"]))
        for body in ({"sandbox": made["sandbox_id"]}, {"thread": made["thread_id"]}, {"lease": claims["lease"]},
                     {"jti": claims["jti"]}, {"family": claims["fam"]}, {"principal": "ada"}, {"scope": "process"},
                     {"all": True}):
            reply = self.bob("POST", "/revocations", dict(body, reason="mine now"))
            self.assertIn(reply.status, (200, 202, 403, 404), (body, reply))
            if reply.status < 300:  # of his own tokens alone
                self.assertEqual(reply.json["revocation"]["principal"], "bob", body)
        url = made["grant"]["endpoints"]["http"] + "/info"
        self.assertEqual(self.ask("GET", url, None, made["grant"]["token"]).status, 200)
        refresh = {"current_token": made["grant"]["token"]}
        for path in (f"/threads/{made['thread_id']}/sandbox/refresh", "/threads/bobs/sandbox/refresh"):
            self.assertEqual(self.bob("POST", path, refresh).status, 404)
        self.assertEqual(self.ask("GET", url, None, made["grant"]["token"]).status, 200)


def compact_claims(token):
    import base64
    part = token.split(".")[1]
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


if __name__ == "__main__":
    unittest.main()
