"""What /proc and /sys take and tell."""
from .attempt import SYS_RESOURCE, Attempt

READ_ONLY = "/proc/sys is a read-only mount, and its entries belong to ids that the sandbox has not"
COVERED = "covered by /dev/null"

ATTEMPTS = [
    Attempt("writes_a_kernel_setting", READ_ONLY, """
old = open('/proc/sys/kernel/panic').read(); open('/proc/sys/kernel/panic', 'w').write(old); escaped()"""),
    Attempt("writes_any_kernel_setting", READ_ONLY, """
def write(path): os.close(os.open(path, os.O_WRONLY)); escaped()
any_of(lambda path=os.path.join(top, name): write(path) for top, _, names in os.walk('/proc/sys') for name in names)"""),
    Attempt("names_the_program_that_loads_modules", READ_ONLY, "os.open('/proc/sys/kernel/modprobe', os.O_WRONLY); escaped()",
            lacks="a kernel without modules"),
    Attempt("names_the_program_for_events_of_devices", "there is no /sys",
            "os.open('/sys/kernel/uevent_helper', os.O_WRONLY); escaped()", lacks="a kernel without uevent_helper"),
    Attempt("writes_anything_in_sys", "there is no /sys", """
def write(path): os.close(os.open(path, os.O_WRONLY)); escaped()
any_of(lambda path=os.path.join(top, name): write(path) for top, _, names in os.walk('/sys/kernel') for name in names)"""),
    Attempt("drops_the_hosts_caches", READ_ONLY, "os.open('/proc/sys/vm/drop_caches', os.O_WRONLY); escaped()"),
    Attempt("triggers_sysrq", COVERED + " or root's", "escaped(stat.S_ISREG(os.fstat(os.open('/proc/sysrq-trigger', os.O_WRONLY)).st_mode))",
            lacks="a kernel without sysrq"),
    Attempt("registers_an_interpreter", "no binfmt_misc is mounted", """
if OUTSIDE: mount(b'binfmt_misc', b'/proc/sys/fs/binfmt_misc', b'binfmt_misc')
os.open('/proc/sys/fs/binfmt_misc/register', os.O_WRONLY); escaped()""", lacks="a kernel without binfmt_misc"),
    Attempt("writes_the_memory_type_registers", "the file is the host's root's",
            "os.open('/proc/mtrr', os.O_WRONLY); escaped()", lacks="a machine without /proc/mtrr"),
    Attempt("reads_kernel_addresses", COVERED,
            "escaped(any(int(line.split()[0], 16) for line in list(open('/proc/kallsyms'))[:50]))"),
    Attempt("reads_the_hosts_boot_line", COVERED, "escaped(len(open('/proc/cmdline').read()) > 0)"),
    Attempt("reads_the_kernels_configuration", COVERED, "escaped(len(open('/proc/config.gz', 'rb').read()) > 0)",
            lacks="a kernel without /proc/config.gz"),
    Attempt("reads_what_the_host_has_locked", COVERED, """
held = open(folder('l') + '/l', 'w'); fcntl.flock(held, fcntl.LOCK_EX)
escaped(len(open('/proc/locks').read()) > 0)"""),
    Attempt("reads_what_interrupts_the_host", COVERED, "escaped(len(open('/proc/interrupts').read()) > 0)"),
    Attempt("reads_the_hosts_disks", COVERED, "escaped(len(open('/proc/partitions').read() + open('/proc/diskstats').read()) > 0)"),
    Attempt("reads_memory_maps_of_the_machine", COVERED, "escaped(len(open('/proc/iomem').read()) > 0)"),
    Attempt("reads_kernel_memory", COVERED + ", or not there", "escaped(len(os.read(os.open('/proc/kcore', os.O_RDONLY), 100)) > 0)",
            lacks="a kernel without /proc/kcore"),
    Attempt("reads_pages_of_the_kernel", "the files are the host's root's", """
def read(name): escaped(len(os.read(os.open('/proc/' + name, os.O_RDONLY), 64)) > 0)
any_of(lambda name=name: read(name) for name in ('kpageflags', 'kpagecount', 'slabinfo', 'vmallocinfo', 'timer_list',
                                                 'pagetypeinfo', 'zoneinfo', 'buddyinfo'))"""),
    Attempt("reads_kernel_keys", COVERED, "escaped(len(open('/proc/keys').read() + open('/proc/key-users').read()) > 0)",
            lacks="a kernel without keys"),
    Attempt("reads_the_pressure_of_the_host", "an empty folder lies over it", "escaped(len(open('/proc/pressure/cpu').read()) > 0)",
            lacks="a kernel without pressure information"),
    Attempt("learns_physical_addresses", "the kernel shows page frames to CAP_SYS_ADMIN alone", """
data = ctypes.create_string_buffer(b'x' * 4096)
with open('/proc/self/pagemap', 'rb', buffering=0) as pages:
    pages.seek(ctypes.addressof(data) // 4096 * 8)
    escaped(struct.unpack('Q', pages.read(8))[0] & ((1 << 55) - 1))"""),
    Attempt("takes_itself_from_the_memory_killer", "the launcher says 0 with CAP_SYS_RESOURCE, which nobody goes below without", """
with open('/proc/self/oom_score_adj', 'w') as f: f.write('-1000')
escaped()""", needs=SYS_RESOURCE, lacks="a host whose root has no CAP_SYS_RESOURCE"),
    Attempt("takes_init_from_the_memory_killer", "init is not dumpable: its files are the host's root's", """
any_of(lambda pid=pid: (open('/proc/%d/oom_score_adj' % pid, 'w').write('-999'), escaped()) for pid in ours())"""),
    Attempt("writes_files_of_init", "init is not dumpable: its files are the host's root's", """
def write(path, text):
    with open(path, 'w') as f: f.write(text)
    escaped()
any_of(lambda path='/proc/%d/%s' % (pid, name), text=text: write(path, text) for pid in ours() for name, text in (
    ('clear_refs', '1'), ('coredump_filter', '0'), ('comm', 'x'), ('autogroup', '0'), ('sched', '0'), ('timerslack_ns', '1')))"""),
    Attempt("writes_an_id_map", "the maps are written already; init's are the host's root's", """
pids = [child_in(NEWUSER)] if OUTSIDE else ['self', *ours()]
def write(pid, name):
    with open('/proc/%s/%s' % (pid, name), 'w') as f: f.write('0 0 4294967295' if name != 'setgroups' else 'allow')
    escaped()
any_of(lambda pid=pid, name=name: write(pid, name) for pid in pids for name in ('uid_map', 'gid_map'))"""),
]
