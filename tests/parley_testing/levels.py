"""A leased sandbox of some isolation level, as levels_test.py sees it; guest.py has the one that nobody leases."""
from .token import Forge, claims_of, compact, link
from .websocket import Session

SCOPES = ["fs:rw", "shell", "process"]


class Leased:
    """One sandbox of a Deployment."""

    has_walls, has_negotiator, workspace = True, True, "/workspace"

    def __init__(self, deployment, thread="levels", **body):
        self.deployment = deployment
        self.grant = deployment.negotiate(thread, scopes=SCOPES, **body)
        self.sandbox = self.grant["sandbox"]["id"]

    def token(self, scope=None):
        return link(self.grant["token"], compact({"scope": scope})) if scope else self.grant["token"]

    def wrong_tokens(self):
        """Of this sandbox by their form, and none of ours."""
        forge, token = Forge(self.deployment, self.grant), self.grant["token"]
        return [token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB"), forge.token(iss="dpl_other"),
                forge.token(exp=claims_of(token)["iat"] - 3600)]

    def request(self, method, path, body=None, token="", headers=None, timeout=60):
        return self.deployment.request(method, self.grant["endpoints"]["http"] + path, body,
                                       token=self.grant["token"] if token == "" else token, headers=headers,
                                       timeout=timeout)

    def exec(self, **body):
        body.setdefault("stream", "none")
        return self.request("POST", "/exec", body)

    def session(self, token=None):
        return Session(self.grant["endpoints"]["ws"], token or self.grant["token"])

    @property
    def hostname(self):
        return self.grant["sandbox"]["name"]

    def level_told(self):
        """By the lease; and the sandbox says the same of itself."""
        told, inside = self.grant["sandbox"]["isolation"], self.request("GET", "/info").json["sandbox"]["isolation"]
        assert told == inside, (told, inside)
        return told

    def close(self):
        self.deployment.request("DELETE", "/sandboxes/" + self.sandbox)
