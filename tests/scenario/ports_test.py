"""Ports of a real sandbox: HTTP streaming both ways, WebSockets, raw TCP through a tunnel, which ports are open and when
that changes; what a token of which scope may use; and apps that mean no good."""
import hashlib
import http.client
import json
import os
import socket
import sys
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.alone import SANDBOX, Alone  # noqa: E402
from parley_testing.websocket import Closed, Refused, WebSocket  # noqa: E402

APP = r'''
import base64, hashlib, json, os, socket, struct, sys, threading, time

def read_head(c):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = c.recv(65536)
        if not piece:
            return None, None, None, b""
        data += piece
    head, rest = data.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    headers = [line.split(": ", 1) for line in lines[1:]]
    return lines[0], headers, {k.lower(): v for k, v in headers}, rest

def answer(c, body, extra=""):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + extra.encode() +
              b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)

def chunks(c, h, rest):
    """The pieces of a request's body as they come."""
    if "content-length" in h:
        left = int(h["content-length"])
        while left > 0:
            piece = rest or c.recv(65536)
            if not piece:
                return
            rest = b""
            left -= len(piece)
            yield piece
        return
    while True:
        while b"\r\n" not in rest:
            rest += c.recv(65536)
        size, rest = rest.split(b"\r\n", 1)
        size = int(size, 16)
        while len(rest) < size + 2:
            rest += c.recv(65536)
        if size == 0:
            return
        yield rest[:size]
        rest = rest[size + 2:]

def left(name):
    open("/workspace/" + name, "w").close()

def serve(c):
    line, headers, h, rest = read_head(c)
    if not line:
        return
    method, target, _ = line.split(" ")
    path = target.split("?")[0]
    if path == "/echo":
        body = b"".join(chunks(c, h, rest)) if "content-length" in h or "transfer-encoding" in h else b""
        answer(c, json.dumps({"method": method, "target": target, "headers": headers,
                              "body": body.decode("latin-1")}).encode(), "Set-Cookie: a=b\r\nService-Worker-Allowed: /\r\n")
    elif path == "/stream":
        c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in chunks(c, h, rest):
            c.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
        c.sendall(b"0\r\n\r\n")
    elif path == "/count":
        answer(c, b"%d" % sum(len(piece) for piece in chunks(c, h, rest)))
    elif path == "/never":
        open("/workspace/asked", "w").close()
        c.recv(1)
        left("left")
    elif path == "/endless":
        c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                c.sendall(b"5\r\ntick\n\r\n")
                time.sleep(0.02)
        except OSError:
            left("stopped")
    elif path == "/ws":
        accept = base64.b64encode(hashlib.sha1((h["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        while True:  # every byte back, unmasked frames made of masked ones
            while len(rest) < 6:
                piece = c.recv(65536)
                if not piece:
                    return
                rest += piece
            size = rest[1] & 127
            while len(rest) < 6 + size:
                rest += c.recv(65536)
            data = bytes(b ^ rest[2 + i % 4] for i, b in enumerate(rest[6:6 + size]))
            c.sendall(bytes([rest[0], size]) + data)
            if rest[0] & 15 == 8:
                return
            rest = rest[6 + size:]
    elif path == "/garbage":
        c.sendall(b"\x00\x01 this is no HTTP at all \xff\xfe\r\n\r\n")
    elif path == "/closes":
        pass
    elif path == "/endless-head":
        try:
            c.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while True:
                c.sendall(b"a" * 65536)
        except OSError:
            pass
    elif path == "/many-headers":
        try:
            c.sendall(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 1000) for i in range(5000)) + b"\r\n")
        except OSError:
            pass
    elif path == "/splits":
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 50\r\n\r\nok")
    elif path == "/short":
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")

def guard(f, c):
    try:
        f(c)
    except OSError:
        pass
    finally:
        c.close()

def listen(family, address, port, f):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((address, port))
    s.listen(200)
    def loop():
        while True:
            c, _ = s.accept()
            threading.Thread(target=guard, args=(f, c), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()

def raw(c):
    """All of it back behind its end."""
    data = b""
    while True:
        piece = c.recv(65536)
        if not piece:
            break
        data += piece
    c.sendall(data)
    c.shutdown(socket.SHUT_WR)

listen(socket.AF_INET, "127.0.0.1", 3000, serve)
listen(socket.AF_INET6, "::1", 3001, serve)
listen(socket.AF_INET, "0.0.0.0", 3002, raw)
print("ready", flush=True)
for line in sys.stdin:
    what, port = line.split()
    if what == "open":
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", int(port)))
        s.listen()
        globals()["s" + port] = s
    else:
        globals().pop("s" + port).close()
    print(what, port, flush=True)
'''


@needs_root
class Ports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.alone = Alone()
        cls.addClassCleanup(cls.alone.close)
        answer = cls.alone.prepare()
        assert answer.get("ok") or "error" not in answer, answer
        status, _ = cls.alone.verb("PUT", "/files/workspace/app.py", APP, cls.alone.token("fs:rw"))
        assert status in (200, 201, 204), status
        cls.start_app()
        cls.port_token = cls.alone.token("port")

    @classmethod
    def start_app(cls):
        status, data = cls.alone.verb("POST", "/exec", {"argv": ["python3", "/workspace/app.py"], "id": "app",
                                                        "detach": True, "stdin_open": True})
        assert status == 201, (status, data)
        until = time.monotonic() + 30
        while b"ready" not in cls.alone.verb("GET", "/processes/app/output")[1]:
            assert time.monotonic() < until, cls.alone.logs()
            time.sleep(0.05)

    def tell_app(self, line):
        self.assertLess(self.alone.verb("POST", "/processes/app/stdin", line + "\n")[0], 300)

    def use(self, path, method="GET", body=None, token=None, headers=None, port="3000"):
        """(status, headers, body); the error's code in place of the body where there is one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.alone.port, timeout=30)
        try:
            connection.request(method, f"/s/{SANDBOX}/ports/{port}{path}", body,
                               {"Authorization": "Bearer " + (token or self.port_token), **(headers or {})})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            data = json.loads(data)["error"]
        return answer.status, answer.headers, data

    def exists(self, name, wanted=True, seconds=20):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (self.alone.exec(f"test -e /workspace/{name}")["exit_code"] == 0) == wanted:
                return True
            time.sleep(0.05)
        return False

    # ---- HTTP ----

    def test_request_and_answer(self):
        status, headers, data = self.use("/echo?a=1&b=%20&token=own", "POST", b"body\x00\xff",
                                         headers={"X-Mine": "yes", "X-API-Key": "pk_" + "a" * 30})
        said = json.loads(data)
        self.assertEqual((status, said["method"], said["target"], said["body"]),
                         (200, "POST", "/echo?a=1&b=%20&token=own", "body\x00\xff"))
        got = {name.lower(): value for name, value in said["headers"]}
        self.assertEqual((got["x-mine"], got["host"]), ("yes", "localhost:3000"))
        for name in ("authorization", "x-api-key"):  # ours
            self.assertNotIn(name, got)
        self.assertEqual(headers["Set-Cookie"], "a=b")
        self.assertIsNone(headers["Service-Worker-Allowed"])  # it would reach other sandboxes' pages
        self.assertNotIn(self.port_token, json.dumps(said))

    def test_only_at_ipv6(self):
        self.assertEqual(self.use("/echo", port="3001")[0], 200)

    def test_streams_both_ways(self):
        """Each piece comes back before the next one is sent."""
        with socket.create_connection(("127.0.0.1", self.alone.port), timeout=30) as raw:
            raw.sendall(f"POST /s/{SANDBOX}/ports/3000/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                        f"{self.port_token}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            got = b""
            for i in range(5):
                piece = b"piece %d;" % i
                raw.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                while piece not in got:
                    more = raw.recv(65536)
                    self.assertTrue(more, got)
                    got += more
            raw.sendall(b"0\r\n\r\n")
            while not got.endswith(b"0\r\n\r\n"):
                more = raw.recv(65536)
                self.assertTrue(more, got)
                got += more

    def test_large_body(self):
        size = 20_000_000
        self.assertEqual(self.use("/count", "PUT", b"x" * size)[2], b"%d" % size)

    def test_nobody_listens(self):
        status, _, error = self.use("/", port="3999")
        self.assertEqual((status, error["code"], error["retryable"]), (502, "BAD_GATEWAY", True))
        self.assertIn("3999", error["message"])

    def test_client_leaves(self):
        """An app that never answers, and one that answers without end, see the client leave."""
        for path, sign in (("/never", "left"), ("/endless", "stopped")):
            with self.subTest(path):
                self.alone.exec(f"rm -f /workspace/{sign} /workspace/asked")
                with socket.create_connection(("127.0.0.1", self.alone.port), timeout=30) as raw:
                    raw.sendall(f"GET /s/{SANDBOX}/ports/3000{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                                f"{self.port_token}\r\n\r\n".encode())
                    if path == "/never":
                        self.assertTrue(self.exists("asked"))
                    else:
                        self.assertIn(b"200", raw.recv(100))
                self.assertTrue(self.exists(sign), self.alone.logs())

    def test_ends_with_its_token(self):
        token = self.alone.token("port", ttl=3)
        connection = http.client.HTTPConnection("127.0.0.1", self.alone.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", f"/s/{SANDBOX}/ports/3000/endless", headers={"Authorization": "Bearer " + token})
        answer = connection.getresponse()
        with self.assertRaises((http.client.HTTPException, OSError)):
            while True:
                if not answer.read(5):
                    raise AssertionError("it ended as if it were whole")

    def test_many_at_once(self):
        results = []

        def one(i):
            results.append(self.use(f"/echo?{i}")[0])
        threads = [threading.Thread(target=one, args=(i,)) for i in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [200] * 100)

    def test_websocket(self):
        url = f"ws://127.0.0.1:{self.alone.port}/s/{SANDBOX}/ports/3000/ws"
        with WebSocket(url, {"Authorization": "Bearer " + self.port_token}) as peer:
            for text in ("hello", "again"):
                peer.send(text)
                self.assertEqual(peer.receive(), text)

    def test_hostile_apps(self):
        for path in ("/garbage", "/closes", "/endless-head", "/many-headers", "/splits"):
            with self.subTest(path):
                status, _, error = self.use(path)
                self.assertEqual((status, error["code"]), (502, "BAD_GATEWAY"))
        with self.assertRaises((http.client.IncompleteRead, ConnectionResetError)):
            self.use("/short")
        self.assertEqual(self.use("/echo")[0], 200)

    # ---- who may ----

    def test_scopes(self):
        cases = {"port": 200, "port@3000": 200, "port@3001": 403, "process": 403, "fs:rw shell": 403,
                 "port@3001 port@3000": 200, "port@3000 fs:rw": 200}
        for scope, wanted in cases.items():
            with self.subTest(scope):
                self.assertEqual(self.use("/echo", token=self.alone.token(scope))[0], wanted)
        narrow = self.alone.narrow(self.port_token, scope="port@3000")
        self.assertEqual(self.use("/echo", token=narrow)[0], 200)
        self.assertEqual(self.use("/echo", token=narrow, port="3001")[0], 403)

    def test_spellings(self):
        """One parser reads the port, for the scope and for the connection."""
        token = self.alone.token("port@3000")
        for spelling in ("03000", "+3000", "3000x", "0", "99999", "65536", "-1", "0xbb8", "3e3", "%2B3000", "3000%20",
                         "%203000", "3000.0", "localhost", "127.0.0.1:3000", "3000%3A3001", "\u0663000".encode().hex()):
            for held in (token, self.port_token):
                with self.subTest(spelling):
                    self.assertIn(self.use("/echo", port=spelling, token=held)[0], (400, 404))
        self.assertEqual(self.use("/echo", port="%33000", token=token)[0], 200)  # the same path, RFC 3986
        self.assertEqual(self.use("/echo", port="%33001", token=token)[0], 403)

    def path_use(self, token, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.alone.port, timeout=30)
        self.addCleanup(connection.close)
        connection.request("GET", f"/c/{token}/ports/3000{path}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def test_token_in_the_path(self):
        """Holds port scopes only; the app sees no trace of it, the client's own Authorization and no cookies, which
        may be those of another sandbox's app: all are at one address."""
        for scope in ("port process", "port@3000 fs:ro", "shell port"):
            self.assertEqual(self.path_use(self.alone.token(scope), "/echo")[0], 403)
        token = self.alone.token("port@3000")
        status, headers, data = self.path_use(token, "/echo", Authorization="Basic dTpw", Cookie="other=1",
                                              Referer=f"http://127.0.0.1:{self.alone.port}/c/{token}/ports/3000/")
        self.assertEqual(status, 200, data)
        got = {name.lower(): value for name, value in json.loads(data)["headers"]}
        self.assertEqual(got["authorization"], "Basic dTpw")
        self.assertNotIn("cookie", got)
        self.assertNotIn("referer", got)
        self.assertNotIn(token.split(".")[1], data.decode())
        self.assertEqual((headers["Referrer-Policy"], headers["Set-Cookie"]), ("no-referrer", None))
        referer = "https://example.org/page"
        got = dict(json.loads(self.path_use(token, "/echo", Referer=referer)[2])["headers"])
        self.assertEqual({name.lower(): value for name, value in got.items()}["referer"], referer)

    # ---- which ports ----

    def ports(self, token=None):
        status, data = self.alone.verb("GET", "/ports", token=token or self.port_token)
        self.assertEqual(status, 200, data)
        return {each["port"]: each for each in json.loads(data)["ports"]}

    def test_list(self):
        ports = self.ports()
        self.assertEqual({port: ports[port]["addresses"] for port in (3000, 3001, 3002)},
                         {3000: ["127.0.0.1"], 3001: ["::1"], 3002: ["0.0.0.0"]})
        self.assertTrue(all(each["reachable"] for each in ports.values()))
        self.assertEqual(list(self.ports(self.alone.token("port@3001"))), [3001])
        self.assertEqual(self.ports(self.alone.token("port@4444")), {})
        self.assertEqual(self.alone.verb("GET", "/ports", token=self.alone.token("process"))[0], 403)

    def test_events(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.alone.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", f"/s/{SANDBOX}/ports?watch=1", headers={"Authorization": "Bearer " + self.alone.token("port@4001 port@3000")})
        stream = connection.getresponse()
        self.assertEqual((stream.status, stream.headers["Content-Type"]), (200, "text/event-stream"))

        def event():
            name = ""
            while True:
                line = stream.readline().decode().rstrip()
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: ") and name != "keepalive":
                    return name, json.loads(line[6:])
        name, data = event()
        self.assertEqual((name, [each["port"] for each in data["ports"]]), ("ports", [3000]))
        self.tell_app("open 4002")  # not ours to know
        self.tell_app("open 4001")
        name, data = event()
        self.assertEqual((name, data["port"], data["addresses"]), ("opened", 4001, ["127.0.0.1"]))
        self.tell_app("close 4002")
        self.tell_app("close 4001")
        self.assertEqual((lambda e: (e[0], e[1]["port"]))(event()), ("closed", 4001))

    # ---- tunnels ----

    def tunnel(self, port=3002, token=None):
        return WebSocket(f"ws://127.0.0.1:{self.alone.port}/s/{SANDBOX}/tunnels/{port}",
                         {"Authorization": "Bearer " + (token or self.port_token)})

    def test_tunnel(self):
        """The app answers behind the client's end: each direction ends by itself."""
        data = os.urandom(3_000_000)
        with self.tunnel() as peer:
            for at in range(0, len(data), 100_000):
                peer.send(data[at:at + 100_000])
            peer.send(json.dumps({"type": "eof"}))
            got = b""
            try:
                while True:
                    piece = peer.receive()
                    if isinstance(piece, bytes):
                        got += piece
                    else:
                        self.assertEqual(json.loads(piece), {"type": "eof"})
            except Closed as closed:
                self.assertEqual(closed.code, 1000)
            self.assertEqual(hashlib.sha256(got).digest(), hashlib.sha256(data).digest())

    def test_tunnel_refusals(self):
        for port, token, wanted in ((3999, None, 502), (3002, self.alone.token("port@3000"), 403), ("03002", None, 400)):
            with self.assertRaises(Refused) as refused:
                self.tunnel(port, token)
            self.assertEqual(refused.exception.status, wanted)
        status, _ = self.alone.verb("GET", "/tunnels/3002", token=self.port_token)
        self.assertEqual(status, 426)
        with self.tunnel() as peer:
            peer.send("nonsense")
            with self.assertRaises(Closed) as closed:
                while True:
                    peer.receive()
            self.assertEqual(closed.exception.code, 4400)

    def test_tunnel_token(self):
        with self.tunnel(token=self.alone.token("port@3002", ttl=4)) as peer:
            self.assertEqual(json.loads(peer.receive())["type"], "expiring")
            peer.send(json.dumps({"type": "auth", "token": self.alone.token("port@3002")}))
            self.assertEqual(json.loads(peer.receive())["type"], "auth_ok")
            time.sleep(5)
            peer.send(b"still")
            peer.send(json.dumps({"type": "eof"}))
            self.assertEqual(peer.receive(), b"still")
        with self.tunnel(token=self.alone.token("port@3002", ttl=2)) as peer:
            with self.assertRaises(Closed) as closed:
                while True:
                    peer.receive(30)
            self.assertEqual(closed.exception.code, 4401)
        with self.tunnel() as peer:
            peer.send(json.dumps({"type": "auth", "token": self.alone.token("port@3000")}))
            with self.assertRaises(Closed) as closed:
                while True:
                    peer.receive()
            self.assertEqual(closed.exception.code, 4403)

    def test_connections_come_back(self):
        """More than a sandbox may have at once, one after the other: each is counted off again."""
        for _ in range(600):
            self.assertEqual(self.use("/echo")[0], 200)


@needs_root
class PortsAndTheRest(unittest.TestCase):
    """Of a whole deployment: revocation, pause, a front that is killed; what the node itself listens at inside."""

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def lease(self, thread, **more):
        grant = self.deployment.negotiate(thread, **more)
        base = grant["endpoints"]["http"]
        reply = self.deployment.request("PUT", base + "/files/workspace/app.py", APP.encode(), token=grant["token"])
        self.assertIn(reply.status, (200, 201), reply)
        reply = self.deployment.request("POST", base + "/exec", {"argv": ["python3", "/workspace/app.py"], "id": "app",
                                                                 "detach": True, "stdin_open": True}, token=grant["token"])
        self.assertEqual(reply.status, 201, reply)
        self.until(lambda: self.echo(grant) == 200)
        return grant, base

    def until(self, holds, seconds=30):
        stop = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), stop, self.deployment.logs())
            time.sleep(0.05)

    def echo(self, grant):
        return self.deployment.request("GET", grant["endpoints"]["http"] + "/ports/3000/echo", token=grant["token"],
                                       record=False).status

    def test_revocation_cuts(self):
        grant, base = self.lease("revoked")
        parts = urllib.parse.urlsplit(base)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", parts.path + "/ports/3000/endless", headers={"Authorization": "Bearer " + grant["token"]})
        answer = connection.getresponse()
        self.assertEqual(answer.read(5), b"tick\n")
        tunnel = WebSocket(base.replace("http", "ws", 1) + "/tunnels/3002", {"Authorization": "Bearer " + grant["token"]})
        self.addCleanup(tunnel.drop)
        reply = self.deployment.request("POST", "/revocations", {"jti": grant["jti"], "reason": "test"})
        self.assertIn(reply.status, (200, 202), reply)
        with self.assertRaises((http.client.HTTPException, OSError)):
            while answer.read(5):
                pass
            raise AssertionError("it ended as if it were whole")
        with self.assertRaises(Closed) as closed:
            while True:
                tunnel.receive(30)
        self.assertEqual(closed.exception.code, 4401)
        self.assertEqual(self.echo(grant), 401)

    def test_use_wakes_and_looking_does_not(self):
        grant, base = self.lease("paused")
        reply = self.deployment.request("POST", f"/sandboxes/{grant['sandbox']['id']}/pause", {})
        self.assertIn(reply.status, (200, 202, 204), reply)
        metrics = lambda: self.deployment.request("GET", base + "/metrics", token=grant["token"]).json  # noqa: E731
        self.until(lambda: metrics()["paused"])
        listed = self.deployment.request("GET", base + "/ports", token=grant["token"])
        self.assertIn(3000, [each["port"] for each in listed.json["ports"]])
        self.assertTrue(metrics()["paused"])
        self.assertEqual(self.echo(grant), 200)
        self.assertFalse(metrics()["paused"])

    def test_front_killed(self):
        grant, _ = self.lease("killed")
        self.deployment.kill("sandboxd")
        self.deployment.up()
        self.until(lambda: self.echo(grant) == 200)

    def test_own_listeners_are_not_shown(self):
        """The resolver inside is the node's; a program at the same port of another address is not."""
        grant, base = self.lease("resolver", network={"egress": "public"})
        inside = self.deployment.shell(grant, "cat /proc/net/tcp")
        self.assertIn(" 3500007F:0035 ", inside)  # 127.0.0.53:53
        ports = [each["port"] for each in self.deployment.request("GET", base + "/ports", token=grant["token"]).json["ports"]]
        self.assertEqual(ports, [3000, 3001, 3002], inside)

    def test_reserved_ids(self):
        grant = self.deployment.negotiate("reserved")
        for id in ("kernel.x.1", "execution.x"):
            reply = self.deployment.request("POST", grant["endpoints"]["http"] + "/exec", {"cmd": "true", "id": id},
                                            token=grant["token"])
            self.assertEqual((reply.status, reply.code), (400, "INVALID_REQUEST"))
            with WebSocket(grant["endpoints"]["ws"], {"Authorization": "Bearer " + grant["token"]}) as peer:
                peer.receive()  # auth_ok
                peer.send(json.dumps({"type": "start", "cmd": "true", "id": id}))
                self.assertEqual(json.loads(peer.receive())["code"], "INVALID_REQUEST")


if __name__ == "__main__":
    unittest.main()
