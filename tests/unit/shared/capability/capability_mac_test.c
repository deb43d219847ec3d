/* HMAC-SHA256: RFC 4231, and that each thread has a context of its own which goes with it. */
#include "shared/capability/capability_mac.h"

#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <pthread.h>

/* RFC 4231, 4.2 and 4.3; HMAC fills short keys with zeros, so these are keys of 32 bytes as well. */
static void test_known_answers(void)
{
    uint8_t key[CAPABILITY_MAC_BYTES] = {0}, mac[CAPABILITY_MAC_BYTES];
    char hex[2 * CAPABILITY_MAC_BYTES + 1];
    memset(key, 0x0b, 20);
    CHECK(capability_mac(mac, key, "Hi There", 8));
    text_hex(hex, mac, sizeof mac);
    CHECK_TEXT(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    memset(key, 0, sizeof key);
    memcpy(key, "Jefe", 4);
    CHECK(capability_mac(mac, key, "what do ya want for nothing?", 28));
    text_hex(hex, mac, sizeof mac);
    CHECK_TEXT(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    CHECK(capability_mac(key, key, "what do ya want for nothing?", 28)); /* in place */
    CHECK(memcmp(key, mac, sizeof mac) == 0);
}

static void *compute(void *argument)
{
    uint8_t *mac = argument;
    for (int i = 0; i < 500; i++) {
        if (!capability_mac(mac, mac, "text", 4))
            return NULL;
    }
    return mac;
}

static void test_threads(void)
{
    pthread_t threads[4];
    uint8_t macs[4][CAPABILITY_MAC_BYTES], alone[CAPABILITY_MAC_BYTES];
    for (size_t i = 0; i < 4; i++) {
        memset(macs[i], (int)i, sizeof macs[i]);
        CHECK(pthread_create(&threads[i], NULL, compute, macs[i]) == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        void *done = NULL;
        pthread_join(threads[i], &done);
        memset(alone, (int)i, sizeof alone);
        CHECK(done && compute(alone));
        CHECK(memcmp(alone, macs[i], sizeof alone) == 0);
    }
}

int main(void)
{
    test_known_answers();
    test_threads();
    return check_done();
}
