/* helpers_test.c - file helpers in a sandbox: as its user, in their own cgroup, gone with their socket or the sandbox.
 */
#include "sandboxd/front_files/front_files.h"
#include "tests/unit/sandboxd/init/init_rig.h"

/* The front's end of a new helper. */
static int open_helper(struct rig *rig)
{
    int ends[2];
    struct timeval limit = {.tv_sec = RIG_PATIENCE_MS / 1000};
    struct front_init_message message = {.type = FI_HELPER, .as.helper.kind = FRONT_FILES_HELPER_KIND};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(rig_send(rig, &message, ends[1]));
    close(ends[1]);
    return ends[0];
}

/* The first record of the answer; `end` is the last. */
static struct files_record receive(int socket)
{
    static char packet[FRONT_FILES_PACKET_MAX];
    struct files_record record = {0};
    struct error err = {0};
    size_t at = 0;
    ssize_t size = recv(socket, packet, sizeof packet, 0);
    if (size > 0)
        CHECK(front_files_packet_next(packet, (size_t)size, &at, &record, &err) == 1);
    return record;
}

static struct files_record ask_stat(int socket, const char *path)
{
    const struct files_request request = {.operation = FILES_STAT, .path = path};
    struct error err = {0};
    CHECK(front_files_request_send(socket, &request, -1, &err));
    return receive(socket);
}

static bool ends(int socket)
{
    char byte;
    return recv(socket, &byte, 1, 0) == 0;
}

static bool run_says(struct rig *rig, const char *id, const char *script, const char *want)
{
    struct rig_result result = rig_run(rig, id, NULL, script);
    bool is_said = result.output && strcmp(result.output, want) == 0;
    if (!is_said)
        fprintf(stderr, "said \"%s\", want \"%s\"\n", result.output ? result.output : "", want);
    rig_result_done(&result);
    return is_said;
}

static void test_serves(void)
{
    struct rig rig;
    rig_open_connected(&rig, NULL);
    int helper = open_helper(&rig);
    struct files_record record = ask_stat(helper, "/etc");
    CHECK(record.kind == FILES_ENTRY && record.type == FILES_FOLDER);
    /* It is the commands' user, has no rights and its filter, and nobody may look into it. */
    CHECK(run_says(&rig, "who",
                   "for p in /proc/[0-9]*; do read name < $p/comm; [ \"$name\" = init-files ] || continue; "
                   "grep -E '^(Uid|CapEff|NoNewPrivs|Seccomp):' $p/status | tr -s '\\t\\n' '  '; "
                   "ls $p/fd >/dev/null 2>&1 && echo open || echo closed; "
                   "grep -o 'run/e[0-9]*$\\|/e[0-9]*$' $p/cgroup | wc -l; done",
                   "Uid: 1000 1000 1000 1000 CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2 closed\n1\n"));
    close(helper);
    CHECK(run_says(&rig, "gone",
                   "for i in $(seq 200); do grep -qs init-files /proc/[0-9]*/comm || break; sleep 0.05; done; "
                   "grep -ls init-files /proc/[0-9]*/comm | wc -l",
                   "0\n"));
    CHECK(rig_wait_cgroups(&rig, 0)); /* but the spare child's */
    CHECK(rig_terminate(&rig, 1000) && rig_wait(&rig) == 0);
    CHECK(rig_close(&rig)); /* checks that no cgroup is left */
}

static struct files_record ask(int socket, enum files_operation operation, const char *path, int descriptor)
{
    const struct files_request request = {.operation = operation, .path = path};
    struct error err = {0};
    CHECK(front_files_request_send(socket, &request, descriptor, &err));
    return operation == FILES_WRITE ? (struct files_record){0} : receive(socket);
}

static struct files_record put(int socket, const char *path, const char *text)
{
    int pipe_ends[2];
    struct error err = {0};
    const struct files_request commit = {.operation = FILES_COMMIT, .size = strlen(text)};
    CHECK(pipe(pipe_ends) == 0);
    (void)ask(socket, FILES_WRITE, path, pipe_ends[0]);
    CHECK(write(pipe_ends[1], text, strlen(text)) == (ssize_t)strlen(text));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    CHECK(front_files_request_send(socket, &commit, -1, &err));
    return receive(socket);
}

/* It is not dumpable, but its own /proc/self/fd, which opening and naming a file need, it can use. */
static void test_files(void)
{
    struct rig rig;
    char path[64], text[16] = "";
    rig_open_connected(&rig, NULL);
    int helper = open_helper(&rig);
    (void)snprintf(path, sizeof path, "/tmp/parley-helpers-test-%d", getpid());
    for (int i = 0; i < 2; i++) { /* made, replaced */
        struct files_record made = put(helper, path, i ? "two" : "one");
        CHECK(made.kind == FILES_ENTRY && made.version.size == 3 && made.uid == INHERIT_USER_UID);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) == 3 && strcmp(text, "two") == 0);
    close(fd);
    CHECK(ask(helper, FILES_OPEN, path, -1).kind == FILES_ENTRY);
    struct files_record record = receive(helper); /* DONE in its own packet */
    CHECK(record.kind == FILES_DONE);
    CHECK(ask(helper, FILES_OPEN, "/etc/shadow", -1).error.kind == ERROR_FORBIDDEN);
    CHECK(ask(helper, FILES_OPEN, "/proc/version", -1).kind == FILES_ENTRY);
    CHECK(ask(helper, FILES_REMOVE, path, -1).kind == FILES_DONE);
    CHECK(access(path, F_OK) < 0);
    close(helper);
    CHECK(rig_terminate(&rig, 1000) && rig_wait(&rig) == 0);
    CHECK(rig_close(&rig));
}

static void test_many(void)
{
    enum { MOST = 64 };
    const struct files_request stat_root = {.operation = FILES_STAT, .path = "/"};
    struct error err = {0};
    struct rig rig;
    int helpers[MOST];
    rig_open_connected(&rig, NULL);
    for (int i = 0; i < MOST; i++)
        helpers[i] = open_helper(&rig);
    for (int i = 0; i < MOST; i++)
        CHECK(ask_stat(helpers[i], "/").kind == FILES_ENTRY);
    int one_more = open_helper(&rig);
    struct files_record refusal = receive(one_more);
    CHECK(refusal.kind == FILES_ERROR && refusal.error.kind == ERROR_NO_CAPACITY);
    CHECK(ends(one_more));
    close(one_more);
    close(helpers[0]);
    struct files_record record = {0};
    for (int i = 0; i < 200 && record.kind != FILES_ENTRY; i++) {
        int again = open_helper(&rig);
        if (front_files_request_send(again, &stat_root, -1, &err)) /* a refused one may be closed already */
            record = receive(again);
        close(again);
        poll(NULL, 0, 20);
    }
    CHECK(record.kind == FILES_ENTRY);
    CHECK(rig_terminate(&rig, 60000));
    for (int i = 1; i < MOST; i++) {
        CHECK(ends(helpers[i]));
        close(helpers[i]);
    }
    CHECK(rig_wait(&rig) == 0);
    CHECK(rig_close(&rig));
}

/* One in the middle of its work does not hold up the end, whose grace is long. */
static void test_termination(void)
{
    struct rig rig;
    int pipe_ends[2];
    struct error err = {0};
    rig_open_connected(&rig, NULL);
    int helper = open_helper(&rig);
    CHECK(pipe(pipe_ends) == 0);
    const struct files_request request = {.operation = FILES_WRITE, .path = "/tmp/file"};
    CHECK(front_files_request_send(helper, &request, pipe_ends[0], &err));
    uint64_t begin = clock_monotonic_ns();
    CHECK(rig_terminate(&rig, 60000));
    CHECK(rig_wait(&rig) == 0);
    CHECK(clock_monotonic_ns() - begin < 15000000000);
    close(helper);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    CHECK(rig_close(&rig));
}

int main(void)
{
    test_serves();
    test_files();
    test_many();
    test_termination();
    return check_done();
}
