"""Capabilities made from the outside, by the specification alone (specs/capability.md): for forging them."""
import base64
import hashlib
import hmac
import json
import struct
import time


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def kdf(key, label, *parts):
    digest = hashlib.blake2b(key=key, digest_size=32)
    for part in (label, *parts):
        data = part.encode()
        digest.update(struct.pack(">I", len(data)) + data)
    return digest.digest()


def token_key(master, node, sandbox, epoch=1, node_epoch=1):
    node_key = kdf(master, "parley/node/1", node, str(node_epoch))
    root = kdf(node_key, "parley/sandbox/1", sandbox)
    return kdf(root, "parley/token/1", str(epoch))


def header(sandbox, epoch=1):
    return ('{"alg":"HS256","typ":"JWT","kid":"%s.%d"}' % (sandbox, epoch)).encode()


def sign(key, head, payload):
    """head and payload as raw bytes."""
    text = b64(head) + "." + b64(payload)
    return text + "." + b64(hmac.new(key, text.encode(), hashlib.sha256).digest())


def claims_of(token):
    return json.loads(unb64(token.split(".")[1]))


def link(token, payload):
    """Appends an attenuation link with these raw bytes, rightly signed."""
    *front, mac = token.split(".")
    r = b64(payload)
    signed = hmac.new(unb64(mac), b"." + r.encode(), hashlib.sha256).digest()
    return ".".join(front) + "." + r + "." + b64(signed)


def compact(claims):
    """JSON as the minter writes it: no blanks."""
    return json.dumps(claims, separators=(",", ":")).encode()


class Forge:
    """Signs whatever it is told to, with the right key of one sandbox of a deployment."""

    def __init__(self, deployment, grant):
        with open(deployment.state + "/negotiator/master.key", "rb") as key:
            self.master = key.read()
        self.grant = grant
        self.sandbox = grant["sandbox"]["id"]
        self.node = grant["sandbox"]["node"]
        self.key = token_key(self.master, self.node, self.sandbox)
        self.claims = claims_of(grant["token"])

    def token(self, head=None, **changed):
        claims = {**self.claims, "iat": int(time.time()), **changed}
        return self.raw(compact({name: value for name, value in claims.items() if value is not None}), head)

    def raw(self, payload, head=None):
        return sign(self.key, head or header(self.sandbox), payload)
