/* terminal_test.c - the front's end of a terminal, and of stdin, as init tells of them: what is moved when, what is
 * answered when, and what another front finds. */
#include "sandboxd/sandbox/sandbox_internal.h"
#include "shared/base/clock.h"
#include "shared/http/loop_internal.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

/* A loop with one sandbox, whose init is this test. */
struct world {
    struct loop *loop;
    struct sandboxes all;
    struct sandbox sandbox;
    char folder[32];
    int run, listener, init;
    int slave;            /* where the command of a terminal is */
    int kept[FI_FDS_MAX]; /* as init keeps them */
};

static void on_message(void *cookie, const struct front_init_message *message, int *fds, size_t fd_count)
{
    (void)cookie, (void)message, (void)fds, (void)fd_count;
}

static void on_lost(void *cookie)
{
    (void)cookie;
}

static const struct init_link_events EVENTS = {.message = on_message, .lost = on_lost};

static void turn(const struct world *world, int times)
{
    for (int i = 0; i < times; i++)
        (void)h2o_evloop_run(world->loop->evloop, 20);
}

static void open_world(struct world *world)
{
    struct error err = {0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *world = (struct world){.folder = "/tmp/parley-terminal-XXXXXX", .slave = -1, .kept = {-1, -1, -1, -1, -1, -1, -1}};
    world->loop = loop_new(0, &err);
    loop_open(world->loop);
    world->all.registry = registry_new(1);
    world->all.descriptors_max = 1000;
    world->sandbox = (struct sandbox){.all = &world->all, .loop = world->loop};
    for (int i = 0; i < FL_FDS; i++)
        world->sandbox.stats[i] = -1;
    CHECK(mkdtemp(world->folder) != NULL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/init.sock", world->folder);
    world->run = open(world->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    world->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(bind(world->listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(world->listener, 1) == 0);
    world->sandbox.link = init_link_new(world->loop, world->run, "init.sock", geteuid(), &EVENTS, NULL);
    world->init = accept4(world->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(world->init >= 0);
}

/* This front is gone; init keeps all. */
static void lose_front(struct world *world)
{
    struct error err = {0};
    error_set(&err, ERROR_GONE, "the test is over");
    process_free_all(&world->sandbox, &err);
    CHECK(world->sandbox.descriptors == 0 && world->sandbox.input_bytes == 0);
}

static void close_world(struct world *world)
{
    char path[64];
    lose_front(world);
    init_link_free(world->sandbox.link);
    turn(world, 2);
    loop_close(world->loop);
    loop_free(world->loop);
    registry_free(world->all.registry);
    for (int i = 0; i < FI_FDS_MAX; i++)
        if (world->kept[i] >= 0)
            close(world->kept[i]);
    if (world->slave >= 0)
        close(world->slave);
    close(world->init), close(world->listener), close(world->run);
    snprintf(path, sizeof path, "%s/init.sock", world->folder);
    unlink(path);
    rmdir(world->folder);
}

static int new_memory(void)
{
    int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(memory >= 0 && fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return memory;
}

static struct process *tell_started(struct world *world, const struct fi_started *started)
{
    int fds[FI_FDS_MAX];
    for (int i = 0; i < FI_FDS_MAX; i++)
        fds[i] = world->kept[i] >= 0 ? fcntl(world->kept[i], F_DUPFD_CLOEXEC, 3) : -1;
    process_started(&world->sandbox, started, fds);
    for (int i = 0; i < FI_FDS_MAX; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return process_find(&world->sandbox, "one");
}

static void make_terminal(struct world *world)
{
    int ends[2], unlocked = 0, *kept = world->kept;
    kept[FI_TERMINAL_FD_MASTER] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    CHECK(ioctl(kept[FI_TERMINAL_FD_MASTER], TIOCSPTLCK, &unlocked) == 0);
    world->slave = ioctl(kept[FI_TERMINAL_FD_MASTER], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    struct termios modes;
    CHECK(tcgetattr(world->slave, &modes) == 0);
    cfmakeraw(&modes);
    CHECK(tcsetattr(world->slave, TCSANOW, &modes) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        kept[FI_TERMINAL_FD_OUT_READ + 3 * i] = ends[0];
        kept[FI_TERMINAL_FD_OUT_WRITE + 3 * i] = ends[1];
        kept[FI_TERMINAL_FD_STDOUT_MEMORY + 3 * i] = new_memory();
    }
}

static const struct fi_started ON_TERMINAL = {.id = "one", .pid = 2, .has_stdin = 1, .terminal = 1};

struct heard {
    int answers;
    struct error error;
    uint64_t stdin_offset;
};

static void on_answer(void *cookie, const struct verb_answer *answer)
{
    struct heard *heard = cookie;
    heard->answers++;
    heard->error = answer->error;
    if (answer->count == 1)
        heard->stdin_offset = answer->views[0].stdin_offset;
}

static void write_input(struct world *world, struct heard *heard, const void *data, size_t size, uint64_t offset,
                        bool eof)
{
    struct verb *verb = verb_new(&world->all, "sbx_a");
    memcpy(verb->process_id, "one", 4);
    verb->data = size ? memcpy(malloc(size), data, size) : NULL;
    verb->size = size;
    verb->offset = offset;
    verb->eof = eof;
    verb->done = on_answer;
    verb->cookie = heard;
    *heard = (struct heard){0};
    process_verb_input(&world->sandbox, verb);
    turn(world, 3);
}

static bool was_told_of_end(const struct world *world)
{
    struct front_init_message message;
    int fds[FI_FDS_MAX];
    size_t count = 0;
    struct error err = {0};
    bool told = false;
    while (front_init_receive(world->init, &message, FI_FROM_FRONT, fds, &count, &err) == 1)
        told = told || message.type == FI_EOF;
    return told;
}

static bool has_output(const struct process *process, const char *wanted)
{
    char text[256] = "";
    uint64_t gap_to;
    size_t size = output_read(process->streams[0].output, 0, text, sizeof text - 1, &gap_to);
    if (size == strlen(wanted) && memcmp(text, wanted, size) == 0)
        return true;
    fprintf(stderr, "output \"%s\", wanted \"%s\"\n", text, wanted);
    return false;
}

static bool slave_reads(const struct world *world, const char *wanted)
{
    char text[256] = "";
    struct pollfd one = {.fd = world->slave, .events = POLLIN};
    ssize_t size = poll(&one, 1, 1000) == 1 ? read(world->slave, text, sizeof text - 1) : 0;
    return size == (ssize_t)strlen(wanted) && memcmp(text, wanted, strlen(wanted)) == 0;
}

static void test_both_ways(struct world *world)
{
    struct heard heard;
    make_terminal(world);
    struct process *process = tell_started(world, &ON_TERMINAL);
    CHECK(process && process->terminal && world->sandbox.descriptors == FI_TERMINAL_FDS);
    CHECK(write(world->slave, "out", 3) == 3);
    turn(world, 3);
    CHECK(has_output(process, "out"));
    write_input(world, &heard, "in", 2, PROCESS_OFFSET_NONE, false);
    CHECK(heard.answers == 1 && heard.error.kind == ERROR_NONE && heard.stdin_offset == 2);
    CHECK(slave_reads(world, "in"));
    write_input(world, &heard, "inner", 5, 0, true);
    CHECK(heard.stdin_offset == 6 && slave_reads(world, "ner\004"));
    write_input(world, &heard, "inner", 5, 0, true); /* again */
    CHECK(heard.stdin_offset == 6);
    struct process_view view;
    process_show(process, &view);
    CHECK(view.terminal && view.stdin_open && view.stdin_offset == 6 && view.length[0] == 3 && view.length[1] == 0);
    CHECK(!was_told_of_end(world)); /* it is none */
}

/* The pipes hold what the front before had on its way. */
static void test_adoption(struct world *world)
{
    lose_front(world);
    CHECK(write(world->kept[FI_TERMINAL_FD_OUT_WRITE], "+", 1) == 1);
    CHECK(write(world->kept[FI_TERMINAL_FD_IN_WRITE], "<", 1) == 1);
    CHECK(write(world->slave, "more", 4) == 4);
    CHECK(pwrite(world->kept[FI_TERMINAL_FD_STDIN_MEMORY], "rest", 4, 6) == 4);
    struct winsize size = {.ws_col = 90, .ws_row = 20};
    CHECK(ioctl(world->kept[FI_TERMINAL_FD_MASTER], TIOCSWINSZ, &size) == 0);
    struct process *process = tell_started(world, &ON_TERMINAL);
    turn(world, 3);
    CHECK(has_output(process, "out+more"));
    CHECK(slave_reads(world, "<rest"));
    struct process_view view;
    process_show(process, &view);
    CHECK(view.stdin_offset == 10 && view.columns == 90 && view.rows == 20);
}

/* Somebody else has it open: 100 ms. Then init may close it, and the next front finds what was written. */
static void test_end(struct world *world)
{
    struct process *process = process_find(&world->sandbox, "one");
    struct fi_exited exited = {.id = "one"};
    CHECK(write(world->slave, ".", 1) == 1);
    uint64_t before = clock_boot_ns();
    process_exited(&world->sandbox, &exited);
    CHECK(!process->end_told && !was_told_of_end(world));
    while (!process->end_told && clock_boot_ns() - before < UINT64_C(3000000000))
        turn(world, 1);
    CHECK(process->end_told && clock_boot_ns() - before >= UINT64_C(100000000) && process->terminal == NULL);
    turn(world, 2);
    CHECK(was_told_of_end(world) && has_output(process, "out+more."));
    lose_front(world);
    struct fi_started over = ON_TERMINAL;
    over.has_stdin = 0;
    over.stdin_bytes = 10;
    int memory = world->kept[FI_TERMINAL_FD_STDOUT_MEMORY];
    world->kept[FI_TERMINAL_FD_STDOUT_MEMORY] = world->kept[0];
    world->kept[0] = memory;
    process = tell_started(world, &over);
    CHECK(process && !process->terminal && has_output(process, "out+more.") && process->view.stdin_offset == 10);
    process_exited(&world->sandbox, &exited);
    CHECK(process->end_told);
}

static void test_closed_by_all(void)
{
    struct world world;
    open_world(&world);
    make_terminal(&world);
    struct process *process = tell_started(&world, &ON_TERMINAL);
    CHECK(write(world.slave, "last", 4) == 4);
    close(world.slave);
    world.slave = -1;
    turn(&world, 3);
    CHECK(has_output(process, "last") && process->terminal == NULL && process->state == PROCESS_RUNNING);
    struct heard heard;
    write_input(&world, &heard, "x", 1, PROCESS_OFFSET_NONE, false);
    CHECK(heard.error.kind == ERROR_CONFLICT);
    struct fi_exited exited = {.id = "one"};
    process_exited(&world.sandbox, &exited);
    CHECK(process->end_told); /* at once */
    close_world(&world);
}

/* A driver that is behind: what is in the pipe waits for it, though the master has nothing more to tell. */
static void on_ready(void *cookie)
{
    (void)cookie;
}

static void test_slow_reader(void)
{
    static char block[4096];
    struct world world;
    open_world(&world);
    make_terminal(&world);
    struct process *process = tell_started(&world, &ON_TERMINAL);
    uint64_t offsets[OUTPUT_STREAMS] = {0};
    struct follower *driver = follower_new(FOLLOWER_DRIVER, offsets, on_ready, NULL);
    process_attach(process, driver);
    uint64_t written = 0;
    for (int i = 0; i < 5000 && written < PROCESS_BEHIND_BYTES + 5000; i++) {
        size_t size = (size_t)(i % 3) * 1000 + 333;
        ssize_t got = write(world.slave, block, size);
        written += got > 0 ? (uint64_t)got : 0;
        process_output_pump(&process->streams[0]);
    }
    uint64_t length = process->streams[0].output->length;
    CHECK(length == PROCESS_BEHIND_BYTES && written > length && !process->streams[0].reading);
    follower_consumed(driver, OUTPUT_STDOUT, PROCESS_BEHIND_BYTES);
    follower_delivered(driver);
    process_output_resume(process);
    turn(&world, 3);
    CHECK(process->streams[0].output->length == written);
    CHECK(write(world.kept[FI_TERMINAL_FD_OUT_WRITE], "left", 4) ==
          4); /* as by a reader that was quicker than a look */
    turn(&world, 3);
    CHECK(process->streams[0].output->length == written + 4);
    follower_close(driver);
    close_world(&world);
}

static void test_lies(void)
{
    struct world world;
    open_world(&world);
    make_terminal(&world);
    for (int which = FI_TERMINAL_FD_MASTER; which < FI_TERMINAL_FDS; which++) {
        int honest = world.kept[which];
        world.kept[which] = open("/dev/zero", O_RDWR | O_CLOEXEC);
        CHECK(tell_started(&world, &ON_TERMINAL) == NULL && world.sandbox.descriptors == 0);
        close(world.kept[which]);
        world.kept[which] = world.slave;
        CHECK(tell_started(&world, &ON_TERMINAL) == NULL);
        world.kept[which] = honest;
    }
    int flags = fcntl(world.kept[FI_TERMINAL_FD_MASTER], F_GETFL);
    CHECK(fcntl(world.kept[FI_TERMINAL_FD_MASTER], F_SETFL, flags & ~O_NONBLOCK) == 0);
    struct process *process = tell_started(&world, &ON_TERMINAL);
    CHECK(process != NULL);
    CHECK(fcntl(world.kept[FI_TERMINAL_FD_MASTER], F_SETFL, flags & ~O_NONBLOCK) == 0);
    process_output_pump(&process->streams[0]); /* does not wait for a word */
    static char block[65536];
    struct heard heard;
    write_input(&world, &heard, block, sizeof block, PROCESS_OFFSET_NONE, false); /* more than the terminal takes */
    CHECK(heard.answers == 1);
    CHECK(process->terminal == NULL && process->input == NULL); /* it would have waited: it is over */
    close_world(&world);
}

/* ---- a pipe for stdin ---- */

static void make_pipes(struct world *world)
{
    int ends[2];
    for (int i = 0; i < 3; i++) {
        CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        world->kept[i == 2 ? FI_FD_STDIN_PIPE : FI_FD_STDOUT_PIPE + i] = ends[i == 2];
        world->kept[i == 2 ? FI_FD_STDIN_MEMORY : FI_FD_STDOUT_MEMORY + i] = new_memory();
        if (i == 2)
            world->slave = ends[0];
        else
            close(ends[1]);
    }
}

static size_t drain(const struct world *world)
{
    static char block[65536];
    size_t all = 0;
    for (int idle = 0; idle < 20; idle++) {
        ssize_t size = read(world->slave, block, sizeof block);
        if (size == 0)
            break;
        if (size > 0) {
            all += (size_t)size;
            idle = 0;
        } else {
            turn(world, 1);
        }
    }
    return all;
}

static void test_bounds(void)
{
    static char much[PROCESS_INPUT_BYTES + 1];
    static const struct fi_started started = {.id = "one", .pid = 2, .has_stdin = 1};
    struct world world;
    struct heard early, slow, heard;
    open_world(&world);
    make_pipes(&world);
    struct process *process = process_new(&world.sandbox, "one");
    write_input(&world, &early, "early", 5, PROCESS_OFFSET_NONE, false);
    CHECK(early.answers == 0 && world.sandbox.input_bytes == 5); /* until it is started */
    CHECK(tell_started(&world, &started) == process);
    turn(&world, 3);
    CHECK(early.answers == 1 && early.stdin_offset == 5 && world.sandbox.input_bytes == 0);
    write_input(&world, &heard, much, PROCESS_INPUT_BYTES + 1, PROCESS_OFFSET_NONE, false);
    CHECK(heard.error.kind == ERROR_RATE_LIMITED && process->input->accepted == 5); /* nothing of it */
    write_input(&world, &heard, much, 10, 6, false);
    CHECK(heard.error.kind == ERROR_RANGE);
    write_input(&world, &slow, much, PROCESS_INPUT_BYTES, 5, false);
    CHECK(slow.answers == 0 && process->input->accepted == PROCESS_INPUT_BYTES + 5); /* had, but not answered yet */
    write_input(&world, &heard, much, PROCESS_INPUT_BYTES, PROCESS_OFFSET_NONE, false);
    CHECK(heard.error.kind == ERROR_RATE_LIMITED);
    CHECK(drain(&world) == PROCESS_INPUT_BYTES + 5);
    CHECK(slow.answers == 1 && slow.stdin_offset == PROCESS_INPUT_BYTES + 5 && world.sandbox.input_bytes == 0);
    write_input(&world, &heard, "end", 3, PROCESS_OFFSET_NONE, true);
    CHECK(heard.error.kind == ERROR_NONE && heard.stdin_offset == PROCESS_INPUT_BYTES + 8);
    CHECK(was_told_of_end(&world) && process->input == NULL && drain(&world) == 3);
    write_input(&world, &heard, "end", 3, PROCESS_INPUT_BYTES + 5, true); /* by one who did not hear the answer */
    CHECK(heard.error.kind == ERROR_NONE && heard.stdin_offset == PROCESS_INPUT_BYTES + 8);
    write_input(&world, &heard, "ends", 4, PROCESS_INPUT_BYTES + 5, true);
    CHECK(heard.error.kind == ERROR_CONFLICT);
    close_world(&world);
}

/* The end was accepted, but not all delivered, when the front was killed. */
static void test_input_adoption(void)
{
    static const struct fi_started started = {.id = "one", .pid = 2, .has_stdin = 1};
    static char block[300000];
    struct world world;
    struct heard heard;
    open_world(&world);
    make_pipes(&world);
    CHECK(tell_started(&world, &started) != NULL);
    write_input(&world, &heard, block, sizeof block, 0, true);
    CHECK(heard.error.kind == ERROR_NONE && heard.stdin_offset == sizeof block);
    lose_front(&world);
    struct process *process = tell_started(&world, &started);
    struct process_view view;
    process_show(process, &view);
    CHECK(!view.stdin_open && view.stdin_offset == sizeof block && !was_told_of_end(&world));
    CHECK(drain(&world) == sizeof block);
    CHECK(was_told_of_end(&world) && process->input == NULL);
    lose_front(&world);
    for (int i = FI_FD_STDIN_PIPE; i < FI_FDS; i++) {
        close(world.kept[i]);
        world.kept[i] = -1;
    }
    struct fi_started closed = {.id = "one", .pid = 2}; /* of nothing, as far as init knows */
    process = tell_started(&world, &closed);
    write_input(&world, &heard, "", 0, 0, true); /* by one who did not hear the answer */
    CHECK(heard.answers == 1 && heard.error.kind == ERROR_NONE);
    write_input(&world, &heard, "x", 1, 0, true);
    CHECK(heard.error.kind == ERROR_CONFLICT);
    struct fi_exited exited = {.id = "one"};
    process_exited(&world.sandbox, &exited);
    write_input(&world, &heard, "", 0, PROCESS_OFFSET_NONE, true);
    CHECK(heard.error.kind == ERROR_CONFLICT);
    close_world(&world);
}

/* The command ends, and a program that it leaves behind reads on: what is in the pipe is the memory's own pages. */
static void test_left_in_the_pipe(void)
{
    static const struct fi_started started = {.id = "one", .pid = 2, .has_stdin = 1};
    static char block[5000], got[sizeof block];
    struct world world;
    struct heard heard;
    open_world(&world);
    make_pipes(&world);
    struct process *process = tell_started(&world, &started);
    memset(block, 'x', sizeof block);
    write_input(&world, &heard, block, sizeof block, 0, false);
    CHECK(heard.error.kind == ERROR_NONE && input_waiting(process->input) == 0);
    struct fi_exited exited = {.id = "one"};
    process_exited(&world.sandbox, &exited);
    turn(&world, 2);
    CHECK(was_told_of_end(&world) && process->input == NULL);
    CHECK(read(world.slave, got, sizeof got) == sizeof got && memcmp(got, block, sizeof got) == 0);
    close_world(&world);
}

int main(void)
{
    struct world world;
    (void)signal(SIGPIPE, SIG_IGN);
    alarm(60);
    keys_start();
    test_bounds();
    test_input_adoption();
    test_left_in_the_pipe();
    if (access("/dev/ptmx", R_OK | W_OK) < 0)
        check_skip("no terminals here");
    open_world(&world);
    test_both_ways(&world);
    test_adoption(&world);
    test_end(&world);
    close_world(&world);
    test_closed_by_all();
    test_slow_reader();
    test_lies();
    return check_done();
}
