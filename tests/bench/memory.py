"""What many idle sandboxes take, counted three ways."""
import os
import time

WHOLE = "all that the machine has less (MemAvailable)"
EXPLAINED = """  counted: MemAvailable sees everything, also page tables, slabs, per-CPU memory and the files on tmpfs; the rows below it are
  parts of it. Pss shares what several processes map (the text of init is one memfd). `init and its spare child` is what waits in
  each sandbox: PID 1 and the child that the next exec becomes. The kernel's: slabs (namespaces, mounts, inodes, dentries, cgroups,
  the network namespace), stacks of threads, page tables, per-CPU memory (cgroups' counters, the network namespace's). Nothing of a
  user's runs: one `true` ran and left."""
KERNEL = {"slab": "Slab", "kernel stacks": "KernelStack", "page tables": "PageTables", "per-CPU memory": "Percpu",
          "files on tmpfs, memfds": "Shmem"}


def meminfo():
    with open("/proc/meminfo") as lines:
        return {line.split(":")[0]: int(line.split()[1]) for line in lines}


def settle():
    """Lets what is due be freed, and drops caches, which are nobody's."""
    time.sleep(3)
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("3")
    time.sleep(1)


def pss_kib(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


class Sample:
    def __init__(self, deployment):
        self.info = meminfo()
        daemons = {name: deployment.pids(name) for name in ("parley-negotiator", "parley-sandboxd")}
        self.daemons = sum(pss_kib(pid) for pids in daemons.values() for pid in pids)
        children = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(pid))
        inits = [pid for daemon in daemons["parley-sandboxd"] for pid in children.get(daemon, ())
                 if pid not in daemons["parley-sandboxd"]]
        self.inits = sum(pss_kib(pid) for init in inits for pid in [init, *children.get(init, ())])

    def since(self, before, count):
        """KiB a sandbox."""
        less = lambda key: before.info[key] - self.info[key]  # noqa: E731
        rows = {WHOLE: less("MemAvailable"), "init and its spare child (Pss)": self.inits - before.inits,
                "launcher, front and negotiator (Pss)": self.daemons - before.daemons}
        rows |= {"kernel: " + name: -less(key) for name, key in KERNEL.items()}
        return {name: kib / count for name, kib in rows.items()}
