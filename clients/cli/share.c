/** share.c - `parley share`, `shares`, `unshare`: another's way into a thread's sandbox. */
#include "clients/cli/cli.h"
#include "clients/cli/revocation_view.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

static const char SHARE_HELP[] =
    "usage: parley share [options]\n\n"
    "Lets somebody else into the thread's sandbox, with a token of its own that `parley unshare` ends without "
    "touching\n"
    "yours. Prints a capability URL (a secret): whoever has it may what the scopes say, with\n"
    "  parley attach --url URL             look at the newest terminal, with what it showed\n"
    "  parley run --url URL -- CMD         and cat, put, cp ..., as far as the scopes go\n\n"
    "  --to PRINCIPAL     for that principal, whose own CLI renews it with its own key, until --until; without: for\n"
    "                     whoever has the URL, which ends after --ttl and is renewed by nobody\n"
    "  --scopes 'A B'     what may be done (default: shell:ro, to watch), e.g. 'process fs:rw', 'fs:ro@/workspace'\n"
    "  --ttl S            let the token live S seconds, 60 to 3600 (default 900)\n"
    "  --until WHEN       with --to: a time like 2026-11-22T10:00:00Z, or from now 90s, 30m, 8h; at most, and by\n"
    "                     default, as long as the thread's lease\n"
    "  --agent ID         an agent acts with it, not a human: for the audit, and for what policy gives\n"
    "  --thread T         the conversation (default: the current folder's own)\n"
    "  --principal P      of somebody else's thread; admins only\n" CLI_COMMON_HELP "\nExamples:\n"
    "  parley share                                     a link to look at this folder's terminal\n"
    "  parley share --to bob --scopes 'process fs:rw' --until 8h\n";

static const char SHARES_HELP[] =
    "usage: parley shares [--thread T] [--principal P]\n\n"
    "Who else has a way into the thread's sandbox: shares that can be used or renewed.\n\n"
    "  --thread T         the conversation (default: the current folder's own)\n"
    "  --principal P      of somebody else's thread; admins only\n" CLI_COMMON_HELP;

static const char UNSHARE_HELP[] = "usage: parley unshare [--thread T] [--principal P] ID... | --all\n\n"
                                   "Ends shares, everywhere: every token of theirs is refused and its streams are cut; "
                                   "processes live on, and so do all\n"
                                   "other tokens. `parley shares` lists them.\n\n"
                                   "  --all              all of the thread\n"
                                   "  --thread T         the conversation (default: the current folder's own)\n"
                                   "  --principal P      of somebody else's thread; admins only\n" CLI_COMMON_HELP
                                   "\nExit status: 0 in force, 3 durable but not yet on every node.\n";

struct share_options {
    struct cli_common common;
    const char *to, *scopes, *agent, *thread, *principal;
    unsigned ttl_s;
    int64_t until_ms;
    bool all;
};

/* ---- what is common ---- */

/* "/threads/T/sandbox/<verb>", with whose it is. The caller frees. */
static char *path_of(const struct share_options *options, const char *verb)
{
    AUTO_FREE char *thread = cli_thread(options->thread);
    AUTO_FREE char *tail = memory_printf("sandbox/%s", verb);
    AUTO_FREE char *plain = negotiator_path("/threads", thread, tail);
    AUTO_TEXT path = {0};
    text_append_string(&path, plain);
    negotiator_query(&path, "principal", options->principal);
    return memory_string(path.data);
}

static int fail(const struct error *err)
{
    if (err->kind == ERROR_NOT_FOUND)
        return cli_fail(err, "`parley shell` or `parley run` makes a sandbox; `parley shares` lists shares",
                        CLI_FAILED);
    return cli_fail_usual(err, CLI_FAILED);
}

/* ---- share ---- */

static int take_until(struct share_options *options, const char *text)
{
    static const struct {
        char unit;
        int64_t seconds;
    } UNITS[] = {{'s', 1}, {'m', 60}, {'h', 3600}};
    uint64_t number = 0;
    size_t length = strlen(text);
    if (clock_parse(text, &options->until_ms) && options->until_ms > 0)
        return 0;
    for (size_t i = 0; i < sizeof UNITS / sizeof *UNITS && length > 1; i++) {
        if (text[length - 1] != UNITS[i].unit || !text_parse_u64(text, length - 1, 86400, &number) || number == 0)
            continue;
        options->until_ms = clock_wall_ms() + (int64_t)number * UNITS[i].seconds * 1000;
        return 0;
    }
    return cli_usage("share", "--until wants a time like 2026-11-22T10:00:00Z, or 90s, 30m, 8h; not \"%s\"", text);
}

static int read_share(struct share_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {
        {"to", required_argument, NULL, 'p'},        {"scopes", required_argument, NULL, 'S'},
        {"ttl", required_argument, NULL, 'L'},       {"until", required_argument, NULL, 'u'},
        {"agent", required_argument, NULL, 'a'},     {"thread", required_argument, NULL, 't'},
        {"principal", required_argument, NULL, 'o'}, CLI_COMMON_OPTIONS};
    int option, wrong = 0;
    while (!wrong && (option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&options->common, option, SHARE_HELP))
            continue;
        if (option == 'p')
            options->to = optarg;
        else if (option == 'S')
            options->scopes = optarg;
        else if (option == 'L')
            wrong = cli_ttl("share", optarg, &options->ttl_s);
        else if (option == 'u')
            wrong = take_until(options, optarg);
        else if (option == 'a')
            options->agent = optarg;
        else if (option == 't')
            options->thread = optarg;
        else
            options->principal = optarg;
    }
    if (!wrong && optind < argc)
        return cli_usage("share", "unexpected word \"%s\"", argv[optind]);
    if (!wrong && options->until_ms && !options->to)
        return cli_usage("share", "--until goes with --to: a share for nobody in particular ends after --ttl");
    return wrong;
}

static json_t *share_body(const struct share_options *options)
{
    json_t *scopes = json_array(), *body = json_pack("{s:b, s:s*}", "capability_url", 1, "principal", options->to);
    AUTO_FREE char *copy = memory_string(options->scopes ? options->scopes : "shell:ro");
    char *rest = copy;
    for (char *atom; (atom = strsep(&rest, " ,")) != NULL;) {
        if (*atom)
            json_array_append_new(scopes, json_string(atom));
    }
    json_object_set_new(body, "scopes", scopes);
    if (options->ttl_s)
        json_object_set_new(body, "ttl", json_integer(options->ttl_s));
    if (options->agent)
        json_object_set_new(body, "actor", json_pack("{s:s, s:s}", "type", "agent", "id", options->agent));
    if (options->until_ms) {
        char until[CLOCK_TEXT_BYTES];
        clock_format(until, options->until_ms);
        json_object_set_new(body, "until", json_string(until));
    }
    return body;
}

static void print_scopes(FILE *to, const json_t *scopes)
{
    size_t i;
    const json_t *each;
    json_array_foreach (scopes, i, each) {
        AUTO_FREE char *atom = cli_safe(json_string_value(each));
        fprintf(to, "%s%s", i ? " " : "", atom);
    }
}

/* The URL alone on stdout; what it is, for the one who gives it away, on stderr. */
static int print_share(const struct share_options *options, json_t *reply)
{
    const json_t *share = json_object_get(reply, "share");
    const char *url = json_string_value(json_object_get(json_object_get(reply, "endpoints"), "capability"));
    if (!url)
        return cli_fail(&(struct error){.kind = ERROR_INTERNAL, .message = "the negotiator told no capability URL"},
                        NULL, CLI_FAILED);
    if (options->common.json) {
        cli_print_json(json_pack("{s:s, s:O, s:O, s:O, s:O}", "url", url, "share", share, "scopes",
                                 json_object_get(reply, "scopes"), "jti", json_object_get(reply, "jti"), "expires_at",
                                 json_object_get(reply, "expires_at")));
        return CLI_OK;
    }
    char end[24];
    AUTO_FREE char *id = cli_member(share, "id");
    AUTO_FREE char *to = options->to ? cli_safe(options->to) : memory_string("whoever has this URL");
    cli_print_when(end, json_string_value(json_object_get(share, "until")));
    puts(url);
    fprintf(stderr, "parley: %s: ", to);
    print_scopes(stderr, json_object_get(reply, "scopes"));
    fprintf(stderr, ", ends %s; to end it: parley unshare", end);
    if (options->thread)
        fprintf(stderr, " --thread %s", options->thread);
    fprintf(stderr, " %s\n", id);
    return CLI_OK;
}

int share_main(int argc, char *argv[])
{
    struct share_options options = {0};
    AUTO_PLACE place = {0};
    int wrong = read_share(&options, argc, argv);
    if (wrong)
        return wrong;
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    AUTO_FREE char *path = path_of(&options, "share");
    struct error err = {0};
    json_t *reply = NULL, *body = share_body(&options);
    bool done = negotiator_call(&place, "POST", path, body, &reply, &err);
    json_decref(body);
    int status = done ? print_share(&options, reply) : fail(&err);
    json_decref(reply);
    return status;
}

/* ---- shares ---- */

static int read_thread(struct share_options *options, const char *help, int argc, char *argv[])
{
    static const struct option LONG[] = {{"all", no_argument, NULL, 'A'},
                                         {"thread", required_argument, NULL, 't'},
                                         {"principal", required_argument, NULL, 'o'},
                                         CLI_COMMON_OPTIONS};
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&options->common, option, help))
            continue;
        if (option == 'A' && help == UNSHARE_HELP)
            options->all = true;
        else if (option == 'A')
            return cli_usage("shares", "it lists all there are");
        else if (option == 't')
            options->thread = optarg;
        else
            options->principal = optarg;
    }
    return 0;
}

static bool list(const struct share_options *options, const struct place *place, json_t **reply, struct error *err)
{
    AUTO_FREE char *path = path_of(options, "shares");
    return negotiator_call(place, "GET", path, NULL, reply, err);
}

static void print_row(const json_t *share)
{
    char token[24], end[24];
    AUTO_FREE char *id = cli_member(share, "id");
    const json_t *principal = json_object_get(share, "principal");
    AUTO_FREE char *who =
        json_is_string(principal) ? cli_member(share, "principal") : memory_string("(the URL's holder)");
    AUTO_FREE char *actor = cli_member(share, "actor");
    cli_print_when(token, json_string_value(json_object_get(share, "expires_at")));
    cli_print_when(end, json_string_value(json_object_get(share, "until")));
    printf("%-26s %-20s %-16s %-10s %-10s ", id, who, actor, token, end);
    print_scopes(stdout, json_object_get(share, "scopes"));
    putchar('\n');
}

int shares_main(int argc, char *argv[])
{
    struct share_options options = {0};
    AUTO_PLACE place = {0};
    struct error err = {0};
    json_t *reply = NULL;
    int wrong = read_thread(&options, SHARES_HELP, argc, argv);
    if (wrong)
        return wrong;
    if (optind < argc)
        return cli_usage("shares", "unexpected word \"%s\"", argv[optind]);
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    if (!list(&options, &place, &reply, &err))
        return fail(&err);
    if (options.common.json) {
        cli_print_json(reply);
        return CLI_OK;
    }
    size_t i;
    const json_t *each;
    printf("%-26s %-20s %-16s %-10s %-10s %s\n", "ID", "PRINCIPAL", "ACTOR", "TOKEN", "ENDS", "SCOPES");
    json_array_foreach (json_object_get(reply, "shares"), i, each)
        print_row(each);
    json_decref(reply);
    return CLI_OK;
}

/* ---- unshare ---- */

static int end_one(const struct share_options *options, const struct place *place, const char *id)
{
    struct error err = {0};
    json_t *reply = NULL;
    AUTO_FREE char *verb = negotiator_path("shares", id, NULL);
    AUTO_FREE char *path = path_of(options, verb);
    return negotiator_call(place, "DELETE", path, NULL, &reply, &err) ? revocation_show(reply, options->common.json)
                                                                      : fail(&err);
}

static int end_all(const struct share_options *options, const struct place *place)
{
    struct error err = {0};
    json_t *reply = NULL;
    size_t i;
    const json_t *each;
    int worst = CLI_OK;
    if (!list(options, place, &reply, &err))
        return fail(&err);
    json_array_foreach (json_object_get(reply, "shares"), i, each) {
        const char *id = json_string_value(json_object_get(each, "id"));
        int status = id ? end_one(options, place, id) : CLI_FAILED;
        worst = status == CLI_OK || worst == CLI_FAILED ? worst : status;
    }
    json_decref(reply);
    return worst;
}

int unshare_main(int argc, char *argv[])
{
    struct share_options options = {0};
    AUTO_PLACE place = {0};
    int worst = read_thread(&options, UNSHARE_HELP, argc, argv);
    if (worst)
        return worst;
    if (options.all ? optind < argc : optind >= argc)
        return cli_usage("unshare", options.all ? "--all stands alone" : "which one? `parley shares` lists them");
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    if (options.all)
        return end_all(&options, &place);
    for (int i = optind; i < argc; i++) {
        int status = end_one(&options, &place, argv[i]);
        worst = status == CLI_OK || worst == CLI_FAILED ? worst : status;
    }
    return worst;
}
