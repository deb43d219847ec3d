"""The lifecycle of OpenSandbox clients over the wire: exact statuses, bodies and codes, which SDKs match; the life of a
sandbox made so; whose it is. What the SDKs make of it: tests/compat."""
import contextlib
import http.client
import json
import os
import platform
import re
import socket
import sys
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

TAIL = ["tail", "-f", "/dev/null"]
WISH = {"image": {"uri": "python:3.11"}, "entrypoint": TAIL, "resourceLimits": {"cpu": "1", "memory": "256Mi"}}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
GONE = "DOCKER::SANDBOX_NOT_FOUND"


def soon(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + seconds))


@needs_root
class Lifecycle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = os.path.join("/tmp", f"parley-osb-{os.getpid()}")
        os.makedirs(cls.shared, exist_ok=True)
        cls.deployment = Deployment(PARLEY_VOLUME_HOSTS=cls.shared, PARLEY_IMAGE_TEMPLATES="not-here*=no-such-template,*=base")
        made = cls.deployment.request("POST", "/keys", {"principal": "bob", "role": "user"}).json
        cls.bob = made["key"] if isinstance(made.get("key"), str) else made["api_key"]

    @classmethod
    def tearDownClass(cls):
        cls.deployment.close()
        os.rmdir(cls.shared)

    # ---- one request ----

    def ask(self, method, path, body=None, status=200, code=None, key=None, **headers):
        """The JSON of the reply, which must have that status, and that code if it is a refusal; None of an empty one."""
        sent = {"OPEN-SANDBOX-API-KEY": key or self.deployment.key, **headers}
        reply = self.deployment.request(method, path, body, token=None, headers=sent)
        self.assertEqual(reply.status, status, f"{method} {path}: {reply}")
        self.assertTrue(reply.headers["x-request-id"])
        self.headers = reply.headers
        if status >= 400:
            self.assertEqual(set(reply.json), {"code", "message"}, reply)
            self.assertGreater(len(reply.json["message"]), 5)
            if code:
                self.assertEqual(reply.json["code"], code)
        return reply.json if reply.body else None

    def make(self, key=None, **more):
        made = self.ask("POST", "/v1/sandboxes", {**WISH, **more}, 202, key=key)
        self.addCleanup(self.deployment.request, "DELETE", f"/v1/sandboxes/{made['id']}",
                        headers={"OPEN-SANDBOX-API-KEY": key or self.deployment.key}, token=None)
        return made

    def refuse(self, status, code, **more):
        body = {name: value for name, value in {**WISH, **more}.items() if value is not ...}
        return self.ask("POST", "/v1/sandboxes", body, status, code)

    # ---- one of all ----

    def test_create_says_what_a_client_needs(self):
        arch = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
        made = self.make(timeout=600, metadata={"team": "a"}, platform={"os": "linux", "arch": arch},
                         extensions={"opensandbox.extensions.x": "y"}, secureAccess=True)
        self.assertEqual(set(made), {"id", "status", "createdAt", "expiresAt", "entrypoint", "metadata", "platform"})
        self.assertEqual(made["status"]["state"], "Running")
        self.assertEqual((made["entrypoint"], made["metadata"]), (TAIL, {"team": "a"}))
        self.assertEqual(made["platform"], {"os": "linux", "arch": arch})
        for at in (made["createdAt"], made["expiresAt"], made["status"]["lastTransitionAt"]):
            self.assertRegex(at, TIME)
        self.assertEqual(self.headers["location"], f"/v1/sandboxes/{made['id']}")
        shown = self.ask("GET", f"/v1/sandboxes/{made['id']}")
        self.assertEqual(shown, {**made, "image": {"uri": "python:3.11"}})
        self.assertEqual(self.ask("GET", f"/sandboxes/{made['id']}"), shown)  # by its header it is below /v1

    def test_without_a_timeout_it_has_no_end(self):
        for more in ({}, {"timeout": None}):
            made = self.make(**more)
            self.assertNotIn("expiresAt", made)
            self.ask("POST", f"/v1/sandboxes/{made['id']}/renew-expiration", {"expiresAt": soon(600)}, 409,
                     "SANDBOX::INVALID_STATE")

    def test_what_cannot_be_had_is_refused(self):
        self.refuse(400, "SANDBOX::INVALID_PARAMETER", image=...)
        self.refuse(400, "SANDBOX::INVALID_PARAMETER", snapshotId="snp_" + "a" * 20)
        self.refuse(400, "DOCKER::INVALID_ENTRYPOINT", entrypoint=...)
        self.refuse(400, "SANDBOX::INVALID_PARAMETER", resourceLimits=...)
        self.refuse(400, "SANDBOX::INVALID_PARAMETER", resourceLimits={"gpu": "1"})
        self.refuse(400, "SANDBOX::INVALID_PARAMETER", resourceLimits={"memory": "1Mi"})  # the rules' bound
        self.refuse(400, "SANDBOX::INVALID_PARAMETER", timeout=59)
        self.refuse(400, "SANDBOX::INVALID_METADATA_LABEL", metadata={"opensandbox.io/x": "y"})
        self.refuse(400, "SANDBOX::API_NOT_SUPPORTED", credentialProxy={"enabled": True})
        self.refuse(501, "KUBERNETES::POOL_NOT_SUPPORTED", extensions={"poolRef": "p"})
        self.refuse(404, "SNAPSHOT::NOT_FOUND", image=..., snapshotId="snp_" + "a" * 20)
        self.ask("POST", "/v1/sandboxes", [], 400, "SANDBOX::INVALID_PARAMETER")
        refused = self.refuse(400, "SANDBOX::INVALID_PARAMETER", image={"uri": "not-here:1"})
        self.assertIn("no-such-template", refused["message"])

    def test_a_registry_s_password_is_kept_nowhere(self):
        secret = "hush-" + os.urandom(8).hex()
        made = self.make(image={"uri": "r.example/x", "auth": {"username": "u", "password": secret}})
        self.assertNotIn(secret, json.dumps(self.ask("GET", f"/v1/sandboxes/{made['id']}")))
        told = self.deployment.request("GET", "/audit?last=1000").body + self.deployment.logs().encode()
        self.assertNotIn(secret.encode(), told)
        with open(os.path.join(self.deployment.state, "negotiator", "ledger", "data.mdb"), "rb") as ledger:
            self.assertNotIn(secret.encode(), ledger.read())

    def test_the_key(self):
        path = "/v1/sandboxes"
        for headers, code in (({}, "MISSING_API_KEY"), ({"OPEN-SANDBOX-API-KEY": "pk_" + "x" * 40}, "INVALID_API_KEY"),
                              ({"Authorization": "Bearer nothing"}, "INVALID_API_KEY")):
            reply = self.deployment.request("GET", path, token=None, headers=headers)
            self.assertEqual((reply.status, reply.json["code"]), (401, code))
            self.assertTrue(reply.headers["x-request-id"])
        for headers in ({"X-API-Key": self.deployment.key}, {"Authorization": "Bearer " + self.deployment.key}):
            self.assertEqual(self.deployment.request("GET", path, token=None, headers=headers).status, 200)

    def test_request_ids_come_back(self):
        for path, status in (("/v1/sandboxes", 200), ("/v1/sandboxes/none", 404), ("/v1/nothing", 404)):
            self.ask("GET", path, status=status, **{"X-Request-ID": "client-7"})
            self.assertEqual(self.headers["x-request-id"], "client-7")

    def test_health_is_open(self):
        for path in ("/health", "/v1/health"):
            reply = self.deployment.request("GET", path, token=None)
            self.assertEqual((reply.status, reply.json), (200, {"status": "healthy"}))

    def test_what_is_not_served_says_so(self):
        self.ask("GET", "/v1/pools", status=501, code="KUBERNETES::POOL_NOT_SUPPORTED")
        self.ask("PUT", "/pools/a", {}, 501, "KUBERNETES::POOL_NOT_SUPPORTED")
        self.ask("POST", "/v1/metrics/events", {"eventType": "sandbox.create", "success": True}, 204)
        self.ask("GET", "/v1/nothing", status=404, code="GENERAL::NOT_FOUND")
        self.ask("PUT", "/v1/sandboxes", {}, 405, "GENERAL::METHOD_NOT_ALLOWED")

    # ---- a life ----

    def test_pause_and_resume_are_strict(self):
        path = f"/v1/sandboxes/{self.make()['id']}"
        self.ask("POST", path + "/resume", status=409, code="DOCKER::SANDBOX_NOT_PAUSED")
        self.assertIsNone(self.ask("POST", path + "/pause", status=202))
        self.assertEqual(self.headers["content-length"], "0")
        self.assertEqual(self.ask("GET", path)["status"]["state"], "Paused")
        self.ask("POST", path + "/pause", status=409, code="DOCKER::SANDBOX_NOT_RUNNING")
        self.assertIsNone(self.ask("POST", path + "/resume", {}, 202))
        self.assertEqual(self.ask("GET", path)["status"]["state"], "Running")

    def test_renewal(self):
        made = self.make(timeout=60)
        path = f"/v1/sandboxes/{made['id']}/renew-expiration"
        renewed = self.ask("POST", path, {"expiresAt": soon(7200)})
        self.assertEqual(set(renewed), {"expiresAt"})
        self.assertEqual(self.ask("GET", f"/v1/sandboxes/{made['id']}")["expiresAt"], renewed["expiresAt"])
        for end in (soon(-10), "tomorrow", None, 5):
            self.ask("POST", path, {"expiresAt": end}, 400, "DOCKER::INVALID_EXPIRATION")
        self.ask("POST", path, {}, 400, "DOCKER::INVALID_EXPIRATION")

    def test_metadata_is_merged(self):
        path = f"/v1/sandboxes/{self.make(metadata={'a': '1', 'b': '2'})['id']}"
        self.assertEqual(self.ask("PATCH", path + "/metadata", {"a": None, "c": "3", "not-there": None})["metadata"],
                         {"b": "2", "c": "3"})
        self.assertEqual(self.ask("PATCH", path + "/metadata", {})["metadata"], {"b": "2", "c": "3"})
        self.ask("PATCH", path + "/metadata", {"c": 4}, 400, "SANDBOX::INVALID_METADATA_LABEL")
        self.ask("PATCH", path + "/metadata", {"opensandbox.io/c": None}, 400, "SANDBOX::INVALID_METADATA_LABEL")
        self.assertEqual(self.ask("GET", path)["metadata"], {"b": "2", "c": "3"})

    def test_what_has_ended_is_gone_at_once(self):
        path = f"/v1/sandboxes/{self.make()['id']}"
        self.assertIsNone(self.ask("DELETE", path, status=204))
        self.ask("DELETE", path, status=404, code=GONE)
        self.ask("GET", path, status=404, code=GONE)
        for rest in ("/pause", "/resume", "/snapshots"):
            self.ask("POST", path + rest, {}, 404, GONE)
        self.ask("POST", path + "/renew-expiration", {"expiresAt": soon(600)}, 404, GONE)
        self.ask("PATCH", path + "/metadata", {}, 404, GONE)
        for rest in ("/endpoints/44772", "/diagnostics/logs", "/diagnostics/events"):
            self.ask("GET", path + rest, status=404, code=GONE)
        self.assertNotIn(path.rsplit("/", 1)[1], [one["id"] for one in self.ask("GET", "/v1/sandboxes?pageSize=200")["items"]])

    def test_a_client_that_leaves_leaves_no_sandbox(self):
        body = json.dumps({**WISH, "metadata": {"left": "alone"}}).encode()
        # Its process is started and stopped while the node cannot answer, so the client is gone before the sandbox is there.
        for pid in self.deployment.pids("parley-sandboxd"):
            os.kill(pid, 19)
        try:
            client = socket.create_connection(("127.0.0.1", self.deployment.port))
            client.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"OPEN-SANDBOX-API-KEY: %s\r\nContent-Length: %d\r\n\r\n%s" %
                           (self.deployment.key.encode(), len(body), body))
            self.wait(lambda: self.listed("left=alone"), "it is being made")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        finally:
            for pid in self.deployment.pids("parley-sandboxd"):
                os.kill(pid, 18)
        self.wait(lambda: not self.listed("left=alone"), "it goes again")

    def test_a_negotiator_that_dies_leaves_no_sandbox(self):
        """It would have no end, and nobody would know its id."""
        def create():
            with contextlib.suppress(http.client.HTTPException, OSError):
                self.deployment.request("POST", "/v1/sandboxes", {**WISH, "metadata": {"left": "untold"}}, token=None,
                                        headers={"OPEN-SANDBOX-API-KEY": self.deployment.key}, record=False)
        for pid in self.deployment.pids("parley-sandboxd"):
            os.kill(pid, 19)
        try:
            client = threading.Thread(target=create)
            client.start()
            self.wait(lambda: self.listed("left=untold"), "it is being made")
            self.deployment.kill("parley-negotiator")
            client.join()
        finally:
            for pid in self.deployment.pids("parley-sandboxd"):
                os.kill(pid, 18)
        self.deployment.up()
        self.deployment.wait_ready()
        self.wait(lambda: not self.listed("left=untold"), "it goes again")
        ended = self.deployment.request("GET", "/sandboxes?state=terminating,terminated&limit=200").json
        self.assertIn("nobody was told of it", json.dumps(ended))

    def listed(self, metadata):
        return self.ask("GET", "/v1/sandboxes?metadata=" + urllib.parse.quote(metadata, safe=""))["items"]

    def wait(self, holds, what, seconds=40):
        until = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.05)

    # ---- lists ----

    def test_lists(self):
        run = os.urandom(6).hex()
        made = [self.make(metadata={"run": run, "n": str(n % 2)})["id"] for n in range(3)]
        newest = list(reversed(made))
        query = f"/v1/sandboxes?metadata=run%3D{run}"
        self.assertEqual(self.ask("GET", query)["pagination"],
                         {"page": 1, "pageSize": 20, "totalItems": 3, "totalPages": 1, "hasNextPage": False})
        self.assertEqual([one["id"] for one in self.ask("GET", query)["items"]], newest)
        first = self.ask("GET", query + "&page=1&pageSize=2")
        self.assertEqual([one["id"] for one in first["items"]], newest[:2])
        self.assertEqual(first["pagination"],
                         {"page": 1, "pageSize": 2, "totalItems": 3, "totalPages": 2, "hasNextPage": True})
        self.assertEqual([one["id"] for one in self.ask("GET", query + "&page=2&pageSize=2")["items"]], newest[2:])
        self.assertEqual(self.ask("GET", query + "&page=9")["items"], [])
        self.assertEqual(len(self.ask("GET", f"/v1/sandboxes?metadata=run%3D{run}%26n%3D0")["items"]), 2)
        self.ask("POST", f"/v1/sandboxes/{made[1]}/pause", status=202)
        self.assertEqual([one["id"] for one in self.ask("GET", query + "&state=PAUSED")["items"]], [made[1]])
        self.assertEqual(len(self.ask("GET", query + "&state=running&state=paused")["items"]), 3)
        self.assertEqual(self.ask("GET", query + "&state=Failed")["items"], [])
        self.assertEqual(self.ask("GET", query, key=self.bob)["items"], [])

    def test_lists_that_cannot_be(self):
        for query in ("page=0", "page=x", "pageSize=0", "pageSize=201", "page=1&page=2&pageSize=-1", "metadata=a",
                      "metadata=%3Db", "metadata=a%3Db%26c"):
            self.ask("GET", "/v1/sandboxes?" + query, status=400, code="SANDBOX::INVALID_PARAMETER")
        self.ask("GET", "/v1/snapshots?pageSize=999", status=400, code="SANDBOX::INVALID_PARAMETER")

    # ---- endpoints ----

    def test_endpoints(self):
        made = self.make()["id"]
        path, node, own = f"/v1/sandboxes/{made}/endpoints", self.deployment.port + 1, self.deployment.port
        execd = self.ask("GET", path + "/44772?use_server_proxy=false")
        self.assertEqual(execd["endpoint"], f"127.0.0.1:{node}/sandboxes/{made}/port/44772")
        self.assertEqual(set(execd["headers"]), {"X-EXECD-ACCESS-TOKEN"})
        self.assertEqual(self.ask("GET", path + "/8080")["endpoint"], f"127.0.0.1:{node}/sandboxes/{made}/port/8080")
        self.assertEqual(self.ask("GET", path + "/8080?use_server_proxy=true")["endpoint"],
                         f"127.0.0.1:{own}/sandboxes/{made}/proxy/8080")
        egress = self.ask("GET", path + "/18080")
        self.assertEqual(egress["endpoint"], f"127.0.0.1:{own}/v1/sandboxes/{made}/port/18080")
        self.assertEqual(set(egress["headers"]), {"X-EXECD-ACCESS-TOKEN", "OPENSANDBOX-EGRESS-AUTH"})
        in_path = self.ask("GET", path + "/8080?capability_url=true")
        self.assertNotIn("headers", in_path)
        self.assertRegex(in_path["endpoint"], rf"^127\.0\.0\.1:{node}/c/[\w.-]+/port/8080$")

    def test_endpoints_that_cannot_be(self):
        path = f"/v1/sandboxes/{self.make()['id']}/endpoints"
        for port in ("0", "65536", "http", "-1", "08080"):
            self.ask("GET", f"{path}/{port}", status=400, code="DOCKER::INVALID_PORT")
        for query in ("expires=5", "expires=x", f"expires={int(time.time()) + 600}&use_server_proxy=true",
                      "use_server_proxy=maybe", "capability_url=true&use_server_proxy=true"):
            self.ask("GET", f"{path}/44772?{query}", status=400, code="SANDBOX::INVALID_PARAMETER")

    def test_an_endpoint_s_token_does_what_its_port_needs_and_no_more(self):
        made = self.make()["id"]
        path = f"/v1/sandboxes/{made}/endpoints"
        execd = self.ask("GET", path + "/44772")["headers"]["X-EXECD-ACCESS-TOKEN"]
        port = self.ask("GET", path + "/8080")["headers"]["X-EXECD-ACCESS-TOKEN"]
        command = f"{self.deployment.node_url}/s/{made}/exec"
        self.assertEqual(self.deployment.request("POST", command, {"cmd": "true", "stream": "none"}, token=execd).status, 200)
        self.assertEqual(self.deployment.request("POST", command, {"cmd": "true", "stream": "none"}, token=port).status, 403)
        ends = int(time.time()) + 3
        short = self.ask("GET", f"{path}/44772?expires={ends}")["headers"]["X-EXECD-ACCESS-TOKEN"]
        self.assertEqual(self.deployment.request("POST", command, {"cmd": "true", "stream": "none"}, token=short).status, 200)
        # ttl, plus what clocks may differ by
        self.wait(lambda: self.deployment.request("POST", command, {"cmd": "true", "stream": "none"}, token=short).status == 401,
                  "its token has ended", 90)

    # ---- snapshots, volumes ----

    def test_snapshots(self):
        made = self.make()
        path = f"/v1/sandboxes/{made['id']}/snapshots"
        name = "s" + os.urandom(4).hex()
        taken = self.ask("POST", path, {"name": name}, 202)
        self.assertEqual(self.headers["location"], f"/v1/snapshots/{taken['id']}")
        self.assertEqual(set(taken), {"id", "sandboxId", "name", "status", "createdAt"})
        self.assertEqual((taken["sandboxId"], taken["name"], taken["status"]["state"]), (made["id"], name, "Ready"))
        unnamed = self.ask("POST", path, status=202)
        self.ask("POST", path, {"name": name}, 409, "SNAPSHOT::INVALID_STATE")
        self.ask("POST", path, {"name": "Not One"}, 400)
        listed = self.ask("GET", f"/v1/snapshots?sandboxId={made['id']}&state=ready&state=Creating")
        self.assertEqual([one["id"] for one in listed["items"]], [unnamed["id"], taken["id"]])
        self.assertEqual(listed["pagination"]["totalItems"], 2)
        self.assertEqual([one["id"] for one in self.ask("GET", f"/v1/snapshots?name={name}")["items"]], [taken["id"]])
        self.assertEqual(self.ask("GET", f"/v1/snapshots?sandboxId={made['id']}&state=Failed")["items"], [])
        self.ask("GET", f"/v1/snapshots/{taken['id']}", status=404, code="SNAPSHOT::NOT_FOUND", key=self.bob)
        begun = self.make(image=None, entrypoint=None, snapshotId=taken["id"])
        self.assertEqual(begun["entrypoint"], TAIL)
        self.assertEqual(self.ask("GET", f"/v1/sandboxes/{begun['id']}")["snapshotId"], taken["id"])
        for one in (taken, unnamed):
            self.ask("DELETE", f"/v1/snapshots/{one['id']}", status=204)
            self.ask("DELETE", f"/v1/snapshots/{one['id']}", status=404, code="SNAPSHOT::NOT_FOUND")

    def test_volumes(self):
        name = "v" + os.urandom(4).hex()
        claim = {"name": "data", "mountPath": "/data", "pvc": {"claimName": name, "createIfNotExists": False}}
        self.refuse(404, "VOLUME::PVC_NOT_FOUND", volumes=[claim])  # it is not there, and not made
        made = self.make(volumes=[{**claim, "pvc": {"claimName": name}},
                                  {"name": "host", "mountPath": "/host", "host": {"path": self.shared}, "readOnly": True}])
        self.ask("DELETE", f"/v1/sandboxes/{made['id']}", status=204)
        self.make(volumes=[{**claim, "readOnly": True}])  # it outlived that one
        self.refuse(400, "VOLUME::HOST_PATH_NOT_ALLOWED",
                    volumes=[{"name": "h", "mountPath": "/h", "host": {"path": "/etc"}}])

    # ---- what the native protocol has of it ----

    def test_it_is_a_sandbox_as_any_other(self):
        made = self.make(entrypoint=["sleep", "1000"])["id"]
        native = self.deployment.request("GET", f"/sandboxes/{made}").json
        self.assertEqual((native["template"], native["origin"], native["entrypoint"]),
                         ("base", {"image": "python:3.11"}, ["sleep", "1000"]))
        self.assertIsNone(native["max_expires_at"])
        grant = self.deployment.negotiate("native", origin={"ticket": "7"}, volumes=[])
        shown = self.ask("GET", f"/v1/sandboxes/{grant['sandbox']['id']}")
        self.assertEqual((shown["image"], shown["entrypoint"]), ({"uri": "base"}, []))
        self.assertEqual(self.deployment.request("GET", f"/sandboxes/{shown['id']}").json["origin"], {"ticket": "7"})
        for names in ({"a": 1}, {"no blank": "x"}, {"a": "x" * 513}):
            self.assertEqual(self.deployment.negotiate("other", expect=None, origin=names)["error"]["code"], "INVALID_REQUEST")
        lacking = self.deployment.negotiate("other", expect=None, volumes=[{"name": "none", "path": "/n", "create": False}])
        self.assertEqual(lacking["error"]["code"], "NOT_FOUND")

    def test_snapshots_by_offset(self):
        made = self.make()["id"]
        taken = [self.ask("POST", f"/v1/sandboxes/{made}/snapshots", {}, 202)["id"] for _ in range(2)]
        page = self.deployment.request("GET", f"/snapshots?sandbox={made}&offset=1&limit=1").json
        self.assertEqual(([one["id"] for one in page["snapshots"]], page["offset"], page["total"], page["truncated"]),
                         (taken[:1], 1, 2, False))
        self.assertEqual(self.deployment.request("GET", f"/snapshots?offset=1&cursor={taken[0]}").status, 400)
        for one in taken:
            self.ask("DELETE", f"/v1/snapshots/{one}", status=204)

    # ---- diagnostics ----

    def test_diagnostics(self):
        made = self.make(entrypoint=["sh", "-c", "echo hello; printf '\\377x' >&2; exec sleep 1000"])["id"]
        path = f"/v1/sandboxes/{made}/diagnostics"
        self.wait(lambda: "hello" in self.ask("GET", path + "/logs?scope=container")["content"], "its entrypoint wrote")
        self.wait(lambda: "\ufffdx" in self.ask("GET", path + "/logs?scope=all")["content"], "and on stderr")
        told = self.ask("GET", path + "/logs?scope=process")
        self.assertEqual(told, {"sandboxId": made, "kind": "logs", "scope": "process", "delivery": "inline",
                                "contentType": "text/plain; charset=utf-8", "content": "hello\n\ufffdx\n",
                                "contentLength": 11, "truncated": False})
        self.assertTrue(self.ask("GET", path + "/logs?scope=network")["warnings"])
        self.assertEqual(self.ask("GET", path + "/events?scope=all")["kind"], "events")
        self.wait(lambda: "sandboxd exec ok id=entrypoint" in self.ask("GET", path + "/events?scope=process")["content"],
                  "its node has told")
        self.ask("GET", path + "/logs?scope=nothing", status=400, code="SANDBOX::INVALID_PARAMETER")
        self.ask("GET", path + "/inspect", status=404, code="GENERAL::NOT_FOUND")
        legacy = self.deployment.request("GET", path + "/logs?tail=1")
        self.assertEqual((legacy.status, legacy.headers["deprecation"]), (200, "true"))
        self.assertEqual((legacy.headers["content-type"], legacy.body), ("text/plain; charset=utf-8", "\ufffdx\n".encode()))
        native = self.deployment.request("GET", f"/sandboxes/{made}/logs?tail_bytes=3").json
        self.assertEqual(native, {"process": "entrypoint", "logs": {"running": True, "exit_code": None, "stdout": "lo\n",
                                                                    "stderr": "\ufffdx", "truncated": True}})

    def test_a_look_at_logs_wakes_nothing(self):
        path = f"/v1/sandboxes/{self.make()['id']}"
        self.ask("POST", path + "/pause", status=202)
        self.ask("GET", path + "/diagnostics/logs?scope=container")
        self.assertEqual(self.ask("GET", path)["status"]["state"], "Paused")

    # ---- whose ----

    def test_another_s_is_not_there(self):
        path = f"/v1/sandboxes/{self.make()['id']}"
        for method, rest, body in (("GET", "", None), ("DELETE", "", None), ("PATCH", "/metadata", {}), ("POST", "/pause", {}),
                                   ("POST", "/resume", {}), ("POST", "/renew-expiration", {"expiresAt": soon(600)}),
                                   ("GET", "/endpoints/44772", None), ("POST", "/snapshots", {}),
                                   ("GET", "/diagnostics/logs?scope=all", None), ("GET", "/diagnostics/events", None)):
            self.ask(method, path + rest, body, 404, GONE, key=self.bob)
        self.assertEqual(self.ask("GET", path)["status"]["state"], "Running")


if __name__ == "__main__":
    unittest.main()
