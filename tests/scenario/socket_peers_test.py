"""/ws with clients that we did not write: the npm package ws, and Chromium without a screen."""
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from parley_testing import Deployment, needs_root  # noqa: E402
from parley_testing.deployment import ROOT  # noqa: E402

PEERS = os.path.join(ROOT, "tests", "peers")
SCOPES = ["shell", "process"]


def install_packages():
    """The folder with node_modules; skips when there is no npm or no way to its registry."""
    if not shutil.which("npm") or not shutil.which("node"):
        raise unittest.SkipTest("there is no node and npm here (scripts/install test)")
    folder = os.path.join(ROOT, "build", "peers")
    os.makedirs(folder, exist_ok=True)
    changed = False
    for name in ("package.json", "package-lock.json"):
        with open(os.path.join(PEERS, name), "rb") as source:
            wanted = source.read()
        kept = os.path.join(folder, name)
        if not os.path.exists(kept) or open(kept, "rb").read() != wanted:
            changed = True
            with open(kept, "wb") as to:
                to.write(wanted)
    if changed or not os.path.isdir(os.path.join(folder, "node_modules", "ws")):
        done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120)
        if done.returncode != 0:
            shutil.rmtree(os.path.join(folder, "node_modules"), ignore_errors=True)
            raise unittest.SkipTest("npm cannot install ws: " + " ".join(done.stdout.split())[-200:])
    return folder


class Page(http.server.BaseHTTPRequestHandler):
    """Serves browser.html and takes what it saw."""

    def do_GET(self):
        with open(os.path.join(PEERS, "browser.html"), "rb") as page:
            data = page.read()
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        self.server.seen = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.done.set()

    def log_message(self, *_):
        pass


@needs_root
class Peers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Deployment()
        cls.addClassCleanup(cls.deployment.close)
        cls.grant = cls.deployment.negotiate("peers", scopes=SCOPES)

    def test_the_npm_package_ws(self):
        folder = install_packages()
        with open(os.path.join(PEERS, "ws_client.mjs"), "rb") as source, \
                open(os.path.join(folder, "ws_client.mjs"), "wb") as to:
            to.write(source.read())
        done = subprocess.run(["node", "ws_client.mjs", self.grant["endpoints"]["ws"], self.grant["token"]], cwd=folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout)
        self.assertEqual((seen["scopes"], seen["extensions"], seen["protocol"]), (SCOPES, "", "parley.v1"))
        self.assertEqual((seen["started"]["tty"], seen["started"]["cols"], seen["started"]["rows"]), (True, 91, 17))
        self.assertIn("17 91\r\npeer", seen["terminal"])
        self.assertEqual((seen["pong"], seen["exit"], seen["echoed"], seen["cat"]), ("are you there", 6, True, 0))
        self.assertEqual(seen["closed"]["code"], 1000)
        self.assertIn("401", seen["refused"])
        self.assertEqual(seen["wrong"], {"code": 4401, "reason": "UNAUTHENTICATED"})

    def browse(self, url):
        """Chromium with a profile of its own at that page, until the page has told what it saw."""
        program = shutil.which("chromium")
        if not program:
            raise unittest.SkipTest("there is no chromium here (scripts/install test)")
        profile = tempfile.mkdtemp(prefix="parley-chromium-")
        self.addCleanup(shutil.rmtree, profile, ignore_errors=True)
        browser = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--user-data-dir=" + profile, url],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=dict(os.environ, HOME=profile), start_new_session=True)
        return browser

    def test_chromium(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        server.daemon_threads, server.done, server.seen = True, threading.Event(), None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        told = urllib.parse.quote(json.dumps({"url": self.grant["endpoints"]["ws"], "token": self.grant["token"]}))
        browser = self.browse(f"http://127.0.0.1:{server.server_address[1]}/#{told}")
        came = server.done.wait(90)
        os.killpg(browser.pid, 9)
        output = browser.communicate(timeout=20)[0]
        self.assertTrue(came, "the page told nothing: " + output[-1500:])
        seen = server.seen
        self.assertNotIn("failed", seen)
        self.assertEqual((seen["scopes"], seen["protocol"], seen["exit"]), (SCOPES, "parley.v1", 8))
        self.assertIn("11 77", seen["screen"])
        self.assertIn("from-chromium ä€😀", seen["screen"])
        self.assertEqual(seen["closed"], {"code": 1000, "reason": "", "wasClean": True})
        self.assertTrue(seen["bytes"])
        self.assertEqual(seen["wrong"], {"code": 4401, "reason": "UNAUTHENTICATED", "wasClean": True})
        self.assertEqual(seen["refused"]["code"], 1006)


if __name__ == "__main__":
    unittest.main()
