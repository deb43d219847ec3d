/* placing.c - which nodes live, which takes the next sandbox, and how they look to people. */
#include "negotiator/fleet/fleet_internal.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum fleet_life fleet_node_life(const struct fleet_node *node, uint64_t now)
{
    uint64_t silent = now > node->seen_ns ? now - node->seen_ns : 0;
    if (node->heard && silent < FLEET_ALIVE_NS)
        return FLEET_ALIVE;
    return silent < FLEET_LOST_NS ? FLEET_SUSPECT : FLEET_LOST;
}

enum fleet_life fleet_find(struct fleet *fleet, const char *name, char url[static FLEET_URL_BYTES])
{
    uint64_t now = fleet->options.boot_ns();
    url[0] = '\0';
    pthread_mutex_lock(&fleet->registry_lock);
    const struct fleet_node *node = fleet_node_of(fleet, name, false);
    enum fleet_life life = node ? fleet_node_life(node, now) : FLEET_UNKNOWN;
    if (node)
        memcpy(url, node->url, sizeof node->url);
    pthread_mutex_unlock(&fleet->registry_lock);
    return life;
}

size_t fleet_alive(struct fleet *fleet)
{
    uint64_t now = fleet->options.boot_ns();
    size_t alive = 0;
    pthread_mutex_lock(&fleet->registry_lock);
    for (size_t i = 0; i < fleet->node_count; i++)
        alive += fleet_node_life(fleet->nodes[i], now) == FLEET_ALIVE;
    pthread_mutex_unlock(&fleet->registry_lock);
    return alive;
}

static bool offers(const struct fleet_node *node, const char *isolation)
{
    bool found = strcmp(isolation, "auto") == 0;
    for (size_t i = 0; i < node->isolation_count; i++)
        found = found || strcmp(node->isolations[i], isolation) == 0;
    return found;
}

struct choice {
    const struct fleet_wish *wish;
    struct fleet_node *best;
    bool any_alive, any_suitable, any_template, any_open;
    char offered[128]; /* isolations of those that live, with commas between, each once */
};

static void add_offered(struct choice *choice, const char *name)
{
    size_t length = strlen(name), used = strlen(choice->offered);
    for (const char *at = choice->offered; *at; at += strspn(at, ", ")) {
        if (strncmp(at, name, length) == 0 && strchr(",", at[length]))
            return;
        at += strcspn(at, ",");
    }
    if (used + length + sizeof ", " < sizeof choice->offered)
        (void)snprintf(choice->offered + used, sizeof choice->offered - used, "%s%s", used > 0 ? ", " : "", name);
}

static int64_t load_of(const struct fleet_node *node)
{
    return node->used + node->placed;
}

static void consider(struct choice *choice, struct fleet_node *node)
{
    const struct fleet_wish *wish = choice->wish;
    choice->any_alive = true;
    for (size_t i = 0; i < node->isolation_count; i++)
        add_offered(choice, node->isolations[i]);
    if (!offers(node, wish->isolation))
        return;
    choice->any_suitable = true;
    if (wish->template_name && !fleet_node_has_template(node, wish->template_name))
        return;
    choice->any_template = true;
    if (node->draining || node->clock_off_ms > FLEET_CLOCK_MS || node->clock_off_ms < -FLEET_CLOCK_MS)
        return;
    choice->any_open = true;
    if (load_of(node) < node->slots && node->waiting < FLEET_WAITING_MAX &&
        (choice->best == NULL || load_of(node) < load_of(choice->best)))
        choice->best = node;
}

static bool refuse_template(struct fleet *fleet, const struct fleet_wish *wish, struct error *err)
{
    char names[160];
    fleet_template_names(fleet, names, sizeof names);
    return error_set(err, ERROR_INVALID, "%s%s has no template %s; there are: %s", wish->node ? "node " : "no node",
                     wish->node ? wish->node : " that lives", wish->template_name, names);
}

/* One node was asked for by name: whoever has something there. */
static bool refuse_node(const struct choice *choice, struct error *err)
{
    const char *node = choice->wish->node;
    if (!choice->any_alive)
        return error_set(err, ERROR_NODE_UNREACHABLE, "node %s does not answer", node);
    if (!choice->any_suitable)
        return error_set(err, ERROR_INVALID, "node %s does not offer isolation %s but %s", node,
                         choice->wish->isolation, choice->offered);
    return error_set(err, ERROR_NO_CAPACITY, "node %s %s", node,
                     choice->any_open ? "is full, or has too many calls waiting"
                                      : "drains, or its clock is too far off");
}

static bool refuse(struct fleet *fleet, const struct choice *choice, struct error *err)
{
    if (choice->any_suitable && !choice->any_template)
        return refuse_template(fleet, choice->wish, err);
    if (choice->wish->node)
        return refuse_node(choice, err);
    if (!choice->any_alive)
        return error_set(err, ERROR_NODE_UNREACHABLE, "no node is alive; is parley-sandboxd running?");
    if (!choice->any_suitable)
        return error_set(err, ERROR_INVALID, "no node offers isolation %s; there are: %s", choice->wish->isolation,
                         choice->offered);
    if (!choice->any_open)
        return error_set(err, ERROR_NO_CAPACITY, "every node drains, or its clock is more than %d ms off",
                         FLEET_CLOCK_MS);
    return error_set(err, ERROR_NO_CAPACITY, "every node is full, or has too many calls waiting");
}

bool fleet_place(struct fleet *fleet, const struct fleet_wish *wish, char to[static LINK_NODE_BYTES], uint32_t *epoch,
                 struct error *err)
{
    uint64_t now = fleet->options.boot_ns();
    struct choice choice = {.wish = wish};
    pthread_mutex_lock(&fleet->registry_lock);
    for (size_t i = 0; i < fleet->node_count; i++) {
        struct fleet_node *node = fleet->nodes[i];
        bool is_meant = wish->node == NULL || strcmp(wish->node, node->name) == 0;
        if (is_meant && fleet_node_life(node, now) == FLEET_ALIVE)
            consider(&choice, node);
    }
    if (choice.best) {
        choice.best->placed++;
        memcpy(to, choice.best->name, LINK_NODE_BYTES);
        *epoch = choice.best->epoch;
    }
    pthread_mutex_unlock(&fleet->registry_lock);
    return choice.best || refuse(fleet, &choice, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct fleet_view *)a)->name, ((const struct fleet_view *)b)->name);
}

static void view_of(struct fleet_view *view, const struct fleet_node *node, uint64_t now)
{
    *view = (struct fleet_view){.life = fleet_node_life(node, now),
                                .draining = node->draining,
                                .rekeying = node->next_epoch > 0,
                                .slots = node->slots,
                                .used = node->used + node->placed,
                                .incarnation = node->window.incarnation,
                                .epoch = node->epoch,
                                .seen_ms = node->seen_ms,
                                .clock_off_ms = node->clock_off_ms};
    memcpy(view->name, node->name, sizeof view->name);
    memcpy(view->url, node->url, sizeof view->url);
}

struct fleet_view *fleet_list(struct fleet *fleet, size_t *count)
{
    uint64_t now = fleet->options.boot_ns();
    pthread_mutex_lock(&fleet->registry_lock);
    *count = fleet->node_count;
    struct fleet_view *views = *count ? memory_array(*count, sizeof *views) : NULL;
    for (size_t i = 0; i < *count; i++)
        view_of(&views[i], fleet->nodes[i], now);
    pthread_mutex_unlock(&fleet->registry_lock);
    if (views)
        qsort(views, *count, sizeof *views, by_name);
    return views;
}
