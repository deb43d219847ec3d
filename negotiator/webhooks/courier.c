#include "negotiator/webhooks/courier_internal.h"

#include "negotiator/webhooks/target.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const int WAIT_MAX_MS = 10000;

/* --- letters --- */

void courier_post(struct courier *courier, struct letter letter)
{
    struct letter *posted = memory_copy(&letter, sizeof letter);
    posted->next = NULL;
    pthread_mutex_lock(&courier->mutex);
    *courier->last = posted;
    courier->last = &posted->next;
    pthread_mutex_unlock(&courier->mutex);
    curl_multi_wakeup(courier->multi);
}

static struct letter *take_letters(struct courier *courier)
{
    pthread_mutex_lock(&courier->mutex);
    struct letter *first = courier->first;
    courier->first = NULL;
    courier->last = &courier->first;
    pthread_mutex_unlock(&courier->mutex);
    return first;
}

/* Ledger thread. */
static void grew(void *cookie, uint64_t head UNUSED)
{
    struct courier *courier = cookie;
    if (!atomic_exchange(&courier->grew, true))
        curl_multi_wakeup(courier->multi);
}

/* --- hooks --- */

static struct hook *find_hook(struct courier *courier, const char *id)
{
    struct hook *hook = courier->hooks;
    while (hook && strcmp(hook->id, id) != 0)
        hook = hook->next;
    return hook;
}

static void look_again(struct courier *courier, const char *id)
{
    struct hook *hook = find_hook(courier, id);
    if (hook == NULL) {
        hook = memory_new(sizeof *hook);
        hook->courier = courier;
        hook->next = courier->hooks;
        courier->hooks = hook;
        if (!text_copy(hook->id, sizeof hook->id, id))
            hook->id[0] = '\0'; /* no row has it: it goes */
    }
    hook->is_stale = true;
    hook->due_ms = 0;
}

/* --- tests --- */

static void probe_end(struct courier *courier, struct probe *probe)
{
    pthread_mutex_lock(&courier->mutex);
    probe->tester[0] = '\0';
    pthread_mutex_unlock(&courier->mutex);
    probe->done(probe->cookie, &probe->note);
    delivery_done(&probe->delivery);
    webhook_done(&probe->webhook);
    free(probe);
}

static void probe_start(struct courier *courier, struct probe *probe)
{
    char now[CLOCK_TEXT_BYTES];
    struct error err = {0};
    clock_format(now, clock_wall_ms());
    json_t *event =
        json_pack("{s:i, s:s, s:s, s:s}", "id", 0, "type", "webhook.test", "time", now, "webhook", probe->webhook.id);
    bool started = delivery_start(&probe->delivery, courier->options.leasing, &probe->webhook, event,
                                  courier->options.hosts, &err) &&
                   curl_multi_add_handle(courier->multi, probe->delivery.curl) == CURLM_OK;
    json_decref(event);
    if (started) {
        probe->next = courier->probes;
        courier->probes = probe;
        return;
    }
    snprintf(probe->note.error, sizeof probe->note.error, "it could not be sent");
    probe_end(courier, probe);
}

static struct probe *take_probe(struct courier *courier, const CURL *curl)
{
    struct probe **at = &courier->probes;
    while (*at && (*at)->delivery.curl != curl)
        at = &(*at)->next;
    struct probe *found = *at;
    if (found)
        *at = found->next;
    return found;
}

/* NULL: there is none, or the principal has as many as one may: else whoever receives slowly would leave others none.
 */
static char *take_place(struct courier *courier, const char *principal)
{
    size_t own = 0;
    char *place = NULL;
    pthread_mutex_lock(&courier->mutex);
    for (size_t i = 0; i < COURIER_TESTS_MAX; i++) {
        own += strcmp(courier->testers[i], principal) == 0;
        place = courier->testers[i][0] == '\0' ? courier->testers[i] : place;
    }
    bool is_taken = place && own < COURIER_TESTS_OF_ONE && text_copy(place, PRINCIPAL_BYTES, principal);
    pthread_mutex_unlock(&courier->mutex);
    return is_taken ? place : NULL;
}

bool courier_test(struct courier *courier, const struct webhook *webhook,
                  void (*done)(void *cookie, const struct webhook_note *note), void *cookie)
{
    char *tester = take_place(courier, webhook->principal);
    if (tester == NULL)
        return false;
    struct probe *probe = memory_new(sizeof *probe);
    probe->webhook = webhook_copy(webhook);
    probe->done = done;
    probe->cookie = cookie;
    probe->tester = tester;
    courier_post(courier, (struct letter){.probe = probe});
    return true;
}

/* --- the thread --- */

static void read_letters(struct courier *courier)
{
    for (struct letter *letter = take_letters(courier), *next; letter; letter = next) {
        next = letter->next;
        if (letter->hook)
            hook_answered(letter->hook);
        else if (letter->probe)
            probe_start(courier, letter->probe);
        else
            look_again(courier, letter->id);
        free(letter);
    }
    if (!atomic_exchange(&courier->grew, false))
        return;
    for (struct hook *hook = courier->hooks; hook; hook = hook->next)
        hook->is_behind = true;
}

static void end_transfer(struct courier *courier, CURL *curl, CURLcode code)
{
    struct probe *probe = take_probe(courier, curl);
    struct hook *hook = courier->hooks;
    curl_multi_remove_handle(courier->multi, curl);
    if (probe) {
        delivery_finish(&probe->delivery, code, &probe->note);
        probe_end(courier, probe);
        return;
    }
    while (hook && hook->delivery.curl != curl)
        hook = hook->next;
    if (hook)
        hook_sent(hook, code);
}

static void end_transfers(struct courier *courier)
{
    int left = 0;
    for (const CURLMsg *told; (told = curl_multi_info_read(courier->multi, &left)) != NULL;) {
        if (told->msg == CURLMSG_DONE)
            end_transfer(courier, told->easy_handle, told->data.result);
    }
}

/* Lets each go on; how long nothing is due, ms. */
static int go_on(struct courier *courier)
{
    int64_t next = INT64_MAX, now = clock_wall_ms();
    for (struct hook **at = &courier->hooks; *at;) {
        struct hook *hook = *at;
        if (hook_go(hook)) {
            *at = hook->next;
            hook_free(hook);
            continue;
        }
        if (hook->busy == HOOK_FREE && hook->due_ms > now && hook->due_ms < next)
            next = hook->due_ms;
        at = &hook->next;
    }
    return next - now < WAIT_MAX_MS ? (int)(next - now) : WAIT_MAX_MS;
}

static void *run(void *argument)
{
    struct courier *courier = argument;
    while (!atomic_load(&courier->stopping)) {
        int running = 0;
        read_letters(courier);
        int wait = go_on(courier);
        curl_multi_perform(courier->multi, &running);
        end_transfers(courier);
        curl_multi_poll(courier->multi, NULL, 0, wait, NULL);
    }
    return NULL;
}

/* --- its life --- */

static enum kv_outcome ids_rule(struct kv *kv, void *argument, struct error *err)
{
    json_t **ids = argument;
    json_decref(TAKE(*ids));
    *ids = webhook_list_ids(kv, err);
    return *ids ? KV_APPLIED : KV_FAILED;
}

static bool take_up(struct courier *courier, struct error *err)
{
    json_t *ids = NULL;
    if (!ledger_run(courier->options.ledger, ids_rule, &ids, err)) {
        json_decref(ids);
        return error_prefix(err, "webhooks");
    }
    for (size_t i = 0; i < json_array_size(ids); i++)
        look_again(courier, json_string_value(json_array_get(ids, i)));
    json_decref(ids);
    courier->listener = (struct events_listener){.grew = grew, .cookie = courier};
    return events_listen(courier->options.hub, &courier->listener, err);
}

static bool start_thread(struct courier *courier, struct error *err)
{
    /* Signals are for main: a thread inherits the mask of its maker. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&courier->thread, NULL, run, courier);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    if (code != 0)
        return error_set_errno(err, ERROR_INTERNAL, "starting the thread of webhooks");
    pthread_setname_np(courier->thread, "webhooks");
    courier->runs = true;
    return true;
}

struct courier *courier_start(const struct courier_options *options, struct error *err)
{
    struct courier *courier = memory_new(sizeof *courier);
    courier->options = *options;
    courier->last = &courier->first;
    courier->multi = curl_multi_init();
    pthread_mutex_init(&courier->mutex, NULL);
    if (courier->multi == NULL)
        error_set(err, ERROR_INTERNAL, "libcurl does not start");
    else if (take_up(courier, err) && start_thread(courier, err))
        return courier;
    courier_stop(courier);
    courier_free(courier);
    return NULL;
}

/* Whoever waits for a test is told that it came to nothing. */
static void end_probes(struct courier *courier)
{
    for (struct probe *probe; (probe = courier->probes) != NULL;) {
        courier->probes = probe->next;
        curl_multi_remove_handle(courier->multi, probe->delivery.curl);
        snprintf(probe->note.error, sizeof probe->note.error, "the negotiator stops");
        probe_end(courier, probe);
    }
}

void courier_stop(struct courier *courier)
{
    if (courier == NULL)
        return;
    events_unlisten(courier->options.hub, &courier->listener);
    atomic_store(&courier->stopping, true);
    if (courier->runs) {
        curl_multi_wakeup(courier->multi);
        pthread_join(courier->thread, NULL);
    }
    courier->runs = false;
    end_probes(courier);
}

void courier_free(struct courier *courier)
{
    if (courier == NULL)
        return;
    for (struct letter *letter = take_letters(courier), *next; letter; letter = next) {
        next = letter->next;
        if (letter->probe)
            probe_end(courier, letter->probe);
        free(letter);
    }
    for (struct hook *hook = courier->hooks, *next; hook; hook = next) {
        next = hook->next;
        if (hook->delivery.curl)
            curl_multi_remove_handle(courier->multi, hook->delivery.curl);
        hook_free(hook);
    }
    curl_multi_cleanup(courier->multi);
    pthread_mutex_destroy(&courier->mutex);
    free(courier);
}

void courier_changed(struct courier *courier, const char *id)
{
    struct letter letter = {.hook = NULL};
    if (text_copy(letter.id, sizeof letter.id, id))
        courier_post(courier, letter);
}

bool courier_check_url(const struct courier *courier, const char *url, bool is_admin, struct error *err)
{
    return target_check(url, is_admin, courier->options.hosts, err);
}
