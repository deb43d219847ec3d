/* limits.c - who a request is from, how often such a one may ask, and how often show what proves nothing. */
#include "shared/base/clock.h"
#include "shared/http/http_internal.h"

#include <stdio.h>
#include <string.h>

static const uint64_t SECOND_NS = 1000000000;

bool http_limits_open(struct http_server *server, struct error *err)
{
    const struct http_limits *limits = &server->options.limits;
    server->trusted_proxies = cidrs_parse(limits->trusted_proxies, err);
    if (server->trusted_proxies == NULL)
        return error_prefix(err, "trusted_proxies");
    if (limits->per_minute > 0)
        server->requests = http_rate_new(limits->per_minute, limits->burst);
    if (limits->failures_per_minute > 0)
        server->failures = http_rate_new(limits->failures_per_minute, 0);
    return true;
}

void http_limits_close(struct http_server *server)
{
    cidrs_free(server->trusted_proxies);
    http_rate_free(server->requests);
    http_rate_free(server->failures);
}

void http_limits_find_client(struct http_request *request)
{
    const struct http_head *head = &request->head;
    const char *values[HTTP_FIELDS_MAX];
    size_t count = 0;
    if (!cidrs_hold(request->worker->server->trusted_proxies, &request->client))
        return;
    for (size_t i = 0; i < head->field_count; i++) {
        if (strcmp(head->fields[i].name, "x-forwarded-for") == 0)
            values[count++] = head->fields[i].value;
    }
    struct address from = address_forwarded(request->worker->server->trusted_proxies, &request->client, values, count);
    request->client = from;
    address_format(request->remote, &from);
}

static bool refuse(struct http_request *request, uint64_t wait_ns, const char *what, struct error *err)
{
    uint64_t wait_s = (wait_ns + SECOND_NS - 1) / SECOND_NS;
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)wait_s);
    http_reply_header(request, "Retry-After", text);
    return error_set(err, ERROR_RATE_LIMITED, "%s from %s; again in %s s", what, request->remote, text);
}

bool http_limits_admit(struct http_request *request, struct error *err)
{
    return (request->match.route->carriers & HTTP_UNLIMITED) != 0 || http_request_admit(request, err);
}

bool http_request_admit(struct http_request *request, struct error *err)
{
    struct http_server *server = request->worker->server;
    if (request->is_admitted || server->requests == NULL || !request->has_client ||
        (http_request_is_local(request) && !server->options.limits.loopback))
        return true;
    request->is_admitted = true; /* or refused, and then asked no more */
    uint64_t wait_ns = http_rate_take(server->requests, &request->client, clock_boot_ns());
    return wait_ns == 0 || refuse(request, wait_ns, "too many requests", err);
}

bool http_authentication_allowed(struct http_request *request, struct error *err)
{
    struct http_server *server = request->worker->server;
    if (server->failures == NULL)
        return true;
    uint64_t wait_ns = http_rate_look(server->failures, &request->client, clock_boot_ns());
    return wait_ns == 0 || refuse(request, wait_ns, "too many credentials that are not valid came", err);
}

void http_authentication_failed(struct http_request *request)
{
    struct http_server *server = request->worker->server;
    request->is_failure_counted = true;
    if (server->failures != NULL && http_rate_take(server->failures, &request->client, clock_boot_ns()) > 0)
        return; /* others of this address were judged meanwhile */
}

void http_limits_count_refusal(struct http_request *request, const struct error *err)
{
    bool is_failure = err->kind == ERROR_UNAUTHENTICATED && request->credential != NULL;
    if (is_failure && !request->is_failure_counted)
        http_authentication_failed(request);
}
