/* delivery_test.c - signatures as Standard Webhooks has them, and the waits between attempts. */
#include "negotiator/webhooks/delivery.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <string.h>

/* The vector of https://github.com/standard-webhooks: secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw is 24 bytes there;
 * ours are 32, so this one was made with Python's hmac. */
static void test_signature(void)
{
    struct key key;
    char told[DELIVERY_SIGNATURE_BYTES];
    for (unsigned i = 0; i < sizeof key.bytes; i++)
        key.bytes[i] = (uint8_t)i;
    delivery_sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, "{\"test\": 2432232314}", told);
    CHECK_TEXT(told, "v1,O4Gjv1HqPqsMrjmczoggs/sWA8gZD0VyHG+fLh4+ktI=");
    CHECK(strlen(told) == DELIVERY_SIGNATURE_BYTES - 1);
}

static void test_backoff(void)
{
    for (unsigned round = 0; round < 100; round++) {
        for (uint32_t attempts = 1; attempts < 40; attempts++) {
            int64_t wait = webhook_backoff_ms(attempts);
            int64_t whole = attempts > 12 ? WEBHOOK_BACKOFF_MAX_MS : INT64_C(1000) << (attempts - 1);
            whole = whole < WEBHOOK_BACKOFF_MAX_MS ? whole : WEBHOOK_BACKOFF_MAX_MS;
            CHECK(wait >= whole / 2 && wait <= whole);
        }
    }
}

int main(void)
{
    keys_start();
    test_signature();
    test_backoff();
    return 0;
}
