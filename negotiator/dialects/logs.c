/* logs.c - the native dialect's look at what a command wrote, by API key (protocol.md, 2). */
#include "negotiator/leasing/logs.h"
#include "negotiator/dialects/visit.h"
#include "shared/base/text.h"

#include <string.h>

DEFINE_VISIT(logs_question)

static void print(struct http_request *request, const struct logs_question *q)
{
    http_reply_json(request, 200, json_pack("{s:s, s:O}", "process", q->process, "logs", q->answer));
}

static bool read_question(const struct http_request *request, struct logs_question *q, struct error *err)
{
    static const char *const QUERY[] = {"process", "tail_bytes", "principal", NULL};
    const char *id = http_request_parameter(request, "sandbox_id"), *process = http_request_query(request, "process");
    const char *tail = http_request_query(request, "tail_bytes");
    uint64_t bytes = LOGS_TAIL_MAX_BYTES;
    if (!http_request_query_only(request, QUERY, err) || !plane_caller(request, &q->caller, err))
        return false;
    if (!random_is_id(id, "sbx") || !text_copy(q->sandbox_id, sizeof q->sandbox_id, id))
        return error_set(err, ERROR_NOT_FOUND, "no such sandbox; an id looks like sbx_ and 20 of a-z0-9");
    if (!text_is_name(process ? process : "entrypoint", LOGS_PROCESS_BYTES - 1) ||
        !text_copy(q->process, sizeof q->process, process ? process : "entrypoint"))
        return error_set(err, ERROR_INVALID, "process must be the id of a command: 1 to 64 of A-Za-z0-9._-");
    if (tail && (!text_parse_u64(tail, strlen(tail), LOGS_TAIL_MAX_BYTES, &bytes) || bytes == 0))
        return error_set(err, ERROR_INVALID, "tail_bytes must be 1 to %d", LOGS_TAIL_MAX_BYTES);
    q->tail_bytes = (size_t)bytes;
    return true;
}

static void get_logs(struct http_request *request)
{
    struct error err = {0};
    AUTO(logs_question) *q = logs_question_new();
    if (read_question(request, q, &err))
        leasing_logs(plane_of(request)->leasing, logs_question_visit(request, TAKE(q), print));
    else
        http_reply_error(request, &err);
}

struct plane_rows logs_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/sandboxes/{sandbox_id}/logs", HTTP_BEARER | HTTP_API_KEY, "user", 0, get_logs},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
