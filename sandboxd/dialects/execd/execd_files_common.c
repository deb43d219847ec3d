/* execd_files_common.c - nothing is done here. */
#include "sandboxd/dialects/execd/execd_files_common.h"

#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/execd/execd_path.h"
#include "sandboxd/dialects/native/files/files_entry.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <string.h>

enum { MODE_DIGITS_MAX = 7777, PERMISSION_BITS = 0777 };

/* ---- paths ---- */

void execd_place_done(struct execd_place *place)
{
    free(TAKE(place->path));
}

bool execd_place_find(struct execd_place *place, const struct http_request *request, enum scope_verb verb,
                      const char *given, struct error *err)
{
    place->path = execd_path(request, given, err);
    if (!place->path || !files_request_check_path(place->path, "path", err))
        return false;
    place->root = files_request_root(request, verb, place->path, err);
    return place->root != NULL;
}

bool execd_files_begin(struct http_request *request, enum scope_verb verb, struct execd_place *place,
                       struct files_request *asked)
{
    struct error err = {0};
    const char *given = http_request_query(request, "path");
    files_request_headers(request);
    if (!given || !given[0]) {
        execd_reply_error(request, 400, "MISSING_QUERY", "the query has no path");
        return false;
    }
    if (!execd_place_find(place, request, verb, given, &err)) {
        http_reply_error(request, &err);
        return false;
    }
    *asked = (struct files_request){.root = place->root,
                                    .path = place->path,
                                    .to_root = "",
                                    .to_path = "",
                                    .pattern = "",
                                    .glob = "",
                                    .upload = ""};
    return true;
}

/* ---- permissions ---- */

static bool read_mode(const json_t *object, struct files_request *asked, struct error *err)
{
    const json_t *field = json_object_get(object, "mode");
    json_int_t digits = json_integer_value(field);
    uint32_t mode = 0, shift = 0;
    bool is_sound =
        !field || json_is_null(field) || (json_is_integer(field) && digits >= 0 && digits <= MODE_DIGITS_MAX);
    for (json_int_t left = is_sound ? digits : 0; left > 0; left /= 10, shift += 3) {
        is_sound = is_sound && left % 10 < 8;
        mode |= (uint32_t)(left % 10) << shift;
    }
    if (!is_sound)
        return error_set(err, ERROR_INVALID, "mode: a number whose digits are octal, at most 7777 (755 is rwxr-xr-x)");
    if (mode != 0)
        asked->flags |= FILES_MODE;
    asked->mode = mode;
    return true;
}

static bool read_name(const json_t *object, const char *name, const char **value, struct error *err)
{
    const json_t *field = json_object_get(object, name);
    if (field && !json_is_null(field) && !json_is_string(field))
        return error_set(err, ERROR_INVALID, "%s: a name", name);
    const char *text = json_string_value(field);
    *value = text && text[0] ? text : NULL;
    return !*value || files_request_check_user(*value, name, err);
}

bool execd_permission_read(const json_t *object, struct files_request *asked, struct error *err)
{
    if (!json_is_object(object))
        return error_set(err, ERROR_INVALID, "permissions: an object of mode, owner and group");
    asked->flags |= FILES_KNOWN_USERS;
    return read_mode(object, asked, err) && read_name(object, "owner", &asked->owner, err) &&
           read_name(object, "group", &asked->group, err);
}

/* ---- facts ---- */

static const char *type_of(enum files_type type)
{
    return type == FILES_REGULAR   ? "file"
           : type == FILES_FOLDER  ? "directory"
           : type == FILES_SYMLINK ? "symlink"
                                   : "other";
}

static void append_time(struct text *to, const char *name, int64_t ns)
{
    char text[CLOCK_TEXT_BYTES];
    clock_format(text, ns / 1000000 - (ns % 1000000 < 0));
    text_append_format(to, ",\"%s\":\"%s\"", name, text);
}

/* A user or group without a name is its number. */
static void append_user(struct text *to, const char *field, struct files_bytes name, uint32_t id)
{
    text_append_format(to, ",\"%s\":", field);
    if (name.size > 0)
        files_entry_quoted(to, name);
    else
        text_append_format(to, "\"%u\"", id);
}

void execd_file_append(struct text *to, const struct files_record *entry, const char *path, struct files_bytes below)
{
    AUTO_TEXT whole = {0};
    text_append_string(&whole, path);
    if (below.size > 0 && strcmp(path, "/") != 0)
        text_append(&whole, "/", 1);
    text_append(&whole, below.data, below.size);
    text_append_string(to, "{\"path\":");
    files_entry_quoted(to, (struct files_bytes){.data = whole.data, .size = whole.length});
    text_append_format(to, ",\"type\":\"%s\",\"size\":%llu,\"mode\":%o", type_of(entry->type),
                       (unsigned long long)(entry->version.size > INT64_MAX ? INT64_MAX : entry->version.size),
                       entry->mode & PERMISSION_BITS);
    append_time(to, "modified_at", entry->version.mtime_ns);
    append_time(to, "created_at", entry->version.ctime_ns);
    append_user(to, "owner", entry->owner, entry->uid);
    append_user(to, "group", entry->group, entry->gid);
    text_append(to, "}", 1);
}

/* ---- errors ---- */

void execd_files_fail(struct http_request *request, const struct error *err)
{
    switch ((int)err->kind) {
    case ERROR_CONFLICT:
    case ERROR_FORBIDDEN:
    case ERROR_PRECONDITION:
        execd_reply_error(request, 500, "RUNTIME_ERROR", err->message);
        return;
    default:
        http_reply_error(request, err);
    }
}
