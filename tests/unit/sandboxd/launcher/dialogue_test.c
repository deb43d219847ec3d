/* A whole conversation between a front and the launcher's half, over a fake backend that makes nothing: adoption, make,
 * make again, refuse, destroy, crash, deadline, capacity, a new front, a hostile front. */
#include "sandboxd/launcher/dialogue.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* --- a backend of eventfds: a slot lives while its eventfd is not readable --- */

static struct {
    int ended[SLOTS_COUNT]; /* -1: nothing in the slot */
    int busy;               /* how often remove says "not yet" */
    bool failing;
    bool no_descriptors; /* adopt cannot open what it needs, though the slot lives */
} fake;

static bool fake_fill(struct isolation_sandbox *made, uint32_t slot)
{
    *made = ISOLATION_NONE;
    made->init_pid = (pid_t)(1000 + slot);
    made->init_start = 5;
    made->init = dup(fake.ended[slot]);
    for (size_t i = 0; i < ISOLATION_STATS; i++)
        made->stats[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return true;
}

static bool fake_begin(const struct isolation_plan *plan, struct isolation_sandbox *made, struct error *err)
{
    if (fake.failing)
        return error_set(err, ERROR_INTERNAL, "fake failure");
    fake.ended[plan->slot] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fake_fill(made, plan->slot);
    made->birth = eventfd(1, EFD_CLOEXEC);
    return true;
}

static int fake_is_warm(uint32_t slot, struct isolation_sandbox *made, struct error *err)
{
    (void)slot;
    (void)made;
    (void)err;
    return 1;
}

static bool fake_become(uint32_t slot, uint32_t uid_base, struct isolation_sandbox *warm,
                        const struct isolation_life *life, struct error *err)
{
    (void)slot;
    (void)uid_base;
    (void)warm;
    (void)life;
    (void)err;
    return true;
}

static int fake_is_ready(struct isolation_sandbox *made, struct error *err)
{
    (void)err;
    close(made->birth);
    made->birth = -1;
    return 1;
}

static bool fake_adopt(uint32_t slot, pid_t pid, uint64_t start, struct isolation_sandbox *found, struct error *err)
{
    if (fake.ended[slot] < 0 || pid != (pid_t)(1000 + slot) || start != 5)
        return error_set(err, ERROR_NOT_FOUND, "gone");
    if (fake.no_descriptors)
        return error_set(err, ERROR_INTERNAL, "too many open files");
    return fake_fill(found, slot);
}

static bool fake_kill(uint32_t slot, struct error *err)
{
    (void)err;
    uint64_t one = 1;
    if (fake.ended[slot] >= 0)
        (void)!write(fake.ended[slot], &one, sizeof one);
    return true;
}

static bool fake_remove(uint32_t slot, struct error *err)
{
    if (fake.busy > 0) {
        fake.busy--;
        return error_set(err, ERROR_STARTING, "still dies");
    }
    if (fake.ended[slot] >= 0)
        close(fake.ended[slot]);
    fake.ended[slot] = -1;
    return true;
}

static size_t fake_list(uint32_t *slots, size_t max)
{
    size_t count = 0;
    for (uint32_t slot = 0; slot < SLOTS_COUNT && count < max; slot++) {
        if (fake.ended[slot] >= 0)
            slots[count++] = slot;
    }
    return count;
}

static const struct isolation_backend BACKEND = {.name = "namespaces",
                                                 .begin = fake_begin,
                                                 .is_warm = fake_is_warm,
                                                 .become = fake_become,
                                                 .is_ready = fake_is_ready,
                                                 .adopt = fake_adopt,
                                                 .kill = fake_kill,
                                                 .remove = fake_remove,
                                                 .list = fake_list};

/* --- the launcher's half and the front's end --- */

static char top[] = "/tmp/parley-dialogue-XXXXXX";
static char *state, *locks, *records, *run, *node_file;
static struct settings settings = {.max_lifetime = 3600,
                                   .cpu_milli_max = 2000,
                                   .memory_mb_max = 1024,
                                   .disk_mb_max = 1024,
                                   .pids_max = 500,
                                   .slots_max = 3};
static struct identity identity = {.node = "n1", .deployment = "dep", .negotiator_url = "http://127.0.0.1:8700"};

struct side {
    struct slots slots;
    struct sandboxes sandboxes;
    struct dialogue dialogue;
    int pair[2]; /* [0] the launcher's */
};

static bool watch_nothing(void *context, uint32_t slot, int pidfd, struct error *err)
{
    (void)context;
    (void)slot;
    (void)err;
    return pidfd >= 0;
}

static void connect_front(struct side *side, uint64_t incarnation)
{
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, side->pair) == 0);
    dialogue_begin(&side->dialogue, side->pair[0], incarnation);
}

static void disconnect_front(struct side *side)
{
    dialogue_end(&side->dialogue);
    close(side->pair[0]);
    close(side->pair[1]);
}

static bool start_side(struct side *side, struct error *err)
{
    struct sandboxes_house house = {.backend = &BACKEND,
                                    .run_folder = run,
                                    .record_folder = records,
                                    .skeleton = "/",
                                    .front_group = getgid(),
                                    .init_program = -1,
                                    .max = (uint32_t)settings.slots_max,
                                    .watch = {.add = watch_nothing}};
    CHECK(slots_start(&side->slots, locks, state, top, err));
    return sandboxes_start(&side->sandboxes, &house, &side->slots, err);
}

static struct side *open_side(void)
{
    struct error err = {0};
    struct side *side = memory_new(sizeof *side);
    CHECK(start_side(side, &err));
    dialogue_init(&side->dialogue, &settings, &identity, node_file, &side->sandboxes);
    return side;
}

static void close_side(struct side *side)
{
    sandboxes_done(&side->sandboxes);
    slots_done(&side->slots);
    free(side);
}

static void turn(struct side *side)
{
    struct error err = {0};
    CHECK(dialogue_receive(&side->dialogue, &err));
    CHECK(dialogue_send(&side->dialogue, &err));
}

static bool ask(struct side *side, const struct front_launcher_message *message)
{
    struct error err = {0};
    bool sent = front_launcher_send(side->pair[1], message, NULL, 0, &err);
    turn(side);
    return sent;
}

/* The next message at the front's end; type 0 when there is none. */
static struct front_launcher_message heard(const struct side *side, size_t *fd_count)
{
    struct error err = {0};
    struct front_launcher_message message = {0};
    int fds[FL_FDS];
    size_t count = 0;
    if (front_launcher_receive(side->pair[1], &message, FL_FROM_LAUNCHER, fds, &count, &err) != 1) {
        CHECK(err.system_errno == EAGAIN);
        message.type = 0;
    }
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    if (fd_count)
        *fd_count = count;
    return message;
}

static struct front_launcher_message prepare(char last)
{
    struct front_launcher_message message = {.type = FL_PREPARE, .request = (uint64_t)last};
    struct fl_prepare *as = &message.as.prepare;
    memcpy(as->id, "sbx_0123456789abcdefghi", 24);
    as->id[23] = last;
    memcpy(as->hostname, "box", 4);
    memcpy(as->template_name, "base", 5);
    memcpy(as->isolation, "auto", 5);
    as->limits = (struct fl_limits){.cpu_milli = 1000, .pids = 64, .memory_bytes = 64 << 20};
    as->deadline_wall_ms = clock_wall_ms() + 60000;
    as->epoch = 2;
    memcpy(as->env, "LETTER=?", 9);
    as->env[7] = last;
    return message;
}

static struct front_launcher_message destroy(char last, const char *reason)
{
    struct front_launcher_message message = {.type = FL_DESTROY, .request = 100U + (uint64_t)last};
    memcpy(message.as.destroy.id, prepare(last).as.prepare.id, 32);
    memcpy(message.as.destroy.reason, reason, strlen(reason));
    return message;
}

static void greet(struct side *side, unsigned expected_sandboxes, unsigned expected_ends)
{
    CHECK(ask(side, &(struct front_launcher_message){.type = FL_READY, .request = 1}));
    struct front_launcher_message message = heard(side, NULL);
    CHECK(message.type == FL_IDENTITY && strcmp(message.as.identity.node, "n1") == 0);
    CHECK(message.as.identity.incarnation > 0);
    CHECK(memcmp(&message.as.identity.link_to_node, &message.as.identity.link_from_node, KEY_BYTES) != 0);
    size_t count = 0;
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
    sandboxes_init_ended(&side->sandboxes, x->record.slot);
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
    CHECK(c && d && c->handle.stats[0] < 0 && c->handle.stats[5] >= 0); /* only what the end needs stays open */
    sandboxes_init_ended(&side->sandboxes, c->record.slot);             /* an event of an earlier one: nothing */
    CHECK(side->sandboxes.count == 3);
    CHECK(fake_kill(c->record.slot, NULL));
    sandboxes_init_ended(&side->sandboxes, c->record.slot);
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
    struct record half = {
        .state = RECORD_STARTING, .slot = 80, .uid_base = slots_uid(80), .id = "sbx_aaaaaaaaaaaaaaaaaaaa", .epoch = 1};
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
    if (geteuid() != 0)
        check_skip("needs root (folders are given to root)");
    keys_start();
    memset(fake.ended, 0xff, sizeof fake.ended);
    CHECK(mkdtemp(top) != NULL);
    state = memory_printf("%s/state", top);
    locks = memory_printf("%s/locks", top);
    records = memory_printf("%s/records", top);
    run = memory_printf("%s/run", top);
    node_file = memory_printf("%s/node.json", top);
    CHECK(mkdir(state, 0700) == 0 && mkdir(records, 0700) == 0 && mkdir(run, 0711) == 0);
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
    CHECK(fd_remove_tree(top, NULL));
    char *texts[] = {state, locks, records, run, node_file};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    return check_done();
}
