/* Subordinate ids: only whole lines of plain decimals count, nobody else's, and nothing that the kernel would not map.
 */
#include "sandboxd/rootless/subordinate.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <string.h>

static struct subordinate_ranges parse(const char *text)
{
    struct subordinate_ranges found;
    subordinate_parse(text, strlen(text), "alice", 1001, &found);
    return found;
}

static bool is_range(const struct subordinate_range *range, uint32_t first, uint32_t count)
{
    return range->first == first && range->count == count;
}

static void test_by_name_and_by_number(void)
{
    struct subordinate_ranges found = parse("bob:100000:65536\nalice:165536:65536\n1001:300000:131072\nalice:500000:1");
    CHECK(found.count == 3);
    CHECK(is_range(&found.list[0], 165536, 65536));
    CHECK(is_range(&found.list[1], 300000, 131072));
    CHECK(is_range(&found.list[2], 500000, 1)); /* no newline at the end of the file */
    CHECK(parse("").count == 0 && parse("\n\n").count == 0);
}

static void test_who_is_like_alice(void)
{
    CHECK(
        parse("alic:100000:65536\nalice2:100000:65536\nAlice:1:2\n alice:100000:65536\nalice :100000:65536\n").count ==
        0);
    CHECK(parse("01001:100000:65536\n+1001:100000:65536\n10011:100000:65536\n").count == 0);
    struct subordinate_ranges found;
    static const char NOBODYS[] = ":100000:65536\nalice:100000:65536\n";
    subordinate_parse(NOBODYS, strlen(NOBODYS), "", 7, &found);
    CHECK(found.count == 0);
    subordinate_parse(NOBODYS, strlen(NOBODYS), NULL, 7, &found);
    CHECK(found.count == 0);
}

static void test_malformed_lines(void)
{
    static const char *const LINES[] = {"alice",
                                        "alice:",
                                        "alice::",
                                        "alice:1",
                                        "alice:1:",
                                        "alice::1",
                                        "alice:100000:65536:",
                                        "alice:100000:65536:1",
                                        "alice:-1:65536",
                                        "alice:100000:-1",
                                        "alice:+100000:65536",
                                        "alice:1e5:65536",
                                        "alice:0x10:65536",
                                        "alice: 100000:65536",
                                        "alice:100000: 65536",
                                        "alice:100000:65536 ",
                                        "alice:100000:65536\r",
                                        "#alice:100000:65536",
                                        "alice:100000:0",
                                        "alice:4294967296:1",
                                        "alice:1:4294967296",
                                        "alice:18446744073709551616:1",
                                        "alice:18446744073709551615:18446744073709551615",
                                        "alice:99999999999999999999999999:1",
                                        "alice,100000,65536"};
    for (size_t i = 0; i < sizeof LINES / sizeof LINES[0]; i++) {
        AUTO_FREE char *text = memory_printf("%s\nalice:700000:65536\n", LINES[i]);
        struct subordinate_ranges found = parse(text);
        if (found.count != 1 || !is_range(&found.list[0], 700000, 65536))
            fprintf(stderr, "%s\n", LINES[i]);
        CHECK(found.count == 1 && is_range(&found.list[0], 700000, 65536));
    }
    static const char ZEROES[] = "alice:1\0000000:65536\nalice\0:100000:65536\nalice:700000:65536";
    struct subordinate_ranges found;
    subordinate_parse(ZEROES, sizeof ZEROES - 1, "alice", 1001, &found);
    CHECK(found.count == 1 && is_range(&found.list[0], 700000, 65536));
}

/* A line of root's is root's mistake: it must neither give root's id nor the user's own, nor any id twice. */
static void test_what_the_kernel_would_not_map(void)
{
    CHECK(parse("alice:0:65536\n").count == 0);
    CHECK(parse("alice:1:65536\n").count == 0); /* holds 1001 itself */
    CHECK(parse("alice:1001:1\n").count == 0);
    CHECK(parse("alice:1002:10\n").count == 1);
    CHECK(parse("alice:4294967295:1\n").count == 0); /* (uid_t)-1 */
    CHECK(parse("alice:4294967294:1\n").count == 1);
    CHECK(parse("alice:4294901760:65536\n").count == 0);
    struct subordinate_ranges found =
        parse("alice:100000:10\nalice:100009:10\nalice:99999:2\nalice:90000:50000\nalice:100010:1\n");
    CHECK(found.count == 2 && is_range(&found.list[0], 100000, 10) && is_range(&found.list[1], 100010, 1));
}

static void test_many_and_files(void)
{
    AUTO_TEXT all = {0};
    for (unsigned i = 0; i < 200; i++)
        text_append_format(&all, "alice:%u:65536\n", 100000 + i * 65536);
    struct subordinate_ranges found = parse(all.data);
    CHECK(found.count == SUBORDINATE_RANGES_MAX);
    char path[] = "/tmp/parley-subid-XXXXXX";
    close(mkstemp(path));
    CHECK(fd_write_file(path, 0644, all.data, all.length, NULL));
    subordinate_read(path, "alice", 1001, &found);
    CHECK(found.count == SUBORDINATE_RANGES_MAX);
    unlink(path);
    subordinate_read(path, "alice", 1001, &found);
    CHECK(found.count == 0);
}

int main(void)
{
    test_by_name_and_by_number();
    test_who_is_like_alice();
    test_malformed_lines();
    test_what_the_kernel_would_not_map();
    test_many_and_files();
    return check_done();
}
