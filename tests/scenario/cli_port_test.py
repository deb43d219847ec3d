"""parley port: ports of a sandbox at ports of this machine, through the real thing; many connections, half-closed ones,
a listener that comes and goes, a token that is refreshed meanwhile."""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN, Reply  # noqa: E402
from parley_testing.websocket import WebSocket  # noqa: E402

ECHO = """
import socketserver, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        data = b""
        while piece := self.request.recv(65536):
            data += piece
        self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 100
Server(("127.0.0.1", 4000), Echo).serve_forever()
"""


@needs_root
class CliPort(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("ports")
        cls.base = cls.grant["endpoints"]["http"]
        for id, argv in (("web", ["python3", "-m", "http.server", "3000", "-d", "/etc"]), ("echo", ["python3", "-c", ECHO])):
            reply = cls.deployment.request("POST", cls.base + "/exec", {"argv": argv, "id": id, "detach": True},
                                           token=cls.grant["token"])
            assert reply.status == 201, reply
        cls.until_open(3000, 4000)

    @classmethod
    def until_open(cls, *ports):
        until = time.monotonic() + 30
        while True:
            reply = cls.deployment.request("GET", cls.base + "/ports", token=cls.grant["token"])
            if set(ports) <= {each["port"] for each in reply.json["ports"]}:
                return
            assert time.monotonic() < until, reply
            time.sleep(0.1)

    def start(self, *words):
        """The running command, and {port: local port}."""
        child = subprocess.Popen([os.path.join(BIN, "parley"), "port", *words, "--thread", "ports", "--json"],
                                 env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        told = b""
        while not told.endswith(b"\n}\n"):  # one value, over several lines
            line = child.stdout.readline()
            self.assertTrue(line, told)
            told += line
        return child, {each["port"]: each["local_port"] for each in json.loads(told)["ports"]}

    def environment(self):
        return dict(os.environ, **self.deployment.environment)

    def test_http_and_raw(self):
        child, ports = self.start("3000:0", "4000:0")
        with urllib.request.urlopen(f"http://127.0.0.1:{ports[3000]}/hostname", timeout=30) as page:
            self.assertEqual(page.read().decode().strip(), self.grant["sandbox"]["name"])
        results = []

        def one():
            data = os.urandom(300_000)
            with socket.create_connection(("127.0.0.1", ports[4000]), timeout=60) as peer:
                peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)
                got = b""
                while piece := peer.recv(65536):
                    got += piece
            results.append(got == data)
        threads = [threading.Thread(target=one) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [True] * 40)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(20), 0)

    def test_nobody_listens(self):
        child, ports = self.start("3999:0")
        with socket.create_connection(("127.0.0.1", ports[3999]), timeout=30) as peer:
            try:
                self.assertEqual(peer.recv(10), b"")
            except ConnectionResetError:
                pass
        self.assertIn(b"nothing listens on port 3999", child.stderr.readline())
        reply = self.deployment.request("POST", self.base + "/exec", {
            "argv": ["python3", "-m", "http.server", "3999"], "id": "late", "detach": True}, token=self.grant["token"])
        self.assertEqual(reply.status, 201)
        self.until_open(3999)
        urllib.request.urlopen(f"http://127.0.0.1:{ports[3999]}/", timeout=30).close()

    def test_wrong_use(self):
        for words in ((), ("x",), ("0",), ("65536",), ("03000",), ("3000:",), ("3000:x",), ("3000:1:2",), ("+1",)):
            done = self.deployment.cli("port", *words, "--thread", "ports")
            self.assertEqual(done.returncode, 2, (words, done))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = self.deployment.cli("port", f"3000:{taken.getsockname()[1]}", "--thread", "ports")
            self.assertEqual(done.returncode, 1)
            self.assertIn("in use", done.stderr)
        done = self.deployment.cli("port", "3000", "--thread", "no-such-thread")
        self.assertEqual(done.returncode, 1)

    def test_the_replies_are_as_documented(self):
        """For tests/contract, which judges what others saw."""
        url = self.base.replace("http://", "ws://") + "/tunnels/4000"
        with WebSocket(url, {"Authorization": "Bearer " + self.grant["token"]}) as peer:
            self.deployment.record("GET", urllib.parse.urlsplit(url.replace("ws://", "http://")), Reply(101, peer.headers, b""))
            peer.send(b"there and back")
            peer.send(json.dumps({"type": "eof"}))
            self.assertEqual(peer.receive(), b"there and back")
        reply = self.deployment.request("GET", self.base + "/tunnels/3998", token=self.grant["token"], headers={
            "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
        self.assertEqual(reply.status, 502)


if __name__ == "__main__":
    unittest.main()
