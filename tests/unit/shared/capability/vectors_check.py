#!/usr/bin/env python3
"""Recomputes, from the texts alone and with the standard library alone, every derived key, MAC and link id in
specs/capability-vectors.json. Exits 0 when all agree, 1 when one does not; says how many were computed."""
import base64
import hashlib
import hmac
import json
import pathlib
import sys

VECTORS = pathlib.Path(__file__).resolve().parents[4] / "specs" / "capability-vectors.json"
MAC_MAY_HOLD = {"ok", "wrong_claims", "wrong_link", "wrong_issuer", "wrong_audience", "wrong_epoch", "expired",
                "from_the_future"}


def kdf(key, label, parts):
    text = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in [label, *parts])
    return hashlib.blake2b(text, key=key, digest_size=32).digest()


def decode(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def macs(root, token):
    """The MAC of the root and after each link; the epoch is the kid's."""
    header, payload, *links, _ = token.split(".")
    epoch = json.loads(decode(header))["kid"].split(".")[1]
    made = [hmac.new(kdf(root, "parley/token/1", [epoch]), f"{header}.{payload}".encode(), hashlib.sha256).digest()]
    for link in links:
        made.append(hmac.new(made[-1], f".{link}".encode(), hashlib.sha256).digest())
    return made


def link_id(mac):
    digest = hashlib.blake2b(b"parley/link-id/1" + mac, digest_size=16).digest()
    return "lnk_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def check_token(root, vector):
    made = macs(root, vector["token"])
    holds = hmac.compare_digest(made[-1], decode(vector["token"].rsplit(".", 1)[1]))
    if holds != (vector["refusal"] in MAC_MAY_HOLD or vector.get("unknown", False)):
        return f"the MAC {'holds' if holds else 'does not hold'}"
    ids = vector.get("claims", {}).get("link_ids")
    if ids is not None and ids != [link_id(mac) for mac in made[1:]]:
        return "link ids differ"
    return None


def main():
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    root = bytes.fromhex(vectors["verifier"]["root"])
    wrong = [f"kdf {row['label']} {row['parts']}" for row in vectors["kdf"]
             if kdf(bytes.fromhex(row["key"]), row["label"], row["parts"]).hex() != row["result"]]
    signed = [row for row in vectors["tokens"] if row["refusal"] in MAC_MAY_HOLD | {"wrong_mac"}]
    signed += [{"name": "attenuation", "token": row[text], "refusal": "ok"} for row in vectors["attenuations"]
               for text in ("token", "result") if row[text]]
    for row in signed:
        difference = check_token(root, row)
        if difference:
            wrong.append(f"{row['name']}: {difference}")
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(vectors['kdf'])} keys and {len(signed)} tokens recomputed, {len(wrong)} differ")
    return 1 if wrong or len(signed) < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
