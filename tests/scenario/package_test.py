"""The package: installed on a machine of its own, both programs replaced by an upgrade while a command runs, removed."""
import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest

from parley_testing.deployment import needs_root
from parley_testing.installed import BUILD, ROOT, Installed, make_package

PLANES = ("parley-negotiator", "parley-sandboxd")


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@needs_root
@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "CPackConfig.cmake")), "needs the release build")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="parley-package-")
        os.chmod(cls.shared, 0o755)
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        for version in ("1.0.0", "1.0.1"):
            make_package(version, cls.shared)

    def setUp(self):
        self.machine = Installed(self.shared)
        self.addCleanup(self.machine.end)
        # What the package depends on is there: this machine has built it.
        self.machine.good("dpkg", "-i", "/mnt/parley_1.0.0_amd64.deb")

    def start(self):
        self.machine.start("parley-negotiator")
        self.machine.start("parley-sandboxes")
        self.machine.start("parley-sandboxd", PARLEY_STORAGE="tmpfs", PARLEY_WARM="0")

    def restart(self, name):
        self.machine.stop(name)
        if name == "parley-sandboxd":
            self.machine.start(name, PARLEY_STORAGE="tmpfs", PARLEY_WARM="0")
        else:
            self.machine.start(name)

    def programs(self):
        """Path and inode of what both planes run."""
        lines = self.machine.good("sh", "-c", "for p in /proc/[0-9]*; do echo $(readlink $p/exe) $(stat -Lc %i $p/exe); done")
        return {line for line in lines.splitlines() if any(plane in line for plane in PLANES)}

    def test_what_is_installed(self):
        machine = self.machine
        listed = machine.good("dpkg", "-L", "parley").split()
        for path in ("/usr/bin/parley", "/usr/libexec/parley/parley-init", "/usr/lib/systemd/system/parley-sandboxd.service",
                     "/usr/share/man/man1/parley.1", "/usr/share/bash-completion/completions/parley"):
            self.assertIn(path, listed)
        for user in PLANES:
            self.assertIn("nologin", machine.good("getent", "passwd", user))
        modes = machine.good("find", *[path for path in listed if "parley" in path], "-maxdepth", "0", "(", "-perm", "/6022",
                             "-o", "-not", "-user", "root", ")", "-not", "-type", "l")
        self.assertEqual(modes, "", "nothing is setuid, or anybody's to write")

    def test_units_are_sound(self):
        done = self.machine.run("systemd-analyze", "verify", "--man=no", *(
            f"/usr/lib/systemd/system/{name}" for name in
            ("parley.target", "parley-negotiator.service", "parley-sandboxes.service", "parley-sandboxd.service")))
        complaints = [line for line in (done.stdout + done.stderr).splitlines() if "parley" in line]
        self.assertEqual((done.returncode, complaints), (0, []))

    def test_lives_on_through_an_upgrade(self):
        machine = self.machine
        self.start()
        for name in PLANES:
            told = machine.services[name].told
            self.assertEqual(told.recv(500), b"WATCHDOG=1", "a sign of life for who waits for it")
        # Root's CLI needs nothing but the package.
        self.assertEqual(machine.good("parley", "run", "--sandbox", "auto", "-c", "print(6 * 7)"), "42\n")
        counter = "i=0; while true; do echo $i; i=$((i+1)); sleep 0.05; done"
        command = machine.good("parley", "run", "-d", "--", "sh", "-c", counter).strip()
        before = self.programs()
        machine.good("dpkg", "-i", "/mnt/parley_1.0.1_amd64.deb")
        for name in PLANES:
            self.restart(name)
        after = self.programs()
        replaced = {line for line in after - before if "(deleted)" not in line}
        self.assertEqual({os.path.basename(line.split()[0]) for line in replaced}, set(PLANES), after)
        said = machine.good("sh", "-c", f"timeout 3 parley attach -n {command} || true").split()
        numbers = [int(word) for word in said if word.isdigit()]
        self.assertEqual(numbers, list(range(len(numbers))), "no line is lost")
        self.assertGreater(len(numbers), 20)

    def test_removal_leaves_nothing(self):
        machine = self.machine
        self.start()
        machine.good("parley", "run", "-d", "--", "sleep", "1000")
        sandboxes = json.loads(machine.good("parley", "ls", "--json"))
        self.assertEqual(len(sandboxes["sandboxes"] if isinstance(sandboxes, dict) else sandboxes), 1)
        # No systemd is there to be asked to stop them: for the planes and the sandboxes the package's own way must do.
        machine.good("dpkg", "-r", "parley")
        machine.stop("parley-sandboxes")
        running = machine.good("sh", "-c", "for p in /proc/[0-9]*; do readlink $p/exe; tr '\\0' ' ' <$p/cmdline; echo; done")
        left = [line for line in running.splitlines() if "libexec/parley" in line]
        self.assertEqual(left, [])
        self.assertNotIn("sleep 1000", running)
        self.assertEqual(machine.run("ls", "/usr/libexec/parley").returncode, 2)
        machine.good("umount", "/var/lib/parley")
        machine.good("dpkg", "--purge", "parley")
        self.assertNotEqual(machine.run("getent", "passwd", "parley-sandboxd").returncode, 0)
        self.assertEqual(machine.good("find", "/etc", "/var/lib", "/usr/bin", "-name", "*parley*", "-not", "-path",
                                      "/var/lib/dpkg/*"), "")


@needs_root
class Scripts(unittest.TestCase):
    """What the maintainer scripts ask of systemd, one that only notes it; on a /run and a state folder of their own."""
    STEPS = r"""
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/state "$1"
mount --bind /run/state /var/lib
mkdir /var/lib/parley
cd "$1"
for tool in getent parley systemctl; do printf '#!/bin/sh\necho %s "$@" >>/run/told\n' $tool >$tool; chmod +x $tool; done
PATH=$1:$PATH
step() { echo "== $*" >>/run/told; script=$1; shift; "$0/$script" "$@"; }
step postinst configure ''
step prerm upgrade 1.0.1
step postinst configure 1.0.0
step prerm remove
step postrm remove
step postinst configure 1.0.0
step postinst configure 1.0.0
cat /run/told
"""

    def test_installed_again_after_a_removal_it_starts(self):
        done = subprocess.run(["unshare", "-m", "sh", "-c", self.STEPS, os.path.join(ROOT, "packaging", "debian"),
                               "/run/tools"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done)
        steps = done.stdout.split("== ")[1:]
        starts = ["systemctl start parley.target" in step for step in steps]
        enables = ["systemctl enable" in step for step in steps]
        self.assertEqual(starts, [True, False, False, False, False, True, False], done.stdout)
        self.assertEqual(enables, starts)
        self.assertEqual(["try-restart" in step for step in steps], [False, False, True, False, False, False, True])


if __name__ == "__main__":
    unittest.main()
