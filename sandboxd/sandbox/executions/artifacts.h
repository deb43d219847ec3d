/** artifacts.h - files that an execution left and that are given out by URL: each is kept open under a ticket that is
 * good for one download. In memory alone: tickets end with this process, with their sandbox, and after a time. Any
 * loop. */
#pragma once

#include "sandboxd/sandbox/sandboxes.h"

#define ARTIFACT_TICKET_BYTES 33 /* 32 hex digits and NUL */
#define ARTIFACTS_OF_SANDBOX  128
#define ARTIFACTS_OF_ALL      4096

/** What a ticket is for: it opens nothing else. */
struct artifact_name {
    const char *sandbox_id, *execution_id, *name;
};

/** Keeps `file` (taken when that goes well; the sandbox's, see files_file_closed) until `until` (boot ns). NO_CAPACITY.
 */
bool artifacts_keep(struct sandboxes *all, const struct artifact_name *artifact, int file, uint64_t size,
                    uint64_t until, char ticket[static ARTIFACT_TICKET_BYTES], struct error *err) MUST_USE;

/** The file, now the caller's, who calls files_file_closed in its time: there is no second one. GONE when it was had
 *  before, or is too old; NOT_FOUND when the ticket is for something else, or nothing. */
bool artifacts_take(struct sandboxes *all, const struct artifact_name *artifact, const char *ticket, int *file,
                    uint64_t *size, struct error *err) MUST_USE;
/** The same for a look: another descriptor of it, not counted; the ticket stays good. */
bool artifacts_look(struct sandboxes *all, const struct artifact_name *artifact, const char *ticket, int *file,
                    uint64_t *size, struct error *err) MUST_USE;
