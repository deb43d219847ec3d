"""Device nodes: made, opened, changed."""
from .attempt import Attempt

MKNOD = "the kernel: mknod of a device wants CAP_MKNOD of the host; and all mounts are nodev but /dev, which is read-only"
NOT_THERE = "/dev has null, zero, full, random, urandom, tty and the sandbox's own terminals"


def opens(name, *paths, how="os.O_RDWR", lacks=""):
    return Attempt(f"opens_{name}", NOT_THERE, f"""
any_of(lambda path=path: (os.open(path, {how} | os.O_NONBLOCK | os.O_NOCTTY), escaped()) for path in {paths!r})""", lacks=lacks)


ATTEMPTS = [
    Attempt("makes_a_device_node", MKNOD, """
path = folder('d') + '/null'; os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3)); open(path, 'w').write('x'); escaped()"""),
    Attempt("makes_the_hosts_disk", MKNOD, """
path = folder('d') + '/disk'; number = host_disk
os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(*number)); os.open(path, os.O_RDONLY); escaped()""", lacks="a root that is no disk, or a devices cgroup that has not all"),
    Attempt("makes_nodes_wherever_it_may_write", MKNOD, """
def make(top):
    path = '%s/parley-%s' % (top, os.getpid())
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 9)); made = os.open(path, os.O_RDONLY); os.unlink(path); escaped()
any_of(lambda top=top: make(top) for top in ('/tmp', '/dev/shm', '/dev', '/workspace', '/data', '/root', '/usr/lib', '/var/tmp', '/run'))"""),
    Attempt("writes_into_dev", "/dev is a read-only mount", "open('/dev/parley-' + probe_name, 'w').close(); escaped()"),
    Attempt("removes_a_device", "/dev is a read-only mount", """
if OUTSIDE:
    path = '/dev/parley-null-' + probe_name; os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3)); os.unlink(path); escaped()
os.unlink('/dev/null'); escaped()"""),
    Attempt("changes_a_device", "/dev is a read-only mount, its nodes the host's root's", """
os.chmod('/dev/full', stat.S_IMODE(os.stat('/dev/full').st_mode)); escaped()"""),
    opens("the_kernel_message_device", "/dev/kmsg"),
    opens("kernel_memory", "/dev/mem", "/dev/kmem", "/dev/port", lacks="a kernel without /dev/mem"),
    opens("disks", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control", how="os.O_RDONLY"),
    opens("virtual_machines", "/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/vsock", lacks="a host without any"),
    opens("fuse", "/dev/fuse", lacks="a host without fuse"),
    opens("userfaultfd_by_its_device", "/dev/userfaultfd", lacks="a host without it"),
    opens("the_hosts_console", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", how="os.O_WRONLY"),
    opens("clocks_and_watchdogs", "/dev/rtc", "/dev/rtc0", "/dev/ptp0", "/dev/hpet", how="os.O_RDONLY", lacks="a host without any"),
    opens("other_character_devices", "/dev/cpu_dma_latency", "/dev/snapshot", "/dev/autofs", "/dev/mapper/control", "/dev/btrfs-control",
          "/dev/input/event0", "/dev/vga_arbiter", "/dev/dma_heap/system", "/dev/udmabuf", "/dev/nvram"),
    opens("model_specific_registers", "/dev/cpu/0/msr", "/dev/cpu/0/cpuid", how="os.O_RDONLY", lacks="a host without them"),
]
