/* marks_test.c - marks are durable before they are acknowledged: pages in order, twice, of another ledger; kill -9
 * between any two steps; torn, damaged and full files; many. */
#include "sandboxd/journal/marks.h"
#include "sandboxd/journal/marks_book.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNTIL (4102444800) /* 2100 */

static char folder_path[] = "/tmp/parley-marks-test-XXXXXX";
static int folder = -1;

/* ---- dying between two steps ---- */

enum death { DEATH_NONE, DEATH_BEFORE_SYNC, DEATH_AFTER_SYNC, DEATH_IN_CUT, DEATH_AFTER_CUT };

/* Shared between a child and its parent. */
static struct witness {
    atomic_uint acknowledged; /* cursor that a child saw */
    atomic_long synced_bytes; /* of the file, at its last sync */
} * witness;
static enum death death;
static atomic_int death_after; /* so many steps of that kind */

static void step(enum death here)
{
    if (here == death && atomic_fetch_sub(&death_after, 1) == 1)
        kill(getpid(), SIGKILL);
}

/* In place of libc's. */
int fdatasync(int fd)
{
    step(DEATH_BEFORE_SYNC);
    struct stat status;
    int result = (int)syscall(SYS_fdatasync, fd);
    if (witness && fstat(fd, &status) == 0)
        atomic_store(&witness->synced_bytes, status.st_size);
    step(DEATH_AFTER_SYNC);
    return result;
}

/* ---- a journal ---- */

static atomic_uint dones, cuts, cut_refuses;
static struct capability_claims asked; /* whether a batch refuses it is counted */

static void on_done(void *cookie UNUSED)
{
    atomic_fetch_add(&dones, 1);
}

static void on_cut(void *context UNUSED, struct marks_batch *batch)
{
    step(DEATH_IN_CUT);
    if (marks_batch_refuses(batch, &asked, clock_wall_ms()))
        atomic_fetch_add(&cut_refuses, 1);
    atomic_fetch_add(&cuts, 1);
    marks_cut_done(batch);
    step(DEATH_AFTER_CUT);
}

static struct marks *open_in(int at, struct error *err)
{
    struct marks_options options = {.folder = at, .cut = on_cut};
    return marks_open(&options, err);
}

static struct marks *open_marks(void)
{
    struct error err = {0};
    struct marks *marks = open_in(folder, &err);
    if (!marks) {
        fprintf(stderr, "open: %s\n", err.message);
        exit(1);
    }
    return marks;
}

static void clear(void)
{
    (void)unlinkat(folder, "marks", 0);
}

static struct capability_claims *claims_of(const char *jti)
{
    static struct capability_claims claims;
    memset(&claims, 0, sizeof claims);
    strcpy(claims.sandbox_id, "sbx_a");
    strcpy(claims.principal, "ann");
    strcpy(claims.thread_id, "t1");
    strcpy(claims.lease, "lse_a");
    strcpy(claims.family, "tok_family");
    snprintf(claims.jti, sizeof claims.jti, "%s", jti);
    claims.epoch = 1;
    claims.issued_at = 1000;
    return &claims;
}

static bool refuses(struct marks *marks, unsigned number)
{
    char jti[32];
    snprintf(jti, sizeof jti, "tok_%u", number);
    return marks_refuses(marks, claims_of(jti), clock_wall_ms());
}

/* Marks after+1..upto, each of the jti tok_<number>. */
static json_t *page_of(const char *ledger, unsigned after, unsigned upto, int64_t until)
{
    json_t *list = json_array();
    for (unsigned i = after + 1; i <= upto; i++) {
        struct mark mark = {.number = i, .kind = MARK_JTI, .before = MARK_ANY_TIME, .until = until};
        snprintf(mark.value, sizeof mark.value, "tok_%u", i);
        json_array_append_new(list, mark_format(&mark));
    }
    return json_pack("{s:s,s:i,s:i,s:o}", "ledger_id", ledger, "after", (int)after, "upto", (int)upto, "marks", list);
}

static json_t *page_with(const char *ledger, unsigned after, const struct mark *mark)
{
    return json_pack("{s:s,s:i,s:i,s:[o]}", "ledger_id", ledger, "after", (int)after, "upto", (int)mark->number,
                     "marks", mark_format(mark));
}

/* Takes the reference; waits until it is settled. */
static bool take(struct marks *marks, json_t *page)
{
    struct error err = {0};
    unsigned before = atomic_load(&dones);
    bool taken = marks_take(marks, page, on_done, NULL, &err);
    json_decref(page);
    for (int i = 0; taken && i < 10000 && atomic_load(&dones) == before; i++)
        usleep(500);
    CHECK(!taken || atomic_load(&dones) == before + 1);
    CHECK(taken || err.kind == ERROR_INVALID);
    return taken;
}

static bool is_at(struct marks *marks, const char *ledger, unsigned cursor)
{
    json_t *position = marks_position(marks);
    const char *id = json_string_value(json_object_get(position, "ledger_id"));
    bool is = id && strcmp(id, ledger) == 0 && json_integer_value(json_object_get(position, "cursor")) == cursor;
    json_decref(position);
    return is;
}

static unsigned cursor_of(struct marks *marks)
{
    json_t *position = marks_position(marks);
    unsigned cursor = (unsigned)json_integer_value(json_object_get(position, "cursor"));
    json_decref(position);
    return cursor;
}

static long bytes_of_file(void)
{
    struct stat status = {0};
    (void)fstatat(folder, "marks", &status, 0);
    return status.st_size;
}

/* ---- pages ---- */

static void test_pages(void)
{
    clear();
    AUTO(marks) *marks = open_marks();
    CHECK(is_at(marks, "", 0) && !refuses(marks, 1));
    CHECK(take(marks, page_of("led_a", 0, 3, UNTIL)));
    CHECK(is_at(marks, "led_a", 3) && refuses(marks, 1) && refuses(marks, 3) && !refuses(marks, 4));
    CHECK(take(marks, page_of("led_a", 5, 6, UNTIL))); /* 4 and 5 are missing: not taken */
    CHECK(is_at(marks, "led_a", 3) && !refuses(marks, 6));
    long bytes = bytes_of_file();
    CHECK(take(marks, page_of("led_a", 0, 3, UNTIL))); /* again */
    CHECK(is_at(marks, "led_a", 3) && bytes_of_file() == bytes);
    CHECK(take(marks, page_of("led_a", 1, 5, UNTIL))); /* half of it again */
    CHECK(is_at(marks, "led_a", 5) && refuses(marks, 5));
    json_t *empty = json_pack("{s:s,s:i,s:i,s:[]}", "ledger_id", "led_a", "after", 5, "upto", 9, "marks");
    CHECK(take(marks, empty)); /* those between have ended */
    CHECK(is_at(marks, "led_a", 9));
    marks_free(TAKE(marks));
    marks = open_marks();
    CHECK(is_at(marks, "led_a", 9) && refuses(marks, 1) && refuses(marks, 5) && !refuses(marks, 6));
}

static void test_invalid(void)
{
    static const char *const PAGES[] = {
        "{}",
        "{\"ledger_id\":\"\",\"after\":0,\"upto\":0,\"marks\":[]}",
        "{\"ledger_id\":\"a b\",\"after\":0,\"upto\":0,\"marks\":[]}",
        "{\"ledger_id\":\"l\",\"after\":2,\"upto\":1,\"marks\":[]}",
        "{\"ledger_id\":\"l\",\"after\":-1,\"upto\":1,\"marks\":[]}",
        "{\"ledger_id\":\"l\",\"after\":0,\"upto\":1,\"marks\":{}}",
        "{\"ledger_id\":\"l\",\"after\":0,\"upto\":1,\"marks\":[{}]}",
        "{\"ledger_id\":\"l\",\"after\":0,\"upto\":1,\"marks\":[{\"n\":2,\"kind\":\"all\",\"value\":\"\",\"until\":5}]"
        "}",
        "{\"ledger_id\":\"l\",\"after\":1,\"upto\":2,\"marks\":[{\"n\":1,\"kind\":\"all\",\"value\":\"\",\"until\":5}]"
        "}",
        "{\"ledger_id\":\"l\",\"after\":0,\"upto\":2,\"marks\":[{\"n\":2,\"kind\":\"all\",\"value\":\"\",\"until\":5},"
        "{\"n\":2,\"kind\":\"all\",\"value\":\"\",\"until\":5}]}",
    };
    clear();
    AUTO(marks) *marks = open_marks();
    unsigned before = atomic_load(&dones);
    for (size_t i = 0; i < sizeof PAGES / sizeof *PAGES; i++) {
        json_error_t wrong;
        bool taken = take(marks, json_loads(PAGES[i], 0, &wrong));
        if (taken)
            fprintf(stderr, "taken: %s\n", PAGES[i]);
        CHECK(!taken);
    }
    CHECK(atomic_load(&dones) == before && is_at(marks, "", 0) && !refuses(marks, 1));
}

static void test_other_ledger(void)
{
    clear();
    AUTO(marks) *marks = open_marks();
    CHECK(take(marks, page_of("led_a", 0, 4, UNTIL)));
    CHECK(take(marks, page_of("led_b", 2, 3, UNTIL))); /* not from its beginning */
    CHECK(is_at(marks, "led_a", 4));
    struct mark other = {.number = 1, .kind = MARK_LEASE, .value = "lse_a", .before = MARK_ANY_TIME, .until = UNTIL};
    CHECK(take(marks, page_with("led_b", 0, &other)));
    CHECK(is_at(marks, "led_b", 1) && refuses(marks, 4) && refuses(marks, 99));
    marks_free(TAKE(marks));
    marks = open_marks();
    struct capability_claims *claims = claims_of("tok_4");
    strcpy(claims->lease, "lse_b");
    CHECK(is_at(marks, "led_b", 1) && marks_refuses(marks, claims, clock_wall_ms()));
    CHECK(take(marks, page_of("led_a", 4, 5, UNTIL))); /* back again: only from the beginning */
    CHECK(is_at(marks, "led_b", 1));
    CHECK(take(marks, page_of("led_a", 0, 5, UNTIL)) && is_at(marks, "led_a", 5));
}

/* Each start of a negotiator may be another ledger: the same marks are not kept once for each. */
static void test_many_ledgers(void)
{
    AUTO(marks_book) *book = marks_book_new();
    for (unsigned ledger = 0; ledger < 20; ledger++) {
        char id[16];
        snprintf(id, sizeof id, "led_%u", ledger);
        marks_book_enter(book, id);
        for (unsigned i = 1; i <= 50; i++) {
            struct mark mark = {.number = i, .kind = MARK_JTI, .before = MARK_ANY_TIME, .until = UNTIL};
            snprintf(mark.value, sizeof mark.value, "tok_%u", i);
            marks_book_add(book, &mark);
        }
    }
    CHECK(marks_book_size(book) == 102);
    CHECK(marks_book_refuses(book, claims_of("tok_50"), clock_wall_ms()));
    char **texts = NULL;
    size_t count = marks_book_records(book, "led_19", 50, &texts);
    AUTO(marks_book) *again = marks_book_new();
    uint64_t cursor = 0;
    for (size_t i = 0; i < count; i++) {
        struct error err = {0};
        CHECK(marks_book_read(again, texts[i], &cursor, &err));
        free(texts[i]);
    }
    free(texts);
    CHECK(cursor == 50 && marks_book_size(again) == marks_book_size(book));
    CHECK_TEXT(marks_book_ledger(again), "led_19");
}

/* ---- epochs, spent tokens, batches ---- */

static void test_epochs(void)
{
    clear();
    AUTO(marks) *marks = open_marks();
    CHECK(marks_epoch(marks, "sbx_a") == 0 && !refuses(marks, 1));
    asked = *claims_of("tok_low");
    asked.issued_at = INT64_MAX; /* whatever it says */
    atomic_store(&cut_refuses, 0);
    marks_raise_epoch(marks, "sbx_a", 3);
    CHECK(marks_epoch(marks, "sbx_a") == 3 && refuses(marks, 1)); /* at once */
    marks_raise_epoch(marks, "sbx_a", 2);
    CHECK(marks_epoch(marks, "sbx_a") == 3);
    marks_free(TAKE(marks)); /* writes what waits */
    marks = open_marks();
    CHECK(marks_epoch(marks, "sbx_a") == 3 && marks_epoch(marks, "sbx_b") == 0);
    struct mark mark = {.number = 1, .kind = MARK_SANDBOX, .value = "sbx_a", .epoch = 5, .until = UNTIL};
    CHECK(take(marks, page_with("led_a", 0, &mark)));
    CHECK(marks_epoch(marks, "sbx_a") == 5);
    CHECK(atomic_load(&cut_refuses) >= 1); /* its streams are cut */
    struct capability_claims *claims = claims_of("tok_high");
    claims->epoch = 5;
    CHECK(!marks_refuses(marks, claims, clock_wall_ms()));
    memset(&asked, 0, sizeof asked);
}

static void test_spent(void)
{
    clear();
    AUTO(marks) *marks = open_marks();
    int64_t now = clock_wall_ms();
    struct mark mark = {.number = 1, .kind = MARK_JTI, .value = "tok_spent", .before = MARK_ANY_TIME, .until = UNTIL};
    mark.from_ms = now + 30000;
    asked = *claims_of("tok_spent");
    atomic_store(&cut_refuses, 0);
    CHECK(take(marks, page_with("led_a", 0, &mark)));
    CHECK(!marks_refuses(marks, &asked, now) && marks_refuses(marks, &asked, now + 30000));
    CHECK(atomic_load(&cut_refuses) == 0); /* a stream goes on under the token it began with */
    memset(&asked, 0, sizeof asked);
}

/* The end comes while nobody says marks_cut_done: no waiting, no acknowledgement, and the batch is freed. */
static _Atomic(struct marks_batch *) kept;

static void keep(void *context UNUSED, struct marks_batch *batch)
{
    atomic_store(&kept, batch);
}

static void test_end_within_a_cut(void)
{
    clear();
    struct marks_options options = {.folder = folder, .cut = keep};
    struct error err = {0};
    AUTO(marks) *marks = marks_open(&options, &err);
    json_t *page = page_of("led_a", 0, 1, UNTIL), *second = page_of("led_a", 1, 2, UNTIL);
    atomic_store(&dones, 0);
    CHECK(marks_take(marks, page, on_done, NULL, &err) && marks_take(marks, second, on_done, NULL, &err));
    json_decref(page);
    json_decref(second);
    while (!atomic_load(&kept))
        usleep(500);
    CHECK(refuses(marks, 1) && is_at(marks, "", 0)); /* in force, not acknowledged */
    struct marks_batch *first = atomic_exchange(&kept, NULL);
    marks_free(TAKE(marks));
    CHECK(atomic_load(&dones) == 2); /* told all the same */
    marks_cut_done(first);
    if (atomic_load(&kept))
        marks_cut_done(atomic_load(&kept));
    marks = open_marks();
    CHECK(refuses(marks, 1) && !refuses(marks, 2)); /* the first was not acknowledged: the second had to wait */
}

/* ---- the file ---- */

static void put_file(int at, const char *data, size_t size)
{
    int fd = openat(at, "marks", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct error err = {0};
    CHECK(fd >= 0 && fd_write_all(fd, data, size, &err));
    close(fd);
}

static char *get_file(size_t *size)
{
    *size = (size_t)bytes_of_file();
    char *data = memory_new(*size + 1);
    int fd = openat(folder, "marks", O_RDONLY | O_CLOEXEC);
    CHECK(read(fd, data, *size) == (ssize_t)*size);
    close(fd);
    return data;
}

/* Cut anywhere: what was acknowledged by then is there, and the rest can be taken again. */
static void test_torn(void)
{
    enum { PAGES = 6 };
    clear();
    long sizes[PAGES + 1] = {0};
    AUTO(marks) *marks = open_marks();
    for (unsigned i = 1; i <= PAGES; i++) {
        CHECK(take(marks, page_of(i < 4 ? "led_a" : "led_b", i == 4 ? 0 : (i - 1) * 2, i * 2, UNTIL)));
        sizes[i] = bytes_of_file();
    }
    marks_free(TAKE(marks));
    size_t size;
    AUTO_FREE char *whole = get_file(&size);
    for (size_t length = 0; length <= size; length += 5) {
        put_file(folder, whole, length);
        marks = open_marks();
        unsigned pages = 0;
        while (pages < PAGES && sizes[pages + 1] <= (long)length)
            pages++;
        CHECK(cursor_of(marks) >= (pages < 4 ? 0 : 2 * pages));
        for (unsigned i = 1; i <= pages * 2; i++)
            CHECK(refuses(marks, i));
        if (length % 100 == 0) {
            CHECK(take(marks, page_of("led_b", 0, 2 * PAGES, UNTIL)) && is_at(marks, "led_b", 2 * PAGES));
            CHECK(refuses(marks, 2 * PAGES));
        }
        marks_free(TAKE(marks));
    }
}

static void test_damaged(void)
{
    clear();
    AUTO(marks) *marks = open_marks();
    CHECK(take(marks, page_of("led_a", 0, 5, UNTIL)));
    marks_free(TAKE(marks));
    size_t size;
    AUTO_FREE char *whole = get_file(&size);
    for (size_t at = 0; at < size / 2; at += 11) {
        whole[at] ^= 4;
        put_file(folder, whole, size);
        struct error err = {0};
        marks = open_in(folder, &err);
        CHECK(marks == NULL && err.kind == ERROR_INTERNAL && strstr(err.message, "marks"));
        whole[at] ^= 4;
        marks_free(TAKE(marks));
    }
    put_file(folder, whole, size);
    marks = open_marks();
    CHECK(refuses(marks, 5));
}

/* A mark that cannot be written is in force, but not acknowledged; later it is. */
static void test_full(void)
{
    clear();
    AUTO(marks) *marks = open_marks();
    CHECK(take(marks, page_of("led_a", 0, 5, UNTIL)));
    struct rlimit before, tight;
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    tight = before;
    tight.rlim_cur = (rlim_t)bytes_of_file() + 150;
    CHECK(setrlimit(RLIMIT_FSIZE, &tight) == 0);
    CHECK(take(marks, page_of("led_a", 5, 9, UNTIL)));
    CHECK(is_at(marks, "led_a", 5) && refuses(marks, 9));
    CHECK(take(marks, page_of("led_b", 0, 9, UNTIL)) && is_at(marks, "led_a", 5) && refuses(marks, 9));
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(take(marks, page_of("led_a", 5, 9, UNTIL)));
    CHECK(is_at(marks, "led_a", 9));
    marks_free(TAKE(marks));
    marks = open_marks();
    CHECK(is_at(marks, "led_a", 9) && refuses(marks, 1) && refuses(marks, 9));
}

/* ---- kill -9 ---- */

/* Takes pages of two until it dies, and tells what it saw acknowledged. */
static void live_and_die(enum death how, int after)
{
    AUTO(marks) *marks = open_marks();
    unsigned from = cursor_of(marks);
    death = how;
    atomic_store(&death_after, after);
    for (unsigned at = from; at < from + 100; at += 2) {
        if (!take(marks, page_of("led_k", at, at + 2, UNTIL)))
            _exit(3);
        atomic_store(&witness->acknowledged, cursor_of(marks));
    }
    _exit(4); /* it should not have lived */
}

static void check_after_death(unsigned acknowledged, unsigned in_force)
{
    AUTO(marks) *marks = open_marks();
    CHECK(acknowledged == 0 || cursor_of(marks) >= acknowledged);
    for (unsigned i = 1; i <= in_force; i++)
        CHECK(refuses(marks, i));
}

static void test_kill(enum death how, bool power_lost)
{
    clear();
    atomic_store(&witness->acknowledged, 0);
    for (int round = 1; round <= 6; round++) {
        pid_t child = fork();
        if (child == 0)
            live_and_die(how, round);
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        unsigned acknowledged = atomic_load(&witness->acknowledged);
        int fd = openat(folder, "marks", O_WRONLY | O_CLOEXEC);
        CHECK(!power_lost || ftruncate(fd, atomic_load(&witness->synced_bytes)) == 0);
        close(fd);
        /* The page that it died in was written: a kill does not take that away. */
        check_after_death(acknowledged, power_lost ? acknowledged : acknowledged + 2);
    }
    CHECK(atomic_load(&witness->acknowledged) > 2);
}

/* ---- many ---- */

static void test_many(void)
{
    enum { COUNT = 20000, PAGE = 2000 };
    clear();
    AUTO(marks) *marks = open_marks();
    uint64_t began = clock_monotonic_ns();
    for (unsigned i = 0; i < COUNT; i += PAGE)
        CHECK(take(marks, page_of("led_a", i, i + PAGE, UNTIL)));
    uint64_t taken = clock_monotonic_ns();
    CHECK(is_at(marks, "led_a", COUNT));
    marks_free(TAKE(marks));
    uint64_t freed = clock_monotonic_ns();
    marks = open_marks();
    uint64_t opened = clock_monotonic_ns();
    for (unsigned i = 1; i <= COUNT; i++)
        CHECK(refuses(marks, i));
    CHECK(!refuses(marks, COUNT + 1));
    printf("%d marks: taken in %llu ms, read in %llu ms\n", COUNT, (unsigned long long)(taken - began) / 1000000,
           (unsigned long long)(opened - freed) / 1000000);
    CHECK(opened - freed < UINT64_C(10000000000));
}

/* Marks that are over are forgotten, and the file does not grow for ever. */
static void test_forgetting(void)
{
    clear();
    AUTO(marks) *marks = open_marks();
    int64_t over = clock_wall_ms() / 1000 - 100;
    for (unsigned i = 0; i < 8000; i += 2000)
        CHECK(take(marks, page_of("led_a", i, i + 2000, over)));
    CHECK(take(marks, page_of("led_a", 8000, 8001, UNTIL)));
    long before = bytes_of_file();
    marks_free(TAKE(marks));
    marks = open_marks();
    CHECK(refuses(marks, 8000)); /* only our own clock says that it is over, and it may be wrong */
    marks_tell_time(marks, (over - 10) * 1000);
    CHECK(take(marks, page_of("led_a", 8001, 8002, UNTIL)));
    CHECK(refuses(marks, 8000));
    marks_tell_time(marks, clock_wall_ms());
    CHECK(take(marks, page_of("led_a", 8001, 8002, UNTIL))); /* is not taken; the thread has been round */
    CHECK(take(marks, page_of("led_a", 8001, 8002, UNTIL)));
    CHECK(bytes_of_file() < before / 100);
    CHECK(is_at(marks, "led_a", 8002) && refuses(marks, 8001) && !refuses(marks, 8000));
    marks_free(TAKE(marks));
    marks = open_marks();
    CHECK(is_at(marks, "led_a", 8002) && refuses(marks, 8001) && refuses(marks, 8002));
    CHECK(take(marks, page_of("led_a", 8002, 8003, UNTIL))); /* the new file is as good */
    marks_free(TAKE(marks));
    marks = open_marks();
    CHECK(is_at(marks, "led_a", 8003) && refuses(marks, 8002) && refuses(marks, 8003));
}

/* Loops ask while pages come: for sanitizers, and no mark is ever out of force again. */
static atomic_bool asking;

static void *ask(void *cookie)
{
    struct marks *marks = cookie;
    bool was_refused = false;
    while (atomic_load(&asking)) {
        bool is_refused = marks_refuses(marks, &asked, clock_wall_ms());
        CHECK(is_refused || !was_refused);
        was_refused = is_refused;
    }
    return NULL;
}

static void test_threads(void)
{
    clear();
    AUTO(marks) *marks = open_marks();
    pthread_t threads[3];
    asked = *claims_of("tok_1");
    atomic_store(&asking, true);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, ask, marks) == 0);
    for (unsigned i = 0; i < 20; i++)
        CHECK(take(marks, page_of(i < 10 ? "led_a" : "led_b", i % 10 * 10, (i % 10 + 1) * 10, UNTIL)));
    atomic_store(&asking, false);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    struct error err = {0};
    keys_start();
    witness = mmap(NULL, sizeof *witness, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (witness == MAP_FAILED || !mkdtemp(folder_path))
        return 1;
    folder = open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    test_pages();
    test_invalid();
    test_other_ledger();
    test_many_ledgers();
    test_epochs();
    test_spent();
    test_end_within_a_cut();
    test_torn();
    test_damaged();
    test_full();
    test_kill(DEATH_BEFORE_SYNC, false);
    test_kill(DEATH_BEFORE_SYNC, true);
    test_kill(DEATH_AFTER_SYNC, false);
    test_kill(DEATH_AFTER_SYNC, true);
    test_kill(DEATH_IN_CUT, true);
    test_kill(DEATH_AFTER_CUT, true);
    test_threads();
    test_many();
    test_forgetting();
    close(folder);
    CHECK(fd_remove_tree(folder_path, &err));
    return check_done();
}
