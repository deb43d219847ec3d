#include "clients/c/capability_url.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"

#include <string.h>

static const int64_t NEVER_MS = INT64_C(31536000000); /* a year beyond its end */
static const char BEFORE_TOKEN[] = "/c/", NOBODYS[] = "share:";

static const char *token_in(const char *text)
{
    const char *scheme_end = strstr(text, "://");
    const char *path = scheme_end ? strchr(scheme_end + 3, '/') : NULL;
    return path && text_starts_with(path, BEFORE_TOKEN) ? path + sizeof BEFORE_TOKEN - 1 : NULL;
}

bool capability_url_is(const char *text)
{
    return text && (text_starts_with(text, "http://") || text_starts_with(text, "https://")) && token_in(text) != NULL;
}

char *capability_url_make(const struct grant *grant)
{
    const char *address = strstr(grant->http, "/s/"); /* "http://host:port/s/<id>" */
    int length = address ? (int)(address - grant->http) : (int)strlen(grant->http);
    return memory_printf("%.*s/c/%s/", length, grant->http, grant->token);
}

static bool read_token(const char *url, char token[static CAPABILITY_TEXT_BYTES], struct capability_claims *claims)
{
    const char *start = token_in(url);
    size_t length = start ? strcspn(start, "/?#") : 0;
    bool is_last = start && (start[length] == '\0' || strcmp(start + length, "/") == 0);
    return is_last && text_format(token, CAPABILITY_TEXT_BYTES, "%.*s", (int)length, start) &&
           capability_decode(claims, token, length, NULL);
}

bool capability_url_grant(struct grant *grant, const struct place *place, struct error *err)
{
    const char *url = place->capability;
    char token[CAPABILITY_TEXT_BYTES], scopes[SCOPE_TEXT_BYTES];
    struct capability_claims claims;
    if (!read_token(url, token, &claims))
        return error_set(
            err, ERROR_INVALID,
            "this is no capability URL: it looks like http://host:port/c/<token>/, with nothing behind it");
    int base = (int)(token_in(url) - url - (int)sizeof BEFORE_TOKEN + 1);
    bool renews = place->api_key && claims.link_count == 0 && !text_starts_with(claims.principal, NOBODYS);
    int64_t expires_ms = claims.expires_at * 1000, life_ms = expires_ms - claims.issued_at * 1000;
    scope_format(&claims.scopes, scopes);
    *grant = (struct grant){.thread = memory_string(claims.thread_id),
                            .sandbox_id = memory_string(claims.sandbox_id),
                            .sandbox_name = memory_string(claims.sandbox_id),
                            .state = memory_string(""),
                            .token = memory_string(token),
                            .jti = memory_string(claims.jti),
                            .http = memory_printf("%.*s/s/%s", base, url, claims.sandbox_id),
                            .scopes = memory_string(scopes),
                            .expires_ms = expires_ms,
                            .refresh_ms = renews ? expires_ms - life_ms / 5 : expires_ms + NEVER_MS,
                            .issued_ms = claims.issued_at * 1000,
                            .from_cache = true};
    explicit_bzero(token, sizeof token);
    return true;
}
