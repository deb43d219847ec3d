"""Ports of a sandbox as origins of their own: the link, the cookie, and all who try without; with a browser."""
import base64
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import ROOT  # noqa: E402

PEERS = os.path.join(ROOT, "tests", "peers")
APP = "/workspace/app"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def all(self, name):
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def one(self, name):
        return (self.all(name) or [None])[0]

    @property
    def code(self):
        try:
            return json.loads(self.body)["error"]["code"]
        except (ValueError, KeyError, TypeError):
            return None

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:300]!r}>"


def until(condition, seconds=30):
    """What `condition` gives as soon as that is true; its last word after a generous while."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.05)


@needs_root
class Previews(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("app")
        cls.other = cls.deployment.negotiate("other")
        for grant in (cls.grant, cls.other):
            cls.start_app(grant, 3000)
        cls.link = urllib.parse.urlsplit(cls.url("app"))

    @classmethod
    def start_app(cls, grant, port):
        for name in ("preview_app.py", "preview.html"):
            with open(os.path.join(PEERS, name), "rb") as source:
                done = cls.deployment.request("PUT", f"{grant['endpoints']['http']}/files{APP}/{name}", source.read(),
                                              grant["token"])
            assert done.status in (200, 201), done
        done = cls.deployment.request("POST", grant["endpoints"]["http"] + "/exec",
                                      {"argv": ["/usr/bin/python3", f"{APP}/preview_app.py", str(port), APP],
                                       "detach": True, "stream": "none"}, grant["token"])
        assert done.status == 201, done
        script = f"for i in $(seq 600); do (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && exit 0; sleep 0.05; done; exit 1"
        cls.deployment.shell(grant, script)

    @classmethod
    def url(cls, thread, *options):
        done = cls.deployment.cli("url", "3000", "--thread", thread, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def works(self, grant, command):
        return self.deployment.exec(grant, cmd=command).json["exit_code"] == 0

    @property
    def token(self):
        return urllib.parse.parse_qs(self.link.query)["token"][0]

    def narrowed(self, grant, scopes, *options):
        done = self.deployment.cli("token", "--attenuate", scopes, "--token", grant["token"], *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def ask(self, method="GET", target="/headers", body=None, host=None, **headers):
        """One request on a connection of its own; `host` None: the preview's."""
        connection = http.client.HTTPConnection("127.0.0.1", self.link.port, timeout=30)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        if host != "":
            connection.putheader("Host", host or self.link.netloc)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        reply = connection.getresponse()
        answer = Answer(reply.status, reply.getheaders(), reply.read())
        connection.close()
        return answer

    def cookie(self, token=None):
        return "parley_preview=" + (token or self.token)

    def seen_by_app(self, answer):
        self.assertEqual(answer.status, 200, answer)
        return json.loads(answer.body)

    def origin(self):
        return "http://" + self.link.netloc

    # ---- the way in ----

    def test_a_link_becomes_a_cookie(self):
        self.assertRegex(self.link.netloc, r"^3000-sbx-[0-9a-z]+\.localhost:\d+$")
        first = self.ask(target=f"/a%20b//c?x=1&token={self.token}&x=2&y=%zz")
        self.assertEqual((first.status, first.one("Location")), (303, "/a%20b//c?x=1&x=2&y=%zz"))
        self.assertEqual((first.one("Referrer-Policy"), first.one("Cache-Control")), ("no-referrer", "no-store"))
        name, *attributes = [part.strip() for part in first.one("Set-Cookie").split(";")]
        self.assertEqual(name, self.cookie())
        age = [int(part.split("=")[1]) for part in attributes if part.startswith("Max-Age=")]
        self.assertEqual(sorted(part for part in attributes if not part.startswith("Max-Age")), ["HttpOnly", "Path=/", "SameSite=Lax"])
        self.assertTrue(age and 0 < age[0] <= 900, attributes)
        asked = self.seen_by_app(self.ask(target="/headers?x=1&x=2", Cookie=f"a=1; {name}; b=2", Authorization="Bearer the-apps"))
        self.assertEqual(asked["target"], "/headers?x=1&x=2")
        headers = {key.lower(): value for key, value in asked["headers"]}
        self.assertEqual((headers["cookie"], headers["authorization"], headers["host"]), ("a=1; b=2", "Bearer the-apps", self.link.netloc))
        self.assertNotIn(self.token, json.dumps(asked))

    def test_other_carriers(self):
        for headers in ({"Authorization": "Bearer " + self.token}, {}):
            target = "/headers?a=1" if headers else "/headers?a=1&token=" + self.token
            method = "GET" if headers else "HEAD"
            answer = self.ask(method, target, **headers)
            self.assertEqual(answer.status, 200 if headers else 303, answer)
            self.assertNotIn(self.token, answer.body.decode())
        posted = self.ask("POST", "/echo?token=" + self.token, b"from curl")
        self.assertEqual((posted.status, posted.body), (200, b"from curl"))
        self.assertEqual(self.ask("GET", "/headers?token=" + self.token, Authorization="Bearer " + self.other["token"]).status, 400)
        self.assertEqual(self.ask("GET", f"/headers?token={self.token}&token={self.token}").status, 400)
        mine = self.ask("GET", "/headers?token=the-apps-own", Cookie=self.cookie())
        self.assertEqual(self.seen_by_app(mine)["target"], "/headers?token=the-apps-own")

    def test_how_long_a_link_holds(self):
        done = self.deployment.cli("url", "3000", "--thread", "app", "--ttl", "3", "--json")
        told = json.loads(done.stdout)
        self.assertLessEqual(told["expires_in"], 3)
        token = urllib.parse.parse_qs(urllib.parse.urlsplit(told["url"]).query)["token"][0]
        s, status = self.open_socket(Cookie=self.cookie(token), Origin=self.origin())
        self.assertEqual(status, 101)
        s.settimeout(60)
        try:
            self.assertEqual(s.recv(1), b"")  # what it opened ends with it
        except ConnectionResetError:
            pass
        s.close()
        late = until(lambda: (lambda answer: answer if answer.status == 401 else None)(self.ask(Cookie=self.cookie(token))))
        self.assertEqual(late.code, "TOKEN_EXPIRED")
        page = self.ask(Cookie=self.cookie(token), Accept="text/html,*/*")
        self.assertIn(b"expired", page.body)

    def test_without_a_credential(self):
        answer = self.ask()
        self.assertEqual((answer.status, answer.code), (401, "UNAUTHENTICATED"))
        page = self.ask(Accept="text/html,application/xhtml+xml")
        self.assertEqual((page.status, page.one("Content-Type")), (401, "text/html; charset=utf-8"))
        self.assertIn(b"parley url 3000", page.body)
        for cookie in ("parley_preview=", "parley_preview=x", self.cookie(self.token[:-4] + "AAAA"), "x=" + self.token):
            self.assertEqual(self.ask(Cookie=cookie).status, 401, cookie)

    def test_a_token_of_another_sandbox_or_port(self):
        theirs = self.narrowed(self.other, "port@3000")
        self.assertEqual(self.ask(host=self.host_of(self.other), Cookie=self.cookie(theirs)).status, 200)  # it is good there
        for headers in ({"Cookie": self.cookie(theirs)}, {"Authorization": "Bearer " + theirs}):
            self.assertEqual(self.ask(**headers).status, 401)
        self.assertEqual(self.ask(target="/?token=" + theirs).status, 401)
        for scopes in ("port@3001", "fs:rw", "process"):
            answer = self.ask(Authorization="Bearer " + self.narrowed(self.grant, scopes))
            self.assertEqual((answer.status, answer.code), (403, "CAPABILITY_DENIED"), scopes)
        # Cookies of others beside ours change nothing: neither a page's of a sibling nor one that is broken.
        both = self.ask(Cookie=f"parley_preview={theirs}; {self.cookie()}; parley_preview=x")
        self.assertNotIn("parley_preview", json.dumps(self.seen_by_app(both)))

    def host_of(self, grant, port=3000):
        return f"{port}-{grant['sandbox']['id'].replace('_', '-')}.localhost:{self.link.port}"

    # ---- what only the page itself may do ----

    def test_other_origins(self):
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            for origin in (None, "null", "http://evil.example", "http://" + self.host_of(self.other),
                           "http://" + self.host_of(self.grant, 3001), self.origin() + ".evil.example"):
                headers = {"Origin": origin} if origin else {}
                answer = self.ask(method, "/echo", b"", Cookie=self.cookie(), **headers)
                self.assertEqual((answer.status, answer.code), (403, "FORBIDDEN"), (method, origin))
        posted = self.ask("POST", "/echo", b"mine", Cookie=self.cookie(), Origin=self.origin())
        self.assertEqual((posted.status, posted.body), (200, b"mine"))
        worker = self.ask(target="/worker.js", Cookie=self.cookie(), Service_Worker="script")
        self.assertEqual((worker.status, worker.code), (403, "FORBIDDEN"))

    def test_cookies_of_the_app(self):
        answer = self.ask(target="/cookies", Cookie=self.cookie())
        self.assertEqual(answer.all("Set-Cookie"), ["own=1; Path=/"])

    def open_socket(self, **headers):
        s = socket.create_connection(("127.0.0.1", self.link.port), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET /socket HTTP/1.1\r\nHost: {self.link.netloc}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"]
        s.sendall(("".join(lines + [f"{name}: {value}\r\n" for name, value in headers.items()]) + "\r\n").encode())
        head = b""
        while b"\r\n\r\n" not in head:
            more = s.recv(1)
            self.assertTrue(more, head)
            head += more
        return s, int(head.split(b" ")[1])

    def test_websockets(self):
        s, status = self.open_socket(Cookie=self.cookie(), Origin="http://evil.example")
        self.assertEqual(status, 403)
        s.close()
        s, status = self.open_socket(Cookie=self.cookie())
        self.assertEqual(status, 403)
        s.close()
        s, status = self.open_socket(Cookie=self.cookie(), Origin=self.origin())
        self.assertEqual(status, 101)
        s.sendall(b"\x81\x85\0\0\0\0hello")
        self.assertEqual(s.recv(7, socket.MSG_WAITALL), b"\x81\x05hello")
        s.close()
        over = until(lambda: self.works(self.grant, f"rm {APP}/socket.over"))
        self.assertTrue(over, "the app was not told that its client had left")

    # ---- addresses ----

    def test_addresses(self):
        label, port = self.link.netloc.split(".")[0], self.link.port
        for host in (self.link.netloc.upper(), f"{label}.localhost", f"{label}.localhost.", f"{label}.localhost:1"):
            self.assertEqual(self.ask(host=host, Cookie=self.cookie()).status, 200, host)
        ours = self.grant["endpoints"]["http"].split("/s/")[0]
        info = f"/s/{self.grant['sandbox']['id']}/info"
        for host in (f"x.{label}.localhost", f"{label}..localhost", f"0{label}.localhost", f"+{label}.localhost",
                     f"{label}x.localhost", f"3000{label[4:]}x.localhost", f"a@{label}.localhost", f"{label}%2e.localhost", ".localhost",
                     f"99999{label[4:]}.localhost", f"0x{label}.localhost", f"{label[4:]}.localhost", "3000-.localhost"):
            answer = self.ask(host=host, Cookie=self.cookie(), target=info, Authorization="Bearer " + self.token)
            self.assertIn(answer.status, (400, 401, 404), (host, answer))
        # The preview's host serves nothing of ours, and other hosts nothing of it.
        self.assertEqual(self.ask(target="/healthz", Cookie=self.cookie()).body, b"you asked for /healthz")
        self.assertEqual(self.ask(target=info, Authorization="Bearer " + self.token).body, b"you asked for " + info.encode())
        self.assertEqual(self.ask(host=f"localhost:{port}", target="/healthz").status, 200)
        self.assertEqual(self.ask(host=f"localhost:{port}", Cookie=self.cookie()).status, 404)
        self.assertEqual(self.deployment.request("GET", ours + "/healthz").status, 200)

    def raw(self, text):
        with socket.create_connection(("127.0.0.1", self.link.port), timeout=30) as s:
            s.sendall(text.encode())
            data = b""
            while b"\r\n\r\n" not in data:
                more = s.recv(65536)
                if not more:
                    break
                data += more
        return int(data.split(b" ")[1]) if data else 0

    def test_malformed_requests(self):
        cookie = f"Cookie: {self.cookie()}\r\n"
        host = f"Host: {self.link.netloc}\r\n"
        self.assertEqual(self.raw(f"GET /headers HTTP/1.1\r\n{host}{cookie}\r\n"), 200)
        for head in (f"GET http://{self.link.netloc}/headers HTTP/1.1\r\nHost: localhost\r\n{cookie}",
                     f"GET /headers HTTP/1.1\r\n{host}Host: localhost\r\n{cookie}",
                     f"GET /headers HTTP/1.1\r\n{cookie}",
                     f"GET /headers HTTP/1.1\r\n {host}{cookie}",
                     f"POST /echo HTTP/1.1\r\n{host}{cookie}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
                     f"GET /../headers HTTP/1.1\r\n{host}{cookie}"):
            self.assertEqual(self.raw(head + "\r\n"), 400, head)

    def test_no_open_redirect(self):
        for path in ("//evil.example/x", "/\\evil.example", "///evil.example", "/\\/evil.example"):
            answer = self.ask(target=f"{path}?token={self.token}")
            self.assertEqual(answer.status, 303, path)
            where = urllib.parse.urljoin(self.origin() + "/", answer.one("Location").replace("\\", "/"))
            self.assertEqual(urllib.parse.urlsplit(where).netloc, self.link.netloc, (path, answer))
        for path in ("/%0d%0aSet-Cookie:%20x=1", "/a%0aLocation:%20//evil"):
            answer = self.ask(target=f"{path}?token={self.token}")
            self.assertEqual((answer.status, answer.one("Location")), (303, path))
            self.assertEqual(len(answer.all("Set-Cookie")), 1)

    # ---- its end ----

    def test_revocation_cuts_what_runs(self):
        token = self.narrowed(self.grant, "port@3000", "--note", "to be revoked")
        s, status = self.open_socket(Cookie=self.cookie(token), Origin=self.origin())
        self.assertEqual(status, 101)
        stream = http.client.HTTPConnection("127.0.0.1", self.link.port, timeout=60)
        stream.request("GET", "/stream", headers={"Host": self.link.netloc, "Cookie": self.cookie(token)})
        reply = stream.getresponse()
        self.assertEqual(reply.read(5), b"tick\n")
        done = self.deployment.cli("revoke", "--token", token, "--reason", "test")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.ask(Cookie=self.cookie(token)).code, "TOKEN_REVOKED")
        s.settimeout(60)
        try:
            self.assertEqual(s.recv(1), b"")
        except ConnectionResetError:
            pass
        with self.assertRaises((http.client.IncompleteRead, ConnectionResetError)):
            reply.read()
        over = until(lambda: self.works(self.grant, f"rm {APP}/stream.over"))
        self.assertTrue(over, "the app was not told that its client had been cut off")
        self.assertEqual(self.ask(Cookie=self.cookie()).status, 200)  # the others go on

    def test_nobody_listens(self):
        token = self.narrowed(self.grant, "port@3999")
        answer = self.ask(host=self.host_of(self.grant, 3999), Cookie=self.cookie(token))
        self.assertEqual((answer.status, answer.code), (502, "BAD_GATEWAY"))

    def test_a_connection_that_went_stale(self):
        grant = self.deployment.negotiate("stale")
        self.start_app(grant, 3000)
        link = urllib.parse.urlsplit(self.url("stale"))
        cookie = "parley_preview=" + urllib.parse.parse_qs(link.query)["token"][0]
        for _ in range(3):
            self.assertEqual(self.ask(host=link.netloc, Cookie=cookie).status, 200)
            self.deployment.shell(grant, "pkill -f preview_ap[p]; while pgrep -f preview_ap[p]; do sleep 0.05; done")
            self.start_app(grant, 3000)

    def test_a_paused_sandbox_goes_on(self):
        self.assertEqual(self.ask(target="/headers", Cookie=self.cookie()).status, 200)  # an idle connection is kept
        done = self.deployment.cli("pause", self.grant["sandbox"]["id"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.ask(target="/headers", Cookie=self.cookie()).status, 200)

    def test_large_bodies(self):
        data = os.urandom(1 << 20) * 24
        posted = self.ask("POST", "/echo", data, Authorization="Bearer " + self.token)
        self.assertEqual(posted.status, 200)
        self.assertTrue(posted.body == data)
        connection = http.client.HTTPConnection("127.0.0.1", self.link.port, timeout=60)
        connection.request("PUT", "/echo", iter([data[i:i + 100000] for i in range(0, 1 << 20, 100000)]), encode_chunked=True,
                           headers={"Host": self.link.netloc, "Authorization": "Bearer " + self.token, "Transfer-Encoding": "chunked"})
        reply = connection.getresponse()
        self.assertTrue(reply.read() == data[:1100000])
        connection.close()

    # ---- a browser ----

    def browse(self, *urls):
        program = shutil.which("chromium")
        if not program:
            raise unittest.SkipTest("there is no chromium here (scripts/install test)")
        profile = tempfile.mkdtemp(prefix="parley-chromium-")
        self.addCleanup(shutil.rmtree, profile, ignore_errors=True)
        browser = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--user-data-dir=" + profile, *urls],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=dict(os.environ, HOME=profile), start_new_session=True)
        self.addCleanup(browser.wait)
        self.addCleanup(lambda: os.killpg(browser.pid, signal.SIGKILL))
        return browser

    def read_in_sandbox(self, name):
        done = self.deployment.request("GET", f"{self.grant['endpoints']['http']}/files{APP}/{name}", token=self.grant["token"],
                                       record=False)
        return done.body.decode() if done.status == 200 else None

    def test_chromium(self):
        link = self.url("app")
        token = urllib.parse.parse_qs(urllib.parse.urlsplit(link).query)["token"][0]
        self.browse(link)
        report = until(lambda: self.read_in_sandbox("report.json"), 120)
        self.assertTrue(report, "the page told nothing")
        seen = json.loads(report)
        self.assertNotIn("failed", seen)
        self.assertNotIn(token, report)
        self.assertNotIn(token[-40:], report)
        self.assertNotIn("token=", report)
        self.assertEqual((seen["location"], seen["referrer"], seen["cookie"]), (self.origin() + "/", "", ""))
        self.assertEqual(seen["color"], "rgb(1, 2, 3)")  # the sub-resource was there
        self.assertEqual((seen["cookie_after"], seen["still"]), ("own=1", 200))
        self.assertEqual((seen["posted"], seen["socket"], seen["worker"]), ("from the page", "hello ä", "TypeError"))
        self.assertNotIn(token, self.read_in_sandbox("asked.jsonl"))

    def test_chromium_another_origin(self):
        """A page elsewhere, in a browser that has the cookie, can neither write nor listen, nor read."""
        link = self.url("app")
        told = threading.Event()
        page = EVIL.replace("PREVIEW", self.link.netloc).encode()

        class Evil(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def do_POST(self):
                self.server.seen = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                told.set()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.deployment.shell(self.grant, f"rm -f {APP}/report.json")
        self.browse(link + "#" + urllib.parse.quote(f"http://127.0.0.1:{server.server_address[1]}/", safe=""))
        self.assertTrue(told.wait(120), "the other page told nothing")
        self.assertIsNotNone(self.read_in_sandbox("report.json"))  # the browser has been there
        self.assertEqual(server.seen, {"read": "TypeError", "socket": "error", "posted": "sent"})
        self.assertNotIn("stolen", self.read_in_sandbox("asked.jsonl"))


EVIL = """<!doctype html><meta charset="utf-8"><script>
async function run() {
    const seen = {};
    const name = (why) => why.name;
    seen.read = await fetch("http://PREVIEW/headers?stolen", {credentials: "include"}).then((r) => r.text(), name);
    await fetch("http://PREVIEW/echo?stolen", {method: "POST", mode: "no-cors", credentials: "include", body: "x"}).catch(name);
    const form = document.createElement("form"), frame = document.createElement("iframe");
    frame.name = "there";
    document.body.append(form, frame);
    Object.assign(form, {action: "http://PREVIEW/echo?stolen", method: "post", target: "there"});
    const loaded = new Promise((resolve) => { frame.onload = resolve; });
    form.submit();
    await loaded;
    seen.posted = "sent";
    seen.socket = await new Promise((resolve) => {
        const socket = new WebSocket("ws://PREVIEW/socket?stolen");
        socket.onopen = () => resolve("open");
        socket.onerror = () => resolve("error");
    });
    return seen;
}
run().catch((why) => ({failed: String(why)})).then((seen) => fetch("/", {method: "POST", body: JSON.stringify(seen)}));
</script><body>"""


if __name__ == "__main__":
    unittest.main()
