"""The audit from the outside: every use and refusal is joined to its issuance by the token's id, nobody sees another's
records, and an export is proven by specs/audit.md alone, with a head that was kept."""
import hashlib
import json
import os
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.token import claims_of, compact, kdf, link  # noqa: E402

FIELDS = ("seq", "time", "plane", "node", "action", "outcome", "status", "principal", "role", "actor", "thread_id",
          "sandbox_id", "lease", "jti", "links", "scope", "remote", "request_id", "detail")
SHIPPED_WITHIN = 20  # seconds


def hash_of(key, record):
    digest = hashlib.blake2b(bytes.fromhex(record["prev"]), key=key, digest_size=32)
    for name in FIELDS:
        text = str(record[name]).encode()
        digest.update(struct.pack(">I", len(text)) + text)
    return digest.hexdigest()


@needs_root
class Audit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("audit-1", actor={"type": "agent", "id": "planner"})
        cls.done = cls.deployment.exec(cls.grant, cmd="echo told; exit 3", id="told")

    def ask(self, query="", status=200):
        reply = self.deployment.request("GET", "/audit" + query)
        self.assertEqual(reply.status, status, reply)
        return reply.json

    def wait_for(self, query, enough):
        """The records of a query, as soon as `enough` of them are there: nodes ship a moment later."""
        until = time.monotonic() + SHIPPED_WITHIN
        while True:
            records = self.ask(query)["records"]
            if enough(records) or time.monotonic() > until:
                return records
            time.sleep(0.1)

    def export(self, page):
        records, after = [], 0
        while after is not None:
            got = self.ask(f"?all=1&after={after}&limit={page}")
            self.assertLessEqual(len(got["records"]), page)
            records += got["records"]
            after = got["next"]
        return records

    def test_a_token_is_joined_to_all_that_was_done_with_it(self):
        jti = claims_of(self.grant["token"])["jti"]
        narrowed = link(self.grant["token"], compact({"scope": "fs:ro"}))
        self.assertEqual(self.deployment.exec(self.grant, token=narrowed, cmd="true").status, 403)
        records = self.wait_for(f"?jti={jti}", lambda found: {"exec", "exec.end"} <= {r["action"] for r in found} and
                                any(r["plane"] == "sandboxd" and r["outcome"] == "refused" for r in found))
        self.assertEqual((records[0]["action"], records[0]["plane"]), ("negotiate", "negotiator"))
        for record in records:
            self.assertEqual((record["jti"], record["principal"], record["sandbox_id"]),
                             (jti, "admin", self.grant["sandbox"]["id"]), record)
            self.assertEqual(record["actor"], "agent:planner", record)
        started, = [r for r in records if r["action"] == "exec" and r["outcome"] == "ok" and "id=told" in r["detail"]]
        ended, = [r for r in records if r["action"] == "exec.end" and "id=told" in r["detail"]]
        self.assertIn("echo told", started["detail"])
        self.assertIn("exit=3", ended["detail"])
        self.assertLess(started["seq"], ended["seq"])
        refused = [r for r in records if r["outcome"] == "refused"]
        self.assertEqual({r["status"] for r in refused}, {403})
        self.assertTrue(refused[0]["links"].startswith("lnk_"), refused)
        by_link = self.ask(f"?link={refused[0]['links']}")["records"]
        self.assertEqual({r["outcome"] for r in by_link}, {"refused"})

    def test_nobody_sees_anothers(self):
        reply = self.deployment.request("POST", "/threads/secret/sandbox?principal=bob", {})
        self.assertIn(reply.status, (200, 201), reply)
        grant = reply.json
        self.assertEqual(claims_of(grant["token"])["sub"], "bob")
        self.assertEqual(self.deployment.exec(grant, cmd="echo bobs-secret").status, 200)
        theirs = self.wait_for("?principal=bob", lambda found: any(r["action"] == "exec.end" for r in found))
        self.assertTrue(theirs)
        self.assertEqual({r["principal"] for r in theirs}, {"bob"})
        mine = self.ask("?limit=1000")["records"]
        self.assertEqual({r["principal"] for r in mine}, {"admin"})
        self.assertNotIn("bobs-secret", json.dumps(mine))
        self.assertNotIn("prev", mine[0])
        self.assertEqual(self.ask(f"?jti={grant['jti']}&principal=alice")["records"], [])
        self.assertEqual(self.deployment.request("GET", "/audit?all=1", token="pk_" + "A" * 43).status, 401)
        self.assertEqual(self.deployment.request("GET", "/audit", token=grant["token"]).status, 401)

    def test_what_is_asked_wrongly(self):
        for query in ("?limit=0", "?limit=1001", "?last=5&after=1", "?since=now", "?all=yes", "?jti=a%22b"):
            self.ask(query, 400)
        for body in ({"seq": 1}, {"seq": 1, "hash": "00"}, {"sequence": 1}):
            self.assertEqual(self.deployment.request("POST", "/audit/verify", body).status, 400, body)

    def test_proof_and_export(self):
        self.wait_for("", lambda found: any(r["action"] == "exec.end" for r in found))
        kept = self.deployment.request("GET", "/audit/head").json
        self.deployment.negotiate("audit-2")
        proof = self.deployment.request("POST", "/audit/verify", {"seq": kept["seq"], "hash": kept["hash"]}).json
        self.assertEqual((proof["ok"], proof["first"], proof["sealed"]), (True, 1, 0), proof)
        self.assertGreater(proof["last"], kept["seq"])
        cut = self.deployment.request("POST", "/audit/verify", {"seq": kept["seq"] + 10000, "hash": kept["hash"]}).json
        self.assertFalse(cut["ok"])
        other = self.deployment.request("POST", "/audit/verify", {"seq": kept["seq"], "hash": "00" * 32}).json
        self.assertEqual((other["ok"], other["at"]), (False, kept["seq"]))

        records = self.export(page=7)
        self.assertEqual([r["seq"] for r in records], list(range(1, len(records) + 1)))
        with open(self.deployment.state + "/negotiator/master.key", "rb") as master:
            key = kdf(master.read(), "parley/audit/1")
        before = "00" * 32
        for record in records:
            self.assertEqual(set(record), {*FIELDS, "prev", "hash"})
            self.assertEqual(record["prev"], before)
            self.assertEqual(record["hash"], hash_of(key, record), record)
            before = record["hash"]
        self.assertEqual(records[kept["seq"] - 1]["hash"], kept["hash"])
        last = self.ask("?all=1&last=3")["records"]
        self.assertEqual(len(last), 3)
        self.assertGreaterEqual(last[0]["seq"], records[-3]["seq"])
        node_records = [r for r in records if r["plane"] == "sandboxd"]
        self.assertTrue(node_records)
        self.assertEqual({r["node"] for r in node_records}, {self.grant["sandbox"]["node"]})


@needs_root
class Killed(unittest.TestCase):
    def test_every_command_is_told_once(self):
        """Either side is killed with -9 while records are shipped: each command that was acknowledged has one record of its
        start and one of its end, and the chain is whole."""
        with Deployment() as deployment:
            grant = deployment.negotiate("killed")
            acknowledged = []
            for number in range(60):
                if number in (10, 30, 50):
                    deployment.kill("parley-negotiator")
                if number in (20, 40):
                    deployment.kill("parley-sandboxd")
                    deployment.wait_ready()
                try:
                    reply = deployment.exec(grant, cmd=f"echo {number}", id=f"once-{number}")
                except OSError:
                    continue
                if reply.status == 200:
                    acknowledged.append(f"id=once-{number} ")
            deployment.wait_ready()
            self.assertGreater(len(acknowledged), 40)
            until = time.monotonic() + SHIPPED_WITHIN
            while True:
                reply = deployment.request("GET", "/audit?all=1&limit=1000")
                self.assertEqual(reply.status, 200, reply)
                records = reply.json["records"]
                told = {action: [r["detail"] for r in records if r["action"] == action] for action in ("exec", "exec.end")}
                missing = [name for name in acknowledged if not any(name in each for each in told["exec.end"])]
                if not missing or time.monotonic() > until:
                    break
                time.sleep(0.2)
            for action, details in told.items():
                for name in acknowledged:
                    self.assertEqual(sum(name in each + " " for each in details), 1, (action, name))
            self.assertTrue(deployment.request("POST", "/audit/verify", {}).json["ok"])


@needs_root
class Stopped(unittest.TestCase):
    def test_offline(self):
        """A stopped deployment is proven by its state folder alone, and what was cut off is missed."""
        with Deployment() as deployment:
            deployment.negotiate("offline")
            head = deployment.request("GET", "/audit/head").json
            deployment.cli("down")
            verify = [os.path.join(BIN, "parley-negotiator"), "audit", "verify", "--state", deployment.state]
            for more, code in (([], 0), (["--head", f"{head['seq']}:{head['hash']}"], 0),
                               (["--head", f"{head['seq'] + 5000}:{head['hash']}"], 2),
                               (["--head", f"{head['seq']}:{'0' * 64}"], 2)):
                done = subprocess.run(verify + more, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(done.returncode, code, (more, done))


if __name__ == "__main__":
    unittest.main()
