#include "clients/c/call.h"

#include "clients/c/call_context.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/trust/trust.h"

#include <sodium.h>
#include <string.h>

void call_prepare(CURL *curl)
{
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    trust_apply(curl);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "parley/" PARLEY_VERSION);
}

struct curl_slist *call_add_credential(struct curl_slist *headers, const char *credential)
{
    headers = call_context_add(headers);
    if (!credential)
        return headers;
    char *line = memory_printf("Authorization: Bearer %s", credential);
    headers = curl_slist_append(headers, line);
    sodium_memzero(line, strlen(line));
    free(line);
    return headers;
}

bool call_refused(long status, const char *body, size_t size, struct error *err)
{
    json_t *reply = size ? json_loadb(body, size, 0, NULL) : NULL;
    call_context_note_failure();
    json_t *inner = json_object_get(reply, "error");
    const char *code = json_string_value(json_object_get(inner, "code"));
    const char *message = json_string_value(json_object_get(inner, "message"));
    if (code && message)
        error_set(err, error_kind_of_code(code), "%s", message);
    else
        error_set(err, error_kind_of_http_status((int)status), "the server answered %ld without a reason", status);
    json_decref(reply);
    return false;
}

bool call_failed(CURLcode code, const char *url, struct error *err)
{
    const char *scheme_end = strstr(url, "://");
    call_context_note_failure();
    const char *host = scheme_end ? scheme_end + 3 : url;
    int host_length = (int)strcspn(host, "/?"); /* a path may hold a token: never print it */
    AUTO_FREE char *place = memory_printf("%.*s", host_length, host);
    if (trust_refused(code, place, err))
        return false;
    enum error_kind kind = code == CURLE_OPERATION_TIMEDOUT ? ERROR_TIMEOUT : ERROR_NODE_UNREACHABLE;
    return error_set(err, kind, "no answer from %s: %s", place, curl_easy_strerror(code));
}

static size_t collect(char *data, size_t one, size_t count, void *cookie)
{
    struct text *reply = cookie;
    if (reply->length + one * count > CALL_REPLY_MAX_BYTES)
        return 0;
    text_append(reply, data, one * count);
    return one * count;
}

static bool read_reply(long status, const struct text *text, json_t **reply, struct error *err)
{
    if (status < 200 || status > 299)
        return call_refused(status, text->data, text->length, err);
    if (!reply)
        return true;
    if (text->length == 0) {
        *reply = NULL;
        return true;
    }
    json_t *read = json_loadb(text->data, text->length, JSON_REJECT_DUPLICATES, NULL);
    if (!read)
        return error_set(err, ERROR_INTERNAL, "the server's answer is no JSON");
    *reply = read;
    return true;
}

bool call_transfer_start(struct call_transfer *transfer, const struct call *call, struct error *err)
{
    CURL *curl = curl_easy_init();
    if (!curl)
        return error_set(err, ERROR_INTERNAL, "libcurl does not start");
    *transfer = (struct call_transfer){.curl = curl,
                                       .url = memory_string(call->url),
                                       .headers = call_add_credential(NULL, call->credential),
                                       .reply = memory_new(sizeof *transfer->reply)};
    call_prepare(curl);
    curl_easy_setopt(curl, CURLOPT_URL, transfer->url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(call->timeout_ms ? call->timeout_ms : 60000));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer->reply);
    if (call->body) {
        transfer->body = json_dumps(call->body, JSON_COMPACT);
        transfer->headers = curl_slist_append(transfer->headers, "Content-Type: application/json");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, transfer->body);
    }
    if (call->if_match) {
        AUTO_FREE char *header = memory_printf("If-Match: %s", call->if_match);
        transfer->headers = curl_slist_append(transfer->headers, header);
    }
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, transfer->headers);
    return true;
}

bool call_transfer_finish(struct call_transfer *transfer, CURLcode code, json_t **reply, int *status, struct error *err)
{
    long answered = 0;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &answered);
    bool good = false;
    if (code == CURLE_OK)
        good = read_reply(answered, transfer->reply, reply, err);
    else if (code == CURLE_WRITE_ERROR) /* collect() takes no more */
        error_set(err, ERROR_INTERNAL, "the server's answer is over %d MiB", CALL_REPLY_MAX_BYTES / (1024 * 1024));
    else
        call_failed(code, transfer->url, err);
    if (status && code == CURLE_OK)
        *status = (int)answered;
    call_transfer_done(transfer);
    return good;
}

static void wipe(char *secret, size_t size)
{
    if (secret)
        sodium_memzero(secret, size);
}

void call_transfer_done(struct call_transfer *transfer)
{
    curl_easy_cleanup(transfer->curl);
    curl_slist_free_all(transfer->headers);
    free(transfer->url);
    wipe(transfer->body, transfer->body ? strlen(transfer->body) : 0);
    free(transfer->body);
    if (transfer->reply) {
        wipe(transfer->reply->data, transfer->reply->length);
        text_done(transfer->reply);
    }
    free(transfer->reply);
    *transfer = (struct call_transfer){0};
}

bool call_json(const struct call *call, json_t **reply, int *status, struct error *err)
{
    struct call_transfer transfer = {0};
    return call_transfer_start(&transfer, call, err) &&
           call_transfer_finish(&transfer, curl_easy_perform(transfer.curl), reply, status, err);
}
