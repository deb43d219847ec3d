"""Two sandboxes share no file of ours: the program that a context finds as descriptor 3 is a copy of each one's own, whose
locks and watches reach nobody else, and cannot be written."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402

LOOK = r"""
for f in /proc/[0-9]*/exe /proc/[0-9]*/fd/*; do
    [[ $(readlink $f) == /memfd:program* ]] || continue
    { echo x > $f; } 2>/dev/null && echo written
    chmod 0 $f 2>/dev/null && echo changed
    echo inode $(stat -L -c %i $f)
done
"""


@needs_root
class Programs(unittest.TestCase):
    def inodes(self, deployment, grant):
        base = grant["endpoints"]["http"]
        kernel = deployment.request("POST", base + "/kernels", {"language": "bash"}, token=grant["token"])
        self.assertEqual(kernel.status, 201, kernel)
        reply = deployment.request("POST", f"{base}/kernels/{kernel.json['id']}/run", {"code": LOOK, "stream": "none"},
                                   token=grant["token"])
        self.assertEqual(reply.status, 200, reply)
        text = json.dumps(reply.json)
        self.assertNotIn("written", text)
        self.assertNotIn("changed", text)
        words = text.replace("\\n", " ").replace('"', " ").split()
        return {words[at + 1] for at, word in enumerate(words) if word == "inode"}

    def test_no_two_share_one(self):
        with Deployment() as deployment:
            one, two = (self.inodes(deployment, deployment.negotiate(thread)) for thread in ("one", "two"))
            self.assertTrue(one and two, (one, two))
            self.assertEqual(one & two, set())


if __name__ == "__main__":
    unittest.main()
