#include "clients/c/remote_fork.h"

#include "clients/c/grant_cache.h"
#include "clients/c/grant_call.h"
#include "clients/c/remote_sandbox.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <curl/curl.h>

enum { AT_ONCE = 8, WAIT_S = 30, POLL_MS = 200, NUMBERS_MAX = 10000 };
static const uint64_t STARTING_NS = UINT64_C(600000000000);

/* One negotiation that is under way. */
struct negotiation {
    struct call_transfer transfer; /* .curl NULL: the place is free */
    size_t index;                  /* of the fork */
    uint64_t began_ns;
};

/* A whole call of remote_fork_all. */
struct work {
    const struct place *place;
    const struct remote_fork_wanted *wanted;
    struct remote_fork *forks;
    json_t *more; /* the wishes and the snapshot */
    CURLM *multi;
    struct negotiation running[AT_ONCE];
    size_t begun, made, next_number;
};

/* `is_waited_for`: it is being made since an earlier call. */
static void negotiate(struct work *work, struct negotiation *negotiation, bool is_waited_for)
{
    struct remote_fork *fork = &work->forks[negotiation->index];
    const struct grant_request request = {.thread = fork->thread,
                                          .mode = is_waited_for ? "attach_only" : "create_only",
                                          .more = is_waited_for ? NULL : work->more,
                                          .wait_s = WAIT_S};
    if (grant_call_negotiate(&negotiation->transfer, work->place, &request, 0, &fork->error))
        curl_multi_add_handle(work->multi, negotiation->transfer.curl);
}

static void take_number(struct work *work, struct remote_fork *fork)
{
    free(fork->thread);
    fork->thread = memory_printf("%s-fork-%zu", work->wanted->stem, ++work->next_number);
}

static void begin(struct work *work, struct negotiation *negotiation)
{
    struct remote_fork *fork = &work->forks[work->begun];
    if (work->wanted->threads)
        fork->thread = memory_string(work->wanted->threads[work->begun]);
    else
        take_number(work, fork);
    negotiation->index = work->begun++;
    negotiation->began_ns = clock_boot_ns();
    negotiate(work, negotiation, false);
}

static void keep(struct work *work, struct remote_fork *fork)
{
    const struct grant_request plain = {.thread = fork->thread}; /* as who uses it will ask */
    AUTO_FREE char *key = grant_cache_key(work->place, &plain);
    json_t *entry = grant_to_entry(&fork->grant);
    grant_cache_store(-1, key, entry);
    json_decref(entry);
    work->made++;
}

/* A thread of our own naming that has a sandbox: the next number is tried. */
static bool is_taken(const struct work *work, const struct remote_fork *fork)
{
    if (work->wanted->threads || fork->error.kind != ERROR_CONFLICT || work->next_number >= NUMBERS_MAX)
        return false;
    AUTO_FREE char *id = remote_sandbox_of_thread(work->place, fork->thread, NULL);
    return id != NULL;
}

static void end(struct work *work, struct negotiation *negotiation, CURLcode code)
{
    struct remote_fork *fork = &work->forks[negotiation->index];
    fork->error = (struct error){0};
    if (grant_call_finish(&fork->grant, &negotiation->transfer, code, fork->thread, &fork->error)) {
        keep(work, fork);
    } else if (fork->error.kind == ERROR_STARTING && clock_boot_ns() - negotiation->began_ns < STARTING_NS) {
        negotiate(work, negotiation, true);
    } else if (is_taken(work, fork)) {
        take_number(work, fork);
        negotiate(work, negotiation, false);
    }
}

static bool is_stopped(const struct work *work)
{
    return work->wanted->is_stopped && work->wanted->is_stopped(work->wanted->cookie);
}

static struct negotiation *of_handle(struct work *work, const CURL *handle)
{
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (work->running[i].transfer.curl == handle)
            return &work->running[i];
    }
    return NULL;
}

/* Fills free places; false when nothing is under way any more. */
static bool fill(struct work *work)
{
    bool any = false;
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct negotiation *negotiation = &work->running[i];
        while (!negotiation->transfer.curl && work->begun < work->wanted->count)
            begin(work, negotiation);
        any = any || negotiation->transfer.curl;
    }
    return any;
}

static void turn(struct work *work)
{
    int running, left;
    curl_multi_perform(work->multi, &running);
    for (CURLMsg *message; (message = curl_multi_info_read(work->multi, &left)) != NULL;) {
        CURL *handle = message->easy_handle;
        CURLcode code = message->data.result;
        struct negotiation *done = of_handle(work, handle);
        curl_multi_remove_handle(work->multi, handle);
        if (done)
            end(work, done, code);
    }
    curl_multi_poll(work->multi, NULL, 0, POLL_MS, NULL);
}

/* What is under way is left alone, what was not begun is not made. */
static void give_up(struct work *work)
{
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct negotiation *negotiation = &work->running[i];
        if (!negotiation->transfer.curl)
            continue;
        curl_multi_remove_handle(work->multi, negotiation->transfer.curl);
        call_transfer_done(&negotiation->transfer);
        error_set(&work->forks[negotiation->index].error, ERROR_GONE, "stopped while it was being made");
    }
    for (; work->begun < work->wanted->count; work->begun++)
        error_set(&work->forks[work->begun].error, ERROR_GONE, "stopped before it was begun");
}

size_t remote_fork_all(const struct place *place, const struct remote_fork_wanted *wanted, struct remote_fork *forks)
{
    struct work work = {.place = place, .wanted = wanted, .forks = forks, .multi = curl_multi_init()};
    work.more = wanted->more ? json_deep_copy(wanted->more) : json_object();
    AUTO_FREE char *template = memory_printf("snapshot:%s", wanted->snapshot);
    json_object_set_new(work.more, "template", json_string(template));
    while (!is_stopped(&work) && fill(&work))
        turn(&work);
    give_up(&work);
    curl_multi_cleanup(work.multi);
    json_decref(work.more);
    return work.made;
}

void remote_forks_done(struct remote_fork *forks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(forks[i].thread);
        grant_done(&forks[i].grant);
    }
}
