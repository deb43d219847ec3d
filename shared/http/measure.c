/* measure.c - what was served, counted by each loop for itself and added up when somebody looks. */
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/http/http_internal.h"

#include <stdio.h>

/* Behind the routes of the table. */
enum { OF_HOST_RULE, OF_NONE, EXTRA };

static size_t measure_count(const struct http_server *server)
{
    return server->options.route_count + EXTRA;
}

void http_measure_open(struct http_worker *worker)
{
    worker->measures = memory_array(measure_count(worker->server), sizeof *worker->measures);
}

void http_measure_close(struct http_worker *worker)
{
    free(TAKE(worker->measures));
}

static size_t index_of(const struct http_server_options *options, const struct http_route *route)
{
    if (route == NULL)
        return options->route_count + OF_NONE;
    if (route >= options->routes && route < options->routes + options->route_count)
        return (size_t)(route - options->routes);
    return options->route_count + OF_HOST_RULE;
}

/* Only this loop's thread writes: no locked instruction. */
static void add(struct metrics_counter *counter, uint64_t more)
{
    atomic_store_explicit(&counter->count, metrics_count(counter) + more, memory_order_relaxed);
}

static void move(_Atomic int64_t *gauge, int64_t by)
{
    atomic_store_explicit(gauge, atomic_load_explicit(gauge, memory_order_relaxed) + by, memory_order_relaxed);
}

void http_measure_began(const struct http_request *request)
{
    move(&request->worker->in_flight, 1);
}

void http_measure_answered(struct http_request *request)
{
    if (request->answered_ns == 0)
        request->answered_ns = clock_monotonic_ns();
}

static uint64_t received_bytes(const struct http_request *request)
{
    return request->pours ? request->pour.size : request->received_bytes;
}

void http_measure_ended(const struct http_request *request)
{
    struct http_worker *worker = request->worker;
    struct http_measure *measure = &worker->measures[index_of(&worker->server->options, request->match.route)];
    int status_class = request->status / 100;
    uint64_t until_ns = request->answered_ns != 0 ? request->answered_ns : clock_monotonic_ns();
    move(&worker->in_flight, -1);
    add(&measure->by_class[status_class < HTTP_STATUS_CLASSES ? status_class : 0], 1);
    add(&worker->received_bytes, received_bytes(request));
    add(&worker->sent_bytes, request->sent_bytes);
    metrics_observe(&measure->durations, until_ns - request->began_ns);
}

/* ---- all loops together ---- */

static void sum_up(const struct http_server *server, size_t at, struct http_measure *sum)
{
    *sum = (struct http_measure){0};
    for (unsigned i = 0; i < server->worker_count; i++) {
        const struct http_measure *part = &server->workers[i].measures[at];
        for (size_t j = 0; j < HTTP_STATUS_CLASSES; j++)
            metrics_add(&sum->by_class[j], metrics_count(&part->by_class[j]));
        metrics_merge(&sum->durations, &part->durations);
    }
}

/* The route's own words, never what a client sent. */
static const struct http_route *labels_of(const struct http_server *server, size_t at)
{
    static const struct http_route NONE = {.method = "other", .path = "none"};
    const struct http_server_options *options = &server->options;
    if (at < options->route_count)
        return &options->routes[at];
    return at == options->route_count + OF_HOST_RULE && options->host_rule.route ? options->host_rule.route : &NONE;
}

static void write_requests(const struct http_server *server, const struct http_measure *sums, const char *name,
                           struct text *to)
{
    static const char *const CLASSES[HTTP_STATUS_CLASSES] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};
    metrics_family(to, name, METRICS_COUNTER, "Requests that have ended, by route and class of their status.");
    for (size_t i = 0; i < measure_count(server); i++) {
        const struct http_route *route = labels_of(server, i);
        for (size_t j = 0; j < HTTP_STATUS_CLASSES; j++) {
            uint64_t count = metrics_count(&sums[i].by_class[j]);
            if (count > 0)
                metrics_sample(to, name, (double)count, "method", route->method, "route", route->path, "status",
                               CLASSES[j], NULL);
        }
    }
}

static void write_durations(const struct http_server *server, const struct http_measure *sums, const char *name,
                            struct text *to)
{
    metrics_family(to, name, METRICS_HISTOGRAM, "From a request's head to the beginning of its answer.");
    for (size_t i = 0; i < measure_count(server); i++) {
        const struct http_route *route = labels_of(server, i);
        if (!metrics_is_empty(&sums[i].durations))
            metrics_sample_histogram(to, name, &sums[i].durations, "method", route->method, "route", route->path, NULL);
    }
}

static void write_totals(const struct http_server *server, const char *prefix, struct text *to)
{
    int64_t in_flight = 0, connected = 0;
    uint64_t received = 0, sent = 0;
    char name[METRICS_NAME_BYTES];
    for (unsigned i = 0; i < server->worker_count; i++) {
        struct http_worker *worker = &server->workers[i];
        in_flight += atomic_load_explicit(&worker->in_flight, memory_order_relaxed);
        connected += atomic_load_explicit(&worker->connected, memory_order_relaxed);
        received += metrics_count(&worker->received_bytes);
        sent += metrics_count(&worker->sent_bytes);
    }
    snprintf(name, sizeof name, "%s_http_requests_in_flight", prefix);
    metrics_single(to, name, METRICS_GAUGE, "Requests being served, streams and sockets among them.",
                   (double)in_flight);
    snprintf(name, sizeof name, "%s_http_connections", prefix);
    metrics_single(to, name, METRICS_GAUGE, "Open connections of clients.", (double)connected);
    snprintf(name, sizeof name, "%s_http_received_bytes_total", prefix);
    metrics_single(to, name, METRICS_COUNTER, "Bytes of the bodies of requests that have ended.", (double)received);
    snprintf(name, sizeof name, "%s_http_sent_bytes_total", prefix);
    metrics_single(to, name, METRICS_COUNTER, "Bytes of the bodies of answers to requests that have ended.",
                   (double)sent);
}

void http_server_measure(const struct http_request *request, const char *prefix, struct text *to)
{
    const struct http_server *server = request->worker->server;
    char name[METRICS_NAME_BYTES];
    AUTO_FREE struct http_measure *sums = memory_array(measure_count(server), sizeof *sums);
    for (size_t i = 0; i < measure_count(server); i++)
        sum_up(server, i, &sums[i]);
    snprintf(name, sizeof name, "%s_http_requests_total", prefix);
    write_requests(server, sums, name, to);
    snprintf(name, sizeof name, "%s_http_request_duration_seconds", prefix);
    write_durations(server, sums, name, to);
    write_totals(server, prefix, to);
}
