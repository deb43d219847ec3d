/** files_operations.h - one function for each operation. Each answers with helper_record and true (helper->count,
 * skipped and is_truncated go into FILES_DONE), or false with the error that ends it. */
#pragma once

#include "sandboxd/helpers/files/helper.h"

bool files_stat(struct helper *helper, struct error *err) MUST_USE;   /* stat.c */
bool files_open(struct helper *helper, struct error *err) MUST_USE;   /* open.c */
bool files_mkdir(struct helper *helper, struct error *err) MUST_USE;  /* folder.c */
bool files_remove(struct helper *helper, struct error *err) MUST_USE; /* remove.c */
bool files_move(struct helper *helper, struct error *err) MUST_USE;   /* move.c */
bool files_chmod(struct helper *helper, struct error *err) MUST_USE;  /* stat.c */
bool files_edit(struct helper *helper, struct error *err) MUST_USE;   /* edit.c */
bool files_write(struct helper *helper, struct error *err) MUST_USE;  /* write.c */
bool files_piece(struct helper *helper, struct error *err) MUST_USE;  /* piece.c */

bool files_list(struct helper *helper, struct error *err) MUST_USE;   /* list.c */
bool files_glob(struct helper *helper, struct error *err) MUST_USE;   /* glob.c */
bool files_grep(struct helper *helper, struct error *err) MUST_USE;   /* grep.c */
bool files_copy(struct helper *helper, struct error *err) MUST_USE;   /* copy.c */
bool files_watch(struct helper *helper, struct error *err) MUST_USE;  /* watch.c */
bool files_pack(struct helper *helper, struct error *err) MUST_USE;   /* archive.c */
bool files_unpack(struct helper *helper, struct error *err) MUST_USE; /* archive.c */

/** copy.c, also for a move between file systems: copies `from` (not following it when it is a link; all below a folder
 * when flags has FILES_RECURSIVE) to `to`, under a temporary name first, so that `to` is either whole or as before.
 * Kept: modes, mtimes, links as links. Replaces what is there only with FILES_OVERWRITE. `root`: the source's, for
 * check_links. Cleans up when it fails or the front goes. */
bool copy_place(struct helper *helper, const char *root, const struct place *from, const struct place *to,
                uint32_t flags, struct error *err) MUST_USE;
