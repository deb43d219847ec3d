/** settings.h - what an operator may set for parley-sandboxd: one table for the launcher and its front, read from the
 *  defaults, STATE/config.json, PARLEY_<KEY> and the flags (shared/base/config.h). */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct settings {
    char *state;              /* folder of the whole deployment; absolute; never NULL after settings_load */
    char *listen_host;        /* a numeric address; beyond loopback only with TLS or insecure_http */
    int64_t port;             /* 0..65535; 0: the kernel chooses, the front logs it */
    char *advertise_url;      /* what clients are told; NULL: made of listen_host and port */
    char *preview_domain;     /* ports of sandboxes are origins below it: PORT-SANDBOX.DOMAIN */
    char *tls_cert, *tls_key; /* files: the front's certificate chain, its key; NULL: plain HTTP */
    char *tls_ca;             /* file: who vouches for the negotiator; NULL: the system's */
    char *tls_fingerprint;    /* of its certificate, or of its authority's; NULL: any */
    bool insecure_http;       /* allows a listener beyond loopback without TLS */
    int64_t loops;            /* event loops of the front, 0: one a CPU, at most 64 */
    int64_t rate_per_minute;  /* requests of one client address; 0: no limit */
    bool rate_loopback;       /* loopback is limited too */
    char *trusted_proxies;    /* networks, with commas; NULL: none */
    int64_t auth_failures;    /* a minute, of one client address; 0: no limit */
    int64_t slots_max;        /* sandboxes at once, 1..4000 */
    int64_t max_lifetime;     /* s; no hard deadline may lie farther ahead; 1..86400 */
    int64_t cpu_milli_max;    /* of one sandbox; thousandths of a core */
    int64_t memory_mb_max;    /* of one sandbox; MiB */
    int64_t disk_mb_max;      /* of one sandbox; MiB */
    int64_t pids_max;         /* of one sandbox */
    char *isolation;          /* "namespaces,gvisor": the levels offered (isolation/isolation.h); the first is "auto" */
    char *microvm_kernel;     /* of the guests of isolation microvm: a vmlinuz-VERSION; NULL: none */
    char *microvm_vmm;        /* their monitor: qemu (isolation/microvm/vmm.h) */
    char *storage;            /* where sandboxes write: auto, btrfs, tmpfs, folder (storage/storage.h) */
    int64_t pool_mb_max;      /* MiB the btrfs pool may grow to; 0: half of what is free when it is made */
    int64_t warm;             /* sandboxes kept ready for each template; 0 none */
    int64_t warm_max;         /* ... over all */
    int64_t warm_memory_mb;   /* MiB; ... counted as WARM_MEMORY_KIB each */
    char *root_user;          /* "never" or "allowed": whether commands may run as the root of their user namespace */
    char *volume_hosts;    /* "FOLDER[:ro],...": host folders that may be mounted, they or what lies below; NULL none */
    int64_t volume_mb;     /* MiB; the quota of a named volume that asks for none */
    int64_t snapshots_max; /* snapshots of this node at once */
    int64_t open_files_max;   /* of one command; the default too */
    int64_t commands_max;     /* of one sandbox at once; the default too */
    int64_t output_mb;        /* MiB of output kept for one sandbox that asks for nothing else */
    char *cgroup;             /* NULL: the own one */
    char *missing_limits;     /* "allow": an ordinary user's node goes without limits not delegated to it; "refuse" */
    char *egress_max;         /* the most a sandbox may be given: none, allow or public */
    char *egress_net;         /* "100.126.0.0/20": where sandboxes that may go out have their addresses */
    int64_t egress_uid;       /* host uid and gid of parley-egress */
    char *dns_servers;        /* "IP[:PORT],...": whom names are asked at; NULL: those of /etc/resolv.conf */
    char *front_user;         /* host user the front becomes */
    int64_t front_uid;        /* its uid and gid when no such user exists */
    char *init;               /* path of parley-init; NULL: beside this program */
    char *jupyter;            /* path of parley-jupyter; NULL: beside this program */
    char *audit_sync;         /* "batch": audit records are synced within 100 ms; "always": each before its deed */
    int64_t audit_spool_mb;   /* MiB of records that the negotiator does not have yet; beyond, deeds are refused */
    bool audit_argv;          /* records of commands hold the command line */
    int64_t long_contact_max; /* s that long tokens hold without a word of the negotiator */
    char *log_level;          /* debug, info, warn, error */
    char *log_format;         /* text, json */
    bool metrics_open;        /* the node's /metrics is for everybody, not for this machine alone */
};

/** Reads all sources; `argv` is without the program's name. ERROR_INVALID names the key and what is allowed. */
bool settings_load(struct settings *settings, int argc, char *const argv[], struct error *err) MUST_USE;

void settings_done(struct settings *settings);
#define AUTO_SETTINGS __attribute__((cleanup(settings_done))) struct settings

/** The rows, for --help. */
void settings_print_help(FILE *to);
