/* template_list.c - a round is put together aside, so that nobody sees half of it. */
#include "sandboxd/sandbox/template_list.h"

#include "shared/base/memory.h"

#include <pthread.h>
#include <string.h>

struct templates {
    struct fl_template *items;
    size_t count;
};

struct template_list {
    pthread_mutex_t mutex; /* guards `now` and `version` */
    struct templates now;
    uint64_t version;
    struct templates coming; /* the telling thread's, as the next */
    bool is_coming;
};

struct template_list *template_list_new(void)
{
    struct template_list *list = memory_new(sizeof *list);
    pthread_mutex_init(&list->mutex, NULL);
    list->version = 1;
    return list;
}

void template_list_free(struct template_list *list)
{
    if (!list)
        return;
    free(list->now.items);
    free(list->coming.items);
    pthread_mutex_destroy(&list->mutex);
    free(list);
}

void template_list_take(struct template_list *list, const struct fl_template *told)
{
    struct templates *coming = &list->coming;
    if (told->first)
        coming->count = 0;
    if (coming->count >= TEMPLATE_LIST_MAX)
        return;
    coming->items = memory_resize(coming->items, (coming->count + 1) * sizeof *coming->items);
    coming->items[coming->count++] = *told;
    list->is_coming = true;
}

static bool is_same(const struct templates *a, const struct templates *b)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->items, b->items, a->count * sizeof *a->items) == 0);
}

bool template_list_settle(struct template_list *list)
{
    if (!list->is_coming)
        return false;
    list->is_coming = false;
    pthread_mutex_lock(&list->mutex);
    bool changed = !is_same(&list->now, &list->coming);
    if (changed) {
        free(list->now.items);
        list->now.count = list->coming.count;
        list->now.items = memory_copy(list->coming.items, list->coming.count * sizeof *list->coming.items);
        list->version++;
    }
    pthread_mutex_unlock(&list->mutex);
    return changed;
}

size_t template_list_copy(struct template_list *list, struct fl_template **copy, uint64_t *version)
{
    pthread_mutex_lock(&list->mutex);
    size_t count = list->now.count;
    *copy = memory_copy(list->now.items ? (const void *)list->now.items : "", count * sizeof **copy);
    if (version)
        *version = list->version;
    pthread_mutex_unlock(&list->mutex);
    return count;
}
