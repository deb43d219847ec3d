/** tls.c - `parley tls`: certificates of this deployment's own, for who has none from elsewhere. */
#include "clients/cli/authority.h"
#include "clients/cli/cli.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley tls init [--host NAME,IP,...] [--days N] [--state DIR]\n"
    "       parley tls renew [--host NAME,IP,...] [--days N]\n"
    "       parley tls issue --host NAME,IP,... DIR [--days N]\n"
    "       parley tls show\n\n"
    "init makes a certificate authority in STATE/tls and a certificate for this machine's two programs, and\n"
    "prints the authority's SHA-256. With it (PARLEY_TLS_FINGERPRINT, tls_fingerprint in config.json, "
    "--tls-fingerprint\n"
    "with every command) the CLI trusts them from anywhere, and nobody else; PARLEY_CA_FILE, ca_file, --ca-file name "
    "a\n"
    "PEM file instead, of whichever authority. Both programs take STATE/tls/server.pem and server.key when they "
    "start,\n"
    "a renewed pair at once. To listen beyond loopback: docs/guide.md, TLS.\n"
    "issue makes server.pem and server.key for another machine, in DIR, with ca.pem beside it: to be STATE/tls there.\n"
    "STATE/tls/ca.key can vouch for anybody: who has it, is trusted by all who trust this authority.\n\n"
    "  --host             names and addresses that clients use (default localhost, 127.0.0.1, ::1 and the host's "
    "name;\n"
    "                     for previews also *.PREVIEW_DOMAIN); renew: those of before\n"
    "  --days N           1..3650, of the server's certificate (default 365; init's authority: ten "
    "times)\n" CLI_COMMON_HELP;

struct tls_options {
    struct cli_common common;
    const char *hosts;
    unsigned days;
};

static int read_options(struct tls_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {
        {"host", required_argument, NULL, 'h'}, {"days", required_argument, NULL, 'd'}, CLI_COMMON_OPTIONS};
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        uint64_t days;
        if (cli_common(&options->common, option, HELP))
            continue;
        if (option == 'h')
            options->hosts = optarg;
        else if (text_parse_u64(optarg, strlen(optarg), 3650, &days) && days > 0)
            options->days = (unsigned)days;
        else
            return cli_usage("tls", "--days wants 1 to 3650, not \"%s\"", optarg);
    }
    return 0;
}

static char *default_hosts(void)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    bool is_own = text_is_made_of(name, 253, "-.") && strcmp(name, "localhost") != 0;
    return memory_printf("localhost,127.0.0.1,::1%s%s", is_own ? "," : "", is_own ? name : "");
}

static int print_views(const char *folder, const struct tls_options *options, bool tells_how)
{
    AUTO_FREE char *authority_file = memory_printf("%s/ca.pem", folder);
    AUTO_FREE char *server_file = memory_printf("%s/server.pem", folder);
    AUTO_FREE char *hosts_file = memory_printf("%s/hosts", folder);
    AUTO_FREE char *hosts = fd_read_file(hosts_file, 16384, NULL, NULL);
    struct authority_view authority = {0}, server = {0};
    struct error err = {0};
    if (!authority_view(&authority, authority_file, &err) || !authority_view(&server, server_file, &err))
        return cli_fail(&err, "`parley tls init` makes them", CLI_FAILED);
    AUTO_FREE char *shown = cli_safe(hosts);
    if (options->common.json) {
        cli_print_json(json_pack("{s:s, s:{s:s, s:s, s:b}, s:{s:s, s:s, s:b, s:s}}", "folder", folder, "authority",
                                 "sha256", authority.fingerprint, "ends", authority.ends, "over", authority.is_over,
                                 "server", "sha256", server.fingerprint, "ends", server.ends, "over", server.is_over,
                                 "hosts", shown));
        return CLI_OK;
    }
    printf("authority sha256 %s, until %s%s\n", authority.fingerprint, authority.ends,
           authority.is_over ? ": over" : "");
    printf("server    sha256 %s, until %s%s\nhosts     %s\n", server.fingerprint, server.ends,
           server.is_over ? ": over" : "", shown);
    if (tells_how)
        printf("Start both programs anew; clients elsewhere: export PARLEY_TLS_FINGERPRINT=%s\n",
               authority.fingerprint);
    return CLI_OK;
}

static int make(const char *folder, const struct tls_options *options)
{
    struct error err = {0};
    AUTO_FREE char *usual = options->hosts ? NULL : default_hosts();
    const char *hosts = options->hosts ? options->hosts : usual;
    if (!authority_make(folder, options->days * 10, &err))
        return cli_fail(&err, err.kind == ERROR_CONFLICT ? "`parley tls renew` makes a new server certificate" : NULL,
                        CLI_FAILED);
    if (authority_issue(folder, folder, hosts, options->days, &err))
        return print_views(folder, options, true);
    AUTO_FREE char *key = memory_printf("%s/ca.key", folder);
    AUTO_FREE char *file = memory_printf("%s/ca.pem", folder);
    unlink(key); /* of no use by itself; another try begins anew */
    unlink(file);
    return cli_fail(&err, NULL, err.kind == ERROR_INVALID ? CLI_USAGE : CLI_FAILED);
}

static int renew(const char *folder, const struct tls_options *options)
{
    struct error err = {0};
    AUTO_FREE char *note = memory_printf("%s/hosts", folder);
    AUTO_FREE char *before = options->hosts ? NULL : fd_read_file(note, 16384, NULL, &err);
    const char *hosts = options->hosts ? options->hosts : before;
    if (hosts == NULL || !authority_issue(folder, folder, hosts, options->days, &err))
        return cli_fail(&err, NULL, err.kind == ERROR_INVALID ? CLI_USAGE : CLI_FAILED);
    return print_views(folder, options, false);
}

static int issue(const char *folder, const struct tls_options *options, const char *to)
{
    struct error err = {0};
    AUTO_FREE char *file = memory_printf("%s/ca.pem", folder);
    AUTO_FREE char *copy = memory_printf("%s/ca.pem", to);
    AUTO_FREE char *pem = fd_read_file(file, 65536, NULL, &err);
    if (!options->hosts)
        return cli_usage("tls", "issue wants --host NAME,IP,...");
    if (pem == NULL || !authority_issue(folder, to, options->hosts, options->days, &err) ||
        !fd_write_file(copy, 0644, pem, strlen(pem), &err))
        return cli_fail(&err, NULL, err.kind == ERROR_INVALID ? CLI_USAGE : CLI_FAILED);
    return print_views(to, options, false);
}

int tls_main(int argc, char *argv[])
{
    struct tls_options options = {.days = 365};
    int wrong = read_options(&options, argc, argv);
    if (wrong)
        return wrong;
    AUTO_FREE char *state = cli_state(&options.common);
    AUTO_FREE char *folder = memory_printf("%s/tls", state);
    const char *word = optind < argc ? argv[optind] : "";
    int left = argc - optind - 1;
    if (strcmp(word, "init") == 0 && left == 0)
        return make(folder, &options);
    if (strcmp(word, "renew") == 0 && left == 0)
        return renew(folder, &options);
    if (strcmp(word, "show") == 0 && left == 0)
        return print_views(folder, &options, false);
    if (strcmp(word, "issue") == 0 && left == 1)
        return issue(folder, &options, argv[optind + 1]);
    return cli_usage("tls", "init, renew, show, or issue DIR");
}
