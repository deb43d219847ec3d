"""Ports of a sandbox as OpenSandbox's clients address them: at the node (/sandboxes/{id}/port/{port}, a host of its own, a
token in the path) and through the negotiator (/sandboxes/{id}/proxy/{port}); what the app behind them gets to see; and who
tries to get in by another name."""
import http.client
import json
import os
import socket
import subprocess
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import connect_http  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402
from parley_testing.websocket import Closed, Refused, WebSocket  # noqa: E402
import ports_test  # noqa: E402

EXECD, KEY, EGRESS = "X-EXECD-ACCESS-TOKEN", "OPEN-SANDBOX-API-KEY", "OPENSANDBOX-EGRESS-AUTH"
SECRET = "pk_" + "s3cret-of-the-caller-" * 2
RESERVED = ("44772", "18080")


class World(unittest.TestCase):
    """ada's sandbox with an app on 3000 and servers on the ports that OpenSandbox has taken; bob's is another's."""

    failures = "0"  # no limit

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_AUTH_FAILURES_PER_MINUTE=cls.failures)
        cls.addClassCleanup(cls.deployment.close)
        cls.keys = {}
        for name, principal, role in (("ada", "ada", "user"), ("viewer", "ada", "viewer"), ("bob", "bob", "user")):
            cls.keys[name] = cls.deployment.request("POST", "/keys", {"principal": principal, "role": role}).json["api_key"]
        cls.grant, cls.theirs = cls.negotiate("ada"), cls.negotiate("bob")
        cls.sandbox, cls.token = cls.grant["sandbox"]["id"], cls.grant["token"]
        cls.port_token = cls.narrow(cls.token, "port")
        cls.node = urllib.parse.urlsplit(cls.deployment.node_url)
        cls.negotiator = urllib.parse.urlsplit(cls.deployment.url)
        cls.start()

    @classmethod
    def negotiate(cls, name, **wish):
        wish.setdefault("isolation", "namespaces")
        reply = cls.deployment.request("POST", "/threads/p1/sandbox", wish, token=cls.keys[name])
        assert reply.status in (200, 201), reply
        return reply.json

    @staticmethod
    def narrow(token, scope):
        return link(token, compact({"scope": scope}))

    @classmethod
    def start(cls):
        reply = cls.deployment.request("PUT", cls.grant["endpoints"]["http"] + "/files/workspace/app.py",
                                       ports_test.APP.encode(), token=cls.token)
        assert reply.status < 300, reply
        for command in ("python3 /workspace/app.py", *(f"cd /usr/lib; python3 -m http.server {port} --bind 127.0.0.1"
                                                       for port in RESERVED)):
            reply = cls.deployment.exec(cls.grant, cmd=command, detach=True, stdin_open=True)
            assert reply.status == 201, reply
        until = time.monotonic() + 30
        for port in ("3000", *RESERVED):
            while cls.deployment.request("GET", cls.grant["endpoints"]["http"] + f"/ports/{port}/echo", token=cls.token,
                                         record=False).status == 502:
                assert time.monotonic() < until, cls.deployment.logs()
                time.sleep(0.05)

    def ask(self, plane, path, headers=None, method="GET", body=None):
        """(status, headers, body) of a request whose path is sent as it stands."""
        connection = connect_http(plane)
        try:
            connection.putrequest(method, path, skip_host="Host" in (headers or {}), skip_accept_encoding=True)
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def at_node(self, path, token=None, **more):
        headers = {EXECD: token} if token else {}
        headers.update(more.pop("headers", {}))
        return self.ask(self.node, path, headers, **more)

    def by_proxy(self, path, headers, **more):
        return self.ask(self.negotiator, path, headers, **more)

    def check_seen(self, data, own="Bearer of-the-app"):
        """What the app's /echo saw has nothing of ours, and all of the client's."""
        said = json.loads(data)
        got = {name.lower(): value for name, value in said["headers"]}
        for name in (EXECD, KEY, EGRESS, "X-API-Key"):
            self.assertNotIn(name.lower(), got)
        self.assertEqual(got.get("authorization"), own)
        for secret in (self.token, self.port_token, SECRET, *self.keys.values()):
            self.assertNotIn(secret.split(".")[1] if "." in secret else secret, json.dumps(said))
        return said, got


@needs_root
class AtTheNode(World):
    def test_its_addresses(self):
        sent = {"Authorization": "Bearer of-the-app", KEY: SECRET, EGRESS: self.token, "X-Mine": "yes"}
        for form, token in ((f"/s/{self.sandbox}/port/3000", self.token), (f"/sandboxes/{self.sandbox}/port/3000", self.token),
                            (f"/c/{self.port_token}/port/3000", None)):
            with self.subTest(form.split("/")[1]):
                status, headers, data = self.at_node(form + "/echo?a=%20&token=own", token, headers=sent, method="POST",
                                                     body=b"body\x00")
                self.assertEqual(status, 200, data)
                said, got = self.check_seen(data)
                self.assertEqual((said["method"], said["target"], said["body"], got["x-mine"], got["host"]),
                                 ("POST", "/echo?a=%20&token=own", "body\x00", "yes", "localhost:3000"))
                self.assertTrue(headers["X-Request-ID"])
        for carrier in ({"Authorization": "Bearer " + self.token}, {EXECD: self.token}):
            status, _, data = self.at_node(f"/s/{self.sandbox}/port/3000/echo", headers=carrier)
            self.assertEqual(status, 200, data)
            self.check_seen(data, own=None)
        self.assertNotEqual(self.at_node(f"/sandboxes/{self.sandbox}/port/3000", self.token)[0], 404)  # "/"

    def test_who_may(self):
        path = f"/sandboxes/{self.sandbox}/port/3000/echo"
        for token, expected in ((None, 401), ("x", 401), (self.theirs["token"], 401), (self.keys["ada"], 401),
                                (self.narrow(self.token, "port@3001"), 403), (self.narrow(self.token, "process"), 403),
                                (self.narrow(self.token, "port@3000"), 200)):
            self.assertEqual(self.at_node(path, token)[0], expected, token and token[:12])
        self.assertEqual(self.at_node(path, self.token, headers={EXECD: self.theirs["token"]})[0], 401)
        both = {EXECD: self.token, "Authorization": "Bearer " + self.theirs["token"]}
        self.assertEqual(self.at_node(path, headers=both)[0], 200)  # that one is the app's
        self.assertEqual(self.at_node(f"/c/{self.token}/port/3000/echo")[0], 403)  # an app may come to see it
        self.assertEqual(self.at_node(f"/c/{self.port_token}/port/3000/echo", self.theirs["token"])[0], 400)
        self.assertEqual(self.at_node(f"/c/{self.token}/port/44772/ping", headers={KEY: SECRET})[0], 200)  # no app is there
        self.assertEqual(self.at_node(f"/sandboxes/{self.sandbox}/port/44772/ping", headers={KEY: self.keys["ada"]})[0], 401)

    def test_reserved_ports(self):
        """An app that listens there is reached by Parley's own form, and by no other."""
        for port in RESERVED:
            native = self.deployment.request("GET", self.grant["endpoints"]["http"] + f"/ports/{port}/", token=self.token,
                                             record=False)
            self.assertEqual((native.status, b"Directory listing" in native.body), (200, True))
            spelled = "%34%34772" if port == "44772" else "1808%30"
            for path in (f"/s/{self.sandbox}/port/{port}/nothing", f"/sandboxes/{self.sandbox}/port/{port}", f"/c/{self.port_token}/port/{port}/",
                         f"/sandboxes/{self.sandbox}/port/{port}//", f"/s/{self.sandbox}/port/{spelled}/", f"/s/{self.sandbox}/port/{spelled}",
                         f"/s/{self.sandbox}/port/44772/proxy/{port}/", f"/s/{self.sandbox}/port/44772/proxy/{spelled}/"):
                status, _, data = self.at_node(path, None if path.startswith("/c/") else self.token)
                self.assertEqual(status, 400 if "//" in path else 404, (path, data))
                self.assertNotIn(b"listing", data)
            self.assertEqual(self.at_node(f"/s/{self.sandbox}/port/{port}/nothing")[0], 401)

    def test_the_proxy_of_execd(self):
        path = f"/sandboxes/{self.sandbox}/port/44772/proxy/3000/echo"
        status, _, data = self.at_node(path, self.token)
        self.assertEqual(status, 200, data)
        self.check_seen(data, own=None)
        self.assertEqual(self.at_node(path, self.narrow(self.token, "port@3001 process"))[0], 403)
        self.assertEqual(self.at_node(f"/c/{self.token}/port/44772/proxy/3000/echo")[0], 403)

    def test_names_that_nearly_fit(self):
        """Each is read in one way: as a path of that sandbox, or not at all."""
        for path, expected in ((f"/sandboxes//{self.sandbox}/port/3000/echo", 404), (f"//sandboxes/{self.sandbox}/port/3000/echo", 404),
                               (f"/Sandboxes/{self.sandbox}/port/3000/echo", 404), (f"/sandboxes/{self.sandbox}/Port/3000/echo", 404),
                               (f"/%73andboxes/{self.sandbox}/port/3000/echo", 404), (f"/sandboxes%2F{self.sandbox}/port/3000/echo", 404),
                               (f"/sandboxes/{self.sandbox}%2Fport/3000/echo", 404), (f"/sandboxes/../s/{self.sandbox}/port/3000/echo", 400),
                               (f"/sandboxes/{self.sandbox}/port/3000/../3001/echo", 400), (f"/sandboxes/{self.sandbox}/port/3000/%2e%2e/x", 400),
                               (f"/sandboxes/{self.sandbox}/port/./3000/echo", 400), (f"/sandboxes/sandboxes/{self.sandbox}/port/3000/", 404),
                               (f"/sandboxes/s/{self.sandbox}/port/3000/", 404), (f"/sandboxes/{self.sandbox}/port/03000/echo", 400),
                               (f"/sandboxes/{self.sandbox}/port/3000%00/echo", 400), (f"/sandboxes/{self.sandbox}/port/65536/", 400),
                               (f"/sandboxes/{self.sandbox}/exec", 405), (f"/sandboxes/{self.sandbox}/info", 200)):
            headers = {"Authorization": "Bearer " + self.token}
            self.assertEqual(self.at_node(path, headers=headers)[0], expected, path)
        status, _, data = self.at_node(f"/sandboxes/{self.sandbox}/port/3000//echo//x", self.token)  # the app's own affair
        self.assertNotEqual(status, 404, data)

    def test_hosts(self):
        host = self.sandbox.replace("_", "-")
        for name in (f"{host}-3000.localhost:{self.node.port}", f"{host.upper()}-3000.LocalHost.", f"3000-{host}.localhost"):
            status, _, data = self.at_node("/echo", headers={"Host": name, EXECD: self.token, KEY: SECRET})
            self.assertEqual(status, 200, (name, data))
            self.check_seen(data, own=None)
            self.assertEqual(self.at_node("/echo", headers={"Host": name})[0], 401)
            self.assertEqual(self.at_node("/echo", headers={"Host": name, EXECD: self.theirs["token"]})[0], 401)
        for port in RESERVED:
            status, _, data = self.at_node("/nothing", self.token, headers={"Host": f"{host}-{port}.localhost"})
            self.assertEqual(status, 404, data)
            self.assertEqual(self.at_node("/nothing", headers={"Host": f"{host}-{port}.localhost"})[0], 401)
        ping = {"Host": f"{host.upper()}-44772.localhost:1", KEY: SECRET}
        self.assertEqual(self.at_node("/ping", self.token, headers=ping)[0], 200)
        self.assertEqual(self.at_node("/ping", headers=ping)[0], 401)
        self.assertEqual(self.at_node("/ping", self.theirs["token"], headers=ping)[0], 401)
        for name in (f"{host}-03000.localhost", f"x-{host}-3000.localhost", f"{host}.localhost", f"a.{host}-3000.localhost"):
            self.assertIn(self.at_node("/echo", self.token, headers={"Host": name})[0], (401, 404), name)

    def test_websockets_end_with_their_token(self):
        fresh = self.deployment.request("POST", "/threads/p1/sandbox", {}, token=self.keys["ada"]).json
        url = f"ws://127.0.0.1:{self.node.port}/sandboxes/{self.sandbox}/port/3000/ws".replace("ws:", self.scheme() + ":")
        with WebSocket(url, {EXECD: fresh["token"]}) as peer:
            peer.send("hello")
            self.assertEqual(peer.receive(), "hello")
            reply = self.deployment.request("POST", "/revocations", {"jti": fresh["jti"], "reason": "test"}, token=self.keys["ada"])
            self.assertEqual(reply.status, 200, reply)
            with self.assertRaises((Closed, OSError)):
                peer.receive()
        with self.assertRaises(Refused) as refused:
            WebSocket(url, {EXECD: fresh["token"]})
        self.assertEqual(refused.exception.status, 401)

    def scheme(self):
        return "wss" if self.node.scheme == "https" else "ws"

    def test_what_stays_out_of_the_logs(self):
        for path in (f"/sandboxes/{self.sandbox}/port/3000/echo", f"/sandboxes/{self.sandbox}/port/44772/nothing", f"/c/{self.port_token}/port/3000/echo"):
            self.at_node(path, None if path.startswith("/c/") else self.token, headers={KEY: SECRET, EGRESS: SECRET + "2"})
        self.by_proxy(f"/sandboxes/{self.sandbox}/proxy/3000/echo", {KEY: self.keys["ada"], EXECD: self.token})
        self.by_proxy(f"/sandboxes/{self.sandbox}/proxy/3000/echo", {KEY: SECRET})
        found = subprocess.run(["grep", "-raoE", f"{SECRET[:20]}|{self.keys['ada'][:20]}|" + self.token.split(".")[1][:40],
                                self.deployment.state + "/log"], stdout=subprocess.PIPE, check=False)
        self.assertEqual(found.stdout, b"")


@needs_root
class ThroughTheNegotiator(World):
    def proxy(self, path="/echo", key=None, prefix="", sandbox=None, port="3000", headers=None, **more):
        headers = dict(headers or {}, **({KEY: self.keys[key]} if key else {}))
        return self.by_proxy(f"{prefix}/sandboxes/{sandbox or self.sandbox}/proxy/{port}{path}", headers, **more)

    def test_it_passes_on(self):
        sent = {"Cookie": "a=b", "X-Mine": "yes", EGRESS: SECRET, "X-Forwarded-For": "203.0.113.1"}
        key = self.keys["ada"]
        for shown in ({KEY: key}, {EXECD: key}, {"X-API-Key": key}, {"Authorization": "Bearer " + key},
                      {EXECD: self.token}, {"Authorization": "Bearer " + self.token}, {KEY: key, EXECD: self.token},
                      {KEY: key, EXECD: key}, {KEY: key, "Authorization": "Bearer of-the-app"}):
            for prefix in ("", "/v1"):
                with self.subTest(shown=list(shown), prefix=prefix):
                    status, headers, data = self.proxy("/echo?a=%20&token=own&key=1", prefix=prefix, headers=dict(sent, **shown),
                                                       method="PUT", body=b"body\x00\xff")
                    self.assertEqual(status, 200, data)
                    said, got = self.check_seen(data, own=None)
                    self.assertEqual((said["method"], said["target"], said["body"], got["x-mine"]),
                                     ("PUT", "/echo?a=%20&token=own&key=1", "body\x00\xff", "yes"))
                    self.assertNotIn("cookie", got)
                    self.assertIsNone(headers["Set-Cookie"])
                    self.assertTrue(headers["X-Request-ID"])

    def test_all_that_execd_has(self):
        for method, path, body in (("GET", "/ping", None), ("POST", "/command", {"command": "true"}), ("POST", "/session", {}),
                                   ("GET", "/code/contexts", None), ("GET", "/files/info?path=/etc/passwd", None), ("GET", "/metrics", None),
                                   ("GET", "/proxy/3000/echo", None), ("POST", "/pty", {})):
            status, _, data = self.proxy(path, key="ada", port="44772", method=method, body=json.dumps(body).encode() if body is not None else None)
            self.assertIn(status, (200, 201), (path, data))

    def test_whose_it_is(self):
        for shown, expected in (({}, 401), ({KEY: SECRET}, 401), ({KEY: "no key at all"}, 401), ({EXECD: "x"}, 401),
                                ({KEY: self.keys["bob"]}, 404), ({KEY: self.keys["viewer"]}, 403),
                                ({EXECD: self.keys["bob"]}, 404), ({EXECD: self.theirs["token"]}, 401),
                                ({KEY: self.keys["ada"], EXECD: self.theirs["token"]}, 401),
                                ({EXECD: self.token[:-4] + "AAAA"}, 401),
                                ({EXECD: self.narrow(self.token, "port@3001")}, 403),
                                ({EXECD: self.narrow(self.token, "port@3000")}, 200)):
            status, headers, data = self.proxy(headers=shown)
            self.assertEqual(status, expected, (list(shown), data))
            if expected in (401, 404):
                self.assertEqual(set(json.loads(data)), {"code", "message"}, data)
        none = "sbx_" + "a" * 20
        self.assertEqual(self.proxy(key="ada", sandbox=none)[0], 404)
        self.assertEqual(self.proxy(sandbox=none, headers={EXECD: self.token})[0], 401)

    def test_it_leads_to_that_port_alone(self):
        """The address of who is asked comes from the rules; what the client writes is a sandbox, a port and a path there."""
        for sandbox, port, path, expected in (
                (None, "3000@127.0.0.1:22", "/", 400), (None, "3000%40x", "/", 400), (None, "03000", "/", 400), (None, "0", "/", 400),
                (None, "65536", "/", 400), (None, "127.0.0.1:3000", "/", 400), (None, "-1", "/", 400), (None, "3000%2F..%2Finfo", "/", 400),
                (None, "3000", "/../info", 400), (None, "3000", "/%2e%2e/%2e%2e/info", 400), (None, "3000", "/..%2f..%2finfo", 400),
                ("..", "3000", "/", 400), ("sbx_x%2F..", "3000", "/", 400), ("127.0.0.1", "22", "/", 404), ("sbx_" + "A" * 20, "3000", "/", 404),
                (self.sandbox + "%20HTTP", "3000", "/", 404), (None, "3000", "/echo%0d%0aX-Evil:%201", 200)):
            status, _, data = self.proxy(path, key="ada", sandbox=sandbox, port=port)
            if expected == 200:  # the app's own affair: it is passed on as it came, still escaped
                self.assertNotIn(b"X-Evil: 1", data)
                continue
            self.assertEqual(status, expected, (sandbox, port, path, data))
        for target in ("http://127.0.0.1:22/", f"http://x/sandboxes/{self.sandbox}/proxy/3000/echo", "*"):
            self.assertEqual(self.by_proxy(target, {KEY: self.keys["ada"]})[0], 400)
        status, _, data = self.proxy(key="ada", port="3999")
        self.assertEqual(status, 502, data)

    def test_streams_both_ways(self):
        with socket.create_connection(("127.0.0.1", self.negotiator.port), timeout=30) as raw:
            if self.negotiator.scheme == "https":
                self.skipTest("its bytes are looked at without TLS")
            raw.sendall(f"POST /v1/sandboxes/{self.sandbox}/proxy/3000/stream HTTP/1.1\r\nHost: x\r\n{KEY}: {self.keys['ada']}\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n".encode())
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
        status, _, data = self.proxy("/count", key="ada", method="PUT", body=b"x" * size)
        self.assertEqual((status, data), (200, b"%d" % size))

    def test_websocket(self):
        url = f"ws{'s' if self.negotiator.scheme == 'https' else ''}://127.0.0.1:{self.negotiator.port}/sandboxes/{self.sandbox}/proxy/3000/ws"
        for headers in ({KEY: self.keys["ada"]}, {EXECD: self.token}):
            with WebSocket(url, headers) as peer:
                for text in ("hello", "again"):
                    peer.send(text)
                    self.assertEqual(peer.receive(), text)
        for headers, expected in (({}, 401), ({KEY: self.keys["bob"]}, 404)):
            with self.assertRaises(Refused) as refused:
                WebSocket(url, headers)
            self.assertEqual(refused.exception.status, expected)

    def test_revocation_cuts_what_it_passes_on(self):
        fresh = self.deployment.request("POST", "/threads/p1/sandbox", {}, token=self.keys["ada"]).json
        connection = connect_http(self.negotiator, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", f"/sandboxes/{self.sandbox}/proxy/3000/endless", headers={EXECD: fresh["token"]})
        answer = connection.getresponse()
        self.assertEqual((answer.status, answer.read(5)), (200, b"tick\n"))
        self.deployment.request("POST", "/revocations", {"jti": fresh["jti"], "reason": "test"}, token=self.keys["ada"])
        with self.assertRaises((http.client.HTTPException, OSError)):
            while True:
                if not answer.read(5):
                    raise AssertionError("it ended as if it were whole")
        self.assertEqual(self.proxy(headers={EXECD: fresh["token"]})[0], 401)
        self.assertEqual(self.proxy(key="ada")[0], 200)

    def test_a_key_asks_the_rules_once_a_while(self):
        def granted():
            reply = self.deployment.request("GET", f"/audit?sandbox={self.sandbox}&limit=200", token=self.keys["ada"])
            return len([each for each in reply.json["records"] if each["action"] == "negotiate"])
        self.proxy(key="ada", port="3000")
        before = granted()
        for _ in range(20):
            self.assertEqual(self.proxy(key="ada")[0], 200)
        self.assertLess(granted() - before, 8)  # one a loop at most

    def test_a_deleted_key_is_refused_at_once(self):
        made = self.deployment.request("POST", "/keys", {"principal": "ada", "role": "user"}).json
        headers = {KEY: made["api_key"]}
        self.assertEqual(self.proxy(headers=headers)[0], 200)
        self.assertEqual(self.deployment.request("DELETE", f"/keys/{made['key']['id']}").status, 204)
        self.assertEqual(self.proxy(headers=headers)[0], 401)

    def test_what_has_ended(self):
        made = self.deployment.request("POST", "/threads/p2/sandbox", {"isolation": "namespaces"}, token=self.keys["ada"]).json
        sandbox = made["sandbox"]["id"]
        self.assertEqual(self.proxy(key="ada", sandbox=sandbox)[0], 502)  # nobody listens
        self.assertEqual(self.deployment.request("DELETE", f"/sandboxes/{sandbox}", token=self.keys["ada"]).status, 204)
        for headers in ({KEY: self.keys["ada"]}, {EXECD: made["token"]}):
            until = time.monotonic() + 20  # its node may not have heard of the end yet
            while (status := self.proxy(sandbox=sandbox, headers=headers)[0]) == 502 and time.monotonic() < until:
                time.sleep(0.05)
            self.assertIn(status, (401, 404, 410))


@needs_root
class Guesses(World):
    """What proves nothing is counted where it came to: through the negotiator nobody uses up what the node allows its address."""

    failures = "12"

    def test_they_cost_their_client_alone(self):
        forged = [self.token[:-4] + f"{i:04d}" for i in range(40)]
        through = [self.by_proxy(f"/sandboxes/{self.sandbox}/proxy/3000/echo", {EXECD: token})[0] for token in forged]
        self.assertEqual((through[0], through[-1]), (401, 429), through)
        path = f"/sandboxes/{self.sandbox}/port/3000/echo"
        self.assertEqual(self.at_node(path, self.token)[0], 200)
        direct = [self.at_node(path, token)[0] for token in forged]  # the same, where it counts
        self.assertEqual((direct[0], direct[-1]), (401, 429), direct)
        self.assertEqual(self.at_node(path, self.token)[0], 429)


if __name__ == "__main__":
    unittest.main()
