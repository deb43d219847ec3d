"""What there is to steal: on the host, and in a neighbour's sandbox. As facts, which attempts know as variables."""
import array
import ctypes
import fcntl
import os
import pty
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

libc = ctypes.CDLL(None, use_errno=True)
librt = ctypes.CDLL("librt.so.1", use_errno=True)
IPC_RMID, IPC_CREAT = 0, 0o1000

# Stands in the neighbour's sandbox and has one of each.
NEIGHBOUR = r"""
import array, ctypes, os, pty, socket, sys, threading, time
name, secret, key = sys.argv[1], sys.argv[2], int(sys.argv[3])
libc, librt = ctypes.CDLL(None), ctypes.CDLL('librt.so.1')
for path in ('/workspace/' + name, '/tmp/' + name, '/dev/shm/' + name, '/data/secret'):
    if os.path.isdir(os.path.dirname(path)): open(path, 'w').write(secret)
held = [pty.openpty(), socket.create_server(('', 0), family=socket.AF_INET6, dualstack_ipv6=True)]
for address in ('\0' + name, '/tmp/s-' + name):
    held.append(socket.socket(socket.AF_UNIX)); held[-1].bind(address); held[-1].listen()
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); datagrams.bind(('127.0.0.1', 0))
assert libc.shmget(key, 64, 0o1666) >= 0 and librt.mq_open(('/' + name).encode(), os.O_CREAT | os.O_RDWR, 0o666, None) >= 0
libc.shmat(libc.shmget(key, 64, 0), None, 0)
open('/tmp/ready', 'w').write('%d %d' % (held[1].getsockname()[1], datagrams.getsockname()[1]))
os.rename('/tmp/ready', '/tmp/ready-' + name)
while True:
    data, peer = datagrams.recvfrom(100); datagrams.sendto(data, peer)
"""


def addresses_of_the_host():
    said = subprocess.run(["hostname", "-I"], stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    return [address for address in said if not address.startswith("fe80")][:4]


def first_line(path):
    try:
        with open(path) as file:
            return file.readline().strip() or "none"
    except OSError:
        return "none"


class Planted:
    """On the host, until close()."""

    def __init__(self):
        self.name, self.secret = secrets.token_hex(4), secrets.token_hex(8)
        self.variable = f"PARLEY_PLANTED_{self.name.upper()}"
        self.marker = f"parley-victim-{self.name}"
        self.paths = [f"{folder}/parley-secret-{self.name}" for folder in ("/var/tmp", "/dev/shm")]
        for path in self.paths:
            with open(path, "w") as planted:
                planted.write(self.secret)
            os.chmod(path, 0o644)
        self.environment = dict(os.environ, **{self.variable: self.secret})
        self.victim = subprocess.Popen(["/bin/bash", "-c", "while :; do sleep 600; done", self.marker], env=self.environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.listen()
        self.share()
        self.scratch = tempfile.mkdtemp(prefix="parley-escape-")
        self.terminal, self.slave = pty.openpty()

    def listen(self):
        self.sockets = [socket.create_server(("127.0.0.1", 0)), socket.create_server(("0.0.0.0", 0))]
        for kind, name in ((socket.SOCK_STREAM, self.marker), (socket.SOCK_DGRAM, self.marker + "-datagram")):
            held = socket.socket(socket.AF_UNIX, kind)
            held.bind("\0" + name)
            if kind == socket.SOCK_STREAM:
                held.listen(64)
            self.sockets.append(held)
        self.echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.echo.bind(("127.0.0.1", 0))
        threading.Thread(target=self.run_echo, daemon=True).start()

    def run_echo(self):
        while True:
            try:
                data, peer = self.echo.recvfrom(100)
                self.echo.sendto(data, peer)
            except OSError:
                return

    def share(self):
        """System V and POSIX, named by number and name."""
        self.key = 0x50000000 | int(self.name[:6], 16)
        self.memory = libc.shmget(self.key, 64, IPC_CREAT | 0o666)
        libc.shmat.restype = ctypes.c_void_p
        ctypes.memmove(libc.shmat(self.memory, None, 0), self.secret.encode(), len(self.secret))
        self.messages = libc.msgget(self.key, IPC_CREAT | 0o666)
        self.semaphore = libc.semget(self.key, 1, IPC_CREAT | 0o666)
        self.queue = librt.mq_open(("/" + self.marker).encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        assert min(self.memory, self.messages, self.semaphore, self.queue) >= 0

    def facts(self):
        number = array.array("i", [0])
        fcntl.ioctl(self.terminal, 0x80045430, number)  # TIOCGPTN
        root = os.stat("/").st_dev
        users = [user.pw_name for user in pwd.getpwall() if 1000 <= user.pw_uid < 60000]
        return {
            "secret": self.secret, "secret_path": self.paths[0], "shm_path": self.paths[1], "probe_name": self.name,
            "marker": self.marker, "victim": self.victim.pid, "abstract": self.marker,
            "port": self.sockets[0].getsockname()[1], "port_of_all": self.sockets[1].getsockname()[1],
            "port_of_datagrams": self.echo.getsockname()[1], "host_addresses": addresses_of_the_host(),
            "system_v_memory": self.memory, "system_v_key": self.key, "planted_variable": self.variable,
            "host_terminal": f"/dev/pts/{number[0]}", "host_terminals": os.stat("/dev/pts").st_dev,
            "host_disk": (os.major(root), os.minor(root)), "host_root": f"{os.major(root)}:{os.minor(root)}",
            "host_name": socket.gethostname(), "machine_id": first_line("/etc/machine-id"),
            "host_user": users[0] if users else "\0",
        }

    def clear(self):
        """What attempts that went well outside have left."""
        for path in (f"/usr/lib/{self.name}", f"/dev/parley-{self.name}"):
            if os.path.exists(path):
                os.unlink(path)
        for name in os.listdir("/tmp"):
            if name.startswith("parley-escape-") and os.path.isdir("/tmp/" + name) and "/tmp/" + name != self.scratch:
                shutil.rmtree("/tmp/" + name, ignore_errors=True)

    def close(self):
        os.killpg(self.victim.pid, signal.SIGKILL)
        self.victim.wait()
        for held in (*self.sockets, self.echo):
            held.close()
        for path in self.paths:
            os.unlink(path)
        libc.shmctl(self.memory, IPC_RMID, None)
        libc.msgctl(self.messages, IPC_RMID, None)
        libc.semctl(self.semaphore, 0, IPC_RMID)
        librt.mq_unlink(("/" + self.marker).encode())
        os.close(self.terminal)
        os.close(self.slave)
        self.clear()
        shutil.rmtree(self.scratch, ignore_errors=True)
