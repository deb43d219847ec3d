/* passing_room_test.c - all, and each; who leaves makes room; none stands in another's place. */
#include "negotiator/passing/passing_room.h"
#include "tests/unit/check.h"

#include <stdio.h>

int main(void)
{
    struct error err = {0};
    char owner[16];
    struct passing_room *room = passing_room_new(5, 2);
    CHECK(passing_room_enter(room, "ada", &err) && passing_room_enter(room, "ada", &err));
    CHECK(!passing_room_enter(room, "ada", &err) && err.kind == ERROR_NO_CAPACITY);
    CHECK(passing_room_enter(room, "bob", &err) && passing_room_enter(room, "eve", &err));
    CHECK(passing_room_enter(room, "bob", &err));
    CHECK(!passing_room_enter(room, "eve", &err) && err.kind == ERROR_NO_CAPACITY); /* all */
    passing_room_leave(room, "ada");
    CHECK(passing_room_enter(room, "eve", &err) && !passing_room_enter(room, "ada", &err));
    for (int i = 0; i < 2; i++) {
        passing_room_leave(room, "bob");
        passing_room_leave(room, "eve");
    }
    passing_room_leave(room, "ada");
    passing_room_free(room);
    room = passing_room_new(2000, 1);
    for (int i = 0; i < 2000; i++) { /* several in each bucket */
        (void)snprintf(owner, sizeof owner, "p%d", i);
        CHECK(passing_room_enter(room, owner, &err) && !passing_room_enter(room, owner, &err));
    }
    for (int i = 0; i < 2000; i++) {
        (void)snprintf(owner, sizeof owner, "p%d", i * 7 % 2000);
        passing_room_leave(room, owner);
    }
    CHECK(passing_room_enter(room, "p0", &err));
    passing_room_leave(room, "p0");
    passing_room_free(room);
    passing_room_free(NULL);
    return check_done();
}
