"""Attacks on what OpenSandbox clients are served, from the client and from inside the sandbox: the front keeps its size and
its pid, and serves the next."""
import json
import os
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.execd import PATIENCE_S, PORT, Stream, until  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402

GROWTH_KB = 200 << 10  # the sanitizer's own share is large

# A program that finds the pipe from the driver above it to the front.
FORGE = r"""
import json, os, stat, sys
driver = sys.argv[1]
def is_channel(fd):
    with open(f'/proc/{driver}/fdinfo/{fd}') as info:
        flags = int(info.read().split('flags:')[1].split()[0], 8)
    return fd > 2 and flags & 3 == os.O_WRONLY and stat.S_ISFIFO(os.stat(f'/proc/{driver}/fd/{fd}').st_mode)
def forge(frame):
    channel = max(fd for fd in map(int, os.listdir(f'/proc/{driver}/fd')) if is_channel(fd))
    with open(f'/proc/{driver}/fd/{channel}', 'wb') as out:
        out.write(json.dumps(frame).encode() + b'\n')
"""


@needs_root
class Abuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(tls=False)
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("abuse", resources={"memory_mb": 512}, env={"SECRET": "hunter2"})
        cls.base = cls.grant["endpoints"]["http"] + PORT
        cls.deployment.shell(cls.grant, "true")

    def setUp(self):
        self.pids = self.deployment.pids("parley-sandboxd")
        self.before = self.peak()
        self.addCleanup(self.check_front)

    def front(self):
        return max(self.deployment.pids("parley-sandboxd"))

    def peak(self):
        """kB that the front has held at most since the last look; its marks are set back."""
        with open(f"/proc/{self.front()}/status") as status:
            peak = [int(line.split()[1]) for line in status if line.startswith("VmHWM")][0]
        with open(f"/proc/{self.front()}/clear_refs", "w") as marks:
            marks.write("5")
        return peak

    def check_front(self):
        self.assertEqual(self.deployment.pids("parley-sandboxd"), self.pids, self.deployment.logs())
        self.assertEqual(self.deployment.shell(self.grant, "echo fine"), "fine\n")

    def ask(self, method, path, body=None, token=None, headers=None):
        return self.deployment.request(method, self.base + path, body, timeout=PATIENCE_S,
                                       headers={"X-EXECD-ACCESS-TOKEN": token or self.grant["token"], **(headers or {})})

    def put(self, path, data):
        reply = self.deployment.request("PUT", self.grant["endpoints"]["http"] + "/files" + path, data,
                                        token=self.grant["token"])
        self.assertIn(reply.status, (200, 201), reply)

    # ---- from inside ----

    def test_a_frame_of_nothing_but_line_ends(self):
        """Each would be an event of sixty bytes: they are formed as the client takes them."""
        program = FORGE + r"""
forge({'stdout': {'run': '', 'text': 'begin' + '\n' * (7 << 20) + 'end'}})
"""
        self.put("/tmp/forge.py", program.encode())
        created = self.ask("POST", "/code/context", {"language": "bash"})
        self.assertEqual(created.status, 200, created)
        self.peak()
        stream = Stream(self, "/code", {"code": "python3 /tmp/forge.py $PPID; echo after", "context": {"id": created.json["id"]}})
        self.addCleanup(stream.close)
        self.assertEqual(stream.next()["type"], "init")
        while stream.next().get("text") != "begin":
            pass
        self.assertEqual(stream.next()["text"], "\n")
        stream.close()
        self.assertLess(self.peak() - self.before, GROWTH_KB)
        stream = Stream(self, "/code", {"code": "echo on", "context": {"id": created.json["id"]}})
        while stream.reply.status != 200:  # the first is at work still
            time.sleep(0.1)
            stream = Stream(self, "/code", {"code": "echo on", "context": {"id": created.json["id"]}})
        self.addCleanup(stream.close)
        self.assertIn("on", [event.get("text") for event in iter(stream.next, None)])

    def test_what_ignores_the_end_of_its_command(self):
        """TERM ends the command alone; what it started is killed when the grace is over."""
        line = "(trap '' TERM; exec sleep 4242) & (trap '' TERM; exec setsid sleep 4242) & wait"
        begun = self.ask("POST", "/command", {"command": line, "background": True})
        name = json.loads(begun.body.split(b"\n")[0])["text"]
        sleeping = "ps ax -o args | grep -c '^sleep 424[2]' || true"
        until(lambda: self.deployment.shell(self.grant, sleeping) == "2\n")
        self.assertEqual(self.ask("DELETE", "/command?id=" + name).status, 200)
        until(lambda: not self.ask("GET", "/command/status/" + name).json["running"])
        until(lambda: self.deployment.shell(self.grant, sleeping) == "0\n")

    # ---- from the client ----

    def test_a_timeout_past_all_clocks(self):
        session = self.ask("POST", "/session", {}).json["session_id"]
        for timeout in (18446744073710, 9007199254740991):
            reply = self.ask("POST", f"/session/{session}/run", {"command": "sleep 1 && echo slept", "timeout": timeout})
            self.assertIn(b'"text":"slept"', reply.body)
        self.ask("DELETE", "/session/" + session)

    def test_variables_are_not_told_to_a_token_of_a_folder(self):
        """Neither by an error that says what the path was, nor by the name of what is made of it."""
        self.deployment.shell(self.grant, "mkdir -p /tmp/shared")
        for scope in ("fs:rw@/tmp/shared", "fs:rw"):
            token = link(self.grant["token"], compact({"scope": scope}))
            form = (b'--b\r\nContent-Disposition: form-data; name="metadata"; filename="m"\r\n\r\n'
                    b'{"path":"/tmp/shared/up$SECRET"}\r\n--b\r\nContent-Disposition: form-data; name="file"; '
                    b'filename="f"\r\n\r\nx\r\n--b--\r\n')
            for method, path, body, kind in (
                    ("GET", "/files/info?path=$SECRET", None, None), ("GET", "/files/download?path=${SECRET}", None, None),
                    ("GET", "/files/search?path=/tmp/shared/$SECRET&pattern=*", None, None),
                    ("POST", "/directories", {"/tmp/shared/$SECRET": {}}, None),
                    ("POST", "/files/mv", [{"src": "/tmp/shared/a", "dest": "/tmp/shared/$SECRET"}], None),
                    ("POST", "/files/upload", form, "multipart/form-data; boundary=b")):
                reply = self.ask(method, path, body, token, {"Content-Type": kind} if kind else None)
                self.assertEqual(reply.status, 403, (path, reply))
                self.assertNotIn(b"hunter2", reply.body)
            self.assertNotIn(b"hunter2", self.ask("GET", "/directories/list?path=/tmp/shared", None, token).body)
        self.assertEqual(self.ask("GET", "/files/info?path=~", None, token).status, 200)
        self.assertEqual(self.ask("POST", "/directories", {"/tmp/shared/$SECRET": {}}).status, 200)

    def test_a_folder_s_name_forges_no_record(self):
        folder = "/tmp/x user=root timeout_ms=9 command=forged\nid=forged"
        self.assertEqual(self.ask("POST", "/directories", {folder: {}}).status, 200)
        self.assertEqual(self.ask("POST", "/command", {"command": "echo marked", "cwd": folder}).status, 200)
        session = self.ask("POST", "/session", {"cwd": folder}).json["session_id"]
        self.assertEqual(self.ask("POST", f"/session/{session}/run", {"command": "echo marked", "cwd": folder}).status, 200)
        self.ask("DELETE", "/session/" + session)
        sandbox = urllib.parse.urlsplit(self.base).path.split("/")[2]

        def records():
            found = self.deployment.request("GET", f"/audit?sandbox={sandbox}&limit=1000").json["records"]
            found = [one for one in found if "%20user%3Droot" in one["detail"] or "user=root" in one["detail"]]
            return found if {"mkdir", "exec", "code.start", "code.run"} <= {one["action"] for one in found} else None
        until(records)
        for record in records():
            self.assertNotIn(" user=root", record["detail"])
            self.assertNotIn("id=forged", record["detail"])

    def test_no_capability_reaches_an_app(self):
        """Also one that was not judged, as another carrier had one."""
        app = ("import http.server as h\nclass E(h.BaseHTTPRequestHandler):\n    def do_GET(self):\n"
               "        self.send_response(200); self.end_headers(); self.wfile.write(str(self.headers).encode())\n"
               "h.ThreadingHTTPServer(('127.0.0.1', 8123), E).serve_forever()\n")
        self.put("/tmp/app.py", app.encode())
        self.deployment.exec(self.grant, cmd="exec python3 /tmp/app.py", detach=True)
        narrow = link(self.grant["token"], compact({"scope": "port@8123"}))
        base = self.grant["endpoints"]["http"]
        look = {"X-EXECD-ACCESS-TOKEN": self.grant["token"]}
        until(lambda: self.deployment.request("GET", base + "/port/8123/", headers=look).status == 200)
        for name, value in (("Authorization", "Bearer " + narrow), ("Authorization", narrow), ("X-API-Key", narrow),
                            ("X-Access-Token", narrow), ("Referer", f"http://x/c/{narrow}/port/8123/"),
                            ("OPENSANDBOX-EGRESS-AUTH", narrow), ("OPEN-SANDBOX-API-KEY", "pk_x_y")):
            for path in ("/port/8123/", "/port/44772/proxy/8123/"):
                reply = self.deployment.request("GET", base + path, headers={**look, name: value})
                self.assertEqual(reply.status, 200, reply)
                self.assertNotIn(value.encode(), reply.body, name)
                self.assertNotIn(self.grant["token"].encode(), reply.body)
        reply = self.deployment.request("GET", base + "/port/8123/", headers={**look, "Authorization": "Basic YTpi"})
        self.assertIn(b"Basic YTpi", reply.body)  # the app's own


if __name__ == "__main__":
    unittest.main()
