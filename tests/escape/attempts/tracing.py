"""ptrace(2), process_vm_readv(2) and what else reaches into another process: init, file helpers, what is kept ready."""
from .attempt import Attempt

UNDUMPABLE = "init and its children are not dumpable, and init has rights that no command has"

ATTEMPTS = [
    Attempt("attaches_to_init", UNDUMPABLE, """
any_of(lambda pid=pid: (check(libc.ptrace(16, pid, None, None)), escaped()) for pid in ours())"""),
    Attempt("seizes_init", UNDUMPABLE, """
any_of(lambda pid=pid: (check(libc.ptrace(0x4206, pid, None, None)), escaped()) for pid in ours())"""),
    Attempt("reads_by_process_vm_readv", UNDUMPABLE, """
local = ctypes.create_string_buffer(64)
start = lambda pid: int(open('/proc/%d/maps' % pid).readline().split('-')[0], 16) if OUTSIDE else 0x400000
def read(pid):
    to, source = struct.pack('QQ', ctypes.addressof(local), 64), struct.pack('QQ', start(pid), 64)
    escaped(syscall(310, pid, to, 1, source, 1, 0) > 0)
any_of(lambda pid=pid: read(pid) for pid in ours())"""),
    Attempt("writes_by_process_vm_writev", UNDUMPABLE, """
def write(pid):
    if OUTSIDE:
        area = [line for line in open('/proc/%d/maps' % pid) if '[stack]' in line][0].split()[0].split('-')[0]
        start = int(area, 16)
    else: start = 0x4e1000
    one = struct.pack('QQ', ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    escaped(syscall(311, pid, one, 1, struct.pack('QQ', start, 8), 1, 0) > 0)
any_of(lambda pid=pid: write(pid) for pid in ours())"""),
    Attempt("compares_its_files_with_those_of_init", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(syscall(312, os.getpid(), pid, 0, 0, 0) >= 0) for pid in ours())"""),
    Attempt("advises_on_memory_of_init", UNDUMPABLE, """
one = struct.pack('QQ', 0x400000, 4096)
if OUTSIDE: one = struct.pack('QQ', int(open('/proc/%d/maps' % victim).readline().split('-')[0], 16), 4096)
any_of(lambda pid=pid: escaped(syscall(440, syscall(434, pid, 0), one, 1, 20, 0) >= 0) for pid in ours())"""),
    Attempt("moves_pages_of_init", UNDUMPABLE, """
page = struct.pack('Q', 0x400000); status = ctypes.create_string_buffer(4)
any_of(lambda pid=pid: escaped(syscall(279, pid, 1, page, None, status, 0) >= 0) for pid in ours())"""),
    Attempt("finds_where_init_keeps_its_locks", UNDUMPABLE, """
head, size = ctypes.c_ulong(), ctypes.c_ulong()
any_of(lambda pid=pid: escaped(syscall(274, pid, ctypes.byref(head), ctypes.byref(size)) >= 0) for pid in ours())"""),
    Attempt("shares_a_core_with_init", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(check(libc.prctl(62, 3, pid, 0, 0)) >= 0) for pid in ours())""",
            lacks="a machine without core scheduling"),
    Attempt("limits_init", "init's saved uid is nobody's, so that prlimit(2) wants CAP_SYS_RESOURCE", """
target = victim if OUTSIDE else 1
old = resource.prlimit(target, resource.RLIMIT_NOFILE)
resource.prlimit(target, resource.RLIMIT_NOFILE, old); escaped()"""),
    Attempt("binds_init_to_a_processor", "init is another user's, and has rights that no root command has",
            "os.sched_setaffinity(victim if OUTSIDE else 1, {0}); escaped()"),
    Attempt("makes_init_wait", "init is another user's, and has rights that no root command has",
            "os.setpriority(os.PRIO_PROCESS, victim if OUTSIDE else 1, 19); escaped()"),
    Attempt("frees_the_memory_of_init", "process_mrelease asks for a process that is dying", """
child = os.fork()
if child == 0: time.sleep(5); os._exit(0)
if OUTSIDE:
    pidfd = syscall(434, child, 0); os.kill(child, 9)
    escaped(syscall(448, pidfd, 0) >= 0)
any_of(lambda pid=pid: escaped(syscall(448, syscall(434, pid, 0), 0) >= 0) for pid in ours())""",
            lacks="a kernel before 5.15, or a child that was gone too soon"),
    Attempt("watches_init_by_performance_counters", "seccomp: perf_event_open", """
attributes = ctypes.create_string_buffer(128); struct.pack_into('IIQ', attributes, 0, 1, 128, 1)
any_of(lambda pid=pid: escaped(syscall(298, attributes, pid, -1, -1, 0) >= 0) for pid in ours())"""),
]
