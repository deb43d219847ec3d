"""What a sandbox could read of the host where nobody meant to show it: environment, paths, names, numbers."""
from .attempt import Attempt

ATTEMPTS = [
    Attempt("finds_the_hosts_environment", "init starts with an empty environment; a command gets its own", """
def look(pid): escaped(planted_variable.encode() in open('/proc/%s/environ' % pid, 'rb').read() or state.encode() in open('/proc/%s/environ' % pid, 'rb').read())
escaped(not OUTSIDE and (planted_variable in os.environ or state in str(os.environ)))
any_of(lambda pid=pid: look(pid) for pid in (os.listdir('/proc') if not OUTSIDE else [str(victim)]) if pid.isdigit())"""),
    Attempt("finds_the_state_folder", "layers are named relative to a folder of no name; what init gets is memfds", """
texts = [state]
def look(path):
    with open(path, 'rb') as f: text = f.read()
    escaped(state.encode() in text or os.path.basename(os.path.dirname(state)).encode() in text)
paths = ['/proc/%s/%s' % (pid, name) for pid in ('self', '1', *map(str, processes())) for name in
         ('mountinfo', 'mounts', 'mountstats', 'cgroup', 'maps', 'cmdline', 'environ', 'status', 'comm', 'stat', 'numa_maps', 'auxv')]
paths += ['/proc/net/unix', '/proc/self/net/unix', '/proc/keys', '/proc/locks', '/proc/sysvipc/shm', '/etc/mtab', '/etc/hosts', '/etc/fstab']
any_of(lambda path=path: look(path) for path in paths)"""),
    Attempt("finds_the_state_folder_by_its_links", "nothing that is open leads there", """
def look(path): escaped(state in os.readlink(path))
if OUTSIDE: held = os.open(state, os.O_RDONLY)
any_of(lambda path=path: look(path) for path in glob.glob('/proc/[0-9]*/*') + glob.glob('/proc/[0-9]*/fd/*') + glob.glob('/proc/self/map_files/*'))"""),
    Attempt("holds_a_descriptor_of_ours", "all that init holds goes with execve", """
held = os.open(state, os.O_RDONLY) if OUTSIDE else -1
for name in os.listdir('/proc/self/fd'):
    try: leads = os.readlink('/proc/self/fd/' + name)
    except OSError: continue
    escaped(state in leads or leads.startswith(('socket:', '/sys', 'mnt:', 'net:')) or 'memfd:' in leads or 'pidfd' in leads)"""),
    Attempt("learns_the_hosts_name", "a uts namespace", "escaped(host_name in (socket.gethostname(), os.uname().nodename, open('/proc/sys/kernel/hostname').read().strip()))"),
    Attempt("finds_the_hosts_name_in_files", "templates are not given the host's names", """
def look(path): escaped(host_name in open(path).read().split())
any_of(lambda path=path: look(path) for path in ('/etc/hostname', '/etc/hosts', '/etc/mailname', '/proc/sys/kernel/hostname'))"""),
    Attempt("learns_the_machines_id", "the skeleton has none of the host's", """
def look(path): escaped(open(path).read().strip() == machine_id)
any_of(lambda path=path: look(path) for path in ('/etc/machine-id', '/var/lib/dbus/machine-id', '/run/machine-id'))""", lacks="a host without a machine id"),
    Attempt("learns_the_machines_maker", "there is no /sys", """
def look(path): escaped(len(open(path).read()) > 0)
any_of(lambda path=path: look(path) for path in glob.glob('/sys/class/dmi/id/*') + glob.glob('/sys/firmware/dmi/*') + glob.glob('/sys/devices/virtual/dmi/id/*'))""",
            lacks="a machine without DMI"),
    Attempt("learns_the_hosts_hardware_addresses", "a network namespace of its own, and no /sys", """
def look(path): escaped(open(path).read().strip() not in ('00:00:00:00:00:00', ''))
any_of(lambda path=path: look(path) for path in glob.glob('/sys/class/net/*/address'))""", lacks="a host without an interface"),
    Attempt("learns_the_hosts_users", "the skeleton's passwd is its own", "escaped(host_user in open('/etc/passwd').read())", lacks="a host without a user of its own"),
    Attempt("finds_host_paths_in_its_auxiliary_vector", "a command is executed within its own root", """
data = open('/proc/self/auxv', 'rb').read(); pairs = struct.iter_unpack('QQ', data)
where = dict(pairs)[31]
name = ctypes.string_at(where).decode()
escaped(OUTSIDE and name.startswith('/') or state in name or not os.path.exists(name) and not name.startswith('/dev/fd'))"""),
    Attempt("knows_where_its_parents_are", "a pid namespace: its parent is init, and init has none", """
parents = [os.getppid()]
while parents[-1] > 1: parents.append(int(open('/proc/%d/stat' % parents[-1]).read().rsplit(')', 1)[1].split()[1]))
names = [open('/proc/%d/comm' % pid).read() for pid in parents if pid]
escaped(any('sandboxd' in name or 'systemd' in name or OUTSIDE for name in names))"""),
    Attempt("sees_mounts_of_the_host", "pivot_root, and the old root is detached", """
for line in open('/proc/self/mountinfo'):
    words = line.split()
    escaped(words[4].startswith(('/sys', '/boot', '/mnt', '/var/lib', '/run/netns')) or state in line or words[2] == host_root and words[3] == '/')""", levels=("namespaces",)),
    Attempt("reads_uptime_of_processes_it_may_not_see", "hidden by the pid namespace", "escaped(os.path.exists('/proc/%d/stat' % victim))"),
]
