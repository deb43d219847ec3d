#include "clients/c/websocket_handshake.h"

#include "clients/c/call.h"
#include "clients/c/call_context.h"

#include "shared/base/random.h"

#include <curl/curl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char GUID[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* RFC 6455, 1.3 */

enum { KEY_RAW_BYTES = 16, SHA1_BYTES = 20 };

void websocket_key(char to[static WEBSOCKET_KEY_BYTES])
{
    unsigned char raw[KEY_RAW_BYTES];
    random_bytes(raw, sizeof raw);
    text_base64_encode(to, raw, sizeof raw);
}

void websocket_accept_key(char to[static WEBSOCKET_ACCEPT_BYTES], const char *key)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    AUTO_TEXT both = {0};
    text_append_string(&both, key);
    text_append_string(&both, GUID);
    unsigned size = 0;
    if (EVP_Digest(both.data, both.length, digest, &size, EVP_sha1(), NULL) != 1 || size != SHA1_BYTES)
        memset(digest, 0, SHA1_BYTES); /* no server answers so */
    text_base64_encode(to, digest, SHA1_BYTES);
}

static char *url_part(CURLU *url, CURLUPart part)
{
    char *text = NULL;
    return curl_url_get(url, part, &text, 0) == CURLUE_OK ? text : NULL;
}

static void append_request(struct text *to, CURLU *parsed, const char *credential, const char *key)
{
    char *host = url_part(parsed, CURLUPART_HOST), *port = url_part(parsed, CURLUPART_PORT);
    char *path = url_part(parsed, CURLUPART_PATH), *query = url_part(parsed, CURLUPART_QUERY);
    text_append_format(to, "GET %s%s%s HTTP/1.1\r\nHost: %s%s%s\r\n", path ? path : "/", query ? "?" : "",
                       query ? query : "", host ? host : "", port ? ":" : "", port ? port : "");
    text_append_format(to,
                       "User-Agent: parley/" PARLEY_VERSION "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
                       key);
    if (credential)
        text_append_format(to, "Authorization: Bearer %s\r\n", credential);
    call_context_write(to);
    text_append_string(to, "\r\n");
    curl_free(host);
    curl_free(port);
    curl_free(path);
    curl_free(query);
}

bool websocket_request(struct text *to, const char *url, const char *credential, const char *key, struct error *err)
{
    bool web = text_starts_with(url, "http://") || text_starts_with(url, "https://");
    bool sound = !credential || strpbrk(credential, "\r\n") == NULL;
    CURLU *parsed = web && sound ? curl_url() : NULL;
    bool good = parsed && curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK;
    if (good)
        append_request(to, parsed, credential, key);
    curl_url_cleanup(parsed);
    return good || error_set(err, ERROR_INVALID, "no WebSocket can be opened there: the URL or the token is malformed");
}

/* The value of a header, its length in *size; NULL when it is not there. The head ends with an empty line. */
static const char *header(const char *head, const char *name, size_t *size)
{
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, length) != 0 || line[length] != ':')
            continue;
        const char *value = line + length + 1;
        value += strspn(value, " \t");
        *size = strcspn(value, "\r\n");
        while (*size > 0 && (value[*size - 1] == ' ' || value[*size - 1] == '\t'))
            (*size)--;
        return value;
    }
    return NULL;
}

static bool header_is(const char *head, const char *name, const char *wanted)
{
    size_t size = 0;
    const char *value = header(head, name, &size);
    return value && size == strlen(wanted) && strncasecmp(value, wanted, size) == 0;
}

static bool is_accepted(const char *head, const char *key)
{
    char wanted[WEBSOCKET_ACCEPT_BYTES];
    size_t size = 0;
    websocket_accept_key(wanted, key);
    const char *value = header(head, "Sec-WebSocket-Accept", &size);
    return value && size == strlen(wanted) && memcmp(value, wanted, size) == 0;
}

static enum websocket_answer judge_switch(const char *head, const char *key, struct error *err)
{
    size_t ignored;
    if (!header_is(head, "Upgrade", "websocket") || !header_is(head, "Connection", "upgrade") ||
        !is_accepted(head, key) || header(head, "Sec-WebSocket-Extensions", &ignored) ||
        header(head, "Sec-WebSocket-Protocol", &ignored)) {
        error_set(err, ERROR_INTERNAL, "the server's WebSocket handshake is wrong");
        return WEBSOCKET_ANSWER_REFUSED;
    }
    return WEBSOCKET_ANSWER_GOOD;
}

/* The refusal's sentence is in its body: worth waiting for. */
static enum websocket_answer judge_refusal(const char *head, long status, const char *body, size_t size, bool ended,
                                           struct error *err)
{
    uint64_t wanted = 0;
    size_t digits = 0;
    const char *length = header(head, "Content-Length", &digits);
    bool known = length && text_parse_u64(length, digits, WEBSOCKET_BODY_MAX_BYTES, &wanted);
    if (known && size < wanted && !ended)
        return WEBSOCKET_ANSWER_PARTIAL;
    if (!known && !ended && header(head, "Transfer-Encoding", &digits) == NULL && size < WEBSOCKET_BODY_MAX_BYTES)
        return WEBSOCKET_ANSWER_PARTIAL;
    call_refused(status, body, known && wanted < size ? (size_t)wanted : size, err);
    return WEBSOCKET_ANSWER_REFUSED;
}

static enum websocket_answer no_http(struct error *err)
{
    error_set(err, ERROR_INTERNAL, "what answered the WebSocket handshake speaks no HTTP/1.1");
    return WEBSOCKET_ANSWER_REFUSED;
}

enum websocket_answer websocket_answer(const struct text *got, bool ended, const char *key, size_t *used,
                                       struct error *err)
{
    const char *end = got->length ? memmem(got->data, got->length, "\r\n\r\n", 4) : NULL;
    if (!end && got->length > WEBSOCKET_HEAD_MAX_BYTES)
        return no_http(err);
    if (!end && !ended)
        return WEBSOCKET_ANSWER_PARTIAL;
    if (!end) {
        error_set(err, ERROR_NODE_UNREACHABLE, "the connection broke during the WebSocket handshake");
        return WEBSOCKET_ANSWER_REFUSED;
    }
    AUTO_TEXT head = {0};
    size_t size = (size_t)(end - got->data) + 4;
    text_append(&head, got->data, size);
    uint64_t status;
    if (strlen(head.data) != size || !text_starts_with(head.data, "HTTP/1.1 ") || size < 13 ||
        !text_parse_u64(head.data + 9, 3, 599, &status))
        return no_http(err);
    if (status != 101)
        return judge_refusal(head.data, (long)status, got->data + size, got->length - size, ended, err);
    *used = size;
    return judge_switch(head.data, key, err);
}
