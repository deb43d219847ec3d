"""A stand-in for both planes on one port, for tests of the clients: tokens that live for seconds, lost replies, leaks.

It keeps the rules of refresh (protocol.md, 2) and the times of streams (3), and counts what it is asked. Commands are
a table of outputs by time; nothing runs.
"""
import base64
import hashlib
import hmac
import json
import os
import random
import re
import string
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from .fake_socket import FakeSocket

KEY = "pk_" + "k" * 43


def random_id(prefix):
    return prefix + "_" + "".join(random.choices(string.ascii_lowercase + string.digits, k=20))


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"


def part(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Refusal(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Command:
    """Writes "line N\\n" every `every` seconds, `count` times, and ends; or counts its stdin until it ends."""

    def __init__(self, argv):
        self.started, self.argv, self.stdin, self.eof = time.time(), argv, b"", False
        self.count, self.every = (int(argv[1]), float(argv[2])) if argv[0] == "lines" else (0, 0)

    def output(self):
        if self.argv[0] == "lines":
            due = min(self.count, int((time.time() - self.started) / self.every))
            return "".join(f"line {n}\n" for n in range(due)).encode()
        return f"{len(self.stdin)} bytes\n".encode() if self.eof else b""

    def ended(self):
        if self.argv[0] == "lines":
            return time.time() - self.started >= self.count * self.every
        return self.eof or self.argv[0] == "true"


class Fake:
    def __init__(self, ttl=900):
        self.lock = threading.RLock()
        self.ttl, self.stream_grace, self.spent_grace = ttl, 0, 30
        self.refresh_delay, self.lose_replies, self.refuse_refresh = 0, 0, None
        self.tokens, self.families, self.commands, self.threads = {}, {}, {}, {}
        self.negotiations = self.refreshes = self.rotations = self.leaks = 0
        self.refused_uses = 0
        self.metrics_end = None  # how /metrics/watch ends: an error
        self.users = []  # of the commands started
        self.wishes, self.judge_wish, self.metrics = [], None, []  # bodies of negotiations; a say in them; what /metrics gives
        self.asked, self.answers = [], {}  # everything else: (method, path, query, body, credential); replies by path
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do(self):
                fake.serve(self)

            do_GET = do_POST = do_DELETE = do_PATCH = do

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass  # clients come and go

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    # ---- tokens ----

    def mint(self, thread, sandbox, family=None):
        now = int(time.time())
        jti = random_id("tok")
        claims = {"iss": "dep_fake", "aud": sandbox, "sub": "local", "jti": jti, "fam": family or jti, "iat": now,
                  "exp": now + self.ttl, "scope": "process", "thread_id": thread, "lease": "lse_" + "l" * 20,
                  "act": "human"}
        header = part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": sandbox + ".1"}, separators=(",", ":")).encode())
        text = header + "." + part(json.dumps(claims, separators=(",", ":")).encode())
        token = text + "." + part(hmac.new(b"k" * 32, text.encode(), hashlib.sha256).digest())
        self.tokens[token] = {"claims": claims, "spent_at": None, "successor": None}
        self.families.setdefault(claims["fam"], {"revoked": False})
        return token

    def grant(self, token):
        claims = self.tokens[token]["claims"]
        life = claims["exp"] - claims["iat"]
        return {"protocol_version": "1.0", "sandbox": {"id": claims["aud"], "name": "brisk-otter", "state": "active"},
                "lease": {"id": claims["lease"], "thread_id": claims["thread_id"]}, "token": token,
                "token_type": "Bearer", "jti": claims["jti"], "scopes": ["process"],
                "expires_at": stamp(claims["exp"]), "refresh_before": stamp(claims["exp"] - life / 5),
                "endpoints": {"http": f"{self.url}/s/{claims['aud']}"}}

    def negotiate(self, thread, body):
        with self.lock:
            self.negotiations += 1
            self.wishes.append((thread, body))
            if self.judge_wish:
                self.judge_wish(thread, body)
            if thread in self.threads and body.get("mode") == "create_only":
                raise Refusal(409, "CONFLICT", "this thread has a sandbox")
            if thread not in self.threads and body.get("mode") == "attach_only":
                raise Refusal(404, "NOT_FOUND", "this thread has no sandbox")
            new = thread not in self.threads
            sandbox = self.threads.setdefault(thread, random_id("sbx"))
            return (201 if new else 200), self.grant(self.mint(thread, sandbox))

    def refresh(self, thread, body):
        with self.lock:
            self.refreshes += 1
            known = self.tokens.get(body["current_token"])
            if self.refuse_refresh:
                raise Refusal(*self.refuse_refresh)
            if not known or self.families[known["claims"]["fam"]]["revoked"]:
                raise Refusal(401, "TOKEN_REVOKED", "the token was revoked")
            if time.time() > known["claims"]["exp"] + 60:
                raise Refusal(401, "TOKEN_EXPIRED", "the token expired")
            if known["successor"] and self.tokens[known["successor"]]["spent_at"]:
                self.leaks += 1
                self.families[known["claims"]["fam"]]["revoked"] = True
                raise Refusal(409, "TOKEN_REUSED", "a spent token was presented")
            if not known["successor"]:
                self.rotations += 1
                known["successor"] = self.mint(thread, known["claims"]["aud"], known["claims"]["fam"])
                known["spent_at"] = time.time()
            return 200, self.grant(known["successor"])

    def judge(self, credential, sandbox):
        """The claims of a token that may be used now."""
        with self.lock:
            known = self.tokens.get(credential)
            now = time.time()
            self.refused_uses += 1
            if not known or known["claims"]["aud"] != sandbox:
                raise Refusal(401, "UNAUTHENTICATED", "the token is not valid")
            if now >= known["claims"]["exp"]:
                raise Refusal(401, "TOKEN_EXPIRED", "the token expired")
            spent = known["spent_at"] and now >= known["spent_at"] + self.spent_grace
            if spent or self.families[known["claims"]["fam"]]["revoked"]:
                raise Refusal(401, "TOKEN_REVOKED", "the token was revoked")
            self.refused_uses -= 1
            return known["claims"]

    def revoke_all(self):
        with self.lock:
            for family in self.families.values():
                family["revoked"] = True

    # ---- HTTP ----

    def serve(self, handler):
        parts = urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        credential = (handler.headers.get("Authorization") or "").removeprefix("Bearer ")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        try:
            self.route(handler, parts.path, query, body, credential)
        except Refusal as refusal:
            self.reply(handler, refusal.status, {"error": {"code": refusal.code, "message": refusal.message}})

    @staticmethod
    def reply(handler, status, value):
        data = json.dumps(value).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def route(self, handler, path, query, body, credential):
        thread = re.fullmatch(r"/threads/([^/]+)/sandbox(/refresh)?", path)
        use = re.fullmatch(r"/s/([^/]+)/(ws|processes|metrics|metrics/watch)", path)
        if thread and handler.command == "POST":
            if credential != KEY:
                raise Refusal(401, "UNAUTHENTICATED", "no such key")
            verb = self.refresh if thread[2] else self.negotiate
            time.sleep(self.refresh_delay if thread[2] else 0)
            status, value = verb(unquote(thread[1]), json.loads(body or b"{}"))
            if thread[2] and self.lose_replies:
                self.lose_replies -= 1
                handler.close_connection = True
                return
            self.reply(handler, status, value)
        elif thread and handler.command == "GET" and not thread[2]:
            if unquote(thread[1]) not in self.threads:
                raise Refusal(404, "NOT_FOUND", "this thread has no sandbox")
            self.reply(handler, 200, {"sandbox": {"id": self.threads[unquote(thread[1])], "state": "active"}})
        elif use:
            self.use(handler, use[1], use[2], credential, query)
        else:
            self.asked.append((handler.command, path, query, json.loads(body) if body else None, credential))
            answer = self.answers.get((handler.command, path))
            if callable(answer):
                answer = answer(query)
            if answer is None:
                raise Refusal(404, "NOT_FOUND", "the fake has no such route")
            self.reply(handler, *answer)

    # ---- commands ----

    def command(self, process, argv):
        """The one of that id; never a second."""
        with self.lock:
            return self.commands.setdefault(process, Command(argv))

    def watch_metrics(self, handler):
        """What there is, an event each, and the end."""
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(b": hello\n\n")
        for one in self.metrics:
            handler.wfile.write(b"event: metrics\r\ndata: " + json.dumps(one).encode() + b"\r\n\r\n")
        handler.wfile.write(b"event: other\ndata: {\"cpu\": 5}\n\n")
        if self.metrics_end:
            handler.wfile.write(b"event: error\ndata: " + json.dumps(self.metrics_end).encode() + b"\n\n")
        handler.close_connection = True

    def use(self, handler, sandbox, what, credential, query):
        if what == "ws":
            FakeSocket(self, handler, sandbox, credential).serve()
            handler.close_connection = True
            return
        self.judge(credential, sandbox)
        if what == "metrics/watch":
            self.asked.append(("GET", "/metrics/watch", query, None, credential))
            self.watch_metrics(handler)
            return
        self.reply(handler, 200, self.metrics[-1] if what == "metrics" else {"processes": []})


def client_environment(fake, folder):
    """Where a CLI finds the fake, with config and cache of its own."""
    environment = dict(os.environ, PARLEY_URL=fake.url, PARLEY_API_KEY=KEY, XDG_CONFIG_HOME=folder + "/config",
                       XDG_CACHE_HOME=folder + "/cache")
    environment.pop("SUDO_UID", None)
    return environment
