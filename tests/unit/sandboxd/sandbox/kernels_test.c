/* kernels_test.c - contexts as another front finds them, with this test for init and for the driver inside: what is
 * run, told, waited for, lost, and what a hostile process can do to it. */
#include "sandboxd/sandbox/kernels/kernels.h"

#include "sandboxd/sandbox/kernels/kernel_parser.h"
#include "sandboxd/sandbox/kernels/kernels_internal.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/http/loop_internal.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char SANDBOX[] = "sbx_a";

/* The process of a context: where it writes and reads. */
struct driver_end {
    const char *id;
    int out, in;
};

struct world {
    struct loop *loop;
    struct sandboxes all;
    struct sandbox sandbox;
    char folder[32];
    int run, listener, init;
    int killed, interrupted; /* messages to init */
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

static void turn(struct world *world, int times)
{
    struct front_init_message message;
    int fds[FI_FDS_MAX];
    size_t count = 0;
    struct error err = {0};
    for (int i = 0; i < times; i++)
        (void)h2o_evloop_run(world->loop->evloop, 10);
    while (front_init_receive(world->init, &message, FI_FROM_FRONT, fds, &count, &err) == 1) {
        world->killed += message.type == FI_KILL;
        world->interrupted += message.type == FI_SIGNAL && message.as.signal.number == SIGINT;
    }
}

static void open_world(struct world *world)
{
    struct error err = {0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *world = (struct world){.folder = "/tmp/parley-kernels-XXXXXX"};
    world->loop = loop_new(0, &err);
    loop_open(world->loop);
    pthread_mutex_init(&world->all.mutex, NULL);
    world->all.registry = registry_new(1);
    world->all.descriptors_max = 1000;
    world->all.kernel_parser = kernel_parser_new();
    world->all.loops[0] = world->loop;
    world->sandbox = (struct sandbox){.all = &world->all, .loop = world->loop, .current = true};
    memcpy(world->sandbox.facts.id, SANDBOX, sizeof SANDBOX);
    for (int i = 0; i < FL_FDS; i++)
        world->sandbox.stats[i] = -1;
    CHECK(registry_put(world->all.registry, &world->sandbox.facts, clock_wall_ms()));
    registry_set_seat(world->all.registry, SANDBOX, &world->sandbox);
    CHECK(mkdtemp(world->folder) != NULL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/init.sock", world->folder);
    world->run = open(world->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    world->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(bind(world->listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(world->listener, 1) == 0);
    world->sandbox.link = init_link_new(world->loop, world->run, "init.sock", geteuid(), &EVENTS, NULL);
    world->init = accept4(world->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(world->init >= 0);
}

static void close_world(struct world *world)
{
    char path[64];
    struct error err = {0};
    error_set(&err, ERROR_GONE, "the test is over");
    kernels_free(&world->sandbox, &err);
    process_free_all(&world->sandbox, &err);
    turn(world, 3);
    kernel_parser_finish(world->all.kernel_parser);
    turn(world, 1);
    CHECK(world->sandbox.kernels_large == 0);
    registry_set_seat(world->all.registry, SANDBOX, NULL);
    init_link_free(world->sandbox.link);
    loop_close(world->loop);
    loop_free(world->loop);
    kernel_parser_free(world->all.kernel_parser);
    registry_free(world->all.registry);
    pthread_mutex_destroy(&world->all.mutex);
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

/* As init tells of a command that an earlier front started. */
static struct driver_end begin(struct world *world, const char *id, const char *language)
{
    struct fi_started started = {.pid = 2, .has_stdin = 1};
    int fds[FI_FDS_MAX], ends[2];
    for (int i = 0; i < FI_FDS_MAX; i++)
        fds[i] = -1;
    struct driver_end driver = {.id = id};
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        fds[FI_FD_STDOUT_PIPE + i] = ends[0];
        fds[FI_FD_STDOUT_MEMORY + i] = new_memory();
        if (i == OUTPUT_STDOUT)
            driver.out = ends[1];
        else
            close(ends[1]);
    }
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    driver.in = ends[0];
    fds[FI_FD_STDIN_PIPE] = ends[1];
    fds[FI_FD_STDIN_MEMORY] = new_memory();
    snprintf(started.id, sizeof started.id, "%s", id);
    snprintf(started.title, sizeof started.title, "python3 kernel %s", language);
    process_started(&world->sandbox, &started, fds);
    CHECK(process_find(&world->sandbox, id) != NULL);
    return driver;
}

static void end(struct world *world, struct driver_end *driver, int wait_status)
{
    struct fi_exited exited = {.wait_status = wait_status};
    snprintf(exited.id, sizeof exited.id, "%s", driver->id);
    if (driver->out >= 0)
        close(driver->out);
    driver->out = -1;
    process_exited(&world->sandbox, &exited);
    turn(world, 4);
}

static void drop(struct driver_end *driver)
{
    if (driver->out >= 0)
        close(driver->out);
    close(driver->in);
}

static void say(struct world *world, const struct driver_end *driver, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct world *world, const struct driver_end *driver, const char *format, ...)
{
    char line[1024];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    line[size++] = '\n';
    CHECK(write(driver->out, line, (size_t)size) == size);
    turn(world, 4);
}

/* ---- who asks ---- */

struct reader {
    struct kernel_run *run;
    bool takes_text;
    size_t text_bytes; /* of events that came as text */
    struct text told;  /* "started stdout:hi done:ok ..." */
    bool stops;        /* takes nothing */
    struct error error;
};

static void take(void *cookie)
{
    struct reader *reader = cookie;
    struct kernel_event event;
    while (!reader->stops && kernel_run_next(reader->run, &event)) {
        const char *text = json_string_value(json_object_get(event.body, "text"));
        const char *status = json_string_value(json_object_get(event.body, "status"));
        if (event.kind == KERNEL_EVENT_FAILED)
            reader->error = event.error;
        else
            text_append_format(&reader->told, "%s%s%s ", event.type, text || status ? ":" : "",
                               text     ? text
                               : status ? status
                                        : "");
        reader->text_bytes += event.text ? strlen(event.text) : 0;
        json_decref(event.body);
        free(event.text);
    }
}

static void ask(struct world *world, struct reader *reader, const char *id, const char *code, uint64_t timeout_ms)
{
    const struct kernel_code asked = {.code = code, .size = strlen(code), .timeout_ms = timeout_ms};
    reader->run = kernel_run_new(take, reader);
    if (reader->takes_text)
        kernel_run_takes_text(reader->run);
    kernels_run(&world->all, SANDBOX, id, &asked, reader->run);
    turn(world, 4);
}

static void leave(struct reader *reader)
{
    kernel_run_close(TAKE(reader->run));
    text_done(&reader->told);
}

/* The run that the driver is sent; "" none. */
static void hear(const struct driver_end *driver, char id[static KERNEL_RUN_ID_BYTES], const char *code)
{
    char line[4096];
    ssize_t size = read(driver->in, line, sizeof line);
    json_t *request = size > 0 ? json_loadb(line, (size_t)size, 0, NULL) : NULL;
    const json_t *run = json_object_get(request, "run");
    id[0] = 0;
    if (run) {
        CHECK(text_copy(id, KERNEL_RUN_ID_BYTES, json_string_value(json_object_get(run, "id"))));
        CHECK_TEXT(json_string_value(json_object_get(run, "code")), code);
    }
    json_decref(request);
}

struct answer {
    struct kernel_view view;
    size_t count;
    struct error error;
};

static void on_answer(void *cookie, const struct verb_answer *answer)
{
    struct answer *to = cookie;
    to->error = answer->error;
    to->count = answer->kernel_count;
    if (answer->kernel_count > 0)
        to->view = answer->kernels[0];
}

static struct answer look(struct world *world, const char *id)
{
    struct answer answer = {0};
    struct kernel_call call = {.sandbox_id = SANDBOX, .kernel_id = id, .done = on_answer, .cookie = &answer};
    kernels_list(&world->all, &call);
    turn(world, 4);
    return answer;
}

/* ---- tests ---- */

static void test_one_is_found_and_goes_on(void)
{
    struct world world;
    struct reader reader = {0};
    char run[KERNEL_RUN_ID_BYTES];
    open_world(&world);
    struct driver_end driver = begin(&world, "kernel.my.ctx.2", "python");
    kernels_adopt(&world.sandbox);
    CHECK(look(&world, "my.ctx").view.state == KERNEL_STARTING);
    say(&world, &driver, "{\"ready\":{\"version\":\"3.11\",\"implementation\":\"cpython\"}}");
    struct answer found = look(&world, "my.ctx");
    CHECK(found.view.state == KERNEL_IDLE);
    CHECK_TEXT(found.view.language, "python");
    CHECK_TEXT(found.view.process_id, "kernel.my.ctx.2");
    ask(&world, &reader, "my.ctx", "print(\"hi\")", 0);
    CHECK_TEXT(reader.told.data, "accepted ");
    hear(&driver, run, "print(\"hi\")");
    CHECK(run[0] && look(&world, "my.ctx").view.state == KERNEL_BUSY);
    say(&world, &driver, "{\"started\":{\"run\":\"%s\",\"count\":5}}", run);
    say(&world, &driver,
        "{\"stdout\":{\"run\":\"%s\",\"text\":\"hi\"}}\n{\"stdout\":{\"run\":\"other\",\"text\":\"no\"}}", run);
    say(&world, &driver, "{\"done\":{\"run\":\"%s\",\"status\":\"ok\",\"count\":5}}", run);
    CHECK_TEXT(reader.told.data, "accepted started stdout:hi done:ok ");
    CHECK(look(&world, "my.ctx").view.state == KERNEL_IDLE && look(&world, "my.ctx").view.execution_count == 5);
    CHECK(look(&world, "your.ctx").error.kind == ERROR_NOT_FOUND && look(&world, NULL).count == 1);
    leave(&reader);
    close_world(&world);
    drop(&driver);
}

static void test_runs_wait_for_each_other(void)
{
    struct world world;
    struct reader readers[KERNEL_WAITING_MAX + 2] = {{0}};
    char run[KERNEL_RUN_ID_BYTES];
    open_world(&world);
    struct driver_end driver = begin(&world, "kernel.a.1", "python");
    kernels_adopt(&world.sandbox);
    say(&world, &driver, "{\"ready\":{}}");
    for (int i = 0; i < KERNEL_WAITING_MAX + 2; i++)
        ask(&world, &readers[i], "a", i == 0 ? "first" : "next", 0);
    CHECK(readers[KERNEL_WAITING_MAX + 1].error.kind == ERROR_RATE_LIMITED);
    hear(&driver, run, "first"); /* and nothing behind it */
    say(&world, &driver, "{\"started\":{\"run\":\"%s\",\"count\":1}}", run);
    leave(&readers[0]); /* its run goes on */
    CHECK(look(&world, "a").view.waiting == KERNEL_WAITING_MAX);
    say(&world, &driver, "{\"done\":{\"run\":\"%s\",\"status\":\"ok\",\"count\":1}}", run);
    hear(&driver, run, "next");
    say(&world, &driver, "{\"started\":{\"run\":\"%s\",\"count\":2}}", run);
    CHECK_TEXT(readers[1].told.data, "accepted started ");
    CHECK_TEXT(readers[2].told.data, "accepted ");
    end(&world, &driver, SIGKILL);
    CHECK_TEXT(readers[1].told.data, "accepted started done:lost ");
    CHECK_TEXT(readers[2].told.data, "accepted done:lost ");
    CHECK(look(&world, "a").view.state == KERNEL_LOST);
    struct reader late = {0};
    ask(&world, &late, "a", "x", 0);
    CHECK(late.error.kind == ERROR_GONE && strstr(late.error.message, "signal 9"));
    leave(&late);
    for (int i = 1; i < KERNEL_WAITING_MAX + 2; i++)
        leave(&readers[i]);
    close_world(&world);
    drop(&driver);
}

/* Until the reader reads on, little is taken from the process; another context is not kept waiting. */
static void test_a_slow_reader(void)
{
    struct world world;
    struct reader slow = {0}, other = {0};
    char run[KERNEL_RUN_ID_BYTES], run_of_other[KERNEL_RUN_ID_BYTES];
    open_world(&world);
    struct driver_end driver = begin(&world, "kernel.a.1", "python"), second = begin(&world, "kernel.b.1", "python");
    kernels_adopt(&world.sandbox);
    say(&world, &driver, "{\"ready\":{}}");
    say(&world, &second, "{\"ready\":{}}");
    ask(&world, &slow, "a", "flood", 0);
    ask(&world, &other, "b", "fast", 0);
    hear(&driver, run, "flood");
    hear(&second, run_of_other, "fast");
    say(&world, &driver, "{\"started\":{\"run\":\"%s\",\"count\":1}}", run);
    slow.stops = true;
    char line[4096], text[3800];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    int size = snprintf(line, sizeof line, "{\"stdout\":{\"run\":\"%s\",\"text\":\"%s\"}}\n", run, text);
    size_t written = 0;
    for (int stuck = 0; stuck < 20;) {
        ssize_t part = write(driver.out, line, (size_t)size); /* a pipe takes it whole or not */
        stuck = part == size ? 0 : stuck + 1;
        written += part == size ? (size_t)size : 0;
        turn(&world, part == size ? 0 : 1);
        CHECK(written < 64 << 20);
    }
    CHECK(written > PROCESS_BEHIND_BYTES && written < 2 * PROCESS_BEHIND_BYTES);
    say(&world, &second, "{\"started\":{\"run\":\"%s\",\"count\":1}}", run_of_other);
    say(&world, &second, "{\"done\":{\"run\":\"%s\",\"status\":\"ok\",\"count\":1}}", run_of_other);
    CHECK_TEXT(other.told.data, "accepted started done:ok ");
    leave(&slow); /* then it goes on, and nobody waits */
    turn(&world, 400);
    CHECK(write(driver.out, line, (size_t)size) == size);
    say(&world, &driver, "{\"done\":{\"run\":\"%s\",\"status\":\"ok\",\"count\":1}}", run);
    turn(&world, 20);
    CHECK(look(&world, "a").view.state == KERNEL_IDLE);
    leave(&other);
    close_world(&world);
    drop(&driver);
    drop(&second);
}

/* What it runs was asked for from the front before: seen as busy, and its end. */
static void test_a_run_of_an_earlier_front(void)
{
    struct world world;
    struct reader reader = {0};
    char run[KERNEL_RUN_ID_BYTES];
    open_world(&world);
    struct driver_end driver = begin(&world, "kernel.a.1", "python");
    kernels_adopt(&world.sandbox);
    say(&world, &driver, "{\"ready\":{}}\n{\"started\":{\"run\":\"run_old-0\",\"count\":3}}");
    CHECK(look(&world, "a").view.state == KERNEL_BUSY);
    ask(&world, &reader, "a", "x", 0);
    hear(&driver, run, "x"); /* the driver keeps it until it has done */
    say(&world, &driver, "{\"stdout\":{\"run\":\"run_old-0\",\"text\":\"not mine\"}}");
    say(&world, &driver, "{\"done\":{\"run\":\"run_old-0\",\"status\":\"ok\",\"count\":3}}");
    say(&world, &driver, "{\"started\":{\"run\":\"%s\",\"count\":4}}\n{\"done\":{\"run\":\"%s\",\"status\":\"ok\"}}",
        run, run);
    CHECK_TEXT(reader.told.data, "accepted started done:ok ");
    CHECK(look(&world, "a").view.state == KERNEL_IDLE && world.interrupted == 0);
    /* Its time goes with its name. */
    say(&world, &driver, "{\"started\":{\"run\":\"run_old-1\",\"count\":5}}");
    turn(&world, 5);
    CHECK(world.interrupted == 1 && look(&world, "a").view.state == KERNEL_BUSY);
    say(&world, &driver, "{\"done\":{\"run\":\"run_old-1\",\"status\":\"interrupted\"}}");
    say(&world, &driver, "{\"stderr\":{\"run\":\"run_old-1\",\"text\":\"a thread that it left\"}}");
    CHECK(look(&world, "a").view.state == KERNEL_IDLE && world.killed == 0);
    leave(&reader);
    close_world(&world);
    drop(&driver);
}

static void test_time(void)
{
    struct world world;
    struct reader reader = {0};
    char run[KERNEL_RUN_ID_BYTES];
    open_world(&world);
    struct driver_end driver = begin(&world, "kernel.a.1", "python");
    kernels_adopt(&world.sandbox);
    say(&world, &driver, "{\"ready\":{}}");
    ask(&world, &reader, "a", "x", 50);
    hear(&driver, run, "x");
    say(&world, &driver, "{\"started\":{\"run\":\"%s\",\"count\":1}}", run);
    for (int i = 0; i < 300 && world.interrupted == 0; i++)
        turn(&world, 1);
    say(&world, &driver, "{\"done\":{\"run\":\"%s\",\"status\":\"interrupted\"}}", run);
    CHECK_TEXT(reader.told.data, "accepted started done:timeout ");
    leave(&reader);
    ask(&world, &reader, "a", "y", 50);
    hear(&driver, run, "y");
    for (int i = 0; i < 1000 && !strstr(reader.told.data, "done"); i++)
        turn(&world, 1);
    turn(&world, 4);
    CHECK(world.interrupted == 2 && world.killed == 1);
    CHECK_TEXT(reader.told.data, "accepted done:lost ");
    end(&world, &driver, SIGKILL);
    CHECK(look(&world, "a").view.state == KERNEL_LOST && strstr(look(&world, "a").view.reason, "timeout"));
    leave(&reader);
    close_world(&world);
    drop(&driver);
}

static void check_lost_by(const char *bytes, size_t size)
{
    struct world world;
    struct reader reader = {0};
    char run[KERNEL_RUN_ID_BYTES];
    open_world(&world);
    struct driver_end driver = begin(&world, "kernel.a.1", "python");
    kernels_adopt(&world.sandbox);
    say(&world, &driver, "{\"ready\":{}}");
    ask(&world, &reader, "a", "x", 0);
    hear(&driver, run, "x");
    for (size_t at = 0; at < size;) {
        ssize_t part = write(driver.out, bytes + at, size - at < 32768 ? size - at : 32768);
        at += part > 0 ? (size_t)part : 0;
        turn(&world, 1);
        if (world.killed > 0)
            break;
    }
    for (int i = 0; i < 500 && !strstr(reader.told.data, "done"); i++)
        turn(&world, 1);
    CHECK(world.killed == 1);
    CHECK_TEXT(reader.told.data, "accepted done:lost ");
    end(&world, &driver, SIGKILL);
    CHECK(strstr(look(&world, "a").view.reason, "no frame"));
    leave(&reader);
    close_world(&world);
    drop(&driver);
}

/* Large frames are read elsewhere, and stand where they stood all the same. */
static void test_large_frames(bool takes_text)
{
    struct world world;
    struct reader reader = {.takes_text = takes_text};
    char run[KERNEL_RUN_ID_BYTES];
    enum { SIZE = 3 << 20 };
    open_world(&world);
    struct driver_end driver = begin(&world, "kernel.a.1", "python");
    kernels_adopt(&world.sandbox);
    say(&world, &driver, "{\"ready\":{}}");
    ask(&world, &reader, "a", "x", 0);
    hear(&driver, run, "x");
    say(&world, &driver, "{\"started\":{\"run\":\"%s\",\"count\":1}}", run);
    AUTO_FREE char *data = memory_new(SIZE + 1);
    memset(data, 'A', SIZE);
    AUTO_FREE char *lines = memory_printf("{\"display\":{\"run\":\"%s\",\"data\":{\"a\":\"%s\"}}}\n"
                                          "{\"stdout\":{\"run\":\"%s\",\"text\":\"behind\"}}\n"
                                          "{\"done\":{\"run\":\"%s\",\"status\":\"ok\",\"count\":1}}\n",
                                          run, data, run, run);
    for (size_t at = 0, size = strlen(lines); at < size;) {
        ssize_t part = write(driver.out, lines + at, size - at < 32768 ? size - at : 32768);
        at += part > 0 ? (size_t)part : 0;
        turn(&world, 1);
    }
    for (int i = 0; i < 1000 && !strstr(reader.told.data, "done"); i++)
        turn(&world, 1);
    CHECK_TEXT(reader.told.data, "accepted started display stdout:behind done:ok ");
    CHECK(takes_text ? reader.text_bytes > SIZE : reader.text_bytes == 0);
    leave(&reader);
    /* One that is being read when all ends. */
    ask(&world, &reader, "a", "y", 0);
    for (size_t at = 0, size = strlen(lines); at < size && at < SIZE + 1000;) {
        ssize_t part = write(driver.out, lines + at, size - at < 32768 ? size - at : 32768);
        at += part > 0 ? (size_t)part : 0;
        (void)h2o_evloop_run(world.loop->evloop, 0);
    }
    leave(&reader);
    close_world(&world);
    drop(&driver);
}

static void test_what_is_no_frame(void)
{
    check_lost_by("garbage\n", 8);
    enum { LONG = KERNEL_FRAME_MAX + 65536 };
    AUTO_FREE char *line = memory_new(LONG);
    memset(line, 'x', LONG);
    check_lost_by(line, LONG);
}

/* Only a context's own front writes to it. */
static void test_its_stdin_is_nobody_elses(void)
{
    struct world world;
    struct answer answer = {0};
    open_world(&world);
    struct driver_end driver = begin(&world, "kernel.a.1", "python");
    kernels_adopt(&world.sandbox);
    struct process_call call = {
        .sandbox_id = SANDBOX, .process_id = "kernel.a.1", .done = on_answer, .cookie = &answer};
    process_write(&world.all, &call, "{}\n", 3, PROCESS_OFFSET_NONE, false);
    turn(&world, 4);
    char byte;
    CHECK(answer.error.kind == ERROR_CONFLICT && read(driver.in, &byte, 1) < 0);
    close_world(&world);
    drop(&driver);
}

static void test_names(void)
{
    CHECK(kernel_is_id("a.b_c-D") && !kernel_is_id("") && !kernel_is_id("a/b") && !kernel_is_id("a b"));
    CHECK(kernel_is_id("012345678901234567890123456789012345678901234567") &&
          !kernel_is_id("0123456789012345678901234567890123456789012345678"));
    struct world world;
    open_world(&world);
    struct driver_end strangers[] = {begin(&world, "kernel.", "python"),      begin(&world, "kernel.x", "python"),
                                     begin(&world, "kernel.y.", "python"),    begin(&world, "kernels.z.1", "python"),
                                     begin(&world, "kernel.old.1", "python"), begin(&world, "kernel.old.2", "no such")};
    kernels_adopt(&world.sandbox);
    CHECK(look(&world, NULL).count == 1); /* the last start of "old" */
    CHECK_TEXT(look(&world, "old").view.process_id, "kernel.old.2");
    CHECK_TEXT(look(&world, "old").view.language, "");
    close_world(&world);
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        drop(&strangers[i]);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    test_one_is_found_and_goes_on();
    test_runs_wait_for_each_other();
    test_a_slow_reader();
    test_a_run_of_an_earlier_front();
    test_time();
    test_large_frames(false);
    test_large_frames(true);
    test_what_is_no_frame();
    test_its_stdin_is_nobody_elses();
    test_names();
    return check_done();
}
