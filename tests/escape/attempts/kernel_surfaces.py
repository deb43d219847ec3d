"""Calls with a history: keys, bpf, perf, io_uring, userfaultfd, modules, kexec, fanotify and their like."""
from .attempt import Attempt

MODULES, KEXEC = "a kernel without modules", "a kernel without kexec"

ATTEMPTS = [
    Attempt("adds_a_kernel_key", "seccomp: add_key", "escaped(syscall(248, b'user', b'parley-escape', b'x', 1, -2) > 0)"),
    Attempt("searches_keys_of_others", "seccomp: keyctl", """
if OUTSIDE: syscall(248, b'user', b'parley-escape', b'x', 1, -2)
escaped(syscall(250, 10, -2, b'user', b'parley-escape', 0) > 0)"""),
    Attempt("joins_the_hosts_keyring", "seccomp: keyctl", "escaped(syscall(250, 1, b'parley') > 0)"),
    Attempt("asks_the_kernel_to_fetch_a_key", "seccomp: request_key, which may start a program on the host", """
if OUTSIDE: syscall(248, b'user', b'parley-fetch', b'x', 1, -2)
escaped(syscall(249, b'user', b'parley-fetch', None, -2) > 0)"""),
    Attempt("makes_a_bpf_map", "seccomp: bpf", """
attributes = ctypes.create_string_buffer(128); struct.pack_into('IIIII', attributes, 0, 2, 4, 4, 1, 0)
escaped(syscall(321, 0, attributes, 128) >= 0)"""),
    Attempt("loads_a_bpf_program", "seccomp: bpf", """
code = ctypes.create_string_buffer(bytes([0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]))
text = ctypes.create_string_buffer(b'GPL')
attributes = ctypes.create_string_buffer(128)
struct.pack_into('IIQQIIQ', attributes, 0, 1, 2, ctypes.addressof(code), ctypes.addressof(text), 0, 0, 0)
escaped(syscall(321, 5, attributes, 128) >= 0)"""),
    Attempt("opens_perf_events", "seccomp: perf_event_open", """
attributes = ctypes.create_string_buffer(128); struct.pack_into('IIQ', attributes, 0, 1, 128, 1)
escaped(syscall(298, attributes, 0, -1, -1, 0) >= 0)"""),
    Attempt("watches_all_of_a_processor", "seccomp: perf_event_open", """
attributes = ctypes.create_string_buffer(128); struct.pack_into('IIQ', attributes, 0, 1, 128, 0)
escaped(syscall(298, attributes, -1, 0, -1, 0) >= 0)"""),
    Attempt("sets_up_io_uring", "seccomp: io_uring_setup", "escaped(syscall(425, 1, ctypes.create_string_buffer(256)) >= 0)"),
    Attempt("opens_userfaultfd", "seccomp: userfaultfd", "escaped(syscall(323, 0) >= 0)"),
    Attempt("takes_aio_contexts", "seccomp: io_setup is no call", "escaped(syscall(206, 1, ctypes.byref(ctypes.c_ulong(0))) == 0)"),
    Attempt("makes_secret_memory", "seccomp: memfd_secret", "escaped(syscall(447, 0) >= 0)",
            lacks="a kernel without memfd_secret"),
    Attempt("loads_a_module", "seccomp: init_module", """
try: syscall(175, b'not a module', 12, b'')
except OSError as why:
    if why.errno in (errno.ENOEXEC, errno.EINVAL): escaped()
    raise""", lacks=MODULES),
    Attempt("loads_a_module_from_a_file", "seccomp: finit_module", """
try: syscall(313, os.open('/bin/true', os.O_RDONLY), b'', 0)
except OSError as why:
    if why.errno in (errno.ENOEXEC, errno.EINVAL): escaped()
    raise""", lacks=MODULES),
    Attempt("removes_a_module", "seccomp: delete_module", """
try: syscall(176, b'parley_none', 0x800)
except OSError as why:
    if why.errno == errno.ENOENT: escaped()
    raise""", lacks=MODULES),
    Attempt("loads_another_kernel", "seccomp: kexec_load", "syscall(246, 0, 0, None, 0); escaped()", lacks=KEXEC),
    Attempt("loads_another_kernel_from_a_file", "seccomp: kexec_file_load", """
try: syscall(320, os.open('/bin/true', os.O_RDONLY), -1, 1, b'', 4)
except OSError as why:
    if why.errno == errno.ENOEXEC: escaped()
    raise""", lacks=KEXEC),
    Attempt("watches_all_files", "seccomp: fanotify_init", "escaped(syscall(300, 0, os.O_RDONLY) >= 0)"),
    Attempt("watches_files_as_a_user", "seccomp: fanotify_init", "escaped(syscall(300, 0x200, os.O_RDONLY) >= 0)"),
    Attempt("asks_for_quotas_of_the_host", "seccomp: quotactl", """
try: syscall(179, 0x80000700, b'/dev/vda', 0, ctypes.create_string_buffer(256))
except OSError as why:
    if why.errno in (errno.ESRCH, errno.ENOTBLK, errno.ENOENT, errno.ENODEV): escaped()
    raise""", lacks="a kernel without quotas"),
    Attempt("counts_processes_into_a_file", "seccomp: acct", """
try: syscall(163, b'/nowhere/parley')
except OSError as why:
    if why.errno == errno.ENOENT: escaped()
    raise""", lacks="a kernel without accounting"),
    Attempt("adds_swap", "seccomp: swapon", """
try: syscall(167, b'/nowhere/parley', 0)
except OSError as why:
    if why.errno == errno.ENOENT: escaped()
    raise""", lacks="a kernel without swap"),
    Attempt("takes_io_ports", "seccomp: ioperm", "syscall(173, 0x80, 1, 1); escaped()", lacks="a kernel without io ports"),
    Attempt("raises_its_io_level", "seccomp: iopl", "syscall(172, 3); escaped()", lacks="a kernel without io ports"),
    Attempt("changes_its_descriptor_table", "seccomp: modify_ldt", """
syscall(154, 1, struct.pack('IIII', 0, 0, 0xfffff, 0x51), 16); escaped()""", lacks="a kernel without modify_ldt"),
    Attempt("turns_off_randomisation", "seccomp: personality", "check(libc.personality(0x0040000)); escaped()"),
    Attempt("makes_memory_executable_by_reading", "seccomp: personality", "check(libc.personality(0x0400000)); escaped()"),
    Attempt("lists_file_systems_by_sysfs", "seccomp: sysfs", "escaped(syscall(139, 3) > 0)", lacks="a kernel without sysfs(2)"),
    Attempt("uses_a_crypto_socket", "seccomp: sockets of few families", "socket.socket(38, socket.SOCK_SEQPACKET, 0); escaped()",
            lacks="a kernel without AF_ALG"),
    Attempt("freezes_a_file_system", "the kernel: CAP_SYS_ADMIN of its owner", """
if OUTSIDE:
    top = folder('z'); mount(b'none', top.encode(), b'tmpfs')
    try: fcntl.ioctl(os.open(top, os.O_RDONLY), 0xc0045877, 0)
    except OSError as why: escaped(why.errno == errno.EOPNOTSUPP)
def freeze(path):
    where = os.open(path, os.O_RDONLY)
    try: fcntl.ioctl(where, 0xc0045877, 0)
    except OSError as why: escaped(why.errno == errno.EOPNOTSUPP); raise
    fcntl.ioctl(where, 0xc0045878, 0); escaped()
any_of(lambda path=path: freeze(path) for path in ('/', '/usr', '/dev/shm', '/tmp', '/proc', '/dev'))"""),
    Attempt("makes_a_file_unchangeable", "the kernel: CAP_LINUX_IMMUTABLE of the host", """
path = folder('i') + '/f'; open(path, 'w').close()
made = os.open(path, os.O_RDONLY); flags = bytearray(8)
fcntl.ioctl(made, 0x80086601, flags)
def put(value): fcntl.ioctl(made, 0x40086602, struct.pack('Q', value))
was = struct.unpack('Q', flags)[0]
put(was | 0x10); put(was); escaped()""", lacks="a /tmp whose file system has no such flag"),
]
