#include "negotiator/fleet/fleet_internal.h"
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
    json_t *reply = link_open(address->from_node.bytes, bytes, size, &head, err);
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
    if (!link_seal(address.to_node.bytes, &address.head, job->message, &question, &question_size, err))
        return NULL;
    if (!node_call(caller, url, question, question_size, fleet->options.call_timeout_ms, &answer, &answer_size, err))
        return NULL;
    return open_reply(&address, answer, answer_size, err);
}

static void run_job(struct fleet *fleet, struct node_caller *caller, const struct fleet_job *job)
{
    struct error err = {0};
    json_t *reply = call(fleet, caller, job, &err);
    if (job->done)
        job->done(job->cookie, reply, &err);
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

/* The next job; NULL when stopping and nothing is left. *dropped: it is not to be called any more. */
static struct fleet_job *take_job(struct fleet *fleet, bool *dropped)
{
    pthread_mutex_lock(&fleet->queue_lock);
    while (fleet->first == NULL && !fleet->stopping)
        pthread_cond_wait(&fleet->queued, &fleet->queue_lock);
    struct fleet_job *job = fleet->first;
    if (job)
        fleet->first = job->next;
    if (fleet->first == NULL)
        fleet->last = &fleet->first;
    *dropped = fleet->stopping;
    pthread_mutex_unlock(&fleet->queue_lock);
    return job;
}

static void *work(void *argument)
{
    struct fleet *fleet = argument;
    AUTO(node_caller) *caller = node_caller_new();
    bool dropped = false;
    for (struct fleet_job *job; (job = take_job(fleet, &dropped)) != NULL; job_free(job)) {
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
    pthread_mutex_lock(&fleet->queue_lock);
    *fleet->last = job;
    fleet->last = &job->next;
    pthread_cond_signal(&fleet->queued);
    pthread_mutex_unlock(&fleet->queue_lock);
}

bool calls_start(struct fleet *fleet, struct error *err)
{
    fleet->threads = memory_array(fleet->options.workers, sizeof *fleet->threads);
    /* Signals are for main: a thread inherits the mask of its maker. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    while (code == 0 && fleet->thread_count < fleet->options.workers) {
        code = pthread_create(&fleet->threads[fleet->thread_count], NULL, work, fleet);
        if (code == 0)
            pthread_setname_np(fleet->threads[fleet->thread_count++], "fleet");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    return code == 0 || error_set_errno(err, ERROR_INTERNAL, "starting the threads that call nodes");
}

void calls_stop(struct fleet *fleet)
{
    pthread_mutex_lock(&fleet->queue_lock);
    fleet->stopping = true;
    pthread_cond_broadcast(&fleet->queued);
    pthread_mutex_unlock(&fleet->queue_lock);
    for (unsigned i = 0; i < fleet->thread_count; i++)
        pthread_join(fleet->threads[i], NULL);
    fleet->thread_count = 0;
    free(fleet->threads);
    fleet->threads = NULL;
}
