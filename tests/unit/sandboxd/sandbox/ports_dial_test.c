/* ports_dial_test.c - a connection to a port, asked of an init that answers well, badly, late, or not at all. */
#include "sandboxd/sandbox/init_link.h"
#include "sandboxd/sandbox/ports/port_pool.h"
#include "sandboxd/sandbox/ports/ports_internal.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"
#include "shared/http/loop_internal.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct world {
    struct loop *loop;
    struct sandboxes all;
    struct sandbox sandbox;
    char folder[64];
    int run, listener, init; /* the folder; init's ends */
    unsigned answers;
    struct error error; /* of the last answer */
    int fd;
};

static void on_message(void *cookie, const struct front_init_message *message, int *fds, size_t count)
{
    struct world *world = cookie;
    (void)count;
    if (message->type == FI_DIALED)
        ports_dialed(&world->sandbox, &message->as.dialed, fds);
}

static void on_lost(void *cookie)
{
    struct world *world = cookie;
    struct error err = {0};
    error_set(&err, ERROR_STARTING, "the link broke");
    ports_link_lost(&world->sandbox, &err);
}

static const struct init_link_events EVENTS = {.message = on_message, .lost = on_lost};

static void open_world(struct world *world)
{
    struct error err = {0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *world = (struct world){.fd = -1};
    strcpy(world->folder, "/tmp/parley-ports-XXXXXX");
    CHECK(mkdtemp(world->folder) != NULL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/init.sock", world->folder);
    world->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(bind(world->listener, (const struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(world->listener, 4) == 0);
    world->run = open(world->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    world->loop = loop_new(0, &err);
    CHECK(world->loop != NULL);
    loop_open(world->loop);
    world->all.registry = registry_new(1);
    world->all.descriptors_max = 4000;
    world->all.loops[0] = world->loop;
    world->sandbox = (struct sandbox){.all = &world->all, .loop = world->loop, .current = true};
    world->sandbox.link = init_link_new(world->loop, world->run, "init.sock", getuid(), &EVENTS, world);
    world->init = accept4(world->listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(world->init >= 0);
}

static void close_world(struct world *world)
{
    struct error err = {0};
    error_set(&err, ERROR_GONE, "the test is over");
    ports_free(&world->sandbox, &err);
    CHECK(world->sandbox.descriptors == 0 && world->all.descriptors == 0);
    init_link_free(world->sandbox.link);
    loop_close(world->loop);
    loop_free(world->loop);
    registry_free(world->all.registry);
    close(world->init), close(world->listener), close(world->run);
    CHECK(fd_remove_tree(world->folder, &err));
}

/* ---- turning the loop until something holds ---- */

struct waiting {
    struct loop *loop;
    const unsigned *count;
    unsigned wanted;
    uint64_t until;
};

static void look(void *cookie)
{
    struct waiting *waiting = cookie;
    if (*waiting->count >= waiting->wanted || clock_boot_ns() > waiting->until)
        loop_end(waiting->loop);
    else
        (void)loop_timer_start(waiting->loop, clock_boot_ns() + 1000000, look, waiting);
}

static bool turn_until(struct world *world, unsigned answers)
{
    struct waiting waiting = {world->loop, &world->answers, answers, clock_boot_ns() + 20 * UINT64_C(1000000000)};
    world->loop->ending = false;
    look(&waiting);
    loop_run(world->loop);
    return world->answers >= answers;
}

/* Lets what is there be read. */
static void turn_a_little(struct world *world)
{
    unsigned never = 0;
    struct waiting waiting = {world->loop, &never, 1, clock_boot_ns() + 50 * UINT64_C(1000000)};
    world->loop->ending = false;
    look(&waiting);
    loop_run(world->loop);
}

/* ---- the dialogue ---- */

static void on_done(void *cookie, const struct verb_answer *answer)
{
    struct world *world = cookie;
    world->answers++;
    world->error = answer->error;
    world->fd = answer->fd;
}

static void dial(struct world *world, uint16_t port)
{
    struct verb *verb = verb_new(&world->all, "sbx");
    verb->asked_on = world->loop;
    verb->port = port;
    verb->done = on_done;
    verb->cookie = world;
    ports_verb_dial(&world->sandbox, verb);
}

static struct fi_dial take_dial(struct world *world)
{
    struct front_init_message message = {0};
    struct pollfd wait = {.fd = world->init, .events = POLLIN};
    int fds[FD_MESSAGE_FDS];
    size_t count;
    struct error err = {0};
    CHECK(poll(&wait, 1, 20000) == 1);
    CHECK(front_init_receive(world->init, &message, FI_FROM_FRONT, fds, &count, &err) == 1 && message.type == FI_DIAL);
    return message.as.dial;
}

static void answer(struct world *world, uint64_t number, int error_number, int fd)
{
    struct front_init_message message = {.type = FI_DIALED};
    struct error err = {0};
    message.as.dialed = (struct fi_dialed){.number = number, .error_number = error_number};
    CHECK(front_init_send(world->init, &message, &fd, fd >= 0, &err));
}

static uint16_t listen_somewhere(int *fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(*fd, (struct sockaddr *)&at, size) == 0 && listen(*fd, 4) == 0);
    CHECK(getsockname(*fd, (struct sockaddr *)&at, &size) == 0);
    return ntohs(at.sin_port);
}

static int connect_to(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (const struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

static void test_good(void)
{
    struct world world;
    int listener;
    open_world(&world);
    uint16_t port = listen_somewhere(&listener);
    dial(&world, port);
    struct fi_dial asked = take_dial(&world);
    CHECK(asked.port == port && asked.family == 4);
    AUTO_FD int given = connect_to(port);
    answer(&world, asked.number, 0, given);
    CHECK(turn_until(&world, 1) && world.error.kind == ERROR_NONE && world.fd >= 0);
    CHECK((fcntl(world.fd, F_GETFL) & O_NONBLOCK) != 0 && fcntl(world.fd, F_GETFD) == FD_CLOEXEC);
    CHECK(world.sandbox.ports->connections == 1 && world.sandbox.descriptors == 1);
    close(world.fd);
    close(listener);
    close_world(&world);
}

static void test_refused(void)
{
    struct world world;
    open_world(&world);
    dial(&world, 3000);
    struct fi_dial asked = take_dial(&world);
    answer(&world, asked.number + 9, ECONNREFUSED, -1); /* nobody asked */
    answer(&world, asked.number, ECONNREFUSED, -1);
    turn_a_little(&world);
    struct fi_dial again = take_dial(&world);
    CHECK(again.family == 6 && again.port == 3000 && again.number != asked.number);
    answer(&world, asked.number, 0, world.run); /* the old one again: it is over */
    answer(&world, again.number, EADDRNOTAVAIL, -1);
    CHECK(turn_until(&world, 1) && world.error.kind == ERROR_BAD_GATEWAY);
    CHECK_TEXT(world.error.message, "nothing listens on port 3000 of the sandbox");
    CHECK(world.sandbox.ports->connections == 0 && world.fd == -1);
    close_world(&world);
}

/* Anything but a TCP socket that is connected to that port. */
static void test_wrong_descriptors(void)
{
    struct world world;
    int listener, ends[2];
    uint16_t port = listen_somewhere(&listener);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const int wrong[] = {open("/dev/null", O_RDWR | O_CLOEXEC),
                         open("/etc/passwd", O_RDONLY | O_CLOEXEC),
                         ends[0],
                         socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
                         socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0),
                         socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), /* not connected */
                         connect_to(port)};                              /* to another */
    open_world(&world);
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dial(&world, 3000);
        answer(&world, take_dial(&world).number, 0, wrong[i]);
        CHECK(turn_until(&world, i + 1) && world.error.kind == ERROR_BAD_GATEWAY && world.fd == -1);
        close(wrong[i]);
    }
    CHECK(world.sandbox.ports->connections == 0);
    close(ends[1]), close(listener);
    close_world(&world);
}

/* A connection from the very port that it goes to: nobody listens there. */
static void test_itself(void)
{
    struct world world;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    AUTO_FD int given = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(given, (struct sockaddr *)&at, size) == 0 && getsockname(given, (struct sockaddr *)&at, &size) == 0);
    CHECK(connect(given, (struct sockaddr *)&at, size) == 0);
    open_world(&world);
    dial(&world, ntohs(at.sin_port));
    answer(&world, take_dial(&world).number, 0, given);
    turn_a_little(&world);
    CHECK(world.answers == 0);
    answer(&world, take_dial(&world).number, ECONNREFUSED, -1);
    CHECK(turn_until(&world, 1) && world.error.kind == ERROR_BAD_GATEWAY && world.fd == -1);
    CHECK(world.sandbox.ports->connections == 0);
    close_world(&world);
}

/* Bytes that nobody takes, and a minute in which close(2) waits for that. Its listener stays open. */
static int lingering(void)
{
    static const char bytes[65536];
    const struct linger minute = {.l_onoff = 1, .l_linger = 60};
    int listener;
    int fd = connect_to(listen_somewhere(&listener));
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &minute, sizeof minute) == 0);
    return fd;
}

/* One whose close(2) would keep the loop waiting. */
static void test_lingers(void)
{
    struct world world;
    int listener;
    struct linger linger = {.l_onoff = 1, .l_linger = 600};
    socklen_t size = sizeof linger;
    open_world(&world);
    uint16_t port = listen_somewhere(&listener);
    dial(&world, port);
    AUTO_FD int given = connect_to(port);
    CHECK(setsockopt(given, SOL_SOCKET, SO_LINGER, &linger, size) == 0);
    answer(&world, take_dial(&world).number, 0, given);
    CHECK(turn_until(&world, 1) && world.error.kind == ERROR_NONE);
    CHECK(getsockopt(world.fd, SOL_SOCKET, SO_LINGER, &linger, &size) == 0 && linger.l_onoff == 0);
    close(world.fd);
    close(listener);
    close_world(&world);
}

/* A guest's connection, which is a UNIX one, with a socket in it whose close(2) would keep the loop waiting. */
static void test_guest_with_descriptors(void)
{
    struct world world;
    struct error err = {0};
    int ends[2], given[2], full = lingering(), other = lingering(); /* to drop one sets it right for all */
    open_world(&world);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, given) == 0);
    CHECK(fd_send_message(ends[0], "x", 1, &full, 1, &err));
    CHECK(fd_send_message(given[0], "x", 1, &other, 1, &err)); /* of a kind that a guest's connection has not */
    close(full);
    close(other);
    alarm(30);
    dial(&world, PORTS_GUEST);
    struct fi_dial asked = take_dial(&world);
    CHECK(asked.family == FI_FAMILY_GUEST && asked.port == 0);
    answer(&world, asked.number, 0, given[1]);
    close(given[1]);
    CHECK(turn_until(&world, 1) && world.error.kind == ERROR_BAD_GATEWAY);
    dial(&world, PORTS_GUEST);
    answer(&world, take_dial(&world).number, 0, ends[1]);
    close(ends[1]);
    CHECK(turn_until(&world, 2) && world.error.kind == ERROR_NONE && world.fd >= 0);
    struct port_pool *pool = port_pool_new(world.loop, &world.all); /* as one that is kept, and has said something */
    port_pool_give(pool, "sbx", PORTS_GUEST, loop_watch_new(world.loop, world.fd));
    CHECK(port_pool_take(pool, "sbx", PORTS_GUEST) == NULL);
    port_pool_free(pool);
    close(ends[0]), close(given[0]);
    turn_a_little(&world); /* only now the loop closes */
    close_world(&world);
    alarm(0);
}

static void test_lost(void)
{
    struct world world;
    open_world(&world);
    dial(&world, 3000);
    dial(&world, 3001);
    (void)take_dial(&world);
    close(world.init);
    CHECK(turn_until(&world, 2) && world.error.kind == ERROR_STARTING);
    struct pollfd again = {.fd = world.listener, .events = POLLIN};
    for (int i = 0; i < 200 && poll(&again, 1, 0) == 0; i++)
        turn_a_little(&world);
    world.init = accept4(world.listener, NULL, NULL, SOCK_CLOEXEC); /* it is reached again */
    close_world(&world);
}

static void test_bounds(void)
{
    struct world world;
    open_world(&world);
    for (unsigned i = 0; i < PORTS_CONNECTIONS_MAX; i++) {
        dial(&world, 3000);
        (void)take_dial(&world);
    }
    CHECK(world.answers == 0);
    dial(&world, 3000);
    CHECK(turn_until(&world, 1) && world.error.kind == ERROR_NO_CAPACITY);
    close_world(&world); /* the others are told, and counted off */
    CHECK(world.answers == PORTS_CONNECTIONS_MAX + 1 && world.error.kind == ERROR_GONE);
}

int main(void)
{
    test_good();
    test_refused();
    test_wrong_descriptors();
    test_itself();
    test_lingers();
    test_guest_with_descriptors();
    test_lost();
    test_bounds();
    return check_done();
}
