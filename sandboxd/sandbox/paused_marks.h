/** paused_marks.h - which sandboxes were paused on purpose, kept in a folder of the front's own: an empty file for
 * each, named by its id. The kernel keeps a sandbox frozen when this process is killed; a freeze without a mark was for
 * the time of a snapshot alone, and is over. Any thread. */
#pragma once

#include "sandboxd/sandbox/registry.h"

/** `folder` -1, here and below: nothing is kept, and no sandbox is marked. DISK_FULL, INTERNAL. */
bool paused_mark(int folder, const char *sandbox_id, struct error *err) MUST_USE;
void paused_unmark(int folder, const char *sandbox_id);
bool paused_is_marked(int folder, const char *sandbox_id) MUST_USE;

/** Removes the marks of sandboxes that live no more. */
void paused_marks_clean(int folder, struct registry *registry);
