"""A sandbox that is paused over the node link: nothing in it runs, by a counter; an idle or dropped socket, a ping and a look
do not wake it, use does; it stays as it is through kill -9 of front and launcher; heartbeats tell it; it ends as it is."""
import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import needs_root  # noqa: E402
from parley_testing.alone import SANDBOX, Alone, StandIn  # noqa: E402
from parley_testing.websocket import Session  # noqa: E402

COUNTER = "trap 'echo term > /workspace/n' TERM; n=0; while :; do n=$((n+1)); echo $n > /workspace/n.new; " \
          "mv /workspace/n.new /workspace/n; done"


@needs_root
class Pause(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stand_in = StandIn(lambda message: None)
        cls.addClassCleanup(cls.stand_in.close)
        cls.node = Alone(cls.stand_in)
        cls.addClassCleanup(cls.node.close)

    def setUp(self):
        if self._testMethodName.startswith("test_7"):
            return  # its sandbox has ended
        made = self.node.prepare()
        self.assertTrue(made.get("ok"), (made, self.node.logs()))
        if not made["sandbox"]["reused"]:
            status, data = self.node.verb("POST", "/exec", {"cmd": COUNTER, "id": "count", "detach": True})
            self.assertEqual(status, 201, data)
        self.pid = self.counter_pid()
        self.node.call(call="resume", id=SANDBOX)
        self.assertTrue(self.moves_on())

    # ---- what can be seen from outside, without a verb that would wake it ----

    def counter_pid(self):
        """The command's process on the host, found by its script."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as words, open(f"/proc/{entry}/cgroup") as groups:
                        if COUNTER.encode() in words.read() and self.is_mine(groups.read()):
                            return int(entry)
                except OSError:
                    pass
            time.sleep(0.05)
        self.fail("the counter does not run\n" + self.node.logs())

    def is_mine(self, groups):
        with open(self.node.state + "/sandboxd/cgroups") as kept:
            places = [word for word in kept.read().replace('"', " ").replace("=", " ").split() if "/" in word]
        return any(os.path.basename(place.rstrip("/")) in groups for place in places) if places else True

    def used(self):
        """Clock ticks of the counter itself: utime and stime of /proc/PID/stat."""
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def stands_still(self):
        before = self.used()
        time.sleep(0.6)
        return self.used() == before

    def moves_on(self, seconds=20):
        before, until = self.used(), time.monotonic() + seconds
        while time.monotonic() < until:
            if self.used() > before:
                return True
            time.sleep(0.02)
        return False

    def state(self):
        status, data = self.node.verb("GET", "/info", token=self.node.token(""))
        self.assertEqual(status, 200, data)
        return json.loads(data)["sandbox"]["state"]

    def pause(self):
        self.assertEqual(self.node.call(call="pause", id=SANDBOX), {"ok": True}, self.node.logs())
        self.assertTrue(self.stands_still())
        self.assertEqual(self.state(), "paused")

    def resume(self):
        self.assertEqual(self.node.call(call="resume", id=SANDBOX), {"ok": True})
        self.assertTrue(self.moves_on())

    def assert_paused(self):
        self.assertTrue(self.stands_still())
        self.assertEqual(self.state(), "paused")

    def url(self):
        return f"ws://127.0.0.1:{self.node.port}/s/{SANDBOX}/ws"

    # ---- the tests ----

    def test_1_it_stands_still_and_goes_on(self):
        self.pause()
        self.resume()
        self.assertEqual(self.state(), "active")

    def test_7_it_is_recorded(self):
        """Before it is done, and who let it go on: the negotiator, or its own use; an end that was asked for is no such."""
        made = [(record["action"], record["detail"]) for record in self.records(lambda all: len(all) >= 8)]
        self.assertEqual(made[:2], [("pause", "by=negotiator"), ("resume", "by=negotiator")])
        self.assertIn(("resume", "by=use"), made)
        self.assertEqual(made[-1], ("pause", "by=negotiator"))  # its deadline came then

    def records(self, wanted):
        until = time.monotonic() + 20
        while True:
            told = [record for record in self.stand_in.records if record["action"] in ("pause", "resume")]
            if wanted(told):
                return told
            self.assertLess(time.monotonic(), until, told)
            time.sleep(0.1)

    def test_2_sockets(self):
        token = self.node.token("process shell")
        idle, watcher, driver = (Session(self.url(), token) for _ in range(3))
        for session in (watcher, driver):
            session.send(json.dumps({"type": "start", "cmd": "cat", "tty": False, "id": f"cat-{id(session)}"}))
            session.expect("started")
        self.pause()
        idle.send(json.dumps({"type": "ping"}))
        idle.expect("pong")
        idle.drop()
        watcher.send(json.dumps({"type": "ping"}))
        watcher.expect("pong")
        watcher.drop()
        with Session(self.url(), token) as late:
            late.send(json.dumps({"type": "attach", "id": "count", "mode": "watch"}))
            late.expect("started")
            self.assert_paused()
        driver.send(json.dumps({"type": "nonsense"}))
        driver.expect("error")
        self.assert_paused()
        driver.send(json.dumps({"type": "stdin", "data": "hello\n"}))
        self.assertTrue(self.moves_on())
        self.assertEqual(self.state(), "active")
        driver.drop()

    def test_3_use_wakes(self):
        for wake in (lambda: self.assertEqual(self.node.exec("echo here")["stdout"], "here\n"),
                     lambda: self.assertEqual(self.node.verb("PUT", "/files/workspace/f", b"text",
                                                             self.node.token("fs:rw"))[0] // 100, 2),
                     lambda: self.assertEqual(self.node.verb("GET", "/files/workspace?list=1",
                                                             token=self.node.token("fs:ro"))[0], 200),
                     lambda: self.assertEqual(self.node.verb("GET", "/archive/workspace",
                                                             token=self.node.token("fs:ro"))[0], 200)):
            self.pause()
            wake()
            self.assertTrue(self.moves_on())
            self.assertEqual(self.state(), "active")

    def cpu_ms(self):
        """Of the whole sandbox, by the kernel's count."""
        status, data = self.node.verb("GET", "/metrics", token=self.node.token(""))
        self.assertEqual(status, 200, data)
        return json.loads(data)["cpu"]["used_ms"]

    def test_3_nobody_gets_around_it(self):
        """What forks without end, is stopped, waits for a vfork(2)ed child, or ignores all signals, is frozen like the rest."""
        for number, cmd in enumerate((
                "while :; do (:) & done", "kill -STOP $$", "trap '' HUP INT TERM CONT USR1; while :; do :; done",
                "setsid sh -c 'while :; do :; done' & wait",
                "python3 -c \"import ctypes; c = ctypes.CDLL(None); c.vfork() or c.sleep(600)\"")):
            status, data = self.node.verb("POST", "/exec", {"cmd": cmd, "id": f"evader-{number}", "detach": True})
            self.assertEqual(status, 201, data)
        before, until = self.cpu_ms(), time.monotonic() + 20
        while self.cpu_ms() <= before:
            self.assertLess(time.monotonic(), until)
        for _ in range(3):
            self.pause()
            used = self.cpu_ms()
            time.sleep(0.5)
            self.assertEqual(self.cpu_ms(), used)
            self.resume()
        for number in range(5):
            self.assertEqual(self.node.verb("DELETE", f"/processes/evader-{number}")[0], 204)

    def test_4_heartbeats(self):
        since = len(self.stand_in.beats)
        self.pause()
        line = self.line(lambda line: line["paused"], since)
        active = line["active_at"]
        for _ in range(3):
            self.state()
        since = len(self.stand_in.beats)
        self.stand_in.wait(lambda message: True, since=since)  # two more beats have gone out
        self.stand_in.wait(lambda message: True, since=since + 1)
        for _, message in self.stand_in.beats[since:]:
            for told in message["sandboxes"]:
                self.assertEqual((told["paused"], told["active_at"]), (True, active))
        self.resume()
        line = self.line(lambda line: not line["paused"], since)
        self.assertGreater(line["active_at"], active)
        self.assertGreater(line["pids"], 0)

    def line(self, wanted, since):
        message = self.stand_in.wait(lambda message: any(map(wanted, message["sandboxes"])), since=since)
        return next(filter(wanted, message["sandboxes"]))

    def test_5_kill_9(self):
        self.pause()
        used = self.used()
        self.node.kill_front()
        self.node.await_front()
        self.assert_paused()
        self.node.kill()
        self.node.start()
        self.assert_paused()
        self.assertEqual(self.used(), used)
        self.assertEqual(self.node.exec("echo here")["stdout"], "here\n")
        self.assertTrue(self.moves_on())

    def test_6_the_deadline_holds(self):
        self.pause()
        self.assertEqual(self.node.call(call="deadline", id=SANDBOX, deadline=int(time.time() * 1000) + 1500), {"ok": True})
        ended = self.stand_in.wait(lambda message: message["ended"], 40)["ended"]
        self.assertEqual(ended[0]["id"], SANDBOX)
        self.assertFalse(os.path.exists(f"/proc/{self.pid}"))
        status, data = self.node.verb("GET", "/info")
        self.assertEqual(status, 410, data)


if __name__ == "__main__":
    unittest.main()
