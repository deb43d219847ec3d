/** bridge.h - one kernel from its start to its end, between the front's lines and the kernel's sockets. */
#pragma once

#include "sandboxd/helpers/jupyter/kernelspec.h"

/** Starts the kernel, tells that it is ready, then takes runs from descriptor `requests` and writes frames to `frames`
 *  until the front says so, `requests` ends or the kernel does. Returns the exit status: 0 as asked; 1 when it did not
 *  start (a failed frame says why); the kernel's own when it ended by itself, 128 + number by a signal. Blocks SIGINT,
 *  SIGTERM and SIGCHLD in this process, which must have one thread. */
int bridge_run(const struct kernelspec *spec, int requests, int frames);
