/* ports.c - connections to a sandbox's ports: asked of init, checked, waited for. What comes from init is looked at
 * before it is given on: it might be no socket at all. */
#include "sandboxd/sandbox/ports/ports_internal.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static const uint64_t NS_A_MS = 1000000;

/* One that is being made. */
struct port_dial {
    struct port_dial *next;
    struct ports *ports;
    struct verb *verb;
    uint64_t number; /* of what init was asked; 0: it has answered */
    uint8_t family;
    struct loop_watch *socket; /* NULL: not there yet */
    struct loop_timer *timer;
};

bool ports_parse(const char *text, uint16_t *port, struct error *err)
{
    uint64_t number = 0;
    size_t size = strlen(text);
    if (size < 1 || size > 5 || text[0] == '0' || strspn(text, "0123456789") != size ||
        !text_parse_u64(text, size, UINT16_MAX, &number) || number == 0)
        return error_set(err, ERROR_INVALID, "a port is 1 to 65535, without a zero or a sign before it");
    *port = (uint16_t)number;
    return true;
}

struct ports *ports_of(struct sandbox *sandbox)
{
    if (!sandbox->ports) {
        sandbox->ports = memory_new(sizeof *sandbox->ports);
        sandbox->ports->sandbox = sandbox;
    }
    return sandbox->ports;
}

/* ---- counting ---- */

static bool has_room(const struct ports *ports, struct error *err)
{
    const struct sandbox *sandbox = ports->sandbox;
    int64_t max = sandbox->all->descriptors_max;
    if (ports->connections >= PORTS_CONNECTIONS_MAX)
        return error_set(err, ERROR_NO_CAPACITY, "at most %d connections to the ports of a sandbox at once; try again",
                         PORTS_CONNECTIONS_MAX);
    sandboxes_shed(sandbox->all);
    if (sandbox->descriptors + 1 > max / 4 || sandbox->all->descriptors + 1 > max)
        return error_set(err, ERROR_NO_CAPACITY,
                         "too much runs at once for this host's descriptors (ulimit -n); try again");
    return true;
}

static void count(struct ports *ports, int change)
{
    ports->connections = (unsigned)((int)ports->connections + change);
    sandbox_count_descriptors(ports->sandbox, change);
}

struct hung_up {
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
};

static void on_hung_up(void *cookie)
{
    AUTO_FREE struct hung_up *gone = cookie;
    struct sandbox *sandbox = gone->all->stopping ? NULL : sandbox_find(gone->all, gone->sandbox_id);
    if (sandbox && sandbox->ports && sandbox->ports->connections > 0)
        count(sandbox->ports, -1);
}

void ports_hung_up(struct sandboxes *all, const char *sandbox_id)
{
    struct hung_up *gone = memory_new(sizeof *gone);
    gone->all = all;
    if (text_copy(gone->sandbox_id, sizeof gone->sandbox_id, sandbox_id))
        sandboxes_post(all, registry_owner(all->registry, sandbox_id), on_hung_up, gone);
    else
        free(gone);
}

/* ---- one connection ---- */

static void dial_free(struct port_dial *dial)
{
    struct port_dial **at = &dial->ports->dials;
    while (*at != dial)
        at = &(*at)->next;
    *at = dial->next;
    loop_timer_cancel(dial->timer);
    loop_watch_free(dial->socket);
    free(dial);
}

static void hang_up(struct loop_watch *socket)
{
    if (socket != NULL)
        fd_hang_up(loop_watch_fd(socket));
    loop_watch_free(socket);
}

static void fail(struct port_dial *dial, const struct error *why)
{
    hang_up(TAKE(dial->socket));
    count(dial->ports, -1);
    verb_finish(dial->verb, why);
    dial_free(dial);
}

static void refuse(struct port_dial *dial, int number)
{
    struct error err = {0};
    errno = number;
    if (dial->family == FI_FAMILY_GUEST)
        error_set_errno(&err, ERROR_BAD_GATEWAY, "what serves the sandbox inside is not to be reached");
    else if (number == ECONNREFUSED)
        error_set(&err, ERROR_BAD_GATEWAY, "nothing listens on port %u of the sandbox", dial->verb->port);
    else
        error_set_errno(&err, ERROR_BAD_GATEWAY, "port %u of the sandbox", dial->verb->port);
    fail(dial, &err);
}

static void ask_init(struct port_dial *dial)
{
    struct front_init_message message = {.type = FI_DIAL};
    struct error err = {0};
    dial->number = ++dial->ports->last_number;
    message.as.dial = (struct fi_dial){.number = dial->number, .port = dial->verb->port, .family = dial->family};
    if (!sandbox_send(dial->ports->sandbox, &message, -1, &err))
        fail(dial, &err);
}

/* Nobody at 127.0.0.1: perhaps at ::1. What is told in the end is about the first. */
static void go_on(struct port_dial *dial, int number)
{
    hang_up(TAKE(dial->socket));
    if (dial->family != 4 || number != ECONNREFUSED) {
        refuse(dial, dial->family == 6 ? ECONNREFUSED : number);
        return;
    }
    dial->family = 6;
    ask_init(dial);
}

/* 0, or the errno of the attempt. Both families have the port at one place. A port that nobody listens at may become
 * the connection's own end, when the kernel picks it for that: then it is connected to itself. */
static int outcome_of(const struct port_dial *dial, int fd)
{
    struct sockaddr_in6 peer = {0}, own = {0};
    int number = 0;
    socklen_t size = sizeof number, peer_size = sizeof peer, own_size = sizeof own;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size) != 0 || number != 0)
        return number != 0 ? number : ENOTCONN;
    if (dial->family == FI_FAMILY_GUEST)
        return 0;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_size) != 0)
        return errno;
    if (ntohs(peer.sin6_port) != dial->verb->port)
        return EPROTO;
    return own.sin6_port == peer.sin6_port ? ECONNREFUSED : 0;
}

static void on_connected(void *cookie)
{
    struct port_dial *dial = cookie;
    int fd = loop_watch_fd(dial->socket), number = outcome_of(dial, fd);
    if (number != 0) {
        go_on(dial, number);
        return;
    }
    dial->verb->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (dial->verb->fd < 0) {
        refuse(dial, errno);
        return;
    }
    verb_finish(dial->verb, NULL);
    dial_free(dial);
}

static void on_timer(void *cookie)
{
    struct port_dial *dial = cookie;
    struct error err = {0};
    dial->timer = NULL;
    if (dial->family == FI_FAMILY_GUEST)
        error_set(&err, ERROR_TIMEOUT, "what serves the sandbox inside takes no connection");
    else
        error_set(&err, ERROR_TIMEOUT, "port %u of the sandbox takes no connection (its listener does not accept)",
                  dial->verb->port);
    fail(dial, &err);
}

void ports_verb_dial(struct sandbox *sandbox, struct verb *verb)
{
    struct ports *ports = ports_of(sandbox);
    struct error err = {0};
    if (!has_room(ports, &err)) {
        verb_finish(verb, &err);
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    sandbox_touch(sandbox);
    struct port_dial *dial = memory_new(sizeof *dial);
    *dial = (struct port_dial){
        .next = ports->dials, .ports = ports, .verb = verb, .family = verb->port == PORTS_GUEST ? FI_FAMILY_GUEST : 4};
    ports->dials = dial;
    count(ports, 1);
    dial->timer = loop_timer_start(sandbox->loop, clock_boot_ns() + PORTS_DIAL_MS * NS_A_MS, on_timer, dial);
    ask_init(dial);
}

/* ---- the face ---- */

struct dial_call {
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    void (*dialed)(void *cookie, int fd, const struct error *err);
    void *cookie;
};

static void on_done(void *cookie, const struct verb_answer *answer)
{
    AUTO_FREE struct dial_call *call = cookie;
    bool is_done = answer->error.kind == ERROR_NONE;
    call->dialed(call->cookie, is_done ? answer->fd : -1, is_done ? NULL : &answer->error);
}

void ports_dial(struct sandboxes *all, const char *sandbox_id, uint16_t port,
                void (*dialed)(void *cookie, int fd, const struct error *err), void *cookie)
{
    struct verb *verb = verb_new(all, sandbox_id);
    struct dial_call *call = memory_new(sizeof *call);
    *call = (struct dial_call){.all = all, .dialed = dialed, .cookie = cookie};
    verb->work = ports_verb_dial;
    verb->port = port;
    verb->done = on_done;
    verb->dropped = free;
    verb->cookie = call;
    verb_send(verb);
}

/* ---- what init says ---- */

static bool is_of(uint8_t family, int domain)
{
    return family == FI_FAMILY_GUEST ? domain == AF_UNIX || domain == AF_INET
                                     : domain == (family == 4 ? AF_INET : AF_INET6);
}

/* With SO_LINGER close(2) would wait, also of a socket that does not block. */
static bool is_stream(int fd, uint8_t family)
{
    static const struct linger NEVER = {0};
    int domain = 0, protocol = 0, type = 0;
    socklen_t size = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && is_of(family, domain) &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
           protocol == (domain == AF_UNIX ? 0 : IPPROTO_TCP) &&
           setsockopt(fd, SOL_SOCKET, SO_LINGER, &NEVER, sizeof NEVER) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

static struct port_dial *find(const struct ports *ports, uint64_t number)
{
    for (struct port_dial *dial = ports ? ports->dials : NULL; dial; dial = dial->next)
        if (dial->number == number)
            return dial;
    return NULL;
}

void ports_dialed(struct sandbox *sandbox, const struct fi_dialed *dialed, int *fds)
{
    struct port_dial *dial = dialed->number ? find(sandbox->ports, dialed->number) : NULL;
    if (!dial)
        return; /* given up since */
    dial->number = 0;
    if (dialed->error_number != 0) {
        go_on(dial, dialed->error_number);
        return;
    }
    if (!is_stream(fds[0], dial->family)) {
        go_on(dial, EPROTO);
        init_link_blame(sandbox->link, "not a connection of the family that was asked for");
        return;
    }
    dial->socket = loop_watch_new(sandbox->loop, TAKE_FD(fds[0]));
    loop_watch_writable(dial->socket, on_connected, dial);
}

void ports_link_lost(struct sandbox *sandbox, const struct error *why)
{
    struct ports *ports = sandbox->ports;
    if (!ports)
        return;
    for (struct port_dial *dial = ports->dials, *next; dial; dial = next) {
        next = dial->next;
        if (dial->number != 0)
            fail(dial, why);
    }
    ports_watch_lost(ports, why);
}

void ports_free(struct sandbox *sandbox, const struct error *err)
{
    struct ports *ports = sandbox->ports;
    if (!ports)
        return;
    while (ports->dials)
        fail(ports->dials, err);
    ports_watch_free(ports, err);
    sandbox->ports = NULL;
    count(ports, -(int)ports->connections);
    free(ports);
}
