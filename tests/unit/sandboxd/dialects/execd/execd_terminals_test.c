/* Terminals that wait, and who holds each. */
#include "sandboxd/dialects/execd/execd_terminals.h"

#include "sandboxd/sandbox/registry.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

static const char SANDBOX[] = "sbx_a", OTHER[] = "sbx_b";

static bool add(struct execd_terminals *terminals, const char *sandbox_id, int64_t now_ms, char *id)
{
    struct error err = {0};
    struct execd_terminal_plan plan = {.cwd = memory_string("/tmp"), .line = memory_string("top")};
    bool is_added = execd_terminals_add(terminals, sandbox_id, &plan, now_ms, id, &err);
    CHECK(is_added == (plan.cwd == NULL) && (is_added || err.kind == ERROR_NO_CAPACITY));
    execd_terminal_plan_done(&plan);
    return is_added;
}

/* 0: refused; 1: held; 2: held, and to be started. */
static int hold(struct execd_terminals *terminals, const char *id, uint64_t number, bool takes_over, uint64_t *before)
{
    struct error err = {0};
    struct execd_terminal_plan plan = {0};
    struct execd_terminal_holder was = {0}, holder = {.loop = (struct loop *)(uintptr_t)1, .number = number};
    bool is_fresh = false;
    if (!execd_terminals_hold(terminals, SANDBOX, id, &holder, takes_over, &was, &is_fresh, &plan, &err)) {
        CHECK(err.kind == ERROR_CONFLICT);
        return 0;
    }
    *before = was.loop ? was.number : 0;
    CHECK(is_fresh == (plan.line != NULL));
    execd_terminal_plan_done(&plan);
    return is_fresh ? 2 : 1;
}

static void leave(struct execd_terminals *terminals, const char *id, uint64_t number)
{
    struct execd_terminal_holder holder = {.loop = (struct loop *)(uintptr_t)1, .number = number};
    execd_terminals_leave(terminals, SANDBOX, id, &holder);
}

static void test_bounds(void)
{
    AUTO(execd_terminals) *terminals = execd_terminals_new(NULL);
    char id[RANDOM_ID_BYTES], first[RANDOM_ID_BYTES];
    CHECK(add(terminals, SANDBOX, 0, first));
    for (int i = 1; i < EXECD_TERMINALS_FRESH; i++)
        CHECK(add(terminals, SANDBOX, 10, id));
    CHECK(!add(terminals, SANDBOX, 10, id));
    CHECK(add(terminals, OTHER, 10, id));                        /* another sandbox's are its own */
    CHECK(add(terminals, SANDBOX, EXECD_TERMINALS_KEPT_MS, id)); /* the first has waited long enough */
    CHECK(!execd_terminals_is_fresh(terminals, SANDBOX, first));
    CHECK(execd_terminals_is_fresh(terminals, SANDBOX, id) && !execd_terminals_is_fresh(terminals, OTHER, id));
    CHECK(!execd_terminals_drop(terminals, OTHER, id) && execd_terminals_drop(terminals, SANDBOX, id));
    CHECK(!execd_terminals_drop(terminals, SANDBOX, id));
    CHECK(add(terminals, SANDBOX, EXECD_TERMINALS_KEPT_MS, id));
}

static void test_holders(void)
{
    AUTO(execd_terminals) *terminals = execd_terminals_new(NULL);
    char id[RANDOM_ID_BYTES];
    uint64_t before = 0;
    CHECK(add(terminals, SANDBOX, 0, id));
    CHECK(hold(terminals, id, 7, false, &before) == 2 && before == 0);
    CHECK(!execd_terminals_is_fresh(terminals, SANDBOX, id) && !execd_terminals_drop(terminals, SANDBOX, id));
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
    AUTO(execd_terminals) *terminals = execd_terminals_new(registry);
    char id[RANDOM_ID_BYTES], living[RANDOM_ID_BYTES], first[RANDOM_ID_BYTES], name[32];
    struct fl_sandbox sandbox = {.deadline_wall_ms = 5000, .created_wall_ms = 1000};
    snprintf(sandbox.id, sizeof sandbox.id, "%s", SANDBOX);
    CHECK(registry_put(registry, &sandbox, 1000));
    CHECK(add(terminals, SANDBOX, 0, living) && add(terminals, OTHER, 0, first));
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "sbx_%d", i);
        CHECK(add(terminals, name, 0, id));
    }
    CHECK(execd_terminals_is_fresh(terminals, SANDBOX, living));
    CHECK(!execd_terminals_is_fresh(terminals, OTHER, first));
    CHECK(execd_terminals_is_fresh(terminals, name, id));
}

int main(void)
{
    test_sandboxes_that_ended();
    test_bounds();
    test_holders();
    return check_done();
}
