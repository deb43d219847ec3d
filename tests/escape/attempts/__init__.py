"""Ways out of a sandbox, a file a kernel mechanism. SYSCALL numbers are x86_64's."""
import importlib

MECHANISMS = ("mounts", "proc_and_sys", "descriptors", "tracing", "namespaces", "kernel_surfaces", "sockets", "cgroups",
              "devices", "privileges", "core_dumps", "terminals", "clock_and_host", "signals", "shared_memory", "leaks",
              "kernel_log", "neighbours")
ATTEMPTS = {name: importlib.import_module("attempts." + name).ATTEMPTS for name in MECHANISMS}
