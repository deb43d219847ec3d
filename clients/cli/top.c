/** top.c - `parley top`: what sandboxes use: all of them by the negotiator's word, one by its node's, as it changes. */
#include "clients/cli/cli.h"
#include "clients/cli/top_live.h"
#include "clients/cli/usage_view.h"

#include "clients/c/remote_metrics.h"
#include "clients/c/remote_sandbox.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley top [SANDBOX] [--thread T] [--sort KEY] [--interval S] [-1]\n\n"
    "What sandboxes use, anew every 2 seconds on a terminal until q or Ctrl-C; once into a pipe "
    "or with --json. All of yours\n"
    "(an admin's: everybody's, and the nodes), as their nodes told last, with their leases and "
    "the time left; the keys\n"
    "c, m, d, p, l and n sort them. SANDBOX (a name or id) or --thread: that one alone, from its "
    "node itself. Looking wakes\n"
    "no paused one.\n\n"
    "  --interval S       1 to 30 seconds (default 2)\n"
    "  --sort KEY         name, cpu, memory, disk, pids or left (default: as they are listed)\n"
    "  -1, --once         once\n"
    "  --thread T         the conversation's sandbox\n" CLI_COMMON_HELP;

static const size_t MOST = 10000;

struct top_options {
    struct cli_common common;
    const char *sandbox, *thread;
    uint64_t interval_s;
    enum top_order order;
    bool once;
};

static void clear_screen(void)
{
    fputs("\033[H\033[J", stdout);
}

static void wait_interval(const struct top_options *options)
{
    fflush(stdout);
    nanosleep(&(struct timespec){.tv_sec = (time_t)options->interval_s}, NULL);
}

/* ---- all ---- */

static int show_list(const struct place *place, enum top_order order)
{
    const struct negotiator_list wanted = {
        .path = "/sandboxes", .member = "sandboxes", .next = "next_cursor", .most = MOST};
    struct error err = {0};
    json_t *sandboxes = negotiator_list(place, &wanted, &err);
    if (!sandboxes)
        return cli_fail_usual(&err, CLI_FAILED);
    top_sort(sandboxes, NULL, order);
    cli_print_json(sandboxes);
    return CLI_OK;
}

static int show_all(const struct top_options *options, const struct place *place)
{
    struct error err = {0};
    json_t *seen = NULL;
    if (options->common.json)
        return show_list(place, options->order);
    if (!options->once)
        return top_live(place, options->order, (unsigned)options->interval_s);
    bool shown = top_page(place, options->order, 0, &seen, &err);
    json_decref(seen);
    return shown ? CLI_OK : cli_fail_usual(&err, CLI_FAILED);
}

/* ---- one ---- */

struct watching {
    const struct grant *grant;
    json_t *before; /* the metrics seen last; owned */
};

static bool draw(void *cookie, const json_t *metrics)
{
    struct watching *watching = cookie;
    clear_screen();
    usage_view_one(watching->grant->sandbox_name, metrics, watching->before);
    json_decref(watching->before);
    watching->before = json_deep_copy(metrics);
    return fflush(stdout) == 0;
}

static bool show_once(const struct top_options *options, const struct grant *grant, struct error *err)
{
    json_t *metrics = NULL;
    if (!remote_metrics_get(grant, &metrics, err))
        return false;
    if (options->common.json) {
        cli_print_json(metrics ? metrics : json_object());
        return true;
    }
    usage_view_one(grant->sandbox_name, metrics, NULL);
    json_decref(metrics);
    return true;
}

/* Until Ctrl-C: a stream ends with its token, and is taken up with the next one. *is_over: what was seen has ended. */
static bool show_on(const struct top_options *options, struct grant *grant, const struct place *place,
                    const struct grant_request *request, bool *is_over, struct error *err)
{
    struct watching watching = {.grant = grant};
    bool going = true;
    while (going) {
        size_t seen = 0;
        going = remote_metrics_watch(grant, (unsigned)options->interval_s, draw, &watching, &seen, err);
        *is_over = !going && watching.before && err->kind == ERROR_GONE;
        if (!*is_over && (going || seen > 0)) {
            *err = (struct error){0};
            wait_interval(options);
            grant_done(grant);
            going = grant_get(grant, place, request, err);
        }
    }
    json_decref(watching.before);
    return false;
}

static int show_one(const struct top_options *options, const struct place *place)
{
    struct error err = {0};
    AUTO_FREE char *thread = cli_sandbox_thread(place, options->sandbox, options->thread, &err);
    const struct grant_request request = {.thread = thread, .mode = "attach_only"};
    AUTO_GRANT grant = {0};
    if (!thread || !grant_get(&grant, place, &request, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    bool negotiated = false, is_over = false, done;
    do {
        cli_tell_grant(&grant, false);
        done = options->once ? show_once(options, &grant, &err)
                             : show_on(options, &grant, place, &request, &is_over, &err);
    } while (!done && !is_over && cli_renew_spent(&grant, place, &request, &negotiated, &err));
    return done ? CLI_OK : cli_fail_usual(&err, CLI_FAILED);
}

int top_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"thread", required_argument, NULL, 't'},
                                         {"interval", required_argument, NULL, 'i'},
                                         {"sort", required_argument, NULL, 'o'},
                                         {"once", no_argument, NULL, '1'},
                                         CLI_COMMON_OPTIONS};
    struct top_options options = {.interval_s = 2};
    int option;
    while ((option = getopt_long(argc, argv, "1", LONG, NULL)) != -1) {
        if (cli_common(&options.common, option, HELP))
            continue;
        if (option == 't')
            options.thread = optarg;
        else if (option == '1')
            options.once = true;
        else if (option == 'o' && top_order_parse(optarg, &options.order))
            continue;
        else if (option == 'o')
            return cli_usage("top", "--sort wants name, cpu, memory, disk, pids or left, not \"%s\"", optarg);
        else if (!text_parse_u64(optarg, strlen(optarg), 30, &options.interval_s) || options.interval_s == 0)
            return cli_usage("top", "--interval wants 1 to 30 seconds, not \"%s\"", optarg);
    }
    if (optind + 1 < argc)
        return cli_usage("top", "unexpected word \"%s\": one sandbox or all", argv[optind + 1]);
    options.sandbox = argv[optind];
    if (options.sandbox && options.thread)
        return cli_usage("top", "give a sandbox or a --thread, not both");
    options.once = options.once || options.common.json || !isatty(STDOUT_FILENO);
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    return options.sandbox || options.thread ? show_one(&options, &place) : show_all(&options, &place);
}
