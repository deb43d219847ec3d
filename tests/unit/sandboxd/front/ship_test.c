/* ship_test.c - records reach a negotiator that is away, that forgets its answers, and that refuses one of them. */
#include "sandboxd/front/ship.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"
#include "shared/http/server.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { RECORDS_MAX = 4096 };

/* The negotiator: stores each n once, as its ledger does. `mutex` guards all of it. */
static struct stand_in {
    pthread_mutex_t mutex;
    struct fl_identity identity;
    uint64_t number, upto;
    unsigned calls, forget; /* answers that are lost after storing */
    char refuse[32];        /* a message with a record of this detail is INVALID */
    char *details[RECORDS_MAX];
    unsigned doubles;
} stand_in = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void nap(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static const char *detail_of(const json_t *record)
{
    const char *detail = json_string_value(json_object_get(record, "detail"));
    return detail ? detail : "";
}

static void store(const json_t *records)
{
    size_t index;
    const json_t *record;
    json_array_foreach (records, index, record) {
        uint64_t n = (uint64_t)json_integer_value(json_object_get(record, "n"));
        stand_in.doubles += n <= stand_in.upto;
        if (n != stand_in.upto + 1 || n >= RECORDS_MAX)
            continue;
        stand_in.details[n] = strdup(detail_of(record));
        stand_in.upto = n;
    }
}

static json_t *answer_to(const json_t *message)
{
    size_t index;
    const json_t *record, *records = json_object_get(message, "records");
    CHECK_TEXT(json_string_value(json_object_get(message, "call")), "audit");
    json_array_foreach (records, index, record) {
        if (stand_in.refuse[0] && strcmp(detail_of(record), stand_in.refuse) == 0)
            return json_pack("{s:{s:s,s:s}}", "error", "code", "INVALID_REQUEST", "message", "not this one");
    }
    store(records);
    return json_pack("{s:b,s:O,s:I}", "ok", 1, "spool", json_object_get(message, "spool"), "upto",
                     (json_int_t)stand_in.upto);
}

static void handle(struct http_request *request)
{
    size_t size, sealed_size = 0;
    const char *body = http_request_body(request, &size);
    struct link_head head;
    struct error err = {0};
    uint8_t *sealed = NULL;
    pthread_mutex_lock(&stand_in.mutex);
    json_t *message = link_open(stand_in.identity.link_from_node.bytes, (const uint8_t *)body, size, &head, &err);
    CHECK(message != NULL);
    json_t *answer = answer_to(message);
    stand_in.calls++;
    bool forgets = stand_in.forget > 0;
    stand_in.forget -= forgets;
    struct link_head reply = {.incarnation = head.incarnation, .number = ++stand_in.number, .in_reply_to = head.number};
    CHECK(text_copy(reply.node, sizeof reply.node, head.node));
    CHECK(link_seal(stand_in.identity.link_to_node.bytes, &reply, answer, &sealed, &sealed_size, &err));
    pthread_mutex_unlock(&stand_in.mutex);
    error_set(&err, ERROR_INTERNAL, "forgotten");
    if (forgets)
        http_reply_error(request, &err);
    else
        http_reply_bytes(request, 200, "application/octet-stream", sealed, sealed_size);
    free(sealed);
    json_decref(answer);
    json_decref(message);
}

static bool allow(struct http_request *request UNUSED, const struct http_route *route UNUSED, struct error *err UNUSED)
{
    return true;
}

static const struct http_route ROUTES[] = {{"POST", "/node/v1/message", 0, NULL, 4 << 20, handle}};

static struct http_server *serve(uint16_t port)
{
    struct http_server_options options = {.host = "127.0.0.1",
                                          .port = port,
                                          .loops = 1,
                                          .name = "stand-in",
                                          .routes = ROUTES,
                                          .route_count = 1,
                                          .authorize = allow};
    struct error err = {0};
    struct http_server *server = http_server_start(&options, &err);
    CHECK_TEXT(err.message, "");
    return server;
}

/* ---- the node ---- */

struct node {
    char path[64];
    int folder;
    _Atomic(struct ship *) ship;
    struct node_seal *seal;
    struct spool *spool;
};

static void on_grown(void *context)
{
    struct node *node = context;
    ship_wake(node->ship);
}

static void open_node(struct node *node)
{
    struct error err = {0};
    CHECK(text_format(node->path, sizeof node->path, "/tmp/ship-test-XXXXXX") && mkdtemp(node->path));
    node->folder = open(node->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct spool_options options = {.folder = node->folder, .bytes_max = 8 << 20, .grown = on_grown, .context = node};
    node->seal = node_seal_new(&stand_in.identity);
    node->spool = spool_open(&options, &err);
    struct ship_options shipping = {.spool = node->spool, .seal = node->seal};
    node->ship = ship_start(&shipping, &err);
    CHECK(node->ship != NULL);
}

static void close_node(struct node *node)
{
    struct error err = {0};
    ship_stop(node->ship);
    spool_free(node->spool);
    ship_free(node->ship);
    node_seal_free(node->seal);
    close(node->folder);
    CHECK(fd_remove_tree(node->path, &err));
}

static void add(const struct node *node, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char detail[32];
        snprintf(detail, sizeof detail, "record %u", i);
        struct spool_record record = {.action = "exec", .principal = "ada", .detail = detail};
        struct error err = {0};
        CHECK(spool_add(node->spool, &record, &err));
    }
}

static bool all_shipped(const struct node *node, uint64_t upto)
{
    struct spool_figures figures = {.records = 1};
    for (int i = 0; i < 600 && (figures.records || stand_in.upto < upto); i++) {
        nap(20);
        pthread_mutex_lock(&stand_in.mutex);
        spool_figures(node->spool, &figures);
        pthread_mutex_unlock(&stand_in.mutex);
    }
    return figures.records == 0 && stand_in.upto == upto;
}

/* Stored under n = i + 1, each. */
static void check_stored(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        char detail[32];
        snprintf(detail, sizeof detail, "record %u", i);
        CHECK_TEXT(stand_in.details[i + 1], detail);
    }
}

/* ---- the test: one life, in stages ---- */

static struct http_server *test_plain(const struct node *node, struct http_server *server)
{
    add(node, 0, 700); /* more than one message takes */
    CHECK(all_shipped(node, 700));
    check_stored(0, 700);
    CHECK(stand_in.calls >= 2 && stand_in.calls < 50);
    return server;
}

static struct http_server *test_away(const struct node *node, struct http_server *server)
{
    uint16_t port = http_server_port(server);
    http_server_free(server);
    add(node, 700, 800);
    nap(700);
    CHECK(stand_in.upto == 700);
    server = serve(port);
    CHECK(all_shipped(node, 800));
    check_stored(700, 800);
    return server;
}

static void test_lost_answers(const struct node *node)
{
    pthread_mutex_lock(&stand_in.mutex);
    stand_in.forget = 2;
    pthread_mutex_unlock(&stand_in.mutex);
    add(node, 800, 900);
    CHECK(all_shipped(node, 900));
    check_stored(800, 900);
    CHECK(stand_in.doubles > 0); /* at least once on the way, once in the ledger */
}

/* One that is refused for ever does not keep the others; a note stands under its number. */
static void test_refused(const struct node *node)
{
    pthread_mutex_lock(&stand_in.mutex);
    strcpy(stand_in.refuse, "record 950");
    pthread_mutex_unlock(&stand_in.mutex);
    add(node, 900, 1000);
    CHECK(all_shipped(node, 1000));
    check_stored(900, 950);
    check_stored(951, 1000);
    CHECK_TEXT(stand_in.details[951], "the negotiator refused this record of the node: refused: not this one");
    unsigned calls = stand_in.calls;
    add(node, 1000, 1400); /* and then they go together again */
    CHECK(all_shipped(node, 1400));
    CHECK(stand_in.calls - calls < 50);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    keys_start();
    struct http_server *server = serve(0);
    struct fl_identity *identity = &stand_in.identity;
    strcpy(identity->node, "n1");
    strcpy(identity->issuer, "dpl_test");
    identity->incarnation = 7;
    memset(&identity->link_to_node, 1, sizeof identity->link_to_node);
    memset(&identity->link_from_node, 2, sizeof identity->link_from_node);
    CHECK(text_format(identity->negotiator_url, sizeof identity->negotiator_url, "http://127.0.0.1:%u",
                      http_server_port(server)));
    struct node node = {0};
    open_node(&node);
    server = test_plain(&node, server);
    server = test_away(&node, server);
    test_lost_answers(&node);
    test_refused(&node);
    close_node(&node);
    http_server_free(server);
    for (size_t i = 0; i < RECORDS_MAX; i++)
        free(stand_in.details[i]);
    return check_done();
}
