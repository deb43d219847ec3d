/* files_answer.c - records in, one reply out. */
#include "sandboxd/dialects/files_answer.h"

#include "sandboxd/dialects/conditions.h"
#include "sandboxd/dialects/files_entry.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <string.h>

struct files_answer {
    struct http_request *request;
    struct files_call *call;
    char *path;
    files_answer_reply *reply;
    struct files_found found;
    uint64_t size; /* of the body */
};

/* Whoever frees it has answered, or nobody is there to be answered. */
static void answer_free(struct files_answer *answer)
{
    files_cancel(answer->call);
    text_done(&answer->found.entry);
    free(answer->path);
    free(answer);
}

static void on_gone(void *cookie)
{
    answer_free(cookie);
}

static void fail(struct files_answer *answer, const struct error *err)
{
    struct http_request *request = answer->request;
    if (err->kind == ERROR_RANGE && answer->found.has_state) { /* where the next piece has to begin */
        char range[40];
        snprintf(range, sizeof range, "bytes */%" PRIu64, answer->found.received);
        http_reply_header(request, "Content-Range", range);
    }
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

static struct files_answer *start(struct http_request *request, const struct files_request *asked, int descriptor,
                                  const char *path, files_answer_reply *reply)
{
    struct files_answer *answer = memory_new(sizeof *answer);
    answer->request = request;
    answer->path = memory_string(path);
    answer->reply = reply;
    answer->call = files_start(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, asked, descriptor,
                               &EVENTS, answer);
    http_request_when_gone(request, on_gone, answer);
    return answer;
}

void files_answer_start(struct http_request *request, const struct files_request *asked, int descriptor,
                        const char *path, files_answer_reply *reply)
{
    (void)start(request, asked, descriptor, path, reply);
}

/* ---- bodies ---- */

static void on_poured(void *cookie, uint64_t size, const struct error *err)
{
    struct files_answer *answer = cookie;
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

void files_answer_pour(struct http_request *request, const struct files_request *asked, const char *path,
                       files_answer_reply *reply, uint64_t size)
{
    int ends[2];
    struct error err = {0};
    if (!files_pipe(ends, 1, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct files_answer *answer = start(request, asked, ends[0], path, reply);
    answer->size = size;
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
