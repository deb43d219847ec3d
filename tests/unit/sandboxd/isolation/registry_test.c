/* registry_test.c - isolation levels by name: what a node offers, what "auto" means, what each cannot have. */
#include "sandboxd/isolation/isolation.h"

#include "tests/unit/check.h"

#include <string.h>

static void test_offer(void)
{
    struct isolation_offer offer = {0};
    struct error err = {0};
    CHECK(isolation_offer_parse("namespaces", &offer, &err) && offer.count == 1);
    CHECK(isolation_choose(&offer, "auto", &err) == &isolation_namespaces);
    CHECK(isolation_choose(&offer, "namespaces", &err) == &isolation_namespaces);
    CHECK(!isolation_choose(&offer, "lava", &err) && err.kind == ERROR_INVALID);
    CHECK(strstr(err.message, "auto or one of namespaces") && strstr(err.message, "lava"));
    CHECK(!isolation_choose(&(struct isolation_offer){0}, "auto", &err));
}

static void test_bad_lists(void)
{
    static const char *const BAD[] = {"",
                                      ",",
                                      "lava",
                                      "namespaces,lava",
                                      "namespaces namespaces",
                                      "namespace",
                                      "a-name-that-is-longer-than-any-name-of-a-level"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct isolation_offer offer = {.count = 3};
        struct error err = {0};
        CHECK(!isolation_offer_parse(BAD[i], &offer, &err) && err.kind == ERROR_INVALID);
        CHECK(offer.count == 3); /* untouched */
    }
}

static void test_all_are_found(void)
{
    const struct isolation_backend *backend;
    size_t count = 0;
    for (; (backend = isolation_each(count)) != NULL; count++)
        CHECK(isolation_find(backend->name) == backend);
    CHECK(count >= 1 && count <= ISOLATION_BACKENDS_MAX && !isolation_find("auto"));
}

static void test_lacks(void)
{
    char text[64];
    isolation_lacks_format(0, text, sizeof text);
    CHECK(!text[0]);
    isolation_lacks_format(ISOLATION_NO_EGRESS | ISOLATION_NO_ROOT, text, sizeof text);
    CHECK(strcmp(text, "egress, commands as root") == 0);
}

int main(void)
{
    test_offer();
    test_bad_lists();
    test_all_are_found();
    test_lacks();
    return check_done();
}
