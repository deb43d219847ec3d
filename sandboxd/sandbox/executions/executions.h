/** executions.h - a program that is run once: files into a fresh work folder of the sandbox, the code beside them, what
 * it prints and how it ends, and what it leaves below ./artifacts. One call from its start to its end belongs to the
 * loop that asked; the folder is removed afterwards, whatever happened. All on verbs of files.h and sandboxes.h. */
#pragma once

#include "sandboxd/sandbox/sandboxes.h"
#include "shared/base/text.h"

#define EXECUTION_FILES_MAX        1000      /* with an order */
#define EXECUTION_PATH_MAX         1024      /* bytes of a file's name */
#define EXECUTION_OUTPUT_BYTES     (1 << 20) /* of each stream; the end of it is given */
#define EXECUTION_ARTIFACTS_MAX    1000      /* given; what is beyond is told in stderr */
#define EXECUTION_INLINE_BYTES     (1 << 20) /* an artifact up to this is given as bytes */
#define EXECUTION_INLINE_ALL_BYTES (4 << 20) /* ... while all of them are within this */
#define EXECUTION_KEPT_MAX         32        /* larger ones, as files */
#define EXECUTIONS_MAX             16        /* at once in a sandbox */
#define EXECUTION_LANGUAGES        "python, bash, node, typescript"

struct execution_file {
    char *path; /* below the work folder; clean: no empty, . or .. segment */
    char *data;
    size_t size;
};

/** What is to be run. The fields are read only; it owns all of them. */
struct execution_order {
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    const struct execution_language *language;
    struct execution_file *files; /* the first is the code */
    size_t file_count;
    struct command *program; /* its arguments are the program's own, its variables and origin the command's */
    uint64_t answer_by;      /* boot ns: the program is killed then */
    uint64_t give_up_at;     /* boot ns, later: answered with what there is */
};

/** `language` is what a client calls it ("py", "node"). INVALID: "Unsupported language: x (python, ...)". `code`
 * is copied. */
struct execution_order *execution_order_new(const char *sandbox_id, const char *language, const char *code, size_t size,
                                            struct error *err) MUST_USE;
/** A file beside the code; both are copied. INVALID, "Invalid file path: x", when the name would leave the work folder
 * or is the code's. */
bool execution_order_add_file(struct execution_order *order, const char *path, size_t path_size, const char *data,
                              size_t size, struct error *err) MUST_USE;
/** NULL is allowed. */
void execution_order_free(struct execution_order *order);
DEFINE_AUTO(execution_order)

struct execution_artifact {
    char *name;    /* below ./artifacts; valid UTF-8 */
    uint64_t size; /* bytes */
    char *data;    /* NULL: */
    int file;      /* a regular file open for reading; else -1. Whoever takes it calls files_file_closed in its time */
};

/** Valid during the call, but files may be taken (and -1 left). */
struct execution_result {
    const char *id;
    int exit_code; /* of a signal 128 + n; 124 when timed out */
    bool timed_out;
    const char *error;                   /* a sentence; NULL: it ended by itself */
    struct text streams[OUTPUT_STREAMS]; /* valid UTF-8; what is missing anywhere is told at the end of stderr */
    struct execution_artifact *artifacts;
    size_t artifact_count;
};

struct execution;

/** Takes the order. done(cookie, result, NULL) once, on the calling loop, never before this returns; or done(cookie,
 *  NULL, err) when it could not be run at all: what file verbs and process_exec say, RATE_LIMITED with EXECUTIONS_MAX
 *  running. It is freed after that. */
struct execution *execution_start(struct sandboxes *all, struct execution_order *order,
                                  void (*done)(void *cookie, struct execution_result *result, const struct error *err),
                                  void *cookie) MUST_USE;

/** Nobody waits any more: it and all it started are killed, its folder is removed; done is not called. NULL is
 * allowed. */
void execution_cancel(struct execution *execution);
