/* files_test.c - calls on files against a helper that the test plays: what it may say, what it may hand over, how many
 * there may be, and who gets a helper again. */
#include "sandboxd/sandbox/files.h"
#include "sandboxd/sandbox/files_pool.h"
#include "shared/base/fd.h"
#include "shared/http/loop_internal.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct world {
    struct loop *loop;
    struct sandboxes all;
    struct sandbox sandbox;
    char folder[32];
    int run_folder, listener, init;
};

static void on_message(void *cookie, const struct front_init_message *message, int *fds, size_t count)
{
    (void)cookie, (void)message, (void)fds, (void)count;
}

static void on_lost(void *cookie)
{
    (void)cookie;
}

static void turn(struct world *world)
{
    for (int i = 0; i < 6; i++)
        (void)h2o_evloop_run(world->loop->evloop, 2);
}

static void listen_as_init(struct world *world)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(world->folder, "/tmp/files-test-XXXXXX");
    CHECK(mkdtemp(world->folder) != NULL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/init.sock", world->folder);
    world->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(bind(world->listener, (const struct sockaddr *)&address, sizeof address) == 0 &&
          listen(world->listener, 1) == 0);
    world->run_folder = open(world->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void open_world(struct world *world)
{
    static const struct init_link_events LINK = {.message = on_message, .lost = on_lost};
    struct error err = {0};
    *world = (struct world){0};
    world->loop = loop_new(0, &err);
    loop_open(world->loop);
    struct sandbox *sandbox = &world->sandbox;
    pthread_mutex_init(&world->all.mutex, NULL);
    world->all.registry = registry_new(1);
    world->all.loops[0] = world->loop;
    world->all.descriptors_max = 1000;
    *sandbox = (struct sandbox){.all = &world->all, .loop = world->loop, .current = true};
    strcpy(sandbox->facts.id, "sbx_a");
    for (int i = 0; i < FL_FDS; i++)
        sandbox->stats[i] = -1;
    CHECK(registry_put(world->all.registry, &sandbox->facts, 1));
    registry_set_seat(world->all.registry, "sbx_a", sandbox);
    world->all.homes[0] = sandbox;
    listen_as_init(world);
    sandbox->link = init_link_new(world->loop, world->run_folder, "init.sock", getuid(), &LINK, sandbox);
    world->init = accept4(world->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(world->init >= 0);
}

static void close_world(struct world *world)
{
    char path[64];
    turn(world);
    files_pool_free(&world->sandbox);
    CHECK(world->sandbox.descriptors == 0 && world->all.descriptors == 0);
    init_link_free(world->sandbox.link);
    loop_close(world->loop);
    loop_free(world->loop);
    registry_free(world->all.registry);
    close(world->init);
    close(world->listener);
    close(world->run_folder);
    snprintf(path, sizeof path, "%s/init.sock", world->folder);
    unlink(path);
    rmdir(world->folder);
}

/* The helper's end that init was given; -1 when it was given none. */
static int take_helper(struct world *world)
{
    struct front_init_message message;
    struct error err = {0};
    int fds[FD_MESSAGE_FDS];
    size_t count = 0;
    turn(world);
    if (front_init_receive(world->init, &message, FI_FROM_FRONT, fds, &count, &err) != 1)
        return -1;
    CHECK(message.type == FI_HELPER && count == 1 && message.as.helper.kind == FRONT_FILES_HELPER_KIND);
    return fds[0];
}

/* ---- what a caller hears ---- */

struct heard {
    struct files_call *call;
    unsigned records, overs, entries;
    int descriptor;
    bool pauses, cancels;
    struct files_version version;
    uint64_t count;
    struct error error;
};

static void on_record(void *cookie, const struct files_record *record, int descriptor)
{
    struct heard *heard = cookie;
    heard->records++;
    heard->entries += record->kind == FILES_ENTRY;
    if (descriptor >= 0) {
        CHECK(heard->descriptor < 0);
        heard->descriptor = descriptor;
        heard->version = record->version;
    }
    if (heard->pauses)
        files_pause(heard->call, true);
    if (heard->cancels)
        files_cancel(heard->call);
}

static void on_over(void *cookie, const struct files_record *done, const struct error *err)
{
    struct heard *heard = cookie;
    heard->overs++;
    heard->count = done ? done->count : 0;
    CHECK(!done == (err != NULL));
    if (err)
        heard->error = *err;
}

static const struct files_events EVENTS = {.record = on_record, .over = on_over};

static struct heard start(struct world *world, struct heard *heard, enum files_operation operation, int descriptor)
{
    struct files_request request = {.operation = operation, .depth = 1, .root = "", .path = "/a"};
    *heard = (struct heard){.descriptor = -1};
    if (operation != FILES_LIST)
        request.depth = 0;
    heard->call = files_start(&world->all, "sbx_a", &request, descriptor, &EVENTS, heard);
    return *heard;
}

/* ---- what the helper does ---- */

static void hear_request(int helper, enum files_operation operation, int *descriptor)
{
    struct files_request request = {0};
    struct error err = {0};
    void *memory = NULL;
    int got = -1;
    CHECK(front_files_request_receive(helper, &request, &memory, &got, &err) == 1);
    CHECK(request.operation == operation);
    if (descriptor)
        *descriptor = got;
    else
        CHECK(got < 0);
    free(memory);
}

static void say(int helper, const struct files_record *records, size_t count, int descriptor)
{
    struct files_packet *packet = calloc(1, sizeof *packet);
    struct error err = {0};
    for (size_t i = 0; i < count; i++)
        CHECK(front_files_packet_add(packet, &records[i]));
    CHECK(fd_send_message(helper, packet->data, packet->size, &descriptor, descriptor >= 0, &err));
    free(packet);
}

static const struct files_record ENTRY = {
    .kind = FILES_ENTRY, .type = FILES_REGULAR, .mode = 0644, .links = 1, .version = {1, 2, 3, 4}, .path = {"b", 1}};
static const struct files_record DONE = {.kind = FILES_DONE, .count = 7};

static bool is_closed(int helper)
{
    char byte;
    return recv(helper, &byte, 1, MSG_DONTWAIT) == 0;
}

/* ---- tests ---- */

static void test_calls_at_once_have_a_helper_each(void)
{
    struct world world;
    struct heard heard;
    open_world(&world);
    start(&world, &heard, FILES_LIST, -1);
    int helper = take_helper(&world);
    hear_request(helper, FILES_LIST, NULL);
    say(helper, (struct files_record[]){ENTRY, ENTRY}, 2, -1);
    turn(&world);
    CHECK(heard.entries == 2 && heard.overs == 0);
    say(helper, (struct files_record[]){ENTRY, DONE}, 2, -1);
    turn(&world);
    CHECK(heard.entries == 3 && heard.overs == 1 && heard.count == 7 && heard.error.kind == ERROR_NONE);
    struct heard others[4];
    int helpers[4] = {helper, -1, -1, -1};
    for (int i = 0; i < 4; i++) {
        start(&world, &others[i], FILES_LIST, -1);
        int made = take_helper(&world);
        CHECK((made < 0) == (i == 0));
        if (i > 0)
            helpers[i] = made;
    }
    for (int i = 0; i < 4; i++) {
        say(helpers[i], &DONE, 1, -1);
        turn(&world);
        hear_request(helpers[i], FILES_LIST, NULL);
        CHECK(others[i].overs == 1 && is_closed(helpers[i]) == (i >= FILES_IDLE_MAX)); /* so many are kept */
    }
    for (int i = 0; i < 4; i++)
        close(helpers[i]);
    close_world(&world);
}

static void test_a_watch_uses_its_helper_up(void)
{
    struct world world;
    struct heard heard;
    open_world(&world);
    start(&world, &heard, FILES_WATCH, -1);
    int helper = take_helper(&world);
    hear_request(helper, FILES_WATCH, NULL);
    say(helper, (struct files_record[]){ENTRY, DONE}, 2, -1);
    turn(&world);
    CHECK(heard.overs == 1 && is_closed(helper));
    close(helper);
    close_world(&world);
}

static void test_short_calls_share_a_helper(void)
{
    struct world world;
    struct heard heard;
    open_world(&world);
    start(&world, &heard, FILES_STAT, -1);
    int helper = take_helper(&world);
    for (int i = 0; i < 3; i++) {
        hear_request(helper, FILES_STAT, NULL);
        say(helper, (struct files_record[]){ENTRY, DONE}, 2, -1);
        turn(&world);
        CHECK(heard.overs == 1 && heard.entries == 1);
        start(&world, &heard, FILES_STAT, -1);
        CHECK(take_helper(&world) < 0);
    }
    /* An error is an answer too; what comes behind the last word is not. */
    hear_request(helper, FILES_STAT, NULL);
    struct files_record failed = {.kind = FILES_ERROR};
    error_set(&failed.error, ERROR_NOT_FOUND, "no\tsuch thing");
    say(helper, &failed, 1, -1);
    turn(&world);
    CHECK(heard.error.kind == ERROR_NOT_FOUND);
    CHECK_TEXT(heard.error.message, "no?such thing");
    start(&world, &heard, FILES_STAT, -1);
    CHECK(take_helper(&world) < 0);
    say(helper, (struct files_record[]){DONE, ENTRY}, 2, -1);
    turn(&world);
    CHECK(heard.overs == 1 && heard.entries == 0);
    hear_request(helper, FILES_STAT, NULL);
    CHECK(is_closed(helper));
    close(helper);
    close_world(&world);
}

static void test_an_idle_helper_that_ends_is_not_lent(void)
{
    struct world world;
    struct heard heard;
    open_world(&world);
    start(&world, &heard, FILES_STAT, -1);
    int helper = take_helper(&world);
    say(helper, (struct files_record[]){ENTRY, DONE}, 2, -1);
    turn(&world);
    CHECK(heard.overs == 1 && world.sandbox.descriptors == 1);
    close(helper);
    turn(&world);
    CHECK(world.sandbox.descriptors == 0);
    start(&world, &heard, FILES_STAT, -1);
    helper = take_helper(&world);
    CHECK(helper >= 0);
    close(helper);
    turn(&world);
    CHECK(heard.overs == 1 && heard.error.kind == ERROR_NO_CAPACITY && error_retryable(heard.error.kind));
    /* The sandbox goes, and with it the helper. */
    start(&world, &heard, FILES_STAT, -1);
    helper = take_helper(&world);
    registry_ending(world.all.registry, "sbx_a", "deleted");
    close(helper);
    turn(&world);
    CHECK(heard.error.kind == ERROR_GONE);
    close_world(&world);
}

static void test_what_breaks_the_rules_ends_it(void)
{
    static const enum error_kind FOREIGN[] = {ERROR_TOKEN_REVOKED, ERROR_UNAUTHENTICATED, ERROR_GONE};
    struct world world;
    struct heard heard;
    struct error err = {0};
    open_world(&world);
    start(&world, &heard, FILES_LIST, -1);
    int helper = take_helper(&world);
    CHECK(fd_send_message(helper, "nonsense", 8, NULL, 0, &err));
    turn(&world);
    CHECK(heard.overs == 1 && heard.error.kind == ERROR_INTERNAL);
    hear_request(helper, FILES_LIST, NULL);
    CHECK(is_closed(helper));
    close(helper);
    for (size_t i = 0; i < sizeof FOREIGN / sizeof *FOREIGN; i++) {
        struct files_record failed = {.kind = FILES_ERROR};
        start(&world, &heard, FILES_LIST, -1);
        helper = take_helper(&world);
        error_set(&failed.error, FOREIGN[i], "ha");
        say(helper, &failed, 1, -1);
        turn(&world);
        CHECK(heard.error.kind == ERROR_INTERNAL);
        close(helper);
    }
    close_world(&world);
}

/* A memfd opened again, for reading alone. */
static int open_good(void)
{
    char path[64];
    int memory = memfd_create("test", MFD_CLOEXEC);
    CHECK(write(memory, "hello", 5) == 5);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    int good = open(path, O_RDONLY | O_CLOEXEC);
    close(memory);
    return good;
}

static struct heard hand_over(struct world *world, int descriptor)
{
    struct heard heard;
    start(world, &heard, FILES_OPEN, -1);
    int helper = take_helper(world);
    if (helper >= 0)
        say(helper, (struct files_record[]){ENTRY, DONE}, 2, descriptor);
    CHECK(helper >= 0);
    turn(world);
    close(descriptor);
    close(helper);
    turn(world);
    CHECK(heard.overs == 1);
    CHECK(world->sandbox.descriptors == (heard.descriptor >= 0)); /* it counts while it is open */
    if (heard.descriptor >= 0) {
        close(heard.descriptor);
        files_file_closed(&world->all, "sbx_a");
        turn(world);
    }
    CHECK(world->sandbox.descriptors == 0 && world->all.descriptors == 0);
    return heard;
}

static void test_descriptors_are_looked_at(void)
{
    struct world world;
    int pipe_ends[2];
    open_world(&world);
    struct heard heard = hand_over(&world, open_good());
    CHECK(heard.error.kind == ERROR_NONE && heard.descriptor >= 0);
    CHECK(heard.version.size == 5 && heard.version.inode != 1); /* as it is, not as it was said */
    CHECK(pipe2(pipe_ends, O_CLOEXEC) == 0);
    CHECK(hand_over(&world, pipe_ends[0]).error.kind == ERROR_INTERNAL);
    close(pipe_ends[1]);
    CHECK(hand_over(&world, memfd_create("rw", MFD_CLOEXEC)).error.kind == ERROR_INTERNAL);
    CHECK(hand_over(&world, open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)).error.kind == ERROR_INTERNAL);
    CHECK(hand_over(&world, open("/proc/self/status", O_RDONLY | O_CLOEXEC)).error.kind == ERROR_INTERNAL);
    CHECK(hand_over(&world, open("/proc/self/exe", O_PATH | O_CLOEXEC)).error.kind == ERROR_INTERNAL);
    CHECK(hand_over(&world, open("/dev/null", O_RDONLY | O_CLOEXEC)).error.kind == ERROR_INTERNAL);
    close_world(&world);
}

/* Downloads that their clients do not read must not use up the descriptors that all sandboxes share. */
static void test_files_left_open_are_bounded(void)
{
    struct world world;
    struct heard heard[3];
    open_world(&world);
    world.all.descriptors_max = 4 * (FILES_CALL_DESCRIPTORS + 2); /* of which one sandbox gets a quarter */
    for (int i = 0; i < 3; i++) {
        start(&world, &heard[i], FILES_OPEN, -1);
        int helper = take_helper(&world), good = open_good();
        say(helper, (struct files_record[]){ENTRY, DONE}, 2, good);
        close(good);
        turn(&world);
        CHECK(heard[i].overs == 1 && heard[i].error.kind == ERROR_NONE && heard[i].descriptor >= 0);
        close(helper);
        turn(&world);
        CHECK(world.sandbox.descriptors == i + 1);
    }
    struct heard late;
    start(&world, &late, FILES_OPEN, -1);
    turn(&world);
    CHECK(late.overs == 1 && late.error.kind == ERROR_NO_CAPACITY);
    for (int i = 0; i < 3; i++) {
        close(heard[i].descriptor);
        files_file_closed(&world.all, "sbx_a");
    }
    close_world(&world);
}

/* Nobody would be told of them: so they could come without end, and keep the loop busy. */
static void test_records_nobody_awaits_break_the_rules(void)
{
    static const struct files_record DATA = {.kind = FILES_DATA, .text = {"x", 1}};
    const struct {
        enum files_operation operation;
        const struct files_record *first, *second;
        unsigned told;
    } WRONG[] = {{FILES_LIST, &DATA, &DONE, 0},
                 {FILES_LIST, &ENTRY, &DATA, 1},
                 {FILES_STAT, &ENTRY, &ENTRY, 1},
                 {FILES_WATCH, &ENTRY, &ENTRY, 1},
                 {FILES_OPEN, &DATA, &DONE, 0}};
    struct world world;
    struct heard heard;
    open_world(&world);
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        start(&world, &heard, WRONG[i].operation, -1);
        int helper = take_helper(&world);
        say(helper, (struct files_record[]){*WRONG[i].first, *WRONG[i].second}, 2, -1);
        turn(&world);
        CHECK(heard.overs == 1 && heard.error.kind == ERROR_INTERNAL && heard.records == WRONG[i].told);
        hear_request(helper, WRONG[i].operation, NULL);
        CHECK(is_closed(helper));
        close(helper);
    }
    close_world(&world);
}

/* The memory that a pattern took would stay with it. */
static void test_a_grep_uses_its_helper_up(void)
{
    struct world world;
    struct heard heard;
    struct files_request request = {.operation = FILES_GREP, .root = "", .path = "/a", .pattern = "x"};
    open_world(&world);
    heard = (struct heard){.descriptor = -1};
    heard.call = files_start(&world.all, "sbx_a", &request, -1, &EVENTS, &heard);
    int helper = take_helper(&world);
    hear_request(helper, FILES_GREP, NULL);
    say(helper, &DONE, 1, -1);
    turn(&world);
    CHECK(heard.overs == 1 && heard.error.kind == ERROR_NONE && is_closed(helper));
    close(helper);
    close_world(&world);
}

static void test_a_second_file_breaks_the_rules(void)
{
    struct world world;
    struct heard heard;
    open_world(&world);
    start(&world, &heard, FILES_OPEN, -1);
    int helper = take_helper(&world), good = open_good();
    say(helper, &ENTRY, 1, good);
    say(helper, &ENTRY, 1, good);
    turn(&world);
    CHECK(heard.overs == 1 && heard.error.kind == ERROR_INTERNAL && heard.entries == 1);
    close(good);
    close(helper);
    close(heard.descriptor);
    files_file_closed(&world.all, "sbx_a");
    close_world(&world);
}

static void test_a_descriptor_nobody_asked_for_is_closed(void)
{
    struct world world;
    struct heard heard;
    int ends[2];
    open_world(&world);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    start(&world, &heard, FILES_STAT, -1);
    int helper = take_helper(&world);
    say(helper, (struct files_record[]){ENTRY, DONE}, 2, ends[1]);
    close(ends[1]);
    turn(&world);
    char byte;
    CHECK(heard.overs == 1 && heard.descriptor < 0 && read(ends[0], &byte, 1) == 0);
    close(ends[0]);
    close(helper);
    close_world(&world);
}

static void test_pausing(void)
{
    struct world world;
    struct heard heard;
    open_world(&world);
    start(&world, &heard, FILES_LIST, -1);
    heard.pauses = true;
    int helper = take_helper(&world);
    say(helper, (struct files_record[]){ENTRY, ENTRY, ENTRY}, 3, -1);
    say(helper, (struct files_record[]){ENTRY, DONE}, 2, -1);
    for (unsigned n = 1; n <= 4; n++) {
        turn(&world);
        CHECK(heard.entries == n && heard.overs == 0);
        files_pause(heard.call, false);
        CHECK(heard.entries == n); /* never inside */
    }
    turn(&world);
    CHECK(heard.entries == 4 && heard.overs == 1);
    close(helper);
    close_world(&world);
}

static void test_cancelling(void)
{
    struct world world;
    struct heard heard;
    open_world(&world);
    start(&world, &heard, FILES_LIST, -1); /* inside an event */
    heard.cancels = true;
    int helper = take_helper(&world);
    say(helper, (struct files_record[]){ENTRY, ENTRY, DONE}, 3, -1);
    turn(&world);
    CHECK(heard.records == 1 && heard.overs == 0);
    hear_request(helper, FILES_LIST, NULL);
    CHECK(is_closed(helper));
    close(helper);
    start(&world, &heard, FILES_STAT, -1); /* before a helper was lent: it serves the next */
    files_cancel(heard.call);
    helper = take_helper(&world);
    CHECK(helper >= 0 && heard.overs == 0);
    start(&world, &heard, FILES_STAT, -1);
    CHECK(take_helper(&world) < 0);
    say(helper, (struct files_record[]){ENTRY, DONE}, 2, -1);
    turn(&world);
    CHECK(heard.overs == 1 && heard.error.kind == ERROR_NONE);
    close(helper);
    files_cancel(NULL);
    close_world(&world);
}

static void test_commit(void)
{
    struct world world;
    struct heard heard;
    int ends[2], given = -1;
    struct error err = {0};
    open_world(&world);
    CHECK(files_pipe(ends, 1, &err));
    CHECK((fcntl(ends[1], F_GETFL) & O_NONBLOCK) != 0 && (fcntl(ends[0], F_GETFL) & O_NONBLOCK) == 0);
    start(&world, &heard, FILES_WRITE, ends[0]);
    files_commit(heard.call, 5); /* before there is a helper */
    CHECK(write(ends[1], "hello", 5) == 5);
    close(ends[1]);
    int helper = take_helper(&world);
    hear_request(helper, FILES_WRITE, &given);
    struct files_request commit;
    void *memory = NULL;
    int none = -1;
    char bytes[8];
    CHECK(front_files_request_receive(helper, &commit, &memory, &none, &err) == 1);
    CHECK(commit.operation == FILES_COMMIT && commit.size == 5);
    CHECK(read(given, bytes, sizeof bytes) == 5 && read(given, bytes, sizeof bytes) == 0); /* no other end is open */
    free(memory);
    close(given);
    say(helper, (struct files_record[]){ENTRY, DONE}, 2, -1);
    turn(&world);
    CHECK(heard.overs == 1 && heard.error.kind == ERROR_NONE);
    close(helper);
    close_world(&world);
}

static void test_bounds(void)
{
    struct world world;
    static struct heard heard[FILES_CALLS_MAX + 1];
    int helpers[FILES_CALLS_MAX];
    open_world(&world);
    for (int i = 0; i < FILES_CALLS_MAX; i++) {
        start(&world, &heard[i], FILES_LIST, -1);
        helpers[i] = take_helper(&world);
        CHECK(helpers[i] >= 0);
    }
    struct heard *late = &heard[FILES_CALLS_MAX];
    start(&world, late, FILES_STAT, -1);
    turn(&world);
    CHECK(late->overs == 1 && late->error.kind == ERROR_NO_CAPACITY);
    files_cancel(heard[0].call);
    turn(&world);
    start(&world, late, FILES_STAT, -1);
    int helper = take_helper(&world);
    CHECK(helper >= 0 && late->overs == 0);
    files_cancel(late->call);
    close(helper);
    for (int i = 0; i < FILES_CALLS_MAX; i++) {
        if (i > 0)
            files_cancel(heard[i].call);
        close(helpers[i]);
    }
    turn(&world);
    world.all.descriptors_max = 4 * FILES_CALL_DESCRIPTORS - 1; /* of which one sandbox gets a quarter */
    start(&world, late, FILES_STAT, -1);
    turn(&world);
    CHECK(late->overs == 1 && late->error.kind == ERROR_NO_CAPACITY);
    close_world(&world);
}

static void test_waiting_for_the_sandbox(void)
{
    struct world world;
    struct heard heard;
    open_world(&world);
    world.sandbox.current = false;
    start(&world, &heard, FILES_STAT, -1);
    CHECK(take_helper(&world) < 0 && heard.overs == 0 && world.sandbox.waiting_count == 1);
    sandboxes_refuse_waiting(&world.all);
    turn(&world);
    CHECK(heard.overs == 1 && heard.error.kind == ERROR_STARTING);
    loop_timer_cancel(TAKE(world.sandbox.waiting_timer));
    struct files_request nowhere = {.operation = FILES_STAT, .path = "/a"};
    heard = (struct heard){.descriptor = -1};
    heard.call = files_start(&world.all, "sbx_none", &nowhere, -1, &EVENTS, &heard);
    turn(&world);
    CHECK(heard.overs == 1 && heard.error.kind == ERROR_NOT_FOUND);
    close_world(&world);
}

int main(void)
{
    keys_start();
    test_calls_at_once_have_a_helper_each();
    test_a_watch_uses_its_helper_up();
    test_short_calls_share_a_helper();
    test_an_idle_helper_that_ends_is_not_lent();
    test_what_breaks_the_rules_ends_it();
    test_descriptors_are_looked_at();
    test_files_left_open_are_bounded();
    test_a_second_file_breaks_the_rules();
    test_records_nobody_awaits_break_the_rules();
    test_a_grep_uses_its_helper_up();
    test_a_descriptor_nobody_asked_for_is_closed();
    test_pausing();
    test_cancelling();
    test_commit();
    test_bounds();
    test_waiting_for_the_sandbox();
    return check_done();
}
