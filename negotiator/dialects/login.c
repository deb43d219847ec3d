/* login.c - POST /auth/token: a login token for an API key (protocol.md, 1). */
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/visit.h"
#include "negotiator/leasing/keys/keying.h"
#include "shared/base/text.h"

enum { BODY_BYTES = 4096 };

DEFINE_VISIT(keying)

static void print(struct http_request *request, const struct keying *k)
{
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_header(request, "Referrer-Policy", "no-referrer");
    http_reply_json(request, 200,
                    json_pack("{s:s, s:s, s:o}", "token", k->text, "token_type", "Bearer", "expires_at",
                              shown_time(k->expires_at * 1000)));
}

/* An API key, and no login token: that would be one without an end. */
static bool judge(struct http_request *request, const char *text, struct principal *principal, struct error *err)
{
    if (!http_authentication_allowed(request, err))
        return false;
    if (principal_table_find(plane_of(request)->principals, principal_is_api_key(text) ? text : "", principal, err))
        return true;
    http_authentication_failed(request);
    leasing_stranger(plane_of(request)->leasing, http_request_remote(request));
    return false;
}

static bool read_body(struct http_request *request, struct principal *principal, struct error *err)
{
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    const char *text = json_string_value(json_object_get(body, "api_key"));
    bool read = (text && json_object_size(body) == 1) ||
                error_set(err, ERROR_INVALID, "the body must be {\"api_key\": \"pk_...\"}");
    read = read && judge(request, text, principal, err);
    json_decref(body);
    return read;
}

static void login(struct http_request *request)
{
    struct error err = {0};
    struct principal principal = {.name = ""};
    struct caller caller = {.owner = ""};
    if (!read_body(request, &principal, &err) || !plane_holder(request, &caller, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct keying *k = keying_new();
    k->verb = KEYING_LOGIN;
    k->caller = caller;
    k->caller.principal = principal;
    leasing_key(plane_of(request)->leasing, keying_visit(request, k, print));
}

struct plane_rows login_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/auth/token", HTTP_LIMITED, NULL, BODY_BYTES, login},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
