"""The clock, the host's names, and turning it off."""
from .attempt import Attempt

ATTEMPTS = [
    Attempt("sets_the_clock", "seccomp: clock_settime", """
now = ctypes.create_string_buffer(16); check(libc.clock_gettime(0, now)); check(libc.clock_settime(0, now)); escaped()"""),
    Attempt("sets_the_clock_by_settimeofday", "seccomp: settimeofday", """
now = ctypes.create_string_buffer(16); check(libc.gettimeofday(now, None)); syscall(164, now, None); escaped()"""),
    Attempt("adjusts_the_clock", "seccomp: adjtimex, clock_adjtime", """
buffer = ctypes.create_string_buffer(208); check(libc.adjtimex(buffer))
struct.pack_into('I', buffer, 0, 0x10)  # ADJ_STATUS, as it is
check(libc.adjtimex(buffer)); escaped()"""),
    Attempt("adjusts_the_clock_by_its_number", "seccomp: clock_adjtime", """
buffer = ctypes.create_string_buffer(208); syscall(305, 0, buffer)
struct.pack_into('I', buffer, 0, 0x10); syscall(305, 0, buffer); escaped()"""),
    Attempt("wakes_the_machine", "the kernel: CAP_WAKE_ALARM of the host", "escaped(syscall(283, 8, 0) >= 0)", lacks="a machine without a real-time clock"),
    Attempt("renames_the_host", "seccomp: sethostname", "name = socket.gethostname().encode(); check(libc.sethostname(name, len(name))); escaped()"),
    Attempt("renames_the_domain", "seccomp: setdomainname", """
name = open('/proc/sys/kernel/domainname').read().strip().encode(); check(libc.setdomainname(name, len(name))); escaped()"""),
    Attempt("writes_the_hosts_name", "/proc/sys is a read-only mount", "os.open('/proc/sys/kernel/hostname', os.O_WRONLY); escaped()"),
    Attempt("turns_the_machine_off", "seccomp: reboot", """
now = int(open('/proc/sys/kernel/ctrl-alt-del').read())  # what Ctrl-Alt-Del does, as it is: the harmless order among them
syscall(169, 0xfee1dead, 672274793, 0x89abcdef if now else 0, None); escaped()"""),
    Attempt("shifts_its_clock", "seccomp: unshare of times; no CAP_SYS_TIME", """
check(libc.unshare(NEWTIME)) if OUTSIDE else None
with open('/proc/self/timens_offsets', 'w') as f: f.write('monotonic 100 0')
escaped()""", lacks="a kernel without time namespaces"),
]
