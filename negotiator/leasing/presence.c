#include "negotiator/leasing/presence.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

/* Both begin with their name. */
static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* --- nodes --- */

static void drop_entries(struct presence_node *node)
{
    tdestroy(node->entries, free);
    node->entries = NULL;
    node->count = 0;
    node->unlooked = node->postponed = NULL;
}

static void node_free(void *held)
{
    drop_entries(held);
    free(held);
}

void presence_done(struct presence *presence)
{
    tdestroy(presence->nodes, node_free);
    presence->nodes = NULL;
}

struct presence_node *presence_find(const struct presence *presence, const char *name)
{
    void *const *found = tfind(name, &presence->nodes, compare);
    return found ? *found : NULL;
}

struct presence_node *presence_node(struct presence *presence, const char *name)
{
    struct presence_node *node = presence_find(presence, name);
    if (node)
        return node;
    node = memory_new(sizeof *node);
    if (!text_copy(node->name, sizeof node->name, name) || tsearch(node, &presence->nodes, compare) == NULL)
        abort(); /* a node's name was bounded before; and memory ended */
    return node;
}

/* --- its sandboxes --- */

struct presence_entry *presence_entry(const struct presence_node *node, const char *id)
{
    void *const *found = node ? tfind(id, &node->entries, compare) : NULL;
    return found ? *found : NULL;
}

static void unlink_entry(struct presence_entry *entry)
{
    if (entry->at == NULL)
        return;
    *entry->at = entry->next;
    if (entry->next)
        entry->next->at = entry->at;
    entry->next = NULL;
    entry->at = NULL;
}

static void link_entry(struct presence_entry **list, struct presence_entry *entry)
{
    entry->next = *list;
    entry->at = list;
    if (entry->next)
        entry->next->at = &entry->next;
    *list = entry;
}

static void to_be_looked(struct presence_node *node, struct presence_entry *entry)
{
    entry->version++;
    unlink_entry(entry);
    link_entry(&node->unlooked, entry);
}

struct presence_entry *presence_pick(struct presence_node *node)
{
    struct presence_entry *entry = node->unlooked;
    if (entry)
        unlink_entry(entry);
    return entry;
}

void presence_looked(struct presence_entry *entry, uint32_t version)
{
    if (entry && entry->version == version)
        unlink_entry(entry);
}

void presence_postpone(struct presence_node *node, const char *id, int64_t until)
{
    struct presence_entry *entry = presence_entry(node, id);
    if (entry == NULL || entry->at)
        return;
    if (node->postponed == NULL)
        node->postponed_until_ms = until;
    link_entry(&node->postponed, entry);
}

static void take_up_postponed(struct presence_node *node)
{
    for (struct presence_entry *entry; (entry = node->postponed) != NULL;) {
        unlink_entry(entry);
        link_entry(&node->unlooked, entry);
    }
}

void presence_hear(struct presence_node *node, uint64_t incarnation, int64_t made)
{
    bool same = node->heard_ms > 0 && node->incarnation == incarnation;
    bool in_order = same && node->heard_ms <= made; /* else the clock was set back */
    if (!same) {
        drop_entries(node);
        node->has_list = false;
    }
    node->incarnation = incarnation;
    node->previous_ms = in_order ? node->heard_ms : 0;
    node->heard_ms = made;
    if (made >= node->postponed_until_ms)
        take_up_postponed(node);
}

static void entry_free(void *held)
{
    unlink_entry(held);
    free(held);
}

static void forget(struct presence_node *node, const char *id)
{
    struct presence_entry *entry = presence_entry(node, id);
    if (entry == NULL)
        return;
    unlink_entry(entry);
    tdelete(entry, &node->entries, compare);
    free(entry);
    node->count--;
}

/* NULL when there is no room. */
static struct presence_entry *add(struct presence_node *node, const char *id)
{
    if (node->count >= PRESENCE_SANDBOXES_MAX)
        return NULL;
    struct presence_entry *entry = memory_new(sizeof *entry);
    if (!text_copy(entry->id, sizeof entry->id, id) || tsearch(entry, &node->entries, compare) == NULL)
        abort(); /* an id was checked before; and memory ended */
    node->count++;
    return entry;
}

/* Entries of before that are named again keep what is known of them. */
static struct presence_entry *take_over(struct presence_node *node, void **before, const char *id)
{
    void *const *found = tfind(id, before, compare);
    struct presence_entry *entry = found ? *found : NULL;
    if (entry == NULL)
        return add(node, id);
    if (node->count >= PRESENCE_SANDBOXES_MAX)
        return NULL;
    tdelete(entry, before, compare);
    if (tsearch(entry, &node->entries, compare) == NULL)
        abort(); /* memory ended */
    node->count++;
    return entry;
}

static uint64_t amount(const json_t *told, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(told, name));
    return value > 0 ? (uint64_t)value : 0;
}

/* Whatever a node says, one can still count on from there. */
static int64_t moment(const json_t *told, const char *name)
{
    static const int64_t LAST_MS = INT64_MAX / 2;
    json_int_t value = json_integer_value(json_object_get(told, name));
    return value < 0 ? 0 : value > LAST_MS ? LAST_MS : value;
}

/* A node that does not say it knows of no pause. */
static bool take_pause(struct presence_entry *entry, const json_t *told)
{
    const json_t *paused = json_object_get(told, "paused");
    bool is_news = json_is_boolean(paused) && (!entry->says_paused || entry->is_paused != json_is_true(paused));
    entry->says_paused = json_is_boolean(paused);
    entry->is_paused = json_is_true(paused);
    return is_news;
}

static void take_usage(struct usage *to, const json_t *told, int64_t at)
{
    const json_t *usage = json_object_get(told, "usage");
    const json_t *from = json_is_object(usage) ? usage : told;
    *to = (struct usage){.told_ms = at,
                         .cpu_ms = amount(from, "cpu_ms"),
                         .memory_bytes = amount(from, "memory_bytes"),
                         .disk_bytes = amount(from, "disk_bytes"),
                         .pids = amount(from, "pids")};
}

static void take_one(struct presence_node *node, struct presence_entry *entry, const json_t *told)
{
    int64_t deadline = moment(told, "deadline");
    uint64_t epoch = amount(told, "epoch");
    epoch = epoch <= UINT32_MAX ? epoch : UINT32_MAX;
    bool is_news = take_pause(entry, told);
    if (entry->version == 0 || entry->deadline_ms != deadline || entry->epoch != epoch || is_news)
        to_be_looked(node, entry);
    entry->active_ms = moment(told, "active_at");
    entry->deadline_ms = deadline;
    entry->epoch = (uint32_t)epoch;
    take_usage(&entry->usage, told, node->heard_ms);
}

static void take_list(struct presence_node *node, const json_t *list, void **before)
{
    size_t i;
    json_t *told;
    json_array_foreach (list, i, told) {
        const char *id = json_string_value(json_object_get(told, "id"));
        if (!random_is_id(id, "sbx"))
            continue;
        struct presence_entry *entry = presence_entry(node, id);
        if (entry == NULL)
            entry = take_over(node, before, id);
        if (entry)
            take_one(node, entry, told);
    }
}

void presence_take(struct presence_node *node, const json_t *message, bool full)
{
    size_t i;
    json_t *told;
    void *before = full ? node->entries : NULL;
    if (full) {
        node->entries = NULL;
        node->count = 0;
        node->has_list = true;
    }
    take_list(node, json_object_get(message, "sandboxes"), &before);
    tdestroy(before, entry_free);
    json_array_foreach (json_object_get(message, "ended"), i, told) {
        const char *id = json_string_value(json_object_get(told, "id"));
        if (random_is_id(id, "sbx"))
            forget(node, id);
    }
}

/* --- what follows from it --- */

bool presence_is_after(const struct presence_node *node, int64_t since, int64_t now)
{
    return node->heard_ms <= now && node->previous_ms > since;
}

bool presence_lacks(const struct presence_node *node, const char *id, int64_t since, uint64_t incarnation)
{
    if (node == NULL || !node->has_list || presence_entry(node, id))
        return false;
    /* An earlier start made it, and what a start took over is in its first list. Else: what was made after the
     * heartbeat before the last one was made may not have reached the node when it made the last one. */
    return (incarnation > 0 && incarnation < node->incarnation) || (node->previous_ms > 0 && node->previous_ms > since);
}

void presence_show(const struct presence *presence, struct sandbox *sandbox)
{
    const struct presence_entry *entry = presence_entry(presence_find(presence, sandbox->node), sandbox->id);
    sandbox->usage = entry ? entry->usage : (struct usage){.told_ms = 0};
}

int64_t presence_expiry(const struct presence_entry *entry, const struct lease *lease, int64_t now)
{
    /* A node's clock is not ours: a sign of life in the future counts as now. */
    int64_t seen = entry && entry->active_ms < now ? entry->active_ms : entry ? now : 0;
    int64_t used_until = seen + lease->idle_timeout_s * 1000;
    int64_t ends = used_until > lease->expires_at ? used_until : lease->expires_at;
    return ends < lease->max_expires_at ? ends : lease->max_expires_at;
}
