"""Creation: one sandbox, bursts, snapshots and forks, pausing, what an idle one takes, and what is left in the end.

The client is bench-create_client (C, one thread): its own processor time is told with each figure. Python only tells it when."""
import json
import os
import shutil
import subprocess
import tempfile
import time

import memory
from parley_testing import remains as parts
from peers import Peers
from remains import Remains

EXEC_TRUE = {"argv": ["/bin/true"], "stream": "none"}
# What ComputeSDK's benchmark runs after create(): an identity probe, then `node -v`.
PROBE = {"stream": "none", "cmd": "readlink /proc/self/ns/mnt /proc/self/ns/pid /proc/self/ns/uts; cat /proc/self/cgroup "
                                  "/proc/sys/kernel/random/boot_id; ls /tmp /var/tmp; cat /proc/1/comm"}
NODE_VERSION = {"argv": ["node", "-v"], "stream": "none"}
COLD = {"PARLEY_WARM": "0"}


def warm_pool(count):
    return {"PARLEY_WARM": str(count), "PARLEY_WARM_MAX": str(count), "PARLEY_WARM_MEMORY_MB": str(count * 2)}


class Client:
    def __init__(self, deployment, program, *execs, negotiate=None):
        self.child = subprocess.Popen([program, deployment.url], env=dict(os.environ, PARLEY_API_KEY=deployment.key),
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if negotiate:
            self.say("negotiate " + json.dumps(negotiate))
        for body in execs:
            self.say("exec " + json.dumps(body))

    def say(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        reply = self.child.stdout.readline()
        if not reply:
            raise RuntimeError(f"bench-create_client ended at {line!r}")
        return json.loads(reply)

    def run(self, count, clients=1):
        return self.say(f"run {count} {clients}")

    def destroy(self, count, clients=1):
        return self.say(f"destroy {count} {clients}")

    def churn(self, seconds, clients):
        return self.say(f"churn {int(seconds * 1000)} {clients}")

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class House:
    """A deployment with one client, and the proof that nothing of it is left at the end."""

    def __init__(self, tools, *execs, negotiate=None, **environment):
        self.deployment = tools.deployment(**{"PARLEY_SLOTS_MAX": "1200", "PARLEY_LOG_LEVEL": "warn", **environment})
        self.client = Client(self.deployment, tools.client, *execs, negotiate=negotiate)
        self.remains = Remains(self.deployment)

    def wait_warm(self, count, patience=5):
        """Waits until as many sandboxes are ready, or no more come; returns how many are."""
        ready, changed = 0, time.monotonic()
        while ready < count and time.monotonic() < changed + patience:
            time.sleep(0.05)
            seen = sum(record.state == parts.WARM for record in parts.pool(self.deployment.state))
            if seen != ready:
                ready, changed = seen, time.monotonic()
        return ready

    def clear(self):
        """Destroys all; returns when the node is empty and the negotiator knows it."""
        self.client.destroy(10 ** 6, 8)
        until = time.monotonic() + 60
        while sum(node["used"] for node in ask(self.deployment, "GET", "/nodes")["nodes"]) > 0:
            if time.monotonic() > until:
                raise RuntimeError("destroyed sandboxes are still counted after 60 s")
            time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        self.client.close()
        living = self.remains.slots()
        self.deployment.close()
        left = self.remains.left()
        if left and not failed:
            raise RuntimeError(f"of {living} sandboxes this is left: {left}")
        if not failed:
            print(f"  taken down with {living} sandboxes: no slot, cgroup, mount, loop device or process is left")


def seconds(result, name="total_us"):
    if result["failed"]:
        raise RuntimeError(f"{result['failed']} failed: {result['first_failure']}")
    return [us / 1e6 for us in result[name]]


# --- one at a time ---


def bench_create(tools, times=100):
    print(f"create a sandbox and run the first `true` in it, through HTTP, {times} times in turn with the peers")
    peers = Peers()
    with House(tools, EXEC_TRUE, **COLD) as cold, House(tools, EXEC_TRUE, PARLEY_STORAGE="tmpfs", **COLD) as on_tmpfs, \
            House(tools, EXEC_TRUE, **warm_pool(8)) as warm:
        warm.wait_warm(8)
        ours = {"cold": (cold.client, []), "cold, tmpfs": (on_tmpfs.client, []), "warm": (warm.client, [])}
        parts = {name: ([], []) for name in ours}
        theirs = {name: [] for name in peers.run}
        came_warm = client_us = 0
        for _ in range(times):
            for name, (client, series) in ours.items():
                result = client.run(1)
                series += seconds(result)
                parts[name][0].extend(seconds(result, "negotiate_us"))
                parts[name][1].extend(us / 1e6 for us in result["exec_us"][0]["us"])
                came_warm += result["warm"]
                client_us += result["client_us"]
                client.destroy(1)
            for name, run in peers.run.items():
                theirs[name].append(run())
            time.sleep(0.02)
        peers.close()
        p50 = {}
        for name in ours:
            p50[name] = tools.show(f"negotiate + exec true, {name}", ours[name][1])
            tools.show("   of which negotiate", parts[name][0])
            tools.show("   of which exec", parts[name][1])
        for name, series in theirs.items():
            p50[name] = tools.show(name, series)
        for line in peers.absent:
            print("  " + line)
        print(f"  {came_warm} of {times} came warm; the client took {client_us / len(ours) / times:.0f} us of processor time each")
        bwrap = p50.get("bwrap --unshare-all")
        if bwrap:
            tools.ratio("cold create / bwrap", p50["cold"] / bwrap, "<= 1")
        for name in list(theirs)[2:]:
            tools.ratio(f"cold create / {name}", p50["cold"] / p50[name], "none set")
        tools.ratio("warm create, ms", p50["warm"] * 1e3, "<= 3")
        tools.tell("create", times=times, came_warm=came_warm, p50_ms={k: round(v * 1e3, 3) for k, v in p50.items()})


def bench_tti(tools, times=100):
    print(f"time to interactive as ComputeSDK's benchmark takes it: create, a probe, `node -v`; {times} times each way")
    for name, environment in (("cold", COLD), ("warm", warm_pool(times))):
        with House(tools, PROBE, NODE_VERSION, **environment) as house:
            pool = house.wait_warm(times) if name == "warm" else 0
            told = {}
            staggered = []
            for _ in range(times):
                staggered += seconds(house.client.run(1))
                time.sleep(0.2)
            house.client.destroy(times, 8)
            for way, act in (("one after another", lambda: seconds(house.client.run(times, 1))),
                             ("staggered by 200 ms", lambda: staggered),
                             ("all at once", lambda: seconds(house.client.run(times, times)))):
                if name == "warm":
                    pool = house.wait_warm(times)
                series = act()
                told[way] = round(tools.show(f"{name}, {way}" + (f" (pool of {pool})" if pool else ""), series) * 1e3, 3)
                house.client.destroy(times, 8)
            tools.tell("tti", pool=name, p50_ms=told)


# --- many at once ---


def burst(tools, house, name, count, pool):
    """One after another, then all at once."""
    if pool:
        house.wait_warm(pool)
    row = house.client.run(count, 1)
    alone = seconds(row)
    house.clear()
    if pool:
        house.wait_warm(pool)
    result = house.client.run(count, count)
    good = len(result["total_us"])
    print(f"  {name}: {count} creates + exec at once: {good} of {count} succeeded"
          f" ({result['warm']} warm){'; ' + result['first_failure'] if result['failed'] else ''}")
    p50 = tools.show("one after another, each", alone)
    burst_seconds = [us / 1e6 for us in result["total_us"]]
    tools.show("at once, each", burst_seconds)
    b50, _, b99 = tools.percentiles(burst_seconds)
    wall, row_wall = result["wall_us"] / 1e6, row["wall_us"] / 1e6
    first = min(burst_seconds)
    print(f"  wall {wall * 1e3:.0f} ms ({count / wall:.0f}/s), first ready after {first * 1e3:.1f} ms; one after another"
          f" {row_wall * 1e3:.0f} ms ({count / row_wall:.0f}/s); the client took {result['client_us'] / 1e3:.0f} ms of"
          " processor time of it")
    tools.ratio("p99 / p50 at once", b99 / b50, "<= 2" if pool else "none set")
    tools.ratio("wall at once / one after another", wall / row_wall, "<= 0.5" if pool else "<= 0.75")
    tools.tell("burst", pool=name, count=count, succeeded=good, p50_ms=b50 * 1e3, p99_ms=b99 * 1e3, wall_ms=wall * 1e3,
               row_wall_ms=row_wall * 1e3, row_p50_ms=p50 * 1e3, warm=result["warm"],
               client_ms=result["client_us"] / 1e3)
    house.client.destroy(count, 8)


def bench_burst(tools, counts=(100, 1000)):
    print("bursts: creates + exec of `true`, a client each, all at the same moment")
    for count in counts:
        with House(tools, EXEC_TRUE, **COLD) as house:
            burst(tools, house, "cold", count, 0)
        pool = max(count, 100)
        with House(tools, EXEC_TRUE, **warm_pool(pool)) as house:
            burst(tools, house, f"warm pool of {pool}", count, pool)


def bench_churn(tools, duration=5):
    print(f"creates, each with exec of `true` and destroy, without pause for {duration} s")
    for name, environment in (("cold", COLD), ("warm pool of 64", warm_pool(64))):
        with House(tools, EXEC_TRUE, **environment) as house:
            rates = {}
            for clients in (1, 4, 16):
                result = house.client.churn(duration, clients)
                series = seconds(result)
                rates[clients] = len(series) / (result["wall_us"] / 1e6)
                tools.show(f"{name}, {clients} clients: {rates[clients]:.0f}/s ({result['warm']} warm)", series)
            tools.tell("churn", pool=name, rates={str(k): round(v, 1) for k, v in rates.items()})


# --- idle ---


def bench_idle(tools, count=1000):
    print(f"memory of {count} idle sandboxes; of the machine, of Parley's processes, of the kernel")
    with House(tools, EXEC_TRUE, negotiate={"resources": {"memory_mb": 64}}, **COLD) as house:
        house.client.run(8)
        house.client.destroy(8)
        memory.settle()
        before = memory.Sample(house.deployment)
        seconds(house.client.run(count, 4))
        memory.settle()
        after = memory.Sample(house.deployment)
        rows = after.since(before, count)
        for name, kib in rows.items():
            print(f"  {name:58} {kib:9.1f} KiB a sandbox")
        print(memory.EXPLAINED)
        tools.ratio("idle sandbox, MiB (machine's memory, all counted)", rows[memory.WHOLE] / 1024, "<= 1")
        tools.tell("idle", count=count, kib={k: round(v, 1) for k, v in rows.items()})
        result = house.client.destroy(count, 8)
        tools.show("DELETE of one of them", seconds(result, "destroy_us"))


# --- snapshots ---

WORKSPACE_MB = 100
FILL = f"mkdir -p data && for i in $(seq {WORKSPACE_MB}); do head -c 1048576 /dev/urandom > data/$i; done; sync"


def ask(deployment, method, path, body=None):
    reply = deployment.request(method, path, body, timeout=120, record=False)
    if reply.status >= 300:
        raise RuntimeError(f"{method} {path}: {reply}")
    return reply.json if reply.body else None


def first_output(deployment, grant):
    reply = deployment.exec(grant, argv=["/bin/echo", "x"])
    if reply.status != 200 or reply.json.get("stdout") != "x\n":
        raise RuntimeError(f"exec: {reply}")


def timed(act):
    started = time.perf_counter()
    result = act()
    return time.perf_counter() - started, result


class Storage:
    """One kind of storage: the series of each act."""

    def __init__(self, deployment):
        self.d, self.series, self.number = deployment, {}, 0
        self.grant = deployment.negotiate("source", resources={"memory_mb": 2048, "disk_mb": 1024})
        self.id = self.grant["sandbox"]["id"]
        deployment.shell(self.grant, FILL)

    def note(self, name, took):
        self.series.setdefault(name, []).append(took)

    def born(self, snapshot, thread):
        grant = self.d.negotiate(thread, template="snapshot:" + snapshot, resources={"memory_mb": 2048, "disk_mb": 1024})
        first_output(self.d, grant)
        return grant

    def snapshot(self):
        took, reply = timed(lambda: ask(self.d, "POST", f"/sandboxes/{self.id}/snapshots", {}))
        return took, reply["snapshot"]["id"]

    def turn(self):
        self.number += 1
        took, snapshot = self.snapshot()
        self.note(f"snapshot of {WORKSPACE_MB} MB", took)
        took, grant = timed(lambda: self.born(snapshot, f"restored-{self.number}"))
        self.note("restore + first exec", took)
        if self.number == 1 and self.d.shell(grant, "ls data | wc -l").strip() != str(WORKSPACE_MB):
            raise RuntimeError("the restored workspace is not whole")
        ask(self.d, "DELETE", "/sandboxes/" + grant["sandbox"]["id"])
        ask(self.d, "DELETE", "/snapshots/" + snapshot)
        self.fork(10)
        self.pause()

    def fork(self, count):
        started = time.perf_counter()
        _, snapshot = self.snapshot()
        grants = [self.born(snapshot, f"fork-{self.number}-{n}") for n in range(count)]
        self.note(f"fork {count} (snapshot, {count} creates + exec)", time.perf_counter() - started)
        for grant in grants:
            ask(self.d, "DELETE", "/sandboxes/" + grant["sandbox"]["id"])
        ask(self.d, "DELETE", "/snapshots/" + snapshot)

    def pause(self):
        self.note("pause", timed(lambda: ask(self.d, "POST", f"/sandboxes/{self.id}/pause"))[0])
        self.note("resume by use, until first output", timed(lambda: first_output(self.d, self.grant))[0])
        self.note("exec when not paused", timed(lambda: first_output(self.d, self.grant))[0])


def copy_floor(times):
    """cp -a of as many bytes within the folder of the state: what a snapshot without sharing is."""
    folder = tempfile.mkdtemp(prefix="parley-copy-")
    try:
        subprocess.run(["sh", "-c", FILL], cwd=folder, check=True)
        took = []
        for n in range(times):
            took.append(timed(lambda: subprocess.run(["cp", "-a", "data", f"copy{n}"], cwd=folder, check=True))[0])
            shutil.rmtree(f"{folder}/copy{n}")
        return took
    finally:
        shutil.rmtree(folder)


def bench_storage(tools, times=10, kinds=("btrfs", "tmpfs", "folder")):
    print(f"snapshot, restore, fork and pause of a sandbox with {WORKSPACE_MB} files of 1 MiB in its workspace")
    floor = tools.show(f"cp -a of {WORKSPACE_MB} MB", copy_floor(times))
    for kind in kinds:
        with House(tools, PARLEY_STORAGE=kind, **COLD) as house:
            storage = Storage(house.deployment)
            for _ in range(times):
                storage.turn()
            p50 = {name: tools.show(f"{kind}: {name}", series) for name, series in storage.series.items()}
            tools.ratio(f"{kind}: snapshot / cp -a", p50[f"snapshot of {WORKSPACE_MB} MB"] / floor, "none set")
            tools.tell("storage", kind=kind, floor_ms=round(floor * 1e3, 2),
                       p50_ms={name: round(value * 1e3, 2) for name, value in p50.items()})
