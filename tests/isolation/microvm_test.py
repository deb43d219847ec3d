"""Isolation microvm: what is its own. A machine that is interpreted (QEMU, TCG) around each sandbox, in a slot as of
namespaces; who gets out of it finds a process without rights. The list that all levels share: levels_test.py."""
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing.deployment import BIN, Deployment  # noqa: E402
from parley_testing.microvm import FAST, KERNELS, needs_microvm, settings  # noqa: E402
from parley_testing.processes import facts_of, programs_below  # noqa: E402

SLOT = 65536  # ids


@needs_microvm
class Machine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Deployment(programs=FAST, **settings())
        cls.addClassCleanup(cls.node.close)
        cls.grant = cls.node.negotiate("vm", isolation="microvm", resources={"memory_mb": 384, "pids": 128})

    def shell(self, command, **body):
        return self.node.shell(self.grant, command, **body)

    def keeper(self):
        """PID 1 of the slot."""
        with open(f"{self.node.state}/log/sandboxd.log") as log:
            made = [line for line in log if "sandbox made" in line and self.grant["sandbox"]["id"] in line]
        return int(made[-1].split(" pid=")[1].split()[0])

    def test_the_kernel_is_another_one(self):
        self.assertEqual(self.grant["sandbox"]["isolation"], "microvm")
        self.assertIn(self.shell("uname -r").strip(), KERNELS[0])
        self.assertNotEqual(self.shell("uname -r").strip(), os.uname().release)

    def test_its_monitor_has_no_rights_and_its_file_server_no_other_files(self):
        programs = programs_below(self.keeper())
        monitor = facts_of(programs["qemu-system-x86_64"])
        server = facts_of(programs["virtiofsd"])
        base = int(server["Uid"].split()[0])
        self.assertEqual((base - 1879048192) % SLOT, 0)
        self.assertEqual(monitor["Uid"].split(), [str(base + 65534)] * 4)
        for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"):
            self.assertEqual(int(monitor[name], 16), 0, name)
        for facts in (monitor, server):
            self.assertEqual((facts["NoNewPrivs"], facts["Seccomp"]), ("1", "2"))
        seen = set(os.listdir(f"/proc/{programs['qemu-system-x86_64']}/root"))
        self.assertEqual(seen, {"bin", "dev", "files", "lib", "lib32", "lib64", "proc", "sbin", "tmp", "usr"})
        self.assertEqual(os.listdir(f"/proc/{programs['qemu-system-x86_64']}/root/files"), [])
        files = set(os.listdir(f"/proc/{programs['virtiofsd']}/root"))
        self.assertIn("workspace", files)
        self.assertFalse(files & {"bundle", "sandbox"}, files)

    def test_who_had_the_letter_cannot_be_read(self):
        """It is in no argument, and the processes that held it show neither descriptors, memory nor files."""
        attempt = ("import os\n"
                   "print(open('/proc/cmdline').read(), os.path.exists('/letter'))\n"
                   "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
                   " if os.stat('/proc/' + pid).st_uid == os.getuid() or not os.path.exists(f'/proc/{pid}/status'): continue\n"
                   " for deed in (lambda at: os.listdir(at + '/fd'), lambda at: os.stat(at + '/root/letter'),\n"
                   "              lambda at: open(at + '/environ').read(1), lambda at: open(at + '/mem')):\n"
                   "  try: print('READ', pid, deed('/proc/' + pid))\n"
                   "  except PermissionError: print('refused')\n"
                   "  except OSError as e: print(e)\n")
        said = self.shell(f"exec /usr/bin/python3 -c \"{attempt}\"")
        self.assertNotIn("READ", said)
        self.assertNotIn("sbx_", said)
        self.assertGreater(said.count("refused"), 20)
        self.assertIn("False\n", said.splitlines()[1] + "\n")

    def test_the_host_s_loopback_is_out_of_reach(self):
        """slirp leads a guest to its host's loopback at 10.0.2.2, were it not told otherwise."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        port = listener.getsockname()[1]
        threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        socket.create_connection(("127.0.0.1", port), 5).close()  # it is there
        attempt = ("import socket\n"
                   f"for to in [('10.0.2.2', {port}), ('127.0.0.1', {port}), ('10.0.2.2', 44772), ('1.1.1.1', 53)]:\n"
                   " s = socket.socket(); s.settimeout(2)\n"
                   " try: s.connect(to); s.send(b'GET / HTTP/1.0\\r\\n\\r\\n'); print('reached', to, s.recv(1))\n"
                   " except OSError as e: print('refused', e.errno or 'late')\n")
        said = self.shell(f"exec /usr/bin/python3 -c \"{attempt}\"")
        self.assertEqual(said.count("refused"), 4, said)

    def test_what_it_writes_is_on_the_host_within_its_slot(self):
        self.shell("echo kept >/workspace/kept && sync")
        server = programs_below(self.keeper())["virtiofsd"]
        path = f"/proc/{server}/root/workspace/kept"
        base = int(facts_of(server)["Uid"].split()[0])
        with open(path) as kept:
            self.assertEqual(kept.read(), "kept\n")
        self.assertEqual(os.stat(path).st_uid, base + 1000)

    def test_processes_are_counted_inside(self):
        bomb = ("import os, time\nall = []\ntry:\n"
                " while len(all) < 1000:\n  pid = os.fork()\n  if pid == 0: time.sleep(60); os._exit(0)\n  all.append(pid)\n"
                "except OSError as e: print(len(all), e.errno)\n"
                "for pid in all: os.kill(pid, 9)\n")
        count, number = map(int, self.shell(f"exec /usr/bin/python3 -c \"{bomb}\"").split())
        self.assertEqual(number, 11)
        self.assertLess(count, 128 + 64)
        self.assertEqual(self.shell("echo on"), "on\n")

    def test_what_it_cannot_have_is_refused(self):
        def refused(expected, **body):
            reply = self.node.negotiate("other", isolation="microvm", expect=(400,), **body)
            self.assertIn(expected, reply["error"]["message"])
        refused("memory_mb must be at least 256 with isolation microvm", resources={"memory_mb": 255})
        refused("cannot have egress", resources={"memory_mb": 256}, network={"egress": "public"})

    def test_it_outlives_launcher_and_front(self):
        before = self.shell("cat /proc/sys/kernel/random/boot_id")
        for program in ("parley-sandboxd",):
            self.node.kill(program)
        self.node.wait_ready(60)
        self.assertEqual(self.shell("cat /proc/sys/kernel/random/boot_id"), before)


    def test_zz_the_end_of_the_monitor_is_the_sandbox_s(self):
        """The last one of this class: it ends what the others share."""
        keeper = self.keeper()
        os.kill(programs_below(keeper)["qemu-system-x86_64"], signal.SIGKILL)
        until = time.monotonic() + 60
        reply = self.node.exec(self.grant, cmd="true")
        while (reply.status != 410 or os.path.exists(f"/proc/{keeper}")) and time.monotonic() < until:
            time.sleep(0.1)
            reply = self.node.exec(self.grant, cmd="true")
        self.assertEqual(reply.status, 410, reply)
        self.assertFalse(os.path.exists(f"/proc/{keeper}"))


@needs_microvm
class Missing(unittest.TestCase):
    def doctor(self, **more):
        done = subprocess.run([os.path.join(BIN, "parley-sandboxd"), "--doctor"], env=dict(os.environ, **more),
                              capture_output=True, text=True, timeout=60)
        return done.stdout

    def test_a_kernel_that_is_not_there_is_told(self):
        said = self.doctor(**dict(settings(), PARLEY_MICROVM_KERNEL="/nowhere/vmlinuz-1"))
        self.assertIn("no /nowhere/vmlinuz-1", said)
        node = Deployment(start=False, **dict(settings(), PARLEY_MICROVM_KERNEL="/nowhere/vmlinuz-1"))
        self.addCleanup(node.close)
        with self.assertRaises(AssertionError) as failed:
            node.up()
        self.assertIn("isolation microvm: microvm_kernel: no /nowhere/vmlinuz-1", str(failed.exception))


if __name__ == "__main__":
    unittest.main()
