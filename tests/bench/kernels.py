"""Contexts: the first result of a new one and the time of a cell, against ipykernel started and driven by hand.

"By hand" is ipykernel as a plain process of the host and a client of two ZeroMQ sockets over ipc in this process: no HTTP, no
sandbox, no polling."""
import json
import os
import shutil
import subprocess
import tempfile
import time

RESULT, NOTHING = "1+1", "pass"
PYTHON, JUPYTER = "python", "jupyter:python3"


class ByHand:
    """ipykernel as a child of ours."""

    def __init__(self):
        import zmq
        from jupyter_client.session import Session
        self.folder = tempfile.mkdtemp(prefix="parley-bench-")
        self.session = Session(key=b"key", signature_scheme="hmac-sha256", username="bench")
        file = self.folder + "/connection.json"
        with open(file, "w") as out:
            json.dump({"transport": "ipc", "ip": self.folder + "/k", "shell_port": 1, "iopub_port": 2, "stdin_port": 3,
                       "control_port": 4, "hb_port": 5, "key": "key", "signature_scheme": "hmac-sha256"}, out)
        self.child = subprocess.Popen(["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", file],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      env=dict(os.environ, JPY_PARENT_PID=str(os.getpid())))
        while not all(os.path.exists(f"{self.folder}/k-{n}") for n in (1, 2)):
            time.sleep(0.001)
            if self.child.poll() is not None:
                raise RuntimeError("ipykernel does not start")
        self.context = zmq.Context()
        self.shell, self.iopub = self.context.socket(zmq.DEALER), self.context.socket(zmq.SUB)
        self.iopub.subscribe(b"")
        self.shell.connect(f"ipc://{self.folder}/k-1")
        self.iopub.connect(f"ipc://{self.folder}/k-2")
        self.session.send(self.shell, "kernel_info_request", {})
        self.take(self.shell)
        while not self.iopub.poll(10):  # a late subscription
            self.session.send(self.shell, "kernel_info_request", {})
        self.run(NOTHING)

    def take(self, socket):
        _, message = self.session.recv(socket, mode=0)
        return message

    def run(self, code):
        """Until the kernel is idle and has replied; the texts of the results."""
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False,
                   "stop_on_error": False}
        asked = self.session.send(self.shell, "execute_request", content)["header"]["msg_id"]
        results, idle = [], False
        while not idle:
            message = self.take(self.iopub)
            if message["parent_header"].get("msg_id") != asked:
                continue
            if message["msg_type"] == "execute_result":
                results.append(message["content"]["data"]["text/plain"])
            idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
        while self.take(self.shell)["parent_header"].get("msg_id") != asked:
            pass
        return results

    def close(self):
        self.child.kill()
        self.child.wait()
        self.context.destroy(linger=0)
        shutil.rmtree(self.folder)


class Context:
    """A context of a sandbox, over one kept-alive connection."""

    def __init__(self, connection, language, name):
        self.connection, self.name = connection, name
        connection.ask("POST", "/kernels", {"language": language, "id": name})

    def run(self, code):
        reply = self.connection.ask("POST", f"/kernels/{self.name}/run", {"code": code, "stream": "none"})
        if reply["status"] != "ok":
            raise RuntimeError(f"{code}: {reply}")
        return [reply["result"]["data"]["text/plain"]] if reply["result"] else []

    def close(self):
        self.connection.ask("DELETE", f"/kernels/{self.name}")


def first_result(make):
    """Seconds from nothing to the result, and what gave it."""
    started = time.perf_counter()
    made = make()
    results = made.run(RESULT)
    took = time.perf_counter() - started
    if results != ["2"]:
        raise RuntimeError(f"{RESULT} is {results}")
    return took, made


def bench_first(tools, deployment, turns):
    """A sandbox a turn: its first Python context waits for the zygote, its second is forked from it."""
    series = {name: [] for name in ("python, cold", "python, warm", "jupyter:python3", "by hand")}
    for turn in range(turns):
        grant = deployment.negotiate(f"turn{turn}", resources={"memory_mb": 1024})
        connection = tools.connection(grant["endpoints"]["http"], grant["token"])
        connection.ask("GET", "/info")
        for name, make in (("python, cold", lambda: Context(connection, PYTHON, "cold")),
                           ("by hand", ByHand),
                           ("python, warm", lambda: Context(connection, PYTHON, "warm")),
                           ("jupyter:python3", lambda: Context(connection, JUPYTER, "jupyter"))):
            took, made = first_result(make)
            series[name].append(took)
            made.close()
        deployment.request("DELETE", f"/sandboxes/{grant['sandbox']['id']}")
    p50 = {name: tools.show(f"first result, {name}", took) for name, took in series.items()}
    for name in list(p50)[:3]:
        goal = {"python, cold": "<= 1", "python, warm": "<= 0.1"}.get(name, "<= 1.25")
        tools.ratio(f"first result, {name} / by hand", p50[name] / p50["by hand"], goal)
    return p50


def bench_cells(tools, deployment, times):
    grant = deployment.negotiate("cells", resources={"memory_mb": 1024})
    connection = tools.connection(grant["endpoints"]["http"], grant["token"])
    kernels = {"python": Context(connection, PYTHON, "python"),
               "jupyter:python3": Context(connection, JUPYTER, "jupyter"), "by hand": ByHand()}
    told = {}
    for code in (RESULT, NOTHING):
        acts = [lambda kernel=kernel: kernel.run(code) for kernel in kernels.values()]
        tools.alternate(max(times // 10, 5), *acts)  # the first ones compile and cache
        series = tools.alternate(times, *acts)
        p50 = {name: tools.show(f"cell `{code}`, {name}", took) for name, took in zip(kernels, series)}
        for name in list(p50)[:2]:
            tools.ratio(f"cell `{code}`, {name} / by hand", p50[name] / p50["by hand"],
                        "<= 0.5" if name == "python" else "<= 1.25")
        told[code] = {name: [round(v * 1e3, 3) for v in tools.percentiles(took)] for name, took in zip(kernels, series)}
    for kernel in kernels.values():
        kernel.close()
    return told


def bench_kernels(tools, turns, times):
    print(f"contexts through HTTP, in turn with ipykernel by hand: {turns} first results each, {times} cells each")
    with tools.deployment(PARLEY_LOG_LEVEL="warn") as deployment:
        first = bench_first(tools, deployment, turns)
        cells = bench_cells(tools, deployment, times)
    print("  bound by: cold, the start of Python and the imports of IPython; warm, a fork and the HTTP calls; a cell, IPython\n"
          "  itself, then the way client - front - pipe - driver and back; of jupyter: two processes and ZeroMQ's threads more")
    tools.tell("kernels", turns=turns, cells=times, first_p50_ms={k: round(v * 1e3, 3) for k, v in first.items()},
               cell_p50_p95_p99_ms=cells)
