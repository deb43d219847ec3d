#include "clients/cli/cli.h"

#include "clients/c/call_context.h"
#include "clients/c/capability_url.h"
#include "clients/c/remote_sandbox.h"

#include "shared/base/clock.h"
#include "shared/base/config.h"
#include "shared/base/memory.h"
#include "shared/base/program.h"
#include "shared/capability/capability.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --json was given: a failure is JSON on stdout too. */
static bool wants_json;

/* One value on stdout, also when several things fail: the first. */
static void print_json_error(enum error_kind kind, const char *message)
{
    if (!wants_json)
        return;
    cli_print_json(json_pack("{s:{s:s, s:s, s:s*}}", "error", "code", error_code(kind), "message", message,
                             "request_id", call_context_failed_id()));
    fflush(stdout); /* a child of ours that fails ends by _exit */
    wants_json = false;
}

/* --url: a capability URL is a secret, which must not stay in the process list. */
static const char *take_url(void)
{
    static char kept[CAPABILITY_URL_BYTES];
    if (strcmp(optarg, "-") == 0) {
        AUTO_FREE char *read = cli_token_text(optarg);
        return text_copy(kept, sizeof kept, read) ? kept : "";
    }
    if (!capability_url_is(optarg) || !text_copy(kept, sizeof kept, optarg))
        return optarg;
    memset(optarg, 'x', strlen(optarg));
    return kept;
}

bool cli_common(struct cli_common *common, int option, const char *help)
{
    switch (option) {
    case CLI_OPTION_JSON:
        common->json = wants_json = true;
        return true;
    case CLI_OPTION_URL:
        common->url = take_url();
        return true;
    case CLI_OPTION_FINGERPRINT: /* where place.c looks, and programs that this one starts */
        (void)setenv("PARLEY_TLS_FINGERPRINT", optarg, 1);
        return true;
    case CLI_OPTION_CA:
        (void)setenv("PARLEY_CA_FILE", optarg, 1);
        return true;
    case CLI_OPTION_STATE:
        common->state = optarg;
        return true;
    case CLI_OPTION_HELP:
        fputs(help, stdout);
        exit(CLI_OK);
    case '?':
        print_json_error(ERROR_INVALID, "an option is not known, or lacks its value");
        fprintf(stderr, "parley: see `--help` for what is allowed\n");
        exit(CLI_USAGE);
    default:
        return false;
    }
}

int cli_fail(const struct error *err, const char *hint, int status)
{
    if (err->system_errno == EPIPE)
        return status;
    AUTO_FREE char *message = cli_safe(err->message); /* it may be a server's */
    print_json_error(err->kind, message);
    fprintf(stderr, "parley: %s\n", message);
    if (hint)
        fprintf(stderr, "        %s\n", hint);
    if (call_context_failed_id())
        fprintf(stderr, "        request %s\n", call_context_failed_id());
    return status;
}

bool cli_flush(struct error *err)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    return error_set_errno(err, errno == EPIPE ? ERROR_GONE : ERROR_DISK_FULL, "the output could not be written");
}

static const char *usual_hint(const struct error *err)
{
    enum error_kind kind = err->kind;
    if (kind == ERROR_NODE_UNREACHABLE && strstr(err->message, "certificate"))
        return "say whom to trust by PARLEY_TLS_FINGERPRINT or --tls-fingerprint; `parley tls show` there tells the "
               "authority's";
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
    return cli_fail(err, usual_hint(err), status);
}

int cli_usage(const char *command, const char *format, ...)
{
    char words[ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    AUTO_FREE char *message = cli_safe(words);
    print_json_error(ERROR_INVALID, message);
    fprintf(stderr, "parley %s: %s; see `parley %s --help`\n", command, message, command);
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
    else if (seconds < 3 * 86400)
        snprintf(to, 16, "%" PRId64 "h", seconds / 3600);
    else
        snprintf(to, 16, "%" PRId64 "d", seconds / 86400);
}

bool cli_parse_seconds(const char *text, int64_t *seconds)
{
    static const struct {
        char letter;
        int64_t seconds;
    } UNITS[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    size_t length = strlen(text);
    int64_t unit = 1;
    uint64_t number = 0;
    for (size_t i = 0; length > 1 && i < sizeof UNITS / sizeof *UNITS; i++) {
        if (text[length - 1] == UNITS[i].letter) {
            unit = UNITS[i].seconds;
            length--;
            break;
        }
    }
    bool read = text_parse_u64(text, length, 315360000, &number);
    *seconds = (int64_t)number * unit;
    return read;
}

void cli_tell_grant(const struct grant *grant, bool verbose)
{
    const char *const sentences[] = {grant->warning, grant->hint_note};
    for (size_t i = 0; i < 2; i++) {
        AUTO_FREE char *safe = sentences[i] ? cli_safe(sentences[i]) : NULL;
        if (safe)
            fprintf(stderr, "parley: %s\n", safe);
    }
    if (!verbose)
        return;
    AUTO_FREE char *name = cli_safe(grant->sandbox_name), *id = cli_safe(grant->sandbox_id);
    AUTO_FREE char *jti = cli_safe(grant->jti);
    fprintf(stderr, "parley: sandbox %s (%s), thread %s, token %s, %s\n", name, id, grant->thread, jti,
            grant->created      ? "new"
            : grant->from_cache ? "cached grant"
                                : "attached");
}

bool cli_is_spent(const struct error *err)
{
    return err->kind == ERROR_UNAUTHENTICATED || err->kind == ERROR_TOKEN_EXPIRED || err->kind == ERROR_TOKEN_REVOKED ||
           err->kind == ERROR_GONE || err->kind == ERROR_NOT_FOUND || err->kind == ERROR_NODE_UNREACHABLE;
}

bool cli_renew_spent(struct grant *grant, const struct place *place, const struct grant_request *request,
                     bool *negotiated, struct error *err)
{
    if (*negotiated || place->capability || !cli_is_spent(err) || !grant_replace(grant, place, request, err))
        return false;
    *negotiated = !grant->from_cache;
    *err = (struct error){0};
    return true;
}

/* E2 80 AA..AE, E2 81 A6..A9: marks that have what follows shown in another order: a line reads as another. */
static bool is_reordering(const char *at)
{
    const unsigned char *bytes = (const unsigned char *)at;
    return bytes[0] == 0xe2 && ((bytes[1] == 0x80 && bytes[2] >= 0xaa && bytes[2] <= 0xae) ||
                                (bytes[1] == 0x81 && bytes[2] >= 0xa6 && bytes[2] <= 0xa9));
}

char *cli_safe(const char *text)
{
    AUTO_TEXT safe = {0};
    text = text ? text : "-";
    const char *end = text + strlen(text), *valid_to = text;
    for (const char *at = text; at < end; at++) {
        unsigned char byte = (unsigned char)*at;
        unsigned char next = (unsigned char)at[1];
        if (at >= valid_to)
            valid_to = at + text_utf8_prefix(at, (size_t)(end - at));
        if (byte == 0xc2 && next >= 0x80 && next < 0xa0) { /* C1 in UTF-8: 0x9b alone is what ESC [ is */
            text_append_format(&safe, "\\x%02x", (unsigned char)*++at);
        } else if (byte < 0x20 || byte == 0x7f || at >= valid_to) {
            text_append_format(&safe, "\\x%02x", byte);
        } else if (is_reordering(at)) {
            text_append_format(&safe, "\\x%02x\\x%02x\\x%02x", byte, next, (unsigned char)at[2]);
            at += 2;
        } else {
            text_append(&safe, at, 1);
        }
    }
    return memory_string(safe.data ? safe.data : "");
}

char *cli_member(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!value || json_is_null(value) || json_is_string(value))
        return cli_safe(json_string_value(value));
    AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    return cli_safe(text);
}

void cli_print_when(char to[static 24], const char *time)
{
    char distance[16];
    int64_t then;
    cli_print_age(distance, time);
    if (!time || !clock_parse(time, &then))
        snprintf(to, 24, "-");
    else if (then > clock_wall_ms())
        snprintf(to, 24, "in %s", distance);
    else
        snprintf(to, 24, "%s ago", distance);
}

int cli_add_variable(struct cli_variables *variables, const char *command, const char *pair)
{
    if (!strchr(pair, '=') || pair[0] == '=')
        return cli_usage(command, "--env wants NAME=VALUE, not \"%s\"", pair);
    variables->list = memory_resize(variables->list, (variables->count + 2) * sizeof *variables->list);
    variables->list[variables->count++] = pair;
    variables->list[variables->count] = NULL;
    return CLI_OK;
}

int cli_ttl(const char *command, const char *text, unsigned *ttl_s)
{
    uint64_t seconds;
    if (!text_parse_u64(text, strlen(text), 3600, &seconds) || seconds < 60)
        return cli_usage(command, "--ttl wants 60 to 3600 seconds, not \"%s\"", text);
    *ttl_s = (unsigned)seconds;
    return CLI_OK;
}

char *cli_token_text(const char *given)
{
    if (strcmp(given, "-") != 0)
        return memory_string(given);
    char text[CAPABILITY_TEXT_BYTES + 1] = "";
    size_t got = fread(text, 1, sizeof text - 1, stdin);
    text[got] = '\0';
    const char *token = text + strspn(text, "\r\n \t");
    text[(size_t)(token - text) + strcspn(token, "\r\n \t")] = '\0';
    char *copy = memory_string(token);
    sodium_memzero(text, sizeof text);
    return copy;
}

bool cli_place(struct place *place, const struct cli_common *common)
{
    struct error err = {0};
    if (place_load(place, common->url, &err))
        return true;
    cli_fail(&err, NULL, 0);
    return false;
}

char *cli_thread(const char *given)
{
    return given ? memory_string(given) : place_folder_thread(".");
}

char *cli_sandbox(const struct place *place, const char *given, const char *thread, struct error *err)
{
    if (given)
        return remote_sandbox_find(place, given, err);
    AUTO_FREE char *leasing = cli_thread(thread);
    return remote_sandbox_of_thread(place, leasing, err);
}

char *cli_sandbox_thread(const struct place *place, const char *given, const char *thread, struct error *err)
{
    if (!given)
        return cli_thread(thread);
    AUTO_FREE char *id = remote_sandbox_find(place, given, err);
    json_t *sandbox = id ? remote_sandbox_show(place, id, err) : NULL;
    if (!sandbox)
        return NULL;
    const char *first = json_string_value(json_array_get(json_object_get(sandbox, "threads"), 0));
    char *leasing = memory_string(first);
    json_decref(sandbox);
    if (!leasing)
        error_set(err, ERROR_GONE, "no thread uses sandbox %s any more", given);
    return leasing;
}

char *cli_sibling(const char *name, struct error *err)
{
    AUTO_FREE char *path = program_beside(name);
    if (access(path, X_OK) == 0)
        return TAKE(path);
    error_set(err, ERROR_NOT_FOUND, "%s is not installed beside parley", name);
    return NULL;
}

char *cli_state(const struct cli_common *common)
{
    return common->state ? memory_string(common->state) : config_state_folder(0, NULL);
}
