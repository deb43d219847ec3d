/* files_flow.c - a pipe that is read when there is something in it. */
#include "sandboxd/sandbox/files.h"

#include "shared/base/memory.h"
#include "shared/http/loop.h"

#include <errno.h>

enum { READ_BYTES = 64 * 1024 };

struct files_flow {
    struct loop_watch *watch;
    void (*flowed)(void *cookie, const void *data, size_t size);
    void *cookie;
    bool ended;
};

/* One read a turn: others of the loop have theirs. */
static void on_readable(void *cookie)
{
    struct files_flow *flow = cookie;
    char data[READ_BYTES];
    ssize_t got = read(loop_watch_fd(flow->watch), data, sizeof data);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        flow->ended = true;
        loop_watch_readable(flow->watch, NULL, NULL);
    }
    flow->flowed(flow->cookie, data, got > 0 ? (size_t)got : 0);
}

struct files_flow *files_flow_new(int pipe, void (*flowed)(void *cookie, const void *data, size_t size), void *cookie)
{
    struct files_flow *flow = memory_new(sizeof *flow);
    flow->flowed = flowed;
    flow->cookie = cookie;
    flow->watch = loop_watch_new(loop_current(), pipe);
    loop_watch_readable(flow->watch, on_readable, flow);
    return flow;
}

void files_flow_pause(struct files_flow *flow, bool is_paused)
{
    if (flow->ended)
        return;
    if (is_paused)
        loop_watch_readable(flow->watch, NULL, NULL);
    else
        loop_watch_readable(flow->watch, on_readable, flow);
}

void files_flow_free(struct files_flow *flow)
{
    if (!flow)
        return;
    loop_watch_free(flow->watch);
    free(flow);
}
