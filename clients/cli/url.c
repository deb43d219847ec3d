/** url.c - `parley url`: a link by which a browser opens a port of a sandbox. */
#include "clients/cli/cli.h"

#include "clients/c/remote_preview.h"
#include "clients/c/remote_sandbox.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

enum { TTL_DEFAULT_S = 900, TTL_MAX_S = 86400 };

static const char HELP[] =
    "usage: parley url PORT [--ttl S] [--sandbox S] [--thread T]\n\n"
    "Prints a link that opens what listens on PORT of the sandbox, in a browser. It holds a token that is made here\n"
    "from yours and good for that port alone. The browser keeps it as a cookie that the page cannot read; whoever\n"
    "has the link can open it until it ends, or until your token is revoked.\n\n"
    "  --ttl S            seconds it holds, 1 to 86400 (default 900), but never longer than your token\n"
    "  --sandbox S        its name or id (default: the thread's)\n"
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP "\nExamples:\n"
    "  parley run --detach -- python3 -m http.server 3000\n"
    "  parley url 3000\n";

struct url_options {
    struct cli_common common;
    const char *thread, *sandbox;
    uint16_t port;
    unsigned ttl_s;
};

static bool parse_number(const char *text, uint64_t max, uint64_t *value)
{
    return text_parse_u64(text, strlen(text), max, value) && *value > 0;
}

static int read_options(struct url_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {{"ttl", required_argument, NULL, 'l'},
                                         {"sandbox", required_argument, NULL, 's'},
                                         {"thread", required_argument, NULL, 't'},
                                         CLI_COMMON_OPTIONS};
    uint64_t number = 0;
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&options->common, option, HELP))
            continue;
        if (option == 'l' && !parse_number(optarg, TTL_MAX_S, &number))
            return cli_usage("url", "--ttl %s: seconds, 1 to %d", optarg, TTL_MAX_S);
        if (option == 'l')
            options->ttl_s = (unsigned)number;
        else
            *(option == 's' ? &options->sandbox : &options->thread) = optarg;
    }
    if (options->sandbox && options->thread)
        return cli_usage("url", "give a --sandbox or a --thread, not both");
    if (optind + 1 != argc)
        return cli_usage("url", optind == argc ? "which port?" : "one port, please");
    if (!parse_number(argv[optind], 65535, &number))
        return cli_usage("url", "\"%s\" is no port: 1 to 65535", argv[optind]);
    options->port = (uint16_t)number;
    return CLI_OK;
}

/* Of a kept token there may be little left: less than half of what the link shall have. */
static bool get_long_grant(struct grant *grant, const struct place *place, const struct grant_request *request,
                           unsigned ttl_s, struct error *err)
{
    if (!grant_get(grant, place, request, err))
        return false;
    bool is_short = grant->from_cache && grant->expires_ms < clock_wall_ms() + (int64_t)ttl_s * 500;
    return !is_short || grant_refresh(grant, place, request, err) || grant_replace(grant, place, request, err);
}

static int print_link(const struct url_options *options, const char *url, int64_t expires_s)
{
    long long left_s = (long long)(expires_s - clock_wall_ms() / 1000);
    if (options->common.json) {
        cli_print_json(
            json_pack("{s:s, s:i, s:I}", "url", url, "port", options->port, "expires_in", (json_int_t)left_s));
        return CLI_OK;
    }
    puts(url);
    struct error err = {0};
    if (!cli_flush(&err))
        return cli_fail(&err, NULL, CLI_FAILED);
    fprintf(stderr, "good for %lld min %lld s; whoever has it can open port %u\n", left_s / 60, left_s % 60,
            options->port);
    return CLI_OK;
}

int url_main(int argc, char *argv[])
{
    struct url_options options = {.ttl_s = TTL_DEFAULT_S};
    int wrong = read_options(&options, argc, argv);
    if (wrong)
        return wrong;
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    AUTO_FREE char *thread = cli_thread(options.thread);
    struct grant_request request = {.thread = thread,
                                    .sandbox = options.sandbox,
                                    .sandbox_required = options.sandbox != NULL,
                                    .mode = "attach_only"};
    AUTO_GRANT grant = {0};
    AUTO_FREE char *url = NULL;
    struct error err = {0};
    int64_t expires_s = 0;
    if (!get_long_grant(&grant, &place, &request, options.ttl_s, &err))
        return cli_fail(&err,
                        err.kind == ERROR_NOT_FOUND ? "this thread has no sandbox yet: `parley run` makes one" : NULL,
                        CLI_FAILED);
    bool negotiated = false, done;
    do {
        cli_tell_grant(&grant, false);
        done = remote_preview_link(&grant, options.port, options.ttl_s, &url, &expires_s, &err);
    } while (!done && cli_renew_spent(&grant, &place, &request, &negotiated, &err));
    return done ? print_link(&options, url, expires_s) : cli_fail_usual(&err, CLI_FAILED);
}
