"""Holds replies against the types that the SDK's package publishes with itself (made of the published API documents), by the
TypeScript compiler: each body stands in a program as `body satisfies type-of-the-operation's-reply`."""
import json
import os
import re
import subprocess
import urllib.parse

from parley_testing.opensandbox import NODE, PACKAGES

APIS = ("lifecycle", "execd", "egress")
VERSION = "0.1.11"
EACH_MAX = 12  # bodies of one operation and status: more say nothing new
PORT_APIS = {"44772": "execd", "18080": "egress"}
# What the package has no types of: not published, or pass-through.
UNTYPED = re.compile(r"(put|post) /policy|\w+ /pools(/.*)?|\w+ /sandboxes/[^/]+/diagnostics/.*|\w+ /(v1/)?healthz?"
                     r"|\w+ /pty(/.*)?|\w+ /proxy/.*")
# Statuses that the published documents leave out, and the real servers give.
UNPUBLISHED = {
    ("execd", 401), ("execd", 403), ("egress", 401), ("lifecycle", 404),
    ("execd", 404),  # of /files/replace, /files/download
    ("execd", 416),
    ("execd", 410), ("execd", 503),  # of a sandbox that has ended, or is paused
    ("egress", 501), ("lifecycle", 501),  # there is no vault, and there are no pools
}


def of_app(url):
    """Whether the answer is that of a program in a sandbox."""
    return re.search(r"/(port|proxy)/(?!44772/|18080/)\d+(/|$)", urllib.parse.urlsplit(url).path) is not None


class Reply:
    def __init__(self, row):
        self.status, self.body = row["status"], row["body"]
        self.kind = row["headers"].get("content-type", "").split(";")[0].strip()
        self.method = row["method"].lower()
        path = urllib.parse.urlsplit(row["url"]).path
        found = re.search(r"/(?:port|proxy)/(\d+)(/.*)?$", path) if not re.fullmatch(r".*/(44772|18080)/.*", path) else \
            re.search(r"/(?:port|proxy)/(44772|18080)(/.*)$", path)
        self.api = PORT_APIS.get(found[1]) if found else "lifecycle"
        self.path = (found[2] or "/") if found else re.sub(r"^/v1(?=/)", "", path)

    def __repr__(self):
        return f"{self.api} {self.method.upper()} {self.path[:120]} {self.status}"


def source(api):
    return os.path.join(PACKAGES, f"opensandbox-{VERSION}", "src", "api", api + ".ts")


def templates(api):
    """{template: what a path of it matches}, the exact ones first."""
    with open(source(api), encoding="utf-8") as text:
        found = re.findall(r'^    "(/[^"]*)": \{', text.read().split("export interface components")[0], re.M)
    return {path: re.compile("".join("[^/]+" if part.startswith("{") else re.escape(part)
                                     for part in re.split(r"(\{[^}]*\})", path)))
            for path in sorted(found, key=lambda path: path.count("{"))}


class Program:
    """The TypeScript program; each line of it is known by what it checks."""

    def __init__(self, folder):
        self.folder, self.lines, self.about = folder, [], {}
        self.known = {api: templates(api) for api in APIS}
        self.counts, self.faults, self.planted = {}, [], set()
        for api in APIS:
            self.lines.append(f"import type {{ paths as {api} }} from {json.dumps(source(api)[:-3] + '.js')};")

    def add(self, reply):
        if reply.api is None or UNTYPED.fullmatch(f"{reply.method} {reply.path}"):
            return
        template = next((path for path, like in self.known[reply.api].items() if like.fullmatch(reply.path)), None)
        if template is None:
            if reply.status < 400:
                self.faults.append(f"{reply}: no such path is published")
            return
        key = (reply.api, template, reply.method, reply.status)
        self.counts[key] = self.counts.get(key, 0) + 1
        if self.counts[key] > EACH_MAX or reply.body is None:
            return
        of = f"{reply.api}[{json.dumps(template)}][{json.dumps(reply.method)}][\"responses\"]"
        if reply.status >= 400 and (reply.api, reply.status) in UNPUBLISHED:
            of = None
        self.add_body(reply, of)

    def add_body(self, reply, of):
        if of is None:
            if not reply.body:
                self.faults.append(f"{reply}: a refusal without a body")
        elif not reply.body:
            self.check(reply, f"undefined as unknown as {of}[{reply.status}]", "{ headers: unknown }")
        elif reply.kind == "application/json":
            body = json.loads(reply.body)
            self.check(reply, json.dumps(body), f"{of}[{reply.status}][\"content\"][\"application/json\"]")
            self.plant(reply, body, f"{of}[{reply.status}][\"content\"][\"application/json\"]")
        elif reply.kind == "text/event-stream" and not reply.path.endswith("/watch"):
            for event in {json.loads(part)["type"]: part for part in reply.body.split("\n\n") if part}.values():
                self.check(reply, event, f"{of}[{reply.status}][\"content\"][\"text/event-stream\"]")
        elif reply.kind == "text/event-stream":
            pass  # lines of JSON, checked where they are read
        elif reply.kind != "application/octet-stream":
            self.check(reply, json.dumps(reply.body), f"{of}[{reply.status}][\"content\"][{json.dumps(reply.kind)}]")

    def check(self, reply, value, wanted):
        self.lines.append(f"({value}) satisfies {wanted};")
        self.about[len(self.lines)] = reply

    def plant(self, reply, body, wanted):
        """The same body with a fault in it: the compiler must refuse it, once for each operation."""
        place = (reply.api, reply.method, wanted)
        if place in self.planted or not body or reply.status >= 400:
            return
        self.planted.add(place)
        wrong = [7] if isinstance(body, list) else dict(body, **{next(iter(body)): {"planted": [1]}})
        self.lines.append("// @ts-expect-error")
        self.check(reply, json.dumps(wrong), wanted)

    def compile(self):
        """Sentences about what does not keep to the types."""
        with open(os.path.join(self.folder, "replies.mts"), "w", encoding="utf-8") as to:
            to.write("\n".join(self.lines) + "\n")
        with open(os.path.join(self.folder, "tsconfig.json"), "w", encoding="utf-8") as to:
            json.dump({"files": ["replies.mts"], "compilerOptions": {"noEmit": True, "strict": True, "skipLibCheck": True, "types": [],
                                                                     "module": "nodenext", "target": "es2022"}}, to)
        done = subprocess.run([NODE, os.path.join(PACKAGES, "typescript", "bin", "tsc"), "-p", self.folder], cwd=self.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180)
        told = []
        for line in done.stdout.splitlines():
            found = re.match(r"replies\.mts\((\d+),\d+\): (.*)", line)
            if found:
                number = int(found[1])
                reply = self.about.get(number, self.about.get(number + 1))
                told.append(f"{reply}: {found[2]}: {self.lines[number - 1][:300]}")
        if done.returncode != 0 and not told:
            told.append(done.stdout[-2000:])
        return self.faults + told
