/** policy.c - `parley policy`: the document that says what roles and principals may have; and why something is not
 *  given. */
#include "clients/cli/cli.h"
#include "clients/cli/wish_options.h"

#include "clients/c/negotiator.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

enum { DOCUMENT_MAX_BYTES = 256 * 1024 };

static const char HELP[] =
    "usage: parley policy [show] [--defaults]               the document in force (admins)\n"
    "       parley policy set FILE [--version N]            put another in its place, at once everywhere; -: stdin\n"
    "       parley policy why [--as ROLE] [--principal P] [--actor agent] [options of `parley run`]\n\n"
    "`show` prints {} while none was set: then what the settings say holds, which --defaults prints.\n"
    "`set` takes the place of the version there is, or fails when that is not N.\n"
    "`why` makes nothing: it says of each rule what would be asked, what is allowed, and where that is written. Of\n"
    "yourself; admins may ask about every role and principal. OK is yes, no (it would be refused) or cut (it is given\n"
    "with no more than what is allowed). Exit status 1: something would be refused.\n\n"
    "  --as ROLE          user or admin (default: your own; of another principal: user)\n"
    "  --principal P      of that principal; admins only\n"
    "  --actor WHO        human (default) or agent\n"
    "  --scopes 'A B'     asked for in the token\n"
    "  --ttl S            of the token, in seconds\n" WISH_HELP CLI_COMMON_HELP
    "\nA document, every part of which may be missing:\n"
    "  {\"roles\": {\"user\": {\"templates\": [\"py-*\"], \"egress\": \"allow\", \"egress_hosts\": [\"*.pypi.org\"],\n"
    "                      \"quota\": {\"sandboxes\": 5, \"memory_mb\": 8192, \"creates_per_minute\": 10}},\n"
    "             \"user:agent\": {\"scopes\": [\"fs:rw\", \"process\"], \"ttl_max\": 600, \"egress\": \"none\"}},\n"
    "   \"principals\": {\"ci\": {\"quota\": {\"sandboxes\": 50}, \"agent\": {\"egress\": \"public\"}}},\n"
    "   \"deployment\": {\"quota\": {\"sandboxes\": 200}}}\n"
    "What is said first of principals.P.agent, roles.R:agent, principals.P, roles.R holds. Rules: scopes, ttl_max,\n"
    "templates, isolation, egress, egress_hosts, volumes {host, named, max_mb}, root, lifetime_max, idle_max, long,\n"
    "quota\n"
    "{sandboxes, cpu_milli, memory_mb, disk_mb, creates_per_minute}.\n";

struct policy_options {
    struct cli_common common;
    const char *version;
    bool defaults;
    struct wish_options wish; /* the question's members */
};

/* ---- show, set ---- */

static int show(const struct policy_options *options, const struct place *place)
{
    struct error err = {0};
    json_t *reply = NULL;
    if (!negotiator_call(place, "GET", "/policy", NULL, &reply, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    json_t *shown = json_object_get(reply, options->defaults ? "defaults" : "policy");
    if (options->common.json)
        cli_print_json(json_incref(reply));
    else
        cli_print_json(json_is_object(shown) ? json_incref(shown) : json_object());
    json_decref(reply);
    return CLI_OK;
}

/* NULL: err says why. The caller owns it. */
static json_t *read_document(const char *path, struct error *err)
{
    size_t size = 0;
    json_error_t why;
    bool is_stdin = strcmp(path, "-") == 0;
    AUTO_FREE char *text = is_stdin ? NULL : fd_read_file(path, DOCUMENT_MAX_BYTES, &size, err);
    if (!is_stdin && text == NULL)
        return NULL;
    json_t *document = is_stdin ? json_loadf(stdin, JSON_REJECT_DUPLICATES, &why)
                                : json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    if (document == NULL)
        error_set(err, ERROR_INVALID, "%.80s, line %d: %.120s", path, why.line, why.text);
    return document;
}

/* The version that is there now; NULL: err says why. The caller frees. */
static char *version_now(const struct place *place, struct error *err)
{
    json_t *now = NULL;
    if (!negotiator_call(place, "GET", "/policy", NULL, &now, err))
        return NULL;
    char *text = memory_printf("\"%lld\"", json_integer_value(json_object_get(now, "version")));
    json_decref(now);
    return text;
}

static int set(const struct policy_options *options, const struct place *place, const char *path)
{
    struct error err = {0};
    json_t *reply = NULL, *document = read_document(path, &err);
    if (document == NULL)
        return cli_fail(&err, NULL, CLI_FAILED);
    AUTO_FREE char *version = options->version ? memory_printf("\"%s\"", options->version) : version_now(place, &err);
    bool done = version && negotiator_call_matching(place, "PUT", "/policy", version, document, &reply, &err);
    json_decref(document);
    if (!done)
        return cli_fail(&err, err.kind == ERROR_PRECONDITION ? "`parley policy show --json` tells its version" : NULL,
                        CLI_FAILED);
    if (options->common.json)
        cli_print_json(json_incref(reply));
    else
        printf("version %lld is in force\n", json_integer_value(json_object_get(reply, "version")));
    json_decref(reply);
    return CLI_OK;
}

/* ---- why ---- */

/* As a person reads it; the caller frees. */
static char *value_text(const json_t *value, const char *missing)
{
    AUTO_TEXT text = {0};
    size_t i;
    json_t *each;
    if (value == NULL || json_is_null(value))
        return memory_string(missing);
    if (!json_is_array(value)) {
        AUTO_FREE char *plain = json_is_string(value) ? memory_string(json_string_value(value))
                                                      : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        return cli_safe(plain);
    }
    json_array_foreach (value, i, each)
        text_append_format(&text, "%s%s", i ? ", " : "", json_is_string(each) ? json_string_value(each) : "?");
    return cli_safe(text.data ? text.data : "nothing");
}

static void print_rule(const json_t *rule)
{
    const json_t *used = json_object_get(rule, "used");
    AUTO_FREE char *verdict = cli_member(rule, "verdict"), *name = cli_member(rule, "rule");
    AUTO_FREE char *where = cli_member(rule, "where"), *asked = value_text(json_object_get(rule, "asked"), "-");
    AUTO_FREE char *allowed = value_text(json_object_get(rule, "allowed"), "any");
    if (json_is_integer(used))
        printf("%-4s %-36s %-20s %s, %lld used  (%s)\n", verdict, name, asked, allowed, json_integer_value(used),
               where);
    else
        printf("%-4s %-36s %-20s %s  (%s)\n", verdict, name, asked, allowed, where);
}

static int why(const struct policy_options *options, const struct place *place)
{
    struct error err = {0};
    json_t *reply = NULL, *body = options->wish.members ? json_incref(options->wish.members) : json_object();
    size_t i;
    json_t *each;
    bool done = negotiator_call(place, "POST", "/policy/why", body, &reply, &err);
    json_decref(body);
    if (!done)
        return cli_fail_usual(&err, CLI_FAILED);
    bool allowed = json_is_true(json_object_get(reply, "allowed"));
    if (options->common.json) {
        cli_print_json(json_incref(reply));
    } else {
        printf("%-4s %-36s %-20s %s\n", "OK", "RULE", "ASKED", "ALLOWED (WHERE)");
        json_array_foreach (json_object_get(reply, "rules"), i, each)
            print_rule(each);
    }
    json_decref(reply);
    return allowed ? CLI_OK : CLI_FAILED;
}

/* ---- options ---- */

static int put_scopes(struct wish_options *wish, const char *given)
{
    AUTO_FREE char *text = memory_string(given);
    json_t *list = json_array();
    for (char *rest = text, *atom; (atom = strsep(&rest, " ")) != NULL;) {
        json_t *scope = atom[0] ? json_string(atom) : NULL;
        if (scope)
            json_array_append_new(list, scope);
    }
    wish_put(wish, "scopes", list);
    return CLI_OK;
}

static int put_text(struct wish_options *wish, const char *name, const char *given)
{
    json_t *text = json_string(given);
    if (text == NULL)
        return cli_usage("policy", "what is given must be UTF-8");
    wish_put(wish, name, text);
    return CLI_OK;
}

static int put_ttl(struct wish_options *wish, const char *given)
{
    unsigned ttl_s = 0;
    int wrong = cli_ttl("policy", given, &ttl_s);
    if (!wrong)
        wish_put(wish, "ttl", json_integer(ttl_s));
    return wrong;
}

static int read_option(struct policy_options *options, int option)
{
    switch (option) {
    case 'a':
        return put_text(&options->wish, "role", optarg);
    case 'p':
        return put_text(&options->wish, "principal", optarg);
    case 'c':
        return put_text(&options->wish, "actor", optarg);
    case 's':
        return put_scopes(&options->wish, optarg);
    case 'L':
        return put_ttl(&options->wish, optarg);
    case 'v':
        options->version = optarg;
        return CLI_OK;
    default:
        options->defaults = true;
        return CLI_OK;
    }
}

static int run_verb(const struct policy_options *options, int count, char *words[])
{
    const char *verb = count > 0 ? words[0] : "show";
    bool is_set = strcmp(verb, "set") == 0, is_why = strcmp(verb, "why") == 0;
    if (!is_set && !is_why && strcmp(verb, "show") != 0)
        return cli_usage("policy", "what is \"%s\"? show, set FILE or why", verb);
    if (count != (is_set ? 2 : 1) && count > 0)
        return is_set ? cli_usage("policy", "set wants one file; - is stdin")
                      : cli_usage("policy", "%s takes nothing behind it", verb);
    if (options->wish.members && !is_why)
        return cli_usage("policy", "what is asked for goes with why");
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options->common))
        return CLI_FAILED;
    return is_set ? set(options, &place, words[1]) : is_why ? why(options, &place) : show(options, &place);
}

int policy_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"as", required_argument, NULL, 'a'},
                                         {"principal", required_argument, NULL, 'p'},
                                         {"actor", required_argument, NULL, 'c'},
                                         {"scopes", required_argument, NULL, 's'},
                                         {"ttl", required_argument, NULL, 'L'},
                                         {"version", required_argument, NULL, 'v'},
                                         {"defaults", no_argument, NULL, 'D'},
                                         WISH_OPTIONS,
                                         CLI_COMMON_OPTIONS};
    struct policy_options options = {.version = NULL};
    int option, wrong = CLI_OK;
    while (!wrong && (option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&options.common, option, HELP) && !wish_option(&options.wish, "policy", option, &wrong))
            wrong = read_option(&options, option);
    }
    if (!wrong)
        wrong = run_verb(&options, argc - optind, argv + optind);
    wish_done(&options.wish);
    return wrong;
}
