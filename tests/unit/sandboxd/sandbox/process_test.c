/* process_test.c - the records of commands: forgotten when, waited for whom, held for whom after a restart; wide pipes;
 * what the audit is told. */
#include "sandboxd/sandbox/init_link.h"
#include "sandboxd/sandbox/sandbox_internal.h"
#include "shared/base/clock.h"
#include "shared/http/loop_internal.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 32768 };

struct world {
    struct loop *loop;
    struct sandboxes all;
    struct sandbox sandbox;
    int ends[OUTPUT_STREAMS]; /* where the command writes */
};

static void open_world(struct world *world)
{
    struct error err = {0};
    world->loop = loop_new(0, &err);
    CHECK(world->loop != NULL);
    loop_open(world->loop);
    world->all.registry = registry_new(1);
    world->all.descriptors_max = 1000;
    world->sandbox = (struct sandbox){.all = &world->all, .loop = world->loop};
    for (int i = 0; i < FL_FDS; i++)
        world->sandbox.stats[i] = -1;
}

static void close_world(struct world *world)
{
    struct error err = {0};
    error_set(&err, ERROR_GONE, "the test is over");
    process_free_all(&world->sandbox, &err);
    loop_close(world->loop);
    loop_free(world->loop);
    registry_free(world->all.registry);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        close(world->ends[i]);
}

static struct process *begin(struct world *world, const char *id)
{
    struct fi_started started = {.pid = 2};
    int fds[FI_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1};
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        int ends[2];
        CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        fds[FI_FD_STDOUT_PIPE + i] = ends[0];
        world->ends[i] = ends[1];
        int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(memory >= 0 && fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        fds[FI_FD_STDOUT_MEMORY + i] = memory;
    }
    snprintf(started.id, sizeof started.id, "%s", id);
    process_started(&world->sandbox, &started, fds); /* of an earlier front, unless it is known here */
    struct process *process = process_find(&world->sandbox, id);
    CHECK(process != NULL);
    return process;
}

static struct process *start(struct world *world)
{
    process_new(&world->sandbox, "one")->hash_known = true;
    return begin(world, "one");
}

/* Writes and moves until the driver is so far behind that no more is taken; leaves something in the pipe. */
static void flood(const struct world *world, struct process *process)
{
    static char block[BLOCK];
    for (int i = 0; i < 2 * (int)(PROCESS_BEHIND_BYTES / BLOCK); i++) {
        if (write(world->ends[0], block, sizeof block) < 0)
            break;
        process_output_pump(&process->streams[0]);
    }
    CHECK(process->streams[0].output->length == PROCESS_BEHIND_BYTES);
}

static void on_ready(void *cookie)
{
    (void)cookie;
}

static void test_forgetting(void)
{
    struct world world = {0};
    open_world(&world);
    struct process *process = start(&world);
    CHECK(process != NULL && process->state == PROCESS_RUNNING);
    uint64_t offsets[OUTPUT_STREAMS] = {0};
    struct follower *driver = follower_new(FOLLOWER_DRIVER, offsets, on_ready, NULL);
    process_attach(process, driver);
    flood(&world, process);
    struct fi_exited exited = {.id = "one"};
    process_exited(&world.sandbox, &exited);
    CHECK(process->state == PROCESS_ENDED && !process->end_told);
    CHECK(world.sandbox.forget_timer == NULL && process->forget_at == 0);
    follower_consumed(driver, OUTPUT_STDOUT, PROCESS_BEHIND_BYTES);
    follower_delivered(driver);
    process_output_pump(&process->streams[0]);
    CHECK(process->end_told && process->forget_at > clock_boot_ns());
    CHECK(world.sandbox.forget_timer != NULL);
    follower_close(driver);
    close_world(&world);
}

/* A second driver comes while the command waits for the first: it is waited for, and heard, like that one. */
static void test_second_driver(void)
{
    struct world world = {0};
    open_world(&world);
    struct process *process = start(&world);
    uint64_t offsets[OUTPUT_STREAMS] = {0};
    struct follower *first = follower_new(FOLLOWER_DRIVER, offsets, on_ready, NULL);
    process_attach(process, first);
    flood(&world, process);
    CHECK(!process->streams[0].reading);
    struct follower *second = follower_new(FOLLOWER_DRIVER, offsets, on_ready, NULL);
    process_attach(process, second);
    follower_consumed(first, OUTPUT_STDOUT, PROCESS_BEHIND_BYTES);
    follower_delivered(first);
    (void)h2o_evloop_run(world.loop->evloop, 10);
    CHECK(!process->streams[0].reading);
    follower_consumed(second, OUTPUT_STDOUT, BLOCK);
    follower_delivered(second);
    for (int i = 0; i < 3; i++)
        (void)h2o_evloop_run(world.loop->evloop, 10);
    CHECK(process->streams[0].output->length == PROCESS_BEHIND_BYTES + BLOCK);
    follower_close(first);
    follower_close(second);
    close_world(&world);
}

/* ---- the hold after a restart ---- */

/* Writes so much, or what the stream takes; how long it is then. */
static uint64_t print(const struct world *world, struct process *process, uint64_t size)
{
    static char block[BLOCK];
    for (uint64_t all = 0; all < size; all += BLOCK) {
        (void)!write(world->ends[0], block, sizeof block);
        process_output_pump(&process->streams[0]);
    }
    return process->streams[0].output->length;
}

static struct process *adopt(struct world *world)
{
    struct process *process = begin(world, "one");
    world->sandbox.hold_until = UINT64_MAX;
    return process;
}

static struct follower *attach(struct process *process, enum follower_mode mode)
{
    uint64_t offsets[OUTPUT_STREAMS] = {0};
    struct follower *follower = follower_new(mode, offsets, on_ready, NULL);
    process_attach(process, follower);
    return follower;
}

static void test_hold(void)
{
    struct world world = {0};
    open_world(&world);
    struct process *process = adopt(&world);
    struct follower *watcher = attach(process, FOLLOWER_WATCHER);
    CHECK(print(&world, process, 2 * PROCESS_BEHIND_BYTES) == PROCESS_BEHIND_BYTES); /* waits for a driver */
    CHECK(process->streams[0].output->kept_from == 0 && !process->streams[0].reading);
    /* One of two drivers is back, and gets on; the other's place was given up, and nobody waits for it. */
    struct follower *driver = attach(process, FOLLOWER_DRIVER);
    follower_consumed(driver, OUTPUT_STDOUT, PROCESS_BEHIND_BYTES);
    follower_delivered(driver);
    process_output_resume(process);
    CHECK(process->streams[0].reading);
    CHECK(print(&world, process, PROCESS_KEPT_BYTES) > PROCESS_BEHIND_BYTES);
    CHECK(process->streams[0].output->kept_from > 0);
    follower_close(driver);
    (void)h2o_evloop_run(world.loop->evloop, 10);
    CHECK(print(&world, process, 2 * PROCESS_BEHIND_BYTES) > 2 * PROCESS_BEHIND_BYTES); /* the hold is not back */
    follower_close(watcher);
    close_world(&world);
}

/* Two drivers were there, and the quicker one comes back first: what the other has not read is kept for it. */
static void test_hold_for_two(void)
{
    struct world world = {0};
    open_world(&world);
    struct process *process = adopt(&world);
    struct follower *quick = attach(process, FOLLOWER_DRIVER);
    CHECK(print(&world, process, 3 * PROCESS_KEPT_BYTES) == 3 * PROCESS_KEPT_BYTES);
    follower_consumed(quick, OUTPUT_STDOUT, 3 * PROCESS_KEPT_BYTES);
    follower_delivered(quick);
    CHECK(print(&world, process, BLOCK) == 3 * PROCESS_KEPT_BYTES + BLOCK);
    CHECK(process->streams[0].output->kept_from == 0);
    struct follower *slow = attach(process, FOLLOWER_DRIVER);
    struct follower_item item;
    static char text[BLOCK];
    CHECK(follower_next(slow, &item, text, sizeof text) == FOLLOWER_STARTED);
    CHECK(follower_next(slow, &item, text, sizeof text) == FOLLOWER_DATA && item.offset == 0);
    follower_close(slow);
    follower_close(quick);
    close_world(&world);
}

/* A driver of stdout alone: stderr is held for those who may want it, but not longer than stdout would be. */
static void test_hold_of_the_other_stream(void)
{
    struct world world = {0};
    open_world(&world);
    struct process *process = adopt(&world);
    struct follower *driver = attach(process, FOLLOWER_DRIVER);
    follower_ignore(driver, OUTPUT_STDOUT);
    CHECK(print(&world, process, 2 * PROCESS_BEHIND_BYTES) == 2 * PROCESS_BEHIND_BYTES);
    follower_close(driver);
    close_world(&world);
}

/* ---- pipes that flood ---- */

static void test_wide_pipes(void)
{
    enum { COMMANDS = 12, MUCH = 5 << 20 };
    struct world world = {0}, each[COMMANDS];
    struct process *processes[COMMANDS];
    int readers[COMMANDS], wide = 0;
    open_world(&world);
    for (int i = 0; i < COMMANDS; i++) {
        char id[8];
        snprintf(id, sizeof id, "c%d", i);
        processes[i] = begin(&world, id);
        memcpy(each[i].ends, world.ends, sizeof world.ends);
        readers[i] = dup(loop_watch_fd(processes[i]->streams[0].pipe));
        CHECK(print(&each[i], processes[i], MUCH) == MUCH);
        wide += fcntl(readers[i], F_GETPIPE_SZ) > 1 << 16;
    }
    CHECK(wide == 8 && world.sandbox.wide_pipes == 8);
    close(each[0].ends[0]); /* over: init still has the pipe */
    process_output_pump(&processes[0]->streams[0]);
    CHECK(processes[0]->streams[0].pipe == NULL && world.sandbox.wide_pipes == 7);
    CHECK(fcntl(readers[0], F_GETPIPE_SZ) == 4096);
    CHECK(print(&each[9], processes[9], BLOCK) > MUCH); /* another's turn */
    CHECK(fcntl(readers[9], F_GETPIPE_SZ) > 1 << 16 && world.sandbox.wide_pipes == 8);
    struct error err = {0};
    process_free_all(&world.sandbox, &err);
    CHECK(world.sandbox.wide_pipes == 0 && world.sandbox.descriptors == 0);
    close(each[0].ends[1]);
    for (int i = 0; i < COMMANDS; i++) {
        close(readers[i]);
        for (int which = 0; i > 0 && i < COMMANDS - 1 && which < OUTPUT_STREAMS; which++)
            close(each[i].ends[which]);
    }
    close_world(&world); /* and the last one's */
}

/* ---- descriptors, of which all sandboxes have one budget ---- */

static void end(struct world *world, const char *id)
{
    struct process *process = begin(world, id);
    struct fi_exited exited = {0};
    snprintf(exited.id, sizeof exited.id, "%s", id);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        close(world->ends[i]);
    process_exited(&world->sandbox, &exited);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        process_output_pump(&process->streams[i]);
    CHECK(process->state == PROCESS_ENDED && process->end_told);
}

static const struct init_link_events NOBODY = {0}; /* init cannot be reached: what it is told waits */

static void end_loop(void *cookie)
{
    loop_end(cookie);
}

/* Another sandbox begins a command while this one's ended ones hold most of what there is. */
static void test_shedding(void)
{
    struct world world = {0};
    open_world(&world);
    struct sandbox other = {.all = &world.all, .loop = world.loop};
    world.all.homes[0] = &world.sandbox;
    world.all.loops[0] = world.loop;
    pthread_mutex_init(&world.all.mutex, NULL);
    world.sandbox.link = init_link_new(world.loop, AT_FDCWD, "/nowhere/init.sock", getuid(), &NOBODY, NULL);
    for (int i = 0; i < 9; i++) {
        char id[8];
        snprintf(id, sizeof id, "c%d", i);
        end(&world, id);
    }
    begin(&world, "runs");
    CHECK(process_make_room(&other) && world.all.shed_at == 0); /* there is enough */
    world.all.descriptors_max = (unsigned)world.all.descriptors + 2;
    CHECK(!process_make_room(&other) && world.all.shed_at != 0);
    loop_post(world.loop, end_loop, world.loop);
    loop_run(world.loop);
    CHECK(world.sandbox.process_count == 6 && !process_find(&world.sandbox, "c3") &&
          process_find(&world.sandbox, "c4") && process_find(&world.sandbox, "runs"));
    world.all.shed_at = 0;
    world.all.descriptors_max = 1000;
    CHECK(process_make_room(&other) && world.all.shed_at == 0);
    pthread_mutex_destroy(&world.all.mutex);
    init_link_free(world.sandbox.link);
    close_world(&world);
}

/* ---- what the audit is told ---- */

static struct {
    unsigned ends, inputs;
    int exit_code;
    char origin[32], why[ERROR_MESSAGE_BYTES];
    bool refuses;
} audit;

static void on_ended(void *context, const struct process_deed *deed)
{
    (void)context;
    audit.ends++;
    audit.exit_code = deed->end ? deed->end->exit_code : -1;
    snprintf(audit.origin, sizeof audit.origin, "%s", deed->origin ? deed->origin : "(none)");
    snprintf(audit.why, sizeof audit.why, "%s", deed->why ? deed->why->message : "");
    CHECK_TEXT(deed->process_id, "one");
}

static bool on_input(void *context, const struct process_deed *deed, struct error *err)
{
    (void)context;
    audit.inputs++;
    CHECK(strncmp(deed->origin, "eve\n", 4) == 0 || strcmp(deed->origin, "bob\nreq_9\n") == 0);
    return !audit.refuses || error_set(err, ERROR_DISK_FULL, "no room");
}

static void on_answer(void *cookie, const struct verb_answer *answer)
{
    *(struct error *)cookie = answer->error;
}

/* The answer to a write to its stdin; a command without one, so that CONFLICT says it came through. */
static enum error_kind write_input(struct world *world, const char *origin)
{
    struct error answer = {0};
    struct verb *verb = verb_new(&world->all, "sbx_a");
    memcpy(verb->process_id, "one", 4);
    verb->offset = PROCESS_OFFSET_NONE;
    verb->origin = strdup(origin);
    verb->done = on_answer;
    verb->cookie = &answer;
    process_verb_input(&world->sandbox, verb);
    for (int i = 0; i < 10 && answer.kind == ERROR_NONE; i++)
        (void)h2o_evloop_run(world->loop->evloop, 100);
    return answer.kind;
}

static void test_audit_hooks(void)
{
    struct world world = {0};
    open_world(&world);
    world.all.options.command_ended = on_ended;
    world.all.options.command_takes_input = on_input;
    struct process *process = start(&world);
    process->origin = strdup("ada");
    audit.refuses = true;
    CHECK(write_input(&world, "eve\nreq_1\n") == ERROR_DISK_FULL && audit.inputs == 1);
    audit.refuses = false;
    CHECK(write_input(&world, "eve\nreq_2\n") == ERROR_CONFLICT && audit.inputs == 2);
    CHECK(write_input(&world, "eve\nreq_3\n") == ERROR_CONFLICT && audit.inputs == 2); /* once a writer */
    CHECK(write_input(&world, "bob\nreq_9\n") == ERROR_CONFLICT && audit.inputs == 3);
    CHECK(write_input(&world, "eve\nreq_4\n") == ERROR_CONFLICT && audit.inputs == 3);
    struct fi_exited exited = {.id = "one", .wait_status = 7 << 8};
    process_exited(&world.sandbox, &exited);
    process_exited(&world.sandbox, &exited); /* init says it again */
    CHECK(audit.ends == 1 && audit.exit_code == 7);
    CHECK_TEXT(audit.origin, "ada");
    struct error gone = {0};
    error_set(&gone, ERROR_GONE, "it has ended");
    process_tell_gone(&world.sandbox, &gone);
    CHECK(audit.ends == 1); /* this one had its end */
    close_world(&world);
    CHECK(audit.ends == 1); /* a front that stops ends nothing */

    world = (struct world){0};
    open_world(&world);
    world.all.options.command_ended = on_ended;
    CHECK(start(&world) != NULL);
    process_tell_gone(&world.sandbox, &gone);
    CHECK(audit.ends == 2 && audit.exit_code == -1);
    CHECK_TEXT(audit.origin, "(none)");
    CHECK_TEXT(audit.why, "it has ended");
    close_world(&world);
}

int main(void)
{
    keys_start();
    test_forgetting();
    test_second_driver();
    test_hold();
    test_hold_for_two();
    test_hold_of_the_other_stream();
    test_wide_pipes();
    test_shedding();
    test_audit_hooks();
    return check_done();
}
