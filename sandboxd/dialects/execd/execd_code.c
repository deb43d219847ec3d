/* execd_code.c - routes of contexts, and the translation between them and the verbs. */
#include "sandboxd/dialects/execd/execd_code.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execd/execd_command.h"
#include "sandboxd/dialects/execd/execd_contexts.h"
#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/execd/execd_folder.h"
#include "sandboxd/dialects/execd/execd_path.h"
#include "sandboxd/dialects/execd/execd_request.h"
#include "sandboxd/dialects/plane.h"
#include "sandboxd/front_files/front_files.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { SMALL_BODY_BYTES = 64 * 1024, RUN_BODY_BYTES = 6 * KERNEL_CODE_MAX + 65536 };

static const char DEFAULT_ID[] = "default-"; /* of the context that code of a language alone runs in */

static struct sandboxes *all_of(const struct http_request *request)
{
    return plane_of(request)->sandboxes;
}

static json_t *show(const struct kernel_view *view)
{
    return json_pack("{s:s,s:s}", "id", view->id, "language", execd_language_shown(view->language));
}

static void refuse_missing(struct http_request *request, const char *name)
{
    char text[64];
    (void)snprintf(text, sizeof text, "missing query parameter '%s'", name);
    execd_reply_error(request, 400, "MISSING_QUERY", text);
}

/* ---- POST /code/context ---- */

struct context_order {
    char language[DRIVER_NAME_BYTES];
    char *cwd; /* NULL: where commands start */
};

static void context_order_free(struct context_order *order)
{
    free(order->cwd);
    free(order);
}

static void answer_created(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = execd_waiting_start(cookie, answer);
    if (request)
        http_reply_json(request, 200, show(answer->kernels));
}

/* Takes the order. */
static void create(struct http_request *request, void *cookie, const struct error *err)
{
    struct context_order *order = cookie;
    if (request && err) {
        http_reply_error(request, err);
    } else if (request) {
        struct kernel_call call = execd_call(request, NULL, answer_created);
        struct command *command = command_new();
        command->cwd = TAKE(order->cwd);
        command->origin = plane_origin(request);
        kernels_create(all_of(request), &call, order->language, command, 0);
    }
    context_order_free(order);
}

static bool read_context(const struct http_request *request, const json_t *body, struct context_order *order,
                         struct error *err)
{
    const char *language, *cwd;
    if (!execd_request_text(body, "language", DRIVER_NAME_BYTES - 1, &language, err) ||
        !execd_request_text(body, "cwd", FRONT_FILES_PATH_MAX, &cwd, err) ||
        !execd_language(language ? language : "", order->language, err))
        return false;
    order->cwd = cwd && *cwd ? execd_path(request, cwd, err) : NULL;
    return order->cwd || !cwd || !*cwd;
}

static void handle_create(struct http_request *request)
{
    struct error err = {0};
    struct context_order *order = memory_new(sizeof *order);
    json_t *body = http_request_json(request, &err);
    bool is_read = body && read_context(request, body, order, &err);
    json_decref(body);
    if (!is_read) {
        context_order_free(order);
        http_reply_error(request, &err);
    } else if (order->cwd) {
        execd_folder(request, order->cwd, true, create, order);
    } else {
        create(request, order, NULL);
    }
}

/* ---- GET /code/contexts, GET and DELETE /code/contexts/{id} ---- */

/* What the query asks for; ours, or as it came where it is no language. */
static void wanted_language(const struct http_request *request, char to[static DRIVER_NAME_BYTES])
{
    struct error ignored = {0};
    const char *given = http_request_query(request, "language");
    to[0] = 0;
    if (given && *given && !execd_language(given, to, &ignored) && !text_copy(to, DRIVER_NAME_BYTES, given))
        strcpy(to, "?");
}

static bool is_wanted(const struct kernel_view *view, const char *language)
{
    return !execd_is_session(view) && (!language[0] || strcmp(view->language, language) == 0);
}

static void answer_list(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = execd_waiting(cookie, answer);
    if (!request)
        return;
    char language[DRIVER_NAME_BYTES];
    wanted_language(request, language);
    json_t *list = json_array();
    for (size_t i = 0; i < answer->kernel_count; i++)
        if (is_wanted(&answer->kernels[i], language))
            json_array_append_new(list, show(&answer->kernels[i]));
    http_reply_json(request, 200, list);
}

static void handle_list(struct http_request *request)
{
    struct kernel_call call = execd_call(request, NULL, answer_list);
    kernels_list(all_of(request), &call);
}

/* A session is none; NULL: it was answered. */
static struct http_request *find_context(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = execd_waiting(cookie, answer);
    struct error err = {0};
    if (!request || !execd_is_session(answer->kernels))
        return request;
    error_set(&err, ERROR_NOT_FOUND, "no context \"%.64s\" in this sandbox", answer->kernels->id);
    http_reply_error(request, &err);
    return NULL;
}

static void answer_context(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_context(cookie, answer);
    if (request)
        http_reply_json(request, 200, show(answer->kernels));
}

static void on_to_remove(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = find_context(cookie, answer);
    if (request)
        execd_remove(request, answer->kernels->id);
}

static void handle_one(struct http_request *request)
{
    bool removes = strcmp(http_request_method(request), "DELETE") == 0;
    struct kernel_call call =
        execd_call(request, http_request_parameter(request, "id"), removes ? on_to_remove : answer_context);
    kernels_list(all_of(request), &call);
}

/* ---- DELETE /code/contexts?language= ---- */

struct removal {
    uint64_t request;
    size_t left;
    struct error err; /* the first */
};

static void finish_removal(struct removal *removal)
{
    struct http_request *request = http_request_find(loop_current(), removal->request);
    if (request && removal->err.kind != ERROR_NONE)
        http_reply_error(request, &removal->err);
    else if (request)
        http_reply_empty(request, 200);
    free(removal);
}

static void on_removed(void *cookie, const struct verb_answer *answer)
{
    struct removal *removal = cookie;
    if (answer->error.kind != ERROR_NONE && answer->error.kind != ERROR_NOT_FOUND && removal->err.kind == ERROR_NONE)
        removal->err = answer->error;
    if (--removal->left == 0)
        finish_removal(removal);
}

static void remove_one(struct http_request *request, const struct kernel_view *view, struct removal *removal)
{
    if (!plane_audit(request, &removal->err, "code.remove", "kernel=%s", view->id))
        return;
    struct kernel_call call = execd_call(request, view->id, on_removed);
    call.cookie = removal;
    removal->left++;
    kernels_remove(all_of(request), &call);
}

static void on_to_remove_all(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = execd_waiting(cookie, answer);
    if (!request)
        return;
    char language[DRIVER_NAME_BYTES];
    struct removal *removal = memory_new(sizeof *removal);
    removal->request = http_request_number(request);
    wanted_language(request, language);
    for (size_t i = 0; i < answer->kernel_count && removal->err.kind == ERROR_NONE; i++)
        if (is_wanted(&answer->kernels[i], language))
            remove_one(request, &answer->kernels[i], removal);
    if (removal->left == 0)
        finish_removal(removal);
}

static void handle_remove_all(struct http_request *request)
{
    const char *language = http_request_query(request, "language");
    struct kernel_call call = execd_call(request, NULL, on_to_remove_all);
    if (language && *language)
        kernels_list(all_of(request), &call);
    else
        refuse_missing(request, "language");
}

/* ---- POST /code ---- */

struct cell_order {
    const char *code, *id, *language; /* the body's; never NULL */
};

static bool read_cell(const json_t *body, struct cell_order *order, struct error *err)
{
    const json_t *context = json_object_get(body, "context");
    if (context && !json_is_object(context) && !json_is_null(context))
        return error_set(err, ERROR_INVALID, "context: an object with id and language");
    if (!execd_request_text(body, "code", KERNEL_CODE_MAX, &order->code, err) ||
        !execd_request_text(context, "id", KERNEL_ID_BYTES * 2, &order->id, err) ||
        !execd_request_text(context, "language", DRIVER_NAME_BYTES - 1, &order->language, err))
        return false;
    if (!order->code || !*order->code)
        return error_set(err, ERROR_INVALID, "code: a string, which must be there");
    order->id = order->id ? order->id : "";
    order->language = order->language ? order->language : "";
    return true;
}

/* In a context that is there; one that was lost is started anew. The body is read again: the request may have ended
 * meanwhile, and taken the first reading with it. */
static void run_in(struct http_request *request, const struct kernel_view *view)
{
    struct cell_order asked;
    struct error err = {0};
    json_t *body = http_request_json(request, &err);
    if (read_cell(body, &asked, &err)) {
        struct execd_order order = {
            .id = view->id,
            .kind = strcmp(view->language, "bash") == 0 ? EXECD_CELL_SHELL : EXECD_CELL_CODE,
            .code = {.code = asked.code, .size = strlen(asked.code), .at_once = true, .restarts = true}};
        execd_run_code(request, &order);
    } else {
        http_reply_error(request, &err);
    }
    json_decref(body);
}

static void refuse_context(struct http_request *request, const char *id)
{
    struct error err = {0};
    error_set(&err, ERROR_INTERNAL, "no context \"%.64s\" in this sandbox", id);
    http_reply_error(request, &err);
}

static void on_named(void *cookie, const struct verb_answer *answer)
{
    struct verb_answer told = *answer;
    if (told.error.kind == ERROR_NOT_FOUND)
        told.error.kind = ERROR_INTERNAL;
    struct http_request *request = execd_waiting(cookie, &told);
    if (request && execd_is_session(answer->kernels))
        refuse_context(request, answer->kernels->id);
    else if (request)
        run_in(request, answer->kernels);
}

static void run_in_named(struct http_request *request, const struct cell_order *order)
{
    struct kernel_call call = execd_call(request, order->id, on_named);
    if (kernel_is_id(order->id))
        kernels_list(all_of(request), &call);
    else
        refuse_context(request, order->id);
}

static void on_default(void *cookie, const struct verb_answer *answer);

/* The context that code of this language alone runs in, made with its first. */
static bool default_view(const struct cell_order *order, struct kernel_view *view, struct error *err)
{
    *view = (struct kernel_view){.state = KERNEL_IDLE};
    return execd_language(order->language, view->language, err) &&
           (text_format(view->id, sizeof view->id, "%s%s", DEFAULT_ID, execd_language_shown(view->language)) ||
            error_set(err, ERROR_INVALID, "language: too long a name for a default context"));
}

static bool run_in_default(struct http_request *request, const struct cell_order *order, struct error *err)
{
    struct kernel_view view;
    if (!default_view(order, &view, err))
        return false;
    struct kernel_call call = execd_call(request, view.id, on_default);
    struct command *command = command_new();
    command->origin = plane_origin(request);
    kernels_create(all_of(request), &call, view.language, command, 0);
    return true;
}

/* One that was lost is there: the run starts it anew. */
static void on_default(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = http_request_find(loop_current(), (uint64_t)(uintptr_t)cookie);
    struct cell_order order;
    struct kernel_view view;
    struct error ignored = {0};
    if (!request)
        return;
    json_t *body = http_request_json(request, &ignored);
    bool is_lost =
        answer->error.kind == ERROR_GONE && read_cell(body, &order, &ignored) && default_view(&order, &view, &ignored);
    json_decref(body);
    if (is_lost) /* or the sandbox is, which the run says then */
        run_in(request, &view);
    else if (execd_waiting_start(cookie, answer))
        run_in(request, answer->kernels);
}

static void handle_run(struct http_request *request)
{
    struct error err = {0};
    struct cell_order order = {0};
    json_t *body = http_request_json(request, &err);
    bool is_read = body && read_cell(body, &order, &err);
    if (is_read && order.id[0])
        run_in_named(request, &order);
    else if (is_read && execd_is_command(order.language))
        execd_command_run_line(request, order.code);
    else if (!is_read || !run_in_default(request, &order, &err))
        http_reply_error(request, &err);
    json_decref(body);
}

/* ---- DELETE /code?id= ---- */

static void handle_interrupt(struct http_request *request)
{
    const char *id = http_request_query(request, "id");
    if (id && *id)
        execd_interrupt(request, id, execd_command_stop);
    else
        refuse_missing(request, "id");
}

const struct http_route *execd_code_routes(size_t *count)
{
    static const struct http_route ROUTES[] = {
        {"POST", EXECD_PREFIX "/code/context", EXECD_CARRIERS, "code", SMALL_BODY_BYTES, handle_create},
        {"GET", EXECD_PREFIX "/code/contexts", EXECD_CARRIERS, "code", 0, handle_list},
        {"DELETE", EXECD_PREFIX "/code/contexts", EXECD_CARRIERS, "code", 0, handle_remove_all},
        {"GET", EXECD_PREFIX "/code/contexts/{id}", EXECD_CARRIERS, "code", 0, handle_one},
        {"DELETE", EXECD_PREFIX "/code/contexts/{id}", EXECD_CARRIERS, "code", 0, handle_one},
        {"POST", EXECD_PREFIX "/code", EXECD_CARRIERS, "code", RUN_BODY_BYTES, handle_run},
        {"DELETE", EXECD_PREFIX "/code", EXECD_CARRIERS, "code", 0, handle_interrupt},
    };
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
