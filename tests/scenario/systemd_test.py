"""The package under a real systemd with cgroup v2 alone: a Debian of its own, in QEMU without KVM. Some four minutes and
300 MB of downloads, so only with PARLEY_LONG=1."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from parley_testing.deployment import needs_root
from parley_testing.installed import BUILD, make_package

MIRROR = "http://deb.debian.org/debian"
SYSTEM = ("systemd,systemd-sysv,dbus,udev,linux-image-cloud-amd64,initramfs-tools,python3-minimal,btrfs-progs,kmod,iproute2,"
          "passwd,procps")

# What is done in it; the host reads the second serial line.
TRIAL = r"""#!/bin/bash
exec >/dev/ttyS1 2>&1
active() { echo "ACTIVE $1: $(systemctl is-active parley-negotiator parley-sandboxd parley-sandboxes | tr '\n' ' ')"; }
main_pids() { systemctl show -P MainPID parley-negotiator parley-sandboxd | tr '\n' ' '; }
dpkg -i /root/parley_1.0.0_amd64.deb
active installed
echo "RAN $(parley run --sandbox auto -c 'print(6 * 7)')"
id=$(parley run -d -- sh -c 'i=0; while true; do echo $i; i=$((i+1)); sleep 0.2; done')
before=$(main_pids)
dpkg -i /root/parley_1.0.1_amd64.deb
active upgraded
[ "$before" = "$(main_pids)" ] || echo REPLACED
echo "COUNTED $(timeout 10 parley attach -n $id | tr '\n' ' ')"
systemctl kill -s KILL parley-sandboxd
sleep 5
active killed
echo "COUNTED $(timeout 10 parley attach -n $id | tr '\n' ' ')"
systemctl kill -s STOP parley-negotiator # a hang, as the watchdog sees it
for i in $(seq 90); do [ "$(systemctl show -P NRestarts parley-negotiator)" = 0 ] || break; sleep 1; done
sleep 5
active hung
dpkg -r parley
echo "LEFT $(ps axo args | grep -c '[p]arley') $(find /sys/fs/cgroup -name '*parley*' | wc -l)"
echo "JOURNAL"
journalctl --no-pager -u 'parley*'
echo END
systemctl poweroff -f
"""
UNIT = "[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/root/trial\n"
TARGET = "[Unit]\nRequires=multi-user.target\nAfter=multi-user.target\nWants=trial.service\n"


@needs_root
@unittest.skipUnless(os.environ.get("PARLEY_LONG"), "long: PARLEY_LONG=1")
class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="parley-systemd-", dir=os.path.join(BUILD, ".."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.make_disk()
        cls.boot()
        with open(f"{cls.folder}/trial.log", encoding="utf-8", errors="replace") as log:
            cls.log = log.read()

    @classmethod
    def make_disk(cls):
        root = f"{cls.folder}/root"
        packages = [make_package(version, cls.folder) for version in ("1.0.0", "1.0.1")]
        needs = subprocess.check_output(["dpkg-deb", "-f", packages[0], "Depends"], text=True)
        needs = re.sub(r"\s*\([^)]*\)", "", needs).strip().replace(", ", ",")
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={SYSTEM},{needs}", "bookworm", root, MIRROR], check=True,
                       stdout=subprocess.DEVNULL)
        for package in packages:
            shutil.copy(package, f"{root}/root")
        for path, text, mode in (("root/trial", TRIAL, 0o755), ("etc/fstab", "/dev/vda / ext4 defaults 0 1\n", 0o644),
                                 ("etc/systemd/system/trial.service", UNIT, 0o644),
                                 ("etc/systemd/system/trial.target", TARGET, 0o644)):
            with open(f"{root}/{path}", "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(f"{root}/{path}", mode)
        os.symlink("/etc/systemd/system/trial.target", f"{root}/etc/systemd/system/default.target")
        subprocess.run(["mkfs.ext4", "-q", "-d", root, f"{cls.folder}/disk", "3G"], check=True)

    @classmethod
    def boot(cls):
        boot = f"{cls.folder}/root/boot"
        found = {name.split("-")[0]: f"{boot}/{name}" for name in os.listdir(boot)}
        subprocess.run(["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-smp", "2", "-m", "2048", "-kernel", found["vmlinuz"],
                        "-initrd", found["initrd.img"], "-append", "root=/dev/vda rw console=ttyS0 quiet", "-drive",
                        f"file={cls.folder}/disk,if=virtio,format=raw", "-display", "none", "-nic", "none", "-no-reboot", "-serial",
                        f"file:{cls.folder}/console.log", "-serial", f"file:{cls.folder}/trial.log"], check=True, timeout=1500)

    def told(self, word):
        return [line[len(word) + 1:].strip() for line in self.log.splitlines() if line.startswith(word + " ")]

    def test_all_of_it(self):
        self.assertIn("END", self.log)
        self.assertEqual(self.told("ACTIVE"), [f"{when}: active active active" for when in
                                               ("installed", "upgraded", "killed", "hung")], self.log)
        self.assertEqual(self.told("RAN"), ["42"])
        self.assertIn("REPLACED", self.log)
        counted = [[int(number) for number in line.split()] for line in self.told("COUNTED")]
        for numbers in counted:
            self.assertEqual(numbers, list(range(len(numbers))), "no line is lost")
        self.assertGreater(len(counted[1]), len(counted[0]))
        self.assertIn("Watchdog timeout", self.log)
        self.assertEqual(self.told("LEFT"), ["0 0"], self.log)


if __name__ == "__main__":
    unittest.main()
