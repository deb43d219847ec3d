"""Each attempt of attempts/ works outside (as root, or in the sandbox that it is aimed at) and fails inside, as the
sandbox's user and as its root; afterwards the neighbour still runs.

PARLEY_ESCAPE_ISOLATION=gvisor runs them against another level. `escape_test.py --list` prints them with their walls."""
import collections
import http.client
import json
import os
import platform
import subprocess
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from attempts import ATTEMPTS  # noqa: E402
from attempts.attempt import NEIGHBOUR  # noqa: E402
from attempts.program import program  # noqa: E402
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.remains import living  # noqa: E402
from planted import NEIGHBOUR as NEIGHBOURS_PROGRAM  # noqa: E402
from planted import Planted  # noqa: E402

PYTHON = "/usr/bin/python3"
Outcome = collections.namedtuple("Outcome", "what why")


def host_root_has(capability):
    if capability < 0:
        return True
    with open("/proc/self/status") as status:
        effective = next(line.split()[1] for line in status if line.startswith("CapEff:"))
    return int(effective, 16) >> capability & 1


class Escapes:
    """All attempts, against one isolation level."""
    isolation = os.environ.get("PARLEY_ESCAPE_ISOLATION", "namespaces")

    @classmethod
    def setUpClass(cls):
        cls.planted = Planted()
        cls.addClassCleanup(cls.planted.close)
        cls.deployment = cls.deploy()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.negotiate("escape")
        cls.neighbour = cls.negotiate("neighbour", volumes=[{"name": "theirs", "path": "/data"}])
        cls.has_root = cls.deployment.exec(cls.grant, cmd="true", user="root").status == 200
        if cls.isolation == "namespaces":
            assert cls.has_root, "root_user is allowed, and root is not"
        cls.settle_neighbour()
        cls.hold_a_file_helper()
        cls.outcomes = {}

    @classmethod
    def deploy(cls):
        settings = {} if cls.isolation == "namespaces" else {"PARLEY_ISOLATION": f"namespaces,{cls.isolation}"}
        return Deployment(PARLEY_ROOT_USER="allowed", **settings)

    @classmethod
    def negotiate(cls, thread, **more):
        if cls.isolation != "namespaces":
            more = {"isolation": cls.isolation}  # volumes are not every level's
        return cls.deployment.negotiate(thread, **more)

    @classmethod
    def settle_neighbour(cls):
        """What there is to reach in the other sandbox."""
        name = "neighbour-" + cls.planted.name
        if "volumes" not in str(cls.neighbour.get("sandbox", {}).get("volumes") and "volumes"):
            cls.deployment.exec(cls.neighbour, cmd="mkdir -p /data && chmod 777 /data", user="root")
        reply = cls.deployment.exec(cls.neighbour, argv=[PYTHON, "-c", NEIGHBOURS_PROGRAM, name, cls.planted.secret,
                                                         str(cls.planted.key)], detach=True)
        assert reply.status == 201, reply
        deadline, said = time.monotonic() + 60, ""
        while not said:
            assert time.monotonic() < deadline, "the neighbour's program does not start"
            said = cls.deployment.shell(cls.neighbour, f"cat /tmp/ready-{name} 2>/dev/null || true")
        port, datagrams = map(int, said.split())
        slot = next((record.slot for record in living(cls.deployment.state).values()), 1)
        cls.facts = {**cls.planted.facts(), "state": cls.deployment.state, "front_port": cls.deployment.port + 1,
                     "init_socket": f"{cls.deployment.state}/sandboxd/run/{slot}/init.sock",
                     "neighbour": {"name": name, "secret": cls.planted.secret, "file": "/workspace/" + name, "port": port,
                                   "datagrams": datagrams, "key": cls.planted.key}}

    @classmethod
    def hold_a_file_helper(cls):
        """One that waits, so that there is one to attack."""
        parts = urllib.parse.urlsplit(cls.grant["endpoints"]["http"])
        cls.watch = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        cls.watch.request("GET", parts.path + "/watch/workspace", headers={"Authorization": "Bearer " + cls.grant["token"]})
        assert cls.watch.getresponse().status == 200
        cls.addClassCleanup(cls.watch.close)

    # ---- running ----

    @staticmethod
    def told(text):
        return {name: Outcome(what, why) for name, what, why in map(json.loads, text.splitlines())}

    def on_host(self, mechanism, attempts):
        self.planted.clear()
        done = subprocess.run([PYTHON, "-c", program(attempts, self.facts, True)], capture_output=True, text=True, timeout=200,
                              env=self.planted.environment, cwd=self.planted.scratch, start_new_session=True)
        self.assertEqual(done.returncode, 0, f"{mechanism} outside: {done.stderr}")
        return self.told(done.stdout)

    def in_sandbox(self, grant, mechanism, attempts, user):
        how = {} if user == "user" else {"user": user}
        path = f"/tmp/escape-{mechanism}.py"  # not in argv, which is one of the places that are searched for our names
        put = self.deployment.request("PUT", f"{grant['endpoints']['http']}/files{path}", program(attempts, self.facts, False),
                                      token=grant["token"], record=False)
        self.assertIn(put.status, (200, 201), put)
        reply = self.deployment.exec(grant, argv=[PYTHON, path], timeout=80, **how)
        self.assertEqual((reply.status, reply.json.get("exit_code")), (200, 0), f"{mechanism} as {user}: {reply.body}")
        return self.told(reply.json["stdout"])

    def run_once(self, where, mechanism):
        """All attempts of a mechanism, in one process there."""
        if (where, mechanism) not in self.outcomes:
            attempts = ATTEMPTS[mechanism]
            if where == "outside":
                theirs = [attempt for attempt in attempts if attempt.proof == NEIGHBOUR]
                seen = self.in_sandbox(self.neighbour, mechanism, theirs, "user") if theirs else {}
                mine = [attempt for attempt in attempts if attempt.proof != NEIGHBOUR]
                self.outcomes[where, mechanism] = {**seen, **(self.on_host(mechanism, mine) if mine else {})}
            else:
                self.outcomes[where, mechanism] = self.in_sandbox(self.grant, mechanism, attempts, where)
                self.assertEqual(self.deployment.shell(self.neighbour, "echo alive"), "alive\n")
        return self.outcomes[where, mechanism]

    def attempt(self, mechanism, attempt, user):
        if user == "root" and not self.has_root:
            self.skipTest(f"isolation {self.isolation} runs no command as root")
        inside = self.run_once(user, mechanism)[attempt.name]
        if inside.what == "escaped" and not host_root_has(attempt.needs):
            self.skipTest(f"this host's root lacks capability {attempt.needs}, so nothing can be built with it: {attempt.wall}")
        self.assertNotEqual(inside.what, "escaped", f"{attempt.name} got out; it was to be stopped by: {attempt.wall}")
        outside = self.run_once("outside", mechanism)[attempt.name]
        if outside.what != "escaped" and (attempt.lacks or outside.what == "lacking"):
            self.skipTest(f"stopped inside, but not seen to work outside ({attempt.lacks}): {outside.why}")
        self.assertEqual(outside.what, "escaped", f"{attempt.name} does not even work outside: {outside.why}")

    # ---- what is no single program ----

    def test_root_of_the_sandbox_writes_its_own_usr(self):
        """A root it is, or the attempts as root would show nothing."""
        if not self.has_root:
            self.skipTest(f"isolation {self.isolation} runs no command as root")
        name = self.planted.name
        self.assertEqual(self.deployment.shell(self.grant, f"id -u; touch /usr/lib/{name} && echo done", user="root"),
                         "0\ndone\n")
        self.assertEqual(self.deployment.shell(self.neighbour, f"ls /usr/lib | grep -c {name} || true"), "0\n")
        self.assertFalse(os.path.exists("/usr/lib/" + name))
        self.assertEqual(self.deployment.exec(self.neighbour, cmd="id -u", user="root").json["stdout"], "0\n")

    def test_a_crash_runs_nothing_on_the_host(self):
        """A core_pattern that is a program is run by the kernel as the host's root, for each crash."""
        name = f"{self.planted.scratch}/dumped"
        with open(name + ".sh", "w") as handler:
            handler.write(f"#!/bin/sh\necho \"$1\" >> {name}\ncat > /dev/null\n")
        os.chmod(name + ".sh", 0o755)
        pattern = "/proc/sys/kernel/core_pattern"
        with open(pattern) as file:
            before = file.read()
        try:
            with open(pattern, "w") as file:
                file.write(f"|{name}.sh %u:%P")
            crashed = subprocess.run(["/bin/sh", "-c", "ulimit -c 0; kill -SEGV $$"], check=False)
            self.assertLess(crashed.returncode, 0)
            self.await_line(name, "0:")
            for command in ("kill -SEGV $$", "ulimit -c 0; kill -ABRT $$", "ulimit -c unlimited; kill -SEGV $$",
                            f"{PYTHON} -c 'import os, ctypes; os.fork(); ctypes.string_at(0)'"):
                for user in ({}, {"user": "root"}) if self.has_root else ({},):
                    self.deployment.exec(self.grant, cmd=command, **user)
            subprocess.run(["/bin/sh", "-c", "kill -BUS $$"], check=False)  # who comes last has seen the others come
            self.await_line(name, "0:", count=2)
        finally:
            with open(pattern, "w") as file:
                file.write(before)
        with open(name) as file:
            self.assertEqual([line for line in file if int(line.split(":")[0]) >= 0x70000000], [])

    def await_line(self, path, start, count=1):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if os.path.exists(path):
                with open(path) as file:
                    if sum(line.startswith(start) for line in file) >= count:
                        return
            time.sleep(0.02)
        self.fail("the kernel did not start the handler for a crash on the host")

    def test_files_of_the_helper_itself(self):
        """/proc/self is the helper's, by the API: nothing of it is more than the user's."""
        if self.isolation != "namespaces":
            self.skipTest("what a guest's own /proc shows is the guest's")
        base = self.grant["endpoints"]["http"] + "/files/proc/self"

        def ask(path, method="GET", **headers):
            return self.deployment.request(method, base + path, b"1" if method == "PUT" else None, token=self.grant["token"],
                                           headers=headers, record=False)
        for path in ("/environ", "/mem", "/exe", "/auxv", "/stack", "/syscall", "/io", *(f"/fd/{n}" for n in range(20)), "/ns/mnt"):
            self.assertGreaterEqual(ask(path).status, 400, path)
        for path in ("/comm", "/mem", "/oom_score_adj", "/clear_refs", "/attr/current", "/uid_map", "/fd/1", "/exe"):
            for part in ({}, {"Content-Range": "bytes 0-0/1"}, {"Content-Range": "bytes 0-0/9"}):
                self.assertGreaterEqual(ask(path, "PUT", **part).status, 400, path)
        for path in ("/mountinfo", "/maps", "/status", "/cmdline", "/cgroup"):
            self.assertNotIn(self.deployment.state.encode(), ask(path).body)


PLANTED = ("secret", "shm_path", "marker", "victim", "abstract", "port", "host_addresses", "system_v_", "planted_variable", "host_terminal",
           "host_name", "machine_id", "host_user", "state", "neighbour", "front_port", "init_socket")


def is_for(attempt, isolation):
    """Where the kernel is the sandbox's own, what it shows and allows of itself is no way out: what is planted elsewhere is."""
    own_kernel = isolation in ("gvisor", "microvm")
    names_planted = any(name in attempt.code for name in PLANTED) and "victim if OUTSIDE" not in attempt.code
    return (not attempt.levels or isolation in attempt.levels) and (not own_kernel or names_planted)


def add_all(case):
    for mechanism, attempts in ATTEMPTS.items():
        for attempt in attempts:
            for user, why_not in (("user", attempt.own_user), ("root", attempt.own_root)):
                if not why_not and is_for(attempt, case.isolation):
                    setattr(case, f"test_{mechanism}__{attempt.name}__as_{user}",
                            lambda self, m=mechanism, a=attempt, u=user: self.attempt(m, a, u))


@needs_root
@unittest.skipUnless(platform.machine() == "x86_64", "system call numbers are x86_64's")
class Namespaces(Escapes, unittest.TestCase):
    pass


add_all(Namespaces)


def print_list():
    for mechanism, attempts in ATTEMPTS.items():
        print(f"{mechanism} ({len(attempts)})")
        for attempt in attempts:
            print(f"  {attempt.name}: {attempt.wall}")
    print(sum(map(len, ATTEMPTS.values())))


if __name__ == "__main__":
    if "--list" in sys.argv:
        print_list()
    else:
        unittest.main()
