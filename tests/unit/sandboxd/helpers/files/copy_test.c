/* copy_test.c - copies of files, links and trees: whole, or as if nothing had been. */
#include "tests/unit/sandboxd/helpers/files/tree_rig.h"

#include <sys/mount.h>

static struct files_request copy(const char *path, const char *to, uint32_t flags)
{
    return (struct files_request){.operation = FILES_COPY, .path = path, .to_path = to, .flags = flags};
}

static struct stat status_of(const struct rig *rig, const char *path)
{
    struct stat status = {0};
    CHECK(fstatat(rig->root, path, &status, AT_SYMLINK_NOFOLLOW) == 0);
    return status;
}

static bool is_there(const struct rig *rig, const char *path)
{
    struct stat status;
    return fstatat(rig->root, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static char *read_file(const struct rig *rig, const char *path)
{
    char *text = memory_new(65536);
    int fd = openat(rig->root, path, O_RDONLY | O_NOFOLLOW);
    ssize_t size = read(fd, text, 65535);
    CHECK(size >= 0);
    close(fd);
    return text;
}

static void check_text(const struct rig *rig, const char *path, const char *want)
{
    char *text = read_file(rig, path);
    CHECK_TEXT(text, want);
    free(text);
}

/* No `.name.<random>` is left. */
static size_t count_names(struct rig *rig, const char *path)
{
    struct files_request request = {.operation = FILES_LIST, .path = path, .depth = 1};
    return (size_t)rig_end(rig, &request).count;
}

static void test_file(struct rig *rig)
{
    rig_folder(rig, "f");
    rig_file(rig, "f/a", "text of a");
    CHECK(fchmodat(rig->root, "f/a", 0640, 0) == 0);
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 1000000000, .tv_nsec = 123456789}};
    CHECK(utimensat(rig->root, "f/a", times, 0) == 0);
    struct files_request request = copy("/f/a", "/f/b", 0);
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.end.kind == FILES_DONE && answer.end.count == 1 && answer.count == 1);
    CHECK(answer.count == 1 && answer.all[0].record.mode == 0640 && answer.all[0].record.version.size == 9 &&
          answer.all[0].record.version.mtime_ns == 1000000000123456789);
    answer_done(&answer);
    check_text(rig, "f/b", "text of a");
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "target is there");
    rig_file(rig, "f/a", "more");
    request.flags = FILES_OVERWRITE;
    end = rig_end(rig, &request);
    CHECK(end.kind == FILES_DONE);
    check_text(rig, "f/b", "more");
    request = copy("/f/a", "/f/a", FILES_OVERWRITE);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "the same");
    request = copy("/f/a", "/f/x/y", 0);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_NOT_FOUND, "No such file");
    request.flags = FILES_PARENTS;
    end = rig_end(rig, &request);
    CHECK(end.kind == FILES_DONE);
    check_text(rig, "f/x/y", "more");
    request = copy("/f/none", "/f/z", 0);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_NOT_FOUND, "No such file");
    request = copy("/f/a", "/f/b", FILES_OVERWRITE | FILES_IF_NONE);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_PRECONDITION, "there already");
    request = copy("/f/a", "/f/x", FILES_OVERWRITE);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "a folder");
    CHECK(count_names(rig, "/f") == 3);
}

static void test_links_and_special(struct rig *rig)
{
    rig_folder(rig, "s");
    rig_file(rig, "s/file", "x");
    CHECK(symlinkat("file", rig->root, "s/link") == 0);
    CHECK(symlinkat("/nowhere", rig->root, "s/dangling") == 0);
    CHECK(mkfifoat(rig->root, "s/pipe", 0600) == 0);
    struct files_request request = copy("/s/link", "/s/link2", 0);
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.count == 1 && answer.all[0].record.type == FILES_SYMLINK);
    CHECK_TEXT(answer.count ? answer.all[0].text : NULL, "file");
    answer_done(&answer);
    request = copy("/s/dangling", "/s/file2", 0);
    CHECK(rig_end(rig, &request).kind == FILES_DONE && S_ISLNK(status_of(rig, "s/file2").st_mode));
    request = copy("/s/dangling", "/s/link2", FILES_OVERWRITE);
    CHECK(rig_end(rig, &request).kind == FILES_DONE);
    request = copy("/s/file", "/s/link2", FILES_OVERWRITE); /* the name is replaced, not what it leads to */
    CHECK(rig_end(rig, &request).kind == FILES_DONE && S_ISREG(status_of(rig, "s/link2").st_mode));
    request = copy("/s/pipe", "/s/pipe2", FILES_RECURSIVE);
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "FIFO");
    CHECK(!is_there(rig, "s/pipe2") && count_names(rig, "/s") == 6);
}

static void test_tree(struct rig *rig)
{
    rig_folder(rig, "t");
    rig_folder(rig, "t/sub");
    rig_folder(rig, "t/closed");
    rig_file(rig, "t/sub/a", "a");
    rig_file(rig, "t/closed/b", "b");
    CHECK(symlinkat("../..", rig->root, "t/sub/up") == 0);
    CHECK(mkfifoat(rig->root, "t/sub/pipe", 0600) == 0);
    CHECK(fchmodat(rig->root, "t/closed", 0555, 0) == 0);
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 1000000000}};
    CHECK(utimensat(rig->root, "t/sub", times, 0) == 0 && utimensat(rig->root, "t", times, 0) == 0);
    struct files_request request = copy("/t", "/t2", 0);
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "recursively");
    request.flags = FILES_RECURSIVE;
    end = rig_end(rig, &request);
    CHECK(end.kind == FILES_DONE && end.count == 6 && end.skipped == 1);
    check_text(rig, "t2/sub/a", "a");
    check_text(rig, "t2/closed/b", "b");
    CHECK((status_of(rig, "t2/closed").st_mode & 07777) == 0555 && S_ISLNK(status_of(rig, "t2/sub/up").st_mode));
    CHECK(status_of(rig, "t2/sub").st_mtim.tv_sec == 1000000000 && status_of(rig, "t2").st_mtim.tv_sec == 1000000000);
    CHECK(!is_there(rig, "t2/sub/pipe"));
    request.flags = FILES_RECURSIVE | FILES_OVERWRITE;
    end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "not merged");
    request = copy("/t", "/f/a", FILES_RECURSIVE | FILES_OVERWRITE);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "not merged");
    request = copy("/t", "/t/sub/deeper/t", FILES_RECURSIVE | FILES_PARENTS);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "into itself");
    request = copy("/t", "/t/t", FILES_RECURSIVE);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "into itself");
    request = copy("/", "/x", FILES_RECURSIVE);
    end = rig_end(rig, &request);
    CHECK(end.kind == FILES_ERROR && end.error.kind == ERROR_FORBIDDEN);
}

static void test_deep(struct rig *rig)
{
    rig_deep(rig, "d", 1000);
    struct files_request request = copy("/d", "/e", FILES_RECURSIVE);
    uint64_t before = clock_monotonic_ns();
    struct files_record end = rig_end(rig, &request);
    (void)printf("1,000 levels: %.0f ms\n", (double)(clock_monotonic_ns() - before) / 1e6);
    CHECK(end.kind == FILES_DONE && end.count == 1001 && end.skipped == 0);
    request = (struct files_request){.operation = FILES_GLOB, .path = "/e", .pattern = "**/end"};
    CHECK(rig_end(rig, &request).count == 1);
}

static void test_sparse(struct rig *rig)
{
    int fd = openat(rig->root, "sparse", O_RDWR | O_CREAT, 0600);
    CHECK(pwrite(fd, "begin", 5, 0) == 5 && pwrite(fd, "middle", 6, 50 << 20) == 6 && ftruncate(fd, 100 << 20) == 0);
    close(fd);
    struct files_request request = copy("/sparse", "/sparse2", 0);
    CHECK(rig_end(rig, &request).kind == FILES_DONE);
    struct stat before = status_of(rig, "sparse"), after = status_of(rig, "sparse2");
    CHECK(after.st_size == 100 << 20);
    CHECK(after.st_blocks < 4096 || after.st_blocks <= before.st_blocks);
    fd = openat(rig->root, "sparse2", O_RDONLY);
    char text[7] = "";
    CHECK(pread(fd, text, 6, 50 << 20) == 6);
    CHECK_TEXT(text, "middle");
    close(fd);
}

/* One that grows as fast as it is read: what it was when the copy began is copied, and the copy ends. */
static void test_growing(struct rig *rig)
{
    rig_file(rig, "grows", "beginning");
    pid_t pid = fork();
    if (pid == 0) {
        static char part[65536];
        int fd = openat(rig->root, "grows", O_WRONLY | O_APPEND);
        struct rlimit limit = {.rlim_cur = 100 << 20, .rlim_max = 100 << 20};
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        while (write(fd, part, sizeof part) > 0)
            ;
        (void)raise(SIGKILL);
    }
    (void)poll(NULL, 0, 5);
    for (int i = 0; i < 3; i++) {
        struct files_request request = copy("/grows", "/grown", FILES_OVERWRITE);
        CHECK(rig_end(rig, &request).kind == FILES_DONE && status_of(rig, "grown").st_size > 0);
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    CHECK(unlinkat(rig->root, "grows", 0) == 0 && unlinkat(rig->root, "grown", 0) == 0);
}

/* Under a path scope no file is copied whose other name may lie outside, and no link leads out. */
static void test_scope(struct rig *rig)
{
    rig_folder(rig, "in");
    rig_folder(rig, "in/tree");
    rig_file(rig, "secret", "secret");
    rig_file(rig, "in/tree/own", "own");
    CHECK(linkat(rig->root, "secret", rig->root, "in/tree/linked", 0) == 0);
    CHECK(symlinkat("..", rig->root, "in/out") == 0);
    struct files_request request = copy("/in/tree/linked", "/in/x", 0);
    request.root = request.to_root = "/in";
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_FORBIDDEN, "hard link");
    request.path = "/in/tree";
    request.flags = FILES_RECURSIVE;
    end = rig_end(rig, &request);
    CHECK(end.kind == FILES_DONE && end.count == 2 && end.skipped == 1 && !is_there(rig, "in/x/linked"));
    request.path = "/in/out/f/a";
    request.to_path = "/in/y";
    end = rig_end(rig, &request);
    check_error(&end, ERROR_FORBIDDEN, "outside");
    request.path = "/in/tree/own";
    request.to_path = "/in/out/y";
    end = rig_end(rig, &request);
    check_error(&end, ERROR_FORBIDDEN, "outside");
    CHECK(!is_there(rig, "y"));
    request.root = request.to_root = ""; /* with the whole sandbox all is well */
    request.path = "/in/tree/linked";
    end = rig_end(rig, &request);
    CHECK(end.kind == FILES_DONE && is_there(rig, "y"));
}

static void test_unreadable(struct rig *rig)
{
    rig_folder(rig, "u");
    rig_folder(rig, "u/closed");
    rig_file(rig, "u/secret", "1");
    rig_file(rig, "u/open", "1");
    rig_folder(rig, "target");
    CHECK(fchmodat(rig->root, "u/closed", 0700, 0) == 0 && fchmodat(rig->root, "u/secret", 0600, 0) == 0 &&
          fchmodat(rig->root, "target", 0777, 0) == 0);
    struct files_request request = copy("/u", "/target/u", FILES_RECURSIVE);
    struct files_record end = rig_end(rig, &request);
    CHECK(end.kind == FILES_DONE && end.count == 2 && end.skipped == 2);
    request = copy("/u/open", "/u/new", 0);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_FORBIDDEN, "Permission denied");
    /* A copy that fails in the midst, with folders in it that may not be written to any more. */
    CHECK(is_there(rig, "t/closed/b"));
    struct files_request tree = copy("/t", "/target/t", FILES_RECURSIVE);
    CHECK(rig_end(rig, &tree).kind == FILES_DONE);
    CHECK(count_names(rig, "/target") == 2);
}

/* A full file system leaves nothing behind, of a file or a tree. */
static void test_full(struct rig *rig)
{
    rig_folder(rig, "full");
    char path[128];
    (void)snprintf(path, sizeof path, "%s/full", rig->folder);
    if (mount("tmpfs", path, "tmpfs", MS_NOSUID, "size=4m,mode=0777") < 0) {
        (void)printf("no tmpfs here: a full disk is not tried\n");
        return;
    }
    rig_folder(rig, "big");
    rig_folder(rig, "big/a");
    rig_file(rig, "big/a/small", "small");
    CHECK(fchmodat(rig->root, "big/a", 0555, 0) == 0);
    int fd = openat(rig->root, "big/b", O_WRONLY | O_CREAT, 0644);
    char *part = memory_new(1 << 20);
    memset(part, 'x', 1 << 20);
    for (int i = 0; i < 8; i++)
        CHECK(write(fd, part, 1 << 20) == 1 << 20);
    free(part);
    close(fd);
    struct files_request request = copy("/big/b", "/full/b", 0);
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_DISK_FULL, "No space left");
    CHECK(count_names(rig, "/full") == 0);
    request = copy("/big", "/full/big", FILES_RECURSIVE);
    end = rig_end(rig, &request);
    check_error(&end, ERROR_DISK_FULL, "No space left");
    CHECK(count_names(rig, "/full") == 0);
    request = copy("/t", "/full/t", FILES_RECURSIVE);
    CHECK(rig_end(rig, &request).kind == FILES_DONE);
    /* A move to there is a copy and a removal: all of it or nothing. */
    request = copy("/f/x/y", "/full/y", 0);
    request.operation = FILES_MOVE;
    CHECK(rig_end(rig, &request).kind == FILES_ERROR && is_there(rig, "f/x/y") && !is_there(rig, "full/y"));
    rig_stop(rig);
    rig_start(rig, 0);
    CHECK(rig_end(rig, &request).kind == FILES_DONE && !is_there(rig, "f/x/y"));
    check_text(rig, "full/y", "more");
    request = copy("/s", "/full/s", 0); /* with a FIFO in it */
    request.operation = FILES_MOVE;
    end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "another file system");
    CHECK(is_there(rig, "s/file") && is_there(rig, "s/pipe") && !is_there(rig, "full/s"));
    CHECK(umount2(path, MNT_DETACH) == 0);
}

/* The front goes in the midst of a tree: the helper ends, the half tree is gone. */
static void test_cancel(struct rig *rig)
{
    rig_folder(rig, "many");
    for (int i = 0; i < 20000; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "many/%d", i);
        if (mknodat(rig->root, name, S_IFREG | 0600, 0) < 0)
            check_failures++;
    }
    size_t before = count_names(rig, "/");
    struct files_request request = copy("/many", "/many2", FILES_RECURSIVE);
    rig_send(rig, &request, -1);
    (void)poll(NULL, 0, 50);
    rig_stop(rig);
    rig_start(rig, 0);
    CHECK(!is_there(rig, "many2") && count_names(rig, "/") == before);
}

int main(void)
{
    struct rig rig;
    rig_open(&rig);
    test_file(&rig);
    test_links_and_special(&rig);
    test_tree(&rig);
    test_deep(&rig);
    test_sparse(&rig);
    test_growing(&rig);
    test_scope(&rig);
    test_cancel(&rig);
    if (geteuid() == 0) {
        rig_stop(&rig);
        rig_start(&rig, RIG_USER);
        test_unreadable(&rig);
        test_full(&rig);
    }
    rig_close(&rig);
    return check_done();
}
