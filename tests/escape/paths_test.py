"""A token for one folder of a sandbox, while code inside plants whatever it likes there: links, hard links, moving folders.
Each way is first seen to work with a token for all files (or, where nobody may, to be refused to both)."""
import http.client
import json
import os
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402

SECRET = b"SECRET-of-the-other-folder"
IN, OUT = "/workspace/in", "/workspace/out"
# Anew before each attempt. `out` is what the token must not reach.
WORLD = f"""
import os, shutil
for name in os.listdir('/workspace'):
    path = '/workspace/' + name
    os.unlink(path) if os.path.islink(path) or not os.path.isdir(path) else shutil.rmtree(path)
os.makedirs('{OUT}/sub'); os.makedirs('{IN}/mid/real'); os.makedirs('{IN}2')
for path in ('{OUT}/secret', '{OUT}/sub/secret', '{IN}2/secret'):
    open(path, 'wb').write({SECRET!r})
open('{IN}/own', 'w').write('own'); open('{IN}/mid/real/own', 'w').write('own')
for name, target in {{'file': '{OUT}/secret', 'relative': '../out/secret', 'folder': '{OUT}', 'relfolder': '../out',
                     'mid/deep': '../../out', 'dangling': '{OUT}/new', 'reldangling': '../out/new', 'chain': 'relative',
                     'chained': 'relfolder/sub/../secret', 'top': '/', 'procroot': '/proc/self/root',
                     'fds': '/proc/self/fd', 'cwd': '/proc/self/cwd', 'inside': 'mid/real/own',
                     'around': '../in/own'}}.items():
    os.symlink(target, '{IN}/' + name)
os.link('{OUT}/secret', '{IN}/hard')
"""


@needs_root
class Paths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("paths")
        cls.base = cls.grant["endpoints"]["http"]
        cls.all = link(cls.grant["token"], compact({"scope": "fs:rw"}))
        cls.some = link(cls.grant["token"], compact({"scope": f"fs:rw@{IN}"}))

    def setUp(self):
        self.world()

    def world(self):
        reply = self.deployment.exec(self.grant, argv=["python3", "-c", WORLD])
        self.assertEqual((reply.status, reply.json.get("exit_code")), (200, 0), reply)

    def ask(self, token, method, path, query="", body=None, kind="files", **headers):
        url = f"{self.base}/{kind}{urllib.parse.quote(path)}" + ("?" + query if query else "")
        return self.deployment.request(method, url, body, token=token,
                                       headers={name.replace("_", "-"): value for name, value in headers.items()})

    def state(self):
        """All there is outside of the folder."""
        reply = self.deployment.exec(self.grant, argv=["python3", "-c", f"""
import hashlib, json, os
seen = {{}}
for top in ('{OUT}', '{IN}2'):
    for folder, folders, names in os.walk(top):
        for name in names + folders:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            seen[path] = [info.st_mode, open(path, 'rb').read().decode('latin1') if os.path.isfile(path) else '']
print(json.dumps(seen))"""])
        return json.loads(reply.json["stdout"])

    def reaches(self, token, attempt):
        """Whether the attempt got at anything: the secret, a name beside it, a change of it."""
        self.world()
        before = self.state()
        replies = attempt(token)
        replies = replies if isinstance(replies, list) else [replies]
        got = any(reply.status < 300 and (SECRET in reply.body or b'"size":26' in reply.body or b'"sub"' in reply.body)
                  for reply in replies)
        return got or self.state() != before, replies

    def attempt(self, attempt, status=403, for_nobody=False):
        works, replies = self.reaches(self.all, attempt)
        self.assertEqual(works, not for_nobody, replies)
        works, replies = self.reaches(self.some, attempt)
        self.assertFalse(works, replies)
        self.assertIn(status, [reply.status for reply in replies], replies)

    # ---- reading ----

    def test_reading_through_links(self):
        for path in ("/file", "/relative", "/chain", "/chained", "/folder/secret", "/relfolder/secret", "/mid/deep/secret",
                     "/mid/deep/sub/secret", f"/top{OUT}/secret"):
            with self.subTest(path):
                self.attempt(lambda token: self.ask(token, "GET", IN + path))
                self.attempt(lambda token: self.ask(token, "GET", IN + path, "stat=1&follow=1"))

    def test_reading_through_proc(self):
        for path in (f"/procroot{OUT}/secret", f"/cwd{OUT}/secret", f"/top/proc/self/root{OUT}/secret",
                     f"/top/proc/1/root{OUT}/secret", f"/top/proc/self/cwd{OUT}/secret"):
            with self.subTest(path):
                _, replies = self.reaches(self.some, lambda token: self.ask(token, "GET", IN + path))
                self.assertGreaterEqual(replies[0].status, 400)
                self.assertNotIn(SECRET, replies[0].body)
        for number in range(20):
            for path in (f"{IN}/fds/{number}", f"{IN}/fds/{number}/workspace/out/secret"):
                self.assertNotEqual(self.ask(self.some, "GET", path).status, 200, path)

    def test_a_hard_link(self):
        self.attempt(lambda token: self.ask(token, "GET", IN + "/hard"))
        self.attempt(lambda token: self.ask(token, "POST", IN + "/hard", "op=edit", {"old": "SECRET", "new": "x"}),
                     for_nobody=True)  # the name gets a new file
        self.attempt(lambda token: self.ask(token, "POST", IN + "/hard", "op=chmod", {"mode": "0777"}))

        def copied(token):
            return [self.ask(token, "POST", IN + "/hard", "op=copy", {"to": IN + "/copy"}),
                    self.ask(token, "GET", IN + "/copy")]
        self.attempt(copied)

        def copied_with_its_folder(token):
            return [self.ask(token, "POST", IN, "op=copy", {"to": IN + "/mid/all", "recursive": True}),
                    self.ask(token, "GET", IN + "/mid/all/hard"), self.ask(token, "DELETE", IN + "/mid/none")]
        self.attempt(copied_with_its_folder, status=404, for_nobody=True)
        found = self.ask(self.some, "GET", IN, "grep=SECRET")
        self.assertEqual((found.status, SECRET in found.body), (200, False))
        self.assertIn(SECRET, self.ask(self.all, "GET", IN, "grep=SECRET").body)
        self.assertEqual(self.ask(self.some, "PUT", IN + "/hard", body=b"mine").status, 200, "the name is within the folder")
        self.assertEqual(self.ask(self.all, "GET", OUT + "/secret").body, SECRET)

    def test_listing_and_searching_through_links(self):
        for path in ("/folder", "/relfolder", "/mid/deep", "/top/workspace/out"):
            with self.subTest(path):
                self.attempt(lambda token: self.ask(token, "GET", IN + path, "list=1&depth=5"))
                self.attempt(lambda token: self.ask(token, "GET", IN + path, "glob=*"))
                self.attempt(lambda token: self.ask(token, "GET", IN + path, "grep=SECRET"))
        for query in ("list=1&depth=64", "glob=**", "glob=folder/*", "glob=*/secret", "glob=**/secret", "glob=mid/deep/*",
                      "grep=SECRET", "grep=SECRET&glob=folder/*"):
            reply = self.ask(self.some, "GET", IN, query)
            self.assertEqual(reply.status, 200, reply)
            self.assertNotIn(b'"path":"folder/', reply.body, query)
            self.assertNotIn(b'"path":"mid/deep/', reply.body, query)
            self.assertNotIn(SECRET, reply.body, query)

    def test_watching_through_links(self):
        for path in ("/folder", "/relfolder", "/mid/deep", "/file"):
            with self.subTest(path):
                self.assertEqual(self.watch_status(self.all, IN + path), 200)
                self.assertEqual(self.watch_status(self.some, IN + path), 403)
        self.assertEqual(self.watch_status(self.some, IN), 200)

    def watch_status(self, token, path):
        parts = urllib.parse.urlsplit(self.base)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
        connection.request("GET", f"{parts.path}/watch{path}?recursive=1", headers={"Authorization": "Bearer " + token})
        answer = connection.getresponse()
        connection.close()
        return answer.status

    # ---- writing ----

    def test_writing_through_links(self):
        for path in ("/file", "/relative", "/chain", "/dangling", "/reldangling", "/folder/secret", "/folder/new",
                     "/relfolder/sub/new", "/mid/deep/new", "/folder/made/new"):
            with self.subTest(path):
                self.attempt(lambda token: self.ask(token, "PUT", IN + path, body=b"overwritten"))
                self.attempt(lambda token: self.ask(token, "PUT", IN + path, body=b"over", Content_Range="bytes 0-3/4"))
                self.attempt(lambda token: self.ask(token, "PUT", IN + path, body=b"over", Content_Range="bytes 0-3/9"))

    def test_changing_through_links(self):
        for path in ("/folder", "/mid/deep"):
            with self.subTest(path):
                self.attempt(lambda token: self.ask(token, "DELETE", f"{IN}{path}/secret"))
                self.attempt(lambda token: self.ask(token, "DELETE", f"{IN}{path}/sub", "recursive=1"))
                self.attempt(lambda token: self.ask(token, "POST", f"{IN}{path}/new", "op=mkdir", {}))
                self.attempt(lambda token: self.ask(token, "POST", f"{IN}{path}/secret", "op=chmod", {"mode": "0777"}))
                self.attempt(lambda token: self.ask(token, "POST", f"{IN}{path}/secret", "op=edit",
                                                    {"old": "SECRET", "new": "x"}))
        self.attempt(lambda token: self.ask(token, "POST", IN + "/file", "op=edit", {"old": "SECRET", "new": "x"}))
        self.attempt(lambda token: self.ask(token, "POST", IN + "/file", "op=chmod", {"mode": "0777"}))

    def test_a_link_itself_is_within_the_folder(self):
        for path in ("/file", "/folder"):
            self.attempt(lambda token: self.ask(token, "DELETE", IN + path, "recursive=1"), status=204, for_nobody=True)
        self.attempt(lambda token: self.ask(token, "DELETE", IN + "/mid", "recursive=1"), status=204, for_nobody=True)

    def test_moving_and_copying_across(self):
        for op in ("move", "copy"):
            for source, target in ((f"{IN}/folder/secret", f"{IN}/stolen"), (f"{IN}/mid/deep/secret", f"{IN}/stolen"),
                                   (f"{OUT}/secret", f"{IN}/stolen"), (f"{IN}2/secret", f"{IN}/stolen"),
                                   (f"{IN}/own", f"{IN}/folder/planted"), (f"{IN}/own", f"{IN}/mid/deep/planted"),
                                   (f"{IN}/own", f"{OUT}/planted"), (f"{IN}/own", f"{IN}2/planted")):
                with self.subTest(op, source=source, target=target):
                    self.attempt(lambda token: [self.ask(token, "POST", source, "op=" + op, {"to": target}),
                                                self.ask(token, "GET", IN + "/stolen")])
            with self.subTest(op, what="over a file outside"):
                self.attempt(lambda token: self.ask(token, "POST", IN + "/own", "op=" + op,
                                                    {"to": IN + "/folder/secret", "overwrite": True}))
        # A copy of a link is a link; it leads as far as the first.
        self.attempt(lambda token: [self.ask(token, "POST", IN + "/folder", "op=copy", {"to": IN + "/f2", "recursive": True}),
                                    self.ask(token, "GET", IN + "/f2/secret")])
        self.attempt(lambda token: [self.ask(token, "POST", IN + "/file", "op=copy", {"to": IN + "/f3"}),
                                    self.ask(token, "GET", IN + "/f3")])

    def test_one_folder_to_read_another_to_write(self):
        token = link(self.grant["token"], compact({"scope": f"fs:ro@{OUT} fs:rw@{IN}"}))
        self.assertEqual(self.ask(token, "POST", OUT + "/sub/secret", "op=copy", {"to": IN + "/copy"}).status, 200)
        self.assertEqual(self.ask(token, "GET", IN + "/copy").body, SECRET)
        for method, path, query, body in (("POST", OUT + "/secret", "op=move", {"to": IN + "/moved"}),
                                          ("POST", IN + "/own", "op=copy", {"to": OUT + "/planted"}),
                                          ("POST", IN + "/own", "op=move", {"to": OUT + "/planted"}),
                                          ("PUT", OUT + "/planted", "", b"x"), ("DELETE", OUT + "/secret", "", None)):
            reply = self.ask(token, method, path, query, body)
            self.assertEqual((reply.status, reply.code), (403, "CAPABILITY_DENIED"), (method, path, query))

    # ---- archives, and what else there is ----

    def test_archives_are_refused(self):
        for method, body in (("GET", None), ("PUT", b"")):
            reply = self.ask(self.some, method, IN, body=body, kind="archive")
            self.assertEqual((reply.status, reply.code), (403, "CAPABILITY_DENIED"), reply)
        self.assertEqual(self.deployment.request("GET", f"{self.base}/archive{IN}", token=self.all, record=False).status, 200)

    def test_the_folder_itself_stays(self):
        for reply in (self.ask(self.some, "DELETE", IN, "recursive=1"),
                      self.ask(self.some, "POST", IN, "op=move", {"to": IN + "/mid/x"}),
                      self.ask(self.some, "POST", IN + "/mid", "op=move", {"to": IN, "overwrite": True})):
            self.assertEqual((reply.status, reply.code), (403, "FORBIDDEN"), reply)
        self.assertEqual(self.ask(self.some, "GET", IN, "list=1").status, 200)
        self.assertEqual(self.ask(self.some, "GET", IN + "/inside").body, b"own")

    def test_the_folder_becomes_a_link(self):
        self.deployment.shell(self.grant, f"mv {IN} {IN}.old && ln -s {OUT} {IN}")
        for path, query in (("/secret", ""), ("", "list=1"), ("", "glob=*"), ("/secret", "stat=1"), ("", "grep=SECRET")):
            reply = self.ask(self.some, "GET", IN + path, query)
            self.assertGreaterEqual(reply.status, 400, (path, query))
            self.assertNotIn(SECRET, reply.body)
        self.assertEqual(self.ask(self.all, "GET", IN + "/secret").body, SECRET)
        self.assertGreaterEqual(self.ask(self.some, "PUT", IN + "/planted", body=b"x").status, 400)
        self.deployment.shell(self.grant, f"rm {IN}")
        deep = link(self.grant["token"], compact({"scope": "fs:rw@/workspace/l/sub"}))
        self.deployment.shell(self.grant, f"ln -s {OUT} /workspace/l")
        self.assertGreaterEqual(self.ask(deep, "GET", "/workspace/l/sub/secret").status, 400)
        self.assertEqual(self.ask(self.all, "GET", "/workspace/l/sub/secret").body, SECRET)

    def test_neighbours_and_parents(self):
        for path in (f"{IN}2/secret", "/workspace", "/", "/etc/passwd", f"{OUT}/secret", "/workspace/i"):
            for query in ("", "stat=1", "list=1", "glob=*", "grep=S"):
                reply = self.ask(self.some, "GET", path, query)
                self.assertEqual((reply.status, reply.code), (403, "CAPABILITY_DENIED"), (path, query))

    def test_reading_alone(self):
        token = link(self.grant["token"], compact({"scope": f"fs:ro@{IN}"}))
        self.assertEqual(self.ask(token, "GET", IN + "/own").body, b"own")
        for method, path, query, body in (("PUT", "/own", "", b"x"), ("DELETE", "/own", "", None),
                                          ("POST", "/own", "op=chmod", {"mode": "0777"}), ("POST", "/d", "op=mkdir", {}),
                                          ("POST", "/own", "op=copy", {"to": IN + "/x"})):
            reply = self.ask(token, method, IN + path, query, body)
            self.assertEqual((reply.status, reply.code), (403, "CAPABILITY_DENIED"), (method, path))

    def test_what_is_refused_is_recorded(self):
        self.assertEqual(self.ask(self.some, "GET", OUT + "/secret").status, 403)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            records = self.deployment.request("GET", "/audit?last=1000").json["records"]
            if any(record["action"] == "refuse" and f"path={OUT}/secret" in record.get("detail", "") for record in records):
                return
            time.sleep(0.2)
        self.fail("no record of the refusal")

    # ---- how a path is written ----

    def test_encodings(self):
        parts = urllib.parse.urlsplit(self.base)
        for path in ("in/../out/secret", "in/%2e%2e/out/secret", "in/.%2e/out/secret", "in/%2E./out/secret",
                     "in%2f..%2fout%2fsecret", "in/..%2fout/secret", "in/%2e%2e%2fout%2fsecret", "in/%252e%252e/out/secret",
                     "in/%252e%252e%252fout/secret", "in/%c0%ae%c0%ae/out/secret", "in/%e0%80%ae%e0%80%ae/out/secret",
                     "in/..;/out/secret", "in/..\\out\\secret", "in/..%5cout%5csecret", "in//../out/secret", "in/./../out/secret",
                     "in/mid/../../out/secret", "in/%00/../../out/secret", "in%00/../out/secret", "in/own%00",
                     "in/..%00/out/secret", "../workspace/out/secret", "/workspace/out/secret", "in/.../out/secret",
                     "in/%2e%2e/%2e%2e/workspace/out/secret", "in/..%c0%afout/secret", "in/%uff0e%uff0e/out/secret",
                     "in/\u2025/out/secret".encode().decode("latin1"), "in/..", "in/%2e%2e", "in/own/../../out/secret"):
            for query in ("", "?stat=1", "?list=1"):
                connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
                connection.putrequest("GET", "/", skip_host=True, skip_accept_encoding=True)
                connection._buffer[0] = (f"GET {parts.path}/files/workspace/{path}{query} HTTP/1.1").encode("latin1")
                connection.putheader("Host", "x")
                connection.putheader("Authorization", "Bearer " + self.some)
                connection.endheaders()
                answer = connection.getresponse()
                body = answer.read()
                connection.close()
                self.assertIn(answer.status, (400, 403, 404), (path, query, body))
                self.assertNotIn(SECRET, body)
        self.assertEqual(self.ask(self.all, "GET", OUT + "/secret").body, SECRET)
        self.assertEqual(self.ask(self.some, "GET", IN + "/own").body, b"own")

    def test_paths_in_bodies(self):
        for to in (f"{IN}/../out/planted", f"{IN}/./../out/planted", "../out/planted", f"{IN}//../out/planted",
                   f"{IN}/%2e%2e/out/planted", f"/{OUT}/planted", f"{IN}\u0000/x", "", "/"):
            before = self.state()
            for op in ("move", "copy"):
                reply = self.ask(self.some, "POST", IN + "/own", "op=" + op, {"to": to})
                self.assertGreaterEqual(reply.status, 400, (to, op))
            self.assertEqual(self.state(), before, to)

    # ---- while it changes ----

    def test_a_folder_that_becomes_a_link_amid(self):
        swap = f"""
import ctypes, os, time
libc = ctypes.CDLL(None)
os.makedirs('{IN}/swap'); open('{IN}/swap/secret', 'w').write('decoy'); os.symlink('{OUT}', '{IN}/other')
until = time.time() + 12
while time.time() < until:
    libc.renameat2(-100, b'{IN}/swap', -100, b'{IN}/other', 2)"""
        self.assertEqual(self.deployment.request(
            "POST", self.base + "/exec", {"argv": ["python3", "-c", swap], "id": "swap", "detach": True, "timeout": 20},
            token=self.grant["token"]).status, 201)
        self.addCleanup(self.deployment.request, "DELETE", self.base + "/processes/swap", token=self.grant["token"])
        time.sleep(0.5)
        seen, before = set(), self.state()
        for n in range(400):
            if n % 4 == 3:
                seen.add(self.ask(self.some, "PUT", f"{IN}/swap/planted{n}", body=b"x").status)
                continue
            query = ("", "grep=SECRET", "stat=1")[n % 4]
            path = IN + "/swap" + ("" if query.startswith("grep") else "/secret")
            reply = self.ask(self.some, "GET", path, query)
            self.assertNotIn(SECRET, reply.body)
            self.assertNotIn(b'"size":26', reply.body)
            seen.add(reply.status)
        self.assertLessEqual({200, 403}, seen, "the folder did not move while we looked")
        self.assertEqual(self.state(), before)


if __name__ == "__main__":
    unittest.main()
