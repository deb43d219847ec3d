/* files_change.c - each change is read, checked against the token, recorded, and only then begun. */
#include "sandboxd/dialects/native/files/files_change.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/files/files_answer.h"
#include "sandboxd/dialects/native/files/files_ops.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

enum { UPLOAD_BYTES = 65, MORE_BYTES = 160 };

/* ---- PUT ---- */

static void reply_written(struct http_request *request, const struct files_found *found,
                          const struct files_record *done)
{
    if (found->entry.length > 0) {
        files_answer_entry(request, done->count == 1 ? 201 : 200, found);
        return;
    }
    int status = http_body_length(request) == 0 ? 200 : 202; /* asked how much is there, or there is more to come */
    http_reply_json(request, status,
                    json_pack("{s:I,s:I}", "received", (json_int_t)found->received, "total", (json_int_t)found->total));
}

static bool read_mtime(const struct http_request *request, struct files_request *asked, struct error *err)
{
    uint64_t ns = 0;
    if (!fields_query_number(request, "mtime_ns", 0, INT64_MAX, &ns, err))
        return false;
    if (http_request_query(request, "mtime_ns"))
        asked->flags |= FILES_MTIME;
    asked->mtime_ns = (int64_t)ns;
    return true;
}

/* A piece's place, and the name under which its pieces are kept; `upload` has the room for a name made of the total. */
static bool read_piece(const struct http_request *request, struct files_request *asked,
                       char upload[static UPLOAD_BYTES], struct error *err)
{
    const char *range = http_request_header(request, "content-range"), *name = http_request_query(request, "upload");
    struct conditions_piece piece;
    if (!range)
        return !name || error_set(err, ERROR_INVALID, "upload: only of pieces, with Content-Range");
    if (!conditions_piece_read(range, &piece, err))
        return false;
    if (name && !text_is_made_of(name, UPLOAD_BYTES - 1, "._-"))
        return error_set(err, ERROR_INVALID, "upload: 1 to 64 of A-Z a-z 0-9 . _ -");
    uint64_t length = http_body_length(request);
    if (length != UINT64_MAX && length != piece.size)
        return error_set(err, ERROR_INVALID, "Content-Range names %" PRIu64 " bytes, the body has %" PRIu64, piece.size,
                         length);
    snprintf(upload, UPLOAD_BYTES, "%" PRIu64, piece.total);
    asked->operation = FILES_PIECE;
    asked->upload = name ? name : upload;
    asked->offset = piece.offset;
    asked->size = piece.size;
    asked->total = piece.total;
    return true;
}

static bool read_put_user(const struct http_request *request, const char *name, const char **user, struct error *err)
{
    *user = http_request_query(request, name);
    if (*user && http_request_header(request, "content-range"))
        return error_set(err, ERROR_INVALID, "%s: not of pieces; chmod knows it", name);
    return !*user || files_request_check_user(*user, name, err);
}

static bool read_put(const struct http_request *request, struct files_request *asked, char upload[static UPLOAD_BYTES],
                     struct error *err)
{
    static const char *const NAMES[] = {"mode", "owner", "group", "mtime_ns", "parents", "upload", NULL};
    struct conditions conditions = files_request_conditions(request);
    const char *mode = http_request_query(request, "mode");
    bool parents = true;
    asked->operation = FILES_WRITE;
    if (!http_request_query_only(request, NAMES, err) || !fields_query_switch(request, "parents", &parents, err) ||
        (mode && !files_request_mode(mode, asked, err)) || !read_mtime(request, asked, err) ||
        !read_put_user(request, "owner", &asked->owner, err) || !read_put_user(request, "group", &asked->group, err) ||
        !read_piece(request, asked, upload, err) || !conditions_for_change(&conditions, asked, err))
        return false;
    if (parents)
        asked->flags |= FILES_PARENTS;
    return true;
}

/* What the record says beside the path. */
static void describe_put(const struct http_request *request, const struct files_request *asked,
                         char more[static MORE_BYTES])
{
    uint64_t length = http_body_length(request);
    more[0] = 0;
    if (asked->operation == FILES_PIECE)
        snprintf(more, MORE_BYTES, "upload=%s piece=%" PRIu64 "+%" PRIu64 "/%" PRIu64, asked->upload, asked->offset,
                 asked->size, asked->total);
    else if (length != UINT64_MAX)
        snprintf(more, MORE_BYTES, "size=%" PRIu64, length);
}

void files_change_put(struct http_request *request)
{
    AUTO_FREE char *path = NULL;
    struct files_request asked;
    struct error err = {0};
    char upload[UPLOAD_BYTES], more[MORE_BYTES];
    if (!files_request_begin(request, SCOPE_FS_RW, &path, &asked))
        return;
    if (!read_put(request, &asked, upload, &err)) {
        http_reply_error(request, &err);
        return;
    }
    if (asked.operation == FILES_PIECE && asked.size == 0) { /* only asks */
        files_answer_start(request, &asked, -1, NULL, reply_written);
        return;
    }
    describe_put(request, &asked, more);
    struct files_deed deed = {.action = "write", .more = more[0] ? more : NULL};
    files_answer_pour(request, &asked, &deed, reply_written, asked.operation == FILES_PIECE ? asked.size : UINT64_MAX);
}

/* ---- DELETE ---- */

static void reply_empty(struct http_request *request, const struct files_found *found UNUSED,
                        const struct files_record *done UNUSED)
{
    http_reply_empty(request, 204);
}

static bool read_delete(const struct http_request *request, struct files_request *asked, struct error *err)
{
    static const char *const NAMES[] = {"recursive", "no_folders", NULL};
    struct conditions conditions = files_request_conditions(request);
    bool recursive = false, no_folders = false;
    asked->operation = FILES_REMOVE;
    if (!http_request_query_only(request, NAMES, err) || !fields_query_switch(request, "recursive", &recursive, err) ||
        !fields_query_switch(request, "no_folders", &no_folders, err) ||
        !files_request_check_movable(asked->path, asked->root, "deleted", err) ||
        !conditions_for_change(&conditions, asked, err))
        return false;
    if (recursive && no_folders)
        return error_set(err, ERROR_INVALID, "recursive and no_folders exclude each other");
    if (recursive)
        asked->flags |= FILES_RECURSIVE;
    if (no_folders)
        asked->flags |= FILES_NO_FOLDERS;
    return true;
}

void files_change_delete(struct http_request *request)
{
    AUTO_FREE char *path = NULL;
    struct files_request asked;
    struct error err = {0};
    if (!files_request_begin(request, SCOPE_FS_RW, &path, &asked))
        return;
    if (!read_delete(request, &asked, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct files_deed deed = {.action = "delete", .more = asked.flags & FILES_RECURSIVE ? "recursive=1" : NULL};
    files_answer_start(request, &asked, -1, &deed, reply_empty);
}

/* ---- POST: replies ---- */

static void reply_made(struct http_request *request, const struct files_found *found, const struct files_record *done)
{
    files_answer_entry(request, done->count == 1 ? 201 : 200, found);
}

static void reply_entry(struct http_request *request, const struct files_found *found,
                        const struct files_record *done UNUSED)
{
    files_answer_entry(request, 200, found);
}

static void reply_edited(struct http_request *request, const struct files_found *found, const struct files_record *done)
{
    struct files_found shown = *found;
    AUTO_TEXT entry = {0};
    text_append_format(&entry, "\"replaced\":%" PRIu64, done->count > INT64_MAX ? INT64_MAX : done->count);
    if (found->entry.length > 0)
        text_append_format(&entry, ",%s", found->entry.data);
    shown.entry = entry;
    files_answer_entry(request, 200, &shown);
}

/* Of the ops in POST, in their order. */
static files_answer_reply *const REPLIES[FILES_OPS_OF_POST] = {reply_made, reply_entry, reply_entry, reply_entry,
                                                               reply_edited};

/* FILES_OPS_OF_POST: none. */
static size_t find_op(const struct http_request *request, struct error *err)
{
    static const char *const NAMES[] = {"op", NULL};
    const char *name = http_request_query(request, "op");
    if (!http_request_query_only(request, NAMES, err))
        return FILES_OPS_OF_POST;
    for (size_t i = 0; name && i < FILES_OPS_OF_POST; i++)
        if (strcmp(FILES_OPS[i].name, name) == 0)
            return i;
    error_set(err, ERROR_INVALID, "op: mkdir, move, copy, chmod or edit");
    return FILES_OPS_OF_POST;
}

void files_change_post(struct http_request *request)
{
    struct error err = {0};
    AUTO_FILES_CHANGE change = {.request = request, .descriptor = -1};
    size_t at = find_op(request, &err);
    if (at == FILES_OPS_OF_POST) {
        files_request_headers(request);
        http_reply_error(request, &err);
        return;
    }
    const struct files_op *op = &FILES_OPS[at];
    if (!files_request_begin(request, op->verb, &change.path, &change.asked))
        return;
    change.body = http_request_json(request, &err);
    if (!change.body || !op->read(&change, &err)) {
        http_reply_error(request, &err);
        return;
    }
    char more[MORE_BYTES];
    snprintf(more, sizeof more, "mode=%04o", change.asked.mode);
    struct files_deed deed = {.action = op->name, .more = change.asked.flags & FILES_MODE ? more : NULL};
    files_answer_start(request, &change.asked, TAKE_FD(change.descriptor), &deed, REPLIES[at]);
}
