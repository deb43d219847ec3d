"""A client of the one-shot contract (specs/execute.md) that does what the clients in use do, and nothing more: it always
sends all six fields; its read timeout is `timeout_s`; it reads JSON whatever the status; artifacts by URL are fetched without
any credential and without redirects, and what comes is taken whatever the status; it never tries again."""
import base64
import binascii
import http.client
import json
import socket
import urllib.parse


class Result:
    def __init__(self, stdout="", stderr="", exit_code=1, timed_out=False, error=None, sandbox_id=None, artifacts=None):
        self.stdout, self.stderr, self.exit_code, self.timed_out = stdout, stderr, exit_code, timed_out
        self.error, self.sandbox_id, self.artifacts = error, sandbox_id, artifacts or {}

    @property
    def succeeded(self):
        return self.exit_code == 0 and not self.timed_out and self.error is None

    def __repr__(self):
        return f"<exit {self.exit_code} {self.error!r} {self.stdout[:200]!r} {self.stderr[-600:]!r}>"


def lenient(text):
    """As base64 when it can be read so, else as it is."""
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return text.encode()


class RemoteSandbox:
    def __init__(self, api_url, api_key=None, timeout_s=60.0, path="/execute"):
        self.url, self.key, self.timeout_s = api_url.rstrip("/") + path, api_key, timeout_s
        self.fetched, self.urls = [], []

    def ask(self, method, url, timeout, body=None, headers=None):
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        try:
            connection.request(method, parts.path + ("?" + parts.query if parts.query else ""), body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def fetch(self, url):
        url = urllib.parse.urljoin(self.url, url)
        self.urls.append(url)
        try:
            status, data = self.ask("GET", url, self.timeout_s)
        except OSError:
            return b""
        self.fetched.append(status)
        return data

    def artifact(self, value):
        if isinstance(value, str):
            return lenient(value)
        if "base64" in value:
            return base64.b64decode(value["base64"])
        if "data" in value:
            return value["data"].encode()
        return self.fetch(value["url"])

    def execute(self, code, language="python", files=None, environment=None, arguments=None, timeout_s=None):
        body = {"code": code, "language": language, "files": files or {}, "environment": environment or {},
                "arguments": arguments or [], "timeout_s": self.timeout_s if timeout_s is None else timeout_s}
        headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + self.key} if self.key else {})}
        try:
            status, data = self.ask("POST", self.url, self.timeout_s, json.dumps(body), headers)
        except socket.timeout:
            return Result(timed_out=True, error="Remote sandbox timed out")
        except OSError as error:
            return Result(error=str(error))
        try:
            reply = json.loads(data)
        except ValueError:
            reply = {}
        error = reply.get("error")
        if status >= 400 and not error:
            error = f"Remote sandbox HTTP {status}"
        artifacts = {name: self.artifact(value) for name, value in (reply.get("artifacts") or {}).items()}
        return Result(reply.get("stdout", ""), reply.get("stderr", ""), int(reply.get("exit_code", status)),
                      bool(reply.get("timed_out", False)), error, reply.get("sandbox_id"), artifacts)
