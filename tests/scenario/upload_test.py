"""POST /upload: forms as curl and browsers send them become files of a sandbox, whole or not at all; and forms that mean
harm: names that lead out, a form without end, ten thousand parts, endless heads, halves."""
import http.client
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import Forge  # noqa: E402

BOUNDARY = "b0undary"


def part(name, data, field="file", extra=""):
    """One part as a browser writes it; no file name when `name` is None."""
    shown = "" if name is None else '; filename="%s"' % name
    return (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"{shown}\r\n{extra}\r\n').encode("utf-8", "surrogateescape") + \
        data + b"\r\n"


def form(*parts, end=b"--" + BOUNDARY.encode() + b"--\r\n"):
    return b"".join(parts) + end


@needs_root
class Upload(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("upload", resources={"memory_mb": 256, "disk_mb": 32})
        cls.base = cls.grant["endpoints"]["http"]

    def shell(self, command):
        return self.deployment.shell(self.grant, command)

    def fresh(self):
        path = "/workspace/" + self.id().rsplit(".", 1)[-1]
        self.shell(f"rm -rf {path}; mkdir -p {path}")
        return path

    def post(self, folder, body, query="", token=None, **headers):
        sent = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
                **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.deployment.request("POST", f"{self.base}/upload{folder}" + ("?" + query if query else ""), body,
                                       token=token or self.grant["token"], headers=sent)

    def error(self, reply, status, code, text=""):
        self.assertEqual((reply.status, reply.code), (status, code), reply)
        self.assertIn(text, reply.json["error"]["message"])

    def there(self, folder):
        return self.shell(f"cd {folder} && find . -mindepth 1 | sort").split()

    def curl(self, folder, *arguments):
        done = subprocess.run(["curl", "-sS", "-H", "Authorization: Bearer " + self.grant["token"], *arguments,
                               f"{self.base}/upload{folder}"], stdout=subprocess.PIPE, check=True, timeout=60)
        return json.loads(done.stdout)

    # ---- as it is meant ----

    def test_curl(self):
        folder = self.fresh() + "/in"
        with tempfile.TemporaryDirectory() as local:
            data = {"a": os.urandom(3 << 20), "b.txt": b"", "o'b \"c\";d": b"x\r\n--y"}
            for name, text in data.items():
                with open(f"{local}/{name}", "wb") as file:
                    file.write(text)
            told = self.curl(folder, "-F", f"file=@{local}/a", "-F", f"file=@{local}/b.txt",
                             "-F", f'other=@"{local}/o\'b \\"c\\";d"', "-F", f"file=@{local}/b.txt;filename=sub/c;type=image/png")
        self.assertEqual([(file["path"], file["size"], file["created"]) for file in told["files"]],
                         [(f"{folder}/a", 3 << 20, True), (f"{folder}/b.txt", 0, True), (f"{folder}/o'b \"c\";d", 6, True),
                          (f"{folder}/sub/c", 0, True)])
        for name, text in data.items():
            got = self.deployment.request("GET", f"{self.base}/files{folder}/{urllib.parse.quote(name)}", token=self.grant["token"])
            self.assertEqual(got.body, text, name)
            self.assertEqual(got.headers["etag"], next(f["etag"] for f in told["files"] if f["name"] == name))

    def test_as_put_does(self):
        folder = self.fresh()
        first = self.post(folder, form(part("f", b"one")), "mode=0600")
        self.assertEqual([first.status, first.json["files"][0]["mode"], first.json["files"][0]["uid"]], [200, "0600", 1000], first)
        again = self.post(folder, form(part("f", b"two")))
        self.assertEqual((again.json["files"][0]["created"], again.json["files"][0]["mode"]), (False, "0600"))
        self.error(self.post(folder, form(part("f", b"three")), If_None_Match="*"), 412, "PRECONDITION_FAILED")
        self.error(self.post(folder, form(part("f", b"three")), If_Match='"1-2-3-4"'), 400, "INVALID_REQUEST", "If-Match")
        self.error(self.post(folder, form(part("f", b"three")), "overwrite=0"), 400, "INVALID_REQUEST")
        self.error(self.post(folder, form(part("no/f", b"x")), "parents=0"), 404, "NOT_FOUND")
        self.error(self.post(folder + "/f", form(part("x", b"x"))), 404, "NOT_FOUND")
        self.error(self.post("/etc", form(part("x", b"x"))), 403, "FORBIDDEN")
        self.assertEqual(self.shell(f"cat {folder}/f"), "two")
        self.assertEqual(self.there(folder), ["./f"])

    def test_a_mode_in_the_form(self):
        folder = self.fresh()
        told = self.curl(folder, "-F", "mode=0755", "-F", "file=@/dev/null;filename=a", "-F", "mode=600", "-F",
                         "file=@/dev/null;filename=b")
        self.assertEqual([file["mode"] for file in told["files"]], ["0755", "0600"])
        for mode in (b"", b"9", b"0\0", b"7" * 70000):
            reply = self.post(folder, form(part(None, mode, field="mode"), part("c", b"")))
            self.assertIn(reply.status, (400, 413), reply)
        self.assertEqual(self.there(folder), ["./a", "./b"])

    def test_any_bytes_in_chunks_of_any_size(self):
        folder = self.fresh()
        data = b"\r\n--b0undar\r\n\r\n--\r\n" + os.urandom(70000) + b"\r\n--b0undarY\r\n\r"
        body = form(part("z", data), part("empty", b""), part("\udcff\udcfe", b"x"))
        parts = urllib.parse.urlsplit(self.base)
        for size in (1, 3, 977, 65536):
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
            self.addCleanup(connection.close)
            pieces = iter([body[at:at + size] for at in range(0, len(body), size)])
            if size == 1:  # only around the delimiters: each chunk is a packet
                pieces = iter([body[:120]] + [body[at:at + 1] for at in range(120, 300)] + [body[300:-200]] +
                              [body[at:at + 1] for at in range(len(body) - 200, len(body))])
            connection.request("POST", f"{parts.path}/upload{folder}/{size}", pieces,
                               {"Authorization": "Bearer " + self.grant["token"],
                                "Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"'}, encode_chunked=True)
            answer = connection.getresponse()
            told = json.loads(answer.read())
            self.assertEqual((answer.status, len(told.get("files", []))), (200, 3), told)
            got = self.deployment.request("GET", f"{self.base}/files{folder}/{size}/z", token=self.grant["token"], record=False)
            self.assertEqual(got.body, data, size)

    def test_what_was_written_is_told_when_another_fails(self):
        folder = self.fresh()
        self.shell(f"mkdir {folder}/taken")
        reply = self.post(folder, form(part("a", b"1"), part("b", b"2"), part("taken", b"3"), part("never", b"4")))
        self.error(reply, 409, "CONFLICT")
        self.assertEqual([file["path"] for file in reply.json["files"]], [folder + "/a", folder + "/b"])
        self.assertEqual(self.there(folder), ["./a", "./b", "./taken"])
        parts = urllib.parse.urlsplit(self.base)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        self.addCleanup(connection.close)
        try:
            connection.request("POST", f"{parts.path}/upload{folder}", form(part("c", b"x"), part("big", b"x" * (40 << 20))),
                               {"Authorization": "Bearer " + self.grant["token"],
                                "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})
        except OSError:
            pass  # it is refused before all of it was sent
        answer = connection.getresponse()
        full = json.loads(answer.read())
        self.assertEqual((answer.status, full["error"]["code"]), (507, "DISK_FULL"))
        self.assertEqual([file["path"] for file in full["files"]], [folder + "/c"])
        self.assertEqual(self.there(folder), ["./a", "./b", "./c", "./taken"])

    def test_each_file_is_in_the_audit_and_each_path_is_the_tokens(self):
        folder = self.fresh()
        self.shell(f"mkdir {folder}/mine")
        token = Forge(self.deployment, self.grant).token(scope=f"fs:rw@{folder}/mine")
        reply = self.post(folder, form(part("mine/a", b"1"), part("other", b"2")), token=token)
        self.error(reply, 403, "CAPABILITY_DENIED", "fs:rw is needed")
        self.assertEqual([file["path"] for file in reply.json["files"]], [folder + "/mine/a"])
        self.error(self.post(folder, form(part("mine", b"2")), token=token), 403, "FORBIDDEN")
        reader = Forge(self.deployment, self.grant).token(scope="fs:ro")
        self.error(self.post(folder, form(part("a", b"1")), token=reader), 403, "CAPABILITY_DENIED", "fs:rw")
        self.assertEqual(self.there(folder), ["./mine", "./mine/a"])
        until, seen = time.monotonic() + 20, set()
        while len(seen) < 2 and time.monotonic() < until:
            for record in self.deployment.request("GET", "/audit?last=1000").json["records"]:
                for name in ("mine/a", "other"):
                    if f"path={folder}/{name}" in record["detail"]:
                        seen.add((record["action"], record["outcome"], name))
            time.sleep(0.2)
        self.assertLessEqual({("write", "ok", "mine/a"), ("refuse", "refused", "other")}, seen)

    # ---- attacks ----

    def test_names_that_lead_elsewhere(self):
        folder = self.fresh()
        self.assertEqual(self.post(folder, form(part("x/y", b"1"))).status, 200, "a sound one goes through")
        for name in ("../x", "x/../../y", "/etc/passwd", "/workspace/x", ".", "..", "x/..", "./x", "x//y", "x/", "", "a" * 256,
                     "/".join(["d" * 200] * 22)):
            reply = self.post(folder, form(part(name, b"evil")))
            self.assertEqual((reply.status, reply.code), (400, "INVALID_REQUEST"), name)
        self.error(self.post(folder, form(part("a\0b", b"x"))), 400, "INVALID_REQUEST")
        self.error(self.post(folder, form(part("a\nb", b"x"))), 400, "INVALID_REQUEST")
        self.error(self.post(folder, form(part("f", b"x"), part("f", b"y"))), 409, "CONFLICT", "two files")
        self.error(self.post(folder, form(part(None, b"x"))), 400, "INVALID_REQUEST", "only files")
        self.error(self.post("/workspace/%2e%2e", form(part("f", b"x"))), 400, "INVALID_REQUEST")
        self.assertEqual(self.there(folder), ["./f", "./x", "./x/y"])
        self.assertEqual(self.shell(f"cat {folder}/f"), "x")

    def test_links_inside_lead_nowhere(self):
        folder = self.fresh()
        self.shell(f"cd {folder} && mkdir mine out && ln -s ../out mine/link")
        token = Forge(self.deployment, self.grant).token(scope=f"fs:rw@{folder}/mine")
        self.assertEqual(self.post(folder + "/mine", form(part("sub/f", b"x")), token=token).status, 200)
        reply = self.post(folder + "/mine", form(part("link/f", b"x")), token=token)
        self.assertIn(reply.status, (403, 404, 409), reply)
        self.assertEqual(self.there(folder + "/out"), [])

    def test_forms_that_are_none(self):
        folder = self.fresh()
        good = part("f", b"x")
        for body in (b"", b"no form", form(), form(good, end=b""), form(good, end=b"--" + BOUNDARY.encode()),
                     form(good, end=b"--" + BOUNDARY.encode() + b"x\r\n")):
            reply = self.post(folder, body)
            self.assertEqual((reply.status, reply.code), (400, "INVALID_REQUEST"), (body, reply))
        for kind in ("text/plain", "multipart/form-data", "multipart/mixed; boundary=" + BOUNDARY,
                     "multipart/form-data; boundary=" + "b" * 71, f"multipart/form-data; boundary={BOUNDARY}; boundary=x"):
            self.error(self.post(folder, form(good), Content_Type=kind), 400, "INVALID_REQUEST", "multipart/form-data")
        nested = part("f", b"--x\r\n\r\n--x--", extra="Content-Type: multipart/mixed; boundary=x\r\n")
        self.error(self.post(folder, form(nested)), 400, "INVALID_REQUEST", "multipart")
        coded = part("f", b"eA==", extra="Content-Transfer-Encoding: base64\r\n")
        self.error(self.post(folder, form(coded)), 400, "INVALID_REQUEST", "Content-Transfer-Encoding")

    def test_too_much_of_it(self):
        folder = self.fresh()
        many = self.post(folder, form(*(part(str(n), b"") for n in range(10000))))
        self.error(many, 413, "TOO_LARGE", "1000 parts")
        self.assertEqual(len(many.json["files"]), 1000)
        for extra in ("X: " + "x" * 20000 + "\r\n", "X: y\r\n" * 40):
            self.error(self.post(folder, form(part("big", b"", extra=extra))), 413, "TOO_LARGE", "head")
        self.error(self.post(folder, b"p" * 100000 + b"\r\n" + form(part("big", b""))), 413, "TOO_LARGE", "outside")
        self.error(self.post(folder, form(part("late", b"")) + b"e" * 100000), 413, "TOO_LARGE", "outside")
        self.assertNotIn("./big", self.there(folder))

    def test_only_so_many_at_once(self):
        folder = self.fresh()
        parts = urllib.parse.urlsplit(self.base)
        held, refused = [], None
        while refused is None and len(held) < 32 * 64 + 1:
            held.append(socket.create_connection((parts.hostname, parts.port), 30))
            held[-1].sendall((f"POST {parts.path}/upload{folder} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                              f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
                              f"Authorization: Bearer {self.grant['token']}\r\n\r\n").encode())
            answered = select.select(held, [], [], 0 if len(held) <= 32 else 0.1)[0]
            refused = answered[0].recv(4096) if answered else None
        self.assertGreater(len(held), 32)
        self.assertIn(b" 503 ", refused.split(b"\r\n")[0])
        self.assertIn(b"32 forms for this sandbox", refused)
        for connection in held:
            connection.close()
        until, reply = time.monotonic() + 30, None
        while (reply is None or reply.status == 503) and time.monotonic() < until:
            reply = self.post(folder, form(part("f", b"x")))
        self.assertEqual(reply.status, 200, reply)

    def test_a_client_that_leaves_leaves_nothing_half(self):
        folder = self.fresh()
        parts = urllib.parse.urlsplit(self.base)
        with socket.create_connection((parts.hostname, parts.port), 10) as left:
            left.sendall((f"POST {parts.path}/upload{folder} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                          f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
                          f"Authorization: Bearer {self.grant['token']}\r\n\r\n").encode() +
                         part("whole", b"1") + part("half", b"x" * 100000)[:-1000])
            until = time.monotonic() + 20
            while "./whole" not in self.there(folder) and time.monotonic() < until:
                time.sleep(0.05)
        until = time.monotonic() + 20
        while self.there(folder) != ["./whole"] and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(self.there(folder), ["./whole"])


if __name__ == "__main__":
    unittest.main()
