/* What a jailed child that was taken over could say: nothing of it is believed. */
#include "sandboxd/templates/tool/message.h"

#include "tests/unit/check.h"

static struct message result(void)
{
    struct message message = {.type = MESSAGE_RESULT,
                              .as.result = {.record = {.kind = TEMPLATE_WHOLE,
                                                       .uid = 1000,
                                                       .gid = 1000,
                                                       .source = "oci-layout",
                                                       .workdir = "/workspace"},
                                            .reference = "made:1.0",
                                            .package_manager = "dpkg"}};
    return message;
}

#define REFUSED(sample, ...)                                                                                           \
    do {                                                                                                               \
        struct message m = (sample);                                                                                   \
        struct error err = {0};                                                                                        \
        __VA_ARGS__;                                                                                                   \
        CHECK(!message_check(&m, &err) && err.kind == ERROR_INVALID);                                                  \
    } while (0)

static void test_result(void)
{
    struct message message = result();
    CHECK(message_check(&message, NULL));
    REFUSED(result(), m.type = 0);
    REFUSED(result(), m.type = 77);
    REFUSED(result(), m.as.result.record.uid = 0);
    REFUSED(result(), m.as.result.record.gid = 65536);
    REFUSED(result(), m.as.result.record.kind = 9);
    REFUSED(result(), strcpy(m.as.result.record.workdir, "/../x"));
    REFUSED(result(), memset(m.as.result.record.env, 'x', sizeof m.as.result.record.env));
    REFUSED(result(), memset(m.as.result.record.source, 'x', sizeof m.as.result.record.source));
    REFUSED(result(), strcpy(m.as.result.package_manager, "evil"));
    REFUSED(result(), memset(m.as.result.package_manager, 'x', sizeof m.as.result.package_manager));
    REFUSED(result(), m.as.result.packages = MESSAGE_PACKAGES_MAX + 1);
    message = result();
    memset(message.as.result.reference, '\x1b', sizeof message.as.result.reference);
    CHECK(message_check(&message, NULL));
    CHECK(strlen(message.as.result.reference) == sizeof message.as.result.reference - 1);
    CHECK(strspn(message.as.result.reference, "?") == sizeof message.as.result.reference - 1);
}

static struct message package(const char *name, const char *version, const char *architecture)
{
    struct message message = {.type = MESSAGE_PACKAGE};
    snprintf(message.as.package.name, sizeof message.as.package.name, "%s", name);
    snprintf(message.as.package.version, sizeof message.as.package.version, "%s", version);
    snprintf(message.as.package.architecture, sizeof message.as.package.architecture, "%s", architecture);
    return message;
}

static void test_packages(void)
{
    struct message good = package("libc6", "2:1.0~a+b-c", "amd64");
    CHECK(message_check(&good, NULL));
    REFUSED(package("", "1", "all"), (void)0);
    REFUSED(package("a", "", "all"), (void)0);
    REFUSED(package("a", "1", ""), (void)0);
    REFUSED(package("a\"b", "1", "all"), (void)0);
    REFUSED(package("a", "1\n", "all"), (void)0);
    REFUSED(package("a", "1", "a b"), (void)0);
    REFUSED(package("a", "1", "all"), memset(m.as.package.name, 'x', sizeof m.as.package.name));
}

static void test_texts(void)
{
    struct message message = {.type = MESSAGE_TEXT};
    snprintf(message.as.text, sizeof message.as.text, "a\x1b[31mb\x7f\tc\xc2\x9b\xc3\xa4");
    CHECK(message_check(&message, NULL));
    CHECK_TEXT(message.as.text, "a?[31mb??c??\xc3\xa4");
    snprintf(message.as.text, sizeof message.as.text, "no utf-8: \xff\xc3");
    CHECK(message_check(&message, NULL));
    CHECK_TEXT(message.as.text, "no utf-8: ??");
    memset(message.as.text, 'x', sizeof message.as.text);
    CHECK(message_check(&message, NULL));
    CHECK(strlen(message.as.text) == sizeof message.as.text - 1);
    message = (struct message){.type = MESSAGE_FAILED, .as.failed = {.kind = (enum error_kind)12345}};
    memset(message.as.failed.message, '\n', sizeof message.as.failed.message);
    CHECK(message_check(&message, NULL));
    CHECK(message.as.failed.kind == ERROR_INTERNAL && message.as.failed.message[0] == '?');
}

int main(void)
{
    test_result();
    test_packages();
    test_texts();
    return check_done();
}
