#include "negotiator/fleet/fleet_internal.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/node_call.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static void job_free(struct fleet_job *job)
{
    if (job == NULL)
        return;
    json_decref(job->message);
    free(job);
}

/* --- one call --- */

/* {"error":{"code","message"}} -> err. */
static bool read_refusal(const json_t *reply, struct error *err)
{
    const json_t *error = json_object_get(reply, "error");
    if (error == NULL)
        return json_is_true(json_object_get(reply, "ok")) ||
               error_set(err, ERROR_NODE_UNREACHABLE, "the node's answer is neither ok nor an error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    return error_set(err, error_kind_of_code(code ? code : ""), "%s", message ? message : "the node refused");
}

static json_t *open_reply(const struct fleet_address *address, const uint8_t *bytes, size_t size, struct error *err)
{
    struct link_head head;
    json_t *reply = link_open(address->keys.from_node.bytes, bytes, size, &head, err);
    if (reply == NULL) {
        error_set(err, ERROR_NODE_UNREACHABLE, "the answer of node %s does not open", address->head.node);
        return NULL;
    }
    bool ours = strcmp(head.node, address->head.node) == 0 && head.in_reply_to == address->head.number &&
                head.incarnation == address->head.incarnation;
    if (ours && read_refusal(reply, err))
        return reply;
    if (!ours)
        error_set(err, ERROR_NODE_UNREACHABLE, "the answer of node %s belongs to another question", address->head.node);
    json_decref(reply);
    return NULL;
}

/* A copy of all that a sandbox has may take its time; such a call does not keep us from stopping. */
static unsigned timeout_of(const struct fleet *fleet, struct node_caller *caller, const struct fleet_job *job)
{
    static const unsigned LONG_MS = 600000;
    bool is_long = text_equal(json_string_value(json_object_get(job->message, "call")), "snapshot");
    node_caller_cancel_by(caller, is_long ? &fleet->ending : NULL);
    return is_long && fleet->options.call_timeout_ms < LONG_MS ? LONG_MS : fleet->options.call_timeout_ms;
}

static json_t *call(struct fleet *fleet, struct node_caller *caller, const struct fleet_job *job, struct error *err)
{
    AUTO_ADDRESS address = {0};
    if (!fleet_address(fleet, job->node, &address) || address.url[0] == '\0') {
        error_set(err, ERROR_NODE_UNREACHABLE, "node %s is not known", job->node);
        return NULL;
    }
    AUTO_FREE char *url = memory_printf("%s/node/v1/message", address.url);
    AUTO_FREE uint8_t *question = NULL, *answer = NULL;
    size_t question_size = 0, answer_size = 0;
    if (!link_seal(address.keys.to_node.bytes, &address.head, job->message, &question, &question_size, err))
        return NULL;
    if (!node_call(caller, url, question, question_size, timeout_of(fleet, caller, job), &answer, &answer_size, err))
        return NULL;
    fleet_dial_learn(fleet, job->node, address.url);
    return open_reply(&address, answer, answer_size, err);
}

static void run_job(struct fleet *fleet, struct node_caller *caller, const struct fleet_job *job)
{
    struct error err = {0};
    json_t *reply = call(fleet, caller, job, &err);
    if (job->done)
        job->done(job->cookie, reply, &err);
    else if (reply == NULL && err.kind != ERROR_NODE_UNREACHABLE) /* nobody waits; a node that is away is no news */
        log_warn("fleet", "node %s refused %s: %s", job->node, json_string_value(json_object_get(job->message, "call")),
                 err.message);
    json_decref(reply);
}

static void drop_job(const struct fleet_job *job)
{
    struct error err = {0};
    error_set(&err, ERROR_NODE_UNREACHABLE, "the negotiator stops");
    if (job->done)
        job->done(job->cookie, NULL, &err);
}

/* --- the queue --- */

/* A node that hangs may have half of the workers, not all. */
static bool may_call(const struct fleet *fleet, const char *node)
{
    unsigned calls = 0;
    for (unsigned i = 0; i < fleet->options.workers; i++)
        calls += strcmp(fleet->calling[i], node) == 0;
    return fleet->stopping || calls == 0 || calls < fleet->options.workers / 2;
}

/* Where the first job is that may be called now; NULL when there is none. Queue locked. */
static struct fleet_job **find_job(struct fleet *fleet)
{
    for (struct fleet_job **at = &fleet->first; *at; at = &(*at)->next) {
        if (may_call(fleet, (*at)->node))
            return at;
    }
    return NULL;
}

/* The next job of that worker; NULL when stopping and nothing is left. *dropped: it is not to be called any more. */
static struct fleet_job *take_job(struct fleet *fleet, unsigned worker, bool *dropped)
{
    struct fleet_job **at, *job = NULL;
    pthread_mutex_lock(&fleet->queue_lock);
    fleet->calling[worker][0] = '\0'; /* what that allows, this worker takes: nobody else need wake */
    while ((at = find_job(fleet)) == NULL && !fleet->stopping)
        pthread_cond_wait(&fleet->queued, &fleet->queue_lock);
    if (at) {
        job = *at;
        *at = job->next;
        if (*at == NULL)
            fleet->last = at;
        memcpy(fleet->calling[worker], job->node, sizeof job->node);
    }
    *dropped = fleet->stopping;
    pthread_mutex_unlock(&fleet->queue_lock);
    if (job)
        fleet_count_waiting(fleet, job->node, -1);
    return job;
}

struct fleet_worker {
    struct fleet *fleet;
    unsigned index;
};

static void *work(void *argument)
{
    struct fleet_worker *self = argument;
    struct fleet *fleet = self->fleet;
    AUTO(node_caller) *caller = node_caller_new();
    bool dropped = false;
    for (struct fleet_job *job; (job = take_job(fleet, self->index, &dropped)) != NULL; job_free(job)) {
        if (dropped)
            drop_job(job);
        else
            run_job(fleet, caller, job);
    }
    return NULL;
}

void fleet_call(struct fleet *fleet, const char *node, json_t *message, fleet_done *done, void *cookie)
{
    struct fleet_job *job = memory_new(sizeof *job);
    job->message = message;
    job->done = done;
    job->cookie = cookie;
    bool fits = text_copy(job->node, sizeof job->node, node);
    (void)fits; /* else "", which no node is called */
    if (fleet_count_waiting(fleet, job->node, 1) >= FLEET_WAITING_MAX && done == NULL) {
        fleet_count_waiting(fleet, job->node, -1);
        job_free(job);
        return;
    }
    pthread_mutex_lock(&fleet->queue_lock);
    *fleet->last = job;
    fleet->last = &job->next;
    pthread_cond_signal(&fleet->queued);
    pthread_mutex_unlock(&fleet->queue_lock);
}

bool calls_start(struct fleet *fleet, struct error *err)
{
    fleet->threads = memory_array(fleet->options.workers, sizeof *fleet->threads);
    fleet->workers = memory_array(fleet->options.workers, sizeof *fleet->workers);
    fleet->calling = memory_array(fleet->options.workers, sizeof *fleet->calling);
    /* Signals are for main: a thread inherits the mask of its maker. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    while (code == 0 && fleet->thread_count < fleet->options.workers) {
        struct fleet_worker *worker = &fleet->workers[fleet->thread_count];
        *worker = (struct fleet_worker){fleet, fleet->thread_count};
        code = pthread_create(&fleet->threads[fleet->thread_count], NULL, work, worker);
        if (code == 0)
            pthread_setname_np(fleet->threads[fleet->thread_count++], "fleet");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    return code == 0 || error_set_errno(err, ERROR_INTERNAL, "starting the threads that call nodes");
}

void calls_stop(struct fleet *fleet)
{
    atomic_store(&fleet->ending, true);
    pthread_mutex_lock(&fleet->queue_lock);
    fleet->stopping = true;
    pthread_cond_broadcast(&fleet->queued);
    pthread_mutex_unlock(&fleet->queue_lock);
    for (unsigned i = 0; i < fleet->thread_count; i++)
        pthread_join(fleet->threads[i], NULL);
    fleet->thread_count = 0;
    free(fleet->threads);
    free(fleet->workers);
    free(fleet->calling);
    fleet->threads = NULL;
    fleet->workers = NULL;
    fleet->calling = NULL;
}
