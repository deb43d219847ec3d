"""What an operator sees: /metrics of both planes as Prometheus wants it, logs that machines read, one request found
again on both planes by its id and its trace, `parley top`."""
import fcntl
import json
import math
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
UNITS = {"milliseconds", "microseconds", "minutes", "hours", "days", "kilobytes", "megabytes", "percent", "ms", "kb", "mb"}
# What strangers choose, or what there may be any number of, is no label.
LABELS = {"method", "route", "status", "state", "kind", "how", "outcome", "reason", "resource", "node", "version", "le"}
ID = re.compile(r"(sbx|tok|lse|req|key|snp|rev|dep|spl)_[a-z0-9]{8,}|pk_|eyJ|whsec_")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


class Page:
    """One scrape. Reading it judges it by the rules of the exposition format and of promtool's linter."""

    def __init__(self, text):
        self.help, self.kind, self.samples, self.wrong = {}, {}, {}, []
        self.family, closed = None, set()
        if not text.endswith("\n"):
            self.wrong.append("no end of line at the end")
        for line in text.splitlines():
            if line.startswith("# "):
                _, what, name, rest = line.split(" ", 3)
                if what == "HELP":
                    self.family = name
                    if name in closed:
                        self.wrong.append(f"{name}: in two places")
                    closed.add(name)
                (self.help if what == "HELP" else self.kind)[name] = rest
                if name != self.family:
                    self.wrong.append(f"{name}: TYPE without HELP")
            else:
                self.take(line)
        self.lint()

    def take(self, line):
        found = SAMPLE.fullmatch(line)
        if not found:
            self.wrong.append(f"no sample: {line!r}")
            return
        name, labels, value = found.groups()
        pairs = LABEL.findall(labels or "")
        if ",".join(f'{k}="{v}"' for k, v in pairs) != (labels or ""):
            self.wrong.append(f"labels of {line!r}")
        base = re.sub(r"_(bucket|sum|count)$", "", name) if self.kind.get(self.family) == "histogram" else name
        if base != self.family:
            self.wrong.append(f"{name} stands below {self.family}")
        key = (name, tuple(sorted(pairs)))
        if key in self.samples:
            self.wrong.append(f"twice: {line!r}")
        self.samples[key] = float(value)
        self.wrong += [f"label {k} of {name}" for k, _ in pairs if k not in LABELS]
        if ID.search(line):
            self.wrong.append(f"an id: {line!r}")

    def lint(self):
        for name, kind in self.kind.items():
            words = name.split("_")
            if not self.help.get(name):
                self.wrong.append(f"{name}: no help")
            if (kind == "counter") != (words[-1] == "total"):
                self.wrong.append(f"{name}: _total is of counters")
            if kind != "histogram" and words[-1] in ("bucket", "count", "sum"):
                self.wrong.append(f"{name}: its end is a histogram's")
            if UNITS & set(words) or kind in words:
                self.wrong.append(f"{name}: not a base unit, or its kind")
            if re.search(r"[A-Z:]", name):
                self.wrong.append(f"{name}: capitals or colons")
            if kind == "histogram":
                self.lint_histogram(name)

    def lint_histogram(self, name):
        series = {}
        for (sample, labels), value in self.samples.items():
            if sample == name + "_bucket":
                rest = tuple(pair for pair in labels if pair[0] != "le")
                series.setdefault(rest, []).append((float(dict(labels)["le"].replace("+Inf", "inf")), value))
        for labels, buckets in series.items():
            buckets.sort()
            counts = [count for _, count in buckets]
            if buckets[-1][0] != math.inf or counts != sorted(counts):
                self.wrong.append(f"{name}{labels}: buckets")
            if self.samples.get((name + "_count", labels)) != counts[-1] or (name + "_sum", labels) not in self.samples:
                self.wrong.append(f"{name}{labels}: _count or _sum")

    def value(self, name, **labels):
        """The sum of the samples that have these labels."""
        return sum(value for (sample, pairs), value in self.samples.items()
                   if sample == name and labels.items() <= dict(pairs).items())


class TheLinterCanFail(unittest.TestCase):
    def test_it(self):
        good = "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n"
        self.assertEqual(Page(good).wrong, [])
        for bad in (good + "a_total 1\n", good.replace("a_total", "a"), good.rstrip(), good + "b 1\n",
                    good.replace("a_total 1", 'a_total{x="1"} 1'), good.replace("total 1", 'total{node="sbx_0123456789"} 1'),
                    good.replace("total 1", 'total{node="a"b"} 1'), good.replace("a_total", "a_ms_total"), good + good,
                    "# HELP h H.\n# TYPE h histogram\n" 'h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n'):
            self.assertNotEqual(Page(bad).wrong, [], bad)


@needs_root
class Observed(unittest.TestCase):
    """One deployment that writes JSON."""

    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(PARLEY_LOG_FORMAT="json", PARLEY_LOG_LEVEL="debug")
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("seen", name="seen")

    def scrape(self, base=None, **more):
        reply = self.deployment.request("GET", (base or self.deployment.url) + "/metrics", token=None, **more)
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(reply.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8")
        page = Page(reply.body.decode())
        self.assertEqual(page.wrong, [])
        promtool = shutil.which("promtool")
        if promtool:
            done = subprocess.run([promtool, "check", "metrics"], input=reply.body, capture_output=True, timeout=30)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, b""))
        return page

    def lines(self, name):
        """The log of a program: every line of it is one object."""
        with open(f"{self.deployment.state}/log/{name}.log", "rb") as log:
            whole, _, _ = log.read().rpartition(b"\n")
        lines = [json.loads(line) for line in whole.decode().splitlines()]
        for line in lines:
            self.assertLessEqual({"time", "level", "area", "message"}, set(line))
        return lines

    def wait_line(self, name, **members):
        until = time.monotonic() + 20
        while True:
            found = [line for line in self.lines(name) if members.items() <= line.items()]
            if found:
                return found[-1]
            self.assertLess(time.monotonic(), until, (members, self.deployment.logs()))
            time.sleep(0.05)

    # ---- figures ----

    def test_the_negotiator_counts(self):
        before = self.scrape()
        self.deployment.negotiate("counted")
        self.deployment.negotiate("counted")
        self.assertEqual(self.deployment.request("POST", "/threads/counted/sandbox", {"mode": "create_only"}).status, 409)
        self.assertEqual(self.deployment.request("GET", "/sandboxes", token="pk_" + "x" * 43).status, 401)
        self.assertEqual(self.deployment.request("GET", "/sandboxes/sbx_" + "0" * 20).status, 404)
        self.assertEqual(self.deployment.request("DELETE", "/threads/counted/sandbox").status, 204)
        after = self.scrape()

        def grew(name, **labels):
            return after.value(name, **labels) - before.value(name, **labels)
        name = "parley_negotiator_negotiations_total"
        self.assertEqual([grew(name, outcome=o) for o in ("created", "granted", "CONFLICT")], [1, 1, 1])
        self.assertEqual(grew("parley_negotiator_unauthenticated_total"), 1)
        name = "parley_negotiator_http_requests_total"
        self.assertEqual(grew(name, route="/threads/{thread_id}/sandbox", status="2xx", method="POST"), 2)
        self.assertEqual(grew(name, route="/sandboxes/{sandbox_id}", status="4xx"), 1)
        self.assertEqual(grew("parley_negotiator_http_request_duration_seconds_count", route="/sandboxes/{sandbox_id}"), 1)
        self.assertGreaterEqual(grew("parley_negotiator_audit_records_total"), 3)
        self.assertGreaterEqual(grew("parley_negotiator_ledger_sync_duration_seconds_count"), 3)
        self.assertEqual(after.value("parley_negotiator_nodes", state="alive"), 1)
        self.assertEqual(after.value("parley_negotiator_ledger_up"), 1)
        self.assertGreater(after.value("process_open_fds"), 5)
        self.assertGreater(after.value("process_resident_memory_bytes"), 1 << 20)
        self.assertLess(abs(after.value("process_start_time_seconds") - time.time()), 3600)

    def test_the_node_counts(self):
        base = self.deployment.node_url
        before = self.scrape(base)
        grant = self.deployment.negotiate("counted-there")
        self.deployment.shell(grant, "true")
        info = grant["endpoints"]["http"] + "/info"
        self.assertEqual(self.deployment.request("GET", info, token="x" * 40).status, 401)
        self.assertEqual(self.deployment.request("GET", info, token=grant["token"][:-4] + "AAAA").status, 401)
        after = self.scrape(base)

        def grew(name, **labels):
            return after.value(name, **labels) - before.value(name, **labels)
        self.assertEqual(grew("parley_sandboxd_births_total"), 1)
        self.assertEqual(grew("parley_sandboxd_birth_duration_seconds_count"), 1)
        self.assertEqual(grew("parley_sandboxd_sandboxes", state="running"), 1)
        self.assertEqual(grew("parley_sandboxd_commands_started_total", kind="exec"), 1)
        self.assertEqual(grew("parley_sandboxd_tokens_verified_total"), 1)
        self.assertEqual(grew("parley_sandboxd_tokens_refused_total"), 2)
        self.assertEqual(grew("parley_sandboxd_tokens_refused_total", reason="malformed"), 1)
        self.assertEqual(grew("parley_sandboxd_http_requests_total", route="/s/{sandbox}/exec", status="2xx"), 1)
        self.assertLess(after.value("parley_sandboxd_negotiator_contact_age_seconds"), 60)
        paused = self.deployment.request("POST", f"/sandboxes/{grant['sandbox']['id']}/pause")
        self.assertEqual(paused.status, 200, paused)
        self.assertGreaterEqual(self.scrape(base).value("parley_sandboxd_sandboxes", state="paused"), 1)

    def test_hostile_paths_make_no_series(self):
        before = self.scrape()
        for i in range(5):
            for path in (f"/no/{i}/route", f"/threads/t{i}/nothing", f"/sandboxes/sbx_{i}?x={i}", "/metrics%0a"):
                self.deployment.request(f"GET", path, record=False)
        after = self.scrape()
        new = {key for key in after.samples if key not in before.samples}
        self.assertEqual({dict(labels).get("route") for _, labels in new} - {"none", "/sandboxes/{sandbox_id}"}, set())

    def test_a_proxy_on_this_machine_is_not_this_machine(self):
        for header in ("X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"):
            headers = {header: "127.0.0.1"}
            reply = self.deployment.request("GET", "/metrics", token=None, headers=headers, record=False)
            self.assertEqual((reply.status, reply.code), (401, "UNAUTHENTICATED"), header)
            reply = self.deployment.request("GET", "/metrics", token="pk_" + "y" * 43, headers=headers, record=False)
            self.assertEqual(reply.status, 401)
            reply = self.deployment.request("GET", "/metrics", headers=headers, record=False)  # with the admin's key
            self.assertEqual(reply.status, 200)
            reply = self.deployment.request("GET", self.deployment.node_url + "/metrics", headers=headers, record=False)
            self.assertEqual((reply.status, reply.code), (403, "FORBIDDEN"), header)

    # ---- logs, ids, traces ----

    def test_what_clients_send_breaks_no_line(self):
        # in an id that is not sane, a thread's name, a path: none of it adds a member, or a line
        self.deployment.request("GET", '/threads/x"},{"level":"error"/sandbox'.replace('"', "%22").replace("{", "%7b"))
        reply = self.deployment.request("GET", "/sandboxes", headers={"X-Request-ID": 'a" level=error b=1'})
        self.assertRegex(reply.headers["x-request-id"], "^req_[a-z0-9]{20}$")
        line = self.wait_line("negotiator", request_id=reply.headers["x-request-id"])
        self.assertEqual((line["message"], line["status"], line["level"]), ("GET /sandboxes", 200, "info"))
        self.assertIsInstance(line["ms"], (int, float))
        self.assertRegex(line["trace_id"], "^[0-9a-f]{32}$")
        for name in ("negotiator", "sandboxd"):
            self.assertGreater(len(self.lines(name)), 3)

    def test_one_request_on_both_planes(self):
        headers = {"X-Request-ID": "mine-7", "traceparent": f"00-{TRACE}-{SPAN}-01"}
        reply = self.deployment.request("POST", "/threads/traced/sandbox", {}, headers=headers)
        self.assertEqual((reply.status, reply.headers["x-request-id"]), (201, "mine-7"))
        here = self.wait_line("negotiator", request_id="mine-7", trace_id=TRACE)
        there = self.wait_line("sandboxd", request_id="mine-7", trace_id=TRACE, message="POST /node/v1/message")
        self.assertNotIn(SPAN, (here["span_id"], there["span_id"]))
        self.assertNotEqual(here["span_id"], there["span_id"])
        sandbox = reply.json["sandbox"]["id"]
        done = self.deployment.request("POST", f"/sandboxes/{sandbox}/pause", headers={"X-Request-ID": "mine-8"})
        self.assertEqual(done.status, 200, done)
        until = time.monotonic() + 20  # the node's record, shipped
        while True:
            records = self.deployment.request("GET", f"/audit?all=1&sandbox={sandbox}").json["records"]
            told = {(r["plane"], r["action"]): r["request_id"] for r in records}
            if ("sandboxd", "pause") in told or time.monotonic() > until:
                break
            time.sleep(0.1)
        self.assertEqual(told.get(("sandboxd", "pause")), "mine-8", records)

    def test_a_bad_traceparent_begins_anew(self):
        for bad in (f"00-{TRACE}-{SPAN}", f"00-{TRACE.upper()}-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01",
                    f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-x", "x" * 3000):
            reply = self.deployment.request("GET", "/sandboxes", headers={"traceparent": bad})
            self.assertEqual(reply.status, 200)
            line = self.wait_line("negotiator", request_id=reply.headers["x-request-id"])
            self.assertNotIn(line["trace_id"], (TRACE, TRACE.upper(), "0" * 32))

    def test_execute_carries_the_trace_to_its_node(self):
        headers = {"X-Request-ID": "run-1", "traceparent": f"00-{TRACE[::-1]}-{SPAN}-00", "tracestate": "a=b"}
        reply = self.deployment.request("POST", "/execute", {"code": "print(1)", "language": "python"}, headers=headers,
                                        timeout=60)
        self.assertEqual(reply.status, 200, reply)
        line = self.wait_line("sandboxd", request_id="run-1", message="POST /s/{sandbox}/execute")
        self.assertEqual(line["trace_id"], TRACE[::-1])

    def test_the_commands_id(self):
        traced = dict(self.deployment.environment, TRACEPARENT=f"00-{'ab' * 16}-{SPAN}-01")
        done = subprocess.run([os.path.join(self.deployment.programs, "parley"), "--help"], env=traced, timeout=30,
                              stdout=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0)
        done = subprocess.run([os.path.join(self.deployment.programs, "parley"), "run", "--thread", "by-cli", "--", "true"],
                              env=traced, timeout=60, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done)
        here = self.wait_line("negotiator", trace_id="ab" * 16, message="POST /threads/{thread_id}/sandbox")
        there = self.wait_line("sandboxd", trace_id="ab" * 16, request_id=here["request_id"])
        self.assertEqual(there["trace_id"], here["trace_id"])
        failed = subprocess.run([os.path.join(self.deployment.programs, "parley"), "nodes"], capture_output=True,
                                env=dict(self.deployment.environment, PARLEY_API_KEY="pk_" + "z" * 43), text=True,
                                timeout=60, stdin=subprocess.DEVNULL)
        self.assertNotEqual(failed.returncode, 0)
        told = re.search(r"request (req_[a-z0-9]{20})$", failed.stderr, re.M)
        self.assertTrue(told, failed.stderr)
        self.wait_line("negotiator", request_id=told.group(1))

    # ---- top ----

    def on_terminal(self, *words):
        leader, follower = os.openpty()
        fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        child = subprocess.Popen([os.path.join(self.deployment.programs, "parley"), "top", *words], stdin=follower,
                                 stdout=follower, stderr=subprocess.PIPE, env=self.deployment.environment)
        os.close(follower)
        self.addCleanup(os.close, leader)
        self.addCleanup(child.stderr.close)
        return child, leader

    def see(self, leader, wanted):
        said, until = b"", time.monotonic() + 30
        while not (wanted(said) if callable(wanted) else wanted in said):
            self.assertLess(time.monotonic(), until, (wanted, said[-2000:]))
            if select.select([leader], [], [], 1)[0]:
                said += os.read(leader, 65536)
        return said

    def test_top_once(self):
        self.deployment.negotiate("busy", name="busy")
        done = self.deployment.cli("top", "--once", "--sort", "name")
        self.assertEqual(done.returncode, 0, done.stderr)
        head, *rows = done.stdout.splitlines()
        self.assertRegex(head, "^NAME +STATE +CPU .* NODE +LEASES +LEFT")
        names = [row.split()[0] for row in rows]
        self.assertEqual(names, sorted(names))
        self.assertLessEqual({"seen", "busy"}, set(names))
        self.assertRegex(next(row for row in rows if row.startswith("busy ")), r" n1 +1 +[0-9]+h[0-9]{2}m ")
        listed = json.loads(self.deployment.cli("top", "--json").stdout)
        self.assertLessEqual({"seen", "busy"}, {one["name"] for one in listed})
        self.assertEqual(self.deployment.cli("top", "--sort", "beauty").returncode, 2)

    def test_top_lives(self):
        for name in ("one-line", "two-lines", "three-lines"):  # more than a small terminal has room for
            self.deployment.negotiate(name, name=name)
        child, leader = self.on_terminal("--sort", "cpu", "--interval", "30")
        said = self.see(leader, b"seen")
        said += self.see(leader, b"\x1b[?7h") if b"\x1b[?7h" not in said else b""
        for part in (b"sandboxes,", b"by cpu", b"nodes: n1 alive", b"LEASES"):
            self.assertIn(part, said)
        os.write(leader, b"m")
        self.see(leader, b"by memory")
        fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 6, 80, 0, 0))
        child.send_signal(signal.SIGWINCH)  # as the kernel does to who has it as controlling terminal
        self.see(leader, lambda said: any(page.endswith(b"\x1b[?7h") and page.count(b"\r\n") == 5
                                          for page in re.split(rb"(?<=\x1b\[\?7h)(?=\x1b\[\?7l)", said)))
        os.write(leader, b"q")
        self.assertEqual(child.wait(30), 0)

    def test_top_ends_by_ctrl_c(self):
        child, leader = self.on_terminal("--interval", "30")
        self.see(leader, b"seen")
        os.write(leader, b"\x03")
        self.assertEqual(child.wait(30), 0)


if __name__ == "__main__":
    unittest.main()
