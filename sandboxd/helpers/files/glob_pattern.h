/** glob_pattern.h - patterns of paths: `*` any bytes but a slash, `?` one character, `[a-z]` `[!a-z]` one of or none
 * of,
 *  `{a,b}` either, a part `**` any folders (none too; at the end: everything below), `\` takes the meaning of the next
 *  character away. A character is one of UTF-8, or a byte that is none. A name that begins with a dot is matched only
 * by a part that begins with one. No pattern takes more than (its size * the name's) steps for a name. */
#pragma once

#include "sandboxd/front_files/front_files.h"

#define GLOB_PATTERN_PARTS_MAX        63 /* parts between slashes */
#define GLOB_PATTERN_ALTERNATIVES_MAX 64 /* what its braces come to */

struct glob_pattern;

enum glob_case { GLOB_EXACT, GLOB_ANY_CASE }; /* of ASCII letters */

/** NULL with ERROR_INVALID: empty, begins with a slash, has an empty, . or .. part, or is over a bound. A slash at its
 * end: folders only. */
struct glob_pattern *glob_pattern_parse(const char *text, enum glob_case letters, struct error *err) MUST_USE;
/** From now on a name that begins with a dot is as any other. */
void glob_pattern_show_hidden(struct glob_pattern *pattern);
/** NULL is allowed. */
void glob_pattern_free(struct glob_pattern *pattern);
DEFINE_AUTO(glob_pattern)

/** Where in the pattern a folder is: what its names may match next. */
struct glob_position {
    uint64_t parts[GLOB_PATTERN_ALTERNATIVES_MAX];
};
void glob_pattern_begin(const struct glob_pattern *pattern, struct glob_position *position);

struct glob_step {
    bool is_match; /* the name ends a path that matches */
    bool goes_on;  /* something below it may */
};
/** One name of a folder at `from`; *to: of what is below the name. */
struct glob_step glob_pattern_step(const struct glob_pattern *pattern, const struct glob_position *from,
                                   const char *name, bool is_folder, struct glob_position *to);

/** A whole path, below where the pattern begins. */
bool glob_pattern_matches(const struct glob_pattern *pattern, const char *path, bool is_folder) MUST_USE;
