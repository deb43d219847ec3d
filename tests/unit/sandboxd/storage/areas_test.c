/** areas_test.c - areas of each kind: made empty, held to their quota, changed, measured, found again, removed. */
#include "tests/unit/sandboxd/storage/fixture.h"

#include "shared/base/clock.h"

#include <sys/statfs.h>

enum { SLOT = 7, BASE = 1879048192 };

static const char *const KINDS[] = {"btrfs", "tmpfs", "folder"};

static uint32_t owner_of(int area, const char *name)
{
    struct stat status = {.st_uid = 4242};
    CHECK(fstatat(area, name, &status, AT_SYMLINK_NOFOLLOW) == 0);
    return status.st_uid;
}

static void check_layers(const struct storage_area *area)
{
    int fd = fixture_area(area);
    uint32_t owner = area->mount >= 0 ? BASE : 0;
    CHECK(fd >= 0);
    CHECK(owner_of(fd, "root/upper") == owner && owner_of(fd, "root/work") == owner);
    CHECK(owner_of(fd, "usr/upper") == owner && owner_of(fd, "usr/work") == owner);
    close(fd);
}

static void check_quota(struct storage *storage, const struct storage_area *area)
{
    struct error err = {0};
    uint64_t used = 0;
    int fd = fixture_area(area), why = 0;
    uint64_t went = fixture_fill(fd, "root/upper/a", 64 * MIB, &why);
    if (!storage_has_quota(storage)) {
        CHECK(went == 64 * MIB && why == 0);
        CHECK(!storage_area_limit(storage, area, 128 * MIB, &err) && err.kind == ERROR_INVALID);
        close(fd);
        return;
    }
    CHECK(why == ENOSPC || why == EDQUOT);
    CHECK(went > 24 * MIB && went <= 32 * MIB);
    CHECK(storage_area_usage(storage, area, &used, &err) && used > 24 * MIB && used <= 33 * MIB);
    CHECK(!storage_area_limit(storage, area, 8 * MIB, &err) && err.kind == ERROR_INVALID);
    CHECK(storage_area_limit(storage, area, 128 * MIB, &err));
    CHECK(fixture_fill(fd, "root/upper/b", 64 * MIB, &why) == 64 * MIB && why == 0);
    CHECK(unlinkat(fd, "root/upper/a", 0) == 0 && unlinkat(fd, "root/upper/b", 0) == 0);
    CHECK(syncfs(fd) == 0);
    CHECK(storage_area_usage(storage, area, &used, &err) && used < 4 * MIB);
    close(fd);
}

static void check_again_is_empty(struct storage *storage, struct storage_area *area)
{
    struct error err = {0};
    struct stat status;
    int fd = fixture_area(area), why = 0;
    CHECK(fixture_fill(fd, "root/upper/left", 4096, &why) == 4096);
    close(fd);
    storage_area_close(area);
    CHECK(storage_area_make(storage, SLOT, BASE, 32 * MIB, area, &err));
    fd = fixture_area(area);
    CHECK(fd >= 0 && fstatat(fd, "root/upper/left", &status, 0) < 0);
    close(fd);
}

static void test_area(const char *kind)
{
    struct error err = {0};
    struct storage_area area = STORAGE_AREA_NONE, found = STORAGE_AREA_NONE;
    struct storage *storage = fixture_open(kind, 2048 * MIB);
    CHECK(storage != NULL);
    if (storage == NULL)
        return;
    CHECK_TEXT(storage_kind(storage), kind);
    CHECK(storage_area_make(storage, SLOT, BASE, 32 * MIB, &area, &err));
    CHECK_TEXT(err.message, "");
    check_layers(&area);
    check_quota(storage, &area);
    check_again_is_empty(storage, &area);
    if (area.mount < 0) {
        CHECK(storage_area_adopt(storage, SLOT, BASE, -1, 0, &found, &err));
        CHECK_TEXT(found.path, area.path);
        CHECK(!storage_area_adopt(storage, SLOT + 1, BASE, -1, 0, &found, &err) && err.kind == ERROR_NOT_FOUND);
    }
    CHECK(storage_area_remove(storage, SLOT, &err));
    CHECK(storage_area_remove(storage, SLOT, &err)); /* of nothing */
    CHECK(area.mount >= 0 || access(area.path, F_OK) < 0);
    storage_area_close(&area);
    storage_close(storage);
}

static void test_refusals(void)
{
    struct error err = {0};
    struct storage_options options = {.kind = "floppy", .state_folder = fixture_state};
    CHECK(storage_open(&options, &err) == NULL && err.kind == ERROR_INVALID);
}

int main(void)
{
    bool has_btrfs = false;
    fixture_begin();
    has_btrfs = fixture_has_btrfs();
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (i > 0 || has_btrfs)
            test_area(KINDS[i]);
    }
    test_refusals();
    fixture_end();
    return check_done();
}
