/* proxy_request.c - the head of a request as it goes on to another server: one framing, no header that was meant for us
 * or for this connection alone, none of our credentials. */
#include "shared/base/memory.h"
#include "shared/http/proxy_internal.h"
#include "shared/http/websocket.h"

#include <string.h>
#include <strings.h>

bool http_relay_is_hop(const char *name)
{
    static const char *const HOPS[] = {"connection",
                                       "keep-alive",
                                       "proxy-authenticate",
                                       "proxy-authorization",
                                       "proxy-connection",
                                       "te",
                                       "trailer",
                                       "transfer-encoding",
                                       "upgrade",
                                       "http2-settings"};
    for (size_t i = 0; i < sizeof HOPS / sizeof HOPS[0]; i++) {
        if (strcmp(name, HOPS[i]) == 0)
            return true;
    }
    return false;
}

/* The next member of a comma-separated list; NULL at its end. `*list` moves behind it. */
static const char *next_member(const char **list, size_t *size)
{
    while (*list != NULL && **list != '\0') {
        const char *start = *list + strspn(*list, " \t,");
        size_t length = strcspn(start, ",");
        *list = start + length;
        while (length > 0 && (start[length - 1] == ' ' || start[length - 1] == '\t'))
            length--;
        *size = length;
        if (length > 0)
            return start;
    }
    return NULL;
}

bool http_relay_list_has(const char *list, const char *wanted)
{
    size_t size;
    for (const char *member; (member = next_member(&list, &size)) != NULL;) {
        if (size == strlen(wanted) && strncasecmp(member, wanted, size) == 0)
            return true;
    }
    return false;
}

/* Connection may be given several times. */
static bool is_connections_own(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->field_count; i++) {
        if (strcmp(head->fields[i].name, "connection") == 0 && http_relay_list_has(head->fields[i].value, name))
            return true;
    }
    return false;
}

static bool is_replaced(const struct http_proxy_order *order, const char *name)
{
    for (size_t i = 0; i < order->header_count; i++) {
        if (strcasecmp(order->headers[i].name, name) == 0)
            return true;
    }
    return false;
}

/* ---- what is ours ---- */

/* A credential with or without its scheme: the one that was judged, or a key of a deployment. */
static bool is_our_secret(const struct http_request *request, const char *value)
{
    static const char *const SCHEMES[] = {"Bearer", "ApiKey"};
    for (size_t i = 0; i < sizeof SCHEMES / sizeof SCHEMES[0]; i++) {
        size_t length = strlen(SCHEMES[i]);
        if (strncasecmp(value, SCHEMES[i], length) == 0 && value[length] == ' ')
            value += length + strspn(value + length, " ");
    }
    bool is_judged = request->credential != NULL && strcmp(value, request->credential) == 0;
    return is_judged || text_starts_with(value, "pk_");
}

static bool carries_secrets(const char *name)
{
    static const char *const CARRIERS[] = {"authorization", "x-api-key", "x-access-token"};
    for (size_t i = 0; i < sizeof CARRIERS / sizeof CARRIERS[0]; i++) {
        if (strcmp(name, CARRIERS[i]) == 0)
            return true;
    }
    return false;
}

static bool is_our_bearer(const struct http_request *request, const char *member, size_t size)
{
    static const char PREFIX[] = "bearer.";
    const size_t length = sizeof PREFIX - 1;
    return request->credential != NULL && size == length + strlen(request->credential) &&
           strncmp(member, PREFIX, length) == 0 && strncmp(member + length, request->credential, size - length) == 0;
}

/* The subprotocols without our credential and the name that it came with. */
static void write_subprotocols(struct http_relay *relay, const char *list)
{
    size_t size;
    const char *at = list;
    for (const char *member; (member = next_member(&at, &size)) != NULL;)
        relay->took_bearer = relay->took_bearer || is_our_bearer(relay->request, member, size);
    AUTO_TEXT left = {0};
    for (const char *member; (member = next_member(&list, &size)) != NULL;) {
        bool is_parley = size == 9 && strncmp(member, "parley.v1", size) == 0;
        relay->wants_parley = relay->wants_parley || (is_parley && relay->took_bearer);
        if (!is_our_bearer(relay->request, member, size) && !(is_parley && relay->took_bearer))
            text_append_format(&left, "%s%.*s", left.length > 0 ? ", " : "", (int)size, member);
    }
    if (left.length > 0)
        text_append_format(&relay->out, "sec-websocket-protocol: %s\r\n", left.data);
}

/* ---- the head ---- */

static bool goes_on(const struct http_relay *relay, const struct http_pair *field)
{
    /* Of this connection; and what no other server has a use for, so that nobody has to ask whether it was judged. */
    static const char *const OWN[] = {"host",
                                      "content-length",
                                      "expect",
                                      "x-request-id",
                                      "x-execd-access-token",
                                      "opensandbox-egress-auth",
                                      "open-sandbox-api-key"};
    for (size_t i = 0; i < sizeof OWN / sizeof OWN[0]; i++) {
        if (strcmp(field->name, OWN[i]) == 0)
            return false;
    }
    if (http_relay_is_hop(field->name) || is_connections_own(&relay->request->head, field->name))
        return false;
    if (is_replaced(&relay->order, field->name))
        return false;
    if (!carries_secrets(field->name))
        return true;
    const char *secret = relay->order.secret;
    return !is_our_secret(relay->request, field->value) && !(secret != NULL && strstr(field->value, secret) != NULL);
}

static bool is_sound(const char *text, const char *also)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7F || strchr(also, c) != NULL)
            return false;
    }
    return true;
}

static void write_set_headers(struct http_relay *relay)
{
    const struct http_proxy_order *order = &relay->order;
    for (size_t i = 0; i < order->header_count; i++) {
        const struct http_pair *header = &order->headers[i];
        if (header->value != NULL && is_sound(header->name, ": ") && is_sound(header->value, ""))
            text_append_format(&relay->out, "%s: %s\r\n", header->name, header->value);
    }
}

static void write_framing(struct http_relay *relay)
{
    const struct http_request *request = relay->request;
    const char *given = http_head_field(&request->head, "content-length");
    if (relay->body == RELAY_BODY_POURED && relay->is_chunked)
        text_append_string(&relay->out, "transfer-encoding: chunked\r\n");
    else if (relay->body == RELAY_BODY_POURED)
        text_append_format(&relay->out, "content-length: %llu\r\n", (unsigned long long)request->head.content_length);
    else if (relay->body == RELAY_BODY_HELD || given != NULL)
        text_append_format(&relay->out, "content-length: %zu\r\n", relay->rest_size);
}

static void write_connection(struct http_relay *relay)
{
    const struct http_head *head = &relay->request->head;
    const char *upgrade = http_head_field(head, "upgrade");
    relay->asks_upgrade = relay->order.upgrades && upgrade != NULL && head->is_1_1 && relay->body == RELAY_BODY_NONE &&
                          is_connections_own(head, "upgrade") && !http_relay_list_has(upgrade, "h2c");
    if (relay->asks_upgrade)
        text_append_format(&relay->out, "connection: upgrade\r\nupgrade: %s\r\n", upgrade);
    else if (relay->order.kept == NULL)
        text_append_string(&relay->out, "connection: close\r\n");
}

bool http_relay_write_head(struct http_relay *relay, struct error *err)
{
    const struct http_request *request = relay->request;
    const struct http_proxy_order *order = &relay->order;
    const char *host = order->host != NULL ? order->host : http_head_field(&request->head, "host");
    if (order->target == NULL || order->target[0] != '/' || !is_sound(order->target, " "))
        return error_set(err, ERROR_INVALID, "the target of what is passed on is no /path?query");
    if (host == NULL || !is_sound(host, " "))
        host = "localhost";
    text_append_format(&relay->out, "%s %s HTTP/1.1\r\nhost: %s\r\n", request->head.method, order->target, host);
    for (size_t i = 0; i < request->head.field_count; i++) {
        const struct http_pair *field = &request->head.fields[i];
        if (!goes_on(relay, field))
            continue;
        if (strcmp(field->name, "sec-websocket-protocol") == 0)
            write_subprotocols(relay, field->value);
        else
            text_append_format(&relay->out, "%s: %s\r\n", field->name, field->value);
    }
    text_append_format(&relay->out, "x-request-id: %s\r\n", request->id);
    write_set_headers(relay);
    write_framing(relay);
    write_connection(relay);
    text_append_string(&relay->out, "\r\n");
    return true;
}
