"""Sharing a thread's sandbox: a link whose holder follows a terminal and cannot type, a named principal who works in it with
tokens of its own, what neither gets beside that, and what ends it. As the CLI has it, and on the wire."""
import http.client
import json
import os
import re
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.tmux import Tmux  # noqa: E402
from parley_testing.websocket import Refused, Session  # noqa: E402

PROMPT = r"user@[\w-]+:\S*\$ $"
OUTSIDE = r"outside\$ $"


class ShareTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.keys = {}

    def setUp(self):
        self.name = re.sub(r"\W|_", "", self._testMethodName)[4:28]

    def key(self, principal, role="user"):
        """An API key of a principal of this class."""
        if principal not in self.keys:
            made = self.deployment.request("POST", "/keys", {"principal": principal, "role": role})
            self.assertEqual(made.status, 201, made)
            self.keys[principal] = made.json["api_key"]
        return self.keys[principal]

    def share(self, expect=201, thread=None, query="", token="", **body):
        reply = self.deployment.request("POST", f"/threads/{thread or self.name}/sandbox/share{query}", body, token=token)
        self.assertEqual(reply.status, expect, reply)
        return reply.json

    def shares(self, thread=None):
        return self.deployment.request("GET", f"/threads/{thread or self.name}/sandbox/shares").json["shares"]

    def unshare(self, share, expect=200, token=""):
        reply = self.deployment.request("DELETE", f"/threads/{self.name}/sandbox/shares/{share}", token=token)
        self.assertEqual(reply.status, expect, reply)

    def wait_refused(self, grant, token, seconds=20):
        """One that is under way when a mark comes is cut, without an answer."""
        until, status = time.monotonic() + seconds, 0
        while status != 401:
            self.assertLess(time.monotonic(), until)
            try:
                status = self.deployment.exec(grant, token=token, cmd="true").status
            except (http.client.HTTPException, ConnectionError):
                pass

    def foreign(self, *arguments, key=None, **more):
        """The CLI of somebody who has no file of this deployment, and a key only if told."""
        folder = os.path.join(self.deployment.folder, "foreign-" + (key[-6:] if key else "none"))
        environment = dict(self.deployment.environment, XDG_CONFIG_HOME=folder + "/config", XDG_CACHE_HOME=folder + "/cache",
                           PARLEY_STATE=folder + "/state")
        if self.deployment.tls:
            environment["PARLEY_CA_FILE"] = self.deployment.state + "/tls/ca.pem"
        if key:
            environment.update(PARLEY_API_KEY=key, PARLEY_URL=self.deployment.url)
        saved, self.deployment.environment = self.deployment.environment, environment
        try:
            return self.deployment.cli(*arguments, **more)
        finally:
            self.deployment.environment = saved

    def records(self, **filters):
        """Once the node has shipped what it has to say."""
        query = "&".join(f"{name}={value}" for name, value in filters.items())
        return self.deployment.request("GET", f"/audit?all=1&limit=1000&{query}").json["records"]

    def wait_record(self, seconds=20, **filters):
        until = time.monotonic() + seconds
        while not self.records(**filters):
            self.assertLess(time.monotonic(), until, f"no record {filters}")
            time.sleep(0.1)
        return self.records(**filters)


@needs_root
class Link(ShareTest):
    """A share for whoever holds it."""

    def test_what_the_reply_says(self):
        grant = self.deployment.negotiate(self.name, metadata={"ticket": "a secret plan"})
        made = self.share(scopes=["shell:ro"], ttl=600, capability_url=True)
        self.assertEqual(made["scopes"], ["shell:ro"])
        self.assertEqual(made["share"], {"id": made["jti"], "principal": None, "until": made["expires_at"]})
        self.assertEqual(made["sandbox"]["id"], grant["sandbox"]["id"])
        self.assertEqual(made["lease"]["id"], grant["lease"]["id"])
        self.assertNotIn("a secret plan", json.dumps(made))
        self.assertEqual(made["endpoints"]["capability"], f"{self.deployment.node_url}/c/{made['token']}/")
        listed = self.shares()
        self.assertEqual([(each["id"], each["principal"], each["scopes"]) for each in listed],
                         [(made["jti"], None, ["shell:ro"])])
        self.assertNotIn(made["token"], json.dumps(listed))
        signed = self.deployment.request("POST", f"/threads/{self.name}/sandbox/heartbeat", {}, token=made["token"])
        self.assertEqual(signed.status, 200, signed)
        self.assertNotIn("a secret plan", json.dumps(signed.json))

    def test_what_is_refused(self):
        self.share(expect=404, scopes=["shell:ro"])
        self.deployment.negotiate(self.name)
        for body, word in (({}, "scopes"), ({"scopes": []}, "scopes"), ({"scopes": ["root"]}, "scopes"),
                           ({"scopes": ["shell:ro"], "ttl": 59}, "ttl"), ({"scopes": ["shell:ro"], "ttl": 3601}, "ttl"),
                           ({"scopes": ["shell:ro"], "template": "base"}, "template"),
                           ({"scopes": ["shell:ro"], "principal": "a b"}, "principal"),
                           ({"scopes": ["shell:ro"], "principal": "share:tok_x"}, "principal"),
                           ({"scopes": ["shell:ro"], "principal": None}, "principal"),
                           ({"scopes": ["shell:ro"], "until": "2099-01-01T00:00:00Z"}, "until"),
                           ({"scopes": ["shell:ro"], "principal": "bob", "until": "2001-01-01T00:00:00Z"}, "until"),
                           ({"scopes": ["shell:ro"], "principal": "bob", "until": "soon"}, "until")):
            with self.subTest(body=body):
                self.assertIn(word, self.share(expect=400, **body)["error"]["message"])
        self.assertEqual(self.shares(), [])
        self.unshare("tok_" + "a" * 20, expect=404)
        self.unshare("nonsense", expect=404)

    def test_nobody_refreshes_it_nor_shares_it_on(self):
        self.deployment.negotiate(self.name)
        made = self.share(scopes=["shell:ro"])
        for token in ("", made["token"]):
            reply = self.deployment.request("POST", f"/threads/{self.name}/sandbox/refresh",
                                            {"current_token": made["token"]}, token=token)
            self.assertEqual(reply.status, 401 if token else 404, reply)
        self.share(expect=401, scopes=["shell:ro"], token=made["token"])

    def test_it_watches_and_types_nothing(self):
        """The attacks first with a token that may: so it is the scope that keeps them off."""
        grant = self.deployment.negotiate(self.name, scopes=["shell", "process", "fs:rw"])
        made = self.share(scopes=["shell:ro"])
        owner = Session(grant["endpoints"]["ws"], grant["token"])
        self.addCleanup(owner.drop)
        owner.expect("auth_ok")
        owner.tell("start", argv=["/bin/cat"], tty=True, cols=80, rows=24, id="trm_shared")
        owner.expect("started")
        owner.type("before\n")
        owner.until(b"before\r\nbefore\r\n")
        watcher = Session(grant["endpoints"]["ws"], made["token"])
        self.addCleanup(watcher.drop)
        self.assertEqual(watcher.expect("auth_ok")["scopes"], ["shell:ro"])
        watcher.tell("attach", id="trm_shared", mode="drive", stdout_offset=0)
        self.assertEqual(watcher.expect("error")["code"], "CAPABILITY_DENIED")
        watcher.tell("attach", id="trm_shared", mode="watch", stdout_offset=0)
        watcher.until(b"before\r\nbefore\r\n")
        watcher.type("evil\n")
        self.assertIn(watcher.expect("error")["code"], ("CAPABILITY_DENIED", "FORBIDDEN"))
        owner.type("after\n")
        owner.until(b"after\r\nafter\r\n")
        watcher.until(b"after\r\nafter\r\n")
        self.assertNotIn(b"evil", owner.output)
        for method, path, body in (("POST", "/exec", {"cmd": "true", "stream": "none"}), ("GET", "/files/etc/hostname", None),
                                   ("GET", "/processes", None), ("DELETE", "/processes/trm_shared", None),
                                   ("POST", "/processes/trm_shared/stdin", b"evil\n")):
            with self.subTest(path=path):
                url = grant["endpoints"]["http"] + path
                self.assertEqual(self.deployment.request(method, url, body, token=made["token"]).status, 403)
        self.unshare(made["share"]["id"])
        self.assertEqual(watcher.wait_closed(20).code, 4401)
        with self.assertRaises(Refused) as refused:
            Session(grant["endpoints"]["ws"], made["token"])
        self.assertEqual(refused.exception.status, 401)
        owner.type("mine\n")
        owner.until(b"mine\r\nmine\r\n")

    def test_it_ends_with_the_lease(self):
        grant = self.deployment.negotiate(self.name)
        other = self.deployment.negotiate(self.name + "2", sandbox=grant["sandbox"]["id"], hint_policy="require")
        made = self.share(scopes=["process"])
        self.assertEqual(self.deployment.exec(grant, token=made["token"], cmd="true").status, 200)
        self.assertEqual(self.deployment.request("DELETE", f"/threads/{self.name}/sandbox").status, 204)
        self.wait_refused(grant, made["token"])
        self.assertEqual(self.deployment.exec(other, cmd="true").status, 200)

    def test_the_cli_uses_a_url_for_what_its_scopes_give(self):
        grant = self.deployment.negotiate(self.name)
        self.deployment.shell(grant, "echo shared words > note")
        made = self.deployment.cli("share", "--thread", self.name, "--scopes", "process fs:ro", "--json")
        self.assertEqual(made.returncode, 0, made)
        url = json.loads(made.stdout)["url"]
        done = self.foreign("run", "--url", url, "--", "cat", "note")
        self.assertEqual((done.returncode, done.stdout), (0, "shared words\n"), done)
        done = self.foreign("cat", "--url", "-", ":note", input=url)
        self.assertEqual((done.returncode, done.stdout), (0, "shared words\n"), done)
        done = self.foreign("put", "--url", url, ":note", input="other words")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("fs:rw", done.stderr)
        for command in (("ls",), ("rm", grant["sandbox"]["id"]), ("share",), ("audit",)):
            with self.subTest(command=command):  # and never one's own sandbox in its place
                done = self.deployment.cli(*command, "--url", url)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("negotiator", done.stderr)
        narrow = self.foreign("token", "--url", url, "--attenuate", "fs:ro@/workspace", "--note", "for a friend")
        self.assertEqual(narrow.returncode, 0, narrow)
        friends = url.split("/c/")[0] + "/c/" + narrow.stdout.strip() + "/"
        self.assertEqual(self.foreign("cat", "--url", friends, ":note").stdout, "shared words\n")
        self.assertNotEqual(self.foreign("run", "--url", friends, "--", "true").returncode, 0)
        listed = self.deployment.cli("shares", "--thread", self.name)
        self.assertRegex(listed.stdout, r"tok_\w+ +\(the URL's holder\).* process fs:ro")
        ended = self.deployment.cli("unshare", "--thread", self.name, "--all")
        self.assertEqual(ended.returncode, 0, ended)
        self.assertEqual(self.shares(), [])
        done = self.foreign("run", "--url", url, "--", "true")
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("revoked", done.stderr)
        self.assertNotIn(url.split("/c/")[1], done.stderr + done.stdout)


@needs_root
@unittest.skipUnless(Tmux.is_there(), "needs tmux")
class Watching(ShareTest):
    """A link in the hands of a person."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tmux = Tmux(cls.deployment)
        cls.addClassCleanup(cls.tmux.close)

    def open(self, name):
        self.tmux.open(name)
        self.addCleanup(self.tmux.close, name)
        return name

    def watcher_words(self):
        """The command lines of all `parley attach` of this deployment."""
        found = []
        for pid in self.deployment.pids("parley"):
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                found.append(words.read())
        return [words for words in found if b"\0attach\0" in words]

    def test_a_watcher_follows_with_replay_and_cannot_type(self):
        owner, watcher = self.open("owner"), self.open("watcher")
        self.tmux.line(owner, f"parley shell --thread {self.name}")
        self.tmux.wait(owner, PROMPT)
        self.tmux.line(owner, "echo said before")
        self.tmux.wait(owner, r"^said before\n" + PROMPT)
        made = self.deployment.cli("share", "--thread", self.name)
        self.assertEqual(made.returncode, 0, made)
        url = made.stdout.strip()
        self.assertNotIn(url, made.stderr)
        nobody = f"{self.deployment.folder}/nobody"
        self.tmux.line(watcher, f"env -u PARLEY_STATE XDG_CONFIG_HOME={nobody} XDG_CACHE_HOME={nobody} "
                                f"PARLEY_URL=http://127.0.0.1:1 parley attach --url {url}; echo status $?")
        self.tmux.wait(watcher, r"watching: the token has scope shell:ro")
        self.tmux.wait(watcher, r"^said before$")
        self.assertEqual(len(self.watcher_words()), 1)
        self.assertNotIn(url.split("/c/")[1].strip("/").encode(), self.watcher_words()[0])
        self.tmux.line(owner, "echo said after")
        self.tmux.wait(watcher, r"^said after$")
        self.tmux.line(watcher, "echo typed by the watcher")
        self.tmux.wait(watcher, r"only watching: keys are not sent")
        self.tmux.line(owner, "echo the end")
        self.assertNotIn("typed by the watcher", self.tmux.wait(owner, r"^the end\n" + PROMPT, history=True))
        share = re.search(r"parley (unshare .*tok_\w+)", made.stderr).group(1)
        ended = self.deployment.cli(*share.split())
        self.assertEqual(ended.returncode, 0, ended)
        self.tmux.wait(watcher, r"^status 125$")
        self.tmux.line(owner, "echo still here")
        self.tmux.wait(owner, r"^still here\n" + PROMPT)

    def test_ctrl_c_leaves(self):
        owner, watcher = self.open("owner2"), self.open("watcher2")
        self.tmux.line(owner, f"parley shell --thread {self.name}")
        self.tmux.wait(owner, PROMPT)
        url = self.deployment.cli("share", "--thread", self.name).stdout.strip()
        terminal = re.search(r"trm_\w+", self.deployment.cli("ps", "--thread", self.name).stdout).group()
        self.tmux.line(watcher, f"parley attach {terminal} --url {url}; echo status $?")
        self.tmux.wait(watcher, r"watching")
        self.tmux.wait(watcher, PROMPT)
        self.tmux.keys(watcher, "C-c")
        self.tmux.wait(watcher, r"status 0$")


@needs_root
class Principals(ShareTest):
    """A share for somebody with a key of its own."""

    def test_two_principals_in_one_sandbox(self):
        bob = self.key("bob")
        grant = self.deployment.negotiate(self.name, actor={"type": "agent", "id": "builder"})
        made = self.share(principal="bob", scopes=["process", "fs:rw"])
        self.assertEqual(made["share"]["principal"], "bob")
        self.deployment.shell(grant, "echo one > /workspace/a")
        self.assertEqual(self.deployment.exec(grant, token=made["token"], cmd="cat a; echo two > b").json["stdout"], "one\n")
        self.assertEqual(self.deployment.shell(grant, "cat b"), "two\n")
        ours = self.wait_record(jti=grant["jti"], action="exec")
        theirs = self.wait_record(jti=made["jti"], action="exec")
        self.assertEqual({(each["principal"], each["actor"]) for each in theirs}, {("bob", "human")})
        self.assertEqual({each["actor"] for each in ours}, {"agent:builder"})
        self.assertNotIn("bob", {each["principal"] for each in ours})
        mine = Session(grant["endpoints"]["ws"], grant["token"])
        his = Session(grant["endpoints"]["ws"], made["token"])
        for session in (mine, his):
            self.addCleanup(session.drop)
            session.expect("auth_ok")
            session.tell("start", cmd="cat", tty=False)
            session.expect("started")
        revoked = self.deployment.request("POST", "/revocations", {"principal": "bob", "reason": "bob has left"})
        self.assertEqual(revoked.status, 200, revoked)
        self.assertEqual(his.wait_closed(20).code, 4401)
        self.assertEqual(self.deployment.exec(grant, token=made["token"], cmd="true").status, 401)
        mine.type("on\n")
        mine.until(b"on\n")
        reply = self.deployment.request("POST", f"/threads/{self.name}/sandbox/refresh", {"current_token": made["token"]},
                                        token=bob)
        self.assertEqual((reply.status, reply.code), (401, "TOKEN_REVOKED"), reply)

    def test_refresh_until(self):
        bob, eve = self.key("bob"), self.key("eve")
        grant = self.deployment.negotiate(self.name)
        made = self.share(principal="bob", scopes=["process"], ttl=60)
        path = f"/threads/{self.name}/sandbox/refresh"
        for key in ("", eve):
            reply = self.deployment.request("POST", path, {"current_token": made["token"]}, token=key)
            self.assertEqual(reply.status, 404, reply)
        fresh = self.deployment.request("POST", path, {"current_token": made["token"], "ttl": 3600}, token=bob)
        self.assertEqual(fresh.status, 200, fresh)
        self.assertEqual(fresh.json["share"], made["share"])
        self.assertEqual(fresh.json["sandbox"]["id"], grant["sandbox"]["id"])
        self.assertEqual(self.deployment.exec(grant, token=fresh.json["token"], cmd="true").status, 200)
        lost = self.deployment.request("POST", path, {"current_token": made["token"]}, token=bob)
        self.assertEqual(lost.json["token"], fresh.json["token"])
        self.unshare(made["share"]["id"], expect=404, token=bob)
        self.unshare(made["share"]["id"])
        self.assertEqual(self.deployment.exec(grant, token=fresh.json["token"], cmd="true").status, 401)
        self.assertEqual(self.deployment.exec(grant, cmd="true").status, 200)

    def test_it_gives_a_token_and_nothing_else(self):
        bob = self.key("bob")
        grant = self.deployment.negotiate(self.name, name=f"{self.name}-box", metadata={"plan": "secret"})
        sandbox = grant["sandbox"]["id"]
        made = self.share(principal="bob", scopes=["process", "snapshot"])
        self.assertEqual(self.deployment.exec(grant, token=made["token"], cmd="true").status, 200)
        for path in (f"/threads/{self.name}/sandbox", f"/sandboxes/{sandbox}", f"/threads/{self.name}/sandbox/shares"):
            self.assertEqual(self.deployment.request("GET", path, token=bob).status, 404, path)
        listed = self.deployment.request("GET", "/sandboxes?state=all", token=bob)
        self.assertNotIn(sandbox, listed.body.decode())
        for hint in (sandbox, f"{self.name}-box"):
            reply = self.deployment.request("POST", "/threads/hinted/sandbox",
                                            {"sandbox": hint, "hint_policy": "require", "mode": "attach_only"}, token=bob)
            self.assertEqual(reply.status, 404, reply)
        self.assertEqual(self.deployment.request("DELETE", f"/sandboxes/{sandbox}", token=bob).status, 404)
        self.assertEqual(self.deployment.request("DELETE", f"/threads/{self.name}/sandbox", token=bob).status, 404)
        self.share(expect=404, principal="eve", scopes=["process"], token=bob)
        self.share(expect=404, principal="eve", scopes=["process"], token=bob, query="?principal=admin")
        self.assertNotIn("secret", json.dumps(made))

    def test_his_cli_renews_it_with_his_own_key(self):
        bob = self.key("bob")
        grant = self.deployment.negotiate(self.name)
        made = self.deployment.cli("share", "--thread", self.name, "--to", "bob", "--scopes", "process", "--until", "1h",
                                   "--json")
        self.assertEqual(made.returncode, 0, made)
        url = json.loads(made.stdout)["url"]
        seen = []
        for _ in range(3):  # the URL's own token is spent then: what was made of it is in his cache
            shown = self.foreign("token", "--refresh", "--url", url, key=bob)
            self.assertEqual(shown.returncode, 0, shown)
            seen.append(json.loads(shown.stdout)["jti"])
        self.assertEqual(len(set(seen)), 3)
        done = self.foreign("run", "--url", url, "--", "echo", "hello", key=bob)
        self.assertEqual((done.returncode, done.stdout), (0, "hello\n"), done)
        self.assertEqual([(each["principal"], each["jti"]) for each in self.shares()], [("bob", seen[-1])])
        self.assertEqual(self.deployment.exec(grant, cmd="true").status, 200)

    def test_the_owner_sees_what_others_do_in_it(self):
        alice, bob = self.key("alice"), self.key("bob")
        own = self.deployment.request("POST", f"/threads/{self.name}/sandbox", {}, token=alice).json
        made = self.share(principal="bob", scopes=["process"], token=alice)
        sandbox = own["sandbox"]["id"]
        self.assertEqual(self.deployment.exec(own, token=made["token"], cmd="echo by bob").status, 200)
        self.wait_record(jti=made["jti"], action="exec")
        seen = self.deployment.request("GET", f"/audit?sandbox={sandbox}", token=alice).json["records"]
        self.assertIn("bob", {each["principal"] for each in seen if each["action"] == "exec"})
        self.assertIn("alice", {each["principal"] for each in seen if each["action"] == "share"})
        his = self.deployment.request("GET", f"/audit?sandbox={sandbox}", token=bob).json["records"]
        self.assertEqual({each["principal"] for each in his}, {"bob"})
        self.assertEqual({each["principal"] for each in self.deployment.request("GET", "/audit", token=alice).json["records"]},
                         {"alice"})

    def test_a_deleted_key_ends_what_was_shared_with_it(self):
        bob = self.key("bob")
        made = self.deployment.request("POST", "/keys", {"principal": "carol", "role": "user"}).json
        carol, path = made["api_key"], f"/keys/{(made.get('key') or made)['id']}"
        own = self.deployment.request("POST", f"/threads/{self.name}/sandbox", {}, token=carol).json
        link = self.share(scopes=["process"], token=carol)
        token = self.share(principal="bob", scopes=["process"], token=carol)["token"]
        fresh = self.deployment.request("POST", f"/threads/{self.name}/sandbox/refresh", {"current_token": token}, token=bob)
        self.assertEqual(fresh.status, 200, fresh)
        for token in (link["token"], fresh.json["token"]):
            self.assertEqual(self.deployment.exec(own, token=token, cmd="true").status, 200)
        self.assertIn(self.deployment.request("DELETE", path).status, (200, 202, 204))
        for token in (link["token"], fresh.json["token"], own["token"]):
            self.wait_refused(own, token)
        self.share(expect=401, scopes=["process"], token=carol)

    def test_a_pinned_key_says_who_acts(self):
        reply = self.deployment.request("POST", "/keys", {"principal": "dora", "role": "user", "actor": "agent:planner"})
        self.assertEqual(reply.status, 201, reply)
        self.deployment.negotiate(self.name)
        made = self.share(principal="dora", scopes=["process"])
        fresh = self.deployment.request("POST", f"/threads/{self.name}/sandbox/refresh", {"current_token": made["token"]},
                                        token=reply.json["api_key"])
        self.assertEqual(fresh.status, 200, fresh)
        self.assertEqual([each["actor"] for each in self.shares()], ["agent:planner"])

    def test_the_owner_shut_out_ends_what_he_shared(self):
        alice = self.key("alice")
        own = self.deployment.request("POST", f"/threads/{self.name}/sandbox", {}, token=alice).json
        made = self.share(scopes=["process"], token=alice)
        self.assertEqual(self.deployment.exec(own, token=made["token"], cmd="true").status, 200)
        revoked = self.deployment.request("POST", "/revocations", {"principal": "alice", "reason": "alice has left"})
        self.assertEqual(revoked.status, 200, revoked)
        self.assertEqual(self.deployment.exec(own, token=made["token"], cmd="true").status, 401)
        admins = self.share(scopes=["process"], query="?principal=alice")
        self.assertEqual(self.deployment.exec(own, token=admins["token"], cmd="true").status, 200)


if __name__ == "__main__":
    unittest.main()
