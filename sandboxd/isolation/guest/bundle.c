/* bundle.c - a folder with parley-sandboxd and all it is linked with, for roots that have none of it.
 *
 * The libraries are those that this very process runs with (dl_iterate_phdr(3)), under the names they are asked for by.
 * A program names its linker by an absolute path that the kernel opens in the guest's root: the copies' is overwritten
 * with the bundle's, which is no longer than any. What was made of other files is made anew, and the one before it
 * stays beside: a living sandbox has that one mounted. */
#include "sandboxd/isolation/guest/guest.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/program.h"
#include "shared/base/text.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 192, STAMP_LINE_BYTES = 128 };
static const char STAMP[] = "stamp", LINKER[] = "lib/ld.so";

/* One file of the bundle. */
struct part {
    char *from;
    char *to; /* below the bundle */
    bool is_optional, is_program;
};

struct parts {
    struct part list[FILES_MAX];
    size_t count;
};

static void parts_done(struct parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        free(parts->list[i].from);
        free(parts->list[i].to);
    }
}

/* ---- what is in it ---- */

static void add(struct parts *parts, const char *from, const char *folder, const char *name)
{
    if (parts->count == FILES_MAX) /* list_parts sees it */
        return;
    struct part *part = &parts->list[parts->count++];
    *part = (struct part){.from = memory_string(from), .to = memory_printf("%s/%s", folder, name)};
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The first that is shown is the program itself, which names its linker. */
static void add_linker(struct parts *parts, const struct dl_phdr_info *info)
{
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_INTERP)
            add(parts, (const char *)(uintptr_t)(info->dlpi_addr + segment->p_vaddr), "lib", base_name(LINKER));
    }
}

static int add_library(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    if (info->dlpi_name && info->dlpi_name[0] == '/')
        add(context, info->dlpi_name, "lib", base_name(info->dlpi_name));
    else
        add_linker(context, info);
    return 0;
}

static bool list_parts(struct parts *parts, struct error *err)
{
    static const char *const PROGRAMS[] = {"parley-sandboxd", "parley-init", "parley-jupyter"};
    for (size_t i = 0; i < sizeof PROGRAMS / sizeof PROGRAMS[0]; i++) {
        AUTO_FREE char *path = program_beside(PROGRAMS[i]);
        add(parts, path, "bin", PROGRAMS[i]);
        parts->list[parts->count - 1].is_program = true;
        parts->list[parts->count - 1].is_optional = strcmp(PROGRAMS[i], "parley-jupyter") == 0;
    }
    dl_iterate_phdr(add_library, parts);
    return parts->count < FILES_MAX || error_set(err, ERROR_INTERNAL, "this program has too many libraries");
}

/* ---- is it of these files? ---- */

static char *make_stamp(const struct parts *parts, const char *seen)
{
    struct text text = {0};
    text_append_string(&text, seen);
    text_append_string(&text, "\n");
    for (size_t i = 0; i < parts->count; i++) {
        struct stat status = {0};
        char line[STAMP_LINE_BYTES];
        (void)!stat(parts->list[i].from, &status);
        int length = snprintf(line, sizeof line, " %" PRIu64 " %" PRIu64 " %lld.%09ld\n", (uint64_t)status.st_ino,
                              (uint64_t)status.st_size, (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
        text_append_string(&text, parts->list[i].from);
        text_append(&text, line, length > 0 ? (size_t)length : 0);
    }
    return text.data;
}

static bool is_current(const char *folder, const char *stamp)
{
    AUTO_FREE char *path = memory_printf("%s/%s", folder, STAMP);
    AUTO_FREE char *there = fd_read_file(path, 1 << 20, NULL, NULL);
    return there && strcmp(there, stamp) == 0;
}

/* ---- copies ---- */

static bool copy(const char *from, const char *to, struct error *err)
{
    struct stat status;
    AUTO_FD int source = open(from, O_RDONLY | O_CLOEXEC);
    if (source < 0 || fstat(source, &status) < 0)
        return error_set_errno(err, ERROR_NOT_FOUND, "open %s", from);
    AUTO_FD int target = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0755);
    if (target < 0 || fchmod(target, 0755) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make %s", to);
    for (off_t left = status.st_size; left > 0;) {
        ssize_t moved = sendfile(target, source, NULL, (size_t)left);
        if (moved <= 0)
            return error_set_errno(err, moved < 0 && errno == ENOSPC ? ERROR_DISK_FULL : ERROR_INTERNAL, "copy %s",
                                   from);
        left -= moved;
    }
    return true;
}

/* Where the program names its linker; 0: it is static. */
static bool find_linker(int fd, off_t *at, size_t *room, struct error *err)
{
    ElfW(Ehdr) head;
    *at = 0;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_phentsize != sizeof(ElfW(Phdr)))
        return error_set(err, ERROR_INVALID, "this is no program of this machine");
    for (unsigned i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) segment;
        off_t where = (off_t)(head.e_phoff + i * sizeof segment);
        if (pread(fd, &segment, sizeof segment, where) != (ssize_t)sizeof segment)
            return error_set_errno(err, ERROR_INTERNAL, "read a program's head");
        if (segment.p_type == PT_INTERP) {
            *at = (off_t)segment.p_offset;
            *room = segment.p_filesz;
        }
    }
    return true;
}

static bool patch_linker(const char *path, const char *seen, struct error *err)
{
    off_t at = 0;
    size_t room = 0;
    char name[64] = "";
    AUTO_FD int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || !find_linker(fd, &at, &room, err))
        return fd < 0 ? error_set_errno(err, ERROR_INTERNAL, "open %s", path) : false;
    if (at == 0)
        return true;
    if (room > sizeof name || !text_format(name, room, "%s/%s", seen, LINKER))
        return error_set(err, ERROR_INTERNAL, "%s has no room for the name of its linker", path);
    return pwrite(fd, name, room, at) == (ssize_t)room || error_set_errno(err, ERROR_INTERNAL, "write %s", path);
}

static bool fill(const struct parts *parts, const char *folder, const char *seen, struct error *err)
{
    static const char *const FOLDERS[] = {"bin", "lib"};
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++) {
        AUTO_FREE char *path = memory_printf("%s/%s", folder, FOLDERS[i]);
        if (!fd_make_folders(path, 0755, err))
            return false;
        if (chmod(path, 0755) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "chmod %s", path);
    }
    for (size_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->list[i];
        AUTO_FREE char *path = memory_printf("%s/%s", folder, part->to);
        if (access(path, F_OK) == 0 || (part->is_optional && access(part->from, F_OK) < 0))
            continue;
        if (!copy(part->from, path, err) || (part->is_program && !patch_linker(path, seen, err)))
            return false;
    }
    return chmod(folder, 0755) == 0 || error_set_errno(err, ERROR_INTERNAL, "chmod %s", folder);
}

bool guest_fill_bundle(const char *folder, const char *seen, struct error *err)
{
    __attribute__((cleanup(parts_done))) struct parts parts = {0};
    if (!list_parts(&parts, err))
        return false;
    AUTO_FREE char *stamp = make_stamp(&parts, seen);
    if (is_current(folder, stamp))
        return true;
    AUTO_FREE char *fresh = memory_printf("%s.new", folder);
    AUTO_FREE char *old = memory_printf("%s.old", folder);
    AUTO_FREE char *stamp_path = memory_printf("%s/%s", fresh, STAMP);
    return fd_remove_tree(fresh, err) && fd_make_folders(fresh, 0755, err) && fill(&parts, fresh, seen, err) &&
           fd_write_file(stamp_path, 0644, stamp, strlen(stamp), err) && fd_remove_tree(old, err) &&
           (rename(folder, old) == 0 || errno == ENOENT || error_set_errno(err, ERROR_INTERNAL, "rename %s", folder)) &&
           (rename(fresh, folder) == 0 || error_set_errno(err, ERROR_INTERNAL, "rename %s", fresh));
}
