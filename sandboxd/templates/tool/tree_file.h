/** tree_file.h - small files of the tree: its own links are followed, within it. */
#pragma once

#include "sandboxd/templates/tool/tree.h"

/** The whole of a regular file of at most `max` bytes, NUL-terminated; the caller frees. NULL with NOT_FOUND,
 * TOO_LARGE, INVALID (no regular file). */
char *tree_file_read(const struct tree *tree, const char *path, size_t max, size_t *size, struct error *err) MUST_USE;

/** Appends to a file, which is made (0644, root's) when missing; its folder is there. */
bool tree_file_append(struct tree *tree, const char *path, const char *text, struct error *err) MUST_USE;
