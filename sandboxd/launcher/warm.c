/* warm.c - see warm.h. */
#include "sandboxd/launcher/warm.h"

#include "sandboxd/launcher/sandboxes_internal.h"
#include "shared/base/text.h"

#include <poll.h>
#include <string.h>

static const uint64_t SECOND = 1000000000;
static const uint64_t MS = 1000000;
enum { SPAN_S = 10, ASKED_S = 600, QUIET_MS = 20, RETRY_FIRST_S = 1, RETRY_MAX_DOUBLINGS = 6 };

static const char ALWAYS[] = "base";

/* --- demand --- */

/* What was counted in spans that are over is forgotten. */
static void advance(struct warm_kind *kind, uint64_t now_boot_ns)
{
    uint64_t span = now_boot_ns / (SPAN_S * SECOND);
    for (unsigned i = 0; kind->span < span && i < WARM_SPANS; i++)
        kind->taken[++kind->span % WARM_SPANS] = 0;
    kind->span = span;
}

static bool is_wanted(const struct warm_kind *kind, uint64_t now_boot_ns)
{
    return strcmp(kind->name, ALWAYS) == 0 || now_boot_ns - kind->asked_boot_ns < ASKED_S * SECOND;
}

/* The template's place; of one that nobody asks for any more when it is new and there is none left. */
static struct warm_kind *find_kind(struct warm *warm, const char *name, uint64_t now_boot_ns)
{
    struct warm_kind *free_kind = NULL;
    for (size_t i = 0; i < warm->kind_count; i++) {
        if (strcmp(warm->kinds[i].name, name) == 0)
            return &warm->kinds[i];
        if (!is_wanted(&warm->kinds[i], now_boot_ns))
            free_kind = &warm->kinds[i];
    }
    if (warm->kind_count < WARM_KINDS)
        free_kind = &warm->kinds[warm->kind_count++];
    if (!free_kind)
        return NULL;
    *free_kind = (struct warm_kind){.asked_boot_ns = now_boot_ns, .span = now_boot_ns / (SPAN_S * SECOND)};
    (void)!text_copy(free_kind->name, sizeof free_kind->name, name);
    return free_kind;
}

static uint32_t target(const struct sandboxes *all, struct warm_kind *kind, uint64_t now_boot_ns)
{
    if (!is_wanted(kind, now_boot_ns) || all->house.warm.each == 0)
        return 0;
    advance(kind, now_boot_ns);
    uint32_t sum = all->house.warm.each;
    for (size_t i = 0; i < WARM_SPANS; i++)
        sum += kind->taken[i];
    return sum;
}

/* How many there may be over all. */
static uint32_t most(const struct sandboxes *all)
{
    const struct warm_rules *rules = &all->house.warm;
    uint64_t by_memory = rules->memory_kib / WARM_EACH_KIB;
    return by_memory < rules->most ? (uint32_t)by_memory : rules->most;
}

/* --- stock --- */

static bool is_stock(const struct sandbox *sandbox)
{
    return sandbox && sandbox->is_pool && sandbox->state != SANDBOX_ENDING;
}

static uint32_t stock(const struct sandboxes *all, const char *name)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        const struct sandbox *sandbox = all->by_slot[slot];
        count += is_stock(sandbox) && (!name || strcmp(sandbox->record.template_name, name) == 0);
    }
    return count;
}

static bool lives(const struct sandbox *sandbox)
{
    struct pollfd init = {.fd = sandbox->handle.init, .events = POLLIN};
    return poll(&init, 1, 0) == 0;
}

struct sandbox *warm_find(struct sandboxes *all, const struct catalog_version *template, uint64_t now_boot_ns)
{
    struct warm_kind *kind = find_kind(&all->warm, template->facts.record.name, now_boot_ns);
    if (kind) {
        advance(kind, now_boot_ns);
        kind->taken[kind->span % WARM_SPANS]++;
        kind->asked_boot_ns = now_boot_ns;
        if (all->house.warm.each > 0 && all->warm.trim_boot_ns == 0)
            all->warm.trim_boot_ns = now_boot_ns + SPAN_S * SECOND;
    }
    for (uint32_t slot = 0; all->pool_count > 0 && slot < SLOTS_COUNT; slot++) {
        struct sandbox *sandbox = all->by_slot[slot];
        if (sandbox && sandbox->state == SANDBOX_WARM && sandbox->template == template && lives(sandbox))
            return sandbox;
    }
    return NULL;
}

void warm_stand_back(struct sandboxes *all, uint64_t now_boot_ns)
{
    uint64_t until = now_boot_ns + QUIET_MS * MS;
    if (all->warm.not_before_boot_ns < until)
        all->warm.not_before_boot_ns = until;
}

void warm_note(struct sandboxes *all, bool was_born, uint64_t now_boot_ns)
{
    struct warm *warm = &all->warm;
    if (was_born) {
        warm->failures = 0;
        return;
    }
    unsigned doublings = warm->failures < RETRY_MAX_DOUBLINGS ? warm->failures : RETRY_MAX_DOUBLINGS;
    warm->failures++;
    warm->not_before_boot_ns = now_boot_ns + (RETRY_FIRST_S * SECOND << doublings);
}

bool warm_give_up_one(struct sandboxes *all)
{
    bool is_one_ending = false;
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        struct sandbox *sandbox = all->by_slot[slot];
        if (is_stock(sandbox)) {
            sandboxes_end(all, sandbox, "its slot is needed");
            return true;
        }
        is_one_ending = is_one_ending || (sandbox && sandbox->is_pool);
    }
    return is_one_ending;
}

/* Whether it will have less than now, with time. */
static bool will_fall(const struct sandboxes *all, uint64_t now_boot_ns)
{
    for (size_t i = 0; i < all->warm.kind_count; i++) {
        const struct warm_kind *kind = &all->warm.kinds[i];
        bool is_taken = false;
        for (size_t j = 0; j < WARM_SPANS; j++)
            is_taken = is_taken || kind->taken[j] > 0;
        if (is_taken || (strcmp(kind->name, ALWAYS) != 0 && is_wanted(kind, now_boot_ns)))
            return true;
    }
    return false;
}

void warm_trim(struct sandboxes *all, uint64_t now_boot_ns)
{
    for (size_t i = 0; i < all->warm.kind_count; i++)
        advance(&all->warm.kinds[i], now_boot_ns);
    all->warm.trim_boot_ns = will_fall(all, now_boot_ns) ? now_boot_ns + SPAN_S * SECOND : 0;
    for (uint32_t slot = 0; all->pool_count > 0 && slot < SLOTS_COUNT; slot++) {
        struct sandbox *sandbox = all->by_slot[slot];
        if (!is_stock(sandbox))
            continue;
        struct warm_kind *kind = find_kind(&all->warm, sandbox->record.template_name, now_boot_ns);
        bool is_old = !sandbox->template->is_current;
        bool is_too_much = !kind || stock(all, kind->name) > target(all, kind, now_boot_ns);
        if (is_old || is_too_much)
            sandboxes_end(all, sandbox, is_old ? "its template changed" : "it is not needed");
    }
}

void warm_end_all(struct sandboxes *all)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (is_stock(all->by_slot[slot]))
            sandboxes_end(all, all->by_slot[slot], "the launcher stops");
    }
}

/* --- refilling --- */

/* Of those that lack something the one that lacks most of what it should have. */
static struct catalog_version *neediest(struct sandboxes *all, uint64_t now_boot_ns)
{
    struct catalog_version *found = NULL;
    uint64_t least = 1000; /* thousandths of the target that are there */
    for (size_t i = 0; i < all->warm.kind_count; i++) {
        struct warm_kind *kind = &all->warm.kinds[i];
        uint32_t wanted = target(all, kind, now_boot_ns);
        uint64_t there = wanted ? stock(all, kind->name) * 1000ULL / wanted : 1000;
        struct catalog_version *version = there < least ? catalog_find(all->house.catalog, kind->name, NULL) : NULL;
        if (!version)
            continue;
        least = there;
        found = version;
    }
    return found;
}

struct catalog_version *warm_wanted(struct sandboxes *all, uint64_t now_boot_ns, uint64_t *when)
{
    *when = 0;
    if (all->house.warm.each == 0 || all->births > 0 || all->queue || all->pool_births >= WARM_BIRTHS_MAX)
        return NULL;
    (void)find_kind(&all->warm, ALWAYS, now_boot_ns);
    /* All that is warm and is not taken must find a slot, and leave each sandbox of the node its own. */
    bool is_full = stock(all, NULL) >= most(all) || all->pool_count + all->house.max >= SLOTS_COUNT;
    struct catalog_version *version = is_full ? NULL : neediest(all, now_boot_ns);
    if (!version || all->warm.not_before_boot_ns <= now_boot_ns)
        return version;
    *when = all->warm.not_before_boot_ns;
    return NULL;
}

void warm_refill(struct sandboxes *all, uint64_t now_boot_ns)
{
    uint64_t when = 0;
    struct catalog_version *version = warm_wanted(all, now_boot_ns, &when);
    if (version)
        birth_begin_pool(all, version);
}
