/* ports_admit.c - see ports_admit.h. */
#include "sandboxd/dialects/native/ports/ports_admit.h"

#include "sandboxd/dialects/plane.h"
#include "sandboxd/sandbox/ports/ports.h"

#include <stdio.h>

bool ports_covers(const struct http_request *request, uint16_t port)
{
    char needed[16];
    (void)snprintf(needed, sizeof needed, "port@%u", port);
    return scope_allows(&caller_of(request)->claims.scopes, needed);
}

static bool deny(const struct http_request *request, const struct error *err)
{
    struct plane_refusal refusal = {.action = "refuse", .reason = "scope"};
    plane_record_refusal(request, &caller_of(request)->claims, &refusal, err);
    return false;
}

/* A path of /c/{token}/... has no {sandbox}. */
static bool is_in_path(const struct http_request *request)
{
    return http_request_parameter(request, "sandbox") == NULL;
}

bool ports_admit_carrier(const struct http_request *request, struct error *err)
{
    const struct scope_set *scopes = &caller_of(request)->claims.scopes;
    if (!is_in_path(request))
        return true;
    for (size_t i = 0; i < scopes->count; i++) {
        if (scopes->atoms[i].verb == SCOPE_PORT)
            continue;
        error_set(err, ERROR_CAPABILITY_DENIED,
                  "a token in the path of a port may hold port scopes only, as the app behind it may come to see it; "
                  "narrow it (port@N), or send it as Authorization");
        return deny(request, err);
    }
    return true;
}

bool ports_admit(const struct http_request *request, uint16_t *port, struct error *err)
{
    if (!ports_parse(http_request_parameter(request, "port"), port, err))
        return false;
    if (ports_covers(request, *port))
        return true;
    char granted[SCOPE_TEXT_BYTES];
    scope_format(&caller_of(request)->claims.scopes, granted);
    error_set(err, ERROR_CAPABILITY_DENIED, "this needs scope port@%u; the token grants %.120s", *port, granted);
    return deny(request, err);
}
