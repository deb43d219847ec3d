# display.py - values as mime bundles that are JSON and fit in a frame.
import base64
import math

REPR_METHODS = (
    ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"), ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_pdf_", "application/pdf"),
    ("_repr_latex_", "text/latex"), ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"))


JSON_VALUES_MAX = 50000
MIMES_MAX = 64  # of a bundle
NAME_MAX = 1000  # characters of a display's id, and of a mime type
ERROR_MAX = 1 << 18  # characters of a traceback, and of what an error says


class Room:
    """How many values may still come."""

    def __init__(self):
        self.left = JSON_VALUES_MAX

    def take(self, count):
        self.left -= count
        if self.left < 0:
            raise ValueError("more than %d values" % JSON_VALUES_MAX)


def to_json(value, depth=0, room=None):
    """What readers of JSON take: no NaN, no integer beyond 64 bits, no bytes. ValueError when too deep or too many."""
    room = room or Room()
    if value is None or isinstance(value, (bool, str)):
        return value if not isinstance(value, str) else str(value)
    if isinstance(value, int):
        value = int(value)
        return value if -(1 << 63) <= value < 1 << 63 else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth > 200:
        raise ValueError("nested deeper than 200")
    if isinstance(value, dict):
        room.take(len(value))
        return {str(key).replace("\0", "\ufffd"): to_json(item, depth + 1, room) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        room.take(len(value))
        return [to_json(item, depth + 1, room) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode("ascii")
    if hasattr(value, "tolist"):  # numpy's
        return to_json(value.tolist(), depth + 1, room)
    return str(value)


def cut(text, most=TEXT_MAX):
    if len(text) <= most:
        return text
    return "%s\n... (%d of %d characters)" % (text[:most], most, len(text))


def clean_item(mime, value):
    if mime == "application/json" or mime.endswith("+json"):
        return to_json(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, str):
        return cut(str(value)) if mime == "text/plain" else str(value)
    return to_json(value)


def clean_bundle(data):
    """The bundle as it can be sent; what cannot is left out, and text/plain says so."""
    items, left_out, size = {}, [], 0
    for mime, value in data.items():
        if value is None:
            continue
        if len(items) == MIMES_MAX - 1 or len(str(mime)) > NAME_MAX:
            left_out.append("%.100s (a bundle has %d forms, of short names)" % (mime, MIMES_MAX))
            continue
        try:
            item = clean_item(str(mime), value)
            length = len(to_line(item))
        except (ValueError, TypeError, RecursionError, AttributeError) as error:
            left_out.append("%s (%s)" % (mime, error))
            continue
        if size + length > FRAME_MAX - (1 << 20):
            left_out.append("%s (%d bytes, and a frame holds 16 MiB)" % (mime, length))
            continue
        items[str(mime).replace("\0", "")] = item
        size += length
    if left_out:
        left_out[8:] = ["and %d more" % (len(left_out) - 8)] if len(left_out) > 8 else []
        items["text/plain"] = "%s[left out: %s]" % (items.get("text/plain", ""), "; ".join(left_out))
    return items


def clean_metadata(metadata):
    try:
        clean = to_json(dict(metadata or {}))
        return clean if len(to_line(clean)) < 1 << 19 else {}
    except (ValueError, TypeError, RecursionError):
        return {}


class Frames:
    """What a shell says of a run."""

    def __init__(self, channel):
        self.channel = channel
        self.silent = False

    def _send(self, kind, body):
        body["run"] = self.channel.run
        self.channel.frame(kind, body)
        interrupts.catch_up()

    def display(self, data, metadata=None, display_id=None, update=False):
        body = {"data": clean_bundle(data), "metadata": clean_metadata(metadata)}
        if display_id is not None:
            body["display_id"] = str(display_id)[:NAME_MAX]
        if update:
            body["update"] = True
        self._send("display", body)

    def result(self, count, data, metadata=None):
        if not self.silent:
            self._send("result", {"count": count, "data": clean_bundle(data), "metadata": clean_metadata(metadata)})

    def clear(self, wait):
        self._send("clear", {"wait": bool(wait)})

    def error(self, name, value, traceback):
        lines = [cut(line) for entry in traceback for line in entry.split("\n")]
        if len(lines) > 400:
            lines[200:-200] = ["... (%d lines)" % (len(lines) - 400)]
        if sum(map(len, lines)) > ERROR_MAX:
            lines = [line[:ERROR_MAX // len(lines)] for line in lines]
        self._send("error", {"name": name[:NAME_MAX], "value": cut(value, ERROR_MAX), "traceback": lines})


# -- plots: a figure that is shown, or is there when the run ends, is displayed as PNG and closed

PLOTS = "parley_plots"


class PlotsImport:
    """Tells matplotlib its backend when it is first imported, and no other program: not by the environment."""

    def __init__(self, backend):
        self.backend = backend

    def find_spec(self, name, path=None, target=None):
        if name != "matplotlib":
            return None
        import importlib.machinery
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None or "MPLBACKEND" in os.environ:
            return spec
        execute, backend = spec.loader.exec_module, self.backend

        def exec_module(module):
            os.environ["MPLBACKEND"] = backend
            try:
                execute(module)
            finally:
                os.environ.pop("MPLBACKEND", None)
        spec.loader.exec_module = exec_module
        return spec


class PlotsBackend:
    """The module PLOTS: Agg, whose show() displays."""

    def __init__(self, frames):
        self.frames = frames

    def find_spec(self, name, path=None, target=None):
        if name != PLOTS:
            return None
        import importlib.machinery
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from matplotlib.backends import backend_agg
        module.__dict__.update({key: value for key, value in vars(backend_agg).items() if not key.startswith("__")})
        module.show = lambda *_, **__: self.show()

    def show(self):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or PLOTS not in sys.modules:
            return
        import io
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            image = io.BytesIO()
            figure.savefig(image, format="png", bbox_inches="tight")
            pyplot.close(figure)
            self.frames.display({"text/plain": repr(figure), "image/png": image.getvalue()})


def has_module(name):
    import importlib.util
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def use_plots(frames, has_ipython):
    """The backend's end-of-run hook; None when IPython's own does it."""
    if has_ipython and has_module("matplotlib_inline"):
        sys.meta_path.insert(0, PlotsImport("module://matplotlib_inline.backend_inline"))
        return None
    backend = PlotsBackend(frames)
    sys.meta_path[:0] = [PlotsImport("module://" + PLOTS), backend]
    return backend.show
