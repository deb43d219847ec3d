# ipython.py - IPython's shell, when the template has it: magics, !commands, rich display. It writes no file.
import re

ANSI = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class Memory(dict):
    """In place of IPython's database: %store and bookmarks last as long as the context."""

    def keys(self, pattern=None):
        import fnmatch
        return [key for key in dict.keys(self) if pattern is None or fnmatch.fnmatch(key, pattern)]


def define_ipython():
    """The class; apart, since its bases are imported where there are any."""
    from IPython.core import interactiveshell
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.profiledir import ProfileDir
    from traitlets import Type

    class NoProfile(ProfileDir):
        """No folder is made."""

        def _location_changed(self, change):
            pass

    class Results(DisplayHook):
        def write_output_prompt(self):
            pass

        def write_format_data(self, format_dict, md_dict=None):
            self.shell.frames.result(self.prompt_count, format_dict, md_dict)

        def finish_displayhook(self):
            self.is_active = False

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **_options):
            display_id = (transient or {}).get("display_id")
            if getattr(self, "_is_publishing", True) is False:
                return
            self.shell.frames.display(data, metadata, display_id, update)

        def clear_output(self, wait=False):
            self.shell.frames.clear(wait)

    class Shell(InteractiveShell):
        displayhook_class = Type(Results)
        display_pub_class = Type(Publisher)
        frames = None
        has_told = False
        system = InteractiveShell.system_raw

        def init_io(self):
            pass

        def enable_gui(self, gui=None):
            pass

        def set_next_input(self, text, replace=False):
            pass

        def ask_exit(self):
            raise SystemExit

        def _showtraceback(self, etype, evalue, stb):
            self.has_told = True
            try:
                value = str(evalue)
            except Exception:
                value = ""
            lines = [ANSI.sub("", str(line)) for line in stb]
            self.frames.error(getattr(etype, "__name__", str(etype)), value, lines)

        def show_usage_error(self, error):
            self.has_told = True
            self.frames.error("UsageError", str(error), ["UsageError: %s" % error])

    def make():
        if hasattr(interactiveshell, "PickleShareDB"):
            interactiveshell.PickleShareDB = lambda *_: Memory()
        from traitlets.config import Config
        config = Config()
        config.HistoryManager.enabled = False
        config.HistoryManager.hist_file = ":memory:"
        config.HistoryAccessor.enabled = False
        config.HistoryAccessor.hist_file = ":memory:"
        config.InteractiveShell.colors = "NoColor"
        config.InteractiveShell.xmode = "Context"
        config.InteractiveShell.banner1 = ""
        config.InteractiveShell.separate_in = ""
        config.PlainTextFormatter.max_seq_length = 1000
        module = types.ModuleType("__main__")
        shell = Shell.instance(config=config, ipython_dir="/", profile_dir=NoProfile(), user_module=module)
        if not isinstance(getattr(shell, "db", None), Memory):
            shell.db = Memory()
        return shell
    return make


class Nobody:
    def __getattr__(self, _name):
        return lambda *_, **__: None


class IPythonShell:
    def __init__(self):
        import IPython
        self.implementation = "ipython " + IPython.__version__
        self.shell = define_ipython()()
        self.frames = None

    def warm_up(self):
        """A run that nobody sees, in the zygote: what the first run of each child would have to load."""
        self.shell.frames = Nobody()
        sys.stdout.flush()
        self.shell.run_cell("1", store_history=False)
        self.shell.run_cell("_warm_up_ = 1; del _warm_up_", store_history=False)
        self.shell.displayhook.flush()
        for name in ("_", "__", "___"):
            self.shell.user_ns[name] = ""
        self.shell.displayhook._ = self.shell.displayhook.__ = self.shell.displayhook.___ = ""
        self.shell.user_ns.get("_oh", {}).clear()

    @property
    def count(self):
        return self.shell.execution_count

    def start(self, frames):
        self.frames = self.shell.frames = frames
        self.shell.set_hook("show_in_pager", self.page, 0)
        sys.modules["__main__"] = self.shell.user_module
        if use_plots(frames, has_ipython=True):
            self.shell.events.register("post_execute", self.show_plots)
        seed = getattr(sys.modules.get("numpy"), "random", None)
        if seed is not None:
            seed.seed()

    def show_plots(self):
        for finder in sys.meta_path:
            if isinstance(finder, PlotsBackend):
                finder.show()

    def page(self, _shell, data, start=0, screen_lines=0, pager_cmd=None):
        data = data if isinstance(data, dict) else {"text/plain": str(data)}
        self.frames.display({mime: ANSI.sub("", text) if mime == "text/plain" else text for mime, text in data.items()})

    @interrupts.opening
    def execute(self, code, silent):
        return self.shell.run_cell(code, store_history=not silent, silent=silent)

    def run(self, code, silent):
        self.shell.has_told = False
        try:
            outcome = self.execute(code, silent)
        except KeyboardInterrupt:
            if not self.shell.has_told:
                self.frames.error("KeyboardInterrupt", "", ["KeyboardInterrupt"])
            return "interrupted"
        error = outcome.error_before_exec or outcome.error_in_exec
        if error is None:
            return "ok"
        if not self.shell.has_told:
            self.frames.error(type(error).__name__, str(error), ["%s: %s" % (type(error).__name__, error)])
        return "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
