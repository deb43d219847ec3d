#include "clients/c/grant.h"

#include "clients/c/capability_url.h"
#include "clients/c/grant_cache.h"
#include "clients/c/grant_call.h"
#include "clients/c/grant_keeper.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/capability/scope.h"

#include <sodium.h>
#include <string.h>

const char grant_reused_sentence[] =
    "this thread's token had been refreshed elsewhere with the same token: the negotiator took that for a leak and "
    "revoked the whole family; a new token is negotiated (if no copy of grants.json is in use, find out who has it)";

void grant_done(struct grant *grant)
{
    if (grant->token)
        sodium_memzero(grant->token, strlen(grant->token));
    char *texts[] = {grant->thread, grant->sandbox_id, grant->sandbox_name, grant->state,  grant->token,
                     grant->jti,    grant->http,       grant->hint_note,    grant->scopes, grant->warning};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    json_decref(grant->reply);
    *grant = (struct grant){0};
}

bool grant_negotiate(struct grant *grant, const struct place *place, const struct grant_request *request,
                     struct error *err)
{
    struct call_transfer transfer = {0};
    struct grant made = {0};
    if (!grant_call_negotiate(&transfer, place, request, 0, err) ||
        !grant_call_finish(&made, &transfer, curl_easy_perform(transfer.curl), request->thread, err))
        return false;
    AUTO_FREE char *key = grant_cache_key(place, request);
    json_t *entry = grant_to_entry(&made);
    grant_cache_store(-1, key, entry);
    json_decref(entry);
    *grant = made;
    return true;
}

/* A keeper's loop of its own, until it has refreshed or failed. */
static bool keep_once(struct grant_keeper *keeper, CURLM *multi, struct error *err)
{
    grant_keeper_hurry(keeper);
    enum grant_keeper_state state;
    while ((state = grant_keeper_state(keeper, err)) == GRANT_KEEPER_TRYING) {
        int running, left;
        unsigned wait_ms = grant_keeper_turn(keeper, multi);
        curl_multi_perform(multi, &running);
        for (CURLMsg *message; (message = curl_multi_info_read(multi, &left)) != NULL;) {
            CURL *done = message->easy_handle;
            CURLcode code = message->data.result;
            curl_multi_remove_handle(multi, done);
            (void)!grant_keeper_done(keeper, done, code);
            wait_ms = 0;
        }
        if (grant_keeper_state(keeper, NULL) == GRANT_KEEPER_TRYING)
            curl_multi_poll(multi, NULL, 0, (int)wait_ms, NULL);
    }
    return state == GRANT_KEEPER_FRESH;
}

bool grant_refresh(struct grant *grant, const struct place *place, const struct grant_request *request,
                   struct error *err)
{
    CURLM *multi = curl_multi_init();
    if (!multi)
        return error_set(err, ERROR_INTERNAL, "libcurl does not start");
    struct grant_keeper *keeper = grant_keeper_new(
        &(struct grant_keeping){.grant = grant, .place = place, .request = request, .only_refresh = true});
    bool refreshed = keep_once(keeper, multi, err);
    grant_keeper_free(keeper);
    curl_multi_cleanup(multi);
    return refreshed;
}

/* The cached grant while it can still be refreshed. */
static bool cached(struct grant *grant, const struct place *place, const struct grant_request *request)
{
    AUTO_FREE char *key = grant_cache_key(place, request);
    json_t *entry = grant_cache_find(key);
    bool good = grant_from_entry(grant, entry);
    json_decref(entry);
    if (good && grant->expires_ms + GRANT_REFRESHABLE_MS <= clock_wall_ms()) {
        grant_done(grant);
        return false;
    }
    return good;
}

/* What the URL gives, or what was refreshed of it before; refreshed when that is due and can be done. */
static bool get_by_url(struct grant *grant, const struct place *place, const struct grant_request *request,
                       struct error *err)
{
    struct grant found = {0};
    struct error refusal = {0};
    if (!cached(&found, place, request) && !capability_url_grant(&found, place, err))
        return false;
    int64_t now = clock_wall_ms();
    bool good = now < found.expires_ms && now < found.refresh_ms;
    if (!good && found.refresh_ms < found.expires_ms)
        good = grant_refresh(&found, place, request, &refusal) ||
               (grant_call_may_pass(refusal.kind) && now < found.expires_ms);
    if (good)
        *grant = found;
    else
        grant_done(&found);
    return good ||
           error_set(err, refusal.kind ? refusal.kind : ERROR_TOKEN_EXPIRED, "%s",
                     refusal.kind ? refusal.message : "the time of this capability URL is over; ask for another");
}

bool grant_get(struct grant *grant, const struct place *place, const struct grant_request *request, struct error *err)
{
    if (place->capability)
        return get_by_url(grant, place, request, err);
    struct grant found = {0};
    bool reused = false;
    if (cached(&found, place, request)) {
        struct error refusal = {0};
        int64_t now = clock_wall_ms();
        bool good = now < found.refresh_ms || grant_refresh(&found, place, request, &refusal);
        if (good || (grant_call_may_pass(refusal.kind) && now < found.expires_ms)) {
            *grant = found;
            return true;
        }
        reused = refusal.kind == ERROR_TOKEN_REUSED;
        grant_done(&found);
    }
    if (!grant_negotiate(grant, place, request, err))
        return false;
    grant->warning = reused ? memory_string(grant_reused_sentence) : NULL;
    return true;
}

bool grant_replace(struct grant *grant, const struct place *place, const struct grant_request *request,
                   struct error *err)
{
    struct grant found = {0};
    bool newer =
        cached(&found, place, request) && !text_equal(found.jti, grant->jti) && clock_wall_ms() < found.refresh_ms;
    grant_done(grant);
    if (newer) {
        *grant = found;
        return true;
    }
    bool was_kept = found.token != NULL;
    grant_done(&found);
    if (was_kept) {
        AUTO_FREE char *key = grant_cache_key(place, request);
        grant_cache_store(-1, key, NULL);
    }
    return grant_negotiate(grant, place, request, err);
}

bool grant_allows(const struct grant *grant, const char *scope)
{
    struct scope_set set;
    const char *scopes = grant->scopes ? grant->scopes : "";
    return scope_parse(&set, scopes, strlen(scopes), SCOPE_UNKNOWN_DROPPED, NULL) && scope_allows(&set, scope);
}

void grant_forget_sandbox(const char *sandbox_id)
{
    grant_cache_drop_sandbox(sandbox_id);
}
