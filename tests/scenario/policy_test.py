"""Policy (protocol.md, 2): which templates a role may begin with, whose commands may be root, how many snapshots and volumes there
may be; each refusal says what is allowed."""
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


if __name__ == "__main__":
    unittest.main()
