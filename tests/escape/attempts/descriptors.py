"""/proc/*/root, /proc/*/fd, /proc/*/mem, handles and working folders: what leads out of the tree by another way than a path."""
from .attempt import Attempt

UNDUMPABLE = "what is ours is not dumpable, and its memory belongs to the host's user namespace"

ATTEMPTS = [
    Attempt("reads_a_host_file", "another root file system", "escaped(secret in open(secret_path).read())"),
    Attempt("reads_host_shadow", "another /etc, in which no root has a password",
            "escaped(any(line.split(':')[1] not in ('', '*', '!', 'x') or OUTSIDE for line in open('/etc/shadow')))"),
    Attempt("climbs_out_by_dotdot", "pivot_root: the root of the tree is the root of the sandbox", """
os.chdir('/tmp')
for i in range(64): os.chdir('..')
escaped(secret in open(secret_path.lstrip('/')).read())"""),
    Attempt("climbs_out_of_a_chroot", "pivot_root: behind a chroot lies the sandbox's root again", """
top = os.open('/', os.O_RDONLY); os.chroot(folder('c')); os.fchdir(top)
for i in range(64): os.chdir('..')
os.chroot('.'); escaped(secret in open(secret_path).read())"""),
    Attempt("writes_host_usr", "/usr is an overlay whose lower layer is read-only",
            "open('/usr/lib/' + probe_name, 'w').write('x'); escaped()", own_root="it writes its own copy: the test looks at the host's"),
    Attempt("walks_through_another_root", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(len(os.listdir('/proc/%d/root/' % pid)) > 0) for pid in ours())"""),
    Attempt("walks_through_another_working_folder", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(len(os.listdir('/proc/%d/cwd/' % pid)) > 0) for pid in ours())"""),
    Attempt("walks_through_a_thread", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(len(os.listdir('/proc/%d/task/%d/root/' % (pid, pid))) > 0) for pid in ours())"""),
    Attempt("lists_descriptors_of_init", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(len(os.listdir('/proc/%d/fd' % pid)) >= 0) for pid in ours())"""),
    Attempt("looks_at_descriptors_of_init", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(len(open('/proc/%d/fdinfo/0' % pid).read()) > 0) for pid in ours())"""),
    Attempt("opens_a_descriptor_of_init", UNDUMPABLE, """
any_of(lambda pid=pid, n=n: escaped(os.open('/proc/%d/fd/%d' % (pid, n), os.O_RDONLY | os.O_NONBLOCK) >= 0)
       for pid in ours() for n in range(64))"""),
    Attempt("takes_a_descriptor_of_init", "seccomp: pidfd_getfd; and it asks for the right to trace", """
any_of(lambda pid=pid, n=n: escaped(syscall(438, syscall(434, pid, 0), n, 0) >= 0) for pid in ours() for n in range(16))"""),
    Attempt("opens_namespaces_by_a_pidfd", UNDUMPABLE, """
any_of(lambda pid=pid, n=n: escaped(fcntl.ioctl(syscall(434, pid, 0), 0xff00 | n, 0) >= 0) for pid in ours() for n in range(1, 11))""",
            lacks="a kernel before 6.11"),
    Attempt("reads_the_environment_of_init", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(len(open('/proc/%d/environ' % pid, 'rb').read()) >= 0) for pid in ours())"""),
    Attempt("reads_the_memory_of_init", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(os.open('/proc/%d/mem' % pid, os.O_RDONLY) >= 0) for pid in ours())"""),
    Attempt("writes_the_memory_of_init", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(os.open('/proc/%d/mem' % pid, os.O_RDWR) >= 0) for pid in ours())"""),
    Attempt("reads_where_init_lies_in_memory", UNDUMPABLE, """
any_of(lambda pid=pid, name=name: escaped(len(open('/proc/%d/%s' % (pid, name), 'rb').read()) > 0) for pid in ours()
       for name in ('maps', 'smaps', 'auxv', 'numa_maps', 'pagemap', 'stack', 'syscall', 'personality', 'io'))"""),
    Attempt("lists_files_that_init_maps", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(len(os.listdir('/proc/%d/map_files' % pid)) > 0) for pid in ours())"""),
    Attempt("reads_the_program_of_init", UNDUMPABLE + "; the file itself may only be executed", """
any_of(lambda pid=pid: escaped(len(open('/proc/%d/exe' % pid, 'rb').read(4)) > 0) for pid in ours())"""),
    Attempt("replaces_the_program_of_init", UNDUMPABLE + "; and it is a sealed memfd", """
if OUTSIDE:
    shutil.copy('/bin/sleep', folder('x') + '/sleep')
    pids = [subprocess.Popen([folder('x') + '/sleep', '5']).pid]; time.sleep(0.2)
    os.unlink(folder('x') + '/sleep')
else: pids = ours()
def replace(pid):
    # running text cannot be written (ETXTBSY); what has ended can, by a descriptor that was opened before (CVE-2019-5736)
    found = os.open('/proc/%d/exe' % pid, os.O_PATH)
    if OUTSIDE: os.kill(pid, 9); os.waitpid(pid, 0)
    escaped(os.open('/proc/self/fd/%d' % found, os.O_WRONLY) >= 0)
any_of(lambda pid=pid: replace(pid) for pid in pids)"""),
    Attempt("names_the_namespaces_of_init", UNDUMPABLE, """
any_of(lambda pid=pid: escaped(len(os.readlink('/proc/%d/ns/mnt' % pid)) > 0) for pid in ours())"""),
    Attempt("opens_by_handle", "seccomp: open_by_handle_at, name_to_handle_at; and CAP_DAC_READ_SEARCH of the host", """
buffer = ctypes.create_string_buffer(8 + 128)
struct.pack_into('Ii', buffer, 0, 128, 0)
mount_id = ctypes.c_int()
check(libc.name_to_handle_at(AT_FDCWD, b'/', buffer, ctypes.byref(mount_id), 0))
escaped(check(libc.open_by_handle_at(os.open('/', os.O_RDONLY), buffer, os.O_RDONLY)) >= 0)""",
            lacks="a root file system without handles"),
    Attempt("guesses_the_handle_of_the_root", "seccomp: open_by_handle_at; and CAP_DAC_READ_SEARCH of the host", """
handle = struct.pack('IiQ', 8, 1, 2)  # inode 2, ext4's root: how Docker was left in 2014 (shocker)
escaped(check(libc.open_by_handle_at(os.open('/', os.O_RDONLY), ctypes.create_string_buffer(handle), os.O_RDONLY)) >= 0)""",
            lacks="a root that is not ext4"),
    Attempt("names_a_file_by_handle", "seccomp: name_to_handle_at", """
buffer = ctypes.create_string_buffer(8 + 128)
struct.pack_into('Ii', buffer, 0, 128, 0)
escaped(check(libc.name_to_handle_at(AT_FDCWD, b'/usr', buffer, ctypes.byref(ctypes.c_int()), 0)) == 0)""",
            lacks="a /usr without handles"),
]
