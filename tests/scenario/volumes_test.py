"""Volumes (protocol.md, 2): named ones are shared by the sandboxes of one principal and outlive them; host folders only from the
node's own list; read-only and sub-paths hold; deleted only when nobody has them."""
import os
import shutil
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

SOON = 60  # s
OWNER = 54321  # of the host folder that may be written to: nobody's uid here


@needs_root
class Volumes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.host = tempfile.mkdtemp(prefix="parley-host-")
        cls.addClassCleanup(shutil.rmtree, cls.host, True)
        for name in ("open", "closed", "other"):
            os.mkdir(f"{cls.host}/{name}")
            with open(f"{cls.host}/{name}/told", "w") as file:
                file.write(name + "\n")
        os.chown(f"{cls.host}/open", OWNER, OWNER)
        os.chmod(cls.host, 0o755)
        cls.deployment = Deployment(PARLEY_VOLUME_HOSTS=f"{cls.host}/open,{cls.host}/closed:ro")
        cls.addClassCleanup(cls.deployment.close)

    def ask(self, *arguments, **more):
        return self.deployment.request(*arguments, **more)

    def get(self, thread, *volumes, owner=None):
        reply = self.ask("POST", f"/threads/{thread}/sandbox" + (f"?principal={owner}" if owner else ""),
                         {"volumes": list(volumes)})
        self.assertEqual(reply.status, 201, f"{reply}\n{self.deployment.logs()}")
        return reply.json

    def await_gone(self, grant):
        path = "/sandboxes/" + grant["sandbox"]["id"]
        until = time.monotonic() + SOON
        while self.ask("GET", path).json["state"] != "terminated":
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)

    def end(self, grant):
        self.assertEqual(self.ask("DELETE", "/sandboxes/" + grant["sandbox"]["id"]).status, 204)
        self.await_gone(grant)

    def test_shared_and_outliving(self):
        one = self.get("one", {"name": "shared", "path": "/data", "size_mb": 64})
        self.deployment.shell(one, "mkdir -p /data/sub && echo from-one > /data/sub/f")
        two = self.get("two", {"name": "shared", "path": "/mnt/there", "read_only": True},
                       {"name": "shared", "path": "/mnt/sub", "sub_path": "sub"})
        self.assertEqual(self.deployment.shell(two, "cat /mnt/there/sub/f /mnt/sub/f"), "from-one\nfrom-one\n")
        refused = self.deployment.exec(two, cmd="echo x > /mnt/there/g").json
        self.assertNotEqual(refused["exit_code"], 0)
        self.assertIn("Read-only", refused["stderr"])
        self.deployment.shell(two, "echo from-two > /mnt/sub/g; ls /mnt/sub/.. | head -1")
        self.assertEqual(self.deployment.shell(one, "cat /data/sub/g"), "from-two\n")
        told = {each["name"]: each for each in self.ask("GET", "/volumes").json["volumes"]}["shared"]
        self.assertEqual(set(told["sandboxes"]), {one["sandbox"]["id"], two["sandbox"]["id"]})
        self.assertEqual(told["size_bytes"], 64 << 20)
        self.assertEqual(self.ask("DELETE", "/volumes/shared").status, 409)
        self.end(one)
        self.end(two)
        three = self.get("three", {"name": "shared", "path": "/data"})
        self.assertEqual(self.deployment.shell(three, "cat /data/sub/f"), "from-one\n")
        self.end(three)
        self.assertEqual(self.ask("DELETE", "/volumes/shared").status, 204)
        self.assertEqual(self.ask("DELETE", "/volumes/shared").status, 404)
        four = self.get("four", {"name": "shared", "path": "/data"})
        self.assertEqual(self.deployment.shell(four, "ls /data"), "")

    def test_another_principals_is_another_one(self):
        mine = self.get("mine", {"name": "common", "path": "/data"})
        self.deployment.shell(mine, "echo secret > /data/f")
        theirs = self.get("theirs", {"name": "common", "path": "/data"}, owner="ada")
        self.assertEqual(self.deployment.shell(theirs, "ls /data"), "")
        names = [each["sandboxes"] for each in self.ask("GET", "/volumes?principal=ada").json["volumes"]]
        self.assertEqual(names, [[theirs["sandbox"]["id"]]])

    def test_host_folders(self):
        grant = self.get("host", {"host": self.host + "/open", "path": "/open"},
                         {"host": self.host + "/closed", "path": "/closed", "read_only": True})
        self.assertEqual(self.deployment.shell(grant, "cat /open/told /closed/told; echo mine > /open/new"),
                         "open\nclosed\n")
        self.assertNotEqual(self.deployment.exec(grant, cmd="echo x > /closed/new").json["exit_code"], 0)
        self.assertEqual(sorted(os.listdir(self.host + "/closed")), ["told"])
        self.assertEqual(os.stat(self.host + "/open/new").st_uid, OWNER)
        self.deployment.shell(grant, "ln -s /etc /open/out; ln -s ../other /open/aside; chmod u+s /open/new || true")
        reply = self.ask("POST", "/threads/host-no/sandbox", {"volumes": [{"host": self.host + "/closed", "path": "/x"}]})
        self.assertEqual(reply.code, "FORBIDDEN")  # that one is to be read only
        for sub_path in ("out", "aside"):
            reply = self.ask("POST", "/threads/host-no/sandbox",
                             {"volumes": [{"host": self.host + "/open", "path": "/x", "sub_path": sub_path}]})
            self.assertIn(reply.status, (400, 403), (sub_path, reply))
        for host in (self.host + "/other", self.host, "/etc", self.host + "/open/../other", "/"):
            reply = self.ask("POST", "/threads/host-no/sandbox", {"volumes": [{"host": host, "path": "/x"}]})
            self.assertIn(reply.status, (400, 403), (host, reply))
        self.assertEqual(self.ask("GET", "/threads/host-no/sandbox").status, 404)

    def test_what_was_never_made_leaves_nothing(self):
        reply = self.ask("POST", "/threads/never/sandbox", {"volumes": [{"name": "never", "path": "/a"},
                                                                      {"host": "/etc", "path": "/b"}]})
        self.assertEqual(reply.status, 403, reply)
        self.assertNotIn("never", [each["name"] for each in self.ask("GET", "/volumes").json["volumes"]])


@needs_root
class OfAnOlderLedger(unittest.TestCase):
    """A copy of the ledger was put back that does not know of a volume: what is in it is not lost for that."""

    def test_a_failed_start_removes_nothing(self):
        deployment = Deployment()
        self.addCleanup(deployment.close)
        ledger = deployment.state + "/negotiator"
        self.assertEqual(deployment.cli("down").returncode, 0)
        shutil.copytree(ledger, deployment.folder + "/copy")
        deployment.up()
        wanted = [{"name": "kept", "path": "/data"}]
        first = deployment.negotiate("first", volumes=wanted)
        deployment.shell(first, "echo precious > /data/f; sync /data/f")
        self.assertEqual(deployment.request("DELETE", "/threads/first/sandbox").status, 204)
        self.assertEqual(deployment.cli("down").returncode, 0)
        shutil.rmtree(ledger)
        shutil.copytree(deployment.folder + "/copy", ledger)
        deployment.up()
        self.assertEqual(deployment.request("GET", "/volumes").json["volumes"], [])
        wanted.append({"name": "kept", "path": "/workspace", "sub_path": "f"})  # a file: its node refuses it
        reply = deployment.request("POST", "/threads/second/sandbox", {"volumes": wanted})
        self.assertEqual(reply.status, 400, reply)
        time.sleep(2)  # for what follows a failure
        again = deployment.negotiate("third", volumes=[{"name": "kept", "path": "/data"}])
        self.assertEqual(deployment.shell(again, "cat /data/f"), "precious\n")


if __name__ == "__main__":
    unittest.main()
