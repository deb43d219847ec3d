/* execution_book.c - what is known of executions over all loops: how many run in each sandbox, and the files that wait
 * under a ticket for their one download. One mutex, held for moments. */
#include "sandboxd/sandbox/executions/artifacts.h"
#include "sandboxd/sandbox/executions/executions_internal.h"

#include "sandboxd/sandbox/sandbox_internal.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

static const uint64_t SOON_NS = UINT64_C(60) * 1000000000;

struct page {
    struct page *next;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    unsigned running;
    uint64_t begun_at; /* boot ns: when the last one began */
};

struct kept {
    struct kept *next;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    char *execution_id, *name;
    char ticket[ARTIFACT_TICKET_BYTES];
    int file; /* -1: it was had */
    uint64_t size, until;
};

struct execution_book {
    pthread_mutex_t mutex;
    char tag[EXECUTION_TAG_BYTES];
    int64_t started_ms; /* UTC */
    struct page *pages;
    struct kept *kept;
    size_t kept_count;
};

struct execution_book *execution_book_new(void)
{
    struct execution_book *book = memory_new(sizeof *book);
    uint8_t random[(EXECUTION_TAG_BYTES - 1) / 2];
    pthread_mutex_init(&book->mutex, NULL);
    random_bytes(random, sizeof random);
    text_hex(book->tag, random, sizeof random);
    book->started_ms = clock_wall_ms();
    return book;
}

static void kept_free(struct kept *kept)
{
    if (kept->file >= 0)
        close(kept->file);
    free(kept->execution_id);
    free(kept->name);
    free(kept);
}

void execution_book_free(struct execution_book *book)
{
    for (struct page *page = book->pages, *next; page; page = next) {
        next = page->next;
        free(page);
    }
    for (struct kept *kept = book->kept, *next; kept; kept = next) {
        next = kept->next;
        kept_free(kept);
    }
    pthread_mutex_destroy(&book->mutex);
    free(book);
}

const char *execution_book_tag(const struct execution_book *book)
{
    return book->tag;
}

/* ---- how many run ---- */

static struct page **find_page(struct execution_book *book, const char *sandbox_id)
{
    struct page **at = &book->pages;
    while (*at && strcmp((*at)->sandbox_id, sandbox_id) != 0)
        at = &(*at)->next;
    return at;
}

bool execution_book_enter(struct execution_book *book, const char *sandbox_id, int64_t made_ms,
                          struct execution_entry *entry, struct error *err)
{
    uint64_t now = clock_boot_ns();
    pthread_mutex_lock(&book->mutex);
    struct page **at = find_page(book, sandbox_id);
    bool is_first = !*at;
    if (is_first) {
        *at = memory_new(sizeof **at);
        if (!text_copy((*at)->sandbox_id, sizeof(*at)->sandbox_id, sandbox_id))
            (*at)->sandbox_id[0] = 0;
    }
    bool has_room = (*at)->running < EXECUTIONS_MAX;
    if (has_room) {
        *entry = (struct execution_entry){.is_first = is_first && made_ms < book->started_ms,
                                          .is_soon = !is_first && now - (*at)->begun_at < SOON_NS};
        (*at)->running++;
        (*at)->begun_at = now;
    }
    pthread_mutex_unlock(&book->mutex);
    return has_room || error_set(err, ERROR_RATE_LIMITED, "%d programs run in this sandbox already", EXECUTIONS_MAX);
}

void execution_book_leave(struct execution_book *book, const char *sandbox_id)
{
    pthread_mutex_lock(&book->mutex);
    struct page *page = *find_page(book, sandbox_id);
    if (page && page->running > 0) /* else its sandbox ended meanwhile */
        page->running--;
    pthread_mutex_unlock(&book->mutex);
}

static void drop_page(struct execution_book *book, const char *sandbox_id)
{
    pthread_mutex_lock(&book->mutex);
    struct page **at = find_page(book, sandbox_id), *page = *at;
    if (page)
        *at = page->next;
    pthread_mutex_unlock(&book->mutex);
    free(page);
}

/* ---- what is kept ---- */

/* Takes what is over off the list: of that sandbox, or (NULL) what is too old by now. */
static struct kept *take_over(struct execution_book *book, const char *sandbox_id, uint64_t now)
{
    struct kept *over = NULL;
    pthread_mutex_lock(&book->mutex);
    for (struct kept **at = &book->kept; *at;) {
        struct kept *kept = *at;
        if (sandbox_id ? strcmp(kept->sandbox_id, sandbox_id) != 0 : kept->until > now) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        kept->next = over;
        over = kept;
        book->kept_count--;
    }
    pthread_mutex_unlock(&book->mutex);
    return over;
}

void artifacts_sweep(struct sandboxes *all)
{
    for (struct kept *kept = take_over(all->executions, NULL, clock_boot_ns()), *next; kept; kept = next) {
        next = kept->next;
        if (kept->file >= 0)
            files_file_closed(all, kept->sandbox_id);
        kept_free(kept);
    }
}

void artifacts_drop(struct sandboxes *all, const char *sandbox_id)
{
    for (struct kept *kept = take_over(all->executions, sandbox_id, 0), *next; kept; kept = next) {
        next = kept->next;
        kept_free(kept); /* what is counted goes with the sandbox */
    }
    drop_page(all->executions, sandbox_id);
}

static size_t count_kept(const struct execution_book *book, const char *sandbox_id)
{
    size_t count = 0;
    for (const struct kept *kept = book->kept; kept; kept = kept->next)
        count += strcmp(kept->sandbox_id, sandbox_id) == 0;
    return count;
}

bool artifacts_keep(struct sandboxes *all, const struct artifact_name *artifact, int file, uint64_t size,
                    uint64_t until, char ticket[static ARTIFACT_TICKET_BYTES], struct error *err)
{
    struct execution_book *book = all->executions;
    uint8_t random[(ARTIFACT_TICKET_BYTES - 1) / 2];
    struct kept *kept = memory_new(sizeof *kept);
    random_bytes(random, sizeof random);
    *kept = (struct kept){.file = file, .size = size, .until = until};
    text_hex(kept->ticket, random, sizeof random);
    kept->execution_id = memory_string(artifact->execution_id);
    kept->name = memory_string(artifact->name);
    bool is_name = text_copy(kept->sandbox_id, sizeof kept->sandbox_id, artifact->sandbox_id);
    pthread_mutex_lock(&book->mutex);
    bool has_room =
        is_name && book->kept_count < ARTIFACTS_OF_ALL && count_kept(book, kept->sandbox_id) < ARTIFACTS_OF_SANDBOX;
    if (has_room) {
        memcpy(ticket, kept->ticket, ARTIFACT_TICKET_BYTES);
        kept->next = book->kept;
        book->kept = kept;
        book->kept_count++;
    }
    pthread_mutex_unlock(&book->mutex);
    if (has_room)
        return true;
    kept->file = -1; /* stays the caller's */
    kept_free(kept);
    return error_set(err, ERROR_NO_CAPACITY, "too many artifacts wait for their download");
}

/* Under the mutex. All are compared, each in constant time. */
static struct kept *find_kept(const struct execution_book *book, const struct artifact_name *artifact,
                              const char *ticket)
{
    struct kept *found = NULL;
    if (strlen(ticket) != ARTIFACT_TICKET_BYTES - 1)
        return NULL;
    for (struct kept *kept = book->kept; kept; kept = kept->next)
        if (sodium_memcmp(kept->ticket, ticket, ARTIFACT_TICKET_BYTES - 1) == 0)
            found = kept;
    bool is_it = found && strcmp(found->sandbox_id, artifact->sandbox_id) == 0 &&
                 strcmp(found->execution_id, artifact->execution_id) == 0 && strcmp(found->name, artifact->name) == 0;
    return is_it ? found : NULL;
}

static bool get(struct sandboxes *all, const struct artifact_name *artifact, const char *ticket, bool takes, int *file,
                uint64_t *size, struct error *err)
{
    struct execution_book *book = all->executions;
    int got = -1;
    pthread_mutex_lock(&book->mutex);
    struct kept *kept = find_kept(book, artifact, ticket);
    if (kept && kept->file >= 0 && kept->until > clock_boot_ns()) {
        got = takes ? TAKE_FD(kept->file) : fcntl(kept->file, F_DUPFD_CLOEXEC, 0);
        *size = kept->size;
    }
    pthread_mutex_unlock(&book->mutex);
    if (!kept)
        return error_set(err, ERROR_NOT_FOUND, "no such artifact waits for a download");
    if (got < 0)
        return error_set(err, ERROR_GONE, "the artifact was downloaded before: its URL is good for one download");
    *file = got;
    return true;
}

bool artifacts_take(struct sandboxes *all, const struct artifact_name *artifact, const char *ticket, int *file,
                    uint64_t *size, struct error *err)
{
    return get(all, artifact, ticket, true, file, size, err);
}

bool artifacts_look(struct sandboxes *all, const struct artifact_name *artifact, const char *ticket, int *file,
                    uint64_t *size, struct error *err)
{
    return get(all, artifact, ticket, false, file, size, err);
}
