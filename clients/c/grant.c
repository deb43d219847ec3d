#include "clients/c/grant.h"

#include "clients/c/call.h"
#include "clients/c/grant_cache.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <string.h>

static const int64_t CACHE_SPARE_MS = 30000; /* a cached token must live at least this long */

void grant_done(struct grant *grant)
{
    if (grant->token)
        sodium_memzero(grant->token, strlen(grant->token));
    char *texts[] = {grant->thread, grant->sandbox_id, grant->sandbox_name, grant->state, grant->token,
                     grant->jti,    grant->http,       grant->hint_note,    grant->scopes};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    json_decref(grant->reply);
    *grant = (struct grant){0};
}

static json_t *request_body(const struct grant_request *request)
{
    json_t *body = json_object();
    if (request->sandbox)
        json_object_set_new(body, "sandbox", json_string(request->sandbox));
    if (request->sandbox_required)
        json_object_set_new(body, "hint_policy", json_string("require"));
    if (request->mode)
        json_object_set_new(body, "mode", json_string(request->mode));
    if (request->ttl_s)
        json_object_set_new(body, "ttl", json_integer(request->ttl_s));
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

static bool read_grant(struct grant *grant, const char *thread, json_t *reply, struct error *err)
{
    const char *id, *token, *jti, *http, *expires, *name = NULL, *state = NULL;
    json_t *scopes;
    int64_t expires_ms;
    if (json_unpack(reply, "{s:{s:s, s?s, s?s}, s:s, s:s, s:o, s:s, s:{s:s}}", "sandbox", "id", &id, "name", &name,
                    "state", &state, "token", &token, "jti", &jti, "scopes", &scopes, "expires_at", &expires,
                    "endpoints", "http", &http) != 0 ||
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
    return true;
}

static json_t *cache_entry(const struct grant *grant)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "thread", grant->thread, "sandbox_id",
                     grant->sandbox_id, "sandbox_name", grant->sandbox_name, "token", grant->token, "jti", grant->jti,
                     "http", grant->http, "scopes", grant->scopes, "expires_ms", (json_int_t)grant->expires_ms);
}

bool grant_negotiate(struct grant *grant, const struct place *place, const struct grant_request *request,
                     struct error *err)
{
    char *thread = curl_easy_escape(NULL, request->thread, 0);
    AUTO_FREE char *url = memory_printf("%s/threads/%s/sandbox", place->url, thread ? thread : "");
    curl_free(thread);
    json_t *body = request_body(request);
    struct call call = {.method = "POST", .url = url, .credential = place->api_key, .body = body};
    json_t *reply = NULL;
    int status = 0;
    bool called = call_json(&call, &reply, &status, err);
    json_decref(body);
    if (!called)
        return false;
    struct grant made = {0};
    bool good = read_grant(&made, request->thread, reply, err);
    if (good) {
        AUTO_FREE char *key = grant_cache_key(place, request);
        json_t *entry = cache_entry(&made);
        grant_cache_store(key, entry);
        json_decref(entry);
        json_object_del(reply, "token");
        made.reply = json_incref(reply);
        made.created = status == 201;
        *grant = made;
    }
    json_decref(reply);
    return good;
}

static bool cached(struct grant *grant, const struct place *place, const struct grant_request *request)
{
    AUTO_FREE char *key = grant_cache_key(place, request);
    json_t *entry = grant_cache_find(key);
    const char *thread, *id, *name, *token, *jti, *http, *scopes;
    json_int_t expires;
    bool good = entry && json_unpack(entry, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "thread", &thread, "sandbox_id",
                                     &id, "sandbox_name", &name, "token", &token, "jti", &jti, "http", &http, "scopes",
                                     &scopes, "expires_ms", &expires) == 0;
    if (good && expires > clock_wall_ms() + CACHE_SPARE_MS)
        *grant = (struct grant){.thread = memory_string(thread),
                                .sandbox_id = memory_string(id),
                                .sandbox_name = memory_string(name),
                                .state = memory_string(""),
                                .token = memory_string(token),
                                .jti = memory_string(jti),
                                .http = memory_string(http),
                                .scopes = memory_string(scopes),
                                .expires_ms = expires,
                                .from_cache = true};
    else
        good = false;
    json_decref(entry);
    return good;
}

bool grant_get(struct grant *grant, const struct place *place, const struct grant_request *request, struct error *err)
{
    return cached(grant, place, request) || grant_negotiate(grant, place, request, err);
}

void grant_forget(const struct place *place, const struct grant_request *request)
{
    AUTO_FREE char *key = grant_cache_key(place, request);
    grant_cache_store(key, NULL);
}

void grant_forget_sandbox(const char *sandbox_id)
{
    grant_cache_drop_sandbox(sandbox_id);
}
