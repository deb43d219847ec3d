/* names.c - users and groups by the sandbox's own /etc/passwd and /etc/group, which are read anew for each operation
 * that asks: they are hostile files, and getpwnam(3) would load what they say. */
#include "sandboxd/helpers/files/names.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { TABLE_BYTES = 1 << 20, IDS_MAX_DIGITS = 10 };

struct table {
    bool is_read;
    char *text;    /* NUL-terminated; NULL: there is none */
    bool has_last; /* the last one asked for by its number, as a folder is mostly one user's */
    uint32_t last_id;
    size_t last_size;
    char last[FRONT_FILES_USER_MAX];
};

static struct table tables[NAMES_KINDS];

void names_forget(void)
{
    for (size_t i = 0; i < NAMES_KINDS; i++) {
        free(tables[i].text);
        tables[i] = (struct table){0};
    }
}

/* One that cannot be read, or is too long, names nobody. */
static char *read_table(const struct helper *helper, const char *path)
{
    struct stat status;
    struct error ignored = {0};
    AUTO_FD int fd = resolve_regular(helper, "", path, O_RDONLY, &status, &ignored);
    if (fd < 0 || status.st_size > TABLE_BYTES)
        return NULL;
    AUTO_FREE char *text = memory_new(TABLE_BYTES + 1);
    size_t size = 0;
    while (size < TABLE_BYTES) {
        ssize_t got = read(fd, text + size, TABLE_BYTES - size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return NULL;
        if (got == 0)
            break;
        size += (size_t)got;
    }
    text[size] = 0;
    return memory_resize(TAKE(text), size + 1);
}

static struct table *table_of(const struct helper *helper, enum names_kind kind)
{
    struct table *table = &tables[kind];
    if (!table->is_read) {
        table->is_read = true;
        table->text = read_table(helper, kind == NAMES_USERS ? "/etc/passwd" : "/etc/group");
    }
    return table;
}

/* A number in decimal that fits, `size` bytes long. -1, which chown(2) takes for "leave it", is none. */
static bool read_id(const char *text, size_t size, uint32_t *id)
{
    uint64_t value = 0;
    if (size == 0 || size > IDS_MAX_DIGITS || strspn(text, "0123456789") < size)
        return false;
    for (size_t i = 0; i < size; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    if (value >= UINT32_MAX)
        return false;
    *id = (uint32_t)value;
    return true;
}

/* A line is name:password:id:...; false for any other. */
static bool read_line(const char *line, size_t *name_size, uint32_t *id)
{
    *name_size = strcspn(line, ":\n");
    if (line[*name_size] != ':')
        return false;
    const char *at = line + *name_size + 1;
    at += strcspn(at, ":\n");
    if (*at != ':')
        return false;
    size_t size = strcspn(++at, ":\n");
    return read_id(at, size, id);
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : NULL;
}

bool names_find(const struct helper *helper, enum names_kind kind, const char *name, uint32_t *id)
{
    size_t size = strlen(name), found;
    uint32_t value;
    for (const char *line = table_of(helper, kind)->text; line && *line; line = next_line(line)) {
        if (read_line(line, &found, &value) && found == size && memcmp(line, name, size) == 0) {
            *id = value;
            return true;
        }
    }
    return read_id(name, size, id);
}

struct files_bytes names_of(const struct helper *helper, enum names_kind kind, uint32_t id)
{
    struct table *table = table_of(helper, kind);
    size_t size;
    uint32_t value;
    if (table->has_last && table->last_id == id)
        return (struct files_bytes){.data = table->last, .size = table->last_size};
    table->has_last = true;
    table->last_id = id;
    table->last_size = 0;
    for (const char *line = table->text; line && *line; line = next_line(line)) {
        if (!read_line(line, &size, &value) || value != id || size == 0 || size > FRONT_FILES_USER_MAX)
            continue;
        memcpy(table->last, line, size);
        table->last_size = size;
        break;
    }
    return (struct files_bytes){.data = table->last, .size = table->last_size};
}

static bool find_wanted(const struct helper *helper, enum names_kind kind, const char *name, uint32_t *id,
                        struct error *err)
{
    *id = NAMES_NONE;
    if (name[0] == 0 || names_find(helper, kind, name, id) || (helper->request->flags & FILES_KNOWN_USERS))
        return true;
    return error_set(err, ERROR_INVALID, "%s: the sandbox has no such %s", kind == NAMES_USERS ? "owner" : "group",
                     kind == NAMES_USERS ? "user" : "group");
}

/* fchown(2) takes no O_PATH descriptor, and gVisor no AT_EMPTY_PATH of one; chown(2) follows this link of our own. */
static int change(int fd, uint32_t owner, uint32_t group)
{
    char link[32];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return chown(link, owner, group);
}

bool names_give(const struct helper *helper, int fd, struct error *err)
{
    const struct files_request *request = helper->request;
    uint32_t owner, group;
    if (!find_wanted(helper, NAMES_USERS, request->owner, &owner, err) ||
        !find_wanted(helper, NAMES_GROUPS, request->group, &group, err))
        return false;
    if (owner == NAMES_NONE && group == NAMES_NONE)
        return true;
    if (change(fd, owner, group) == 0)
        return true;
    return fail_errno(err, "chown%s", errno == EPERM ? ": only root gives a file to another" : "");
}
