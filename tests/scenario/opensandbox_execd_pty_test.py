"""Terminals as OpenSandbox's daemon offers them (POST /pty, and a WebSocket): bytes both ways, replay, takeover, the end;
and who may not."""
import json
import os
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402
from parley_testing.websocket import Closed, Refused, WebSocket  # noqa: E402

PORT = "/port/44772"
PATIENCE_S = 60
STDIN, STDOUT, STDERR, REPLAY = 0, 1, 2, 3


class Socket(WebSocket):
    """`output`, `errors`: what came; `replays`: [(offset, bytes)]; `told`: the frames of text."""

    def __init__(self, url, token, **more):
        self.output, self.errors, self.replays, self.told = b"", b"", [], []
        super().__init__(url, {"X-EXECD-ACCESS-TOKEN": token}, timeout=PATIENCE_S, **more)

    def step(self):
        message = self.receive()
        if isinstance(message, str):
            self.told.append(json.loads(message))
        elif message[0] == REPLAY:
            self.replays.append((struct.unpack(">Q", message[1:9])[0], message[9:]))
        elif message[0] == STDOUT:
            self.output += message[1:]
        else:
            assert message[0] == STDERR, message[:20]
            self.errors += message[1:]

    def until(self, text):
        while text not in self.output:
            self.step()
        return self.output

    def expect(self, kind):
        while True:
            for told in self.told:
                if told["type"] == kind:
                    self.told.remove(told)
                    return told
            self.step()

    def type(self, data):
        self.send(bytes([STDIN]) + data)

    def end(self):
        """The Closed, once all before it was taken."""
        while True:
            try:
                self.step()
            except Closed as closed:
                return closed


@needs_root
class Terminals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(tls=False)
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("pty", resources={"memory_mb": 256})
        cls.base = cls.grant["endpoints"]["http"] + PORT

    def ask(self, method, path, body=None, token=None):
        return self.deployment.request(method, self.base + path, body, token=token or self.grant["token"])

    def make(self, **body):
        reply = self.ask("POST", "/pty", body)
        self.assertEqual(reply.status, 201, reply)
        return reply.json["session_id"]

    def open(self, terminal, query="", token=None, **more):
        socket = Socket(f"{self.base}/pty/{terminal}/ws{query}", token or self.grant["token"], **more)
        self.addCleanup(socket.socket.close)
        return socket

    def refused(self, *arguments, **more):
        with self.assertRaises(Refused) as seen:
            self.open(*arguments, **more)
        return seen.exception

    def state(self, terminal):
        reply = self.ask("GET", f"/pty/{terminal}")
        self.assertEqual((reply.status, sorted(reply.json)), (200, ["output_offset", "running", "session_id"]), reply)
        return reply.json

    def wait_free(self, terminal, query=""):
        """A socket as soon as the one before has been noticed gone."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.open(terminal, query)
            except Refused as refused:
                if refused.status != 409 or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def test_a_terminal(self):
        terminal = self.make(cwd="/tmp")
        self.assertEqual(self.state(terminal), {"session_id": terminal, "running": False, "output_offset": 0})
        socket = self.open(terminal)
        self.assertEqual(socket.expect("connected"), {"type": "connected", "session_id": terminal, "mode": "pty"})
        socket.send(json.dumps({"type": "resize", "cols": 132, "rows": 43}))
        socket.type(b"stty size; tty; pwd; echo $TERM\n")
        socket.until(b"xterm-256color")
        self.assertIn(b"43 132", socket.output)
        self.assertIn(b"/dev/pts/", socket.output)
        self.assertIn(b"\r\n/tmp\r\n", socket.output)
        self.assertTrue(self.state(terminal)["running"])
        socket.send(json.dumps({"type": "ping"}))
        self.assertEqual(socket.expect("pong"), {"type": "pong"})
        socket.send(json.dumps({"type": "stdin", "data": "sleep 600\n"}))
        socket.until(b"sleep 600")
        time.sleep(0.2)
        socket.send(json.dumps({"type": "signal", "signal": "SIGINT"}))
        socket.type(b"exit $((40+2))\n")
        self.assertEqual(socket.expect("exit")["exit_code"], 42)
        closed = socket.end()
        self.assertEqual((closed.code, closed.reason), (1000, "process exited"))
        self.assertFalse(self.state(terminal)["running"])

    def test_frames_that_are_none(self):
        socket = self.open(self.make(command="cat"))
        socket.expect("connected")
        for wrong in ("x", "[]", "{}", '{"type":"of_tomorrow"}', '{"type":"stdin","data":1}', '{"type":"signal","signal":"SIGNONE"}'):
            socket.send(wrong)
            self.assertEqual(socket.expect("error")["code"], "INVALID_FRAME", wrong)
        for ignored in (b"", b"\x07x", '{"type":"resize","cols":0,"rows":-1}', '{"type":"resize","cols":"x"}', '{"type":"resize","cols":99999,"rows":1}'):
            socket.send(ignored)
        socket.type(b"still here\n")
        socket.until(b"still here")

    def test_pipes(self):
        terminal = self.make(command="echo out; echo err >&2; read line; echo got $line; exit 3")
        socket = self.open(terminal, "?pty=0")
        self.assertEqual(socket.expect("connected")["mode"], "pipe")
        socket.type(b"it\n")
        self.assertEqual(socket.expect("exit")["exit_code"], 3)
        self.assertEqual((socket.output, socket.errors), (b"out\ngot it\n", b"err\n"))

    def test_replay_and_takeover(self):
        terminal = self.make(command="stty -echo; echo first; while read line; do echo $line; done")
        one = self.open(terminal)
        one.until(b"first\r\n")
        self.assertEqual((one.replays, one.told[0]["type"]), ([], "connected"))
        refused = self.refused(terminal)
        self.assertEqual((refused.status, json.loads(refused.body)["code"]), (409, "ALREADY_CONNECTED"))
        one.type(b"second\n")  # it was not disturbed
        one.until(b"second\r\n")
        two = self.open(terminal, "?takeover=1")
        closed = one.end()
        self.assertEqual((closed.code, closed.reason), (4001, "TAKEN_OVER"))
        two.expect("connected")
        self.assertEqual((two.replays, two.output), ([(0, b"first\r\nsecond\r\n")], b""))
        two.type(b"third\n")
        two.until(b"third\r\n")
        two.drop()
        three = self.wait_free(terminal, "?since=7")
        three.expect("connected")
        self.assertEqual(three.replays, [(7, b"second\r\nthird\r\n")])
        three.type(b"fourth\n")
        self.assertEqual(three.until(b"fourth\r\n"), b"fourth\r\n")
        offset = self.state(terminal)["output_offset"]
        three.close()
        for since in (offset, offset + 1000):
            four = self.wait_free(terminal, f"?since={since}")
            four.expect("connected")
            self.assertEqual(four.replays, [], since)
            four.close()

    def test_an_end_that_was_missed(self):
        terminal = self.make(command="echo whole; exit 5")
        self.open(terminal).expect("exit")
        socket = self.wait_free(terminal)
        self.assertEqual(socket.expect("exit")["exit_code"], 5)
        self.assertEqual(socket.replays, [(0, b"whole\r\n")])

    def test_a_flood_of_input_and_output(self):
        """Of a reader that does not read: the socket waits, nothing is lost."""
        terminal = self.make(command="head -c 3000000 | tr x y")
        socket = self.open(terminal, "?pty=0")
        socket.expect("connected")
        for _ in range(60):
            socket.type(b"x" * 50000)
        self.assertEqual(socket.expect("exit")["exit_code"], 0)
        self.assertEqual(len(socket.output), 3000000)
        self.assertEqual(set(socket.output), {ord("y")})

    def test_one_is_ended(self):
        terminal = self.make()
        socket = self.open(terminal)
        socket.type(b"echo ready$((1))\n")
        socket.until(b"ready1")
        reply = self.ask("DELETE", f"/pty/{terminal}")
        self.assertEqual((reply.status, reply.body), (200, b""))
        self.assertEqual(socket.expect("exit")["exit_code"], -1)
        fresh, over = self.make(), self.make(command="true")
        self.open(over).expect("exit")
        for one in (fresh, over):
            self.assertEqual(self.ask("DELETE", f"/pty/{one}").status, 200)
        for method, path in (("GET", f"/pty/{terminal}"), ("GET", f"/pty/{over}"), ("GET", f"/pty/{fresh}"), ("DELETE", f"/pty/{fresh}"), ("GET", "/pty/none"), ("GET", "/pty/pty_" + "a" * 20)):
            reply = self.ask(method, path)
            self.assertEqual((reply.status, reply.json["code"]), (404, "CONTEXT_NOT_FOUND"), path)
        self.assertEqual(self.refused(fresh).status, 404)

    def test_what_is_refused(self):
        for body in ({"cwd": 1}, {"command": 1}, {"command": "x" * 9000}, {"cwd": "$NONE"}, []):
            self.assertEqual(self.ask("POST", "/pty", body).status, 400, body)
        self.assertEqual(self.ask("GET", f"/pty/{self.make()}/ws").status, 426)
        self.assertEqual(self.refused(self.make(), "?since=x").status, 400)
        socket = self.open(self.make(cwd="/no/such"))
        self.assertEqual(socket.expect("error")["code"], "START_FAILED")
        self.assertNotEqual(socket.end().code, 1006)

    def test_they_are_bounded(self):
        grant = self.deployment.negotiate("pty-many")
        made = [self.deployment.request("POST", grant["endpoints"]["http"] + PORT + "/pty", {}, token=grant["token"]).status
                for _ in range(17)]
        self.assertEqual(made, [201] * 16 + [503])
        self.make()  # another sandbox's do not count

    def test_who_may(self):
        other = self.deployment.negotiate("pty-other")
        terminal = self.make()
        self.assertEqual(self.refused(terminal, token=other["token"]).status, 401)
        stolen = f"{other['endpoints']['http']}{PORT}/pty/{terminal}"
        self.assertEqual(self.deployment.request("GET", stolen, token=other["token"]).status, 404)
        self.assertEqual(self.deployment.request("DELETE", stolen, token=other["token"]).status, 404)
        watcher = link(self.grant["token"], compact({"scope": "shell:ro"}))
        self.assertEqual(self.ask("POST", "/pty", {}, token=watcher).status, 403)
        self.assertEqual(self.refused(terminal, token=watcher).status, 403)
        # A token for terminals alone gets no command without one: neither started, nor by a name that looks like one.
        shell = link(self.grant["token"], compact({"scope": "shell"}))
        self.assertEqual(self.refused(terminal, "?pty=0", token=shell).status, 403)
        name = "pty_" + "b" * 20
        self.deployment.request("POST", self.grant["endpoints"]["http"] + "/exec",
                                {"cmd": "echo secret; sleep 600", "id": name, "detach": True}, token=self.grant["token"])
        self.assertEqual(self.refused(name, token=shell).status, 403)
        for method in ("GET", "DELETE"):
            self.assertEqual(self.ask(method, f"/pty/{name}", token=shell).status, 403)
        self.ask("DELETE", f"/pty/{name}")
        socket = self.open(terminal, token=shell)
        socket.expect("connected")

    def test_a_revoked_token_closes_the_socket(self):
        grant = self.deployment.negotiate("pty-revoked")
        base = grant["endpoints"]["http"] + PORT
        terminal = self.deployment.request("POST", base + "/pty", {}, token=grant["token"]).json["session_id"]
        socket = Socket(f"{base}/pty/{terminal}/ws", grant["token"])
        self.addCleanup(socket.socket.close)
        socket.expect("connected")
        reply = self.deployment.request("POST", "/revocations", {"sandbox": grant["sandbox"]["id"], "reason": "test"})
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(socket.expect("error")["code"], "TOKEN_REVOKED")
        self.assertEqual(socket.end().code, 4401)


if __name__ == "__main__":
    unittest.main(verbosity=2)
