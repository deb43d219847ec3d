/* tls_test.c - what pairs are taken, a server that gets another one while it serves, and clients that stop half way. */
#include "fixture.h"

static struct tls_made first, second;

static struct http_tls_pem pem_of(const struct tls_made *cert, const struct tls_made *key)
{
    return (struct http_tls_pem){cert->cert, key->key, cert->cert_size, key->key_size};
}

static bool is_refused(const char *cert, const char *key, const char *why)
{
    struct error err = {0};
    const struct http_tls_pem pem = {cert, key, strlen(cert), strlen(key)};
    struct http_tls *tls = http_tls_new(&pem, &err);
    bool is_told = tls == NULL && err.kind == ERROR_INVALID && strstr(err.message, why) != NULL;
    if (!is_told)
        fprintf(stderr, "taken, or refused with: %s\n", err.message);
    http_tls_free(tls);
    return is_told;
}

/* One locked by a passphrase: nobody is there to be asked. */
static void lock(const char *key, char *to, size_t size)
{
    BIO *in = BIO_new_mem_buf(key, -1), *out = BIO_new(BIO_s_mem());
    EVP_PKEY *read = PEM_read_bio_PrivateKey(in, NULL, NULL, NULL);
    PEM_write_bio_PKCS8PrivateKey(out, read, EVP_aes_256_cbc(), "secret", 6, NULL, NULL);
    EVP_PKEY_free(read);
    BIO_free(in);
    tls_take_bio(out, to, size);
}

static void test_pairs(void)
{
    char locked[4096], twice[9000], broken[9000];
    lock(first.key, locked, sizeof locked);
    CHECK(is_refused(first.cert, second.key, "tls_key: does not belong"));
    CHECK(is_refused("", first.key, "tls_cert: no certificate"));
    CHECK(is_refused(first.cert, "", "tls_key: no private key"));
    CHECK(is_refused(first.key, first.key, "tls_cert: no certificate"));
    CHECK(is_refused(first.cert, locked, "without a passphrase"));
    snprintf(broken, sizeof broken, "%s-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", first.cert);
    CHECK(is_refused(broken, first.key, "behind the first"));
    struct error err = {0};
    snprintf(twice, sizeof twice, "%s%s", first.cert, second.cert);
    struct http_tls *chain =
        http_tls_new(&(struct http_tls_pem){twice, first.key, strlen(twice), first.key_size}, &err);
    CHECK(chain != NULL);
    http_tls_free(chain);
}

static void shown(char to[static HTTP_TLS_FINGERPRINT_BYTES])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(client_port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SSL *ssl = SSL_new(tls_client_context());
    SSL_set_fd(ssl, fd);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && SSL_connect(ssl) == 1);
    X509 *certificate = SSL_get1_peer_certificate(ssl);
    CHECK(certificate != NULL && X509_digest(certificate, EVP_sha256(), digest, &size) == 1);
    for (unsigned i = 0; i < size; i++)
        snprintf(to + (size_t)2 * i, 3, "%02x", digest[i]);
    X509_free(certificate);
    SSL_free(ssl);
    close(fd);
}

static void test_replaced(struct http_tls *tls)
{
    char before[HTTP_TLS_FINGERPRINT_BYTES] = "", after[HTTP_TLS_FINGERPRINT_BYTES] = "";
    char told[HTTP_TLS_FINGERPRINT_BYTES], reply[4096];
    struct error err = {0};
    shown(before);
    http_tls_fingerprint(tls, told);
    CHECK_TEXT(told, before);
    int kept = client_open();
    client_say(kept, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(client_read_reply(kept, reply, sizeof reply) > 0);
    const struct http_tls_pem half = pem_of(&second, &first), whole = pem_of(&second, &second);
    CHECK(!http_tls_replace(tls, &half, &err) && err.kind == ERROR_INVALID);
    shown(after);
    CHECK_TEXT(after, before);
    CHECK(http_tls_replace(tls, &whole, &err));
    shown(after);
    CHECK(strcmp(after, before) != 0);
    http_tls_fingerprint(tls, told);
    CHECK_TEXT(told, after);
    client_say(kept, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(client_read_reply(kept, reply, sizeof reply) > 0 && strstr(reply, "world") != NULL);
    close(kept);
}

static int open_raw(void)
{
    unsetenv("PARLEY_TEST_TLS");
    int fd = client_open();
    setenv("PARLEY_TEST_TLS", "1", 1);
    return fd;
}

/* The head's time is the handshake's, too. */
static void test_half_handshakes(void)
{
    static const char HALVES[][12] = {"", "\x16\x03\x01\x02", "\x16\x03\x01\x00\x05\x01"};
    int fds[3];
    for (size_t i = 0; i < 3; i++) {
        fds[i] = open_raw();
        client_say(fds[i], HALVES[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        CHECK(client_is_closed(fds[i], 5000));
        close(fds[i]);
    }
    int junk = open_raw();
    client_say(junk, "\x16\x03\x01\x00\x05xxxxxxxxxxxxxxx");
    CHECK(client_is_closed(junk, 5000));
    close(junk);
}

static void test_plain_http(void)
{
    char reply[4096];
    int fd = open_raw();
    client_say(fd, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    client_read_all(fd, reply, sizeof reply, 2000);
    CHECK(strncmp(reply, "HTTP/1.1 400 ", 13) == 0);
    const char *length = strstr(reply, "Content-Length: "), *body = client_body(reply);
    CHECK(length != NULL && body != NULL && strlen(body) == strtoul(length + 16, NULL, 10));
    CHECK(strstr(reply, "world") == NULL);
    close(fd);
}

/* A client of one's own, who gives up what takes longer than 5 s. */
static SSL *open_ssl(int version)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(client_port)};
    const struct timeval patience = {.tv_sec = 5};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    SSL *ssl = SSL_new(tls_client_context());
    SSL_set_max_proto_version(ssl, version);
    SSL_set_fd(ssl, fd);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && SSL_connect(ssl) == 1);
    return ssl;
}

static void close_ssl(SSL *ssl)
{
    int fd = SSL_get_fd(ssl);
    SSL_free(ssl);
    close(fd);
}

static bool is_answered(SSL *ssl)
{
    static const char ASKED[] = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";
    char reply[4096];
    return SSL_write(ssl, ASKED, sizeof ASKED - 1) > 0 && SSL_read(ssl, reply, sizeof reply) > 0;
}

/* New keys now and then are TLS; without end they would have the loop for themselves. */
static void test_key_updates(void)
{
    SSL *ssl = open_ssl(TLS1_3_VERSION);
    for (int i = 0; i < 10; i++) {
        for (int n = 0; n < 50; n++)
            CHECK(SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(ssl) == 1);
        CHECK(is_answered(ssl));
    }
    close_ssl(ssl);
    ssl = open_ssl(TLS1_3_VERSION);
    int sent = 0;
    while (sent < 100000 && SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && SSL_do_handshake(ssl) == 1)
        sent++;
    CHECK(sent < 100000);
    close_ssl(ssl);
}

/* What a client does not take goes with the server, whatever waits. */
static void test_stop_with_bytes_waiting(void)
{
    int fd = client_open_small(4096);
    client_say(fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    sleep_ms(200);
    double began = seconds_now();
    fixture_stop(100);
    CHECK(seconds_now() - began < 10);
    close(fd);
}

int main(void)
{
    setenv("PARLEY_TEST_TLS", "1", 1);
    tls_make(&first, "first", 0);
    tls_make(&second, "second", 0);
    test_pairs();
    fixture_start((struct http_server_options){.head_timeout_ms = 500});
    test_replaced(tls_fixture());
    test_half_handshakes();
    test_plain_http();
    test_key_updates();
    test_stop_with_bytes_waiting();
    return check_done();
}
