"""The promise of the project: one command, and untrusted code runs in a sandbox of its own, met again by its thread."""
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import BIN  # noqa: E402


@needs_root
class MainJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)

    def run_cli(self, *arguments, **more):
        return self.deployment.cli("run", "--thread", "main-job", *arguments, **more)

    def test_code_runs_and_the_thread_meets_its_sandbox_again(self):
        first = self.run_cli("--sandbox", "auto", "-c", "open('/workspace/x','w').write('hi'); print(6*7)")
        self.assertEqual((first.returncode, first.stdout), (0, "42\n"), first.stderr)
        again = self.run_cli("--", "cat", "/workspace/x")
        self.assertEqual((again.returncode, again.stdout), (0, "hi"), again.stderr)

    def test_exit_status_streams_and_environment_pass_through(self):
        done = self.run_cli("--env", "WHO=me", "--cwd", "/tmp", "--", "sh", "-c",
                            'echo "$WHO $PWD"; echo oops >&2; exit 7')
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "me /tmp\n", "oops\n"))

    def test_stdin_of_any_bytes_and_size(self):
        data = bytes(range(256)) * 4096
        done = self.run_cli("--", "sh", "-c", "sha256sum; exit 3", input=data, text=False)
        import hashlib
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stdout.decode().split()[0], hashlib.sha256(data).hexdigest())

    def test_binary_output_arrives_whole(self):
        done = self.run_cli("--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' '\\377'", text=False)
        self.assertEqual((done.returncode, len(done.stdout), set(done.stdout)), (0, 3000000, {255}), done.stderr)

    def test_signal_death_and_timeout_are_told_apart(self):
        killed = self.run_cli("--", "sh", "-c", "kill -9 $$")
        self.assertEqual(killed.returncode, 137, killed.stderr)
        late = self.run_cli("--timeout", "0.5", "--", "sh", "-c", "setsid sleep 60 & sleep 60")
        self.assertEqual(late.returncode, 124)
        self.assertIn("timed out", late.stderr)

    def test_ctrl_c_reaches_the_command(self):
        command = [os.path.join(BIN, "parley"), "run", "--thread", "main-job", "--", "sh", "-c",
                   "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"]
        child = subprocess.Popen(command, env=self.deployment.environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "ready\n")
        child.send_signal(signal.SIGINT)
        rest, _ = child.communicate(timeout=20)
        self.assertEqual((child.returncode, rest), (5, "caught\n"))

    def child(self, *command):
        child = subprocess.Popen([os.path.join(BIN, "parley"), "run", "--thread", "main-job", *command], env=self.deployment.environment,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(child.stdout.close)
        return child

    def state_of(self, word):
        """Of the newest process with that word in its command."""
        processes = json.loads(self.deployment.cli("ps", "--thread", "main-job", "--json").stdout)["processes"]
        return [p["state"] for p in processes if word in p["command"]][-1]

    def test_other_signals_reach_it_without_stdin_too(self):
        child = self.child("-n", "--", "sh", "-c", "trap 'echo told; exit 6' TERM; echo ready; while :; do sleep 0.05; done")
        self.assertEqual(child.stdout.readline(), "ready\n")
        child.send_signal(signal.SIGTERM)
        self.assertEqual((child.stdout.read(), child.wait(20)), ("told\n", 6))

    def test_the_second_ctrl_c_kills_it(self):
        child = self.child("--", "sh", "-c", "trap 'echo no' INT; echo ready; while :; do sleep 0.05; done")
        self.assertEqual(child.stdout.readline(), "ready\n")
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.stdout.readline(), "no\n")
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(20), 137)

    @staticmethod
    def has_pending_signal(pid):
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return re.search(r"^ShdPnd:\t0+$", status.read(), re.M) is None

    def test_the_third_ctrl_c_leaves_and_ends_it(self):
        child = self.child("--", "sh", "-c", "echo ready; trap '' INT; exec sleep 4321")
        self.assertEqual(child.stdout.readline(), "ready\n")
        front = self.deployment.pids("parley-sandboxd")
        for pid in front:
            os.kill(pid, signal.SIGSTOP)  # no answer comes
        try:
            for _ in range(3):
                child.send_signal(signal.SIGINT)
                while self.has_pending_signal(child.pid):  # else two become one
                    time.sleep(0.01)
            self.assertEqual(child.wait(20), 130)
        finally:
            for pid in front:
                os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.state_of("sleep 4321"), "ended")

    def test_ctrl_c_is_heard_while_nobody_reads(self):
        child = self.child("--", "sh", "-c", "trap 'exit 9' INT; while :; do echo 1234567; done")
        self.assertEqual(child.stdout.read(8), "1234567\n")
        time.sleep(0.5)  # all that lies between is full
        child.send_signal(signal.SIGINT)
        self.assertTrue(child.stdout.read())
        self.assertEqual(child.wait(20), 9)

    def test_without_stdin_it_is_at_its_end(self):
        done = self.run_cli("-n", "--", "cat", input="not read")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_the_scope_process_is_enough(self):
        done = self.deployment.cli("run", "--thread", "narrow", "--scopes", "process", "--", "cat", input="in")
        self.assertEqual((done.returncode, done.stdout), (0, "in"), done.stderr)

    def test_bytes_that_cannot_be_passed_are_told(self):
        for words, what in ((("--", "echo", b"a\xff"), "argument 1"), (("-c", b"print('\xff')"), "argument 2"),
                            (("--env", b"A=\xff", "--", "true"), "environment variable 1"),
                            (("--cwd", b"/\xff", "--", "true"), "folder"), (("-d", "--", b"\xff"), "argument 0")):
            with self.subTest(words):
                done = self.run_cli(*words)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(what, done.stderr)
                self.assertIn("not " + ("NAME=VALUE in " if what[0] == "e" else "") + "UTF-8", done.stderr)

    def test_bash_and_a_file_with_arguments(self):
        script = os.path.join(self.deployment.folder, "script.sh")
        with open(script, "w") as out:
            out.write('echo "$1-$2"; read line; echo "got $line"\n')
        done = self.run_cli(script, "a", "b c", input="typed\n")
        self.assertEqual((done.returncode, done.stdout), (0, "a-b c\ngot typed\n"), done.stderr)

    def test_a_closed_pipe_ends_the_command(self):
        shell = f"{BIN}/parley run --thread pipe -- sh -c 'yes parley-pipe-test' | head -n 1"
        done = subprocess.run(["bash", "-c", shell + "; echo ${PIPESTATUS[0]}"], env=self.deployment.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout, "parley-pipe-test\n141\n", done.stderr)
        processes = json.loads(self.deployment.cli("ps", "--thread", "pipe", "--json").stdout)["processes"]
        self.assertEqual([p["state"] for p in processes], ["ended"])

    def test_closed_standard_streams(self):
        done = subprocess.run(["bash", "-c", f"{BIN}/parley run --thread main-job -- cat <&- | cat; exit ${{PIPESTATUS[0]}}"],
                              env=self.deployment.environment, capture_output=True, text=True, timeout=30)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_a_file_without_an_ending_is_python(self):
        folder = os.path.join(self.deployment.folder, "a.d")
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/script", "w") as out:
            out.write("import sys; print(sys.argv[1:])")
        done = self.run_cli(folder + "/script", "x")
        self.assertEqual((done.returncode, done.stdout), (0, "['x']\n"), done.stderr)

    def test_a_thread_that_is_no_thread_id_is_told(self):
        done = self.deployment.cli("run", "--thread", "my thread?principal=x", "--json", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("thread", done.stderr)
        self.assertEqual(json.loads(done.stdout)["error"]["code"], "INVALID_REQUEST")

    def test_json_output(self):
        done = self.run_cli("--json", "--", "sh", "-c", "echo out; echo err >&2; exit 4")
        value = json.loads(done.stdout)
        self.assertEqual((value["stdout"], value["stderr"], value["exit_code"], done.returncode),
                         ("out\n", "err\n", 4, 4))

    def test_files_of_the_cli_are_private(self):
        self.run_cli("--", "true")
        for path in ("config/parley/config.json", "cache/parley/grants.json"):
            mode = stat.S_IMODE(os.stat(os.path.join(self.deployment.folder, path)).st_mode)
            self.assertEqual(mode, 0o600, path)

    def test_a_spent_grant_is_negotiated_anew(self):
        self.run_cli("--", "true")
        path = self.deployment.folder + "/cache/parley/grants.json"
        with open(path) as cached:
            grants = json.load(cached)
        for grant in grants.values():
            grant["token"] = grant["token"][:-4] + "AAAA"
        with open(path, "w") as cached:
            json.dump(grants, cached)
        done = self.run_cli("--", "echo", "still")
        self.assertEqual((done.returncode, done.stdout), (0, "still\n"), done.stderr)

    def test_ls_ps_token_rm(self):
        self.deployment.cli("run", "--thread", "short", "--", "sh", "-c", "sleep 300 >/dev/null 2>&1 &")
        listed = json.loads(self.deployment.cli("ls", "--json").stdout)
        claims = json.loads(self.deployment.cli("token", "--thread", "short").stdout)
        mine = [s for s in listed if s["id"] == claims["aud"]]
        self.assertEqual(len(mine), 1, listed)
        processes = json.loads(self.deployment.cli("ps", "--thread", "short", "--json").stdout)["processes"]
        self.assertTrue(any("sleep" in p["command"] for p in processes), processes)
        narrowed = self.deployment.cli("token", "--thread", "short", "--attenuate", "fs:ro", "--expires-in", "60").stdout
        seen = json.loads(self.deployment.cli("token", "decode", narrowed.strip()).stdout)
        self.assertEqual((seen["scope"], len(seen["links"])), ("fs:ro", 1))
        removed = self.deployment.cli("rm", mine[0]["name"])
        self.assertEqual(removed.returncode, 0, removed.stderr)
        until = time.monotonic() + 15
        while time.monotonic() < until:
            left = [s["id"] for s in json.loads(self.deployment.cli("ls", "--json").stdout)]
            if claims["aud"] not in left:
                break
            time.sleep(0.1)
        self.assertNotIn(claims["aud"], left)

    def test_wrong_use_says_what_is_allowed(self):
        for arguments, sentence in ((("run",), "nothing to run"), (("run", "--lang", "cobol", "-c", "x"), "python, bash"),
                                    (("run", "--timeout", "-1", "--", "true"), "--timeout wants"),
                                    (("run", "x.py"), "No such file"), (("fly",), "no command"),
                                    (("run", "--env", "X", "--", "true"), "NAME=VALUE"),
                                    (("up", "--port", "80"), "1024")):
            done = self.deployment.cli(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(sentence, done.stderr)

    def test_help_everywhere(self):
        for command in ("up", "down", "doctor", "run", "ls", "ps", "rm", "token"):
            done = self.deployment.cli(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn("usage: parley " + command, done.stdout)

    def test_doctor_lists_the_libraries(self):
        libs = json.loads(self.deployment.cli("doctor", "--libs", "--json").stdout)
        of = {(lib["library"].split(".so")[0], lib["linked"]): lib for lib in libs}
        self.assertEqual(of["libh2o-evloop", "shared"]["programs"].count("parley-sandboxd"), 1)
        self.assertEqual(of["libzmq", "static"]["programs"], ["parley-jupyter"])
        self.assertIn("parley-init", of["glibc", "static"]["programs"])
        self.assertEqual([lib for lib in libs if not lib["version"] or not lib["programs"]], [])

    def test_doctor_names_every_layer(self):
        done = self.deployment.cli("doctor", "--json")
        names = {layer["name"] for layer in json.loads(done.stdout)}
        self.assertTrue({"seccomp", "deployment"} <= names, names)

    def test_the_daemons_have_given_up_system_calls(self):
        for program in ("parley-negotiator", "parley-sandboxd"):
            lines = [open(f"/proc/{pid}/status").read() for pid in self.deployment.pids(program)]
            own = [text for text in lines if "\nUid:\t0\t" not in text]  # the launcher makes sandboxes as root
            self.assertTrue(own and all("\nSeccomp:\t2\n" in text and "\nCapEff:\t0000000000000000\n" in text for text in own))

    def test_missing_deployment_says_what_to_do(self):
        done = self.deployment.cli("ls", "--url", "http://127.0.0.1:9")
        self.assertEqual(done.returncode, 1)
        self.assertIn("parley up", done.stderr)


@needs_root
class UpAndDown(unittest.TestCase):
    def test_down_leaves_nothing(self):
        deployment = Deployment()
        deployment.cli("run", "--", "sh", "-c", "sleep 300 >/dev/null 2>&1 &")
        self.assertTrue(deployment.pids("parley-sandboxd"))
        again = deployment.cli("up", "-d", "--port", str(deployment.port))
        self.assertEqual(again.returncode, 0, again.stderr)
        stopped = deployment.cli("down")
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        self.assertEqual(deployment.pids("parley-sandboxd") + deployment.pids("parley-negotiator"), [])
        self.assertEqual(os.listdir(deployment.state + "/sandboxd/run"), [])
        self.assertEqual(os.listdir(deployment.state + "/sandboxd/records"), [])
        deployment.close()

    def test_another_port_the_next_time_and_a_taken_one(self):
        import socket
        from parley_testing.deployment import free_ports
        deployment = Deployment()
        try:
            first = json.loads(deployment.cli("run", "--json", "--", "echo", "one").stdout)
            self.assertEqual(deployment.cli("down").returncode, 0)
            deployment.port = free_ports()
            os.unlink(deployment.folder + "/config/parley/config.json")
            deployment.up()
            done = deployment.cli("run", "--json", "--", "echo", "two")
            second = json.loads(done.stdout)
            self.assertEqual(second["stdout"], "two\n", done.stderr)
            self.assertNotEqual(first["sandbox"], second["sandbox"])
            deployment.cli("down")
            with socket.create_server(("127.0.0.1", deployment.port)):
                refused = deployment.cli("up", "-d", "--port", str(deployment.port))
            self.assertEqual(refused.returncode, 1)
            self.assertIn(f"port {deployment.port}", refused.stderr)
            self.assertEqual(deployment.pids("parley"), [])
        finally:
            deployment.close()

    def test_a_killed_supervisor_leaves_nothing_that_down_does_not_find(self):
        deployment = Deployment()
        try:
            deployment.kill("parley")
            self.assertTrue(deployment.pids("parley-sandboxd"))
            self.assertEqual(deployment.cli("up", "-d", "--port", str(deployment.port)).returncode, 0)
            self.assertEqual(len(deployment.pids("parley-negotiator")), 1)
            deployment.kill("parley")
            stopped = deployment.cli("down")
            self.assertEqual(stopped.returncode, 0, stopped.stderr)
            self.assertEqual(deployment.pids("parley-sandboxd") + deployment.pids("parley-negotiator"), [])
        finally:
            deployment.close()

    def test_no_secret_in_any_log(self):
        deployment = Deployment()
        try:
            grant = deployment.negotiate("logs")
            deployment.exec(grant, cmd="echo hello")
            deployment.request("POST", f"{deployment.node_url}/c/{grant['token']}/exec", {"cmd": "true"}, token=None)
            deployment.request("GET", "/sandboxes", token="pk_" + "x" * 43)
            with open(deployment.state + "/negotiator/master.key", "rb") as key:
                master = key.read()
            for folder, _, files in os.walk(deployment.state + "/log"):
                for name in files:
                    with open(os.path.join(folder, name), "rb") as log:
                        text = log.read()
                    for secret in (deployment.key.encode(), grant["token"].encode(),
                                   grant["token"].split(".")[2].encode(), b"pk_xxxx", master):
                        self.assertNotIn(secret, text, name)
        finally:
            deployment.close()


if __name__ == "__main__":
    unittest.main()
