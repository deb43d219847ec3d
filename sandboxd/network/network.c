/* network.c - the networks of a node: stock, the host's side. One sandbox's: sandbox_network.c. */
#include "sandboxd/network/network_internal.h"

#include "sandboxd/network/servers.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t SECOND = 1000000000;
enum { MAKER_PATIENCE_MS = 2000 };

/* FNV-1a, folded: two deployments of a machine do not meet. */
static uint32_t hash_of(const char *state)
{
    uint64_t hash = 14695981039346656037ULL;
    for (const char *c = state; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 1099511628211ULL;
    return (uint32_t)(hash ^ hash >> 32);
}

static bool read_options(struct networks *networks, const struct networks_options *options, struct error *err)
{
    struct rules_host *host = &networks->host;
    uint32_t hash = hash_of(options->state);
    (void)!text_format(host->table, sizeof host->table, "parley_%08" PRIx32, hash);
    host->group = 0x40000000 | hash >> 2; /* never 0, which is everybody's; a positive number for all tools */
    host->egress_uid = options->egress_uid;
    networks->stock = options->stock;
    networks->none_only = options->none_only;
    if (!servers_parse_net(options->net, &networks->net, err))
        return false;
    if (options->servers)
        return servers_parse(options->servers, host->servers, &host->server_count, err);
    host->server_count = servers_of_host(options->resolv_conf, host->servers);
    return true;
}

/* Without it births go on, each a little slower. One that dies is started again at most once a second. */
static void start_maker(struct networks *networks, uint64_t now_boot_ns)
{
    struct error why = {0};
    bool is_recent = networks->maker_boot_ns && now_boot_ns - networks->maker_boot_ns < SECOND;
    if (networks->maker.pid > 0 || networks->stock == 0 || is_recent)
        return;
    networks->maker_boot_ns = now_boot_ns;
    if (!maker_start(&networks->maker, networks->stock, networks->none_only, &why))
        log_warn("network", "no network namespaces are made in advance: %s", why.message);
}

struct networks *networks_open(const struct networks_options *options, struct error *err)
{
    AUTO(networks) *networks = memory_new(sizeof *networks);
    networks->home = -1;
    networks->maker = MAKER_NONE;
    if (!read_options(networks, options, err))
        return NULL;
    if (networks->none_only) {
        start_maker(networks, clock_boot_ns());
        return networks->maker.pid > 0 ? TAKE(networks) : NULL;
    }
    networks->home = namespace_open(err);
    struct stat home = {0}; /* a machine may have several that are hosts, with one /run */
    if (networks->home >= 0 && fstat(networks->home, &home) == 0)
        networks->forwarding_file = memory_printf("%s/forwarding-%ju", options->shared_folder, (uintmax_t)home.st_ino);
    networks->netlink = networks->home < 0 ? NULL : netlink_new(err);
    networks->nft = networks->netlink ? nft_new(err) : NULL;
    if (!networks->nft)
        return NULL;
    start_maker(networks, clock_boot_ns());
    return TAKE(networks);
}

void networks_free(struct networks *networks)
{
    if (!networks)
        return;
    maker_stop(&networks->maker);
    if (networks->home >= 0)
        close(networks->home);
    netlink_free(networks->netlink);
    nft_free(networks->nft);
    free(networks->forwarding_file);
    free(networks);
}

/* The maker alone can make one: who has no right over the host's cannot come back. */
static int wait_for_one(struct networks *networks, struct error *err)
{
    maker_wait(&networks->maker, MAKER_PATIENCE_MS);
    int ready = maker_take(&networks->maker);
    if (ready < 0)
        error_set(err, ERROR_INTERNAL, "no network namespace could be made within %d ms", (int)MAKER_PATIENCE_MS);
    return ready;
}

int networks_take(struct networks *networks, struct error *err)
{
    int ready = maker_take(&networks->maker);
    if (ready >= 0)
        return ready;
    start_maker(networks, clock_boot_ns());
    if (networks->none_only)
        return wait_for_one(networks, err);
    return namespace_make(networks->home, err);
}

/* --- the host --- */

bool network_host_run(struct networks *networks, struct text *commands, struct error *err)
{
    return nft_run(networks->nft, commands, err) || (err && error_prefix(err, "the host's rules"));
}

/* What a former launcher made is made anew with its members, as one: what is on its way does not notice. */
static void put_host(struct text *commands, const struct networks *networks)
{
    rules_host(commands, &networks->host);
    for (const struct network *member = networks->members; member; member = member->next)
        rules_member(commands, &networks->host, member->address, true);
}

/* Forwarding at most once a second: what the host's routes are does not change with each sandbox. First the rules, then
 * what they are about. */
bool network_host_ready(struct networks *networks, uint64_t now_boot_ns, struct error *err)
{
    struct forwarding forwarding = {0};
    struct text commands = {0};
    bool is_recent = networks->forwarding_boot_ns && now_boot_ns - networks->forwarding_boot_ns < SECOND;
    if (networks->is_host_ready && is_recent)
        return true;
    if (!forwarding_plan(networks->forwarding_file, networks->netlink, &forwarding, err))
        return false;
    if (!networks->is_host_ready)
        put_host(&commands, networks);
    rules_opened_none(&commands, &networks->host);
    for (size_t i = 0; i < forwarding.count; i++)
        rules_opened(&commands, &networks->host, forwarding.opened[i]);
    if (!network_host_run(networks, &commands, err))
        return false;
    networks->is_host_ready = true;
    networks->forwarding_boot_ns = now_boot_ns;
    return forwarding_open(&forwarding, err);
}

bool networks_have_members(const struct networks *networks)
{
    return networks->members != NULL;
}

bool networks_start_host(struct networks *networks, uint64_t now_boot_ns, struct error *err)
{
    return !networks->members || network_host_ready(networks, now_boot_ns, err);
}

bool networks_clear_host(struct networks *networks, struct error *err)
{
    struct text commands = {0};
    bool is_there = false;
    if (networks->none_only)
        return true;
    if (!netlink_has_group(networks->netlink, networks->host.group, &is_there, err))
        return false;
    if (is_there)
        return error_set(err, ERROR_STARTING, "a sandbox's link is there still");
    rules_remove_host(&commands, &networks->host);
    networks->is_host_ready = false;
    bool is_closed = forwarding_close(networks->forwarding_file, err);
    return network_host_run(networks, &commands, is_closed ? err : NULL) && is_closed;
}

size_t networks_servers(const struct networks *networks, struct rules_server servers[static RULES_SERVERS])
{
    memcpy(servers, networks->host.servers, sizeof networks->host.servers);
    return networks->host.server_count;
}
