/** logs.h - the last of what a command of a living sandbox wrote, asked of its node: for who wants to know why
 * something does not start, and has no capability yet. The sandbox is not woken, and that somebody looked is recorded.
 */
#pragma once

#include "negotiator/leasing/leasing.h"

#define LOGS_TAIL_MAX_BYTES 65536 /* of each stream */
#define LOGS_PROCESS_BYTES  65    /* the id of a command, with NUL */

/** The question above, the answer below. */
struct logs_question {
    struct caller caller;
    char sandbox_id[RANDOM_ID_BYTES];
    char process[LOGS_PROCESS_BYTES];
    size_t tail_bytes; /* 1..LOGS_TAIL_MAX_BYTES, of stdout and of stderr */
    bool may_lack;     /* a command that the node does not know is no refusal: then answer stays NULL */
    void (*answered)(void *cookie, struct logs_question *q); /* any thread; the callee's from then on */
    void *cookie;

    struct error refusal; /* ERROR_NONE: answered */
    json_t *answer;       /* owned: {"running", "exit_code" (null: it runs), "stdout", "stderr", "truncated"} */

    struct leasing *leasing; /* private, as the next */
    char node[SANDBOX_NODE_BYTES];
};

/** An empty question. */
struct logs_question *logs_question_new(void);
/** With all it owns; NULL is allowed. */
void logs_question_free(struct logs_question *question);
DEFINE_AUTO(logs_question)

/** Queues it; takes it. Any thread. Who may: the owner and admins of role user. NOT_FOUND (also of the command), GONE,
 *  NODE_UNREACHABLE, INVALID and what the node refuses come as refusal. */
void leasing_logs(struct leasing *leasing, struct logs_question *question);
