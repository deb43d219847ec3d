/* follower_test.c - a reader that takes bytes from the memory itself, and one that wants one stream alone. */
#include "sandboxd/sandbox/follower.h"

#include "shared/http/loop_internal.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct world {
    struct loop *loop;
    struct output *outputs[OUTPUT_STREAMS];
    int ends[OUTPUT_STREAMS], pipes[OUTPUT_STREAMS];
    unsigned ready, moved;
};

static void open_world(struct world *world)
{
    struct error err = {0};
    *world = (struct world){.loop = loop_new(0, &err)};
    loop_open(world->loop);
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        int ends[2], memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        world->outputs[i] = output_new(memory, &err);
        world->pipes[i] = ends[0];
        world->ends[i] = ends[1];
        CHECK(world->outputs[i] != NULL);
    }
}

static void turn(const struct world *world)
{
    for (int i = 0; i < 3; i++)
        (void)h2o_evloop_run(world->loop->evloop, 5);
}

static void close_world(struct world *world)
{
    turn(world);
    loop_close(world->loop);
    loop_free(world->loop);
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        CHECK(world->outputs[i]->references == 1);
        output_release(world->outputs[i]);
        close(world->pipes[i]), close(world->ends[i]);
    }
}

static void put(struct world *world, enum output_stream stream, const char *text)
{
    CHECK(write(world->ends[stream], text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(output_pump(world->outputs[stream], world->pipes[stream], UINT64_MAX, 1 << 20) == OUTPUT_EMPTY);
}

static void on_ready(void *cookie)
{
    ((struct world *)cookie)->ready++;
}

static void on_moved(void *owner)
{
    ((struct world *)owner)->moved++;
}

static struct follower *start(struct world *world, enum follower_mode mode)
{
    uint64_t offsets[OUTPUT_STREAMS] = {0};
    struct process_view view = {.id = "one"};
    struct follower_item item;
    struct follower *follower = follower_new(mode, offsets, on_ready, world);
    follower_attach(follower, on_moved, world);
    CHECK(follower_memory(follower, OUTPUT_STDOUT) == -1); /* not started */
    CHECK(follower_peek(follower, &item, 10) == FOLLOWER_NOTHING);
    follower_tell_started(follower, world->outputs, &view);
    CHECK(follower_peek(follower, &item, 10) == FOLLOWER_STARTED);
    CHECK_TEXT(item.view->id, "one");
    return follower;
}

static void leave(struct world *world, struct follower *follower)
{
    follower_detach(follower);
    follower_close(follower);
    turn(world);
}

static void test_peek(void)
{
    struct world world;
    struct follower_item item;
    char text[8] = "";
    open_world(&world);
    struct follower *follower = start(&world, FOLLOWER_DRIVER);
    CHECK(follower_peek(follower, &item, 10) == FOLLOWER_NOTHING);
    put(&world, OUTPUT_STDOUT, "0123456789");
    CHECK(follower_peek(follower, &item, 4) == FOLLOWER_DATA);
    CHECK(item.stream == OUTPUT_STDOUT && item.offset == 0 && item.size == 4 && item.stage == FOLLOWER_LIVE);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_DATA && item.size == 10); /* again, until consumed */
    put(&world, OUTPUT_STDERR, "abc");
    CHECK(pread(follower_memory(follower, OUTPUT_STDOUT), text, 4, 3) == 4);
    CHECK_TEXT(text, "3456");
    follower_consumed(follower, OUTPUT_STDOUT, 7);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_DATA && item.stream == OUTPUT_STDERR && item.size == 3);
    follower_consumed(follower, OUTPUT_STDERR, 3);
    CHECK(follower_next(follower, &item, text, sizeof text) == FOLLOWER_DATA && item.offset == 7 && item.size == 3);
    CHECK(memcmp(text, "789", 3) == 0);
    follower_consumed(follower, OUTPUT_STDOUT, 3);
    CHECK(follower_read_to(follower, OUTPUT_STDOUT) == 0); /* on its way only: a killed front would lose it */
    follower_delivered(follower);
    CHECK(follower_read_to(follower, OUTPUT_STDOUT) == 10 && follower_read_to(follower, OUTPUT_STDERR) == 3);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_NOTHING);
    struct process_view view = {.id = "end"};
    put(&world, OUTPUT_STDERR, "!");
    follower_tell_ended(follower, &view);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_DATA && item.stage == FOLLOWER_LAST && item.offset == 3);
    follower_consumed(follower, OUTPUT_STDERR, 1);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_ENDED);
    CHECK_TEXT(item.view->id, "end");
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_NOTHING);
    leave(&world, follower);
    close_world(&world);
}

static void test_gap(void)
{
    static char block[65536];
    struct world world;
    struct follower_item item;
    open_world(&world);
    struct follower *follower = start(&world, FOLLOWER_WATCHER);
    CHECK(write(world.ends[0], block, sizeof block) == sizeof block);
    CHECK(output_pump(world.outputs[0], world.pipes[0], UINT64_MAX, 1 << 20) == OUTPUT_EMPTY);
    CHECK(output_punch(world.outputs[0], 8192) == 8192);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_GAP && item.offset == 0 && item.gap_to == 8192);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_DATA && item.offset == 8192 && item.size == 100);
    leave(&world, follower);
    close_world(&world);
}

static void test_ignore(void)
{
    struct world world;
    struct follower_item item;
    open_world(&world);
    struct follower *follower = start(&world, FOLLOWER_DRIVER);
    put(&world, OUTPUT_STDOUT, "out");
    put(&world, OUTPUT_STDERR, "err");
    follower_owner_waits(follower, true);
    follower_ignore(follower, OUTPUT_STDERR);
    turn(&world);
    CHECK(world.moved == 1); /* the owner hears that it need not wait */
    CHECK(follower_read_to(follower, OUTPUT_STDERR) == UINT64_MAX && follower_read_to(follower, OUTPUT_STDOUT) == 0);
    CHECK(!follower_skip(follower, OUTPUT_STDOUT)); /* there is no other */
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_DATA && item.stream == OUTPUT_STDOUT);
    follower_consumed(follower, OUTPUT_STDOUT, 3);
    put(&world, OUTPUT_STDERR, "more");
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_NOTHING);
    CHECK(follower_memory(follower, OUTPUT_STDERR) >= 0);
    struct process_view view = {.id = "end"};
    follower_tell_ended(follower, &view);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_ENDED); /* not kept from it by what it does not want */
    leave(&world, follower);
    close_world(&world);
}

/* Of a command whose output is gone. */
static void test_nothing_kept(void)
{
    struct world world;
    struct follower_item item;
    uint64_t offsets[OUTPUT_STREAMS] = {0};
    struct process_view view = {.id = "one", .output_gone = true};
    open_world(&world);
    struct follower *follower = follower_new(FOLLOWER_DRIVER, offsets, on_ready, &world);
    follower_tell_ended(follower, &view);
    follower_tell_started(follower, NULL, &view);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_STARTED);
    CHECK(follower_memory(follower, OUTPUT_STDOUT) == -1 && follower_memory(follower, OUTPUT_STDERR) == -1);
    CHECK(follower_peek(follower, &item, 100) == FOLLOWER_ENDED);
    turn(&world);
    CHECK(world.ready > 0);
    leave(&world, follower);
    close_world(&world);
}

int main(void)
{
    test_peek();
    test_gap();
    test_ignore();
    test_nothing_kept();
    return check_done();
}
