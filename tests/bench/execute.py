"""One-shot Python through HTTP: `print(1)` by POST /execute in a sandbox that lives (forked from the process that has the interpreter
ready, and started as ever), and by the negotiator, which makes a sandbox for it; against `/usr/bin/python3 -c` by hand."""
import json
import subprocess
import time

BODY = {"code": "print(1)", "language": "python", "files": {}, "environment": {}, "arguments": [], "timeout_s": 60.0}
PLAIN = dict(BODY, environment={"LD_BENCH": "1"})  # what is read before an interpreter keeps it from being forked


def by_hand():
    done = subprocess.run(["/usr/bin/python3", "-c", "print(1)"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)
    assert done.stdout == b"1\n"


def asker(connection, path, body):
    def ask():
        done = connection.ask("POST", path, body)
        assert (done["stdout"], done["exit_code"]) == ("1\n", 0), done
    return ask


def await_gone(deployment, seconds=60):
    until = time.monotonic() + seconds
    while deployment.request("GET", "/sandboxes", record=False).json["sandboxes"] and time.monotonic() < until:
        time.sleep(0.05)


def measure(tools, deployment, times):
    grant = deployment.negotiate("bench")
    live = tools.connection(grant["endpoints"]["http"], grant["token"])
    forked, started = asker(live, "/execute", BODY), asker(live, "/execute", PLAIN)
    for _ in range(5):
        forked()
        started()
    living = tools.alternate(times, by_hand, forked, started)
    deployment.request("DELETE", "/threads/bench/sandbox")
    await_gone(deployment)
    once = asker(tools.connection(deployment.url, deployment.key), "/execute", BODY)
    for _ in range(3):
        once()
    return (*living, *tools.alternate(max(times // 4, 5), by_hand, once))


def bench_execute(tools, times):
    print("execute: Python's print(1) through HTTP")
    deployment = tools.deployment()
    try:
        hand, forked, started, hand_too, own = measure(tools, deployment, times)
    finally:
        deployment.close()
    base = tools.show("python3 -c, by hand", hand)
    living = tools.show("living sandbox, forked", forked)
    plain = tools.show("living sandbox, interpreter started", started)
    base_too = tools.show("python3 -c, by hand, again", hand_too)
    ours = tools.show("negotiator, a sandbox of its own", own)
    tools.ratio("living sandbox / by hand", living / base, "< 1")
    tools.ratio("interpreter started / by hand", plain / base, "-")
    tools.ratio("own sandbox / by hand", ours / base_too, "-")
    tools.tell("execute", **{name: [round(1e3 * value, 3) for value in tools.percentiles(values)] for name, values in (
        ("hand_ms", hand), ("living_ms", forked), ("started_ms", started), ("own_sandbox_ms", own))})
