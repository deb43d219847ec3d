"""The audit of what runs in sandboxes: every command that a client saw end has exactly one `exec` and one `exec.end` in the
ledger, with no gap and nothing twice, though front, launcher and negotiator are killed with -9 meanwhile. Without room for
a record nothing is done, and the client is told why. Command lines are left out when the operator says so."""
import collections
import http.client
import os
import re
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

CLIENTS = 4
ROUNDS = int(os.environ.get("PARLEY_AUDIT_ROUNDS", "3"))
LOST = (OSError, http.client.HTTPException)


def audit(deployment, **filters):
    """All records, oldest first."""
    records, after = [], 0
    while after is not None:
        query = "&".join(f"{name}={value}" for name, value in dict(filters, all=1, after=after, limit=1000).items())
        page = deployment.request("GET", "/audit?" + query, record=False)
        if page.status != 200:
            raise AssertionError(str(page))
        records += page.json["records"]
        after = page.json["next"]
    return records


def settled(deployment, wanted, seconds=30):
    """The records, once `wanted(records)` holds; the last ones after that time."""
    until = time.monotonic() + seconds
    while True:
        try:
            records = audit(deployment)
            if wanted(records) or time.monotonic() > until:
                return records
        except LOST:
            if time.monotonic() > until:
                raise
        time.sleep(0.25)


def id_of(record):
    found = re.match(r"(?:\(not in the ledger\) )?id=(\S+)", record["detail"])
    return found.group(1) if found else ""


class Client(threading.Thread):
    """Runs commands one after the other, each under an id, and asks again at that id until it has the end."""

    def __init__(self, deployment, name):
        super().__init__()
        self.deployment, self.name = deployment, name
        self.stopping = threading.Event()
        self.ended, self.fault = [], None

    def negotiate(self):
        for _ in range(200):
            try:
                reply = self.deployment.request("POST", f"/threads/{self.name}/sandbox", {}, record=False)
                if reply.status in (200, 201):
                    return reply.json
            except LOST:
                pass
            time.sleep(0.1)
        raise AssertionError("no grant")

    def run_one(self, grant, identity):
        for _ in range(400):
            try:
                reply = self.deployment.request("POST", grant["endpoints"]["http"] + "/exec",
                                                {"cmd": "sleep 0.0$((RANDOM % 9)); exit 7", "id": identity, "stream": "none"},
                                                token=grant["token"], record=False)
                if reply.status == 200 and reply.json.get("exit_code") is not None:
                    return reply.json["exit_code"]
                if reply.status not in (200, 401, 423, 429, 500, 502, 503, 504):
                    raise AssertionError(str(reply))
            except LOST:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{identity} never ended")

    def run(self):
        try:
            grant = self.negotiate()
            number = 0
            while not self.stopping.is_set():
                number += 1
                identity = f"{self.name}-{number}"
                code = self.run_one(grant, identity)
                if code != 7:
                    raise AssertionError(f"{identity}: {code}")
                self.ended.append(identity)
        except Exception as fault:  # noqa: BLE001 - told by the test's thread
            self.fault = fault


def kill(deployment, part):
    if part == "parley-negotiator":
        deployment.kill(part)
        return
    pids = sorted(deployment.pids("parley-sandboxd"))
    children = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                children[pid] = int(stat.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass
    for pid, parent in children.items():
        if (parent in children) == (part == "front"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@needs_root
class AuditShip(unittest.TestCase):
    def test_kills(self):
        with Deployment() as deployment:
            clients = [Client(deployment, f"t{i}") for i in range(CLIENTS)]
            for client in clients:
                client.start()
            time.sleep(1.5)
            for _ in range(ROUNDS):
                for part in ("front", "parley-negotiator", "launcher"):
                    kill(deployment, part)
                    time.sleep(0.7)
                    deployment.wait_ready()
                    time.sleep(0.5)
            kill(deployment, "front")
            kill(deployment, "parley-negotiator")
            time.sleep(0.7)
            deployment.wait_ready()
            time.sleep(0.5)
            for client in clients:
                client.stopping.set()
            for client in clients:
                client.join(60)
                self.assertIsNone(client.fault, f"{client.fault}\n{deployment.logs()}")
            ended = [identity for client in clients for identity in client.ended]
            self.assertGreater(len(ended), 20 * ROUNDS)

            def ends(records):
                return collections.Counter(id_of(r) for r in records if r["action"] == "exec.end" and r["outcome"] == "ok")

            records = settled(deployment, lambda seen: all(ends(seen)[identity] for identity in ended))
            time.sleep(2)  # whatever is shipped twice has come by then
            records = audit(deployment)
            starts = collections.Counter(id_of(r) for r in records if r["action"] == "exec")
            fails = collections.Counter(id_of(r) for r in records if r["action"] == "exec.end" and r["outcome"] != "ok")
            told = ends(records)
            wrong = {identity: (starts[identity], fails[identity], told[identity]) for identity in ended
                     if starts[identity] - fails[identity] != 1 or told[identity] != 1}
            self.assertEqual(wrong, {}, f"(starts, failed, ended) of {len(ended)}\n{deployment.logs()}")
            strange = [r for r in records if r["action"] in
                       ("audit.gap", "audit.refused", "spool.lost", "spool.damaged", "spool.renumbered", "spool.refused")]
            self.assertEqual(strange, [])
            for record in records:
                if record["action"] == "exec.end" and record["outcome"] == "ok":
                    self.assertIn("exit=7 signal=0 ", record["detail"])
            known = [r for r in records if r["action"] == "exec.end" and r["jti"]]
            self.assertGreater(len(known), len(ended) // 2)  # but for those of an earlier front
            self.assertTrue(deployment.request("POST", "/audit/verify", {}, record=False).json["ok"])

    def test_full_spool_refuses(self):
        with Deployment(PARLEY_AUDIT_SPOOL_MB="1") as deployment:
            grant = deployment.negotiate("full")
            deployment.shell(grant, "true")
            for pid in deployment.pids("parley-negotiator"):
                os.kill(pid, signal.SIGSTOP)
            try:
                refused = None
                for number in range(600):
                    reply = deployment.exec(grant, cmd=f"touch made-{number}; : " + "x" * 4000)
                    if reply.status != 200:
                        refused = reply
                        break
                self.assertIsNotNone(refused)
                self.assertEqual((refused.status, refused.code), (507, "DISK_FULL"))
                self.assertIn("too many of this sandbox wait for the negotiator", refused.json["error"]["message"])
            finally:
                for pid in deployment.pids("parley-negotiator"):
                    os.kill(pid, signal.SIGCONT)
            until = time.monotonic() + 20
            while deployment.exec(grant, cmd="true").status != 200 and time.monotonic() < until:
                time.sleep(0.2)
            listing = deployment.shell(grant, "ls").split()
            self.assertIn(f"made-{number - 1}", listing)
            self.assertNotIn(f"made-{number}", listing)  # refused means: not done
            records = settled(deployment, lambda seen: sum(r["action"] == "exec" for r in seen) >= number + 2)
            self.assertGreaterEqual(sum(r["action"] == "exec" for r in records), number + 2)

    def test_without_command_lines(self):
        with Deployment(PARLEY_AUDIT_ARGV="false", PARLEY_AUDIT_SYNC="always") as deployment:
            grant = deployment.negotiate("argv")
            deployment.shell(grant, "echo the-secret")
            self.assertEqual(deployment.exec(grant, cmd="cat", id="reads", stdin_open=True, detach=True).status, 201)
            base = grant["endpoints"]["http"] + "/processes/reads"
            for data in (b"a", b"b", b"c"):
                deployment.request("POST", base + "/stdin", data, token=grant["token"])
            self.assertEqual(deployment.request("POST", base + "/signal", {"signal": "TERM"}, token=grant["token"]).status, 204)
            records = settled(deployment, lambda seen: sum(r["action"] == "exec.end" for r in seen) >= 2)
            actions = collections.Counter(r["action"] for r in records if r["plane"] == "sandboxd")
            self.assertEqual((actions["exec"], actions["stdin"], actions["signal"], actions["exec.end"]), (2, 1, 1, 2))
            self.assertFalse([r for r in records if "the-secret" in r["detail"]])
            of_exec = next(r for r in records if r["action"] == "exec")
            self.assertEqual((of_exec["jti"], of_exec["thread_id"], of_exec["sandbox_id"], of_exec["lease"]),
                             (grant["jti"], "argv", grant["sandbox"]["id"], grant["lease"]["id"]))
            self.assertIn("signal=15", next(r for r in records if r["action"] == "exec.end" and id_of(r) == "reads")["detail"])


if __name__ == "__main__":
    unittest.main()
