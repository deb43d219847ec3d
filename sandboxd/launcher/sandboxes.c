/* sandboxes.c - the table, ends, time. Births: births.c; what an earlier launcher left: adoption.c; the living:
 * keeping.c. */
#include "sandboxd/launcher/sandboxes_internal.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t MS = 1000000;
static const uint64_t DEADLINE_GRACE_NS = 15000 * 1000000ULL;
enum { RETRY_FIRST_MS = 2, RETRY_MAX_MS = 250, STAT_OOM = 5, STAT_BYTES = 1024 };

/* --- the table --- */

struct sandbox *sandbox_new(struct sandboxes *all, bool is_pool)
{
    struct sandbox *sandbox = memory_new(sizeof *sandbox);
    sandbox->record.slot = SLOTS_COUNT;
    sandbox->handle = ISOLATION_NONE;
    sandbox->area = STORAGE_AREA_NONE;
    sandbox->is_pool = is_pool;
    sandbox->backend = all->house.offer.list[0];
    all->count++;
    all->pool_count += is_pool;
    return sandbox;
}

void sandbox_place(struct sandboxes *all, struct sandbox *sandbox, uint32_t slot)
{
    sandbox->record.slot = slot;
    sandbox->record.uid_base = slots_uid(slot);
    all->by_slot[slot] = sandbox;
}

static bool is_birth(enum sandbox_state state)
{
    return state == SANDBOX_FILLING || state == SANDBOX_BORN || state == SANDBOX_BECOMING;
}

void sandbox_enter(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_state state)
{
    uint32_t *births = sandbox->is_pool ? &all->pool_births : &all->births;
    *births -= is_birth(sandbox->state);
    *births += is_birth(state);
    sandbox->state = state;
}

static void leave_queue(struct sandboxes *all, const struct sandbox *sandbox)
{
    for (struct sandbox **at = &all->queue; *at; at = &(*at)->next) {
        if (*at == sandbox) {
            *at = sandbox->next;
            return;
        }
    }
}

void sandbox_drop(struct sandboxes *all, struct sandbox *sandbox)
{
    sandbox_enter(all, sandbox, SANDBOX_ENDING);
    if (sandbox->record.slot < SLOTS_COUNT)
        all->by_slot[sandbox->record.slot] = NULL;
    else
        leave_queue(all, sandbox);
    all->count--;
    all->pool_count -= sandbox->is_pool;
    all->no_slot = false;
    if (sandbox->job)
        storage_job_cancel(sandbox->job);
    taking_cancel(all, sandbox, NULL);
    looking_cancel(all, sandbox, NULL);
    if (sandbox->birth)
        birth_unmake(all, sandbox->birth);
    birth_free(sandbox->birth);
    network_let_go(sandbox->network);
    catalog_release(all->house.catalog, sandbox->template);
    storage_area_close(&sandbox->area);
    isolation_close(&sandbox->handle);
    free(sandbox);
}

struct sandbox *sandboxes_find(struct sandboxes *all, const char *id)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        struct sandbox *sandbox = all->by_slot[slot];
        if (sandbox && strcmp(sandbox->record.id, id) == 0)
            return sandbox;
    }
    for (struct sandbox *queued = all->queue; queued; queued = queued->next) {
        if (strcmp(queued->record.id, id) == 0)
            return queued;
    }
    return NULL;
}

const struct sandbox_end *sandboxes_find_end(const struct sandboxes *all, const char *id)
{
    uint64_t first = all->ended_count > SANDBOXES_ENDED_KEPT ? all->ended_count - SANDBOXES_ENDED_KEPT : 0;
    for (uint64_t number = first; number < all->ended_count; number++) {
        const struct sandbox_end *end = &all->ended[number % SANDBOXES_ENDED_KEPT];
        if (strcmp(end->id, id) == 0)
            return end;
    }
    return NULL;
}

void sandbox_forget(struct sandbox *sandbox)
{
    memset(sandbox->record.id, 0, sizeof sandbox->record.id);
}

static void note_end(struct sandboxes *all, const struct sandbox *sandbox)
{
    const char *id = sandbox->record.id[0] ? sandbox->record.id : sandbox->is_pool ? "warm" : "unknown";
    log_write(sandbox->is_pool ? LOG_DEBUG : LOG_INFO, "launcher",
              "sandbox ended sandbox=%s slot=%" PRIu32 " reason=%s", id, sandbox->record.slot, sandbox->reason);
    if (!sandbox->record.id[0])
        return;
    struct sandbox_end *end = &all->ended[all->ended_count++ % SANDBOXES_ENDED_KEPT];
    memcpy(end->id, sandbox->record.id, sizeof end->id);
    memcpy(end->reason, sandbox->reason, sizeof end->reason);
    end->epoch = sandbox->record.epoch;
    end->destroy_request = sandbox->destroy_request;
}

/* --- ending --- */

char *sandbox_folder(const struct sandboxes *all, uint32_t slot)
{
    return memory_printf("%s/%" PRIu32, all->house.run_folder, slot);
}

static bool is_past_deadline(const struct sandbox *sandbox)
{
    return sandbox->record.deadline_boot_ns && clock_boot_ns() >= sandbox->record.deadline_boot_ns;
}

/* The line "oom_kill N" of v1 memory.oom_control or v2 memory.events. */
static bool was_oom(const struct sandbox *sandbox)
{
    char text[STAT_BYTES];
    int fd = sandbox->handle.stats[STAT_OOM];
    ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    text[size > 0 ? size : 0] = '\0';
    const char *line = strstr(text, "oom_kill ");
    return line && strtoull(line + strlen("oom_kill "), NULL, 10) > 0;
}

void sandbox_find_reason(struct sandbox *sandbox)
{
    const char *reason = is_past_deadline(sandbox) ? "max_lifetime" : was_oom(sandbox) ? "oom" : "crashed";
    if (!sandbox->reason[0])
        (void)!text_copy(sandbox->reason, sizeof sandbox->reason, reason);
}

/* An init that we made is our child, and a zombie until we look; one that was adopted is not. */
static bool reap(const struct sandbox *sandbox, struct error *err)
{
    siginfo_t how = {0};
    if (sandbox->handle.init < 0 || waitid(P_PIDFD, (id_t)sandbox->handle.init, &how, WEXITED | WNOHANG) < 0)
        return true;
    return how.si_pid != 0 || error_set(err, ERROR_STARTING, "init still dies");
}

/* Takes away what is left. True when nothing is: then the sandbox was freed. */
static bool try_remove(struct sandboxes *all, struct sandbox *sandbox)
{
    const struct isolation_backend *backend = sandbox->backend;
    uint32_t slot = sandbox->record.slot;
    struct error err = {0};
    AUTO_FREE char *folder = sandbox_folder(all, slot);
    if (backend->kill(slot, &err) && reap(sandbox, &err) && backend->remove(slot, &err) &&
        storage_area_remove(all->house.storage, slot, &err) && fd_remove_tree(folder, &err)) {
        sandbox_find_reason(sandbox);
        record_remove(all->house.record_folder, slot);
        slots_release(all->slots, slot);
        note_end(all, sandbox);
        sandbox_drop(all, sandbox);
        return true;
    }
    if (err.kind != ERROR_STARTING && sandbox->tries == 0)
        log_error("launcher", "sandbox cannot be removed yet sandbox=%s slot=%" PRIu32 ": %s", sandbox->record.id, slot,
                  err.message);
    uint64_t wait_ms = sandbox->tries < 7 ? (uint64_t)RETRY_FIRST_MS << sandbox->tries : RETRY_MAX_MS;
    sandbox->tries++;
    sandbox->due_boot_ns = clock_boot_ns() + wait_ms * MS;
    return false;
}

/* Who waits for it to live, or for a snapshot of it, is told that it will not be. */
static void disappoint(struct sandboxes *all, struct sandbox *sandbox)
{
    struct error why = {0};
    error_set(&why, ERROR_GONE, "%s", sandbox->reason);
    taking_cancel(all, sandbox, &why);
    looking_cancel(all, sandbox, &why);
    bool is_awaited = sandbox->state < SANDBOX_LIVE && sandbox->record.id[0];
    if (is_awaited && all->listener.not_born)
        all->listener.not_born(all->listener.context, sandbox->record.id, &why);
}

static void begin_end(struct sandboxes *all, struct sandbox *sandbox)
{
    disappoint(all, sandbox);
    ways_end(all, sandbox);
    if (sandbox->job)
        storage_job_cancel(TAKE(sandbox->job));
    bool has_slot = sandbox->state != SANDBOX_QUEUED;
    sandbox_enter(all, sandbox, SANDBOX_ENDING);
    sandbox->tries = 0;
    storage_area_close(&sandbox->area);
    if (has_slot) {
        try_remove(all, sandbox);
        return;
    }
    note_end(all, sandbox);
    sandbox_drop(all, sandbox);
}

void sandboxes_end(struct sandboxes *all, struct sandbox *sandbox, const char *reason)
{
    if (!sandbox->reason[0])
        (void)!text_copy(sandbox->reason, sizeof sandbox->reason, reason);
    if (sandbox->state != SANDBOX_ENDING)
        begin_end(all, sandbox);
}

/* False for an event of who had the slot before. */
static bool is_readable(int fd)
{
    struct pollfd what = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&what, 1, 0) != 0;
}

static void init_ended(struct sandboxes *all, struct sandbox *sandbox)
{
    if (!is_readable(sandbox->handle.init))
        return;
    if (is_birth(sandbox->state)) {
        birth_init_ended(all, sandbox);
        return;
    }
    sandbox_find_reason(sandbox); /* before the cgroup that tells is gone */
    if (sandbox->state == SANDBOX_ENDING)
        try_remove(all, sandbox);
    else
        begin_end(all, sandbox);
}

/* Or its errand: to finish one that goes on would wait for it. */
static bool has_job_ended(const struct sandbox *sandbox)
{
    const struct taking *taking = sandbox->taking;
    const struct storage_job *job = sandbox->job ? sandbox->job : taking ? taking->job : NULL;
    return job ? is_readable(storage_job_fd(job)) : taking && taking->errand && is_readable(errand_fd(taking->errand));
}

void sandboxes_event(struct sandboxes *all, enum sandbox_event event, uint32_t slot)
{
    struct sandbox *sandbox = slot < SLOTS_COUNT ? all->by_slot[slot] : NULL;
    if (!sandbox)
        return;
    switch (event) {
    case SANDBOX_INIT_ENDED:
        init_ended(all, sandbox);
        return;
    case SANDBOX_BIRTH:
        birth_event(all, sandbox);
        return;
    case SANDBOX_JOB:
        if (!has_job_ended(sandbox))
            return;
        if (sandbox->state == SANDBOX_FILLING)
            birth_filled(all, sandbox);
        else
            taking_event(all, sandbox);
        return;
    case SANDBOX_LOOKED:
        if (looking_fd(sandbox) >= 0 && is_readable(looking_fd(sandbox)))
            looking_event(all, sandbox);
        return;
    default:
        return;
    }
}

/* --- the living --- */

uint64_t sandbox_boot_of_wall(int64_t wall_ms)
{
    int64_t ahead_ms = wall_ms - clock_wall_ms();
    return clock_boot_ns() + (ahead_ms > 0 ? (uint64_t)ahead_ms * MS : 0);
}

bool sandboxes_move_deadline(struct sandboxes *all, struct sandbox *sandbox, int64_t deadline_wall_ms,
                             struct error *err)
{
    struct record moved = sandbox->record;
    moved.deadline_wall_ms = deadline_wall_ms;
    moved.deadline_boot_ns = sandbox_boot_of_wall(deadline_wall_ms);
    if (!record_write(all->house.record_folder, &moved, err))
        return false;
    sandbox->record = moved;
    return true;
}

bool sandboxes_raise_epoch(struct sandboxes *all, struct sandbox *sandbox, uint32_t epoch, struct error *err)
{
    if (epoch <= sandbox->record.epoch)
        return true;
    if (sandbox->state != SANDBOX_LIVE) { /* its record is written when it does */
        sandbox->record.epoch = epoch;
        if (sandbox->birth)
            sandbox->birth->wish.prepare.epoch = epoch;
        return true;
    }
    struct record raised = sandbox->record;
    raised.epoch = epoch;
    if (!record_write(all->house.record_folder, &raised, err))
        return false;
    sandbox->record = raised;
    return true;
}

bool sandboxes_open_stats(struct sandbox *sandbox, struct error *err)
{
    if (sandbox->handle.stats[0] >= 0)
        return true;
    struct isolation_sandbox again;
    const struct record *record = &sandbox->record;
    if (!sandbox->backend->adopt(record->slot, record->init_pid, record->init_start, &again, err))
        return false;
    close(again.init); /* the loop watches the one we have */
    again.init = sandbox->handle.init;
    sandbox->handle.init = -1;
    isolation_close(&sandbox->handle);
    sandbox->handle = again;
    return true;
}

void sandboxes_close_stats(struct sandbox *sandbox)
{
    for (size_t i = 0; i < STAT_OOM; i++) {
        if (sandbox->handle.stats[i] >= 0)
            close(sandbox->handle.stats[i]);
        sandbox->handle.stats[i] = -1;
    }
}

/* --- time --- */

static uint64_t due(const struct sandbox *sandbox)
{
    if (sandbox->state != SANDBOX_LIVE)
        return sandbox->due_boot_ns;
    uint64_t deadline = sandbox->record.deadline_boot_ns;
    return deadline ? deadline + DEADLINE_GRACE_NS : 0;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return b && (a == 0 || b < a) ? b : a;
}

/* Looks at all: some thousands at most, and only when something changed. */
uint64_t sandboxes_next_wake(const struct sandboxes *all)
{
    uint64_t next = sooner(storage_next_wake(all->house.storage), all->warm.trim_boot_ns);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++)
        next = sooner(next, all->by_slot[slot] ? due(all->by_slot[slot]) : 0);
    for (const struct sandbox *queued = all->queue; queued; queued = queued->next)
        next = sooner(next, due(queued));
    return next;
}

static void wake(struct sandboxes *all, struct sandbox *sandbox)
{
    struct error late = {0};
    switch (sandbox->state) {
    case SANDBOX_ENDING:
        try_remove(all, sandbox);
        return;
    case SANDBOX_QUEUED:
        error_set(&late, ERROR_NO_CAPACITY, "it had no turn to be born for %d s", SANDBOXES_QUEUED_S);
        birth_fail(all, sandbox, &late);
        return;
    case SANDBOX_FILLING:
        error_set(&late, ERROR_TIMEOUT, "its snapshot was not copied in %d s", SANDBOXES_FILLING_S);
        birth_fail(all, sandbox, &late);
        return;
    case SANDBOX_BORN:
    case SANDBOX_BECOMING:
        error_set(&late, ERROR_TIMEOUT, "its init was not ready in %d s", SANDBOXES_BIRTH_S);
        birth_fail(all, sandbox, &late);
        return;
    case SANDBOX_WARM:
    case SANDBOX_LIVE:
    default:
        sandboxes_end(all, sandbox, "max_lifetime");
    }
}

void sandboxes_wake(struct sandboxes *all, uint64_t now_boot_ns)
{
    uint64_t of_storage = storage_next_wake(all->house.storage);
    if (of_storage && of_storage <= now_boot_ns)
        storage_wake(all->house.storage, now_boot_ns);
    if (all->warm.trim_boot_ns && all->warm.trim_boot_ns <= now_boot_ns)
        warm_trim(all, now_boot_ns);
    uint32_t first = all->wake_next;
    for (uint32_t i = 0, count = 0; i < SLOTS_COUNT && count < SANDBOXES_WAKES_A_TURN; i++) {
        uint32_t slot = (first + i) % SLOTS_COUNT;
        struct sandbox *sandbox = all->by_slot[slot];
        uint64_t here = sandbox ? due(sandbox) : 0;
        if (here == 0 || here > now_boot_ns)
            continue;
        wake(all, sandbox);
        count++;
        all->wake_next = slot + 1; /* those that are left are due at once */
    }
    for (struct sandbox *queued = all->queue, *next = NULL; queued; queued = next) {
        next = queued->next;
        if (queued->due_boot_ns <= now_boot_ns)
            wake(all, queued);
    }
}

/* --- the end --- */

void sandboxes_done(struct sandboxes *all)
{
    all->listener = (struct sandboxes_listener){0};
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (all->by_slot[slot])
            sandbox_drop(all, all->by_slot[slot]);
    }
    while (all->queue)
        sandbox_drop(all, all->queue);
}
