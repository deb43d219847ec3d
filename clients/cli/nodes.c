/** nodes.c - `parley nodes`: the machines that host sandboxes. */
#include "clients/cli/cli.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley nodes                            list them\n"
    "       parley nodes add NAME [--token-file F]  let a machine join once; prints what to run there\n"
    "       parley nodes drain NAME                 place no new sandboxes there; those it has live on\n"
    "       parley nodes undrain NAME               place there again\n"
    "       parley nodes rekey NAME                 give it a new key; the tokens of its sandboxes end,\n"
    "                                               clients negotiate anew\n"
    "       parley nodes lost NAME                  give one up that is not heard any more: its sandboxes\n"
    "                                               end as node_lost\n\n"
    "  --token-file F     put the join token into F (0600) instead of showing it\n" CLI_COMMON_HELP;

static void print_row(const json_t *node)
{
    char seen[24];
    AUTO_FREE char *name = cli_member(node, "name");
    AUTO_FREE char *state = cli_member(node, "state");
    AUTO_FREE char *used = cli_member(node, "used");
    AUTO_FREE char *slots = cli_member(node, "slots");
    AUTO_FREE char *epoch = cli_member(node, "epoch");
    AUTO_FREE char *url = cli_member(node, "url");
    AUTO_FREE char *places = memory_printf("%s/%s", used, slots);
    json_int_t off_ms = json_integer_value(json_object_get(node, "clock_off_ms"));
    json_int_t behind = json_integer_value(json_object_get(node, "marks_behind"));
    cli_print_when(seen, json_string_value(json_object_get(node, "seen_at")));
    printf("%-16s %-8s %-9s %-5s %-9s %-28s", name, state, places, epoch, seen, url);
    if (json_is_true(json_object_get(node, "draining")))
        printf(" draining");
    if (json_is_true(json_object_get(node, "rekeying")))
        printf(" rekeying");
    if (off_ms > 2000 || off_ms < -2000)
        printf(" clock off by %lld ms", (long long)off_ms);
    if (behind > 0)
        printf(" %lld revocations behind", (long long)behind);
    putchar('\n');
}

static int list(const struct cli_common *common, const struct place *place)
{
    struct error err = {0};
    json_t *reply = NULL;
    if (!negotiator_call(place, "GET", "/nodes", NULL, &reply, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    if (common->json) {
        cli_print_json(json_incref(json_object_get(reply, "nodes")));
        json_decref(reply);
        return CLI_OK;
    }
    printf("%-16s %-8s %-9s %-5s %-9s %-28s\n", "NAME", "STATE", "USED", "EPOCH", "SEEN", "URL");
    size_t index;
    json_t *node;
    json_array_foreach (json_object_get(reply, "nodes"), index, node) {
        print_row(node);
    }
    json_decref(reply);
    return CLI_OK;
}

/* The secret must stand in no argument list: it goes by a file or by the environment of a shell. */
static void tell_enrolment(const char *name, const char *url, const char *expires, const char *secret, const char *file)
{
    char when[24];
    cli_print_when(when, expires);
    printf("%s may join once, %s. On that machine, as root:\n\n", name, when);
    if (file)
        printf("  parley-sandboxd enrol --node %s --negotiator-url %s --join-token-file %s\n", name, url, file);
    else
        printf("  export PARLEY_JOIN_TOKEN=%s\n"
               "  parley-sandboxd enrol --node %s --negotiator-url %s\n",
               secret, name, url);
    printf("  parley-sandboxd\n\n"
           "It listens on loopback unless told --listen-host ADDRESS --advertise-url URL --insecure-http.\n");
    if (file)
        printf("The join token is in %s here: carry it there where nobody else can read it.\n", file);
    if (strstr(url, "://127.") || strstr(url, "://localhost") || strstr(url, "://[::1]"))
        printf("%s is this machine's own address: another machine needs one that it can reach.\n", url);
}

static bool keep_secret(const char *file, const char *secret, struct error *err)
{
    return !file || fd_write_file(file, 0600, secret, strlen(secret), err);
}

static int add(const struct cli_common *common, const struct place *place, const char *name, const char *file)
{
    struct error err = {0};
    json_t *body = json_pack("{s:s}", "name", name);
    json_t *reply = NULL;
    bool made = body && negotiator_call(place, "POST", "/nodes", body, &reply, &err);
    json_decref(body);
    if (!made)
        return cli_fail_usual(&err, CLI_FAILED);
    const char *secret = json_string_value(json_object_get(reply, "join_token"));
    int status = CLI_OK;
    if (!secret || !keep_secret(file, secret, &err)) {
        if (!secret)
            error_set(&err, ERROR_INTERNAL, "the negotiator's answer holds no join token");
        status = cli_fail(&err, NULL, CLI_FAILED);
    } else if (common->json) {
        if (file)
            json_object_del(reply, "join_token");
        cli_print_json(json_incref(reply));
    } else {
        AUTO_FREE char *safe = cli_safe(secret);
        tell_enrolment(name, place->url, json_string_value(json_object_get(reply, "expires_at")), safe, file);
        sodium_memzero(safe, strlen(safe));
    }
    json_decref(reply);
    return status;
}

/* What may be done to one node, and what to say then. */
static const struct node_verb {
    const char *name, *path;
    const char *said;
    bool drain, is_drain;
} VERBS[] = {
    {"drain", "drain", "gets no new sandboxes; those it has live on", true, true},
    {"undrain", "drain", "gets new sandboxes again", false, true},
    {"rekey", "rekey", "is given a new key; `parley nodes` tells when it has it", false, false},
    {"lost", "lost", "is given up; its sandboxes end as node_lost", false, false},
};

static int act(const struct cli_common *common, const struct place *place, const struct node_verb *verb,
               const char *name)
{
    struct error err = {0};
    AUTO_FREE char *path = negotiator_path("/nodes", name, verb->path);
    json_t *body = verb->is_drain ? json_pack("{s:b}", "drain", verb->drain) : json_object();
    json_t *reply = NULL;
    bool done = negotiator_call(place, "POST", path, body, &reply, &err);
    json_decref(body);
    if (!done)
        return cli_fail_usual(&err, CLI_FAILED);
    if (common->json)
        cli_print_json(reply ? json_incref(reply) : json_pack("{s:s}", "node", name));
    else
        printf("%s %s\n", name, verb->said);
    json_decref(reply);
    return CLI_OK;
}

static const struct node_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < sizeof VERBS / sizeof *VERBS; i++) {
        if (strcmp(name, VERBS[i].name) == 0)
            return &VERBS[i];
    }
    return NULL;
}

int nodes_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"token-file", required_argument, NULL, 'f'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    const char *file = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&common, option, HELP) && option == 'f')
            file = optarg;
    }
    int words = argc - optind;
    const char *verb = words > 0 ? argv[optind] : NULL;
    bool is_add = verb && strcmp(verb, "add") == 0;
    const struct node_verb *known = verb ? find_verb(verb) : NULL;
    if (verb && !is_add && !known)
        return cli_usage("nodes", "what is \"%s\"? Allowed: add, drain, undrain, rekey, lost", verb);
    if (words > 2 || words == 1)
        return cli_usage("nodes", words == 1 ? "%s which node? Give its NAME" : "%s takes one NAME", verb);
    if (file && !is_add)
        return cli_usage("nodes", "--token-file goes with add");
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &common))
        return CLI_FAILED;
    if (!verb)
        return list(&common, &place);
    const char *name = argv[optind + 1];
    return is_add ? add(&common, &place, name, file) : act(&common, &place, known, name);
}
