"""What a deployment has on the machine beside its folder: slots, cgroups, mounts, loop devices, processes."""
import os
import subprocess
import time

SLOTS = "/run/parley/slots"


class Remains:
    def __init__(self, deployment):
        self.state = os.path.realpath(deployment.state)
        with open(self.state + "/sandboxd/cgroups") as layout:  # boot, mount, options, parent, then the folders
            self.cgroups = [line.strip() for line in layout if os.path.basename(line.strip()).startswith("parley-")]
        if not self.cgroups:
            raise RuntimeError("STATE/sandboxd/cgroups names no cgroup")

    def slots(self):
        """How many sandboxes have a cgroup: living, warm and dying."""
        try:
            return sum(name[0] == "s" and name[1:].isdigit() for name in os.listdir(self.cgroups[0]))
        except FileNotFoundError:
            return 0

    def look(self):
        left = [path for path in self.cgroups if os.path.exists(path)]
        for name in os.listdir(SLOTS) if os.path.isdir(SLOTS) else ():
            try:
                with open(os.path.join(SLOTS, name)) as lock:
                    if lock.readline().strip() == self.state:
                        left.append("slot " + name)
            except FileNotFoundError:
                pass
        with open("/proc/self/mountinfo") as mounts:
            left += ["mount " + line.split()[4] for line in mounts if self.state in line]
        loops = subprocess.run(["losetup", "--noheadings", "--output", "NAME,BACK-FILE"], capture_output=True, text=True)
        left += ["loop " + line for line in loops.stdout.splitlines() if self.state in line]
        return left + self.processes()

    def processes(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cgroup") as groups:
                    if any(os.path.basename(path) in line for path in self.cgroups[:1] for line in groups):
                        found.append("process " + pid)
            except OSError:
                pass
        return found

    def left(self, seconds=30):
        """What is there still after a while: the end of a sandbox is not waited for by `parley down`."""
        until = time.monotonic() + seconds
        while (left := self.look()) and time.monotonic() < until:
            time.sleep(0.1)
        return left
