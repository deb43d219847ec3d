#!/usr/bin/python3
"""Runs all tests that are built and counts them: unit programs (exit 0, 1, 77), Python scenarios, short fuzzing.

usage: runner.py [AREA ...]   areas: layering unit tsan fuzz scenario faults hostile isolation compat escape contract
       runner.py FILE_test.py ...
       runner.py FILE_test.py MODULE_test.CLASS.test_one

What fails beside others is run once more, alone, when all is over: on two cores a test that waits for a condition can be
kept from it for longer than it waits. If it holds then it counts as passed, and is named as unsteady with what it said
the first time: it is there to be looked at. Attacks (hostile, isolation, escape) and fuzzers get no second try: one that
works once has worked.
"""
import concurrent.futures
import glob
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
FUZZ_SECONDS = int(os.environ.get("PARLEY_FUZZ_SECONDS", "2"))
PROGRAM_TIMEOUT_S = 240
TRIES_MAX = 10  # when more fails than that, it is not the machine
PROGRAMS_AT_ONCE = 8  # most of them wait for most of their time
REPLIES = os.path.join(ROOT, "build", "replies.jsonl")


class Counts:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, 0, 0
        self.failures = []  # what was told of each, said again at the end: a long run's log is often cut
        self.again = []  # (what was told, a function that runs it alone and says whether it holds)
        self.lock = threading.Lock()

    def add(self, passed, failed, skipped):
        self.passed, self.failed, self.skipped = self.passed + passed, self.failed + failed, self.skipped + skipped

    def tell(self, outcome, name, seconds, detail="", output="", alone=None):
        with self.lock:
            setattr(self, outcome, getattr(self, outcome) + 1)
            line = f"{outcome:8} {name} ({seconds:.1f} s){': ' + detail if detail else ''}{output}"
            print(line, flush=True)
            if outcome == "failed":
                self.failed_with(line, alone)

    def failed_with(self, line, alone):
        self.failures.append(line)
        if alone:
            self.again.append((line, alone))

    def try_again(self):
        """A fault fails again: only what the others beside it brought about is forgiven, and is named."""
        if len(self.again) > TRIES_MAX:
            return
        for line, alone in self.again:
            if alone():
                self.failures.remove(line)
                self.failed, self.passed = self.failed - 1, self.passed + 1
                print("unsteady: failed beside others, holds alone. The first time it said:", line, sep="\n", flush=True)


def execute(command, environment):
    """Its exit status, -1 for one that did not end, and what it printed."""
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=PROGRAM_TIMEOUT_S)
        return done.returncode, done.stdout.decode("utf-8", "replace")
    except subprocess.TimeoutExpired as late:
        return -1, (late.stdout or b"").decode("utf-8", "replace") + "\ntimed out"


def run_program(counts, name, command, environment, may_repeat=True):
    started = time.monotonic()
    status, output = execute(command, environment)
    seconds = time.monotonic() - started
    if status == 0:
        counts.tell("passed", name, seconds)
    elif status == 77:
        counts.tell("skipped", name, seconds, output.strip().splitlines()[-1] if output.strip() else "")
    else:
        counts.tell("failed", name, seconds, f"exit {status}",
                    "".join("\n    " + line for line in output.splitlines()[-60:]),
                    (lambda: execute(command, environment)[0] == 0) if may_repeat else None)


# Their clients and servers are the same; only what stands between is not.
OVER_TLS = {"shared-http-server", "shared-http-stream", "shared-http-stop", "shared-http-websocket"}


def queue_units(pool, counts, preset):
    environment = dict(os.environ, PARLEY_BIN=os.path.join(ROOT, "build", preset, "bin"), PARLEY_SOURCE=ROOT)
    for program in sorted(glob.glob(os.path.join(ROOT, "build", preset, "unit", "unit-*"))):
        name = os.path.basename(program)[len("unit-"):]
        pool.submit(run_program, counts, f"{preset}/{name}", [program], environment)
        if name in OVER_TLS and preset == "debug":
            pool.submit(run_program, counts, f"{preset}/{name} over TLS", [program], dict(environment, PARLEY_TEST_TLS="1"))


def run_fuzzer(counts, program):
    """Replays the corpus, regressions among it, then fuzzes for a moment; tests/fuzz/run does it for long."""
    name = os.path.basename(program)[len("fuzz-"):]
    corpus = os.path.join(ROOT, "tests", "fuzz", "corpus", name.removesuffix("_fuzz"))
    scratch = os.path.join(ROOT, "build", "fuzz", "scratch-" + name)
    os.makedirs(scratch, exist_ok=True)
    folders = [scratch] + ([corpus] if os.path.isdir(corpus) else [])
    dictionary = os.path.join(ROOT, "tests", "fuzz", "dictionaries", name.removesuffix("_fuzz") + ".dict")
    options = [f"-dict={dictionary}"] if os.path.exists(dictionary) else []
    run_program(counts, f"fuzz/{name}", [program, f"-max_total_time={FUZZ_SECONDS}", "-rss_limit_mb=2048",
                                         "-timeout=10", f"-artifact_prefix={scratch}-", "-error_exitcode=1",
                                         *options, *folders], dict(os.environ), may_repeat=False)


def run_programs(counts, areas):
    """Of several areas as one queue: the same program of two presets is never run at once, being far apart in it."""
    with concurrent.futures.ThreadPoolExecutor(PROGRAMS_AT_ONCE) as pool:
        if "unit" in areas:
            queue_units(pool, counts, "debug")
            pool.submit(run_program, counts, "vectors recomputed in Python", [
                "/usr/bin/python3", os.path.join(ROOT, "tests/unit/shared/capability/vectors_check.py")], dict(os.environ))
        if "fuzz" in areas:
            for program in sorted(glob.glob(os.path.join(ROOT, "build", "fuzz", "fuzz", "fuzz-*"))):
                pool.submit(run_fuzzer, counts, program)
        if "tsan" in areas:
            queue_units(pool, counts, "tsan")


class Result(unittest.TestResult):
    """Prints a line a test as it ends."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def tell(self, outcome, test, detail=""):
        self.counts.tell(outcome, test.id(), time.monotonic() - getattr(self, "started", time.monotonic()), detail)

    def addSuccess(self, test):
        self.tell("passed", test)

    def addSkip(self, test, reason):
        self.tell("skipped", test, reason)

    def addFailure(self, test, err):
        self.counts.tell("failed", test.id(), time.monotonic() - getattr(self, "started", time.monotonic()),
                         output="\n    " + self._exc_info_to_string(err, test).rstrip().replace("\n", "\n    "))

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addFailure(subtest, err)


# Areas whose modules run together, some at once: most of their time is waiting. Others run a module at a time: escapes
# look at what the whole host has left.
TOGETHER = ["scenario", "faults", "hostile", "isolation", "compat"]
REPEATED = ["scenario", "faults", "compat"]
MODULES_AT_ONCE = 6
LONGEST = {f"{name}_test.py" for name in ("cli_admin", "cli_terminal", "invariants", "run_stdin", "revocation_kills", "lives", "sdk")}
MODULE_TIMEOUT_S = 600


def run_module(counts, path, only=None):
    """All its tests, or one by its id."""
    loader = unittest.TestLoader()
    if only:
        sys.path.insert(0, os.path.dirname(path))
        suite = loader.loadTestsFromName(only)
    else:
        suite = loader.discover(os.path.dirname(path), pattern=os.path.basename(path), top_level_dir=os.path.dirname(path))
    suite.run(Result(counts))


def run_module_apart(path):
    """One module in a process of its own; its lines."""
    command = [sys.executable, os.path.realpath(__file__), path]
    try:
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=MODULE_TIMEOUT_S)
        return done.stdout.decode("utf-8", "replace")
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode("utf-8", "replace") + f"\n{path} did not end in {MODULE_TIMEOUT_S} s"


def test_alone(path, line):
    """What runs the test of that line again, in a process of its own; None for an area where once is enough."""
    found = re.match(r"failed +((?:\w+\.)+test_\w+)", line)
    if os.path.basename(os.path.dirname(path)) not in REPEATED or not found:
        return None
    command = [sys.executable, os.path.realpath(__file__), path, found[1]]
    return lambda: re.search(r"^1 passed, 0 failed", execute(command, dict(os.environ))[1], re.M) is not None


def run_python(counts, areas):
    paths = [path for area in areas for path in glob.glob(os.path.join(ROOT, "tests", area, "*_test.py"))]
    # Those that take long begin first: the others by their size.
    paths.sort(key=lambda path: (os.path.basename(path) not in LONGEST, -os.path.getsize(path)))
    with concurrent.futures.ThreadPoolExecutor(MODULES_AT_ONCE if areas[0] in TOGETHER else 1) as pool:
        for path, output in zip(paths, pool.map(run_module_apart, paths)):
            lines = output.rstrip("\n").split("\n")
            sums = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", lines[-1])
            print("\n".join(lines[:-1] if sums else lines), flush=True)
            if sums:
                for line in re.findall(r"^failed .*(?:\n    .*)*", output, re.M):
                    counts.failed_with(line, test_alone(path, line))
                counts.add(*map(int, sums.groups()))
            else:
                counts.tell("failed", os.path.relpath(path, ROOT), 0, "it did not come to its end")


PROGRAMS = ["unit", "tsan", "fuzz"]
ALL = ["layering", *PROGRAMS, *TOGETHER, "escape", "contract"]


def phases(areas):
    """What runs at once, phase by phase: areas of programs, areas of modules that may, or one area alone."""
    told = []
    for area in areas:
        kind = PROGRAMS if area in PROGRAMS else TOGETHER if area in TOGETHER else None
        if told and kind and told[-1][0] in kind:
            told[-1].append(area)
        else:
            told.append([area])
    return told


def main():
    # Who starts us in the background may have had it ignored, which every program below would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if len(sys.argv) == 3 and sys.argv[1].endswith("_test.py") and sys.argv[2].startswith(
            os.path.basename(sys.argv[1]).removesuffix(".py") + "."):
        counts = Counts()
        os.environ["PARLEY_TEST_ALONE"] = "1"  # what others of its module left for it is kept
        run_module(counts, os.path.realpath(sys.argv[1]), sys.argv[2])
        print(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")
        sys.exit(1 if counts.failed else 0)
    areas = sys.argv[1:] or [area for area in ALL if area in PROGRAMS or os.path.isdir(os.path.join(ROOT, "tests", area))]
    counts = Counts()
    if "scenario" in areas and os.path.exists(REPLIES):
        os.unlink(REPLIES)  # tests/contract judges the replies of this run
    for phase in phases(areas):
        area = phase[0]
        if area in PROGRAMS:
            run_programs(counts, phase)
        elif area.endswith("_test.py") and os.path.isfile(area):
            run_module(counts, os.path.realpath(area))
        elif all(os.path.isdir(os.path.join(ROOT, "tests", area)) for area in phase):
            run_python(counts, phase)
        else:
            sys.exit(f"no area {area!r}: {__doc__}")
    counts.try_again()
    if len(areas) > 1 and counts.failures:
        print("what failed:", *counts.failures, sep="\n")
    print(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")
    sys.exit(1 if counts.failed else 0)


if __name__ == "__main__":
    main()
