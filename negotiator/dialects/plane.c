#include "negotiator/dialects/plane.h"

#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/outside.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { ROUTES_MAX = 192 };

struct plane *plane_of(const struct http_request *request)
{
    return http_server_context(request);
}

static const char *key_action(const struct http_request *request)
{
    const char *method = http_request_method(request), *path = http_request_path(request);
    if (text_equal(strrchr(path, '/'), "/rotate"))
        return "key.rotate";
    return text_equal(method, "POST")     ? "key.create"
           : text_equal(method, "PATCH")  ? "key.update"
           : text_equal(method, "DELETE") ? "key.delete"
                                          : "read";
}

/* By the names that the rules use. */
static const char *webhook_action(const struct http_request *request)
{
    const char *method = http_request_method(request), *path = http_request_path(request);
    bool is_post = text_equal(method, "POST");
    return text_equal(method, "DELETE")                           ? "webhook.delete"
           : text_equal(method, "PATCH")                          ? "webhook.update"
           : is_post && text_equal(path, "/webhooks")             ? "webhook.create"
           : is_post && text_equal(strrchr(path, '/'), "/rotate") ? "webhook.rotate"
                                                                  : "read";
}

/* What is below /v1 is another protocol's name for the same. */
static const char *native_path(const struct http_request *request)
{
    const char *path = http_request_path(request);
    return text_starts_with(path, "/v1/") ? path + strlen("/v1") : path;
}

static const char *action_of(const struct http_request *request)
{
    const char *method = http_request_method(request), *path = native_path(request);
    bool is_passed_on =
        http_request_parameter(request, "port") != NULL; /* a token is what is refused, whatever is asked */
    if (is_passed_on || (text_equal(path, "/sandboxes") && text_equal(method, "POST")))
        return "negotiate";
    if (text_equal(strrchr(path, '/'), "/renew") || text_equal(strrchr(path, '/'), "/renew-expiration"))
        return "sandbox.renew";
    if (text_starts_with(path, "/revocations"))
        return text_equal(method, "POST") ? "revoke" : "read";
    if (text_starts_with(path, "/policy"))
        return text_equal(method, "PUT") ? "policy.set" : "read";
    if (text_starts_with(path, "/incidents"))
        return text_equal(method, "GET")                     ? "read"
               : text_equal(path, "/incidents")              ? "incident.open"
               : text_equal(strrchr(path, '/'), "/evidence") ? "incident.evidence"
                                                             : "incident.close";
    if (text_starts_with(path, "/keys"))
        return key_action(request);
    if (text_starts_with(path, "/webhooks"))
        return webhook_action(request);
    if (text_equal(strrchr(path, '/'), "/refresh"))
        return "refresh";
    if (text_equal(strrchr(path, '/'), "/share"))
        return "share";
    if (http_request_parameter(request, "share_id"))
        return "share.end";
    if (text_starts_with(path, "/nodes"))
        return text_equal(method, "POST") ? "node.change" : "read";
    if (text_starts_with(path, "/snapshots"))
        return text_equal(method, "DELETE") ? "snapshot.delete" : "read";
    if (text_starts_with(path, "/volumes"))
        return text_equal(method, "DELETE") ? "volume.delete" : "read";
    if (text_equal(strrchr(path, '/'), "/snapshots"))
        return "snapshot.create";
    if (text_equal(method, "PATCH"))
        return "sandbox.update";
    if (text_equal(strrchr(path, '/'), "/pause"))
        return "sandbox.pause";
    if (text_equal(strrchr(path, '/'), "/resume"))
        return "sandbox.resume";
    if (text_equal(strrchr(path, '/'), "/renew"))
        return "sandbox.renew";
    if (text_equal(strrchr(path, '/'), "/token"))
        return "negotiate";
    if (text_equal(path, "/execute"))
        return "negotiate";
    bool of_thread = http_request_parameter(request, "thread_id") != NULL;
    if (text_equal(method, "DELETE"))
        return of_thread ? "release" : "sandbox.delete";
    return text_equal(method, "POST") && of_thread ? "negotiate" : "read";
}

static void record_refusal(const struct http_request *request, const struct principal *principal,
                           const struct error *err)
{
    struct caller caller = {.principal = *principal};
    bool fits = text_copy(caller.remote, sizeof caller.remote, http_request_remote(request)) &&
                text_copy(caller.request_id, sizeof caller.request_id, http_request_id(request));
    (void)fits; /* else it is "" */
    const struct leasing_refusal refusal = {.caller = &caller,
                                            .action = action_of(request),
                                            .thread_id = http_request_parameter(request, "thread_id"),
                                            .sandbox_id = http_request_parameter(request, "sandbox_id"),
                                            .err = err};
    leasing_refused(plane_of(request)->leasing, &refusal);
}

void plane_record_refusal(const struct http_request *request, const struct error *err)
{
    const struct principal *principal = http_request_identity(request);
    if (principal)
        record_refusal(request, principal, err);
}

void plane_refuse(struct http_request *request, const struct error *err)
{
    plane_record_refusal(request, err);
    http_reply_error(request, err);
}

void plane_refuse_node(struct http_request *request, const struct fleet_message *message, const struct error *err)
{
    struct caller caller = {.owner = ""};
    if (message->stale && plane_holder(request, &caller, NULL)) {
        const struct leasing_refusal refusal = {.caller = &caller, .action = "node.message", .err = err};
        log_warn("fleet", "%s remote=%s", err->message, caller.remote);
        leasing_refused(plane_of(request)->leasing, &refusal);
    }
    http_reply_error(request, err);
}

bool plane_admit(struct http_request *request, const struct principal *principal, struct error *err)
{
    const char *needs = http_request_route(request)->needs;
    bool is_for_holders = strcmp(needs, PLANE_HOLDER) == 0;
    enum role needed = is_for_holders ? ROLE_VIEWER : ROLE_ADMIN; /* what is no role is for nobody else */
    if (!is_for_holders && !role_parse(needs, &needed))
        needed = ROLE_ADMIN;
    if (principal->role < needed) {
        error_set(err, ERROR_FORBIDDEN, "this needs role %s; the key has role %s", role_name(needed),
                  role_name(principal->role));
        metrics_add(&plane_of(request)->counts.forbidden, 1);
        record_refusal(request, principal, err);
        return false;
    }
    http_request_set_identity(request, memory_copy(principal, sizeof *principal), free, principal->name);
    return true;
}

bool plane_authorize(struct http_request *request, const struct http_route *route, struct error *err)
{
    if (route->needs == NULL)
        return true;
    enum outside outside = outside_authorize(request, err);
    if (outside != OUTSIDE_NOT)
        return outside != OUTSIDE_REFUSED;
    struct principal principal;
    const char *credential = http_request_credential(request);
    if (strcmp(route->needs, PLANE_HOLDER) == 0 && !principal_is_api_key(credential) &&
        !principal_is_login_token(credential))
        return true;
    if (!principal_table_find(plane_of(request)->principals, credential ? credential : "", &principal, err)) {
        leasing_stranger(plane_of(request)->leasing, http_request_remote(request));
        metrics_add(&plane_of(request)->counts.strangers, 1);
        return false;
    }
    return plane_admit(request, &principal, err);
}

bool plane_holder(const struct http_request *request, struct caller *caller, struct error *err)
{
    _Static_assert(sizeof caller->traceparent == HTTP_TRACEPARENT_BYTES, "one text of a trace");
    http_request_traceparent(request, caller->traceparent);
    return (text_copy(caller->remote, sizeof caller->remote, http_request_remote(request)) &&
            text_copy(caller->request_id, sizeof caller->request_id, http_request_id(request))) ||
           error_set(err, ERROR_INVALID, "the request's id or address is too long");
}

bool plane_caller(const struct http_request *request, struct caller *caller, struct error *err)
{
    const struct principal *principal = http_request_identity(request);
    const char *owner = http_request_query(request, "principal");
    if (principal == NULL)
        return error_set(err, ERROR_UNAUTHENTICATED, "the API key is missing or not valid");
    if (owner && (!principal_is_name(owner) || !text_copy(caller->owner, sizeof caller->owner, owner)))
        return error_set(err, ERROR_INVALID, "principal must be 1 to %d of A-Za-z0-9._@:+-", PRINCIPAL_BYTES - 1);
    caller->principal = *principal;
    return plane_holder(request, caller, err);
}

bool plane_thread(const struct http_request *request, char to[static CAPABILITY_THREAD_BYTES], struct error *err)
{
    const char *thread = http_request_parameter(request, "thread_id");
    return (lease_is_thread_id(thread) && text_copy(to, CAPABILITY_THREAD_BYTES, thread)) ||
           error_set(err, ERROR_INVALID, "a thread id is 1 to %d of A-Za-z0-9._:-, and not . or ..",
                     CAPABILITY_THREAD_BYTES - 1);
}

bool plane_whose(const struct http_request *request, struct caller *caller, char whose[static PRINCIPAL_BYTES],
                 struct error *err)
{
    const char *all = http_request_query(request, "all");
    if (!plane_caller(request, caller, err))
        return false;
    bool is_admin = caller->principal.role == ROLE_ADMIN;
    const char *named = caller->owner[0] ? caller->owner : caller->principal.name;
    if (all && strcmp(all, "1") != 0)
        return error_set(err, ERROR_INVALID, "all must be 1");
    if (all && !is_admin)
        return error_set(err, ERROR_FORBIDDEN, "all=1 needs role admin");
    if (!is_admin && strcmp(named, caller->principal.name) != 0)
        return error_set(err, ERROR_NOT_FOUND, "no such principal");
    return text_copy(whose, PRINCIPAL_BYTES, all && caller->owner[0] == '\0' ? "" : named) ||
           error_set(err, ERROR_INVALID, "principal is too long");
}

/* --- leasing's nodes are the fleet --- */

static bool place(void *context, const struct placement *placement, char node[static SANDBOX_NODE_BYTES],
                  uint32_t *epoch, struct error *err)
{
    _Static_assert(SANDBOX_NODE_BYTES == LINK_NODE_BYTES, "one name of a node");
    const struct fleet_wish wish = {
        .isolation = placement->isolation, .template_name = placement->template_name, .node = placement->node};
    return fleet_place(context, &wish, node, epoch, err);
}

static enum node_life find(void *context, const char *node, char url[static SANDBOX_URL_BYTES])
{
    _Static_assert(SANDBOX_URL_BYTES == FLEET_URL_BYTES, "one URL of a node");
    static const enum node_life LIVES[] = {[FLEET_UNKNOWN] = NODE_UNKNOWN,
                                           [FLEET_ALIVE] = NODE_ALIVE,
                                           [FLEET_SUSPECT] = NODE_SUSPECT,
                                           [FLEET_LOST] = NODE_LOST};
    return LIVES[fleet_find(context, node, url)];
}

static void call(void *context, const char *node, json_t *message,
                 void (*done)(void *cookie, const json_t *reply, const struct error *err), void *cookie)
{
    fleet_call(context, node, message, done, cookie);
}

static uint64_t incarnation(void *context, const char *node)
{
    return fleet_incarnation(context, node);
}

static uint32_t key_epoch(void *context, const char *node)
{
    return fleet_epoch(context, node);
}

struct leasing_nodes plane_nodes(struct fleet *fleet)
{
    return (struct leasing_nodes){.context = fleet,
                                  .place = place,
                                  .find = find,
                                  .call = call,
                                  .incarnation = incarnation,
                                  .key_epoch = key_epoch};
}

/* --- the table --- */

const struct http_route *plane_routes(size_t *count)
{
    static struct http_route rows[ROUTES_MAX];
    const struct plane_rows dialects[] = {
        threads_rows(),  sandboxes_rows(),   changes_rows(), snapshots_rows(), volumes_rows(), node_rows(),
        admin_rows(),    revocations_rows(), nodes_rows(),   audit_rows(),     execute_rows(), keys_rows(),
        login_rows(),    share_rows(),       events_rows(),  incidents_rows(), policy_rows(),  metrics_rows(),
        webhooks_rows(), opensandbox_rows(), logs_rows(),
    };
    *count = 0;
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
        if (*count + dialects[i].count > ROUTES_MAX)
            abort(); /* a constant of the program: seen at its first start */
        memcpy(&rows[*count], dialects[i].rows, dialects[i].count * sizeof *rows);
        *count += dialects[i].count;
    }
    return rows;
}
