/* access_log.c - one line a request, with the route instead of the path: a path may hold a token. */
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/http/http_internal.h"

#include <string.h>

#define FORMAT "%.16s %s%s status=%d ms=%.2f bytes=%llu remote=%s who=%s request_id=%s trace_id=%s span_id=%s"

void http_access_log(const struct http_request *request)
{
    const struct http_match *match = &request->match;
    const char *prefix = "", *pattern = "-";
    if (match->route != NULL && match->is_by_token) {
        prefix = "/c/...";
        pattern = match->route->path + sizeof HTTP_SANDBOX_PREFIX - 1;
    } else if (match->route != NULL) {
        pattern = match->route->path;
    } else if (request->head.path != NULL && strncmp(request->head.path, "/c/", 3) == 0) {
        pattern = "/c/...";
    }
    double ms = (double)(clock_monotonic_ns() - request->began_ns) / 1e6;
    bool is_routine = match->route != NULL && match->route->needs == NULL && request->status < 400;
    const struct http_trace *trace = &request->trace;
    log_write_later(is_routine ? LOG_DEBUG : LOG_INFO, request->worker->server->name,
                    request->phase == HTTP_GONE ? FORMAT " gone=1" : FORMAT,
                    request->head.method != NULL ? request->head.method : "-", prefix, pattern, request->status, ms,
                    (unsigned long long)request->sent_bytes, request->remote,
                    request->label[0] != '\0' ? request->label : "-", request->id, trace->trace_id, trace->span_id);
}
