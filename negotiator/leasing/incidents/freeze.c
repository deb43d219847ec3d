#include "negotiator/leasing/incidents/freeze.h"

#include "negotiator/leasing/leasing_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <pthread.h>
#include <string.h>

static const char FROZEN[] = "frozen/";

/* What is durable, for who asks without a rule. */
struct freeze {
    pthread_mutex_t mutex;
    json_t *frozen; /* owned: {"<who>": "<incident id>"} */
};

struct freeze *freeze_new(void)
{
    struct freeze *freeze = memory_new(sizeof *freeze);
    pthread_mutex_init(&freeze->mutex, NULL);
    freeze->frozen = json_object();
    return freeze;
}

void freeze_free(struct freeze *freeze)
{
    if (freeze == NULL)
        return;
    json_decref(freeze->frozen);
    pthread_mutex_destroy(&freeze->mutex);
    free(freeze);
}

static bool refuse(const char *incident, struct error *refusal)
{
    return error_set(refusal, ERROR_FROZEN,
                     "nothing is issued or changed while incident %.40s is open; ask the operators of this deployment", incident);
}

struct sought {
    char incident[RANDOM_ID_BYTES];
};

static bool note_incident(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    struct sought *sought = cookie;
    if (!text_copy(sought->incident, sizeof sought->incident, strrchr(key, '/') + 1))
        sought->incident[0] = '?'; /* no row of ours: it counts all the same */
    return false;
}

static bool allows(struct work *work, const char *who, struct error *refusal)
{
    struct sought sought = {.incident = ""};
    struct store_row rows = store_key("frozen", who, "");
    if (!kv_range(work->kv, rows.text, NULL, 1, note_incident, &sought, work->err))
        return false;
    return sought.incident[0] == '\0' || refuse(sought.incident, refusal);
}

bool freeze_allows(struct work *work, const char *principal, struct error *refusal)
{
    return allows(work, FREEZE_EVERYBODY, refusal) && allows(work, principal, refusal);
}

bool freeze_lets_go(struct work *work, const struct caller *caller, const char *principal, struct error *refusal)
{
    return caller->principal.role == ROLE_ADMIN || freeze_allows(work, principal, refusal);
}

void freeze_add(struct work *work, const char *who, const char *incident)
{
    kv_change_put(work->change, store_key("frozen", who, incident).text, "", 0);
}

void freeze_lift(struct work *work, const char *who, const char *incident)
{
    kv_change_delete(work->change, store_key("frozen", who, incident).text);
}

/* --- without a rule --- */

static bool note_row(void *cookie, const char *key, const struct kv_value *value UNUSED)
{
    const char *who = key + strlen(FROZEN), *slash = strchr(who, '/');
    if (slash)
        json_object_setn_new(cookie, who, (size_t)(slash - who), json_string(slash + 1));
    return true;
}

json_t *freeze_read(struct work *work)
{
    json_t *frozen = json_object();
    if (kv_range(work->kv, FROZEN, NULL, 0, note_row, frozen, work->err))
        return frozen;
    json_decref(frozen);
    return NULL;
}

void freeze_take(struct leasing *leasing, json_t *frozen)
{
    struct freeze *freeze = leasing->freeze;
    pthread_mutex_lock(&freeze->mutex);
    json_t *before = freeze->frozen;
    freeze->frozen = frozen;
    pthread_mutex_unlock(&freeze->mutex);
    json_decref(before);
}

bool leasing_allows_issuing(struct leasing *leasing, const char *principal, struct error *refusal)
{
    struct freeze *freeze = leasing->freeze;
    char incident[RANDOM_ID_BYTES] = "";
    pthread_mutex_lock(&freeze->mutex);
    const char *everybody = json_string_value(json_object_get(freeze->frozen, FREEZE_EVERYBODY));
    const char *his = json_string_value(json_object_get(freeze->frozen, principal));
    bool frozen = everybody || his;
    if (frozen && !text_copy(incident, sizeof incident, everybody ? everybody : his))
        incident[0] = '?';
    pthread_mutex_unlock(&freeze->mutex);
    return !frozen || refuse(incident, refusal);
}
