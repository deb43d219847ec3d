#include "sandboxd/egress/egress.h"

#include "sandboxd/egress/dns_server.h"
#include "sandboxd/egress/lookup.h"
#include "sandboxd/egress/pipe_stock.h"
#include "sandboxd/egress/proxy.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>

struct egress {
    struct house house;
    bool is_over;
    struct error err; /* why, when it is the launcher's fault */
};

/* ---- sandboxes ---- */

static struct sandbox **find(struct house *house, uint64_t number)
{
    struct sandbox **at = &house->sandboxes;
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

static void sandbox_free(struct sandbox **at)
{
    struct sandbox *sandbox = *at;
    *at = sandbox->next;
    proxy_free(sandbox->proxy);
    dns_server_free(sandbox->dns);
    policy_free(sandbox->policy);
    pins_free(sandbox->pins);
    free(sandbox);
}

static bool is_socket(int fd, int type, bool listens)
{
    int domain = 0;
    int is_type = 0;
    int accepts = 0;
    socklen_t size = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_INET &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &is_type, &size) == 0 && is_type == type &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0 && (accepts != 0) == listens;
}

static bool check_sockets(const int fds[static EG_FDS], struct error *err)
{
    if (!is_socket(fds[EG_FD_DNS_UDP], SOCK_DGRAM, false) || !is_socket(fds[EG_FD_DNS_TCP], SOCK_STREAM, true) ||
        !is_socket(fds[EG_FD_PROXY], SOCK_STREAM, true))
        return error_set(err, ERROR_INVALID, "the descriptors are not a UDP socket and two TCP listeners");
    for (size_t i = 0; i < EG_FDS; i++) {
        if (!fd_set_nonblocking(fds[i], err))
            return false;
    }
    return true;
}

static void add_sandbox(struct house *house, const struct eg_sandbox *said, struct policy *policy,
                        const int fds[static EG_FDS])
{
    struct sandbox *sandbox = memory_new(sizeof *sandbox);
    *sandbox = (struct sandbox){.next = house->sandboxes,
                                .house = house,
                                .number = said->number,
                                .rules = said->rules,
                                .policy = policy,
                                .pins = pins_new()};
    memcpy(sandbox->id, said->id, sizeof sandbox->id);
    house->sandboxes = sandbox;
    sandbox->dns = dns_server_new(sandbox, fds[EG_FD_DNS_UDP], fds[EG_FD_DNS_TCP]);
    sandbox->proxy = proxy_new(sandbox, fds[EG_FD_PROXY]);
}

static void change_sandbox(struct sandbox *sandbox, uint32_t rules, struct policy *policy)
{
    bool is_alike = policy_denies_alike(sandbox->policy, policy);
    sandbox->rules = rules;
    policy_free(sandbox->policy);
    sandbox->policy = policy;
    lookup_pin_again(sandbox, is_alike || !policy_denies_names(policy));
    proxy_check_again(sandbox->proxy);
}

static void close_all(const int *fds, size_t fd_count)
{
    for (size_t i = 0; i < fd_count; i++)
        close(fds[i]);
}

/* One whose rules cannot be read keeps none: it reaches nothing by name. */
static void on_sandbox(struct house *house, const struct eg_sandbox *said, const int *fds, size_t fd_count)
{
    struct error err = {0};
    struct sandbox **at = find(house, said->number);
    AUTO(policy) *policy = policy_new(said, &err);
    bool is_good = policy != NULL;
    if (is_good && (*at != NULL) != (fd_count == 0))
        is_good = error_set(&err, ERROR_INVALID, *at ? "it is known already" : "it is not known, and has no sockets");
    if (is_good && fd_count > 0)
        is_good = check_sockets(fds, &err);
    if (!is_good) {
        log_error("egress", "cannot serve: %s sandbox=%s", err.message, said->id);
        close_all(fds, fd_count);
        if (*at != NULL)
            sandbox_free(at); /* rather nothing than what the old rules said */
        return;
    }
    log_debug("egress", "%s sandbox=%s", *at ? "other rules" : "egress", said->id);
    if (*at != NULL)
        change_sandbox(*at, said->rules, TAKE(policy));
    else
        add_sandbox(house, said, TAKE(policy), fds);
}

/* ---- the launcher ---- */

static void on_message(void *cookie, const struct launcher_egress_message *message, const int *fds, size_t fd_count)
{
    struct egress *egress = cookie;
    if (message->type == EG_SANDBOX) {
        on_sandbox(&egress->house, &message->as.sandbox, fds, fd_count);
    } else if (message->type == EG_GONE) {
        struct sandbox **at = find(&egress->house, message->as.gone.number);
        if (*at != NULL)
            sandbox_free(at);
    } else {
        log_error("egress", "a message of type %u at the wrong time", message->type);
    }
}

static void on_gone(void *cookie, const struct error *err)
{
    struct egress *egress = cookie;
    egress->is_over = true;
    if (err->kind != ERROR_GONE)
        egress->err = *err;
    loop_end(egress->house.loop);
}

static bool read_config(int launcher, struct eg_config *config, struct error *err)
{
    struct launcher_egress_message message;
    int fds[EG_FDS];
    size_t count = 0;
    int got = launcher_egress_receive(launcher, &message, EG_FROM_LAUNCHER, fds, &count, err);
    if (got == 0)
        return error_set(err, ERROR_GONE, "the launcher said nothing");
    if (got < 0)
        return false;
    close_all(fds, count);
    if (message.type != EG_CONFIG)
        return error_set(err, ERROR_INVALID, "the first message is of type %u, want EG_CONFIG", message.type);
    *config = message.as.config;
    return true;
}

/* ---- the process ---- */

static void on_start(void *cookie)
{
    struct egress *egress = cookie;
    launcher_line_ready(egress->house.line);
    log_info("egress", "ready");
}

/* Inside of the loop: sockets of libh2o may be closed only there. */
static void on_end(void *cookie)
{
    struct egress *egress = cookie;
    struct house *house = &egress->house;
    while (house->sandboxes != NULL)
        sandbox_free(&house->sandboxes);
    resolver_free(TAKE(house->resolver));
    launcher_line_free(TAKE(house->line));
}

static void serve(struct egress *egress, int launcher)
{
    struct house *house = &egress->house;
    const struct launcher_line_face face = {.message = on_message, .gone = on_gone, .cookie = egress};
    loop_open(house->loop);
    house->pipes = pipe_stock_new();
    house->line = launcher_line_new(house->loop, launcher, &face);
    loop_post(house->loop, on_start, egress);
    loop_run(house->loop);
    loop_post(house->loop, on_end, egress);
    loop_close(house->loop);
    pipe_stock_free(house->pipes);
}

bool egress_run(const struct egress_options *options, struct error *err)
{
    AUTO_FD int launcher = options->launcher;
    struct eg_config config;
    struct egress egress = {.house.face = options->face};
    (void)signal(SIGPIPE, SIG_IGN); /* splice(2) knows no MSG_NOSIGNAL */
    if (!read_config(launcher, &config, err))
        return false;
    log_set_level((enum log_level)config.log_level);
    log_set_format(config.log_json ? LOG_JSON : LOG_TEXT);
    AUTO(loop) *loop = loop_new(0, err);
    if (loop == NULL)
        return false;
    egress.house.loop = loop;
    egress.house.resolver = resolver_new(loop, &config, err);
    egress.house.hellos = egress.house.resolver ? client_hello_maker_new(err) : NULL;
    bool is_good = egress.house.hellos != NULL && options->confine(&config, err) && fd_set_nonblocking(launcher, err);
    if (is_good)
        serve(&egress, TAKE_FD(launcher));
    else
        resolver_free(egress.house.resolver);
    client_hello_maker_free(egress.house.hellos);
    if (is_good && egress.err.kind != ERROR_NONE) {
        *err = egress.err;
        return false;
    }
    return is_good;
}
