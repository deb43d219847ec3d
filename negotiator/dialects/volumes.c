/* volumes.c - the native dialect's named volumes: which there are, and that one goes (protocol.md, 2). */
#include "negotiator/leasing/keeping/volumes.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/visit.h"
#include "shared/base/text.h"

static const json_int_t MIB = 1024 * 1024;

DEFINE_VISIT(volumes_question)

static json_t *shown_volume(const struct volume *volume)
{
    json_t *json = json_pack("{s:s, s:s, s:o, s:O}", "name", volume->name, "node", volume->node, "created_at",
                             shown_time(volume->created_at), "sandboxes", volume->used_by);
    if (volume->size_mb > 0) /* else what its node gives */
        json_object_set_new(json, "size_bytes", json_integer(volume->size_mb * MIB));
    return json;
}

static void print(struct http_request *request, const struct volumes_question *q)
{
    if (q->verb == VOLUMES_DROP) {
        http_reply_empty(request, 204);
        return;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < q->count; i++)
        json_array_append_new(list, shown_volume(&q->list[i]));
    http_reply_json(request, 200, json_pack("{s:o}", "volumes", list));
}

static bool read_name(struct volumes_question *q, const char *name, struct error *err)
{
    return (wanted_is_volume(name) && text_copy(q->name, sizeof q->name, name)) ||
           error_set(err, ERROR_NOT_FOUND, "no such volume; a name is 1 to %d of a-z0-9-", WANTED_VOLUME_BYTES - 1);
}

static void ask(struct http_request *request, enum volumes_verb verb)
{
    struct error err = {0};
    AUTO(volumes_question) *q = volumes_question_new();
    q->verb = verb;
    if (plane_caller(request, &q->caller, &err) &&
        (verb == VOLUMES_LIST || read_name(q, http_request_parameter(request, "volume"), &err)))
        leasing_ask_volumes(plane_of(request)->leasing, volumes_question_visit(request, TAKE(q), print));
    else if (verb == VOLUMES_DROP)
        plane_refuse(request, &err);
    else
        http_reply_error(request, &err);
}

static void list(struct http_request *request)
{
    ask(request, VOLUMES_LIST);
}

static void drop(struct http_request *request)
{
    ask(request, VOLUMES_DROP);
}

struct plane_rows volumes_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/volumes", HTTP_BEARER | HTTP_API_KEY, "viewer", 0, list},
        {"DELETE", "/volumes/{volume}", HTTP_BEARER | HTTP_API_KEY, "user", 0, drop},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
