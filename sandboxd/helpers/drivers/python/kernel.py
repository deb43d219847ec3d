# kernel.py - a context: requests come in, a shell runs them, frames go out.


def make_shell():
    try:
        return IPythonShell()
    except Exception as error:  # not there, or one that does not fit this Python
        if not isinstance(error, ImportError):
            sys.stderr.write("IPython %s: %s\n" % (type(error).__name__, error))
        return PlainShell()


class Requests:
    """Lines of the descriptor that the context had as stdin."""

    def __init__(self):
        self.fd = high(0)
        self.data = b""

    def next(self):
        """The next request; None at the end."""
        parts = [self.data]
        while b"\n" not in parts[-1]:
            piece = os.read(self.fd, 65536)
            if not piece:
                return None
            parts.append(piece)
        line, _, self.data = b"".join(parts).partition(b"\n")
        return json.loads(line)


class Kernel:
    def __init__(self, shell):
        self.requests = Requests()
        self.channel = Channel()
        self.frames = Frames(self.channel)
        self.streams = Streams(self.channel)
        self.shell = shell
        self.pid = os.getpid()

    def start(self):
        use_c_library()
        self.streams.install()
        self.shell.start(self.frames)
        import warnings
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        signal.signal(signal.SIGINT, interrupts.on_signal)
        os._exit = self.exit_now
        self.channel.frame("ready", {"language": "python", "version": ".".join(map(str, sys.version_info[:3])),
                                     "implementation": self.shell.implementation})

    def exit_now(self, status, _exit=os._exit):
        """os._exit, once what was written is out."""
        if os.getpid() == self.pid:
            self.channel.settle()
        _exit(status)

    def serve(self):
        while True:
            request = self.requests.next()
            if request is None or "exit" in request:
                return
            if isinstance(request.get("run"), dict):
                self.run(**request["run"])

    def run(self, id="", code="", silent=False, cwd=None, **_unknown):
        self.channel.repair()
        self.streams.install()
        self.channel.run, self.frames.silent = id, silent
        count = self.shell.count
        interrupts.is_pending, interrupts.is_running = False, True
        self.channel.frame("started", {"run": id, "count": count})
        status = self.guard(code, silent, cwd)
        interrupts.is_running = False
        if os.getpid() != self.pid:  # the code forked, and this is the child, which has come to its end
            self.exit_now(0)
        self.channel.settle()
        self.channel.frame("done", {"run": id, "status": status, "count": count})

    def guard(self, code, silent, cwd):
        try:
            if cwd:
                os.chdir(cwd)
            return self.shell.run(code, silent)
        except KeyboardInterrupt:
            return "interrupted"
        except BaseException as error:  # what breaks the shell itself must not end the context
            self.frames.error(type(error).__name__, str(error), traceback.format_exception_only(type(error), error))
            return "error"


def run_kernel(shell):
    """Until the requests end; then as a program that ends: threads joined, atexit called."""
    kernel = Kernel(shell)
    sys.argv, sys.path[:] = [""], [""] + [entry for entry in _path if entry != ""]
    kernel.start()
    kernel.serve()
    interrupts.is_running = False
    kernel.channel.settle()
