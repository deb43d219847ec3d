/* output_test.c - splice into memory: lengths, holes, and no byte lost when the pumping process is killed. */
#include "sandboxd/sandbox/output.h"
#include "shared/base/random.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static int new_memory(void)
{
    int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(memory >= 0 && fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return memory;
}

static void test_pump_and_read(void)
{
    int pipes[2];
    CHECK(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
    struct error err = {0};
    struct output *output = output_new(new_memory(), &err);
    CHECK(output != NULL);
    CHECK(output_pump(output, pipes[0], UINT64_MAX, MIB) == OUTPUT_EMPTY);
    CHECK(write(pipes[1], "hello world", 11) == 11);
    CHECK(output_pump(output, pipes[0], 5, MIB) == OUTPUT_MORE); /* the limit */
    CHECK(output->length == 5);
    CHECK(output_pump(output, pipes[0], UINT64_MAX, 2) == OUTPUT_MORE); /* the budget */
    CHECK(output->length == 7);
    CHECK(output_pump(output, pipes[0], UINT64_MAX, MIB) == OUTPUT_EMPTY);
    char text[32] = "";
    uint64_t gap_to;
    CHECK(output_read(output, 0, text, sizeof text, &gap_to) == 11);
    CHECK(memcmp(text, "hello world", 11) == 0);
    CHECK(output_read(output, 6, text, 3, &gap_to) == 3 && memcmp(text, "wor", 3) == 0);
    CHECK(output_read(output, 11, text, sizeof text, &gap_to) == 0 && gap_to == 11);
    close(pipes[1]);
    CHECK(output_pump(output, pipes[0], UINT64_MAX, MIB) == OUTPUT_END);
    close(pipes[0]);
    output_release(output);
}

static void test_punch(void)
{
    static char block[65536];
    int memory = new_memory(), again = fcntl(memory, F_DUPFD_CLOEXEC, 0);
    struct error err = {0};
    struct output *output = output_new(memory, &err);
    int pipes[2];
    CHECK(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 4; i++) {
        CHECK(write(pipes[1], block, sizeof block) == (ssize_t)sizeof block);
        CHECK(output_pump(output, pipes[0], UINT64_MAX, MIB) == OUTPUT_EMPTY);
    }
    CHECK(output_kept(output) == 4 * sizeof block);
    CHECK(output_punch(output, sizeof block + 100) == sizeof block); /* whole pages */
    CHECK(output->kept_from == sizeof block);
    CHECK(output_punch(output, 10) == 0);
    char byte;
    uint64_t gap_to;
    CHECK(output_read(output, 0, &byte, 1, &gap_to) == 0 && gap_to == sizeof block);
    CHECK(output_read(output, sizeof block, &byte, 1, &gap_to) == 1 && byte == 'x');
    /* Another front: finds the position and the hole, and moves neither. */
    struct output *other = output_new(again, &err);
    CHECK(other && other->length == 4 * sizeof block && other->kept_from == sizeof block);
    CHECK(other && lseek(again, 0, SEEK_CUR) == 4 * (off_t)sizeof block);
    CHECK(output_punch(output, UINT64_MAX) == 3 * sizeof block);
    CHECK(output_kept(output) == 0);
    output_release(other);
    output_release(output);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_hostile_memory(void)
{
    struct error err = {0};
    int pipes[2];
    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    CHECK(output_new(pipes[0], &err) == NULL && err.kind == ERROR_INVALID); /* a pipe; closed by it */
    CHECK(fcntl(pipes[0], F_GETFD) < 0);
    close(pipes[1]);
    err = (struct error){0};
    CHECK(output_new(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), &err) == NULL); /* a file of a disk */
    /* One that somebody inside could cut short, under a reader or a sendfile. */
    int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(write(memory, "12345678", 8) == 8);
    CHECK(output_new(fcntl(memory, F_DUPFD_CLOEXEC, 0), &err) == NULL && err.kind == ERROR_INVALID);
    CHECK(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0 && lseek(memory, 9, SEEK_SET) == 9);
    err = (struct error){0};
    CHECK(output_new(fcntl(memory, F_DUPFD_CLOEXEC, 0), &err) == NULL && err.kind == ERROR_INVALID); /* beyond */
    CHECK(lseek(memory, 8, SEEK_SET) == 8);
    struct output *output = output_new(memory, &err);
    CHECK(output && output->length == 8);
    CHECK(ftruncate(memory, 0) < 0);
    output_release(output);
}

/* Prints 000001\n .. as fast as it can; 8 bytes a line. */
static void run_printer(int to, unsigned lines)
{
    for (unsigned i = 0; i < lines; i++) {
        char line[16];
        snprintf(line, sizeof line, "%07u\n", i);
        if (write(to, line, 8) != 8)
            _exit(1);
    }
    _exit(0);
}

static void run_pump(int pipe_end, int memory)
{
    struct error err = {0};
    struct output *output = output_new(memory, &err);
    for (;;) {
        enum output_pumped pumped = output_pump(output, pipe_end, UINT64_MAX, MIB);
        if (pumped == OUTPUT_END)
            _exit(0);
        struct pollfd readable = {.fd = pipe_end, .events = POLLIN};
        if (pumped == OUTPUT_EMPTY)
            poll(&readable, 1, -1);
    }
}

/* A front is killed again and again at any point of its splicing; the next goes on: each line is there once, in order.
 */
static void test_killed_pumps(void)
{
    enum { LINES = 150000 };
    int pipes[2];
    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    int memory = new_memory();
    pid_t printer = fork();
    if (printer == 0) {
        close(pipes[0]);
        run_printer(pipes[1], LINES);
    }
    close(pipes[1]);
    unsigned kills = 0;
    for (bool ended = false; !ended;) {
        pid_t pump = fork();
        if (pump == 0)
            run_pump(pipes[0], memory);
        struct timespec moment = {.tv_nsec = 200000 + (long)random_below(3000000)};
        nanosleep(&moment, NULL);
        kill(pump, SIGKILL);
        int status = 0;
        CHECK(waitpid(pump, &status, 0) == pump);
        ended = WIFEXITED(status);
        kills += !ended;
    }
    CHECK(kills > 3);
    int status = 0;
    CHECK(waitpid(printer, &status, 0) == printer && status == 0);
    CHECK(lseek(memory, 0, SEEK_CUR) == LINES * 8);
    char *all = malloc(LINES * 8);
    CHECK(pread(memory, all, LINES * 8, 0) == LINES * 8);
    unsigned wrong = 0;
    for (unsigned i = 0; i < LINES; i++)
        wrong += strtoul(all + i * 8, NULL, 10) != i;
    CHECK(wrong == 0);
    printf("%u kills, %u wrong lines\n", kills, wrong);
    free(all);
    close(memory);
    close(pipes[0]);
}

int main(void)
{
    test_pump_and_read();
    test_punch();
    test_hostile_memory();
    test_killed_pumps();
    return check_done();
}
