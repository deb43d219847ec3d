"""Contexts over HTTP and `parley run --context`: variables that live on, order, display, interrupt, timeouts, loss that
says why, kill -9 of front and launcher, scopes, and code that tries to speak in its driver's place."""
import base64
import json
import os
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
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402

# Every descriptor that leads to the front: what the code of a context finds when it looks for it.
CHANNELS = """
import fcntl, os, stat
def channels():
    for fd in map(int, os.listdir('/proc/self/fd')):
        try:
            if fd > 2 and stat.S_ISFIFO(os.fstat(fd).st_mode) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                yield fd
        except OSError:
            pass
def forge(data):
    for fd in channels():
        os.set_blocking(fd, True)
        at = 0
        while at < len(data):
            at += os.write(fd, data[at:])
"""


class KernelTest(unittest.TestCase):
    resources = {"memory_mb": 512}
    thread = "kernels"

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate(cls.thread, resources=cls.resources)
        cls.names = 0

    def ask(self, method, path, body=None, token=None, **more):
        more.setdefault("timeout", 120)
        return self.deployment.request(method, self.grant["endpoints"]["http"] + path, body,
                                       token=token or self.grant["token"], **more)

    def new(self, language="python", **body):
        """A context of its own; its id."""
        type(self).names += 1
        name = body.pop("id", f"{language}-{self.names}".replace(":", "-"))
        reply = self.ask("POST", "/kernels", dict(body, language=language, id=name))
        self.assertIn(reply.status, (200, 201), (reply, self.deployment.logs()))
        self.assertEqual((reply.json["id"], reply.json["state"]), (name, "idle"), reply)
        return name

    def run_code(self, name, code, **body):
        """The one JSON."""
        reply = self.ask("POST", f"/kernels/{name}/run", dict(body, code=code, stream="none"))
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def value(self, name, code):
        done = self.run_code(name, code)
        self.assertEqual(done["status"], "ok", done)
        return done["result"]["data"]["text/plain"]

    def start(self, name, code, **body):
        """In the background: a list that gets the JSON, and the thread."""
        told = []
        thread = threading.Thread(target=lambda: told.append(self.run_code(name, code, **body)))
        thread.start()
        self.addCleanup(thread.join, 120)
        return told, thread

    def state(self, name):
        return self.ask("GET", f"/kernels/{name}").json

    def wait(self, check, what, seconds=60):
        until = time.monotonic() + seconds
        while not check():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.05)

    def wait_begun(self, name, marker):
        """The run under way has written the file."""
        self.wait(lambda: self.deployment.exec(self.grant, cmd=f"test -e {marker}").json["exit_code"] == 0,
                  f"{name} did not begin")


@needs_root
class Contexts(KernelTest):
    def test_variables_live_on_and_stay_apart(self):
        one, two = self.new(), self.new()
        self.assertEqual(self.run_code(one, "x = 41\ndef f(): return x + 1")["status"], "ok")
        self.assertEqual(self.value(one, "f()"), "42")
        apart = self.run_code(two, "x")
        self.assertEqual((apart["status"], apart["error"]["name"]), ("error", "NameError"))
        self.assertTrue(any("NameError" in line for line in apart["error"]["traceback"]))
        self.assertEqual(self.state(one)["execution_count"], 2)

    def test_events(self):
        name = self.new()
        reply = self.ask("POST", f"/kernels/{name}/run",
                         {"code": "import sys\nprint('a'); print('b', file=sys.stderr); print('c')\n6*7"})
        self.assertTrue(reply.headers["content-type"].startswith("application/x-ndjson"))
        events = [event for event in reply.events if event["type"] != "keepalive"]
        self.assertEqual(events[0]["type"], "started")
        self.assertEqual(events[0]["execution_count"], 1)
        text = {"stdout": "", "stderr": ""}
        for event in events:
            if event["type"] in text:
                text[event["type"]] += event["text"]
        self.assertEqual(text, {"stdout": "a\nc\n", "stderr": "b\n"})
        self.assertEqual(events[-2]["data"]["text/plain"], "42")
        self.assertEqual(events[-1], {"type": "done", "status": "ok", "execution_count": 1})
        sse = self.ask("POST", f"/kernels/{name}/run", {"code": "1"}, headers={"Accept": "text/event-stream"})
        self.assertTrue(sse.headers["content-type"].startswith("text/event-stream"))
        self.assertIn(b"event: done\ndata: ", sse.body)

    def test_silent_runs_do_not_count(self):
        name = self.new()
        self.assertIsNone(self.run_code(name, "y = 1\ny", silent=True)["result"])
        self.assertEqual(self.value(name, "y + 1"), "2")
        self.assertEqual(self.state(name)["execution_count"], 1)

    def test_display(self):
        name = self.new()
        picture = base64.b64encode(b"\x89PNG\r\n\x1a\nnot really").decode()
        done = self.run_code(name, f"""
class Rich:
    def _repr_html_(self): return '<b>x</b>'
    def _repr_png_(self): return __import__('base64').b64decode('{picture}')
try:
    display
except NameError:
    from IPython.display import display
display(Rich())
Rich()""")
        self.assertEqual(done["status"], "ok", done)
        for shown in (done["displays"][0], done["result"]):
            self.assertEqual(shown["data"]["text/html"], "<b>x</b>")
            self.assertEqual(base64.b64decode(shown["data"]["image/png"]), b"\x89PNG\r\n\x1a\nnot really")

    def test_a_figure_is_a_picture(self):
        """With matplotlib of the host's /usr and what it has in /etc."""
        done = self.run_code(self.new(), "import matplotlib.pyplot as p\n_ = p.plot([1, 2, 3])\np.show()")
        if done.get("error") and done["error"]["name"] == "ModuleNotFoundError":
            self.skipTest("no matplotlib in the host's /usr (python3-matplotlib)")
        pictures = [shown["data"]["image/png"] for shown in done["displays"] if "image/png" in shown["data"]]
        self.assertEqual(len(pictures), 1, done)
        self.assertTrue(base64.b64decode(pictures[0]).startswith(b"\x89PNG"))

    def test_large_results(self):
        """Over what is read on a loop; as events and as one JSON, and what is behind them stays behind."""
        name = self.new()
        code = ("import base64\nclass Big:\n    def _repr_png_(self): return bytes(3 << 20)\n"
                "try:\n    display\nexcept NameError:\n    from IPython.display import display\n"
                "display(Big()); print('behind')")
        done = self.run_code(name, code)
        self.assertEqual((done["status"], done["stdout"]), ("ok", "behind\n"), str(done)[:300])
        self.assertEqual(len(base64.b64decode(done["displays"][0]["data"]["image/png"])), 3 << 20)
        events = self.ask("POST", f"/kernels/{name}/run", {"code": code}).events
        self.assertEqual([event["type"] for event in events if event["type"] != "keepalive"],
                         ["started", "display", "stdout", "done"])
        self.assertEqual(len(base64.b64decode(events[1]["data"]["image/png"])), 3 << 20)
        sse = self.ask("POST", f"/kernels/{name}/run", {"code": code, "stream": "sse"}).body
        self.assertIn(b'event: display\ndata: {"type":"display","data":{', sse)

    def test_several_at_once(self):
        names = [self.new() for _ in range(3)]
        meet = "\n".join(["import os, time", "open(f'/tmp/meet-{os.getpid()}', 'w').close()",
                          "while sum(name.startswith('meet-') for name in os.listdir('/tmp')) < 3: time.sleep(0.01)", "1"])
        runs = [self.start(name, meet, timeout=60) for name in names]  # each waits for all the others
        for told, thread in runs:
            thread.join(120)
            self.assertEqual(told[0]["status"], "ok", told)

    def test_runs_of_one_keep_their_order(self):
        name = self.new()
        self.run_code(name, "seen = []")
        block, first = self.start(name, "import os, time\nopen('/tmp/blocks', 'w').close()\n"
                                        "while os.path.exists('/tmp/blocks'): time.sleep(0.01)\nseen.append(0)")
        self.wait_begun(name, "/tmp/blocks")
        rest = []
        for number in range(1, 4):
            rest.append(self.start(name, f"seen.append({number})"))
            self.wait(lambda n=number: self.state(name)["waiting"] == n, "it does not wait")
        self.assertEqual(self.state(name)["state"], "busy")
        self.deployment.shell(self.grant, "rm /tmp/blocks")
        for told, thread in [(block, first), *rest]:
            thread.join(60)
            self.assertEqual(told[0]["status"], "ok", told)
        self.assertEqual(self.value(name, "seen"), "[0, 1, 2, 3]")

    def test_created_once(self):
        name = self.new(cwd="/tmp", env={"COLOUR": "blue"})
        self.assertEqual(self.value(name, "import os\nos.getcwd(), os.environ['COLOUR'], os.environ['HOME']"),
                         "('/tmp', 'blue', '/workspace')")
        again = self.ask("POST", "/kernels", {"language": "py", "name": name})
        self.assertEqual((again.status, again.json["execution_count"]), (200, 1))
        self.assertEqual(self.ask("POST", "/kernels", {"language": "bash", "name": name}).code, "CONFLICT")
        shell = self.new("bash")
        again = self.ask("POST", "/kernels", {"name": shell})  # what it is in need not be said again
        self.assertEqual((again.status, again.json["language"]), (200, "bash"))
        listed = self.ask("GET", "/kernels").json["kernels"]
        self.assertIn(name, [kernel["id"] for kernel in listed])
        self.assertEqual(self.ask("DELETE", f"/kernels/{name}").status, 204)
        self.assertEqual(self.ask("GET", f"/kernels/{name}").status, 404)
        self.assertEqual(self.ask("POST", f"/kernels/{name}/run", {"code": "1"}).status, 404)
        self.assertNotEqual(self.value(self.new(id=name), "__import__('os').getcwd()"), "'/tmp'")

    def test_where_a_run_begins(self):
        for language, code in (("python", "import os\nos.getcwd()"), ("bash", "pwd")):
            name = self.new(language)
            done = self.run_code(name, code, cwd="/usr/bin")
            self.assertIn("/usr/bin", done["stdout"] + json.dumps(done["result"]), (language, done))
            done = self.run_code(name, code)
            self.assertIn("/usr/bin", done["stdout"] + json.dumps(done["result"]), (language, "it stays", done))
            done = self.run_code(name, code, cwd="/no 'such folder")
            self.assertEqual(done["status"], "error", done)

    def test_stderr_with_stdout(self):
        for language, code in (("python", "import sys\nprint(1); print(2, file=sys.stderr); print(3)"),
                               ("bash", "echo 1; echo 2 >&2; echo 3")):
            done = self.run_code(self.new(language), code, stderr="stdout")
            self.assertEqual((done["stdout"], done["stderr"]), ("1\n2\n3\n", ""), done)

    def test_exit_codes_of_a_shell(self):
        name = self.new("bash")
        for code, want in (("true", 0), ("(exit 7)", 7), ("nosuchcommand", 127), ("if then", 2)):
            self.assertEqual(self.run_code(name, code)["exit_code"], want, code)
        self.assertNotIn("exit_code", self.run_code(self.new(), "1"))

    def test_a_durable_shell(self):
        name = self.new("bash", durable=True)
        done = self.run_code(name, "x=5; cd /tmp; exit 3")
        self.assertEqual((done["exit_code"], done["stderr"]), (3, ""), done)
        self.assertEqual(self.run_code(name, "echo $x $PWD")["stdout"], "5 /tmp\n")
        done = self.run_code(name, "trap '' INT; while :; do :; done", timeout=0.2)
        self.assertEqual(done["status"], "timeout", done)
        self.assertEqual(self.run_code(name, "echo alive")["stdout"], "alive\n")

    def test_a_run_that_does_not_wait(self):
        name = self.new()
        told, thread = self.start(name, "import time\nopen('/tmp/at-once', 'w').close()\ntime.sleep(60)")
        self.wait_begun(name, "/tmp/at-once")
        refused = self.ask("POST", f"/kernels/{name}/run", {"code": "1", "queue": False})
        self.assertEqual((refused.status, refused.json["error"]["code"]), (409, "CONFLICT"), refused)
        self.ask("POST", f"/kernels/{name}/interrupt")
        thread.join(60)
        self.assertEqual(told[0]["status"], "interrupted")
        self.assertEqual(self.run_code(name, "6 * 7", queue=False)["result"]["data"]["text/plain"], "42")

    def test_a_run_that_restarts_what_was_lost(self):
        name = self.new("bash")
        self.assertEqual(self.run_code(name, "x=5; kill -9 $$")["status"], "error")
        self.wait(lambda: self.state(name)["state"] == "lost", "not lost")
        self.assertEqual(self.ask("POST", f"/kernels/{name}/run", {"code": "true"}).status, 410)
        done = self.run_code(name, "echo anew $x", restart=True)
        self.assertEqual((done["status"], done["stdout"]), ("ok", "anew\n"), done)
        self.assertEqual(self.state(name)["state"], "idle")

    def test_stdin_is_refused(self):
        done = self.run_code(self.new(), "input('name? ')")
        self.assertEqual((done["status"], done["error"]["name"]), ("error", "StdinNotSupported"))

    def test_other_languages(self):
        for language, code, again, wanted in (("bash", "x=4; f() { echo $((x + $1)); }", "f 3", "7\n"),
                                              ("javascript", "let x = 4; const f = n => x + n;", "console.log(f(3))", "7\n"),
                                              ("typescript", "const f = (n: number): number => n + 4;", "console.log(f(3))",
                                               "7\n")):
            with self.subTest(language=language):
                name = self.new(language)
                self.assertEqual(self.run_code(name, code)["status"], "ok")
                self.assertEqual(self.run_code(name, again)["stdout"], wanted)
                failed = self.run_code(name, "false" if language == "bash" else "throw new TypeError('no')")
                self.assertEqual(failed["status"], "error", failed)
                self.assertTrue(failed["error"]["name"])

    def test_which_there_are(self):
        specs = self.ask("GET", "/kernelspecs").json["kernelspecs"]
        languages = [spec["language"] for spec in specs]
        self.assertTrue({"python", "bash", "javascript", "typescript"} <= set(languages), languages)
        refused = self.ask("POST", "/kernels", {"language": "cobol"})
        self.assertEqual((refused.status, refused.code), (400, "INVALID_REQUEST"))
        self.assertIn("python", refused.json["error"]["message"])
        missing = self.ask("POST", "/kernels", {"language": "jupyter:no-such-spec"})
        self.assertEqual(missing.code, "INVALID_REQUEST", missing)
        self.assertNotIn("no-such-spec", [kernel["language"] for kernel in self.ask("GET", "/kernels").json["kernels"]])

    def test_what_is_malformed(self):
        name = self.new()
        for path, body in (("/kernels", {"language": 1}), ("/kernels", {"id": "a/b"}), ("/kernels", {"id": "x" * 49}),
                           ("/kernels", {"id": "a", "name": "a"}), ("/kernels", {"cwd": "tmp"}), ("/kernels", {"env": {"A": 1}}),
                           ("/kernels", {"user": "root"}), ("/kernels", {"timeout": 601}), (f"/kernels/{name}/run", {}),
                           (f"/kernels/{name}/run", {"code": 1}), (f"/kernels/{name}/run", {"code": "1", "timeout": 0}),
                           (f"/kernels/{name}/run", {"code": "1", "stream": "xml"}), (f"/kernels/{name}/run", {"code": "1", "x": 1}),
                           (f"/kernels/{name}/restart", {"timeout": "1"})):
            self.assertEqual(self.ask("POST", path, body).code, "INVALID_REQUEST", (path, body))
        self.assertEqual(self.ask("POST", f"/kernels/{name}/run", {"code": "#" + "x" * (2 << 20)}).status, 413)
        self.assertEqual(self.value(name, "1"), "1")
        self.assertEqual(self.ask("POST", "/kernels", {"cwd": "/no/such"}).code, "INVALID_REQUEST")

    def test_variables_that_a_start_looks_at(self):
        """What the process that contexts are forked from has already looked at is looked at anew."""
        self.deployment.shell(self.grant, "mkdir -p /tmp/preloaded && cp -L $(ldd /bin/ls | sed -n 's/.*=> \\(.*libselinux[^ ]*\\).*/\\1/p') "
                                          "/tmp/preloaded/libforkedornot.so")
        name = self.new(env={"LD_LIBRARY_PATH": "/tmp/preloaded"})
        self.assertEqual(self.run_code(name, "import ctypes; n = ctypes.CDLL('libforkedornot.so')")["status"], "ok")

    def test_no_name_that_no_path_reaches(self):
        for body in ({"id": "."}, {"name": ".."}):
            self.assertEqual(self.ask("POST", "/kernels", body).status, 400, body)
            self.assertEqual(self.deployment.exec(self.grant, cmd="true", id=list(body.values())[0]).status, 400, body)

    def test_a_context_is_a_command_and_no_client_writes_to_it(self):
        name = self.new()
        process = self.state(name)["process"]
        self.assertEqual(self.ask("GET", f"/processes/{process}").json["state"], "running")
        refused = self.ask("POST", f"/processes/{process}/stdin", b'{"exit":{}}\n')
        self.assertEqual(refused.code, "CONFLICT", refused)
        self.assertEqual(self.ask("POST", "/exec", {"cmd": "true", "id": "kernel.mine.1"}).code, "INVALID_REQUEST")
        self.assertEqual(self.value(name, "1"), "1")
        self.assertEqual(self.ask("DELETE", f"/processes/{process}").status, 204)
        self.wait(lambda: self.state(name)["state"] == "lost", "not lost")
        self.assertIn("signal 9", self.state(name)["reason"])

    def test_too_many_wait(self):
        name = self.new()
        told, blocked = self.start(name, "import time\ntime.sleep(600)")
        self.wait(lambda: self.state(name)["state"] == "busy", "not busy")
        waiting = [self.start(name, "1") for _ in range(32)]
        self.wait(lambda: self.state(name)["waiting"] == 32, "not all wait")
        refused = self.ask("POST", f"/kernels/{name}/run", {"code": "1"})
        self.assertEqual((refused.status, refused.code), (429, "RATE_LIMITED"))
        self.assertEqual(self.ask("DELETE", f"/kernels/{name}").status, 204)
        for told, thread in [(told, blocked), *waiting]:
            thread.join(60)
            self.assertEqual((told[0]["status"], told[0]["reason"]), ("lost", "it was removed"))


@needs_root
class Ends(KernelTest):
    def test_interrupt(self):
        name = self.new()
        told, thread = self.start(name, "kept = 1\nopen('/tmp/int', 'w').close()\nimport time\ntime.sleep(600)")
        self.wait_begun(name, "/tmp/int")
        self.assertEqual(self.ask("POST", f"/kernels/{name}/interrupt").status, 200)
        thread.join(60)
        self.assertEqual((told[0]["status"], told[0]["error"]["name"]), ("interrupted", "KeyboardInterrupt"))
        self.assertEqual(self.value(name, "kept"), "1")
        self.assertEqual(self.ask("POST", f"/kernels/{name}/interrupt").json["state"], "idle")  # harmless
        self.assertEqual(self.value(name, "kept"), "1")

    def test_an_interrupt_that_comes_while_the_driver_is_at_work(self):
        """At the very end of a write nobody would look whether one is kept, and the code sleeps."""
        name = self.new()
        done = self.run_code(name, "import os, signal, sys, time\n"
                                   "def trace(frame, event, arg):\n"
                                   "    if event == 'return' and frame.f_code.co_name == 'write' and 'kind' not in frame.f_locals:\n"
                                   "        sys.setprofile(None)\n"
                                   "        os.kill(os.getpid(), signal.SIGINT)\n"
                                   "sys.setprofile(trace)\n"
                                   "n = sys.stdout.write('x')\n"
                                   "time.sleep(600)", timeout=60)
        self.assertEqual(done["status"], "interrupted", done)

    def test_interrupt_ends_one_and_what_waits_is_run(self):
        name = self.new()
        told, first = self.start(name, "open('/tmp/int2', 'w').close()\nimport time\ntime.sleep(600)")
        self.wait_begun(name, "/tmp/int2")
        after, second = self.start(name, "'run'")
        self.wait(lambda: self.state(name)["waiting"] == 1, "does not wait")
        self.ask("POST", f"/kernels/{name}/interrupt")
        second.join(60), first.join(60)
        self.assertEqual((told[0]["status"], after[0]["status"]), ("interrupted", "ok"))

    def test_a_restart_in_its_own_time(self):
        """Of a context that lives: the new interpreter waits for longer than the restart may take, then goes on."""
        self.deployment.exec(self.grant, cmd="mkdir -p /tmp/slow; printf 'import os, time\\nwhile os.path.exists("
                             "\"/tmp/slow/on\"): time.sleep(0.05)\\n' > /tmp/slow/sitecustomize.py")
        name = self.new(env={"PYTHONPATH": "/tmp/slow"})
        self.deployment.exec(self.grant, cmd="touch /tmp/slow/on; (sleep 8; rm /tmp/slow/on) >/dev/null 2>&1 &")
        reply = self.ask("POST", f"/kernels/{name}/restart", {"timeout": 0.5})
        self.assertEqual((reply.status, reply.json["error"]["code"]), (504, "TIMEOUT"), reply)
        self.wait(lambda: self.state(name)["state"] == "lost", "is not lost")
        self.deployment.exec(self.grant, cmd="rm -f /tmp/slow/on")
        self.assertEqual(self.ask("POST", f"/kernels/{name}/restart", {}).json["state"], "idle")

    def test_restart(self):
        name = self.new(env={"KEPT": "yes"}, cwd="/tmp")
        self.run_code(name, "x = 1")
        told, thread = self.start(name, "open('/tmp/restarts', 'w').close()\nimport time\ntime.sleep(600)")
        self.wait_begun(name, "/tmp/restarts")
        restarted = self.ask("POST", f"/kernels/{name}/restart", {})
        self.assertEqual((restarted.status, restarted.json["state"], restarted.json["execution_count"]), (200, "idle", 0))
        thread.join(60)
        self.assertEqual((told[0]["status"], told[0]["reason"]), ("lost", "it was restarted"))
        self.assertEqual(self.run_code(name, "x")["error"]["name"], "NameError")
        self.assertEqual(self.value(name, "import os\nos.environ['KEPT'], os.getcwd()"), "('yes', '/tmp')")

    def test_timeout(self):
        name = self.new()
        self.run_code(name, "kept = 1")
        done = self.run_code(name, "import time\ntime.sleep(600)", timeout=0.5)
        self.assertEqual(done["status"], "timeout", done)
        self.assertEqual(self.value(name, "kept"), "1")
        self.assertEqual(self.run_code(name, "2", timeout=30)["status"], "ok")

    def test_a_timeout_that_is_not_heeded(self):
        name = self.new()
        done = self.run_code(name, "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                                   "while True:\n    try: time.sleep(600)\n    except BaseException: pass", timeout=0.5)
        self.assertEqual(done["status"], "lost", done)
        self.assertIn("timeout", done["reason"])
        gone = self.ask("POST", f"/kernels/{name}/run", {"code": "1"})
        self.assertEqual((gone.status, gone.code), (410, "GONE"))
        self.assertIn("timeout", gone.json["error"]["message"])
        self.assertEqual(self.ask("POST", "/kernels", {"id": name}).status, 410)
        self.assertEqual(self.ask("POST", f"/kernels/{name}/restart").status, 200)
        self.assertEqual(self.value(name, "1"), "1")

    def test_the_interpreter_ends(self):
        name = self.new()
        done = self.run_code(name, "import os\nprint('last words', flush=True)\nos._exit(3)")
        self.assertEqual((done["status"], done["oom"]), ("lost", False), done)
        self.assertIn("exit status 3", done["reason"])
        self.assertEqual(self.state(name)["state"], "lost")
        bash = self.new("bash")
        done = self.run_code(bash, "exit 4")
        self.assertTrue(done["status"] == "lost" or done["error"]["name"] == "Exit", done)
        self.wait(lambda: self.state(bash)["state"] == "lost", "not lost")
        self.assertIn("exit status 4", self.state(bash)["reason"])

    def test_a_client_that_leaves(self):
        name = self.new()
        url = urllib.parse.urlsplit(self.grant["endpoints"]["http"])
        body = json.dumps({"code": "import time\nprint('on', flush=True)\ntime.sleep(1)\nopen('/tmp/left', 'w').close()\nz = 5"})
        with socket.create_connection((url.hostname, url.port)) as client:
            client.sendall(f"POST {url.path}/kernels/{name}/run HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                           f"{self.grant['token']}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            seen = b""
            while b'"on' not in seen:
                seen += client.recv(4096)
        self.wait_begun(name, "/tmp/left")
        self.assertEqual(self.value(name, "z"), "5")

    def test_a_reader_that_stops_keeps_nobody_else_waiting(self):
        slow, fast = self.new(), self.new()
        url = urllib.parse.urlsplit(self.grant["endpoints"]["http"])
        body = json.dumps({"code": "for i in range(10000): print('x' * 30000)\nopen('/tmp/all', 'w').close()"})
        with socket.create_connection((url.hostname, url.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(f"POST {url.path}/kernels/{slow}/run HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                           f"{self.grant['token']}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            self.wait(lambda: self.state(slow)["state"] == "busy", "not busy")
            before = self.front_kib()
            for number in range(50):
                self.assertEqual(self.value(fast, str(number)), str(number))
            time.sleep(1)  # for what it would take in
            self.assertLess(self.front_kib() - before, 120 * 1024)  # of 300 MB, and sanitizers free late
            self.assertEqual(self.state(slow)["state"], "busy")  # it waits for us
            self.assertEqual(self.deployment.exec(self.grant, cmd="test -e /tmp/all").json["exit_code"], 1)
        self.wait_begun(slow, "/tmp/all")  # nobody listens: it goes on
        self.assertEqual(self.value(slow, "1"), "1")

    def front_kib(self):
        """Memory of the launcher and its front."""
        total = 0
        for pid in self.deployment.pids("parley-sandboxd"):
            with open(f"/proc/{pid}/status") as status:
                total += sum(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
        return total

    def post_and_read_nothing(self, name, **body):
        """A run whose client takes not a byte of the reply; its socket."""
        url, text = urllib.parse.urlsplit(self.grant["endpoints"]["http"]), json.dumps(body)
        client = socket.socket()
        self.addCleanup(client.close)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((url.hostname, url.port))
        client.sendall((f"POST {url.path}/kernels/{name}/run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        f"Authorization: Bearer {self.grant['token']}\r\nContent-Length: {len(text)}\r\n\r\n{text}").encode())
        return client

    def test_a_reader_that_stops_costs_no_variables(self):
        """Neither a timeout nor an interrupt has to wait for room at a client that takes nothing."""
        for timeout in (2, 600):
            name = self.new()
            self.run_code(name, "kept = 5")
            marker = f"/tmp/stopped-{name}"
            self.post_and_read_nothing(name, timeout=timeout,
                                       code=f"open('{marker}', 'w').close()\nwhile True: print('x' * 1000)")
            self.wait_begun(name, marker)
            if timeout > 2:
                self.assertEqual(self.ask("POST", f"/kernels/{name}/interrupt").status, 200)
            self.wait(lambda: self.state(name)["state"] != "busy", "it heeds nothing")
            self.assertEqual(self.value(name, "kept"), "5", self.state(name))

    def test_what_no_frame_holds_is_left_out(self):
        name = self.new()
        show = "from IPython.display import display\n"
        for code in ("display({'a/%d' % i: '1' for i in range(100)}, raw=True)", "display(1, display_id='x' * 17_000_000)",
                     "display({'t' * 2_000_000: '1'}, raw=True)",
                     "raise Exception('\\n'.join('\\x02' * 700_000 for _ in range(8)))", "raise Exception('\\x01' * 3_000_000)"):
            self.assertIn(self.run_code(name, show + code)["status"], ("ok", "error"), code)
        self.assertEqual(self.value(name, "1"), "1")
        node = self.new("javascript")
        for code in ("display(Object.fromEntries(Array.from({length: 100}, (_, i) => ['a/x' + i, '1'])))",
                     "display(1, {displayId: 'x'.repeat(17e6)})", "display(1, {metadata: 5})", "display(1, {metadata: null})",
                     "display({'a/b': '\u20ac'.repeat(6e6)})", "({'\\ud800': '\\\\ud800'})"):
            self.assertEqual(self.run_code(node, code)["status"], "ok", code)
        self.assertEqual(self.value(node, "1"), "1")

    def test_a_timeout_during_a_pause(self):
        """What is frozen can heed no interrupt: it is not killed for that."""
        name = self.new()
        marker = f"/tmp/pausing-{name}"
        told, thread = self.start(name, f"kept = 3\nopen('{marker}', 'w').close()\nimport time\ntime.sleep(600)", timeout=2)
        self.wait_begun(name, marker)
        sandbox = self.grant["sandbox"]["id"]
        self.assertEqual(self.deployment.request("POST", f"/sandboxes/{sandbox}/pause").status, 200)
        time.sleep(6)  # the timeout, and the 2 s to its kill
        self.deployment.shell(self.grant, "true")
        thread.join(60)
        self.assertEqual(told[0]["status"], "timeout", told)
        self.assertEqual(self.value(name, "kept"), "3")

    def test_pause(self):
        name = self.new()
        self.run_code(name, "x = 9")
        sandbox = self.grant["sandbox"]["id"]
        self.assertEqual(self.deployment.request("POST", f"/sandboxes/{sandbox}/pause").status, 200)
        self.assertEqual(self.state(name)["state"], "idle")  # looking wakes nothing
        self.assertEqual(self.ask("GET", "/info").json["sandbox"]["state"], "paused")
        self.assertEqual(self.value(name, "x"), "9")
        self.assertEqual(self.ask("GET", "/info").json["sandbox"]["state"], "active")


@needs_root
class OutOfMemory(KernelTest):
    resources = {"memory_mb": 192}
    thread = "kernels-oom"

    def test_it_says_so(self):
        name, other = self.new(), self.new("bash")
        self.run_code(other, "kept=1")
        done = self.run_code(name, "data = []\nwhile True: data.append(bytearray(8 << 20))", timeout=100)
        self.assertEqual((done["status"], done["oom"]), ("lost", True), done)
        self.assertIn("out of memory", done["reason"])
        gone = self.ask("POST", f"/kernels/{name}/run", {"code": "1"})
        self.assertEqual(gone.status, 410)
        self.assertIn("out of memory", gone.json["error"]["message"])
        self.assertEqual(self.ask("POST", f"/kernels/{name}/restart").status, 200)
        self.assertEqual(self.value(name, "1"), "1")


@needs_root
class Scopes(KernelTest):
    def test_who_may(self):
        self.new(id="mine")
        for scope, status in (("code", 200), ("process", 200), ("fs:ro", 403), ("shell:ro", 403), ("port", 403)):
            token = link(self.grant["token"], compact({"scope": scope}))
            for method, path, body in (("GET", "/kernels", None), ("GET", "/kernels/mine", None),
                                       ("POST", "/kernels/mine/run", {"code": "1", "stream": "none"}),
                                       ("POST", "/kernels/mine/interrupt", None), ("GET", "/kernelspecs", None)):
                reply = self.ask(method, path, body, token=token)
                self.assertEqual(reply.status, status, (scope, method, path, reply))
        token = link(self.grant["token"], compact({"scope": "code"}))
        self.assertEqual(self.ask("POST", "/exec", {"cmd": "true"}, token=token).status, 403)
        self.assertEqual(self.ask("GET", "/processes", token=token).status, 403)

    def test_what_was_done_is_known(self):
        self.new(id="told")
        self.run_code("told", "secret = 'seen'")
        self.ask("DELETE", "/kernels/told")

        def records():
            reply = self.deployment.request("GET", f"/audit?sandbox={self.grant['sandbox']['id']}&limit=500")
            return [(record["action"], record.get("detail", "")) for record in reply.json["records"]]
        self.wait(lambda: any(action == "code.end" and "kernel.told.1" in detail for action, detail in records()),
                  "no code.end")
        told = [(action, detail) for action, detail in records() if "told" in detail]
        actions = [action for action, _ in told]
        self.assertEqual({"code.start", "code.run", "code.remove", "code.end"}, set(actions), told)
        self.assertIn("code=secret = 'seen'", dict(told)["code.run"])
        self.assertNotIn("stdin", actions)


@needs_root
class Hostile(KernelTest):
    """The code of a context is its driver's equal: it finds the descriptor that leads to the front and writes to it."""

    def attack(self, code):
        name = self.new()
        self.assertEqual(self.run_code(name, CHANNELS)["status"], "ok")
        self.assertNotEqual(self.value(name, "len(list(channels()))"), "0", "the attack finds nothing to attack")
        return name, self.run_code(name, code, timeout=60)

    def check_others(self):
        self.assertEqual(self.value(self.new(), "6 * 7"), "42")
        self.assertEqual(self.deployment.shell(self.grant, "echo fine"), "fine\n")

    def test_garbage(self):
        name, done = self.attack(r"forge(b'garbage\n'); import time; time.sleep(600)")
        self.assertEqual(done["status"], "lost", done)
        self.assertIn("no frame", done["reason"])
        self.assertEqual(self.ask("POST", f"/kernels/{name}/restart").status, 200)
        self.assertEqual(self.value(name, "1"), "1")
        self.check_others()

    def test_a_line_without_an_end(self):
        _, done = self.attack("forge(b'x' * (20 << 20)); import time; time.sleep(600)")
        self.assertEqual(done["status"], "lost", done)
        self.check_others()

    def test_other_runs(self):
        other = self.new()
        others, thread = self.start(other, "open('/tmp/other', 'w').close()\nimport time\ntime.sleep(600)")
        self.wait_begun(other, "/tmp/other")
        lines = "".join(json.dumps(frame) + "\n" for frame in (
            {"stdout": {"run": "run_forged-0", "text": "forged"}}, {"done": {"run": "run_forged-0", "status": "ok"}},
            {"started": {"run": "run_forged-1", "count": 10 ** 9}}, {"ready": {"version": "x" * 10000}},
            {"done": {"run": "", "status": "ok"}}, {"unknown": {"a": 1}}))
        name, done = self.attack(f"forge({lines.encode()!r}); 'mine'")
        self.assertEqual(done["status"], "ok", done)
        told = done["stdout"]  # what went into its own stdout is there as it is
        for line in lines.splitlines():
            told = told.replace(line, "")
        self.assertNotIn("forged", told)
        self.assertEqual(self.state(other)["state"], "busy")
        self.assertEqual(others, [])
        self.assertEqual(self.value(name, "2"), "2")
        self.ask("DELETE", f"/kernels/{other}")
        thread.join(60)

    def test_deep_and_many_values(self):
        many = "b'{\"display\":{\"run\":\"\",\"data\":{\"application/json\":[' + b'{},' * 3000000 + b'{}]}}}\\n'"
        deep = "b'{\"display\":{\"run\":\"\",\"data\":{\"a\":' + b'[' * 5000000 + b'}}}\\n'"
        for line in (many, deep):
            _, done = self.attack(f"forge({line}); 'on'")
            self.assertEqual(done["status"], "ok", done)  # left out, and said so
            self.assertIn("left out", done["stderr"])
        self.check_others()

    def test_it_stops_reading_what_it_is_sent(self):
        name = self.new()
        self.assertEqual(self.run_code(name, CHANNELS)["status"], "ok")
        done = self.run_code(name, """
for fd in map(int, os.listdir('/proc/self/fd')):
    try:
        if fd > 2: os.close(fd)
    except OSError: pass
import time; time.sleep(1)""", timeout=20)
        self.assertIn(done["status"], ("lost", "ok", "error"), done)
        self.wait(lambda: self.state(name)["state"] == "lost", "not lost")
        self.check_others()


@needs_root
class Faults(KernelTest):
    def restart_all(self, launcher):
        """kill -9 of the front, or of launcher and front; back when it serves again."""
        pids = self.deployment.pids("parley-sandboxd")
        fronts = [pid for pid in pids if os.stat(f"/proc/{pid}").st_uid != 0]
        for pid in pids if launcher else fronts:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.wait(lambda: not any(os.path.exists(f"/proc/{pid}") and pid in self.deployment.pids("parley-sandboxd")
                                  for pid in fronts), "the front lives on")
        self.deployment.wait_ready(40)

    def ask_again(self, method, path, body=None):
        """While the node comes back it may say so."""
        until = time.monotonic() + 40
        while True:
            try:
                reply = self.ask(method, path, body)
                if reply.status not in (423, 503):
                    return reply
            except OSError:
                pass
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)

    def check_kept(self, launcher):
        name, bash = self.new(), self.new("bash")
        self.run_code(name, "x = 41")
        self.run_code(bash, "y=7")
        self.restart_all(launcher)
        kernels = {kernel["id"]: kernel for kernel in self.ask_again("GET", "/kernels").json["kernels"]}
        self.assertEqual((kernels[name]["language"], kernels[name]["state"], kernels[name]["execution_count"]),
                         ("python", "idle", 1), kernels)
        self.assertEqual(kernels[bash]["language"], "bash")
        self.assertEqual(self.value(name, "x + 1"), "42")
        self.assertEqual(self.run_code(bash, "echo $y")["stdout"], "7\n")
        self.assertEqual(self.ask("POST", "/kernels", {"language": "python", "id": name}).status, 200)

    def test_the_front_is_killed_between_runs(self):
        self.check_kept(False)

    def test_the_launcher_is_killed_between_runs(self):
        self.check_kept(True)

    def check_during(self, launcher):
        name = self.new()
        marker, go = f"/tmp/during-{launcher}", f"/tmp/go-{launcher}"

        def run():
            try:
                self.ask("POST", f"/kernels/{name}/run", {"code": f"import os, time\nx = 1\nprint('y' * 100000)\n"
                                                          f"open('{marker}', 'w').close()\n"
                                                          f"while not os.path.exists('{go}'): time.sleep(0.01)\nx = 2"})
            except OSError:
                pass  # its front was killed
            except Exception:  # a reply that ends early
                pass
        thread = threading.Thread(target=run)
        thread.start()
        self.wait_begun(name, marker)
        self.restart_all(launcher)
        thread.join(60)
        self.wait(lambda: self.ask_again("GET", f"/kernels/{name}").json["state"] == "busy", "the run is not seen")
        told, waits = self.start(name, "x")  # behind it
        self.wait(lambda: self.deployment.exec(self.grant, cmd=f"touch {go}").json["exit_code"] == 0, "no go")
        waits.join(60)
        self.assertEqual((told[0]["status"], told[0]["result"]["data"]["text/plain"]), ("ok", "2"), told)
        self.wait(lambda: self.state(name)["state"] == "idle", "its end is not seen")

    def test_the_front_is_killed_during_a_run(self):
        self.check_during(False)

    def test_the_launcher_is_killed_during_a_run(self):
        self.check_during(True)

    def test_a_timeout_outlives_its_front(self):
        name = self.new()

        def run():
            try:
                self.ask("POST", f"/kernels/{name}/run", {"code": "kept = 3\nopen('/tmp/t-o', 'w').close()\nimport time\n"
                                                          "time.sleep(600)", "timeout": 5})
            except Exception:
                pass
        thread = threading.Thread(target=run)
        thread.start()
        self.wait_begun(name, "/tmp/t-o")
        self.restart_all(False)
        thread.join(60)
        self.wait(lambda: self.ask_again("GET", f"/kernels/{name}").json["state"] == "idle", "not interrupted")
        self.assertEqual(self.value(name, "kept"), "3")

    def test_the_timeout_of_an_earlier_front_is_of_its_run_alone(self):
        name = self.new()
        marker = f"/tmp/first-{name}"
        threading.Thread(target=lambda: self.quietly("POST", f"/kernels/{name}/run", {
            "code": f"kept = 3\nopen('{marker}', 'w').close()\nimport time\ntime.sleep(600)", "timeout": 4})).start()
        self.wait_begun(name, marker)
        self.restart_all(False)
        self.wait(lambda: self.ask_again("GET", f"/kernels/{name}").json["state"] == "busy", "the run is not seen")
        done = self.run_code(name, "import time\nfor _ in range(40): time.sleep(0.1)\nkept")
        self.assertEqual((done["status"], done["result"]["data"]["text/plain"]), ("ok", "3"), done)

    def quietly(self, *words):
        try:
            self.ask(*words)
        except Exception:  # its front was killed
            pass

    def test_one_that_is_lost_or_gone_stays_so(self):
        lost, gone = self.new(), self.new()
        self.run_code(lost, "import os; os._exit(9)")
        self.assertEqual(self.ask("DELETE", f"/kernels/{gone}").status, 204)
        self.restart_all(False)
        kernels = {kernel["id"]: kernel for kernel in self.ask_again("GET", "/kernels").json["kernels"]}
        self.assertNotIn(gone, kernels)
        self.assertEqual(kernels[lost]["state"], "lost")
        self.assertIn("exit status 9", kernels[lost]["reason"])
        self.assertEqual(self.ask("POST", f"/kernels/{lost}/restart").status, 200)
        self.assertEqual(self.value(lost, "1"), "1")

    def test_the_sandbox_ends(self):
        grant = self.deployment.negotiate("kernels-end")
        mine, self.grant = self.grant, grant
        try:
            name = self.new()
            told = []
            thread = threading.Thread(target=lambda: told.append(self.ask(
                "POST", f"/kernels/{name}/run", {"code": "open('/tmp/b', 'w').close()\nimport time\ntime.sleep(600)"})))
            thread.start()
            self.wait_begun(name, "/tmp/b")
            self.assertEqual(self.deployment.request("DELETE", "/threads/kernels-end/sandbox").status, 204)
            thread.join(60)
            last = told[0].events[-1]
            self.assertTrue(last["type"] == "done" and last["status"] == "lost" or last.get("code") == "GONE", last)
        finally:
            self.grant = mine


@needs_root
class CommandLine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def parley(self, *arguments, status=0, **more):
        done = self.deployment.cli(*arguments, **more)
        self.assertEqual(done.returncode, status, (arguments, done.stdout, done.stderr))
        return done

    def test_a_context(self):
        self.assertEqual(self.parley("run", "--context", "a", "-c", "x = 6\nprint('hi')").stdout, "hi\n")
        self.assertEqual(self.parley("run", "--lang", "python", "--context", "a", "x * 7").stdout, "42\n")
        self.assertEqual(self.parley("run", "--context", "a", "-", input="print(x)\nx + 1\n").stdout, "6\n7\n")
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write("x + 2\n")
            file.flush()
            self.assertEqual(self.parley("run", "--context", "a", "--file", file.name).stdout, "8\n")
            self.assertIn("--file", self.parley("run", "--context", "a", file.name, status=2).stderr)
        failed = self.parley("run", "--context", "a", "1/0", status=1)
        self.assertIn("ZeroDivisionError", failed.stderr)
        self.assertEqual(failed.stdout, "")
        told = json.loads(self.parley("run", "--context", "a", "--json", "print(1); x").stdout)
        self.assertEqual((told["stdout"], told["result"]["data"]["text/plain"], told["status"]), ("1\n", "6", "ok"))
        self.parley("run", "--context", "a", "--timeout", "0.5", "import time; time.sleep(60)", status=124)
        for words in (["run", "--context", "a"], ["run", "--context", "a/b", "1"], ["run", "--context", "a", "1", "2"],
                      ["run", "--context", "a", "--file", "x", "1"], ["run", "--context", "a", "-d", "1"],
                      ["run", "--file", "x"], ["kernels", "what"], ["kernels", "rm"], ["run", "--context", "..", "1"]):
            self.parley(*words, status=2)

    def test_one_that_is_lost(self):
        lost = self.parley("run", "--context", "l", "import os; os._exit(1)", status=1)
        self.assertIn("exit status 1", lost.stderr)
        self.assertIn("parley kernels restart l", lost.stderr)
        self.assertIn("parley kernels restart l", self.parley("run", "--context", "l", "1", status=125).stderr)
        self.assertIn("lost", self.parley("kernels").stdout)
        self.assertEqual(self.parley("kernels", "restart", "l").stdout, "l\n")
        self.assertEqual(self.parley("run", "--context", "l", "1").stdout, "1\n")

    def test_their_list(self):
        self.assertEqual(self.parley("kernels", "new", "b", "--lang", "bash").stdout, "b\n")
        self.assertEqual(self.parley("run", "--lang", "bash", "--context", "b", "echo $((6*7))").stdout, "42\n")
        self.assertEqual(self.parley("run", "--context", "b", "echo $((6*8))").stdout, "48\n")  # bash still
        wrong = self.parley("run", "--lang", "python", "--context", "b", "1", status=125).stderr
        self.assertIn("is one of bash, not of python", wrong)
        kernels = {kernel["id"]: kernel for kernel in json.loads(self.parley("kernels", "--json").stdout)["kernels"]}
        self.assertEqual((kernels["b"]["language"], kernels["b"]["execution_count"]), ("bash", 2))
        self.assertEqual(self.parley("kernels", "interrupt", "b").stdout, "b\n")
        self.assertEqual(self.parley("kernels", "rm", "b").stdout, "b\n")
        self.parley("kernels", "rm", "b", status=1)
        self.assertIn("python", self.parley("kernels", "specs").stdout)

    def test_one_that_ends_with_its_run(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.parley("run", "--save", folder + "/out",
                               "class P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + bytes(1200)\nP()")
            self.assertRegex(done.stdout, r"\[image/png .*/out/1\.png 1 kB\]")
            with open(folder + "/out/1.png", "rb") as saved:
                self.assertEqual(saved.read(), b"\x89PNG\r\n\x1a\n" + bytes(1200))
        self.assertEqual(self.parley("run", "--lang", "typescript", "console.log((4 as number) + 3)").stdout, "7\n")
        kernels = json.loads(self.parley("kernels", "--json").stdout)["kernels"]
        self.assertNotIn("typescript", [kernel["language"] for kernel in kernels])

    def test_ctrl_c(self):
        code = "print('on', flush=True)\nimport time\ntime.sleep(600)"
        with subprocess.Popen([BIN + "/parley", "run", "--context", "c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.deployment.environment, text=True) as running:
            self.assertEqual(running.stdout.readline(), "on\n")
            running.send_signal(2)
            _, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130)
        self.assertIn("KeyboardInterrupt", errors)
        self.assertEqual(self.parley("run", "--context", "c", "'still'").stdout, "'still'\n")

    def test_a_second_ctrl_c_leaves(self):
        code = ("import signal, time\nsignal.signal(signal.SIGINT, lambda *_: print('no', flush=True))\nprint('on', flush=True)\n"
                "until = time.monotonic() + 600\nwhile time.monotonic() < until: time.sleep(0.1)")
        with subprocess.Popen([BIN + "/parley", "run", "--context", "d", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.deployment.environment, text=True) as running:
            self.assertEqual(running.stdout.readline(), "on\n")
            running.send_signal(2)
            self.assertEqual(running.stdout.readline(), "no\n")
            running.send_signal(2)
            running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130)
        self.assertIn("busy", self.parley("kernels").stdout)
        self.parley("kernels", "rm", "d")


if __name__ == "__main__":
    unittest.main()
