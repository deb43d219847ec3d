#!/usr/bin/env python3
"""Writes specs/capability-vectors.json: python3 tests/unit/shared/capability/vectors_make.py > specs/capability-vectors.json

An implementation of specs/capability.md of its own, on the standard library alone: it shares no line with the C code that
has to agree with it. The output is the same on every run. vectors_check.py and vectors_test.c read it."""
import base64
import hashlib
import hmac
import json

ISSUER = "dep_vectors"
SANDBOX = "sbx_a1b2c3d4e5f6g7h8i9j0"
ISSUED = 1795305600  # 2026-11-22T00:00:00Z
EXPIRES = ISSUED + 900
MASTER = bytes(range(32))


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def kdf(key, label, *parts):
    hashed = hashlib.blake2b(key=key, digest_size=32)
    for text in (label, *parts):
        hashed.update(len(text.encode()).to_bytes(4, "big") + text.encode())
    return hashed.digest()


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


NODE = kdf(MASTER, "parley/node/1", "n1", "1")
ROOT = kdf(NODE, "parley/sandbox/1", SANDBOX)


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def header(alg="HS256", typ="JWT", kid=SANDBOX + ".1"):
    return compact({"alg": alg, "typ": typ, "kid": kid})


def claims(**changes):
    made = {"iss": ISSUER, "aud": SANDBOX, "sub": "ann", "jti": "tok_0000000000000000000a",
            "fam": "tok_00000000000000000000", "iat": ISSUED, "exp": EXPIRES,
            "scope": "fs:rw shell process port", "thread_id": "t1", "lease": "lse_00000000000000000000",
            "act": "agent:builder"}
    made.update(changes)
    return {name: value for name, value in made.items() if value is not None}


def token(payload=None, head=None, epoch=1, links=()):
    """A rightly signed token; payload, head and links are texts or values."""
    def text(value):
        return value if isinstance(value, str) else compact(value)
    made = b64(text(head or header()).encode()) + "." + b64(text(claims() if payload is None else payload).encode())
    last = mac(kdf(ROOT, "parley/token/1", str(epoch)), made)
    for link in links:
        part = "." + b64(text(link).encode())
        last = mac(last, part)
        made += part
    return made + "." + b64(last)


def link_ids(links, payload=None):
    ids = []
    for count in range(1, len(links) + 1):
        last = token(payload, links=links[:count]).rsplit(".", 1)[1]
        raw = base64.urlsafe_b64decode(last + "=")
        ids.append("lnk_" + b64(hashlib.blake2b(b"parley/link-id/1" + raw, digest_size=16).digest()))
    return ids


TOKENS = []


def add(name, text, refusal, now=ISSUED + 10, **more):
    TOKENS.append({"name": name, "token": text, "now": now, "refusal": refusal, **more})


def add_valid(name, payload=None, links=(), scope=None, exp=None, note="", now=ISSUED + 10, epoch=1, **more):
    payload = claims() if payload is None else payload
    text = token(payload, head=header(kid=f"{SANDBOX}.{epoch}"), epoch=epoch, links=links)
    result = {**payload, "scope": payload["scope"] if scope is None else scope,
              "exp": payload["exp"] if exp is None else exp, "epoch": epoch, "note": note, "link_ids": link_ids(links, payload)}
    add(name, text, "ok", now, claims=result, **more)


def add_tokens():
    add_valid("valid")
    add_valid("valid, human", claims(act="human", sub="corp:ann x|y"))
    add_valid("valid, long-lived", claims(long=True, exp=ISSUED + 28800))
    add_valid("valid, no scope", claims(scope=""))
    add_valid("valid, resources", claims(scope="fs:ro@/a%20b/c port@8080 shell:ro"))
    add_valid("valid, an unknown scope gives nothing", claims(scope="root fs:rw port@0 fs:ro@relative"), scope="fs:rw")
    add_valid("valid, a higher epoch than the verifier's", epoch=2)
    add_valid("valid at the last second", now=EXPIRES + 4)
    add_valid("valid, issued 5 s ahead", now=ISSUED - 5)
    add("too long", "A" * 10240, "too_long")
    good = token()
    for name, text in [("empty", ""), ("one part", "AAAA"), ("two parts", "AAAA.AAAA"), ("empty part", "AAAA..AAAA"),
                       ("empty MAC", good.rsplit(".", 1)[0] + "."), ("trailing dot", good + "."),
                       ("leading dot", "." + good), ("leading space", " " + good), ("trailing newline", good + "\n"),
                       ("padding", good + "="), ("standard alphabet", "AAA+.AAA/.AAAA"), ("length 1 mod 4", "AAAAA.AA.AA"),
                       ("unused bits", "AB.AAAA.AAAA"), ("twelve parts", ".".join(["AAAA"] * 12))]:
        add(name, text, "malformed")
    for name, head in [("alg none", header(alg="none")), ("alg HS512", header(alg="HS512")),
                       ("alg RS256", header(alg="RS256")), ("typ login+jwt", header(typ="login+jwt")),
                       ("kid without epoch", header(kid=SANDBOX)), ("epoch with leading zero", header(kid=SANDBOX + ".01")),
                       ("epoch above 2^32-1", header(kid=SANDBOX + ".4294967296")),
                       ("header reordered", compact({"typ": "JWT", "alg": "HS256", "kid": SANDBOX + ".1"})),
                       ("header with a space", header().replace(",", ", ")),
                       ("header with one more field", header()[:-1] + ',"jku":"x"}')]:
        add(name, token(head=head), "wrong_header")
    add("another sandbox", token(head=header(kid="sbx_00000000000000000000.1")), "wrong_sandbox")
    add("wrong key", token(epoch=2), "wrong_mac")
    add("unknown sandbox", good, "wrong_mac", unknown=True)
    add("claims changed", ".".join([good.split(".")[0], token(claims(sub="bob")).split(".")[1], good.split(".")[2]]),
        "wrong_mac")
    add("short MAC", good[:-3], "wrong_mac")


def add_wrong_claims():
    for name in claims():
        add("claim missing: " + name, token(claims(**{name: None})), "wrong_claims")
        add("claim mistyped: " + name, token(claims(**{name: "x" if name in ("iat", "exp") else 7})), "wrong_claims")
    text = compact(claims())
    for name, payload in [("not JSON", "x"), ("no object", "[]"), ("blank", text.replace(",", ", ")),
                          ("escape", text.replace("ann", "\\u0061nn")), ("trailing text", text + "x"),
                          ("duplicate", text[:-1] + ',"sub":"root"}'), ("unknown claim", claims(role="admin")),
                          ("long false", claims(long=False)), ("real", text.replace(str(EXPIRES), str(EXPIRES) + ".0")),
                          ("audience a list", claims(aud=[SANDBOX])), ("thread ..", claims(thread_id="..")),
                          ("actor agent without id", claims(act="agent")), ("two spaces", claims(scope="fs:rw  code")),
                          ("directory beside process", claims(scope="fs:ro@/a process"))]:
        add("claims: " + name, token(payload), "wrong_claims")
    add("other issuer", token(claims(iss="dep_other")), "wrong_issuer")
    add("other audience", token(claims(aud="sbx_00000000000000000000")), "wrong_audience")
    add("epoch no longer in force", token(), "wrong_epoch", epoch=2)
    add("expired", token(), "expired", now=EXPIRES + 5)
    add("from the future", token(), "from_the_future", now=ISSUED - 6)


def add_links():
    narrow = [{"scope": "fs:ro@/a process"}]
    add_valid("attenuated: scope", links=[{"scope": "fs:ro@/a port@80"}], scope="fs:ro@/a port@80")
    add_valid("attenuated: to nothing", links=[{"scope": ""}], scope="")
    add_valid("attenuated: implied scopes", links=[{"scope": "fs:ro shell:ro code"}], scope="fs:ro shell:ro code")
    add_valid("attenuated: exp", links=[{"exp": ISSUED + 60}], exp=ISSUED + 60)
    add_valid("attenuated: three links", links=[{"note": "a: b"}, {"scope": "fs:ro", "exp": ISSUED + 60},
                                                {"scope": "fs:ro@/a", "note": "ci/run-7"}],
              scope="fs:ro@/a", exp=ISSUED + 60, note="ci/run-7")
    add_valid("attenuated: eight links", links=[{"note": str(count)} for count in range(8)], note="7")
    add_valid("attenuated: JSON as others write it", links=['{ "note" : "a\\/b", "scope" : "f\\u0073:ro" }'], scope="fs:ro",
              note="a/b")
    add("attenuated: expired", token(links=[{"exp": ISSUED + 60}]), "expired", now=ISSUED + 65)
    for name, links in [("widens", [{"scope": "snapshot"}]), ("widens back", [{"scope": "fs:ro"}, {"scope": "fs:rw"}]),
                        ("out of the directory", [{"scope": "fs:ro@/a"}, {"scope": "fs:ro@/ab"}]),
                        ("later exp", [{"exp": EXPIRES + 1}]), ("unknown scope", [{"scope": "fs:rw root"}]),
                        ("directory beside process", narrow), ("unknown key", [{"sub": "root"}]), ("empty", ["{}"]),
                        ("no object", ["[]"]), ("no JSON", ["x"]), ("scope a list", [{"scope": ["fs:ro"]}]),
                        ("exp a text", [{"exp": "1"}]), ("exp a real", ['{"exp":1.0}']), ("exp negative", [{"exp": -1}]),
                        ("note empty", [{"note": ""}]), ("note too long", [{"note": "a" * 65}]),
                        ("note with a quote", [{"note": 'a"b'}]), ("duplicate", ['{"note":"a","note":"b"}'])]:
        add("link: " + name, token(links=links), "wrong_link")
    parts = token(links=[{"scope": "fs:ro"}, {"note": "x"}]).split(".")
    add("link dropped: the last", ".".join(parts[:3] + parts[4:]), "wrong_mac")
    add("link dropped: the first", ".".join(parts[:2] + parts[3:]), "wrong_mac")
    add("links dropped: all", ".".join(parts[:2] + parts[4:]), "wrong_mac")
    add("MAC dropped", ".".join(parts[:4]), "wrong_mac")
    add("ninth link", token(links=[{"note": str(count)} for count in range(9)]), "malformed")


COVERS = [("fs:rw", "fs:ro", True), ("fs:ro", "fs:rw", False), ("shell", "shell:ro", True), ("shell", "process", False),
          ("process", "code", True), ("code", "process", False), ("port", "port@80", True), ("port@80", "port", False),
          ("port@80", "port@8080", False), ("fs:rw", "fs:ro@/a", True), ("fs:rw@/a", "fs:ro@/a/b", True),
          ("fs:rw@/a", "fs:ro@/ab", False), ("fs:ro@/a", "fs:ro", False), ("fs:ro@/", "fs:ro@/a", True),
          ("fs:ro@/", "fs:ro", False), ("fs:rw shell", "", True), ("", "code", False),
          ("fs:ro@/a fs:ro@/b", "fs:ro@/b/c", True), ("fs:ro@/%61", "fs:ro@/a/%C3%A9", True),
          ("network", "network", True), ("fs:rw shell process code port snapshot", "network", False),
          ("network", "port", False)]
NO_SCOPES = ["fs", "fs:rx", "shell:rw", "process@1", "snapshot@x", "network@x", "port@", "port@0", "port@65536", "port@080", "fs:ro@",
             "fs:ro@a", "fs:ro@/a/", "fs:ro@//a", "fs:ro@/a/../b", "fs:ro@/%2e%2e", "fs:ro@/%00", "fs:ro@/%4",
             "fs:ro@/a?b"]


def attenuations():
    root, narrow = token(), token(links=[{"scope": "fs:ro@/a", "exp": ISSUED + 60}])
    return [{"token": root, "link": link, "result": token(links=[link])} for link in
            ({"scope": "fs:ro@/a port@80"}, {"exp": ISSUED + 60}, {"note": "ci"},
             {"scope": "code", "exp": ISSUED + 1, "note": "a b"})] + [
        {"token": narrow, "link": {"note": "x"},
         "result": token(links=[{"scope": "fs:ro@/a", "exp": ISSUED + 60}, {"note": "x"}])}] + [
        {"token": text, "link": link, "result": None} for text, link in
        ((root, {}), (root, {"scope": "snapshot"}), (root, {"scope": "root"}), (root, {"exp": EXPIRES + 1}),
         (root, {"note": "a\nb"}), (narrow, {"scope": "fs:ro"}), (narrow, {"exp": ISSUED + 61}))]


def main():
    add_tokens()
    add_wrong_claims()
    add_links()
    deriving = [(MASTER, "parley/node/1", ["n1", "1"]), (NODE, "parley/sandbox/1", [SANDBOX]),
                (ROOT, "parley/token/1", ["1"]), (ROOT, "parley/token/1", ["4294967295"]),
                (NODE, "parley/link/1", ["negotiator"]), (NODE, "parley/link/1", ["sandboxd"]),
                (MASTER, "parley/login/1", []), (MASTER, "parley/login/1", [""])]
    print(json.dumps({
        "about": "Vectors for specs/capability.md. A token is judged by {issuer, sandbox_id, root, epoch}, where a vector's"
                 " own epoch or unknown replaces that of verifier, at the vector's now.",
        "verifier": {"issuer": ISSUER, "sandbox_id": SANDBOX, "root": ROOT.hex(), "epoch": 1, "unknown": False},
        "kdf": [{"key": key.hex(), "label": label, "parts": parts, "result": kdf(key, label, *parts).hex()}
                for key, label, parts in deriving],
        "scopes": [{"outer": outer, "inner": inner, "covers": covers} for outer, inner, covers in COVERS],
        "no_scopes": NO_SCOPES,
        "attenuations": attenuations(),
        "tokens": TOKENS}, indent=1))


if __name__ == "__main__":
    main()
