"""What changes while the file API looks at it, and archives that nobody honest packed: never anything of the host, nor of a
folder that the token is not for, comes back, and nothing is written there.

Racers swap names inside the sandbox as fast as they can, all at once, while a client asks in all ways there are."""
import collections
import http.client
import io
import json
import os
import secrets
import sys
import tarfile
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import compact, link  # noqa: E402

SECONDS = float(os.environ.get("PARLEY_RACE_SECONDS", "4"))
IN, OUT = "/workspace/in", "/workspace/out"

# Each name in IN is one thing now and another in the next moment. What is in OUT, and what is on the host, is not for the token.
RACERS = r"""
import ctypes, os, socket, sys, threading, time
libc, AT, EXCHANGE = ctypes.CDLL(None), -100, 2
IN, OUT, host, secret, seconds = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5])
os.makedirs(OUT + '/sub'); os.makedirs(IN)
for path in (OUT + '/secret', OUT + '/sub/secret'): open(path, 'w').write(secret)
def own(path): open(path, 'w').write('own')
def folder(path): os.makedirs(path + '/sub'); own(path + '/secret'); own(path + '/sub/secret')
PAIRS = {
    'folder': (folder, lambda p: os.symlink(OUT, p)),
    'relative': (folder, lambda p: os.symlink('../out', p)),
    'file': (own, lambda p: os.symlink(OUT + '/secret', p)),
    'chain': (own, lambda p: os.symlink('file', p)),
    'hard': (own, lambda p: os.link(OUT + '/secret', p)),
    'pipe': (own, os.mkfifo),
    'socket': (own, lambda p: socket.socket(socket.AF_UNIX).bind(p)),
    'either': (own, folder),
    'host': (own, lambda p: os.symlink(host, p)),
    'hosts': (folder, lambda p: os.symlink(os.path.dirname(host), p)),
    'root': (folder, lambda p: os.symlink('/proc/1/root' + os.path.dirname(host), p)),
    'self': (folder, lambda p: os.symlink('/proc/self/root' + OUT, p)),
    'fd': (own, lambda p: os.symlink('/proc/self/fd/3', p)),
    'long': (own, lambda p: os.symlink('x' * 4000, p)),
    'loop': (own, lambda p: os.symlink('loop', p)),
}
os.makedirs('/workspace/turn')
for name, (one, two) in PAIRS.items():
    one(IN + '/' + name); two('/workspace/turn/' + name)
names = [(('%s/%s' % (IN, name)).encode(), ('/workspace/turn/%s' % name).encode()) for name in PAIRS]
open('/workspace/racing', 'w').close()
until, turns = time.time() + seconds, 0
while time.time() < until:
    for one, two in names: libc.renameat2(AT, one, AT, two, EXCHANGE)
    turns += 1
print(turns)
"""
NAMES = ("folder", "relative", "file", "chain", "hard", "pipe", "socket", "either", "host", "hosts", "root", "self", "fd", "long", "loop")


class Client:
    """One kept connection with one token."""

    def __init__(self, base, token):
        parts = urllib.parse.urlsplit(base)
        self.path, self.token = parts.path, token
        self.where = (parts.hostname, parts.port)
        self.http = http.client.HTTPConnection(*self.where, timeout=30)

    def ask(self, method, path, query="", body=None, kind="files"):
        url = f"{self.path}/{kind}{urllib.parse.quote(path)}" + ("?" + query if query else "")
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        for again in (True, False):
            try:
                self.http.request(method, url, data, {"Authorization": "Bearer " + self.token})
                answer = self.http.getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, OSError):  # a download that was cut off says so by its end
                self.http.close()
                self.http = http.client.HTTPConnection(*self.where, timeout=30)
                if not again:
                    return 0, b""


def reading(client, name):
    """All ways to read it."""
    for path in (f"{IN}/{name}", f"{IN}/{name}/secret", f"{IN}/{name}/sub/secret"):
        for query in ("", "stat=1", "stat=1&follow=1"):
            yield client.ask("GET", path, query)
    for query in ("list=1&depth=5", "glob=**", "grep=e"):
        yield client.ask("GET", f"{IN}/{name}", query)
    yield client.ask("GET", IN, "grep=e")


def changing(client, name, turn):
    """All ways to take it elsewhere, and what is there then."""
    taken = f"{IN}/taken-{name}-{turn}"
    for source in (f"{IN}/{name}", f"{IN}/{name}/secret", f"{IN}/{name}/sub"):
        yield client.ask("POST", source, "op=copy", {"to": taken, "recursive": True, "overwrite": True})
        yield client.ask("GET", taken)
        yield client.ask("GET", taken, "list=1&depth=5")
        yield client.ask("GET", taken + "/secret")
        yield client.ask("DELETE", taken, "recursive=1")
    yield client.ask("PUT", f"{IN}/{name}/planted", body=b"planted")
    yield client.ask("POST", f"{IN}/{name}/secret", "op=edit", {"old": "e", "new": "E"})
    yield client.ask("POST", f"{IN}/{name}/made/deep", "op=mkdir", {})


@needs_root
class Races(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.name, cls.secret = secrets.token_hex(6), "SECRET-" + secrets.token_hex(8)
        cls.host = f"/var/tmp/parley-race-{cls.name}/secret"
        os.makedirs(os.path.dirname(cls.host))
        cls.addClassCleanup(lambda: (os.unlink(cls.host), os.rmdir(os.path.dirname(cls.host))))
        with open(cls.host, "w") as planted:
            planted.write(cls.secret)
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("races")
        cls.base = cls.grant["endpoints"]["http"]
        cls.all = link(cls.grant["token"], compact({"scope": "fs:rw"}))
        cls.some = link(cls.grant["token"], compact({"scope": f"fs:rw@{IN}"}))

    def race(self, folder_secret):
        """Starts the racers anew; their command's id."""
        self.deployment.shell(self.grant, "rm -rf /workspace/in /workspace/out /workspace/turn /workspace/racing")
        reply = self.deployment.exec(self.grant, argv=["/usr/bin/python3", "-c", RACERS, IN, OUT, self.host, folder_secret, str(SECONDS)],
                                     detach=True, timeout=int(SECONDS) + 30)
        self.assertEqual(reply.status, 201, reply)
        deadline = time.monotonic() + 60
        while self.deployment.request("GET", f"{self.base}/files/workspace/racing", token=self.all, record=False).status != 200:
            self.assertLess(time.monotonic(), deadline, "the racers do not start")
            time.sleep(0.02)

    def look(self, token, ways, forbidden):
        """Several clients at once until the race is over; how often each status came."""
        seen, lock, until, found = collections.Counter(), threading.Lock(), time.monotonic() + SECONDS, []

        def run(number):
            client, turn = Client(self.base, token), 0
            while time.monotonic() < until:
                for at in range(number, number + len(NAMES)):
                    for status, body in ways(client, NAMES[at % len(NAMES)], f"{number}-{turn}"):
                        with lock:
                            seen[status] += 1
                            if any(word in body for word in forbidden):
                                found.append((NAMES[at % len(NAMES)], status, body[:200]))
                    if time.monotonic() > until:
                        break
                turn += 1
        clients = [threading.Thread(target=run, args=(n * 5,)) for n in range(3)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        self.assertEqual(found, [])
        return seen

    def test_a_token_of_a_folder(self):
        """Neither what is beside the folder nor what is on the host is read; what is beside it stays as it was."""
        self.race(self.secret)
        before = self.deployment.shell(self.grant, f"find {OUT} | sort; cat {OUT}/secret {OUT}/sub/secret")

        def ways(client, name, turn):
            yield from reading(client, name)
            yield from changing(client, name, turn)
        seen = self.look(self.some, ways, [self.secret.encode()])
        self.assertTrue(seen[200] and seen[403], f"nothing moved while we looked: {seen}")
        self.assertEqual(self.deployment.shell(self.grant, f"find {OUT} | sort; cat {OUT}/secret {OUT}/sub/secret"), before)
        self.assertEqual(os.listdir(os.path.dirname(self.host)), ["secret"])

    def test_a_token_of_all_files(self):
        """It may read what is beside the folder, and does: the same race gets through. Nothing of the host, by archives neither."""
        beside = "BESIDE-" + secrets.token_hex(8)
        self.race(beside)
        got = []

        def ways(client, name, turn):
            for status, body in (*reading(client, name), *changing(client, name, turn),
                                 client.ask("GET", f"{IN}/{name}", "format=tar", kind="archive")):
                if beside.encode() in body:
                    got.append(name)
                yield status, body
        self.look(self.all, ways, [self.secret.encode()])
        self.assertTrue({"folder", "file"} <= set(got), f"the race shows nothing: {set(got)}")
        with open(self.host) as kept:
            self.assertEqual(kept.read(), self.secret)
        self.assertEqual(os.listdir(os.path.dirname(self.host)), ["secret"])


def entry(name, kind=tarfile.REGTYPE, data=b"planted", **more):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data) if kind == tarfile.REGTYPE else 0
    for key, value in {"mode": 0o6777, "uid": 0, "gid": 0, **more}.items():
        setattr(info, key, value)
    return info, data


@needs_root
class Archives(unittest.TestCase):
    """They are unpacked by the sandbox's tar, as its user: whatever gets out of the folder is still inside the sandbox."""

    @classmethod
    def setUpClass(cls):
        cls.name = f"parley-slip-{secrets.token_hex(6)}"
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("archives")

    def put(self, *entries):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for info, data in entries:
                tar.addfile(info, io.BytesIO(data) if info.type == tarfile.REGTYPE else None)
        return self.deployment.request("PUT", self.grant["endpoints"]["http"] + "/archive/workspace/unpacked", packed.getvalue(),
                                       token=self.grant["token"], record=False, timeout=60)

    def naive(self, folder, *entries):
        """What a tool that believes the names would do, on the host."""
        for info, data in entries:
            path = os.path.join(folder, info.name)
            if info.type == tarfile.REGTYPE:
                with open(path, "wb") as file:
                    file.write(data)

    def test_names_that_leave(self):
        host = f"/var/tmp/{self.name}"
        os.mkdir(host)
        self.addCleanup(lambda: (os.unlink(host + "/x") if os.path.exists(host + "/x") else None, os.rmdir(host)))
        slips = [entry(f"../../../../../../..{host}/x"), entry(f"{host}/x")]
        for slip in slips:
            self.naive("/workspace" if os.path.isdir("/workspace") else "/usr", slip)
            self.assertTrue(os.path.exists(host + "/x"), "it does not even work outside")
            os.unlink(host + "/x")
            self.put(slip)
            self.assertEqual(os.listdir(host), [])
        self.put(entry("link", tarfile.SYMTYPE, linkname=host), entry("link/x"))
        self.put(entry("up", tarfile.SYMTYPE, linkname="../../../../.."), entry(f"up{host}/x"))
        self.put(entry("hard", tarfile.LNKTYPE, linkname=f"../../../..{host}/x"), entry("hard"))
        self.put(entry("root", tarfile.SYMTYPE, linkname="/proc/1/root"), entry(f"root{host}/x"))
        self.assertEqual(os.listdir(host), [])

    def test_kinds(self):
        """Devices are not made, pipes do not stop it, nobody's rights are handed on."""
        self.put(entry("disk", tarfile.BLKTYPE, devmajor=254, devminor=0), entry("memory", tarfile.CHRTYPE, devmajor=1, devminor=1))
        self.put(entry("pipe", tarfile.FIFOTYPE), entry("pipe"), entry("id"), entry("n" * 3000), entry("d/" * 900 + "deep"),
                 entry("last"))
        said = self.deployment.shell(self.grant, "cd /workspace/unpacked; find . -type b -o -type c; find . ! -user 1000; stat -c '%F' pipe 2>&1 || true")
        self.assertNotIn("disk", said)
        self.assertNotIn("memory", said)
        self.assertEqual(self.deployment.shell(self.grant, "cat /workspace/unpacked/last"), "planted")
        self.assertEqual(self.deployment.exec(self.grant, cmd="find /workspace/unpacked ! -user 1000 -printf x").json["stdout"], "")
        packed = self.deployment.request("GET", self.grant["endpoints"]["http"] + "/archive/workspace/unpacked?format=tar",
                                         token=self.grant["token"], record=False, timeout=60)
        self.assertEqual(packed.status, 200)
        with tarfile.open(fileobj=io.BytesIO(packed.body)) as tar:
            self.assertEqual([member.name for member in tar if member.ischr() or member.isblk()], [])

    def test_an_archive_of_its_own_making(self):
        """tar is the sandbox's: one that was replaced says what it likes, as the sandbox's user, to the front's pipe alone."""
        with Deployment(PARLEY_ROOT_USER="allowed") as deployment:
            grant = deployment.negotiate("tar")
            deployment.shell(grant, "cp /usr/bin/tar /usr/bin/tar.real; rm /usr/bin/tar; printf '#!/bin/sh\\nid -u; cat /proc/1/environ "
                                    "/proc/self/mountinfo; ls -l /proc/self/fd; head -c 3000000 /dev/zero; exit 0\\n' > /usr/bin/tar; chmod 755 /usr/bin/tar",
                             user="root")
            reply = deployment.request("GET", grant["endpoints"]["http"] + "/archive/workspace?format=tar", token=grant["token"], record=False)
            self.assertEqual(reply.status, 200)
            self.assertTrue(reply.body.startswith(b"1000\n"), reply.body[:100])
            self.assertNotIn(deployment.state.encode(), reply.body)
            self.assertNotIn(b"socket:", reply.body)
            self.assertEqual(deployment.shell(grant, "echo alive"), "alive\n")


if __name__ == "__main__":
    unittest.main()
