/* journal_file_test.c - what a kill, a full disk, a torn tail and a damaged line leave behind. */
#include "sandboxd/journal/journal_file.h"

#include "shared/base/fd.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder_path[64];
static int folder = -1;

/* ---- what a journal tells ---- */

struct told {
    struct text all; /* "a,b,c," */
    size_t count, stop_at;
};

static bool note(void *cookie, const char *text, size_t size, struct error *err)
{
    struct told *told = cookie;
    if (told->stop_at && told->count == told->stop_at)
        return error_set(err, ERROR_CONFLICT, "enough");
    CHECK(strlen(text) == size);
    text_append(&told->all, text, size);
    text_append(&told->all, ",", 1);
    told->count++;
    return true;
}

static struct journal_file *open_it(const char *name, struct told *told, struct error *err)
{
    text_done(&told->all);
    size_t stop_at = told->stop_at;
    *told = (struct told){.stop_at = stop_at};
    return journal_file_open(folder, name, note, told, err);
}

static void put(struct journal_file *file, const char *text)
{
    struct error err = {0};
    CHECK(journal_file_append(file, text, strlen(text), &err));
    CHECK_TEXT(err.message, "");
}

/* A file with these records. */
static void make(const char *name, const char *const *texts)
{
    struct error err = {0};
    (void)unlinkat(folder, name, 0);
    AUTO(journal_file) *file = journal_file_open(folder, name, NULL, NULL, &err);
    CHECK(file != NULL);
    for (; file && *texts; texts++)
        put(file, *texts);
}

static void write_raw(const char *name, const void *data, size_t size)
{
    AUTO_FD int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct error err = {0};
    CHECK(fd >= 0 && fd_write_all(fd, data, size, &err));
}

static char *read_raw(const char *name, size_t *size)
{
    char path[128];
    struct error err = {0};
    CHECK(text_format(path, sizeof path, "%s/%s", folder_path, name));
    char *data = fd_read_file(path, 1 << 26, size, &err);
    CHECK(data != NULL);
    return data;
}

static void reset(struct told *told)
{
    text_done(&told->all);
    *told = (struct told){0};
}

/* ---- the tests ---- */

static void test_appends_and_tells(void)
{
    struct told told = {0};
    struct error err = {0};
    AUTO(journal_file) *file = open_it("plain", &told, &err);
    CHECK(file != NULL && told.count == 0 && journal_file_bytes(file) == 0);
    put(file, "one");
    put(file, "");
    put(file, "three and \xc3\xa9");
    CHECK(journal_file_bytes(file) == 3 * 18 + 3 + 12);
    CHECK(journal_file_sync(file, &err));
    char *refused = malloc(JOURNAL_RECORD_MAX + 1);
    memset(refused, 'x', JOURNAL_RECORD_MAX + 1);
    CHECK(!journal_file_append(file, refused, JOURNAL_RECORD_MAX + 1, &err));
    CHECK(!journal_file_append(file, "a\nb", 3, &err));
    CHECK(!journal_file_append(file, "a\0b", 3, &err));
    CHECK(journal_file_append(file, refused, JOURNAL_RECORD_MAX, &err));
    free(refused);
    put(file, "last");
    journal_file_free(TAKE(file));
    struct stat status;
    CHECK(fstatat(folder, "plain", &status, 0) == 0 && (status.st_mode & 0777) == 0600);
    file = open_it("plain", &told, &err);
    CHECK(file != NULL && told.count == 5);
    CHECK(told.all.data && text_starts_with(told.all.data, "one,,three and \xc3\xa9,xxx"));
    reset(&told);
}

static void test_known_bytes(void)
{
    const char *const texts[] = {"parley", NULL};
    make("known", texts);
    size_t size = 0;
    AUTO_FREE char *data = read_raw("known", &size);
    /* python3: hashlib.blake2b(b"parley", digest_size=8).hexdigest() */
    CHECK_TEXT(data, "1d7cdd5920d816c3 parley\n");
}

static void test_torn_at_every_byte(void)
{
    const char *const texts[] = {"first", "second record", "3", "the fourth and last one", NULL};
    make("torn", texts);
    size_t size = 0;
    AUTO_FREE char *data = read_raw("torn", &size);
    for (size_t keep = 0; keep <= size; keep++) {
        write_raw("torn", data, keep);
        size_t whole = 0, bytes = 0;
        for (size_t i = 0; i < keep; i++)
            if (data[i] == '\n') {
                whole++;
                bytes = i + 1;
            }
        struct told told = {0};
        struct error err = {0};
        AUTO(journal_file) *file = open_it("torn", &told, &err);
        CHECK(file != NULL && told.count == whole && journal_file_bytes(file) == bytes);
        if (!file)
            return;
        put(file, "after");
        journal_file_free(TAKE(file));
        file = open_it("torn", &told, &err);
        CHECK(file != NULL && told.count == whole + 1);
        reset(&told);
    }
}

/* Pages that were never written are zeros: the size was durable, they were not. */
static void test_zeros_at_the_end(void)
{
    const char *const texts[] = {"first", "second record", NULL};
    make("zeros", texts);
    size_t size = 0;
    AUTO_FREE char *data = read_raw("zeros", &size);
    AUTO_FREE char *longer = calloc(1, size + 200000);
    memcpy(longer, data, size);
    for (size_t more = 1; more <= 200000; more = more * 5 + 1) {
        write_raw("zeros", longer, size + more);
        struct told told = {0};
        struct error err = {0};
        AUTO(journal_file) *file = open_it("zeros", &told, &err);
        CHECK(file != NULL && told.count == 2 && journal_file_bytes(file) == size);
        reset(&told);
    }
    /* The first page of a line lost, its end written. */
    longer[size + 100] = 'x';
    longer[size + 101] = '\n';
    write_raw("zeros", longer, size + 102);
    struct told told = {0};
    struct error err = {0};
    AUTO(journal_file) *file = open_it("zeros", &told, &err);
    CHECK(file != NULL && told.count == 2 && journal_file_bytes(file) == size);
    reset(&told);
}

static void test_damage_anywhere(void)
{
    const char *const texts[] = {"first", "second record", "3", NULL};
    make("damaged", texts);
    size_t size = 0;
    AUTO_FREE char *data = read_raw("damaged", &size);
    for (size_t at = 0; at < size; at++) {
        data[at] ^= 1;
        write_raw("damaged", data, size);
        data[at] ^= 1;
        struct told told = {0};
        struct error err = {0};
        AUTO(journal_file) *file = open_it("damaged", &told, &err);
        /* The very last newline: then it looks like a line that was not finished. */
        CHECK((file == NULL) == (at != size - 1));
        if (!file) {
            CHECK(err.kind == ERROR_INTERNAL);
            CHECK(strstr(err.message, "damaged") != NULL);
            size_t left = 0;
            AUTO_FREE char *untouched = read_raw("damaged", &left);
            CHECK(left == size); /* it is evidence */
        }
        reset(&told);
    }
    /* A record after zeros: what was between them is lost. */
    AUTO_FREE char *holed = calloc(1, size + 4096);
    memcpy(holed + 4096, data, size);
    write_raw("damaged", holed, size + 4096);
    struct told told = {0};
    struct error err = {0};
    CHECK(open_it("damaged", &told, &err) == NULL);
    /* A line longer than any record, and then one. */
    memset(holed, 'y', 4096);
    AUTO_FREE char *huge = malloc(300000 + size);
    memset(huge, 'y', 300000);
    huge[299999] = '\n';
    memcpy(huge + 300000, data, size);
    write_raw("damaged", huge, 300000 + size);
    CHECK(open_it("damaged", &told, &err) == NULL);
    reset(&told);
}

static void test_visitor_stops(void)
{
    const char *const texts[] = {"a", "b", "c", NULL};
    make("stop", texts);
    struct told told = {.stop_at = 1};
    struct error err = {0};
    CHECK(open_it("stop", &told, &err) == NULL);
    CHECK(err.kind == ERROR_CONFLICT && told.count == 1);
    size_t size = 0;
    AUTO_FREE char *data = read_raw("stop", &size);
    CHECK(size == 3 * 19); /* nothing was cut */
    told.stop_at = 0;
    AUTO(journal_file) *file = open_it("stop", &told, &err);
    CHECK(file != NULL && told.count == 3);
    reset(&told);
}

static void test_walk(void)
{
    const char *const texts[] = {"a", "b", "c", "d", NULL};
    make("walk", texts);
    struct error err = {0};
    AUTO(journal_file) *file = journal_file_open(folder, "walk", NULL, NULL, &err);
    CHECK(file != NULL);
    struct told told = {.stop_at = 2};
    uint64_t offset = 0;
    CHECK(!journal_walk(journal_file_fd(file), &offset, UINT64_MAX / 4, note, &told, &err));
    CHECK(offset == 38 && err.kind == ERROR_CONFLICT);
    told.stop_at = 0;
    CHECK(journal_walk(journal_file_fd(file), &offset, 3 * 19, note, &told, &err));
    CHECK(offset == 57);
    CHECK_TEXT(told.all.data, "a,b,c,");
    reset(&told);
}

static void test_replace(void)
{
    const char *const texts[] = {"old 1", "old 2", NULL};
    const char *const others[] = {"new"};
    make("replaced", texts);
    struct told told = {0};
    struct error err = {0};
    write_raw("replaced.new", "half", 4); /* of one that a kill cut short */
    AUTO(journal_file) *file = open_it("replaced", &told, &err);
    CHECK(file != NULL && told.count == 2);
    CHECK(faccessat(folder, "replaced.new", F_OK, 0) != 0);
    CHECK(journal_file_replace(file, others, 1, &err));
    put(file, "more");
    CHECK(journal_file_bytes(file) == 18 + 3 + 18 + 4);
    journal_file_free(TAKE(file));
    file = open_it("replaced", &told, &err);
    CHECK_TEXT(told.all.data, "new,more,");
    CHECK(journal_file_replace(file, NULL, 0, &err) && journal_file_bytes(file) == 0);
    reset(&told);
}

/* A limit on the size of files stands in for a full disk: the write that crosses it is taken in part, the next not at
 * all. */
static void test_full(void)
{
    struct told told = {0};
    struct error err = {0};
    (void)unlinkat(folder, "full", 0);
    AUTO(journal_file) *file = open_it("full", &told, &err);
    put(file, "first");
    struct rlimit old, small;
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = old;
    small.rlim_cur = journal_file_bytes(file) + 30;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const char *longer = "a record that is longer than what the disk has left";
    for (int i = 0; i < 2; i++) {
        err = (struct error){0};
        CHECK(!journal_file_append(file, longer, strlen(longer), &err));
        CHECK(err.kind == ERROR_DISK_FULL);
    }
    put(file, "short"); /* what there is room for goes on */
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    put(file, longer);
    journal_file_free(TAKE(file));
    file = open_it("full", &told, &err);
    CHECK(file != NULL);
    CHECK_TEXT(told.all.data, "first,short,a record that is longer than what the disk has left,");
    reset(&told);
}

static void test_link(void)
{
    AUTO_FD int disk = open("/dev/full", O_RDWR | O_CLOEXEC);
    struct error err = {0};
    if (disk < 0)
        return;
    CHECK(symlinkat("/dev/full", folder, "link") == 0);
    CHECK(journal_file_open(folder, "link", NULL, NULL, &err) == NULL); /* follows no link, takes no device */
    CHECK(err.kind == ERROR_INTERNAL);
}

/* ---- kill -9 ---- */

/* Writes numbers for ever and says each on the pipe once it is appended. */
static void write_for_ever(int pipe, unsigned from)
{
    struct error err = {0};
    struct journal_file *file = journal_file_open(folder, "killed", NULL, NULL, &err);
    for (unsigned n = from; file; n++) {
        char text[256];
        int length = snprintf(text, sizeof text, "%u %0*u", n, (int)(n % 200), 0u);
        if (!journal_file_append(file, text, (size_t)length, &err) || write(pipe, &n, sizeof n) != (ssize_t)sizeof n)
            break;
    }
    _exit(1);
}

static bool next_in_order(void *cookie, const char *text, size_t size UNUSED, struct error *err)
{
    unsigned *next = cookie;
    if ((unsigned)strtoul(text, NULL, 10) != *next)
        return error_set(err, ERROR_CONFLICT, "%u expected, not %.20s", *next, text);
    ++*next;
    return true;
}

static void test_killed_writer(void)
{
    unsigned next = 0;
    for (unsigned round = 0; round < 40; round++) {
        int ends[2];
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        pid_t child = fork();
        if (child == 0)
            write_for_ever(ends[1], next);
        close(ends[1]);
        struct timespec pause = {.tv_nsec = 300000 + (long)(round * 131071) % 4000000};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        unsigned said = 0, acknowledged = next;
        while (read(ends[0], &said, sizeof said) == (ssize_t)sizeof said)
            acknowledged = said + 1;
        close(ends[0]);
        unsigned found = 0;
        struct error err = {0};
        AUTO(journal_file) *file = journal_file_open(folder, "killed", next_in_order, &found, &err);
        CHECK(file != NULL);
        CHECK_TEXT(err.message, "");
        CHECK(found >= acknowledged && found <= acknowledged + 1);
        next = found;
    }
    CHECK(next > 40);
}

int main(void)
{
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(text_format(folder_path, sizeof folder_path, "/tmp/journal-test-XXXXXX"));
    CHECK(mkdtemp(folder_path) != NULL);
    folder = open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC); /* as the front has it */
    test_appends_and_tells();
    test_known_bytes();
    test_torn_at_every_byte();
    test_zeros_at_the_end();
    test_damage_anywhere();
    test_visitor_stops();
    test_walk();
    test_replace();
    test_full();
    test_link();
    test_killed_writer();
    struct error err = {0};
    close(folder);
    CHECK(fd_remove_tree(folder_path, &err));
    return check_done();
}
