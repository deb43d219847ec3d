/** streams.h - the pipes and memories of a command's stdin, stdout and stderr. init pumps nothing: the front splices
 *  from pipe to memory, and because both ends stay here too, no byte is lost with a front. */
#pragma once

#include "sandboxd/front_init/front_init.h"

struct streams {
    int kept[FI_FDS];                      /* init's ends; -1 absent */
    int stdin_end, stdout_end, stderr_end; /* the child's; -1 closed. stdin_end also -1 without stdin */
};

/** All descriptors for a command; `limit`: none may be this or above (some stay free for the front). ERROR_NO_CAPACITY
 *  or ERROR_INTERNAL, nothing left open then. */
bool streams_open(struct streams *streams, bool with_stdin, int limit, struct error *err) MUST_USE;
void streams_close_child_ends(struct streams *streams);
void streams_close(struct streams *streams);
