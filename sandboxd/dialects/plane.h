/** plane.h - what the routes of this program stand on, and who asks: the server's context and each request's identity.
 */
#pragma once

#include "sandboxd/journal/marks.h"
#include "sandboxd/journal/spool.h"
#include "sandboxd/sandbox/node_seal.h"
#include "sandboxd/sandbox/sandboxes.h"
#include "shared/base/metrics.h"
#include "shared/capability/capability.h"
#include "shared/http/server.h"

#include <stdatomic.h>

#define PLANE_AFTER_EXPIRY_S 3600 /* what began in time may go on for so long: an exec, an upload, a download */

struct port_pool;
struct policy_relay;
struct terminal_holders;

/** Where ports are origins of their own. */
struct plane_previews {
    const char *domain; /* of "{port}-{sandbox}.{domain}" */
    bool is_secure;     /* clients come by https */
};

#define PLANE_REASONS 48 /* words that this program has for refusing */

/* Since the start, for the node's /metrics; any loop adds. */
struct plane_counts {
    struct metrics_counter verified; /* tokens, each time one was shown */
    struct plane_reason {
        _Atomic(const char *) reason; /* static; NULL: a free place */
        struct metrics_counter count;
    } refused[PLANE_REASONS], cut[PLANE_REASONS];
    struct metrics_counter births_cold, births_warm, births_failed;
    struct metrics_histogram cold, warm; /* from the negotiator's message until commands can be started */
    struct metrics_counter commands, terminals, kernels, ended, not_ended_well;
};

/** The http server's context begins with this. */
struct plane {
    struct sandboxes *sandboxes;
    struct node_seal *seal;
    struct marks *marks;
    struct spool *spool;
    _Atomic(const char *) url;   /* where clients find this program, without a slash at its end; NULL: not known yet */
    bool omit_argv;              /* of records of commands (audit_argv) */
    int64_t long_contact_max_s;  /* long tokens hold for so long without a negotiator */
    atomic_uint unjudged;        /* sockets without a token now, over all loops */
    void (*beat)(void *context); /* a heartbeat is to go at once; any thread */
    void *beat_context;
    struct plane_previews previews;
    bool metrics_open; /* the node's /metrics is for everybody */
    int pressure[3];   /* of /proc/pressure/{cpu,memory,io}; -1 or 0: none */
    struct plane_counts counts;
    struct terminal_holders *terminals;                 /* of OpenSandbox's clients */
    struct policy_relay *policy_relay;                 /* NULL: without a negotiator; set before the first request */
    struct port_pool *port_pools[SANDBOXES_LOOPS_MAX]; /* each belongs to its loop; NULL before and after */
    /** Judges a token that came behind the head, on a route that takes HTTP_LATER, as one in the head would have been,
     *  and makes its claims the request's identity. With an identity there already it must be of the same sandbox,
     *  principal and lease: FORBIDDEN. Else as authorize (front/authorize.h); refusals are in the spool then. */
    bool (*judge)(struct http_request *request, const char *token, struct error *err);
};

/** The identity that authorisation sets on a request of a route with a scope. */
struct caller {
    struct capability_claims claims;
    int64_t judged_ms; /* UTC: when the request's head was there */
    bool is_guest;     /* the sandbox is served by a front of its own: guest_gate.h */
};

static inline struct plane *plane_of(const struct http_request *request)
{
    return http_server_context(request);
}

static inline const struct caller *caller_of(const struct http_request *request)
{
    return http_request_identity(request);
}

/** At most `most` bytes of a client's text as the value of a key in a record's detail: what could begin another pair or
 * a line is %XX, "..." stands for what was cut. */
void plane_append_shown(struct text *to, const char *text, size_t most);

/** Records a deed in the spool before it is done: who by which token and links, and `detail`, which holds key=value
 * pairs. False: it could not be; then the deed must not be done, and DISK_FULL is what the client is told. */
bool plane_audit(const struct http_request *request, struct error *err, const char *action, const char *detail, ...)
    __attribute__((format(printf, 4, 5))) MUST_USE;

/** Records that a deed which plane_audit told has failed: the HTTP status and the sentence that the client sees; status
 * 0: it sees none. As far as there is room: nothing is kept from being done by it. */
void plane_record_failure(const struct http_request *request, const char *action, const char *detail, int status,
                          const char *why);

/** Counts the request as a read, or another use that changes nothing of ours: one record a token and second. */
void plane_record_read(const struct http_request *request);

struct plane_refusal {
    const char *action, *reason; /* "refuse", "stream.cut"; one word each */
    const char *what;            /* key=value pairs; may be NULL */
    const char *token;           /* one that came behind the head; NULL: the head's */
};

/** Into the spool: a request is refused, or its stream cut, with the error that the client sees. `claims` NULL: the
 *  token's MAC has not held. */
void plane_record_refusal(const struct http_request *request, const struct capability_claims *claims,
                          const struct plane_refusal *refusal, const struct error *err);

/** The sandbox counts as used until the request ends, however long its reply takes. What caller_of gave before is gone.
 */
void plane_stay(struct http_request *request);
/** The same for one that holds a file of a files_call, which is closed with it: files_file_closed is called. */
void plane_stay_with_file(struct http_request *request);

/** Until when a token that was just taken is good, as boot time, for timers: its end; in the leeway behind that, which
 * the judge gives to clocks that differ (CAPABILITY_LEEWAY_S), the leeway's end. */
uint64_t plane_deadline_ns(int64_t expires_s) MUST_USE;

/** The rows of the node's own routes (plane_metrics.c): GET /metrics. Static. */
const struct http_route *plane_metrics_routes(size_t *count) MUST_USE;

/** Who asks, as the origin of a command (process_deed). The caller frees. */
char *plane_origin(const struct http_request *request) MUST_USE;

/* ---- for sandboxes_options, with the plane as context; the sandbox's loop ---- */

/** Records "exec": id, cwd, timeout, and the command line cut at SPOOL_COMMAND_MAX. False: it is not to be started. */
bool plane_command_starts(void *plane, const struct process_deed *deed, struct error *err) MUST_USE;
/** Records "stdin". */
bool plane_command_takes_input(void *plane, const struct process_deed *deed, struct error *err) MUST_USE;
/** Records "pause", "resume", "snapshot", "limits" and "network", as ok before and as failed after. False: it is not to
 * be done.
 */
bool plane_sandbox_changes(void *plane, const struct sandbox_deed *deed, struct error *err) MUST_USE;
/** Records "exec.end": exit code, signal, timed_out, oom; unless a front before this one did. */
void plane_command_ended(void *plane, const struct process_deed *deed);
