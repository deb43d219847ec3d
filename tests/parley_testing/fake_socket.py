"""The stand-in's /ws (specs/websocket.md), as far as `parley run` needs it: binary data, stdin by offset, tokens renewed
in-band, an end by expiry or revocation."""
import base64
import hashlib
import json
import select
import struct
import time

from .websocket import BINARY, CLOSE, GUID, PING, PONG, TEXT, frame

STDIN, STDOUT = b"\0", b"\1"


class Left(Exception):
    """The client is gone, or is to go."""


class FakeSocket:
    """One session; `serve` returns when it is over."""

    def __init__(self, fake, handler, sandbox, credential):
        self.fake, self.sandbox, self.connection, self.buffer = fake, sandbox, handler.connection, b""
        self.command, self.position = None, 0
        self.take_token(credential)
        key = handler.headers["Sec-WebSocket-Key"].encode()
        handler.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"),
                            ("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + GUID).digest()).decode())):
            handler.send_header(name, value)
        handler.end_headers()

    def take_token(self, token):
        claims = self.fake.judge(token, self.sandbox)
        self.family, self.until = claims["fam"], claims["exp"] + self.fake.stream_grace

    # ---- frames ----

    def send(self, opcode, data):
        self.connection.sendall(frame(opcode, data, masked=False))

    def tell(self, type, **fields):
        self.send(TEXT, json.dumps({"type": type, **fields}).encode())

    def close(self, code, reason):
        self.tell("error", code=reason, message=reason.lower(), retryable=False)
        self.send(CLOSE, struct.pack(">H", code) + reason.encode())
        raise Left

    def parse(self):
        """The first whole frame of the client in the buffer; None."""
        if len(self.buffer) < 6:
            return None
        assert self.buffer[0] & 0xF0 == 0x80 and self.buffer[1] & 0x80, self.buffer[:2]
        size, start = self.buffer[1] & 0x7F, 2
        if size > 125:
            start = 4 if size == 126 else 10
            size = int.from_bytes(self.buffer[2:start], "big")
        if len(self.buffer) < start + 4 + size:
            return None
        opcode, key = self.buffer[0] & 0x0F, self.buffer[start:start + 4]
        data, self.buffer = self.buffer[start + 4:start + 4 + size], self.buffer[start + 4 + size:]
        mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
        return opcode, (int.from_bytes(data, "big") ^ mask).to_bytes(size, "big")

    def read(self):
        if not select.select([self.connection], [], [], 0.02)[0]:
            return
        part = self.connection.recv(1 << 16)
        if not part:
            raise Left
        self.buffer += part
        while whole := self.parse():
            self.take(*whole)

    # ---- what they mean ----

    def take(self, opcode, data):
        if opcode == TEXT:
            told = json.loads(data)
            getattr(self, "on_" + told.pop("type"))(**told)
        elif opcode == BINARY:
            assert data[:1] == STDIN, data[:1]
            self.write(data[1:], None)
        elif opcode == PING:
            self.send(PONG, data)
        elif opcode == CLOSE:
            self.send(CLOSE, data[:2])
            raise Left

    def on_auth(self, token):
        try:
            self.take_token(token)
        except Exception as refusal:  # noqa: B902  the one before holds
            self.tell("error", code=refusal.code, message=refusal.message, retryable=False)
            return
        self.tell("auth_ok")

    def on_start(self, id, argv, tty, bin, ack, stdin_open, user=None):
        self.fake.users.append(user)
        assert (tty, bin, ack) == (False, True, True)
        with self.fake.lock:
            self.command = self.fake.command(id, argv)
            self.command.eof = self.command.eof or not stdin_open
        self.started(id, 0)

    def on_attach(self, id, mode, bin, ack, stdout_offset, stderr_offset):
        assert (mode, bin, ack, stderr_offset) == ("drive", True, True, 0)
        self.command = self.fake.commands[id]
        self.started(id, stdout_offset)

    def started(self, id, offset):
        self.position = offset
        self.tell("started", id=id, pid=7, tty=False, mode="drive", stdin_offset=len(self.command.stdin),
                  stdout_offset=offset, stderr_offset=0)

    def write(self, data, offset):
        with self.fake.lock:
            had = len(self.command.stdin)
            self.command.stdin += data[had - (had if offset is None else offset):]
        self.tell("stdin_ack", stdin_offset=len(self.command.stdin))

    def on_stdin(self, data_b64, offset):
        self.write(base64.b64decode(data_b64), offset)

    def on_eof(self):
        self.command.eof = True

    # ---- the loop ----

    def step(self):
        self.read()
        if self.fake.families[self.family]["revoked"]:
            self.close(4401, "TOKEN_REVOKED")
        if time.time() >= self.until:
            self.close(4401, "TOKEN_EXPIRED")
        if not self.command:
            return
        ended, output = self.command.ended(), self.command.output()
        if len(output) > self.position:
            self.send(BINARY, STDOUT + output[self.position:])
            self.position = len(output)
        if ended:
            self.tell("exit", exit_code=0)
            self.command = None

    def serve(self):
        try:
            self.tell("auth_ok")
            while True:
                self.step()
        except (Left, OSError):
            pass
