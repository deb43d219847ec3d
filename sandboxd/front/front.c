/* front.c - start-up: meet the launcher, give up all rights, serve until told to stop. */
#include "sandboxd/front/front.h"

#include "sandboxd/dialects/native.h"
#include "sandboxd/dialects/node.h"
#include "sandboxd/front/authorize.h"
#include "sandboxd/front/heartbeat.h"
#include "shared/base/confine.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STOP_GRACE_MS = 10000, LOOPS_DEFAULT_MAX = 4 };

/* `context` stands first: it is the server's. */
struct front {
    struct authorize_context context;
    const struct settings *settings;
    int run_folder;   /* O_PATH of STATE/sandboxd/run, opened while there were rights */
    int spool_folder; /* O_PATH of STATE/sandboxd/spool, ours */
    unsigned loops;
    struct http_route *routes;
    size_t route_count;
    _Atomic(struct heartbeat *) heartbeat; /* set once; loop 0 wakes it */
};

/* ---- routes ---- */

static struct http_route *collect_routes(size_t *count)
{
    size_t native_count, node_count;
    const struct http_route *native = native_routes(&native_count), *node = node_routes(&node_count);
    *count = native_count + node_count;
    struct http_route *all = memory_array(*count, sizeof *all);
    memcpy(all, native, native_count * sizeof *all);
    memcpy(all + native_count, node, node_count * sizeof *all);
    return all;
}

void front_print_routes(void)
{
    size_t count;
    AUTO_FREE struct http_route *routes = collect_routes(&count);
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

static unsigned count_loops(const struct settings *settings)
{
    if (settings->loops > 0)
        return (unsigned)settings->loops;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > LOOPS_DEFAULT_MAX ? LOOPS_DEFAULT_MAX : (unsigned)cores;
}

static char *make_url(const struct settings *settings, uint16_t port)
{
    if (settings->advertise_url)
        return memory_string(settings->advertise_url);
    bool v6 = strchr(settings->listen_host, ':') != NULL;
    return memory_printf("http://%s%s%s:%u", v6 ? "[" : "", settings->listen_host, v6 ? "]" : "", port);
}

/* ---- rights ---- */

/* While there are rights: the folders that lie below others our user may not be able to cross. */
static bool open_folders(struct front *front, uid_t uid, gid_t gid, struct error *err)
{
    AUTO_FREE char *run = memory_printf("%s/sandboxd/run", front->settings->state);
    AUTO_FREE char *spool = memory_printf("%s/sandboxd/spool", front->settings->state);
    front->run_folder = open(run, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (front->run_folder < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", run);
    if (!fd_make_folders(spool, 0700, err))
        return false;
    if (geteuid() == 0 && lchown(spool, uid, gid) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "give %s to the front's user", spool);
    front->spool_folder = open(spool, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (front->spool_folder < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", spool);
    return true;
}

static bool give_up_rights(const struct front *front, uid_t uid, gid_t gid, struct error *err)
{
    char spool[32];
    snprintf(spool, sizeof spool, "/proc/self/fd/%d", front->spool_folder);
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
    };
    if (!confine_user(uid, gid, err))
        return false;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* a change of uid forgets it */
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

/* Connections take up to three quarters (shared/http); the sandboxes themselves FL_FDS and one for the link each. What
 * is left is for commands. */
static unsigned descriptors_for_commands(unsigned limit, int64_t slots_max)
{
    int64_t left = limit / 4 - slots_max * (FL_FDS + 1) - 128;
    return left > 256 ? (unsigned)left : 256;
}

/* ---- hooks ---- */

static void on_loop_started(struct loop *loop, void *context)
{
    struct front *front = context;
    front->context.caches[loop_index(loop)] = capability_cache_new(AUTHORIZE_CACHE_SLOTS);
    sandboxes_loop_started(front->context.plane.sandboxes, loop);
}

static void on_loop_ending(struct loop *loop, void *context)
{
    struct front *front = context;
    sandboxes_loop_ending(front->context.plane.sandboxes, loop);
    capability_cache_free(TAKE(front->context.caches[loop_index(loop)]));
}

static void on_sandbox_ended(void *context)
{
    struct front *front = context;
    heartbeat_wake(front->heartbeat);
}

/* Without the launcher there is nothing to guard and nobody to restart us: systemd or `parley up` starts both anew. */
static void on_launcher_gone(void *context UNUSED)
{
    log_flush();
    _exit(1);
}

/* ---- the stages of front_main ---- */

static struct http_server *start_server(struct front *front, struct error *err)
{
    char spool[32];
    snprintf(spool, sizeof spool, "/proc/self/fd/%d", front->spool_folder);
    front->routes = collect_routes(&front->route_count);
    struct http_server_options options = {
        .host = front->settings->listen_host,
        .port = (uint16_t)front->settings->port,
        .loops = front->loops,
        .name = "front",
        .routes = front->routes,
        .route_count = front->route_count,
        .authorize = authorize,
        .loop_started = on_loop_started,
        .loop_ending = on_loop_ending,
        .context = front,
        .spool_folder = spool,
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

static bool serve(struct front *front, struct error *err)
{
    AUTO(http_server) *server = start_server(front, err);
    if (!server)
        return false;
    AUTO_FREE char *url = make_url(front->settings, http_server_port(server));
    struct heartbeat_options options = {
        .seal = front->context.plane.seal, .registry = sandboxes_registry(front->context.plane.sandboxes), .url = url};
    struct heartbeat *heartbeat = heartbeat_start(&options, err);
    if (!heartbeat) {
        http_server_stop(server, 0);
        return false;
    }
    front->heartbeat = heartbeat;
    log_info("front", "listening url=%s loops=%u", url, front->loops);
    wait_for_signal();
    http_server_stop(server, STOP_GRACE_MS);
    front->heartbeat = NULL;
    heartbeat_free(heartbeat);
    return true;
}

static bool run(struct front *front, int launcher_socket, struct error *err)
{
    uid_t uid;
    gid_t gid;
    if (!check_settings(front->settings, err))
        return false;
    confine_find_user(front->settings->front_user, (uid_t)front->settings->front_uid, &uid, &gid);
    unsigned limit = raise_descriptor_limit();
    struct sandboxes_options options = {.loops = front->loops,
                                        .descriptors_max = descriptors_for_commands(limit, front->settings->slots_max),
                                        .launcher = launcher_socket,
                                        .ended = on_sandbox_ended,
                                        .launcher_gone = on_launcher_gone,
                                        .context = front};
    if (!open_folders(front, uid, gid, err) || !give_up_rights(front, uid, gid, err))
        return false;
    options.run_folder = front->run_folder;
    AUTO(sandboxes) *sandboxes = sandboxes_new(&options);
    struct fl_identity identity;
    if (!sandboxes_meet_launcher(sandboxes, &identity, err))
        return false;
    AUTO(node_seal) *seal = node_seal_new(&identity);
    key_done(&identity.link_to_node);
    key_done(&identity.link_from_node);
    front->context.plane = (struct plane){.sandboxes = sandboxes, .seal = seal};
    return serve(front, err);
}

int front_main(int launcher_socket, const struct settings *settings)
{
    struct front front = {.settings = settings, .run_folder = -1, .spool_folder = -1};
    struct error err = {0};
    sigset_t set;
    sigemptyset(&set); /* all threads: one waits for these */
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    keys_start();
    json_object_seed(0); /* jansson's seed is not made under a lock */
    front.loops = count_loops(settings);
    bool ok = run(&front, launcher_socket, &err);
    if (!ok)
        log_error("front", "%s", err.message);
    free(front.routes);
    if (front.run_folder >= 0)
        close(front.run_folder);
    if (front.spool_folder >= 0)
        close(front.spool_folder);
    return ok ? 0 : 1;
}
