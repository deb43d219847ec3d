"""A sandbox that may go out by name: HTTP and HTTPS to the names of its list and to nobody else, checked by what the client
says and by where it goes; changed while it runs; by a process without rights that may die."""
import json
import os
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.world import DNS, HOST, OTHER, PLAIN, World  # noqa: E402

NAMES = {"allowed.example": [PLAIN], "a.wild.example": [PLAIN], "b.c.wild.example": [PLAIN], "wild.example": [PLAIN],
         "other.example": [PLAIN], "elsewhere.example": [OTHER], "ssh.example": [OTHER],
         "rebind.example": ["127.0.0.1", "10.99.99.7", "169.254.99.7", PLAIN], "inner.example": ["192.168.99.7"], "own.example": [HOST]}
CERTIFIED = ["allowed.example", "*.wild.example", "*.c.wild.example", "other.example", "elsewhere.example"]

# Reads a URL; the certificate is checked against the test's CA.
GET = r"""
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile='/workspace/ca.pem') if sys.argv[1].startswith('https') else None
print(urllib.request.urlopen(sys.argv[1], timeout=20, context=context).read().decode())
"""

# Says `name` to whoever is at the address, with any name checked by nobody; prints what comes, or why nothing does.
SAY = r"""
import socket, ssl, sys
address, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
try:
    s = socket.create_connection((address, port), 20)
    if port == 443:
        s = ssl._create_unverified_context().wrap_socket(s, server_hostname=name or None)
    s.sendall(sys.argv[4].encode().decode('unicode_escape').encode('latin-1') if len(sys.argv) > 4 else
              b'GET / HTTP/1.1\r\nHost: ' + name.encode() + b'\r\nConnection: close\r\n\r\n')
    data = b''
    while True:
        more = s.recv(65536)
        if not more: break
        data += more
    print(data.decode('latin-1'))
except OSError as e:
    print('refused', type(e).__name__, e)
"""

LOOK_UP = r"""
import socket, sys
try: print(sorted({a[4][0] for a in socket.getaddrinfo(sys.argv[1], 80, type=socket.SOCK_STREAM)}))
except socket.gaierror as e: print('none', e.errno == socket.EAI_AGAIN)
"""

# Says one word a line to an echo until it is cut.
HOLD = r"""
import socket, ssl, sys, time
s = socket.create_connection((sys.argv[1], 80), 20)
s.sendall(b'POST / HTTP/1.1\r\nHost: ' + sys.argv[1].encode() + b'\r\nContent-Length: 1000000\r\n')
s.sendall(b'\r\n')
open('/workspace/held', 'w').close()
try:
    while True:
        s.sendall(b'x')
        time.sleep(0.1)
except OSError: pass
open('/workspace/cut', 'w').close()
"""


def openssl(*words, **more):
    subprocess.run(["openssl", *words], check=True, stderr=subprocess.DEVNULL, **more)


def certify(folder):
    """The world's servers get a certificate of a CA of the test; returns the CA's."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", folder + "/ca.key", "-out", folder + "/ca.pem", "-days", "2", "-subj",
            "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", *key, "-keyout", folder + "/server.key", "-out", folder + "/server.csr", "-subj", "/CN=allowed.example")
    with open(folder + "/names", "w") as names:
        names.write("subjectAltName=" + ",".join("DNS:" + name for name in CERTIFIED))
    openssl("x509", "-req", "-in", folder + "/server.csr", "-CA", folder + "/ca.pem", "-CAkey", folder + "/ca.key",
            "-CAcreateserial", "-days", "2", "-extfile", folder + "/names", "-out", folder + "/server.pem")
    os.rename(folder + "/server.key", folder + "/key.pem")
    os.rename(folder + "/server.pem", folder + "/cert.pem")
    with open(folder + "/ca.pem") as certificate:
        return certificate.read()


@needs_root
class Egress(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.zone(**NAMES)
        cls.ca = certify(cls.world.folder)
        cls.deployment = Deployment(PARLEY_DNS_SERVERS=DNS)
        cls.addClassCleanup(cls.deployment.close)
        cls.count = 0

    def negotiate(self, *allow, egress="allow"):
        type(self).count += 1
        network = {"egress": egress, **({"allow": list(allow)} if allow else {})}
        grant = self.deployment.negotiate(f"t{self.count}", network=network)
        self.addCleanup(self.deployment.request, "DELETE", f"/threads/t{self.count}/sandbox")
        self.deployment.shell(grant, f"cat > /workspace/ca.pem <<'E'\n{self.ca}E")
        return grant

    def change(self, grant, *allow, egress="allow"):
        network = {"egress": egress, **({"allow": list(allow)} if allow else {})}
        reply = self.deployment.request("PATCH", "/sandboxes/" + grant["sandbox"]["id"], {"network": network})
        self.assertEqual(reply.status, 200, reply)

    def run_inside(self, grant, program, *arguments):
        reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", program, *map(str, arguments)])
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def get(self, grant, url):
        done = self.run_inside(grant, GET, url)
        self.assertEqual(done["exit_code"], 0, str(done) + self.deployment.logs())
        return done["stdout"].strip()

    def say(self, grant, *arguments):
        return self.run_inside(grant, SAY, *arguments)["stdout"].strip()

    def look_up(self, grant, name):
        return self.run_inside(grant, LOOK_UP, name)["stdout"].strip()

    def until(self, what, condition, seconds=30):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, what + "\n" + self.deployment.logs())
            time.sleep(0.1)

    # ---- what works ----

    def test_names_of_the_list_by_http_and_https(self):
        grant = self.negotiate("allowed.example", "*.wild.example", "elsewhere.example:443")
        self.assertEqual(self.get(grant, "http://allowed.example/"), "world allowed.example")
        self.assertEqual(self.get(grant, "https://allowed.example/"), "secure allowed.example")
        self.assertEqual(self.get(grant, "https://ALLOWED.Example/"), "secure ALLOWED.Example")
        self.assertEqual(self.get(grant, "https://a.wild.example/"), "secure a.wild.example")
        self.assertEqual(self.get(grant, "http://b.c.wild.example/"), "world b.c.wild.example")
        self.assertEqual(self.get(grant, "https://elsewhere.example/"), "secure elsewhere.example")

    def test_a_name_with_another_port_goes_there_alone(self):
        grant = self.negotiate("ssh.example:22")
        self.assertEqual(self.look_up(grant, "ssh.example"), f"['{OTHER}']")
        said = self.run_inside(grant, "import socket\n"
                               "s = socket.create_connection(('ssh.example', 22), 20)\nprint(s.recv(100).decode())")
        self.assertEqual(said["stdout"].strip(), "hello 22", said)
        for port in (80, 443, 5432):
            self.assertIn("refused", self.say(grant, "ssh.example", port, "ssh.example"))

    def test_an_answer_before_the_request_is_whole(self):
        grant = self.negotiate("allowed.example")
        done = self.run_inside(grant, r"""
import socket
s = socket.create_connection(('allowed.example', 80), 20)
s.sendall(b'POST / HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: 1000\r\n\r\nabc')
print(s.recv(100)[:12])
""")
        self.assertIn("HTTP/1.1 200", done["stdout"], done)

    # ---- what does not ----

    def test_other_names_are_not_even_asked_for(self):
        grant = self.negotiate("allowed.example", "*.wild.example")
        for name in ("other.example", "wild.example", "secret-in-a-name.other.example", "allowed.example.other.example",
                     "xallowed.example", "missing.example", "db"):
            self.assertEqual(self.look_up(grant, name), "none True", name)
        self.assertEqual([name for name in self.world.asked() if "other" in name or name in ("missing.example", "db")], [])
        self.assertEqual(self.look_up(grant, "allowed.example"), f"['{PLAIN}']")

    def test_another_name_at_an_address_that_is_pinned(self):
        grant = self.negotiate("allowed.example")
        self.assertEqual(self.get(grant, "https://allowed.example/"), "secure allowed.example")  # now it is pinned
        for name in ("other.example", "", PLAIN):
            self.assertIn("refused", self.say(grant, PLAIN, 443, name), name)
        self.assertIn("allowed.example", self.say(grant, PLAIN, 443, "allowed.example"))
        self.assertIn("403 Forbidden", self.say(grant, PLAIN, 80, "other.example"))
        for request in (r"GET / HTTP/1.1\r\nHost: allowed.example\r\nHost: other.example\r\n\r\n",
                        r"GET http://other.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
                        r"GET / HTTP/1.1\r\nHost : allowed.example\r\nHost: other.example\r\n\r\n",
                        r"CONNECT other.example:443 HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
                        r"GET / HTTP/1.1\r\nHost: allowed.example\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"):
            said = self.say(grant, PLAIN, 80, "x", request)
            self.assertNotIn("world", said, request)
            self.assertIn("403 Forbidden", said, request)
        said = self.say(grant, PLAIN, 80, "x", r"GET / HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: 0\r\n\r\n"
                        r"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
        self.assertNotIn("world other", said)

    def test_an_allowed_name_at_another_address(self):
        grant = self.negotiate("allowed.example", "elsewhere.example")
        for name in ("allowed.example", "elsewhere.example"):
            self.assertIn("secure", self.get(grant, f"https://{name}/"))
        # Both addresses are pinned now, each for its own name alone.
        self.assertIn("refused", self.say(grant, OTHER, 443, "allowed.example"))
        self.assertIn("403 Forbidden", self.say(grant, PLAIN, 80, "elsewhere.example"))
        self.assertIn("refused", self.say(grant, DNS, 443, "allowed.example"))

    def test_answers_that_point_inwards(self):
        grant = self.negotiate("rebind.example", "inner.example")
        self.assertEqual(self.look_up(grant, "rebind.example"), f"['{PLAIN}']")
        self.assertIn("none", self.look_up(grant, "inner.example"))
        for address in ("10.99.99.7", "169.254.99.7", "192.168.99.7"):
            self.assertIn("refused", self.say(grant, address, 80, "rebind.example"))

    def test_names_of_this_host(self):
        with socket.create_server((HOST, 80)) as listener:
            socket.create_connection((HOST, 80), 10).close()  # it is there
            listener.accept()[0].close()
            grant = self.negotiate("own.example", "allowed.example")
            self.assertIn("none", self.look_up(grant, "own.example"))
            self.assertIn("refused", self.say(grant, HOST, 80, "own.example"))
            listener.settimeout(0)
            self.assertRaises(BlockingIOError, listener.accept)

    def test_the_proxy_itself_is_no_way_out(self):
        grant = self.negotiate("allowed.example")
        self.assertIn("world", self.get(grant, "http://allowed.example/"))
        said = self.run_inside(grant, r"""
import socket
found = []
for port in range(1, 65536):
    s = socket.socket()
    s.settimeout(5)
    if s.connect_ex(('127.0.0.53', port)) == 0: found.append(port)
    s.close()
print(found)
""")
        ports = json.loads(said["stdout"])
        self.assertIn(53, ports, said)
        for port in ports:
            said = self.say(grant, "127.0.0.53", port, "allowed.example")
            self.assertNotIn("world", said, port)

    def test_two_sandboxes_do_not_share(self):
        one, two = self.negotiate("allowed.example"), self.negotiate("elsewhere.example")
        self.assertEqual(self.get(one, "http://allowed.example/"), "world allowed.example")
        self.assertEqual(self.get(two, "http://elsewhere.example/"), "world elsewhere.example")
        self.assertEqual(self.look_up(two, "allowed.example"), "none True")
        self.assertIn("refused", self.say(two, PLAIN, 443, "allowed.example"))
        self.assertIn("refused", self.say(one, OTHER, 80, "elsewhere.example"))

    # ---- while it runs ----

    def test_other_rules_hold_at_once(self):
        grant = self.negotiate("allowed.example")
        held = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", HOLD, "allowed.example"], detach=True)
        self.assertEqual(held.status, 201, held)
        self.until("no connection", lambda: self.deployment.shell(grant, "test -e /workspace/held && echo yes || true"))
        self.change(grant, "other.example")
        self.until("not cut", lambda: self.deployment.shell(grant, "test -e /workspace/cut && echo yes || true"))
        self.assertEqual(self.get(grant, "https://other.example/"), "secure other.example")
        self.assertEqual(self.look_up(grant, "allowed.example"), "none True")
        self.assertIn("refused", self.say(grant, PLAIN, 443, "allowed.example"))
        self.change(grant, egress="none")
        self.assertIn("none", self.look_up(grant, "other.example"))
        self.assertIn("refused", self.say(grant, PLAIN, 443, "other.example"))
        self.change(grant, "allowed.example")
        self.assertEqual(self.get(grant, "https://allowed.example/"), "secure allowed.example")

    def test_public_looks_up_all_but_what_is_inside(self):
        grant = self.negotiate(egress="public")
        self.assertEqual(self.look_up(grant, "other.example"), f"['{PLAIN}']")
        self.assertEqual(self.look_up(grant, "rebind.example"), f"['{PLAIN}']")
        self.assertIn("none", self.look_up(grant, "inner.example"))
        self.assertEqual(self.get(grant, "https://other.example/"), "secure other.example")

    # ---- the process ----

    def process(self):
        pids = self.deployment.pids("parley-egress")
        return pids[0] if pids else None

    def test_it_has_no_rights(self):
        grant = self.negotiate("allowed.example")
        self.get(grant, "http://allowed.example/")
        # Its environ is closed to all but us, who are root.
        with open(f"/proc/{self.process()}/status") as status:
            facts = dict(line.split(":\t", 1) for line in status.read().splitlines() if ":\t" in line)
        self.assertNotIn("0", facts["Uid"].split() + facts["Gid"].split() + facts["Groups"].split())
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(facts[kind], 16), 0, kind)
        self.assertEqual((facts["NoNewPrivs"], facts["Seccomp"], facts["Threads"]), ("1", "2", "1"))

    def test_it_dies_and_names_go_on(self):
        grant = self.negotiate("allowed.example")
        self.assertEqual(self.get(grant, "http://allowed.example/"), "world allowed.example")
        before = self.process()
        os.kill(before, signal.SIGKILL)
        self.until("no other process", lambda: self.process() not in (None, before))
        self.until("no names", lambda: self.look_up(grant, "allowed.example") == f"['{PLAIN}']")
        self.assertEqual(self.get(grant, "https://allowed.example/"), "secure allowed.example")
        os.kill(self.process(), signal.SIGKILL)
        # An address that was told by the former one: the next one looks the name up itself.
        self.until("no proxy", lambda: "world" in self.say(grant, PLAIN, 80, "allowed.example"))


if __name__ == "__main__":
    unittest.main()
