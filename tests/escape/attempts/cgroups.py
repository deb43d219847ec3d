"""Control groups: leaving one's own, raising one's limits, and the program that v1 starts when one empties."""
from .attempt import Attempt

NOT_THERE = "no cgroup file system is mounted; the files are the host's root's; a cgroup namespace"
TREES = "('/sys/fs/cgroup', '/sys/fs/cgroup/*', '/sys/fs/cgroup/*/*', '/cgroup', '/cgroup/*')"

ATTEMPTS = [
    Attempt("leaves_its_cgroup", NOT_THERE, f"""
any_of(lambda path=path: (os.open(path, os.O_WRONLY), escaped()) for top in {TREES} for path in glob.glob(top + '/cgroup.procs'))"""),
    Attempt("names_the_program_of_an_empty_cgroup", NOT_THERE, f"""
any_of(lambda path=path: (os.open(path, os.O_WRONLY), escaped()) for top in {TREES} for path in glob.glob(top + '/release_agent'))""",
            lacks="a host without cgroup v1"),
    Attempt("mounts_cgroups_for_a_release_agent", "seccomp: mount; and CAP_SYS_ADMIN of the host (CVE-2022-0492)", """
path = folder('g'); mount(b'none', path.encode(), b'cgroup', 0, b'pids')
os.open(path + '/release_agent', os.O_WRONLY); escaped()""", lacks="a host without cgroup v1"),
    Attempt("raises_its_limits", NOT_THERE, f"""
names = ('memory.max', 'memory.limit_in_bytes', 'cpu.max', 'cpu.cfs_quota_us', 'pids.max')
any_of(lambda path=path: (os.open(path, os.O_WRONLY), escaped()) for top in ({TREES}) + ('/sys/fs/cgroup/*/*/*', '/sys/fs/cgroup/*/*/*/*')
       for name in names for path in glob.glob(top + '/' + name))"""),
    Attempt("freezes_others", NOT_THERE, f"""
any_of(lambda path=path: (os.open(path, os.O_WRONLY), escaped()) for top in {TREES}
       for path in glob.glob(top + '/cgroup.freeze') + glob.glob(top + '/freezer.state') + glob.glob(top + '/cgroup.kill'))""",
            lacks="a host without cgroups below the top"),
    Attempt("makes_a_cgroup", NOT_THERE, f"""
def make(top): os.mkdir(top + '/parley-escape-' + probe_name); os.rmdir(top + '/parley-escape-' + probe_name); escaped()
any_of(lambda top=top: make(top) for pattern in {TREES} for top in glob.glob(pattern) if os.path.exists(top + '/cgroup.procs'))"""),
    Attempt("sees_cgroups_of_others", "a cgroup namespace; of v1 it sees its own path alone (sandboxd/DESIGN.md, known limits)", """
own = {name for line in open('/proc/self/cgroup') for name in line.strip().split('/')}
def look(pid):
    if OUTSIDE: escaped(len({line.split(':', 2)[2] for line in open('/proc/%d/cgroup' % pid)}) > 0)
    for line in open('/proc/%d/cgroup' % pid):
        others = {name for name in line.strip().split('/')[1:] if name[:1] == 's' and name[1:].isdigit()} - own
        escaped(line.startswith('0::/..') or state in line or others)
any_of(lambda pid=pid: look(pid) for pid in [*ours(), os.getpid()])"""),
]
