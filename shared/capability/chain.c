#include "shared/capability/chain.h"

#include "shared/base/text.h"
#include "shared/capability/capability_mac.h"
#include "shared/capability/claims.h"

#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <string.h>

/* A read link: what it has, checked but not yet compared with anything. */
struct link {
    bool has_scope, has_expiry, has_note;
    struct scope_set scopes;
    int64_t expires_at;
    char note[CAPABILITY_NOTE_BYTES];
};

static bool is_note(const char *note)
{
    return text_is_made_of(note, CAPABILITY_NOTE_BYTES - 1, " ._:/-");
}

static bool read_claim(struct link *link, const char *name, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    if (strcmp(name, "scope") == 0 && text) {
        link->has_scope = true;
        return scope_parse(&link->scopes, text, json_string_length(value), SCOPE_UNKNOWN_REFUSED, err);
    }
    if (strcmp(name, "exp") == 0 && json_is_integer(value)) {
        link->has_expiry = true;
        link->expires_at = json_integer_value(value);
        return (link->expires_at >= 0 && link->expires_at <= CLAIMS_TIME_MAX) ||
               error_set(err, ERROR_INVALID, "exp of a link is no time");
    }
    if (strcmp(name, "note") == 0 && text && is_note(text)) {
        link->has_note = true;
        return text_copy(link->note, sizeof link->note, text);
    }
    return error_set(err, ERROR_INVALID, "a link holds only scope, exp and note, each in its format");
}

static bool read_object(struct link *link, json_t *object, struct error *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    if (!json_is_object(object))
        return error_set(err, ERROR_INVALID, "a link is a JSON object");
    json_object_foreach(object, name, value)
    {
        if (!read_claim(link, name, value, err))
            return false;
    }
    return json_object_size(object) > 0 || error_set(err, ERROR_INVALID, "a link with nothing in it");
}

/* Nothing that may stand in a link holds a bracket or a second brace: looking first spares the parser's recursion. */
static bool is_flat(const char *json, size_t size)
{
    if (size < 2 || memchr(json, '[', size))
        return false;
    const char *brace = memchr(json, '{', size);
    return brace && !memchr(brace + 1, '{', size - (size_t)(brace + 1 - json));
}

static bool read_link(struct link *link, const void *json, size_t size, struct error *err)
{
    *link = (struct link){.expires_at = 0};
    json_t *object = is_flat(json, size) ? json_loadb(json, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (!object)
        return error_set(err, ERROR_INVALID, "a link is not a flat JSON object without duplicate keys");
    bool is_read = read_object(link, object, err);
    json_decref(object);
    return is_read;
}

bool chain_narrow(struct capability_claims *claims, const void *json, size_t size, struct error *err)
{
    struct link link;
    if (!read_link(&link, json, size, err))
        return false;
    if (link.has_scope && !scope_set_covers(&claims->scopes, &link.scopes))
        return error_set(err, ERROR_INVALID, "a link asks for a scope that the token does not have");
    if (link.has_expiry && link.expires_at > claims->expires_at)
        return error_set(err, ERROR_INVALID, "a link's exp is after the token's");
    if (link.has_scope)
        scope_copy(&claims->scopes, &link.scopes);
    if (link.has_expiry)
        claims->expires_at = link.expires_at;
    if (link.has_note)
        memcpy(claims->note, link.note, sizeof claims->note);
    return true;
}

static bool check(const struct capability_link *link, struct scope_set *scopes, struct error *err)
{
    if (!link->scope && link->expires_at == 0 && !link->note)
        return error_set(err, ERROR_INVALID, "nothing to narrow: give a scope, an expiry or a note");
    if (link->expires_at < 0 || link->expires_at > CLAIMS_TIME_MAX)
        return error_set(err, ERROR_INVALID, "the expiry is no time");
    if (link->note && !is_note(link->note))
        return error_set(err, ERROR_INVALID, "a note is 1 to 64 of A-Z a-z 0-9 . _ : / - and space");
    return !link->scope || scope_parse(scopes, link->scope, strlen(link->scope), SCOPE_UNKNOWN_REFUSED, err);
}

/* No text needs escapes: see scope_format and is_note. */
bool chain_write(char to[static CHAIN_JSON_BYTES], const struct capability_link *link, struct error *err)
{
    struct scope_set scopes;
    if (!check(link, &scopes, err))
        return false;
    AUTO_TEXT json = {0};
    if (link->scope) {
        char scope[SCOPE_TEXT_BYTES];
        scope_format(&scopes, scope);
        text_append_format(&json, ",\"scope\":\"%s\"", scope);
    }
    if (link->expires_at != 0)
        text_append_format(&json, ",\"exp\":%" PRId64, link->expires_at);
    if (link->note)
        text_append_format(&json, ",\"note\":\"%s\"", link->note);
    bool fits = text_format(to, CHAIN_JSON_BYTES, "{%s}", json.data + 1);
    return fits || error_set(err, ERROR_INVALID, "the link is too long");
}

void chain_link_id(char to[static CAPABILITY_LINK_ID_BYTES], const uint8_t mac[static CAPABILITY_MAC_BYTES])
{
    static const char LABEL[] = "parley/link-id/1", PREFIX[] = {'l', 'n', 'k', '_'};
    uint8_t text[sizeof LABEL - 1 + CAPABILITY_MAC_BYTES], hash[16];
    memcpy(text, LABEL, sizeof LABEL - 1);
    memcpy(text + sizeof LABEL - 1, mac, CAPABILITY_MAC_BYTES);
    if (crypto_generichash(hash, sizeof hash, text, sizeof text, NULL, 0) != 0)
        abort(); /* only for sizes out of range, which are constants here */
    memcpy(to, PREFIX, sizeof PREFIX);
    text_base64url_encode(to + sizeof PREFIX, hash, sizeof hash);
}
