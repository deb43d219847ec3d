#include "clients/c/grant_call.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"

#include <sodium.h>
#include <string.h>

static const unsigned ANSWER_S = 30; /* beyond what it waits */

static json_t *negotiate_body(const struct grant_request *request)
{
    json_t *body = request->more ? json_deep_copy(request->more) : json_object();
    if (request->sandbox)
        json_object_set_new(body, "sandbox", json_string(request->sandbox));
    if (request->sandbox_required)
        json_object_set_new(body, "hint_policy", json_string("require"));
    if (request->mode)
        json_object_set_new(body, "mode", json_string(request->mode));
    if (request->ttl_s)
        json_object_set_new(body, "ttl", json_integer(request->ttl_s));
    if (request->wait_s)
        json_object_set_new(body, "wait", json_integer(request->wait_s));
    if (request->scopes) {
        json_t *scopes = json_array();
        AUTO_FREE char *copy = memory_string(request->scopes);
        char *rest = copy;
        for (char *atom; (atom = strsep(&rest, " ,")) != NULL;) {
            if (*atom)
                json_array_append_new(scopes, json_string(atom));
        }
        json_object_set_new(body, "scopes", scopes);
    }
    return body;
}

static bool start(struct call_transfer *transfer, const struct place *place, const char *of_thread, const char *verb,
                  struct call call, struct error *err)
{
    char *thread = curl_easy_escape(NULL, of_thread, 0);
    AUTO_FREE char *url = memory_printf("%s/threads/%s/sandbox%s", place->url, thread ? thread : "", verb);
    curl_free(thread);
    call.method = "POST";
    call.url = url;
    call.credential = place->api_key;
    return call_transfer_start(transfer, &call, err);
}

bool grant_call_negotiate(struct call_transfer *transfer, const struct place *place,
                          const struct grant_request *request, unsigned timeout_ms, struct error *err)
{
    if (place->capability)
        return error_set(err, ERROR_TOKEN_REVOKED,
                         "this capability URL is no longer good: its time is over, or it was revoked; ask for another");
    json_t *body = negotiate_body(request);
    if (timeout_ms == 0 && request->wait_s)
        timeout_ms = (request->wait_s + ANSWER_S) * 1000;
    struct call call = {.body = body, .timeout_ms = timeout_ms};
    bool started = start(transfer, place, request->thread, "", call, err);
    json_decref(body);
    return started;
}

bool grant_call_refresh(struct call_transfer *transfer, const struct place *place, const struct grant_request *request,
                        const struct grant *grant, unsigned timeout_ms, struct error *err)
{
    json_t *body = json_pack("{s:s}", "current_token", grant->token);
    if (request->ttl_s)
        json_object_set_new(body, "ttl", json_integer(request->ttl_s));
    struct call call = {.body = body, .timeout_ms = timeout_ms};
    bool started = start(transfer, place, grant->thread, "/refresh", call, err);
    json_decref(body);
    return started;
}

static char *joined(const json_t *list)
{
    AUTO_TEXT text = {0};
    size_t index;
    json_t *item;
    json_array_foreach (list, index, item) {
        text_append_format(&text, "%s%s", index ? " " : "", json_string_value(item) ? json_string_value(item) : "");
    }
    return memory_string(text.data ? text.data : "");
}

/* "the hint was not followed: thread_has_sandbox", or NULL. */
static char *hint_note(const json_t *hint)
{
    if (!json_is_object(hint) || json_is_true(json_object_get(hint, "honored")))
        return NULL;
    const char *given = json_string_value(json_object_get(hint, "given"));
    const char *reason = json_string_value(json_object_get(hint, "reason"));
    return memory_printf("sandbox \"%s\" was not used: %s", given ? given : "?", reason ? reason : "no reason given");
}

/* When it was minted, by its own word; now when it does not say. */
static int64_t issued_ms(const char *token)
{
    struct capability_claims claims;
    bool known = capability_decode(&claims, token, strlen(token), NULL);
    return known ? claims.issued_at * 1000 : clock_wall_ms();
}

/* A negotiator that does not say when gets a refresh after four fifths of the token's life. */
static void set_times(struct grant *grant, const char *refresh_before)
{
    grant->issued_ms = issued_ms(grant->token);
    if (!refresh_before || !clock_parse(refresh_before, &grant->refresh_ms))
        grant->refresh_ms = grant->expires_ms - (grant->expires_ms - grant->issued_ms) / 5;
}

static bool read_grant(struct grant *grant, const char *thread, json_t *reply, struct error *err)
{
    const char *id, *token, *jti, *http, *expires, *name = NULL, *state = NULL, *refresh = NULL;
    json_t *scopes;
    int64_t expires_ms;
    if (json_unpack(reply, "{s:{s:s, s?s, s?s}, s:s, s:s, s:o, s:s, s?s, s:{s:s}}", "sandbox", "id", &id, "name", &name,
                    "state", &state, "token", &token, "jti", &jti, "scopes", &scopes, "expires_at", &expires,
                    "refresh_before", &refresh, "endpoints", "http", &http) != 0 ||
        !clock_parse(expires, &expires_ms))
        return error_set(err, ERROR_INTERNAL,
                         "the negotiator's answer is not a grant: is it a Parley of this version?");
    *grant = (struct grant){.thread = memory_string(thread),
                            .sandbox_id = memory_string(id),
                            .sandbox_name = memory_string(name ? name : id),
                            .state = memory_string(state ? state : ""),
                            .token = memory_string(token),
                            .jti = memory_string(jti),
                            .http = memory_string(http),
                            .scopes = joined(scopes),
                            .hint_note = hint_note(json_object_get(reply, "hint")),
                            .expires_ms = expires_ms};
    set_times(grant, refresh);
    return true;
}

bool grant_call_finish(struct grant *grant, struct call_transfer *transfer, CURLcode code, const char *thread,
                       struct error *err)
{
    json_t *reply = NULL;
    int status = 0;
    if (!call_transfer_finish(transfer, code, &reply, &status, err))
        return false;
    bool good = read_grant(grant, thread, reply, err);
    if (good) {
        json_object_del(reply, "token");
        grant->reply = json_incref(reply);
        grant->created = status == 201;
    }
    json_decref(reply);
    return good;
}

bool grant_call_may_pass(enum error_kind kind)
{
    return kind == ERROR_NODE_UNREACHABLE || kind == ERROR_TIMEOUT || kind == ERROR_INTERNAL ||
           kind == ERROR_DISK_FULL || error_retryable(kind);
}

json_t *grant_to_entry(const struct grant *grant)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "thread", grant->thread, "sandbox_id",
                     grant->sandbox_id, "sandbox_name", grant->sandbox_name, "token", grant->token, "jti", grant->jti,
                     "http", grant->http, "scopes", grant->scopes, "expires_ms", (json_int_t)grant->expires_ms,
                     "refresh_ms", (json_int_t)grant->refresh_ms);
}

bool grant_from_entry(struct grant *grant, json_t *entry)
{
    const char *thread, *id, *name, *token, *jti, *http, *scopes;
    json_int_t expires, refresh;
    if (!entry || json_unpack(entry, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "thread", &thread, "sandbox_id",
                              &id, "sandbox_name", &name, "token", &token, "jti", &jti, "http", &http, "scopes",
                              &scopes, "expires_ms", &expires, "refresh_ms", &refresh) != 0)
        return false;
    *grant = (struct grant){.thread = memory_string(thread),
                            .sandbox_id = memory_string(id),
                            .sandbox_name = memory_string(name),
                            .state = memory_string(""),
                            .token = memory_string(token),
                            .jti = memory_string(jti),
                            .http = memory_string(http),
                            .scopes = memory_string(scopes),
                            .expires_ms = expires,
                            .refresh_ms = refresh,
                            .issued_ms = issued_ms(token),
                            .from_cache = true};
    return true;
}

static void take_text(char **to, char **from)
{
    free(*to);
    *to = TAKE(*from);
}

void grant_take_token(struct grant *grant, struct grant *from)
{
    sodium_memzero(grant->token, strlen(grant->token));
    take_text(&grant->token, &from->token);
    take_text(&grant->jti, &from->jti);
    take_text(&grant->http, &from->http);
    take_text(&grant->scopes, &from->scopes);
    grant->expires_ms = from->expires_ms;
    grant->refresh_ms = from->refresh_ms;
    grant->issued_ms = from->issued_ms;
    grant_done(from);
}
