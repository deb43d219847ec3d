"""Files, folders and figures of a sandbox as OpenSandbox clients ask for them (specs/opensandbox.md): every operation with
every status, over the wire; and what hostile clients send, and code inside leaves lying about."""
import hashlib
import http.client
import json
import os
import re
import socket
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import connect_http  # noqa: E402
from parley_testing.token import Forge  # noqa: E402

BOUNDARY = "opensandbox_5f0c_1790000000000"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
MANY = 500


def part(name, data, filename=None, kind="application/octet-stream"):
    shown = f'; filename="{filename}"' if filename is not None else ""
    return (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{shown}\r\nContent-Type: {kind}\r\n\r\n'
            ).encode() + data + b"\r\n"


def metadata(path, **more):
    return part("metadata", json.dumps({"path": path, **more}).encode(), "metadata", "application/json")


def file(data, name="file"):
    return part("file", data, name)


END = f"--{BOUNDARY}--\r\n".encode()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("execd", resources={"memory_mb": 512, "pids": 128, "disk_mb": 512})
        cls.base = cls.grant["endpoints"]["http"] + "/port/44772"

    def shell(self, command, **more):
        return self.deployment.shell(self.grant, command, **more)

    def fresh(self):
        """A folder of this test alone."""
        path = "/workspace/" + self.id().rsplit(".", 1)[-1]
        self.shell(f"rm -rf {path}; mkdir -p {path}")
        return path

    def ask(self, method, route, body=None, token=None, headers=None, record=True, **query):
        pairs = [(name, one) for name, value in query.items() for one in (value if isinstance(value, list) else [value])]
        sent = {"X-EXECD-ACCESS-TOKEN": token or self.grant["token"], "OPEN-SANDBOX-API-KEY": "osb-key-that-is-ignored",
                **(headers or {})}
        url = self.base + route + ("?" + urllib.parse.urlencode(pairs) if pairs else "")
        return self.deployment.request(method, url, body, headers=sent, record=record)

    def upload(self, *parts, end=END, token=None, kind=f"multipart/form-data; boundary={BOUNDARY}"):
        return self.ask("POST", "/files/upload", b"".join(parts) + end, token, {"Content-Type": kind})

    def done(self, reply):
        """200 without a body, said so: JS clients need it."""
        self.assertEqual((reply.status, reply.body, reply.headers.get("content-length")), (200, b"", "0"), reply)

    def refused(self, reply, status, code, text=""):
        self.assertEqual(reply.status, status, reply)
        self.assertEqual(set(reply.json), {"code", "message"}, reply)
        self.assertEqual(reply.json["code"], code, reply)
        self.assertIn(text, reply.json["message"])
        self.assertIn("x-request-id", reply.headers)

    def info(self, *paths):
        reply = self.ask("GET", "/files/info", path=list(paths))
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def read(self, path):
        reply = self.ask("GET", "/files/download", path=path)
        self.assertEqual(reply.status, 200, reply)
        return reply.body


@needs_root
class Files(Case):
    # ---- info ----

    def test_facts(self):
        folder = self.fresh()
        self.shell(f"cd {folder}; printf 12345 > f; chmod 4640 f; ln -s f l; mkdir d; mkfifo p")
        paths = [f"{folder}/{name}" for name in "fldp"]
        facts = self.info(*paths, paths[0])
        self.assertEqual(list(facts), paths)
        f = facts[paths[0]]
        user, group = self.shell("id -un; id -gn").split()
        self.assertEqual({name: f[name] for name in ("path", "type", "size", "mode", "owner", "group")},
                         {"path": paths[0], "type": "file", "size": 5, "mode": 640, "owner": user, "group": group})
        self.assertTrue(TIME.fullmatch(f["modified_at"]) and TIME.fullmatch(f["created_at"]), f)
        self.assertEqual([facts[path]["type"] for path in paths], ["file", "symlink", "directory", "other"])
        self.assertEqual(self.info(), {})
        self.refused(self.ask("GET", "/files/info", path=[paths[0], folder + "/none"]), 404, "FILE_NOT_FOUND", "/none")
        self.refused(self.ask("GET", "/files/info", path=""), 400, "INVALID_REQUEST_BODY")

    def test_many_paths(self):
        folder = self.fresh()
        paths = [f"{folder}/{n}" for n in range(MANY)]
        self.shell(f"cd {folder}; touch $(seq 0 {MANY - 1})")
        self.assertEqual(list(self.info(*paths)), paths)
        self.done(self.ask("DELETE", "/files", path=paths))
        self.assertEqual(self.shell(f"ls {folder}"), "")

    def test_too_many_paths(self):
        many = {f"/workspace/{n}": {"mode": 755} for n in range(1001)}
        self.refused(self.ask("POST", "/files/permissions", many), 413, "INVALID_REQUEST_BODY", "1000")
        long = {f"/{n}" + ("/" + "x" * 199) * 19: {"mode": 755} for n in range(300)}
        self.refused(self.ask("POST", "/directories", long), 413, "INVALID_REQUEST_BODY", "bytes")
        self.refused(self.ask("POST", "/files/replace", {"/workspace/x": {"old": "a" * (2 << 20), "new": ""}}), 413,
                     "INVALID_REQUEST_BODY")

    def test_paths_as_clients_write_them(self):
        folder = self.fresh()
        self.shell(f"echo at home > $HOME/here; echo ab > {folder}/a")
        self.assertEqual(self.read("~/here"), b"at home\n")
        self.assertEqual(self.read("$HOME/here"), b"at home\n")
        self.assertEqual(self.read(f"{folder}/x/..//./a"), b"ab\n")
        given = f"{folder}/../{os.path.basename(folder)}/a"
        self.assertEqual(self.info(given)[given]["path"], f"{folder}/a")
        self.assertEqual(self.ask("GET", "/files/download", path="/../../../etc/hostname").body,
                         self.shell("cat /etc/hostname").encode())
        self.refused(self.ask("GET", "/files/download", path="/x" * 3000), 400, "INVALID_REQUEST_BODY")
        self.refused(self.ask("GET", "/files/download"), 400, "MISSING_QUERY")

    # ---- delete, move, permissions ----

    def test_delete(self):
        folder = self.fresh()
        self.shell(f"cd {folder}; touch a b; mkdir d e; ln -s d l")
        self.done(self.ask("DELETE", "/files", path=[f"{folder}/a", f"{folder}/none", f"{folder}/b", f"{folder}/l"]))
        self.refused(self.ask("DELETE", "/files", path=f"{folder}/d"), 500, "RUNTIME_ERROR", "folder")
        self.assertEqual(self.shell(f"ls {folder}"), "d\ne\n")
        self.done(self.ask("DELETE", "/files"))

    def test_move(self):
        folder = self.fresh()
        self.shell(f"cd {folder}; echo 1 > a; echo 2 > b; mkdir d; touch d/x")
        self.done(self.ask("POST", "/files/mv", [{"src": f"{folder}/a", "dest": f"{folder}/new/a"},
                                                 {"src": f"{folder}/d", "dest": f"{folder}/e"}]))
        self.assertEqual(self.shell(f"cd {folder}; cat new/a; ls e"), "1\nx\n")
        self.refused(self.ask("POST", "/files/mv", [{"src": f"{folder}/a", "dest": f"{folder}/c"}]), 404,
                     "FILE_NOT_FOUND")
        self.refused(self.ask("POST", "/files/mv", [{"src": f"{folder}/new/a", "dest": f"{folder}/b"}]), 500,
                     "RUNTIME_ERROR")
        self.assertEqual(self.read(f"{folder}/b"), b"2\n")
        for body in ({}, [{"src": "/a"}], [1], b"[", [{"src": "/a", "dest": 5}]):
            self.refused(self.ask("POST", "/files/mv", body), 400, "INVALID_REQUEST_BODY")
        self.done(self.ask("POST", "/files/mv", []))

    def test_permissions(self):
        folder = self.fresh()
        self.shell(f"cd {folder}; touch a b; chmod 600 a b")
        user = self.shell("id -un").strip()
        self.done(self.ask("POST", "/files/permissions", {
            f"{folder}/a": {"mode": 755, "owner": user, "group": None},
            f"{folder}/b": {"mode": 0, "owner": "no-such-user", "group": "no-such-group"}}))
        self.assertEqual(self.shell(f"cd {folder}; stat -c %a a b"), "755\n600\n")
        self.done(self.ask("POST", "/files/permissions", {f"{folder}/a": {"mode": 4711}}))
        self.assertEqual(self.shell(f"stat -c %a {folder}/a"), "4711\n")
        for wrong in ({"mode": 788}, {"mode": 10000}, {"mode": -1}, {"mode": "755"}, {"mode": 7.5}, {"owner": 5}, 755):
            self.refused(self.ask("POST", "/files/permissions", {f"{folder}/a": wrong}), 400, "INVALID_REQUEST_BODY")
        self.refused(self.ask("POST", "/files/permissions", {f"{folder}/none": {"mode": 755}}), 500, "RUNTIME_ERROR")
        self.refused(self.ask("POST", "/files/permissions", {f"{folder}/none": {}}), 500, "RUNTIME_ERROR")
        self.refused(self.ask("POST", "/files/permissions", {f"{folder}/a": {"owner": "root"}}), 500, "RUNTIME_ERROR")

    # ---- search and replace ----

    def test_search(self):
        folder = self.fresh()
        self.shell(f"cd {folder}; mkdir -p sub/deep s.py; touch a.py sub/b.py sub/deep/.c.py sub/d.txt s.py/e; "
                   "ln -s / sub/out; ln -s a.py l.py")
        found = lambda **query: [one["path"][len(folder) + 1:] for one in  # noqa: E731
                                 self.ask("GET", "/files/search", path=folder, **query).json]
        self.assertEqual(found(pattern="*.py"), ["a.py", "l.py", "sub/b.py", "sub/deep/.c.py"])
        self.assertEqual(found(pattern="?.txt"), ["sub/d.txt"])
        self.assertEqual(found(pattern="[ab].{py,txt}"), ["a.py", "sub/b.py"])
        self.assertEqual(found(pattern="sub"), [])
        self.assertEqual(found(pattern="sub/*"), [])
        everything = ["a.py", "l.py", "s.py/e", "sub/b.py", "sub/d.txt", "sub/deep/.c.py", "sub/out"]
        self.assertEqual(found(), everything)
        self.assertEqual(found(pattern=""), everything)
        self.refused(self.ask("GET", "/files/search", path=folder + "/none"), 404, "FILE_NOT_FOUND")
        self.refused(self.ask("GET", "/files/search"), 400, "MISSING_QUERY")

    def test_replace(self):
        folder = self.fresh()
        self.shell(f"cd {folder}; printf 'a.b a.b axb' > 1; chmod 640 1; printf none > 2")
        self.done(self.ask("POST", "/files/replace", {f"{folder}/1": {"old": "a.b", "new": "c"}}))
        self.assertEqual(self.shell(f"cd {folder}; cat 1; stat -c ' %a' 1"), "c c axb 640\n")
        counted = self.ask("POST", "/files/replace", {f"{folder}/1": {"old": "c", "new": "cc"},
                                                      f"{folder}/2": {"old": "c", "new": ""}}, verbose="true")
        self.assertEqual(counted.json, {f"{folder}/1": {"replacedCount": 2}, f"{folder}/2": {"replacedCount": 0}})
        self.assertEqual(self.read(f"{folder}/1"), b"cc cc axb")
        self.refused(self.ask("POST", "/files/replace", {f"{folder}/1": {"old": "", "new": "x"}}), 400,
                     "INVALID_REQUEST_BODY", "old")
        self.refused(self.ask("POST", "/files/replace", {f"{folder}/none": {"old": "a", "new": "x"}}), 404,
                     "FILE_NOT_FOUND")
        self.refused(self.ask("POST", "/files/replace", {folder: {"old": "a", "new": "x"}}), 500, "RUNTIME_ERROR")
        self.refused(self.ask("POST", "/files/replace", [1]), 400, "INVALID_REQUEST_BODY")

    # ---- folders ----

    def test_list(self):
        folder = self.fresh()
        self.shell(f"cd {folder}; mkdir -p sub/deep; touch b a sub/x sub/deep/y .h; ln -s sub link")
        listed = lambda **query: [(one["path"][len(folder) + 1:], one["type"]) for one in  # noqa: E731
                                  self.ask("GET", "/directories/list", path=folder, **query).json]
        self.assertEqual(listed(), [(".h", "file"), ("a", "file"), ("b", "file"), ("link", "symlink"),
                                    ("sub", "directory")])
        self.assertEqual([name for name, _ in listed(depth=2)], [".h", "a", "b", "link", "sub", "sub/deep", "sub/x"])
        self.assertEqual(len(listed(depth=1000000)), 8)
        empty = self.ask("GET", "/directories/list", path=folder, depth=0)
        self.assertEqual((empty.status, empty.json), (200, []))
        for path, status, code in ((folder + "/none", 404, "FILE_NOT_FOUND"), (folder + "/a", 400, "INVALID_REQUEST_BODY"),
                                   (folder + "/link", 400, "INVALID_REQUEST_BODY")):
            for depth in (0, 1):
                self.refused(self.ask("GET", "/directories/list", path=path, depth=depth), status, code)
        for depth in ("-1", "x", "99999999999"):
            self.refused(self.ask("GET", "/directories/list", path=folder, depth=depth), 400, "INVALID_REQUEST_BODY")
        self.refused(self.ask("GET", "/directories/list"), 400, "MISSING_QUERY")

    def test_folders(self):
        folder = self.fresh()
        self.shell(f"touch {folder}/file")
        self.done(self.ask("POST", "/directories", {f"{folder}/a/b": {"mode": 700}, f"{folder}/c": {"mode": 755, "owner": "nobody-knows"},
                                                    f"{folder}/d": {}}))
        self.assertEqual(self.shell(f"cd {folder}; stat -c %a a/b c d"), "700\n755\n755\n")
        self.done(self.ask("POST", "/directories", {f"{folder}/a/b": {"mode": 755}, "/tmp": {"mode": 700}}))
        self.assertEqual(self.shell(f"stat -c %a {folder}/a/b"), "700\n")  # what is there stays as it is
        self.refused(self.ask("POST", "/directories", {f"{folder}/file": {}}), 500, "RUNTIME_ERROR")
        self.refused(self.ask("POST", "/directories", {f"{folder}/e": None}), 400, "INVALID_REQUEST_BODY")
        self.shell(f"touch {folder}/a/b/x")
        self.done(self.ask("DELETE", "/directories", path=[f"{folder}/a", f"{folder}/none", f"{folder}/c"]))
        self.assertEqual(self.shell(f"ls {folder}"), "d\nfile\n")
        self.assertIn(self.ask("DELETE", "/directories", path="/").status, (403, 500))
        self.refused(self.ask("DELETE", "/directories", path="/proc"), 500, "RUNTIME_ERROR")

    # ---- figures ----

    def test_metrics(self):
        reply = self.ask("GET", "/metrics")
        self.assertEqual((reply.status, set(reply.json)),
                         (200, {"cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "timestamp"}), reply)
        self.assertEqual(reply.json["mem_total_mib"], 512.0)
        self.assertTrue(0 < reply.json["mem_used_mib"] < 512 and 0 <= reply.json["cpu_used_pct"] <= 100, reply)
        self.assertLess(abs(reply.json["timestamp"] - time.time() * 1000), 600_000)
        self.assertNotIn(b'"cpu_count":1,', reply.body)  # floats, also when they are whole

    def test_metrics_see_work(self):
        started = self.deployment.exec(self.grant, cmd="while :; do :; done", detach=True, timeout=60)
        try:
            deadline = time.monotonic() + 30
            while self.ask("GET", "/metrics").json["cpu_used_pct"] < 10:
                self.assertLess(time.monotonic(), deadline)
        finally:
            self.shell("pkill -f 'while[ ]:'; true")
        self.assertLess(started.status, 300)

    def test_metrics_watch(self):
        parts = urllib.parse.urlsplit(self.base)
        connection = connect_http(parts)
        connection.request("GET", parts.path + "/metrics/watch", headers={"X-EXECD-ACCESS-TOKEN": self.grant["token"]})
        answer = connection.getresponse()
        self.assertEqual((answer.status, answer.getheader("Content-Type")), (200, "text/event-stream"))
        lines = [answer.readline() for _ in range(2)]
        connection.close()
        for line in lines:
            self.assertEqual(len(json.loads(line)), 5)
        self.assertGreater(json.loads(lines[1])["timestamp"], json.loads(lines[0])["timestamp"])

    def test_metrics_watch_ends_with_its_token(self):
        token = Forge(self.deployment, self.grant).token(exp=int(time.time()) + 2)
        reply = self.ask("GET", "/metrics/watch", token=token)
        self.assertEqual(reply.status, 200, reply)
        self.assertIn("error", json.loads(reply.body.splitlines()[-1]))

    # ---- who may ----

    def test_refusals(self):
        for token, key in (("x.y.z", "error"), (Forge(self.deployment, self.grant).token(scope="process"), "code")):
            reply = self.ask("GET", "/files/info", path="/etc", token=token)
            self.assertEqual((reply.status, key in reply.json), (401 if key == "error" else 403, True), reply)
        reader = Forge(self.deployment, self.grant).token(scope="fs:ro")
        self.assertEqual(self.ask("GET", "/files/info", path="/etc", token=reader).status, 200)
        for method, path, body in (("DELETE", "/files?path=/workspace/x", None), ("POST", "/files/mv", []),
                                   ("POST", "/files/permissions", {}), ("POST", "/files/replace", {}),
                                   ("POST", "/directories", {}), ("DELETE", "/directories?path=/workspace/x", None),
                                   ("POST", "/files/upload", b"")):
            reply = self.ask(method, path, body, token=reader)
            self.assertEqual(reply.status, 403, (path, reply))

    def test_a_token_of_a_folder(self):
        folder = self.fresh()
        self.shell(f"cd {folder}; mkdir mine theirs; echo m > mine/m; echo t > theirs/t; ln -s ../theirs/t mine/out; "
                   "ln -s ../theirs mine/away; ln theirs/t mine/hard")
        token = Forge(self.deployment, self.grant).token(scope=f"fs:rw@{folder}/mine")
        mine, theirs = folder + "/mine", folder + "/theirs"
        self.assertEqual(self.ask("GET", "/files/download", path=f"{mine}/m", token=token).body, b"m\n")
        self.assertEqual(self.upload(metadata(f"{mine}/new"), file(b"n"), END, end=b"", token=token).status, 200)
        outside = [("GET", "/files/info", None, {"path": [f"{mine}/m", f"{theirs}/t"]}),
                   ("GET", "/files/download", None, {"path": f"{theirs}/t"}),
                   ("GET", "/files/download", None, {"path": f"{mine}/../theirs/t"}),
                   ("DELETE", "/files", None, {"path": [f"{mine}/m", f"{theirs}/t"]}),
                   ("POST", "/files/mv", [{"src": f"{mine}/m", "dest": f"{theirs}/m"}], {}),
                   ("POST", "/files/mv", [{"src": f"{theirs}/t", "dest": f"{mine}/t"}], {}),
                   ("POST", "/files/permissions", {f"{theirs}/t": {"mode": 777}}, {}),
                   ("POST", "/files/replace", {f"{theirs}/t": {"old": "t", "new": "x"}}, {}),
                   ("GET", "/files/search", None, {"path": folder}), ("GET", "/directories/list", None, {"path": theirs}),
                   ("POST", "/directories", {f"{theirs}/d": {}}, {}), ("DELETE", "/directories", None, {"path": theirs})]
        for method, path, body, query in outside:
            reply = self.ask(method, path, body, token, **query)
            self.assertEqual(reply.status, 403, (method, path, query, reply))
        # Its own names that lead out: what is there is not told, read or changed.
        for method, path, body, query in (("GET", "/files/download", None, {"path": f"{mine}/out"}),
                                          ("GET", "/files/download", None, {"path": f"{mine}/away/t"}),
                                          ("GET", "/files/download", None, {"path": f"{mine}/hard"}),
                                          ("GET", "/files/download", None, {"path": f"{mine}/out", "offset": 1}),
                                          ("POST", "/files/permissions", {f"{mine}/out": {"mode": 777}}, {}),
                                          ("POST", "/files/permissions", {f"{mine}/hard": {"mode": 777}}, {}),
                                          ("POST", "/files/replace", {f"{mine}/out": {"old": "t", "new": "x"}}, {}),
                                          ("GET", "/files/search", None, {"path": f"{mine}/away"}),
                                          ("POST", "/directories", {f"{mine}/away/d": {}}, {}),
                                          ("DELETE", "/files", None, {"path": f"{mine}/away/t"})):
            reply = self.ask(method, path, body, token, **query)
            self.assertIn(reply.status, (403, 500), (method, path, query, reply))
            self.assertNotIn(b"t\n", reply.body)
        refused = self.upload(metadata(f"{mine}/ok"), file(b"1"), metadata(f"{mine}/../theirs/t"), file(b"2"), token=token)
        self.refused(refused, 403, "RUNTIME_ERROR")
        self.assertIn(self.upload(metadata(f"{mine}/away/t"), file(b"2"), token=token).status, (403, 500))
        self.assertEqual(self.shell(f"cd {folder}; cat theirs/t mine/m; ls theirs; stat -c %a theirs/t"),
                         "t\nm\nt\n644\n")

    def test_what_is_done_is_recorded(self):
        folder = self.fresh()
        self.assertEqual(self.upload(metadata(f"{folder}/a b", owner="root"), file(b"x")).status, 500)
        self.done(self.upload(metadata(f"{folder}/a"), file(b"x")))
        self.done(self.ask("POST", "/files/permissions", {f"{folder}/a": {"mode": 700}}))
        self.done(self.ask("POST", "/files/mv", [{"src": f"{folder}/a", "dest": f"{folder}/b"}]))
        self.done(self.ask("POST", "/files/replace", {f"{folder}/b": {"old": "x", "new": "y"}}))
        self.done(self.ask("DELETE", "/files", path=f"{folder}/b"))
        self.done(self.ask("POST", "/directories", {f"{folder}/d": {}}))
        wanted = {("write", f"path={folder}/a%20b owner=root"), ("write", f"path={folder}/a"), ("chmod", f"path={folder}/a"),
                  ("move", f"path={folder}/a to={folder}/b"), ("edit", f"path={folder}/b"), ("delete", f"path={folder}/b"),
                  ("mkdir", f"path={folder}/d")}
        deadline = time.monotonic() + 60
        while wanted:
            reply = self.deployment.request("GET", f"/audit?sandbox_id={self.grant['sandbox']['id']}&limit=1000")
            self.assertEqual(reply.status, 200, reply)
            told = [json.loads(line) for line in reply.body.splitlines()] if "ndjson" in reply.headers["content-type"] \
                else reply.json["records"]
            wanted -= {(one["action"], one.get("detail")) for one in told}
            self.assertTrue(not wanted or time.monotonic() < deadline, wanted)
            time.sleep(0.2 if wanted else 0)


@needs_root
class Bytes(Case):
    # ---- uploads ----

    def test_several_files(self):
        folder = self.fresh()
        self.done(self.upload(metadata(f"{folder}/a", mode=755), file(b"1", f"{folder}/a"),
                              metadata(f"{folder}/x/y/z", mode=None, owner=None, group=None), file(b""),
                              metadata(f"{folder}/gr\u00fc\u00dfe & 50%", mode=600, extra=1), file(b"3" * 100000, "grüße")))
        self.assertEqual(self.shell(f"cd {folder}; stat -c '%a %s' a x/y/z gr*"), "755 1\n644 0\n600 100000\n")
        # All metadata first is as good: the first belongs to the first.
        self.done(self.upload(metadata(f"{folder}/p"), metadata(f"{folder}/q"), file(b"for p"), file(b"for q")))
        self.assertEqual(self.shell(f"cd {folder}; cat p q"), "for pfor q")
        self.done(self.upload(metadata(f"{folder}/a"), file(b"22")))  # replaced, its mode as it was
        self.assertEqual(self.shell(f"cd {folder}; cat a; stat -c ' %a' a"), "22 755\n")

    def test_forms_that_are_wrong(self):
        folder = self.fresh()
        one = metadata(f"{folder}/a")
        bare = part("metadata", json.dumps({"path": f"{folder}/a"}).encode())
        for parts, code in (((), "INVALID_FILE_METADATA"), ((one,), "INVALID_FILE_CONTENT"),
                            ((one, one, file(b"")), "INVALID_FILE"), ((one, file(b""), file(b"")), "INVALID_FILE"),
                            ((file(b""), one), "INVALID_FILE"), ((bare, file(b"")), "INVALID_FILE"),
                            ((part("metadata", b"{", "metadata"), file(b"")), "INVALID_FILE_METADATA"),
                            ((part("metadata", b"[]", "metadata"), file(b"")), "INVALID_FILE_METADATA"),
                            ((part("metadata", b"{}", "metadata"), file(b"")), "INVALID_FILE_METADATA"),
                            ((metadata(""), file(b"")), "INVALID_FILE_METADATA"),
                            ((metadata(5), file(b"")), "INVALID_FILE_METADATA"),
                            ((metadata(f"{folder}/a", mode=799), file(b"")), "INVALID_FILE_METADATA"),
                            ((metadata("/" + "x" * 5000), file(b"")), "INVALID_FILE_METADATA")):
            self.refused(self.upload(*parts), 400, code)
        for kind in ("application/json", "multipart/form-data", "text/plain; boundary=x"):
            self.refused(self.upload(one, file(b""), kind=kind), 400, "INVALID_FILE")
        self.refused(self.upload(one, file(b""), end=b""), 400, "INVALID_REQUEST_BODY")  # cut off
        self.assertEqual(self.upload(part("metadata", b"{" + b" " * 70000, "metadata"), file(b"")).status, 413)

    def test_names_that_lead_elsewhere(self):
        """As in an archive that wants out: what counts is the path in the metadata, within the sandbox."""
        folder = self.fresh()
        self.shell(f"cd {folder}; mkdir d; ln -s /etc etc; ln -s d/new through; mkfifo fifo")
        self.done(self.upload(metadata(f"{folder}/d/../../../../../{folder}/d/a"), file(b"1", "../../../../etc/passwd")))
        self.assertEqual(self.read(f"{folder}/d/a"), b"1")
        self.done(self.upload(metadata(f"{folder}/through"), file(b"2")))
        self.assertEqual(self.shell(f"cd {folder}; cat d/new; readlink through"), "2d/new\n")
        for path in (f"{folder}/etc/shadow", f"{folder}/fifo", f"{folder}/d", "/proc/1/mem", "/"):
            reply = self.upload(metadata(path), file(b"x"))
            self.assertIn(reply.status, (403, 404, 500), (path, reply))
            self.assertIn("message", reply.json)
        self.assertEqual(self.shell("head -c 5 /etc/passwd"), "root:")

    def test_a_file_is_whole_or_not_there(self):
        folder = self.fresh()
        self.shell(f"echo before > {folder}/f")
        parts = urllib.parse.urlsplit(self.base)
        head = metadata(f"{folder}/f") + part("file", b"", "f")[:-2] + b"half of it"
        with socket.create_connection((parts.hostname, parts.port), 30) as cut:
            cut.sendall((f"POST {parts.path}/files/upload HTTP/1.1\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: {self.grant['token']}\r\n"
                         f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {len(head) + 1000}\r\n\r\n"
                         ).encode() + head)
        self.assertEqual(self.read(f"{folder}/f"), b"before\n")
        deadline = time.monotonic() + 30
        while self.shell(f"ls -A {folder}") != "f\n":  # nothing is left beside it
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    def send_chunked(self, pieces):
        parts = urllib.parse.urlsplit(self.base)
        connection = connect_http(parts, 120)
        connection.request("POST", parts.path + "/files/upload", iter(pieces), encode_chunked=True,
                           headers={"X-EXECD-ACCESS-TOKEN": self.grant["token"], "Transfer-Encoding": "chunked",
                                    "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    def test_a_hundred_megabytes_in_chunks_and_back(self):
        folder = self.fresh()
        block = os.urandom(1 << 20)
        whole = hashlib.sha256()

        def body():
            yield metadata(f"{folder}/big") + part("file", b"", "big")[:-2]
            for n in range(100):
                piece = bytes([n]) + block[1:]
                whole.update(piece)
                yield piece
            yield b"\r\n" + END

        self.assertEqual(self.send_chunked(body()), (200, b""))
        self.assertEqual(self.shell(f"sha256sum < {folder}/big").split()[0], whole.hexdigest())
        got = self.ask("GET", "/files/download", path=f"{folder}/big", record=False)
        self.assertEqual((got.status, got.headers["content-length"]), (200, str(100 << 20)))
        self.assertEqual(hashlib.sha256(got.body).hexdigest(), whole.hexdigest())

    def test_chunks_cut_anywhere(self):
        folder = self.fresh()
        body = metadata(f"{folder}/f") + file(b"\r\n--" + BOUNDARY.encode()[:10] + b"\r\n" * 20) + END
        self.assertEqual(self.send_chunked(body[i:i + 1] for i in range(len(body))), (200, b""))
        self.assertEqual(self.read(f"{folder}/f"), b"\r\n--" + BOUNDARY.encode()[:10] + b"\r\n" * 20)

    def test_a_full_disk(self):
        grant = self.deployment.negotiate("small", resources={"memory_mb": 128, "disk_mb": 16})
        parts = urllib.parse.urlsplit(grant["endpoints"]["http"] + "/port/44772/files/upload")
        body = metadata("/workspace/fits") + file(b"x") + metadata("/workspace/big") + file(bytes(32 << 20)) + END
        connection = connect_http(parts, 120)
        try:
            connection.request("POST", parts.path, body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
                                                          "X-EXECD-ACCESS-TOKEN": grant["token"]})
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is answered before all was sent
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        self.assertEqual((answer.status, told["code"]), (507, "RUNTIME_ERROR"), told)
        self.assertEqual(self.deployment.shell(grant, "ls -A /workspace"), "fits\n")

    # ---- downloads ----

    def get(self, path, header=None, **query):
        return self.ask("GET", "/files/download", path=path, headers={"Range": header} if header else None, **query)

    def test_download(self):
        folder = self.fresh()
        self.shell(f"printf 0123456789 > {folder}/f; : > {folder}/empty; mkfifo {folder}/fifo")
        whole = self.get(f"{folder}/f")
        self.assertEqual((whole.status, whole.body), (200, b"0123456789"))
        self.assertEqual({name: whole.headers[name] for name in ("content-type", "content-length", "accept-ranges",
                                                                 "content-disposition", "x-content-type-options")},
                         {"content-type": "application/octet-stream", "content-length": "10", "accept-ranges": "bytes",
                          "content-disposition": 'attachment; filename="f"', "x-content-type-options": "nosniff"})
        head = self.ask("HEAD", "/files/download", path=f"{folder}/f")
        self.assertEqual((head.status, head.body, head.headers["content-length"]), (200, b"", "10"))
        self.assertEqual(self.get(f"{folder}/empty").body, b"")
        self.assertIn(b"Linux", self.get("/proc/version").body)
        self.refused(self.get(f"{folder}/none"), 404, "FILE_NOT_FOUND")
        self.refused(self.get(folder), 500, "RUNTIME_ERROR")
        self.refused(self.get(f"{folder}/fifo"), 500, "RUNTIME_ERROR")
        self.shell(f"touch {folder}/secret; chmod 0 {folder}/secret")
        self.refused(self.get(f"{folder}/secret"), 500, "RUNTIME_ERROR")

    def test_ranges(self):
        folder = self.fresh()
        self.shell(f"printf 0123456789 > {folder}/f; : > {folder}/empty")
        for asked, first, last in (("bytes=0-3", 0, 3), ("bytes=4-", 4, 9), ("bytes=-2", 8, 9), ("bytes=-99", 0, 9),
                                   ("bytes=8-100", 8, 9), ("bytes=0-0,5-6", 0, 0), ("bytes=20-30,5-6", 5, 6),
                                   ("bytes= 1 - 2 ,", 1, 2), ("bytes=9-9223372036854775807", 9, 9)):
            part = self.get(f"{folder}/f", asked)
            self.assertEqual((part.status, part.headers.get("content-range"), part.body, part.headers["content-length"]),
                             (206, f"bytes {first}-{last}/10", b"0123456789"[first:last + 1], str(last - first + 1)), asked)
            self.assertNotIn("accept-ranges", part.headers)
            self.assertIn("attachment", part.headers["content-disposition"])
        for asked in ("bytes=10-", "bytes=10-20,30-", "bytes=-0"):
            beyond = self.get(f"{folder}/f", asked)
            self.assertEqual((beyond.status, beyond.headers["content-range"]), (416, "bytes */10"), asked)
            self.assertTrue(beyond.headers["content-type"].startswith("text/plain"), beyond)
        for asked in ("bytes=b-a", "bytes=5-4", "bytes=1", "items=0-1", "bytes=-", "bytes=--1", "bytes=0-1,x", "bytes=1-2-3",
                      "bytes=9223372036854775808-", "Bytes=0-1"):
            self.refused(self.get(f"{folder}/f", asked), 416, "UNKNOWN")
        self.assertEqual(self.get(f"{folder}/f", "bytes=").status, 200)
        self.assertEqual(self.get(f"{folder}/empty", "bytes=0-").status, 200)

    def test_lines(self):
        folder = self.fresh()
        self.shell(f"printf 'one\\r\\ntwo\\n\\nfour' > {folder}/f")
        for query, lines in (({"offset": 2, "limit": 2}, b"two\n"), ({"limit": 1}, b"one"), ({"offset": 4}, b"four"),
                             ({"offset": 1, "limit": 99}, b"one\ntwo\n\nfour"), ({"offset": 9, "limit": 1}, b"")):
            reply = self.get(f"{folder}/f", **query)
            self.assertEqual((reply.status, reply.body), (200, lines), query)
            self.assertTrue(reply.headers["content-type"].startswith("text/plain"), reply)
        for query in ({"offset": 0}, {"limit": 0}, {"offset": -1, "limit": 1}, {"offset": "x"}, {"limit": 10 ** 30}):
            self.refused(self.get(f"{folder}/f", **query), 400, "INVALID_REQUEST_BODY")
        self.refused(self.get(f"{folder}/f", "bytes=0-1", offset=1), 400, "INVALID_REQUEST_BODY")
        self.refused(self.get(f"{folder}/none", offset=1), 404, "FILE_NOT_FOUND")
        self.shell(f"yes | head -c 3000000 > {folder}/yes; mkfifo {folder}/fifo")
        self.assertEqual(len(self.get(f"{folder}/yes", offset=2).body), 3000000 - 3)
        self.refused(self.get(f"{folder}/fifo", offset=1), 500, "RUNTIME_ERROR")

    def test_odd_names(self):
        folder = self.fresh()
        for name, shown in (("plain.txt", 'attachment; filename="plain.txt"'),
                            ("a b;c.txt", 'attachment; filename="a b;c.txt"'),
                            ('q"\\.txt', "attachment; filename=\"q%22%5C.txt\"; filename*=UTF-8''q%22%5C.txt"),
                            ("gr\u00fc\u00dfe", "attachment; filename=\"gr%C3%BC%C3%9Fe\"; filename*=UTF-8''gr%C3%BC%C3%9Fe"),
                            ("line\r\nX-Evil: 1", "attachment; filename=\"line%0D%0AX-Evil%3A%201\"; filename*=UTF-8''line%0D%0AX-Evil%3A%201")):
            path = f"{folder}/{name}"
            self.done(self.upload(metadata(path), file(b"odd")))
            reply = self.get(path)
            self.assertEqual((reply.body, reply.headers["content-disposition"]), (b"odd", shown))
            self.assertNotIn("x-evil", reply.headers)
            self.assertEqual(self.info(path)[path]["size"], 3)
        # What is no UTF-8 can be shown, not named.
        self.shell("cd %s; printf x > $(printf 'caf\\351')" % folder)
        shown = [one["path"] for one in self.ask("GET", "/files/search", path=folder, pattern="caf*").json]
        self.assertEqual(shown, [f"{folder}/caf\ufffd"])
        reply = self.ask("GET", f"/files/download?path={folder}/caf%E9")
        self.refused(reply, 400, "INVALID_REQUEST_BODY")


if __name__ == "__main__":
    unittest.main()
