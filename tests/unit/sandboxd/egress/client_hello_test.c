/* The name of real ClientHellos, however they are cut into pieces and records; and what names nobody. */
#include "sandboxd/egress/client_hello.h"

#include "tests/unit/check.h"

#include <openssl/ssl.h>

static struct client_hello_maker *maker;

/* A ClientHello as OpenSSL's client says it. `name` NULL: without SNI. */
static size_t hello_of(const char *name, int version, uint8_t *to, size_t room)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    SSL *tls = SSL_new(context);
    BIO *input = BIO_new(BIO_s_mem());
    BIO *output = BIO_new(BIO_s_mem());
    SSL_set_bio(tls, input, output);
    if (name != NULL)
        SSL_set_tlsext_host_name(tls, name);
    (void)SSL_connect(tls);
    int size = BIO_read(output, to, (int)room);
    SSL_free(tls);
    SSL_CTX_free(context);
    CHECK(size > 50);
    return (size_t)size;
}

static enum client_hello_state read_in(const uint8_t *data, size_t size, size_t step, char *name, struct error *err)
{
    AUTO(client_hello) *hello = client_hello_new(maker);
    enum client_hello_state state = CLIENT_HELLO_MORE;
    for (size_t at = 0; at < size && state == CLIENT_HELLO_MORE; at += step)
        state = client_hello_read(hello, data + at, size - at < step ? size - at : step, err);
    if (state == CLIENT_HELLO_NAMED)
        strcpy(name, client_hello_name(hello));
    return state;
}

static enum client_hello_state read_all(const uint8_t *data, size_t size, char *name)
{
    struct error err = {0};
    enum client_hello_state state = read_in(data, size, size, name, &err);
    for (size_t step = 1; step < size; step = step * 2 + 1)
        CHECK(read_in(data, size, step, name, &err) == state);
    CHECK((state == CLIENT_HELLO_WRONG) == (err.message[0] != '\0'));
    return state;
}

static enum client_hello_state read_name(const char *name, char *got)
{
    uint8_t data[4096];
    size_t size = hello_of(name, TLS1_3_VERSION, data, sizeof data);
    return read_all(data, size, got);
}

static void test_names(void)
{
    char name[HOST_NAME_BYTES] = "";
    CHECK(read_name("Good.TEST.", name) == CLIENT_HELLO_NAMED);
    CHECK_TEXT(name, "good.test");
    CHECK(read_name(NULL, name) == CLIENT_HELLO_WRONG);
    CHECK(read_name("203.0.113.7", name) == CLIENT_HELLO_WRONG);
    CHECK(read_name("good.test evil.test", name) == CLIENT_HELLO_WRONG);
    CHECK(read_name("[::1]", name) == CLIENT_HELLO_WRONG);
    uint8_t data[4096];
    size_t size = hello_of("old.test", TLS1_2_VERSION, data, sizeof data);
    CHECK(read_all(data, size, name) == CLIENT_HELLO_NAMED);
    CHECK_TEXT(name, "old.test");
}

/* One handshake message over many records (RFC 8446, 5.1): a reader of the first alone would see no name. */
static void test_small_records(void)
{
    uint8_t data[4096];
    uint8_t cut[8192];
    char name[HOST_NAME_BYTES] = "";
    size_t size = hello_of("good.test", TLS1_3_VERSION, data, sizeof data);
    size_t length = 0;
    for (size_t at = 5; at < size; at += 16) {
        size_t some = size - at < 16 ? size - at : 16;
        const uint8_t head[] = {22, 3, 1, 0, (uint8_t)some};
        memcpy(cut + length, head, sizeof head);
        memcpy(cut + length + sizeof head, data + at, some);
        length += sizeof head + some;
    }
    CHECK(read_all(cut, length, name) == CLIENT_HELLO_NAMED);
    CHECK_TEXT(name, "good.test");
}

/* Where the extension's data begin; with room for changes as long as its name. */
static uint8_t *find_sni(uint8_t *data, size_t size, const char *name)
{
    uint8_t *at = memmem(data, size, name, strlen(name));
    CHECK(at != NULL);
    return at;
}

static void test_forged_names(void)
{
    char name[HOST_NAME_BYTES] = "";
    uint8_t data[4096];
    size_t size = hello_of("good.test.evil.test", TLS1_3_VERSION, data, sizeof data);
    uint8_t *at = find_sni(data, size, "good.test.evil.test");
    memcpy(at, "good.test\0evil.test", 19); /* ends early for who reads C strings */
    CHECK(read_all(data, size, name) == CLIENT_HELLO_WRONG);
    /* Two names in the list: "good.test", and "l.test" behind its own head of three bytes. */
    memcpy(at, "good.test", 9);
    memcpy(at + 9, "\0\0\7l.test", 10);
    at[-1] = 9;
    CHECK(read_all(data, size, name) == CLIENT_HELLO_WRONG);
    memcpy(at, "good.test.evil.test", 19);
    at[-1] = 19;
    CHECK(read_all(data, size, name) == CLIENT_HELLO_NAMED);
    at[-3] = 1; /* another type of name */
    CHECK(read_all(data, size, name) == CLIENT_HELLO_WRONG);
    at[-3] = 0;
    at[-4] = 7; /* the list's length */
    CHECK(read_all(data, size, name) == CLIENT_HELLO_WRONG);
}

static void test_no_tls(void)
{
    char name[HOST_NAME_BYTES] = "";
    static const char REQUEST[] = "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n";
    CHECK(read_all((const uint8_t *)REQUEST, sizeof REQUEST - 1, name) == CLIENT_HELLO_WRONG);
    static const uint8_t ALERT[] = {21, 3, 1, 0, 2, 2, 40};
    CHECK(read_all(ALERT, sizeof ALERT, name) == CLIENT_HELLO_WRONG);
    static uint8_t big[CLIENT_HELLO_BYTES * 2] = {22, 3, 1, 0x40, 0, 1, 1, 0, 0, 3, 3}; /* says 65,536 bytes */
    big[5 + 0x4000] = 22;
    big[5 + 0x4000 + 1] = 3;
    big[5 + 0x4000 + 2] = 1;
    big[5 + 0x4000 + 3] = 0x30;
    CHECK(read_all(big, sizeof big, name) == CLIENT_HELLO_WRONG);
    static const uint8_t V2[] = {0x80, 0x2e, 1, 3,  1, 0, 21, 0, 0, 0,   16, 0,  0,  4,  0,  0,
                                 5,    0,    0, 10, 0, 0, 9,  0, 0, 100, 0,  0,  98, 0,  0,  3,
                                 1,    2,    3, 4,  5, 6, 7,  8, 9, 10,  11, 12, 13, 14, 15, 16};
    CHECK(read_all(V2, sizeof V2, name) == CLIENT_HELLO_WRONG);
}

int main(void)
{
    struct error err = {0};
    maker = client_hello_maker_new(&err);
    CHECK(maker != NULL);
    test_names();
    test_small_records();
    test_forged_names();
    test_no_tls();
    client_hello_maker_free(maker);
    return check_done();
}
