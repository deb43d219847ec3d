"""Memory, semaphores and queues that are named by number or name and not by a path: the host's."""
from .attempt import Attempt

IPC = "an ipc namespace of its own"

ATTEMPTS = [
    Attempt("reads_host_shared_memory", "a /dev/shm of its own", "escaped(secret in open(shm_path).read())"),
    Attempt("attaches_host_system_v_memory", IPC, """
libc.shmat.restype = ctypes.c_void_p
where = libc.shmat(system_v_memory, None, 0o10000)
check(-1 if where in (None, 2**64 - 1) else 0); escaped(secret.encode() in ctypes.string_at(where, 64))"""),
    Attempt("finds_host_system_v_memory", IPC, """
escaped(any(line.split()[1] == str(system_v_memory) for line in list(open('/proc/sysvipc/shm'))[1:]))"""),
    Attempt("gets_host_system_v_memory_by_its_key", IPC, "escaped(check(libc.shmget(system_v_key, 64, 0)) >= 0)"),
    Attempt("removes_host_system_v_memory", IPC, "check(libc.shmctl(system_v_memory, 2, ctypes.create_string_buffer(256))); escaped()"),
    Attempt("reads_a_host_message_queue_by_its_key", IPC, "escaped(check(libc.msgget(system_v_key, 0)) >= 0)"),
    Attempt("uses_a_host_semaphore", IPC, "escaped(check(libc.semget(system_v_key, 1, 0)) >= 0)"),
    Attempt("opens_a_host_posix_queue", IPC, """
librt = ctypes.CDLL('librt.so.1', use_errno=True); escaped(check(librt.mq_open(('/' + marker).encode(), os.O_RDWR)) >= 0)"""),
    Attempt("removes_a_limit_of_shared_memory", "/proc/sys is a read-only mount", "os.open('/proc/sys/kernel/shmmax', os.O_WRONLY); escaped()"),
    Attempt("takes_huge_pages", "the kernel: none are given, or the group may not", """
check(libc.shmget(0, 2 << 20, 0o1600 | 0o4000)); escaped()""", lacks="a host without huge pages"),
]
