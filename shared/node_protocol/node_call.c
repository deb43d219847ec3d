#include "shared/node_protocol/node_call.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/link.h"
#include "shared/trust/trust.h"

#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>
#include <string.h>

struct node_caller {
    CURL *curl;                   /* NULL until the first call */
    const atomic_bool *cancelled; /* NULL: never */
};

/* What a reply grows in; more than LINK_MESSAGE_MAX_BYTES ends the transfer. */
struct reply {
    struct text body;
    bool too_large;
};

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT); /* once, for it is not safe beside itself before curl 7.84 */
}

struct node_caller *node_caller_new(void)
{
    return memory_new(sizeof(struct node_caller));
}

void node_caller_free(struct node_caller *caller)
{
    if (caller == NULL)
        return;
    curl_easy_cleanup(caller->curl);
    free(caller);
}

void node_caller_cancel_by(struct node_caller *caller, const atomic_bool *flag)
{
    caller->cancelled = flag;
}

/* libcurl asks once a second where nothing moves. */
static int on_progress(void *context, curl_off_t to_load UNUSED, curl_off_t loaded UNUSED, curl_off_t to_send UNUSED,
                       curl_off_t sent UNUSED)
{
    const struct node_caller *caller = context;
    return caller->cancelled && atomic_load(caller->cancelled);
}

static bool watch_cancel(struct node_caller *caller)
{
    CURLcode code = curl_easy_setopt(caller->curl, CURLOPT_NOPROGRESS, caller->cancelled ? 0L : 1L);
    code = code ? code : curl_easy_setopt(caller->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    code = code ? code : curl_easy_setopt(caller->curl, CURLOPT_XFERINFODATA, caller);
    return code == CURLE_OK;
}

static size_t on_body(char *data, size_t one, size_t count, void *context)
{
    struct reply *reply = context;
    size_t size = one * count;
    reply->too_large = size > LINK_MESSAGE_MAX_BYTES - reply->body.length;
    if (reply->too_large)
        return CURL_WRITEFUNC_ERROR;
    text_append(&reply->body, data, size);
    return size;
}

static bool open_curl(struct node_caller *caller, struct error *err)
{
    static pthread_once_t started = PTHREAD_ONCE_INIT;
    pthread_once(&started, start_curl);
    if (caller->curl == NULL)
        caller->curl = curl_easy_init();
    if (caller->curl == NULL)
        return error_set(err, ERROR_INTERNAL, "libcurl does not start");
    return true;
}

static const long CONNECT_TIMEOUT_MS = 3000; /* a host that drops packets keeps no caller longer */

/* All options anew for each call; the connection survives curl_easy_reset. */
static bool set_options(CURL *curl, const char *url, const void *body, size_t body_size, unsigned timeout_ms,
                        struct reply *reply, char *why, const struct curl_slist *headers)
{
    curl_easy_reset(curl);
    CURLcode code = curl_easy_setopt(curl, CURLOPT_URL, url);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    code = code ? code : curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* whatever http_proxy says */
    code = code ? code : curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L); /* we have threads */
    code = code ? code : curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms ? (long)timeout_ms : 1L);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_POST, 1L);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_size);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body_size ? body : "");
    code = code ? code : curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    trust_apply(curl);
    return code == CURLE_OK;
}

/* The reply is an error that nobody sealed: its kind is that of the status, its sentence a hint for the log. */
static bool refuse(const char *url, long status, const struct text *body, struct error *err)
{
    enum error_kind kind = error_kind_of_http_status((int)status);
    if (kind == ERROR_NONE)
        kind = ERROR_INTERNAL; /* only 200 is right */
    if (status == 503)
        kind = ERROR_NODE_UNREACHABLE;
    json_t *json = body->data ? json_loadb(body->data, body->length, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *said = json_string_value(json_object_get(json_object_get(json, "error"), "message"));
    error_set(err, kind, "%.100s answered %ld%s%.100s", url, status, said ? ": " : "", said ? said : "");
    json_decref(json);
    return false;
}

static bool perform(struct node_caller *caller, const char *url, struct reply *reply, const char *why, long *status,
                    struct error *err)
{
    CURLcode code = curl_easy_perform(caller->curl);
    if (reply->too_large)
        return error_set(err, ERROR_TOO_LARGE, "%.100s answered with more than %d bytes", url, LINK_MESSAGE_MAX_BYTES);
    if (code == CURLE_URL_MALFORMAT)
        return error_set(err, ERROR_INVALID, "%.100s is not an http or https URL", url);
    if (trust_refused(code, url, err))
        return false;
    if (code != CURLE_OK)
        return error_set(err, ERROR_NODE_UNREACHABLE, "%.100s: %s", url, why[0] ? why : curl_easy_strerror(code));
    curl_easy_getinfo(caller->curl, CURLINFO_RESPONSE_CODE, status);
    return true;
}

static bool transfer(struct node_caller *caller, const char *url, struct reply *reply, const char *why,
                     struct error *err)
{
    long status = 0;
    return perform(caller, url, reply, why, &status, err) && (status == 200 || refuse(url, status, &reply->body, err));
}

static bool is_callable(struct node_caller *caller, const char *url, size_t body_size, struct error *err)
{
    if (body_size > LINK_MESSAGE_MAX_BYTES)
        return error_set(err, ERROR_TOO_LARGE, "a call of %zu bytes; at most %d", body_size, LINK_MESSAGE_MAX_BYTES);
    if (!text_starts_with(url, "http://") && !text_starts_with(url, "https://"))
        return error_set(err, ERROR_INVALID, "%.100s is not an http or https URL", url);
    return open_curl(caller, err);
}

bool node_call(struct node_caller *caller, const char *url, const void *body, size_t body_size, unsigned timeout_ms,
               uint8_t **reply, size_t *reply_size, struct error *err)
{
    if (!is_callable(caller, url, body_size, err))
        return false;
    char why[CURL_ERROR_SIZE] = "";
    struct reply got = {0};
    /* No "Expect: 100-continue": it would cost a round trip. */
    struct curl_slist *expect = curl_slist_append(NULL, "Expect:");
    struct curl_slist *headers = curl_slist_append(expect, "Content-Type: application/octet-stream");
    bool ok = headers && set_options(caller->curl, url, body, body_size, timeout_ms, &got, why, headers) &&
              watch_cancel(caller);
    if (!ok)
        error_set(err, ERROR_INTERNAL, "libcurl takes not the options of a call");
    ok = ok && transfer(caller, url, &got, why, err);
    curl_easy_reset(caller->curl); /* it points at our locals */
    curl_slist_free_all(headers ? headers : expect);
    if (ok) {
        text_append(&got.body, "", 0); /* an empty reply is no NULL */
        *reply_size = got.body.length;
        *reply = (uint8_t *)TAKE(got.body.data);
    }
    text_done(&got.body);
    return ok;
}

/* ---- any request ---- */

static void take_answer(struct node_caller *caller, struct reply *reply, long status, struct node_answer *answer)
{
    const char *type = NULL;
    *answer = (struct node_answer){.status = (int)status};
    if (curl_easy_getinfo(caller->curl, CURLINFO_CONTENT_TYPE, &type) != CURLE_OK || type == NULL ||
        !text_copy(answer->type, sizeof answer->type, type))
        answer->type[0] = '\0';
    text_append(&reply->body, "", 0);
    answer->body_size = reply->body.length;
    answer->body = (uint8_t *)TAKE(reply->body.data);
}

static struct curl_slist *make_headers(const struct node_request *request)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");
    for (size_t i = 0; list && request->headers[i]; i++) {
        struct curl_slist *longer = curl_slist_append(list, request->headers[i]);
        if (longer == NULL)
            curl_slist_free_all(list);
        list = longer;
    }
    return list;
}

bool node_ask(struct node_caller *caller, const struct node_request *request, struct node_answer *answer,
              struct error *err)
{
    if (!is_callable(caller, request->url, request->body_size, err))
        return false;
    char why[CURL_ERROR_SIZE] = "";
    struct reply got = {0};
    long status = 0;
    struct curl_slist *headers = make_headers(request);
    bool ok = headers &&
              set_options(caller->curl, request->url, request->body, request->body_size, request->timeout_ms, &got, why,
                          headers) &&
              curl_easy_setopt(caller->curl, CURLOPT_CUSTOMREQUEST, request->method) == CURLE_OK &&
              watch_cancel(caller);
    if (!ok)
        error_set(err, ERROR_INTERNAL, "libcurl takes not the options of a call");
    ok = ok && perform(caller, request->url, &got, why, &status, err);
    if (ok)
        take_answer(caller, &got, status, answer);
    curl_easy_reset(caller->curl);
    curl_slist_free_all(headers);
    text_done(&got.body);
    return ok;
}
