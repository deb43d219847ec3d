"""Outside identity (protocol.md, 1): tokens of pinned issuers are principals `<issuer>:<sub>`; every forgery is refused; keys rotate;
an issuer whose server hangs holds up nobody else."""
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.issuer import Issuer, Key, KeyServer, self_signed, unsigned, with_secret  # noqa: E402


@needs_root
class Identity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="parley-identity-")
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", cls.folder])
        os.chmod(cls.folder, 0o755)  # the negotiator reads the keys again, as its own user
        cls.rsa, cls.ec = Key(cls.folder, "r1", "RS256"), Key(cls.folder, "e1", "ES256")
        cls.corp, cls.web, cls.slow, cls.forged = (Issuer(name) for name in ("corp", "web", "slow", "forged"))
        certificate = self_signed(cls.folder, "web")
        cls.web_keys, cls.slow_keys = KeyServer([cls.ec], certificate), KeyServer([cls.ec])
        cls.impostor = KeyServer([cls.ec], self_signed(cls.folder, "impostor"))
        for server in (cls.web_keys, cls.slow_keys, cls.impostor):
            cls.addClassCleanup(server.close)
        cls.write_keys([cls.rsa, cls.ec])
        ids = {"algorithms": ["RS256", "ES256"], "audience": "parley"}
        issuers = [
            {**ids, "name": "corp", "issuer": cls.corp.issuer, "jwks": cls.folder + "/jwks.json", "role_claim": "groups",
             "role_map": {"ops": "admin", "guests": "viewer"}},
            {**ids, "name": "web", "issuer": cls.web.issuer, "jwks": cls.web_keys.url, "ca_file": certificate[0]},
            {**ids, "name": "slow", "issuer": cls.slow.issuer, "jwks": cls.slow_keys.url},
            {**ids, "name": "forged", "issuer": cls.forged.issuer, "jwks": cls.impostor.url, "ca_file": certificate[0]}]
        with open(cls.folder + "/identity.json", "w") as file:
            json.dump({"issuers": issuers}, file)
        cls.deployment = Deployment(PARLEY_IDENTITY_FILE=cls.folder + "/identity.json", PARLEY_AUTH_FAILURES_PER_MINUTE="0")
        cls.addClassCleanup(cls.deployment.close)

    @classmethod
    def write_keys(cls, keys):
        with open(cls.folder + "/jwks.new", "w") as file:
            json.dump({"keys": [key.jwk for key in keys]}, file)
        os.rename(cls.folder + "/jwks.new", cls.folder + "/jwks.json")

    def ask(self, token, path="/sandboxes", method="GET", body=None, **more):
        return self.deployment.request(method, path, body, token=token, **more)

    def test_a_principal_like_any_other(self):
        for key, issuer in ((self.rsa, self.corp), (self.ec, self.corp), (self.ec, self.web)):
            token = issuer.token(key)
            reply = self.ask(token, f"/threads/{key.kid}/sandbox", "POST", {})
            self.assertEqual(reply.status, 201, f"{reply}\n{self.deployment.logs()}")
            grant = reply.json
            self.assertEqual(self.deployment.shell(grant, "echo hello"), "hello\n")
            again = self.ask(token, f"/threads/{key.kid}/sandbox/refresh", "POST", {"current_token": grant["token"]})
            self.assertEqual(again.status, 200, again)
            mine = [sandbox["id"] for sandbox in self.ask(token).json["sandboxes"]]
            self.assertIn(grant["sandbox"]["id"], mine)
            # Another one of the issuer, one of the same name elsewhere, and the other way round.
            others = [issuer.token(key, "eve"), (self.web if issuer is self.corp else self.corp).token(self.ec, "ada")]
            for other in others:
                self.assertEqual(self.ask(other, "/sandboxes/" + grant["sandbox"]["id"]).status, 404)
            records = self.ask(token, "/audit?action=negotiate").json["records"]
            self.assertEqual({record["principal"] for record in records}, {f"{issuer.name}:ada"})
            self.assertEqual(self.ask(token, f"/threads/{key.kid}/sandbox", "DELETE").status, 204)

    def test_with_the_cli(self):
        token = self.corp.token(self.ec, "cli")
        environment = dict(self.deployment.environment, PARLEY_URL=self.deployment.url, PARLEY_API_KEY=token)
        ran = subprocess.run([os.path.join(self.deployment.programs, "parley"), "run", "--thread", "cli", "--", "echo", "by", "token"],
                             env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual((ran.returncode, ran.stdout), (0, "by token\n"), ran.stderr)
        self.assertEqual(self.ask(token, "/threads/cli/sandbox").status, 200)
        self.assertNotIn(token.rsplit(".", 1)[1], self.deployment.logs())

    def test_roles(self):
        guest, ops = self.corp.token(self.rsa, "gus", groups=["guests"]), self.corp.token(self.rsa, "op", groups=["x", "ops"])
        self.assertEqual(self.ask(guest).status, 200)
        self.assertEqual(self.ask(guest, "/threads/t/sandbox", "POST", {}).status, 403)
        self.assertEqual(self.ask(ops, "/nodes").status, 200)
        self.assertEqual(self.ask(self.web.token(self.ec, "op", groups=["ops"]), "/nodes").status, 403)  # no map there
        told = self.ask(self.corp.token(self.rsa, "auth0|17"))
        self.assertEqual((told.status, told.code), (403, "FORBIDDEN"))
        self.assertIn("sub", told.json["error"]["message"])

    def test_forgeries(self):
        corp, rsa, ec = self.corp, self.rsa, self.ec
        stranger, twin = Key(self.folder, "r1", "RS256"), Key(self.folder, "e1", "ES256")
        now = int(time.time())
        table = {
            "another key under our kid": corp.token(stranger),
            "another curve key under our kid": corp.token(twin),
            "its key brought along": corp.token(stranger, head={"jwk": stranger.jwk, "jku": self.web_keys.url}),
            "alg none": unsigned({"alg": "none", "kid": "r1"}, corp.claims()),
            "no signature": unsigned({"alg": "RS256", "kid": "r1"}, corp.claims()),
            "HS256 with the public key": with_secret(rsa.public_pem, {"alg": "HS256", "kid": "r1"}, corp.claims()),
            "the same said to be RS256": with_secret(rsa.public_pem, {"alg": "RS256", "kid": "r1"}, corp.claims()),
            "RS256 said to be ES256": corp.token(rsa, head={"alg": "ES256"}),
            "unknown kid": corp.token(rsa, head={"kid": "r9"}),
            "crit": corp.token(rsa, head={"crit": ["exp"]}),
            "a login token's typ": corp.token(rsa, head={"typ": "login+jwt"}),
            "a capability's typ": corp.token(rsa, head={"typ": "cap+jwt"}),
            "another audience": corp.token(rsa, aud="somebody"),
            "no audience": corp.token(rsa, aud=None),
            "no end": corp.token(rsa, exp=None),
            "not yet": corp.token(rsa, nbf=now + 3600),
            "issued tomorrow": corp.token(rsa, iat=now + 86400),
            "signed by another issuer's key": self.web.token(rsa),
            "doubled claim": rsa.sign({"alg": "RS256", "kid": "r1"},
                                      json.dumps(corp.claims())[:-1].encode() + b',"sub":"op"}'),
            "bound to a key": corp.token(rsa, cnf={"jkt": "x"}),
            "too long": corp.token(rsa, filler="x" * 9000),
            "an unknown issuer": Issuer("nobody").token(rsa),
        }
        for what, token in table.items():
            with self.subTest(what):
                reply = self.ask(token, "/threads/forged/sandbox", "POST", {})
                self.assertEqual((reply.status, reply.code), (401, "UNAUTHENTICATED"), reply)
        late = self.ask(corp.token(rsa, exp=now - 100))
        self.assertEqual((late.status, late.code), (401, "TOKEN_EXPIRED"))
        self.assertEqual(self.ask(corp.token(rsa), "/threads/forged/sandbox").status, 404)  # none came to anything
        self.assertEqual(self.ask(corp.token(rsa)).status, 200)  # and with nothing bent it is good
        told = self.deployment.request("GET", self.deployment.node_url + "/s/sbx_x/info", token=corp.token(rsa))
        self.assertEqual(told.status, 401)  # it is no capability

    def test_many_at_once(self):
        token = self.corp.token(self.ec, "crowd")
        with concurrent.futures.ThreadPoolExecutor(25) as pool:
            replies = list(pool.map(lambda i: self.ask(token if i % 2 else self.corp.token(self.ec, f"c{i}"), record=False),
                                    range(50)))
        self.assertEqual({reply.status for reply in replies}, {200})

    def test_keys_rotate(self):
        new = Key(self.folder, "r2", "RS256")
        fresh = self.corp.token(new)
        self.assertEqual(self.ask(fresh).status, 401)
        self.assertEqual(self.ask(self.corp.token(self.ec, "remembered")).status, 200)
        self.write_keys([new])
        try:
            for pid in self.deployment.pids("parley-negotiator"):
                os.kill(pid, signal.SIGHUP)
            until = time.monotonic() + 20
            while self.ask(fresh).status != 200 and time.monotonic() < until:
                time.sleep(0.1)
            self.assertEqual(self.ask(fresh).status, 200, self.deployment.logs())
            self.assertEqual(self.ask(self.corp.token(self.ec, "remembered")).status, 401)
        finally:
            self.write_keys([self.rsa, self.ec])
            for pid in self.deployment.pids("parley-negotiator"):
                os.kill(pid, signal.SIGHUP)
            until = time.monotonic() + 20
            while self.ask(self.corp.token(self.rsa)).status != 200 and time.monotonic() < until:
                time.sleep(0.1)

    def test_a_server_that_nobody_vouches_for(self):
        reply = self.ask(self.forged.token(self.ec))
        self.assertEqual(reply.status, 502, reply)
        self.assertIn("forged", reply.json["error"]["message"])

    def test_an_issuer_that_hangs(self):
        self.assertEqual(self.ask(self.slow.token(self.ec)).status, 200)
        self.slow_keys.hangs.set()
        for pid in self.deployment.pids("parley-negotiator"):
            os.kill(pid, signal.SIGHUP)
        until = time.monotonic() + 20
        while self.slow_keys.asked < 2 and time.monotonic() < until:
            time.sleep(0.02)
        waiting = []
        threads = [threading.Thread(target=lambda: waiting.append(self.ask(self.slow.token(self.ec, head={"kid": "z"}),
                                                                           record=False).status)) for _ in range(20)]
        for thread in threads:
            thread.start()
        # Nobody else waits: not who has a key, not another issuer, nor one of it whose key is known.
        for _ in range(10):
            self.assertEqual(self.deployment.request("GET", "/sandboxes").status, 200)
            self.assertEqual(self.ask(self.corp.token(self.ec)).status, 200)
            self.assertEqual(self.ask(self.slow.token(self.ec)).status, 200)
        self.assertEqual(waiting, [])
        self.slow_keys.hangs.clear()
        self.slow_keys.go_on.set()
        for thread in threads:
            thread.join(30)
        self.assertEqual(waiting, [401] * 20)


if __name__ == "__main__":
    unittest.main()
