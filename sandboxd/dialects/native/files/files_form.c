/* files_form.c - body -> pipe -> reader -> pipe -> file helper. Whichever of them is not ready stops those before it,
 * up to the client. */
#include "sandboxd/dialects/native/files/files_form.h"

#include "sandboxd/dialects/native/files/files_request.h"
#include "sandboxd/dialects/plane.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <string.h>

enum { READ_BYTES = 16 * 1024 };

struct form {
    struct http_request *request;
    const struct files_form_events *events;
    void *cookie;
    struct http_multipart *reader;
    struct loop_watch *body; /* what http_body_pour fills */
    size_t at, size;         /* of `data`: not looked at yet */
    bool is_poured;          /* all of the body is in the pipe */
    bool waits;              /* for the helper: room in its pipe, or its word */

    enum files_form_part kind; /* of the part under way; REFUSED: there is none */
    struct text field;
    struct files_call *call; /* of a FILE, until its end */
    struct loop_watch *file; /* the helper's pipe, until all is in it */
    char *detail;            /* of its record; NULL: there is none under way */
    bool has_entry;
    uint64_t file_size;
    const char *held; /* held_size bytes of it have no room yet */
    size_t held_size;
    char data[READ_BYTES];
};

static void pump(struct form *form);

static void form_free(struct form *form)
{
    files_cancel(form->call);
    loop_watch_free(form->file);
    loop_watch_free(form->body);
    http_multipart_free(form->reader);
    text_done(&form->field);
    free(form->detail);
    free(form);
}

static void on_gone(void *cookie)
{
    struct form *form = cookie;
    if (form->detail)
        plane_record_failure(form->request, "write", form->detail, 0, "broken off before the file's end");
    form->events->gone(form->cookie);
    form_free(form);
}

/* NULL: all is well. The last thing its caller does. */
static void end(struct form *form, const struct error *err)
{
    if (form->detail && err)
        plane_record_failure(form->request, "write", form->detail, error_http_status(err->kind), err->message);
    files_cancel(TAKE(form->call));
    form->events->over(form->cookie, err);
    form_free(form);
}

/* ---- one file ---- */

static void on_record(void *cookie, const struct files_record *record, int descriptor)
{
    struct form *form = cookie;
    if (descriptor >= 0)
        close(descriptor);
    if (record->kind != FILES_ENTRY)
        return;
    form->has_entry = true;
    form->events->entry(form->cookie, record);
}

/* The helper's last word on a file; a hostile one says it before it was given all, and what comes is thrown away. */
static void on_over(void *cookie, const struct files_record *done, const struct error *err)
{
    struct form *form = cookie;
    struct error wrong = {0};
    form->call = NULL;
    if (!err && !form->has_entry) {
        error_set(&wrong, ERROR_INTERNAL, "the file helper in the sandbox does not say what it wrote");
        err = &wrong;
    }
    if (err) {
        end(form, err);
        return;
    }
    free(TAKE(form->detail));
    loop_watch_free(TAKE(form->file));
    form->held_size = 0;
    form->events->written(form->cookie, done->count == 1);
    if (form->waits) {
        form->waits = false;
        pump(form);
    }
}

static const struct files_events EVENTS = {.record = on_record, .over = on_over};

static bool begin_file(struct form *form, const struct files_request *asked, struct error *err)
{
    const struct plane *plane = plane_of(form->request);
    AUTO_FREE char *detail = files_request_detail(asked, NULL);
    int ends[2];
    if (!plane_audit(form->request, err, "write", "%s", detail) || !files_pipe(ends, 1, err))
        return false;
    form->detail = TAKE(detail);
    form->has_entry = false;
    form->file_size = 0;
    form->file = loop_watch_new(http_request_loop(form->request), ends[1]);
    form->call =
        files_start(plane->sandboxes, caller_of(form->request)->claims.sandbox_id, asked, ends[0], &EVENTS, form);
    return true;
}

static void on_room(void *cookie)
{
    struct form *form = cookie;
    form->waits = false;
    pump(form);
}

/* What is held goes into the helper's pipe, as far as there is room. */
static bool write_held(struct form *form, struct error *err)
{
    ssize_t wrote = write(loop_watch_fd(form->file), form->held, form->held_size);
    if (wrote < 0 && (errno == EAGAIN || errno == EINTR)) {
        form->waits = true;
        loop_watch_writable(form->file, on_room, form);
        return true;
    }
    if (wrote < 0 && errno != EPIPE)
        return error_set_errno(err, ERROR_INTERNAL, "pass a file on");
    if (wrote < 0) { /* why, the helper tells */
        loop_watch_free(TAKE(form->file));
        form->held_size = 0;
        return true;
    }
    form->held += wrote;
    form->held_size -= (size_t)wrote;
    form->file_size += (uint64_t)wrote;
    return true;
}

/* ---- parts ---- */

static bool begin_part(struct form *form, const struct http_multipart_part *part, struct error *err)
{
    struct files_request asked = {.operation = FILES_WRITE,
                                  .root = "",
                                  .path = "",
                                  .to_root = "",
                                  .to_path = "",
                                  .pattern = "",
                                  .glob = "",
                                  .upload = ""};
    form->kind = form->events->part(form->cookie, part, &asked, err);
    form->field.length = 0;
    text_append(&form->field, NULL, 0);
    if (form->kind == FILES_FORM_FILE)
        return begin_file(form, &asked, err);
    return form->kind == FILES_FORM_FIELD;
}

static bool take_data(struct form *form, const char *data, size_t size, struct error *err)
{
    if (form->kind == FILES_FORM_FILE && form->file) {
        form->held = data;
        form->held_size = size;
    } else if (form->kind == FILES_FORM_FIELD) {
        if (size > FILES_FORM_FIELD_MAX - form->field.length)
            return error_set(err, ERROR_TOO_LARGE, "a part that is no file is over %d bytes", FILES_FORM_FIELD_MAX);
        text_append(&form->field, data, size);
    }
    return true;
}

static bool end_part(struct form *form, struct error *err)
{
    enum files_form_part kind = form->kind;
    form->kind = FILES_FORM_REFUSED;
    if (kind == FILES_FORM_FIELD)
        return form->events->field(form->cookie, form->field.data, form->field.length, err);
    loop_watch_free(TAKE(form->file));
    if (form->call) {
        files_commit(form->call, form->file_size);
        form->waits = true;
    }
    return true;
}

static bool take_event(struct form *form, const struct http_multipart_event *event, struct error *err)
{
    switch (event->kind) {
    case HTTP_MULTIPART_PART:
        return begin_part(form, event->part, err);
    case HTTP_MULTIPART_DATA:
        return take_data(form, event->data, event->size, err);
    case HTTP_MULTIPART_PART_END:
        return end_part(form, err);
    case HTTP_MULTIPART_NONE:
    case HTTP_MULTIPART_END:
        break;
    }
    return true;
}

/* ---- the body ---- */

/* What was read is looked at until it is used up, or something has to be waited for. */
static bool take_step(struct form *form, struct error *err)
{
    struct http_multipart_event event;
    size_t used;
    if (form->held_size > 0)
        return write_held(form, err);
    if (!http_multipart_next(form->reader, form->data + form->at, form->size - form->at, &used, &event, err))
        return false;
    form->at += used;
    return take_event(form, &event, err);
}

static void on_readable(void *cookie)
{
    struct form *form = cookie;
    ssize_t got = read(loop_watch_fd(form->body), form->data, sizeof form->data);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    loop_watch_readable(form->body, NULL, NULL);
    if (got > 0) {
        form->at = 0;
        form->size = (size_t)got;
        pump(form);
        return;
    }
    struct error err = {0}; /* an end before the body's is told by on_poured */
    if (form->is_poured)
        end(form, http_multipart_finish(form->reader, &err) ? NULL : &err);
}

/* The last thing its caller does. One read a turn: others of the loop have theirs. */
static void pump(struct form *form)
{
    struct error err = {0};
    while (!form->waits && (form->held_size > 0 || form->at < form->size))
        if (!take_step(form, &err)) {
            end(form, &err);
            return;
        }
    if (!form->waits)
        loop_watch_readable(form->body, on_readable, form);
}

static void on_poured(void *cookie, uint64_t size UNUSED, const struct error *err)
{
    struct form *form = cookie;
    form->is_poured = true;
    if (err)
        end(form, err);
}

bool files_form_start(struct http_request *request, const struct files_form_events *events, void *cookie,
                      struct error *err)
{
    AUTO(http_multipart) *reader =
        http_multipart_new(http_request_header(request, "content-type"), FILES_FORM_PARTS_MAX, err);
    int ends[2];
    if (!reader || !files_request_has_room(request, FILES_FORMS_MAX, "forms", err) || !files_pipe(ends, 0, err))
        return false;
    AUTO_FD int ours = ends[0], theirs = ends[1];
    if (!fd_set_nonblocking(theirs, err))
        return false;
    struct form *form = memory_new(sizeof *form);
    form->request = request;
    form->events = events;
    form->cookie = cookie;
    form->reader = TAKE(reader);
    form->body = loop_watch_new(http_request_loop(request), TAKE_FD(ours));
    loop_watch_readable(form->body, on_readable, form);
    http_request_when_gone(request, on_gone, form);
    http_body_pour(request, TAKE_FD(theirs), on_poured, form);
    return true;
}
