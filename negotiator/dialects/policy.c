/* policy.c - the native dialect's policy: shown, set as a whole, explained. */
#include "negotiator/leasing/policy/policy.h"
#include "negotiator/dialects/shown.h"
#include "negotiator/dialects/visit.h"
#include "negotiator/dialects/wish.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { WHY_BODY_BYTES = 65536, DOCUMENT_BODY_BYTES = 256 * 1024, VERSION_BYTES = 24 };

DEFINE_VISIT(policy_question)

/* --- the answers --- */

static json_t *shown_policy(const struct policy_question *q)
{
    return json_pack("{s:I, s:o, s:s*, s:s, s:O?, s:O*}", "version", (json_int_t)q->version, "set_at",
                     q->set_at > 0 ? shown_time(q->set_at) : json_null(), "set_by", q->set_by[0] ? q->set_by : NULL,
                     "digest", q->digest, "policy", q->document, "defaults", q->settings);
}

/* What is asked for is had, less what would be cut. */
static json_t *shown_why(const struct policy_question *q)
{
    bool allowed = true;
    size_t i;
    json_t *each;
    json_array_foreach (q->findings, i, each)
        allowed = allowed && !text_equal(json_string_value(json_object_get(each, "verdict")), "no");
    return json_pack("{s:b, s:O}", "allowed", allowed, "rules", q->findings);
}

static void print(struct http_request *request, const struct policy_question *q)
{
    char version[VERSION_BYTES];
    if (q->verb == POLICY_WHY) {
        http_reply_json(request, 200, shown_why(q));
        return;
    }
    if (text_format(version, sizeof version, "\"%lld\"", (long long)q->version))
        http_reply_header(request, "ETag", version);
    http_reply_json(request, 200, shown_policy(q));
}

/* --- the questions --- */

static bool read_version(const struct http_request *request, struct policy_question *q, struct error *err)
{
    const char *given = http_request_header(request, "if-match");
    size_t length = given ? strlen(given) : 0;
    uint64_t version = 0;
    q->any_version = text_equal(given, "*");
    bool good = q->any_version || (length > 2 && given[0] == '"' && given[length - 1] == '"' &&
                                   text_parse_u64(given + 1, length - 2, INT64_MAX, &version));
    q->version = (int64_t)version;
    return good || error_set(err, ERROR_INVALID,
                             "If-Match must be the version that is replaced, in quotes as GET /policy has it as ETag "
                             "(\"0\": there is none); or *");
}

static bool read_policy(const struct http_request *request, struct policy_question *q, struct error *err)
{
    size_t size = 0;
    if (!read_version(request, q, err))
        return false;
    if (http_request_body(request, &size) == NULL || size == 0) /* else a lost body would lift all that is forbidden */
        return error_set(err, ERROR_INVALID, "the body must be a policy; {} is one that says nothing");
    q->document = http_request_json(request, err);
    return q->document != NULL;
}

/* An actor as `negotiate` has it, or in one word. */
static bool read_actor(struct policy_question *q, json_t *body, struct error *err)
{
    const char *actor = json_string_value(json_object_get(body, "actor"));
    if (actor == NULL)
        return true;
    bool good = (text_equal(actor, "human") || text_equal(actor, "agent")) &&
                text_copy(q->wanted.actor, sizeof q->wanted.actor, actor);
    json_object_del(body, "actor");
    return good ||
           error_set(err, ERROR_INVALID, "actor must be \"human\", \"agent\", or an object as in a negotiation");
}

static bool read_whose(struct policy_question *q, json_t *body, struct error *err)
{
    const json_t *role = json_object_get(body, "role"), *principal = json_object_get(body, "principal");
    const char *name = json_string_value(principal);
    q->role_given = role != NULL;
    if (role && (!role_parse(json_string_value(role), &q->role) || q->role == ROLE_VIEWER))
        return error_set(err, ERROR_INVALID, "role must be \"user\" or \"admin\": a viewer makes nothing");
    if (principal && (!name || !principal_is_name(name) || !text_copy(q->caller.owner, sizeof q->caller.owner, name)))
        return error_set(err, ERROR_INVALID, "principal must be 1 to %d of A-Za-z0-9._@:+-", PRINCIPAL_BYTES - 1);
    json_object_del(body, "role");
    json_object_del(body, "principal");
    return true;
}

static bool read_why(const struct http_request *request, struct policy_question *q, struct error *err)
{
    json_t *body = http_request_json(request, err);
    bool read = body && read_whose(q, body, err) && read_actor(q, body, err) && wish_read(&q->wanted, body, err);
    json_decref(body);
    return read;
}

static bool read_nothing(const struct http_request *request UNUSED, struct policy_question *q UNUSED,
                         struct error *err UNUSED)
{
    return true;
}

static void ask(struct http_request *request, enum policy_verb verb,
                bool (*read)(const struct http_request *request, struct policy_question *q, struct error *err))
{
    struct error err = {0};
    AUTO(policy_question) *q = policy_question_new();
    q->verb = verb;
    if (plane_caller(request, &q->caller, &err) && read(request, q, &err)) {
        struct policy_question *asked = policy_question_visit(request, TAKE(q), print);
        if (leasing_ask_policy(plane_of(request)->leasing, asked, &err))
            return; /* the rules have it */
        policy_question_visit_cancel(asked);
    }
    if (verb == POLICY_SET)
        plane_refuse(request, &err);
    else
        http_reply_error(request, &err);
}

static void show(struct http_request *request)
{
    ask(request, POLICY_SHOW, read_nothing);
}

static void set(struct http_request *request)
{
    ask(request, POLICY_SET, read_policy);
}

static void why(struct http_request *request)
{
    ask(request, POLICY_WHY, read_why);
}

struct plane_rows policy_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/policy", HTTP_BEARER | HTTP_API_KEY, "admin", 0, show},
        {"PUT", "/policy", HTTP_BEARER | HTTP_API_KEY, "admin", DOCUMENT_BODY_BYTES, set},
        {"POST", "/policy/why", HTTP_BEARER | HTTP_API_KEY, "user", WHY_BODY_BYTES, why},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
