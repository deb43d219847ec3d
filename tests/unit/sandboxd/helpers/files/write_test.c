/* write_test.c - WRITE and PIECE: a file is there whole or not at all, whoever fails, leaves or writes at the same
 * time. */
#include "tests/unit/sandboxd/helpers/files/change_rig.h"

#include <sys/file.h>

static struct files_version version_at(struct rig *rig, const char *path)
{
    return rig_stat(rig, "", path, 0).version;
}

static void test_plain(void)
{
    struct rig rig;
    struct stat status;
    rig_open(&rig);
    struct files_record end = rig_put(&rig, "", "/new", 0, "one");
    CHECK(end.kind == FILES_DONE && end.count == 1);
    CHECK_FILE(&rig, "new", "one");
    CHECK(fstatat(rig.root, "new", &status, 0) == 0 && (status.st_mode & 07777) == 0644);
    CHECK(fchmodat(rig.root, "new", 0751, 0) == 0);
    end = rig_put(&rig, "", "/new", 0, "two");
    CHECK(end.kind == FILES_DONE && end.count == 0);
    CHECK_FILE(&rig, "new", "two");
    CHECK(fstatat(rig.root, "new", &status, 0) == 0 && (status.st_mode & 07777) == 0751);
    struct files_request request = rig_request(FILES_WRITE, "", "/a/b\xff/\xfe");
    request.flags = FILES_PARENTS | FILES_MODE | FILES_MTIME;
    request.mode = 0600;
    request.mtime_ns = -1;
    struct answer answer = rig_pour(&rig, &request, "", 0);
    CHECK(answer.end.kind == FILES_DONE && answer.count == 1);
    CHECK(answer.all[0].record.mode == 0600 && answer.all[0].record.version.mtime_ns == -1 &&
          answer.all[0].record.version.size == 0 && answer.all[0].path[0] == 0);
    answer_done(&answer);
    CHECK_FILE(&rig, "a/b\xff/\xfe", "");
    end = rig_put(&rig, "", "/none/file", 0, "x");
    check_error(&end, ERROR_NOT_FOUND, "");
    end = rig_put(&rig, "", "/new/file", FILES_PARENTS, "x");
    check_error(&end, ERROR_NOT_FOUND, "");
    CHECK(rig_count(&rig, ".") == 2 && rig_count(&rig, "a/b\xff") == 1);
    rig_close(&rig);
}

static void test_large(void)
{
    enum { SIZE = 9000001 };
    struct rig rig;
    rig_open(&rig);
    AUTO_FREE char *data = memory_new(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (char)(i * 7 + i / 1000);
    struct files_request request = rig_request(FILES_WRITE, "", "/large");
    struct answer answer = rig_pour(&rig, &request, data, SIZE);
    CHECK(answer.end.kind == FILES_DONE && answer.count == 1 && answer.all[0].record.version.size == SIZE);
    answer_done(&answer);
    struct files_record end;
    AUTO_FD int fd = rig_open_file(&rig, "", "/large", &end);
    AUTO_FREE char *back = memory_new(SIZE);
    struct error err = {0};
    CHECK(fd >= 0 && fd_read_exact(fd, back, SIZE, &err) && memcmp(data, back, SIZE) == 0);
    rig_close(&rig);
}

static void test_wrong_kinds(void)
{
    static const struct {
        const char *path, *words;
    } kinds[] = {
        {"/fifo", "FIFO"}, {"/folder", "a folder"}, {"/device", "a character device"}, {"/socket", "a socket"}};
    struct rig rig;
    rig_open(&rig);
    rig_folder(&rig, "folder");
    CHECK(mkfifoat(rig.root, "fifo", 0666) == 0);
    CHECK(mknodat(rig.root, "socket", S_IFSOCK | 0666, 0) == 0);
    bool has_device = mknodat(rig.root, "device", S_IFCHR | 0666, 0x103) == 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (i == 2 && !has_device)
            continue;
        struct files_record end = rig_put(&rig, "", kinds[i].path, 0, "x");
        check_error(&end, ERROR_CONFLICT, kinds[i].words);
        AUTO_FD int fd = rig_open_file(&rig, "", kinds[i].path, &end);
        CHECK(fd < 0);
        check_error(&end, ERROR_CONFLICT, kinds[i].words);
    }
    rig_close(&rig);
}

static void test_sizes(void)
{
    struct rig rig;
    struct files_request request = rig_request(FILES_WRITE, "", "/file");
    rig_open(&rig);
    rig_file(&rig, "file", "before");
    /* Another size than announced. */
    int pipe = rig_begin(&rig, &request);
    CHECK(write(pipe, "abc", 3) == 3);
    close(pipe);
    rig_commit(&rig, 4);
    struct answer answer = rig_wait(&rig);
    check_error(&answer.end, ERROR_INVALID, "announced");
    answer_done(&answer);
    /* The commit first, the bytes later. */
    pipe = rig_begin(&rig, &request);
    rig_commit(&rig, 3);
    CHECK(write(pipe, "abc", 3) == 3);
    close(pipe);
    answer = rig_wait(&rig);
    CHECK(answer.end.kind == FILES_DONE);
    answer_done(&answer);
    CHECK_FILE(&rig, "file", "abc");
    /* No commit: nothing happens until the front goes. */
    pipe = rig_begin(&rig, &request);
    CHECK(write(pipe, "never", 5) == 5);
    close(pipe);
    CHECK(!rig_more(&rig, &answer, 200));
    CHECK_FILE(&rig, "file", "abc");
    rig_stop(&rig);
    CHECK_FILE(&rig, "file", "abc");
    CHECK(rig_count(&rig, ".") == 1);
    rig_start(&rig, 0);
    rig_close(&rig);
}

static void test_kill_midway(void)
{
    struct rig rig;
    struct files_request request = rig_request(FILES_WRITE, "", "/file");
    char bytes[4096] = {1};
    rig_open(&rig);
    int pipe = rig_begin(&rig, &request);
    for (int i = 0; i < 100; i++)
        CHECK(write(pipe, bytes, sizeof bytes) == sizeof bytes);
    CHECK(kill(rig.pid, SIGKILL) == 0);
    CHECK(waitpid(rig.pid, NULL, 0) == rig.pid);
    CHECK(write(pipe, bytes, 1) < 0 && errno == EPIPE);
    close(pipe);
    close(rig.socket);
    CHECK(rig_count(&rig, ".") == 0);
    rig_start(&rig, 0);
    rig_close(&rig);
}

static void test_conditions(void)
{
    struct rig rig;
    rig_open(&rig);
    struct files_record end = rig_put(&rig, "", "/file", FILES_IF_ANY, "x");
    check_error(&end, ERROR_PRECONDITION, "not there");
    end = rig_put(&rig, "", "/file", FILES_IF_NONE, "one");
    CHECK(end.kind == FILES_DONE && end.count == 1);
    end = rig_put(&rig, "", "/file", FILES_IF_NONE, "x");
    check_error(&end, ERROR_PRECONDITION, "there already");
    struct files_request request = rig_request(FILES_WRITE, "", "/file");
    request.flags = FILES_IF_MATCH;
    request.match = version_at(&rig, "/file");
    struct answer answer = rig_pour(&rig, &request, "two", 3);
    CHECK(answer.end.kind == FILES_DONE && answer.end.count == 0);
    answer_done(&answer);
    answer = rig_pour(&rig, &request, "x", 1);
    check_error(&answer.end, ERROR_PRECONDITION, "changed");
    answer_done(&answer);
    end = rig_put(&rig, "", "/file", FILES_IF_ANY, "three");
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "file", "three");
    CHECK(rig_count(&rig, ".") == 1);
    rig_close(&rig);
}

/* Two helpers with one ETag: one wins, whoever is first. */
static void test_two_writers(void)
{
    struct rig first, second;
    rig_open(&first);
    rig_file(&first, "file", "before");
    second = first;
    rig_start(&second, 0);
    for (int turn = 0; turn < 200; turn++) {
        struct files_request request = rig_request(FILES_WRITE, "", "/file");
        request.flags = turn % 2 ? FILES_IF_MATCH : FILES_IF_NONE;
        if (turn % 2)
            request.match = version_at(&first, "/file");
        else
            CHECK(unlinkat(first.root, "file", 0) == 0);
        int pipes[2] = {rig_begin(&first, &request), rig_begin(&second, &request)};
        CHECK(write(pipes[0], "a", 1) == 1 && write(pipes[1], "b", 1) == 1);
        close(pipes[0]);
        close(pipes[1]);
        rig_commit(&first, 1);
        rig_commit(&second, 1);
        struct answer one = rig_wait(&first), two = rig_wait(&second);
        CHECK((one.end.kind == FILES_DONE) + (two.end.kind == FILES_DONE) == 1);
        const struct files_record *loser = one.end.kind == FILES_DONE ? &two.end : &one.end;
        check_error(loser, ERROR_PRECONDITION, "");
        CHECK_FILE(&first, "file", one.end.kind == FILES_DONE ? "a" : "b");
        answer_done(&one);
        answer_done(&two);
    }
    CHECK(rig_count(&first, ".") == 1);
    rig_stop(&second);
    rig_close(&first);
}

/* A command that holds the folder's lock stops those who ask for a condition, not the others. */
static void test_locked_folder(void)
{
    struct rig rig;
    rig_open(&rig);
    CHECK(flock(rig.root, LOCK_EX) == 0);
    uint64_t begin = clock_monotonic_ns();
    struct files_record end = rig_put(&rig, "", "/file", 0, "x");
    CHECK(end.kind == FILES_DONE);
    end = rig_put(&rig, "", "/file", FILES_IF_ANY, "y");
    check_error(&end, ERROR_CONFLICT, "locked");
    CHECK(clock_monotonic_ns() - begin > 1500000000);
    CHECK(flock(rig.root, LOCK_UN) == 0);
    end = rig_put(&rig, "", "/file", FILES_IF_ANY, "y");
    CHECK(end.kind == FILES_DONE);
    rig_close(&rig);
}

/* A front that leaves while the helper waits for the folder: a token was revoked, and nothing may change after that. */
static void test_front_gone_while_locked(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_file(&rig, "source", "s");
    const enum files_operation operations[] = {FILES_WRITE, FILES_MOVE, FILES_COPY, FILES_REMOVE};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const char *path = operations[i] == FILES_WRITE ? "/file" : "/source";
        struct files_request request = rig_request(operations[i], "", path);
        request.flags = operations[i] == FILES_COPY     ? FILES_IF_NONE /* else it takes no lock */
                        : operations[i] == FILES_REMOVE ? FILES_IF_ANY
                                                        : 0;
        request.to_path = operations[i] == FILES_MOVE || operations[i] == FILES_COPY ? "/file" : NULL;
        CHECK(flock(rig.root, LOCK_EX) == 0);
        if (operations[i] == FILES_WRITE) {
            int pipe = rig_begin(&rig, &request);
            CHECK(write(pipe, "x", 1) == 1);
            close(pipe);
            rig_commit(&rig, 1);
        } else {
            rig_send(&rig, &request, -1);
        }
        (void)poll(NULL, 0, 200);
        close(rig.socket);
        CHECK(flock(rig.root, LOCK_UN) == 0);
        CHECK(waitpid(rig.pid, NULL, 0) == rig.pid);
        CHECK(rig_count(&rig, ".") == 1);
        CHECK_FILE(&rig, "source", "s");
        rig_start(&rig, 0);
    }
    rig_close(&rig);
}

static struct answer put_piece(struct rig *rig, uint64_t offset, const char *text, uint64_t total)
{
    struct files_request request = rig_request(FILES_PIECE, "", "/file");
    request.upload = "u.1";
    request.offset = offset;
    request.total = total;
    request.size = strlen(text);
    return rig_pour(rig, &request, text, strlen(text));
}

static uint64_t received(struct rig *rig)
{
    struct files_request request = rig_request(FILES_PIECE, "", "/file");
    request.upload = "u.1";
    request.total = 10;
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.count == 1 && answer.all[0].record.kind == FILES_STATE && answer.all[0].record.total == 10);
    uint64_t got = answer.all[0].record.received;
    answer_done(&answer);
    return got;
}

static void check_state(struct answer *answer, uint64_t want)
{
    CHECK(answer->count >= 1 && answer->all[0].record.kind == FILES_STATE && answer->all[0].record.received == want);
    answer_done(answer);
}

static void test_pieces(void)
{
    struct rig rig;
    rig_open(&rig);
    CHECK(received(&rig) == 0 && rig_count(&rig, ".") == 0);
    struct answer answer = put_piece(&rig, 0, "abcd", 10);
    CHECK(answer.end.kind == FILES_DONE && answer.count == 1);
    check_state(&answer, 4);
    CHECK_FILE(&rig, ".file.u.1.part", "abcd");
    answer = put_piece(&rig, 5, "fghij", 10);
    check_error(&answer.end, ERROR_RANGE, "4 bytes");
    check_state(&answer, 4);
    /* Cut off midway: what came is kept. */
    struct files_request request = rig_request(FILES_PIECE, "", "/file");
    request.upload = "u.1";
    request.offset = 4;
    request.total = 10;
    request.size = 6;
    int pipe = rig_begin(&rig, &request);
    CHECK(write(pipe, "efg", 3) == 3);
    struct stat status = {0};
    for (int i = 0; i < 1000 && status.st_size != 7; i++) {
        (void)poll(NULL, 0, 10);
        CHECK(fstatat(rig.root, ".file.u.1.part", &status, 0) == 0);
    }
    rig_stop(&rig);
    close(pipe);
    rig_start(&rig, 0);
    CHECK(received(&rig) == 7);
    /* The overlap is not taken twice. */
    answer = put_piece(&rig, 2, "CDEFGHIJ", 10);
    CHECK(answer.end.kind == FILES_DONE && answer.end.count == 1 && answer.count == 2);
    CHECK(answer.all[1].record.kind == FILES_ENTRY && answer.all[1].record.version.size == 10);
    check_state(&answer, 10);
    CHECK_FILE(&rig, "file", "abcdefgHIJ");
    CHECK(rig_count(&rig, ".") == 1 && received(&rig) == 0);
    rig_close(&rig);
}

static void test_bad_pieces(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_file(&rig, "other", "0123456789");
    CHECK(symlinkat("other", rig.root, ".file.u.1.part") == 0);
    struct answer answer = put_piece(&rig, 0, "abcd", 10);
    check_error(&answer.end, ERROR_CONFLICT, "link");
    answer_done(&answer);
    CHECK(received(&rig) == 0);
    CHECK(unlinkat(rig.root, ".file.u.1.part", 0) == 0 &&
          linkat(rig.root, "other", rig.root, ".file.u.1.part", 0) == 0);
    answer = put_piece(&rig, 0, "abcd", 20);
    check_error(&answer.end, ERROR_CONFLICT, "part's place");
    answer_done(&answer);
    CHECK(unlinkat(rig.root, ".file.u.1.part", 0) == 0 && mkfifoat(rig.root, ".file.u.1.part", 0600) == 0);
    answer = put_piece(&rig, 0, "abcd", 20);
    check_error(&answer.end, ERROR_CONFLICT, "a FIFO");
    answer_done(&answer);
    CHECK(unlinkat(rig.root, ".file.u.1.part", 0) == 0);
    rig_file(&rig, ".file.u.1.part", "much longer than all");
    answer = put_piece(&rig, 0, "abcd", 10);
    check_error(&answer.end, ERROR_CONFLICT, "longer");
    answer_done(&answer);
    CHECK_FILE(&rig, "other", "0123456789");
    /* More bytes than announced. */
    CHECK(unlinkat(rig.root, ".file.u.1.part", 0) == 0);
    struct files_request request = rig_request(FILES_PIECE, "", "/file");
    request.upload = "u.1";
    request.total = 10;
    request.size = 2;
    answer = rig_pour(&rig, &request, "abc", 3);
    check_error(&answer.end, ERROR_INVALID, "more bytes");
    answer_done(&answer);
    CHECK(received(&rig) == 2);
    /* A long name has a part too. */
    char path[FRONT_FILES_NAME_MAX + 2];
    memset(path, 'n', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = 0;
    request.path = path;
    request.total = request.size = 3;
    answer = rig_pour(&rig, &request, "abc", 3);
    CHECK(answer.end.kind == FILES_DONE && answer.count == 2);
    answer_done(&answer);
    CHECK_FILE(&rig, path + 1, "abc");
    rig_close(&rig);
}

/* A limit is told and leaves nothing. */
static void test_file_limit(void)
{
    struct rig rig;
    rig_open(&rig);
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
    rig_stop(&rig);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    rig_start(&rig, 0);
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    AUTO_FREE char *data = memory_new(4 << 20);
    struct files_request request = rig_request(FILES_WRITE, "", "/large");
    struct answer answer = rig_pour(&rig, &request, data, 4 << 20);
    check_error(&answer.end, ERROR_TOO_LARGE, "");
    answer_done(&answer);
    CHECK(rig_count(&rig, ".") == 0);
    rig_close(&rig);
}

int main(void)
{
    test_plain();
    test_large();
    test_wrong_kinds();
    test_sizes();
    test_kill_midway();
    test_conditions();
    test_two_writers();
    test_locked_folder();
    test_front_gone_while_locked();
    test_pieces();
    test_bad_pieces();
    test_file_limit();
    return check_done();
}
