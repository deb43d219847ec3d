/** remote_files_internal.h - what the files of remote_files share. */
#pragma once

#include "clients/c/remote_files.h"
#include "clients/c/remote_http.h"

#define REMOTE_FILES_LINE_MAX (64 * 1024) /* of a list */

struct remote_files {
    struct remote_files_use use;
    CURL *curl;
    bool has_replaced; /* the grant, since the last request that went well */
    bool has_reached;  /* the sandbox has answered: from now on another one is not meant */
    bool is_clearing;  /* what was given up is taken away: that is not given up */
};

/** One request below the grant's URL: kind is "files" or "archive". */
bool remote_files_request(struct remote_files *files, const char *kind, const char *path, const char *query,
                          struct remote_http *http, struct error *err) MUST_USE;

/** After a request failed for `why`: whether it may be sent again, now; waits or replaces the grant first. *tries
 * begins as 0. False leaves in *err why not, when that is something else than `why`. */
bool remote_files_may_retry(struct remote_files *files, unsigned *tries, const struct error *why,
                            struct error *err) MUST_USE;

/** An entry of the wire; the caller owns it. */
bool remote_entry_read(struct remote_entry *entry, const json_t *object, struct error *err) MUST_USE;
