/* registry_test.c - sandboxes come, end, are remembered and reported. */
#include "sandboxd/sandbox/registry.h"
#include "tests/unit/check.h"

static struct fl_sandbox make(const char *id)
{
    struct fl_sandbox sandbox = {.deadline_wall_ms = 5000, .created_wall_ms = 1000};
    snprintf(sandbox.id, sizeof sandbox.id, "%s", id);
    sandbox.root.bytes[0] = 42;
    return sandbox;
}

static bool end(struct registry *registry, const char *id, const char *reason, int64_t now_ms)
{
    struct fl_ended ended = {.epoch = 7, .root.bytes[0] = 43};
    snprintf(ended.id, sizeof ended.id, "%s", id);
    snprintf(ended.reason, sizeof ended.reason, "%s", reason);
    return registry_ended(registry, &ended, now_ms);
}

static void test_life(void)
{
    AUTO(registry) *registry = registry_new(3);
    struct fl_sandbox a = make("sbx_a");
    struct registry_view view = {0};
    CHECK(!registry_find(registry, "sbx_a", &view));
    CHECK(registry_put(registry, &a, 1000));
    CHECK(registry_find(registry, "sbx_a", &view) && view.state == REGISTRY_LIVE && view.epoch == 1);
    CHECK(view.root.bytes[0] == 42 && view.owner < 3 && view.owner == registry_owner(registry, "sbx_a"));
    registry_touch(registry, "sbx_a", 2000);
    a.deadline_wall_ms = 9000;
    a.epoch = 7;
    CHECK(registry_put(registry, &a, 2500));
    CHECK(registry_find(registry, "sbx_a", &view) && view.active_ms == 2000 && view.deadline_ms == 9000);
    CHECK(view.epoch == 7);
    a.epoch = 3;
    CHECK(registry_put(registry, &a, 2500)); /* an epoch never falls */
    CHECK(registry_find(registry, "sbx_a", &view) && view.epoch == 7);
    CHECK(registry_count(registry) == 1);

    registry_ending(registry, "sbx_a", "released");
    registry_ending(registry, "sbx_a", "deleted");
    CHECK(registry_find(registry, "sbx_a", &view) && view.state == REGISTRY_ENDING);
    CHECK(end(registry, "sbx_a", "crashed", 3000));
    CHECK(!end(registry, "sbx_a", "crashed", 3000));
    CHECK(registry_find(registry, "sbx_a", &view) && view.state == REGISTRY_ENDED && view.ended_ms == 3000);
    CHECK_TEXT(view.reason, "released");
    CHECK(!registry_put(registry, &a, 3000)); /* an ended one is not revived */
    CHECK(registry_count(registry) == 0);
}

static void test_variables(void)
{
    AUTO(registry) *registry = registry_new(1);
    struct fl_sandbox a = make("sbx_a");
    char value[16], workdir[FRONT_LAUNCHER_PATH_BYTES];
    uint32_t uid;
    memcpy(a.env, "A=own\0AB=ab\0EMPTY=", sizeof "A=own\0AB=ab\0EMPTY=");
    memcpy(a.template_env, "A=template\0T=t\0LONG=0123456789abcdef", sizeof "A=template\0T=t\0LONG=0123456789abcdef");
    strcpy(a.workdir, "/workspace");
    a.uid = 1000;
    CHECK(!registry_variable(registry, "sbx_a", "A", value, sizeof value));
    CHECK(!registry_start_of(registry, "sbx_a", workdir, &uid));
    CHECK(registry_put(registry, &a, 0) && registry_put(registry, &a, 0));
    CHECK(registry_variable(registry, "sbx_a", "A", value, sizeof value));
    CHECK_TEXT(value, "own");
    CHECK(registry_variable(registry, "sbx_a", "T", value, sizeof value));
    CHECK_TEXT(value, "t");
    CHECK(registry_variable(registry, "sbx_a", "EMPTY", value, sizeof value) && value[0] == 0);
    CHECK(!registry_variable(registry, "sbx_a", "LONG", value, sizeof value));
    CHECK(!registry_variable(registry, "sbx_a", "EMPT", value, sizeof value));
    CHECK(!registry_variable(registry, "sbx_a", "", value, sizeof value));
    CHECK(registry_start_of(registry, "sbx_a", workdir, &uid) && uid == 1000);
    CHECK_TEXT(workdir, "/workspace");
    CHECK(end(registry, "sbx_a", "oom", 50));
    CHECK(!registry_variable(registry, "sbx_a", "A", value, sizeof value));
}

static void test_reports(void)
{
    AUTO(registry) *registry = registry_new(1);
    struct fl_sandbox a = make("sbx_a"), b = make("sbx_b");
    CHECK(registry_put(registry, &a, 0) && registry_put(registry, &b, 0));
    CHECK(end(registry, "sbx_b", "oom", 50));
    AUTO_FREE struct registry_line *living = NULL, *ended = NULL, *rest = NULL;
    CHECK(registry_lines(registry, REGISTRY_LIVING, 10, &living) == 1);
    CHECK_TEXT(living[0].id, "sbx_a");
    CHECK(registry_lines(registry, REGISTRY_UNREPORTED, 10, &ended) == 1);
    CHECK_TEXT(ended[0].reason, "oom");
    registry_reported(registry, "sbx_b");
    CHECK(registry_lines(registry, REGISTRY_UNREPORTED, 10, &rest) == 0);
}

/* One that ended before there was this registry: its tokens can be told from others, and the negotiator is told. */
static void test_unknown_end(void)
{
    AUTO(registry) *registry = registry_new(1);
    struct registry_view view = {0};
    CHECK(end(registry, "sbx_c", "crashed", 50));
    CHECK(!end(registry, "sbx_c", "crashed", 50));
    CHECK(registry_find(registry, "sbx_c", &view) && view.state == REGISTRY_ENDED && view.epoch == 7);
    CHECK(view.root.bytes[0] == 43);
    CHECK_TEXT(view.reason, "crashed");
    CHECK(registry_count(registry) == 0);
    AUTO_FREE struct registry_line *ended = NULL;
    CHECK(registry_lines(registry, REGISTRY_UNREPORTED, 10, &ended) == 1);
    struct fl_sandbox c = make("sbx_c");
    CHECK(!registry_put(registry, &c, 60));
}

static void test_attached(void)
{
    AUTO(registry) *registry = registry_new(1);
    struct fl_sandbox a = make("sbx_a");
    CHECK(registry_put(registry, &a, 5));
    AUTO_FREE struct registry_line *quiet = NULL, *attached = NULL, *left = NULL;
    CHECK(registry_lines(registry, REGISTRY_LIVING, 10, &quiet) == 1 && quiet[0].active_ms == 5);
    registry_attach(registry, "sbx_a");
    CHECK(registry_lines(registry, REGISTRY_LIVING, 10, &attached) == 1 && attached[0].active_ms > 1000000);
    registry_detach(registry, "sbx_a", 7);
    CHECK(registry_lines(registry, REGISTRY_LIVING, 10, &left) == 1 && left[0].active_ms == 7);
}

static size_t changed(struct registry *registry, struct registry_line *first, bool tell)
{
    AUTO_FREE struct registry_line *lines = NULL;
    size_t count = registry_lines(registry, REGISTRY_CHANGED, 10, &lines);
    if (count > 0)
        *first = lines[0];
    if (tell)
        registry_told(registry, lines, count);
    return count;
}

static void test_changes(void)
{
    AUTO(registry) *registry = registry_new(1);
    struct fl_sandbox a = make("sbx_a"), b = make("sbx_b");
    struct registry_line line = {0};
    a.epoch = b.epoch = 1;
    CHECK(changed(registry, &line, true) == 0);
    CHECK(registry_put(registry, &a, 5000) && registry_put(registry, &b, 5000));
    CHECK(changed(registry, &line, false) == 2); /* the message may be lost: told again */
    CHECK(changed(registry, &line, true) == 2 && changed(registry, &line, true) == 0);

    registry_touch(registry, "sbx_a", 5999);
    CHECK(changed(registry, &line, true) == 0);
    registry_touch(registry, "sbx_a", 6000);
    CHECK(changed(registry, &line, true) == 1 && line.active_ms == 6000);
    CHECK_TEXT(line.id, "sbx_a");
    registry_touch(registry, "sbx_a", 4000); /* the clock was set back */
    CHECK(changed(registry, &line, true) == 1 && changed(registry, &line, true) == 0);

    b.deadline_wall_ms = 6000;
    CHECK(registry_put(registry, &b, 0));
    CHECK(changed(registry, &line, true) == 1 && line.deadline_ms == 6000);
    registry_raise_epoch(registry, "sbx_b", 3);
    registry_raise_epoch(registry, "sbx_b", 2); /* never falls */
    registry_raise_epoch(registry, "sbx_none", 2);
    registry_used(registry, "sbx_b", &(struct registry_usage){.cpu_ms = 77, .memory_bytes = 1 << 20, .pids = 3});
    registry_used(registry, "sbx_a", &(struct registry_usage){1, 2, 1000, 4}); /* alone nothing to tell */
    CHECK(changed(registry, &line, true) == 1 && line.epoch == 3);
    CHECK(line.usage.cpu_ms == 77 && line.usage.memory_bytes == 1 << 20 && line.usage.pids == 3);
    registry_used(registry, "sbx_a", &(struct registry_usage){.disk_bytes = 2 << 20}); /* but what lies on disk is */
    CHECK(changed(registry, &line, true) == 1 && line.usage.disk_bytes == 2 << 20);
    struct registry_view view = {0};
    CHECK(registry_find(registry, "sbx_b", &view) && view.epoch == 3);
    CHECK(registry_put(registry, &b, 0) && changed(registry, &line, true) == 0); /* the launcher's lower one */

    registry_attach(registry, "sbx_a"); /* active now, whenever that is */
    CHECK(changed(registry, &line, true) == 1);
    CHECK(end(registry, "sbx_a", "deleted", 1));
    CHECK(changed(registry, &line, true) == 0);
    struct registry_line gone = {.id = "sbx_gone", .epoch = 1};
    registry_told(registry, &gone, 1);
    AUTO_FREE struct registry_line *all = NULL;
    CHECK(registry_lines(registry, REGISTRY_LIVING, 10, &all) == 1); /* a full list has what was told too */
}

/* While it is paused nothing is a sign of life: no request, and nobody who stays attached. */
static void test_paused(void)
{
    AUTO(registry) *registry = registry_new(1);
    struct fl_sandbox a = make("sbx_a");
    struct registry_line line;
    struct registry_view view = {0};
    CHECK(registry_put(registry, &a, 1000) && changed(registry, &line, true) == 1 && !line.paused);
    registry_attach(registry, "sbx_a");
    registry_set_paused(registry, "sbx_a", true, 5000);
    CHECK(registry_find(registry, "sbx_a", &view) && view.paused && view.active_ms == 5000);
    CHECK(changed(registry, &line, true) == 1 && line.paused && line.active_ms == 5000);
    registry_touch(registry, "sbx_a", 9000);
    registry_detach(registry, "sbx_a", 9000);
    CHECK(changed(registry, &line, true) == 0);
    registry_set_paused(registry, "sbx_a", false, 10000);
    CHECK(changed(registry, &line, true) == 1 && !line.paused && line.active_ms == 10000);
    registry_set_paused(registry, "sbx_a", true, 11000); /* nobody is attached: what was last stays */
    CHECK(changed(registry, &line, true) == 1 && line.paused && line.active_ms == 10000);
    registry_set_paused(registry, "sbx_none", true, 1);
}

static void test_bounds(void)
{
    AUTO(registry) *registry = registry_new(1);
    char id[32];
    for (int i = 0; i < REGISTRY_ENDED_MAX + 10; i++) {
        snprintf(id, sizeof id, "sbx_%d", i);
        struct fl_sandbox sandbox = make(id);
        CHECK(registry_put(registry, &sandbox, i));
        CHECK(end(registry, id, "deleted", i));
    }
    struct registry_view view;
    CHECK(!registry_find(registry, "sbx_9", &view)); /* the oldest went */
    CHECK(registry_find(registry, "sbx_10", &view));
    struct fl_sandbox late = make("sbx_late");
    CHECK(registry_put(registry, &late, 0));
    CHECK(end(registry, "sbx_late", "deleted", REGISTRY_ENDED_KEPT_MS + 20000));
    CHECK(!registry_find(registry, "sbx_100", &view)); /* a day has passed */
}

int main(void)
{
    keys_start();
    test_life();
    test_variables();
    test_reports();
    test_unknown_end();
    test_attached();
    test_changes();
    test_paused();
    test_bounds();
    return check_done();
}
