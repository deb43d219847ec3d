"""What our creation of a sandbox is measured against: other programs that run `true` apart from the rest, and none at all.

As a program (root): `peers.py crun-loop BUNDLE` answers each line on stdin with the seconds one `crun run` of the bundle took.
crun refuses a hybrid cgroup host as long as it sees the v2 hierarchy with a controller; so the loop has a mount namespace of
its own where that is hidden."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

TRUE = "/bin/true"


def spawn(arguments):
    """Seconds of posix_spawn and wait: no shell and no Python in between."""
    started = time.perf_counter()
    pid = os.posix_spawn(arguments[0], arguments, os.environ)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - started
    if status != 0:
        raise RuntimeError(f"{arguments} ended with {status}")
    return took


class Crun:
    def __init__(self):
        self.bundle = tempfile.mkdtemp(prefix="parley-crun-")
        os.mkdir(self.bundle + "/rootfs")
        subprocess.run(["crun", "spec"], cwd=self.bundle, check=True)
        with open(self.bundle + "/config.json") as spec:
            config = json.load(spec)
        config["process"].update(terminal=False, args=[TRUE])
        config["root"] = {"path": "rootfs", "readonly": True}
        with open(self.bundle + "/config.json", "w") as spec:
            json.dump(config, spec)
        self.loop = subprocess.Popen(["unshare", "--mount", "--propagation", "private", sys.executable, __file__,
                                      "crun-loop", self.bundle], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self()

    def __call__(self):
        self.loop.stdin.write("go\n")
        self.loop.stdin.flush()
        line = self.loop.stdout.readline()
        if not line:
            raise RuntimeError("crun does not run here")
        return float(line)

    def close(self):
        self.loop.stdin.close()
        self.loop.wait()
        shutil.rmtree(self.bundle)


def crun_loop(bundle):
    if os.path.exists("/sys/fs/cgroup/unified"):
        subprocess.run(["umount", "-l", "/sys/fs/cgroup/unified"], check=True)
    subprocess.run(["mount", "--bind", "/", bundle + "/rootfs"], check=True)
    os.chdir(bundle)
    crun = shutil.which("crun")
    for number, _ in enumerate(sys.stdin):
        print(spawn([crun, "run", f"parley-bench-{os.getpid()}-{number}"]), flush=True)


class Isolate:
    """`isolate --init`, `--run`, `--cleanup`: as a judge uses it. Without control groups, which need pure v2."""

    def __init__(self):
        self.program = shutil.which("isolate")

    def __call__(self):
        words = [self.program, "--box-id=999"]
        return (spawn([*words, "--init"]) + spawn([*words, "--run", "--silent", "--", TRUE]) +
                spawn([*words, "--cleanup"]))

    def close(self):
        pass


class Peers:
    """The peers that are here: name -> function that returns seconds; `absent` names the others and why."""

    def __init__(self):
        self.run, self.absent, self.held = {"fork + exec true": lambda: spawn([TRUE])}, [], []
        bwrap = shutil.which("bwrap")
        if bwrap:
            self.run["bwrap --unshare-all"] = lambda: spawn([bwrap, "--unshare-all", "--ro-bind", "/", "/", TRUE])
        for name, make in (("crun", Crun), ("isolate", Isolate)):
            try:
                if not shutil.which(name):
                    raise RuntimeError("not installed" + (" (not in Debian 12)" if name == "isolate" else ""))
                self.held.append(make())
                self.run[name + " run"] = self.held[-1]
            except (RuntimeError, OSError, subprocess.SubprocessError) as why:
                self.absent.append(f"{name}: not available: {why}")

    def close(self):
        for peer in self.held:
            peer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "crun-loop":
        sys.exit(__doc__)
    crun_loop(sys.argv[2])
