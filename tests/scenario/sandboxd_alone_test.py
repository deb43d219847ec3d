"""sandboxd without any negotiator: a fixed node key, a sealed prepare, tokens minted by the specification alone; exec,
replay, and kill -9 of launcher and front while a command counts: every number is seen once."""
import http.client
import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import needs_root  # noqa: E402
from parley_testing.alone import SANDBOX, Alone  # noqa: E402
from parley_testing.remains import held  # noqa: E402

NUMBERS = 3000
COUNTER = f"for i in $(seq 1 {NUMBERS}); do echo $i; [ $((i % 20)) -eq 0 ] && sleep 0.02; done; exit 5"


@needs_root
class SandboxdAlone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Alone()
        cls.addClassCleanup(cls.node.close)
        made = cls.node.prepare()
        assert made.get("ok"), (made, cls.node.logs())
        cls.made = made["sandbox"]

    def test_1_prepare_is_idempotent(self):
        self.assertEqual((self.made["id"], self.made["isolation"]), (SANDBOX, "namespaces"))
        self.assertTrue(self.node.prepare()["sandbox"]["reused"])

    def test_2_exec(self):
        done = self.node.exec("echo $GIVEN; id -u; pwd; exit 3")
        self.assertEqual((done["stdout"], done["exit_code"]), ("yes\n1000\n/workspace\n", 3))

    def test_3_only_the_right_key(self):
        status, _ = self.node.verb("GET", "/info", token=self.node.token(key=os.urandom(32)))
        self.assertEqual(status, 401)
        self.assertEqual(self.node.verb("GET", "/processes", token=self.node.token("fs:ro"))[0], 403)
        status, info = self.node.verb("GET", "/info", token=self.node.token(""))
        self.assertEqual((status, json.loads(info)["sandbox"]["id"]), (200, SANDBOX))

    def follow(self, name):
        """To the exit, resuming by offset over broken connections."""
        text, until = "", time.monotonic() + 60
        while time.monotonic() < until:
            try:
                status, data = self.node.verb("GET", f"/processes/{name}/output?follow=1&stdout_offset={len(text)}")
                self.assertEqual(status, 200, data)
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
                continue
            for event in map(json.loads, data.decode().splitlines()):
                if event["type"] == "stdout":
                    self.assertEqual(event["offset"], len(text))
                    text += event["data"]
                if event["type"] == "exit":
                    return text, event["exit_code"]
        self.fail("no exit\n" + self.node.logs())

    def test_4_every_number_once_through_kill_9(self):
        status, data = self.node.verb("POST", "/exec", {"cmd": COUNTER, "id": "count", "detach": True})
        self.assertEqual(status, 201, data)
        for _ in range(3):
            time.sleep(0.4)
            self.node.kill()
            self.node.start()
        text, code = self.follow("count")
        self.assertEqual(text, "".join(f"{n}\n" for n in range(1, NUMBERS + 1)))
        self.assertEqual(code, 5)

    def test_5_destroy_leaves_nothing_and_is_told(self):
        self.node.verb("POST", "/exec", {"cmd": "setsid sleep 700 & sleep 701", "detach": True})
        self.assertEqual(self.node.call(call="destroy", id=SANDBOX, reason="released"), {"ok": True})
        until = time.monotonic() + 25
        while time.monotonic() < until and held(self.node.state):
            time.sleep(0.1)
        self.assertEqual(held(self.node.state), [])
        status, data = self.node.verb("GET", "/processes")
        self.assertEqual((status, json.loads(data)["error"]["code"]), (410, "GONE"))
        self.assertIn("released", json.loads(data)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
