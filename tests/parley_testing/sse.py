"""A follower of server-sent events, of the plainest kind."""
import http.client
import json
import urllib.parse


class Events:
    """GET of a stream; iterate it for (id, type, data). Times out when nothing at all comes for `timeout` seconds."""

    def __init__(self, deployment, path="/events", key=None, headers=None, timeout=30):
        parts = urllib.parse.urlsplit(deployment.url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        self.connection.request("GET", path, headers={"Authorization": "Bearer " + (key or deployment.key),
                                                      **(headers or {})})
        self.reply = self.connection.getresponse()
        self.status = self.reply.status
        self.last = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.reply.close()
        self.connection.close()

    def __iter__(self):
        name, data = "message", ""
        while True:
            line = self.reply.readline()
            if not line:
                return
            line = line.decode().rstrip("\n")
            if line.startswith("id: "):
                self.last = int(line[4:])
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data += line[6:]
            elif line == "" and data:
                yield self.last, name, json.loads(data)
                name, data = "message", ""

    def until(self, wanted):
        """All up to the first for which wanted(type, data) holds."""
        seen = []
        for number, name, data in self:
            seen.append((number, name, data))
            if wanted(name, data):
                return seen
        raise AssertionError(f"the stream ended; seen {[s[1] for s in seen]}")
