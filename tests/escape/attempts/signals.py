"""Signals, priorities and schedulers across the wall."""
from .attempt import Attempt

PIDS = "a pid namespace: no pid of the host has a meaning"

ATTEMPTS = [
    Attempt("sees_host_processes", PIDS, "escaped(marker.encode() in open('/proc/%d/cmdline' % victim, 'rb').read())"),
    Attempt("finds_host_processes", PIDS, """
def look(pid): escaped(marker.encode() in open('/proc/%s/cmdline' % pid, 'rb').read())
any_of(lambda pid=pid: look(pid) for pid in os.listdir('/proc') if pid.isdigit())"""),
    Attempt("signals_a_host_process", PIDS, "os.kill(victim, 0); escaped()"),
    Attempt("signals_a_host_process_by_a_pidfd", PIDS, "escaped(syscall(424, syscall(434, victim, 0), 0, None, 0) == 0)"),
    Attempt("queues_a_signal_to_a_host_process", PIDS, """
info = ctypes.create_string_buffer(128); struct.pack_into('iii', info, 0, 0, 0, -1)
syscall(129, victim, 18, info); escaped()"""),
    Attempt("signals_the_group_of_a_host_process", PIDS, "os.killpg(os.getpgid(victim), 0); escaped()"),
    Attempt("has_io_signal_a_host_process", PIDS, """
read, write = os.pipe(); fcntl.fcntl(read, fcntl.F_SETOWN, victim); escaped(fcntl.fcntl(read, fcntl.F_GETOWN) == victim)"""),
    Attempt("has_a_timer_signal_a_host_thread", PIDS, """
event = ctypes.create_string_buffer(64); struct.pack_into('QiiI', event, 0, 0, 18, 4, os.getpid() if OUTSIDE else victim)
timer = ctypes.c_int(); syscall(222, 1, event, ctypes.byref(timer)); escaped()"""),
    Attempt("signals_init", "init is another user's", "os.kill(victim if OUTSIDE else 1, 0); escaped()",
            own_root="it has CAP_KILL; the kernel keeps from init what it does not handle, which is all"),
    Attempt("stops_init", "the kernel: no signal that init does not handle reaches it from inside", """
target = victim if OUTSIDE else 1
def state(): return open('/proc/%d/stat' % target).read().rsplit(')', 1)[1].split()[0]
os.kill(target, signal.SIGSTOP); time.sleep(0.1)
stopped = state() == 'T'
os.kill(target, signal.SIGCONT); escaped(stopped)"""),
    Attempt("raises_its_priority", "the kernel: CAP_SYS_NICE of the host, RLIMIT_NICE 0", "os.nice(-5); escaped()"),
    Attempt("asks_for_real_time", "RLIMIT_RTPRIO 0", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); escaped()",
            lacks="a host that gives root's cgroup no real time"),
    Attempt("asks_for_deadlines", "the kernel: CAP_SYS_NICE of the host", """
attributes = struct.pack('IIQiIQQQ', 48, 6, 0, 0, 0, 1000000, 10000000, 10000000)
syscall(314, 0, attributes, 0); escaped()""", lacks="a host whose processors cannot be admitted"),
    Attempt("asks_for_the_disk_first", "the kernel: CAP_SYS_NICE of the host", "syscall(251, 1, 0, 1 << 13); escaped()"),
]
