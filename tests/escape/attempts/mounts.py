"""mount(2), the newer calls for mounts, and overlay."""
from .attempt import Attempt

SECCOMP = "seccomp: mounts are nobody's to make; and no command has CAP_SYS_ADMIN"

ATTEMPTS = [
    Attempt("mounts_a_tmpfs", SECCOMP, "mount(b'none', folder('m').encode(), b'tmpfs'); escaped()"),
    Attempt("remounts_the_root_with_devices", SECCOMP + "; the flags are locked, being the host's",
            "mount(None, b'/', None, MS_REMOUNT | MS_BIND); escaped()"),
    Attempt("remounts_proc_sys_writable", SECCOMP, """
if OUTSIDE: mount(b'/proc/sys', b'/proc/sys', None, MS_BIND)
mount(None, b'/proc/sys', None, MS_REMOUNT | MS_BIND); escaped()"""),
    Attempt("unmounts_a_cover_of_proc", SECCOMP, """
if OUTSIDE: mount(b'/dev/null', b'/proc/interrupts', None, MS_BIND)
check(libc.umount2(b'/proc/interrupts', 0)); escaped()"""),
    Attempt("unmounts_all_of_proc", SECCOMP, "check(libc.umount2(b'/proc', 2)); escaped()"),
    Attempt("unmounts_by_following_a_link", SECCOMP, """
path = folder('u') + '/l'; os.symlink('/dev/pts', path)
check(libc.umount2(path.encode(), 2)); escaped()"""),
    Attempt("binds_a_folder_over_proc", SECCOMP, "mount(folder('b').encode(), b'/proc', None, MS_BIND); escaped()"),
    Attempt("binds_proc_elsewhere_without_its_covers", SECCOMP, """
path = folder('p'); mount(b'/proc', path.encode(), None, MS_BIND)
escaped(len(open(path + '/interrupts').read()) > 0)"""),
    Attempt("moves_a_mount", SECCOMP, """
path = folder('v').encode()
if OUTSIDE:
    mount(b'none', path, b'tmpfs'); mount(path, folder('w').encode(), None, MS_MOVE)
else: mount(b'/dev/shm', path, None, MS_MOVE)
escaped()"""),
    Attempt("changes_mount_propagation", SECCOMP, "mount(None, b'/', None, MS_REC | 1 << 20); escaped()"),
    Attempt("mounts_a_fresh_proc", SECCOMP, "mount(b'proc', folder('f').encode(), b'proc'); escaped()"),
    Attempt("mounts_sysfs", SECCOMP, "mount(b'sysfs', folder('s').encode(), b'sysfs'); escaped()"),
    Attempt("mounts_debugfs", SECCOMP, "mount(b'debugfs', folder('d').encode(), b'debugfs'); escaped()",
            lacks="a kernel without debugfs, or locked down"),
    Attempt("mounts_the_cgroup_tree", SECCOMP, "mount(b'none', folder('c').encode(), b'cgroup2'); escaped()"),
    Attempt("mounts_the_terminals_of_all", SECCOMP, "mount(b'devpts', folder('t').encode(), b'devpts'); escaped()"),
    Attempt("mounts_message_queues", SECCOMP, "mount(b'mqueue', folder('q').encode(), b'mqueue'); escaped()"),
    Attempt("mounts_the_hosts_disk", SECCOMP, """
disk = [line.split() for line in open('/proc/self/mountinfo')]
names = [words[words.index('-') + 2] for words in disk] + ['/dev/vda', '/dev/sda', '/dev/nvme0n1', '/dev/loop0']
any_of(lambda name=name, kind=kind: (mount(name.encode(), folder('h').encode(), kind, MS_RDONLY), escaped())
       for name in names if name.startswith('/dev/') for kind in (b'ext4', b'btrfs', b'xfs', b'overlay'))""",
            lacks="a root that is no disk of these kinds"),
    Attempt("mounts_an_overlay_over_usr", SECCOMP, """
top = folder('o'); mount(b'none', top.encode(), b'tmpfs') if OUTSIDE else None
os.makedirs(top + '/u', exist_ok=True); os.makedirs(top + '/w', exist_ok=True)
mount(b'overlay', b'/usr', b'overlay', 0, ('lowerdir=/usr,upperdir=%s/u,workdir=%s/w' % (top, top)).encode()); escaped()"""),
    Attempt("names_an_overlay_of_folders_it_may_not_read", SECCOMP, """
mount(b'overlay', folder('n').encode(), b'overlay', 0, b'lowerdir=/root:/etc,userxattr'); escaped()"""),
    Attempt("pivots_the_root", SECCOMP, """
top = folder('r').encode(); mount(b'none', top, b'tmpfs') if OUTSIDE else None
os.makedirs(top + b'/old', exist_ok=True)
if OUTSIDE: mount(None, b'/', None, MS_REC | MS_PRIVATE)
syscall(155, top, top + b'/old'); escaped()"""),
    Attempt("opens_a_filesystem_context", "seccomp: fsopen", "escaped(syscall(430, b'tmpfs', 0) >= 0)"),
    Attempt("picks_the_roots_filesystem", "seccomp: fspick", "escaped(syscall(433, AT_FDCWD, b'/', 0) >= 0)",
            lacks="a root whose file system has no context"),
    Attempt("mounts_by_the_newer_calls", "seccomp: fsopen, fsconfig, fsmount, move_mount", """
context = syscall(430, b'tmpfs', 0)
syscall(431, context, 6, None, None, 0)
made = syscall(432, context, 0, 0)
syscall(429, made, b'', AT_FDCWD, folder('n').encode(), 4); escaped()"""),
    Attempt("clones_the_tree_of_mounts", "seccomp: open_tree",
            "escaped(syscall(428, AT_FDCWD, b'/', 1 | 0x8000) >= 0)"),
    Attempt("clones_proc_without_its_covers", "seccomp: open_tree", """
tree = syscall(428, AT_FDCWD, b'/proc', 1)
escaped(len(os.read(os.open('interrupts', os.O_RDONLY, dir_fd=tree), 100)) > 0)"""),
    Attempt("opens_a_tree_with_attributes", "seccomp: open_tree_attr, which the filter does not know",
            "escaped(syscall(467, AT_FDCWD, b'/', 1, ctypes.create_string_buffer(32), 32) >= 0)",
            lacks="a kernel before 6.15"),
    Attempt("clears_attributes_of_a_mount", "seccomp: mount_setattr", """
attributes = struct.pack('QQQQ', 0, 2, 0, 0)
syscall(442, AT_FDCWD, b'/', 0, attributes, len(attributes)); escaped()"""),
    Attempt("makes_an_idmapped_mount", "seccomp: open_tree, mount_setattr", """
if OUTSIDE:
    pid = child_in(NEWUSER)
    for which in ('uid_map', 'gid_map'): open('/proc/%d/%s' % (pid, which), 'w').write('0 100000 65536')
else: pid = os.getpid()
users = os.open('/proc/%d/ns/user' % pid, os.O_RDONLY)
tree = syscall(428, AT_FDCWD, b'/tmp', 1)
attributes = struct.pack('QQQQ', 0x00100000, 0, 0, users)
syscall(442, tree, b'', 0x1000, attributes, len(attributes)); escaped()"""),
    Attempt("asks_for_the_mounts_of_a_namespace", "seccomp: statmount, listmount, which the filter does not know", """
request = struct.pack('IIQQQ', 32, 0, 0xffffffffffffffff, 0, 0)
escaped(syscall(458, request, ctypes.create_string_buffer(8 * 64), 64, 0) > 0)""", lacks="a kernel before 6.11"),
]
