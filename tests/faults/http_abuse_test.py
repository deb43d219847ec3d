"""HTTP as nobody well-meaning speaks it, against both planes and through a sandbox's port: what two readers could read in two
ways is refused and ends the connection, what is slow, endless or many costs little, and others are answered meanwhile.
PARLEY_LONG=1: the full numbers, and the limits of time."""
import contextlib
import http.client
import json
import os
import re
import resource
import socket
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

LONG = os.environ.get("PARLEY_LONG") == "1"
MIB = 1 << 20
RESET = struct.pack("ii", 1, 0)
BEHIND = b"GET /healthz HTTP/1.1\r\nHost: smuggled\r\n\r\n"
CHUNKED, CLOSE = b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"


def read_all(connection, seconds=10):
    """Until the end or a reset; what is open after `seconds` raises."""
    data, until = b"", time.monotonic() + seconds
    try:
        while part := connection.recv(65536):
            data += part
            connection.settimeout(max(until - time.monotonic(), 0.001))
    except ConnectionError:
        pass
    return data


def statuses(data):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


class Plane:
    """Where requests go: a port, a path that takes a POST of JSON, and its credential."""

    def __init__(self, deployment, name, port, path, token, body):
        self.deployment, self.name, self.port, self.path, self.body = deployment, name, port, path.encode(), body
        self.credential = f"Authorization: Bearer {token}\r\n".encode()

    def connect(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def head(self, *fields, method=b"POST", version=b"HTTP/1.1"):
        return (method + b" " + self.path + b" " + version + b"\r\nHost: x\r\nContent-Type: application/json\r\n" +
                self.credential + b"".join(fields) + b"\r\n")

    def length(self):
        return b"Content-Length: %d\r\n" % len(self.body)

    def answers(self, data):
        """Sends all at once and reads to the end of the connection."""
        with self.connect() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            return read_all(connection)

    def pid(self):
        name = "parley-negotiator" if self.name == "negotiator" else "parley-sandboxd"
        return max(self.deployment.pids(name))

    def memory(self):
        with open(f"/proc/{self.pid()}/status") as status:
            return int(re.search(r"^VmRSS:\s+(\d+)", status.read(), re.M)[1]) << 10

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid()}/fd"))

    def established(self):
        """Connections that the server has open, of this machine's table."""
        suffix, count = ":%04X" % self.port, 0
        with open("/proc/net/tcp") as table:
            for line in table.readlines()[1:]:
                words = line.split()
                count += words[1].endswith(suffix) and words[3] in ("01", "08") and words[9] != "0"
        return count


def heads_in_two_ways(plane):
    """Requests whose head or framing can be read in two ways, or that are not for a server like this: name, bytes."""
    body, length, head = plane.body, plane.length(), plane.head
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    yield from ((name, head(*fields) + data) for name, fields, data in (
        ("length beside chunks", (length, CHUNKED), chunks), ("chunks beside length", (CHUNKED, length), chunks),
        ("length twice", (length, length), body), ("two lengths", (length, b"Content-Length: 0\r\n"), body),
        ("chunks twice", (CHUNKED, CHUNKED), chunks), ("blank before colon", (b"Transfer-Encoding : chunked\r\n",), chunks),
        ("blank before colon of length", (length.replace(b":", b" :"),), body),
        ("folded encoding", (b"Transfer-Encoding:\r\n chunked\r\n",), chunks),
        ("folded by tab", (length, b"X: y\r\n\tTransfer-Encoding: chunked\r\n"), body),
        ("NUL in a name", (length, b"X\0Y: z\r\n"), body), ("NUL in a value", (length, b"X: y\0z\r\n"), body),
        ("CR alone", (length, b"X: y\rContent-Length: 0\r\n"), body), ("LF alone", (length, b"X: y\nZ: z\r\n"), body),
        ("no colon", (length, b"Garbage\r\n"), body), ("no name", (length, b": x\r\n"), body),
        ("two hosts", (length, b"Host: y\r\n"), body), ("two credentials", (length, plane.credential), body),
        ("two types", (length, b"Content-Type: text/plain\r\n"), body),
        ("unknown expectation", (length, b"Expect: 200-ok\r\n"), body),
        ("two expectations", (length, b"Expect: 100-continue\r\nExpect: 100-continue\r\n"), body),
        ("101 headers", (length, b"X: y\r\n" * 101), body), ("5,000 headers", (length, b"X: y\r\n" * 5000), body)))
    for value in (b"+1", b"-1", b"0x2", b"2 2", b"2, 2", b"1e1", b"", b"9" * 23, b"02", b"2\x0b"):
        yield f"length {value}", head(b"Content-Length: " + value + b"\r\n") + body
    for value in (b"chunked, chunked", b"gzip, chunked", b"chunked, identity", b"identity", b"xchunked", b"chunked;q=1",
                  b"\x0bchunked", b'"chunked"', b"chunked\0", b"", b"chunked,"):
        yield f"encoding {value}", head(b"Transfer-Encoding: " + value + b"\r\n") + chunks
    good = head(length) + body
    yield from (("LF for all lines", good.replace(b"\r\n", b"\n")), ("LF first", b"\n" + good),
                ("blank before a name", good.replace(b"\r\nHost", b"\r\n Host")),
                ("no host", good.replace(b"Host: x\r\n", b"")),
                ("chunks in 1.0", head(CHUNKED, version=b"HTTP/1.0") + chunks),
                ("absolute form", good.replace(plane.path, b"http://x" + plane.path, 1)),
                ("a proxy's", b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n"), ("asterisk", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"),
                ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"),
                ("two blanks", good.replace(b" HTTP/1.1", b"  HTTP/1.1")), ("a tab", good.replace(b" HTTP/1.1", b"\tHTTP/1.1")),
                ("lower case", good.replace(b"HTTP/1.1", b"http/1.1")), ("1.2", good.replace(b"HTTP/1.1", b"HTTP/1.2")),
                ("1.10", good.replace(b"HTTP/1.1", b"HTTP/1.10")), ("no version", good.replace(b" HTTP/1.1", b"", 1)),
                ("dots", good.replace(plane.path, plane.path + b"/../x", 1)),
                ("coded dots", good.replace(plane.path, plane.path + b"/%2e%2e/x", 1)))


def chunks_in_two_ways(body):
    """Chunked bodies of `body` that a lenient reader would take: name, bytes."""
    size, end = b"%x" % len(body), b"0\r\n\r\n"
    data = body + b"\r\n"
    for name, line in (("0x", b"0x" + size + b"\r\n"), ("+", b"+" + size + b"\r\n"), ("-", b"-" + size + b"\r\n"),
                       ("blank", b" " + size + b"\r\n"), ("none", b"\r\n"), ("junk", size + b"junk\r\n"),
                       ("LF", size + b"\n"), ("CR CR LF", size + b"\r\r\n"), ("wraps", b"1" + b"0" * 15 + size + b"\r\n"),
                       ("huge", b"f" * 16 + b"\r\n"), ("zeros", b"0" * 40 + size + b"\r\n"),
                       ("LF in extension", size + b";a\nb\r\n"), ("CR in extension", size + b";a\rb\r\n"),
                       ("NUL in extension", size + b";a\0\r\n"), ("long extension", size + b";" + b"a" * 20000 + b"\r\n")):
        yield "size: " + name, line + data + end
    size += b"\r\n"
    for name, rest in (("data LF", body + b"\n" + end), ("data without end", body + end), ("data too long", body + b"xx\r\n" + end),
                       ("end LF", data + b"0\n\r\n"), ("last LF", data + b"0\r\n\n"),
                       ("broken trailer", data + b"0\r\nX\0: y\r\n\r\n"), ("endless trailers", data + b"0\r\n" + b"X: y\r\n" * 5000)):
        yield name, size + rest


@needs_root
class HttpAbuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # What a sanitizer keeps of freed memory is not the program's.
        cls.deployment = Deployment(ASAN_OPTIONS="quarantine_size_mb=4:thread_local_quarantine_size_kb=64")
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("abuse")
        path, token = "/s/" + cls.grant["sandbox"]["id"], cls.grant["token"]
        port = cls.deployment.port
        cls.held = Plane(cls.deployment, "sandboxd", port + 1, path + "/exec", token, b'{"cmd":"true","stream":"none"}')
        cls.planes = [Plane(cls.deployment, "negotiator", port, "/threads/abuse/sandbox", cls.deployment.key, b"{}"), cls.held]
        cls.pouring = Plane(cls.deployment, "sandboxd, poured", port + 1, path + "/files/workspace/poured", token, b"poured")
        cls.before = cls.state()

    @classmethod
    def state(cls):
        return [(plane.pid(), plane.memory(), plane.descriptors()) for plane in cls.planes]

    def setUp(self):
        self.started, self.commands = self.state(), 0

    def tearDown(self):
        """The same processes answer, and what they held is given back."""
        self.alive()
        until = time.monotonic() + 30
        for plane, (pid, memory, descriptors) in zip(self.planes, self.started):
            self.assertEqual(plane.pid(), pid, self.deployment.logs())
            # each command that ended keeps its output for a replay: three descriptors at most
            while plane.descriptors() > descriptors + 20 + 3 * self.commands:
                self.assertLess(time.monotonic(), until, f"{plane.name} keeps {plane.descriptors() - descriptors} descriptors")
                time.sleep(0.1)
            self.assertLess(plane.memory() - memory, 64 * MIB, plane.name)

    def alive(self):
        self.commands += 1
        self.assertEqual(self.deployment.shell(self.grant, "echo alive"), "alive\n")
        self.assertEqual(self.deployment.request("GET", "/healthz", token=None).status, 200)
        self.assertIn(self.deployment.request("POST", "/threads/abuse/sandbox", {}).status, (200, 201))

    def assert_refused(self, plane, data, allowed=range(400, 500)):
        """One refusal, and the connection ends: what stands behind it is nobody's request."""
        answer = plane.answers(data + BEHIND)
        seen = statuses(answer)
        self.assertEqual(len(seen), 1, answer[:600])
        self.assertIn(seen[0], allowed, answer[:600])
        self.assertIn(b'"error"', answer)
        self.assertNotIn(b"poured", answer)

    # ---- what can be read in two ways ----

    def test_heads_in_two_ways(self):
        for plane in (*self.planes, self.pouring):
            for name, data in heads_in_two_ways(plane):
                with self.subTest(f"{plane.name}: {name}"):
                    data = data.replace(b"POST", b"PUT", 1) if plane is self.pouring else data
                    self.assert_refused(plane, data)

    def test_chunks_in_two_ways(self):
        for plane in (*self.planes, self.pouring):
            head = plane.head(CHUNKED, method=b"PUT" if plane is self.pouring else b"POST")
            for name, body in chunks_in_two_ways(plane.body):
                with self.subTest(f"{plane.name}: {name}"):
                    self.assert_refused(plane, head + body, (400, 413))

    def test_what_is_odd_but_clear(self):
        for plane in self.planes:
            size, body = b"%x" % len(plane.body), plane.body
            for name, data in (("spellings", plane.head(b"tRANSFER-eNCODING: \t CHUNKED\r\n") + size + b"\r\n" + body + b"\r\n0\r\n\r\n"),
                               ("extension", plane.head(CHUNKED) + size + b';a="b"\r\n' + body + b"\r\n000\r\nX: y\r\n\r\n"),
                               ("h2c", plane.head(plane.length(), b"Connection: Upgrade, HTTP2-Settings, keep-alive\r\nUpgrade: h2c\r\n"
                                                  b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n") + body),
                               ("empty lines first", b"\r\n\r\n" + plane.head(plane.length()) + body),
                               ("not asked to wait", plane.head(plane.length(), b"Expect: 100-continue\r\n") + body)):
                with self.subTest(f"{plane.name}: {name}"):
                    behind = BEHIND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
                    answer = plane.answers(data + behind)
                    self.assertIn(statuses(answer), ([200, 200], [201, 200], [200], [201]), answer[:600])

    # ---- what is large ----

    def test_large_heads(self):
        for plane in self.planes:
            for name, data in (("a target", b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
                               ("a value", plane.head(b"X: " + b"y" * 70000 + b"\r\n")),
                               ("endless", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (4 * MIB)),
                               ("headers without end", b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 100000)):
                with self.subTest(f"{plane.name}: {name}"):
                    self.assertIn(statuses(plane.answers(data)), ([431], []))  # a reset may overtake the answer

    def test_bodies_without_end(self):
        for plane in self.planes:
            for credential, status in ((b"", 401), (plane.credential, 413)):
                with self.subTest(f"{plane.name}: {status}"), plane.connect() as connection:
                    head, sent = plane.head(CHUNKED).replace(plane.credential, credential), 0
                    with contextlib.suppress(ConnectionError, TimeoutError):
                        connection.sendall(head)
                        while sent < 64 * MIB:
                            connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
                            sent += 65536
                    self.assertLess(sent, 48 * MIB)
                    self.assertIn(statuses(read_all(connection)), ([status], []))

    def test_bodies_up_to_the_limit(self):
        """What may be sent is taken, whatever the process may write to."""
        large = json.dumps({"metadata": {}}).encode() + b" " * 1000000
        reply = self.deployment.request("POST", "/threads/abuse/sandbox", large, headers={"Content-Type": "application/json"})
        self.assertIn(reply.status, (200, 201), reply)

    def test_bodies_that_are_promised(self):
        """100-continue, and then nothing or somebody else's request."""
        plane = self.held
        waiting = []
        for _ in range(200):
            connection = plane.connect()
            connection.sendall(plane.head(plane.length(), b"Expect: 100-continue\r\n"))
            waiting.append(connection)
        for connection in waiting:
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 100 Continue\r\n\r\n"))
        self.alive()
        waiting[0].sendall(plane.body + BEHIND)  # behind it a request is one
        data = b""
        while statuses(data) != [200, 200]:
            part = waiting[0].recv(65536)
            self.assertTrue(part, data)
            data += part
        with plane.connect() as connection:
            connection.sendall(plane.head(b"Content-Length: 99999999999\r\n", b"Expect: 100-continue\r\n"))
            self.assertEqual(statuses(read_all(connection)), [413])
        for connection in waiting:
            connection.close()

    # ---- what is many ----

    def test_resets(self):
        """Connect, ask, reset, thousands of times."""
        for plane in self.planes:
            request = plane.head(plane.length()) + plane.body
            for number in range(3000 if LONG else 500):
                with plane.connect() as connection:
                    data = (BEHIND, request[:number % len(request)], b"", request if number % 20 == 0 else BEHIND)[number % 4]
                    connection.sendall(data)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.alive()

    def test_pipelining(self):
        """Thousands of requests in one connection of which no answer is read: the server stops reading."""
        asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        for plane in self.planes:
            before, sent = plane.memory(), 0
            with socket.socket() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.settimeout(1)
                connection.connect(("127.0.0.1", plane.port))
                flood = asked * 1000
                with contextlib.suppress(TimeoutError):
                    while sent < 64 * MIB:
                        sent += connection.send(flood[sent % len(flood):])
                self.assertLess(sent, 64 * MIB)
                self.assertLess(plane.memory() - before, 32 * MIB)
                self.alive()
                connection.settimeout(20)
                answers = b""
                while answers.count(b"HTTP/1.1 200 ") < min(sent // len(asked), 2000):  # those are answered all the same
                    part = connection.recv(1 << 20)
                    self.assertTrue(part)
                    answers += part
            self.alive()

    def test_slow_heads_and_silence(self):
        count = 1000 if LONG else 200
        for plane in self.planes:
            slow = [plane.connect() for _ in range(count)]
            for number, connection in enumerate(slow):
                connection.sendall((b"", b"G", b"GET /healthz HTTP/1.1\r\nX-Slow: ", plane.head()[:-2])[number % 4])
            self.alive()
            for _ in range(12 if LONG else 1):  # a byte a second keeps nobody
                for connection in slow[1::4]:
                    with contextlib.suppress(ConnectionError):
                        connection.send(b"G")
                self.alive()
                time.sleep(1 if LONG else 0)
            if LONG:
                self.assertLess(plane.established(), count / 4)
            for connection in slow:
                connection.close()

    @unittest.skipUnless(LONG, "PARLEY_LONG=1: the limits are 10 s and more")
    def test_slow_bodies(self):
        for plane in self.planes:
            slow = [plane.connect(40) for _ in range(50)]
            for connection in slow:
                connection.sendall(plane.head(b"Content-Length: 1000\r\n") + b" ")
            until = time.monotonic() + 15
            while time.monotonic() < until:
                for connection in slow:
                    with contextlib.suppress(ConnectionError):
                        connection.send(b" ")
                self.alive()
                time.sleep(1)
            for connection in slow:
                self.assertEqual(statuses(read_all(connection)), [408])
                connection.close()

    def test_readers_that_do_not_read(self):
        """Large answers, of which nothing is taken: no more than the kernel's buffers."""
        self.deployment.shell(self.grant, "head -c 50000000 /dev/zero > /workspace/large; seq 20000 > /workspace/lines")
        readers, before = [], self.held.memory()
        for path in ("/files/workspace/large", "/files/workspace?archive=tar", "/files/workspace/lines") * 10:
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", self.held.port))
            connection.sendall(b"GET " + self.held.path[:-len("/exec")] + path.encode() + b" HTTP/1.1\r\nHost: x\r\n" +
                               self.held.credential + b"\r\n")
            readers.append(connection)
        for connection in readers:
            self.assertTrue(connection.recv(100))
        self.alive()
        self.assertLess(self.held.memory() - before, 32 * MIB)
        for connection in readers:
            connection.close()

    def test_ten_thousand_sockets(self):
        """As many as a quarter of a small machine's descriptors leaves; a thousand unless PARLEY_LONG."""
        count = 10000 if LONG else 1000
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        if hard < count + 1000:
            self.skipTest(f"only {hard} descriptors")
        for plane in self.planes:
            before = plane.memory()
            crowd = [plane.connect() for _ in range(count)]
            for connection in crowd[::10]:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            self.alive()
            print(f"    {plane.name}: {plane.established()} of {count} sockets, {(plane.memory() - before) >> 10} KiB")
            self.assertLess(plane.memory() - before, count * 32768 + 32 * MIB)
            for connection in crowd:
                connection.close()
            self.alive()

    def test_abandoned_handshakes(self):
        path = self.held.path[:-len(b"/exec")] + b"/ws"
        shake = (b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
        for number in range(1000 if LONG else 300):
            with self.held.connect() as connection:
                whole = shake + (self.held.credential if number % 2 else b"") + b"\r\n"
                connection.sendall(whole if number % 3 else whole[:number % len(whole)])
                if number % 4 == 0 and number % 3:
                    connection.recv(1)
                if number % 5:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.alive()


APP = r'''
import os, socket, threading
served = 0
def take(c):
    global served
    data = b""
    c.settimeout(20)
    while b"\r\n\r\n" not in data: data += c.recv(65536) or exit()
    head, rest = data.split(b"\r\n\r\n", 1)
    lines = head.split(b"\r\n")
    path = lines[0].split()[1]
    fields = dict(line.lower().split(b": ", 1) for line in lines[1:])
    if path.startswith(b"/say/"):
        reply = open("/workspace/say" + path[5:].decode().split("?")[0], "rb").read()
        c.sendall(reply)
        c.settimeout(1)
        if c.recv(65536):  # another request, behind an answer that was more than one
            served += 1
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        return
    if path == b"/served":
        body = b"%d" % served
    else:  # all that comes of it
        want = int(fields.get(b"content-length", 0))
        while len(rest) < want if b"transfer-encoding" not in fields else not rest.endswith(b"0\r\n\r\n"):
            rest += c.recv(65536) or exit()
        c.settimeout(0.2)
        try: rest += c.recv(65536)
        except OSError: pass
        body = head + b"\r\n\r\n" + rest
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
def guard(c):
    try: take(c)
    except (OSError, SystemExit): pass
    c.close()
s = socket.create_server(("127.0.0.1", 3000), backlog=200)
print("ready", flush=True)
while True: threading.Thread(target=guard, args=(s.accept()[0],), daemon=True).start()
'''

OK = b"HTTP/1.1 200 OK\r\n"
# Answers that would be two, or more than one thinks: refused with 502, or only their first is passed on and the connection ends.
SPLITS = {
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 50\r\n\r\nok",
    "length beside chunks": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunks and more": OK + b"Transfer-Encoding: chunked, identity\r\n\r\nok", "xchunked": OK + b"Transfer-Encoding: xchunked\r\n\r\nok",
    "CR in a value": OK + b"X: y\rSet-Cookie: evil=1\r\nContent-Length: 2\r\n\r\nok",
    "NUL in a value": OK + b"X: y\0\r\nContent-Length: 2\r\n\r\nok", "blank before colon": OK + b"Content-Length : 2\r\n\r\nok",
    "a name that is none": OK + b"X Y: z\r\nContent-Length: 2\r\n\r\nok", "minus": OK + b"Content-Length: -2\r\n\r\nok",
    "hex": OK + b"Content-Length: 0x2\r\n\r\nok", "wraps": OK + b"Content-Length: 18446744073709551618\r\n\r\nok",
    "an upgrade nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    "no status": b"HTTP/1.1 \r\n\r\n", "status 99": b"HTTP/1.1 99 X\r\n\r\n", "status 1000": b"HTTP/1.1 1000 X\r\nContent-Length: 0\r\n\r\n",
    "early hints for ever": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5000, "HTTP/2": b"\0\0\0\4\0\0\0\0\0", "HTTP/0.9": b"<html>ok</html>"}
TWICE = {
    "two answers": OK + b"Content-Length: 2\r\n\r\nok" + OK + b"Content-Length: 4\r\n\r\nevil",
    "two in chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\nevil",
    "body of a 304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\nevil",
    "body of a 204": b"HTTP/1.1 204 No Content\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\nevil",
    "hints before": b"HTTP/1.1 103 Early Hints\r\nX: evil\r\n\r\n" + OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok",
    # Read as RFC 9112 lets a proxy read it, and written anew.
    "folded": OK + b"X: y\r\n z\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    "LF in a value": OK + b"X: y\nY: z\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"}


@needs_root
class ThroughAPort(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("app")
        base, token = cls.grant["endpoints"]["http"], cls.grant["token"]
        for number, reply in enumerate([*SPLITS.values(), *TWICE.values()]):
            status = cls.deployment.request("PUT", f"{base}/files/workspace/say{number}", reply, token=token).status
            assert status < 300, status
        cls.deployment.exec(cls.grant, argv=["/usr/bin/python3", "-c", APP], id="app", detach=True)
        until = time.monotonic() + 30
        while b"ready" not in cls.deployment.request("GET", base + "/processes/app/output", token=token).body:
            assert time.monotonic() < until, cls.deployment.logs()
            time.sleep(0.05)
        cls.plane = Plane(cls.deployment, "port", cls.deployment.port + 1,
                          f"/s/{cls.grant['sandbox']['id']}/ports/3000/what", token, b"body")

    def test_requests_in_two_ways(self):
        """None of them reaches the app as two, or at all."""
        for name, data in heads_in_two_ways(self.plane):
            with self.subTest(name):
                seen = self.plane.answers(data + BEHIND)
                self.assertEqual(len(statuses(seen)), 1, seen[:600])
                self.assertTrue(400 <= statuses(seen)[0] < 500, seen[:600])
                self.assertNotIn(b"smuggled", seen)
        for name, body in chunks_in_two_ways(self.plane.body):
            with self.subTest("chunks: " + name):
                seen = self.plane.answers(self.plane.head(CHUNKED) + body + BEHIND)
                self.assertNotIn(b"smuggled", seen)
                self.assertIn(statuses(seen), ([400], [413], []), seen[:600])

    def test_the_app_sees_one_framing(self):
        for name, fields, body in (("length", (self.plane.length(),), b"body"), ("chunks", (CHUNKED,), b"4\r\nbody\r\n0\r\n\r\n"),
                                   ("extension", (CHUNKED,), b"4;x=y\r\nbody\r\n0\r\nContent-Length: 50\r\n\r\n"),
                                   ("named away", (self.plane.length(), b"Connection: close, content-length\r\n"), b"body")):
            with self.subTest(name):
                with self.plane.connect() as connection:
                    connection.sendall(self.plane.head(*fields) + body + BEHIND)
                    seen = b""
                    while not re.search(rb"\r\n\r\n.*\r\n\r\n.*body", seen, re.S):
                        part = connection.recv(65536)
                        self.assertTrue(part, seen)
                        seen += part
                said = seen.split(b"\r\n\r\n", 1)[1].split(b"HTTP/1.1 200")[0].lower()
                self.assertEqual(said.count(b"\r\ncontent-length:") + said.count(b"\r\ntransfer-encoding:"), 1, said)
                self.assertNotIn(b"50", said.split(b"body")[-1])
                self.assertNotIn(b"smuggled", said)

    def ask(self, connection, path):
        connection.request("GET", f"/s/{self.grant['sandbox']['id']}/ports/3000{path}",
                           headers={"Authorization": "Bearer " + self.grant["token"]})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def test_answers_in_two_ways(self):
        for number, name in enumerate(SPLITS):
            with self.subTest(name):
                connection = http.client.HTTPConnection("127.0.0.1", self.plane.port, timeout=20)
                status, headers, body = self.ask(connection, f"/say/{number}")
                self.assertEqual((status, json.loads(body)["error"]["code"]), (502, "BAD_GATEWAY"), body)
                self.assertNotIn("evil", str(headers))
                self.assertEqual(self.ask(connection, "/served")[0], 200)  # the next is its own
                connection.close()

    def test_more_than_one_answer(self):
        """What follows the answer is nobody's: not of the next request in the client's connection, nor in any other."""
        for number, name in enumerate(TWICE, len(SPLITS)):
            with self.subTest(name):
                connection = http.client.HTTPConnection("127.0.0.1", self.plane.port, timeout=20)
                for _ in range(3):
                    status, headers, body = self.ask(connection, f"/say/{number}")
                    self.assertIn((status, body), ((200, b"ok"), (304, b""), (204, b"")))
                    self.assertNotIn("evil", str(headers))
                    for other in (connection, http.client.HTTPConnection("127.0.0.1", self.plane.port, timeout=20)):
                        status, _, body = self.ask(other, "/served")
                        self.assertEqual((status, body.isdigit()), (200, True), body)
                connection.close()
        self.assertEqual(self.ask(http.client.HTTPConnection("127.0.0.1", self.plane.port, timeout=20), "/served")[2], b"0")


if __name__ == "__main__":
    unittest.main()
