"""A receiver of webhooks: keeps what it is sent, answers what it is told, and checks signatures as a receiver would."""
import base64
import hashlib
import hmac
import http.server
import json
import threading
import time


class Receiver:
    def __init__(self, answer=200):
        self.answer = answer  # a status, or a function of (body, number) that gives one or (status, headers)
        self.got = []  # (headers, body text)
        self.changed = threading.Condition()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with receiver.changed:
                    receiver.got.append((dict(self.headers.items()), body))
                    number = len(receiver.got)
                    receiver.changed.notify_all()
                answer = receiver.answer
                said = answer(json.loads(body), number) if callable(answer) else answer
                status, headers = said if isinstance(said, tuple) else (said, {})
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def bodies(self):
        with self.changed:
            return [json.loads(body) for _, body in self.got]

    def wait(self, enough, seconds=30):
        """The bodies, as soon as enough(bodies)."""
        until = time.monotonic() + seconds
        with self.changed:
            while True:
                bodies = [json.loads(body) for _, body in self.got]
                if enough(bodies):
                    return bodies
                if time.monotonic() > until:
                    raise AssertionError(f"after {seconds} s: {[b['type'] for b in bodies]}")
                self.changed.wait(0.2)


def signed_by(secret, headers, body):
    """How many of a delivery's signatures are by this secret (Standard Webhooks)."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    told = {name.lower(): value for name, value in headers.items()}
    text = f"{told['webhook-id']}.{told['webhook-timestamp']}.{body}".encode()
    right = "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return told["webhook-signature"].split(" ").count(right)
