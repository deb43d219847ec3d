"""Hosts that sandboxes may or may not reach: a DNS server, HTTP, TLS and plain TCP and UDP on documentation addresses and
on addresses of ranges that no sandbox may reach. They stand in a network namespace of their own, and this machine's side is
another one, which the test's thread goes into: nothing that a test makes is seen by others, nor left by one that is
killed."""
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HOST = "198.51.100.1"  # this machine's own address on the link
HOST_TOO = "192.0.2.99"  # ... and another one
DNS = "198.51.100.7"
PLAIN = "203.0.113.7"
OTHER = "203.0.113.9"
# The world has them, this machine routes them there: from a sandbox they are out of bounds.
BLOCKED = ["10.99.99.7", "100.99.99.7", "169.254.99.7", "172.31.99.7", "192.168.99.7", "0.99.99.7", "240.99.99.7"]
ROUTED = [address for address in BLOCKED if address[:2] not in ("0.", "24")]  # the kernel routes neither 0/8 nor 240/4
TCP_PORTS = [22, 80, 443, 5432, 8080]

SERVER = r"""
import json, os, socket, ssl, struct, sys, threading, time
folder = sys.argv[1]

def serve(listener, talk):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=run, args=(talk, connection), daemon=True).start()

def run(talk, connection):
    try:
        with connection: talk(connection)
    except OSError: pass

def head_of(connection):
    data = b''
    while b'\r\n\r\n' not in data and len(data) < 65536:
        more = connection.recv(65536)
        if not more: return ''
        data += more
    return data.decode('latin-1')

def answer(connection, text):
    body = text.encode()
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n' % len(body) + body)

def http(connection):
    head = head_of(connection)
    host = [line[6:] for line in head.split('\r\n') if line.lower().startswith('host: ')]
    answer(connection, 'world ' + (host[0] if host else '-'))

def tls(connection):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder + '/cert.pem', folder + '/key.pem')
    names = []
    context.sni_callback = lambda socket_, name, context_: names.append(name)
    with context.wrap_socket(connection, server_side=True) as secure:
        head_of(secure)
        answer(secure, 'secure ' + str(names and names[0]))

def echo(connection):
    connection.sendall(b'hello %d\n' % connection.getsockname()[1])
    while True:
        data = connection.recv(65536)
        if not data: return
        connection.sendall(data)

def sink(connection):
    while connection.recv(1 << 20): pass

def udp(address, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, port)) # answers come from where was asked
    while True:
        data, peer = s.recvfrom(2048)
        if data == b'stream': threading.Thread(target=stream, args=(s, peer), daemon=True).start()
        else: s.sendto(b'udp ' + data, peer)

def stream(s, peer):
    for number in range(1200):
        s.sendto(b'%d' % number, peer)
        time.sleep(0.05)

def dns_answer(query):
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode('latin-1').lower())
        at += 1 + query[at]
    kind, = struct.unpack('>H', query[at + 1:at + 3])
    name = '.'.join(labels)
    with open(folder + '/zone.json') as zone: zone = json.load(zone)
    with open(folder + '/asked', 'a') as asked: asked.write(name + '\n')
    addresses = zone.get(name)
    alias = b''
    if addresses and addresses[0].startswith('='): # stands for another name
        there = addresses[0][1:]
        wire = b''.join(bytes([len(label)]) + label.encode() for label in there.split('.')) + b'\0'
        alias = b'\xc0\x0c' + struct.pack('>HHIH', 5, 1, 60, len(wire)) + wire
        owner, addresses = wire, zone.get(there, [])
    else: owner = b'\xc0\x0c'
    found = [socket.inet_aton(a) for a in addresses or []] if kind == 1 else []
    flags = 0x8180 if addresses is not None else 0x8183
    records = alias + b''.join(owner + struct.pack('>HHIH', 1, 1, zone.get('ttl', 60), 4) + a for a in found)
    return query[:2] + struct.pack('>HHHHH', flags, 1, len(found) + (1 if alias else 0), 0, 0) + query[12:at + 5] + records

def dns_udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('0.0.0.0', 53))
    while True:
        query, peer = s.recvfrom(4096)
        try: s.sendto(dns_answer(query), peer)
        except Exception: pass

def dns_tcp(connection):
    while True:
        size = connection.recv(2, socket.MSG_WAITALL)
        if len(size) < 2: return
        reply = dns_answer(connection.recv(struct.unpack('>H', size)[0], socket.MSG_WAITALL))
        connection.sendall(struct.pack('>H', len(reply)) + reply)

sys.stdin.readline() # until the link is there
ROLES = {22: echo, 53: dns_tcp, 80: http, 443: tls, 5432: echo, 8080: echo, 9999: sink}
for port, talk in ROLES.items():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('0.0.0.0', port))
    listener.listen(128)
    threading.Thread(target=serve, args=(listener, talk), daemon=True).start()
threading.Thread(target=dns_udp, daemon=True).start()
for address in sys.argv[2:]:
    threading.Thread(target=udp, args=(address, 9000), daemon=True).start()
open(folder + '/ready', 'w').close()
sys.stdin.read()
"""


CLONE_NEWNET = 0x40000000


def ip(*words, inside=None):
    enter = ["nsenter", "-t", str(inside), "-n"] if inside else []
    subprocess.run([*enter, "ip", *words], check=True, stdout=subprocess.DEVNULL)


def libc_call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


class World:
    """`with World() as world:` the calling thread, and the deployments it starts, are in a network of the test's own;
    `world.zone(**{name: [addresses]})` says what the DNS server answers."""

    def __init__(self):
        self.link = "plt0"
        self.folder = tempfile.mkdtemp(prefix="parley-world-")
        self.server, self.names = None, {}
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self):
        libc_call("unshare", CLONE_NEWNET)
        self.server = subprocess.Popen(["unshare", "-n", sys.executable, "-c", SERVER, self.folder,
                                        DNS, PLAIN, OTHER, *ROUTED], stdin=subprocess.PIPE)
        self.wait(lambda: os.stat(f"/proc/{self.server.pid}/ns/net").st_ino != os.stat("/proc/thread-self/ns/net").st_ino)
        there = self.server.pid
        ip("link", "set", "lo", "up")
        ip("addr", "add", HOST_TOO + "/32", "dev", "lo")
        ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(there))
        ip("addr", "add", HOST + "/24", "dev", self.link)
        ip("link", "set", self.link, "up")
        ip("link", "set", "lo", "up", inside=there)
        ip("link", "set", "eth0", "up", inside=there)
        ip("addr", "add", DNS + "/24", "dev", "eth0", inside=there)
        for address in [PLAIN, OTHER, *ROUTED]:
            ip("addr", "add", address + "/32", "dev", "lo", inside=there)
            ip("route", "add", address + "/32", "via", DNS)
        ip("route", "add", "default", "via", HOST, inside=there)
        ip("route", "add", "default", "via", DNS)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", self.folder + "/key.pem", "-out", self.folder + "/cert.pem", "-days", "2",
                        "-subj", "/CN=world.example"], check=True, stderr=subprocess.DEVNULL)
        self.zone()
        self.server.stdin.write(b"go\n")
        self.server.stdin.flush()
        self.wait(lambda: os.path.exists(self.folder + "/ready"))

    def wait(self, is_so):
        deadline = time.monotonic() + 30
        while not is_so():
            if self.server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the world's servers do not start")
            time.sleep(0.01)

    def zone(self, ttl=60, **names):
        self.names.update(names, ttl=ttl)
        with open(self.folder + "/zone.new", "w") as zone:
            json.dump(self.names, zone)
        os.rename(self.folder + "/zone.new", self.folder + "/zone.json")

    def asked(self):
        """The names that the DNS server was asked for."""
        try:
            with open(self.folder + "/asked") as asked:
                return asked.read().split()
        except OSError:
            return []

    def close(self):
        if self.server:
            self.server.stdin.close()
            self.server.wait()
        libc_call("setns", self.home, CLONE_NEWNET)
        os.close(self.home)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
