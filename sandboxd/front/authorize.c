/* authorize.c - the order of protocol.md, 3 "Verification", and a line in the log for each refusal. */
#include "sandboxd/front/authorize.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <string.h>

static const int64_t CONTACT_MS = 3600 * INT64_C(1000); /* long-lived tokens hold for so long without a negotiator */

/* What the log may show of a token that was not accepted. */
static void name_refused(char to[static 80], const char *token, size_t length, enum capability_refusal refusal)
{
    struct capability_claims claims;
    struct error ignored = {0};
    /* From here on in the order of checks the MAC has held, so its claims may be told. */
    if (refusal >= CAPABILITY_WRONG_ISSUER && capability_decode(&claims, token, length, &ignored)) {
        snprintf(to, 80, "%s", claims.jti);
        return;
    }
    uint8_t hash[crypto_generichash_BYTES_MIN];
    char hex[9];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)token, length, NULL, 0);
    text_hex(hex, hash, 4);
    snprintf(to, 80, "bad:%s", hex);
}

static bool refuse(const struct http_request *request, const char *sandbox_id, const char *token,
                   enum capability_refusal refusal)
{
    char name[80];
    name_refused(name, token, strlen(token), refusal);
    log_info("audit", "action=refuse reason=%s jti=%s sandbox=%.40s request=%s remote=%s",
             capability_refusal_name(refusal), name, sandbox_id, http_request_id(request),
             http_request_remote(request));
    return false;
}

/* The sandbox whose key must have made the token; false when the request names none. */
static bool find_addressed(const struct http_request *request, const char *token,
                           char sandbox_id[static CAPABILITY_ID_BYTES])
{
    const char *named = http_request_parameter(request, "sandbox");
    if (named)
        return text_copy(sandbox_id, CAPABILITY_ID_BYTES, named);
    return capability_addressed(token, strlen(token), sandbox_id);
}

static bool is_too_old(const struct capability_claims *claims, const struct plane *plane, int64_t now_ms)
{
    return claims->long_lived && now_ms - node_seal_contact_ms(plane->seal) >= CONTACT_MS;
}

/* What holds for every request, cached or not. */
static bool check_state(const struct http_request *request, const struct caller *caller,
                        const struct registry_view *view, int64_t now_ms, struct error *err)
{
    const struct capability_claims *claims = &caller->claims;
    if (capability_check_time(claims, now_ms / 1000, err) != CAPABILITY_OK)
        return false;
    if (is_too_old(claims, plane_of(request), now_ms))
        return error_set(err, ERROR_TOKEN_EXPIRED,
                         "long-lived tokens hold while the node has heard from its negotiator "
                         "within the hour, and it has not");
    if (view->state == REGISTRY_ENDED)
        return error_set(err, ERROR_GONE, "the sandbox has ended: %s", view->reason);
    return true;
}

static bool check_scope(const struct http_request *request, const struct caller *caller, const struct http_route *route,
                        struct error *err)
{
    if (scope_allows(&caller->claims.scopes, route->needs))
        return true;
    char granted[SCOPE_TEXT_BYTES];
    scope_format(&caller->claims.scopes, granted);
    log_info("audit", "action=refuse reason=scope_missing jti=%s sandbox=%s needs=%s request=%s remote=%s",
             caller->claims.jti, caller->claims.sandbox_id, route->needs, http_request_id(request),
             http_request_remote(request));
    return error_set(err, ERROR_CAPABILITY_DENIED, "%s %s needs scope %s; the token grants %.120s", route->method,
                     route->path, route->needs, granted[0] ? granted : "nothing");
}

static bool verify(struct http_request *request, const char *token, struct caller *caller, struct registry_view *view,
                   int64_t now_ms, struct error *err)
{
    struct authorize_context *context = http_server_context(request);
    struct registry *registry = sandboxes_registry(context->plane.sandboxes);
    char sandbox_id[CAPABILITY_ID_BYTES] = "";
    bool known = find_addressed(request, token, sandbox_id) && registry_find(registry, sandbox_id, view);
    struct capability_expectation expected = {
        .issuer = node_seal_identity(context->plane.seal)->issuer,
        .sandbox_id = sandbox_id,
        .root = known ? &view->root : registry_decoy(registry),
        .epoch = known ? view->epoch : 1,
        .unknown = !known,
    };
    struct capability_cache *cache = context->caches[loop_index(http_request_loop(request))];
    enum capability_refusal refusal =
        capability_cache_verify(cache, &caller->claims, &expected, token, strlen(token), now_ms / 1000, err);
    return refusal == CAPABILITY_OK || refuse(request, sandbox_id, token, refusal);
}

/* The second look, before the handler: only what may have changed since the first. */
static bool look_again(struct http_request *request, const struct caller *caller, struct error *err)
{
    AUTO_REGISTRY_VIEW view = {0};
    struct registry *registry = sandboxes_registry(plane_of(request)->sandboxes);
    if (!registry_find(registry, caller->claims.sandbox_id, &view))
        return error_set(err, ERROR_GONE, "the sandbox has ended");
    return check_state(request, caller, &view, clock_wall_ms(), err);
}

bool authorize(struct http_request *request, const struct http_route *route, struct error *err)
{
    if (!route->needs)
        return true;
    const struct caller *judged = caller_of(request);
    if (judged)
        return look_again(request, judged, err);
    const char *token = http_request_credential(request);
    if (!token)
        return error_set(err, ERROR_UNAUTHENTICATED, "a capability is needed: Authorization: Bearer <token>");
    AUTO_REGISTRY_VIEW view = {0};
    AUTO_FREE struct caller *caller = memory_new(sizeof *caller);
    int64_t now_ms = clock_wall_ms();
    if (!verify(request, token, caller, &view, now_ms, err) || !check_state(request, caller, &view, now_ms, err) ||
        !check_scope(request, caller, route, err))
        return false;
    registry_touch(sandboxes_registry(plane_of(request)->sandboxes), caller->claims.sandbox_id, now_ms);
    char jti[CAPABILITY_ID_BYTES];
    memcpy(jti, caller->claims.jti, sizeof jti);
    http_request_set_identity(request, TAKE(caller), free, jti);
    return true;
}
