#include "sandboxd/templates/tool/accounts.h"

#include "sandboxd/templates/tool/tree_file.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

enum { FILE_MAX_BYTES = 1024 * 1024, FIELDS = 7, DEFAULT_ID = 1000, UINT32_DIGITS = 10 };

static const char PASSWD[] = "etc/passwd";
static const char GROUP[] = "etc/group";

/* One row, its fields cut out in place. */
struct row {
    char *fields[FIELDS];
    size_t count;
};

/* The next row of `*at`; false at the end. */
static bool next_row(char **at, struct row *row)
{
    char *line = *at;
    if (line == NULL || *line == '\0')
        return false;
    char *end = strchr(line, '\n');
    *at = end ? end + 1 : NULL;
    if (end)
        *end = '\0';
    row->count = 0;
    for (char *field = line; field && row->count < FIELDS;) {
        row->fields[row->count++] = field;
        field = strchr(field, ':');
        if (field)
            *field++ = '\0';
    }
    return true;
}

static bool parse_id(const char *text, uint32_t *id)
{
    uint64_t value = 0;
    if (!text_parse_u64(text, strlen(text), UINT32_MAX, &value))
        return false;
    *id = (uint32_t)value;
    return true;
}

enum key { KEY_NAME = 0, KEY_ID = 2 };

/* The first row of `file` in which field `key` is `wanted`: its id, and the field behind that (a passwd row's gid). */
static bool find_row(const struct tree *tree, const char *file, enum key key, const char *wanted, uint32_t *id,
                     uint32_t *other)
{
    size_t size = 0;
    AUTO_FREE char *bytes = tree_file_read(tree, file, FILE_MAX_BYTES, &size, NULL);
    char *at = bytes;
    for (struct row row; next_row(&at, &row);) {
        if (row.count < 4 || strcmp(row.fields[key], wanted) != 0 || !parse_id(row.fields[KEY_ID], id))
            continue;
        if (other && !parse_id(row.fields[KEY_ID + 1], other))
            *other = *id;
        return true;
    }
    return false;
}

/* Like runtimes do: a number that is nobody's name is a number. */
static bool find_user(const struct tree *tree, const char *name, uint32_t *uid, uint32_t *gid, struct error *err)
{
    if (find_row(tree, PASSWD, KEY_NAME, name, uid, gid))
        return true;
    if (!parse_id(name, uid))
        return error_set(err, ERROR_INVALID, "the image's user \"%.64s\" is not in its /etc/passwd", name);
    uint32_t same = 0;
    if (!find_row(tree, PASSWD, KEY_ID, name, &same, gid))
        *gid = 0;
    return true;
}

static bool find_group(const struct tree *tree, const char *name, uint32_t *gid, struct error *err)
{
    if (find_row(tree, GROUP, KEY_NAME, name, gid, NULL) || parse_id(name, gid))
        return true;
    return error_set(err, ERROR_INVALID, "the image's group \"%.64s\" is not in its /etc/group", name);
}

bool accounts_find(const struct tree *tree, const char *user, uint32_t *uid, uint32_t *gid, struct error *err)
{
    const char *colon = strchr(user, ':');
    AUTO_FREE char *name = colon ? memory_copy(user, (size_t)(colon - user)) : memory_string(user);
    uint32_t found_uid = 0;
    uint32_t found_gid = 0;
    if (name[0] && !find_user(tree, name, &found_uid, &found_gid, err))
        return false;
    if (colon && colon[1] && !find_group(tree, colon + 1, &found_gid, err))
        return false;
    if (found_uid > TREE_ID_MAX || found_gid > TREE_ID_MAX)
        return error_set(err, ERROR_INVALID, "the image's user is %" PRIu32 ":%" PRIu32 "; ids are 0..65535", found_uid,
                         found_gid);
    if (found_uid == 0)
        found_uid = found_gid = DEFAULT_ID;
    *uid = found_uid;
    *gid = found_gid ? found_gid : found_uid;
    return true;
}

/* --- making them --- */

/* A row must begin on a line of its own. */
static bool append_row(struct tree *tree, const char *file, const char *row, struct error *err)
{
    size_t size = 0;
    struct error why = {0};
    AUTO_FREE char *bytes = tree_file_read(tree, file, FILE_MAX_BYTES, &size, &why);
    if (bytes == NULL && why.kind != ERROR_NOT_FOUND)
        return error_set(err, why.kind, "%s", why.message);
    bool is_cut = size > 0 && bytes[size - 1] != '\n';
    AUTO_FREE char *text = memory_printf("%s%s", is_cut ? "\n" : "", row);
    return tree_file_append(tree, file, text, err);
}

static bool ensure(struct tree *tree, const char *file, uint32_t id, const char *row, struct error *err)
{
    char wanted[UINT32_DIGITS + 1];
    uint32_t found = 0;
    return !text_format(wanted, sizeof wanted, "%" PRIu32, id) || find_row(tree, file, KEY_ID, wanted, &found, NULL) ||
           append_row(tree, file, row, err);
}

bool accounts_ensure(struct tree *tree, uint32_t uid, uint32_t gid, struct error *err)
{
    AUTO_FREE char *user = memory_printf("user:x:%" PRIu32 ":%" PRIu32 ":user:/workspace:/bin/sh\n", uid, gid);
    AUTO_FREE char *group = memory_printf("user:x:%" PRIu32 ":\n", gid);
    return ensure(tree, PASSWD, 0, "root:x:0:0:root:/root:/bin/sh\n", err) && ensure(tree, PASSWD, uid, user, err) &&
           ensure(tree, GROUP, 0, "root:x:0:\n", err) && ensure(tree, GROUP, gid, group, err);
}
