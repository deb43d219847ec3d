"""sandboxd without any negotiator: a fixed node key, a sealed prepare, tokens minted by the specification alone; exec,
replay, and kill -9 of launcher and front while a command counts: every number is seen once."""
import ctypes
import ctypes.util
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.token import b64, compact, header, kdf, sign  # noqa: E402

NODE, DEPLOYMENT, SANDBOX = "n1", "dpl_alone", "sbx_alone" + "0" * 15
NUMBERS = 3000
COUNTER = f"for i in $(seq 1 {NUMBERS}); do echo $i; [ $((i % 20)) -eq 0 ] && sleep 0.02; done; exit 5"
OVERHEAD = 16


class Link:
    """The negotiator's end of the sealed link (shared/node_protocol/link.h), by libsodium itself."""

    def __init__(self, node_key):
        self.sodium = ctypes.CDLL(ctypes.util.find_library("sodium") or "libsodium.so.23")
        self.sodium.sodium_init()
        self.to_node = kdf(node_key, "parley/link/1", "negotiator")
        self.from_node = kdf(node_key, "parley/link/1", "sandboxd")
        self.number = int(time.time() * 1000) << 20

    def head(self, incarnation, number, reply_to):
        return (b"PL1" + bytes([reply_to != 0, len(NODE)]) + NODE.encode() +
                struct.pack(">QQQ", incarnation, number, reply_to))

    def seal(self, incarnation, message):
        self.number += 1
        head, nonce, text = self.head(incarnation, self.number, 0), os.urandom(24), json.dumps(message).encode()
        out = ctypes.create_string_buffer(len(text) + OVERHEAD)
        self.sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(
            out, None, text, ctypes.c_ulonglong(len(text)), head, ctypes.c_ulonglong(len(head)), None, nonce, self.to_node)
        return head + nonce + out.raw

    def open(self, data):
        size = 5 + len(NODE) + 24
        head, nonce, sealed = data[:size], data[size:size + 24], data[size + 24:]
        out = ctypes.create_string_buffer(len(sealed))
        wrong = self.sodium.crypto_aead_xchacha20poly1305_ietf_decrypt(
            out, None, None, sealed, ctypes.c_ulonglong(len(sealed)), head, ctypes.c_ulonglong(len(head)), nonce,
            self.from_node)
        assert wrong == 0, "the reply does not open"
        return json.loads(out.raw[:len(sealed) - OVERHEAD])


class Alone:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="parley-alone-")
        self.state = self.folder + "/state"
        os.makedirs(self.state + "/sandboxd")
        self.key = os.urandom(32)
        with open(os.open(self.state + "/sandboxd/node.json", os.O_WRONLY | os.O_CREAT, 0o600), "w") as node:
            json.dump({"deployment": DEPLOYMENT, "node": NODE, "epoch": 1, "node_key": b64(self.key),
                       "negotiator_url": ""}, node)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.link = Link(self.key)
        self.log = open(self.folder + "/log", "ab")
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        self.child = subprocess.Popen([BIN + "/parley-sandboxd", "--state", self.state, "--sandboxd-port", str(self.port)],
                                      stdin=subprocess.DEVNULL, stderr=self.log, stdout=self.log)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("sandboxd does not answer\n" + self.logs())

    def kill(self):
        """kill -9 of the launcher and its front at once."""
        with open(f"/proc/{self.child.pid}/task/{self.child.pid}/children") as children:
            fronts = [int(pid) for pid in children.read().split() if self.is_front(pid)]
        for pid in (self.child.pid, *fronts):
            os.kill(pid, signal.SIGKILL)
        self.child.wait()

    @staticmethod
    def is_front(pid):
        return os.readlink(f"/proc/{pid}/exe").endswith("parley-sandboxd")

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

    def token(self, scope="process", key=None):
        now = int(time.time())
        root = kdf(key or self.key, "parley/sandbox/1", SANDBOX)
        return sign(kdf(root, "parley/token/1", "1"), header(SANDBOX), compact({
            "iss": DEPLOYMENT, "aud": SANDBOX, "sub": "admin", "jti": "tok_" + "a" * 20, "fam": "tok_" + "a" * 20, "iat": now,
            "exp": now + 900, "scope": scope, "thread_id": "t1", "lease": "lse_" + "a" * 20, "act": "human"}))

    def verb(self, method, path, body=None, token=None):
        return self.ask(method, f"/s/{SANDBOX}{path}", body, token or self.token())

    def exec(self, cmd, **more):
        status, data = self.verb("POST", "/exec", dict(cmd=cmd, stream="none", **more))
        assert status == 200, (status, data, self.logs())
        return json.loads(data)


@needs_root
class SandboxdAlone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Alone()
        cls.addClassCleanup(cls.node.close)
        made = cls.node.prepare()
        assert made.get("ok"), (made, cls.node.logs())
        cls.made = made["sandbox"]

    def test_1_prepare_is_idempotent(self):
        self.assertEqual((self.made["id"], self.made["isolation"]), (SANDBOX, "namespaces"))
        self.assertTrue(self.node.prepare()["sandbox"]["reused"])

    def test_2_exec(self):
        done = self.node.exec("echo $GIVEN; id -u; pwd; exit 3")
        self.assertEqual((done["stdout"], done["exit_code"]), ("yes\n1000\n/workspace\n", 3))

    def test_3_only_the_right_key(self):
        status, _ = self.node.verb("GET", "/info", token=self.node.token(key=os.urandom(32)))
        self.assertEqual(status, 401)
        self.assertEqual(self.node.verb("GET", "/processes", token=self.node.token("fs:ro"))[0], 403)
        status, info = self.node.verb("GET", "/info", token=self.node.token(""))
        self.assertEqual((status, json.loads(info)["sandbox"]["id"]), (200, SANDBOX))

    def follow(self, name):
        """To the exit, resuming by offset over broken connections."""
        text, until = "", time.monotonic() + 60
        while time.monotonic() < until:
            try:
                status, data = self.node.verb("GET", f"/processes/{name}/output?follow=1&stdout_offset={len(text)}")
                self.assertEqual(status, 200, data)
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
                continue
            for event in map(json.loads, data.decode().splitlines()):
                if event["type"] == "stdout":
                    self.assertEqual(event["offset"], len(text))
                    text += event["data"]
                if event["type"] == "exit":
                    return text, event["exit_code"]
        self.fail("no exit\n" + self.node.logs())

    def test_4_every_number_once_through_kill_9(self):
        status, data = self.node.verb("POST", "/exec", {"cmd": COUNTER, "id": "count", "detach": True})
        self.assertEqual(status, 201, data)
        for _ in range(3):
            time.sleep(0.4)
            self.node.kill()
            self.node.start()
        text, code = self.follow("count")
        self.assertEqual(text, "".join(f"{n}\n" for n in range(1, NUMBERS + 1)))
        self.assertEqual(code, 5)

    def test_5_destroy_leaves_nothing_and_is_told(self):
        self.node.verb("POST", "/exec", {"cmd": "setsid sleep 700 & sleep 701", "detach": True})
        self.assertEqual(self.node.call(call="destroy", id=SANDBOX, reason="released"), {"ok": True})
        until = time.monotonic() + 25
        while time.monotonic() < until and os.listdir(self.node.state + "/sandboxd/run"):
            time.sleep(0.1)
        self.assertEqual(os.listdir(self.node.state + "/sandboxd/run"), [])
        status, data = self.node.verb("GET", "/processes")
        self.assertEqual((status, json.loads(data)["error"]["code"]), (410, "GONE"))
        self.assertIn("released", json.loads(data)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
