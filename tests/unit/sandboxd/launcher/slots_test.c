/* Slots: two deployments never get the same one, none inside another's subuid range, no abandoned one is lost. */
#include "sandboxd/launcher/slots.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <sys/stat.h>

static char top[] = "/tmp/parley-slots-XXXXXX";
static char *folder, *etc, *one, *two;

static void put(const char *at, const char *name, const char *text)
{
    AUTO_FREE char *path = memory_printf("%s/%s", at, name);
    CHECK(fd_write_file(path, 0644, text, strlen(text), NULL));
}

static bool exists(uint32_t slot)
{
    AUTO_FREE char *path = memory_printf("%s/%u", folder, slot);
    return access(path, F_OK) == 0;
}

static mode_t mode_of(const char *path)
{
    struct stat status = {0};
    CHECK(stat(path, &status) == 0);
    return status.st_mode & 07777;
}

static void test_taking(void)
{
    struct error err = {0};
    struct slots a = {0};
    struct slots b = {0};
    /* Slots 0 and 1 overlap with alice's, 3 with bob's last id; junk lines block nothing. */
    put(etc, "subuid", "alice:1879048191:65538\njunk\n:::\nx:1879310336:0\n");
    put(etc, "subgid", "bob:1879310335:1\n");
    CHECK(mkdir(folder, 0755) == 0); /* an older release's */
    CHECK(slots_start(&a, folder, one, etc, &err));
    CHECK(slots_start(&b, folder, two, etc, &err));
    uint32_t slot = 0;
    CHECK(slots_take(&a, "sbx_a", &slot, &err) && slot == 2);
    CHECK(slots_take(&b, "sbx_b", &slot, &err) && slot == 4);
    CHECK(slots_take(&a, "sbx_c", &slot, &err) && slot == 5);
    CHECK(exists(2) && exists(4) && exists(5));
    AUTO_FREE char *lock = memory_printf("%s/2", folder);
    CHECK(mode_of(folder) == 0700 && mode_of(lock) == 0600); /* who has what is for root */
    CHECK(!slots_claim(&b, 2, "sbx_a", &err));
    CHECK(err.kind == ERROR_CONFLICT && strstr(err.message, one) != NULL);
    CHECK(!slots_claim(&b, SLOTS_COUNT, "sbx_a", &err));
    slots_release(&b, 2); /* not its own */
    CHECK(exists(2));
    slots_release(&a, 2);
    CHECK(!exists(2));
    CHECK(slots_take(&a, "sbx_d", &slot, &err) && slot == 6); /* not 2 at once again */
    /* A launcher that comes after finds its own. */
    struct slots after = {0};
    CHECK(slots_start(&after, folder, one, etc, &err));
    CHECK(slots_claim(&after, 5, "sbx_c", &err));
    CHECK(slots_release_stale(&after) == 1);
    CHECK(exists(5) && !exists(6) && exists(4));
    slots_done(&after);
    slots_done(&a);
    slots_done(&b);
}

static void test_abandoned(void)
{
    struct error err = {0};
    struct slots a = {0};
    put(folder, "100", "/no/such/state\nsbx_x\n");
    CHECK(slots_start(&a, folder, one, etc, &err));
    CHECK(!exists(100)); /* its deployment is gone */
    CHECK(exists(4));    /* two's folder is still there */
    slots_done(&a);
}

static void test_full(void)
{
    struct error err = {0};
    struct slots a = {0};
    put(etc, "subuid", "all:1879048192:262143999\n");
    CHECK(slots_start(&a, folder, one, etc, &err));
    uint32_t slot = 7777;
    CHECK(!slots_take(&a, "sbx_a", &slot, &err));
    CHECK(err.kind == ERROR_NO_CAPACITY && slot == 7777);
    slots_done(&a);
}

int main(void)
{
    CHECK(mkdtemp(top) != NULL);
    folder = memory_printf("%s/slots", top);
    etc = memory_printf("%s/etc", top);
    one = memory_printf("%s/one", top);
    two = memory_printf("%s/two", top);
    CHECK(mkdir(etc, 0755) == 0 && mkdir(one, 0755) == 0 && mkdir(two, 0755) == 0);
    test_taking();
    test_abandoned();
    test_full();
    CHECK(fd_remove_tree(top, NULL));
    free(folder);
    free(etc);
    free(one);
    free(two);
    return check_done();
}
