"""Code that uses up all it can have in one sandbox, by each means there is: the neighbour and the negotiator answer on, the
limits hold, the sandbox itself takes commands still or says clearly why not, does again when the bomb is ended, and goes
without a trace. And whoever watches over it does not grow."""
import concurrent.futures
import os
import re
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, bombs, needs_root, remains  # noqa: E402

MIB = 1 << 20
LIMITS = {"cpu": 1, "memory_mb": 256, "disk_mb": 32, "pids": 64}
DEADLINE_S = 60
# What a sanitizer keeps of freed memory is not the program's.
SMALL = "quarantine_size_mb=4:thread_local_quarantine_size_kb=64"
GROWTH_BYTES = 96 * MIB  # a sandbox may keep 16 MiB of output here; nothing of what a bomb took comes near the front


def number_in(path):
    with open(path) as file:
        return int(file.read())


class Watched:
    """Memory and descriptors of the daemons."""

    def __init__(self, deployment):
        self.deployment = deployment
        self.pids = deployment.pids("parley-sandboxd") + deployment.pids("parley-negotiator")
        self.before = {pid: self.memory(pid) for pid in self.pids}

    @staticmethod
    def memory(pid):
        with open(f"/proc/{pid}/status") as status:
            return int(re.search(r"^VmRSS:\s+(\d+)", status.read(), re.M)[1]) << 10

    def check(self, test):
        now = self.deployment.pids("parley-sandboxd") + self.deployment.pids("parley-negotiator")
        test.assertEqual(sorted(now), sorted(self.pids), "a daemon was started anew\n" + self.deployment.logs())
        for pid in now:
            test.assertLess(self.memory(pid) - self.before[pid], GROWTH_BYTES)
            test.assertLess(len(os.listdir(f"/proc/{pid}/fd")), 1000)


class Sandbox:
    """One to be bombed, with its folders in the kernel's cgroups."""

    def __init__(self, deployment, thread):
        self.deployment, self.thread = deployment, thread
        self.grant = deployment.negotiate(thread, resources=LIMITS)
        self.base = self.grant["endpoints"]["http"]
        self.slot = remains.living(deployment.state)[self.grant["sandbox"]["id"]].slot
        with open(deployment.state + "/sandboxd/cgroups") as layout:  # boot, mount, options, parent, ours, by controller
            lines = layout.read().split("\n")
        self.unified, self.v1 = lines[4], dict(zip(("memory", "pids", "cpu"), lines[5:8]))

    def counted(self, controller, v1_name, v2_name):
        """What the kernel counts for its commands, and what it may be."""
        folder = self.v1.get(controller)
        if folder:
            used, limit = v1_name
            return number_in(f"{folder}/s{self.slot}/{used}"), number_in(f"{folder}/s{self.slot}/{limit}")
        used, limit = v2_name
        return number_in(f"{self.unified}/s{self.slot}/run/{used}"), number_in(f"{self.unified}/s{self.slot}/run/{limit}")

    def start(self, argv, **more):
        reply = self.deployment.exec(self.grant, argv=argv, id="bomb", detach=True, **more)
        assert reply.status == 201, reply

    def output(self):
        return self.deployment.request("GET", self.base + "/processes/bomb/output", token=self.grant["token"],
                                       record=False).body

    def is_there(self):
        return (remains.living(self.deployment.state).get(self.grant["sandbox"]["id"]) is not None or
                any(os.path.exists(f"{folder}/s{self.slot}") and self.is_ours() for folder in [self.unified]))

    def is_ours(self):
        """The slot's folder may be the next one's already."""
        return self.slot not in {record.slot for record in remains.records(self.deployment.state)}


@needs_root
class Bombs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(ASAN_OPTIONS=SMALL)
        cls.addClassCleanup(cls.deployment.close)
        cls.neighbour = cls.deployment.negotiate("neighbour")
        cls.deployment.shell(cls.neighbour, "true")
        cls.watched = Watched(cls.deployment)

    def tearDown(self):
        self.watched.check(self)

    def wait_for(self, condition, what):
        until = time.monotonic() + DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.05)

    def neighbour_answers(self):
        for _ in range(3):
            self.assertEqual(self.deployment.shell(self.neighbour, "echo here"), "here\n")
        self.assertIn(self.deployment.request("POST", "/threads/neighbour/sandbox", {}).status, (200, 201))

    def is_held(self, sandbox, starting=0):
        """`starting`: so many are being started at once; on v1 one that has joined counts until it is refused."""
        for controller, v1, v2 in (("memory", ("memory.usage_in_bytes", "memory.limit_in_bytes"),
                                    ("memory.current", "memory.max")),
                                   ("pids", ("pids.current", "pids.max"), ("pids.current", "pids.max"))):
            used, limit = sandbox.counted(controller, v1, v2)
            self.assertLessEqual(used, limit + (starting if controller == "pids" else 0), controller)
            self.assertEqual(limit, {"memory": LIMITS["memory_mb"] * MIB, "pids": LIMITS["pids"]}[controller])
        disk = self.deployment.request("GET", sandbox.base + "/metrics", token=sandbox.grant["token"]).json["disk"]
        self.assertLessEqual(disk["used_bytes"], disk["limit_bytes"] + MIB)

    def takes_or_says(self, sandbox):
        """Three commands in the bombed sandbox: each runs, or the answer says what there is none of."""
        for _ in range(3):
            reply = self.deployment.exec(sandbox.grant, cmd="echo alive", timeout=20)
            if reply.status == 200:
                said = reply.json
                # It may be what the kernel chose to kill, or fail at what it needs itself: its own answer says so.
                self.assertTrue(said["stdout"] == "alive\n" or said["exit_code"] != 0, said)
            else:
                self.assertIn((reply.status, reply.code), ((503, "NO_CAPACITY"), (507, "DISK_FULL")), reply)
                self.assertTrue(reply.json["error"]["message"])

    def recovers(self, sandbox):
        reply = self.deployment.request("DELETE", sandbox.base + "/processes/bomb", token=sandbox.grant["token"])
        self.assertEqual(reply.status, 204, reply)

        def answers():
            reply = self.deployment.exec(sandbox.grant, cmd="echo alive", timeout=20)
            return reply.status == 200 and reply.json["stdout"] == "alive\n"
        self.wait_for(answers, "it does not recover when the bomb has ended")

    def goes(self, sandbox):
        self.assertEqual(self.deployment.request("DELETE", f"/threads/{sandbox.thread}/sandbox").status, 204)
        self.wait_for(lambda: not sandbox.is_there(), "it does not go")

    def bomb(self, name, is_armed=None):
        sandbox = Sandbox(self.deployment, "bomb-" + name.replace(" ", "-"))
        sandbox.start(bombs.argv(name))
        self.wait_for(is_armed or (lambda: b"armed" in sandbox.output()), f"{name} does not come to its limit")
        self.neighbour_answers()
        self.is_held(sandbox)
        self.takes_or_says(sandbox)
        self.recovers(sandbox)
        # Destroyed while it is bombed, too.
        sandbox.start(bombs.argv(name)) if name in AGAIN else None
        self.goes(sandbox)

    # ---- through the API, by whoever has the token ----

    def test_a_storm_of_commands(self):
        sandbox = Sandbox(self.deployment, "storm")
        over, outcomes = threading.Event(), []

        def storm(who):
            while not over.is_set():
                reply = self.deployment.request("POST", sandbox.base + "/exec", {"cmd": "sleep 0.2", "stream": "none"},
                                                token=sandbox.grant["token"], timeout=90, record=False)
                outcomes.append((reply.status, reply.code))
        with concurrent.futures.ThreadPoolExecutor(100) as pool:
            for who in range(100):
                pool.submit(storm, who)
            try:
                self.wait_for(lambda: len(outcomes) > 300, "the storm does not come")
                self.neighbour_answers()
                self.is_held(sandbox, starting=100)
            finally:
                over.set()
        self.assertLessEqual(set(outcomes), {(200, None), (503, "NO_CAPACITY")}, set(outcomes))
        self.assertIn((200, None), outcomes)
        self.goes(sandbox)

    def test_commands_that_stay(self):
        sandbox = Sandbox(self.deployment, "stay")
        outcomes = []
        for number in range(80):
            reply = self.deployment.exec(sandbox.grant, argv=["sleep", "600"], id=f"stays{number}", detach=True)
            outcomes.append((reply.status, reply.code))
        self.assertEqual(set(outcomes), {(201, None), (503, "NO_CAPACITY")})
        self.neighbour_answers()
        self.is_held(sandbox)
        self.goes(sandbox)

    def test_output_that_a_slow_reader_takes(self):
        sandbox = Sandbox(self.deployment, "slowly")
        sandbox.start(bombs.argv("output"))
        path = sandbox.base[sandbox.base.index("/s/"):]
        readers = []
        for _ in range(20):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.settimeout(20)
            reader.connect(("127.0.0.1", self.deployment.port + 1))
            reader.sendall((f"GET {path}/processes/bomb/output?follow=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                            f"{sandbox.grant['token']}\r\n\r\n").encode())
            readers.append(reader)
        for _ in range(5):
            for reader in readers:
                self.assertTrue(reader.recv(1000))
            self.neighbour_answers()
        self.watched.check(self)
        for reader in readers:
            reader.close()
        self.recovers(sandbox)
        self.goes(sandbox)


AGAIN = ("fork", "memory", "zombies", "unix", "in flight", "sync")


def add_tests():
    for name in bombs.PROGRAMS:
        def test(self, name=name):
            self.bomb(name)
        setattr(Bombs, "test_bomb_" + name.replace(" ", "_"), test)


add_tests()

if __name__ == "__main__":
    unittest.main()
