/** session.h - one session with a process of a sandbox over /ws: a terminal or a command that is started, or any
 *  process that is there, driven or watched. Bytes go both ways with offsets: a connection that breaks (the node
 * restarts) is made again by itself, what was not acknowledged is sent again, what was missed comes then; nothing is
 * lost or doubled. The token is kept fresh and renewed in-band. One thread at a time. */
#pragma once

#include "clients/c/grant_keeper.h"
#include "clients/c/remote_command.h"

#include "shared/base/error.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SESSION_EXTRA_MAX 4 /* descriptors the caller may wait for */

struct session;

enum session_use { SESSION_START, SESSION_DRIVE, SESSION_WATCH };

/** What is wanted; all is borrowed and outlives the session. */
struct session_wanted {
    enum session_use use;
    const char *id;                       /* START: a new one (the same again never starts twice); else the process's */
    const struct remote_command *command; /* START */
    bool tty;                             /* START: as a terminal, which needs scope shell, else process */
    unsigned columns, rows;               /* of a terminal, 1..1000; 0: unknown */
    bool has_from; /* not START: stdout is wanted from `from` on, else from the first byte kept */
    uint64_t from;
    const char *narrow_to; /* scopes that each token is narrowed to before it is shown; NULL: as it is */
    unsigned resume_for_s; /* how long a lost connection is tried again; 0: for ever */
    unsigned note_lost_ms; /* a connection that is lost for so long is told */
    /** Output as it comes; false: nobody reads any more, give up. */
    bool (*output)(void *cookie, bool is_stderr, const void *data, size_t size);
    /** It is there, or there again: session_facts tells. May be NULL. */
    void (*attached)(void *cookie);
    void (*note)(void *cookie, const char *sentence); /* "connection lost, resuming"; a text from outside */
    void (*warn)(void *cookie, const char *sentence); /* output is missing: the user must be told */
    void *cookie;
    const struct grant_keeping *keeping;
};

/** What is known of the process. */
struct session_facts {
    bool started; /* it did start, or was there, or may have: never start it again under another id */
    bool tty;
    bool drives;            /* input is taken */
    unsigned columns, rows; /* of a terminal; what they are in the sandbox */
};

/** How it ended. */
struct session_end {
    int exit_code;   /* 128 + n when a signal ended it */
    char signal[16]; /* "SIGKILL", or "" */
    bool timed_out, oom;
};

struct session *session_new(const struct session_wanted *wanted, struct error *err) MUST_USE;

/** Leaves; the process lives on. NULL is allowed. */
void session_free(struct session *session);
DEFINE_AUTO(session)

/** One turn of its loop: waits, at most 1 s, for its own things and the caller's (`extra`, at most SESSION_EXTRA_MAX;
 *  their revents are set). False: it failed, for good. UNAUTHENTICATED, TOKEN_EXPIRED, NOT_FOUND, GONE,
 *  NODE_UNREACHABLE before it started: negotiate and begin anew. */
bool session_turn(struct session *session, struct curl_waitfd *extra, unsigned count, struct error *err) MUST_USE;

/** The process ended, and all its output came; *end says how. */
bool session_over(const struct session *session, struct session_end *end) MUST_USE;

const struct session_facts *session_facts(const struct session *session) MUST_USE;

/** The offset behind the last byte of stdout that was passed on; inside `output` already counts what is passed. */
uint64_t session_had(const struct session *session) MUST_USE;

/** Bytes of input it takes now: read no more than that. */
size_t session_room(const struct session *session) MUST_USE;
void session_write(struct session *session, const void *data, size_t size);

/** No more input will come: of a process that is no terminal, its stdin is closed after what was written. */
void session_end_input(struct session *session);

void session_resize(struct session *session, unsigned columns, unsigned rows);

/** Whether output is taken. While it is not, some that has come already still may be passed on, the command waits when
 *  it is driven, and the connection is kept. */
void session_pause(struct session *session, bool pause);

/** "INT": to the process; without a connection when there is one again, and then the newest only. */
void session_signal(struct session *session, const char *name);
