"""A guest (`parley-sandboxd --guest`) that a test starts itself: the letter and the connections of sandboxd/guest/guest.h,
tokens minted by the specification alone."""
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

from .deployment import BIN, Reply
from .token import b64, compact, header, kdf, link, sign
from .websocket import Session

ISSUER = "dpl_guest"


class Connection(http.client.HTTPConnection):
    """HTTP over a socket that is there already."""

    def __init__(self, open_socket, timeout):
        super().__init__("guest", timeout=timeout)
        self.open_socket = open_socket

    def connect(self):
        self.sock = self.open_socket()
        self.sock.settimeout(self.timeout)


class Guest:
    """One guest, started as `command` plus what it needs; with `over_socket` letter and connections share its stdin."""

    def __init__(self, over_socket=True, level="direct", command=(BIN + "/parley-sandboxd",), more=(), own_state=True,
                 **letter):
        self.folder = tempfile.mkdtemp(prefix="parley-guest-")
        os.chmod(self.folder, 0o711)
        self.sandbox = "sbx_" + os.urandom(10).hex()
        self.root = os.urandom(32)
        self.workspace = letter.get("workdir", self.folder + "/work")
        self.letter = {"sandbox": self.sandbox, "root": b64(self.root), "issuer": ISSUER, "isolation": level,
                       "workdir": self.workspace}
        if "workdir" not in letter:
            os.mkdir(self.workspace, 0o755)
            os.chown(self.workspace, 1000, 1000)
        self.letter.update(letter)
        self.over_socket, self.port = over_socket, None
        self.log = open(self.folder + "/log", "ab")
        arguments = [*command, "--guest", *(["--state", self.folder + "/state"] if own_state else []), *more]
        try:
            self.start(arguments)
        except BaseException:
            self.close()
            raise

    def start(self, arguments):
        text = json.dumps(self.letter).encode()
        self.process = None
        if self.over_socket:
            self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.socket.send(text)
            with theirs:
                self.process = subprocess.Popen([*arguments, "--guest-letter", "0", "--guest-connections", "0"],
                                                stdin=theirs, stdout=self.log, stderr=self.log)
        else:
            reads, writes = os.pipe()
            os.write(writes, text)
            os.close(writes)
            with os.fdopen(reads):
                self.process = subprocess.Popen([*arguments, "--sandboxd-port", "0", "--guest-letter", str(reads)],
                                                stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                                pass_fds=[reads])
        self.wait_ready()

    def wait_ready(self, seconds=60):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ready = re.search(r"guest ready sandbox=(\S+)(?: url=http://[^ ]*:(\d+))?", self.logs())
            if ready:
                self.port = ready.group(2) and int(ready.group(2))
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError("the guest is not ready\n" + self.logs())

    def logs(self):
        with open(self.folder + "/log", errors="replace") as log:
            return log.read()[-8000:]

    def stop(self, seconds=30):
        """SIGTERM, and its exit status."""
        self.process.terminate()
        return self.process.wait(seconds)

    def close(self):
        if self.process and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.over_socket:
            self.socket.close()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- tokens ----

    def token(self, scope="process shell fs:rw", epoch=1, ttl=900, root=None, **changed):
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": self.sandbox, "sub": "admin", "jti": "tok_" + "a" * 20, "fam": "tok_" + "a" * 20,
                  "iat": now, "exp": now + ttl, "scope": scope, "thread_id": "t1", "lease": "lse_" + "a" * 20,
                  "act": "human"}
        claims.update(changed)
        return sign(kdf(root or self.root, "parley/token/1", str(epoch)), header(self.sandbox, epoch), compact(claims))

    @staticmethod
    def narrow(token, **link_claims):
        return link(token, compact(link_claims))

    # ---- requests ----

    def connect(self):
        """A connected stream socket, whose other end the guest serves."""
        if not self.over_socket:
            return socket.create_connection(("127.0.0.1", self.port))
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.socket, [b"c"], [theirs.fileno()])
        return ours

    def request(self, method, path, body=None, token="", headers=None, timeout=60):
        """One request below the sandbox. token "": one with all scopes; None: none."""
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("Authorization", "Bearer " + (token or self.token()))
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = Connection(self.connect, timeout)
        try:
            connection.request(method, f"/s/{self.sandbox}{path}", body, sent)
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def exec(self, **body):
        body.setdefault("stream", "none")
        return self.request("POST", "/exec", body)

    def session(self, token=None):
        return Session(f"ws://guest/s/{self.sandbox}/ws", token or self.token(), connected=self.connect())

    # ---- as levels_test.py sees a sandbox ----

    has_walls = False  # of its own: what stands around a guest isolates
    has_negotiator = False
    hostname = os.uname().nodename

    def wrong_tokens(self):
        """Of this sandbox by their form, and none of ours."""
        return [self.token(root=os.urandom(32)), self.token(iss="dpl_other"), self.token(ttl=-3600),
                self.token(aud="sbx_" + "0" * 20)]

    def level_told(self):
        return self.request("GET", "/info").json["sandbox"]["isolation"]
