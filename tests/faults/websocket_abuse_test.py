"""Broken and hostile clients of /ws: what is wrong gets its close code, what is much stays bounded, and others are served
meanwhile."""
import json
import os
import re
import socket
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.websocket import BINARY, CLOSE, PING, TEXT, Closed, Refused, Session, WebSocket, frame  # noqa: E402

MIB = 1 << 20
PING_FRAME = b'{"type":"ping"}'


@needs_root
class WebSocketAbuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # What a sanitizer keeps of freed memory is not the program's.
        cls.deployment = Deployment(ASAN_OPTIONS="quarantine_size_mb=4:thread_local_quarantine_size_kb=64")
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("abuse", scopes=["shell", "process"])
        cls.url = cls.grant["endpoints"]["ws"]

    def open(self, token="", **more):
        session = Session(self.url, self.grant["token"] if token == "" else token, **more)
        self.addCleanup(session.drop)
        if token == "":
            session.expect("auth_ok")
        return session

    def assert_closed(self, session, code, reason=None, timeout=10):
        closed = session.wait_closed(timeout)
        self.assertEqual(closed.code, code, (closed, closed.messages))
        if reason is not None:
            self.assertEqual(closed.reason, reason)
        return closed

    def alive(self):
        with self.open() as session:
            session.start(cmd="echo alive", tty=False)
            session.expect("exit")
            self.assertEqual(session.output, b"alive\n")

    def front(self):
        for pid in self.deployment.pids("parley-sandboxd"):
            with open(f"/proc/{pid}/status") as status:
                text = status.read()
            if not re.search(r"^Uid:\s+0\s", text, re.M):
                return pid, text
        self.fail("no front")

    def memory(self):
        return int(re.search(r"^VmRSS:\s+(\d+)", self.front()[1], re.M)[1]) << 10

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.front()[0]}/fd"))

    # ---- frames ----

    def test_fragments_are_joined(self):
        session = self.open()
        session.send_raw(frame(TEXT, PING_FRAME[:4], fin=False) + frame(0, PING_FRAME[4:9], fin=False))
        session.send_raw(frame(PING, b"between"))
        session.send_raw(frame(0, PING_FRAME[9:]))
        session.expect("pong")
        session.send_raw(b"".join(frame(TEXT if n == 0 else 0, PING_FRAME[n:n + 1], fin=n == len(PING_FRAME) - 1)
                                  for n in range(len(PING_FRAME))))
        session.expect("pong")
        for byte in frame(TEXT, PING_FRAME):  # and so are pieces of a frame
            session.send_raw(bytes([byte]))
        session.expect("pong")

    def test_what_breaks_the_protocol(self):
        broken = [("unmasked", frame(TEXT, PING_FRAME, masked=False), 1002),
                  ("reserved bit", frame(TEXT, PING_FRAME, reserved=0x40), 1002),
                  ("unknown opcode", frame(3, b""), 1002), ("unknown control", frame(11, b""), 1002),
                  ("continuation of nothing", frame(0, b"x"), 1002),
                  ("new message inside another", frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002),
                  ("fragmented ping", frame(PING, b"", fin=False), 1002),
                  ("long ping", frame(PING, b"x" * 126), 1002),
                  ("not UTF-8", frame(TEXT, b'{"type":"\xff"}'), 1007),
                  ("half a character", frame(TEXT, b'"\xc3'), 1007),
                  ("surrogate", frame(TEXT, b'"\xed\xa0\x80"'), 1007)]
        for name, data, code in broken:
            with self.subTest(name):
                session = self.open()
                session.send_raw(data)
                self.assert_closed(session, code)
        self.alive()

    def test_too_large(self):
        for name, data in (("one frame", frame(TEXT, b" " * (MIB + 1))),
                           ("told only", struct.pack(">BBQ", 0x82, 0xFF, 1 << 62) + b"maskx"),
                           ("in fragments", frame(TEXT, b" " * MIB, fin=False) + frame(0, b" "))):
            with self.subTest(name):
                session = self.open()
                try:
                    session.send_raw(data)
                except ConnectionError:
                    pass
                self.assert_closed(session, 1009)
        session = self.open()
        session.send(json.dumps({"type": "ping"}) + " " * (MIB - 20))
        session.expect("pong")
        before = self.open(token=None)
        before.send_raw(frame(TEXT, b'{"type":"auth","token":"' + b"x" * 9000 + b'"}'))
        self.assert_closed(before, 1009)

    def test_a_length_that_never_comes_costs_nothing(self):
        before, sessions = self.memory(), []
        for _ in range(100):
            session = self.open()
            session.send_raw(struct.pack(">BBQ", 0x81, 0xFF, MIB) + b"mask" + b"x" * 1000)
            sessions.append(session)
        self.assertLess(self.memory() - before, 64 * MIB)
        self.alive()

    # ---- messages ----

    def test_ten_mistakes(self):
        session = self.open()
        mistakes = ['{"type":"ping"', "[]", "7", '"x"', '{"type":"what"}', '{"type":"ping","x":1}', "{}", '{"type":1}',
                    '{"type":"stdin"}']
        for mistake in mistakes:
            session.send(mistake)
            self.assertEqual(session.expect_error()["code"], "INVALID_REQUEST", mistake)
        session.tell("ping")
        session.expect("pong")
        session.send(b"\1not stdin")
        self.assert_closed(session, 4400, "INVALID_REQUEST")

    def test_deep_json_and_long_texts(self):
        session = self.open()
        for text in ("[" * 500000, '{"a":' * 100000, '{"type":"' + "x" * 900000 + '"}', '{"type":"attach","id":"' + "y" * 900000 + '"}'):
            session.send(text)
            self.assertEqual(session.expect_error()["code"], "INVALID_REQUEST")
        self.alive()

    # ---- silence, and too much ----

    def test_who_does_not_say_who_it_is(self):
        begun = time.monotonic()
        silent, chatty, binary, wrong = (self.open(token=None) for _ in range(4))
        chatty.tell("start")
        self.assert_closed(chatty, 4401, "UNAUTHENTICATED")
        binary.send(b"\0x")
        self.assert_closed(binary, 4401, "UNAUTHENTICATED")
        wrong.send("nonsense")
        self.assert_closed(wrong, 4401, "UNAUTHENTICATED")
        self.assertLess(time.monotonic() - begun, 3)
        closed = self.assert_closed(silent, 4401, "UNAUTHENTICATED")
        self.assertEqual(json.loads(closed.messages[-1])["code"], "UNAUTHENTICATED")
        self.assertGreater(time.monotonic() - begun, 4.5)
        self.assertLess(time.monotonic() - begun, 8)

    def test_too_many_who_do_not_say_who_they_are(self):
        waiting, crowded = [], 0
        for _ in range(300):
            waiting.append(self.open(token=None))
        for session in waiting[250:]:
            try:
                session.receive(0.3)
            except Closed as closed:
                self.assertEqual(closed.code, 4429)
                crowded += 1
            except TimeoutError:
                pass
        self.assertEqual(crowded, 300 - 256)
        self.alive()  # who has a token in the head is not concerned
        for session in waiting:
            session.drop()
        time.sleep(1)
        late = self.open(token=None)
        late.tell("auth", token=self.grant["token"])
        late.expect("auth_ok")

    def test_a_thousand_idle_sockets(self):
        self.alive()
        before, descriptors = self.memory(), self.descriptors()
        sessions = [self.open() for _ in range(1000)]
        grown = self.memory() - before
        self.assertLess(grown / 1000, 48 << 10, f"{grown >> 10} KiB")
        begun = time.monotonic()
        self.alive()
        self.assertLess(time.monotonic() - begun, 2)
        for session in sessions[::100]:
            session.tell("ping")
            session.expect("pong")
        for session in sessions:
            session.drop()
        until = time.monotonic() + 10
        while self.descriptors() > descriptors + 20:
            self.assertLess(time.monotonic(), until, "descriptors are left")
            time.sleep(0.1)
        print(f"    1,000 idle sockets: {grown >> 10} KiB of the front")

    def test_a_flood_of_pings(self):
        before = self.memory()
        session = self.open()
        session.socket.settimeout(2)
        flood, sent = frame(PING, b"x" * 125) * 200, 0
        try:
            while sent < 64 * MIB:  # nothing of what comes back is read
                session.send_raw(flood)
                sent += len(flood)
        except (TimeoutError, ConnectionError):
            pass
        self.assertLess(self.memory() - before, 32 * MIB)
        self.alive()
        other = self.open()
        for _ in range(3000):
            other.send_raw(frame(PING, b"p") + frame(TEXT, PING_FRAME))
        for _ in range(3000):
            other.expect("pong")

    def test_who_asks_and_does_not_read(self):
        before = self.memory()
        session = self.open(receive_buffer=4096)
        session.socket.settimeout(2)
        asked, sent = frame(TEXT, PING_FRAME) * 500, 0
        try:
            while sent < 64 * MIB:
                session.send_raw(asked)
                sent += len(asked)
        except (TimeoutError, ConnectionError):
            pass
        self.assertLess(sent, 32 * MIB)
        self.assertLess(self.memory() - before, 32 * MIB)
        self.alive()

    def test_half_open_and_half_closed(self):
        reset, closed = self.open(), self.open()
        id = reset.start(cmd="sleep 60", tty=False)["id"]
        closed.attach(id)
        reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.drop()  # a reset
        closed.socket.shutdown(socket.SHUT_WR)
        self.assertIn(closed.wait_closed(5).code, (1000, 1002, 1006))
        seen = self.deployment.request("GET", self.grant["endpoints"]["http"] + f"/processes/{id}",
                                       token=self.grant["token"]).json
        self.assertEqual(seen["state"], "running")
        self.alive()

    def test_a_peer_that_vanishes_is_noticed(self):
        session = self.open()
        begun = time.monotonic()
        pinged = None
        while True:  # like a cable that is pulled: nothing is answered
            session.socket.settimeout(60)
            try:
                opcode, data = session.read_frame()
            except Closed as gone:
                self.assertEqual(gone.code, 1006)
                break
            if opcode == PING:
                pinged = time.monotonic() - begun
            if opcode == CLOSE:
                self.assertEqual(struct.unpack(">H", data[:2])[0], 4408)
        self.assertTrue(pinged and 18 < pinged < 25, pinged)
        self.assertLess(time.monotonic() - begun, 50)

    # ---- the handshake ----

    def test_handshakes_that_are_none(self):
        path = "/s/" + self.grant["sandbox"]["id"] + "/ws"
        good = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Authorization": "Bearer " + self.grant["token"]}
        for name, changed, status in (("good", {}, 101), ("no upgrade", {"Upgrade": None}, 426),
                                      ("another", {"Upgrade": "h2c"}, 426), ("old", {"Sec-WebSocket-Version": "8"}, 426),
                                      ("no key", {"Sec-WebSocket-Key": None}, 400),
                                      ("short key", {"Sec-WebSocket-Key": "YQ=="}, 400),
                                      ("no connection", {"Connection": "keep-alive"}, 426)):
            with self.subTest(name), socket.create_connection(("127.0.0.1", self.deployment.port + 1), 10) as c:
                headers = {k: v for k, v in {**good, **changed}.items() if v}
                c.sendall((f"GET {path} HTTP/1.1\r\nHost: x\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) +
                           "\r\n").encode())
                answer = c.recv(4096).decode("latin-1")
                self.assertEqual(int(answer.split()[1]), status, answer)
                if status == 426:
                    self.assertIn("sec-websocket-version: 13", answer.lower())
        with self.assertRaises(Refused) as refused:
            WebSocket(self.url.replace("/ws", "/wsx"))
        self.assertEqual(refused.exception.status, 404)
        post = self.deployment.request("POST", self.grant["endpoints"]["http"] + "/ws", b"", token=self.grant["token"])
        self.assertEqual(post.status, 405)

    def test_frames_behind_the_head(self):
        """Bytes that came with the handshake are the first frames."""
        with socket.create_connection(("127.0.0.1", self.deployment.port + 1), 10) as c:
            head = (f"GET /s/{self.grant['sandbox']['id']}/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode()
            auth = json.dumps({"type": "auth", "token": self.grant["token"]}).encode()
            c.sendall(head + frame(TEXT, auth) + frame(TEXT, PING_FRAME) + frame(BINARY, b""))
            data = b""
            while b"pong" not in data or b"INVALID_REQUEST" not in data:
                part = c.recv(65536)
                self.assertTrue(part, data)
                data += part


if __name__ == "__main__":
    unittest.main()
