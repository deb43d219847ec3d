/* files_answer.c - records in, one reply out. */
#include "sandboxd/dialects/native/files/files_answer.h"

#include "sandboxd/dialects/native/files/conditions.h"
#include "sandboxd/dialects/native/files/files_entry.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <string.h>

struct files_answer {
    struct http_request *request;
    struct files_call *call;
    char *path;
    const char *action; /* of the record; NULL: there is none */
    char *detail;
    files_answer_reply *reply;
    struct files_found found;
    uint64_t size; /* of the body */
    bool pours;    /* the body is not all there: without it nothing is done */
};

/* Whoever frees it has answered, or nobody is there to be answered. */
static void answer_free(struct files_answer *answer)
{
    files_cancel(answer->call);
    text_done(&answer->found.entry);
    free(answer->path);
    free(answer->detail);
    free(answer);
}

static void on_gone(void *cookie)
{
    struct files_answer *answer = cookie;
    if (answer->action && answer->pours)
        plane_record_failure(answer->request, answer->action, answer->detail, 0, "broken off before the body's end");
    answer_free(answer);
}

static void fail(struct files_answer *answer, const struct error *err)
{
    struct http_request *request = answer->request;
    if (err->kind == ERROR_RANGE && answer->found.has_state) { /* where the next piece has to begin */
        char range[40];
        snprintf(range, sizeof range, "bytes */%" PRIu64, answer->found.received);
        http_reply_header(request, "Content-Range", range);
    }
    if (answer->action)
        plane_record_failure(request, answer->action, answer->detail, error_http_status(err->kind), err->message);
    http_reply_error(request, err);
    answer_free(answer);
}

/* ---- the operation ---- */

static void on_record(void *cookie, const struct files_record *record, int descriptor)
{
    struct files_answer *answer = cookie;
    struct files_found *found = &answer->found;
    if (descriptor >= 0)
        close(descriptor);
    if (record->kind == FILES_STATE) {
        found->has_state = true;
        found->received = record->received;
        found->total = record->total;
    }
    if (record->kind != FILES_ENTRY)
        return;
    text_done(&found->entry);
    files_entry_fields(&found->entry, record, answer->path);
    found->etag[0] = 0;
    if (record->type == FILES_REGULAR)
        conditions_etag(found->etag, &record->version);
}

static void on_over(void *cookie, const struct files_record *done, const struct error *err)
{
    struct files_answer *answer = cookie;
    answer->call = NULL;
    if (err) {
        fail(answer, err);
        return;
    }
    answer->reply(answer->request, &answer->found, done);
    answer_free(answer);
}

static const struct files_events EVENTS = {.record = on_record, .over = on_over};

/* Takes the descriptor; NULL: it was answered that there is no room for the record. */
static struct files_answer *start(struct http_request *request, const struct files_request *asked, int descriptor,
                                  const struct files_deed *deed, files_answer_reply *reply)
{
    AUTO_FREE char *detail = deed ? files_request_detail(asked, deed->more) : NULL;
    struct error err = {0};
    if (deed && !plane_audit(request, &err, deed->action, "%s", detail)) {
        if (descriptor >= 0)
            close(descriptor);
        http_reply_error(request, &err);
        return NULL;
    }
    struct files_answer *answer = memory_new(sizeof *answer);
    answer->request = request;
    answer->path = memory_string(asked->to_path[0] ? asked->to_path : asked->path);
    answer->action = deed ? deed->action : NULL;
    answer->detail = TAKE(detail);
    answer->reply = reply;
    answer->call = files_start(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, asked, descriptor,
                               &EVENTS, answer);
    http_request_when_gone(request, on_gone, answer);
    return answer;
}

void files_answer_start(struct http_request *request, const struct files_request *asked, int descriptor,
                        const struct files_deed *deed, files_answer_reply *reply)
{
    (void)start(request, asked, descriptor, deed, reply);
}

/* ---- bodies ---- */

static void on_poured(void *cookie, uint64_t size, const struct error *err)
{
    struct files_answer *answer = cookie;
    answer->pours = false;
    if (err &&
        err->kind == ERROR_CONFLICT) { /* nobody reads it: why, the helper tells; tar may have seen all it needs */
        files_commit(answer->call, size);
        return;
    }
    if (err) {
        fail(answer, err);
        return;
    }
    if (answer->size != UINT64_MAX && size != answer->size) {
        struct error wrong = {0};
        error_set(&wrong, ERROR_INVALID, "Content-Range names %" PRIu64 " bytes, the body has %" PRIu64, answer->size,
                  size);
        fail(answer, &wrong);
        return;
    }
    files_commit(answer->call, size);
}

void files_answer_pour(struct http_request *request, const struct files_request *asked, const struct files_deed *deed,
                       files_answer_reply *reply, uint64_t size)
{
    int ends[2];
    struct error err = {0};
    if (!files_pipe(ends, 1, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct files_answer *answer = start(request, asked, ends[0], deed, reply);
    if (!answer) {
        close(ends[1]);
        return;
    }
    answer->size = size;
    answer->pours = true;
    http_body_pour(request, ends[1], on_poured, answer);
}

/* ---- replies ---- */

void files_answer_entry(struct http_request *request, int status, const struct files_found *found)
{
    AUTO_TEXT body = {0};
    text_append_string(&body, "{");
    text_append(&body, found->entry.data, found->entry.length);
    text_append_string(&body, "}");
    if (found->etag[0])
        http_reply_header(request, "ETag", found->etag);
    http_reply_bytes(request, status, "application/json", body.data, body.length);
}
