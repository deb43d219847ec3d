"""`parley up` by an ordinary user: what it takes, what it gives, and that neither that user's files nor anybody's processes
are within reach of what runs in its sandboxes. The list that all levels share: levels_test.py."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing.remains import living  # noqa: E402
from parley_testing.rootless import CONTROLLERS, SLOT, RootlessDeployment, RootlessUser, needs_rootless, own_cgroups  # noqa: E402

SECRET = "rootless-secret-4711"


def uids(pid):
    with open(f"/proc/{pid}/status") as status:
        return {int(uid) for line in status if line.startswith("Uid:") for uid in line.split()[1:]}


def processes_below(folder):
    found = []
    for at, _, files in os.walk(folder):
        if "cgroup.procs" in files:
            with open(at + "/cgroup.procs") as procs:
                found += map(int, procs.read().split())
    return found


@needs_rootless
class RootlessNode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.user = RootlessUser(slots=6)
        cls.addClassCleanup(cls.user.close)
        cls.plant()
        cls.node = RootlessDeployment(cls.user, PARLEY_WARM="1", PARLEY_EGRESS_USER="public")
        cls.addClassCleanup(cls.node.close)
        cls.grant = cls.node.negotiate("rootless", resources={"memory_mb": 256, "pids": 64, "cpu": 0.5})

    @classmethod
    def plant(cls):
        """What the user has, and a process of the user's outside of all sandboxes."""
        cls.planted = []
        for name, mode in (("closed", 0o600), ("open", 0o644)):
            path = f"{cls.user.home}/{name}"
            with open(path, "w") as file:
                file.write(SECRET)
            os.chmod(path, mode)
            os.chown(path, cls.user.uid, cls.user.gid)
            cls.planted.append(path)
        os.chmod(cls.user.home, 0o755)  # so that the mode of the files alone is asked
        cls.victim = subprocess.Popen(["sleep", "600"], preexec_fn=cls.user.become, stdout=subprocess.DEVNULL)
        cls.addClassCleanup(cls.victim.wait)
        cls.addClassCleanup(cls.victim.kill)

    def shell(self, command, **body):
        return self.node.shell(self.grant, command, **body)

    # ---- what is told ----

    def test_lease_and_doctor_say_rootless(self):
        self.assertEqual((self.grant["sandbox"]["isolation"], self.grant["sandbox"]["isolation_detail"]),
                         ("namespaces", "rootless"))
        row = self.node.request("GET", f"/sandboxes/{self.grant['sandbox']['id']}").json
        row = row.get("sandbox", row)
        self.assertEqual((row["isolation"], row["isolation_detail"]), ("namespaces", "rootless"))
        told = self.node.cli("doctor", "--json")
        layers = {layer["name"]: layer for layer in json.loads(told.stdout)}
        self.assertEqual([name for name, layer in layers.items() if not layer["active"]], [], told.stdout)
        self.assertIn("rootless", layers["rights"]["detail"])
        self.assertIn("6", layers["uid slots"]["detail"])
        self.assertIn("namespaces", " ".join(layers))

    # ---- what it is made of ----

    def test_every_process_has_an_id_of_the_users_range(self):
        self.node.exec(self.grant, cmd="sleep 600", detach=True)
        other = self.node.negotiate("rootless-other")
        self.node.exec(other, cmd="sleep 600", detach=True)
        top = next(folder for folder in self.user.cgroups if folder.startswith(own_cgroups()[""] + "/"))
        slots = {}
        for at in os.listdir(top):
            for slot in os.listdir(f"{top}/{at}") if at.startswith("parley-") else ():
                if slot[0] == "s" and slot[1:].isdigit():
                    slots[int(slot[1:])] = processes_below(f"{top}/{at}/{slot}")
        used = {record.slot for record in living(self.node.state).values()}
        self.assertGreaterEqual(len(used & slots.keys()), 2)
        for slot, pids in ((slot, slots[slot]) for slot in used & slots.keys()):  # others may just be being born
            first = self.user.first + slot * SLOT
            for pid in pids:
                try:
                    self.assertTrue(all(first <= uid < first + SLOT - 1 for uid in uids(pid)), (slot, pid, uids(pid)))
                except FileNotFoundError:
                    pass  # it has just ended
        front = [uids(pid) for pid in self.pids_of("parley-sandboxd")]
        self.assertIn({self.user.first + SLOT - 1}, front)  # the id that no sandbox has
        self.node.request("DELETE", f"/sandboxes/{other['sandbox']['id']}")

    def pids_of(self, program):
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                is_it = os.readlink(f"/proc/{entry}/exe").endswith("/" + program)
                with open(f"/proc/{entry}/cmdline", "rb") as words:
                    is_it = is_it and self.node.state.encode() in words.read()
            except OSError:
                continue
            if is_it:
                found.append(int(entry))
        return found

    def test_limits_are_the_kernels(self):
        slot = living(self.node.state)[self.grant["sandbox"]["id"]].slot
        said = {}
        for name, file in (("memory", "memory.limit_in_bytes"), ("pids", "pids.max"), ("cpu", "cpu.cfs_quota_us")):
            for folder in self.user.cgroups:
                for at, _, files in os.walk(folder):
                    if at.endswith(f"/s{slot}") and file in files:
                        with open(f"{at}/{file}") as value:
                            said[name] = int(value.read())
        if own_cgroups().keys() >= set(CONTROLLERS):  # all of them are v1's here
            self.assertEqual(said, {"memory": 256 << 20, "pids": 64, "cpu": 50000})
        ended = self.node.exec(self.grant, argv=["/usr/bin/python3", "-c", "x = bytearray(600 << 20)"], timeout=60).json
        self.assertTrue(ended.get("oom") or ended.get("signal") in (9, "KILL", "SIGKILL"), ended)
        forked = self.node.exec(self.grant, cmd="for i in $(seq 200); do sleep 5 & done; wait", timeout=60)
        self.assertIn("fork", forked.json["stderr"] + forked.json["stdout"])
        self.assertEqual(self.shell("echo alive"), "alive\n")

    def test_files_survive_a_snapshot(self):
        self.shell("echo kept > /workspace/kept")
        made = self.node.cli("snapshot", "rootless", "--name", "kept-one", "--json")
        thread = self.grant["sandbox"]["name"] if made.returncode else None
        if thread:
            made = self.node.cli("snapshot", thread, "--name", "kept-one", "--json")
        self.assertEqual(made.returncode, 0, made.stderr)
        again = self.node.negotiate("rootless-again", template="snapshot:kept-one")
        self.assertEqual(self.node.shell(again, "cat /workspace/kept; stat -c %U /workspace/kept"), "kept\nuser\n")
        self.node.request("DELETE", f"/sandboxes/{again['sandbox']['id']}")

    # ---- attacks ----

    def test_the_users_files_are_out_of_reach(self):
        for path in self.planted:
            seen = subprocess.run(["cat", path], preexec_fn=self.user.become, stdout=subprocess.PIPE, text=True, check=True)
            self.assertEqual(seen.stdout, SECRET)  # outside it works
            for tried in (path, f"/proc/1/root{path}", f"/proc/self/root/../..{path}"):
                reply = self.node.exec(self.grant, argv=["/bin/cat", tried]).json
                self.assertNotEqual(reply["exit_code"], 0, tried)
                self.assertNotIn(SECRET, reply["stdout"])
            self.assertEqual(self.node.request("GET", f"{self.grant['endpoints']['http']}/files{path}",
                                               token=self.grant["token"]).status, 404)
        found = self.shell(f"grep -rls {SECRET} / --include=closed --include=open 2>/dev/null | grep -v ^/proc || true")
        self.assertEqual(found, "")

    def test_the_state_folder_is_out_of_reach(self):
        self.assertTrue(os.path.isdir(self.node.state + "/sandboxd"))
        self.assertEqual(self.node.exec(self.grant, argv=["/bin/ls", self.node.state]).json["exit_code"], 2)
        self.assertNotIn(self.node.state, self.shell("cat /proc/self/mountinfo /proc/1/cmdline; env"))
        self.assertEqual(self.shell("find / -xdev \\( -name node.json -o -name init.sock \\) 2>/dev/null || true"), "")

    def test_nobodys_processes_can_be_signalled(self):
        """Neither root's nor the user's own, by their host pids or by all pids there are."""
        program = ("import os, signal\n"
                   f"for pid in ({self.victim.pid}, {os.getpid()}, -1, *range(2, 4194304, 9973)):\n"
                   "    try:\n        signal.signal(signal.SIGUSR1, signal.SIG_IGN); os.kill(pid, signal.SIGUSR1)\n"
                   "    except (ProcessLookupError, PermissionError): pass\n")
        ended = self.node.exec(self.grant, argv=["/usr/bin/python3", "-c", program]).json
        self.assertEqual(ended["exit_code"], 0, ended)
        self.assertIsNone(self.victim.poll())
        os.kill(self.victim.pid, 0)

    def test_newuidmap_gives_nothing_inside(self):
        """Set-uid root on the host, where this very user has ids to map."""
        self.assertTrue(os.stat("/usr/bin/newuidmap").st_mode & 0o4000 or
                        subprocess.run(["getcap", "/usr/bin/newuidmap"], stdout=subprocess.PIPE, check=False).stdout)
        made = subprocess.run(["unshare", "--user", "--map-auto", "--map-root-user", "cat", "/proc/self/uid_map"],
                              preexec_fn=self.user.become, stdout=subprocess.PIPE, text=True, check=False)
        self.assertIn(str(self.user.first), made.stdout)  # outside it maps
        for user in ({}, {"user": "root"}):
            reply = self.node.exec(self.grant, cmd="sleep 30 & newuidmap $! 0 0 1 1 1 100; echo $?; cat /proc/$!/uid_map", **user)
            if reply.status == 200:  # root is not allowed by this node
                self.assertNotEqual(reply.json["stdout"].split("\n")[0], "0", reply)
        self.assertNotEqual(self.node.exec(self.grant, cmd="unshare --user true").json["exit_code"], 0)
        self.assertEqual(self.shell("cat /etc/subuid 2>/dev/null || true"), "")

    # ---- what is not given ----

    def test_what_needs_root_is_refused(self):
        for wish, words in (({"egress": "public"}, None), ({"network": {"egress": "public"}}, None),
                            ({"volumes": [{"name": "v", "path": "/v"}]}, "volumes"), ({"isolation": "gvisor"}, "gvisor")):
            reply = self.node.request("POST", "/threads/refused/sandbox", wish)
            self.assertGreaterEqual(reply.status, 400, (wish, reply))
            if words:
                self.assertIn(words, reply.body.decode())

    # ---- life ----

    def test_killed_launcher_and_front_lose_nothing(self):
        pid = self.shell("sleep 600 > /dev/null 2>&1 & echo $!").strip()
        for plane in self.pids_of("parley-sandboxd"):
            try:
                os.kill(plane, signal.SIGKILL)
            except ProcessLookupError:
                pass
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                if self.node.exec(self.grant, cmd="true").status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.05)
        self.assertEqual(self.shell(f"kill -0 {pid} && echo alive"), "alive\n")
        another = self.node.negotiate("rootless-after")  # in the same namespace as the one that lived on
        self.assertEqual(self.node.shell(another, "id -u"), "1000\n")
        changed = self.node.request("PATCH", f"/sandboxes/{another['sandbox']['id']}", {"resources": {"pids": 65}})
        self.assertEqual(changed.status, 200, changed)
        self.node.request("DELETE", f"/sandboxes/{another['sandbox']['id']}")


@needs_rootless
class RootlessEnds(unittest.TestCase):
    def test_down_leaves_nothing_and_a_plain_folder_serves(self):
        user = RootlessUser(slots=2)
        self.addCleanup(user.close)
        node = RootlessDeployment(user, PARLEY_STORAGE="folder", PARLEY_WARM="0")
        self.addCleanup(node.close)
        grant = node.negotiate("t")
        self.assertEqual(grant["sandbox"]["storage"], "folder")
        self.assertEqual(node.shell(grant, "echo here > /workspace/file; cat /workspace/file; stat -c %u /workspace/file"),
                         "here\n1000\n")
        top = f"{node.state}/sandboxd/storage/plain/areas"
        owners = {os.lstat(f"{at}/{name}").st_uid for at, folders, files in os.walk(top) for name in files}
        self.assertTrue(all(user.first <= uid < user.first + 2 * SLOT for uid in owners) and owners, owners)
        self.assertEqual(node.cli("down").returncode, 0)
        self.assertEqual([name for name in os.listdir(top)], [])
        self.assertEqual([name for name in os.listdir(f"{node.state}/sandboxd/records")], [])
        for folder in user.cgroups:
            self.assertEqual([name for name in os.listdir(folder) if name.startswith("parley-")], [])
        self.assertEqual(os.listdir(f"/tmp/parley-{user.uid}/slots") if os.path.isdir(f"/tmp/parley-{user.uid}") else [], [])


@needs_rootless
class RootlessNeeds(unittest.TestCase):
    def test_too_few_ids_say_how_to_get_more(self):
        user = RootlessUser(slots=0, spare=SLOT - 1)
        self.addCleanup(user.close)
        said = user.run(RootlessDeployment.reachable_bin(user) + "/parley-sandboxd", "--state", user.home + "/state")
        self.assertEqual(said.returncode, 1)
        self.assertIn(f"{SLOT - 1} subordinate uids", said.stderr)
        self.assertRegex(said.stderr, rf"sudo usermod --add-subuids \d+-\d+ --add-subgids \d+-\d+ {user.name}")
        told = user.run(RootlessDeployment.reachable_bin(user) + "/parley-sandboxd", "--doctor", "--state", user.home + "/state")
        self.assertIn("usermod --add-subuids", told.stdout)
        # The very command: then there is room, and what is missing next is an enrolment.
        command = said.stderr[said.stderr.index("usermod"):].split(")")[0].split()
        subprocess.run(command, check=True)
        self.assertIn("enrol", user.run(RootlessDeployment.reachable_bin(user) + "/parley-sandboxd", "--state", user.home + "/state").stderr)

    def test_one_slot_is_debians_default(self):
        user = RootlessUser(slots=1)
        self.addCleanup(user.close)
        node = RootlessDeployment(user)
        self.addCleanup(node.close)
        grant = node.negotiate("only")
        self.assertEqual(node.shell(grant, "id -u; cat /proc/self/uid_map | tr -s ' '"), f"1000\n 0 1 {SLOT - 1}\n")
        self.assertGreaterEqual(node.request("POST", "/threads/second/sandbox", {}).status, 429)

    def test_a_limit_that_is_not_delegated(self):
        user = RootlessUser(slots=2, controllers=("memory", "pids"))
        self.addCleanup(user.close)
        if "cpu" not in own_cgroups():
            self.skipTest("v2 has the cpu controller here")
        said = user.run(RootlessDeployment.reachable_bin(user) + "/parley-sandboxd", "--state", user.home + "/refused").stderr
        for word in ("cpu cgroup", "Delegate=yes", "missing_limits"):
            self.assertIn(word, said)
        node = RootlessDeployment(user, PARLEY_MISSING_LIMITS="allow", PARLEY_WARM="0")
        self.addCleanup(node.close)
        grant = node.negotiate("t", resources={"memory_mb": 128})
        self.assertEqual(grant["sandbox"]["isolation_detail"], "rootless; no limit of cpu")
        ended = node.exec(grant, argv=["/usr/bin/python3", "-c", "x = bytearray(400 << 20)"], timeout=60).json
        self.assertNotEqual(ended["exit_code"], 0)  # what is delegated holds
        layers = {layer["name"]: layer for layer in json.loads(node.cli("doctor", "--json").stdout)}
        self.assertFalse(layers["cpu limit"]["active"])
        self.assertTrue(layers["memory limit"]["active"])

    def test_without_cgroups_it_says_how_to_delegate(self):
        user = RootlessUser(slots=1)
        self.addCleanup(user.close)
        node = RootlessDeployment(user, start=False, PARLEY_MISSING_LIMITS="allow")
        self.addCleanup(node.close)
        with open(f"{user.home}/told", "w") as told:
            done = subprocess.run(["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups", node.bin +
                                   "/parley-sandboxd", "--doctor"], env=node.environment, stdout=told, check=False)
        with open(f"{user.home}/told") as told:
            layers = {layer["name"]: layer for layer in map(json.loads, told)}
        self.assertEqual(done.returncode, 1)
        self.assertFalse(layers["cgroups"]["active"])
        self.assertIn("Delegate=yes", layers["cgroups"]["detail"])


if __name__ == "__main__":
    unittest.main()
