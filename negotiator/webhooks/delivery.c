#include "negotiator/webhooks/delivery.h"

#include "negotiator/webhooks/target.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* --- signing --- */

void delivery_sign(const struct key *key, const char *id, int64_t timestamp, const char *body,
                   char to[static DELIVERY_SIGNATURE_BYTES])
{
    uint8_t mac[crypto_auth_hmacsha256_BYTES];
    AUTO_FREE char *head = memory_printf("%s.%" PRId64 ".", id, timestamp);
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key->bytes, sizeof key->bytes);
    crypto_auth_hmacsha256_update(&state, (const uint8_t *)head, strlen(head));
    crypto_auth_hmacsha256_update(&state, (const uint8_t *)body, strlen(body));
    crypto_auth_hmacsha256_final(&state, mac);
    memcpy(to, "v1,", 3);
    text_base64_encode(to + 3, mac, sizeof mac);
}

static void add_header(struct delivery *delivery, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_header(struct delivery *delivery, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    struct curl_slist *longer = curl_slist_append(delivery->headers, line);
    if (longer)
        delivery->headers = longer;
}

/* The same id for every attempt of one event, so that a receiver knows what he has. */
static void add_headers(struct delivery *delivery, const struct leasing *leasing, const struct webhook *webhook,
                        const json_t *event)
{
    char id[64], now[DELIVERY_SIGNATURE_BYTES], before[DELIVERY_SIGNATURE_BYTES] = "";
    int64_t timestamp = delivery->at_ms / 1000;
    AUTO_KEY key;
    snprintf(id, sizeof id, "msg_%s_%" JSON_INTEGER_FORMAT, webhook->id + 4,
             json_integer_value(json_object_get(event, "id")));
    webhook_key(leasing, webhook->id, webhook->secret, &key);
    delivery_sign(&key, id, timestamp, delivery->body, now);
    if (webhook->secret > 1 && delivery->at_ms < webhook->old_until) {
        webhook_key(leasing, webhook->id, webhook->secret - 1, &key);
        delivery_sign(&key, id, timestamp, delivery->body, before);
    }
    add_header(delivery, "Content-Type: application/json");
    add_header(delivery, "Expect:");
    add_header(delivery, "webhook-id: %s", id);
    add_header(delivery, "webhook-timestamp: %" PRId64, timestamp);
    add_header(delivery, "webhook-signature: %s%s%s", now, before[0] ? " " : "", before);
}

/* --- the transfer --- */

/* Of the answer nothing is kept; one that does not end is broken off. */
static size_t on_answer(char *data UNUSED, size_t size, size_t count, void *cookie)
{
    struct delivery *delivery = cookie;
    delivery->received += size * count;
    return delivery->received > DELIVERY_REPLY_MAX ? 0 : size * count;
}

/* The address that is about to be dialled, whatever the name was a moment ago. */
static curl_socket_t open_socket(void *cookie, curlsocktype purpose UNUSED, struct curl_sockaddr *address)
{
    struct delivery *delivery = cookie;
    if (!delivery->is_anywhere && !target_is_public(&address->addr)) {
        delivery->was_refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* No connection is used again: another webhook's may have been to where this one may not go. A name that does not
 * resolve is left to its thread: libcurl would wait for it when the time is over, and with it every other webhook. */
static bool set_options(struct delivery *delivery, const struct webhook *webhook, bool may_http)
{
    CURL *curl = delivery->curl;
    return curl_easy_setopt(curl, CURLOPT_URL, webhook->url) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, may_http ? "http,https" : "https") == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)DELIVERY_CONNECT_MS) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)DELIVERY_TOTAL_MS) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_USERAGENT, "parley-webhooks/" PARLEY_VERSION) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, delivery) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEDATA, delivery) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_POSTFIELDS, delivery->body) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(delivery->body)) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_HTTPHEADER, delivery->headers) == CURLE_OK;
}

bool delivery_start(struct delivery *delivery, const struct leasing *leasing, const struct webhook *webhook,
                    const json_t *event, const char *hosts, struct error *err)
{
    bool is_listed = target_is_listed(webhook->url, hosts);
    json_t *body = json_pack("{s:O?, s:O?, s:O}", "type", json_object_get(event, "type"), "timestamp",
                             json_object_get(event, "time"), "data", event);
    *delivery = (struct delivery){.is_anywhere = webhook->is_admins || is_listed,
                                  .at_ms = clock_wall_ms(),
                                  .began_ns = (int64_t)clock_monotonic_ns(),
                                  .body = body ? json_dumps(body, JSON_COMPACT) : NULL,
                                  .curl = curl_easy_init()};
    json_decref(body);
    if (delivery->body)
        add_headers(delivery, leasing, webhook, event);
    if (delivery->curl && delivery->body && set_options(delivery, webhook, delivery->is_anywhere))
        return true;
    delivery_done(delivery);
    return error_set(err, ERROR_INTERNAL, "libcurl does not take the delivery of a webhook");
}

static void judge(const struct delivery *delivery, CURLcode code, long status, struct webhook_note *note)
{
    bool answered = code == CURLE_OK || (code == CURLE_WRITE_ERROR && delivery->received > DELIVERY_REPLY_MAX);
    note->status = answered ? (int)status : 0;
    note->delivered = answered && status >= 200 && status < 300;
    note->disable = answered && status == 410;
    if (note->delivered)
        note->error[0] = '\0';
    else if (delivery->was_refused)
        snprintf(note->error, sizeof note->error, "the address is not a public one");
    else if (note->disable)
        snprintf(note->error, sizeof note->error, "the receiver answered 410: it is gone");
    else if (answered)
        snprintf(note->error, sizeof note->error, "the receiver answered %ld", status);
    else
        snprintf(note->error, sizeof note->error, "%s", curl_easy_strerror(code));
}

void delivery_finish(struct delivery *delivery, CURLcode code, struct webhook_note *note)
{
    long status = 0;
    curl_off_t wait = 0;
    curl_easy_getinfo(delivery->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(delivery->curl, CURLINFO_RETRY_AFTER, &wait);
    judge(delivery, code, status, note);
    note->wait_s = wait > 0 && wait < 86400 ? wait : wait > 0 ? 86400 : 0;
    note->at_ms = delivery->at_ms;
    note->took_ms = ((int64_t)clock_monotonic_ns() - delivery->began_ns) / 1000000;
    delivery_done(delivery);
}

void delivery_done(struct delivery *delivery)
{
    curl_easy_cleanup(delivery->curl);
    curl_slist_free_all(delivery->headers);
    free(delivery->body);
    *delivery = (struct delivery){.curl = NULL};
}
