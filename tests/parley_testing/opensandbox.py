"""Where the clients of OpenSandbox are that tests/compat and tests/bench drive."""
import os

from .deployment import ROOT

CASES = os.path.join(ROOT, "tests", "compat", "opensandbox")
NODE = os.path.join(ROOT, "build", "compat", "node")
PACKAGES = os.path.join(ROOT, "build", "compat", "opensandbox", "node_modules")
# What the SDK got, for the check against the published types.
REPLIES = os.path.join(ROOT, "build", "compat", "replies.jsonl")
VERSIONS = ("0.1.11", "0.1.7")
