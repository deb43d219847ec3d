"""Users, set-uid files, capabilities, attributes that give rights."""
from .attempt import Attempt

NO_NEW = "no_new_privs, and all mounts are nosuid"
BOUND = "the bounding set, and a user namespace in which the host's rights are none"
OWN_IDS = "its ids are 0..65535 of its own range, no other is mapped"

ATTEMPTS = [
    Attempt("becomes_root", "no capability", "check(libc.setresuid(0, 0, 0)); escaped(os.geteuid() == 0)", own_root="it is root"),
    Attempt("becomes_another_user", "no capability", "check(libc.setresuid(33, 33, 33)); escaped()", own_root="it may, among its own ids"),
    Attempt("joins_groups", "no capability", "os.setgroups([0, 5, 42]); escaped()", own_root="it may, among its own ids"),
    Attempt("becomes_a_user_of_the_host", OWN_IDS, "check(libc.setresuid(1879048192 - 1, -1, -1)); escaped()"),
    Attempt("gives_a_file_to_a_user_of_the_host", OWN_IDS, """
path = folder('o') + '/f'; open(path, 'w').close(); os.chown(path, 70000, 70000); escaped(os.stat(path).st_uid == 70000)"""),
    Attempt("takes_files_of_nobody_known", "the kernel: who has no id here is nobody, whom no id is", """
if os.geteuid() == 0 and not OUTSIDE: os.setresuid(65534, 65534, 65534)
any_of(lambda path=path: (os.chmod(path, stat.S_IMODE(os.stat(path).st_mode)), escaped()) for path in ('/dev/null', '/proc/mtrr', '/proc/sys/kernel/panic'))"""),
    Attempt("gains_by_a_setuid_program", NO_NEW, """
path = folder('s') + '/id'; shutil.copy('/usr/bin/id', path); os.chmod(path, 0o4755)
os.chmod(os.path.dirname(path), 0o755)
drop = (lambda: os.setresuid(65533, 65533, 65533)) if os.geteuid() == 0 else None
escaped(b'euid=0' in subprocess.run([path], stdout=subprocess.PIPE, preexec_fn=drop).stdout)"""),
    Attempt("gains_by_the_templates_setuid_programs", NO_NEW, """
found = [path for top in ('/usr/bin', '/usr/sbin', '/usr/lib/openssh') for path in glob.glob(top + '/*')
         if os.stat(path, follow_symlinks=False).st_mode & 0o4000]
if OUTSIDE:
    # what su does: its own program runs as the file's owner
    path = folder('t') + '/cat'; os.chmod(os.path.dirname(path), 0o755); shutil.copy('/bin/cat', path); os.chmod(path, 0o4755); found = [path]
def run(path):
    child = subprocess.Popen([path, '/proc/self/status'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                             preexec_fn=(lambda: os.setresuid(65533, 65533, 65533)) if os.geteuid() == 0 else None)
    time.sleep(0.05)
    try: status = open('/proc/%d/status' % child.pid).read()
    except OSError: status = ''
    out = child.communicate(timeout=5)[0].decode('latin1') + status
    escaped(any(line.split()[2] == '0' and line.split()[1] != '0' for line in out.splitlines() if line.startswith('Uid:')))
any_of(lambda path=path: run(path) for path in found[:6])"""),
    Attempt("gains_by_a_setgid_program", NO_NEW, """
path = folder('g') + '/id'; shutil.copy('/usr/bin/id', path)
if os.geteuid() == 0: os.chown(path, 0, 42)
os.chmod(path, 0o2755); os.chmod(os.path.dirname(path), 0o755)
drop = (lambda: os.setresuid(65533, 65533, 65533)) if os.geteuid() == 0 else None
escaped(b'egid=42' in subprocess.run([path], stdout=subprocess.PIPE, preexec_fn=drop).stdout)"""),
    Attempt("gains_by_capabilities_of_a_file", NO_NEW, """
path = folder('c') + '/cat'; shutil.copy('/bin/cat', path); os.chmod(os.path.dirname(path), 0o755)
os.setxattr(path, 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 10, 0, 0, 0))
drop = (lambda: os.setresuid(65533, 65533, 65533)) if os.geteuid() == 0 else None
said = subprocess.run([path, '/proc/self/status'], stdout=subprocess.PIPE, preexec_fn=drop).stdout.decode()
escaped([line for line in said.splitlines() if line.startswith('CapEff:')][0].split()[1] != '0' * 16)"""),
    Attempt("raises_its_capabilities", BOUND, """
def effective(): return int([line for line in open('/proc/self/status') if line.startswith('CapEff:')][0].split()[1], 16)
before = effective()
head, data = struct.pack('Ii', 0x20080522, 0), struct.pack('IIIIII', 0xffffffff, 0xffffffff, 0, 0x1ff, 0x1ff, 0)
if OUTSIDE:
    full = before; head2 = struct.pack('Ii', 0x20080522, 0)
    syscall(126, head2, struct.pack('IIIIII', 0, full & 0xffffffff, 0, 0, full >> 32, 0))
    syscall(126, head2, struct.pack('IIIIII', full & 0xffffffff, full & 0xffffffff, 0, full >> 32, full >> 32, 0)); escaped(effective() == full)
syscall(126, head, data); escaped()"""),
    Attempt("has_a_right_over_the_host", BOUND, """
effective = int([line for line in open('/proc/self/status') if line.startswith('CapEff:')][0].split()[1], 16)
FORBIDDEN = {'DAC_READ_SEARCH': 2, 'LINUX_IMMUTABLE': 9, 'NET_ADMIN': 12, 'NET_RAW': 13, 'IPC_OWNER': 15, 'SYS_MODULE': 16,
             'SYS_RAWIO': 17, 'SYS_PTRACE': 19, 'SYS_PACCT': 20, 'SYS_ADMIN': 21, 'SYS_BOOT': 22, 'SYS_NICE': 23, 'SYS_RESOURCE': 24,
             'SYS_TIME': 25, 'MKNOD': 27, 'AUDIT_CONTROL': 30, 'MAC_ADMIN': 33, 'SYSLOG': 34, 'PERFMON': 38, 'BPF': 39}
escaped([name for name, bit in FORBIDDEN.items() if effective >> bit & 1])"""),
    Attempt("takes_back_no_new_privs", "the kernel: it is for good", """
if OUTSIDE: escaped(libc.prctl(39, 0, 0, 0, 0) == 0)
check(libc.prctl(38, 0, 0, 0, 0)); escaped(libc.prctl(39, 0, 0, 0, 0) == 0)"""),
    Attempt("changes_its_secure_bits", "no CAP_SETPCAP", """
check(libc.prctl(28, libc.prctl(27, 0, 0, 0, 0) | 1, 0, 0, 0)); escaped()"""),
    Attempt("moves_its_memory_map", "the kernel: CAP_SYS_RESOURCE of the host", """
check(libc.prctl(35, 8, ctypes.c_ulong(int([line for line in open('/proc/self/maps') if '[stack]' in line][0].split('-')[0], 16) + 4096), 0, 0)); escaped()""", lacks="a host whose root has no CAP_SYS_RESOURCE"),
    Attempt("marks_a_file_as_trusted", "the kernel: CAP_SYS_ADMIN of the host", """
path = folder('x') + '/f'; open(path, 'w').close(); os.setxattr(path, 'trusted.overlay.redirect', b'/root'); escaped()"""),
    Attempt("labels_a_file", "the kernel: CAP_SYS_ADMIN of its file system's owner", """
path = folder('y') + '/f'; open(path, 'w').close(); os.setxattr(path, 'security.parley', b'x'); escaped()"""),
    Attempt("locks_more_memory_than_its_limit", "RLIMIT_MEMLOCK, CAP_IPC_LOCK", """
area = mmap.mmap(-1, 1 << 20); check(libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(area))), ctypes.c_size_t(1 << 20))); escaped()"""),
    Attempt("raises_a_hard_limit", "the kernel: CAP_SYS_RESOURCE of the host", """
soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK); new = 1 << 40
resource.setrlimit(resource.RLIMIT_MEMLOCK, (new, new)); escaped()""", lacks="a host whose root has no CAP_SYS_RESOURCE"),
]
