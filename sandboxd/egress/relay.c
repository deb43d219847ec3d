#include "sandboxd/egress/relay.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

static const uint64_t SECOND = 1000000000;

enum { SPLICE_BYTES = 65536, SPLICES_A_TURN = 4, FILTER_BYTES = 16384 };

/* One way. Bytes wait in the pipe, or (filtered, and the first ones) in `text`. */
struct flow {
    struct relay *relay;
    struct loop_watch *from, *to;
    bool is_filtered;
    bool from_ended, to_ended; /* read to the end; told so */
    int ends[2];               /* -1 while nothing is in it */
    size_t in_pipe;
    struct text text;
    size_t text_sent;
};

struct relay {
    struct relay_options options;
    struct loop_watch *client, *server;
    struct flow up, down; /* up: to the server */
    struct loop_timer *timer;
    uint64_t active_ns;
    bool is_over;
};

static void over(struct relay *relay, const struct error *err)
{
    if (relay->is_over)
        return;
    relay->is_over = true;
    loop_watch_readable(relay->client, NULL, NULL);
    loop_watch_readable(relay->server, NULL, NULL);
    loop_timer_cancel(TAKE(relay->timer));
    relay->options.ended(relay->options.cookie, err);
}

static void broken(struct relay *relay, const char *what)
{
    struct error err = {0};
    (void)error_set_errno(&err, ERROR_INTERNAL, "%s", what);
    over(relay, &err);
}

/* ---- out ---- */

static void on_readable(void *cookie);
static void on_writable(void *cookie);

/* 1: all of the text is out; 0: the socket is full; -1 broken. */
static int push_text(struct flow *flow)
{
    while (flow->text_sent < flow->text.length) {
        ssize_t sent = send(loop_watch_fd(flow->to), flow->text.data + flow->text_sent,
                            flow->text.length - flow->text_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN ? 0 : -1;
        flow->text_sent += (size_t)sent;
    }
    flow->text.length = flow->text_sent = 0;
    return 1;
}

static int push_pipe(struct flow *flow)
{
    while (flow->in_pipe > 0) {
        ssize_t sent = splice(flow->ends[0], NULL, loop_watch_fd(flow->to), NULL, flow->in_pipe,
                              SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return sent < 0 && errno == EAGAIN ? 0 : -1;
        flow->in_pipe -= (size_t)sent;
    }
    if (flow->ends[0] >= 0)
        pipe_stock_give(flow->relay->options.pipes, flow->ends, false);
    return 1;
}

static int push(struct flow *flow)
{
    int pushed = push_text(flow);
    return pushed == 1 ? push_pipe(flow) : pushed;
}

/* Tells the other side that this one has said all; over when both have. */
static void pass_end(struct flow *flow)
{
    struct relay *relay = flow->relay;
    flow->to_ended = true;
    if (relay->up.to_ended && relay->down.to_ended)
        over(relay, NULL);
    else if (shutdown(loop_watch_fd(flow->to), SHUT_WR) < 0)
        broken(relay, "pass on the end");
}

/* After something was read, or the socket took something: writes, and reads on when all is out. */
static void advance(struct flow *flow)
{
    int pushed = push(flow);
    if (pushed < 0) {
        broken(flow->relay, flow == &flow->relay->up ? "send to the server" : "send to the client");
    } else if (pushed == 0) {
        loop_watch_readable(flow->from, NULL, NULL);
        loop_watch_writable(flow->to, on_writable, flow);
    } else if (flow->from_ended) {
        loop_watch_readable(flow->from, NULL, NULL);
        if (!flow->to_ended)
            pass_end(flow);
    } else {
        loop_watch_readable(flow->from, on_readable, flow);
    }
}

static void on_writable(void *cookie)
{
    struct flow *flow = cookie;
    if (flow->relay->is_over)
        return;
    flow->relay->active_ns = clock_boot_ns();
    advance(flow);
}

/* ---- in ---- */

/* Bytes read, 0 at the end, -1 with errno. */
static ssize_t pull_spliced(struct flow *flow)
{
    if (flow->ends[0] < 0 && !pipe_stock_take(flow->relay->options.pipes, flow->ends))
        return -1;
    ssize_t got =
        splice(loop_watch_fd(flow->from), NULL, flow->ends[1], NULL, SPLICE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    flow->in_pipe += got > 0 ? (size_t)got : 0;
    return got;
}

/* -2: the filter says no; it is over then. */
static ssize_t pull_filtered(struct flow *flow)
{
    char data[FILTER_BYTES];
    struct relay *relay = flow->relay;
    ssize_t got = recv(loop_watch_fd(flow->from), data, sizeof data, MSG_DONTWAIT);
    struct error err = {0};
    if (got <= 0 || relay->options.filter(relay->options.cookie, data, (size_t)got, &flow->text, &err))
        return got;
    over(relay, &err);
    return -2;
}

static void on_readable(void *cookie)
{
    struct flow *flow = cookie;
    struct relay *relay = flow->relay;
    for (int i = 0; i < SPLICES_A_TURN && !relay->is_over; i++) {
        ssize_t got = flow->is_filtered ? pull_filtered(flow) : pull_spliced(flow);
        if (got == -2 || (got < 0 && errno == EINTR))
            return;
        if (got < 0 && errno == EAGAIN) {
            (void)push_pipe(flow); /* gives the empty pipe back */
            return;
        }
        if (got < 0) {
            broken(relay, flow == &relay->up ? "receive from the client" : "receive from the server");
            return;
        }
        relay->active_ns = clock_boot_ns();
        flow->from_ended = got == 0;
        advance(flow);
        if (relay->is_over || flow->from_ended || flow->in_pipe > 0 || flow->text.length > 0)
            return;
    }
}

/* ---- both ---- */

static void on_idle(void *cookie)
{
    struct relay *relay = cookie;
    struct error err = {0};
    uint64_t until_ns = relay->active_ns + RELAY_IDLE_S * SECOND;
    if (clock_boot_ns() < until_ns) {
        relay->timer = loop_timer_start(relay->options.loop, until_ns, on_idle, relay);
        return;
    }
    relay->timer = NULL;
    (void)error_set(&err, ERROR_TIMEOUT, "nothing was said for %d s", RELAY_IDLE_S);
    over(relay, &err);
}

struct relay *relay_new(const struct relay_options *options)
{
    struct relay *relay = memory_new(sizeof *relay);
    relay->options = *options;
    relay->client = options->client;
    relay->server = loop_watch_new(options->loop, options->server);
    relay->up = (struct flow){.relay = relay,
                              .from = relay->client,
                              .to = relay->server,
                              .is_filtered = options->filter != NULL,
                              .ends = {-1, -1}};
    relay->down = (struct flow){.relay = relay, .from = relay->server, .to = relay->client, .ends = {-1, -1}};
    text_append(&relay->up.text, options->first, options->first_bytes);
    relay->active_ns = clock_boot_ns();
    relay->timer = loop_timer_start(options->loop, relay->active_ns + RELAY_IDLE_S * SECOND, on_idle, relay);
    loop_watch_writable(relay->server, on_writable, &relay->up);
    loop_watch_readable(relay->server, on_readable, &relay->down);
    return relay;
}

void relay_free(struct relay *relay)
{
    if (relay == NULL)
        return;
    struct flow *const flows[] = {&relay->up, &relay->down};
    for (size_t i = 0; i < 2; i++) {
        if (flows[i]->ends[0] >= 0)
            pipe_stock_give(relay->options.pipes, flows[i]->ends, flows[i]->in_pipe > 0);
        text_done(&flows[i]->text);
    }
    loop_timer_cancel(relay->timer);
    loop_watch_free(relay->client);
    loop_watch_free(relay->server);
    free(relay);
}
