/* files_many.c - all ops are read, and judged against the token, before the first is done. */
#include "sandboxd/dialects/native/files/files_many.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/files/files_batch.h"
#include "sandboxd/dialects/native/files/files_entry.h"
#include "sandboxd/dialects/native/files/files_ops.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <string.h>

struct many {
    struct http_request *request;
    char **ops;                 /* JSON of each: parsed, a hostile one would be twenty times as large */
    size_t at, count;           /* of the ops: the one under way */
    struct files_change change; /* of it */
    const struct files_op *op;
    struct text entry;   /* of it */
    struct text results; /* JSON of those that are done */
};

static void many_free(void *cookie)
{
    struct many *many = cookie;
    files_change_done(&many->change);
    for (size_t i = 0; i < many->count; i++)
        free(many->ops[i]);
    free(many->ops);
    text_done(&many->entry);
    text_done(&many->results);
    free(many);
}

/* ---- reading ---- */

static const struct files_op *find_op(const json_t *object, struct error *err)
{
    const char *name = json_string_value(json_object_get(object, "op"));
    for (size_t i = 0; name && i < FILES_OPS_COUNT; i++)
        if (strcmp(FILES_OPS[i].name, name) == 0)
            return &FILES_OPS[i];
    error_set(err, ERROR_INVALID, "op: mkdir, move, copy, chmod, edit, delete or stat");
    return NULL;
}

/* Into an empty change. */
static bool read_op(struct many *many, json_t *object, struct files_change *change, struct error *err)
{
    const char *path = json_string_value(json_object_get(object, "path"));
    many->op = json_is_object(object) ? find_op(object, err) : NULL;
    if (!many->op)
        return json_is_object(object) ? false : error_set(err, ERROR_INVALID, "ops: an array of objects");
    if (!path || !files_request_check_path(path, "path", err))
        return path ? false : error_set(err, ERROR_INVALID, "path: an absolute path is needed");
    change->request = many->request;
    change->path = memory_string(path);
    change->body = json_copy(object); /* shallow: only the object is changed */
    json_object_del(change->body, "op");
    json_object_del(change->body, "path");
    change->asked = (struct files_request){
        .path = change->path, .to_root = "", .to_path = "", .pattern = "", .glob = "", .upload = ""};
    change->asked.root = files_request_root(many->request, many->op->verb, path, err);
    return change->asked.root && many->op->read(change, err);
}

static bool fail_at(size_t at, struct error *err)
{
    struct error why = *err;
    return error_set(err, why.kind, "op %zu: %.400s", at + 1, why.message);
}

/* Each is judged, and kept. */
static bool take_ops(struct many *many, const json_t *list, struct error *err)
{
    size_t count = json_array_size(list);
    if (count == 0 || count > FILES_BATCH_MAX)
        return error_set(err, ERROR_INVALID, "ops: an array of 1 to %d ops", FILES_BATCH_MAX);
    many->ops = memory_array(count, sizeof *many->ops);
    for (size_t i = 0; i < count; i++) {
        AUTO_FILES_CHANGE change = {.descriptor = -1};
        json_t *op = json_array_get(list, i);
        if (!read_op(many, op, &change, err))
            return fail_at(i, err);
        many->ops[many->count++] = json_dumps(op, JSON_COMPACT);
    }
    return true;
}

static bool read_body(struct many *many, struct error *err)
{
    static const char *const FIELDS[] = {"ops", NULL}, *const NAMES[] = {NULL};
    struct conditions none = files_request_conditions(many->request);
    if (!http_request_query_only(many->request, NAMES, err))
        return false;
    if (none.if_match || none.if_none_match || none.if_modified_since || none.if_unmodified_since)
        return error_set(err, ERROR_INVALID, "a batch takes no If-... header: it has several files");
    json_t *body = http_request_json(many->request, err);
    bool is_read = body && fields_only(body, FIELDS, err) && take_ops(many, json_object_get(body, "ops"), err);
    json_decref(body);
    return is_read;
}

/* The one under way, again. */
static bool read_next(struct many *many, struct error *err)
{
    json_t *op = many->ops[many->at] ? json_loads(many->ops[many->at], 0, NULL) : NULL;
    bool is_read = read_op(many, op, &many->change, err);
    json_decref(op);
    return is_read;
}

/* ---- steps ---- */

static enum files_batch_next on_next(void *cookie, struct files_step *step, struct error *err)
{
    struct many *many = cookie;
    files_change_done(&many->change);
    many->change = (struct files_change){.descriptor = -1};
    many->entry.length = 0;
    if (many->at == many->count)
        return FILES_BATCH_OVER;
    if (!read_next(many, err))
        return FILES_BATCH_FAILED;
    step->asked = many->change.asked;
    step->descriptor = TAKE_FD(many->change.descriptor);
    step->action = many->op->changes ? many->op->name : NULL;
    return FILES_BATCH_STEP;
}

static void on_record(void *cookie, const struct files_record *record)
{
    struct many *many = cookie;
    const struct files_request *asked = &many->change.asked;
    many->entry.length = 0;
    files_entry_fields(&many->entry, record, asked->to_path[0] ? asked->to_path : asked->path);
}

static bool on_stepped(void *cookie, const struct files_record *done, const struct error *why)
{
    struct many *many = cookie;
    struct text *to = &many->results;
    if (why)
        return false;
    text_append_format(to, "%s{\"op\":\"%s\"", to->length ? "," : "", many->op->name);
    if (many->change.asked.operation == FILES_EDIT)
        text_append_format(to, ",\"replaced\":%" PRIu64, done->count > INT64_MAX ? INT64_MAX : done->count);
    if (many->change.asked.operation == FILES_MKDIR)
        text_append_format(to, ",\"created\":%s", done->count == 1 ? "true" : "false");
    if (many->entry.length > 0)
        text_append_format(to, ",%s", many->entry.data);
    text_append(to, "}", 1);
    many->at++;
    return true;
}

static void reply(const struct many *many, const struct error *err)
{
    AUTO_FREE char *list = memory_printf("[%s]", many->results.data ? many->results.data : "");
    if (!err) {
        AUTO_FREE char *body = memory_printf("{\"results\":%s}", list);
        http_reply_bytes(many->request, 200, "application/json", body, strlen(body));
        return;
    }
    struct error why = *err;
    (void)fail_at(many->at, &why);
    json_t *body = http_error_json(many->request, &why);
    json_object_set_new(body, "results", json_loads(list, 0, NULL));
    http_reply_json(many->request, error_http_status(why.kind), body);
}

static void on_over(void *cookie, const struct error *err)
{
    reply(cookie, err);
    many_free(cookie);
}

static const struct files_batch_events EVENTS = {
    .next = on_next, .record = on_record, .stepped = on_stepped, .over = on_over, .gone = many_free};

void files_many_post(struct http_request *request)
{
    struct error err = {0};
    struct many *many = memory_new(sizeof *many);
    many->request = request;
    many->change.descriptor = -1;
    files_request_headers(request);
    if (files_request_has_room(request, FILES_BATCHES_MAX, "batches", &err) && read_body(many, &err)) {
        files_batch_start(request, &EVENTS, many);
        return;
    }
    http_reply_error(request, &err);
    many_free(many);
}
