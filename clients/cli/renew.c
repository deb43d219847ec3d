/** renew.c - `parley renew`: a sandbox gets another end. */
#include "clients/cli/each_sandbox.h"

#include "clients/c/remote_sandbox.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <stdio.h>

static const char HELP[] =
    "usage: parley renew [SANDBOX]... [--thread T] --for TIME | --until WHEN\n\n"
    "Sandboxes (names or ids; default: the thread's) end then at the latest, sooner or later than before. One without "
    "an "
    "end\n"
    "(`--lifetime never`) has none that could be moved.\n\n"
    "  --for TIME         from now: seconds, or a number with s, m, h or d: 2h\n"
    "  --until WHEN       such as 2026-11-22T10:00:00Z\n"
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP;

struct renew_options {
    const char *thread;
    int64_t end_ms; /* 0: none was given */
};

static int take_end(struct renew_options *options, int option, const char *text)
{
    static const int64_t LONGEST_S = INT64_C(3153600000); /* 100 years */
    int64_t seconds = 0;
    if (options->end_ms)
        return cli_usage("renew", "give one --for or --until");
    if (option == 'u')
        return clock_parse(text, &options->end_ms) && options->end_ms > 0
                   ? CLI_OK
                   : cli_usage("renew", "--until wants a time such as 2026-11-22T10:00:00Z, not \"%s\"", text);
    if (!cli_parse_seconds(text, &seconds) || seconds == 0 || seconds > LONGEST_S)
        return cli_usage("renew", "--for wants seconds, or a number with s, m, h or d; not \"%s\"", text);
    options->end_ms = clock_wall_ms() + seconds * 1000;
    return CLI_OK;
}

static int read_options(struct renew_options *options, struct cli_common *common, int argc, char *argv[])
{
    static const struct option LONG[] = {{"thread", required_argument, NULL, 't'},
                                         {"for", required_argument, NULL, 'f'},
                                         {"until", required_argument, NULL, 'u'},
                                         CLI_COMMON_OPTIONS};
    int option, status = CLI_OK;
    while (status == CLI_OK && (option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(common, option, HELP))
            continue;
        if (option == 't')
            options->thread = optarg;
        else
            status = take_end(options, option, optarg);
    }
    if (status == CLI_OK && options->end_ms == 0)
        status = cli_usage(argv[0], "give --for TIME or --until WHEN");
    if (status == CLI_OK && optind < argc && options->thread)
        status = cli_usage(argv[0], "give sandboxes or a --thread, not both");
    return status;
}

static bool act(const struct place *place, const char *id, const void *cookie, json_t **sandbox, struct error *err)
{
    const struct renew_options *options = cookie;
    char until[CLOCK_TEXT_BYTES];
    clock_format(until, options->end_ms);
    return remote_sandbox_renew(place, id, until, sandbox, err);
}

static void print(const json_t *sandbox)
{
    AUTO_FREE char *name = cli_member(sandbox, "name"), *until = cli_member(sandbox, "max_expires_at");
    printf("%s until %s\n", name, until);
}

int renew_main(int argc, char *argv[])
{
    struct cli_common common = {0};
    struct renew_options options = {0};
    int status = read_options(&options, &common, argc, argv);
    if (status != CLI_OK)
        return status;
    const struct each_sandbox each = {.thread = options.thread, .act = act, .print = print, .cookie = &options};
    return each_sandbox(&common, argv + optind, &each);
}
