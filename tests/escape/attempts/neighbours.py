"""Another sandbox of the same node: first seen to work within it."""
from .attempt import NEIGHBOUR, Attempt

SLOT = "namespaces of its own, ids of its own, a root of its own"


def reaches(name, wall, code, **more):
    return Attempt(name, wall, code, proof=NEIGHBOUR, **more)


ATTEMPTS = [
    reaches("reads_the_neighbours_file", SLOT, "escaped(neighbour['secret'] in open(neighbour['file']).read())"),
    reaches("reads_the_neighbours_temporary_file", SLOT, "escaped(neighbour['secret'] in open('/tmp/' + neighbour['name']).read())"),
    reaches("reads_the_neighbours_shared_memory", SLOT, "escaped(neighbour['secret'] in open('/dev/shm/' + neighbour['name']).read())"),
    reaches("reads_the_neighbours_volume", "a volume is attached to who was given it", "escaped(neighbour['secret'] in open('/data/secret').read())", levels=("namespaces",)),
    reaches("connects_to_the_neighbours_port", SLOT, "socket.create_connection(('127.0.0.1', neighbour['port']), 2); escaped()"),
    reaches("connects_to_the_neighbours_port_of_6", SLOT, "socket.create_connection(('::1', neighbour['port']), 2); escaped()"),
    reaches("connects_to_the_neighbours_abstract_socket", SLOT, "socket.socket(socket.AF_UNIX).connect('\\0' + neighbour['name']); escaped()"),
    reaches("connects_to_the_neighbours_socket", SLOT, "socket.socket(socket.AF_UNIX).connect('/tmp/s-' + neighbour['name']); escaped()"),
    reaches("sees_the_neighbours_process", SLOT, """
def look(pid): escaped(neighbour['name'].encode() in open('/proc/%s/cmdline' % pid, 'rb').read() and int(pid) not in (os.getpid(), os.getppid()))
any_of(lambda pid=pid: look(pid) for pid in os.listdir('/proc') if pid.isdigit())"""),
    reaches("finds_the_neighbours_system_v_memory", SLOT, "escaped(check(libc.shmget(neighbour['key'], 64, 0)) >= 0)"),
    reaches("opens_the_neighbours_posix_queue", SLOT, """
librt = ctypes.CDLL('librt.so.1', use_errno=True); escaped(check(librt.mq_open(('/' + neighbour['name']).encode(), os.O_RDWR)) >= 0)"""),
    reaches("opens_the_neighbours_terminal", "a devpts of its own", "os.open('/dev/pts/0', os.O_RDWR | os.O_NOCTTY); escaped()"),
    reaches("joins_the_neighbours_multicast", SLOT, """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', neighbour['datagrams'])); s.settimeout(1)
s.send(b'x'); escaped(s.recv(10) == b'x')"""),
]
