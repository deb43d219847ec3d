"""What the programs say on the wire against specs/: the documents are sound, the routes are exactly theirs, and every reply
that the other tests saw (build/replies.jsonl, written by parley_testing) keeps to them. Runs last, see tests/runner.py.
"""
import collections
import copy
import glob
import json
import os
import re
import subprocess
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
import openapi  # noqa: E402
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN, REPLIES, ROOT  # noqa: E402
from parley_testing.opensandbox import REPLIES as COMPAT_REPLIES  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402

PLANES = ("negotiator", "sandboxd")
DOCUMENTS = {plane: openapi.Document(os.path.join(ROOT, "specs", f"openapi-{plane}.yaml")) for plane in PLANES}
# What the planes serve for clients of others, in the words of those.
FOREIGN = {plane: openapi.Foreign(os.path.join(ROOT, "specs", f"openapi-opensandbox-{name}.yaml"))
           for plane, name in (("negotiator", "lifecycle"), ("sandboxd", "execd"))}
FOREIGN_PATHS = {"negotiator": re.compile(r"/v1(/.*)?|/health|/sandboxes/[^/]+/proxy/.*"),
                 "sandboxd": re.compile(r"/(s|c|sandboxes)/[^/]+/port/.*")}
APPS = re.compile(r"/(s|c|sandboxes)/[^/]+/port/(?!44772/)\d+(/.*)?|(/v1)?/sandboxes/[^/]+/proxy/.*|.*/44772/proxy/.*")
FAULTS_SHOWN = 25
# "POST /s/{sandbox}/exec  carriers=bearer,path  needs=process"
ROUTE = re.compile(r"(?P<method>[A-Z*]+) (?P<path>/\S*)  carriers=(?P<carriers>\S+)  needs=(?P<needs>\S+)")
# {"POST", "/s/{sandbox}/exec", ...
ROW = re.compile(r'\{\s*"([A-Z]+|\*)",\s*"(/[^"]*)"')
# {"mode", read_mode}, {"cwd", OF_EXEC | OF_FRAME, parse_cwd}; not what only a frame has
FIELD = re.compile(r'\{"(\w+)",\s*(?:OF_EXEC[ |A-Z_]*,\s*)?(?:read|parse)_\w+(?:, (?:true|false))?\}')
# [ERROR_INVALID] = {"INVALID_REQUEST", 400, false},
CODE = re.compile(r'\[ERROR_(\w+)\] = \{"(\w+)", (\d+), (true|false)\}')


def unnamed(path):
    """A path without its parameters' names, which code and document may choose apart."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def read_routes(plane):
    """{(method, path): row} as the program prints its table."""
    program = os.path.join(BIN, f"parley-{plane}")
    if not os.path.exists(program):
        raise unittest.SkipTest(f"{program} is not built")
    done = subprocess.run([program, "--routes"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=30)
    if done.returncode != 0:
        raise AssertionError(f"{program} --routes: exit {done.returncode}: {done.stderr}")
    rows = {}
    for line in done.stdout.splitlines():
        row = ROUTE.fullmatch(line)
        if row is None:
            raise AssertionError(f"{program} --routes: not a route: {line!r}")
        rows[row["method"], unnamed(row["path"])] = row
    return rows


def read_replies():
    """All that were recorded; the last line may be half when a run was ended in the middle."""
    if not os.path.exists(REPLIES) or os.path.getsize(REPLIES) == 0:
        raise unittest.SkipTest(f"{REPLIES} is missing or empty: no scenario ran before (they need root)")
    with open(REPLIES, encoding="utf-8") as kept:
        lines = kept.read().split("\n")
    lines.pop()
    replies = [json.loads(line) for line in lines] + read_foreign_replies()
    for reply in replies:
        if reply["plane"] == "sandboxd":  # an alias
            reply["path"] = re.sub(r"^/sandboxes/", "/s/", reply["path"])
    return replies


def read_foreign_replies():
    """What clients of others got (tests/compat), as parley_testing would have recorded it."""
    if not os.path.exists(COMPAT_REPLIES):
        return []
    replies = []
    with open(COMPAT_REPLIES, encoding="utf-8") as kept:
        for row in map(json.loads, kept):
            parts = urllib.parse.urlsplit(row["url"])
            plane = "sandboxd" if parts.path.startswith(("/s/", "/c/", "/sandboxes/")) and "/proxy/" not in parts.path else "negotiator"
            # What the SDK asks of the negotiator it asks of /v1; only a header leads there without.
            path = "/v1" + parts.path if parts.path.startswith("/sandboxes") and plane == "negotiator" else parts.path
            replies.append(dict(row, plane=plane, path=path, type=row["headers"].get("content-type", ""),
                                body=row["body"] or "", cut=row["body"] is None))
    return replies


def documents_of(plane):
    return [DOCUMENTS[plane], FOREIGN[plane]]


def document_of(reply):
    """The document that speaks of the reply; None for one that a program of a sandbox gave."""
    if APPS.fullmatch(reply["path"]):
        return None
    return (FOREIGN if FOREIGN_PATHS[reply["plane"]].fullmatch(reply["path"]) else DOCUMENTS)[reply["plane"]]


class Documents(unittest.TestCase):
    def test_they_are_sound(self):
        for document in [document for plane in PLANES for document in documents_of(plane)]:
            with self.subTest(document=document.root["info"]["title"]):
                self.assertEqual(document.faults(), [])

    def test_what_both_planes_share_is_one(self):
        one, other = (DOCUMENTS[plane].root["components"] for plane in PLANES)
        for kind in ("schemas", "headers"):
            for name in set(one[kind]) & set(other[kind]) - {"Health"}:
                self.assertEqual(one[kind][name], other[kind][name], f"{kind}/{name}")

    def test_the_codes_are_those_of_the_program(self):
        with open(os.path.join(ROOT, "shared", "base", "error.c"), encoding="utf-8") as source:
            rows = [row for row in CODE.findall(source.read()) if row[0] != "NONE"]
        codes = DOCUMENTS["negotiator"].codes
        self.assertEqual([row[1] for row in rows], codes["enum"])
        for _, code, status, retryable in rows:
            self.assertIn(int(status), codes["x-status"][code], code)
            self.assertEqual(retryable == "true", code in codes["x-retryable"], code)

    def test_the_fields_of_requests_are_those_of_the_programs(self):
        for plane, schema, source in (("negotiator", "NegotiateRequest", "negotiator/dialects/wish.c"),
                                      ("sandboxd", "ExecRequest", "sandboxd/dialects/native/exec_request.c")):
            document = DOCUMENTS[plane]
            written = set()
            for name, value in document.root["components"]["schemas"][schema]["properties"].items():
                written |= {name} | set(document.resolve(value).get("properties", {}))
            with open(os.path.join(ROOT, source), encoding="utf-8") as text:
                read = set(FIELD.findall(text.read()))
            # The fields of actor and of network are read elsewhere, not by a table.
            self.assertEqual(read, written - {"type", "id", "egress", "allow", "deny"} | read & {"id"}, source)


@needs_root
class EveryOperation(unittest.TestCase):
    """Meets each operation at least once, and the refusals that the other tests have no reason to meet; what comes back
    is judged with all other replies below (classes run in the order of their names)."""

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("contract", capability_url=True, actor={"type": "agent", "id": "a-1"})
        cls.bases = [cls.grant["endpoints"]["http"], cls.grant["endpoints"]["capability"].rstrip("/")]

    def ask(self, method, path, body=None, base=0, **more):
        """On the sandbox; base 1 has the token in the path."""
        return self.deployment.request(method, self.bases[base] + path, body,
                                       token=None if base else self.grant["token"], **more)

    def test_the_control_plane(self):
        ask = self.deployment.request
        sandbox = self.deployment.negotiate("contract-2", metadata={"k": "v"}, sandbox="no-such")["sandbox"]["id"]
        for method, path, status in (("GET", "/threads/contract-2/sandbox", 200), ("HEAD", "/sandboxes", 200),
                                     ("GET", "/sandboxes?limit=1", 200), ("GET", "/sandboxes?state=all", 200),
                                     ("GET", "/sandboxes?limit=0", 400), ("GET", f"/sandboxes/{sandbox}", 200),
                                     ("GET", "/sandboxes/sbx_none", 404), ("DELETE", "/threads/contract-2/sandbox", 204),
                                     ("DELETE", "/threads/contract-2/sandbox", 404), ("DELETE", "/sandboxes/sbx_no", 404),
                                     ("PATCH", "/sandboxes", 405), ("GET", "/nothing", 404), ("GET", "/healthz", 200),
                                     ("GET", "/readyz", 200), ("GET", "/metrics", 200), ("GET", "/" + "x" * 70000, 431)):
            self.assertEqual(ask(method, path).status, status, (method, path[:60]))
        self.assertEqual(ask("GET", "/sandboxes", b"{}").status, 413)
        self.assertEqual(ask("GET", "/sandboxes", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"], "mine-1")
        again = self.deployment.negotiate("contract-3")["sandbox"]["id"]
        self.assertEqual(ask("DELETE", f"/sandboxes/{again}").status, 204)

    def test_the_data_plane(self):
        for base in (0, 1):
            name = f"all-{base}"
            started = {"cmd": "read x; echo $x; read y", "id": name, "stdin_open": True, "detach": True, "timeout": 60}
            for method, path, body, status in (("GET", "/info", None, 200), ("POST", "/exec", started, 201),
                                               ("GET", "/processes", None, 200), ("GET", f"/processes/{name}", None, 200),
                                               ("POST", f"/processes/{name}/stdin", b"in\n", 200),
                                               ("GET", f"/processes/{name}/output", None, 200),
                                               ("GET", f"/processes/{name}/output?stdout_offset=99", None, 416),
                                               ("POST", f"/processes/{name}/stdin?eof=1", b"", 200),
                                               ("GET", f"/processes/{name}/output?follow=1", None, 200),
                                               ("POST", f"/processes/{name}/stdin", b"late", 409),
                                               ("POST", f"/processes/{name}/signal", {"signal": "TERM"}, 409),
                                               ("GET", f"/processes/{name}", None, 200),
                                               ("DELETE", f"/processes/{name}", None, 204),
                                               ("GET", f"/processes/{name}/output?raw=stdout", None, 200),
                                               ("GET", f"/processes/{name}/output?raw=both", None, 400),
                                               ("POST", f"/processes/{name}/resize", {"cols": 9, "rows": 9}, 409),
                                               ("GET", "/terminals", None, 200), ("GET", "/ws", None, 426),
                                               ("GET", "/tunnels/3999", None, 426), ("GET", "/ports", None, 200),
                                               ("GET", "/tunnels/03999", None, 400),
                                               ("POST", "/processes", None, 405), ("GET", "/nothing", None, 404),
                                               ("POST", f"/processes/{name}/signal", b"x" * 5000, 413)):
                self.assertEqual(self.ask(method, path, body, base).status, status, (method, path))
            self.assertEqual(self.ask("POST", "/exec", {"cmd": "exec sleep 60", "id": f"sleep-{base}", "detach": True},
                                      base).status, 201)
            for signal in ("TERM", "SIGKILL", 9):
                reply = self.ask("POST", f"/processes/sleep-{base}/signal", {"signal": signal}, base)
                self.assertIn(reply.status, (204, 409), signal)
            large = {"code": "mkdir artifacts; head -c 2000000 /dev/zero > artifacts/x", "language": "bash"}
            reply = self.ask("POST", "/execute", large, base)
            self.assertEqual(reply.status, 200)
            for status in (200, 410):
                url = reply.json["artifacts"]["x"]["url"]
                self.assertEqual(self.deployment.request("GET", url, token=None).status, status)
            sse = self.ask("GET", f"/processes/{name}/output", base=base, headers={"Accept": "text/event-stream"})
            self.assertTrue(sse.headers["content-type"].startswith("text/event-stream"), sse.headers)
        for path in ("/healthz", "/readyz", "/metrics"):
            self.assertEqual(self.deployment.request("GET", self.deployment.node_url + path, token=None).status, 200)

    def meet(self, operation, query="", grant=None, body=None, **more):
        """The operation on what is not there, in the sandbox of the grant."""
        grant = grant or self.grant
        path = operation.path.replace("{process_id}", "none").replace("{kernel_id}", "none").replace("{path}", "workspace/none").replace("{execution_id}", "none").replace("{port}", "3999")
        url = self.deployment.node_url + path.replace("{sandbox_id}", grant["sandbox"]["id"]) + query
        return self.deployment.request(operation.method, url, body, **dict({"token": grant["token"]}, **more))

    def of_sandboxes(self):
        return [operation for operation in DOCUMENTS["sandboxd"].operations
                if operation.path.startswith("/s/{sandbox_id}/")]

    def test_each_operation_refuses_as_its_document_says(self):
        ended = self.deployment.negotiate("contract-ended")
        self.assertEqual(self.deployment.request("DELETE", "/threads/contract-ended/sandbox").status, 204)
        until = time.monotonic() + 20  # the node is told after the answer
        while self.deployment.request("GET", ended["endpoints"]["http"] + "/info", token=ended["token"]).status != 410:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        narrowed = link(self.grant["token"], compact({"scope": ""}))
        for operation in self.of_sandboxes():
            content = operation.item.get("requestBody", {}).get("content", {None: None})
            body = bodies_of(next(iter(content.values())))[0]
            body = body.encode() if isinstance(body, str) else body
            ways = {400: dict(query="?a=1&a=2"), 401: dict(token="no-token"), 410: dict(grant=ended),
                    413: dict(body=None, headers={"Content-Length": str(1 << 40)})}
            if operation.item["security"][0]["capability"]:
                ways[403] = dict(token=narrowed)
            if "{process_id}" in operation.path or "{kernel_id}" in operation.path or operation.name in ("artifact", "readFile", "deleteFile", "packFolder", "watchFolder"):
                ways[404] = dict(body=body)
            for status, way in ways.items():
                with self.subTest(operation=operation.name, status=status):
                    self.assertEqual(self.meet(operation, **dict({"body": body}, **way)).status, status)
                    self.assertIn(str(status), operation.item["responses"])
            self.assertEqual(403 in ways, "403" in operation.item["responses"], operation)

    def test_no_parameter_is_ignored(self):
        for operation in self.of_sandboxes():
            if operation.name not in ("openSocket", "openTunnel"):  # which need a WebSocket to get so far
                for query in ("?surprise=1", "?token=x"):
                    body = b"{}" if "requestBody" in operation.item else None
                    self.assertEqual(self.meet(operation, query, body=body).status, 400, (operation, query))

    def agree(self, plane, schema, body, reply):
        """A body that the schema allows is not called malformed, any other is."""
        document = DOCUMENTS[plane]
        try:
            document.check({"$ref": f"#/components/schemas/{schema}"}, body, schema)
            allowed = True
        except openapi.Broken:
            allowed = False
        with self.subTest(body=str(body)[:200]):
            self.assertEqual(reply.status != 400, allowed, reply)

    def test_exec_takes_what_its_schema_allows(self):
        for body in ({"argv": ["true"]}, {}, {"cmd": "true", "argv": ["true"]}, {"cmd": ""}, {"cmd": 1}, {"argv": []},
                     {"argv": [""]}, {"argv": ["true", ""]}, {"argv": ["true", 1]}, {"argv": "true"}):
            self.agree("sandboxd", "ExecRequest", body, self.ask("POST", "/exec", dict(body, stream="none")))
        for more in ({"cwd": "/tmp"}, {"cwd": "tmp"}, {"cwd": ""}, {"cwd": None}, {"cwd": "/" + "x" * 4095},
                     {"env": {"A_1": "x"}}, {"env": {"1A": "x"}}, {"env": {"A-B": "x"}}, {"env": {"A": 1}}, {"env": []},
                     {"env": {"X" * 257: ""}}, {"timeout": 0.5}, {"timeout": 0}, {"timeout": -1}, {"timeout": 86400},
                     {"timeout": 86401}, {"timeout": "5"}, {"stdin": "x"}, {"stdin": None}, {"stdin": 1},
                     {"stdin_open": False}, {"stdin_open": "yes"}, {"id": "a.b_c-D"}, {"id": "../x"}, {"id": "y" * 65},
                     {"id": ""}, {"detach": True}, {"detach": 1}, {"stream": "none"}, {"stream": "xml"}, {"stream": None},
                     {"tty": True}, {"tty": 1}, {"tty": True, "cols": 1000}, {"tty": True, "rows": 0}, {"cols": 80},
                     {"tty": False, "rows": 1}, {"user": "root"}, {"surprise": 1}):
            body = dict({"cmd": "true"}, **more)
            self.agree("sandboxd", "ExecRequest", body, self.ask("POST", "/exec", body))

    def test_execute_takes_what_its_schema_allows(self):
        for body in ({}, {"code": "1"}, {"language": "python"}, {"code": 1}, {"code": None}):
            self.agree("sandboxd", "ExecuteRequest", body, self.ask("POST", "/execute", body))
        for more in ({"files": {}}, {"files": None}, {"files": []}, {"files": {"a": "b"}}, {"files": {"a": 1}}, {"files": {"../a": "b"}},
                     {"environment": {"A": "b"}}, {"environment": {"A-": "b"}}, {"environment": {"A": 1}}, {"environment": None},
                     {"arguments": ["a"]}, {"arguments": [1]}, {"arguments": "a"}, {"arguments": None}, {"timeout_s": None},
                     {"timeout_s": 0.5}, {"timeout_s": 0}, {"timeout_s": -1}, {"timeout_s": 86400}, {"timeout_s": 86401},
                     {"timeout_s": "1"}, {"language": "cobol"}, {"language": ""}, {"surprise": 1}):
            body = dict({"code": "true", "language": "bash"}, **more)
            self.agree("sandboxd", "ExecuteRequest", body, self.ask("POST", "/execute", body))

    def test_signal_takes_what_its_schema_allows(self):
        for body in ({"signal": "CONT"}, {"signal": "SIGCONT"}, {"signal": "18"}, {"signal": 18}, {"signal": 0},
                     {"signal": 65}, {"signal": -1}, {"signal": 1.5}, {"signal": ""}, {"signal": None}, {"signal": "A B"},
                     {}, {"signal": 18, "surprise": 1}):
            self.ask("POST", "/exec", {"cmd": "exec sleep 60", "id": "signals", "detach": True})
            self.agree("sandboxd", "SignalRequest", body, self.ask("POST", "/processes/signals/signal", body))

    def test_resize_takes_what_its_schema_allows(self):
        self.ask("POST", "/exec", {"cmd": "exec sleep 60", "id": "sizes", "tty": True, "detach": True})
        for body in ({"cols": 1, "rows": 1}, {"cols": 1000, "rows": 1000}, {"cols": 0, "rows": 1}, {"cols": 1, "rows": 1001},
                     {"cols": 1}, {"rows": 1}, {}, {"cols": "1", "rows": 1}, {"cols": 1.5, "rows": 1},
                     {"cols": 1, "rows": 1, "surprise": 1}):
            self.agree("sandboxd", "ResizeRequest", body, self.ask("POST", "/processes/sizes/resize", body))
        self.ask("DELETE", "/processes/sizes")

    def test_negotiate_takes_what_its_schema_allows(self):
        for body in ({}, {"mode": "attach_only"}, {"mode": "x"}, {"mode": 1}, {"sandbox": "auto"}, {"sandbox": ""},
                     {"sandbox": "a b"}, {"sandbox_id": "x" * 64}, {"sandbox": "no-such"}, {"hint_policy": "require"},
                     {"hint_policy": "maybe"}, {"scopes": []}, {"scopes": ["process", "fs:ro"]}, {"scopes": ["fs:ro@/a"]}, {"scopes": "process"},
                     {"scopes": [1]}, {"scopes": ["a b"]}, {"scopes": [""]}, {"scopes": ["port"] * 17}, {"ttl": 60},
                     {"ttl": 59}, {"ttl": 3601}, {"ttl": 60.5}, {"ttl": "60"}, {"idle_timeout": 1}, {"idle_timeout": 0},
                     {"idle_timeout": 3153600001}, {"idle_timeout": None}, {"max_lifetime": 86401}, {"max_lifetime": None},
                     {"max_lifetime": 3153600001}, {"max_lifetime": -1}, {"max_lifetime": "1"}, {"long": True}, {"long": 1},
                     {"expires_at": "2030-01-01T00:00:00Z"}, {"expires_at": 5}, {"expires_at": "soon"}, {"template": "base"},
                     {"template": ""}, {"template": "a/b"}, {"isolation": "auto"}, {"isolation": "x" * 64},
                     {"resources": {}}, {"resources": {"cpu": 0.05}}, {"resources": {"cpu": 0.04}},
                     {"resources": {"cpu": 1001}}, {"resources": {"memory_mb": 16}}, {"resources": {"memory_mb": 15}},
                     {"resources": {"memory_mb": 16.5}}, {"resources": {"disk_mb": 0}}, {"resources": {"pids": 15}},
                     {"resources": {"pids": 1000001}}, {"resources": {"gpu": 1}}, {"resources": 1},
                     {"network": {"egress": "none"}}, {"network": {}}, {"network": {"egress": "public"}},
                     {"network": {"x": 1}}, {"network": {"egress": "allow"}},
                     {"network": {"egress": "allow", "allow": ["pypi.org", "*.x.org:8080"]}},
                     {"network": {"egress": "allow", "allow": ["203.0.113.0/24:53/udp"]}},
                     {"network": {"egress": "public", "allow": ["pypi.org"]}}, {"network": {"egress": "allow", "allow": []}},
                     {"network": {"egress": "allow", "allow": ["a b"]}}, {"ports": []}, {"ports": [80]}, {"ports": [0]},
                     {"ports": ["80"]}, {"ports": [65536]}, {"ports": list(range(1, 18))}, {"volumes": []}, {"volumes": [{}]},
                     {"volumes": [{"path": "/x"}]}, {"volumes": [{"name": "a", "host": "/b", "path": "/x"}]},
                     {"volumes": [{"name": "a", "path": "x"}]}, {"volumes": [{"name": "A", "path": "/x"}]},
                     {"volumes": [{"name": "a", "path": "/x", "size_mb": 0}]}, {"volumes": {}},
                     {"volumes": [{"name": "a", "path": "/x", "read_only": "yes"}]}, {"entrypoint": ["true"]},
                     {"entrypoint": []}, {"entrypoint": [""]}, {"entrypoint": ["x", 1]}, {"entrypoint": "x"},
                     {"template": "snapshot:no-such"}, {"template": "snapshot:"}, {"template": "snapshot:../x"},
                     {"resources": {"open_files": 15}}, {"resources": {"open_files": 16}},
                     {"resources": {"processes": 1001}}, {"resources": {"output_mb": 1}}, {"resources": {"output_mb": 0}},
                     {"on_idle": "stop"}, {"on_idle": "pause"}, {"on_idle": "sleep"}, {"env": {"A": "b"}}, {"env": {"1": "b"}}, {"env": {"A": 1}},
                     {"env": {"A" * 65: "b"}}, {"env": {f"V{n}": "" for n in range(65)}}, {"name": "a-b"}, {"name": "-a"},
                     {"name": "A"}, {"name": "a" * 64}, {"metadata": {"any thing": "b"}}, {"metadata": {"a": 1}},
                     {"metadata": {"a" * 65: ""}}, {"metadata": {"a" * 318: ""}}, {"metadata": {"a": "b" * 513}}, {"metadata": {}},
                     {"metadata": {f"k{n}": "" for n in range(33)}}, {"actor": {"type": "human"}}, {"actor": {}},
                     {"actor": {"type": "agent"}}, {"actor": {"type": "agent", "id": "a@b:c"}},
                     {"actor": {"type": "agent", "id": "a b"}}, {"actor": {"type": "human", "x": 1}}, {"actor": "human"},
                     {"wait": 0}, {"wait": 301}, {"wait": -1}, {"capability_url": False}, {"capability_url": "yes"},
                     {"surprise": 1}):
            reply = self.deployment.request("POST", "/threads/contract/sandbox", body)
            self.agree("negotiator", "NegotiateRequest", body, reply)


class Routes(unittest.TestCase):
    def test_the_tables_are_exactly_the_documents(self):
        for plane in PLANES:
            with self.subTest(plane=plane):
                # What is served below /c/{token} follows from the carrier "path" of a row below /s/{sandbox}.
                rows = read_routes(plane)
                served = set(rows) | {(method, path.replace("/s/{}", "/c/{}", 1)) for (method, path), row in rows.items()
                                      if "path" in row["carriers"].split(",")}
                written = set()
                for document in documents_of(plane):
                    written |= {(operation.method, unnamed(operation.path)) for operation in document.operations}
                    written |= {("*", unnamed(path)) for path in document.passing}
                self.assertEqual(served - written, set(), "served, but not in the document")
                self.assertEqual(written - served, set(), "in the document, but not served")

    def test_what_they_need_is_what_the_documents_say(self):
        for plane in PLANES:
            rows = read_routes(plane)
            for operation in [operation for document in documents_of(plane) for operation in document.operations]:
                row = rows.get((operation.method, unnamed(operation.path)))
                if row is None:
                    continue  # below /c/{token}: the same operation, the same row
                with self.subTest(operation=str(operation)):
                    needed = [scopes for way in operation.item["security"] for scopes in way.values()]
                    wanted = [] if row["needs"] == "any" else [row["needs"]]
                    if row["needs"] == "-":
                        self.assertEqual(needed, [])
                    else:
                        self.assertTrue(needed)
                        self.assertTrue(all(scopes == wanted for scopes in needed), needed)

    def test_no_route_stands_outside_the_table(self):
        for plane in PLANES:
            rows = set(read_routes(plane))
            for path in glob.glob(os.path.join(ROOT, plane, "**", "*.c"), recursive=True):
                with open(path, encoding="utf-8") as source:
                    for method, route in ROW.findall(source.read()):
                        self.assertIn((method, unnamed(route)), rows, os.path.relpath(path, ROOT))


class Replies(unittest.TestCase):
    def test_every_reply_keeps_to_its_operation(self):
        seen, strays, faults = collections.Counter(), 0, collections.Counter()
        for reply in read_replies():
            document = document_of(reply)
            if document is None:
                continue
            try:
                operation = document.judge(reply)
            except openapi.Broken as fault:
                faults[f"{reply['plane']}: {fault}"] += 1
                continue
            if operation is None:
                strays += 1
            else:
                seen[reply["plane"], operation.name, reply["status"]] += 1
        print(f"contract: {sum(seen.values())} replies of {len(seen)} (operation, status) pairs, {strays} of no operation")
        for (plane, name, status), count in sorted(seen.items()):
            print(f"    {plane:10} {name:22} {status} x {count}")
        told = [f"{count} x {fault}" for fault, count in faults.most_common(FAULTS_SHOWN)]
        self.assertEqual(told, [], f"{len(faults)} kinds of broken replies")

    def test_every_operation_was_seen_to_succeed(self):
        seen = set()
        for reply in read_replies():
            document = document_of(reply)
            operation = document and document.find(reply["method"], reply["path"])
            if operation and (200 <= reply["status"] < 300 or reply["status"] == 101):
                seen.add((document, operation.name))
        missing = [f"{plane} {operation.name}" for plane in PLANES for document in documents_of(plane)
                   for operation in document.operations
                   if (document, operation.name) not in seen and not operation.item.get("x-sealed")
                   and any(status.startswith(("101", "2")) for status in operation.item["responses"])]
        self.assertEqual(sorted(set(missing)), [], "no test saw these succeed; were all of scenario and faults run?")


def examples(plane):
    """The replies that the document shows, as parley_testing would have recorded them."""
    document = DOCUMENTS[plane]
    for operation in document.operations:
        for status, response in operation.item["responses"].items():
            response = document.resolve(response)
            headers = {name.lower(): str(document.resolve(header)["example"])
                       for name, header in response.get("headers", {}).items()}
            path = re.sub(r"\{[^}]*\}", "x", operation.path)
            for kind, media in response.get("content", {None: None}).items():
                for body in bodies_of(media):
                    body = body if isinstance(body, str) else json.dumps(body)
                    yield {"plane": plane, "method": operation.method, "path": path, "query": "",
                           "status": int(status), "type": kind or "", "body": body, "cut": False,
                           "headers": dict(headers, **{"content-type": kind} if kind else {})}


def bodies_of(media):
    """The example, or each of the `examples`, of one media type; "" where there is no body."""
    if media is None:
        return [""]
    if "examples" in media:
        return [shown["value"] for shown in media["examples"].values()]
    return [media["example"]]


class TheCheckCanFail(unittest.TestCase):
    """Each example of the documents is a good reply; changed in one place it is refused."""

    def judge(self, reply):
        return DOCUMENTS[reply["plane"]].judge(reply)

    def refused(self, reply, why, **changed):
        reply = dict(copy.deepcopy(reply), **changed)
        with self.assertRaisesRegex(openapi.Broken, why):
            self.judge(reply)

    def example(self, plane, name, status, kind="application/json"):
        document = DOCUMENTS[plane]
        for reply in examples(plane):
            if reply["status"] == status and reply["type"] == kind and \
                    document.find(reply["method"], reply["path"]).name == name:
                return reply
        raise AssertionError(f"no example of {name} {status} {kind}")

    def test_examples_are_good_replies(self):
        for plane in PLANES:
            for reply in examples(plane):
                self.assertIsNotNone(self.judge(reply))

    def test_any_reply(self):
        for plane in PLANES:
            for reply in examples(plane):
                with self.subTest(reply=f"{reply['method']} {reply['path']} {reply['status']}"):
                    self.refused(reply, "not in the document|no operation", status=299)
                    self.refused(reply, "X-Request-ID is missing", headers={})
                    if reply["body"]:
                        self.refused(reply, "content type", type="text/html")
                    else:
                        self.refused(reply, "a body where there is none", body="{}")

    def test_every_object(self):
        for plane in PLANES:
            for reply in examples(plane):
                if reply["type"] == "application/json":
                    self.mutate_object(reply)

    def mutate_object(self, reply):
        good = json.loads(reply["body"])
        self.refused(reply, "no JSON", body=reply["body"][:-1])
        self.refused(reply, "", body=json.dumps(dict(good, surprise=1)))
        self.refused(reply, "", body="[]")
        for name, value in good.items():
            other = 3.5 if isinstance(value, (str, list, dict, bool, type(None))) else "text"
            self.refused(reply, "", body=json.dumps(dict(good, **{name: other})))

    def test_errors(self):
        reply = self.example("negotiator", "negotiate", 400)
        good = json.loads(reply["body"])["error"]
        for changed, why in (({"code": "OOPS"}, "OOPS"), ({"code": "GONE"}, "does not come with status 400"),
                             ({"retryable": True}, "retryable"), ({"request_id": "req_other"}, "X-Request-ID"),
                             ({"message": ""}, "message")):
            self.refused(reply, why, body=json.dumps({"error": dict(good, **changed)}))
        self.refused(self.example("sandboxd", "info", 401), "WWW-Authenticate",
                     headers={"x-request-id": good["request_id"]})
        self.refused(self.example("negotiator", "negotiate", 423), "Retry-After",
                     headers={"x-request-id": good["request_id"], "retry-after": "soon"})

    def test_token_bearing_replies(self):
        reply = self.example("negotiator", "negotiate", 201)
        for name in ("cache-control", "referrer-policy"):
            headers = {key: value for key, value in reply["headers"].items() if key != name}
            self.refused(reply, "header", headers=headers)
        grant = json.loads(reply["body"])
        for changed in ({"token": "pk_x"}, {"jti": "tok_x"}, {"expires_at": "2024-11-22T02:25:00Z"},
                        {"scopes": ["teleport"]}, {"hint": {"given": "x", "honored": True, "reason": "not_found"}}):
            self.refused(reply, "", body=json.dumps(dict(grant, **changed)))

    def test_ndjson(self):
        reply = self.example("sandboxd", "exec", 200, "application/x-ndjson")
        lines = reply["body"].splitlines(keepends=True)
        self.refused(reply, "does not end", body=reply["body"][:-1])
        self.refused(reply, "no JSON", body=lines[0] + "{\n")
        self.refused(reply, "no event of type 'surprise'", body=lines[0] + '{"type":"surprise"}\n')
        self.refused(reply, "Additional properties", body=lines[0] + '{"type":"keepalive","at":1}\n')
        self.refused(reply, "given twice", body=lines[0] + '{"type":"keepalive","type":"keepalive"}\n')
        self.refused(reply, "started is the first", body="".join(lines[1:]))
        self.refused(reply, "started is the first", body=lines[0] * 2)
        self.refused(reply, "after the last one", body=reply["body"] + lines[3])
        self.refused(reply, "goes on at", body=lines[0] + lines[1] * 2)
        self.refused(reply, "exit", body=lines[0] + '{"type":"exit","exit_code":0}\n')
        self.judge(dict(reply, body=reply["body"][:-5], cut=True))

    def test_sse(self):
        reply = self.example("sandboxd", "exec", 200, "text/event-stream")
        blocks = reply["body"].split("\n\n")
        self.refused(reply, "does not end", body=reply["body"][:-1])
        self.refused(reply, "its type another", body=reply["body"].replace("event: gap", "event: stdout"))
        self.refused(reply, "not one event", body=blocks[0].split("\n")[1] + "\n\n")
        self.judge(dict(reply, body=": a comment\n" + reply["body"]))

    def test_what_no_operation_serves(self):
        stray = dict(self.example("negotiator", "showSandbox", 404), path="/nope")
        self.assertIsNone(self.judge(stray))
        self.refused(stray, "only", status=200)
        self.refused(stray, "does not come with", status=401)
        wrong = dict(stray, method="PUT", path="/sandboxes", status=405)
        error = json.loads(wrong["body"])
        error["error"]["code"] = "METHOD_NOT_ALLOWED"
        wrong["body"] = json.dumps(error)
        self.refused(wrong, "Allow")
        wrong["headers"]["allow"] = "GET, HEAD"
        self.assertIsNone(self.judge(wrong))
        self.refused(wrong, "Allow", path="/sandboxes/x")

    def test_heads_have_no_body(self):
        reply = dict(self.example("negotiator", "health", 200), method="HEAD")
        self.refused(reply, "a body where there is none")
        self.judge(dict(reply, body=""))

    def test_a_document_that_is_not_sound(self):
        for path, value, why in ((("openapi",), "3.0.0", "not 3.1"),
                                 (("components", "schemas", "Time", "$ref"), "#/nowhere", "leads nowhere"),
                                 (("components", "schemas", "Time", "pattern"), 7, "components/schemas/Time"),
                                 (("components", "schemas", "Lone"), {"type": "string"}, "used by nobody"),
                                 (("components", "schemas", "Lease", "additionalProperties"), None, "is not said"),
                                 (("components", "headers", "RequestId", "example"), "a b", "example"),
                                 (("paths", "/healthz", "get", "operationId"), "ready", "used twice"),
                                 (("paths", "/healthz", "get", "operationId"), None, "operationId is missing"),
                                 (("paths", "/sandboxes/{sandbox_id}", "delete", "responses", "204"), None, "no reply"),
                                 (("paths", "/sandboxes/{sandbox_id}", "parameters"), [], "is not declared"),
                                 (("paths", "/sandboxes", "get", "security"), [{"magic": []}], "magic")):
            document = openapi.Document(os.path.join(ROOT, "specs", "openapi-negotiator.yaml"))
            place = document.root
            for step in path[:-1]:
                place = place[step]
            if value is None:
                del place[path[-1]]
            else:
                place[path[-1]] = value
            document.operations = list(document.read_operations())
            self.assertTrue(any(why in fault for fault in document.faults()), (path, document.faults()))


if __name__ == "__main__":
    unittest.main()
