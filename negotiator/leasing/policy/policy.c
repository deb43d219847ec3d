#include "negotiator/leasing/policy/policy_internal.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

struct policies *policies_new(const struct leasing_options *options)
{
    struct policies *policies = memory_new(sizeof *policies);
    pthread_rwlock_init(&policies->lock, NULL);
    policies->settings = policy_document_of(options);
    return policies;
}

void policies_free(struct policies *policies)
{
    if (policies == NULL)
        return;
    json_decref(policies->settings);
    json_decref(policies->document);
    pthread_rwlock_destroy(&policies->lock);
    free(policies);
}

void policies_take_settings(struct policies *policies, const struct leasing_options *options)
{
    pthread_rwlock_wrlock(&policies->lock);
    json_decref(policies->settings);
    policies->settings = policy_document_of(options);
    pthread_rwlock_unlock(&policies->lock);
}

/* --- who --- */

struct policy_subject policy_subject(const struct caller *caller, const char *actor)
{
    const char *pinned = caller->principal.actor;
    return (struct policy_subject){.role = caller->principal.role,
                                   .principal = caller_owner(caller),
                                   .actor = pinned[0]           ? pinned
                                            : actor && actor[0] ? actor
                                                                : "human",
                                   .limits = caller->principal.limits};
}

static const char *kind_of(const struct policy_subject *who)
{
    return text_starts_with(who->actor, "agent") ? "agent" : "human";
}

void policy_subject_text(const struct policy_subject *who, char to[static 32])
{
    bool is_agent = strcmp(kind_of(who), "agent") == 0;
    if (!text_format(to, 32, "role %s%s", role_name(who->role), is_agent ? " as agent" : ""))
        to[0] = '\0'; /* cannot be: both are short */
}

/* --- where it is said --- */

/* One place where rules may stand. */
struct layer {
    const json_t *rules; /* NULL: there are none */
    char path[POLICY_WHERE_BYTES / 2 + 40];
};

enum { LAYERS = 4 };

static void find_layers(const struct policies *policies, const struct policy_subject *who,
                        struct layer to[static LAYERS])
{
    const char *kind = kind_of(who), *role = role_name(who->role);
    const json_t *principal = json_object_get(json_object_get(policies->document, "principals"), who->principal);
    const json_t *roles = json_object_get(policies->document, "roles");
    char role_kind[32];
    bool fits = text_format(role_kind, sizeof role_kind, "%s:%s", role, kind) &&
                text_format(to[0].path, sizeof to[0].path, "principals.%s.%s", who->principal, kind) &&
                text_format(to[1].path, sizeof to[1].path, "roles.%s", role_kind) &&
                text_format(to[2].path, sizeof to[2].path, "principals.%s", who->principal) &&
                text_format(to[3].path, sizeof to[3].path, "roles.%s", role);
    (void)fits; /* a principal's name has a bound: it does */
    to[0].rules = json_object_get(principal, kind);
    to[1].rules = json_object_get(roles, role_kind);
    to[2].rules = principal;
    to[3].rules = json_object_get(roles, role);
}

static json_t *look_into(const json_t *rules, const char *rule, const char *part)
{
    json_t *value = json_object_get(rules, rule);
    return part ? json_object_get(value, part) : value;
}

/* The setting that says it when no document does. */
static const char *setting_of(enum role role, const char *rule)
{
    bool is_admin = role == ROLE_ADMIN;
    if (strcmp(rule, "templates") == 0)
        return is_admin ? "settings.templates_admin" : "settings.templates_user";
    if (strcmp(rule, "egress") == 0)
        return is_admin ? "default" : "settings.egress_user";
    return strcmp(rule, "root") == 0           ? "settings.root_roles"
           : strcmp(rule, "ttl_max") == 0      ? "settings.ttl_max"
           : strcmp(rule, "lifetime_max") == 0 ? "settings.max_lifetime"
                                               : "default";
}

static void say_where(char where[static POLICY_WHERE_BYTES], const char *path, const char *rule, const char *part)
{
    if (!text_format(where, POLICY_WHERE_BYTES, "%s.%s%s%s", path, rule, part ? "." : "", part ? part : ""))
        where[0] = '\0'; /* cannot be: all of it is bounded */
}

/* The settings bound every token's and sandbox's life, whatever a document says. */
static bool is_over_settings(const struct policies *policies, const char *rule, const json_t *value)
{
    if (strcmp(rule, "ttl_max") != 0 && strcmp(rule, "lifetime_max") != 0)
        return false;
    const json_t *user = json_object_get(json_object_get(policies->settings, "roles"), "user");
    const json_t *most = json_object_get(user, rule);
    return json_is_integer(most) && (json_is_null(value) || json_integer_value(value) > json_integer_value(most));
}

json_t *policy_find(const struct policies *policies, const struct policy_subject *who, const char *rule,
                    const char *part, char where[static POLICY_WHERE_BYTES])
{
    struct layer layers[LAYERS];
    json_t *value = NULL;
    if (policies->document)
        find_layers(policies, who, layers);
    for (size_t i = 0; policies->document && i < LAYERS && value == NULL; i++) {
        value = look_into(layers[i].rules, rule, part);
        if (value)
            say_where(where, layers[i].path, rule, part);
    }
    if (value == NULL || is_over_settings(policies, rule, value)) {
        const char *role = role_name(who->role == ROLE_ADMIN ? ROLE_ADMIN : ROLE_USER);
        value = look_into(json_object_get(json_object_get(policies->settings, "roles"), role), rule, part);
        if (!text_copy(where, POLICY_WHERE_BYTES, setting_of(who->role, rule)))
            where[0] = '\0'; /* cannot be */
    }
    return json_is_null(value) ? NULL : value;
}

static const json_t *find(const struct leasing *leasing, const struct policy_subject *who, const char *rule,
                          const char *part)
{
    char where[POLICY_WHERE_BYTES];
    return policy_find(leasing->policies, who, rule, part, where);
}

/* --- what is given --- */

void policy_scopes(const struct leasing *leasing, const struct policy_subject *who, struct scope_set *allowed)
{
    AUTO_TEXT all = {0};
    size_t i;
    json_t *each;
    json_array_foreach (find(leasing, who, "scopes", NULL), i, each)
        text_append_format(&all, "%s%s", i ? " " : "", json_string_value(each));
    if (!scope_parse(allowed, all.data ? all.data : "", all.length, SCOPE_UNKNOWN_REFUSED, NULL))
        allowed->count = 0; /* cannot be: it was checked */
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t policy_ttl_max(const struct leasing *leasing, const struct policy_subject *who)
{
    return json_integer_value(find(leasing, who, "ttl_max", NULL));
}

/* The first place that says something of it; LAYERS: no document does. */
static size_t said_at(const struct policies *policies, const struct policy_subject *who, const char *rule)
{
    struct layer layers[LAYERS];
    size_t i = 0;
    if (policies->document == NULL)
        return LAYERS;
    find_layers(policies, who, layers);
    while (i < LAYERS && look_into(layers[i].rules, rule, NULL) == NULL)
        i++;
    return i;
}

/* Who wrote a short ttl_max wanted no token to outlive it, and may have written so before there were long ones. */
int64_t policy_long_ttl(const struct leasing *leasing, const struct policy_subject *who, int64_t most)
{
    const struct policies *policies = leasing->policies;
    const int64_t ttl = policy_ttl_max(leasing, who);
    const size_t said = said_at(policies, who, "long");
    const bool is_said = said < LAYERS && said <= said_at(policies, who, "ttl_max");
    const bool is_given = json_is_true(find(leasing, who, "long", NULL));
    return is_given && (is_said || ttl >= WANTED_TTL_MAX_S) ? most : smaller(most, ttl);
}

static int64_t cut(const struct leasing *leasing, const struct policy_subject *who, const char *rule, int64_t value)
{
    const json_t *most = find(leasing, who, rule, NULL);
    return most ? smaller(value, json_integer_value(most)) : value;
}

int64_t policy_lifetime(const struct leasing *leasing, const struct policy_subject *who, int64_t asked,
                        int64_t fallback)
{
    return cut(leasing, who, "lifetime_max", asked ? asked : fallback);
}

int64_t policy_idle_timeout(const struct leasing *leasing, const struct policy_subject *who, int64_t asked,
                            int64_t fallback)
{
    return cut(leasing, who, "idle_max", asked ? asked : fallback);
}

bool policy_gives_root(const struct leasing *leasing, const struct policy_subject *who)
{
    return json_is_true(find(leasing, who, "root", NULL));
}

static bool is_any(const json_t *levels)
{
    size_t i;
    json_t *each;
    bool any = false;
    json_array_foreach (levels, i, each)
        any = any || text_equal(json_string_value(each), "*") || text_equal(json_string_value(each), "auto");
    return any;
}

const json_t *policy_isolations(const struct leasing *leasing, const struct policy_subject *who)
{
    const json_t *levels = find(leasing, who, "isolation", NULL);
    return is_any(levels) ? NULL : levels;
}

int64_t policy_volume_mb(const struct leasing *leasing, const struct policy_subject *who)
{
    return json_integer_value(find(leasing, who, "volumes", "max_mb"));
}

bool leasing_allows_template(const struct leasing *leasing, enum role role, const char *principal, const char *name)
{
    const struct policy_subject who = {.role = role, .principal = principal, .actor = "human"};
    if (role == ROLE_VIEWER)
        return false;
    pthread_rwlock_rdlock(&leasing->policies->lock);
    bool has = policy_has_template(leasing->policies, &who, name);
    pthread_rwlock_unlock(&leasing->policies->lock);
    return has;
}
