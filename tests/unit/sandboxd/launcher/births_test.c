/* Births that nobody waits for: several at once and no more, the same answer for who asks again, ended while under way,
 * too slow, given up with their front; and the pool: taken, failed, dead, of another version, in the way. */
#include "tests/unit/sandboxd/launcher/stage.h"

static struct side *start_stage(int64_t slots_max, uint32_t warm)
{
    settings.slots_max = slots_max;
    warm_rules = (struct warm_rules){.each = warm, .most = 64, .memory_kib = 64 << 10};
    struct side *side = open_side();
    connect_front(side, 1);
    CHECK(ask(side, &(struct front_launcher_message){.type = FL_READY, .request = 1}));
    while (heard(side, NULL).type != FL_ADOPTED) {
    }
    return side;
}

static void end_all(struct side *side)
{
    fake.slow = false;
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (side->sandboxes.by_slot[slot])
            sandboxes_end(&side->sandboxes, side->sandboxes.by_slot[slot], "purged");
    }
    turn(side);
    while (heard(side, NULL).type != 0) {
    }
    CHECK(side->sandboxes.count == 0 && side->sandboxes.births == 0 && side->sandboxes.pool_births == 0);
    uint32_t left[8];
    CHECK(record_list(records, left, 8) == 0 && fake_list(left, 8) == 0);
    disconnect_front(side);
    close_side(side);
}

static bool prepare_one(struct side *side, char last)
{
    struct front_launcher_message message = prepare(last);
    return ask(side, &message);
}

/* What is said of each birth in turn, until all live. */
static void let_all_on(struct side *side)
{
    for (bool again = true; again;) {
        again = false;
        for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
            const struct sandbox *sandbox = side->sandboxes.by_slot[slot];
            if (!sandbox || (sandbox->state != SANDBOX_BORN && sandbox->state != SANDBOX_BECOMING))
                continue;
            fake_speak(slot);
            again = true;
        }
        turn(side);
    }
}

static void test_a_few_at_once(bool needs_warm)
{
    struct side *side = start_stage(20, 0);
    fake.needs_warm = needs_warm;
    unsigned begun = fake.begun;
    fake.slow = true;
    for (char last = 'a'; last < 'a' + 12; last++)
        CHECK(prepare_one(side, last));
    CHECK(fake.begun - begun == SANDBOXES_BIRTHS_MAX && side->sandboxes.count == 12);
    CHECK(heard(side, NULL).type == 0);
    CHECK(find(side, 'l')->state == SANDBOX_QUEUED && sandboxes_next_wake(&side->sandboxes) > 0);
    let_all_on(side);
    bool lives[12] = {false};
    for (int i = 0; i < 12; i++) {
        turn(side); /* not all of them fit into the socket at once */
        struct front_launcher_message message = heard(side, NULL);
        CHECK(message.type == FL_SANDBOX && message.as.sandbox.reused == 0 && message.as.sandbox.was_warm == 0);
        CHECK(message.request == (uint64_t)(unsigned char)message.as.sandbox.id[23]);
        lives[message.request - 'a'] = true;
    }
    CHECK(memchr(lives, false, sizeof lives) == NULL && heard(side, NULL).type == 0);
    CHECK(side->sandboxes.births == 0 && fake.begun - begun == 12);
    fake.needs_warm = false;
    end_all(side);
}

/* Who asks again while it is being born waits too, and gets the same sandbox. */
static void test_asked_again(void)
{
    struct side *side = start_stage(3, 0);
    fake.slow = true;
    CHECK(prepare_one(side, 'a'));
    struct front_launcher_message again = prepare('a');
    again.request = 777;
    again.as.prepare.epoch = 9;
    CHECK(ask(side, &again));
    struct front_launcher_message limits = {.type = FL_LIMITS, .request = 5};
    memcpy(limits.as.limits.id, again.as.prepare.id, 32);
    CHECK(ask(side, &limits));
    limits = heard(side, NULL);
    CHECK(limits.type == FL_REFUSED && limits.request == 5 && limits.as.refused.kind == ERROR_STARTING);
    CHECK(side->sandboxes.count == 1 && heard(side, NULL).type == 0);
    let_all_on(side);
    size_t fds = 0;
    struct front_launcher_message first = heard(side, &fds);
    CHECK(first.type == FL_SANDBOX && first.request == 'a' && first.as.sandbox.reused == 0 && fds == FL_FDS);
    struct front_launcher_message second = heard(side, &fds);
    CHECK(second.type == FL_SANDBOX && second.request == 777 && second.as.sandbox.reused == 1 && fds == FL_FDS);
    CHECK(first.as.sandbox.slot == second.as.sandbox.slot && second.as.sandbox.epoch == 9);
    CHECK_TEXT(first.as.sandbox.workdir, "/workspace");
    CHECK_TEXT(first.as.sandbox.template_env, "OF=template");
    CHECK_TEXT(first.as.sandbox.storage, "btrfs");
    end_all(side);
}

static void test_destroyed_under_way(void)
{
    struct side *side = start_stage(20, 0);
    fake.slow = true;
    for (char last = 'a'; last < 'a' + 10; last++)
        CHECK(prepare_one(side, last));
    CHECK(find(side, 'a')->state == SANDBOX_BECOMING && find(side, 'j')->state == SANDBOX_QUEUED);
    const char destroyed[] = {'a', 'j'};
    for (int i = 0; i < 2; i++) {
        struct front_launcher_message message = destroy(destroyed[i], "deleted");
        CHECK(ask(side, &message));
        message = heard(side, NULL);
        CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_GONE);
        CHECK(message.request == (uint64_t)(unsigned char)destroyed[i]);
        CHECK_TEXT(message.as.refused.message, "deleted");
        message = heard(side, NULL);
        CHECK(message.type == FL_ENDED && message.request == 100U + (uint64_t)(unsigned char)destroyed[i]);
        CHECK(find(side, destroyed[i]) == NULL);
    }
    end_all(side);
}

/* Too slow, or its init ends, or it cannot even begin: refused, and nothing is left. */
static void test_failures(void)
{
    struct side *side = start_stage(3, 0);
    fake.slow = true;
    CHECK(prepare_one(side, 'a'));
    sandboxes_wake(&side->sandboxes, clock_boot_ns());
    CHECK(find(side, 'a')->state == SANDBOX_BECOMING); /* not yet */
    sandboxes_wake(&side->sandboxes, UINT64_MAX);
    turn(side);
    struct front_launcher_message message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_TIMEOUT && find(side, 'a') == NULL);
    CHECK(prepare_one(side, 'a')); /* it never was: the id is as good as new */
    CHECK(fake_kill(find(side, 'a')->record.slot, NULL));
    turn(side);
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && strstr(message.as.refused.message, "init ended") != NULL);
    fake.slow = false;
    fake.ready_fails = true;
    CHECK(prepare_one(side, 'a'));
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && strstr(message.as.refused.message, "fake init could not") != NULL);
    fake.ready_fails = false;
    CHECK(side->sandboxes.count == 0 && prepare_one(side, 'a') && heard(side, NULL).type == FL_SANDBOX);
    end_all(side);
}

/* A front that dies leaves no births behind, and the next one can ask anew. */
static void test_front_gone(void)
{
    struct side *side = start_stage(20, 0);
    fake.slow = true;
    for (char last = 'a'; last < 'a' + 10; last++)
        CHECK(prepare_one(side, last));
    disconnect_front(side);
    CHECK(side->sandboxes.count == 0 && side->sandboxes.queue == NULL && side->sandboxes.births == 0);
    connect_front(side, 2);
    CHECK(ask(side, &(struct front_launcher_message){.type = FL_READY, .request = 1}));
    for (struct front_launcher_message message; (message = heard(side, NULL)).type != FL_ADOPTED;)
        CHECK(message.type == FL_IDENTITY || message.type == FL_TEMPLATE); /* no ends of what never was */
    fake.slow = false;
    CHECK(prepare_one(side, 'a'));
    struct front_launcher_message message = heard(side, NULL);
    CHECK(message.type == FL_SANDBOX && message.as.sandbox.reused == 0);
    end_all(side);
}

/* --- the pool --- */

/* As the loop when nothing is to be done: births begin until none is due. */
static void refill(struct side *side)
{
    uint64_t later = clock_boot_ns() + 100 * 1000000ULL, when = 0;
    while (warm_wanted(&side->sandboxes, later, &when)) {
        warm_refill(&side->sandboxes, later);
        turn(side);
    }
}

static uint32_t warm_count(const struct side *side)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        const struct sandbox *sandbox = side->sandboxes.by_slot[slot];
        count += sandbox && sandbox->state == SANDBOX_WARM;
    }
    return count;
}

static void test_warm_is_given(void)
{
    struct side *side = start_stage(3, 2);
    refill(side);
    CHECK(warm_count(side) == 2 && side->sandboxes.pool_count == 2 && record_count(records, RECORD_WARM) == 2);
    unsigned begun = fake.begun;
    CHECK(prepare_one(side, 'a'));
    struct front_launcher_message message = heard(side, NULL);
    CHECK(message.type == FL_SANDBOX && message.as.sandbox.was_warm == 1 && fake.begun == begun);
    CHECK(fake.life.limits.memory_bytes == 64 << 20 && fake.life.limits.pids == 64 && fake.life.uid == 1000);
    CHECK(disk.areas[message.as.sandbox.slot] == message.as.sandbox.limits.disk_bytes);
    CHECK(warm_count(side) == 1 && side->sandboxes.pool_count == 1);
    refill(side);
    CHECK(warm_count(side) == 3); /* two, and what was taken in the last minute */
    CHECK(prepare_one(side, 'b') && heard(side, NULL).as.sandbox.was_warm == 1);
    CHECK(prepare_one(side, 'c') && heard(side, NULL).as.sandbox.was_warm == 1);
    CHECK(prepare_one(side, 'd')); /* warm ones are none of the node's three, and give it no fourth */
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_NO_CAPACITY);
    end_all(side);
}

/* Demand falls: what is too much is ended, in the end all but the few. */
static void test_demand_falls(void)
{
    struct side *side = start_stage(20, 1);
    for (char last = 'a'; last < 'a' + 6; last++)
        CHECK(prepare_one(side, last) && heard(side, NULL).type == FL_SANDBOX);
    refill(side);
    CHECK(warm_count(side) == 7);
    uint64_t now = clock_boot_ns();
    CHECK(side->sandboxes.warm.trim_boot_ns > now);
    warm_trim(&side->sandboxes, now + 30 * 1000000000ULL);
    CHECK(warm_count(side) == 7);
    warm_trim(&side->sandboxes, now + 80 * 1000000000ULL);
    turn(side);
    CHECK(warm_count(side) == 1 && side->sandboxes.pool_count == 1);
    end_all(side);
}

/* Bounded by number and by memory. */
static void test_bounds(void)
{
    struct side *side = start_stage(20, 10);
    side->sandboxes.house.warm.most = 3;
    refill(side);
    CHECK(warm_count(side) == 3);
    side->sandboxes.house.warm = (struct warm_rules){.each = 10, .most = 64, .memory_kib = 5 * WARM_EACH_KIB + 1};
    refill(side);
    CHECK(warm_count(side) == 5);
    end_all(side);
}

/* A warm one that fails in any way is no error: the next is born cold. */
static void test_warm_fails(void)
{
    struct side *side = start_stage(20, 2);
    refill(side);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) { /* their inits die, and the launcher has not looked yet */
        const struct sandbox *sandbox = side->sandboxes.by_slot[slot];
        if (sandbox && sandbox->state == SANDBOX_WARM)
            CHECK(fake_kill(slot, NULL));
    }
    struct front_launcher_message message = prepare('a');
    struct error err = {0};
    CHECK(front_launcher_send(side->pair[1], &message, NULL, 0, &err) && dialogue_receive(&side->dialogue, &err));
    turn(side);
    message = heard(side, NULL);
    CHECK(message.type == FL_SANDBOX && message.as.sandbox.was_warm == 0 && warm_count(side) == 0);
    refill(side);
    fake.become_fails = true;
    CHECK(prepare_one(side, 'b')); /* the warm one fails, and so does the cold one: that is told */
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && strstr(message.as.refused.message, "fake become failure") != NULL);
    fake.become_fails = false;
    refill(side);
    fake.slow = true;
    unsigned begun = fake.begun;
    CHECK(prepare_one(side, 'c') && fake.begun == begun);
    uint32_t slot = find(side, 'c')->record.slot;
    fake.ready_fails = true;
    fake_speak(slot); /* it fails to become ... */
    turn(side);
    fake.ready_fails = false;
    CHECK(fake.begun == begun + 1 && find(side, 'c')->record.slot != slot);
    let_all_on(side);
    message = heard(side, NULL);
    CHECK(message.type == FL_SANDBOX && message.request == 'c' && message.as.sandbox.was_warm == 0);
    CHECK_TEXT(message.as.sandbox.env, "LETTER=c");
    end_all(side);
}

/* Births of the pool that fail make it wait, longer each time; prepares are not kept from anything. */
static void test_pool_cannot(void)
{
    struct side *side = start_stage(20, 2);
    uint64_t now = clock_boot_ns() + 100 * 1000000ULL, when = 0;
    fake.failing = true;
    CHECK(warm_wanted(&side->sandboxes, now, &when) != NULL);
    warm_refill(&side->sandboxes, now);
    CHECK(warm_wanted(&side->sandboxes, clock_boot_ns(), &when) == NULL && when > clock_boot_ns());
    uint64_t first = when - clock_boot_ns();
    warm_refill(&side->sandboxes, when);
    CHECK(warm_wanted(&side->sandboxes, clock_boot_ns(), &when) == NULL && when - clock_boot_ns() > first);
    fake.failing = false;
    CHECK(side->sandboxes.count == 0 && prepare_one(side, 'a') && heard(side, NULL).type == FL_SANDBOX);
    end_all(side);
}

static void change_templates(struct side *side, unsigned tool)
{
    static unsigned changes;
    shelf.tool = tool;
    AUTO_FREE char *path = memory_printf("%s/change-%u", templates, changes++);
    CHECK(mkdir(path, 0700) == 0);
    dialogue_refresh_templates(&side->dialogue);
    turn(side);
}

static struct front_launcher_message prepare_tool(char last)
{
    struct front_launcher_message message = prepare(last);
    memcpy(message.as.prepare.template_name, "tool", 5);
    return message;
}

/* Another version of a template: its warm ones are of no use, those that live keep theirs. */
static void test_templates_change(void)
{
    struct side *side = start_stage(20, 1);
    struct front_launcher_message message = prepare_tool('a');
    CHECK(ask(side, &message));
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && strstr(message.as.refused.message, "there is: base") != NULL);
    change_templates(side, 1);
    CHECK(heard(side, NULL).as.template.first == 1);
    CHECK(heard(side, NULL).as.template.first == 0 && heard(side, NULL).type == 0);
    message = prepare_tool('b');
    CHECK(ask(side, &message) && heard(side, NULL).type == FL_SANDBOX);
    CHECK_TEXT(find(side, 'b')->record.template_version, "tool-1");
    refill(side);
    CHECK(warm_count(side) == 3); /* base, tool, and the one that was asked for */
    change_templates(side, 2);
    CHECK(warm_count(side) == 1 && shelf.tool_was_used);
    refill(side);
    CHECK(warm_count(side) == 3);
    while (heard(side, NULL).type != 0) {
    }
    message = prepare_tool('c');
    CHECK(ask(side, &message) && heard(side, NULL).as.sandbox.was_warm == 1);
    CHECK_TEXT(find(side, 'c')->record.template_version, "tool-2");
    unsigned cleaned = shelf.cleaned;
    message = destroy('b', "deleted");
    CHECK(ask(side, &message) && shelf.cleaned > cleaned && !shelf.tool_was_used); /* its last user is gone */
    change_templates(side, 0);
    end_all(side);
}

/* All ranges of the machine are taken, some by warm ones: they give way. */
static void test_slots_are_needed(void)
{
    struct side *side = start_stage(20, 3);
    change_templates(side, 1);
    refill(side);
    uint32_t warm = warm_count(side);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++)
        side->slots.blocked[slot] = side->slots.blocked[slot] || !side->slots.held[slot];
    while (heard(side, NULL).type != 0) {
    }
    struct front_launcher_message message = prepare_tool('a'); /* of which there is no warm one */
    fake.busy = 2;                                             /* what gives way takes a moment */
    CHECK(ask(side, &message) && heard(side, NULL).type == 0);
    CHECK(find(side, 'a')->state == SANDBOX_QUEUED);
    for (int i = 0; i < 3 && find(side, 'a')->state == SANDBOX_QUEUED; i++) {
        for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
            struct sandbox *sandbox = side->sandboxes.by_slot[slot];
            if (sandbox && sandbox->state == SANDBOX_ENDING)
                sandboxes_wake(&side->sandboxes, sandbox->due_boot_ns);
        }
        turn(side);
    }
    message = heard(side, NULL);
    CHECK(message.type == FL_SANDBOX && message.as.sandbox.was_warm == 0 && warm_count(side) == warm - 1);
    change_templates(side, 0);
    end_all(side);
}

/* A launcher that comes after a kill -9 ends what was warm or half born, and keeps what lives. */
static void test_restart(void)
{
    struct side *side = start_stage(20, 2);
    CHECK(prepare_one(side, 'a') && heard(side, NULL).type == FL_SANDBOX);
    refill(side);
    fake.slow = true;
    struct front_launcher_message message = prepare('b');
    message.as.prepare.snapshot[0] = '\0';
    side->sandboxes.house.warm.each = 0;
    CHECK(ask(side, &message));
    uint32_t slots[16];
    CHECK(record_list(records, slots, 16) == 4);
    side->sandboxes.listener = (struct sandboxes_listener){0};
    sandboxes_done(&side->sandboxes); /* lets go of all, ending none */
    catalog_close(&side->catalog);
    snapshots_close(&side->snapshots);
    slots_done(&side->slots);
    dialogue_end(&side->dialogue);
    free(side);
    fake.slow = false;
    side = open_side();
    CHECK(side->sandboxes.count == 1 && record_list(records, slots, 16) == 1 && fake_list(slots, 16) == 1);
    CHECK(find(side, 'a')->template != NULL || find(side, 'a')->state == SANDBOX_LIVE);
    connect_front(side, 2);
    end_all(side);
}

int main(void)
{
    make_stage();
    test_a_few_at_once(false);
    test_a_few_at_once(true);
    test_asked_again();
    test_destroyed_under_way();
    test_failures();
    test_front_gone();
    test_warm_is_given();
    test_demand_falls();
    test_bounds();
    test_warm_fails();
    test_pool_cannot();
    test_templates_change();
    test_slots_are_needed();
    test_restart();
    strike_stage();
    return check_done();
}
