"""Revocation marks on a node: what was acknowledged holds, through kill -9 of front and launcher, from the first request a
new front answers; streams end at once and commands live on; who was not meant goes on. First with the test in the
negotiator's place (no negotiator runs), then with a real deployment."""
import fcntl
import http.client
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.alone import SANDBOX, Alone, StandIn  # noqa: E402
from parley_testing.remains import living  # noqa: E402

UNTIL = 4102444800  # 2100
LEDGER = "led_one"


class Marks:
    """What a negotiator's ledger would hold."""

    def __init__(self, node, ledger=LEDGER):
        self.node, self.ledger, self.last = node, ledger, 0

    def push(self, **mark):
        """One mark; True when the node says that it has it."""
        self.last += 1
        mark = {"n": self.last, "until": UNTIL, "value": "", **mark}
        reply = self.node.call(call="marks", ledger_id=self.ledger, after=self.last - 1, upto=self.last, marks=[mark])
        return (reply["ledger_id"], reply["cursor"]) == (self.ledger, self.last)


def jti(number):
    return f"tok_{number:020d}"


class Stream:
    """A request by hand, of which bytes come while it runs."""

    def __init__(self, node, head, body=b"", token=None):
        self.socket = socket.create_connection(("127.0.0.1", node.port), timeout=20)
        self.data = b""
        self.socket.sendall(f"{head} HTTP/1.1\r\nHost: n\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n".encode() + body)

    def until(self, text):
        while text not in self.data:
            got = self.socket.recv(65536)
            if not got:
                raise AssertionError(f"ended before {text!r}: {self.data!r}")
            self.data += got
        return self

    def rest(self):
        """Everything to the end; whether it ended as a whole chunked reply does."""
        try:
            while True:
                got = self.socket.recv(65536)
                if not got:
                    break
                self.data += got
        except ConnectionResetError:
            pass
        self.socket.close()
        return self.data.endswith(b"\r\n0\r\n\r\n")


def start(node, method, path, body, token):
    text = json.dumps(body).encode() if body is not None else b""
    return Stream(node, f"{method} /s/{SANDBOX}{path}", b"Content-Length: %d\r\n\r\n" % len(text) + text, token)


@needs_root
class ImpersonatedNegotiator(unittest.TestCase):
    def setUp(self):
        self.node = Alone()
        self.addCleanup(self.node.close)
        made = self.node.prepare()
        self.assertTrue(made.get("ok"), (made, self.node.logs()))
        self.marks = Marks(self.node)

    def status(self, token):
        status, data = self.node.verb("GET", "/info", token=token)
        if status == 200:
            return 200
        return json.loads(data)["error"]["code"]

    def test_every_selector_and_its_siblings(self):
        node = self.node
        root = node.token(jti=jti(1))
        narrowed = node.narrow(root, note="for a friend")
        status, data = node.verb("GET", "/info", token=narrowed)
        self.assertEqual(status, 200, data)
        link_id = json.loads(data)["token"]["links"][0]
        now = int(time.time())
        cases = [
            (dict(kind="link", value=link_id), narrowed, root),
            (dict(kind="jti", value=jti(1)), root, node.token(jti=jti(2))),
            (dict(kind="family", value=jti(3)), node.token(jti=jti(4), fam=jti(3)), node.token(jti=jti(4))),
            (dict(kind="lease", value="lse_gone"), node.token(lease="lse_gone"), node.token()),
            (dict(kind="thread", value="t9", principal="ann"), node.token(thread_id="t9", sub="ann"),
             node.token(thread_id="t9", sub="bob")),
            (dict(kind="principal", value="ann", before=now), node.token(sub="ann"), node.token(sub="ann", iat=now + 1)),
            (dict(kind="scope", value="shell", before=now), node.token("shell process"), node.token("process")),
            (dict(kind="sandbox", value=SANDBOX, before=now), node.token(), node.token(iat=now + 1)),
            (dict(kind="all", before=now + 1), node.token(iat=now + 1), node.token(iat=now + 2)),
        ]
        for mark, _, sibling in cases:
            self.assertEqual(self.status(sibling), 200, mark)
        for mark, token, sibling in cases:
            self.assertTrue(self.marks.push(**mark), mark)
            self.assertEqual(self.status(token), "TOKEN_REVOKED", mark)
            if mark["kind"] not in ("sandbox", "scope", "principal"):
                continue
            self.assertEqual(self.status(sibling), 200, mark)
        status, data = node.verb("GET", "/info", token=root)
        self.assertEqual(status, 401)
        self.assertIn("revoked", json.loads(data)["error"]["message"])

    def test_siblings_of_ids_live(self):
        for kind, claim, value in (("jti", "jti", jti(7)), ("family", "fam", jti(7)), ("lease", "lease", "lse_seven")):
            taken, other = self.node.token(**{claim: value}), self.node.token(**{claim: value + "x"})
            self.assertEqual((self.status(taken), self.status(other)), (200, 200))
            self.assertTrue(self.marks.push(kind=kind, value=value))
            self.assertEqual((self.status(taken), self.status(other)), ("TOKEN_REVOKED", 200))

    def test_streams_end_and_commands_live(self):
        node, token, sibling = self.node, self.node.token(jti=jti(10)), self.node.token(jti=jti(11))
        slow = {"cmd": "for i in $(seq 600); do echo $i; sleep 0.05; done"}
        mine = start(node, "POST", "/exec", {**slow, "id": "mine"}, token).until(b'"stdout"')
        other = start(node, "POST", "/exec", {**slow, "id": "other"}, sibling).until(b'"stdout"')
        follow = start(node, "GET", "/processes/other/output?follow=1", None, token).until(b'"stdout"')
        one = start(node, "POST", "/exec", {"cmd": "sleep 60", "id": "one", "stream": "none"}, token)
        upload = Stream(node, f"POST /s/{SANDBOX}/processes/mine/stdin", b"Content-Length: 1000\r\n\r\nhalf", token)
        chunked = Stream(node, f"POST /s/{SANDBOX}/processes/mine/stdin",
                         b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", token)
        time.sleep(0.3)
        began = time.monotonic()
        self.assertTrue(self.marks.push(kind="jti", value=jti(10)))
        for stream in (mine, follow):
            self.assertFalse(stream.rest(), "a cut stream looks whole")
            last = stream.data.rstrip().splitlines()[-1]
            self.assertEqual((json.loads(last)["type"], json.loads(last)["code"]), ("error", "TOKEN_REVOKED"))
        for stream in (one, upload, chunked):
            stream.rest()
            self.assertIn(b"HTTP/1.1 401", stream.data)
            self.assertIn(b"TOKEN_REVOKED", stream.data)
        self.assertLess(time.monotonic() - began, 2)
        size = len(other.data)
        other.until(b'"stdout","offset":' + str(self.offset(other) + 20).encode()[:1])
        time.sleep(0.3)
        other.socket.settimeout(5)
        self.assertTrue(other.socket.recv(65536))
        self.assertGreaterEqual(len(other.data), size)
        status, data = node.verb("GET", "/processes", token=sibling)
        states = {process["id"]: process["state"] for process in json.loads(data)["processes"]}
        self.assertEqual(states, {"mine": "running", "other": "running", "one": "running"})
        follow = start(node, "GET", "/processes/mine/output?follow=1", None, sibling).until(b'"stdout"')
        follow.socket.close()
        other.socket.close()

    @staticmethod
    def offset(stream):
        return max(json.loads(line)["offset"] for line in stream.data.splitlines() if line.startswith(b'{"type":"stdout'))

    def test_a_client_that_does_not_read(self):
        token = self.node.token(jti=jti(12))
        flood = start(self.node, "POST", "/exec", {"cmd": "yes | head -c 200000000", "id": "flood"}, token)
        time.sleep(1)
        self.assertTrue(self.marks.push(kind="jti", value=jti(12)))
        time.sleep(1.5)
        self.assertFalse(flood.rest())
        self.assertLess(len(flood.data), 64 << 20)

    def test_a_spent_token_is_good_a_moment_more_and_streams_go_on(self):
        token = self.node.token(jti=jti(20))
        stream = start(self.node, "POST", "/exec", {"cmd": "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done"}, token)
        stream.until(b'"stdout"')
        self.assertTrue(self.marks.push(**{"kind": "jti", "value": jti(20), "from": int(time.time() * 1000) + 1000}))
        self.assertEqual(self.status(token), 200)
        time.sleep(1.2)
        self.assertEqual(self.status(token), "TOKEN_REVOKED")
        self.assertTrue(stream.rest())
        self.assertIn(b'"exit"', stream.data)

    def test_a_spent_token_whose_mark_comes_late_or_again(self):
        """As a node was away for a while, or as its negotiator begins anew and tells all its marks once more."""
        token = self.node.token(jti=jti(21))
        stream = start(self.node, "POST", "/exec", {"cmd": "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done"}, token)
        stream.until(b'"stdout"')
        began = int(time.time() * 1000)
        spent = {"kind": "jti", "value": jti(21), "from": began + 1000}
        time.sleep(1.2)
        self.assertTrue(self.marks.push(**spent))
        self.assertTrue(Marks(self.node, "led_anew").push(**spent))
        self.assertEqual(self.status(token), "TOKEN_REVOKED")
        self.assertTrue(stream.rest(), "a stream that began before its token was spent was cut")
        self.assertIn(b'"exit"', stream.data)

    def test_pages(self):
        call = self.node.call
        mark = {"n": 5, "kind": "jti", "value": jti(30), "until": UNTIL}
        reply = call(call="marks", ledger_id=LEDGER, after=4, upto=5, marks=[mark])
        self.assertEqual((reply["ledger_id"], reply["cursor"]), ("", 0), "4 marks were missing")
        self.assertEqual(self.status(self.node.token(jti=jti(30))), 200)
        for _ in range(2):
            reply = call(call="marks", ledger_id=LEDGER, after=0, upto=5, marks=[mark])
            self.assertEqual((reply["ok"], reply["ledger_id"], reply["cursor"]), (True, LEDGER, 5))
        wrong = call(call="marks", ledger_id=LEDGER, after=5, upto=6, marks=[{**mark, "n": 6, "only": "a half"}])
        self.assertEqual(wrong["error"]["code"], "INVALID_REQUEST")
        reply = call(call="marks", ledger_id="led_two", after=0, upto=0, marks=[])
        self.assertEqual((reply["ledger_id"], reply["cursor"]), ("led_two", 0))
        self.assertEqual(self.status(self.node.token(jti=jti(30))), "TOKEN_REVOKED")

    def test_epochs(self):
        node = self.node
        one, two, three = (node.token(epoch=epoch) for epoch in (1, 2, 3))
        self.assertEqual(self.status(one), 200)
        self.assertTrue(self.marks.push(kind="sandbox", value=SANDBOX, before=int(time.time()) - 100, epoch=2))
        self.assertEqual((self.status(one), self.status(two)), ("TOKEN_REVOKED", 200))
        stream = start(node, "POST", "/exec", {"cmd": "sleep 60"}, two).until(b'"started"')
        self.assertEqual(self.status(three), 200)  # the negotiator has gone on: two is over
        self.assertEqual(self.status(two), "TOKEN_REVOKED")
        self.assertFalse(stream.rest())
        time.sleep(0.2)
        node.kill_front()
        node.await_front()
        self.assertEqual([self.status(token) for token in (one, two, three)], ["TOKEN_REVOKED", "TOKEN_REVOKED", 200])

    def inits(self):
        """The init of each sandbox that is somebody's."""
        return [record.init for record in living(self.node.state).values()]

    def test_nothing_starts_after_the_acknowledgement(self):
        """What waits for its sandbox to be reached is not begun for a token that was revoked meanwhile."""
        node, token = self.node, self.node.token(jti=jti(60))
        inits = self.inits()
        self.assertEqual(len(inits), 1)
        os.kill(inits[0], signal.SIGSTOP)
        try:
            node.kill_front()
            node.await_front()
            waiting = start(node, "POST", "/exec", {"cmd": "touch /workspace/ran"}, token)
            time.sleep(0.5)
            self.assertTrue(self.marks.push(kind="jti", value=jti(60)))
        finally:
            os.kill(inits[0], signal.SIGCONT)
        waiting.rest()
        time.sleep(0.5)
        status, out = node.ask("POST", f"/s/{SANDBOX}/exec", {"cmd": "ls /workspace", "stream": "none"}, node.token(jti=jti(61)))
        self.assertEqual((status, json.loads(out)["stdout"]), (200, ""))

    def test_kill_9_while_marks_come(self):
        """What was acknowledged is refused by every front that comes after, whenever its forerunner died."""
        node, acknowledged = self.node, []
        chosen = random.Random(7)
        for round_number in range(8):
            stop = threading.Event()

            def push():
                while not stop.is_set():
                    self.marks.last = len(acknowledged) and acknowledged[-1]
                    try:
                        if self.marks.push(kind="jti", value=jti(self.marks.last + 1)):
                            acknowledged.append(self.marks.last)
                    except (OSError, http.client.HTTPException, AssertionError):
                        time.sleep(0.005)

            pusher = threading.Thread(target=push)
            pusher.start()
            time.sleep(0.1 + chosen.random() * 0.1)
            if round_number % 2:
                node.kill_front()
            else:
                node.kill()
            stop.set()
            pusher.join()
            if not round_number % 2:
                node.start()
            node.await_front()
            for number in acknowledged[-50:] + acknowledged[:5]:
                self.assertEqual(self.status(node.token(jti=jti(number))), "TOKEN_REVOKED", number)
        self.assertEqual(acknowledged, list(range(1, len(acknowledged) + 1)))
        self.assertGreater(len(acknowledged), 20)
        self.assertEqual(self.status(node.token(jti=jti(acknowledged[-1] + 2))), 200)

    def test_no_window_at_a_restart(self):
        node, token = self.node, self.node.token(jti=jti(40))
        self.assertTrue(self.marks.push(kind="jti", value=jti(40)))
        answers, stop = [], threading.Event()

        def hammer():
            while not stop.is_set():
                try:
                    answers.append(self.status(token))
                except (OSError, http.client.HTTPException):
                    pass

        hammers = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in hammers:
            thread.start()
        for _ in range(5):
            before = len(answers)
            node.kill_front()
            until = time.monotonic() + 20
            while len(answers) < before + 20 and time.monotonic() < until:
                time.sleep(0.01)
        stop.set()
        for thread in hammers:
            thread.join()
        self.assertGreaterEqual(len(answers), 100)
        self.assertEqual(set(answers), {"TOKEN_REVOKED"})

    def test_a_damaged_journal_is_not_served_over(self):
        node = self.node
        node.exec("sleep 600 & echo $!")
        for number in range(50, 60):
            self.assertTrue(self.marks.push(kind="jti", value=jti(number)))
        path = node.state + "/sandboxd/journal/marks"
        with open(path, "rb") as journal:
            whole = journal.read()
        with open(path, "r+b") as journal:
            journal.seek(len(whole) // 3)
            byte = journal.read(1)
            journal.seek(len(whole) // 3)
            journal.write(bytes([byte[0] ^ 2]))
        node.kill_front()
        for _ in range(30):
            time.sleep(0.05)
            with self.assertRaises(OSError):
                self.status(node.token())
        until = time.monotonic() + 30
        while "the journal of marks" not in node.logs() and time.monotonic() < until:
            time.sleep(0.05)
        self.assertIn("the journal of marks", node.logs())
        with open(path, "wb") as journal:
            journal.write(whole)
        node.await_front()
        self.assertEqual(self.status(node.token(jti=jti(55))), "TOKEN_REVOKED")
        self.assertEqual(self.status(node.token()), 200)

    def test_one_front_a_journal(self):
        """A front whose forerunner is not quite dead does not write beside it, nor serve without its marks."""
        with open(self.node.state + "/sandboxd/journal/lock", "r+b") as lock:
            self.node.kill_front()
            until = time.monotonic() + 10
            while time.monotonic() < until:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before the next front has it
                    break
                except BlockingIOError:
                    self.node.kill_front()
            for _ in range(20):
                time.sleep(0.05)
                with self.assertRaises(OSError):
                    self.status(self.node.token())
            self.assertIn("lock the journal", self.node.logs())
        self.node.await_front()
        self.assertEqual(self.status(self.node.token()), 200)

    def test_lives_of_streams(self):
        """Following ends at exp; exec and an upload that began in time do not."""
        node = self.node
        node.exec("true", id="warm")
        token, sibling = node.token(ttl=2), node.token()
        late = int(time.time()) + 2
        status, data = node.verb("POST", "/exec", {"cmd": "cat", "id": "fed", "stdin_open": True, "detach": True}, sibling)
        self.assertEqual(status, 201, data)
        run = start(node, "POST", "/exec", {"cmd": "sleep 9; echo late", "id": "runs"}, token).until(b'"started"')
        follow = start(node, "GET", "/processes/runs/output?follow=1", None, token).until(b'"started"')
        upload = Stream(node, f"POST /s/{SANDBOX}/processes/fed/stdin", b"Content-Length: 8\r\n\r\nhalf", token)
        follow.rest()
        self.assertIn(b"TOKEN_EXPIRED", follow.data)
        self.assertLess(abs(time.time() - late), 1.5)
        time.sleep(max(0, late + 6 - time.time()))
        self.assertEqual(self.status(token), "TOKEN_EXPIRED")
        upload.socket.sendall(b"half")
        upload.until(b"\r\n\r\n")
        self.assertIn(b"HTTP/1.1 200", upload.data)
        self.assertTrue(run.rest())
        self.assertIn(b"late", run.data)
        status, data = node.verb("GET", "/processes/fed/output", token=sibling)
        self.assertIn(b'"halfhalf"', data)


@needs_root
class Heartbeats(unittest.TestCase):
    """What the node says of itself, and the marks it fetches."""

    def setUp(self):
        self.answers = []
        self.stand_in = StandIn(lambda message: self.answers.pop(0)(message) if self.answers else None)
        self.addCleanup(self.stand_in.close)
        self.node = Alone(self.stand_in)
        self.addCleanup(self.node.close)

    def names(self, message):
        return [sandbox["id"] for sandbox in message["sandboxes"]]

    def test_differences(self):
        wait = self.stand_in.wait
        first = wait(lambda message: True, since=0)
        self.assertEqual((first["full"], first["sandboxes"], first["marks"]), (True, [], {"ledger_id": "", "cursor": 0}))
        self.assertTrue(self.node.prepare()["ok"])
        told = wait(lambda message: message["sandboxes"])
        self.assertFalse(told["full"])
        sandbox = told["sandboxes"][0]
        self.assertEqual((sandbox["id"], sandbox["epoch"]), (SANDBOX, 1))
        wait(lambda message: not message["sandboxes"])  # nothing happens: nothing is said
        self.node.verb("POST", "/exec", {"cmd": "head -c 30000000 /dev/zero > /dev/shm/x; timeout 4 sh -c 'while :; do :; done'",
                                         "detach": True})
        used = wait(lambda message: message["sandboxes"] and message["sandboxes"][0]["cpu_ms"] > 1000)["sandboxes"][0]
        self.assertGreater(used["active_at"], sandbox["active_at"])
        self.assertGreater(used["memory_bytes"], 30000000)
        self.node.call(call="deadline", id=SANDBOX, deadline=sandbox["deadline"] + 5000)
        wait(lambda message: message["sandboxes"] and message["sandboxes"][0]["deadline"] == sandbox["deadline"] + 5000)
        wait(lambda message: not message["sandboxes"])
        self.answers.append(lambda message: {"full_wanted": True})
        full = wait(lambda message: message["full"])
        self.assertEqual(self.names(full), [SANDBOX])
        self.assertFalse(wait(lambda message: True)["full"])
        self.node.kill_front()
        again = wait(lambda message: message["full"])
        self.assertEqual(self.names(again), [SANDBOX])
        self.node.call(call="destroy", id=SANDBOX, reason="released")
        ended = wait(lambda message: message["ended"], 20)
        self.assertEqual(ended["ended"][0]["reason"], "released")

    def test_pages_come_with_replies(self):
        self.assertTrue(self.node.prepare()["ok"])
        page = {"ledger_id": LEDGER, "after": 0, "upto": 2, "marks": [
            {"n": 1, "kind": "jti", "value": jti(1), "until": UNTIL},
            {"n": 2, "kind": "sandbox", "value": SANDBOX, "before": 5, "until": UNTIL, "epoch": 4}]}
        self.answers.append(lambda message: {"marks": page})
        told = self.stand_in.wait(lambda message: message["marks"] == {"ledger_id": LEDGER, "cursor": 2})
        at = [moment for moment, message in self.stand_in.beats if message["marks"]["cursor"] == 2][0]
        before = [moment for moment, message in self.stand_in.beats if message["marks"]["cursor"] == 0][-1]
        self.assertLess(at - before, 1, "it beats again at once")
        self.assertEqual([sandbox["epoch"] for sandbox in told["sandboxes"]], [4])
        status, data = self.node.verb("GET", "/info", token=self.node.token(epoch=4, jti=jti(1)))
        self.assertEqual(json.loads(data)["error"]["code"], "TOKEN_REVOKED")
        self.assertEqual(self.node.verb("GET", "/info", token=self.node.token(epoch=4))[0], 200)
        self.answers.append(lambda message: {"marks": {**page, "after": "x"}})  # not understood: beats go on
        self.stand_in.wait(lambda message: True)
        self.stand_in.wait(lambda message: message["marks"]["cursor"] == 2)


@needs_root
class RealDeployment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def ask(self, grant, method="GET", path="/info", body=None):
        return self.deployment.request(method, grant["endpoints"]["http"] + path, body, token=grant["token"])

    def revoke(self, **selector):
        reply = self.deployment.request("POST", "/revocations", {"reason": "a test", **selector})
        self.assertIn(reply.status, (200, 202), reply)
        return reply

    def await_node(self):
        self.deployment.wait_ready()

    def test_revoked_everywhere_when_it_says_so(self):
        first, second = self.deployment.negotiate("first"), self.deployment.negotiate("second")
        self.assertEqual(self.ask(first).status, 200)
        reply = self.revoke(jti=first["jti"])
        self.assertEqual((reply.status, reply.json["revocation"]["state"]), (200, "in_force"))
        self.assertEqual(self.ask(first).code, "TOKEN_REVOKED")
        self.assertEqual(self.ask(second).status, 200)
        self.assertEqual(self.ask(self.deployment.negotiate("first")).status, 200)  # it bars nothing later

    def test_through_kill_9_of_everything(self):
        grant, other = self.deployment.negotiate("kills"), self.deployment.negotiate("lives")
        self.ask(grant, "POST", "/exec", {"cmd": "sleep 600", "id": "stays", "detach": True})
        self.assertEqual(self.revoke(thread="kills").status, 200)
        for name in ("parley-sandboxd", "parley-negotiator", "parley-sandboxd"):
            self.deployment.kill(name)
            self.await_node()
            self.assertEqual(self.ask(grant).code, "TOKEN_REVOKED", name)
            self.assertEqual(self.ask(other).status, 200, name)
        again = self.deployment.negotiate("kills")
        self.assertEqual(self.ask(again, path="/processes/stays").json["state"], "running")

    def test_a_stream_is_cut(self):
        grant = self.deployment.negotiate("stream")
        ended = []

        def follow():
            try:
                reply = self.ask(grant, "POST", "/exec", {"cmd": "for i in $(seq 300); do echo $i; sleep 0.1; done"})
                ended.append(reply.body)
            except http.client.IncompleteRead as cut:
                ended.append(cut.partial)

        thread = threading.Thread(target=follow)
        thread.start()
        time.sleep(1)
        self.assertEqual(self.revoke(sandbox=grant["sandbox"]["id"]).status, 200)
        thread.join(5)
        self.assertFalse(thread.is_alive())
        self.assertIn(b"TOKEN_REVOKED", ended[0])


if __name__ == "__main__":
    unittest.main()
