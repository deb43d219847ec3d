/** osb_shown.h - sandboxes as OpenSandbox clients read them. Pure. Private to this folder. */
#pragma once

#include "negotiator/leasing/leasing.h"

/** Whether they see it at all: what is ending is gone for them. */
bool osb_is_shown(const struct sandbox *sandbox) MUST_USE;

/** "Running", of a state that is shown; static. */
const char *osb_state_name(enum sandbox_state state) MUST_USE;
/** The states (bits) of such a name, in any case; 0: none is called so. */
unsigned osb_state_bits(const char *name) MUST_USE;
/** Of all that are shown. */
unsigned osb_states_shown(void) MUST_USE;

/** What only keeps a container alive, ["tail", "-f", "/dev/null"], the default of every client: a sandbox lives without
 * it, so it is shown and not run. The caller owns the first. */
json_t *osb_keep_alive(void) MUST_USE;
bool osb_is_keep_alive(const json_t *argv) MUST_USE;

/** The whole Sandbox; the caller owns it, as the next. */
json_t *osb_shown_sandbox(const struct sandbox *sandbox) MUST_USE;
/** What a create answers: all but what it began with. */
json_t *osb_shown_created(const struct sandbox *sandbox) MUST_USE;

/** {"page", "pageSize", "totalItems", "totalPages", "hasNextPage"}. The page size is above 0. */
json_t *osb_shown_pages(size_t page, size_t page_size, size_t total) MUST_USE;
