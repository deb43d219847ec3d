# plain.py - a shell for templates without IPython: statements, the last expression's value, display(), await.
import ast
import builtins
import linecache
import traceback
import types


class Display:
    """What display(..., display_id=True) gives back."""

    def __init__(self, shell, display_id):
        self._shell, self.display_id = shell, display_id

    def display(self, value):
        self._shell.display(value, display_id=self.display_id)

    def update(self, value):
        self._shell.display(value, display_id=self.display_id, update=True)


class PlainShell:
    implementation = "cpython " + ".".join(map(str, sys.version_info[:3]))

    def __init__(self):
        self.count = 1
        self.frames = None
        self.loop = None
        self.module = types.ModuleType("__main__")
        self.module.__builtins__ = builtins
        self.names = self.module.__dict__

    def warm_up(self):
        pass

    def start(self, frames):
        self.frames = frames
        sys.modules["__main__"] = self.module
        sys.displayhook = self.on_value
        builtins.display = self.display
        builtins.clear_output = lambda wait=False: frames.clear(wait)
        self.show_plots = use_plots(frames, has_ipython=False)

    # -- values

    @interrupts.opening
    def ask(self, function, *arguments):
        """A method of the user's; one that fails is as one that is not there."""
        try:
            return function(*arguments)
        except Exception as error:
            self.complain(error, function)
            return None

    def complain(self, error, function):
        sys.stderr.write("%s in %s: %s\n" % (type(error).__name__, getattr(function, "__name__", "repr"), error))

    def bundle(self, value):
        data, metadata = {}, {}
        if not isinstance(value, type):
            made = getattr(value, "_repr_mimebundle_", None)
            made = self.ask(made) if callable(made) else None
            if isinstance(made, tuple) and len(made) == 2:
                made, metadata = made
            data.update(made if isinstance(made, dict) else {})
            for name, mime in REPR_METHODS:
                method = getattr(value, name, None) if mime not in data else None
                item = self.ask(method) if callable(method) else None
                if isinstance(item, tuple) and len(item) == 2:
                    item, metadata[mime] = item
                if item is not None:
                    data[mime] = item
        if "text/plain" not in data:
            text = self.ask(self.represent, value)
            data["text/plain"] = text if text is not None else object.__repr__(value)
        return data, metadata

    @interrupts.opening
    def represent(self, value):
        if type(value) in (dict, list, tuple, set, frozenset):
            import pprint
            return pprint.pformat(value, width=100, compact=True)
        return repr(value)

    def display(self, *values, raw=False, metadata=None, display_id=None, update=False, **_options):
        """Shows values in every form they know. display_id=True or a name: the value can be replaced later."""
        if display_id is True:
            display_id = os.urandom(16).hex()
        for value in values:
            data, own = (dict(value), {}) if raw and isinstance(value, dict) else self.bundle(value)
            own.update(metadata or {})
            self.frames.display(data, own, display_id, update)
        return Display(self, display_id) if display_id is not None and not update else None

    def on_value(self, value):
        if value is None:
            return
        builtins._ = None
        data, metadata = self.bundle(value)
        self.frames.result(self.count, data, metadata)
        self.names["_"] = value

    # -- running

    def compile(self, code, name):
        tree = ast.parse(code, name)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Interactive([tree.body.pop()])
        parts = [compile(tree, name, "exec", flags, True)] if tree.body else []
        if last is not None:
            parts.append(compile(last, name, "single", flags, True))
        return parts

    @interrupts.opening
    def execute(self, parts):
        for part in parts:
            if part.co_flags & 0x80:  # CO_COROUTINE
                self.wait_for(eval(part, self.names))
            else:
                exec(part, self.names)
        if self.show_plots:
            self.show_plots()

    @interrupts.opening
    def wait_for(self, coroutine):
        import asyncio
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(coroutine)

    def run(self, code, silent):
        """ok, error or interrupted."""
        name = "<cell %d>" % self.count
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        try:
            try:
                self.execute(self.compile(code, name))
            except BaseException as error:
                return self.report(error)
            finally:
                if not silent:
                    self.count += 1
            return "ok"
        except KeyboardInterrupt:  # a second one, while the first is told
            return "interrupted"

    def report(self, error):
        lines = traceback.TracebackException(type(error), error, without_ours(error.__traceback__))
        hide_ours(lines)
        text = self.ask(str, error)
        self.frames.error(type(error).__name__, text if text is not None else "", "".join(lines.format()).rstrip().split("\n"))
        return "interrupted" if isinstance(error, KeyboardInterrupt) else "error"


def without_ours(trace):
    while trace is not None and trace.tb_frame.f_code.co_filename == OURS:
        trace = trace.tb_next
    return trace


def hide_ours(report, seen=None):
    """In causes and contexts, and at the end, where ours were called."""
    seen = seen if seen is not None else set()
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    report.stack[:] = [entry for entry in report.stack if entry.filename != OURS]
    hide_ours(report.__cause__, seen)
    hide_ours(report.__context__, seen)
    for part in getattr(report, "exceptions", None) or ():
        hide_ours(part, seen)
