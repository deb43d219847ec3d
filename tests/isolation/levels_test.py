"""One list for all isolation levels: what a sandbox does and keeps, whatever stands around it. Each case is a method of
Cases; each level is a class that says how to get such a sandbox (`make`), with what tests/parley_testing/levels.py and
guest.py say of a place. A level without walls of its own leaves those cases out that ask for them."""
import json
import os
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, microvm, needs_root  # noqa: E402
from parley_testing.guest import Guest  # noqa: E402
from parley_testing.gvisor import needs_gvisor, settings as gvisor_settings  # noqa: E402
from parley_testing.levels import Leased  # noqa: E402
from parley_testing.rootless import RootlessDeployment, RootlessUser, needs_rootless  # noqa: E402

# Every process that has this word in its command line, a pid a line.
MARKED = "grep -la '%s' /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3; true"


def mark():
    """A word that nobody else has; in a shell it is written so that the searching line does not hold it."""
    return "mark" + os.urandom(6).hex()


def hidden(word):
    """As MARKED's pattern, which is in the command line of who searches."""
    return f"[{word[0]}]{word[1:]}"


class Cases:
    level = None
    keys_signal = True  # ^C in a terminal is SIGINT; gVisor's (20221219) know neither ISIG nor ^D

    @classmethod
    def setUpClass(cls):
        cls.place = cls.make("levels-" + cls.level)

    @classmethod
    def make(cls, thread):
        """A new sandbox of this level; closed by the class at its end."""
        raise NotImplementedError

    # ---- helpers ----

    def shell(self, command, place=None, **body):
        """stdout of a command that must succeed."""
        reply = (place or self.place).exec(cmd=command, **body)
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(reply.json["exit_code"], 0, reply)
        return reply.json["stdout"]

    def walls(self):
        if not self.place.has_walls:
            self.skipTest(f"{self.level} has no walls of its own: what stands around it isolates")

    def file(self, name):
        return f"{self.place.workspace}/{self.id().rsplit('.', 1)[-1][5:30]}-{name}"

    def marked(self, word, place=None):
        return self.shell(MARKED % hidden(word), place).split()

    def until(self, check, what, seconds=30):
        end = time.monotonic() + seconds
        while True:
            found = check()
            if found:
                return found
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.1)

    def read(self, session, is_there):
        """Until the terminal has shown it; the session's own timeout bounds each frame."""
        while not is_there(session.output):
            session.next()

    # ---- commands ----

    def test_exit_codes_and_signals(self):
        self.assertEqual(self.place.exec(cmd="exit 0").json["exit_code"], 0)
        self.assertEqual(self.place.exec(cmd="exit 77").json["exit_code"], 77)
        killed = self.place.exec(cmd="kill -9 $$").json
        self.assertEqual((killed["exit_code"], killed["signal"]), (137, "SIGKILL"))
        missing = self.place.exec(argv=["/no/such/program"])
        self.assertEqual((missing.status, missing.code), (400, "INVALID_REQUEST"), missing)

    def test_streams_are_told_apart_and_whole(self):
        told = self.place.exec(cmd="id -u; for i in 1 2 3; do echo out$i; echo err$i >&2; done").json
        self.assertEqual(told["stdout"], "1000\nout1\nout2\nout3\n")
        self.assertEqual(told["stderr"], "err1\nerr2\nerr3\n")
        many = self.shell("seq 1 20000")
        self.assertEqual(many, "".join(f"{i}\n" for i in range(1, 20001)))

    def test_output_without_end_is_bounded_and_its_last_bytes_are_there(self):
        id = "flood" + os.urandom(4).hex()
        size = 24 << 20
        done = self.place.exec(id=id, cmd=f"head -c {size} /dev/zero | tr '\\0' x; echo; echo the-end")
        self.assertEqual((done.status, done.json["exit_code"]), (200, 0), str(done)[:300])
        length = size + len("\nthe-end\n")
        rest = self.place.request("GET", f"/processes/{id}/output?raw=stdout&stdout_offset={length - 100}")
        self.assertTrue(rest.body.endswith(b"x\nthe-end\n"), rest)
        self.assertLessEqual(len(rest.body), 100)

    def test_user_and_rights(self):
        status = self.shell("cat /proc/self/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        self.assertEqual(fields["Uid"].split(), ["1000"] * 4)
        self.assertEqual(fields["Gid"].split(), ["1000"] * 4)
        self.assertEqual(int(fields["CapEff"], 16) | int(fields["CapPrm"], 16), 0)
        self.assertNotEqual(self.place.exec(cmd="chown 0 " + self.place.workspace).json["exit_code"], 0)

    def test_arguments_and_variables(self):
        told = self.place.exec(argv=["/bin/sh", "-c", 'printf "%s|" "$@" "$GIVEN"', "sh", "a b", "", "ü'\""],
                               env={"GIVEN": "x y=z"}).json
        self.assertEqual(told["stdout"], "a b||ü'\"|x y=z|")

    def test_stdin(self):
        self.assertEqual(self.shell("cat; echo end", stdin="one\ntwo\n"), "one\ntwo\nend\n")
        self.assertEqual(self.shell("cat; echo end"), "end\n")
        self.assertEqual(self.shell("wc -c", stdin="x" * 700000).strip(), "700000")

    def test_working_folder(self):
        self.assertEqual(self.shell("pwd"), self.place.workspace + "\n")
        self.assertEqual(self.shell("pwd", cwd="/usr"), "/usr\n")
        wrong = self.place.exec(cmd="pwd", cwd="/no/such")
        self.assertEqual((wrong.status, wrong.code), (400, "INVALID_REQUEST"), wrong)

    def test_hostname(self):
        self.assertEqual(self.shell("cat /proc/sys/kernel/hostname").strip(), self.place.hostname)

    # ---- what is left of a command ----

    def test_timeout_ends_all_children(self):
        word = mark()
        started = f"(setsid sh -c 'while :; do sleep 1; done' {word} &) ; (sh -c 'sleep 500; :' {word} &); "
        told = self.place.exec(cmd=started + f"sh -c 'sleep 500; :' {word}", timeout=2).json
        self.assertTrue(told["timed_out"], told)
        self.until(lambda: not self.marked(word), "processes of a command that timed out")

    def test_kill_ends_all_children(self):
        word, id = mark(), "kill" + os.urandom(4).hex()
        detached = self.place.exec(id=id, detach=True, cmd=f"setsid sh -c 'sleep 500; :' {word} & sleep 500")
        self.assertIn(detached.status, (200, 201, 202), detached)
        self.until(lambda: self.marked(word), "the child")
        self.assertIn(self.place.request("DELETE", "/processes/" + id).status, (200, 202, 204))
        self.until(lambda: not self.marked(word), "the child of a command that was killed")

    def test_what_a_command_leaves_behind_goes_on(self):
        word = mark()
        self.shell(f"setsid sh -c 'sleep 500; :' {word} >/dev/null 2>&1 </dev/null & exit 0")
        self.assertTrue(self.until(lambda: self.marked(word), "the child"))
        self.shell(f"kill -9 $({MARKED % hidden(word)}) 2>/dev/null; true")

    # ---- files ----

    def test_files_up_down_list_delete(self):
        folder = self.file("folder")
        data = os.urandom(300000)
        made = self.place.request("PUT", f"/files{folder}/a/data.bin", data)
        self.assertEqual(made.status, 201, made)
        self.assertEqual((made.json["uid"], made.json["size"]), (1000, len(data)))
        got = self.place.request("GET", f"/files{folder}/a/data.bin")
        self.assertEqual((got.status, got.body == data), (200, True))
        part = self.place.request("GET", f"/files{folder}/a/data.bin", headers={"Range": "bytes=100-199"})
        self.assertEqual((part.status, part.body), (206, data[100:200]))
        again = self.place.request("PUT", f"/files{folder}/a/data.bin", b"other")
        self.assertEqual(again.status, 200, again)
        self.assertEqual(self.shell(f"cat {folder}/a/data.bin"), "other")
        listed = self.place.request("GET", f"/files{folder}?list=1&depth=3")
        self.assertEqual(listed.status, 200, listed)
        for name in ("data.bin", '"a"'):
            self.assertIn(name, listed.body.decode())
        gone = self.place.request("DELETE", f"/files{folder}?recursive=1")
        self.assertIn(gone.status, (200, 204), gone)
        self.assertEqual(self.place.request("GET", f"/files{folder}/a/data.bin").status, 404)

    def test_a_folders_token_sees_nothing_outside(self):
        folder, outside = self.file("scope"), self.file("outside")
        self.shell(f"mkdir -p {folder}/in {outside}/deep; echo inside > {folder}/in/file; echo SECRET > {outside}/secret;"
                   f"ln -s {outside} {folder}/out; ln -s ../../{os.path.basename(outside)}/secret {folder}/in/link;"
                   f"ln -s / {folder}/root; ln -s in {folder}/fine")
        token = self.place.token(scope=f"fs:rw@{folder}")
        self.assertEqual(self.place.request("GET", f"/files{folder}/in/file", token=token).body, b"inside\n")
        self.assertEqual(self.place.request("GET", f"/files{folder}/fine/file", token=token).body, b"inside\n")
        # The same attempts reach it without the token's folder.
        self.assertEqual(self.place.request("GET", f"/files{folder}/in/link").body, b"SECRET\n")
        for path in (f"{folder}/in/link", f"{folder}/out/secret", f"{folder}/root{outside}/secret",
                     f"{folder}/root/etc/passwd", f"{outside}/secret"):
            got = self.place.request("GET", f"/files{path}", token=token)
            self.assertEqual((got.status, b"SECRET" in got.body), (403, False), (path, got))
        for query in ("list=1&depth=9", "glob=**", "grep=SECRET"):
            seen = self.place.request("GET", f"/files{folder}?{query}", token=token)
            self.assertEqual(seen.status, 200, (query, seen))
            self.assertNotIn("deep", seen.body.decode(), query)
            self.assertNotIn("passwd", seen.body.decode(), query)
            self.assertNotIn('"secret"', seen.body.decode(), query)
            self.assertNotIn("SECRET", seen.body.decode(), query)
        put = self.place.request("PUT", f"/files{folder}/out/new", b"x", token=token)
        self.assertEqual(put.status, 403, put)
        gone = self.place.request("DELETE", f"/files{folder}/out?recursive=1", token=token)
        self.assertIn(gone.status, (200, 204), gone)  # the link alone
        self.assertEqual(self.shell(f"cat {outside}/secret; cd {outside}; echo *"), "SECRET\ndeep secret\n")

    def test_what_is_no_file_is_not_waited_for(self):
        fifo = self.file("fifo")
        self.shell(f"mkfifo {fifo}")
        got = self.place.request("GET", f"/files{fifo}", timeout=30)
        self.assertEqual((got.status, got.code), (409, "CONFLICT"), got)

    # ---- terminals ----

    def test_terminal_with_resize(self):
        session = self.place.session()
        self.addCleanup(session.drop)
        session.expect("auth_ok")
        session.tell("start", argv=["/bin/sh"], cols=91, rows=33, env={"PS1": "$ "})
        self.assertTrue(session.expect("started")["tty"])
        session.type("stty size; tty >/dev/null && echo is-a-$((40+2))-tty\n")
        self.read(session, lambda seen: b"is-a-42-tty" in seen)
        self.assertIn(b"33 91", session.output)
        session.tell("resize", cols=120, rows=40)
        session.type("stty size\n")
        self.read(session, lambda seen: b"40 120" in seen)
        if self.keys_signal:
            session.type("cat\n")
            session.type("hello\n")  # once as it is typed, once by cat
            self.read(session, lambda seen: seen.count(b"hello") > 1)
            session.type("\x03")
            self.read(session, lambda seen: seen.rpartition(b"hello")[2].endswith(b"$ "))
        session.type("exit 5\n")
        self.assertEqual(session.expect("exit")["exit_code"], 5)

    # ---- who may ----

    def test_wrong_tokens_are_refused(self):
        self.assertEqual(self.place.request("POST", "/exec", {"cmd": "true"}, token=None).status, 401)
        for token in self.place.wrong_tokens():
            refused = self.place.request("POST", "/exec", {"cmd": "true"}, token=token)
            self.assertEqual(refused.status, 401, refused)
        narrow = self.place.request("POST", "/exec", {"cmd": "true"}, token=self.place.token(scope="fs:ro"))
        self.assertEqual((narrow.status, narrow.code), (403, "CAPABILITY_DENIED"), narrow)

    def test_revoked_token_is_refused(self):
        if not self.place.has_negotiator:
            self.skipTest("nobody is there to revoke")
        place = self.make("revoked-" + self.level)
        self.assertEqual(place.exec(cmd="true").status, 200)
        revoked = place.deployment.request("POST", "/revocations", {"sandbox": place.sandbox, "reason": "levels_test"})
        self.assertIn(revoked.status, (200, 201, 202), revoked)
        refused = place.exec(cmd="true")
        self.assertEqual((refused.status, refused.code), (401, "TOKEN_REVOKED"), refused)

    # ---- as OpenSandbox's clients ask ----

    def test_a_port_by_its_other_name(self):
        """The app sees its client's Authorization and no credential of ours; a reserved port is never the app's."""
        if not self.place.has_negotiator:
            self.skipTest("its scopes are others")
        reply = self.place.deployment.request("POST", f"/sandboxes/{self.place.sandbox}/token", {"scopes": ["port", "process"]})
        self.assertEqual(reply.status, 200, reply)
        token, base = reply.json["token"], self.place.deployment.node_url + f"/sandboxes/{self.place.sandbox}/port"
        serve = ("import http.server as h\nclass H(h.BaseHTTPRequestHandler):\n def do_GET(s):\n  s.send_response(200); s.end_headers(); "
                 "s.wfile.write(str(s.headers).encode())\nh.HTTPServer(('127.0.0.1', int(__import__('sys').argv[1])), H).serve_forever()")
        for port in ("3000", "18080"):
            started = self.place.exec(argv=["python3", "-c", serve, port], detach=True)
            self.assertEqual(started.status, 201, started)
        headers = {"X-EXECD-ACCESS-TOKEN": token, "Authorization": "Basic of-the-app", "OPEN-SANDBOX-API-KEY": "pk_secret"}

        def ask(path, sent=None):
            return self.place.deployment.request("GET", base + path, headers=sent or headers, record=False)
        seen = self.until(lambda: (lambda reply: reply if reply.status == 200 else None)(ask("/3000/")), "the app answers").body.decode()
        self.assertIn("Basic of-the-app", seen)
        for ours in (token, "pk_secret", "X-EXECD", "x-execd"):
            self.assertNotIn(ours, seen)
        self.assertEqual([ask(path).status for path in ("/18080/", "/44772/no/such", "/44772/proxy/18080/")], [404] * 3)
        self.assertEqual(ask("/44772/proxy/3000/").status, 200)
        self.assertEqual(ask("/3000/", {"X-EXECD-ACCESS-TOKEN": self.place.token()}).status, 403)
        run = self.place.deployment.request("POST", base + "/44772/command", {"command": "echo hi", "background": True}, headers=headers, record=False)
        command = json.loads(run.body.split(b"\n")[0])["text"]
        logs = self.until(lambda: (lambda reply: reply if reply.body else None)(ask(f"/44772/command/{command}/logs")), "its output")
        self.assertEqual((logs.body, logs.headers.get("execd-commands-tail-cursor")), (b"hi\n", "3"))

        def post(path, body):
            return self.place.deployment.request("POST", base + "/44772" + path, body, headers=headers, record=False)
        session = post("/session", {"cwd": "/tmp"}).json["session_id"]
        self.assertIn(b'"evalue":"3"', post(f"/session/{session}/run", {"command": "A=kept; exit 3"}).body)
        self.assertIn(b'"kept /tmp"', post(f"/session/{session}/run", {"command": "echo $A $PWD"}).body)

    def test_the_level_is_told(self):
        self.assertEqual(self.place.level_told(), self.level)

    # ---- what is out of reach ----

    def test_what_serves_a_sandbox_is_out_of_reach(self):
        """Nobody's memory but the commands' own can be read from inside, and init cannot be signalled."""
        told = self.shell("(exec 3< /proc/self/mem) && echo own; for p in /proc/[0-9]*; do (exec 3< $p/mem) 2>/dev/null &&"
                          " grep ^Uid $p/status; done 2>/dev/null | sort -u")
        self.assertIn("own\n", told)
        self.assertNotIn("58702", told)
        self.assertNotIn("\t0\t", told)
        self.assertNotEqual(self.place.exec(cmd="kill -9 1").json["exit_code"], 0)
        self.assertEqual(self.shell("echo on"), "on\n")

    def test_the_hosts_files_and_processes_are_not_seen(self):
        self.walls()
        word = mark()
        path = f"/var/tmp/{word}"
        with open(path, "w") as secret:
            secret.write(word)
        self.addCleanup(os.unlink, path)
        nowhere = subprocess.DEVNULL  # its child, which outlives a kill of the shell alone, would keep our streams open
        victim = subprocess.Popen(["/bin/sh", "-c", "sleep 500; :", word], stdin=nowhere, stdout=nowhere, stderr=nowhere,
                                  start_new_session=True)
        self.addCleanup(victim.wait)
        self.addCleanup(os.killpg, victim.pid, signal.SIGKILL)
        outside = subprocess.run(["/bin/sh", "-c", MARKED % hidden(word)], capture_output=True, text=True, check=True)
        self.assertIn(str(victim.pid), outside.stdout.split())
        self.assertEqual(self.marked(word), [])
        self.assertNotEqual(self.place.exec(cmd="cat " + path).json["exit_code"], 0)

    def test_there_is_no_way_out(self):
        self.walls()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            dial = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo out"
            outside = subprocess.run(["/bin/bash", "-c", dial], capture_output=True, text=True)
            self.assertEqual(outside.stdout, "out\n")
            inside = self.place.exec(argv=["/bin/bash", "-c", dial]).json
            self.assertEqual((inside["stdout"], inside["exit_code"] != 0), ("", True), inside)

    def test_a_neighbour_is_not_seen(self):
        self.walls()
        word, neighbour = mark(), self.make("neighbour-" + self.level)
        path = f"{neighbour.workspace}/{word}"
        self.shell(f"echo {word} > {path}; (setsid sh -c 'sleep 500; :' {word} &) >/dev/null 2>&1", neighbour)
        self.assertEqual(len(self.marked(word, neighbour)) > 0, True)
        self.assertEqual(self.marked(word), [])
        self.assertNotEqual(self.place.exec(cmd=f"cat {path}").json["exit_code"], 0)
        mine = self.place.request("GET", "/files" + path, token=neighbour.token())
        self.assertIn(mine.status, (401, 403, 404), mine)

    # ---- the end ----

    def test_destroy_leaves_nothing(self):
        word, place = mark(), self.make("ending-" + self.level)
        self.shell(f"(setsid sh -c 'sleep 500; :' {word} &) >/dev/null 2>&1; exit 0", place)
        self.until(lambda: self.marked(word, place), "the child")
        place.close()
        def left():
            seen = subprocess.run(["/bin/sh", "-c", MARKED % hidden(word)], capture_output=True, text=True, check=True)
            return seen.stdout.split()
        self.until(lambda: not left(), "what a destroyed sandbox ran")


@needs_root
class Direct(Cases, unittest.TestCase):
    """Guest mode on this host: connections over a socket."""
    level = "direct"
    over_socket = True

    @classmethod
    def make(cls, thread):
        guest = Guest(over_socket=cls.over_socket)
        cls.addClassCleanup(guest.close)
        return guest

    def test_no_command_is_who_the_front_is(self):
        """It would read the front's memory, or speak to init in its place."""
        for ids in ({"uid": 58702}, {"gid": 58702}):
            with self.assertRaises(AssertionError) as failed:
                Guest(**ids).close()
            self.assertIn("the front here would be uid 58702", str(failed.exception))


@needs_root
class Namespaces(Cases, unittest.TestCase):
    """What the others are held against."""
    level = "namespaces"

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        super().setUpClass()

    @classmethod
    def make(cls, thread):
        return Leased(cls.deployment, thread, resources={"memory_mb": 256, "pids": 128})


@needs_rootless
class Rootless(Namespaces):
    """The same level by an ordinary user; what is its own: rootless_test.py."""

    @classmethod
    def setUpClass(cls):
        user = RootlessUser(slots=8)
        cls.addClassCleanup(user.close)
        cls.deployment = RootlessDeployment(user, PARLEY_WARM="1")
        cls.addClassCleanup(cls.deployment.close)
        super(Namespaces, cls).setUpClass()


@needs_gvisor
class Gvisor(Namespaces):
    """A kernel in user space around a guest, in a slot as of namespaces."""
    level = "gvisor"
    keys_signal = False  # ^C, ^D and the like are no signals in its terminals

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(**gvisor_settings())
        cls.addClassCleanup(cls.deployment.close)
        super(Namespaces, cls).setUpClass()

    @classmethod
    def make(cls, thread):
        return Leased(cls.deployment, thread, isolation="gvisor", resources={"memory_mb": 256, "pids": 128})


@microvm.needs_microvm
class Microvm(Cases, unittest.TestCase):
    """A machine with a kernel of its own; interpreted here, so that each sandbox takes seconds to come."""
    level = "microvm"

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(programs=microvm.FAST, **microvm.settings())
        cls.addClassCleanup(cls.deployment.close)
        super().setUpClass()

    @classmethod
    def make(cls, thread):
        return Leased(cls.deployment, thread, isolation="microvm", resources={"memory_mb": 320, "pids": 128})


if __name__ == "__main__":
    unittest.main()
