/* node_evidence.c - the call `evidence`: a page of what the launcher's child saw in a sandbox. */
#include "sandboxd/dialects/node_calls.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES_MAX = 4 * 1024 * 1024 - 65536 }; /* what a message holds */

/* The whole file, the caller's; NULL with err. It does not change any more. */
static char *read_lines(int file, size_t *size, struct error *err)
{
    struct stat status;
    if (fstat(file, &status) < 0 || status.st_size > BYTES_MAX) {
        error_set(err, ERROR_TOO_LARGE, "the evidence does not fit into a message");
        return NULL;
    }
    AUTO_FREE char *lines = memory_new((size_t)status.st_size + 1);
    ssize_t got = pread(file, lines, (size_t)status.st_size, 0);
    if (got != status.st_size) {
        error_set_errno(err, ERROR_INTERNAL, "read evidence");
        return NULL;
    }
    *size = (size_t)got;
    return TAKE(lines);
}

/* {"part", "items", "next", "truncated"}; NULL: the last line is not there. */
static json_t *parse_lines(char *lines)
{
    json_t *items = json_array(), *end = NULL;
    char *rest = lines;
    for (char *line = strsep(&rest, "\n"); line && *line && !end; line = strsep(&rest, "\n")) {
        json_t *item = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_true(json_object_get(item, "end")))
            end = item;
        else if (item)
            json_array_append_new(items, item);
    }
    json_t *next = json_object_get(end, "next");
    AUTO_FREE char *position =
        json_is_integer(next) ? memory_printf("%lld", (long long)json_integer_value(next)) : NULL;
    json_t *page = end ? json_pack("{s:O, s:O, s:s?, s:O}", "part", json_object_get(end, "part"), "items", items,
                                   "next", position, "truncated", json_object_get(end, "truncated"))
                       : NULL;
    json_decref(items);
    json_decref(end);
    return page;
}

static json_t *make_page(int file, bool is_paused, struct error *err)
{
    size_t size = 0;
    char at[CLOCK_TEXT_BYTES];
    AUTO_FREE char *lines = read_lines(file, &size, err);
    json_t *page = lines ? parse_lines(lines) : NULL;
    if (lines && !page)
        error_set(err, ERROR_INTERNAL, "the list broke off");
    if (!page)
        return NULL;
    clock_format(at, clock_wall_ms());
    json_object_set_new(page, "ok", json_true());
    json_object_set_new(page, "at", json_string(at));
    json_object_set_new(page, "frozen", json_boolean(is_paused));
    return page;
}

static void found(void *cookie, const struct verb_answer *answer)
{
    AUTO_FD int file = answer->fd;
    AUTO_REGISTRY_VIEW view = {0};
    struct error err = {0};
    struct http_request *request = node_find_sandbox(cookie, answer, &view);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    json_t *page = make_page(file, view.paused, &err);
    if (page)
        node_reply(request, waiting->number, page);
    else
        node_reply_error(request, waiting->number, &err);
}

bool node_evidence(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    uint64_t skip = 0;
    const char *id = node_text(message, "id", err), *part = id ? node_text(message, "part", err) : NULL;
    const char *position = part ? node_text(message, "position", err) : NULL;
    if (!position)
        return false;
    bool of_files = strcmp(part, "files") == 0;
    if (!of_files && strcmp(part, "processes") != 0)
        return error_set(err, ERROR_INVALID, "part: \"processes\" or \"files\"");
    if (position[0] && !text_parse_u64(position, strlen(position), INT64_MAX, &skip))
        return error_set(err, ERROR_INVALID, "position must be the next of an earlier answer");
    sandboxes_evidence(plane_of(request)->sandboxes, id, of_files ? FL_EVIDENCE_FILES : FL_EVIDENCE_PROCESSES, skip,
                       found, node_wait(request, number, id));
    return true;
}
