# streams.py - sys.stdin, stdout and stderr of a context.
import io


class StdinNotSupported(Exception):
    """Code asked for input, and nobody is there to type it."""


StdinNotSupported.__module__ = "builtins"
NO_STDIN = ("this code runs where nobody can type: put the value into a variable, pass it in the environment, "
            "or start the program as a process, which has a stdin")


class Bytes(io.RawIOBase):
    """sys.stdout.buffer: bytes in the order of the text."""

    def __init__(self, stream, fd):
        self._stream, self._fd = stream, fd
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data):
        data = bytes(data)
        self._stream.write(self._decoder.decode(data))
        return len(data)

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    @property
    def raw(self):
        return self


class Text(io.TextIOBase):
    def __init__(self, channel, kind, fd):
        self._channel, self._kind, self._fd = channel, kind, fd
        self._buffer = Bytes(self, fd)
        self.name, self.mode = "<%s>" % kind, "w"

    encoding = "utf-8"
    errors = "replace"
    line_buffering = True

    @property
    def buffer(self):
        return self._buffer

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        if text:
            self._channel.write(self._kind, str(text))
            interrupts.catch_up()
        return len(text)

    def writable(self):
        return True

    def fileno(self):
        return self._fd

    def flush(self):
        pass  # what is here goes out by itself, in order

    def close(self):
        pass  # other code still writes

    def isatty(self):
        return False

    def reconfigure(self, **_options):
        pass


class NoInput(io.TextIOBase):
    name, mode, encoding, errors = "<stdin>", "r", "utf-8", "strict"

    def read(self, *_):
        raise StdinNotSupported(NO_STDIN)

    readline = readlines = __next__ = read

    def __iter__(self):
        return self

    @property
    def buffer(self):
        return self

    def readable(self):
        return True

    def fileno(self):
        return 0

    def isatty(self):
        return False


def no_input(prompt="", /):
    """Fails: nobody can type here."""
    raise StdinNotSupported(NO_STDIN)


class Streams:
    """Ours, put back at the start of each run: a run may replace them for itself."""

    def __init__(self, channel):
        self.stdin, self.stdout, self.stderr = NoInput(), Text(channel, "stdout", 1), Text(channel, "stderr", 2)

    def install(self):
        import builtins
        sys.stdin = sys.__stdin__ = self.stdin
        sys.stdout = sys.__stdout__ = self.stdout
        sys.stderr = sys.__stderr__ = self.stderr
        builtins.input = no_input
