/** streams.h - the pipes and memories of a command's stdin, stdout and stderr. init pumps nothing: the front splices
 *  from pipe to memory and from memory to pipe, and because all ends stay here too, no byte is lost with a front. */
#pragma once

#include "sandboxd/front_init/front_init.h"

struct streams {
    bool is_terminal;
    int kept[FI_FDS_MAX];                  /* init's, by enum front_init_fd or front_init_terminal_fd; -1 absent */
    int stdin_end, stdout_end, stderr_end; /* the child's; -1 closed. stdin_end also -1 without stdin */
    int terminal_end;                      /* ... or this alone */
    uint64_t stdin_bytes;                  /* delivered, when stdin was closed */
};

#define STREAMS_NONE                                                                                                   \
    {                                                                                                                  \
        .kept = {-1, -1, -1, -1, -1, -1, -1}, .stdin_end = -1, .stdout_end = -1, .stderr_end = -1, .terminal_end = -1  \
    }

enum streams_with {
    STREAMS_STDIN = 1, /* a pipe; else /dev/null */
    STREAMS_MERGED = 2 /* the child's stderr is its stdout; that of ours has ended */
};

/** All descriptors for a command, `with` bits of enum streams_with; `limit`: none may be this or above (some stay free for the front). ERROR_NO_CAPACITY
 *  or ERROR_INTERNAL, nothing left open then. For a terminal see terminal.h. */
bool streams_open(struct streams *streams, unsigned with, int limit, struct error *err) MUST_USE;
void streams_close_child_ends(struct streams *streams);
void streams_close(struct streams *streams);

/** Whether stdin (or the terminal) is still kept. */
bool streams_have_stdin(const struct streams *streams) MUST_USE;
/** Those for FI_STARTED, in its order; how many. */
size_t streams_list(const struct streams *streams, int fds[static FI_FDS_MAX]) MUST_USE;
/** Nothing more comes: closes pipe and memory of stdin. */
void streams_end_stdin(struct streams *streams);
/** Nothing more comes or goes: closes all of a terminal but its output's memory. */
void streams_end_terminal(struct streams *streams);

/* ---- for terminal.c ---- */

/** A memfd for output, or (`sealable`) for stdin: a front seals that one against growing when its end is known. */
bool streams_open_memory(int *fd, const char *name, bool sealable, struct error *err) MUST_USE;
/** ERROR_NO_CAPACITY when errno says that something ran out, else ERROR_INTERNAL; false. */
bool streams_failed(const char *what, struct error *err) MUST_USE;
/** ERROR_NO_CAPACITY when one of them is `limit` or above. */
bool streams_check_limit(const struct streams *streams, int limit, struct error *err) MUST_USE;
