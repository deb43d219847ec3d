#include "negotiator/identity/source.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static const uint64_t SECOND_NS = 1000000000, OLD_NS = 3600 * SECOND_NS;
static const long FETCH_MS = 10000;

struct source {
    const struct issuer *issuer;
    uint64_t again_ns;
    void (*fetched)(void *context);
    void *context;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_stopping;
    pthread_rwlock_t lock; /* guards keys */
    struct jwks *keys;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    bool is_wanted;   /* its thread reads, or is about to */
    uint64_t read_ns; /* monotonic, when it last began; 0: never */
};

/* ---- once ---- */

struct reply {
    struct text body;
    bool is_too_large;
};

static size_t on_body(char *data, size_t one, size_t count, void *context)
{
    struct reply *reply = context;
    size_t size = one * count;
    reply->is_too_large = size > JWKS_MAX_BYTES - reply->body.length;
    if (reply->is_too_large)
        return CURL_WRITEFUNC_ERROR;
    text_append(&reply->body, data, size);
    return size;
}

/* libcurl asks once a second where nothing moves. */
static int on_progress(void *context, curl_off_t to_load UNUSED, curl_off_t loaded UNUSED, curl_off_t to_send UNUSED,
                       curl_off_t sent UNUSED)
{
    const struct source *source = context;
    return atomic_load(&source->is_stopping);
}

static bool set_options(struct source *source, CURL *curl, struct reply *reply, char *why)
{
    const struct issuer *issuer = source->issuer;
    struct curl_blob ca = {.data = issuer->ca, .len = issuer->ca ? strlen(issuer->ca) : 0, .flags = CURL_BLOB_NOCOPY};
    CURLcode code = curl_easy_setopt(curl, CURLOPT_URL, issuer->jwks);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    code = code ? code : curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L); /* the operator named this place */
    code = code ? code : curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);       /* we have threads */
    code = code ? code : curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, FETCH_MS);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_XFERINFODATA, source);
    code = code ? code : curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    if (issuer->ca)
        code = code ? code : curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &ca);
    return code == CURLE_OK;
}

static bool fetch(struct source *source, struct text *body, struct error *err)
{
    char why[CURL_ERROR_SIZE] = "";
    struct reply reply = {0};
    long status = 0;
    CURL *curl = curl_easy_init();
    bool is_set = curl && set_options(source, curl, &reply, why);
    CURLcode code = is_set ? curl_easy_perform(curl) : CURLE_FAILED_INIT;
    if (code == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    *body = reply.body;
    if (reply.is_too_large)
        return error_set(err, ERROR_TOO_LARGE, "over %d bytes", JWKS_MAX_BYTES);
    if (code != CURLE_OK)
        return error_set(err, ERROR_BAD_GATEWAY, "%s", why[0] ? why : curl_easy_strerror(code));
    return status == 200 || error_set(err, ERROR_BAD_GATEWAY, "it answered %ld", status);
}

static bool read_keys(struct source *source, struct error *err)
{
    AUTO_TEXT body = {0};
    const char *place = source->issuer->jwks;
    if (source->issuer->is_url && !fetch(source, &body, err))
        return false;
    if (!source->issuer->is_url) {
        body.data = fd_read_file(place, JWKS_MAX_BYTES, &body.length, err);
        if (body.data == NULL)
            return false;
    }
    struct jwks *keys = jwks_parse(body.data ? body.data : "", body.length, err);
    if (keys == NULL)
        return false;
    if (jwks_count(keys) == 0)
        log_warn("identity", "issuer %s has no usable key in %s: nobody of it is let in", source->issuer->name, place);
    pthread_rwlock_wrlock(&source->lock);
    struct jwks *before = source->keys;
    source->keys = keys;
    pthread_rwlock_unlock(&source->lock);
    log_info("identity", "keys issuer=%s count=%zu", source->issuer->name, jwks_count(keys));
    jwks_free(before);
    return true;
}

/* ---- its thread ---- */

/* Until somebody wants keys, or they are old; false: it ends. */
static bool wait_for_work(struct source *source)
{
    pthread_mutex_lock(&source->mutex);
    uint64_t until_ns = source->read_ns + OLD_NS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / SECOND_NS), .tv_nsec = (long)(until_ns % SECOND_NS)};
    int failed = 0;
    while (!source->is_wanted && !atomic_load(&source->is_stopping) && failed == 0)
        failed = pthread_cond_timedwait(&source->changed, &source->mutex, &until);
    source->is_wanted = true;
    source->read_ns = clock_monotonic_ns();
    pthread_mutex_unlock(&source->mutex);
    return !atomic_load(&source->is_stopping);
}

static void *run(void *argument)
{
    struct source *source = argument;
    while (wait_for_work(source)) {
        struct error err = {0};
        if (!read_keys(source, &err))
            log_warn("identity", "the keys of issuer %s cannot be read, those of before stay: %.60s: %s",
                     source->issuer->name, source->issuer->jwks, err.message);
        pthread_mutex_lock(&source->mutex);
        source->is_wanted = false;
        pthread_mutex_unlock(&source->mutex);
        source->fetched(source->context);
    }
    return NULL;
}

/* ---- for others ---- */

struct source *source_new(const struct issuer *issuer, uint64_t again_ns, struct error *err)
{
    struct source *source = memory_new(sizeof *source);
    pthread_condattr_t monotonic;
    source->issuer = issuer;
    source->again_ns = again_ns;
    source->is_wanted = issuer->is_url;
    source->read_ns = clock_monotonic_ns();
    pthread_rwlock_init(&source->lock, NULL);
    pthread_mutex_init(&source->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&source->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (issuer->is_url || read_keys(source, err))
        return source;
    error_prefix(err, "the keys of issuer %s", issuer->name);
    err->kind = ERROR_INVALID;
    source_free(source);
    return NULL;
}

bool source_start(struct source *source, void (*fetched)(void *context), void *context, struct error *err)
{
    source->fetched = fetched;
    source->context = context;
    errno = pthread_create(&source->thread, NULL, run, source);
    source->has_thread = errno == 0;
    return source->has_thread ||
           error_set_errno(err, ERROR_INTERNAL, "start the thread of issuer %s", source->issuer->name);
}

void source_stop(struct source *source)
{
    pthread_mutex_lock(&source->mutex);
    atomic_store(&source->is_stopping, true);
    pthread_cond_signal(&source->changed);
    pthread_mutex_unlock(&source->mutex);
    if (source->has_thread)
        pthread_join(source->thread, NULL);
    source->has_thread = false;
}

void source_free(struct source *source)
{
    if (source == NULL)
        return;
    jwks_free(source->keys);
    pthread_cond_destroy(&source->changed);
    pthread_mutex_destroy(&source->mutex);
    pthread_rwlock_destroy(&source->lock);
    free(source);
}

bool source_want(struct source *source, bool always)
{
    pthread_mutex_lock(&source->mutex);
    bool is_soon = clock_monotonic_ns() - source->read_ns < source->again_ns;
    bool comes = source->has_thread && !atomic_load(&source->is_stopping) && (source->is_wanted || always || !is_soon);
    if (comes && !source->is_wanted) {
        source->is_wanted = true;
        pthread_cond_signal(&source->changed);
    }
    pthread_mutex_unlock(&source->mutex);
    return comes;
}

const struct jwks *source_hold(struct source *source)
{
    pthread_rwlock_rdlock(&source->lock);
    return source->keys;
}

void source_give_back(struct source *source)
{
    pthread_rwlock_unlock(&source->lock);
}
