/** making.h - what import and build share: hearing a jailed child out, and making its work a template. */
#pragma once

#include "sandboxd/templates/new_version.h"
#include "sandboxd/templates/tool/jail.h"

struct making {
    const struct new_version *fresh;
    bool is_quiet;
    char last_text[256];                /* the last line that a program inside said of a failure */
    char digest[TEMPLATE_DIGEST_BYTES]; /* of the list of packages */
};

/** Runs the child to its end: progress to stderr, packages into packages.json, its result into *result. */
bool making_run(struct making *making, const struct jail_plan *plan, unsigned timeout_s, struct message_result *result,
                struct error *err) MUST_USE;
/** The same for a child that only executes a program: true when that ended with status 0. */
bool making_execute(struct making *making, const struct jail_plan *plan, unsigned timeout_s,
                    struct error *err) MUST_USE;
/** Makes it the current version of `name`. */
bool making_commit(const char *folder, struct new_version *fresh, struct message_result *result, const char *name,
                   const char *source, struct template *made, struct error *err) MUST_USE;
