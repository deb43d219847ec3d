"""The OpenSandbox SDK for JavaScript, as npm has it, against a deployment: each case of opensandbox/cases is a test, once with
each version of the SDK. A case that says "since" is of the newer version alone; so is one that says "once": there the versions are the same, or
the SDK has no part in it."""
import glob
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
import published  # noqa: E402
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.opensandbox import CASES, NODE, PACKAGES, REPLIES, VERSIONS  # noqa: E402

KEYED = re.compile(r"^ +\"([^\"]+)\": \{", re.M)
CASE_SECONDS = 120


def titles(path):
    """The titles of a file of cases, as `test(...)` names them; one in a loop stands for each key of the table before it."""
    with open(path, encoding="utf-8") as source:
        text = source.read()
    for found in re.finditer(r"^ *test\((?:\"([^\"]+)\"|`([^`]+)`)", text, re.M):
        if found[1]:
            yield found[1]
        else:
            yield from (found[2].replace("${what}", key) for key in KEYED.findall(text))


def is_of(version, title):
    if title.startswith("once: "):
        return version == VERSIONS[0]
    since = re.match(r"since (\S+): ", title)
    return since is None or [int(n) for n in version.split(".")] >= [int(n) for n in since[1].split(".")]


class Runner:
    """One node with one SDK; cases are handed to it one after another."""

    def __init__(self, version, environment):
        if not os.path.exists(NODE) or not os.path.isdir(PACKAGES):
            raise AssertionError("the packages of tests/compat are missing: run scripts/install test")
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([NODE, os.path.join(CASES, "driver.mjs"), PACKAGES, f"opensandbox-{version}"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env=dict(environment, NO_PROXY="*"))
        self.answers = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put(None)

    def run(self, **what):
        """What went wrong with the case `name`, or with that of the `plant`; None for nothing."""
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
            answer = self.answers.get(timeout=CASE_SECONDS)
        except (OSError, ValueError, queue.Empty) as lost:
            answer = None
            self.process.kill()
            self.process.wait()
            return f"the case did not come to its end: {lost!r}\n{self.said()}"
        return answer["failed"] if answer else "node ended\n" + self.said()

    def said(self):
        self.errors.seek(0)
        return self.errors.read()[-4000:].decode("utf-8", "replace")

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Sdk:
    """The cases with one version; a node that was lost in a case is started anew for the next."""
    options = {}

    @classmethod
    def setUpClass(cls):
        cls.runner = None
        cls.deployment = Deployment(**cls.options)
        cls.addClassCleanup(cls.deployment.close)
        other = cls.deployment.request("POST", "/keys", {"principal": "someone-else", "role": "user"})
        user = cls.deployment.request("POST", "/keys", {"principal": "compat", "role": "user"})
        cls.environment = dict(os.environ, PARLEY_DOMAIN=f"127.0.0.1:{cls.deployment.port}", PARLEY_KEY=user.json["api_key"],
                               PARLEY_OTHER_KEY=other.json["api_key"], PARLEY_COMPAT_REPLIES=REPLIES,
                               PARLEY_PROTOCOL=cls.deployment.url.split(":")[0])
        if cls.deployment.tls:
            cls.environment["NODE_EXTRA_CA_CERTS"] = cls.deployment.state + "/tls/ca.pem"
        os.makedirs(os.path.dirname(REPLIES), exist_ok=True)

    @classmethod
    def tearDownClass(cls):
        if cls.runner:
            cls.runner.close()

    def ask(self, **what):
        kind = type(self)
        if kind.runner is None:
            kind.runner = Runner(self.version, self.environment)
        failed = kind.runner.run(**what)
        if kind.runner.process.poll() is not None:
            kind.runner.close()
            kind.runner = None
        return failed

    def case(self, title):
        failed = self.ask(name=title)
        if failed:
            self.fail(failed)


def of_version(version):
    def method(title):
        return lambda self: self.case(title)

    cases = [title for path in sorted(glob.glob(os.path.join(CASES, "cases", "*.mjs"))) for title in titles(path)
             if is_of(version, title)]
    members = {"test_" + re.sub(r"\W+", "_", title): method(title) for title in cases}
    assert len(members) == len(cases), "two cases of one name"
    return needs_root(type("Sdk" + version.replace(".", "_"), (Sdk, unittest.TestCase), dict(members, version=version)))


@needs_root
class Planted(Sdk, unittest.TestCase):
    """A reply with a fault in it fails the case that is about it; without, the case is a test above."""
    version = VERSIONS[0]

    def test_cases_fail_on_faults(self):
        with open(os.path.join(CASES, "plants.mjs"), encoding="utf-8") as source:
            text = source.read()
        plants = re.findall(r"^  \"([^\"]+)\": \{\n    of: \"([^\"]+)\"", text, re.M)
        self.assertEqual(len(plants), text.count("    of: "))
        for plant, title in plants:
            with self.subTest(plant=plant):
                failed = self.ask(plant=plant)
                self.assertIsNotNone(failed, f"{title!r} does not see it")
                self.assertNotIn("did not come to its end", failed)


@needs_root
class OverTls(Sdk, unittest.TestCase):
    """A few of them over TLS: each kind of address that an endpoint can be, and bodies both ways."""
    version, options = VERSIONS[0], {"tls": True}

    def test_cases_hold_over_tls(self):
        for title in ("a sandbox is created running and is healthy", "a command says what it wrote and that it is complete",
                      "a stream is uploaded in chunks", "everything works through the server's proxy",
                      "a server in the sandbox is reached by its endpoint", "the policy of what leaves is shown and patched"):
            with self.subTest(case=title):
                self.case(title)


@needs_root
class Types(unittest.TestCase):
    """What the SDK got above, against the types of its package (classes run in the order of their names)."""

    def test_every_reply_is_of_its_published_type(self):
        with open(REPLIES, encoding="utf-8") as kept, tempfile.TemporaryDirectory(dir=os.path.dirname(REPLIES)) as folder:
            program = published.Program(folder)
            for row in map(json.loads, kept):
                program.add(published.Reply(row))
            self.assertGreater(len(program.planted), 10, "too few operations were seen")
            faults = program.compile()
        self.assertEqual(faults[:20], [], f"{len(faults)} faults")

    def test_every_reply_names_its_request(self):
        with open(REPLIES, encoding="utf-8") as kept:
            rows = list(map(json.loads, kept))
        self.assertEqual([f"{row['method']} {row['url']}" for row in rows
                          if "x-request-id" not in row["headers"] and not published.of_app(row["url"])][:20], [])


def setUpModule():
    if os.path.exists(REPLIES) and not os.environ.get("PARLEY_TEST_ALONE"):
        os.unlink(REPLIES)


for VERSION in VERSIONS:
    kind = of_version(VERSION)
    globals()[kind.__name__] = kind
del kind

if __name__ == "__main__":
    unittest.main()
