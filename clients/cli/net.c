/** net.c - `parley net`: what a sandbox reaches on the network, shown or changed while it runs. */
#include "clients/cli/cli.h"
#include "clients/cli/wish_options.h"

#include "clients/c/remote_sandbox.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley net [--sandbox S] [--thread T]                  show what it reaches\n"
    "       parley net [--sandbox S] [--thread T] none | public    nothing; or TCP 80, 443 and DNS of public "
    "addresses\n"
    "       parley net [--sandbox S] [--thread T] allow WHERE...   only these\n"
    "       ... --deny WHERE                                       but this; repeatable\n\n"
    "Holds at once, also for what is open: connections that are no longer allowed are cut.\n\n"
    "WHERE is one of\n"
    "  pypi.org                  that name's web servers: TCP 80 and 443, the name checked in TLS and HTTP\n"
    "  *.pythonhosted.org        ... of all names below it\n"
    "  github.com:22             another TCP port of that name\n"
    "  203.0.113.0/24            IPv4 addresses, all TCP and UDP ports\n"
    "  203.0.113.7:5432          one port, /udp behind it for UDP alone\n\n"
    "Of what is allowed and what is denied the more specific one decides: *.example.com but not bad.example.com. With "
    "a\n"
    "name denied, web servers are reached by name alone.\n\n"
    "Private and local addresses, the host and other sandboxes are never reached.\n\n"
    "  --deny WHERE       with public or allow: all but this; without a port all of its ports\n"
    "  --sandbox S        its name or id (default: the thread's)\n"
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP "\nExamples:\n"
    "  parley net allow pypi.org files.pythonhosted.org\n"
    "  parley net public --deny '*.example.com' --deny 203.0.113.0/24\n"
    "  parley net none\n";

static void print_network(const json_t *network)
{
    size_t i;
    const json_t *each;
    const char *egress = json_string_value(json_object_get(network, "egress"));
    printf("egress %s\n", egress ? egress : "none");
    json_array_foreach (json_object_get(network, "allow"), i, each)
        printf("  %s\n", json_string_value(each));
    json_array_foreach (json_object_get(network, "deny"), i, each)
        printf("  not %s\n", json_string_value(each));
}

/* `network` NULL: shown only. */
static int show_or_change(const struct cli_common *common, json_t *network, const char *given, const char *thread)
{
    AUTO_PLACE place = {0};
    if (!cli_place(&place, common))
        return CLI_FAILED;
    struct error err = {0};
    json_t *sandbox = NULL, *changes = network ? json_pack("{s:O}", "network", network) : NULL;
    AUTO_FREE char *id = cli_sandbox(&place, given, thread, &err);
    if (id && !network)
        sandbox = remote_sandbox_show(&place, id, &err);
    else if (id && !remote_sandbox_change(&place, id, changes, &sandbox, &err))
        sandbox = NULL;
    json_decref(changes);
    if (!sandbox)
        return cli_fail_usual(&err, CLI_FAILED);
    json_t *now = json_object_get(sandbox, "network");
    if (common->json)
        cli_print_json(now ? json_incref(now) : json_object());
    else
        print_network(now);
    json_decref(sandbox);
    return CLI_OK;
}

/* The words behind the options; *network stays NULL when there are none. */
static int read_words(int count, char *words[], json_t **network)
{
    if (count == 0)
        return CLI_OK;
    bool allows = strcmp(words[0], "allow") == 0;
    if (!allows && strcmp(words[0], "none") != 0 && strcmp(words[0], "public") != 0)
        return cli_usage("net", "what is \"%s\"? none, public, or allow WHERE...", words[0]);
    if (allows == (count == 1))
        return allows ? cli_usage("net", "allow what? names or IPv4 addresses; `parley net none` allows nothing")
                      : cli_usage("net", "%s takes nothing behind it", words[0]);
    json_t *allow = allows ? json_array() : NULL;
    for (int i = 1; i < count; i++) {
        json_t *where = json_string(words[i]);
        json_array_append_new(allow, where ? where : json_null());
    }
    *network = wish_network("net", words[0], allow);
    json_decref(allow);
    return *network ? CLI_OK : CLI_USAGE;
}

/* Of what was given behind --deny; `deny` is taken. */
static int put_deny(json_t *network, json_t *deny)
{
    const char *egress = json_string_value(json_object_get(network, "egress"));
    bool is_given = json_array_size(deny) > 0;
    size_t i;
    const json_t *each;
    json_array_foreach (deny, i, each) {
        if (!json_is_string(each))
            egress = NULL;
    }
    if (is_given)
        json_object_set(network, "deny", deny);
    json_decref(deny);
    if (!is_given || (egress && strcmp(egress, "none") != 0))
        return CLI_OK;
    return cli_usage("net", "--deny WHERE goes with public or allow WHERE..., and WHERE is a name or IPv4 addresses");
}

int net_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"sandbox", required_argument, NULL, 's'},
                                         {"thread", required_argument, NULL, 't'},
                                         {"deny", required_argument, NULL, 'd'},
                                         CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    const char *thread = NULL, *sandbox = NULL;
    json_t *deny = json_array();
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&common, option, HELP))
            continue;
        if (option == 'd') {
            json_t *where = json_string(optarg);
            json_array_append_new(deny, where ? where : json_null());
        } else {
            *(option == 's' ? &sandbox : &thread) = optarg;
        }
    }
    if (sandbox && thread) {
        json_decref(deny);
        return cli_usage("net", "give a --sandbox or a --thread, not both");
    }
    json_t *network = NULL;
    int wrong = read_words(argc - optind, argv + optind, &network);
    if (wrong)
        json_decref(deny);
    else
        wrong = put_deny(network, deny);
    if (!wrong)
        wrong = show_or_change(&common, network, sandbox, thread);
    json_decref(network);
    return wrong;
}
