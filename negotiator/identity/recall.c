#include "negotiator/identity/recall.h"

#include "shared/base/memory.h"

#include <pthread.h>
#include <sodium.h>
#include <string.h>

enum { ROWS = 512, WAYS = 4, HASH_BYTES = 32 };

static const double KEPT_S = 60;

struct verified {
    uint8_t hash[HASH_BYTES];
    double from_s, until_s; /* wall; 0: free */
    struct principal principal;
};

struct recall {
    uint8_t key[crypto_generichash_KEYBYTES];
    pthread_mutex_t mutex; /* guards the table */
    struct verified table[ROWS][WAYS];
};

struct recall *recall_new(void)
{
    struct recall *recall = memory_new(sizeof *recall);
    crypto_generichash_keygen(recall->key);
    pthread_mutex_init(&recall->mutex, NULL);
    return recall;
}

void recall_free(struct recall *recall)
{
    if (recall == NULL)
        return;
    pthread_mutex_destroy(&recall->mutex);
    free(recall);
}

static struct verified *row_of(struct recall *recall, const char *token, uint8_t hash[static HASH_BYTES])
{
    crypto_generichash(hash, HASH_BYTES, (const unsigned char *)token, strlen(token), recall->key, sizeof recall->key);
    return recall->table[((size_t)hash[0] << 8 | hash[1]) % ROWS];
}

void recall_add(struct recall *recall, const char *token, const struct principal *principal, double now_s,
                double expires_s)
{
    struct verified one = {.from_s = now_s, .until_s = now_s + KEPT_S, .principal = *principal};
    if (expires_s < one.until_s)
        one.until_s = expires_s;
    struct verified *row = row_of(recall, token, one.hash), *place = row;
    pthread_mutex_lock(&recall->mutex);
    for (struct verified *each = row; each < row + WAYS; each++) {
        if (memcmp(each->hash, one.hash, HASH_BYTES) == 0) {
            place = each;
            break;
        }
        if (each->until_s < place->until_s)
            place = each;
    }
    *place = one;
    pthread_mutex_unlock(&recall->mutex);
}

bool recall_find(struct recall *recall, const char *token, double now_s, struct principal *principal)
{
    uint8_t hash[HASH_BYTES];
    const struct verified *row = row_of(recall, token, hash), *found = NULL;
    pthread_mutex_lock(&recall->mutex);
    for (size_t i = 0; i < WAYS && !found; i++) {
        /* Not when the clock was set back either. */
        if (row[i].from_s <= now_s && now_s < row[i].until_s && memcmp(row[i].hash, hash, HASH_BYTES) == 0)
            found = &row[i];
    }
    if (found)
        *principal = found->principal;
    pthread_mutex_unlock(&recall->mutex);
    return found != NULL;
}

void recall_forget_all(struct recall *recall)
{
    pthread_mutex_lock(&recall->mutex);
    memset(recall->table, 0, sizeof recall->table);
    pthread_mutex_unlock(&recall->mutex);
}
