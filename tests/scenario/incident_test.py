"""An incident, as the README's drill does it: what is suspected stops at once and stays stopped over a restart, what is not
goes on; the evidence tells what was there and what could not be had; closing it lets go."""
import hashlib
import http.server
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def drill_of_readme():
    """The commands of the README's drill, in order, without their prompts."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as readme:
        section = readme.read().split("### Drill: a key has leaked", 1)[1]
    block = section.split("```sh\n", 1)[1].split("```", 1)[0]
    return [line.split("#")[0].strip() for line in block.splitlines() if line.split("#")[0].strip()]


class Teller(http.server.BaseHTTPRequestHandler):
    """A negotiator with an incident about three sandboxes, whose node is not ours any more: it tells pages without end and
    without items, breaks off in the middle, or tells what is no page. Every third request is one too many."""
    count = 0
    SUSPECTS = {"sbx_" + letter * 20: letter for letter in "abc"}

    def reply(self, status, body):
        Teller.count += 1
        if Teller.count % 3 == 0:
            status, body = 429, {"error": {"code": "RATE_LIMITED", "message": "later", "retryable": True}}
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path.endswith("/suspects"):
            self.reply(200, {"suspects": [{"sandbox": {"id": each}} for each in self.SUSPECTS], "next": None})
        elif self.path.startswith("/incidents/"):
            self.reply(200, {"incident": {"selectors": [], "revocations": []}})
        else:
            self.reply(200, {"records": [], "next": None})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        how = self.SUSPECTS.get(asked.get("sandbox"))
        if how == "b" and asked["position"]:
            self.reply(409, {"error": {"code": "CONFLICT", "message": "\x1b[2Jit broke off", "retryable": False}})
        elif how == "c":
            self.reply(200, {"evidence": [{"items": "../../etc/passwd", "next": "1"}]})
        elif how:
            items = [{"path": "/../../../etc/x\n", "n": 1}] if how == "b" else []
            self.reply(200, {"evidence": {"items": items, "next": "1", "truncated": False}})
        else:
            self.reply(200, {})

    def log_message(self, *_):
        pass


class HostileNode(unittest.TestCase):
    def test_evidence_of_a_node_that_lies_ends_and_keeps_what_was_had(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Teller)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([os.path.join(BIN, "parley"), "incident", "evidence", "inc_" + "a" * 20, "-o", "e.tar.gz"],
                                  env={"PARLEY_URL": f"http://127.0.0.1:{server.server_port}", "HOME": folder,
                                       "PARLEY_API_KEY": "pk_" + "k" * 43}, cwd=folder, capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 3, done)
            self.assertNotIn(b"\x1b", done.stdout + done.stderr)
            with tarfile.open(os.path.join(folder, "e.tar.gz")) as tar:
                parts = {member.name: tar.extractfile(member).read() for member in tar}
        for name in parts:
            self.assertRegex(name, r"\Aincident-inc_a{20}/[a-z/]*(sbx_[abc]{20}/)?[a-z]+\.(json|ndjson)\Z")
        kept = {name.split("/", 1)[1]: data for name, data in parts.items()}
        self.assertEqual(kept["sandboxes/sbx_" + "b" * 20 + "/files.ndjson"].count(b"\n"), 1)
        missing = {each["what"]: each["why"] for each in json.loads(kept["manifest.json"])["missing"]}
        self.assertNotIn("later", missing.values())
        for letter, why in (("b", "broke off"), ("c", "no evidence")):
            for part in ("processes", "files"):
                self.assertIn(why, missing[f"sandboxes/sbx_{letter * 20}/{part}.ndjson"])


@needs_root
class Incident(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def ask(self, method, path, body=None, token="", **more):
        return self.deployment.request(method, path, body, token=token, **more)

    def add(self, principal):
        reply = self.ask("POST", "/keys", {"principal": principal, "role": "user"})
        self.assertEqual(reply.status, 201, reply)
        return reply.json["api_key"]

    def negotiate(self, key, thread, expect=201, **body):
        reply = self.ask("POST", f"/threads/{thread}/sandbox", body, token=key)
        self.assertEqual(reply.status, expect, reply)
        return reply.json

    def use(self, grant):
        return self.ask("GET", grant["endpoints"]["http"] + "/info", token=grant["token"]).status

    def run_in(self, grant, command):
        reply = self.ask("POST", grant["endpoints"]["http"] + "/exec", {"cmd": command, "stream": "none"},
                         token=grant["token"])
        self.assertEqual((reply.status, reply.json["exit_code"]), (200, 0), reply)
        return reply.json["stdout"]

    def start(self, grant, command):
        reply = self.ask("POST", grant["endpoints"]["http"] + "/exec", {"cmd": command, "detach": True},
                         token=grant["token"])
        self.assertEqual(reply.status, 201, reply)

    def state(self, grant):
        return self.ask("GET", "/sandboxes/" + grant["sandbox"]["id"]).json["state"]

    def wait_until(self, holds, seconds=30):
        until = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), until, self.deployment.logs()[-3000:])
            time.sleep(0.05)

    def parley(self, *arguments, expect=0):
        result = self.deployment.cli(*arguments)
        self.assertEqual(result.returncode, expect, (arguments, result.stdout, result.stderr))
        return result.stdout

    def bundle(self, path):
        """{name: bytes}, with each part's SHA-256 looked at."""
        with tarfile.open(path) as tar:
            parts = {member.name.split("/", 1)[1]: tar.extractfile(member).read() for member in tar}
        manifest = json.loads(parts.pop("manifest.json"))
        self.assertEqual({part["name"] for part in manifest["parts"]}, set(parts))
        for part in manifest["parts"]:
            self.assertEqual(hashlib.sha256(parts[part["name"]]).hexdigest(), part["sha256"])
        return manifest, parts

    def test_the_drill_of_the_readme(self):
        mallory, bob = self.add("mallory"), self.add("bob")
        suspect, innocent = self.negotiate(mallory, "t1"), self.negotiate(bob, "t1")
        shared = self.ask("POST", "/threads/t1/sandbox/share", {"scopes": ["shell", "process", "fs:rw"], "ttl": 600},
                          token=mallory).json
        self.run_in(suspect, "echo stolen > /workspace/loot; mkdir /workspace/d; ln -s /etc/passwd /workspace/d/link;"
                             " printf x > \"/workspace/$(printf 'bad\\377\\nname')\"; printf 'a' > /workspace/zz")
        self.start(suspect, "exec -a '$(curl evil)' sleep 600")
        self.start(suspect, "exec python3 -c 'import time; time.sleep(600)' \"$(printf '\\033[2J\\377\\\\')\"")
        self.assertEqual((self.use(suspect), self.use(innocent)), (200, 200))

        kept = self.ask("POST", "/sandboxes/" + suspect["sandbox"]["id"] + "/snapshots", {}, token=mallory)
        self.assertEqual(kept.status, 201, kept)
        commands = drill_of_readme()
        self.assertEqual([line.split()[2] for line in commands], ["open", "status", "evidence", "close"], commands)
        self.addCleanup(lambda: os.path.exists(bundle) and os.unlink(bundle))
        bundle = os.path.join(self.deployment.state, "evidence.tar.gz")

        # open: everything of mallory's stops, by her key, her tokens and what she shared; bob goes on
        words = self.words(commands[0])
        told = self.parley(*words)
        incident = re.search(r"inc_[a-z0-9]{20}", told).group()
        for status, code, reply in (
                (403, "FROZEN", self.ask("POST", "/threads/t1/sandbox", {}, token=mallory)),
                (403, "FROZEN", self.ask("POST", "/threads/t2/sandbox", {}, token=mallory)),
                (403, "FROZEN", self.ask("POST", "/threads/t1/sandbox/refresh", {"current_token": suspect["token"]},
                                         token=mallory)),
                (403, "FROZEN", self.ask("POST", "/auth/token", {"api_key": mallory}, token=None)),
                (403, "FROZEN", self.ask("POST", "/sandboxes/" + suspect["sandbox"]["id"] + "/resume", {},
                                         token=mallory)),
                (403, "FROZEN", self.ask("DELETE", "/sandboxes/" + suspect["sandbox"]["id"], token=mallory)),
                (403, "FROZEN", self.ask("DELETE", "/threads/t1/sandbox", token=mallory)),
                (403, "FROZEN", self.ask("DELETE", "/snapshots/" + kept.json["snapshot"]["id"], token=mallory)),
                (403, "FROZEN", self.ask("DELETE", "/volumes/data", token=mallory)),
                (403, "FROZEN", self.ask("PATCH", "/sandboxes/" + suspect["sandbox"]["id"], {"name": "other"},
                                         token=mallory)),
                (403, "FROZEN", self.ask("POST", "/threads/t1/sandbox/share", {"scopes": ["shell:ro"], "ttl": 60},
                                         token=mallory))):
            self.assertEqual((reply.status, reply.code), (status, code), reply)
        self.assertEqual((self.use(suspect), self.use(innocent)), (401, 200))
        self.assertEqual(self.ask("GET", suspect["endpoints"]["http"] + "/info", token=shared["token"]).status, 401)
        self.assertEqual((self.state(suspect), self.state(innocent)), ("paused", "active"))
        self.run_in(innocent, "true")
        self.negotiate(bob, "t2")

        # It outlives the negotiator, which is killed.
        self.deployment.kill("parley-negotiator")
        self.deployment.wait_ready()
        self.assertEqual(self.ask("POST", "/threads/t1/sandbox", {}, token=mallory).code, "FROZEN")
        self.assertIn("paused", self.parley(*self.words(commands[1], incident)))

        # evidence: of what stands still, and it does not wake it
        self.parley(*self.words(commands[2], incident, bundle))
        self.assertEqual(os.stat(bundle).st_mode & 0o777, 0o600)
        self.judge_bundle(bundle, suspect, innocent)
        self.assertEqual(self.state(suspect), "paused")
        self.parley(*self.words(commands[2], incident, bundle), expect=1)  # what is there is not written over

        # close: she may again, and what slept goes on where it was
        self.parley(*self.words(commands[3], incident))
        self.assertEqual(self.state(suspect), "active")
        self.assertEqual(self.use(suspect), 401)
        again = self.negotiate(mallory, "t1", 200)
        self.assertEqual(self.run_in(again, "cat /workspace/loot; pgrep -c sleep"), "stolen\n1\n")
        actions = [record["action"] for record in self.ask("GET", "/audit?all=1&last=500").json["records"]
                   if record["action"].startswith("incident.")]
        for action in ("incident.open", "incident.contained", "incident.evidence", "incident.close", "incident.closed"):
            self.assertIn(action, actions)

    def words(self, line, incident="", bundle=""):
        """A line of the README with its placeholders filled."""
        import shlex
        words = shlex.split(line)
        self.assertEqual(words[0], "parley")
        return [{"ID": incident, "evidence.tar.gz": bundle}.get(word, word) for word in words[1:]]

    def judge_bundle(self, path, suspect, innocent):
        manifest, parts = self.bundle(path)
        self.assertEqual(manifest["missing"], [])
        sandbox = suspect["sandbox"]["id"]
        suspects = json.loads(parts["suspects.json"])
        self.assertEqual([each["sandbox"]["id"] for each in suspects], [sandbox])
        self.assertEqual(suspects[0]["sandbox"]["state"], "active")  # as it was before
        self.assertEqual(suspects[0]["leases"][0]["id"], suspect["lease"]["id"])
        processes = [json.loads(line) for line in parts[f"sandboxes/{sandbox}/processes.ndjson"].splitlines()]
        by_name = {each["name"]: each for each in processes}
        self.assertEqual(by_name["sleep"]["command"][-1], "600")
        self.assertEqual(by_name["sleep"]["command"][0], "$(curl evil)")
        python = next(each for each in processes if "python3" in each["command"][0])
        self.assertEqual(python["command"][-1], "\x1b[2J\\xff\\\\")
        self.assertEqual((python["uid"], python["pid_inside"] > 1), (1000, True))
        files = {each["path"]: each for each in
                 map(json.loads, parts[f"sandboxes/{sandbox}/files.ndjson"].splitlines())}
        loot = files["/workspace/loot"]
        self.assertEqual((loot["type"], loot["size"], loot["uid"]), ("file", 7, 1000))
        self.assertEqual(files["/workspace/d/link"]["target"], "/etc/passwd")
        self.assertEqual(files["/workspace/bad\\xff\nname"]["size"], 1)
        self.assertTrue(json.loads(parts[f"sandboxes/{sandbox}/evidence.json"])["files"]["frozen"])
        records = [json.loads(line) for line in parts["audit/records.ndjson"].splitlines()]
        actions = {(record["action"], record["principal"]) for record in records}
        self.assertLessEqual({("negotiate", "mallory"), ("exec", "mallory"), ("revoke", "admin")}, actions)
        self.assertFalse([record for record in records if record["sandbox_id"] == innocent["sandbox"]["id"]])
        self.assertTrue(all(record["hash"] and record["prev"] for record in records))
        proof = json.loads(parts["audit/verify.json"])
        self.assertTrue(proof["ok"] and proof["last"] >= records[-1]["seq"], proof)

    def test_a_node_that_is_away(self):
        eve = self.add("eve")
        grant = self.negotiate(eve, "t1")
        names = [pid for pid in self.deployment.pids("parley-sandboxd")]
        for pid in names:
            os.kill(pid, signal.SIGSTOP)
        try:
            told = self.parley("incident", "open", "--sandbox", grant["sandbox"]["id"], "--freeze", "none", "--no-pause",
                               "--reason", "away", expect=3)
            self.assertIn("NOT ALL OF IT WAS REACHED", told)
            self.assertRegex(told, "PENDING, missing:.*local|PENDING, missing: ")
            incident = re.search(r"inc_[a-z0-9]{20}", told).group()
        finally:
            for pid in names:
                os.kill(pid, signal.SIGCONT)
        self.wait_until(lambda: self.use(grant) == 401)  # it was revoked all the same
        self.negotiate(eve, "t1", 200)
        self.parley("incident", "close", incident)

    def test_a_key(self):
        reply = self.ask("POST", "/keys", {"principal": "dora", "role": "user"})
        leaked, other = reply.json["api_key"], self.add("dora")
        grant, fine = self.negotiate(leaked, "t1"), self.negotiate(other, "t2")
        told = self.parley("incident", "open", "--key", reply.json["key"]["id"], "--freeze", "none", "--reason", "found")
        incident = re.search(r"inc_[a-z0-9]{20}", told).group()
        self.assertEqual(self.ask("GET", "/sandboxes", token=leaked).status, 401)
        self.assertEqual((self.use(grant), self.use(fine)), (401, 200))
        self.assertEqual((self.state(grant), self.state(fine)), ("paused", "active"))
        self.parley("incident", "close", incident)
        self.assertEqual(self.state(grant), "paused")
        self.assertEqual(self.ask("POST", "/incidents", {"reason": "r", "selectors": [{"key": "key_" + "a" * 20}]}).status,
                         404)

    def test_who_may_and_what_is_refused(self):
        user = self.add("carol")
        for method, path, body in (("POST", "/incidents", {"reason": "r", "selectors": [{"all": True}]}),
                                   ("GET", "/incidents", None), ("GET", "/incidents/inc_" + "a" * 20, None),
                                   ("GET", "/incidents/inc_" + "a" * 20 + "/suspects", None),
                                   ("POST", "/incidents/inc_" + "a" * 20 + "/close", {}),
                                   ("POST", "/incidents/inc_" + "a" * 20 + "/evidence", {})):
            self.assertEqual(self.ask(method, path, body, token=user).status, 403, path)
            self.assertEqual(self.ask(method, path, body, token=None).status, 401, path)
        for body in ({}, {"reason": "r"}, {"reason": "r", "selectors": []}, {"reason": "", "selectors": [{"all": True}]},
                     {"reason": "r", "selectors": [{"all": False}]}, {"reason": "r", "selectors": [{"pod": "x"}]},
                     {"reason": "r", "selectors": [{"principal": "a", "jti": "tok_1", "scope": "process"}]},
                     {"reason": "r", "selectors": [{"jti": "tok_1", "principal": "a"}]},
                     {"reason": "r", "selectors": [{"principal": "a/b"}]}, {"reason": "r", "selectors": {"all": True}},
                     {"reason": "r", "selectors": [{"all": True}], "freeze": "some"},
                     {"reason": "r", "selectors": [{"all": True}], "pause": 1},
                     {"reason": "r", "selectors": [{"all": True}], "surprise": 1},
                     {"reason": "x" * 200, "selectors": [{"all": True}]}):
            self.assertEqual(self.ask("POST", "/incidents", body).status, 400, body)
        reply = self.ask("POST", "/incidents", {"reason": "r", "selectors": [{"sandbox": "sbx_" + "a" * 20}]})
        self.assertEqual(reply.status, 404, reply)
        grant = self.negotiate(user, "t1")
        made = self.ask("POST", "/incidents", {"reason": "only looked at", "selectors": [{"principal": "carol"}],
                                               "freeze": "none", "revoke": False, "pause": False})
        self.assertEqual(made.status, 201, made)
        path = "/incidents/" + made.json["incident"]["id"]
        self.wait_until(lambda: self.ask("GET", path).json["incident"]["step"] == "done")
        self.assertEqual([one["id"] for one in self.ask("GET", "/incidents").json["incidents"]][0], made.json["incident"]["id"])
        suspects = self.ask("GET", path + "/suspects")
        self.assertEqual(suspects.status, 200, suspects)
        self.assertIn(grant["sandbox"]["id"], suspects.body.decode())
        self.assertEqual(self.use(grant), 200)
        self.run_in(grant, "for i in $(seq 2500); do : > /workspace/f$i; done")
        found, position = set(), None
        while True:
            reply = self.ask("POST", path + "/evidence", {"sandbox": grant["sandbox"]["id"], "part": "files",
                                                          "position": position})
            self.assertEqual(reply.status, 200, reply)
            page = reply.json["evidence"]
            self.assertLessEqual(len(page["items"]), 2000)
            found |= {each["path"] for each in page["items"]}
            position = page["next"]
            if position is None:
                break
        self.assertEqual(len([each for each in found if re.fullmatch(r"/workspace/f\d+", each)]), 2500)
        self.assertEqual(self.ask("POST", path + "/evidence", {"sandbox": grant["sandbox"]["id"], "part": "files",
                                                               "position": "x"}).status, 400)
        self.assertEqual(self.ask("POST", path + "/close", {"note": "nothing"}).status, 200)


if __name__ == "__main__":
    unittest.main()
