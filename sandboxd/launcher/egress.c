#include "sandboxd/launcher/egress.h"

#include "sandboxd/rootless/rootless.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/program.h"
#include "shared/base/text.h"
#include "shared/node_protocol/egress_rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const uint64_t MS = 1000000;
enum { MESSAGES_A_TURN = 64, WAITING_MAX = 2 * SLOTS_COUNT, RETRY_MS = 250 };

static char *const ARGUMENTS[] = {(char *)(uintptr_t) "parley-egress", NULL};

/* What is to be said: of a sandbox only its number, as how it is when it is said counts. */
struct egress_entry {
    struct egress_entry *next;
    uint32_t type;
    uint64_t number, request;
    bool is_ok;
};

/* --- what waits to be said --- */

static void say(struct egress *egress, uint32_t type, uint64_t number, uint64_t request, bool is_ok)
{
    struct egress_entry *entry = memory_new(sizeof *entry);
    *entry = (struct egress_entry){.type = type, .number = number, .request = request, .is_ok = is_ok};
    if (egress->last)
        egress->last->next = entry;
    else
        egress->first = entry;
    egress->last = entry;
    egress->waiting++;
}

static void take_first(struct egress *egress)
{
    struct egress_entry *entry = egress->first;
    egress->first = entry->next;
    egress->last = egress->first ? egress->last : NULL;
    egress->waiting--;
    free(entry);
}

bool egress_is_waiting(const struct egress *egress)
{
    return egress->is_ready && egress->first != NULL;
}

static bool has_way(const struct sandbox *sandbox)
{
    const struct fl_network *rules = sandbox && sandbox->network ? network_rules(sandbox->network) : NULL;
    return rules && rules->mode != FL_NETWORK_NONE && sandbox->state != SANDBOX_ENDING;
}

/* --- what the sandboxes tell --- */

static void changed(void *context, struct sandbox *sandbox)
{
    struct egress *egress = context;
    uint64_t number = network_number(sandbox->network);
    bool is_open = has_way(sandbox) && network_sockets(sandbox->network);
    if (has_way(sandbox) && !is_open)
        egress->retry_boot_ns = clock_boot_ns();
    if (egress->process.pid <= 0)
        return; /* all are told to the next one */
    if (is_open)
        say(egress, EG_SANDBOX, number, 0, true);
    else if (sandbox->egress_process == egress->incarnation)
        say(egress, EG_GONE, number, 0, true);
    if (!is_open)
        sandbox->egress_process = 0;
}

static void gone(void *context, struct sandbox *sandbox)
{
    struct egress *egress = context;
    if (egress->process.pid > 0 && sandbox->egress_process == egress->incarnation)
        say(egress, EG_GONE, network_number(sandbox->network), 0, true);
    sandbox->egress_process = 0;
}

/* --- the process --- */

void egress_init(struct egress *egress, const struct settings *settings, struct networks *networks,
                 struct sandboxes *sandboxes)
{
    *egress = (struct egress){.settings = settings,
                              .networks = networks,
                              .sandboxes = sandboxes,
                              .process = CHILD_PROCESS_NONE,
                              .path = program_beside("parley-egress")};
    egress->process.what = "parley-egress";
    egress->process.program = egress->path;
    egress->process.environment = LAUNCHER_EGRESS_ENVIRONMENT;
    egress->process.argv = ARGUMENTS;
    egress->retry_boot_ns = clock_boot_ns(); /* those that were taken up have no sockets */
    sandboxes->egress = (struct sandboxes_egress){.changed = changed, .gone = gone, .context = egress};
}

static void forget(struct egress *egress)
{
    while (egress->first)
        take_first(egress);
    egress->is_ready = false;
}

void egress_end(struct egress *egress, const char *why)
{
    if (why)
        log_error("launcher", "parley-egress is ended: %s", why);
    forget(egress);
    child_process_end(&egress->process, clock_boot_ns());
}

void egress_done(struct egress *egress)
{
    forget(egress);
    if (egress->process.pid > 0)
        child_process_end(&egress->process, clock_boot_ns());
    free(egress->path);
    egress->path = NULL;
}

uint64_t egress_next_wake(const struct egress *egress)
{
    if (rootless_is_active()) /* nobody goes out, and its uid would be some sandbox's */
        return 0;
    uint64_t start = egress->process.restart_boot_ns ? egress->process.restart_boot_ns : 1;
    if (egress->process.pid > 0 || !networks_have_members(egress->networks))
        return egress->retry_boot_ns;
    return egress->retry_boot_ns && egress->retry_boot_ns < start ? egress->retry_boot_ns : start;
}

/* One that was taken up, and whose former sockets were just dying, or are in the way of a process of its own. */
void egress_wake(struct egress *egress)
{
    uint64_t now = clock_boot_ns();
    if (!egress->retry_boot_ns || egress->retry_boot_ns > now)
        return;
    egress->retry_boot_ns = 0;
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        struct error why = {0};
        struct sandbox *sandbox = egress->sandboxes->by_slot[slot];
        if (!has_way(sandbox) || network_sockets(sandbox->network))
            continue;
        if (network_open(sandbox->network, sandbox->handle.init, &why)) {
            changed(egress, sandbox);
            continue;
        }
        log_warn("launcher", "names cannot be served sandbox=%s: %s", sandbox->record.id, why.message);
        egress->retry_boot_ns = now + RETRY_MS * MS;
    }
}

static uint32_t log_level_of(const char *name)
{
    static const char *const NAMES[] = {
        [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};
    for (uint32_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (NAMES[i] && text_equal(NAMES[i], name))
            return i;
    }
    return LOG_INFO;
}

static bool send_config(struct egress *egress, struct error *err)
{
    struct rules_server servers[RULES_SERVERS];
    struct launcher_egress_message message = {.type = EG_CONFIG};
    struct eg_config *config = &message.as.config;
    config->uid = config->gid = (uint32_t)egress->settings->egress_uid;
    config->log_level = log_level_of(egress->settings->log_level);
    config->log_json = text_equal(egress->settings->log_format, "json");
    config->server_count = (uint32_t)networks_servers(egress->networks, servers);
    for (size_t i = 0; i < config->server_count; i++)
        config->servers[i] = (struct eg_server){.address = htonl(servers[i].address), .port = servers[i].port};
    return launcher_egress_send(egress->process.socket, &message, NULL, 0, err);
}

bool egress_start(struct egress *egress, struct error *err)
{
    forget(egress);
    egress->incarnation++;
    if (!child_process_start(&egress->process, clock_boot_ns(), err) || !send_config(egress, err))
        return false;
    log_info("launcher", "parley-egress started pid=%d", (int)egress->process.pid);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (has_way(egress->sandboxes->by_slot[slot]))
            changed(egress, egress->sandboxes->by_slot[slot]);
    }
    return true;
}

/* --- what it says --- */

static struct sandbox *find(const struct egress *egress, uint64_t number)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        struct sandbox *sandbox = egress->sandboxes->by_slot[slot];
        if (has_way(sandbox) && network_number(sandbox->network) == number)
            return sandbox;
    }
    return NULL;
}

static void on_pin(struct egress *egress, const struct launcher_egress_message *message)
{
    struct error why = {0};
    const struct eg_pin *asked = &message->as.pin;
    uint32_t addresses[LAUNCHER_EGRESS_PINS];
    struct network_pins pins = {
        .rules = asked->rules, .addresses = addresses, .ports = asked->ports, .ttl_s = asked->ttl_s};
    for (; pins.address_count < asked->count; pins.address_count++)
        addresses[pins.address_count] = ntohl(asked->addresses[pins.address_count]);
    while (pins.port_count < LAUNCHER_EGRESS_PORTS && asked->ports[pins.port_count])
        pins.port_count++;
    struct sandbox *sandbox = find(egress, asked->number);
    bool is_ok = sandbox && network_pin(sandbox->network, &pins, clock_boot_ns(), &why);
    if (sandbox && !is_ok)
        log_debug("launcher", "not pinned sandbox=%s: %s", sandbox->record.id, why.message);
    say(egress, EG_PINNED, asked->number, message->request, is_ok);
}

bool egress_receive(struct egress *egress, struct error *err)
{
    for (int i = 0; i < MESSAGES_A_TURN; i++) {
        struct launcher_egress_message message;
        int fds[EG_FDS];
        size_t count = 0;
        struct error why = {0};
        int got = launcher_egress_receive(egress->process.socket, &message, EG_FROM_EGRESS, fds, &count, &why);
        if (got < 0 && why.system_errno == EAGAIN)
            return true;
        if (got == 0)
            return error_set(err, ERROR_GONE, "it closed its socket");
        if (got < 0 || (message.type == EG_READY) == egress->is_ready) {
            *err = why;
            return got < 0 ? false : error_set(err, ERROR_INVALID, "it is ready twice, or asks before");
        }
        if (egress->waiting > WAITING_MAX)
            return error_set(err, ERROR_INVALID, "it asks and does not listen");
        if (message.type == EG_READY)
            egress->is_ready = true;
        else
            on_pin(egress, &message);
    }
    return true;
}

/* --- sending --- */

/* Behind the names. Both were one list of the same spelling once, and so fit. */
static bool add_nets(char list[static LAUNCHER_EGRESS_NAMES_BYTES], const struct fl_net *nets, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct fl_net *net = &nets[i];
        uint16_t port = net->port_from == net->port_to ? net->port_to : 0; /* a range, which nobody makes, is all */
        const struct egress_rule rule = {
            .address = net->address, .prefix = net->prefix, .protocol = port ? net->protocol : 0, .port = port};
        char entry[EGRESS_RULE_BYTES];
        size_t used = strlen(list);
        egress_rule_print(&rule, entry);
        if (!text_format(list + used, LAUNCHER_EGRESS_NAMES_BYTES - used, "%s%s", used ? " " : "", entry))
            return false;
    }
    return true;
}

/* As it is now; with its sockets when this process does not have them. */
static bool send_sandbox(struct egress *egress, uint64_t number, struct error *err)
{
    struct launcher_egress_message message = {.type = EG_SANDBOX};
    struct eg_sandbox *said = &message.as.sandbox;
    struct sandbox *sandbox = find(egress, number);
    const int *sockets = sandbox ? network_sockets(sandbox->network) : NULL;
    if (!sockets)
        return true; /* that it is gone is told behind this */
    const struct fl_network *rules = network_rules(sandbox->network);
    bool has_them = sandbox->egress_process == egress->incarnation;
    memcpy(said->id, sandbox->record.id, sizeof said->id);
    said->number = number;
    said->rules = network_mark(sandbox->network);
    said->mode = rules->mode == FL_NETWORK_PUBLIC ? EG_PUBLIC : EG_ALLOW;
    memcpy(said->allow, rules->names, sizeof said->allow);
    memcpy(said->deny, rules->denied_names, sizeof said->deny);
    if (rules->denied_count > 0 && (!add_nets(said->allow, rules->nets, rules->net_count) ||
                                    !add_nets(said->deny, rules->denied, rules->denied_count)))
        return error_set(err, ERROR_INVALID, "the entries of a sandbox's network are too long");
    if (!launcher_egress_send(egress->process.socket, &message, has_them ? NULL : sockets, has_them ? 0 : EG_FDS, err))
        return false;
    sandbox->egress_process = egress->incarnation;
    return true;
}

static bool send_one(struct egress *egress, const struct egress_entry *entry, struct error *err)
{
    struct launcher_egress_message message = {.type = entry->type, .request = entry->request};
    if (entry->type == EG_SANDBOX)
        return send_sandbox(egress, entry->number, err);
    if (entry->type == EG_GONE)
        message.as.gone.number = entry->number;
    else
        message.as.pinned = (struct eg_pinned){.number = entry->number, .ok = entry->is_ok};
    return launcher_egress_send(egress->process.socket, &message, NULL, 0, err);
}

bool egress_send(struct egress *egress, struct error *err)
{
    while (egress_is_waiting(egress)) {
        struct error why = {0};
        bool is_sent = send_one(egress, egress->first, &why);
        if (!is_sent && why.system_errno == EAGAIN)
            return true;
        if (!is_sent) {
            *err = why;
            return false;
        }
        take_first(egress);
    }
    return true;
}
