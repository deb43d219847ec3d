/* guest_test.c - a front before a guest that was taken over: the test plays its keeper, and the front inside of it. */
#include "sandboxd/front_init/front_init.h"
#include "tests/unit/sandboxd/front/front_rig.h"

#include <pthread.h>
#include <sys/un.h>

enum { SAID_BYTES = 65536 };

/* The guest answers with `answer`, whatever it is asked, and keeps what that was. */
struct guest {
    char folder[64];
    int listener;
    pthread_mutex_t mutex;
    const char *answer;
    char said[SAID_BYTES];
};

/* ---- the guest ---- */

static void serve(struct guest *guest, int fd)
{
    char said[SAID_BYTES] = "";
    size_t length = 0;
    ssize_t got = 1;
    while (got > 0 && !strstr(said, "\r\n\r\n")) {
        got = read(fd, said + length, sizeof said - 1 - length);
        length += got > 0 ? (size_t)got : 0;
        said[length] = '\0';
    }
    pthread_mutex_lock(&guest->mutex);
    memcpy(guest->said, said, length + 1);
    const char *answer = guest->answer;
    pthread_mutex_unlock(&guest->mutex);
    (void)!send(fd, answer, strlen(answer), MSG_NOSIGNAL);
    close(fd);
}

static void keep(struct guest *guest, int front)
{
    struct front_init_message welcome = {.type = FI_WELCOME, .as.welcome.version = FRONT_INIT_VERSION};
    struct front_init_message current = {.type = FI_CURRENT}, message;
    struct error err = {0};
    int fds[FI_FDS_MAX], pair[2];
    size_t count = 0;
    (void)!front_init_send(front, &welcome, NULL, 0, &err);
    (void)!front_init_send(front, &current, NULL, 0, &err);
    while (front_init_receive(front, &message, FI_FROM_FRONT, fds, &count, &err) > 0) {
        if (message.type != FI_DIAL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            continue;
        struct front_init_message dialed = {.type = FI_DIALED, .as.dialed.number = message.as.dial.number};
        (void)!front_init_send(front, &dialed, &pair[0], 1, &err);
        close(pair[0]);
        serve(guest, pair[1]);
    }
    close(front);
}

static void *run(void *cookie)
{
    struct guest *guest = cookie;
    int front;
    while ((front = accept4(guest->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        keep(guest, front);
    return NULL;
}

/* In place of the rig's init. */
static void guest_open(struct guest *guest, const struct front_rig *rig)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char link[128];
    *guest = (struct guest){.folder = "/tmp/parley-guest-test-XXXXXX", .mutex = PTHREAD_MUTEX_INITIALIZER};
    if (!mkdtemp(guest->folder) || chmod(guest->folder, 0755) != 0)
        rig_fail("mkdtemp");
    snprintf(address.sun_path, sizeof address.sun_path, "%s/init.sock", guest->folder);
    guest->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(link, sizeof link, "%s/sandboxd/run/1", rig->state);
    if (bind(guest->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(guest->listener, 8) != 0 || chmod(address.sun_path, 0666) != 0 || unlink(link) != 0 ||
        symlink(guest->folder, link) != 0)
        rig_fail("the guest");
}

/* Once the front is a process of its own: a sanitizer wants no fork of a process with threads. */
static void guest_run(struct guest *guest)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, guest) != 0)
        rig_fail("the guest");
    pthread_detach(thread);
}

/* ---- the client ---- */

static struct front_reply ask(struct guest *guest, const struct front_rig *rig, const char *answer, const char *head)
{
    pthread_mutex_lock(&guest->mutex);
    guest->answer = answer;
    guest->said[0] = '\0';
    pthread_mutex_unlock(&guest->mutex);
    struct error err = {0};
    int fd = front_connect(rig);
    if (fd < 0 || !fd_write_all(fd, head, strlen(head), &err))
        rig_fail("send a request");
    return front_read(fd);
}

static bool was_told(struct guest *guest, const char *what)
{
    pthread_mutex_lock(&guest->mutex);
    bool found = strcasestr(guest->said, what) != NULL;
    pthread_mutex_unlock(&guest->mutex);
    return found;
}

static bool says(const struct front_reply *reply, const char *what)
{
    return strcasestr(reply->head, what) != NULL;
}

#define PLAIN "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
#define LOUD                                                                                                           \
    "HTTP/1.1 302 Found\r\nContent-Type: text/html\r\nContent-Length: 0\r\nSet-Cookie: a=b\r\nLocation: http://x/\r\n" \
    "Refresh: 0;url=http://x/\r\nAccess-Control-Allow-Origin: *\r\nClear-Site-Data: \"*\"\r\nLink: <x>\r\n"           \
    "Service-Worker-Allowed: /\r\nStrict-Transport-Security: max-age=1\r\nWWW-Authenticate: Basic\r\n"                 \
    "Content-Security-Policy: script-src *\r\n\r\n"

/* ---- what the guest is told ---- */

/* The token in what the guest was told, behind `before`. */
static void token_told(struct guest *guest, const char *before, char token[static CAPABILITY_TEXT_BYTES])
{
    pthread_mutex_lock(&guest->mutex);
    const char *at = strcasestr(guest->said, before);
    at = at ? at + strlen(before) : "";
    snprintf(token, CAPABILITY_TEXT_BYTES, "%.*s", (int)strcspn(at, "/ \r?"), at);
    pthread_mutex_unlock(&guest->mutex);
}

/* Good for the guest, by a key which it may have, and for nobody else. */
static void check_token(const struct front_rig *rig, const char *token, const char *scope)
{
    AUTO_KEY root;
    AUTO_KEY inside;
    struct capability_claims *claims = malloc(sizeof *claims);
    struct error err = {0};
    int64_t now = clock_wall_ms() / 1000;
    char granted[SCOPE_TEXT_BYTES] = "";
    key_sandbox_root(&root, &rig->node_key, FRONT_SANDBOX);
    key_guest_root(&inside, &root);
    struct capability_expectation expected = {
        .issuer = "dpl_test", .sandbox_id = FRONT_SANDBOX, .root = &root, .epoch = 1};
    CHECK(capability_verify(claims, &expected, token, strlen(token), now, &err) == CAPABILITY_WRONG_MAC);
    expected.root = &inside;
    enum capability_refusal inner = capability_verify(claims, &expected, token, strlen(token), now, &err);
    CHECK(inner == CAPABILITY_OK);
    if (inner == CAPABILITY_OK)
        scope_format(&claims->scopes, granted);
    CHECK_TEXT(granted, scope);
    free(claims);
}

static void test_token(struct guest *guest, const struct front_rig *rig)
{
    char head[3 * CAPABILITY_TEXT_BYTES], token[CAPABILITY_TEXT_BYTES], narrow[CAPABILITY_TEXT_BYTES],
        wide[CAPABILITY_TEXT_BYTES];
    const struct capability_link link = {.scope = "process"};
    struct error err = {0};
    snprintf(head, sizeof head,
             "GET /s/" FRONT_SANDBOX "/processes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nCookie: c=secret\r\n"
             "Referer: http://x/c/%s/a\r\nConnection: close\r\n\r\n",
             rig->token, rig->token);
    AUTO_REPLY reply = ask(guest, rig, PLAIN, head);
    CHECK(reply.status == 200 && !was_told(guest, rig->token) && !was_told(guest, "secret"));
    token_told(guest, "authorization: bearer ", token);
    check_token(rig, token, "process");
    snprintf(head, sizeof head, "GET /c/%s/processes?a=b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", rig->token);
    AUTO_REPLY by_path = ask(guest, rig, PLAIN, head);
    CHECK(by_path.status == 200 && !was_told(guest, rig->token) && was_told(guest, "/processes?a=b HTTP/1.1"));
    token_told(guest, "GET /c/", token);
    check_token(rig, token, "process");
    front_mint(rig, FRONT_SANDBOX, "process fs:rw", 600, wide);
    if (!capability_attenuate(narrow, wide, &link, &err))
        rig_fail(err.message);
    snprintf(head, sizeof head,
             "GET /s/" FRONT_SANDBOX "/processes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
             "Connection: close\r\n\r\n",
             narrow);
    AUTO_REPLY narrowed = ask(guest, rig, PLAIN, head);
    token_told(guest, "authorization: bearer ", token);
    CHECK(narrowed.status == 200);
    check_token(rig, token, "process");
}

/* ---- what it may say ---- */

static void test_answers(struct guest *guest, const struct front_rig *rig)
{
    static const char *const NEVER[] = {"set-cookie", "location", "refresh",          "access-control", "clear-site-data",
                                        "link:",      "service-worker", "strict-transport", "www-authenticate", "script-src"};
    char head[2 * CAPABILITY_TEXT_BYTES], port[CAPABILITY_TEXT_BYTES];
    snprintf(head, sizeof head, "GET /c/%s/processes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", rig->token);
    AUTO_REPLY loud = ask(guest, rig, LOUD, head);
    CHECK(loud.status == 302 && says(&loud, "content-type: text/html"));
    CHECK(says(&loud, "x-content-type-options: nosniff") && says(&loud, "content-security-policy: sandbox"));
    for (size_t i = 0; i < sizeof NEVER / sizeof NEVER[0]; i++)
        CHECK(!says(&loud, NEVER[i]));
    front_mint(rig, FRONT_SANDBOX, "port", 600, port);
    snprintf(head, sizeof head, "GET /c/%s/ports/80/ HTTP/1.1\r\nHost: x\r\nCookie: c=secret\r\nConnection: close\r\n\r\n",
             port);
    AUTO_REPLY app = ask(guest, rig, LOUD, head);
    CHECK(app.status == 302 && says(&app, "location: http://x/") && !says(&app, "set-cookie") &&
          !says(&app, "service-worker") && !says(&app, "clear-site") && !was_told(guest, "secret"));
}

static void test_broken(struct guest *guest, const struct front_rig *rig)
{
    static const char *const ANSWERS[] = {
        "HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: b\r\n Set-Cookie: a=b\x01\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nSet Cookie: a=b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nraw",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 999999 OK\r\n\r\n",
        "hello\r\n\r\n",
        "",
    };
    char head[2 * CAPABILITY_TEXT_BYTES];
    snprintf(head, sizeof head,
             "GET /c/%s/processes HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", rig->token);
    for (size_t i = 0; i < sizeof ANSWERS / sizeof ANSWERS[0]; i++) {
        AUTO_REPLY reply = ask(guest, rig, ANSWERS[i], head);
        bool is_refused = reply.status == 423 && !says(&reply, "set-cookie");
        CHECK(is_refused);
        if (!is_refused)
            fprintf(stderr, "answer %zu: %d\n%s\n", i, reply.status, reply.head);
    }
}

int main(void)
{
    struct front_rig rig;
    static struct guest guest;
    struct error err = {0};
    front_rig_open(&rig);
    rig.guest = "gvisor";
    guest_open(&guest, &rig);
    front_start(&rig, true);
    guest_run(&guest);
    test_token(&guest, &rig);
    test_answers(&guest, &rig);
    test_broken(&guest, &rig);
    CHECK(front_stop(&rig, SIGTERM) == 0);
    front_rig_close(&rig);
    CHECK(fd_remove_tree(guest.folder, &err));
    return check_done();
}
