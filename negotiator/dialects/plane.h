/** plane.h - what every dialect of the negotiator reaches from a request: the rules, the nodes, who asks; and the way
 *  from a loop to the ledger thread and back. Dialects translate only. */
#pragma once

#include "negotiator/fleet/fleet.h"
#include "negotiator/identity/identity.h"
#include "negotiator/leasing/leasing.h"
#include "shared/base/metrics.h"
#include "shared/http/server.h"

#include <stdatomic.h>

#define PLANE_BODY_BYTES (1024 * 1024) /* of any request here: none is ever spooled to a file */

#define PLANE_LOOPS_MAX  64 /* of a server */

/* How what was asked for was answered. */
struct plane_outcomes {
    struct metrics_counter created, granted, refused[ERROR_KINDS];
};

/* Since the start, for /metrics; any loop adds. */
struct plane_counts {
    struct plane_outcomes negotiations, refreshes, shares;
    struct metrics_counter strangers, forbidden;
};

struct plane {
    struct leasing *leasing;
    struct fleet *fleet;
    struct ledger *ledger;
    struct principal_table *principals;
    struct events_hub *hub;         /* who is told that the audit chain grew */
    struct courier *courier;        /* who sends events to webhooks */
    struct identity *identity;      /* of outside issuers; NULL: there are none */
    const char *preview_domain;     /* below which nodes serve previews; borrowed */
    const char *image_templates;    /* "GLOB=TEMPLATE,...": what an image of another protocol is here; borrowed */
    const char *opensandbox_egress; /* what its sandboxes reach that say nothing of it: "none", "public"; borrowed */
    bool metrics_open;              /* /metrics asks nobody who he is, also beyond this machine */
    struct plane_counts counts;
    struct passing_room *passing_room;
    struct kept_grants *kept_grants[PLANE_LOOPS_MAX]; /* each belongs to its loop; NULL before and after */
    struct housekeeping *housekeeping;                /* of the first loop; NULL elsewhere and before */
};

/** http_server_context of the request. */
struct plane *plane_of(const struct http_request *request) MUST_USE;

/** A route's `needs` that an API key meets whatever its role, and that lets through who shows none: the handler then
 *  asks for a capability. */
#define PLANE_HOLDER "holder"

/** The server's hook: API keys, and the role that the route needs. */
bool plane_authorize(struct http_request *request, const struct http_route *route, struct error *err) MUST_USE;

/** The credential is good and this principal's: sets the request's identity, if its role is what the route needs.
 *  FORBIDDEN, recorded. */
bool plane_admit(struct http_request *request, const struct principal *principal, struct error *err) MUST_USE;

/** Records a refusal that the dialect gives before the rules are asked. */
void plane_record_refusal(const struct http_request *request, const struct error *err);

/** Ends the request with an error, recorded: for what changes things and is refused before the rules are asked. */
void plane_refuse(struct http_request *request, const struct error *err);

/** Ends a request whose node message did not open; one of a lower incarnation is recorded. */
void plane_refuse_node(struct http_request *request, const struct fleet_message *message, const struct error *err);

/** The server's hooks: while the first loop runs, what has to be done from time to time is (housekeeping.c). `context`
 *  is the plane. */
void plane_loop_started(struct loop *loop, void *context);
void plane_loop_ending(struct loop *loop, void *context);

/** What the rules ask of the nodes, answered by `fleet`. */
struct leasing_nodes plane_nodes(struct fleet *fleet) MUST_USE;

/** Who asks without an API key, on a route for holders: remote and request id alone. ERROR_INVALID. */
bool plane_holder(const struct http_request *request, struct caller *caller, struct error *err) MUST_USE;

/** Who asks, and with ?principal= on whose behalf. ERROR_INVALID. */
bool plane_caller(const struct http_request *request, struct caller *caller, struct error *err) MUST_USE;

/** The thread of the route. ERROR_INVALID. */
bool plane_thread(const struct http_request *request, char to[static CAPABILITY_THREAD_BYTES],
                  struct error *err) MUST_USE;

/** Who asks, and whose things he means to see, with ?principal= and ?all=1: one's own; an admin's choice, ""
 * everybody's. ERROR_INVALID, FORBIDDEN, NOT_FOUND. */
bool plane_whose(const struct http_request *request, struct caller *caller, char whose[static PRINCIPAL_BYTES],
                 struct error *err) MUST_USE;

/** All routes of all dialects, one table. */
const struct http_route *plane_routes(size_t *count) MUST_USE;

/** One dialect's rows. */
struct plane_rows {
    const struct http_route *rows;
    size_t count;
};
struct plane_rows threads_rows(void);
struct plane_rows sandboxes_rows(void);
struct plane_rows changes_rows(void);
struct plane_rows snapshots_rows(void);
struct plane_rows volumes_rows(void);
struct plane_rows node_rows(void);
struct plane_rows admin_rows(void);
struct plane_rows revocations_rows(void);
struct plane_rows nodes_rows(void);
struct plane_rows audit_rows(void);
struct plane_rows execute_rows(void);
struct plane_rows keys_rows(void);
struct plane_rows login_rows(void);
struct plane_rows policy_rows(void);
struct plane_rows events_rows(void);
struct plane_rows webhooks_rows(void);
struct plane_rows share_rows(void);
struct plane_rows incidents_rows(void);
struct plane_rows metrics_rows(void);
struct plane_rows logs_rows(void);

/** For http_server_options.error_body: errors of POST /execute as its clients read them; NULL of any other route. */
json_t *execute_error(const struct http_request *request, const struct error *err) MUST_USE;
