/* dial.c - the address of a node's URL, looked up by the threads that call nodes, who may wait for a name's; and
 * connections to it. */
#include "negotiator/fleet/dial.h"

#include "negotiator/fleet/fleet_internal.h"
#include "shared/base/text.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char SCHEME[] = "http://", TLS_SCHEME[] = "https://";
static const uint64_t AGAIN_NS = UINT64_C(60) * 1000000000;

struct place {
    char authority[DIAL_AUTHORITY_BYTES];
    char host[DIAL_AUTHORITY_BYTES];
    char port[6];
    bool is_tls;
};

/* "http://host:port", "https://[::1]:port". */
static bool parse(struct place *place, const char *url, struct error *err)
{
    place->is_tls = text_starts_with(url, TLS_SCHEME);
    if (!place->is_tls && !text_starts_with(url, SCHEME))
        return error_set(err, ERROR_INVALID, "%.100s is neither an http nor an https URL", url);
    const char *at = url + (place->is_tls ? sizeof TLS_SCHEME : sizeof SCHEME) - 1;
    size_t length = strcspn(at, "/");
    bool fits = text_format(place->authority, sizeof place->authority, "%.*s", (int)length, at);
    const char *end = place->authority[0] == '[' ? strchr(place->authority, ']') : NULL;
    const char *colon = strchr(end ? end : place->authority, ':');
    const char *from = end ? place->authority + 1 : place->authority;
    const char *to = end ? end : colon ? colon : place->authority + strlen(place->authority);
    fits = fits && text_format(place->host, sizeof place->host, "%.*s", (int)(to - from), from) &&
           text_copy(place->port, sizeof place->port,
                     colon           ? colon + 1
                     : place->is_tls ? "443"
                                     : "80");
    return fits || error_set(err, ERROR_INVALID, "%.100s is not an http URL", url);
}

static bool resolve(struct fleet_peer *peer, const struct place *place, int flags, struct error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(place->host, place->port, &hints, &found);
    if (code == 0 && found->ai_addrlen <= sizeof peer->address) {
        memcpy(&peer->address, found->ai_addr, found->ai_addrlen);
        peer->size = found->ai_addrlen;
    }
    freeaddrinfo(code == 0 ? found : NULL);
    return code == 0 || error_set(err, ERROR_NODE_UNREACHABLE, "%.100s: %s", place->authority, gai_strerror(code));
}

void fleet_dial_learn(struct fleet *fleet, const char *name, const char *url)
{
    struct fleet_peer peer = {.size = 0};
    struct place place;
    uint64_t now = fleet->options.boot_ns();
    pthread_mutex_lock(&fleet->registry_lock);
    const struct fleet_node *known = fleet_node_of(fleet, name, false);
    bool is_fresh = known && strcmp(known->peer.url, url) == 0 && now - known->peer.seen_ns < AGAIN_NS;
    pthread_mutex_unlock(&fleet->registry_lock);
    if (is_fresh || !parse(&place, url, NULL) || !resolve(&peer, &place, 0, NULL) ||
        !text_copy(peer.url, sizeof peer.url, url))
        return;
    peer.seen_ns = now;
    pthread_mutex_lock(&fleet->registry_lock);
    struct fleet_node *node = fleet_node_of(fleet, name, false);
    if (node)
        node->peer = peer;
    pthread_mutex_unlock(&fleet->registry_lock);
}

/* What was learned of the URL that holds now; else what it says itself. */
static bool find(struct fleet *fleet, const char *name, struct fleet_peer *peer, struct place *place, struct error *err)
{
    char url[FLEET_URL_BYTES] = "";
    pthread_mutex_lock(&fleet->registry_lock);
    const struct fleet_node *node = fleet_node_of(fleet, name, false);
    if (node) {
        memcpy(url, node->url, sizeof url);
        *peer = node->peer;
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    if (url[0] == '\0')
        return error_set(err, ERROR_NODE_UNREACHABLE, "node %s is not known", name);
    return parse(place, url, err) &&
           ((peer->size > 0 && strcmp(peer->url, url) == 0) || resolve(peer, place, AI_NUMERICHOST, err));
}

bool fleet_dial(struct fleet *fleet, const char *node, struct fleet_dialled *dialled, struct error *err)
{
    struct fleet_peer peer = {.size = 0};
    struct place place;
    int one = 1;
    if (!find(fleet, node, &peer, &place, err))
        return false;
    AUTO_FD int fd = socket(peer.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "a socket for node %s", node);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (const struct sockaddr *)&peer.address, peer.size) != 0 && errno != EINPROGRESS)
        return error_set_errno(err, ERROR_NODE_UNREACHABLE, "connect to node %s", node);
    memcpy(dialled->authority, place.authority, DIAL_AUTHORITY_BYTES);
    memcpy(dialled->host, place.host, DIAL_AUTHORITY_BYTES);
    dialled->is_tls = place.is_tls;
    dialled->socket = TAKE_FD(fd);
    return true;
}
