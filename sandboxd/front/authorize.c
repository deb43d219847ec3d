/* authorize.c - the order of protocol.md, 3 "Verification", and a record in the spool for each refusal. */
#include "sandboxd/front/authorize.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

/* ---- the spool ---- */

static bool refuse(const struct http_request *request, const struct capability_claims *claims, const char *reason,
                   const struct error *err)
{
    struct plane_refusal refusal = {.action = "refuse", .reason = reason};
    plane_record_refusal(request, claims, &refusal, err);
    return false;
}

/* ---- the checks ---- */

bool authorize_set_revoked(struct error *err)
{
    return error_set(err, ERROR_TOKEN_REVOKED, "the token was revoked, or spent by a refresh; negotiate for another");
}

bool authorize_has_contact(const struct plane *plane, const struct capability_claims *claims, int64_t now_ms,
                           struct error *err)
{
    if (!claims->long_lived || now_ms - node_seal_contact_ms(plane->seal) < plane->long_contact_max_s * 1000)
        return true;
    return error_set(err, ERROR_TOKEN_EXPIRED,
                     "long-lived tokens hold while the node has heard from its negotiator within %" PRId64
                     " s, and it has not",
                     plane->long_contact_max_s);
}

/* What holds for every request, cached or not: marks as of `marks_ms`, the rest now. */
static bool check_state(const struct http_request *request, const struct capability_claims *claims,
                        const struct registry_view *view, int64_t marks_ms, struct error *err)
{
    struct plane *plane = plane_of(request);
    if (marks_refuses(plane->marks, claims, marks_ms)) {
        authorize_set_revoked(err);
        return refuse(request, claims, "revoked", err);
    }
    if (!authorize_has_contact(plane, claims, clock_wall_ms(), err))
        return refuse(request, claims, "no_contact", err);
    if (view->state == REGISTRY_ENDED) {
        error_set(err, ERROR_GONE, "the sandbox has ended: %s", view->reason);
        return refuse(request, claims, "ended", err);
    }
    return true;
}

/* `needs`: one scope, or several with a | between. */
static bool allows_any(const struct scope_set *set, const char *needs)
{
    while (*needs) {
        char one[SCOPE_ATOM_BYTES];
        size_t length = strcspn(needs, "|");
        if (text_format(one, sizeof one, "%.*s", (int)length, needs) && scope_allows(set, one))
            return true;
        needs += length + (needs[length] == '|');
    }
    return false;
}

static bool check_scope(const struct http_request *request, const struct capability_claims *claims,
                        const struct http_route *route, struct error *err)
{
    if (!*route->needs || allows_any(&claims->scopes, route->needs))
        return true;
    char granted[SCOPE_TEXT_BYTES];
    scope_format(&claims->scopes, granted);
    error_set(err, ERROR_CAPABILITY_DENIED, "%s %s needs scope %s; the token grants %.120s", route->method, route->path,
              route->needs, granted[0] ? granted : "nothing");
    return refuse(request, claims, capability_refusal_name(CAPABILITY_SCOPE_MISSING), err);
}

/* ---- a token on its own ---- */

/* The sandbox whose key must have made the token; false when the request names none. */
static bool find_addressed(const struct http_request *request, const char *token,
                           char sandbox_id[static CAPABILITY_ID_BYTES])
{
    const char *named = http_request_parameter(request, "sandbox");
    if (named)
        return text_copy(sandbox_id, CAPABILITY_ID_BYTES, named);
    return capability_addressed(token, strlen(token), sandbox_id);
}

/* A valid token of a higher epoch: the negotiator has raised it, and lower ones are over, here too from now on. */
static void raise_epoch(struct plane *plane, const struct capability_claims *claims)
{
    marks_raise_epoch(plane->marks, claims->sandbox_id, claims->epoch);
    registry_raise_epoch(sandboxes_registry(plane->sandboxes), claims->sandbox_id, claims->epoch);
}

/* From the issuer on the MAC has held, in the order of the checks, so that the claims may be told. */
static bool refuse_token(const struct http_request *request, const char *token, enum capability_refusal refusal,
                         const struct error *err)
{
    AUTO_FREE struct capability_claims *claims = memory_new(sizeof *claims);
    struct error ignored = {0};
    bool is_telling = refusal >= CAPABILITY_WRONG_ISSUER && capability_decode(claims, token, strlen(token), &ignored);
    struct plane_refusal told = {.action = "refuse", .reason = capability_refusal_name(refusal), .token = token};
    plane_record_refusal(request, is_telling ? claims : NULL, &told, err);
    return false;
}

static bool verify(struct http_request *request, const char *token, struct caller *caller, struct registry_view *view,
                   struct error *err)
{
    struct authorize_context *context = http_server_context(request);
    struct registry *registry = sandboxes_registry(context->plane.sandboxes);
    char sandbox_id[CAPABILITY_ID_BYTES] = "";
    bool known = find_addressed(request, token, sandbox_id) && registry_find(registry, sandbox_id, view);
    uint32_t marked = marks_epoch(context->plane.marks, sandbox_id), lowest = known ? view->epoch : 1;
    struct capability_expectation expected = {
        .issuer = node_seal_identity(context->plane.seal)->issuer,
        .sandbox_id = sandbox_id,
        .root = known ? &view->root : registry_decoy(registry),
        .epoch = marked > lowest ? marked : lowest,
        .unknown = !known,
    };
    struct capability_cache *cache = context->caches[loop_index(http_request_loop(request))];
    enum capability_refusal refusal =
        capability_cache_verify(cache, &caller->claims, &expected, token, strlen(token), caller->judged_ms / 1000, err);
    if (refusal == CAPABILITY_WRONG_EPOCH) /* that is how all tokens of a sandbox are revoked */
        authorize_set_revoked(err);
    if (refusal != CAPABILITY_OK)
        return refuse_token(request, token, refusal, err);
    if (caller->claims.epoch > expected.epoch)
        raise_epoch(&context->plane, &caller->claims);
    return true;
}

/* NULL: refused. The caller's. */
static struct caller *judge(struct http_request *request, const char *token, struct error *err)
{
    const struct http_route *route = http_request_route(request);
    AUTO_REGISTRY_VIEW view = {0};
    AUTO_FREE struct caller *caller = memory_new(sizeof *caller);
    caller->judged_ms = clock_wall_ms();
    if (!verify(request, token, caller, &view, err) ||
        !check_state(request, &caller->claims, &view, caller->judged_ms, err) ||
        !check_scope(request, &caller->claims, route, err))
        return NULL;
    caller->is_guest = view.is_guest;
    metrics_add(&plane_of(request)->counts.verified, 1);
    registry_touch(sandboxes_registry(plane_of(request)->sandboxes), caller->claims.sandbox_id, caller->judged_ms);
    return TAKE(caller);
}

static void set_caller(struct http_request *request, struct caller *caller)
{
    char jti[CAPABILITY_ID_BYTES];
    memcpy(jti, caller->claims.jti, sizeof jti);
    http_request_set_identity(request, caller, free, jti);
}

/* ---- the first look, when the head is there ---- */

static bool look_first(struct http_request *request, const struct http_route *route, struct error *err)
{
    const char *token = http_request_credential(request);
    if (!token) {
        error_set(err, ERROR_UNAUTHENTICATED, "a capability is needed: Authorization: Bearer, or the headers of its endpoint");
        return refuse(request, NULL, "no_token", err);
    }
    struct caller *caller = judge(request, token, err);
    if (!caller)
        return false;
    set_caller(request, caller);
    if (strcmp(route->method, "GET") == 0)
        plane_record_read(request);
    return true;
}

/* ---- a token behind the head ---- */

static bool continues(const struct capability_claims *claims, const struct capability_claims *before)
{
    return strcmp(claims->sandbox_id, before->sandbox_id) == 0 && strcmp(claims->principal, before->principal) == 0 &&
           strcmp(claims->lease, before->lease) == 0;
}

bool authorize_late(struct http_request *request, const char *token, struct error *err)
{
    const struct caller *before = caller_of(request);
    if (!http_authentication_allowed(request, err))
        return false;
    AUTO_FREE struct caller *caller = judge(request, token, err);
    if (!caller && err->kind == ERROR_UNAUTHENTICATED)
        http_authentication_failed(request);
    if (!caller)
        return false;
    if (before && !continues(&caller->claims, &before->claims)) {
        error_set(err, ERROR_FORBIDDEN, "the token is not of the same sandbox, principal and lease as the one before");
        return refuse(request, &caller->claims, "not_the_same", err);
    }
    set_caller(request, TAKE(caller));
    return true;
}

/* ---- the second look, before the handler: only what may have changed since the first ---- */

/* The body was an upload that began in time: the token's end, and its being spent by a refresh (a mark in force only
 * from a moment after the first look), do not cut it off; revocation does. */
static bool look_again(struct http_request *request, const struct caller *caller, struct error *err)
{
    const struct capability_claims *claims = &caller->claims;
    AUTO_REGISTRY_VIEW view = {0};
    if (clock_wall_ms() / 1000 > claims->expires_at + PLANE_AFTER_EXPIRY_S + CAPABILITY_LEEWAY_S) {
        error_set(err, ERROR_TOKEN_EXPIRED, "the token expired an hour ago");
        return refuse(request, claims, "expired", err);
    }
    if (!registry_find(sandboxes_registry(plane_of(request)->sandboxes), claims->sandbox_id, &view)) {
        error_set(err, ERROR_GONE, "the sandbox has ended");
        return refuse(request, claims, "ended", err);
    }
    return check_state(request, claims, &view, caller->judged_ms, err);
}

bool authorize(struct http_request *request, const struct http_route *route, struct error *err)
{
    if (!route->needs)
        return true;
    const struct caller *judged = caller_of(request);
    return judged ? look_again(request, judged, err) : look_first(request, route, err);
}
