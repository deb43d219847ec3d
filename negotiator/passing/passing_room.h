/** passing_room.h - how many requests are passed on to sandboxes at once: of all owners, and of one, so that one who
 * keeps many open keeps nobody else out, and all of them leave descriptors for what the rules need. Any thread. */
#pragma once

#include "shared/base/error.h"

#define PASSING_ROOM_PART                                                                                              \
    8 /* of the process's descriptors that connections to nodes may take, and of those one owner */
#define PASSING_ROOM_LEAST 16 /* that one owner may have, however few there are */

struct passing_room;

/** For at most `all` at once, and `each` of one owner. */
struct passing_room *passing_room_new(unsigned all, unsigned each) MUST_USE;
/** As the process's limit of descriptors has it. */
struct passing_room *passing_room_of_process(void) MUST_USE;
/** When nobody is in it. NULL is allowed. */
void passing_room_free(struct passing_room *room);

/** One more of this owner's sandboxes. NO_CAPACITY. */
bool passing_room_enter(struct passing_room *room, const char *owner, struct error *err) MUST_USE;
/** It is over. */
void passing_room_leave(struct passing_room *room, const char *owner);
