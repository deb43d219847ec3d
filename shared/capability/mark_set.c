#include "shared/capability/mark.h"

#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <sodium.h>
#include <string.h>

#define FORGET_AFTER_S 60  /* beyond `until` */
#define BUCKETS_MIN    64  /* a power of two, as all counts of buckets */
#define HOLES_MAX      256 /* in the order, before it is closed up; or as many as there are marks */

/* A mark is told apart by kind, value and principal, and stands in the chain of their hash, unless another of the same
 * three `covers` it: then it would refuse nothing that the other does not. So that revoking one thing over and over
 * makes no chain longer. */
struct entry {
    struct mark mark;
    uint64_t hash;
    struct entry *next; /* in its chain */
    size_t place;       /* in the order */
    bool is_covered;    /* in no chain */
};

/* A place in the order of numbers; entry NULL when its mark has been forgotten. */
struct numbered {
    uint64_t number;
    struct entry *entry;
};

struct mark_set {
    size_t count;       /* of marks; the next holds them all */
    struct entry **due; /* a heap: none before its parent by `until`, so that forgetting looks at the first */
    struct numbered *order;
    size_t places; /* of order, holes too: count <= places */
    size_t due_room, order_room;
    bool is_unsorted; /* the order is not: a mark was added after one with a larger number */
    struct entry **buckets;
    size_t bucket_count, chained;                /* entries in chains */
    size_t kinds[MARK_KINDS];                    /* of those in chains: what is not there is not looked up */
    uint8_t hash_key[crypto_shorthash_KEYBYTES]; /* at random: who chooses ids cannot choose a chain */
};

/* What a mark is looked up by. The scope is none of it: a token has it not as a text. */
struct selector {
    enum mark_kind kind;
    const char *value;
};

struct mark_set *mark_set_new(void)
{
    struct mark_set *set = memory_new(sizeof *set);
    set->bucket_count = BUCKETS_MIN;
    set->buckets = memory_array(set->bucket_count, sizeof(struct entry *));
    random_bytes(set->hash_key, sizeof set->hash_key);
    return set;
}

void mark_set_free(struct mark_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->count; i++)
        free(set->due[i]);
    free(set->due);
    free(set->order);
    free(set->buckets);
    free(set);
}

size_t mark_set_count(const struct mark_set *set)
{
    return set->count;
}

static uint64_t hash_of(const struct mark_set *set, enum mark_kind kind, const char *value, const char *principal)
{
    uint8_t text[1 + MARK_VALUE_BYTES + sizeof((struct mark *)NULL)->principal], bytes[crypto_shorthash_BYTES];
    size_t value_bytes = strnlen(value, MARK_VALUE_BYTES - 1) + 1;
    size_t principal_bytes = strnlen(principal, sizeof((struct mark *)NULL)->principal - 1);
    uint64_t hash;
    _Static_assert(sizeof hash == sizeof bytes, "SipHash gives 64 bits");
    text[0] = (uint8_t)kind;
    memcpy(text + 1, value, value_bytes - 1);
    text[value_bytes] = '\0'; /* in no value: the two texts cannot be shifted against each other */
    memcpy(text + 1 + value_bytes, principal, principal_bytes);
    crypto_shorthash(bytes, text, 1 + value_bytes + principal_bytes, set->hash_key);
    memcpy(&hash, bytes, sizeof hash);
    return hash;
}

static struct entry **bucket_of(const struct mark_set *set, uint64_t hash)
{
    return &set->buckets[hash & (set->bucket_count - 1)];
}

/* Chains */

static bool is_same(const struct mark *a, const struct mark *b)
{
    return a->kind == b->kind && strcmp(a->value, b->value) == 0 && strcmp(a->principal, b->principal) == 0;
}

/* Of two that are the same: whether `a` refuses all that `b` does, and for as long. A mark for any time never stands
 * for one with a time: mark_set_newest_before asks for those. */
static bool covers(const struct mark *a, const struct mark *b)
{
    return (a->before == MARK_ANY_TIME) == (b->before == MARK_ANY_TIME) && a->before >= b->before &&
           a->from_ms <= b->from_ms && a->until >= b->until && a->epoch >= b->epoch;
}

static void grow(struct mark_set *set)
{
    struct entry **old = set->buckets;
    size_t old_count = set->bucket_count;
    set->bucket_count *= 2;
    set->buckets = memory_array(set->bucket_count, sizeof(struct entry *));
    for (size_t i = 0; i < old_count; i++) {
        for (struct entry *entry = old[i], *next; entry; entry = next) {
            struct entry **bucket = bucket_of(set, entry->hash);
            next = entry->next;
            entry->next = *bucket;
            *bucket = entry;
        }
    }
    free(old);
}

/* Takes what *link points to out of its chain. */
static void unchain(struct mark_set *set, struct entry **link)
{
    struct entry *entry = *link;
    *link = entry->next;
    set->chained--;
    set->kinds[entry->mark.kind]--;
}

/* Takes out what the new one covers; true when the new one itself is covered. */
static bool settle(struct mark_set *set, const struct entry *new)
{
    struct entry **link = bucket_of(set, new->hash);
    while (*link) {
        struct entry *other = *link;
        bool is_rival = other->hash == new->hash &&is_same(&other->mark, &new->mark);
        if (is_rival && covers(&other->mark, &new->mark))
            return true;
        if (is_rival && covers(&new->mark, &other->mark)) {
            other->is_covered = true;
            unchain(set, link);
        } else {
            link = &other->next;
        }
    }
    return false;
}

static void chain(struct mark_set *set, struct entry *entry)
{
    const struct mark *mark = &entry->mark;
    entry->hash = hash_of(set, mark->kind, mark->kind == MARK_SCOPE ? "" : mark->value, mark->principal);
    entry->is_covered = settle(set, entry);
    if (entry->is_covered)
        return;
    if (set->chained >= set->bucket_count)
        grow(set);
    struct entry **bucket = bucket_of(set, entry->hash);
    entry->next = *bucket;
    *bucket = entry;
    set->chained++;
    set->kinds[mark->kind]++;
}

static void remove_from_chain(struct mark_set *set, const struct entry *entry)
{
    struct entry **link = bucket_of(set, entry->hash);
    while (!entry->is_covered && *link != entry)
        link = &(*link)->next;
    if (!entry->is_covered)
        unchain(set, link);
}

/* What is due */

static size_t earlier(const struct mark_set *set, size_t a, size_t b)
{
    return b < set->count && set->due[b]->mark.until < set->due[a]->mark.until ? b : a;
}

static void swap(struct mark_set *set, size_t a, size_t b)
{
    struct entry *kept = set->due[a];
    set->due[a] = set->due[b];
    set->due[b] = kept;
}

static void add_due(struct mark_set *set, struct entry *entry)
{
    if (set->count == set->due_room) {
        set->due_room = set->due_room ? set->due_room * 2 : BUCKETS_MIN;
        set->due = memory_resize(set->due, set->due_room * sizeof(struct entry *));
    }
    size_t at = set->count++;
    set->due[at] = entry;
    for (; at > 0 && earlier(set, (at - 1) / 2, at) == at; at = (at - 1) / 2)
        swap(set, at, (at - 1) / 2);
}

/* The heap's first; there is one. */
static struct entry *take_due(struct mark_set *set)
{
    struct entry *first = set->due[0];
    set->due[0] = set->due[--set->count];
    for (size_t at = 0, down; (down = earlier(set, earlier(set, at, 2 * at + 1), 2 * at + 2)) != at; at = down)
        swap(set, at, down);
    return first;
}

/* The order of numbers */

static int compare_numbers(const void *a, const void *b)
{
    uint64_t left = ((const struct numbered *)a)->number, right = ((const struct numbered *)b)->number;
    return (left > right) - (left < right);
}

static void add_place(struct mark_set *set, struct entry *entry)
{
    if (set->places == set->order_room) {
        set->order_room = set->order_room ? set->order_room * 2 : BUCKETS_MIN;
        set->order = memory_resize(set->order, set->order_room * sizeof *set->order);
    }
    if (set->places > 0 && entry->mark.number < set->order[set->places - 1].number)
        set->is_unsorted = true;
    entry->place = set->places++;
    set->order[entry->place] = (struct numbered){.number = entry->mark.number, .entry = entry};
}

/* Sorts, and closes the holes. */
static void tidy(struct mark_set *set)
{
    if (set->is_unsorted)
        qsort(set->order, set->places, sizeof *set->order, compare_numbers);
    set->is_unsorted = false;
    size_t kept = 0;
    for (size_t i = 0; i < set->places; i++) {
        struct entry *entry = set->order[i].entry;
        if (!entry)
            continue;
        entry->place = kept;
        set->order[kept++] = set->order[i];
    }
    set->places = kept;
}

static size_t first_place_after(const struct numbered *order, size_t places, uint64_t number)
{
    size_t low = 0, high = places;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order[middle].number <= number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void mark_set_each(const struct mark_set *set, uint64_t after, bool (*visit)(void *cookie, const struct mark *mark),
                   void *cookie)
{
    AUTO_FREE struct numbered *sorted = NULL; /* a copy: readers that share a lock must not sort the set's own */
    if (set->is_unsorted) {
        sorted = memory_copy(set->order, set->places * sizeof *set->order);
        qsort(sorted, set->places, sizeof *sorted, compare_numbers);
    }
    const struct numbered *order = sorted ? sorted : set->order;
    for (size_t i = first_place_after(order, set->places, after); i < set->places; i++) {
        if (order[i].entry && !visit(cookie, &order[i].entry->mark))
            return;
    }
}

void mark_set_add(struct mark_set *set, const struct mark *mark)
{
    struct entry *entry = memory_new(sizeof *entry);
    entry->mark = *mark;
    chain(set, entry);
    add_due(set, entry);
    add_place(set, entry);
}

size_t mark_set_forget(struct mark_set *set, int64_t now_ms)
{
    const int64_t over = now_ms / 1000 - FORGET_AFTER_S;
    size_t forgotten = 0;
    while (set->count > 0 && set->due[0]->mark.until <= over) {
        struct entry *entry = take_due(set);
        remove_from_chain(set, entry);
        set->order[entry->place].entry = NULL;
        free(entry);
        forgotten++;
    }
    if (set->places - set->count > HOLES_MAX + set->count)
        tidy(set);
    return forgotten;
}

/* Looking up */

/* Goes through the marks in force or not that match the claims, until visit says false. */
static void each_match(const struct mark_set *set, const struct capability_claims *claims,
                       bool (*visit)(void *cookie, const struct mark *mark), void *cookie)
{
    struct selector selectors[MARK_KINDS + CAPABILITY_LINKS_MAX] = {
        {MARK_JTI, claims->jti},
        {MARK_FAMILY, claims->family},
        {MARK_LEASE, claims->lease},
        {MARK_SANDBOX, claims->sandbox_id},
        {MARK_THREAD, claims->thread_id},
        {MARK_PRINCIPAL, claims->principal},
        {MARK_SCOPE, ""},
        {MARK_ALL, ""},
    };
    size_t count = MARK_KINDS - 1; /* all but links */
    for (size_t i = 0; i < claims->link_count; i++)
        selectors[count++] = (struct selector){MARK_LINK, claims->link_ids[i]};
    for (size_t i = 0; i < 2 * count; i++) {
        const struct selector *selector = &selectors[i / 2];
        if (set->kinds[selector->kind] == 0)
            continue;
        uint64_t hash = hash_of(set, selector->kind, selector->value, i % 2 ? "" : claims->principal);
        for (const struct entry *entry = *bucket_of(set, hash); entry; entry = entry->next) {
            if (entry->hash == hash && mark_matches(&entry->mark, claims) && !visit(cookie, &entry->mark))
                return;
        }
    }
}

struct refusal {
    const struct capability_claims *claims;
    int64_t now_ms;
    const struct mark *by; /* NULL: not refused */
};

static bool visit_refusal(void *cookie, const struct mark *mark)
{
    struct refusal *refusal = cookie;
    if (mark_refuses(mark, refusal->claims, refusal->now_ms))
        refusal->by = mark;
    return !refusal->by;
}

const struct mark *mark_set_refuses(const struct mark_set *set, const struct capability_claims *claims, int64_t now_ms)
{
    struct refusal refusal = {.claims = claims, .now_ms = now_ms};
    each_match(set, claims, visit_refusal, &refusal);
    return refusal.by;
}

static bool visit_before(void *cookie, const struct mark *mark)
{
    int64_t *newest = cookie;
    if (mark->before != MARK_ANY_TIME && mark->before > *newest)
        *newest = mark->before;
    return true;
}

int64_t mark_set_newest_before(const struct mark_set *set, const struct capability_claims *claims)
{
    int64_t newest = 0;
    each_match(set, claims, visit_before, &newest);
    return newest;
}
