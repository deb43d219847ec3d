/* outside.c - requests whose token is of an outside issuer: they wait while a thread of the identity room verifies it.
 */
#include "negotiator/dialects/outside.h"

#include "shared/base/memory.h"

/* On its way there and back; the request is known by its number alone. */
struct proof {
    struct loop *loop;
    uint64_t request;
    bool is_good;
    struct principal principal;
    struct error err;
};

static void refuse(struct http_request *request, const struct error *err)
{
    if (err->kind == ERROR_UNAUTHENTICATED || err->kind == ERROR_TOKEN_EXPIRED) {
        leasing_stranger(plane_of(request)->leasing, http_request_remote(request));
        metrics_add(&plane_of(request)->counts.strangers, 1);
    }
    http_reply_error(request, err);
}

static void deliver(void *cookie)
{
    AUTO_FREE struct proof *proof = cookie;
    struct http_request *request = http_request_find(proof->loop, proof->request);
    if (request == NULL)
        return;
    if (!proof->is_good)
        refuse(request, &proof->err);
    else if (!plane_admit(request, &proof->principal, &proof->err))
        http_reply_error(request, &proof->err);
    else
        http_request_route(request)->handle(request);
}

static void proven(void *cookie, const struct principal *principal, const struct error *err)
{
    struct proof *proof = cookie;
    proof->is_good = principal != NULL;
    if (principal)
        proof->principal = *principal;
    proof->err = *err;
    loop_post(proof->loop, deliver, proof);
}

enum outside outside_authorize(struct http_request *request, struct error *err)
{
    struct identity *identity = plane_of(request)->identity;
    const char *credential = http_request_credential(request);
    struct principal principal;
    if (identity == NULL || credential == NULL || principal_is_api_key(credential))
        return OUTSIDE_NOT;
    if (identity_recall(identity, credential, &principal))
        return plane_admit(request, &principal, err) ? OUTSIDE_ADMITTED : OUTSIDE_REFUSED;
    if (!identity_is_outside(identity, credential))
        return OUTSIDE_NOT;
    http_request_set_identity(request, NULL, NULL, NULL); /* of the first look, while the body came: too long ago */
    return OUTSIDE_PENDING;
}

bool outside_gate(struct http_request *request)
{
    struct identity *identity = plane_of(request)->identity;
    const char *credential = http_request_credential(request);
    if (identity == NULL || http_request_route(request)->needs == NULL || http_request_identity(request) != NULL ||
        principal_is_api_key(credential) || !identity_is_outside(identity, credential))
        return false;
    struct proof *proof = memory_new(sizeof *proof);
    struct error err = {0};
    proof->loop = http_request_loop(request);
    proof->request = http_request_number(request);
    if (!identity_verify(identity, credential, proven, proof, &err)) {
        free(proof);
        http_reply_error(request, &err);
    }
    return true;
}
