/** host.h - the process that stands beside an interpreter which does not speak frames by itself. It holds the channel,
 * gives the interpreter two pipes as stdout and stderr, and drains them before it passes on what the interpreter says
 * through a third, its control pipe. One thread; out of memory or without a listener it ends. */
#pragma once

#include "sandboxd/helpers/drivers/host/text.h"
#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

enum host_stream { HOST_STDOUT, HOST_STDERR, HOST_STREAMS };

struct host;

/** What an interpreter adds. `run`: a request came, and the host waits until host_done. `control`: bytes of the control
 *  pipe, after what was written before; `interrupt`: SIGINT came in
 *  a run. */
struct host_language {
    const char *name;
    void (*run)(struct host *host, const char *code, size_t size);
    void (*control)(struct host *host, const char *bytes, size_t size);
    void (*interrupt)(struct host *host);
    void (*still_runs)(struct host *host);         /* a while after SIGINT; NULL: nothing is to be done */
    void (*finish)(struct host *host);             /* no more requests: the interpreter is to end */
    bool (*revive)(struct host *host, int status); /* it ended; true: another has taken its place. NULL: none */
};

struct host {
    const struct host_language *language;
    void *own;                   /* the language's */
    int requests, frames;        /* the channel */
    int output[HOST_STREAMS];    /* read ends */
    int output_in[HOST_STREAMS]; /* write ends, kept for an interpreter that takes another's place */
    int control, control_in;
    int child_fd; /* pidfd, -1: none */
    pid_t child;
    struct text_decoder decoders[HOST_STREAMS];
    char *run_id; /* JSON, with its quotes; of the last run */
    char *cwd;    /* the run begins there; NULL: where it is */
    bool merges;  /* the run's stderr goes where its stdout does */
    int status;   /* of the run, for host_done; -1: its language has none */
    bool is_running, is_silent, is_ready, is_at_end, is_in_line, was_interrupted;
    bool may_be_interrupted; /* a SIGINT for the run before may still be on its way */
    long long count;         /* the next run's */
    char *data;              /* requests, read and not yet taken */
    size_t size, room;
};

/** Takes the channel over from descriptors 0 and 1 and makes the pipes. Never fails: it ends the program. */
void host_init(struct host *host, const struct host_language *language);

/** Starts the interpreter: descriptors 0 (`input`, -1: /dev/null), 1, 2 and those of `fds`, which become 3 and on. It
 *  leads no session: SIGINT of the group reaches it. */
void host_spawn(struct host *host, const char *path, char *const *arguments, int input, const int *fds,
                size_t fd_count);

/** Until the interpreter has ended; the exit status that it had (128 + signal). */
int host_serve(struct host *host);

/** One frame: takes `body`. Only between lines of the control pipe. */
void host_frame(struct host *host, const char *kind, json_t *body);

/** {"ready"} */
void host_ready(struct host *host, const char *version, const char *implementation);

/** {"error"} of the run. */
void host_error(struct host *host, const char *name, const char *value);

/** {"done"}: the next request may come. */
void host_done(struct host *host, const char *status);

/** Bytes that are frames already. */
void host_pass(struct host *host, const char *bytes, size_t size);

/** What the pipes hold now goes out; `is_final`: and what was no character. */
void host_drain(struct host *host, bool is_final);

/** {"failed"} and the end. */
_Noreturn void host_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** The program of that name in PATH, or where programs usually are; NULL: there is none. The caller frees it. */
char *host_find(const char *name) MUST_USE;

/** Arguments for execv(2): `first`, then `more` (NULL: none); both NULL-ended. As long as the program lives. */
char *const *host_arguments(const char *const *first, char *const *more) MUST_USE;

/** A memfd with these bytes, at position 0, closed by execve(2). */
int host_memfd(const char *name, const char *bytes, size_t size) MUST_USE;
