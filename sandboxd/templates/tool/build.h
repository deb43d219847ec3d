/** build.h - `build`: a Debian suite becomes a template. debootstrap, because its two stages can be kept apart: the
 * first has the host's network and tools and runs nothing of what it fetches but unpacks it, the second runs the
 * packages' scripts with the new rootfs as its / and without any network. (mmdebstrap needs apt's network for both.) */
#pragma once

#include "sandboxd/templates/templates.h"
#include "sandboxd/templates/tool/tree.h"

#define BUILD_PACKAGES_MAX 2000

struct build_options {
    const char *name, *suite;
    const char *mirror;        /* http:// or https:// */
    const char *include;       /* "a,b,c" or NULL */
    const char *packages_file; /* one name a line, # begins a comment; or NULL */
    struct tree_limits limits;
    unsigned timeout_s; /* of each stage */
    bool is_quiet;
};

/** Builds into `folder` and sets *made. INVALID: an option that cannot be; NOT_FOUND: no debootstrap here; else what
 *  debootstrap said last. */
bool build_run(const char *folder, const struct build_options *options, struct template *made,
               struct error *err) MUST_USE;
