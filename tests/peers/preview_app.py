"""A small web application for tests of ports and previews; runs inside a sandbox: preview_app.py PORT FOLDER.

It says what it was asked, and keeps what pages tell it: FOLDER/report.json, FOLDER/asked.jsonl."""
import base64
import hashlib
import http.server
import json
import os
import socketserver
import struct
import sys
import time

PORT, FOLDER = int(sys.argv[1]), sys.argv[2]


class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def asked(self):
        return {"method": self.command, "target": self.path, "headers": [list(pair) for pair in self.headers.items()]}

    def log_message(self, *_):
        pass

    def note(self):
        with open(os.path.join(FOLDER, "asked.jsonl"), "a") as to:
            to.write(json.dumps(self.asked()) + "\n")

    def answer(self, data, kind="text/plain", status=200, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_GET(self):
        self.note()
        path = self.path.split("?")[0]
        if self.headers.get("Upgrade"):
            self.websocket()
        elif path == "/headers":
            self.answer(json.dumps(self.asked()).encode(), "application/json")
        elif path == "/cookies":
            self.answer(b"set", headers=[("Set-Cookie", "own=1; Path=/; Domain=localhost"), ("Set-Cookie", "parley_preview=evil"),
                                         ("Set-Cookie", "=parley_preview=evil")])
        elif path == "/stream":
            self.stream()
        elif path == "/style.css":
            self.answer(b"body { color: rgb(1, 2, 3) }", "text/css")
        elif path == "/worker.js":
            self.answer(b"self.onfetch = () => {}", "text/javascript")
        elif path == "/":
            with open(os.path.join(FOLDER, "preview.html"), "rb") as page:
                self.answer(page.read(), "text/html; charset=utf-8")
        else:
            self.answer(("you asked for " + self.path).encode(), status=404)

    do_HEAD = do_GET

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                data += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    return data
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self):
        self.note()
        data = self.body()
        if self.path == "/report":
            with open(os.path.join(FOLDER, "report.tmp"), "wb") as to:
                to.write(data)
            os.rename(os.path.join(FOLDER, "report.tmp"), os.path.join(FOLDER, "report.json"))
        self.answer(data, "application/octet-stream")

    do_PUT = do_POST

    def stream(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"5\r\ntick\n\r\n")
                time.sleep(0.1)
        except OSError:
            with open(os.path.join(FOLDER, "stream.over"), "w"):
                pass

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                break
            size = head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([head[0]]) + (bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)) + data)
        with open(os.path.join(FOLDER, "socket.over"), "w"):
            pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads, request_queue_size = True, 64


Server(("127.0.0.1", PORT), App).serve_forever()
