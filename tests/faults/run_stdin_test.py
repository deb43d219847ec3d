"""`parley run` while launcher and front are killed with -9 again and again: what is piped through a command goes in once and comes
out once, the command starts once, and its end is told."""
import os
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402

LINES = 300_000
KILLS = 6
SLOWLY = ["sh", "-c", "echo begun >>begun; while head -c 65536 >part && [ -s part ]; do cat part; sleep 0.1; done; exit 5"]


@needs_root
class RunStdin(unittest.TestCase):
    def setUp(self):
        self.deployment = Deployment()
        self.addCleanup(self.deployment.close)
        self.assertEqual(self.deployment.cli("run", "--", "true").returncode, 0)

    def start(self, *words):
        """Its stdin is `seq 1 LINES`."""
        producer = subprocess.Popen(["seq", "1", str(LINES)], stdout=subprocess.PIPE)
        child = subprocess.Popen([os.path.join(BIN, "parley"), "run", *words], env=self.deployment.environment, stdin=producer.stdout,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        producer.stdout.close()
        self.addCleanup(producer.wait)
        self.addCleanup(self.end, child)
        return child

    @staticmethod
    def end(child):
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()

    def kill(self):
        self.deployment.kill("parley-sandboxd")
        self.kills += 1
        self.deployment.wait_ready()

    def read(self, child, pause=0.0):
        """All of its output; sandboxd is killed KILLS times, evenly over it."""
        wanted = sum(len(str(n)) + 1 for n in range(1, LINES + 1))
        output, self.kills, begun, killer = bytearray(), 0, 0, None
        while part := os.read(child.stdout.fileno(), 65536):
            output += part
            time.sleep(pause)
            if begun < KILLS and len(output) > wanted * (begun + 1) // (KILLS + 1):
                if killer:
                    killer.join()  # what comes meanwhile waits, as it would for any slow reader
                begun += 1
                killer = threading.Thread(target=self.kill)
                killer.start()
        killer.join()
        return bytes(output)

    def check(self, child, output, status):
        self.assertEqual((child.wait(30), child.stderr.read()), (status, b""))
        self.assertEqual(self.kills, KILLS)
        lines = output.split(b"\n")
        self.assertEqual(lines.pop(), b"")
        for wanted, line in enumerate(lines, 1):
            self.assertEqual(int(line), wanted)
        self.assertEqual(len(lines), LINES)

    def test_every_line_once(self):
        child = self.start("--", "cat")
        self.check(child, self.read(child, 0.01), 0)

    def test_a_command_that_reads_slowly(self):
        child = self.start("--", *SLOWLY)
        self.check(child, self.read(child), 5)
        self.assertEqual(self.deployment.cli("run", "--", "cat", "begun").stdout, "begun\n")

    def test_who_reads_late_misses_nothing(self):
        numbers = 2_000_000  # more than is kept for who comes back
        child = subprocess.Popen([os.path.join(BIN, "parley"), "run", "-v", "--", "seq", "1", str(numbers)],
                                 env=self.deployment.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, child)
        output = child.stdout.read(1000)
        time.sleep(45)  # a peer that is silent for so long is given up
        output += child.stdout.read()
        self.assertEqual(child.wait(30), 0)
        self.assertNotIn(b"connection lost", child.stderr.read())
        self.assertEqual(output, b"".join(b"%d\n" % n for n in range(1, numbers + 1)))

    def test_a_signal_that_is_sent_meanwhile_arrives(self):
        child = subprocess.Popen([os.path.join(BIN, "parley"), "run", "-n", "--", "sh", "-c",
                                  "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.1; done"],
                                 env=self.deployment.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, child)
        self.assertEqual(child.stdout.readline(), b"ready\n")
        self.deployment.kill("parley-sandboxd")
        time.sleep(0.05)  # it has heard of that
        child.send_signal(2)
        self.assertEqual((child.stdout.read(), child.wait(30)), (b"caught\n", 4))
        self.deployment.wait_ready()


if __name__ == "__main__":
    unittest.main()
