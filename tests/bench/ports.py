"""Requests through a port of a sandbox: the app by itself and libh2o's own reverse proxy before it, both driven inside the
sandbox's network, and the same app through sandboxd, with a bearer and as a preview. wrk, in turns."""
import os
import re
import shutil
import subprocess
import time

APP_PORT, PEER_PORT, SECONDS = 3000, 3001, 4


def wrk(command, url, connections, headers=()):
    command = [*command, "wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "--latency"]
    for header in headers:
        command += ["-H", header]
    out = subprocess.run([*command, url], check=True, stdout=subprocess.PIPE, text=True).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))
    value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", out).groups()
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    if bad:
        raise RuntimeError(f"{url}: {bad.group(1)} answers were refused")
    return rate, float(value) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


def init_of(deployment, grant):
    """A process of the sandbox, as the host numbers it."""
    wanted = grant["sandbox"]["name"]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as comm:
                if comm.read().strip() == "bench-http_cons"[:15] and os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
                    return pid
        except OSError:
            continue
    raise RuntimeError(f"the app of {wanted} is not to be found")


def start_app(deployment, grant, binary):
    with open(binary, "rb") as source:
        done = deployment.request("PUT", grant["endpoints"]["http"] + "/files/workspace/bench-http_constant?mode=755", source.read(),
                                  grant["token"])
    assert done.status in (200, 201), done
    done = deployment.request("POST", grant["endpoints"]["http"] + "/exec",
                              {"argv": ["/workspace/bench-http_constant", str(APP_PORT)], "detach": True, "stream": "none"},
                              grant["token"])
    assert done.status == 201, done
    time.sleep(1)


def bench_ports(deployment_class, bench_folder, ratio, quick):
    if not shutil.which("wrk"):
        print("  there is no wrk here")
        return
    with deployment_class() as deployment:
        grant = deployment.negotiate("ports")
        start_app(deployment, grant, os.path.join(bench_folder, "bench-http_constant"))
        inside = ["nsenter", "--net", "-t", init_of(deployment, grant)]
        peer = subprocess.Popen([*inside, os.path.join(bench_folder, "bench-http_proxy"), str(PEER_PORT), str(APP_PORT)])
        try:
            time.sleep(0.5)
            token = deployment.cli("token", "--attenuate", f"port@{APP_PORT}", "--token", grant["token"]).stdout.strip()
            host = f"{APP_PORT}-{grant['sandbox']['id'].replace('_', '-')}.localhost"
            base = grant["endpoints"]["http"]
            ways = {
                "app": (inside, f"http://127.0.0.1:{APP_PORT}/", ()),
                "libh2o's proxy": (inside, f"http://127.0.0.1:{PEER_PORT}/", ()),
                "/ports, bearer": ([], f"{base}/ports/{APP_PORT}/", [f"Authorization: Bearer {token}"]),
                "preview, cookie": ([], base.split("/s/")[0] + "/", [f"Host: {host}", f"Cookie: parley_preview={token}"]),
            }
            for connections in (1, 16) if not quick else (16,):
                found = {name: (0.0, 1e9) for name in ways}
                for _ in range(1 if quick else 3):
                    for name, (command, url, headers) in ways.items():
                        found[name] = max(found[name], wrk(command, url, connections, headers))
                print(f"  {connections} connections, the best of the turns")
                for name, (rate, p99) in found.items():
                    print(f"    {name:20} {rate:9.0f}/s   p99 {p99:7.2f} ms")
                for name in ("/ports, bearer", "preview, cookie"):
                    ratio(f"{name} / app, {connections}", found[name][0] / found["app"][0], "told")
                    ratio(f"{name} / libh2o's proxy, {connections}", found[name][0] / found["libh2o's proxy"][0], "none set")
        finally:
            peer.kill()
            peer.wait()
