#include "negotiator/passing/passing_room.h"

#include "shared/base/memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { BUCKETS = 256 };

/* One owner with some in it. */
struct guest {
    struct guest *next;
    unsigned count;
    char *owner;
};

struct passing_room {
    pthread_mutex_t mutex;
    unsigned all, each, count;
    struct guest *buckets[BUCKETS];
};

struct passing_room *passing_room_new(unsigned all, unsigned each)
{
    struct passing_room *room = memory_new(sizeof *room);
    room->all = all;
    room->each = each;
    pthread_mutex_init(&room->mutex, NULL);
    return room;
}

struct passing_room *passing_room_of_process(void)
{
    struct rlimit limit;
    bool is_known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < UINT32_MAX;
    unsigned all = (is_known ? (unsigned)limit.rlim_cur : 65536) / PASSING_ROOM_PART, each = all / PASSING_ROOM_PART;
    return passing_room_new(all, each > PASSING_ROOM_LEAST ? each : PASSING_ROOM_LEAST);
}

void passing_room_free(struct passing_room *room)
{
    if (room == NULL)
        return;
    pthread_mutex_destroy(&room->mutex);
    free(room);
}

/* Where the owner stands, or would; FNV-1a: names are the operator's to give. */
static struct guest **place_of(struct passing_room *room, const char *owner)
{
    uint32_t hash = 2166136261;
    for (const char *c = owner; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619;
    struct guest **at = &room->buckets[hash % BUCKETS];
    while (*at != NULL && strcmp((*at)->owner, owner) != 0)
        at = &(*at)->next;
    return at;
}

static bool enter(struct passing_room *room, const char *owner, struct error *err)
{
    struct guest **at = place_of(room, owner);
    if (room->count >= room->all)
        return error_set(err, ERROR_NO_CAPACITY, "%u requests are on their way to sandboxes, as many as may be",
                         room->all);
    if (*at != NULL && (*at)->count >= room->each)
        return error_set(err, ERROR_NO_CAPACITY,
                         "%u requests are on their way to sandboxes of this owner, as many as "
                         "may be; what asks the node itself has no such limit",
                         room->each);
    if (*at == NULL) {
        *at = memory_new(sizeof **at);
        (*at)->owner = memory_string(owner);
    }
    (*at)->count++;
    room->count++;
    return true;
}

bool passing_room_enter(struct passing_room *room, const char *owner, struct error *err)
{
    pthread_mutex_lock(&room->mutex);
    bool is_in = enter(room, owner, err);
    pthread_mutex_unlock(&room->mutex);
    return is_in;
}

void passing_room_leave(struct passing_room *room, const char *owner)
{
    pthread_mutex_lock(&room->mutex);
    struct guest **at = place_of(room, owner), *guest = *at;
    if (guest != NULL)
        room->count--;
    if (guest != NULL && --guest->count == 0) {
        *at = guest->next;
        free(guest->owner);
        free(guest);
    }
    pthread_mutex_unlock(&room->mutex);
}
