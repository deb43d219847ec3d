"""What the planes tell of somebody else's: nothing. A foreign sandbox, thread, command, kernel, file is answered as one that
there is not, word for word; its token opens nothing but its own sandbox; names of volumes, snapshots and templates lead nowhere
else. (How long an answer takes is compared by tests/bench/run foreign.)"""
import json
import os
import re
import secrets
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

# Method, path below a sandbox, body: each route of the data plane that names something.
ROUTES = [
    ("GET", "/info", None), ("GET", "/metrics", None), ("GET", "/processes", None), ("GET", "/processes/{process}", None),
    ("DELETE", "/processes/{process}", None), ("GET", "/processes/{process}/output", None),
    ("POST", "/processes/{process}/stdin", b"x"), ("POST", "/processes/{process}/signal", {"signal": "TERM"}),
    ("POST", "/exec", {"cmd": "id", "stream": "none"}), ("GET", "/terminals", None), ("GET", "/kernels", None),
    ("GET", "/kernels/{kernel}", None), ("DELETE", "/kernels/{kernel}", None), ("POST", "/kernels/{kernel}/interrupt", {}),
    ("POST", "/kernels/{kernel}/run", {"code": "1", "stream": "none"}), ("GET", "/files/workspace/secret", None),
    ("PUT", "/files/workspace/secret", b"x"), ("GET", "/files/workspace?list=1", None), ("GET", "/archive/workspace", None),
    ("GET", "/watch/workspace", None), ("GET", "/ports", None), ("GET", "/ports/{port}/", None), ("GET", "/kernelspecs", None),
    ("GET", "/executions/{process}/artifacts/x", None), ("POST", "/execute", {"language": "python", "code": "1"}),
]


def plain(reply, *names):
    """Status, text and the heads that say anything, without what is new each time and the names that were asked for."""
    text = re.sub(r'"request_id":"[^"]*"', '"request_id":""', reply.body.decode("utf-8", "replace"))
    for name in names:
        text = text.replace(name, "NAME")
    heads = sorted((key, value) for key, value in reply.headers.items()
                   if key not in ("date", "x-request-id", "content-length", "server-timing", "connection"))
    return reply.status, text, heads


@needs_root
class Foreign(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_AUTH_FAILURES_PER_MINUTE="0")
        cls.addClassCleanup(cls.deployment.close)
        cls.secret = "SECRET-" + secrets.token_hex(8)
        cls.mine = cls.deployment.negotiate("mine")
        cls.theirs = cls.deployment.negotiate("theirs", volumes=[{"name": "theirs", "path": "/data"}])
        cls.deployment.shell(cls.theirs, f"echo {cls.secret} > /workspace/secret; echo {cls.secret} > /data/secret")
        cls.fill()

    @classmethod
    def fill(cls):
        """What there is in the other one: a command, a kernel, a port."""
        base, token = cls.theirs["endpoints"]["http"], cls.theirs["token"]
        reply = cls.deployment.exec(cls.theirs, argv=["/usr/bin/python3", "-c",
                                                      "import socket, time\ns = socket.create_server(('127.0.0.1', 8123))\ntime.sleep(600)"],
                                    detach=True)
        kernel = cls.deployment.request("POST", base + "/kernels", {"language": "bash"}, token=token)
        assert (reply.status, kernel.status) == (201, 201), (reply, kernel)
        cls.there = {"process": reply.json["id"], "kernel": kernel.json["id"], "port": "8123"}
        cls.nowhere = {"process": "exe_" + "a" * 20, "kernel": kernel.json["id"][:-3] + "zzz", "port": "8124"}

    def url(self, sandbox, path, names):
        base = self.mine["endpoints"]["http"].replace(self.mine["sandbox"]["id"], sandbox)
        for key, value in names.items():
            path = path.replace("{" + key + "}", value)
        return base + path

    def ask(self, sandbox, route, token, names=None):
        method, path, body = route
        return self.deployment.request(method, self.url(sandbox, path, names or self.there), body, token=token, record=False)

    def test_a_foreign_sandbox_is_answered_as_none(self):
        """With a token of another sandbox, with none, with rubbish: the same words whether there is one or not."""
        there, nowhere = self.theirs["sandbox"]["id"], "sbx_" + "z" * 20
        for route in ROUTES:
            for token in (self.mine["token"], None, "rubbish", self.theirs["token"][:-6] + "AAAAAA"):
                with self.subTest(route[:2], token=str(token)[:8]):
                    foreign, absent = (plain(self.ask(sandbox, route, token), sandbox) for sandbox in (there, nowhere))
                    self.assertEqual(foreign, absent)
                    self.assertIn(foreign[0], (401, 403, 404))
                    self.assertNotIn(self.secret, foreign[1])

    def test_the_same_works_within(self):
        """The routes are right: their own token reads it."""
        own = self.theirs["sandbox"]["id"]
        for route in ROUTES:
            if route[0] == "GET" and not route[1].startswith(("/watch", "/executions", "/ports/")):
                self.assertEqual(self.ask(own, route, self.theirs["token"]).status, 200, route)
        self.assertIn(self.secret.encode(), self.ask(own, ("GET", "/files/workspace/secret", None), self.theirs["token"]).body)

    def test_names_of_the_other_sandbox_in_ones_own(self):
        """Commands, kernels and ports are a sandbox's own: those of the other are answered as ones that there are not."""
        own = self.mine["sandbox"]["id"]
        for route in ROUTES:
            if "{" not in route[1]:
                continue
            foreign = plain(self.ask(own, route, self.mine["token"], self.there), *self.there.values())
            absent = plain(self.ask(own, route, self.mine["token"], self.nowhere), *self.nowhere.values())
            self.assertEqual(foreign, absent, route)
            self.assertGreaterEqual(foreign[0], 400, route)

    def test_a_path_that_climbs_to_the_other_sandbox(self):
        other, token = self.theirs["sandbox"]["id"], self.mine["token"]
        for path in (f"/../{other}/files/workspace/secret", f"/files/../../{other}/files/workspace/secret",
                     f"/%2e%2e/{other}/files/workspace/secret", f"/..%2f{other}/files/workspace/secret",
                     f"/processes/../../{other}/info", f"/./../{other}/info", f"//{other}/info", f"/info/../../{other}/info",
                     f"/processes/{self.there['process']}%00/output", f"/kernels/..%2f..%2f{other}%2finfo",
                     f"/files/proc/1/root/../../{other}/workspace/secret", "/files/proc/1/root/workspace/secret"):
            reply = self.deployment.request("GET", self.mine["endpoints"]["http"] + path, token=token, record=False)
            self.assertGreaterEqual(reply.status, 400, path)
            self.assertNotIn(self.secret.encode(), reply.body)
            self.assertNotIn(other.encode(), reply.body.replace(path.encode(), b""))

    def test_tokens_open_nothing_of_the_negotiator(self):
        """What a sandbox's code could find is its own sandbox's token: it is no key."""
        for method, path in (("GET", "/sandboxes"), ("GET", f"/sandboxes/{self.theirs['sandbox']['id']}"), ("GET", "/threads/theirs/sandbox"),
                             ("POST", "/threads/theirs/sandbox"), ("DELETE", "/threads/theirs/sandbox"), ("GET", "/snapshots"),
                             ("POST", f"/sandboxes/{self.theirs['sandbox']['id']}/snapshots"), ("GET", "/volumes"), ("DELETE", "/volumes/theirs"),
                             ("POST", "/threads/new/sandbox"), ("GET", "/nodes"), ("GET", "/audit"), ("POST", "/execute"),
                             ("POST", f"/sandboxes/{self.theirs['sandbox']['id']}/pause"), ("POST", "/revocations")):
            body = {"sandbox": self.theirs["sandbox"]["id"], "reason": "x"} if path == "/revocations" else {} if method == "POST" else None
            reply = self.deployment.request(method, self.deployment.url + path, body, token=self.mine["token"], record=False)
            self.assertIn(reply.status, (401, 403, 404), (method, path, reply))
            nowhere = path.replace(self.theirs["sandbox"]["id"], "sbx_" + "z" * 20).replace("theirs", "nobodys")
            body = {"sandbox": "sbx_" + "z" * 20, "reason": "x"} if path == "/revocations" else body
            absent = self.deployment.request(method, self.deployment.url + nowhere, body, token=self.mine["token"], record=False)
            self.assertEqual(plain(reply, self.theirs["sandbox"]["id"], "theirs"), plain(absent, "sbx_" + "z" * 20, "nobodys"))
        self.assertEqual(self.deployment.shell(self.theirs, "echo alive"), "alive\n")

    def test_absent_and_foreign_threads(self):
        """For who may see neither: a wrong key, a viewer's words are another test's."""
        for method, path in (("GET", "/threads/{}/sandbox"), ("DELETE", "/threads/{}/sandbox"), ("POST", "/threads/{}/sandbox/heartbeat"),
                             ("POST", "/threads/{}/sandbox/refresh")):
            said = [plain(self.deployment.request(method, self.deployment.url + path.format(thread), {} if method == "POST" else None,
                                                  token=token, record=False), thread)
                    for token in (self.mine["token"], None, "rubbish") for thread in ("theirs", "nobodys")]
            for there, nowhere in zip(said[::2], said[1::2]):
                self.assertEqual(there, nowhere, path)
                self.assertIn(there[0], (401, 403, 404))

    def test_files_that_are_not_there_and_files_one_may_not_see(self):
        """A file of nobody's and one in a folder that is closed are told apart by the kernel's own words alone."""
        base = self.mine["endpoints"]["http"]
        for path in ("/workspace/none", "/proc/999999/status", "/dev/kmsg", "/sys/kernel/notes", "/var/tmp/none", "/root/none"):
            reply = self.deployment.request("GET", f"{base}/files{path}", token=self.mine["token"], record=False)
            self.assertIn((reply.status, reply.code), ((404, "NOT_FOUND"), (403, "FORBIDDEN")), path)
            self.assertNotIn(self.deployment.state, reply.body.decode())

    def test_words_that_act_on_a_terminal(self):
        """What a sandbox's user, or its agent, has in a command line is shown by `parley audit`, and not done by the terminal."""
        marks = ("\x1b]0;title\x07", "\x1b[2J", "\u009b31m", "\u202e", "\u2066", "\r\n9 forged line", "\x7f\x08")
        for mark in marks:
            self.deployment.exec(self.mine, argv=["/bin/echo", mark + "shown"])
        deadline, said = time.monotonic() + 30, ""
        while said.count("shown") < len(marks):
            self.assertLess(time.monotonic(), deadline, said)
            said = self.deployment.cli("audit").stdout
        self.assertFalse([mark for mark in marks if mark in said])
        self.assertFalse([line for line in said.splitlines() if line.startswith("9 forged")])

    def test_names_of_volumes_snapshots_and_templates(self):
        """No name leads out of its store."""
        snapshot = self.deployment.request("POST", f"/sandboxes/{self.theirs['sandbox']['id']}/snapshots", {"name": "one"})
        self.assertEqual(snapshot.status, 201, snapshot)
        state = os.path.realpath(self.deployment.state)
        for name in ("../snapshots/one", "..", ".", "", "/etc", f"{state}/sandboxd/journal", "theirs/../theirs", "a/b", "v\0", "%2e%2e", "-x", "x" * 300):
            with self.subTest(name=name[:40]):
                for body in ({"volumes": [{"name": name, "path": "/data"}]}, {"template": name or "/"}, {"template": "snapshot:" + name}):
                    reply = self.deployment.request("POST", "/threads/names/sandbox", body)
                    self.assertGreaterEqual(reply.status, 400, (body, reply))
                    self.assertNotIn(state, reply.body.decode())
                if name and "\0" not in name:
                    escaped = json.dumps(name).strip('"').replace("/", "%2F")
                    self.assertGreaterEqual(self.deployment.request("DELETE", f"/volumes/{escaped}", record=False).status, 400)
                    self.assertGreaterEqual(self.deployment.request("DELETE", f"/snapshots/{escaped}", record=False).status, 400)
        for path in ("/proc", "/proc/1", "/dev", "/sys", "/", "..", "/data/../..", "data", "/data/\0", "/usr/../../x", "/dev/shm"):
            reply = self.deployment.request("POST", "/threads/places/sandbox", {"volumes": [{"name": "place", "path": path}]})
            self.assertGreaterEqual(reply.status, 400, (path, reply))
        self.assertEqual(self.deployment.shell(self.theirs, "cat /data/secret").strip(), self.secret)


if __name__ == "__main__":
    unittest.main()
