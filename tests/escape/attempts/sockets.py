"""Sockets of all kinds, the host's network, and the address at which clouds give their machines' credentials away."""
from .attempt import Attempt

FEW = "seccomp: sockets of few families, types and protocols"
OWN = "a network namespace of its own, in which the front's and the host's sockets are not"
RIGHTS = "the network namespace is the host's root's: nobody inside has a right over it"
NO_WAY = OWN + "; without egress it has no route"

METADATA = ("169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xa9.0xfe.0xa9.0xfe", "169.254.43518",
            "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fd00:ec2::254",
            "169.254.170.2", "100.100.100.200", "192.0.0.192", "metadata.google.internal", "169.254.169.254.nip.io",
            "metadata")


def opens(name, family, kind, protocol, lacks=""):
    return Attempt(f"opens_{name}", FEW, f"socket.socket({family}, {kind}, {protocol}); escaped()", lacks=lacks)


ATTEMPTS = [
    opens("a_raw_socket", "socket.AF_INET", "socket.SOCK_RAW", 1),
    opens("a_raw_socket_of_6", "socket.AF_INET6", "socket.SOCK_RAW", 58),
    opens("a_raw_socket_of_all_protocols", "socket.AF_INET", "socket.SOCK_RAW", 255),
    opens("a_packet_socket", "socket.AF_PACKET", "socket.SOCK_RAW", 0),
    opens("a_packet_socket_by_type", "socket.AF_INET", 10, 0, "a kernel that has dropped it"),
    opens("audit", "socket.AF_NETLINK", "socket.SOCK_RAW", 9, "a kernel without audit"),
    opens("events_of_devices", "socket.AF_NETLINK", "socket.SOCK_RAW", 15),
    opens("netfilter", "socket.AF_NETLINK", "socket.SOCK_RAW", 12),
    opens("socket_diagnosis", "socket.AF_NETLINK", "socket.SOCK_RAW", 4),
    opens("ipsec", "socket.AF_NETLINK", "socket.SOCK_RAW", 6, "a kernel without xfrm"),
    opens("generic_netlink", "socket.AF_NETLINK", "socket.SOCK_RAW", 16),
    opens("the_process_connector", "socket.AF_NETLINK", "socket.SOCK_RAW", 11, "a kernel without connector"),
    opens("selinux_events", "socket.AF_NETLINK", "socket.SOCK_RAW", 7, "a kernel without SELinux"),
    opens("the_virtual_machines_socket", "socket.AF_VSOCK", "socket.SOCK_STREAM", 0, "a kernel without vsock"),
    opens("an_express_data_path", 44, "socket.SOCK_RAW", 0, "a kernel without AF_XDP"),
    opens("a_key_socket", 15, "socket.SOCK_RAW", 2, "a kernel without AF_KEY"),
    opens("a_multipath_socket", "socket.AF_INET", "socket.SOCK_STREAM", 262, "a kernel without mptcp"),
    opens("an_sctp_socket", "socket.AF_INET", "socket.SOCK_STREAM", 132, "a kernel without sctp"),
    opens("a_ping_socket", "socket.AF_INET", "socket.SOCK_DGRAM", 1, "a host whose ping_group_range has not root"),
    Attempt("connects_to_the_hypervisor", FEW, """
s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM); s.settimeout(2)
try: s.connect((2, 1024))
except OSError: pass
escaped()""", lacks="a kernel without vsock"),
    Attempt("connects_to_a_host_port", OWN, "socket.create_connection(('127.0.0.1', port), 2).sendall(b'x'); escaped()"),
    Attempt("connects_to_a_host_port_by_other_names", OWN, """
any_of(lambda name=name: (socket.create_connection((name, port), 1), escaped())
       for name in ('127.0.0.2', '127.1', '0.0.0.0', '::1', '::ffff:127.0.0.1', 'localhost', 'host.docker.internal'))"""),
    Attempt("connects_to_an_address_of_the_host", NO_WAY, """
any_of(lambda name=name: (socket.create_connection((name, port_of_all), 1), escaped()) for name in host_addresses)""",
            lacks="a host without an address"),
    Attempt("connects_to_the_front", NO_WAY, """
any_of(lambda name=name: (socket.create_connection((name, front_port), 1), escaped())
       for name in ('127.0.0.1', '::1', '0.0.0.0', *host_addresses))"""),
    Attempt("connects_to_the_hosts_abstract_socket", OWN, "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + abstract); escaped()"),
    Attempt("sends_to_the_hosts_abstract_socket", OWN, """
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', '\\0' + abstract + '-datagram'); escaped()"""),
    Attempt("connects_to_a_socket_by_its_path", "another root file system; and the folder is the launcher's", """
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(init_socket); escaped()"""),
    Attempt("connects_to_all_that_the_kernel_lists", OWN, """
names = [line.split()[7] for line in open('/proc/net/unix') if len(line.split()) > 7 and abstract in line]
any_of(lambda name=name: (socket.socket(socket.AF_UNIX).connect(name.replace('@', '\\0', 1)), escaped()) for name in names)"""),
    Attempt("asks_for_credentials_of_the_machine", NO_WAY, f"""
ADDRESSES = {METADATA!r}
if OUTSIDE:
    # in a network of its own, where this machine has the address
    check(libc.unshare(NEWNET)); subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)
    subprocess.run(['ip', 'address', 'add', '169.254.169.254/32', 'dev', 'lo'], check=True)
    service = socket.create_server(('169.254.169.254', 80))
any_of(lambda name=name, p=p: (socket.create_connection((name, p), 0.3), escaped()) for name in ADDRESSES for p in (80, 8080))"""),
    Attempt("sends_to_the_machines_resolver", NO_WAY, """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5)
def ask(name):
    s.sendto(b'x', (name, 53) if not OUTSIDE else ('127.0.0.1', port_of_datagrams)); s.recv(100); escaped()
any_of(lambda name=name: ask(name) for name in ('127.0.0.53', '169.254.169.253', '8.8.8.8', *host_addresses))"""),
    Attempt("marks_its_packets", RIGHTS, "socket.socket().setsockopt(1, 36, 7); escaped()"),
    Attempt("repairs_a_connection", RIGHTS, "socket.socket().setsockopt(6, 19, 1); escaped()"),
    Attempt("claims_addresses_of_others", RIGHTS, "socket.socket().setsockopt(0, 19, 1); escaped()"),
    Attempt("replaces_the_packet_filter", RIGHTS, """
try: socket.socket().setsockopt(0, 64, bytes(4))
except OSError as why:
    if why.errno in (errno.EINVAL, errno.ENOPROTOOPT): escaped(OUTSIDE or why.errno == errno.EINVAL)
    raise"""),
    Attempt("shuts_an_interface", RIGHTS, """
if OUTSIDE: check(libc.unshare(NEWNET))
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, struct.pack('16sh14x', b'lo', 0)); escaped()"""),
    Attempt("gives_itself_an_address", RIGHTS, """
if OUTSIDE: check(libc.unshare(NEWNET))
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
body = struct.pack('BBBBI', 2, 24, 0, 0, socket.if_nametoindex('lo')) + struct.pack('HH4s', 8, 2, socket.inet_aton('10.9.8.7'))
s.send(struct.pack('IHHII', 16 + len(body), 20, 5 | 0x400, 1, 0) + body)
escaped(struct.unpack_from('i', s.recv(4096), 16)[0] == 0)"""),
    Attempt("makes_an_interface", RIGHTS, """
if OUTSIDE: check(libc.unshare(NEWNET))
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
kind = struct.pack('HH5s3x', 9, 1, b'dummy'); linked = struct.pack('HH', 4 + len(kind), 18) + kind
body = bytes(16) + linked
s.send(struct.pack('IHHII', 16 + len(body), 16, 5 | 0x400 | 0x200, 1, 0) + body)
escaped(struct.unpack_from('i', s.recv(4096), 16)[0] in (0, -95))"""),
    Attempt("lists_interfaces_of_other_namespaces", RIGHTS, """
if OUTSIDE: escaped(len(os.listdir('/sys/class/net')) > 1)
escaped([name for _, name in socket.if_nameindex() if name != 'lo'])""", lacks="a host without an interface"),
    Attempt("makes_a_tunnel", "no /dev/net/tun", "escaped(os.open('/dev/net/tun', os.O_RDWR) >= 0)", lacks="a host without tun"),
]
