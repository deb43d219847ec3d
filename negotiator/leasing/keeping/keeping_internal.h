/** keeping_internal.h - what the files of this folder share. */
#pragma once

#include "negotiator/leasing/keeping/keeping.h"
#include "negotiator/leasing/leasing_internal.h"

/** The record of what was asked, with `detail` when it was done. */
bool keeping_audit(struct work *work, const struct keeping *keeping, const char *detail) MUST_USE;
/** Records the refusal, and nothing else that was gathered on the way to it. */
enum kv_outcome keeping_refuse(struct work *work, struct keeping *keeping);
/** Hands it back. */
void keeping_answer(struct keeping *keeping);
/** Whether that snapshot is being taken by this process. */
bool taking_has(const struct leasing *leasing, const char *snapshot_id) MUST_USE;

/** TAKE, PAGE and DROP, from their rules to their answers. */
void taking_submit(struct keeping *keeping);
void keeping_page_submit(struct keeping *keeping);
void dropping_submit(struct keeping *keeping);

/** Adds to the change that nobody sees it any more, and that its node is told, at once and until it says yes. */
void dropping_begin(struct work *work, struct snapshot *snapshot);
/** Tells its node; what it answers is written down. */
void dropping_tell(struct leasing *leasing, const char *node, const char *id);
