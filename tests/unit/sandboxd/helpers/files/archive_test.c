/* archive_test.c - a folder as a tar and back, by the machine's own tar, and what goes wrong on the way. */
#include "tests/unit/sandboxd/helpers/files/tree_rig.h"

struct bytes {
    char *data;
    size_t size;
};

/* Asks for an archive and takes all of it. */
static struct bytes pack(struct rig *rig, const char *path, uint32_t flags, struct files_record *end)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    struct files_request request = {.operation = FILES_PACK, .path = path, .flags = flags};
    rig_send(rig, &request, ends[1]);
    close(ends[1]);
    CHECK(fcntl(ends[0], F_SETFL, 0) == 0);
    struct bytes archive = {0};
    ssize_t got;
    do {
        archive.data = memory_resize(archive.data, archive.size + 65536);
        got = read(ends[0], archive.data + archive.size, 65536);
        archive.size += got > 0 ? (size_t)got : 0;
    } while (got > 0);
    close(ends[0]);
    struct answer answer = {0};
    while (answer.end.kind == 0 && rig_more(rig, &answer, 10000))
        ;
    *end = answer.end;
    answer_done(&answer);
    return archive;
}

/* Sends `size` bytes in two parts, the first of `first` bytes; then COMMIT unless it is cut off. */
static struct files_record unpack(struct rig *rig, const char *path, const struct bytes *archive, size_t first)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    struct files_request request = {.operation = FILES_UNPACK, .path = path};
    rig_send(rig, &request, ends[0]);
    close(ends[0]);
    (void)!write(ends[1], archive->data, first);
    if (first > 0)
        (void)poll(NULL, 0, 20);
    for (size_t at = first; at < archive->size;) {
        ssize_t put = write(ends[1], archive->data + at, archive->size - at);
        if (put <= 0)
            break;
        at += (size_t)put;
    }
    close(ends[1]);
    struct files_request commit = {.operation = FILES_COMMIT, .size = archive->size};
    rig_send(rig, &commit, -1);
    struct answer answer = {0};
    while (answer.end.kind == 0 && rig_more(rig, &answer, 10000))
        ;
    struct files_record end = answer.end;
    answer_done(&answer);
    return end;
}

static struct stat status_of(const struct rig *rig, const char *path)
{
    struct stat status = {0};
    CHECK(fstatat(rig->root, path, &status, AT_SYMLINK_NOFOLLOW) == 0);
    return status;
}

static void make_tree(struct rig *rig)
{
    rig_folder(rig, "t");
    rig_folder(rig, "t/sub");
    rig_file(rig, "t/sub/file", "content");
    rig_file(rig, "t/--help", "a name like an option");
    rig_file(rig, "t/\xff\n", "a name that is no text");
    CHECK(symlinkat("sub/file", rig->root, "t/link") == 0);
    CHECK(mkfifoat(rig->root, "t/pipe", 0600) == 0);
    CHECK(fchmodat(rig->root, "t/sub/file", 0666, 0) == 0);
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 1000000000}};
    CHECK(utimensat(rig->root, "t/sub/file", times, 0) == 0);
}

static void test_there_and_back(struct rig *rig)
{
    for (int i = 0; i < 2; i++) {
        struct files_record end;
        struct bytes archive = pack(rig, "/t", i ? FILES_GZIP : 0, &end);
        CHECK(end.kind == FILES_DONE && end.skipped == 0 && archive.size > 0);
        CHECK((i == 1) == (archive.size > 2 && memcmp(archive.data, "\x1f\x8b", 2) == 0));
        char folder[32], path[64];
        (void)snprintf(folder, sizeof folder, "/new/%d", i);
        end = unpack(rig, folder, &archive, (size_t)i); /* the first byte alone: what it is shows in it */
        CHECK(end.kind == FILES_DONE);
        (void)snprintf(path, sizeof path, "new/%d/sub/file", i);
        struct stat status = status_of(rig, path);
        CHECK((status.st_mode & 07777) == 0666 && status.st_size == 7 && status.st_mtim.tv_sec == 1000000000);
        (void)snprintf(path, sizeof path, "new/%d/link", i);
        CHECK(S_ISLNK(status_of(rig, path).st_mode));
        (void)snprintf(path, sizeof path, "new/%d/pipe", i);
        CHECK(S_ISFIFO(status_of(rig, path).st_mode));
        (void)snprintf(path, sizeof path, "new/%d/\xff\n", i);
        CHECK(status_of(rig, path).st_size == 22);
        (void)snprintf(path, sizeof path, "new/%d/--help", i);
        CHECK(status_of(rig, path).st_size == 21);
        free(archive.data);
    }
}

/* Of the whole sandbox, what the kernel shows in /proc is no part. */
static void test_whole(struct rig *rig)
{
    rig_folder(rig, "proc");
    rig_file(rig, "proc/version", "");
    rig_folder(rig, "t/proc");
    rig_file(rig, "t/proc/mine", "");
    struct files_record end;
    struct bytes archive = pack(rig, "/", 0, &end);
    CHECK(end.kind == FILES_DONE && memmem(archive.data, archive.size, "./proc/", 7));
    CHECK(!memmem(archive.data, archive.size, "./proc/version", 14));
    CHECK(memmem(archive.data, archive.size, "./t/proc/mine", 13));
    free(archive.data);
}

static void test_refused(struct rig *rig)
{
    struct files_record end;
    struct bytes archive = pack(rig, "/none", 0, &end);
    check_error(&end, ERROR_NOT_FOUND, "No such file");
    CHECK(archive.size == 0);
    free(archive.data);
    archive = pack(rig, "/t/sub/file", 0, &end);
    check_error(&end, ERROR_NOT_FOUND, "Not a directory");
    free(archive.data);
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    for (int i = 0; i < 2; i++) {
        struct files_request request = {.operation = i ? FILES_PACK : FILES_UNPACK, .root = "/t", .path = "/t"};
        rig_send(rig, &request, ends[i]);
        struct answer answer = {0};
        while (answer.end.kind == 0 && rig_more(rig, &answer, 5000))
            ;
        check_error(&answer.end, ERROR_FORBIDDEN, "single folder");
        answer_done(&answer);
    }
    close(ends[0]);
    close(ends[1]);
    struct files_request request = {.operation = FILES_PACK, .path = "/t"};
    rig_send(rig, &request, rig->root);
    struct answer answer = {0};
    CHECK(rig_more(rig, &answer, 5000));
    check_error(&answer.end, ERROR_INVALID, "pipe");
    answer_done(&answer);
}

static void test_bad_archives(struct rig *rig)
{
    struct bytes nothing = {.data = NULL};
    struct files_record end = unpack(rig, "/bad", &nothing, 0);
    check_error(&end, ERROR_INVALID, "empty");
    char text[2000];
    memset(text, 'x', sizeof text);
    struct bytes junk = {.data = text, .size = sizeof text};
    end = unpack(rig, "/bad", &junk, 10);
    check_error(&end, ERROR_INVALID, "tar archive");
    memcpy(text, "\x1f\x8b\x08", 3);
    end = unpack(rig, "/bad", &junk, 10);
    CHECK(end.kind == FILES_ERROR && strstr(end.error.message, "gzip"));
    /* Cut off in the middle of a file: an error that says what of it stays. */
    struct bytes archive = pack(rig, "/t", 0, &end);
    size_t whole = archive.size;
    archive.size = 512 * 2 + 10;
    end = unpack(rig, "/cut", &archive, 0);
    check_error(&end, ERROR_INVALID, "stays");
    check_error(&end, ERROR_INVALID, "EOF");
    archive.size = 512 * 3 + 100; /* in a header: tar says nothing */
    end = unpack(rig, "/cut", &archive, 0);
    check_error(&end, ERROR_INVALID, "cut off");
    archive.size = whole;
    CHECK(unpack(rig, "/t/sub/file", &archive, 0).kind == FILES_ERROR); /* not a folder */
    rig_folder(rig, "over");
    rig_folder(rig, "over/link");
    rig_file(rig, "over/link/in the way", "");
    end = unpack(rig, "/over", &archive, 0);
    check_error(&end, ERROR_CONFLICT, "link");
    free(archive.data);
}

/* A symlink that stands for a folder is not gone through: the archive's folder takes its place. */
static void test_symlink_in_the_way(struct rig *rig)
{
    struct files_record end;
    rig_folder(rig, "victim");
    rig_folder(rig, "linked");
    CHECK(symlinkat("../victim", rig->root, "linked/sub") == 0);
    struct bytes archive = pack(rig, "/t", 0, &end);
    end = unpack(rig, "/linked", &archive, 0);
    CHECK(end.kind == FILES_DONE && S_ISDIR(status_of(rig, "linked/sub").st_mode));
    CHECK(faccessat(rig->root, "victim/file", F_OK, 0) < 0);
    free(archive.data);
}

static void test_unreadable(struct rig *rig)
{
    if (geteuid() != 0)
        return;
    rig_folder(rig, "u");
    rig_file(rig, "u/secret", "1");
    rig_file(rig, "u/open", "1");
    CHECK(fchmodat(rig->root, "u/secret", 0600, 0) == 0);
    rig_stop(rig);
    rig_start(rig, RIG_USER);
    struct files_record end;
    struct bytes archive = pack(rig, "/u", 0, &end);
    CHECK(end.kind == FILES_DONE && end.skipped == 1);
    CHECK(memmem(archive.data, archive.size, "./open", 7) && !memmem(archive.data, archive.size, "./secret", 9));
    CHECK(chmod(rig->folder, 0755) == 0);
    end = unpack(rig, "/u", &archive, 0);
    CHECK(end.kind == FILES_ERROR && end.error.kind == ERROR_FORBIDDEN);
    free(archive.data);
    rig_stop(rig);
    rig_start(rig, 0);
}

/* Whether a process of that parent runs. */
static pid_t child_of(pid_t parent)
{
    char path[64], text[64] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    int fd = open(path, O_RDONLY);
    if (fd >= 0 && read(fd, text, sizeof text - 1) < 0)
        text[0] = '\0';
    close(fd);
    return atoi(text);
}

static void test_cancel(struct rig *rig)
{
    for (int i = 0; i < 2; i++) {
        int ends[2];
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        struct files_request request = {.operation = i ? FILES_PACK : FILES_UNPACK, .path = i ? "/big" : "/x"};
        if (i == 1) {
            rig_folder(rig, "big");
            int fd = openat(rig->root, "big/file", O_WRONLY | O_CREAT, 0600);
            CHECK(pwrite(fd, "x", 1, 100 << 20) == 1);
            close(fd);
        } else {
            CHECK(write(ends[1], "\0", 1) == 1);
        }
        rig_send(rig, &request, ends[i]);
        pid_t tar = 0;
        for (int j = 0; j < 500 && tar == 0; j++) {
            (void)poll(NULL, 0, 10);
            tar = child_of(rig->pid);
        }
        CHECK(tar > 0);
        rig_stop(rig); /* the pipe is open still: only the socket is closed */
        bool is_gone = false;
        for (int j = 0; j < 500 && !is_gone; j++) {
            is_gone = tar == 0 || kill(tar, 0) < 0;
            /* Where nobody reaps orphans it stays as a zombie. */
            char path[64], text[256] = "";
            (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)tar);
            int fd = open(path, O_RDONLY);
            is_gone = is_gone || fd < 0 || (read(fd, text, sizeof text - 1) > 0 && strstr(text, ") Z "));
            close(fd);
            (void)poll(NULL, 0, 10);
        }
        CHECK(is_gone);
        close(ends[0]);
        close(ends[1]);
        rig_start(rig, 0);
    }
}

int main(void)
{
    if (access("/usr/bin/tar", X_OK) < 0 && access("/bin/tar", X_OK) < 0)
        check_skip("no tar here");
    struct rig rig;
    rig_open(&rig);
    make_tree(&rig);
    test_there_and_back(&rig);
    test_whole(&rig);
    test_refused(&rig);
    test_bad_archives(&rig);
    test_symlink_in_the_way(&rig);
    test_unreadable(&rig);
    test_cancel(&rig);
    rig_close(&rig);
    return check_done();
}
