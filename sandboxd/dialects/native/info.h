/** info.h - GET /info as text: what a sandbox is and what the asking token grants. */
#pragma once

#include "sandboxd/sandbox/registry.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"

/** Appends the JSON object. Written by hand: clients poll it, and a tree of values costs more than all the rest of the
 *  request. */
void info_append(struct text *to, const struct registry_view *view, const struct capability_claims *claims);

/** Adds to that object "previews": the link of a port, with {port} in it, without a token. `url` is the node's own. */
void info_append_previews(struct text *to, const char *url, const char *domain, const char *sandbox_id);
