#include "sandboxd/sandbox/ports/port_pool.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"

#include <poll.h>
#include <string.h>

struct idle {
    struct port_home *home;
    struct idle *next; /* older */
    struct loop_watch *connection;
    uint16_t port;
    uint64_t since_ns; /* boot time */
};

/* A sandbox that has connections here. */
struct port_home {
    struct port_pool *pool;
    struct port_home *next;
    char sandbox_id[CAPABILITY_ID_BYTES];
    unsigned idle_count;
    struct idle *idle; /* the newest first */
};

struct port_pool {
    struct loop *loop;
    struct sandboxes *sandboxes;
    struct port_home *homes;  /* the one used last first */
    unsigned count;           /* of all connections */
    struct loop_timer *timer; /* runs while any is idle */
};

struct port_pool *port_pool_new(struct loop *loop, struct sandboxes *sandboxes)
{
    struct port_pool *pool = memory_new(sizeof *pool);
    pool->loop = loop;
    pool->sandboxes = sandboxes;
    return pool;
}

static struct port_home *find_home(struct port_pool *pool, const char *sandbox_id)
{
    for (struct port_home **at = &pool->homes; *at != NULL; at = &(*at)->next) {
        struct port_home *home = *at;
        if (strcmp(home->sandbox_id, sandbox_id) != 0)
            continue;
        *at = home->next;
        home->next = pool->homes;
        pool->homes = home;
        return home;
    }
    return NULL;
}

static struct port_home *make_home(struct port_pool *pool, const char *sandbox_id)
{
    struct port_home *home = find_home(pool, sandbox_id);
    if (home != NULL)
        return home;
    home = memory_new(sizeof *home);
    home->pool = pool;
    if (!text_copy(home->sandbox_id, sizeof home->sandbox_id, sandbox_id))
        home->sandbox_id[0] = '\0'; /* no sandbox has such an id */
    home->next = pool->homes;
    pool->homes = home;
    return home;
}

static void drop_home_if_empty(struct port_home *home)
{
    if (home->idle_count > 0)
        return;
    struct port_home **at = &home->pool->homes;
    while (*at != home)
        at = &(*at)->next;
    *at = home->next;
    free(home);
}

/* The connection is the caller's. */
static struct loop_watch *unlink_idle(struct idle *idle)
{
    struct port_home *home = idle->home;
    struct idle **at = &home->idle;
    while (*at != idle)
        at = &(*at)->next;
    *at = idle->next;
    home->idle_count--;
    home->pool->count--;
    struct loop_watch *connection = idle->connection;
    loop_watch_readable(connection, NULL, NULL);
    free(idle);
    drop_home_if_empty(home);
    return connection;
}

static void hang_up(struct loop_watch *connection)
{
    fd_hang_up(loop_watch_fd(connection));
    loop_watch_free(connection);
}

static void drop(struct idle *idle)
{
    struct port_pool *pool = idle->home->pool;
    char sandbox_id[CAPABILITY_ID_BYTES];
    memcpy(sandbox_id, idle->home->sandbox_id, sizeof sandbox_id);
    hang_up(unlink_idle(idle));
    ports_hung_up(pool->sandboxes, sandbox_id);
}

/* Its end, or bytes that nobody asked for. */
static void on_readable(void *cookie)
{
    drop(cookie);
}

static void drop_old(struct port_home *home, uint64_t before_ns)
{
    struct idle *next;
    for (struct idle *idle = home->idle; idle != NULL; idle = next) {
        next = idle->next;
        if (idle->since_ns < before_ns)
            drop(idle); /* and with the last one the home */
    }
}

static void on_timer(void *cookie);

static void start_timer(struct port_pool *pool)
{
    if (pool->timer == NULL)
        pool->timer = loop_timer_start(pool->loop, clock_boot_ns() + PORT_POOL_IDLE_NS / 2, on_timer, pool);
}

static void on_timer(void *cookie)
{
    struct port_pool *pool = cookie;
    uint64_t before_ns = clock_boot_ns() - PORT_POOL_IDLE_NS;
    pool->timer = NULL;
    struct port_home *next;
    for (struct port_home *home = pool->homes; home != NULL; home = next) {
        next = home->next;
        drop_old(home, before_ns);
    }
    if (pool->count > 0)
        start_timer(pool);
}

/* Its end or bytes that nobody asked for may be here, and this loop not have looked yet. They are not peeked at: bytes
 * from a guest may carry descriptors. */
static bool is_quiet(const struct idle *idle)
{
    struct pollfd connection = {.fd = loop_watch_fd(idle->connection), .events = POLLIN | POLLRDHUP};
    return poll(&connection, 1, 0) == 0;
}

static struct idle *find_idle(const struct port_home *home, uint16_t port)
{
    for (struct idle *idle = home != NULL ? home->idle : NULL; idle != NULL; idle = idle->next) {
        if (idle->port == port)
            return idle;
    }
    return NULL;
}

struct loop_watch *port_pool_take(struct port_pool *pool, const char *sandbox_id, uint16_t port)
{
    struct idle *idle;
    while ((idle = find_idle(find_home(pool, sandbox_id), port)) != NULL) {
        if (is_quiet(idle))
            return unlink_idle(idle);
        drop(idle);
    }
    return NULL;
}

void port_pool_give(struct port_pool *pool, const char *sandbox_id, uint16_t port, struct loop_watch *connection)
{
    struct port_home *home = make_home(pool, sandbox_id);
    if (home->idle_count >= PORT_POOL_IDLE_MAX || pool->count >= PORT_POOL_ALL_MAX) {
        hang_up(connection);
        drop_home_if_empty(home);
        ports_hung_up(pool->sandboxes, sandbox_id);
        return;
    }
    struct idle *idle = memory_new(sizeof *idle);
    *idle = (struct idle){home, home->idle, connection, port, clock_boot_ns()};
    home->idle = idle;
    home->idle_count++;
    pool->count++;
    loop_watch_readable(connection, on_readable, idle);
    start_timer(pool);
}

void port_pool_free(struct port_pool *pool)
{
    if (pool == NULL)
        return;
    loop_timer_cancel(pool->timer);
    while (pool->homes != NULL)
        drop(pool->homes->idle);
    free(pool);
}
