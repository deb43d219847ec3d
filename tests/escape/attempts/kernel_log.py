"""The kernel's log and what traces the kernel."""
from .attempt import Attempt

ATTEMPTS = [
    Attempt("reads_the_kernel_log", "seccomp: syslog", "escaped(check(libc.klogctl(10, None, 0)) >= 0)"),
    Attempt("reads_all_of_the_kernel_log", "seccomp: syslog", "escaped(check(libc.klogctl(3, ctypes.create_string_buffer(4096), 4096)) >= 0)"),
    Attempt("reads_the_kernel_log_by_dmesg", "seccomp: syslog; no /dev/kmsg", "escaped(subprocess.run(['dmesg'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)"),
    Attempt("sets_the_consoles_log_level", "seccomp: syslog", """
if OUTSIDE: level = int(open('/proc/sys/kernel/printk').read().split()[0]); check(libc.klogctl(8, None, level)); escaped()
check(libc.klogctl(8, None, 7)); escaped()"""),
    Attempt("opens_the_kernels_messages", "the file is the host's root's", "os.open('/proc/kmsg', os.O_RDONLY | os.O_NONBLOCK); escaped()"),
    Attempt("writes_to_the_kernel_log", "no /dev/kmsg", "os.write(os.open('/dev/kmsg', os.O_WRONLY), b'parley: tests/escape\\n'); escaped()"),
    Attempt("traces_the_kernel", "seccomp: mount; there is no /sys", """
mount(b'tracefs', folder('t').encode(), b'tracefs'); escaped()""", lacks="a kernel without tracing"),
]
