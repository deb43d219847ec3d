#include "clients/c/remote_sandbox.h"

#include "clients/c/call.h"
#include "clients/c/grant.h"
#include "clients/c/negotiator.h"

#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <string.h>

static const unsigned SNAPSHOT_MS = 600000;

static bool is_over(const json_t *sandbox)
{
    const char *state = json_string_value(json_object_get(sandbox, "state"));
    return !state || text_equal(state, "terminated") || text_equal(state, "failed");
}

/* The id of the first of a list that lives. The caller frees; NULL. */
static char *first_id(const json_t *list, bool (*is_left_out)(const json_t *one))
{
    size_t index;
    json_t *one;
    json_array_foreach (list, index, one) {
        const char *id = json_string_value(json_object_get(one, "id"));
        if (id && !(is_left_out && is_left_out(one)))
            return memory_string(id);
    }
    return NULL;
}

/* What is called by an id or a name. */
struct called {
    const char *prefix, *what, *kind;       /* of its id; of the path and the list; for people */
    bool (*is_left_out)(const json_t *one); /* NULL: none */
};

/* An id as it is, else the id of the one with that name. */
static char *find(const struct place *place, const struct called *called, const char *given, struct error *err)
{
    if (random_is_id(given, called->prefix))
        return memory_string(given);
    if (strchr(given, '_')) { /* no name has one */
        error_set(err, ERROR_NOT_FOUND, "no such %s; an id looks like %s_ and 20 of a-z0-9", called->kind,
                  called->prefix);
        return NULL;
    }
    AUTO_TEXT path = {0};
    text_append_format(&path, "/%s", called->what);
    negotiator_query(&path, "name", given);
    json_t *reply = NULL;
    if (!negotiator_call(place, "GET", path.data, NULL, &reply, err))
        return NULL;
    char *found = first_id(json_object_get(reply, called->what), called->is_left_out);
    json_decref(reply);
    if (!found)
        error_set(err, ERROR_NOT_FOUND, "no %s is called \"%s\"", called->kind, given);
    return found;
}

char *remote_sandbox_find(const struct place *place, const char *given, struct error *err)
{
    static const struct called SANDBOX = {"sbx", "sandboxes", "living sandbox", is_over};
    return find(place, &SANDBOX, given, err);
}

char *remote_snapshot_find(const struct place *place, const char *given, struct error *err)
{
    static const struct called SNAPSHOT = {"snp", "snapshots", "snapshot", NULL};
    return find(place, &SNAPSHOT, given, err);
}

/* The member of an answer that is an object, taken out of it; NULL with err. Takes the reference. */
static json_t *take_member(json_t *reply, const char *name, struct error *err)
{
    json_t *member = json_incref(json_object_get(reply, name));
    json_decref(reply);
    if (json_is_object(member))
        return member;
    json_decref(member);
    error_set(err, ERROR_INTERNAL, "the negotiator's answer holds no %s: is it a Parley of this version?", name);
    return NULL;
}

char *remote_sandbox_of_thread(const struct place *place, const char *thread, struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/threads", thread, "sandbox");
    json_t *reply = NULL;
    if (!negotiator_call(place, "GET", path, NULL, &reply, err))
        return NULL;
    json_t *sandbox = take_member(reply, "sandbox", err);
    const char *id = json_string_value(json_object_get(sandbox, "id"));
    char *found = memory_string(id);
    if (sandbox && !id)
        error_set(err, ERROR_INTERNAL, "the negotiator's answer names no sandbox");
    json_decref(sandbox);
    return found;
}

/* A call whose answer may be {"sandbox": ...} or the sandbox itself (GET). */
static bool call_sandbox(const struct place *place, const char *method, const char *path, json_t *body,
                         json_t **sandbox, struct error *err)
{
    json_t *reply = NULL;
    if (!negotiator_call(place, method, path, body, &reply, err))
        return false;
    json_t *shown = json_object_get(reply, "id") ? reply : take_member(reply, "sandbox", err);
    if (!shown)
        return false;
    if (sandbox)
        *sandbox = shown;
    else
        json_decref(shown);
    return true;
}

json_t *remote_sandbox_show(const struct place *place, const char *id, struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/sandboxes", id, NULL);
    json_t *sandbox = NULL;
    return call_sandbox(place, "GET", path, NULL, &sandbox, err) ? sandbox : NULL;
}

static bool act(const struct place *place, const char *id, const char *verb, json_t **sandbox, struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/sandboxes", id, verb);
    json_t *body = json_object();
    bool done = call_sandbox(place, "POST", path, body, sandbox, err);
    json_decref(body);
    return done;
}

bool remote_sandbox_pause(const struct place *place, const char *id, json_t **sandbox, struct error *err)
{
    return act(place, id, "pause", sandbox, err);
}

bool remote_sandbox_resume(const struct place *place, const char *id, json_t **sandbox, struct error *err)
{
    return act(place, id, "resume", sandbox, err);
}

bool remote_sandbox_renew(const struct place *place, const char *id, const char *until, json_t **sandbox,
                          struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/sandboxes", id, "renew");
    json_t *body = json_pack("{s:s}", "expires_at", until);
    bool done = call_sandbox(place, "POST", path, body, sandbox, err);
    json_decref(body);
    return done;
}

bool remote_sandbox_change(const struct place *place, const char *id, json_t *changes, json_t **sandbox,
                           struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/sandboxes", id, NULL);
    return call_sandbox(place, "PATCH", path, changes, sandbox, err);
}

bool remote_sandbox_end(const struct place *place, const char *id, struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/sandboxes", id, NULL);
    if (!negotiator_call(place, "DELETE", path, NULL, NULL, err))
        return false;
    grant_forget_sandbox(id);
    return true;
}

bool remote_sandbox_snapshot(const struct place *place, const char *id, const char *name, json_t **reply,
                             struct error *err)
{
    if (place->capability)
        return error_set(err, ERROR_INVALID,
                         "a snapshot is taken with an API key, or with --token; not with a "
                         "capability URL");
    AUTO_FREE char *path = negotiator_path("/sandboxes", id, "snapshots");
    AUTO_FREE char *url = memory_printf("%s%s", place->url, path);
    json_t *body = json_object();
    if (name && json_object_set_new(body, "name", json_string(name)) != 0) {
        json_decref(body);
        return error_set(err, ERROR_INVALID, "the snapshot's name is not UTF-8");
    }
    struct call call = {
        .method = "POST", .url = url, .credential = place->api_key, .body = body, .timeout_ms = SNAPSHOT_MS};
    json_t *made = NULL;
    bool done = call_json(&call, &made, NULL, err);
    json_decref(body);
    if (!done)
        return false;
    if (!json_is_string(json_object_get(json_object_get(made, "snapshot"), "id"))) {
        json_decref(made);
        return error_set(err, ERROR_INTERNAL, "the negotiator's answer names no snapshot");
    }
    *reply = made;
    return true;
}

bool remote_snapshot_drop(const struct place *place, const char *id, struct error *err)
{
    AUTO_FREE char *path = negotiator_path("/snapshots", id, NULL);
    return negotiator_call(place, "DELETE", path, NULL, NULL, err);
}
