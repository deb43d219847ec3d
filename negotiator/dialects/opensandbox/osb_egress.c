/* osb_egress.c - the port 18080 of a sandbox, where OpenSandbox's clients read and change what leaves it. Who may: its
 * owner's API key, or a capability of the sandbox with scope `network`. Errors are plain text. */
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_ask.h"
#include "negotiator/dialects/opensandbox/osb_network.h"
#include "negotiator/leasing/changing.h"
#include "shared/base/memory.h"

enum { POLICY_BODY_BYTES = 256 * 1024 };

DEFINE_VISIT_BY(changing, osb_answer)

static void print(struct http_request *request, const struct sandbox *sandbox)
{
    http_reply_json(request, 200,
                    json_pack("{s:s, s:s, s:s, s:o}", "status", "ok", "mode", osb_network_mode(sandbox->network),
                              "enforcementMode", "dns+nft", "policy", osb_network_shown(sandbox->network)));
}

/* ---- looking ---- */

static void print_found(struct http_request *request, const struct question *q)
{
    struct error err = {0};
    if (q->claims && !scope_allows(&q->claims->scopes, "network"))
        (void)error_set(&err, ERROR_CAPABILITY_DENIED, "this needs scope network");
    else if (!sandbox_is_live(&q->sandbox))
        (void)error_set(&err, ERROR_NOT_FOUND, "sandbox %s has ended", q->sandbox.id);
    if (err.kind != ERROR_NONE)
        osb_answer(request, &err);
    else
        print(request, &q->sandbox);
}

/* Of who shows no API key: his capability. */
static bool read_holder(const struct http_request *request, struct caller *caller, char **token, struct error *err)
{
    const char *credential = http_request_credential(request);
    if (http_request_identity(request))
        return plane_caller(request, caller, err);
    if (credential == NULL)
        return error_set(err, ERROR_UNAUTHENTICATED,
                         "an API key of the sandbox's owner is needed, or a capability with scope network");
    *token = memory_string(credential);
    return plane_holder(request, caller, err);
}

static void get_policy(struct http_request *request)
{
    struct error err = {0};
    AUTO(question) *q = question_new();
    if (!osb_sandbox_id(request, q->sandbox_id, &err) || !read_holder(request, &q->caller, &q->token, &err)) {
        osb_answer(request, &err);
        return;
    }
    q->verb = q->token ? QUESTION_SHOWN : QUESTION_SANDBOX;
    osb_ask(request, TAKE(q), print_found);
}

static void get_health(struct http_request *request)
{
    http_reply_bytes(request, 200, "text/plain; charset=utf-8", "ok", 2);
}

/* ---- changing ---- */

static void print_changed(struct http_request *request, const struct changing *changing)
{
    print(request, &changing->sandbox);
}

static void drop(void *cookie)
{
    json_decref(cookie);
}

static json_t *replace(void *cookie, const json_t *network UNUSED, struct error *err)
{
    return osb_network_read(cookie, err);
}

static json_t *merge(void *cookie, const json_t *network, struct error *err)
{
    return osb_network_merge(network, cookie, err);
}

static json_t *take_out(void *cookie, const json_t *network, struct error *err)
{
    return osb_network_remove(network, cookie, err);
}

/* What can be no change of any policy is refused here. */
static bool read_change(const struct http_request *request, struct changing *changing, struct error *err)
{
    bool is_whole = changing->edit_network == replace;
    if (!osb_sandbox_id(request, changing->sandbox_id, err) ||
        !read_holder(request, &changing->caller, &changing->token, err))
        return false;
    json_t *body = is_whole ? http_request_json(request, err) : http_request_json_array(request, err);
    changing->edit_cookie = body;
    changing->edit_free = drop;
    json_t *tried = body ? changing->edit_network(body, NULL, err) : NULL;
    json_decref(tried);
    return tried != NULL;
}

static void change(struct http_request *request,
                   json_t *(*edit)(void *cookie, const json_t *network, struct error *err))
{
    struct osb_refusal refusal = {.code = NULL};
    AUTO(changing) *changing = changing_new();
    changing->verb = CHANGING_UPDATE;
    changing->edit_network = edit;
    if (read_change(request, changing, &refusal.err)) {
        struct changing *asked = changing_visit(request, TAKE(changing), print_changed);
        if (leasing_change(plane_of(request)->leasing, asked, &refusal.err))
            return; /* the rules have it */
        changing_visit_cancel(asked);
    }
    if (http_request_identity(request))
        osb_refuse(request, &refusal);
    else
        osb_refuse_quietly(request, &refusal); /* nobody knows whose it would have been */
}

static void put_policy(struct http_request *request)
{
    change(request, replace);
}

static void patch_policy(struct http_request *request)
{
    change(request, merge);
}

static void delete_rules(struct http_request *request)
{
    change(request, take_out);
}

/* ---- what is not served ---- */

static void refuse_vault(struct http_request *request)
{
    static const char TEXT[] = "there is no credential vault here: nothing looks into TLS to put secrets there";
    http_reply_bytes(request, 501, "text/plain; charset=utf-8", TEXT, sizeof TEXT - 1);
}

#define CARRIERS (OSB_KEY | HTTP_EXECD | HTTP_EGRESS_AUTH)

struct plane_rows osb_egress_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", OSB_EGRESS "/policy", CARRIERS, PLANE_HOLDER, 0, get_policy},
        {"PATCH", OSB_EGRESS "/policy", CARRIERS, PLANE_HOLDER, POLICY_BODY_BYTES, patch_policy},
        {"DELETE", OSB_EGRESS "/policy", CARRIERS, PLANE_HOLDER, POLICY_BODY_BYTES, delete_rules},
        {"POST", OSB_EGRESS "/policy", CARRIERS, PLANE_HOLDER, POLICY_BODY_BYTES, put_policy},
        {"PUT", OSB_EGRESS "/policy", CARRIERS, PLANE_HOLDER, POLICY_BODY_BYTES, put_policy},
        {"GET", OSB_EGRESS "/healthz", HTTP_LIMITED, NULL, 0, get_health},
        {"GET", OSB_EGRESS "/credential-vault", HTTP_LIMITED, NULL, 0, refuse_vault},
        {"POST", OSB_EGRESS "/credential-vault", HTTP_LIMITED, NULL, POLICY_BODY_BYTES, refuse_vault},
        {"PATCH", OSB_EGRESS "/credential-vault", HTTP_LIMITED, NULL, POLICY_BODY_BYTES, refuse_vault},
        {"DELETE", OSB_EGRESS "/credential-vault", HTTP_LIMITED, NULL, POLICY_BODY_BYTES, refuse_vault},
        {"GET", OSB_EGRESS "/credential-vault/{rest...}", HTTP_LIMITED, NULL, 0, refuse_vault},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
