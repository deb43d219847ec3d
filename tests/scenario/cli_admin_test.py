"""The CLI's commands for those who look after a deployment: revoke, revocations, audit, nodes, token --refresh. First
what they ask and print, against a stand-in; then that they do it, against a deployment."""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402
from parley_testing.fake import KEY, Fake, client_environment  # noqa: E402

ID = "rev_" + "r" * 20
SANDBOX = "sbx_" + "a" * 20


def revocation(**changes):
    return {"revocation": {"id": ID, "n": 3, "selector": {"sandbox": SANDBOX}, "before": None, "reason": "laptop lost",
                           "by": "local", "created_at": "2026-11-22T00:00:00.000Z", "state": "in_force", "missing": [],
                           "missing_count": 0, "usable_until": None} | changes}


def record(seq, **changes):
    return {"seq": seq, "time": "2026-11-22T00:00:00.000Z", "plane": "sandboxd", "node": "n1", "action": "exec",
            "outcome": "ok", "status": 200, "principal": "local", "sandbox_id": SANDBOX, "jti": "tok_1", "lease": "",
            "detail": "command=true", "prev": f"{seq - 1:064x}", "hash": f"{seq:064x}"} | changes


class Words(unittest.TestCase):
    """What is sent, and what is said about the answer."""

    def setUp(self):
        self.fake = Fake()
        self.addCleanup(self.fake.close)
        self.folder = tempfile.mkdtemp(prefix="parley-fake-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = client_environment(self.fake, self.folder)

    def cli(self, *arguments, expect=0, **more):
        done = subprocess.run([os.path.join(BIN, "parley"), *arguments], env=self.environment, capture_output=True,
                              text=True, timeout=60, **({} if "input" in more else {"stdin": subprocess.DEVNULL}), **more)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def answer(self, method, path, status, value):
        self.fake.answers[method, path] = (status, value)

    def asked(self):
        """The last request, without its credential."""
        return self.fake.asked[-1][:4]

    # ---- revoke ----

    def test_every_selector_becomes_its_field(self):
        self.answer("POST", "/revocations", 200, revocation())
        for option, value in (("jti", "tok_x"), ("link", "lnk_x"), ("family", "tok_x"), ("lease", "lse_x"),
                              ("sandbox", SANDBOX), ("thread", "a/b c"), ("principal", "bob"), ("scope", "process")):
            with self.subTest(option):
                self.cli("revoke", "--" + option, value, "--reason", "because")
                self.assertEqual(self.asked(), ("POST", "/revocations", {}, {option: value, "reason": "because"}))
        self.cli("revoke", "--all", "--before", "2026-11-22T00:00:00Z", "--reason", "r")
        self.assertEqual(self.asked()[3], {"all": True, "before": "2026-11-22T00:00:00Z", "reason": "r"})
        self.cli("revoke", "--thread", "t", "--owner", "bob", "--reason", "r")
        self.assertEqual(self.asked()[2:], ({"principal": "bob"}, {"thread": "t", "reason": "r"}))

    def test_a_sandbox_by_its_name(self):
        self.answer("GET", "/sandboxes", 200, {"sandboxes": [{"id": SANDBOX, "state": "active"}]})
        self.answer("POST", "/revocations", 200, revocation())
        self.cli("revoke", "--sandbox", "brisk-otter", "--reason", "r")
        self.assertEqual(self.fake.asked[0][2], {"name": "brisk-otter"})
        self.assertEqual(self.asked()[3], {"sandbox": SANDBOX, "reason": "r"})

    def test_a_token_from_stdin_without_any_key(self):
        del self.environment["PARLEY_API_KEY"]
        self.answer("POST", "/revocations", 200, revocation(by=None))
        done = self.cli("revoke", "--token", "-", "--reason", "found it", input="a.b.c\n")
        self.assertEqual(self.fake.asked[-1][3:], ({"token": "a.b.c", "reason": "found it"}, ""))
        self.assertIn("a holder of the token", done.stdout)
        self.cli("revoke", "--jti", "x", "--reason", "r", expect=1)

    def test_in_force_and_pending_are_told_apart(self):
        self.answer("POST", "/revocations", 200, revocation())
        done = self.cli("revoke", "--sandbox", SANDBOX, "--reason", "r")
        self.assertIn("in force", done.stdout)
        self.answer("POST", "/revocations", 202, revocation(
            state="pending", missing=["n1", "n2"], missing_count=5, usable_until="2026-11-22T01:00:00.000Z"))
        done = self.cli("revoke", "--sandbox", SANDBOX, "--reason", "r", expect=3)
        for words in ("pending", "n1 n2 and 3 more", "2026-11-22T01:00:00.000Z"):
            self.assertIn(words, done.stdout)
        done = self.cli("revoke", "--sandbox", SANDBOX, "--reason", "r", "--json", expect=3)
        self.assertEqual(json.loads(done.stdout)["revocation"]["missing_count"], 5)

    def test_wrong_uses_of_revoke(self):
        for arguments, words in ((("--reason", "r"), "selector"), (("--all",), "--reason"),
                                 (("--all", "--jti", "x", "--reason", "r"), "both"),
                                 (("--all", "--reason", "r", "--before", "yesterday"), "time"),
                                 (("--all", "--reason", "r", "more"), "more")):
            self.assertIn(words, self.cli("revoke", *arguments, expect=2).stderr)
        self.assertEqual(self.fake.asked, [])

    def test_revocations_follow_the_cursor(self):
        pages = {None: {"revocations": [revocation()["revocation"]] * 2, "next": "c2"},
                 "c2": {"revocations": [revocation(reason="\x1b[31mred")["revocation"]], "next": None}}
        self.fake.answers["GET", "/revocations"] = lambda query: (200, pages[query.get("cursor")])
        done = self.cli("revocations", "--all")
        self.assertEqual(len(done.stdout.splitlines()), 4)
        self.assertIn("\\x1b[31mred", done.stdout)
        self.assertEqual(self.asked()[2], {"limit": "48", "all": "1", "cursor": "c2"})
        self.answer("GET", "/revocations/" + ID, 200, revocation(state="pending", missing=["n2"], missing_count=1))
        self.assertIn("n2", self.cli("revocations", ID, expect=3).stdout)

    # ---- audit ----

    def test_audit_lists_the_last_or_goes_on_from_a_number(self):
        hostile = record(7, detail="command=\x1b]0;x\x07\u009b31m\nrm")
        self.answer("GET", "/audit", 200, {"records": [hostile], "next": None})
        done = self.cli("audit", "-n", "5", "--sandbox", SANDBOX, "--action", "exec", "--since", "2026-11-22T00:00:00Z")
        self.assertEqual(self.asked()[2], {"last": "5", "sandbox": SANDBOX, "action": "exec",
                                           "since": "2026-11-22T00:00:00Z"})
        self.assertEqual(len(done.stdout.splitlines()), 1)
        for words in ("7 2026-", "sandboxd n1 exec ok 200 local", "jti=tok_1", "\\x1b]0;x\\x07\\x9b31m\\x0arm"):
            self.assertIn(words, done.stdout)
        self.assertNotIn("lease=", done.stdout)
        pages = {"3": {"records": [record(4)], "next": 20000}, "20000": {"records": [record(20001)], "next": None}}
        self.fake.answers["GET", "/audit"] = lambda query: (200, pages[query["after"]])
        self.assertEqual([r["seq"] for r in json.loads(self.cli("audit", "--after", "3", "--json").stdout)], [4, 20001])

    def test_audit_follow_tells_each_record_once(self):
        def page(query):
            if "last" in query:
                return 200, {"records": [record(1)], "next": None}
            after = int(query["after"])
            return 200, {"records": [record(after + 1)] if after < 3 else [], "next": None}
        self.fake.answers["GET", "/audit"] = page
        self.answer("GET", "/audit/head", 200, {"seq": 1, "hash": "ab" * 32})
        child = subprocess.Popen([os.path.join(BIN, "parley"), "audit", "-f", "--json"], env=self.environment,
                                 stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual([json.loads(child.stdout.readline())["seq"] for _ in range(3)], [1, 2, 3])
        finally:
            child.kill()
            child.communicate()

    def test_audit_verify_says_whole_or_where_not(self):
        self.answer("POST", "/audit/verify", 200, {"ok": True, "records": 9, "first": 1, "last": 9, "sealed": 0,
                                                    "hash": "ab" * 32})
        self.assertIn("whole: 9 records", self.cli("audit", "verify").stdout)
        self.assertEqual(self.asked()[3], {})
        self.cli("audit", "verify", "--head", "5:" + "cd" * 32)
        self.assertEqual(self.asked()[3], {"seq": 5, "hash": "cd" * 32})
        self.answer("POST", "/audit/verify", 200, {"ok": False, "error": "record 4 does not fit", "at": 4})
        done = self.cli("audit", "verify", expect=1)
        self.assertIn("record 4", done.stderr)
        self.cli("audit", "verify", "--head", "5", expect=2)
        self.cli("audit", "-n", "1001", expect=2)
        self.answer("GET", "/audit/head", 200, {"seq": 9, "hash": "ab" * 32, "time": "2026-11-22T00:00:00.000Z"})
        self.assertEqual(self.cli("audit", "head").stdout, f"9:{'ab' * 32}\n")

    def test_audit_export_is_gapless_or_fails(self):
        records = [record(n) for n in range(1, 2501)]

        def page(query):
            after = int(query["after"])
            part = [r for r in records if r["seq"] > after][:int(query["limit"])]
            return 200, {"records": part, "next": part[-1]["seq"] if part and part[-1]["seq"] < 2500 else None}
        self.fake.answers["GET", "/audit"] = page
        lines = [json.loads(line) for line in self.cli("audit", "export").stdout.splitlines()]
        self.assertEqual(lines, records)
        self.assertEqual(self.asked()[2]["all"], "1")
        lines = self.cli("audit", "export", "--from", "2400").stdout.splitlines()
        self.assertEqual(json.loads(lines[0])["seq"], 2400)
        del records[1200]
        self.assertIn("does not follow", self.cli("audit", "export", expect=1).stderr)
        records[:] = [{k: v for k, v in record(1).items() if k != "hash"}]
        self.assertIn("admin", self.cli("audit", "export", expect=1).stderr)

    def test_audit_follow_begins_behind_what_was_there_when_nothing_fits(self):
        def page(query):
            after = int(query.get("after", 0))
            return 200, {"records": [record(after + 1)] if 10 <= after < 12 else [], "next": None}
        self.fake.answers["GET", "/audit"] = page
        self.answer("GET", "/audit/head", 200, {"seq": 10, "hash": "ab" * 32})
        child = subprocess.Popen([os.path.join(BIN, "parley"), "audit", "-f", "--json"], env=self.environment,
                                 stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual([json.loads(child.stdout.readline())["seq"] for _ in range(2)], [11, 12])
        finally:
            child.kill()
            child.communicate()
        self.answer("GET", "/audit/head", 200, {"seq": "ten"})  # no head: an error, and freed once
        self.assertIn("no head", self.cli("audit", "-f", expect=1).stderr)

    def test_options_that_mean_nothing_there_are_refused(self):
        for words in (("audit", "export", "--thread", "t"), ("audit", "head", "-n", "5"), ("audit", "--from", "5"),
                      ("audit", "verify", "--after", "5"), ("audit", "export", "--head", "1:" + "ab" * 32),
                      ("token", "--expires-in", "60"), ("token", "--note", "x"), ("token", "--ttl", "59"),
                      ("run", "--ttl", "soon", "--", "true"), ("token", "--token", "x", "--ttl", "60")):
            self.assertIn("--help", self.cli(*words, expect=2).stderr)
        self.assertEqual(self.fake.asked, [])

    # ---- what every command keeps ----

    def test_a_servers_words_cannot_drive_the_terminal(self):
        self.answer("GET", "/sandboxes", 500, {"error": {"code": "INTERNAL", "message": "\x1b]0;x\x07\u009b31m\nno"}})
        self.assertIn("\\x1b]0;x\\x07\\x9b31m\\x0ano", self.cli("ls", expect=1).stderr)
        row = {"id": SANDBOX, "name": "\x1b[2J", "state": "\x1b[31m", "node": "\r", "template": "base"}
        self.answer("GET", "/sandboxes", 200, {"sandboxes": [row]})
        self.assertNotRegex(self.cli("ls").stdout, "[\x1b\r]")
        self.answer("GET", "/audit/head", 200, {"seq": 1, "hash": "\x1b[2J"})
        self.assertNotIn("\x1b", self.cli("audit", "head").stdout)

    def test_a_list_that_never_ends_is_given_up(self):
        self.fake.answers["GET", "/sandboxes"] = lambda query: (200, {"sandboxes": [], "next_cursor": "again"})
        self.assertIn("does not end", self.cli("ls", expect=1).stderr)

    def test_json_is_one_value_whatever_happens(self):
        self.answer("GET", "/sandboxes", 200, {"sandboxes": []})
        for words, status in ((("rm", "--json", "a", "b"), 1), (("audit", "--json", "-n", "x"), 2), (("ls", "--json", "x"), 2),
                              (("run", "--json"), 2), (("ls", "--json", "--fly"), 2), (("revoke", "--json", "--all"), 2), (("ls", "--json", b"\xff"), 2)):
            done = self.cli(*words, expect=status)
            self.assertIn("code", json.loads(done.stdout)["error"])
        self.answer("GET", "/revocations/" + ID, 200, {})
        self.assertIn("no revocation", json.loads(self.cli("revocations", ID, "--json", expect=1).stdout)["error"]["message"])
        raw = json.loads(self.cli("token", "--raw", "--json").stdout)["token"]
        self.assertEqual(raw.count("."), 2)

    def test_output_that_could_not_be_written_is_a_failure(self):
        self.answer("GET", "/audit/head", 200, {"seq": 9, "hash": "ab" * 32})
        self.answer("GET", "/audit", 200, {"records": [record(1)], "next": None})
        for words, status in ((("audit", "head"), 1), (("audit", "export"), 1), (("token", "--raw"), 1),
                              (("run", "--json", "--", "lines", "3", "0.01"), 125), (("run", "--", "lines", "3", "0.01"), 125)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([os.path.join(BIN, "parley"), *words], env=self.environment, stdout=full,
                                      stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, status, (words, done.stderr))
            self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("parley")]), 1, done.stderr)
            self.assertIn("No space left", done.stderr)
        done = subprocess.run(["bash", "-c", f"{BIN}/parley audit export | :"], env=self.environment, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.stderr, "")  # a reader who left

    def test_an_answer_without_end_is_cut(self):
        self.answer("GET", "/nodes", 200, {"nodes": ["x" * (33 << 20)]})
        done = self.cli("nodes", expect=1)
        self.assertIn("over 32 MiB", done.stderr)
        self.assertNotIn("is it running", done.stderr)

    def test_hostile_shapes_end_in_words(self):
        for shape in ([], {}, {"nodes": {}}, {"sandboxes": "x", "next_cursor": 5}, {"records": [[], 7, {"seq": []}], "next": -1},
                      {"revocation": {"state": "x", "missing": 5, "selector": [1], "missing_count": -5, "usable_until": {}}}):
            for method, path, words in (("GET", "/nodes", ["nodes"]), ("GET", "/sandboxes", ["ls"]), ("GET", "/audit", ["audit"]),
                                        ("GET", "/audit", ["audit", "export"]), ("POST", "/audit/verify", ["audit", "verify"]),
                                        ("GET", "/revocations/" + ID, ["revocations", ID]), ("GET", "/revocations", ["revocations"]),
                                        ("POST", "/nodes", ["nodes", "add", "n2"])):
                self.answer(method, path, 200, shape)
                done = subprocess.run([os.path.join(BIN, "parley"), *words], env=self.environment, capture_output=True,
                                      text=True, timeout=60, stdin=subprocess.DEVNULL)
                self.assertIn(done.returncode, (0, 1, 3), (words, shape, done.stderr))
                self.assertNotIn("Sanitizer", done.stderr)

    # ---- nodes ----

    def test_nodes_are_listed(self):
        self.answer("GET", "/nodes", 200, {"nodes": [
            {"name": "n1", "state": "alive", "draining": True, "url": "http://h:1", "slots": 64, "used": 3, "epoch": 2,
             "incarnation": 5, "rekeying": False, "seen_at": "2026-11-22T00:00:00.000Z", "clock_off_ms": 2500}]})
        row = self.cli("nodes").stdout.splitlines()[1]
        for words in ("n1", "alive", "3/64", "draining", "clock off by 2500 ms"):
            self.assertIn(words, row)

    def test_what_may_be_done_to_a_node(self):
        for verb, path, body in (("drain", "drain", {"drain": True}), ("undrain", "drain", {"drain": False}),
                                 ("rekey", "rekey", {}), ("lost", "lost", {})):
            self.answer("POST", f"/nodes/n2/{path}", 202, {"node": "n2"})
            self.assertIn("n2", self.cli("nodes", verb, "n2").stdout)
            self.assertEqual(self.asked(), ("POST", f"/nodes/n2/{path}", {}, body))
        for arguments in (("fly", "n2"), ("drain",), ("drain", "a", "b"), ("drain", "a", "--token-file", "x")):
            self.cli("nodes", *arguments, expect=2)

    def test_a_join_token_stands_in_no_argument_list(self):
        self.answer("POST", "/nodes", 201, {"node": "n2", "join_token": "pj_secret",
                                            "expires_at": "2036-11-22T00:00:00.000Z"})
        said = self.cli("nodes", "add", "n2").stdout
        self.assertEqual(self.asked()[3], {"name": "n2"})
        for line in said.splitlines():
            if "pj_secret" in line:
                self.assertRegex(line.strip(), r"^export PARLEY_JOIN_TOKEN=pj_secret$")
        self.assertIn(f"parley-sandboxd enrol --node n2 --negotiator-url {self.fake.url}", said)
        path = self.folder + "/join"
        said = self.cli("nodes", "add", "n2", "--token-file", path).stdout
        self.assertNotIn("pj_secret", said)
        self.assertIn("--join-token-file", said)
        with open(path) as kept:
            self.assertEqual(kept.read(), "pj_secret")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)

    def test_help_of_every_command(self):
        listed = re.findall(r"^  (\w+)  +\w", self.cli("--help").stdout, re.M)
        self.assertTrue({"revoke", "revocations", "audit", "nodes"} <= set(listed), listed)
        for name in listed:
            self.assertIn("usage: parley " + name, self.cli(name, "--help").stdout)


@needs_root
class Deeds(unittest.TestCase):
    """What they do to a deployment."""

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def cli(self, *arguments, expect=0, **more):
        done = self.deployment.cli(*arguments, **more)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr + self.deployment.logs())
        return done

    def token(self, thread):
        return self.cli("token", "--thread", thread, "--raw").stdout.strip()

    def claims(self, thread):
        return json.loads(self.cli("token", "--thread", thread).stdout)

    def use(self, token):
        """The status and code of an exec with that token."""
        claims = json.loads(self.cli("token", "decode", "-", input=token).stdout)
        reply = self.deployment.request("POST", f"{self.deployment.node_url}/s/{claims['aud']}/exec",
                                        {"cmd": "true", "stream": "none"}, token=token)
        return reply.status, reply.code

    def test_a_revoked_thread_is_refused_and_then_negotiated_anew(self):
        self.cli("run", "--thread", "rev", "--", "true")
        token = self.token("rev")
        self.assertEqual(self.use(token)[0], 200)
        said = self.cli("revoke", "--thread", "rev", "--reason", "test of thread").stdout
        self.assertIn("in force", said)
        self.assertEqual(self.use(token), (401, "TOKEN_REVOKED"))
        self.assertEqual(self.cli("run", "--thread", "rev", "--", "echo", "again").stdout, "again\n")
        listed = self.cli("revocations").stdout
        self.assertIn("test of thread", listed)
        self.cli("revocations", re.search(r"rev_\w+", listed)[0])

    def test_a_holder_revokes_a_token_without_a_key(self):
        self.cli("run", "--thread", "holder", "--", "true")
        token = self.token("holder")
        narrowed = self.cli("token", "--token", "-", "--attenuate", "process", input=token).stdout.strip()
        environment = dict(self.deployment.environment, PARLEY_URL=self.deployment.url,
                           XDG_CONFIG_HOME=self.deployment.folder + "/none")
        for given, others in ((narrowed, (token, 200)), (token, (token, 401))):
            done = subprocess.run([os.path.join(BIN, "parley"), "revoke", "--token", "-", "--reason", "found"],
                                  env=environment, input=given, capture_output=True, text=True, timeout=30)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(self.use(given), (401, "TOKEN_REVOKED"))
            self.assertEqual(self.use(others[0])[0], others[1])
        done = subprocess.run([os.path.join(BIN, "parley"), "revoke", "--token", "-", "--reason", "forged"],
                              env=environment, input=token[:-4] + "AAAA", capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 1, done.stdout)

    def test_refresh_keeps_the_family(self):
        self.cli("run", "--thread", "fresh", "--", "true")
        before, old = self.claims("fresh"), self.token("fresh")
        after = json.loads(self.cli("token", "--thread", "fresh", "--refresh").stdout)
        self.assertNotEqual(after["jti"], before["jti"])
        self.assertEqual((after["fam"], after["aud"], after["lease"]), (before["fam"], before["aud"], before["lease"]))
        self.assertEqual(self.use(old)[0], 200, "a spent token is good for 30 s more")

    def test_a_revoked_run_goes_on_with_a_new_token(self):
        child = subprocess.Popen([os.path.join(BIN, "parley"), "run", "--thread", "cut", "-n", "--", "sh", "-c",
                                  "for i in $(seq 30); do echo $i; sleep 0.1; done"], env=self.deployment.environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self.assertEqual(child.stdout.readline(), "1\n")
            old = self.token("cut")
            self.cli("revoke", "--thread", "cut", "--reason", "while it runs")
            output, errors = child.communicate(timeout=60)
        finally:
            child.kill()
        self.assertEqual((child.returncode, output), (0, "".join(f"{i}\n" for i in range(2, 31))), errors)
        self.assertEqual(self.use(old), (401, "TOKEN_REVOKED"))

    def test_a_token_refreshed_in_two_places_is_told(self):
        self.cli("run", "--thread", "leak", "--", "true")
        stolen = token = self.token("leak")
        for _ in range(2):
            reply = self.deployment.request("POST", "/threads/leak/sandbox/refresh", {"current_token": token})
            self.assertEqual(reply.status, 200, reply)
            token = reply.json["token"]
        done = self.cli("token", "--thread", "leak", "--refresh")
        self.assertIn("revoked the whole family", done.stderr)
        self.assertEqual(self.use(self.token("leak"))[0], 200)
        for spent in (stolen, token):
            self.assertEqual(self.use(spent), (401, "TOKEN_REVOKED"))

    def test_a_run_outlives_its_token_and_a_broken_connection(self):
        """60 s is the shortest life there is; then the front is killed, and the resume needs the fresh token."""
        self.cli("run", "--thread", "long", "--", "true")
        grant = self.deployment.negotiate("long", ttl=60)
        path = self.deployment.folder + "/cache/parley/grants.json"
        with open(path) as cached:
            grants = json.load(cached)
        for entry in grants.values():
            if entry["thread"] == "long":
                entry.update(token=grant["token"], jti=grant["jti"], expires_ms=int((time.time() + 60) * 1000),
                             refresh_ms=int((time.time() + 48) * 1000))
        with open(path, "w") as cached:
            json.dump(grants, cached)
        child = subprocess.Popen([os.path.join(BIN, "parley"), "run", "--thread", "long", "-n", "--", "sh", "-c",
                                  "for i in $(seq 75); do echo $i; sleep 1; done"], env=self.deployment.environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(67)
            self.assertEqual(self.use(grant["token"])[0], 401, "the first token is over")
            self.deployment.kill("parley-sandboxd")
            output, errors = child.communicate(timeout=60)
        finally:
            child.kill()
        self.assertEqual((child.returncode, output), (0, "".join(f"{i}\n" for i in range(1, 76))), errors)
        self.deployment.wait_ready()

    def test_audit_joins_uses_to_their_issuance(self):
        self.cli("run", "--thread", "aud", "--", "true")
        claims = self.claims("aud")
        until = time.monotonic() + 10  # the node sends its records in batches
        while True:
            records = json.loads(self.cli("audit", "--jti", claims["jti"], "--json").stdout)
            actions = {r["action"] for r in records}
            if {"negotiate", "exec"} <= actions or time.monotonic() > until:
                break
            time.sleep(0.2)
        self.assertTrue({"negotiate", "exec"} <= actions, records)
        self.assertTrue(all(r["jti"] == claims["jti"] for r in records))

    def test_audit_verify_head_and_export(self):
        self.cli("run", "--thread", "chain", "--", "true")
        head = self.cli("audit", "head").stdout.strip()
        self.assertRegex(head, r"^\d+:[0-9a-f]{64}$")
        self.assertIn("whole", self.cli("audit", "verify", "--head", head).stdout)
        seq, digest = head.split(":")
        self.cli("audit", "verify", "--head", f"{seq}:{'0' * 64}", expect=1)
        lines = [json.loads(line) for line in self.cli("audit", "export").stdout.splitlines()]
        self.assertEqual([r["seq"] for r in lines], list(range(1, len(lines) + 1)))
        self.assertEqual(lines[int(seq) - 1]["hash"], digest)

    def test_drained_nodes_get_nothing_new(self):
        self.assertIn("n1", self.cli("nodes").stdout)
        self.cli("run", "--thread", "kept", "--", "true")
        self.cli("nodes", "drain", "n1")
        try:
            self.assertIn("draining", self.cli("nodes").stdout)
            self.assertEqual(self.cli("run", "--thread", "kept", "--", "echo", "lives").stdout, "lives\n")
            self.assertEqual(self.deployment.request("POST", "/threads/new-one/sandbox", {"wait": 0}).status, 503)
        finally:
            self.cli("nodes", "undrain", "n1")
        self.cli("run", "--thread", "new-one", "--", "true")
        self.cli("nodes", "lost", "n1", expect=1)  # it is alive
        self.assertIn("pj_", self.cli("nodes", "add", "n2").stdout)


if __name__ == "__main__":
    unittest.main()
