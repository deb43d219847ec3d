/** settings.h - what an operator may set for parley-sandboxd: one table for the launcher and its front, read from the
 *  defaults, STATE/config.json, PARLEY_<KEY> and the flags (shared/base/config.h). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct settings {
    char *state;           /* folder of the whole deployment; absolute; never NULL after settings_load */
    char *listen_host;     /* a numeric address; beyond loopback only with insecure_http (TLS comes later) */
    int64_t port;          /* 0..65535; 0: the kernel chooses, the front logs it */
    char *advertise_url;   /* what clients are told; NULL: made of listen_host and port */
    bool insecure_http;    /* allows a listener beyond loopback without TLS */
    int64_t loops;         /* event loops of the front, 0: one a CPU, at most 64 */
    int64_t slots_max;     /* sandboxes at once, 1..4000 */
    int64_t max_lifetime;  /* s; no hard deadline may lie farther away */
    int64_t cpu_milli_max; /* of one sandbox; thousandths of a core */
    int64_t memory_mb_max; /* of one sandbox; MiB */
    int64_t disk_mb_max;   /* of one sandbox; MiB */
    int64_t pids_max;      /* of one sandbox */
    char *front_user;      /* host user the front becomes */
    int64_t front_uid;     /* its uid and gid when no such user exists */
    char *init;            /* path of parley-init; NULL: beside this program */
    char *audit_sync;      /* "batch": audit records are synced within 100 ms; "always": each before its deed */
    int64_t audit_spool_mb; /* MiB of records that the negotiator does not have yet; beyond, deeds are refused */
    bool audit_argv;       /* records of commands hold the command line */
    char *log_level;       /* debug, info, warn, error */
};

/** Reads all sources; `argv` is without the program's name. ERROR_INVALID names the key and what is allowed. */
bool settings_load(struct settings *settings, int argc, char *const argv[], struct error *err) MUST_USE;

void settings_done(struct settings *settings);
#define AUTO_SETTINGS __attribute__((cleanup(settings_done))) struct settings

/** The rows, for --help. */
void settings_print_help(FILE *to);
