/* port.c - `parley port`: ports of a sandbox at ports of this machine. */
#include "clients/cli/cli.h"

#include "clients/c/tunnels.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley port PORT[:LOCALPORT]... [-q] [--sandbox S] [--thread T]\n\n"
    "Listens at 127.0.0.1 and takes each connection to what listens on PORT of the sandbox, until Ctrl-C. LOCALPORT "
    "is\n"
    "PORT unless given, 0 any free one. Whatever TCP carries goes through. The token is refreshed as long as it "
    "runs.\n\n"
    "  -q, --quiet        tell nothing but failures of its own\n"
    "  --sandbox S        its name or id (default: the thread's)\n"
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP "\nExamples:\n"
    "  parley run --detach -- python3 -m http.server 3000\n"
    "  parley port 3000\n"
    "  parley port 5432:15432 8080:0\n";

struct wish {
    uint16_t remote, local;
};

struct port_options {
    struct cli_common common;
    const char *thread, *sandbox;
    bool quiet;
    struct wish wishes[TUNNELS_PORTS_MAX];
    size_t count;
};

static volatile sig_atomic_t stopped;

static void on_stop(int number)
{
    (void)number;
    stopped = 1;
}

static bool parse_port(const char *text, size_t size, bool may_be_any, uint16_t *port)
{
    uint64_t number = 0;
    if (size == 0 || (text[0] == '0' && size > 1) || !text_parse_u64(text, size, UINT16_MAX, &number) ||
        (number == 0 && !may_be_any))
        return false;
    *port = (uint16_t)number;
    return true;
}

static bool parse_wish(const char *text, struct wish *wish)
{
    const char *colon = strchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : strlen(text);
    if (!parse_port(text, size, false, &wish->remote))
        return false;
    wish->local = wish->remote;
    return !colon || parse_port(colon + 1, strlen(colon + 1), true, &wish->local);
}

static int read_options(struct port_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {{"quiet", no_argument, NULL, 'q'},
                                         {"sandbox", required_argument, NULL, 's'},
                                         {"thread", required_argument, NULL, 't'},
                                         CLI_COMMON_OPTIONS};
    int option;
    while ((option = getopt_long(argc, argv, "q", LONG, NULL)) != -1) {
        if (cli_common(&options->common, option, HELP))
            continue;
        if (option == 'q')
            options->quiet = true;
        else
            *(option == 's' ? &options->sandbox : &options->thread) = optarg;
    }
    if (options->sandbox && options->thread)
        return cli_usage("port", "give a --sandbox or a --thread, not both");
    if (optind == argc)
        return cli_usage("port", "which port?");
    if (argc - optind > TUNNELS_PORTS_MAX)
        return cli_usage("port", "at most %d ports", TUNNELS_PORTS_MAX);
    for (; optind < argc; optind++)
        if (!parse_wish(argv[optind], &options->wishes[options->count++]))
            return cli_usage("port", "\"%s\" is no PORT[:LOCALPORT]: 1 to 65535", argv[optind]);
    return CLI_OK;
}

/* ---- telling ---- */

/* The same again is told once. */
struct teller {
    bool quiet;
    char last[256];
};

static void tell(void *cookie, uint16_t port, const char *sentence)
{
    struct teller *teller = cookie;
    char line[sizeof teller->last];
    (void)snprintf(line, sizeof line, "port %u: %s", port, sentence);
    if (teller->quiet || strcmp(line, teller->last) == 0)
        return;
    memcpy(teller->last, line, sizeof line);
    AUTO_FREE char *safe = cli_safe(line);
    fprintf(stderr, "parley: %s\n", safe);
}

static void warn(void *cookie UNUSED, const char *sentence)
{
    AUTO_FREE char *safe = cli_safe(sentence);
    fprintf(stderr, "parley: %s\n", safe);
}

static bool listen_all(const struct port_options *options, struct tunnels *tunnels, struct error *err)
{
    json_t *list = json_array();
    bool is_done = true;
    for (size_t i = 0; i < options->count && is_done; i++) {
        const struct wish *wish = &options->wishes[i];
        uint16_t bound = 0;
        is_done = tunnels_listen(tunnels, wish->remote, wish->local, &bound, err);
        if (!is_done)
            break;
        if (!options->common.json)
            printf("http://127.0.0.1:%u -> port %u\n", bound, wish->remote);
        json_array_append_new(list, json_pack("{s:i, s:i}", "port", (int)wish->remote, "local_port", (int)bound));
    }
    if (is_done && options->common.json)
        cli_print_json(json_pack("{s:O}", "ports", list));
    json_decref(list);
    return is_done && cli_flush(err);
}

static int forward(const struct port_options *options, const struct place *place, const struct grant_request *request,
                   struct grant *grant)
{
    struct error err = {0};
    struct teller teller = {.quiet = options->quiet};
    const struct grant_keeping keeping = {.grant = grant, .place = place, .request = request, .warn = warn};
    const struct tunnels_wanted wanted = {.keeping = &keeping, .note = tell, .cookie = &teller};
    AUTO(tunnels) *tunnels = tunnels_new(&wanted, &err);
    if (!tunnels || !listen_all(options, tunnels, &err))
        return cli_fail(&err, NULL, CLI_FAILED);
    const struct sigaction stop = {.sa_handler = on_stop, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGHUP, &stop, NULL);
    while (!stopped)
        if (!tunnels_turn(tunnels, &err))
            return cli_fail_usual(&err, CLI_FAILED);
    return CLI_OK;
}

int port_main(int argc, char *argv[])
{
    struct port_options options = {0};
    int wrong = read_options(&options, argc, argv);
    if (wrong)
        return wrong;
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    AUTO_FREE char *thread = cli_thread(options.thread);
    const struct grant_request request = {.thread = thread,
                                          .sandbox = options.sandbox,
                                          .sandbox_required = options.sandbox != NULL,
                                          .mode = "attach_only"};
    AUTO_GRANT grant = {0};
    struct error err = {0};
    if (!grant_get(&grant, &place, &request, &err))
        return cli_fail(&err,
                        err.kind == ERROR_NOT_FOUND ? "this thread has no sandbox yet: `parley run` makes one" : NULL,
                        CLI_FAILED);
    cli_tell_grant(&grant, false);
    return forward(&options, &place, &request, &grant);
}
