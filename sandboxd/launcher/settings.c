#include "sandboxd/launcher/settings.h"

#include "sandboxd/isolation/isolation.h"
#include "sandboxd/rootless/id_map.h"
#include "sandboxd/rootless/rootless.h"
#include "shared/base/config.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stddef.h>
#include <string.h>

#define FIELD(name) offsetof(struct settings, name)

enum { SLOTS = 4000, DAY_S = 86400 };

static const struct config_row ROWS[] = {
    {"state", CONFIG_TEXT, FIELD(state), NULL, 0, 0, "folder of all state; root: /var/lib/parley"},
    {"listen_host", CONFIG_TEXT, FIELD(listen_host), "127.0.0.1", 0, 0, "address to listen on"},
    {"sandboxd_port", CONFIG_NUMBER, FIELD(port), "8701", 0, 65535, "TCP port, 0: any free one"},
    {"advertise_url", CONFIG_TEXT, FIELD(advertise_url), NULL, 0, 0, "URL that clients are told"},
    {"preview_domain", CONFIG_TEXT, FIELD(preview_domain), "localhost", 0, 0,
     "ports are origins below it: PORT-SANDBOX.DOMAIN"},
    {"tls_cert", CONFIG_TEXT, FIELD(tls_cert), NULL, 0, 0, "file of the certificate and its chain (PEM): https"},
    {"tls_key", CONFIG_TEXT, FIELD(tls_key), NULL, 0, 0, "file of its key (PEM); both are read again when they change"},
    {"tls_ca", CONFIG_TEXT, FIELD(tls_ca), NULL, 0, 0, "file of authorities (PEM) that vouch for the negotiator"},
    {"tls_fingerprint", CONFIG_TEXT, FIELD(tls_fingerprint), NULL, 0, 0,
     "SHA-256 of the negotiator's certificate or its authority, instead of tls_ca"},
    {"insecure_http", CONFIG_SWITCH, FIELD(insecure_http), "false", 0, 0, "listen beyond loopback without TLS"},
    {"loops", CONFIG_NUMBER, FIELD(loops), "0", 0, 64, "event loops, 0: one a CPU"},
    {"slots_max", CONFIG_NUMBER, FIELD(slots_max), "200", 1, SLOTS, "sandboxes at once, 1..4000"},
    {"max_lifetime", CONFIG_NUMBER, FIELD(max_lifetime), "86400", 0, DAY_S * 366LL * 100,
     "s, how far ahead a hard deadline may lie, a day at most; 0: a day"},
    {"cpu_milli_max", CONFIG_NUMBER, FIELD(cpu_milli_max), "64000", 50, 1000000, "1/1000 core, of one sandbox"},
    {"memory_mb_max", CONFIG_NUMBER, FIELD(memory_mb_max), "65536", 16, 1 << 24, "MiB, of one sandbox"},
    {"disk_mb_max", CONFIG_NUMBER, FIELD(disk_mb_max), "65536", 1, 1 << 24, "MiB, of one sandbox"},
    {"pids_max", CONFIG_NUMBER, FIELD(pids_max), "32768", 16, 1000000, "processes and threads of one sandbox"},
    {"isolation", CONFIG_TEXT, FIELD(isolation), "namespaces", 0, 0, "levels offered, the first is auto: see --doctor"},
    {"microvm_kernel", CONFIG_TEXT, FIELD(microvm_kernel), NULL, 0, 0, "vmlinuz-VERSION, with ../lib/modules/VERSION"},
    {"microvm_vmm", CONFIG_TEXT, FIELD(microvm_vmm), "qemu", 0, 0, "monitor of isolation microvm: qemu"},
    {"storage", CONFIG_TEXT, FIELD(storage), "auto", 0, 0, "where sandboxes write: auto, btrfs, tmpfs or folder"},
    {"pool_mb_max", CONFIG_NUMBER, FIELD(pool_mb_max), "0", 0, 1 << 30, "MiB of the btrfs pool, 0: half of the free"},
    {"warm", CONFIG_NUMBER, FIELD(warm), "2", 0, 1000, "sandboxes kept ready for each template; 0 none"},
    {"warm_max", CONFIG_NUMBER, FIELD(warm_max), "64", 0, SLOTS, "sandboxes kept ready over all"},
    {"warm_memory_mb", CONFIG_NUMBER, FIELD(warm_memory_mb), "256", 0, 1 << 20, "MiB that those may take, 1.5 each"},
    {"root_user", CONFIG_TEXT, FIELD(root_user), "never", 0, 0, "allowed: commands may be root inside; or never"},
    {"volume_hosts", CONFIG_TEXT, FIELD(volume_hosts), NULL, 0, 0, "FOLDER[:ro],...: host folders that may be mounted"},
    {"volume_mb", CONFIG_NUMBER, FIELD(volume_mb), "1024", 1, 1 << 24, "MiB, quota of a volume that asks for none"},
    {"node_snapshots_max", CONFIG_NUMBER, FIELD(snapshots_max), "1000", 0, 1000000, "snapshots kept on this node"},
    {"open_files_max", CONFIG_NUMBER, FIELD(open_files_max), "65536", 16, 1048576, "of a command; the default too"},
    {"commands_max", CONFIG_NUMBER, FIELD(commands_max), "1000", 1, 1000, "of a sandbox at once; the default too"},
    {"output_mb", CONFIG_NUMBER, FIELD(output_mb), "16", 1, 1024, "MiB of output kept for a sandbox, the default"},
    {"cgroup", CONFIG_TEXT, FIELD(cgroup), NULL, 0, 0, "v2 cgroup that --keep-cgroup keeps for sandboxes; the own one"},
    {"missing_limits", CONFIG_TEXT, FIELD(missing_limits), "refuse", 0, 0,
     "rootless: allow: start without limits that are not delegated; or refuse"},
    {"egress_max", CONFIG_TEXT, FIELD(egress_max), "public", 0, 0,
     "where sandboxes may go at most: none, allow, public"},
    {"egress_net", CONFIG_TEXT, FIELD(egress_net), "100.126.0.0/20", 0, 0, "addresses of sandboxes that may go out"},
    {"egress_uid", CONFIG_NUMBER, FIELD(egress_uid), "58703", 1, 0x7fffffff, "uid and gid of parley-egress"},
    {"dns_servers", CONFIG_TEXT, FIELD(dns_servers), NULL, 0, 0, "IP[:PORT],...: for names; those of /etc/resolv.conf"},
    {"front_user", CONFIG_TEXT, FIELD(front_user), "parley-sandboxd", 0, 0, "host user that faces the clients"},
    {"front_uid", CONFIG_NUMBER, FIELD(front_uid), "58702", 1, 0x7fffffff, "its uid and gid where it does not exist"},
    {"init", CONFIG_TEXT, FIELD(init), NULL, 0, 0, "the parley-init program; beside parley-sandboxd"},
    {"jupyter", CONFIG_TEXT, FIELD(jupyter), NULL, 0, 0, "the parley-jupyter program; beside parley-sandboxd"},
    {"data_rate_per_minute", CONFIG_NUMBER, FIELD(rate_per_minute), "0", 0, 1000000,
     "requests with a capability, from an address beyond loopback; 0: no limit"},
    {"rate_loopback", CONFIG_SWITCH, FIELD(rate_loopback), "false", 0, 0,
     "data_rate_per_minute for clients on this host too, who are trusted else"},
    {"trusted_proxies", CONFIG_TEXT, FIELD(trusted_proxies), NULL, 0, 0,
     "CIDR,...: whose X-Forwarded-For says where requests are from"},
    {"auth_failures_per_minute", CONFIG_NUMBER, FIELD(auth_failures), "60", 0, 1000000,
     "invalid credentials from an address, also of this host; then 429; 0: no limit"},
    {"audit_sync", CONFIG_TEXT, FIELD(audit_sync), "batch", 0, 0, "always: before each deed; batch: in 100 ms"},
    {"audit_spool_mb", CONFIG_NUMBER, FIELD(audit_spool_mb), "256", 1, 1 << 20, "MiB of audit not shipped yet"},
    {"audit_argv", CONFIG_SWITCH, FIELD(audit_argv), "true", 0, 0, "audit records hold the command lines"},
    {"long_contact_max", CONFIG_NUMBER, FIELD(long_contact_max), "3600", 5, 86400,
     "s without a word of the negotiator, then tokens that need no refresh are refused"},
    {"log_level", CONFIG_TEXT, FIELD(log_level), "info", 0, 0, "debug, info, warn or error"},
    {"log_format", CONFIG_TEXT, FIELD(log_format), "text", 0, 0, "text or json: one object a line"},
    {"metrics_open", CONFIG_SWITCH, FIELD(metrics_open), "false", 0, 0,
     "/metrics for everybody who can connect, not for this machine alone"},
};

enum { ROW_COUNT = sizeof ROWS / sizeof ROWS[0] };

/* The negotiator's keys in the same STATE/config.json. */
static const char *const FOREIGN[] = {"webhook_hosts",
                                      "webhook_give_up",
                                      "identity_file",
                                      "rate_per_minute",
                                      "rate_burst",
                                      "host",
                                      "port",
                                      "negotiator_user",
                                      "negotiator_uid",
                                      "map_mb",
                                      "ttl_default",
                                      "ttl_max",
                                      "long_ttl_max",
                                      "unattended_max",
                                      "idle_timeout",
                                      "lease_lifetime",
                                      "cpu_milli",
                                      "memory_mb",
                                      "disk_mb",
                                      "pids",
                                      "node_calls",
                                      "call_timeout",
                                      "audit_keep_days",
                                      "templates_user",
                                      "templates_admin",
                                      "root_roles",
                                      "egress_user",
                                      "snapshots_max",
                                      "volumes_max",
                                      "image_templates",
                                      "opensandbox_egress",
                                      NULL};

static bool check_words(const struct settings *settings, struct error *err)
{
    static const char *const STORAGES[] = {"auto", "btrfs", "tmpfs", "folder"};
    bool is_storage = false;
    for (size_t i = 0; i < sizeof STORAGES / sizeof STORAGES[0]; i++)
        is_storage = is_storage || text_equal(settings->storage, STORAGES[i]);
    if (!is_storage)
        return error_set(err, ERROR_INVALID, "storage: \"%.32s\" is none of auto, btrfs, tmpfs, folder",
                         settings->storage);
    if (text_equal(settings->root_user, "never") || text_equal(settings->root_user, "allowed"))
        return true;
    return error_set(err, ERROR_INVALID, "root_user: \"%.32s\" is neither never nor allowed", settings->root_user);
}

static bool check_egress(const struct settings *settings, struct error *err)
{
    const char *most = settings->egress_max;
    if (settings->egress_uid == settings->front_uid)
        return error_set(err, ERROR_INVALID, "egress_uid: %lld is the front's; it must be one of its own",
                         (long long)settings->egress_uid);
    if (text_equal(most, "none") || text_equal(most, "allow") || text_equal(most, "public"))
        return true;
    return error_set(err, ERROR_INVALID, "egress_max: \"%.32s\" is none of none, allow, public", most);
}

/* Host names are compared in small letters. */
static bool check_domain(const char *domain, struct error *err)
{
    bool is_sound = text_is_made_of(domain, 180, "-.") && domain[0] != '.' && domain[strlen(domain) - 1] != '.';
    for (const char *c = domain; is_sound && *c != '\0'; c++)
        is_sound = *c < 'A' || *c > 'Z';
    return is_sound ||
           error_set(err, ERROR_INVALID, "preview_domain: \"%.64s\" is no host name in small letters", domain);
}

static bool check_isolation(const char *isolation, struct error *err)
{
    struct isolation_offer offer;
    return isolation_offer_parse(isolation, &offer, err);
}

static bool check_sync(const char *sync, struct error *err)
{
    if (text_equal(sync, "batch") || text_equal(sync, "always"))
        return true;
    return error_set(err, ERROR_INVALID, "audit_sync: \"%.32s\" is neither batch nor always", sync);
}

static bool check_missing_limits(const char *word, struct error *err)
{
    if (text_equal(word, "refuse") || text_equal(word, "allow"))
        return true;
    return error_set(err, ERROR_INVALID, "missing_limits: \"%.32s\" is neither refuse nor allow", word);
}

static void replace(char **field, const char *text)
{
    free(*field);
    *field = memory_string(text);
}

/* What an ordinary user's node has, whatever the defaults say. */
static bool fit_rootless(struct settings *settings, struct error *err)
{
    if (!rootless_is_active())
        return true;
    if (!text_equal(settings->isolation, "namespaces"))
        return error_set(err, ERROR_INVALID, "isolation: rootless has namespaces alone, not \"%.64s\"",
                         settings->isolation);
    if (text_equal(settings->storage, "btrfs"))
        return error_set(err, ERROR_INVALID, "storage: btrfs needs root; rootless has tmpfs and folder");
    if (settings->volume_hosts)
        return error_set(err, ERROR_INVALID, "volume_hosts: volumes need root (idmapped mounts); rootless has none");
    if (text_equal(settings->storage, "auto"))
        replace(&settings->storage, "tmpfs");
    replace(&settings->egress_max, "none");
    replace(&settings->front_user, ""); /* a user of the host's is not one of ours */
    settings->front_uid = ID_MAP_FRONT;
    int64_t most = rootless_slots();
    settings->slots_max = settings->slots_max < most || most == 0 ? settings->slots_max : most;
    return true;
}

bool settings_load(struct settings *settings, int argc, char *const argv[], struct error *err)
{
    AUTO_SETTINGS loaded = {0};
    if (!config_load_state(&loaded, ROWS, ROW_COUNT, FOREIGN, argc, argv, err))
        return false;
    config_default_tls(loaded.state, &loaded.tls_cert, &loaded.tls_key, &loaded.tls_ca);
    if (!config_check_listener(
            &(struct config_listener){loaded.listen_host, loaded.tls_cert, loaded.tls_key, loaded.insecure_http},
            err) ||
        !config_set_log_level(loaded.log_level, err) || !config_set_log_format(loaded.log_format, err) ||
        !check_sync(loaded.audit_sync, err) || !check_words(&loaded, err) || !check_egress(&loaded, err) ||
        !check_domain(loaded.preview_domain, err) || !check_isolation(loaded.isolation, err) ||
        !check_missing_limits(loaded.missing_limits, err) || !fit_rootless(&loaded, err))
        return false;
    if (loaded.max_lifetime == 0 ||
        loaded.max_lifetime > DAY_S) /* of a sandbox; its negotiator moves the deadline on */
        loaded.max_lifetime = DAY_S;
    *settings = loaded;
    loaded = (struct settings){0};
    return true;
}

void settings_done(struct settings *settings)
{
    config_done(settings, ROWS, ROW_COUNT);
}

void settings_print_help(FILE *to)
{
    config_print_help(to, ROWS, ROW_COUNT);
}
