/** revoke.c - `parley revoke`: takes tokens out of force before they end. */
#include "clients/cli/cli.h"
#include "clients/cli/revocation_view.h"

#include "clients/c/call.h"
#include "clients/c/remote_sandbox.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/capability/capability.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley revoke SELECTOR --reason TEXT [--before TIME]\n\n"
    "Refuses every token that the selector matches, and cuts what runs over it; the commands themselves live on.\n"
    "Tokens issued later are not barred: who holds an API key negotiates anew.\n\n"
    "One selector:\n"
    "  --jti ID           one token, and what was narrowed from it\n"
    "  --token TOKEN|-    the token itself (- reads it from stdin): its last link, or all of it. Needs no API key:\n"
    "                     who finds a token may end it\n"
    "  --link ID          one narrowed token (lnk_...) and what is below it\n"
    "  --family ID        a token and all its refreshed successors (fam)\n"
    "  --lease ID         a lease's tokens\n"
    "  --sandbox NAME|ID  a sandbox's tokens; its key changes\n"
    "  --thread T         a thread's tokens (admin: --owner P says whose)\n"
    "  --principal P      a principal's tokens\n"
    "  --scope ATOM       tokens that hold this scope, e.g. process\n"
    "  --all              every token (admin), else all of yours\n\n"
    "  --reason TEXT      kept with it and in the audit, 1 to 255 bytes\n"
    "  --before TIME      only those issued until then (2026-11-22T10:00:00Z; default now); for sandbox, thread,\n"
    "                     principal, scope and all\n"
    "  --owner P          only tokens of principal P (admin); with thread, jti, link, family, scope and "
    "all\n" CLI_COMMON_HELP
    "\nExit status: 0 in force on every node, 3 durable but pending on some (`parley revocations ID` follows),\n"
    "1 not done, 2 wrong use.\n";

struct revoke_options {
    struct cli_common common;
    const char *selector, *value; /* value NULL: all */
    const char *reason, *before, *owner;
};

static const struct option LONG[] = {
    {"jti", required_argument, NULL, 's'},    {"token", required_argument, NULL, 's'},
    {"link", required_argument, NULL, 's'},   {"family", required_argument, NULL, 's'},
    {"lease", required_argument, NULL, 's'},  {"sandbox", required_argument, NULL, 's'},
    {"thread", required_argument, NULL, 's'}, {"principal", required_argument, NULL, 's'},
    {"scope", required_argument, NULL, 's'},  {"all", no_argument, NULL, 's'},
    {"reason", required_argument, NULL, 'r'}, {"before", required_argument, NULL, 'b'},
    {"owner", required_argument, NULL, 'o'},  CLI_COMMON_OPTIONS};

static int check(const struct revoke_options *options)
{
    int64_t before_ms;
    if (!options->selector)
        return cli_usage("revoke", "what? Give a selector: --jti, --token, --sandbox, --thread ...");
    if (!options->reason || !options->reason[0])
        return cli_usage("revoke", "--reason TEXT is needed");
    if (text_utf8_prefix(options->reason, strlen(options->reason)) != strlen(options->reason))
        return cli_usage("revoke", "--reason wants UTF-8");
    if (options->before && !clock_parse(options->before, &before_ms))
        return cli_usage("revoke", "--before wants a time like 2026-11-22T10:00:00Z, not \"%s\"", options->before);
    return 0;
}

static int read_options(struct revoke_options *options, int argc, char *argv[])
{
    int option, index = 0;
    while ((option = getopt_long(argc, argv, "", LONG, &index)) != -1) {
        if (cli_common(&options->common, option, HELP))
            continue;
        if (option == 'r')
            options->reason = optarg;
        else if (option == 'b')
            options->before = optarg;
        else if (option == 'o')
            options->owner = optarg;
        else if (options->selector)
            return cli_usage("revoke", "one selector, not both --%s and --%s", options->selector, LONG[index].name);
        else
            options->selector = LONG[index].name, options->value = optarg;
    }
    return optind < argc ? cli_usage("revoke", "unexpected word \"%s\"", argv[optind]) : check(options);
}

/* What goes into the body: names become ids, - what is on stdin. The caller frees; NULL with err. */
static char *selector_value(const struct revoke_options *options, const struct place *place, struct error *err)
{
    if (strcmp(options->selector, "sandbox") == 0)
        return remote_sandbox_find(place, options->value, err);
    if (strcmp(options->selector, "token") == 0)
        return cli_token_text(options->value);
    return memory_string(options->value ? options->value : "");
}

static bool post(const struct revoke_options *options, const struct place *place, const char *value, json_t **reply,
                 struct error *err)
{
    json_t *body = json_pack("{s:s}", "reason", options->reason);
    json_object_set_new(body, options->selector, options->value ? json_string(value) : json_true());
    if (options->before)
        json_object_set_new(body, "before", json_string(options->before));
    AUTO_TEXT path = {0};
    text_append_string(&path, "/revocations");
    negotiator_query(&path, "principal", options->owner);
    bool made = negotiator_call(place, "POST", path.data, body, reply, err);
    json_decref(body);
    return made;
}

static bool make(const struct revoke_options *options, const struct place *place, json_t **reply, struct error *err)
{
    AUTO_FREE char *value = selector_value(options, place, err);
    if (!value)
        return false;
    bool made = post(options, place, value, reply, err);
    /* A holder's key may be dead by now; the token alone is enough. */
    if (!made && err->kind == ERROR_UNAUTHENTICATED && place->api_key && strcmp(options->selector, "token") == 0) {
        const struct place keyless = {.url = place->url};
        made = post(options, &keyless, value, reply, err);
    }
    if (made && strcmp(options->selector, "sandbox") == 0)
        grant_forget_sandbox(value);
    return made;
}

int revoke_main(int argc, char *argv[])
{
    struct revoke_options options = {0};
    int wrong = read_options(&options, argc, argv);
    if (wrong)
        return wrong;
    AUTO_PLACE place = {0};
    struct error err = {0};
    bool by_holder = strcmp(options.selector, "token") == 0;
    if (by_holder ? !place_load_keyless(&place, options.common.url, &err) : !cli_place(&place, &options.common))
        return by_holder ? cli_fail(&err, NULL, CLI_FAILED) : CLI_FAILED;
    json_t *reply = NULL;
    if (!make(&options, &place, &reply, &err)) /* a holder may have no key at all: no hint about that one then */
        return by_holder ? cli_fail(&err, NULL, CLI_FAILED) : cli_fail_usual(&err, CLI_FAILED);
    return revocation_show(reply, options.common.json);
}
