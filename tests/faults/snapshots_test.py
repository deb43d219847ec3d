"""kill -9 of launcher or front while a snapshot is taken, or while a sandbox is filled from one: what was under way is
nowhere, neither as data nor as a record; the sandbox goes on, thawed; asked again, it is done."""
import glob
import os
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import needs_root  # noqa: E402
from parley_testing.alone import SANDBOX, Alone  # noqa: E402
from parley_testing.remains import held, living  # noqa: E402

SNAPSHOT, OTHER = "snp_" + "k" * 20, "snp_" + "m" * 20
COPY = "sbx_copy" + "0" * 16
MEGABYTES = 96


def wait_for(test, node, seconds=40):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = test()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("waited in vain\n" + node.logs())


@needs_root
class OfMemory(unittest.TestCase):
    """storage tmpfs: a snapshot is a copy, which takes a while."""

    @classmethod
    def setUpClass(cls):
        os.environ.update(PARLEY_STORAGE="tmpfs", PARLEY_WARM="0")  # for each launcher that is started
        cls.node = Alone()
        made = cls.node.prepare()
        assert made.get("ok"), (made, cls.node.logs())
        # Many files and some bytes: so the copy lasts long enough to be killed in it.
        cls.node.exec(f"mkdir -p /workspace/many; cd /workspace/many; for i in $(seq 6000); do echo $i > $i; done; "
                      f"head -c {MEGABYTES // 2}M /dev/urandom > /workspace/big; sha256sum < /workspace/big", timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.node.close()
        for name in ("PARLEY_STORAGE", "PARLEY_WARM"):
            os.environ.pop(name)

    def snapshots(self):
        """All that is there of any snapshot."""
        below = self.node.state + "/sandboxd"
        return glob.glob(below + "/snapshots/*") + [path for path in glob.glob(below + "/storage/**/*snp_*", recursive=True)
                                                    + glob.glob(below + "/storage/**/.*snp_*", recursive=True)]

    def begin(self, **message):
        """Asks, and does not mind an answer that never comes."""
        def ask():
            try:
                self.node.call(**message)
            except Exception:  # noqa: BLE001 - the node is killed meanwhile
                pass
        thread = threading.Thread(target=ask)
        thread.start()
        return thread

    def goes_on(self):
        self.assertEqual(self.node.exec("cat /workspace/many/6000")["stdout"], "6000\n")

    def test_1_the_launcher_is_killed(self):
        asked = self.begin(call="snapshot", id=SANDBOX, snapshot=SNAPSHOT)
        wait_for(self.snapshots, self.node)
        self.node.kill()
        self.node.start()
        asked.join()
        wait_for(lambda: not self.snapshots() or self.kept(SNAPSHOT), self.node)
        self.goes_on()
        if not self.kept(SNAPSHOT):  # the kill came before it was done: it can be asked for again
            self.assertEqual(self.snapshots(), [])

    def kept(self, name):
        """A whole one: both halves."""
        found = [os.path.basename(path) for path in self.snapshots()]
        return found.count(name) >= 2

    def test_2_the_front_is_killed(self):
        asked = self.begin(call="snapshot", id=SANDBOX, snapshot=OTHER)
        wait_for(lambda: [path for path in self.snapshots() if OTHER in path], self.node)
        self.node.kill_front()
        self.node.await_front()
        asked.join()
        wait_for(lambda: self.kept(OTHER) or not [path for path in self.snapshots() if OTHER in path], self.node)
        self.goes_on()

    def test_3_asked_again(self):
        for name in (SNAPSHOT, OTHER):
            self.assertEqual(self.node.call(call="snapshot_drop", snapshot=name), {"ok": True})
        wait_for(lambda: not self.snapshots(), self.node)
        reply = self.node.call(call="snapshot", id=SANDBOX, snapshot=SNAPSHOT)
        self.assertTrue(reply.get("ok"), (reply, self.node.logs()))
        self.assertTrue(self.kept(SNAPSHOT), self.snapshots())
        self.assertGreater(reply["size_bytes"], MEGABYTES // 2 << 20)
        self.goes_on()

    def copy(self):
        return dict(call="prepare", sandbox=dict(
            id=COPY, name="lone-copy", template="base", isolation="auto", snapshot=SNAPSHOT, cpu_milli=1000,
            memory_bytes=256 << 20, disk_bytes=0, pids=128, epoch=1, env={}, deadline=int(time.time() * 1000) + 3600_000))

    def test_4_killed_while_it_is_filled(self):
        asked = self.begin(**self.copy())
        time.sleep(0.05)
        self.node.kill()
        self.node.start()
        asked.join()
        wait_for(lambda: len(held(self.node.state)) == 3 * len(living(self.node.state)), self.node)
        self.assertIn(SANDBOX, living(self.node.state))
        self.assertTrue(self.kept(SNAPSHOT))
        reply = self.node.call(**self.copy())
        self.assertTrue(reply.get("ok"), (reply, self.node.logs()))
        self.assertEqual(set(living(self.node.state)), {SANDBOX, COPY})
        self.goes_on()


if __name__ == "__main__":
    unittest.main()
