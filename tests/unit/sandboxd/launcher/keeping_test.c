/* What is done with a sandbox that lives: a snapshot of it, made, refused, given up, found after a restart; a sandbox
 * made of it; other limits, all or none; its usage; named volumes in use. */
#include "tests/unit/sandboxd/launcher/stage.h"

#include <sys/wait.h>

static const char SNAPSHOT[] = "snp_0123456789abcdefghij";
static const char OTHER[] = "snp_zzzzzzzzzzzzzzzzzzzz";

static struct side *start_stage(void)
{
    settings.slots_max = 20;
    struct side *side = open_side();
    connect_front(side, 1);
    CHECK(ask(side, &(struct front_launcher_message){.type = FL_READY, .request = 1}));
    while (heard(side, NULL).type != FL_ADOPTED) {
    }
    return side;
}

static struct front_launcher_message snapshot(char last, const char *name)
{
    struct front_launcher_message message = {.type = FL_SNAPSHOT, .request = 300U + (uint64_t)last};
    memcpy(message.as.snapshot.id, prepare(last).as.prepare.id, 32);
    memcpy(message.as.snapshot.snapshot, name, strlen(name));
    return message;
}

static struct front_launcher_message drop(const char *name)
{
    struct front_launcher_message message = {.type = FL_SNAPSHOT_DROP, .request = 400};
    memcpy(message.as.snapshot.snapshot, name, strlen(name));
    return message;
}

static struct front_launcher_message answered(struct side *side, struct front_launcher_message message)
{
    CHECK(ask(side, &message));
    return heard(side, NULL);
}

/* The errand is a process: its end is waited for as the loop would. */
static struct front_launcher_message awaited(struct side *side)
{
    struct front_launcher_message message = {.type = 0};
    for (int i = 0; i < 5000 && message.type == 0; i++) {
        turn(side);
        message = heard(side, NULL);
        usleep(2000);
    }
    return message;
}

static void make(struct side *side, char last)
{
    CHECK(answered(side, prepare(last)).type == FL_SANDBOX);
}

static bool is_recorded(const char *name)
{
    AUTO_FREE char *path = memory_printf("%s/%s", snapshot_records, name);
    return access(path, F_OK) == 0;
}

static void test_kept(struct side *side)
{
    make(side, 'a');
    disk.slow = true;
    struct front_launcher_message message = answered(side, snapshot('a', SNAPSHOT));
    CHECK(message.type == 0); /* nothing waits for it, and it is not told before it is durable */
    message = answered(side, snapshot('a', OTHER));
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_CONFLICT); /* one at a time */
    disk_let_on();
    message = awaited(side);
    CHECK(message.type == FL_KEPT && message.request == 300 + 'a' && message.as.kept.size_bytes == 12345);
    CHECK_TEXT(message.as.kept.snapshot, SNAPSHOT);
    CHECK_TEXT(message.as.kept.template_name, "base");
    CHECK_TEXT(message.as.kept.storage, "btrfs");
    CHECK(is_recorded(SNAPSHOT) && side->sandboxes.takings == 0);
    message = answered(side, snapshot('a', SNAPSHOT));
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_CONFLICT); /* the name is taken */
    message = answered(side, snapshot('z', OTHER));
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_NOT_FOUND);
    disk.slow = false;
}

/* Whatever ends it, neither half of it is left. */
static void test_not_kept(struct side *side)
{
    disk.slow = true;
    disk.job_fails = true;
    CHECK(answered(side, snapshot('a', OTHER)).type == 0);
    disk_let_on();
    struct front_launcher_message message = awaited(side);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_DISK_FULL && side->sandboxes.takings == 0);
    disk.job_fails = false;
    make(side, 'b');
    CHECK(answered(side, snapshot('b', OTHER)).type == 0);
    message = answered(side, destroy('b', "deleted")); /* its sandbox goes */
    CHECK(message.type == FL_REFUSED && message.request == 300 + 'b' && message.as.refused.kind == ERROR_GONE);
    CHECK(heard(side, NULL).type == FL_ENDED && side->sandboxes.takings == 0);
    CHECK(answered(side, snapshot('a', OTHER)).type == 0); /* nobody wants it any more, and it is being made still */
    CHECK(answered(side, drop("snp_yyyyyyyyyyyyyyyyyyyy")).type == FL_DONE && side->sandboxes.takings == 1);
    message = answered(side, drop(OTHER));
    CHECK(message.type == FL_REFUSED && message.request == 300 + 'a' && message.as.refused.kind == ERROR_CONFLICT);
    CHECK(heard(side, NULL).type == FL_DONE && side->sandboxes.takings == 0);
    CHECK(!disk_find(disk.snapshots, OTHER) && !is_recorded(OTHER) && !snapshots_find(&side->snapshots, OTHER));
    CHECK(answered(side, snapshot('a', OTHER)).type == 0);
    disconnect_front(side); /* who asked goes */
    CHECK(side->sandboxes.takings == 0 && !disk_find(disk.snapshots, OTHER) && !is_recorded(OTHER));
    connect_front(side, 2);
    CHECK(ask(side, &(struct front_launcher_message){.type = FL_READY, .request = 1}));
    while (heard(side, NULL).type != FL_ADOPTED) {
    }
    disk.slow = false;
    CHECK(answered(side, snapshot('a', OTHER)).type == 0 &&
          side->sandboxes.takings == 1); /* its record is being written */
    struct sandbox *a = find(side, 'a');
    CHECK(a && a->taking && a->taking->errand);
    usleep(100000); /* perhaps it is, perhaps not */
    disconnect_front(side);
    CHECK(!disk_find(disk.snapshots, OTHER) && !is_recorded(OTHER) && !snapshots_find(&side->snapshots, OTHER));
    connect_front(side, 3);
    CHECK(ask(side, &(struct front_launcher_message){.type = FL_READY, .request = 1}));
    while (heard(side, NULL).type != FL_ADOPTED) {
    }
}

static void test_made_of_one(struct side *side)
{
    struct front_launcher_message message = prepare('c');
    memcpy(message.as.prepare.snapshot, OTHER, sizeof OTHER);
    message = answered(side, message);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_NOT_FOUND);
    message = prepare('c');
    memcpy(message.as.prepare.snapshot, SNAPSHOT, sizeof SNAPSHOT);
    memcpy(message.as.prepare.template_name, "none", 5); /* not looked at */
    disk.slow = true;
    CHECK(answered(side, message).type == 0 && find(side, 'c')->state == SANDBOX_FILLING);
    message = answered(side, drop(SNAPSHOT)); /* it is being read */
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_CONFLICT);
    disk_let_on();
    message = awaited(side);
    CHECK(message.type == FL_SANDBOX && message.request == 'c');
    CHECK_TEXT(message.as.sandbox.template_name, "base");
    message = prepare('d');
    memcpy(message.as.prepare.snapshot, SNAPSHOT, sizeof SNAPSHOT);
    CHECK(answered(side, message).type == 0);
    sandboxes_wake(&side->sandboxes, UINT64_MAX - 1); /* too slow; those that live are past their deadline, too */
    message = awaited(side);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_TIMEOUT);
    turn(side);
    while (heard(side, NULL).type != 0) {
    }
    CHECK(find(side, 'd') == NULL);
    disk.slow = false;
}

static struct side *test_restart(struct side *side)
{
    disk_put(disk.snapshots, OTHER); /* a kill -9 before its record */
    AUTO_FREE char *alone = memory_printf("%s/snp_aaaaaaaaaaaaaaaaaaaa", snapshot_records);
    struct snapshot_record record = {
        .name = "snp_aaaaaaaaaaaaaaaaaaaa", .template_name = "base", .template_version = "base-1", .storage = "btrfs"};
    struct snapshot_record other_kind = record;
    memcpy(other_kind.name, "snp_bbbbbbbbbbbbbbbbbbbb", 25);
    memcpy(other_kind.storage, "tmpfs", 6);
    CHECK(snapshot_write(snapshot_records, &record, NULL) && snapshot_write(snapshot_records, &other_kind, NULL));
    disconnect_front(side);
    close_side(side);
    side = start_stage();
    CHECK(side->snapshots.count == 2 && snapshots_find(&side->snapshots, SNAPSHOT) != NULL);
    CHECK(access(alone, F_OK) < 0 && !disk_find(disk.snapshots, OTHER));
    struct front_launcher_message message = prepare('e');
    memcpy(message.as.prepare.snapshot, other_kind.name, sizeof SNAPSHOT);
    message = answered(side, message);
    CHECK(message.type == FL_REFUSED && strstr(message.as.refused.message, "made with storage tmpfs") != NULL);
    CHECK(snapshots_are_of(&side->snapshots, "base-1") && !snapshots_are_of(&side->snapshots, "base-2"));
    CHECK(answered(side, drop(other_kind.name)).type == FL_DONE);
    CHECK(answered(side, drop(SNAPSHOT)).type == FL_DONE && !is_recorded(SNAPSHOT));
    CHECK(answered(side, drop(SNAPSHOT)).type == FL_DONE); /* also when it is not there */
    disk_put(disk.snapshots, SNAPSHOT); /* made by a child that its launcher's kill -9 did not stop */
    CHECK(answered(side, drop(SNAPSHOT)).type == FL_DONE);
    CHECK(!disk_find(disk.snapshots, SNAPSHOT) && side->snapshots.count == 0);
    return side;
}

static void test_most_snapshots(struct side *side)
{
    make(side, 'f');
    char name[] = "snp_ccccccccccccccccccc0";
    for (int i = 0; i < 4; i++, name[23]++) {
        struct front_launcher_message kept = answered(side, snapshot('f', name)); /* unless the errand is quick */
        CHECK(kept.type == FL_KEPT || (kept.type == 0 && awaited(side).type == FL_KEPT));
    }
    struct front_launcher_message message = answered(side, snapshot('f', name));
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_NO_CAPACITY);
    for (int i = 0; i < 4; i++) {
        name[23]--;
        CHECK(answered(side, drop(name)).type == FL_DONE);
    }
}

static struct front_launcher_message limit(char last, struct fl_limits limits)
{
    struct front_launcher_message message = {.type = FL_LIMITS, .request = 500, .as.limits.limits = limits};
    memcpy(message.as.limits.id, prepare(last).as.prepare.id, 32);
    return message;
}

/* On this stage there are no networks: none is what all have, and more is an error, never dropped. */
static void test_networks(struct side *side)
{
    struct front_launcher_message change = {.type = FL_NETWORK, .request = 501};
    memcpy(change.as.network.id, prepare('f').as.prepare.id, 32);
    struct front_launcher_message message = answered(side, change);
    CHECK(message.type == FL_SANDBOX && message.request == 501 && message.as.sandbox.network.mode == FL_NETWORK_NONE);
    change.as.network.network.mode = FL_NETWORK_PUBLIC;
    message = answered(side, change);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_FORBIDDEN); /* no egress_max here */
    memcpy(change.as.network.id, prepare('z').as.prepare.id, 32);
    message = answered(side, change);
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_NOT_FOUND);
}

static void test_limits(struct side *side)
{
    const struct sandbox *f = find(side, 'f');
    uint32_t slot = f->record.slot;
    struct front_launcher_message message =
        answered(side, limit('f', (struct fl_limits){.memory_bytes = 128 << 20, .disk_bytes = 300 << 20}));
    CHECK(message.type == FL_SANDBOX && message.request == 500 && message.as.sandbox.limits.pids == 64);
    CHECK(message.as.sandbox.limits.memory_bytes == 128 << 20 && message.as.sandbox.limits.disk_bytes == 300 << 20);
    CHECK(fake.limits[slot].memory_bytes == 128 << 20 && fake.limits[slot].cpu_milli == 1000);
    CHECK(disk.areas[slot] == 300 << 20);
    struct record record;
    CHECK(record_read(records, slot, &record, NULL) && record.limits.memory_bytes == 128 << 20);
    message = answered(side, limit('f', (struct fl_limits){.cpu_milli = 1}));
    CHECK(message.type == FL_REFUSED &&
          strstr(message.as.refused.message, "cpu (in thousandths) must be 50..2000") != NULL);
    fake.limit_fails = true; /* the kernel will not have one of them: none is changed */
    message = answered(side, limit('f', (struct fl_limits){.memory_bytes = 16 << 20, .disk_bytes = 200 << 20}));
    CHECK(message.type == FL_REFUSED && strstr(message.as.refused.message, "memory is in use") != NULL);
    CHECK(disk.areas[slot] == 300 << 20 && f->record.limits.memory_bytes == 128 << 20);
    CHECK(answered(side, limit('f', (struct fl_limits){.open_files = 64, .commands = 2})).type == FL_SANDBOX);
    CHECK(f->record.limits.open_files == 64 && f->record.limits.commands == 2); /* the kernel was not asked */
    fake.limit_fails = false;
    disk.limit_fails = true;
    message = answered(side, limit('f', (struct fl_limits){.memory_bytes = 64 << 20, .disk_bytes = 1 << 20}));
    CHECK(message.type == FL_REFUSED && strstr(message.as.refused.message, "disk is in use") != NULL);
    CHECK(fake.limits[slot].memory_bytes == 128 << 20);
    disk.limit_fails = false;
    struct front_launcher_message usage = {.type = FL_USAGE, .request = 600};
    memcpy(usage.as.name.id, prepare('f').as.prepare.id, 32);
    message = answered(side, usage);
    CHECK(message.type == FL_USED && message.as.used.disk_bytes == 4096 + slot);
    usage.as.name.id[23] = 'q';
    CHECK(answered(side, usage).type == FL_REFUSED);
}

static void test_root(struct side *side)
{
    struct front_launcher_message message = prepare('g');
    message.as.prepare.root_allowed = 1;
    message = answered(side, message);
    CHECK(message.type == FL_SANDBOX && message.as.sandbox.root_allowed == 0 && !fake.life.root_allowed);
    settings.root_user = (char[]){"allowed"};
    message = prepare('h');
    message.as.prepare.root_allowed = 1;
    message = answered(side, message);
    CHECK(message.type == FL_SANDBOX && message.as.sandbox.root_allowed == 1 && fake.life.root_allowed);
    message = answered(side, prepare('i'));
    CHECK(message.type == FL_SANDBOX && message.as.sandbox.root_allowed == 0);
}

static struct front_launcher_message drop_volume(const char *owner, const char *name)
{
    struct front_launcher_message message = {.type = FL_VOLUME_DROP, .request = 700};
    memcpy(message.as.volume_drop.owner, owner, strlen(owner));
    memcpy(message.as.volume_drop.source, name, strlen(name));
    return message;
}

static void test_volumes(struct side *side)
{
    struct front_launcher_message message = prepare('j');
    struct fl_volume *volume = &message.as.prepare.volumes[0];
    message.as.prepare.volume_count = 1;
    volume->kind = FL_VOLUME_NAMED;
    memcpy(volume->owner, "abc", 4);
    memcpy(volume->source, "data", 5);
    memcpy(volume->path, "/data", 6);
    CHECK(answered(side, message).type == FL_SANDBOX && fake.life.volume_count == 1);
    message = answered(side, drop_volume("abc", "data"));
    CHECK(message.type == FL_REFUSED && message.as.refused.kind == ERROR_CONFLICT);
    CHECK(answered(side, drop_volume("abd", "data")).type == FL_DONE); /* another's of that name: there is none */
    CHECK(answered(side, destroy('j', "deleted")).type == FL_ENDED);
    CHECK(answered(side, drop_volume("abc", "data")).type == FL_DONE && disk_find(disk.volumes, "") == disk.volumes[0]);
}

static struct front_launcher_message prepare_with(char last, const char *first, const char *second)
{
    struct front_launcher_message message = prepare(last);
    const char *const names[] = {first, second};
    message.as.prepare.volume_count = 2;
    for (size_t i = 0; i < 2; i++) {
        struct fl_volume *volume = &message.as.prepare.volumes[i];
        volume->kind = FL_VOLUME_NAMED;
        CHECK(text_copy(volume->owner, sizeof volume->owner, "abc") &&
              text_copy(volume->source, sizeof volume->source, names[i]) &&
              text_format(volume->path, sizeof volume->path, "/%s", names[i]));
    }
    return message;
}

static bool has_volume(const char *source)
{
    char name[STORAGE_NAME_BYTES];
    attachments_disk_name(name, "abc", source);
    return disk_find(disk.volumes, name) != NULL;
}

/* A sandbox that never was leaves no volume that was made for it, and takes away none that was there. */
static void test_volumes_in_vain(struct side *side)
{
    CHECK(answered(side, prepare_with('k', "there", "too")).type == FL_SANDBOX);
    CHECK(answered(side, destroy('k', "deleted")).type == FL_ENDED);
    struct front_launcher_message message = prepare_with('l', "there", "new");
    fake.become_fails = true;
    CHECK(answered(side, message).type == FL_REFUSED && has_volume("there") && has_volume("too") && !has_volume("new"));
    fake.become_fails = false;
    message = prepare_with('m', "new", "there");
    message.as.prepare.volumes[1].kind = FL_VOLUME_HOST;
    CHECK(text_copy(message.as.prepare.volumes[1].source, FRONT_LAUNCHER_PATH_BYTES, "/etc"));
    CHECK(answered(side, message).type == FL_REFUSED && has_volume("there") && !has_volume("new"));
    CHECK(answered(side, prepare_with('l', "there", "new")).type == FL_SANDBOX && has_volume("new"));
    CHECK(answered(side, destroy('l', "deleted")).type == FL_ENDED && has_volume("new"));
}

int main(void)
{
    make_stage();
    struct side *side = start_stage();
    test_kept(side);
    test_not_kept(side);
    test_made_of_one(side);
    side = test_restart(side);
    test_most_snapshots(side);
    test_limits(side);
    test_networks(side);
    test_root(side);
    test_volumes(side);
    test_volumes_in_vain(side);
    disconnect_front(side);
    close_side(side);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++)
        CHECK(fake_remove(slot, NULL));
    strike_stage();
    return check_done();
}
