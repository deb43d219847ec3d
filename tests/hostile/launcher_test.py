"""The launcher between a hostile front and hostile inits that are being born. Goal: what is out of policy is refused, what
is malformed ends that front, both are logged; the launcher lives, leaks no descriptor and no slot, and serves its
sandboxes through the next front. The front's place is taken by LD_PRELOAD (programs/hostile_preload.c)."""
import os
import sys
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from parley_testing.deployment import BIN, needs_root
from parley_testing.hostile import NEIGHBOUR, Hostile, named

PROGRAMS = os.path.join(os.path.dirname(BIN), "hostile")
SPARE_DESCRIPTORS = 12  # of births and ends that are under way

# FL_ types (sandboxd/front_launcher/front_launcher.h)
SANDBOX, REFUSED, ENDED, DONE = "6", "8", "9", "21"


def refused(*codes):
    return lambda lines: lines != [] and lines[0].split(" ")[0] == REFUSED and lines[0].split(" ")[1] in codes


def is_ended(lines):
    return lines == []


POLICY = refused("INVALID_REQUEST", "FORBIDDEN", "CAPABILITY_DENIED")
FRONTS = {
    # prepares
    "good": lambda lines: lines[0].startswith(SANDBOX),
    "root": lambda lines: lines[0].startswith(SANDBOX + " root=0") or POLICY(lines),  # root_user is never here
    "replay": lambda lines: (lines[0].startswith(SANDBOX) and lines[1].endswith("reused=1") and
                             lines[2].startswith(ENDED) and lines[3].startswith(REFUSED + " GONE")),
    "volume-over-proc": POLICY, "volume-over-root": POLICY,
    "snapshot": refused("NOT_FOUND", "INVALID_REQUEST"),
    **{name: POLICY for name in (
        "memory", "memory-none", "cpu", "pids", "disk", "open-files", "commands", "output", "deadline",
        "template", "isolation", "volume-host", "network", "network-loopback", "network-metadata", "network-all")},
    # of another's sandbox, and of one that there is
    "foreign-destroy": lambda lines: lines[0] == ENDED + " unknown",
    **{"foreign-" + name: refused("NOT_FOUND") for name in ("deadline", "limits", "network", "usage", "snapshot")},
    **{"living-" + name: POLICY for name in ("deadline", "limits", "network")},
    "snapshot-drop": lambda lines: lines[0] == DONE or refused("NOT_FOUND")(lines),
    "rekey": lambda lines: lines[0].startswith(REFUSED) or is_ended(lines),
}
# Malformed. Each is a front's life, and the launcher begins the next one later each time, up to 5 s: all of them with
# PARLEY_HOSTILE_ALL=1; what is a message is front_launcher_test.c's and its fuzzer's too.
MALFORMED = ["nothing-first", "id-path", "snapshot-drop-path", "too-short", "descriptors-many", "descriptors-linger",
             "descriptors-linger-many", "flood"]
if os.environ.get("PARLEY_HOSTILE_ALL"):
    MALFORMED += ["template-path", "snapshot-path", "id-endless", "hostname", "env", "volume-host-up", "volume-name",
                  "volumes", "network-mode", "volume-sub", "deadline-past", "living-snapshot-path",
                  "volume-drop-path", "one-byte", "too-long", "ready-twice", "no-such-type", "other-way", "descriptors"]
FRONTS = {**{name: is_ended for name in MALFORMED}, **FRONTS}

BIRTHS = {
    "li-failed-plain": "DISK_FULL", "li-failed-control": "INTERNAL", "li-failed-utf8": "INTERNAL",
    "li-failed-endless": "INTERNAL", "li-failed-kind": "INTERNAL", "li-failed-token": "INTERNAL", "li-short": "INTERNAL",
    "li-long": "INTERNAL", "li-become": "INTERNAL", "li-unknown": "INTERNAL",
    "li-flood": "INTERNAL", "li-few-fds": "INTERNAL", "li-many-fds": "INTERNAL", "li-linger": "INTERNAL",
    "li-linger-cut": "INTERNAL", "li-die": "GONE", "li-close": "GONE",
}


class Preloaded(Hostile):
    options = (*Hostile.options, "--egress_max", "none")

    def __init__(self):
        self.environment = dict(os.environ, LD_PRELOAD=os.path.join(PROGRAMS, "hostile-preload.so"),
                                HOSTILE_FRONT=os.path.join(PROGRAMS, "hostile-front"),
                                ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
        super().__init__()

    def start(self):
        self.environment["HOSTILE_FOLDER"] = self.folder
        super().start()

    def play_fronts(self, names):
        """What the launcher answered to each, from fronts that were in the place of ours."""
        with open(self.folder + "/attack", "w") as attack:
            attack.write("\n".join([*names, "good"]))
        os.kill(self.front(), 9)
        until = time.monotonic() + 400  # with every malformed message
        while not os.path.exists(self.folder + "/answer"):
            assert time.monotonic() < until, self.logs()
            time.sleep(0.02)
        self.await_front(60)
        with open(self.folder + "/answer") as answer:
            parts = answer.read().split("== ")[1:]
        return {name: lines for name, *lines in (part.splitlines() for part in parts)}


@needs_root
class HostileFront(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Preloaded()
        cls.addClassCleanup(cls.node.close)

    def test_what_it_says(self):
        launcher, mark = self.node.child.pid, self.node.log_mark()
        before, slots = self.node.descriptors(launcher), os.listdir(self.node.state + "/sandboxd/records")
        answers = self.node.play_fronts(FRONTS)
        for name, is_right in FRONTS.items():
            with self.subTest(name):
                self.assertTrue(is_right(answers[name]), answers[name])
        self.node.check_neighbour()
        self.assertIsNone(self.node.child.poll())
        self.assertTrue(self.node.has(NEIGHBOUR))
        self.node.settle(lambda: self.node.descriptors(launcher), before + SPARE_DESCRIPTORS)
        self.node.settle(lambda: len(os.listdir(self.node.state + "/sandboxd/records")), len(slots))
        told = [lines[0] for name, lines in answers.items() if lines and name != "foreign-usage"]  # which is not logged
        log = self.node.log_since(mark)
        self.assertGreaterEqual(log.count(" refused sandbox="), sum(line.startswith(REFUSED) for line in told) - 1, log)
        ended = sum(lines == [] for lines in answers.values())
        self.assertGreaterEqual(log.count("the front is ended: "), ended)


# Where no sandbox may go, whatever a name's server says: for these its own egress would not even ask.
FORBIDDEN = ["127.0.0.1", "127.0.0.53", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
             "0.0.0.1", "224.0.0.1", "255.255.255.255"]
BREACHES = ["ready-twice", "short", "linger", "flood"]
if os.environ.get("PARLEY_HOSTILE_ALL"):  # each is a life, and the next one begins later each time
    BREACHES += ["other-way", "long", "no-type", "count", "for-ever"]


class WithWay(Preloaded):
    options = Hostile.options

    def __init__(self):
        super().__init__()
        self.environment["HOSTILE_EGRESS"] = os.path.join(PROGRAMS, "hostile-egress")
        self.stop()
        self.start()

    def stop(self):
        self.child.terminate()
        self.child.wait(30)

    def kill_egress(self):
        """The next one is not ours."""
        with open(f"/proc/{self.child.pid}/task/{self.child.pid}/children") as children:
            pids = [int(pid) for pid in children.read().split()]
        [egress] = [pid for pid in pids if os.readlink(f"/proc/{pid}/exe").endswith("/parley-egress")]
        os.kill(egress, 9)


@needs_root
class HostileEgress(unittest.TestCase):
    """What has the place of parley-egress can pin public addresses for a sandbox that has names (it is the one to look
    them up), and nothing else."""

    @classmethod
    def setUpClass(cls):
        cls.node = WithWay()
        cls.addClassCleanup(cls.node.close)

    @staticmethod
    def lines(path):
        if not os.path.exists(path):
            return []
        with open(path) as told:
            return [line for line in told.read().splitlines() if line]

    def test_what_it_says(self):
        launcher, mark = self.node.child.pid, self.node.log_mark()
        before = self.node.descriptors(launcher)
        with open(self.node.folder + "/egress", "w") as attack:
            attack.write("\n".join(["good", *FORBIDDEN, "foreign", "stale", *BREACHES, "good"]))
        self.node.count += 1
        sandbox = named(self.node.count)
        answer = self.node.prepare_as(sandbox, "hostile", network={"egress": "allow", "allow": ["example.com"]})
        self.assertTrue(answer.get("ok"), answer)
        self.node.kill_egress()
        path = self.node.folder + "/egress.answer"
        self.node.wait_for(lambda: "over" in self.lines(path), 60)
        lines = self.lines(path)
        self.assertEqual(lines, ["good ok", *(name + " no" for name in (*FORBIDDEN, "foreign", "stale")), *BREACHES,
                                 "good ok", "over"])
        self.node.check_neighbour()
        self.assertEqual((self.node.child.poll(), self.node.child.pid), (None, launcher))
        self.assertGreaterEqual(self.node.log_since(mark).count("parley-egress is ended: "), len(BREACHES))
        self.node.destroy(sandbox)
        self.node.settle(lambda: self.node.descriptors(launcher), before + SPARE_DESCRIPTORS)


@needs_root
class HostileBirths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Hostile()
        cls.addClassCleanup(cls.node.close)

    def test_what_is_said_before_it_lives(self):
        launcher, front = self.node.child.pid, self.node.front()
        before, mark = self.node.descriptors(launcher), self.node.log_mark()
        slots = len(os.listdir(self.node.state + "/sandboxd/records"))
        for name, code in BIRTHS.items():
            with self.subTest(name):
                _, answer = self.node.hostile(name)
                self.assertEqual(answer["error"]["code"], code, answer)
                self.assertTrue(answer["error"]["message"].isprintable(), answer)
            self.node.check_neighbour()
        self.assertEqual(self.node.log_since(mark).count(" refused sandbox="), len(BIRTHS))
        self.assertTrue(all(line.isprintable() for line in self.node.log_since(mark).splitlines()))
        self.node.settle(lambda: self.node.descriptors(launcher), before + SPARE_DESCRIPTORS)
        self.node.settle(lambda: len(os.listdir(self.node.state + "/sandboxd/records")), slots)
        self.assertEqual(self.node.front(), front)

    def test_what_is_behind_its_last_word(self):
        sandbox, answer = self.node.hostile("li-behind")
        self.assertTrue(answer.get("ok"), answer)
        self.node.check_neighbour()
        self.node.destroy(sandbox)

    def test_it_says_nothing(self):
        """Others are born meanwhile."""
        self.node.count += 1
        silent = named(self.node.count)
        other = None
        try:
            self.node.start_preparing(silent, "li-silent")
            other, answer = self.node.hostile()
            self.assertTrue(answer["ok"])
            self.node.check_neighbour()
        finally:
            if other:
                self.node.destroy(other)

    def test_it_is_destroyed_before_it_lives(self):
        """At once: its prepare has 30 s, in which it would hold a place of eight."""
        launcher = self.node.child.pid
        before, answers = self.node.descriptors(launcher), []
        self.node.count += 1
        silent = named(self.node.count)
        waiting = threading.Thread(target=lambda: answers.append(self.node.prepare_as(silent, "li-silent")))
        waiting.start()
        self.node.wait_for(lambda: self.node.has(silent))
        self.node.destroy(silent)
        waiting.join()
        self.assertEqual(answers[0]["error"]["code"], "GONE", answers)  # of its time it would be TIMEOUT
        self.node.settle(lambda: self.node.descriptors(launcher), before + SPARE_DESCRIPTORS)
        again = self.node.prepare_as(silent, "hostile")
        self.assertEqual(again["error"]["code"], "GONE", again)
        self.node.check_neighbour()


if __name__ == "__main__":
    unittest.main()
