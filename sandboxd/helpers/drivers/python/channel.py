# channel.py - the way out: frames in the order in which things were written, whoever wrote them. The parts of this
# folder are joined in CMakeLists.txt's order to one text, which runs as the file OURS.
import sys

OURS = "<parley>"
_path = list(sys.path)  # nothing of ours comes from the work folder
sys.path[:] = [entry for entry in sys.path if entry not in ("", ".")]

import _thread
import codecs
import json
import os
import select
import signal
import time

FRAME_MAX = 16 * 1024 * 1024  # bytes of one line
TEXT_MAX = 1024 * 1024  # characters of one text of a bundle
TEXT_FRAME = 65536  # characters of one stdout or stderr frame
FLUSH_SECONDS = 0.02
BURST_SECONDS = 0.001  # a line that comes later than this after the last goes out at once: a crash shall not swallow it
STREAMS = ("stdout", "stderr")


def high(fd):
    """A copy out of the way of what user code opens and closes; not inherited by programs."""
    import fcntl
    for lowest in (500, 100, 10):
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        except OSError:
            pass
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def to_line(frame):
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":")) + "\n"
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # surrogates are no text
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


class Interrupts:
    """SIGINT raises in the code of the user alone: where the innermost frame of ours is an open one, or none is. In
    ours it is kept until that is done: raised by catch_up, or signalled again (again), as ours may be past that."""

    def __init__(self):
        self.is_running = False
        self.is_pending = False
        self.open = set()
        self.wake = lambda: None  # the thread that calls `again` soon

    def opening(self, function):
        self.open.add(function.__code__)
        return function

    def on_signal(self, _number, frame):
        if not self.is_running:
            return
        while frame is not None:
            if frame.f_code.co_filename == OURS:
                if frame.f_code in self.open:
                    break
                self.is_pending = True
                self.wake()
                return
            frame = frame.f_back
        self.is_pending = False
        raise KeyboardInterrupt

    def again(self):
        if self.is_pending and self.is_running:
            signal.pthread_kill(MAIN_THREAD, signal.SIGINT)

    def catch_up(self):
        """What came meanwhile, in the thread that signals interrupt."""
        if self.is_pending and self.is_running and _thread.get_ident() == MAIN_THREAD:
            self.is_pending = False
            raise KeyboardInterrupt


MAIN_THREAD = _thread.get_ident()
interrupts = Interrupts()


class Channel:
    """Python's own output is buffered here, that of C code and of programs lies in two pipes. Whoever adds to the one
    first takes what is in the other, so all goes out in the order of writing. One lock; a thread reads the pipes while
    others are at work."""

    def __init__(self):
        self.lock = _thread.RLock()
        self.out = high(1)
        self.run = ""
        self.pid = os.getpid()
        self.text = []  # pieces of `kind`, not yet sent
        self.kind = ""
        self.size = 0
        self.flushed = 0.0
        self.is_writing = False
        self.later = []  # lines that came while one was written by this very thread (a destructor that prints)
        self.is_watched = False  # the thread wakes by itself soon
        self.pipes = {}
        self.spare = {}
        self.poll = select.poll()
        for number, kind in ((1, "stdout"), (2, "stderr")):
            self._make_pipe(number, kind)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        wake = os.pipe()
        self.wake_in, self.wake_out = high(wake[0]), high(wake[1])
        os.close(wake[0])
        os.close(wake[1])
        interrupts.wake = lambda: os.write(self.wake_out, b"!")
        os.register_at_fork(before=self._before_fork, after_in_parent=self._in_parent, after_in_child=self._in_child)
        _thread.start_new_thread(self._watch, ())

    def _make_pipe(self, number, kind):
        import fcntl
        ends = os.pipe()
        fd = high(ends[0])
        os.set_blocking(fd, False)
        try:
            fcntl.fcntl(fd, 1031, 1 << 20)  # F_SETPIPE_SZ
        except OSError:
            pass
        self.spare[number] = high(ends[1])
        os.dup2(ends[1], number)
        os.close(ends[0])
        os.close(ends[1])
        self.pipes[fd] = (kind, codecs.getincrementaldecoder("utf-8")("replace"))
        self.poll.register(fd, select.POLLIN)

    def repair(self):
        """User code may have closed descriptors 0 to 2: what it opens next must not become its output."""
        for number, spare in ((0, -1), (1, self.spare[1]), (2, self.spare[2])):
            try:
                os.fstat(number)
            except OSError:
                source = os.open(os.devnull, os.O_RDONLY) if spare < 0 else spare
                if source != number:
                    os.dup2(source, number)
                if spare < 0 and source != number:
                    os.close(source)

    # -- all below: with the lock

    def _write(self, line):
        if self.is_writing:
            self.later.append(line)
            return
        self.is_writing = True
        try:
            self._write_whole(line)
            while self.later:
                self._write_whole(self.later.pop(0))
        finally:
            self.is_writing = False

    def _write_whole(self, line):
        view = memoryview(line)
        while view:
            try:
                view = view[os.write(self.out, view):]
            except BlockingIOError:
                waiter = select.poll()
                waiter.register(self.out, select.POLLOUT)
                waiter.poll()
            except OSError:
                os._exit(1)  # nobody listens, and nobody will

    def _send_text(self, kind, text):
        for at in range(0, len(text), TEXT_FRAME):
            self._write(to_line({kind: {"run": self.run, "text": text[at:at + TEXT_FRAME]}}))

    def _flush_own(self):
        if self.text:
            text, self.text, self.size = "".join(self.text), [], 0
            self.flushed = time.monotonic()
            self._send_text(self.kind, text)

    def _drain(self, is_final=False):
        """What lies in the pipes now; a writer that never stops does not keep us."""
        for _ in range(32):
            ready = [fd for fd, event in self.poll.poll(0) if event & select.POLLIN]
            if not ready:
                break
            self._flush_own()
            for fd in ready:
                kind, decoder = self.pipes[fd]
                try:
                    self._send_text(kind, decoder.decode(os.read(fd, 65536)))
                except BlockingIOError:
                    pass
        if is_final:
            self._flush_own()
            for kind, decoder in self.pipes.values():
                self._send_text(kind, decoder.decode(b"", True))

    # -- any thread

    def write(self, kind, text):
        if os.getpid() != self.pid:
            return write_plainly(1 if kind == "stdout" else 2, text)
        with self.lock:
            self._drain()
            if kind != self.kind:
                self._flush_own()
                self.kind = kind
            self.text.append(text)
            self.size += len(text)
            if self.size >= TEXT_FRAME or ("\n" in text and time.monotonic() - self.flushed > BURST_SECONDS):
                self._flush_own()
            elif not self.is_watched:
                self.is_watched = True
                os.write(self.wake_out, b"!")

    def frame(self, kind, body):
        """After all that was written before it."""
        if os.getpid() != self.pid:
            return write_plainly(1, str(body.get("data", {}).get("text/plain", "")) + "\n")
        line = to_line({kind: body})
        if len(line) > FRAME_MAX:  # nobody would read on
            kind, text = "stderr", "[left out: %s of %d bytes, and a frame holds 16 MiB]\n" % (kind, len(line))
            line = to_line({kind: {"run": self.run, "text": text}})
        with self.lock:
            self._drain()
            self._flush_own()
            self._write(line)

    def settle(self):
        """The run is over: nothing of it stays here."""
        flush_c()
        with self.lock:
            self._drain(is_final=True)

    def _watch(self):
        watched = select.poll()
        for fd in list(self.pipes) + [self.wake_in]:
            watched.register(fd, select.POLLIN)
        while True:
            ready = watched.poll(FLUSH_SECONDS * 1000 if self.is_watched or interrupts.is_pending else None)
            with self.lock:
                if any(fd == self.wake_in for fd, _ in ready):
                    os.read(self.wake_in, 4096)
                    if len(ready) == 1:
                        continue  # in a moment: more may come
                self._drain()
                self._flush_own()
                self.is_watched = False
            interrupts.again()

    # -- user code that forks: the child's output goes through the pipes, as that of any other process

    def _before_fork(self):
        self.lock.acquire()
        if os.getpid() == self.pid:
            self._drain()
            self._flush_own()

    def _in_parent(self):
        self.lock.release()

    def _in_child(self):
        self.lock = _thread.RLock()
        self.text, self.size, self.later = [], 0, []


def write_plainly(fd, text):
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(fd, data):]


_c_library = None


def find_c_library():
    """Once, in the zygote: loading it takes milliseconds."""
    global _c_library
    if _c_library is None:
        try:
            import ctypes
            library = ctypes.CDLL(None)
            library.fflush.argtypes = [ctypes.c_void_p]
            _c_library = (library, ctypes.c_void_p.in_dll(library, "stdout"))
        except (ImportError, OSError, ValueError, AttributeError):
            _c_library = False
    return _c_library


def use_c_library():
    """C code's stdout is a pipe now: by line, as on a terminal, and ours to flush."""
    if find_c_library():
        library, out = _c_library
        library.setvbuf(out, None, 1, 0)  # _IOLBF


def flush_c():
    if _c_library:
        _c_library[0].fflush(_c_library[1])
