/** webhooks.c - `parley webhooks`: where events are sent. */
#include "clients/cli/cli.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley webhooks [ls] [--all]              list them; --all: everybody's (admin)\n"
    "       parley webhooks add URL [--type T,...] [--all]\n"
    "                                                 send events there, signed; its secret is shown once\n"
    "       parley webhooks show ID                   one of them, and its last attempts\n"
    "       parley webhooks test ID                   send a webhook.test now, and say what came of it\n"
    "       parley webhooks enable|disable ID         nothing that was not delivered is left out\n"
    "       parley webhooks rotate ID [--grace S]     another secret; both sign for S seconds (default 24h, at most "
    "7d)\n"
    "       parley webhooks rm ID                     send nothing there any more\n\n"
    "  --type T,...       sandbox.created, exec.*, ... (`parley events --help` lists them); default: all events\n"
    "  --all              with add: everybody's events (admin)\n"
    "  --secret-file F    put the secret into F (0600) instead of showing it\n" CLI_COMMON_HELP;

struct hooks_options {
    struct cli_common common;
    const char *types, *secret_file, *grace;
    bool all;
};

static int fetch(const struct place *place, const char *method, const char *id, const char *verb, json_t *body,
                 json_t **reply)
{
    struct error err = {0};
    AUTO_FREE char *path = id ? negotiator_path("/webhooks", id, verb) : memory_string(verb ? verb : "/webhooks");
    bool done = negotiator_call(place, method, path, body, reply, &err);
    json_decref(body);
    return done ? CLI_OK : cli_fail_usual(&err, CLI_FAILED);
}

static void print_row(const json_t *hook)
{
    AUTO_FREE char *id = cli_member(hook, "id"), *url = cli_member(hook, "url"), *why = cli_member(hook, "reason");
    AUTO_FREE char *attempts = cli_member(hook, "attempts"), *principal = cli_member(hook, "principal");
    bool is_enabled = json_is_true(json_object_get(hook, "enabled"));
    bool is_failing = json_object_get(hook, "failing_since") != NULL;
    printf("%-24s %-12s %-9s %-8s %s", id, principal,
           !is_enabled  ? "disabled"
           : is_failing ? "failing"
                        : "good",
           attempts, url);
    printf("%s%s\n", strcmp(why, "-") == 0 ? "" : "  ", strcmp(why, "-") == 0 ? "" : why);
}

static void print_types(const json_t *hook)
{
    size_t i;
    const json_t *each, *types = json_object_get(hook, "types");
    printf("  types:");
    json_array_foreach (types, i, each) {
        AUTO_FREE char *type = cli_safe(json_string_value(each));
        printf(" %s", type);
    }
    printf("%s\n", json_array_size(types) ? "" : " all");
}

static int list(const struct hooks_options *options, const struct place *place)
{
    json_t *reply = NULL;
    size_t index;
    json_t *hook;
    int status = fetch(place, "GET", NULL, options->all ? "/webhooks?all=1" : "/webhooks", NULL, &reply);
    if (status != CLI_OK)
        return status;
    if (options->common.json) {
        cli_print_json(json_incref(json_object_get(reply, "webhooks")));
    } else {
        printf("%-24s %-12s %-9s %-8s %s\n", "ID", "PRINCIPAL", "STATE", "ATTEMPTS", "URL");
        json_array_foreach (json_object_get(reply, "webhooks"), index, hook) {
            print_row(hook);
        }
    }
    json_decref(reply);
    return CLI_OK;
}

/* What holds a secret is shown once, or kept in a file. */
static int tell_secret(const struct hooks_options *options, json_t *reply)
{
    struct error err = {0};
    const char *secret = json_string_value(json_object_get(reply, "secret"));
    if (!secret) {
        error_set(&err, ERROR_INTERNAL, "the negotiator's answer holds no secret");
        return cli_fail(&err, NULL, CLI_FAILED);
    }
    if (options->secret_file && !fd_write_file(options->secret_file, 0600, secret, strlen(secret), &err))
        return cli_fail(&err, NULL, CLI_FAILED);
    if (options->secret_file)
        json_object_del(reply, "secret");
    if (options->common.json) {
        cli_print_json(json_incref(reply));
        return CLI_OK;
    }
    AUTO_FREE char *id = cli_member(reply, "id");
    AUTO_FREE char *shown = options->secret_file ? NULL : cli_safe(secret);
    printf("%s\n", id);
    if (shown) {
        printf("its secret, shown once: %s\n", shown);
        sodium_memzero(shown, strlen(shown));
    }
    return CLI_OK;
}

static json_t *split_types(const char *types)
{
    json_t *words = json_array();
    for (const char *at = types; at && *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        json_array_append_new(words, json_stringn(at, length));
        at += length;
    }
    return words;
}

static int add(const struct hooks_options *options, const struct place *place, const char *url)
{
    json_t *reply = NULL;
    json_t *body = json_pack("{s:s, s:o}", "url", url, "types", split_types(options->types));
    if (options->all)
        json_object_set_new(body, "all", json_true());
    int status = fetch(place, "POST", NULL, NULL, body, &reply);
    if (status == CLI_OK)
        status = tell_secret(options, reply);
    json_decref(reply);
    return status;
}

static int rotate(const struct hooks_options *options, const struct place *place, const char *id)
{
    json_t *reply = NULL, *body = json_object();
    int64_t grace = 0;
    if (options->grace && !cli_parse_seconds(options->grace, &grace)) {
        json_decref(body);
        return cli_usage("webhooks", "--grace wants seconds, or a number with s, m, h or d");
    }
    if (options->grace)
        json_object_set_new(body, "grace", json_integer((json_int_t)grace));
    int status = fetch(place, "POST", id, "rotate", body, &reply);
    if (status == CLI_OK)
        status = tell_secret(options, reply);
    json_decref(reply);
    return status;
}

static void print_attempt(const json_t *attempt)
{
    AUTO_FREE char *at = cli_member(attempt, "at"), *type = cli_member(attempt, "type");
    AUTO_FREE char *event = cli_member(attempt, "event"), *status = cli_member(attempt, "status");
    AUTO_FREE char *took = cli_member(attempt, "took_ms"), *error = cli_member(attempt, "error");
    printf("  %s %-8s %-20s %-4s %5s ms  %s\n", at, event, type, status, took, strcmp(error, "-") == 0 ? "" : error);
}

static int show(const struct hooks_options *options, const struct place *place, const char *id)
{
    json_t *hook = NULL, *attempts = NULL, *attempt;
    size_t index;
    int status = fetch(place, "GET", id, NULL, NULL, &hook);
    if (status == CLI_OK)
        status = fetch(place, "GET", id, "deliveries", NULL, &attempts);
    if (status == CLI_OK) {
        json_object_update(hook, attempts);
        if (options->common.json)
            cli_print_json(json_incref(hook));
        else
            print_row(hook), print_types(hook);
        json_array_foreach (json_object_get(attempts, "deliveries"), index, attempt) {
            if (!options->common.json)
                print_attempt(attempt);
        }
    }
    json_decref(hook);
    json_decref(attempts);
    return status;
}

static int test(const struct hooks_options *options, const struct place *place, const char *id)
{
    json_t *reply = NULL;
    int status = fetch(place, "POST", id, "test", NULL, &reply);
    if (status != CLI_OK)
        return status;
    bool delivered = json_is_true(json_object_get(reply, "delivered"));
    AUTO_FREE char *error = cli_member(reply, "error");
    if (options->common.json)
        cli_print_json(json_incref(reply));
    else
        printf("%s%s%s\n", delivered ? "delivered" : "not delivered", delivered ? "" : ": ", delivered ? "" : error);
    json_decref(reply);
    return delivered ? CLI_OK : CLI_FAILED;
}

static int act(const struct hooks_options *options, const struct place *place, const char *verb, const char *id)
{
    json_t *reply = NULL;
    bool is_enable = strcmp(verb, "enable") == 0, is_drop = strcmp(verb, "rm") == 0;
    int status = fetch(place, is_drop ? "DELETE" : "PATCH", id, NULL,
                       is_drop ? NULL : json_pack("{s:b}", "enabled", is_enable), &reply);
    if (status == CLI_OK && options->common.json)
        cli_print_json(reply ? json_incref(reply) : json_pack("{s:s}", "deleted", id));
    json_decref(reply);
    return status;
}

enum { OPTION_TYPE = 1, OPTION_ALL, OPTION_SECRET_FILE, OPTION_GRACE };

static void take_option(struct hooks_options *options, int option)
{
    if (option == OPTION_TYPE)
        options->types = optarg;
    else if (option == OPTION_ALL)
        options->all = true;
    else if (option == OPTION_SECRET_FILE)
        options->secret_file = optarg;
    else
        options->grace = optarg;
}

static int run(const struct hooks_options *options, const char *verb, const char *word)
{
    static const char *const VERBS[] = {"add", "show", "test", "enable", "disable", "rotate", "rm"};
    size_t known = 0;
    bool is_list = strcmp(verb, "ls") == 0;
    while (known < sizeof VERBS / sizeof *VERBS && strcmp(verb, VERBS[known]) != 0)
        known++;
    if (!is_list && known == sizeof VERBS / sizeof *VERBS)
        return cli_usage("webhooks", "no verb \"%s\"; allowed: ls, add, show, test, enable, disable, rotate, rm", verb);
    if (is_list != (word == NULL))
        return cli_usage("webhooks", is_list ? "ls wants no more words" : "which one? It wants an id, add a URL");
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options->common))
        return CLI_FAILED;
    switch (is_list ? -1 : (int)known) {
    case -1:
        return list(options, &place);
    case 0:
        return add(options, &place, word);
    case 1:
        return show(options, &place, word);
    case 2:
        return test(options, &place, word);
    case 5:
        return rotate(options, &place, word);
    default:
        return act(options, &place, verb, word);
    }
}

int webhooks_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"type", required_argument, NULL, OPTION_TYPE},
                                         {"all", no_argument, NULL, OPTION_ALL},
                                         {"secret-file", required_argument, NULL, OPTION_SECRET_FILE},
                                         {"grace", required_argument, NULL, OPTION_GRACE},
                                         CLI_COMMON_OPTIONS};
    struct hooks_options options = {.all = false};
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&options.common, option, HELP))
            take_option(&options, option);
    }
    if (optind + 2 < argc)
        return cli_usage("webhooks", "unexpected word \"%s\"", argv[optind + 2]);
    return run(&options, optind < argc ? argv[optind] : "ls", optind + 1 < argc ? argv[optind + 1] : NULL);
}
