/** run_context.h - `parley run` in a context: an interpreter that keeps its variables. */
#pragma once

#include "clients/c/grant.h"

#include <stdbool.h>
#include <stddef.h>

/** What is wanted; all is borrowed. */
struct run_context {
    const char *language; /* NULL: python */
    const char *name;     /* NULL: one that is removed afterwards */
    const char *cwd;
    const char *const *variables;
    const char *code;
    size_t size;
    double timeout_s;
    const char *save; /* a folder for what is no text; NULL: it is named */
    bool json, verbose;
};

/** Whether code of that language (NULL: python) is run in a context only. */
bool run_context_only(const char *language) MUST_USE;

/** Runs it in the grant's sandbox, prints what comes of it; returns the exit status. */
int run_context(const struct run_context *wanted, const struct place *place, const struct grant_request *request,
                struct grant *grant);
