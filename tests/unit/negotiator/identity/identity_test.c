/* identity_test.c - the threads: keys from files and servers, rotation, a source that hangs or is flooded with unknown
 * key ids, what is remembered, and who waits when it ends; and the operator's file. */
#include "negotiator/identity/identity.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/capability/keys.h"
#include "shared/http/server.h"
#include "tests/unit/negotiator/identity/tokens.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static char folder[64];
static EVP_PKEY *first, *second;

/* ---- places ---- */

static const char *place(const char *name)
{
    static char paths[4][128];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, 128, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    struct error err = {0};
    CHECK(fd_write_file(place(name), 0600, text, strlen(text), &err));
}

static char *set_of(EVP_PKEY *key, const char *kid)
{
    AUTO_FREE char *jwk = jwk_of(key, kid, "");
    return memory_printf("{\"keys\":[%s]}", jwk);
}

static void write_issuers(const char *jwks, const char *more)
{
    AUTO_FREE char *text = memory_printf(
        "{\"issuers\":[{\"name\":\"corp\",\"issuer\":\"https://id\",\"audience\":\"parley\",\"algorithms\":"
        "[\"ES256\"],\"jwks\":\"%s\"}%s]}",
        jwks, more);
    write_file("identity.json", text);
}

static char *fresh(EVP_PKEY *key, const char *kid, const char *issuer, int64_t lives_s)
{
    AUTO_FREE char *header = memory_printf("{\"alg\":\"ES256\",\"kid\":\"%s\"}", kid);
    AUTO_FREE char *claims = memory_printf("{\"iss\":\"%s\",\"aud\":\"parley\",\"sub\":\"ada\",\"exp\":%lld}", issuer,
                                           (long long)(clock_wall_ms() / 1000 + lives_s));
    return token(key, header, claims);
}

/* ---- asking ---- */

struct asked {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_over;
    struct principal principal;
    struct error err;
};

static void on_done(void *cookie, const struct principal *principal, const struct error *err)
{
    struct asked *asked = cookie;
    pthread_mutex_lock(&asked->mutex);
    asked->is_over = true;
    if (principal)
        asked->principal = *principal;
    asked->err = *err;
    pthread_cond_signal(&asked->changed);
    pthread_mutex_unlock(&asked->mutex);
}

static void await(struct asked *asked)
{
    pthread_mutex_lock(&asked->mutex);
    while (!asked->is_over)
        pthread_cond_wait(&asked->changed, &asked->mutex);
    pthread_mutex_unlock(&asked->mutex);
}

/* "corp:ada", or the error's code; takes the token. */
static const char *ask(struct identity *identity, char *text)
{
    static struct asked asked;
    struct error err = {0};
    AUTO_FREE char *held = text;
    asked = (struct asked){.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    CHECK(identity_is_outside(identity, held));
    CHECK(identity_verify(identity, held, on_done, &asked, &err));
    await(&asked);
    return asked.principal.name[0] ? asked.principal.name : error_code(asked.err.kind);
}

static struct identity *start(uint64_t again_ns)
{
    struct error err = {0};
    struct identity *identity = identity_open(place("identity.json"), again_ns, &err);
    CHECK_TEXT(err.message, "");
    if (identity == NULL)
        exit(1);
    CHECK(identity_start(identity, &err));
    return identity;
}

/* ---- keys in a file ---- */

static void test_file(void)
{
    AUTO_FREE char *old = set_of(first, "k1"), *new = set_of(second, "k2");
    write_file("jwks.json", old);
    write_issuers(place("jwks.json"), "");
    AUTO(identity) *identity = start(IDENTITY_AGAIN_NS);
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", 300)), "corp:ada");
    CHECK_TEXT(ask(identity, fresh(second, "k1", "https://id", 300)), "UNAUTHENTICATED");
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", -100)), "TOKEN_EXPIRED");
    write_file("jwks.json", new);
    CHECK_TEXT(ask(identity, fresh(second, "k2", "https://id", 300)), "UNAUTHENTICATED"); /* a minute is not over */
    identity_reload(identity);
    CHECK_TEXT(ask(identity, fresh(second, "k2", "https://id", 300)), "corp:ada"); /* it waits for the newer ones */
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", 300)), "UNAUTHENTICATED");
    write_file("jwks.json", "no keys");
    identity_reload(identity);
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", 300)), "UNAUTHENTICATED");
    CHECK_TEXT(ask(identity, fresh(second, "k2", "https://id", 300)), "corp:ada"); /* those of before stay */
    write_file("jwks.json", "{\"keys\":[]}");
    identity_reload(identity);
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", 300)), "UNAUTHENTICATED");
    CHECK_TEXT(ask(identity, fresh(second, "k2", "https://id", 300)), "UNAUTHENTICATED"); /* all were taken back */
}

static void test_remembered(void)
{
    AUTO_FREE char *set = set_of(first, "k1");
    write_file("jwks.json", set);
    write_issuers(place("jwks.json"), "");
    AUTO(identity) *identity = start(IDENTITY_AGAIN_NS);
    AUTO_FREE char *good = fresh(first, "k1", "https://id", 300), *late = fresh(first, "k1", "https://id", -30);
    struct principal principal = {.name = ""};
    CHECK(!identity_recall(identity, good, &principal));
    CHECK_TEXT(ask(identity, memory_string(good)), "corp:ada");
    CHECK(identity_recall(identity, good, &principal));
    CHECK_TEXT(principal.name, "corp:ada");
    CHECK_TEXT(ask(identity, memory_string(late)), "corp:ada"); /* clocks differ, */
    CHECK(!identity_recall(identity, late, &principal));        /* but it is not kept beyond its end */
    good[strlen(good) - 2] ^= 1;
    CHECK(!identity_recall(identity, good, &principal));
    good[strlen(good) - 2] ^= 1;
    identity_reload(identity);
    CHECK(!identity_recall(identity, good, &principal));
    AUTO_FREE char *foreign = fresh(first, "k1", "https://other", 300);
    CHECK(!identity_is_outside(identity, foreign) && !identity_is_outside(identity, "pk_x"));
    CHECK(!identity_is_outside(identity, NULL) && !identity_is_outside(NULL, good));
}

/* ---- keys from a server ---- */

static struct http_server *server;
static _Atomic(const char *) served;
static atomic_uint fetches;
static atomic_bool hangs;

static void handle(struct http_request *request)
{
    atomic_fetch_add(&fetches, 1);
    if (atomic_load(&hangs))
        return;
    const char *body = atomic_load(&served);
    if (strcmp(body, "elsewhere") == 0) {
        http_reply_header(request, "Location", "/other");
        http_reply_empty(request, 302);
    } else {
        http_reply_bytes(request, 200, "application/json", body, strlen(body));
    }
}

static void test_server(void)
{
    AUTO_FREE char *old = set_of(first, "k1"), *new = set_of(second, "k2"), *url = NULL;
    AUTO_FREE char *files = memory_printf(",{\"name\":\"other\",\"issuer\":\"https://other\",\"audience\":\"parley\","
                                          "\"algorithms\":[\"ES256\"],\"jwks\":\"%s\"}",
                                          place("jwks.json"));
    url = memory_printf("http://127.0.0.1:%u/jwks", http_server_port(server));
    write_file("jwks.json", old);
    write_issuers(url, files);
    atomic_store(&served, old);
    AUTO(identity) *identity = start(1); /* as if a minute were always over */
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", 300)), "corp:ada");
    atomic_store(&served, new);
    CHECK_TEXT(ask(identity, fresh(second, "k2", "https://id", 300)), "corp:ada"); /* rotation, nobody noticed */
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", 300)), "UNAUTHENTICATED");
    atomic_store(&served, "elsewhere"); /* no redirect is followed */
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", 300)), "UNAUTHENTICATED");
    CHECK_TEXT(ask(identity, fresh(second, "k2", "https://id", 300)), "corp:ada");
    AUTO_FREE char *huge = memory_new(300 * 1024);
    memset(huge, ' ', 300 * 1024 - 1);
    atomic_store(&served, huge);
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", 300)), "UNAUTHENTICATED");
    CHECK_TEXT(ask(identity, fresh(second, "k2", "https://id", 300)), "corp:ada");
    /* One whose server hangs keeps nobody else waiting, not even its own whose key is known. */
    atomic_store(&hangs, true);
    struct asked asked = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct error err = {0};
    AUTO_FREE char *unknown = fresh(first, "k3", "https://id", 300);
    unsigned before = atomic_load(&fetches);
    CHECK(identity_verify(identity, unknown, on_done, &asked, &err));
    while (atomic_load(&fetches) == before)
        poll(NULL, 0, 1);
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://other", 300)), "other:ada");
    CHECK_TEXT(ask(identity, fresh(second, "k2", "https://id", 300)), "corp:ada");
    CHECK(!asked.is_over);
    /* Many that wait for it are bounded, and answered when it ends. */
    static struct asked many[1100];
    unsigned taken = 0;
    for (size_t i = 0; i < 1100; i++) {
        many[i] = (struct asked){.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
        taken += identity_verify(identity, unknown, on_done, &many[i], &err);
    }
    CHECK(taken == 1023 && err.kind == ERROR_RATE_LIMITED);
    CHECK(atomic_load(&fetches) == before + 1);
    identity_stop(identity);
    CHECK(asked.is_over && asked.err.kind == ERROR_NO_CAPACITY && many[0].is_over && many[1000].is_over);
    atomic_store(&hangs, false);
}

/* Unknown ids make no more than one request a minute; keys that were never there are not the client's fault. */
static void test_flood(void)
{
    AUTO_FREE char *set = set_of(first, "k1"), *url = NULL;
    url = memory_printf("http://127.0.0.1:%u/jwks", http_server_port(server));
    write_issuers(url, "");
    atomic_store(&served, set);
    atomic_store(&fetches, 0);
    AUTO(identity) *identity = start(IDENTITY_AGAIN_NS);
    CHECK_TEXT(ask(identity, fresh(first, "k1", "https://id", 300)), "corp:ada");
    for (int i = 0; i < 100; i++)
        CHECK_TEXT(ask(identity, fresh(first, "k2", "https://id", 300)), "UNAUTHENTICATED");
    CHECK(atomic_load(&fetches) == 1);
    atomic_store(&served, "{");
    AUTO(identity) *none = start(IDENTITY_AGAIN_NS);
    CHECK_TEXT(ask(none, fresh(first, "k1", "https://id", 300)), "BAD_GATEWAY");
}

/* ---- the operator's file ---- */

static bool is_wrong(const char *fields, const char *why)
{
    struct issuers issuers = {0};
    struct error err = {0};
    AUTO_FREE char *text = memory_printf("{\"issuers\":[{%s}]}", fields);
    write_file("identity.json", text);
    bool is_read = issuers_load(&issuers, place("identity.json"), &err);
    issuers_done(&issuers);
    if (is_read || err.kind != ERROR_INVALID || strstr(err.message, why) == NULL)
        fprintf(stderr, "said \"%s\", want \"%s\"\n", err.message, why);
    return !is_read && err.kind == ERROR_INVALID && strstr(err.message, why) != NULL;
}

#define NAMED "\"name\":\"corp\",\"issuer\":\"https://id\",\"audience\":\"parley\""
#define ALGS  ",\"algorithms\":[\"RS256\"]"
#define WELL  NAMED ALGS ",\"jwks\":\"/keys.json\""

static void test_configuration(void)
{
    struct issuers issuers = {0};
    struct error err = {0};
    write_file("identity.json",
               "{\"issuers\":[{" WELL ",\"role_claim\":\"groups\",\"role_map\":{\"ops\":\"admin\"}}]}");
    CHECK(issuers_load(&issuers, place("identity.json"), &err) && issuers.count == 1 && !issuers.each[0].is_url);
    CHECK(issuers_find(&issuers, "https://id") && !issuers_find(&issuers, "https://id/") &&
          !issuers_find(&issuers, NULL));
    issuers_done(&issuers);
    CHECK(is_wrong(WELL ",\"jkws\":1", "issuers[0]: no field \"jkws\""));
    CHECK(is_wrong("\"name\":\"corp\"" ALGS ",\"audience\":\"p\",\"jwks\":\"/k\"", "issuers[0].issuer"));
    CHECK(is_wrong("\"name\":\"corp\",\"issuer\":\"i\"" ALGS ",\"jwks\":\"/k\"", "issuers[0].audience"));
    CHECK(is_wrong(NAMED ",\"jwks\":\"/k\"", "issuers[0].algorithms"));
    CHECK(is_wrong(NAMED ",\"algorithms\":[\"RS256\",\"HS256\"],\"jwks\":\"/k\"", "issuers[0].algorithms"));
    CHECK(is_wrong(NAMED ",\"algorithms\":[\"none\"],\"jwks\":\"/k\"", "issuers[0].algorithms"));
    CHECK(is_wrong(NAMED ALGS ",\"jwks\":\"keys.json\"", "issuers[0].jwks"));
    CHECK(is_wrong(NAMED ALGS ",\"jwks\":\"http://id.example/k\"", "issuers[0].jwks"));
    CHECK(is_wrong(NAMED ALGS ",\"jwks\":\"http://127.0.0.1.evil.example/k\"", "issuers[0].jwks"));
    CHECK(is_wrong(NAMED ALGS ",\"jwks\":\"https://user:pass@id.example/k\"", "issuers[0].jwks"));
    CHECK(is_wrong(NAMED ALGS ",\"jwks\":\"file:///etc/passwd\"", "issuers[0].jwks"));
    CHECK(is_wrong(WELL ",\"ca_file\":\"/nowhere\"", "issuers[0].ca_file"));
    CHECK(is_wrong(WELL ",\"default_role\":\"admin\"", "issuers[0].default_role"));
    CHECK(is_wrong(WELL ",\"role_claim\":\"groups\"", "role_map"));
    CHECK(is_wrong(WELL ",\"role_claim\":\"groups\",\"role_map\":{\"a\":\"root\"}", "issuers[0].role_map.a"));
    CHECK(is_wrong("\"name\":\"a:b\",\"issuer\":\"i\",\"audience\":\"p\"" ALGS ",\"jwks\":\"/k\"", "issuers[0].name"));
    CHECK(
        is_wrong("\"name\":\"share\",\"issuer\":\"i\",\"audience\":\"p\"" ALGS ",\"jwks\":\"/k\"", "issuers[0].name"));
    CHECK(is_wrong(WELL "},{" WELL, "issuers[0] and issuers[1]"));
    CHECK(identity_open(place("identity.json"), 1, &err) == NULL);
    CHECK(identity_open(place("missing.json"), 1, &err) == NULL && err.kind == ERROR_INVALID);
    write_issuers(place("missing.json"), "");
    CHECK(identity_open(place("identity.json"), 1, &err) == NULL && strstr(err.message, "the keys of issuer corp"));
}

/* Which folders may be read again: none that the state with its keys lies in. */
static void test_folders(void)
{
    AUTO_FREE char *set = set_of(first, "k1");
    char *folders[ISSUERS_MAX] = {NULL};
    struct error err = {0};
    write_file("jwks.json", set);
    write_issuers(place("jwks.json"), "");
    CHECK(fd_make_folders(place("state/inner"), 0700, &err));
    AUTO(identity) *identity = start(IDENTITY_AGAIN_NS);
    CHECK(identity_folders(identity, place("state"), folders) == 0 && identity_folders(identity, folder, folders) == 0);
    CHECK(identity_folders(identity, "/usr", folders) == 1);
    AUTO_FREE char *held = folders[0];
    CHECK_TEXT(held, folder);
}

int main(void)
{
    struct error err = {0};
    keys_start();
    snprintf(folder, sizeof folder, "/tmp/identity_test_XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    first = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    second = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    const struct http_route route = {"GET", "/jwks", 0, NULL, 0, handle};
    server = http_server_start(
        &(struct http_server_options){.host = "127.0.0.1", .loops = 1, .routes = &route, .route_count = 1}, &err);
    CHECK(server != NULL);
    test_configuration();
    test_folders();
    test_file();
    test_remembered();
    test_server();
    test_flood();
    http_server_free(server);
    EVP_PKEY_free(first);
    EVP_PKEY_free(second);
    CHECK(fd_remove_tree(folder, &err));
    return check_done();
}
