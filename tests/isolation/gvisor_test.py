"""Isolation gvisor: what is its own. A kernel in user space (runsc, ptrace) around each sandbox, in a slot as of namespaces;
the front judges and records each request and relays it to the front inside. The list that all levels share:
levels_test.py."""
import base64
import json
import os
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing.deployment import BIN, Deployment  # noqa: E402
from parley_testing.gvisor import needs_gvisor, settings  # noqa: E402
from parley_testing.processes import commands_below, facts_of  # noqa: E402
from parley_testing.websocket import Refused, Session  # noqa: E402

FIRST_UID, SLOT = 1879048192, 65536


@needs_gvisor
class Gvisor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Deployment(**settings())
        cls.addClassCleanup(cls.node.close)
        cls.grant = cls.node.negotiate("gv", isolation="gvisor")
        cls.http = cls.grant["endpoints"]["http"]

    def shell(self, command, **body):
        return self.node.shell(self.grant, command, **body)

    def keeper(self, grant=None):
        """PID 1 of the slot."""
        with open(f"{self.node.state}/log/sandboxd.log") as log:
            made = [line for line in log if "sandbox made" in line and (grant or self.grant)["sandbox"]["id"] in line]
        return int(made[-1].split(" pid=")[1].split()[0])

    def ask(self, method, path, grant=None, token=None, **more):
        grant = grant or self.grant
        return self.node.request(method, grant["endpoints"]["http"] + path, token=token or grant["token"], **more)

    def ended(self, grant):
        """The sandbox as the negotiator shows it, once it is over."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            shown = self.node.request("GET", f"/sandboxes/{grant['sandbox']['id']}").json
            if shown["state"] in ("terminated", "failed"):
                return shown
            time.sleep(0.1)
        raise AssertionError(shown)

    def test_the_lease_says_it_and_the_kernel_is_another_one(self):
        self.assertEqual(self.grant["sandbox"]["isolation"], "gvisor")
        self.assertEqual(self.ask("GET", "/info").json["sandbox"]["isolation"], "gvisor")
        self.assertIn("Linux version 4.4.0", self.shell("cat /proc/version"))
        plain = self.node.negotiate("plain")
        self.assertEqual(plain["sandbox"]["isolation"], "namespaces")
        self.assertIn(os.uname().release, self.node.shell(plain, "cat /proc/version"))

    def test_all_of_it_is_in_the_slot_and_its_kernel_has_no_rights_there(self):
        keeper = self.keeper()
        base = int(facts_of(keeper)["Uid"].split()[0])
        self.assertEqual((base - FIRST_UID) % SLOT, 0)
        self.assertEqual(int(facts_of(keeper)["CapEff"], 16), 0)
        programs = commands_below(keeper)
        kernel = [pid for pid, words in programs.items() if words.startswith("runsc-sandbox")]
        self.assertEqual(len(kernel), 1, programs)
        for pid in programs:
            try:
                facts = facts_of(pid)
            except OSError:  # processes of its kernel come and go
                continue
            self.assertTrue(all(base <= int(uid) < base + SLOT for uid in facts["Uid"].split()), programs[pid])
            self.assertEqual((facts["NoNewPrivs"], facts["Seccomp"]), ("1", "2"), programs[pid])
        self.assertEqual(facts_of(kernel[0])["Uid"].split(), [str(base + 65534)] * 4)
        for group in open(f"/proc/{kernel[0]}/cgroup").read().splitlines():
            if group.startswith("0::"):
                self.assertTrue(group.endswith("/run/e1"), group)

    def test_its_letter_is_in_no_argument_and_no_file(self):
        told = " ".join(commands_below(self.keeper()).values())
        self.assertNotIn("sbx_", told)
        said = self.shell("cat /proc/1/environ /proc/1/cmdline 2>&1; grep -rl '\"root\":' /run /tmp /.parley/*.json 2>/dev/null; true")
        self.assertNotIn("root\"", said)
        self.assertNotIn("sbx_", said)

    def test_a_deed_is_recorded_before_it_is_passed_on(self):
        self.shell("echo ''marked-by-the-test")
        self.assertIn(self.ask("PUT", "/files/workspace/marked", body=b"x").status, (200, 201))
        until = time.monotonic() + 20
        while time.monotonic() < until:
            records = self.node.request("GET", f"/audit?all=1&limit=1000&sandbox={self.grant['sandbox']['id']}").json["records"]
            deeds = {record["action"]: record for record in records if "guest=1" in str(record)}
            if {"exec", "write"} <= set(deeds):
                break
            time.sleep(0.1)
        self.assertIn("marked-by-the-test", str([r for r in records if r["action"] == "exec"]))
        self.assertIn("path=/workspace/marked", str(deeds["write"]))

    def token(self, scope):
        return self.node.negotiate("gv", isolation="gvisor", scopes=[scope])["token"]

    def test_a_revocation_cuts_what_streams_from_inside(self):
        grant = self.node.negotiate("gv-revoked", isolation="gvisor")
        self.node.shell(grant, "true")
        said = []

        def follow():
            try:
                said.append(self.node.exec(grant, cmd="echo begun; sleep 60", stream="ndjson"))
            except Exception as error:  # the connection is broken off
                said.append(error)
        thread = threading.Thread(target=follow)
        thread.start()
        other = self.node.negotiate("gv-revoked", isolation="gvisor", scopes=["process"])
        until = time.monotonic() + 20
        while time.monotonic() < until and not self.ask("GET", "/processes", other).json["processes"]:
            time.sleep(0.05)
        self.assertTrue(thread.is_alive(), said)
        revoked = self.node.request("POST", "/revocations", {"jti": grant["jti"], "reason": "a test"})
        self.assertEqual(revoked.status, 200, revoked)
        thread.join(20)
        self.assertFalse(thread.is_alive())
        self.assertEqual(self.node.exec(grant, cmd="true").code, "TOKEN_REVOKED")

    def test_a_socket_brings_its_token_with_its_head(self):
        with Session(self.http + "/ws", token=self.grant["token"]) as socket:
            socket.start(cmd="echo from-inside; read x; echo got $x", tty=True)
            socket.until("from-inside")
            socket.type("word\n")
            socket.until("got word")
        with self.assertRaises(Refused) as refused:
            Session(self.http + "/ws")
        self.assertEqual(refused.exception.status, 401)
        self.assertIn("gvisor", refused.exception.body.decode())

    def test_a_token_told_to_its_socket_is_none(self):
        """The node could neither see nor revoke it: a good one is taken as little as one that was revoked."""
        revoked = self.token("process")
        jti = json.loads(base64.urlsafe_b64decode(revoked.split(".")[1] + "=="))["jti"]
        self.assertEqual(self.node.request("POST", "/revocations", {"jti": jti, "reason": "a test"}).status, 200)
        with Session(self.http + "/ws", token=self.token("shell:ro")) as socket:
            socket.expect("auth_ok")
            for token in (revoked, self.token("process")):
                socket.tell("auth", token=token)
                self.assertEqual(socket.expect_error()["code"], "UNAUTHENTICATED")
            socket.tell("start", cmd="true")
            self.assertEqual(socket.expect_error()["code"], "CAPABILITY_DENIED")

    def test_what_it_cannot_have_is_refused(self):
        def refused(expected, **body):
            reply = self.node.negotiate("gv-other", isolation="gvisor", expect=(400,), **body)
            self.assertIn(expected, reply["error"]["message"])
        refused("cannot have egress", network={"egress": "public"})
        refused("cannot have volumes", volumes=[{"name": "data", "path": "/data"}])
        refused("cannot have an entrypoint", entrypoint=["sleep", "1"])
        reply = self.node.negotiate("gv-other", isolation="lava", expect=(400,))
        self.assertIn("namespaces, gvisor", reply["error"]["message"])
        done = self.node.cli("snapshot", self.grant["sandbox"]["id"], "--name", "kept")
        self.assertIn("isolation gvisor cannot have snapshots", done.stderr)
        self.assertEqual(self.shell("echo on"), "on\n")

    def test_limits_hold_from_outside(self):
        grant = self.node.negotiate("gv-small", isolation="gvisor", resources={"memory_mb": 128, "disk_mb": 16})
        said = self.node.exec(grant, cmd="dd if=/dev/zero of=/workspace/x bs=1M count=64").json
        self.assertIn("quota", said["stderr"])
        self.node.exec(grant, argv=["/usr/bin/python3", "-S", "-c", "x = bytearray(512 << 20); print(len(x))"])
        self.assertEqual(self.ended(grant)["reason"], "oom")
        self.assertEqual(self.shell("echo neighbour"), "neighbour\n")

    def test_it_is_paused_and_goes_on_when_it_is_used(self):
        grant = self.node.negotiate("gv-paused", isolation="gvisor")
        self.node.shell(grant, "true")
        self.assertEqual(self.node.cli("pause", grant["sandbox"]["id"]).returncode, 0)
        self.assertTrue(self.ask("GET", "/metrics", grant).json["paused"])
        self.assertEqual(self.node.shell(grant, "echo woken"), "woken\n")

    def test_ports_of_it_are_reached(self):
        self.ask("POST", "/exec", body={"argv": ["/usr/bin/python3", "-m", "http.server", "3000", "--bind", "127.0.0.1"],
                                        "detach": True})
        token, until = self.token("port"), time.monotonic() + 30
        while time.monotonic() < until:
            reply = self.ask("GET", "/ports/3000/", token=token, record=False)
            if reply.status == 200:
                break
            time.sleep(0.1)
        self.assertIn(b"Directory listing", reply.body)

    def test_the_cli_knows_the_option(self):
        done = self.node.cli("run", "--thread", "gv-cli", "--isolation", "gvisor", "--", "cat", "/proc/version")
        self.assertIn("4.4.0", done.stdout, done.stderr)
        doctor = self.node.cli("doctor", "--json")
        levels = {layer["name"]: layer["detail"] for layer in json.loads(doctor.stdout)}
        self.assertIn("offered; it cannot have egress", levels["isolation gvisor"])
        self.assertIn("offered, as auto", levels["isolation namespaces"])

    def test_ya_it_outlives_launcher_and_front(self):
        self.shell("echo kept >/run/in-its-memory 2>/dev/null || echo kept >/tmp/in-its-memory")
        self.node.kill("parley-sandboxd")
        self.node.wait_ready(60)
        self.assertEqual(self.shell("cat /run/in-its-memory /tmp/in-its-memory 2>/dev/null; true"), "kept\n")

    def test_zz_its_end_leaves_nothing(self):
        """The last one of this class: it ends what the others share."""
        keeper = self.keeper()
        programs = [keeper, *commands_below(keeper)]
        self.assertEqual(self.node.cli("rm", self.grant["sandbox"]["id"]).returncode, 0)
        until = time.monotonic() + 20
        while time.monotonic() < until and any(os.path.exists(f"/proc/{pid}") for pid in programs):
            time.sleep(0.05)
        self.assertEqual([pid for pid in programs if os.path.exists(f"/proc/{pid}")], [])

    def test_zzz_another_key_of_the_node_ends_it(self):
        """Its guest knows its tokens by a key of the epoch that is over; one of namespaces is the node's to judge."""
        guest, plain = self.node.negotiate("gv-key", isolation="gvisor"), self.node.negotiate("plain-key")
        self.assertEqual(self.node.cli("nodes", "rekey", guest["sandbox"]["node"]).returncode, 0)
        self.assertIn(self.ended(guest)["reason"], ("revoked", "node_lost"))  # by the front before or the one behind it
        self.node.wait_ready(60)
        again = self.node.negotiate("plain-key")
        self.assertEqual(again["sandbox"]["id"], plain["sandbox"]["id"])
        self.assertEqual(self.node.shell(self.node.negotiate("gv-key", isolation="gvisor"), "echo anew"), "anew\n")


class WithoutRunsc(unittest.TestCase):
    @unittest.skipUnless(os.geteuid() == 0, "needs root for a mount namespace")
    def test_the_start_fails_and_names_the_package(self):
        """What is not there is an error, never a weaker wall; to end what there was it is not needed."""
        hide = ": >/tmp/.no-runsc; if [ -e /usr/bin/runsc ]; then mount --bind /dev/null /usr/bin/runsc; fi; exec \"$@\""
        command = ["unshare", "--mount", "sh", "-c", hide, "sh", BIN + "/parley-sandboxd", "--state",
                   "/tmp/parley-no-runsc", "--isolation", "namespaces,gvisor"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
            said = child.communicate(timeout=60)[1]
        purge = subprocess.run([*command, "--purge"], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        subprocess.run(["rm", "-rf", "/tmp/parley-no-runsc", "/tmp/.no-runsc"], check=False)
        self.assertNotEqual(child.returncode, 0)
        self.assertEqual(purge.returncode, 0, purge.stderr)
        self.assertIn("isolation gvisor: there is no /usr/bin/runsc: install the package runsc", said)


if __name__ == "__main__":
    unittest.main()
