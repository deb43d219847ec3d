/** events.c - `parley events`: what happens, as it happens. */
#include "clients/cli/cli.h"

#include "clients/c/remote_events.h"
#include "clients/c/remote_sandbox.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley events [filters]        what happened in the last hour\n"
    "       parley events -f [filters]     what happens, until Ctrl-C; resumed when the connection breaks\n\n"
    "  -f, --follow       from now on, or with --since or --after from there on\n"
    "  --since WHEN       from then on: 30s, 15m, 2h, 7d ago, or a time like 2026-11-22T10:00:00Z\n"
    "  --after ID         those after this one\n"
    "  --type T,...       only these: sandbox.created, exec.*, ... (16 at most)\n"
    "  --thread T, --sandbox NAME|ID, --principal P (admin)\n"
    "  --all              everybody's (admin), else your own\n" CLI_COMMON_HELP "\nWith --json one object a line.\n"
    "Types: sandbox.created|ended|deleted|paused|resumed|renewed|updated, lease.ended,\n"
    "token.issued|refreshed|revoked|reused,\n"
    "share.created|ended, exec.started|ended, code.started|ended, file.changed, snapshot.created|deleted, "
    "volume.deleted,\n"
    "request.refused, authentication.refused, and as the audit names them key.*, policy.*, incident.*, node.*,\n"
    "webhook.*. A type that there is not is no error: it never comes.\n";

struct events_options {
    struct cli_common common;
    const char *since, *after, *types, *thread, *sandbox, *principal;
    bool follow, all;
};

enum { OPTION_SINCE = 1, OPTION_AFTER, OPTION_TYPE, OPTION_THREAD, OPTION_SANDBOX, OPTION_PRINCIPAL, OPTION_ALL };
static const struct option LONG[] = {{"follow", no_argument, NULL, 'f'},
                                     {"since", required_argument, NULL, OPTION_SINCE},
                                     {"after", required_argument, NULL, OPTION_AFTER},
                                     {"type", required_argument, NULL, OPTION_TYPE},
                                     {"thread", required_argument, NULL, OPTION_THREAD},
                                     {"sandbox", required_argument, NULL, OPTION_SANDBOX},
                                     {"principal", required_argument, NULL, OPTION_PRINCIPAL},
                                     {"all", no_argument, NULL, OPTION_ALL},
                                     CLI_COMMON_OPTIONS};

static void take_option(struct events_options *options, int option)
{
    const char **const texts[] = {[OPTION_SINCE] = &options->since,     [OPTION_AFTER] = &options->after,
                                  [OPTION_TYPE] = &options->types,      [OPTION_THREAD] = &options->thread,
                                  [OPTION_SANDBOX] = &options->sandbox, [OPTION_PRINCIPAL] = &options->principal};
    if (option == 'f')
        options->follow = true;
    else if (option == OPTION_ALL)
        options->all = true;
    else
        *texts[option] = optarg;
}

/* "15m": that long ago; else as it is, which the negotiator checks. */
static void format_since(char to[static 32], const char *given)
{
    static const char UNITS[] = "smhd";
    static const int64_t SECONDS[] = {1, 60, 3600, 86400};
    size_t length = strlen(given);
    const char *unit = length > 1 ? strchr(UNITS, given[length - 1]) : NULL;
    uint64_t number = 0;
    if (unit && text_parse_u64(given, length - 1, 1000000, &number))
        clock_format(to, clock_wall_ms() - (int64_t)number * SECONDS[unit - UNITS] * 1000);
    else
        snprintf(to, 32, "%.31s", given);
}

static bool print_event(void *cookie, const json_t *event)
{
    const struct events_options *options = cookie;
    static const char *const SHOWN[] = {"principal", "actor", "thread_id", "sandbox_id", "node", "detail"};
    if (options->common.json) {
        json_dumpf(event, stdout, JSON_COMPACT);
        putchar('\n');
        return cli_flush(NULL);
    }
    AUTO_FREE char *time = cli_member(event, "time"), *type = cli_member(event, "type"), *id = cli_member(event, "id");
    printf("%-8s %s %-20s", id, time, type);
    for (size_t i = 0; i < sizeof SHOWN / sizeof *SHOWN; i++) {
        AUTO_FREE char *value = cli_member(event, SHOWN[i]);
        if (strcmp(value, "-") != 0)
            printf(" %s", value);
    }
    putchar('\n');
    return cli_flush(NULL);
}

static bool tell_lost(void *cookie UNUSED, const struct error *err)
{
    AUTO_FREE char *why = cli_safe(err->kind == ERROR_NONE ? "the stream ended" : err->message);
    fprintf(stderr, "parley: %s; going on in a moment\n", why);
    return true;
}

static int show(struct events_options *options, const struct place *place)
{
    struct error err = {0};
    char since[32] = "";
    AUTO_TEXT path = {0};
    AUTO_FREE char *sandbox = options->sandbox ? remote_sandbox_find(place, options->sandbox, &err) : NULL;
    if (options->sandbox && !sandbox)
        return cli_fail_usual(&err, CLI_FAILED);
    if (options->since || (!options->after && !options->follow))
        format_since(since, options->since ? options->since : "1h");
    text_append_format(&path, "/events?follow=%d", options->follow);
    negotiator_query(&path, "since", since[0] ? since : NULL);
    negotiator_query(&path, "after", options->after);
    negotiator_query(&path, "types", options->types);
    negotiator_query(&path, "thread", options->thread);
    negotiator_query(&path, "sandbox", sandbox);
    negotiator_query(&path, "principal", options->principal);
    negotiator_query(&path, "all", options->all ? "1" : NULL);
    const struct remote_events wanted = {
        .path = path.data, .follow = options->follow, .visit = print_event, .lost = tell_lost, .cookie = options};
    return remote_events(place, &wanted, &err) ? CLI_OK : cli_fail_usual(&err, CLI_FAILED);
}

int events_main(int argc, char *argv[])
{
    struct events_options options = {.follow = false};
    int option;
    while ((option = getopt_long(argc, argv, "f", LONG, NULL)) != -1) {
        if (!cli_common(&options.common, option, HELP))
            take_option(&options, option);
    }
    if (optind < argc)
        return cli_usage("events", "unexpected word \"%s\"", argv[optind]);
    AUTO_PLACE place = {0};
    return cli_place(&place, &options.common) ? show(&options, &place) : CLI_FAILED;
}
