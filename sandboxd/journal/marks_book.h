/** marks_book.h - the marks in force in memory, and their records: what marks.c keeps under its lock. For this room
 * only.
 *
 *  Records, JSON objects of one key but for the last; replayed in order they give the book again:
 *    {"ledger": "led_..."}  marks that follow are of this ledger; those before, if of another, become the former's
 *    {"mark": {...}}        mark.h; one whose number was there already is the same one again (a page that was torn)
 *    {"cursor": n}          every mark of the ledger up to n stands above
 *    {"epoch": e, "sandbox": "sbx_...", "until": s} */
#pragma once

#include "sandboxd/journal/marks.h"

#include <stddef.h>

struct marks_book;

struct marks_book *marks_book_new(void) MUST_USE;
void marks_book_free(struct marks_book *book);
DEFINE_AUTO(marks_book)

bool marks_book_refuses(const struct marks_book *book, const struct capability_claims *claims, int64_t now_ms) MUST_USE;
/** 0: none known. */
uint32_t marks_book_epoch(const struct marks_book *book, const char *sandbox_id) MUST_USE;

/** The ledger of the marks added last; "": none yet. MARKS_LEDGER_BYTES long. */
const char *marks_book_ledger(const struct marks_book *book) MUST_USE;
/** From here on marks are of this ledger; those of another one stay in force until they end. */
void marks_book_enter(struct marks_book *book, const char *ledger_id);
/** Puts a mark of the present ledger in force; one whose number is not above the last one's is there already. */
void marks_book_add(struct marks_book *book, const struct mark *mark);
/** An epoch never falls; `until` (s) is when it may be forgotten. */
void marks_book_raise(struct marks_book *book, const char *sandbox_id, uint32_t epoch, int64_t until);
/** Drops what can refuse no living token any more. */
void marks_book_forget(struct marks_book *book, int64_t now_ms);

/** Replays one record. `cursor` is moved by {"ledger"} (to 0) and {"cursor"}. ERROR_INVALID. */
bool marks_book_read(struct marks_book *book, const char *text, uint64_t *cursor, struct error *err) MUST_USE;

/** The record's texts; the caller frees them. */
char *marks_record_ledger(const char *ledger_id) MUST_USE;
char *marks_record_mark(const struct mark *mark) MUST_USE;
char *marks_record_cursor(uint64_t cursor) MUST_USE;
char *marks_record_epoch(const char *sandbox_id, uint32_t epoch, int64_t until) MUST_USE;

/** All of the book as records: *texts and each of them are the caller's. `ledger_id` "" leaves ledger and cursor out.
 */
size_t marks_book_records(const struct marks_book *book, const char *ledger_id, uint64_t cursor,
                          char ***texts) MUST_USE;
#define MARKS_BOOK_OVERHEAD 2 /* of them are neither a mark nor an epoch */
/** How many records those are, nearly. */
size_t marks_book_size(const struct marks_book *book) MUST_USE;
