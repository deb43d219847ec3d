/* audit_seal.c - the seals that removed stretches of the chain leave behind: each names where its stretch began and
 * ended, under a MAC that covers the seal before. */
#include "negotiator/ledger/audit_internal.h"

#include "shared/base/clock.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { SEAL_NAMES = 9 };

/* The texts of a seal as they are hashed and stored. */
struct seal_texts {
    char first[21], last[21];
    char prev[AUDIT_HASH_TEXT], hash[AUDIT_HASH_TEXT];
    char from[CLOCK_TEXT_BYTES], to[CLOCK_TEXT_BYTES], sealed[CLOCK_TEXT_BYTES];
};

static void write_texts(struct seal_texts *texts, const struct audit_seal *seal)
{
    (void)snprintf(texts->first, sizeof texts->first, "%" PRIu64, seal->first);
    (void)snprintf(texts->last, sizeof texts->last, "%" PRIu64, seal->last);
    text_hex(texts->prev, seal->prev, AUDIT_HASH_BYTES);
    text_hex(texts->hash, seal->hash, AUDIT_HASH_BYTES);
    clock_format(texts->from, seal->from_ms);
    clock_format(texts->to, seal->to_ms);
    clock_format(texts->sealed, seal->sealed_ms);
}

static void make_mac(uint8_t mac[static AUDIT_HASH_BYTES], const struct key *key, const struct audit_seal *before,
                     const struct seal_texts *texts)
{
    AUTO_KEY seal_key;
    key_derive(&seal_key, key, "parley/audit-seal/1");
    crypto_generichash_state state;
    if (crypto_generichash_init(&state, seal_key.bytes, sizeof seal_key.bytes, AUDIT_HASH_BYTES) != 0)
        abort(); /* only for sizes out of range, which are constants here */
    crypto_generichash_update(&state, before->mac, AUDIT_HASH_BYTES);
    const char *const all[] = {texts->first, texts->last, texts->prev,  texts->hash,
                               texts->from,  texts->to,   texts->sealed};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        audit_absorb(&state, all[i]);
    crypto_generichash_final(&state, mac, AUDIT_HASH_BYTES);
    sodium_memzero(&state, sizeof state);
}

bool audit_seal_put(struct kv_change *change, const struct key *key, const struct audit_seal *before,
                    struct audit_seal *seal, struct error *err)
{
    struct seal_texts texts = {.first = ""};
    memcpy(seal->prev, before->hash, AUDIT_HASH_BYTES);
    write_texts(&texts, seal);
    make_mac(seal->mac, key, before, &texts);
    json_int_t count = (json_int_t)seal->last - (json_int_t)seal->first + 1;
    AUTO_JSON *object = json_pack("{s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s}", "first", (json_int_t)seal->first, "last",
                                  (json_int_t)seal->last, "count", count, "prev", texts.prev, "hash", texts.hash,
                                  "from", texts.from, "to", texts.to, "sealed", texts.sealed);
    bool whole = object && audit_set_hash(object, "mac", seal->mac);
    AUTO_FREE char *text = whole ? json_dumps(object, JSON_COMPACT) : NULL;
    if (text == NULL)
        return error_set(err, ERROR_INTERNAL, "an audit seal could not be written as JSON");
    char name[AUDIT_KEY_SIZE];
    audit_format_key(name, AUDIT_SEALS, seal->first);
    kv_change_expect(change, name, 0);
    kv_change_put(change, name, text, strlen(text));
    return true;
}

static bool get_time(const json_t *object, const char *name, int64_t *when)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text && clock_parse(text, when);
}

static bool parse_seal(struct audit_seal *seal, const char *data, size_t size)
{
    AUTO_JSON *object = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    uint64_t count;
    return json_object_size(object) == SEAL_NAMES && audit_get_number(object, "first", &seal->first) &&
           audit_get_number(object, "last", &seal->last) && audit_get_number(object, "count", &count) &&
           seal->last >= seal->first && count == seal->last - seal->first + 1 &&
           audit_get_hash(object, "prev", seal->prev) && audit_get_hash(object, "hash", seal->hash) &&
           audit_get_hash(object, "mac", seal->mac) && get_time(object, "from", &seal->from_ms) &&
           get_time(object, "to", &seal->to_ms) && get_time(object, "sealed", &seal->sealed_ms);
}

/* --- proving --- */

struct seal_walk {
    const struct key *key;
    struct audit_seal newest;
    size_t visited;
    struct error *flaw;
};

/* What is wrong with the seal after `before`; NULL when it holds. */
static const char *find_flaw(const struct key *key, const struct audit_seal *before, const char *name,
                             const struct kv_value *value, struct audit_seal *seal)
{
    char expected[AUDIT_KEY_SIZE];
    struct seal_texts texts = {.first = ""};
    uint8_t mac[AUDIT_HASH_BYTES];
    audit_format_key(expected, AUDIT_SEALS, before->last + 1);
    if (strcmp(name, expected) != 0)
        return "is missing";
    if (!parse_seal(seal, value->data, value->size))
        return "is not a seal";
    if (seal->first != before->last + 1 || memcmp(seal->prev, before->hash, AUDIT_HASH_BYTES) != 0)
        return "does not follow the one before it";
    write_texts(&texts, seal);
    make_mac(mac, key, before, &texts);
    return sodium_memcmp(mac, seal->mac, sizeof mac) == 0 ? NULL : "was changed";
}

static bool prove_next(void *cookie, const char *name, const struct kv_value *value)
{
    struct seal_walk *walk = cookie;
    struct audit_seal seal;
    const char *wrong = find_flaw(walk->key, &walk->newest, name, value, &seal);
    walk->visited++;
    if (wrong)
        return error_set(walk->flaw, ERROR_INVALID, "the audit seal from record %" PRIu64 " on %s",
                         walk->newest.last + 1, wrong);
    walk->newest = seal;
    return true;
}

bool audit_seals_prove(struct kv *kv, const struct key *key, size_t limit, struct audit_seal *newest, bool *more,
                       struct error *flaw, struct error *err)
{
    struct seal_walk walk = {.key = key, .newest = *newest, .flaw = flaw};
    char first[AUDIT_KEY_SIZE];
    audit_format_key(first, AUDIT_SEALS, newest->last + 1);
    if (!kv_range(kv, first, AUDIT_SEALS_END, limit, prove_next, &walk, err))
        return false;
    *newest = walk.newest;
    *more = limit > 0 && walk.visited == limit && flaw->kind == ERROR_NONE;
    return true;
}

/* --- looking one up --- */

struct seal_search {
    uint64_t seq;
    struct audit_seal found;
};

static bool look_at(void *cookie, const char *name UNUSED, const struct kv_value *value)
{
    struct seal_search *search = cookie;
    struct audit_seal seal;
    if (parse_seal(&seal, value->data, value->size) && seal.first <= search->seq && search->seq <= seal.last)
        search->found = seal;
    return search->found.last == 0;
}

bool audit_seal_find(struct kv *kv, uint64_t seq, struct audit_seal *seal, struct error *err)
{
    struct seal_search search = {.seq = seq};
    if (!kv_range(kv, AUDIT_SEALS, AUDIT_SEALS_END, 0, look_at, &search, err))
        return false;
    *seal = search.found;
    return true;
}
