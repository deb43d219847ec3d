/* grep_test.c - what is found, where, and what is left alone. */
#include "tests/unit/sandboxd/helpers/files/tree_rig.h"

#include <locale.h>
#include <sys/un.h>

static struct files_request grep(const char *path, const char *pattern)
{
    return (struct files_request){.operation = FILES_GREP, .path = path, .pattern = pattern};
}

/* "path:line:column:text" of all, with a bar between. */
static char *found(const struct answer *answer)
{
    char *all = memory_string("");
    for (size_t i = 0; i < answer->count; i++) {
        const struct got *got = &answer->all[i];
        char *longer =
            memory_printf("%s%s%s:%llu:%llu:%s", all, i ? "|" : "", got->path, (unsigned long long)got->record.line,
                          (unsigned long long)got->record.column, got->text);
        free(all);
        all = longer;
    }
    return all;
}

static void check_found(struct rig *rig, const struct files_request *request, const char *want, uint64_t skipped)
{
    struct answer answer = rig_ask(rig, request);
    char *all = found(&answer);
    CHECK_TEXT(all, want);
    free(all);
    CHECK(answer.end.kind == FILES_DONE && answer.end.count == answer.count && answer.end.skipped == skipped);
    if (answer.end.kind == FILES_ERROR)
        (void)fprintf(stderr, "%s\n", answer.end.error.message);
    answer_done(&answer);
}

static void test_patterns(struct rig *rig)
{
    rig_folder(rig, "p");
    rig_folder(rig, "p/sub");
    rig_file(rig, "p/a.c", "int main\n\n  Return a.b;\nreturn aXb\nlast return");
    rig_file(rig, "p/sub/b.h", "return\r\n");
    rig_file(rig, "p/empty", "");
    CHECK(symlinkat("a.c", rig->root, "p/link") == 0);
    CHECK(symlinkat("..", rig->root, "p/loop") == 0);
    struct files_request request = grep("/p", "return");
    check_found(rig, &request, "a.c:4:1:return aXb|a.c:5:6:last return|sub/b.h:1:1:return\r", 0);
    request.flags = FILES_IGNORE_CASE;
    check_found(rig, &request, "a.c:3:3:  Return a.b;|a.c:4:1:return aXb|a.c:5:6:last return|sub/b.h:1:1:return\r", 0);
    request = grep("/p", "a.b");
    check_found(rig, &request, "a.c:3:10:  Return a.b;|a.c:4:8:return aXb", 0);
    request.flags = FILES_FIXED;
    check_found(rig, &request, "a.c:3:10:  Return a.b;", 0);
    request = grep("/p", "A.B;");
    request.flags = FILES_FIXED | FILES_IGNORE_CASE;
    check_found(rig, &request, "a.c:3:10:  Return a.b;", 0);
    request = grep("/p", "^$");
    check_found(rig, &request, "a.c:2:1:", 0);
    request = grep("/p", "(in|as)t.*n$");
    check_found(rig, &request, "a.c:1:1:int main|a.c:5:2:last return", 0);
    request = grep("/p", "return");
    request.flags = FILES_FIXED;
    request.glob = "*.{h,c}";
    check_found(rig, &request, "a.c:4:1:return aXb|a.c:5:6:last return|sub/b.h:1:1:return\r", 0);
    request.glob = "sub/*";
    check_found(rig, &request, "sub/b.h:1:1:return\r", 0);
    request = grep("/p/a.c", "last");
    check_found(rig, &request, ":5:1:last return", 0);
    request = grep("/p/link", "last");
    check_found(rig, &request, ":5:1:last return", 0);
    request = grep("/p", "return");
    request.limit = 2;
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.count == 2 && answer.end.is_truncated);
    answer_done(&answer);
}

/* A character is one of UTF-8, where the machine has a locale that knows it; other bytes match as themselves. */
static void test_characters(struct rig *rig)
{
    rig_folder(rig, "i");
    rig_file(rig, "i/text",
             "\xc3\xa4"
             "b\n\xff"
             "b\nab\n");
    struct files_request request = grep("/i", "ab|\xc3\xa4");
    check_found(rig, &request,
                "text:1:1:\xc3\xa4"
                "b|text:3:1:ab",
                0);
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        return;
    request.pattern = "^.b$";
    check_found(rig, &request,
                "text:1:1:\xc3\xa4"
                "b|text:3:1:ab",
                0);
    request.pattern = "\xc3\x84"
                      "B"; /* the capital letter */
    request.flags = FILES_IGNORE_CASE;
    check_found(rig, &request,
                "text:1:1:\xc3\xa4"
                "b",
                0);
}

static void test_refused(struct rig *rig)
{
    struct files_request request = grep("/p", "a(b");
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_INVALID, "Unmatched ( or \\(");
    request.pattern = "a\nb";
    end = rig_end(rig, &request);
    check_error(&end, ERROR_INVALID, "newline");
    request = grep("/p", "a");
    request.glob = "/x";
    end = rig_end(rig, &request);
    check_error(&end, ERROR_INVALID, "part");
    request = grep("/none", "a");
    end = rig_end(rig, &request);
    check_error(&end, ERROR_NOT_FOUND, "No such file");
    CHECK(mkfifoat(rig->root, "fifo", 0600) == 0);
    request = grep("/fifo", "a");
    end = rig_end(rig, &request);
    check_error(&end, ERROR_CONFLICT, "FIFO");
}

/* A pattern that wants gigabytes is refused before the sandbox's memory is gone. */
static void test_hungry(struct rig *rig)
{
    struct files_request request = grep("/p", "((((a{1,120}){1,120}){1,120}){1,120})");
    struct files_record end = rig_end(rig, &request);
    CHECK(end.kind == FILES_ERROR && end.error.kind == ERROR_INVALID);
    char text[FRONT_FILES_TEXT_MAX + 1];
    memset(text, '(', FRONT_FILES_TEXT_MAX / 2);
    memset(text + FRONT_FILES_TEXT_MAX / 2, ')', FRONT_FILES_TEXT_MAX / 2);
    text[FRONT_FILES_TEXT_MAX] = '\0';
    request.pattern = text;
    struct answer answer = rig_ask(rig, &request);
    answer_done(&answer);
    request.pattern = "return"; /* it lives, and may have memory again */
    end = rig_end(rig, &request);
    CHECK(end.kind == FILES_DONE && end.count == 3);
}

static void test_left_alone(struct rig *rig)
{
    rig_folder(rig, "s");
    rig_write(rig, "s/binary", "find me\0", 8);
    rig_file(rig, "s/text", "find me\n");
    CHECK(mkfifoat(rig->root, "s/pipe", 0600) == 0);
    int large = openat(rig->root, "s/large", O_WRONLY | O_CREAT, 0600);
    CHECK(write(large, "find me\n", 8) == 8 && ftruncate(large, (64 << 20) + 1) == 0);
    close(large);
    int folder = openat(rig->root, "s", O_RDONLY | O_DIRECTORY);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", folder);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (const struct sockaddr *)&address, sizeof address) == 0);
    close(listener);
    close(folder);
    struct files_request request = grep("/s", "find");
    check_found(rig, &request, "text:1:1:find me", 4);
    request.glob = "t*"; /* what was not asked for is not counted */
    check_found(rig, &request, "text:1:1:find me", 0);
    CHECK(linkat(rig->root, "s/text", rig->root, "outside", 0) == 0);
    request = grep("/s", "find");
    check_found(rig, &request, "text:1:1:find me", 4);
    request.root = "/s"; /* with another name, which may be outside */
    check_found(rig, &request, "", 5);
}

static void test_long_lines(struct rig *rig)
{
    rig_folder(rig, "l");
    size_t size = 3 << 20;
    char *text = memory_new(size);
    memset(text, 'x', size);
    memcpy(text + 5000, "needle", 6);
    memcpy(text + (2 << 20), "needle", 6); /* beyond what is looked at of a line */
    text[size - 100] = '\n';
    memcpy(text + size - 50, "needle", 6);
    rig_write(rig, "l/long", text, size);
    for (int i = 0; i < 2; i++) {
        struct files_request request = grep("/l", "needle");
        request.flags = i ? FILES_FIXED : 0;
        struct answer answer = rig_ask(rig, &request);
        CHECK(answer.count == 2);
        if (answer.count == 2) {
            const struct files_record *first = &answer.all[0].record, *last = &answer.all[1].record;
            CHECK(first->line == 1 && first->column == 5001 && first->is_cut && first->text.size == 1024);
            CHECK(strncmp(answer.all[0].text + 256, "needle", 6) == 0);
            CHECK(last->line == 2 && last->column == 50 && !last->is_cut && last->text.size == 99);
        }
        answer_done(&answer);
    }
    /* A cut does not fall into a character, and what is no UTF-8 is a byte. */
    text[0] = '\n';
    for (size_t i = 1; i + 1 < 4001; i += 2)
        memcpy(text + i, "\xc3\xa4", 2);
    memcpy(text + 2000, "\xffneedle", 7);
    text[4001] = '\n';
    rig_write(rig, "l/long", text, 4002);
    struct files_request request = grep("/l", "needle");
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.count == 1 && answer.all[0].record.line == 2 && answer.all[0].record.column == 2001);
    CHECK(answer.count == 1 && ((unsigned char)answer.all[0].text[0] & 0xc0) != 0x80);
    answer_done(&answer);
    free(text);
}

/* Lines around the ends of the buffer have the right numbers. */
static void test_many_lines(struct rig *rig)
{
    rig_folder(rig, "m");
    int fd = openat(rig->root, "m/lines", O_WRONLY | O_CREAT, 0600);
    FILE *file = fdopen(fd, "w");
    for (int i = 1; i <= 300000; i++)
        (void)fprintf(file, "line %d %s\n", i, i % 10007 == 0 ? "needle" : "straw");
    (void)fclose(file);
    for (int i = 0; i < 2; i++) {
        struct files_request request = grep("/m", "needle");
        request.flags = i ? FILES_FIXED : 0;
        uint64_t before = clock_monotonic_ns();
        struct answer answer = rig_ask(rig, &request);
        (void)printf("300,000 lines, %s: %.0f ms\n", i ? "fixed" : "regex",
                     (double)(clock_monotonic_ns() - before) / 1e6);
        CHECK(answer.count == 29);
        for (size_t j = 0; j < answer.count; j++)
            CHECK(answer.all[j].record.line == 10007 * (j + 1) &&
                  atoi(answer.all[j].text + 5) == (int)(10007 * (j + 1)));
        answer_done(&answer);
    }
}

static void test_deep(struct rig *rig)
{
    rig_deep(rig, "d", 1000);
    struct files_request request = grep("/d", "^the end");
    struct files_record end = rig_end(rig, &request);
    CHECK(end.kind == FILES_DONE && end.count == 1 && end.skipped == 0);
}

/* A pattern that would run for years; the helper must go when the front does. */
static void test_cancel(struct rig *rig)
{
    rig_folder(rig, "c");
    char text[5001];
    memset(text, 'a', 5000);
    text[5000] = '\0';
    rig_file(rig, "c/a", text);
    struct files_request request = grep("/c", "(a*)*\\1(a*)*\\2(a*)*\\3b");
    rig_send(rig, &request, -1);
    (void)poll(NULL, 0, 100);
    rig_stop(rig);
    rig_start(rig, 0);
}

int main(void)
{
    struct rig rig;
    rig_open(&rig);
    test_patterns(&rig);
    test_characters(&rig);
    test_refused(&rig);
#ifndef __SANITIZE_ADDRESS__ /* whose own memory ends the program when there is none */
    test_hungry(&rig);
#else
    (void)test_hungry;
#endif
    test_left_alone(&rig);
    test_long_lines(&rig);
    test_many_lines(&rig);
    test_deep(&rig);
    test_cancel(&rig);
    rig_close(&rig);
    return check_done();
}
