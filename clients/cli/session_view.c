#include "clients/cli/session_view.h"

#include "clients/cli/console.h"

#include "clients/c/call.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t REPLAY_BYTES = 1024 * 1024; /* of a terminal's old output, at most */

static bool ask(const struct grant *grant, const char *path, json_t **reply, struct error *err)
{
    AUTO_FREE char *url = memory_printf("%s%s", grant->http, path);
    struct call call = {.method = "GET", .url = url, .credential = grant->token};
    return call_json(&call, reply, NULL, err);
}

/* The same with another grant if this one is spent. An id that is not known is no sign of that. */
static bool ask_surely(const struct place *place, const struct grant_request *request, struct grant *grant,
                       const char *path, json_t **reply, struct error *err)
{
    if (ask(grant, path, reply, err))
        return true;
    bool spent = cli_is_spent(err) && err->kind != ERROR_NOT_FOUND && grant->from_cache;
    if (!spent || !grant_replace(grant, place, request, err))
        return false;
    *err = (struct error){0};
    return ask(grant, path, reply, err);
}

/* Of the views, the one that runs and began last; NULL. Times in one format sort as text. */
static json_t *newest(json_t *views)
{
    size_t index;
    json_t *view, *found = NULL;
    const char *found_at = "";
    json_array_foreach (views, index, view) {
        const char *state = json_string_value(json_object_get(view, "state"));
        const char *at = json_string_value(json_object_get(view, "started_at"));
        if (!state || !at || strcmp(state, "running") != 0 || strcmp(at, found_at) < 0)
            continue;
        found = view;
        found_at = at;
    }
    return json_incref(found);
}

static json_t *by_id(json_t *views, const char *id)
{
    size_t index;
    json_t *view;
    json_array_foreach (views, index, view) {
        if (text_equal(json_string_value(json_object_get(view, "id")), id))
            return json_incref(view);
    }
    return NULL;
}

/* Processes are told to who may start them; terminals, to who may look at them. */
static json_t *find(const struct place *place, const struct grant_request *request, struct grant *grant, const char *id,
                    struct error *err)
{
    bool asks_one = id && grant_allows(grant, "process");
    AUTO_FREE char *path = asks_one ? negotiator_path("/processes", id, NULL) : memory_string("/terminals");
    json_t *reply = NULL;
    if (!ask_surely(place, request, grant, path, &reply, err))
        return NULL;
    if (asks_one)
        return reply;
    json_t *views = json_object_get(reply, "terminals"), *view = id ? by_id(views, id) : newest(views);
    json_decref(reply);
    if (!view && id)
        error_set(err, ERROR_NOT_FOUND, "no terminal %s runs in sandbox %s", id, grant->sandbox_name);
    else if (!view)
        error_set(err, ERROR_NOT_FOUND, "no terminal runs in sandbox %s", grant->sandbox_name);
    return view;
}

static uint64_t number(const json_t *view, const char *stream, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(json_object_get(view, stream), name));
    return value > 0 ? (uint64_t)value : 0;
}

/* How stdin is used; -1 when it cannot be, and that was told. */
static int input_of(const json_t *view, enum session_view_use use)
{
    const char *input = json_string_value(json_object_get(view, "stdin"));
    if (use != SESSION_VIEW_TYPES || !input || strcmp(input, "open") != 0)
        return CONSOLE_NONE;
    if (!json_is_true(json_object_get(view, "tty")))
        return CONSOLE_PIPE;
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        return CONSOLE_KEYS;
    cli_usage("attach",
              "this is a terminal, and %s is none: look with --watch or --no-stdin; for scripts there is "
              "`parley run -- CMD`",
              isatty(STDIN_FILENO) ? "stdout" : "stdin");
    return -1;
}

static int attach(const struct place *place, const struct grant_request *request, struct grant *grant,
                  const json_t *view, enum session_view_use use, bool verbose)
{
    int input = input_of(view, use);
    if (input < 0)
        return CLI_USAGE;
    bool tty = json_is_true(json_object_get(view, "tty"));
    bool watches = use == SESSION_VIEW_WATCHES || use == SESSION_VIEW_WATCHES_TERMINAL;
    uint64_t bytes = number(view, "stdout", "bytes"), kept_from = number(view, "stdout", "kept_from");
    uint64_t from = tty && bytes - kept_from > REPLAY_BYTES ? bytes - REPLAY_BYTES : kept_from;
    const struct console_wanted wanted = {.use = watches ? SESSION_WATCH : SESSION_DRIVE,
                                          .input = (enum console_input)input,
                                          .tty = tty,
                                          .id = json_string_value(json_object_get(view, "id")),
                                          .narrow_to = watches && tty ? "shell:ro" : NULL,
                                          .has_from = true,
                                          .from = from,
                                          .replay_to = tty ? bytes : 0,
                                          .thread = request->thread,
                                          .verbose = verbose};
    struct console_end end;
    struct error err = {0};
    if (!tty && from > 0)
        fprintf(stderr, "parley: the first %llu bytes of its output are not kept any more\n", (unsigned long long)from);
    if (!wanted.id)
        return cli_fail(&(struct error){.kind = ERROR_INTERNAL, .message = "the sandbox told a process without an id"},
                        NULL, CLI_NO_SANDBOX);
    bool ran = console_run_with_grant(&wanted, place, request, grant, &end, &err);
    int status = console_status(&wanted, ran, &end, &err);
    return watches && ran && !end.left ? CLI_OK : status;
}

int session_view_attach(const struct place *place, const struct grant_request *request, struct grant *grant,
                        const char *id, enum session_view_use use, bool verbose)
{
    struct error err = {0};
    json_t *view = find(place, request, grant, id, &err);
    if (!view)
        return cli_fail(&err, err.kind == ERROR_NOT_FOUND ? "`parley ps` lists what runs" : NULL, CLI_NO_SANDBOX);
    bool tty = json_is_true(json_object_get(view, "tty"));
    int status;
    if (tty && use == SESSION_VIEW_TYPES && !grant_allows(grant, "shell")) {
        fprintf(stderr, "parley: watching: the token has scope shell:ro and cannot type; Ctrl-C leaves\n");
        use = SESSION_VIEW_WATCHES;
    }
    if (use == SESSION_VIEW_WATCHES_TERMINAL && !tty)
        status = cli_usage("watch", "%s is no terminal: `parley attach %s --watch` follows its output", id, id);
    else
        status = attach(place, request, grant, view, use, verbose);
    json_decref(view);
    return status;
}
