/** job.h - work in a child process without needless rights: copying and removing trees. The launcher has one thread, so
 *  the child may allocate; it has the descriptors named here alone. */
#pragma once

#include "sandboxd/storage/storage_internal.h"

#define JOB_FDS_MAX 4

struct job_work {
    bool (*run)(const struct job_work *work, struct error *err); /* in the child */
    int fds[JOB_FDS_MAX];                                        /* what the child keeps; -1 ends the list */
    uint32_t uid_from, uid_to;                                   /* for `run`: id 0 in the source and in the copy */
    char name[STORAGE_NAME_BYTES];                               /* for `run`: of what it makes */
    uint64_t capabilities;                                       /* bits of capabilities(7) that it keeps */
    char made[STORAGE_PATH_BYTES];                               /* what is discarded when the job fails; "" nothing */
    char final[STORAGE_PATH_BYTES]; /* what `made` is renamed to when it ended well; "" nothing */
};

/** Begins it; NULL on failure. `work` is copied, its descriptors stay the caller's. */
struct storage_job *job_start(struct storage *storage, const struct job_work *work, struct error *err) MUST_USE;
/** Ends what was cancelled and has died meanwhile; `waits`: all of it. */
void job_bury(struct storage *storage, bool waits);
