/* Terminals that wait, and who holds each. */
#include "sandboxd/sandbox/terminal_holders.h"

#include "sandboxd/sandbox/registry.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

static const char SANDBOX[] = "sbx_a", OTHER[] = "sbx_b";

static bool add(struct terminal_holders *terminals, const char *sandbox_id, int64_t now_ms, char *id)
{
    struct error err = {0};
    struct terminal_plan plan = {.cwd = memory_string("/tmp"), .line = memory_string("top")};
    bool is_added = terminal_holders_add(terminals, sandbox_id, &plan, now_ms, id, &err);
    CHECK(is_added == (plan.cwd == NULL) && (is_added || err.kind == ERROR_NO_CAPACITY));
    terminal_plan_done(&plan);
    return is_added;
}

/* 0: refused; 1: held; 2: held, and to be started. */
static int hold(struct terminal_holders *terminals, const char *id, uint64_t number, bool takes_over, uint64_t *before)
{
    struct error err = {0};
    struct terminal_plan plan = {0};
    struct terminal_holder was = {0}, holder = {.loop = (struct loop *)(uintptr_t)1, .number = number};
    bool is_fresh = false;
    if (!terminal_holders_hold(terminals, SANDBOX, id, &holder, takes_over, &was, &is_fresh, &plan, &err)) {
        CHECK(err.kind == ERROR_CONFLICT);
        return 0;
    }
    *before = was.loop ? was.number : 0;
    CHECK(is_fresh == (plan.line != NULL));
    terminal_plan_done(&plan);
    return is_fresh ? 2 : 1;
}

static void leave(struct terminal_holders *terminals, const char *id, uint64_t number)
{
    struct terminal_holder holder = {.loop = (struct loop *)(uintptr_t)1, .number = number};
    terminal_holders_leave(terminals, SANDBOX, id, &holder);
}

static void test_bounds(void)
{
    AUTO(terminal_holders) *terminals = terminal_holders_new(NULL);
    char id[RANDOM_ID_BYTES], first[RANDOM_ID_BYTES];
    CHECK(add(terminals, SANDBOX, 0, first));
    for (int i = 1; i < TERMINAL_HOLDERS_FRESH; i++)
        CHECK(add(terminals, SANDBOX, 10, id));
    CHECK(!add(terminals, SANDBOX, 10, id));
    CHECK(add(terminals, OTHER, 10, id));                         /* another sandbox's are its own */
    CHECK(add(terminals, SANDBOX, TERMINAL_HOLDERS_KEPT_MS, id)); /* the first has waited long enough */
    CHECK(!terminal_holders_is_fresh(terminals, SANDBOX, first));
    CHECK(terminal_holders_is_fresh(terminals, SANDBOX, id) && !terminal_holders_is_fresh(terminals, OTHER, id));
    CHECK(!terminal_holders_drop(terminals, OTHER, id) && terminal_holders_drop(terminals, SANDBOX, id));
    CHECK(!terminal_holders_drop(terminals, SANDBOX, id));
    CHECK(add(terminals, SANDBOX, TERMINAL_HOLDERS_KEPT_MS, id));
}

static void test_holders(void)
{
    AUTO(terminal_holders) *terminals = terminal_holders_new(NULL);
    char id[RANDOM_ID_BYTES];
    uint64_t before = 0;
    CHECK(add(terminals, SANDBOX, 0, id));
    CHECK(hold(terminals, id, 7, false, &before) == 2 && before == 0);
    CHECK(!terminal_holders_is_fresh(terminals, SANDBOX, id) && !terminal_holders_drop(terminals, SANDBOX, id));
    CHECK(hold(terminals, id, 8, false, &before) == 0);
    CHECK(hold(terminals, id, 8, true, &before) == 1 && before == 7);
    leave(terminals, id, 7); /* whose terminal it is not any more */
    CHECK(hold(terminals, id, 9, false, &before) == 0);
    leave(terminals, id, 8);
    CHECK(hold(terminals, id, 9, false, &before) == 1 && before == 0);
    CHECK(hold(terminals, "pty_of_an_earlier_fro", 10, false, &before) == 1); /* what runs need not be known here */
    leave(terminals, id, 9);
}

/* What sandboxes that have ended left waiting does not pile up. */
static void test_sandboxes_that_ended(void)
{
    AUTO(registry) *registry = registry_new(1);
    AUTO(terminal_holders) *terminals = terminal_holders_new(registry);
    char id[RANDOM_ID_BYTES], living[RANDOM_ID_BYTES], first[RANDOM_ID_BYTES], name[32];
    struct fl_sandbox sandbox = {.deadline_wall_ms = 5000, .created_wall_ms = 1000};
    snprintf(sandbox.id, sizeof sandbox.id, "%s", SANDBOX);
    CHECK(registry_put(registry, &sandbox, 1000));
    CHECK(add(terminals, SANDBOX, 0, living) && add(terminals, OTHER, 0, first));
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "sbx_%d", i);
        CHECK(add(terminals, name, 0, id));
    }
    CHECK(terminal_holders_is_fresh(terminals, SANDBOX, living));
    CHECK(!terminal_holders_is_fresh(terminals, OTHER, first));
    CHECK(terminal_holders_is_fresh(terminals, name, id));
}

int main(void)
{
    test_sandboxes_that_ended();
    test_bounds();
    test_holders();
    return check_done();
}
