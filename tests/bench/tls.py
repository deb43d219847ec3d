"""What TLS costs: requests with a token by kept connections, a file down, and connections a second, each against plain HTTP
in the same run. Every handshake is a whole one: nothing is resumed."""
import socket
import statistics
import subprocess
import time
import urllib.parse

from parley_testing.deployment import TRUST

FILE_BYTES = 64 << 20


def connections_a_second(url, seconds=2):
    """Connect, ask /healthz, close; one after another."""
    parts = urllib.parse.urlsplit(url)
    began, count = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        connection = socket.create_connection((parts.hostname, parts.port), 10)
        if parts.scheme == "https":
            connection = TRUST.wrap_socket(connection, server_hostname=parts.hostname)
        with connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        count += 1
    return count / (time.monotonic() - began)


def curl_mib_a_second(deployment, grant):
    done = subprocess.run(["curl", "-s", "--cacert", deployment.state + "/tls/ca.pem" if deployment.tls else "/dev/null", "-H",
                           "Authorization: Bearer " + grant["token"], "-o", "/dev/null", "-w", "%{speed_download}",
                           grant["endpoints"]["http"] + "/files/workspace/big"], capture_output=True, text=True, check=True)
    return float(done.stdout) / (1 << 20)


def bench_tls(deployment, wrk, ratio):
    found = {}
    with deployment(tls=False) as plain, deployment(tls=True) as secure:
        both = {"http": (plain, plain.negotiate("tls")), "https": (secure, secure.negotiate("tls"))}
        for name, (d, grant) in both.items():
            found[name] = {"requests": [], "file": [], "connections": []}
            d.shell(grant, f"head -c {FILE_BYTES} /dev/urandom > big")
        for _ in range(3):
            for name, (d, grant) in both.items():
                one = wrk(grant["endpoints"]["http"] + "/info", 64, headers=["Authorization: Bearer " + grant["token"]])
                found[name]["requests"].append(one.rate)
                found[name]["file"].append(curl_mib_a_second(d, grant))
                found[name]["connections"].append(connections_a_second(d.node_url))
                print(f"  {name:5} {one}   file {found[name]['file'][-1]:.0f} MiB/s   "
                      f"{found[name]['connections'][-1]:.0f} connections/s")
    for what, wanted in (("requests", ">= 0.4"), ("file", ">= 0.2"), ("connections", "-")):
        rates = [statistics.median(found[name][what]) for name in ("https", "http")]
        ratio(f"{what}, https / http", rates[0] / rates[1], wanted)
    print("  bound by: wrk, curl and the server share two cores, so each byte's cipher is paid twice; the pair between TLS and the\n"
          "  connection (shared/http/DESIGN.md); connections: one signature and key exchange each side")
