"""One Parley deployment for a test: own state folder, own ports, started by the CLI as a user would."""
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BIN = os.environ.get("PARLEY_TEST_BIN", os.path.join(ROOT, "build", "debug", "bin"))
# Every reply is kept for tests/contract, which holds them against specs/.
REPLIES = os.environ.get("PARLEY_TEST_REPLIES", os.path.join(ROOT, "build", "replies.jsonl"))
ANSWER_MAX = 64 * 1024
# All deployments that this program has started with TLS; names are checked.
TRUST = ssl.create_default_context()
# Every test with a Deployment can be run over TLS as it is.
OVER_TLS = bool(os.environ.get("PARLEY_TEST_TLS"))


def needs_root(test):
    return unittest.skipUnless(os.geteuid() == 0, "needs root for the isolation")(test)


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The error code of protocol.md, or None."""
        try:
            return self.json["error"]["code"]
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def events(self):
        """The events of an NDJSON reply."""
        return [json.loads(line) for line in self.body.decode().splitlines() if line.strip()]

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


def free_ports():
    """Two neighbouring free ports; processes that look at the same time look in different places."""
    first = 20000 + os.getpid() * 40 % 12000
    for port in [*range(first, 32000, 2), *range(20000, first, 2)]:
        held = []
        try:
            for p in (port, port + 1):
                s = socket.socket()
                held.append(s)
                s.bind(("127.0.0.1", p))
            return port
        except OSError:
            continue
        finally:
            for s in held:
                s.close()
    raise RuntimeError("no free port")


def connect_http(parts, timeout=30):
    """What a client of that URL (urlsplit) has; TLS by TRUST."""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=TRUST)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)


class Deployment:
    programs = BIN
    tls = False

    def __init__(self, start=True, programs=BIN, tls=OVER_TLS, **environment):
        self.tls = tls
        self.programs = programs
        self.folder = tempfile.mkdtemp(prefix="parley-test-")
        self.state = os.path.join(self.folder, "state")
        self.port = free_ports()
        self.environment = dict(os.environ, PARLEY_STATE=self.state, XDG_CONFIG_HOME=self.folder + "/config",
                                XDG_CACHE_HOME=self.folder + "/cache", **environment)
        for name in ("PARLEY_URL", "PARLEY_API_KEY", "PARLEY_TLS_FINGERPRINT", "PARLEY_CA_FILE"):
            self.environment.pop(name, None)
        if start:
            try:
                self.up()
            except Exception:
                self.close()
                raise

    # ---- life ----

    def tls_init(self):
        done = self.cli("tls", "init", "--json")
        if done.returncode != 0:
            raise AssertionError(f"parley tls init: {done.stderr}")
        TRUST.load_verify_locations(self.state + "/tls/ca.pem")
        self.fingerprint = json.loads(done.stdout)["authority"]["sha256"]

    def up(self):
        if self.tls and not os.path.exists(self.state + "/tls/ca.pem"):
            self.tls_init()
        done = self.cli("up", "-d", "--port", str(self.port))
        if done.returncode != 0:
            raise AssertionError(f"parley up: {done.stderr}\n{self.logs()}")
        with open(self.folder + "/config/parley/config.json") as config:
            values = json.load(config)
        self.url, self.key = values["url"], values["api_key"]
        self.node_url = f"{self.url.split(':')[0]}://127.0.0.1:{self.port + 1}"

    def close(self):
        done = self.cli("down")
        if os.environ.get("PARLEY_TEST_KEEP"):
            print("kept", self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        return done

    def logs(self):
        text = ""
        for name in ("up", "negotiator", "sandboxd"):
            try:
                with open(f"{self.state}/log/{name}.log", errors="replace") as log:
                    text += f"--- {name}\n" + log.read()[-6000:]
            except OSError:
                pass
        return text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def cli(self, *arguments, timeout=90, text=True, stdin=subprocess.DEVNULL, **more):
        if "input" in more:
            stdin = None
        options = dict(env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, text=text)
        if stdin is not None:
            options["stdin"] = stdin
        return subprocess.run([os.path.join(self.programs, "parley"), *arguments], **options, **more)

    def pids(self, name):
        """Processes of this deployment whose program is `name`."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                program = os.path.basename(os.readlink(f"/proc/{entry}/exe"))
                if name == "parley-sandboxd" and self.is_helper(entry):
                    continue
                with open(f"/proc/{entry}/cmdline", "rb") as words, open(f"/proc/{entry}/environ", "rb") as variables:
                    told = words.read() + variables.read()
            except OSError:
                continue
            if program == name and self.folder.encode() in told:
                found.append(int(entry))
        return found

    @staticmethod
    def is_helper(pid):
        """Whether it is neither launcher nor front: a sandbox before its init is executed, or a child that does one deed."""
        with open(f"/proc/{pid}/status") as status:
            facts = dict(line.split(":\t", 1) for line in status.read().splitlines() if ":\t" in line)
        parent, uid = facts["PPid"].strip(), int(facts["Uid"].split()[0])
        try:
            program = os.readlink(f"/proc/{parent}/exe")
        except OSError:  # of process 1, which takes a launcher over whose supervisor was killed
            program = ""
        return uid >= 0x70000000 or (uid == 0 and program.endswith("/parley-sandboxd"))

    def kill(self, name):
        """kill -9 of every process of that program."""
        for pid in self.pids(name):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait_ready(self, seconds=20):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if all(self.request("GET", base + "/readyz", token=None).status == 200
                       for base in (self.url, self.node_url)):
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError("not ready\n" + self.logs())

    # ---- HTTP ----

    def request(self, method, url, body=None, token="", headers=None, timeout=30, record=True):
        """One request. `url` may be a path on the negotiator. token "": the admin key there, none elsewhere."""
        if url.startswith("/"):
            url = self.url + url
            token = self.key if token == "" else token
        parts = urllib.parse.urlsplit(url)
        sent = dict(headers or {})
        if token:
            sent.setdefault("Authorization", "Bearer " + token)
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = connect_http(parts, timeout)
        try:
            connection.request(method, parts.path + ("?" + parts.query if parts.query else ""), body, sent)
            answer = connection.getresponse()
            reply = Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()
        if record:
            self.record(method, parts, reply, "open-sandbox-api-key" in {name.lower() for name in sent})
        return reply

    def record(self, method, parts, reply, foreign=False):
        """`foreign`: the request had the header that leads below /v1."""
        plane = "negotiator" if parts.port == self.port else "sandboxd"
        if foreign and plane == "negotiator" and not parts.path.startswith("/v1"):
            parts = parts._replace(path="/v1" + parts.path)
        os.makedirs(os.path.dirname(REPLIES), exist_ok=True)
        line = (json.dumps({"plane": plane, "method": method, "path": parts.path, "query": parts.query,
                                   "status": reply.status, "type": reply.headers.get("content-type", ""),
                                   "headers": reply.headers,
                                   "body": reply.body[:ANSWER_MAX].decode("utf-8", "replace"),
                                   "cut": len(reply.body) > ANSWER_MAX}) + "\n").encode()
        kept = os.open(REPLIES, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(kept, line)  # one write: tests of several threads do not mix their lines
        finally:
            os.close(kept)

    def negotiate(self, thread="t1", expect=(200, 201), **body):
        reply, until = self.request("POST", f"/threads/{thread}/sandbox", body), time.monotonic() + 10
        # A node that was just killed, by the test before, is reached again in a moment: clients ask again, too.
        while expect and reply.status == 503 and reply.status not in expect and time.monotonic() < until:
            time.sleep(0.1)
            reply = self.request("POST", f"/threads/{thread}/sandbox", body)
        if expect and reply.status not in expect:
            raise AssertionError(f"negotiate: {reply}\n{self.logs()}")
        return reply.json

    def exec(self, grant, token=None, **body):
        """POST /exec with stream none unless told; the Reply."""
        body.setdefault("stream", "none")
        return self.request("POST", grant["endpoints"]["http"] + "/exec", body, token=token or grant["token"],
                            timeout=90)

    def shell(self, grant, command, **body):
        """stdout of a shell command that must succeed."""
        reply = self.exec(grant, cmd=command, **body)
        if reply.status != 200 or reply.json.get("exit_code") != 0:
            raise AssertionError(f"{command!r}: {reply}")
        return reply.json["stdout"]
