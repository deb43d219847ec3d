"""Typing into somebody's terminal, and taking one."""
from .attempt import Attempt

IOCTL = "seccomp: this ioctl"

PTY = """
import pty
master, slave = pty.openpty()
os.setsid() if os.getpid() != os.getsid(0) else None
"""

ATTEMPTS = [
    Attempt("types_into_its_terminal", IOCTL, PTY + """
fcntl.ioctl(slave, termios.TIOCSCTTY, 0); fcntl.ioctl(slave, termios.TIOCSTI, b'x'); escaped()""", lacks="a kernel without TIOCSTI"),
    Attempt("types_with_high_bits", IOCTL + "; the filter looks at as many bits as the kernel", PTY + """
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
syscall(16, slave, 1 << 40 | termios.TIOCSTI, b'x'); escaped()""", lacks="a kernel without TIOCSTI"),
    Attempt("pastes_a_consoles_selection", IOCTL + "; and no console is there", """
fcntl.ioctl(os.open('/dev/tty0', os.O_RDWR), 0x541c, b'\\x03\\0\\0\\0'); escaped()""", lacks="a host without consoles"),
    Attempt("changes_a_line_discipline", IOCTL, PTY + "fcntl.ioctl(slave, 0x5423, struct.pack('i', 0)); escaped()"),
    Attempt("redirects_the_console", "the kernel: CAP_SYS_ADMIN of the host", PTY + """
fcntl.ioctl(slave, 0x541d, 0)
if OUTSIDE: fcntl.ioctl(os.open('/dev/console', os.O_RDWR | os.O_NOCTTY), 0x541d, 0)  # and back
escaped()""", lacks="a host without a console"),
    Attempt("steals_a_terminal", "the kernel: CAP_SYS_ADMIN of the host", """
import pty
pid, master = pty.fork()
if pid == 0: time.sleep(10); os._exit(0)
time.sleep(0.1); os.setsid() if os.getpid() != os.getsid(0) else None
name = os.open('/dev/pts/%d' % struct.unpack('i', fcntl.ioctl(master, 0x80045430, bytes(4))), os.O_RDWR | os.O_NOCTTY)
try: fcntl.ioctl(name, termios.TIOCSCTTY, 1)
finally: os.kill(pid, 9)
escaped()"""),
    Attempt("opens_a_terminal_of_the_host", "a devpts of its own", "os.open(host_terminal, os.O_RDWR | os.O_NOCTTY); escaped()"),
    Attempt("makes_a_terminal_of_the_host", "a devpts of its own", """
master = os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)
fcntl.ioctl(master, 0x40045431, bytes(4))
number = struct.unpack('i', fcntl.ioctl(master, 0x80045430, bytes(4)))[0]
escaped(os.fstat(master).st_dev == host_terminals or os.stat('/dev/pts/%d' % number).st_dev == host_terminals)"""),
    Attempt("hangs_up_a_terminal", "the kernel: CAP_SYS_ADMIN; seccomp: vhangup", PTY + "fcntl.ioctl(slave, 0x5437, 0); escaped()"),
    Attempt("lists_terminals_of_the_host", "a devpts of its own", "escaped(os.path.exists(host_terminal) and os.stat(host_terminal).st_dev == host_terminals)"),
]
