/* A whole conversation between a front and the launcher's half, on a stage that makes nothing: adoption, make, make
 * again, refuse, destroy, crash, deadline, capacity, a new front, a hostile front. */
#include "tests/unit/sandboxd/launcher/stage.h"

static void greet(struct side *side, unsigned expected_sandboxes, unsigned expected_ends)
{
    CHECK(ask(side, &(struct front_launcher_message){.type = FL_READY, .request = 1}));
    struct front_launcher_message message = heard(side, NULL);
    CHECK(message.type == FL_IDENTITY && strcmp(message.as.identity.node, "n1") == 0);
    CHECK(message.as.identity.incarnation > 0);
    CHECK(memcmp(&message.as.identity.link_to_node, &message.as.identity.link_from_node, KEY_BYTES) != 0);
    size_t count = 0;
    message = heard(side, NULL);
    CHECK(message.type == FL_TEMPLATE && message.as.template.first == 1);
    CHECK_TEXT(message.as.template.name, "base");
    for (unsigned i = 0; i < expected_sandboxes; i++) {
        CHECK(heard(side, &count).type == FL_SANDBOX);
        CHECK(count == FL_FDS);
    }
    for (unsigned i = 0; i < expected_ends; i++)
        CHECK(heard(side, NULL).type == FL_ENDED);
    CHECK(heard(side, NULL).type == FL_ADOPTED);
    CHECK(heard(side, NULL).type == 0);
}

/* What lives is not called gone because its descriptors cannot be had. */
static void test_no_descriptors(struct side *side)
{
    fake.no_descriptors = true;
    struct front_launcher_message message = prepare('a');
    CHECK(ask(side, &message));
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_INTERNAL);
    fake.no_descriptors = false;
}

static void test_life(struct side *side)
{
    size_t fds = 0;
    struct front_launcher_message message = prepare('a');
    CHECK(ask(side, &message));
    message = heard(side, &fds);
    CHECK(message.type == FL_SANDBOX && message.request == 'a' && fds == FL_FDS && message.as.sandbox.reused == 0);
    CHECK(message.as.sandbox.limits.disk_bytes == 20 << 20); /* what fits beside /dev/shm */
    CHECK(message.as.sandbox.uid_base == slots_uid(message.as.sandbox.slot));
    CHECK_TEXT(message.as.sandbox.socket_path, "0/init.sock");
    struct key root;
    key_sandbox_root(&root, &identity.node_key, message.as.sandbox.id);
    CHECK(memcmp(&root, &message.as.sandbox.root, sizeof root) == 0);
    CHECK_TEXT(message.as.sandbox.env, "LETTER=a");
    CHECK(message.as.sandbox.epoch == 2);
    message = prepare('a');
    message.as.prepare.epoch = 1;
    memcpy(message.as.prepare.env, "OTHER=1", 8);
    CHECK(ask(side, &message));
    message = heard(side, &fds);
    CHECK(message.type == FL_SANDBOX && fds == FL_FDS && message.as.sandbox.reused == 1);
    CHECK_TEXT(message.as.sandbox.env, "LETTER=a");
    CHECK(message.as.sandbox.epoch == 2); /* an epoch never falls */
    struct front_launcher_message deadline = {.type = FL_DEADLINE, .request = 55};
    memcpy(deadline.as.deadline.id, message.as.sandbox.id, 32);
    deadline.as.deadline.deadline_wall_ms = clock_wall_ms() + 90000;
    CHECK(ask(side, &deadline));
    message = heard(side, &fds);
    CHECK(message.type == FL_SANDBOX && fds == 0 && message.request == 55);
    CHECK(message.as.sandbox.deadline_wall_ms == deadline.as.deadline.deadline_wall_ms);
    deadline.as.deadline.deadline_wall_ms = clock_wall_ms() + 7200000;
    CHECK(ask(side, &deadline));
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_INVALID);
    test_no_descriptors(side);
    fake.busy = 2;
    message = destroy('a', "deleted");
    CHECK(ask(side, &message));
    CHECK(heard(side, NULL).type == 0); /* not before it is gone */
    message = prepare('a');
    CHECK(ask(side, &message));
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_GONE);
    CHECK(sandboxes_next_wake(&side->sandboxes) > 0);
    for (int i = 0; i < 3; i++)
        sandboxes_wake(&side->sandboxes, UINT64_MAX);
    turn(side);
    message = heard(side, NULL);
    CHECK(message.type == FL_ENDED && message.request == 100 + 'a');
    CHECK_TEXT(message.as.ended.reason, "deleted");
    key_sandbox_root(&root, &identity.node_key, message.as.ended.id);
    CHECK(memcmp(&root, &message.as.ended.root, sizeof root) == 0 && message.as.ended.epoch == 2);
    CHECK(side->sandboxes.count == 0 && sandboxes_next_wake(&side->sandboxes) == 0);
    message = prepare('a'); /* ids are never used again */
    CHECK(ask(side, &message));
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && strstr(message.as.refused.message, "deleted") != NULL);
    message = destroy('z', "deleted");
    CHECK(ask(side, &message));
    message = heard(side, NULL);
    CHECK_TEXT(message.as.ended.reason, "unknown");
    key_sandbox_root(&root, &identity.node_key, message.as.ended.id); /* of ids it never had, a front gets no roots */
    CHECK(memcmp(&root, &message.as.ended.root, sizeof root) != 0);
}

static void test_refusals(struct side *side)
{
    struct front_launcher_message message = prepare('b');
    message.as.prepare.limits.memory_bytes = 1;
    CHECK(ask(side, &message));
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && message.request == 'b' && message.as.refused.kind == ERROR_INVALID);
    fake.failing = true;
    message = prepare('b');
    CHECK(ask(side, &message));
    message = heard(side, NULL);
    CHECK(message.type == FL_REFUSED && strstr(message.as.refused.message, "fake failure") != NULL);
    fake.failing = false;
    CHECK(side->sandboxes.count == 0);
    uint32_t left = 0;
    CHECK(record_list(records, &left, 1) == 0);
    CHECK(rmdir(run) == 0 && mkdir(run, 0711) == 0); /* empty */
    for (char last = 'c'; last <= 'f'; last++) {
        message = prepare(last);
        CHECK(ask(side, &message));
        message = heard(side, NULL);
        CHECK(message.type == (last < 'f' ? FL_SANDBOX : FL_REFUSED));
    }
    CHECK(message.as.refused.kind == ERROR_NO_CAPACITY);
}

/* A front had init end it, so its end is no crash; whoever comes to know of it later is told the same. */
static void test_asked_end(struct side *side)
{
    struct front_launcher_message message = prepare('x');
    CHECK(ask(side, &message));
    CHECK(heard(side, NULL).type == FL_SANDBOX);
    const struct sandbox *x = sandboxes_find(&side->sandboxes, message.as.prepare.id);
    message = destroy('x', "released");
    message.type = FL_ENDING;
    CHECK(ask(side, &message));
    CHECK(heard(side, NULL).type == 0 && side->sandboxes.count == 1); /* it goes on until init ends */
    CHECK(x && fake_kill(x->record.slot, NULL));
    sandboxes_event(&side->sandboxes, SANDBOX_INIT_ENDED, x->record.slot);
    turn(side);
    message = heard(side, NULL);
    CHECK(message.type == FL_ENDED && message.request == 0);
    CHECK_TEXT(message.as.ended.reason, "released");
    message = destroy('x', "released");
    message.type = FL_ENDING;
    CHECK(ask(side, &message)); /* of one that is gone: nothing */
    CHECK(heard(side, NULL).type == 0);
}

/* c crashes; d passes its deadline and its init does nothing; e lives on. */
static void test_ends(struct side *side)
{
    const struct sandbox *c = sandboxes_find(&side->sandboxes, prepare('c').as.prepare.id);
    struct sandbox *d = sandboxes_find(&side->sandboxes, prepare('d').as.prepare.id);
    CHECK(c && d && c->handle.stats[0] < 0 && c->handle.stats[5] >= 0);    /* only what the end needs stays open */
    sandboxes_event(&side->sandboxes, SANDBOX_INIT_ENDED, c->record.slot); /* an event of an earlier one: nothing */
    CHECK(side->sandboxes.count == 3);
    CHECK(fake_kill(c->record.slot, NULL));
    sandboxes_event(&side->sandboxes, SANDBOX_INIT_ENDED, c->record.slot);
    turn(side);
    struct front_launcher_message message = heard(side, NULL);
    CHECK(message.type == FL_ENDED && message.request == 0);
    CHECK_TEXT(message.as.ended.reason, "crashed");
    uint64_t due = sandboxes_next_wake(&side->sandboxes);
    sandboxes_wake(&side->sandboxes, due - 1);
    CHECK(side->sandboxes.count == 2);
    d->record.deadline_boot_ns = 1;
    sandboxes_wake(&side->sandboxes, clock_boot_ns());
    CHECK(side->sandboxes.count == 1);
    turn(side);
    CHECK_TEXT(heard(side, NULL).as.ended.reason, "max_lifetime");
}

/* The launcher is gone, another comes: e is adopted, damaged and half-made ones and orphans are removed. */
static struct side *test_adoption(struct side *side)
{
    uint32_t slot = sandboxes_find(&side->sandboxes, prepare('e').as.prepare.id)->record.slot;
    disconnect_front(side);
    close_side(side);
    struct side *failing = memory_new(sizeof *failing);
    struct error err = {0};
    fake.no_descriptors = true;
    CHECK(!start_side(failing, &err) && err.kind == ERROR_INTERNAL); /* one that lives is not killed for that */
    fake.no_descriptors = false;
    close_side(failing);
    AUTO_FREE char *damaged = memory_printf("%s/77", records);
    AUTO_FREE char *folder = memory_printf("%s/77", run);
    AUTO_FREE char *other_folder = memory_printf("%s/79", run);
    CHECK(fd_write_file(damaged, 0600, "PREC", 4, NULL) && mkdir(folder, 0700) == 0 && mkdir(other_folder, 0700) == 0);
    fake.ended[78] = eventfd(0, EFD_CLOEXEC);
    struct record half = {.state = RECORD_STARTING,
                          .slot = 80,
                          .uid_base = slots_uid(80),
                          .id = "sbx_aaaaaaaaaaaaaaaaaaaa",
                          .uid = 1000,
                          .epoch = 1};
    CHECK(record_write(records, &half, NULL));
    struct record dead = half;
    dead.state = RECORD_LIVE;
    dead.slot = 81;
    dead.uid_base = slots_uid(81);
    dead.init_pid = 1081;
    memcpy(dead.id, "sbx_bbbbbbbbbbbbbbbbbbbb", 25);
    CHECK(record_write(records, &dead, NULL));
    side = open_side();
    CHECK(side->sandboxes.count == 1 && side->sandboxes.by_slot[slot] != NULL);
    CHECK(access(damaged, F_OK) < 0 && access(folder, F_OK) < 0 && access(other_folder, F_OK) < 0);
    CHECK(fake.ended[78] == -1);
    uint32_t left[8];
    CHECK(record_list(records, left, 8) == 1 && left[0] == slot);
    connect_front(side, 2);
    greet(side, 1, 1); /* the one that died while nobody looked is told */
    CHECK_TEXT(sandboxes_find_end(&side->sandboxes, "sbx_bbbbbbbbbbbbbbbbbbbb")->reason, "crashed");
    return side;
}

static void test_hostile_front(struct side *side)
{
    struct error err = {0};
    struct front_launcher_message message = {.type = FL_READY};
    CHECK(front_launcher_send(side->pair[1], &message, NULL, 0, &err));
    CHECK(!dialogue_receive(&side->dialogue, &err)); /* ready twice */
    disconnect_front(side);
    connect_front(side, 3);
    message = prepare('g');
    CHECK(front_launcher_send(side->pair[1], &message, NULL, 0, &err));
    CHECK(!dialogue_receive(&side->dialogue, &err)); /* nothing before ready */
    disconnect_front(side);
    connect_front(side, 4);
    CHECK(fd_send_message(side->pair[1], "junk", 4, NULL, 0, &err));
    CHECK(!dialogue_receive(&side->dialogue, &err));
    CHECK(err.kind == ERROR_INVALID);
    disconnect_front(side);
    connect_front(side, 5);
    close(side->pair[1]);
    side->pair[1] = -1;
    CHECK(!dialogue_receive(&side->dialogue, &err));
    CHECK(err.kind == ERROR_GONE);
    disconnect_front(side);
    CHECK(side->sandboxes.count == 1); /* all that harmed nobody */
}

static struct front_launcher_message rekey(const struct enrol_pair *negotiator, uint32_t from, uint32_t to)
{
    struct error err = {0};
    struct front_launcher_message message = {.type = FL_REKEY, .request = 55, .as.rekey.epoch = to};
    struct enrol_grant grant = {.node = "n1", .deployment = "dep", .epoch = to};
    uint8_t bound[ENROL_HASH_BYTES];
    key_random(&grant.node_key);
    enrol_rekey_bound(bound, "n1", from, to);
    json_t *json = enrol_seal(negotiator, identity.pair.public_key, bound, &grant, &err);
    CHECK(json != NULL && enrol_box_read(&message.as.rekey.box, json, &err));
    json_decref(json);
    return message;
}

/* The keys change under a sandbox that lives: the front of before is told and is over, the next one has all anew. */
static void test_rekey(struct side *side)
{
    struct enrol_pair negotiator;
    struct key root = {{0}};
    struct identity read = {.epoch = 0};
    struct error err = {0};
    enrol_node_pair(&negotiator);
    enrol_node_pair(&identity.pair);
    enrol_negotiator_hash(&negotiator, identity.negotiator_hash);
    identity.has_pair = true;
    identity.epoch = 1;
    struct key former = identity.node_key;
    connect_front(side, 6);
    greet(side, 1, 1);
    struct front_launcher_message message = rekey(&negotiator, 2, 3);
    CHECK(ask(side, &message));
    CHECK(heard(side, NULL).type == FL_REFUSED && !dialogue_is_over(&side->dialogue));
    CHECK(memcmp(&identity.node_key, &former, sizeof former) == 0);
    message = rekey(&negotiator, 1, 2);
    CHECK(ask(side, &message));
    message = heard(side, NULL);
    CHECK(message.type == FL_REKEYED && message.request == 55 && dialogue_is_over(&side->dialogue));
    CHECK(identity.epoch == 2 && memcmp(&identity.node_key, &former, sizeof former) != 0);
    CHECK(identity_read(&read, node_file, &err) && memcmp(&read.node_key, &identity.node_key, sizeof former) == 0);
    disconnect_front(side);
    connect_front(side, 7);
    CHECK(!dialogue_is_over(&side->dialogue));
    CHECK(ask(side, &(struct front_launcher_message){.type = FL_READY, .request = 1}));
    message = heard(side, NULL);
    CHECK(heard(side, NULL).type == FL_TEMPLATE);
    struct key link;
    key_link(&link, &identity.node_key, "sandboxd");
    CHECK(memcmp(&message.as.identity.link_from_node, &link, sizeof link) == 0);
    message = heard(side, NULL);
    key_sandbox_root(&root, &identity.node_key, message.as.sandbox.id);
    CHECK(message.type == FL_SANDBOX && memcmp(&message.as.sandbox.root, &root, sizeof root) == 0);
    disconnect_front(side);
}

/* A front that asks and never listens: what waits stays bounded, and it is given up in the end. */
static void test_deaf_front(struct side *side)
{
    struct error err = {0};
    connect_front(side, 6);
    greet(side, 1, 1);
    struct front_launcher_message message = destroy('z', "deleted");
    bool alive = true;
    for (int i = 0; i < 20000 && alive; i++) {
        CHECK(front_launcher_send(side->pair[1], &message, NULL, 0, &err));
        alive = dialogue_receive(&side->dialogue, &err) && dialogue_send(&side->dialogue, &err);
    }
    CHECK(!alive && strstr(err.message, "does not listen") != NULL);
    disconnect_front(side);
    connect_front(side, 7);
    greet(side, 1, 1);
    message = destroy('e', "released");
    CHECK(ask(side, &message));
    CHECK_TEXT(heard(side, NULL).as.ended.reason, "released");
    disconnect_front(side);
}

int main(void)
{
    make_stage();
    disk.storage.is_memory = true;
    struct side *side = open_side();
    connect_front(side, 1);
    greet(side, 0, 0);
    test_life(side);
    test_asked_end(side);
    test_refusals(side);
    test_ends(side);
    side = test_adoption(side);
    test_hostile_front(side);
    test_rekey(side);
    test_deaf_front(side);
    CHECK(side->sandboxes.count == 0);
    close_side(side);
    strike_stage();
    return check_done();
}
