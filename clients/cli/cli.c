#include "clients/cli/cli.h"

#include "clients/c/call.h"

#include "shared/base/clock.h"
#include "shared/base/config.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --json was given: failures are JSON on stdout too. */
static bool wants_json;

bool cli_common(struct cli_common *common, int option, const char *help)
{
    switch (option) {
    case CLI_OPTION_JSON:
        common->json = wants_json = true;
        return true;
    case CLI_OPTION_URL:
        common->url = optarg;
        return true;
    case CLI_OPTION_STATE:
        common->state = optarg;
        return true;
    case CLI_OPTION_HELP:
        fputs(help, stdout);
        exit(CLI_OK);
    case '?':
        fprintf(stderr, "parley: see `--help` for what is allowed\n");
        exit(CLI_USAGE);
    default:
        return false;
    }
}

int cli_fail(const struct error *err, const char *hint, int status)
{
    if (wants_json)
        cli_print_json(json_pack("{s:{s:s, s:s}}", "error", "code", error_code(err->kind), "message", err->message));
    fprintf(stderr, "parley: %s\n", err->message);
    if (hint)
        fprintf(stderr, "        %s\n", hint);
    return status;
}

static const char *usual_hint(enum error_kind kind)
{
    if (kind == ERROR_NODE_UNREACHABLE)
        return "is it running? `sudo parley up -d` starts it, `sudo parley doctor` looks closer";
    if (kind == ERROR_UNAUTHENTICATED)
        return "the API key does not fit this deployment: see config.json, PARLEY_URL and PARLEY_API_KEY";
    if (kind == ERROR_NO_CAPACITY)
        return "end sandboxes with `parley rm`, or try again in a moment";
    return NULL;
}

int cli_fail_usual(const struct error *err, int status)
{
    return cli_fail(err, usual_hint(err->kind), status);
}

int cli_usage(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "parley %s: ", command);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "; see `parley %s --help`\n", command);
    va_end(arguments);
    return CLI_USAGE;
}

void cli_print_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(value);
}

void cli_print_age(char to[static 16], const char *time)
{
    int64_t then;
    if (!time || !clock_parse(time, &then)) {
        snprintf(to, 16, "-");
        return;
    }
    int64_t seconds = (clock_wall_ms() - then) / 1000;
    seconds = seconds < 0 ? -seconds : seconds;
    if (seconds < 120)
        snprintf(to, 16, "%" PRId64 "s", seconds);
    else if (seconds < 7200)
        snprintf(to, 16, "%" PRId64 "m", seconds / 60);
    else
        snprintf(to, 16, "%" PRId64 "h", seconds / 3600);
}

bool cli_place(struct place *place, const struct cli_common *common)
{
    struct error err = {0};
    if (place_load(place, common->url, &err))
        return true;
    cli_fail(&err, NULL, 0);
    return false;
}

bool cli_call(const struct place *place, const char *method, const char *path, json_t *body, json_t **reply,
              struct error *err)
{
    AUTO_FREE char *url = memory_printf("%s%s", place->url, path);
    struct call call = {.method = method, .url = url, .credential = place->api_key, .body = body};
    return call_json(&call, reply, NULL, err);
}

char *cli_thread(const char *given)
{
    return given ? memory_string(given) : place_folder_thread(".");
}

char *cli_sibling(const char *name, struct error *err)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0) {
        self[length] = '\0';
        char *slash = strrchr(self, '/');
        AUTO_FREE char *path = memory_printf("%.*s/%s", (int)(slash - self), self, name);
        if (access(path, X_OK) == 0)
            return TAKE(path);
    }
    error_set(err, ERROR_NOT_FOUND, "%s is not installed beside parley", name);
    return NULL;
}

char *cli_state(const struct cli_common *common)
{
    return common->state ? memory_string(common->state) : config_state_folder(0, NULL);
}
