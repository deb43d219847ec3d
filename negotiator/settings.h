/** settings.h - what an operator may set for parley-negotiator (shared/base/config.h). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct settings {
    char *state;                          /* folder of the whole deployment; absolute; never NULL after settings_load */
    char *host;                           /* a numeric address; beyond loopback only with TLS or insecure_http */
    int64_t port;                         /* 0..65535; 0: the kernel chooses, the log says which */
    char *tls_cert, *tls_key;             /* files: the server's certificate chain, its key; NULL: plain HTTP */
    char *tls_ca;                         /* file: who vouches for nodes; NULL: the system's */
    bool insecure_http;                   /* allows a listener beyond loopback without TLS */
    int64_t loops;                        /* event loops, 0: one a CPU, at most 64 */
    char *user;                           /* host user it becomes when started as root */
    int64_t uid;                          /* uid and gid when no such user exists */
    char *log_level;                      /* debug, info, warn, error */
    char *log_format;                     /* text, json */
    bool metrics_open;                    /* /metrics asks nobody who he is */
    int64_t map_mb;                       /* the most the ledger may grow to; MiB */
    int64_t ttl_default, ttl_max;         /* s, of tokens */
    int64_t idle_timeout, lease_lifetime; /* s, defaults of leases */
    int64_t max_lifetime;                 /* s, the longest a lease or sandbox may live; 0: not bounded */
    int64_t long_ttl_max;                 /* s, of a long token */
    int64_t unattended_max;               /* s, of a sandbox whose negotiator is gone */
    int64_t cpu_milli, memory_mb, disk_mb, pids; /* defaults of sandboxes */
    int64_t node_calls;                          /* threads that call nodes */
    int64_t call_timeout;                        /* s, of one such call */
    char *templates_user, *templates_admin;      /* globs with commas: what that role may begin with */
    char *egress_user;                           /* the most that role user may have: none, allow, public */
    char *image_templates;                       /* GLOB=TEMPLATE,...: what images of OpenSandbox clients are */
    char *opensandbox_egress;                    /* none or public: theirs without a networkPolicy */
    char *preview_domain;                        /* below which nodes serve previews */
    char *root_roles;                            /* with commas: whose sandboxes may run commands as root */
    int64_t snapshots_max, volumes_max;          /* of one principal */
    char *identity_file;                         /* of outside issuers; NULL: none */
    int64_t rate_per_minute, rate_burst;         /* requests of one client address; 0: no limit, of a minute */
    bool rate_loopback;                          /* loopback is limited too */
    char *trusted_proxies;                       /* networks, with commas; NULL: none */
    int64_t auth_failures;                       /* a minute, of one client address; 0: no limit */
    char *webhook_hosts;                         /* HOST[:PORT],...: that any webhook may lead to */
    int64_t webhook_give_up;                     /* s of failing without a break, then one is disabled */
    int64_t audit_keep_days;                     /* of audit records; 0: for ever */
};

/** Reads all sources; `argv` is without the program's name. ERROR_INVALID names the key and what is allowed. */
bool settings_load(struct settings *settings, int argc, char *const argv[], struct error *err) MUST_USE;

void settings_done(struct settings *settings);
#define AUTO_SETTINGS __attribute__((cleanup(settings_done))) struct settings

/** The rows, for --help. */
void settings_print_help(FILE *to);
