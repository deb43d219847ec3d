"""What the host's /proc says of processes: facts of one, and all that descend from one."""
import os


def facts_of(pid):
    """The lines of /proc/PID/status, by name."""
    with open(f"/proc/{pid}/status") as status:
        return dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)


def below(ancestor, look):
    """pid -> look(pid) of all that descend from it, but for those that are gone by then."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(entry)] = int(facts_of(entry)["PPid"])
        except (OSError, KeyError):
            continue
    found, fresh = {}, {ancestor}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh}
        for pid in fresh:
            try:
                found[pid] = look(pid)
            except OSError:
                pass
    return found


def commands_below(ancestor):
    """pid -> command line."""
    def command(pid):
        with open(f"/proc/{pid}/cmdline") as words:
            return words.read().replace("\0", " ")
    return below(ancestor, command)


def programs_below(ancestor):
    """Name of the program -> pid."""
    return {name: pid for pid, name in
            below(ancestor, lambda pid: os.path.basename(os.readlink(f"/proc/{pid}/exe"))).items()}
