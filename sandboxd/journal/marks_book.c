/* marks_book.c - the marks of the present ledger, those of former ones, the epochs, and how each is written down. */
#include "sandboxd/journal/marks_book.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <string.h>

enum { EPOCH_BUCKETS = 1024, FORGET_AFTER_S = 60 };

struct epoch {
    struct epoch *next;
    char sandbox_id[CAPABILITY_ID_BYTES];
    uint32_t epoch;
    int64_t until; /* s */
};

/* Two sets, because the numbers of two ledgers have nothing to do with each other. */
struct marks_book {
    char ledger_id[MARKS_LEDGER_BYTES]; /* "": none yet */
    uint64_t last;                      /* number of the newest mark of `present` ever added */
    struct mark_set *present, *former;  /* the latter is numbered anew */
    size_t epoch_count;
    struct epoch *epochs[EPOCH_BUCKETS];
};

struct marks_book *marks_book_new(void)
{
    struct marks_book *book = memory_new(sizeof *book);
    book->present = mark_set_new();
    book->former = mark_set_new();
    return book;
}

void marks_book_free(struct marks_book *book)
{
    if (!book)
        return;
    for (size_t i = 0; i < EPOCH_BUCKETS; i++)
        for (struct epoch *epoch = book->epochs[i], *next; epoch; epoch = next) {
            next = epoch->next;
            free(epoch);
        }
    mark_set_free(book->present);
    mark_set_free(book->former);
    free(book);
}

/* ---- in force ---- */

bool marks_book_refuses(const struct marks_book *book, const struct capability_claims *claims, int64_t now_ms)
{
    return claims->epoch < marks_book_epoch(book, claims->sandbox_id) ||
           mark_set_refuses(book->present, claims, now_ms) || mark_set_refuses(book->former, claims, now_ms);
}

static struct epoch **epoch_slot(const struct marks_book *book, const char *sandbox_id)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: the ids are the negotiator's, and random */
    for (const char *c = sandbox_id; *c; c++)
        hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    struct epoch **slot = (struct epoch **)(uintptr_t)&book->epochs[(hash ^ (hash >> 32)) % EPOCH_BUCKETS];
    while (*slot && strcmp((*slot)->sandbox_id, sandbox_id) != 0)
        slot = &(*slot)->next;
    return slot;
}

uint32_t marks_book_epoch(const struct marks_book *book, const char *sandbox_id)
{
    const struct epoch *epoch = *epoch_slot(book, sandbox_id);
    return epoch ? epoch->epoch : 0;
}

const char *marks_book_ledger(const struct marks_book *book)
{
    return book->ledger_id;
}

/* Every start of a negotiator makes a ledger that tells the same marks again: each is kept once. */
struct merger {
    struct mark_set *to;
    uint64_t count;
    size_t slots; /* of `seen`, a power of two, more than twice the marks */
    struct digest {
        uint8_t bytes[16];
    } * seen; /* all zero: free */
};

static void digest_of(struct digest *digest, const struct mark *mark)
{
    AUTO_FREE char *text =
        memory_printf("%d %s %s %lld %lld %lld %u", (int)mark->kind, mark->value, mark->principal,
                      (long long)mark->before, (long long)mark->from_ms, (long long)mark->until, mark->epoch);
    crypto_generichash(digest->bytes, sizeof digest->bytes, (const uint8_t *)text, strlen(text), NULL, 0);
}

static bool merge_mark(void *cookie, const struct mark *mark)
{
    struct merger *merger = cookie;
    static const struct digest FREE;
    struct digest digest;
    size_t at;
    digest_of(&digest, mark);
    memcpy(&at, digest.bytes, sizeof at);
    for (at &= merger->slots - 1; memcmp(&merger->seen[at], &FREE, sizeof FREE) != 0;
         at = (at + 1) & (merger->slots - 1))
        if (memcmp(&merger->seen[at], &digest, sizeof digest) == 0)
            return true;
    merger->seen[at] = digest;
    struct mark moved = *mark;
    moved.number = ++merger->count;
    mark_set_add(merger->to, &moved);
    return true;
}

static void merge_into_former(struct marks_book *book)
{
    struct merger merger = {.to = mark_set_new(), .slots = 64};
    while (merger.slots < 2 * (mark_set_count(book->former) + mark_set_count(book->present)) + 2)
        merger.slots *= 2;
    merger.seen = memory_array(merger.slots, sizeof *merger.seen);
    mark_set_each(book->former, 0, merge_mark, &merger);
    mark_set_each(book->present, 0, merge_mark, &merger);
    free(merger.seen);
    mark_set_free(book->former);
    book->former = merger.to;
}

void marks_book_enter(struct marks_book *book, const char *ledger_id)
{
    if (strcmp(book->ledger_id, ledger_id) == 0)
        return;
    merge_into_former(book);
    mark_set_free(book->present);
    book->present = mark_set_new();
    book->last = 0;
    if (!text_copy(book->ledger_id, sizeof book->ledger_id, ledger_id))
        book->ledger_id[0] = '\0'; /* its length was checked */
}

void marks_book_add(struct marks_book *book, const struct mark *mark)
{
    if (mark->number <= book->last)
        return;
    book->last = mark->number;
    mark_set_add(book->present, mark);
    if (mark->kind == MARK_SANDBOX && mark->epoch > 0)
        marks_book_raise(book, mark->value, mark->epoch, mark->until);
}

void marks_book_raise(struct marks_book *book, const char *sandbox_id, uint32_t number, int64_t until)
{
    struct epoch **slot = epoch_slot(book, sandbox_id), *epoch = *slot;
    if (!epoch) {
        epoch = memory_new(sizeof *epoch);
        if (!text_copy(epoch->sandbox_id, sizeof epoch->sandbox_id, sandbox_id)) {
            free(epoch);
            return; /* no sandbox has so long an id */
        }
        *slot = epoch;
        book->epoch_count++;
    }
    if (number > epoch->epoch)
        epoch->epoch = number;
    if (until > epoch->until)
        epoch->until = until;
}

void marks_book_forget(struct marks_book *book, int64_t now_ms)
{
    (void)mark_set_forget(book->present, now_ms);
    (void)mark_set_forget(book->former, now_ms);
    for (size_t i = 0; i < EPOCH_BUCKETS; i++)
        for (struct epoch **slot = &book->epochs[i], *epoch; (epoch = *slot) != NULL;) {
            if (epoch->until + FORGET_AFTER_S > now_ms / 1000) {
                slot = &epoch->next;
                continue;
            }
            *slot = epoch->next;
            free(epoch);
            book->epoch_count--;
        }
}

/* ---- records ---- */

static char *dump(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

char *marks_record_ledger(const char *ledger_id)
{
    return dump(json_pack("{s:s}", "ledger", ledger_id));
}

char *marks_record_mark(const struct mark *mark)
{
    return dump(json_pack("{s:o}", "mark", mark_format(mark)));
}

char *marks_record_cursor(uint64_t cursor)
{
    return dump(json_pack("{s:I}", "cursor", (json_int_t)cursor));
}

char *marks_record_epoch(const char *sandbox_id, uint32_t epoch, int64_t until)
{
    return dump(
        json_pack("{s:I,s:s,s:I}", "epoch", (json_int_t)epoch, "sandbox", sandbox_id, "until", (json_int_t)until));
}

static bool read_epoch(struct marks_book *book, const json_t *record, struct error *err)
{
    json_int_t epoch = 0, until = 0;
    const char *sandbox_id = NULL;
    if (json_unpack((json_t *)(uintptr_t)record, "{s:I,s:s,s:I!}", "epoch", &epoch, "sandbox", &sandbox_id, "until",
                    &until) != 0 ||
        epoch < 1 || epoch > UINT32_MAX || strlen(sandbox_id) >= CAPABILITY_ID_BYTES)
        return error_set(err, ERROR_INVALID, "the epoch of a record is not one");
    marks_book_raise(book, sandbox_id, (uint32_t)epoch, until);
    return true;
}

static bool read_mark(struct marks_book *book, const json_t *json, struct error *err)
{
    struct mark mark;
    if (!mark_parse(&mark, json, err))
        return false;
    marks_book_add(book, &mark);
    return true;
}

static bool read_record(struct marks_book *book, const json_t *record, uint64_t *cursor, struct error *err)
{
    const json_t *mark = json_object_get(record, "mark"), *at = json_object_get(record, "cursor");
    const char *ledger = json_string_value(json_object_get(record, "ledger"));
    if (mark)
        return read_mark(book, mark, err);
    if (json_object_get(record, "epoch"))
        return read_epoch(book, record, err);
    if (json_is_integer(at) && json_integer_value(at) >= 0) {
        *cursor = (uint64_t)json_integer_value(at);
        return true;
    }
    if (!ledger || !ledger[0] || strlen(ledger) >= MARKS_LEDGER_BYTES)
        return error_set(err, ERROR_INVALID, "a record of an unknown kind");
    if (strcmp(ledger, book->ledger_id) != 0)
        *cursor = 0;
    marks_book_enter(book, ledger);
    return true;
}

bool marks_book_read(struct marks_book *book, const char *text, uint64_t *cursor, struct error *err)
{
    json_error_t wrong;
    json_t *record = json_loads(text, JSON_REJECT_DUPLICATES, &wrong);
    bool read = record ? read_record(book, record, cursor, err)
                       : error_set(err, ERROR_INVALID, "a record is not JSON: %.100s", wrong.text);
    json_decref(record);
    return read;
}

/* ---- all of it ---- */

struct listing {
    char **texts;
    size_t count, room;
};

static void list(struct listing *listing, char *text)
{
    if (listing->count == listing->room) {
        listing->room = listing->room * 2 + 64;
        listing->texts = memory_resize(listing->texts, listing->room * sizeof *listing->texts);
    }
    listing->texts[listing->count++] = text;
}

static bool list_mark(void *cookie, const struct mark *mark)
{
    list(cookie, marks_record_mark(mark));
    return true;
}

size_t marks_book_records(const struct marks_book *book, const char *ledger_id, uint64_t cursor, char ***texts)
{
    struct listing listing = {0};
    mark_set_each(book->former, 0, list_mark, &listing);
    if (ledger_id[0])
        list(&listing, marks_record_ledger(ledger_id));
    mark_set_each(book->present, 0, list_mark, &listing);
    if (ledger_id[0])
        list(&listing, marks_record_cursor(cursor));
    for (size_t i = 0; i < EPOCH_BUCKETS; i++)
        for (const struct epoch *epoch = book->epochs[i]; epoch; epoch = epoch->next)
            list(&listing, marks_record_epoch(epoch->sandbox_id, epoch->epoch, epoch->until));
    *texts = listing.texts;
    return listing.count;
}

size_t marks_book_size(const struct marks_book *book)
{
    return mark_set_count(book->present) + mark_set_count(book->former) + book->epoch_count + MARKS_BOOK_OVERHEAD;
}
