/** front_launcher.h - the messages between the front (no rights, hostile input) and the launcher (all rights).
 *
 *  A SOCK_SEQPACKET pair; one message is one packet of a fixed size for its type, integers in host order (both ends are
 *  one binary on one machine), texts NUL-padded to their field. Both ends treat the other's bytes as hostile: a wrong
 *  size, type, unterminated or impossible text is refused whole. Descriptors travel as listed at each type. */
#pragma once

#include "sandboxd/front_launcher/env.h"
#include "shared/base/error.h"
#include "shared/capability/keys.h"
#include "shared/node_protocol/enrol.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FRONT_LAUNCHER_ID_BYTES         32 /* a sandbox id with NUL */
#define FRONT_LAUNCHER_NAME_BYTES       64 /* any name with NUL */
#define FRONT_LAUNCHER_PATH_BYTES       256
#define FRONT_LAUNCHER_VOLUMES          8
#define FRONT_LAUNCHER_OWNER_BYTES      40         /* of a volume: a hash of the principal, [a-z0-9], with NUL */
#define FRONT_LAUNCHER_ANY_UID          UINT32_MAX /* a guest: its kernel may tell the wrong one (gVisor does) */
#define FRONT_LAUNCHER_NETS             64
#define FRONT_LAUNCHER_NAMES_BYTES      8192
#define FRONT_LAUNCHER_ISOLATIONS_BYTES 128

enum front_launcher_type {
    /* front -> launcher */
    FL_READY =
        1, /* the front is up: the launcher answers with FL_IDENTITY, an FL_SANDBOX for each living one, FL_ADOPTED */
    FL_PREPARE,  /* make a sandbox; idempotent by id; answered with FL_SANDBOX or FL_REFUSED of the same request */
    FL_DESTROY,  /* kill and remove; answered by FL_ENDED; unknown ids too (reason "unknown") */
    FL_DEADLINE, /* move a hard deadline; answered with FL_SANDBOX (no descriptors) or FL_REFUSED */
    /* launcher -> front */
    FL_IDENTITY, /* who this node is, and the keys the front may hold */
    FL_SANDBOX,  /* a living sandbox, with the descriptors of enum front_launcher_fd */
    FL_ADOPTED,  /* all that was running has been told */
    FL_REFUSED,  /* a request failed; carries a struct error */
    FL_ENDED,    /* a sandbox is gone: its processes, cgroup and folder are removed */
    /* front -> launcher */
    FL_REKEY, /* the next epoch of the node's key, boxed to the launcher; answered with FL_REKEYED or FL_REFUSED */
    /* launcher -> front */
    FL_REKEYED, /* it is durable; the launcher ends this front and starts the next under the new key */
    /* front -> launcher */
    FL_ENDING,   /* init was asked to end all and go: what the launcher says of it when it does; no answer */
    FL_LIMITS,   /* other limits for a living sandbox; answered with FL_SANDBOX (no descriptors) or FL_REFUSED */
    FL_USAGE,    /* what it uses that the front cannot see; answered with FL_USED or FL_REFUSED */
    FL_SNAPSHOT, /* keep what it has on disk; `run` is frozen by the front and stays so until FL_KEPT or FL_REFUSED */
    FL_SNAPSHOT_DROP, /* answered with FL_DONE or FL_REFUSED */
    FL_VOLUME_DROP,   /* answered with FL_DONE or FL_REFUSED */
    FL_NETWORK, /* where a living sandbox may go from now on; answered with FL_SANDBOX (no descriptors) or FL_REFUSED */
    /* launcher -> front */
    FL_USED,
    FL_KEPT,     /* the snapshot is durable */
    FL_DONE,     /* no body */
    FL_TEMPLATE, /* a template of this node; all of them after FL_IDENTITY, and again when they change: the first of a
                    round has `first` set */
    /* front -> launcher */
    FL_EVIDENCE, /* what is in a living sandbox, seen from outside; answered with FL_EVIDENT or FL_REFUSED */
    /* launcher -> front */
    FL_EVIDENT /* no body; with a file of lines (evidence.h), which is whole */
};

/* Descriptors of FL_SANDBOX, in this order. */
enum front_launcher_fd {
    FL_FD_INIT,   /* pidfd of init: poll only */
    FL_FD_KILL,   /* cgroup.kill of the whole sandbox (v2), O_WRONLY */
    FL_FD_FREEZE, /* cgroup.freeze of `run` (v2), O_RDWR */
    FL_FD_EVENTS, /* cgroup.events of `run` (v2), O_RDONLY */
    FL_FD_CPU,    /* cpu.stat of `run` (v2), O_RDONLY: usage_usec */
    FL_FD_MEMORY, /* bytes in use: v1 memory.usage_in_bytes or v2 memory.current of `run` */
    FL_FD_OOM,    /* v1 memory.oom_control or v2 memory.events of `run`: the line "oom_kill N" */
    FL_FD_PIDS,   /* pids.current: v1, or v2 of `run` */
    FL_FDS
};

/* Ranges are the launcher's policy: a number outside them is FL_REFUSED, not a malformed message. */
struct fl_limits {
    uint32_t cpu_milli;    /* thousandths of a core, 50..1,000,000 */
    uint32_t pids;         /* 16..1,000,000 */
    uint64_t memory_bytes; /* >= 16 MiB */
    uint64_t disk_bytes;   /* of the writable layer; 0: the storage's default */
    uint32_t open_files;   /* RLIMIT_NOFILE of each command, 16..1,048,576; 0: the default */
    uint32_t commands;     /* at once, 1..1000; 0: the default. The front's to keep */
    uint64_t output_bytes; /* of output kept for all commands, 64 KiB..1 GiB; 0: the default. The front's to keep */
};

enum fl_volume_kind {
    FL_VOLUME_NAMED = 1, /* `source` of `owner`; made when it is not there */
    FL_VOLUME_HOST       /* `source` is a path, or lies below one, of the launcher's own list */
};

struct fl_volume {
    uint8_t kind; /* enum fl_volume_kind */
    uint8_t read_only;
    uint8_t reserved[6];
    uint64_t size_bytes; /* named: the quota it is made with; 0: the default */
    char owner[FRONT_LAUNCHER_OWNER_BYTES];
    char source[FRONT_LAUNCHER_PATH_BYTES];
    char sub_path[FRONT_LAUNCHER_PATH_BYTES]; /* relative, below the source, no "..": "" all of it */
    char path[FRONT_LAUNCHER_PATH_BYTES];     /* inside: absolute, normalised, not of those the sandbox needs */
};

/* Where it may go on the network. Ranges nobody may reach are the launcher's policy: FL_REFUSED. */
enum fl_network_mode {
    FL_NETWORK_NONE,   /* no way out; zeroed is this */
    FL_NETWORK_PUBLIC, /* TCP 80 and 443 of public addresses, and DNS, but what is denied */
    FL_NETWORK_ALLOW   /* `nets` and `names` alone, and DNS of those names, but what is denied */
};

struct fl_net {
    uint32_t address;            /* IPv4, host order; bits behind the prefix 0 */
    uint8_t prefix;              /* 0..32 */
    uint8_t protocol;            /* IPPROTO_TCP, IPPROTO_UDP; 0 both */
    uint16_t port_from, port_to; /* 1 <= from <= to; both 0: all */
    uint16_t reserved;
};

/* Of all entries that have an address, or a name, the most specific one decides (egress_rule.h). */
struct fl_network {
    uint32_t mode;      /* enum fl_network_mode; NONE: all that follows is 0 */
    uint32_t net_count; /* 0..FRONT_LAUNCHER_NETS. PUBLIC: `nets` and `names` are without ports, there only when
                           something is denied, and excepted from that */
    struct fl_net nets[FRONT_LAUNCHER_NETS];
    char names[FRONT_LAUNCHER_NAMES_BYTES]; /* "pypi.org *.example.com github.com:22": entries of egress_rule.h that are
                                               names, a blank between them. Not read by the launcher: for parley-egress
                                             */
    uint32_t denied_count;                  /* 0..FRONT_LAUNCHER_NETS */
    uint32_t reserved;
    struct fl_net denied[FRONT_LAUNCHER_NETS];
    char denied_names[FRONT_LAUNCHER_NAMES_BYTES]; /* as `names` */
};

#define FRONT_LAUNCHER_SNAPSHOT_BYTES 32 /* "snp_..." with NUL */

struct fl_prepare {
    char id[FRONT_LAUNCHER_ID_BYTES];
    char hostname[FRONT_LAUNCHER_NAME_BYTES]; /* [a-z0-9-] */
    char template_name[FRONT_LAUNCHER_NAME_BYTES];
    char isolation[FRONT_LAUNCHER_NAME_BYTES]; /* "auto" or a backend's name */
    struct fl_limits limits;
    int64_t deadline_wall_ms; /* hard deadline, UTC; at most config max_lifetime from now */
    uint32_t epoch;           /* lowest key epoch in force, from 1; one already running keeps the higher of the two */
    char env[ENV_BYTES];      /* variables of every command; one already running keeps those it has */
    char snapshot[FRONT_LAUNCHER_SNAPSHOT_BYTES]; /* what it begins with: "" nothing. Then template_name is not looked
                                                     at */
    uint8_t root_allowed; /* commands may run as the user namespace's root, if the node allows */
    uint8_t volume_count;
    uint8_t reserved[6];
    struct fl_volume volumes[FRONT_LAUNCHER_VOLUMES];
    struct fl_network network;
};

struct fl_network_change { /* FL_NETWORK */
    char id[FRONT_LAUNCHER_ID_BYTES];
    struct fl_network network;
};

struct fl_limits_change {
    char id[FRONT_LAUNCHER_ID_BYTES];
    struct fl_limits limits; /* all of them; 0 in a field: as it is */
};

struct fl_name { /* FL_USAGE */
    char id[FRONT_LAUNCHER_ID_BYTES];
};

enum fl_evidence_part { FL_EVIDENCE_PROCESSES = 1, FL_EVIDENCE_FILES };

struct fl_evidence {
    char id[FRONT_LAUNCHER_ID_BYTES];
    uint32_t part; /* enum fl_evidence_part */
    uint32_t reserved;
    uint64_t skip; /* items of the pages before */
};

struct fl_used {
    char id[FRONT_LAUNCHER_ID_BYTES];
    uint64_t disk_bytes;
};

struct fl_snapshot { /* FL_SNAPSHOT, FL_SNAPSHOT_DROP (no id) */
    char id[FRONT_LAUNCHER_ID_BYTES];
    char snapshot[FRONT_LAUNCHER_SNAPSHOT_BYTES];
};

struct fl_kept {
    char id[FRONT_LAUNCHER_ID_BYTES];
    char snapshot[FRONT_LAUNCHER_SNAPSHOT_BYTES];
    char template_name[FRONT_LAUNCHER_NAME_BYTES];
    char storage[FRONT_LAUNCHER_NAME_BYTES];
    uint64_t size_bytes;
};

struct fl_volume_drop {
    char owner[FRONT_LAUNCHER_OWNER_BYTES];
    char source[FRONT_LAUNCHER_PATH_BYTES];
};

struct fl_template {
    uint32_t first; /* 1: what was told before is over */
    uint32_t reserved;
    uint64_t size_bytes;
    int64_t created_ms;
    char name[FRONT_LAUNCHER_NAME_BYTES];
    char digest[80];
    char source[FRONT_LAUNCHER_PATH_BYTES];
};

struct fl_destroy {
    char id[FRONT_LAUNCHER_ID_BYTES];
    char reason[FRONT_LAUNCHER_NAME_BYTES]; /* kept in the end's report: "deleted" */
};

struct fl_deadline {
    char id[FRONT_LAUNCHER_ID_BYTES];
    int64_t deadline_wall_ms;
};

/* The front can neither read it nor make one: only the negotiator's static key can have boxed it. */
struct fl_rekey {
    uint32_t epoch; /* the new one, from 2 */
    struct enrol_box box;
};

struct fl_identity {
    char node[FRONT_LAUNCHER_NAME_BYTES];
    char issuer[FRONT_LAUNCHER_NAME_BYTES]; /* deployment id */
    char negotiator_url[256];
    uint64_t incarnation;      /* raised and made durable at each start of a front */
    struct key link_to_node;   /* KDF(node key, link, "negotiator"): what the negotiator sends */
    struct key link_from_node; /* KDF(node key, link, "sandboxd") */
    uint32_t slots_max;        /* sandboxes this node takes */
    uint32_t reserved;
    char storage[FRONT_LAUNCHER_NAME_BYTES];          /* "btrfs", "tmpfs", "folder" */
    char isolations[FRONT_LAUNCHER_ISOLATIONS_BYTES]; /* "namespaces gvisor": the levels offered, a blank between; the
                                                         first is "auto" */
};

enum fl_missing { FL_MISSING_MEMORY = 1, FL_MISSING_PIDS = 2, FL_MISSING_CPU = 4, FL_MISSING_ALL = 7 };

struct fl_sandbox {
    char id[FRONT_LAUNCHER_ID_BYTES];
    char hostname[FRONT_LAUNCHER_NAME_BYTES];
    char template_name[FRONT_LAUNCHER_NAME_BYTES];
    char isolation[FRONT_LAUNCHER_NAME_BYTES]; /* "namespaces", "gvisor" ... */
    char storage[FRONT_LAUNCHER_NAME_BYTES];   /* "btrfs", "tmpfs", "folder" */
    struct fl_limits limits;                   /* in force */
    uint32_t slot;
    uint32_t uid_base; /* host uid of the sandbox's uid 0; init's peer uid; FRONT_LAUNCHER_ANY_UID */
    int32_t init_pid;
    uint32_t reused; /* 1: FL_PREPARE found it running */
    int64_t created_wall_ms, deadline_wall_ms;
    struct key root;      /* sandbox root: KDF(node key, sandbox, id) */
    char socket_path[64]; /* init.sock, below STATE/sandboxd/run: "12/init.sock" */
    uint32_t epoch;       /* as in fl_prepare */
    char env[ENV_BYTES];
    char template_env[ENV_BYTES];            /* below env */
    char workdir[FRONT_LAUNCHER_PATH_BYTES]; /* where commands start; absolute, inside */
    uint32_t uid, gid;                       /* of commands, inside */
    uint8_t root_allowed;
    uint8_t was_warm;       /* it was taken from the pool */
    uint8_t is_guest;       /* a front of its own serves what is inside: its requests are relayed (isolation/guest) */
    uint8_t is_rootless;    /* an ordinary user's node made it */
    uint8_t missing_limits; /* bits of enum fl_missing: what nobody limits there, by the operator's word */
    uint8_t reserved[3];
    struct fl_network network; /* in force */
};

struct fl_ended {
    char id[FRONT_LAUNCHER_ID_BYTES];
    char reason[FRONT_LAUNCHER_NAME_BYTES]; /* deleted, max_lifetime, oom, crashed, unknown */
    uint32_t epoch;                         /* as in fl_sandbox, as the next: who has a valid token is told the end */
    struct key root;
};

/** One message; `request` pairs an answer with its question (0 in what nobody asked for). */
struct front_launcher_message {
    uint32_t type; /* enum front_launcher_type */
    uint32_t reserved;
    uint64_t request;
    union {
        struct fl_prepare prepare;
        struct fl_destroy destroy; /* FL_ENDING too */
        struct fl_deadline deadline;
        struct fl_rekey rekey;
        struct fl_limits_change limits;
        struct fl_network_change network;
        struct fl_name name;
        struct fl_snapshot snapshot;
        struct fl_volume_drop volume_drop;
        struct fl_evidence evidence;
        struct fl_used used;
        struct fl_kept kept;
        struct fl_template template;
        struct fl_identity identity;
        struct fl_sandbox sandbox;
        struct fl_ended ended;
        struct error refused;
    } as;
};

/** The exact number of bytes on the wire for `type`; 0 for a type that is none. */
size_t front_launcher_size(uint32_t type) MUST_USE;

/** Checks one received packet: size, type, direction, every text terminated and of allowed characters, numbers in
 *  range, the right count of descriptors. ERROR_INVALID says what. Nothing is believed before. */
enum front_launcher_end { FL_FROM_FRONT, FL_FROM_LAUNCHER };
bool front_launcher_check(const struct front_launcher_message *message, size_t size, size_t fd_count,
                          enum front_launcher_end sender, struct error *err) MUST_USE;

/** A reason as the messages carry it: cut to fit, '_' for what they do not allow; "unknown" of nothing. */
void front_launcher_reason(char to[static FRONT_LAUNCHER_NAME_BYTES], const char *text);

/** Sends one message of message->type. system_errno EAGAIN when a non-blocking socket is full. */
bool front_launcher_send(int socket, const struct front_launcher_message *message, const int *fds, size_t fd_count,
                         struct error *err) MUST_USE;

/** Receives and checks one. 1 got it, 0 the other end is gone, -1 an error (system_errno EAGAIN: none there). After
 *  a refused message its descriptors are closed and the connection should be given up. */
int front_launcher_receive(int socket, struct front_launcher_message *message, enum front_launcher_end sender, int *fds,
                           size_t *fd_count, struct error *err) MUST_USE;
