/* spool_share.c - that one sandbox does not keep all others from doing anything. While more than half of the spool
 * waits, the records of one sandbox may take no more of the other half than they leave: with n that write for ever each
 * gets one part in n + 1, and who comes later still finds room. */
#include "sandboxd/journal/spool_internal.h"

#include "shared/base/random.h"

#include <sodium.h>
#include <string.h>

_Static_assert(sizeof((struct spool_shares){0}.key) == crypto_shorthash_KEYBYTES, "the key's size");

void spool_shares_start(struct spool_shares *shares)
{
    random_bytes(shares->key, sizeof shares->key); /* nobody can choose an id that shares a row with another one's */
}

static uint64_t *row_of(struct spool_shares *shares, const char *sandbox_id)
{
    uint8_t hash[crypto_shorthash_BYTES];
    crypto_shorthash(hash, (const uint8_t *)sandbox_id, strlen(sandbox_id), shares->key);
    return &shares->taken[(hash[0] | (size_t)hash[1] << 8) % SPOOL_SHARES];
}

static bool is_tight(const struct spool *spool)
{
    return spool->unshipped_bytes > spool->options.bytes_max / 2;
}

bool spool_share_allows(struct spool *spool, const char *sandbox_id, uint64_t bytes)
{
    if (!is_tight(spool) || sandbox_id == NULL)
        return true;
    uint64_t max = spool->options.bytes_max, waiting = spool->unshipped_bytes;
    return waiting < max && *row_of(&spool->shares, sandbox_id) + bytes <= max - waiting;
}

void spool_share_take(struct spool *spool, const char *sandbox_id, uint64_t bytes)
{
    struct spool_shares *shares = &spool->shares;
    bool tight = is_tight(spool);
    if (!tight && shares->some)
        memset(shares->taken, 0, sizeof shares->taken);
    shares->some = tight;
    if (tight && sandbox_id)
        *row_of(shares, sandbox_id) += bytes;
}
