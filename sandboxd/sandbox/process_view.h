/** process_view.h - what can be seen of one command from outside its loop: plain values, copied. */
#pragma once

#include "sandboxd/front_init/front_init.h"
#include "sandboxd/sandbox/output.h"

#include <stdbool.h>
#include <stdint.h>

/** How a command ended. */
struct process_end {
    int exit_code;  /* 0..255; 128 + n after a signal */
    int signal;     /* 0: exited by itself */
    bool oom;       /* killed because the sandbox ran out of memory */
    bool timed_out; /* killed at its timeout */
    uint64_t wall_ms, cpu_ms, max_rss_bytes;
    int64_t ended_ms; /* UTC */
};

struct process_view {
    char id[FRONT_INIT_ID_BYTES];
    char title[256];                                            /* the command line, cut; valid UTF-8 */
    int pid;                                                    /* as seen inside */
    bool ended;                                                 /* `end` holds */
    bool leaving;                                               /* process_remove: unknown as soon as it has ended */
    bool stdin_open;                                            /* more may be sent to it */
    uint64_t stdin_offset;                                      /* bytes accepted for it so far */
    bool terminal;                                              /* one stream, stdout; */
    unsigned columns, rows;                                     /* of it */
    bool output_gone;                                           /* only the end is still known */
    int64_t started_ms;                                         /* UTC */
    uint64_t timeout_ms;                                        /* 0: none */
    uint64_t length[OUTPUT_STREAMS], kept_from[OUTPUT_STREAMS]; /* bytes; see output.h */
    struct process_end end;
};
