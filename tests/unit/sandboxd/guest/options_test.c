/* options_test.c - how a guest is called, and what is refused before anything begins. */
#include "sandboxd/guest/guest.h"

#include "shared/base/text.h"
#include "tests/unit/check.h"

static void test_options_are_taken_out(void)
{
    char name[] = "x", letter[] = "--guest-letter", three[] = "3", connections[] = "--guest-connections", zero[] = "0",
         state[] = "--state", place[] = "/s";
    char *argv[] = {name, letter, three, state, place, connections, zero, NULL};
    int argc = 7;
    struct guest_options options = {0};
    struct error err = {0};
    CHECK(guest_take_options(&argc, argv, &options, &err));
    CHECK(argc == 3 && text_equal(argv[1], "--state") && text_equal(argv[2], "/s") && argv[3] == NULL);
    CHECK(options.letter == 3 && options.connections == 0);
}

static void test_none_is_none(void)
{
    char name[] = "x";
    char *argv[] = {name, NULL};
    int argc = 1;
    struct guest_options options = {0};
    struct error err = {0};
    CHECK(guest_take_options(&argc, argv, &options, &err));
    CHECK(options.letter == -1 && options.connections == -1);
}

static void check_refused(char *number)
{
    char name[] = "x", letter[] = "--guest-letter";
    char *argv[] = {name, letter, number, NULL};
    int argc = number ? 3 : 2;
    struct guest_options options = {0};
    struct error err = {0};
    CHECK(!guest_take_options(&argc, argv, &options, &err));
    CHECK(err.kind == ERROR_INVALID && strstr(err.message, "--guest-letter") != NULL);
}

static void test_what_is_no_descriptor_is_refused(void)
{
    char minus[] = "-1", text[] = "letter.json", large[] = "99999999999";
    check_refused(minus);
    check_refused(text);
    check_refused(large);
    check_refused(NULL);
}

int main(void)
{
    test_options_are_taken_out();
    test_none_is_none();
    test_what_is_no_descriptor_is_refused();
    return check_done();
}
