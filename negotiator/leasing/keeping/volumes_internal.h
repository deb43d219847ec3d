/** volumes_internal.h - what volumes.c and volume_questions.c share. */
#pragma once

#include "negotiator/leasing/keeping/volumes.h"
#include "negotiator/leasing/leasing_internal.h"

/** The row; revision 0 when there is none. False (err set): the store failed, or it is damaged. */
bool volume_get(struct work *work, const char *principal, const char *name, struct volume *volume) MUST_USE;
bool volume_parse(struct volume *volume, const char *name, const struct kv_value *value, struct error *err) MUST_USE;
/** Adds to the change that the row goes. */
void volume_remove(struct work *work, const char *principal, const struct volume *volume);
/** The ids of the sandboxes that have it, at most so many; the caller's. */
bool volume_used_by(struct work *work, const char *principal, const char *name, size_t most, json_t **ids) MUST_USE;

/** Whether it is being deleted just now: its node was asked, and has not answered. */
bool volumes_is_dropped(const struct leasing *leasing, const char *principal, const char *name) MUST_USE;
/** Tells the node to delete it; `done` may be NULL. */
void volume_call_drop(struct leasing *leasing, const char *node, const char *principal, const char *name,
                      void (*done)(void *cookie, const json_t *reply, const struct error *err), void *cookie);
