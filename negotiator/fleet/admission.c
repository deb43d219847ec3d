/* admission.c - join tokens, enrolment, draining, re-keying: rules on the rows, and the registry after them. */
#include "negotiator/fleet/fleet_internal.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define JOIN_PREFIX "join/"
enum { JOIN_KEY_BYTES = sizeof JOIN_PREFIX + 32 };
static const uint64_t SECOND_NS = 1000000000;

void fleet_asking_done(struct fleet_asking *asking)
{
    json_decref(asking->answer);
    sodium_memzero(asking, sizeof *asking);
}

/* --- one rule's run --- */

struct admission {
    struct fleet_asking *asking;
    struct fleet *fleet;
    struct kv *kv;
    struct kv_change *change;
    int64_t now; /* wall clock, ms */
    struct error *err;
};

static bool record(struct admission *run, const char *action, const char *detail)
{
    struct audit_record told = run->asking->record;
    told.time_ms = run->now;
    told.plane = "negotiator";
    told.node = run->asking->node;
    told.action = action;
    bool refused = run->asking->refusal.kind != ERROR_NONE;
    told.outcome = refused ? "refused" : "ok";
    told.status = error_http_status(run->asking->refusal.kind);
    told.detail = refused ? run->asking->refusal.message : detail;
    return audit_append(run->kv, run->change, &run->fleet->audit_key, &told, run->err);
}

static enum kv_outcome finish(struct admission *run, const char *action, const char *detail)
{
    return record(run, action, detail) ? kv_apply(run->kv, run->change, run->err) : KV_FAILED;
}

static enum kv_outcome refuse(struct admission *run, const char *action, enum error_kind kind, const char *why)
{
    error_set(&run->asking->refusal, kind, "%s", why);
    return finish(run, action, NULL);
}

/* --- join tokens --- */

struct join {
    char name[LINK_NODE_BYTES];
    struct key secret;
    int64_t expires_ms;
    bool is_used;
    uint8_t used_by[32]; /* a node's public key */
    uint64_t revision;   /* 0: there is none */
};

static void join_done(struct join *join)
{
    key_done(&join->secret);
}
#define AUTO_JOIN __attribute__((cleanup(join_done))) struct join

static void join_key(char key[static JOIN_KEY_BYTES], const uint8_t id[static 16])
{
    memcpy(key, JOIN_PREFIX, sizeof JOIN_PREFIX);
    text_hex(key + sizeof JOIN_PREFIX - 1, id, 16);
}

static bool read_32(uint8_t to[static 32], const char *text)
{
    size_t size = 0;
    return text_base64url_decode(to, 32, &size, text, strlen(text)) && size == 32;
}

static bool join_parse(struct join *join, const struct kv_value *value)
{
    const char *name = NULL, *secret = NULL, *used_by = "";
    json_int_t expires = 0;
    AUTO_JOIN read = {.revision = value->revision};
    json_t *json = json_loadb(value->data, value->size, 0, NULL);
    bool whole = json &&
                 json_unpack(json, "{s:s, s:s, s:I, s:s}", "name", &name, "secret", &secret, "expires", &expires,
                             "used_by", &used_by) == 0 &&
                 text_copy(read.name, sizeof read.name, name) && read_32(read.secret.bytes, secret) &&
                 (used_by[0] == '\0' || read_32(read.used_by, used_by));
    read.is_used = whole && used_by[0];
    read.expires_ms = expires;
    json_decref(json);
    if (whole)
        *join = read;
    return whole;
}

static void join_put(struct kv_change *change, const struct join *join, const uint8_t id[static 16])
{
    char key[JOIN_KEY_BYTES], secret[TEXT_BASE64URL_LENGTH(KEY_BYTES) + 1], used_by[sizeof secret] = "";
    join_key(key, id);
    text_base64url_encode(secret, join->secret.bytes, KEY_BYTES);
    if (join->is_used)
        text_base64url_encode(used_by, join->used_by, sizeof join->used_by);
    json_t *json = json_pack("{s:s, s:s, s:I, s:s}", "name", join->name, "secret", secret, "expires",
                             (json_int_t)join->expires_ms, "used_by", used_by);
    char *text = json_dumps(json, JSON_COMPACT);
    kv_change_expect(change, key, join->revision);
    kv_change_put(change, key, text, strlen(text));
    sodium_memzero(text, strlen(text));
    sodium_memzero(secret, sizeof secret);
    free(text);
    json_decref(json);
}

/* The tokens that are over go when a new one is made: each time all, for there are few. */
struct joins {
    struct admission *run;
    size_t waiting;
};

static bool see_join(void *cookie, const char *key, const struct kv_value *value)
{
    struct joins *joins = cookie;
    AUTO_JOIN join = {.revision = 0};
    if (!join_parse(&join, value) || join.expires_ms <= joins->run->now) {
        kv_change_expect(joins->run->change, key, value->revision);
        kv_change_delete(joins->run->change, key);
    } else if (!join.is_used) {
        joins->waiting++;
    }
    return true;
}

static enum kv_outcome make_token(struct admission *run)
{
    struct fleet_asking *asking = run->asking;
    struct joins joins = {.run = run};
    if (!kv_range(run->kv, JOIN_PREFIX, NULL, 0, see_join, &joins, run->err))
        return KV_FAILED;
    if (joins.waiting >= FLEET_JOINS_MAX)
        return refuse(run, "node.add", ERROR_QUOTA, "too many join tokens wait to be used; each ends after 10 minutes");
    struct enrol_pair pair;
    AUTO_JOIN_TOKEN token;
    AUTO_JOIN join = {.expires_ms = run->now + ENROL_LIFE_MS};
    random_bytes(token.id, sizeof token.id);
    key_random(&token.secret);
    enrol_negotiator_pair(&pair, &run->fleet->master);
    enrol_negotiator_hash(&pair, token.negotiator_hash);
    key_done(&pair.secret_key);
    join.secret = token.secret;
    memcpy(join.name, asking->node, sizeof join.name);
    join_put(run->change, &join, token.id);
    join_token_format(&token, asking->token);
    asking->expires_ms = join.expires_ms;
    return finish(run, "node.add", "a join token was made");
}

/* --- enrolment --- */

/* One sentence for all who cannot prove: it tells nobody which tokens there are. Not recorded: anybody may try. */
static enum kv_outcome stranger(struct admission *run)
{
    error_set(&run->asking->refusal, ERROR_UNAUTHENTICATED,
              "the join token is not known, is over, or is for another node or another key");
    return KV_APPLIED;
}

static bool answer(struct admission *run, uint32_t epoch)
{
    struct fleet_asking *asking = run->asking;
    struct enrol_pair pair;
    AUTO_ENROL_GRANT grant = {.epoch = epoch};
    memcpy(grant.node, asking->node, sizeof grant.node);
    memcpy(grant.deployment, run->fleet->deployment, sizeof grant.deployment);
    key_node(&grant.node_key, &run->fleet->master, asking->node, epoch);
    enrol_negotiator_pair(&pair, &run->fleet->master);
    json_decref(asking->answer);
    asking->answer =
        enrol_seal(&pair, asking->request.public_key, asking->request.transcript, &grant, &asking->refusal);
    key_done(&pair.secret_key);
    if (asking->answer)
        json_object_set_new(asking->answer, "deployment", json_string(run->fleet->deployment));
    return asking->answer != NULL;
}

/* The same key again, whose first answer may have been lost: the same answer. Nothing changes. */
static enum kv_outcome answer_again(struct admission *run, const struct fleet_row *row)
{
    if (!row->has_public_key || sodium_memcmp(row->public_key, run->asking->request.public_key, 32) != 0)
        return stranger(run); /* another machine has the name since */
    run->asking->epoch = row->epoch;
    run->asking->next_epoch = row->next_epoch;
    (void)answer(run, row->epoch);
    return KV_APPLIED;
}

/* Of one that is proved. Whoever saw it on the network can send it again, as often as he likes: recorded once a second.
 */
static enum kv_outcome refuse_enrolment(struct admission *run, enum error_kind kind, const char *why)
{
    const struct fleet *fleet = run->fleet;
    if (fleet->enrol_refused_ns == 0 || fleet->options.boot_ns() - fleet->enrol_refused_ns >= SECOND_NS)
        return refuse(run, "node.enrol", kind, why);
    error_set(&run->asking->refusal, kind, "%s", why);
    return KV_APPLIED;
}

/* All nodes are in memory, and are read at the start. */
static bool has_room(struct fleet *fleet, const char *node)
{
    pthread_mutex_lock(&fleet->registry_lock);
    bool room = fleet->node_count < FLEET_NODES_MAX || fleet_node_of(fleet, node, false);
    pthread_mutex_unlock(&fleet->registry_lock);
    return room;
}

static bool is_living(struct fleet *fleet, const char *node)
{
    char url[FLEET_URL_BYTES];
    return fleet_find(fleet, node, url) == FLEET_ALIVE;
}

static enum kv_outcome admit(struct admission *run, struct fleet_row *row, struct join *join)
{
    struct fleet_asking *asking = run->asking;
    bool same_key = row->has_public_key && sodium_memcmp(row->public_key, asking->request.public_key, 32) == 0;
    if (!same_key && !row->draining && is_living(run->fleet, asking->node))
        return refuse_enrolment(run, ERROR_CONFLICT,
                                "a living node with another key has this name; drain it first to put it out");
    if (!has_room(run->fleet, asking->node))
        return refuse_enrolment(run, ERROR_QUOTA, "there are as many nodes as there may be");
    /* Who has the name from now on shares no key with who had it: what that one's sandboxes took is over. */
    asking->replaced = !same_key;
    if (!same_key && row->revision > 0) {
        row->epoch = (row->next_epoch > row->epoch ? row->next_epoch : row->epoch) + 1;
        row->next_epoch = 0;
        row->incarnation = 0;  /* counted within an epoch */
        row->draining = false; /* that was the other machine */
    }
    if (!answer(run, row->epoch))
        return KV_APPLIED; /* no key that a box can be made for */
    memcpy(row->public_key, asking->request.public_key, sizeof row->public_key);
    row->has_public_key = true;
    memcpy(join->used_by, asking->request.public_key, sizeof join->used_by);
    join->is_used = true;
    asking->epoch = row->epoch;
    asking->next_epoch = row->next_epoch;
    asking->changed = true;
    fleet_row_put(run->change, row, asking->node);
    join_put(run->change, join, asking->request.id);
    char detail[64];
    snprintf(detail, sizeof detail, "epoch %u%s", row->epoch, same_key ? ", the same key" : "");
    return finish(run, "node.enrol", detail);
}

static enum kv_outcome enrol(struct admission *run)
{
    struct fleet_asking *asking = run->asking;
    char key[JOIN_KEY_BYTES];
    AUTO_KV_VALUE value = {0};
    AUTO_JOIN join = {.revision = 0};
    struct fleet_row row;
    memcpy(asking->node, asking->request.node, sizeof asking->node);
    join_key(key, asking->request.id);
    if (!kv_get(run->kv, key, &value, run->err) || !fleet_row_get(&row, run->kv, asking->node, run->err))
        return KV_FAILED;
    bool proved = value.revision > 0 && join_parse(&join, &value) && join.expires_ms > run->now &&
                  enrol_is_proved(&asking->request, &join.secret) && strcmp(join.name, asking->node) == 0;
    if (value.data)
        sodium_memzero(value.data, value.size);
    if (!proved)
        return stranger(run);
    if (!join.is_used)
        return admit(run, &row, &join);
    if (sodium_memcmp(join.used_by, asking->request.public_key, sizeof join.used_by) == 0)
        return answer_again(run, &row);
    return refuse_enrolment(run, ERROR_CONFLICT, "another key has used this join token; make a new one");
}

/* --- draining and re-keying --- */

static enum kv_outcome change_row(struct admission *run)
{
    struct fleet_asking *asking = run->asking;
    bool is_drain = asking->verb == FLEET_DRAIN;
    const char *action = !is_drain ? "node.rekey" : asking->drain ? "node.drain" : "node.undrain";
    struct fleet_row row;
    char detail[64] = "";
    if (!fleet_row_get(&row, run->kv, asking->node, run->err))
        return KV_FAILED;
    if (row.revision == 0)
        return refuse(run, action, ERROR_NOT_FOUND, "there is no such node");
    if (!is_drain && !row.has_public_key)
        return refuse(run, action, ERROR_CONFLICT, "the node's public key is not known: it has to enrol anew");
    if (is_drain) {
        row.draining = asking->drain;
    } else {
        row.next_epoch = row.next_epoch ? row.next_epoch : row.epoch + 1;
        snprintf(detail, sizeof detail, "epoch %u to %u", row.epoch, row.next_epoch);
    }
    asking->epoch = row.epoch;
    asking->next_epoch = row.next_epoch;
    asking->changed = true;
    fleet_row_put(run->change, &row, asking->node);
    return finish(run, action, detail);
}

/* --- the rule, and after it --- */

enum kv_outcome fleet_rule(struct kv *kv, struct fleet_asking *asking, struct error *err)
{
    struct fleet *fleet = asking->fleet;
    AUTO(kv_change) *change = kv_change_new();
    struct admission run = {asking, fleet, kv, change, fleet->options.wall_ms(), err};
    asking->refusal = (struct error){0};
    asking->changed = asking->replaced = false;
    if (asking->verb == FLEET_JOIN)
        return make_token(&run);
    if (asking->verb == FLEET_ENROL)
        return enrol(&run);
    return change_row(&run);
}

void fleet_made(struct fleet_asking *asking)
{
    struct fleet *fleet = asking->fleet;
    bool refused = asking->refusal.kind == ERROR_CONFLICT || asking->refusal.kind == ERROR_QUOTA;
    uint64_t now = fleet->options.boot_ns();
    if (asking->verb == FLEET_ENROL && refused && now - fleet->enrol_refused_ns >= SECOND_NS)
        fleet->enrol_refused_ns = now;
    if (!asking->changed)
        return;
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, asking->node, true);
    if (node) {
        fleet_node_raise(fleet, node, asking->epoch);
        node->next_epoch = asking->next_epoch > node->epoch ? asking->next_epoch : 0;
        node->draining = asking->verb == FLEET_DRAIN ? asking->drain : node->draining;
        if (asking->verb == FLEET_ENROL) {
            memcpy(node->public_key, asking->request.public_key, sizeof node->public_key);
            node->has_public_key = true;
            node->heard = node->heard && !asking->replaced;
            node->draining = node->draining && !asking->replaced;
        }
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    if (asking->verb == FLEET_REKEY)
        fleet_send_rekey(fleet, asking->node, true);
}
