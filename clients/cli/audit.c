/** audit.c - `parley audit`: who did what with which token, and the proof that nothing of it was changed. */
#include "clients/cli/cli.h"

#include "clients/c/call.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <errno.h>
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

enum { PAGE_RECORDS = 1000, VERIFY_MS = 3600 * 1000, HASH_HEX = 64 };
static const uint64_t MOST_RECORDS = 100000;

struct audit_options {
    struct cli_common common;
    const char *principal, *thread, *sandbox, *jti, *link, *action, *since, *until;
    bool all, follow, after_given;
    uint64_t most, after, from;
    uint64_t head_seq;
    const char *head_hash; /* NULL none */
};

enum { OPTION_PRINCIPAL = 'p', OPTION_AFTER = 'A', OPTION_FROM = 'F', OPTION_HEAD = 'H' };
static const struct option LONG[] = {{"principal", required_argument, NULL, OPTION_PRINCIPAL},
                                     {"thread", required_argument, NULL, 't'},
                                     {"sandbox", required_argument, NULL, 's'},
                                     {"jti", required_argument, NULL, 'j'},
                                     {"link", required_argument, NULL, 'l'},
                                     {"action", required_argument, NULL, 'a'},
                                     {"since", required_argument, NULL, 'S'},
                                     {"until", required_argument, NULL, 'U'},
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
    unsigned char hash[HASH_HEX / 2];
    if (!colon || !text_parse_u64(text, (size_t)(colon - text), INT64_MAX, &options->head_seq) ||
        !text_hex_decode(hash, sizeof hash, colon + 1, strlen(colon + 1)))
        return cli_usage("audit", "--head wants SEQ:HASH as `parley audit head` prints it");
    options->head_hash = colon + 1;
    return 0;
}

static int take_time(const char **to, const char *text)
{
    int64_t parsed;
    *to = text;
    return clock_parse(text, &parsed) ? 0 : cli_usage("audit", "\"%s\" is no time like 2026-11-22T10:00:00Z", text);
}

static int take_option(struct audit_options *options, int option)
{
    switch (option) {
    case OPTION_PRINCIPAL:
        options->principal = optarg;
        return 0;
    case 't':
        options->thread = optarg;
        return 0;
    case 's':
        options->sandbox = optarg;
        return 0;
    case 'j':
        options->jti = optarg;
        return 0;
    case 'l':
        options->link = optarg;
        return 0;
    case 'a':
        options->action = optarg;
        return 0;
    case 'S':
        return take_time(&options->since, optarg);
    case 'U':
        return take_time(&options->until, optarg);
    case 'e':
        options->all = true;
        return 0;
    case 'f':
        options->follow = true;
        return 0;
    case OPTION_AFTER:
        options->after_given = true;
        return take_number("--after", optarg, 0, INT64_MAX, &options->after);
    case OPTION_FROM:
        return take_number("--from", optarg, 1, INT64_MAX, &options->from);
    case OPTION_HEAD:
        return take_head(options, optarg);
    default:
        return take_number("-n", optarg, 1, MOST_RECORDS, &options->most);
    }
}

static bool fetch(const struct place *place, const char *path, json_t **page, struct error *err)
{
    return cli_call(place, "GET", path, NULL, page, err);
}

static void add_filters(struct text *path, const struct audit_options *options, const char *sandbox_id)
{
    cli_query(path, "all", options->all ? "1" : NULL);
    cli_query(path, "principal", options->principal);
    cli_query(path, "thread", options->thread);
    cli_query(path, "sandbox", sandbox_id);
    cli_query(path, "jti", options->jti);
    cli_query(path, "link", options->link);
    cli_query(path, "action", options->action);
    cli_query(path, "since", options->since);
    cli_query(path, "until", options->until);
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
        left = left < PAGE_RECORDS ? left : PAGE_RECORDS;
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
    fflush(stdout);
}

static bool read_head(const struct place *place, json_t **head, struct error *err)
{
    if (!fetch(place, "/audit/head", head, err))
        return false;
    if (json_is_integer(json_object_get(*head, "seq")) && json_is_string(json_object_get(*head, "hash")))
        return true;
    json_decref(*head);
    return error_set(err, ERROR_INTERNAL, "the negotiator's answer is no head of an audit chain");
}

/* New records as they come, until Ctrl-C or nobody reads. */
static int follow(struct audit_options *options, const struct place *place, const char *sandbox_id, json_t *shown)
{
    struct error err = {0};
    json_t *head = NULL;
    if (json_array_size(shown) == 0 && !options->after_given && read_head(place, &head, &err))
        options->after = (uint64_t)json_integer_value(json_object_get(head, "seq"));
    json_decref(head);
    options->after = last_seq(shown, options->after);
    options->after_given = true;
    options->most = MOST_RECORDS;
    while (!ferror(stdout)) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        json_t *list = find(options, place, sandbox_id, &err);
        if (!list)
            return cli_fail_usual(&err, CLI_FAILED);
        print_list(list, options->common.json);
        options->after = last_seq(list, options->after);
        json_decref(list);
    }
    return CLI_FAILED;
}

static int show(struct audit_options *options, const struct place *place)
{
    struct error err = {0};
    AUTO_FREE char *sandbox_id = options->sandbox ? cli_sandbox_id(place, options->sandbox, &err) : NULL;
    json_t *list = options->sandbox && !sandbox_id ? NULL : find(options, place, sandbox_id, &err);
    if (!list)
        return cli_fail_usual(&err, CLI_FAILED);
    int status = CLI_OK;
    if (options->common.json && !options->follow)
        cli_print_json(json_incref(list));
    else
        print_list(list, options->common.json);
    if (options->follow)
        status = follow(options, place, sandbox_id, list);
    json_decref(list);
    return status;
}

static int show_head(const struct audit_options *options, const struct place *place)
{
    struct error err = {0};
    json_t *head = NULL;
    if (!read_head(place, &head, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    if (options->common.json)
        cli_print_json(json_incref(head));
    else
        printf("%lld:%s\n", (long long)json_integer_value(json_object_get(head, "seq")),
               json_string_value(json_object_get(head, "hash")));
    json_decref(head);
    return CLI_OK;
}

static int verify(const struct audit_options *options, const struct place *place)
{
    struct error err = {0};
    AUTO_FREE char *url = memory_printf("%s/audit/verify", place->url);
    json_t *body = json_object();
    if (options->head_hash) {
        json_object_set_new(body, "seq", json_integer((json_int_t)options->head_seq));
        json_object_set_new(body, "hash", json_string(options->head_hash));
    }
    struct call call = {
        .method = "POST", .url = url, .credential = place->api_key, .body = body, .timeout_ms = VERIFY_MS};
    json_t *reply = NULL;
    bool answered = call_json(&call, &reply, NULL, &err);
    json_decref(body);
    if (!answered)
        return cli_fail_usual(&err, CLI_FAILED);
    bool whole = json_is_true(json_object_get(reply, "ok"));
    AUTO_FREE char *records = cli_member(reply, "records");
    AUTO_FREE char *first = cli_member(reply, "first");
    AUTO_FREE char *sealed = cli_member(reply, "sealed");
    AUTO_FREE char *last = cli_member(reply, "last");
    AUTO_FREE char *hash = cli_member(reply, "hash");
    AUTO_FREE char *reason = cli_member(reply, "error");
    AUTO_FREE char *at = cli_member(reply, "at");
    if (options->common.json)
        cli_print_json(json_incref(reply));
    else if (whole)
        printf("whole: %s records, %s to %s, after %s sealed ones; head %s:%s%s\n", records, first, last, sealed, last,
               hash, options->head_hash ? "; the head kept elsewhere is part of it" : "");
    else
        fprintf(stderr, "parley: the audit chain does not hold at record %s: %s\n", at, reason);
    json_decref(reply);
    return whole ? CLI_OK : CLI_FAILED;
}

/* What was exported so far: every record must follow the one before. */
struct link {
    json_int_t seq; /* 0 none yet */
    char hash[HASH_HEX + 1];
};

/* Whoever keeps the export can check this much without the key: no record left out, each naming the one before. */
static bool export_one(struct link *last, const json_t *record, struct error *err)
{
    json_int_t seq = json_integer_value(json_object_get(record, "seq"));
    const char *prev = json_string_value(json_object_get(record, "prev"));
    const char *hash = json_string_value(json_object_get(record, "hash"));
    if (!prev || !hash || seq <= 0)
        return error_set(err, ERROR_FORBIDDEN, "the records came without prev and hash: export needs an admin's key");
    if (last->seq != 0 && (seq != last->seq + 1 || strcmp(prev, last->hash) != 0))
        return error_set(err, ERROR_INTERNAL, "record %lld does not follow record %lld: see `parley audit verify`",
                         (long long)seq, (long long)last->seq);
    print_line(record, true);
    last->seq = seq;
    return text_copy(last->hash, sizeof last->hash, hash) ||
           error_set(err, ERROR_INTERNAL, "record %lld has a hash that is none", (long long)seq);
}

static bool export_page(struct link *last, const json_t *page, struct error *err)
{
    size_t index;
    json_t *record;
    json_array_foreach (json_object_get(page, "records"), index, record) {
        if (!export_one(last, record, err))
            return false;
    }
    return fflush(stdout) == 0 || error_set_errno(err, ERROR_INTERNAL, "writing the export");
}

static int export(const struct audit_options *options, const struct place *place)
{
    struct error err = {0};
    struct link last = {0};
    uint64_t after = options->from ? options->from - 1 : 0;
    for (bool more = true; more;) {
        AUTO_FREE char *path =
            memory_printf("/audit?all=1&after=%llu&limit=%d", (unsigned long long)after, PAGE_RECORDS);
        json_t *page = NULL;
        if (!fetch(place, path, &page, &err))
            return cli_fail_usual(&err, CLI_FAILED);
        bool written = export_page(&last, page, &err);
        const json_t *next = json_object_get(page, "next");
        more = json_is_integer(next) && (uint64_t)json_integer_value(next) > after;
        after = more ? (uint64_t)json_integer_value(next) : after;
        json_decref(page);
        if (!written)
            return cli_fail(&err, NULL, CLI_FAILED);
    }
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
    if (!wrong && !options.after_given && options.most > PAGE_RECORDS)
        wrong = cli_usage("audit", "-n wants 1 to %d, more only with --after SEQ", PAGE_RECORDS);
    if (wrong)
        return wrong;
    const char *verb = optind < argc ? argv[optind] : "list";
    static const char *const VERBS[] = {"list", "head", "verify", "export"};
    size_t known = 0;
    while (known < 4 && strcmp(verb, VERBS[known]) != 0)
        known++;
    if (known == 4 || optind + 1 < argc)
        return cli_usage("audit", "unexpected word \"%s\"; allowed: head, verify, export",
                         known == 4 ? verb : argv[optind + 1]);
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    switch (known) {
    case 1:
        return show_head(&options, &place);
    case 2:
        return verify(&options, &place);
    case 3:
        return export(&options, &place);
    default:
        return show(&options, &place);
    }
}
