"""Hostile and broken clients: huge bodies without a token, slow heads, half-closed and vanishing connections."""
import json
import os
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing import token as tokens  # noqa: E402
from parley_testing.deployment import BIN, free_ports  # noqa: E402


def read_all(connection):
    data = b""
    try:
        while True:
            part = connection.recv(65536)
            if not part:
                return data
            data += part
    except (ConnectionError, socket.timeout):
        return data


@needs_root
class Abuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("abuse")
        cls.path = "/s/" + cls.grant["sandbox"]["id"]

    def connect(self, port=None):
        return socket.create_connection(("127.0.0.1", port or self.deployment.port + 1), 20)

    def head(self, length, token=None, path="/exec"):
        lines = [f"POST {self.path}{path} HTTP/1.1", "Host: x", f"Content-Length: {length}",
                 "Content-Type: application/json"]
        if token:
            lines.append("Authorization: Bearer " + token)
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def alive(self):
        self.assertEqual(self.deployment.shell(self.grant, "echo alive"), "alive\n")

    def test_a_huge_body_without_a_token_is_cut_early(self):
        with self.connect() as c:
            c.sendall(self.head(1 << 30))
            sent, chunk = 0, b"x" * 16384
            try:
                while sent < 64 << 20:
                    c.sendall(chunk)
                    sent += len(chunk)
            except (ConnectionError, socket.timeout):
                pass
            answer = read_all(c)
        self.assertLess(sent, 16 << 20)  # the kernel's socket buffers and 64 KiB of ours
        self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1.1 401"), answer[:80])
        self.alive()

    def test_a_body_over_the_limit(self):
        with self.connect() as c:
            c.sendall(self.head(100 << 20, self.grant["token"]) + b"x" * 1000)
            self.assertTrue(read_all(c).startswith(b"HTTP/1.1 413"))
        self.alive()

    def test_a_slow_head_does_not_hold_others(self):
        slow = [self.connect() for _ in range(50)]
        for c in slow:
            c.sendall(b"POST /s/x HTTP/1.1\r\nX-Slow: ")
        self.alive()
        for c in slow:
            c.close()

    def test_a_half_closed_client_gets_its_answer(self):
        with self.connect() as c:
            body = b'{"cmd":"sleep 0.3; echo half","stream":"none"}'
            c.sendall(self.head(len(body), self.grant["token"]) + body)
            c.shutdown(socket.SHUT_WR)
            self.assertIn(b"half", read_all(c))
        self.alive()

    def test_vanishing_clients_leave_no_descriptor(self):
        self.alive()
        before = self.descriptors()
        for _ in range(30):
            c = self.connect()
            body = b'{"cmd":"yes | head -c 200000; sleep 0.2"}'
            c.sendall(self.head(len(body), self.grant["token"]) + body)
            c.recv(100)
            c.close()
        time.sleep(2)
        self.assertLess(self.connections(), 5)
        self.alive()
        # each ended command keeps its output for a replay: three descriptors at most
        self.assertLess(self.descriptors() - before, 30 * 5 + 20)

    def pid(self):
        return max(self.deployment.pids("parley-sandboxd"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid()}/fd"))

    def connections(self):
        links = []
        for fd in os.listdir(f"/proc/{self.pid()}/fd"):
            try:
                links.append(os.readlink(f"/proc/{self.pid()}/fd/{fd}"))
            except OSError:
                pass
        established = 0
        with open("/proc/net/tcp") as table:
            for line in table.readlines()[1:]:
                words = line.split()
                if words[1].endswith(":%04X" % (self.deployment.port + 1)) and words[3] == "01":
                    established += f"socket:[{words[9]}]" in links
        return established

    def test_a_reader_that_stops_stops_the_command_not_the_server(self):
        c = self.connect()
        body = b'{"cmd":"yes","id":"slow-reader","timeout":20}'
        c.sendall(self.head(len(body), self.grant["token"]) + body)
        c.recv(1000)
        time.sleep(2)
        with open(f"/proc/{self.pid()}/status") as status:
            rss = [int(line.split()[1]) for line in status if line.startswith("VmRSS")][0]
        self.alive()
        c.close()
        self.assertLess(rss, 600 * 1024)  # kB; the sanitizer's own share is large
        self.deployment.request("DELETE", self.grant["endpoints"]["http"] + "/processes/slow-reader",
                                token=self.grant["token"])

    def test_smuggling_shapes_are_refused(self):
        for extra in (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 5\r\nContent-Length: 6\r\n",
                      b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999999\r\n"):
            with self.connect() as c:
                c.sendall(b"POST /healthz HTTP/1.1\r\nHost: x\r\n" + extra + b"\r\n0\r\n\r\n")
                c.shutdown(socket.SHUT_WR)
                answer = read_all(c)
                self.assertTrue(answer == b"" or answer[9:10] in (b"4", b"5"), (extra, answer[:60]))
        self.alive()

    def test_two_authorizations_are_refused(self):
        with self.connect() as c:
            c.sendall((f"GET {self.path}/info HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.grant['token']}\r\n"
                       "Authorization: Bearer other\r\nConnection: close\r\n\r\n").encode())
            self.assertTrue(read_all(c).startswith(b"HTTP/1.1 400"))

    def test_garbage(self):
        for junk in (b"\x00" * 4096, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00" + os.urandom(600),
                     b"GET /" + b"a" * 300000 + b" HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            for port in (self.deployment.port, self.deployment.port + 1):
                with self.connect(port) as c:
                    c.settimeout(3)
                    try:
                        c.sendall(junk)
                        c.shutdown(socket.SHUT_WR)
                    except OSError:
                        pass
                    read_all(c)
        self.alive()
        self.assertEqual(self.deployment.request("GET", "/healthz", token=None).status, 200)

    def test_the_node_route_takes_only_sealed_messages(self):
        for body in (b"", b"{}", b"PL1" + b"\0" * 100, os.urandom(2000)):
            for base in (self.deployment.url, self.deployment.node_url):
                reply = self.deployment.request("POST", base + "/node/v1/message", body, token=None)
                self.assertIn(reply.status, (400, 401), (base, reply))
        self.alive()


def second_node(deployment):
    """Another sandboxd for the same negotiator: its node.json as enrolment writes it, on ports of its own."""
    state = deployment.folder + "/second"
    os.makedirs(state + "/sandboxd")
    with open(deployment.state + "/sandboxd/node.json") as first:
        node = json.load(first)
    with open(deployment.state + "/negotiator/master.key", "rb") as master:
        node["node_key"] = tokens.b64(tokens.kdf(master.read(), "parley/node/1", "n2", "1"))
    node.update(node="n2", epoch=1)
    with open(os.open(state + "/sandboxd/node.json", os.O_WRONLY | os.O_CREAT, 0o600), "w") as written:
        json.dump(node, written)
    log = open(deployment.folder + "/second.log", "w")
    port = free_ports()
    return subprocess.Popen([BIN + "/parley-sandboxd", "--state", state, "--sandboxd-port", str(port)], stderr=log), port, state


@needs_root
class TwoNodes(unittest.TestCase):
    def test_two_sandboxd_share_one_negotiator(self):
        with Deployment() as d:
            node, port, state = second_node(d)
            try:
                until, grants = time.monotonic() + 20, []
                while len({g["sandbox"]["node"] for g in grants}) < 2 and time.monotonic() < until:
                    grants.append(d.negotiate(f"spread{len(grants)}"))
                    time.sleep(0.3)
                by_node = {g["sandbox"]["node"]: g for g in grants}
                self.assertEqual(set(by_node), {"n1", "n2"})
                self.assertIn(f":{port}/", by_node["n2"]["endpoints"]["http"])
                for grant in by_node.values():
                    self.assertEqual(d.shell(grant, "echo here"), "here\n")
                elsewhere = f"{d.node_url}/s/{by_node['n2']['sandbox']['id']}/exec"
                self.assertEqual(d.request("POST", elsewhere, {"cmd": "true"}, token=by_node["n2"]["token"]).status, 401)
            finally:
                node.terminate()
                node.wait(20)
                subprocess.run([BIN + "/parley-sandboxd", "--purge", "--state", state], check=True)
            self.assertEqual(os.listdir(state + "/sandboxd/run"), [])

    def test_two_deployments_on_one_machine_do_not_meet(self):
        with Deployment() as one, Deployment() as two:
            a, b = one.negotiate("same"), two.negotiate("same")
            self.assertNotEqual(a["sandbox"]["id"], b["sandbox"]["id"])
            self.assertEqual(one.shell(a, "echo 1 > /workspace/f; cat /workspace/f"), "1\n")
            self.assertEqual(two.shell(b, "ls /workspace"), "")
            reply = two.request("POST", f"{two.node_url}/s/{a['sandbox']['id']}/exec", {"cmd": "true"}, token=a["token"])
            self.assertEqual(reply.status, 401)


if __name__ == "__main__":
    unittest.main()
