"""What a hostile init gives for a connection to a port, for the list of ports, as a file helper and as a context's driver.
Goal: as in init_test.py, and no lie becomes an answer that the client would take for its own fault."""
import http.client
import json
import os
import sys
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from init_test import OneHostile
from parley_testing.deployment import needs_root
from parley_testing.hostile import MIB


class OneLiar(OneHostile):
    def choose(self, *words):
        """What it does from now on; by a new sandbox when the one that there is is not being talked to any more."""
        status, data = self.attack(*words)
        if status != 200:
            self.node.destroy(self.sandbox)
            self.sandbox, _ = self.node.hostile()
            status, data = self.attack(*words)
        self.assertEqual(status, 200, data)

    def ask(self, method, path, body=None, timeout=30):
        return self.node.use(self.sandbox, method, path, body, timeout)

    def begin(self, method, path, body=b""):
        """Sends the head, and as much of the body as is taken without waiting."""
        connection = http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=30)
        connection.request(method, f"/s/{self.sandbox}{path}", None,
                           {"Authorization": "Bearer " + self.node.token_of(self.sandbox),
                            "Content-Length": str(len(body))})
        left, until = memoryview(body), time.monotonic() + 2
        connection.sock.settimeout(0.1)
        while left and time.monotonic() < until:
            try:
                left = left[connection.sock.send(left):]
            except TimeoutError:
                pass
        connection.sock.settimeout(30)
        return connection

    def read_some(self, connection, most):
        """What comes, up to `most` bytes: of an answer that may never end."""
        answer, size = connection.getresponse(), 0
        try:
            while size < most and (piece := answer.read1(65536)):
                size += len(piece)
        except (OSError, http.client.HTTPException):
            pass  # broken off
        return answer.status, size


@needs_root
class Ports(OneLiar):
    def test_no_connection(self):
        for kind in ("null", "fifo", "opath", "udp", "unix", "own", "epoll", "errno", "twice"):
            with self.subTest(kind):
                self.choose("dial", kind)
                status, data = self.ask("GET", "/ports/8000/")
                self.assertEqual(status, 502, data)
            self.node.check_neighbour()
        self.assertTrue(self.lines("not a connection of the family"))

    def test_one_that_waits(self):
        """A listening socket, one to another port that nobody reads, none, and one under another number."""
        waiting = []
        for kind in ("listen", "linger", "silent", "number"):
            self.choose("dial", kind)
            waiting.append(self.begin("GET", "/ports/8001/"))
        self.node.check_neighbour()
        for connection in waiting:
            connection.close()

    def test_one_that_is_kept_and_changed(self):
        """Its other owner takes O_NONBLOCK away, sets SO_LINGER and reads nothing of what is sent."""
        self.choose("dial", "deaf")
        for port in (8002, 8003):
            connection = self.begin("POST", f"/ports/{port}/", b"x" * (8 * MIB) if port == 8003 else b"")
            for _ in range(5):
                self.node.check_neighbour()
            connection.close()
            self.node.check_neighbour()

    def test_the_list(self):
        """... and meanwhile of one whose init says nothing: that is told, and not for ever waited for."""
        silent, _ = self.node.hostile()
        status, data = self.node.attack(silent, "listeners", "silent")
        self.assertEqual(status, 200, data)
        waiting = http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=60)
        waiting.request("GET", f"/s/{silent}/ports", None, {"Authorization": "Bearer " + self.node.token_of(silent)})
        for kind in ("route", "null", "fifo", "opath", "udp", "unix", "linger", "own"):
            with self.subTest(kind):
                self.choose("listeners", kind)
                status, data = self.ask("GET", "/ports")
                self.assertEqual(status, 500, data)
            self.node.check_neighbour()
        self.assertTrue(self.lines("not a socket that asks for sockets"))
        answer = waiting.getresponse()
        data = answer.read()
        self.assertEqual((answer.status, json.loads(data)["error"]["code"]), (504, "TIMEOUT"), data)
        waiting.close()
        self.node.destroy(silent)

    def test_a_list_that_is_forged(self):
        self.choose("listeners", "forged")
        self.assertEqual(self.ask("GET", "/ports"), (200, b'{"ports":[],"truncated":false}'))


@needs_root
class Helpers(OneLiar):
    def test_no_file(self):
        for kind in ("null", "zero", "fifo", "opath", "dir", "unix", "listen", "linger", "own", "proc", "unsealed", "far",
                     "epoll"):
            with self.subTest(kind):
                self.choose("helper", "fd", kind)
                status, data = self.ask("GET", "/files/workspace/x")
                self.assertEqual((status, json.loads(data)["error"]["code"]), (500, "INTERNAL"))
            self.node.check_neighbour()
        self.assertTrue(self.lines("the file helper in the sandbox broke the rules"))

    def test_too_many(self):
        for kind in ("null", "linger"):
            self.choose("helper", "fds", kind)
            self.assertEqual(self.ask("GET", "/files/workspace/x")[0], 500)
            self.node.check_neighbour()

    def test_a_file_that_changes(self):
        self.choose("helper", "file", "cut")
        status, size = self.read_some(self.begin("GET", "/files/workspace/x"), 2 * MIB)
        self.assertLessEqual(size, MIB)
        self.choose("helper", "file", "grow")
        answer = self.begin("GET", "/files/workspace/x").getresponse()
        self.assertEqual(len(answer.read()), int(answer.headers["Content-Length"]))  # it ends, where it was said
        self.choose("helper", "file", "writable")
        self.assertEqual(self.ask("GET", "/files/workspace/x")[0], 500)

    def test_behind_its_last_word(self):
        for _ in range(3):
            self.choose("helper", "behind")
            self.ask("GET", "/files/workspace/x")
            self.node.check_neighbour()

    def test_bytes(self):
        for what in ("huge", "short", "kind", "size", "text"):
            with self.subTest(what):
                self.choose("helper", "bytes", what)
                self.assertEqual(self.ask("GET", "/files/workspace/x")[0], 500)

    def test_names(self):
        for name in ("nul", "a/../b", "../x", "/x", ".", "a//b", "x/"):
            with self.subTest(name):
                self.choose("helper", "name", name)
                status, data = self.ask("GET", "/files/workspace?list=1")
                self.assertTrue(status != 200 or b"broke the rules" in data, data)
        for name in ("a\nb", "\udcff\udcfe", "a\"b", "\x1b[2J"):  # names as there may be
            with self.subTest(name):
                if name[0] == "\udcff":
                    continue  # no text of a command line of JSON: see Names in fuzz/front_files_fuzz.c
                self.choose("helper", "name", name)
                status, data = self.ask("GET", "/files/workspace?list=1")
                self.assertEqual(status, 200, data)
                json.loads(data)

    def test_errors(self):
        """Nobody is made to throw a good token away."""
        for kind, status in ((4711, 500), (-1, 500), (3, 500), (4, 500), (10, 500), (11, 500), (12, 412)):
            with self.subTest(kind):
                self.choose("helper", "error", kind)
                got, data = self.ask("GET", "/files/workspace/x")
                self.assertEqual(got, status, data)
                self.assertNotIn(b"\\u001B", data)

    def test_a_list_without_an_end(self):
        self.choose("helper", "endless", "a")
        before = self.node.resident_bytes(self.front)
        for most in (8 * MIB, 1):  # one that reads, one that does not any more
            connection = self.begin("GET", "/files/workspace?list=1&limit=100000000")
            self.assertEqual(self.read_some(connection, most)[0], 200)
            for _ in range(5):
                self.node.check_neighbour()
            self.assertLess(self.node.resident_bytes(self.front) - before, 64 * MIB)
            connection.close()

    def test_it_hangs_up(self):
        self.choose("helper", "close")
        self.assertEqual(self.ask("GET", "/files/workspace/x")[0], 503)

    def test_it_claims_to_be_done(self):
        for method in ("PUT", "GET"):
            self.choose("helper", "done")
            status, data = self.ask(method, "/files/workspace/x", b"abc" if method == "PUT" else None)
            self.assertEqual(status, 500, data)


@needs_root
class Drivers(OneLiar):
    def test_frames(self):
        for what in ("garbage", "deep", "values", "nul", "utf8", "endless"):
            with self.subTest(what):
                self.choose("driver", what)
                before = self.node.resident_bytes(self.front)
                connection = self.begin("POST", "/kernels", json.dumps({"language": "python"}).encode())
                for _ in range(5):  # its client would wait for a minute: it is killed and does not go
                    self.node.check_neighbour()
                    self.assertLess(self.node.resident_bytes(self.front) - before, 160 * MIB)
                connection.close()




if __name__ == "__main__":
    unittest.main()
