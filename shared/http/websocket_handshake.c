/* websocket_handshake.c - what a request for a WebSocket says in its head (RFC 6455, 4.2.1). */
#include "shared/http/http_internal.h"
#include "shared/http/websocket.h"

#include <openssl/sha.h>
#include <string.h>
#include <strings.h>

enum { KEY_BYTES = 16 };

static const char BEARER[] = "bearer.";

/* The next member of a comma-separated list, trimmed; NULL at its end. */
static const char *next_member(const char **list, size_t *size)
{
    while (*list != NULL && **list != '\0') {
        const char *start = *list + strspn(*list, " \t,");
        size_t length = strcspn(start, ",");
        *list = start + length;
        while (length > 0 && (start[length - 1] == ' ' || start[length - 1] == '\t'))
            length--;
        if (length > 0) {
            *size = length;
            return start;
        }
    }
    return NULL;
}

static bool has_member(const char *list, const char *wanted)
{
    size_t size;
    for (const char *member; (member = next_member(&list, &size)) != NULL;) {
        if (size == strlen(wanted) && strncasecmp(member, wanted, size) == 0)
            return true;
    }
    return false;
}

void http_websocket_accept_key(const struct http_request *request, char accepted[static HTTP_ACCEPT_KEY_BYTES])
{
    const char *key = http_head_field(&request->head, "sec-websocket-key");
    AUTO_TEXT both = {0};
    text_append_format(&both, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key != NULL ? key : "");
    unsigned char digest[SHA_DIGEST_LENGTH];
    SHA1((const unsigned char *)both.data, both.length, digest);
    text_base64_encode(accepted, digest, sizeof digest);
}

bool http_websocket_offers(const struct http_request *request, const char *protocol)
{
    return has_member(http_head_field(&request->head, "sec-websocket-protocol"), protocol);
}

const char *http_websocket_next_bearer(const char **list, size_t *size)
{
    size_t length;
    for (const char *member; (member = next_member(list, &length)) != NULL;) {
        if (length > sizeof BEARER - 1 && strncmp(member, BEARER, sizeof BEARER - 1) == 0) {
            *size = length - (sizeof BEARER - 1);
            return member + sizeof BEARER - 1;
        }
    }
    return NULL;
}

const char *http_websocket_bearer(const struct http_request *request, size_t *size)
{
    const char *list = http_head_field(&request->head, "sec-websocket-protocol");
    return http_websocket_next_bearer(&list, size);
}

/* Connection may be given several times. */
static bool is_upgrade_connection(const struct http_head *head)
{
    for (size_t i = 0; i < head->field_count; i++) {
        if (strcmp(head->fields[i].name, "connection") == 0 && has_member(head->fields[i].value, "upgrade"))
            return true;
    }
    return false;
}

static bool is_own_origin(const struct http_head *head)
{
    const char *origin = http_head_field(head, "origin");
    const char *host = http_head_field(head, "host");
    if (origin == NULL)
        return true;
    const char *rest = strstr(origin, "://");
    return rest != NULL && host != NULL && strcasecmp(rest + 3, host) == 0;
}

/* Browsers add no carrier of ours by themselves: whoever shows a credential, or will in the first frame, holds it. */
static bool is_explicit(const struct http_request *request)
{
    return request->credential != NULL || (request->match.route->carriers & HTTP_LATER) != 0;
}

bool http_websocket_check(const struct http_request *request, struct error *err)
{
    const struct http_head *head = &request->head;
    const char *version = http_head_field(head, "sec-websocket-version");
    const char *key = http_head_field(head, "sec-websocket-key");
    if (strcmp(head->method, "GET") != 0 || !head->is_1_1 || !is_upgrade_connection(head) ||
        !has_member(http_head_field(head, "upgrade"), "websocket") || version == NULL || strcmp(version, "13") != 0)
        return error_set(err, ERROR_UPGRADE, "a WebSocket of version 13 is wanted here");
    unsigned char decoded[KEY_BYTES];
    size_t size = 0;
    if (key == NULL || !text_base64_decode(decoded, sizeof decoded, &size, key, strlen(key)) || size != KEY_BYTES)
        return error_set(err, ERROR_INVALID, "Sec-WebSocket-Key is not 16 bytes of base64");
    if (!is_explicit(request) && !is_own_origin(head))
        return error_set(err, ERROR_FORBIDDEN, "a page of another origin may not open this WebSocket");
    return true;
}
