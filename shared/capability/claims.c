#include "shared/capability/claims.h"

#include "shared/base/text.h"
#include "shared/capability/jws.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

enum claim_type { CLAIM_TEXT, CLAIM_SCOPE, CLAIM_TIME, CLAIM_TRUE };

#define TEXT(name, field)                                                                                              \
    {                                                                                                                  \
        name, CLAIM_TEXT, false, offsetof(struct capability_claims, field),                                            \
            sizeof(((struct capability_claims *)NULL)->field)                                                          \
    }
#define OTHER(name, type, is_optional, field)                                                                          \
    {                                                                                                                  \
        name, type, is_optional, offsetof(struct capability_claims, field), 0                                          \
    }

static const struct claim {
    const char *name;
    enum claim_type type;
    bool is_optional;
    size_t offset, bytes; /* in struct capability_claims; bytes of a text with its NUL */
} CLAIMS[] = {
    TEXT("iss", issuer),
    TEXT("aud", sandbox_id),
    TEXT("sub", principal),
    TEXT("jti", jti),
    TEXT("fam", family),
    OTHER("iat", CLAIM_TIME, false, issued_at),
    OTHER("exp", CLAIM_TIME, false, expires_at),
    OTHER("scope", CLAIM_SCOPE, false, scopes),
    TEXT("thread_id", thread_id),
    TEXT("lease", lease),
    TEXT("act", actor),
    OTHER("long", CLAIM_TRUE, true, long_lived),
};
#define CLAIM_COUNT (sizeof CLAIMS / sizeof *CLAIMS)

/* What is left to read. */
struct reader {
    const char *at, *end;
};

static bool take(struct reader *reader, char wanted)
{
    if (reader->at == reader->end || *reader->at != wanted)
        return false;
    reader->at++;
    return true;
}

/* A string without escapes, of printable ASCII: its bytes. */
static bool take_text(struct reader *reader, const char **text, size_t *length)
{
    if (!take(reader, '"'))
        return false;
    const char *at = reader->at;
    while (at < reader->end && *at >= 0x20 && *at < 0x7f && *at != '"' && *at != '\\')
        at++;
    *text = reader->at;
    *length = (size_t)(at - reader->at);
    reader->at = at;
    return take(reader, '"');
}

static bool take_time(struct reader *reader, int64_t *time)
{
    const char *at = reader->at;
    while (at < reader->end && *at >= '0' && *at <= '9')
        at++;
    uint64_t value = 0;
    if (!text_parse_u64(reader->at, (size_t)(at - reader->at), CLAIMS_TIME_MAX, &value))
        return false;
    *time = (int64_t)value;
    reader->at = at;
    return true;
}

static bool take_true(struct reader *reader)
{
    static const char TRUE_TEXT[] = "true";
    const size_t length = sizeof TRUE_TEXT - 1;
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, TRUE_TEXT, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static const struct claim *find_claim(const char *name, size_t length)
{
    for (size_t i = 0; i < CLAIM_COUNT; i++) {
        if (strncmp(CLAIMS[i].name, name, length) == 0 && CLAIMS[i].name[length] == '\0')
            return &CLAIMS[i];
    }
    return NULL;
}

static bool take_value(struct reader *reader, const struct claim *claim, struct capability_claims *claims,
                       struct error *err)
{
    char *field = (char *)claims + claim->offset;
    const char *text = NULL;
    size_t length = 0;
    bool is_taken = false;
    switch (claim->type) {
    case CLAIM_TEXT:
        is_taken = take_text(reader, &text, &length) && length < claim->bytes;
        if (is_taken) {
            memcpy(field, text, length);
            field[length] = '\0';
        }
        break;
    case CLAIM_SCOPE:
        if (!take_text(reader, &text, &length))
            break;
        return scope_parse(&claims->scopes, text, length, SCOPE_UNKNOWN_DROPPED, err);
    case CLAIM_TIME:
        is_taken = take_time(reader, (int64_t *)(void *)field);
        break;
    case CLAIM_TRUE:
        is_taken = take_true(reader);
        claims->long_lived = is_taken;
        break;
    }
    return is_taken || error_set(err, ERROR_INVALID, "claim %s has a wrong type or length", claim->name);
}

/* One `"name":value`; *seen has a bit for each row of CLAIMS. */
static bool take_claim(struct reader *reader, unsigned *seen, struct capability_claims *claims, struct error *err)
{
    const char *name = NULL;
    size_t length = 0;
    if (!take_text(reader, &name, &length) || !take(reader, ':'))
        return error_set(err, ERROR_INVALID, "the claims are not a compact, flat JSON object");
    const struct claim *claim = find_claim(name, length);
    if (!claim)
        return error_set(err, ERROR_INVALID, "unknown claim \"%.*s\"", (int)length, name);
    unsigned bit = 1U << (claim - CLAIMS);
    if (*seen & bit)
        return error_set(err, ERROR_INVALID, "claim %s stands twice", claim->name);
    *seen |= bit;
    return take_value(reader, claim, claims, err);
}

bool claims_is_printable(const char *text)
{
    size_t length = strcspn(text, "\"\\");
    for (size_t i = 0; i < length; i++) {
        if (text[i] < 0x20 || text[i] >= 0x7f)
            return false;
    }
    return length > 0 && text[length] == '\0';
}

/* "human", "human:<id>" or "agent:<id>". */
static bool is_actor(const char *text)
{
    const char *colon = strchr(text, ':');
    if (!colon)
        return strcmp(text, "human") == 0;
    return (text_starts_with(text, "human:") || text_starts_with(text, "agent:")) && claims_is_printable(colon + 1);
}

bool claims_is_thread(const char *text)
{
    bool is_dots = strcmp(text, ".") == 0 || strcmp(text, "..") == 0;
    return !is_dots && text_is_made_of(text, CAPABILITY_THREAD_BYTES - 1, "._:-");
}

static bool is_time(int64_t time)
{
    return time >= 0 && time <= CLAIMS_TIME_MAX;
}

static bool check(const struct capability_claims *claims, struct error *err)
{
    const struct {
        const char *name;
        bool is_right;
    } checks[] = {
        {"iss", text_is_made_of(claims->issuer, CAPABILITY_ID_BYTES - 1, "._:-")},
        {"aud", jws_is_id(claims->sandbox_id)},
        {"sub", claims_is_printable(claims->principal)},
        {"jti", jws_is_id(claims->jti)},
        {"fam", jws_is_id(claims->family)},
        {"iat", is_time(claims->issued_at)},
        {"exp", is_time(claims->expires_at)},
        {"thread_id", claims_is_thread(claims->thread_id)},
        {"lease", jws_is_id(claims->lease)},
        {"act", is_actor(claims->actor)},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (!checks[i].is_right)
            return error_set(err, ERROR_INVALID, "claim %s does not fit its format", checks[i].name);
    }
    return true;
}

static bool check_complete(unsigned seen, struct error *err)
{
    for (size_t i = 0; i < CLAIM_COUNT; i++) {
        if (!CLAIMS[i].is_optional && !(seen & (1U << i)))
            return error_set(err, ERROR_INVALID, "claim %s is missing", CLAIMS[i].name);
    }
    return true;
}

bool claims_read(struct capability_claims *claims, const void *json, size_t size, struct error *err)
{
    struct reader reader = {.at = json, .end = (const char *)json + size};
    unsigned seen = 0;
    claims->long_lived = false;
    claims->link_count = 0;
    claims->note[0] = '\0';
    if (!take(&reader, '{'))
        return error_set(err, ERROR_INVALID, "the claims are not a JSON object");
    do {
        if (!take_claim(&reader, &seen, claims, err))
            return false;
    } while (take(&reader, ','));
    if (!take(&reader, '}') || reader.at != reader.end)
        return error_set(err, ERROR_INVALID, "the claims are not a compact, flat JSON object");
    if (!check_complete(seen, err) || !check(claims, err))
        return false;
    scope_copy(&claims->root_scopes, &claims->scopes);
    return true;
}

/* The texts need no escapes: check() lets no quote, backslash or control character pass, and scope_format writes none.
 */
bool claims_write(char to[static CLAIMS_JSON_BYTES], const struct capability_claims *claims, struct error *err)
{
    if (!check(claims, err))
        return false;
    char scope[SCOPE_TEXT_BYTES];
    struct scope_set again;
    scope_format(&claims->scopes, scope);
    if (!scope_parse(&again, scope, strlen(scope), SCOPE_UNKNOWN_REFUSED, err))
        return error_prefix(err, "scopes");
    if (again.count != claims->scopes.count)
        return error_set(err, ERROR_INVALID, "scopes are at most %d bytes long", SCOPE_TEXT_BYTES - 1);
    bool fits = text_format(to, CLAIMS_JSON_BYTES,
                            "{\"iss\":\"%s\",\"aud\":\"%s\",\"sub\":\"%s\",\"jti\":\"%s\",\"fam\":\"%s\","
                            "\"iat\":%" PRId64 ",\"exp\":%" PRId64 ",\"scope\":\"%s\",\"thread_id\":\"%s\","
                            "\"lease\":\"%s\",\"act\":\"%s\"%s}",
                            claims->issuer, claims->sandbox_id, claims->principal, claims->jti, claims->family,
                            claims->issued_at, claims->expires_at, scope, claims->thread_id, claims->lease,
                            claims->actor, claims->long_lived ? ",\"long\":true" : "");
    return fits || error_set(err, ERROR_INVALID, "the claims are too long");
}
