/* kernel_run.c - a queue with two ends. */
#include "sandboxd/sandbox/kernels/kernel_run.h"

#include "shared/base/memory.h"

#include <pthread.h>
#include <stdatomic.h>

struct waiting {
    struct waiting *next;
    struct kernel_event event;
};

struct kernel_run {
    atomic_uint references;
    bool takes_text; /* set before anybody else has it */
    struct loop *reader_loop;

    /* reader's loop alone */
    void (*ready)(void *cookie); /* NULL after kernel_run_close */
    void *cookie;

    pthread_mutex_t mutex; /* guards, up to the blank line; held for a few instructions */
    struct waiting *first, *last;
    size_t queued; /* cost of these, and of the one that the reader has */
    size_t taken;  /* cost of the latter */
    bool left, is_over, owner_waits, reader_posted, owner_posted;
    struct loop *owner_loop; /* NULL until attached */

    /* owner's loop alone */
    void (*room)(void *owner);
    void *owner;
};

struct kernel_run *kernel_run_new(void (*ready)(void *cookie), void *cookie)
{
    struct kernel_run *run = memory_new(sizeof *run);
    run->references = 1;
    run->reader_loop = loop_current();
    run->ready = ready;
    run->cookie = cookie;
    pthread_mutex_init(&run->mutex, NULL);
    return run;
}

void kernel_run_takes_text(struct kernel_run *run)
{
    run->takes_text = true;
}

bool kernel_run_wants_text(const struct kernel_run *run)
{
    return run->takes_text;
}

struct kernel_run *kernel_run_hold(struct kernel_run *run)
{
    atomic_fetch_add(&run->references, 1);
    return run;
}

static void event_drop(struct kernel_event *event)
{
    json_decref(event->body);
    free(event->text);
}

static void drop_queue(struct kernel_run *run)
{
    for (struct waiting *each = run->first, *next; each; each = next) {
        next = each->next;
        event_drop(&each->event);
        free(each);
    }
    run->first = run->last = NULL;
    run->queued = run->taken = 0;
}

void kernel_run_release(struct kernel_run *run)
{
    if (!run || atomic_fetch_sub(&run->references, 1) != 1)
        return;
    drop_queue(run);
    pthread_mutex_destroy(&run->mutex);
    free(run);
}

/* ---- posts; with the mutex held, one of each at a time is under way ---- */

static void run_on_reader(void *cookie)
{
    struct kernel_run *run = cookie;
    pthread_mutex_lock(&run->mutex);
    run->reader_posted = false; /* before looking: what comes after this is posted anew */
    pthread_mutex_unlock(&run->mutex);
    if (run->ready)
        run->ready(run->cookie);
    kernel_run_release(run);
}

static void look_reader(struct kernel_run *run)
{
    if (run->reader_posted)
        return;
    run->reader_posted = true;
    loop_post(run->reader_loop, run_on_reader, kernel_run_hold(run));
}

static void run_on_owner(void *cookie)
{
    struct kernel_run *run = cookie;
    pthread_mutex_lock(&run->mutex);
    run->owner_posted = false;
    pthread_mutex_unlock(&run->mutex);
    if (run->room)
        run->room(run->owner);
    kernel_run_release(run);
}

static void look_owner(struct kernel_run *run)
{
    if (!run->owner_waits || run->owner_posted || !run->owner_loop)
        return;
    run->owner_posted = true;
    run->owner_waits = false;
    loop_post(run->owner_loop, run_on_owner, kernel_run_hold(run));
}

/* ---- the reader's end ---- */

void kernel_run_close(struct kernel_run *run)
{
    if (!run)
        return;
    run->ready = NULL;
    pthread_mutex_lock(&run->mutex);
    run->left = true;
    drop_queue(run);
    look_owner(run);
    pthread_mutex_unlock(&run->mutex);
    kernel_run_release(run);
}

bool kernel_run_next(struct kernel_run *run, struct kernel_event *event)
{
    pthread_mutex_lock(&run->mutex);
    run->queued -= run->taken;
    run->taken = 0;
    struct waiting *first = run->first;
    if (first) {
        run->first = first->next;
        if (!run->first)
            run->last = NULL;
        run->taken = first->event.cost;
        *event = first->event;
    }
    if (run->queued < KERNEL_RUN_FULL)
        look_owner(run);
    pthread_mutex_unlock(&run->mutex);
    free(first);
    return first != NULL;
}

/* ---- the owner's end ---- */

void kernel_run_attach(struct kernel_run *run, void (*room)(void *owner), void *owner)
{
    run->room = room;
    run->owner = owner;
    pthread_mutex_lock(&run->mutex);
    run->owner_loop = loop_current();
    pthread_mutex_unlock(&run->mutex);
}

void kernel_run_detach(struct kernel_run *run)
{
    run->room = NULL;
}

bool kernel_run_is_full(struct kernel_run *run)
{
    pthread_mutex_lock(&run->mutex);
    bool is_full = !run->left && run->queued >= KERNEL_RUN_FULL;
    run->owner_waits = is_full;
    pthread_mutex_unlock(&run->mutex);
    return is_full;
}

static void put(struct kernel_run *run, const struct kernel_event *event)
{
    bool is_last = event->kind == KERNEL_EVENT_DONE || event->kind == KERNEL_EVENT_FAILED;
    struct waiting *entry = memory_new(sizeof *entry);
    entry->event = *event;
    pthread_mutex_lock(&run->mutex);
    bool is_dropped = run->left || run->is_over;
    run->is_over = run->is_over || is_last;
    if (!is_dropped) {
        if (run->last)
            run->last->next = entry;
        else
            run->first = entry;
        run->last = entry;
        run->queued += event->cost;
        look_reader(run);
    }
    pthread_mutex_unlock(&run->mutex);
    if (is_dropped) {
        event_drop(&entry->event);
        free(entry);
    }
}

void kernel_run_put(struct kernel_run *run, enum kernel_event_kind kind, const char *type, json_t *body, size_t cost)
{
    put(run, &(struct kernel_event){.kind = kind, .type = type, .body = body, .cost = cost});
}

void kernel_run_put_text(struct kernel_run *run, const char *type, char *text, size_t cost)
{
    put(run, &(struct kernel_event){.kind = KERNEL_EVENT_TOLD, .type = type, .text = text, .cost = cost});
}

void kernel_run_fail(struct kernel_run *run, const struct error *err)
{
    put(run, &(struct kernel_event){.kind = KERNEL_EVENT_FAILED, .error = *err});
}
