"""What tests of OpenSandbox's data plane share: a stream of events read as it comes, and waiting for what comes."""
import http.client
import json
import time
import urllib.parse

PORT = "/port/44772"
PATIENCE_S = 60


def until(look, seconds=PATIENCE_S):
    """What `look` gives as soon as that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come")


class Stream:
    """A POST below test.base, by the token of test.grant, read as it comes."""

    def __init__(self, test, path, body):
        parts = urllib.parse.urlsplit(test.base)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)
        self.connection.request("POST", parts.path + path, json.dumps(body),
                                {"X-EXECD-ACCESS-TOKEN": test.grant["token"], "Content-Type": "application/json",
                                 "Accept": "text/event-stream"})
        self.reply = self.connection.getresponse()

    def next(self):
        """The next event, by the framing that clients need; None at the end."""
        line = self.reply.readline()
        if not line:
            return None
        blank = self.reply.readline()
        if not line.endswith(b"}\n") or blank != b"\n":
            raise AssertionError(f"not a JSON object and a blank line: {line[:200]!r} {blank[:200]!r}")
        return json.loads(line)

    def wait(self, text):
        """Until an event has this text."""
        for event in iter(self.next, None):
            if event.get("text", "").strip() == text:
                return event
        raise AssertionError(f"no event with {text}")

    def rest(self):
        return list(iter(self.next, None))

    def close(self):
        self.connection.close()
        self.reply.close()
