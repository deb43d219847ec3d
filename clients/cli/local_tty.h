/** local_tty.h - the user's own terminal (stdin) while a session has it: its modes, which come back however this
 * program ends, its size, the escape keys, and what a program in the session leaves switched on. */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum local_tty_mode {
    LOCAL_TTY_RAW,  /* every key is the session's */
    LOCAL_TTY_WATCH /* keys are nobody's; ^C is a signal here */
};

/** Switches; local_tty_leave, the end of the program and its crash switch back. May be called again (SIGCONT).
 *  ERROR_INVALID when stdin is no terminal. */
bool local_tty_enter(enum local_tty_mode mode, struct error *err) MUST_USE;

/** Back to the modes before; keys that nobody has read are dropped. Again: nothing. */
void local_tty_leave(void);

/** Of the terminal that stdout or stdin is; false when neither is one, or it does not know. */
bool local_tty_size(unsigned *columns, unsigned *rows) MUST_USE;

/** What the keys mean: a `~` at the beginning of a line is ours. Embedded; private; `{.at_start = true}` at first. */
struct local_tty_keys {
    bool at_start, tilde;
};

enum local_tty_key { LOCAL_TTY_KEYS_PASS, LOCAL_TTY_KEYS_LEAVE, LOCAL_TTY_KEYS_HELP };

/** Takes keys from `from` until one of ours is complete, *used of them. What is the session's goes to `to` (of 2 * size
 *  bytes), *kept bytes. */
enum local_tty_key local_tty_keys_take(struct local_tty_keys *keys, const char *from, size_t size, size_t *used,
                                       char *to, size_t *kept);

/** Takes out of `keys`, in place, what a terminal answers to questions in its output (where is the cursor, what are
 * you); returns the size of the rest. */
size_t local_tty_without_answers(char *keys, size_t size);

/** Follows output for what must be undone when the session is left in its midst. Embedded; zero at first; private. */
struct local_tty_screen {
    char sequence[16];
    size_t length;
    bool alternate;
};

void local_tty_screen_follow(struct local_tty_screen *screen, const char *data, size_t size);

/** Main screen, visible cursor, no mouse, no bracketed paste: to stdout, if that is a terminal. */
void local_tty_screen_restore(const struct local_tty_screen *screen);
