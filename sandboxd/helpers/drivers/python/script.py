# script.py - a file run as `python3 path argument...` would, in a process that was forked from one already started.
# Where the two could differ, it is replaced by a new interpreter: exec(2) costs milliseconds, a difference trust.

INTERPRETER_VARIABLES = ("LANG", "LANGUAGE", "LC_", "PYTHON", "HOME", "VIRTUAL_ENV", "__PYVENV", "LD_", "GLIBC_", "MALLOC_", "OPENSSL_")


def interpreter_view(environment):
    """The variables that an interpreter, and what loads it, looks at when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(INTERPRETER_VARIABLES)}


def interpreter_state():
    """Changes when packages or the interpreter itself were replaced since."""
    state = []
    for path in [sys.executable] + sys.path + [os.path.join(sys.prefix, "pyvenv.cfg")]:
        try:
            status = os.stat(path)
            state.append((path, status.st_ino, status.st_mtime_ns))
        except OSError:
            state.append((path, 0, 0))
    return state


def python_of(environment):
    import shutil
    return shutil.which("python3", path=environment.get("PATH", os.defpath))


def shadows_loaded(folder):
    """Whether a module beside the script would have been found before one that is loaded already."""
    try:
        names = {entry.split(".", 1)[0] for entry in os.listdir(folder)}
    except OSError:
        return True
    return any(name.split(".", 1)[0] in names for name in sys.modules)


def replace_by_interpreter(arguments):
    program = python_of(os.environ) or sys.executable
    os.execv(program, ["python3"] + arguments)


def open_streams():
    """sys.stdin, stdout and stderr as an interpreter makes them at its start."""
    import io
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    old = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            raw = io.open(fd, "rb" if fd == 0 else "wb", buffering=0, closefd=False)
        except OSError:
            setattr(sys, name, None)
            setattr(sys, "__%s__" % name, None)
            continue
        raw.name = "<%s>" % name
        is_terminal = raw.isatty()
        if fd == 0:
            binary = io.BufferedReader(raw)
        else:
            binary = raw if unbuffered else io.BufferedWriter(raw)
        was = old[name]
        stream = io.TextIOWrapper(
            binary, encoding=getattr(was, "encoding", None) or "utf-8",
            errors="backslashreplace" if fd == 2 else getattr(was, "errors", None) or "strict", newline="\n" if fd else None,
            line_buffering=is_terminal or (fd == 2 and sys.version_info >= (3, 9)), write_through=bool(fd) and unbuffered)
        stream.mode = "w" if fd else "r"
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)


def make_main(path):
    """An empty __main__, as at a start."""
    import builtins
    import importlib.machinery
    main = type(sys)("__main__")
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=builtins, __annotations__={},
                         __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    if sys.version_info >= (3, 14):
        del main.__dict__["__annotations__"]
    sys.modules["__main__"] = main
    return main


def leave_to_interpreter(error):
    """The interpreter prints what is raised out of here and chooses the exit status; without our frames."""
    import traceback
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename == OURS:
        shown = shown.tb_next
    error.__traceback__ = shown
    hook = sys.excepthook

    def without_us(kind, value, _trace):
        value.__traceback__ = shown
        sys.excepthook = hook
        hook(kind, value, shown)
    sys.excepthook = without_us
    return error


def is_native(module):
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return isinstance(origin, str) and origin.endswith((".so", ".pyd"))


def flush_files():
    import gc
    import io
    for thing in gc.get_objects():
        if issubclass(type(thing), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)) and not thing.closed:
            thing.flush()


def finish(known):
    """Ends as an interpreter does after a script that ended well, but for what only gives memory back, which takes longer than
    most scripts do. Returns where the interpreter has to do it: what is not `known` of the modules is the script's."""
    import atexit
    import gc
    import threading
    new = [name for name in sys.modules if name not in known]
    if any(is_native(sys.modules[name]) for name in new):
        return  # which may have an end of their own
    threading._shutdown()
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass  # told already
    try:
        flush_files()  # first: of a file in a cycle the collector may close the descriptor before the buffer
        for name in new + ["__main__"]:
            sys.modules.pop(name, None)
        gc.collect()  # with the script's names: finalizers run
        flush_files()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        return  # the interpreter says so, with its exit status
    os._exit(0)


def run_script(arguments):
    path = arguments[0] if sys.version_info < (3, 9) else os.path.abspath(arguments[0])
    folder = os.path.dirname(os.path.realpath(path))
    try:
        with open(path, "rb") as file:
            code = file.read()
    except OSError:
        replace_by_interpreter(arguments)  # and its own words: a folder, nothing there
    if path.endswith(".pyc") or code[2:4] == b"\r\n" or code[:2] == b"PK" or shadows_loaded(folder):
        replace_by_interpreter(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    open_streams()
    sys.argv = list(arguments)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = ["python3"] + arguments
    sys.path[:] = [folder] + [entry for entry in _path if entry != ""]
    known = set(sys.modules)
    try:
        exec(compile(code, path, "exec", 0, True), make_main(path).__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        failure = leave_to_interpreter(error)
    else:
        finish(known)
        return
    raise failure
