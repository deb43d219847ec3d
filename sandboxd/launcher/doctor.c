/* doctor.c - what this host and its settings give, as JSON lines for `parley doctor`. */
#include "sandboxd/launcher/launcher.h"

#include "sandboxd/isolation/isolation.h"
#include "sandboxd/launcher/records.h"
#include "sandboxd/launcher/warm.h"
#include "sandboxd/network/network.h"
#include "sandboxd/network/servers.h"
#include "sandboxd/rootless/rootless.h"
#include "sandboxd/storage/storage.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { DETAIL_BYTES = 384 };

static bool tell(const char *name, bool is_active, const char *detail)
{
    json_t *line = json_pack("{s:s, s:b, s:s}", "name", name, "active", (int)is_active, "detail", detail);
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (text)
        puts(text);
    free(text);
    json_decref(line);
    return is_active;
}

/* Off by the operator's wish is nothing that is missing. */
static bool tell_pool(const struct settings *settings)
{
    char detail[DETAIL_BYTES];
    AUTO_FREE char *records = memory_printf("%s/sandboxd/records", settings->state);
    if (settings->warm == 0)
        return tell("warm pool", true, "off (warm 0): each sandbox is born when it is asked for");
    bool is_readable = access(records, R_OK) == 0;
    int length =
        snprintf(detail, sizeof detail,
                 "%" PRId64 " of each template in use and what a minute takes, at most %" PRId64 " and %" PRId64 " MiB",
                 settings->warm, settings->warm_max, settings->warm_memory_mb);
    if (is_readable && length > 0 && (size_t)length < sizeof detail)
        snprintf(detail + length, sizeof detail - (size_t)length, "; %zu ready now",
                 record_count(records, RECORD_WARM));
    return tell("warm pool", true, detail);
}

/* Whom names are asked at is told as well: an allow-list without them reaches nothing. */
static bool tell_egress(const struct settings *settings)
{
    char detail[DETAIL_BYTES];
    struct rules_server servers[RULES_SERVERS];
    if (rootless_is_active())
        return tell("egress", true, "off: a rootless node has no ways out (the host's network is not its user's)");
    if (strcmp(settings->egress_max, "none") == 0)
        return tell("egress", true, "off (egress_max none): no sandbox has a way out");
    bool is_active = networks_probe(detail, sizeof detail);
    bool has_servers = settings->dns_servers || servers_of_host("/etc/resolv.conf", servers) > 0;
    if (is_active && !has_servers)
        return tell("egress", false, "no DNS server: set dns_servers, or nameserver lines in /etc/resolv.conf (IPv4)");
    return tell("egress", is_active, detail);
}

static bool tell_storage(const struct settings *settings)
{
    char detail[DETAIL_BYTES] = "";
    const struct storage_options options = {.kind = settings->storage,
                                            .state_folder = settings->state,
                                            .pool_bytes_max = (uint64_t)settings->pool_mb_max << 20};
    bool is_active = storage_probe(&options, detail, sizeof detail);
    return tell("storage", is_active, detail);
}

/* One that is not offered is nothing that is missing: what it would need is told all the same. */
static void tell_level(const struct isolation_backend *backend, const struct isolation_offer *offer,
                       const char *missing)
{
    char name[48], detail[DETAIL_BYTES], lacks[96];
    bool is_offered = false;
    for (size_t i = 0; i < offer->count; i++)
        is_offered = is_offered || offer->list[i] == backend;
    isolation_lacks_format(backend->lacks, lacks, sizeof lacks);
    (void)snprintf(name, sizeof name, "isolation %s", backend->name);
    (void)snprintf(detail, sizeof detail, "%s%s%s%s%s%.100s",
                   is_offered ? "offered" : "not offered (setting isolation)",
                   is_offered && offer->list[0] == backend ? ", as auto" : "", lacks[0] ? "; it cannot have " : "",
                   lacks, missing ? "; needs: " : "", missing ? missing : "");
    size_t length = strlen(detail);
    if (backend->note)
        (void)snprintf(detail + length, sizeof detail - length, "; %s", backend->note);
    (void)tell(name, !is_offered || !missing, detail);
}

/* The layers of those that are offered, and of namespaces, in which the others stand. */
static bool tell_isolation(const struct isolation_offer *offer)
{
    bool are_active = true;
    const struct isolation_backend *backend;
    for (size_t at = 0; (backend = isolation_each(at)) != NULL; at++) {
        struct isolation_layer layers[ISOLATION_LAYERS_MAX];
        size_t count = backend->probe(layers);
        const char *missing = NULL;
        bool is_shown = at == 0;
        for (size_t i = 0; i < offer->count; i++)
            is_shown = is_shown || offer->list[i] == backend;
        for (size_t i = 0; i < count; i++) {
            if (!layers[i].active && !missing)
                missing = layers[i].detail;
            if (is_shown)
                are_active = tell(layers[i].name, layers[i].active, layers[i].detail) && are_active;
        }
        tell_level(backend, offer, missing);
    }
    return are_active;
}

/* A program there is not run for sandboxes, whose core limit is 1; whom a socket leads to is told all the same. */
static bool tell_core_dumps(void)
{
    char pattern[2] = "";
    FILE *file = fopen("/proc/sys/kernel/core_pattern", "re");
    bool is_socket = file && fgets(pattern, sizeof pattern, file) && pattern[0] == '@';
    if (file)
        (void)fclose(file);
    return tell("core dumps", !is_socket,
                is_socket
                    ? "kernel.core_pattern is a socket: its service gets the core of each crash in a sandbox, which no "
                      "limit prevents; make it a file or a program (|)"
                    : "a crash in a sandbox starts nothing on this host");
}

int launcher_doctor(const struct settings *settings, const struct error *why, const struct error *rootless)
{
    struct isolation_offer offer = {0};
    (void)!isolation_offer_parse(settings ? settings->isolation : "namespaces", &offer, NULL);
    isolation_microvm_choose(settings ? settings->microvm_kernel : NULL, settings ? settings->microvm_vmm : "qemu");
    isolation_allow_missing_limits(settings && strcmp(settings->missing_limits, "allow") == 0);
    bool are_active = tell_isolation(&offer);
    are_active = (!rootless || tell("rootless", false, rootless->message)) && are_active;
    if (!settings)
        return tell("settings", false, why->message) ? 0 : 1;
    are_active = tell_storage(settings) && are_active;
    are_active = tell_egress(settings) && are_active;
    are_active = tell_core_dumps() && are_active;
    return tell_pool(settings) && are_active ? 0 : 1;
}
