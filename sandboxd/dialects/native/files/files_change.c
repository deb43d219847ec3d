/* files_change.c - each change is read, checked against the token, recorded, and only then begun. */
#include "sandboxd/dialects/native/files/files_change.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/files/files_answer.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

enum { EDITS_MAX = 1000, UPLOAD_BYTES = 65, MORE_BYTES = 160 };

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

static bool read_put(const struct http_request *request, struct files_request *asked, char upload[static UPLOAD_BYTES],
                     struct error *err)
{
    static const char *const NAMES[] = {"mode", "mtime_ns", "parents", "upload", NULL};
    struct conditions conditions = files_request_conditions(request);
    const char *mode = http_request_query(request, "mode");
    bool parents = true;
    asked->operation = FILES_WRITE;
    if (!http_request_query_only(request, NAMES, err) || !fields_query_switch(request, "parents", &parents, err) ||
        (mode && !files_request_mode(mode, asked, err)) || !read_mtime(request, asked, err) ||
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
    static const char *const NAMES[] = {"recursive", NULL};
    struct conditions conditions = files_request_conditions(request);
    bool recursive = false;
    asked->operation = FILES_REMOVE;
    if (!http_request_query_only(request, NAMES, err) || !fields_query_switch(request, "recursive", &recursive, err) ||
        !files_request_check_movable(asked->path, asked->root, "deleted", err) ||
        !conditions_for_change(&conditions, asked, err))
        return false;
    if (recursive)
        asked->flags |= FILES_RECURSIVE;
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

/* ---- POST: what each op reads from its body ---- */

/* A change that is being read. Texts that `asked` points to belong to it. */
struct change {
    struct http_request *request;
    struct files_request asked;
    json_t *body;
    char *path, *to;
    int descriptor; /* of an edit's texts */
};

static void change_done(struct change *change)
{
    json_decref(change->body);
    free(change->path);
    free(change->to);
    if (change->descriptor >= 0)
        close(change->descriptor);
}
#define AUTO_CHANGE __attribute__((cleanup(change_done))) struct change

static bool read_flag(struct change *change, const char *name, enum files_flag flag, bool when_missing,
                      struct error *err)
{
    bool is_set = when_missing;
    if (!fields_flag(change->body, name, &is_set, err))
        return false;
    if (is_set)
        change->asked.flags |= (uint32_t)flag;
    return true;
}

static bool read_mode(struct change *change, struct error *err)
{
    const json_t *mode = json_object_get(change->body, "mode");
    if (!mode)
        return true;
    return files_request_mode(json_is_string(mode) ? json_string_value(mode) : "", &change->asked, err);
}

static bool read_conditions(struct change *change, struct error *err)
{
    struct conditions conditions = files_request_conditions(change->request);
    return conditions_for_change(&conditions, &change->asked, err);
}

static bool read_mkdir(struct change *change, struct error *err)
{
    static const char *const FIELDS[] = {"mode", "parents", NULL};
    change->asked.operation = FILES_MKDIR;
    return fields_only(change->body, FIELDS, err) && read_mode(change, err) &&
           read_flag(change, "parents", FILES_PARENTS, true, err);
}

/* The path in `to`, or in `to_b64` when its bytes are no UTF-8. */
static bool read_to(struct change *change, struct error *err)
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

static bool read_target(struct change *change, struct error *err)
{
    if (!read_flag(change, "overwrite", FILES_OVERWRITE, false, err) ||
        !read_flag(change, "parents", FILES_PARENTS, false, err) || !read_to(change, err))
        return false;
    change->asked.to_path = change->to;
    change->asked.to_root = files_request_root(change->request, SCOPE_FS_RW, change->to, err);
    return change->asked.to_root && files_request_check_movable(change->to, change->asked.to_root, "replaced", err);
}

static bool read_move(struct change *change, struct error *err)
{
    static const char *const FIELDS[] = {"to", "to_b64", "overwrite", "parents", NULL};
    change->asked.operation = FILES_MOVE;
    return fields_only(change->body, FIELDS, err) &&
           files_request_check_movable(change->path, change->asked.root, "moved", err) && read_target(change, err) &&
           read_conditions(change, err);
}

static bool read_copy(struct change *change, struct error *err)
{
    static const char *const FIELDS[] = {"to", "to_b64", "overwrite", "parents", "recursive", NULL};
    change->asked.operation = FILES_COPY;
    return fields_only(change->body, FIELDS, err) && read_flag(change, "recursive", FILES_RECURSIVE, false, err) &&
           read_target(change, err) && read_conditions(change, err);
}

static bool read_chmod(struct change *change, struct error *err)
{
    static const char *const FIELDS[] = {"mode", NULL};
    change->asked.operation = FILES_CHMOD;
    if (!fields_only(change->body, FIELDS, err) || !read_mode(change, err) || !read_conditions(change, err))
        return false;
    return (change->asked.flags & FILES_MODE) != 0 || error_set(err, ERROR_INVALID, "mode is needed");
}

static struct files_bytes bytes_of(const json_t *text)
{
    return (struct files_bytes){json_string_value(text), json_string_length(text)};
}

static bool read_one_edit(const json_t *object, struct files_edit *edit, struct error *err)
{
    static const char *const FIELDS[] = {"old", "new", "all", NULL};
    const json_t *old = json_object_get(object, "old"), *new = json_object_get(object, "new");
    if (!json_is_object(object) || !json_is_string(old) || !json_is_string(new) || json_string_length(old) == 0)
        return error_set(err, ERROR_INVALID, "an edit is {old, new, all?}, two texts of which old is not empty");
    *edit = (struct files_edit){.old = bytes_of(old), .new = bytes_of(new)};
    return fields_only(object, FIELDS, err) && fields_flag(object, "all", &edit->all, err);
}

static bool read_edit(struct change *change, struct error *err)
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

struct op {
    const char *name;
    enum scope_verb verb; /* needed at the URL's path */
    bool (*read)(struct change *change, struct error *err);
    files_answer_reply *reply;
};

static const struct op OPS[] = {
    {"mkdir", SCOPE_FS_RW, read_mkdir, reply_made}, {"move", SCOPE_FS_RW, read_move, reply_entry},
    {"copy", SCOPE_FS_RO, read_copy, reply_entry},  {"chmod", SCOPE_FS_RW, read_chmod, reply_entry},
    {"edit", SCOPE_FS_RW, read_edit, reply_edited},
};

static const struct op *find_op(const struct http_request *request, struct error *err)
{
    static const char *const NAMES[] = {"op", NULL};
    const char *name = http_request_query(request, "op");
    if (!http_request_query_only(request, NAMES, err))
        return NULL;
    for (size_t i = 0; name && i < sizeof OPS / sizeof *OPS; i++)
        if (strcmp(OPS[i].name, name) == 0)
            return &OPS[i];
    error_set(err, ERROR_INVALID, "op: mkdir, move, copy, chmod or edit");
    return NULL;
}

void files_change_post(struct http_request *request)
{
    struct error err = {0};
    AUTO_CHANGE change = {.request = request, .descriptor = -1};
    const struct op *op = find_op(request, &err);
    if (!op) {
        files_request_headers(request);
        http_reply_error(request, &err);
        return;
    }
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
    files_answer_start(request, &change.asked, TAKE_FD(change.descriptor), &deed, op->reply);
}
