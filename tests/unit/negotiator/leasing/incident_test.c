/* Goal: once an incident is open, nothing is issued to whom it is about, not even what was under way; his tokens are
 * refused and his sandboxes sleep; a start after a kill goes on with it; only closing it ends it. */
#include "negotiator/leasing/incidents/incident.h"

#include "negotiator/leasing/changing.h"
#include "negotiator/leasing/incidents/freeze.h"
#include "tests/unit/negotiator/leasing/grants.h"

#include <string.h>

struct report {
    struct world *world;
    bool done;
    struct incident_question *q;
};

static void report_answered(void *cookie, struct incident_question *q)
{
    struct report *report = cookie;
    pthread_mutex_lock(&report->world->mutex);
    report->q = q;
    report->done = true;
    pthread_cond_broadcast(&report->world->changed);
    pthread_mutex_unlock(&report->world->mutex);
}

static struct incident_question *incident_ask(struct world *world, struct incident_question *q)
{
    struct report report = {.world = world};
    q->answered = report_answered;
    q->cookie = &report;
    leasing_incident(world->leasing, q);
    pthread_mutex_lock(&world->mutex);
    while (!report.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
    return report.q;
}

static struct incident_question *question_of(enum incident_verb verb, enum role role, const char *id)
{
    struct incident_question *q = incident_question_new();
    q->verb = verb;
    q->caller.principal.role = role;
    CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, "root") && text_copy(q->id, sizeof q->id, id));
    return q;
}

struct opening {
    enum incident_freeze freeze;
    bool revoke, pause, user;
    enum mark_kind kind;
    const char *value, *principal;
};

static struct incident_question *opening_of(struct opening opening)
{
    struct incident_question *q = question_of(INCIDENT_OPEN, opening.user ? ROLE_USER : ROLE_ADMIN, "");
    q->freeze = opening.freeze;
    q->revoke = opening.revoke;
    q->pause = opening.pause;
    q->selector_count = 1;
    q->selectors[0].kind = opening.kind;
    CHECK(text_copy(q->selectors[0].value, MARK_VALUE_BYTES, opening.value ? opening.value : "") &&
          text_copy(q->selectors[0].principal, PRINCIPAL_BYTES, opening.principal ? opening.principal : "") &&
          text_copy(q->text, sizeof q->text, "a drill"));
    return q;
}

static void open_incident(struct world *world, struct opening opening, char id[static RANDOM_ID_BYTES])
{
    AUTO(incident_question) *q = incident_ask(world, opening_of(opening));
    CHECK_TEXT(q->refusal.message, "");
    memcpy(id, q->id, RANDOM_ID_BYTES);
}

static enum error_kind opening_kind(struct world *world, struct opening opening)
{
    AUTO(incident_question) *q = incident_ask(world, opening_of(opening));
    return q->refusal.kind;
}

/* The row; the caller decrefs. */
static json_t *row_of(struct world *world, const char *id)
{
    AUTO(incident_question) *q = incident_ask(world, question_of(INCIDENT_FIND, ROLE_ADMIN, id));
    CHECK_TEXT(q->refusal.message, "");
    return json_incref(q->answer);
}

static bool is_at(struct world *world, const char *id, const char *step)
{
    json_t *row = row_of(world, id);
    bool is = text_equal(json_string_value(json_object_get(row, "step")), step);
    json_decref(row);
    return is;
}

/* Nodes acknowledge nothing here: each revocation waits for its end. */
static void until(struct world *world, const char *id, const char *step)
{
    for (int i = 0; i < 200 && !is_at(world, id, step); i++)
        later(world, 500);
    CHECK(is_at(world, id, step));
}

/* "<id> <pause> <resume>;" of each suspect whose sandbox is one of those. */
static const char *fate(struct world *world, const char *incident, const char *sandbox, const char *what)
{
    static char found[32];
    size_t i;
    const json_t *each;
    AUTO(incident_question) *q = incident_ask(world, question_of(INCIDENT_SUSPECTS, ROLE_ADMIN, incident));
    CHECK_TEXT(q->refusal.message, "");
    found[0] = '\0';
    json_array_foreach (q->answer, i, each) {
        const char *said = json_string_value(json_object_get(each, what));
        if (text_equal(json_string_value(json_object_get(json_object_get(each, "sandbox"), "id")), sandbox))
            CHECK(text_copy(found, sizeof found, said ? said : "none"));
    }
    return found;
}

static enum error_kind close_kind(struct world *world, const char *id, bool resume)
{
    struct incident_question *closing = question_of(INCIDENT_CLOSE, ROLE_ADMIN, id);
    closing->resume = resume;
    AUTO(incident_question) *q = incident_ask(world, closing);
    return q->refusal.kind;
}

static bool is_issued(struct world *world, const char *who)
{
    struct error err = {0};
    return leasing_allows_issuing(world->leasing, who, &err);
}

static void resumed_answered(void *cookie, struct changing *changing)
{
    struct report *report = cookie;
    pthread_mutex_lock(&report->world->mutex);
    report->done = true;
    CHECK_KIND(changing->refusal.kind, ERROR_FROZEN);
    pthread_cond_broadcast(&report->world->changed);
    pthread_mutex_unlock(&report->world->mutex);
    changing_free(changing);
}

static void may_not_resume(struct world *world, const char *id)
{
    struct report report = {.world = world};
    struct error err = {0};
    struct changing *changing = changing_new();
    changing->verb = CHANGING_RESUME;
    changing->caller.principal.role = ROLE_USER;
    changing->answered = resumed_answered;
    changing->cookie = &report;
    CHECK(text_copy(changing->caller.principal.name, PRINCIPAL_BYTES, "ada") &&
          text_copy(changing->sandbox_id, sizeof changing->sandbox_id, id));
    CHECK(leasing_change(world->leasing, changing, &err));
    pthread_mutex_lock(&world->mutex);
    while (!report.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
}

static const struct asked T1 = {.thread = "t1"}, BOB = {.who = "bob", .thread = "t1"};
static const struct opening ADA = {
    .freeze = INCIDENT_FREEZE_MATCHING, .revoke = true, .pause = true, .kind = MARK_PRINCIPAL, .value = "ada"};

static void test_a_principal(struct world *world)
{
    struct token ada, bob;
    char id[RANDOM_ID_BYTES];
    get_token(world, T1, &ada);
    get_token(world, BOB, &bob);
    open_incident(world, ADA, id);
    CHECK_KIND(ask_kind(world, T1), ERROR_FROZEN);
    CHECK_KIND(ask_kind(world, (struct asked){.thread = "t2"}), ERROR_FROZEN);
    CHECK_KIND(refresh_kind(world, T1, ada.text), ERROR_FROZEN);
    CHECK_KIND(ask_kind(world, (struct asked){.who = "root", .role = ROLE_ADMIN, .owner = "ada", .thread = "t1"}),
               ERROR_FROZEN);
    CHECK_KIND(ask_kind(world, BOB), ERROR_NONE);
    CHECK(!is_issued(world, "ada") && is_issued(world, "bob"));
    until(world, id, "done");
    CHECK(is_refused(world, &ada.claims, world_now) && !is_refused(world, &bob.claims, world_now));
    CHECK_TEXT(fate(world, id, ada.claims.sandbox_id, "pause"), "paused");
    CHECK_TEXT(fate(world, id, bob.claims.sandbox_id, "pause"), "");
    may_not_resume(world, ada.claims.sandbox_id);
    CHECK(world_calls(world, "pause", ada.claims.sandbox_id) == 1 && world_calls(world, "resume", NULL) == 0);
    CHECK_KIND(close_kind(world, id, true), ERROR_NONE);
    CHECK(is_issued(world, "ada"));
    until(world, id, "closed");
    CHECK_TEXT(fate(world, id, ada.claims.sandbox_id, "resume"), "resumed");
    CHECK(world_calls(world, "resume", ada.claims.sandbox_id) == 1);
    CHECK_KIND(close_kind(world, id, false), ERROR_CONFLICT);
    CHECK_KIND(ask_kind(world, T1), ERROR_NONE);
    CHECK(is_refused(world, &ada.claims, world_now)); /* for good */
}

/* Two are open: the freeze lasts until both are closed. */
static void test_two(struct world *world)
{
    char first[RANDOM_ID_BYTES], second[RANDOM_ID_BYTES], sandbox[RANDOM_ID_BYTES];
    ask_id(world, T1, sandbox);
    open_incident(world, ADA, first);
    open_incident(world, (struct opening){.freeze = INCIDENT_FREEZE_ALL, .kind = MARK_SANDBOX, .value = sandbox},
                  second);
    CHECK_KIND(ask_kind(world, BOB), ERROR_FROZEN);
    CHECK_KIND(ask_kind(world, (struct asked){.who = "root", .role = ROLE_ADMIN, .thread = "t"}), ERROR_FROZEN);
    until(world, second, "done");
    until(world, first, "done");
    CHECK_TEXT(fate(world, second, sandbox, "pause"), "not_asked");
    CHECK_KIND(close_kind(world, second, false), ERROR_NONE);
    CHECK_KIND(ask_kind(world, BOB), ERROR_NONE);
    CHECK_KIND(ask_kind(world, T1), ERROR_FROZEN);
    until(world, second, "closed");
    CHECK_KIND(close_kind(world, first, false), ERROR_NONE);
    until(world, first, "closed");
    CHECK_TEXT(fate(world, first, sandbox, "resume"), "none");
    CHECK(world_calls(world, "resume", NULL) == 0);
}

/* Its sandbox was being made when the incident was opened: no token comes of it, and it is paused once it is there. */
static void test_under_way(struct world *world)
{
    struct attempt attempt;
    char id[RANDOM_ID_BYTES], sandbox[RANDOM_ID_BYTES];
    world_set_mode_of(world, "prepare", FAKE_HOLDS, ERROR_NONE);
    attempt_start(world, &attempt, T1);
    attempt_wait_started(&attempt);
    open_incident(world, ADA, id);
    later(world, 20000); /* it cannot be paused yet */
    CHECK(!is_at(world, id, "done"));
    CHECK_KIND(close_kind(world, id, false), ERROR_STARTING);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    AUTO(negotiation) *n = attempt_wait(&attempt);
    CHECK_KIND(n->refusal.kind, ERROR_FROZEN);
    memcpy(sandbox, n->sandbox.id, sizeof sandbox);
    until(world, id, "done");
    CHECK_TEXT(fate(world, id, sandbox, "pause"), "paused");
}

/* The node takes nothing: said so, and all the rest is done. */
static void test_unreachable(struct world *world)
{
    char id[RANDOM_ID_BYTES], sandbox[RANDOM_ID_BYTES];
    ask_id(world, T1, sandbox);
    world_set_mode_of(world, "pause", FAKE_REFUSES, ERROR_NODE_UNREACHABLE);
    open_incident(world, ADA, id);
    until(world, id, "done");
    CHECK_TEXT(fate(world, id, sandbox, "pause"), "unreachable");
    json_t *row = row_of(world, id);
    CHECK(json_array_size(json_object_get(row, "revocations")) == 1);
    json_decref(row);
}

/* Killed while it pauses: the next start has the freeze, and goes on. */
static void test_restart(struct world *world)
{
    char id[RANDOM_ID_BYTES], sandbox[RANDOM_ID_BYTES];
    ask_id(world, T1, sandbox);
    world_set_mode_of(world, "pause", FAKE_HOLDS, ERROR_NONE);
    open_incident(world, ADA, id);
    for (int i = 0; i < 100 && world_calls(world, "pause", sandbox) == 0; i++)
        later(world, 500);
    CHECK(is_at(world, id, "pause"));
    world_restart(world);
    CHECK(!is_issued(world, "ada"));
    CHECK_KIND(ask_kind(world, T1), ERROR_FROZEN);
    world_set_mode(world, FAKE_ANSWERS, ERROR_NONE);
    until(world, id, "done");
    CHECK_TEXT(fate(world, id, sandbox, "pause"), "paused");
}

static void test_scope(struct world *world)
{
    struct token ada, bob;
    struct asked narrow = {.who = "bob", .thread = "t1"};
    char id[RANDOM_ID_BYTES];
    struct error err = {0};
    CHECK(scope_parse(&narrow.wanted.scopes, "fs:ro", 5, SCOPE_UNKNOWN_REFUSED, &err));
    narrow.wanted.scopes_given = true;
    get_token(world, T1, &ada);
    get_token(world, narrow, &bob);
    open_incident(
        world,
        (struct opening){
            .freeze = INCIDENT_FREEZE_MATCHING, .revoke = true, .pause = true, .kind = MARK_SCOPE, .value = "process"},
        id);
    CHECK_KIND(ask_kind(world, narrow), ERROR_FROZEN); /* a scope is everybody's */
    until(world, id, "done");
    CHECK_TEXT(fate(world, id, ada.claims.sandbox_id, "pause"), "paused");
    CHECK_TEXT(fate(world, id, bob.claims.sandbox_id, "pause"), "");
}

static void test_refusals(struct world *world)
{
    char id[RANDOM_ID_BYTES];
    struct opening wrong = ADA;
    wrong.user = true;
    CHECK_KIND(opening_kind(world, wrong), ERROR_FORBIDDEN);
    CHECK_KIND(opening_kind(world, (struct opening){.kind = MARK_SANDBOX, .value = "sbx_aaaaaaaaaaaaaaaaaaaa"}),
               ERROR_NOT_FOUND);
    CHECK_KIND(opening_kind(world, (struct opening){.kind = MARK_THREAD, .value = "t9", .principal = "ada"}),
               ERROR_NOT_FOUND);
    CHECK_KIND(opening_kind(world, (struct opening){.kind = MARK_PRINCIPAL, .value = "a/b"}), ERROR_INVALID);
    CHECK_KIND(opening_kind(world, (struct opening){.kind = MARK_PRINCIPAL, .value = FREEZE_EVERYBODY}), ERROR_INVALID);
    CHECK_KIND(opening_kind(world, (struct opening){.kind = MARK_JTI, .value = "tok_1", .principal = "ada"}),
               ERROR_INVALID);
    CHECK_KIND(close_kind(world, "inc_aaaaaaaaaaaaaaaaaaaa", false), ERROR_NOT_FOUND);
    CHECK(is_issued(world, "ada"));
    for (int i = 0; i < INCIDENT_OPEN_MAX; i++)
        open_incident(world, (struct opening){.kind = MARK_PRINCIPAL, .value = "nobody"}, id);
    CHECK_KIND(opening_kind(world, ADA), ERROR_QUOTA);
    AUTO(incident_question) *q = incident_ask(world, question_of(INCIDENT_LIST, ROLE_ADMIN, ""));
    CHECK(json_array_size(q->answer) == INCIDENT_OPEN_MAX);
}

/* What is asked for is passed on, a page after the other; of a stranger's sandbox there is none. */
static void test_evidence(struct world *world)
{
    char id[RANDOM_ID_BYTES], ada[RANDOM_ID_BYTES], bob[RANDOM_ID_BYTES];
    ask_id(world, T1, ada);
    ask_id(world, BOB, bob);
    open_incident(world, ADA, id);
    until(world, id, "done");
    struct incident_question *asked = question_of(INCIDENT_EVIDENCE, ROLE_ADMIN, id);
    CHECK(text_copy(asked->sandbox_id, sizeof asked->sandbox_id, bob) && text_copy(asked->part, 16, "files"));
    AUTO(incident_question) *other = incident_ask(world, asked);
    CHECK_KIND(other->refusal.kind, ERROR_NOT_FOUND);
    struct incident_question *again = question_of(INCIDENT_EVIDENCE, ROLE_ADMIN, id);
    CHECK(text_copy(again->sandbox_id, sizeof again->sandbox_id, ada) && text_copy(again->part, 16, "files") &&
          text_copy(again->position, sizeof again->position, "17"));
    AUTO(incident_question) *q = incident_ask(world, again);
    CHECK_TEXT(q->refusal.message, "");
    CHECK(json_is_object(json_object_get(q->answer, "sandbox")) && !json_object_get(q->answer, "ok"));
    json_t *call = world_last_call(world, "evidence");
    CHECK_TEXT(json_string_value(json_object_get(call, "position")), "17");
    CHECK_TEXT(json_string_value(json_object_get(call, "part")), "files");
    json_decref(call);
}

int main(void)
{
    static void (*const SCENARIOS[])(struct world * world) = {test_a_principal, test_two,     test_under_way,
                                                              test_unreachable, test_restart, test_scope,
                                                              test_refusals,    test_evidence};
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++) {
        for (unsigned percent = 0; percent <= 40; percent += 40) {
            struct world *world = world_new(percent);
            SCENARIOS[i](world);
            world_free(world);
        }
    }
    return 0;
}
