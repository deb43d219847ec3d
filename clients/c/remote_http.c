#include "clients/c/remote_http.h"

#include "clients/c/call.h"

#include <string.h>
#include <strings.h>

static const size_t REPLY_MAX_BYTES = 32 * 1024 * 1024;

/* A transfer and what stopped it from our side. */
struct transfer {
    CURL *curl;
    struct remote_http *http;
    struct error own;
};

static bool tell_moved(struct transfer *transfer, uint64_t bytes)
{
    struct remote_http *http = transfer->http;
    return !http->moved || http->moved(http->moved_cookie, bytes) ||
           error_set(&transfer->own, ERROR_GONE, "given up from here");
}

/* Called about once a second, and when a signal came. */
static int on_progress(void *cookie, curl_off_t to_fetch, curl_off_t fetched, curl_off_t to_send, curl_off_t sent)
{
    (void)to_fetch, (void)fetched, (void)to_send, (void)sent;
    return tell_moved(cookie, 0) ? 0 : 1;
}

static size_t on_body(char *data, size_t one, size_t count, void *cookie)
{
    struct transfer *transfer = cookie;
    struct remote_http *http = transfer->http;
    size_t size = one * count;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &http->status);
    if (!http->write || http->status < 200 || http->status > 299) {
        if (http->reply.length + size > REPLY_MAX_BYTES)
            return error_set(&transfer->own, ERROR_INTERNAL, "the server's answer is over 32 MiB") ? size : 0;
        text_append(&http->reply, data, size);
        return size;
    }
    if (!http->write(http->cookie, data, size, &transfer->own) || !tell_moved(transfer, size))
        return 0;
    http->received += size;
    return size;
}

static size_t on_header(char *data, size_t one, size_t count, void *cookie)
{
    struct transfer *transfer = cookie;
    size_t size = one * count;
    static const char NAME[] = "etag:";
    if (size <= sizeof NAME || strncasecmp(data, NAME, sizeof NAME - 1) != 0)
        return size;
    size_t from = sizeof NAME - 1, to = size;
    while (from < to && data[from] == ' ')
        from++;
    while (to > from && (data[to - 1] == '\r' || data[to - 1] == '\n' || data[to - 1] == ' '))
        to--;
    if (to - from < sizeof transfer->http->etag) {
        memcpy(transfer->http->etag, data + from, to - from);
        transfer->http->etag[to - from] = 0;
    }
    return size;
}

static size_t on_read(char *to, size_t one, size_t count, void *cookie)
{
    struct transfer *transfer = cookie;
    ssize_t got = transfer->http->read(transfer->http->cookie, to, one * count, &transfer->own);
    if (got < 0 || (got > 0 && !tell_moved(transfer, (uint64_t)got)))
        return CURL_READFUNC_ABORT;
    return (size_t)got;
}

static void set_body(CURL *curl, struct transfer *transfer)
{
    struct remote_http *http = transfer->http;
    if (http->text) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, http->text);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)http->text_size);
        http->headers = curl_slist_append(http->headers, "Content-Type: application/json");
    } else if (http->read) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(curl, CURLOPT_READDATA, transfer);
        curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 1024L * 1024);
        if (http->read_size != UINT64_MAX)
            curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)http->read_size);
        /* A refusal comes before the body is sent, and not as a broken connection. */
        http->headers = curl_slist_append(http->headers, "Expect: 100-continue");
    } else if (strcmp(http->method, "PUT") == 0 || strcmp(http->method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, http->method);
}

bool remote_http_perform(CURL *curl, struct remote_http *http, struct error *err)
{
    struct transfer transfer = {.curl = curl, .http = http};
    http->headers = call_add_credential(http->headers, http->credential);
    http->status = 0;
    http->etag[0] = 0;
    http->reply.length = 0;
    curl_easy_reset(curl);
    call_prepare(curl);
    set_body(curl, &transfer);
    curl_easy_setopt(curl, CURLOPT_URL, http->url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, http->headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 256L * 1024);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 60L);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http->status);
    curl_slist_free_all(http->headers);
    http->headers = NULL;
    bool is_refused =
        http->status > 299 && http->reply.length > 0; /* the server may close before it has all of the body */
    if (transfer.own.kind != ERROR_NONE) {
        *err = transfer.own;
        return false;
    }
    if (code != CURLE_OK && !is_refused)
        return call_failed(code, http->url, err);
    return (http->status >= 200 && http->status <= 299) ||
           call_refused(http->status, http->reply.data, http->reply.length, err);
}
