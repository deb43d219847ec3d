/* files_upload.c - each part of a form with a file name becomes that file below the folder in the URL. */
#include "sandboxd/dialects/native/files/files_upload.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/files/files_entry.h"
#include "sandboxd/dialects/native/files/files_form.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

struct upload {
    struct http_request *request;
    char *folder;
    struct files_request wanted; /* what the query, or a field before it, says of a file */
    char **paths;                /* of the files so far */
    size_t count;
    struct text entry; /* of the last, until it is there */
    struct text files; /* JSON of those that are there */
};

static void upload_free(void *cookie)
{
    struct upload *upload = cookie;
    for (size_t i = 0; i < upload->count; i++)
        free(upload->paths[i]);
    free(upload->paths);
    text_done(&upload->entry);
    text_done(&upload->files);
    free(upload->folder);
    free(upload);
}

/* ---- what becomes of a part ---- */

static bool is_given(const struct upload *upload, const char *path)
{
    for (size_t i = 0; i < upload->count; i++)
        if (strcmp(upload->paths[i], path) == 0)
            return true;
    return false;
}

/* The path of a file of this name; NULL with the error. */
static char *read_name(const struct upload *upload, const struct http_multipart_part *part, struct error *err)
{
    const char *name = part->filename;
    if (!name) {
        error_set(err, ERROR_INVALID, "a part of the form has no file name: only files, and `mode`, are taken");
        return NULL;
    }
    if (name[0] == '\0' || !front_files_path_is_relative(name, strlen(name))) {
        error_set(err, ERROR_INVALID, "a file name of the form: a path below the folder, without empty, . or .. parts");
        return NULL;
    }
    AUTO_FREE char *path = memory_printf("%s/%s", strcmp(upload->folder, "/") == 0 ? "" : upload->folder, name);
    if (!files_request_check_path(path, "folder and file name", err))
        return NULL;
    if (is_given(upload, path)) {
        error_set(err, ERROR_CONFLICT, "two files of the form have one name");
        return NULL;
    }
    return TAKE(path);
}

static enum files_form_part on_part(void *cookie, const struct http_multipart_part *part, struct files_request *asked,
                                    struct error *err)
{
    struct upload *upload = cookie;
    if (!part->filename && strcmp(part->name, "mode") == 0)
        return FILES_FORM_FIELD;
    AUTO_FREE char *path = read_name(upload, part, err);
    if (!path)
        return FILES_FORM_REFUSED;
    asked->root = files_request_root(upload->request, SCOPE_FS_RW, path, err);
    if (!asked->root)
        return FILES_FORM_REFUSED;
    asked->flags = upload->wanted.flags;
    asked->mode = upload->wanted.mode;
    upload->paths = memory_resize(upload->paths, (upload->count + 1) * sizeof *upload->paths);
    asked->path = upload->paths[upload->count++] = TAKE(path);
    return FILES_FORM_FILE;
}

/* `mode`, of the files behind it; ?mode= in a form that has no say about its URL. */
static bool on_field(void *cookie, const char *data, size_t size, struct error *err)
{
    struct upload *upload = cookie;
    bool is_text = strlen(data) == size;
    return files_request_mode(is_text ? data : "", &upload->wanted, err);
}

static void on_entry(void *cookie, const struct files_record *entry)
{
    struct upload *upload = cookie;
    upload->entry.length = 0;
    files_entry_fields(&upload->entry, entry, upload->paths[upload->count - 1]);
}

static void on_written(void *cookie, bool is_new)
{
    struct upload *upload = cookie;
    text_append_format(&upload->files, "%s{%s,\"created\":%s}", upload->files.length ? "," : "", upload->entry.data,
                       is_new ? "true" : "false");
}

/* ---- replies ---- */

static void reply_written(const struct upload *upload)
{
    AUTO_TEXT body = {0};
    text_append_string(&body, "{\"files\":[");
    text_append(&body, upload->files.data, upload->files.length);
    text_append_string(&body, "]}");
    http_reply_bytes(upload->request, 200, "application/json", body.data, body.length);
}

/* What was written before it failed stays, and is told beside the error. */
static void reply_failed(const struct upload *upload, const struct error *err)
{
    if (upload->files.length == 0) {
        http_reply_error(upload->request, err);
        return;
    }
    AUTO_FREE char *list = memory_printf("[%s]", upload->files.data);
    json_t *body = http_error_json(upload->request, err);
    json_object_set_new(body, "files", json_loads(list, 0, NULL));
    http_reply_json(upload->request, error_http_status(err->kind), body);
}

static void on_over(void *cookie, const struct error *err)
{
    struct upload *upload = cookie;
    struct error nothing = {0};
    if (!err && upload->count == 0) {
        error_set(&nothing, ERROR_INVALID, "the form has no file");
        err = &nothing;
    }
    if (err)
        reply_failed(upload, err);
    else
        reply_written(upload);
    upload_free(upload);
}

static const struct files_form_events EVENTS = {
    .part = on_part, .field = on_field, .entry = on_entry, .written = on_written, .over = on_over, .gone = upload_free};

/* ---- the request ---- */

static bool read_query(const struct http_request *request, struct files_request *wanted, struct error *err)
{
    static const char *const NAMES[] = {"mode", "parents", NULL};
    struct conditions conditions = files_request_conditions(request);
    const char *mode = http_request_query(request, "mode");
    bool parents = true;
    if (!http_request_query_only(request, NAMES, err) || !fields_query_switch(request, "parents", &parents, err) ||
        (mode && !files_request_mode(mode, wanted, err)) || !conditions_for_change(&conditions, wanted, err))
        return false;
    if (wanted->flags & FILES_IF_MATCH)
        return error_set(err, ERROR_INVALID, "If-Match of several files: only * is allowed");
    if (parents)
        wanted->flags |= FILES_PARENTS;
    return true;
}

void files_upload_post(struct http_request *request)
{
    struct error err = {0};
    AUTO_FREE char *folder = files_request_path(request);
    struct files_request wanted = {.operation = FILES_WRITE};
    files_request_headers(request);
    if (!files_request_check_path(folder, "the path", &err) || !read_query(request, &wanted, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct upload *upload = memory_new(sizeof *upload);
    upload->request = request;
    upload->folder = TAKE(folder);
    upload->wanted = wanted;
    if (files_form_start(request, &EVENTS, upload, &err))
        return;
    http_reply_error(request, &err);
    upload_free(upload);
}
