"""Sessions and code contexts as OpenSandbox clients use them, on the wire: what lives on and what stays apart, exactly one end
of a command and both of a cell, who is interrupted by which id, contexts that are busy, lost, of no language or another's
kind, a shell that exits, and clients that leave or do not read."""
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.execd import PATIENCE_S, PORT, Stream, until  # noqa: E402


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment(tls=False)
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("code", resources={"memory_mb": 512}, env={"PLACE": "/usr/lib"})
        cls.base = cls.grant["endpoints"]["http"] + PORT

    def ask(self, method, path, body=None, token=None):
        return self.deployment.request(method, self.base + path, body, timeout=PATIENCE_S,
                                       headers={"X-EXECD-ACCESS-TOKEN": token or self.grant["token"]})

    def refused(self, reply, status, code, text=""):
        self.assertEqual((reply.status, reply.json.get("code")), (status, code), reply)
        self.assertIn(text, reply.json["message"])

    def done(self, reply):
        self.assertEqual((reply.status, reply.body, reply.headers.get("content-length")), (200, b"", "0"), reply)

    def events(self, path, body):
        """What comes, without the pings; the framing, the beginning and the one end are looked at here."""
        reply = self.ask("POST", path, body)
        self.assertEqual((reply.status, reply.headers.get("content-type")), (200, "text/event-stream"), reply)
        self.assertTrue(reply.body.endswith(b"}\n\n"))
        events = [json.loads(part) for part in reply.body.split(b"\n\n")[:-1]]
        self.assertEqual([event["type"] for event in events[:2]], ["init", "ping"], events)
        self.assertTrue(all(abs(event["timestamp"] - time.time() * 1000) < 600_000 for event in events), events)
        return [event for event in events if event["type"] != "ping"]

    @staticmethod
    def texts(events, kind="stdout"):
        return [event["text"] for event in events if event["type"] == kind]

    def session(self, **body):
        reply = self.ask("POST", "/session", body)
        self.assertEqual((reply.status, list(reply.json)), (200, ["session_id"]), reply)
        return reply.json["session_id"]

    def line(self, session, command, **more):
        """A run in a session: its lines, and its exit code by the contract."""
        events = self.events(f"/session/{session}/run", dict(command=command, **more))
        self.assertEqual((events[0]["type"], events[0]["text"]), ("init", session))
        ends = [event for event in events if event["type"] in ("error", "execution_complete")]
        self.assertEqual((len(ends), events[-1]), (1, ends[0]), events)
        self.assertEqual({event["type"] for event in events[1:-1]} - {"stdout"}, set(), events)
        if ends[0]["type"] == "execution_complete":
            self.assertGreater(ends[0]["execution_time"], 0)
            return self.texts(events), 0
        error = ends[0]["error"]
        self.assertEqual(error["ename"], "CommandExecError")
        if error["evalue"] != "-1":
            self.assertEqual(error["traceback"], [f"exit status {error['evalue']}"])
        return self.texts(events), int(error["evalue"])

    def context(self, language="python", **more):
        reply = self.ask("POST", "/code/context", dict(language=language, **more))
        self.assertEqual((reply.status, sorted(reply.json)), (200, ["id", "language"]), reply)
        self.assertEqual(reply.json["language"], language)
        return reply.json["id"]

    def cell(self, code, **context):
        """A run in a context: events between init and the end, which is always execution_complete."""
        events = self.events("/code", {"code": code, "context": context})
        self.assertEqual([event["type"] for event in events].count("execution_complete"), 1, events)
        self.assertEqual(events[-1]["type"], "execution_complete", events)
        return events

    def value(self, code, **context):
        found = [event["results"] for event in self.cell(code, **context) if event["type"] == "result"]
        self.assertEqual(len(found), 1)
        self.assertEqual(found[0]["text"], found[0]["text/plain"])
        return found[0]["text"]

    def error(self, code, **context):
        events = self.cell(code, **context)
        self.assertEqual(events[-2]["type"], "error", events)
        return events[-2]["error"]


@needs_root
class Sessions(Case):
    def test_folder_and_variables_live_on_and_do_not_mix(self):
        one, two = self.session(), self.session(cwd="/tmp")
        self.assertEqual(self.line(one, "cd /usr; export A=1; b=2; f() { echo f; }"), ([], 0))
        self.assertEqual(self.line(one, "echo $A $b $PWD; f"), (["1 2 /usr", "f"], 0))
        self.assertEqual(self.line(two, "echo \"<$A$b>\" $PWD"), (["<> /tmp"], 0))

    def test_a_run_s_folder_becomes_the_session_s(self):
        one = self.session()
        self.assertEqual(self.line(one, "pwd", cwd="$PLACE/../bin"), (["/usr/bin"], 0))
        self.assertEqual(self.line(one, "pwd"), (["/usr/bin"], 0))
        self.refused(self.ask("POST", f"/session/{one}/run", {"command": "pwd", "cwd": "/no/such"}), 400,
                     "INVALID_REQUEST_BODY", "/no/such")
        self.refused(self.ask("POST", f"/session/{one}/run", {"command": "pwd", "cwd": "/etc/passwd"}), 400,
                     "INVALID_REQUEST_BODY")
        self.assertEqual(self.line(one, "pwd"), (["/usr/bin"], 0))

    def test_a_session_s_folder_is_made(self):
        one = self.session(cwd="~/it's new/here")
        self.assertEqual(self.line(one, "pwd"), (["/workspace/it's new/here"], 0))
        self.refused(self.ask("POST", "/session", {"cwd": "/proc/none/here"}), 400, "INVALID_REQUEST_BODY")
        self.refused(self.ask("POST", "/session", {"cwd": "/etc/passwd"}), 400, "INVALID_REQUEST_BODY")

    def test_how_a_line_ends(self):
        one = self.session()
        for command, want in (("true", ([], 0)), ("false", ([], 1)), ("(exit 42)", ([], 42)), ("kill -9 $BASHPID & wait $!", ([], 137)),
                              ("printf 'a\\n\\nb\\r\\nc'", (["a", "b", "c"], 0))):
            self.assertEqual(self.line(one, command), want, command)
        lines, code = self.line(one, "nosuchcommand; if then")
        self.assertEqual(code, 2)
        self.assertTrue(any("syntax error" in line for line in lines), lines)

    def test_stderr_comes_with_stdout_in_order(self):
        one = self.session()
        self.assertEqual(self.line(one, "for i in 1 2 3; do echo o$i; echo e$i >&2; done"),
                         (["o1", "e1", "o2", "e2", "o3", "e3"], 0))

    def test_a_shell_that_ends_is_followed_by_another(self):
        one = self.session()
        self.assertEqual(self.line(one, "export A=1; cd /usr; exit 3"), ([], 3))
        self.assertEqual(self.line(one, "echo $A $PWD; exit"), (["1 /usr"], 0))
        self.assertEqual(self.line(one, "set -e; false; echo on"), ([], 1))
        self.assertEqual(self.line(one, "set +e; echo $A"), (["1"], 0))
        self.assertEqual(self.line(one, "kill -9 $$")[1], 137)
        self.assertEqual(self.line(one, "exec sh -c 'exit 9'")[1], 9)
        self.assertEqual(self.line(one, "echo here"), (["here"], 0))

    def test_timeouts_leave_the_session(self):
        one = self.session()
        self.line(one, "export A=1")
        for command in ("sleep 100", "trap '' INT; while :; do :; done", "sh -c 'trap \"\" INT TERM; while :; do sleep 1; done'"):
            self.assertEqual(self.line(one, f"echo begun; {command}", timeout=300), (["begun"], -1), command)
            self.assertEqual(self.line(one, "echo alive"), (["alive"], 0), command)

    def test_a_driver_that_is_killed_is_followed_by_another(self):
        one = self.session()
        lines, code = self.line(one, "kill -9 $PPID; sleep 5")
        self.assertEqual((lines, code), ([], -1))
        self.assertEqual(self.line(one, "echo anew"), (["anew"], 0))

    def test_what_is_no_session(self):
        made = self.context("bash")
        for name in ("none", "ses_none", made, "a b", "x" * 200):
            name = urllib.parse.quote(name, safe="")
            self.refused(self.ask("POST", f"/session/{name}/run", {"command": "true"}), 500, "RUNTIME_ERROR")
            self.refused(self.ask("DELETE", f"/session/{name}"), 404, "CONTEXT_NOT_FOUND")
        one = self.session()
        self.done(self.ask("DELETE", f"/session/{one}"))
        self.refused(self.ask("DELETE", f"/session/{one}"), 404, "CONTEXT_NOT_FOUND")
        self.refused(self.ask("POST", f"/session/{one}/run", {"command": "true"}), 500, "RUNTIME_ERROR", one)

    def test_what_is_malformed(self):
        one = self.session()
        for body in ({}, {"command": ""}, {"command": 1}, {"command": "true", "timeout": -1}, {"command": "true", "cwd": 1}):
            self.refused(self.ask("POST", f"/session/{one}/run", body), 400, "INVALID_REQUEST_BODY")
        for body in ({"cwd": 1}, b"{", b"[]", {"cwd": "$NOTHING_OF_THAT_NAME/x"}):
            self.refused(self.ask("POST", "/session", body), 400, "INVALID_REQUEST_BODY")
        self.assertEqual(self.ask("POST", "/session", b"").status, 200)  # an empty body is fine, and so are unknown fields
        self.assertEqual(self.line(one, "true", unknown=1), ([], 0))

    def test_deleted_or_interrupted_while_it_runs(self):
        for method, path in (("DELETE", "/session/{}"), ("DELETE", "/command?id={}"), ("DELETE", "/code?id={}")):
            one = self.session()
            stream = Stream(self, f"/session/{one}/run", {"command": "echo begun; sleep 100"})
            self.addCleanup(stream.close)
            stream.wait("begun")
            self.done(self.ask(method, path.format(one)))
            end = stream.rest()[-1]
            self.assertEqual((end["type"], end["error"]["evalue"]), ("error", "-1"), path)
            self.refused(self.ask("POST", f"/session/{one}/run", {"command": "true"}), 500, "RUNTIME_ERROR")

    def test_runs_of_a_session_wait_for_each_other(self):
        one, got = self.session(), []
        threads = [threading.Thread(target=lambda i=i: got.append(self.line(one, f"x=$((x + 1)); sleep 0.1; echo $x")[0]))
                   for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        self.assertEqual(sorted(got), [["1"], ["2"], ["3"], ["4"]])

    def test_a_client_that_leaves_stops_nothing(self):
        one = self.session()
        stream = Stream(self, f"/session/{one}/run", {"command": "echo begun; sleep 1; echo done >/tmp/left"})
        stream.wait("begun")
        stream.close()
        self.assertEqual(self.line(one, "cat /tmp/left"), (["done"], 0))

    def test_output_from_a_background_program(self):
        one = self.session()
        self.assertEqual(self.line(one, "(sleep 0.3; echo late >/tmp/late) & echo now"), (["now"], 0))
        self.assertEqual(self.line(one, "wait; cat /tmp/late"), (["late"], 0))


@needs_root
class Contexts(Case):
    def test_state_lives_on_and_does_not_mix(self):
        one, two = self.context(), self.context()
        self.cell("secret = 41", id=one)
        self.assertEqual(self.value("secret + 1", id=one), "42")
        error = self.error("secret", id=two)
        self.assertEqual((error["ename"], error["evalue"]), ("NameError", "name 'secret' is not defined"))
        self.assertTrue(any("NameError" in line for line in error["traceback"]))

    def test_what_a_cell_shows(self):
        one = self.context()
        events = self.cell("import sys\nprint('out')\nprint('err', file=sys.stderr)\n'value'", id=one)
        self.assertEqual((events[0]["type"], events[0]["text"]), ("init", one))
        self.assertEqual("".join(self.texts(events)), "out\n")
        self.assertEqual("".join(self.texts(events, "stderr")), "err\n")
        self.assertEqual([event["execution_count"] for event in events if event["type"] == "execution_count"], [1])
        self.assertEqual([event["results"] for event in events if event["type"] == "result"],
                         [{"text": "'value'", "text/plain": "'value'"}])
        self.assertEqual(set(events[-1]), {"type", "timestamp", "execution_time"})
        rich = self.cell("class A:\n    def _repr_html_(self): return '<b>x</b>'\n    def _repr_json_(self): return {'a': [1]}\nA()",
                         id=one)
        results = [event["results"] for event in rich if event["type"] == "result"][0]
        self.assertEqual(results["text/html"], "<b>x</b>")
        self.assertTrue(all(isinstance(value, str) for value in results.values()), results)

    def test_a_result_is_less_than_a_line_that_clients_read(self):
        one = self.context()
        for code in ("'\\x01' * 3_000_000", "class B:\n    def _repr_png_(self): return bytes(4 << 20)\nB()",
                     "raise ValueError('\\x01' * 3_000_000)"):
            reply = self.ask("POST", "/code", {"code": code, "context": {"id": one}})
            self.assertLess(max(map(len, reply.body.split(b"\n\n"))), 4 << 20, code)
            self.assertIn(b'"type":"execution_complete"', reply.body)
        output = self.cell("print('x' * 3_000_000)", id=one)
        self.assertEqual(len("".join(self.texts(output))), 3_000_001)

    def test_the_default_of_a_language(self):
        self.cell("kept = 'yes'", language="python")
        self.assertEqual(self.value("kept", language="python"), "'yes'")
        self.cell("export FOO=hello", language="bash")
        self.assertEqual(self.texts(self.cell("echo $FOO", language="bash")), ["hello"])
        self.error("import os; os.kill(os.getpid(), 9)", language="python")  # lost: the next is a new one
        self.assertEqual(self.error("kept", language="python")["ename"], "NameError")

    def test_a_context_that_was_lost_says_so_and_goes_on_anew(self):
        one = self.context()
        self.cell("x = 1", id=one)
        error = self.error("import os; os.kill(os.getpid(), 9)", id=one)
        self.assertEqual(error["ename"], "ContextLost")
        self.assertIn("signal 9", error["evalue"])
        self.assertEqual(self.error("x", id=one)["ename"], "NameError")

    def test_bash(self):
        one = self.context("bash")
        events = self.cell("cd /usr; echo a; echo; echo b >&2; (exit 4)", id=one)
        self.assertEqual((self.texts(events), self.texts(events, "stderr")), (["a", "\n"], ["b"]))
        self.assertEqual(events[-2]["error"], {"ename": "CommandExecError", "evalue": "4", "traceback": ["exit status 4"]})
        self.assertEqual(self.texts(self.cell("pwd", id=one)), ["/usr"])

    def test_javascript_and_typescript(self):
        for language, code in (("javascript", "let a = 40; console.log('hi'); a + 2"),
                               ("typescript", "let a: number = 40; console.log('hi'); a + 2")):
            events = self.cell(code, language=language)
            self.assertEqual("".join(self.texts(events)), "hi\n")
            self.assertIn("42", [event["results"]["text"] for event in events if event["type"] == "result"])

    def test_code_of_no_language_is_a_command(self):
        for body in ({"code": "echo hi; (exit 3)"}, {"code": "echo hi; (exit 3)", "context": {}},
                     {"code": "echo hi; (exit 3)", "context": {"language": "command"}}):
            events = self.events("/code", body)
            self.assertEqual(self.texts(events), ["hi"])
            self.assertEqual((events[-1]["type"], events[-1]["error"]["evalue"]), ("error", "3"))
        stream = Stream(self, "/code", {"code": "echo begun; sleep 100"})
        self.addCleanup(stream.close)
        command = stream.next()["text"]
        stream.wait("begun")
        self.done(self.ask("DELETE", f"/code?id={command}"))
        self.assertEqual(stream.rest()[-1]["error"]["evalue"], "-1")

    def test_languages_that_are_not_there(self):
        for language in ("java", "go", "sql", "cobol"):
            self.refused(self.ask("POST", "/code/context", {"language": language}), 500, "RUNTIME_ERROR", "kernelspec")
            self.refused(self.ask("POST", "/code", {"code": "1", "context": {"language": language}}), 500, "RUNTIME_ERROR")
        for language in ("", "command", "a b", "../x", "x" * 100):
            self.refused(self.ask("POST", "/code/context", {"language": language}), 400, "INVALID_REQUEST_BODY", "language")
        self.assertEqual([one["language"] for one in self.ask("GET", "/code/contexts").json if one["language"] == "java"], [])

    def test_list_show_delete(self):
        one, two, session = self.context("bash"), self.context(), self.session()
        ids = {context["id"]: context["language"] for context in self.ask("GET", "/code/contexts").json}
        self.assertEqual((ids[one], ids[two]), ("bash", "python"))
        self.assertNotIn(session, ids)
        shown = [context["id"] for context in self.ask("GET", "/code/contexts?language=python").json]
        self.assertTrue(two in shown and one not in shown)
        self.assertEqual(self.ask("GET", "/code/contexts?language=none").json, [])
        self.assertEqual(self.ask("GET", f"/code/contexts/{one}").json, {"id": one, "language": "bash"})
        self.done(self.ask("DELETE", f"/code/contexts/{one}"))
        for name in (one, "none", session, "x" * 200):
            self.refused(self.ask("GET", f"/code/contexts/{name}"), 404, "CONTEXT_NOT_FOUND")
            self.refused(self.ask("DELETE", f"/code/contexts/{name}"), 404, "CONTEXT_NOT_FOUND")
        self.assertEqual(self.line(session, "echo on"), (["on"], 0))

    def test_delete_all_of_a_language(self):
        made, session = [self.context("bash"), self.context("bash")], self.session()
        python = self.context()
        self.done(self.ask("DELETE", "/code/contexts?language=bash"))
        ids = [context["id"] for context in self.ask("GET", "/code/contexts").json]
        self.assertTrue(python in ids and not set(made) & set(ids), ids)
        self.assertEqual(self.line(session, "echo on"), (["on"], 0))
        self.refused(self.ask("DELETE", "/code/contexts"), 400, "MISSING_QUERY")
        self.done(self.ask("DELETE", "/code/contexts?language=none"))

    def test_busy_and_interrupted(self):
        for path in ("/code?id={}", "/command?id={}"):
            one = self.context()
            stream = Stream(self, "/code", {"code": "print('begun', flush=True)\nimport time\ntime.sleep(100)",
                                            "context": {"id": one, "language": "python"}})
            self.addCleanup(stream.close)
            self.assertEqual(stream.next()["text"], one)
            stream.wait("begun")
            self.refused(self.ask("POST", "/code", {"code": "1", "context": {"id": one}}), 500, "RUNTIME_ERROR", "busy")
            self.done(self.ask("DELETE", path.format(one)))
            events = stream.rest()
            self.assertEqual([event["type"] for event in events][-2:], ["error", "execution_complete"])
            self.assertEqual(events[-2]["error"]["ename"], "KeyboardInterrupt")
            self.assertEqual(self.value("1 + 1", id=one), "2")
            self.done(self.ask("DELETE", path.format(one)))  # idle: nothing is to be done
        self.refused(self.ask("DELETE", "/code?id=none"), 500, "RUNTIME_ERROR")
        self.refused(self.ask("DELETE", "/code"), 400, "MISSING_QUERY")

    def test_what_is_no_context(self):
        session = self.session()
        for name in ("none", session, "a b", "..", "x" * 60):
            self.refused(self.ask("POST", "/code", {"code": "1", "context": {"id": name}}), 500, "RUNTIME_ERROR")
        for body in ({}, {"code": ""}, {"code": 1}, {"code": "1", "context": 1}, {"code": "1", "context": {"id": 1}},
                     {"code": "1", "context": {"id": "x" * 200}}, b"{", b"[]"):
            self.refused(self.ask("POST", "/code", body), 400, "INVALID_REQUEST_BODY")

    def test_a_context_begins_in_its_folder(self):
        self.assertEqual(self.value("import os; os.getcwd()", id=self.context(cwd="$PLACE")), "'/usr/lib'")
        self.assertEqual(self.value("import os; os.getcwd()", id=self.context(cwd="made/here")), "'/workspace/made/here'")
        self.refused(self.ask("POST", "/code/context", {"language": "python", "cwd": "/proc/none"}), 400, "INVALID_REQUEST_BODY")

    def test_a_client_that_leaves_stops_nothing(self):
        one = self.context()
        stream = Stream(self, "/code", {"code": "print('begun', flush=True)\nimport time\ntime.sleep(1)\nx = 42",
                                        "context": {"id": one}})
        stream.wait("begun")
        stream.close()
        until(lambda: self.ask("POST", "/code", {"code": "1", "context": {"id": one}}).status == 200)
        self.assertEqual(self.value("x", id=one), "42")

    def test_a_client_that_does_not_read_holds_back_what_it_reads(self):
        one = self.context()
        stream = Stream(self, "/code", {"code": "for i in range(200000): print('x' * 100)\nprint('end')", "context": {"id": one}})
        self.addCleanup(stream.close)
        self.assertEqual(stream.next()["type"], "init")
        time.sleep(0.5)
        self.assertEqual(sum(event.get("text", "").count("x") for event in stream.rest()), 200000 * 100)

    def test_who_may(self):
        """A capability for code alone has contexts, and no commands nor sessions."""
        token = self.deployment.negotiate("code", scopes=["code"])["token"]
        self.assertEqual(self.ask("GET", "/code/contexts", token=token).status, 200)
        self.assertEqual(self.ask("POST", "/session", {}, token=token).status, 403)
        self.assertEqual(self.ask("POST", "/command", {"command": "true"}, token=token).status, 403)
        session = self.session()
        stream = Stream(self, "/command", {"command": "echo begun; sleep 100"})
        self.addCleanup(stream.close)
        command = stream.next()["text"]
        stream.wait("begun")
        for name in (session, command, "none"):
            self.assertEqual(self.ask("DELETE", f"/code?id={name}", token=token).status, 403)
        self.assertEqual(self.line(session, "echo on"), (["on"], 0))
        self.done(self.ask("DELETE", f"/code?id={command}"))
        self.assertEqual(stream.rest()[-1]["error"]["evalue"], "-1")
        one = self.context()
        self.done(self.ask("DELETE", f"/code?id={one}", token=token))

    def test_deeds_are_recorded(self):
        one = self.session()
        self.line(one, "echo recorded-line")
        self.ask("DELETE", f"/session/{one}")

        def seen():
            reply = self.deployment.request("GET", f"/audit?sandbox={self.grant['sandbox']['id']}&limit=200")
            records = reply.json["records"] if reply.status == 200 else []
            found = {record["action"] for record in records if one in json.dumps(record)}
            return {"code.start", "code.run", "code.remove", "code.end"} <= found and any("recorded-line" in json.dumps(record) for record in records)

        until(seen)

    def test_clients_that_leave_before_anything_began(self):
        fronts = self.fronts()
        parts = urllib.parse.urlsplit(self.base)
        asked = [("POST", "/session", {"cwd": "left/early"}), ("POST", "/code/context", {"language": "bash", "cwd": "left/early"}),
                 ("POST", "/code", {"code": "sleep 1", "context": {"language": "bash"}}), ("GET", "/code/contexts", None),
                 ("DELETE", "/code/contexts?language=none", None), ("DELETE", "/code?id=none", None)]
        for _ in range(5):
            for method, path, body in asked:
                text = json.dumps(body).encode() if body else b""
                head = (f"{method} {parts.path}{path} HTTP/1.1\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: {self.grant['token']}\r\n"
                        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n").encode()
                with socket.create_connection((parts.hostname, parts.port)) as client:
                    client.sendall(head + text)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        self.assertEqual(self.line(self.session(), "echo on"), (["on"], 0))
        self.assertEqual(self.fronts(), fronts)
        self.done(self.ask("DELETE", "/code/contexts?language=bash"))

    def fronts(self):
        return {pid for pid in self.deployment.pids("parley-sandboxd") if os.stat(f"/proc/{pid}").st_uid != 0}

    def test_they_outlive_the_front(self):
        session, context = self.session(), self.context()
        self.line(session, "export A=1; cd /usr")
        self.cell("x = 41", id=context)
        for pid in self.fronts():
            os.kill(pid, signal.SIGKILL)
        until(self.is_healthy)
        self.assertEqual(self.line(session, "echo $A $PWD; exit 2"), (["1 /usr"], 2))
        self.assertEqual(self.line(session, "echo $A"), (["1"], 0))  # it is durable still
        self.assertEqual(self.value("x + 1", id=context), "42")

    def is_healthy(self):
        try:
            return self.ask("GET", "/ping").status == 200
        except (OSError, http.client.HTTPException, socket.timeout):
            return False


if __name__ == "__main__":
    unittest.main()
