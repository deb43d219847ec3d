/** execd_files_steps.h - a request about several paths: all are read, and judged against the token, before the first is
 *  touched; then one after another (native/files/files_batch.h). */
#pragma once

#include "sandboxd/dialects/execd/execd_files_common.h"

/** One of them. */
struct execd_step {
    char *given; /* the path as the client wrote it */
    struct execd_place place, to;
    struct files_request asked; /* its texts are the place's, `to`'s and ours */
    json_t *old, *new;          /* of EDIT: texts, ours; new may be NULL */
    char *owner, *group;        /* ours */
    const char *action;         /* of the record; NULL: nothing changes */
};

/** Zero but for the request is their start. */
struct execd_steps {
    struct http_request *request;
    struct execd_step *all;
    size_t count, at;
    size_t path_bytes;      /* of all, bounded */
    bool forgives_missing;  /* a path that is not there is done */
    bool missing_is_broken; /* it is 500, not 404 */
    bool shows_entries;     /* the reply is an object of facts by path */
    bool counts;            /* it is one of replacedCount by path; with neither it is empty */
    struct text shown;
};

/** None yet; the caller owns them. */
struct execd_steps *execd_steps_new(struct http_request *request) MUST_USE;
/** With all it owns, where they were not started. */
void execd_steps_free(struct execd_steps *steps);

/** One more, with its path in `asked`: NULL with INVALID, CAPABILITY_DENIED, TOO_LARGE (over a thousand, or over
 *  1 MiB of paths). */
struct execd_step *execd_steps_add(struct execd_steps *steps, enum scope_verb verb, const char *given,
                                   struct error *err) MUST_USE;
/** The owner and group that `asked` names are copied, so that the JSON they stand in may go. */
void execd_step_keep_users(struct execd_step *step);
/** Where it goes to (MOVE), judged as fs:rw. */
bool execd_step_set_target(struct execd_steps *steps, struct execd_step *step, const char *given,
                           struct error *err) MUST_USE;

/** Takes them, does them and answers. */
void execd_steps_start(struct execd_steps *steps);
