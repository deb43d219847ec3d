/** audit.c - `parley audit`: who did what with which token, and the proof that nothing of it was changed. */
#include "clients/cli/audit_proof.h"
#include "clients/cli/cli.h"

#include "clients/c/remote_sandbox.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char HELP[] =
    "usage: parley audit [-n N] [filters] [--all] [-f]     the last N records (default 20)\n"
    "       parley audit --after SEQ [-n N] [filters]      the first N after SEQ\n"
    "       parley audit head                              number and hash of the newest, as SEQ:HASH; keep it "
    "elsewhere\n"
    "       parley audit verify [--head SEQ:HASH]          prove that no record was changed or cut off (admin)\n"
    "       parley audit export [--from SEQ]               everything as NDJSON, with prev and hash (admin)\n\n"
    "  -n N               at most N records, 1 to 1000; with --after to 100000\n"
    "  -f, --follow       go on with new ones until Ctrl-C; --json then prints one object a line\n"
    "  --all              everybody's records (admin), else your own\n"
    "  --principal P, --thread T, --sandbox NAME|ID, --jti ID, --link ID, --action A, --since TIME, --until TIME\n"
    "                     only these; times like 2026-11-22T10:00:00Z. The last N are looked for among the newest\n"
    "                     20,000 records, with --after among all\n"
    "  --head SEQ:HASH    verify: this head, kept elsewhere, must still be part of the chain\n"
    "  --from SEQ         export: from this record on (default: the oldest that is kept)\n" CLI_COMMON_HELP
    "\nExit status of verify: 0 whole, 1 not.\n";

enum { HASH_BYTES = 32 };
static const uint64_t MOST_RECORDS = 100000;

/* Members of the query as they are, options of the same name. */
static const char *const FILTERS[] = {"principal", "thread", "sandbox", "jti", "link", "action", "since", "until"};
enum { FILTER_SANDBOX = 2, FILTER_SINCE = 6, FILTER_COUNT = 8 };

enum audit_verb { AUDIT_LIST, AUDIT_HEAD, AUDIT_VERIFY, AUDIT_EXPORT, AUDIT_VERBS };
static const char *const VERBS[] = {"list", "head", "verify", "export"};

struct audit_options {
    struct cli_common common;
    const char *filters[FILTER_COUNT];
    bool all, follow, after_given;
    bool belongs[AUDIT_VERBS]; /* an option of that verb was given */
    uint64_t most, after, from;
    struct audit_head head; /* its hash NULL: none */
};

enum { OPTION_AFTER = 'A', OPTION_FROM = 'F', OPTION_HEAD = 'H', OPTION_FILTER = 2000 /* and its place in FILTERS */ };
static const struct option LONG[] = {{"principal", required_argument, NULL, OPTION_FILTER},
                                     {"thread", required_argument, NULL, OPTION_FILTER + 1},
                                     {"sandbox", required_argument, NULL, OPTION_FILTER + FILTER_SANDBOX},
                                     {"jti", required_argument, NULL, OPTION_FILTER + 3},
                                     {"link", required_argument, NULL, OPTION_FILTER + 4},
                                     {"action", required_argument, NULL, OPTION_FILTER + 5},
                                     {"since", required_argument, NULL, OPTION_FILTER + FILTER_SINCE},
                                     {"until", required_argument, NULL, OPTION_FILTER + FILTER_SINCE + 1},
                                     {"after", required_argument, NULL, OPTION_AFTER},
                                     {"from", required_argument, NULL, OPTION_FROM},
                                     {"head", required_argument, NULL, OPTION_HEAD},
                                     {"all", no_argument, NULL, 'e'},
                                     {"follow", no_argument, NULL, 'f'},
                                     CLI_COMMON_OPTIONS};

static int take_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
    if (text_parse_u64(text, strlen(text), most, number) && *number >= least)
        return 0;
    return cli_usage("audit", "%s wants a number from %llu to %llu, not \"%s\"", option, (unsigned long long)least,
                     (unsigned long long)most, text);
}

static int take_head(struct audit_options *options, const char *text)
{
    const char *colon = strchr(text, ':');
    unsigned char hash[HASH_BYTES];
    if (!colon || !text_parse_u64(text, (size_t)(colon - text), INT64_MAX, &options->head.seq) ||
        !text_hex_decode(hash, sizeof hash, colon + 1, strlen(colon + 1)))
        return cli_usage("audit", "--head wants SEQ:HASH as `parley audit head` prints it");
    options->head.hash = colon + 1;
    return 0;
}

static int take_filter(struct audit_options *options, int filter, const char *text)
{
    int64_t parsed;
    options->filters[filter] = text;
    if (filter < FILTER_SINCE || clock_parse(text, &parsed))
        return 0;
    return cli_usage("audit", "\"%s\" is no time like 2026-11-22T10:00:00Z", text);
}

static int take_option(struct audit_options *options, int option)
{
    enum audit_verb verb = option == OPTION_HEAD ? AUDIT_VERIFY : option == OPTION_FROM ? AUDIT_EXPORT : AUDIT_LIST;
    options->belongs[verb] = options->belongs[verb] || option != 'e'; /* export has all anyway */
    switch (option) {
    case 'e':
        options->all = true;
        return 0;
    case 'f':
        options->follow = true;
        return 0;
    case 'n':
        return take_number("-n", optarg, 1, MOST_RECORDS, &options->most);
    case OPTION_AFTER:
        options->after_given = true;
        return take_number("--after", optarg, 0, INT64_MAX, &options->after);
    case OPTION_FROM:
        return take_number("--from", optarg, 1, INT64_MAX, &options->from);
    case OPTION_HEAD:
        return take_head(options, optarg);
    default:
        return take_filter(options, option - OPTION_FILTER, optarg);
    }
}

static bool fetch(const struct place *place, const char *path, json_t **page, struct error *err)
{
    return negotiator_call(place, "GET", path, NULL, page, err);
}

static void add_filters(struct text *path, const struct audit_options *options, const char *sandbox_id)
{
    negotiator_query(path, "all", options->all ? "1" : NULL);
    for (size_t i = 0; i < FILTER_COUNT; i++)
        negotiator_query(path, FILTERS[i], i == FILTER_SANDBOX ? sandbox_id : options->filters[i]);
}

static void print_line(const json_t *record, bool json)
{
    if (json) {
        json_dumpf(record, stdout, JSON_COMPACT);
        putchar('\n');
        return;
    }
    static const char *const HEAD[] = {"seq", "time", "plane", "node", "action", "outcome", "status", "principal"};
    static const char *const REST[] = {"actor", "thread_id", "sandbox_id", "lease",     "jti",
                                       "links", "scope",     "remote",     "request_id"};
    for (size_t i = 0; i < sizeof HEAD / sizeof *HEAD; i++) {
        AUTO_FREE char *text = cli_member(record, HEAD[i]);
        if (text[0] && strcmp(text, "-") != 0)
            printf("%s%s", i ? " " : "", text);
    }
    for (size_t i = 0; i < sizeof REST / sizeof *REST; i++) {
        AUTO_FREE char *text = cli_member(record, REST[i]);
        if (text[0] && strcmp(text, "-") != 0)
            printf(" %s=%s", REST[i], text);
    }
    AUTO_FREE char *detail = cli_member(record, "detail");
    printf("%s%s\n", detail[0] && strcmp(detail, "-") != 0 ? " " : "", strcmp(detail, "-") != 0 ? detail : "");
}

/* Adds a page's records to `list`; *after becomes where the next page begins. True when there is one. */
static bool take_page(json_t *list, const json_t *page, uint64_t *after)
{
    json_array_extend(list, json_object_get(page, "records"));
    const json_t *next = json_object_get(page, "next");
    if (!json_is_integer(next) || (uint64_t)json_integer_value(next) <= *after)
        return false;
    *after = (uint64_t)json_integer_value(next);
    return true;
}

/* The records that are asked for; NULL with err. The negotiator looks at so many a call only and says where to go on.
 */
static json_t *find(const struct audit_options *options, const struct place *place, const char *sandbox_id,
                    struct error *err)
{
    json_t *list = json_array();
    uint64_t after = options->after;
    bool more = true;
    while (more && json_array_size(list) < options->most) {
        AUTO_TEXT path = {0};
        uint64_t left = options->most - json_array_size(list);
        left = left < AUDIT_PAGE_RECORDS ? left : AUDIT_PAGE_RECORDS;
        if (options->after_given)
            text_append_format(&path, "/audit?after=%llu&limit=%llu", (unsigned long long)after,
                               (unsigned long long)left);
        else
            text_append_format(&path, "/audit?last=%llu", (unsigned long long)options->most);
        add_filters(&path, options, sandbox_id);
        json_t *page = NULL;
        if (!fetch(place, path.data, &page, err)) {
            json_decref(list);
            return NULL;
        }
        more = take_page(list, page, &after) && options->after_given;
        json_decref(page);
    }
    return list;
}

static uint64_t last_seq(const json_t *list, uint64_t otherwise)
{
    size_t count = json_array_size(list);
    const json_t *seq = count ? json_object_get(json_array_get(list, count - 1), "seq") : NULL;
    return json_is_integer(seq) ? (uint64_t)json_integer_value(seq) : otherwise;
}

static void print_list(const json_t *list, bool json_lines)
{
    size_t index;
    json_t *record;
    json_array_foreach (list, index, record) {
        print_line(record, json_lines);
    }
}

static bool read_head(const struct place *place, json_t **head, struct error *err)
{
    json_t *reply = NULL;
    if (!fetch(place, "/audit/head", &reply, err))
        return false;
    if (json_is_integer(json_object_get(reply, "seq")) && json_is_string(json_object_get(reply, "hash"))) {
        *head = reply;
        return true;
    }
    json_decref(reply);
    return error_set(err, ERROR_INTERNAL, "the negotiator's answer is no head of an audit chain");
}

/* New records as they come, until Ctrl-C or nobody reads. */
static int follow(struct audit_options *options, const struct place *place, const char *sandbox_id)
{
    struct error err = {0};
    options->after_given = true;
    options->most = MOST_RECORDS;
    while (cli_flush(&err)) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        json_t *list = find(options, place, sandbox_id, &err);
        if (!list)
            break;
        print_list(list, options->common.json);
        options->after = last_seq(list, options->after);
        json_decref(list);
    }
    return cli_fail_usual(&err, CLI_FAILED);
}

/* Where following begins when nothing is there to show: at the head of before anybody looked. */
static bool begin_following(struct audit_options *options, const struct place *place, struct error *err)
{
    json_t *head = NULL;
    if (options->after_given || !options->follow)
        return true;
    if (!read_head(place, &head, err))
        return false;
    options->after = (uint64_t)json_integer_value(json_object_get(head, "seq"));
    json_decref(head);
    return true;
}

static int show(struct audit_options *options, const struct place *place)
{
    struct error err = {0};
    const char *sandbox = options->filters[FILTER_SANDBOX];
    AUTO_FREE char *sandbox_id = sandbox ? remote_sandbox_find(place, sandbox, &err) : NULL;
    bool good = (sandbox_id || !sandbox) && begin_following(options, place, &err);
    json_t *list = good ? find(options, place, sandbox_id, &err) : NULL;
    if (!list)
        return cli_fail_usual(&err, CLI_FAILED);
    if (options->common.json && !options->follow)
        cli_print_json(json_incref(list));
    else
        print_list(list, options->common.json);
    options->after = last_seq(list, options->after);
    json_decref(list);
    return options->follow ? follow(options, place, sandbox_id) : CLI_OK;
}

static int show_head(const struct audit_options *options, const struct place *place)
{
    struct error err = {0};
    json_t *head = NULL;
    if (!read_head(place, &head, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    AUTO_FREE char *hash = cli_member(head, "hash");
    if (options->common.json)
        cli_print_json(json_incref(head));
    else
        printf("%lld:%s\n", (long long)json_integer_value(json_object_get(head, "seq")), hash);
    json_decref(head);
    return CLI_OK;
}

int audit_main(int argc, char *argv[])
{
    struct audit_options options = {.most = 20};
    int option, wrong = 0;
    while (!wrong && (option = getopt_long(argc, argv, "n:f", LONG, NULL)) != -1) {
        if (!cli_common(&options.common, option, HELP))
            wrong = take_option(&options, option);
    }
    if (!wrong && !options.after_given && options.most > AUDIT_PAGE_RECORDS)
        wrong = cli_usage("audit", "-n wants 1 to %d, more only with --after SEQ", AUDIT_PAGE_RECORDS);
    if (wrong)
        return wrong;
    const char *verb = optind < argc ? argv[optind] : "list";
    size_t known = 0;
    while (known < AUDIT_VERBS && strcmp(verb, VERBS[known]) != 0)
        known++;
    if (known == AUDIT_VERBS || optind + 1 < argc)
        return cli_usage("audit", "unexpected word \"%s\"; allowed: head, verify, export",
                         known == AUDIT_VERBS ? verb : argv[optind + 1]);
    for (size_t other = 0; other < AUDIT_VERBS; other++) {
        if (options.belongs[other] && other != known)
            return cli_usage("audit", "%s takes no option of %s", verb, VERBS[other]);
    }
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    switch (known) {
    case AUDIT_HEAD:
        return show_head(&options, &place);
    case AUDIT_VERIFY:
        return audit_verify(&place, options.head.hash ? &options.head : NULL, options.common.json);
    case AUDIT_EXPORT:
        return audit_export(&place, options.from);
    default:
        return show(&options, &place);
    }
}
