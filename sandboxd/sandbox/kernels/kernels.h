/** kernels.h - contexts: interpreters in a sandbox that keep their variables from one run of code to the next. A
 * context is a command (its id is "kernel.<context's id>.<how often it was started>") that speaks frames with this
 * front (helpers/drivers), so that its output is kept, its limits hold and it outlives this process as any other
 * command. Its runs are done one after the other, in the order in which they were asked for. Verbs as in sandboxes.h:
 * asked on any loop, done on the sandbox's. */
#pragma once

#include "sandboxd/helpers/drivers/drivers.h"
#include "sandboxd/sandbox/kernels/kernel_frames.h"
#include "sandboxd/sandbox/kernels/kernel_run.h"
#include "sandboxd/sandbox/sandboxes.h"

#define KERNEL_ID_BYTES    49 /* with NUL: 1..48 of A-Za-z0-9._-, not "." or ".." */
#define KERNEL_WAITING_MAX 32 /* runs of a context that wait */
#define KERNELS_MAX        64 /* contexts of a sandbox, lost ones too */
#define KERNEL_START_MS    60000
#define KERNEL_CODE_MAX    (2 * 1024 * 1024) /* bytes; as a frame at most DRIVER_REQUEST_MAX */
#define KERNEL_PREFIX      "kernel."         /* of their commands' ids; no client's command has it */

enum kernel_state {
    KERNEL_STARTING,
    KERNEL_IDLE,
    KERNEL_BUSY,
    KERNEL_LOST /* its process ended: variables are gone; it stays until it is started anew or removed */
};

/** A context as it can be seen. */
struct kernel_view {
    char id[KERNEL_ID_BYTES];
    char process_id[FRONT_INIT_ID_BYTES];
    char language[DRIVER_NAME_BYTES]; /* "": of an earlier front that started it with a name too long to be seen */
    char version[KERNEL_WORD_BYTES], implementation[KERNEL_WORD_BYTES]; /* as its driver says; "" not known */
    enum kernel_state state;
    uint64_t execution_count; /* of the run that began last */
    unsigned waiting;         /* runs */
    int64_t created_ms;       /* UTC: started (anew) */
    bool oom;                 /* LOST: out of memory */
    char reason[200];         /* LOST: why; else "" */
};

struct kernel_call {
    const char *sandbox_id, *kernel_id; /* kernel_id NULL: all (kernels_list) or a new name (kernels_create) */
    void (*done)(void *cookie, const struct verb_answer *answer); /* answer->kernels; as of process_call */
    void *cookie;
};

/** Whether the id could be a context's. */
bool kernel_is_id(const char *id) MUST_USE;
/** Whether a command of this id is a context's. */
bool kernel_is_process(const char *process_id) MUST_USE;
/** "starting", "idle", "busy", "lost". */
const char *kernel_state_name(enum kernel_state state) MUST_USE;

#define KERNEL_DURABLE "durable" /* in the title of such a one's command, before the language */

/** Starts one, or finds the one of the same id and language (answer->is_new tells which), and answers when it can take
 *  code. `language` NULL: that of the one which is there, python for a new one. `command` (taken) has cwd, variables
 * and origin, and no arguments. INVALID: no such language, or it cannot start there (its sentence says why); CONFLICT:
 * the id is a context of another language; GONE: it was lost; NO_CAPACITY; TIMEOUT: not ready after `timeout_ms`, 0:
 * KERNEL_START_MS; it is ended then. */
void kernels_create(struct sandboxes *all, const struct kernel_call *call, const char *language,
                    struct command *command, uint64_t timeout_ms);
/** The same of a bash that is durable: `exit`, and whatever else ends the shell, ends a run alone, and another shell
 * goes on with what that one knew. A program that does not heed an interrupt is killed. Without bash it is as any
 * other. */
void kernels_create_durable(struct sandboxes *all, const struct kernel_call *call, struct command *command,
                            uint64_t timeout_ms);

/** Code to be run in it; `run` is told all that comes of it, a refusal too: NOT_FOUND; GONE: the context was lost, and
 * why; RATE_LIMITED: KERNEL_WAITING_MAX wait; TOO_LARGE. What is running goes on when nobody listens to it.
 * `timeout_ms` (0: none) counts from where it begins: it is interrupted then, and 2 s later the context is killed. */
struct kernel_code {
    const char *code; /* UTF-8 without NUL; copied */
    size_t size;
    uint64_t timeout_ms;
    bool silent;     /* not counted, no result */
    const char *cwd; /* it goes there first, and stays; copied; NULL: where it is. INVALID in a kernelspec's context */
    bool merges;     /* what it writes to stderr is told as stdout; of a shell, in the order of the writing */
    bool at_once;    /* CONFLICT while other code runs or waits */
    bool restarts;   /* a context that was lost is started anew for it, in place of GONE */
};
void kernels_run(struct sandboxes *all, const char *sandbox_id, const char *kernel_id, const struct kernel_code *code,
                 struct kernel_run *run);

/** Interrupts what it runs, if anything; what waits is run then. NOT_FOUND, GONE. */
void kernels_interrupt(struct sandboxes *all, const struct kernel_call *call);
/** Ends it, if it is not lost, and starts it anew as it was created (cwd and variables only if this front created it);
 *  what it ran and what waits is told as lost. Answered as kernels_create. NOT_FOUND. */
void kernels_restart(struct sandboxes *all, const struct kernel_call *call, uint64_t timeout_ms);
/** Ends and forgets it. NOT_FOUND. */
void kernels_remove(struct sandboxes *all, const struct kernel_call *call);
/** The views of one or all; wakes nothing. NOT_FOUND. */
void kernels_list(struct sandboxes *all, const struct kernel_call *call);
