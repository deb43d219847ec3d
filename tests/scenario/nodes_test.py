"""Nodes (protocol.md, 8): a join token serves one node, once, whoever stands in between; drain, re-keying and lost do
what they say, and what runs lives on."""
import ctypes
import ctypes.util
import hashlib
import hmac
import http.server
import json
import os
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing import token as tokens  # noqa: E402
from parley_testing.deployment import BIN, free_ports  # noqa: E402
from parley_testing.remains import held, living  # noqa: E402


class Relay:
    """Stands between a node and the negotiator: sees all, changes what it likes."""

    def __init__(self, deployment):
        self.deployment, self.seen = deployment, []
        self.on_ask = self.on_answer = lambda body: body
        relay = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                asked = self.rfile.read(int(self.headers["Content-Length"]))
                sent = relay.on_ask(json.loads(asked))
                status, answer = relay.forward(sent)
                relay.seen.append((asked, status, answer))
                if status == 200:
                    answer = json.dumps(relay.on_answer(json.loads(answer))).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def forward(self, body):
        reply = self.deployment.request("POST", self.deployment.url + "/node/v1/enrol", body, token=None)
        return reply.status, reply.body

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def prove(ask, secret):
    """The proof of a request, made from the outside: by whoever has that secret."""
    transcript = hashlib.blake2b(digest_size=32)
    for field in (tokens.unb64(ask["id"]), ask["name"].encode(), tokens.unb64(ask["public_key"]),
                  tokens.unb64(ask["nonce"])):
        transcript.update(struct.pack(">I", len(field)) + field)
    return tokens.b64(hmac.new(secret, transcript.digest(), hashlib.sha256).digest())


def enrol(state, node, token, url):
    return subprocess.run([BIN + "/parley-sandboxd", "enrol", "--node", node, "--negotiator-url", url, "--state", state],
                          env=dict(os.environ, PARLEY_JOIN_TOKEN=token), capture_output=True, text=True, timeout=60)


def join_token(deployment, node):
    reply = deployment.request("POST", "/nodes", {"name": node})
    if reply.status != 201:
        raise AssertionError(reply)
    return reply.json["join_token"]


@needs_root
class Enrolment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.relay = Relay(cls.deployment)
        cls.addClassCleanup(cls.relay.close)

    def setUp(self):
        self.relay.on_ask = self.relay.on_answer = lambda body: body
        self.state = f"{self.deployment.folder}/{self._testMethodName}"
        self.node_file = self.state + "/sandboxd/node.json"

    def enrolled(self):
        with open(self.node_file) as file:
            return json.load(file)

    def refused(self, done, word):
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(word, done.stderr)
        self.assertFalse(os.path.exists(self.node_file))

    def test_through_a_relay_that_only_reads(self):
        token = join_token(self.deployment, "reads")
        done = enrol(self.state, "reads", token, self.relay.url)
        self.assertEqual(done.returncode, 0, done.stderr)
        node = self.enrolled()
        self.assertEqual((node["node"], node["epoch"]), ("reads", 1))
        self.assertEqual(os.stat(self.node_file).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(self.state + "/sandboxd").count("enrolling"), 0)
        with open(self.deployment.state + "/negotiator/master.key", "rb") as master:
            self.assertEqual(node["node_key"], tokens.b64(tokens.kdf(master.read(), "parley/node/1", "reads", "1")))
        wire = b"".join(asked + answer for asked, _, answer in self.relay.seen)
        secret = tokens.unb64(token[3:])[16:48]
        for hidden in (secret, tokens.b64(secret).encode(), token.encode(), node["node_key"].encode(),
                       node["node_secret_key"].encode()):
            self.assertNotIn(hidden, wire)
        self.assertNotIn(token, self.deployment.logs())

    def test_a_request_with_another_key_is_refused(self):
        token = join_token(self.deployment, "swapped")

        def swap(ask):
            return dict(ask, public_key=tokens.b64(os.urandom(32)))

        self.relay.on_ask = swap
        self.refused(enrol(self.state, "swapped", token, self.relay.url), "401")
        self.relay.on_ask = lambda ask: dict(swap(ask), proof=prove(swap(ask), os.urandom(32)))
        self.refused(enrol(self.state, "swapped", token, self.relay.url), "401")
        for field in ("id", "nonce", "proof"):
            self.relay.on_ask = lambda ask, field=field: dict(ask, **{field: tokens.b64(os.urandom(len(tokens.unb64(ask[field]))))})
            self.refused(enrol(self.state, "swapped", token, self.relay.url), "401")
        self.relay.on_ask = lambda ask: dict(ask, name="n9")
        self.refused(enrol(self.state, "swapped", token, self.relay.url), "401")
        # None of that has used the token up; and the proof made here is one, with the right secret.
        secret = tokens.unb64(token[3:])[16:48]
        self.relay.on_ask = lambda ask: dict(ask, proof=prove(ask, secret))
        self.assertEqual(enrol(self.state, "swapped", token, self.relay.url).returncode, 0)

    def test_an_answer_that_is_not_the_negotiators_is_refused(self):
        token = join_token(self.deployment, "answered")
        self.relay.on_answer = lambda answer: dict(answer, public_key=tokens.b64(os.urandom(32)))
        self.refused(enrol(self.state, "answered", token, self.relay.url), "stands between")
        for field in ("box", "nonce"):
            self.relay.on_answer = lambda answer, field=field: dict(answer, **{
                field: tokens.b64(os.urandom(len(tokens.unb64(answer[field]))))})
            self.refused(enrol(self.state, "answered", token, self.relay.url), "does not open")
        # The first answer of all, for a later request of the same node.
        first = json.loads(self.relay.seen[-3][2])
        self.relay.on_answer = lambda answer: first
        self.refused(enrol(self.state, "answered", token, self.relay.url), "another request")
        # The node's answers were lost so far; it asks on with the key it had, and is answered.
        self.relay.on_answer = lambda answer: answer
        done = enrol(self.state, "answered", token, self.relay.url)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_replayed_request_gives_nothing_away(self):
        token = join_token(self.deployment, "replayed")
        self.assertEqual(enrol(self.state, "replayed", token, self.relay.url).returncode, 0)
        asked, _, answer = self.relay.seen[-1]
        status, again = self.relay.forward(json.loads(asked))
        self.assertEqual(status, 200)  # boxed to the same node: of no use to who replays it
        self.assertNotEqual(json.loads(again)["box"], json.loads(answer)["box"])
        self.assertNotIn(self.enrolled()["node_key"].encode(), again)

    def test_one_use_one_name(self):
        token = join_token(self.deployment, "once")
        self.refused(enrol(self.state, "twice", token, self.deployment.url), "401")
        other = self.state + "-other"
        self.assertEqual(enrol(other, "once", token, self.deployment.url).returncode, 0)
        self.refused(enrol(self.state, "once", token, self.deployment.url), "409")
        self.refused(enrol(self.state, "once", "pj_" + "A" * 107, self.deployment.url), "401")
        self.assertEqual(enrol(self.state, "once", "pj_short", self.deployment.url).returncode, 2)
        self.assertEqual(enrol(self.state, "once", "", self.deployment.url).returncode, 2)

    def test_a_living_node_keeps_its_name_and_its_folder(self):
        token = join_token(self.deployment, "n1")
        self.refused(enrol(self.state, "n1", token, self.deployment.url), "409")
        running = enrol(self.deployment.state, "n1", token, self.deployment.url)
        self.assertEqual(running.returncode, 1)
        self.assertIn("stop it first", running.stderr)

    def test_only_admins_may(self):
        for method, path in (("GET", "/nodes"), ("POST", "/nodes"), ("POST", "/nodes/n1/drain"),
                             ("POST", "/nodes/n1/rekey"), ("POST", "/nodes/n1/lost")):
            reply = self.deployment.request(method, path, {} if method == "POST" else None, token="pk_" + "0" * 40)
            self.assertEqual(reply.status, 401, (path, reply))
        for body in ({}, {"name": "a b"}, {"name": ""}, {"name": "x" * 64}, {"name": 1}, {"name": "a", "more": 1}, []):
            self.assertEqual(self.deployment.request("POST", "/nodes", body).status, 400, body)
        for body in (b"", b"{}", b"[1]", b"{\"id\":\"" + b"A" * 5000 + b"\"}"):
            reply = self.deployment.request("POST", "/node/v1/enrol", body, token=None)
            self.assertIn(reply.status, (400, 413), reply)
        for path in ("/nodes/nobody/drain", "/nodes/nobody/rekey", "/nodes/nobody/lost"):
            self.assertEqual(self.deployment.request("POST", path, {}).status, 404, path)
        self.assertEqual(self.deployment.request("POST", "/nodes/n1/drain", {"drain": 1}).status, 400)
        self.assertEqual(self.deployment.request("POST", "/nodes/n1/rekey", {"epoch": 1}).status, 400)


class SecondNode:
    """n2 of a deployment: enrolled as an admin would, on ports and a state folder of its own."""

    def __init__(self, deployment):
        self.deployment, self.state = deployment, deployment.folder + "/second"
        if deployment.tls:
            issued = deployment.cli("tls", "issue", "--host", "127.0.0.1", self.state + "/tls")
            if issued.returncode != 0:
                raise AssertionError(issued.stderr)
        done = enrol(self.state, "n2", join_token(deployment, "n2"), deployment.url)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        self.port, self.process = free_ports(), None
        self.start()

    def start(self):
        with open(self.deployment.folder + "/second.log", "a") as log:
            self.process = subprocess.Popen([BIN + "/parley-sandboxd", "--state", self.state, "--sandboxd-port",
                                             str(self.port)], stderr=log)
        wait_for(lambda: node_of(self.deployment, "n2")["state"] == "alive", self.deployment)

    def kill(self):
        """The launcher; its front goes with it, what runs in sandboxes does not."""
        self.process.kill()
        self.process.wait(20)

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        subprocess.run([BIN + "/parley-sandboxd", "--purge", "--state", self.state], check=True)


def node_of(deployment, name):
    nodes = deployment.request("GET", "/nodes").json["nodes"]
    return next((node for node in nodes if node["name"] == name), {"state": "unknown"})


def wait_for(condition, deployment, seconds=25):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("not so within %d s\n%s" % (seconds, deployment.logs()))


def negotiate_on(deployment, node, prefix):
    for i in range(40):
        grant = deployment.negotiate(f"{prefix}{i}")
        if grant["sandbox"]["node"] == node:
            return f"{prefix}{i}", grant
    raise AssertionError(f"nothing was placed on {node}")


@needs_root
class TwoNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.second = SecondNode(cls.deployment)
        cls.addClassCleanup(cls.second.close)

    def test_a_node_that_drains_gets_no_sandbox(self):
        d = self.deployment
        thread, kept = negotiate_on(d, "n1", "drain-before")
        self.assertEqual(d.request("POST", "/nodes/n1/drain", {}).json["node"]["draining"], True)
        self.assertTrue(node_of(d, "n1")["draining"])
        for i in range(6):
            self.assertEqual(d.negotiate(f"drain-while{i}")["sandbox"]["node"], "n2")
        self.assertEqual(d.shell(kept, "echo still"), "still\n")  # what it has lives on
        self.assertEqual(d.negotiate(thread)["sandbox"]["id"], kept["sandbox"]["id"])
        self.assertEqual(d.request("POST", "/nodes/n1/drain", {"drain": False}).status, 200)
        negotiate_on(d, "n1", "drain-after")

    def test_lost_and_back(self):
        d = self.deployment
        thread, grant = negotiate_on(d, "n2", "lost")
        self.assertEqual(d.shell(grant, "echo here"), "here\n")
        self.assertEqual(d.request("POST", "/nodes/n2/lost", {}).status, 409)  # it is alive
        self.second.kill()
        wait_for(lambda: node_of(d, "n2")["state"] == "suspect", d)
        reply = d.request("POST", "/nodes/n2/lost", {})
        self.assertEqual(reply.status, 200, reply)
        self.assertGreaterEqual(reply.json["ended"], 1)
        old = d.request("GET", f"/sandboxes/{grant['sandbox']['id']}").json
        old = old.get("sandbox", old)
        self.assertEqual((old["state"], old["reason"]), ("terminated", "node_lost"))
        again = d.negotiate(thread)
        self.assertNotEqual(again["sandbox"]["id"], grant["sandbox"]["id"])
        self.assertEqual(again["sandbox"]["node"], "n1")
        self.assertIn(grant["sandbox"]["id"], living(self.second.state))  # it still runs there
        self.second.start()  # the node returns with what was given up: that is destroyed
        wait_for(lambda: held(self.second.state) == [], d, 40)
        negotiate_on(d, "n2", "back")


def sealed(node_key, node, incarnation, number, message):
    """A message of that node, made from the outside by the specification (shared/node_protocol/link.h)."""
    sodium = ctypes.CDLL(ctypes.util.find_library("sodium") or "libsodium.so.23")
    key = tokens.kdf(node_key, "parley/link/1", "sandboxd")
    head = b"PL1" + bytes([0, len(node)]) + node.encode() + struct.pack(">QQQ", incarnation, number, 0)
    nonce, text = os.urandom(24), json.dumps(message).encode()
    box, length = ctypes.create_string_buffer(len(text) + 16), ctypes.c_ulonglong()
    sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(box, ctypes.byref(length), text, ctypes.c_ulonglong(len(text)),
                                                      head, ctypes.c_ulonglong(len(head)), None, nonce, key)
    return head + nonce + box.raw


@needs_root
class Rekey(unittest.TestCase):
    def say(self, deployment, node_key):
        """As a node that started too early to be believed: what it is refused for tells whether the key opens."""
        body = sealed(node_key, "n1", 1, 1, {"call": "heartbeat", "time": int(time.time() * 1000)})
        reply = deployment.request("POST", "/node/v1/message", body, token=None)
        self.assertEqual(reply.status, 401, reply)
        return reply.json["error"]["message"]

    def key(self, deployment):
        with open(deployment.state + "/sandboxd/node.json") as file:
            node = json.load(file)
        return tokens.unb64(node["node_key"]), node["epoch"]

    def test_tokens_die_and_commands_live(self):
        with Deployment() as d:
            grant = d.negotiate("rekeyed")
            base = grant["endpoints"]["http"]
            started = d.exec(grant, cmd="i=0; while :; do echo $i; i=$((i+1)); sleep 0.1; done", id="counts", detach=True)
            self.assertIn(started.status, (200, 201, 202), started)
            former, epoch = self.key(d)
            self.assertEqual(epoch, 1)
            self.assertIn("incarnation", self.say(d, former))
            incarnation = node_of(d, "n1")["incarnation"]

            reply = d.request("POST", "/nodes/n1/rekey", {})
            self.assertEqual(reply.status, 202, reply)
            wait_for(lambda: node_of(d, "n1").get("epoch") == 2 and not node_of(d, "n1")["rekeying"], d)
            self.assertGreater(node_of(d, "n1")["incarnation"], incarnation)
            current, epoch = self.key(d)
            self.assertEqual(epoch, 2)
            self.assertNotEqual(current, former)
            self.assertIn("does not open", self.say(d, former))
            self.assertIn("incarnation", self.say(d, current))

            self.assertEqual(d.request("GET", base + "/processes", token=grant["token"]).status, 401)
            again = d.negotiate("rekeyed")
            self.assertEqual(again["sandbox"]["id"], grant["sandbox"]["id"])
            processes = d.request("GET", base + "/processes/counts", token=again["token"])
            self.assertEqual(processes.status, 200, processes)
            self.assertNotIn("exit", processes.json)
            self.assertEqual(d.shell(again, "pgrep -f 'sleep 0.1' > /dev/null; echo alive"), "alive\n")

            # Once more, and after a restart of everything: the epoch only rises.
            self.assertEqual(d.request("POST", "/nodes/n1/rekey", {}).status, 202)
            wait_for(lambda: node_of(d, "n1").get("epoch") == 3, d)
            for name in ("parley-negotiator", "parley-sandboxd"):
                d.kill(name)
            d.wait_ready()
            self.assertEqual((node_of(d, "n1")["epoch"], self.key(d)[1]), (3, 3))
            self.assertEqual(d.shell(d.negotiate("rekeyed"), "echo here"), "here\n")
            self.assertEqual(d.negotiate("rekeyed")["sandbox"]["id"], grant["sandbox"]["id"])


if __name__ == "__main__":
    unittest.main()
