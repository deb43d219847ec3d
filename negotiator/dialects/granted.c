#include "negotiator/dialects/granted.h"

#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/waiting.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <string.h>

enum { REFRESH_PERCENT = 20 };

json_t *granted_scopes(const char *scope)
{
    char text[SCOPE_TEXT_BYTES];
    json_t *list = json_array();
    if (!text_copy(text, sizeof text, scope))
        return list;
    char *rest = NULL;
    for (char *atom = strtok_r(text, " ", &rest); atom; atom = strtok_r(NULL, " ", &rest))
        json_array_append_new(list, json_string(atom));
    return list;
}

static json_t *shown_hint(const struct negotiation *n)
{
    if (!n->hint.given)
        return NULL;
    return json_pack("{s:s, s:b, s:s*}", "given", n->wanted.hint, "honored", n->hint.honored, "reason",
                     n->hint.honored ? NULL : n->hint.reason);
}

/* Of a share, who has it and how long it can be renewed. */
static json_t *shown_share(const struct negotiation *n)
{
    const char *principal = n->claims.principal;
    if (n->share_until == 0)
        return NULL;
    return json_pack("{s:s, s:s?, s:o}", "id", n->claims.family, "principal",
                     text_starts_with(principal, "share:") ? NULL : principal, "until",
                     shown_time(n->share_until * 1000));
}

static json_t *shown_grant(const struct negotiation *n, const char *token, const char *preview_domain)
{
    const struct capability_claims *claims = &n->claims;
    int64_t refresh = claims->expires_at - (claims->expires_at - claims->issued_at) * REFRESH_PERCENT / 100;
    const struct sandbox *sandbox = &n->sandbox;
    char scope[SCOPE_TEXT_BYTES];
    scope_format(&claims->scopes, scope);
    json_t *brief = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b}", "id", sandbox->id, "name", sandbox->name, "state",
                              sandbox_state_name(sandbox->state), "template", sandbox->template_name, "isolation",
                              sandbox->isolation, "node", sandbox->node, "reused", !n->created);
    if (sandbox->isolation_detail[0])
        json_object_set_new(brief, "isolation_detail", json_string(sandbox->isolation_detail));
    if (sandbox->storage[0])
        json_object_set_new(brief, "storage", json_string(sandbox->storage));
    json_object_set_new(brief, "warm", json_boolean(sandbox->was_warm));
    if (sandbox->snapshot[0])
        json_object_set_new(brief, "snapshot", json_string(sandbox->snapshot));
    json_t *endpoints = shown_endpoints(n->url, sandbox->id, n->wanted.capability_url ? token : NULL);
    if (sandbox->ports)
        json_object_set_new(endpoints, "previews", shown_previews(n->url, preview_domain, sandbox->id, sandbox->ports));
    return json_pack("{s:s, s:o, s:o*, s:o*, s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o*}", "protocol_version", "1.0",
                     "sandbox", brief, "hint", shown_hint(n), "share", shown_share(n), "lease", shown_lease(&n->lease),
                     "token", token, "token_type", "Bearer", "jti", claims->jti, "scopes", granted_scopes(scope),
                     "expires_at", shown_time(claims->expires_at * 1000), "refresh_before", shown_time(refresh * 1000),
                     "endpoints", endpoints, "long", claims->long_lived ? json_true() : NULL);
}

static void count_outcome(struct plane_outcomes *outcomes, const struct negotiation *n, const struct error *err)
{
    if (err->kind != ERROR_NONE)
        metrics_add(&outcomes->refused[err->kind], 1);
    else
        metrics_add(n->created ? &outcomes->created : &outcomes->granted, 1);
}

/* For waiting_start. */
static void print(struct http_request *request, const struct negotiation *n)
{
    char token[CAPABILITY_TEXT_BYTES];
    struct error err = n->refusal;
    struct plane_counts *counts = &plane_of(request)->counts;
    bool minted = err.kind == ERROR_NONE && leasing_mint(plane_of(request)->leasing, n, token, &err);
    count_outcome(n->share.is_wanted ? &counts->shares
                  : n->current_token ? &counts->refreshes
                                     : &counts->negotiations,
                  n, &err);
    if (!minted) {
        waiting_retry_after(request, n->retry_after_s);
        waiting_refuse(request, &err);
        return;
    }
    http_reply_json(request, n->created ? 201 : 200, shown_grant(n, token, plane_of(request)->preview_domain));
    sodium_memzero(token, sizeof token);
}

void granted_ask(struct http_request *request,
                 bool (*read)(const struct http_request *request, struct negotiation *n, struct error *err),
                 bool (*verb)(struct leasing *leasing, struct negotiation *n, struct error *err))
{
    struct error err = {0};
    AUTO(negotiation) *n = negotiation_new();
    if (!read(request, n, &err)) {
        plane_refuse(request, &err);
        return;
    }
    struct waiting *waiting = waiting_start(request, n, print);
    if (verb(plane_of(request)->leasing, n, &err)) {
        n = NULL; /* the rules have it */
        return;
    }
    waiting_cancel(waiting);
    plane_refuse(request, &err);
}
