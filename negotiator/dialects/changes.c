/* changes.c - the native dialect's changes of a living sandbox: pause, resume, PATCH (protocol.md, 2). */
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/visit.h"
#include "negotiator/dialects/wish.h"
#include "negotiator/leasing/changing.h"
#include "shared/base/text.h"

enum { CHANGE_BODY_BYTES = 65536, EMPTY_BODY_BYTES = 1024 };

DEFINE_VISIT(changing)

static void print(struct http_request *request, const struct changing *changing)
{
    http_reply_json(request, 200, json_pack("{s:o}", "sandbox", shown_sandbox(&changing->sandbox)));
}

static bool read_change(const struct http_request *request, struct changing *changing, struct error *err)
{
    const char *id = http_request_parameter(request, "sandbox_id");
    if (!plane_caller(request, &changing->caller, err))
        return false;
    if (!random_is_id(id, "sbx") || !text_copy(changing->sandbox_id, sizeof changing->sandbox_id, id))
        return error_set(err, ERROR_NOT_FOUND, "no such sandbox; an id looks like sbx_ and 20 of a-z0-9");
    json_t *body = http_request_json(request, err);
    if (body == NULL)
        return false;
    bool is_update = changing->verb == CHANGING_UPDATE;
    bool read = is_update ? wish_read_change(&changing->wanted, body, err)
                          : json_object_size(body) == 0 || error_set(err, ERROR_INVALID, "the body must be {}");
    json_decref(body);
    return read;
}

static void change(struct http_request *request, enum changing_verb verb)
{
    struct error err = {0};
    AUTO(changing) *changing = changing_new();
    changing->verb = verb;
    if (read_change(request, changing, &err)) {
        struct changing *asked = changing_visit(request, TAKE(changing), print);
        if (leasing_change(plane_of(request)->leasing, asked, &err))
            return; /* the rules have it */
        changing_visit_cancel(asked);
    }
    plane_refuse(request, &err);
}

static void pause_sandbox(struct http_request *request)
{
    change(request, CHANGING_PAUSE);
}

static void resume_sandbox(struct http_request *request)
{
    change(request, CHANGING_RESUME);
}

static void update_sandbox(struct http_request *request)
{
    change(request, CHANGING_UPDATE);
}

struct plane_rows changes_rows(void)
{
    static const struct http_route ROWS[] = {
        {"PATCH", "/sandboxes/{sandbox_id}", HTTP_BEARER | HTTP_API_KEY, "user", CHANGE_BODY_BYTES, update_sandbox},
        {"POST", "/sandboxes/{sandbox_id}/pause", HTTP_BEARER | HTTP_API_KEY, "user", EMPTY_BODY_BYTES, pause_sandbox},
        {"POST", "/sandboxes/{sandbox_id}/resume", HTTP_BEARER | HTTP_API_KEY, "user", EMPTY_BODY_BYTES,
         resume_sandbox},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
