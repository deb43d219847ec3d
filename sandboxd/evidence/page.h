/** page.h - the lines of one page of evidence on their way to a file. Private to this folder. */
#pragma once

#include "sandboxd/evidence/evidence.h"
#include "shared/base/text.h"

#include <jansson.h>

/** Embedded; {.order = ...} at first. */
struct page {
    const struct evidence_order *order;
    struct text lines; /* owned */
    uint64_t met;      /* items, those of the pages before too */
    size_t count;
    bool is_full;   /* there are more for a page to come */
    bool truncated; /* there was more than is looked at */
};

/** Whether the next item is of this page: it has to be added then. False: it was told before, or page->is_full. */
bool page_wants(struct page *page) MUST_USE;
/** Adds it; takes the reference. */
void page_add(struct page *page, json_t *item);
/** Writes it all; frees what it owns. */
bool page_end(struct page *page, const char *part, struct error *err) MUST_USE;

/** A text of whoever is in the sandbox. The caller owns the result. */
json_t *page_text(const char *bytes, size_t size) MUST_USE;
/** RFC 3339 of ms since 1970; null of what is no such time. */
json_t *page_time(int64_t wall_ms) MUST_USE;
/** An id as it is inside. */
json_t *page_id(const struct page *page, uint32_t id) MUST_USE;
