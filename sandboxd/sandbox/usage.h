/** usage.h - reads the kernel's counters of one sandbox through descriptors the launcher opened (pread only). */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

/** Processes of the sandbox that the kernel killed for memory so far: the line "oom_kill N" of v1 memory.oom_control or
 *  v2 memory.events (cgroups(7)); 0 when it cannot be read. */
uint64_t usage_oom_kills(int fd) MUST_USE;

/** CPU used so far, ms: "usage_usec N" of v2 cpu.stat; 0 when it cannot be read. */
uint64_t usage_cpu_ms(int fd) MUST_USE;

/** Bytes of memory in use; 0 when it cannot be read. */
uint64_t usage_memory_bytes(int fd) MUST_USE;

/** Processes and threads there are now: pids.current; 0 when it cannot be read. */
uint64_t usage_pids(int fd) MUST_USE;

/** Whether nothing of it runs: the line "frozen 1" of v2 cgroup.events. */
bool usage_is_frozen(int fd) MUST_USE;
