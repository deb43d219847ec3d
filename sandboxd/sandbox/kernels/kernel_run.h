/** kernel_run.h - what comes of one run of code in a context, on its way from the sandbox's loop to its reader's.
 * Counted, with two ends, as a follower has. The reader takes events at its own pace; while it has not, the context
 * waits, so no more is held than KERNEL_RUN_FULL and one event. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/http/loop.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_RUN_FULL (256 * 1024) /* bytes that wait for the reader */

enum kernel_event_kind {
    KERNEL_EVENT_ACCEPTED, /* first: it will be run */
    KERNEL_EVENT_TOLD,     /* `type` and `body` are for the client */
    KERNEL_EVENT_DONE,     /* the same; the last */
    KERNEL_EVENT_FAILED    /* `error`; the last */
};

struct kernel_event {
    enum kernel_event_kind kind;
    const char *type; /* "started", "stdout", "done" ...; static */
    json_t *body;     /* an object; owned by who has the event; NULL with: */
    char *text;       /* the same as a JSON text; owned likewise; only where the reader wants that of large ones */
    size_t cost;      /* bytes it holds, about */
    struct error error;
};

struct kernel_run;

/* ---- the reader's end ---- */

/** `ready(cookie)` is called on the calling loop, never before this returns, when kernel_run_next may have something.
 */
struct kernel_run *kernel_run_new(void (*ready)(void *cookie), void *cookie) MUST_USE;
/** At once: large events may come as text. */
void kernel_run_takes_text(struct kernel_run *run);
/** The reader leaves: no call comes any more. The run goes on. NULL is allowed. */
void kernel_run_close(struct kernel_run *run);
/** Takes the next event; its body is the caller's. False: there is none now. To be called when the one before is out of
 *  this process, or nearly: it stands for the one before. */
bool kernel_run_next(struct kernel_run *run, struct kernel_event *event) MUST_USE;

/* ---- the owner's end ---- */

struct kernel_run *kernel_run_hold(struct kernel_run *run) MUST_USE;
/** NULL is allowed. */
void kernel_run_release(struct kernel_run *run);
/** room(owner) is called on the calling loop when there is room again that kernel_run_is_full denied. */
void kernel_run_attach(struct kernel_run *run, void (*room)(void *owner), void *owner);
void kernel_run_detach(struct kernel_run *run);
/** Whether nothing more is to be put now; then `room` is called later. Never when the reader has left. */
bool kernel_run_is_full(struct kernel_run *run) MUST_USE;
bool kernel_run_wants_text(const struct kernel_run *run) MUST_USE;
/** Takes the text. Else as the next. */
void kernel_run_put_text(struct kernel_run *run, const char *type, char *text, size_t cost);
/** Takes the body. What comes behind the last one, or when the reader has left, is dropped. */
void kernel_run_put(struct kernel_run *run, enum kernel_event_kind kind, const char *type, json_t *body, size_t cost);
/** The last. */
void kernel_run_fail(struct kernel_run *run, const struct error *err);
