/* identity.c - the queue of tokens, the thread that verifies them, and those that wait for newer keys. */
#include "negotiator/identity/identity.h"

#include "negotiator/identity/jwt.h"
#include "negotiator/identity/recall.h"
#include "negotiator/identity/source.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS_MAX = 1024 };

struct job {
    struct job *next;
    char *token;
    bool is_again; /* it had its chance of newer keys */
    size_t issuer; /* WAITING: whose */
    void (*done)(void *cookie, const struct principal *principal, const struct error *err);
    void *cookie;
};

/* What a source knows of us. */
struct wake {
    struct identity *identity;
    size_t issuer;
};

struct identity {
    struct issuers issuers;
    struct source *sources[ISSUERS_MAX];
    struct wake wakes[ISSUERS_MAX];
    struct recall *recall;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct job *first, **last; /* to be verified */
    struct job *waiting;       /* for newer keys */
    size_t count;              /* of both */
    bool is_stopping;
};

static double wall_s(void)
{
    return (double)clock_wall_ms() / 1000;
}

/* ---- one token ---- */

static size_t index_of(const struct identity *identity, const struct issuer *issuer)
{
    return (size_t)(issuer - identity->issuers.each);
}

/* UNKNOWN_KEY: *issuer is whose. */
static enum jwt_verdict judge(struct identity *identity, const struct job *job, struct principal *principal,
                              size_t *issuer_index, struct error *err)
{
    AUTO_JWT jwt = {0};
    double now_s = wall_s(), expires_s = 0;
    if (!jwt_read(&jwt, job->token, err))
        return JWT_REFUSED;
    const struct issuer *issuer = issuers_find(&identity->issuers, jwt_issuer(&jwt));
    if (issuer == NULL) {
        error_set(err, ERROR_UNAUTHENTICATED, "its iss is none of the issuers here");
        return JWT_REFUSED;
    }
    *issuer_index = index_of(identity, issuer);
    struct source *source = identity->sources[*issuer_index];
    const struct jwks *keys = source_hold(source);
    enum jwt_verdict verdict = jwt_judge(&jwt, issuer, keys, now_s, principal, &expires_s, err);
    source_give_back(source);
    if (verdict == JWT_UNKNOWN_KEY && keys == NULL)
        error_set(err, ERROR_BAD_GATEWAY, "the keys of issuer %s could not be read yet", issuer->name);
    if (verdict == JWT_GOOD)
        recall_add(identity->recall, job->token, principal, now_s, expires_s);
    return verdict;
}

static void finish(struct job *job, const struct principal *principal, const struct error *err)
{
    job->done(job->cookie, principal, err);
    free(job->token);
    free(job);
}

/* ---- the queue ---- */

static void append(struct identity *identity, struct job *job)
{
    job->next = NULL;
    *identity->last = job;
    identity->last = &job->next;
    pthread_cond_signal(&identity->changed);
}

static struct job *take(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    while (identity->first == NULL && !identity->is_stopping)
        pthread_cond_wait(&identity->changed, &identity->mutex);
    struct job *job = identity->is_stopping ? NULL : identity->first;
    if (job) {
        identity->first = job->next;
        if (identity->first == NULL)
            identity->last = &identity->first;
    }
    pthread_mutex_unlock(&identity->mutex);
    return job;
}

static void count_down(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    identity->count--;
    pthread_mutex_unlock(&identity->mutex);
}

/* It is judged again when newer keys are there; at once when none come, as some may have come just now. The list is
 * locked while the source is asked: what that brings it brings after. */
static void judge_again(struct identity *identity, struct job *job, size_t issuer)
{
    job->is_again = true;
    job->issuer = issuer;
    pthread_mutex_lock(&identity->mutex);
    if (source_want(identity->sources[issuer], false)) {
        job->next = identity->waiting;
        identity->waiting = job;
    } else {
        append(identity, job);
    }
    pthread_mutex_unlock(&identity->mutex);
}

static void *run(void *argument)
{
    struct identity *identity = argument;
    for (struct job *job; (job = take(identity));) {
        struct principal principal;
        struct error err = {0};
        size_t issuer = 0;
        enum jwt_verdict verdict = judge(identity, job, &principal, &issuer, &err);
        if (verdict == JWT_UNKNOWN_KEY && !job->is_again) {
            judge_again(identity, job, issuer);
            continue;
        }
        count_down(identity);
        finish(job, verdict == JWT_GOOD ? &principal : NULL, &err);
    }
    return NULL;
}

static void on_fetched(void *context)
{
    const struct wake *wake = context;
    struct identity *identity = wake->identity;
    pthread_mutex_lock(&identity->mutex);
    for (struct job **at = &identity->waiting; *at;) {
        struct job *job = *at;
        if (job->issuer != wake->issuer) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        append(identity, job);
    }
    pthread_mutex_unlock(&identity->mutex);
}

/* ---- life ---- */

struct identity *identity_open(const char *file, uint64_t again_ns, struct error *err)
{
    AUTO(identity) *identity = memory_new(sizeof *identity);
    pthread_mutex_init(&identity->mutex, NULL);
    pthread_cond_init(&identity->changed, NULL);
    identity->last = &identity->first;
    identity->recall = recall_new();
    if (!issuers_load(&identity->issuers, file, err))
        return NULL;
    for (size_t i = 0; i < identity->issuers.count; i++) {
        identity->sources[i] = source_new(&identity->issuers.each[i], again_ns, err);
        if (identity->sources[i] == NULL)
            return NULL;
    }
    return TAKE(identity);
}

bool identity_start(struct identity *identity, struct error *err)
{
    errno = pthread_create(&identity->thread, NULL, run, identity);
    identity->has_thread = errno == 0;
    if (!identity->has_thread)
        return error_set_errno(err, ERROR_INTERNAL, "start the thread that verifies tokens");
    for (size_t i = 0; i < identity->issuers.count; i++) {
        identity->wakes[i] = (struct wake){.identity = identity, .issuer = i};
        if (!source_start(identity->sources[i], on_fetched, &identity->wakes[i], err))
            return false;
    }
    return true;
}

static void drop(struct identity *identity, struct job *jobs)
{
    struct error err;
    error_set(&err, ERROR_NO_CAPACITY, "the negotiator stops");
    for (struct job *job = jobs, *next; job; job = next) {
        next = job->next;
        identity->count--;
        finish(job, NULL, &err);
    }
}

void identity_stop(struct identity *identity)
{
    pthread_mutex_lock(&identity->mutex);
    identity->is_stopping = true;
    pthread_cond_broadcast(&identity->changed);
    pthread_mutex_unlock(&identity->mutex);
    if (identity->has_thread)
        pthread_join(identity->thread, NULL);
    identity->has_thread = false;
    for (size_t i = 0; i < identity->issuers.count; i++) {
        if (identity->sources[i])
            source_stop(identity->sources[i]);
    }
    drop(identity, TAKE(identity->waiting));
    drop(identity, TAKE(identity->first));
    identity->last = &identity->first;
}

void identity_free(struct identity *identity)
{
    if (identity == NULL)
        return;
    identity_stop(identity);
    for (size_t i = 0; i < identity->issuers.count; i++)
        source_free(identity->sources[i]);
    issuers_done(&identity->issuers);
    recall_free(identity->recall);
    pthread_cond_destroy(&identity->changed);
    pthread_mutex_destroy(&identity->mutex);
    free(identity);
}

void identity_reload(struct identity *identity)
{
    for (size_t i = 0; i < identity->issuers.count; i++)
        (void)!source_want(identity->sources[i], true); /* unless it stops, and then it does not matter */
    recall_forget_all(identity->recall);
}

size_t identity_folders(const struct identity *identity, const char *state, char *folders[static ISSUERS_MAX])
{
    size_t count = 0;
    AUTO_FREE char *ours = realpath(state, NULL);
    for (size_t i = 0; identity && i < identity->issuers.count; i++) {
        const struct issuer *issuer = &identity->issuers.each[i];
        AUTO_FREE char *folder = issuer->is_url ? NULL : realpath(issuer->jwks, NULL);
        if (folder == NULL || ours == NULL)
            continue;
        *strrchr(folder, '/') = '\0';
        size_t length = strlen(folder);
        bool is_around = strncmp(ours, folder, length) == 0 && (ours[length] == '/' || ours[length] == '\0');
        if (!is_around)
            folders[count++] = TAKE(folder);
    }
    return count;
}

/* ---- for the loops ---- */

bool identity_is_outside(const struct identity *identity, const char *credential)
{
    AUTO_JWT jwt = {0};
    struct error ignored;
    return identity && credential && jwt_read(&jwt, credential, &ignored) &&
           issuers_find(&identity->issuers, jwt_issuer(&jwt));
}

bool identity_recall(struct identity *identity, const char *credential, struct principal *principal)
{
    return recall_find(identity->recall, credential, wall_s(), principal);
}

bool identity_verify(struct identity *identity, const char *credential,
                     void (*done)(void *cookie, const struct principal *principal, const struct error *err),
                     void *cookie, struct error *err)
{
    struct job *job = memory_new(sizeof *job);
    *job = (struct job){.token = memory_string(credential), .done = done, .cookie = cookie};
    pthread_mutex_lock(&identity->mutex);
    bool is_taken = identity->count < JOBS_MAX && !identity->is_stopping;
    if (is_taken) {
        identity->count++;
        append(identity, job);
    }
    pthread_mutex_unlock(&identity->mutex);
    if (is_taken)
        return true;
    free(job->token);
    free(job);
    return error_set(err, ERROR_RATE_LIMITED, "too many tokens of outside issuers wait to be verified");
}
