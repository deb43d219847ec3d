"""A sandboxd alone whose sandboxes have a program of tests/hostile in the place of parley-init, beside one honest
neighbour; and what must hold after each attack."""
import http.client
import json
import os
import stat
import threading
import time

from .alone import Alone
from .deployment import BIN
from .token import compact, header, kdf, sign

HOSTILE_INIT = os.path.join(os.path.dirname(BIN), "hostile", "hostile-init")
NEIGHBOUR = "sbx_" + "n" * 20
MIB = 1 << 20


def named(number):
    """A sandbox id."""
    digits = ""
    for _ in range(20):
        digits, number = "abcdefghijklmnop"[number % 16] + digits, number // 16
    return "sbx_" + digits


class Hostile(Alone):
    """Between `with` ends: all sandboxes but the neighbour are hostile."""
    # One loop: what blocks for one sandbox blocks for all. No pool: a hostile birth is told what to do by its name.
    options = ("--loops", "1", "--warm", "0", "--storage", "tmpfs")

    def __init__(self):
        self.count = self.checks = 0
        super().__init__()
        try:
            self.prepare_as(NEIGHBOUR, "neighbour")
            assert self.run(NEIGHBOUR, ["/bin/echo", "here"])["exit_code"] == 0
            self.child.terminate()
            self.child.wait(30)
            self.options = (*self.options, "--init", HOSTILE_INIT)
            self.start()
            self.check_neighbour()
        except BaseException:
            self.close()
            raise

    # ---- asking ----

    def prepare_as(self, sandbox, name, **more):
        order = dict(id=sandbox, name=name, template="base", isolation="auto", cpu_milli=1000, memory_bytes=256 * MIB,
                     disk_bytes=0, pids=128, epoch=1, env={}, deadline=int(time.time() * 1000) + 3600_000)
        order.update(more)
        return self.call(call="prepare", sandbox=order)

    def start_preparing(self, sandbox, name):
        """As prepare_as, for which nobody waits; until its slot is there."""
        threading.Thread(target=self.prepare_ignored, args=(sandbox, name), daemon=True).start()
        self.wait_for(lambda: self.has(sandbox))

    def wait_for(self, is_so, seconds=20):
        until = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < until, self.logs()
            time.sleep(0.01)

    def prepare_ignored(self, sandbox, name):
        try:
            self.prepare_as(sandbox, name)
        except (AssertionError, OSError, http.client.HTTPException):
            pass  # the deployment may be over before

    def hostile(self, name="hostile"):
        """A new hostile sandbox's id; of one that is to be refused at birth, the answer of `prepare` too."""
        self.count += 1
        sandbox = named(self.count)
        answer = self.prepare_as(sandbox, name)
        if not name.startswith("li-"):
            assert answer["ok"], (answer, self.logs())
        return sandbox, answer

    def destroy(self, sandbox, seconds=40):
        answer = self.call(call="destroy", id=sandbox, reason="deleted")
        assert answer["ok"], answer
        until = time.monotonic() + seconds
        while self.has(sandbox):
            assert time.monotonic() < until, (sandbox, self.logs())
            time.sleep(0.05)

    def has(self, sandbox):
        """Whether the launcher still has something of it."""
        folder = self.state + "/sandboxd/records"
        for record in os.listdir(folder):
            try:
                with open(os.path.join(folder, record), "rb") as data:
                    if sandbox.encode() in data.read():
                        return True
            except FileNotFoundError:
                pass
        return False

    def token_of(self, sandbox, scope="process fs:rw port code"):
        now = int(time.time())
        claims = {"iss": "dpl_alone", "aud": sandbox, "sub": "admin", "jti": "tok_" + "a" * 20,
                  "fam": "tok_" + "a" * 20, "iat": now, "exp": now + 900, "scope": scope, "thread_id": "t1",
                  "lease": "lse_" + "a" * 20, "act": "human"}
        root = kdf(self.key, "parley/sandbox/1", sandbox)
        return sign(kdf(root, "parley/token/1", "1"), header(sandbox, 1), compact(claims))

    def use(self, sandbox, method, path, body=None, timeout=30):
        """Status and body; 0 when the connection was broken off."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, f"/s/{sandbox}{path}", json.dumps(body) if isinstance(body, (dict, list)) else body,
                               {"Authorization": "Bearer " + self.token_of(sandbox)})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (ConnectionError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def run(self, sandbox, cmd, **more):
        status, data = self.use(sandbox, "POST", "/exec", dict(argv=cmd, stream="none", **more))
        assert status == 200, (status, data, self.logs())
        return json.loads(data)

    def attack(self, sandbox, *words, timeout=30):
        """POST /exec of an attack."""
        return self.use(sandbox, "POST", "/exec", dict(argv=[str(word) for word in words], stream="none"), timeout)

    def begin(self, sandbox, *words):
        """An attack that may not answer: its connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", f"/s/{sandbox}/exec",
                           json.dumps(dict(argv=[str(word) for word in words], stream="none")),
                           {"Authorization": "Bearer " + self.token_of(sandbox)})
        return connection

    # ---- what must hold ----

    def check_neighbour(self, seconds=20):
        """It is served: a command, a file. The deadline is generous, what is attacked blocks for ever."""
        until, last = time.monotonic() + seconds, None
        self.checks += 1  # each leaves a command that is kept for a while
        while time.monotonic() < until:
            try:
                status, data = self.use(NEIGHBOUR, "POST", "/exec",
                                        dict(argv=["/bin/echo", "still here"], stream="none"), 10)
                if status == 200 and json.loads(data)["exit_code"] == 0:
                    return
                last = (status, data)
            except OSError as error:
                last = error
            time.sleep(0.1)
        raise AssertionError(f"the neighbour is not served: {last}\n{self.logs()}")

    def front(self):
        [pid] = [pid for pid in self.fronts() if os.stat(f"/proc/{pid}").st_uid != 0]
        return pid

    @staticmethod
    def is_hostile(pid):
        """A process that runs the hostile init (which is a memory file named parley-init, as the honest one is)."""
        try:
            return "parley-init" in os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return False

    @staticmethod
    def descriptors(pid):
        return len(os.listdir(f"/proc/{pid}/fd"))

    @staticmethod
    def held_bytes(pid):
        """What the memory files that a process holds take."""
        total, seen = 0, set()
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                if "memfd:" not in os.readlink(f"/proc/{pid}/fd/{fd}"):
                    continue
                status = os.stat(f"/proc/{pid}/fd/{fd}")
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_ino not in seen:
                seen.add(status.st_ino)
                total += status.st_blocks * 512
        return total

    @staticmethod
    def resident_bytes(pid):
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    def wait_for_log(self, text, since=0, seconds=20):
        until = time.monotonic() + seconds
        while text not in self.log_since(since):
            assert time.monotonic() < until, f"no log line with {text!r}\n" + self.logs()
            time.sleep(0.05)

    def log_mark(self):
        return os.path.getsize(self.folder + "/log")

    def log_since(self, mark):
        with open(self.folder + "/log", "rb") as log:
            log.seek(mark)
            return log.read().decode("utf-8", "backslashreplace")

    def settle(self, read, most, seconds=20):
        """Waits until read() is at most `most`."""
        until = time.monotonic() + seconds
        while (value := read()) > most:
            assert time.monotonic() < until, f"{value} is over {most}\n" + self.logs()
            time.sleep(0.05)


