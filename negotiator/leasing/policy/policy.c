#include "negotiator/leasing/policy/policy.h"

#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/text.h"

#include <fnmatch.h>
#include <string.h>

enum { WORD_BYTES = 128 };

/* Calls is(cookie, word) for each word of the list until one says yes. */
static bool any_word(const char *list, bool (*is)(const char *word, const char *sought), const char *sought)
{
    char word[WORD_BYTES];
    for (const char *at = list; at && *at;) {
        at += strspn(at, ", \t");
        size_t length = strcspn(at, ", \t");
        if (length > 0 && text_format(word, sizeof word, "%.*s", (int)length, at) && is(word, sought))
            return true;
        at += length;
    }
    return false;
}

static bool is_glob_of(const char *word, const char *sought)
{
    return fnmatch(word, sought, 0) == 0;
}

static bool is_same(const char *word, const char *sought)
{
    return strcmp(word, sought) == 0;
}

bool leasing_allows_template(const struct leasing *leasing, enum role role, const char *name)
{
    const struct leasing_policy *policy = &leasing->options.policy;
    if (role == ROLE_VIEWER)
        return false;
    const char *globs = role == ROLE_ADMIN ? policy->templates_admin : policy->templates_user;
    return any_word(globs ? globs : "*", is_glob_of, name);
}

struct policy_subject policy_subject(const struct caller *caller, const char *actor)
{
    return (struct policy_subject){.role = caller->principal.role,
                                   .principal = caller_owner(caller),
                                   .actor = actor && actor[0] ? actor : "human"};
}

/* What a token may hold (protocol.md, 3). */
static const char SCOPES_ALLOWED[] = "fs:rw shell process code port snapshot";

void policy_scopes(const struct leasing *leasing UNUSED, const struct policy_subject *who UNUSED,
                   struct scope_set *allowed)
{
    if (!scope_parse(allowed, SCOPES_ALLOWED, strlen(SCOPES_ALLOWED), SCOPE_UNKNOWN_REFUSED, NULL))
        allowed->count = 0; /* cannot be: it is a constant */
}

int64_t policy_ttl_max(const struct leasing *leasing, const struct policy_subject *who UNUSED)
{
    return leasing->options.limits.ttl_max_s;
}

bool policy_check_template(const struct leasing *leasing, const struct policy_subject *who, const char *name,
                           struct error *refusal)
{
    enum role role = who->role;
    const struct leasing_policy *policy = &leasing->options.policy;
    const char *globs = role == ROLE_ADMIN ? policy->templates_admin : policy->templates_user;
    return leasing_allows_template(leasing, role, name) ||
           error_set(refusal, ERROR_FORBIDDEN, "role %s may not use template %s; allowed: %.120s", role_name(role),
                     name, globs && globs[0] ? globs : "none");
}

/* How much an egress is; what is not one is none. */
static int rank_of(const char *egress)
{
    return text_equal(egress, "public") ? 2 : text_equal(egress, "allow") ? 1 : 0;
}

bool policy_check_egress(const struct leasing *leasing, const struct policy_subject *who, const json_t *network,
                         struct error *refusal)
{
    enum role role = who->role;
    const char *most = role == ROLE_ADMIN ? "public" : leasing->options.policy.egress_user;
    const char *asked = json_string_value(json_object_get(network, "egress"));
    if (!most)
        most = "public";
    return rank_of(asked) <= rank_of(most) ||
           error_set(refusal, ERROR_FORBIDDEN, "role %s may have no egress \"%s\"; the most is \"%s\"", role_name(role),
                     asked, most);
}

bool policy_gives_root(const struct leasing *leasing, const struct policy_subject *who)
{
    const char *roles = leasing->options.policy.root_roles;
    return any_word(roles ? roles : "admin", is_same, role_name(who->role));
}
