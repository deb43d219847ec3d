/* change_test.c - STAT, OPEN, MKDIR, REMOVE, MOVE, CHMOD, EDIT: what they do, refuse and leave. */
#include "tests/unit/sandboxd/helpers/files/change_rig.h"

static void test_stat(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_file(&rig, "caf\xe9", "12345");
    CHECK(symlinkat("caf\xe9", rig.root, "link") == 0);
    CHECK(mkfifoat(rig.root, "fifo", 0600) == 0);
    struct files_record got = rig_stat(&rig, "", "/caf\xe9", 0);
    CHECK(got.kind == FILES_ENTRY && got.type == FILES_REGULAR && got.version.size == 5 && got.mode == 0644 &&
          got.links == 1 && got.version.inode != 0 && got.version.mtime_ns > 0);
    struct files_request request = rig_request(FILES_STAT, "", "/link");
    struct answer answer = rig_ask(&rig, &request);
    CHECK(answer.count == 1 && answer.all[0].record.type == FILES_SYMLINK);
    CHECK_TEXT(answer.all[0].text, "caf\xe9");
    answer_done(&answer);
    CHECK(rig_stat(&rig, "", "/link", FILES_FOLLOW).type == FILES_REGULAR);
    CHECK(rig_stat(&rig, "", "/fifo", 0).type == FILES_FIFO);
    got = rig_stat(&rig, "", "/none", 0);
    check_error(&got, ERROR_NOT_FOUND, "");
    got = rig_stat(&rig, "", "/fifo/x", 0);
    check_error(&got, ERROR_NOT_FOUND, "");
    rig_close(&rig);
}

/* In another process: a lease on a file that somebody opens makes open(2) wait for it. */
static pid_t hold_lease(const struct rig *rig, const char *path)
{
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGIO, SIG_IGN);
        int fd = openat(rig->root, path, O_RDWR);
        bool is_held = fd >= 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
        if (write(ready[1], is_held ? "y" : "n", 1) == 1)
            pause();
        _exit(1);
    }
    CHECK(read(ready[0], &byte, 1) == 1 && byte == 'y');
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void test_open(void)
{
    struct rig rig;
    struct files_record end;
    rig_open(&rig);
    rig_file(&rig, "file", "text");
    CHECK(symlinkat("/file", rig.root, "link") == 0);
    AUTO_FD int fd = rig_open_file(&rig, "", "/link", &end);
    struct error err;
    CHECK(end.kind == FILES_DONE && fd >= 0 && front_files_descriptor_check(fd, &err));
    close(TAKE_FD(fd)); /* a lease is for a file that nobody else has open */
    pid_t holder = hold_lease(&rig, "file");
    uint64_t begin = clock_monotonic_ns();
    AUTO_FD int leased = rig_open_file(&rig, "", "/file", &end);
    CHECK(leased < 0 && clock_monotonic_ns() - begin < 2000000000);
    check_error(&end, ERROR_CONFLICT, "lease");
    CHECK(kill(holder, SIGKILL) == 0 && waitpid(holder, NULL, 0) == holder);
    rig_close(&rig);
}

/* What the front could wait for is read here: /proc's files come as bytes, not as a descriptor. */
static void test_open_proc(void)
{
    struct rig rig;
    struct files_record end;
    rig_open(&rig);
    rig_stop(&rig);
    int folder = rig.root;
    rig.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    rig_start(&rig, 0);
    AUTO_FD int fd = rig_open_file(&rig, "", "/proc/version", &end);
    CHECK(fd < 0 && end.kind == FILES_DONE && end.count > 0);
    struct files_request request = rig_request(FILES_OPEN, "", "/proc/version");
    struct answer answer = rig_ask(&rig, &request);
    CHECK(answer.count == 2 && answer.all[1].record.kind == FILES_DATA &&
          strncmp(answer.all[1].text, "Linux version", 13) == 0);
    answer_done(&answer);
    /* A magic link is none that is followed. */
    request.path = "/proc/self/fd/0";
    end = rig_end(&rig, &request);
    CHECK(end.kind == FILES_ERROR && end.error.kind == ERROR_INVALID);
    rig_stop(&rig);
    close(rig.root);
    rig.root = folder;
    rig_start(&rig, 0);
    rig_close(&rig);
}

static struct files_record ask_mkdir(struct rig *rig, const char *path, uint32_t flags, uint32_t mode)
{
    struct files_request request = rig_request(FILES_MKDIR, "", path);
    request.flags = flags;
    request.mode = mode;
    return rig_end(rig, &request);
}

static void test_mkdir(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_file(&rig, "file", "");
    struct files_record end = ask_mkdir(&rig, "/a/b/c", 0, 0);
    check_error(&end, ERROR_NOT_FOUND, "");
    end = ask_mkdir(&rig, "/a/b/c", FILES_PARENTS | FILES_MODE, 02770);
    CHECK(end.kind == FILES_DONE && end.count == 1);
    CHECK(rig_stat(&rig, "", "/a/b/c", 0).mode == 02770 && rig_stat(&rig, "", "/a/b", 0).mode == 0755);
    end = ask_mkdir(&rig, "/a/b/c", FILES_PARENTS | FILES_MODE, 0700);
    CHECK(end.kind == FILES_DONE && end.count == 0);
    CHECK(rig_stat(&rig, "", "/a/b/c", 0).mode == 02770);
    end = ask_mkdir(&rig, "/file", FILES_PARENTS, 0);
    check_error(&end, ERROR_CONFLICT, "regular file");
    end = ask_mkdir(&rig, "/file/x", FILES_PARENTS, 0);
    check_error(&end, ERROR_NOT_FOUND, "");
    CHECK(symlinkat("nowhere", rig.root, "dangling") == 0);
    end = ask_mkdir(&rig, "/dangling/x/y", FILES_PARENTS, 0);
    check_error(&end, ERROR_NOT_FOUND, "");
    CHECK(symlinkat("a", rig.root, "link") == 0);
    end = ask_mkdir(&rig, "/link/b/d/e", FILES_PARENTS, 0);
    CHECK(end.kind == FILES_DONE && end.count == 1);
    CHECK(rig_stat(&rig, "", "/a/b/d/e", 0).type == FILES_FOLDER);
    rig_close(&rig);
}

static struct files_record ask_remove(struct rig *rig, const char *path, uint32_t flags)
{
    struct files_request request = rig_request(FILES_REMOVE, "", path);
    request.flags = flags;
    return rig_end(rig, &request);
}

static void test_remove(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_folder(&rig, "keep");
    rig_file(&rig, "keep/file", "kept");
    rig_folder(&rig, "tree");
    rig_folder(&rig, "tree/a");
    rig_file(&rig, "tree/a/file", "");
    CHECK(symlinkat("../keep", rig.root, "tree/link") == 0 && symlinkat("/keep/file", rig.root, "tree/a/link") == 0);
    CHECK(mkfifoat(rig.root, "tree/fifo", 0600) == 0);
    struct files_record end = ask_remove(&rig, "/none", 0);
    check_error(&end, ERROR_NOT_FOUND, "");
    end = ask_remove(&rig, "/none", FILES_RECURSIVE);
    check_error(&end, ERROR_NOT_FOUND, "");
    end = ask_remove(&rig, "/tree", 0);
    check_error(&end, ERROR_CONFLICT, "not empty");
    end = ask_remove(&rig, "/tree", FILES_RECURSIVE);
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "keep/file", "kept");
    CHECK(rig_count(&rig, ".") == 1);
    CHECK(symlinkat("keep", rig.root, "link") == 0);
    end = ask_remove(&rig, "/link", FILES_RECURSIVE);
    CHECK(end.kind == FILES_DONE && rig_count(&rig, "keep") == 1);
    struct files_request request = rig_request(FILES_REMOVE, "", "/keep/file");
    request.flags = FILES_IF_MATCH;
    request.match = rig_stat(&rig, "", "/keep/file", 0).version;
    request.match.mtime_ns++;
    end = rig_end(&rig, &request);
    check_error(&end, ERROR_PRECONDITION, "changed");
    request.match.mtime_ns--;
    end = rig_end(&rig, &request);
    CHECK(end.kind == FILES_DONE && rig_count(&rig, "keep") == 0);
    end = ask_remove(&rig, "/keep", 0);
    CHECK(end.kind == FILES_DONE);
    rig_close(&rig);
}

/* Deeper than any path and than the limit of descriptors; wider than a read of a folder. */
static void test_remove_large(void)
{
    enum { ENTRIES = 20000, DEPTH = 2000, BUSHES = 60 };
    struct rig rig;
    char path[64];
    rig_open(&rig);
    rig_stop(&rig);
    struct rlimit before, few = {.rlim_cur = 64, .rlim_max = 64};
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few.rlim_max = before.rlim_max;
    rig_deep(&rig, "deep", DEPTH);
    rig_folder(&rig, "wide");
    AUTO_FD int wide = openat(rig.root, "wide", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < ENTRIES; i++) {
        (void)snprintf(path, sizeof path, "%d", i);
        CHECK(symlinkat("x", wide, path) == 0);
    }
    for (int i = 0; i < BUSHES; i++) {
        (void)snprintf(path, sizeof path, "wide/bush%d", i);
        rig_folder(&rig, path);
        for (int j = 0; j < 20; j++) {
            (void)snprintf(path, sizeof path, "wide/bush%d/leaf%d", i, j);
            rig_folder(&rig, path);
            (void)snprintf(path, sizeof path, "wide/bush%d/leaf%d/file", i, j);
            rig_file(&rig, path, "");
        }
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    rig_start(&rig, 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    struct files_record end = ask_remove(&rig, "/deep", FILES_RECURSIVE);
    CHECK(end.kind == FILES_DONE);
    end = ask_remove(&rig, "/wide", FILES_RECURSIVE);
    CHECK(end.kind == FILES_DONE);
    CHECK(rig_count(&rig, ".") == 0);
    rig_close(&rig);
}

/* Whoever asked has gone: the helper ends in the middle. */
static void test_remove_cancelled(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_deep(&rig, "deep", 3000);
    struct files_request request = rig_request(FILES_REMOVE, "", "/deep");
    request.flags = FILES_RECURSIVE;
    rig_send(&rig, &request, -1);
    rig_stop(&rig);
    rig_start(&rig, 0);
    rig_close(&rig);
}

static struct files_record ask_move(struct rig *rig, const char *path, const char *to, uint32_t flags)
{
    struct files_request request = rig_request(FILES_MOVE, "", path);
    request.to_path = to;
    request.flags = flags;
    return rig_end(rig, &request);
}

static void test_move(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_file(&rig, "a", "a");
    rig_file(&rig, "b", "b");
    rig_folder(&rig, "folder");
    rig_file(&rig, "folder/x", "x");
    struct files_record end = ask_move(&rig, "/a", "/b", 0);
    check_error(&end, ERROR_CONFLICT, "there already");
    CHECK_FILE(&rig, "b", "b");
    end = ask_move(&rig, "/a", "/b", FILES_OVERWRITE);
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "b", "a");
    end = ask_move(&rig, "/a", "/c", 0);
    check_error(&end, ERROR_NOT_FOUND, "");
    end = ask_move(&rig, "/folder", "/folder/in", 0);
    check_error(&end, ERROR_INVALID, "into itself");
    end = ask_move(&rig, "/b", "/folder", FILES_OVERWRITE);
    check_error(&end, ERROR_CONFLICT, "");
    end = ask_move(&rig, "/folder", "/b", FILES_OVERWRITE);
    check_error(&end, ERROR_CONFLICT, "");
    end = ask_move(&rig, "/b", "/new/er/b", 0);
    check_error(&end, ERROR_NOT_FOUND, "");
    end = ask_move(&rig, "/b", "/new/er/b", FILES_PARENTS);
    CHECK(end.kind == FILES_DONE);
    end = ask_move(&rig, "/folder", "/new/folder", 0);
    CHECK(end.kind == FILES_DONE);
    CHECK_FILE(&rig, "new/folder/x", "x");
    CHECK(symlinkat("new", rig.root, "link") == 0);
    end = ask_move(&rig, "/link", "/moved", 0);
    CHECK(end.kind == FILES_DONE && rig_stat(&rig, "", "/moved", 0).type == FILES_SYMLINK);
    rig_close(&rig);
}

static void test_chmod(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_file(&rig, "file", "");
    CHECK(symlinkat("file", rig.root, "link") == 0);
    struct files_request request = rig_request(FILES_CHMOD, "", "/link");
    request.flags = FILES_MODE;
    request.mode = 04511;
    struct answer answer = rig_ask(&rig, &request);
    CHECK(answer.end.kind == FILES_DONE && answer.count == 1 && answer.all[0].record.mode == 04511 &&
          answer.all[0].record.type == FILES_REGULAR);
    answer_done(&answer);
    request.path = "/none";
    struct files_record end = rig_end(&rig, &request);
    check_error(&end, ERROR_NOT_FOUND, "");
    rig_close(&rig);
}

static struct files_record ask_edit(struct rig *rig, const char *path, const char *old, const char *new, bool all)
{
    struct error err = {0};
    const struct files_edit edit = {.old = {old, strlen(old)}, .new = {new, strlen(new)}, .all = all};
    AUTO_FD int edits = front_files_edits_seal(&edit, 1, &err);
    struct files_request request = rig_request(FILES_EDIT, "", path);
    rig_send(rig, &request, edits);
    struct answer answer = rig_wait(rig);
    struct files_record end = answer.end;
    CHECK(answer.count == (end.kind == FILES_DONE));
    answer_done(&answer);
    return end;
}

static void test_edit(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_file(&rig, "file", "one two one \xff");
    CHECK(fchmodat(rig.root, "file", 0755, 0) == 0 && symlinkat("file", rig.root, "link") == 0);
    struct files_record end = ask_edit(&rig, "/file", "three", "x", false);
    check_error(&end, ERROR_CONFLICT, "not in the file");
    end = ask_edit(&rig, "/file", "one", "x", false);
    check_error(&end, ERROR_CONFLICT, "2 times");
    CHECK_FILE(&rig, "file", "one two one \xff");
    end = ask_edit(&rig, "/link", "one", "1", true);
    CHECK(end.kind == FILES_DONE && end.count == 2);
    end = ask_edit(&rig, "/file", " two", "", false);
    CHECK(end.kind == FILES_DONE && end.count == 1);
    CHECK_FILE(&rig, "file", "1 1 \xff");
    CHECK(rig_stat(&rig, "", "/file", 0).mode == 0755 && rig_stat(&rig, "", "/link", 0).type == FILES_SYMLINK);
    end = ask_edit(&rig, "/none", "a", "b", false);
    check_error(&end, ERROR_NOT_FOUND, "");
    rig_file(&rig, "empty", "");
    end = ask_edit(&rig, "/empty", "a", "b", true);
    check_error(&end, ERROR_CONFLICT, "not in the file");
    /* Grown beyond what may be edited. */
    enum { LARGE = 40000 };
    AUTO_FREE char *text = memory_new(LARGE + 1);
    memset(text, 'a', LARGE);
    rig_write(&rig, "large", text, LARGE);
    text[FRONT_FILES_EDITED_MAX / LARGE + 1] = 0;
    end = ask_edit(&rig, "/large", "a", text, true);
    check_error(&end, ERROR_TOO_LARGE, "over");
    text[FRONT_FILES_EDITED_MAX / LARGE] = 0;
    end = ask_edit(&rig, "/large", "a", text, true);
    CHECK(end.kind == FILES_DONE && end.count == LARGE);
    CHECK(mkfifoat(rig.root, "fifo", 0600) == 0);
    end = ask_edit(&rig, "/fifo", "a", "b", true);
    check_error(&end, ERROR_CONFLICT, "FIFO");
    CHECK(rig_count(&rig, ".") == 5);
    rig_close(&rig);
}

/* As the sandbox's user: what it may not, it may not here. */
static void test_rights(void)
{
    if (geteuid() != 0)
        return;
    struct rig rig;
    rig_open(&rig);
    rig_stop(&rig);
    rig_folder(&rig, "theirs");
    rig_file(&rig, "theirs/file", "x");
    CHECK(fchmodat(rig.root, "theirs/file", 0600, 0) == 0);
    rig_folder(&rig, "ours");
    CHECK(fchownat(rig.root, "ours", RIG_USER, RIG_USER, 0) == 0);
    rig_start(&rig, RIG_USER);
    struct files_record end;
    AUTO_FD int fd = rig_open_file(&rig, "", "/theirs/file", &end);
    CHECK(fd < 0);
    check_error(&end, ERROR_FORBIDDEN, "");
    end = rig_put(&rig, "", "/theirs/new", 0, "x");
    check_error(&end, ERROR_FORBIDDEN, "");
    end = ask_remove(&rig, "/theirs/file", 0);
    check_error(&end, ERROR_FORBIDDEN, "");
    end = rig_put(&rig, "", "/ours/new", 0, "x");
    CHECK(end.kind == FILES_DONE && rig_stat(&rig, "", "/ours/new", 0).uid == RIG_USER);
    rig_close(&rig);
}

/* What breaks the rules ends the connection; a commit that comes late does not. */
static void test_protocol(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_commit(&rig, 5);
    CHECK(rig_stat(&rig, "", "/", 0).kind == FILES_ENTRY);
    CHECK(send(rig.socket, "rubbish", 7, 0) == 7);
    struct answer answer = {0};
    CHECK(!rig_more(&rig, &answer, 5000) && recv(rig.socket, &answer, 1, MSG_DONTWAIT) == 0);
    rig_close(&rig);
}

int main(void)
{
    test_stat();
    test_open();
    test_open_proc();
    test_mkdir();
    test_remove();
    test_remove_large();
    test_remove_cancelled();
    test_move();
    test_chmod();
    test_edit();
    test_rights();
    test_protocol();
    return check_done();
}
