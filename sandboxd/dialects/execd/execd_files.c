/* execd_files.c - the rows, and what each reads from its query or body. */
#include "sandboxd/dialects/execd/execd_files.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execd/execd_download.h"
#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/execd/execd_files_list.h"
#include "sandboxd/dialects/execd/execd_files_steps.h"
#include "sandboxd/dialects/execd/execd_upload.h"
#include "sandboxd/dialects/native/files/files_batch.h"
#include "sandboxd/dialects/native/files/files_request.h"

#include <string.h>

enum { CHANGE_BODY_BYTES = 8 << 20 };
#define UPLOAD_BODY_BYTES ((size_t)16 << 30)

/* Takes the steps: they are done, or `err` is the answer. */
static void end_reading(struct execd_steps *steps, bool is_read, struct error *err)
{
    if (is_read && files_request_has_room(steps->request, FILES_BATCHES_MAX, "such requests", err)) {
        execd_steps_start(steps);
        return;
    }
    http_reply_error(steps->request, err);
    execd_steps_free(steps);
}

static struct execd_steps *begin(struct http_request *request)
{
    files_request_headers(request);
    return execd_steps_new(request);
}

/* ---- of paths in the query ---- */

static bool has_step(const struct execd_steps *steps, const char *given)
{
    for (size_t i = 0; i < steps->count; i++)
        if (strcmp(steps->all[i].given, given) == 0)
            return true;
    return false;
}

/* A step for each, once. */
static bool add_paths(struct execd_steps *steps, enum scope_verb verb, enum files_operation operation, uint32_t flags,
                      struct error *err)
{
    const char *given;
    for (size_t i = 0; (given = http_request_query_nth(steps->request, "path", i)) != NULL; i++) {
        if (has_step(steps, given))
            continue;
        struct execd_step *step = execd_steps_add(steps, verb, given, err);
        if (!step)
            return false;
        step->asked.operation = operation;
        step->asked.flags = flags;
        step->action = operation == FILES_REMOVE ? "delete" : NULL;
        if (operation == FILES_REMOVE &&
            !files_request_check_movable(step->place.path, step->place.root, "deleted", err))
            return false;
    }
    return true;
}

static void handle_info(struct http_request *request)
{
    struct error err = {0};
    struct execd_steps *steps = begin(request);
    steps->shows_entries = true;
    end_reading(steps, add_paths(steps, SCOPE_FS_RO, FILES_STAT, 0, &err), &err);
}

static void remove_all(struct http_request *request, uint32_t flags)
{
    struct error err = {0};
    struct execd_steps *steps = begin(request);
    steps->forgives_missing = true;
    end_reading(steps, add_paths(steps, SCOPE_FS_RW, FILES_REMOVE, flags, &err), &err);
}

static void handle_remove(struct http_request *request)
{
    remove_all(request, FILES_NO_FOLDERS);
}

static void handle_remove_folders(struct http_request *request)
{
    remove_all(request, FILES_RECURSIVE);
}

/* ---- of an object by path ---- */

typedef bool read_one(struct execd_step *step, const json_t *value, struct error *err);

static bool add_fields(struct execd_steps *steps, read_one *read, struct error *err)
{
    const char *given;
    json_t *value;
    json_t *body = http_request_json(steps->request, err);
    bool is_read = body != NULL;
    json_object_foreach (body, given, value) {
        struct execd_step *step = is_read ? execd_steps_add(steps, SCOPE_FS_RW, given, err) : NULL;
        is_read = step && read(step, value, err);
    }
    json_decref(body); /* a hostile one is twenty times as large as its text: it does not wait for the steps */
    return is_read;
}

/* Where nothing is to be changed it must still be there. */
static bool read_permission(struct execd_step *step, const json_t *value, struct error *err)
{
    struct files_request *asked = &step->asked;
    if (!execd_permission_read(value, asked, err))
        return false;
    bool changes = (asked->flags & FILES_MODE) || asked->owner || asked->group;
    asked->operation = changes ? FILES_CHMOD : FILES_STAT;
    if (!changes)
        asked->flags = FILES_FOLLOW;
    step->action = changes ? "chmod" : NULL;
    execd_step_keep_users(step);
    return true;
}

static void handle_permissions(struct http_request *request)
{
    struct error err = {0};
    struct execd_steps *steps = begin(request);
    steps->missing_is_broken = true;
    end_reading(steps, add_fields(steps, read_permission, &err), &err);
}

/* One that is there stays as it is. */
static bool read_folder(struct execd_step *step, const json_t *value, struct error *err)
{
    step->asked.operation = FILES_MKDIR;
    step->asked.flags = FILES_PARENTS;
    step->action = "mkdir";
    if (!execd_permission_read(value, &step->asked, err))
        return false;
    execd_step_keep_users(step);
    return true;
}

static void handle_make_folders(struct http_request *request)
{
    struct error err = {0};
    struct execd_steps *steps = begin(request);
    end_reading(steps, add_fields(steps, read_folder, &err), &err);
}

static bool read_replacement(struct execd_step *step, const json_t *value, struct error *err)
{
    json_t *old = json_object_get(value, "old"), *new = json_object_get(value, "new");
    if (!json_is_string(old) || json_string_length(old) == 0)
        return error_set(err, ERROR_INVALID, "old: a text that is not empty");
    if (new && !json_is_string(new))
        return error_set(err, ERROR_INVALID, "new: a text");
    step->asked.operation = FILES_EDIT;
    step->old = json_incref(old);
    step->new = json_incref(new);
    step->action = "edit";
    return true;
}

static void handle_replace(struct http_request *request)
{
    struct error err = {0};
    const char *verbose = http_request_query(request, "verbose");
    struct execd_steps *steps = begin(request);
    steps->counts = verbose && strcmp(verbose, "true") == 0;
    end_reading(steps, add_fields(steps, read_replacement, &err), &err);
}

/* ---- moves ---- */

static bool add_move(struct execd_steps *steps, const json_t *item, struct error *err)
{
    const char *from = json_string_value(json_object_get(item, "src"));
    const char *to = json_string_value(json_object_get(item, "dest"));
    if (!from || !to)
        return error_set(err, ERROR_INVALID, "an array of {src, dest}, two paths each");
    struct execd_step *step = execd_steps_add(steps, SCOPE_FS_RW, from, err);
    if (!step || !execd_step_set_target(steps, step, to, err))
        return false;
    step->asked.operation = FILES_MOVE;
    step->asked.flags = FILES_PARENTS;
    step->action = "move";
    return files_request_check_movable(step->place.path, step->place.root, "moved", err) &&
           files_request_check_movable(step->to.path, step->to.root, "replaced", err);
}

static bool add_moves(struct execd_steps *steps, struct error *err)
{
    json_t *body = http_request_json_array(steps->request, err);
    bool is_read = body != NULL;
    for (size_t i = 0; is_read && i < json_array_size(body); i++)
        is_read = add_move(steps, json_array_get(body, i), err);
    json_decref(body);
    return is_read;
}

static void handle_move(struct http_request *request)
{
    struct error err = {0};
    struct execd_steps *steps = begin(request);
    end_reading(steps, add_moves(steps, &err), &err);
}

/* ---- the rows ---- */

static const struct http_route ROUTES[] = {
    {"GET", EXECD_PREFIX "/files/info", EXECD_CARRIERS | HTTP_REPEATS, "fs:ro", 0, handle_info},
    {"DELETE", EXECD_PREFIX "/files", EXECD_CARRIERS | HTTP_REPEATS, "fs:rw", 0, handle_remove},
    {"POST", EXECD_PREFIX "/files/permissions", EXECD_CARRIERS, "fs:rw", CHANGE_BODY_BYTES, handle_permissions},
    {"POST", EXECD_PREFIX "/files/mv", EXECD_CARRIERS, "fs:rw", CHANGE_BODY_BYTES, handle_move},
    {"GET", EXECD_PREFIX "/files/search", EXECD_CARRIERS, "fs:ro", 0, execd_files_search},
    {"POST", EXECD_PREFIX "/files/replace", EXECD_CARRIERS, "fs:rw", CHANGE_BODY_BYTES, handle_replace},
    {"POST", EXECD_PREFIX "/files/upload", EXECD_CARRIERS | HTTP_POURS, "fs:rw", UPLOAD_BODY_BYTES, execd_upload},
    {"GET", EXECD_PREFIX "/files/download", EXECD_CARRIERS, "fs:ro", 0, execd_download},
    {"GET", EXECD_PREFIX "/directories/list", EXECD_CARRIERS, "fs:ro", 0, execd_files_list},
    {"POST", EXECD_PREFIX "/directories", EXECD_CARRIERS, "fs:rw", CHANGE_BODY_BYTES, handle_make_folders},
    {"DELETE", EXECD_PREFIX "/directories", EXECD_CARRIERS | HTTP_REPEATS, "fs:rw", 0, handle_remove_folders},
};

const struct http_route *execd_files_routes(size_t *count)
{
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
