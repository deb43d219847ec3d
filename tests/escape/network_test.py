"""Where a sandbox may go, attacked: what nobody may reach, by each wall alone, in all spellings; what a change of the
rules cuts and what it leaves; what kill -9 of each process leaves. Every host is first reached from outside."""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.world import BLOCKED, DNS, HOST, OTHER, PLAIN, ROUTED, World  # noqa: E402

NAMES = {"allowed.example": [PLAIN], "a.wild.example": [PLAIN], "other.example": [PLAIN], "ssh.example": [PLAIN],
         "twelve.example": [OTHER]}

# Tries targets [protocol, address, port], all at once; one word each: "open", an errno's name, or "silent".
PROBE = r"""
import errno, json, socket, sys, threading
said = {}
def tcp(family, address, port):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(8)
    s.connect((address, port))
    return 'open'
def udp(family, address, port):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(3)
    s.connect((address, port))
    s.send(b'ping')
    s.recv(100)
    return 'open'
def attempt(i, protocol, address, port):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    try: said[i] = (tcp if protocol == 'tcp' else udp)(family, address, port)
    except socket.timeout: said[i] = 'silent'
    except OSError as e: said[i] = errno.errorcode.get(e.errno, str(e))
threads = [threading.Thread(target=attempt, args=(i, *target)) for i, target in enumerate(json.loads(sys.argv[1]))]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps([said[i] for i in range(len(threads))]))
"""

# Echoes once a tenth of a second until told to stop; writes how often it was answered.
FLOW = r"""
import os, socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
s.settimeout(5)
count, name = 0, '/workspace/' + sys.argv[3]
s.recv(100)
try:
    while not os.path.exists('/workspace/stop'):
        s.sendall(b'x')
        if not s.recv(100): raise OSError('end')
        count += 1
        with open(name + '.new', 'w') as f: f.write(str(count))
        os.rename(name + '.new', name)
        time.sleep(0.1)
except OSError as e:
    open(name, 'w').write('cut ' + type(e).__name__)
"""

# Asks for a stream of datagrams and writes how many came.
STREAM = r"""
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 9000))
s.settimeout(1)
s.send(b'stream')
count = 0
while True:
    try: s.recv(100)
    except socket.timeout: continue
    except OSError: continue
    count += 1
    open('/workspace/stream', 'w').write(str(count))
"""

FETCH = r"""
import socket, ssl, sys
address, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
s = socket.create_connection((address, port), 10)
if port == 443:
    context = ssl._create_unverified_context()
    s = context.wrap_socket(s, server_hostname=name)
s.sendall(b'GET / HTTP/1.1\r\nHost: ' + name.encode() + b'\r\nConnection: close\r\n\r\n')
data = b''
while True:
    more = s.recv(65536)
    if not more: break
    data += more
print(data.split(b'\r\n\r\n', 1)[-1].decode())
"""


def table_of(deployment):
    """The deployment's table on the host: named after its state folder (FNV-1a, folded)."""
    value = 14695981039346656037
    for byte in os.path.realpath(deployment.state).encode():
        value = (value ^ byte) * 1099511628211 % 2 ** 64
    return f"parley_{(value ^ value >> 32) % 2 ** 32:08x}"


def has_table(name):
    return subprocess.run(["nft", "list", "table", "inet", name], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def read(path):
    with open(path) as file:
        return file.read()


def reach(address, port, seconds=5):
    """From this machine itself."""
    try:
        socket.create_connection((address, port), seconds).close()
        return True
    except OSError:
        return False


class HostListener:
    """A service of this machine, on one of its addresses."""

    def __init__(self, address, port):
        self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(64)
        self.taken = 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                self.socket.accept()[0].close()
            except OSError:
                return
            self.taken += 1

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self.socket.close()


@needs_root
class Network(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.zone(**NAMES)
        cls.deployment = Deployment(PARLEY_DNS_SERVERS=DNS, PARLEY_WARM="1")
        cls.addClassCleanup(cls.deployment.close)
        cls.count = 0

    def negotiate(self, egress=None, allow=None):
        type(self).count += 1
        network = {"network": {"egress": egress, **({"allow": allow} if allow else {})}} if egress else {}
        grant = self.deployment.negotiate(f"t{self.count}", **network)
        self.addCleanup(self.deployment.request, "DELETE", f"/threads/t{self.count}/sandbox")
        return grant

    def change(self, grant, egress, allow=None, expect=200):
        network = {"egress": egress, **({"allow": allow} if allow else {})}
        reply = self.deployment.request("PATCH", "/sandboxes/" + grant["sandbox"]["id"], {"network": network})
        self.assertEqual(reply.status, expect, reply)
        return reply

    def run_inside(self, grant, program, *arguments):
        reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", program, *map(str, arguments)])
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def probe(self, grant, targets):
        done = self.run_inside(grant, PROBE, json.dumps(targets))
        self.assertEqual(done["exit_code"], 0, done)
        return json.loads(done["stdout"])

    def expect(self, grant, wanted):
        """wanted: [(protocol, address, port, is open)]"""
        said = self.probe(grant, [target[:3] for target in wanted])
        got = [(*target[:3], word == "open") for target, word in zip(wanted, said)]
        self.assertEqual(got, wanted, said)
        return said

    def fetch(self, grant, address, port, name=None):
        return self.run_inside(grant, FETCH, address, port, name or address)

    def init_of(self, grant):
        """The sandbox's init on the host."""
        hostname = self.deployment.shell(grant, "hostname").strip()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                uts = subprocess.run(["nsenter", "-t", pid, "-u", "hostname"], stdout=subprocess.PIPE, text=True).stdout \
                    if os.path.basename(os.readlink(f"/proc/{pid}/exe")) in ("parley-init", "memfd:parley-init (deleted)") \
                    else ""
            except OSError:
                continue
            if uts.strip() == hostname:
                return pid
        self.fail("no init with host name " + hostname)

    # ---- what is refused ----

    def out_of_bounds(self):
        """Targets that this machine reaches and no sandbox may; each was tried."""
        own = [line.split()[3].split("/")[0] for line in
               subprocess.run(["ip", "-o", "-4", "addr"], stdout=subprocess.PIPE, text=True).stdout.splitlines()]
        listeners = {}
        for address in own:
            if address != "127.0.0.1":
                listeners[address] = HostListener(address, 8081)
                self.assertTrue(reach(address, 8081), address)
        for address in ROUTED:
            self.assertTrue(reach(address, 80), address)
        targets = [("tcp", address, 8081, False) for address in listeners]
        targets += [("tcp", "::ffff:" + address, 8081, False) for address in listeners]
        targets += [("tcp", address, port, False) for address in BLOCKED for port in (80, 443)]
        targets += [("tcp", "::ffff:" + address, 80, False) for address in BLOCKED]
        targets += [("udp", address, 9000, False) for address in ROUTED]
        targets += [("udp", address, 53, False) for address in ROUTED]
        targets += [("tcp", "169.254.1.1", 80, False), ("tcp", "127.0.0.1", 8081, False),
                    ("tcp", "fd00::2", 80, False), ("tcp", "fe80::1", 80, False), ("tcp", "2001:db8::1", 80, False),
                    ("udp", "255.255.255.255", 53, False), ("udp", "198.51.100.255", 53, False)]
        return targets, listeners

    def check_bounds(self, grant):
        neighbour = self.negotiate("public")
        self.deployment.exec(neighbour, argv=["/usr/bin/python3", "-m", "http.server", "80", "--bind", "0.0.0.0"],
                             detach=True)
        addresses = self.deployment.shell(neighbour, "cat /proc/net/fib_trie")
        address = next(word for word in addresses.split() if word.startswith("100.126."))
        deadline = time.monotonic() + 30
        while self.probe(neighbour, [("tcp", address, 80)]) != ["open"]:  # inside it is reached
            self.assertLess(time.monotonic(), deadline)
        targets, listeners = self.out_of_bounds()
        targets += [("tcp", address, 80, False), ("tcp", "::ffff:" + address, 80, False)]
        try:
            said = self.expect(grant, targets)
        finally:
            for listener in listeners.values():
                listener.close()
        before = {a: listener.taken for a, listener in listeners.items()}
        self.assertTrue(all(taken == 1 for taken in before.values()), before)
        tcp = [word for target, word in zip(targets, said) if target[0] == "tcp"]
        self.assertNotIn("silent", tcp)  # a refused connection fails at once

    def test_none_reaches_nothing(self):
        grant = self.negotiate()
        self.assertTrue(reach(PLAIN, 80))
        self.expect(grant, [("tcp", PLAIN, 80, False), ("tcp", DNS, 53, False), ("udp", DNS, 53, False)])
        done = self.run_inside(grant, "import socket; print(socket.getaddrinfo('allowed.example', 80))")
        self.assertNotEqual(done["exit_code"], 0, done)
        self.check_bounds(grant)

    def test_public(self):
        grant = self.negotiate("public")
        self.expect(grant, [("tcp", PLAIN, 80, True), ("tcp", PLAIN, 443, True), ("tcp", PLAIN, 22, False),
                            ("tcp", PLAIN, 5432, False), ("udp", PLAIN, 9000, False), ("tcp", "::ffff:" + PLAIN, 80, True),
                            ("tcp", DNS, 53, True)])
        done = self.fetch(grant, "twelve.example", 80)
        self.assertEqual(done["stdout"], "world twelve.example\n", done)
        self.check_bounds(grant)

    def test_networks(self):
        grant = self.negotiate("allow", [PLAIN + "/32", OTHER + ":5432", DNS + ":53/udp"])
        self.expect(grant, [("tcp", PLAIN, 22, True), ("tcp", PLAIN, 8080, True), ("udp", PLAIN, 9000, True),
                            ("tcp", PLAIN, 80, True), ("tcp", OTHER, 5432, True), ("tcp", OTHER, 22, False),
                            ("tcp", OTHER, 80, False), ("udp", OTHER, 9000, False), ("tcp", DNS, 53, False)])
        self.check_bounds(grant)
        # one network within another, ports within ports
        self.change(grant, "allow", ["203.0.113.0/24:22", PLAIN, "203.0.113.0/28:22"])
        self.expect(grant, [("tcp", PLAIN, 5432, True), ("tcp", OTHER, 22, True), ("tcp", OTHER, 5432, False)])

    def test_networks_that_meet_a_blocked_range(self):
        grant = self.negotiate("public")
        for entry in ("10.0.0.0/8", "0.0.0.0/0", "127.0.0.1", "169.254.169.254:80", "128.0.0.0/1", "100.64.0.0/10"):
            self.change(grant, "allow", [entry], expect=400)
        self.expect(grant, [("tcp", PLAIN, 80, True)])  # nothing has changed

    def test_each_wall_alone(self):
        grant = self.negotiate("allow", [PLAIN])
        init = self.init_of(grant)
        inside = ["nsenter", "-t", init, "-n", "nft"]
        table = table_of(self.deployment)
        self.expect(grant, [("tcp", PLAIN, 22, True)])
        for chain in ("prerouting", "input", "forward"):  # only the inner wall stands
            subprocess.run(["nft", "flush", "chain", "inet", table, chain], check=True)
        try:
            self.check_bounds(grant)
        finally:
            self.deployment.kill("parley-sandboxd")  # the next one makes the host's wall anew
            self.deployment.wait_ready()
        subprocess.run([*inside, "delete", "table", "inet", "parley"], check=True)  # only the outer
        self.expect(grant, [("tcp", OTHER, 8080, True)])
        self.check_bounds(grant)

    def test_nobody_inside_has_a_right_over_it(self):
        grant = self.negotiate("public")
        for attempt in ("ip link add v type veth", "ip addr add 10.0.0.9/8 dev lo", "ip route add 1.2.3.4 dev lo",
                        "ip link set eth0 down", "nft flush ruleset", "nft list ruleset",
                        "unshare -Ur nft flush ruleset", "sysctl -w net.ipv4.ip_forward=1",
                        "echo 1 > /proc/sys/net/ipv4/ip_forward"):
            done = self.deployment.exec(grant, cmd="PATH=$PATH:/usr/sbin:/sbin; " + attempt).json
            self.assertNotEqual(done["exit_code"], 0, (attempt, done))
        self.expect(grant, [("tcp", PLAIN, 80, True), ("tcp", PLAIN, 22, False)])

    # ---- names ----

    def test_names(self):
        grant = self.negotiate("allow", ["allowed.example", "*.wild.example", "ssh.example:22"])
        for name in ("allowed.example", "a.wild.example"):
            for port, word in ((80, "world "), (443, "secure ")):
                done = self.fetch(grant, name, port)
                self.assertEqual(done["stdout"], word + name + "\n", done)
        done = self.run_inside(grant, "import socket; s = socket.create_connection(('ssh.example', 22), 10);"
                                      "print(s.recv(100))")
        self.assertIn("hello 22", done["stdout"], done)
        for name in ("other.example", "wild.example", "xallowed.example"):
            self.assertNotEqual(self.fetch(grant, name, 80)["exit_code"], 0, name)
        # the address is pinned, another name on it is not
        for port in (80, 443):
            done = self.fetch(grant, PLAIN, port, "other.example")
            self.assertNotIn({80: "world", 443: "secure"}[port], done["stdout"], done)
        self.expect(grant, [("tcp", PLAIN, 8080, False), ("tcp", OTHER, 80, False), ("tcp", DNS, 53, False),
                            ("udp", DNS, 53, False)])
        self.check_bounds(grant)

    def test_rebinding(self):
        grant = self.negotiate("allow", ["turn.example", "turn.example:8081", "turn.example:22"])
        targets = [*ROUTED, HOST, "127.0.0.1", "0.0.0.0", "100.126.0.1"]
        for i, address in enumerate(targets):
            name = f"turn{i}.example"
            self.world.zone(ttl=1, **{name: [address], "both.example": [PLAIN, address]})
            self.change(grant, "allow", [name, name + ":8081", name + ":22", "both.example:22"])
            for port in (80, 22, 8081):
                done = self.run_inside(grant, "import socket, sys; s = socket.create_connection((sys.argv[1], "
                                              "int(sys.argv[2])), 10); print('open')", name, port)
                self.assertNotIn("open", done["stdout"], (address, port, done))
            self.expect(grant, [("tcp", address, 22, False), ("tcp", address, 80, False)])

    # ---- changes and ends ----

    def start(self, grant, program, *arguments):
        reply = self.deployment.exec(grant, argv=["/usr/bin/python3", "-c", program, *map(str, arguments)], detach=True)
        self.assertEqual(reply.status, 201, reply)

    def told(self, grant, name):
        return self.deployment.shell(grant, f"cat /workspace/{name} 2>/dev/null || true").strip()

    def wait_for(self, grant, name, is_so, what):
        deadline = time.monotonic() + 60
        while not is_so(self.told(grant, name)):
            self.assertLess(time.monotonic(), deadline, f"{what}: {name} is {self.told(grant, name)!r}")
            time.sleep(0.1)
        return self.told(grant, name)

    def grows(self, grant, name):
        before = int(self.told(grant, name) or 0)
        self.wait_for(grant, name, lambda text: text.isdigit() and int(text) > before + 2, "it should go on")

    def stands_still(self, grant, name):
        """What was on its way has come, and nothing comes any more."""
        deadline, last = time.monotonic() + 60, None
        while time.monotonic() < deadline:
            now = self.told(grant, name)
            if now == last:
                return
            last = now
            time.sleep(1)
        self.fail(f"{name} goes on: {last}")

    def test_a_change_cuts_what_is_open(self):
        grant = self.negotiate("allow", [PLAIN])
        self.start(grant, FLOW, PLAIN, 22, "flow")
        self.start(grant, STREAM, PLAIN)
        self.grows(grant, "flow")
        self.grows(grant, "stream")
        self.change(grant, "allow", [PLAIN, OTHER])  # wider: nothing is cut
        self.grows(grant, "flow")
        self.grows(grant, "stream")
        self.change(grant, "allow", [PLAIN + ":9000/udp"])
        self.wait_for(grant, "flow", lambda text: text.startswith("cut"), "it should be cut")
        self.grows(grant, "stream")
        self.change(grant, "allow", [OTHER])
        self.stands_still(grant, "stream")
        self.expect(grant, [("tcp", PLAIN, 22, False), ("tcp", OTHER, 22, True)])
        self.change(grant, "none")
        self.expect(grant, [("tcp", OTHER, 22, False), ("tcp", PLAIN, 80, False)])
        self.change(grant, "public")
        self.expect(grant, [("tcp", OTHER, 22, False), ("tcp", PLAIN, 80, True)])

    def test_names_that_are_not_allowed_any_more(self):
        grant = self.negotiate("allow", ["ssh.example:22", "allowed.example"])
        self.start(grant, FLOW, "ssh.example", 22, "flow")
        self.grows(grant, "flow")
        self.assertEqual(self.fetch(grant, "allowed.example", 80)["exit_code"], 0)
        self.change(grant, "allow", ["twelve.example"])
        self.wait_for(grant, "flow", lambda text: text.startswith("cut"), "it should be cut")
        self.expect(grant, [("tcp", PLAIN, 22, False), ("tcp", PLAIN, 80, False)])
        self.assertNotEqual(self.fetch(grant, "allowed.example", 80)["exit_code"], 0)
        self.assertEqual(self.fetch(grant, "twelve.example", 80)["stdout"], "world twelve.example\n")

    def wait_names(self, grant, name):
        deadline = time.monotonic() + 60
        while self.fetch(grant, name, 80)["exit_code"] != 0:
            self.assertLess(time.monotonic(), deadline, "names are not served again")
            time.sleep(0.2)

    def test_kill_9(self):
        grant = self.negotiate("allow", [PLAIN, "twelve.example"])
        self.start(grant, FLOW, PLAIN, 22, "flow")
        self.grows(grant, "flow")
        self.wait_names(grant, "twelve.example")
        for program in ("parley-egress", "parley-sandboxd", "parley-egress"):
            before = self.deployment.pids("parley-egress")
            self.deployment.kill(program)
            self.deployment.wait_ready()
            self.grows(grant, "flow")
            self.wait_names(grant, "twelve.example")
            self.assertNotEqual(self.deployment.pids("parley-egress"), before)
        self.change(grant, "none")
        self.wait_for(grant, "flow", lambda text: text.startswith("cut"), "it should be cut")
        self.assertNotEqual(self.fetch(grant, "twelve.example", 80)["exit_code"], 0)

    def test_a_port_that_it_has_taken_itself(self):
        grant = self.negotiate()
        self.start(grant, "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                          "s.bind(('0.0.0.0', 53))\nopen('/workspace/has', 'w').write('1')\ntime.sleep(600)")
        self.wait_for(grant, "has", lambda text: text == "1", "it should have the port")
        reply = self.change(grant, "public", expect=409)
        self.assertIn("port 53", reply.json["error"]["message"])
        self.expect(grant, [("tcp", PLAIN, 80, False)])

    def test_many_connections(self):
        """What is remembered of connections is bounded: one sandbox does not fill the host's table."""
        grant = self.negotiate("allow", [PLAIN])
        done = self.run_inside(grant, "import socket\ns = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for i in range(1500)]\n"
                                      "failed = 0\n"
                                      "for i, one in enumerate(s):\n"
                                      "  try: one.sendto(b'x', ('%s', 1000 + i))\n"
                                      "  except OSError: failed += 1\n"
                                      "print(failed)" % PLAIN)
        self.assertGreater(int(done["stdout"]), 300, done)


@needs_root
class Leaving(unittest.TestCase):
    """What a node leaves on the host when it ends without sandboxes."""

    def test_nothing_is_left(self):
        with World() as world:
            interface = f"/proc/sys/net/ipv4/conf/{world.link}/forwarding"
            before = read(interface)
            deployment = Deployment(PARLEY_DNS_SERVERS=DNS)
            try:
                deployment.negotiate("t1", network={"egress": "public"})
                self.assertEqual(read(interface), "1\n")
                table = table_of(deployment)
                self.assertTrue(has_table(table))
                reply = deployment.request("DELETE", "/threads/t1/sandbox")
                self.assertLess(reply.status, 300, reply)
            finally:
                deployment.close()
            self.assertFalse(has_table(table))
            self.assertEqual((before, read(interface)), ("0\n", "0\n"))

    def test_purge(self):
        with World() as world:
            deployment = Deployment(PARLEY_DNS_SERVERS=DNS)
            try:
                deployment.negotiate("t1", network={"egress": "allow", "allow": [PLAIN]})
                table = table_of(deployment)
                for program in ("parley", "parley-sandboxd"):  # the supervisor first
                    deployment.kill(program)
                self.assertTrue(has_table(table))  # what lives goes on
                done = subprocess.run([os.path.join(BIN, "parley-sandboxd"), "--purge", "--state", deployment.state],
                                      stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertFalse(has_table(table))
            finally:
                deployment.close()


if __name__ == "__main__":
    unittest.main()
