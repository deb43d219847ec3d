/* list_test.c - listing: order, depth, limits, and trees that want to hurt. */
#include "tests/unit/sandboxd/helpers/files/tree_rig.h"

static struct files_request list(const char *path, uint32_t depth)
{
    return (struct files_request){.operation = FILES_LIST, .path = path, .depth = depth};
}

static void test_order_and_depth(struct rig *rig)
{
    rig_folder(rig, "a");
    rig_folder(rig, "a/b");
    rig_file(rig, "a/b/deep", "1");
    rig_file(rig, "a/Z", "22");
    rig_file(rig, "a/.hidden", "333");
    CHECK(symlinkat("..", rig->root, "a/loop") == 0);
    CHECK(mkfifoat(rig->root, "a/pipe", 0600) == 0);
    struct files_request request = list("/a", 1);
    struct answer answer = rig_ask(rig, &request);
    CHECK_PATHS(&answer, " .hidden Z b loop pipe");
    CHECK(answer.end.kind == FILES_DONE && answer.end.count == 5 && answer.end.skipped == 0 &&
          !answer.end.is_truncated);
    CHECK(answer.all[0].record.type == FILES_FOLDER && answer.all[2].record.version.size == 2);
    CHECK(answer.all[4].record.type == FILES_SYMLINK && answer.all[5].record.type == FILES_FIFO);
    CHECK_TEXT(answer.all[4].text, "..");
    answer_done(&answer);
    request = list("/a", 64);
    answer = rig_ask(rig, &request);
    CHECK_PATHS(&answer, " .hidden Z b b/deep loop pipe");
    answer_done(&answer);
    request.limit = 3;
    answer = rig_ask(rig, &request);
    CHECK_PATHS(&answer, " .hidden Z b");
    CHECK(answer.end.is_truncated && answer.end.count == 3);
    answer_done(&answer);
    request.limit = 6;
    answer = rig_ask(rig, &request);
    CHECK(!answer.end.is_truncated && answer.end.count == 6);
    answer_done(&answer);
}

static void test_what_is_no_folder(struct rig *rig)
{
    struct files_request request = list("/a/Z", 1);
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_NOT_FOUND, "Not a directory");
    request.path = "/a/pipe";
    end = rig_end(rig, &request);
    check_error(&end, ERROR_NOT_FOUND, "Not a directory");
    request.path = "/none";
    end = rig_end(rig, &request);
    check_error(&end, ERROR_NOT_FOUND, "No such file");
    request.path = "/a/loop"; /* the request's own path may be a link */
    end = rig_end(rig, &request);
    CHECK(end.kind == FILES_DONE && end.count == 1);
    request.root = "/a"; /* unless it leads out */
    end = rig_end(rig, &request);
    check_error(&end, ERROR_FORBIDDEN, "outside");
}

static void test_names(struct rig *rig)
{
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    rig_folder(rig, "names");
    int folder = openat(rig->root, "names", O_RDONLY | O_DIRECTORY);
    const char *const names[] = {"\xff\xfe", "new\nline", "\x01", name, "  "};
    for (size_t i = 0; i < 5; i++)
        CHECK(mknodat(folder, names[i], S_IFREG | 0600, 0) == 0);
    close(folder);
    struct files_request request = list("/names", 2);
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.count == 6 && answer.end.skipped == 0);
    CHECK_TEXT(answer.all[1].path, "\x01");
    CHECK_TEXT(answer.all[2].path, "  ");
    CHECK_TEXT(answer.all[3].path, "new\nline");
    CHECK_TEXT(answer.all[4].path, name);
    CHECK_TEXT(answer.all[5].path, "\xff\xfe");
    answer_done(&answer);
}

static void test_many(struct rig *rig)
{
    rig_folder(rig, "many");
    int folder = openat(rig->root, "many", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 100000; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%05d", (i * 7919) % 100000);
        if (mknodat(folder, name, S_IFREG | 0600, 0) < 0)
            check_failures++;
    }
    close(folder);
    struct files_request request = list("/many", 1);
    uint64_t before = clock_monotonic_ns();
    struct answer answer = rig_ask(rig, &request);
    (void)printf("100,000 entries: %.0f ms\n", (double)(clock_monotonic_ns() - before) / 1e6);
    CHECK(answer.count == 100001 && answer.end.count == 100000 && answer.end.skipped == 0);
    for (size_t i = 2; i < answer.count; i++)
        check_failures += strcmp(answer.all[i - 1].path, answer.all[i].path) >= 0;
    answer_done(&answer);
}

static void test_deep(struct rig *rig)
{
    rig_deep(rig, "d", 1000);
    struct files_request request = list("/d", 64);
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.end.count == 64 && answer.end.skipped == 0);
    CHECK(answer.count == 65 && strlen(answer.all[64].path) == 127);
    answer_done(&answer);
}

static void test_unreadable(struct rig *rig)
{
    if (geteuid() != 0)
        return;
    rig_folder(rig, "u");
    rig_folder(rig, "u/closed");
    rig_file(rig, "u/closed/x", "1");
    rig_file(rig, "u/open", "1");
    CHECK(fchmodat(rig->root, "u/closed", 0700, 0) == 0);
    rig_stop(rig);
    rig_start(rig, RIG_USER);
    struct files_request request = list("/u", 3);
    struct answer answer = rig_ask(rig, &request);
    CHECK_PATHS(&answer, " closed open");
    CHECK(answer.end.skipped == 1 && answer.end.count == 2);
    answer_done(&answer);
    request.path = "/u/closed";
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_FORBIDDEN, "Permission denied");
}

/* Closing the front's end in the midst of an answer that nobody reads ends the helper. */
static void test_cancel(struct rig *rig)
{
    struct files_request request = list("/many", 1);
    rig_send(rig, &request, -1);
    rig_stop(rig);
    rig_start(rig, 0);
}

int main(void)
{
    struct rig rig;
    rig_open(&rig);
    test_order_and_depth(&rig);
    test_what_is_no_folder(&rig);
    test_names(&rig);
    test_many(&rig);
    test_deep(&rig);
    test_cancel(&rig);
    test_unreadable(&rig);
    rig_close(&rig);
    return check_done();
}
