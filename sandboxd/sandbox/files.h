/** files.h - the verbs on a sandbox's files: one call is one request to a file helper inside the sandbox and the
 * records it answers with (front_files.h). The helper's socket belongs to the loop that called: the sandbox's own loop
 * only lends the helper. Nothing here resolves a path. */
#pragma once

#include "sandboxd/front_files/front_files.h"
#include "sandboxd/sandbox/sandboxes.h"

struct files_call;

/** On the calling loop, never before files_start returned. */
struct files_events {
    /** One checked record, never DONE or ERROR. `descriptor` (of OPEN's ENTRY; else -1) is the callee's: checked to be
     * a regular file open for reading alone, on a file system that does not block; at most one comes, and it counts as
     * the sandbox's until files_file_closed. files_cancel is allowed inside. */
    void (*record)(void *cookie, const struct files_record *record, int descriptor);
    /** The last, once: NULL err and FILES_DONE; or the error (the helper's own; GONE, STARTING, NO_CAPACITY when there
     *  was none; UNAVAILABLE-like INTERNAL, retryable, when it died). The call is freed after it. */
    void (*over)(void *cookie, const struct files_record *done, const struct error *err);
};

/** Starts an operation (everything is copied). `descriptor` (taken; -1: none) as its operation needs. Any loop. */
struct files_call *files_start(struct sandboxes *all, const char *sandbox_id, const struct files_request *request,
                               int descriptor, const struct files_events *events, void *cookie) MUST_USE;

/** While true no more records are taken from the helper, which then waits. */
void files_pause(struct files_call *call, bool is_paused);

/** WRITE, PIECE, UNPACK: all bytes have gone into the pipe, and its last write end is closed. */
void files_commit(struct files_call *call, uint64_t size);

/** Nothing of it is wanted any more: no event comes, the helper ends, nothing half-done is left. NULL is allowed. */
void files_cancel(struct files_call *call);

/** The descriptor that a call's record came with is closed, also when that was long after the call. Once. Any loop. */
void files_file_closed(struct sandboxes *all, const char *sandbox_id);

/** A pipe for files_start: ends[0] goes to the helper (WRITE, UNPACK) or stays (PACK), the other way round for ends[1];
 * the front's end (`ours`, 0 or 1) does not block. ERROR_NO_CAPACITY. */
bool files_pipe(int ends[2], int ours, struct error *err) MUST_USE;

/** What comes out of a pipe (PACK's), on the calling loop. */
struct files_flow;

/** Reads `pipe` (taken; does not block) as bytes come: flowed(cookie, data, size), and once with size 0 at the end,
 * after which there is nothing but to free it. */
struct files_flow *files_flow_new(int pipe, void (*flowed)(void *cookie, const void *data, size_t size),
                                  void *cookie) MUST_USE;
void files_flow_pause(struct files_flow *flow, bool is_paused);
/** Also inside flowed; NULL is allowed. */
void files_flow_free(struct files_flow *flow);
