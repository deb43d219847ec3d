"""A sandbox whose init is hostile: it speaks the front's messages and lies in them. Goal: whatever it says or gives, the
front serves the other sandboxes, stays the same process, holds no more descriptors and memory than is stated here, says
in its log what was wrong, and the hostile sandbox can be destroyed.

That each attack is one is seen from what the program does to itself: `linger` waits for an hour in whoever closes it."""
import json
import os
import sys
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from parley_testing.deployment import needs_root
from parley_testing.hostile import MIB, Hostile

SPARE_DESCRIPTORS = 16  # the neighbour's commands that are kept, connections of clients that are being closed
KINDS = ["null", "zero", "dir", "proc", "ptmx", "root", "file", "fifo", "opath", "write-end", "read-end", "epoll",
         "eventfd", "inotify", "listen", "udp", "unix", "route", "own", "unsealed", "unwritable", "far", "read-only",
         "linger"]


class OneHostile(unittest.TestCase):
    """One deployment a class, one hostile sandbox a test."""

    @classmethod
    def setUpClass(cls):
        cls.node = Hostile()
        cls.addClassCleanup(cls.node.close)

    def setUp(self):
        self.front, self.launcher = self.node.front(), self.node.child.pid
        self.descriptors = self.node.descriptors(self.front)
        self.held, self.mark = self.node.held_bytes(self.front), self.node.log_mark()
        self.checks = self.node.checks
        self.sandbox, _ = self.node.hostile()

    def tearDown(self):
        self.node.check_neighbour()
        self.assertEqual(self.node.front(), self.front, "the front was ended\n" + self.node.logs())
        self.node.destroy(self.sandbox)
        kept = 2 * (self.node.checks - self.checks)
        self.node.settle(lambda: self.node.descriptors(self.front), self.descriptors + kept + SPARE_DESCRIPTORS)
        self.node.settle(lambda: self.node.held_bytes(self.front), self.held + 2 * MIB)
        self.assertEqual(self.node.child.pid, self.launcher)
        self.assertIsNone(self.node.child.poll(), self.node.logs())

    def attack(self, *words):
        return self.node.attack(self.sandbox, *words)

    def attack_again(self, *words):
        """One that comes after another that broke the connection: it is made again."""
        until = time.monotonic() + 60
        while True:
            status, data = self.attack(*words)
            if status != 423 or b"being reached" not in data and b"not ready" not in data:
                return status, data
            self.assertLess(time.monotonic(), until, data)
            time.sleep(0.02)

    def lines(self, text):
        return [line for line in self.node.log_since(self.mark).splitlines() if text in line]


@needs_root
class Descriptors(OneHostile):
    def each_kind(self, what, places):
        for kind in KINDS:
            for place in places:
                if place == places[0]:
                    self.node.destroy(self.sandbox)  # a fresh one is not being waited for
                    self.sandbox, _ = self.node.hostile()
                with self.subTest(kind=kind, place=place):
                    status, data = self.attack_again(what, kind, place)
                    self.assertIn(status, (200, 500), data)  # taken for what it seems, or the fault of the sandbox
            self.node.check_neighbour()
        refused = self.lines("broke the rules")
        self.assertTrue(refused and "not a" in refused[0], refused)

    def test_in_the_place_of_streams(self):
        self.each_kind("streams", (0, 2, 5))

    def test_in_the_place_of_a_terminal(self):
        self.each_kind("terminal", (0, 1, 3))

    def test_too_many(self):
        for what in ("too-many", "too-many-linger"):
            status, _ = self.attack_again("bytes", what)
            self.assertEqual(status, 423)
        self.assertTrue(self.lines("16 descriptors"))

    def test_a_queue_of_them(self):
        """What lies unread in a connection that the front gives up is closed by it."""
        self.assertEqual(self.attack("behind")[0], 423)
        self.node.check_neighbour()

    def test_commands_that_nobody_asked_for(self):
        """Each comes with six descriptors: of 262,144 or of 1024, a sandbox has a quarter at most."""
        with open(f"/proc/{self.front}/limits") as limits:
            [most] = [int(line.split()[3]) for line in limits if line.startswith("Max open files")]
        self.assertEqual(self.attack("strangers", 1500)[0], 200)
        self.assertLess(self.node.descriptors(self.front) - self.descriptors, min(7 * 1024, most // 4) + 64)
        told = self.lines("more commands than there is room for")
        self.assertTrue(told)
        self.assertLess(len(told), 16, "a line for each")


@needs_root
class Messages(OneHostile):
    def test_bytes(self):
        for what, told in (("short", "1 bytes"), ("huge", "more than"), ("other-way", "the other way"),
                           ("no-such", "unknown message type 4711"), ("reserved", "reserved 1"), ("no-end", "id must be")):
            with self.subTest(what):
                mark = self.node.log_mark()
                status, data = self.attack_again("bytes", what)
                self.assertEqual(status, 423, data)
                if what in ("short", "huge", "no-such"):  # the 1st, 2nd and 4th; 3rd, 5th and 6th are counted
                    self.node.wait_for_log(told, mark)

    def test_breaking_the_rules_again_and_again(self):
        """The log does not fill, and each time takes longer."""
        for _ in range(7):
            self.attack_again("nonsense", 50)
        told = self.lines("broke the rules")
        self.assertEqual([line.rsplit("times=")[1] for line in told], ["1", "2", "4"], told)
        self.assertEqual([], self.lines("nonsense-"))

    def test_out_of_order(self):
        for how, status in (("exit-first", 200), ("exit-twice", 200), ("start-twice", 200), ("refused-late", 200)):
            with self.subTest(how):
                got, data = self.attack("order", how)
                self.assertEqual((got, json.loads(data)["exit_code"]), (status, 0), data)

    def test_an_error_of_its_choice(self):
        """A client is not made to believe that its token was revoked."""
        status, data = self.attack("order", "refused")
        self.assertEqual((status, json.loads(data)["error"]["code"]), (500, "INTERNAL"))

    def test_a_flood(self):
        self.assertEqual(self.attack("flood", 100000)[0], 200)

    def test_it_hangs_up(self):
        for _ in range(5):
            self.assertEqual(self.attack_again("close")[0], 423)

    def test_it_never_answers(self):
        """... nor ends when it is told to: it is killed after its 11 s of grace."""
        waiting = self.node.begin(self.sandbox, "silent")
        self.node.wait_for_log("sandbox made", self.mark)
        self.node.check_neighbour()
        self.node.destroy(self.sandbox)
        self.assertEqual(waiting.getresponse().status, 410)
        waiting.close()

    def test_its_process_is_stopped(self):
        """By somebody who may: the front waits for nothing of it."""
        with open(f"/proc/{self.launcher}/task/{self.launcher}/children") as children:
            pids = [int(pid) for pid in children.read().split()]
        mine = [pid for pid in pids if self.node.is_hostile(pid)]
        self.assertTrue(mine)
        for pid in mine:
            os.kill(pid, 19)
        waiting = self.node.begin(self.sandbox, "honest")
        self.node.check_neighbour()
        for pid in mine:
            os.kill(pid, 9)
        self.assertIn(waiting.getresponse().status, (410, 423, 503))
        waiting.close()


@needs_root
class Output(OneHostile):
    def test_a_position_that_is_moved(self):
        """128 MiB go through the pipe; what the front has of them in memory is what it keeps of any command."""
        for how in ("forwards", "backwards"):
            with self.subTest(how):
                connection = self.node.begin(self.sandbox, "memory", how, 128)
                until, most = time.monotonic() + 3, 0
                while time.monotonic() < until:
                    most = max(most, self.node.held_bytes(self.front) - self.held)
                    time.sleep(0.02)
                self.assertLess(most, 12 * MIB)
                connection.close()
                self.node.destroy(self.sandbox)
                self.sandbox, _ = self.node.hostile()
        self.assertTrue(self.lines("what did not come by its pipe"))

    def test_without_an_end(self):
        for how in ("running", "after-exit"):
            with self.subTest(how):
                connection = self.node.begin(self.sandbox, "endless", how)
                for _ in range(5):
                    self.node.check_neighbour()
                    self.assertLess(self.node.held_bytes(self.front) - self.held, 24 * MIB)
                connection.close()


if __name__ == "__main__":
    unittest.main()
