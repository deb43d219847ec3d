/** token.c - `parley token`: shows a capability, or narrows one without asking anybody. */
#include "clients/cli/cli.h"

#include "clients/c/attenuate.h"
#include "clients/c/grant.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley token [--thread T]                 show the claims of this thread's capability\n"
    "       parley token --raw                        print the token itself (a secret!)\n"
    "       parley token --refresh                    renew it now, then show it\n"
    "       parley token --ttl S                      one that lives S seconds, 60 to 3600\n"
    "       parley token decode TOKEN|-               show the claims of any token, unverified\n"
    "       parley token --attenuate SCOPES [--token TOKEN|-] [--expires-in S] [--note TEXT]\n\n"
    "  --thread T         the conversation (default: the current folder's own)\n"
    "  --attenuate SCOPES narrow to these scopes, offline, e.g. 'fs:ro' or 'process'; '=' keeps them\n"
    "  --token TOKEN      narrow this one instead of the thread's; - reads it from stdin\n"
    "  --expires-in S     and let it end within S seconds\n"
    "  --note TEXT        the holder's word for the audit, <= 64 of A-Za-z0-9 ._:/-\n" CLI_COMMON_HELP;

struct token_options {
    struct cli_common common;
    const char *thread, *attenuate, *token, *note;
    uint64_t expires_in_s;
    unsigned ttl_s;
    bool raw, refresh;
};

static int read_options(struct token_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {{"thread", required_argument, NULL, 't'},
                                         {"attenuate", required_argument, NULL, 'a'},
                                         {"token", required_argument, NULL, 'k'},
                                         {"expires-in", required_argument, NULL, 'e'},
                                         {"note", required_argument, NULL, 'n'},
                                         {"raw", no_argument, NULL, 'r'},
                                         {"refresh", no_argument, NULL, 'R'},
                                         {"ttl", required_argument, NULL, 'L'},
                                         CLI_COMMON_OPTIONS};
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&options->common, option, HELP))
            continue;
        if (option == 't')
            options->thread = optarg;
        else if (option == 'a')
            options->attenuate = optarg;
        else if (option == 'k')
            options->token = optarg;
        else if (option == 'n')
            options->note = optarg;
        else if (option == 'r')
            options->raw = true;
        else if (option == 'R')
            options->refresh = true;
        else if (option == 'L') {
            if (cli_ttl("token", optarg, &options->ttl_s))
                return CLI_USAGE;
        } else if (!text_parse_u64(optarg, strlen(optarg), 86400, &options->expires_in_s) || options->expires_in_s == 0)
            return cli_usage("token", "--expires-in wants 1 to 86400 seconds, not \"%s\"", optarg);
    }
    if (!options->attenuate && (options->expires_in_s || options->note))
        return cli_usage("token", "--expires-in and --note go with --attenuate ('=' keeps the scopes)");
    if (options->token && (options->refresh || options->ttl_s))
        return cli_usage("token", "--refresh and --ttl are about the thread's own token, not a given one");
    return 0;
}

static json_t *describe(const struct capability_claims *claims)
{
    char scope[SCOPE_TEXT_BYTES], issued[CLOCK_TEXT_BYTES], expires[CLOCK_TEXT_BYTES];
    scope_format(&claims->scopes, scope);
    clock_format(issued, claims->issued_at * 1000);
    clock_format(expires, claims->expires_at * 1000);
    json_t *shown =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i}", "iss", claims->issuer, "aud",
                  claims->sandbox_id, "sub", claims->principal, "jti", claims->jti, "fam", claims->family, "thread_id",
                  claims->thread_id, "lease", claims->lease, "act", claims->actor, "scope", scope, "iat", issued, "exp",
                  expires, "epoch", (int)claims->epoch);
    json_t *links = json_array();
    for (size_t i = 0; i < claims->link_count; i++)
        json_array_append_new(links, json_string(claims->link_ids[i]));
    if (claims->link_count > 0)
        json_object_set(shown, "links", links);
    json_decref(links);
    if (claims->note[0])
        json_object_set_new(shown, "note", json_string(claims->note));
    json_object_set_new(shown, "expired", json_boolean(claims->expires_at * 1000 < clock_wall_ms()));
    return shown;
}

static int show(const char *token)
{
    struct error err = {0};
    struct capability_claims claims;
    if (!capability_decode(&claims, token, strlen(token), &err))
        return cli_fail(&err, NULL, CLI_FAILED);
    cli_print_json(describe(&claims));
    return CLI_OK;
}

static int print_token(const struct token_options *options, const char *token)
{
    if (options->common.json)
        cli_print_json(json_pack("{s:s}", "token", token));
    else
        puts(token);
    return CLI_OK;
}

static int narrow(const struct token_options *options, const char *token)
{
    struct error err = {0};
    struct attenuation wanted = {.note = options->note};
    if (strcmp(options->attenuate, "=") != 0)
        wanted.scopes = options->attenuate;
    if (options->expires_in_s)
        wanted.expires_at_s = clock_wall_ms() / 1000 + (int64_t)options->expires_in_s;
    AUTO_FREE char *narrowed = attenuate(token, &wanted, &err);
    if (!narrowed)
        return cli_fail(&err, "a link may only narrow what the token allows", CLI_FAILED);
    return print_token(options, narrowed);
}

static int use_token(const struct token_options *options, const char *token)
{
    if (options->attenuate)
        return narrow(options, token);
    return options->raw ? print_token(options, token) : show(token);
}

/* One that was negotiated a moment ago, or refused for good, needs no refresh on top. */
static bool get_grant(struct grant *grant, const struct token_options *options, const struct place *place,
                      const struct grant_request *request, struct error *err)
{
    if (!grant_get(grant, place, request, err))
        return false;
    if (!options->refresh || !grant->from_cache || grant_refresh(grant, place, request, err))
        return true;
    bool reused = err->kind == ERROR_TOKEN_REUSED;
    if (!reused && !cli_is_spent(err))
        return false;
    if (err->kind == ERROR_NODE_UNREACHABLE || !grant_replace(grant, place, request, err))
        return false;
    if (reused)
        grant->warning = memory_string(grant_reused_sentence);
    return true;
}

int token_main(int argc, char *argv[])
{
    struct token_options options = {0};
    int wrong = read_options(&options, argc, argv);
    if (wrong)
        return wrong;
    bool decode = optind < argc && strcmp(argv[optind], "decode") == 0;
    if (decode && optind + 2 == argc) {
        AUTO_FREE char *token = cli_token_text(argv[optind + 1]);
        return show(token);
    }
    if (optind < argc)
        return cli_usage("token", decode ? "decode wants one TOKEN" : "unexpected word \"%s\"", argv[optind]);
    if (options.token) {
        AUTO_FREE char *token = cli_token_text(options.token);
        return use_token(&options, token);
    }
    AUTO_PLACE place = {0};
    AUTO_GRANT grant = {0};
    struct error err = {0};
    AUTO_FREE char *thread = cli_thread(options.thread);
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    struct grant_request request = {.thread = thread, .ttl_s = options.ttl_s};
    if (!get_grant(&grant, &options, &place, &request, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    cli_tell_grant(&grant, false);
    return use_token(&options, grant.token);
}
