"""Jupyter kernels as contexts: the bridge inside the sandbox with the kernels of the template (ipykernel, xeus-python)."""
import base64
import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, images, needs_root  # noqa: E402
from parley_testing.templates import Store  # noqa: E402

PYTHON, XPYTHON = "jupyter:python3", "jupyter:xpython"


def has(name):
    return os.path.exists(f"/usr/share/jupyter/kernels/{name}/kernel.json")


class Asks:
    def ask(self, method, path, body=None, grant=None, **more):
        grant = grant or self.grant
        return self.deployment.request(method, grant["endpoints"]["http"] + path, body, token=grant["token"],
                                       timeout=120, **more)

    def start(self, kernel, language):
        reply = self.ask("POST", "/kernels", {"id": kernel, "language": language})
        self.assertIn(reply.status, (200, 201), f"{reply}\n{self.deployment.logs()}")
        return reply.json

    def run_code(self, kernel, code, **more):
        """The events of a run, without what only keeps the connection alive."""
        reply = self.ask("POST", f"/kernels/{kernel}/run", {"code": code, "stream": "ndjson", **more})
        self.assertEqual(reply.status, 200, reply)
        return [event for event in reply.events if event["type"] != "keepalive"]

    def kinds(self, events):
        return [event["type"] for event in events]


@needs_root
@unittest.skipUnless(has("python3"), "no ipykernel in the host's /usr (python3-ipykernel)")
class Jupyter(Asks, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("jupyter", resources={"memory_mb": 1024, "pids": 256})

    def test_kernelspecs_of_the_template_are_listed(self):
        listed = {spec["language"]: spec for spec in self.ask("GET", "/kernelspecs").json["kernelspecs"]}
        self.assertIn("python", listed)
        self.assertEqual(listed[PYTHON]["kind"], "jupyter")
        with open("/usr/share/jupyter/kernels/python3/kernel.json") as file:
            self.assertEqual(listed[PYTHON]["display_name"], json.load(file)["display_name"])

    def test_variables_output_results_and_errors(self):
        kernel = self.start("plain", PYTHON)
        self.assertTrue(kernel["implementation"].startswith("jupyter:python3 ipython"), kernel)
        self.assertEqual(self.kinds(self.run_code("plain", "x = 20")), ["started", "done"])
        events = self.run_code("plain", "print('out'); import sys; print('err', file=sys.stderr)\nx + 1")
        self.assertEqual(self.kinds(events), ["started", "stdout", "stderr", "result", "done"])
        self.assertEqual(events[3]["data"]["text/plain"], "21")
        events = self.run_code("plain", "1/0")
        self.assertEqual(self.kinds(events), ["started", "error", "done"])
        self.assertEqual(events[1]["name"], "ZeroDivisionError")
        self.assertNotIn("\x1b", "".join(events[1]["traceback"]))
        self.assertEqual(events[2]["status"], "error")
        error = self.run_code("plain", "input('name? ')")[1]
        self.assertEqual(error["name"], "StdinNotSupported")

    def test_output_of_children_comes_once(self):
        self.start("children", PYTHON)
        text = "".join(event.get("text", "") for event in
                       self.run_code("children", "import os, time; n = os.system('echo from a child'); time.sleep(0.2)"))
        self.assertEqual(text, "from a child\n")

    def test_displays(self):
        self.start("shown", PYTHON)
        code = ("from IPython.display import HTML, display, update_display, clear_output\n"
                "display(HTML('<b>1</b>'), display_id='d')\nupdate_display(HTML('2'), display_id='d')\n"
                "clear_output(wait=True)")
        events = self.run_code("shown", code)
        self.assertEqual(self.kinds(events), ["started", "display", "display", "clear", "done"])
        self.assertEqual((events[1]["data"]["text/html"], events[1]["display_id"]), ("<b>1</b>", "d"))
        self.assertEqual((events[2]["data"]["text/html"], events[2]["update"]), ("2", True))

    def test_a_figure_is_a_picture(self):
        self.start("figure", PYTHON)
        events = self.run_code("figure", "%matplotlib inline\nimport matplotlib.pyplot as p\n_ = p.plot([1, 2, 3])",
                               timeout=110)
        if any(event.get("name") == "ModuleNotFoundError" for event in events):
            self.skipTest("no matplotlib in the host's /usr (python3-matplotlib)")
        pictures = [event["data"]["image/png"] for event in events if "image/png" in event.get("data", {})]
        self.assertEqual(len(pictures), 1, events)
        self.assertTrue(base64.b64decode(pictures[0]).startswith(b"\x89PNG"))

    def test_a_timeout_interrupts_and_variables_stay(self):
        self.start("long", PYTHON)
        self.run_code("long", "kept = 'kept'")
        self.run_code("long", "1/0")  # so that what shows a traceback is there: 2 s after the interrupt it is killed
        events = self.run_code("long", "import time\nprint('begun', flush=True)\ntime.sleep(1000)", timeout=3)
        self.assertEqual((events[-1]["type"], events[-1]["status"]), ("done", "timeout"), events)
        self.assertEqual(self.run_code("long", "kept")[1]["data"]["text/plain"], "'kept'")

    def test_a_lost_kernel_says_why_and_starts_again(self):
        self.start("lost", PYTHON)
        done = self.run_code("lost", "import os; os.kill(os.getpid(), 9)")[-1]
        self.assertEqual((done["status"], done["oom"]), ("lost", False), done)
        self.assertIn("signal 9", done["reason"])
        refused = self.ask("POST", "/kernels/lost/run", {"code": "1"})
        self.assertEqual(refused.status, 410, refused)
        self.assertEqual(self.ask("POST", "/kernels/lost/restart").status, 200)
        self.assertEqual(self.run_code("lost", "1 + 1")[1]["data"]["text/plain"], "2")

    def test_its_context_outlives_the_front(self):
        self.start("outlives", PYTHON)
        self.run_code("outlives", "kept = 41")
        fronts = [pid for pid in self.deployment.pids("parley-sandboxd") if self.is_front(pid)]
        self.assertEqual(len(fronts), 1)
        os.kill(fronts[0], 9)
        self.deployment.wait_ready()
        self.assertEqual(self.run_code("outlives", "kept + 1")[1]["data"]["text/plain"], "42")

    @staticmethod
    def is_front(pid):
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return b"PARLEY_FRONT_FD=" in environ.read()

    def test_nobody_else_reads_its_key(self):
        self.start("key", PYTHON)
        found = self.deployment.shell(self.grant, "stat -c '%a %n' /tmp/.parley-jupyter-* /tmp/.parley-jupyter-*/*.json")
        modes = [(int(line.split()[0], 8) & 0o077, line) for line in found.splitlines()]
        self.assertGreaterEqual(len(modes), 2)
        self.assertEqual([line for mode, line in modes if mode], [])

    def test_a_kernelspec_that_is_not_there(self):
        refused = self.ask("POST", "/kernels", {"id": "none", "language": "jupyter:nothing"})
        self.assertEqual(refused.status, 400, refused)
        self.assertIn("no kernelspec of the name or language nothing", refused.json["error"]["message"])
        self.assertIn("python3", refused.json["error"]["message"])
        for language in ("jupyter:", "jupyter:../x", "jupyter:" + "x" * 60):
            self.assertEqual(self.ask("POST", "/kernels", {"language": language}).status, 400, language)

    def test_a_kernelspec_of_the_sandbox_itself(self):
        """What its user put there; the kernel's program is missing, and that is said."""
        spec = json.dumps({"argv": ["/no/such/kernel", "{connection_file}"], "display_name": "Mine", "language": "x"})
        self.deployment.shell(self.grant, "mkdir -p ~/.local/share/jupyter/kernels/mine && "
                                          f"echo '{spec}' > ~/.local/share/jupyter/kernels/mine/kernel.json")
        listed = {spec["language"]: spec for spec in self.ask("GET", "/kernelspecs").json["kernelspecs"]}
        self.assertEqual(listed["jupyter:mine"]["display_name"], "Mine")
        refused = self.ask("POST", "/kernels", {"language": "jupyter:mine"})
        self.assertEqual(refused.status, 400, refused)
        self.assertIn("/no/such/kernel", refused.json["error"]["message"])

    def test_over_tcp(self):
        """The sandbox's own loopback; the kernelspec asks for it."""
        make = ("mkdir -p ~/.local/share/jupyter/kernels/tcp && sed 's/\"metadata\": {/\"metadata\": {\"parley\": "
                "{\"transport\": \"tcp\"},/' /usr/share/jupyter/kernels/python3/kernel.json > "
                "~/.local/share/jupyter/kernels/tcp/kernel.json && cat ~/.local/share/jupyter/kernels/tcp/kernel.json")
        self.assertIn('"transport"', self.deployment.shell(self.grant, make))
        self.start("tcp", "jupyter:tcp")
        told = self.deployment.shell(self.grant, "cat /tmp/.parley-jupyter-*/connection.json")
        self.assertIn('"transport": "tcp"', told)
        self.assertEqual(self.run_code("tcp", "6 * 7")[1]["data"]["text/plain"], "42")

    def test_out_of_memory_is_said(self):
        grant = self.deployment.negotiate("small", resources={"memory_mb": 192})
        reply = self.ask("POST", "/kernels", {"id": "big", "language": PYTHON}, grant=grant)
        self.assertEqual(reply.status, 201, reply)
        code = {"code": "x = b'x' * (1 << 30)", "stream": "none"}
        done = self.ask("POST", "/kernels/big/run", code, grant=grant).json
        self.assertEqual((done["status"], done["oom"]), ("lost", True), done)

    @unittest.skipUnless(has("xpython"), "no xeus-python in the host's /usr (xpython)")
    def test_another_kernel(self):
        self.start("xeus", XPYTHON)
        self.run_code("xeus", "x = 6")
        events = self.run_code("xeus", "print('out')\nx * 7")
        self.assertEqual("".join(event.get("text", "") for event in events), "out\n")
        self.assertEqual([event["data"]["text/plain"] for event in events if event["type"] == "result"], ["42"])
        error = [event for event in self.run_code("xeus", "1/0") if event["type"] == "error"]
        self.assertEqual([event["name"] for event in error], ["ZeroDivisionError"])
        done = self.run_code("xeus", "import time; time.sleep(1000)", timeout=2)[-1]
        self.assertEqual(done["status"], "lost")  # xeus-python ends at SIGINT
        self.assertIn("interrupted", done["reason"])


@needs_root
@unittest.skipUnless(images.busybox(), "no static busybox")
class InABareImage(Asks, unittest.TestCase):
    def test_the_bridge_needs_nothing_of_the_template(self):
        """No libc, no dynamic linker: it runs, and says that there are no kernels."""
        with Deployment() as self.deployment:
            store = Store(self.deployment.state)
            self.addCleanup(store.close)
            layer = images.small_layer()
            store.take(images.docker([layer], images.config([layer], Env=["PATH=/bin"])), name="tiny")
            self.grant = self.deployment.negotiate("bare", template="tiny")
            refused = self.ask("POST", "/kernels", {"language": PYTHON})
            self.assertEqual(refused.status, 400, refused)
            self.assertIn("no kernelspec of the name or language python3 in this template; there are none", refused.json["error"]["message"])
            kinds = {spec["kind"] for spec in self.ask("GET", "/kernelspecs").json["kernelspecs"]}
            self.assertEqual(kinds, {"driver"})


@needs_root
class WithoutTheBridge(Asks, unittest.TestCase):
    def test_other_languages_do_without_it(self):
        with Deployment(PARLEY_JUPYTER="/no/such/program") as self.deployment:
            self.grant = self.deployment.negotiate("bare")
            refused = self.ask("POST", "/kernels", {"language": PYTHON})
            self.assertEqual(refused.status, 400, refused)
            self.assertNotIn("/no/such", refused.json["error"]["message"])
            self.assertIn("no parley-jupyter", refused.json["error"]["message"])
            self.assertEqual(self.start("p", "python")["language"], "python")
            self.assertNotIn(PYTHON, json.dumps(self.ask("GET", "/kernelspecs").json))


if __name__ == "__main__":
    unittest.main()
