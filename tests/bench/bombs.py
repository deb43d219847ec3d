"""What a neighbour feels of a sandbox that takes all it can get: exec `true` and GET /info next to each of the bombs of
tests/parley_testing/bombs.py, against the same in the same deployment right before, while it was quiet."""
import concurrent.futures
import os
import threading
import time

from parley_testing import bombs

ARMED_S, SETTLE_S = 60, 0.5


class Bombed:
    """A sandbox that may have the whole machine's processors, bombed."""

    def __init__(self, deployment, name):
        self.deployment, self.name = deployment, name
        self.thread = "bomb-" + name.replace(" ", "-")

    def __enter__(self):
        self.grant = self.deployment.negotiate(self.thread, resources={"cpu": 2, "memory_mb": 512, "disk_mb": 256, "pids": 256})
        reply = self.deployment.exec(self.grant, argv=bombs.argv(self.name), id="bomb", detach=True)
        until = time.monotonic() + ARMED_S
        url = self.grant["endpoints"]["http"] + "/processes/bomb/output"
        while reply.status == 201 and b"armed" not in self.deployment.request("GET", url, token=self.grant["token"]).body:
            if time.monotonic() > until:
                raise RuntimeError(f"{self.name} does not come to its limit")
            time.sleep(0.05)
        time.sleep(SETTLE_S)
        return self

    def __exit__(self, *_):
        self.deployment.request("DELETE", f"/threads/{self.thread}/sandbox")
        time.sleep(SETTLE_S)


class Storm:
    """Clients with a good token that start commands as fast as they can."""

    def __init__(self, tools, deployment):
        self.tools, self.deployment, self.over = tools, deployment, threading.Event()

    def storm(self, grant):
        connection = self.tools.connection(grant["endpoints"]["http"], grant["token"])
        while not self.over.is_set():
            try:
                connection.ask("POST", "/exec", {"argv": ["/bin/true"], "stream": "none"})
            except RuntimeError:
                pass  # refused: as many as there may be

    def __enter__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(16)
        grant = self.deployment.negotiate("bomb-api", resources={"cpu": 2})
        for _ in range(16):
            self.pool.submit(self.storm, grant)
        time.sleep(SETTLE_S)

    def __exit__(self, *_):
        self.over.set()
        self.pool.shutdown()
        self.deployment.request("DELETE", "/threads/bomb-api/sandbox")
        time.sleep(SETTLE_S)


def stopwatch():
    """This client stands for one on another machine: it waits for no processor here. What it starts is as ever."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        print("  (the client itself waits for a processor: no right to real-time priority)")


def measure(tools, neighbour, times):
    acts = (lambda: neighbour.ask("POST", "/exec", {"argv": ["/bin/true"], "stream": "none"}),
            lambda: neighbour.ask("GET", "/info"))
    return [tools.percentiles(seconds) for seconds in tools.alternate(times, *acts)]


def row(name, quiet, bombed):
    cells = [f"{value * 1e3:8.2f}" for value in (*quiet[0], *bombed[0])]
    cells += [f"{b / q:7.1f}" for q, b in zip(quiet[0], bombed[0])]
    cells += [f"{bombed[1][2] * 1e3:8.2f}", f"{bombed[1][2] / quiet[1][2]:7.1f}"]
    print(f"  {name:14}" + "".join(cells), flush=True)
    return {"quiet_ms": [round(v * 1e3, 3) for v in quiet[0]], "bombed_ms": [round(v * 1e3, 3) for v in bombed[0]],
            "info_p99_ms": [round(quiet[1][2] * 1e3, 3), round(bombed[1][2] * 1e3, 3)]}


def bench_bombs(tools, times, names=()):
    print(f"a neighbour's exec `true` in ms, quiet and beside a bomb with all processors; the ratios; /info: {times} each")
    print("  " + " " * 14 + "   quiet p50     p95     p99  bombed p50   p95     p99    p50    p95    p99 /info p99  ratio")
    figures = {}
    with tools.deployment() as deployment:
        stopwatch()
        grant = deployment.negotiate("neighbour")
        neighbour = tools.connection(grant["endpoints"]["http"], grant["token"])
        measure(tools, neighbour, 20)
        for name in names or [*bombs.PROGRAMS, "storm by API"]:
            quiet = measure(tools, neighbour, times)
            with Bombed(deployment, name) if name in bombs.PROGRAMS else Storm(tools, deployment):
                figures[name] = row(name, quiet, measure(tools, neighbour, times))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    print("  bound by: the bomb may have all processors; what is asked of the neighbour waits with it for one, its front does not")
    tools.tell("bombs", times=times, **figures)
