#include "shared/http/rate.h"

#include "shared/base/memory.h"

#include <pthread.h>
#include <sodium.h>
#include <string.h>

enum { SETS = 1024, WAYS = 8, LOCKS = 16 };

static const uint64_t MINUTE_NS = 60 * UINT64_C(1000000000);

/* A bucket is one number: when it will be full again (the "theoretical arrival time" of GCRA, which counts exactly as a
 * bucket does). What lies in the past is a full one, the same as none. */
struct bucket {
    struct address address;
    uint64_t full_at_ns;
};

struct http_rate {
    uint64_t token_ns;                      /* in which one token comes */
    uint64_t burst_ns;                      /* in which an empty bucket fills */
    uint8_t key[crypto_shorthash_KEYBYTES]; /* so that nobody can choose whose row he is in */
    pthread_mutex_t locks[LOCKS];           /* each of the sets with that remainder */
    struct bucket buckets[SETS][WAYS];
};

struct http_rate *http_rate_new(unsigned per_minute, unsigned burst)
{
    struct http_rate *rate = memory_new(sizeof *rate);
    rate->token_ns = MINUTE_NS / per_minute;
    rate->burst_ns = rate->token_ns * (burst > 0 ? burst : per_minute);
    crypto_shorthash_keygen(rate->key);
    for (size_t i = 0; i < LOCKS; i++)
        pthread_mutex_init(&rate->locks[i], NULL);
    return rate;
}

void http_rate_free(struct http_rate *rate)
{
    for (size_t i = 0; rate != NULL && i < LOCKS; i++)
        pthread_mutex_destroy(&rate->locks[i]);
    free(rate);
}

static size_t set_of(const struct http_rate *rate, const struct address *address)
{
    uint8_t hash[crypto_shorthash_BYTES];
    crypto_shorthash(hash, address->bytes, sizeof address->bytes, rate->key);
    return ((size_t)hash[0] << 8 | hash[1]) % SETS;
}

/* Its bucket, or the fullest one of the row. */
static struct bucket *find(struct bucket *row, const struct address *address)
{
    struct bucket *fullest = row;
    for (struct bucket *each = row; each < row + WAYS; each++) {
        if (memcmp(&each->address, address, sizeof *address) == 0)
            return each;
        if (each->full_at_ns < fullest->full_at_ns)
            fullest = each;
    }
    return fullest;
}

static uint64_t ask(struct http_rate *rate, const struct address *address, uint64_t now_ns, bool takes)
{
    const struct address counted = address_counted(address);
    size_t set = set_of(rate, &counted);
    pthread_mutex_t *lock = &rate->locks[set % LOCKS];
    pthread_mutex_lock(lock);
    struct bucket *bucket = find(rate->buckets[set], &counted);
    bool is_known = memcmp(&bucket->address, &counted, sizeof counted) == 0;
    uint64_t full_at_ns = is_known && bucket->full_at_ns > now_ns ? bucket->full_at_ns : now_ns;
    uint64_t then_ns = full_at_ns + rate->token_ns, most_ns = now_ns + rate->burst_ns;
    if (takes && then_ns <= most_ns)
        *bucket = (struct bucket){.address = counted, .full_at_ns = then_ns};
    pthread_mutex_unlock(lock);
    return then_ns <= most_ns ? 0 : then_ns - most_ns;
}

uint64_t http_rate_take(struct http_rate *rate, const struct address *address, uint64_t now_ns)
{
    return ask(rate, address, now_ns, true);
}

uint64_t http_rate_look(struct http_rate *rate, const struct address *address, uint64_t now_ns)
{
    return ask(rate, address, now_ns, false);
}
