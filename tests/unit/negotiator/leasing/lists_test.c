/* Goal: lists are whole, in order, of one's own, and bounded, page by page. */
#include "tests/unit/negotiator/leasing/world.h"

#include <string.h>

static size_t list_all(struct world *world, const char *who, enum role role, size_t page)
{
    struct questioning questioning = {.world = world};
    char cursor[RANDOM_ID_BYTES] = "";
    size_t seen = 0;
    for (int pages = 0; pages < 20; pages++) {
        AUTO(question) *q = question_new();
        questioning.done = false;
        q->verb = QUESTION_LIST;
        q->limit = page;
        q->caller.principal.role = role;
        q->answered = question_answered;
        q->cookie = &questioning;
        memcpy(q->cursor, cursor, sizeof cursor);
        CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, who));
        leasing_ask(world->leasing, q);
        pthread_mutex_lock(&world->mutex);
        while (!questioning.done)
            pthread_cond_wait(&world->changed, &world->mutex);
        pthread_mutex_unlock(&world->mutex);
        CHECK(q->count <= page);
        for (size_t i = 0; i < q->count; i++)
            CHECK(strcmp(q->list[i].id, cursor) > 0);
        seen += q->count;
        memcpy(cursor, q->next, sizeof cursor);
        if (cursor[0] == '\0')
            break;
    }
    return seen;
}

static void lists(struct world *world)
{
    char thread[16], last[RANDOM_ID_BYTES];
    for (int i = 0; i < 7; i++) {
        snprintf(thread, sizeof thread, "t%d", i);
        ask_id(world, (struct asked){.thread = thread}, last);
    }
    ask_id(world, (struct asked){.who = "adam", .thread = "t"}, last);
    CHECK(list_all(world, "ada", ROLE_USER, 3) == 7);
    CHECK(list_all(world, "ada", ROLE_USER, 7) == 7);
    CHECK(list_all(world, "ad", ROLE_USER, 7) == 0);
    CHECK(list_all(world, "root", ROLE_ADMIN, 3) == 8);
}

static void lists_are_bounded(struct world *world)
{
    enum { ROWS = 210 };
    char thread[16], id[RANDOM_ID_BYTES];
    struct questioning questioning = {.world = world};
    for (int i = 0; i < ROWS; i++) {
        snprintf(thread, sizeof thread, "t%d", i);
        ask_id(world, (struct asked){.thread = thread}, id);
    }
    AUTO(question) *q = question_new();
    q->verb = QUESTION_LIST;
    q->states = 1U << SANDBOX_FAILED; /* none is: all rows are looked at */
    q->caller.principal.role = ROLE_USER;
    q->answered = question_answered;
    q->cookie = &questioning;
    CHECK(text_copy(q->caller.principal.name, PRINCIPAL_BYTES, "ada"));
    leasing_ask(world->leasing, q);
    pthread_mutex_lock(&world->mutex);
    while (!questioning.done)
        pthread_cond_wait(&world->changed, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
    CHECK(q->count == 0 && q->next[0] != '\0');
    CHECK(list_all(world, "ada", ROLE_USER, 200) == ROWS);
}

int main(void)
{
    in_both_worlds(lists);
    in_both_worlds(lists_are_bounded);
    return check_done();
}
