#include "negotiator/leasing/principal.h"

#include "negotiator/leasing/keys/api_key.h"
#include "shared/base/text.h"

#include <string.h>

enum { PART_LENGTH = 43 /* base64url of 32 bytes */ };

static const char *const ROLE_NAMES[] = {[ROLE_VIEWER] = "viewer", [ROLE_USER] = "user", [ROLE_ADMIN] = "admin"};

const char *role_name(enum role role)
{
    return ROLE_NAMES[role];
}

bool role_parse(const char *text, enum role *role)
{
    for (enum role each = ROLE_VIEWER; each <= ROLE_ADMIN; each++) {
        if (text_equal(text, ROLE_NAMES[each])) {
            *role = each;
            return true;
        }
    }
    return false;
}

bool principal_is_name(const char *text)
{
    return text_is_made_of(text, PRINCIPAL_BYTES - 1, "._@:+-");
}

void principal_new_api_key(char to[static API_KEY_BYTES])
{
    AUTO_KEY secret;
    key_random(&secret);
    memcpy(to, "pk_", 3);
    text_base64url_encode(to + 3, secret.bytes, sizeof secret.bytes);
}

bool principal_is_api_key(const char *text)
{
    return text && text_starts_with(text, "pk_") && strnlen(text, API_KEY_BYTES) == 3 + PART_LENGTH &&
           text_is_made_of(text + 3, PART_LENGTH, "-_");
}

void principal_add_key(struct kv_change *change, const struct key *master, const char *api_key,
                       struct principal *principal, int64_t now_ms)
{
    struct api_key key = {.role = principal->role, .limits = principal->limits, .created_at = now_ms};
    random_id(principal->key_id, "key");
    memcpy(key.id, principal->key_id, sizeof key.id);
    memcpy(key.principal, principal->name, sizeof key.principal);
    memcpy(key.actor, principal->actor, sizeof key.actor);
    api_key_hash(key.hash, master, api_key);
    api_key_put(change, &key, NULL);
}
