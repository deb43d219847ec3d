"""New namespaces, those of others, and what ioctl(2) tells of their parents."""
from .attempt import Attempt

SECCOMP = "seccomp: the namespace bits of clone and unshare"
FLAGS = {"user": "NEWUSER", "mount": "NEWNS", "network": "NEWNET", "pid": "NEWPID", "ipc": "NEWIPC", "uts": "NEWUTS",
         "cgroup": "NEWCGROUP", "time": "NEWTIME"}

ATTEMPTS = [
    Attempt(f"makes_a_{kind}_namespace", SECCOMP, f"check(libc.unshare({flag})); escaped()") for kind, flag in FLAGS.items()
] + [
    Attempt("makes_a_namespace_with_high_bits", SECCOMP, "syscall(272, NEWUSER | 1 << 40); escaped()",
            lacks="a kernel that looks at the high bits too"),
    Attempt("clones_into_a_user_namespace", SECCOMP, """
pid = syscall(56, NEWUSER | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); escaped()"""),
    Attempt("clones_by_clone3", "seccomp: clone3, whose arguments cannot be seen, is no call at all", """
arguments = struct.pack('QQQQQQQQ', NEWUSER, 0, 0, 0, 17, 0, 0, 0)
pid = syscall(435, arguments, len(arguments))
if pid == 0: os._exit(0)
os.waitpid(pid, 0); escaped()"""),
    Attempt("clones_into_a_cgroup", "seccomp: clone3; no cgroup can be opened", """
group = os.open(sorted(glob.glob('/sys/fs/cgroup/unified/') + glob.glob('/sys/fs/cgroup/'))[-1], os.O_RDONLY)
arguments = struct.pack('QQQQQQQQQQQ', 0x200000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, group)
pid = syscall(435, arguments, len(arguments))
if pid == 0: os._exit(0)
os.waitpid(pid, 0); escaped()""", lacks="a host without cgroup v2"),
    Attempt("enters_the_namespaces_of_init", "seccomp: setns; and the links of init are closed", """
any_of(lambda pid=pid, name=name: (check(libc.setns(os.open('/proc/%d/ns/%s' % (pid, name), os.O_RDONLY), 0)), escaped())
       for pid in ours() for name in ('uts', 'ipc', 'net', 'cgroup', 'mnt'))"""),
    Attempt("enters_its_own_namespace_again", "seccomp: setns",
            "check(libc.setns(os.open('/proc/self/ns/uts', os.O_RDONLY), 0)); escaped()"),
    Attempt("enters_by_a_pidfd", "seccomp: setns", """
any_of(lambda pid=pid: (check(libc.setns(syscall(434, pid, 0), NEWUTS)), escaped()) for pid in ours())"""),
    Attempt("opens_the_parent_of_its_users", "the kernel: a parent is shown to those above it alone", """
pid = child_in(NEWUSER) if OUTSIDE else 'self'
escaped(fcntl.ioctl(os.open('/proc/%s/ns/user' % pid, os.O_RDONLY), 0xb702) >= 0)"""),
    Attempt("opens_the_parent_of_its_pids", "the kernel: a parent is shown to those above it alone", """
if OUTSIDE:
    check(libc.unshare(NEWPID)); pid = os.fork()
    if pid == 0: time.sleep(5); os._exit(0)
else: pid = 'self'
escaped(fcntl.ioctl(os.open('/proc/%s/ns/pid' % pid, os.O_RDONLY), 0xb702) >= 0)"""),
    Attempt("opens_the_owner_of_its_network", "its owner is the host's user namespace, which is above it", """
escaped(fcntl.ioctl(os.open('/proc/self/ns/net', os.O_RDONLY), 0xb701) >= 0)"""),
    Attempt("goes_through_all_mount_namespaces", "the kernel: CAP_SYS_ADMIN of the host", """
space = os.open('/proc/self/ns/mnt', os.O_RDONLY); info = bytearray(struct.pack('IIQ', 16, 0, 0))
any_of(lambda order=order: escaped(fcntl.ioctl(space, order, info) >= 0) for order in (0x8010b70b, 0x8010b70c))""",
            lacks="a kernel before 6.12"),
    Attempt("translates_pids_of_the_host", "the kernel: into its own namespace and those below alone", """
escaped(fcntl.ioctl(os.open('/proc/self/ns/pid', os.O_RDONLY), 0x8004b706, victim) > 0)""", lacks="a kernel before 6.11"),
    Attempt("makes_a_namespace_by_i386", "seccomp: another architecture's calls kill", """
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex('53b836010000bb00000010cd805bc3'))  # unshare(CLONE_NEWUSER) by int 0x80
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
escaped(call() == 0)""", lacks="a kernel without i386"),
    Attempt("makes_a_namespace_by_x32", "seccomp: another architecture's calls kill", "syscall(0x40000000 | 272, NEWUSER); escaped()",
            lacks="a kernel without x32"),
]
