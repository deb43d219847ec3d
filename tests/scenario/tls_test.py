"""TLS on both planes: made by `parley tls init`, believed by fingerprint, renewed while it serves; and what must not work:
listeners without it, impostors, old versions, half a renewal, floods of handshakes."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from nodes_test import SecondNode, negotiate_on  # noqa: E402
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN, TRUST, connect_http, free_ports  # noqa: E402
from parley_testing.websocket import WebSocket  # noqa: E402

LISTENERS = (("parley-negotiator", "--host", "--port"), ("parley-sandboxd", "--listen-host", "--sandboxd-port"))


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


def shown(port, host="127.0.0.1"):
    """The certificate that a server shows (DER), believed or not."""
    anyone = ssl._create_unverified_context()
    with socket.create_connection((host, port), 10) as raw, anyone.wrap_socket(raw) as secure:
        return secure.getpeercert(True)


class Listeners(unittest.TestCase):
    """No open listener beyond loopback without TLS, on either plane."""

    def start(self, program, *words):
        with tempfile.TemporaryDirectory() as state:
            return subprocess.run([os.path.join(BIN, program), "--state", state, *words], capture_output=True, text=True,
                                  timeout=30, stdin=subprocess.DEVNULL)

    def test_beyond_loopback_only_with_tls_or_the_operators_word(self):
        for program, host, _ in LISTENERS:
            if program == "parley-sandboxd" and os.geteuid() != 0:
                continue
            for address in ("0.0.0.0", "::", "192.0.2.1"):
                done = self.start(program, host, address)
                self.assertEqual(done.returncode, 2, (program, address, done))
                self.assertIn("there is no TLS", done.stderr)

    def test_half_a_pair_or_a_bad_one_does_not_start(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = os.path.join(folder, "bad.pem")
            with open(bad, "w") as file:
                file.write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            done = self.start("parley-negotiator", "--host", "0.0.0.0", "--tls-cert", bad)
            self.assertEqual((done.returncode, "tls_key is missing" in done.stderr), (2, True), done)
            done = self.start("parley-negotiator", "--host", "0.0.0.0", "--tls-cert", bad, "--tls-key", bad)
            self.assertEqual((done.returncode, "tls_cert" in done.stderr), (2, True), done)
            done = self.start("parley-negotiator", "--tls-cert", folder + "/none", "--tls-key", folder + "/none")
            self.assertNotEqual(done.returncode, 0)


@needs_root
class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Deployment(tls=True)
        cls.addClassCleanup(cls.d.close)
        cls.grant = cls.d.negotiate("tls")
        cls.base = cls.grant["endpoints"]["http"]
        cls.ports = (cls.d.port, cls.d.port + 1)

    # ---- what works ----

    def test_everything_goes_by_it(self):
        self.assertTrue(self.d.url.startswith("https://") and self.base.startswith("https://"), self.grant)
        self.assertEqual(self.d.shell(self.grant, "echo over tls"), "over tls\n")
        data = os.urandom(12 << 20)
        put = self.d.request("PUT", self.base + "/files/workspace/big", data, token=self.grant["token"], record=False)
        self.assertEqual(put.status, 201, put)
        got = self.d.request("GET", self.base + "/files/workspace/big", token=self.grant["token"], record=False)
        self.assertTrue(got.body == data)
        client = WebSocket(self.grant["endpoints"]["ws"], {"Authorization": "Bearer " + self.grant["token"]})
        self.assertTrue(self.grant["endpoints"]["ws"].startswith("wss://"))
        client.socket.close()
        once = self.d.request("POST", "/execute", {"code": "print(6 * 7)", "language": "python"}, timeout=60)
        self.assertEqual((once.status, once.json["stdout"]), (200, "42\n"), once)

    def test_the_cli_and_its_websockets(self):
        done = self.d.cli("run", "--thread", "tls", "--", "sh", "-c", "cat; exit 7", input="typed\n")
        self.assertEqual((done.returncode, done.stdout), (7, "typed\n"), done.stderr)
        self.d.exec(self.grant, argv=["python3", "-m", "http.server", "3000", "-d", "/etc"], id="web", detach=True)
        port = free_ports()
        tunnel = subprocess.Popen([os.path.join(BIN, "parley"), "port", "--thread", "tls", f"3000:{port}"],
                                  env=self.d.environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        try:
            self.assertIn(str(port), tunnel.stdout.readline())

            def answers():
                try:
                    return self.d.request("GET", f"http://127.0.0.1:{port}/passwd", token=None, record=False).status == 200
                except OSError:
                    return False
            until(answers)
        finally:
            tunnel.send_signal(signal.SIGINT)
            tunnel.communicate(timeout=30)

    def test_a_previews_cookie_is_for_tls_alone(self):
        done = self.d.cli("url", "--thread", "tls", "3000")
        link = urllib.parse.urlsplit(done.stdout.strip())
        self.assertEqual(link.scheme, "https", done)
        connection = connect_http(urllib.parse.urlsplit(self.d.node_url))
        connection.request("GET", f"{link.path}?{link.query}", headers={"Host": link.netloc})
        cookie = connection.getresponse().getheader("Set-Cookie", "")
        self.assertIn("; Secure", cookie)

    def test_the_key_is_roots_and_the_servers_cannot_read_it(self):
        key = self.d.state + "/tls/server.key"
        self.assertEqual(os.stat(key).st_mode & 0o777, 0o600)
        read = ["cat", key]
        self.assertIn("PRIVATE KEY", subprocess.run(read, capture_output=True, text=True).stdout)  # the attack works for root
        for uid in (58701, 58702):
            done = subprocess.run(read, capture_output=True, text=True, user=uid, group=uid)
            self.assertNotIn("PRIVATE KEY", done.stdout)

    # ---- who is believed ----

    def test_another_fingerprint_is_refused_with_both(self):
        wrong = "ab" * 32
        done = self.d.cli("ls", "--tls-fingerprint", wrong)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(wrong, done.stderr)
        self.assertRegex(done.stderr, "it shows [0-9a-f]{64}")
        done = self.d.cli("ls", "--tls-fingerprint", ":".join(re.findall("..", self.d.fingerprint.upper())))
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.d.cli("ls", "--ca-file", self.d.state + "/tls/ca.pem")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.d.cli("ls", "--tls-fingerprint", "ab").returncode, 1)

    def test_an_impostor_that_shows_the_authority_too(self):
        """The authority's certificate is public: to lie in a chain proves nothing."""
        folder = tempfile.mkdtemp(dir=self.d.folder)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                        "2", "-keyout", folder + "/key", "-out", folder + "/own", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        with open(folder + "/chain", "w") as chain:
            for name in (folder + "/own", self.d.state + "/tls/ca.pem"):
                with open(name) as part:
                    chain.write(part.read())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder + "/chain", folder + "/key")
        heard, listener = [], socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def serve():
            while True:
                try:
                    with context.wrap_socket(listener.accept()[0], server_side=True) as client:
                        heard.append(client.recv(65536))
                        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"sandboxes\":[]}")
                except ssl.SSLError:
                    pass
                except OSError:
                    return
        threading.Thread(target=serve, daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        environment = dict(self.d.environment, PARLEY_URL=url, PARLEY_API_KEY=self.d.key)

        def ask(**trust):
            return subprocess.run([os.path.join(BIN, "parley"), "ls"], env=dict(environment, **trust), capture_output=True,
                                  text=True, stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(ask(PARLEY_CA_FILE=folder + "/own").returncode, 0)  # it serves who believes it
        self.assertEqual(len(heard), 1)
        self.assertIn(self.d.key.encode(), heard[0])
        for trust in ({"PARLEY_TLS_FINGERPRINT": self.d.fingerprint}, {"PARLEY_CA_FILE": self.d.state + "/tls/ca.pem"}, {}):
            done = ask(**trust)
            self.assertEqual(done.returncode, 1, done)
        self.assertEqual(len(heard), 1, "a key was sent to an impostor")

    # ---- what must not work ----

    def test_old_versions_plain_http_and_renegotiation(self):
        for port in self.ports:
            with socket.create_connection(("127.0.0.1", port), 10) as plain:
                plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
                answer = http.client.HTTPResponse(plain)
                answer.begin()
                self.assertEqual((answer.status, json.loads(answer.read())["error"]["code"]), (400, "INVALID_REQUEST"))
            for version, works in (("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)):
                done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", version, "-cipher",
                                       "DEFAULT:@SECLEVEL=0", "-alpn", "h2,http/1.1"], input="", capture_output=True, text=True,
                                      timeout=30)
                self.assertEqual("Cipher is (NONE)" not in done.stdout, works, (version, done.stdout[-500:]))
                self.assertNotIn("ALPN protocol: h2", done.stdout)
            done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2"], input="R\n",
                                  capture_output=True, text=True, timeout=30)
            self.assertIn("RENEGOTIATING", done.stdout + done.stderr)
            self.assertIn("no renegotiation", (done.stdout + done.stderr).lower())

    def descriptors(self):
        front = max(self.d.pids("parley-sandboxd"), key=lambda pid: len(os.listdir(f"/proc/{pid}/fd")))
        return len(os.listdir(f"/proc/{front}/fd"))

    def test_half_handshakes_and_records_cut_short_leave_nothing(self):
        before = self.descriptors()
        held = [socket.create_connection(("127.0.0.1", port), 10) for port in self.ports for _ in range(150)]
        for i, each in enumerate(held):
            each.sendall((b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\xff\xff" + b"x" * 500)[i % 3])
        for i in range(30):
            secure = TRUST.wrap_socket(socket.create_connection(("127.0.0.1", self.ports[1]), 10), server_hostname="127.0.0.1")
            secure.sendall(b"PUT /files/workspace/cut HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\nAuthorization: Bearer " +
                           self.grant["token"].encode() + b"\r\n\r\nsome")
            raw = socket.socket(fileno=secure.detach())
            raw.sendall(b"\x17\x03\x03\x40\x00" + b"half a record"[:i % 13])
            if i % 2:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            raw.close()
        self.assertEqual(self.d.shell(self.grant, "echo meanwhile"), "meanwhile\n")
        for each in held:
            each.close()
        until(lambda: self.descriptors() <= before + 8)

    def test_another_node_and_one_that_is_not_believed(self):
        token = self.d.request("POST", "/nodes", {"name": "n9"}).json["join_token"]
        for trust, works in ((("--tls-fingerprint", "ab" * 32), False), ((), False), (("--tls-fingerprint", self.d.fingerprint), True)):
            done = subprocess.run([BIN + "/parley-sandboxd", "enrol", "--node", "n9", "--negotiator-url", self.d.url, "--state",
                                   self.d.folder + "/ninth", *trust], env=dict(os.environ, PARLEY_JOIN_TOKEN=token),
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode == 0, works, done.stderr)
        second = SecondNode(self.d)
        self.addCleanup(second.close)
        _, grant = negotiate_on(self.d, "n2", "second")
        self.assertTrue(grant["endpoints"]["http"].startswith("https://"), grant)
        self.assertEqual(self.d.shell(grant, "echo there"), "there\n")

    # ---- renewal ----

    def test_renewed_while_it_serves_and_never_by_halves(self):
        with open(self.d.state + "/tls/server.key") as file:
            key = file.read()
        with open(self.d.state + "/tls/server.pem") as file:
            cert = file.read()
        # A connection of before goes on with what it has.
        kept = connect_http(urllib.parse.urlsplit(self.d.url))
        kept.request("GET", "/healthz")
        self.assertEqual(kept.getresponse().read() != b"", True)
        before = [shown(port) for port in self.ports]
        done = self.d.cli("tls", "renew", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        until(lambda: all(now != was for now, was in zip([shown(port) for port in self.ports], before)))
        self.assertEqual(shown(self.ports[0]), shown(self.ports[1]))
        kept.request("GET", "/healthz")
        self.assertEqual(kept.getresponse().status, 200)
        self.assertEqual(self.d.cli("ls").returncode, 0)  # the same authority
        after = shown(self.ports[0])
        with open(self.d.state + "/tls/server.key", "w") as file:
            file.write(key)
        until(lambda: self.d.logs().count("the certificate of before stays") >= 2)  # both planes
        self.assertEqual([shown(port) for port in self.ports], [after, after])
        with open(self.d.state + "/tls/server.pem", "w") as file:
            file.write(cert)
        until(lambda: [shown(port) for port in self.ports] == before)
        self.assertNotIn("PRIVATE KEY", self.d.logs())


if __name__ == "__main__":
    unittest.main()
