/* create_client.c - one light client for the benches of create.py: many clients in one thread, each with a kept-alive
 * connection to the negotiator and one to sandboxd, as a client library has them. Its own processor time is printed,
 * so that nobody takes it for the server's.
 *
 * usage: bench-create_client URL      the admin key in PARLEY_API_KEY; then lines on stdin, each answered by a line:
 *   negotiate JSON        the body of every POST /threads/<new>/sandbox
 *   exec [JSON]           one more POST /exec after it; without JSON: none
 *   run COUNT CLIENTS     creates and execs, COUNT of them by CLIENTS at once; the sandboxes live on
 *   destroy COUNT CLIENTS the oldest of them
 *   churn MS CLIENTS      each client creates, execs and destroys until the time is over
 * The answer of the last three: {"count","failed","first_failure","wall_us","client_us","warm","total_us":[..],
 * "negotiate_us":[..],"exec_us":[[..]..],"destroy_us":[..]}. */
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { CLIENTS_MAX = 4096, EXECS_MAX = 8, SAMPLES_MAX = 200000, EVENTS = 256, REPLY_MAX = 1 << 20, LINE_MAX_ = 65536 };

_Noreturn static void give_up(const char *what)
{
    fprintf(stderr, "create_client: %s\n", what);
    exit(1);
}

/* --- what there is to do --- */

struct grant {
    char *id, *path, *token;
    uint16_t port;
};

enum phase { PHASE_NEGOTIATE, PHASE_EXEC, PHASE_DESTROY, PHASE_IDLE };

struct link {
    int fd;
    uint16_t port;
};

struct client {
    enum phase phase;
    unsigned exec;
    struct link negotiator, node, *used;
    struct text request, reply;
    size_t sent;
    bool retried;
    struct grant grant;
    uint64_t started_ns, step_ns;
};

struct samples {
    uint64_t *us;
    size_t count;
};

static struct {
    char *host_header, *base, *key;
    uint16_t port;
    char *negotiate, *exec[EXECS_MAX];
    unsigned execs;
    unsigned long serial;
    struct grant *living;
    size_t first, end, capacity; /* of `living`, oldest first */
    int epoll;
    struct client clients[CLIENTS_MAX];
} bench = {.epoll = -1};

static struct {
    bool is_destroy, is_churn;
    uint64_t left, until_ns;
    size_t busy, failed, warm, done;
    char first_failure[300];
    struct samples total, negotiate, exec[EXECS_MAX], destroy;
} job;

static void sample(struct samples *to, uint64_t ns)
{
    if (to->us == NULL)
        to->us = memory_array(SAMPLES_MAX, sizeof *to->us);
    if (to->count < SAMPLES_MAX)
        to->us[to->count++] = ns / 1000;
}

static void grant_done(struct grant *grant)
{
    free(grant->id);
    free(grant->path);
    free(grant->token);
    *grant = (struct grant){0};
}

static void keep(struct grant *grant)
{
    if (bench.end == bench.capacity) {
        bench.capacity = bench.capacity ? bench.capacity * 2 : 1024;
        bench.living = memory_resize(bench.living, bench.capacity * sizeof *bench.living);
    }
    bench.living[bench.end++] = *grant;
    *grant = (struct grant){0};
}

/* --- connections --- */

static void link_close(struct link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
}

/* A kept-alive connection that the server closed meanwhile is opened again, as a library does. */
static bool link_open(struct link *link, struct client *owner, uint16_t port)
{
    char byte;
    if (link->fd >= 0 && link->port == port && recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
        return true;
    link_close(link);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof at) < 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = owner};
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || epoll_ctl(bench.epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        give_up("epoll_ctl");
    *link = (struct link){.fd = fd, .port = port};
    return true;
}

static void watch(struct client *client, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = client};
    if (epoll_ctl(bench.epoll, EPOLL_CTL_MOD, client->used->fd, &event) < 0)
        give_up("epoll_ctl");
}

/* --- one step: a request and its reply --- */

static void next_step(struct client *client);

static void begin_work(struct client *client)
{
    bool is_over = job.is_churn ? clock_monotonic_ns() >= job.until_ns : job.left == 0;
    client->phase = is_over ? PHASE_IDLE : job.is_destroy ? PHASE_DESTROY : PHASE_NEGOTIATE;
    client->exec = 0;
    if (is_over) {
        job.busy--;
        return;
    }
    job.left -= !job.is_churn;
    if (job.is_destroy)
        client->grant = bench.living[bench.first++];
    client->started_ns = clock_monotonic_ns();
    next_step(client);
}

static void fail(struct client *client, const char *why, size_t length)
{
    if (job.failed++ == 0)
        snprintf(job.first_failure, sizeof job.first_failure, "phase %d: %.*s", (int)client->phase,
                 (int)(length < 250 ? length : 250), why);
    link_close(client->used);
    if (client->grant.id)
        keep(&client->grant); /* so that it is destroyed in the end */
    begin_work(client);
}

static void send_rest(struct client *client)
{
    while (client->sent < client->request.length) {
        ssize_t sent = send(client->used->fd, client->request.data + client->sent,
                            client->request.length - client->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            watch(client, EPOLLIN | EPOLLOUT);
            return;
        }
        if (sent < 0) {
            fail(client, "send", 4);
            return;
        }
        client->sent += (size_t)sent;
    }
}

static void compose(struct client *client, const char *method, const char *path, const char *token, const char *body)
{
    client->request.length = client->reply.length = client->sent = 0;
    text_append_format(&client->request,
                       "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\n\r\n%s",
                       method, path, bench.host_header, token, strlen(body), body);
}

static void next_step(struct client *client)
{
    char path[256];
    const struct grant *grant = &client->grant;
    bool is_exec = client->phase == PHASE_EXEC;
    client->used = is_exec ? &client->node : &client->negotiator;
    client->step_ns = clock_monotonic_ns();
    client->retried = false;
    if (!link_open(client->used, client, is_exec ? grant->port : bench.port)) {
        fail(client, "connect", 7);
        return;
    }
    if (is_exec) {
        snprintf(path, sizeof path, "%s/exec", grant->path);
        compose(client, "POST", path, grant->token, bench.exec[client->exec]);
    } else if (client->phase == PHASE_NEGOTIATE) {
        snprintf(path, sizeof path, "%s/threads/bench-%lu/sandbox", bench.base, bench.serial++);
        compose(client, "POST", path, bench.key, bench.negotiate);
    } else {
        snprintf(path, sizeof path, "%s/sandboxes/%s", bench.base, grant->id);
        compose(client, "DELETE", path, bench.key, "");
    }
    send_rest(client);
}

/* "http://host:port/path" */
static bool take_url(const char *url, uint16_t *port, char **path)
{
    const char *at = strstr(url, "://");
    const char *colon = at ? strchr(at + 3, ':') : NULL;
    const char *slash = colon ? strchr(colon, '/') : NULL;
    size_t length = colon ? (slash ? (size_t)(slash - colon) : strlen(colon)) - 1 : 0;
    uint64_t number = 0;
    if (!colon || !text_parse_u64(colon + 1, length, UINT16_MAX, &number))
        return false;
    *port = (uint16_t)number;
    *path = memory_string(slash ? slash : "");
    return true;
}

static bool take_grant(struct client *client, const char *body, size_t length)
{
    json_t *reply = json_loadb(body, length, 0, NULL);
    const char *id = NULL, *url = NULL, *token = NULL;
    int is_warm = 0;
    bool good = reply && json_unpack(reply, "{s:s,s:{s:s,s?b},s:{s:s}}", "token", &token, "sandbox", "id", &id, "warm",
                                     &is_warm, "endpoints", "http", &url) == 0;
    good = good && take_url(url, &client->grant.port, &client->grant.path);
    if (good) {
        client->grant.id = memory_string(id);
        client->grant.token = memory_string(token);
        job.warm += is_warm != 0;
    }
    json_decref(reply);
    return good;
}

static void step_done(struct client *client, const char *body, size_t length)
{
    uint64_t now = clock_monotonic_ns(), took = now - client->step_ns;
    if (client->phase == PHASE_NEGOTIATE) {
        sample(&job.negotiate, took);
        if (!take_grant(client, body, length)) {
            fail(client, body, length);
            return;
        }
        client->phase = PHASE_EXEC;
    } else if (client->phase == PHASE_EXEC) {
        sample(&job.exec[client->exec++], took);
        if (!memmem(body, length, "\"exit_code\":0", 13)) {
            fail(client, body, length);
            return;
        }
    } else {
        sample(&job.destroy, took);
        grant_done(&client->grant);
        job.done++;
        begin_work(client);
        return;
    }
    if (client->exec < bench.execs) {
        next_step(client);
        return;
    }
    sample(&job.total, now - client->started_ns);
    client->phase = PHASE_DESTROY;
    if (job.is_churn) {
        next_step(client);
        return;
    }
    job.done++;
    keep(&client->grant);
    begin_work(client);
}

/* Whole when the head is there and as many bytes as Content-Length says; our servers always say it here. */
static bool is_whole(const struct text *reply, size_t *body)
{
    const char *end = reply->length ? memmem(reply->data, reply->length, "\r\n\r\n", 4) : NULL;
    if (end == NULL)
        return false;
    *body = (size_t)(end - reply->data) + 4;
    const char *line = strcasestr(reply->data, "\r\ncontent-length:");
    size_t expected = line && line < end ? strtoul(line + 17, NULL, 10) : 0;
    return reply->length >= *body + expected;
}

static void on_readable(struct client *client)
{
    char bytes[16384];
    ssize_t got = recv(client->used->fd, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0 && client->reply.length == 0 && !client->retried) { /* closed as we sent: once more */
        uint16_t port = client->used->port;
        link_close(client->used);
        client->retried = true;
        client->sent = 0;
        if (link_open(client->used, client, port))
            send_rest(client);
        else
            fail(client, "connect", 7);
        return;
    }
    if (got <= 0 || client->reply.length > REPLY_MAX) {
        fail(client, "the connection ended", 20);
        return;
    }
    text_append(&client->reply, bytes, (size_t)got);
    size_t body = 0;
    if (!is_whole(&client->reply, &body))
        return;
    if (client->reply.data[9] == '2')
        step_done(client, client->reply.data + body, client->reply.length - body);
    else
        fail(client, client->reply.data + body, client->reply.length - body);
}

/* --- jobs --- */

static void on_event(const struct epoll_event *event)
{
    struct client *client = event->data.ptr;
    char byte;
    if (client->phase == PHASE_IDLE || client->used->fd < 0)
        return;
    if (event->events & EPOLLOUT) {
        watch(client, EPOLLIN);
        send_rest(client);
    } else if (recv(client->used->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
        on_readable(client); /* not for the other connection, which the server may close */
    } else {
        struct link *other = client->used == &client->node ? &client->negotiator : &client->node;
        if (other->fd >= 0 && recv(other->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            link_close(other);
    }
}

static uint64_t processor_us(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void print_samples(const char *name, struct samples *samples)
{
    printf(",\"%s\":[", name);
    for (size_t i = 0; i < samples->count; i++)
        printf("%s%" PRIu64, i ? "," : "", samples->us[i]);
    printf("]");
    samples->count = 0;
}

static void print_job(uint64_t wall_us, uint64_t client_us)
{
    json_t *failure = json_string_nocheck(job.first_failure);
    char *text = failure ? json_dumps(failure, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    printf("{\"count\":%zu,\"failed\":%zu,\"first_failure\":%s,\"wall_us\":%" PRIu64 ",\"client_us\":%" PRIu64
           ",\"warm\":%zu",
           job.done, job.failed, text ? text : "null", wall_us, client_us, job.warm);
    free(text);
    json_decref(failure);
    print_samples("total_us", &job.total);
    print_samples("negotiate_us", &job.negotiate);
    print_samples("destroy_us", &job.destroy);
    printf(",\"exec_us\":[");
    for (unsigned i = 0; i < bench.execs; i++) {
        printf("%s{\"number\":%u", i ? "," : "", i);
        print_samples("us", &job.exec[i]);
        printf("}");
    }
    printf("]}\n");
    fflush(stdout);
}

static void run_job(size_t clients)
{
    struct epoll_event events[EVENTS];
    job.busy = clients;
    for (size_t i = 0; i < clients; i++) {
        /* The negotiator's connections are there before the clock starts. */
        if (!link_open(&bench.clients[i].negotiator, &bench.clients[i], bench.port))
            give_up("connect to the negotiator");
        bench.clients[i].phase = PHASE_IDLE;
        bench.clients[i].used = &bench.clients[i].negotiator;
    }
    uint64_t processor = processor_us(), started = clock_monotonic_ns();
    job.until_ns += started;
    for (size_t i = 0; i < clients; i++)
        begin_work(&bench.clients[i]);
    while (job.busy > 0) {
        int count = epoll_wait(bench.epoll, events, EVENTS, 180000);
        if (count <= 0)
            give_up("no reply for 180 s");
        for (int i = 0; i < count; i++)
            on_event(&events[i]);
    }
    print_job((clock_monotonic_ns() - started) / 1000, processor_us() - processor);
}

static void obey(const char *word, const char *rest)
{
    unsigned long many = 0, clients = 0;
    if (strcmp(word, "negotiate") == 0) {
        free(bench.negotiate);
        bench.negotiate = memory_string(rest);
    } else if (strcmp(word, "exec") == 0) {
        while (!*rest && bench.execs > 0)
            free(bench.exec[--bench.execs]);
        if (*rest && bench.execs < EXECS_MAX)
            bench.exec[bench.execs++] = memory_string(rest);
    } else if (sscanf(rest, "%lu %lu", &many, &clients) == 2 && clients >= 1 && clients <= CLIENTS_MAX) {
        job.is_churn = strcmp(word, "churn") == 0;
        job.is_destroy = strcmp(word, "destroy") == 0;
        job.until_ns = job.is_churn ? many * 1000000ULL : 0;
        size_t living = bench.end - bench.first;
        job.left = job.is_destroy && many > living ? living : many;
        job.failed = job.warm = job.done = 0;
        job.first_failure[0] = '\0';
        run_job(clients);
        return;
    } else {
        give_up("a line that is none of negotiate, exec, run, destroy, churn");
    }
    puts("{}");
    fflush(stdout);
}

int main(int argc, char *argv[])
{
    static char line[LINE_MAX_];
    struct rlimit files;
    bench.key = getenv("PARLEY_API_KEY");
    if (argc != 2 || !bench.key || !take_url(argv[1], &bench.port, &bench.base))
        give_up("usage: bench-create_client http://127.0.0.1:PORT, with PARLEY_API_KEY");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_IGN);
    bench.host_header = memory_printf("127.0.0.1:%u", bench.port);
    bench.negotiate = memory_string("{}");
    bench.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        bench.clients[i].negotiator.fd = bench.clients[i].node.fd = -1;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        char *rest = line + strcspn(line, " ");
        char *argument = *rest ? rest + 1 : rest;
        *rest = '\0';
        obey(line, argument);
    }
    return 0;
}
