/* revoke.c - finds the living requests of a loop, and ends one whose credential holds no more. */
#include "shared/http/http_internal.h"
#include "shared/http/proxy_internal.h"

const struct http_route *http_request_route(const struct http_request *request)
{
    return request->match.route;
}

void http_requests_each(struct loop *loop, void (*visit)(void *cookie, struct http_request *request), void *cookie)
{
    struct http_worker *worker = loop->worker;
    if (worker == NULL || worker->connections.next == NULL)
        return;
    /* A visit closes at most the connection it is at. */
    for (h2o_linklist_t *link = worker->connections.next, *next; link != &worker->connections; link = next) {
        next = link->next;
        struct http_connection *connection = HTTP_OWNER(struct http_connection, all, link);
        bool is_living = connection->state == HTTP_BODY || connection->state == HTTP_RUNNING;
        if (is_living && connection->request != NULL && connection->request->phase != HTTP_GONE)
            visit(cookie, connection->request);
    }
}

static void revoke_unanswered(struct http_request *request, const struct error *err)
{
    void (*gone)(void *cookie) = TAKE(request->gone);
    if (gone != NULL)
        gone(request->gone_cookie);
    http_reply_error(request, err);
}

void http_request_revoke(struct http_request *request, const struct error *err)
{
    struct http_connection *connection = request->connection;
    if (request->tunnel != NULL)
        http_tunnel_cut(request->tunnel);
    else if (request->websocket != NULL)
        http_websocket_revoke(request->websocket, err);
    else if (request->phase == HTTP_STREAMING)
        http_stream_break(request, err);
    else if (request->phase == HTTP_OPEN && request->h2o != NULL)
        revoke_unanswered(request, err);
    else if (request->phase == HTTP_OPEN && h2o_socket_is_reading(connection->socket))
        http_guard_refuse(connection, err, 0);
    else if (request->phase != HTTP_GONE) /* the reply's last bytes, or libh2o's own answer */
        http_stream_reset(request);
}
