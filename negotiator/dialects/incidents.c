/* incidents.c - the native dialect's incidents: open one, look at it, ask for evidence, close it. Admins only. */
#include "negotiator/dialects/plane.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/visit.h"
#include "negotiator/leasing/incidents/incident.h"
#include "shared/base/text.h"

#include <string.h>

enum { BODY_BYTES = 65536, CLOSE_BODY_BYTES = 4096 };

DEFINE_VISIT(incident_question)

/* --- the answers --- */

static void show_time(json_t *row, const char *name)
{
    json_t *at = json_object_get(row, name);
    if (json_is_integer(at))
        json_object_set_new(row, name, shown_time(json_integer_value(at)));
}

/* All but what only the rules need. The caller owns it. */
static json_t *shown_incident(const json_t *row)
{
    json_t *shown = json_copy((json_t *)(uintptr_t)row);
    show_time(shown, "opened_at");
    show_time(shown, "closed_at");
    json_object_del(shown, "cursor");
    json_object_del(shown, "remote");
    return shown;
}

static json_t *shown_incidents(const json_t *rows)
{
    json_t *list = json_array();
    size_t i;
    const json_t *each;
    json_array_foreach (rows, i, each)
        json_array_append_new(list, shown_incident(each));
    return list;
}

static json_t *shown_suspects(const struct incident_question *q)
{
    const json_t *last = json_array_get(q->answer, json_array_size(q->answer) - 1);
    json_t *id = json_object_get(json_object_get(last, "sandbox"), "id");
    return json_pack("{s:O, s:O}", "suspects", q->answer, "next", q->more ? id : json_null());
}

static void print(struct http_request *request, const struct incident_question *q)
{
    switch (q->verb) {
    case INCIDENT_OPEN:
    case INCIDENT_FIND:
    case INCIDENT_CLOSE:
        http_reply_json(request, q->verb == INCIDENT_OPEN ? 201 : 200,
                        json_pack("{s:o}", "incident", shown_incident(q->answer)));
        return;
    case INCIDENT_LIST:
        http_reply_json(request, 200, json_pack("{s:o}", "incidents", shown_incidents(q->answer)));
        return;
    case INCIDENT_SUSPECTS:
        http_reply_json(request, 200, shown_suspects(q));
        return;
    case INCIDENT_EVIDENCE:
        http_reply_json(request, 200, json_pack("{s:O}", "evidence", q->answer));
        return;
    }
}

/* `read` fills the question from the request. */
static void ask(struct http_request *request, enum incident_verb verb,
                bool (*read)(const struct http_request *request, struct incident_question *q, struct error *err))
{
    struct error err = {0};
    AUTO(incident_question) *q = incident_question_new();
    q->verb = verb;
    if (plane_caller(request, &q->caller, &err) && (read == NULL || read(request, q, &err)))
        leasing_incident(plane_of(request)->leasing, incident_question_visit(request, TAKE(q), print));
    else if (verb == INCIDENT_OPEN || verb == INCIDENT_CLOSE)
        plane_refuse(request, &err);
    else
        http_reply_error(request, &err);
}

/* --- opening --- */

static bool read_text(struct incident_question *q, const char *name, const json_t *value, bool needed,
                      struct error *err)
{
    bool fits = json_is_string(value) && text_copy(q->text, sizeof q->text, json_string_value(value));
    return (fits && (!needed || q->text[0])) || error_set(err, ERROR_INVALID, "%s must be a text of %d to %d bytes",
                                                          name, needed, INCIDENT_REASON_BYTES - 1);
}

/* {"principal": "ada"}, {"thread": "t1", "principal": "ada"}, {"all": true} ...: the one that is no principal beside
 * it is the selector. */
static bool read_selector(const struct incident_question *q, struct incident_selector *to, const json_t *json,
                          struct error *err)
{
    static const char WANTED[] = "a selector is one of {\"principal\"}, {\"thread\", \"principal\"?}, {\"sandbox\"}, "
                                 "{\"jti\"}, {\"family\"}, {\"link\"}, {\"lease\"}, {\"scope\", \"principal\"?}, "
                                 "{\"key\"}, {\"all\": true}";
    const char *name;
    const json_t *value, *beside = json_object_get(json, "principal");
    size_t count = json_object_size(json);
    bool found = false;
    json_object_foreach ((json_t *)(uintptr_t)json, name, value) {
        if (count == 2 && value == beside)
            continue;
        bool is_key = strcmp(name, "key") == 0;
        to->kind = MARK_KINDS;
        found = (is_key || mark_kind_parse(name, &to->kind)) &&
                (to->kind == MARK_ALL ? json_is_true(value)
                                      : json_string_length(value) > 0 &&
                                            text_copy(to->value, sizeof to->value, json_string_value(value)));
    }
    bool fits = count == 1 || (count == 2 && json_is_string(beside));
    if (!found || !fits)
        return error_set(err, ERROR_INVALID, "%s", WANTED);
    const char *whose = count == 2                ? json_string_value(beside)
                        : to->kind == MARK_THREAD ? q->caller.principal.name
                                                  : "";
    return text_copy(to->principal, sizeof to->principal, whose) || error_set(err, ERROR_INVALID, "%s", WANTED);
}

static bool read_selectors(struct incident_question *q, const json_t *list, struct error *err)
{
    size_t i;
    const json_t *each;
    if (json_array_size(list) == 0 || json_array_size(list) > INCIDENT_SELECTORS_MAX)
        return error_set(err, ERROR_INVALID, "selectors must be a list of 1 to %d", INCIDENT_SELECTORS_MAX);
    json_array_foreach (list, i, each) {
        if (!read_selector(q, &q->selectors[i], each, err))
            return false;
    }
    q->selector_count = json_array_size(list);
    return true;
}

static bool read_freeze(struct incident_question *q, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    if (text_equal(text, "none"))
        q->freeze = INCIDENT_FREEZE_NONE;
    else if (text_equal(text, "matching"))
        q->freeze = INCIDENT_FREEZE_MATCHING;
    else if (text_equal(text, "all"))
        q->freeze = INCIDENT_FREEZE_ALL;
    else
        return error_set(err, ERROR_INVALID, "freeze must be \"none\", \"matching\" or \"all\"");
    return true;
}

static bool read_bool(bool *to, const char *name, const json_t *value, struct error *err)
{
    *to = json_is_true(value);
    return json_is_boolean(value) || error_set(err, ERROR_INVALID, "%s must be true or false", name);
}

static bool read_open_field(struct incident_question *q, const char *name, const json_t *value, struct error *err)
{
    if (strcmp(name, "reason") == 0)
        return read_text(q, name, value, true, err);
    if (strcmp(name, "selectors") == 0)
        return read_selectors(q, value, err);
    if (strcmp(name, "freeze") == 0)
        return read_freeze(q, value, err);
    if (strcmp(name, "revoke") == 0)
        return read_bool(&q->revoke, name, value, err);
    if (strcmp(name, "pause") == 0)
        return read_bool(&q->pause, name, value, err);
    return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", name);
}

static bool read_open(const struct http_request *request, struct incident_question *q, struct error *err)
{
    const char *name;
    json_t *value, *body = http_request_json(request, err);
    bool read = body != NULL;
    q->freeze = INCIDENT_FREEZE_MATCHING;
    q->revoke = q->pause = true;
    json_object_foreach (body, name, value)
        read = read && read_open_field(q, name, value, err);
    json_decref(body);
    if (read && !q->text[0])
        return error_set(err, ERROR_INVALID, "reason must be given");
    return read && (q->selector_count > 0 || error_set(err, ERROR_INVALID, "selectors must be given"));
}

static void open_incident(struct http_request *request)
{
    ask(request, INCIDENT_OPEN, read_open);
}

/* --- the others --- */

static bool read_id(const struct http_request *request, struct incident_question *q, struct error *err)
{
    const char *id = http_request_parameter(request, "incident_id");
    return (random_is_id(id, "inc") && text_copy(q->id, sizeof q->id, id)) ||
           error_set(err, ERROR_NOT_FOUND, "no such incident; an id looks like inc_ and 20 of a-z0-9");
}

static void list_incidents(struct http_request *request)
{
    ask(request, INCIDENT_LIST, NULL);
}

static void find_incident(struct http_request *request)
{
    ask(request, INCIDENT_FIND, read_id);
}

static bool read_suspects(const struct http_request *request, struct incident_question *q, struct error *err)
{
    const char *cursor = http_request_query(request, "cursor");
    if (!read_id(request, q, err))
        return false;
    return cursor == NULL || (random_is_id(cursor, "sbx") && text_copy(q->sandbox_id, sizeof q->sandbox_id, cursor)) ||
           error_set(err, ERROR_INVALID, "cursor must be the next of an earlier answer");
}

static void list_suspects(struct http_request *request)
{
    ask(request, INCIDENT_SUSPECTS, read_suspects);
}

static bool read_close_field(struct incident_question *q, const char *name, const json_t *value, struct error *err)
{
    if (strcmp(name, "note") == 0)
        return read_text(q, name, value, false, err);
    if (strcmp(name, "resume") == 0)
        return read_bool(&q->resume, name, value, err);
    return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", name);
}

static bool read_close(const struct http_request *request, struct incident_question *q, struct error *err)
{
    const char *name;
    json_t *value, *body = read_id(request, q, err) ? http_request_json(request, err) : NULL;
    bool read = body != NULL;
    json_object_foreach (body, name, value)
        read = read && read_close_field(q, name, value, err);
    json_decref(body);
    return read;
}

static void close_incident(struct http_request *request)
{
    ask(request, INCIDENT_CLOSE, read_close);
}

static bool read_evidence_field(struct incident_question *q, const char *name, const json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    if (strcmp(name, "sandbox") == 0)
        return (random_is_id(text ? text : "", "sbx") && text_copy(q->sandbox_id, sizeof q->sandbox_id, text)) ||
               error_set(err, ERROR_INVALID, "sandbox must be the id of one of the incident's suspects");
    if (strcmp(name, "part") == 0)
        return ((text_equal(text, "processes") || text_equal(text, "files")) &&
                text_copy(q->part, sizeof q->part, text)) ||
               error_set(err, ERROR_INVALID, "part must be \"processes\" or \"files\"");
    if (strcmp(name, "position") == 0)
        return json_is_null(value) || (text && text_copy(q->position, sizeof q->position, text)) ||
               error_set(err, ERROR_INVALID, "position must be the next of an earlier answer");
    return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", name);
}

static bool read_evidence(const struct http_request *request, struct incident_question *q, struct error *err)
{
    const char *name;
    json_t *value, *body = read_id(request, q, err) ? http_request_json(request, err) : NULL;
    bool read = body != NULL;
    json_object_foreach (body, name, value)
        read = read && read_evidence_field(q, name, value, err);
    json_decref(body);
    if (read && (!q->sandbox_id[0] || !q->part[0]))
        return error_set(err, ERROR_INVALID, "the body must be {\"sandbox\", \"part\", \"position\"?}");
    return read;
}

static void ask_evidence(struct http_request *request)
{
    ask(request, INCIDENT_EVIDENCE, read_evidence);
}

struct plane_rows incidents_rows(void)
{
    static const struct http_route ROWS[] = {
        {"POST", "/incidents", HTTP_BEARER | HTTP_API_KEY, "admin", BODY_BYTES, open_incident},
        {"GET", "/incidents", HTTP_BEARER | HTTP_API_KEY, "admin", 0, list_incidents},
        {"GET", "/incidents/{incident_id}", HTTP_BEARER | HTTP_API_KEY, "admin", 0, find_incident},
        {"GET", "/incidents/{incident_id}/suspects", HTTP_BEARER | HTTP_API_KEY, "admin", 0, list_suspects},
        {"POST", "/incidents/{incident_id}/evidence", HTTP_BEARER | HTTP_API_KEY, "admin", CLOSE_BODY_BYTES,
         ask_evidence},
        {"POST", "/incidents/{incident_id}/close", HTTP_BEARER | HTTP_API_KEY, "admin", CLOSE_BODY_BYTES,
         close_incident},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
