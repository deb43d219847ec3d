"""sandboxd's verbs (protocol.md, 5): exec in its three forms, replay, signals, limits told apart, and bad input."""
import base64
import json
import os
import socket
import sys
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402


@needs_root
class Exec(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("exec", resources={"memory_mb": 256, "pids": 64})
        cls.base = cls.grant["endpoints"]["http"]

    def run_none(self, **body):
        reply = self.deployment.exec(self.grant, **body)
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def ask(self, method, path, body=None, **more):
        return self.deployment.request(method, self.base + path, body, token=self.grant["token"], **more)

    def test_where_code_finds_itself(self):
        seen = self.deployment.shell(self.grant, "id -u; pwd; echo $HOME; hostname; cat /proc/1/comm; ls /workspace/..")
        lines = seen.splitlines()
        self.assertEqual(lines[:3], ["1000", "/workspace", "/workspace"])
        self.assertEqual(lines[3], self.grant["sandbox"]["name"])
        self.assertNotIn("work", lines[5:])

    def test_it_holds_no_rights(self):
        status = self.deployment.shell(self.grant, "cat /proc/self/status")
        values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        self.assertEqual((values["NoNewPrivs"], values["Seccomp"]), ("1", "2"))
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(values[name], 16), 0, name)
        self.assertEqual(self.deployment.shell(self.grant, "ls /proc/self/fd").split(), ["0", "1", "2", "3"])

    def test_who_it_runs_as(self):
        """Root of its own sandbox is for nodes that allow it (root_user); this one does not."""
        self.assertEqual(self.run_none(cmd="id -u; echo $USER", user="user")["stdout"], "1000\nuser\n")
        refused = self.deployment.exec(self.grant, cmd="id -u", user="root")
        self.assertEqual((refused.status, refused.code), (403, "FORBIDDEN"), refused)
        self.assertIn("root_user", refused.json["error"]["message"])
        self.assertEqual(self.deployment.exec(self.grant, cmd="id -u", user="daemon").code, "INVALID_REQUEST")

    def test_ndjson(self):
        reply = self.ask("POST", "/exec", {"cmd": "echo out; echo err >&2; exit 3", "id": "nd-1"})
        self.assertTrue(reply.headers["content-type"].startswith("application/x-ndjson"))
        events = reply.events
        self.assertEqual((events[0]["type"], events[0]["id"]), ("started", "nd-1"))
        self.assertGreater(events[0]["pid"], 1)
        text = {kind: "".join(e["data"] for e in events if e["type"] == kind) for kind in ("stdout", "stderr")}
        self.assertEqual(text, {"stdout": "out\n", "stderr": "err\n"})
        self.assertEqual((events[-1]["type"], events[-1]["exit_code"]), ("exit", 3))
        self.assertGreaterEqual(events[-1]["usage"]["max_rss"], 100000)

    def test_sse(self):
        reply = self.ask("POST", "/exec", {"cmd": "echo hi", "stream": "sse"})
        self.assertTrue(reply.headers["content-type"].startswith("text/event-stream"))
        kinds = [line[7:] for line in reply.body.decode().splitlines() if line.startswith("event: ")]
        self.assertEqual(kinds, ["started", "stdout", "exit"])
        datas = [json.loads(line[6:]) for line in reply.body.decode().splitlines() if line.startswith("data: ")]
        self.assertEqual(datas[1]["data"], "hi\n")

    def test_none_with_argv_env_cwd_stdin(self):
        done = self.run_none(argv=["sh", "-c", "cat; echo $X; pwd"], env={"X": "y"}, cwd="/tmp", stdin="in\n")
        self.assertEqual((done["stdout"], done["exit_code"], done["truncated"]), ("in\ny\n/tmp\n", 0, False))

    def test_bytes_that_are_not_text(self):
        events = self.ask("POST", "/exec", {"argv": ["printf", "\\377\\376ok"]}).events
        data = b"".join(base64.b64decode(e["data_b64"]) if "data_b64" in e else e["data"].encode()
                        for e in events if e["type"] == "stdout")
        self.assertEqual(data, b"\xff\xfeok")
        text = "äöü€😀" * 5000
        events = self.ask("POST", "/exec", {"argv": ["cat"], "stdin": text}).events
        self.assertEqual("".join(e["data"] for e in events if e["type"] == "stdout"), text)

    def test_both_streams_end_in_a_cut_character(self):
        answer = {}

        def run():
            answer["reply"] = self.ask("POST", "/exec", {"cmd": "printf 'a\\303'; printf 'b\\303' >&2; sleep 2", "id": "cut"})
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(1)
        before = self.cpu_ticks()
        time.sleep(0.6)
        self.assertLess(self.cpu_ticks() - before, 30, "sandboxd spins")
        thread.join(20)
        self.assertEqual(answer["reply"].events[-1]["type"], "exit")
        for stream, letter in (("stdout", b"a"), ("stderr", b"b")):
            data = b"".join(base64.b64decode(e["data_b64"]) if "data_b64" in e else e["data"].encode()
                            for e in answer["reply"].events if e["type"] == stream)
            self.assertEqual(data, letter + b"\xc3")

    def cpu_ticks(self):
        ticks = 0
        for pid in self.deployment.pids("parley-sandboxd"):
            with open(f"/proc/{pid}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks

    def test_who_is_attached_or_computes_is_not_idle(self):
        silent = self.deployment.negotiate("silent", idle_timeout=5)
        busy = self.deployment.negotiate("busy", idle_timeout=5)
        self.assertEqual(self.deployment.request(
            "POST", busy["endpoints"]["http"] + "/exec", {"cmd": "while :; do :; done", "timeout": 20, "id": "spin",
                                                          "detach": True}, token=busy["token"]).status, 201)
        waited = []
        thread = threading.Thread(target=lambda: waited.append(self.deployment.exec(silent, cmd="sleep 10; echo one")))
        thread.start()
        events = self.deployment.exec(silent, cmd="sleep 9; echo slept", stream="ndjson").events
        thread.join(30)
        self.assertEqual(events[-1].get("exit_code"), 0, events)
        self.assertEqual((waited[0].status, waited[0].json.get("stdout")), (200, "one\n"), waited)
        seen = self.deployment.request("GET", busy["endpoints"]["http"] + "/processes/spin", token=busy["token"])
        self.assertEqual((seen.status, seen.json.get("state")), (200, "running"))

    def test_what_waits_for_stdin_is_bounded_in_the_whole_sandbox(self):
        grant = self.deployment.negotiate("stdin")
        base, block, answers = grant["endpoints"]["http"], b"x" * (1000 << 10), []

        def send(n):
            try:
                answers.append(self.deployment.request("POST", f"{base}/processes/in-{n}/stdin", block,
                                                       token=grant["token"], timeout=4, record=False).status)
            except OSError:
                answers.append(0)  # it waits for the pipe
        for n in range(8):
            self.assertEqual(self.deployment.request(
                "POST", base + "/exec", {"cmd": "sleep 600", "id": f"in-{n}", "stdin_open": True, "detach": True},
                token=grant["token"]).status, 201)
        threads = [threading.Thread(target=send, args=(n,)) for n in range(8) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((answers.count(0), answers.count(429)), (16, 8), answers)
        full = self.deployment.exec(grant, cmd="cat | wc -c", stdin="y" * 900000)
        self.assertEqual((full.status, full.code), (429, "RATE_LIMITED"))
        self.assertEqual(self.deployment.request("DELETE", f"{base}/processes/in-0", token=grant["token"]).status, 204)
        until = time.monotonic() + 5
        while full.status == 429 and time.monotonic() < until:
            full = self.deployment.exec(grant, cmd="cat | wc -c", stdin="y" * 900000)
        self.assertEqual(full.json.get("stdout"), "900000\n")

    def test_timeout_kills_the_whole_tree(self):
        done = self.run_none(cmd="(setsid sh -c 'while :; do sleep 0.1; done' &) ; (sleep 777 &) ; sleep 778",
                             timeout=0.5)
        self.assertEqual((done["timed_out"], done["oom"], done["signal"]), (True, False, "SIGKILL"))
        left = self.deployment.shell(self.grant, "ps axo args")
        for word in ("sleep 777", "sleep 778", "while :"):
            self.assertNotIn(word, left)

    def test_out_of_memory_is_told(self):
        done = self.run_none(argv=["python3", "-c", "x = bytearray(1 << 30)"], timeout=60)
        self.assertEqual((done["oom"], done["timed_out"], done["signal"]), (True, False, "SIGKILL"))
        self.assertEqual(self.deployment.shell(self.grant, "echo alive"), "alive\n")

    def test_signal_death(self):
        done = self.run_none(cmd="kill -TERM $$")
        self.assertEqual((done["signal"], done["exit_code"], done["oom"], done["timed_out"]), ("SIGTERM", 143, False, False))

    def test_a_fork_bomb_hurts_nobody_else(self):
        neighbour = self.deployment.negotiate("neighbour")
        done = self.run_none(argv=["python3", "-c", "import os\nwhile True:\n try: os.fork()\n except OSError: pass"],
                             timeout=2)
        self.assertTrue(done["timed_out"])
        self.assertEqual(self.deployment.shell(neighbour, "echo fine"), "fine\n")
        self.assertEqual(self.deployment.shell(self.grant, "echo again"), "again\n")

    def test_flooding_output_is_bounded_and_told(self):
        done = self.run_none(cmd="yes | head -c 20000000; echo END")
        self.assertTrue(done["truncated"])
        self.assertLessEqual(len(done["stdout"]), 1 << 20)

    def test_a_child_that_takes_the_output_back_does_not_hold_the_end(self):
        thief = r"""
import fcntl, os, time
fcntl.fcntl(1, 1031, 1 << 20); me = os.getpid()
if os.fork() == 0:
    os.setsid(); back = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)
    while os.getppid() == me: time.sleep(.005)
    until = time.time() + 600
    while time.time() < until:
        try: os.read(back, 65536)
        except OSError: time.sleep(.01)
    os._exit(0)
fcntl.fcntl(1, 4, os.O_NONBLOCK | 1); until = time.time() + 1.5
while time.time() < until:
    try: os.write(1, b'x' * 65536)
    except OSError: time.sleep(.01)
os._exit(0)"""
        address = urllib.parse.urlsplit(self.base)
        body = json.dumps({"argv": ["/usr/bin/python3", "-c", thief], "id": "thief"}).encode()
        with socket.create_connection((address.hostname, address.port), 60) as slow:
            slow.sendall((f"POST {address.path}/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.grant['token']}\r\n"
                          f"Content-Length: {len(body)}\r\n\r\n").encode() + body)
            time.sleep(3)  # the driver is behind when the command ends
            tail = b""
            until = time.monotonic() + 60
            while b'"type":"exit"' not in tail:
                self.assertLess(time.monotonic(), until, "no exit event, only keepalives")
                part = slow.recv(1 << 20)
                self.assertTrue(part, "the stream broke")
                tail = tail[-300:] + part
        self.ask("DELETE", "/processes/thief")

    def test_a_big_stream_arrives_whole(self):
        reply = self.ask("POST", "/exec", {"cmd": "seq 1 300000"})
        out = "".join(e["data"] for e in reply.events if e["type"] == "stdout")
        self.assertEqual(out, "".join(f"{n}\n" for n in range(1, 300001)))

    def test_same_id_attaches_and_another_command_conflicts(self):
        body = {"cmd": "echo once >> /workspace/once; cat /workspace/once", "id": "idem-1", "stream": "none"}
        first = self.ask("POST", "/exec", body).json
        again = self.ask("POST", "/exec", body).json
        self.assertEqual((first["stdout"], again["stdout"]), ("once\n", "once\n"))
        self.assertEqual(self.ask("POST", "/exec", dict(body, cmd="true")).code, "CONFLICT")

    def test_replay_by_offset(self):
        self.run_none(cmd="printf 0123456789; printf abc >&2", id="replay-1")
        events = self.ask("GET", "/processes/replay-1/output?stdout_offset=4&stderr_offset=1").events
        self.assertEqual("".join(e["data"] for e in events if e["type"] == "stdout"), "456789")
        self.assertEqual([e["offset"] for e in events if e["type"] == "stdout"], [4])
        self.assertEqual("".join(e["data"] for e in events if e["type"] == "stderr"), "bc")
        self.assertEqual(events[-1]["type"], "exit")

    def test_a_gap_is_said(self):
        self.run_none(cmd="yes | head -c 5000000", id="gap-1")
        events = self.ask("GET", "/processes/gap-1/output?stdout_offset=0").events
        gaps = [e for e in events if e["type"] == "gap"]
        self.assertEqual(len(gaps), 1, [e["type"] for e in events][:10])
        rest = sum(len(e["data"]) for e in events if e["type"] == "stdout")
        self.assertEqual(gaps[0]["to"] + rest, 5000000)

    def test_processes_signal_stdin_and_delete(self):
        started = self.ask("POST", "/exec", {"cmd": "trap 'echo caught; exit 9' USR1; read x; echo got $x; sleep 60 & wait",
                                             "id": "live-1", "stdin_open": True, "detach": True})
        self.assertEqual(started.status, 201)
        self.assertEqual(self.ask("POST", "/processes/live-1/stdin?eof=1", b"word\n").status, 200)
        seen = self.ask("GET", "/processes/live-1").json
        self.assertEqual((seen["id"], seen["state"]), ("live-1", "running"))
        until = time.monotonic() + 5
        while "got word" not in self.ask("GET", "/processes/live-1/output").body.decode() and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(self.ask("POST", "/processes/live-1/signal", {"signal": "USR1"}).status, 204)
        out = "".join(e.get("data", "") for e in self.ask("GET", "/processes/live-1/output?follow=1").events)
        self.assertEqual(out, "got word\ncaught\n")
        self.assertEqual(self.ask("GET", "/processes/live-1").json["exit_code"], 9)
        self.ask("POST", "/exec", {"cmd": "sleep 900", "id": "dead-1", "detach": True})
        self.assertEqual(self.ask("DELETE", "/processes/dead-1").status, 204)
        self.assertIn(self.ask("GET", "/processes/nope").status, (404,))

    def test_follow_sees_output_as_it_comes(self):
        self.ask("POST", "/exec", {"cmd": "for i in 1 2 3; do echo $i; sleep 0.2; done", "id": "follow-1", "detach": True})
        events = self.ask("GET", "/processes/follow-1/output?follow=1").events
        self.assertEqual("".join(e.get("data", "") for e in events), "1\n2\n3\n")
        self.assertEqual(events[-1]["exit_code"], 0)

    def test_info(self):
        info = self.ask("GET", "/info").json
        self.assertEqual(info["id"] if "id" in info else info["sandbox"]["id"], self.grant["sandbox"]["id"])
        self.assertIn(self.grant["jti"], json.dumps(info))

    def test_bad_input_is_named(self):
        for body, word in (({}, "cmd"), ({"cmd": "x", "argv": ["y"]}, "argv"), ({"cmd": 1}, "cmd"), ({"argv": []}, "argv"),
                           ({"argv": ["a", 1]}, "argv"), ({"cmd": "x", "evn": {}}, "evn"),
                           ({"cmd": "x", "env": {"A=B": "c"}}, "env"), ({"cmd": "x", "env": {"A": 1}}, "env"),
                           ({"cmd": "x", "timeout": -1}, "timeout"), ({"cmd": "x", "timeout": 1e12}, "timeout"),
                           ({"cmd": "x", "timeout": "5"}, "timeout"), ({"cmd": "x", "cwd": "/nope"}, "cwd"),
                           ({"cmd": "x", "cwd": "relative"}, "cwd"), ({"cmd": "x", "id": "../x"}, "id"),
                           ({"cmd": "x", "id": "y" * 65}, "id"), ({"cmd": "x", "stream": "xml"}, "stream"),
                           ({"argv": ["/no/such/program"]}, "/no/such/program"), ({"cmd": "x", "tty": "yes"}, "tty"), ({"cmd": "x", "rows": 5}, "tty")):
            reply = self.ask("POST", "/exec", body)
            self.assertEqual((reply.status, reply.code), (400, "INVALID_REQUEST"), (str(body)[:80], reply))
            self.assertIn(word, reply.json["error"]["message"], str(body)[:80])

    def test_a_command_too_large_to_execute(self):
        reply = self.ask("POST", "/exec", {"argv": ["x" * 200000]})
        self.assertEqual((reply.status, reply.code), (413, "TOO_LARGE"))
        self.assertIn("131071", reply.json["error"]["message"])

    def test_bad_json_and_paths(self):
        for body in (b"{", b'{"cmd":"a","cmd":"b"}', b'{"cmd":"\xff"}', b'{"cmd":"a\\u0000b"}', b"[" * 100000):
            self.assertEqual(self.ask("POST", "/exec", body).status, 400, body[:30])
        for path in ("/processes/..%2f..%2fetc", "/processes/%00", "/processes/" + "x" * 5000, "/processes/%ff"):
            self.assertIn(self.ask("GET", path).status, (400, 404), path[:40])
        for query in ("stdout_offset=-1", "stdout_offset=x", "stdout_offset=" + "9" * 40,
                      "stdout_offset=1&stdout_offset=2"):
            self.assertEqual(self.ask("GET", "/processes/replay-1/output?" + query).status, 400, query)

    def test_many_at_once(self):
        results = []

        def one(n):
            results.append(self.run_none(cmd=f"echo {n}")["stdout"] == f"{n}\n")
        threads = [threading.Thread(target=one, args=(n,)) for n in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [True] * 24)

    def test_ended_commands_leave_wide_pipes_to_the_next(self):
        for _ in range(600):  # each is kept for 10 minutes; all of a user's pipes have 16384 pages
            self.run_none(cmd=":")
        done = self.run_none(argv=["/usr/bin/python3", "-c", "import fcntl; print(fcntl.fcntl(1, 1032))"])
        self.assertEqual(done["stdout"], "65536\n")  # F_GETPIPE_SZ

    def test_loopback_works_and_is_its_own(self):
        self.assertEqual(self.deployment.shell(self.grant, "python3 -c \"import socket as s; l=s.create_server(('127.0.0.1',5000)); "
                                               "c=s.create_connection(('127.0.0.1',5000)); print('ok')\""), "ok\n")

    def test_disk_limit(self):
        small = self.deployment.negotiate("small", resources={"disk_mb": 64})
        done = self.deployment.exec(small, cmd="head -c 100M /dev/zero > /workspace/big; echo $?; rm -f /workspace/big",
                                    timeout=60).json
        self.assertRegex(done["stderr"], "No space left|quota exceeded")  # tmpfs, btrfs
        self.assertEqual(self.deployment.shell(small, "echo ok > /workspace/small; cat /workspace/small"), "ok\n")


if __name__ == "__main__":
    unittest.main()
