"""Terminals and commands over /ws (specs/websocket.md): typing, sizes, signals, drive and watch, replay, tokens that end,
and coming back after every kind of break."""
import http.client
import json
import os
import re
import signal
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, Reply, needs_root  # noqa: E402
from parley_testing.token import Forge, compact, link  # noqa: E402
from parley_testing.websocket import Closed, Refused, Session  # noqa: E402

SCOPES = ["fs:rw", "shell", "process"]
PROMPT = {"env": {"PS1": "$ "}, "argv": ["/bin/bash", "--norc", "--noprofile", "-i"]}


class SocketTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("terminals", scopes=SCOPES, resources={"memory_mb": 512})
        cls.forge = Forge(cls.deployment, cls.grant)

    def open(self, token=None, grant=None, **more):
        grant = grant or self.grant
        session = Session(grant["endpoints"]["ws"], token or grant["token"], **more)
        self.addCleanup(session.drop)
        if more.get("carrier", "bearer") != "none":
            session.expect("auth_ok")
        self.deployment.record("GET", urllib.parse.urlsplit(grant["endpoints"]["ws"]), Reply(101, session.headers, b""))
        return session

    def ask(self, method, path, body=None, grant=None, **more):
        grant = grant or self.grant
        return self.deployment.request(method, grant["endpoints"]["http"] + path, body, token=grant["token"], **more)

    def narrowed(self, **link_claims):
        return link(self.grant["token"], compact(link_claims))

    def assert_closed(self, session, code, reason=None, error=None, timeout=20):
        closed = session.wait_closed(timeout)
        self.assertEqual(closed.code, code, (closed, closed.messages))
        if reason is not None:
            self.assertEqual(closed.reason, reason)
        if error is not None:
            self.assertEqual(json.loads(closed.messages[-1])["code"], error, closed.messages)
        return closed

    def wait(self, check, what, seconds=10):
        until = time.monotonic() + seconds
        while not check():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.05)


@needs_root
class Typing(SocketTest):
    def test_a_shell(self):
        with self.open() as session:
            started = session.start(cols=100, rows=30)
            self.assertEqual((started["tty"], started["cols"], started["rows"], started["mode"]), (True, 100, 30, "drive"))
            self.assertEqual((started["stdin_offset"], started["stdout_offset"]), (0, 0))
            session.type("echo $((40+2))-$TERM; tty; stty size; shopt -q login_shell && echo is-lo''gin\n")
            seen = session.until(b"is-login\r\n").decode()
            self.assertIn("42-xterm-256color\r\n", seen)
            self.assertRegex(seen, r"/dev/pts/\d+\r\n30 100\r\n")
            session.type("exit 3\n")
            ended = session.expect("exit")
            self.assertEqual(ended["exit_code"], 3)
            self.assertGreater(ended["usage"]["max_rss"], 100000)
            self.assertEqual(session.errors, b"")
            again = session.start(cmd="echo second; exit 4", tty=False)  # the same socket, another command
            self.assertEqual((again["tty"], "cols" in again), (False, False))
            self.assertEqual(session.expect("exit")["exit_code"], 4)
            self.assertTrue(session.output.endswith(b"second\n"))
            session.close()

    def test_nobody_needs_to_wait(self):
        session = self.open(carrier="none", token="")
        session.tell("auth", token=self.grant["token"])
        session.tell("start", argv=["/bin/cat"], tty=False, ack=True)
        session.type("early ")
        session.type("birds")
        session.tell("eof")
        self.assertEqual(session.expect("exit")["exit_code"], 0)
        self.assertEqual(session.output, b"early birds")
        self.assertEqual(session.acked, 11)

    def test_every_carrier(self):
        for carrier in ("bearer", "query", "protocol", "frame"):
            with self.subTest(carrier=carrier), self.open(carrier=carrier) as session:
                self.assertEqual(session.seen[-1]["scopes"], SCOPES)
                self.assertRegex(session.seen[-1]["expires_at"], r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")
                self.assertEqual(session.headers.get("sec-websocket-protocol"),
                                 "parley.v1" if carrier == "protocol" else None)
                session.start(cmd="exit 7", tty=False)
                self.assertEqual(session.expect("exit")["exit_code"], 7)
        path = self.deployment.node_url.replace("http", "ws") + f"/c/{self.grant['token']}/ws"
        with Session(path) as session:
            session.expect("auth_ok")
        with Session(self.grant["endpoints"]["ws"], self.grant["token"], "frame",
                     headers={"Sec-WebSocket-Protocol": "parley.v1"}) as session:
            session.expect("auth_ok")
            self.assertEqual(session.headers.get("sec-websocket-protocol"), "parley.v1")

    def test_the_size(self):
        with self.open() as session:
            id = session.start(**PROMPT)["id"]
            session.type("trap 'echo changed' WINCH; stty size\n")
            session.until("24 80")
            session.tell("resize", cols=132, rows=43)
            session.until("changed")
            session.type("stty size\n")
            session.until("43 132")
            self.assertEqual(self.ask("POST", f"/processes/{id}/resize", {"cols": 60, "rows": 20}).status, 204)
            session.type("stty size\n")
            session.until("20 60")
            seen = self.ask("GET", f"/processes/{id}").json
            self.assertEqual((seen["tty"], seen["cols"], seen["rows"]), (True, 60, 20))
            session.tell("resize", cols=0, rows=20)
            self.assertEqual(session.expect_error()["code"], "INVALID_REQUEST")
            session.type("exit\n")
            session.expect("exit")
        with self.open() as session:
            session.start(cmd="cat", tty=False)
            session.tell("resize", cols=80, rows=24)
            self.assertEqual(session.expect_error()["code"], "CONFLICT")

    def test_a_size_told_before_it_starts(self):
        with self.open() as session:
            session.tell("start", cmd="sleep 0.3; stty size; exec cat")
            session.tell("resize", cols=90, rows=33)
            session.expect("started")
            session.until("33 90")

    def test_signals_and_control_c(self):
        with self.open() as session:
            session.start(**PROMPT)
            session.type("sleep 100\n")
            time.sleep(0.5)
            session.type("\x03")
            session.type("echo status=$?\n")
            session.until("status=130")
            session.type("sleep 100\n")
            time.sleep(0.5)
            session.tell("signal", signal="INT")
            time.sleep(0.2)
            session.type("echo again=$?\n")
            session.until("again=130")
            session.type("cat\n")
            time.sleep(0.3)
            session.type("\x1a")
            session.until("Stopped")
            session.tell("signal", signal="SIGKILL")
            self.assertEqual(session.expect("exit")["signal"], "SIGKILL")
            session.start(cmd="trap 'echo got; exit 5' TERM; echo set; while :; do sleep 0.05; done", tty=False)
            session.until("set")
            session.tell("signal", signal=15)
            self.assertEqual(session.expect("exit")["exit_code"], 5)
            session.tell("signal", signal="TERM")
            self.assertEqual(session.expect_error()["code"], "CONFLICT")  # nothing is attached

    def test_the_end_of_input(self):
        with self.open() as session:
            session.start(argv=["/bin/cat"])
            session.type("line\n")
            session.until("line\r\nline\r\n")
            session.tell("eof")
            self.assertEqual(session.expect("exit")["exit_code"], 0)
            session.start(argv=["/usr/bin/wc", "-c"], tty=False, ack=True)
            session.type("x" * 500000)
            session.type(b"\xff" * 500000)
            session.tell("eof")
            session.expect("exit")
            self.assertTrue(session.output.endswith(b"1000000\n"))
            self.assertEqual(session.acked, 1000000)

    def test_binary_mode(self):
        every = bytes(range(256)) * 300
        with self.open() as session:
            started = session.start(argv=["/bin/cat"], tty=False, bin=True, ack=True)
            self.assertEqual(started["stdout_offset"], 0)
            session.send(b"\0" + every)
            while len(session.output) < len(every):
                session.next()
            session.tell("eof")
            session.expect("exit")
            self.assertEqual(session.output, every)
            self.assertEqual(session.acked, len(every))
            session.start(cmd="printf 'to\\377err' >&2", tty=False, bin=True)
            session.expect("exit")
            self.assertEqual(session.errors, b"to\xfferr")
            session.start(cmd="stty raw -echo; echo ready; exec cat", bin=True)
            session.until("ready")
            session.send(b"\0" + every[:256])
            session.until(every[:256])

    def test_bytes_that_are_not_text(self):
        with self.open() as session:
            session.start(cmd="printf 'a\\377b'; printf 'cut \\303'; sleep 0.2; printf '\\251'", tty=False)
            session.expect("exit")
            self.assertEqual(session.output, b"a\xffbcut \xc3\xa9")

    def test_input_has_its_place(self):
        with self.open() as session:
            id = session.start(argv=["/bin/cat"], tty=False, ack=True)["id"]
            session.type("hello ", offset=0)
            session.type("lo world", offset=3)  # three of these are there already
            session.until("hello world")
            self.wait_ack(session, 11)
            session.type("late", offset=100)
            self.assertEqual(session.expect_error()["code"], "RANGE_NOT_SATISFIABLE")
            again = self.ask("POST", f"/processes/{id}/stdin?offset=6", b"world!")
            self.assertEqual((again.status, again.json), (200, {"stdin_offset": 12}))
            session.until("hello world!")
            self.assertEqual(self.ask("POST", f"/processes/{id}/stdin?offset=13", b"x").status, 416)
            self.assertEqual(self.ask("POST", f"/processes/{id}/stdin?eof=1").json, {"stdin_offset": 12})
            self.assertEqual(session.expect("exit")["exit_code"], 0)

    def wait_ack(self, session, offset):
        while session.acked != offset:
            session.next()

    def test_what_a_command_does_not_read_is_bounded(self):
        before = self.front_memory()
        with self.open() as session:
            id = session.start(cmd="echo begun; sleep 6; exec wc -c", tty=False, bin=True)["id"]
            session.until("begun")
            session.socket.settimeout(1.5)
            sent, block = 0, b"\0" + b"z" * 65535
            with self.assertRaises(TimeoutError):
                while sent < 64 << 20:
                    session.send(block)
                    sent += 65535
            self.assertLess(sent, 20 << 20)
            self.assertLess(self.front_memory() - before, 40 << 20)
            # The last frame went out in part; the sandbox is as usable as ever beside it.
            self.assertEqual(self.deployment.shell(self.grant, "echo fine"), "fine\n")
            self.ask("DELETE", f"/processes/{id}")

    def front_memory(self):
        """Bytes of the front: of this deployment's two processes the one without rights."""
        for pid in self.deployment.pids("parley-sandboxd"):
            with open(f"/proc/{pid}/status") as status:
                text = status.read()
            if not re.search(r"^Uid:\s+0\s", text, re.M):
                return int(re.search(r"^VmRSS:\s+(\d+)", text, re.M)[1]) << 10
        self.fail("no front")


@needs_root
class DriveAndWatch(SocketTest):
    def test_both_see_the_same(self):
        watch_token = self.narrowed(scope="shell:ro")
        with self.open() as driver, self.open(watch_token) as watcher:
            id = driver.start(**PROMPT)["id"]
            told = watcher.attach(id, mode="watch")
            self.assertEqual((told["mode"], told["tty"], told["cols"]), ("watch", True, 80))
            driver.type("echo bo''th\n")
            driver.until("both")
            watcher.until("both")
            for frame in ({"type": "stdin", "data": "echo no\n"}, {"type": "eof"}, {"type": "signal", "signal": "KILL"},
                          {"type": "resize", "cols": 1, "rows": 1}):
                watcher.send(json.dumps(frame))
                self.assertEqual(watcher.expect_error()["code"], "CAPABILITY_DENIED", frame)
            driver.type("stty size; echo e''nd\n")
            driver.until("end")
            watcher.until("end")
            self.assertIn(b"24 80", watcher.output)
            both = min(len(driver.output), len(watcher.output))  # the next prompt may have reached one of them
            self.assertEqual(driver.output[:both], watcher.output[:both])
            with self.open() as second:  # a second driver, who comes late
                second.attach(id, stdout_offset=driver.position["stdout"])
                second.type("echo by-sec''ond\n")
                for session in (driver, watcher, second):
                    session.until("by-second")
                self.assertFalse(second.output.startswith(driver.output[:20]))
            driver.type("exit 9\n")
            self.assertEqual(driver.expect("exit")["exit_code"], 9)
            self.assertEqual(watcher.expect("exit")["exit_code"], 9)

    def test_a_terminal_outlives_its_socket_and_replays(self):
        session = self.open()
        id = session.start(id="lives-on", **PROMPT)["id"]
        session.type("echo be''fore\n")
        session.until("before")
        kept = session.output
        session.drop()
        listed = self.ask("GET", "/terminals").json["terminals"]
        self.assertIn((id, "running"), [(t["id"], t["state"]) for t in listed])
        self.assertTrue(all(t["tty"] for t in listed))
        with self.open() as session:
            told = session.attach(id)
            self.assertEqual(told["stdout_offset"], 0)
            self.assertGreater(told["stdin_offset"], 0)
            session.until("before")
            self.assertTrue(session.output.startswith(kept))
            session.type("echo af''ter\n")
            session.until("after")
        with self.open() as session:
            session.attach(id, stdout_offset=len(kept))
            session.until("after")
            self.assertNotIn(b"before", session.output)
            session.tell("attach", id="again")
            self.assertEqual(session.expect_error()["code"], "CONFLICT")
        with self.open() as session:
            session.tell("attach", id=id, stdout_offset=10 ** 9)
            self.assertEqual(session.expect_error()["code"], "RANGE_NOT_SATISFIABLE")
            session.tell("attach", id="nobody")
            self.assertEqual(session.expect_error()["code"], "NOT_FOUND")
            session.attach(id)
            session.type("exit\n")
            session.expect("exit")
            session.attach(id)  # it has ended: its output and its end, again
            self.assertEqual(session.expect("exit")["exit_code"], 0)

    def test_the_same_id_attaches(self):
        with self.open() as one, self.open() as other:
            one.start(id="same", **PROMPT)
            one.type("echo he''re\n")
            one.until("here")
            other.start(id="same", **PROMPT)
            other.until(b"here\r\n\x1b[?2004h$ ")  # it reads again: a ^D typed while echo runs would not be bash's
            other.tell("eof")
            self.assertEqual(one.expect("exit")["exit_code"], 0)
            other.expect("exit")
            other.tell("start", id="same", argv=["/bin/true"])
            self.assertEqual(other.expect_error()["code"], "CONFLICT")

    def test_a_slow_watcher_gets_a_gap_and_slows_nobody(self):
        size = 60 << 20
        with self.open() as driver, self.open(receive_buffer=4096) as slow:
            id = driver.start(cmd=f"read x; head -c {size} /dev/zero; echo; echo done", tty=False, bin=True)["id"]
            slow.attach(id, mode="watch", bin=True)
            driver.send(b"\0go\n")
            started = time.monotonic()
            total, gaps = 0, 0
            while True:
                message = driver.receive(30)
                if isinstance(message, bytes):
                    total += len(message) - 1
                else:
                    told = json.loads(message)
                    gaps += told["type"] == "gap"
                    if told["type"] == "exit":
                        break
            seconds = time.monotonic() - started
            self.assertEqual((total, gaps), (size + 6, 0))
            self.assertLess(seconds, 20)
            ended = slow.expect("exit", 30)
            self.assertEqual(ended["exit_code"], 0)
            self.assertTrue(slow.gaps)
            self.assertEqual(slow.position["stdout"], size + 6)
            self.assertTrue(slow.output.endswith(b"\ndone\n"))

    def test_a_slow_driver_is_waited_for(self):
        with self.open(receive_buffer=4096) as driver:
            id = driver.start(cmd="seq 1 3000000", tty=False, bin=True)["id"]
            time.sleep(2)
            self.assertEqual(self.ask("GET", f"/processes/{id}").json["state"], "running")
            driver.expect("exit", 60)
            self.assertEqual(driver.gaps, [])
            self.assertEqual(driver.output, b"".join(b"%d\n" % n for n in range(1, 3000001)))


@needs_root
class Tokens(SocketTest):
    def test_scopes(self):
        terminal = self.open()
        id = terminal.start(**PROMPT)["id"]
        with self.open() as plain:
            other = plain.start(argv=["/bin/cat"], tty=False)["id"]
            for scope, allowed in (("shell:ro", {"watch"}), ("shell", {"watch", "drive", "start"}),
                                   ("process", {"watch", "drive", "start-plain", "drive-plain", "watch-plain"})):
                for deed, tell in (("watch", dict(type="attach", id=id, mode="watch")),
                                   ("drive", dict(type="attach", id=id)),
                                   ("watch-plain", dict(type="attach", id=other, mode="watch")),
                                   ("drive-plain", dict(type="attach", id=other)),
                                   ("start", dict(type="start", argv=["/bin/true"])),
                                   ("start-plain", dict(type="start", argv=["/bin/true"], tty=False))):
                    with self.subTest(scope=scope, deed=deed), self.open(self.narrowed(scope=scope)) as session:
                        session.send(json.dumps(tell))
                        if deed in allowed:
                            session.expect("started")
                        else:
                            self.assertEqual(session.expect_error()["code"], "CAPABILITY_DENIED")
        terminal.type("exit\n")
        terminal.expect("exit")
        narrow = self.narrowed(scope="shell:ro")
        self.assertEqual(self.deployment.request("GET", self.grant["endpoints"]["http"] + "/terminals", token=narrow).status,
                         200)
        self.assertEqual(self.deployment.request("GET", self.grant["endpoints"]["http"] + "/processes", token=narrow).status,
                         403)

    def test_what_is_refused_at_the_door(self):
        useless = self.narrowed(scope="fs:ro")
        for token, status, code, reason in ((useless, 403, 4403, "CAPABILITY_DENIED"),
                                            (self.grant["token"][:-3] + "AAA", 401, 4401, "UNAUTHENTICATED"),
                                            (self.narrowed(exp=int(time.time()) - 60), 401, 4401, "TOKEN_EXPIRED")):
            with self.subTest(reason=reason):
                with self.assertRaises(Refused) as refused:
                    self.open(token)
                self.assertEqual(refused.exception.status, status)
                session = self.open(token, carrier="none")
                session.tell("auth", token=token)
                self.assert_closed(session, code, reason, error=reason)
        with self.assertRaises(Refused) as refused:
            Session(self.grant["endpoints"]["ws"] + "?token=" + useless, self.grant["token"])
        self.assertEqual(refused.exception.status, 400)

    def open(self, token=None, carrier="bearer", **more):
        if carrier == "none":
            session = Session(self.grant["endpoints"]["ws"], **more)
            self.addCleanup(session.drop)
            return session
        return super().open(token, carrier=carrier, **more)

    def test_the_end_of_a_token_and_a_fresh_one(self):
        until = int(time.time()) + 4
        short = self.narrowed(exp=until)
        with self.open(short) as dying, self.open(short) as living:
            self.assertLessEqual(dying.expect("expiring")["in"], 4)
            living.expect("expiring")
            id = living.start(**PROMPT)["id"]
            dying.attach(id)
            living.tell("auth", token=self.grant["token"])
            living.expect("auth_ok")
            self.assert_closed(dying, 4401, "TOKEN_EXPIRED", error="TOKEN_EXPIRED")
            self.assertGreaterEqual(time.time(), until)
            self.assertLess(time.time(), until + 1.5)
            living.type("echo still-h''ere\n")
            living.until("still-here")
            living.type("exit\n")
            living.expect("exit")

    def test_a_fresh_token_of_another_is_refused(self):
        other = self.deployment.negotiate("another-thread", scopes=SCOPES)
        foreign = self.forge.token(sub="somebody-else")
        stranger = self.forge.token(lease="lse_" + "0" * 20)
        with self.open() as session:
            id = session.start(**PROMPT)["id"]
            for token, code in ((other["token"], "UNAUTHENTICATED"), (foreign, "FORBIDDEN"), (stranger, "FORBIDDEN"),
                                ("nonsense", "UNAUTHENTICATED")):
                session.tell("auth", token=token)
                self.assertEqual(session.expect_error()["code"], code)
            session.type("echo un''harmed\n")
            session.until("unharmed")
            session.tell("auth", token=self.narrowed(scope="shell:ro"))
            session.expect("auth_ok")
            self.assertEqual(session.expect_error()["code"], "CAPABILITY_DENIED")
            told = session.expect("started")
            self.assertEqual((told["id"], told["mode"], told["stdout_offset"]), (id, "watch", session.position["stdout"]))
            session.type("echo no\n")
            self.assertEqual(session.expect_error()["code"], "CAPABILITY_DENIED")
            with self.open() as driver:
                driver.attach(id)
                driver.type("echo watch''ed\n")
                session.until("watched")
            session.tell("auth", token=self.narrowed(scope="fs:ro"))
            self.assert_closed(session, 4403, "CAPABILITY_DENIED", error="CAPABILITY_DENIED")
        self.ask("DELETE", f"/processes/{id}")

    def test_a_driver_that_may_nothing_any_more_is_cut(self):
        with self.open() as session:
            id = session.start(argv=["/bin/cat"], tty=False)["id"]
            session.tell("auth", token=self.narrowed(scope="shell"))
            session.expect("auth_ok")
            self.assert_closed(session, 4403, "CAPABILITY_DENIED", error="CAPABILITY_DENIED")
        self.ask("DELETE", f"/processes/{id}")

    def test_a_refresh_goes_on_and_revocation_looks_at_the_newest(self):
        grant = self.deployment.negotiate("refreshed", scopes=SCOPES)
        with Session(grant["endpoints"]["ws"], grant["token"]) as session:
            session.expect("auth_ok")
            session.start(id="kept", **PROMPT)
            fresh = self.deployment.request("POST", "/threads/refreshed/sandbox/refresh", {"current_token": grant["token"]})
            self.assertEqual(fresh.status, 200, fresh)
            session.tell("auth", token=fresh.json["token"])
            session.expect("auth_ok")
            session.type("echo fre''sh\n")
            session.until("fresh")
            done = self.deployment.request("POST", "/revocations", {"jti": grant["jti"], "reason": "the old one"})
            self.assertIn(done.status, (200, 202), done)
            session.type("echo un''cut\n")
            session.until("uncut")
            begun = time.monotonic()
            done = self.deployment.request("POST", "/revocations", {"jti": fresh.json["jti"], "reason": "the new one"})
            self.assertEqual(done.status, 200, done)
            self.assert_closed(session, 4401, "TOKEN_REVOKED", error="TOKEN_REVOKED", timeout=5)
            self.assertLess(time.monotonic() - begun, 3)
        again = self.deployment.negotiate("refreshed", scopes=SCOPES)  # the terminal lives on
        with Session(again["endpoints"]["ws"], again["token"]) as session:
            session.expect("auth_ok")
            session.attach("kept")
            session.until("uncut")

    def test_the_end_of_the_sandbox(self):
        grant = self.deployment.negotiate("ending", scopes=SCOPES)
        with Session(grant["endpoints"]["ws"], grant["token"]) as attached, \
                Session(grant["endpoints"]["ws"], grant["token"]) as idle:
            attached.expect("auth_ok")
            idle.expect("auth_ok")
            attached.start(**PROMPT)
            self.assertEqual(self.deployment.request("DELETE", f"/sandboxes/{grant['sandbox']['id']}").status, 204)
            for session in (attached, idle):
                closed = session.wait_closed(20)
                self.assertIn((closed.code, closed.reason.split(":")[0]),
                              ((4410, "the sandbox has ended"), (4410, "the sandbox is ending"), (4401, "TOKEN_REVOKED")))

    def test_a_sandbox_that_ends_by_itself(self):
        grant = self.deployment.negotiate("short", scopes=SCOPES, max_lifetime=4)
        token = Forge(self.deployment, grant).token(exp=int(time.time()) + 600)  # it outlives its sandbox
        with Session(grant["endpoints"]["ws"], token) as attached, Session(grant["endpoints"]["ws"], token) as idle:
            attached.expect("auth_ok")
            idle.expect("auth_ok")
            attached.start(**PROMPT)
            for session in (attached, idle):
                closed = self.assert_closed(session, 4410, error="GONE")
                self.assertIn("max_lifetime", closed.reason)
            with self.assertRaises(Refused) as refused:
                Session(grant["endpoints"]["ws"], token)
            self.assertEqual(refused.exception.status, 410)
            late = Session(grant["endpoints"]["ws"], token, "frame")
            self.assert_closed(late, 4410, error="GONE")

    def test_the_audit(self):
        token, reader = self.narrowed(note="for-the-audit"), "tok_" + "d" * 20
        with self.open(token) as session:
            id = session.start(id="audited", **PROMPT)["id"]
            for again in (token, self.forge.token(jti="tok_" + "f" * 20)):  # the same; a fresh one
                session.tell("auth", token=again)
                session.expect("auth_ok")
            session.type(":\n")
            for _ in range(2):
                another = self.forge.token(jti="tok_" + "e" * 20)
                self.deployment.request("POST", self.grant["endpoints"]["http"] + f"/processes/{id}/stdin", b":\n", token=another)
            session.type("exit\n")
            session.expect("exit")
        with self.open(link(self.forge.token(jti=reader), compact({"scope": "shell:ro"}))) as session:
            for frame in (dict(type="attach", id=id), dict(type="start")):
                session.send(json.dumps(frame))
                self.assertEqual(session.expect_error()["code"], "CAPABILITY_DENIED")
            session.attach(id, mode="watch")
            session.expect("exit")
        with self.open() as session:  # it was there already
            session.start(id="audited", **PROMPT)
            session.expect("exit")

        def records():
            found = self.deployment.request("GET", "/audit?all=1&limit=1000").json["records"]
            return sorted((r["action"], r["detail"].split(" ")[1] if r["action"] == "terminal.attach" else "", r["jti"])
                          for r in found if f"id={id}" in r["detail"] or reader == r["jti"] and "frame=" in r["detail"])
        jti = self.grant["jti"]
        wanted = sorted([("terminal", "", jti), ("stdin", "", "tok_" + "e" * 20),
                         ("stdin", "", "tok_" + "f" * 20), ("exec.end", "", jti),
                         ("terminal.attach", "mode=drive", "tok_" + "f" * 20), ("terminal.attach", "mode=watch", reader),
                         ("terminal.attach", "mode=drive", jti), ("refuse", "", reader), ("refuse", "", reader)])
        self.wait(lambda: len(records()) >= len(wanted), "the records")
        self.assertEqual(records(), wanted)


@needs_root
class ComingBack(SocketTest):
    def again(self, id, session):
        """Another socket, where `session` stopped; its `sent` goes on behind what was accepted."""
        until = time.monotonic() + 20
        while True:
            try:
                fresh = self.open()
                fresh.tell("attach", id=id, stdout_offset=session.position["stdout"], ack=True)
                told = fresh.next(5)
                while not told or told["type"] not in ("started", "error"):
                    told = fresh.next(5)
                if told["type"] == "started":
                    fresh.output = session.output
                    return fresh, told["stdin_offset"]
            except (OSError, Refused, Closed, TimeoutError):
                pass
            self.assertLess(time.monotonic(), until, "the node did not come back")
            time.sleep(0.02)

    def test_every_number_once_through_kills(self):
        session = self.open()
        id = session.start(cmd="for i in $(seq 1 3000); do echo $i; [ $((i % 20)) -eq 0 ] && sleep 0.02; done", ack=True)["id"]
        ended, kills, next_kill = None, 0, time.monotonic() + 0.4
        while not ended:
            try:
                told = session.next(0.2)
                ended = told if told and told["type"] == "exit" else None
            except TimeoutError:
                pass
            except Closed:
                session, _ = self.again(id, session)
            if kills < 3 and time.monotonic() > next_kill:
                self.deployment.kill("parley-sandboxd")
                kills, next_kill = kills + 1, time.monotonic() + 0.8
        self.assertEqual(kills, 3)
        self.assertEqual(ended["exit_code"], 0)
        self.assertEqual(session.output, b"".join(b"%d\r\n" % n for n in range(1, 3001)))

    def test_every_key_once_through_kills(self):
        text = "".join(f"{n:05}\n" for n in range(2000))
        session = self.open()
        id = session.start(cmd="stty raw -echo; echo; exec cat", ack=True)["id"]
        session.until("\n")
        skip = len(session.output)
        sent, kills = 0, 0
        while len(session.output) - skip < len(text):
            try:
                if sent < len(text):
                    session.type(text[sent:sent + 40], offset=sent)
                    sent += 40
                if kills < 2 and sent > 3000 * (kills + 1):
                    kills += 1
                    self.deployment.kill("parley-sandboxd")
                session.next(0.01 if sent < len(text) else 5)
            except TimeoutError:
                pass
            except (OSError, Closed):
                session, sent = self.again(id, session)
        self.assertEqual(session.output[skip:].decode(), text)
        self.assertEqual(kills, 2)
        self.ask("DELETE", f"/processes/{id}")

    def test_a_server_that_stops_says_so(self):
        with Deployment() as deployment:
            grant = deployment.negotiate("stops", scopes=SCOPES)
            with Session(grant["endpoints"]["ws"], grant["token"]) as session, \
                    Session(grant["endpoints"]["ws"]) as waiting:
                session.expect("auth_ok")
                session.start(**PROMPT)
                begun = time.monotonic()
                for pid in deployment.pids("parley-sandboxd"):
                    os.kill(pid, signal.SIGTERM)
                self.assertEqual(session.wait_closed(10).code, 1001)
                self.assertIn(waiting.wait_closed(10).code, (1001, 4401))
                self.assertLess(time.monotonic() - begun, 5)


@needs_root
class RawOutput(SocketTest):
    def test_the_bytes_and_nothing_else(self):
        size = 30 << 20
        self.assertEqual(self.ask("POST", "/exec", {"cmd": f"seq 1 99999999 | head -c {size}; printf 'e\\377r' >&2",
                                                    "id": "raw", "detach": True}).status, 201)
        reply = self.ask("GET", "/processes/raw/output?raw=stdout&follow=1&drive=1", record=False)
        self.assertEqual((reply.status, reply.headers["content-type"]), (200, "application/octet-stream"))
        self.assertEqual(reply.headers["x-content-type-options"], "nosniff")
        self.assertEqual(len(reply.body), size)
        self.assertTrue(reply.body.startswith(b"1\n2\n3\n"))
        tail = reply.body[-1000:]
        offset = size - 1000
        again = self.ask("GET", f"/processes/raw/output?raw=stdout&stdout_offset={offset}")
        self.assertEqual((again.status, again.body), (200, tail))
        self.assertEqual(self.ask("GET", "/processes/raw/output?raw=stderr").body, b"e\xffr")
        gone = self.ask("GET", "/processes/raw/output?raw=stdout&follow=1")
        self.assertEqual((gone.status, gone.code), (416, "RANGE_NOT_SATISFIABLE"))
        kept = int(re.search(r"from byte (\d+)", gone.json["error"]["message"])[1])
        self.assertLessEqual(size - kept, 6 << 20)  # the last MiB, and what a driver may be behind
        self.assertEqual(len(self.ask("GET", f"/processes/raw/output?raw=stdout&stdout_offset={kept}").body), size - kept)

    def test_every_byte_is_right(self):
        command = {"cmd": "echo 0; read go; seq 1 1500000", "id": "numbers", "stdin_open": True, "detach": True}
        self.assertEqual(self.ask("POST", "/exec", command).status, 201)
        base = urllib.parse.urlsplit(self.grant["endpoints"]["http"])
        connection = http.client.HTTPConnection(base.hostname, base.port, timeout=60)
        connection.request("GET", base.path + "/processes/numbers/output?raw=stdout&follow=1&drive=1",
                           headers={"Authorization": "Bearer " + self.grant["token"]})
        answer = connection.getresponse()
        self.assertEqual(answer.read(2), b"0\n")  # from now on the command waits for this reader
        self.assertEqual(self.ask("POST", "/processes/numbers/stdin", b"go\n").status, 200)
        body = answer.read()
        connection.close()
        self.assertEqual(body, b"".join(b"%d\n" % n for n in range(1, 1500001)))

    def test_a_word_to_a_driver_with_a_full_socket_stops_nothing(self):
        size = 3 << 20
        with Session(self.grant["endpoints"]["ws"], self.grant["token"], receive_buffer=65536) as session:
            id = session.start(cmd=f"head -c {size} /dev/zero", bin=True)["id"]
            until = time.monotonic() + 20  # nothing more comes that would have the rest looked at
            while self.ask("GET", f"/processes/{id}").json["state"] != "ended" and time.monotonic() < until:
                time.sleep(0.02)
            until = time.monotonic() + 20
            while session.position["stdout"] < size and time.monotonic() < until:
                session.tell("ping")
                session.next(20)
            self.assertEqual(len(session.output), size)

    def test_it_does_not_wait_for_the_other_stream(self):
        self.assertEqual(self.ask("POST", "/exec", {"cmd": "sleep 0.5; head -c 20000000 /dev/zero >&2; echo end",
                                                    "id": "other", "detach": True}).status, 201)
        self.assertEqual(self.ask("GET", "/processes/other/output?raw=stdout&follow=1&drive=1").body, b"end\n")

    def test_events_that_drive(self):
        self.assertEqual(self.ask("POST", "/exec", {"cmd": "sleep 0.5; seq 1 2000000", "id": "drive", "detach": True}).status,
                         201)
        events = self.ask("GET", "/processes/drive/output?follow=1&drive=1", record=False).events
        self.assertNotIn("gap", {event["type"] for event in events})
        self.assertEqual("".join(e["data"] for e in events if e["type"] == "stdout").count("\n"), 2000000)


if __name__ == "__main__":
    unittest.main()
