"""Files of a sandbox over HTTP (protocol.md, 5): bytes, conditions, pieces, lists, changes, archives, watching; and what
code inside may leave lying about: names of any bytes, links, FIFOs, sockets, devices, a hundred thousand entries."""
import base64
import gzip
import hashlib
import http.client
import io
import json
import os
import socket
import sys
import tarfile
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import Forge  # noqa: E402


def quoted(path):
    return urllib.parse.quote(path, safe="/")


class Remote:
    """The files of one sandbox."""

    def __init__(self, deployment, grant):
        self.deployment, self.grant, self.base = deployment, grant, grant["endpoints"]["http"]

    def ask(self, method, path, query="", body=None, kind="files", **more):
        url = f"{self.base}/{kind}{quoted(path)}" + ("?" + query if query else "")
        more.setdefault("token", self.grant["token"])
        return self.deployment.request(method, url, body, **more)

    def put(self, path, data, query="", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("PUT", path, query, data, headers=named)

    def get(self, path, query="", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("GET", path, query, headers=named)

    def op(self, path, op, **body):
        headers = {"If-Match": body.pop("if_match")} if "if_match" in body else {}
        return self.ask("POST", path, "op=" + op, body, headers=headers)

    def names(self, path, query="list=1"):
        reply = self.get(path, query)
        assert reply.status == 200, reply
        return [entry["path"] for entry in reply.json["entries"] if entry["path"]]


class Watch:
    """An SSE stream on its own connection."""

    def __init__(self, remote, path, query="", token=None):
        parts = urllib.parse.urlsplit(f"{remote.base}/watch{quoted(path)}" + ("?" + query if query else ""))
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        self.connection.request("GET", parts.path + ("?" + parts.query if parts.query else ""),
                                headers={"Authorization": "Bearer " + (token or remote.grant["token"])})
        self.answer = self.connection.getresponse()

    def event(self):
        """The next one but keepalive; None at the end."""
        while True:
            lines = []
            while True:
                line = self.answer.readline()
                if not line:
                    return None
                if line == b"\n":
                    break
                lines.append(line.decode())
            name, data = lines[0].strip()[len("event: "):], json.loads(lines[1][len("data: "):])
            assert name == data["type"], lines
            if name != "keepalive":
                return data

    def until(self, wanted):
        seen = []
        while True:
            event = self.event()
            seen.append(event)
            if event is None or wanted(event):
                return seen

    def close(self):
        self.connection.close()


@needs_root
class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("files", resources={"memory_mb": 512, "pids": 128, "disk_mb": 256})
        cls.remote = Remote(cls.deployment, cls.grant)

    def shell(self, command, **more):
        return self.deployment.shell(self.grant, command, **more)

    def fresh(self):
        """A folder of this test alone."""
        path = "/workspace/" + self.id().rsplit(".", 1)[-1]
        self.shell(f"rm -rf {path}; mkdir -p {path}")
        return path

    def error(self, reply, status, code, text=""):
        self.assertEqual((reply.status, reply.code), (status, code), reply)
        self.assertIn(text, reply.json["error"]["message"])

    # ---- bytes ----

    def test_written_and_read(self):
        path = self.fresh() + "/a/b/c.txt"
        made = self.remote.put(path, b"hello world")
        self.assertEqual(made.status, 201, made)
        entry = made.json
        self.assertEqual((entry["name"], entry["path"], entry["type"], entry["size"], entry["mode"], entry["uid"]),
                         ("c.txt", path, "file", 11, "0644", 1000))
        got = self.remote.get(path)
        self.assertEqual((got.status, got.body), (200, b"hello world"))
        self.assertEqual(got.headers["etag"], entry["etag"])
        self.assertEqual(got.headers["content-type"], "application/octet-stream")
        self.assertEqual(got.headers["accept-ranges"], "bytes")
        self.assertEqual(got.headers["x-content-type-options"], "nosniff")
        self.assertEqual(got.headers["content-security-policy"], "sandbox")
        head = self.remote.ask("HEAD", path)
        self.assertEqual((head.status, head.body, head.headers["content-length"], head.headers["etag"]),
                         (200, b"", "11", entry["etag"]))
        again = self.remote.put(path, b"")
        self.assertEqual((again.status, again.json["size"]), (200, 0))
        self.assertEqual(self.remote.get(path).body, b"")
        self.error(self.remote.get(path + "x"), 404, "NOT_FOUND")
        self.error(self.remote.get(path + "/x"), 404, "NOT_FOUND")
        self.error(self.remote.put(path + "/x", b"y"), 404, "NOT_FOUND")
        self.error(self.remote.get(self.fresh()), 409, "CONFLICT", "?list=1")
        self.error(self.remote.put(self.fresh(), b"x"), 409, "CONFLICT", "folder")

    def test_mode_time_and_owner(self):
        path = self.fresh() + "/f"
        entry = self.remote.put(path, b"x", "mode=0755&mtime_ns=1000000000123456789").json
        self.assertEqual((entry["mode"], entry["mtime_ns"], entry["mtime"]),
                         ("0755", 1000000000123456789, "2001-09-09T01:46:40.123Z"))
        self.assertEqual(self.remote.put(path, b"y").json["mode"], "0755", "a replaced file keeps its mode")
        self.assertEqual(self.remote.put(path, b"y", "mode=600").json["mode"], "0600")
        self.assertEqual(self.shell(f"stat -c '%a %U' {path}").strip(), "600 user")
        self.error(self.remote.put(path, b"x", "mode=9"), 400, "INVALID_REQUEST", "mode")
        self.error(self.remote.put("/etc/new", b"x"), 403, "FORBIDDEN")
        self.error(self.remote.put(f"{self.fresh()}/no/f", b"x", "parents=0"), 404, "NOT_FOUND")

    def test_conditions(self):
        path = self.fresh() + "/f"
        first = self.remote.put(path, b"one", If_None_Match="*")
        self.assertEqual(first.status, 201, first)
        tag = first.json["etag"]
        self.error(self.remote.put(path, b"two", If_None_Match="*"), 412, "PRECONDITION_FAILED")
        second = self.remote.put(path, b"two", If_Match=tag)
        self.assertEqual(second.status, 200)
        self.error(self.remote.put(path, b"three", If_Match=tag), 412, "PRECONDITION_FAILED")
        self.error(self.remote.put(path, b"three", If_Match='"other"'), 412, "PRECONDITION_FAILED")
        self.error(self.remote.put(path + "x", b"three", If_Match="*"), 412, "PRECONDITION_FAILED")
        self.assertEqual(self.remote.put(path, b"three", If_Match="*").status, 200)
        got = self.remote.get(path)
        tag = got.headers["etag"]
        self.assertEqual(self.remote.get(path, If_None_Match=tag).status, 304)
        self.assertEqual(self.remote.get(path, If_None_Match=tag).body, b"")
        self.assertEqual(self.remote.get(path, If_None_Match='"x"').status, 200)
        self.assertEqual(self.remote.get(path, If_Modified_Since=got.headers["last-modified"]).status, 304)
        self.error(self.remote.get(path, If_Match='"x"'), 412, "PRECONDITION_FAILED")
        self.error(self.remote.ask("DELETE", path, headers={"If-Match": '"1-2-3-4"'}), 412, "PRECONDITION_FAILED")
        self.assertEqual(self.remote.ask("DELETE", path, headers={"If-Match": tag}).status, 204)
        self.error(self.remote.get(path), 404, "NOT_FOUND")

    def test_two_writers_with_one_tag(self):
        path = self.fresh() + "/f"
        tag = self.remote.put(path, b"0").json["etag"]
        answers = []
        threads = [threading.Thread(target=lambda n=n: answers.append(
            self.remote.put(path, b"%d" % n * 1000, If_Match=tag).status)) for n in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(answers), [200] + [412] * 7)

    def test_ranges(self):
        path = self.fresh() + "/f"
        tag = self.remote.put(path, b"0123456789").json["etag"]
        for asked, status, body, told in (("bytes=2-4", 206, b"234", "bytes 2-4/10"), ("bytes=7-", 206, b"789", "bytes 7-9/10"),
                                          ("bytes=-2", 206, b"89", "bytes 8-9/10"), ("bytes=0-99", 206, b"0123456789", "bytes 0-9/10"),
                                          ("bytes=0-1,3-4", 200, b"0123456789", None), ("lines=1-2", 200, b"0123456789", None)):
            got = self.remote.get(path, Range=asked)
            self.assertEqual((got.status, got.body, got.headers.get("content-range")), (status, body, told), asked)
        late = self.remote.get(path, Range="bytes=10-")
        self.error(late, 416, "RANGE_NOT_SATISFIABLE")
        self.assertEqual(late.headers["content-range"], "bytes */10")
        self.assertEqual(self.remote.get(path, Range="bytes=2-4", If_Range=tag).status, 206)
        self.assertEqual(self.remote.get(path, Range="bytes=2-4", If_Range='"x"').status, 200)
        head = self.remote.ask("HEAD", path, headers={"Range": "bytes=2-4"})
        self.assertEqual((head.status, head.headers["content-length"]), (206, "3"))

    def test_what_proc_shows(self):
        got = self.remote.get("/proc/version")
        self.assertEqual(got.status, 200, got)
        self.assertIn(b"Linux", got.body)
        self.assertEqual(self.remote.ask("HEAD", "/proc/version").status, 200)
        self.assertNotIn("etag", got.headers)

    def test_chunked_bodies_and_curl_like_expect(self):
        path = self.fresh() + "/f"
        parts = urllib.parse.urlsplit(self.remote.base + "/files" + path)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        blocks = [os.urandom(n) for n in (1, 70000, 300000, 5)]
        connection.request("PUT", parts.path, iter(blocks), {"Authorization": "Bearer " + self.grant["token"]},
                           encode_chunked=True)
        self.assertEqual(connection.getresponse().status, 201)
        connection.close()
        self.assertEqual(self.remote.get(path).body, b"".join(blocks))

    def test_a_writer_that_leaves_leaves_nothing(self):
        folder = self.fresh()
        self.remote.put(folder + "/f", b"before")
        parts = urllib.parse.urlsplit(self.remote.base)
        for size in (10, 100000):
            with socket.create_connection((parts.hostname, parts.port), 10) as left:
                left.sendall((f"PUT {parts.path}/files{folder}/f HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                              f"Authorization: Bearer {self.grant['token']}\r\n\r\n").encode() + b"x" * size)
                time.sleep(0.3)
        until = time.monotonic() + 5
        while len(self.remote.names(folder)) > 1 and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(self.remote.names(folder), ["f"])
        self.assertEqual(self.remote.get(folder + "/f").body, b"before")

    def test_a_full_disk(self):
        folder = self.fresh()
        self.remote.put(folder + "/f", b"before")
        grant = self.deployment.negotiate("full", resources={"memory_mb": 256, "disk_mb": 32})
        small = Remote(self.deployment, grant)
        self.assertEqual(small.put("/workspace/f", b"before").status, 201)
        parts = urllib.parse.urlsplit(small.base + "/files/workspace/f")
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        self.addCleanup(connection.close)
        try:
            connection.request("PUT", parts.path, b"x" * (40 << 20), {"Authorization": "Bearer " + grant["token"]})
        except OSError:
            pass  # it is refused before all of it was sent
        answer = connection.getresponse()
        self.assertEqual((answer.status, json.loads(answer.read())["error"]["code"]), (507, "DISK_FULL"))
        self.assertEqual(small.get("/workspace/f").body, b"before")
        self.assertEqual(small.names("/workspace"), ["f"])

    # ---- pieces ----

    def piece(self, path, data, start, total, query=""):
        return self.remote.put(path, data, query, Content_Range=f"bytes {start}-{start + len(data) - 1}/{total}")

    def received(self, path, total, query=""):
        reply = self.remote.put(path, b"", query, Content_Range=f"bytes */{total}")
        self.assertEqual((reply.status, reply.json["total"]), (200, total), reply)
        return reply.json["received"]

    def test_pieces(self):
        path, data = self.fresh() + "/f", os.urandom(300000)
        self.assertEqual(self.received(path, 300000), 0)
        first = self.piece(path, data[:100000], 0, 300000)
        self.assertEqual((first.status, first.json), (202, {"received": 100000, "total": 300000}))
        self.error(self.remote.get(path), 404, "NOT_FOUND")
        beyond = self.piece(path, data[200000:], 200000, 300000)
        self.error(beyond, 416, "RANGE_NOT_SATISFIABLE", "100000")
        self.assertEqual(beyond.headers["content-range"], "bytes */100000")
        overlap = self.piece(path, data[50000:200000], 50000, 300000)
        self.assertEqual(overlap.json["received"], 200000)
        last = self.piece(path, data[200000:], 200000, 300000)
        self.assertEqual((last.status, last.json["size"]), (201, 300000))
        self.assertEqual(self.remote.get(path).body, data)
        self.assertEqual(self.remote.names(os.path.dirname(path)), ["f"])
        self.error(self.remote.put(path, b"abc", Content_Range="bytes 0-3/10"), 400, "INVALID_REQUEST", "names 4 bytes")
        self.error(self.remote.put(path, b"abc", Content_Range="bytes 3-0/10"), 400, "INVALID_REQUEST", "Content-Range")
        self.error(self.remote.put(path, b"abc", "upload=a/b", Content_Range="bytes 0-2/10"), 400, "INVALID_REQUEST", "upload")
        self.error(self.remote.put(path, b"abc", "upload=a"), 400, "INVALID_REQUEST", "upload")

    def test_pieces_under_two_names(self):
        path = self.fresh() + "/f"
        self.assertEqual(self.piece(path, b"aa", 0, 4, "upload=one").status, 202)
        self.assertEqual(self.piece(path, b"bb", 0, 4, "upload=two").status, 202)
        self.assertEqual(self.piece(path, b"BB", 2, 4, "upload=two").status, 201)
        self.assertEqual(self.remote.get(path).body, b"bbBB")
        self.assertEqual(self.piece(path, b"AA", 2, 4, "upload=one&mode=0600").json["mode"], "0600")
        self.assertEqual(self.remote.get(path).body, b"aaAA")

    def test_a_piece_cut_off_keeps_what_came(self):
        path, data = self.fresh() + "/f", os.urandom(1 << 20)
        parts = urllib.parse.urlsplit(self.remote.base)
        with socket.create_connection((parts.hostname, parts.port), 10) as left:
            left.sendall((f"PUT {parts.path}/files{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
                          f"Content-Range: bytes 0-{len(data) - 1}/{len(data)}\r\n"
                          f"Authorization: Bearer {self.grant['token']}\r\n\r\n").encode() + data[:700000])
            time.sleep(0.5)
        time.sleep(0.3)
        there = self.received(path, len(data))
        self.assertGreater(there, 500000)
        self.assertLessEqual(there, 700000)
        self.assertEqual(self.piece(path, data[there:], there, len(data)).status, 201)
        self.assertEqual(self.remote.get(path).body, data)

    # ---- lists ----

    def test_lists(self):
        path = self.fresh()
        self.shell("mkdir -p b/d; echo 1 > a; echo 22 > b/c; echo 333 > b/d/e; ln -s ../a b/link; ln -s /nowhere dangling",
                   cwd=path)
        reply = self.remote.get(path, "list=1")
        listed = reply.json
        self.assertEqual((listed["path"], listed["count"], listed["truncated"]), (path, 3, False))
        self.assertEqual([e["path"] for e in listed["entries"]], ["", "a", "b", "dangling"])
        self.assertEqual((listed["entries"][0]["type"], listed["entries"][3]["type"], listed["entries"][3]["target"]),
                         ("folder", "symlink", "/nowhere"))
        self.assertEqual(self.remote.names(path, "list=1&depth=2"), ["a", "b", "b/c", "b/d", "b/link", "dangling"])
        self.assertEqual(self.remote.names(path, "list=1&depth=64"),
                         ["a", "b", "b/c", "b/d", "b/d/e", "b/link", "dangling"])
        cut = self.remote.get(path, "list=1&depth=9&limit=2").json
        self.assertEqual((cut["count"], cut["truncated"]), (2, True))
        lines = self.remote.get(path, "list=1", Accept="application/x-ndjson")
        self.assertTrue(lines.headers["content-type"].startswith("application/x-ndjson"))
        self.assertEqual([e.get("path") for e in lines.events], ["", "a", "b", "dangling", None])
        self.assertEqual((lines.events[-1]["type"], lines.events[-1]["count"]), ("done", 3))
        self.error(self.remote.get(path + "/a", "list=1"), 404, "NOT_FOUND")
        self.error(self.remote.get(path + "/x", "list=1"), 404, "NOT_FOUND")
        for query in ("list=1&depth=0", "list=1&depth=65", "list=1&limit=0", "list=2", "list=1&stat=1", "list=1&wrong=1",
                      "depth=2", "stat=1&depth=1", "glob=", "grep="):
            self.error(self.remote.get(path, query), 400, "INVALID_REQUEST")

    def test_stat(self):
        path = self.fresh()
        self.shell("echo 1 > f; ln -s f link; ln f hard", cwd=path)
        one = self.remote.get(path + "/f", "stat=1").json
        self.assertEqual((one["path"], one["type"], one["size"], one["links"]), (path + "/f", "file", 2, 2))
        self.assertEqual(one["etag"], self.remote.get(path + "/f").headers["etag"])
        link = self.remote.get(path + "/link", "stat=1").json
        self.assertEqual((link["type"], link["target"]), ("symlink", "f"))
        followed = self.remote.get(path + "/link", "stat=1&follow=1").json
        self.assertEqual((followed["type"], followed["etag"]), ("file", one["etag"]))
        top = self.remote.get("/", "stat=1").json
        self.assertEqual((top["path"], top["type"]), ("/", "folder"))
        self.assertNotIn("name", top)

    def test_glob_and_grep(self):
        path = self.fresh()
        self.shell("mkdir -p x/y .h; echo 'one Two' > a.txt; echo 'two' > x/b.txt; printf 'a\\0two' > x/y/bin; "
                   "echo 'TWO(' > x/y/c.log; echo two > .h/d.txt", cwd=path)
        self.assertEqual(self.remote.names(path, "glob=*.txt"), ["a.txt"])
        self.assertEqual(self.remote.names(path, "glob=**/*.txt"), ["a.txt", "x/b.txt"])
        self.assertEqual(self.remote.names(path, "glob=x/?.txt"), ["x/b.txt"])
        self.assertEqual(self.remote.names(path, "glob=.h/*"), [".h/d.txt"])

        def found(query):
            reply = self.remote.get(path, query)
            self.assertEqual(reply.status, 200, reply)
            return {(m["path"], m["line"], m["column"]) for m in reply.json["matches"]}
        self.assertIn(("x/b.txt", 1, 1), found("grep=two"))
        self.assertEqual(found("grep=t[w]o&glob=x/*"), {("x/b.txt", 1, 1)})
        self.assertIn(("a.txt", 1, 5), found("grep=two&ignore_case=1"))
        self.assertEqual(found("grep=TWO(&fixed=1"), {("x/y/c.log", 1, 1)})
        self.assertNotIn("x/y/bin", {m[0] for m in found("grep=two")})
        self.error(self.remote.get(path, "grep=%28"), 400, "INVALID_REQUEST")
        lines = self.remote.get(path, "grep=two&limit=1", Accept="application/x-ndjson").events
        self.assertEqual([line["type"] for line in lines], ["match", "done"])
        self.assertTrue(lines[1]["truncated"])

    def test_a_hundred_thousand_entries(self):
        grant = self.deployment.negotiate("crowded", resources={"memory_mb": 1536, "disk_mb": 900})  # for the inodes
        remote, path = Remote(self.deployment, grant), "/workspace/crowd"
        self.deployment.shell(grant, f"mkdir {path}; cd {path}; python3 -c \"import os\nfor n in range(100000): "
                              "os.close(os.open('%06d' % n, os.O_CREAT))\"", timeout=60)
        began = time.monotonic()
        reply = remote.get(path, "list=1")
        took = time.monotonic() - began
        self.assertEqual((reply.status, len(reply.json["entries"]), reply.json["count"]), (200, 100001, 100000))
        self.assertEqual([e["name"] for e in reply.json["entries"][1:]], [f"{n:06}" for n in range(100000)])
        self.assertEqual(len(remote.names(path, "glob=*7")), 1000)
        self.assertEqual(remote.get(path, "glob=*7").json["truncated"], True)
        self.assertEqual(remote.ask("DELETE", path, "recursive=1").status, 204)
        print(f"files: 100,000 entries listed in {took:.2f} s")

    def test_a_reader_that_stops_costs_no_memory(self):
        path = self.fresh()
        self.shell("python3 -c \"import os\nfor n in range(20000): os.close(os.open('x' * 200 + '%06d' % n, os.O_CREAT))\"",
                   cwd=path, timeout=60)
        parts = urllib.parse.urlsplit(self.remote.base)
        pids = self.deployment.pids("parley-sandboxd")

        def resident():
            total = 0
            for pid in pids:
                with open(f"/proc/{pid}/statm") as statm:
                    total += int(statm.read().split()[1]) * 4096
            return total
        before, slow = resident(), []
        self.addCleanup(lambda: [one.close() for one in slow])
        for _ in range(10):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect((parts.hostname, parts.port))
            one.sendall((f"GET {parts.path}/files{path}?list=1 HTTP/1.1\r\nHost: x\r\n"
                         f"Authorization: Bearer {self.grant['token']}\r\n\r\n").encode())
            slow.append(one)
        time.sleep(2)
        grown = resident() - before
        if not self.is_sanitized(pids[0]):  # that keeps what was freed
            self.assertLess(grown, 20 << 20)
        self.assertEqual(self.remote.get("/workspace", "stat=1").status, 200)

    @staticmethod
    def is_sanitized(pid):
        with open(f"/proc/{pid}/maps") as maps:
            return "libasan" in maps.read()

    # ---- names of any bytes, and what is no file ----

    def test_names_that_are_not_utf8(self):
        folder = self.fresh()
        raw = os.fsencode(folder) + b"/\xff\xe4 %2F"
        self.assertEqual(self.remote.put(raw, b"x").status, 201)
        self.assertEqual(self.remote.get(raw).body, b"x")
        entry = self.remote.get(folder, "list=1").json["entries"][1]
        self.assertEqual(entry["name"], "\ufffd\ufffd %2F")
        self.assertEqual(base64.b64decode(entry["name_b64"]), b"\xff\xe4 %2F")
        self.assertEqual(base64.b64decode(entry["path_b64"]), b"\xff\xe4 %2F")
        stat = self.remote.get(raw, "stat=1").json
        self.assertEqual(base64.b64decode(stat["path_b64"]), raw)
        moved = self.remote.op(raw, "move", to_b64=base64.b64encode(raw + b"\xfe").decode())
        self.assertEqual(moved.status, 200, moved)
        self.assertEqual(base64.b64decode(moved.json["path_b64"]), raw + b"\xfe")
        self.assertEqual(self.remote.ask("DELETE", raw + b"\xfe").status, 204)
        newline = folder + "/a\nb\tc\"d"
        self.assertEqual(self.remote.put(newline, b"y").status, 201)
        self.assertEqual(self.remote.names(folder), ["a\nb\tc\"d"])

    def test_fifos_sockets_and_devices(self):
        path = self.fresh()
        self.shell("mkfifo fifo; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"; ln -s fifo link",
                   cwd=path)
        kinds = {e["path"]: e["type"] for e in self.remote.get(path, "list=1").json["entries"]}
        self.assertEqual((kinds["fifo"], kinds["sock"]), ("fifo", "socket"))
        self.assertEqual(self.remote.get("/dev/null", "stat=1").json["type"], "char_device")
        for name in ("fifo", "sock", "link"):
            began = time.monotonic()
            self.error(self.remote.get(f"{path}/{name}"), 409, "CONFLICT")
            self.error(self.remote.put(f"{path}/{name}", b"x"), 409, "CONFLICT")
            self.error(self.remote.op(f"{path}/{name}", "edit", old="a", new="b"), 409, "CONFLICT")
            self.assertLess(time.monotonic() - began, 5)
        self.error(self.remote.get("/dev/null"), 409, "CONFLICT")
        self.error(self.remote.get("/dev/zero"), 409, "CONFLICT")
        self.assertEqual(self.remote.get(path, "grep=x").json["matches"], [])
        self.assertEqual(self.remote.ask("DELETE", path, "recursive=1").status, 204)

    def test_a_leased_file(self):
        path = self.fresh() + "/f"
        self.remote.put(path, b"x")
        self.assertEqual(self.deployment.request(
            "POST", self.remote.base + "/exec",
            {"argv": ["python3", "-c", "import fcntl, os, signal, sys, time\n"
                      "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
                      f"f = os.open('{path}', os.O_RDWR)\nfcntl.fcntl(f, 1024, 1)\n"
                      "open('/workspace/leased', 'w').close()\ntime.sleep(20)"], "id": "lease", "detach": True},
            token=self.grant["token"]).status, 201)
        until = time.monotonic() + 10
        while self.remote.get("/workspace/leased").status != 200 and time.monotonic() < until:
            time.sleep(0.05)
        began = time.monotonic()
        self.error(self.remote.get(path), 409, "CONFLICT")
        self.assertLess(time.monotonic() - began, 5)
        self.deployment.request("DELETE", self.remote.base + "/processes/lease", token=self.grant["token"])

    def test_links(self):
        path = self.fresh()
        self.shell("echo old > f; ln -s f link; ln -s link link2; ln -s nowhere dangling; ln -s loop loop", cwd=path)
        self.assertEqual(self.remote.get(path + "/link2").body, b"old\n")
        self.assertEqual(self.remote.put(path + "/link2", b"new").status, 200)
        self.assertEqual(self.remote.get(path + "/f").body, b"new")
        self.assertEqual(self.remote.get(path + "/link2", "stat=1").json["type"], "symlink")
        self.assertEqual(self.remote.put(path + "/dangling", b"made").status, 201)
        self.assertEqual(self.remote.get(path + "/nowhere").body, b"made")
        self.assertEqual(self.remote.get(path + "/loop").status, 400)
        self.assertEqual(self.remote.ask("DELETE", path + "/link").status, 204)
        self.assertEqual(self.remote.get(path + "/f").body, b"new")

    # ---- changes ----

    def test_delete(self):
        path = self.fresh()
        self.shell("mkdir -p d/e; echo x > d/e/f; ln -s /etc d/e/etc; echo x > g", cwd=path)
        self.error(self.remote.ask("DELETE", path + "/d"), 409, "CONFLICT", "empty")
        self.assertEqual(self.remote.ask("DELETE", path + "/d", "recursive=1").status, 204)
        self.assertEqual(self.remote.ask("DELETE", path + "/g").status, 204)
        self.error(self.remote.ask("DELETE", path + "/g"), 404, "NOT_FOUND")
        self.error(self.remote.ask("DELETE", "/"), 403, "FORBIDDEN")
        self.error(self.remote.ask("DELETE", path, "recursively=1"), 400, "INVALID_REQUEST", "recursively")
        self.assertEqual(self.remote.get("/etc/passwd").status, 200)

    def test_mkdir(self):
        path = self.fresh()
        made = self.remote.op(path + "/a/b", "mkdir", mode="0700")
        self.assertEqual((made.status, made.json["type"], made.json["mode"]), (201, "folder", "0700"))
        self.assertEqual(self.remote.op(path + "/a/b", "mkdir").status, 200)
        self.error(self.remote.op(path + "/x/y", "mkdir", parents=False), 404, "NOT_FOUND")
        self.remote.put(path + "/f", b"")
        self.error(self.remote.op(path + "/f", "mkdir"), 409, "CONFLICT")
        for wrong in ({"mode": 755}, {"mode": "rwx"}, {"parents": 1}, {"surprise": 1}):
            self.error(self.remote.op(path + "/q", "mkdir", **wrong), 400, "INVALID_REQUEST", next(iter(wrong)))
        self.error(self.remote.op(path + "/q", "frob"), 400, "INVALID_REQUEST", "op")
        self.error(self.remote.ask("POST", path + "/q"), 400, "INVALID_REQUEST", "op")

    def test_move_and_copy(self):
        path = self.fresh()
        self.shell("echo 1 > a; mkdir d; echo 2 > d/b; chmod 640 a; ln -s a d/l", cwd=path)
        moved = self.remote.op(path + "/a", "move", to=path + "/c")
        self.assertEqual((moved.status, moved.json["path"], moved.json["mode"]), (200, path + "/c", "0640"))
        self.error(self.remote.get(path + "/a"), 404, "NOT_FOUND")
        self.error(self.remote.op(path + "/c", "move", to=path + "/d/b"), 409, "CONFLICT")
        self.assertEqual(self.remote.op(path + "/c", "move", to=path + "/d/b", overwrite=True).status, 200)
        self.assertEqual(self.remote.get(path + "/d/b").body, b"1\n")
        copied = self.remote.op(path + "/d/b", "copy", to=path + "/e")
        self.assertEqual((copied.status, copied.json["mode"]), (200, "0640"))
        self.error(self.remote.op(path + "/d/b", "copy", to=path + "/e"), 409, "CONFLICT")
        self.assertNotEqual(self.remote.op(path + "/d", "copy", to=path + "/d2").status, 200)
        self.assertEqual(self.remote.op(path + "/d", "copy", to=path + "/d2", recursive=True).status, 200)
        self.assertEqual(self.remote.names(path + "/d2"), ["b", "l"])
        self.assertEqual(self.remote.get(path + "/d2/l", "stat=1").json["target"], "a")
        self.error(self.remote.op(path + "/d", "move", to=path + "/d/in"), 400, "INVALID_REQUEST")
        for wrong in ({}, {"to": "relative"}, {"to": "/a/../b"}, {"to": "/a//b"}, {"to": 1}, {"to": "/a", "to_b64": "L2E="},
                      {"to_b64": "?"}, {"to_b64": "L2EA"}, {"to": "/" + "x" * 5000}):
            self.error(self.remote.op(path + "/d", "move", **wrong), 400, "INVALID_REQUEST")
        self.error(self.remote.op(path + "/nope", "move", to=path + "/z"), 404, "NOT_FOUND")
        self.error(self.remote.op("/", "move", to=path + "/z"), 403, "FORBIDDEN")

    def test_chmod(self):
        path = self.fresh() + "/f"
        self.remote.put(path, b"x")
        self.assertEqual(self.remote.op(path, "chmod", mode="0755").json["mode"], "0755")
        self.error(self.remote.op(path, "chmod"), 400, "INVALID_REQUEST", "mode")
        self.error(self.remote.op("/etc/passwd", "chmod", mode="0777"), 403, "FORBIDDEN")

    def test_edit(self):
        path = self.fresh() + "/f"
        tag = self.remote.put(path, "eins zwei zwei drei ä".encode()).json["etag"]
        done = self.remote.op(path, "edit", old="eins", new="1", if_match=tag)
        self.assertEqual((done.status, done.json["replaced"]), (200, 1), done)
        self.assertEqual(done.headers["etag"], done.json["etag"])
        self.error(self.remote.op(path, "edit", old="1", new="2", if_match=tag), 412, "PRECONDITION_FAILED")
        self.error(self.remote.op(path, "edit", old="zwei", new="2"), 409, "CONFLICT", "2")
        self.error(self.remote.op(path, "edit", old="vier", new="4"), 409, "CONFLICT")
        self.assertEqual(self.remote.op(path, "edit", old="zwei", new="2", all=True).json["replaced"], 2)
        both = self.remote.op(path, "edit", edits=[{"old": "1", "new": "eins"}, {"old": "ä", "new": ""}])
        self.assertEqual(both.json["replaced"], 2)
        self.assertEqual(self.remote.get(path).body, b"eins 2 2 drei ")
        self.error(self.remote.op(path, "edit", edits=[{"old": "eins", "new": "x"}, {"old": "none", "new": ""}]), 409, "CONFLICT")
        self.assertEqual(self.remote.get(path).body, b"eins 2 2 drei ", "all or nothing")
        for wrong in ({}, {"old": "", "new": "x"}, {"old": "a"}, {"edits": []}, {"edits": [1]}, {"old": "a", "new": "b", "x": 1},
                      {"edits": [{"old": "a", "new": "b"}], "old": "a"}, {"edits": [{"old": "a", "new": "b", "y": 1}]}):
            self.error(self.remote.op(path, "edit", **wrong), 400, "INVALID_REQUEST")
        self.error(self.remote.op(path, "edit", old="x", new="y" * (2 << 20)), 413, "TOO_LARGE")

    def test_edits_that_may_miss(self):
        path = self.fresh() + "/f"
        tag = self.remote.put(path, b"one two one").json["etag"]
        missed = self.remote.op(path, "edit", old="three", new="3", optional=True)
        self.assertEqual((missed.status, missed.json["replaced"], missed.json["etag"]), (200, 0, tag), missed)
        self.error(self.remote.op(path, "edit", old="one", new="1", optional=True), 409, "CONFLICT")
        self.assertEqual(self.remote.op(path, "edit", old="one", new="1", all=True, optional=True).json["replaced"], 2)

    def test_owners_by_name(self):
        path = self.fresh() + "/f"
        user, group = self.shell("id -un; id -gn").split()
        entry = self.remote.put(path, b"x", f"owner={user}&group={group}").json
        self.assertEqual((entry["owner"], entry["group"], entry["uid"]), (user, group, 1000))
        self.assertLess(abs(time.time() - time.mktime(time.strptime(entry["ctime"][:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone), 600)
        self.assertEqual(self.remote.op(path, "chmod", owner=user).status, 200)
        self.assertEqual(self.remote.op(path + "d", "mkdir", group="1000").status, 201)
        self.error(self.remote.op(path, "chmod", owner="root"), 403, "FORBIDDEN")
        self.error(self.remote.op(path, "chmod", owner="nobody-knows"), 400, "INVALID_REQUEST", "owner")
        for wrong in ({"owner": ""}, {"owner": 5}, {"group": "x" * 65}, {}):
            self.error(self.remote.op(path, "chmod", **wrong), 400, "INVALID_REQUEST")
        self.error(self.remote.put(path, b"x", "owner="), 400, "INVALID_REQUEST")

    def test_names_and_lines(self):
        path = self.fresh()
        self.shell("mkdir -p a/.b s.py; printf 'one\r\ntwo\nthree' > a/.b/x.py; touch s.py/y.py z", cwd=path)
        self.assertEqual(self.remote.names(path, "glob=*.py&by_name=1"), ["a/.b/x.py", "s.py", "s.py/y.py"])
        self.assertEqual(self.remote.names(path, "glob=*.py&by_name=1&no_folders=1"), ["a/.b/x.py", "s.py/y.py"])
        self.assertEqual(self.remote.names(path, "glob=**&no_folders=1"), ["s.py/y.py", "z"])
        for query, lines in (("line=2", b"two\nthree"), ("lines=1", b"one"), ("line=2&lines=1", b"two"), ("line=9", b"")):
            reply = self.remote.get(path + "/a/.b/x.py", query)
            self.assertEqual((reply.status, reply.body, reply.headers["content-type"]), (200, lines, "text/plain"))
        for query in ("line=0", "lines=0", "lines=x", "line=1&list=1"):
            self.error(self.remote.get(path + "/z", query), 400, "INVALID_REQUEST")
        self.error(self.remote.get(path + "/z", "line=1", Range="bytes=0-1"), 400, "INVALID_REQUEST")
        self.error(self.remote.ask("DELETE", path + "/s.py", "no_folders=1"), 409, "CONFLICT")
        self.assertEqual(self.remote.ask("DELETE", path + "/z", "no_folders=1").status, 204)

    # ---- batches ----

    def batch(self, *ops, **more):
        return self.remote.ask("POST", "", "", {"ops": list(ops)}, kind="batch", **more)

    def test_batches(self):
        path = self.fresh()
        done = self.batch({"op": "mkdir", "path": path + "/d", "mode": "0700"}, {"op": "mkdir", "path": path + "/d"},
                          {"op": "stat", "path": path + "/d"})
        self.assertEqual(done.status, 200, done)
        self.assertEqual([(one["op"], one["path"], one.get("created")) for one in done.json["results"]],
                         [("mkdir", path + "/d", True), ("mkdir", path + "/d", False), ("stat", path + "/d", None)])
        self.remote.put(path + "/f", b"a a")
        done = self.batch({"op": "edit", "path": path + "/f", "old": "a", "new": "b", "all": True},
                          {"op": "copy", "path": path + "/f", "to": path + "/d/g"},
                          {"op": "move", "path": path + "/d/g", "to": path + "/h"},
                          {"op": "chmod", "path": path + "/h", "mode": "0600"}, {"op": "delete", "path": path + "/d"})
        self.assertEqual([one.get("replaced") for one in done.json["results"]], [2, None, None, None, None], done)
        self.assertEqual((self.remote.get(path + "/h").body, self.remote.names(path)), (b"b b", ["f", "h"]))
        failed = self.batch({"op": "delete", "path": path + "/f"}, {"op": "delete", "path": path + "/none"},
                            {"op": "delete", "path": path + "/h"})
        self.error(failed, 404, "NOT_FOUND", "op 2")
        self.assertEqual((failed.json["results"], self.remote.names(path)), ([{"op": "delete"}], ["h"]))
        # One that cannot be read, or is not allowed: nothing is done.
        token = Forge(self.deployment, self.grant).token(scope=f"fs:rw@{path}")
        first = {"op": "delete", "path": path + "/h"}
        for second, status in (({"op": "chmod", "path": path + "/h", "mode": "9"}, 400), ({"op": "delete", "path": "relative"}, 400),
                               ({"op": "stat", "path": "/etc"}, 403), ({"op": "sing", "path": path}, 400), (1, 400),
                               ({"op": "move", "path": path + "/h", "to": "/tmp/h"}, 403), ({"op": "delete", "path": path}, 403),
                               ({"op": "stat", "path": path, "surprise": 1}, 400), ({"op": "stat"}, 400)):
            reply = self.batch(first, second, token=token)
            self.assertEqual(reply.status, status, (second, reply))
            self.assertIn("op 2", reply.json["error"]["message"])
        reader = Forge(self.deployment, self.grant).token(scope="fs:ro")
        self.assertEqual(self.batch(first, token=reader).status, 403)
        self.assertEqual(self.batch({"op": "stat", "path": path + "/h"}, token=reader).status, 200)
        self.error(self.batch(), 400, "INVALID_REQUEST")
        self.error(self.batch(*[first] * 1001), 400, "INVALID_REQUEST")
        self.error(self.batch(first, headers={"If-Match": "*"}), 400, "INVALID_REQUEST")
        self.assertEqual(self.remote.names(path), ["h"])

    # ---- archives ----

    def test_archives(self):
        path = self.fresh()
        self.shell("mkdir -p in/d; echo 1 > in/a; echo 2 > in/d/b; ln -s a in/l; chmod 750 in/a", cwd=path)
        packed = self.remote.ask("GET", path + "/in", kind="archive")
        self.assertEqual((packed.status, packed.headers["content-type"]), (200, "application/gzip"))
        self.assertEqual(packed.headers["x-content-type-options"], "nosniff")
        with tarfile.open(fileobj=io.BytesIO(packed.body)) as tar:
            names = {os.path.normpath(name) for name in tar.getnames()}
        self.assertLessEqual({"a", "d", "d/b", "l"}, names)
        plain = self.remote.ask("GET", path + "/in", "format=tar", kind="archive")
        self.assertEqual(plain.headers["content-type"], "application/x-tar")
        for number, data in enumerate((packed.body, plain.body, gzip.compress(plain.body))):
            put = self.remote.ask("PUT", f"{path}/out{number}/x", body=data, kind="archive")
            self.assertEqual(put.status, 200, put)
            self.assertEqual(self.remote.get(f"{path}/out{number}/x/d/b").body, b"2\n")
            self.assertEqual(self.remote.get(f"{path}/out{number}/x/a", "stat=1").json["mode"], "0750")
        broken = self.remote.ask("PUT", path + "/broken", body=b"\x1f\x8b nonsense", kind="archive")
        self.assertGreaterEqual(broken.status, 400)
        self.assertIn("gzip", broken.json["error"]["message"])
        self.error(self.remote.ask("GET", path + "/nope", kind="archive"), 404, "NOT_FOUND")
        self.error(self.remote.ask("GET", path, "format=zip", kind="archive"), 400, "INVALID_REQUEST", "format")

    # ---- watching ----

    def test_watch(self):
        path = self.fresh()
        self.shell("mkdir sub", cwd=path)
        watch = Watch(self.remote, path, "recursive=1")
        self.addCleanup(watch.close)
        self.assertEqual((watch.answer.status, watch.answer.headers["content-type"]), (200, "text/event-stream"))
        self.shell("echo 1 > a; mv a b; rm b; mkdir new; echo 2 > sub/c; echo end > end", cwd=path)
        seen = watch.until(lambda e: e["type"] == "created" and e["path"] == "end")
        told = {(e["type"], e.get("path"), e.get("from")) for e in seen}
        for wanted in (("created", "a", None), ("moved", "b", "a"), ("deleted", "b", None), ("created", "new", None),
                       ("created", "sub/c", None)):
            self.assertIn(wanted, told)
        self.assertTrue([e for e in seen if e.get("path") == "new"][0]["folder"])
        self.shell(f"rm -rf {path}")
        self.assertEqual(watch.until(lambda e: e["type"] == "gone")[-1]["type"], "gone")
        self.assertIsNone(watch.event())
        self.error(self.remote.ask("GET", path + "/nope", kind="watch"), 404, "NOT_FOUND")

    def test_a_watch_ends_with_its_token(self):
        token = Forge(self.deployment, self.grant).token(exp=int(time.time()) + 2)
        reply = self.remote.ask("GET", self.fresh(), kind="watch", token=token)
        self.assertEqual(reply.status, 200, reply)
        last = reply.body.decode().strip().split("\n\n")[-1].splitlines()
        self.assertEqual((last[0], json.loads(last[1][len("data: "):])["code"]), ("event: error", "TOKEN_EXPIRED"))

    def test_a_watcher_keeps_the_sandbox(self):
        grant = self.deployment.negotiate("watched", idle_timeout=5)
        remote = Remote(self.deployment, grant)
        watch = Watch(remote, "/workspace")
        time.sleep(11)
        self.assertEqual(remote.put("/workspace/f", b"x").status, 201)
        self.assertEqual(watch.until(lambda e: e["type"] == "created")[-1]["path"], "f")
        watch.close()

    def test_a_slow_download_keeps_the_sandbox(self):
        grant = self.deployment.negotiate("slow", idle_timeout=5)
        parts = urllib.parse.urlsplit(grant["endpoints"]["http"])
        self.deployment.shell(grant, "head -c 33554432 /dev/zero > big")
        with socket.create_connection((parts.hostname, parts.port), 30) as slow:
            slow.sendall((f"GET {parts.path}/files/workspace/big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                          f"Authorization: Bearer {grant['token']}\r\n\r\n").encode())
            got = len(slow.recv(1000))
            time.sleep(11)
            while True:
                part = slow.recv(1 << 20)
                if not part:
                    break
                got += len(part)
        self.assertGreater(got, 33554432)
        self.assertEqual(self.deployment.exec(grant, cmd="true").status, 200)

    def test_a_revocation_cuts_all_at_once(self):
        grant = self.deployment.negotiate("revoked")
        remote = Remote(self.deployment, grant)
        parts = urllib.parse.urlsplit(remote.base)
        watch = Watch(remote, "/workspace")
        self.addCleanup(watch.close)
        upload = socket.create_connection((parts.hostname, parts.port), 20)
        self.addCleanup(upload.close)
        upload.sendall((f"PUT {parts.path}/files/workspace/f HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                        f"Authorization: Bearer {grant['token']}\r\n\r\n").encode() + b"x" * 1000)
        time.sleep(0.5)
        made = self.deployment.request("POST", "/revocations", {"jti": grant["jti"], "reason": "test"})
        self.assertIn(made.status, (200, 201, 202), made)
        last = watch.until(lambda e: e["type"] == "error")[-1]
        self.assertEqual(last["code"], "TOKEN_REVOKED")
        answer = b""
        while b"request_id" not in answer:
            got = upload.recv(65536)
            self.assertTrue(got, answer)
            answer += got
        self.assertTrue(answer.startswith(b"HTTP/1.1 401") and b"TOKEN_REVOKED" in answer, answer)
        self.error(remote.get("/workspace", "list=1"), 401, "TOKEN_REVOKED")
        fresh = Remote(self.deployment, self.deployment.negotiate("revoked"))
        self.assertEqual(fresh.names("/workspace"), [])

    def test_heads(self):
        parts = urllib.parse.urlsplit(self.remote.base)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
        self.addCleanup(connection.close)
        for path in ("/files/?list=1", "/files/etc?stat=1", "/files/etc/passwd", "/files/proc/version", "/files/etc?glob=*",
                     "/archive/etc", "/watch/workspace", "/files/etc"):
            connection.request("HEAD", parts.path + path, headers={"Authorization": "Bearer " + self.grant["token"]})
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (409 if path == "/files/etc" else 200, b""), path)

    # ---- many, and time ----

    def test_at_most_thirty_two_at_once(self):
        grant = self.deployment.negotiate("many", resources={"memory_mb": 512, "pids": 128})
        remote = Remote(self.deployment, grant)
        watches = [Watch(remote, "/workspace") for _ in range(32)]
        self.assertEqual({watch.answer.status for watch in watches}, {200})
        reply = remote.get("/workspace", "stat=1")
        self.error(reply, 503, "NO_CAPACITY", "32")
        self.assertIn("retry-after", reply.headers)
        watches.pop().close()
        until = time.monotonic() + 5
        while remote.get("/workspace", "stat=1").status == 503 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(remote.get("/workspace", "stat=1").status, 200)
        for watch in watches:
            watch.close()

    def test_a_killed_helper_is_replaced(self):
        self.assertEqual(self.remote.get("/workspace", "stat=1").status, 200)
        self.shell("pkill -9 -x init-files")
        seen = [self.remote.get("/workspace", "stat=1").status for _ in range(5)]
        self.assertEqual(seen, [200] * 5)

    def test_the_audit_tells_each_deed(self):
        path = self.fresh() + "/a b\n=c"
        self.remote.put(path, b"x")
        self.remote.op(path, "chmod", mode="0600")
        self.remote.op(path, "move", to=self.fresh() + "/z")
        self.remote.ask("DELETE", path)
        shown = quoted(path).replace("%3D", "=").replace("=", "%3D")
        until, actions = time.monotonic() + 10, {}
        while time.monotonic() < until and not {"write", "chmod", "move", "delete"} <= set(actions):
            reply = self.deployment.request("GET", "/audit?last=1000")
            for record in reply.json["records"]:
                if f"path={shown}" in record.get("detail", ""):
                    actions[record["action"]] = record
            time.sleep(0.2)
        self.assertLessEqual({"write", "chmod", "move", "delete"}, set(actions))
        self.assertIn("size=1", actions["write"]["detail"])
        self.assertIn(" to=/workspace/", actions["move"]["detail"])

    def failures_told(self, path, count):
        """{action: (status, detail)} of the records that say a deed at `path` failed."""
        until, told = time.monotonic() + 10, {}
        while time.monotonic() < until and len(told) < count:
            for record in self.deployment.request("GET", "/audit?last=1000").json["records"]:
                if record["outcome"] == "failed" and f"path={path}" in record["detail"]:
                    told[record["action"]] = (record["status"], record["detail"])
            time.sleep(0.2)
        return told

    def test_the_audit_tells_what_failed(self):
        path = self.fresh() + "/nothing/here"
        self.assertEqual(self.remote.put(path, b"x", "parents=0").status, 404)
        self.assertEqual(self.remote.ask("DELETE", path).status, 404)
        self.assertEqual(self.remote.op(path, "chmod", mode="0600").status, 404)
        self.assertEqual(self.remote.ask("PUT", path, body=b"no tar", kind="archive").status, 400)
        told = self.failures_told(path, 4)
        self.assertEqual({action: status for action, (status, _) in told.items()},
                         {"write": 404, "delete": 404, "chmod": 404, "archive.put": 400})
        self.assertIn(" mode=0600 error=", told["chmod"][1])

    def test_the_audit_tells_an_upload_that_was_broken_off(self):
        path = self.fresh() + "/half"
        parts = urllib.parse.urlsplit(self.remote.base)
        with socket.create_connection((parts.hostname, parts.port)) as client:
            client.sendall(f"PUT {parts.path}/files{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
                           f"Authorization: Bearer {self.grant['token']}\r\n\r\nabc".encode())
            time.sleep(0.3)
        told = self.failures_told(path, 1)
        self.assertEqual(told["write"][0], 0, told)


@needs_root
class Restarts(unittest.TestCase):
    """kill -9 of the whole data plane amid transfers."""

    def test_pieces_go_on_after_kill_9(self):
        deployment = Deployment()
        self.addCleanup(deployment.close)
        grant = deployment.negotiate("restart")
        remote, data = Remote(deployment, grant), os.urandom(3 << 20)
        size, sent, kills = len(data), 0, []
        while sent < size:
            part = data[sent:sent + (512 << 10)]
            if len(kills) < 3 and sent:
                kills.append(threading.Timer(0.002 * len(kills), deployment.kill, ["parley-sandboxd"]))
                kills[-1].start()
            try:
                reply = remote.put("/workspace/big", part, Content_Range=f"bytes {sent}-{sent + len(part) - 1}/{size}")
                if reply.status in (200, 201):
                    break
            except (OSError, http.client.HTTPException):
                pass
            if kills:
                kills[-1].join()
            sent = self.received(deployment, remote, size)
        self.assertEqual(len(kills), 3)
        for kill in kills:
            kill.join()
        deployment.wait_ready()
        self.assertEqual(hashlib.sha256(remote.get("/workspace/big").body).digest(), hashlib.sha256(data).digest())
        self.assertEqual(remote.names("/workspace"), ["big"])

    def received(self, deployment, remote, size):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                deployment.wait_ready()
                reply = remote.put("/workspace/big", b"", Content_Range=f"bytes */{size}")
                if reply.status == 200:
                    return reply.json["received"]
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.1)
        raise AssertionError("not back\n" + deployment.logs())


if __name__ == "__main__":
    unittest.main()
