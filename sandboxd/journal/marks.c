/* marks.c - the thread that makes marks durable, the lock under which every loop asks for them, and batches. */
#include "sandboxd/journal/marks.h"

#include "sandboxd/journal/journal_file.h"
#include "sandboxd/journal/marks_book.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    WAITING_MAX = 16, /* pages */
    FORGET_EVERY_S = 60,
    GARBAGE_MAX = 4096,      /* records that say nothing any more */
    EPOCH_KEPT_S = 49 * 3600 /* no token lives longer than its sandbox: a day */
};

/* What the thread is to do: a page, or an epoch that a token raised. */
struct job {
    struct job *next;
    char ledger_id[MARKS_LEDGER_BYTES];
    uint64_t after, upto;
    struct mark *marks;
    size_t count;
    void (*done)(void *cookie); /* NULL: an epoch */
    void *cookie;
    char sandbox_id[CAPABILITY_ID_BYTES];
    uint32_t epoch;
    int64_t until;
};

struct marks_batch {
    struct mark_set *set;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    bool is_cut, is_left; /* by whoever cuts; by the thread, which is to end */
    unsigned holders;     /* these two */
};

/* Invariant: every mark up to position is in the file, in the book, and cut. The book may hold more. */
struct marks {
    struct marks_options options;
    struct journal_file *file; /* the thread's, as the next three */
    size_t records;            /* in it */
    int64_t tidied_ms;         /* by the negotiator's clock */
    _Atomic int64_t told_ms;   /* what that said last; 0: nothing yet */
    unsigned failures;         /* pages in a row that could not be written */
    pthread_rwlock_t lock;     /* guards book, ledger_id, cursor; only the thread changes the last two */
    struct marks_book *book;
    char ledger_id[MARKS_LEDGER_BYTES]; /* position; "": none yet */
    uint64_t cursor;
    pthread_t thread;
    bool is_started;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    struct job *jobs, **last;
    size_t pages;
    struct marks_batch *batch; /* being cut */
    bool is_stopping;
};

static void condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void job_free(struct job *job)
{
    free(job->marks);
    free(job);
}

/* ---- batches ---- */

static struct marks_batch *batch_new(const struct mark *marks, size_t count)
{
    struct marks_batch *batch = memory_new(sizeof *batch);
    pthread_mutex_init(&batch->mutex, NULL);
    condition_init(&batch->changed);
    batch->holders = 2;
    batch->set = mark_set_new();
    for (size_t i = 0; i < count; i++)
        mark_set_add(batch->set, &marks[i]);
    return batch;
}

static void batch_release(struct marks_batch *batch)
{
    pthread_mutex_lock(&batch->mutex);
    bool is_last = --batch->holders == 0;
    pthread_mutex_unlock(&batch->mutex);
    if (!is_last)
        return;
    pthread_mutex_destroy(&batch->mutex);
    pthread_cond_destroy(&batch->changed);
    mark_set_free(batch->set);
    free(batch);
}

bool marks_batch_refuses(const struct marks_batch *batch, const struct capability_claims *claims, int64_t now_ms)
{
    return mark_set_refuses(batch->set, claims, now_ms) != NULL;
}

void marks_batch_each(const struct marks_batch *batch, bool (*visit)(void *cookie, const struct mark *mark),
                      void *cookie)
{
    mark_set_each(batch->set, 0, visit, cookie);
}

void marks_cut_done(struct marks_batch *batch)
{
    pthread_mutex_lock(&batch->mutex);
    batch->is_cut = true;
    pthread_cond_signal(&batch->changed);
    pthread_mutex_unlock(&batch->mutex);
    batch_release(batch);
}

/* marks_free is called while a batch is cut: nobody waits for it any more. */
static void leave(struct marks_batch *batch)
{
    pthread_mutex_lock(&batch->mutex);
    batch->is_left = true;
    pthread_cond_signal(&batch->changed);
    pthread_mutex_unlock(&batch->mutex);
}

static void set_batch(struct marks *marks, struct marks_batch *batch)
{
    pthread_mutex_lock(&marks->mutex);
    marks->batch = batch;
    if (batch && marks->is_stopping)
        leave(batch);
    pthread_mutex_unlock(&marks->mutex);
}

/* True when what the marks refuse is cut; false when there was no time for that. */
static bool cut(struct marks *marks, const struct mark *list, size_t count)
{
    if (!marks->options.cut || count == 0)
        return true;
    struct marks_batch *batch = batch_new(list, count);
    set_batch(marks, batch);
    marks->options.cut(marks->options.context, batch);
    pthread_mutex_lock(&batch->mutex);
    while (!batch->is_cut && !batch->is_left)
        pthread_cond_wait(&batch->changed, &batch->mutex);
    bool is_cut = batch->is_cut;
    pthread_mutex_unlock(&batch->mutex);
    set_batch(marks, NULL);
    batch_release(batch);
    return is_cut;
}

/* ---- the file ---- */

/* Takes the text. */
static bool append(struct marks *marks, char *record, struct error *err)
{
    AUTO_FREE char *text = record;
    if (!journal_file_append(marks->file, text, strlen(text), err))
        return false;
    marks->records++;
    return true;
}

static bool is_of_our_ledger(const struct marks *marks, const struct job *page)
{
    return strcmp(marks->ledger_id, page->ledger_id) == 0;
}

/* The ledger is said with each page: one of another ledger may lie half-written between. */
static bool write_page(struct marks *marks, const struct job *page, struct error *err)
{
    uint64_t known = is_of_our_ledger(marks, page) ? marks->cursor : 0;
    if (!append(marks, marks_record_ledger(page->ledger_id), err))
        return false;
    for (size_t i = 0; i < page->count; i++)
        if (page->marks[i].number > known && !append(marks, marks_record_mark(&page->marks[i]), err))
            return false;
    return append(marks, marks_record_cursor(page->upto), err) && journal_file_sync(marks->file, err);
}

static void compact(struct marks *marks)
{
    char **texts = NULL;
    struct error err = {0};
    pthread_rwlock_rdlock(&marks->lock);
    size_t count = marks_book_records(marks->book, marks->ledger_id, marks->cursor, &texts);
    pthread_rwlock_unlock(&marks->lock);
    if (journal_file_replace(marks->file, (const char *const *)texts, count, &err))
        marks->records = count;
    else
        log_warn("marks", "the journal stays as long as it is: %s", err.message);
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
    free(texts);
}

static bool is_long(struct marks *marks)
{
    pthread_rwlock_rdlock(&marks->lock);
    size_t size = marks_book_size(marks->book);
    /* Not while the book is of a ledger that could not be written down: the records would mix them up. */
    bool is_settled = strcmp(marks_book_ledger(marks->book), marks->ledger_id) == 0;
    pthread_rwlock_unlock(&marks->lock);
    return is_settled && marks->records > 2 * size + GARBAGE_MAX;
}

static void tidy(struct marks *marks)
{
    int64_t now_ms = marks->told_ms;
    if (now_ms - marks->tidied_ms >= FORGET_EVERY_S * 1000 || now_ms < marks->tidied_ms) {
        marks->tidied_ms = now_ms;
        pthread_rwlock_wrlock(&marks->lock);
        marks_book_forget(marks->book, now_ms);
        pthread_rwlock_unlock(&marks->lock);
    }
    if (is_long(marks))
        compact(marks);
}

/* ---- the thread ---- */

/* Whether it says something new, and nothing is missing before it. */
static bool is_next(const struct marks *marks, const struct job *page)
{
    if (!is_of_our_ledger(marks, page))
        return page->after == 0;
    return page->after <= marks->cursor && page->upto > marks->cursor;
}

static void put_in_force(struct marks *marks, const struct job *page)
{
    pthread_rwlock_wrlock(&marks->lock);
    marks_book_enter(marks->book, page->ledger_id);
    for (size_t i = 0; i < page->count; i++)
        marks_book_add(marks->book, &page->marks[i]);
    pthread_rwlock_unlock(&marks->lock);
}

static void take_page(struct marks *marks, const struct job *page)
{
    if (!is_next(marks, page))
        return;
    struct error err = {0};
    bool is_written = write_page(marks, page, &err);
    /* A mark that cannot be written is in force all the same; only it is not acknowledged, and so comes again. */
    if (!is_written && marks->failures++ == 0) /* repeats are counted, not repeated */
        log_warn("marks", "a page is in force, but not written down: %s", err.message);
    else if (is_written && marks->failures)
        log_info("marks", "pages are written down again after %u failures", marks->failures);
    marks->failures = is_written ? 0 : marks->failures;
    put_in_force(marks, page);
    if (!cut(marks, page->marks, page->count) || !is_written)
        return;
    pthread_rwlock_wrlock(&marks->lock);
    memcpy(marks->ledger_id, page->ledger_id, sizeof marks->ledger_id);
    marks->cursor = page->upto;
    pthread_rwlock_unlock(&marks->lock);
}

static void take_epoch(struct marks *marks, const struct job *job)
{
    struct error err = {0};
    if (!append(marks, marks_record_epoch(job->sandbox_id, job->epoch, job->until), &err) ||
        !journal_file_sync(marks->file, &err))
        log_warn("marks", "an epoch is in force, but not written down: %s sandbox=%s", err.message, job->sandbox_id);
    struct mark mark = {.number = 1, .kind = MARK_SANDBOX, .epoch = job->epoch, .until = job->until};
    memcpy(mark.value, job->sandbox_id, sizeof job->sandbox_id);
    (void)cut(marks, &mark, 1);
}

/* The next job; NULL with *go_on: it is time to tidy up. */
static struct job *next_job(struct marks *marks, bool *go_on)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FORGET_EVERY_S;
    int waited = 0;
    pthread_mutex_lock(&marks->mutex);
    while (!marks->jobs && !marks->is_stopping && waited == 0)
        waited = pthread_cond_timedwait(&marks->changed, &marks->mutex, &until);
    struct job *job = marks->jobs;
    if (job) {
        marks->jobs = job->next;
        if (!marks->jobs)
            marks->last = &marks->jobs;
        marks->pages -= job->done != NULL;
    }
    *go_on = job || !marks->is_stopping;
    pthread_mutex_unlock(&marks->mutex);
    return job;
}

static void *run(void *cookie)
{
    struct marks *marks = cookie;
    bool go_on;
    do {
        struct job *job = next_job(marks, &go_on);
        if (job && job->done) {
            take_page(marks, job);
            job->done(job->cookie);
        } else if (job) {
            take_epoch(marks, job);
        }
        if (job)
            job_free(job);
        if (go_on)
            tidy(marks);
    } while (go_on);
    return NULL;
}

static bool add_job(struct marks *marks, struct job *job)
{
    pthread_mutex_lock(&marks->mutex);
    bool has_room = !job->done || marks->pages < WAITING_MAX;
    if (has_room) {
        *marks->last = job;
        marks->last = &job->next;
        marks->pages += job->done != NULL;
        pthread_cond_signal(&marks->changed);
    }
    pthread_mutex_unlock(&marks->mutex);
    return has_room;
}

/* ---- opening ---- */

static bool replay(void *cookie, const char *text, size_t size UNUSED, struct error *err)
{
    struct marks *marks = cookie;
    marks->records++;
    if (marks_book_read(marks->book, text, &marks->cursor, err))
        return true;
    err->kind = ERROR_INTERNAL;
    return error_prefix(err, "record %zu", marks->records);
}

static void lock_init(pthread_rwlock_t *lock)
{
    /* Readers come without end: a mark must not wait for a moment when there is none. */
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
}

static bool start_thread(struct marks *marks, struct error *err)
{
    int failed = pthread_create(&marks->thread, NULL, run, marks);
    if (failed)
        return error_set(err, ERROR_INTERNAL, "start the marks thread: %s", strerror(failed));
    marks->is_started = true;
    return true;
}

struct marks *marks_open(const struct marks_options *options, struct error *err)
{
    AUTO(marks) *marks = memory_new(sizeof *marks);
    marks->options = *options;
    marks->book = marks_book_new();
    marks->last = &marks->jobs;
    lock_init(&marks->lock);
    pthread_mutex_init(&marks->mutex, NULL);
    condition_init(&marks->changed);
    marks->file = journal_file_open(options->folder, "marks", replay, marks, err);
    if (!marks->file) {
        error_prefix(err, "the journal of marks");
        return NULL;
    }
    memcpy(marks->ledger_id, marks_book_ledger(marks->book), sizeof marks->ledger_id);
    tidy(marks);
    if (!start_thread(marks, err))
        return NULL;
    return TAKE(marks);
}

void marks_free(struct marks *marks)
{
    if (!marks)
        return;
    pthread_mutex_lock(&marks->mutex);
    marks->is_stopping = true;
    if (marks->batch)
        leave(marks->batch);
    pthread_cond_signal(&marks->changed);
    pthread_mutex_unlock(&marks->mutex);
    if (marks->is_started)
        pthread_join(marks->thread, NULL);
    journal_file_free(marks->file);
    marks_book_free(marks->book);
    pthread_rwlock_destroy(&marks->lock);
    pthread_mutex_destroy(&marks->mutex);
    pthread_cond_destroy(&marks->changed);
    free(marks);
}

/* ---- asked from anywhere ---- */

bool marks_refuses(struct marks *marks, const struct capability_claims *claims, int64_t now_ms)
{
    pthread_rwlock_rdlock(&marks->lock);
    bool refuses = marks_book_refuses(marks->book, claims, now_ms);
    pthread_rwlock_unlock(&marks->lock);
    return refuses;
}

uint32_t marks_epoch(struct marks *marks, const char *sandbox_id)
{
    pthread_rwlock_rdlock(&marks->lock);
    uint32_t epoch = marks_book_epoch(marks->book, sandbox_id);
    pthread_rwlock_unlock(&marks->lock);
    return epoch;
}

size_t marks_count(struct marks *marks)
{
    pthread_rwlock_rdlock(&marks->lock);
    size_t size = marks_book_size(marks->book);
    pthread_rwlock_unlock(&marks->lock);
    return size > MARKS_BOOK_OVERHEAD ? size - MARKS_BOOK_OVERHEAD : 0;
}

void marks_raise_epoch(struct marks *marks, const char *sandbox_id, uint32_t epoch)
{
    int64_t until = clock_wall_ms() / 1000 + EPOCH_KEPT_S;
    pthread_rwlock_wrlock(&marks->lock);
    bool is_higher = epoch > marks_book_epoch(marks->book, sandbox_id);
    if (is_higher)
        marks_book_raise(marks->book, sandbox_id, epoch, until);
    pthread_rwlock_unlock(&marks->lock);
    if (!is_higher)
        return;
    struct job *job = memory_new(sizeof *job);
    job->epoch = epoch;
    job->until = until;
    if (text_copy(job->sandbox_id, sizeof job->sandbox_id, sandbox_id))
        (void)add_job(marks, job);
    else
        job_free(job);
}

void marks_tell_time(struct marks *marks, int64_t now_ms)
{
    marks->told_ms = now_ms;
}

json_t *marks_position(struct marks *marks)
{
    pthread_rwlock_rdlock(&marks->lock);
    json_t *position = json_pack("{s:s,s:I}", "ledger_id", marks->ledger_id, "cursor", (json_int_t)marks->cursor);
    pthread_rwlock_unlock(&marks->lock);
    return position;
}

/* ---- pages ---- */

static bool parse_marks(struct job *page, const json_t *list, struct error *err)
{
    uint64_t before = page->after;
    page->marks = memory_array(json_array_size(list) + 1, sizeof *page->marks);
    for (; page->count < json_array_size(list); page->count++) {
        struct mark *mark = &page->marks[page->count];
        if (!mark_parse(mark, json_array_get(list, page->count), err))
            return error_prefix(err, "marks: %zu", page->count);
        if (mark->number <= before || mark->number > page->upto)
            return error_set(err, ERROR_INVALID, "marks: their numbers rise, above after and up to upto");
        before = mark->number;
    }
    return true;
}

static bool parse_page(struct job *page, const json_t *json, struct error *err)
{
    const char *ledger_id = json_string_value(json_object_get(json, "ledger_id"));
    const json_t *after = json_object_get(json, "after"), *upto = json_object_get(json, "upto");
    const json_t *list = json_object_get(json, "marks");
    if (!ledger_id || !text_is_made_of(ledger_id, MARKS_LEDGER_BYTES - 1, "_-") ||
        !text_copy(page->ledger_id, sizeof page->ledger_id, ledger_id))
        return error_set(err, ERROR_INVALID, "marks: ledger_id: 1 to %d letters, digits, _ or -",
                         MARKS_LEDGER_BYTES - 1);
    if (!json_is_integer(after) || !json_is_integer(upto) || json_integer_value(after) < 0 ||
        json_integer_value(upto) < json_integer_value(after))
        return error_set(err, ERROR_INVALID, "marks: after and upto: numbers, the second not below the first");
    if (!json_is_array(list) || json_array_size(list) > MARKS_PAGE_MAX)
        return error_set(err, ERROR_INVALID, "marks: a list of at most %d", MARKS_PAGE_MAX);
    page->after = (uint64_t)json_integer_value(after);
    page->upto = (uint64_t)json_integer_value(upto);
    return parse_marks(page, list, err);
}

bool marks_take(struct marks *marks, const json_t *page, void (*done)(void *cookie), void *cookie, struct error *err)
{
    struct job *job = memory_new(sizeof *job);
    job->done = done;
    job->cookie = cookie;
    bool is_taken = parse_page(job, page, err);
    if (is_taken && !add_job(marks, job))
        is_taken = error_set(err, ERROR_NO_CAPACITY, "too many pages of marks wait to be written");
    if (!is_taken)
        job_free(job);
    return is_taken;
}
