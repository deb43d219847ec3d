# zygote.py - a process that has loaded what is slow to load, and forks a child at each order that init sends: sandboxd/
# init/zygotes.h has the protocol.

ORDERS_FD = 4
ORDER_FDS = 5  # command, stdin, stdout, stderr, hello
IDLE_SECONDS = 60
SCRIPT_MODULES = (
    "argparse", "base64", "bisect", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal",
    "enum", "fnmatch", "functools", "glob", "hashlib", "heapq", "inspect", "io", "itertools", "json", "locale",
    "logging", "math", "operator", "pathlib", "pprint", "random", "re", "shutil", "socket", "statistics", "string",
    "struct", "subprocess", "tempfile", "textwrap", "threading", "traceback", "types", "typing", "urllib.parse", "uuid",
    "zlib")


class Order:
    """A command (front_init.h: struct front_init_command) and its descriptors."""

    def __init__(self, fds):
        self.command, self.streams, self.hello = fds[0], fds[1:4], fds[4]

    def close(self):
        for fd in [self.command, self.hello] + list(self.streams):
            os.close(fd)

    def read(self):
        """cwd, arguments, variables; bytes."""
        import struct
        data = os.pread(self.command, os.fstat(self.command).st_size, 0)
        counts = struct.unpack_from("=II", data)
        arguments, variables = counts[0] & 0x7FFFFFFF, counts[1]
        texts = data[8:].split(b"\0")
        if len(texts) < 1 + arguments + variables:
            raise ValueError("the command ends early")
        return texts[0], texts[1:1 + arguments], texts[1 + arguments:1 + arguments + variables]


def receive_order(orders):
    """None when there will be no more."""
    import array
    import socket
    fds = array.array("i")
    try:
        data, ancillary, _flags, _from = orders.recvmsg(16, socket.CMSG_SPACE(ORDER_FDS * fds.itemsize),
                                                        socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[:len(content) - len(content) % fds.itemsize])
    if data != b"S" or len(fds) != ORDER_FDS:
        return None
    return Order(list(fds))


def tell(hello, number):
    """The hello: 0, or the errno for which there is no child."""
    import socket
    import struct
    with socket.socket(fileno=os.dup(hello)) as end:
        end.send(struct.pack("=i", number))


def fork_child(order):
    """True in the child, once its parent is gone: init knows its own children by that."""
    gone, alive = os.pipe()
    try:
        between = os.fork()
        if between == 0:
            become_child(order, gone, alive)
            return True
        os.waitpid(between, 0)
    except OSError as error:
        tell(order.hello, error.errno)
    os.close(gone)
    os.close(alive)
    return False


def become_child(order, gone, alive):
    try:
        if os.fork() != 0:
            os._exit(0)
    except OSError as error:
        tell(order.hello, error.errno)
        os._exit(0)
    os.close(alive)
    os.read(gone, 1)  # ends when the zygote has seen the one between us end
    os.close(gone)


def close_others():
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 3:  # the program stays: an interpreter that takes our place reads it again
                os.close(int(name))
        except OSError:
            pass


def take_place(order):
    """The child becomes the command. Its arguments after the first; does not return when nobody wants it any more."""
    os.setsid()
    for fd, given in enumerate(order.streams):
        os.dup2(given, fd, inheritable=True)
    cwd, arguments, variables = order.read()
    os.environ.clear()
    for variable in variables:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    time.tzset()
    number = 0
    try:
        os.chdir(cwd)
    except OSError as error:
        number = error.errno
    tell(order.hello, number)
    if number != 0 or os.read(order.hello, 1) != b"G":
        os._exit(127)
    close_others()
    return [os.fsdecode(argument) for argument in arguments[1:]]


def preload(modules):
    import importlib
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:
            pass


class Zygote:
    def __init__(self, kind):
        import socket
        self.shell = make_shell() if kind == "contexts" else None
        preload(SCRIPT_MODULES)
        if self.shell:
            find_c_library()
            self.shell.warm_up()
        self.orders = socket.socket(fileno=ORDERS_FD)
        self.view = interpreter_view(os.environ)
        self.python = python_of(os.environ)
        sys.path[:] = [entry for entry in _path if entry not in ("", ".")]
        self.state = interpreter_state()

    def fits(self):
        """Whether the child is what a new interpreter under its own environment would be."""
        return (interpreter_view(os.environ) == self.view and python_of(os.environ) == self.python and
                interpreter_state() == self.state)

    def serve(self):
        """Returns in a child, with its arguments. Leaves when unused, or when what it loaded is no longer what there is."""
        import gc
        gc.collect()
        gc.disable()
        gc.freeze()
        self.orders.send(b"R")
        waiter = select.poll()
        waiter.register(self.orders, select.POLLIN)
        while waiter.poll(IDLE_SECONDS * 1000):
            order = receive_order(self.orders)
            if order is None:
                break
            if fork_child(order):
                return self.become(order)
            order.close()
            if interpreter_state() != self.state:
                break
        os._exit(0)

    def become(self, order):
        import gc
        gc.enable()
        self.orders.detach()
        return take_place(order)
