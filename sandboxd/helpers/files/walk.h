/** walk.h - goes through what is below a folder: depth first, the names of each folder in bytewise order, never through
 * a symlink, so never in a circle and never out of the folder. What a hostile tree can cost is bounded:
 *   - names are held for the folders from the root to the one being read, 64 MiB together; a folder that does not fit
 * is gone through in several parts, each sorted by itself;
 *   - at most WALK_OPEN_MAX folders are open; one further up is opened again by its path, and left when it is another;
 *   - a path of more than FRONT_FILES_PATH_MAX bytes is left out.
 *  /proc and its like are not entered from a folder outside of them. Whatever is left out is counted. */
#pragma once

#include "sandboxd/front_files/front_files.h"

#define WALK_OPEN_MAX    64
#define WALK_NAMES_BYTES (64 << 20)

struct walk;

/** What walk_next came to; the pointers hold until the next call. */
struct walk_place {
    const char *path; /* below the root, NUL-terminated */
    size_t path_size;
    const char *name;     /* its last part */
    int folder;           /* that holds it; borrowed */
    enum files_type type; /* as the folder says */
    uint32_t depth;       /* 1: in the root itself */
    bool is_leaving;      /* a folder that was entered, after all below it */
};

enum walk_order {
    WALK_BEFORE = 0, /* folders are given before what is in them */
    WALK_AROUND      /* and again, is_leaving, after it */
};

/** Begins below `folder`, which stays the caller's and must outlive the walk (its position is not used). NULL with
 *  ERROR_FORBIDDEN or ERROR_INTERNAL when it cannot be read. */
struct walk *walk_new(int folder, enum walk_order order, struct error *err) MUST_USE;
/** NULL is allowed. */
void walk_free(struct walk *walk);
DEFINE_AUTO(walk)

/** The next place; false when there is none. */
bool walk_next(struct walk *walk, struct walk_place *place) MUST_USE;

/** Says that what is in the folder just given comes next. False when it cannot be read, which is counted unless it is
 *  gone; there is then no leaving it either. */
bool walk_enter(struct walk *walk);

/** Folders and places left out so far. */
uint64_t walk_skipped(const struct walk *walk) MUST_USE;

/** Of st_mode. */
enum files_type walk_type_of_mode(uint32_t mode) MUST_USE;
/** Whether the open file is of /proc, /sys and the like, where reading may wait or do something. */
bool walk_is_pseudo(int fd) MUST_USE;
