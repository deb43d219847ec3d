#include "sandboxd/network/forwarding.h"

#include "sandboxd/network/namespace.h"
#include "sandboxd/network/rules.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { NAME_BYTES = 64, FILE_BYTES = FORWARDING_MAX * IFNAMSIZ + 1 };

static const char *setting(char name[static NAME_BYTES], const char *interface)
{
    snprintf(name, NAME_BYTES, "ipv4/conf/%s/forwarding", interface);
    return name;
}

static bool is_open(const char *interface)
{
    char name[NAME_BYTES];
    char path[NAME_BYTES + sizeof "/proc/sys/net/"];
    char value = '1'; /* what cannot be asked is left alone */
    snprintf(path, sizeof path, "/proc/sys/net/%s", setting(name, interface));
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 || read(fd, &value, 1) != 1 || value != '0';
}

/* --- the file: a name a line --- */

/* Who waited for one that was removed meanwhile takes the next. */
static int lock_file(const char *path, struct error *err)
{
    for (;;) {
        struct stat status;
        AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || flock(fd, LOCK_EX) < 0 || fstat(fd, &status) < 0) {
            error_set_errno(err, ERROR_INTERNAL, "open %s", path);
            return -1;
        }
        if (status.st_nlink > 0)
            return TAKE_FD(fd);
    }
}

static bool read_file(int fd, struct forwarding *forwarding, struct error *err)
{
    char text[FILE_BYTES];
    ssize_t size = pread(fd, text, sizeof text - 1, 0);
    if (size < 0)
        return error_set_errno(err, ERROR_INTERNAL, "read which interfaces were opened");
    text[size] = '\0';
    forwarding->count = 0;
    for (const char *line = text; *line && forwarding->count < FORWARDING_MAX;) {
        size_t length = strcspn(line, "\n");
        if (length > 0 && length < IFNAMSIZ)
            snprintf(forwarding->opened[forwarding->count++], IFNAMSIZ, "%.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
    return true;
}

static bool has(const struct forwarding *forwarding, const char *interface)
{
    for (size_t i = 0; i < forwarding->count; i++) {
        if (strcmp(forwarding->opened[i], interface) == 0)
            return true;
    }
    return false;
}

/* Noted before it is done: what is noted and was not done is closed once more. */
static bool note(int fd, const char *interface, struct forwarding *forwarding, struct error *err)
{
    char line[IFNAMSIZ + 1];
    if (has(forwarding, interface))
        return true;
    if (forwarding->count == FORWARDING_MAX)
        return error_set(err, ERROR_NO_CAPACITY, "this host has more than %d interfaces to forward by", FORWARDING_MAX);
    if (!text_is_made_of(interface, IFNAMSIZ - 1, "._-"))
        return error_set(err, ERROR_INVALID, "the interface \"%s\" has a name that no rule can hold", interface);
    int length = snprintf(line, sizeof line, "%s\n", interface);
    if (lseek(fd, 0, SEEK_END) < 0 || !fd_write_all(fd, line, (size_t)length, err))
        return false;
    snprintf(forwarding->opened[forwarding->count++], IFNAMSIZ, "%s", interface);
    return true;
}

bool forwarding_plan(const char *file, struct netlink *netlink, struct forwarding *forwarding, struct error *err)
{
    uint32_t ways[FORWARDING_MAX * 4];
    size_t count = 0;
    AUTO_FD int fd = lock_file(file, err);
    if (fd < 0 || !read_file(fd, forwarding, err) ||
        !netlink_list_ways(netlink, ways, sizeof ways / sizeof ways[0], &count, err))
        return false;
    if (forwarding_is_on()) {
        forwarding->count =
            0; /* somebody has turned it on since, for all: what was opened is not for us alone any more */
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        char name[IF_NAMESIZE];
        bool is_other = if_indextoname(ways[i], name) && strcmp(name, "lo") != 0 &&
                        strncmp(name, RULES_LINK_PREFIX, strlen(RULES_LINK_PREFIX)) != 0;
        if (is_other && !is_open(name) && !note(fd, name, forwarding, err))
            return false;
    }
    return true;
}

/* A name that is gone is nothing to set. */
static bool set(const struct forwarding *forwarding, const char *value, struct error *err)
{
    for (size_t i = 0; i < forwarding->count; i++) {
        char name[NAME_BYTES];
        struct error why = {0};
        if (namespace_set(setting(name, forwarding->opened[i]), value, &why) || why.kind == ERROR_NOT_FOUND)
            continue;
        if (err)
            *err = why;
        return false;
    }
    return true;
}

bool forwarding_open(const struct forwarding *forwarding, struct error *err)
{
    return set(forwarding, "1", err);
}

static bool is_a_link_there(void)
{
    bool is_there = false;
    struct if_nameindex *all = if_nameindex();
    for (const struct if_nameindex *one = all; one && one->if_index; one++)
        is_there = is_there || strncmp(one->if_name, RULES_LINK_PREFIX, strlen(RULES_LINK_PREFIX)) == 0;
    if_freenameindex(all);
    return is_there;
}

bool forwarding_close(const char *file, struct error *err)
{
    struct forwarding forwarding = {0};
    if (access(file, F_OK) < 0)
        return true;
    AUTO_FD int fd = lock_file(file, err);
    if (fd < 0 || !read_file(fd, &forwarding, err))
        return false;
    if (is_a_link_there())
        return true;
    if (!forwarding_is_on() && !set(&forwarding, "0", err))
        return false;
    return unlink(file) == 0 || error_set_errno(err, ERROR_INTERNAL, "remove %s", file);
}

bool forwarding_is_on(void)
{
    return is_open("all");
}
