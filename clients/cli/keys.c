/** keys.c - `parley keys`: API keys: make, list, look at, change, rotate, remove. */
#include "clients/cli/cli.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HELP[] =
    "usage: parley keys [ls] [--principal P]   list one's keys; an admin: all, or P's. Never their text\n"
    "       parley keys show ID                one of them\n"
    "       parley keys add PRINCIPAL [...]    a new one; its text is shown once (admin)\n"
    "       parley keys set ID [...]           change it (admin)\n"
    "       parley keys rotate ID [--grace S]  give it a new text; the old one is good for S seconds more\n"
    "       parley keys rm ID...               remove it: what was granted under it ends\n\n"
    "  --role R           viewer, user (default of add) or admin\n"
    "  --actor A          pin it to agent:NAME or human:NAME: whatever is done with it is that one's;\n"
    "                     with set: '' takes the pin away\n"
    "  --limit NAME=N     sandboxes, cpu_milli, memory_mb, disk_mb, creates_per_minute; may be repeated.\n"
    "                     With set they replace those it has; '' takes all away\n"
    "  --ttl S            let it run out after S seconds, or s, m, h, d: 90d; with set also: never\n"
    "  --note TEXT        what it is for\n"
    "  --grace S          seconds, 0 (default) to 86400, or s, m, h: 1h\n"
    "  --key-file F       put the key's text into F (0600) instead of showing it\n" CLI_COMMON_HELP;

struct keys_options {
    struct cli_common common;
    const char *principal, *key_file;
    json_t *body; /* owned: what add and set send */
    int64_t grace_s;
    bool grace_given;
};

/* --- options --- */

static int take_ttl(struct keys_options *options, const char *text)
{
    int64_t seconds = 0;
    if (strcmp(text, "never") == 0) {
        json_object_set_new(options->body, "expires_at", json_null());
        return CLI_OK;
    }
    if (!cli_parse_seconds(text, &seconds) || seconds == 0)
        return cli_usage("keys", "--ttl wants seconds, or a number with s, m, h or d; not \"%s\"", text);
    json_object_set_new(options->body, "ttl", json_integer(seconds));
    return CLI_OK;
}

static int take_limit(struct keys_options *options, const char *text)
{
    const char *sign = strchr(text, '=');
    uint64_t number = 0;
    json_t *limits = json_object_get(options->body, "limits");
    if (!limits)
        json_object_set_new(options->body, "limits", limits = json_object());
    if (*text == '\0')
        return CLI_OK;
    if (!sign || !text_parse_u64(sign + 1, strlen(sign + 1), INT64_MAX, &number))
        return cli_usage("keys", "--limit wants NAME=NUMBER, like sandboxes=5; not \"%s\"", text);
    AUTO_FREE char *name = memory_printf("%.*s", (int)(sign - text), text);
    json_object_set_new(limits, name, json_integer((json_int_t)number));
    return CLI_OK;
}

static int take(struct keys_options *options, int option, const char *text)
{
    switch (option) {
    case 'r':
        json_object_set_new(options->body, "role", json_string(text));
        return CLI_OK;
    case 'a':
        json_object_set_new(options->body, "actor", *text ? json_string(text) : json_null());
        return CLI_OK;
    case 'n':
        json_object_set_new(options->body, "note", json_string(text));
        return CLI_OK;
    case 'l':
        return take_limit(options, text);
    case 't':
        return take_ttl(options, text);
    case 'p':
        options->principal = text;
        return CLI_OK;
    case 'f':
        options->key_file = text;
        return CLI_OK;
    default:
        options->grace_given = true;
        return cli_parse_seconds(text, &options->grace_s)
                   ? CLI_OK
                   : cli_usage("keys", "--grace wants seconds, or a number with s, m, h or d; not \"%s\"", text);
    }
}

static int read_options(struct keys_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {{"role", required_argument, NULL, 'r'},
                                         {"actor", required_argument, NULL, 'a'},
                                         {"note", required_argument, NULL, 'n'},
                                         {"limit", required_argument, NULL, 'l'},
                                         {"ttl", required_argument, NULL, 't'},
                                         {"principal", required_argument, NULL, 'p'},
                                         {"key-file", required_argument, NULL, 'f'},
                                         {"grace", required_argument, NULL, 'g'},
                                         CLI_COMMON_OPTIONS};
    int option, status = CLI_OK;
    options->body = json_object();
    while (status == CLI_OK && (option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&options->common, option, HELP))
            status = take(options, option, optarg);
    }
    return status;
}

/* --- what is shown --- */

static char *limits_text(const json_t *limits)
{
    AUTO_TEXT text = {0};
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)limits, name, value)
        text_append_format(&text, "%s%s=%lld", text.length ? " " : "", name, (long long)json_integer_value(value));
    return cli_safe(text.length ? text.data : "-");
}

static char *or_dash(const json_t *key, const char *name)
{
    const char *text = json_string_value(json_object_get(key, name));
    return cli_safe(text && *text ? text : "-");
}

static void when(char to[static 24], const json_t *key, const char *name, const char *none)
{
    const char *time = json_string_value(json_object_get(key, name));
    if (time)
        cli_print_when(to, time);
    else
        snprintf(to, 24, "%s", none);
}

static void print_row(const json_t *key)
{
    char ends[24], used[24];
    AUTO_FREE char *id = cli_member(key, "id");
    AUTO_FREE char *principal = cli_member(key, "principal");
    AUTO_FREE char *role = cli_member(key, "role");
    AUTO_FREE char *actor = or_dash(key, "actor");
    AUTO_FREE char *note = or_dash(key, "note");
    when(ends, key, "expires_at", "never");
    when(used, key, "last_used_at", "never");
    printf("%-24s %-16s %-6s %-16s %-10s %-10s %s\n", id, principal, role, actor, ends, used, note);
}

static void print_key(const json_t *key)
{
    char made[24], ends[24], used[24], old[24];
    AUTO_FREE char *id = cli_member(key, "id");
    AUTO_FREE char *principal = cli_member(key, "principal");
    AUTO_FREE char *role = cli_member(key, "role");
    AUTO_FREE char *actor = or_dash(key, "actor");
    AUTO_FREE char *note = or_dash(key, "note");
    AUTO_FREE char *limits = limits_text(json_object_get(key, "limits"));
    when(made, key, "created_at", "-");
    when(ends, key, "expires_at", "never");
    when(used, key, "last_used_at", "never");
    when(old, key, "old_until", "-");
    printf("id         %s\nprincipal  %s\nrole       %s\nactor      %s\nlimits     %s\nnote       %s\n"
           "made       %s\nruns out   %s\nlast used  %s\n",
           id, principal, role, actor, limits, note, made, ends, used);
    if (json_is_string(json_object_get(key, "old_until")))
        printf("old text   good, ends %s\n", old);
}

/* The secret must stand in no argument list, and is shown once. */
static int show_new(const struct keys_options *options, json_t *reply)
{
    struct error err = {0};
    const char *secret = json_string_value(json_object_get(reply, "api_key"));
    int status = CLI_OK;
    if (!secret)
        error_set(&err, ERROR_INTERNAL, "the negotiator's answer holds no key");
    if (!secret || (options->key_file && !fd_write_file(options->key_file, 0600, secret, strlen(secret), &err))) {
        status = cli_fail(&err, NULL, CLI_FAILED);
    } else if (options->common.json) {
        if (options->key_file)
            json_object_del(reply, "api_key");
        cli_print_json(json_incref(reply));
    } else {
        AUTO_FREE char *safe = cli_safe(secret);
        print_key(json_object_get(reply, "key"));
        if (options->key_file)
            printf("\nIts text is in %s.\n", options->key_file);
        else
            printf("\napi key (shown once): %s\n", safe);
        sodium_memzero(safe, strlen(safe));
    }
    json_decref(reply);
    return status;
}

/* --- the verbs --- */

static int list(const struct keys_options *options, const struct place *place)
{
    struct error err = {0};
    AUTO_TEXT path = {0};
    text_append_string(&path, "/keys");
    negotiator_query(&path, "principal", options->principal);
    const struct negotiator_list wanted = {.path = path.data, .member = "keys", .next = "next_cursor", .most = 100000};
    json_t *rows = negotiator_list(place, &wanted, &err);
    if (!rows)
        return cli_fail_usual(&err, CLI_FAILED);
    if (options->common.json) {
        cli_print_json(rows);
        return CLI_OK;
    }
    printf("%-24s %-16s %-6s %-16s %-10s %-10s %s\n", "ID", "PRINCIPAL", "ROLE", "ACTOR", "RUNS OUT", "USED", "NOTE");
    size_t index;
    json_t *row;
    json_array_foreach (rows, index, row)
        print_row(row);
    json_decref(rows);
    return CLI_OK;
}

static int add(const struct keys_options *options, const struct place *place, const char *principal)
{
    struct error err = {0};
    json_t *reply = NULL;
    json_object_set_new(options->body, "principal", json_string(principal));
    if (!negotiator_call(place, "POST", "/keys", options->body, &reply, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    return show_new(options, reply);
}

static int rotate(const struct keys_options *options, const struct place *place, const char *id)
{
    struct error err = {0};
    AUTO_FREE char *path = negotiator_path("/keys", id, "rotate");
    json_t *reply = NULL, *body = json_pack("{s:I}", "grace", (json_int_t)options->grace_s);
    bool done = negotiator_call(place, "POST", path, body, &reply, &err);
    json_decref(body);
    return done ? show_new(options, reply) : cli_fail_usual(&err, CLI_FAILED);
}

static int show(const struct keys_options *options, const struct place *place, const char *id, bool change)
{
    struct error err = {0};
    AUTO_FREE char *path = negotiator_path("/keys", id, NULL);
    json_t *reply = NULL;
    if (!negotiator_call(place, change ? "PATCH" : "GET", path, change ? options->body : NULL, &reply, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    if (options->common.json)
        cli_print_json(json_incref(json_object_get(reply, "key")));
    else
        print_key(json_object_get(reply, "key"));
    json_decref(reply);
    return CLI_OK;
}

static int remove_all(const struct keys_options *options, const struct place *place, char *const *ids)
{
    int status = CLI_OK;
    for (; *ids; ids++) {
        struct error err = {0};
        AUTO_FREE char *path = negotiator_path("/keys", *ids, NULL);
        if (!negotiator_call(place, "DELETE", path, NULL, NULL, &err))
            status = cli_fail_usual(&err, CLI_FAILED);
        else if (!options->common.json)
            printf("%s is removed; what was granted under it has ended\n", *ids);
    }
    return status;
}

static int check(const struct keys_options *options, const char *verb, int words)
{
    bool is_add = strcmp(verb, "add") == 0, is_set = strcmp(verb, "set") == 0, is_ls = strcmp(verb, "ls") == 0;
    bool is_rotate = strcmp(verb, "rotate") == 0, is_rm = strcmp(verb, "rm") == 0, is_show = strcmp(verb, "show") == 0;
    if (!is_add && !is_set && !is_ls && !is_rotate && !is_rm && !is_show)
        return cli_usage("keys", "what is \"%s\"? Allowed: ls, show, add, set, rotate, rm", verb);
    if (is_ls ? words > 0 : words == 0 || (words > 1 && !is_rm))
        return cli_usage("keys",
                         is_ls    ? "%s takes no name"
                         : is_add ? "%s whose key? Give one PRINCIPAL"
                                  : "%s which key? Give its ID",
                         verb);
    if (json_object_size(options->body) > 0 && !is_add && !is_set)
        return cli_usage("keys", "--role, --actor, --limit, --ttl and --note go with add and set");
    if (is_set && json_object_size(options->body) == 0)
        return cli_usage("keys", "set wants --role, --actor, --limit, --ttl or --note");
    if ((options->grace_given && !is_rotate) || (options->principal && !is_ls))
        return cli_usage("keys", options->principal ? "--principal goes with ls" : "--grace goes with rotate");
    if (options->key_file && !is_add && !is_rotate)
        return cli_usage("keys", "--key-file goes with add and rotate");
    return CLI_OK;
}

static int act(const struct keys_options *options, const char *verb, char *const *words)
{
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options->common))
        return CLI_FAILED;
    if (strcmp(verb, "ls") == 0)
        return list(options, &place);
    if (strcmp(verb, "add") == 0)
        return add(options, &place, words[0]);
    if (strcmp(verb, "rotate") == 0)
        return rotate(options, &place, words[0]);
    if (strcmp(verb, "rm") == 0)
        return remove_all(options, &place, words);
    return show(options, &place, words[0], strcmp(verb, "set") == 0);
}

int keys_main(int argc, char *argv[])
{
    struct keys_options options = {0};
    int status = read_options(&options, argc, argv);
    const char *verb = argc > optind ? argv[optind] : "ls";
    int words = argc > optind ? argc - optind - 1 : 0;
    if (status == CLI_OK)
        status = check(&options, verb, words);
    if (status == CLI_OK)
        status = act(&options, verb, argv + argc - words);
    json_decref(options.body);
    return status;
}
