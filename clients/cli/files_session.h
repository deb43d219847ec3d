/** files_session.h - what the commands on files share: names of files in a sandbox, a connection to them, and a
 * progress bar. */
#pragma once

#include "clients/c/remote_files.h"
#include "clients/cli/cli.h"

/** Where a word of the command line points. */
struct files_name {
    char *sandbox; /* a name or id; "" the thread's own. NULL: a local path */
    char *path;    /* in the sandbox: absolute, without . and .. segments; else as given */
};

void files_name_done(struct files_name *name);
#define AUTO_FILES_NAME __attribute__((cleanup(files_name_done))) struct files_name

/** ":PATH" and "SANDBOX:PATH" lie in a sandbox, relative ones below /workspace; all else is local, also a name with a
 * colon behind a slash ("./a:b"). INVALID: a path that climbs above /. */
bool files_name_parse(struct files_name *name, const char *given, struct error *err) MUST_USE;

/** The last segment of a path; "" of "/". */
const char *files_name_base(const char *path) MUST_USE;

/** "folder/name". The caller frees. */
char *files_name_join(const char *folder, const char *name) MUST_USE;

/** Options that every command on files has. */
struct files_options {
    struct cli_common common;
    const char *thread, *scopes;
    bool quiet, attach_only; /* attach_only: no sandbox is made for it */
};
enum { FILES_OPTION_THREAD = 2000, FILES_OPTION_SCOPES };
#define FILES_LONG_OPTIONS                                                                                             \
    {"thread", required_argument, NULL, FILES_OPTION_THREAD},                                                          \
        {"scopes", required_argument, NULL, FILES_OPTION_SCOPES}, {"quiet", no_argument, NULL, 'q'},                   \
        CLI_COMMON_OPTIONS
#define FILES_HELP                                                                                                     \
    "  -q, --quiet        no progress bar\n"                                                                           \
    "  --thread T         the conversation (default: the current folder's own)\n"                                      \
    "  --scopes 'A B'     ask for these scopes only (needs fs:ro, or fs:rw to write)\n" CLI_COMMON_HELP

/** Takes one of these options; false when it is the command's own. */
bool files_option(struct files_options *options, int option, const char *help);

/** A connection to one sandbox, with a bar of what goes by on stderr when that is a terminal. */
struct files_session {
    struct place place;
    struct grant_request request;
    struct grant grant;
    struct remote_files *files;
    char *thread, *sandbox;
    struct files_progress {
        bool is_shown;
        uint64_t moved, total; /* total 0: not known */
        uint64_t began_ns, drawn_ns;
        const char *what;
    } progress;
};

/** Loads the place, gets the grant, tells what the user must know of it. `sandbox` as of files_name. */
bool files_session_open(struct files_session *session, const struct files_options *options, const char *sandbox,
                        struct error *err) MUST_USE;
void files_session_close(struct files_session *session);
#define AUTO_FILES_SESSION __attribute__((cleanup(files_session_close))) struct files_session

/** From now on Ctrl-C, TERM and a hang-up end what is being done, so that nothing half stays; the session's close then
 * lets the signal end the program. A second one does so at once. */
void files_catch_stop(void);
bool files_is_stopped(void) MUST_USE;

/** What is left in `fd` as a regular file, which the caller closes: that file again when it is one at its start, else a
 * nameless copy, for it may come slowly and the server waits for nobody. -1 with err. */
int files_spool(struct files_session *session, int fd, struct error *err) MUST_USE;

/** A bar begins for `what` (borrowed until it is ended); `total` 0: not known. */
void files_progress_begin(struct files_session *session, const char *what, uint64_t total);
/** It is taken off the screen. */
void files_progress_end(struct files_session *session);
