/* house_test.c - what is for all sandboxes, when some take all they get. */
#include "sandboxd/egress/house.h"
#include "tests/unit/check.h"

enum { HOGS_MAX = 1000 };

static unsigned take_all(unsigned *of_one, unsigned *of_all)
{
    unsigned taken = 0;
    for (; !house_is_full_for(*of_one, CONNECTIONS_OF_ONE, *of_all, CONNECTIONS_OF_ALL); taken++) {
        ++*of_one;
        ++*of_all;
    }
    return taken;
}

/* One after the other, and all at once. */
static void test_newcomers(void)
{
    static const unsigned HOGS[] = {1, 15, 16, 17, 60, 400};
    for (size_t i = 0; i < sizeof HOGS / sizeof HOGS[0]; i++) {
        unsigned of_one[HOGS_MAX] = {0}, of_all = 0, newcomer = 0, before = 1;
        while (before != of_all) {
            before = of_all;
            for (unsigned hog = 0; hog < HOGS[i]; hog++) {
                if (house_is_full_for(of_one[hog], CONNECTIONS_OF_ONE, of_all, CONNECTIONS_OF_ALL))
                    continue;
                of_one[hog]++;
                of_all++;
            }
        }
        CHECK(of_all < CONNECTIONS_OF_ALL);
        CHECK(take_all(&newcomer, &of_all) > 0);
        CHECK(newcomer * 2 + 2 >= of_one[0] || of_one[0] == CONNECTIONS_OF_ONE);
    }
}

static void test_alone(void)
{
    unsigned of_one = 0, of_all = 0;
    CHECK(take_all(&of_one, &of_all) == CONNECTIONS_OF_ONE);
    CHECK(house_is_full_for(0, CONNECTIONS_OF_ONE, CONNECTIONS_OF_ALL, CONNECTIONS_OF_ALL));
}

int main(void)
{
    test_newcomers();
    test_alone();
    return check_done();
}
