/* ports_watch.c - which ports somebody listens at: told once to those who ask, and to watchers whenever it changes. The
 * socket that asks the kernel is had from init when it is first needed; there is one look at a time, for all. */
#include "sandboxd/sandbox/ports/ports_internal.h"

#include "sandboxd/sandbox/ports/listeners.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <errno.h>

enum { WATCHERS_MAX = 64, NOBODY = 65534 /* overflowuid: who has no uid in the sandbox, as this node has none */ };
static const uint64_t LOOK_NS = 1000000000, NS_A_MS = 1000000;

typedef void (*told_function)(uint64_t key, const struct port_list *list, const struct error *err);

struct port_watcher {
    struct port_watcher *next;
    struct loop *loop;
    told_function told;
    uint64_t key;
    bool stays;      /* a watcher; else it asked once */
    bool is_current; /* knows the list as it is */
};

/* ---- on the asker's loop ---- */

struct word {
    told_function told;
    uint64_t key;
    struct error error;
    struct port_list list;
};

static void say(void *cookie)
{
    AUTO_FREE struct word *word = cookie;
    bool is_list = word->error.kind == ERROR_NONE;
    word->told(word->key, is_list ? &word->list : NULL, is_list ? NULL : &word->error);
}

static void post(const struct port_watcher *watcher, const struct port_list *list, const struct error *err)
{
    struct word *word = memory_new(sizeof *word);
    word->told = watcher->told;
    word->key = watcher->key;
    if (list)
        word->list = *list;
    if (err)
        word->error = *err;
    loop_post(watcher->loop, say, word);
}

/* ---- telling ---- */

static void drop_watcher(struct port_watcher **at)
{
    struct port_watcher *watcher = *at;
    *at = watcher->next;
    free(watcher);
}

static void tell_all(struct ports *ports)
{
    for (struct port_watcher **at = &ports->watchers; *at;) {
        struct port_watcher *watcher = *at;
        if (!watcher->is_current)
            post(watcher, &ports->list, NULL);
        watcher->is_current = true;
        if (watcher->stays)
            at = &watcher->next;
        else
            drop_watcher(at);
    }
}

static void fail_all(struct ports *ports, const struct error *why)
{
    while (ports->watchers) {
        if (!ports->sandbox->all->stopping)
            post(ports->watchers, NULL, why);
        drop_watcher(&ports->watchers);
    }
}

/* ---- looking ---- */

static void look(struct ports *ports);

static void on_timer(void *cookie)
{
    struct ports *ports = cookie;
    ports->timer = NULL;
    look(ports);
}

static void look_later(struct ports *ports)
{
    if (ports->watchers && !ports->timer)
        ports->timer = loop_timer_start(ports->sandbox->loop, clock_boot_ns() + LOOK_NS, on_timer, ports);
}

static bool is_same(const struct port_list *a, const struct port_list *b)
{
    bool same = a->count == b->count && a->is_cut == b->is_cut;
    for (size_t i = 0; i < a->count && same; i++)
        same = a->listeners[i].port == b->listeners[i].port && a->listeners[i].addresses == b->listeners[i].addresses;
    return same;
}

static void take_result(struct ports *ports)
{
    struct port_list *list = memory_new(sizeof *list);
    listeners_show(ports->listeners, list);
    if (!ports->is_known || !is_same(list, &ports->list))
        for (struct port_watcher *watcher = ports->watchers; watcher; watcher = watcher->next)
            watcher->is_current = false;
    ports->list = *list;
    ports->is_known = true;
    free(list);
    tell_all(ports);
}

static void close_diag(struct ports *ports)
{
    if (!ports->diag)
        return;
    listeners_free(TAKE(ports->listeners));
    loop_watch_free(TAKE(ports->diag));
    sandbox_count_descriptors(ports->sandbox, -1);
    ports->asking = false;
}

static void on_diag(void *cookie)
{
    struct ports *ports = cookie;
    struct error err = {0};
    int state = listeners_read(ports->listeners, &err);
    if (state == 0)
        return;
    ports->asking = false;
    loop_watch_readable(ports->diag, NULL, NULL);
    if (state < 0) {
        close_diag(ports);
        fail_all(ports, &err);
        return;
    }
    take_result(ports);
    look_later(ports);
}

/* init is not waited for any more. */
static void stop_waiting(struct ports *ports)
{
    loop_timer_cancel(TAKE(ports->patience));
    ports->diag_asked = false;
}

static void on_silence(void *cookie)
{
    struct ports *ports = cookie;
    struct error err = {0};
    ports->patience = NULL;
    stop_waiting(ports);
    error_set(&err, ERROR_TIMEOUT, "the sandbox's init has not answered within %d ms; try again", PORTS_LIST_MS);
    fail_all(ports, &err);
}

static bool ask_init(struct ports *ports, struct error *err)
{
    struct front_init_message message = {.type = FI_LISTENERS};
    if (ports->diag_asked)
        return true;
    ports->diag_asked = sandbox_send(ports->sandbox, &message, -1, err);
    if (ports->diag_asked)
        ports->patience =
            loop_timer_start(ports->sandbox->loop, clock_boot_ns() + PORTS_LIST_MS * NS_A_MS, on_silence, ports);
    return ports->diag_asked;
}

static void look(struct ports *ports)
{
    struct error err = {0};
    if (!ports->watchers || ports->asking)
        return;
    bool is_done = true;
    if (!ports->diag) {
        is_done = ask_init(ports, &err);
    } else {
        is_done = listeners_ask(ports->listeners, &err);
        ports->asking = is_done;
        if (is_done)
            loop_watch_readable(ports->diag, on_diag, ports);
    }
    if (!is_done)
        fail_all(ports, &err);
}

/* Root of the host has no uid inside; where the sandbox's own user is nobody, its sockets cannot be told from root's,
 * and are shown. */
static uint32_t hidden_uid(const struct sandbox *sandbox)
{
    return sandbox->facts.uid == NOBODY ? UINT32_MAX : NOBODY;
}

void ports_told_listeners(struct sandbox *sandbox, const struct fi_listeners *told, int *fds)
{
    struct ports *ports = sandbox->ports;
    struct error err = {0};
    if (!ports || !ports->diag_asked || ports->diag)
        return;
    stop_waiting(ports);
    if (told->error_number != 0) {
        errno = told->error_number;
        error_set_errno(&err, ERROR_INTERNAL, "the sandbox's sockets");
        fail_all(ports, &err);
        return;
    }
    if (!listeners_check_socket(fds[0], &err)) {
        struct error lie = err;
        error_set(&err, ERROR_INTERNAL, "the sandbox's init does not give what it should: %s", lie.message);
        fail_all(ports, &err);
        init_link_blame(sandbox->link, lie.message);
        return;
    }
    ports->listeners = listeners_new(fds[0], hidden_uid(sandbox));
    ports->diag = loop_watch_new(sandbox->loop, TAKE_FD(fds[0]));
    sandbox_count_descriptors(sandbox, 1);
    look(ports);
}

/* ---- verbs ---- */

struct watch_call {
    told_function told;
    uint64_t key;
    bool stays;
};

static void on_refused(void *cookie, const struct verb_answer *answer)
{
    AUTO_FREE struct watch_call *call = cookie;
    if (answer->error.kind != ERROR_NONE)
        call->told(call->key, NULL, &answer->error);
}

static bool has_room(const struct ports *ports, struct error *err)
{
    unsigned count = 0;
    for (const struct port_watcher *each = ports->watchers; each; each = each->next)
        count++;
    return count < WATCHERS_MAX ||
           error_set(err, ERROR_RATE_LIMITED, "at most %d watch the ports of a sandbox at once", WATCHERS_MAX);
}

static void verb_watch(struct sandbox *sandbox, struct verb *verb)
{
    struct ports *ports = ports_of(sandbox);
    const struct watch_call *call = verb->cookie;
    struct error err = {0};
    if (!has_room(ports, &err)) {
        verb_finish(verb, &err);
        return;
    }
    struct port_watcher *watcher = memory_new(sizeof *watcher);
    *watcher = (struct port_watcher){
        .next = ports->watchers, .loop = verb->asked_on, .told = call->told, .key = call->key, .stays = call->stays};
    ports->watchers = watcher;
    verb_finish(verb, NULL);
    loop_timer_cancel(TAKE(ports->timer));
    look(ports); /* what is being read now may be older than the question, but not by a second */
}

static void start(struct sandboxes *all, const char *sandbox_id, told_function told, uint64_t key, bool stays)
{
    struct verb *verb = verb_new(all, sandbox_id);
    struct watch_call *call = memory_new(sizeof *call);
    *call = (struct watch_call){.told = told, .key = key, .stays = stays};
    verb->work = verb_watch;
    verb->done = on_refused;
    verb->dropped = free;
    verb->cookie = call;
    verb_send(verb);
}

void ports_list(struct sandboxes *all, const char *sandbox_id,
                void (*told)(uint64_t key, const struct port_list *list, const struct error *err), uint64_t key)
{
    start(all, sandbox_id, told, key, false);
}

void ports_watch(struct sandboxes *all, const char *sandbox_id,
                 void (*told)(uint64_t key, const struct port_list *list, const struct error *err), uint64_t key)
{
    start(all, sandbox_id, told, key, true);
}

static void verb_unwatch(struct sandbox *sandbox, struct verb *verb)
{
    struct ports *ports = ports_of(sandbox);
    for (struct port_watcher **at = &ports->watchers; *at;) {
        if ((*at)->loop == verb->asked_on && (*at)->key == verb->offset)
            drop_watcher(at);
        else
            at = &(*at)->next;
    }
    if (!ports->watchers)
        loop_timer_cancel(TAKE(ports->timer));
    verb_finish(verb, NULL);
}

void ports_unwatch(struct sandboxes *all, const char *sandbox_id, uint64_t key)
{
    struct verb *verb = verb_new(all, sandbox_id);
    verb->work = verb_unwatch;
    verb->offset = key;
    verb_send(verb);
}

/* ---- ends ---- */

void ports_watch_lost(struct ports *ports, const struct error *why)
{
    if (!ports->diag_asked)
        return; /* what asks the kernel needs no init */
    stop_waiting(ports);
    fail_all(ports, why);
}

void ports_watch_free(struct ports *ports, const struct error *err)
{
    loop_timer_cancel(TAKE(ports->timer));
    stop_waiting(ports);
    fail_all(ports, err);
    close_diag(ports);
}
