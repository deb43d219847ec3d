"""Invariants under fire: 64 clients negotiate, refresh, execute and revoke while negotiator, launcher and front are killed
with -9 a hundred times. What each client was told is a history; it is checked from the outside afterwards:

  one sandbox a thread - no acknowledged lease lost - no revoked token served after its acknowledgement - no audit record
  missing or double - no orphan process, cgroup, folder or slot.
"""
import collections
import glob
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.remains import held, pool  # noqa: E402

KILLS = int(os.environ.get("PARLEY_KILLS", "100"))
CLIENTS = int(os.environ.get("PARLEY_CLIENTS", "64"))
THREADS = 12
QUIET_S = 60  # for all to be well again after the last kill
RETRYABLE = {423, 429, 500, 502, 503, 504}


class Daemons:
    """Negotiator and sandboxd as `parley up` starts them, but restarted by this test: at once, whatever happens."""

    def __init__(self, deployment):
        self.deployment = deployment
        self.started = {}
        self.words = {}
        for name in ("parley-negotiator", "parley-sandboxd"):
            pid = min(deployment.pids(name))
            with open(f"/proc/{pid}/cmdline", "rb") as line, open(f"/proc/{pid}/environ", "rb") as variables:
                words = [word.decode() for word in line.read().split(b"\0") if word]
                environment = dict(pair.decode().split("=", 1) for pair in variables.read().split(b"\0") if b"=" in pair)
            self.words[name] = ([os.readlink(f"/proc/{pid}/exe")] + words[1:], environment)
        for pid in deployment.pids("parley"):
            os.kill(pid, signal.SIGKILL)
        for name in self.words:
            for pid in deployment.pids(name):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        time.sleep(0.3)
        for name in self.words:
            self.start(name)

    def start(self, name):
        words, environment = self.words[name]
        log = open(f"{self.deployment.state}/log/{name[len('parley-'):]}.log", "ab")
        self.started[name] = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()

    def ready(self, name):
        base = self.deployment.url if name == "parley-negotiator" else self.deployment.node_url
        try:
            return self.deployment.request("GET", base + "/readyz", token=None, timeout=2, record=False).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def kill(self, part):
        """kill -9 of "negotiator", "launcher" or "front"; how long until it answers again, in s."""
        name = "parley-negotiator" if part == "negotiator" else "parley-sandboxd"
        began = time.monotonic()
        if part == "front":
            launcher = self.started[name].pid
            fronts = [pid for pid in self.deployment.pids(name) if pid != launcher]
            if not fronts:
                return None
            for pid in fronts:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        else:
            self.started[name].kill()
            self.started[name].wait()
            self.start(name)
        while not self.ready(name):
            if time.monotonic() - began > 30:
                raise AssertionError(f"{part} did not come back\n" + self.deployment.logs())
            if self.started[name].poll() is not None:
                raise AssertionError(f"{name} exited {self.started[name].returncode}\n" + self.deployment.logs())
            time.sleep(0.005)
        return time.monotonic() - began

    def stop(self):
        for process in self.started.values():
            if process.poll() is None:
                process.terminate()
        for process in self.started.values():
            process.wait(30)


class History:
    """What clients were told. Times are of one clock, before the question and after the answer."""

    def __init__(self):
        self.lock = threading.Lock()
        self.grants = []    # (thread, sandbox, lease, jti, began, ended)
        self.execs = []     # (jti, family, command id, status, began, ended)
        self.revoked = []   # (jti, family or None, began, ended): acknowledged with 200
        self.wrong = []     # what a client itself found wrong

    def add(self, table, row):
        with self.lock:
            getattr(self, table).append(row)

    def violations(self):
        """Everything that the history itself contradicts."""
        found = list(self.wrong)
        of_thread = collections.defaultdict(set)
        for thread, sandbox, lease, _, _, _ in self.grants:
            of_thread[thread].add((sandbox, lease))
        found += [f"thread {thread} was given {sorted(all_)}" for thread, all_ in of_thread.items() if len(all_) > 1]
        by_jti = {jti: ended for jti, family, _, ended in self.revoked if jti}
        by_family = {family: ended for jti, family, _, ended in self.revoked if family}
        for jti, family, command, status, began, _ in self.execs:
            acknowledged = min(by_jti.get(jti, float("inf")), by_family.get(family, float("inf")))
            if status == 200 and began > acknowledged:
                found.append(f"{command}: token {jti} was served {began - acknowledged:.3f} s after its revocation")
        return found


class Client(threading.Thread):
    """One client with one grant, which it refreshes, uses, and sometimes revokes."""

    def __init__(self, number, deployment, history, stop):
        super().__init__(daemon=True)
        self.number, self.deployment, self.history, self.stop = number, deployment, history, stop
        self.random = random.Random(number)
        self.thread = f"fire-{number % THREADS}"
        self.grant, self.family, self.dead, self.count = None, None, [], 0

    def ask(self, method, url, body, token):
        """(status, json or None); None: nobody knows whether it happened."""
        try:
            reply = self.deployment.request(method, url, body, token=token, timeout=40, record=False)
        except (OSError, http.client.HTTPException):
            return None, None
        try:
            return reply.status, json.loads(reply.body) if reply.body else None
        except ValueError:
            return None, None

    def take(self, reply, began):
        self.grant = reply
        self.history.add("grants", (self.thread, reply["sandbox"]["id"], reply["lease"]["id"], reply["jti"], began,
                                    time.monotonic()))

    def negotiate(self):
        began = time.monotonic()
        status, reply = self.ask("POST", f"/threads/{self.thread}/sandbox", {"ttl": 600}, "")
        if status in (200, 201):
            self.take(reply, began)
            self.family = reply["jti"]
        elif status is not None and status not in RETRYABLE:
            self.history.add("wrong", f"negotiate {self.thread}: {status} {reply}")

    def refresh(self):
        began = time.monotonic()
        status, reply = self.ask("POST", f"/threads/{self.thread}/sandbox/refresh",
                                 {"current_token": self.grant["token"]}, "")
        if status == 200:
            self.take(reply, began)
        elif status is not None and status not in RETRYABLE:  # one holder: never a leak, never unknown
            self.history.add("wrong", f"refresh {self.grant['jti']}: {status} {reply}")
            self.grant = None

    def execute(self, grant, family, expect_dead=False):
        self.count += 1
        command = f"c{self.number}-{self.count}"
        began = time.monotonic()
        status, reply = self.ask("POST", grant["endpoints"]["http"] + "/exec",
                                 {"argv": ["echo", command], "id": command, "stream": "none", "timeout": 30},
                                 grant["token"])
        whole = status == 200 and reply.get("exit_code") == 0
        if status == 200 and whole and reply["stdout"] != command + "\n":
            self.history.add("wrong", f"exec {command} printed {reply['stdout']!r}")
        if status == 401 and not expect_dead:
            self.history.add("wrong", f"exec {command}: {grant['jti']} was refused: {reply}")
        self.history.add("execs", (grant["jti"], family, command, status if status != 200 or whole else None, began,
                                   time.monotonic()))

    def revoke(self):
        by_family = self.random.random() < 0.5
        body = {"family": self.family} if by_family else {"jti": self.grant["jti"]}
        grant, family = self.grant, self.family
        self.grant = None
        began = time.monotonic()
        status, reply = self.ask("POST", "/revocations", dict(body, reason="fire"), "")
        if status == 200:
            self.history.add("revoked", (None if by_family else grant["jti"], family if by_family else None, began,
                                         time.monotonic()))
        elif status is not None and status != 202 and status not in RETRYABLE:
            self.history.add("wrong", f"revoke {body}: {status} {reply}")
        self.dead = (self.dead + [(grant, family)])[-4:]

    def step(self):
        if self.grant is None:
            self.negotiate()
            return
        choice = self.random.random()
        if self.dead and choice < 0.25:
            self.execute(*self.random.choice(self.dead), expect_dead=True)
        elif choice < 0.65:
            self.execute(self.grant, self.family)
        elif choice < 0.85:
            self.refresh()
        elif choice < 0.93:
            self.negotiate()
        else:
            self.revoke()

    def run(self):
        try:
            while not self.stop.is_set():
                self.step()
                time.sleep(self.random.random() * 0.2)
        except Exception as wrong:  # noqa: BLE001  a client that dies is a violation too
            self.history.add("wrong", f"client {self.number}: {wrong!r}")


def left_over(deployment):
    """What a deployment without sandboxes must not have."""
    warm = pool(deployment.state)
    found = held(deployment.state)
    found += [f"init {pid}" for pid in deployment.pids("parley-init") if pid not in [record.init for record in warm]]
    try:
        with open(f"{deployment.state}/sandboxd/cgroups") as kept:
            tops = [word for word in kept.read().split() if word.startswith("/")]
    except OSError:
        tops = []
    for top in tops:
        found += [path for path in glob.glob(f"{top}/s[0-9]*") if path not in [f"{top}/s{r.slot}" for r in warm]]
    return found


@needs_root
class Invariants(unittest.TestCase):
    def setUp(self):
        self.deployment = Deployment()
        self.daemons = None

    def tearDown(self):
        if self.daemons:
            self.daemons.stop()
        self.deployment.close()

    def export(self):
        records, after = [], 0
        while True:
            page = self.deployment.request("GET", f"/audit?all=1&limit=1000&after={after}", record=False).json
            records += page["records"]
            if page.get("next") is None or not page["records"] and page["next"] == after:
                return records
            after = page["next"]

    def check_audit(self, history):
        needed = {command for _, _, command, status, _, _ in history.execs if status == 200}
        until = time.monotonic() + QUIET_S
        while True:  # the spool is shipped soon, not at once
            records = self.export()
            ends = {r["detail"].split("id=", 1)[1].split()[0] for r in records if r["action"] == "exec.end"}
            if needed <= ends or time.monotonic() > until:
                break
            time.sleep(1)
        self.assertEqual([r["seq"] for r in records], list(range(1, len(records) + 1)))
        proof = self.deployment.request("POST", "/audit/verify", {}, timeout=60, record=False)
        self.assertTrue(proof.status == 200 and proof.json["ok"], proof)
        count = collections.Counter()
        tokens = {}
        for r in records:
            if r["outcome"] == "ok" and r["action"] in ("exec", "exec.end"):
                count[r["action"], r["detail"].split("id=", 1)[1].split()[0]] += 1
                tokens.setdefault((r["action"], r["detail"].split("id=", 1)[1].split()[0]), r["jti"])
            if r["outcome"] == "ok" and r["action"] in ("negotiate", "refresh"):
                count["issued", r["jti"]] += 1
        for jti, _, command, status, _, _ in history.execs:
            if status == 200:
                self.assertEqual(count["exec", command], 1, f"{command}: no exec record")
                self.assertEqual(count["exec.end", command], 1, f"{command}: no exec.end record")
                self.assertEqual(tokens["exec", command], jti)
            else:  # nobody knows whether it ran: at most once
                self.assertLessEqual(count["exec", command], 1, command)
                self.assertLessEqual(count["exec.end", command], 1, command)
        for _, _, _, jti, _, _ in history.grants:
            self.assertGreaterEqual(count["issued", jti], 1, f"{jti} was issued without a record")
        issued = {jti for kind, jti in count if kind == "issued"}
        orphans = {r["jti"] for r in records if r["action"] == "exec" and r["jti"] not in issued}
        self.assertEqual(orphans, set(), "uses that join no issuance")

    def check_leases(self, history):
        for thread, sandbox, lease in sorted({(t, s, l) for t, s, l, _, _, _ in history.grants}):
            reply = self.deployment.request("GET", f"/threads/{thread}/sandbox", record=False)
            self.assertEqual(reply.status, 200, f"{thread}: {reply}")
            self.assertEqual((reply.json["sandbox"]["id"], reply.json["lease"]["id"]), (sandbox, lease))
            grant = self.deployment.negotiate(thread)
            self.assertEqual(self.deployment.exec(grant, cmd="true").json["exit_code"], 0)

    def check_nothing_left(self):
        for thread in range(THREADS):
            self.deployment.request("DELETE", f"/threads/fire-{thread}/sandbox", record=False)
        until = time.monotonic() + QUIET_S
        while left_over(self.deployment) and time.monotonic() < until:
            time.sleep(0.5)
        self.assertEqual(left_over(self.deployment), [], self.deployment.logs())
        live = self.deployment.request("GET", "/sandboxes", record=False).json["sandboxes"]
        self.assertEqual(live, [])

    def test_a_hundred_kills(self):
        self.daemons = Daemons(self.deployment)
        for name in self.daemons.words:
            while not self.daemons.ready(name):
                time.sleep(0.05)
        history, stop = History(), threading.Event()
        clients = [Client(number, self.deployment, history, stop) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        dice, recovery = random.Random(2026), collections.defaultdict(list)
        try:
            for _ in range(KILLS):
                time.sleep(dice.random() * 0.8)
                part = dice.choice(("negotiator", "launcher", "front"))
                took = self.daemons.kill(part)
                if took is not None:
                    recovery[part].append(took)
            time.sleep(3)
        finally:
            stop.set()
        for client in clients:
            client.join(60)
            self.assertFalse(client.is_alive(), "a client hangs")
        self.assertEqual(history.violations()[:10], [], self.deployment.logs())
        ran = sum(1 for row in history.execs if row[3] == 200)
        print(f"    {KILLS} kills: {len(history.grants)} grants, {ran} commands, {len(history.revoked)} revocations; "
              "answering again after, p50/max s: " +
              ", ".join(f"{part} {statistics.median(times):.2f}/{max(times):.2f}" for part, times in recovery.items()))
        self.assertGreater(ran, 100)
        self.assertGreater(len(history.revoked), 20)
        self.check_leases(history)
        self.check_audit(history)
        self.check_nothing_left()


class TheCheckerItself(unittest.TestCase):
    """A history with a wrong in it must be found out."""

    def test_a_second_sandbox(self):
        history = History()
        history.add("grants", ("t", "sbx_a", "lse_a", "tok_1", 0, 1))
        self.assertEqual(history.violations(), [])
        history.add("grants", ("t", "sbx_b", "lse_b", "tok_2", 2, 3))
        self.assertEqual(len(history.violations()), 1)

    def test_a_revoked_token_that_is_served(self):
        history = History()
        history.add("revoked", ("tok_1", None, 0, 1))
        history.add("revoked", (None, "tok_9", 0, 1))
        history.add("execs", ("tok_1", "tok_0", "before", 200, 0.5, 2))
        history.add("execs", ("tok_1", "tok_0", "refused", 401, 1.5, 2))
        self.assertEqual(history.violations(), [])
        history.add("execs", ("tok_1", "tok_0", "after", 200, 1.5, 2))
        history.add("execs", ("tok_2", "tok_9", "after too", 200, 1.5, 2))
        self.assertEqual(len(history.violations()), 2)


if __name__ == "__main__":
    unittest.main()
