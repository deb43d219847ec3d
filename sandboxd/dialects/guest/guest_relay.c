#include "sandboxd/dialects/guest/guest_relay.h"

#include "sandboxd/dialects/port_relay.h"
#include "sandboxd/sandbox/ports/ports.h"
#include "shared/base/memory.h"

#include <string.h>

/* What a route says, until the exchange is over. */
enum speaker {
    OF_A_ROUTE,        /* one of ours */
    OF_AN_APP,         /* what listens on a port of it */
    OF_AN_APP_BY_PATH, /* ... for a browser, perhaps */
    SPEAKERS
};

/* ---- the token ---- */

/* No links: what they left is what it grants. Not long-lived: the guest hears from no negotiator. */
static bool mint(const struct caller *caller, const struct key *root, char token[static CAPABILITY_TEXT_BYTES],
                 struct error *err)
{
    AUTO_FREE struct capability_claims *claims = memory_new(sizeof *claims);
    AUTO_KEY key;
    capability_claims_copy(claims, &caller->claims);
    claims->long_lived = false;
    key_guest_root(&key, root);
    key_token(&key, &key, claims->epoch);
    return capability_mint(token, claims, &key, err);
}

static bool make_token(struct http_request *request, char token[static CAPABILITY_TEXT_BYTES], struct error *err)
{
    AUTO_REGISTRY_VIEW view = {0};
    const struct caller *caller = caller_of(request);
    if (!registry_find(sandboxes_registry(plane_of(request)->sandboxes), caller->claims.sandbox_id, &view))
        return error_set(err, ERROR_GONE, "the sandbox has ended");
    return mint(caller, &view.root, token, err);
}

/* "/c/{token}/rest?query" with another token. */
static void replace_in_path(struct text *target, const char *token)
{
    AUTO_TEXT made = {0};
    const char *second = strchr(target->data + 1, '/');
    if (!second)
        return;
    text_append(&made, target->data, (size_t)(second + 1 - target->data));
    text_append_string(&made, token);
    text_append_string(&made, second + 1 + strcspn(second + 1, "/?"));
    text_done(target);
    *target = made;
    made = (struct text){0};
}

/* ---- what it may say ---- */

/* What our own routes answer with; a page of the guest's that tells more would be one of this server's. */
static bool is_of_a_route(const char *name)
{
    static const char *const NAMES[] = {"accept-ranges",
                                        "allow",
                                        "cache-control",
                                        "content-disposition",
                                        "content-range",
                                        "content-type",
                                        "etag",
                                        "execd-commands-tail-cursor",
                                        "last-modified",
                                        "retry-after",
                                        "sec-websocket-accept",
                                        "sec-websocket-protocol",
                                        "sec-websocket-version",
                                        "x-accel-buffering",
                                        NULL};
    for (const char *const *at = NAMES; *at; at++) {
        if (strcmp(name, *at) == 0)
            return true;
    }
    return strncmp(name, "x-parley-", 9) == 0;
}

static bool pass_answer_header(void *cookie, const char *name, const char **value UNUSED)
{
    const enum speaker *speaker = cookie;
    return *speaker == OF_A_ROUTE ? is_of_a_route(name) : port_relay_may_say(name, *speaker == OF_AN_APP_BY_PATH);
}

/* ---- the relay ---- */

static enum speaker speaker_of(const struct http_request *request, bool is_by_path)
{
    if (!(http_request_route(request)->carriers & HTTP_PROXIES))
        return OF_A_ROUTE;
    return is_by_path ? OF_AN_APP_BY_PATH : OF_AN_APP;
}

/* What is not the guest's to know. Returns how many. */
static size_t list_headers(const struct http_request *request, enum speaker speaker, struct http_pair headers[static 3])
{
    const char *referer = http_request_header(request, "referer");
    size_t count = 0;
    if (speaker != OF_AN_APP)
        headers[count++] = (struct http_pair){"cookie", NULL};
    if (speaker == OF_A_ROUTE || (referer && strstr(referer, PORT_RELAY_TOKEN_BEGINS)))
        headers[count++] = (struct http_pair){"referer", NULL};
    return count;
}

/* In a header that no app has a use for, where the route takes it: then Authorization is the app's. */
static struct http_pair token_header(const struct http_request *request, const char *token, const char *bearer)
{
    bool is_own = (http_request_route(request)->carriers & HTTP_EXECD) != 0;
    return (struct http_pair){is_own ? "X-EXECD-ACCESS-TOKEN" : "Authorization", is_own ? token : bearer};
}

/* The guest finds the token where it was when that was the path, and in the header else: query and subprotocols lose
 * theirs on the way. */
bool guest_relay(struct http_request *request, struct error *err)
{
    static enum speaker speakers[SPEAKERS] = {OF_A_ROUTE, OF_AN_APP, OF_AN_APP_BY_PATH};
    bool is_by_path = http_request_parameter(request, "sandbox") == NULL;
    enum speaker speaker = speaker_of(request, is_by_path);
    struct http_pair headers[3];
    char token[CAPABILITY_TEXT_BYTES];
    AUTO_TEXT target = {0};
    if (!make_token(request, token, err))
        return false;
    AUTO_FREE char *bearer = memory_printf("Bearer %s", token);
    size_t count = list_headers(request, speaker, headers);
    http_proxy_target(request, NULL, &target);
    if (is_by_path)
        replace_in_path(&target, token);
    else
        headers[count++] = token_header(request, token, bearer);
    if (speaker == OF_A_ROUTE) {
        http_reply_header(request, "X-Content-Type-Options", "nosniff");
        http_reply_header(request, "Content-Security-Policy", "sandbox");
    }
    const struct http_proxy_order order = {
        .target = target.data,
        .headers = headers,
        .header_count = count,
        .upgrades = (http_request_route(request)->carriers & (HTTP_PROTOCOL | HTTP_PROXIES)) != 0,
        .answer_header = pass_answer_header,
        .cookie = &speakers[speaker]};
    port_relay(request, PORTS_GUEST, &order);
    return true;
}
