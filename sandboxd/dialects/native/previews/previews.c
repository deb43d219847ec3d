/* previews.c - who may see a preview, and how a link becomes a cookie. */
#include "sandboxd/dialects/native/previews/previews.h"

#include "sandboxd/dialects/native/previews/preview_rules.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/dialects/port_relay.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { COOKIES_TRIED = 4 };

enum carrier { CARRIER_NONE, CARRIER_QUERY, CARRIER_BEARER, CARRIER_COOKIE };

/* One request for a preview. */
struct visit {
    struct http_request *request;
    struct preview_label of;
    enum carrier carrier;
};

/* ---- what is not let through ---- */

static bool is_read(const struct http_request *request)
{
    const char *method = http_request_method(request);
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static bool is_upgrade(const struct http_request *request)
{
    return http_request_header(request, "upgrade") != NULL;
}

static void refuse(const struct visit *visit, const struct error *err)
{
    struct http_request *request = visit->request;
    const char *accept = http_request_header(request, "accept");
    bool wants_page = is_read(request) && accept != NULL && strstr(accept, "text/html") != NULL;
    int status = error_http_status(err->kind);
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_header(request, "Referrer-Policy", "no-referrer");
    if (!wants_page || status != 401) {
        http_reply_error(request, err);
        return;
    }
    AUTO_TEXT page = {0};
    preview_page(&page, visit->of.port,
                 err->kind == ERROR_TOKEN_EXPIRED   ? "Yours has expired."
                 : err->kind == ERROR_TOKEN_REVOKED ? "Yours was revoked."
                                                    : "");
    http_reply_header(request, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
    http_reply_bytes(request, 401, "text/html; charset=utf-8", page.data, page.length);
}

static bool deny(const struct visit *visit, const char *reason, const struct error *err)
{
    const struct caller *caller = caller_of(visit->request);
    struct plane_refusal refusal = {.action = "refuse", .reason = reason};
    plane_record_refusal(visit->request, caller != NULL ? &caller->claims : NULL, &refusal, err);
    return false;
}

/* ---- the credential ---- */

static bool is_for_sandbox(const struct visit *visit, const char *token)
{
    char sandbox_id[CAPABILITY_ID_BYTES];
    return capability_addressed(token, strlen(token), sandbox_id) && preview_label_is_of(visit->of.sandbox, sandbox_id);
}

/* One that is for the sandbox. */
static bool judge(const struct visit *visit, const char *token, struct error *err)
{
    if (!plane_of(visit->request)->judge(visit->request, token, err))
        return false;
    http_request_set_credential(visit->request, token);
    return true;
}

/* Addressed to another sandbox, it says no more than one that is broken. */
static bool judge_shown(const struct visit *visit, const char *token, struct error *err)
{
    if (is_for_sandbox(visit, token))
        return judge(visit, token, err);
    error_set(err, ERROR_UNAUTHENTICATED, "the capability is not valid here");
    return deny(visit, "wrong_sandbox", err);
}

static bool may_see(const struct visit *visit, struct error *err)
{
    char needed[32];
    snprintf(needed, sizeof needed, "port@%u", visit->of.port);
    if (scope_allows(&caller_of(visit->request)->claims.scopes, needed))
        return true;
    error_set(err, ERROR_CAPABILITY_DENIED, "this preview needs scope %s, which the token does not grant", needed);
    return deny(visit, capability_refusal_name(CAPABILITY_SCOPE_MISSING), err);
}

static const char *bearer_of(const struct http_request *request)
{
    const char *value = http_request_header(request, "x-execd-access-token");
    if (preview_is_token(value))
        return value;
    value = http_request_header(request, "authorization");
    if (value == NULL || strncasecmp(value, "Bearer ", 7) != 0)
        return NULL;
    value += 7 + strspn(value + 7, " ");
    return preview_is_token(value) ? value : NULL;
}

/* What a page of another origin, or the cookie of one, cannot make the browser do. */
static bool check_origin(const struct visit *visit, struct error *err)
{
    const struct http_request *request = visit->request;
    if (is_read(request) && !is_upgrade(request))
        return true;
    if (preview_origin_is_own(http_request_header(request, "origin"), http_request_header(request, "host")))
        return true;
    error_set(err, ERROR_FORBIDDEN, "with the preview's cookie, %s is for its own pages (Origin)",
              is_upgrade(request) ? "a WebSocket" : http_request_method(request));
    return deny(visit, "foreign_origin", err);
}

/* Others may have put cookies of this name there: of one that is not for this sandbox nobody needs to hear. */
static bool judge_cookies(struct visit *visit, struct error *err)
{
    const struct plane *plane = plane_of(visit->request);
    const char *at = http_request_header(visit->request, "cookie");
    size_t size;
    error_set(err, ERROR_UNAUTHENTICATED, "a preview needs its link (parley url %u), or the headers of its endpoint",
              visit->of.port);
    unsigned tried = 0;
    for (const char *value; (value = preview_cookie_next(&at, preview_cookie_name(plane->previews.is_secure), &size)) &&
                            tried < COOKIES_TRIED;) {
        AUTO_FREE char *token = memory_copy(value, size);
        if (!is_for_sandbox(visit, token))
            continue;
        tried++;
        visit->carrier = CARRIER_COOKIE;
        if (judge(visit, token, err))
            return check_origin(visit, err);
    }
    return tried > 0 ? false : deny(visit, "no_token", err);
}

static bool find_credential(struct visit *visit, struct error *err)
{
    const char *query = http_request_query(visit->request, "token"), *bearer = bearer_of(visit->request);
    query = preview_is_token(query) ? query : NULL;
    if (query != NULL && bearer != NULL && strcmp(query, bearer) != 0)
        return error_set(err, ERROR_INVALID, "the request carries two different credentials");
    visit->carrier = query != NULL ? CARRIER_QUERY : CARRIER_BEARER;
    if (query != NULL || bearer != NULL)
        return judge_shown(visit, query != NULL ? query : bearer, err);
    return judge_cookies(visit, err);
}

/* A service worker would see the address of the next link that is opened here, and with it the token. */
static bool check_worker(const struct visit *visit, struct error *err)
{
    if (http_request_header(visit->request, "service-worker") == NULL)
        return true;
    return error_set(err, ERROR_FORBIDDEN, "a preview has no service workers");
}

/* ---- the link becomes a cookie ---- */

static void set_cookie(const struct visit *visit)
{
    const struct plane *plane = plane_of(visit->request);
    int64_t left_s = caller_of(visit->request)->claims.expires_at - clock_wall_ms() / 1000;
    AUTO_TEXT cookie = {0};
    text_append_format(&cookie, "%s=%s; Path=/; HttpOnly; SameSite=Lax; Max-Age=%lld%s",
                       preview_cookie_name(plane->previews.is_secure), http_request_credential(visit->request),
                       (long long)(left_s > 0 ? left_s : 0), plane->previews.is_secure ? "; Secure" : "");
    http_reply_header(visit->request, "Set-Cookie", cookie.data);
}

static void redirect(const struct visit *visit)
{
    struct http_request *request = visit->request;
    AUTO_TEXT target = {0};
    AUTO_TEXT location = {0};
    http_proxy_target(request, NULL, &target);
    preview_location(&location, target.data);
    set_cookie(visit);
    http_reply_header(request, "Location", location.data);
    http_reply_header(request, "Referrer-Policy", "no-referrer");
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_empty(request, 303);
}

/* ---- the app ---- */

/* One that is on its way, until it is over. */
struct shown {
    uint64_t number; /* the request's */
    struct loop_timer *timer;
    struct text cookie; /* one that was changed */
};

/* Cookies that go on stay with this host; and what would clear those of all previews stays away. */
static bool filter_answer(void *cookie, const char *name, const char **value)
{
    struct shown *shown = cookie;
    if (strcmp(name, "set-cookie") != 0)
        return strcmp(name, "clear-site-data") != 0;
    shown->cookie.length = 0;
    if (!preview_set_cookie_filter(&shown->cookie, *value))
        return false;
    *value = shown->cookie.data;
    return true;
}

static void on_expired(void *cookie)
{
    struct shown *shown = cookie;
    struct error err = {0};
    shown->timer = NULL;
    struct http_request *request = http_request_find(loop_current(), shown->number);
    error_set(&err, ERROR_TOKEN_EXPIRED, "the token has expired");
    if (request != NULL)
        http_request_revoke(request, &err);
}

static void on_over(void *cookie)
{
    struct shown *shown = cookie;
    loop_timer_cancel(shown->timer);
    text_done(&shown->cookie);
    free(shown);
}

static struct shown *new_shown(const struct http_request *request)
{
    struct shown *shown = memory_new(sizeof *shown);
    shown->number = http_request_number(request);
    shown->timer = loop_timer_start(http_request_loop(request),
                                    plane_deadline_ns(caller_of(request)->claims.expires_at), on_expired, shown);
    return shown;
}

static const char *without_token(const char *referer)
{
    return referer != NULL && strstr(referer, "token=") == NULL ? referer : NULL;
}

static void pass_on(const struct visit *visit)
{
    struct http_request *request = visit->request;
    const struct plane *plane = plane_of(request);
    AUTO_TEXT target = {0};
    AUTO_TEXT cookies = {0};
    http_proxy_target(request, NULL, &target);
    preview_cookie_strip(&cookies, http_request_header(request, "cookie"));
    const struct http_pair headers[] = {
        {"Cookie", cookies.length > 0 ? cookies.data : NULL},
        {"Referer", without_token(http_request_header(request, "referer"))},
        {"Forwarded", NULL},
        {"X-Forwarded-For", http_request_remote(request)},
        {"X-Forwarded-Host", http_request_header(request, "host")},
        {"X-Forwarded-Proto", plane->previews.is_secure ? "https" : "http"},
    };
    const struct http_proxy_order order = {
        .target = target.data,
        .headers = headers,
        .header_count = sizeof headers / sizeof headers[0],
        .head_timeout_ms = PORT_RELAY_HEAD_TIMEOUT_MS,
        .upgrades = true,
        .answer_header = filter_answer,
        .over = on_over,
        .cookie = new_shown(request),
    };
    plane_record_read(request);
    port_relay(request, visit->of.port, &order);
}

static void handle(struct http_request *request)
{
    struct visit visit = {.request = request};
    struct error err = {0};
    bool is_allowed = preview_label_parse(&visit.of, http_request_parameter(request, "label"), &err) &&
                      find_credential(&visit, &err) && may_see(&visit, &err) && check_worker(&visit, &err);
    bool is_link = is_allowed && visit.carrier == CARRIER_QUERY && is_read(request) && !is_upgrade(request);
    if (is_link && strlen(http_request_credential(request)) > PREVIEW_TOKEN_MAX_BYTES)
        is_allowed = error_set(&err, ERROR_INVALID, "the token is over %d bytes, too long for a browser's cookie",
                               PREVIEW_TOKEN_MAX_BYTES);
    if (!is_allowed)
        refuse(&visit, &err);
    else if (is_link)
        redirect(&visit);
    else
        pass_on(&visit);
}

bool previews_below(const char *label, struct text *path)
{
    struct preview_label of;
    struct error ignored;
    if (!preview_label_parse(&of, label, &ignored) || !of.is_port_last || !port_relay_is_reserved(of.port))
        return false;
    for (char *c = of.sandbox; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    text_append_format(path, "/s/%s/port/%u", of.sandbox, of.port);
    return true;
}

const struct http_route *previews_route(void)
{
    /* The credential is judged by the handler: a bad one is told to people by a page, and a cookie is no carrier of
     * other routes. */
    static const struct http_route ROUTE = {"*",
                                            "({port}-{sandbox}.{preview_domain})",
                                            HTTP_LATER | HTTP_POURS | HTTP_PROXIES,
                                            "port",
                                            PORT_RELAY_BODY_BYTES,
                                            handle};
    return &ROUTE;
}
