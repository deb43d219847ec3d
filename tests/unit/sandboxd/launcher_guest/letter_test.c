/* letter_test.c - what a guest is told: every field, what is refused and by what words, and the ways to hand it over.
 */
#include "sandboxd/launcher_guest/letter.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOT "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
#define HEAD                                                                                                           \
    "{\"sandbox\":\"sbx_abcdefghij0123456789\",\"issuer\":\"dep_1\",\"isolation\":\"direct\",\"root\":\"" ROOT "\""
#define LEAST HEAD "}"

static struct letter parsed(const char *text)
{
    struct letter letter;
    struct error err = {0};
    CHECK(letter_parse(text, strlen(text), &letter, &err));
    return letter;
}

static void check_refused(const char *text, const char *word)
{
    struct letter letter;
    struct error err = {0};
    CHECK(!letter_parse(text, strlen(text), &letter, &err));
    CHECK(err.kind == ERROR_INVALID);
    if (!strstr(err.message, word))
        fprintf(stderr, "%s: %s\n", word, err.message);
    CHECK(strstr(err.message, word) != NULL);
    CHECK(strstr(err.message, ROOT) == NULL);
}

static void test_what_it_must_say_is_enough(void)
{
    struct letter letter = parsed(LEAST);
    CHECK(text_equal(letter.sandbox, "sbx_abcdefghij0123456789"));
    CHECK(text_equal(letter.issuer, "dep_1"));
    CHECK(text_equal(letter.isolation, "direct"));
    for (int i = 0; i < KEY_BYTES; i++)
        CHECK(letter.root.bytes[i] == i);
    CHECK(letter.epoch == 1 && letter.uid == 1000 && letter.gid == 1000);
    CHECK(letter.open_files == 65536 && letter.commands == 1000 && letter.output_bytes == 16 << 20);
    CHECK(letter.expires_s == 0 && letter.hostname[0] == 0 && letter.env[0] == 0 && text_equal(letter.workdir, "/"));
}

static void test_every_field_comes_back(void)
{
    struct letter letter = parsed(HEAD ",\"epoch\":7,\"hostname\":\"box-1\",\"expires\":1767225600,\"uid\":1001,"
                                       "\"gid\":1002,\"open_files\":512,\"commands\":8,\"output_bytes\":1048576,"
                                       "\"template\":\"base\",\"workdir\":\"/workspace\","
                                       "\"env\":{\"A\":\"1\",\"B\":\"x=y\"}}");
    struct error err = {0};
    CHECK(letter.expires_s == 1767225600 && letter.gid == 1002);
    AUTO_FREE char *text = letter_format(&letter, &err);
    CHECK(text != NULL);
    CHECK(strchr(text, '\n') == NULL);
    struct letter again = parsed(text);
    CHECK(memcmp(&letter.root, &again.root, sizeof letter.root) == 0);
    CHECK(memcmp(letter.env, "A=1\0B=x=y\0", 11) == 0);
    CHECK(memcmp(letter.env, again.env, sizeof letter.env) == 0);
    CHECK(again.epoch == 7 && again.uid == 1001 && again.gid == 1002 && again.open_files == 512);
    CHECK(again.commands == 8 && again.output_bytes == 1048576 && again.expires_s == 1767225600);
    CHECK(text_equal(again.hostname, "box-1") && text_equal(again.template_name, "base"));
    CHECK(text_equal(again.workdir, "/workspace"));
}

static void test_what_is_wrong_is_named(void)
{
    check_refused("", "not JSON");
    check_refused(LEAST "x", "not JSON");
    check_refused("[]", "one JSON object");
    check_refused(HEAD ",\"sandbox\":\"sbx_abcdefghij0123456789\"}", "not JSON"); /* twice */
    check_refused(HEAD ",\"root_key\":\"x\"}", "\"root_key\"");
    check_refused("{\"sandbox\":\"x\",\"issuer\":\"d\",\"isolation\":\"direct\",\"root\":\"" ROOT "\"}", "sandbox");
    check_refused("{\"sandbox\":\"sbx_abcdefghij0123456789\",\"issuer\":\"d\",\"isolation\":\"direct\"}", "root");
    check_refused(
        "{\"sandbox\":\"sbx_abcdefghij0123456789\",\"issuer\":\"d\",\"isolation\":\"direct\",\"root\":\"AAAA\"}",
        "root");
    check_refused("{\"sandbox\":\"sbx_abcdefghij0123456789\",\"isolation\":\"direct\",\"root\":\"" ROOT "\"}",
                  "issuer");
    check_refused(
        "{\"sandbox\":\"sbx_abcdefghij0123456789\",\"issuer\":\"d\",\"isolation\":\"namespaces\",\"root\":\"" ROOT
        "\"}",
        "isolation");
    check_refused(HEAD ",\"uid\":0}", "uid");
    check_refused(HEAD ",\"uid\":65535}", "uid");
    check_refused(HEAD ",\"uid\":\"1000\"}", "uid");
    check_refused(HEAD ",\"epoch\":0}", "epoch");
    check_refused(HEAD ",\"expires\":-1}", "expires");
    check_refused(HEAD ",\"open_files\":15}", "open_files");
    check_refused(HEAD ",\"commands\":1001}", "commands");
    check_refused(HEAD ",\"output_bytes\":1}", "output_bytes");
    check_refused(HEAD ",\"hostname\":\"Box\"}", "hostname");
    check_refused(HEAD ",\"hostname\":\"a b\"}", "hostname");
    check_refused(HEAD ",\"workdir\":\"here\"}", "workdir");
    check_refused(HEAD ",\"workdir\":\"/a/../b\"}", "workdir");
    check_refused(HEAD ",\"template\":\"a/b\"}", "template");
    check_refused(HEAD ",\"env\":[]}", "env");
    check_refused(HEAD ",\"env\":{\"1A\":\"x\"}}", "env");
    check_refused(HEAD ",\"env\":{\"A\":1}}", "env");
}

static void test_what_cannot_be_read_is_not_written(void)
{
    struct letter letter = parsed(LEAST);
    struct error err = {0};
    letter.uid = 0;
    CHECK(letter_format(&letter, &err) == NULL && strstr(err.message, "uid"));
    letter = parsed(LEAST);
    strcpy(letter.isolation, "none");
    CHECK(letter_format(&letter, &err) == NULL && strstr(err.message, "isolation"));
}

/* What the other end has written is read from `fd`; both are closed. */
static bool read_from(int fd, struct error *err)
{
    struct letter letter;
    *err = (struct error){0};
    bool is_read = letter_read(fd, &letter, err);
    CHECK(!is_read || text_equal(letter.sandbox, "sbx_abcdefghij0123456789"));
    return is_read;
}

static void test_it_comes_through_a_pipe_in_pieces(void)
{
    int ends[2];
    struct error err;
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], LEAST, 10) == 10);
    CHECK(write(ends[1], LEAST + 10, strlen(LEAST) - 10) == (ssize_t)strlen(LEAST) - 10);
    close(ends[1]);
    CHECK(read_from(ends[0], &err));
    CHECK(!read_from(ends[0], &err) && strstr(err.message, "empty"));
    close(ends[0]);
}

static void test_one_packet_and_what_follows_is_left(void)
{
    int ends[2];
    char byte = 0;
    struct error err;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    CHECK(send(ends[1], LEAST, strlen(LEAST), 0) == (ssize_t)strlen(LEAST));
    CHECK(send(ends[1], "c", 1, 0) == 1);
    CHECK(read_from(ends[0], &err));
    CHECK(recv(ends[0], &byte, 1, 0) == 1 && byte == 'c');
    close(ends[0]);
    close(ends[1]);
}

static void test_one_line_of_a_stream_and_what_follows_is_left(void)
{
    int ends[2];
    char byte = 0;
    struct error err;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(send(ends[1], LEAST "\nc", strlen(LEAST) + 2, 0) == (ssize_t)strlen(LEAST) + 2);
    CHECK(read_from(ends[0], &err));
    CHECK(recv(ends[0], &byte, 1, 0) == 1 && byte == 'c');
    close(ends[0]);
    close(ends[1]);
}

static void test_one_that_is_too_long_is_refused(void)
{
    struct error err = {0};
    char *text = memory_new(LETTER_BYTES_MAX + 2);
    memset(text, ' ', LETTER_BYTES_MAX + 1);
    AUTO_FD int fd = fd_sealed_memfd("letter", text, LETTER_BYTES_MAX + 1, &err);
    free(text);
    CHECK(fd >= 0);
    CHECK(!read_from(fd, &err) && err.kind == ERROR_TOO_LARGE);
    CHECK(!read_from(999, &err) && err.kind == ERROR_INVALID);
}

int main(void)
{
    keys_start();
    test_what_it_must_say_is_enough();
    test_every_field_comes_back();
    test_what_is_wrong_is_named();
    test_what_cannot_be_read_is_not_written();
    test_it_comes_through_a_pipe_in_pieces();
    test_one_packet_and_what_follows_is_left();
    test_one_line_of_a_stream_and_what_follows_is_left();
    test_one_that_is_too_long_is_refused();
    return check_done();
}
