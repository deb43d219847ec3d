"""What code in a sandbox does to use up all there is, each as a program that goes on for ever: it says "armed N" once it has
taken what it was given (or, where nothing ends it, once it is at full force). For tests/faults/bombs_test.py and tests/bench."""

PRELUDE = r"""
import ctypes, fcntl, mmap, os, resource, select, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
told = False
def armed(taken=0):
    global told
    if not told: os.write(1, b'armed %d\n' % taken)
    told = True
def child(act):
    # A process of its own that does `act`; its pid. None when there are no more to be had.
    try: pid = os.fork()
    except OSError: return None
    if pid: return pid
    try: act()
    finally: os._exit(0)
def killed_first():
    with open('/proc/self/oom_score_adj', 'w') as mine: mine.write('1000')
def most_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
def rest():
    while True: time.sleep(60)
"""

# Each child goes on forking too, and each of them at once.
FORK = r"""
first, made = os.getpid(), 0
while True:
    try:
        if os.fork() == 0: made = 0
        else: made += 1
    except OSError:
        if os.getpid() == first: armed(made)
"""

THREADS = r"""
def count():
    made = 0
    while True:
        try:
            threading.Thread(target=rest, daemon=True).start()
            made += 1
        except RuntimeError:
            armed(made)
            time.sleep(0.001)
threading.stack_size(65536)
count()
"""

# A child takes memory until it is killed for it, and then the next.
MEMORY = r"""
def take():
    killed_first()
    held = []
    while True: held.append(bytearray(b'x') * (1 << 20))
while True:
    pid = child(take)
    if pid and os.waitpid(pid, 0)[1] == signal.SIGKILL: armed()
"""

SHARED_MEMORY = r"""
try:
    with open('/dev/shm/full', 'wb', buffering=0) as full:
        while True: full.write(bytes(1 << 16))
except OSError: pass
def take():
    killed_first()
    held, block = [], bytes(1 << 20)
    while True:
        held.append(os.memfd_create('m'))
        for _ in range(64): os.write(held[-1], block)
while True:
    pid = child(take)
    if pid and os.waitpid(pid, 0)[1] == signal.SIGKILL: armed()
"""

# More of a file than there is memory, read and written over and over by several.
PAGE_CACHE = r"""
size = 0
with open('/workspace/cache', 'wb', buffering=0) as file:
    try:
        while size < 400 << 20: size += file.write(os.urandom(1 << 20))
    except OSError: pass
def churn():
    file = os.open('/workspace/cache', os.O_RDWR)
    while True:
        for at in range(0, size, 1 << 20):
            data = os.pread(file, 1 << 20, at)
            if at % (8 << 20) == 0: os.pwrite(file, data, at)
for _ in range(4): child(churn)
armed(size)
rest()
"""

# The disk full, a part of it freed, full again.
DISK = r"""
def fill(name):
    size = 0
    try:
        with open(name, 'wb', buffering=0) as file:
            while True: size += file.write(os.urandom(1 << 20))
    except OSError: return size
size = fill('/workspace/full')
while True:
    fill('/workspace/more')
    armed(size)
    if os.path.exists('/workspace/more'): os.unlink('/workspace/more')
    try:
        os.truncate('/workspace/full', os.path.getsize('/workspace/full') // 2)
        with open('/workspace/full', 'ab', buffering=0) as file:
            while True: file.write(os.urandom(1 << 20))
    except OSError: pass
"""

# Writes that are synced, and all file systems synced that there are.
SYNC = r"""
def write(name):
    file = os.open('/workspace/sync%d' % name, os.O_RDWR | os.O_CREAT)
    while True:
        try:
            os.pwrite(file, os.urandom(1 << 16), 0)
            os.fsync(file)
        except OSError: pass
def sync():
    while True: os.sync()
for name in range(4): child(lambda: write(name))
for _ in range(4): child(sync)
armed()
rest()
"""

INODES = r"""
made, folder = 0, 0
while True:
    try:
        if made % 1000 == 0:
            folder += 1
            os.mkdir('/workspace/d%d' % folder)
        os.close(os.open('/workspace/d%d/%d' % (folder, made), os.O_CREAT | os.O_WRONLY))
        made += 1
        if made == 20000: armed(made)
    except OSError:
        armed(made)
        time.sleep(0.001)
"""

# Names that are not there: the kernel remembers each.
NAMES = r"""
def look(who):
    number = 0
    while True:
        number += 1
        try: os.stat('/workspace/%d-%d' % (who, number))
        except OSError: pass
        if number == 20000 and who == 0: armed(number)
for who in range(1, 4): child(lambda: look(who))
look(0)
"""

DESCRIPTORS = r"""
def take():
    most_files()
    taken = 0
    try:
        while True:
            os.open('/dev/null', os.O_RDONLY)
            taken += 1
    except OSError: os.write(out, struct.pack('q', taken))
    rest()
back, out = os.pipe()
for _ in range(8): child(take)
armed(sum(struct.unpack('q', os.read(back, 8))[0] for _ in range(4)))
rest()
"""

# Nobody of them is waited for: by a parent that does not, and by init, that has to.
ZOMBIES = r"""
def orphans():
    while True:
        pid = child(lambda: [child(lambda: None) for _ in range(8)])
        if pid: os.waitpid(pid, 0)
for _ in range(2): child(orphans)
made = 0
while child(lambda: None): made += 1
armed(made)
while True:
    child(lambda: None)
    time.sleep(0.01)
"""

TCP = r"""
most_files()
listener = socket.create_server(('127.0.0.1', 0), backlog=1000)
held, taken, block = [], 0, bytes(1 << 20)
while taken < 1 << 30 and len(held) < 2000:
    try:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        one.settimeout(1)
        one.connect(listener.getsockname())
        held += [one, listener.accept()[0]]
        one.setblocking(False)
        while True: taken += one.send(block)
    except BlockingIOError: pass
    except OSError: break
armed(taken)
while True:
    for one in held[::2]:
        try: one.send(block)
        except OSError: pass
    time.sleep(0.001)
"""

UNIX = r"""
most_files()
held, block = [], bytes(1 << 16)
def fill(kind):
    taken, pair = 0, socket.socketpair(socket.AF_UNIX, kind)
    held.extend(pair)
    for one in pair:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        one.setblocking(False)
        try:
            while True: taken += one.send(block)
        except BlockingIOError: pass
    return taken
def take():
    killed_first()
    taken = 0
    try:
        while len(held) < 16000: taken += fill(socket.SOCK_STREAM) + fill(socket.SOCK_DGRAM)
    except OSError: pass
    armed(taken)
    rest()
for _ in range(4): child(take)
while True:
    os.waitpid(-1, 0)
    armed()
    child(take)
"""

# Descriptors in flight, sockets within sockets in rings: what the kernel's collector has to find.
IN_FLIGHT = r"""
most_files()
def send(through, *fds):
    through.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('%di' % len(fds), *fds))])
def ring():
    sent = 0
    while True:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(64)]
        try:
            for at, (one, other) in enumerate(pairs):
                following = pairs[(at + 1) % len(pairs)]
                send(one, following[0].fileno(), following[1].fileno(), other.fileno())
                sent += 3
        except OSError: pass
        for pair in pairs:
            for each in pair: each.close()
        if sent > 5000: armed(sent)
for _ in range(3): child(ring)
ring()
"""

# All cores, by many, with whatever priority can be had.
CPU = r"""
def spin():
    for attempt in (lambda: os.nice(-20), lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)),
                    lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)),
                    lambda: os.sched_setaffinity(0, range(os.cpu_count()))):
        try: attempt()
        except OSError: pass
    while True: pass
for _ in range(16): child(spin)
armed()
spin()
"""

# Small steps to and fro: what wakes is what a scheduler favours.
SWITCHES = r"""
def play(a, b):
    while True:
        os.write(a, b'x')
        os.read(b, 1)
for _ in range(16):
    (one, two), (three, four) = os.pipe(), os.pipe()
    child(lambda: play(two, three))
    child(lambda: play(four, one))
armed()
rest()
"""

TERMINALS = r"""
held = []
try:
    while len(held) < 500: held.append(os.openpty())
except OSError: pass
armed(len(held))
for master, slave in held:
    os.set_blocking(master, False)
    os.set_blocking(slave, False)
while True:
    for master, slave in held:
        for end in (master, slave):
            try: os.write(end, b'x\n' * 2000)
            except OSError: pass
"""

INOTIFY = r"""
held, watched = [], 0
os.makedirs('/dev/shm/w', exist_ok=True)
try:
    for number in range(2000):
        open('/dev/shm/w/%d' % number, 'w').close()
except OSError: pass
while True:
    one = libc.inotify_init()
    if one < 0: break
    held.append(one)
    libc.inotify_add_watch(one, b'/dev/shm/w', 0xfff)
for name in os.listdir('/dev/shm/w'):
    if libc.inotify_add_watch(held[0], b'/dev/shm/w/' + name.encode(), 0xfff) >= 0: watched += 1
armed(len(held) + watched)
while True:
    for name in os.listdir('/dev/shm/w'):
        try: os.utime('/dev/shm/w/' + name)
        except OSError: pass
"""

PIPES = r"""
most_files()
held, taken = [], 0
try:
    while len(held) < 19000:
        pair = os.pipe()
        held.extend(pair)
        try: fcntl.fcntl(pair[1], fcntl.F_SETPIPE_SZ, 1 << 20)
        except OSError: pass
        os.set_blocking(pair[1], False)
        try:
            while True: taken += os.write(pair[1], bytes(1 << 16))
        except BlockingIOError: pass
except OSError: pass
armed(taken)
rest()
"""

# Mappings made, touched and taken away by threads of one process: each tells every core.
MAPPINGS = r"""
def churn():
    while True:
        with mmap.mmap(-1, 1 << 20) as area:
            for at in range(0, 1 << 20, 1 << 14): area[at] = 1
for _ in range(4): child(lambda: [threading.Thread(target=churn).start() for _ in range(8)] and rest())
armed()
rest()
"""

SIGNALS = r"""
signal.signal(signal.SIGALRM, lambda *_: None)
def ring():
    signal.setitimer(signal.ITIMER_REAL, 0.00001, 0.00001)
    mine = os.getpid()
    while True: os.kill(mine, signal.SIGALRM)
for _ in range(16): child(ring)
armed()
rest()
"""

EXECS = r"""
def storm():
    while True:
        try: os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)
        except OSError: pass
for _ in range(16): child(storm)
armed()
rest()
"""

# Lines to both streams as fast as they are taken. Nobody reads them, or somebody slow.
OUTPUT = r"""
while True:  # said each time: what was written first is not kept for long
    os.write(2, b'armed\n' + b'flood' * 100)
    os.write(1, b'flood' * 13107)
"""

PROGRAMS = {"fork": FORK, "threads": THREADS, "memory": MEMORY, "shared memory": SHARED_MEMORY, "page cache": PAGE_CACHE,
            "disk": DISK, "sync": SYNC, "inodes": INODES, "names": NAMES, "descriptors": DESCRIPTORS, "zombies": ZOMBIES,
            "tcp": TCP, "unix": UNIX, "in flight": IN_FLIGHT, "cpu": CPU, "switches": SWITCHES, "terminals": TERMINALS,
            "inotify": INOTIFY, "pipes": PIPES, "mappings": MAPPINGS, "signals": SIGNALS, "execs": EXECS, "output": OUTPUT}


def argv(name):
    return ["/usr/bin/python3", "-c", PRELUDE + PROGRAMS[name]]
