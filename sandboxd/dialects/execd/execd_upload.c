/* execd_upload.c - see execd_upload.h. */
#include "sandboxd/dialects/execd/execd_upload.h"

#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/execd/execd_files_common.h"
#include "sandboxd/dialects/native/files/files_form.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "shared/base/memory.h"

#include <string.h>

/* A file to come, or that has come. */
struct item {
    struct execd_place place;
    struct files_request asked;
    char *owner, *group; /* of `asked` */
};

struct upload {
    struct http_request *request;
    struct item *items;
    size_t metadata_count, file_count; /* so far; the items are as many as the former */
    bool is_metadata;                  /* the field under way, else one that nobody asked for */
    const char *code;                  /* of the error that ends it; NULL: the kind's */
};

static void item_done(struct item *item)
{
    execd_place_done(&item->place);
    free(TAKE(item->owner));
    free(TAKE(item->group));
}

static void upload_free(void *cookie)
{
    struct upload *upload = cookie;
    for (size_t i = 0; i < upload->metadata_count; i++)
        item_done(&upload->items[i]);
    free(upload->items);
    free(upload);
}

static bool fail(struct upload *upload, const char *code, struct error *err, const char *why)
{
    upload->code = code;
    return error_set(err, ERROR_INVALID, "%s", why);
}

/* ---- parts ---- */

static enum files_form_part begin_file(struct upload *upload, struct files_request *asked, struct error *err)
{
    if (upload->file_count == upload->metadata_count) {
        (void)fail(upload, "INVALID_FILE", err, "a file has no metadata before it");
        return FILES_FORM_REFUSED;
    }
    const struct item *item = &upload->items[upload->file_count++];
    asked->root = item->place.root;
    asked->path = item->place.path;
    asked->flags = item->asked.flags | FILES_PARENTS;
    asked->mode = item->asked.mode;
    asked->owner = item->owner;
    asked->group = item->group;
    return FILES_FORM_FILE;
}

/* As with its daemon only parts with a file name count. */
static enum files_form_part on_part(void *cookie, const struct http_multipart_part *part, struct files_request *asked,
                                    struct error *err)
{
    struct upload *upload = cookie;
    if (part->filename && strcmp(part->name, "file") == 0)
        return begin_file(upload, asked, err);
    upload->is_metadata = part->filename && strcmp(part->name, "metadata") == 0;
    return FILES_FORM_FIELD;
}

static const char CODE[] = "INVALID_FILE_METADATA";

static bool read_metadata(struct upload *upload, struct item *item, const json_t *metadata, struct error *err)
{
    const char *path = json_string_value(json_object_get(metadata, "path"));
    if (!json_is_object(metadata))
        return fail(upload, CODE, err, "metadata is not a JSON object");
    if (!path || !path[0])
        return fail(upload, CODE, err, "metadata: path is needed");
    if (!execd_permission_read(metadata, &item->asked, err)) {
        upload->code = CODE;
        return false;
    }
    if (!execd_place_find(&item->place, upload->request, SCOPE_FS_RW, path, err)) {
        upload->code = err->kind == ERROR_INVALID ? CODE : NULL;
        return false;
    }
    item->owner = item->asked.owner ? memory_string(item->asked.owner) : NULL;
    item->group = item->asked.group ? memory_string(item->asked.group) : NULL;
    return true;
}

static bool on_field(void *cookie, const char *data, size_t size, struct error *err)
{
    struct upload *upload = cookie;
    if (!upload->is_metadata)
        return true;
    upload->items = memory_resize(upload->items, (upload->metadata_count + 1) * sizeof *upload->items);
    struct item *item = &upload->items[upload->metadata_count++];
    *item = (struct item){0};
    json_t *metadata = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    bool is_read = read_metadata(upload, item, metadata, err);
    json_decref(metadata);
    return is_read;
}

/* What was written is not told of. */
static void on_entry(void *cookie UNUSED, const struct files_record *entry UNUSED)
{
}

static void on_written(void *cookie, bool is_new UNUSED)
{
    struct upload *upload = cookie;
    item_done(&upload->items[upload->file_count - 1]);
}

/* ---- the end ---- */

static bool check_counts(struct upload *upload, struct error *err)
{
    if (upload->metadata_count == 0)
        return fail(upload, "INVALID_FILE_METADATA", err, "the form has no part metadata with a file name");
    if (upload->file_count == 0)
        return fail(upload, "INVALID_FILE_CONTENT", err, "the form has no part file with a file name");
    if (upload->file_count != upload->metadata_count)
        return fail(upload, "INVALID_FILE", err, "the form has more parts metadata than parts file");
    return true;
}

static void on_over(void *cookie, const struct error *err)
{
    struct upload *upload = cookie;
    struct error wrong = {0};
    if (!err && !check_counts(upload, &wrong))
        err = &wrong;
    if (!err)
        http_reply_empty(upload->request, 200);
    else if (upload->code)
        execd_reply_error(upload->request, error_http_status(err->kind), upload->code, err->message);
    else
        execd_files_fail(upload->request, err);
    upload_free(upload);
}

static const struct files_form_events EVENTS = {
    .part = on_part, .field = on_field, .entry = on_entry, .written = on_written, .over = on_over, .gone = upload_free};

void execd_upload(struct http_request *request)
{
    struct error err = {0};
    struct upload *upload = memory_new(sizeof *upload);
    upload->request = request;
    files_request_headers(request);
    if (files_form_start(request, &EVENTS, upload, &err))
        return;
    if (err.kind == ERROR_INVALID)
        execd_reply_error(request, 400, "INVALID_FILE", err.message);
    else
        http_reply_error(request, &err);
    upload_free(upload);
}
