/* authorize.c - the order of protocol.md, 3 "Verification", and a record in the spool for each refusal. */
#include "sandboxd/front/authorize.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <string.h>

static const int64_t CONTACT_MS = 3600 * INT64_C(1000); /* long-lived tokens hold for so long without a negotiator */

/* ---- the spool ---- */

static struct spool_record make_record(const struct http_request *request, const struct capability_claims *claims)
{
    struct spool_record record = {.remote = http_request_remote(request), .request_id = http_request_id(request)};
    if (!claims)
        return record;
    record.principal = claims->principal;
    record.actor = claims->actor;
    record.thread_id = claims->thread_id;
    record.sandbox_id = claims->sandbox_id;
    record.lease = claims->lease;
    record.jti = claims->jti;
    return record;
}

/* What may be told of a token whose MAC has not held: nothing that it says. */
static void name_token(const struct http_request *request, char to[static 16])
{
    const char *token = http_request_credential(request);
    uint8_t hash[crypto_generichash_BYTES_MIN];
    char hex[9] = "";
    if (token) {
        crypto_generichash(hash, sizeof hash, (const uint8_t *)token, strlen(token), NULL, 0);
        text_hex(hex, hash, 4);
    }
    snprintf(to, 16, "%s%s", token ? "bad:" : "none", hex);
}

void authorize_record_refusal(const struct http_request *request, const struct capability_claims *claims,
                              const char *action, const char *reason, const struct error *err)
{
    struct spool_record record = make_record(request, claims);
    const struct http_route *route = http_request_route(request);
    const char *named = http_request_parameter(request, "sandbox");
    char token[16] = "", scope[SCOPE_TEXT_BYTES] = "", links[CAPABILITY_LINKS_TEXT_BYTES] = "", detail[640];
    if (claims) {
        capability_links_format(claims, links);
        scope_format(&claims->scopes, scope);
        snprintf(detail, sizeof detail, "reason=%s route=%s %s", reason, route->method, route->path);
    } else {
        name_token(request, token);
        snprintf(detail, sizeof detail, "reason=%s token=%s named=%.63s route=%s %s", reason, token,
                 named ? named : "-", route->method, route->path);
    }
    record.action = action;
    record.outcome = "refused";
    record.status = error_http_status(err->kind);
    record.links = links;
    record.scope = scope;
    record.detail = detail;
    spool_refusal(plane_of(request)->spool, &record);
}

static void record_read(const struct http_request *request, const struct http_route *route,
                        const struct capability_claims *claims)
{
    if (strcmp(route->method, "GET") != 0)
        return;
    struct spool_record record = make_record(request, claims);
    char links[CAPABILITY_LINKS_TEXT_BYTES];
    capability_links_format(claims, links);
    record.action = "read";
    record.outcome = "ok";
    record.links = links;
    record.detail = route->path;
    spool_read(plane_of(request)->spool, &record);
}

static bool refuse(const struct http_request *request, const struct capability_claims *claims, const char *reason,
                   const struct error *err)
{
    authorize_record_refusal(request, claims, "refuse", reason, err);
    return false;
}

/* ---- the checks ---- */

bool authorize_set_revoked(struct error *err)
{
    return error_set(err, ERROR_TOKEN_REVOKED, "the token was revoked, or spent by a refresh; negotiate for another");
}

static bool is_too_old(const struct capability_claims *claims, const struct plane *plane, int64_t now_ms)
{
    return claims->long_lived && now_ms - node_seal_contact_ms(plane->seal) >= CONTACT_MS;
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
    if (is_too_old(claims, plane, clock_wall_ms())) {
        error_set(err, ERROR_TOKEN_EXPIRED,
                  "long-lived tokens hold while the node has heard from its negotiator "
                  "within the hour, and it has not");
        return refuse(request, claims, "no_contact", err);
    }
    if (view->state == REGISTRY_ENDED) {
        error_set(err, ERROR_GONE, "the sandbox has ended: %s", view->reason);
        return refuse(request, claims, "ended", err);
    }
    return true;
}

static bool check_scope(const struct http_request *request, const struct capability_claims *claims,
                        const struct http_route *route, struct error *err)
{
    if (scope_allows(&claims->scopes, route->needs))
        return true;
    char granted[SCOPE_TEXT_BYTES];
    scope_format(&claims->scopes, granted);
    error_set(err, ERROR_CAPABILITY_DENIED, "%s %s needs scope %s; the token grants %.120s", route->method, route->path,
              route->needs, granted[0] ? granted : "nothing");
    return refuse(request, claims, capability_refusal_name(CAPABILITY_SCOPE_MISSING), err);
}

/* ---- the first look, when the head is there ---- */

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
    return refuse(request, is_telling ? claims : NULL, capability_refusal_name(refusal), err);
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

static bool look_first(struct http_request *request, const struct http_route *route, struct error *err)
{
    const char *token = http_request_credential(request);
    if (!token) {
        error_set(err, ERROR_UNAUTHENTICATED, "a capability is needed: Authorization: Bearer <token>");
        return refuse(request, NULL, "no_token", err);
    }
    AUTO_REGISTRY_VIEW view = {0};
    AUTO_FREE struct caller *caller = memory_new(sizeof *caller);
    caller->judged_ms = clock_wall_ms();
    if (!verify(request, token, caller, &view, err) ||
        !check_state(request, &caller->claims, &view, caller->judged_ms, err) ||
        !check_scope(request, &caller->claims, route, err))
        return false;
    registry_touch(sandboxes_registry(plane_of(request)->sandboxes), caller->claims.sandbox_id, caller->judged_ms);
    record_read(request, route, &caller->claims);
    char jti[CAPABILITY_ID_BYTES];
    memcpy(jti, caller->claims.jti, sizeof jti);
    http_request_set_identity(request, TAKE(caller), free, jti);
    return true;
}

/* ---- the second look, before the handler: only what may have changed since the first ---- */

/* The body was an upload that began in time: the token's end, and its being spent by a refresh (a mark in force only
 * from a moment after the first look), do not cut it off; revocation does. */
static bool look_again(struct http_request *request, const struct caller *caller, struct error *err)
{
    const struct capability_claims *claims = &caller->claims;
    AUTO_REGISTRY_VIEW view = {0};
    if (clock_wall_ms() / 1000 > claims->expires_at + AUTHORIZE_AFTER_EXPIRY_S + CAPABILITY_LEEWAY_S) {
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
