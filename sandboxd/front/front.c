/* front.c - start-up: give up all rights, read the journal, meet the launcher, serve until told to stop. */
#include "sandboxd/front/front.h"

#include "sandboxd/dialects/execd/execd.h"
#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/sandbox/terminal_holders.h"
#include "sandboxd/dialects/execute/execute.h"
#include "sandboxd/dialects/guest/guest_gate.h"
#include "sandboxd/dialects/native/files/files.h"
#include "sandboxd/dialects/native/kernels/kernels_routes.h"
#include "sandboxd/dialects/native/metrics.h"
#include "sandboxd/dialects/native/native.h"
#include "sandboxd/dialects/native/ports/ports_routes.h"
#include "sandboxd/dialects/native/previews/previews.h"
#include "sandboxd/dialects/native/socket/socket.h"
#include "sandboxd/dialects/node.h"
#include "sandboxd/dialects/policy_relay.h"
#include "sandboxd/front/authorize.h"
#include "sandboxd/front/connections.h"
#include "sandboxd/front/heartbeat.h"
#include "sandboxd/front/ship.h"
#include "sandboxd/front/streams.h"
#include "sandboxd/helpers/drivers/bridge.h"
#include "sandboxd/sandbox/ports/port_pool.h"
#include "shared/base/confine.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/http/tls.h"
#include "shared/trust/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STOP_GRACE_MS = 10000, LOOPS_DEFAULT_MAX = 4 };

/* `context` stands first: it is the server's. */
struct front {
    struct authorize_context context;
    const struct settings *settings;
    const struct front_guest *guest; /* NULL: it is none */
    /* Below STATE/sandboxd, O_PATH, opened while there were rights: */
    int run_folder;
    int spool_folder;   /* ours; large bodies */
    int journal_folder; /* ours; marks and audit */
    int paused_folder;  /* ours; which sandboxes are paused */
    int journal_lock;   /* held while this process may write there */
    struct streams *streams;
    unsigned loops;
    struct http_tls *tls; /* NULL: plain HTTP */
    struct http_route *routes;
    size_t route_count;
    _Atomic(struct heartbeat *) heartbeat; /* set once; the loops wake it */
    _Atomic(struct ship *) ship;           /* set once; the spool wakes it */
};

/* ---- routes ---- */

static const struct http_route *(*const DIALECTS[])(size_t *count) = {
    native_routes, kernels_routes, metrics_routes, files_routes,        socket_routes,
    ports_routes,  execute_routes, node_routes,    plane_metrics_routes};

static void join_routes(struct http_route **all, size_t *count, const struct http_route *routes, size_t some)
{
    *all = memory_resize(*all, (*count + some) * sizeof **all);
    memcpy(*all + *count, routes, some * sizeof **all);
    *count += some;
}

static struct http_route *collect_routes(bool is_guest, size_t *count)
{
    struct http_route *all = NULL;
    *count = 0;
    size_t execd_count;
    AUTO_FREE struct http_route *execd = execd_routes(&execd_count);
    join_routes(&all, count, execd, execd_count);
    for (size_t i = 0; i < sizeof DIALECTS / sizeof *DIALECTS; i++) {
        size_t some;
        if (is_guest && (DIALECTS[i] == node_routes || DIALECTS[i] == plane_metrics_routes))
            continue;
        const struct http_route *routes = DIALECTS[i](&some);
        join_routes(&all, count, routes, some);
    }
    return all;
}

/* An error's body, where the route's dialect has one of its own. */
static json_t *error_body(const struct http_request *request, const struct error *err)
{
    json_t *body = execute_error(request, err);
    body = body ? body : execd_error(request, err);
    return body ? body : policy_relay_error(request, err);
}

void front_print_routes(void)
{
    size_t count;
    AUTO_FREE struct http_route *routes = collect_routes(false, &count);
    http_routes_print(routes, count);
}

/* ---- settings ---- */

static bool check_settings(const struct settings *settings, struct error *err)
{
    if (settings->port > 0 && settings->port < 1024)
        return error_set(err, ERROR_INVALID, "port %lld: the front has no right to ports below 1024",
                         (long long)settings->port);
    return true;
}

/* A guest serves one sandbox, which is one loop's. */
static unsigned count_loops(const struct settings *settings, const struct front_guest *guest)
{
    if (settings->loops > 0 || guest)
        return settings->loops > 0 ? (unsigned)settings->loops : 1;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > LOOPS_DEFAULT_MAX ? LOOPS_DEFAULT_MAX : (unsigned)cores;
}

static char *make_url(const struct front *front, uint16_t port)
{
    const struct settings *settings = front->settings;
    if (settings->advertise_url)
        return memory_string(settings->advertise_url);
    bool v6 = strchr(settings->listen_host, ':') != NULL;
    return memory_printf("%s://%s%s%s:%u", front->tls ? "https" : "http", v6 ? "[" : "", settings->listen_host,
                         v6 ? "]" : "", port);
}

/* ---- rights ---- */

/* A folder of the front's own, -1 when it cannot be had. */
static int open_own(const struct settings *settings, const char *name, uid_t uid, gid_t gid, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/sandboxd/%s", settings->state, name);
    if (!fd_make_folders(path, 0700, err))
        return -1;
    if (geteuid() == 0 && lchown(path, uid, gid) != 0) {
        error_set_errno(err, ERROR_INTERNAL, "give %s to the front's user", path);
        return -1;
    }
    int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    return folder;
}

/* Where the kernel does not tell, there are none. */
static void open_pressure(struct plane *plane)
{
    plane->pressure[0] = open("/proc/pressure/cpu", O_RDONLY | O_CLOEXEC);
    plane->pressure[1] = open("/proc/pressure/memory", O_RDONLY | O_CLOEXEC);
    plane->pressure[2] = open("/proc/pressure/io", O_RDONLY | O_CLOEXEC);
}

/* While there are rights: the folders that lie below others our user may not be able to cross. */
static bool open_folders(struct front *front, uid_t uid, gid_t gid, struct error *err)
{
    AUTO_FREE char *run = memory_printf("%s/sandboxd/run", front->settings->state);
    front->run_folder = open(run, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (front->run_folder < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", run);
    front->spool_folder = open_own(front->settings, "spool", uid, gid, err);
    if (front->spool_folder >= 0)
        front->journal_folder = open_own(front->settings, "journal", uid, gid, err);
    if (front->journal_folder >= 0)
        front->paused_folder = open_own(front->settings, "paused", uid, gid, err);
    return front->paused_folder >= 0;
}

/* While there are rights: what calls and callers are judged by. */
static bool open_tls(struct front *front, struct error *err)
{
    const struct settings *settings = front->settings;
    if (front->guest)
        return true; /* its node's front speaks TLS */
    if (!trust_set(settings->tls_ca, settings->tls_fingerprint, err))
        return false;
    if (settings->tls_cert)
        front->tls = http_tls_open(settings->tls_cert, settings->tls_key, err);
    return front->tls != NULL || settings->tls_cert == NULL;
}

static bool give_up_rights(const struct front *front, uid_t uid, gid_t gid, struct error *err)
{
    char spool[32], journal[32], paused[32];
    snprintf(spool, sizeof spool, "/proc/self/fd/%d", front->spool_folder);
    snprintf(journal, sizeof journal, "/proc/self/fd/%d", front->journal_folder);
    snprintf(paused, sizeof paused, "/proc/self/fd/%d", front->paused_folder);
    const struct confine_path paths[] = {
        {"/usr/lib", CONFINE_READ},
        {"/lib", CONFINE_READ},
        {"/lib64", CONFINE_READ},
        {"/etc/ssl", CONFINE_READ},
        {"/etc/resolv.conf", CONFINE_READ},
        {"/etc/hosts", CONFINE_READ},
        {"/etc/nsswitch.conf", CONFINE_READ},
        {"/etc/host.conf", CONFINE_READ},
        {"/etc/gai.conf", CONFINE_READ},
        {"/etc/localtime", CONFINE_READ},
        {"/proc/self", CONFINE_READ},
        {"/dev/null", CONFINE_READ | CONFINE_WRITE},
        {"/dev/urandom", CONFINE_READ},
        {spool, CONFINE_READ | CONFINE_WRITE},
        {journal, CONFINE_READ | CONFINE_WRITE},
        {paused, CONFINE_READ | CONFINE_WRITE},
    };
    if (!confine_user(uid, gid, err))
        return false;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* a change of uid forgets it */
    if (!confine_calls(err))
        return false;
    int abi = 0;
    /* The listener is bound after this, by the server: binding stays allowed. */
    if (confine_landlock(paths, sizeof paths / sizeof *paths, false, &abi, err))
        return true;
    if (abi != 0)
        return false;
    log_warn("front", "this kernel has no Landlock: the front sees the file system as its user does");
    *err = (struct error){0};
    return true;
}

/* Raises the limit as far as it goes; returns it. */
static unsigned raise_descriptor_limit(void)
{
    struct rlimit limit = {0};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1024;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > INT32_MAX ? INT32_MAX : (unsigned)limit.rlim_cur;
}

/* The sandboxes have FL_FDS and one for the link each, if as many as may be are there. */
static unsigned descriptors_of_sandboxes(const struct settings *settings)
{
    return (unsigned)settings->slots_max * (FL_FDS + 1) + 128;
}

/* Connections take up to three quarters of what the sandboxes leave (shared/http); the rest is for commands. */
static unsigned descriptors_for_commands(unsigned limit, const struct settings *settings)
{
    unsigned apart = descriptors_of_sandboxes(settings);
    unsigned left = limit > apart ? (limit - apart) / 4 : 0;
    return left > 256 ? left : 256;
}

/* ---- hooks ---- */

static void on_loop_started(struct loop *loop, void *context)
{
    struct front *front = context;
    front->context.caches[loop_index(loop)] = capability_cache_new(AUTHORIZE_CACHE_SLOTS);
    front->context.plane.port_pools[loop_index(loop)] = port_pool_new(loop, front->context.plane.sandboxes);
    sandboxes_loop_started(front->context.plane.sandboxes, loop);
    streams_loop_started(front->streams, loop);
}

static void on_loop_ending(struct loop *loop, void *context)
{
    struct front *front = context;
    streams_loop_ending(front->streams, loop);
    sandboxes_loop_ending(front->context.plane.sandboxes, loop);
    port_pool_free(TAKE(front->context.plane.port_pools[loop_index(loop)]));
    capability_cache_free(TAKE(front->context.caches[loop_index(loop)]));
}

/* The heartbeat goes now. */
static void on_news(void *context)
{
    struct front *front = context;
    heartbeat_wake(front->heartbeat);
}

static void on_sandbox_ended(void *context)
{
    struct front *front = context;
    if (front->streams) /* not of the ends that the launcher tells before there are any */
        streams_sandbox_ended(front->streams);
    on_news(context);
}

static void on_spool_grown(void *context)
{
    struct front *front = context;
    ship_wake(front->ship);
}

static bool on_command_starts(void *context, const struct process_deed *deed, struct error *err)
{
    struct front *front = context;
    return plane_command_starts(&front->context.plane, deed, err);
}

static bool on_command_takes_input(void *context, const struct process_deed *deed, struct error *err)
{
    struct front *front = context;
    return plane_command_takes_input(&front->context.plane, deed, err);
}

static void on_command_ended(void *context, const struct process_deed *deed)
{
    struct front *front = context;
    plane_command_ended(&front->context.plane, deed);
}

static bool on_sandbox_changes(void *context, const struct sandbox_deed *deed, struct error *err)
{
    struct front *front = context;
    return plane_sandbox_changes(&front->context.plane, deed, err);
}

static bool raise_epoch(void *cookie, const struct mark *mark)
{
    if (mark->kind == MARK_SANDBOX && mark->epoch > 0)
        registry_raise_epoch(cookie, mark->value, mark->epoch);
    return true;
}

/* On the marks thread. */
static void on_cut(void *context, struct marks_batch *batch)
{
    struct front *front = context;
    marks_batch_each(batch, raise_epoch, sandboxes_registry(front->context.plane.sandboxes));
    streams_cut(front->streams, batch);
}

/* Without the launcher there is nothing to guard and nobody to restart us: systemd or `parley up` starts both anew. */
static void on_launcher_gone(void *context UNUSED)
{
    log_flush();
    _exit(1);
}

/* ---- the stages of front_main ---- */

/* Who is around a guest has counted already, and is whom all requests come from. */
static struct http_limits limits_of(const struct front *front)
{
    const struct settings *settings = front->settings;
    if (front->guest)
        return (struct http_limits){.per_minute = 0};
    return (struct http_limits){.per_minute = (unsigned)settings->rate_per_minute,
                                .loopback = settings->rate_loopback,
                                .failures_per_minute = (unsigned)settings->auth_failures,
                                .trusted_proxies = settings->trusted_proxies};
}

static struct http_server *start_server(struct front *front, struct error *err)
{
    char spool[32];
    snprintf(spool, sizeof spool, "/proc/self/fd/%d", front->spool_folder);
    front->routes = collect_routes(front->guest != NULL, &front->route_count);
    struct http_server_options options = {
        .host = front->guest && front->guest->connections >= 0 ? NULL : front->settings->listen_host,
        .port = (uint16_t)front->settings->port,
        .tls = front->tls,
        .loops = front->loops,
        .name = "front",
        .routes = front->routes,
        .route_count = front->route_count,
        .host_rule = {front->settings->preview_domain, previews_route(), previews_below},
        .prefix_alias = {"/sandboxes/", "/s/"}, /* of OpenSandbox's clients */
        .authorize = authorize,
        .gate = guest_gate,
        .loop_started = on_loop_started,
        .loop_ending = on_loop_ending,
        .context = front,
        .error_body = error_body,
        .spool_folder = spool,
        .limits = limits_of(front),
        .descriptors_apart = descriptors_of_sandboxes(front->settings),
    };
    return http_server_start(&options, err);
}

static void wait_for_signal(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    int number = 0;
    while (sigwait(&set, &number) != 0) {
    }
    log_info("front", "stopping on signal %d", number);
}

/* What the marks still owe to heartbeat and loops they give when they are freed: before those are. */
static void stop(struct front *front, struct http_server *server, struct heartbeat *heartbeat, struct ship *ship)
{
    policy_relay_stop(front->context.plane.policy_relay);
    ship_stopping(ship); /* its call may hang as long as the server's grace: both at once, as the launcher waits 15 s */
    http_server_stop(server, STOP_GRACE_MS);
    heartbeat_stop(heartbeat);
    marks_free(TAKE(front->context.plane.marks));
    front->heartbeat = NULL;
    heartbeat_free(heartbeat);
    ship_stop(ship); /* freed after the spool, whose thread may still wake it */
}

/* NULL: there is no negotiator, or it cannot start. */
static struct policy_relay *start_policy_relay(const struct front *front, struct error *err)
{
    const char *negotiator = node_seal_identity(front->context.plane.seal)->negotiator_url;
    return negotiator[0] ? policy_relay_start(negotiator, err) : NULL;
}

static bool serve(struct front *front, struct error *err)
{
    struct plane *plane = &front->context.plane;
    AUTO_FREE char *url = NULL; /* told to requests: freed after the server, as the relay */
    struct error why = {0};
    AUTO(policy_relay) *relay = start_policy_relay(front, &why);
    if (why.kind != ERROR_NONE) {
        *err = why;
        return false;
    }
    plane->policy_relay = relay;
    AUTO(http_server) *server = start_server(front, err);
    if (!server)
        return false;
    url = make_url(front, http_server_port(server));
    atomic_store(&front->context.plane.url, url);
    struct heartbeat_options options = {.seal = plane->seal,
                                        .registry = sandboxes_registry(plane->sandboxes),
                                        .templates = sandboxes_templates(plane->sandboxes),
                                        .marks = plane->marks,
                                        .url = url};
    struct ship_options shipping = {.spool = plane->spool, .seal = plane->seal};
    struct heartbeat *heartbeat = heartbeat_start(&options, err);
    struct ship *ship = heartbeat ? ship_start(&shipping, err) : NULL;
    if (ship) {
        front->heartbeat = heartbeat;
        front->ship = ship;
        log_info("front", "listening url=%s loops=%u", url, front->loops);
        wait_for_signal();
    }
    stop(front, server, heartbeat, ship);
    return ship != NULL;
}

static void tell_ready(const struct front *front, const char *url)
{
    AUTO_FREE struct registry_line *lines = NULL;
    bool listens = front->guest->connections < 0;
    size_t count = registry_lines(sandboxes_registry(front->context.plane.sandboxes), REGISTRY_LIVING, 1, &lines);
    log_info("front", "guest ready sandbox=%s%s%s", count ? lines[0].id : "none", listens ? " url=" : "",
             listens ? url : "");
}

/* No negotiator, so neither heartbeat nor shipping. */
static bool serve_guest(struct front *front, struct error *err)
{
    AUTO_FREE char *url = NULL;
    AUTO(http_server) *server = start_server(front, err);
    if (!server)
        return false;
    url = make_url(front, http_server_port(server));
    atomic_store(&front->context.plane.url, url);
    struct connections *connections = NULL;
    if (front->guest->connections >= 0)
        connections = connections_start(server, front->guest->connections);
    tell_ready(front, url);
    wait_for_signal();
    connections_stop(connections);
    http_server_stop(server, STOP_GRACE_MS);
    http_server_free(TAKE(server));
    connections_free(connections);
    marks_free(TAKE(front->context.plane.marks));
    return true;
}

/* The front before us, killed with its launcher, may still be in a write. */
static bool lock_journal(struct front *front, struct error *err)
{
    front->journal_lock = openat(front->journal_folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (front->journal_lock < 0 || flock(front->journal_lock, LOCK_EX | LOCK_NB) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "lock the journal");
    return true;
}

static bool open_journal(struct front *front, struct error *err)
{
    if (!lock_journal(front, err))
        return false;
    struct marks_options marks = {.folder = front->journal_folder, .cut = on_cut, .context = front};
    struct spool_options spool = {.folder = front->journal_folder,
                                  .sync_always = text_equal(front->settings->audit_sync, "always"),
                                  .bytes_max = (uint64_t)front->settings->audit_spool_mb << 20,
                                  .grown = on_spool_grown,
                                  .context = front};
    /* A node that does not know what was revoked must not serve: marks that cannot be read end the front. */
    front->context.plane.marks = marks_open(&marks, err);
    if (!front->context.plane.marks || front->guest) /* who is around a guest keeps the audit */
        return front->context.plane.marks != NULL;
    front->context.plane.spool = spool_open(&spool, err);
    return front->context.plane.spool != NULL;
}

static void close_journal(struct front *front)
{
    marks_free(TAKE(front->context.plane.marks));
    spool_free(TAKE(front->context.plane.spool));
    ship_free(front->ship);
    streams_free(TAKE(front->streams));
}

static struct sandboxes *make_sandboxes(struct front *front, int launcher_socket, unsigned descriptors)
{
    struct sandboxes_options options = {.loops = front->loops,
                                        .descriptors_max = descriptors,
                                        .launcher = launcher_socket,
                                        .run_folder = front->run_folder,
                                        .paused_folder = front->paused_folder,
                                        .ended = on_sandbox_ended,
                                        .templates_changed = on_news,
                                        .launcher_gone = on_launcher_gone,
                                        .command_starts = on_command_starts,
                                        .command_takes_input = on_command_takes_input,
                                        .command_ended = on_command_ended,
                                        .sandbox_changes = on_sandbox_changes,
                                        .context = front};
    return sandboxes_new(&options);
}

static bool run(struct front *front, int launcher_socket, struct error *err)
{
    uid_t uid;
    gid_t gid;
    if (!check_settings(front->settings, err))
        return false;
    confine_find_user(front->settings->front_user, (uid_t)front->settings->front_uid, &uid, &gid);
    unsigned limit = raise_descriptor_limit();
    if (!driver_bridge_load(front->settings->jupyter, err)) /* while there are rights */
        log_warn("front", "no Jupyter kernels: %s", err->message);
    open_pressure(&front->context.plane);
    if (!open_folders(front, uid, gid, err) || !open_tls(front, err) || !give_up_rights(front, uid, gid, err))
        return false;
    AUTO(sandboxes) *sandboxes =
        make_sandboxes(front, launcher_socket, descriptors_for_commands(limit, front->settings));
    struct fl_identity identity;
    if (!sandboxes_meet_launcher(sandboxes, &identity, err))
        return false;
    AUTO(node_seal) *seal = node_seal_new(&identity);
    key_done(&identity.link_to_node);
    key_done(&identity.link_from_node);
    front->context.plane.sandboxes = sandboxes;
    front->context.plane.seal = seal;
    AUTO(terminal_holders) *terminals = terminal_holders_new(sandboxes_registry(sandboxes)); /* freed when the loops have ended */
    front->context.plane.terminals = terminals;
    front->context.plane.omit_argv = !front->settings->audit_argv;
    front->context.plane.long_contact_max_s = front->settings->long_contact_max;
    front->context.plane.metrics_open = front->settings->metrics_open;
    front->context.plane.previews.domain = front->settings->preview_domain;
    const char *told = front->settings->advertise_url;
    front->context.plane.previews.is_secure = told ? text_starts_with(told, "https://") : front->tls != NULL;
    front->context.plane.beat = on_news;
    front->context.plane.beat_context = front;
    front->context.plane.judge = authorize_late;
    front->streams = streams_new(sandboxes);
    bool served = open_journal(front, err) && (front->guest ? serve_guest(front, err) : serve(front, err));
    close_journal(front);
    return served;
}

int front_main(int launcher_socket, const struct settings *settings, const struct front_guest *guest)
{
    struct front front = {.settings = settings,
                          .guest = guest,
                          .run_folder = -1,
                          .spool_folder = -1,
                          .journal_folder = -1,
                          .paused_folder = -1,
                          .journal_lock = -1,
                          .context.plane.pressure = {-1, -1, -1}};
    struct error err = {0};
    sigset_t set;
    sigemptyset(&set); /* all threads: one waits for these */
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    keys_start();
    json_object_seed(0); /* jansson's seed is not made under a lock */
    front.loops = count_loops(settings, guest);
    bool ok = run(&front, launcher_socket, &err);
    if (!ok)
        log_error("front", "%s", err.message);
    free(front.routes);
    http_tls_free(front.tls);
    const int held[] = {front.run_folder,
                        front.spool_folder,
                        front.journal_folder,
                        front.paused_folder,
                        front.journal_lock,
                        front.context.plane.pressure[0],
                        front.context.plane.pressure[1],
                        front.context.plane.pressure[2]};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (held[i] >= 0)
            close(held[i]);
    return ok ? 0 : 1;
}
