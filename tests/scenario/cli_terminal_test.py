"""`parley shell`, `attach` and `watch` as a user has them: tmux holds real terminals, keys go in, screens are looked at. Nothing
typed and nothing shown is lost or doubled when sandboxd is killed; who watches cannot type; programs that own the whole
screen work."""
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.tmux import Tmux  # noqa: E402

PROMPT = r"user@[\w-]+:\S*\$ $"
OUTSIDE = r"outside\$ $"


@needs_root
@unittest.skipUnless(Tmux.is_there(), "needs tmux")
class Terminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.tmux = Tmux(cls.deployment)
        cls.addClassCleanup(cls.tmux.close)

    def setUp(self):
        self.name = re.sub(r"\W", "", self._testMethodName)[5:25]

    def open(self, name=None, **size):
        name = name or self.name
        self.tmux.open(name, **size)
        self.addCleanup(self.tmux.close, name)
        return name

    def shell(self, *words, **size):
        """A window with a shell of this test's thread in it, at its prompt."""
        name = self.open(**size)
        self.tmux.line(name, " ".join(["parley shell --thread", self.name, *words]))
        self.tmux.wait(name, PROMPT)
        return name

    def left(self, name, status):
        """It is outside again, with this exit status, and the terminal is as it was."""
        self.tmux.wait(name, OUTSIDE)
        self.assertEqual(self.tmux.ask(name, "echo status $?"), f"status {status}")
        modes = self.tmux.ask(name, "stty -a | tr -d ';' | tr ' ' '\\n' | grep -xE -- '-?(icanon|echo|isig|opost|icrnl)' | xargs")
        self.assertEqual(sorted(modes.split()), ["echo", "icanon", "icrnl", "isig", "opost"])

    def only_terminal(self):
        ids = re.findall(r"^(trm_\w+) .* running", self.deployment.cli("ps", "--thread", self.name).stdout, re.MULTILINE)
        self.assertEqual(len(ids), 1, ids)
        return ids[0]

    def programs(self, program, word):
        """Processes of this deployment with that word in their command line."""
        found = []
        for pid in self.deployment.pids(program):
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                if word.encode() in words.read().split(b"\0"):
                    found.append(pid)
        return found

    # ---- the shell ----

    def test_prompt_typing_and_exit_status(self):
        name = self.shell()
        self.assertEqual(self.tmux.ask(name, "pwd; id -u; tty; echo $TERM"),
                         "/workspace\n1000\n/dev/pts/0\n" + self.tmux.ask(self.open("beside"), "echo $TERM"))
        self.tmux.line(name, "echo a ~b; echo ~~c | cat -v")
        self.tmux.wait(name, r"^a ~b\n~~c$")
        self.tmux.line(name, "exit 7")
        self.left(name, 7)
        self.assertIn(" ended ", self.deployment.cli("ps", "--thread", self.name).stdout)

    def test_a_command_of_its_own_and_its_death(self):
        name = self.open()
        self.tmux.line(name, f"parley shell --thread {self.name} --env A=b -- sh -c 'echo $A here; kill -9 $$'")
        self.tmux.wait(name, "^b here")
        self.left(name, 137)

    def test_resize(self):
        name = self.shell(columns=90, rows=25)
        self.assertEqual(self.tmux.ask(name, "stty size"), "25 90")
        self.tmux.resize(name, 120, 40)
        self.tmux.line(name, "sleep 0.3; stty size")
        self.tmux.wait(name, "^40 120")
        self.assertRegex(self.deployment.cli("ps", "--thread", self.name).stdout, r"trm_\w+ +\d+ 120x40 +open +running")

    def test_interrupt_and_suspend_are_the_programs(self):
        name = self.shell()
        self.tmux.line(name, "sleep 100")
        time.sleep(0.3)
        self.tmux.keys(name, "C-c")
        self.tmux.wait(name, r"\^C\n" + PROMPT)
        self.tmux.line(name, "echo $?")
        self.tmux.wait(name, "^130$")
        self.tmux.line(name, "sleep 100")
        time.sleep(0.3)
        self.tmux.keys(name, "C-z")
        self.tmux.wait(name, "Stopped")
        self.assertIn("Stopped", self.tmux.ask(name, "jobs"))

    def test_without_a_terminal_it_names_run(self):
        done = self.deployment.cli("shell", "--thread", self.name)
        self.assertEqual(done.returncode, 2)
        self.assertIn("stdin is no terminal", done.stderr)
        self.assertIn("parley run", done.stderr)

    def test_the_terminal_comes_back_when_parley_is_killed(self):
        name = self.shell()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            with self.subTest(number.name):
                os.kill(self.programs("parley", self.name)[0], number)
                self.tmux.wait(name, "lives on")
                self.left(name, 128 + number)
                self.tmux.keys(name, "C-l")
                self.tmux.line(name, f"clear; parley attach --thread {self.name}")
                self.tmux.wait(name, PROMPT)

    def test_no_such_thread_node_or_id(self):
        name = self.open()
        self.tmux.line(name, "parley shell --thread nobody --attach trm_x")
        self.left(name, 125)
        self.tmux.line(name, f"clear; parley shell --thread {self.name} -- nosuchcommand")
        self.tmux.wait(name, "nosuchcommand")
        self.left(name, 125)
        done = self.deployment.cli("attach", "--thread", self.name, "nosuchid")
        self.assertEqual(done.returncode, 125)
        self.assertIn("parley ps", done.stderr)

    # ---- programs that own the screen ----

    def test_vim(self):
        name = self.shell()
        self.tmux.line(name, "vim -u NONE -c 'set showmode' note.txt")
        self.tmux.wait(name, r"^~$")
        self.tmux.keys(name, "i")
        self.tmux.wait(name, "-- INSERT --")
        self.tmux.line(name, "first line")
        self.tmux.type(name, "second ~. äöü €")
        self.tmux.keys(name, "Escape")
        self.tmux.line(name, ":wq")
        self.tmux.wait(name, PROMPT)
        done = self.deployment.cli("run", "--thread", self.name, "--", "cat", "note.txt")
        self.assertEqual(done.stdout, "first line\nsecond ~. äöü €\n")

    def test_less(self):
        name = self.shell(rows=20)
        self.tmux.line(name, "seq -f 'line %g.' 1 5000 >f; less f")
        self.tmux.wait(name, r"\Aline 1\.")
        self.tmux.line(name, r"/line 2500\.")
        self.tmux.wait(name, r"\Aline 2500\.")
        self.tmux.keys(name, "G")
        self.tmux.wait(name, r"^line 5000\.")
        self.tmux.keys(name, "q")
        self.tmux.wait(name, PROMPT)

    def test_top(self):
        name = self.shell()
        self.tmux.line(name, "top -d 0.3")
        self.tmux.wait(name, r"(?s)\Atop - .*PID USER .*\n.* top *$")
        self.tmux.resize(name, 80, 15)
        self.tmux.wait(name, r"(?s)\Atop - .*PID USER ")
        time.sleep(1)
        self.assertLessEqual(len(self.tmux.screen(name).split("\n")), 15)
        self.tmux.keys(name, "q")
        self.tmux.wait(name, PROMPT)

    # ---- leaving and coming back ----

    def test_leave_and_come_back(self):
        name = self.shell()
        self.tmux.line(name, "echo before")
        self.tmux.wait(name, "^before")
        self.tmux.type(name, "~?")
        self.tmux.wait(name, "~. leaves")
        self.tmux.keys(name, "Enter")
        self.tmux.line(name, "vim -u NONE -c 'set showmode' kept.txt")
        self.tmux.wait(name, "^~$")
        self.tmux.type(name, "ihalf done")
        self.tmux.wait(name, "half done")
        self.tmux.keys(name, "Enter")
        self.tmux.type(name, "~.")
        screen = self.tmux.wait(name, "come back with: parley attach")
        self.assertIn("before", screen)  # the main screen again
        self.assertNotIn("half done", screen)
        self.left(name, 0)
        other = self.open("other")
        self.tmux.line(other, f"parley attach --thread {self.name} {self.only_terminal()}")
        self.tmux.wait(other, r"(?s)\Ahalf done\n.*INSERT")
        self.tmux.type(other, "rest")
        self.tmux.keys(other, "Escape")
        self.tmux.line(other, ":wq")
        self.tmux.wait(other, PROMPT)
        self.assertEqual(self.tmux.ask(other, "cat kept.txt"), "half done\nrest")
        self.tmux.line(other, "exit")
        self.left(other, 0)

    def test_answers_to_old_questions_are_not_typed(self):
        name = self.shell()
        self.tmux.line(name, r"printf '\033[c\033[6n'; sleep 0.3; read -t 0.3 -n 100 x; echo asked")
        self.tmux.wait(name, r"asked\n" + PROMPT)
        self.tmux.keys(name, "Enter")
        self.tmux.type(name, "~.")
        self.tmux.wait(name, OUTSIDE)
        self.tmux.line(name, f"clear; parley attach --thread {self.name}")
        self.tmux.wait(name, PROMPT)
        time.sleep(0.6)
        self.assertRegex(self.tmux.screen(name) + " ", PROMPT)

    # ---- watching ----

    def test_watch_sees_and_cannot_type(self):
        name = self.shell()
        self.tmux.line(name, "echo early")
        self.tmux.wait(name, "^early")
        other = self.open("watcher")
        self.tmux.line(other, f"parley watch --thread {self.name}")
        self.tmux.wait(other, "^early")
        self.tmux.line(name, "echo seen by two")
        for window in (name, other):
            self.tmux.wait(window, "^seen by two")
        self.tmux.line(other, "echo typed by the watcher")
        self.tmux.line(name, "echo last")
        for window in (name, other):
            screen = self.tmux.wait(window, "^last")
            self.assertNotIn("typed by", screen)
        self.tmux.keys(other, "C-c")
        self.left(other, 0)
        self.assertNotIn("typed by", self.tmux.screen(other))
        self.tmux.line(other, "clear")
        self.tmux.wait(other, r"\Aoutside\$ $")
        self.tmux.line(other, f"parley watch --thread {self.name}")
        self.tmux.wait(other, "^last")
        self.tmux.line(name, "exit 3")
        self.left(name, 3)
        self.left(other, 0)

    def test_watch_needs_no_more_than_its_scope(self):
        name = self.shell()
        other = self.open("narrow")
        self.tmux.line(other, f"parley attach --watch --thread {self.name}")
        self.tmux.wait(other, PROMPT)
        self.tmux.keys(other, "C-c")
        self.tmux.line(name, "exit")
        until, watched = time.monotonic() + 10, []
        while not watched and time.monotonic() < until:
            records = json.loads(self.deployment.cli("audit", "--thread", self.name, "-n", "100", "--json").stdout)
            watched = [r["scope"] for r in records if r["action"] == "terminal.attach" and "mode=watch" in r["detail"]]
            time.sleep(0.1)
        self.assertEqual(watched, ["shell:ro"])

    # ---- what breaks ----

    def test_killed_sandboxd_loses_and_doubles_nothing(self):
        name = self.shell(columns=60)
        count, killed = 400, 0
        self.tmux.line(name, "cat >typed")
        time.sleep(0.3)
        for i in range(count):
            self.tmux.line(name, f"typed {i}")
            if i % 100 == 50:
                self.deployment.kill("parley-sandboxd")
                killed += 1
        self.tmux.wait(name, rf"^typed {count - 1} *$", 30)
        self.tmux.keys(name, "C-d")
        self.tmux.wait(name, PROMPT, 30)
        self.assertEqual(killed, 4)
        self.deployment.wait_ready()
        done = self.deployment.cli("run", "--thread", self.name, "--", "cat", "typed")
        self.assertEqual(done.stdout.split("\n"), [f"typed {i}" for i in range(count)] + [""])
        self.tmux.line(name, "clear; i=0; while [ $i -lt 600 ]; do i=$((i+1)); echo shown $i; sleep 0.005; done; echo all")
        for _ in range(3):
            time.sleep(0.7)
            self.deployment.kill("parley-sandboxd")
        self.tmux.wait(name, "^all *$", 40, history=True)
        lines = [line for line in self.tmux.screen(name, history=True).split("\n") if line.startswith("shown")]
        self.assertEqual(lines, [f"shown {i}" for i in range(1, 601)])

    def test_a_long_loss_is_told_and_can_be_left(self):
        name = self.shell()
        supervisor = self.programs("parley", "up")
        for pid in supervisor:
            os.kill(pid, signal.SIGSTOP)
        try:
            self.deployment.kill("parley-sandboxd")
            self.tmux.wait(name, "connection lost, resuming")
            self.tmux.type(name, "echo typed meanwhile")
            self.tmux.keys(name, "Enter")
            for pid in supervisor:
                os.kill(pid, signal.SIGCONT)
            self.tmux.wait(name, "^typed meanwhile", 20)
            self.assertIn("connected again", self.tmux.screen(name))
        finally:
            for pid in supervisor:
                os.kill(pid, signal.SIGCONT)
        self.deployment.wait_ready()

    def test_a_revoked_token_is_replaced_and_an_ended_sandbox_is_told(self):
        name = self.shell()
        done = self.deployment.cli("revoke", "--thread", self.name, "--reason", "test")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.tmux.ask(name, "echo still here"), "still here")
        self.assertNotIn("connection lost", self.tmux.screen(name))  # it took no second
        self.tmux.line(name, "exec sleep 1000")
        time.sleep(0.3)
        self.deployment.cli("rm", "--thread", self.name)
        self.left(name, 143)

    def test_it_goes_on_beyond_its_token(self):
        name = self.shell("--ttl 60")
        began = time.monotonic()
        while time.monotonic() - began < 68:
            self.tmux.line(name, "echo tick")
            time.sleep(4)
        self.assertEqual(self.tmux.ask(name, "echo still here"), "still here")
        self.assertNotIn("parley", self.tmux.screen(name, history=True).split("parley shell", 1)[1].split("\n", 1)[1])
        self.tmux.line(name, "exit 5")
        self.left(name, 5)

    # ---- other processes ----

    def detached(self, *command, stdin=True):
        """Started in the background; its id."""
        done = self.deployment.cli("run", "-d", *([] if stdin else ["-n"]), "--thread", self.name, "--", *command)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_attach_to_what_is_no_terminal(self):
        process = self.detached("sh", "-c", "echo early; echo wrong >&2; while read x; do echo got $x; done; exit 6")
        done = self.deployment.cli("attach", "--thread", self.name, process, input="one\ntwo\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (6, "early\ngot one\ngot two\n", "wrong\n"))
        again = self.deployment.cli("attach", "--thread", self.name, process)
        self.assertEqual((again.returncode, again.stdout, again.stderr), (6, "early\ngot one\ngot two\n", "wrong\n"))

    def test_attach_takes_all_of_stdin_through_a_restart(self):
        size = 3_000_000
        process = self.detached("sh", "-c", "sleep 0.5; sha256sum; echo read >&2")
        data = os.urandom(size)
        grant, killed = self.deployment.negotiate(self.name), []

        def kill_when_fed():
            until = time.monotonic() + 20
            while time.monotonic() < until:
                view = self.deployment.request("GET", f"{grant['endpoints']['http']}/processes/{process}", token=grant["token"])
                if view.json["stdin_offset"] > 0:
                    break
            killed.append(self.deployment.kill("parley-sandboxd"))

        killer = threading.Thread(target=kill_when_fed)
        killer.start()
        self.addCleanup(self.deployment.wait_ready)
        done = self.deployment.cli("attach", "--thread", self.name, process, input=data, text=False)
        killer.join()
        self.assertTrue(killed)
        self.assertEqual((done.returncode, done.stdout.split()[0].decode()), (0, hashlib.sha256(data).hexdigest()), done.stderr)
        self.deployment.wait_ready()

    def test_attach_passes_signals_on_and_no_stdin_when_told(self):
        process = self.detached("sh", "-c", "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.1; done")
        started = subprocess.Popen([os.path.join(BIN, "parley"), "attach", "--thread", self.name, process], env=self.deployment.environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(started.stdout.readline(), "ready\n")
        started.send_signal(signal.SIGINT)
        self.assertEqual((started.stdout.read(), started.wait(20)), ("caught\n", 4))
        started.stdin.close()
        started.stdout.close()
        closed = self.detached("cat", stdin=False)
        self.assertEqual(self.deployment.cli("attach", "--thread", self.name, closed).returncode, 0)


if __name__ == "__main__":
    unittest.main()
