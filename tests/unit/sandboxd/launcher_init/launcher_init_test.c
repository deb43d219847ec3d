/* Each message over a socket pair, whole and with its descriptors; and each way in which one is refused. */
#include "sandboxd/launcher_init/launcher_init.h"

#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static int ends[2]; /* [0] the launcher's */

static struct launcher_init_message become_of(size_t volumes)
{
    struct launcher_init_message message = {.type = LI_BECOME};
    struct li_become *become = &message.as.become;
    *become = (struct li_become){.hostname = "brisk-otter",
                                 .deadline_boot_ns = 7,
                                 .shared_bytes = 4096,
                                 .uid = 1000,
                                 .gid = 1000,
                                 .open_files = 1024,
                                 .root_allowed = 1,
                                 .volume_count = (uint8_t)volumes};
    for (size_t i = 0; i < volumes; i++)
        snprintf(become->volumes[i].path, sizeof become->volumes[i].path, "/data/%zu", i);
    return message;
}

static void test_become(void)
{
    struct error err = {0};
    struct launcher_init_message got;
    int fds[LAUNCHER_INIT_FDS];
    size_t count = 0;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int sent[LAUNCHER_INIT_VOLUMES] = {null, null, null, null, null, null, null, null};
    for (size_t volumes = 0; volumes <= LAUNCHER_INIT_VOLUMES; volumes++) {
        struct launcher_init_message message = become_of(volumes);
        CHECK(launcher_init_send(ends[0], &message, sent, volumes, &err));
        CHECK(launcher_init_receive(ends[1], &got, LI_FROM_LAUNCHER, fds, &count, &err) == 1);
        CHECK(count == volumes && memcmp(&got, &message, sizeof got) == 0);
        for (size_t i = 0; i < count; i++)
            close(fds[i]);
    }
    close(null);
}

static void test_from_init(void)
{
    struct error err = {0};
    struct launcher_init_message got;
    int fds[LAUNCHER_INIT_FDS];
    size_t count = 0;
    static const uint32_t TYPES[] = {LI_BARRIER, LI_READY, LI_FAILED};
    CHECK(launcher_init_receive(ends[0], &got, LI_FROM_INIT, fds, &count, &err) == -1 && err.system_errno == EAGAIN);
    for (size_t i = 0; i < 3; i++) {
        struct launcher_init_message message = {.type = TYPES[i]};
        if (TYPES[i] == LI_FAILED)
            error_set(&message.as.failed, ERROR_INVALID, "no folder at /x");
        CHECK(launcher_init_send(ends[1], &message, NULL, 0, &err));
        CHECK(launcher_init_receive(ends[0], &got, LI_FROM_INIT, fds, &count, &err) == 1 && got.type == TYPES[i]);
        if (TYPES[i] == LI_FAILED)
            CHECK_TEXT(got.as.failed.message, "no folder at /x");
    }
    struct launcher_init_message unknown = {.type = 9};
    CHECK(!launcher_init_send(ends[1], &unknown, NULL, 0, &err));
}

static bool passes(const struct launcher_init_message *message, size_t fds, enum launcher_init_end sender)
{
    struct error err = {0};
    bool good = launcher_init_check(message, launcher_init_size(message->type), fds, sender, &err);
    CHECK(good || err.kind == ERROR_INVALID);
    return good;
}

static void test_refusals(void)
{
    struct launcher_init_message message = become_of(1);
    CHECK(passes(&message, 1, LI_FROM_LAUNCHER));
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER) && !passes(&message, 2, LI_FROM_LAUNCHER));
    CHECK(!passes(&message, 1, LI_FROM_INIT));
    struct launcher_init_message barrier = {.type = LI_BARRIER};
    CHECK(!passes(&barrier, 0, LI_FROM_LAUNCHER) && !passes(&barrier, 1, LI_FROM_INIT));
    CHECK(!launcher_init_check(&barrier, 7, 0, LI_FROM_INIT, NULL));
    struct launcher_init_message failed = {.type = LI_FAILED};
    CHECK(!passes(&failed, 0, LI_FROM_INIT)); /* with no error */
    static const char *const PATHS[] = {"",        "/",     "data", "/data/", "//data", "/a//b",
                                        "/a/../b", "/a/..", "/..",  "/./a",   "/a/.",   "/a\nb"};
    for (size_t i = 0; i < sizeof PATHS / sizeof PATHS[0]; i++) {
        message = become_of(1);
        memset(message.as.become.volumes[0].path, 0, sizeof message.as.become.volumes[0].path);
        memcpy(message.as.become.volumes[0].path, PATHS[i], strlen(PATHS[i]));
        CHECK(!passes(&message, 1, LI_FROM_LAUNCHER));
    }
    message = become_of(1);
    memcpy(message.as.become.volumes[0].path, "/.a/..b/c..", sizeof "/.a/..b/c.."); /* names as any other */
    CHECK(passes(&message, 1, LI_FROM_LAUNCHER));
    message = become_of(0);
    message.as.become.uid = 0; /* commands are never root by default */
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
    message = become_of(0);
    message.as.become.open_files = 15;
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
    message = become_of(0);
    message.as.become.root_allowed = 2;
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
    message = become_of(0);
    memset(message.as.become.hostname, 'a', sizeof message.as.become.hostname); /* no NUL */
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
}

static struct launcher_init_message guest_of(const char *arguments, size_t size, uint32_t count)
{
    struct launcher_init_message message = {.type = LI_GUEST};
    memcpy(message.as.guest.arguments, arguments, size);
    message.as.guest.argument_count = count;
    return message;
}

static void test_guest(void)
{
    struct launcher_init_message message = guest_of("/usr/bin/runsc\0run\0", 19, 2);
    CHECK(passes(&message, 0, LI_FROM_LAUNCHER));
    CHECK(!passes(&message, 1, LI_FROM_LAUNCHER) && !passes(&message, 0, LI_FROM_INIT));
    message.as.guest.argument_count = 1; /* something stands behind it */
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
    message = guest_of("/x\0\0", 4, 2); /* an argument may be empty */
    CHECK(passes(&message, 0, LI_FROM_LAUNCHER));
    message = guest_of("runsc", 6, 1); /* no path */
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
    message = guest_of("/x", 3, 0);
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
    message = guest_of("/x", 3, LAUNCHER_INIT_ARGUMENTS + 1);
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
    memset(message.as.guest.arguments, '/', sizeof message.as.guest.arguments); /* no NUL */
    message.as.guest.argument_count = 1;
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
    message = guest_of("/x", 3, 1);
    message.as.guest.starts_late = 2;
    CHECK(!passes(&message, 0, LI_FROM_LAUNCHER));
    message = become_of(0);
    message.as.become.has_letter = 1; /* a descriptor more */
    CHECK(passes(&message, 1, LI_FROM_LAUNCHER) && !passes(&message, 0, LI_FROM_LAUNCHER));
}

int main(void)
{
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    test_become();
    test_from_init();
    test_refusals();
    test_guest();
    close(ends[0]);
    close(ends[1]);
    return check_done();
}
