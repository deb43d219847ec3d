/** cli.h - what the commands share: their signature, the common options, how they talk to people. */
#pragma once

#include "clients/c/grant.h"
#include "clients/c/negotiator.h"
#include "clients/c/place.h"

#include "shared/base/error.h"
#include "shared/base/text.h"

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>

/* Exit statuses of parley itself; a command that ran gives its own. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,  /* the thing asked for did not happen */
    CLI_USAGE = 2,   /* the words were wrong */
    CLI_PENDING = 3, /* `revoke`: durable, but not yet in force on every node */
    CLI_TIMED_OUT = 124,
    CLI_NO_SANDBOX = 125 /* `run` failed before the command could */
};

/** Options every command has; fill before parsing, see cli_common. */
struct cli_common {
    bool json;         /* --json: one JSON value on stdout */
    const char *url;   /* --url */
    const char *state; /* --state */
};

/* Values of the common long options, beyond any letter. */
enum {
    CLI_OPTION_JSON = 1000,
    CLI_OPTION_URL,
    CLI_OPTION_STATE,
    CLI_OPTION_HELP,
    CLI_OPTION_FINGERPRINT,
    CLI_OPTION_CA
};
#define CLI_COMMON_OPTIONS                                                                                             \
    {"json", no_argument, NULL, CLI_OPTION_JSON}, {"url", required_argument, NULL, CLI_OPTION_URL},                    \
        {"state", required_argument, NULL, CLI_OPTION_STATE}, {"help", no_argument, NULL, CLI_OPTION_HELP},            \
        {"tls-fingerprint", required_argument, NULL, CLI_OPTION_FINGERPRINT},                                          \
        {"ca-file", required_argument, NULL, CLI_OPTION_CA},                                                           \
    {                                                                                                                  \
        NULL, 0, NULL, 0                                                                                               \
    }
#define CLI_COMMON_HELP                                                                                                \
    "  --json             one JSON value on stdout\n"                                                                  \
    "  --url URL          the negotiator (default: PARLEY_URL, config.json, http://127.0.0.1:8700)\n"                  \
    "  --state DIR        its state folder (default: PARLEY_STATE, /var/lib/parley as root)\n"                         \
    "  --tls-fingerprint SHA256, --ca-file FILE\n"                                                                     \
    "  --help             this text\n"

/** Takes one option from getopt_long if it is a common one. --help prints `help` and ends the program; an unknown
 * option prints where help is and ends it with CLI_USAGE. True when it was taken. */
bool cli_common(struct cli_common *common, int option, const char *help);

/** Prints "parley: <sentence>" and the hint ("try: ...", may be NULL) on stderr, under --json also {"error": {code,
 *  message}} on stdout, the first time; returns `status`. A reader of our output who left
 *  (EPIPE) is told nothing. */
int cli_fail(const struct error *err, const char *hint, int status);

/** What was printed has left this process: else DISK_FULL, GONE when nobody reads. */
bool cli_flush(struct error *err) MUST_USE;

/** As cli_fail with a hint that fits the error's kind. */
int cli_fail_usual(const struct error *err, int status);

/** Prints a wrong use and where help is; returns CLI_USAGE. */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Prints JSON and a newline; takes the reference. */
void cli_print_json(json_t *value);

/** "3m", "2h" from `wall_ms` text (RFC 3339) to now, or until it; "-" when it is no time. */
void cli_print_age(char to[static 16], const char *time);

/** Reads seconds, or a number with s, m, h or d behind it: "90d". False: it is none. */
bool cli_parse_seconds(const char *text, int64_t *seconds);

/** Tells on stderr what the user must know of a grant that has come: a hint not followed, a token used elsewhere; when
 *  `verbose` also which sandbox and token it is. */
void cli_tell_grant(const struct grant *grant, bool verbose);

/** A use of a grant failed in a way that another grant may cure: spent, revoked, its sandbox or node gone. */
bool cli_is_spent(const struct error *err) MUST_USE;

/** After a use of the grant that failed with *err and did nothing: true when it was spent and another one has come, so
 *  that it is worth another try; *err is empty then. *negotiated is the caller's, false before the first use. */
bool cli_renew_spent(struct grant *grant, const struct place *place, const struct grant_request *request,
                     bool *negotiated, struct error *err) MUST_USE;

/** A text from outside for a terminal: control characters (C0, DEL, C1), marks that reorder text
 *  (U+202A..202E, U+2066..2069) and what is not UTF-8 as \xNN, NULL as "-".
 *  The caller frees. */
char *cli_safe(const char *text) MUST_USE;

/** The member of an object as such a text; a number or a boolean in its JSON. The caller frees. */
char *cli_member(const json_t *object, const char *name) MUST_USE;

/** "now", "in 5m", "5m ago" at `time` (RFC 3339); "-" when it is none. */
void cli_print_when(char to[static 24], const char *time);

/** Environment variables that --env collects; zero is none. `list` is memory to free. */
struct cli_variables {
    const char **list; /* "NAME=value", NULL-ended; NULL none; the texts are borrowed */
    size_t count;
};

/** Adds one: 0, else prints how it is wanted and returns CLI_USAGE. */
int cli_add_variable(struct cli_variables *variables, const char *command, const char *pair) MUST_USE;

/** A --ttl in seconds into *ttl_s: 0, else prints how it is wanted and returns CLI_USAGE. */
int cli_ttl(const char *command, const char *text, unsigned *ttl_s) MUST_USE;

/** A token as it is, or from stdin when "-", so that it stands in no process list. The caller frees. */
char *cli_token_text(const char *given) MUST_USE;

/** Loads the place with --url; on failure prints and returns false. */
bool cli_place(struct place *place, const struct cli_common *common);

/** The thread to use: `given`, or the current folder's. The caller frees. */
char *cli_thread(const char *given) MUST_USE;

/** The id of the sandbox meant: `given` is its name or id; NULL: the one that the thread (NULL: the current folder's)
 *  leases. The caller frees; NULL with err. */
char *cli_sandbox(const struct place *place, const char *given, const char *thread, struct error *err) MUST_USE;

/** A thread that leases the sandbox `given` (a name or id): its capability is for who may use it; without one `thread`,
 *  or the current folder's. The caller frees; NULL with err. */
char *cli_sandbox_thread(const struct place *place, const char *given, const char *thread, struct error *err) MUST_USE;

/** Full path of a program that is installed beside this one; the caller frees. ERROR_NOT_FOUND. */
char *cli_sibling(const char *name, struct error *err) MUST_USE;

/** --state, PARLEY_STATE, or the default. The caller frees. */
char *cli_state(const struct cli_common *common) MUST_USE;

/* The commands. argv[0] is the command's name. */
int up_main(int argc, char *argv[]);
int down_main(int argc, char *argv[]);
int enrol_main(int argc, char *argv[]);
int tls_main(int argc, char *argv[]);
int doctor_main(int argc, char *argv[]);
int run_main(int argc, char *argv[]);
int shell_main(int argc, char *argv[]);
int attach_main(int argc, char *argv[]);
int watch_main(int argc, char *argv[]);
int ls_main(int argc, char *argv[]);
int ps_main(int argc, char *argv[]);
int kernels_main(int argc, char *argv[]);
int cp_main(int argc, char *argv[]);
int sync_main(int argc, char *argv[]);
int cat_main(int argc, char *argv[]);
int put_main(int argc, char *argv[]);
int edit_main(int argc, char *argv[]);
int snapshot_main(int argc, char *argv[]);
int snapshots_main(int argc, char *argv[]);
int restore_main(int argc, char *argv[]);
int fork_main(int argc, char *argv[]);
int pause_main(int argc, char *argv[]);
int renew_main(int argc, char *argv[]);
int resume_main(int argc, char *argv[]);
int limits_main(int argc, char *argv[]);
int net_main(int argc, char *argv[]);
int port_main(int argc, char *argv[]);
int url_main(int argc, char *argv[]);
int keys_main(int argc, char *argv[]);
int events_main(int argc, char *argv[]);
int webhooks_main(int argc, char *argv[]);
int volumes_main(int argc, char *argv[]);
int templates_main(int argc, char *argv[]);
int template_main(int argc, char *argv[]);
int top_main(int argc, char *argv[]);
int rm_main(int argc, char *argv[]);
int token_main(int argc, char *argv[]);
int share_main(int argc, char *argv[]);
int shares_main(int argc, char *argv[]);
int unshare_main(int argc, char *argv[]);
int revoke_main(int argc, char *argv[]);
int policy_main(int argc, char *argv[]);
int revocations_main(int argc, char *argv[]);
int audit_main(int argc, char *argv[]);
int nodes_main(int argc, char *argv[]);
int incident_main(int argc, char *argv[]);
