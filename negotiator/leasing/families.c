#include "negotiator/leasing/families.h"

#include "negotiator/leasing/marks.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Longer than a token may be refreshed after its end (60 s), whatever the alarm and the clock do meanwhile. */
enum { FAMILY_KEEP_S = 120, TOKEN_KEEP_S = 120 };
static const int64_t DAY_MS = (int64_t)WANTED_DAY_S * 1000;

/* An id has at most 63 bytes: it always fits. */
struct id_key {
    char text[16 + CAPABILITY_ID_BYTES];
};

static struct id_key key_of(const char *table, const char *id)
{
    struct id_key key;
    snprintf(key.text, sizeof key.text, "%s/%.63s", table, id);
    return key;
}

static void put_json(struct work *work, const char *key, json_t *json)
{
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    kv_change_put(work->change, key, text, strlen(text));
}

/* --- families --- */

static bool take(char *to, size_t size, const json_t *json, const char *name)
{
    return text_copy(to, size, json_string_value(json_object_get(json, name)));
}

static bool read_family(struct family *to, const json_t *json)
{
    const json_t *current = json_object_get(json, "current");
    to->long_lived = json_is_true(json_object_get(json, "long"));
    to->first_expires_at = json_integer_value(json_object_get(json, "first_exp"));
    to->until = json_integer_value(json_object_get(json, "until"));
    to->issued_at = json_integer_value(json_object_get(current, "iat"));
    to->expires_at = json_integer_value(json_object_get(current, "exp"));
    to->share_until = json_integer_value(json_object_get(json, "share_until"));
    if (to->share_until > 0 && !take(to->owner, sizeof to->owner, json, "owner"))
        return false;
    return to->until > 0 && to->expires_at > to->issued_at &&
           take(to->sandbox_id, sizeof to->sandbox_id, json, "sandbox") &&
           take(to->lease, sizeof to->lease, json, "lease") &&
           take(to->thread_id, sizeof to->thread_id, json, "thread") &&
           take(to->principal, sizeof to->principal, json, "principal") &&
           take(to->actor, sizeof to->actor, json, "actor") &&
           take(to->previous, sizeof to->previous, json, "previous") && take(to->jti, sizeof to->jti, current, "jti") &&
           take(to->scope, sizeof to->scope, current, "scope");
}

bool family_get(struct work *work, const char *id, struct family *family)
{
    AUTO_KV_VALUE value = {0};
    struct family read = {.revision = 0};
    if (!text_copy(read.id, sizeof read.id, id))
        return error_set(work->err, ERROR_INTERNAL, "the id of a family is too long");
    if (!kv_get(work->kv, key_of("family", id).text, &value, work->err))
        return false;
    read.revision = value.revision;
    if (value.revision > 0) {
        json_t *json = json_loadb(value.data, value.size, 0, NULL);
        bool whole = json && read_family(&read, json);
        json_decref(json);
        if (!whole)
            return error_set(work->err, ERROR_INTERNAL, "the row of a token's family is damaged");
    }
    *family = read;
    return true;
}

static void put_token(struct work *work, const struct capability_claims *claims)
{
    char text[CAPABILITY_ID_BYTES + 32];
    struct id_key key = key_of("token", claims->jti);
    snprintf(text, sizeof text, "%s %" PRId64, claims->family, claims->expires_at);
    kv_change_put(work->change, key.text, text, strlen(text));
    store_forget_at(work, (claims->expires_at + TOKEN_KEEP_S) * 1000, key.text);
}

/* Of a share, whose thread it is; the row of any other family has none of it. */
static void add_share(json_t *row, const struct family *family)
{
    if (family == NULL || family->owner[0] == '\0')
        return;
    json_object_set_new(row, "owner", json_string(family->owner));
    json_object_set_new(row, "share_until", json_integer(family->share_until));
}

void family_issue(struct work *work, const struct capability_claims *claims, const struct family *before)
{
    char scope[SCOPE_TEXT_BYTES];
    struct id_key key = key_of("family", claims->family);
    bool is_first = before == NULL || before->revision == 0;
    int64_t until_before = is_first ? 0 : before->until,
            first = is_first ? claims->expires_at : before->first_expires_at;
    int64_t until = claims->expires_at > until_before ? claims->expires_at : until_before;
    scope_format(&claims->scopes, scope);
    kv_change_expect(work->change, key.text, is_first ? 0 : before->revision);
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:{s:s, s:I, s:I, s:s}}", "sandbox",
                            claims->sandbox_id, "lease", claims->lease, "thread", claims->thread_id, "principal",
                            claims->principal, "actor", claims->actor, "previous", is_first ? "" : before->jti, "long",
                            claims->long_lived, "first_exp", (json_int_t)first, "until", (json_int_t)until, "current",
                            "jti", claims->jti, "iat", (json_int_t)claims->issued_at, "exp",
                            (json_int_t)claims->expires_at, "scope", scope);
    add_share(row, before);
    put_json(work, key.text, row);
    if (is_first) /* later ones prolong it: store_forget looks at `until` */
        store_forget_at(work, (until + FAMILY_KEEP_S) * 1000, key.text);
    else /* the first one's id leads to the family by itself */
        put_token(work, claims);
    marks_issued(work, claims);
}

bool family_claims(const struct family *family, const struct sandbox *sandbox, const char *issuer,
                   struct capability_claims *claims, struct error *err)
{
    *claims = (struct capability_claims){.epoch = sandbox->epoch,
                                         .issued_at = family->issued_at,
                                         .expires_at = family->expires_at,
                                         .long_lived = family->long_lived};
    bool fits = text_copy(claims->issuer, sizeof claims->issuer, issuer) &&
                text_copy(claims->sandbox_id, sizeof claims->sandbox_id, family->sandbox_id) &&
                text_copy(claims->principal, sizeof claims->principal, family->principal) &&
                text_copy(claims->jti, sizeof claims->jti, family->jti) &&
                text_copy(claims->family, sizeof claims->family, family->id) &&
                text_copy(claims->thread_id, sizeof claims->thread_id, family->thread_id) &&
                text_copy(claims->lease, sizeof claims->lease, family->lease) &&
                text_copy(claims->actor, sizeof claims->actor, family->actor) &&
                scope_parse(&claims->scopes, family->scope, strlen(family->scope), SCOPE_UNKNOWN_REFUSED, NULL);
    scope_copy(&claims->root_scopes, &claims->scopes);
    return fits || error_set(err, ERROR_INTERNAL, "the row of a token's family is damaged");
}

/* --- what leads to them --- */

static bool find_first(struct work *work, const char *jti, char id[static CAPABILITY_ID_BYTES], int64_t *expires_at)
{
    struct family family;
    if (!text_copy(id, CAPABILITY_ID_BYTES, jti))
        return true; /* too long for one */
    if (!family_get(work, jti, &family))
        return false;
    *expires_at = family.revision > 0 ? family.first_expires_at : 0;
    return true;
}

bool family_of_token(struct work *work, const char *jti, char id[static CAPABILITY_ID_BYTES], int64_t *expires_at)
{
    AUTO_KV_VALUE value = {0};
    uint64_t seconds = 0;
    *expires_at = 0;
    if (!kv_get(work->kv, key_of("token", jti).text, &value, work->err))
        return false;
    if (value.revision == 0)
        return find_first(work, jti, id, expires_at);
    char *space = strchr(value.data, ' ');
    if (space)
        *space = '\0';
    if (space == NULL || !text_copy(id, CAPABILITY_ID_BYTES, value.data) ||
        !text_parse_u64(space + 1, strlen(space + 1), INT64_MAX, &seconds))
        return error_set(work->err, ERROR_INTERNAL, "the row of a token is damaged");
    *expires_at = (int64_t)seconds;
    return true;
}

static void put_lease(struct work *work, const char *principal, const struct lease *lease, struct id_key key)
{
    put_json(work, key.text,
             json_pack("{s:s, s:s, s:s, s:I}", "principal", principal, "thread", lease->thread_id, "sandbox",
                       lease->sandbox_id, "max_expires_at", (json_int_t)lease->max_expires_at));
}

/* Looked at once a day: its end may be moved, and it may have none. */
static int64_t forget_lease_at(const struct work *work, const struct lease *lease)
{
    int64_t end = lease->max_expires_at + (int64_t)FAMILY_KEEP_S * 1000, tomorrow = work->now + DAY_MS;
    return end < tomorrow ? end : tomorrow;
}

void family_note_lease(struct work *work, const char *principal, const struct lease *lease)
{
    struct id_key key = key_of("lease", lease->id);
    put_lease(work, principal, lease, key);
    store_forget_at(work, forget_lease_at(work, lease), key.text);
}

void family_renote_lease(struct work *work, const char *principal, const struct lease *lease)
{
    put_lease(work, principal, lease, key_of("lease", lease->id));
}

bool family_lease_until(struct work *work, const char *lease_id, int64_t *until)
{
    char principal[PRINCIPAL_BYTES];
    struct lease noted = {.revision = 0}, lease;
    *until = 0;
    if (!family_of_lease(work, lease_id, principal, &noted))
        return false;
    if (principal[0] == '\0' || !store_get_lease(work, principal, noted.thread_id, &lease))
        return principal[0] == '\0';
    bool holds = lease.revision > 0 && strcmp(lease.id, lease_id) == 0;
    *until = holds && forget_lease_at(work, &lease) > work->now ? forget_lease_at(work, &lease) : 0;
    return true;
}

static bool read_lease(const json_t *json, char principal[static PRINCIPAL_BYTES], struct lease *lease)
{
    const char *who = json_string_value(json_object_get(json, "principal"));
    lease->max_expires_at = json_integer_value(json_object_get(json, "max_expires_at"));
    return lease->max_expires_at > 0 && text_copy(principal, PRINCIPAL_BYTES, who) &&
           text_copy(lease->thread_id, sizeof lease->thread_id, json_string_value(json_object_get(json, "thread"))) &&
           text_copy(lease->sandbox_id, sizeof lease->sandbox_id, json_string_value(json_object_get(json, "sandbox")));
}

bool family_of_lease(struct work *work, const char *lease_id, char principal[static PRINCIPAL_BYTES],
                     struct lease *lease)
{
    AUTO_KV_VALUE value = {0};
    principal[0] = '\0';
    if (!text_copy(lease->id, sizeof lease->id, lease_id))
        return true; /* too long for one */
    if (!kv_get(work->kv, key_of("lease", lease_id).text, &value, work->err))
        return false;
    if (value.revision == 0)
        return true;
    json_t *json = json_loadb(value.data, value.size, 0, NULL);
    bool whole = read_lease(json, principal, lease);
    json_decref(json);
    return whole || error_set(work->err, ERROR_INTERNAL, "the row that tells whose a lease is, is damaged");
}
