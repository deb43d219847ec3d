"""Commands as OpenSandbox clients run them, byte by byte on the wire: the framing of streams, lines and how ends are told,
what happens to a client that leaves or does not read, output made to hurt, commands in the background; and the verbs of our
own that these stand on."""
import json
import os
import re
import signal
import socket
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.execd import PATIENCE_S, PORT, Stream, until  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402

HUGE = 40_000_000  # of bytes without the end of a line; PARLEY_TEST_HUGE for more
MEMORY_MIB = 400  # of which the sanitizers keep 256 of what was freed


@needs_root
class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(tls=False)
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("execd", resources={"memory_mb": 512}, env={"PLACE": "/usr/lib"})
        cls.base = cls.grant["endpoints"]["http"]

    def ask(self, method, path, body=None, token=None, **more):
        return self.deployment.request(method, self.base + PORT + path, body, token=token or self.grant["token"],
                                       timeout=PATIENCE_S, **more)

    def events(self, command, **more):
        reply = self.ask("POST", "/command", dict(command=command, **more))
        self.assertEqual(reply.status, 200, reply)
        self.assertTrue(reply.body.endswith(b"}\n\n"), reply.body[-100:])
        return [json.loads(event) for event in reply.body.decode()[:-2].split("\n\n")]

    def output(self, command, stream="stdout", **more):
        return [event["text"] for event in self.events(command, **more) if event["type"] == stream]

    def error_of(self, command, **more):
        """What its error event says; exactly that one ends it."""
        events = self.events(command, **more)
        self.assertEqual([event["type"] for event in events if event["type"] in ("error", "execution_complete")], ["error"])
        self.assertEqual(events[-1]["error"]["ename"], "CommandExecError")
        return events[-1]["error"]["evalue"], events[-1]["error"]["traceback"]

    def background(self, command, **more):
        events = self.events(command, background=True, **more)
        self.assertEqual([event["type"] for event in events], ["init", "ping", "execution_complete"])
        return events[0]["text"]

    def status(self, command):
        reply = self.ask("GET", f"/command/status/{command}")
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def ended(self, command):
        return until(lambda: (lambda one: None if one["running"] else one)(self.status(command)))

    # ---- streams ----

    def test_the_bytes_of_a_stream(self):
        """Framing as OpenSandbox's daemon has it: no `data:`, a blank line behind each, headers to the letter."""
        parts = urllib.parse.urlsplit(self.base)
        body = json.dumps({"command": "echo one; echo two >&2"}).encode()
        with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S) as raw:
            raw.sendall(f"POST {parts.path}{PORT}/command HTTP/1.1\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: {self.grant['token']}\r\n"
                        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            seen = b"".join(iter(lambda: raw.recv(65536), b""))
        head, _, rest = seen.partition(b"\r\n\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])}
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "), head)
        self.assertEqual([headers.get(name) for name in ("content-type", "cache-control", "x-accel-buffering", "transfer-encoding")],
                         ["text/event-stream", "no-cache", "no", "chunked"])
        self.assertNotIn("content-length", headers)
        self.assertTrue(rest.endswith(b"\r\n0\r\n\r\n"), rest[-40:])
        text, at = b"", 0
        while at < len(rest):
            size = int(rest[at:rest.index(b"\r\n", at)], 16)
            at = rest.index(b"\r\n", at) + 2
            text, at = text + rest[at:at + size], at + size + 2
        shapes = [rb'\{"type":"init","text":"[A-Za-z0-9_.-]+","timestamp":\d{13}\}', rb'\{"type":"ping","text":"pong","timestamp":\d{13}\}',
                  rb'\{"type":"stdout","text":"one","timestamp":\d{13}\}', rb'\{"type":"stderr","text":"two","timestamp":\d{13}\}',
                  rb'\{"type":"execution_complete"(,"execution_time":\d+)?,"timestamp":\d{13}\}']
        found = text.split(b"\n\n")
        self.assertEqual(found.pop(), b"")
        self.assertEqual(len(found), len(shapes), text)
        for shape in shapes:  # the two streams may come in either order
            self.assertEqual(sum(re.fullmatch(shape, event) is not None for event in found), 1, (shape, text))
        self.assertTrue(re.fullmatch(shapes[0], found[0]) and re.fullmatch(shapes[1], found[1]) and re.fullmatch(shapes[-1], found[-1]))

    def test_pings_go_on(self):
        pings = [event["timestamp"] for event in self.events("sleep 4") if event["type"] == "ping"]
        self.assertEqual(len(pings), 2, pings)
        self.assertGreaterEqual(pings[1] - pings[0], 2900)

    def test_the_stream_ends_with_its_process(self):
        """Not with those it left behind, who still hold its output open."""
        events = self.events("sleep 600 & echo over")
        self.assertEqual([event["type"] for event in events], ["init", "ping", "stdout", "execution_complete"])
        self.assertEqual(self.events("sh -c 'sleep 600 &' ; exit 4")[-1]["error"]["evalue"], "4")

    def test_output_comes_at_once(self):
        stream = Stream(self, PORT + "/command", {"command": "rm -f /tmp/go; echo ready; until [ -e /tmp/go ]; do sleep 0.05; done; echo gone"})
        self.addCleanup(stream.close)
        seen = [stream.next()["type"], stream.next()["type"], stream.next()["text"]]
        self.assertEqual(seen, ["init", "ping", "ready"])
        self.events("touch /tmp/go")
        self.assertIn("gone", [event.get("text") for event in stream.rest()])

    def test_lines(self):
        for written, told in ((r"a\nb\n", ["a", "b"]), (r"a\n\nb", ["a", "\n", "b"]), (r"a\r\nb\rc\n", ["a", "b", "c"]),
                              (r"10%%\r50%%\r100%%", ["10%", "50%", "100%"]), (r"", []), (r"\n", ["\n"]), (r"  a \t\n", ["  a \t"]),
                              (r"gr\303\274n\n", ["grün"])):
            self.assertEqual(self.output(f"printf '{written}'"), told, written)
            self.assertEqual(self.output(f"printf '{written}' >&2", "stderr"), told, written)

    def test_a_line_that_comes_in_parts_is_one(self):
        self.assertEqual(self.output(r"printf 'a\303'; sleep 0.2; printf '\274b'; sleep 0.2; echo c"), ["aübc"])

    def test_ends(self):
        for code in (1, 3, 126, 255):
            self.assertEqual(self.error_of(f"exit {code}"), (str(code), [f"exit status {code}"]))
        self.assertEqual(self.error_of("no-such-command")[0], "127")
        for signal, told in (("KILL", "killed"), ("TERM", "terminated"), ("SEGV", "segmentation fault"), ("INT", "interrupt")):
            self.assertEqual(self.error_of(f"kill -{signal} $$"), ("-1", [f"signal: {told}"]))
        self.assertEqual(self.error_of("echo begun; sleep 600", timeout=300), ("-1", ["signal: killed"]))
        self.assertEqual(self.events("true", timeout=0)[-1]["type"], "execution_complete")

    def test_what_is_refused(self):
        """As ordinary JSON, with this dialect's words, before anything runs."""
        for body, code in (({}, 400), ({"command": ""}, 400), ({"command": 1}, 400), ({"command": "true", "gid": 1000}, 400),
                           ({"command": "true", "uid": 4242}, 400), ({"command": "true", "timeout": -1}, 400),
                           ({"command": "touch /tmp/ran", "cwd": "/no/such"}, 400), ({"command": "true", "envs": {"A=B": "1"}}, 400),
                           ({"command": "true", "cwd": "$NO_SUCH_VARIABLE/x"}, 400), ([], 400), (b"{", 400), (b"\xff", 400)):
            reply = self.ask("POST", "/command", body)
            self.assertEqual((reply.status, sorted(reply.json), reply.json["code"]),
                             (code, ["code", "message"], "INVALID_REQUEST_BODY"), (body, reply))
            self.assertEqual(reply.headers["content-type"], "application/json")
        self.assertEqual(self.error_of("test -e /tmp/ran")[0], "1")
        self.assertEqual(self.ask("DELETE", "/command").json["code"], "MISSING_QUERY")
        for method, path in (("GET", "/ping"), ("POST", "/command"), ("GET", "/command/status/x")):
            reply = self.deployment.request(method, self.base + PORT + path, {} if method == "POST" else None)
            self.assertEqual((reply.status, list(reply.json)), (401, ["error"]), reply)
            self.assertTrue(reply.json["error"].startswith("Unauthorized: "))

    def test_what_clients_of_tomorrow_send(self):
        self.assertEqual(self.output("echo x", cwd=None, background=None, timeout=None, uid=None, envs=None, of_tomorrow={"a": 1}), ["x"])

    def test_ping(self):
        reply = self.ask("GET", "/ping")
        self.assertEqual((reply.status, reply.body, reply.headers["content-length"]), (200, b"", "0"))

    def test_a_paused_sandbox_does_not_answer_pings(self):
        """And is not woken by them; by a command it is."""
        grant = self.deployment.negotiate("execd-paused")
        base, sandbox = grant["endpoints"]["http"] + PORT, grant["sandbox"]["id"]
        self.assertEqual(self.deployment.request("POST", f"/sandboxes/{sandbox}/pause", {}).status, 200)
        for _ in range(2):
            reply = self.deployment.request("GET", base + "/ping", token=grant["token"])
            self.assertEqual((reply.status, reply.json["code"]), (503, "RUNTIME_ERROR"))
        reply = self.deployment.request("POST", base + "/command", {"command": "true"}, token=grant["token"], timeout=PATIENCE_S)
        self.assertEqual(reply.status, 200)
        self.assertEqual(self.deployment.request("GET", base + "/ping", token=grant["token"]).status, 200)

    def test_folder_variables_and_user(self):
        self.assertEqual(self.output("pwd", cwd="/tmp"), ["/tmp"])
        home = self.output("echo $HOME")[0]
        for cwd, where in (("~", home), ("~/", home), ("$PLACE", "/usr/lib"), ("${PLACE}/..", "/usr"), ("", "/workspace"), (".", "/workspace")):
            self.assertEqual(self.output("pwd", cwd=cwd), [where], cwd)
        self.assertEqual(self.output("echo $A-$PLACE; cat", envs={"A": "1 2", "PLACE": "mine"}), ["1 2-mine"])
        self.assertEqual(self.output("id -u; id -g", uid=1000, gid=1000), ["1000", "1000"])
        told = self.error_of("id -u", uid=0)  # this node allows no root: it could not be started
        self.assertIn("root", told[0])
        self.assertFalse(told[0].lstrip("-").isdigit())

    # ---- those who leave, and those who do not read ----

    def test_a_client_that_leaves_stops_nothing(self):
        stream = Stream(self, PORT + "/command", {"command": "rm -f /tmp/survived; echo begun; sleep 1; echo more; echo done > /tmp/survived"})
        while stream.next()["type"] != "stdout":
            pass
        stream.close()
        until(lambda: self.events("cat /tmp/survived")[-1]["type"] == "execution_complete")

    def memory_of_front(self):
        """VmRSS in MiB of the largest process of this node's sandboxd."""
        sizes = []
        for pid in self.deployment.pids("parley-sandboxd"):
            with open(f"/proc/{pid}/status") as status:
                sizes += [int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS:")]
        return max(sizes)

    def test_clients_that_do_not_read(self):
        """A flood of blank lines, each thirty times as long as an event: the command waits, and nobody else does."""
        before = self.memory_of_front()
        streams = [Stream(self, PORT + "/command", {"command": command}) for command in ["yes $(seq 1 300)"] + ["yes ''"] * 7]
        for stream in streams:
            self.addCleanup(stream.close)
        self.assertEqual(self.output("echo others"), ["others"])
        time.sleep(1)
        self.assertEqual(self.output("echo others"), ["others"])
        self.assertLess(self.memory_of_front() - before, MEMORY_MIB)
        commands = [stream.next()["text"] for stream in streams]
        for command in commands:
            self.assertEqual(self.ask("DELETE", f"/command?id={command}").status, 200)
        last = [event["type"] for event in streams[0].rest()][-1]  # one that reads on after all sees the end
        self.assertEqual(last, "error")
        for command in commands:
            self.ended(command)

    def test_a_line_without_an_end(self):
        """Comes in pieces that any client's parser takes; none of it is lost, and it costs no memory."""
        size = int(os.environ.get("PARLEY_TEST_HUGE", HUGE))
        before, largest, told, last = self.memory_of_front(), 0, 0, None
        stream = Stream(self, PORT + "/command", {"command": f"head -c {size} /dev/zero | tr '\\0' '\\1'; echo; echo after"})
        self.addCleanup(stream.close)
        for line in stream.reply:  # \u0001: six times as long
            if line != b"\n":
                largest = max(largest, len(line))
                told += line.count(b"\\u0001")
                last, before_last = line, last
        self.assertEqual(told, size)
        self.assertLess(largest, 4 * 1024 * 1024)  # a Go client's longest line
        self.assertEqual(json.loads(before_last)["text"], "after")
        self.assertLess(self.memory_of_front() - before, MEMORY_MIB)

    def test_bytes_that_are_no_text(self):
        self.assertEqual(self.output(r"printf 'a\0b\377c\300\200\355\240\200\n'"), ["a\0b" + "\ufffd" + "c" + "\ufffd" * 2 + "\ufffd" * 3])
        self.assertEqual(self.output(r"""printf '{"type":"execution_complete"}\n\n"\\\001\033[31m\n'"""),
                         ['{"type":"execution_complete"}', "\n", '"\\\1\x1b[31m'])
        events = self.events("head -c 300000 /dev/urandom")
        self.assertEqual(events[-1]["type"], "execution_complete")

    # ---- in the background ----

    def test_in_the_background(self):
        line = "echo out; echo err >&2; until [ -e /tmp/end ]; do sleep 0.05; done; echo last >&2; exit 3"
        self.events("rm -f /tmp/end")
        command = self.background(line)
        running = self.status(command)
        self.assertEqual((running["id"], running["content"], running["running"]), (command, line, True))
        self.assertEqual(sorted(running), ["content", "id", "running", "started_at"])
        logs = until(lambda: (lambda one: one if one.body == b"out\nerr\n" else None)(self.ask("GET", f"/command/{command}/logs")))
        self.assertEqual((logs.status, logs.headers["execd-commands-tail-cursor"], logs.headers["content-type"].split(";")[0]),
                         (200, "8", "text/plain"))
        none = self.ask("GET", f"/command/{command}/logs?cursor=8")
        self.assertEqual((none.status, none.body, none.headers["execd-commands-tail-cursor"]), (200, b"", "8"))
        self.assertNotIn("content-length", none.headers)  # one client takes no other empty text
        self.events("touch /tmp/end")
        ended = self.ended(command)
        self.assertEqual((ended["exit_code"], ended["error"]), (3, "exit status 3"))
        self.assertLessEqual(ended["started_at"], ended["finished_at"])
        for cursor, text in ((0, b"out\nerr\nlast\n"), (4, b"err\nlast\n"), (8, b"last\n"), (13, b""), (99, b"")):
            logs = self.ask("GET", f"/command/{command}/logs?cursor={cursor}")
            self.assertEqual((logs.status, logs.body), (200, text), cursor)
            self.assertEqual(logs.headers["execd-commands-tail-cursor"], str(max(13, cursor)))
        self.assertEqual(self.ask("GET", f"/command/{command}/logs?cursor=x").status, 400)

    def kill_front(self):
        for pid in self.deployment.pids("parley-sandboxd"):
            with open(f"/proc/{pid}/status") as status:
                uid = next(int(line.split()[1]) for line in status if line.startswith("Uid:"))
            if uid != 0:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        self.deployment.wait_ready()

    def test_what_outlives_the_front(self):
        """A command, its log in the order of the writing, and its end; of its line the beginning."""
        self.events("rm -f /tmp/go-on")
        line = "echo one; echo two >&2; until [ -e /tmp/go-on ]; do sleep 0.05; done; echo three; exit 6 # " + "x" * 400
        command = self.background(line)
        until(lambda: self.ask("GET", f"/command/{command}/logs").body == b"one\ntwo\n")
        self.kill_front()
        status = until(lambda: (lambda reply: reply.status == 200 and reply.json)(self.ask("GET", f"/command/status/{command}")))
        self.assertTrue(status["running"])
        self.assertTrue(line.startswith(status["content"]) and len(status["content"]) > 200, status)
        self.events("touch /tmp/go-on")
        self.assertEqual(self.ended(command)["exit_code"], 6)
        self.assertEqual(self.ask("GET", f"/command/{command}/logs").body, b"one\ntwo\nthree\n")

    def test_what_is_not_there(self):
        for path in ("/command/status/none", "/command/status/a%20b", "/command/none/logs", "/command/a%20b/logs"):
            reply = self.ask("GET", path)
            self.assertEqual((reply.status, reply.json["code"]), (404, "INVALID_REQUEST_BODY"), path)
        over = self.events("true")[0]["text"]
        for command in ("none", "a%20b", over):
            reply = self.ask("DELETE", f"/command?id={command}")
            self.assertEqual((reply.status, reply.json["code"]), (500, "RUNTIME_ERROR"), command)
        self.assertEqual(self.ask("GET", f"/command/{over}/logs").status, 400)  # it was in the foreground
        self.assertEqual(self.status(over)["exit_code"], 0)

    def test_interrupt(self):
        """TERM to the command and what it runs; KILL for who does not mind."""
        mild = self.background("trap 'echo told; exit 9' TERM; sleep 600 & wait")
        deaf = self.background("trap '' TERM; echo ready; while :; do sleep 0.1; done")
        for command in (mild, deaf):
            until(lambda c=command: self.status(c)["running"])
        until(lambda: self.ask("GET", f"/command/{deaf}/logs").body)
        until(lambda: self.events("pgrep -f 'sleep 600'")[-1]["type"] == "execution_complete")
        for command in (mild, deaf):
            reply = self.ask("DELETE", f"/command?id={command}")
            self.assertEqual((reply.status, reply.body, reply.headers["content-length"]), (200, b"", "0"))
        self.assertEqual(self.ended(mild)["exit_code"], 9)
        self.assertEqual(self.ask("GET", f"/command/{mild}/logs").body, b"told\n")
        self.assertEqual((self.ended(deaf)["exit_code"], self.ended(deaf)["error"]), (-1, "signal: killed"))

    def test_a_stream_that_is_interrupted(self):
        stream = Stream(self, PORT + "/command", {"command": "echo begun; exec sleep 600"})
        self.addCleanup(stream.close)
        command = stream.next()["text"]
        while stream.next()["type"] != "stdout":
            pass
        self.assertEqual(self.ask("DELETE", f"/command?id={command}").status, 200)
        last = stream.rest()[-1]
        self.assertEqual((last["type"], last["error"]["traceback"]), ("error", ["signal: terminated"]))

    # ---- who may, by which address, and what is told of it ----

    def test_who_may(self):
        other = self.deployment.negotiate("execd-other")
        narrow = link(self.grant["token"], compact({"scope": "fs:ro"}))
        for token, status in ((other["token"], 401), (narrow, 403), (self.deployment.key, 401)):
            reply = self.ask("POST", "/command", {"command": "true"}, token=token)
            self.assertEqual(reply.status, status, reply)
        self.assertEqual(self.ask("GET", "/ping", token=narrow).status, 200)
        command = self.background("sleep 600")
        stolen = self.deployment.request("DELETE", f"{other['endpoints']['http']}{PORT}/command?id={command}", token=other["token"])
        self.assertEqual(stolen.status, 500)
        self.assertTrue(self.status(command)["running"])
        self.ask("DELETE", f"/command?id={command}")

    def test_by_each_address(self):
        parts = urllib.parse.urlsplit(self.base)
        root, sandbox = f"{parts.scheme}://{parts.netloc}", self.grant["sandbox"]["id"]
        for url, token in ((f"{root}/s/{sandbox}{PORT}", "x"), (f"{root}/sandboxes/{sandbox}{PORT}", "x"),
                           (f"{root}/c/{self.grant['token']}{PORT}", None)):
            headers = {"X-EXECD-ACCESS-TOKEN": self.grant["token"]} if token else {}
            reply = self.deployment.request("POST", url + "/command", {"command": "echo here"}, token=None, headers=headers)
            self.assertEqual(reply.status, 200, (url, reply))
            self.assertIn(b'"here"', reply.body)

    def test_what_the_audit_has(self):
        command = self.background("echo in the audit; sleep 600")
        self.ask("DELETE", f"/command?id={command}")
        sandbox = self.grant["sandbox"]["id"]

        def find():
            records = self.deployment.request("GET", f"/audit?sandbox={sandbox}&limit=1000").json["records"]
            return {record["action"]: record for record in records if f"id={command}" in str(record)}
        found = until(lambda: (lambda them: them if {"exec", "kill", "exec.end"} <= set(them) else None)(find()))
        self.assertIn("echo in the audit", str(found["exec"]))

    # ---- the verbs of our own ----

    def native(self, method, path, body=None):
        return self.deployment.request(method, self.base + path, body, token=self.grant["token"])

    def test_stderr_in_stdout(self):
        reply = self.deployment.exec(self.grant, cmd="for i in 1 2 3; do echo o$i; echo e$i >&2; done", stderr="stdout").json
        self.assertEqual((reply["stdout"], reply["stderr"]), ("o1\ne1\no2\ne2\no3\ne3\n", ""))
        for wrong in ("stderr", "", None, 1):
            self.assertEqual(self.deployment.exec(self.grant, cmd="true", stderr=wrong).status, 400)
        one = self.deployment.exec(self.grant, cmd="true", id="merged", stderr="stdout")
        self.assertEqual((one.status, self.deployment.exec(self.grant, cmd="true", id="merged").status), (200, 409))

    def test_an_end_with_grace(self):
        for trap, exit_code, signal in (("trap 'exit 9' TERM", 9, None), ("trap '' TERM", 137, "SIGKILL")):
            line = f"{trap}; echo ready; while :; do sleep 0.05; done"
            made = self.native("POST", "/exec", {"cmd": line, "detach": True})
            path = f"/processes/{made.json['id']}"
            until(lambda: self.native("GET", path).json["stdout"]["bytes"])
            self.assertEqual(self.native("DELETE", path + "?grace=1").status, 204)
            ended = until(lambda: (lambda one: one if one["state"] == "ended" else None)(self.native("GET", path).json))
            self.assertEqual((ended["exit_code"], ended.get("signal")), (exit_code, signal))
            self.assertEqual(self.native("DELETE", path + "?grace=1").code, "CONFLICT")
        for wrong in ("0", "3601", "x", "-1", "1.5"):
            self.assertEqual(self.native("DELETE", path + "?grace=" + wrong).status, 400, wrong)
        self.assertEqual(self.native("DELETE", "/processes/none?grace=1").status, 404)

    def test_one_that_is_forgotten(self):
        for line in ("sleep 600", "true"):
            self.native("POST", "/exec", {"cmd": line, "id": "goes", "detach": True})
            if line == "true":
                until(lambda: self.native("GET", "/processes/goes").json["state"] == "ended")
            self.assertEqual(self.native("DELETE", "/processes/goes?forget=1&grace=1").status, 400)
            self.assertEqual(self.native("DELETE", "/processes/goes?forget=1").status, 204)
            until(lambda: self.native("GET", "/processes/goes").status == 404)
            self.assertEqual(self.native("DELETE", "/processes/goes?forget=1").status, 404)
        self.assertEqual(self.deployment.exec(self.grant, cmd="echo anew", id="goes").json["stdout"], "anew\n")

    def test_the_whole_command_line(self):
        line = "true " + "x" * 50000
        self.assertEqual(self.deployment.exec(self.grant, cmd=line, id="long-line").status, 200)
        one = self.native("GET", "/processes/long-line").json
        self.assertEqual((one["command_line"], len(one["command"])), (line, 255))
        self.assertNotIn("command_line", self.native("GET", "/processes").json["processes"][0])
        # No more of them is kept than there is room for; the commands run all the same.
        for i in range(45):
            self.assertEqual(self.deployment.exec(self.grant, cmd="true " + "y" * 100000).status, 200, i)
        last = self.native("GET", "/processes").json["processes"][-1]["id"]
        self.assertNotIn("command_line", self.native("GET", f"/processes/{last}").json)


if __name__ == "__main__":
    unittest.main(verbosity=2)
