/** space_test.c - what one sandbox's files took for their trees is everybody's again when they are gone: btrfs gives a
 *  chunk to trees or to data, and by itself takes one back only when nothing at all is left in it. */
#include "tests/unit/sandboxd/storage/fixture.h"

#include <btrfsutil.h>
#include <sys/xattr.h>
#include <time.h>

enum { BULK = 1, NEIGHBOUR = 2, BASE = 1879048192, FILES = 16000, EVERY = 100, VALUE = 3900, TRIES = 600 };

static uint64_t bytes_of_trees(void)
{
    char command[200], line[32] = "";
    snprintf(command, sizeof command,
             "cat /sys/fs/btrfs/$(findmnt -n -o UUID %s/sandboxd/storage/pool)/allocation/metadata/total_bytes",
             fixture_state);
    FILE *answer = popen(command, "r");
    CHECK(answer != NULL && fgets(line, sizeof line, answer) != NULL);
    CHECK(pclose(answer) == 0);
    return strtoull(line, NULL, 10);
}

/* 12 KiB of trees and no data. */
static void make_file(int folder, int number)
{
    static const char value[VALUE] = "x";
    char path[64];
    snprintf(path, sizeof path, "root/upper/%d", number);
    int fd = openat(folder, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    CHECK(fsetxattr(fd, "user.a", value, VALUE, 0) == 0 && fsetxattr(fd, "user.b", value, VALUE, 0) == 0 &&
          fsetxattr(fd, "user.c", value, VALUE, 0) == 0);
    close(fd);
}

static void test_trees_are_given_back(struct storage *storage)
{
    struct error err = {0};
    struct storage_area bulk = STORAGE_AREA_NONE, neighbour = STORAGE_AREA_NONE;
    CHECK(storage_area_make(storage, BULK, BASE, 900 * MIB, &bulk, &err));
    CHECK(storage_area_make(storage, NEIGHBOUR, BASE, 100 * MIB, &neighbour, &err));
    int of_bulk = fixture_area(&bulk), of_neighbour = fixture_area(&neighbour);
    for (int i = 0; i < FILES; i++) {
        make_file(of_bulk, i);
        if (i % EVERY == 0)
            make_file(of_neighbour, i);
        if (i % (FILES / 16) == 0)
            CHECK(btrfs_util_sync_fd(of_neighbour) == BTRFS_UTIL_OK); /* so that they lie among each other */
    }
    uint64_t most = bytes_of_trees(), now = most;
    CHECK(most > 192 * MIB);
    close(of_bulk);
    CHECK(storage_area_remove(storage, BULK, &err));
    for (int i = 0; i < TRIES && now > most - 64 * MIB; i++) {
        CHECK(btrfs_util_sync_fd(of_neighbour) == BTRFS_UTIL_OK); /* wakes what cleans */
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        now = bytes_of_trees();
    }
    printf("trees had %llu MiB, now %llu\n", (unsigned long long)(most / MIB), (unsigned long long)(now / MIB));
    CHECK(now <= most - 64 * MIB);
    close(of_neighbour);
    CHECK(storage_area_remove(storage, NEIGHBOUR, &err));
}

int main(void)
{
    fixture_begin();
    if (!fixture_has_btrfs())
        check_skip("no btrfs");
    struct storage *storage = fixture_open("btrfs", 1024 * MIB);
    CHECK(storage != NULL);
    CHECK(storage == NULL || bytes_of_trees() > 64 * MIB); /* mkfs.btrfs leaves 8: see btrfs_space_prepare */
    if (storage)
        test_trees_are_given_back(storage);
    storage_close(storage);
    fixture_end();
    return check_done();
}
