/* tls.c - the server's side of TLS by OpenSSL: which versions and ciphers, and the pair that is in force. */
#include "shared/http/tls.h"

#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/http/tls_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MESSAGE_BYTES = sizeof(struct tls_keeper_head) + 2 * HTTP_TLS_PEM_MAX_BYTES };

/* ECDHE with AEAD alone for 1.2; those of 1.3 are all sound. */
static const char CIPHERS_1_2[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

/* ---- one pair ---- */

static int no_passphrase(char *to UNUSED, int size UNUSED, int writes UNUSED, void *cookie UNUSED)
{
    return 0;
}

/* OpenSSL's reasons name no bytes of the files. */
static bool refuse(struct error *err, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return error_set(err, ERROR_INVALID, "%s%s%s", what, reason != NULL ? ": " : "", reason != NULL ? reason : "");
}

static bool use_chain(SSL_CTX *context, BIO *pem, struct error *err)
{
    X509 *own = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL);
    bool is_used = own != NULL && SSL_CTX_use_certificate(context, own) == 1;
    X509_free(own);
    if (!is_used)
        return refuse(err, "tls_cert: no certificate in PEM that can be used");
    for (X509 *next; (next = PEM_read_bio_X509(pem, NULL, no_passphrase, NULL)) != NULL;) {
        if (SSL_CTX_add0_chain_cert(context, next) == 1)
            continue;
        X509_free(next);
        return refuse(err, "tls_cert: a certificate behind the first cannot be used");
    }
    bool is_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    if (!is_end)
        return refuse(err, "tls_cert: a certificate behind the first is broken");
    ERR_clear_error();
    return true;
}

static bool use_key(SSL_CTX *context, BIO *pem, struct error *err)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(pem, NULL, no_passphrase, NULL);
    if (key == NULL)
        return refuse(err, "tls_key: no private key in PEM without a passphrase");
    bool is_used = SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    return is_used || refuse(err, "tls_key: does not belong to the certificate");
}

static bool use_pem(SSL_CTX *context, const struct http_tls_pem *pem, struct error *err)
{
    BIO *cert = BIO_new_mem_buf(pem->cert, (int)pem->cert_size);
    BIO *key = BIO_new_mem_buf(pem->key, (int)pem->key_size);
    bool is_used =
        cert != NULL && key != NULL && use_chain(context, cert, err) && use_key(context, key, err) &&
        (SSL_CTX_check_private_key(context) == 1 || refuse(err, "tls_key: does not belong to the certificate"));
    BIO_free(cert);
    BIO_free(key);
    return is_used;
}

/* Nothing of a connection is kept for the next: what is kept would be a key to it. */
static bool set_rules(SSL_CTX *context)
{
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 1);
    return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1 &&
           SSL_CTX_set_cipher_list(context, CIPHERS_1_2) == 1;
}

static SSL_CTX *make_context(const struct http_tls_pem *pem, struct error *err)
{
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    bool is_ready = context != NULL && set_rules(context);
    if (!is_ready)
        error_set(err, ERROR_INTERNAL, "OpenSSL has no TLS 1.2");
    if (is_ready && use_pem(context, pem, err))
        return context;
    SSL_CTX_free(context);
    return NULL;
}

/* ---- the one in force ---- */

struct http_tls {
    pthread_mutex_t mutex;
    SSL_CTX *context; /* guarded; counted by those that use it */
    struct tls_keeper keeper;
    struct loop_watch *watch; /* of the server that looks for news */
};

static void fingerprint_of(SSL_CTX *context, char to[static HTTP_TLS_FINGERPRINT_BYTES])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (X509_digest(SSL_CTX_get0_certificate(context), EVP_sha256(), digest, &size) != 1)
        size = 0;
    sodium_bin2hex(to, HTTP_TLS_FINGERPRINT_BYTES, digest, size);
}

void http_tls_fingerprint(struct http_tls *tls, char to[static HTTP_TLS_FINGERPRINT_BYTES])
{
    pthread_mutex_lock(&tls->mutex);
    fingerprint_of(tls->context, to);
    pthread_mutex_unlock(&tls->mutex);
}

struct http_tls *http_tls_new(const struct http_tls_pem *pem, struct error *err)
{
    SSL_CTX *context = make_context(pem, err);
    if (context == NULL)
        return NULL;
    struct http_tls *tls = memory_new(sizeof *tls);
    tls->context = context;
    pthread_mutex_init(&tls->mutex, NULL);
    return tls;
}

bool http_tls_replace(struct http_tls *tls, const struct http_tls_pem *pem, struct error *err)
{
    SSL_CTX *context = make_context(pem, err);
    if (context == NULL)
        return false;
    pthread_mutex_lock(&tls->mutex);
    SSL_CTX *before = tls->context;
    tls->context = context;
    pthread_mutex_unlock(&tls->mutex);
    SSL_CTX_free(before);
    return true;
}

SSL *http_tls_connection(struct http_tls *tls)
{
    pthread_mutex_lock(&tls->mutex);
    SSL *ssl = SSL_new(tls->context);
    pthread_mutex_unlock(&tls->mutex);
    return ssl;
}

void http_tls_free(struct http_tls *tls)
{
    if (tls == NULL)
        return;
    tls_keeper_stop(&tls->keeper);
    SSL_CTX_free(tls->context);
    pthread_mutex_destroy(&tls->mutex);
    free(tls);
}

/* ---- files ---- */

struct http_tls *http_tls_open(const char *cert_path, const char *key_path, struct error *err)
{
    AUTO_FREE char *cert = NULL;
    char *key = NULL;
    struct http_tls_pem pem = {0};
    if (!tls_keeper_read(cert_path, key_path, &cert, &pem.cert_size, &key, &pem.key_size, err))
        return NULL;
    pem.cert = cert;
    pem.key = key;
    AUTO(http_tls) *tls = http_tls_new(&pem, err);
    sodium_memzero(key, pem.key_size);
    free(key);
    if (tls == NULL || !tls_keeper_start(cert_path, key_path, &tls->keeper, err))
        return NULL;
    return TAKE(tls);
}

static void log_certificate(struct http_tls *tls)
{
    char fingerprint[HTTP_TLS_FINGERPRINT_BYTES];
    pthread_mutex_lock(&tls->mutex);
    fingerprint_of(tls->context, fingerprint);
    int is_over = X509_cmp_current_time(X509_get0_notAfter(SSL_CTX_get0_certificate(tls->context))) < 0;
    pthread_mutex_unlock(&tls->mutex);
    log_info("tls", "certificate sha256=%s", fingerprint);
    if (is_over)
        log_warn("tls", "this certificate is no longer valid: clients will refuse it");
}

static void take_message(struct http_tls *tls, const char *message, size_t size)
{
    struct tls_keeper_head head;
    struct error err;
    char before[HTTP_TLS_FINGERPRINT_BYTES], after[HTTP_TLS_FINGERPRINT_BYTES];
    memcpy(&head, message, sizeof head);
    if (head.cert_size == 0 || head.cert_size + head.key_size != size - sizeof head) {
        log_warn("tls", "tls_cert or tls_key cannot be read any more: the certificate of before stays");
        return;
    }
    const struct http_tls_pem pem = {message + sizeof head, message + sizeof head + head.cert_size, head.cert_size,
                                     head.key_size};
    http_tls_fingerprint(tls, before);
    if (!http_tls_replace(tls, &pem, &err)) {
        log_warn("tls", "the changed files are not taken, the certificate of before stays: %s", err.message);
        return;
    }
    http_tls_fingerprint(tls, after);
    if (strcmp(before, after) != 0)
        log_certificate(tls);
}

static void on_news(void *cookie)
{
    struct http_tls *tls = cookie;
    char *message = memory_new(MESSAGE_BYTES);
    ssize_t size = recv(tls->keeper.socket, message, MESSAGE_BYTES, MSG_DONTWAIT);
    if (size >= (ssize_t)sizeof(struct tls_keeper_head)) {
        take_message(tls, message, (size_t)size);
    } else if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
        log_error("tls", "who reads tls_cert and tls_key has ended: changes show at the next start");
        loop_watch_readable(tls->watch, NULL, NULL);
    }
    sodium_memzero(message, MESSAGE_BYTES);
    free(message);
}

void http_tls_follow(struct http_tls *tls, struct loop *loop)
{
    log_certificate(tls);
    if (tls->keeper.process <= 0 || tls->watch != NULL)
        return;
    int copy = fcntl(tls->keeper.socket, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return;
    tls->watch = loop_watch_new(loop, copy);
    loop_watch_readable(tls->watch, on_news, tls);
}

void http_tls_unfollow(struct http_tls *tls)
{
    loop_watch_free(TAKE(tls->watch));
}
