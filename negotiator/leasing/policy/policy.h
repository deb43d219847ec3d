/** policy.h - what a role, of it a human or an agent, and a principal may have (protocol.md, 2): asked by the rules.
 *
 *  One document is in force (document.h), with the settings behind it. What it says of a thing is looked for in this
 *  order: principals.P.agent, roles.R:agent, principals.P, roles.R, the settings ("agent" or "human", as who acts). So
 *  what is said of agents holds for everybody's, but where it is said of one principal's. Ledger thread, but where it
 *  says otherwise. */
#pragma once

#include "negotiator/leasing/leasing.h"
#include "negotiator/leasing/policy/quota.h"

#define POLICY_WHERE_BYTES 240

struct policies;

/** Who asks, as policy sees him. */
struct policy_subject {
    enum role role;
    const char *principal; /* whose things it is about */
    const char *actor;     /* "human", "human:<id>", "agent:<id>" */
    struct quota limits;   /* of his API key; 0 and -1: not limited by that */
};

/** The caller, acting as his key pins; else as `actor` says; else (NULL or "") as a human. It borrows from both. */
struct policy_subject policy_subject(const struct caller *caller, const char *actor) MUST_USE;

/** What he may have at most in a token. */
void policy_scopes(const struct leasing *leasing, const struct policy_subject *who, struct scope_set *allowed);
/** The longest such a token may be valid, in s. */
int64_t policy_ttl_max(const struct leasing *leasing, const struct policy_subject *who) MUST_USE;
/** The longest such a long token may be valid, `most` or less, in s: `ttl_max` that is less than an hour bounds those too,
 *  but where `long` is said to be true at least as particularly. */
int64_t policy_long_ttl(const struct leasing *leasing, const struct policy_subject *who, int64_t most) MUST_USE;
/** `asked` (0: `fallback`) cut to what he may have: what was not said is never too much. In s; LIFE_ENDLESS_S: no end.
 */
int64_t policy_lifetime(const struct leasing *leasing, const struct policy_subject *who, int64_t asked,
                        int64_t fallback) MUST_USE;
int64_t policy_idle_timeout(const struct leasing *leasing, const struct policy_subject *who, int64_t asked,
                            int64_t fallback) MUST_USE;
/** Whether sandboxes that he negotiates may run commands as root. */
bool policy_gives_root(const struct leasing *leasing, const struct policy_subject *who) MUST_USE;
/** The levels of isolation that "auto" may become, the preferred one first; NULL: any. Borrowed. */
const json_t *policy_isolations(const struct leasing *leasing, const struct policy_subject *who) MUST_USE;
/** The most that a new volume of no given size may have, in MiB; 0: what its node gives. */
int64_t policy_volume_mb(const struct leasing *leasing, const struct policy_subject *who) MUST_USE;

/** What is asked for; NULL and 0: nothing was said of it. Borrowed. */
struct policy_wish {
    const struct scope_set *scopes;
    const char *template_name, *isolation;
    const json_t *network, *volumes;   /* as a row has them */
    int64_t ttl_s, lifetime_s, idle_s; /* LIFE_ENDLESS_S: no end, never idle */
    bool is_long;
};
/** Of a negotiation, as far as it asks for a sandbox; its scopes too. */
struct policy_wish policy_wish(const struct wanted *wanted) MUST_USE;

/** Whether he may have all of it but scopes and ttl, which are cut; FORBIDDEN says what is allowed, and where that is
 *  written. */
bool policy_check(const struct leasing *leasing, const struct policy_subject *who, const struct policy_wish *wish,
                  struct error *refusal) MUST_USE;

/** What policy says of one thing. */
enum policy_verdict { POLICY_YES, POLICY_CUT, POLICY_NO };
struct policy_finding {
    const char *rule; /* "ttl_max", "volumes.host"; static */
    enum policy_verdict verdict;
    json_t *asked, *allowed;        /* owned, or NULL: nothing was asked, everything is allowed */
    char where[POLICY_WHERE_BYTES]; /* "roles.user:agent.ttl_max", "settings.egress_user" */
};
/** Calls told(cookie, finding) for every rule, which then drops what the finding owns. */
void policy_explain(const struct leasing *leasing, const struct policy_subject *who, const struct policy_wish *wish,
                    void (*told)(void *cookie, const struct policy_finding *finding), void *cookie);

/* --- the document --- */

/** Without one: what the settings say. The caller's. Frees itself with leasing. */
struct policies *policies_new(const struct leasing_options *options);
/** NULL is allowed. */
void policies_free(struct policies *policies);
/** The settings are read anew: tests change them. */
void policies_take_settings(struct policies *policies, const struct leasing_options *options);

/** Reads the row of the document, if there is one: ERROR_INTERNAL when it is damaged, or says what this program does
 *  not know. A rule, once a start. */
struct work;
bool policies_load(struct work *work) MUST_USE;

enum policy_verb { POLICY_SHOW, POLICY_SET, POLICY_WHY };

/** The question above, the answer below. */
struct policy_question {
    enum policy_verb verb;
    struct caller caller;
    json_t *document; /* owned; SET. Afterwards and of SHOW: what is in force; NULL: none is */
    bool any_version; /* SET: whatever is there is replaced */
    int64_t version;  /* SET: what is to be replaced, 0: none. Afterwards and of SHOW: of what is in force */
    enum role role;   /* WHY: whose, with caller.owner; the caller's own when role_given is false */
    bool role_given;
    struct wanted wanted;                                             /* WHY */
    void (*answered)(void *cookie, struct policy_question *question); /* on the ledger thread; the callee's then */
    void *cookie;

    struct error refusal;
    char digest[65];              /* of the document */
    char set_by[PRINCIPAL_BYTES]; /* "": nobody */
    int64_t set_at;
    json_t *findings; /* owned; WHY: a list of {"rule", "verdict", "asked", "allowed", "where"[, "used"]} */
    json_t *settings; /* owned; SHOW: what holds where the document says nothing */

    struct leasing *leasing; /* private */
};

/** An empty question. */
struct policy_question *policy_question_new(void);
/** With all it owns; NULL is allowed. */
void policy_question_free(struct policy_question *question);
DEFINE_AUTO(policy_question)

/** Checks the document and queues the question; takes it. ERROR_INVALID, ERROR_TOO_LARGE at once, then it stays the
 *  caller's. PRECONDITION (SET: another version is there), FORBIDDEN and NOT_FOUND (WHY of others) come as the refusal.
 *  A document is in force for every loop before it is answered. Any thread. */
bool leasing_ask_policy(struct leasing *leasing, struct policy_question *question, struct error *err) MUST_USE;
