/** maker.h - a process that makes network namespaces in advance, beside the launcher's thread: what the kernel takes
 * half a millisecond or more for. It is the launcher's child, keeps up to so many ready, and ends with it. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** Embedded. Private. */
struct maker {
    pid_t pid;  /* 0: none */
    int socket; /* the namespaces come by it, a byte each goes back; -1 */
};

#define MAKER_NONE ((struct maker){.socket = -1})

/** Starts it: it keeps `count` ready. `is_astray`: it stays in the last one that it made, having no right to come back
 * to the host's. By a process of one thread. */
bool maker_start(struct maker *maker, unsigned count, bool is_astray, struct error *err) MUST_USE;

/** Until one is ready, or for so long. */
void maker_wait(const struct maker *maker, int milliseconds);

/** A namespace that is ready, the caller's; -1: there is none now, or the maker is gone (maker->pid is 0 then). Never
 *  waits. */
int maker_take(struct maker *maker);

void maker_stop(struct maker *maker);
