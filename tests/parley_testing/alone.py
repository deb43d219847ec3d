"""sandboxd without any negotiator: a fixed node key, sealed messages, tokens minted by the specification alone. What the
negotiator would say is said by the test; a stand-in for it takes heartbeats when the test wants them."""
import ctypes
import ctypes.util
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

from .deployment import BIN
from .token import b64, compact, header, kdf, link, sign


def kill_9(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has just ended

NODE, DEPLOYMENT, SANDBOX = "n1", "dpl_alone", "sbx_alone" + "0" * 15
OVERHEAD = 16


class Link:
    """The negotiator's end of the sealed link (shared/node_protocol/link.h), by libsodium itself."""

    def __init__(self, node_key):
        self.sodium = ctypes.CDLL(ctypes.util.find_library("sodium") or "libsodium.so.23")
        self.sodium.sodium_init()
        self.to_node = kdf(node_key, "parley/link/1", "negotiator")
        self.from_node = kdf(node_key, "parley/link/1", "sandboxd")
        self.number = int(time.time() * 1000) << 20

    @staticmethod
    def head(incarnation, number, reply_to):
        return (b"PL1" + bytes([reply_to != 0, len(NODE)]) + NODE.encode() +
                struct.pack(">QQQ", incarnation, number, reply_to))

    def seal(self, incarnation, message, reply_to=0):
        self.number += 1
        head, nonce, text = self.head(incarnation, self.number, reply_to), os.urandom(24), json.dumps(message).encode()
        out = ctypes.create_string_buffer(len(text) + OVERHEAD)
        self.sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(
            out, None, text, ctypes.c_ulonglong(len(text)), head, ctypes.c_ulonglong(len(head)), None, nonce, self.to_node)
        return head + nonce + out.raw

    @staticmethod
    def numbers(data):
        """Incarnation, number and what it replies to, of a message as it came."""
        return struct.unpack(">QQQ", data[5 + len(NODE):][:24])

    def open(self, data):
        size = 5 + len(NODE) + 24
        head, nonce, sealed = data[:size], data[size:size + 24], data[size + 24:]
        out = ctypes.create_string_buffer(len(sealed))
        wrong = self.sodium.crypto_aead_xchacha20poly1305_ietf_decrypt(
            out, None, None, sealed, ctypes.c_ulonglong(len(sealed)), head, ctypes.c_ulonglong(len(head)), nonce,
            self.from_node)
        assert wrong == 0, "the reply does not open"
        return json.loads(out.raw[:len(sealed) - OVERHEAD])


class StandIn:
    """Takes the node's messages: `beats` of all heartbeats, answered with what `answer(message)` returns; `records` of its
    audit."""

    def __init__(self, answer):
        self.beats, self.changed, self.link, self.answer = [], threading.Condition(), None, answer
        self.records = []
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                data = self.rfile.read(int(self.headers["Content-Length"]))
                reply = stand_in.take(data)
                self.send_response(200)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a node that is killed resets its connection
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, data):
        message = self.link.open(data)
        incarnation, number, _ = self.link.numbers(data)
        if message["call"] != "heartbeat":
            with self.changed:
                self.records += message.get("records", [])
                self.changed.notify_all()
            return self.link.seal(incarnation, {"ok": True, "spool": message.get("spool"), "upto": max(
                [0] + [record["n"] for record in message.get("records", [])])}, number)
        reply = {"ok": True, "time": int(time.time() * 1000), "ended_known": [ended["id"] for ended in message["ended"]]}
        reply.update(self.answer(message) or {})
        with self.changed:
            self.beats.append((time.monotonic(), message))
            self.changed.notify_all()
        return self.link.seal(incarnation, reply, number)

    def wait(self, wanted, seconds=10, since=None):
        """The first heartbeat from now on (or from the one of number `since` on) for which wanted(message) holds."""
        with self.changed:
            seen, until = len(self.beats) if since is None else since, time.monotonic() + seconds
            while time.monotonic() < until:
                for _, message in self.beats[seen:]:
                    if wanted(message):
                        return message
                self.changed.wait(0.2)
        raise AssertionError(f"no such heartbeat; the last: {self.beats[-3:]}")

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Alone:
    options = ()  # more words of the command line
    environment = None

    def __init__(self, stand_in=None):
        self.folder = tempfile.mkdtemp(prefix="parley-alone-")
        self.state = self.folder + "/state"
        os.makedirs(self.state + "/sandboxd")
        self.key = os.urandom(32)
        with open(os.open(self.state + "/sandboxd/node.json", os.O_WRONLY | os.O_CREAT, 0o600), "w") as node:
            json.dump({"deployment": DEPLOYMENT, "node": NODE, "epoch": 1, "node_key": b64(self.key),
                       "negotiator_url": stand_in.url if stand_in else ""}, node)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.link = Link(self.key)
        if stand_in:
            stand_in.link = self.link
        self.log = open(self.folder + "/log", "ab")
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        self.child = subprocess.Popen([BIN + "/parley-sandboxd", "--state", self.state, "--sandboxd-port", str(self.port),
                                       *self.options], stdin=subprocess.DEVNULL, stderr=self.log, stdout=self.log,
                                      env=self.environment)
        self.await_front()

    def fronts(self):
        with open(f"/proc/{self.child.pid}/task/{self.child.pid}/children") as children:
            return [int(pid) for pid in children.read().split() if self.is_front(pid)]

    def kill(self):
        """kill -9 of the launcher and its front at once."""
        for pid in (self.child.pid, *self.fronts()):
            kill_9(pid)
        self.child.wait()

    def kill_front(self):
        """kill -9 of the front alone: its launcher starts another."""
        for pid in self.fronts():
            kill_9(pid)

    def await_front(self, seconds=20):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)
        raise AssertionError("sandboxd does not answer\n" + self.logs())

    @staticmethod
    def is_front(pid):
        try:
            return os.readlink(f"/proc/{pid}/exe").endswith("parley-sandboxd")
        except OSError:  # it has just ended
            return False

    def close(self):
        self.child.terminate()
        self.child.wait(30)
        subprocess.run([BIN + "/parley-sandboxd", "--purge", "--state", self.state], timeout=60,
                       stdout=self.log, stderr=self.log, check=False)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self):
        with open(self.folder + "/log", errors="replace") as log:
            return log.read()[-8000:]

    def ask(self, method, path, body=None, token=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": "Bearer " + token} if token else {}
        try:
            connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def call(self, **message):
        with open(self.state + "/sandboxd/incarnation") as kept:
            incarnation = int(kept.read())
        status, data = self.ask("POST", "/node/v1/message", self.link.seal(incarnation, message))
        assert status == 200, (status, data, self.logs())
        return self.link.open(data)

    def prepare(self):
        return self.call(call="prepare", sandbox=dict(
            id=SANDBOX, name="lone-otter", template="base", isolation="auto", cpu_milli=1000,
            memory_bytes=256 << 20, disk_bytes=0, pids=128, epoch=1, env={"GIVEN": "yes"},
            deadline=int(time.time() * 1000) + 3600_000))

    def token(self, scope="process", key=None, epoch=1, ttl=900, **changed):
        now = int(time.time())
        root = kdf(key or self.key, "parley/sandbox/1", SANDBOX)
        claims = {"iss": DEPLOYMENT, "aud": SANDBOX, "sub": "admin", "jti": "tok_" + "a" * 20, "fam": "tok_" + "a" * 20,
                  "iat": now, "exp": now + ttl, "scope": scope, "thread_id": "t1", "lease": "lse_" + "a" * 20,
                  "act": "human"}
        claims.update(changed)
        return sign(kdf(root, "parley/token/1", str(epoch)), header(SANDBOX, epoch), compact(claims))

    @staticmethod
    def narrow(token, **link_claims):
        return link(token, compact(link_claims))

    def verb(self, method, path, body=None, token=None):
        return self.ask(method, f"/s/{SANDBOX}{path}", body, token or self.token())

    def exec(self, cmd, **more):
        status, data = self.verb("POST", "/exec", dict(cmd=cmd, stream="none", **more))
        assert status == 200, (status, data, self.logs())
        return json.loads(data)
