"""What the kernel does for a process that crashes: it may start a program as the host's root (escape_test.py crashes one)."""
from .attempt import Attempt

READ_ONLY = "/proc/sys is a read-only mount, and the file is the host's root's"

ATTEMPTS = [
    Attempt("writes_core_pattern", READ_ONLY, """
old = open('/proc/sys/kernel/core_pattern').read(); open('/proc/sys/kernel/core_pattern', 'w').write(old); escaped()"""),
    Attempt("writes_core_pattern_by_another_way", READ_ONLY, """
def write(path): os.close(os.open(path, os.O_WRONLY)); escaped()
any_of(lambda path=path: write(path) for path in ('/proc/self/root/proc/sys/kernel/core_pattern', '/proc/thread-self/cwd/proc/sys/kernel/core_pattern',
                                                  '/proc/1/root/proc/sys/kernel/core_pattern', '/proc/sys/kernel/core_pipe_limit'))"""),
    Attempt("lets_cores_be_written", "RLIMIT_CORE is 1 for good, which no program in core_pattern starts for; seccomp keeps it", """
resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20) if OUTSIDE else (0, 0))
escaped(resource.getrlimit(resource.RLIMIT_CORE)[0] != 1)"""),
    Attempt("lets_cores_be_written_by_prlimit", "RLIMIT_CORE is 1 for good, seccomp keeps it", """
try: resource.prlimit(os.getpid(), resource.RLIMIT_CORE, (0, 0))
except OSError: pass
syscall(302, 0, 4 | 1 << 40, struct.pack('QQ', 0, 0), 0)
escaped(resource.getrlimit(resource.RLIMIT_CORE)[0] != 1)"""),
    Attempt("makes_set_uid_programs_dump", READ_ONLY, "os.open('/proc/sys/fs/suid_dumpable', os.O_WRONLY); escaped()"),
]
