#include "negotiator/commands.h"
#include "negotiator/deployment.h"
#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/outside.h"
#include "negotiator/passing/passing_room.h"
#include "negotiator/dialects/plane.h"
#include "negotiator/leasing/events/hub.h"
#include "negotiator/pulse.h"
#include "negotiator/settings.h"
#include "negotiator/webhooks/courier.h"
#include "shared/base/clock.h"
#include "shared/base/confine.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/notify.h"
#include "shared/http/tls.h"
#include "shared/trust/trust.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned STOP_GRACE_MS = 10000;
static const uint64_t SECOND_NS = 1000000000, MS_NS = 1000000;

/* Everything that runs, in the order it was started. */
struct service {
    struct settings settings;
    struct deployment deployment;
    struct kv *kv; /* NULL once the ledger thread has it */
    struct principal_table *principals;
    struct events_hub *hub;
    struct courier *courier;
    struct identity *identity; /* NULL: no outside issuers */
    struct fleet *fleet;
    struct ledger *ledger;
    struct leasing *leasing;
    struct http_tls *tls;            /* NULL: plain HTTP */
    struct ssl_ctx_st *upstream_tls; /* for requests that go on to nodes */
    struct http_server *server;
    struct plane plane;
    struct notify notify; /* who started us, if that wants to know */
    struct pulse pulse;
};

/* What the resolver and TLS of libcurl read when they are first used; nothing of our own state: that is open. */
static const struct confine_path PATHS[] = {
    {"/etc/resolv.conf", CONFINE_READ},
    {"/etc/hosts", CONFINE_READ},
    {"/etc/nsswitch.conf", CONFINE_READ},
    {"/etc/host.conf", CONFINE_READ},
    {"/etc/gai.conf", CONFINE_READ},
    {"/etc/services", CONFINE_READ},
    {"/etc/localtime", CONFINE_READ},
    {"/etc/ssl", CONFINE_READ},
    {"/etc/ld.so.cache", CONFINE_READ},
    {"/usr/share/ca-certificates", CONFINE_READ},
    {"/usr/local/share/ca-certificates", CONFINE_READ},
    {"/usr/share/zoneinfo", CONFINE_READ},
    {"/usr/lib", CONFINE_READ},
    {"/lib", CONFINE_READ},
    {"/lib64", CONFINE_READ},
    {"/sys/devices/system/cpu", CONFINE_READ},
    {"/proc/self", CONFINE_READ}, /* for /metrics */
};

/* With those that the keys of outside issuers lie in, and that its user may look into. */
static bool confine_files(char *const *folders, size_t more, int *abi, struct error *err)
{
    enum { COUNT = sizeof PATHS / sizeof *PATHS };
    struct confine_path paths[COUNT + ISSUERS_MAX];
    size_t count = COUNT;
    memcpy(paths, PATHS, sizeof PATHS);
    for (size_t i = 0; i < more; i++) {
        if (access(folders[i], X_OK) == 0)
            paths[count++] = (struct confine_path){folders[i], CONFINE_READ};
        else
            log_warn("identity", "%s is not for the negotiator's user: keys there are read at starts alone",
                     folders[i]);
    }
    return confine_landlock(paths, count, false, abi, err);
}

static bool confine_within(const struct settings *settings, char *const *folders, size_t more, struct error *err)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    int abi = 0;
    struct error why = {0};
    if (uid == 0)
        confine_find_user(settings->user, (uid_t)settings->uid, &uid, &gid);
    if (!confine_user(uid, gid, err))
        return error_prefix(err, "dropping rights");
    if (!confine_calls(err))
        return false;
    if (confine_files(folders, more, &abi, &why)) {
        log_info("negotiator", "confined uid=%u landlock=%d", (unsigned)uid, abi);
        return true;
    }
    if (why.kind != ERROR_NOT_FOUND) {
        *err = why;
        return error_prefix(err, "landlock");
    }
    log_warn("negotiator",
             "confined uid=%u, but this kernel has no Landlock: the files its user may read stay readable",
             (unsigned)uid);
    return true;
}

static bool confine(const struct service *service, struct error *err)
{
    char *folders[ISSUERS_MAX];
    size_t more = identity_folders(service->identity, service->settings.state, folders); /* while they can be found */
    bool is_confined = confine_within(&service->settings, folders, more, err);
    for (size_t i = 0; i < more; i++)
        free(folders[i]);
    return is_confined;
}

static bool open_state(struct service *service, struct error *err)
{
    const struct settings *settings = &service->settings;
    AUTO_FREE char *folder = deployment_ledger_folder(settings->state);
    if (!deployment_open(&service->deployment, settings->state, err))
        return false;
    service->kv = kv_lmdb_open(folder, (size_t)settings->map_mb * 1024 * 1024, err);
    if (service->kv == NULL)
        return false;
    service->principals = principal_table_new(&service->deployment.master);
    if (settings->identity_file) {
        service->identity = identity_open(settings->identity_file, IDENTITY_AGAIN_NS, err);
        if (service->identity == NULL)
            return false;
    }
    return deployment_first_rules(&service->deployment, settings->state, service->kv, err) &&
           principal_table_load(service->principals, service->kv, err);
}

/* Read while there are rights, by a process that keeps them for these two files (shared/http/DESIGN.md). */
static bool open_tls(struct service *service, struct error *err)
{
    const struct settings *settings = &service->settings;
    if (!trust_set(settings->tls_ca, NULL, err))
        return false;
    service->upstream_tls = trust_context(err);
    if (service->upstream_tls == NULL)
        return false;
    if (settings->tls_cert)
        service->tls = http_tls_open(settings->tls_cert, settings->tls_key, err);
    return service->tls != NULL || settings->tls_cert == NULL;
}

static unsigned loop_count(const struct settings *settings)
{
    long cpus = settings->loops ? (long)settings->loops : sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > 64 ? 64 : (unsigned)cpus;
}

/* Who lost his keys gets nothing more; an outside identity has none here, and never everybody's. */
static bool may_get_events(void *context, const char *principal, bool all)
{
    struct service *service = context;
    bool is_outside = strchr(principal, ':') != NULL;
    return (is_outside && !all) || principal_table_has(service->principals, principal, all ? ROLE_ADMIN : ROLE_VIEWER);
}

static bool start_courier(struct service *service, struct error *err)
{
    const struct settings *settings = &service->settings;
    service->courier = courier_start(&(struct courier_options){.leasing = service->leasing,
                                                               .ledger = service->ledger,
                                                               .hub = service->hub,
                                                               .hosts = settings->webhook_hosts,
                                                               .give_up_s = settings->webhook_give_up,
                                                               .may = may_get_events,
                                                               .context = service},
                                     err);
    service->plane.courier = service->courier;
    return service->courier != NULL;
}

static bool start_planes(struct service *service, struct error *err)
{
    const struct settings *settings = &service->settings;
    service->fleet = fleet_start(&(struct fleet_options){.master = &service->deployment.master,
                                                         .deployment = service->deployment.id,
                                                         .workers = (unsigned)settings->node_calls,
                                                         .call_timeout_ms = (unsigned)settings->call_timeout * 1000,
                                                         .wall_ms = clock_wall_ms,
                                                         .boot_ns = clock_boot_ns},
                                 err);
    if (service->fleet == NULL || !fleet_load(service->fleet, service->kv, err))
        return false;
    service->ledger = ledger_start(service->kv, err);
    if (service->ledger == NULL)
        return false;
    service->kv = NULL;
    service->hub = events_hub_new(service->ledger);
    service->leasing =
        leasing_new(&(struct leasing_options){.ledger = service->ledger,
                                              .master = &service->deployment.master,
                                              .deployment = service->deployment.id,
                                              .nodes = plane_nodes(service->fleet),
                                              .limits = {.ttl_default_s = settings->ttl_default,
                                                         .ttl_max_s = settings->ttl_max,
                                                         .idle_timeout_s = settings->idle_timeout,
                                                         .max_lifetime_s = settings->lease_lifetime,
                                                         .max_lifetime_max_s = settings->max_lifetime,
                                                         .long_ttl_max_s = settings->long_ttl_max,
                                                         .unattended_max_s = settings->unattended_max,
                                                         .resources = {.cpu_milli = settings->cpu_milli,
                                                                       .memory_mb = settings->memory_mb,
                                                                       .disk_mb = settings->disk_mb,
                                                                       .pids = settings->pids}},
                                              .policy = {.templates_user = settings->templates_user,
                                                         .templates_admin = settings->templates_admin,
                                                         .root_roles = settings->root_roles,
                                                         .egress_user = settings->egress_user,
                                                         .snapshots_max = (size_t)settings->snapshots_max,
                                                         .volumes_max = (size_t)settings->volumes_max},
                                              .audit_keep_days = settings->audit_keep_days,
                                              .principals = service->principals,
                                              .wall_ms = clock_wall_ms});
    service->plane = (struct plane){.leasing = service->leasing,
                                    .fleet = service->fleet,
                                    .ledger = service->ledger,
                                    .principals = service->principals,
                                    .hub = service->hub,
                                    .identity = service->identity,
                                    .preview_domain = settings->preview_domain,
                                    .image_templates = settings->image_templates,
                                    .opensandbox_egress = settings->opensandbox_egress,
                                    .metrics_open = settings->metrics_open,
                                    .passing_room = passing_room_of_process()};
    return (service->identity == NULL || identity_start(service->identity, err)) &&
           leasing_start(service->leasing, err) && start_courier(service, err);
}

/* Of those that print errors otherwise than the native dialect. */
static json_t *error_body(const struct http_request *request, const struct error *err)
{
    json_t *body = execute_error(request, err);
    return body ? body : opensandbox_error(request, err);
}

static bool start_server(struct service *service, struct error *err)
{
    const struct settings *settings = &service->settings;
    struct http_server_options options = {.host = settings->host,
                                          .port = (uint16_t)settings->port,
                                          .tls = service->tls,
                                          .upstream_tls = service->upstream_tls,
                                          .loops = loop_count(settings),
                                          .name = "negotiator",
                                          .authorize = plane_authorize,
                                          .gate = outside_gate,
                                          .loop_started = plane_loop_started,
                                          .loop_ending = plane_loop_ending,
                                          .header_prefix = {.header = "open-sandbox-api-key", .prefix = "/v1"},
                                          .error_body = error_body,
                                          .context = &service->plane,
                                          .limits = {.per_minute = (unsigned)settings->rate_per_minute,
                                                     .burst = (unsigned)settings->rate_burst,
                                                     .loopback = settings->rate_loopback,
                                                     .failures_per_minute = (unsigned)settings->auth_failures,
                                                     .trusted_proxies = settings->trusted_proxies}};
    options.routes = plane_routes(&options.route_count);
    service->server = http_server_start(&options, err);
    if (service->server == NULL)
        return false;
    log_info("negotiator", "listening url=%s://%s:%u deployment=%s version=" PARLEY_VERSION,
             service->tls ? "https" : "http", settings->host, http_server_port(service->server),
             service->deployment.id);
    return true;
}

/* Until its heartbeat a node takes nothing: without asking that would be up to 2 s. */
static void call_nodes(struct fleet *fleet)
{
    size_t count = 0;
    AUTO_FREE struct fleet_view *nodes = fleet_list(fleet, &count);
    for (size_t i = 0; i < count; i++)
        fleet_call(fleet, nodes[i].name, json_pack("{s:s}", "call", "beat"), NULL, NULL);
}

/* Requests first, while all they wait for still answers; then the calls to nodes, which end in rules; then the ledger,
 * whose answers go to loops that are there until the server is freed. */
static void stop(struct service *service)
{
    if (service->server)
        http_server_stop(service->server, STOP_GRACE_MS);
    identity_free(service->identity); /* its last answers are posts to loops, too */
    courier_stop(service->courier);
    if (service->leasing)
        leasing_stopping(service->leasing);
    if (service->fleet)
        fleet_stop(service->fleet);
    ledger_stop(service->ledger);
    courier_free(service->courier);
    kv_free(service->kv);
    leasing_free(service->leasing); /* its last answers are posts to loops, which the server frees */
    http_server_free(service->server);
    passing_room_free(service->plane.passing_room); /* requests that end leave it */
    http_tls_free(service->tls);
    SSL_CTX_free(service->upstream_tls);
    fleet_free(service->fleet);
    events_hub_free(service->hub); /* requests that end leave it */
    principal_table_free(service->principals);
    deployment_done(&service->deployment);
    settings_done(&service->settings);
}

static bool start(struct service *service, int argc, char *argv[], struct error *err)
{
    /* Confined before any thread starts: the store is open by then, the port is one that needs no right. */
    return settings_load(&service->settings, argc, argv, err) && notify_open(&service->notify, err) &&
           open_tls(service, err) && open_state(service, err) && confine(service, err) && start_planes(service, err) &&
           start_server(service, err);
}

/* Until a signal says that it is over; returns it. Signs of life go out while all threads take work. */
static int serve(struct service *service, const sigset_t *ends)
{
    const struct notify *notify = &service->notify;
    struct timespec every = {.tv_sec = (time_t)(notify->every_ns / SECOND_NS),
                             .tv_nsec = (long)(notify->every_ns % SECOND_NS)};
    notify_ready(notify);
    for (;;) {
        int number = notify->every_ns ? sigtimedwait(ends, NULL, &every) : sigwaitinfo(ends, NULL);
        if (number == SIGHUP && service->identity) {
            identity_reload(service->identity);
            continue;
        }
        if (number > 0)
            return number;
        if (errno != EAGAIN)
            continue;
        if (pulse_felt(&service->pulse, service->server, service->ledger))
            notify_alive(notify);
        else
            log_warn("negotiator", "a thread has taken no work for %llu ms; no sign of life is given",
                     (unsigned long long)(notify->every_ns / MS_NS));
    }
}

int serve_main(int argc, char *argv[])
{
    struct service service = {.kv = NULL, .notify = NOTIFY_NONE};
    struct error err = {0};
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGHUP);            /* ends us too, where there is nothing to read again */
    sigprocmask(SIG_BLOCK, &ends, NULL); /* the threads inherit it: only main hears them */
    signal(SIGPIPE, SIG_IGN);
    umask(0077);
    keys_start();
    bool started = start(&service, argc, argv, &err);
    if (started) {
        call_nodes(service.fleet);
        int number = serve(&service, &ends);
        notify_stopping(&service.notify);
        log_info("negotiator", "stopping signal=%d", number);
    } else {
        log_error("negotiator", "%s", err.message);
    }
    stop(&service);
    notify_close(&service.notify);
    return started ? 0 : err.kind == ERROR_INVALID ? 2 : 1;
}
