/* Addresses of names: as long as they hold, no longer, and never more than the bound. */
#include "sandboxd/egress/pins.h"

#include "tests/unit/check.h"

#include <stdio.h>

static bool is_kept(void *cookie, const char *name)
{
    return strcmp(name, cookie) == 0;
}

static unsigned seen;
static char order[256];

static void see(void *cookie UNUSED, const char *name, uint32_t address UNUSED, uint64_t expires_ns UNUSED)
{
    seen++;
    if (strlen(order) + strlen(name) + 2 < sizeof order)
        strcat(strcat(order, name), " ");
}

int main(void)
{
    struct pins *pins = pins_new();
    pins_add(pins, "b.test", 1, 100, 0);
    pins_add(pins, "a.test", 1, 100, 0);
    pins_add(pins, "b.test", 2, 200, 0);
    CHECK(pins_expiry(pins, "b.test", 1, 99) == 100 && pins_expiry(pins, "b.test", 1, 100) == 0);
    CHECK(pins_expiry(pins, "a.test", 2, 0) == 0 && pins_expiry(pins, "c.test", 1, 0) == 0);
    pins_add(pins, "b.test", 1, 50, 0); /* not shortened */
    CHECK(pins_expiry(pins, "b.test", 1, 99) == 100);
    pins_add(pins, "b.test", 1, 300, 0);
    CHECK(pins_expiry(pins, "b.test", 1, 299) == 300);
    pins_each(pins, see, NULL);
    CHECK(seen == 3);
    CHECK_TEXT(order, "a.test b.test b.test ");
    char kept[] = "b.test";
    pins_keep(pins, is_kept, kept, 250);
    CHECK(pins_expiry(pins, "b.test", 1, 0) == 300 && pins_expiry(pins, "b.test", 2, 0) == 0 &&
          pins_expiry(pins, "a.test", 1, 0) == 0);
    for (uint32_t i = 0; i < 2 * PINS_MAX; i++)
        pins_add(pins, "many.test", i, 1000 + i, 250);
    seen = 0;
    pins_each(pins, see, NULL);
    CHECK(seen == PINS_MAX);
    CHECK(pins_expiry(pins, "many.test", 2 * PINS_MAX - 1, 250) != 0 && pins_expiry(pins, "many.test", 0, 250) == 0);
    pins_free(pins);
    pins_free(NULL);
    return check_done();
}
