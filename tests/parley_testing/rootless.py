"""An ordinary user with subordinate ids and cgroups of its own, made for a test and taken away with it; and a deployment
that this user starts."""
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from . import deployment

SLOT = 65536
CONTROLLERS = ("memory", "pids", "cpu")
NAME = re.compile(r"plytest(\d+)$")


def needs_rootless(test):
    lacks = (os.geteuid() != 0 and "needs root to make a user" or
             not shutil.which("newuidmap") and "needs uidmap" or
             not shutil.which("useradd") and "needs useradd")
    return unittest.skipIf(lacks, lacks)(test)


def run(*words, check=True):
    return subprocess.run(words, check=check, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def own_cgroups():
    """Folders of this process's own cgroups: {"": v2, "memory": v1 ...}; a controller that v2 has is not there."""
    paths = {}
    with open("/proc/self/cgroup") as lines:
        for line in lines:
            _, names, path = line.rstrip("\n").split(":", 2)
            for name in names.split(","):
                paths[name] = path.rstrip("/")
    found = {}
    with open("/proc/self/mountinfo") as lines:
        for line in lines:
            before, after = line.split(" - ")
            root, at = before.split()[3:5]
            kind, _, options = after.split()[:3]
            if kind == "cgroup2":
                found.setdefault("", at + (paths.get("", "") if root == "/" else ""))
            for name in CONTROLLERS if kind == "cgroup" else ():
                if name in options.split(","):
                    found.setdefault(name, at + (paths.get(name, "") if root == "/" else ""))
    return found


class RootlessUser:
    """`slots`: how many sandboxes its ids are enough for; `controllers`: which limits are delegated."""

    def __init__(self, slots=8, controllers=CONTROLLERS, spare=0):
        self.remove_left()
        self.name, self.cgroups = f"plytest{os.getpid()}", []
        self.folder = tempfile.mkdtemp(prefix="parley-rootless-")
        os.chmod(self.folder, 0o755)
        self.home = self.folder + "/home"
        try:
            self.make(slots * SLOT + spare)
            self.delegate(controllers)
        except BaseException:
            self.close()
            raise

    def make(self, ids):
        run("useradd", "-M", "-d", self.home, "-s", "/bin/sh", "-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0", self.name)
        user = pwd.getpwnam(self.name)
        self.uid, self.gid = user.pw_uid, user.pw_gid
        os.mkdir(self.home, 0o700)  # as Debian's are: nobody else gets through
        os.chown(self.home, self.uid, self.gid)
        first = 700_000_000 + os.getpid() % 1000 * 524_288
        if ids:
            span = f"{first}-{first + ids - 1}"
            run("usermod", "--add-subuids", span, "--add-subgids", span, self.name)
        self.first = first

    def delegate(self, controllers):
        """As an administrator would (cgroups(7)): folders of its own, with the processes that it starts in them."""
        for name, top in own_cgroups().items():
            folder = f"{top}/{self.name}"
            os.mkdir(folder)
            self.cgroups.append(folder)
            if name and name not in controllers:
                continue
            os.chown(folder, self.uid, self.gid)
            for file in ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads", "tasks"):
                if os.path.exists(f"{folder}/{file}"):
                    os.chown(f"{folder}/{file}", self.uid, self.gid)

    def become(self):
        """In a child, before it executes."""
        for folder in self.cgroups:
            with open(folder + "/cgroup.procs", "w") as procs:
                procs.write(str(os.getpid()))
        os.setgroups([self.gid])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        os.chdir("/")

    def environment(self, **more):
        return {"HOME": self.home, "USER": self.name, "PATH": "/usr/local/bin:/usr/bin:/bin",
                "TMPDIR": "/tmp", "LANG": "C.UTF-8", **more}

    def run(self, *words, timeout=90, environment=None, **more):
        return subprocess.run(words, env=environment or self.environment(), preexec_fn=self.become, timeout=timeout,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def close(self):
        for folder in self.cgroups:
            self.remove_cgroup(folder)
        run("userdel", self.name, check=False)
        run("groupdel", self.name, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(f"/tmp/parley-{getattr(self, 'uid', 'none')}", ignore_errors=True)

    @staticmethod
    def remove_cgroup(folder):
        """With whatever is in it, until the kernel lets it go."""
        until = time.monotonic() + 20
        while os.path.isdir(folder) and time.monotonic() < until:
            for at, _, files in os.walk(folder, topdown=False):
                if "cgroup.procs" in files:
                    with open(at + "/cgroup.procs") as procs:
                        for pid in procs.read().split():
                            try:
                                os.kill(int(pid), signal.SIGKILL)
                            except ProcessLookupError:
                                pass
                try:
                    os.rmdir(at)
                except OSError:
                    pass
            time.sleep(0.02)

    @classmethod
    def remove_left(cls):
        """Users of tests that were killed."""
        for user in pwd.getpwall():
            made = NAME.match(user.pw_name)
            if not made or os.path.exists(f"/proc/{made[1]}"):
                continue
            for top in own_cgroups().values():
                cls.remove_cgroup(f"{top}/{user.pw_name}")
            run("userdel", user.pw_name, check=False)
            shutil.rmtree(os.path.dirname(user.pw_dir), ignore_errors=True)


class RootlessDeployment(deployment.Deployment):
    """`parley up` by that user. The state folder lies in its home, which only it may enter."""

    def __init__(self, user, start=True, **environment):
        self.user = user
        self.bin = self.reachable_bin(user)
        self.folder = tempfile.mkdtemp(prefix="state-", dir=user.home)
        os.chown(self.folder, user.uid, user.gid)
        self.state, self.port = self.folder + "/state", deployment.free_ports()
        self.environment = user.environment(PARLEY_STATE=self.state, XDG_CONFIG_HOME=self.folder + "/config",
                                            XDG_CACHE_HOME=self.folder + "/cache", **environment)
        if start:
            try:
                self.up()
            except BaseException:
                self.close()
                raise

    @staticmethod
    def reachable_bin(user):
        """Our programs where the user may execute them."""
        there = os.path.realpath(deployment.BIN)
        if user.run("test", "-x", there + "/parley-sandboxd").returncode == 0:
            return there
        copied = user.folder + "/bin"
        if not os.path.isdir(copied):
            os.mkdir(copied)
            for name in os.listdir(there):
                if name.startswith("parley"):
                    shutil.copy(f"{there}/{name}", copied)
        return copied

    def cli(self, *arguments, timeout=90, text=True, stdin=subprocess.DEVNULL, **more):
        if "input" in more:
            stdin = None
        options = dict(env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, text=text,
                       preexec_fn=self.user.become)
        if stdin is not None:
            options["stdin"] = stdin
        return subprocess.run([self.bin + "/parley", *arguments], **options, **more)
