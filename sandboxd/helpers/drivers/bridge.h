/** bridge.h - parley-jupyter, the one driver that is a program of its own: read once while the front may still read
 * files, and given to a sandbox as a sealed memfd like the others. Languages "jupyter:<kernelspec>" are its. */
#pragma once

#include "sandboxd/helpers/drivers/drivers.h"

#define BRIDGE_PREFIX     "jupyter:"
#define BRIDGE_SPEC_BYTES (DRIVER_NAME_BYTES - sizeof BRIDGE_PREFIX + 1) /* a kernelspec's name with its NUL */

/** Reads the program at `path`; NULL: parley-jupyter beside this process's own. False: it cannot be had, which only
 * those languages need. At the start, before other threads. */
bool driver_bridge_load(const char *path, struct error *err) MUST_USE;

/** The kernelspec's name in "jupyter:<name>", borrowed from `language`: 1..54 of A-Za-z0-9._-, the first not a dot or a
 *  dash. NULL: it is no such language. */
const char *driver_bridge_spec(const char *language) MUST_USE;

/** How a context of "jupyter:<name>" is started. INVALID: no such language. Whether the template has the kernelspec
 *  shows when it starts. */
bool driver_bridge_context(const char *language, struct driver_start *start, struct error *err) MUST_USE;

/** How the kernelspecs of a template are asked for: a command that writes them as JSON to stdout
 *  ({"kernelspecs":[{"name","display_name","language","resource_dir"}..]}). */
void driver_bridge_list(struct driver_start *start);

/** The program's sealed memfd, read-only, borrowed. -1, INVALID: it was not loaded. Any thread. */
int driver_bridge_program(struct error *err) MUST_USE;
