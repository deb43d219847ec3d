/** page_walk.h - what an owner has, newest first, to be shown by offset with a total. Rows lie by id, so all of them
 * are looked at: in steps between which other rules run, keeping of each no more than when it was made. Private to the
 *  rules; ledger thread. */
#pragma once

#include "negotiator/leasing/leasing_internal.h"

struct page_entry {
    char id[RANDOM_ID_BYTES];
    int64_t created_at; /* ms since 1970 */
};

/** A walk that has not begun is all zero. */
struct page_walk {
    struct page_entry *found; /* what is asked for; in its order when `walked` */
    size_t count;
    bool walked, is_cut;         /* more than LEASING_PAGE_MAX */
    bool over;                   /* its user's: the page was read, or refused */
    char after[RANDOM_ID_BYTES]; /* private: rows up to this one have been looked at */
};

/** Reads the row of this id: whether it is asked for, and when it was made (ms). False with work->err. */
typedef bool page_walk_look(struct work *work, void *cookie, const char *id, bool *is_asked_for, int64_t *created_at);

/** Looks at the next rows of "INDEX/OWNER/", whose keys end with an id. False with work->err. */
bool page_walk_step(struct work *work, struct page_walk *walk, const char *index, const char *owner,
                    page_walk_look *look, void *cookie) MUST_USE;

/** NULL is allowed. */
void page_walk_free(struct page_walk *walk);
