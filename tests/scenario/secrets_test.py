"""A run makes every kind of secret there is, uses each rightly and wrongly, and crashes; then all that a deployment leaves
behind or shows is searched for them: logs, error texts, answers about things, process lists, environments, cores, the audit's
export, metrics, files of STATE that are not meant to hold them, and what can be seen inside of a sandbox.

A kind of secret more is a line in KINDS: its name, a function that makes some in the run (None: this build has no such thing
yet), and the files that may hold it."""
import base64
import fnmatch
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.token import b64, compact, kdf, link  # noqa: E402
from parley_testing.issuer import Issuer, Key  # noqa: E402
from parley_testing.websocket import Refused, Session  # noqa: E402

LEDGER = ("state/negotiator/ledger/*",)
OWN_FILES = ("config/parley/config.json", "cache/parley/grants.json*")  # of the user who runs the CLI
SANDBOX_UIDS = 0x70000000  # and more: users of sandboxes (sandboxd/launcher/slots.h)
SHORT = 20  # a secret's part that is shorter is not looked for: it would be found by chance


class Run:
    """A deployment whose answers are kept, and whose processes are looked at all the time."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="parley-secrets-")
        self.answers, self.told, self.seen, self.over = [], [], {}, False
        self.cores = resource.getrlimit(resource.RLIMIT_CORE)
        before = os.getcwd()
        os.chdir(self.folder)  # where cores of the programs would be, as core_pattern is on most machines
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            self.deployment = Deployment(tls=True, PARLEY_LOG_LEVEL="debug", PARLEY_AUTH_FAILURES_PER_MINUTE="0",
                                         PARLEY_IDENTITY_FILE=self.name_an_issuer())
        finally:
            os.chdir(before)
        with open(self.deployment.state + "/negotiator/master.key", "rb") as key:
            self.master = key.read()
        self.grant = self.deployment.negotiate("secrets", ports=[3000], capability_url=True)
        self.watcher = threading.Thread(target=self.look_on)
        self.watcher.start()

    def name_an_issuer(self):
        self.issuer, self.issuer_key = Issuer("corp"), Key(self.folder, "e1", "ES256")
        with open(self.folder + "/jwks.json", "w") as file:
            json.dump({"keys": [self.issuer_key.jwk]}, file)
        with open(self.folder + "/identity.json", "w") as file:
            json.dump({"issuers": [{"name": "corp", "issuer": self.issuer.issuer, "audience": "parley",
                                    "algorithms": ["ES256"], "jwks": self.folder + "/jwks.json"}]}, file)
        return self.folder + "/identity.json"

    def close(self):
        self.over = True
        self.watcher.join()
        resource.setrlimit(resource.RLIMIT_CORE, self.cores)
        self.deployment.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, method, url, body=None, token="", quiet=False, **more):
        """quiet: an answer that is to give a secret."""
        reply = self.deployment.request(method, url, body, token=token, record=False, **more)
        if not quiet:
            self.answers.append((f"answer to {method}", repr(reply.headers).encode() + reply.body))
        return reply

    def cli(self, *words, **more):
        done = self.deployment.cli(*words, **more)
        self.told.append((f"stderr of {words[0]}", done.stderr.encode()))
        return done

    def look_on(self):
        """Command lines and environments of everything that runs of this deployment, however short."""
        while not self.over:
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    program = os.path.basename(os.readlink(f"/proc/{entry}/exe"))
                    with open(f"/proc/{entry}/cmdline", "rb") as words, open(f"/proc/{entry}/environ", "rb") as variables:
                        told = (words.read(), variables.read())
                    inside = os.stat(f"/proc/{entry}").st_uid >= SANDBOX_UIDS
                except OSError:
                    continue
                if inside:
                    program = "a sandbox's " + program
                elif not program.startswith("parley"):
                    continue
                if program == "parley":
                    told = (told[0], b"")  # the user's own environment is the user's
                self.seen[(program, *told)] = True
            time.sleep(0.01)


# ---- what there is ----

def admin_key(run):
    return [run.deployment.key]


def master_key(run):
    return [run.master]


def derived_keys(run):
    node = kdf(run.master, "parley/node/1", run.grant["sandbox"]["node"], "1")
    root = kdf(node, "parley/sandbox/1", run.grant["sandbox"]["id"])
    return [kdf(run.master, f"parley/{label}/1") for label in ("audit", "login", "apikey", "owner", "enrol", "link")] + \
           [root, kdf(root, "parley/token/1", "1"), kdf(node, "parley/link/1", "negotiator"),
            kdf(node, "parley/link/1", "sandboxd")]


def node_key(run):
    return [kdf(run.master, "parley/node/1", run.grant["sandbox"]["node"], "1")]


def capabilities(run):
    made = [run.grant["token"]]
    made.append(run.ask("POST", "/threads/secrets/sandbox", {}, quiet=True).json["token"])
    made.append(run.ask("POST", "/threads/secrets/sandbox/refresh", {"current_token": made[-1]}, quiet=True).json["token"])
    return made + [link(made[0], compact({"scope": "fs:ro"}))]


def shares(run):
    made = [run.ask("POST", "/threads/secrets/sandbox/share",
                    {"scopes": ["shell:ro", "process"], "capability_url": True}, quiet=True).json["token"]]
    url = run.cli("share", "--thread", "secrets").stdout.strip()
    return made + [url.split("/c/")[1].strip("/")]


def join_tokens(run):
    return [run.ask("POST", "/nodes", {"name": "n9"}, quiet=True).json["join_token"]]


def preview_cookies(run):
    grant, port = run.grant, run.deployment.port + 1
    host = f"3000-{grant['sandbox']['id'].replace('_', '-')}.localhost:{port}"
    token = link(grant["token"], compact({"scope": "port@3000"}))
    reply = run.ask("GET", f"{run.deployment.node_url}/?token={token}", token=None, headers={"Host": host}, quiet=True)
    cookie = reply.headers["set-cookie"].split(";")[0].split("=", 1)[1]
    run.ask("GET", f"{run.deployment.node_url}/", token=None, headers={"Host": host, "Cookie": reply.headers["set-cookie"]})
    return [cookie, token]


def user_keys(run):
    made = run.ask("POST", "/keys", {"principal": "bob", "role": "user"}, quiet=True)
    if made.status == 404:
        return None
    path = f"/keys/{(made.json.get('key') or made.json)['id']}"
    rotated = run.ask("POST", f"{path}/rotate", {"grace": 60}, quiet=True)
    run.ask("GET", path)
    return [made.json["api_key"], rotated.json["api_key"]]


def login_tokens(run):
    made = run.ask("POST", "/auth/token", {"api_key": run.deployment.key}, token=None, quiet=True)
    return None if made.status == 404 else [made.json["token"]]


def outside_tokens(run):
    """One that is good, one that is over, one that is refused."""
    made = [run.issuer.token(run.issuer_key), run.issuer.token(run.issuer_key, exp=1), run.issuer.token(run.issuer_key, aud="x")]
    answers = [run.ask("GET", "/sandboxes", token=token).status for token in made]
    assert answers == [200, 401, 401], answers
    return made


def webhook_secrets(run):
    made = run.ask("POST", "/webhooks", {"url": "https://example.com/hook"}, quiet=True)
    return None if made.status == 404 else [made.json.get("secret") or made.json["webhook"]["secret"]]


def tls_keys(run):
    """A line of each private key's PEM: of the server and of the authority."""
    return [read_text(f"{run.deployment.state}/tls/{name}.key").splitlines()[2] for name in ("server", "ca")]


# name, who makes them, files that may hold them (of the deployment's folder)
KINDS = (
    ("the first API key", admin_key, ("state/admin.key",) + OWN_FILES),
    ("the master key", master_key, ("state/negotiator/master.key",)),
    ("a node's key", node_key, ("state/sandboxd/node.json",)),
    ("a derived key", derived_keys, ()),
    ("a capability", capabilities, OWN_FILES),
    ("a share", shares, OWN_FILES),
    ("a join token", join_tokens, LEDGER),
    ("a preview's cookie", preview_cookies, ()),
    ("a user's API key", user_keys, ()),
    ("a login token", login_tokens, ()),
    ("a webhook's secret", webhook_secrets, ()),
    ("a token of an outside issuer", outside_tokens, ()),
    ("a TLS key", tls_keys, ("state/tls/*.key",)),
)


def forms(secret):
    """What is looked for: of a token its MAC, without which the rest is of no use; of a key its random part; of bytes every
    way to write them."""
    if isinstance(secret, bytes):
        assert len(secret) >= SHORT, "too short to be a secret"
        return {secret, secret.hex().encode(), secret.hex().upper().encode(), b64(secret).encode(),
                base64.b64encode(secret).rstrip(b"=")}
    part = secret.rsplit(".", 1)[-1]
    part = part.split("_", 1)[1] if part[:3] in ("pk_", "pj_") or part.startswith("whsec_") else part
    assert len(part) >= SHORT, "too short to be a secret"
    return {part.encode(), urllib.parse.quote(part, safe="").encode()}


# ---- what is done with them ----

def use_wrongly(run, secret):
    """Every place in a request where a secret may come to stand by mistake, and is then refused."""
    node, other = run.grant["endpoints"]["http"], "sbx_" + "a" * 20
    json_body = {"name": 5, "scopes": secret}
    carriers = [{"Authorization": "Bearer " + secret}, {"Authorization": "ApiKey " + secret}, {"X-API-Key": secret},
                {"Authorization": "Basic " + base64.b64encode(secret.encode()).decode()}, {"X-Access-Token": secret},
                {"Cookie": f"parley={secret}; parley_preview={secret}"}, {"Referer": f"http://x/?token={secret}"}]
    for headers in carriers:
        run.ask("GET", f"{run.deployment.url}/audit?all=2", token=None, headers=headers)
        run.ask("POST", f"{run.deployment.url}/threads/x/sandbox", json_body, token=None, headers=headers)
        run.ask("POST", f"{run.deployment.url}/revocations", {"token": secret + "x", "reason": "r"}, token=None,
                headers=headers)
        run.ask("POST", f"{node}/exec", {"cmd": 5}, token=None, headers=headers)
        run.ask("GET", f"{run.deployment.node_url}/s/{other}/info", token=None, headers=headers)
    for path in (f"/c/{secret}/info", f"/c/{secret}x/info", f"/c/{secret}/nothing", f"/c/{secret}/files/none?stat=1",
                 f"/nothing?token={secret}", f"/nothing/{secret}"):
        run.ask("GET", run.deployment.node_url + path, token=None)
        run.ask("GET", run.deployment.url + path, token=None)
    run.ask("POST", "/threads/secrets/sandbox/refresh", {"current_token": secret + "x"})
    run.ask("POST", "/threads/secrets/sandbox/refresh", {"current_token": secret, "scopes": 5})
    for carrier in ("frame",) if secret.startswith("pk_") else ("query", "protocol", "frame", "bearer"):  # else ignored
        try:
            session = Session(run.grant["endpoints"]["ws"], secret + "x", carrier=carrier)
            run.told.append(("close frame", repr(session.wait_closed(10)).encode()))
            session.drop()
        except Refused as refused:
            run.told.append(("refused upgrade", repr(vars(refused)).encode()))


def use_the_cli(run, secret):
    """By what keeps it off the process list."""
    environment = dict(run.deployment.environment, PARLEY_API_KEY=secret, PARLEY_URL=run.deployment.url)
    kept, run.deployment.environment = run.deployment.environment, environment
    try:
        run.cli("ls", "--json")
        run.cli("token", "decode", "-", input=secret)
        run.cli("revoke", "--token", "-", "--reason", "a test", input=secret + "x")
        run.cli("cat", "--url", "-", ":x", input=f"{run.deployment.node_url}/c/{secret}x/")
    finally:
        run.deployment.environment = kept


# ---- where they are looked for ----

def of_files(run):
    """Every file of the deployment's folder but the templates' own and a sandbox's, and every core."""
    root = run.deployment.folder
    skipped = ("state/sandboxd/templates", "state/sandboxd/storage", "state/sandboxd/run")
    for folder, folders, names in os.walk(root):
        below = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if os.path.normpath(os.path.join(below, name)) not in skipped]
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    yield os.path.normpath(os.path.join(below, name)), file.read()


def of_cores(run):
    for folder in {run.folder, os.path.dirname(read_text("/proc/sys/kernel/core_pattern").strip()) or run.folder}:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.path.getmtime(path) >= run.began:
                with open(path, "rb") as file:
                    yield "core " + name, file.read()


def read_text(path):
    with open(path) as file:
        return file.read()


def of_answers(run):
    for path in ("/healthz", "/readyz", "/metrics", "/sandboxes?state=all", "/threads/secrets/sandbox",
                 "/threads/secrets/sandbox/shares", "/revocations?all=1", "/nodes", "/keys", "/audit/head", "/snapshots",
                 "/templates", "/volumes", "/policy", "/incidents", "/webhooks"):
        run.ask("GET", path)
    for path in ("/healthz", "/readyz", "/metrics", "/info", "/processes"):
        run.ask("GET", run.grant["endpoints"]["http"] + path, token=run.grant["token"])
        run.ask("GET", run.deployment.node_url + path, token=None)
    after = 0
    while True:
        page = run.ask("GET", f"/audit?all=1&limit=1000&after={after}").json
        if page["next"] is None or page["next"] == after:
            break
        after = page["next"]
    export = run.deployment.cli("audit", "export", "-")
    run.told.append(("audit export", (export.stdout + export.stderr).encode()))
    yield from run.answers
    yield from run.told


def of_processes(run):
    for program, words, variables in run.seen:
        yield f"cmdline of {program}", words
        yield f"environ of {program}", variables


def of_the_inside(run):
    """What code in a sandbox sees of processes, its own folders and variables."""
    reply = run.deployment.exec(run.grant, cmd="env; cat /proc/*/cmdline /proc/*/environ /proc/*/status 2>/dev/null | tr '\\0' '\\n';"
                                 "find /run /tmp /etc /workspace /dev -xdev -type f -size -200k -exec cat {} + 2>/dev/null",
                                env={"A": "b"})
    shown = reply.json
    yield "inside", base64.b64decode(shown["stdout_b64"]) if "stdout_b64" in shown else shown["stdout"].encode()


@needs_root
class Secrets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_ = Run()
        cls.addClassCleanup(cls.run_.close)
        cls.run_.began = time.time() - 1
        cls.made, cls.missing = {}, []
        for name, make, _ in KINDS:
            secrets = make(cls.run_)
            if secrets is None:
                cls.missing.append(name)
            else:
                cls.made[name] = secrets
        for name, secrets in cls.made.items():
            for secret in secrets[-1:]:
                if isinstance(secret, str) and name != "a TLS key":  # nothing that one would show a server
                    use_wrongly(cls.run_, secret)
        for name in ("the first API key", "a capability", "a share"):
            use_the_cli(cls.run_, cls.made[name][-1])
        cls.places = {"inside": list(of_the_inside(cls.run_)), "answers": list(of_answers(cls.run_))}
        cls.crash()
        cls.places["processes"] = list(of_processes(cls.run_))
        cls.places["cores"] = list(of_cores(cls.run_))
        cls.places["files"] = list(of_files(cls.run_))

    @classmethod
    def crash(cls):
        """Each plane with all its secrets in memory; the supervisor starts it again."""
        for program in ("parley-negotiator", "parley-sandboxd"):
            for pid in cls.run_.deployment.pids(program):
                try:
                    os.kill(pid, signal.SIGSEGV)
                except ProcessLookupError:
                    pass  # it went with the one before
        cls.run_.deployment.wait_ready()

    def search(self, place, allowed=lambda kind, where: False):
        found = []
        for kind, secrets in self.made.items():
            for secret in secrets:
                for where, data in self.places[place]:
                    if any(form in data for form in forms(secret)) and not allowed(kind, where):
                        found.append(f"{kind} in {where}")
        self.assertEqual(sorted(set(found)), [])

    def test_the_search_finds(self):
        """Each kind where it is meant to be, so that the search would find it elsewhere."""
        files = dict(self.places["files"])
        for kind, where in (("the first API key", "state/admin.key"), ("the master key", "state/negotiator/master.key"),
                            ("a node's key", "state/sandboxd/node.json"), ("a capability", "cache/parley/grants.json")):
            with self.subTest(kind=kind):
                if where.startswith("cache"):
                    self.run_.deployment.cli("run", "--thread", "secrets", "--", "true")
                    token = json.loads(read_text(os.path.join(self.run_.deployment.folder, where)))
                    self.assertIn("token", json.dumps(token))
                else:
                    self.assertTrue(any(form in files[where] for secret in self.made[kind] for form in forms(secret)), where)
        self.assertTrue(any("parley-negotiator" in where for where, _ in self.places["processes"]))
        self.assertTrue(any("a sandbox's" in where for where, _ in self.places["processes"]))
        self.assertIn(b"A=b", self.places["inside"][0][1])
        self.assertGreater(len(self.run_.answers), 100)
        self.assertIn(b"tok_", files["state/log/sandboxd.log"])

    def test_files(self):
        patterns = {name: files for name, _, files in KINDS}
        self.search("files", lambda kind, where: any(fnmatch.fnmatch(where, each) for each in patterns[kind]))

    def test_answers_and_errors(self):
        self.search("answers")

    def test_processes(self):
        self.search("processes")

    def test_inside_of_a_sandbox(self):
        self.search("inside")

    def test_cores(self):
        """A plain program does leave one here, so the two planes left none on purpose, or none with anything in it."""
        if read_text("/proc/sys/kernel/core_pattern").startswith("|"):
            self.skipTest("cores go to a program of this machine")
        with tempfile.TemporaryDirectory() as folder:
            child = subprocess.Popen(["sleep", "60"], cwd=folder)
            child.send_signal(signal.SIGSEGV)
            child.wait()
            self.assertTrue(os.listdir(folder) or "/" in read_text("/proc/sys/kernel/core_pattern"))
        self.search("cores")

    def test_modes_of_what_may_hold_them(self):
        root = self.run_.deployment.folder
        for kind, _, files in KINDS:
            for where, _ in self.places["files"]:
                if any(fnmatch.fnmatch(where, each) for each in files) and not where.endswith(".lock"):
                    with self.subTest(kind=kind, where=where):
                        self.assertEqual(os.stat(os.path.join(root, where)).st_mode & 0o077, 0)


if __name__ == "__main__":
    unittest.main()
