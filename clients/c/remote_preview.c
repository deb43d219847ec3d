#include "clients/c/remote_preview.h"

#include "clients/c/call.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/capability/capability.h"

#include <stdio.h>
#include <string.h>

static bool narrow(char token[static CAPABILITY_TEXT_BYTES], const struct grant *grant, uint16_t port, unsigned ttl_s,
                   int64_t *expires_s, struct error *err)
{
    AUTO_FREE struct capability_claims *claims = memory_new(sizeof *claims);
    char scope[32];
    snprintf(scope, sizeof scope, "port@%u", port);
    if (!capability_decode(claims, grant->token, strlen(grant->token), err))
        return false;
    if (!scope_allows(&claims->scopes, scope))
        return error_set(err, ERROR_CAPABILITY_DENIED, "the token does not allow port %u", port);
    int64_t until_s = clock_wall_ms() / 1000 + ttl_s;
    struct capability_link link = {
        .scope = scope, .expires_at = until_s < claims->expires_at ? until_s : claims->expires_at, .note = "preview"};
    *expires_s = link.expires_at;
    return capability_attenuate(token, grant->token, &link, err);
}

/* The node's own word for where a port's pages are: "http://{port}-sbx-1a2b.localhost:8701/". */
static char *fetch_pattern(const struct grant *grant, struct error *err)
{
    AUTO_FREE char *url = memory_printf("%s/info", grant->http);
    struct call call = {.method = "GET", .url = url, .credential = grant->token};
    json_t *info = NULL;
    if (!call_json(&call, &info, NULL, err))
        return NULL;
    char *pattern = memory_string(json_string_value(json_object_get(info, "previews")));
    json_decref(info);
    if (pattern == NULL || strstr(pattern, "{port}") == NULL) {
        free(TAKE(pattern));
        error_set(err, ERROR_NOT_FOUND, "the sandbox's node has no previews");
    }
    return pattern;
}

bool remote_preview_link(const struct grant *grant, uint16_t port, unsigned ttl_s, char **url, int64_t *expires_s,
                         struct error *err)
{
    char token[CAPABILITY_TEXT_BYTES];
    int64_t until_s = 0;
    if (!narrow(token, grant, port, ttl_s, &until_s, err))
        return false;
    AUTO_FREE char *pattern = fetch_pattern(grant, err);
    if (pattern == NULL)
        return false;
    const char *hole = strstr(pattern, "{port}");
    *url = memory_printf("%.*s%u%s?token=%s", (int)(hole - pattern), pattern, port, hole + strlen("{port}"), token);
    *expires_s = until_s;
    return true;
}
