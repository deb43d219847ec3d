/* temporary.c - a file that has no name before it is whole (open(2), O_TMPFILE). */
#include "sandboxd/helpers/files/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { ATTEMPTS = 16 };

void temporary_name(char to[static NAME_MAX + 1], const char *name)
{
    uint64_t number = 0;
    /* Only to not meet another; without randomness O_EXCL and its like still hold. */
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) < 0)
        number = (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)&number;
    (void)snprintf(to, NAME_MAX + 1, ".%.*s.%016llx", NAME_MAX - 18, name, (unsigned long long)number);
}

static bool open_named(const struct place *place, struct temporary *temporary, struct error *err)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        char name[NAME_MAX + 1];
        temporary_name(name, place->name);
        int fd = openat(place->folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0) {
            *temporary = (struct temporary){.fd = fd, .folder = place->folder};
            memcpy(temporary->name, name, sizeof name);
            return true;
        }
        if (errno != EEXIST)
            break;
    }
    return fail_errno(err, "making a file");
}

bool temporary_open(const struct place *place, struct temporary *temporary, struct error *err)
{
    int fd = openat(place->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        return open_named(place, temporary, err);
    if (fd < 0)
        return fail_errno(err, "making a file");
    *temporary = (struct temporary){.fd = fd, .folder = place->folder};
    return true;
}

static int link_to(const struct temporary *temporary, int folder, const char *name)
{
    char link[32];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", temporary->fd);
    return linkat(AT_FDCWD, link, folder, name, AT_SYMLINK_FOLLOW);
}

/* linkat(2) replaces nothing: so a name beside it first. */
static bool name_it(struct temporary *temporary, const struct place *place, struct error *err)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        temporary_name(temporary->name, place->name);
        if (link_to(temporary, place->folder, temporary->name) == 0)
            return true;
        temporary->name[0] = 0;
        if (errno != EEXIST)
            break;
    }
    return fail_errno(err, "naming the file");
}

static bool rename_it(struct temporary *temporary, const struct place *place, bool replaces, struct error *err)
{
    if (renameat2(place->folder, temporary->name, place->folder, place->name, replaces ? 0 : RENAME_NOREPLACE) < 0)
        return fail_errno(err, "naming the file");
    temporary->name[0] = 0;
    return true;
}

static bool place_it(struct temporary *temporary, const struct place *place, bool replaces, struct error *err)
{
    if (temporary->name[0] != 0)
        return rename_it(temporary, place, replaces, err);
    if (link_to(temporary, place->folder, place->name) == 0)
        return true;
    if (errno != EEXIST || !replaces)
        return fail_errno(err, "naming the file");
    if (!name_it(temporary, place, err))
        return false;
    if (rename_it(temporary, place, true, err))
        return true;
    unlinkat(place->folder, temporary->name, 0);
    temporary->name[0] = 0;
    return false;
}

bool temporary_place(struct temporary *temporary, const struct place *place, bool replaces, struct error *err)
{
    helper_hold_end();
    bool is_placed = place_it(temporary, place, replaces, err);
    helper_release_end();
    return is_placed;
}

void temporary_done(struct temporary *temporary)
{
    if (temporary->name[0] != 0)
        unlinkat(temporary->folder, temporary->name, 0);
    if (temporary->fd >= 0)
        close(temporary->fd);
    *temporary = TEMPORARY_NONE;
}
