/* initramfs_test.c - what is written is what the kernel's unpacker reads (buffer-format.rst): each entry's head, name,
 * mode, owner and bytes, aligned to four, and the trailer. */
#include "sandboxd/isolation/microvm/initramfs.h"

#include "tests/unit/check.h"

enum { HEAD_BYTES = 110 };

/* One field of eight hex digits: 0 inode, 1 mode, 2 uid, 3 gid, 4 links, 5 time, 6 size, 7..10 devices, 11 name. */
static unsigned long field(const char *head, size_t number)
{
    char digits[9] = "";
    memcpy(digits, head + 6 + number * 8, 8);
    return strtoul(digits, NULL, 16);
}

static size_t aligned(size_t at)
{
    return (at + 3) / 4 * 4;
}

/* Where the next one begins; 0 when this is not it. */
static size_t check_entry(const struct text *bytes, size_t at, const char *name, unsigned long mode,
                          const char *content)
{
    const char *head = bytes->data + at;
    CHECK(at % 4 == 0 && at + HEAD_BYTES <= bytes->length && memcmp(head, "070701", 6) == 0);
    CHECK(field(head, 1) == mode && field(head, 2) == 0 && field(head, 3) == 0);
    CHECK(field(head, 6) == strlen(content) && field(head, 11) == strlen(name) + 1);
    CHECK_TEXT(head + HEAD_BYTES, name);
    size_t data = aligned(at + HEAD_BYTES + strlen(name) + 1);
    CHECK(data + strlen(content) <= bytes->length && memcmp(bytes->data + data, content, strlen(content)) == 0);
    return aligned(data + strlen(content));
}

static void test_entries_follow_each_other(void)
{
    AUTO_INITRAMFS made = {0};
    initramfs_add_folder(&made, "modules");
    initramfs_add_file(&made, "modules/a.ko", 0644, "12345", 5);
    initramfs_add_file(&made, "letter", 0400, "", 0);
    initramfs_add_file(&made, "init", 04755, "abcd", 4); /* no more than permission bits are checked by the caller */
    initramfs_end(&made);
    size_t at = check_entry(&made.bytes, 0, "modules", 0040755, "");
    at = check_entry(&made.bytes, at, "modules/a.ko", 0100644, "12345");
    at = check_entry(&made.bytes, at, "letter", 0100400, "");
    at = check_entry(&made.bytes, at, "init", 0104755, "abcd");
    at = check_entry(&made.bytes, at, "TRAILER!!!", 0, "");
    CHECK(made.bytes.length % 512 == 0 && at <= made.bytes.length && made.bytes.length - at < 512);
}

static void test_inodes_are_not_shared(void)
{
    AUTO_INITRAMFS made = {0};
    initramfs_add_file(&made, "a", 0644, "", 0);
    size_t second = made.bytes.length;
    initramfs_add_file(&made, "b", 0644, "", 0);
    CHECK(field(made.bytes.data, 0) != field(made.bytes.data + second, 0)); /* else the kernel would link them */
}

int main(void)
{
    test_entries_follow_each_other();
    test_inodes_are_not_shared();
    return check_done();
}
