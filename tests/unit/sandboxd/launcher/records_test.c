/* Records: what was written comes back; cut, damaged, moved, half-written or another boot's is refused. */
#include "sandboxd/launcher/records.h"

#include "sandboxd/launcher/slots.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <fcntl.h>

static char folder[] = "/tmp/parley-records-XXXXXX";

static struct record sample(void)
{
    struct record record = {.state = RECORD_LIVE,
                            .slot = 12,
                            .uid_base = slots_uid(12),
                            .init_pid = 4711,
                            .init_start = 99,
                            .id = "sbx_0123456789abcdefghij",
                            .hostname = "box",
                            .template_name = "base",
                            .template_version = "base-1",
                            .isolation = "namespaces",
                            .storage = "btrfs",
                            .uid = 1000,
                            .gid = 1000,
                            .epoch = 3,
                            .env = "A=1\0B=2"};
    return record;
}

static void put(uint32_t slot, const void *bytes, size_t size)
{
    AUTO_FREE char *path = memory_printf("%s/%u", folder, slot);
    CHECK(fd_write_file(path, 0600, bytes, size, NULL));
}

static bool refused(uint32_t slot, const char *word)
{
    struct error err = {0};
    struct record record = {.slot = 4444};
    bool read = record_read(folder, slot, &record, &err);
    bool said = !read && err.kind == ERROR_INVALID && strstr(err.message, word) && record.slot == 4444;
    if (!said)
        fprintf(stderr, "read %d: %s\n", read, err.message);
    return said;
}

static void test_damage(void)
{
    struct error err = {0};
    struct record record = sample();
    struct record again = {0};
    CHECK(record_write(folder, &record, &err));
    CHECK(record_read(folder, 12, &again, &err));
    CHECK(memcmp(&record, &again, sizeof record) == 0);
    for (size_t cut = 0; cut < sizeof record; cut += 61) {
        put(12, &record, cut);
        CHECK(refused(12, "damaged"));
    }
    for (size_t at = 0; at < sizeof record; at += 7) {
        struct record damaged = record;
        ((uint8_t *)&damaged)[at] ^= 0x20;
        put(12, &damaged, sizeof damaged);
        CHECK(refused(12, "damaged"));
    }
    char longer[2 * sizeof record + 1] = "";
    memcpy(longer, &record, sizeof record);
    put(12, longer, sizeof longer);
    CHECK(refused(12, "too long"));
    put(13, &record, sizeof record); /* whole, but of another slot */
    CHECK(refused(13, "damaged"));
    record_remove(folder, 13);
    CHECK(!record_read(folder, 13, &again, &err));
    CHECK(err.kind == ERROR_NOT_FOUND);
}

static void test_boot_and_values(void)
{
    struct error err = {0};
    struct record record = sample();
    record.uid_base = 0; /* its checksum is right, and root it must not be */
    CHECK(record_write(folder, &record, &err));
    CHECK(refused(12, "damaged"));
    record = sample();
    record.init_pid = 1;
    CHECK(record_write(folder, &record, &err));
    CHECK(refused(12, "damaged"));
    record = sample();
    record.state = RECORD_STARTING;
    record.init_pid = 0;
    CHECK(record_write(folder, &record, &err));
    CHECK(record_read(folder, 12, &record, &err));
    CHECK(record.epoch == 3 && memcmp(record.env, "A=1\0B=2\0", 9) == 0);
    record = sample();
    record.state = RECORD_WARM;
    CHECK(record_write(folder, &record, &err)); /* of the pool, and yet somebody's */
    CHECK(refused(12, "damaged"));
    memset(record.id, 0, sizeof record.id);
    CHECK(record_write(folder, &record, &err));
    CHECK(record_count(folder, RECORD_WARM) == 1 && record_count(folder, RECORD_LIVE) == 0);
    record.state = RECORD_LIVE;
    CHECK(record_write(folder, &record, &err)); /* nobody's */
    CHECK(refused(12, "damaged"));
    record = sample();
    record.epoch = 0;
    CHECK(record_write(folder, &record, &err));
    CHECK(refused(12, "damaged"));
    record = sample();
    memcpy(record.env, "A-1", 4);
    CHECK(record_write(folder, &record, &err));
    CHECK(refused(12, "damaged"));
    record = sample();
    memcpy(record.id, "../../etc/passwd", 17);
    CHECK(record_write(folder, &record, &err));
    CHECK(refused(12, "damaged"));
}

/* The file of a slot after `writes` of epochs 1, 2, ..; its size. */
static size_t written(uint8_t bytes[2 * sizeof(struct record)], uint32_t writes)
{
    record_remove(folder, 12);
    for (uint32_t epoch = 1; epoch <= writes; epoch++) {
        struct record record = sample();
        record.epoch = epoch;
        CHECK(record_write(folder, &record, NULL));
    }
    AUTO_FREE char *path = memory_printf("%s/12", folder);
    size_t size = 0;
    AUTO_FREE char *read = fd_read_file(path, 2 * sizeof(struct record), &size, NULL);
    if (read)
        memcpy(bytes, read, size);
    return size;
}

static uint32_t epoch_read(void)
{
    struct record record = {0};
    return record_read(folder, 12, &record, NULL) ? record.epoch : 0;
}

/* A write that a kill -9 cut anywhere leaves the record of before. */
static void test_torn_write(void)
{
    static uint8_t before[2 * sizeof(struct record)], after[2 * sizeof(struct record)];
    for (uint32_t writes = 1; writes < 520; writes += writes < 6 ? 1 : 257) { /* the turn's one byte comes round */
        size_t had = written(before, writes), has = written(after, writes + 1);
        CHECK(epoch_read() == writes + 1 && has == sizeof after && had == (writes == 1 ? has / 2 : has));
        size_t from = writes % 2 ? sizeof(struct record) : 0;
        for (size_t done = 1; done < sizeof(struct record); done += 911) {
            uint8_t torn[sizeof after];
            memcpy(torn, before, had);
            memcpy(torn + from, after + from, done);
            put(12, torn, had > from + done ? had : from + done);
            CHECK(epoch_read() == writes);
            struct record record = sample();
            record.epoch = writes + 7;
            CHECK(record_write(folder, &record, NULL) && epoch_read() == writes + 7);
        }
    }
    record_remove(folder, 12);
    struct record record = sample();
    CHECK(record_write(folder, &record, NULL));
}

static void test_network(void)
{
    static const char ID[] = "sbx_0123456789abcdefghij";
    struct error err = {0};
    struct network_record record = {.slot = 12, .is_pending = 1, .network = {.mode = FL_NETWORK_ALLOW, .net_count = 1}};
    struct network_record read = {0};
    memcpy(record.id, ID, sizeof ID);
    memcpy(record.network.names, "a.example", 10);
    CHECK(!record_read_network(folder, 12, ID, &read, &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(record_write_network(folder, &record, &err) && record_read_network(folder, 12, ID, &read, &err));
    CHECK(memcmp(&read, &record, sizeof read) == 0);
    record.is_pending = 0; /* in its place */
    CHECK(record_write_network(folder, &record, &err) && record_read_network(folder, 12, ID, &read, &err));
    CHECK(read.is_pending == 0);
    CHECK(!record_read_network(folder, 12, "sbx_aaaaaaaaaaaaaaaaaaaa", &read, &err) && err.kind == ERROR_NOT_FOUND);
    for (size_t at = 0; at < sizeof record; at += 997) { /* one bit of it anywhere, or its end */
        struct network_record damaged = record;
        ((uint8_t *)&damaged)[at] ^= 4;
        AUTO_FREE char *path = memory_printf("%s/12.network", folder);
        CHECK(fd_write_file(path, 0600, &damaged, sizeof damaged, NULL));
        CHECK(!record_read_network(folder, 12, ID, &read, &err) && err.kind == ERROR_INVALID);
        CHECK(fd_write_file(path, 0600, &record, at, NULL));
        CHECK(!record_read_network(folder, 12, ID, &read, &err) && err.kind == ERROR_INVALID);
    }
    CHECK(record_write_network(folder, &record, &err));
    record_remove(folder, 12); /* with the record, whether that is there or not */
    CHECK(!record_read_network(folder, 12, ID, &read, &err) && err.kind == ERROR_NOT_FOUND);
}

static void test_list(void)
{
    uint32_t slots[8] = {0};
    put(3999, "x", 1);
    AUTO_FREE char *half = memory_printf("%s/7.new", folder);
    CHECK(fd_write_file(half, 0600, "x", 1, NULL));
    AUTO_FREE char *beyond = memory_printf("%s/4000", folder);
    CHECK(fd_write_file(beyond, 0600, "x", 1, NULL));
    size_t count = record_list(folder, slots, 8);
    CHECK(count == 2);
    CHECK((slots[0] == 12 && slots[1] == 3999) || (slots[0] == 3999 && slots[1] == 12));
    CHECK(access(half, F_OK) < 0);
    CHECK(record_list("/no/such/folder", slots, 8) == 0);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    test_network();
    test_damage();
    test_boot_and_values();
    test_torn_write();
    test_list();
    CHECK(fd_remove_tree(folder, NULL));
    return check_done();
}
