"""Whether the time of an answer tells that something of somebody else's is there: a foreign sandbox or thing against one that
there is not, asked in turn (shuffled) on one kept connection. A report, no test: noise is the machine's."""
import math
import os
import random
import statistics
import time

from parley_testing.token import compact, header, sign

KINDS = ("there", "nowhere")


def mann_whitney(first, second):
    """z of the rank sum: 0 when neither tends to be larger; beyond 3 in either direction there is something to find."""
    ranked = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    ranks = sum(rank for rank, (_, which) in enumerate(ranked, 1) if which == 0)
    n, m = len(first), len(second)
    return (ranks - n * (n + m + 1) / 2) / math.sqrt(n * m * (n + m + 1) / 12)


def median_error(values):
    """Standard error of the median, by the width of the order statistics about it."""
    values, width = sorted(values), 1.96 * math.sqrt(len(values)) / 2
    at = lambda rank: values[max(0, min(len(values) - 1, int(rank)))]  # noqa: E731
    return (at(len(values) / 2 + width) - at(len(values) / 2 - width)) / (2 * 1.96)


class Asker:
    def __init__(self, connection):
        self.http = connection.http

    def seconds(self, path, token):
        began = time.perf_counter()
        self.http.request("GET", path, None, {"Authorization": "Bearer " + token})
        answer = self.http.getresponse()
        answer.read()
        return time.perf_counter() - began, answer.status


def forged(sandbox):
    """A token of that sandbox as anybody could write it who knows no key."""
    claims = {"iss": "dpl_x", "aud": sandbox, "sub": "x", "jti": "tok_" + "a" * 20, "fam": "tok_" + "a" * 20, "iat": int(time.time()),
              "exp": int(time.time()) + 900, "scope": "process", "thread_id": "x", "lease": "lse_" + "a" * 20, "act": "human"}
    return sign(os.urandom(32), header(sandbox, 1), compact(claims))


def compare(tools, name, asker, paths, tokens, turns):
    """`paths` and `tokens` by kind."""
    seconds, statuses = {kind: [] for kind in KINDS}, {}
    for _ in range(turns):
        for kind in random.sample(KINDS, 2):
            took, statuses[kind] = asker.seconds(paths[kind], tokens[kind])
            seconds[kind].append(took)
    seconds = {kind: values[turns // 20:] for kind, values in seconds.items()}  # the first warm everything
    medians = {kind: statistics.median(values) for kind, values in seconds.items()}
    z = mann_whitney(seconds["there"], seconds["nowhere"])
    error = math.hypot(*(median_error(values) for values in seconds.values()))
    print(f"  {name:44} there {medians['there'] * 1e6:7.1f} us  nowhere {medians['nowhere'] * 1e6:7.1f} us  "
          f"difference {(medians['there'] - medians['nowhere']) * 1e6:+6.2f} +- {error * 1e6:.2f} us  z {z:+.1f}  "
          f"answers {statuses['there']}/{statuses['nowhere']}  n={len(seconds['there'])}")
    tools.tell("foreign", what=name, difference_us=(medians["there"] - medians["nowhere"]) * 1e6, error_us=error * 1e6, z=z)


def bench_foreign(tools, turns):
    print("a foreign thing against one that there is not: does the time tell?")
    with tools.deployment() as d:
        mine, theirs = d.negotiate("mine"), d.negotiate("theirs")
        command = d.exec(theirs, cmd="sleep 600", detach=True).json["id"]
        node = Asker(tools.connection(mine["endpoints"]["http"], mine["token"]))
        own, other, nobody = (f"/s/{each}" for each in (mine["sandbox"]["id"], theirs["sandbox"]["id"], "sbx_" + "z" * 20))
        absent = "sbx_" + "z" * 20
        same = lambda token: dict.fromkeys(KINDS, token)  # noqa: E731
        forgeries = {"there": forged(theirs["sandbox"]["id"]), "nowhere": forged(absent)}
        for path in ("/info", "/files/etc/hostname", "/processes/" + command):
            for said, tokens in (("another's token", same(mine["token"])), ("a forged token of it", forgeries)):
                compare(tools, f"{path.replace(command, 'ID')}, {said}", node, {"there": other + path, "nowhere": nobody + path}, tokens, turns)
        compare(tools, "/processes/ID of another sandbox, in one's own", node,
                {"there": f"{own}/processes/{command}", "nowhere": f"{own}/processes/exe_{'a' * (len(command) - 4)}"}, same(mine["token"]), turns)
        negotiator = Asker(tools.connection(d.url, d.key))
        compare(tools, "/threads/ID/sandbox, a wrong key", negotiator,
                {"there": "/threads/theirs/sandbox", "nowhere": "/threads/nobody/sandbox"}, same("rubbish"), turns)
    print("  z: of the rank sum; within -3..3 nothing is told by so many answers. Who is elsewhere has the network's noise as well")
