/* front_files_test.c - requests, edits and records between the front and a file helper, and everything that is refused.
 */
#include "sandboxd/front_files/front_files.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

static struct files_request stat_of(const char *root, const char *path)
{
    return (struct files_request){.operation = FILES_STAT, .root = root, .path = path};
}

static bool is_good(const struct files_request *request, bool has_descriptor)
{
    struct error err = {0};
    bool good = front_files_request_check(request, has_descriptor, &err);
    CHECK(good == (err.kind == ERROR_NONE));
    CHECK(good || err.kind == ERROR_INVALID);
    return good;
}

static bool is_good_path(const char *root, const char *path)
{
    struct files_request request = stat_of(root, path);
    return is_good(&request, false);
}

static void test_paths(void)
{
    char long_path[FRONT_FILES_PATH_MAX + 2];
    CHECK(is_good_path("", "/"));
    CHECK(is_good_path(NULL, "/a"));
    CHECK(is_good_path("/", "/a/b"));
    CHECK(is_good_path("/a", "/a"));
    CHECK(is_good_path("/a", "/a/b"));
    CHECK(is_good_path("", "/\xff\xfe\n"));
    CHECK(is_good_path("", "/..."));
    CHECK(!is_good_path("/a", "/ab"));
    CHECK(!is_good_path("/a", "/"));
    CHECK(!is_good_path("/a", "/b/a"));
    CHECK(!is_good_path("", ""));
    CHECK(!is_good_path("", "a"));
    CHECK(!is_good_path("", "/a/"));
    CHECK(!is_good_path("", "//a"));
    CHECK(!is_good_path("", "/a//b"));
    CHECK(!is_good_path("", "/."));
    CHECK(!is_good_path("", "/a/./b"));
    CHECK(!is_good_path("", "/a/.."));
    CHECK(!is_good_path("", "/../a"));
    CHECK(!is_good_path("/a/../b", "/a/../b/c"));
    CHECK(!is_good_path("a", "a/b"));
    for (size_t i = 0; i < sizeof long_path; i++)
        long_path[i] = i % 100 == 0 ? '/' : 'a';
    long_path[FRONT_FILES_PATH_MAX] = 0;
    CHECK(is_good_path("", long_path));
    long_path[FRONT_FILES_PATH_MAX] = 'a';
    long_path[FRONT_FILES_PATH_MAX + 1] = 0;
    CHECK(!is_good_path("", long_path));
    memset(long_path + 1, 'a', FRONT_FILES_NAME_MAX);
    long_path[1 + FRONT_FILES_NAME_MAX] = 0;
    CHECK(is_good_path("", long_path));
    long_path[1 + FRONT_FILES_NAME_MAX] = 'a';
    long_path[2 + FRONT_FILES_NAME_MAX] = 0;
    CHECK(!is_good_path("", long_path));
}

static void test_rules(void)
{
    struct files_request request = stat_of("", "/a");
    CHECK(!is_good(&request, true));
    request.flags = FILES_RECURSIVE;
    CHECK(!is_good(&request, false));
    request = (struct files_request){.operation = FILES_LIST, .path = "/"};
    CHECK(!is_good(&request, false));
    request.depth = 64;
    CHECK(is_good(&request, false));
    request.depth = 65;
    CHECK(!is_good(&request, false));
    request = (struct files_request){.operation = FILES_MOVE, .path = "/a", .to_path = "/b"};
    CHECK(is_good(&request, false));
    request.to_root = "/c";
    CHECK(!is_good(&request, false));
    request.to_path = "";
    CHECK(!is_good(&request, false));
    request = (struct files_request){.operation = FILES_GLOB, .path = "/a"};
    CHECK(!is_good(&request, false));
    request.pattern = "*";
    CHECK(is_good(&request, false));
    request.to_path = "/b";
    CHECK(!is_good(&request, false));
    request = (struct files_request){.operation = FILES_CHMOD, .path = "/a", .mode = 0600};
    CHECK(!is_good(&request, false));
    request.flags = FILES_MODE;
    CHECK(is_good(&request, false));
    request.mode = 010000;
    CHECK(!is_good(&request, false));
    request = (struct files_request){.operation = FILES_WRITE, .path = "/a", .flags = FILES_IF_MATCH | FILES_IF_NONE};
    CHECK(!is_good(&request, true));
    request.flags = FILES_IF_NONE;
    CHECK(is_good(&request, true));
    CHECK(!is_good(&request, false));
    request = (struct files_request){.operation = FILES_COMMIT, .size = 7};
    CHECK(is_good(&request, false));
    request.path = "/a";
    CHECK(!is_good(&request, false));
    request = (struct files_request){.operation = (enum files_operation)99, .path = "/a"};
    CHECK(!is_good(&request, false));
}

static void test_pieces(void)
{
    struct files_request request = {
        .operation = FILES_PIECE, .path = "/a", .upload = "x.1", .size = 5, .offset = 5, .total = 10};
    CHECK(is_good(&request, true));
    CHECK(!is_good(&request, false));
    request.total = 9;
    CHECK(!is_good(&request, true));
    request.total = 10;
    request.offset = UINT64_MAX;
    CHECK(!is_good(&request, true));
    request.offset = 0;
    request.size = 0;
    CHECK(is_good(&request, false));
    request.upload = "a/b";
    CHECK(!is_good(&request, false));
    request.upload = "";
    CHECK(!is_good(&request, false));
}

static void test_round_trip(void)
{
    int ends[2], descriptor = -1;
    struct error err = {0};
    struct files_request got = {0};
    void *memory = NULL;
    const struct files_request sent = {.operation = FILES_WRITE,
                                       .flags = FILES_MODE | FILES_MTIME | FILES_IF_MATCH,
                                       .mode = 0640,
                                       .mtime_ns = -5,
                                       .match = {.inode = 1, .size = 2, .mtime_ns = -3, .ctime_ns = 4},
                                       .root = "/w",
                                       .path = "/w/\xff"};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(front_files_request_send(ends[0], &sent, ends[0], &err));
    CHECK(front_files_request_receive(ends[1], &got, &memory, &descriptor, &err) == 1);
    CHECK(got.operation == sent.operation && got.flags == sent.flags && got.mode == 0640 && got.mtime_ns == -5);
    CHECK(memcmp(&got.match, &sent.match, sizeof got.match) == 0);
    CHECK_TEXT(got.path, "/w/\xff");
    CHECK_TEXT(got.root, "/w");
    CHECK_TEXT(got.to_path, "");
    CHECK(descriptor > ends[1] && (fcntl(descriptor, F_GETFD) & FD_CLOEXEC));
    close(descriptor);
    free(memory);
    /* A packet that is too short; one whose texts do not fill it; two descriptors; then the end. */
    struct error why = {0};
    CHECK(send(ends[0], "abc", 3, 0) == 3);
    CHECK(front_files_request_receive(ends[1], &got, &memory, &descriptor, &why) == -1 && why.kind == ERROR_INVALID);
    char packet[400] = {0};
    packet[0] = FILES_STAT;
    CHECK(send(ends[0], packet, sizeof packet, 0) == sizeof packet);
    CHECK(front_files_request_receive(ends[1], &got, &memory, &descriptor, &why) == -1 && why.kind == ERROR_INVALID);
    CHECK(fd_send_message(ends[0], packet, sizeof packet, ends, 2, &err));
    CHECK(front_files_request_receive(ends[1], &got, &memory, &descriptor, &why) == -1 && why.kind == ERROR_INVALID);
    close(ends[0]);
    CHECK(front_files_request_receive(ends[1], &got, &memory, &descriptor, &why) == 0);
    close(ends[1]);
}

static struct files_bytes bytes(const char *text)
{
    return (struct files_bytes){.data = text, .size = strlen(text)};
}

static bool is_bytes(const struct files_bytes *got, const char *want)
{
    return got->size == strlen(want) && memcmp(got->data, want, got->size) == 0;
}

static void test_records(void)
{
    static struct files_packet packet;
    static char large[32769];
    struct files_record got,
        records[] = {
            {.kind = FILES_ENTRY,
             .type = FILES_SYMLINK,
             .mode = 0777,
             .uid = 1,
             .gid = 2,
             .links = 3,
             .version = {.inode = 4, .size = 5, .mtime_ns = -6, .ctime_ns = 7},
             .path = bytes("a/\xff"),
             .target = bytes("../x")},
            {.kind = FILES_ENTRY, .type = FILES_FOLDER},
            {.kind = FILES_MATCH, .line = 1, .column = 2, .is_cut = true, .path = bytes("a"), .text = {large, 32768}},
            {.kind = FILES_EVENT, .event = FILES_MOVED, .is_folder = true, .path = bytes("b"), .from = bytes("a")},
            {.kind = FILES_STATE, .received = 4, .total = 5},
            {.kind = FILES_DATA, .text = bytes("x")},
            {.kind = FILES_DONE, .count = 9, .skipped = 8, .is_truncated = true},
            {.kind = FILES_ERROR},
        };
    struct error err = {0};
    error_set(&records[7].error, ERROR_CONFLICT, "no");
    size_t at = 0, count = sizeof records / sizeof *records;
    for (size_t i = 0; i < count; i++) {
        CHECK(front_files_record_check(&records[i], &err));
        CHECK(front_files_packet_add(&packet, &records[i]));
    }
    for (size_t i = 0; i < count; i++) {
        CHECK(front_files_packet_next(packet.data, packet.size, &at, &got, &err) == 1);
        CHECK(got.kind == records[i].kind && got.path.size == records[i].path.size);
        if (i == 0)
            CHECK(is_bytes(&got.path, "a/\xff") && is_bytes(&got.target, "../x") && got.mode == 0777 && got.uid == 1 &&
                  got.gid == 2 && got.links == 3 && got.version.mtime_ns == -6 && got.version.ctime_ns == 7);
        if (i == 2)
            CHECK(got.line == 1 && got.column == 2 && got.is_cut && got.text.size == 32768);
        if (i == 3)
            CHECK(is_bytes(&got.from, "a") && got.event == FILES_MOVED && got.is_folder);
        if (i == 6)
            CHECK(got.count == 9 && got.skipped == 8 && got.is_truncated);
        if (i == 7)
            CHECK(got.error.kind == ERROR_CONFLICT && strcmp(got.error.message, "no") == 0);
    }
    CHECK(front_files_packet_next(packet.data, packet.size, &at, &got, &err) == 0);
    /* Cut at any byte within, it is refused and never read beyond. */
    for (size_t size = 0; size < 300; size++) {
        AUTO_FREE char *cut = memory_copy(packet.data, size);
        int result = 1;
        for (at = 0; result == 1;)
            result = front_files_packet_next(cut, size, &at, &got, &err);
    }
}

static void test_bad_records(void)
{
    struct error err;
    const char nul[] = {'a', 0, 'b'};
    struct files_record bad[] = {
        {.kind = FILES_ENTRY, .type = FILES_REGULAR, .path = bytes("/a")},
        {.kind = FILES_ENTRY, .type = FILES_REGULAR, .path = bytes("a/")},
        {.kind = FILES_ENTRY, .type = FILES_REGULAR, .path = bytes("a/../b")},
        {.kind = FILES_ENTRY, .type = FILES_REGULAR, .path = bytes(".")},
        {.kind = FILES_ENTRY, .type = FILES_REGULAR, .path = {nul, 3}},
        {.kind = FILES_ENTRY, .type = FILES_REGULAR, .target = bytes("a")},
        {.kind = FILES_ENTRY, .type = FILES_REGULAR, .mode = 010000},
        {.kind = FILES_ENTRY},
        {.kind = FILES_MATCH, .line = 0, .column = 1},
        {.kind = FILES_EVENT},
        {.kind = FILES_EVENT, .event = FILES_CREATED, .from = bytes("a")},
        {.kind = FILES_EVENT, .event = FILES_MOVED, .from = bytes("..")},
        {.kind = FILES_STATE, .received = 2, .total = 1},
        {.kind = FILES_DATA},
        {.kind = FILES_ERROR},
        {.kind = FILES_ERROR, .error = {.kind = ERROR_INVALID, .message = "\xff"}},
        {.kind = (enum files_record_kind)8},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static struct files_packet packet;
        struct files_record got;
        size_t at = 0;
        err = (struct error){0};
        CHECK(!front_files_record_check(&bad[i], &err) && err.kind == ERROR_INVALID);
        packet.size = 0;
        if (bad[i].kind > FILES_ERROR)
            continue;
        CHECK(front_files_packet_add(&packet, &bad[i]));
        err = (struct error){0};
        CHECK(front_files_packet_next(packet.data, packet.size, &at, &got, &err) == -1 && err.kind == ERROR_INVALID);
    }
}

static void test_full(void)
{
    static struct files_packet packet;
    const struct files_record record = {.kind = FILES_ENTRY, .type = FILES_REGULAR, .path = bytes("name")};
    struct files_record got;
    struct error err = {0};
    size_t added = 0, read = 0, at = 0;
    while (front_files_packet_add(&packet, &record))
        added++;
    while (front_files_packet_next(packet.data, packet.size, &at, &got, &err) == 1)
        read++;
    CHECK(added > 400 && added == read && packet.size <= FRONT_FILES_PACKET_MAX);
}

static void test_edits(void)
{
    struct error err = {0};
    struct files_edit edits[2] = {{.old = bytes("a\n"), .new = bytes(""), .all = true},
                                  {.old = bytes("\xff"), .new = bytes("new")}};
    struct files_edit *got = NULL;
    size_t count = 0;
    AUTO_FD int fd = front_files_edits_seal(edits, 2, &err);
    CHECK(fd >= 0 && front_files_edits_read(fd, &got, &count, &err) && count == 2);
    CHECK(is_bytes(&got[0].old, "a\n") && got[0].new.size == 0 && got[0].all);
    CHECK(is_bytes(&got[1].old, "\xff") && is_bytes(&got[1].new, "new") && !got[1].all);
    free(got);
    CHECK(front_files_edits_seal(edits, 0, &err) == -1 && err.kind == ERROR_INVALID);
    CHECK(front_files_edits_seal(edits, 1001, &err) == -1 && err.kind == ERROR_INVALID);
    AUTO_FREE char *large = memory_new(FRONT_FILES_EDIT_MAX + 1);
    edits[0].new = (struct files_bytes){.data = large, .size = FRONT_FILES_EDIT_MAX};
    CHECK(front_files_edits_seal(edits, 1, &err) == -1 && err.kind == ERROR_TOO_LARGE);
    edits[0].old.size = 0;
    CHECK(front_files_edits_seal(edits, 1, &err) == -1 && err.kind == ERROR_INVALID);
    AUTO_FD int open_memory = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(write(open_memory, "\1\0\0\0", 4) == 4);
    CHECK(!front_files_edits_read(open_memory, &got, &count, &err) && err.kind == ERROR_INVALID);
    static const uint32_t lies[][5] = {{1, 9, 0, 0, 0}, {1, 4, 0, 4, 0}, {2, 1, 1, 1, 1}, {1, UINT32_MAX, 5, 0, 0}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        AUTO_FD int lie = fd_sealed_memfd("lie", lies[i], sizeof lies[i], &err);
        CHECK(!front_files_edits_read(lie, &got, &count, &err) && err.kind == ERROR_INVALID);
    }
}

static void test_descriptors(void)
{
    struct error err;
    AUTO_FD int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    AUTO_FD int path = open("/etc/passwd", O_PATH | O_CLOEXEC);
    AUTO_FD int proc = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    AUTO_FD int device = open("/dev/null", O_RDONLY | O_CLOEXEC);
    AUTO_FD int memory = memfd_create("writable", MFD_CLOEXEC);
    CHECK(front_files_descriptor_check(file, &err));
    CHECK(!front_files_descriptor_check(path, &err));
    CHECK(!front_files_descriptor_check(proc, &err));
    CHECK(!front_files_descriptor_check(device, &err));
    CHECK(!front_files_descriptor_check(memory, &err));
    CHECK(!front_files_descriptor_check(-1, &err));
}

int main(void)
{
    test_paths();
    test_rules();
    test_pieces();
    test_round_trip();
    test_records();
    test_bad_records();
    test_full();
    test_edits();
    test_descriptors();
    return check_done();
}
