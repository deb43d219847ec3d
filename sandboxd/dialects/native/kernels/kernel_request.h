/** kernel_request.h - the bodies of the routes of contexts: JSON into what the verbs take, every field checked. */
#pragma once

#include "sandboxd/sandbox/kernels/kernels.h"

#include <jansson.h>

struct kernel_create {
    const char *id, *language; /* of the body; id NULL: one is made */
    struct command *command;   /* the caller's: cwd and variables */
    uint64_t timeout_ms;       /* 0: not said */
    bool is_durable;           /* of bash alone */
};

/** POST /kernels: language, id or name, cwd, env, timeout, durable. ERROR_INVALID names the field and what is allowed;
 * nothing is written then. */
bool kernel_request_create(struct kernel_create *create, const json_t *body, struct error *err) MUST_USE;

enum kernel_framing { KERNEL_NDJSON, KERNEL_SSE, KERNEL_ONE_JSON };

struct kernel_ordered {
    struct kernel_code code; /* points into the body */
    enum kernel_framing framing;
    bool framing_chosen; /* the body said `stream` */
};

/** POST /kernels/{id}/run: code, timeout, silent, stream, cwd, stderr, queue, restart. Errors as above. */
bool kernel_request_run(struct kernel_ordered *ordered, const json_t *body, struct error *err) MUST_USE;

/** POST /kernels/{id}/restart: timeout. Errors as above. */
bool kernel_request_restart(uint64_t *timeout_ms, const json_t *body, struct error *err) MUST_USE;
