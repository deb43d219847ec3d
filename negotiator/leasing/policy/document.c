#include "negotiator/leasing/policy/document.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/egress_rule.h"

#include <sodium.h>
#include <string.h>

enum { PATH_BYTES = 160, LIST_MAX = 256, AMOUNT_MAX = 1 << 30, QUOTA_RATE_MAX = 6000 };

/* --- values --- */

static bool is_amount(const json_t *value, json_int_t least, json_int_t most)
{
    json_int_t number = json_integer_value(value);
    return json_is_integer(value) && number >= least && number <= most;
}

static bool is_plain_text(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && text[0] && strlen(text) == json_string_length(value) && strlen(text) < WANTED_PATH_BYTES;
}

static bool is_list_of(const json_t *value, bool (*is_good)(const json_t *each))
{
    size_t i;
    json_t *each;
    if (!json_is_array(value) || json_array_size(value) > LIST_MAX)
        return false;
    json_array_foreach (value, i, each) {
        if (!is_good(each))
            return false;
    }
    return true;
}

static bool is_texts(const json_t *value)
{
    return is_list_of(value, is_plain_text);
}

static bool is_host_rule(const json_t *each)
{
    struct egress_rule rule;
    return is_plain_text(each) && egress_rule_parse(json_string_value(each), &rule, NULL);
}

static bool is_hosts(const json_t *value)
{
    return is_list_of(value, is_host_rule);
}

static bool is_scopes(const json_t *value)
{
    AUTO_TEXT all = {0};
    struct scope_set set;
    size_t i;
    json_t *each;
    if (!is_texts(value))
        return false;
    json_array_foreach (value, i, each) {
        if (strpbrk(json_string_value(each), " \t\r\n"))
            return false;
        text_append_format(&all, "%s%s", i ? " " : "", json_string_value(each));
    }
    return scope_parse(&set, all.data ? all.data : "", all.length, SCOPE_UNKNOWN_REFUSED, NULL);
}

static bool is_ttl(const json_t *value)
{
    return is_amount(value, 60, 3600);
}

static bool is_life(const json_t *value)
{
    return json_is_null(value) || is_amount(value, 1, LIFE_NUMBER_MAX_S);
}

static bool is_isolation(const json_t *each)
{
    const char *text = json_string_value(each);
    return is_plain_text(each) && (strcmp(text, "*") == 0 || text_is_made_of(text, SANDBOX_WORD_BYTES - 1, "._:-"));
}

static bool is_isolations(const json_t *value)
{
    return json_array_size(value) > 0 && is_list_of(value, is_isolation);
}

static bool is_egress(const json_t *value)
{
    const char *text = json_string_value(value);
    return text_equal(text, "none") || text_equal(text, "allow") || text_equal(text, "public");
}

static bool is_switch(const json_t *value)
{
    return json_is_boolean(value);
}

static bool is_switch_or_texts(const json_t *value)
{
    return json_is_boolean(value) || is_texts(value);
}

static bool is_limit(const json_t *value)
{
    return json_is_null(value) || is_amount(value, 0, AMOUNT_MAX);
}

static bool is_rate(const json_t *value)
{
    return json_is_null(value) || is_amount(value, 0, QUOTA_RATE_MAX);
}

/* --- fields --- */

struct field {
    const char *name;
    bool (*is_good)(const json_t *value); /* NULL: an object of `inside` */
    const char *must;
    const struct field *inside;
    size_t count;
};

#define COUNT(fields) (sizeof(fields) / sizeof *(fields))
#define AMOUNT_MUST   "a whole number from 0 to 1073741824, or null: not limited"

static const struct field VOLUMES[] = {
    {"host", is_switch_or_texts, "true, false or a list of globs of folders", NULL, 0},
    {"named", is_switch, "true or false", NULL, 0},
    {"max_mb", is_limit, AMOUNT_MUST, NULL, 0},
};
static const struct field QUOTA[] = {
    {"sandboxes", is_limit, AMOUNT_MUST, NULL, 0},
    {"cpu_milli", is_limit, AMOUNT_MUST, NULL, 0},
    {"memory_mb", is_limit, AMOUNT_MUST, NULL, 0},
    {"disk_mb", is_limit, AMOUNT_MUST, NULL, 0},
    {"creates_per_minute", is_rate, "a whole number from 0 to 6000, or null: not limited", NULL, 0},
};
#define LIFE_MUST "1 to 3153600000 (s), or null: not limited"
#define RULES                                                                                                          \
    {"scopes", is_scopes, "a list of at most 16 scopes such as \"fs:rw\" and \"process\"", NULL, 0},                   \
        {"ttl_max", is_ttl, "60 to 3600 (s)", NULL, 0},                                                                \
        {"templates", is_texts, "a list of globs such as \"py-*\"", NULL, 0},                                          \
        {"isolation", is_isolations, "a list of levels such as \"gvisor\", the preferred one first; or [\"*\"]", NULL, \
         0},                                                                                                           \
        {"egress", is_egress, "\"none\", \"allow\" or \"public\"", NULL, 0},                                           \
        {"egress_hosts", is_hosts, "a list of what `network.allow` may hold, such as \"*.pypi.org\"", NULL, 0},        \
        {"volumes", NULL, "an object of host, named and max_mb", VOLUMES, COUNT(VOLUMES)},                             \
        {"root", is_switch, "true or false", NULL, 0}, {"lifetime_max", is_life, LIFE_MUST, NULL, 0},                  \
        {"idle_max", is_life, LIFE_MUST, NULL, 0}, {"long", is_switch, "true or false", NULL, 0},                      \
    {                                                                                                                  \
        "quota", NULL, "an object of sandboxes, cpu_milli, memory_mb, disk_mb and creates_per_minute", QUOTA,          \
            COUNT(QUOTA)                                                                                               \
    }

static const struct field ROLE[] = {RULES};
static const struct field PRINCIPAL[] = {RULES,
                                         {"human", NULL, "an object of rules", ROLE, COUNT(ROLE)},
                                         {"agent", NULL, "an object of rules", ROLE, COUNT(ROLE)}};
#define OF_ROLE(name)                                                                                                  \
    {                                                                                                                  \
        name, NULL, "an object of rules", ROLE, COUNT(ROLE)                                                            \
    }
/* A viewer makes nothing, and holds nothing. */
static const struct field ROLES[] = {OF_ROLE("user"),  OF_ROLE("user:human"),  OF_ROLE("user:agent"),
                                     OF_ROLE("admin"), OF_ROLE("admin:human"), OF_ROLE("admin:agent")};
static const struct field DEPLOYMENT[] = {
    {"quota", NULL, "an object of sandboxes, cpu_milli, memory_mb, disk_mb and creates_per_minute", QUOTA,
     COUNT(QUOTA)}};

static bool say_unknown(const char *path, const char *name, const struct field *fields, size_t count, struct error *err)
{
    AUTO_TEXT allowed = {0};
    for (size_t i = 0; i < count; i++)
        text_append_format(&allowed, "%s%s", i ? ", " : "", fields[i].name);
    return error_set(err, ERROR_INVALID, "policy: unknown field %s%s%.40s; allowed: %.150s", path, path[0] ? "." : "",
                     name, allowed.data);
}

static bool check_object(const char *path, json_t *object, const struct field *fields, size_t count, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach (object, name, value) {
        char inside[PATH_BYTES + 64];
        size_t i = 0;
        while (i < count && strcmp(fields[i].name, name) != 0)
            i++;
        if (i == count || !text_format(inside, sizeof inside, "%s%s%s", path, path[0] ? "." : "", name))
            return say_unknown(path, name, fields, count, err);
        const struct field *field = &fields[i];
        bool good = field->is_good ? field->is_good(value) : json_is_object(value);
        if (!good)
            return error_set(err, ERROR_INVALID, "policy: %s must be %s", inside, field->must);
        if (!field->is_good && !check_object(inside, value, field->inside, field->count, err))
            return false;
    }
    return true;
}

static bool check_principals(json_t *principals, struct error *err)
{
    const char *name;
    json_t *rules;
    json_object_foreach (principals, name, rules) {
        char path[PATH_BYTES];
        if (!principal_is_name(name) || !text_format(path, sizeof path, "principals.%s", name))
            return error_set(err, ERROR_INVALID,
                             "policy: principals has a name that is none; it is 1 to %d of "
                             "A-Za-z0-9._@:+-",
                             PRINCIPAL_BYTES - 1);
        if (!json_is_object(rules))
            return error_set(err, ERROR_INVALID, "policy: %s must be an object of rules", path);
        if (!check_object(path, rules, PRINCIPAL, COUNT(PRINCIPAL), err))
            return false;
    }
    return true;
}

static bool check_parts(json_t *document, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach (document, name, value) {
        bool is_roles = strcmp(name, "roles") == 0, is_principals = strcmp(name, "principals") == 0;
        if (!is_roles && !is_principals && strcmp(name, "deployment") != 0)
            return error_set(err, ERROR_INVALID, "policy: unknown field %.40s; allowed: roles, principals, deployment",
                             name);
        if (!json_is_object(value))
            return error_set(err, ERROR_INVALID, "policy: %s must be an object", name);
        bool good = is_principals ? check_principals(value, err)
                    : is_roles    ? check_object(name, value, ROLES, COUNT(ROLES), err)
                                  : check_object(name, value, DEPLOYMENT, COUNT(DEPLOYMENT), err);
        if (!good)
            return false;
    }
    return true;
}

bool policy_document_check(json_t *document, struct error *err)
{
    if (!json_is_object(document))
        return error_set(err, ERROR_INVALID, "policy must be an object of roles, principals and deployment");
    if (!check_parts(document, err))
        return false;
    AUTO_FREE char *text = policy_document_text(document);
    return strlen(text) <= POLICY_DOCUMENT_BYTES ||
           error_set(err, ERROR_TOO_LARGE, "policy is %zu bytes; allowed: %d", strlen(text), POLICY_DOCUMENT_BYTES);
}

char *policy_document_text(const json_t *document)
{
    return json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS);
}

void policy_document_digest(const json_t *document, char to[static POLICY_DIGEST_BYTES])
{
    uint8_t hash[(POLICY_DIGEST_BYTES - 1) / 2];
    AUTO_FREE char *text = policy_document_text(document);
    crypto_generichash(hash, sizeof hash, (const uint8_t *)text, strlen(text), NULL, 0);
    text_hex(to, hash, sizeof hash);
}

/* --- of the settings --- */

/* "a, b" as a list. */
static json_t *words(const char *list)
{
    json_t *words = json_array();
    for (const char *at = list; *at;) {
        at += strspn(at, ", \t");
        size_t length = strcspn(at, ", \t");
        json_t *word = length ? json_stringn(at, length) : NULL;
        if (word)
            json_array_append_new(words, word);
        at += length;
    }
    return words;
}

static bool has_word(const char *list, const char *sought)
{
    size_t i;
    json_t *each, *all = words(list);
    bool has = false;
    json_array_foreach (all, i, each)
        has = has || text_equal(json_string_value(each), sought);
    json_decref(all);
    return has;
}

static json_t *rules_of(const struct leasing_options *options, enum role role)
{
    const struct leasing_policy *policy = &options->policy;
    const char *templates = role == ROLE_ADMIN ? policy->templates_admin : policy->templates_user;
    const char *egress = role == ROLE_ADMIN || !policy->egress_user ? "public" : policy->egress_user;
    const int64_t longest = options->limits.max_lifetime_max_s;
    const char *roots = policy->root_roles ? policy->root_roles : "admin";
    return json_pack(
        "{s:[s,s,s,s,s,s,s], s:I, s:o, s:[s], s:s, s:{s:b, s:b, s:n}, s:b, s:o, s:n, s:b, s:{s:n, s:n, s:n, s:n, s:n}}",
        "scopes", "fs:rw", "shell", "process", "code", "port", "snapshot", "network", "ttl_max",
        (json_int_t)options->limits.ttl_max_s, "templates", words(templates ? templates : "*"), "isolation", "*",
        "egress", egress, "volumes", "host", 1, "named", 1, "max_mb", "root", has_word(roots, role_name(role)),
        "lifetime_max", longest ? json_integer(longest) : json_null(), "idle_max", "long", 1, "quota", "sandboxes",
        "cpu_milli", "memory_mb", "disk_mb", "creates_per_minute");
}

json_t *policy_document_of(const struct leasing_options *options)
{
    return json_pack("{s:{s:o, s:o}}", "roles", "user", rules_of(options, ROLE_USER), "admin",
                     rules_of(options, ROLE_ADMIN));
}
