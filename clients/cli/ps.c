/** ps.c - `parley ps`: the processes of a sandbox. */
#include "clients/cli/cli.h"

#include "clients/c/call.h"
#include "clients/c/grant.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley ps [SANDBOX] [--thread T]\n\n"
    "Lists the commands and terminals started in a sandbox (a name or id; default: the thread's): those that run, and\n"
    "those that ended less than 10 minutes ago.\n\n"
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP;

static bool fetch(const struct grant *grant, json_t **reply, struct error *err)
{
    AUTO_FREE char *url = memory_printf("%s/processes", grant->http);
    struct call call = {.method = "GET", .url = url, .credential = grant->token};
    return call_json(&call, reply, NULL, err);
}

/* As `run` does: the grant that is there, refreshed when due; one that is refused is replaced. */
static bool list(const struct place *place, const char *thread, json_t **reply, struct error *err)
{
    struct grant_request request = {.thread = thread, .mode = "attach_only"};
    AUTO_GRANT grant = {0};
    if (!grant_get(&grant, place, &request, err))
        return false;
    bool negotiated = false, done;
    do {
        cli_tell_grant(&grant, false);
        done = fetch(&grant, reply, err);
    } while (!done && cli_renew_spent(&grant, place, &request, &negotiated, err));
    return done;
}

static void print_row(const json_t *process)
{
    char age[16], tty[16] = "-";
    AUTO_FREE char *id = cli_member(process, "id");
    AUTO_FREE char *state = cli_member(process, "state");
    AUTO_FREE char *input = cli_member(process, "stdin");
    AUTO_FREE char *command = cli_member(process, "command");
    const json_t *code = json_object_get(process, "exit_code");
    cli_print_age(age, json_string_value(json_object_get(process, "started_at")));
    char exit_text[16] = "-";
    if (json_is_integer(code))
        snprintf(exit_text, sizeof exit_text, "%d", (int)json_integer_value(code));
    if (json_is_true(json_object_get(process, "tty")))
        snprintf(tty, sizeof tty, "%dx%d", (int)json_integer_value(json_object_get(process, "cols")),
                 (int)json_integer_value(json_object_get(process, "rows")));
    printf("%-26s %7d %-8s %-6s %-8s %-5s %-6s %s\n", id, (int)json_integer_value(json_object_get(process, "pid")), tty,
           input, state, exit_text, age, command);
}

int ps_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"thread", required_argument, NULL, 't'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    const char *given = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&common, option, HELP) && option == 't')
            given = optarg;
    }
    const char *sandbox = argv[optind];
    if (sandbox && optind + 1 < argc)
        return cli_usage("ps", "unexpected word \"%s\": one sandbox at a time", argv[optind + 1]);
    if (sandbox && given)
        return cli_usage("ps", "give a sandbox or a --thread, not both");
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &common))
        return CLI_FAILED;
    struct error err = {0};
    json_t *reply = NULL;
    AUTO_FREE char *thread = cli_sandbox_thread(&place, sandbox, given, &err);
    if (!thread)
        return cli_fail_usual(&err, CLI_FAILED);
    if (!list(&place, thread, &reply, &err))
        return cli_fail(&err,
                        err.kind == ERROR_NOT_FOUND ? "this thread has no sandbox yet: `parley run` makes one" : NULL,
                        CLI_FAILED);
    if (common.json) {
        cli_print_json(reply);
        return CLI_OK;
    }
    printf("%-26s %7s %-8s %-6s %-8s %-5s %-6s %s\n", "ID", "PID", "TTY", "STDIN", "STATE", "EXIT", "AGE", "COMMAND");
    size_t index;
    json_t *process;
    json_array_foreach (json_object_get(reply, "processes"), index, process)
        print_row(process);
    json_decref(reply);
    return CLI_OK;
}
