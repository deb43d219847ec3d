"""Ways out, each a Python program that prints ESCAPED when it got something that a sandbox must not give.

Every one is first run outside, as root, where it must work; then inside, where it must not. {x} is filled in from what
the test planted on the host. SYSCALL numbers are x86_64's; on another machine those attempts are skipped."""

PRELUDE = r"""
import ctypes, ctypes.util, errno, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *args):
    result = libc.syscall(ctypes.c_long(number), *[a if not isinstance(a, int) else ctypes.c_long(a) for a in args])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def escaped(condition=True):
    if condition:
        print("ESCAPED")
"""

ATTEMPTS = {
    # ---- files ----
    "reads_a_host_file": "escaped('{secret}' in open('{secret_path}').read())",
    "reads_host_shadow": "escaped('root:' in open('/etc/shadow').read())",
    "climbs_out_by_dotdot": "escaped('{secret}' in open('/workspace/../../../../../../../..{secret_path}').read() if os.path.isdir('/workspace') else open('/tmp/../../../..{secret_path}').read())",
    "reads_host_shared_memory": "escaped('{secret}' in open('{shm_path}').read())",
    "walks_through_another_root": "escaped(len(os.listdir('/proc/{trace_target}/root/')) > 0)",
    "writes_host_usr": "open('/usr/lib/{probe_name}', 'w').write('x'); escaped()",
    "chroots_out": "check(libc.chroot(b'/tmp')); escaped()",
    "opens_by_handle": """
buffer = ctypes.create_string_buffer(8 + 128)
struct.pack_into('Ii', buffer, 0, 128, 0)
mount_id = ctypes.c_int()
check(libc.name_to_handle_at(-100, b'/', buffer, ctypes.byref(mount_id), 0))
root = os.open('/', os.O_RDONLY)
escaped(check(libc.open_by_handle_at(root, buffer, os.O_RDONLY)) >= 0)""",
    # ---- mounts, namespaces ----
    "mounts_a_tmpfs": "os.makedirs('/tmp/parley-m', exist_ok=True); check(libc.unshare(0x20000)) if os.getpid() != 0 and os.path.exists('/root/.') and os.geteuid() == 0 else None; check(libc.mount(b'none', b'/tmp/parley-m', b'tmpfs', 0, None)); escaped()",
    "changes_mount_propagation": "check(libc.unshare(0x20000)) if os.geteuid() == 0 else None; check(libc.mount(b'none', b'/', None, 0x4000 | 0x40000, None)); escaped()",
    "makes_a_user_namespace": "check(libc.unshare(0x10000000)); escaped()",
    "clones_into_a_user_namespace": """
pid = syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); escaped()""",
    "enters_anothers_namespace": "check(libc.setns(os.open('/proc/{trace_target}/ns/uts', os.O_RDONLY), 0)); escaped()",
    "opens_a_filesystem_context": "escaped(syscall(430, b'tmpfs', 0) >= 0)",
    # ---- devices, kernel memory, kernel log ----
    "makes_a_device_node": "os.mknod('/tmp/parley-null-{probe_name}', 0o600 | 0o020000, os.makedev(1, 3)); open('/tmp/parley-null-{probe_name}', 'w').write('x'); escaped()",
    "opens_the_kernel_message_device": "os.open('/dev/kmsg', os.O_RDWR); escaped()",
    "reads_the_kernel_log": "escaped(check(libc.klogctl(10, None, 0)) >= 0)",
    "writes_core_pattern": "old = open('/proc/sys/kernel/core_pattern').read(); open('/proc/sys/kernel/core_pattern', 'w').write(old); escaped()",
    "writes_a_kernel_setting": "old = open('/proc/sys/kernel/panic').read(); open('/proc/sys/kernel/panic', 'w').write(old); escaped()",
    "reads_kernel_addresses": "escaped(any(int(line.split()[0], 16) for line in list(open('/proc/kallsyms'))[:50]))",
    # ---- processes ----
    "sees_host_processes": "escaped(os.path.exists('/proc/{victim}/cmdline') and b'{marker}' in open('/proc/{victim}/cmdline', 'rb').read())",
    "signals_a_host_process": "os.kill({victim}, 0); escaped()",
    "traces_process_1_or_the_victim": "check(libc.ptrace(16, {trace_target}, None, None)); escaped(); libc.ptrace(17, {trace_target}, None, None)",
    "reads_the_memory_of_another": "escaped(len(open('/proc/{trace_target}/environ', 'rb').read()) >= 0 and os.open('/proc/{trace_target}/mem', os.O_RDWR) >= 0)",
    "limits_process_1_or_the_victim": "import resource; old = resource.prlimit({trace_target}, resource.RLIMIT_NOFILE); resource.prlimit({trace_target}, resource.RLIMIT_NOFILE, old); escaped()",
    "raises_its_priority": "os.nice(-5); escaped()",
    "becomes_root": "check(libc.setresuid(0, 0, 0)); escaped(os.geteuid() == 0)",
    "gains_by_a_setuid_program": """
import shutil, stat, subprocess
shutil.copy('/usr/bin/id', '/tmp/id-{probe_name}')
os.chmod('/tmp/id-{probe_name}', 0o4755)
drop = (lambda: os.setresuid(65534, 65534, 65534)) if os.geteuid() == 0 else None
escaped(b'euid=0' in subprocess.run(['/tmp/id-{probe_name}'], stdout=subprocess.PIPE, preexec_fn=drop).stdout)""",
    # ---- network ----
    "connects_to_a_host_port": "socket.create_connection(('127.0.0.1', {port}), 2).sendall(b'x'); escaped()",
    "connects_to_a_host_abstract_socket": "s = socket.socket(socket.AF_UNIX); s.connect('\\0{abstract}'); escaped()",
    "opens_a_raw_socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); escaped()",
    "opens_a_packet_socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0); escaped()",
    "opens_a_vsock_or_audit_socket": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9); escaped()",
    # ---- kernel surfaces with a history ----
    "sets_up_io_uring": "escaped(syscall(425, 1, ctypes.create_string_buffer(256)) >= 0)",
    "opens_userfaultfd": "escaped(syscall(323, 0) >= 0)",
    "loads_bpf": """
attributes = ctypes.create_string_buffer(128)
struct.pack_into('IIIII', attributes, 0, 2, 4, 4, 1, 0)
escaped(syscall(321, 0, attributes, 128) >= 0)""",
    "opens_perf_events": """
attributes = ctypes.create_string_buffer(128)
struct.pack_into('IIQ', attributes, 0, 1, 128, 1)
escaped(syscall(298, attributes, 0, -1, -1, 0) >= 0)""",
    "adds_a_kernel_key": "escaped(syscall(248, b'user', b'parley-escape', b'x', 1, -2) > 0)",
    "sets_the_clock": "now = ctypes.create_string_buffer(16); check(libc.clock_gettime(0, now)); check(libc.clock_settime(0, now)); escaped()",
    "renames_the_host": "name = socket.gethostname().encode(); check(libc.sethostname(name, len(name))); escaped()",
    "turns_off_randomisation": "check(libc.personality(0x0040000)); escaped()",
    "injects_terminal_input": """
import fcntl, pty, termios
master, slave = pty.openpty()
os.setsid() if os.getpid() != os.getsid(0) else None
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
fcntl.ioctl(slave, termios.TIOCSTI, b'x')
escaped()""",
    "takes_aio_contexts": "escaped(syscall(206, 1, ctypes.byref(ctypes.c_ulong(0))) == 0)",
    "changes_a_line_discipline": """
import fcntl, pty
master, slave = pty.openpty()
fcntl.ioctl(slave, 0x5423, struct.pack('i', 0))
escaped()""",
    "makes_a_multipath_socket": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); escaped()",
    "reads_the_hosts_boot_line": "escaped(len(open('/proc/cmdline').read()) > 0)",
    "reads_what_the_host_has_locked_or_does": "escaped(len(open('/proc/interrupts').read() + open('/proc/locks').read()) > 0)",
    # ---- cgroups ----
    "leaves_its_cgroup": """
import glob
procs = [p for p in glob.glob('/sys/fs/cgroup/**/cgroup.procs', recursive=True)][:1]
fd = os.open(procs[0], os.O_WRONLY)
escaped(fd >= 0)""",
}
