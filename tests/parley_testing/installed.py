"""A machine to install the package on: this one's files below an overlay, with processes, mounts, users and network of its
own. There is no systemd in it: start() does what that does with a unit's [Service]."""
import itertools
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
BUILD = os.path.join(ROOT, "build", "release")

# What becomes of the overlay in the new namespaces; then process 1, which reaps.
ENTER = r"""
set -e
mount -t tmpfs tmpfs "$1"
over() { # an overlay of the host's $2 at $3, with what is changed under the name $1
    mkdir -p "$top/$1/upper" "$top/$1/work"
    mount -t overlay overlay -o "lowerdir=$2,upperdir=$top/$1/upper,workdir=$top/$1/work" "$3"
}
top=$1
mkdir "$top"/root
over root / "$top"/root
cd "$top"/root
# Sandboxes have the host's /usr, whose mount has to be one that can be idmapped: no overlay.
mount --bind /usr usr
for part in bin libexec lib/systemd share; do over "${part#*/}" /usr/$part usr/$part; done
mount --rbind /dev dev
mount --rbind /sys sys
mount --bind "$2" mnt
mkdir -p /run/parley run/parley
mount -t tmpfs tmpfs run
mkdir run/parley
mount --bind /run/parley run/parley
mount -t tmpfs tmpfs tmp
rm -rf var/lib/parley root/.config/parley root/.cache/parley
mkdir var/lib/parley
mount -t tmpfs tmpfs var/lib/parley
mount -t proc proc proc
ip link set lo up
mkdir .host
pivot_root . .host
cd /
umount -l /.host
rmdir /.host
exec /usr/bin/python3 -c 'import signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("up", flush=True)
while True: time.sleep(1000)'
"""


def make_package(version, to):
    """The .deb of the release build, as that version; its path."""
    subprocess.run(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-G", "DEB", "-B", to,
                    "-D", f"CPACK_PACKAGE_VERSION={version}"], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                   cwd=BUILD)
    return os.path.join(to, f"parley_{version}_amd64.deb")


class Service:
    def __init__(self, process, told):
        self.process, self.told = process, told


class Installed:
    """`shared` is a folder of ours that it sees as /mnt."""
    numbers = itertools.count()

    def __init__(self, shared):
        self.folder = tempfile.mkdtemp(prefix="parley-installed-")
        self.shared = shared
        self.cgroup = f"/parley-installed-{os.getpid()}-{next(self.numbers)}"
        self.services = {}
        self.first = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork",
                                       "--kill-child", "sh", "-c", ENTER, "sh", self.folder, shared],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.first.stdout.readline() != "up\n":
            raise RuntimeError(self.first.stderr.read())
        with open(f"/proc/{self.first.pid}/task/{self.first.pid}/children", encoding="ascii") as children:
            self.pid = int(children.read().split()[0])

    def words(self, words):
        return ["nsenter", "--mount", "--net", "--pid", "-t", str(self.pid), "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
                "DEBIAN_FRONTEND=noninteractive", *words]

    def run(self, *words, **how):
        how.setdefault("timeout", 120)
        return subprocess.run(self.words(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, **how)

    def good(self, *words, **how):
        done = self.run(*words, **how)
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def read(self, path):
        return self.good("cat", path)

    def unit(self, name):
        """Its [Service]: key -> values."""
        keys = {}
        for key, value in re.findall(r"^([A-Za-z]+)=(.*)$", self.read(f"/usr/lib/systemd/system/{name}.service"), re.M):
            keys.setdefault(key, []).append(value)
        return keys

    def start(self, name, **environment):
        """Runs ExecStartPre, then ExecStart, and waits until it says that it is ready."""
        unit = self.unit(name)
        for line in unit.get("ExecStartPre", []):
            self.good(*shlex.split(line))
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        os.makedirs(os.path.join(self.shared, "notify"), exist_ok=True)
        path = os.path.join(self.shared, "notify", f"{name}-{time.monotonic_ns()}")
        told.bind(path)
        os.chmod(path, 0o777)
        told.settimeout(60)
        words = shlex.split(unit["ExecStart"][0])
        if "--cgroup" in words:  # the test's own, not systemd's
            words[words.index("--cgroup") + 1] = self.cgroup
        settings = {"NOTIFY_SOCKET": f"/mnt/notify/{os.path.basename(path)}", "WATCHDOG_USEC": "2000000", **environment}
        log = open(os.path.join(self.shared, f"{name}.log"), "a", encoding="utf-8")
        if "--keep-cgroup" in words:
            os.makedirs(self.cgroup_folder())
            words = ["sh", "-c", f'echo 0 >{self.cgroup_folder()}/cgroup.procs; exec "$@"', "sh", *words]
        process = subprocess.Popen(self.words([f"{key}={value}" for key, value in settings.items()] + words),
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self.services[name] = Service(process, told)
        if told.recv(500) != b"READY=1":
            raise AssertionError(f"{name} is not ready")

    def cgroup_folder(self):
        with open("/proc/mounts", encoding="ascii") as mounts:
            top = next(line.split()[1] for line in mounts if line.split()[2] == "cgroup2")
        return top + self.cgroup

    def stop(self, name):
        """As systemctl stop with KillMode=process."""
        service = self.services.pop(name)
        for pid in self.programs_pids(service.process.pid):
            os.kill(pid, signal.SIGTERM)
        service.process.wait(60)
        service.told.close()

    @staticmethod
    def programs_pids(parent):
        """nsenter forks; what it waits for is the program."""
        with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as children:
            return [int(pid) for pid in children.read().split()]

    def end(self):
        if self.run("test", "-x", "/usr/bin/parley").returncode == 0:
            self.run("parley", "down", "--state", "/var/lib/parley")  # v1 cgroups outlive those in them
        self.first.kill()  # and with it, all of its pid namespace
        self.first.wait()
        for service in self.services.values():
            service.process.wait(30)
            service.told.close()
        self.first.stdout.close()
        self.first.stderr.close()
        for folder, _, _ in os.walk(self.cgroup_folder(), topdown=False):
            os.rmdir(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
