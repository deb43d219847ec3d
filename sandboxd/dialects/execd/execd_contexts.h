/** execd_contexts.h - the contexts of this dialect: how its clients call languages, which of a sandbox's contexts are
 *  sessions, and what is done to one of an id. */
#pragma once

#include "sandboxd/dialects/execd/execd_cell.h"
#include "sandboxd/sandbox/kernels/kernels.h"
#include "shared/http/server.h"

#include <stdbool.h>

#define EXECD_SESSION "ses" /* what ids of sessions begin with, before a "_" */

/** Whether a context is a session: a bash of such an id. */
bool execd_is_session(const struct kernel_view *view) MUST_USE;

/** The language that ours is for theirs: "python", "bash", "javascript", "typescript" and their other names; "java",
 *  "go", "sql" and any other are kernelspecs'. INVALID: none could be called so. */
bool execd_language(const char *theirs, char ours[static DRIVER_NAME_BYTES], struct error *err) MUST_USE;
/** Theirs for ours: "java" for "jupyter:java". Borrowed from it. */
const char *execd_language_shown(const char *ours) MUST_USE;
/** Whether code of that language ("", "command") is a command. */
bool execd_is_command(const char *theirs) MUST_USE;

/** A call of kernels.h for a request: `done` gets its number as cookie. `id` is borrowed. */
struct kernel_call execd_call(const struct http_request *request, const char *id,
                              void (*done)(void *cookie, const struct verb_answer *answer)) MUST_USE;
/** The request of such a call, if it still waits and the verb went well; a failure is answered here, NOT_FOUND as
 *  404. */
struct http_request *execd_waiting(void *cookie, const struct verb_answer *answer) MUST_USE;

/** The same as execd_waiting, in a verb that starts something: what it cannot start is the server's failure, 500. */
struct http_request *execd_waiting_start(void *cookie, const struct verb_answer *answer) MUST_USE;

/** Records code.remove and ends the context; answers 200. NOT_FOUND is 404. */
void execd_remove(struct http_request *request, const char *id);

/** Interrupts the context, or ends the session, of this id, and answers. Where there is none of it: other(request),
 * which answers; later, or at once. What is no context is a command's matter: without scope process it is refused. */
void execd_interrupt(struct http_request *request, const char *id, void (*other)(struct http_request *request));

/** What is to be run, all of it borrowed. */
struct execd_order {
    const char *id; /* of the context; one that is not there is 500 */
    enum execd_cell_kind kind;
    struct kernel_code code;
};
/** Records code.run and runs it (execd_cell.h), which answers the request. On its loop. */
void execd_run_code(struct http_request *request, const struct execd_order *order);
