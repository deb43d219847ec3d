"""The program that runs many attempts, each in a child of its own, and tells what became of each: one JSON line each."""
import json

PRELUDE = r'''
import array, ctypes, ctypes.util, errno, fcntl, glob, json, mmap, os, resource, select, shutil, signal, socket, stat, struct, subprocess
import sys, termios, time
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, SECONDS = -100, 20
NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME = (
    0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x80)
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 1, 32, 4096, 8192, 0x4000, 0x40000
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def syscall(number, *arguments):
    return check(libc.syscall(ctypes.c_long(number),
                              *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]))
def mount(source, target, kind=None, flags=0, data=None):
    check(libc.mount(source, target, kind, ctypes.c_ulong(flags), data))
class Escaped(Exception): pass
class Lacking(Exception): pass
def escaped(condition=True):
    if condition:
        raise Escaped()
def any_of(attempts):
    """Tries each; the last error when none gets through."""
    why = OSError(errno.ENOENT, 'nothing to try')
    for attempt in attempts:
        try: attempt()
        except (OSError, ValueError) as failed: why = failed
    raise why
def folder(name):
    path = '/tmp/parley-escape-%s-%s' % (name, os.getpid())
    os.makedirs(path, exist_ok=True)
    return path
def child_in(flags):
    """A child that waits in new namespaces."""
    ready, done = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(done[1])
        ok = libc.unshare(flags) == 0
        os.write(ready[1], b'1' if ok else b'0')
        os.read(done[0], 1)
        os._exit(0)
    if os.read(ready[0], 1) != b'1': raise OSError(errno.EPERM, 'unshare')
    return pid
def processes():
    """Those of others."""
    mine, found = os.getsid(0), []
    for name in os.listdir('/proc'):
        if not name.isdigit(): continue
        try:
            with open('/proc/%s/stat' % name) as f: sid = int(f.read().rsplit(')', 1)[1].split()[3])
        except OSError: continue
        if sid != mine: found.append(int(name))
    return found
def ours():
    """init, what it has made, and what it has made ready; outside the victim."""
    if OUTSIDE: return [victim]
    named = []
    for pid in processes():
        try:
            with open('/proc/%d/comm' % pid) as f: name = f.read()
        except OSError: continue
        if pid == 1 or name.startswith('init') or name.startswith('memfd:'): named.append(pid)
    return named
def run_attempt(name, code):
    try:
        if OUTSIDE:
            check(libc.unshare(NEWNS)); mount(None, b'/', None, MS_REC | MS_PRIVATE)
        exec(compile(code, name, 'exec'), globals())
        return 'nothing', 'it went through, and got nothing'
    except Escaped: return 'escaped', ''
    except Lacking as why: return 'lacking', str(why)
    except BaseException as why: return 'stopped', '%s: %s' % (type(why).__name__, why)
def run_apart(name, code):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        signal.alarm(SECONDS)
        os.write(write, json.dumps(run_attempt(name, code)).encode()[:4000])
        os._exit(0)
    os.close(write)
    said = b''
    while True:
        more = os.read(read, 65536)
        if not more: break
        said += more
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    return json.loads(said) if said else ('stopped', 'ended by signal %d' % (status & 127))
def run_all(attempts):
    for name, code in attempts:
        os.setpgrp() if os.getpgrp() != os.getpid() and os.getsid(0) != os.getpid() else None
        outcome, why = run_apart(name, code)
        print(json.dumps([name, outcome, why]), flush=True)
'''


def program(attempts, facts, is_outside):
    """Its text."""
    values = "".join(f"{name} = {value!r}\n" for name, value in {**facts, "OUTSIDE": is_outside}.items())
    chosen = json.dumps([(attempt.name, attempt.code) for attempt in attempts])
    return f"{PRELUDE}\n{values}\nrun_all(json.loads({chosen!r}))\n"
