"""Through the OpenSandbox SDK of npm, in one process: create until the first command's end, `true`, a Python cell, 1 MB and 100 MB
up and down; each in turn with the same against a server that answers at once and does nothing, which is the client's own part."""
import json
import os
import subprocess

from parley_testing.opensandbox import CASES, NODE, PACKAGES

BENCH = os.path.join(CASES, "bench")
# What upstream needs by itself: it sleeps after each command before it closes the stream.
UPSTREAM_COMMAND_S = 1.01


def measure(deployment, times, large_times):
    idle = subprocess.Popen([NODE, os.path.join(BENCH, "idle_server.mjs")], stdout=subprocess.PIPE, text=True)
    try:
        places = [f"127.0.0.1:{deployment.port}", deployment.key, f"127.0.0.1:{idle.stdout.readline().strip()}", "none"]
        done = subprocess.run([NODE, os.path.join(BENCH, "client.mjs"), PACKAGES, str(times), str(large_times), *places],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
    finally:
        idle.kill()
        idle.wait()
        idle.stdout.close()
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout)


def bench_opensandbox(tools, times, large_times):
    print("OpenSandbox: through the SDK of npm (0.1.11)")
    deployment = tools.deployment()
    try:
        series = measure(deployment, times, large_times)
    finally:
        deployment.close()
    told = {}
    for name, (ours, client) in series.items():
        p50 = tools.show(name, ours)
        own = tools.show("  the client's own part", client)
        tools.ratio(f"{name}: ours / the client alone", p50 / own, "none set")
        told[name] = {"p50_ms": round(p50 * 1e3, 3), "p95_ms": round(tools.percentiles(ours)[1] * 1e3, 3),
                      "client_p50_ms": round(own * 1e3, 3), "client_p95_ms": round(tools.percentiles(client)[1] * 1e3, 3)}
        if name == "true":
            tools.ratio("upstream's 1.01 s a command / ours", UPSTREAM_COMMAND_S / p50, "none set")
        if "MB" in name:
            size = float(name.split()[0])
            print(f"  {'':44} {size / p50:.0f} MB/s, the client alone {size / own:.0f} MB/s")
    tools.tell("opensandbox", times=times, figures=told)
