"""A WebSocket client on a raw socket (RFC 6455), without any library: also able to do it wrongly. And the frames of /ws
on top of it (specs/websocket.md)."""
import base64
import hashlib
import json
import os
import socket
import struct
import time
import urllib.parse

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Refused(Exception):
    """The server answered the handshake with something else than 101."""

    def __init__(self, status, head, body):
        super().__init__(f"{status} {body[:200]!r}")
        self.status, self.head, self.body = status, head, body


class Closed(Exception):
    """The socket is closed: `code` 1006 when no close frame came."""

    def __init__(self, code, reason=""):
        super().__init__(f"closed {code} {reason}")
        self.code, self.reason = code, reason


def frame(opcode, data=b"", fin=True, masked=True, reserved=0):
    """The bytes of one frame."""
    head = bytes([(0x80 if fin else 0) | reserved | opcode])
    bit = 0x80 if masked else 0
    if len(data) < 126:
        head += bytes([bit | len(data)])
    elif len(data) < 65536:
        head += struct.pack(">BH", bit | 126, len(data))
    else:
        head += struct.pack(">BQ", bit | 127, len(data))
    if not masked:
        return head + data
    key = os.urandom(4)
    words = int.from_bytes(data, "big") ^ int.from_bytes((key * (len(data) // 4 + 1))[:len(data)], "big")
    return head + key + words.to_bytes(len(data), "big")


class WebSocket:
    def __init__(self, url, headers=None, timeout=20, receive_buffer=None, connected=None):
        parts = urllib.parse.urlsplit(url)
        self.socket = connected or socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        if not connected:
            self.socket.connect((parts.hostname, parts.port))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if parts.scheme in ("https", "wss"):
                from .deployment import TRUST
                self.socket = TRUST.wrap_socket(self.socket, server_hostname=parts.hostname)
        self.buffer, self.timeout, self.closed = b"", timeout, None
        key = base64.b64encode(os.urandom(16))
        lines = [f"GET {parts.path or '/'}{'?' + parts.query if parts.query else ''} HTTP/1.1", f"Host: {parts.netloc}",
                 "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                 f"Sec-WebSocket-Key: {key.decode()}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        try:
            self.read_head(key)
        except Exception:
            self.socket.close()
            raise

    def read_head(self, key):
        while b"\r\n\r\n" not in self.buffer:
            self.fill()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        self.headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        status = int(lines[0].split()[1])
        if status != 101:
            while len(self.buffer) < int(self.headers.get("content-length", 0)):
                self.fill()
            raise Refused(status, self.headers, self.buffer)
        wanted = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        assert self.headers["sec-websocket-accept"] == wanted, self.headers

    # ---- bytes ----

    def fill(self):
        try:
            part = self.socket.recv(1 << 16)
        except ConnectionError:
            part = b""
        if not part:
            raise Closed(1006)
        self.buffer += part

    def parse(self):
        """The first whole frame in the buffer, (opcode, data); None when there is none yet."""
        if len(self.buffer) < 2:
            return None
        first, second = self.buffer[:2]
        # what a server may not do: fragments, reserved bits, masks
        assert first & 0x80 and not first & 0x70 and not second & 0x80, (first, second)
        size, start = second & 0x7F, 2
        if size > 125:
            start = 4 if size == 126 else 10
            if len(self.buffer) < start:
                return None
            size = int.from_bytes(self.buffer[2:start], "big")
        if len(self.buffer) < start + size:
            return None
        data, self.buffer = self.buffer[start:start + size], self.buffer[start + size:]
        return first & 0x0F, data

    def read_frame(self):
        while not (whole := self.parse()):
            self.fill()
        return whole

    # ---- messages ----

    def send(self, data, opcode=None):
        if opcode is None:
            opcode = TEXT if isinstance(data, str) else BINARY
        self.socket.sendall(frame(opcode, data.encode() if isinstance(data, str) else data))

    def send_raw(self, data):
        self.socket.sendall(data)

    def receive(self, timeout=None):
        """The next message, str or bytes; pings are answered. Closed when it is closed."""
        if self.closed:
            raise self.closed
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            self.socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                opcode, data = self.read_frame()
            except Closed as closed:
                self.closed = closed
                raise
            finally:
                self.socket.settimeout(self.timeout)
            if opcode == TEXT:
                return data.decode()
            if opcode == BINARY:
                return data
            if opcode == PING:
                self.send(data, PONG)
            elif opcode == CLOSE:
                code = struct.unpack(">H", data[:2])[0] if len(data) >= 2 else 1005
                self.closed = Closed(code, data[2:].decode())
                try:
                    self.send(data[:2], CLOSE)
                except OSError:
                    pass
                raise self.closed

    def wait_closed(self, timeout=None):
        """Reads until the socket is closed; the Closed, and in .messages what came before."""
        messages = []
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            try:
                messages.append(self.receive(max(until - time.monotonic(), 0.001)))
            except Closed as closed:
                closed.messages = messages
                return closed

    def close(self, code=1000):
        if not self.closed:
            self.send(struct.pack(">H", code), CLOSE)
            self.wait_closed(5)
        self.socket.close()

    def drop(self):
        """As a cable that is pulled, but the peer hears of it."""
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class Session(WebSocket):
    """Frames of /ws. `output` and `errors` hold the bytes of the two streams as they came, `position` the next offsets,
    `gaps` what was told missing. A frame that is not data is returned by `next` and `expect`."""

    def __init__(self, url, token=None, carrier="bearer", **more):
        self.output, self.errors, self.gaps, self.acked, self.seen = b"", b"", [], None, []
        self.position = {"stdout": 0, "stderr": 0}
        headers = dict(more.pop("headers", {}))
        if token and carrier == "bearer":
            headers["Authorization"] = "Bearer " + token
        elif token and carrier == "query":
            url += "?token=" + urllib.parse.quote(token)
        elif token and carrier == "protocol":
            headers["Sec-WebSocket-Protocol"] = f"parley.v1, bearer.{token}"
        super().__init__(url, headers, **more)
        if token and carrier == "frame":
            self.tell("auth", token=token)

    def tell(self, type, **fields):
        self.send(json.dumps({"type": type, **fields}))

    def type(self, text, **fields):
        """Keys, as text or bytes."""
        if isinstance(text, bytes):
            self.tell("stdin", data_b64=base64.b64encode(text).decode(), **fields)
        else:
            self.tell("stdin", data=text, **fields)

    def take_data(self, stream, offset, data):
        if offset is not None:
            assert offset == self.position[stream], f"{stream} at {offset}, not {self.position[stream]}"
        self.position[stream] += len(data)
        if stream == "stdout":
            self.output += data
        else:
            self.errors += data

    def next(self, timeout=None):
        """Takes one message in; the frame, or None when it was data."""
        message = self.receive(timeout)
        if isinstance(message, bytes):
            self.take_data({1: "stdout", 2: "stderr"}[message[0]], None, message[1:])
            return None
        told = json.loads(message)
        if told["type"] in ("stdout", "stderr"):
            data = told["data"].encode() if "data" in told else base64.b64decode(told["data_b64"])
            self.take_data(told["type"], told["offset"], data)
            return None
        if told["type"] == "gap":
            assert told["from"] == self.position[told["stream"]], told
            self.gaps.append((told["stream"], told["from"], told["to"]))
            self.position[told["stream"]] = told["to"]
        elif told["type"] == "stdin_ack":
            assert self.acked is None or told["stdin_offset"] >= self.acked, told
            self.acked = told["stdin_offset"]
        elif told["type"] == "started":
            self.position = {"stdout": told["stdout_offset"], "stderr": told["stderr_offset"]}
        self.seen.append(told)
        return told

    def expect(self, type, timeout=20):
        """The next frame of that type; others are taken in. An error frame where none is wanted fails."""
        until = time.monotonic() + timeout
        while True:
            told = self.next(max(until - time.monotonic(), 0.001))
            if told and told["type"] == type:
                return told
            if told and told["type"] == "error":
                raise AssertionError(f"wanted {type}, got {told}")

    def expect_error(self, timeout=20):
        """The next frame must be an error, data aside."""
        until = time.monotonic() + timeout
        while True:
            told = self.next(max(until - time.monotonic(), 0.001))
            if told and told["type"] == "error":
                return told
            assert not told or told["type"] in ("gap", "stdin_ack", "expiring"), told

    def until(self, word, timeout=20):
        """Reads until `word` is in the output; the output so far."""
        word = word if isinstance(word, bytes) else word.encode()
        end = time.monotonic() + timeout
        while word not in self.output:
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{word!r} did not come: {self.output[-2000:]!r}")
            try:
                told = self.next(left)
            except TimeoutError:
                continue
            if told and told["type"] in ("error", "exit"):
                raise AssertionError(f"{word!r} did not come, but {told}: {self.output[-2000:]!r}")
        return self.output

    def start(self, **fields):
        self.tell("start", **fields)
        return self.expect("started")

    def attach(self, id, **fields):
        self.tell("attach", id=id, **fields)
        return self.expect("started")
