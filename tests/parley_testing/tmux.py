"""A tmux server of a test's own: real terminals in which the CLI runs as for a user."""
import os
import re
import shutil
import subprocess
import time

from .deployment import BIN


class Tmux:
    """Windows by name. Each runs a plain shell in which `parley` is the one under test."""

    def __init__(self, deployment):
        self.socket = os.path.join(deployment.folder, "tmux")
        self.environment = dict(deployment.environment, PATH=BIN + ":" + os.environ["PATH"], LC_ALL="C.UTF-8")
        self.environment.pop("TMUX", None)
        self.has_server = False

    @staticmethod
    def is_there():
        return shutil.which("tmux") is not None

    def call(self, *words, check=True):
        done = subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *words], env=self.environment, timeout=20,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"tmux {words}: {done.stderr}")
        return done.stdout

    def open(self, name, columns=100, rows=30):
        """A session of its own, so that each has its own size."""
        if not self.has_server:
            self.call("start-server", ";", "set-option", "-g", "exit-empty", "off", ";", "set-option", "-g",
                      "history-limit", "20000")
        self.has_server = True
        self.call("new-session", "-d", "-s", name, "-x", str(columns), "-y", str(rows), "exec env PS1='outside$ ' bash --norc -i")
        self.wait(name, r"outside\$ $")

    def close(self, name=None):
        if name:
            self.call("kill-session", "-t", name, check=False)
        elif self.has_server:
            self.call("kill-server", check=False)

    def resize(self, name, columns, rows):
        self.call("resize-window", "-t", name, "-x", str(columns), "-y", str(rows))

    def keys(self, name, *keys):
        """Keys by tmux's names ("Enter", "C-c"); anything else is typed."""
        self.call("send-keys", "-t", name, *keys)

    def type(self, name, text):
        """Typed letter by letter as it is, without any Enter."""
        self.call("send-keys", "-t", name, "-l", text)

    def line(self, name, text):
        self.type(name, text)
        self.keys(name, "Enter")

    def screen(self, name, history=False):
        text = self.call("capture-pane", "-p", "-J", "-t", name, *(["-S", "-"] if history else []))
        return "\n".join(line.rstrip() for line in text.rstrip("\n").split("\n")).rstrip("\n") 

    def wait(self, name, pattern, seconds=15, history=False):
        """The screen, once the pattern is on it."""
        until = time.monotonic() + seconds
        while True:
            screen = self.screen(name, history) + " "
            if re.search(pattern, screen, re.MULTILINE):
                return screen
            if time.monotonic() > until:
                raise AssertionError(f"no {pattern!r} in {seconds} s on this screen of {name}:\n{screen}")
            time.sleep(0.03)

    def ask(self, name, command, seconds=15):
        """What a shell command prints, in the shell that is there."""
        mark = f"{time.monotonic_ns():x}"
        self.line(name, f"{command}; echo end-''{mark}")
        screen = self.wait(name, rf"^end-{mark}", seconds)
        lines = [line.rstrip() for line in screen.split("\n")]
        at = lines.index(f"end-{mark}")
        first = max(i for i in range(at) if f"''{mark}" in lines[i]) + 1
        return "\n".join(lines[first:at])
