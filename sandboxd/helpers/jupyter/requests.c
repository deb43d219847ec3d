#include "sandboxd/helpers/jupyter/requests.h"

#include "sandboxd/helpers/drivers/drivers.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void request_done(struct request *request)
{
    json_decref(request->code);
    *request = (struct request){.kind = REQUEST_NONE};
}

void requests_done(struct requests *requests)
{
    text_done(&requests->bytes);
}

bool requests_read(struct requests *requests, struct error *err)
{
    char some[65536];
    ssize_t got = read(requests->fd, some, sizeof some);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got < 0)
        return error_set_errno(err, ERROR_INTERNAL, "read the requests");
    requests->has_ended = got == 0;
    text_append(&requests->bytes, some, (size_t)got);
    if (requests->bytes.length > DRIVER_REQUEST_MAX + sizeof some)
        return error_set(err, ERROR_TOO_LARGE, "a request is one line of at most %d bytes", DRIVER_REQUEST_MAX);
    return true;
}

static bool read_run(const json_t *run, struct request *to, struct error *err)
{
    const char *id = json_string_value(json_object_get(run, "id"));
    json_t *code = json_object_get(run, "code");
    if (!json_is_string(code) || !text_copy(to->run, sizeof to->run, id))
        return error_set(err, ERROR_INVALID, "a run has an id of at most %d bytes and code", MESSAGE_ID_BYTES - 1);
    to->kind = REQUEST_RUN;
    to->code = json_incref(code);
    to->silent = json_is_true(json_object_get(run, "silent"));
    return true;
}

static bool read_line(const char *line, size_t size, struct request *to, struct error *err)
{
    json_error_t why;
    json_t *request = json_loadb(line, size, JSON_ALLOW_NUL, &why);
    bool fine = true;
    if (json_is_object(json_object_get(request, "run")))
        fine = read_run(json_object_get(request, "run"), to, err);
    else if (json_is_object(json_object_get(request, "exit")))
        to->kind = REQUEST_EXIT;
    else
        fine = error_set(err, ERROR_INVALID, "a request is {\"run\":{..}} or {\"exit\":{}}%s%.100s",
                         request ? "" : ": ", request ? "" : why.text);
    json_decref(request);
    return fine;
}

bool requests_take(struct requests *requests, struct request *to, struct error *err)
{
    struct text *bytes = &requests->bytes;
    *to = (struct request){.kind = REQUEST_NONE};
    const char *end = bytes->length ? memchr(bytes->data, '\n', bytes->length) : NULL;
    if (end == NULL) {
        to->kind = requests->has_ended ? REQUEST_EXIT : REQUEST_NONE;
        return true;
    }
    size_t size = (size_t)(end - bytes->data);
    bool fine = read_line(bytes->data, size, to, err);
    memmove(bytes->data, end + 1, bytes->length - size - 1);
    bytes->length -= size + 1;
    bytes->data[bytes->length] = '\0';
    return fine;
}
