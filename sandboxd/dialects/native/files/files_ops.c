/* files_ops.c - each op's fields, checked against the token. */
#include "sandboxd/dialects/native/files/files_ops.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "shared/base/memory.h"

#include <string.h>

enum { EDITS_MAX = 1000 };

void files_change_done(struct files_change *change)
{
    json_decref(change->body);
    free(change->path);
    free(change->to);
    if (change->descriptor >= 0)
        close(change->descriptor);
}

static bool read_flag(struct files_change *change, const char *name, enum files_flag flag, bool when_missing,
                      struct error *err)
{
    bool is_set = when_missing;
    if (!fields_flag(change->body, name, &is_set, err))
        return false;
    if (is_set)
        change->asked.flags |= (uint32_t)flag;
    return true;
}

static bool read_mode(struct files_change *change, struct error *err)
{
    const json_t *mode = json_object_get(change->body, "mode");
    if (!mode)
        return true;
    return files_request_mode(json_is_string(mode) ? json_string_value(mode) : "", &change->asked, err);
}

static bool read_user(const struct files_change *change, const char *field, const char **name, struct error *err)
{
    const json_t *value = json_object_get(change->body, field);
    if (!value)
        return true;
    *name = json_is_string(value) ? json_string_value(value) : "";
    return files_request_check_user(*name, field, err);
}

static bool read_users(struct files_change *change, struct error *err)
{
    return read_user(change, "owner", &change->asked.owner, err) &&
           read_user(change, "group", &change->asked.group, err);
}

static bool read_conditions(struct files_change *change, struct error *err)
{
    struct conditions conditions = files_request_conditions(change->request);
    return conditions_for_change(&conditions, &change->asked, err);
}

static bool read_mkdir(struct files_change *change, struct error *err)
{
    static const char *const FIELDS[] = {"mode", "owner", "group", "parents", NULL};
    change->asked.operation = FILES_MKDIR;
    return fields_only(change->body, FIELDS, err) && read_mode(change, err) && read_users(change, err) &&
           read_flag(change, "parents", FILES_PARENTS, true, err);
}

/* The path in `to`, or in `to_b64` when its bytes are no UTF-8. */
static bool read_to(struct files_change *change, struct error *err)
{
    const json_t *plain = json_object_get(change->body, "to"), *coded = json_object_get(change->body, "to_b64");
    if (!plain == !coded || !json_is_string(plain ? plain : coded))
        return error_set(err, ERROR_INVALID, "exactly one of to and to_b64 is needed: an absolute path");
    if (plain) {
        change->to = memory_string(json_string_value(plain));
        return files_request_check_path(change->to, "to", err);
    }
    size_t length = json_string_length(coded), size = 0;
    change->to = memory_new(length + 1);
    if (!text_base64_decode(change->to, length, &size, json_string_value(coded), length) || strlen(change->to) != size)
        return error_set(err, ERROR_INVALID, "to_b64: standard base64 of a path");
    return files_request_check_path(change->to, "to_b64", err);
}

static bool read_target(struct files_change *change, struct error *err)
{
    if (!read_flag(change, "overwrite", FILES_OVERWRITE, false, err) ||
        !read_flag(change, "parents", FILES_PARENTS, false, err) || !read_to(change, err))
        return false;
    change->asked.to_path = change->to;
    change->asked.to_root = files_request_root(change->request, SCOPE_FS_RW, change->to, err);
    return change->asked.to_root && files_request_check_movable(change->to, change->asked.to_root, "replaced", err);
}

static bool read_move(struct files_change *change, struct error *err)
{
    static const char *const FIELDS[] = {"to", "to_b64", "overwrite", "parents", NULL};
    change->asked.operation = FILES_MOVE;
    return fields_only(change->body, FIELDS, err) &&
           files_request_check_movable(change->path, change->asked.root, "moved", err) && read_target(change, err) &&
           read_conditions(change, err);
}

static bool read_copy(struct files_change *change, struct error *err)
{
    static const char *const FIELDS[] = {"to", "to_b64", "overwrite", "parents", "recursive", NULL};
    change->asked.operation = FILES_COPY;
    return fields_only(change->body, FIELDS, err) && read_flag(change, "recursive", FILES_RECURSIVE, false, err) &&
           read_target(change, err) && read_conditions(change, err);
}

static bool read_chmod(struct files_change *change, struct error *err)
{
    static const char *const FIELDS[] = {"mode", "owner", "group", NULL};
    const struct files_request *asked = &change->asked;
    change->asked.operation = FILES_CHMOD;
    if (!fields_only(change->body, FIELDS, err) || !read_mode(change, err) || !read_users(change, err) ||
        !read_conditions(change, err))
        return false;
    return (asked->flags & FILES_MODE) != 0 || asked->owner || asked->group ||
           error_set(err, ERROR_INVALID, "mode, owner or group is needed");
}

static struct files_bytes bytes_of(const json_t *text)
{
    return (struct files_bytes){json_string_value(text), json_string_length(text)};
}

static bool read_one_edit(const json_t *object, struct files_edit *edit, struct error *err)
{
    static const char *const FIELDS[] = {"old", "new", "all", "optional", NULL};
    const json_t *old = json_object_get(object, "old"), *new = json_object_get(object, "new");
    if (!json_is_object(object) || !json_is_string(old) || !json_is_string(new) || json_string_length(old) == 0)
        return error_set(err, ERROR_INVALID,
                         "an edit is {old, new, all?, optional?}, two texts of which old is not empty");
    *edit = (struct files_edit){.old = bytes_of(old), .new = bytes_of(new)};
    return fields_only(object, FIELDS, err) && fields_flag(object, "all", &edit->all, err) &&
           fields_flag(object, "optional", &edit->optional, err);
}

static bool read_edit(struct files_change *change, struct error *err)
{
    static const char *const FIELDS[] = {"edits", NULL};
    const json_t *list = json_object_get(change->body, "edits");
    size_t count = list ? json_array_size(list) : 1;
    change->asked.operation = FILES_EDIT;
    if (!read_conditions(change, err) || (list && !fields_only(change->body, FIELDS, err)))
        return false;
    if (count == 0 || count > EDITS_MAX)
        return error_set(err, ERROR_INVALID, "edits: an array of 1 to %d edits", EDITS_MAX);
    AUTO_FREE struct files_edit *edits = memory_array(count, sizeof *edits);
    for (size_t i = 0; i < count; i++)
        if (!read_one_edit(list ? json_array_get(list, i) : change->body, &edits[i], err))
            return false;
    change->descriptor = front_files_edits_seal(edits, count, err);
    return change->descriptor >= 0;
}

static bool read_delete(struct files_change *change, struct error *err)
{
    static const char *const FIELDS[] = {"recursive", "no_folders", NULL};
    change->asked.operation = FILES_REMOVE;
    if (!fields_only(change->body, FIELDS, err) || !read_flag(change, "recursive", FILES_RECURSIVE, false, err) ||
        !read_flag(change, "no_folders", FILES_NO_FOLDERS, false, err) || !read_conditions(change, err))
        return false;
    if ((change->asked.flags & FILES_RECURSIVE) && (change->asked.flags & FILES_NO_FOLDERS))
        return error_set(err, ERROR_INVALID, "recursive and no_folders exclude each other");
    return files_request_check_movable(change->path, change->asked.root, "deleted", err);
}

static bool read_stat(struct files_change *change, struct error *err)
{
    static const char *const FIELDS[] = {"follow", NULL};
    change->asked.operation = FILES_STAT;
    return fields_only(change->body, FIELDS, err) && read_flag(change, "follow", FILES_FOLLOW, false, err);
}

const struct files_op FILES_OPS[FILES_OPS_COUNT] = {
    {"mkdir", SCOPE_FS_RW, true, read_mkdir}, {"move", SCOPE_FS_RW, true, read_move},
    {"copy", SCOPE_FS_RO, true, read_copy},   {"chmod", SCOPE_FS_RW, true, read_chmod},
    {"edit", SCOPE_FS_RW, true, read_edit},   {"delete", SCOPE_FS_RW, true, read_delete},
    {"stat", SCOPE_FS_RO, false, read_stat}};
