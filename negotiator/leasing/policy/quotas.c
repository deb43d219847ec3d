#include "negotiator/leasing/policy/quotas.h"

#include "negotiator/leasing/policy/policy_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { DISK_DEFAULT_MB = 1024 }; /* protocol.md, 2 */
static const int64_t MINUTE_US = 60000000, PACE_MAX = 60000000;

/* --- rows --- */

/* The amounts, in the order of their names. */
enum amount { SANDBOXES, CPU, MEMORY, DISK, AMOUNTS };
static const char *const NAMES[AMOUNTS] = {"sandboxes", "cpu_milli", "memory_mb", "disk_mb"};
static const char RATE[] = "creates_per_minute";

struct use {
    struct store_row key;
    uint64_t revision;
    int64_t amounts[AMOUNTS];
    int64_t paced_until_us; /* wall clock: when all that was made is paid for by time */
};

static struct store_row key_of(const char *principal)
{
    return principal ? store_key("used", principal, NULL) : store_key("meta", "used", NULL);
}

static bool read_use(struct use *use, const struct kv_value *value, struct error *err)
{
    json_t *json = json_loadb(value->data, value->size, 0, NULL);
    for (size_t i = 0; i < AMOUNTS; i++)
        use->amounts[i] = json_integer_value(json_object_get(json, NAMES[i]));
    use->paced_until_us = json_integer_value(json_object_get(json, "paced_until_us"));
    bool read = json != NULL;
    json_decref(json);
    return read || error_set(err, ERROR_INTERNAL, "the row %s is damaged", use->key.text);
}

/* Of all: principal NULL. */
static bool get(struct work *work, const char *principal, struct use *use)
{
    AUTO_KV_VALUE value = {0};
    *use = (struct use){.key = key_of(principal)};
    if (!kv_get(work->kv, use->key.text, &value, work->err))
        return false;
    use->revision = value.revision;
    return value.revision == 0 || read_use(use, &value, work->err);
}

static bool is_nothing(const struct work *work, const struct use *use)
{
    bool any = use->paced_until_us > work->now * 1000;
    for (size_t i = 0; i < AMOUNTS; i++)
        any = any || use->amounts[i] > 0;
    return !any;
}

static void put(struct work *work, const struct use *use)
{
    kv_change_expect(work->change, use->key.text, use->revision);
    if (is_nothing(work, use)) {
        if (use->revision > 0)
            kv_change_delete(work->change, use->key.text);
        return;
    }
    json_t *json = json_object();
    for (size_t i = 0; i < AMOUNTS; i++)
        json_object_set_new(json, NAMES[i], json_integer(use->amounts[i]));
    if (use->paced_until_us > 0)
        json_object_set_new(json, "paced_until_us", json_integer(use->paced_until_us));
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    kv_change_put(work->change, use->key.text, text, strlen(text));
}

/* What `resources` are, one sandbox of them. */
static void measure(const struct resources *resources, int64_t sandboxes, int64_t amounts[static AMOUNTS])
{
    amounts[SANDBOXES] = sandboxes;
    amounts[CPU] = resources->cpu_milli;
    amounts[MEMORY] = resources->memory_mb;
    amounts[DISK] = resources->disk_mb;
}

/* A count below nothing would let in too much later: a start mends whatever brought it there. */
static void add(struct use *use, const int64_t amounts[static AMOUNTS])
{
    for (size_t i = 0; i < AMOUNTS; i++) {
        use->amounts[i] += amounts[i];
        if (use->amounts[i] < 0)
            use->amounts[i] = 0;
    }
}

static bool add_to_both(struct work *work, const char *principal, const int64_t amounts[static AMOUNTS])
{
    struct use own, all;
    if (!get(work, principal, &own) || !get(work, NULL, &all))
        return false;
    add(&own, amounts);
    add(&all, amounts);
    put(work, &own);
    put(work, &all);
    return true;
}

bool quota_adjust(struct work *work, const struct sandbox *sandbox, const struct resources *before)
{
    int64_t was[AMOUNTS], is[AMOUNTS];
    bool differs = false;
    measure(before, 0, was);
    measure(&sandbox->resources, 0, is);
    for (size_t i = 0; i < AMOUNTS; i++) {
        is[i] -= was[i];
        differs = differs || is[i] != 0;
    }
    return !differs || add_to_both(work, sandbox->principal, is);
}

bool quota_release(struct work *work, const struct sandbox *sandbox)
{
    int64_t amounts[AMOUNTS];
    measure(&sandbox->resources, 1, amounts);
    for (size_t i = 0; i < AMOUNTS; i++)
        amounts[i] = -amounts[i];
    return add_to_both(work, sandbox->principal, amounts);
}

/* --- what is allowed --- */

struct limit {
    const char *whose; /* the principal; NULL: of the deployment */
    int64_t most;      /* -1: not limited */
    char where[POLICY_WHERE_BYTES];
};

static int64_t of_key(const struct policy_subject *who, const char *name)
{
    const int64_t amounts[AMOUNTS] = {who->limits.sandboxes, who->limits.cpu_milli, who->limits.memory_mb,
                                      who->limits.disk_mb};
    for (size_t i = 0; i < AMOUNTS; i++) {
        if (strcmp(name, NAMES[i]) == 0)
            return amounts[i];
    }
    return who->limits.creates_per_minute;
}

/* The smaller one of what policy says and of what the API key has. */
static struct limit limit_of(const struct leasing *leasing, const struct policy_subject *who, const char *name)
{
    struct limit limit = {.whose = who->principal, .most = -1};
    int64_t key = of_key(who, name);
    const json_t *most = policy_find(leasing->policies, who, "quota", name, limit.where);
    if (most)
        limit.most = json_integer_value(most);
    if (key <= 0 || (limit.most >= 0 && limit.most <= key))
        return limit;
    limit.most = key;
    if (!text_format(limit.where, sizeof limit.where, "the API key's limits.%s", name))
        limit.where[0] = '\0'; /* cannot be: it is short */
    return limit;
}

static struct limit limit_of_all(const struct leasing *leasing, const char *name)
{
    struct limit limit = {.most = -1};
    const json_t *quota = json_object_get(json_object_get(leasing->policies->document, "deployment"), "quota");
    const json_t *most = json_object_get(quota, name);
    if (json_is_integer(most))
        limit.most = json_integer_value(most);
    if (!text_format(limit.where, sizeof limit.where, "%s%s", most ? "deployment.quota." : "default", most ? name : ""))
        limit.where[0] = '\0'; /* cannot be: it is short */
    return limit;
}

int64_t quota_disk_mb(const struct leasing *leasing, const struct policy_subject *who)
{
    bool is_limited = limit_of(leasing, who, NAMES[DISK]).most >= 0 || limit_of_all(leasing, NAMES[DISK]).most >= 0;
    return is_limited ? DISK_DEFAULT_MB : 0;
}

static bool refuse(const struct limit *limit, const char *name, int64_t used, int64_t more, struct error *refusal)
{
    return error_set(refusal, ERROR_QUOTA,
                     "%.64s %lld of at most %lld %s, %lld more %s asked for; paused and ending ones count (%.90s)",
                     limit->whose ? limit->whose : "this deployment has", (long long)used, (long long)limit->most, name,
                     (long long)more, more == 1 ? "was" : "were", limit->where);
}

static bool has_room(const struct limit *limit, const char *name, int64_t used, int64_t more, struct error *refusal)
{
    if (limit->most < 0 || more <= 0 || used + more <= limit->most)
        return true;
    char whose[PRINCIPAL_BYTES + 8];
    struct limit said = *limit;
    if (limit->whose && text_format(whose, sizeof whose, "%s has", limit->whose))
        said.whose = whose;
    return refuse(&said, name, used, more, refusal);
}

/* --- what is asked for and not in the rows yet --- */

/* Of a principal; NULL: of all. */
static void reserved(const struct leasing *leasing, const char *principal, int64_t amounts[static AMOUNTS])
{
    memset(amounts, 0, AMOUNTS * sizeof *amounts);
    for (const struct quota_reservation *each = leasing->reservations; each; each = each->next) {
        int64_t own[AMOUNTS];
        if (principal && strcmp(each->principal, principal) != 0)
            continue;
        measure(&each->more, 0, own);
        for (size_t i = 0; i < AMOUNTS; i++)
            amounts[i] += own[i];
    }
}

static bool have_room(struct work *work, const struct policy_subject *who, const int64_t more[static AMOUNTS],
                      const struct use *own, const struct use *all, struct error *refusal)
{
    int64_t held[AMOUNTS], held_of_all[AMOUNTS];
    reserved(work->leasing, who->principal, held);
    reserved(work->leasing, NULL, held_of_all);
    for (size_t i = 0; i < AMOUNTS; i++) {
        struct limit limit = limit_of(work->leasing, who, NAMES[i]), of_all = limit_of_all(work->leasing, NAMES[i]);
        if (!has_room(&limit, NAMES[i], own->amounts[i] + held[i], more[i], refusal) ||
            !has_room(&of_all, NAMES[i], all->amounts[i] + held_of_all[i], more[i], refusal))
            return false;
    }
    return true;
}

void quota_unreserve(struct leasing *leasing, struct quota_reservation *reservation)
{
    for (struct quota_reservation **at = &leasing->reservations; *at && reservation->is_held; at = &(*at)->next) {
        if (*at == reservation) {
            *at = reservation->next;
            break;
        }
    }
    reservation->is_held = false;
}

static int64_t more_than(int64_t asked, int64_t is)
{
    return asked > is ? asked - is : 0;
}

bool quota_reserve(struct work *work, const struct policy_subject *who, const struct sandbox *sandbox,
                   const struct resources *asked, struct quota_reservation *reservation, struct error *refusal)
{
    struct policy_subject of_owner = *who;
    struct leasing *leasing = work->leasing;
    struct use own, all;
    int64_t more[AMOUNTS];
    quota_unreserve(leasing, reservation);
    of_owner.principal = sandbox->principal;
    reservation->more = (struct resources){.cpu_milli = more_than(asked->cpu_milli, sandbox->resources.cpu_milli),
                                           .memory_mb = more_than(asked->memory_mb, sandbox->resources.memory_mb),
                                           .disk_mb = more_than(asked->disk_mb, sandbox->resources.disk_mb)};
    measure(&reservation->more, 0, more);
    if (!get(work, sandbox->principal, &own) || !get(work, NULL, &all) ||
        !have_room(work, &of_owner, more, &own, &all, refusal))
        return false;
    memcpy(reservation->principal, sandbox->principal, sizeof reservation->principal);
    reservation->is_held = true;
    reservation->next = leasing->reservations;
    leasing->reservations = reservation;
    return true;
}

/* --- how often --- */

/* Each one takes its part of a minute; a minute's worth may be taken at once. A clock that was set back, or a limit
 * that was lower before, counts for a minute at most. */
static bool is_in_pace(struct use *use, const struct limit *limit, int64_t now_us, unsigned *retry_after_s,
                       struct error *refusal)
{
    if (limit->most < 0)
        return true;
    int64_t from = use->paced_until_us < now_us               ? now_us
                   : use->paced_until_us > now_us + MINUTE_US ? now_us + MINUTE_US
                                                              : use->paced_until_us;
    int64_t until = limit->most ? from + MINUTE_US / limit->most : now_us;
    int64_t wait = until - MINUTE_US - now_us;
    if (limit->most > 0 && wait <= 0) {
        use->paced_until_us = until;
        return true;
    }
    *retry_after_s = limit->most ? (unsigned)((wait + 999999) / 1000000) : 0;
    return error_set(refusal, ERROR_QUOTA, "%.64s may make %lld sandboxes a minute (%.90s)",
                     limit->whose ? limit->whose : "this deployment", (long long)limit->most, limit->where);
}

bool quota_take(struct work *work, const struct policy_subject *who, const struct sandbox *sandbox,
                unsigned *retry_after_s, struct error *refusal)
{
    struct use own, all;
    int64_t more[AMOUNTS];
    const struct limit rate = limit_of(work->leasing, who, RATE), rate_of_all = limit_of_all(work->leasing, RATE);
    *retry_after_s = 0;
    measure(&sandbox->resources, 1, more);
    if (!get(work, sandbox->principal, &own) || !get(work, NULL, &all) ||
        !have_room(work, who, more, &own, &all, refusal) ||
        !is_in_pace(&own, &rate, work->now * 1000, retry_after_s, refusal) ||
        !is_in_pace(&all, &rate_of_all, work->now * 1000, retry_after_s, refusal))
        return false;
    add(&own, more);
    add(&all, more);
    put(work, &own);
    put(work, &all);
    return true;
}

/* --- said to people --- */

static void tell(const struct limit *limit, const char *name, int64_t used, int64_t more,
                 void (*told)(void *cookie, const struct policy_finding *finding, int64_t used), void *cookie)
{
    char rule[64];
    struct policy_finding finding = {.rule = rule, .verdict = POLICY_YES};
    if (!text_format(rule, sizeof rule, "%s.%s", limit->whose ? "quota" : "deployment.quota", name))
        return;
    memcpy(finding.where, limit->where, sizeof finding.where);
    if (limit->most >= 0 && more > 0 && used + more > limit->most)
        finding.verdict = POLICY_NO;
    finding.asked = json_integer(more);
    finding.allowed = limit->most >= 0 ? json_integer(limit->most) : NULL;
    told(cookie, &finding, used);
    json_decref(finding.asked);
    json_decref(finding.allowed);
}

/* How many of this minute's are used up. */
static int64_t paced(const struct use *use, const struct limit *limit, int64_t now_us)
{
    int64_t left = use->paced_until_us - now_us;
    if (left <= 0 || limit->most <= 0)
        return 0;
    left = left > MINUTE_US ? MINUTE_US : left;
    int64_t most = limit->most < PACE_MAX ? limit->most : PACE_MAX; /* more are none to be counted */
    return (left * most + MINUTE_US - 1) / MINUTE_US;
}

bool quota_explain(struct work *work, const struct policy_subject *who, const struct resources *asked,
                   void (*told)(void *cookie, const struct policy_finding *finding, int64_t used), void *cookie)
{
    struct use own, all;
    int64_t more[AMOUNTS];
    const struct leasing *leasing = work->leasing;
    measure(asked, 1, more);
    if (!get(work, who->principal, &own) || !get(work, NULL, &all))
        return false;
    for (size_t i = 0; i < AMOUNTS; i++) {
        struct limit limit = limit_of(leasing, who, NAMES[i]);
        tell(&limit, NAMES[i], own.amounts[i], more[i], told, cookie);
    }
    struct limit rate = limit_of(leasing, who, RATE);
    tell(&rate, RATE, paced(&own, &rate, work->now * 1000), 1, told, cookie);
    if (json_object_get(leasing->policies->document, "deployment") == NULL)
        return true;
    for (size_t i = 0; i < AMOUNTS; i++) {
        struct limit limit = limit_of_all(leasing, NAMES[i]);
        tell(&limit, NAMES[i], all.amounts[i], more[i], told, cookie);
    }
    rate = limit_of_all(leasing, RATE);
    tell(&rate, RATE, paced(&all, &rate, work->now * 1000), 1, told, cookie);
    return true;
}
