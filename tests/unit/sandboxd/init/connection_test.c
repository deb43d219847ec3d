/* connection_test.c - fronts come and go, and lie: init tells each all there is, and outlives every message. */
#include "tests/unit/sandboxd/init/init_rig.h"

#include <sys/mman.h>

enum { MANY = 1000 };

static void close_all(int fds[static FI_FDS_MAX])
{
    for (int i = 0; i < FI_FDS_MAX; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

static void test_reconnect(struct rig *rig)
{
    struct front_init_message message;
    struct rig_start with_stdin = {.with_stdin = 1};
    int fds[FI_FDS_MAX];
    CHECK(rig_start_shell(rig, "running", &with_stdin, "printf before; cat; echo end >&2; exit 5"));
    CHECK(rig_expect(rig, FI_STARTED, "running", &message, fds));
    int64_t started = message.as.started.start_wall_ms;
    CHECK(rig_start_shell(rig, "ended", NULL, "echo kept; exit 9"));
    CHECK(rig_expect(rig, FI_EXITED, "ended", &message, NULL));
    /* This front spliced five bytes into the memory before it died; the sixth is still in the pipe. */
    struct pollfd wait = {.fd = fds[FI_FD_STDOUT_PIPE], .events = POLLIN};
    CHECK(poll(&wait, 1, RIG_PATIENCE_MS) == 1);
    CHECK(splice(fds[FI_FD_STDOUT_PIPE], NULL, fds[FI_FD_STDOUT_MEMORY], NULL, 5, 0) == 5);
    close_all(fds);

    rig_connect(rig);
    CHECK(rig_expect(rig, FI_WELCOME, "", &message, NULL));
    CHECK(message.as.welcome.commands == 2);
    CHECK(rig_expect(rig, FI_STARTED, "running", &message, fds));
    CHECK(message.as.started.start_wall_ms == started && message.as.started.has_stdin == 1);
    char text[16] = "";
    CHECK(lseek(fds[FI_FD_STDOUT_MEMORY], 0, SEEK_CUR) == 5);
    CHECK(pread(fds[FI_FD_STDOUT_MEMORY], text, sizeof text, 0) == 5 && memcmp(text, "befor", 5) == 0);
    CHECK(ftruncate(fds[FI_FD_STDOUT_MEMORY], 0) < 0); /* no front can cut it */
    CHECK(fallocate(fds[FI_FD_STDOUT_MEMORY], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4) == 0);
    CHECK(pwrite(fds[FI_FD_STDIN_MEMORY], "after", 5, 0) == 5);
    CHECK(splice(fds[FI_FD_STDIN_MEMORY], NULL, fds[FI_FD_STDIN_PIPE], NULL, 5, 0) == 5);
    int ended[FI_FDS_MAX];
    CHECK(rig_expect(rig, FI_STARTED, "ended", &message, ended));
    CHECK(rig_expect(rig, FI_EXITED, "ended", &message, NULL));
    CHECK(WEXITSTATUS(message.as.exited.wait_status) == 9);
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));
    char *kept = rig_read(ended[FI_FD_STDOUT_PIPE], SIZE_MAX);
    CHECK_TEXT(kept, "kept\n");
    free(kept);
    close_all(ended);

    CHECK(rig_name(rig, FI_EOF, "running"));
    close(fds[FI_FD_STDIN_PIPE]);
    fds[FI_FD_STDIN_PIPE] = -1;
    char *rest = rig_read(fds[FI_FD_STDOUT_PIPE], SIZE_MAX);
    CHECK_TEXT(rest, "eafter");
    free(rest);
    CHECK(rig_expect(rig, FI_EXITED, "running", &message, NULL));
    CHECK(WEXITSTATUS(message.as.exited.wait_status) == 5);
    close_all(fds);

    rig_connect(rig); /* stdin was closed meanwhile: four descriptors */
    CHECK(rig_expect(rig, FI_STARTED, "running", &message, NULL) && message.as.started.has_stdin == 0);
    CHECK(message.as.started.stdin_bytes == 5);
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));
    CHECK(rig_name(rig, FI_FORGET, "running") && rig_name(rig, FI_FORGET, "ended"));
}

static void test_end_without_front(struct rig *rig)
{
    struct front_init_message message;
    CHECK(rig_start_shell(rig, "alone", &(struct rig_start){.timeout_ms = 100}, "sleep 100"));
    CHECK(rig_expect(rig, FI_STARTED, "alone", &message, NULL));
    close(rig->connection);
    rig->connection = -1;
    CHECK(rig_wait_cgroups(rig, 0));
    rig_connect(rig);
    CHECK(rig_expect(rig, FI_EXITED, "alone", &message, NULL) && message.as.exited.timed_out);
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));

    /* What a front asks with its last breath is done. */
    CHECK(rig_start_shell(rig, "last", NULL, "exit 4") && rig_name(rig, FI_FORGET, "alone"));
    rig_connect(rig);
    CHECK(rig_expect(rig, FI_EXITED, "last", &message, NULL) && WEXITSTATUS(message.as.exited.wait_status) == 4);
    CHECK(rig_name(rig, FI_FORGET, "last"));
    char none[] = "/no/such", *nothing[] = {none, NULL};
    CHECK(rig_start_shell(rig, "last", NULL, "sleep 100"));
    CHECK(rig_expect(rig, FI_STARTED, "last", &message, NULL));
    for (int i = 0; i < 20; i++) /* refusals that find nobody */
        CHECK(rig_start(rig, "x", NULL, nothing) && rig_signal(rig, "last", SIGCONT));
    CHECK(rig_name(rig, FI_KILL, "last"));
    close(rig->connection);
    rig->connection = -1;
    CHECK(rig_wait_cgroups(rig, 0));
    rig_connect(rig);
    CHECK(rig_expect(rig, FI_EXITED, "last", &message, NULL) && message.as.exited.killed);
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));
    CHECK(rig_name(rig, FI_FORGET, "last"));
}

static void test_newest_wins(struct rig *rig)
{
    struct front_init_message message;
    struct rig older = *rig;
    rig->connection = -1;
    rig_connect(rig);
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));
    CHECK(!rig_expect(&older, FI_CURRENT, "", &message, NULL)); /* its end */
    close(older.connection);
    struct rig_result result = rig_run(rig, "newest", NULL, "echo hears");
    CHECK_TEXT(result.output, "hears\n");
    rig_result_done(&result);
}

/* A message that is none closes the connection; init goes on. */
static void send_garbage(struct rig *rig, const void *bytes, size_t size, const int *fds, size_t count)
{
    struct front_init_message message;
    struct error err = {0};
    CHECK(fd_send_message(rig->connection, bytes, size, fds, count, &err));
    CHECK(!rig_expect(rig, FI_CURRENT, "", &message, NULL));
    rig_connect(rig);
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));
}

static void test_garbage(struct rig *rig)
{
    struct front_init_message message = {.type = FI_START, .as.start.id = "x"};
    int many[FD_MESSAGE_FDS];
    for (int i = 0; i < FD_MESSAGE_FDS; i++)
        many[i] = 0;
    send_garbage(rig, "x", 1, NULL, 0);
    send_garbage(rig, &message, front_init_size(FI_START), NULL, 0); /* no memory */
    send_garbage(rig, &message, front_init_size(FI_START), many, 2);
    send_garbage(rig, &message, front_init_size(FI_START), many, FD_MESSAGE_FDS);
    send_garbage(rig, &message, front_init_size(FI_START) - 1, many, 1);
    send_garbage(rig, &message, sizeof message, many, 1);
    memset(message.as.start.id, 'x', sizeof message.as.start.id);
    send_garbage(rig, &message, front_init_size(FI_START), many, 1);
    message = (struct front_init_message){.type = FI_KILL, .as.name.id = "../run"};
    send_garbage(rig, &message, front_init_size(FI_KILL), NULL, 0);
    message = (struct front_init_message){.type = FI_CURRENT};
    send_garbage(rig, &message, front_init_size(FI_CURRENT), NULL, 0);
    message = (struct front_init_message){.type = 4711};
    send_garbage(rig, &message, sizeof message, NULL, 0);
    message = (struct front_init_message){.type = FI_SIGNAL, .as.signal = {.id = "x", .number = -9}};
    send_garbage(rig, &message, front_init_size(FI_SIGNAL), NULL, 0);
    char huge[9000] = {0};
    send_garbage(rig, huge, sizeof huge, NULL, 0);
}

static void check_bad_memory(struct rig *rig, int fd)
{
    struct front_init_message message = {.type = FI_START, .as.start.id = "bad"};
    CHECK(rig_send(rig, &message, fd));
    CHECK(rig_expect(rig, FI_REFUSED, "bad", &message, NULL));
    CHECK(message.as.refused.error.kind == ERROR_INVALID || message.as.refused.error.kind == ERROR_TOO_LARGE);
    close(fd);
}

static void test_bad_memory(struct rig *rig)
{
    struct error err;
    static const uint32_t lying[] = {0xffffffff, 0xffffffff, 0x2f2f2f2f};
    int pipes[2];
    CHECK(pipe(pipes) == 0); /* reading from it would block for ever */
    check_bad_memory(rig, pipes[0]);
    close(pipes[1]);
    check_bad_memory(rig, open("/dev/zero", O_RDONLY));
    check_bad_memory(rig, memfd_create("unsealed", MFD_ALLOW_SEALING));
    check_bad_memory(rig, fd_sealed_memfd("short", "x", 1, &err));
    check_bad_memory(rig, fd_sealed_memfd("lying", lying, sizeof lying, &err));
    int large = memfd_create("large", MFD_ALLOW_SEALING);
    CHECK(ftruncate(large, 1LL << 40) == 0);
    CHECK(fcntl(large, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    check_bad_memory(rig, large);
}

static void test_unknown_names(struct rig *rig)
{
    CHECK(rig_name(rig, FI_KILL, "nobody") && rig_name(rig, FI_EOF, "nobody") && rig_name(rig, FI_FORGET, "nobody"));
    CHECK(rig_signal(rig, "nobody", 9));
    struct rig_result result = rig_run(rig, "alive", NULL, "echo alive");
    CHECK_TEXT(result.output, "alive\n");
    rig_result_done(&result);
}

/* A front that asks a thousand things before it reads one answer, then dies, then a new one that is told all. */
static void test_many(struct rig *rig)
{
    struct front_init_message message;
    char name[32], truth[] = "/bin/true", *arguments[] = {truth, NULL};
    int exited = 0, started = 0, fds[FI_FDS_MAX];
    bool current = false;
    size_t count;
    uint64_t begin = clock_monotonic_ns();
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        CHECK(rig_start(rig, name, NULL, arguments));
        if (i % 50 != 49)
            continue;
        /* Both ends may be full at once only if this one never reads: it reads the end of each fifty. */
        CHECK(rig_expect(rig, FI_EXITED, name, &message, NULL));
    }
    printf("%d commands: %.0f us each\n", MANY, (double)(clock_monotonic_ns() - begin) / 1000 / MANY);
    rig_connect(rig);
    usleep(100000); /* not reading: init's side is full */
    /* CURRENT stands before those that were just starting or ended meanwhile. */
    while ((!current || exited < MANY) && rig_receive(rig, &message, fds, &count) == 1) {
        started += message.type == FI_STARTED;
        exited += message.type == FI_EXITED;
        current = current || message.type == FI_CURRENT;
        for (size_t i = 0; i < count; i++)
            close(fds[i]);
    }
    CHECK(started == MANY && exited == MANY);
    CHECK(rig_wait_cgroups(rig, 0));

    /* The table's end. */
    for (int i = MANY; i < FRONT_INIT_COMMANDS; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        CHECK(rig_start(rig, name, NULL, arguments));
        CHECK(rig_expect(rig, FI_EXITED, name, &message, NULL));
    }
    CHECK(rig_start(rig, "over", NULL, arguments));
    CHECK(rig_expect(rig, 0, "over", &message, NULL));
    CHECK(message.type == FI_REFUSED && message.as.refused.error.kind == ERROR_NO_CAPACITY);
    for (int i = 0; i < FRONT_INIT_COMMANDS; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        CHECK(rig_name(rig, FI_FORGET, name));
    }
    CHECK(rig_start(rig, "over", NULL, arguments));
    CHECK(rig_expect(rig, FI_EXITED, "over", &message, NULL));
    CHECK(rig_name(rig, FI_FORGET, "over"));
}

/* The front stays connected but does not read: init waits with it and does not grow; nothing is lost. */
static void test_slow_front(struct rig *rig)
{
    struct front_init_message message;
    char name[32], truth[] = "/bin/true", *arguments[] = {truth, NULL};
    int sent = 0;
    CHECK(fcntl(rig->connection, F_SETFL, O_NONBLOCK) == 0);
    while (sent < 2000) {
        struct front_init_command command = {.cwd = "/", .arguments = arguments};
        struct error err = {0};
        snprintf(name, sizeof name, "slow-%d", sent);
        AUTO_FD int fd = front_init_command_seal(&command, &err);
        message = (struct front_init_message){.type = FI_START};
        memcpy(message.as.start.id, name, sizeof name);
        struct pollfd room = {.fd = rig->connection, .events = POLLOUT};
        if (poll(&room, 1, 300) != 1 || !front_init_send(rig->connection, &message, &fd, 1, &err))
            break;
        sent++;
    }
    CHECK(sent > 50 && sent < 1000);
    int ends = 0, fds[FI_FDS_MAX];
    size_t count;
    while (ends < sent && rig_receive(rig, &message, fds, &count) == 1) {
        for (size_t i = 0; i < count; i++)
            close(fds[i]);
        ends += message.type == FI_EXITED;
    }
    CHECK(ends == sent);
    CHECK(fcntl(rig->connection, F_SETFL, 0) == 0);
    for (int i = 0; i < sent; i++) {
        snprintf(name, sizeof name, "slow-%d", i);
        CHECK(rig_name(rig, FI_FORGET, name));
    }
}

int main(void)
{
    struct rig rig;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max < 8192)
        check_skip("RLIMIT_NOFILE is below 8192");
    rig_open_connected(&rig, NULL);
    CHECK(rig_wait_spare(&rig) > 0);
    int open_at_first = rig_count_fds(&rig);
    test_reconnect(&rig);
    test_end_without_front(&rig);
    test_newest_wins(&rig);
    test_garbage(&rig);
    test_bad_memory(&rig);
    test_unknown_names(&rig);
    test_slow_front(&rig);
    test_many(&rig);
    struct rig_result last = rig_run(&rig, "last", NULL, "exit 0"); /* a full table has no spare child */
    rig_result_done(&last);
    CHECK(rig_wait_spare(&rig) > 0);
    CHECK(rig_wait_cgroups(&rig, 0));
    CHECK(open_at_first > 8 && rig_wait_fds(&rig, open_at_first)); /* all is closed again */
    CHECK(rig_close(&rig));
    return check_done();
}
