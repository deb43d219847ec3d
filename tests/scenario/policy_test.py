"""Policy (protocol.md, 2): what roles, agents and principals may have, from the settings and from a document that is
changed while everything runs; each refusal says what is allowed, and `why` says the same."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402


class Policy(unittest.TestCase):
    def start(self, **environment):
        deployment = Deployment(**environment)
        self.addCleanup(deployment.close)
        return deployment


@needs_root
class Templates(Policy):
    def test_those_that_there_are(self):
        deployment = self.start()
        reply = deployment.request("POST", "/threads/t/sandbox", {"template": "no-such"})
        self.assertEqual(reply.code, "INVALID_REQUEST")
        self.assertIn("there are: base", reply.json["error"]["message"])
        told = deployment.request("GET", "/templates").json["templates"]
        self.assertEqual([(each["name"], each["nodes"], each["allowed"]) for each in told if each["name"] == "base"],
                         [("base", [deployment.negotiate("t")["sandbox"]["node"]], True)])

    def test_those_that_a_role_may_use(self):
        deployment = self.start(PARLEY_TEMPLATES_ADMIN="py-*, node")
        reply = deployment.request("POST", "/threads/t/sandbox", {})
        self.assertEqual(reply.code, "FORBIDDEN")
        self.assertIn("py-*, node", reply.json["error"]["message"])
        told = deployment.request("GET", "/templates").json["templates"]
        self.assertEqual([each["allowed"] for each in told if each["name"] == "base"], [False])
        self.assertEqual(deployment.request("GET", "/sandboxes").json["sandboxes"], [])


@needs_root
class Root(Policy):
    def as_root(self, deployment):
        grant = deployment.negotiate("root")
        return deployment.exec(grant, cmd="id -u", user="root")

    def test_by_node_and_role(self):
        self.assertEqual(self.as_root(self.start()).status, 403)  # the node's default is never
        allowed = self.as_root(self.start(PARLEY_ROOT_USER="allowed"))
        self.assertEqual((allowed.status, allowed.json["stdout"]), (200, "0\n"))
        self.assertEqual(self.as_root(self.start(PARLEY_ROOT_USER="allowed", PARLEY_ROOT_ROLES="none")).status, 403)


@needs_root
class Bounds(Policy):
    def test_snapshots_and_volumes(self):
        deployment = self.start(PARLEY_SNAPSHOTS_MAX="1", PARLEY_VOLUMES_MAX="1")
        grant = deployment.negotiate("t", volumes=[{"name": "a", "path": "/a"}])
        path = f"/sandboxes/{grant['sandbox']['id']}/snapshots"
        first = deployment.request("POST", path, {})
        self.assertEqual(first.status, 201, first)
        self.assertEqual(deployment.request("POST", path, {}).code, "QUOTA_EXCEEDED")
        reply = deployment.request("POST", "/threads/u/sandbox", {"volumes": [{"name": "b", "path": "/a"}]})
        self.assertEqual(reply.code, "QUOTA_EXCEEDED")
        deployment.request("DELETE", "/snapshots/" + first.json["snapshot"]["id"])
        self.assertEqual(deployment.request("POST", path, {}).status, 201)
        actions = {each["action"] for each in deployment.request("GET", "/audit?limit=200").json["records"]}
        self.assertLessEqual({"snapshot.create", "snapshot.delete", "negotiate"}, actions)

    def test_a_share_of_a_core_is_told_as_it_was_given(self):
        deployment = self.start()
        grant = deployment.negotiate("small", resources={"cpu": 0.05})
        self.assertIn(b'"cpu":0.05,', deployment.request("GET", "/sandboxes/" + grant["sandbox"]["id"]).body)


@needs_root
class Document(Policy):
    """One deployment: each test puts its own document in the place of the one before."""

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.user = cls.key(principal="ada", role="user")
        cls.robot = cls.key(principal="ada", role="user", actor="agent:robot")

    @classmethod
    def key(cls, **of):
        reply = cls.deployment.request("POST", "/keys", of)
        assert reply.status == 201, reply
        return reply.json["api_key"]

    def put(self, document, version="*", expect=200):
        reply = self.deployment.request("PUT", "/policy", document, headers={"If-Match": version})
        self.assertEqual(reply.status, expect, reply)
        return reply

    def ask(self, thread, key=None, **body):
        return self.deployment.request("POST", f"/threads/{thread}/sandbox", body, token=key or self.user)

    def test_shown_set_and_recorded(self):
        shown = self.deployment.request("GET", "/policy")
        self.assertEqual(shown.headers["etag"], f'"{shown.json["version"]}"')
        self.assertEqual(shown.json["defaults"]["roles"]["user"]["egress"], "public")
        new = self.put({"roles": {"user": {"ttl_max": 120}}}, version=shown.headers["etag"])
        self.assertEqual(new.json["version"], shown.json["version"] + 1)
        self.put({}, version=shown.headers["etag"], expect=412)
        for wrong in ("", '1', '"x"', 'W/"1"'):
            self.put({}, version=wrong, expect=400)
        self.put(None, expect=400)
        reply = self.put({"roles": {"user": {"tll_max": 60}}}, expect=400)
        self.assertIn("roles.user.tll_max", reply.json["error"]["message"])
        self.assertEqual(self.deployment.request("GET", "/policy").json["policy"], {"roles": {"user": {"ttl_max": 120}}})
        records = [each for each in self.deployment.request("GET", "/audit?limit=200").json["records"]
                   if each["action"] == "policy.set"]
        self.assertTrue(any(new.json["digest"] in each["detail"] for each in records), records)
        self.assertIn(412, [each["status"] for each in records])
        self.assertEqual(self.deployment.request("GET", "/policy", token=self.user).code, "FORBIDDEN")
        self.assertEqual(self.deployment.request("PUT", "/policy", {}, token=self.user).code, "FORBIDDEN")

    def test_at_once_for_tokens_that_are_refreshed(self):
        self.put({"roles": {"user": {"scopes": ["fs:rw", "process"]}}})
        grant = self.ask("cut", scopes=["fs:rw", "process", "shell"]).json
        self.assertEqual(grant["scopes"], ["fs:rw", "process"])
        self.deployment.shell(grant, "true")
        self.put({"roles": {"user": {"scopes": ["fs:ro"], "ttl_max": 60}}})
        fresh = self.deployment.request("POST", "/threads/cut/sandbox/refresh", {"current_token": grant["token"]},
                                        token=self.user).json
        self.assertEqual(fresh["scopes"], ["fs:ro"])
        self.assertEqual(self.deployment.exec(fresh, cmd="true").code, "CAPABILITY_DENIED")
        again = self.ask("cut", scopes=["fs:ro", "process"]).json
        self.assertEqual(again["scopes"], ["fs:ro"])
        self.assertEqual(self.deployment.exec(again, cmd="true").code, "CAPABILITY_DENIED")

    def test_no_lease_is_prolonged_over_what_a_new_one_may_have(self):
        self.put({"roles": {"user": {"idle_max": 120, "lifetime_max": 600}}})
        grant = self.ask("idle").json
        self.assertEqual(grant["lease"]["idle_timeout"], 120)
        self.assertIn("roles.user.idle_max", self.ask("idle", idle_timeout=3600).json["error"]["message"])
        hint = grant["sandbox"]["id"]
        self.assertIn("roles.user.lifetime_max",
                      self.ask("idle2", sandbox_id=hint, max_lifetime=3600).json["error"]["message"])
        again = self.ask("idle2", sandbox_id=hint).json
        self.assertEqual(again["sandbox"]["id"], hint)
        # A lease after another is no longer life than one of them.
        self.assertEqual(again["lease"]["max_expires_at"], grant["lease"]["max_expires_at"])

    def test_a_running_sandbox_gets_no_more_network(self):
        self.put({"roles": {"user": {"egress": "allow", "egress_hosts": ["*.example.org"]}}})
        sandbox = self.ask("net").json["sandbox"]["id"]
        for network in ({"egress": "public"}, {"egress": "allow", "allow": ["example.com"]}):
            reply = self.deployment.request("PATCH", "/sandboxes/" + sandbox, {"network": network}, token=self.user)
            self.assertEqual(reply.code, "FORBIDDEN", reply)
            self.assertIn("roles.user.egress", reply.json["error"]["message"])

    def test_agents_and_those_that_are_pinned(self):
        self.put({"roles": {"user:agent": {"scopes": ["process"], "templates": ["no-such"]}}})
        self.assertIn("shell", self.ask("human").json["scopes"])
        said = self.ask("said", actor={"type": "agent", "id": "x"})
        self.assertEqual(said.code, "FORBIDDEN")
        self.assertIn("role user as agent may not use template base; allowed: no-such (roles.user:agent.templates)",
                      said.json["error"]["message"])
        self.assertEqual(self.ask("pinned", key=self.robot).code, "FORBIDDEN")  # though it does not say so
        self.assertEqual(self.ask("lied", key=self.robot, actor={"type": "human"}).status, 403)
        attached = self.ask("human", key=self.robot)  # a sandbox of his principal: less in the token
        self.assertEqual(attached.json["scopes"], ["process"], attached)

    def test_why_says_what_would_be_said(self):
        self.put({"roles": {"user": {"templates": ["py-*"], "quota": {"sandboxes": 7}},
                            "user:agent": {"egress": "none"}}, "principals": {"bob": {"egress": "allow"}}})

        def why(key="", **body):
            reply = self.deployment.request("POST", "/policy/why", body, token=key)
            self.assertEqual(reply.status, 200, reply)
            return reply.json["allowed"], {each["rule"]: each for each in reply.json["rules"]}
        allowed, rules = why(self.user, template="base", ttl=3600)
        self.assertFalse(allowed)
        self.assertEqual((rules["templates"]["verdict"], rules["templates"]["where"]), ("no", "roles.user.templates"))
        self.assertEqual(rules["quota.sandboxes"]["allowed"], 7)
        self.assertEqual(why(self.user, template="py-3")[0], True)
        public = {"egress": "public"}
        self.assertEqual(why(self.robot, template="py-3", network=public)[1]["egress"]["where"], "roles.user:agent.egress")
        self.assertEqual(why(role="user", actor="agent", network=public)[1]["egress"]["verdict"], "no")
        self.assertEqual(why(principal="bob", network=public)[1]["egress"]["where"], "principals.bob.egress")
        self.assertEqual(why(network=public)[0], True)  # the admin himself
        for body, status in (({"principal": "bob"}, 404), ({"role": "admin"}, 403), ({"role": "robot"}, 400),
                             ({"unknown": 1}, 400)):
            reply = self.deployment.request("POST", "/policy/why", body, token=self.user)
            self.assertEqual(reply.status, status, (body, reply))

    def test_command_line_and_restart(self):
        path = self.deployment.folder + "/policy.json"
        document = {"roles": {"user": {"root": True}, "user:agent": {"ttl_max": 60}}}
        with open(path, "w") as file:
            json.dump(document, file)
        done = self.deployment.cli("policy", "set", path)
        self.assertRegex(done.stdout, "version [0-9]+ is in force")
        self.assertEqual(json.loads(self.deployment.cli("policy", "show").stdout), document)
        self.assertEqual(self.deployment.cli("policy", "set", path, "--version", "99").returncode, 1)
        done = self.deployment.cli("policy", "why", "--as", "user", "--actor", "agent", "--ttl", "600")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"cut +ttl_max +600 +60 +\(roles.user:agent.ttl_max\)")
        self.deployment.kill("parley-negotiator")  # its supervisor starts it again
        self.deployment.wait_ready()
        self.assertEqual(self.deployment.request("GET", "/policy").json["policy"], document)


if __name__ == "__main__":
    unittest.main()
