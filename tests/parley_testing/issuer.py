"""An outside issuer for tests: keys by openssl(1), tokens as they should be and as they should not, and a server of its keys."""
import base64
import hashlib
import hmac
import http.server
import json
import os
import re
import ssl
import subprocess
import threading
import time


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def compact(value):
    return b64(value if isinstance(value, bytes) else json.dumps(value).encode())


def openssl(*arguments, data=None):
    return subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=True, timeout=60).stdout


def raw_signature(der):
    """r and s of a DER SEQUENCE of two INTEGERs, 32 bytes each."""
    first = 4 + der[3]
    numbers = der[4:first], der[first + 2:]
    return b"".join(number.lstrip(b"\0").rjust(32, b"\0") for number in numbers)


class Key:
    """`kind` is RS256 or ES256; a private key in a file of the folder."""

    def __init__(self, folder, kid, kind):
        self.kid, self.kind = kid, kind
        self.file = os.path.join(folder, f"{kid}-{os.urandom(4).hex()}.pem")
        options = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"] if kind == "RS256" else \
            ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
        openssl("genpkey", *options, "-out", self.file)
        self.public_pem = openssl("pkey", "-in", self.file, "-pubout")
        self.jwk = self.read_jwk()

    def read_jwk(self):
        told = openssl("pkey", "-in", self.file, "-pubout", "-text", "-noout").decode()
        digits = re.sub(r"[\s:]", "", re.search(r"(?:Modulus|pub):\n([\s0-9a-f:]+)", told).group(1))
        number = bytes.fromhex(digits).lstrip(b"\0")
        if self.kind == "RS256":
            return {"kty": "RSA", "kid": self.kid, "use": "sig", "n": b64(number), "e": "AQAB"}
        return {"kty": "EC", "crv": "P-256", "kid": self.kid, "x": b64(number[1:33]), "y": b64(number[33:])}

    def sign(self, head, claims):
        text = f"{compact(head)}.{compact(claims)}"
        signature = openssl("dgst", "-sha256", "-sign", self.file, data=text.encode())
        return f"{text}.{b64(raw_signature(signature) if self.kind == 'ES256' else signature)}"


class Issuer:
    def __init__(self, name, audience="parley"):
        self.issuer, self.audience, self.name = f"https://{name}.example/", audience, name

    def claims(self, subject="ada", **more):
        """Of a good token; None takes one away."""
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": self.audience, "sub": subject, "iat": now, "exp": now + 300, **more}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, key, subject="ada", head=None, **more):
        return key.sign({"alg": key.kind, "typ": "at+jwt", "kid": key.kid, **(head or {})}, self.claims(subject, **more))


def unsigned(head, claims):
    return f"{compact(head)}.{compact(claims)}."


def with_secret(secret, head, claims):
    text = f"{compact(head)}.{compact(claims)}"
    return f"{text}.{b64(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


class KeyServer:
    """Serves a set of keys; `hangs` while it is set."""

    def __init__(self, keys, certificate=None):
        self.keys, self.asked, self.hangs = keys, 0, threading.Event()
        self.go_on = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                if outer.hangs.is_set():
                    outer.go_on.wait(60)
                body = json.dumps({"keys": [key.jwk for key in outer.keys]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):  # who does not trust us hangs up
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificate:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}/keys"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


def self_signed(folder, name):
    """(certificate, key) for 127.0.0.1."""
    certificate, key = os.path.join(folder, name + ".crt"), os.path.join(folder, name + ".key")
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
            "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate)
    return certificate, key
