/** terminal.h - one session with a process of a sandbox over /ws: a terminal that is started, or any process that is
 *  there, driven or watched. Bytes go both ways with offsets: a connection that breaks (the node restarts) is made
 * again by itself, what was not acknowledged is sent again, what was missed comes then; nothing is lost or doubled. The
 * token is kept fresh and renewed in-band. One thread at a time. */
#pragma once

#include "clients/c/grant_keeper.h"
#include "clients/c/remote.h"

#include "shared/base/error.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TERMINAL_EXTRA_MAX 4 /* descriptors the caller may wait for */

struct terminal;

enum terminal_use { TERMINAL_START, TERMINAL_DRIVE, TERMINAL_WATCH };

/** What is wanted; all is borrowed and outlives the terminal. */
struct terminal_wanted {
    enum terminal_use use;
    const char *id;               /* START: a new one (the same again never starts twice); else the process's */
    const char *const *arguments; /* START: NULL-ended; NULL: the login shell */
    const char *cwd;              /* START; NULL: /workspace */
    const char *const *variables; /* START: "NAME=value", NULL-ended; NULL none */
    unsigned columns, rows;       /* 1..1000; 0: unknown */
    bool has_from;                /* not START: stdout is wanted from `from` on, else from the first byte kept */
    uint64_t from;
    const char *narrow_to; /* scopes that each token is narrowed to before it is shown; NULL: as it is */
    unsigned resume_for_s; /* how long a lost connection is tried again; 0: for ever */
    unsigned note_lost_ms; /* a connection that is lost for so long is told */
    /** Output as it comes; false: nobody reads any more, give up. */
    bool (*output)(void *cookie, bool is_stderr, const void *data, size_t size);
    /** It is there, or there again: terminal_facts tells. May be NULL. */
    void (*attached)(void *cookie);
    void (*note)(void *cookie, const char *sentence); /* "connection lost, resuming"; a text from outside */
    void *cookie;
    const struct grant_keeping *keeping;
};

/** What is known of the process. */
struct terminal_facts {
    bool started; /* it did start, or was there: never start it again under another id */
    bool tty;
    bool drives;            /* input is taken */
    unsigned columns, rows; /* of a terminal; what they are in the sandbox */
};

struct terminal *terminal_new(const struct terminal_wanted *wanted, struct error *err) MUST_USE;

/** Leaves; the process lives on. NULL is allowed. */
void terminal_free(struct terminal *terminal);
DEFINE_AUTO(terminal)

/** One turn of its loop: waits, at most 1 s, for its own things and the caller's (`extra`, at most TERMINAL_EXTRA_MAX;
 *  their revents are set). False: it failed, for good. UNAUTHENTICATED, TOKEN_EXPIRED, NOT_FOUND, GONE,
 *  NODE_UNREACHABLE before it started: negotiate and begin anew. */
bool terminal_turn(struct terminal *terminal, struct curl_waitfd *extra, unsigned count, struct error *err) MUST_USE;

/** The process ended, and all its output came; *end says how. */
bool terminal_over(const struct terminal *terminal, struct remote_end *end) MUST_USE;

const struct terminal_facts *terminal_facts(const struct terminal *terminal) MUST_USE;

/** The offset behind the last byte of stdout that was passed on; inside `output` already counts what is passed. */
uint64_t terminal_had(const struct terminal *terminal) MUST_USE;

/** Bytes of input it takes now: read no more than that. */
size_t terminal_room(const struct terminal *terminal) MUST_USE;
void terminal_write(struct terminal *terminal, const void *data, size_t size);

/** No more input will come: of a process that is no terminal, its stdin is closed after what was written. */
void terminal_end_input(struct terminal *terminal);

void terminal_resize(struct terminal *terminal, unsigned columns, unsigned rows);

/** "INT": to the process now; without a connection it is dropped. */
void terminal_signal(struct terminal *terminal, const char *name);
