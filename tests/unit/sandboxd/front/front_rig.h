/** front_rig.h - a whole front in a child process, with a stand-in launcher (this process) and a real parley-init in a
 *  small world of its own (init_world.h); and a plain HTTP/1.1 client. */
#pragma once

#include "sandboxd/front/front.h"
#include "sandboxd/front_launcher/front_launcher.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"
#include "tests/unit/sandboxd/init/init_world.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define FRONT_SANDBOX "sbx_testtesttesttest0000"

struct front_rig {
    struct rig init;
    struct key node_key;
    char state[64];
    uint16_t port;
    pid_t front;
    int launcher;        /* our end */
    int64_t lifetime_ms; /* of the sandbox, from when a front is told of it; 0: an hour */
    int64_t age_ms;      /* likewise, how long ago it was made */
    struct fl_limits limits;
    bool root_allowed;
    const char *workdir; /* NULL: /workspace */
    const char *guest;   /* its isolation, when it is one with a front of its own inside; NULL: namespaces */
    uint64_t incarnation;
    char token[CAPABILITY_TEXT_BYTES];
};

static void front_mint(const struct front_rig *rig, const char *sandbox, const char *scope, int64_t expires_in,
                       char token[static CAPABILITY_TEXT_BYTES])
{
    struct key root, key;
    struct error err = {0};
    int64_t now = clock_wall_ms() / 1000;
    struct capability_claims claims = {.issuer = "dpl_test",
                                       .epoch = 1,
                                       .principal = "tester",
                                       .jti = "tok_test",
                                       .family = "tok_test",
                                       .issued_at = expires_in < 0 ? now - 600 : now,
                                       .expires_at = now + expires_in,
                                       .thread_id = "t1",
                                       .lease = "lse_test",
                                       .actor = "human"};
    snprintf(claims.sandbox_id, sizeof claims.sandbox_id, "%s", sandbox);
    CHECK(scope_parse(&claims.scopes, scope, strlen(scope), SCOPE_UNKNOWN_REFUSED, &err));
    claims.root_scopes = claims.scopes;
    key_sandbox_root(&root, &rig->node_key, sandbox);
    key_token(&key, &root, 1);
    if (!capability_mint(token, &claims, &key, &err))
        rig_fail(err.message);
}

static int front_open(const char *base, const char *name, int flags)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", base, name);
    int fd = open(path, flags | O_CLOEXEC);
    return fd >= 0 ? fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* What a launcher tells of the one sandbox. */
static void front_tell_sandbox(const struct front_rig *rig, uint64_t request, bool reused)
{
    struct front_launcher_message message = {.type = FL_SANDBOX, .request = request};
    struct fl_sandbox *sandbox = &message.as.sandbox;
    strcpy(sandbox->id, FRONT_SANDBOX);
    strcpy(sandbox->hostname, "test");
    strcpy(sandbox->template_name, "base");
    snprintf(sandbox->isolation, sizeof sandbox->isolation, "%s", rig->guest ? rig->guest : "namespaces");
    sandbox->is_guest = rig->guest != NULL;
    strcpy(sandbox->storage, "tmpfs");
    sandbox->limits = rig->limits;
    sandbox->slot = 1;
    sandbox->uid_base = rig->guest ? FRONT_LAUNCHER_ANY_UID : RIG_UID;
    sandbox->init_pid = rig->init.pid;
    sandbox->reused = reused;
    sandbox->created_wall_ms = clock_wall_ms() - rig->age_ms;
    sandbox->deadline_wall_ms = clock_wall_ms() + (rig->lifetime_ms ? rig->lifetime_ms : 3600000);
    key_sandbox_root(&sandbox->root, &rig->node_key, FRONT_SANDBOX);
    strcpy(sandbox->socket_path, "1/init.sock");
    sandbox->epoch = 1;
    snprintf(sandbox->workdir, sizeof sandbox->workdir, "%s", rig->workdir ? rig->workdir : "/workspace");
    sandbox->root_allowed = rig->root_allowed;
    sandbox->uid = sandbox->gid = 1000;
    strcpy(sandbox->env, "GIVEN=by-launcher");
    int fds[FL_FDS] = {(int)syscall(SYS_pidfd_open, rig->init.pid, 0),
                       front_open(rig->init.cgroup, "cgroup.kill", O_WRONLY),
                       front_open(rig->init.cgroup, "run/cgroup.freeze", O_RDWR),
                       front_open(rig->init.cgroup, "run/cgroup.events", O_RDONLY),
                       front_open(rig->init.cgroup, "run/cpu.stat", O_RDONLY),
                       front_open("/dev", "null", O_RDONLY),
                       front_open("/dev", "null", O_RDONLY),
                       front_open("/dev", "null", O_RDONLY)};
    struct error err = {0};
    if (!front_launcher_send(rig->launcher, &message, fds, FL_FDS, &err))
        rig_fail(err.message);
    for (int i = 0; i < FL_FDS; i++)
        close(fds[i]);
}

static void front_send_sandbox(const struct front_rig *rig, uint64_t request)
{
    front_tell_sandbox(rig, request, request == 0);
}

static void front_send(const struct front_rig *rig, const struct front_launcher_message *message)
{
    struct error err = {0};
    if (!front_launcher_send(rig->launcher, message, NULL, 0, &err))
        rig_fail(err.message);
}

static void front_send_used(const struct front_rig *rig, uint64_t request)
{
    struct front_launcher_message message = {.type = FL_USED, .request = request, .as.used.disk_bytes = 5 << 20};
    strcpy(message.as.used.id, FRONT_SANDBOX);
    front_send(rig, &message);
}

/* The next one, whatever it is, within 20 s. */
static void front_next(const struct front_rig *rig, struct front_launcher_message *message)
{
    struct pollfd readable = {.fd = rig->launcher, .events = POLLIN};
    int fds[16];
    size_t count = 0;
    struct error err = {0};
    if (poll(&readable, 1, 20000) != 1 ||
        front_launcher_receive(rig->launcher, message, FL_FROM_FRONT, fds, &count, &err) != 1)
        rig_fail(err.message[0] ? err.message : "the front says nothing");
}

/** The front's next message within 20 s. What it asks by itself, the use of the disk, is answered meanwhile. */
static void front_expect(const struct front_rig *rig, uint32_t type, struct front_launcher_message *message)
{
    for (front_next(rig, message); message->type == FL_USAGE && type != FL_USAGE; front_next(rig, message))
        front_send_used(rig, message->request);
    if (message->type != type)
        rig_fail("the front did not say what it should");
}

static void front_greet(struct front_rig *rig, bool with_sandbox)
{
    struct front_launcher_message message;
    front_expect(rig, FL_READY, &message);
    message = (struct front_launcher_message){.type = FL_IDENTITY};
    strcpy(message.as.identity.node, "n1");
    strcpy(message.as.identity.issuer, "dpl_test");
    message.as.identity.incarnation = ++rig->incarnation;
    message.as.identity.slots_max = 10;
    strcpy(message.as.identity.storage, "tmpfs");
    key_link(&message.as.identity.link_to_node, &rig->node_key, "negotiator");
    key_link(&message.as.identity.link_from_node, &rig->node_key, "sandboxd");
    front_send(rig, &message);
    if (with_sandbox)
        front_send_sandbox(rig, 0);
    message = (struct front_launcher_message){.type = FL_ADOPTED};
    front_send(rig, &message);
}

static void front_become(const struct front_rig *rig, int socket_fd)
{
    char host[] = "127.0.0.1", user[] = "parley-no-such-user", level[] = "info", sync[] = "batch";
    struct settings settings = {.state = (char *)(uintptr_t)rig->state,
                                .listen_host = host,
                                .port = rig->port,
                                .loops = 2,
                                .front_user = user,
                                .front_uid = 58702,
                                .audit_sync = sync,
                                .audit_spool_mb = 16,
                                .log_level = level};
    exit(front_main(socket_fd, &settings, NULL));
}

static int front_connect(const struct front_rig *rig)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(rig->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 30};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

/** Starts a front that finds the sandbox running (or none). */
static UNUSED void front_start(struct front_rig *rig, bool with_sandbox)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        rig_fail("socketpair");
    rig->front = fork();
    if (rig->front == 0) {
        close(pair[0]);
        front_become(rig, pair[1]);
    }
    close(pair[1]);
    rig->launcher = pair[0];
    front_greet(rig, with_sandbox);
    for (int tries = 0; tries < 1000; tries++) {
        int fd = front_connect(rig);
        if (fd >= 0) {
            close(fd);
            return;
        }
        usleep(10000);
    }
    rig_fail("the front does not listen");
}

/** The front is killed with `number`; its exit status, or -1 after a signal. */
static UNUSED int front_stop(struct front_rig *rig, int number)
{
    int status = 0;
    kill(rig->front, number);
    if (waitpid(rig->front, &status, 0) != rig->front)
        rig_fail("waitpid");
    close(rig->launcher);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static uint16_t front_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        rig_fail("bind");
    close(fd);
    return ntohs(address.sin_port);
}

static UNUSED void front_rig_open(struct front_rig *rig)
{
    struct rig_options options = {0};
    struct error err = {0};
    char path[128];
    *rig =
        (struct front_rig){.state = "/tmp/parley-front-test-XXXXXX",
                           .limits = {.cpu_milli = 1000, .pids = 256, .memory_bytes = 1 << 29, .disk_bytes = 1 << 30}};
    keys_start();
    if (!rig_open(&rig->init, &options, &err))
        rig_fail(err.message);
    if (mkdtemp(rig->state) == NULL)
        rig_fail("mkdtemp");
    chmod(rig->init.folder, 0755);
    snprintf(path, sizeof path, "%s/init.sock", rig->init.folder);
    chmod(path, 0666);
    snprintf(path, sizeof path, "%s/sandboxd", rig->state);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/sandboxd/run", rig->state);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/sandboxd/run/1", rig->state);
    if (symlink(rig->init.folder, path) != 0)
        rig_fail("symlink");
    key_random(&rig->node_key);
    rig->port = front_free_port();
    front_mint(rig, FRONT_SANDBOX, "process", 600, rig->token);
}

static UNUSED void front_rig_close(struct front_rig *rig)
{
    struct error err;
    siginfo_t end;
    kill(rig->init.pid, SIGKILL); /* with all that was left running in it: nobody waits for a sleep of a minute */
    (void)waitid(P_PID, (id_t)rig->init.pid, &end, WEXITED | WNOWAIT);
    (void)rig_close(&rig->init); /* commands may still run in it */
    CHECK(fd_remove_tree(rig->state, &err));
}

/* ---- HTTP ---- */

struct front_reply {
    int status;
    char *head;
    char *body;
    size_t size;
};

static UNUSED void front_reply_done(struct front_reply *reply)
{
    free(reply->head);
    free(reply->body);
}
#define AUTO_REPLY __attribute__((cleanup(front_reply_done))) struct front_reply

/** Sends a request; the answer is to be read from the returned socket. `token` NULL: none. */
static UNUSED int front_send_request(const struct front_rig *rig, const char *method, const char *path,
                                     const char *token, const void *body, size_t size)
{
    AUTO_TEXT text = {0};
    text_append_format(&text, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n", method, path,
                       size);
    if (token)
        text_append_format(&text, "Authorization: Bearer %s\r\n", token);
    text_append_string(&text, "\r\n");
    text_append(&text, body, size);
    struct error err = {0};
    int fd = front_connect(rig);
    if (fd < 0 || !fd_write_all(fd, text.data, text.length, &err))
        rig_fail("send a request");
    return fd;
}

static void front_unchunk(struct front_reply *reply)
{
    size_t to = 0, from = 0;
    while (from < reply->size) {
        char *end;
        size_t length = strtoul(reply->body + from, &end, 16);
        from = (size_t)(end - reply->body) + 2;
        if (length == 0 || from + length > reply->size)
            break;
        memmove(reply->body + to, reply->body + from, length);
        to += length;
        from += length + 2;
    }
    reply->size = to;
    reply->body[to] = 0;
}

/** Reads to the end of the connection and closes. */
static UNUSED struct front_reply front_read(int fd)
{
    AUTO_TEXT text = {0};
    char block[65536];
    ssize_t got;
    while ((got = read(fd, block, sizeof block)) > 0)
        text_append(&text, block, (size_t)got);
    close(fd);
    struct front_reply reply = {.status = -1};
    char *end = text.data ? strstr(text.data, "\r\n\r\n") : NULL;
    if (!end) {
        reply.head = strdup("");
        reply.body = strdup("");
        return reply;
    }
    reply.status = atoi(text.data + 9);
    reply.head = strndup(text.data, (size_t)(end - text.data));
    reply.size = text.length - (size_t)(end + 4 - text.data);
    reply.body = malloc(reply.size + 1);
    memcpy(reply.body, end + 4, reply.size);
    reply.body[reply.size] = 0;
    if (strcasestr(reply.head, "transfer-encoding: chunked"))
        front_unchunk(&reply);
    return reply;
}

/** `rest` is what follows /s/FRONT_SANDBOX. */
static UNUSED struct front_reply front_call(const struct front_rig *rig, const char *method, const char *rest,
                                            const char *token, const char *body)
{
    char path[512];
    snprintf(path, sizeof path, "/s/" FRONT_SANDBOX "%s", rest);
    return front_read(front_send_request(rig, method, path, token, body ? body : "", body ? strlen(body) : 0));
}

/** exec with the rig's token. */
static UNUSED struct front_reply front_exec(const struct front_rig *rig, const char *body)
{
    return front_call(rig, "POST", "/exec", rig->token, body);
}

/** What the events of a reply say of one stream, put together; checks that offsets have no hole but at a gap. */
static UNUSED char *front_join(const struct front_reply *reply, const char *stream, uint64_t *start)
{
    AUTO_TEXT text = {0};
    bool first = true;
    uint64_t next = 0;
    char *rest = NULL, *copy = strndup(reply->body, reply->size);
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_error_t wrong;
        json_t *event = json_loads(line, 0, &wrong);
        const char *type = json_string_value(json_object_get(event, "type"));
        CHECK(type != NULL);
        if (type && strcmp(type, stream) == 0) {
            uint64_t offset = (uint64_t)json_integer_value(json_object_get(event, "offset"));
            const json_t *data = json_object_get(event, "data");
            CHECK(first || offset == next);
            if (first && start)
                *start = offset;
            first = false;
            text_append(&text, json_string_value(data), json_string_length(data));
            next = offset + json_string_length(data);
        }
        json_decref(event);
    }
    free(copy);
    text_append(&text, "", 0);
    return text.data ? TAKE(text.data) : strdup("");
}

/** The number at a path of two names ("end" NULL: one) in the reply's JSON; -1 when there is none. */
static UNUSED int64_t front_number(const struct front_reply *reply, const char *name, const char *inner)
{
    json_error_t wrong;
    json_t *object = json_loads(reply->body, 0, &wrong);
    const json_t *value = json_object_get(object, name);
    if (inner)
        value = json_object_get(value, inner);
    int64_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    json_decref(object);
    return number;
}
