/* heartbeat_test.c - what a negotiator hears of a node, and when: differences, told again when an answer was lost; a
 * beat at once when asked; a page of marks that cannot be written, not over and over. */
#include "sandboxd/front/heartbeat.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/http/server.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

/* The negotiator. `mutex` guards all of it. */
static struct stand_in {
    pthread_mutex_t mutex;
    struct fl_identity identity;
    uint64_t number;
    unsigned beats, forget; /* answers that are lost */
    size_t sandboxes;       /* told by the last message */
    bool full;              /* likewise */
    json_int_t cursor;      /* likewise */
    int templates;          /* likewise; -1: not told */
    bool paused;            /* likewise, of the first */
    bool has_mark;          /* number 1, for whoever has it not */
} stand_in = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void nap(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static json_t *answer_to(const json_t *message)
{
    stand_in.beats++;
    stand_in.sandboxes = json_array_size(json_object_get(message, "sandboxes"));
    stand_in.full = json_is_true(json_object_get(message, "full"));
    const json_t *templates = json_object_get(message, "templates");
    stand_in.templates = templates ? (int)json_array_size(templates) : -1;
    stand_in.paused = json_is_true(json_object_get(json_array_get(json_object_get(message, "sandboxes"), 0), "paused"));
    CHECK_TEXT(json_string_value(json_object_get(message, "storage")), "btrfs");
    stand_in.cursor = json_integer_value(json_object_get(json_object_get(message, "marks"), "cursor"));
    json_t *answer = json_pack("{s:b,s:[],s:b}", "ok", 1, "ended_known", "full_wanted", 0);
    if (stand_in.has_mark && stand_in.cursor < 1)
        json_object_set_new(answer, "marks",
                            json_pack("{s:s,s:i,s:i,s:[{s:i,s:s,s:s,s:I}]}", "ledger_id", "led_1", "after", 0, "upto",
                                      1, "marks", "n", 1, "kind", "jti", "value", "tok_x", "until",
                                      (json_int_t)(clock_wall_ms() / 1000 + 600)));
    CHECK(answer != NULL);
    return answer;
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

static const struct http_route ROUTES[] = {{"POST", "/node/v1/message", 0, NULL, 1 << 20, handle}};

static struct http_server *serve(void)
{
    struct http_server_options options = {
        .host = "127.0.0.1", .loops = 1, .name = "stand-in", .routes = ROUTES, .route_count = 1};
    struct error err = {0};
    struct http_server *server = http_server_start(&options, &err);
    CHECK_TEXT(err.message, "");
    return server;
}

/* What was heard last, once `beats` were. */
static struct stand_in heard(unsigned beats, long within_ms)
{
    struct stand_in copy;
    for (long left = within_ms;; left -= 10) {
        pthread_mutex_lock(&stand_in.mutex);
        copy = stand_in;
        pthread_mutex_unlock(&stand_in.mutex);
        if (copy.beats >= beats || left <= 0)
            return copy;
        nap(10);
    }
}

static void test_first_and_woken(struct heartbeat *heartbeat)
{
    struct stand_in first = heard(1, 5000);
    CHECK(first.beats == 1 && first.full && first.sandboxes == 1 && first.templates == 1);
    heartbeat_wake(heartbeat);
    struct stand_in second = heard(2, 1000); /* by itself it would beat after 2 s */
    CHECK(second.beats == 2 && !second.full && second.sandboxes == 0 && second.templates == -1);
}

static bool tell_template(struct template_list *templates, const char *name)
{
    struct fl_template told = {.first = 1};
    CHECK(text_copy(told.name, sizeof told.name, name));
    template_list_take(templates, &told);
    return template_list_settle(templates);
}

/* The list is told when it changed, as a whole, and again when its answer was lost. */
static void test_templates(struct heartbeat *heartbeat, struct template_list *templates)
{
    unsigned before = heard(0, 0).beats;
    CHECK(!tell_template(templates, "base") && !template_list_settle(templates)); /* the same once more: no news */
    heartbeat_wake(heartbeat);
    CHECK(heard(before + 1, 5000).templates == -1);
    struct fl_template base = {.first = 1, .name = "base"}, python = {.name = "python"};
    template_list_take(templates, &base);
    heartbeat_wake(heartbeat);
    CHECK(heard(before + 2, 5000).templates == -1); /* half a round is none */
    template_list_take(templates, &python);
    CHECK(template_list_settle(templates) && !template_list_settle(templates));
    pthread_mutex_lock(&stand_in.mutex);
    stand_in.forget = 1;
    pthread_mutex_unlock(&stand_in.mutex);
    heartbeat_wake(heartbeat);
    CHECK(heard(before + 3, 5000).templates == 2);
    heartbeat_wake(heartbeat);
    CHECK(heard(before + 4, 5000).templates == 2);
    heartbeat_wake(heartbeat);
    CHECK(heard(before + 5, 5000).templates == -1);
}

static void put(struct registry *registry, const char *id)
{
    struct fl_sandbox sandbox = {.deadline_wall_ms = clock_wall_ms() + 60000, .epoch = 1};
    CHECK(text_copy(sandbox.id, sizeof sandbox.id, id));
    CHECK(registry_put(registry, &sandbox, clock_wall_ms()));
}

/* A difference whose answer was lost is told again, and then no more. */
static void test_lost_answer(struct heartbeat *heartbeat, struct registry *registry)
{
    unsigned beats = heard(0, 0).beats;
    pthread_mutex_lock(&stand_in.mutex);
    stand_in.forget = 1;
    pthread_mutex_unlock(&stand_in.mutex);
    put(registry, "sbx_second");
    heartbeat_wake(heartbeat);
    CHECK(heard(beats + 1, 1000).sandboxes == 1);
    nap(100);
    heartbeat_wake(heartbeat);
    CHECK(heard(beats + 2, 1000).sandboxes == 1);
    nap(100);
    heartbeat_wake(heartbeat);
    struct stand_in last = heard(beats + 3, 1000);
    CHECK(last.beats == beats + 3 && last.sandboxes == 0 && !last.full);
}

/* The page comes again with each answer, but answers are not fetched for that. With room again it is taken, and told at
 * once. */
static void test_page_that_cannot_be_written(struct heartbeat *heartbeat, struct marks *marks)
{
    struct rlimit before, none;
    struct capability_claims claims = {.jti = "tok_x", .epoch = 1};
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    pthread_mutex_lock(&stand_in.mutex);
    stand_in.has_mark = true;
    unsigned beats = stand_in.beats;
    pthread_mutex_unlock(&stand_in.mutex);
    heartbeat_wake(heartbeat);
    nap(1500);
    struct stand_in stuck = heard(0, 0);
    CHECK(stuck.beats > beats && stuck.beats <= beats + 3 && stuck.cursor == 0);
    CHECK(marks_refuses(marks, &claims, clock_wall_ms())); /* in force all the same */
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    heartbeat_wake(heartbeat);
    for (int tries = 0; tries < 100 && heard(0, 0).cursor == 0; tries++)
        nap(10);
    CHECK(heard(0, 0).cursor == 1);
}

static void open_identity(const struct http_server *server)
{
    struct fl_identity *identity = &stand_in.identity;
    strcpy(identity->node, "n1");
    strcpy(identity->issuer, "dpl_test");
    identity->incarnation = 7;
    identity->slots_max = 10;
    strcpy(identity->storage, "btrfs");
    memset(&identity->link_to_node, 1, sizeof identity->link_to_node);
    memset(&identity->link_from_node, 2, sizeof identity->link_from_node);
    CHECK(text_format(identity->negotiator_url, sizeof identity->negotiator_url, "http://127.0.0.1:%u",
                      http_server_port(server)));
}

int main(void)
{
    struct error err = {0};
    char path[] = "/tmp/heartbeat-test-XXXXXX";
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    keys_start();
    CHECK(mkdtemp(path) != NULL);
    struct http_server *server = serve();
    open_identity(server);
    AUTO_FD int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct marks *marks = marks_open(&(struct marks_options){.folder = folder}, &err);
    struct registry *registry = registry_new(1);
    struct node_seal *seal = node_seal_new(&stand_in.identity);
    struct template_list *templates = template_list_new();
    CHECK(tell_template(templates, "base"));
    put(registry, "sbx_first");
    struct heartbeat_options options = {
        .seal = seal, .registry = registry, .templates = templates, .marks = marks, .url = "http://127.0.0.1:1"};
    struct heartbeat *heartbeat = heartbeat_start(&options, &err);
    CHECK_TEXT(err.message, "");
    test_first_and_woken(heartbeat);
    test_lost_answer(heartbeat, registry);
    test_templates(heartbeat, templates);
    test_page_that_cannot_be_written(heartbeat, marks);
    heartbeat_stop(heartbeat);
    marks_free(marks);
    heartbeat_free(heartbeat);
    node_seal_free(seal);
    registry_free(registry);
    template_list_free(templates);
    http_server_free(server);
    CHECK(fd_remove_tree(path, &err));
    return check_done();
}
