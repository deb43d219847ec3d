/* process_test.c - a command that has ended is not forgotten while a driver that is behind has yet to be told. */
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

static struct process *start(struct world *world)
{
    struct fi_started started = {.id = "one", .pid = 2};
    int fds[FI_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1};
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        int ends[2];
        CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        fds[FI_FD_STDOUT_PIPE + i] = ends[0];
        world->ends[i] = ends[1];
        fds[FI_FD_STDOUT_MEMORY + i] = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    CHECK(process_new(&world->sandbox, "one") != NULL);
    process_started(&world->sandbox, &started, fds);
    return process_find(&world->sandbox, "one");
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
    process_output_pump(&process->streams[0]);
    CHECK(process->end_told && process->forget_at > clock_boot_ns());
    CHECK(world.sandbox.forget_timer != NULL);
    follower_close(driver);
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
    CHECK_TEXT(deed->origin, "eve");
    return !audit.refuses || error_set(err, ERROR_DISK_FULL, "no room");
}

static void on_answer(void *cookie, const struct verb_answer *answer)
{
    *(struct error *)cookie = answer->error;
}

/* The answer to a write to its stdin; a command without one, so that CONFLICT says it came through. */
static enum error_kind write_input(struct world *world)
{
    struct error answer = {0};
    struct verb *verb = verb_new(&world->all, "sbx_a");
    memcpy(verb->process_id, "one", 4);
    verb->origin = strdup("eve");
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
    CHECK(write_input(&world) == ERROR_DISK_FULL && audit.inputs == 1);
    audit.refuses = false;
    CHECK(write_input(&world) == ERROR_CONFLICT && audit.inputs == 2);
    CHECK(write_input(&world) == ERROR_CONFLICT && audit.inputs == 2); /* once a command */
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
    test_audit_hooks();
    return check_done();
}
