/* input_test.c - stdin's memfd: offsets, bounds, its end, and that another front goes on from what one left. */
#include "sandboxd/sandbox/input.h"

#include "tests/unit/check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 65536 };

static int new_memory(void)
{
    int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(memory >= 0 && fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return memory;
}

/* As another front gets it: the same open file. */
static struct input *adopt(int memory)
{
    struct error err = {0};
    struct input *input = input_new(dup(memory), &err);
    CHECK(input != NULL);
    return input;
}

static size_t new_bytes(const struct input *input, uint64_t offset, size_t size)
{
    struct error err = {0};
    CHECK(input_find_new(input, offset, &size, &err));
    return size;
}

static void test_offsets(void)
{
    struct error err = {0};
    int memory = new_memory();
    struct input *input = adopt(memory);
    CHECK(input->accepted == 0 && input->delivered == 0 && !input->is_ended);
    CHECK(input_append(input, "0123456789", 10, &err) && input_waiting(input) == 10);
    CHECK(new_bytes(input, INPUT_OFFSET_NONE, 7) == 7);
    CHECK(new_bytes(input, 10, 7) == 7);
    CHECK(new_bytes(input, 8, 7) == 5);
    CHECK(new_bytes(input, 3, 7) == 0);
    CHECK(new_bytes(input, 0, 3) == 0);
    CHECK(new_bytes(input, 10, 0) == 0);
    size_t size = 7;
    CHECK(!input_find_new(input, 11, &size, &err) && err.kind == ERROR_RANGE && size == 7);
    CHECK(!input_find_new(input, INPUT_OFFSET_NONE - 1, &size, &err) && size == 7);
    input_free(input);
    close(memory);
}

static void test_moving(void)
{
    static char block[BLOCK], got[4 * BLOCK];
    struct error err = {0};
    int memory = new_memory(), ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0); /* a writer that blocks: init could have made it so */
    struct input *input = adopt(memory);
    memset(block, 'a', sizeof block);
    CHECK(input_append(input, block, sizeof block, &err));
    memset(block, 'b', sizeof block);
    CHECK(input_append(input, block, sizeof block, &err));
    CHECK(input_move(input, ends[1], 100) == INPUT_MORE && input->delivered == 100);
    CHECK(input_move(input, ends[1], SIZE_MAX / 2) == INPUT_FULL);
    uint64_t delivered = input->delivered;
    CHECK(delivered > 0 && delivered < 2 * BLOCK);
    input_free(input); /* this front is killed */

    input = adopt(memory);
    CHECK(input->accepted == 2 * BLOCK && input->delivered == delivered && !input->is_ended);
    input_end(input);
    CHECK(pwrite(memory, "x", 1, 2 * BLOCK) < 0); /* nobody can add to it */
    size_t all = 0;
    for (enum input_moved moved = INPUT_FULL; moved == INPUT_FULL;) {
        ssize_t size = read(ends[0], got + all, sizeof got - all);
        CHECK(size > 0);
        all += size > 0 ? (size_t)size : 0;
        moved = input_move(input, ends[1], SIZE_MAX / 2);
        CHECK(moved != INPUT_BROKEN);
    }
    while (all < 2 * BLOCK) {
        ssize_t size = read(ends[0], got + all, sizeof got - all);
        if (size <= 0)
            break;
        all += (size_t)size;
    }
    CHECK(all == 2 * BLOCK && got[0] == 'a' && got[BLOCK - 1] == 'a' && got[BLOCK] == 'b' && got[2 * BLOCK - 1] == 'b');
    CHECK(input_move(input, ends[1], 100) == INPUT_EMPTY && input_waiting(input) == 0);
    input_free(input);

    input = adopt(memory);
    CHECK(input->is_ended && input->accepted == 2 * BLOCK && input_waiting(input) == 0);
    input_free(input);
    close(memory), close(ends[0]), close(ends[1]);
}

static void test_broken_pipe(void)
{
    struct error err = {0};
    int memory = new_memory(), ends[2];
    struct input *input = adopt(memory);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    close(ends[0]);
    CHECK(input_move(input, ends[1], 100) == INPUT_EMPTY);
    CHECK(input_append(input, "x", 1, &err));
    CHECK(input_move(input, ends[1], 100) == INPUT_BROKEN);
    input_free(input);
    close(memory), close(ends[1]);
}

static blkcnt_t blocks_of(int memory)
{
    struct stat status;
    return fstat(memory, &status) == 0 ? status.st_blocks : -1;
}

static void test_punching(void)
{
    static char block[BLOCK], got[BLOCK];
    struct error err = {0};
    int memory = new_memory(), ends[2];
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    struct input *input = adopt(memory);
    for (int i = 0; i < 10; i++) {
        memset(block, 'a' + i, sizeof block);
        CHECK(input_append(input, block, sizeof block, &err));
    }
    blkcnt_t before = blocks_of(memory);
    for (int i = 0; i < 10; i++) {
        CHECK(input_move(input, ends[1], BLOCK) == (i == 9 ? INPUT_EMPTY : INPUT_MORE));
        input_punch(input, ends[1]);
        CHECK(read(ends[0], got, sizeof got) == BLOCK && got[0] == 'a' + i && got[BLOCK - 1] == 'a' + i);
    }
    CHECK(input->punched >= 256 << 10 && input->punched <= input->delivered && blocks_of(memory) < before);
    CHECK(input->accepted == 10 * BLOCK); /* offsets stay */
    input_free(input);
    close(memory), close(ends[0]), close(ends[1]);
}

/* What comes from inside a sandbox. */
static void test_lies(void)
{
    struct error err = {0};
    int memory = new_memory(), ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(input_new(ends[0], &err) == NULL && err.kind == ERROR_INVALID && fcntl(ends[0], F_GETFD) < 0);
    CHECK(input_new(-1, &err) == NULL && err.kind == ERROR_INVALID);
    CHECK(input_new(open("/dev/zero", O_RDWR | O_CLOEXEC), &err) == NULL);
    err = (struct error){0};
    CHECK(input_new(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING), &err) == NULL); /* could be cut short */
    CHECK(err.kind == ERROR_INVALID);
    CHECK(lseek(memory, 1, SEEK_SET) == 1);
    CHECK(input_new(dup(memory), &err) == NULL && err.kind == ERROR_INVALID); /* beyond its end */
    CHECK(lseek(memory, 0, SEEK_SET) == 0);
    CHECK(ftruncate(memory, (off_t)1 << 50) == 0);
    struct input *input = adopt(memory);
    CHECK(input_waiting(input) == UINT64_C(1) << 50);
    CHECK(input_move(input, ends[1], BLOCK) != INPUT_EMPTY);
    input_free(input);
    CHECK(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    input = adopt(memory);
    CHECK(!input_append(input, "x", 1, &err) && err.kind == ERROR_INTERNAL && input->accepted == UINT64_C(1) << 50);
    input_free(input);
    close(memory), close(ends[1]);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    test_offsets();
    test_moving();
    test_broken_pipe();
    test_punching();
    test_lies();
    return check_done();
}
