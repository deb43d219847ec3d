/* names_test.c - owners and groups by name; names found by their last part; lines; edits that may miss. */
#include "tests/unit/sandboxd/helpers/files/change_rig.h"

static void write_tables(const struct rig *rig)
{
    rig_folder(rig, "etc");
    rig_file(rig, "etc/passwd",
             "root:x:0:0::/root:/bin/sh\nbroken\n:x:7:7\nada:x:4001:4002\nliar:x:99999999999:1\nall:x:4294967295:1\n");
    rig_file(rig, "etc/group", "root:x:0:\nteam:x:4002:ada\n");
}

static bool is_text(struct files_bytes bytes, const char *text)
{
    return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

/* The entry's texts lie in a packet that the next one takes the place of: looked at there and then. */
static void check_users(struct rig *rig, const char *path, const char *owner, const char *group)
{
    static char packet[FRONT_FILES_PACKET_MAX];
    struct files_request request = rig_request(FILES_STAT, "", path);
    struct files_record record = {0};
    struct error err = {0};
    size_t at = 0;
    rig_send(rig, &request, -1);
    ssize_t size = recv(rig->socket, packet, sizeof packet, 0);
    CHECK(size > 0 && front_files_packet_next(packet, (size_t)size, &at, &record, &err) == 1);
    CHECK(record.kind == FILES_ENTRY && is_text(record.owner, owner) && is_text(record.group, group));
}

static struct files_record give(struct rig *rig, const char *path, const char *owner, const char *group, uint32_t flags)
{
    struct files_request request = rig_request(FILES_CHMOD, "", path);
    request.owner = owner;
    request.group = group;
    request.flags = flags;
    request.mode = 0640;
    struct answer answer = rig_ask(rig, &request);
    struct files_record end = answer.end;
    answer_done(&answer);
    return end;
}

static bool is_of(const struct rig *rig, const char *path, uid_t owner, gid_t group)
{
    struct stat status;
    return fstatat(rig->root, path, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_uid == owner &&
           status.st_gid == group;
}

static void test_users(void)
{
    struct rig rig;
    rig_open(&rig);
    write_tables(&rig);
    rig_file(&rig, "file", "text");
    check_users(&rig, "/file", "root", "root");
    CHECK(give(&rig, "/file", "ada", "team", FILES_MODE).kind == FILES_DONE);
    CHECK(is_of(&rig, "file", 4001, 4002) && rig_stat(&rig, "", "/file", 0).mode == 0640);
    check_users(&rig, "/file", "ada", "team");
    CHECK(give(&rig, "/file", "4003", NULL, 0).kind == FILES_DONE && is_of(&rig, "file", 4003, 4002));
    check_users(&rig, "/file", "", "team");
    static const char *const NOBODY[] = {"eve", "broken", "liar", "all", "4294967295", "-1", "0x1", "ada:x"};
    for (size_t i = 0; i < sizeof NOBODY / sizeof *NOBODY; i++) {
        struct files_record end = give(&rig, "/file", NOBODY[i], NULL, FILES_MODE);
        check_error(&end, ERROR_INVALID, "no such user");
        CHECK(give(&rig, "/file", NOBODY[i], NULL, FILES_KNOWN_USERS | FILES_MODE).kind == FILES_DONE);
        CHECK(is_of(&rig, "file", 4003, 4002));
    }
    rig_close(&rig);
}

/* The tables are the sandbox's: a FIFO, a folder, a link out of it, a huge one, a new one between two requests. */
static void test_hostile_tables(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_folder(&rig, "etc");
    rig_file(&rig, "file", "text");
    CHECK(mkfifoat(rig.root, "etc/passwd", 0666) == 0 && mkdirat(rig.root, "etc/group", 0755) == 0);
    check_users(&rig, "/file", "", "");
    CHECK(unlinkat(rig.root, "etc/passwd", 0) == 0 &&
          symlinkat("/proc/self/../../etc/passwd", rig.root, "etc/passwd") == 0);
    check_users(&rig, "/file", "", "");
    CHECK(unlinkat(rig.root, "etc/passwd", 0) == 0);
    enum { HUGE = (1 << 20) + 1 };
    AUTO_FREE char *huge = memory_new(HUGE + 1);
    memset(huge, '\n', HUGE);
    memcpy(huge, "root:x:0:0\n", 11);
    rig_write(&rig, "etc/passwd", huge, HUGE);
    check_users(&rig, "/file", "", "");
    memset(huge, 'a', 200);
    memcpy(huge + FRONT_FILES_USER_MAX + 1, ":x:0:0", 7);
    rig_file(&rig, "etc/passwd", huge); /* a name that is too long to be told */
    check_users(&rig, "/file", "", "");
    rig_file(&rig, "etc/passwd", "new:x:0:0");
    check_users(&rig, "/file", "new", "");
    rig_close(&rig);
}

static void test_written_for(void)
{
    struct rig rig;
    rig_open(&rig);
    write_tables(&rig);
    struct files_request request = rig_request(FILES_WRITE, "", "/a/b");
    request.flags = FILES_PARENTS | FILES_MODE;
    request.mode = 04755;
    request.owner = "ada";
    struct answer answer = rig_pour(&rig, &request, "x", 1);
    CHECK(answer.end.kind == FILES_DONE && is_of(&rig, "a/b", 4001, 0));
    CHECK(rig_stat(&rig, "", "/a/b", 0).mode == 04755); /* to give it away took the bit; the mode came after */
    answer_done(&answer);
    request.owner = "eve";
    answer = rig_pour(&rig, &request, "y", 1);
    check_error(&answer.end, ERROR_INVALID, "no such user");
    CHECK_FILE(&rig, "a/b", "x");
    answer_done(&answer);
    request = rig_request(FILES_MKDIR, "", "/made");
    request.group = "team";
    answer = rig_ask(&rig, &request);
    CHECK(answer.end.kind == FILES_DONE && is_of(&rig, "made", 0, 4002));
    answer_done(&answer);
    rig_stop(&rig);
    rig_start(&rig, RIG_USER); /* who is not root gives nothing away, and needs no right to leave it as it is */
    CHECK(fchownat(rig.root, "made", RIG_USER, RIG_USER, 0) == 0);
    struct files_record end = give(&rig, "/made", "ada", NULL, 0);
    check_error(&end, ERROR_FORBIDDEN, "root");
    CHECK(give(&rig, "/made", "1000", NULL, 0).kind == FILES_DONE && is_of(&rig, "made", RIG_USER, RIG_USER));
    rig_close(&rig);
}

static void check_found(struct rig *rig, const char *pattern, uint32_t flags, const char *paths)
{
    struct files_request request = rig_request(FILES_GLOB, "", "/");
    request.pattern = pattern;
    request.flags = flags;
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.end.kind == FILES_DONE);
    CHECK_PATHS(&answer, paths);
    answer_done(&answer);
}

static void test_by_name(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_folder(&rig, "a");
    rig_folder(&rig, "a/x.py");
    rig_file(&rig, "a/x.py/y.py", "");
    rig_file(&rig, "a/.hid.py", "");
    rig_file(&rig, "z.txt", "");
    CHECK(symlinkat("/a", rig.root, "l.py") == 0);
    const uint32_t files = FILES_BY_NAME | FILES_NO_FOLDERS;
    check_found(&rig, "*.py", files, "a/.hid.py a/x.py/y.py l.py");
    check_found(&rig, "*.py", FILES_BY_NAME, "a/.hid.py a/x.py a/x.py/y.py l.py");
    check_found(&rig, "**", files, "a/.hid.py a/x.py/y.py l.py z.txt");
    check_found(&rig, "a/*", files, "");
    check_found(&rig, "{z,y}.[!q]*", files, "a/x.py/y.py z.txt");
    check_found(&rig, "*.py", FILES_NO_FOLDERS, "l.py");
    rig_close(&rig);
}

static void check_lines(struct rig *rig, uint64_t line, uint64_t lines, const char *want, uint64_t count)
{
    struct files_request request = rig_request(FILES_OPEN, "", "/file");
    request.flags = FILES_LINES;
    request.offset = line;
    request.size = lines;
    struct answer answer = rig_ask(rig, &request);
    char text[256] = "";
    for (size_t i = 1; i < answer.count; i++)
        strncat(text, answer.all[i].text, sizeof text - strlen(text) - 1);
    CHECK_TEXT(text, want);
    CHECK(answer.end.kind == FILES_DONE && answer.end.count == count);
    answer_done(&answer);
}

static void test_lines(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_file(&rig, "file", "one\r\ntwo\n\n\r\nf\rive\r\r\nsix\r");
    check_lines(&rig, 1, 1, "one", 1);
    check_lines(&rig, 1, 3, "one\ntwo\n", 3);
    check_lines(&rig, 3, 2, "\n", 2);
    check_lines(&rig, 5, 9, "f\rive\r\nsix", 2);
    check_lines(&rig, 6, UINT64_MAX, "six", 1);
    check_lines(&rig, 7, 1, "", 0);
    check_lines(&rig, UINT64_MAX, UINT64_MAX, "", 0);
    rig_file(&rig, "file", "");
    check_lines(&rig, 1, 1, "", 0);
    rig_file(&rig, "file", "a\n");
    check_lines(&rig, 1, 5, "a", 1);
    rig_close(&rig);
}

/* \r and \n stand where two reads meet. */
static void test_long_lines(void)
{
    enum { BLOCK = 32768 };
    struct rig rig;
    rig_open(&rig);
    AUTO_FREE char *text = memory_new(3 * BLOCK + 1);
    memset(text, 'x', 3 * BLOCK);
    text[BLOCK - 1] = '\r';
    text[BLOCK] = '\n';
    text[2 * BLOCK - 1] = '\r'; /* of no line end */
    rig_write(&rig, "file", text, 3 * BLOCK);
    struct files_request request = rig_request(FILES_OPEN, "", "/file");
    request.flags = FILES_LINES;
    request.offset = 1;
    request.size = 2;
    struct answer answer = rig_ask(&rig, &request);
    size_t size = 0, returns = 0;
    for (size_t i = 1; i < answer.count; i++) {
        size += answer.all[i].record.text.size;
        for (const char *at = answer.all[i].text; (at = strchr(at, '\r')) != NULL; at++)
            returns++;
    }
    CHECK(answer.end.kind == FILES_DONE && answer.end.count == 2 && size == 3 * BLOCK - 1 && returns == 1);
    answer_done(&answer);
    rig_close(&rig);
}

static void test_optional_edits(void)
{
    struct rig rig;
    struct error err = {0};
    rig_open(&rig);
    rig_file(&rig, "file", "one two one");
    struct files_record before = rig_stat(&rig, "", "/file", 0);
    struct files_edit edits[] = {{.old = {"three", 5}, .new = {"3", 1}, .all = true, .optional = true},
                                 {.old = {"one", 3}, .new = {"1", 1}, .all = true, .optional = true}};
    for (size_t count = 1; count <= 2; count++) {
        AUTO_FD int texts = front_files_edits_seal(edits, count, &err);
        struct files_request request = rig_request(FILES_EDIT, "", "/file");
        rig_send(&rig, &request, texts);
        struct answer answer = rig_wait(&rig);
        CHECK(answer.end.kind == FILES_DONE && answer.count == 1 && answer.end.count == (count == 1 ? 0 : 2));
        answer_done(&answer);
        CHECK_FILE(&rig, "file", count == 1 ? "one two one" : "1 two 1");
        CHECK((rig_stat(&rig, "", "/file", 0).version.inode == before.version.inode) == (count == 1));
    }
    rig_close(&rig);
}

static void test_no_folders(void)
{
    struct rig rig;
    rig_open(&rig);
    rig_folder(&rig, "folder");
    rig_file(&rig, "file", "");
    CHECK(symlinkat("folder", rig.root, "link") == 0);
    static const char *const PATHS[] = {"/folder", "/file", "/link", "/none"};
    static const enum error_kind KINDS[] = {ERROR_CONFLICT, ERROR_NONE, ERROR_NONE, ERROR_NOT_FOUND};
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++) {
        struct files_request request = rig_request(FILES_REMOVE, "", PATHS[i]);
        request.flags = FILES_NO_FOLDERS;
        struct answer answer = rig_ask(&rig, &request);
        CHECK(KINDS[i] == ERROR_NONE ? answer.end.kind == FILES_DONE : answer.end.error.kind == KINDS[i]);
        answer_done(&answer);
    }
    CHECK(rig_count(&rig, ".") == 1);
    rig_close(&rig);
}

int main(void)
{
    if (geteuid() != 0)
        return 77; /* it gives files away */
    test_users();
    test_hostile_tables();
    test_written_for();
    test_by_name();
    test_lines();
    test_long_lines();
    test_optional_edits();
    test_no_folders();
    return check_done();
}
