/* front_init_test.c - the codec between front and init: what passes, what is refused, and that nothing leaks. */
#include "sandboxd/front_init/front_init.h"

#include "shared/base/fd.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

static struct front_init_message valid(uint32_t type)
{
    struct front_init_message message = {.type = type};
    if (type == FI_WELCOME)
        message.as.welcome.version = FRONT_INIT_VERSION;
    else if (type == FI_HELPER)
        message.as.helper.kind = 1;
    else if (type == FI_DIAL)
        message.as.dial = (struct fi_dial){.number = 7, .port = 65535, .family = 6};
    else if (type != FI_CURRENT && type != FI_LISTENERS && type != FI_DIALED && type != FI_LISTENERS_IS &&
             type != FI_TERMINATE && type != FI_DEADLINE)
        memcpy(message.as.name.id, "a-Z.0_9", 8);
    if (type == FI_SIGNAL)
        message.as.signal.number = 64;
    if (type == FI_STARTED)
        message.as.started.pid = 2;
    if (type == FI_REFUSED)
        message.as.refused.error.kind = ERROR_NOT_FOUND;
    return message;
}

static enum front_init_end sender_of(uint32_t type)
{
    return type < FI_WELCOME ? FI_FROM_FRONT : FI_FROM_INIT;
}

static size_t fds_of(uint32_t type)
{
    bool has_one = type == FI_START || type == FI_HELPER || type == FI_DIALED || type == FI_LISTENERS_IS;
    return has_one ? 1 : type == FI_STARTED ? 4 : 0;
}

static bool passes(const struct front_init_message *message)
{
    struct error err = {0};
    bool good = front_init_check(message, front_init_size(message->type), fds_of(message->type),
                                 sender_of(message->type), &err);
    CHECK(good || (err.kind == ERROR_INVALID && err.message[0] != 0));
    return good;
}

static void test_all_types(void)
{
    struct error err;
    CHECK(front_init_size(0) == 0 && front_init_size(FI_LISTENERS_IS + 1) == 0 && front_init_size(UINT32_MAX) == 0);
    CHECK(front_init_size(FI_KILL) == 8 + FRONT_INIT_ID_BYTES && front_init_size(FI_CURRENT) == 8);
    for (uint32_t type = FI_START; type <= FI_LISTENERS_IS; type++) {
        struct front_init_message message = valid(type);
        size_t size = front_init_size(type), fds = fds_of(type);
        enum front_init_end sender = sender_of(type);
        CHECK(passes(&message));
        CHECK(!front_init_check(&message, size - 1, fds, sender, &err));
        CHECK(!front_init_check(&message, size + 1, fds, sender, &err));
        CHECK(!front_init_check(&message, 0, fds, sender, &err));
        CHECK(!front_init_check(&message, size, fds + 1, sender, &err));
        CHECK(fds == 0 || !front_init_check(&message, size, fds - 1, sender, &err));
        CHECK(!front_init_check(&message, size, fds, sender == FI_FROM_INIT ? FI_FROM_FRONT : FI_FROM_INIT, &err));
        message.reserved = 1;
        CHECK(!passes(&message));
    }
}

#define CHECK_REFUSED(type_, change)                                                                                   \
    do {                                                                                                               \
        struct front_init_message message = valid(type_);                                                              \
        CHECK(passes(&message));                                                                                       \
        change;                                                                                                        \
        CHECK(!passes(&message));                                                                                      \
    } while (0)

static void test_fields(void)
{
    static const uint32_t named[] = {FI_START,  FI_SIGNAL,  FI_KILL,    FI_EOF,
                                     FI_FORGET, FI_STARTED, FI_REFUSED, FI_EXITED};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        CHECK_REFUSED(named[i], message.as.name.id[0] = 0);
        CHECK_REFUSED(named[i], message.as.name.id[1] = '/');
        CHECK_REFUSED(named[i], message.as.name.id[1] = '\n');
        CHECK_REFUSED(named[i], memset(message.as.name.id, 'x', FRONT_INIT_ID_BYTES));
    }
    CHECK_REFUSED(FI_START, message.as.start.with_stdin = 2);
    CHECK_REFUSED(FI_START, message.as.start.reserved[0] = 1);
    CHECK_REFUSED(FI_START, message.as.start.merges = 2);
    CHECK_REFUSED(FI_START, message.as.start.with_program = 2);
    CHECK_REFUSED(FI_START, message.as.start.with_program = 1); /* with 1 descriptor */
    CHECK_REFUSED(FI_DIAL, message.as.dial.port = 0);
    CHECK_REFUSED(FI_DIAL, message.as.dial.family = 0);
    CHECK_REFUSED(FI_DIAL, message.as.dial.family = 5);
    CHECK_REFUSED(FI_DIAL, message.as.dial.family = FI_FAMILY_GUEST); /* which has no port */
    CHECK_REFUSED(FI_DIAL, message.as.dial.reserved[4] = 1);
    CHECK_REFUSED(FI_DIALED, message.as.dialed.error_number = ECONNREFUSED); /* with a descriptor */
    CHECK_REFUSED(FI_DIALED, message.as.dialed.error_number = -1);
    CHECK_REFUSED(FI_DIALED, message.as.dialed.error_number = 4096);
    CHECK_REFUSED(FI_DIALED, message.as.dialed.reserved = 1);
    CHECK_REFUSED(FI_LISTENERS_IS, message.as.listeners.error_number = EPERM);
    CHECK_REFUSED(FI_LISTENERS_IS, message.as.listeners.reserved = 1);
    CHECK_REFUSED(FI_START, message.as.start.as_root = 2);
    CHECK_REFUSED(FI_START, message.as.start.open_files = 15);
    CHECK_REFUSED(FI_START, message.as.start.open_files = 1048577);
    CHECK_REFUSED(FI_START, message.as.start.columns = 80); /* of nothing */
    CHECK_REFUSED(FI_START, message.as.start.terminal = 1); /* without stdin */
    CHECK_REFUSED(FI_SIGNAL, message.as.signal.number = 0);
    CHECK_REFUSED(FI_SIGNAL, message.as.signal.number = 65);
    CHECK_REFUSED(FI_SIGNAL, message.as.signal.number = -1);
    CHECK_REFUSED(FI_SIGNAL, message.as.signal.reserved[0] = 1);
    CHECK_REFUSED(FI_TERMINATE, memset(message.as.terminate.reason, 'x', sizeof message.as.terminate.reason));
    CHECK_REFUSED(FI_WELCOME, message.as.welcome.version = FRONT_INIT_VERSION - 1);
    CHECK_REFUSED(FI_WELCOME, message.as.welcome.commands = FRONT_INIT_COMMANDS + 1);
    CHECK_REFUSED(FI_STARTED, message.as.started.has_stdin = 1); /* with 4 descriptors */
    CHECK_REFUSED(FI_STARTED, message.as.started.has_stdin = 2);
    CHECK_REFUSED(FI_STARTED, message.as.started.terminal = 1); /* with 4 descriptors */
    CHECK_REFUSED(FI_STARTED, message.as.started.terminal = 2);
    CHECK_REFUSED(FI_STARTED, message.as.started.reserved[0] = 1);
    CHECK_REFUSED(FI_HELPER, message.as.helper.kind = 2);
    CHECK_REFUSED(FI_STARTED, message.as.started.pid = 0);
    CHECK_REFUSED(FI_STARTED, memset(message.as.started.title, 'x', sizeof message.as.started.title));
    CHECK_REFUSED(FI_STARTED, message.as.started.title[0] = (char)0xff);
    CHECK_REFUSED(FI_REFUSED, message.as.refused.error.kind = ERROR_NONE);
    CHECK_REFUSED(FI_REFUSED, message.as.refused.error.kind = ERROR_KINDS);
    CHECK_REFUSED(FI_REFUSED, memset(message.as.refused.error.message, 'x', ERROR_MESSAGE_BYTES));
    CHECK_REFUSED(FI_EXITED, message.as.exited.timed_out = 2);
    CHECK_REFUSED(FI_EXITED, message.as.exited.killed = 2);
    CHECK_REFUSED(FI_EXITED, message.as.exited.reserved = 1);
    CHECK_REFUSED(FI_EXITED, message.as.exited.wait_status = 0x137f); /* stopped, not ended */
}

/* A program is one descriptor more, a zygote two; a zygote goes with nothing that it cannot have. */
static void test_programs(void)
{
    struct error err;
    struct front_init_message message = valid(FI_START);
    struct fi_start *start = &message.as.start;
    start->with_program = 1;
    for (int zygote = 0; zygote <= FRONT_INIT_ZYGOTES; zygote++) {
        start->zygote = (uint8_t)zygote;
        for (size_t fds = 0; fds <= FI_START_FDS + 1; fds++)
            CHECK(front_init_check(&message, front_init_size(FI_START), fds, FI_FROM_FRONT, &err) ==
                  (fds == (zygote ? 3U : 2U)));
    }
    start->zygote = FRONT_INIT_ZYGOTES + 1;
    CHECK(!front_init_check(&message, front_init_size(FI_START), 3, FI_FROM_FRONT, &err));
    start->zygote = 1;
    start->with_program = 0;
    CHECK(!front_init_check(&message, front_init_size(FI_START), 2, FI_FROM_FRONT, &err));
    start->with_program = 1;
    start->as_root = 1;
    CHECK(!front_init_check(&message, front_init_size(FI_START), 3, FI_FROM_FRONT, &err));
    start->as_root = 0;
    start->with_stdin = 1;
    CHECK(front_init_check(&message, front_init_size(FI_START), 3, FI_FROM_FRONT, &err));
    start->terminal = 1;
    start->columns = start->rows = 80;
    CHECK(!front_init_check(&message, front_init_size(FI_START), 3, FI_FROM_FRONT, &err));
    start->zygote = 0;
    CHECK(front_init_check(&message, front_init_size(FI_START), 2, FI_FROM_FRONT, &err));
}

/* How many descriptors a start, and a told start, come with. */
static void test_terminals(void)
{
    struct error err;
    struct front_init_message message = valid(FI_START);
    struct fi_start *start = &message.as.start;
    *start = (struct fi_start){.id = "t", .with_stdin = 1, .terminal = 1, .columns = 1, .rows = FRONT_INIT_CELLS_MAX};
    CHECK(passes(&message));
    start->rows = FRONT_INIT_CELLS_MAX + 1;
    CHECK(!passes(&message));
    start->rows = 0;
    CHECK(!passes(&message));

    static const struct {
        uint8_t has_stdin, terminal;
        size_t fds;
    } cases[] = {{0, 0, 4}, {1, 0, FI_FDS}, {1, 1, FI_TERMINAL_FDS}, {0, 1, FI_TERMINAL_OVER_FDS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        message = valid(FI_STARTED);
        message.as.started.has_stdin = cases[i].has_stdin;
        message.as.started.terminal = cases[i].terminal;
        for (size_t fds = 0; fds <= FI_FDS_MAX + 1; fds++)
            CHECK(front_init_check(&message, front_init_size(FI_STARTED), fds, FI_FROM_INIT, &err) ==
                  (fds == cases[i].fds));
        message.as.started.stdin_bytes = 5; /* only of one that was closed */
        CHECK(front_init_check(&message, front_init_size(FI_STARTED), cases[i].fds, FI_FROM_INIT, &err) ==
              !cases[i].has_stdin);
    }
}

static int open_count(void)
{
    int count = 0;
    for (int fd = 0; fd < 200; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_socket(void)
{
    int ends[2], fds[FI_FDS_MAX];
    size_t count = 9;
    struct error err = {0};
    struct front_init_message message = valid(FI_START), got = {0};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(front_init_receive(ends[1], &got, FI_FROM_FRONT, fds, &count, &err) == -1 && err.system_errno == EAGAIN);
    CHECK(count == 9 && got.type == 0);
    CHECK(front_init_send(ends[0], &message, &ends[0], 1, &err));
    CHECK(front_init_receive(ends[1], &got, FI_FROM_FRONT, fds, &count, &err) == 1);
    CHECK(count == 1 && memcmp(&got, &message, front_init_size(FI_START)) == 0);
    CHECK(fcntl(fds[0], F_GETFD) == FD_CLOEXEC);
    close(fds[0]);

    int before = open_count();
    CHECK(front_init_send(ends[0], &message, (int[]){0, 1, 2}, 3, &err)); /* one is allowed: all are closed */
    CHECK(front_init_receive(ends[1], &got, FI_FROM_FRONT, fds, &count, &err) == -1 && err.kind == ERROR_INVALID);
    CHECK(open_count() == before);
    message.type = 99;
    CHECK(!front_init_send(ends[0], &message, NULL, 0, &err) && err.kind == ERROR_INVALID);
    close(ends[0]);
    CHECK(front_init_receive(ends[1], &got, FI_FROM_FRONT, fds, &count, &err) == 0);
    close(ends[1]);
}

static char one[] = "one", two[] = "", variable[] = "A=b=c", nameless[] = "=b", bare[] = "A";

static void test_command(void)
{
    char *arguments[] = {one, two, NULL}, *variables[] = {variable, NULL}, *nothing[] = {NULL};
    struct front_init_command command = {.cwd = "/w", .arguments = arguments, .variables = variables}, got = {0};
    struct error err = {0};
    void *memory = NULL;
    int fd = front_init_command_seal(&command, &err);
    CHECK(fd >= 0 && front_init_command_read(fd, &got, &memory, &err));
    CHECK_TEXT(got.cwd, "/w");
    CHECK_TEXT(got.arguments[0], "one");
    CHECK_TEXT(got.arguments[1], "");
    CHECK(got.arguments[2] == NULL && got.variables[1] == NULL);
    CHECK_TEXT(got.variables[0], "A=b=c");
    free(memory);
    close(fd);

    command.variables = NULL;
    fd = front_init_command_seal(&command, &err);
    CHECK(fd >= 0 && front_init_command_read(fd, &got, &memory, &err) && got.variables[0] == NULL);
    free(memory);
    close(fd);

    command.variables = (char *[]){nameless, NULL};
    CHECK(front_init_command_seal(&command, &err) == -1 && err.kind == ERROR_INVALID);
    command.variables = (char *[]){bare, NULL};
    CHECK(front_init_command_seal(&command, &err) == -1 && err.kind == ERROR_INVALID);
    command = (struct front_init_command){.cwd = "/", .arguments = nothing};
    CHECK(front_init_command_seal(&command, &err) == -1 && err.kind == ERROR_INVALID);
    command = (struct front_init_command){.cwd = "w", .arguments = arguments};
    CHECK(front_init_command_seal(&command, &err) == -1 && err.kind == ERROR_INVALID);
}

/* A line for a shell is told from the same arguments without it, and is of three. */
static void test_line(void)
{
    char *arguments[] = {one, two, one, NULL, NULL};
    struct front_init_command command = {.cwd = "/", .arguments = arguments, .is_line = true}, got = {0};
    struct error err = {0};
    for (int i = 0; i < 2; i++, command.is_line = false) {
        void *memory = NULL;
        int fd = front_init_command_seal(&command, &err);
        CHECK(fd >= 0 && front_init_command_read(fd, &got, &memory, &err) && got.is_line == command.is_line);
        free(memory);
        close(fd);
    }
    command.is_line = true;
    arguments[3] = one;
    CHECK(front_init_command_seal(&command, &err) == -1 && err.kind == ERROR_INVALID);
    arguments[2] = NULL;
    CHECK(front_init_command_seal(&command, &err) == -1 && err.kind == ERROR_INVALID);
}

static void test_command_bounds(void)
{
    struct error err = {0};
    char *large = malloc(131073), *arguments[20] = {large, NULL};
    struct front_init_command command = {.cwd = "/", .arguments = arguments}, got = {0};
    void *memory = NULL;
    memset(large, 'x', 131072);
    large[131071] = 0;
    int fd = front_init_command_seal(&command, &err);
    CHECK(fd >= 0 && front_init_command_read(fd, &got, &memory, &err) && strlen(got.arguments[0]) == 131071);
    free(memory);
    close(fd);
    for (int i = 0; i < 17; i++)
        arguments[i] = large;
    CHECK(front_init_command_seal(&command, &err) == -1 && err.kind == ERROR_TOO_LARGE);
    arguments[1] = NULL;
    large[131071] = 'x';
    large[131072] = 0;
    CHECK(front_init_command_seal(&command, &err) == -1 && err.kind == ERROR_TOO_LARGE);
    free(large);
}

static void check_blob(const void *bytes, size_t size, bool good)
{
    struct front_init_command got = {0};
    struct error err = {0};
    void *memory = NULL;
    int fd = fd_sealed_memfd("blob", bytes, size, &err);
    CHECK(fd >= 0);
    CHECK(front_init_command_read(fd, &got, &memory, &err) == good);
    CHECK(good ? memory != NULL : memory == NULL && got.cwd == NULL && err.kind != ERROR_NONE);
    free(memory);
    close(fd);
}

static void test_hostile_blobs(void)
{
    static const char good[] = "\1\0\0\0\1\0\0\0/\0x\0A="; /* the literal's own NUL ends the last text */
    check_blob(good, sizeof good, true);
    for (size_t size = 1; size < sizeof good; size++)
        check_blob(good, size, false);
    check_blob("\1\0\0\0\1\0\0\0/\0x\0A=\0", sizeof good + 1, false);   /* a text too many */
    check_blob("\0\0\0\0\1\0\0\0/\0A=", 13, false);                     /* no arguments */
    check_blob("\1\0\0\0\1\0\0\0w\0x\0A=", sizeof good, false);         /* relative cwd */
    check_blob("\1\0\0\0\1\0\0\0/\0x\0AA", sizeof good, false);         /* no = */
    check_blob("\377\377\377\377\1\0\0\0/\0x\0A=", sizeof good, false); /* counts beyond all */
    check_blob("\1\0\0\0\377\377\1\0/\0x\0A=", sizeof good, false);     /* counts beyond what is there */
    size_t size = FRONT_INIT_BLOB_MAX + 1;
    char *large = calloc(1, size);
    check_blob(large, size, false);
    memcpy(large, "\1\0\0\0\0\0\0\0/", 10);
    memset(large + 10, 'x', 131072);
    check_blob(large, 10 + 131073, false); /* one text too long */
    check_blob(large, 10 + 131072, false); /* and without its end */
    free(large);
}

static void test_unsealed(void)
{
    struct front_init_command got;
    struct error err = {0};
    void *memory;
    int fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    CHECK(write(fd, "\1\0\0\0\0\0\0\0/\0x", 12) == 12);
    CHECK(!front_init_command_read(fd, &got, &memory, &err) && err.kind == ERROR_INVALID);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(!front_init_command_read(fd, &got, &memory, &err));
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    CHECK(front_init_command_read(fd, &got, &memory, &err));
    free(memory);
    close(fd);
}

static void test_program_memory(void)
{
    struct error err = {0};
    int fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    CHECK(write(fd, "x", 1) == 1);
    CHECK(!front_init_program_check(fd, &err) && err.kind == ERROR_INVALID);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) == 0);
    CHECK(front_init_program_check(fd, &err));
    close(fd);
    fd = fd_sealed_memfd("empty", "", 0, &err);
    CHECK(!front_init_program_check(fd, &err) && err.kind == ERROR_INVALID);
    close(fd);
    fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    CHECK(ftruncate(fd, FRONT_INIT_PROGRAM_MAX + 1) == 0);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) == 0);
    CHECK(!front_init_program_check(fd, &err) && err.kind == ERROR_TOO_LARGE);
    close(fd);
    CHECK(!front_init_program_check(0, &err)); /* none that could be sealed */
}

int main(void)
{
    test_all_types();
    test_fields();
    test_programs();
    test_terminals();
    test_socket();
    test_command();
    test_line();
    test_command_bounds();
    test_hostile_blobs();
    test_unsealed();
    test_program_memory();
    return check_done();
}
