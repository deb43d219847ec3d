"""The warm pool: a prepare takes a sandbox that was born before anybody's lease. Nothing of it tells the one from one born
for the lease, and nothing of a lease reaches the next one in its slot; a pool that is empty, dead or broken makes a prepare
slower, never wrong; what waits in it is bounded and ends with its launcher."""
import json
import os
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.remains import WARM, living, pool  # noqa: E402

# All that a command can see of where it is: told as JSON. What is a lease's own, or the time's, is told apart below.
LOOK = r"""
import ctypes, glob, json, os, re, stat, sys
def read(path):
    try:
        with open(path, 'rb') as file: return file.read().decode('latin-1')
    except OSError as why: return 'errno %d' % why.errno
def tree(top):
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            facts = os.lstat(path)
            found[path] = [stat.filemode(facts.st_mode), facts.st_uid, facts.st_gid,
                           facts.st_size if stat.S_ISREG(facts.st_mode) else 0]
    return found
def run(words):
    import subprocess
    return subprocess.run(words, capture_output=True, text=True).stdout
libc = ctypes.CDLL(None, use_errno=True)
def mounts():
    lines = []
    for line in read('/proc/self/mountinfo').splitlines():
        before, after = line.split(' - ')
        fields = before.split()
        fields[3] = re.sub(r'^/slots/\d+/', '/slots/#/', fields[3])  # /dev and the covers of /proc are the slot's own
        lines.append([fields[3:6], re.sub(r'/slots?/\d+|\b\d{9,}\b', '#', after)])
    return lines
look = {
    'hostname': os.uname().nodename, 'hostname file': read('/etc/hostname'), 'hosts': read('/etc/hosts'),
    'domain': read('/proc/sys/kernel/domainname'),
    'environment': dict(os.environ), 'environment of init': read('/proc/1/environ'), 'words of init': read('/proc/1/cmdline'),
    'pid': os.getpid(), 'parent': os.getppid(), 'last pid': read('/proc/sys/kernel/ns_last_pid'),
    'processes': sorted(int(name) for name in os.listdir('/proc') if name.isdigit()),
    'ids': [os.getresuid(), os.getresgid(), os.getgroups(), os.umask(0)],
    'uid_map owner inside': re.sub(r'\d{9,}', '#', read('/proc/self/uid_map')),
    'boot id': read('/proc/sys/kernel/random/boot_id'),
    'cgroup': re.sub(r's\d+|parley-[0-9a-f]+', '#', read('/proc/self/cgroup')),
    'limits': read('/proc/self/limits'), 'rights': [l for l in read('/proc/self/status').splitlines()
        if l.startswith(('Cap', 'NoNewPrivs', 'Seccomp', 'Groups', 'Uid', 'Gid'))],
    'mounts': mounts(), 'cwd': os.getcwd(),
    'descriptors': sorted(os.listdir('/proc/self/fd')),
    'interfaces': read('/proc/net/dev'), 'routes': read('/proc/net/route'), 'sockets': read('/proc/net/tcp'),
    'unix sockets': len(read('/proc/net/unix').splitlines()), 'snmp': read('/proc/net/snmp'),
    'ipc': [read('/proc/sysvipc/' + kind) for kind in ('shm', 'sem', 'msg')], 'keys': read('/proc/keys'),
    'time namespace': read('/proc/self/timens_offsets'),
    'files': {top: tree(top) for top in ('/tmp', '/var/tmp', '/workspace', '/home', '/root', '/run', '/dev/shm', '/opt',
                                         '/srv', '/mnt', '/dev/mqueue', '/var/lib', '/var/log', '/var/spool', '/var/cache')},
    'etc': tree('/etc'),
    'disk': [os.statvfs(at).f_frsize * os.statvfs(at).f_blocks for at in ('/dev/shm',)],
    'my io': read('/proc/self/io') == '' , 'oom': read('/proc/self/oom_score_adj'),
    'sessions': [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
}
print(json.dumps(look))
"""

# Marks everything that a command can mark.
MARK = r"""
import ctypes, os, socket
marked = []
for folder in ('/tmp', '/var/tmp', '/workspace', '/dev/shm', '/run', '/home', '/etc', '/usr/local', '/usr/bin', '/opt', '/mnt',
               os.path.expanduser('~')):
    try:
        with open(folder + '/parley-mark', 'w') as file: file.write('of the first tenant')
        os.chmod(folder + '/parley-mark', 0o777)
        os.setxattr(folder + '/parley-mark', 'user.parley', b'mark')
        marked.append(folder)
    except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
libc.shmget(0x5041, 4096, 0o1666)
socket.create_server(('127.0.0.1', 4711)); socket.socket(socket.AF_UNIX).bind('\0parley-mark')
[os.waitpid(pid, 0) if pid else os._exit(0) for pid in (os.fork() for _ in range(200))]
print(','.join(marked))
"""


def wait_for(test, deployment, seconds=40):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = test()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain\n" + deployment.logs())


def warm(deployment):
    return [record for record in pool(deployment.state) if record.state == WARM]


def was_warm(deployment, grant):
    """As the launcher's log has it."""
    with open(f"{deployment.state}/log/sandboxd.log", errors="replace") as log:
        line = next(line for line in log if f"sandbox made sandbox={grant['sandbox']['id']} " in line)
    return line.rstrip().endswith("warm=1")


def look(deployment, grant):
    reply = deployment.exec(grant, argv=["/usr/bin/python3", "-c", LOOK])
    assert reply.status == 200 and reply.json["exit_code"] == 0, (reply, deployment.logs())
    return json.loads(reply.json["stdout"])


def without_lease(seen, grant):
    """What was seen, with the lease's own names for its own values, so that two leases can be compared."""
    sandbox = grant["sandbox"]
    for path, count in (("/etc/hostname", 1), ("/etc/hosts", 1)):
        seen["etc"][path][3] -= count * len(sandbox["name"])
    text = json.dumps(seen, sort_keys=True)
    for own, name in ((sandbox["id"], "ID"), (sandbox["name"], "NAME")):
        text = text.replace(own, name)
    return json.loads(text)


@needs_root
class Pool(unittest.TestCase):
    def setUp(self):
        self.deployment = None

    def tearDown(self):
        if self.deployment:
            self.deployment.close()

    def start(self, **settings):
        self.deployment = Deployment(**{"PARLEY_" + key.upper(): str(value) for key, value in settings.items()})
        return self.deployment

    def differences(self, one, other, at=""):
        """What is not the same, each at its place."""
        if isinstance(one, dict) and isinstance(other, dict):
            found = {}
            for key in sorted(set(one) | set(other)):
                found.update(self.differences(one.get(key), other.get(key), f"{at}/{key}"))
            return found
        return {} if one == other else {at: (one, other)}

    def compare(self, storage):
        d = self.start(warm=1, storage=storage)
        wait_for(lambda: warm(d), d)
        first = d.negotiate("warm", env={"GIVEN": "to warm"})
        self.assertTrue(was_warm(d, first))
        os.environ.pop("PARLEY_WARM", None)
        self.assertEqual(d.cli("down", "--keep").returncode, 0)
        d.environment["PARLEY_WARM"] = "0"
        d.up()
        d.wait_ready()
        second = d.negotiate("cold", env={"GIVEN": "to warm"})
        self.assertFalse(was_warm(d, second))
        one, other = (without_lease(look(d, grant), grant) for grant in (first, second))
        self.assertEqual(one["hostname"], "NAME")
        self.assertEqual(one["environment"]["GIVEN"], "to warm")
        self.assertNotIn("GIVEN", one["environment of init"])
        self.assertEqual(self.differences(one, other), {})

    def test_a_warm_one_is_as_a_cold_one(self):
        self.compare("auto")

    def test_a_warm_one_is_as_a_cold_one_in_memory(self):
        self.compare("tmpfs")

    def tenants(self, storage):
        """Again when another deployment of this machine took the slot between the two."""
        for _ in range(4):
            if self.two_tenants(storage):
                return
            self.deployment.close()
        self.skipTest("other deployments take the slots")

    def two_tenants(self, storage):
        """Two leases, one after another in one slot, the second from the pool."""
        d = self.start(warm=2, storage=storage)
        fresh = d.negotiate("fresh")
        expected = without_lease(look(d, fresh), fresh)
        wait_for(lambda: warm(d), d)
        tenant = d.negotiate("tenant", env={"SECRET": "of the first tenant"})
        slot = living(d.state)[tenant["sandbox"]["id"]].slot
        marked = d.exec(tenant, argv=["/usr/bin/python3", "-c", MARK]).json
        self.assertIn("/workspace", marked["stdout"].split(","), marked)
        d.exec(tenant, cmd="sleep 600", detach=True, id="stays")
        self.assertIn("/tmp/parley-mark", look(d, tenant)["files"]["/tmp"])  # a mark would be seen
        for thread in ("tenant", "fresh"):
            self.assertIn(d.request("DELETE", f"/threads/{thread}/sandbox").status, (200, 202, 204))
        wait_for(lambda: not living(d.state), d)
        self.assertEqual(d.cli("down", "--keep").returncode, 0)  # the next launcher begins with the lowest slots
        d.environment["PARLEY_WARM"] = str(slot + 3)
        d.environment["PARLEY_WARM_MAX"] = str(slot + 3)
        d.up()
        d.wait_ready()
        wait_for(lambda: len(warm(d)) >= slot + 3 or any(record.slot == slot for record in warm(d)), d)
        for number in range(slot + 3):
            grant = d.negotiate(f"next{number}")
            if living(d.state)[grant["sandbox"]["id"]].slot == slot:
                break
        else:
            return False
        self.assertTrue(was_warm(d, grant))
        seen = look(d, grant)
        self.assertNotIn("parley-mark", json.dumps(seen))
        self.assertNotIn("first tenant", json.dumps(seen))
        self.assertNotIn("SECRET", json.dumps(seen))
        self.assertEqual(self.differences(without_lease(seen, grant), expected), {})
        found = d.shell(grant, "find / -xdev -name 'parley-mark*' 2>/dev/null; ipcs -m | grep -c 0x00005041 || true")
        self.assertEqual(found, "0\n")
        usage = d.request("GET", grant["endpoints"]["http"] + "/metrics", token=grant["token"]).json
        self.assertEqual(usage["memory"]["oom_kills"], 0)
        self.assertLess(usage["cpu"]["used_ms"], 20000)  # its own few commands
        return True

    def test_successive_tenants_of_a_slot(self):
        self.tenants("auto")

    def test_successive_tenants_of_a_slot_in_memory(self):
        self.tenants("tmpfs")

    def test_each_is_somebodys_once(self):
        """More prepares than the pool has, at once: some warm, some cold, none an error, none the same."""
        import threading
        d = self.start(warm=2)
        wait_for(lambda: len(warm(d)) == 2, d)
        grants, wrong = {}, []

        def one(number):
            try:
                grants[number] = d.negotiate(f"burst{number}", env={"NUMBER": str(number)})
            except Exception as why:  # noqa: BLE001 - told by the test's thread
                wrong.append(why)
        threads = [threading.Thread(target=one, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len({record.slot for record in living(d.state).values()}), 10)
        kinds = [was_warm(d, grant) for grant in grants.values()]
        self.assertGreaterEqual(kinds.count(True), 2)
        self.assertGreaterEqual(kinds.count(False), 1)
        for number, grant in grants.items():
            self.assertEqual(d.shell(grant, "echo $NUMBER $(hostname)"), f"{number} {grant['sandbox']['name']}\n")

    def test_no_pool(self):
        d = self.start(warm=0)
        grant = d.negotiate("cold")
        self.assertEqual(d.shell(grant, "echo here"), "here\n")
        self.assertFalse(was_warm(d, grant))
        self.assertEqual(pool(d.state), [])

    def test_they_end_with_their_launcher(self):
        d = self.start(warm=3)
        before = wait_for(lambda: len(warm(d)) == 3 and warm(d), d)
        kept = d.negotiate("kept")
        before = [record for record in before if record.slot != living(d.state)[kept["sandbox"]["id"]].slot]
        d.environment["PARLEY_WARM"] = "0"
        d.kill("parley-sandboxd")
        for record in before:
            wait_for(lambda init=record.init: not os.path.exists(f"/proc/{init}"), d)
        d.cli("down", "--keep")
        d.up()
        d.wait_ready()
        self.assertEqual(d.shell(kept, "echo on"), "on\n")
        wait_for(lambda: not pool(d.state), d)
        for record in before:
            self.assertFalse(os.path.exists(f"{d.state}/sandboxd/run/{record.slot}"))
            try:
                with open(f"/run/parley/slots/{record.slot}") as lock:
                    self.assertNotEqual(lock.readline().rstrip("\n"), os.path.realpath(d.state))
            except FileNotFoundError:
                pass

    def test_a_dead_one_is_not_given(self):
        d = self.start(warm=2)
        for number in range(3):
            for record in wait_for(lambda: len(warm(d)) >= 2 and warm(d), d):
                os.kill(record.init, signal.SIGKILL)
            grant = d.negotiate(f"dead{number}")
            self.assertEqual(d.shell(grant, "echo alive"), "alive\n")
        wait_for(lambda: len(warm(d)) >= 2, d)

    def test_bounded(self):
        d = self.start(warm=50, warm_memory_mb=6)
        found = wait_for(lambda: len(warm(d)) == 4 and warm(d), d)
        for number in range(3):
            d.negotiate(f"more{number}")
        wait_for(lambda: len(warm(d)) == 4, d)
        time.sleep(0.5)
        self.assertLessEqual(len(pool(d.state)), 4)
        for record in warm(d) or found:
            with open(f"/proc/{record.init}/smaps_rollup") as rollup:
                pss = int(re.search(r"^Pss:\s+(\d+)", rollup.read(), re.M)[1])
            self.assertLess(pss, 1536)

    def test_slots_max_is_for_leases(self):
        d = self.start(warm=5, slots_max=2)
        wait_for(lambda: len(warm(d)) == 5, d)
        for number in range(2):
            self.assertEqual(d.shell(d.negotiate(f"full{number}"), "echo in"), "in\n")
        reply = d.request("POST", "/threads/toomany/sandbox", {})
        self.assertEqual(reply.status, 503, reply)


if __name__ == "__main__":
    unittest.main()
