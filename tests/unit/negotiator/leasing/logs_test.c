/* Goal: what a command wrote is told to its sandbox's owner and admins and to nobody else, with a record of who looked;
 * what a node says that is no answer goes no further. */
#include "negotiator/leasing/logs.h"

#include "tests/unit/negotiator/leasing/grants.h"

#include <string.h>

struct log_look {
    struct world *world;
    bool done;
    struct logs_question *q;
};

static void log_answered(void *cookie, struct logs_question *q)
{
    struct log_look *at = cookie;
    pthread_mutex_lock(&at->world->mutex);
    at->q = q;
    at->done = true;
    pthread_cond_broadcast(&at->world->changed);
    pthread_mutex_unlock(&at->world->mutex);
}

static struct logs_question *log_as(struct world *world, const char *who, enum role role, const char *sandbox,
                                     bool may_lack)
{
    struct log_look at = {.world = world};
    struct logs_question *q = logs_question_new();
    q->caller.principal.role = role;
    CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, who) &&
          text_copy(q->sandbox_id, sizeof q->sandbox_id, sandbox) &&
          text_copy(q->process, sizeof q->process, "entrypoint"));
    q->tail_bytes = 100;
    q->may_lack = may_lack;
    q->answered = log_answered;
    q->cookie = &at;
    leasing_logs(world->leasing, q);
    pthread_mutex_lock(&world->mutex);
    while (!at.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
    return at.q;
}

static enum error_kind log_kind(struct world *world, const char *who, enum role role, const char *sandbox)
{
    AUTO(logs_question) *q = log_as(world, who, role, sandbox, false);
    CHECK((q->answer == NULL) == (q->refusal.kind != ERROR_NONE));
    return q->refusal.kind;
}

static void who_may(struct world *world)
{
    char sandbox[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    AUTO(logs_question) *q = log_as(world, "ada", ROLE_USER, sandbox, false);
    CHECK_TEXT(json_string_value(json_object_get(q->answer, "stdout")), "out");
    CHECK(json_object_size(q->answer) == 5); /* of what the node said no more */
    json_t *asked = world_last_call(world, "logs");
    CHECK_TEXT(json_string_value(json_object_get(asked, "process")), "entrypoint");
    CHECK(json_integer_value(json_object_get(asked, "tail_bytes")) == 100);
    json_decref(asked);
    CHECK_KIND(log_kind(world, "root", ROLE_ADMIN, sandbox), ERROR_NONE);
    CHECK_KIND(log_kind(world, "ada", ROLE_VIEWER, sandbox), ERROR_FORBIDDEN);
    CHECK_KIND(log_kind(world, "bob", ROLE_USER, sandbox), ERROR_NOT_FOUND);
    CHECK_KIND(log_kind(world, "ada", ROLE_USER, "sbx_zzzzzzzzzzzzzzzzzzzz"), ERROR_NOT_FOUND);
}

static void what_nodes_say(struct world *world)
{
    char sandbox[RANDOM_ID_BYTES];
    ask_id(world, (struct asked){.thread = "t"}, sandbox);
    world_set_mode_of(world, "logs", FAKE_REFUSES, ERROR_NOT_FOUND);
    CHECK_KIND(log_kind(world, "ada", ROLE_USER, sandbox), ERROR_NOT_FOUND);
    AUTO(logs_question) *lacking = log_as(world, "ada", ROLE_USER, sandbox, true);
    CHECK(lacking->refusal.kind == ERROR_NONE && lacking->answer == NULL);
    world_set_mode_of(world, "logs", FAKE_REFUSES, ERROR_UNAUTHENTICATED); /* ours, and no business of the client's */
    CHECK_KIND(log_kind(world, "ada", ROLE_USER, sandbox), ERROR_NODE_UNREACHABLE);
}

int main(void)
{
    in_both_worlds(who_may);
    in_both_worlds(what_nodes_say);
    return check_done();
}
