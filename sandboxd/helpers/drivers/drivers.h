/** drivers.h - the programs that keep the state of a language: each runs inside a sandbox, as its user, reads requests
 * from its stdin and writes frames to its stdout (DESIGN.md has both). They are part of this program's own binary and
 * reach a sandbox as a sealed memfd, which the command finds as descriptor DRIVER_FD. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define DRIVER_FD            3
#define DRIVER_NAME_BYTES    64
#define DRIVER_ARGUMENTS_MAX 8
#define DRIVER_FRAME_MAX     (16 * 1024 * 1024) /* bytes of one frame from a driver */
#define DRIVER_REQUEST_MAX   (4 * 1024 * 1024)  /* ... to a driver */

/* Processes of which others are forked (front_init.h, fi_start.zygote). */
enum driver_zygote { DRIVER_ZYGOTE_NONE, DRIVER_ZYGOTE_SCRIPTS, DRIVER_ZYGOTE_CONTEXTS };

/** How a context or a script is started. Arguments are NULL-ended and static, or in `text`. */
struct driver_start {
    const char *arguments[DRIVER_ARGUMENTS_MAX];
    enum driver_zygote zygote;
    const char *zygote_arguments[DRIVER_ARGUMENTS_MAX]; /* of the zygote itself; with zygote */
    char text[DRIVER_NAME_BYTES];
};

/** The language's one name for `given`, its aliases too ("py", "node", "ts", "sh"), or "jupyter:<kernelspec>". False:
 *  there is none: INVALID lists those that are. */
bool driver_language(const char *given, char to[static DRIVER_NAME_BYTES], struct error *err) MUST_USE;

/** How a context of that language is started. */
bool driver_context(const char *language, struct driver_start *start, struct error *err) MUST_USE;

/** How a script at a path is run as a program of that language of its own (python, bash, javascript, typescript): the
 *  path and its arguments come behind `arguments`. INVALID for a language without. */
bool driver_script(const char *language, struct driver_start *start, struct error *err) MUST_USE;

/** A sealed memfd of the language's driver, read-only, made once in this process; borrowed. -1 with err. Any thread. */
int driver_program(const char *language, struct error *err) MUST_USE;

/** The languages there are by themselves, without kernelspecs; NULL-ended, static. */
const char *const *driver_languages(void) MUST_USE;
