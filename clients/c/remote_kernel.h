/** remote_kernel.h - contexts of a sandbox: interpreters that keep their variables from one run of code to the next. */
#pragma once

#include "clients/c/grant.h"

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** What is wanted; all is borrowed. */
struct remote_kernel_wanted {
    const char *language;         /* NULL: that of the one that is there, else python */
    const char *id;               /* 1..48 of A-Za-z0-9._-; one that is there is taken as it is. NULL: a new one */
    const char *cwd;              /* NULL: the template's */
    const char *const *variables; /* "NAME=value", NULL-ended; NULL none */
};

/** Starts it, or finds it; *view (the caller's) is as the server shows it. CONFLICT: that id is another language's;
 * GONE: it was lost, and why; INVALID: it cannot start there. Blocks until it takes code. */
bool remote_kernel_create(const struct grant *grant, const struct remote_kernel_wanted *wanted, json_t **view,
                          struct error *err) MUST_USE;

/** {"kernels": [...]}, {"kernelspecs": [...]}; the caller's. */
bool remote_kernel_list(const struct grant *grant, json_t **reply, struct error *err) MUST_USE;
bool remote_kernel_specs(const struct grant *grant, json_t **reply, struct error *err) MUST_USE;

/** Interrupts what it runs. NOT_FOUND, GONE. */
bool remote_kernel_interrupt(const struct grant *grant, const char *id, json_t **view, struct error *err) MUST_USE;
/** Ends it and starts it anew, without its variables. NOT_FOUND. */
bool remote_kernel_restart(const struct grant *grant, const char *id, json_t **view, struct error *err) MUST_USE;
/** Ends it; its name is free again. NOT_FOUND. */
bool remote_kernel_remove(const struct grant *grant, const char *id, struct error *err) MUST_USE;

struct remote_kernel_run {
    const char *id, *code; /* UTF-8 */
    size_t size;
    double timeout_s; /* 0: none */
    /* Each event but keepalives, an object with `type`, the last being "done". False: enough, the run goes on. */
    bool (*event)(void *cookie, const json_t *event);
    /* Called about once a second and when a signal came; false as above. May be NULL. */
    bool (*tick)(void *cookie);
    void *cookie;
};

/** Runs code in a context and tells all that comes of it. True: "done" was told. GONE: the context was lost before, or
 * event or tick had enough; RATE_LIMITED; NODE_UNREACHABLE: the connection broke, the run goes on. Blocks. */
bool remote_kernel_run(const struct grant *grant, const struct remote_kernel_run *run, struct error *err) MUST_USE;
