/* spool_test.c - what was acknowledged is there after a kill and under its number, and nothing twice; a full or damaged
 * spool says so; floods are summed. */
#include "sandboxd/journal/spool.h"

#include "sandboxd/journal/journal_file.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static char folder_path[64];
static int folder = -1;

/* ---- a folder for each test ---- */

static void open_folder(void)
{
    CHECK(text_format(folder_path, sizeof folder_path, "/tmp/spool-test-XXXXXX"));
    CHECK(mkdtemp(folder_path) != NULL);
    folder = open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC); /* as the front has it */
}

static void close_folder(void)
{
    struct error err = {0};
    close(folder);
    CHECK(fd_remove_tree(folder_path, &err));
}

static void nap(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static struct spool *open_spool(uint64_t bytes_max, bool always)
{
    struct spool_options options = {.folder = folder, .sync_always = always, .bytes_max = bytes_max};
    struct error err = {0};
    struct spool *spool = spool_open(&options, &err);
    CHECK(spool != NULL);
    CHECK_TEXT(err.message, "");
    return spool;
}

/* How many names in the folder begin with this. */
static size_t count_names(const char *prefix)
{
    size_t count = 0;
    DIR *list = opendir(folder_path);
    for (const struct dirent *entry; list && (entry = readdir(list));)
        count += text_starts_with(entry->d_name, prefix);
    closedir(list);
    return count;
}

/* The segments' names have 16 hex digits. */
static size_t count_segments(void)
{
    return count_names("spool-0");
}

/* ---- the negotiator: takes all there is and checks the numbers ---- */

struct taken {
    char id[32];
    uint64_t last; /* n */
    json_t *all;   /* of the records */
};

static void take_batch(struct taken *taken, const json_t *batch)
{
    const char *id = json_string_value(json_object_get(batch, "spool"));
    if (!text_equal(id, taken->id)) {
        taken->last = 0;
        CHECK(text_copy(taken->id, sizeof taken->id, id));
    }
    size_t index;
    json_t *record;
    json_array_foreach (json_object_get(batch, "records"), index, record) {
        uint64_t n = (uint64_t)json_integer_value(json_object_get(record, "n"));
        if (n <= taken->last)
            continue; /* shipped twice, stored once */
        CHECK(n == taken->last + 1);
        taken->last = n;
        json_array_append(taken->all, record);
    }
}

/* Until `count` are there, or a few seconds passed, and nothing more comes. */
static void take_all(struct spool *spool, struct taken *taken, size_t count)
{
    if (!taken->all)
        taken->all = json_array();
    for (int tries = 0; tries < 500; tries++) {
        json_t *batch = spool_next(spool, 100);
        if (!batch && json_array_size(taken->all) >= count)
            break;
        if (!batch) {
            nap(10);
            continue;
        }
        take_batch(taken, batch);
        json_decref(batch);
        spool_shipped(spool, taken->id, taken->last);
        tries = 0;
    }
    CHECK(json_array_size(taken->all) >= count);
}

static const char *text_of(const struct taken *taken, size_t i, const char *name)
{
    const char *text = json_string_value(json_object_get(json_array_get(taken->all, i), name));
    return text ? text : "(none)";
}

static void add(struct spool *spool, const char *action, const char *detail)
{
    struct spool_record record = {.action = action, .outcome = "ok", .sandbox_id = "sbx_a", .detail = detail};
    struct error err = {0};
    CHECK(spool_add(spool, &record, &err));
    CHECK_TEXT(err.message, "");
}

static void add_numbers(struct spool *spool, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char detail[32];
        snprintf(detail, sizeof detail, "%u", i);
        add(spool, "exec", detail);
    }
}

static void check_numbers(const struct taken *taken, size_t start, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char detail[32];
        snprintf(detail, sizeof detail, "%u", i);
        CHECK_TEXT(text_of(taken, start + i - from, "detail"), detail);
    }
}

/* ---- the tests ---- */

static void test_record_whole(void)
{
    open_folder();
    AUTO(spool) *spool = open_spool(1 << 20, false);
    CHECK(spool_next(spool, 10) == NULL);
    struct spool_record record = {.action = "exec",
                                  .outcome = "ok",
                                  .status = 201,
                                  .principal = "ada",
                                  .actor = "agent:a\"b\\c",
                                  .jti = "tok_1",
                                  .detail = "line\nbreak \x01 \x7f \xc3\xa9 \xff\xfe end"};
    struct error err = {0};
    int64_t before = clock_wall_ms();
    CHECK(spool_add(spool, &record, &err));
    struct taken taken = {0};
    take_all(spool, &taken, 1);
    const json_t *one = json_array_get(taken.all, 0);
    CHECK_TEXT(text_of(&taken, 0, "action"), "exec");
    CHECK_TEXT(text_of(&taken, 0, "actor"), "agent:a\"b\\c");
    CHECK_TEXT(text_of(&taken, 0, "detail"), "line\nbreak \x01 \x7f \xc3\xa9 ?? end");
    CHECK_TEXT(text_of(&taken, 0, "lease"), "");
    CHECK_TEXT(text_of(&taken, 0, "request_id"), "");
    CHECK(json_integer_value(json_object_get(one, "status")) == 201);
    CHECK(json_integer_value(json_object_get(one, "n")) == 1);
    int64_t time = json_integer_value(json_object_get(one, "time"));
    CHECK(time >= before && time <= clock_wall_ms());
    CHECK(json_object_size(one) == 16);
    json_decref(taken.all);
    close_folder();
}

/* The longest of everything fits, cut at whole characters. */
static void test_record_cut(void)
{
    open_folder();
    AUTO(spool) *spool = open_spool(1 << 20, false);
    char *huge = malloc(100001);
    for (size_t i = 0; i < 100000; i += 2)
        memcpy(huge + i, "\xc3\xa9", 2);
    huge[100000] = '\0';
    struct spool_record record = {.action = huge, .outcome = huge, .principal = huge, .scope = huge, .detail = huge};
    struct error err = {0};
    CHECK(spool_add(spool, &record, &err));
    memset(huge, 1, 100000);
    record = (struct spool_record){huge, huge, 999, huge, huge, huge, huge, huge, huge, huge, huge, huge, huge, huge};
    CHECK(spool_add(spool, &record, &err));
    free(huge);
    struct taken taken = {0};
    take_all(spool, &taken, 2);
    CHECK(strlen(text_of(&taken, 0, "principal")) == 254);
    CHECK(strlen(text_of(&taken, 0, "detail")) == SPOOL_DETAIL_MAX);
    CHECK(strlen(text_of(&taken, 1, "detail")) == SPOOL_DETAIL_MAX);
    CHECK(strlen(text_of(&taken, 1, "links")) == 512);
    json_decref(taken.all);
    close_folder();
}

static void test_goes_on_after_restart(void)
{
    open_folder();
    struct taken taken = {0};
    AUTO(spool) *spool = open_spool(1 << 20, false);
    add_numbers(spool, 0, 500);
    take_all(spool, &taken, 500);
    struct spool_figures figures;
    spool_figures(spool, &figures);
    CHECK(figures.records == 0 && figures.bytes == 0);
    spool_free(TAKE(spool));
    for (unsigned round = 0; round < 5; round++) {
        spool = open_spool(1 << 20, false);
        add_numbers(spool, 500 + round * 10, 510 + round * 10);
        if (round % 2) /* a part stays for the next one */
            take_all(spool, &taken, 500 + round * 10);
        spool_free(TAKE(spool));
    }
    spool = open_spool(1 << 20, false);
    take_all(spool, &taken, 550);
    CHECK(json_array_size(taken.all) == 550 && taken.last == 550);
    check_numbers(&taken, 0, 0, 550);
    json_decref(taken.all);
    close_folder();
}

/* Segments of 64 KiB: shipped ones go, numbers go on though all were shipped. */
static void test_segments(void)
{
    open_folder();
    struct taken taken = {0};
    AUTO(spool) *spool = open_spool(512 << 10, false);
    char filler[1001];
    memset(filler, 'f', 1000);
    filler[1000] = '\0';
    for (int i = 0; i < 300; i++) {
        add(spool, "exec", filler);
        if (i % 70 == 0)
            nap(80); /* for the sync thread to begin another one */
    }
    nap(120);
    CHECK(count_segments() >= 3);
    take_all(spool, &taken, 300);
    CHECK(json_array_size(taken.all) == 300 && taken.last == 300);
    for (int i = 0; i < 3 && count_segments() > 1; i++) {
        add(spool, "exec", "one more");
        nap(120);
        take_all(spool, &taken, 301 + (size_t)i);
    }
    CHECK(count_segments() == 1);
    uint64_t last = taken.last;
    spool_free(TAKE(spool));
    spool = open_spool(512 << 10, false);
    add(spool, "exec", "after");
    take_all(spool, &taken, (size_t)last + 1);
    CHECK(taken.last == last + 1);
    json_decref(taken.all);
    close_folder();
}

/* One sandbox fills what it may while the negotiator is away; the others go on, each with its part. */
static void test_shares(void)
{
    open_folder();
    AUTO(spool) *spool = open_spool(1 << 20, false);
    struct spool_figures figures;
    struct error err = {0};
    uint64_t before = 0;
    static const char *const IDS[] = {"sbx_a", "sbx_b", "sbx_c"};
    for (unsigned i = 0; i < 3; i++) {
        struct spool_record record = {.action = "exec", .sandbox_id = IDS[i], .detail = "id=x "};
        unsigned added = 0;
        err = (struct error){0};
        while (added < 100000 && spool_add(spool, &record, &err))
            added++;
        spool_figures(spool, &figures);
        uint64_t left = (1 << 20) - figures.bytes, took = figures.bytes - (before > 1 << 19 ? before : 1 << 19);
        CHECK(err.kind == ERROR_DISK_FULL && strstr(err.message, "too many of this sandbox") != NULL);
        CHECK(added > 100 && took > left - left / 8 && took < left + left / 8);
        before = figures.bytes;
    }
    struct spool_record first = {.action = "exec", .sandbox_id = IDS[0], .detail = "id=x "};
    CHECK(!spool_add(spool, &first, &err));
    struct taken taken = {0};
    take_all(spool, &taken, figures.records); /* the negotiator is back: all as before */
    CHECK(spool_add(spool, &first, &err));
    json_decref(taken.all);
    close_folder();
}

static void test_full_refuses(void)
{
    open_folder();
    AUTO(spool) *spool = open_spool(1 << 20, false);
    struct spool_record record = {.action = "exec", .outcome = "ok", .detail = "id=x "};
    struct error err = {0};
    unsigned added = 0;
    while (added < 100000 && spool_add(spool, &record, &err))
        added++;
    record.sandbox_id = "sbx_a";
    CHECK(added > 5000 && added < 100000);
    CHECK(err.kind == ERROR_DISK_FULL);
    CHECK(strstr(err.message, "1 MiB of them wait for the negotiator") != NULL);
    struct spool_figures figures;
    spool_figures(spool, &figures);
    CHECK(figures.records == added && figures.refused_full == 1 && figures.bytes <= 1 << 20);
    record.action = "exec.end"; /* what has happened is still told */
    spool_end(spool, &record, "x");
    CHECK(spool_knows_end(spool, "sbx_a", "x") && !spool_knows_end(spool, "sbx_a", "y"));
    for (int i = 0; i < 3000; i++)
        spool_end(spool, &record, "x");
    spool_figures(spool, &figures);
    CHECK(figures.bytes <= (1 << 20) + (1 << 16));
    struct taken taken = {0};
    take_all(spool, &taken, added + 1);
    CHECK(spool_add(spool, &record, &err)); /* there is room again */
    nap(1200);
    take_all(spool, &taken, added + 3);
    size_t last = json_array_size(taken.all) - 1;
    bool told = text_equal(text_of(&taken, last, "action"), "spool.lost") ||
                text_equal(text_of(&taken, last - 1, "action"), "spool.lost");
    CHECK(told);
    json_decref(taken.all);
    close_folder();
}

static void test_refusals_are_summed(void)
{
    open_folder();
    AUTO(spool) *spool = open_spool(1 << 20, false);
    struct spool_record record = {.action = "refuse", .outcome = "refused", .detail = "reason=wrong_mac"};
    int64_t second = clock_wall_ms() / 1000;
    while (clock_wall_ms() / 1000 == second)
        nap(1);
    for (int i = 0; i < 5000; i++)
        spool_refusal(spool, &record);
    bool one_second = clock_wall_ms() / 1000 == second + 1;
    struct taken taken = {0};
    nap(2200);
    take_all(spool, &taken, SPOOL_REFUSALS_MAX + 1);
    size_t count = json_array_size(taken.all);
    unsigned long long own = 0, summed = 0;
    for (size_t i = 0; i < count; i++) {
        const char *detail = text_of(&taken, i, "detail");
        if (text_starts_with(detail, "count="))
            summed += strtoull(detail + 6, NULL, 10);
        else
            own++;
    }
    CHECK(own + summed == 5000);
    CHECK(!one_second || own == SPOOL_REFUSALS_MAX);
    json_decref(taken.all);
    close_folder();
}

/* Refusals fill half of it, and deeds go on. */
static void test_refusals_leave_room(void)
{
    open_folder();
    AUTO(spool) *spool = open_spool(16 << 10, false);
    char filler[200];
    memset(filler, 'f', sizeof filler);
    filler[sizeof filler - 1] = '\0';
    struct spool_record record = {.action = "refuse", .outcome = "refused", .detail = filler};
    for (int i = 0; i < 190; i++)
        spool_refusal(spool, &record);
    struct spool_figures figures;
    spool_figures(spool, &figures);
    CHECK(figures.bytes <= 8 << 10 && figures.records < 40);
    add_numbers(spool, 0, 20);
    close_folder();
}

static void test_reads_are_counted(void)
{
    open_folder();
    AUTO(spool) *spool = open_spool(1 << 20, false);
    struct spool_record record = {.action = "read", .outcome = "ok", .principal = "ada", .detail = "/s/{sandbox}/info"};
    for (int i = 0; i < 3000; i++) {
        record.jti = i % 3 == 0 ? "tok_a" : "tok_b";
        spool_read(spool, &record);
    }
    nap(2200);
    struct taken taken = {0};
    take_all(spool, &taken, 2);
    unsigned long long counts[2] = {0};
    CHECK(json_array_size(taken.all) <= 6);
    for (size_t i = 0; i < json_array_size(taken.all); i++) {
        const char *detail = text_of(&taken, i, "detail");
        CHECK(text_starts_with(detail, "count=") && strstr(detail, "first=/s/{sandbox}/info"));
        CHECK_TEXT(text_of(&taken, i, "principal"), "ada");
        counts[text_equal(text_of(&taken, i, "jti"), "tok_b")] += strtoull(detail + 6, NULL, 10);
    }
    CHECK(counts[0] == 1000 && counts[1] == 2000);
    /* What is counted at the end is written at the end. */
    spool_read(spool, &record);
    spool_free(TAKE(spool));
    spool = open_spool(1 << 20, false);
    take_all(spool, &taken, 3);
    json_decref(taken.all);
    close_folder();
}

static void test_many_tokens_read(void)
{
    open_folder();
    AUTO(spool) *spool = open_spool(16 << 20, false);
    unsigned long long told = 0;
    for (int i = 0; i < 6000; i++) {
        char jti[32];
        snprintf(jti, sizeof jti, "tok_%d", i);
        struct spool_record record = {.action = "read", .outcome = "ok", .jti = jti};
        spool_read(spool, &record);
    }
    nap(2200);
    struct taken taken = {0};
    take_all(spool, &taken, 4096);
    for (size_t i = 0; i < json_array_size(taken.all); i++)
        told += strtoull(text_of(&taken, i, "detail") + 6, NULL, 10);
    CHECK(told == 6000);
    json_decref(taken.all);
    close_folder();
}

/* ---- damage ---- */

static void damage(const char *name, size_t at)
{
    AUTO_FD int fd = openat(folder, name, O_RDWR | O_CLOEXEC);
    char byte = 0;
    CHECK(pread(fd, &byte, 1, (off_t)at) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, (off_t)at) == 1);
}

static void check_begun_anew(struct spool *spool, const char *old_id)
{
    struct taken taken = {0};
    take_all(spool, &taken, 1);
    CHECK(strcmp(taken.id, old_id) != 0);
    CHECK_TEXT(text_of(&taken, 0, "action"), "spool.damaged");
    CHECK(count_names("damaged-") > 0);
    add(spool, "exec", "goes on");
    take_all(spool, &taken, 2);
    CHECK(taken.last == 2);
    json_decref(taken.all);
}

static void test_damaged_is_set_aside(void)
{
    const char *const names[] = {"spool-0000000000000001", "spool-head"};
    for (int i = 0; i < 2; i++) {
        open_folder();
        struct taken taken = {0};
        AUTO(spool) *spool = open_spool(1 << 20, false);
        add_numbers(spool, 0, 10);
        take_all(spool, &taken, 10);
        add_numbers(spool, 10, 20);
        spool_free(TAKE(spool));
        damage(names[i], 5);
        spool = open_spool(1 << 20, false);
        check_begun_anew(spool, taken.id);
        json_decref(taken.all);
        close_folder();
    }
    open_folder(); /* a segment that is not there any more */
    struct taken taken = {0};
    AUTO(spool) *spool = open_spool(1 << 20, false);
    add_numbers(spool, 0, 10);
    take_all(spool, &taken, 10);
    spool_free(TAKE(spool));
    CHECK(unlinkat(folder, names[0], 0) == 0);
    spool = open_spool(1 << 20, false);
    check_begun_anew(spool, taken.id);
    json_decref(taken.all);
    close_folder();
}

/* Killed at the first start: what is there is a beginning, and no damage. */
static void test_half_begun(void)
{
    const char *const names[] = {"spool-0000000000000001", "spool-head"};
    for (int made = 1; made <= 2; made++) {
        open_folder();
        for (int i = 0; i < made; i++)
            close(openat(folder, names[i], O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        struct taken taken = {0};
        AUTO(spool) *spool = open_spool(1 << 20, false);
        add(spool, "exec", "first");
        take_all(spool, &taken, 1);
        CHECK_TEXT(text_of(&taken, 0, "action"), "exec");
        CHECK(taken.last == 1 && count_names("damaged-") == 0);
        json_decref(taken.all);
        close_folder();
    }
}

/* The disk loses what was written while the program runs. */
static void test_damaged_under_way(void)
{
    open_folder();
    struct taken taken = {0};
    AUTO(spool) *spool = open_spool(1 << 20, false);
    add_numbers(spool, 0, 10);
    take_all(spool, &taken, 10);
    add_numbers(spool, 10, 20);
    nap(150);
    struct stat status;
    CHECK(fstatat(folder, "spool-0000000000000001", &status, 0) == 0);
    damage("spool-0000000000000001", (size_t)status.st_size - 30);
    check_begun_anew(spool, taken.id);
    json_decref(taken.all);
    close_folder();
}

/* The other side was set back, or this one. */
static void test_renumbered(void)
{
    for (int i = 0; i < 2; i++) {
        open_folder();
        struct taken taken = {0}, later = {0};
        AUTO(spool) *spool = open_spool(1 << 20, false);
        add_numbers(spool, 0, 10);
        take_all(spool, &taken, 10);
        add_numbers(spool, 10, 20);
        spool_shipped(spool, "spl_00000000000000000000", 3); /* of another one: nothing happens */
        spool_shipped(spool, taken.id, i == 0 ? 3 : 500);
        take_all(spool, &later, 11);
        CHECK(strcmp(later.id, taken.id) != 0 && later.last == 11);
        check_numbers(&later, 0, 10, 20);
        CHECK_TEXT(text_of(&later, 10, "action"), "spool.renumbered");
        spool_free(TAKE(spool));
        spool = open_spool(1 << 20, false);
        add_numbers(spool, 20, 21);
        take_all(spool, &later, 12);
        CHECK(later.last == 12);
        json_decref(taken.all);
        json_decref(later.all);
        close_folder();
    }
}

/* ---- ends ---- */

static void test_ends_are_known(void)
{
    open_folder();
    AUTO(spool) *spool = open_spool(512 << 10, false);
    struct taken taken = {0};
    char id[32], detail[1100];
    size_t count = 0;
    for (int i = 0; i < 400; i++) {
        snprintf(id, sizeof id, "exe_%d", i);
        snprintf(detail, sizeof detail, "id=%s exit=0 %0*d", id, 1000, 0);
        struct spool_record record = {.action = "exec.end", .sandbox_id = "sbx_a", .detail = detail};
        spool_end(spool, &record, id);
        count++;
        if (i % 65 == 64) {
            nap(120);
            take_all(spool, &taken, count);
        }
    }
    take_all(spool, &taken, count);
    nap(120);
    CHECK(taken.last == 400 && count_segments() <= 2);
    spool_free(TAKE(spool));
    for (int round = 0; round < 3; round++) { /* most of their segments are gone */
        spool = open_spool(512 << 10, false);
        CHECK(spool_knows_end(spool, "sbx_a", "exe_0") && spool_knows_end(spool, "sbx_a", "exe_399"));
        CHECK(spool_knows_end(spool, "sbx_a", "exe_200") && !spool_knows_end(spool, "sbx_a", "exe_400"));
        CHECK(!spool_knows_end(spool, "sbx_b", "exe_0"));
        spool_free(TAKE(spool));
    }
    json_decref(taken.all);
    close_folder();
}

/* ---- disks ---- */

static void test_disk_full(void)
{
    open_folder();
    struct taken taken = {0};
    AUTO(spool) *spool = open_spool(1 << 20, false);
    add_numbers(spool, 0, 10);
    struct rlimit old, small;
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = old;
    small.rlim_cur = 2500;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    unsigned added = 10;
    struct spool_record record = {.action = "exec", .outcome = "ok", .sandbox_id = "sbx_a"};
    struct error err = {0};
    char detail[32];
    for (; added < 100; added++) {
        snprintf(detail, sizeof detail, "%u", added);
        record.detail = detail;
        if (!spool_add(spool, &record, &err))
            break;
    }
    CHECK(added > 10 && added < 100 && err.kind == ERROR_DISK_FULL);
    CHECK(strstr(err.message, "nothing is done without an audit record") != NULL);
    CHECK(!spool_add(spool, &record, &err));
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    add_numbers(spool, added, added + 10);
    take_all(spool, &taken, added + 10);
    check_numbers(&taken, 0, 0, added + 10);
    CHECK(taken.last == added + 10);
    json_decref(taken.all);
    close_folder();
}

/* A disk that is really full: 256 KiB of tmpfs. */
static void test_tiny_disk(void)
{
    open_folder();
    if (mount("tiny", folder_path, "tmpfs", 0, "size=256k") != 0) {
        (void)printf("no right to mount: the tiny disk was left out\n");
        close_folder();
        return;
    }
    close(folder);
    folder = open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct taken taken = {0};
    AUTO(spool) *spool = open_spool(1 << 20, false);
    struct spool_record record = {.action = "exec", .outcome = "ok", .detail = folder_path};
    struct error err = {0};
    unsigned added = 0;
    while (added < 100000 && spool_add(spool, &record, &err))
        added++;
    CHECK(added > 1000 && added < 100000 && err.kind == ERROR_DISK_FULL);
    take_all(spool, &taken, added);
    spool_free(TAKE(spool));
    spool = open_spool(1 << 20, false);
    take_all(spool, &taken, added);
    CHECK(taken.last == added);
    for (int i = 0; i < 20 && !spool_add(spool, &record, &err); i++)
        nap(50);
    take_all(spool, &taken, added + 1); /* the shipped segment went, and with it the want */
    spool_free(TAKE(spool));
    json_decref(taken.all);
    (void)umount2(folder_path, MNT_DETACH);
    close_folder();
}

/* ---- syncing ---- */

static void test_synced_before_shipped(void)
{
    open_folder();
    for (int always = 0; always < 2; always++) {
        AUTO(spool) *spool = open_spool(1 << 20, always);
        struct taken taken = {0};
        nap(100);
        uint64_t start = clock_monotonic_ns();
        add(spool, "exec", "x");
        json_t *batch = spool_next(spool, 10);
        CHECK((batch != NULL) == (always == 1)); /* an unsynced one is not told to anybody */
        json_decref(batch);
        take_all(spool, &taken, 1);
        CHECK(clock_monotonic_ns() - start < UINT64_C(1000000000));
        json_decref(taken.all);
        spool_free(TAKE(spool));
        CHECK(unlinkat(folder, "spool-head", 0) == 0 && unlinkat(folder, "spool-0000000000000001", 0) == 0);
    }
    close_folder();
}

static atomic_uint woken;

static void on_grown(void *context UNUSED)
{
    woken++;
}

static void test_grown(void)
{
    open_folder();
    struct spool_options options = {.folder = folder, .bytes_max = 1 << 20, .grown = on_grown};
    struct error err = {0};
    AUTO(spool) *spool = spool_open(&options, &err);
    nap(200);
    unsigned before = woken;
    add_numbers(spool, 0, 100);
    nap(200);
    CHECK(woken > before && woken - before < 20);
    close_folder();
}

/* ---- kill -9 ---- */

static void write_for_ever(int pipe, unsigned from, bool always)
{
    struct spool_options options = {.folder = folder, .bytes_max = 64 << 10 << 3, .sync_always = always};
    struct error err = {0};
    struct spool *spool = spool_open(&options, &err);
    for (unsigned i = from; spool; i++) {
        char detail[600];
        snprintf(detail, sizeof detail, "%u %0*u", i, (int)(i % 500), 0u);
        struct spool_record record = {.action = "exec", .detail = detail};
        if (!spool_add(spool, &record, &err) || write(pipe, &i, sizeof i) != (ssize_t)sizeof i)
            break;
    }
    _exit(1);
}

/* The killed one said up to `acknowledged`; the next one has all of them, in order, under numbers without a gap. */
static void test_killed_writer(bool always)
{
    open_folder();
    struct taken taken = {0};
    unsigned next = 0;
    for (unsigned round = 0; round < 25; round++) {
        int ends[2];
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        pid_t child = fork();
        if (child == 0)
            write_for_ever(ends[1], next, always);
        close(ends[1]);
        nap(2 + (long)(round * 37) % 90);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        unsigned said = 0, acknowledged = next;
        while (read(ends[0], &said, sizeof said) == (ssize_t)sizeof said)
            acknowledged = said + 1;
        close(ends[0]);
        AUTO(spool) *spool = open_spool(512 << 10, false);
        take_all(spool, &taken, acknowledged);
        unsigned found = (unsigned)json_array_size(taken.all);
        CHECK(found >= acknowledged && found <= acknowledged + 1);
        CHECK(taken.last == found); /* no number twice, none left out, all under one id */
        for (unsigned i = next; i < found; i++)
            CHECK((unsigned)strtoul(text_of(&taken, i, "detail"), NULL, 10) == i);
        CHECK(count_names("damaged-") == 0);
        next = found;
    }
    CHECK(next > 50);
    json_decref(taken.all);
    close_folder();
}

int main(void)
{
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(sodium_init() >= 0);
    test_killed_writer(false); /* first: forks before there are threads */
    test_killed_writer(true);
    test_record_whole();
    test_record_cut();
    test_goes_on_after_restart();
    test_segments();
    test_shares();
    test_full_refuses();
    test_refusals_are_summed();
    test_refusals_leave_room();
    test_reads_are_counted();
    test_many_tokens_read();
    test_damaged_is_set_aside();
    test_half_begun();
    test_damaged_under_way();
    test_renumbered();
    test_ends_are_known();
    test_disk_full();
    test_tiny_disk();
    test_synced_before_shipped();
    test_grown();
    return check_done();
}
