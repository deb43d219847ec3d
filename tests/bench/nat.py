"""Throughput out of a sandbox through its link, both walls and NAT, against the same program on this machine."""
import json
import statistics
import subprocess
import sys

from parley_testing import Deployment
from parley_testing.world import DNS, PLAIN, World

# Sends so many MiB by sendfile, waits until the other end has taken all, prints MiB/s.
SEND = r"""
import os, socket, sys, time
size = int(sys.argv[3]) << 20
source = os.memfd_create('source')
os.ftruncate(source, 16 << 20)
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
s.settimeout(None)
begun, sent = time.monotonic(), 0
while sent < size:
    sent += os.sendfile(s.fileno(), source, sent % (16 << 20), min(size - sent, (16 << 20) - sent % (16 << 20)))
s.shutdown(socket.SHUT_WR)
s.recv(1)
print((size >> 20) / (time.monotonic() - begun))
"""
# As many connections one after another, each with a byte to and fro; prints how many a second.
CONNECT = r"""
import socket, sys, time
count, begun = int(sys.argv[3]), time.monotonic()
for _ in range(count):
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as s: s.recv(1)
print(count / (time.monotonic() - begun))
"""


def outside(program, port, count):
    words = [sys.executable, "-c", program, PLAIN, str(port), str(count)]
    return float(subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout)


def inside(deployment, grant, program, port, count):
    reply = deployment.exec(grant, argv=["/usr/bin/python3", "-c", program, PLAIN, str(port), str(count)])
    if reply.status != 200 or reply.json["exit_code"] != 0:
        raise RuntimeError(str(reply))
    return float(reply.json["stdout"])


def nat(quick):
    times, mib, connections = (3, 512, 200) if quick else (9, 4096, 900)
    figures = {"out": [], "out_host": [], "connects": [], "connects_host": []}
    with World():
        with Deployment(PARLEY_DNS_SERVERS=DNS) as deployment:
            grant = deployment.negotiate("bench", network={"egress": "allow", "allow": [PLAIN]}, resources={"cpu": 2})
            for _ in range(times):
                figures["out"].append(inside(deployment, grant, SEND, 9999, mib))
                figures["out_host"].append(outside(SEND, 9999, mib))
                figures["connects"].append(inside(deployment, grant, CONNECT, 22, connections))
                figures["connects_host"].append(outside(CONNECT, 22, connections))
    median = {name: statistics.median(values) for name, values in figures.items()}
    print(f"  {'sendfile out through NAT':44} {median['out']:8.0f} MiB/s   without a sandbox {median['out_host']:8.0f}")
    print(f"  {'connections through NAT':44} {median['connects']:8.0f} /s      without a sandbox {median['connects_host']:8.0f}")
    print(f"  {'-> throughput / without a sandbox':44} {median['out'] / median['out_host']:.2f}   (goal none set)")
    print(f"  {'-> connections / without a sandbox':44} {median['connects'] / median['connects_host']:.2f}   (goal none set)")
    print(json.dumps({"bench": "nat", "times": times, "mib": mib,
                      **{name: round(value, 1) for name, value in median.items()}}))
