/** login.h - login tokens (protocol.md, 1): 15 minutes in place of an API key. A JWT of typ `login+jwt` under a key of
 *  its own, so it is never taken for a capability, nor one for it. It holds while its API key does, and the key's text
 *  that it was made of. Any thread. */
#pragma once

#include "negotiator/leasing/principal.h"

#define LOGIN_TOKEN_BYTES 1024 /* with the NUL */
#define LOGIN_TTL_S       900

/** What one says. */
struct login {
    char key_id[RANDOM_ID_BYTES];
    uint32_t generation; /* of the key's text */
    int64_t expires_at;  /* s since 1970 UTC */
};

/** The token of a principal that showed an API key at now_ms. *expires_at in s: no later than the key itself. */
void login_mint(char to[static LOGIN_TOKEN_BYTES], const struct key *master, const struct principal *principal,
                int64_t now_ms, int64_t *expires_at);

/** Whether it is one of ours that has not run out; whether its key is still there is the table's to say. */
bool login_verify(struct login *login, const struct key *master, const char *token, int64_t now_ms) MUST_USE;
