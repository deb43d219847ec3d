/* parts.c - see parts.h. */
#include "sandboxd/isolation/microvm/parts.h"

#include "sandboxd/isolation/microvm/boot/boot.h"
#include "sandboxd/isolation/microvm/initramfs.h"
#include "sandboxd/isolation/microvm/microvm.h"
#include "sandboxd/isolation/microvm/vmm.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KERNEL_BYTES_MAX = 128 * 1024 * 1024, PROGRAM_BYTES_MAX = 64 * 1024 * 1024, LIST_BYTES_MAX = 4 * 1024 * 1024 };

#define FILE_SERVER "/usr/lib/qemu/virtiofsd"

/* In the order in which each finds what it needs. One that the kernel has built in is left out. */
static const char *const MODULES[] = {"drivers/virtio/virtio_ring",
                                      "drivers/virtio/virtio",
                                      "drivers/virtio/virtio_mmio",
                                      "net/core/failover",
                                      "drivers/net/net_failover",
                                      "drivers/net/virtio_net",
                                      "fs/fuse/fuse",
                                      "fs/fuse/virtiofs"};

/* --- where they are --- */

char *parts_find_modules(const char *kernel, struct error *err)
{
    static const char PREFIX[] = "vmlinuz-";
    const char *slash = strrchr(kernel, '/');
    const char *version = slash ? slash + sizeof PREFIX : NULL;
    if (!version || kernel[0] != '/' || !text_starts_with(slash + 1, PREFIX) || !text_is_name(version, 128)) {
        error_set(err, ERROR_INVALID,
                  "microvm_kernel: \"%.96s\" is no absolute path of a vmlinuz-VERSION, with ../lib/modules/VERSION",
                  kernel);
        return NULL;
    }
    return memory_printf("%.*s/../lib/modules/%s", (int)(slash - kernel), kernel, version);
}

static bool check_file(const char *path, int access_mode, const char *what, const char *how, struct error *err)
{
    return access(path, access_mode) == 0 || error_set(err, ERROR_NOT_FOUND, "%s: no %.96s; %s", what, path, how);
}

static char *name_program(const struct parts_settings *settings, const char *name)
{
    return memory_printf("%s/%s", settings->programs, name);
}

static bool check_programs(const struct parts_settings *settings, struct error *err)
{
    const struct vmm *vmm = vmm_find(settings->vmm, err);
    if (!vmm)
        return false;
    char how[96];
    snprintf(how, sizeof how, "apt-get install %s", vmm->package);
    AUTO_FREE char *monitor = name_program(settings, MICROVM_PROGRAM);
    AUTO_FREE char *boot = name_program(settings, MICROVM_PROGRAM "-boot");
    static const char OURS[] = "it is built and installed with parley-sandboxd";
    return check_file(vmm->program, X_OK, "microvm_vmm", how, err) &&
           check_file(FILE_SERVER, X_OK, "file server", "apt-get install qemu-system-common", err) &&
           check_file(monitor, X_OK, "isolation microvm", OURS, err) &&
           check_file(boot, X_OK, "isolation microvm", OURS, err);
}

bool parts_check(const struct parts_settings *settings, struct error *err)
{
    static const char HOW[] = "scripts/microvm-kernel DIR unpacks Debian's";
    if (!settings->kernel)
        return error_set(err, ERROR_NOT_FOUND, "microvm_kernel is not set: the path of a vmlinuz; %s", HOW);
    AUTO_FREE char *modules = parts_find_modules(settings->kernel, err);
    return modules && check_programs(settings, err) && check_file(settings->kernel, R_OK, "microvm_kernel", HOW, err) &&
           check_file(modules, R_OK | X_OK, "microvm_kernel", HOW, err);
}

/* --- the initramfs --- */

/* "kernel/fs/fuse/fuse.ko" is a line of modules.builtin. */
static bool is_built_in(const char *list, const char *module)
{
    AUTO_FREE char *line = memory_printf("kernel/%s.ko\n", module);
    return list && strstr(list, line) != NULL;
}

static bool add_file(struct initramfs *initramfs, const char *name, unsigned mode, const char *path, struct error *err)
{
    size_t size = 0;
    AUTO_FREE char *bytes = fd_read_file(path, PROGRAM_BYTES_MAX, &size, err);
    if (!bytes)
        return false;
    initramfs_add_file(initramfs, name, mode, bytes, size);
    return true;
}

static bool add_modules(struct initramfs *initramfs, const char *folder, struct error *err)
{
    AUTO_FREE char *list_path = memory_printf("%s/modules.builtin", folder);
    AUTO_FREE char *list = fd_read_file(list_path, LIST_BYTES_MAX, NULL, NULL);
    initramfs_add_folder(initramfs, BOOT_MODULES);
    for (size_t i = 0; i < sizeof MODULES / sizeof MODULES[0]; i++) {
        if (is_built_in(list, MODULES[i]))
            continue;
        AUTO_FREE char *path = memory_printf("%s/kernel/%s.ko", folder, MODULES[i]);
        AUTO_FREE char *name = memory_printf(BOOT_MODULES "/%02zu-%s.ko", i, strrchr(MODULES[i], '/') + 1);
        if (!add_file(initramfs, name, 0644, path, err))
            return error_prefix(err, "a driver that microVMs need");
    }
    return true;
}

/* Each with its NUL. */
static void add_texts(struct initramfs *initramfs, const char *name, const char *const *texts)
{
    AUTO_TEXT all = {0};
    for (const char *const *text = texts; *text; text++)
        text_append(&all, *text, strlen(*text) + 1);
    initramfs_add_file(initramfs, name, 0644, all.data, all.length);
}

static bool make_initramfs(const struct parts_settings *settings, const struct parts_front *front,
                           struct initramfs *made, struct error *err)
{
    static const char NETWORK[] = VMM_GUEST_ADDRESS " " VMM_GUEST_NETMASK "\n";
    AUTO_FREE char *modules = parts_find_modules(settings->kernel, err);
    AUTO_FREE char *boot = name_program(settings, MICROVM_PROGRAM "-boot");
    if (!modules || !add_file(made, BOOT_PROGRAM, 0755, boot, err) || !add_modules(made, modules, err))
        return false;
    add_texts(made, BOOT_ARGUMENTS, front->arguments);
    add_texts(made, BOOT_ENVIRONMENT, front->environment);
    initramfs_add_file(made, BOOT_NETWORK, 0644, NETWORK, sizeof NETWORK - 1);
    initramfs_end(made);
    return true;
}

/* --- the folder --- */

static bool write_part(const char *folder, const char *name, mode_t mode, const void *data, size_t size,
                       struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/%s", folder, name);
    return fd_write_file(path, mode, data, size, err);
}

static bool copy_part(const char *folder, const char *name, mode_t mode, const char *from, struct error *err)
{
    size_t size = 0;
    AUTO_FREE char *bytes = fd_read_file(from, KERNEL_BYTES_MAX, &size, err);
    return bytes && write_part(folder, name, mode, bytes, size, err);
}

bool parts_make(const struct parts_settings *settings, const struct parts_front *front, const char *folder,
                struct error *err)
{
    AUTO_INITRAMFS initramfs = {0};
    AUTO_FREE char *monitor = name_program(settings, MICROVM_PROGRAM);
    return parts_check(settings, err) && make_initramfs(settings, front, &initramfs, err) &&
           fd_make_folders(folder, 0755, err) &&
           write_part(folder, MICROVM_INITRAMFS, 0644, initramfs.bytes.data, initramfs.bytes.length, err) &&
           copy_part(folder, MICROVM_KERNEL, 0644, settings->kernel, err) &&
           copy_part(folder, MICROVM_PROGRAM, 0755, monitor, err);
}
