#include "negotiator/settings.h"

#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/leasing/wanted.h"
#include "shared/base/config.h"
#include "shared/base/text.h"

#include <stddef.h>

#define FIELD(name) offsetof(struct settings, name)

static const struct config_row ROWS[] = {
    {"state", CONFIG_TEXT, FIELD(state), NULL, 0, 0, "folder of all state; root: /var/lib/parley"},
    {"host", CONFIG_TEXT, FIELD(host), "127.0.0.1", 0, 0, "address to listen on"},
    {"port", CONFIG_NUMBER, FIELD(port), "8700", 0, 65535, "TCP port, 0: any free one"},
    {"tls_cert", CONFIG_TEXT, FIELD(tls_cert), NULL, 0, 0, "file of the certificate and its chain (PEM): https"},
    {"tls_key", CONFIG_TEXT, FIELD(tls_key), NULL, 0, 0, "file of its key (PEM); both are read again when they change"},
    {"tls_ca", CONFIG_TEXT, FIELD(tls_ca), NULL, 0, 0, "file of authorities (PEM) that vouch for nodes; the system's"},
    {"insecure_http", CONFIG_SWITCH, FIELD(insecure_http), "false", 0, 0, "listen beyond loopback without TLS"},
    {"loops", CONFIG_NUMBER, FIELD(loops), "0", 0, 64, "event loops, 0: one a CPU"},
    {"negotiator_user", CONFIG_TEXT, FIELD(user), "parley-negotiator", 0, 0,
     "host user it becomes, if started as root"},
    {"negotiator_uid", CONFIG_NUMBER, FIELD(uid), "58701", 1, 0x7fffffff, "its uid and gid where it does not exist"},
    {"log_level", CONFIG_TEXT, FIELD(log_level), "info", 0, 0, "debug, info, warn or error"},
    {"log_format", CONFIG_TEXT, FIELD(log_format), "text", 0, 0, "text or json: one object a line"},
    {"metrics_open", CONFIG_SWITCH, FIELD(metrics_open), "false", 0, 0,
     "/metrics for everybody who can connect, not for this machine and API keys alone"},
    {"map_mb", CONFIG_NUMBER, FIELD(map_mb), "4096", 16, 1 << 20, "MiB, the most the ledger may grow to"},
    {"ttl_default", CONFIG_NUMBER, FIELD(ttl_default), "900", 60, 3600, "s, of a token"},
    {"ttl_max", CONFIG_NUMBER, FIELD(ttl_max), "3600", 60, 3600, "s, the longest a token may be valid"},
    {"long_ttl_max", CONFIG_NUMBER, FIELD(long_ttl_max), "604800", 3600, WANTED_LONG_MAX_S,
     "s, of a token for a client that never refreshes"},
    {"idle_timeout", CONFIG_NUMBER, FIELD(idle_timeout), "3600", 1, LIFE_NUMBER_MAX_S,
     "s without a sign of life, of a lease"},
    {"lease_lifetime", CONFIG_NUMBER, FIELD(lease_lifetime), "28800", 1, LIFE_NUMBER_MAX_S,
     "s, of a lease that asks for nothing"},
    {"max_lifetime", CONFIG_NUMBER, FIELD(max_lifetime), "0", 0, LIFE_NUMBER_MAX_S,
     "s, the longest life of a sandbox; 0: not bounded, and one may have no end"},
    {"unattended_max", CONFIG_NUMBER, FIELD(unattended_max), "86400", 5, LIFE_UNATTENDED_S,
     "s a sandbox lives on at most after the negotiator's last word to its node"},
    {"cpu_milli", CONFIG_NUMBER, FIELD(cpu_milli), "1000", 50, 1000000, "1/1000 core, default of a sandbox"},
    {"memory_mb", CONFIG_NUMBER, FIELD(memory_mb), "512", 16, 1 << 24, "MiB, default of a sandbox"},
    {"disk_mb", CONFIG_NUMBER, FIELD(disk_mb), "0", 0, 1 << 26,
     "MiB, default of a sandbox; 0: what the node's storage gives"},
    {"pids", CONFIG_NUMBER, FIELD(pids), "256", 16, 1000000, "processes and threads, default of a sandbox"},
    {"node_calls", CONFIG_NUMBER, FIELD(node_calls), "16", 1, 64, "calls to nodes at once, half of them to one"},
    {"call_timeout", CONFIG_NUMBER, FIELD(call_timeout), "15", 1, 300, "s, of one call to a node"},
    {"templates_user", CONFIG_TEXT, FIELD(templates_user), "*", 0, 0,
     "GLOB,...: templates that role user may begin with"},
    {"templates_admin", CONFIG_TEXT, FIELD(templates_admin), "*", 0, 0, "GLOB,...: the same of role admin"},
    {"root_roles", CONFIG_TEXT, FIELD(root_roles), "admin", 0, 0,
     "ROLE,...: whose sandboxes may run commands as root, if their node allows it"},
    {"egress_user", CONFIG_TEXT, FIELD(egress_user), "public", 0, 0,
     "none, allow or public: the most that role user may let a sandbox reach"},
    {"image_templates", CONFIG_TEXT, FIELD(image_templates), "*=base", 0, 0,
     "GLOB=TEMPLATE,...: what an image that OpenSandbox clients name is, if no template is named so"},
    {"opensandbox_egress", CONFIG_TEXT, FIELD(opensandbox_egress), "none", 0, 0,
     "none or public: what sandboxes of OpenSandbox clients reach that say nothing of it"},
    {"preview_domain", CONFIG_TEXT, FIELD(preview_domain), "localhost", 0, 0,
     "the domain below which nodes serve previews; the same as theirs"},
    {"snapshots_max", CONFIG_NUMBER, FIELD(snapshots_max), "100", 0, 100000, "snapshots a principal may have"},
    {"volumes_max", CONFIG_NUMBER, FIELD(volumes_max), "20", 0, 1000, "named volumes a principal may have"},
    {"identity_file", CONFIG_TEXT, FIELD(identity_file), NULL, 0, 0,
     "JSON: outside issuers whose tokens are taken as keys (OpenID Connect, OAuth); their keys: read again at SIGHUP"},
    {"rate_per_minute", CONFIG_NUMBER, FIELD(rate_per_minute), "120", 0, 1000000,
     "requests with a key, from an address beyond loopback; 0: no limit"},
    {"rate_burst", CONFIG_NUMBER, FIELD(rate_burst), "0", 0, 1000000, "of them at once; 0: those of a minute"},
    {"rate_loopback", CONFIG_SWITCH, FIELD(rate_loopback), "false", 0, 0,
     "rate_per_minute for clients on this host too, who are trusted else"},
    {"trusted_proxies", CONFIG_TEXT, FIELD(trusted_proxies), NULL, 0, 0,
     "CIDR,...: whose X-Forwarded-For says where requests are from"},
    {"auth_failures_per_minute", CONFIG_NUMBER, FIELD(auth_failures), "60", 0, 1000000,
     "invalid credentials from an address, also of this host; then 429; 0: no limit"},
    {"webhook_hosts", CONFIG_TEXT, FIELD(webhook_hosts), NULL, 0, 0,
     "HOST[:PORT],...: where a user's webhook may lead by http, and to an address that is not public"},
    {"webhook_give_up", CONFIG_NUMBER, FIELD(webhook_give_up), "86400", 1, 30 * 86400,
     "s that a webhook's receiver may fail without a break, then it is disabled"},
    {"audit_keep_days", CONFIG_NUMBER, FIELD(audit_keep_days), "90", 0, 36500,
     "days an audit record is kept at least, 0: for ever"},
};

enum { ROW_COUNT = sizeof ROWS / sizeof ROWS[0] };

/* sandboxd's keys in the same STATE/config.json. */
static const char *const FOREIGN[] = {"listen_host",
                                      "tls_fingerprint",
                                      "data_rate_per_minute",
                                      "sandboxd_port",
                                      "init",
                                      "advertise_url",
                                      "slots_max",
                                      "cpu_milli_max",
                                      "memory_mb_max",
                                      "disk_mb_max",
                                      "pids_max",
                                      "front_user",
                                      "front_uid",
                                      "audit_sync",
                                      "audit_spool_mb",
                                      "audit_argv",
                                      "long_contact_max",
                                      "storage",
                                      "pool_mb_max",
                                      "warm",
                                      "warm_max",
                                      "warm_memory_mb",
                                      "root_user",
                                      "volume_hosts",
                                      "volume_mb",
                                      "node_snapshots_max",
                                      "open_files_max",
                                      "commands_max",
                                      "output_mb",
                                      "egress_max",
                                      "egress_net",
                                      "egress_uid",
                                      "dns_servers",
                                      "jupyter",
                                      "missing_limits",
                                      "cgroup",
                                      "isolation",
                                      "microvm_kernel",
                                      "microvm_vmm",
                                      NULL};

static bool check_egress(const char *most, struct error *err)
{
    return text_equal(most, "none") || text_equal(most, "allow") || text_equal(most, "public") ||
           error_set(err, ERROR_INVALID, "egress_user: \"%.32s\" is none of none, allow, public", most);
}

static bool check_opensandbox(const struct settings *settings, struct error *err)
{
    if (!text_equal(settings->opensandbox_egress, "none") && !text_equal(settings->opensandbox_egress, "public"))
        return error_set(err, ERROR_INVALID, "opensandbox_egress: \"%.32s\" is none of none, public",
                         settings->opensandbox_egress);
    return opensandbox_check_images(settings->image_templates, err);
}

bool settings_load(struct settings *settings, int argc, char *const argv[], struct error *err)
{
    AUTO_SETTINGS loaded = {0};
    if (!config_load_state(&loaded, ROWS, ROW_COUNT, FOREIGN, argc, argv, err))
        return false;
    config_default_tls(loaded.state, &loaded.tls_cert, &loaded.tls_key, &loaded.tls_ca);
    if (!config_check_listener(
            &(struct config_listener){loaded.host, loaded.tls_cert, loaded.tls_key, loaded.insecure_http}, err) ||
        !config_set_log_level(loaded.log_level, err) || !config_set_log_format(loaded.log_format, err) ||
        !check_egress(loaded.egress_user, err) || !check_opensandbox(&loaded, err))
        return false;
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
