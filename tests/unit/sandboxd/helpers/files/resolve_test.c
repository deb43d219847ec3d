/* resolve_test.c - what a path scope can reach: nothing outside it, by whatever link, at whatever moment. */
#include "tests/unit/sandboxd/helpers/files/change_rig.h"

#include <pthread.h>
#include <stdatomic.h>

/* /in is the scope, /out what it must not see. */
static void open_world(struct rig *rig)
{
    rig_open(rig);
    rig_folder(rig, "in");
    rig_folder(rig, "in/folder");
    rig_folder(rig, "out");
    rig_file(rig, "in/file", "inside");
    rig_file(rig, "in/folder/file", "inside too");
    rig_file(rig, "out/secret", "secret");
}

static void make_link(const struct rig *rig, const char *target, const char *path)
{
    CHECK(symlinkat(target, rig->root, path) == 0);
}

static void check_forbidden_read(struct rig *rig, const char *path)
{
    struct files_record end;
    AUTO_FD int fd = rig_open_file(rig, "/in", path, &end);
    CHECK(fd < 0);
    check_error(&end, ERROR_FORBIDDEN, "outside");
    struct files_record stat = rig_stat(rig, "/in", path, FILES_FOLLOW);
    CHECK(stat.kind == FILES_ERROR && stat.error.kind == ERROR_FORBIDDEN);
}

static void test_links(void)
{
    static const char *const targets[] = {"/out", "../out", "folder/../../out",   "/in/../out",
                                          "..",   "/",      "/proc/self/root/out"};
    struct rig rig;
    open_world(&rig);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        make_link(&rig, targets[i], "in/link");
        check_forbidden_read(&rig, "/in/link/secret");
        struct files_record end = rig_put(&rig, "/in", "/in/link/new", FILES_PARENTS, "x");
        check_error(&end, ERROR_FORBIDDEN, "outside");
        struct files_request request = rig_request(FILES_REMOVE, "/in", "/in/link/secret");
        end = rig_end(&rig, &request);
        check_error(&end, ERROR_FORBIDDEN, "outside");
        request = rig_request(FILES_MKDIR, "/in", "/in/link/new/newer");
        request.flags = FILES_PARENTS;
        end = rig_end(&rig, &request);
        check_error(&end, ERROR_FORBIDDEN, "outside");
        request = rig_request(FILES_MOVE, "/in", "/in/file");
        request.to_root = "/in";
        request.to_path = "/in/link/file";
        end = rig_end(&rig, &request);
        check_error(&end, ERROR_FORBIDDEN, "outside");
        request.path = "/in/link/secret";
        request.to_path = "/in/mine";
        end = rig_end(&rig, &request);
        check_error(&end, ERROR_FORBIDDEN, "outside");
        CHECK(unlinkat(rig.root, "in/link", 0) == 0);
    }
    CHECK_FILE(&rig, "out/secret", "secret");
    CHECK(rig_count(&rig, "out") == 1 && rig_count(&rig, "in") == 2);
    rig_close(&rig);
}

static void test_final_links(void)
{
    static const char *const targets[] = {"/out/secret", "../out/secret", "folder/../../out/secret", "/out/new",
                                          "../out/new"};
    struct rig rig;
    open_world(&rig);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        make_link(&rig, targets[i], "in/link");
        struct files_record end = rig_put(&rig, "/in", "/in/link", 0, "x");
        check_error(&end, ERROR_FORBIDDEN, "outside");
        struct files_request request = rig_request(FILES_CHMOD, "/in", "/in/link");
        request.flags = FILES_MODE;
        request.mode = 0777;
        end = rig_end(&rig, &request);
        check_error(&end, ERROR_FORBIDDEN, "outside");
        /* The link itself is in the scope. */
        struct files_record link = rig_stat(&rig, "/in", "/in/link", 0);
        CHECK(link.kind == FILES_ENTRY && link.type == FILES_SYMLINK);
        request = rig_request(FILES_REMOVE, "/in", "/in/link");
        end = rig_end(&rig, &request);
        CHECK(end.kind == FILES_DONE);
    }
    /* Within the scope links are followed, and the whole sandbox knows no scope. */
    make_link(&rig, "folder/../folder/file", "in/link");
    struct files_record end = rig_put(&rig, "/in", "/in/link", 0, "by link");
    CHECK(end.kind == FILES_DONE && end.count == 0);
    CHECK_FILE(&rig, "in/folder/file", "by link");
    make_link(&rig, "folder/made", "in/dangling");
    end = rig_put(&rig, "/in", "/in/dangling", 0, "made");
    CHECK(end.kind == FILES_DONE && end.count == 1);
    CHECK_FILE(&rig, "in/folder/made", "made");
    make_link(&rig, "/out/secret", "in/absolute");
    end = rig_put(&rig, "", "/in/absolute", 0, "told");
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "out/secret", "told");
    struct files_record link = rig_stat(&rig, "/in", "/in/absolute", 0);
    CHECK(link.kind == FILES_ENTRY && link.type == FILES_SYMLINK);
    make_link(&rig, "loop", "in/loop");
    end = rig_put(&rig, "", "/in/loop", 0, "x");
    check_error(&end, ERROR_INVALID, "follow");
    make_link(&rig, ".", "in/self");
    end = rig_put(&rig, "/in", "/in/self", 0, "x");
    check_error(&end, ERROR_CONFLICT, "folder");
    rig_close(&rig);
}

static void test_scope_itself(void)
{
    struct rig rig;
    open_world(&rig);
    static const enum files_operation operations[] = {FILES_REMOVE, FILES_CHMOD};
    for (size_t i = 0; i < 2; i++) {
        struct files_request request = rig_request(operations[i], "/in", "/in");
        request.flags = operations[i] == FILES_CHMOD ? FILES_MODE : FILES_RECURSIVE;
        struct files_record end = rig_end(&rig, &request);
        check_error(&end, ERROR_FORBIDDEN, "itself");
        request.root = "";
        request.path = "/";
        end = rig_end(&rig, &request);
        check_error(&end, ERROR_FORBIDDEN, "itself");
    }
    struct files_request request = rig_request(FILES_MOVE, "/in", "/in");
    request.to_path = "/moved";
    struct files_record end = rig_end(&rig, &request);
    check_error(&end, ERROR_FORBIDDEN, "itself");
    request = rig_request(FILES_MKDIR, "/in", "/in");
    end = rig_end(&rig, &request);
    CHECK(end.kind == FILES_DONE && end.count == 0);
    CHECK(rig_stat(&rig, "/in", "/in", 0).type == FILES_FOLDER);
    CHECK(rig_stat(&rig, "", "/", 0).type == FILES_FOLDER);
    /* A scope that is a link now, or whose way there is one, is refused whole. */
    make_link(&rig, "in", "alias");
    struct files_record got = rig_stat(&rig, "/alias", "/alias/file", 0);
    check_error(&got, ERROR_FORBIDDEN, "link stands in the way");
    make_link(&rig, "/", "in/up");
    got = rig_stat(&rig, "/in/up/out", "/in/up/out/secret", 0);
    check_error(&got, ERROR_FORBIDDEN, "link stands in the way");
    got = rig_stat(&rig, "/none", "/none/x", 0);
    check_error(&got, ERROR_NOT_FOUND, "");
    rig_close(&rig);
}

static void test_hard_links(void)
{
    struct rig rig;
    struct files_record end;
    open_world(&rig);
    CHECK(linkat(rig.root, "out/secret", rig.root, "in/hard", 0) == 0);
    AUTO_FD int fd = rig_open_file(&rig, "/in", "/in/hard", &end);
    CHECK(fd < 0);
    check_error(&end, ERROR_FORBIDDEN, "hard links");
    struct files_request request = rig_request(FILES_CHMOD, "/in", "/in/hard");
    request.flags = FILES_MODE;
    request.mode = 0777;
    end = rig_end(&rig, &request);
    check_error(&end, ERROR_FORBIDDEN, "hard links");
    const struct files_edit edit = {.old = {"secret", 6}, .new = {"x", 1}};
    struct error err = {0};
    AUTO_FD int edits = front_files_edits_seal(&edit, 1, &err);
    request = rig_request(FILES_EDIT, "/in", "/in/hard");
    rig_send(&rig, &request, edits);
    struct answer answer = rig_wait(&rig);
    check_error(&answer.end, ERROR_FORBIDDEN, "hard links");
    answer_done(&answer);
    /* PUT replaces the name; without a scope all of it is allowed. */
    AUTO_FREE char *text = rig_read_text(&rig, "", "/in/hard");
    CHECK_TEXT(text, "secret");
    end = rig_put(&rig, "/in", "/in/hard", 0, "own");
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "out/secret", "secret");
    CHECK_FILE(&rig, "in/hard", "own");
    rig_close(&rig);
}

/* One thread makes in/swap now a folder, now a link to /out, as fast as it can. */
struct swapper {
    const struct rig *rig;
    atomic_bool is_over;
};

static void *swap(void *argument)
{
    struct swapper *swapper = argument;
    int root = swapper->rig->root;
    while (!swapper->is_over)
        (void)renameat2(root, "in/swap", root, "in/other", RENAME_EXCHANGE);
    return NULL;
}

static void race_once(struct rig *rig, int turn, int *reads)
{
    char path[64];
    AUTO_FREE char *text = rig_read_text(rig, "/in", "/in/swap/secret");
    CHECK(text == NULL || strcmp(text, "decoy") == 0);
    *reads += text != NULL;
    (void)snprintf(path, sizeof path, "/in/swap/new%d", turn % 50);
    struct files_record end = rig_put(rig, "/in", path, FILES_PARENTS, "x");
    CHECK(end.kind == FILES_DONE || end.error.kind == ERROR_FORBIDDEN || end.error.kind == ERROR_NOT_FOUND);
    struct files_request request = rig_request(FILES_MKDIR, "/in", "/in/swap/a/b");
    request.flags = FILES_PARENTS;
    (void)rig_end(rig, &request);
    request = rig_request(FILES_REMOVE, "/in", "/in/swap/a");
    request.flags = FILES_RECURSIVE;
    (void)rig_end(rig, &request);
    request = rig_request(FILES_REMOVE, "/in", "/in/swap/guard");
    (void)rig_end(rig, &request);
    request = rig_request(FILES_CHMOD, "/in", "/in/swap/secret");
    request.flags = FILES_MODE;
    request.mode = 0600;
    (void)rig_end(rig, &request);
}

static void test_race(void)
{
    struct rig rig;
    pthread_t thread;
    struct stat status;
    int reads = 0, turns = 0;
    open_world(&rig);
    rig_folder(&rig, "in/swap");
    rig_file(&rig, "in/swap/secret", "decoy");
    rig_file(&rig, "out/guard", "guard");
    make_link(&rig, "../out", "in/other");
    struct swapper swapper = {.rig = &rig};
    CHECK(pthread_create(&thread, NULL, swap, &swapper) == 0);
    for (uint64_t end = clock_monotonic_ns() + 2000000000; clock_monotonic_ns() < end; turns++)
        race_once(&rig, turns, &reads);
    swapper.is_over = true;
    pthread_join(thread, NULL);
    CHECK(turns > 20 && reads > 0); /* it did get through, when it was a folder */
    CHECK(rig_count(&rig, "out") == 2);
    CHECK_FILE(&rig, "out/secret", "secret");
    CHECK(fstatat(rig.root, "out/secret", &status, 0) == 0 && (status.st_mode & 0777) == 0644);
    rig_close(&rig);
}

int main(void)
{
    test_links();
    test_final_links();
    test_scope_itself();
    test_hard_links();
    test_race();
    return check_done();
}
