/* osb_endpoints.c - where a port of a sandbox is reached, and with what (L9): an address without a scheme, and a token
 * that a client sends with each request for as long as it has its sandbox. Its clients never refresh one. */
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_ask.h"
#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/opensandbox/osb_port.h"
#include "negotiator/dialects/waiting.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <string.h>
#include <strings.h>

enum { HOST_MAX_BYTES = 261 };

/* What the query says, read once more when the grant is there. */
struct way {
    uint16_t port;
    bool by_proxy, in_path;
};

static bool read_switch(const struct http_request *request, const char *name, bool *to, struct osb_refusal *refusal)
{
    const char *text = http_request_query(request, name);
    *to = text && (strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0);
    return text == NULL || *to || strcasecmp(text, "false") == 0 || strcmp(text, "0") == 0 ||
           osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID, "%s must be true or false", name);
}

static bool read_way(const struct http_request *request, struct way *way, struct osb_refusal *refusal)
{
    if (!osb_port_read(request, &way->port, &refusal->err)) {
        refusal->code = OSB_INVALID_PORT;
        return false;
    }
    if (!read_switch(request, "use_server_proxy", &way->by_proxy, refusal) ||
        !read_switch(request, "capability_url", &way->in_path, refusal))
        return false;
    return !(way->by_proxy && way->in_path) ||
           osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID, "capability_url goes without use_server_proxy");
}

/* --- the answer --- */

/* As the client addressed us; NULL when that is no authority. */
static const char *own_host(const struct http_request *request)
{
    const char *host = http_request_header(request, "host");
    return host && text_is_made_of(host, HOST_MAX_BYTES - 1, ".-_:[]") ? host : NULL;
}

static const char *without_scheme(const char *url)
{
    const char *rest = strstr(url, "://");
    return rest ? rest + strlen("://") : url;
}

/* The caller's. The policy of what leaves is the negotiator's to change: its address, below the prefix that needs no
 * header of this protocol. */
static char *make_endpoint(const struct http_request *request, const struct negotiation *n, const struct way *way,
                           const char *token)
{
    const char *host = own_host(request), *node = without_scheme(n->url), *id = n->sandbox.id;
    if (way->in_path)
        return memory_printf("%s/c/%s/port/%u", node, token, way->port);
    if (way->port == OSB_PORT_EGRESS && host)
        return memory_printf("%s/v1/sandboxes/%s/port/%u", host, id, way->port);
    if (way->by_proxy && host)
        return memory_printf("%s/sandboxes/%s/proxy/%u", host, id, way->port);
    return memory_printf("%s/sandboxes/%s/port/%u", node, id, way->port);
}

/* For waiting_start. */
static void print(struct http_request *request, const struct negotiation *n)
{
    char token[CAPABILITY_TEXT_BYTES];
    struct osb_refusal refusal = {.err = n->refusal};
    struct way way;
    if (refusal.err.kind != ERROR_NONE || !read_way(request, &way, &refusal) ||
        !leasing_mint(plane_of(request)->leasing, n, token, &refusal.err)) {
        waiting_retry_after(request, n->retry_after_s);
        osb_refuse_quietly(request, &refusal);
        return;
    }
    AUTO_FREE char *endpoint = make_endpoint(request, n, &way, token);
    json_t *headers = way.in_path ? NULL : json_pack("{s:s}", "X-EXECD-ACCESS-TOKEN", token);
    if (headers && way.port == OSB_PORT_EGRESS)
        json_object_set_new(headers, "OPENSANDBOX-EGRESS-AUTH", json_string(token));
    http_reply_json(request, 200, json_pack("{s:s, s:o*}", "endpoint", endpoint, "headers", headers));
    sodium_memzero(token, sizeof token);
}

/* --- the question --- */

static bool read_expires(const struct http_request *request, struct wanted *wanted, const struct way *way,
                         struct osb_refusal *refusal)
{
    const char *expires = http_request_query(request, "expires");
    uint64_t at;
    wanted->is_long = true;
    if (expires == NULL)
        return true;
    if (way->by_proxy)
        return osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID, "expires goes without use_server_proxy");
    if (!text_parse_u64(expires, strlen(expires), INT64_MAX / 1000, &at) || (int64_t)at * 1000 <= clock_wall_ms())
        return osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID,
                               "expires must be seconds since 1970, and in the future");
    wanted->expires_at_s = (int64_t)at;
    return true;
}

static bool read_endpoint(const struct http_request *request, struct negotiation *n, struct osb_refusal *refusal)
{
    struct way way;
    return plane_caller(request, &n->caller, &refusal->err) && read_way(request, &way, refusal) &&
           osb_sandbox_id(request, n->sandbox_id, &refusal->err) && read_expires(request, &n->wanted, &way, refusal) &&
           osb_port_scopes(way.port, &n->wanted, &refusal->err);
}

static void get_endpoint(struct http_request *request)
{
    struct osb_refusal refusal = {.code = NULL};
    AUTO(negotiation) *n = negotiation_new();
    if (!read_endpoint(request, n, &refusal)) {
        osb_refuse_quietly(request, &refusal);
        return;
    }
    struct waiting *waiting = waiting_start(request, n, print);
    if (leasing_grant(plane_of(request)->leasing, n, &refusal.err)) {
        n = NULL; /* the rules have it */
        return;
    }
    waiting_cancel(waiting);
    osb_refuse_quietly(request, &refusal);
}

struct plane_rows osb_endpoints_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/v1/sandboxes/{sandbox_id}/endpoints/{port}", OSB_KEY, "user", 0, get_endpoint},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
