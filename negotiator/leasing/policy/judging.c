/* judging.c - each rule of the policy on its own: what was asked, what is allowed, and whether that is a yes. The rules
 * refuse by what is explained here, so that both say the same. */
#include "negotiator/leasing/policy/policy_internal.h"

#include "shared/base/text.h"
#include "shared/node_protocol/egress_rule.h"

#include <fnmatch.h>
#include <string.h>

/* Sets verdict and asked of a finding; `limit` is what is allowed, NULL: everything. */
typedef void judge_rule(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding);

static bool matches(const json_t *globs, const char *text, int flags)
{
    size_t i;
    json_t *each;
    bool any = false;
    json_array_foreach (globs, i, each)
        any = any || fnmatch(json_string_value(each), text, flags) == 0;
    return any;
}

static void say(struct policy_finding *finding, bool is_allowed, json_t *asked)
{
    finding->verdict = is_allowed ? POLICY_YES : POLICY_NO;
    finding->asked = asked;
}

/* --- of tokens: cut --- */

static json_t *scope_list(const struct scope_set *set)
{
    char text[SCOPE_TEXT_BYTES], *rest = text;
    json_t *list = json_array();
    scope_format(set, text);
    for (const char *atom; (atom = strsep(&rest, " ")) != NULL;) {
        if (atom[0])
            json_array_append_new(list, json_string(atom));
    }
    return list;
}

static void judge_scopes(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    AUTO_TEXT all = {0};
    struct scope_set allowed;
    size_t i;
    json_t *each;
    json_array_foreach (limit, i, each)
        text_append_format(&all, "%s%s", i ? " " : "", json_string_value(each));
    if (wish->scopes == NULL ||
        !scope_parse(&allowed, all.data ? all.data : "", all.length, SCOPE_UNKNOWN_REFUSED, NULL))
        return;
    finding->asked = scope_list(wish->scopes);
    finding->verdict = scope_set_covers(&allowed, wish->scopes) ? POLICY_YES : POLICY_CUT;
}

static void judge_amount(struct policy_finding *finding, int64_t asked, const json_t *limit, enum policy_verdict more)
{
    if (asked == 0)
        return;
    finding->asked = asked >= LIFE_ENDLESS_S ? json_string("no end") : json_integer(asked);
    finding->verdict = limit && asked > json_integer_value(limit) ? more : POLICY_YES;
}

static void judge_ttl(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    judge_amount(finding, wish->ttl_s, limit, POLICY_CUT);
}

/* --- of sandboxes: refused --- */

static void judge_template(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    if (wish->template_name)
        say(finding, matches(limit, wish->template_name, 0), json_string(wish->template_name));
}

/* "auto" becomes one that is allowed. */
static void judge_isolation(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    if (wish->isolation == NULL || text_equal(wish->isolation, "auto"))
        return;
    bool has = false;
    size_t i;
    json_t *each;
    json_array_foreach (limit, i, each) {
        const char *level = json_string_value(each);
        has = has || text_equal(level, wish->isolation) || text_equal(level, "*");
    }
    say(finding, has, json_string(wish->isolation));
}

/* How much an egress is; what is not one is none. */
static int rank_of(const char *egress)
{
    return text_equal(egress, "public") ? 2 : text_equal(egress, "allow") ? 1 : 0;
}

static void judge_egress(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    const char *asked = json_string_value(json_object_get(wish->network, "egress"));
    if (asked)
        say(finding, rank_of(asked) <= rank_of(json_string_value(limit)), json_string(asked));
}

static bool is_covered(const json_t *hosts, const char *entry)
{
    struct egress_rule asked, allowed;
    size_t i;
    json_t *each;
    bool any = false;
    if (!egress_rule_parse(entry, &asked, NULL))
        return false;
    json_array_foreach (hosts, i, each)
        any =
            any || (egress_rule_parse(json_string_value(each), &allowed, NULL) && egress_rule_covers(&allowed, &asked));
    return any;
}

static void judge_hosts(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    json_t *entries = json_object_get(wish->network, "allow");
    size_t i;
    json_t *each, *refused = json_array();
    if (!text_equal(json_string_value(json_object_get(wish->network, "egress")), "allow") || limit == NULL)
        entries = NULL;
    json_array_foreach (entries, i, each) {
        if (!is_covered(limit, json_string_value(each)))
            json_array_append(refused, each);
    }
    bool is_no = json_array_size(refused) > 0;
    if (entries)
        say(finding, !is_no, is_no ? json_incref(refused) : json_incref(entries));
    json_decref(refused);
}

/* Those volumes of `kind` that are not allowed; or all of them when there are none such. */
static void judge_volumes(const struct policy_wish *wish, const char *kind, struct policy_finding *finding,
                          bool (*is_allowed)(const json_t *volume, const json_t *limit), const json_t *limit)
{
    size_t i;
    json_t *each, *all = json_array(), *refused = json_array();
    json_array_foreach (wish->volumes, i, each) {
        if (!text_equal(json_string_value(json_object_get(each, "kind")), kind))
            continue;
        json_array_append(all, json_object_get(each, "source"));
        if (!is_allowed(each, limit))
            json_array_append(refused, json_object_get(each, "source"));
    }
    bool is_no = json_array_size(refused) > 0;
    if (json_array_size(all) > 0)
        say(finding, !is_no, json_incref(is_no ? refused : all));
    json_decref(all);
    json_decref(refused);
}

/* A glob's * stays within one part of a path. */
static bool is_host_allowed(const json_t *volume, const json_t *limit)
{
    const char *source = json_string_value(json_object_get(volume, "source"));
    return json_is_true(limit) || (source && matches(limit, source, FNM_PATHNAME));
}

static bool is_named_allowed(const json_t *volume UNUSED, const json_t *limit)
{
    return json_is_true(limit);
}

static bool is_size_allowed(const json_t *volume, const json_t *limit)
{
    return limit == NULL || json_integer_value(json_object_get(volume, "size_mb")) <= json_integer_value(limit);
}

static void judge_host_volumes(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    judge_volumes(wish, "host", finding, is_host_allowed, limit);
}

static void judge_named_volumes(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    judge_volumes(wish, "named", finding, is_named_allowed, limit);
}

static void judge_volume_size(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    judge_volumes(wish, "named", finding, is_size_allowed, limit);
}

static void judge_lifetime(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    judge_amount(finding, wish->lifetime_s, limit, POLICY_NO);
}

static void judge_idle(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    judge_amount(finding, wish->idle_s, limit, POLICY_NO);
}

static void judge_long(const struct policy_wish *wish, const json_t *limit, struct policy_finding *finding)
{
    if (wish->is_long)
        say(finding, json_is_true(limit), json_true());
}

/* Nobody asks for it: it is what his sandboxes have. */
static void judge_root(const struct policy_wish *wish UNUSED, const json_t *limit, struct policy_finding *finding)
{
    finding->verdict = json_is_true(limit) ? POLICY_YES : POLICY_CUT;
}

/* --- all of them --- */

static const struct rule {
    const char *name, *rule, *part;
    const char *may_not; /* "role user may not ... <asked>" */
    judge_rule *judge;
} RULES[] = {
    {"scopes", "scopes", NULL, "hold scopes", judge_scopes},
    {"ttl_max", "ttl_max", NULL, "have a token for s", judge_ttl},
    {"templates", "templates", NULL, "use template", judge_template},
    {"isolation", "isolation", NULL, "ask for isolation", judge_isolation},
    {"egress", "egress", NULL, "have egress", judge_egress},
    {"egress_hosts", "egress_hosts", NULL, "reach", judge_hosts},
    {"volumes.host", "volumes", "host", "mount the host's folder", judge_host_volumes},
    {"volumes.named", "volumes", "named", "have named volumes", judge_named_volumes},
    {"volumes.max_mb", "volumes", "max_mb", "make volumes of that size:", judge_volume_size},
    {"root", "root", NULL, "run commands as root", judge_root},
    {"lifetime_max", "lifetime_max", NULL, "ask for max_lifetime", judge_lifetime},
    {"idle_max", "idle_max", NULL, "ask for idle_timeout", judge_idle},
    {"long", "long", NULL, "have a token that needs no refresh:", judge_long},
};
enum { RULE_COUNT = sizeof RULES / sizeof *RULES };

struct policy_wish policy_wish(const struct wanted *wanted)
{
    const char *template_name = wanted->template_name[0] ? wanted->template_name : "base";
    return (struct policy_wish){.scopes = wanted->scopes_given ? &wanted->scopes : NULL,
                                .template_name = wanted->snapshot[0] ? NULL : template_name,
                                .isolation = wanted->isolation[0] ? wanted->isolation : NULL,
                                .network = wanted->network,
                                .volumes = wanted->volumes,
                                .ttl_s = wanted->ttl_s,
                                .lifetime_s = wanted->max_lifetime_s,
                                .idle_s = wanted->idle_timeout_s,
                                .is_long = wanted->is_long};
}

static void judge(const struct policies *policies, const struct policy_subject *who, const struct rule *rule,
                  const struct policy_wish *wish, struct policy_finding *finding)
{
    *finding = (struct policy_finding){.rule = rule->name, .verdict = POLICY_YES};
    json_t *limit = policy_find(policies, who, rule->rule, rule->part, finding->where);
    finding->allowed = json_incref(limit);
    rule->judge(wish, limit, finding);
}

static void finding_done(struct policy_finding *finding)
{
    json_decref(finding->asked);
    json_decref(finding->allowed);
}

void policy_explain(const struct leasing *leasing, const struct policy_subject *who, const struct policy_wish *wish,
                    void (*told)(void *cookie, const struct policy_finding *finding), void *cookie)
{
    for (size_t i = 0; i < RULE_COUNT; i++) {
        struct policy_finding finding;
        judge(leasing->policies, who, &RULES[i], wish, &finding);
        told(cookie, &finding);
        finding_done(&finding);
    }
}

/* As a person reads it: "a, b", "at most 5", "none". */
static void print_value(struct text *to, const json_t *value, bool is_limit)
{
    size_t i;
    json_t *each;
    if (json_is_integer(value))
        text_append_format(to, "%s%lld", is_limit ? "at most " : "", json_integer_value(value));
    else if (json_is_string(value))
        text_append_format(to, "%s%s", is_limit ? "at most " : "", json_string_value(value));
    else if (json_is_boolean(value) || json_array_size(value) == 0)
        text_append_string(to, json_is_true(value) ? "all" : "none");
    json_array_foreach (value, i, each)
        text_append_format(to, "%s%s", i ? ", " : "", json_string_value(each));
}

static bool refuse(const struct policy_subject *who, const struct rule *rule, const struct policy_finding *finding,
                   struct error *refusal)
{
    AUTO_TEXT asked = {0}, allowed = {0};
    char subject[32];
    policy_subject_text(who, subject);
    print_value(&asked, finding->asked, false);
    print_value(&allowed, finding->allowed, true);
    return error_set(refusal, ERROR_FORBIDDEN, "%s may not %s %.60s; allowed: %.80s (%.60s)", subject, rule->may_not,
                     asked.data, allowed.data, finding->where);
}

bool policy_check(const struct leasing *leasing, const struct policy_subject *who, const struct policy_wish *wish,
                  struct error *refusal)
{
    bool good = true;
    for (size_t i = 0; i < RULE_COUNT && good; i++) {
        struct policy_finding finding;
        judge(leasing->policies, who, &RULES[i], wish, &finding);
        good = finding.verdict != POLICY_NO || refuse(who, &RULES[i], &finding, refusal);
        finding_done(&finding);
    }
    return good;
}

bool policy_has_template(const struct policies *policies, const struct policy_subject *who, const char *name)
{
    char where[POLICY_WHERE_BYTES];
    return matches(policy_find(policies, who, "templates", NULL, where), name, 0);
}
