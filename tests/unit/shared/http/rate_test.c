/* rate_test.c - a bucket an address: burst, refill to the nanosecond, the /64, a table that does not grow, threads. */
#include "shared/http/rate.h"

#include "tests/unit/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static const uint64_t SECOND = 1000000000, START = 1000 * UINT64_C(1000000000);

static struct address of(const char *text)
{
    struct address address = {0};
    CHECK(address_parse(&address, text));
    return address;
}

static void test_bucket(void)
{
    AUTO(http_rate) *rate = http_rate_new(120, 0);
    const struct address a = of("192.0.2.1"), b = of("192.0.2.2");
    for (int i = 0; i < 120; i++)
        CHECK(http_rate_take(rate, &a, START) == 0);
    CHECK(http_rate_take(rate, &a, START) == SECOND / 2); /* 120 a minute: one each half second */
    CHECK(http_rate_look(rate, &a, START) == SECOND / 2 && http_rate_take(rate, &b, START) == 0);
    CHECK(http_rate_take(rate, &a, START + SECOND / 2 - 1) == 1); /* and not a ns sooner */
    CHECK(http_rate_look(rate, &a, START + SECOND / 2) == 0);     /* looking takes none */
    CHECK(http_rate_take(rate, &a, START + SECOND / 2) == 0);
    CHECK(http_rate_take(rate, &a, START + SECOND / 2) == SECOND / 2);
    int taken = 0;
    while (http_rate_take(rate, &a, START + 3600 * SECOND) == 0)
        taken++;
    CHECK(taken == 120); /* never fuller than full */
}

static void test_burst(void)
{
    AUTO(http_rate) *rate = http_rate_new(60, 3);
    const struct address a = of("2001:db8::1"), same = of("2001:db8::ffff:2"), other = of("2001:db8:0:1::1");
    CHECK(http_rate_take(rate, &a, START) == 0 && http_rate_take(rate, &same, START) == 0);
    CHECK(http_rate_take(rate, &a, START) == 0);
    CHECK(http_rate_take(rate, &same, START) == SECOND); /* one customer's /64 */
    CHECK(http_rate_take(rate, &other, START) == 0);
    /* A clock that reads an earlier time gives nothing away. */
    CHECK(http_rate_take(rate, &a, START - 5 * SECOND) == 6 * SECOND);
}

/* Many strangers cost no memory, and one who is limited stays so as long as others are not worse. */
static void test_many(void)
{
    AUTO(http_rate) *rate = http_rate_new(60, 0);
    const struct address flooder = of("192.0.2.1");
    while (http_rate_take(rate, &flooder, START) == 0) {
    }
    for (unsigned i = 0; i < 100000; i++) {
        char text[32];
        snprintf(text, sizeof text, "10.%u.%u.%u", i >> 16, i >> 8 & 255, i & 255);
        struct address address = of(text);
        CHECK(http_rate_take(rate, &address, START) == 0);
    }
    CHECK(http_rate_take(rate, &flooder, START) == SECOND);
}

static struct http_rate *shared;
static atomic_uint taken;

static void *flood(void *unused)
{
    const struct address a = of("192.0.2.1");
    (void)unused;
    for (int i = 0; i < 1000; i++)
        atomic_fetch_add(&taken, http_rate_take(shared, &a, START) == 0);
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[4];
    shared = http_rate_new(600, 700);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, flood, NULL) == 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(atomic_load(&taken) == 700);
    http_rate_free(shared);
}

int main(void)
{
    test_bucket();
    test_burst();
    test_many();
    test_threads();
    return check_done();
}
