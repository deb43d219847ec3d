#include "clients/c/remote_kernel.h"

#include "clients/c/call.h"
#include "clients/c/remote_http.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

static const size_t LINE_MAX_BYTES = 64 * 1024 * 1024;
static const unsigned START_MS = 90000, SHORT_MS = 15000;

/* ---- short calls ---- */

static bool ask(const struct grant *grant, const char *method, const char *path, json_t *body, unsigned timeout_ms,
                json_t **reply, struct error *err)
{
    AUTO_FREE char *url = memory_printf("%s/%s", grant->http, path);
    struct call call = {
        .method = method, .url = url, .credential = grant->token, .body = body, .timeout_ms = timeout_ms};
    return call_json(&call, reply, NULL, err);
}

static bool put_variables(json_t *body, const char *const *variables, struct error *err)
{
    json_t *env = json_object();
    json_object_set_new(body, "env", env);
    for (size_t i = 0; variables[i]; i++) {
        const char *equals = strchr(variables[i], '=');
        AUTO_FREE char *name = memory_string(variables[i]);
        name[equals ? equals - variables[i] : 0] = 0;
        if (!equals || json_object_set_new(env, name, json_string(equals + 1)) != 0)
            return error_set(err, ERROR_INVALID, "environment variable %zu is not NAME=VALUE in UTF-8", i + 1);
    }
    return true;
}

bool remote_kernel_create(const struct grant *grant, const struct remote_kernel_wanted *wanted, json_t **view,
                          struct error *err)
{
    json_t *body = json_object();
    if (wanted->language)
        json_object_set_new(body, "language", json_string(wanted->language));
    if (wanted->id)
        json_object_set_new(body, "id", json_string(wanted->id));
    if (wanted->cwd)
        json_object_set_new(body, "cwd", json_string(wanted->cwd));
    bool is_made = (!wanted->variables || put_variables(body, wanted->variables, err)) &&
                   ask(grant, "POST", "kernels", body, START_MS, view, err);
    json_decref(body);
    return is_made;
}

bool remote_kernel_list(const struct grant *grant, json_t **reply, struct error *err)
{
    return ask(grant, "GET", "kernels", NULL, SHORT_MS, reply, err);
}

bool remote_kernel_specs(const struct grant *grant, json_t **reply, struct error *err)
{
    return ask(grant, "GET", "kernelspecs", NULL, SHORT_MS, reply, err);
}

static bool ask_of(const struct grant *grant, const char *method, const char *id, const char *verb, json_t **reply,
                   struct error *err)
{
    if (!text_is_name(id, 48))
        return error_set(err, ERROR_INVALID, "a context's name is 1 to 48 of A-Z a-z 0-9 . _ -, not . or ..");
    AUTO_FREE char *path = memory_printf("kernels/%s%s", id, verb);
    return ask(grant, method, path, NULL, START_MS, reply, err);
}

bool remote_kernel_interrupt(const struct grant *grant, const char *id, json_t **view, struct error *err)
{
    return ask_of(grant, "POST", id, "/interrupt", view, err);
}

bool remote_kernel_restart(const struct grant *grant, const char *id, json_t **view, struct error *err)
{
    return ask_of(grant, "POST", id, "/restart", view, err);
}

bool remote_kernel_remove(const struct grant *grant, const char *id, struct error *err)
{
    return ask_of(grant, "DELETE", id, "", NULL, err);
}

/* ---- run ---- */

struct running {
    const struct remote_kernel_run *run;
    struct text line;
    bool is_done, is_left;
};

static bool take_error(const json_t *event, struct error *err)
{
    const char *message = json_string_value(json_object_get(event, "message"));
    return error_set(err, error_kind_of_code(json_string_value(json_object_get(event, "code"))), "%s",
                     message ? message : "the node ended the stream without a reason");
}

/* What ends the stream has a code; an error of the code that ran has a name. */
static bool take_event(struct running *running, const json_t *event, struct error *err)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    if (!type)
        return error_set(err, ERROR_INTERNAL, "the node's event has no type");
    if (strcmp(type, "keepalive") == 0)
        return true;
    if (strcmp(type, "error") == 0 && json_object_get(event, "code"))
        return take_error(event, err);
    running->is_done = strcmp(type, "done") == 0;
    running->is_left = !running->run->event(running->run->cookie, event);
    return !running->is_left || error_set(err, ERROR_GONE, "given up from here; the run goes on");
}

static bool take_line(struct running *running, struct error *err)
{
    if (running->line.length == 0)
        return true;
    json_t *event = json_loadb(running->line.data, running->line.length, JSON_ALLOW_NUL, NULL);
    bool goes_on = json_is_object(event) ? take_event(running, event, err)
                                         : error_set(err, ERROR_INTERNAL, "the node's event is no JSON object");
    json_decref(event);
    running->line.length = 0;
    return goes_on;
}

static bool on_bytes(void *cookie, const void *data, size_t size, struct error *err)
{
    struct running *running = cookie;
    const char *at = data, *end = at + size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        if (running->line.length + length > LINE_MAX_BYTES)
            return error_set(err, ERROR_INTERNAL, "the node's event is over 64 MiB");
        text_append(&running->line, at, length);
        at += length + (stop != NULL);
        if (stop && !take_line(running, err))
            return false;
    }
    return true;
}

static bool on_moved(void *cookie, uint64_t bytes)
{
    const struct running *running = cookie;
    return bytes > 0 || !running->run->tick || running->run->tick(running->run->cookie);
}

static char *make_body(const struct remote_kernel_run *run, struct error *err)
{
    json_t *code = json_stringn(run->code, run->size);
    if (!code) {
        error_set(err, ERROR_INVALID, "the code is not UTF-8, and other bytes cannot be passed");
        return NULL;
    }
    json_t *body = json_pack("{s:o}", "code", code);
    if (run->timeout_s > 0)
        json_object_set_new(body, "timeout", json_real(run->timeout_s));
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

bool remote_kernel_run(const struct grant *grant, const struct remote_kernel_run *run, struct error *err)
{
    struct running running = {.run = run};
    AUTO_FREE char *url = memory_printf("%s/kernels/%s/run", grant->http, run->id);
    AUTO_FREE char *body = make_body(run, err);
    if (!body)
        return false;
    struct remote_http http = {.method = "POST",
                               .url = url,
                               .credential = grant->token,
                               .text = body,
                               .text_size = strlen(body),
                               .write = on_bytes,
                               .moved = on_moved,
                               .cookie = &running,
                               .moved_cookie = &running};
    CURL *curl = curl_easy_init();
    bool ended =
        curl ? remote_http_perform(curl, &http, err) : error_set(err, ERROR_INTERNAL, "libcurl does not start");
    curl_easy_cleanup(curl);
    text_done(&http.reply);
    text_done(&running.line);
    if (running.is_done)
        return true;
    return ended ? error_set(err, ERROR_NODE_UNREACHABLE, "the connection ended before the run did; the run goes on")
                 : false;
}
