"""A Jupyter kernel that does what it should not: argv is the connection file and a mode, code is the name of an oddity."""
import hashlib
import hmac
import json
import os
import signal
import sys
import time

import zmq

with open(sys.argv[1]) as file:
    connection = json.load(file)
mode = sys.argv[2]
if os.stat(sys.argv[1]).st_mode & 0o077 or os.stat(os.path.dirname(sys.argv[1])).st_mode & 0o077:
    sys.exit("others may read the connection file")
if mode == "dies":
    sys.exit("not this\nI am\033[31m broken\n")
if mode == "tcp" and connection["transport"] != "tcp":
    sys.exit("this one has TCP alone")
key = connection["key"].encode()
context = zmq.Context()


def bind(kind, port):
    made = context.socket(kind)
    made.linger = 500
    if connection["transport"] == "tcp":
        made.bind(f"tcp://{connection['ip']}:{connection[port]}")
    else:
        made.bind(f"ipc://{connection['ip']}{':' if mode == 'colon' else '-'}{connection[port]}")
    return made


def make(kind, parent, content, key=key, raw=None):
    parts = [json.dumps(part).encode() for part in
             ({"msg_id": os.urandom(8).hex(), "msg_type": kind, "session": "s", "username": "u", "version": "5.3"},
              parent, {}, content)]
    if raw is not None:
        parts[3] = raw
    signature = hmac.new(key, b"".join(parts), hashlib.sha256).hexdigest().encode()
    return [b"<IDS|MSG>", signature, *parts]


shell, control, stdin = bind(zmq.ROUTER, "shell_port"), bind(zmq.ROUTER, "control_port"), bind(zmq.ROUTER, "stdin_port")
iopub = bind(zmq.PUB, "iopub_port") if mode != "slow" else None
interrupted = False
greetings = 0


def tell(kind, parent, content, **more):
    if iopub:
        iopub.send_multipart([b"topic", *make(kind, parent, content, **more)])


def take(socket):
    parts = socket.recv_multipart()
    at = parts.index(b"<IDS|MSG>")
    expected = hmac.new(key, b"".join(parts[at + 2:at + 6]), hashlib.sha256).hexdigest().encode()
    assert hmac.compare_digest(expected, parts[at + 1]), "the bridge's own signature is wrong"
    return parts[:at], json.loads(parts[at + 2]), json.loads(parts[at + 5])


def stream(parent, text):
    tell("stream", parent, {"name": "stdout", "text": text})


def wait_for_interrupt():
    while not interrupted:
        if control.poll(20):
            who, header, _ = take(control)
            if header["msg_type"] == "interrupt_request":
                control.send_multipart([*who, *make("interrupt_reply", header, {"status": "ok"})])
                return
    return


def on_interrupt(*_):
    global interrupted
    interrupted = True
    if mode == "fragile":
        os._exit(0)


def execute(who, header, content):
    code = content["code"]
    assert content["allow_stdin"] is False
    if code == "unsigned":
        tell("stream", header, {"name": "stdout", "text": "forged"}, key=b"another")
        iopub.send_multipart([b"topic", b"<IDS|MSG>", b"", *make("stream", header, {"text": "forged"})[2:]])
        iopub.send_multipart([b"not a message"])
        iopub.send_multipart([b"x"] * 200)
    elif code == "deep":
        tell("stream", header, {}, raw=b'{"text":' + b"[" * 100000 + b"]" * 100000 + b"}")
        tell("stream", header, {}, raw=b'{"text":[' + b"[]," * 500000 + b"0]}")
        tell("stream", header, {}, raw=b'{"text": NaN}')
        tell("stream", header, {"name": "stdout", "text": ["no", "text"]})
        tell("display_data", header, {"data": 7, "metadata": []})
        tell("no such thing", header, {})
    elif code == "surrogate":
        tell("stream", header, {}, raw=b'{"name":"stdout","text":"\\ud800 \xff"}')
    elif code == "foreign":
        tell("status", {"msg_id": "another"}, {"execution_state": "idle"})
        tell("error", {"msg_id": "another"}, {"ename": "Foreign", "evalue": "", "traceback": []})
        shell.send_multipart([*who, *make("execute_reply", {"msg_id": "another"}, {"status": "error"})])
    elif code == "ask":
        stdin.send_multipart([*who, *make("input_request", header, {"prompt": "?", "password": False})])
        wait_for_interrupt()
        return {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
    elif code == "wait":
        tell("execute_input", header, {"code": code, "execution_count": 1})
        wait_for_interrupt()
        return {"status": "error", "ename": "InterruptException", "evalue": "", "traceback": []}
    elif code == "descriptors":
        os.write(1, b"one \xc3")
        time.sleep(0.05)
        os.write(1, b"\xa4\n")
        os.write(2, b"two")
    elif code == "inherited":
        stream(header, " ".join(sorted(f"{fd}:{os.readlink(f'/proc/self/fd/{fd}')}" for fd in ("0",))) +
               (" signals" if any(int(line.split()[1], 16) for line in open("/proc/self/status") if line.startswith("SigBlk")) else ""))
    elif code == "flood":
        for i in range(500):  # a PUB socket drops what is over its high-water mark of 1000
            stream(header, f"{i}\n")
    elif code == "killed":
        stream(header, "last words")
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    elif code == "early idle":
        tell("status", header, {"execution_state": "idle"})
        time.sleep(0.2)
    return {"status": "ok", "execution_count": 1}


def greet(who, header):
    global iopub, greetings
    greetings += 1
    if mode == "slow" and greetings == 3:
        iopub = bind(zmq.PUB, "iopub_port")
    shell.send_multipart([*who, *make("kernel_info_reply", header, {
        "status": "ok", "implementation": "odd", "implementation_version": "1",
        "language_info": {"name": "odd", "version": "0.1"}})])


signal.signal(signal.SIGINT, on_interrupt)
poller = zmq.Poller()
for one in (shell, control):
    poller.register(one, zmq.POLLIN)
while True:
    for socket, _ in poller.poll():
        who, header, content = take(socket)
        if header["msg_type"] == "shutdown_request":
            sys.exit(0) if mode != "stays" else time.sleep(60)
        tell("status", header, {"execution_state": "busy"})
        if header["msg_type"] == "kernel_info_request":
            greet(who, header)
        elif header["msg_type"] == "execute_request":
            interrupted = False
            reply = execute(who, header, content)
            shell.send_multipart([*who, *make("execute_reply", header, reply)])
        if content.get("code") != "early idle":
            tell("status", header, {"execution_state": "idle"})
