/* Typed input that is not yet acknowledged: what is sent, what is sent again after a break, what is never sent twice.
 */
#include "clients/c/session_input.h"

#include "shared/base/memory.h"

#include "tests/unit/check.h"

static void add(struct session_input *input, const char *text)
{
    session_input_add(input, text, strlen(text));
}

/* "text" or "text@offset"; "" when there is nothing. */
static const char *next(struct session_input *input)
{
    static char told[256];
    struct session_piece piece;
    if (!session_input_next(input, &piece))
        return "";
    int length = snprintf(told, sizeof told, "%.*s", (int)piece.size, piece.data);
    if (piece.has_offset)
        snprintf(told + length, sizeof told - (size_t)length, "@%d", (int)piece.offset);
    return told;
}

static void test_in_order(void)
{
    struct session_input input = {0};
    session_input_attach(&input, 0);
    CHECK_TEXT(next(&input), "");
    add(&input, "ab");
    CHECK_TEXT(next(&input), "ab");
    add(&input, "c"); /* keys do not wait for an answer */
    CHECK_TEXT(next(&input), "c");
    CHECK(session_input_is_sent(&input));
    session_input_acknowledge(&input, 2);
    session_input_acknowledge(&input, 1);
    CHECK(session_input_room(&input) == SESSION_INPUT_MAX_BYTES - 1);
    session_input_acknowledge(&input, 3);
    CHECK(session_input_room(&input) == SESSION_INPUT_MAX_BYTES);
    session_input_done(&input);
}

static void test_break(void)
{
    struct session_input input = {0};
    add(&input, "early"); /* before anything was there */
    session_input_attach(&input, 10);
    CHECK_TEXT(next(&input), "early");
    add(&input, "er");
    CHECK_TEXT(next(&input), "er");
    add(&input, "new");
    session_input_attach(&input, 12); /* two bytes had arrived */
    CHECK_TEXT(next(&input), "rlyer@12");
    CHECK_TEXT(next(&input), "new");
    CHECK_TEXT(next(&input), "");
    session_input_attach(&input, 14); /* broken again */
    CHECK_TEXT(next(&input), "yernew@14");
    session_input_acknowledge(&input, 18);
    session_input_attach(&input, 20); /* all had arrived */
    CHECK_TEXT(next(&input), "");
    add(&input, "x");
    CHECK_TEXT(next(&input), "x");
    session_input_done(&input);
}

/* A break between the two sends of the same bytes must not make the later ones new. */
static void test_break_while_sending_again(void)
{
    struct session_input input = {0};
    session_input_attach(&input, 0);
    add(&input, "one");
    CHECK_TEXT(next(&input), "one");
    session_input_attach(&input, 0);
    session_input_attach(&input, 1); /* nothing was sent on this one */
    CHECK_TEXT(next(&input), "ne@1");
    session_input_done(&input);
}

static void test_two_who_type(void)
{
    struct session_input input = {0};
    session_input_attach(&input, 0);
    add(&input, "mine");
    CHECK_TEXT(next(&input), "mine");
    session_input_acknowledge(&input, 54); /* with 50 of the other */
    add(&input, "more");
    CHECK_TEXT(next(&input), "more");
    session_input_acknowledge(&input, 58);
    CHECK(session_input_room(&input) == SESSION_INPUT_MAX_BYTES);
    add(&input, "unsent");
    session_input_acknowledge(&input, 90); /* the other's: what was not sent is still to be sent */
    CHECK_TEXT(next(&input), "unsent");
    session_input_attach(&input, 92);
    CHECK_TEXT(next(&input), "sent@92");
    session_input_done(&input);
}

static void test_flood(void)
{
    struct session_input input = {0};
    struct session_piece piece;
    AUTO_FREE char *flood = memory_new(200000);
    session_input_attach(&input, 0);
    session_input_add(&input, flood, 200000);
    CHECK(session_input_next(&input, &piece) && piece.size == 65536);
    CHECK(!session_input_next(&input, &piece)); /* waits for the answer */
    session_input_acknowledge(&input, 65536);
    CHECK(session_input_next(&input, &piece) && piece.size == 65536 && !piece.has_offset);
    CHECK(session_input_room(&input) == SESSION_INPUT_MAX_BYTES - (200000 - 65536));
    session_input_done(&input);
}

int main(void)
{
    test_in_order();
    test_break();
    test_break_while_sending_again();
    test_two_who_type();
    test_flood();
    return check_done();
}
