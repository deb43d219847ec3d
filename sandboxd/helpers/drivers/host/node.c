/* node.c - node as a context. It speaks frames by itself (node.js), on its control pipe; the host puts what lies in the
 * pipes of stdout and stderr before them. Descriptors of node: 3 its text, 4 requests, 5 control, 6 the code of a run,
 * 7 where the host acknowledges; node lets no child inherit them. */
#include "sandboxd/helpers/drivers/host/languages.h"

#include "sandboxd/helpers/drivers/host/host.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

extern const char driver_node[], driver_node_end[];

enum { HEAD_BYTES = 8 }; /* enough to tell the frames apart that the host looks at */

struct node {
    int requests_in, code, acknowledge_in;
    char head[HEAD_BYTES];
    size_t head_size;
    bool is_sync, is_done;
    unsigned again_count; /* SIGINTs of ours in this run */
};

static const char BOOT[] = "(()=>{const f=require('fs');const t=f.readFileSync(3,'utf8');f.closeSync(3);"
                           "require('vm').runInThisContext(t,{filename:'<parley>'})(require,s=>import(s))})()";

static void run(struct host *host, const char *code, size_t size)
{
    struct node *node = host->own;
    struct error err;
    node->again_count = 0;
    if (ftruncate(node->code, 0) < 0 || lseek(node->code, 0, SEEK_SET) < 0 ||
        !fd_write_all(node->code, code, size, &err))
        host_failed("no memory for the code");
    json_t *cwd = json_string(host->cwd ? host->cwd : "");
    AUTO_FREE char *there = json_dumps(cwd, JSON_ENCODE_ANY);
    json_decref(cwd);
    AUTO_FREE char *line =
        memory_printf("{\"id\":%s,\"size\":%zu,\"count\":%lld,\"silent\":%s,\"cwd\":%s}\n", host->run_id, size,
                      host->count, host->is_silent ? "true" : "false", there ? there : "\"\"");
    (void)!fd_write_all(node->requests_in, line, strlen(line), &err); /* when it has ended, the loop sees it */
}

/* A line begins: what kind of frame it is. */
static void look_at_head(struct host *host)
{
    struct node *node = host->own;
    node->is_sync = memcmp(node->head, "{\"sync\":", HEAD_BYTES) == 0;
    node->is_done = memcmp(node->head, "{\"done\":", HEAD_BYTES) == 0;
    if (memcmp(node->head, "{\"ready\"", HEAD_BYTES) == 0 || memcmp(node->head, "{\"failed", HEAD_BYTES) == 0) {
        host_drain(host, true); /* what a start says is nobody's */
        host->is_ready = true;
    }
    if (node->is_done)
        host_drain(host, true);
    if (!node->is_sync)
        host_pass(host, node->head, node->head_size);
    host->is_in_line = true;
}

static void end_line(struct host *host)
{
    struct node *node = host->own;
    if (node->is_sync)
        (void)!write(node->acknowledge_in, "!", 1);
    else
        host_pass(host, "\n", 1);
    if (node->is_done && host->is_running) {
        host->is_running = false;
        host->count += host->is_silent ? 0 : 1;
    }
    node->head_size = 0;
    host->is_in_line = false;
}

static void control(struct host *host, const char *bytes, size_t size)
{
    struct node *node = host->own;
    while (size > 0) {
        if (!host->is_in_line) {
            node->head[node->head_size++] = *bytes++;
            size--;
            if (node->head_size == HEAD_BYTES)
                look_at_head(host);
            continue;
        }
        const char *end = memchr(bytes, '\n', size);
        size_t length = end ? (size_t)(end - bytes) : size;
        if (!node->is_sync)
            host_pass(host, bytes, length);
        bytes += length + (end ? 1 : 0);
        size -= length + (end ? 1 : 0);
        if (end)
            end_line(host);
    }
}

/* SIGINT is lost where node changes over from stopping code to telling its listeners. */
static void interrupt_again(struct host *host)
{
    struct node *node = host->own;
    if (node->again_count++ < 3)
        (void)kill(host->child, SIGINT);
}

static void finish(struct host *host)
{
    struct node *node = host->own;
    close(node->requests_in);
    node->requests_in = -1;
}

static void make_pipe(int ends[static 2])
{
    int made[2];
    if (pipe2(made, O_CLOEXEC) < 0)
        host_failed("no pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(made[i], F_DUPFD_CLOEXEC, 20);
        close(made[i]);
    }
}

int node_context(const char *given)
{
    bool is_typed = strcmp(given, "typescript") == 0;
    const char *name = is_typed ? "typescript" : "javascript";
    struct host_language language = {
        .name = name, .run = run, .control = control, .still_runs = interrupt_again, .finish = finish};
    char *path = host_find("node");
    if (path == NULL && (path = host_find("nodejs")) == NULL)
        host_failed("no node in this template");
    struct node node = {.code = memfd_create("code", MFD_CLOEXEC)};
    int requests[2], acknowledge[2];
    make_pipe(requests);
    make_pipe(acknowledge);
    node.requests_in = requests[1];
    node.acknowledge_in = acknowledge[1];
    struct host host;
    host_init(&host, &language);
    host.own = &node;
    int text = fcntl(host_memfd("node.js", driver_node, (size_t)(driver_node_end - driver_node)), F_DUPFD_CLOEXEC, 20);
    int code = fcntl(node.code, F_DUPFD_CLOEXEC, 20);
    const char *const arguments[] = {"node", "-e", BOOT, "--", name, "kernel", NULL};
    host_spawn(&host, path, host_arguments(arguments, NULL), -1,
               (int[]){text, requests[0], host.control_in, code, acknowledge[0]}, 5);
    close(requests[0]);
    close(acknowledge[0]);
    return host_serve(&host);
}

int node_script(const char *language, char **arguments)
{
    char *path = host_find("node");
    if (path == NULL && (path = host_find("nodejs")) == NULL)
        return 127;
    const char *const plain[] = {"node", NULL}, *const typed[] = {"node",       "-e",     BOOT, "--",
                                                                  "typescript", "script", NULL};
    if (strcmp(language, "typescript") != 0) {
        execv(path, host_arguments(plain, arguments + 1));
        return 126;
    }
    int text = host_memfd("node.js", driver_node, (size_t)(driver_node_end - driver_node));
    if (text == 3 ? fcntl(text, F_SETFD, 0) < 0 : dup2(text, 3) < 0)
        return 126;
    execv(path, host_arguments(typed, arguments + 1));
    return 126;
}
