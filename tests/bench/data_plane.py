"""The data plane's figures: a key's echo, small and large files, lists, output, and the memory of front and init meanwhile."""
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

GIB = 1 << 30
NODE_TERMINAL = """
const {WebSocketServer} = require('ws'), pty = require('@lydell/node-pty');
const server = new WebSocketServer({port: 0, host: '127.0.0.1'}, () => console.log(server.address().port));
server.on('connection', socket => {
    socket._socket.setNoDelay(true);
    const terminal = pty.spawn('/bin/cat', [], {cols: 80, rows: 24});
    terminal.onData(data => socket.send(data));
    socket.on('message', data => terminal.write(data.toString()));
});
"""
NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error;
events {{ worker_connections 64; }}
http {{
    access_log off; sendfile on; tcp_nopush on; client_max_body_size 4g; client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{ listen 127.0.0.1:{port}; root {root}; location = /discard {{ return 204; }} }}
}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Nginx:
    """The peer for bytes: serves a folder on tmpfs by sendfile."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="parley-nginx-")
        self.root = tempfile.mkdtemp(prefix="parley-nginx-", dir="/dev/shm")
        os.chmod(self.root, 0o755)
        self.port = free_port()
        with open(self.folder + "/conf", "w") as conf:
            conf.write(NGINX.format(folder=self.folder, root=self.root, port=self.port))
        self.child = subprocess.Popen(["nginx", "-p", self.folder, "-c", self.folder + "/conf", "-e",
                                       self.folder + "/error", "-g", "user root;"])
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError("nginx does not start")

    def url(self, name):
        return f"http://127.0.0.1:{self.port}/{name}"

    def close(self):
        self.child.kill()
        self.child.wait()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.root)


class Memory:
    """The most anonymous memory that front and inits had while something ran (Rss of a file's pages is the file's)."""

    def __init__(self, deployment):
        daemons = deployment.pids("parley-sandboxd")
        self.pids = {}
        for pid in daemons:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if b"PARLEY_FRONT_FD=" in environ.read():
                    self.pids[pid] = "front"
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/status") as status:
                    parent = int(next(line for line in status if line.startswith("PPid")).split()[1])
            except (OSError, StopIteration):
                continue
            if parent in daemons and int(pid) not in daemons:
                self.pids[pid] = "init"
        self.before = {pid: self.anonymous(pid) for pid in self.pids}
        self.most = dict(self.before)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    @staticmethod
    def anonymous(pid):
        try:
            with open(f"/proc/{pid}/status") as status:
                return int(next(line for line in status if line.startswith("RssAnon")).split()[1])
        except (OSError, StopIteration):
            return 0

    def watch(self):
        while not self.over.wait(0.02):
            for pid in self.pids:
                self.most[pid] = max(self.most[pid], self.anonymous(pid))

    def tell(self):
        self.over.set()
        self.thread.join()
        told = []
        for kind in ("front", "init"):
            of = [pid for pid in self.pids if self.pids[pid] == kind]
            if of:
                pid = max(of, key=lambda p: self.most[p] - self.before[p])
                told.append(f"{kind} {self.most[pid] / 1024:.1f} MiB (+{(self.most[pid] - self.before[pid]) / 1024:.1f})")
        return ", ".join(told)


def curl(*arguments, to="/dev/null"):
    """Seconds and bytes of one transfer by curl, its output thrown away."""
    done = subprocess.run(["curl", "-sS", "-o", to, "-w", "%{http_code} %{size_download} %{size_upload} %{time_total}",
                           "--fail-with-body", *arguments], capture_output=True, text=True)
    status, down, up, seconds = (done.stdout.split() + ["0"] * 4)[:4]
    if done.returncode != 0:
        raise RuntimeError(f"curl {arguments[-1]}: {done.stdout} {done.stderr}")
    return float(seconds), int(down) + int(up), int(status)


def rate(name, seconds, size, memory=""):
    print(f"  {name:44} {size / seconds / 1e6:8.0f} MB/s  ({seconds:.2f} s){'  ' + memory if memory else ''}")
    return size / seconds


def best(times, act):
    return min(act() for _ in range(times))


def bench_bytes(deployment_class, ratio):
    print("1 GiB: download, stdout, upload; nginx serves the same bytes from tmpfs by sendfile; best of 3 in turns")
    nginx = Nginx()
    try:
        with deployment_class() as d:
            grant = d.negotiate("bytes", resources={"cpu": 2, "memory_mb": 9000, "disk_mb": 4200, "pids": 256})
            d.shell(grant, "python3 -c 'import base64,os\nb=base64.encodebytes(os.urandom(786432))[:1048576]\n"
                    "with open(\"/workspace/g\",\"wb\") as f:\n for i in range(1024): f.write(b)'")
            base, bearer = grant["endpoints"]["http"], ["-H", "Authorization: Bearer " + grant["token"]]
            curl(*bearer, base + "/files/workspace/g", to=nginx.root + "/g")
            large = nginx.root + "/g"
            peer, ours = [], []
            memory = Memory(d)
            for _ in range(3):
                peer.append(curl(nginx.url("g"))[0])
                ours.append(curl(*bearer, base + "/files/workspace/g")[0])
            floor = rate("nginx", min(peer), GIB)
            ratio("download / nginx", rate("GET /files", min(ours), GIB, memory.tell()) / floor, ">= 0.9")

            def stdout(binary):
                command = f"s{time.monotonic_ns()}"
                if binary:
                    # Begins when its driver is there: nobody waits for one that comes later.
                    reply = d.exec(grant, cmd="sleep 0.3; exec cat /workspace/g", id=command, detach=True)
                    assert reply.status in (200, 201), reply
                    took, size, status = curl(*bearer, f"{base}/processes/{command}/output?raw=stdout&follow=1&drive=1")
                    return took - 0.3, size, status
                body = json.dumps({"argv": ["cat", "/workspace/g"], "id": command})
                return curl(*bearer, "-H", "Content-Type: application/json", "-d", body, base + "/exec")

            for binary, name, goal in ((True, "binary", ">= 0.45"), (False, "NDJSON", ">= 0.25")):
                memory = Memory(d)
                seconds = []
                for _ in range(3):
                    peer.append(curl(nginx.url("g"))[0])
                    took, size, _ = stdout(binary)
                    if size < (GIB if binary else GIB // 2):
                        raise RuntimeError(f"only {size} bytes of stdout came")
                    seconds.append(took)
                ratio(f"stdout {name} / nginx", rate(f"stdout, {name}", min(seconds), GIB, memory.tell()) /
                      (GIB / min(peer)), goal)
            memory = Memory(d)
            peer, ours = [], []
            for _ in range(3):
                peer.append(curl("-T", large, nginx.url("discard"))[0])
                ours.append(curl(*bearer, "-T", large, base + "/files/workspace/up")[0])
            floor = rate("nginx, reading and discarding", min(peer), GIB)
            ratio("upload / nginx discarding", rate("PUT /files", min(ours), GIB, memory.tell()) / floor, "none set")
    finally:
        nginx.close()


def bench_files(deployment_class, connection_class, alternate, show, ratio):
    print("small files and lists, one kept-alive connection")
    nginx = Nginx()
    try:
        with deployment_class() as d:
            grant = d.negotiate("files")
            d.shell(grant, "mkdir many && cd many && seq 10000 | xargs touch")
            base = urllib.parse.urlsplit(grant["endpoints"]["http"])
            data = os.urandom(768).hex()[:1024].encode()
            with open(nginx.root + "/k", "wb") as file:
                file.write(data)
            ours = http.client.HTTPConnection(base.hostname, base.port)
            peer = http.client.HTTPConnection("127.0.0.1", nginx.port)
            for connection in (ours, peer):
                connection.connect()
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            bearer = {"Authorization": "Bearer " + grant["token"]}

            def ask(connection, method, path, body=None, headers=None):
                connection.request(method, path, body, headers or {})
                answer = connection.getresponse()
                text = answer.read()
                if answer.status >= 300:
                    raise RuntimeError(f"{method} {path}: {answer.status} {text[:200]}")
                return text

            def write():
                ask(ours, "PUT", base.path + "/files/workspace/k", data, bearer)

            def read():
                assert ask(ours, "GET", base.path + "/files/workspace/k", None, bearer) == data

            def both():
                write()
                read()

            for act in (write, read):
                for _ in range(50):
                    act()
            together, wrote, got, floor = alternate(1000, both, write, read, lambda: ask(peer, "GET", "/k"))
            show("write + read of 1 KB", together)
            show("write of 1 KB (atomic)", wrote)
            p50 = show("read of 1 KB", got)
            ratio("read / nginx", p50 / show("nginx, 1 KB", floor), "none set")
            folder = tempfile.mkdtemp(dir="/dev/shm")
            for i in range(10000):
                open(f"{folder}/{i + 1}", "w").close()

            def listing():
                text = ask(ours, "GET", base.path + "/files/workspace/many?list=1", None, bearer)
                assert text.count(b'"mtime_ns"') >= 10000, text[:300]

            def find():
                subprocess.run(["find", folder, "-printf", "%p %s %m %U %G %T@\\n"], stdout=subprocess.DEVNULL, check=True)

            listed, found = alternate(30, listing, find)
            shutil.rmtree(folder)
            memory = Memory(d)
            listing()
            p50 = show("list of 10,000 entries", listed)
            ratio("list / find -printf", p50 / show("find -printf of as many", found), "none set")
            print("  memory in one list: " + memory.tell())
    finally:
        nginx.close()


def bench_terminal(deployment_class, session, websocket, show, ratio):
    print("echo of one key: WebSocket -> terminal -> WebSocket; the peer is npm ws + node-pty (what web terminals are made of)")
    folder = tempfile.mkdtemp(prefix="parley-peer-")
    peer = None
    try:
        done = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "ws@8", "@lydell/node-pty@1.1.0"],
                              cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            print("  no peer: npm install failed: " + done.stderr.strip()[-200:])
        else:
            with open(folder + "/peer.js", "w") as script:
                script.write(NODE_TERMINAL)
            peer = subprocess.Popen(["node", "peer.js"], cwd=folder, stdout=subprocess.PIPE, text=True)
            port = int(peer.stdout.readline())
        with deployment_class() as d:
            grant = d.negotiate("keys")
            ours = session(grant["endpoints"]["ws"], grant["token"])
            ours.tell("start", argv=["cat"], tty=True, bin=True)
            ours.expect("started")
            echo = [lambda: ours.send(b"\0x") or ours.receive()]
            if peer:
                theirs = websocket(f"ws://127.0.0.1:{port}/")
                echo.append(lambda: theirs.send("x") or theirs.receive())
            seconds = [[] for _ in echo]
            for turn in range(2200):
                for index, act in enumerate(echo):
                    began = time.perf_counter()
                    act()
                    if turn >= 200:
                        seconds[index].append(time.perf_counter() - began)
                if turn % 500 == 499:  # a line's end, so that the line discipline's buffer does not fill
                    ours.send(b"\0\x15")
                    ours.receive()
                    if peer:
                        theirs.send("\x15")
                        theirs.receive()
            p50 = show("one key through parley", seconds[0])
            if peer:
                ratio("parley / ws + node-pty", p50 / show("one key through ws + node-pty", seconds[1]), "<= 1")
    finally:
        if peer:
            peer.kill()
            peer.wait()
        shutil.rmtree(folder)
