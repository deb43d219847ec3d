"""How often one client address may ask (protocol.md, 6): requests with a key on the negotiator, invalid credentials on both planes,
and whose word counts about where a request is from. Addresses of 127.0.0.0/8 are clients of their own."""
import concurrent.futures
import http.client
import json
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import Reply  # noqa: E402

PER_MINUTE, BURST = 30, 12


def ask(url, path, source, method="GET", key=None, **headers):
    """From that address of the loopback."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20, source_address=(source, 0))
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if key:
        sent["Authorization"] = "Bearer " + key
    try:
        connection.request(method, path, headers=sent)
        answer = connection.getresponse()
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


@needs_root
class Rate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_RATE_PER_MINUTE=str(PER_MINUTE), PARLEY_RATE_BURST=str(BURST),
                                    PARLEY_RATE_LOOPBACK="true", PARLEY_TRUSTED_PROXIES="127.3.0.0/16",
                                    PARLEY_AUTH_FAILURES_PER_MINUTE="6")
        cls.url, cls.node_url, cls.key = cls.deployment.url, cls.deployment.node_url, cls.deployment.key

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()

    def use_up(self, source, **headers):
        """Asks until it is told to wait; that answer. At least the burst was served."""
        for served in range(10 * BURST):
            reply = ask(self.url, "/sandboxes", source, key=self.key, **headers)
            if reply.status == 429:
                self.assertGreaterEqual(served, BURST)
                return reply
            self.assertEqual(reply.status, 200, reply)
        self.fail("never limited")

    def test_a_burst_then_429_with_the_exact_wait(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: ask(self.url, "/sandboxes", "127.1.0.1", key=self.key), range(40)))
        served = sum(reply.status == 200 for reply in replies)
        self.assertIn(served, range(BURST, 2 * BURST))  # some came back while it went on
        refused = self.use_up("127.1.0.1") if served == 40 else next(r for r in replies if r.status == 429)
        self.assertEqual((refused.code, refused.json["error"]["retryable"]), ("RATE_LIMITED", True))
        self.assertIn(int(refused.headers["retry-after"]), (1, 2))
        self.assertIn("127.1.0.1", refused.json["error"]["message"])
        self.assertEqual(ask(self.url, "/sandboxes", "127.1.0.2", key=self.key).status, 200)  # another one is not
        time.sleep(int(refused.headers["retry-after"]) + 2)
        self.assertEqual(ask(self.url, "/sandboxes", "127.1.0.1", key=self.key).status, 200)

    def test_a_login_counts_as_what_its_key_would_be_shown_for(self):
        host, port = self.url.removeprefix("http://").split(":")
        statuses = []
        for _ in range(3 * BURST):
            connection = http.client.HTTPConnection(host, int(port), timeout=20, source_address=("127.1.0.9", 0))
            connection.request("POST", "/auth/token", json.dumps({"api_key": self.key}))
            statuses.append(connection.getresponse().status)
            connection.close()
        self.assertEqual(set(statuses), {200, 429}, statuses)

    def test_health_and_the_node_link_are_never_limited(self):
        self.use_up("127.0.0.1")  # whom the node is, too
        for _ in range(3 * BURST):
            self.assertEqual(ask(self.url, "/healthz", "127.0.0.1").status, 200)
        self.assertEqual(ask(self.url, "/readyz", "127.0.0.1").status, 200)
        nodes = ask(self.url, "/nodes", "127.1.0.3", key=self.key).json["nodes"]
        self.assertEqual([node["state"] for node in nodes], ["alive"])
        time.sleep(7)  # three heartbeats: it would be suspect
        nodes = ask(self.url, "/nodes", "127.1.0.3", key=self.key).json["nodes"]
        self.assertEqual([node["state"] for node in nodes], ["alive"])

    def test_lies_about_where_a_request_is_from(self):
        self.use_up("127.1.0.4")
        for lie in ("192.0.2.1", "127.0.0.1", "127.1.0.5, 127.3.0.1", "127.3.0.1"):
            self.assertEqual(ask(self.url, "/sandboxes", "127.1.0.4", key=self.key, X_Forwarded_For=lie).status, 429)
        # Through a proxy that is trusted it is whom that saw, whatever stands before.
        self.use_up("127.3.0.1", X_Forwarded_For="192.0.2.7")
        for lie in ("198.51.100.1, 192.0.2.7", "junk, 192.0.2.7", "127.0.0.1,192.0.2.7 , 127.3.0.2"):
            self.assertEqual(ask(self.url, "/sandboxes", "127.3.0.9", key=self.key, X_Forwarded_For=lie).status, 429)
        self.assertEqual(ask(self.url, "/sandboxes", "127.3.0.1", key=self.key, X_Forwarded_For="192.0.2.8").status, 200)
        told = ask(self.url, "/audit?all=1", "127.1.0.6", key=self.key)
        self.assertEqual(told.status, 200)
        with open(f"{self.deployment.state}/log/negotiator.log") as log:
            text = log.read()
        self.assertIn("remote=192.0.2.7", text)
        self.assertNotIn("remote=198.51.100.1", text)

    def test_invalid_keys(self):
        for _ in range(12):  # what shows none tries none
            self.assertEqual(ask(self.url, "/sandboxes", "127.2.0.1").status, 401)
        answers = [ask(self.url, "/sandboxes", f"127.2.1.{i // 8}", key="pk_" + "x" * 43) for i in range(8)]
        self.assertEqual([reply.status for reply in answers], [401] * 6 + [429] * 2)
        self.assertLessEqual(int(answers[-1].headers["retry-after"]), 10)
        # Not even a good one: the answer would tell which it is. But from elsewhere.
        self.assertEqual(ask(self.url, "/sandboxes", "127.2.1.0", key=self.key).status, 429)
        self.assertEqual(ask(self.url, "/sandboxes", "127.2.1.1", key=self.key).status, 200)

    def test_invalid_capabilities(self):
        grant = self.deployment.negotiate("rate")
        path = f"/s/{grant['sandbox']['id']}/info"
        head, claims, mac = grant["token"].split(".")
        forged = f"{head}.{claims}.{mac[:-2]}{'AA' if mac[-2:] != 'AA' else 'BB'}"
        self.assertEqual(ask(self.node_url, path, "127.2.2.1", key=grant["token"]).status, 200)
        answers = [ask(self.node_url, path, "127.2.2.1", key=forged).status for _ in range(8)]
        self.assertEqual(answers, [401] * 6 + [429] * 2)
        self.assertEqual(ask(self.node_url, path, "127.2.2.1", key=grant["token"]).status, 429)
        self.assertEqual(ask(self.node_url, path, "127.2.2.2", key=grant["token"]).status, 200)
        # The negotiator takes capabilities too, and judges them on another thread.
        beat = "/threads/rate/sandbox/heartbeat"
        answers = [ask(self.url, beat, "127.2.2.3", method="POST", key=forged).status for _ in range(8)]
        self.assertEqual(answers, [401] * 6 + [429] * 2)
        # The data plane has no other limit unless it is set.
        answers = [ask(self.node_url, path, "127.2.2.4", key=grant["token"]).status for _ in range(4 * BURST)]
        self.assertEqual(set(answers), {200})

    def test_settings_that_are_wrong_are_refused(self):
        program = os.path.join(self.deployment.programs, "parley-negotiator")
        done = subprocess.run([program, "--state", self.deployment.folder + "/other", "--trusted-proxies", "10.0.0.1/8"],
                              capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 2)
        self.assertIn("trusted_proxies", done.stderr)


if __name__ == "__main__":
    unittest.main()
