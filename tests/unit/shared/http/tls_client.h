/** tls_client.h - TLS for the raw client of these tests: a thread stands between the descriptor that a test has and the
 *  server, so that every test of this room can be run over TLS as it is (PARLEY_TEST_TLS=1). */
#pragma once

#include "tests/unit/check.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TLS_HELPER __attribute__((unused))

/* ---- a certificate of its own ---- */

struct tls_made {
    char cert[4096], key[4096];
    size_t cert_size, key_size;
};

static size_t tls_take_bio(BIO *bio, char *to, size_t size)
{
    int got = BIO_read(bio, to, (int)size - 1);
    BIO_free(bio);
    to[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

/* Self-signed, P-256, valid for an hour from `begin_s` on (0: now). */
TLS_HELPER static void tls_make(struct tls_made *made, const char *name, long begin_s)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), begin_s);
    X509_gmtime_adj(X509_getm_notAfter(cert), begin_s + 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    X509_sign(cert, key, EVP_sha256());
    BIO *cert_pem = BIO_new(BIO_s_mem()), *key_pem = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(cert_pem, cert);
    PEM_write_bio_PrivateKey(key_pem, key, NULL, NULL, 0, NULL, NULL);
    made->cert_size = tls_take_bio(cert_pem, made->cert, sizeof made->cert);
    made->key_size = tls_take_bio(key_pem, made->key, sizeof made->key);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* ---- the thread between ---- */

struct tls_between {
    int inside, outside;
    SSL *ssl;
};

static atomic_int tls_running; /* threads */

/* Before the leak check, which would find what they hold. */
static void tls_wait_for_threads(void)
{
    for (int i = 0; i < 500 && atomic_load(&tls_running) > 0; i++)
        poll(NULL, 0, 10);
}

static SSL_CTX *tls_client_context(void)
{
    static SSL_CTX *context;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    if (context == NULL) {
        context = SSL_CTX_new(TLS_client_method());
        signal(SIGPIPE, SIG_IGN); /* a server that is gone */
        atexit(tls_wait_for_threads);
    }
    pthread_mutex_unlock(&mutex);
    return context;
}

/* Writes all of it to the test's side; false when that is closed. */
static bool tls_to_test(const struct tls_between *between, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(between->inside, data, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* 1: something moved; 0: nothing now; -1: the server has ended; -2: the test has. */
static int tls_in(const struct tls_between *between)
{
    char piece[16384];
    int got = SSL_read(between->ssl, piece, sizeof piece);
    if (got > 0)
        return tls_to_test(between, piece, (size_t)got) ? 1 : -2;
    int why = SSL_get_error(between->ssl, got);
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

static bool tls_out(const struct tls_between *between, const char *data, int size)
{
    for (int sent; size > 0; data += sent, size -= sent) {
        sent = SSL_write(between->ssl, data, size);
        if (sent > 0)
            continue;
        int why = SSL_get_error(between->ssl, sent);
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
            return false;
        struct pollfd ready = {.fd = between->outside, .events = POLLOUT};
        poll(&ready, 1, 1000); /* the server may want to be read first: so does it of a client without TLS */
        sent = 0;
    }
    return true;
}

static void tls_pump(const struct tls_between *between)
{
    bool is_over = false;
    for (;;) {
        struct pollfd ready[2] = {{.fd = between->outside, .events = POLLIN},
                                  {.fd = between->inside, .events = is_over ? 0 : POLLIN}};
        int moved;
        while ((moved = tls_in(between)) == 1)
            continue;
        if (moved < 0)
            return;
        poll(ready, 2, -1);
        if ((ready[1].revents & (POLLIN | POLLHUP)) == 0)
            continue;
        char piece[16384];
        ssize_t got = is_over ? 0 : recv(between->inside, piece, sizeof piece, 0);
        if (got > 0 && !tls_out(between, piece, (int)got))
            return;
        if (got > 0)
            continue;
        if ((ready[1].revents & POLLHUP) != 0)
            return; /* closed, and not only for writing */
        is_over = true;
        SSL_shutdown(between->ssl);
        shutdown(between->outside, SHUT_WR);
    }
}

static void *tls_run(void *cookie)
{
    struct tls_between *between = cookie;
    if (SSL_connect(between->ssl) == 1) {
        struct timeval none = {0};
        setsockopt(between->outside, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
        BIO_socket_nbio(between->outside, 1);
        tls_pump(between);
        SSL_shutdown(between->ssl);
    }
    SSL_free(between->ssl);
    close(between->outside);
    close(between->inside);
    free(between);
    OPENSSL_thread_stop();
    atomic_fetch_sub(&tls_running, 1);
    return NULL;
}

/* Takes a connected socket; returns the descriptor that talks through TLS over it. */
TLS_HELPER static int tls_wrap(int fd)
{
    int pair[2];
    pthread_t thread;
    struct tls_between *between = calloc(1, sizeof *between);
    if (between == NULL || fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    *between = (struct tls_between){.inside = pair[1], .outside = fd, .ssl = SSL_new(tls_client_context())};
    SSL_set_fd(between->ssl, fd);
    atomic_fetch_add(&tls_running, 1);
    if (pthread_create(&thread, NULL, tls_run, between) != 0)
        return -1;
    pthread_detach(thread);
    return pair[0];
}
