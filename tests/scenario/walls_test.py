"""Every step of verification, forged over the wire: each must fail closed, and tell nothing."""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing import token as tokens  # noqa: E402


@needs_root
class Walls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_AUTH_FAILURES_PER_MINUTE="0")
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("walls")
        cls.other = cls.deployment.negotiate("walls-other")
        cls.forge = tokens.Forge(cls.deployment, cls.grant)

    def ask(self, token, method="POST", path="/exec", body=None, headers=None):
        if body is None and method == "POST":
            body = {"cmd": "true", "stream": "none"}
        return self.deployment.request(method, self.grant["endpoints"]["http"] + path, body, token=token,
                                       headers=headers)

    def refused(self, token, status=401):
        reply = self.ask(token)
        self.assertEqual(reply.status, status, (token[:60], reply))
        if status == 401:
            self.assertIn("Bearer", reply.headers["www-authenticate"])
            self.assertIn(reply.code, ("UNAUTHENTICATED", "TOKEN_EXPIRED"))
        return reply

    def test_the_forge_itself_works(self):
        self.assertEqual(self.ask(self.forge.token()).status, 200)
        self.assertEqual(self.ask(tokens.link(self.forge.token(), b'{"scope":"process"}')).status, 200)

    def test_headers(self):
        sandbox = self.forge.sandbox
        for head in (b'{"alg":"none","typ":"JWT","kid":"%s.1"}', b'{"alg":"HS512","typ":"JWT","kid":"%s.1"}',
                     b'{"typ":"JWT","alg":"HS256","kid":"%s.1"}', b'{"alg":"HS256","typ":"JWT","kid":"%s.1" }',
                     b'{"alg":"HS256","typ":"JWT","kid":"%s"}', b'{"alg":"HS256","typ":"JWT","kid":"%s.01"}',
                     b'{"alg":"HS256","typ":"JWT","kid":"%s.1","x":1}', b'{"alg":"HS256","typ":"JWT","kid":"%s.-1"}',
                     b'{"alg":"HS256","typ":"login+jwt","kid":"%s.1"}'):
            self.refused(self.forge.token(head=head % sandbox.encode()))
        self.refused(self.forge.token(head=tokens.header(self.other["sandbox"]["id"])))
        self.refused(self.forge.token(head=tokens.header(sandbox, 2)))

    def test_none_has_no_signature(self):
        text = tokens.b64(b'{"alg":"none","typ":"JWT"}') + "." + self.grant["token"].split(".")[1] + "."
        self.refused(text)

    def test_encodings(self):
        h, p, s = self.forge.token().split(".")
        for text in (f"{h}.{p}.{s}=", f"{h}.{p}=.{s}", f"{h}.{p}.{s[:-1]}", f"{h}.{p}", f"{h}.{p}.{s}.", f".{p}.{s}",
                     f"{h}.{p}.{s}.{s}", f"{h}..{p}.{s}", f"{h}.{p}.{s[:-1]}-" if s[-1] != "-" else f"{h}.{p}.{s[:-1]}_",
                     h + "." + p + "." + "A" * 9000, "A" * 10240, "a.b.c", "eyJ", "!.x.y"):
            self.refused(text)

    def test_every_required_claim(self):
        for name in ("iss", "aud", "sub", "jti", "fam", "iat", "exp", "scope", "thread_id", "lease", "act"):
            claims = dict(self.forge.claims, iat=int(time.time()))
            del claims[name]
            self.refused(self.forge.raw(tokens.compact(claims)))
            claims[name] = "1" if name in ("iat", "exp") else 1
            self.refused(self.forge.raw(tokens.compact(claims)))

    def test_claims_that_are_not_one_plain_object(self):
        good = tokens.compact(dict(self.forge.claims, iat=int(time.time())))
        self.assertEqual(self.ask(self.forge.raw(good)).status, 200)
        for payload in (good[:-1] + b',"scope":"process"}', good[:-1] + b',"exp":9999999999}', b"[]", b"null", b"{}",
                        good + b"x", b"\xef\xbb\xbf" + good, good.replace(b'"iss"', b'"i\\u0000ss"')):
            self.refused(self.forge.raw(payload))

    def test_wrong_values(self):
        now = int(time.time())
        self.refused(self.forge.token(iss="dep_other"))
        self.refused(self.forge.token(aud=self.other["sandbox"]["id"]))
        self.assertEqual(self.refused(self.forge.token(exp=now - 10)).code, "TOKEN_EXPIRED")
        self.assertEqual(self.ask(self.forge.token(exp=now - 2)).status, 200)
        self.assertEqual(self.ask(self.forge.token(iat=now + 3)).status, 200)
        self.refused(self.forge.token(iat=now + 60))
        self.refused(self.forge.token(exp=1e18))

    def test_links_only_narrow(self):
        narrow = self.forge.token(scope="process")
        now = int(time.time())
        for payload in (b'{"scope":"shell"}', b'{"scope":"process shell"}', b'{"scope":"teleport"}', b'{"scope":1}',
                        b'{"exp":%d}' % (now + 999999), b'{"exp":"1"}', b'{"note":"' + b"x" * 65 + b'"}',
                        b'{"note":"a\\nb"}', b'{"aud":"x"}', b"{}x", b"[]", b'{"scope":"process","scope":"process"}'):
            self.refused(tokens.link(narrow, payload))
        self.refused(tokens.link(narrow, b'{"exp":%d}' % (now - 100)))
        self.assertEqual(self.ask(tokens.link(narrow, b'{"exp":%d}' % (now + 30))).status, 200)

    def test_a_link_cannot_be_taken_off(self):
        root = self.forge.token()
        narrowed = tokens.link(root, b'{"scope":"fs:ro"}')
        self.assertEqual(self.ask(narrowed).status, 403)
        h, p, r, s = narrowed.split(".")
        self.refused(f"{h}.{p}.{s}")
        self.refused(f"{h}.{p}.{r}.{s[:-2]}AA")
        two = tokens.link(narrowed, b'{"note":"x"}')
        h, p, r1, r2, s = two.split(".")
        self.refused(f"{h}.{p}.{r2}.{s}")
        self.refused(f"{h}.{p}.{r2}.{r1}.{s}")

    def test_nine_links_are_too_many(self):
        token = self.forge.token()
        for _ in range(8):
            token = tokens.link(token, b'{"note":"n"}')
        self.assertEqual(self.ask(token).status, 200)
        self.refused(tokens.link(token, b'{"note":"n"}'))

    def test_scope_is_named(self):
        reply = self.refused(self.forge.token(scope="fs:ro"), 403)
        self.assertEqual(reply.code, "CAPABILITY_DENIED")
        self.assertIn("process", reply.json["error"]["message"])
        empty = self.forge.token(scope="")
        self.refused(empty, 403)
        self.assertEqual(self.ask(empty, "GET", "/info").status, 200)

    def test_unknown_sandbox_looks_like_a_bad_mac(self):
        token = self.forge.token()
        unknown = "sbx_" + "z" * 20
        url = f"{self.deployment.node_url}/s/{unknown}/exec"
        there = self.deployment.request("POST", url, {"cmd": "true"}, token=self.forge.token(head=tokens.header(unknown)))
        here = self.ask(token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB"))
        self.assertEqual((there.status, there.json["error"]["message"]), (here.status, here.json["error"]["message"]))

    def test_one_sandbox_never_opens_another(self):
        reply = self.ask(self.other["token"])
        self.assertIn(reply.status, (401, 403))

    def test_carriers(self):
        token = self.grant["token"]
        info = self.grant["endpoints"]["http"] + "/info"
        ask = lambda **headers: self.deployment.request("GET", info, token=None, headers=headers)  # noqa: E731
        self.assertEqual(ask().status, 401)
        self.assertEqual(ask(Authorization="Bearer " + token).status, 200)
        self.assertEqual(ask(**{"Authorization": "Bearer " + token, "X-API-Key": self.deployment.key}).status, 200)
        self.assertEqual(ask(Authorization="Bearer " + self.deployment.key).status, 401)
        self.assertEqual(self.deployment.request("GET", f"{self.deployment.node_url}/c/{token}/info", token=None).status, 200)
        both = self.deployment.request("GET", f"{self.deployment.node_url}/c/{token}/info", token=self.other["token"])
        self.assertEqual(both.status, 400)
        reply = ask(Authorization="Bearer " + token)
        self.assertEqual((reply.headers["cache-control"], reply.headers["referrer-policy"]), ("no-store", "no-referrer"))

    def test_a_capability_is_no_api_key(self):
        self.assertEqual(self.deployment.request("GET", "/sandboxes", token=self.grant["token"]).status, 401)

    def test_the_negotiator_is_not_needed(self):
        for pid in self.deployment.pids("parley-negotiator"):
            os.kill(pid, 19)  # SIGSTOP: away, but not restarted
        try:
            self.assertEqual(self.ask(self.forge.token()).status, 200)
            self.refused(self.forge.token(aud="x"))
        finally:
            for pid in self.deployment.pids("parley-negotiator"):
                os.kill(pid, 18)


if __name__ == "__main__":
    unittest.main()
