"""Isolation levels side by side: a new sandbox with its first `true`, and `true` in a living one, through HTTP; each level in turn, so
that what else the machine does hits all. Levels that this machine cannot have are left out, and said."""
import time

from parley_testing import gvisor, microvm

MEMORY = {"namespaces": 256, "gvisor": 256, "microvm": 384}  # MiB


def offered():
    missing = {"gvisor": gvisor.missing(), "microvm": microvm.missing()}
    for level, why in missing.items():
        if why:
            print(f"  {level}: left out, {why}")
    return ["namespaces", *(level for level, why in missing.items() if not why)]


def begin(deployment, level, number):
    """A sandbox, and the seconds until its first command has ended."""
    began = time.perf_counter()
    grant = deployment.negotiate(f"{level}-{number}", isolation=level, resources={"memory_mb": MEMORY[level]})
    deployment.exec(grant, argv=["/bin/true"])
    return grant, time.perf_counter() - began


def end(deployment, grant):
    deployment.request("DELETE", f"/sandboxes/{grant['sandbox']['id']}")


def creates(tools, deployment, levels, turns):
    seconds = {level: [] for level in levels}
    for turn in range(turns + 1):
        for level in levels:
            grant, took = begin(deployment, level, turn)
            seconds[level] += [took] if turn > 0 else []
            end(deployment, grant)
    return {level: tools.percentiles(values) for level, values in seconds.items()}


def execs(tools, deployment, levels, turns):
    grants = {level: begin(deployment, level, "exec")[0] for level in levels}
    asked = {level: tools.connection(grant["endpoints"]["http"], grant["token"]) for level, grant in grants.items()}
    acts = [lambda c=c: c.ask("POST", "/exec", {"argv": ["/bin/true"], "stream": "none"}) for c in asked.values()]
    return dict(zip(levels, (tools.percentiles(values) for values in tools.alternate(turns, *acts))))


def tell(tools, name, figures, turns):
    floor = figures["namespaces"][0]
    for level, (p50, p95, p99) in figures.items():
        print(f"  {name:20} {level:11} p50 {p50 * 1e3:8.2f} ms  p95 {p95 * 1e3:8.2f}  p99 {p99 * 1e3:8.2f}  x {p50 / floor:6.1f}  n={turns}")
    tools.tell("levels", what=name, **{level: [round(value * 1e3, 3) for value in each] for level, each in figures.items()})


def bench_levels(tools, turns, commands):
    print("isolation levels: cold creation (no warm pool) and exec, each against namespaces in the same run")
    levels = offered()
    environment = {"PARLEY_ISOLATION": ",".join(levels), "PARLEY_WARM": "0"}
    if "microvm" in levels:
        environment.update(microvm.settings(",".join(levels)))
    with tools.deployment(**environment) as deployment:
        tell(tools, "create + first true", creates(tools, deployment, levels, turns), turns)
        tell(tools, "exec true", execs(tools, deployment, levels, commands), commands)
    print("  bound by: gvisor: runsc starts three processes, and each system call of the guest is a ptrace stop; microvm: QEMU interprets")
