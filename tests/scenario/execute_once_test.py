"""POST /execute on the negotiator, with an API key: each request gets a sandbox of its own that goes when the answer has been
sent, or stays for what is still to be fetched; who leaves, and a negotiator that is killed, leave nothing."""
import datetime
import http.client
import json
import os
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.remote_sandbox import RemoteSandbox  # noqa: E402

FIELDS = {"stdout", "stderr", "exit_code", "timed_out", "error", "sandbox_id", "artifacts"}
LARGE = 2 * 1024 * 1024


@needs_root
class ExecuteOnce(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def client(self, key="", **more):
        return RemoteSandbox(self.deployment.url, key or self.deployment.key, **more)

    def execute(self, body, **more):
        return self.deployment.request("POST", "/execute", body, **more)

    def sandboxes(self):
        return {s["id"]: s for s in self.deployment.request("GET", "/sandboxes", record=False).json["sandboxes"]}

    def await_gone(self, seconds=60):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            left = self.sandboxes()
            if not left:
                return
            time.sleep(0.1)
        self.fail(f"still there: {left}\n" + self.deployment.logs())

    def test_each_has_its_own_and_it_goes(self):
        client = self.client()
        done = [client.execute("import os\nprint(os.path.exists('/workspace/seen'))\nopen('/workspace/seen', 'w').write('x')\n"
                               "os.mkdir('artifacts'); open('artifacts/a', 'w').write('A')") for _ in range(3)]
        for each in done:
            self.assertTrue(each.succeeded, each)
            self.assertEqual((each.stdout, each.artifacts), ("False\n", {"a": b"A"}))
        self.assertEqual(len({each.sandbox_id for each in done}), 3)
        self.await_gone()
        for each in done:
            ended = self.deployment.request("GET", "/sandboxes/" + each.sandbox_id).json
            self.assertEqual((ended["state"], ended["reason"]), ("terminated", "released"), ended)

    def test_either_carrier_of_the_key(self):
        body = {"code": "echo $0", "language": "bash"}
        reply = self.execute(body, token=None, headers={"X-API-Key": self.deployment.key})
        self.assertEqual((reply.status, reply.json["stdout"]), (200, "main.sh\n"))
        self.assertEqual(set(reply.json), FIELDS)
        self.assertNotIn("x-parley-artifacts-for", reply.headers)
        for key in (None, "pk_wrong", "no"):
            reply = self.execute(body, token=key)
            self.assertEqual((reply.status, set(reply.json)), (401, FIELDS), reply)
            self.assertIsInstance(reply.json["error"], str)
        self.await_gone()

    def test_what_is_malformed(self):
        for body, word in ((b"{", "JSON"), (b"[]", ""), ({"code": "1", "language": "python", "timeout_s": "x"}, "timeout_s"),
                           ({"code": "1", "language": "python", "timeout_s": -1}, "timeout_s"),
                           ({"code": "1", "language": "python", "more": 1}, "more"), ({"code": "1"}, "language")):
            reply = self.execute(body)
            self.assertEqual((reply.status, set(reply.json)), (400, FIELDS), (body, reply))
            self.assertIn(word, reply.json["error"])
        reply = self.execute({"code": "1", "language": "fortran"})
        self.assertEqual((reply.status, reply.json["exit_code"]), (200, 1))
        self.assertIn("Unsupported language: fortran", reply.json["error"])
        reply = self.execute({"code": "1", "language": "python", "files": {"../x": "1"}})
        self.assertIn("Invalid file path: ../x", reply.json["error"])
        self.await_gone()

    def test_a_timeout_is_answered_before_the_client_gives_up(self):
        done = self.client(timeout_s=3.0).execute("import time\nprint('on', flush=True)\ntime.sleep(60)")
        self.assertEqual((done.timed_out, done.exit_code, done.error, done.stdout), (True, 124, "Execution timed out", "on\n"), done)
        self.await_gone()

    def test_there_is_no_network(self):
        done = self.client().execute("import socket\ns = socket.socket(); s.settimeout(3)\n"
                                     f"print(s.connect_ex(('127.0.0.1', {self.deployment.port})) != 0)\n"
                                     "try: socket.create_connection(('198.51.100.1', 80), 2); print('out')\n"
                                     "except OSError: print('none')")
        self.assertEqual(done.stdout, "True\nnone\n", done)

    def test_a_large_artifact_keeps_its_sandbox_until_it_is_fetched(self):
        client = self.client()
        done = client.execute(f"import os\nos.mkdir('artifacts')\nopen('artifacts/big', 'wb').write(b'b' * {LARGE})")
        self.assertEqual((done.artifacts, client.fetched), ({"big": b"b" * LARGE}, [200]), done)
        self.assertTrue(client.urls[0].startswith(self.deployment.node_url + "/c/"), client.urls)
        sandbox = self.sandboxes()[done.sandbox_id]
        lease = self.deployment.request("GET", "/sandboxes/" + done.sandbox_id).json
        self.assertIn(sandbox["state"], ("active",), lease)
        self.deployment.request("DELETE", "/sandboxes/" + done.sandbox_id)
        self.await_gone()
        self.assertEqual(client.ask("GET", client.urls[0], 30)[0], 410)

    def test_a_revoked_token_fetches_nothing(self):
        """The URL's token is the caller's narrowed: it goes with it, the artifact unfetched."""
        grant = self.deployment.negotiate("revoked")
        reply = self.deployment.request("POST", grant["endpoints"]["http"] + "/execute", {
            "code": f"mkdir artifacts; head -c {LARGE} /dev/zero > artifacts/x", "language": "bash"}, token=grant["token"])
        url = reply.json["artifacts"]["x"]["url"]
        self.assertEqual(self.deployment.request("HEAD", url, token=None).status, 200)
        self.assertEqual(self.deployment.request("POST", "/revocations", {"jti": grant["jti"], "reason": "a test"}).status, 200)
        reply = self.deployment.request("GET", url, token=None)
        self.assertEqual((reply.status, set(reply.json)), (401, FIELDS))
        self.deployment.request("DELETE", "/threads/revoked/sandbox")
        self.await_gone()

    def test_a_revocation_ends_a_run(self):
        grant, got = self.deployment.negotiate("cut"), []

        def ask():
            got.append(self.deployment.request("POST", grant["endpoints"]["http"] + "/execute", {
                "code": "touch /tmp/begun; sleep 600", "language": "bash", "timeout_s": 900}, token=grant["token"], timeout=120))
        thread = threading.Thread(target=ask)
        thread.start()
        while "begun" not in self.deployment.shell(grant, "ls /tmp"):
            time.sleep(0.05)
        self.deployment.request("POST", "/revocations", {"jti": grant["jti"], "reason": "a test"})
        thread.join()
        self.assertEqual((got[0].status, set(got[0].json)), (401, FIELDS))
        grant = self.deployment.negotiate("cut")
        until = time.monotonic() + 30
        while "sleep" in self.deployment.shell(grant, "cat /proc/[0-9]*/comm") and time.monotonic() < until:
            time.sleep(0.1)
        self.assertNotIn("sleep", self.deployment.shell(grant, "cat /proc/[0-9]*/comm"))
        self.deployment.request("DELETE", "/threads/cut/sandbox")
        self.await_gone()

    def test_a_client_that_leaves_ends_it(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.deployment.port, timeout=30)
        connection.request("POST", "/execute", json.dumps({"code": "sleep 600", "language": "bash", "timeout_s": 900}),
                           {"Authorization": "Bearer " + self.deployment.key})
        until = time.monotonic() + 60
        while not any(s["state"] in ("active",) for s in self.sandboxes().values()) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertTrue(self.sandboxes())
        connection.close()
        self.await_gone()

    def test_one_that_leaves_at_once_leaves_nothing(self):
        for _ in range(8):
            connection = http.client.HTTPConnection("127.0.0.1", self.deployment.port, timeout=30)
            connection.request("POST", "/execute", json.dumps({"code": "sleep 600", "language": "bash"}),
                               {"Authorization": "Bearer " + self.deployment.key})
            connection.close()
        self.assertTrue(self.client().execute("print(1)").succeeded)
        self.await_gone()

    def test_several_at_once(self):
        results, lock = [], threading.Lock()

        def ask(n):
            done = self.client().execute(f"import time; time.sleep(0.2); print({n})")
            with lock:
                results.append((n, done))
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for n, done in results:
            self.assertEqual((done.stdout, done.succeeded), (f"{n}\n", True), done)
        self.await_gone()

    def test_the_negotiators_audit_has_it(self):
        done = self.client().execute("print('audited')")
        self.await_gone()
        wanted = {"negotiate", "release", "code.execute", "exec", "exec.end"}
        until, actions = time.monotonic() + 30, set()
        while time.monotonic() < until and not wanted <= actions:
            records = self.deployment.request("GET", f"/audit?sandbox={done.sandbox_id}").json["records"]
            actions = {record["action"] for record in records}
            time.sleep(0.2)
        self.assertLessEqual(wanted, actions)
        code = next(record for record in records if record["action"] == "code.execute")
        self.assertRegex(code["detail"], r"^file=main\.py size=16 files=0 code=print\('audited'\)$")
        self.assertEqual(code["request_id"],
                         next(record for record in records if record["action"] == "exec")["request_id"])
        self.assertTrue(all((record.get("thread") or record.get("thread_id") or "execute-").startswith("execute-")
                            for record in records), records)


@needs_root
class ExecuteKilled(unittest.TestCase):
    def test_a_negotiator_that_is_killed_leaves_nothing_for_long(self):
        deployment = Deployment()
        self.addCleanup(deployment.close)
        connection = http.client.HTTPConnection("127.0.0.1", deployment.port, timeout=60)
        connection.request("POST", "/execute", json.dumps({"code": "sleep 600", "language": "bash", "timeout_s": 900}),
                           {"Authorization": "Bearer " + deployment.key})
        until, found = time.monotonic() + 60, []
        while not found and time.monotonic() < until:
            found = [s for s in deployment.request("GET", "/sandboxes", record=False).json["sandboxes"] if s["state"] == "active"]
            time.sleep(0.05)
        thread = found[0]["threads"][0]
        self.assertTrue(thread.startswith("execute-"), found)
        deployment.kill("parley-negotiator")
        with self.assertRaises((OSError, http.client.HTTPException)):
            connection.getresponse()
        deployment.up()
        deployment.wait_ready()
        # The node saw its connection end, and with it the program; the sandbox ends when it is idle for 130 s.
        grant = deployment.negotiate(thread)
        while "sleep" in deployment.shell(grant, "cat /proc/[0-9]*/comm") and time.monotonic() < until:
            time.sleep(0.1)
        self.assertNotIn("sleep", deployment.shell(grant, "cat /proc/[0-9]*/comm"))
        self.assertEqual(grant["sandbox"]["id"], found[0]["id"])
        lease = deployment.request("GET", f"/threads/{thread}/sandbox").json["lease"]
        left = datetime.datetime.fromisoformat(lease["expires_at"].replace("Z", "+00:00")).timestamp() - time.time()
        self.assertLess(left, 140, lease)


if __name__ == "__main__":
    unittest.main()
