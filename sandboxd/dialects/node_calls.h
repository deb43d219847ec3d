/** node_calls.h - the calls of the node route, shared by the files that make it up: node.c (the route, and what has no
 *  sandbox of its own), node_prepare.c, node_sandbox.c. On the request's loop. */
#pragma once

#include "sandboxd/sandbox/sandboxes.h"
#include "shared/http/server.h"

/* What a request waits for; its identity while it does. */
struct node_waiting {
    uint64_t number; /* of the message to answer */
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    bool reused;
    uint64_t began_ns; /* CLOCK_MONOTONIC: the message came */
    uint64_t most;     /* logs: bytes of each stream */
};

/** Answers the message of that number; takes the reference to `answer`. */
void node_reply(struct http_request *request, uint64_t number, json_t *answer);
void node_reply_error(struct http_request *request, uint64_t number, const struct error *err);

/** The request waits for a verb, whose cookie this returns; `sandbox_id` may be "". */
void *node_wait(struct http_request *request, uint64_t number, const char *sandbox_id) MUST_USE;
/** The request, whose identity is a struct node_waiting, when the verb went well; NULL when the negotiator is gone, or
 * was told the error. */
struct http_request *node_find(void *cookie, const struct verb_answer *answer) MUST_USE;
/** The same, with what is known of its sandbox: GONE is told when that is not known any more. */
struct http_request *node_find_sandbox(void *cookie, const struct verb_answer *answer,
                                       struct registry_view *view) MUST_USE;

/** A text that must be there; NULL when it is not, and *err names it. */
const char *node_text(const json_t *message, const char *name, struct error *err) MUST_USE;
/** A number 0..`highest`; one that is missing leaves *value. */
bool node_number(const json_t *message, const char *name, uint64_t highest, uint64_t *value,
                 struct error *err) MUST_USE;
/** The limits in a message, those missing 0; and as they are told. */
bool node_limits_read(const json_t *message, struct fl_limits *limits, struct error *err) MUST_USE;
json_t *node_limits_json(const struct fl_limits *limits) MUST_USE;

/** `network` of a message: NULL is none. INVALID names what is wrong. */
bool node_network_read(const json_t *given, struct fl_network *network, struct error *err) MUST_USE;

/** `sandbox` of a prepare; *entrypoint (the caller's) stays NULL when it has none. INVALID names what is wrong. */
bool node_prepare_read(const json_t *message, struct fl_prepare *prepare, struct command **entrypoint,
                       struct error *err) MUST_USE;

/** A call. False: it could not begin, and *err is the answer. */
typedef bool node_call_fn(struct http_request *request, const json_t *message, uint64_t number, struct error *err);
node_call_fn node_prepare, node_limits, node_network, node_pause, node_resume, node_snapshot, node_snapshot_drop,
    node_volume_drop, node_evidence, node_logs;
