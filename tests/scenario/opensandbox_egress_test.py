"""What leaves a sandbox but what is denied; and the port 18080 of OpenSandbox's clients, by which that is read and changed.
Each attack is seen to work from a sandbox that denies nothing."""
import os
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import egress_test  # noqa: E402
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.world import DNS, OTHER, PLAIN, World  # noqa: E402

NAMES = {"allowed.example": [PLAIN], "other.example": [PLAIN], "elsewhere.example": [OTHER], "a.wild.example": [PLAIN],
         "b.c.wild.example": [PLAIN], "wild.example": [PLAIN], "alias.example": ["=other.example"],
         "rebind.example": [OTHER, "10.99.99.7"], "ssh.example": [OTHER]}
DENY_OTHER = {"action": "deny", "target": "other.example"}


def rule(action, target):
    return {"action": action, "target": target}


@needs_root
class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.zone(**NAMES)
        cls.ca = egress_test.certify(cls.world.folder)
        cls.deployment = Deployment(PARLEY_DNS_SERVERS=DNS)
        cls.addClassCleanup(cls.deployment.close)
        cls.count = 0

    def negotiate(self, network):
        type(self).count += 1
        grant = self.deployment.negotiate(f"t{self.count}", network=network)
        self.addCleanup(self.deployment.request, "DELETE", f"/threads/t{self.count}/sandbox")
        self.deployment.shell(grant, f"cat > /workspace/ca.pem <<'E'\n{self.ca}E")
        return grant

    def run_inside(self, grant, program, *arguments):
        reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", program, *map(str, arguments)])
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def get(self, grant, url):
        done = self.run_inside(grant, egress_test.GET, url)
        return done["stdout"].strip() if done["exit_code"] == 0 else "refused"

    def say(self, grant, *arguments):
        return self.run_inside(grant, egress_test.SAY, *arguments)["stdout"].strip()

    def look_up(self, grant, name):
        return self.run_inside(grant, egress_test.LOOK_UP, name)["stdout"].strip()


class Denied(Case):
    def test_public_but_names(self):
        free = self.negotiate({"egress": "public"})
        grant = self.negotiate({"egress": "public", "deny": ["other.example", "*.wild.example"], "allow": ["a.wild.example"]})
        for url in ("https://allowed.example/", "http://allowed.example/", "https://a.wild.example/", "http://wild.example/"):
            self.assertNotEqual(self.get(grant, url), "refused", url)
        # By name, in any spelling.
        for name in ("other.example", "OTHER.Example", "other.example.", "b.c.wild.example", "B.C.wild.example"):
            self.assertNotEqual(self.look_up(free, name)[:4], "none", name)
            self.assertIn("none", self.look_up(grant, name), name)
        # By the address: with its name, with another one, with none, in HTTP's ways.
        for port, name in ((443, "other.example"), (443, "OTHER.example"), (443, ""), (443, "elsewhere.example"), (443, PLAIN)):
            self.assertNotIn("refused", self.say(free, PLAIN, port, name), name)
            self.assertIn("refused", self.say(grant, PLAIN, port, name), name)
        for request in (r"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n", r"GET / HTTP/1.1\r\nHost: Other.Example.\r\n\r\n",
                        r"GET http://other.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n", r"GET / HTTP/1.0\r\n\r\n",
                        rf"GET / HTTP/1.1\r\nHost: {PLAIN}\r\n\r\n", r"GET / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n"):
            self.assertIn("world", self.say(free, PLAIN, 80, "x", request), request)
            self.assertIn("403 Forbidden", self.say(grant, PLAIN, 80, "x", request), request)
        # By a name that stands for it, and by asking somebody else for it.
        self.assertIn("world", self.get(free, "http://alias.example/"))
        self.assertEqual(self.get(grant, "http://alias.example/"), "refused")
        self.assertIn("refused", self.say(grant, PLAIN, 443, "alias.example"))
        ask = ("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(3)\n"
               f"try:\n s.sendto(b'ab\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\5other\\7example\\0\\0\\1\\0\\1', ('{DNS}', 53))\n"
               " print('told', len(s.recv(512)))\nexcept OSError: print('not')")
        self.assertIn("told", self.run_inside(free, ask)["stdout"])
        self.assertIn("not", self.run_inside(grant, ask)["stdout"])
        self.assertIn("not allowed", self.deployment.logs())

    def test_addresses(self):
        free = self.negotiate({"egress": "public"})
        grant = self.negotiate({"egress": "public", "deny": [OTHER + "/32"]})
        self.assertIn("world", self.say(free, OTHER, 80, "x"))
        self.assertIn("refused", self.say(grant, OTHER, 80, "x"))
        self.assertIn("none", self.look_up(grant, "elsewhere.example") + "none")
        self.assertEqual(self.get(grant, "http://elsewhere.example/"), "refused")
        self.assertIn("world", self.say(grant, PLAIN, 80, "x"))
        listed = self.negotiate({"egress": "allow", "allow": ["203.0.113.0/24", "elsewhere.example"], "deny": [OTHER]})
        self.assertIn("hello", self.run_inside(listed, "import socket\n"
                                               f"print(socket.create_connection(('{PLAIN}', 22), 20).recv(100))")["stdout"])
        for port in (22, 80, 443):
            self.assertIn("refused", self.say(listed, OTHER, port, "elsewhere.example"))

    def test_a_list_but_some_of_it(self):
        grant = self.negotiate({"egress": "allow", "allow": ["*.example"], "deny": ["other.example", "*.wild.example"]})
        self.assertEqual(self.get(grant, "https://allowed.example/"), "secure allowed.example")
        for name in ("other.example", "a.wild.example", "alias.example"):
            self.assertIn("none", self.look_up(grant, name), name)
            self.assertIn("refused", self.say(grant, PLAIN, 443, name), name)

    def test_shown_and_refused(self):
        network = {"egress": "public", "deny": ["other.example", "10.0.0.0/8"]}
        grant = self.negotiate(network)
        shown = self.deployment.request("GET", "/sandboxes/" + grant["sandbox"]["id"])
        self.assertEqual(shown.json["network"], network)
        for wrong in ({"egress": "none", "deny": ["a.b"]}, {"egress": "public", "deny": ["a b"]}, {"egress": "public", "deny": "a.b"},
                      {"egress": "public", "allow": ["a.b:22"], "deny": ["*.b"]}):
            reply = self.deployment.request("PATCH", "/sandboxes/" + grant["sandbox"]["id"], {"network": wrong})
            self.assertEqual(reply.status, 400, reply)


class Policy(Case):
    """The port 18080, at the negotiator and at the node."""

    def of(self, network, scopes=("network",)):
        grant = self.negotiate(network)
        self.sandbox = grant["sandbox"]["id"]
        reply = self.deployment.request("POST", f"/sandboxes/{self.sandbox}/token", {"scopes": list(scopes)})
        self.assertEqual(reply.status, 200, reply)
        self.token = reply.json["token"]
        return grant

    def ask(self, method="GET", path="/policy", body=None, *, token=None, node=False, headers=None, sandbox=None):
        credential = {"OPENSANDBOX-EGRESS-AUTH": self.token if token is None else token} if headers is None else headers
        prefix = f"/sandboxes/{sandbox or self.sandbox}/port/18080" if node else f"/v1/sandboxes/{sandbox or self.sandbox}/port/18080"
        return self.deployment.request(method, (self.deployment.node_url if node else "") + prefix + path, body, token=None,
                                       headers=credential)

    def check_policy(self, reply, mode, default, *rules):
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(reply.json, {"status": "ok", "mode": mode, "enforcementMode": "dns+nft",
                                      "policy": {"defaultAction": default, "egress": list(rules)}})
        self.assertTrue(reply.headers["x-request-id"])

    def check_refused(self, reply, status):
        self.assertEqual(reply.status, status, reply)
        self.assertTrue(reply.headers["content-type"].startswith("text/plain"), reply.headers)
        self.assertTrue(reply.body)

    def test_merged_and_deleted_and_set(self):
        grant = self.of({"egress": "allow", "allow": ["allowed.example"]})
        self.check_policy(self.ask(), "enforcing", "deny", rule("allow", "allowed.example"))
        self.assertEqual(self.get(grant, "http://allowed.example/"), "world allowed.example")
        self.check_policy(self.ask("PATCH", body=[rule("allow", "other.example"), rule("deny", "allowed.example"),
                                                  rule("deny", "OTHER.example.")]),
                          "enforcing", "deny", rule("deny", "allowed.example"), rule("allow", "other.example"))
        self.assertEqual(self.get(grant, "http://other.example/"), "world other.example")
        self.assertEqual(self.get(grant, "http://allowed.example/"), "refused")
        self.check_policy(self.ask("DELETE", body=["allowed.example", "nowhere.example"]), "enforcing", "deny",
                          rule("allow", "other.example"))
        self.check_policy(self.ask("PUT", body={"defaultAction": "allow", "egress": [DENY_OTHER]}), "enforcing", "allow", DENY_OTHER)
        self.assertEqual(self.get(grant, "http://allowed.example/"), "world allowed.example")
        self.assertEqual(self.get(grant, "http://other.example/"), "refused")
        self.check_policy(self.ask("DELETE", body=["other.example"]), "allow_all", "allow")
        self.check_policy(self.ask("POST"), "deny_all", "deny")
        self.assertEqual(self.get(grant, "http://allowed.example/"), "refused")
        shown = self.deployment.request("GET", "/sandboxes/" + self.sandbox).json
        self.assertEqual(shown["network"], {"egress": "none"})

    def test_at_the_node(self):
        self.of({"egress": "none"})
        self.check_policy(self.ask(node=True), "deny_all", "deny")
        self.check_policy(self.ask("PATCH", body=[rule("allow", "allowed.example")], node=True), "enforcing", "deny",
                          rule("allow", "allowed.example"))
        self.check_policy(self.ask(), "enforcing", "deny", rule("allow", "allowed.example"))
        self.check_refused(self.ask("PATCH", body={}, node=True), 400)
        self.check_refused(self.ask(token="wrong", node=True), 401)
        self.check_refused(self.ask("PATCH", body=[rule("allow", "a.example")], token="wrong", node=True), 401)
        self.check_refused(self.ask("PATCH", body=b"x" * 300000), 413)
        self.check_refused(self.ask(path="/credential-vault", node=True), 501)
        self.assertEqual(self.ask(path="/healthz", node=True).status, 200)

    def test_every_way_there(self):
        """By the alias, with the token in the path, and through the server's proxy."""
        self.of({"egress": "none"})
        node, here = self.deployment.node_url, self.deployment.url
        shown = {"OPENSANDBOX-EGRESS-AUTH": self.token}
        for url, headers in ((f"{node}/s/{self.sandbox}/port/18080/policy", shown),
                             (f"{node}/sandboxes/{self.sandbox}/port/18080/policy", {"X-EXECD-ACCESS-TOKEN": self.token}),
                             (f"{node}/c/{self.token}/port/18080/policy", {}),
                             (f"{here}/sandboxes/{self.sandbox}/proxy/18080/policy", {"X-EXECD-ACCESS-TOKEN": self.token}),
                             (f"{here}/v1/sandboxes/{self.sandbox}/proxy/18080/policy", {"OPEN-SANDBOX-API-KEY": self.deployment.key})):
            reply = self.deployment.request("GET", url, token=None, headers=headers)
            self.check_policy(reply, "deny_all", "deny")
            self.assertNotIn(self.token, reply.body.decode())
        self.assertNotIn(self.token, self.deployment.logs())

    def test_nothing_else_of_the_negotiator_is_reached_by_the_node(self):
        self.of({"egress": "none"})
        other, mine = self.sandbox, self.token
        self.of({"egress": "none"})
        for rest in (f"../../../{other}/port/18080/policy", f"..%2f..%2f..%2f{other}%2fport%2f18080%2fpolicy", "policy%00", "policy%0d%0aX:%20y",
                     "%2e%2e/%2e%2e", "/policy", "policy%3fprincipal=x", "policy%23", ".", "", "nothing", "proxy/80/"):
            self.assertIn(self.ask(path="/" + rest, node=True).status, (400, 401, 404), rest)
        self.check_policy(self.ask(path="/policy?principal=nobody&x=1", node=True), "deny_all", "deny")
        self.check_refused(self.ask(node=True, token=mine), 401)
        self.check_refused(self.ask(node=True, token=self.deployment.key), 401)  # an API key is nothing on a node
        self.check_refused(self.ask("PATCH", body=b"x" * 300000, node=True), 413)

    def test_the_longest_policy(self):
        grant = self.of({"egress": "none"})
        rules = [rule(action, f"{action[0]}{i}." + "x" * 60 + "." + "y" * 40 + ".example") for action in ("allow", "deny") for i in range(64)]
        reply = self.ask("PUT", body={"egress": rules})
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(len(self.ask().json["policy"]["egress"]), 128)
        self.assertEqual(self.ask("PATCH", body=[rule("deny", "one.more.example")]).status, 400)
        self.check_policy(self.ask("POST"), "deny_all", "deny")
        self.assertEqual(self.get(grant, "http://allowed.example/"), "refused")

    def test_who_may(self):
        self.of({"egress": "none"})
        key = self.deployment.key
        for headers in ({"OPEN-SANDBOX-API-KEY": key}, {"Authorization": "Bearer " + key}, {"X-EXECD-ACCESS-TOKEN": self.token},
                        {"Authorization": "Bearer " + self.token},
                        {"OPENSANDBOX-EGRESS-AUTH": self.token, "X-EXECD-ACCESS-TOKEN": self.token, "OPEN-SANDBOX-API-KEY": "x"}):
            self.assertEqual(self.ask(headers=headers).status, 200, headers)
        change = {"method": "PATCH", "body": [rule("allow", "allowed.example")]}
        mine, narrow = self.token, self.deployment.request("POST", f"/sandboxes/{self.sandbox}/token",
                                                           {"scopes": ["fs:rw", "process", "port"]}).json["token"]
        other = self.sandbox
        for way in ({}, change):
            self.check_refused(self.ask(**way, headers={}), 401)
            self.check_refused(self.ask(**way, token="wrong"), 401)
            self.check_refused(self.ask(**way, token=mine[:-3] + "AAA"), 401)
            self.check_refused(self.ask(**way, token=narrow), 403)
        self.of({"egress": "none"})
        for way in ({}, change):
            self.check_refused(self.ask(**way, token=mine), 401)  # another sandbox's
        self.sandbox, self.token = other, mine
        self.check_policy(self.ask(), "deny_all", "deny")
        self.deployment.request("DELETE", "/sandboxes/" + other)
        self.assertIn(self.ask().status, (401, 404))

    def test_wrong_bodies(self):
        self.of({"egress": "none"})
        for method, body in (("PATCH", []), ("PATCH", {}), ("PATCH", [{"action": "allow"}]), ("PATCH", [rule("drop", "a.b")]),
                             ("PATCH", [rule("allow", "10.0.0.1")]), ("PATCH", [rule("allow", "*")]), ("DELETE", []),
                             ("DELETE", [1]), ("PUT", {"defaultAction": "maybe"}), ("POST", []),
                             ("PATCH", [rule("allow", f"n{i}.example") for i in range(65)])):
            self.check_refused(self.ask(method, body=body), 400)
        self.check_policy(self.ask(), "deny_all", "deny")
        self.check_refused(self.ask(path="/nothing"), 404)
        for path in ("/credential-vault", "/credential-vault/credentials/x"):
            self.check_refused(self.ask(path=path), 501)
        self.assertEqual(self.ask(path="/healthz", headers={}).status, 200)

    def test_changes_do_not_lose_each_other(self):
        """Many at once: each is merged with what the one before it made."""
        self.of({"egress": "none"})
        replies = []
        threads = [threading.Thread(target=lambda i=i: replies.append(self.ask("PATCH", body=[rule("allow", f"n{i}.example")]).status))
                   for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(replies, [200] * 12)
        self.assertEqual({each["target"] for each in self.ask().json["policy"]["egress"]}, {f"n{i}.example" for i in range(12)})


if __name__ == "__main__":
    unittest.main()
