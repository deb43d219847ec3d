/* parts_test.c - what a microVM is made of: found, put together, and told when it is missing. The kernel here is a
 * stand-in; tests/isolation boots a real one. */
#include "sandboxd/isolation/microvm/parts.h"

#include "sandboxd/isolation/microvm/microvm.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <sys/stat.h>

static const char *const DRIVERS[] = {"drivers/virtio/virtio_ring",
                                      "drivers/virtio/virtio",
                                      "drivers/virtio/virtio_mmio",
                                      "net/core/failover",
                                      "drivers/net/net_failover",
                                      "drivers/net/virtio_net",
                                      "fs/fuse/virtiofs"};
static char scratch[] = "/tmp/parley-parts-XXXXXX";
static const char *const ARGUMENTS[] = {"/bin/front", "--guest", NULL};
static const char *const ENVIRONMENT[] = {"PATH=/bin", NULL};
static const struct parts_front FRONT = {.arguments = ARGUMENTS, .environment = ENVIRONMENT};

static void write_file(const char *path, const char *text, mode_t mode)
{
    struct error err = {0};
    AUTO_FREE char *whole = memory_printf("%s/%s", scratch, path);
    AUTO_FREE char *folder = memory_printf("%.*s", (int)(strrchr(whole, '/') - whole), whole);
    CHECK(fd_make_folders(folder, 0755, &err) && fd_write_file(whole, mode, text, strlen(text), &err));
}

static void make_stand_ins(void)
{
    char path[128];
    write_file("boot/vmlinuz-6.1.0-x", "kernel", 0644);
    write_file("lib/modules/6.1.0-x/modules.builtin", "kernel/fs/fuse/fuse.ko\n", 0644);
    for (size_t i = 0; i < sizeof DRIVERS / sizeof DRIVERS[0]; i++) {
        snprintf(path, sizeof path, "lib/modules/6.1.0-x/kernel/%s.ko", DRIVERS[i]);
        write_file(path, DRIVERS[i], 0644);
    }
    write_file("bin/" MICROVM_PROGRAM, "monitor", 0755);
    write_file("bin/" MICROVM_PROGRAM "-boot", "boot program", 0755);
}

static void test_modules_lie_beside_the_kernel(void)
{
    struct error err = {0};
    AUTO_FREE char *installed = parts_find_modules("/boot/vmlinuz-6.1.0-56-cloud-amd64", &err);
    CHECK_TEXT(installed, "/boot/../lib/modules/6.1.0-56-cloud-amd64");
    static const char *const WRONG[] = {"vmlinuz-6.1",       "/boot/vmlinuz",      "/boot/vmlinuz-",
                                        "/boot/bzImage-6.1", "/boot/vmlinuz-../x", ""};
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        err = (struct error){0};
        CHECK(parts_find_modules(WRONG[i], &err) == NULL && err.kind == ERROR_INVALID);
    }
}

static void test_what_is_missing_is_named(void)
{
    struct error err = {0};
    const struct parts_settings unset = {.vmm = "qemu", .programs = "/nowhere"};
    CHECK(!parts_check(&unset, &err) && err.kind == ERROR_NOT_FOUND && strstr(err.message, "microvm_kernel"));
    const struct parts_settings unknown = {.kernel = "/boot/vmlinuz-1", .vmm = "other", .programs = "/nowhere"};
    CHECK(!parts_check(&unknown, &err) && err.kind == ERROR_INVALID && strstr(err.message, "other"));
    const struct parts_settings nowhere = {.kernel = "/nowhere/vmlinuz-1", .vmm = "qemu", .programs = "/nowhere"};
    CHECK(!parts_check(&nowhere, &err) && err.kind == ERROR_NOT_FOUND);
}

static bool contains(const char *bytes, size_t size, const char *text)
{
    return memmem(bytes, size, text, strlen(text) + 1) != NULL;
}

static void test_the_folder_holds_all(void)
{
    struct error err = {0};
    struct stat status;
    size_t size = 0;
    AUTO_FREE char *kernel = memory_printf("%s/boot/vmlinuz-6.1.0-x", scratch);
    AUTO_FREE char *programs = memory_printf("%s/bin", scratch);
    AUTO_FREE char *folder = memory_printf("%s/state/microvm", scratch);
    const struct parts_settings settings = {.kernel = kernel, .vmm = "qemu", .programs = programs};
    if (!parts_check(&settings, &err)) {
        printf("not here: %s\n", err.message); /* no QEMU */
        return;
    }
    CHECK(parts_make(&settings, &FRONT, folder, &err));
    AUTO_FREE char *initramfs = memory_printf("%s/" MICROVM_INITRAMFS, folder);
    AUTO_FREE char *monitor = memory_printf("%s/" MICROVM_PROGRAM, folder);
    AUTO_FREE char *bytes = fd_read_file(initramfs, 1 << 20, &size, &err);
    CHECK(bytes && size % 512 == 0);
    CHECK(bytes && contains(bytes, size, "modules/00-virtio_ring.ko") &&
          contains(bytes, size, "modules/07-virtiofs.ko"));
    CHECK(bytes && !contains(bytes, size, "modules/06-fuse.ko")); /* built in */
    CHECK(bytes && memmem(bytes, size, "/bin/front\0--guest", 19) != NULL);
    CHECK(bytes && memmem(bytes, size, "boot program", 12) != NULL);
    CHECK(stat(monitor, &status) == 0 && (status.st_mode & 0777) == 0755);
}

static void test_a_driver_that_is_missing_is_named(void)
{
    struct error err = {0};
    AUTO_FREE char *kernel = memory_printf("%s/boot/vmlinuz-6.1.0-x", scratch);
    AUTO_FREE char *programs = memory_printf("%s/bin", scratch);
    AUTO_FREE char *folder = memory_printf("%s/state/other", scratch);
    AUTO_FREE char *driver = memory_printf("%s/lib/modules/6.1.0-x/kernel/fs/fuse/virtiofs.ko", scratch);
    const struct parts_settings settings = {.kernel = kernel, .vmm = "qemu", .programs = programs};
    CHECK(unlink(driver) == 0);
    if (parts_check(&settings, &err))
        CHECK(!parts_make(&settings, &FRONT, folder, &err) && strstr(err.message, "virtiofs") != NULL);
}

int main(void)
{
    if (!mkdtemp(scratch))
        return 1;
    make_stand_ins();
    test_modules_lie_beside_the_kernel();
    test_what_is_missing_is_named();
    test_the_folder_holds_all();
    test_a_driver_that_is_missing_is_named();
    CHECK(fd_remove_tree(scratch, NULL));
    return check_done();
}
