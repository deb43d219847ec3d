"""kill -9 of launcher and front, again and again, while bytes flow: on a pipe, on a terminal, and through stdin. Whoever asks
again by offset gets every byte exactly once, and gives every byte exactly once."""
import http.client
import json
import os
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import needs_root  # noqa: E402
from parley_testing.alone import SANDBOX, Alone  # noqa: E402

KILLS = 8
SECONDS = 60


class Killer(threading.Thread):
    """Kills and starts sandboxd `KILLS` times, evenly over the `expected` bytes that a client collects."""

    def __init__(self, alone, expected):
        super().__init__(daemon=True)
        self.alone, self.expected, self.kills, self.failure, self.collected = alone, expected, 0, None, 0
        self.over = threading.Event()

    def part(self, number):
        return self.expected * number // (KILLS + 1)

    def run(self):
        try:
            while self.kills < KILLS and not self.over.is_set():
                if self.collected < self.part(self.kills + 1):
                    time.sleep(0.001)
                    continue
                self.alone.kill()
                self.kills += 1
                self.alone.start()
        except BaseException as failure:  # noqa: B902  told by the test
            self.failure = failure

    def pace(self, collected):
        """The command waits for who drives it: so every kill finds it at work, however fast this machine is."""
        self.collected = collected
        while self.is_alive() and self.kills < KILLS and collected > self.part(self.kills + 2):
            time.sleep(0.002)


@needs_root
class Resume(unittest.TestCase):
    def setUp(self):
        self.alone = Alone()
        self.addCleanup(self.alone.close)
        self.alone.prepare()
        self.token = self.alone.token("process fs:rw")
        self.held = set()

    def kill_while(self, expected, work):
        killer = Killer(self.alone, expected)
        killer.start()
        try:
            result = work(killer)
        finally:
            killer.over.set()
            killer.join(60)
        self.assertIsNone(killer.failure)
        self.assertEqual(killer.kills, KILLS)
        return result

    def start(self, name, cmd, **more):
        status, data = self.alone.verb("POST", "/exec", dict(cmd=cmd, id=name, detach=True, **more), self.token)
        self.assertEqual(status, 201, data)

    def release(self, name):
        """Lets a counter that waits for its driver go."""
        if name in self.held:
            status, data = self.alone.verb("PUT", f"/files/tmp/go-{name}", b"", self.token)
            self.assertIn(status, (200, 201), data)
            self.held.discard(name)

    def follow_once(self, name, collected, killer, until):
        """Reads events from the offset on until the connection breaks, or it has taken too long; the exit event if it came."""
        path = f"/s/{SANDBOX}/processes/{name}/output?follow=1&drive=1&stdout_offset={len(collected)}"
        # HTTP/1.1: what ends without its last chunk is cut orderly; without chunks only a reset tells, and that loses
        # what the kernel still holds.
        connection = http.client.HTTPConnection("127.0.0.1", self.alone.port, timeout=20)
        try:
            connection.request("GET", path, headers={"Authorization": "Bearer " + self.token})
            reply = connection.getresponse()
            if reply.status != 200:
                if reply.status != 423:
                    self.fail(reply.read())
                return None
            self.release(name)
            while time.monotonic() < until and (line := reply.readline()).endswith(b"\n"):
                event = json.loads(line)
                self.assertNotIn(event["type"], ("gap", "error"), event)
                if event["type"] == "stdout":
                    self.assertEqual(event["offset"], len(collected))
                    collected += event["data"].encode()
                    killer.pace(len(collected))
                if event["type"] == "exit":
                    return event
        except http.client.HTTPException:
            return None
        finally:
            connection.close()
        return None

    def follow(self, name, killer):
        collected, until = bytearray(), time.monotonic() + SECONDS
        while time.monotonic() < until:
            try:
                end = self.follow_once(name, collected, killer, until)
            except (OSError, ValueError):
                end = None
            if end:
                return bytes(collected), end
            if killer.failure:
                raise killer.failure
            time.sleep(0.01)
        status, view = self.alone.verb("GET", f"/processes/{name}", None, self.token)
        self.fail(f"no exit seen; fed: {getattr(self, 'fed', None)!r}; {status} {view}\n" + self.alone.logs())

    def check_numbers(self, text, end, count, newline="\n"):
        self.assertEqual(end["exit_code"], 0)
        lines = text.decode().split(newline)
        self.assertEqual(lines.pop(), "")
        for wanted, line in enumerate(lines, 1):
            self.assertEqual(line, str(wanted))
        self.assertEqual(len(lines), count)

    def count(self, name, **more):
        """As fast as it can: more than it may be ahead of its clients, less than a sandbox keeps for those to come back. It
        begins when somebody drives: what nobody drives keeps 1 MiB."""
        total = 1_600_000
        self.start(name, f"until [ -e /tmp/go-{name} ]; do sleep 0.01; done; seq 1 {total}", **more)
        self.held.add(name)
        text, end = self.kill_while(7 * total, lambda killer: self.follow(name, killer))
        self.check_numbers(text, end, total, "\r\n" if more.get("tty") else "\n")

    def test_a_counter_on_a_pipe(self):
        self.count("pipe")

    def test_a_counter_on_a_terminal(self):
        self.count("terminal", tty=True)

    # ---- stdin ----

    def post_once(self, name, data, offset):
        """The accepted offset; None when it must be tried again. Nothing is said of what a broken answer meant."""
        try:
            status, reply = self.alone.verb("POST", f"/processes/{name}/stdin?offset={offset}", data, self.token)
        except (OSError, Exception):  # noqa: B014  killed meanwhile
            return None
        if status in (423, 429):
            return None
        self.assertEqual(status, 200, reply)
        return json.loads(reply)["stdin_offset"]

    def feed(self, name, data, end):
        """All of data in pieces, then `end`."""
        offset, until, size = 0, time.monotonic() + SECONDS, 1
        while offset < len(data) and time.monotonic() < until:
            size = size * 7 % 90_001
            accepted = self.post_once(name, data[offset:offset + size], offset)
            if accepted is None:
                time.sleep(0.02)
                offset = max(0, offset - 5000)  # and never mind what was accepted already
            else:
                self.assertGreaterEqual(accepted, min(offset + size, len(data)))
                self.assertLessEqual(accepted, len(data))
                offset = accepted
        self.assertEqual(offset, len(data))
        while time.monotonic() < until:
            try:
                status, reply = self.alone.verb("POST", end(offset), b"", self.token)
            except (OSError, Exception):  # noqa: B014
                status = 423
            if status == 200:
                return
            self.assertIn(status, (423, 429, 409), (status, reply))
            if status == 409:  # it was accepted, and has been read since
                return
            time.sleep(0.02)
        self.fail("stdin was not ended")

    def echo(self, name, data, killer):
        feeder = threading.Thread(target=self.feed_and_keep, args=(name, data), daemon=True)
        feeder.start()
        result = self.follow(name, killer)
        feeder.join(30)
        self.assertIsNone(self.fed)
        return result

    def feed_and_keep(self, name, data):
        self.fed = None
        try:
            self.feed(name, data, lambda offset: f"/processes/{name}/stdin?eof=1&offset={offset}")
        except BaseException as failure:  # noqa: B902
            self.fed = failure

    def test_stdin_is_echoed(self):
        total = 1_000_000
        data = "".join(f"{n}\n" for n in range(1, total + 1)).encode()
        self.start("cat", "cat", stdin_open=True)
        text, end = self.kill_while(len(data), lambda killer: self.echo("cat", data, killer))
        self.check_numbers(text, end, total)

    def test_typing_is_echoed(self):
        total = 100_000
        data = "".join(f"{n}\n" for n in range(1, total + 1)).encode()
        self.start("typed", "stty -echo -onlcr; echo 0; cat", tty=True)
        until = time.monotonic() + 20
        while json.loads(self.alone.verb("GET", "/processes/typed")[1])["stdout"]["bytes"] == 0:
            self.assertLess(time.monotonic(), until)
        text, end = self.kill_while(len(data), lambda killer: self.echo("typed", data, killer))
        self.assertEqual(text[:2], b"0\n")
        self.check_numbers(text[2:], end, total)

    def test_an_exec_that_is_asked_again_feeds_once(self):
        data = "".join(f"{n}\n" for n in range(1, 20001))
        body = dict(cmd="cat; sleep 0.3", id="twice", stdin=data, detach=True)
        self.assertEqual(self.alone.verb("POST", "/exec", body, self.token)[0], 201)
        self.alone.kill()
        self.alone.start()
        until = time.monotonic() + 20
        while self.alone.verb("POST", "/exec", body, self.token)[0] == 423 and time.monotonic() < until:
            time.sleep(0.02)
        text, end = self.follow("twice", Killer(self.alone, 0))
        self.check_numbers(text, end, 20000)

    def test_a_size_is_found_again(self):
        self.start("sized", "stty size; read line; stty size", tty=True, cols=91, rows=17)
        status, _ = self.alone.verb("POST", "/processes/sized/resize", {"cols": 101, "rows": 19}, self.token)
        self.assertEqual(status, 204)
        self.alone.kill()
        self.alone.start()
        until, view = time.monotonic() + 20, {}
        while "cols" not in view and time.monotonic() < until:
            view = json.loads(self.alone.verb("GET", "/processes/sized", None, self.token)[1])
        self.assertEqual((view["tty"], view["cols"], view["rows"]), (True, 101, 19))
        self.assertEqual(self.alone.verb("POST", "/processes/sized/stdin", b"\n", self.token)[0], 200)
        text, _ = self.follow("sized", Killer(self.alone, 0))
        self.assertTrue(text.endswith(b"19 101\r\n"), text)


if __name__ == "__main__":
    unittest.main()
