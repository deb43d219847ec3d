"""POST /execute on sandboxd: files, arguments, environment, artifacts, timeouts and what goes wrong, as a client of the
contract sees it; what a program cannot do to the answer; and that nothing of a run stays behind."""
import http.client
import json
import os
import sys
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import needs_root  # noqa: E402
from parley_testing.alone import DEPLOYMENT, SANDBOX, Alone  # noqa: E402,F401
from parley_testing.remote_sandbox import RemoteSandbox  # noqa: E402

FIELDS = {"stdout", "stderr", "exit_code", "timed_out", "error", "sandbox_id", "artifacts"}
LARGE = 1024 * 1024 + 7


@needs_root
class Execute(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Alone()
        cls.addClassCleanup(cls.node.close)
        made = cls.node.prepare()
        assert made.get("ok"), (made, cls.node.logs())

    def client(self, **more):
        return RemoteSandbox(f"http://127.0.0.1:{self.node.port}/s/{SANDBOX}", self.node.token(), **more)

    def run_code(self, code, *args, **more):
        return self.client().execute(code, *args, **more)

    def raw(self, body, token=None):
        """Status and JSON of a body as it is."""
        status, data = self.node.verb("POST", "/execute", body, token)
        return status, json.loads(data)

    def await_folders(self, wanted=""):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            found = self.node.exec("ls -A /tmp | grep ^.execution- || true")["stdout"]
            if found == wanted:
                return
            time.sleep(0.1)
        self.fail(f"left in /tmp: {found}\n" + self.node.logs())

    # ---- what works ----

    def test_python_with_everything(self):
        done = self.run_code(
            "import sys, os, pathlib\n"
            "print('args', sys.argv[1:]); print(os.environ['FOO'], open('data/in.txt').read(), file=sys.stderr)\n"
            "import helper; print(helper.twice(21), sys.argv[0])\n"
            "os.makedirs('artifacts/sub'); pathlib.Path('artifacts/sub/a b.txt').write_text('ä')\n"
            "pathlib.Path('artifacts/report.json').write_text('{}')\n",
            files={"data/in.txt": "input ü", "./helper.py": "def twice(n): return 2 * n\n"},
            environment={"FOO": "bar"}, arguments=["--flag", "v w"])
        self.assertTrue(done.succeeded, done)
        self.assertEqual(done.stdout, "args ['--flag', 'v w']\n42 main.py\n")
        self.assertEqual(done.stderr, "bar input ü\n")
        self.assertEqual(done.sandbox_id, SANDBOX)
        self.assertEqual(done.artifacts, {"sub/a b.txt": "ä".encode(), "report.json": b"{}"})

    def test_a_forked_interpreter_ends_as_any_other(self):
        code = ("import atexit, logging, os, sys, threading, helper\nos.mkdir('artifacts')\n"
                "class Last:\n    def __del__(self): print('deleted', threading.current_thread().name)\n"
                "last = Last(); last.itself = last\nunclosed = open('artifacts/unclosed', 'w'); unclosed.write('all of it')\n"
                "helper.keep(open('artifacts/kept', 'wb')).write(b'kept too')\n"
                "logging.basicConfig(filename='artifacts/log'); logging.warning('logged')\n"
                "atexit.register(lambda: print('at exit'))\n"
                "threading.Thread(target=lambda: (__import__('time').sleep(0.2), print('thread'))).start()\n"
                "sys.stdout.write('no newline ')\n")
        files = {"helper.py": "kept = []\ndef keep(it):\n    kept.append(it)\n    return it\n"}
        seen = []
        for environment in ({"LD_NONE": "1"}, {}, {}):  # started as ever, then forked at the latest by the third
            done = self.run_code(code, files=files, environment=environment)
            self.assertTrue(done.succeeded, done)
            seen.append((done.stdout, done.stderr, done.artifacts))
        self.assertEqual(seen[0][0], "no newline thread\nat exit\ndeleted MainThread\n")
        self.assertEqual(seen[0][2], {"unclosed": b"all of it", "kept": b"kept too", "log": b"WARNING:root:logged\n"})
        self.assertEqual(seen[1:], [seen[0]] * 2)
        status, reply = self.raw({"code": "import os, sys\nprint('x'); os.close(1)", "language": "python"})
        self.assertEqual((status, reply["exit_code"]), (200, 120), reply)  # as an interpreter that cannot write its output

    def test_languages(self):
        for language in ("bash", "sh"):
            done = self.run_code('echo "$0 $1 $FOO"; exit 3', language, arguments=["x"], environment={"FOO": "y"})
            self.assertEqual((done.stdout, done.exit_code, done.error), ("main.sh x y\n", 3, None), done)
        for language in ("py", "python"):
            self.assertEqual(self.run_code("print(1)", language).stdout, "1\n")
        if os.path.exists("/usr/bin/node"):
            for language in ("node", "javascript", "js"):
                done = self.run_code("console.log(process.argv[2], 6 * 7)", language, arguments=["n"])
                self.assertEqual((done.stdout, done.succeeded), ("n 42\n", True), done)

    @unittest.skipUnless(os.path.exists("/usr/share/nodejs/typescript"), "no typescript here")
    def test_typescript(self):
        for language in ("typescript", "ts"):
            done = self.run_code("interface A {b: number}\nconst a: A = {b: 41};\nconsole.log(a.b + 1, process.argv[2]);", language,
                                 arguments=["t"])
            self.assertEqual((done.stdout, done.succeeded), ("42 t\n", True), done)

    def test_an_unsupported_language_is_a_result(self):
        status, reply = self.raw({"code": "x", "language": "cobol"})
        self.assertEqual((status, reply["exit_code"]), (200, 1))
        self.assertIn("Unsupported language: cobol (python, bash, node", reply["error"])
        self.assertEqual(set(reply), FIELDS)

    def test_how_programs_end(self):
        self.assertEqual(self.run_code("import sys; sys.exit(7)").exit_code, 7)
        done = self.run_code("raise ValueError('no')")
        self.assertEqual((done.exit_code, done.error), (1, None))
        self.assertIn('File "main.py", line 1' if "/main.py" not in done.stderr else "main.py\", line 1", done.stderr)
        self.assertIn("ValueError: no", done.stderr)
        self.assertEqual(self.run_code("import os; os.kill(os.getpid(), 9)").exit_code, 137)
        self.assertEqual(self.run_code("kill -SEGV $$", "bash").exit_code, 139)
        self.assertEqual(self.run_code("import sys; print(repr(sys.stdin.read()))").stdout, "''\n")

    def test_out_of_memory_is_said(self):
        done = self.run_code("x = [bytearray(1 << 20) for _ in range(4000)]\nprint('never')")
        self.assertFalse(done.succeeded, done)
        self.assertIn("memory", (done.error or "").lower(), done)
        self.assertEqual(done.stdout, "")

    # ---- time ----

    def test_a_timeout_is_answered_before_the_client_gives_up(self):
        client = self.client(timeout_s=2.0)
        done = client.execute("import time, subprocess\nsubprocess.Popen(['sleep', '6543'])\nprint('on', flush=True)\n"
                              "time.sleep(60)")
        self.assertEqual((done.timed_out, done.exit_code, done.error), (True, 124, "Execution timed out"), done)
        self.assertEqual(done.stdout, "on\n")  # not the client's own timeout, which has no output
        self.assertNotIn("6543", self.node.exec("ps -eo args || cat /proc/[0-9]*/cmdline | tr '\\0' ' '")["stdout"])
        self.await_folders()

    def test_null_means_no_word(self):
        status, reply = self.raw({"code": "print(2)", "language": "python", "files": None, "environment": None,
                                  "arguments": None, "timeout_s": None})
        self.assertEqual((status, reply["stdout"], reply["artifacts"], reply["error"]), (200, "2\n", None, None))

    def test_a_client_that_leaves_ends_it(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=30)
        connection.request("POST", f"/s/{SANDBOX}/execute", json.dumps({
            "code": "echo on > /tmp/left; sleep 7654 & sleep 7655", "language": "bash"}),
            {"Authorization": "Bearer " + self.node.token()})
        until = time.monotonic() + 30
        while "on" not in self.node.exec("cat /tmp/left 2>/dev/null || true")["stdout"] and time.monotonic() < until:
            time.sleep(0.05)
        connection.close()
        self.await_folders()
        until = time.monotonic() + 30
        while self.running("sleep 765") and time.monotonic() < until:
            time.sleep(0.05)
        self.assertFalse(self.running("sleep 765"))

    def running(self, what):
        listed = self.node.exec("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")["stdout"]
        return what in listed

    # ---- what is malformed ----

    def test_what_is_malformed_has_the_contracts_shape(self):
        good = {"code": "1", "language": "python"}
        for body, word in (({**good, "cmd": "x"}, "cmd"), ({"language": "python"}, "code"), ({"code": "x"}, "language"),
                           ({**good, "code": 1}, "code"), ({**good, "files": []}, "files"), ({**good, "files": {"a": 1}}, "files"),
                           ({**good, "environment": {"A": 1}}, "environment"), ({**good, "environment": {"A-": "1"}}, "environment"),
                           ({**good, "arguments": "x"}, "arguments"), ({**good, "arguments": [1]}, "arguments"),
                           ({**good, "timeout_s": 0}, "timeout_s"), ({**good, "timeout_s": "1"}, "timeout_s"),
                           ({**good, "timeout_s": -1}, "timeout_s"), ({**good, "timeout_s": 1e9}, "timeout_s")):
            status, reply = self.raw(body)
            self.assertEqual((status, set(reply)), (400, FIELDS), reply)
            self.assertIn(word, reply["error"])
        status, reply = self.raw(b"[1]")
        self.assertEqual((status, set(reply)), (400, FIELDS))
        status, data = self.node.ask("POST", f"/s/{SANDBOX}/execute", good)
        self.assertEqual((status, set(json.loads(data))), (401, FIELDS))
        status, reply = self.raw(good, self.node.token("fs:rw"))
        self.assertEqual((status, set(reply)), (403, FIELDS))
        self.assertIn("process", reply["error"])
        self.assertIsInstance(reply["exit_code"], int)

    def test_no_file_leaves_the_work_folder(self):
        self.node.exec("rm -rf /tmp/escaped; mkdir -p /tmp/there; ln -sfn /tmp/there /tmp/linked")
        for path in ("/tmp/escaped", "../escaped", "a/../../escaped", "a//b", "", ".", "..", "a/..", "a/", "./", "main.py",
                     "./main.py", "x/../../../tmp/escaped", "a" * 300, "b/" * 600 + "c"):
            done = self.run_code("print('ran')", files={path: "x"})
            self.assertEqual((done.exit_code, done.stdout), (1, ""), (path, done))
            self.assertTrue(done.error.startswith("Invalid file path: "), (path, done.error))
        status, reply = self.raw(b'{"code":"1","language":"python","files":{"a\\u0000b":"x"}}')
        self.assertEqual((status, set(reply)), (400, FIELDS))
        done = self.run_code("print('ran')", files={"a": "file", "a/b": "below a file"})
        self.assertEqual((done.exit_code, done.stdout), (1, ""), done)
        self.assertIn("Invalid file path: a/b", done.error)
        self.assertEqual(self.node.exec("ls -d /tmp/escaped /tmp/main.py 2>&1 | grep -c 'No such'")["stdout"], "2\n")
        self.await_folders()

    def test_odd_but_good_names(self):
        files = {"...": "1", ".hidden": "2", "ä/ö.txt": "3", "new\nline": "4", "-rf": "5", "a/b/c/d": "6", "q\"'$(x)": "7"}
        done = self.run_code("import os\nprint(sorted(os.path.relpath(os.path.join(r, f), '.') for r, _, fs in os.walk('.')"
                             " for f in fs))", files=files)
        self.assertEqual(done.stdout, repr(sorted([*files, "main.py"])) + "\n", done)

    def test_many_files_and_large_ones(self):
        files = {f"d{n % 7}/f{n}": str(n) for n in range(300)}
        files["large"] = "x" * 3_000_000  # more than a pipe takes at once
        done = self.run_code("import glob, os\nprint(len(glob.glob('d*/f*')), os.path.getsize('large'))", files=files)
        self.assertEqual(done.stdout, "300 3000000\n", done)
        status, reply = self.raw({"code": "1", "language": "python", "files": {str(n): "" for n in range(1001)}})
        self.assertEqual(status, 400)

    # ---- outputs ----

    def test_a_flood_is_cut_with_a_word(self):
        done = self.run_code("import sys\nfor n in range(3_000_000): sys.stdout.write(f'line {n}\\n')\nprint('the end')")
        self.assertEqual((done.exit_code, done.error), (0, None), done)
        self.assertLessEqual(len(done.stdout), 1 << 20)
        self.assertTrue(done.stdout.endswith("line 2999999\nthe end\n"))
        self.assertIn("[parley] stdout was too long: its first ", done.stderr)
        gone = int(done.stderr.split("its first ")[1].split()[0])
        whole = sum(len(f"line {n}\n") for n in range(3_000_000)) + len("the end\n")
        self.assertEqual(gone + len(done.stdout), whole)

    def test_bytes_that_are_no_text(self):
        done = self.run_code("import sys\nsys.stdout.buffer.write(b'a\\xff\\xc3(\\0b\\xe2\\x82\\xac')")
        self.assertEqual(done.stdout, "a\ufffd\ufffd(\0b€", done)

    # ---- artifacts ----

    def test_large_artifacts_are_fetched_once_and_by_nobody_else(self):
        client = self.client()
        done = client.execute(f"import os\nos.mkdir('artifacts')\nopen('artifacts/big one.bin', 'wb').write(b'\\x07' * {LARGE})\n"
                              "open('artifacts/small', 'w').write('s')")
        self.assertTrue(done.succeeded, done)
        self.assertEqual(done.artifacts, {"big one.bin": b"\x07" * LARGE, "small": b"s"})
        self.assertEqual(client.fetched, [200])
        status, data = client.ask("GET", client.urls[0], 30)
        self.assertEqual((status, set(json.loads(data))), (410, FIELDS))
        self.assertIn("one download", json.loads(data)["error"])
        self.await_folders()

    def big(self, size=LARGE):
        """The URL of a large artifact, not yet fetched."""
        status, reply = self.raw({"code": f"import os\nos.mkdir('artifacts')\nopen('artifacts/x', 'wb').write(b'z' * {size})",
                                  "language": "python"})
        self.assertEqual(status, 200)
        return urllib.parse.urlsplit(reply["artifacts"]["x"]["url"])

    def test_a_look_takes_nothing(self):
        url = self.big()
        for _ in range(3):
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
            connection.request("HEAD", url.path + "?" + url.query)
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.getheader("Content-Length")), (200, str(LARGE)))
            connection.close()
        status, data = self.node.ask("GET", url.path + "?" + url.query)
        self.assertEqual((status, len(data)), (200, LARGE))
        self.assertEqual(self.node.ask("HEAD", url.path + "?" + url.query)[0], 410)

    def test_the_url_opens_nothing_else(self):
        url = self.big()
        base, ticket = url.path.split("/executions/")[0], url.query
        token = base.split("/c/")[1]
        for method, path, body in (("POST", "/execute", {"code": "1", "language": "python"}), ("POST", "/exec", {"cmd": "id"}),
                                   ("GET", "/files/etc/passwd", None), ("GET", "/processes", None), ("GET", "/terminals", None),
                                   ("PUT", "/files/tmp/x", "x"), ("GET", "/kernels", None), ("GET", "/ports", None)):
            status, _ = self.node.ask(method, f"{base}{path}", body)
            self.assertIn(status, (403, 404), (method, path))
            status, _ = self.node.ask(method, f"/s/{SANDBOX}{path}", body, token)
            self.assertIn(status, (403, 404), (method, path))
        id_, name = url.path.split("/executions/")[1].split("/artifacts/")
        wrong = ticket[:-1] + ("0" if ticket[-1] != "0" else "1")
        for path in (f"{id_}/artifacts/{name}", f"{id_}/artifacts/{name}?{wrong}", f"{id_}/artifacts/y?{ticket}",
                     f"{id_}/artifacts/{name}/?{ticket}x", f"run_other/artifacts/{name}?{ticket}",
                     f"{id_}/artifacts/{name}?ticket="):
            self.assertEqual(self.node.ask("GET", f"{base}/executions/{path}")[0], 404, path)
        # The ticket needs a token of this sandbox too.
        self.assertEqual(self.node.ask("GET", f"/s/{SANDBOX}/executions/{id_}/artifacts/{name}?{ticket}")[0], 401)
        self.assertEqual(self.node.ask("GET", url.path + "?" + ticket)[0], 200)  # and none of that took it

    def test_two_at_once_get_it_once(self):
        url, got = self.big(), []
        threads = [threading.Thread(target=lambda: got.append(self.node.ask("GET", url.path + "?" + url.query)[0]))
                   for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(got), [200] + [410] * 7)

    def test_the_bytes_survive_what_happens_to_the_folder(self):
        url = self.big()
        self.await_folders()  # it is gone, and the bytes are not
        self.node.exec("rm -rf /tmp/* /tmp/.[a-z]*; mkdir -p /tmp")
        status, data = self.node.ask("GET", url.path + "?" + url.query)
        self.assertEqual((status, data == b"z" * LARGE), (200, True))

    def test_a_short_token_makes_a_short_url(self):
        status, reply = self.raw({"code": f"import os\nos.mkdir('artifacts')\nopen('artifacts/x', 'wb').write(b'z' * {LARGE})",
                                  "language": "python"}, self.node.token(ttl=3))
        url = urllib.parse.urlsplit(reply["artifacts"]["x"]["url"])
        until = time.monotonic() + 60
        status = 200
        while status == 200 and time.monotonic() < until:  # looks take nothing
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
            connection.request("HEAD", url.path + "?" + url.query)
            status = connection.getresponse().status
            connection.close()
            time.sleep(0.2)
        self.assertEqual(status, 401)

    def test_a_token_that_cannot_be_narrowed_gives_no_urls(self):
        token = self.node.token()
        for _ in range(8):
            token = Alone.narrow(token, note="n")
        status, reply = self.raw({"code": f"import os\nos.mkdir('artifacts')\nopen('artifacts/x', 'wb').write(b'z' * {LARGE})\n"
                                          "open('artifacts/y', 'w').write('y')", "language": "python"}, token)
        self.assertEqual((status, set(reply["artifacts"])), (200, {"y"}))
        self.assertIn("1 left out of the artifacts", reply["stderr"])

    # ---- artifacts that want to be something else ----

    def test_only_regular_files_count(self):
        done = self.run_code(
            "import os, socket\nos.mkdir('artifacts'); os.chdir('artifacts')\n"
            "os.symlink('/etc/passwd', 'passwd'); os.symlink('../main.py', 'code'); os.symlink('/etc', 'etc')\n"
            "os.mkfifo('pipe'); socket.socket(socket.AF_UNIX).bind('sock')\n"
            "open(b'bad\\xff', 'w').write('b'); open('new\\nline', 'w').write('n'); open('ok', 'w').write('o')\n"
            "open('one', 'w').write('1'); os.link('one', 'two'); open('locked', 'w').write('l'); os.chmod('locked', 0)\n")
        self.assertEqual(done.exit_code, 0, done)
        self.assertEqual(done.artifacts, {"new\nline": b"n", "ok": b"o"})
        self.assertIn("5 left out of the artifacts: no regular file", done.stderr)
        self.assertIn("1 left out of the artifacts: the name is not UTF-8", done.stderr)
        self.assertIn("3 left out of the artifacts: it cannot be read", done.stderr)

    def test_a_folder_that_is_a_link(self):
        for code in ("import os; os.symlink('/etc', 'artifacts')", "import os; os.symlink('..', 'artifacts')",
                     "import os; os.symlink('/proc/self/root', 'artifacts')"):
            done = self.run_code(code)
            self.assertEqual((done.exit_code, done.artifacts), (0, {}), done)
            self.assertIn("[parley] artifacts: ", done.stderr)
        self.assertEqual(self.run_code("open('artifacts', 'w').write('x')").artifacts, {})
        self.assertEqual(self.run_code("import os; os.mkfifo('artifacts')").exit_code, 0)

    def test_very_many(self):
        done = self.run_code("mkdir artifacts; cd artifacts; seq 1 30000 | xargs touch; echo made", "bash")
        self.assertEqual(done.stdout, "made\n", done)
        self.assertEqual(len(done.artifacts), 1000)
        self.assertIn("the rest was not looked at", done.stderr)
        self.await_folders()

    def test_too_many_large_ones(self):
        client = self.client()
        done = client.execute("import os\nos.mkdir('artifacts')\nfor n in range(40):\n"
                              "    f = open(f'artifacts/{n}', 'wb'); f.truncate(2 << 20)")
        self.assertEqual(done.exit_code, 0, done)
        self.assertEqual((len(done.artifacts), client.fetched), (32, [200] * 32))
        self.assertIn("8 left out of the artifacts: too many, or too many large ones", done.stderr)

    def test_all_small_ones_together_are_bounded(self):
        client = self.client()
        done = client.execute("import os\nos.mkdir('artifacts')\nfor n in range(6):\n"
                              "    open(f'artifacts/{n}', 'wb').write(bytes([n]) * 1000000)")
        self.assertEqual(done.artifacts, {str(n): bytes([n]) * 1000000 for n in range(6)})
        self.assertEqual(len(client.fetched), 2)  # 4 MiB went with the answer

    # ---- programs that want to stay ----

    def test_what_outlives_the_program_does_not_outlive_the_run(self):
        done = self.run_code(
            "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True:\n"
            "            try: open('late', 'a').write('x'); os.makedirs('artifacts/x', exist_ok=True)\n"
            "            except OSError: pass\n    os._exit(0)\nprint('out')")
        self.assertEqual((done.stdout, done.exit_code), ("out\n", 0), done)
        self.await_folders()

    def test_code_that_takes_its_folder_away(self):
        for code in ("import os, shutil; shutil.rmtree(os.getcwd())", "import os; os.rename(os.getcwd(), '/tmp/moved')",
                     "import os; d = os.getcwd(); os.rename(d, '/tmp/away'); os.symlink('/etc', d)",
                     "import os; os.chmod('.', 0)"):
            done = self.run_code(code + "; print('done')")
            self.assertEqual((done.stdout, done.exit_code), ("done\n", 0), (code, done))
        self.assertEqual(self.node.exec("ls -d /etc/passwd")["exit_code"], 0)
        self.node.exec("chmod -R u+rwx /tmp/.execution-* /tmp/moved /tmp/away; rm -rf /tmp/moved /tmp/away")

    def test_no_more_than_so_many_at_once(self):
        answers, lock = [], threading.Lock()

        def ask():
            status, reply = self.raw({"code": "sleep 3", "language": "bash"})
            with lock:
                answers.append((status, reply["exit_code"]))
        threads = [threading.Thread(target=ask) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({status for status, _ in answers}, {200, 429}, answers)
        self.assertGreaterEqual(answers.count((200, 0)), 16)
        self.assertEqual(self.run_code("print(1)").stdout, "1\n")  # and then again


@needs_root
class ExecuteKilled(unittest.TestCase):
    """kill -9 of the front while a program runs: the program ends, its folder goes."""

    def test_nothing_is_left_of_a_front_that_died(self):
        node = Alone()
        self.addCleanup(node.close)
        self.assertTrue(node.prepare().get("ok"))
        connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)
        connection.request("POST", f"/s/{SANDBOX}/execute", json.dumps({
            "code": "echo on > /tmp/on; sleep 8765", "language": "bash"}), {"Authorization": "Bearer " + node.token()})
        until = time.monotonic() + 30
        while "on" not in node.exec("cat /tmp/on 2>/dev/null || true")["stdout"] and time.monotonic() < until:
            time.sleep(0.05)
        node.exec("mkdir -p /tmp/.execution-00000000-run_old/x; touch /tmp/.execution-00000000-run_old/x/y")
        node.kill()
        connection.close()
        node.start()
        until = time.monotonic() + 30
        while time.monotonic() < until:
            left = node.exec("ls -A /tmp | grep ^.execution-; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 876[5]'"
                             " || true")["stdout"]
            if not left:
                break
            time.sleep(0.1)
        self.assertEqual(left, "", node.logs())


if __name__ == "__main__":
    unittest.main()
