/* trust.c - verification of a server's certificate by authorities or by a fingerprint. */
#include "shared/trust/trust.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

enum { CA_FILE_MAX_BYTES = 1024 * 1024 };

/* Set before threads start. */
static struct {
    char *authorities; /* PEM; NULL: the system's */
    size_t authorities_bytes;
    char fingerprint[TRUST_FINGERPRINT_BYTES]; /* "": any that the authorities vouch for */
} trusted;

static _Thread_local char came[TRUST_FINGERPRINT_BYTES]; /* the server's own, when none was the expected */

bool trust_parse_fingerprint(char to[static TRUST_FINGERPRINT_BYTES], const char *text)
{
    char digits[TRUST_FINGERPRINT_BYTES];
    size_t count = 0;
    if (text_starts_with(text, "sha256:") || text_starts_with(text, "SHA256:"))
        text += strlen("sha256:");
    for (; *text != '\0'; text++) {
        char c = *text >= 'A' && *text <= 'F' ? (char)(*text - 'A' + 'a') : *text;
        bool is_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        if (c == ':' && count > 0 && count % 2 == 0 && text[1] != '\0')
            continue;
        if (!is_digit || count == sizeof digits - 1)
            return false;
        digits[count++] = c;
    }
    digits[count] = '\0';
    if (count == sizeof digits - 1)
        memcpy(to, digits, sizeof digits);
    return count == sizeof digits - 1;
}

static bool check_authorities(const char *pem, size_t size, const char *file, struct error *err)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)size);
    X509 *first = bio != NULL ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    bool is_some = first != NULL;
    X509_free(first);
    BIO_free(bio);
    return is_some || error_set(err, ERROR_INVALID, "%s holds no certificate in PEM", file);
}

bool trust_set(const char *ca_file, const char *fingerprint, struct error *err)
{
    char parsed[TRUST_FINGERPRINT_BYTES] = "";
    AUTO_FREE char *pem = NULL;
    size_t size = 0;
    if (fingerprint != NULL && !trust_parse_fingerprint(parsed, fingerprint))
        return error_set(err, ERROR_INVALID, "tls_fingerprint: a SHA-256 has 64 hexadecimal digits");
    if (ca_file != NULL)
        pem = fd_read_file(ca_file, CA_FILE_MAX_BYTES, &size, err);
    if (ca_file != NULL && (pem == NULL || !check_authorities(pem, size, ca_file, err)))
        return error_prefix(err, "certificate authorities");
    free(trusted.authorities);
    trusted.authorities = TAKE(pem);
    trusted.authorities_bytes = size;
    memcpy(trusted.fingerprint, parsed, sizeof parsed);
    return true;
}

/* ---- by fingerprint ---- */

static void fingerprint_of(const X509 *certificate, char to[static TRUST_FINGERPRINT_BYTES])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (X509_digest(certificate, EVP_sha256(), digest, &size) != 1 || size * 2 + 1 != TRUST_FINGERPRINT_BYTES)
        size = 0;
    to[0] = '\0';
    for (unsigned i = 0; i < size; i++)
        snprintf(to + (size_t)2 * i, 3, "%02x", digest[i]);
}

static bool is_expected(const X509 *certificate)
{
    char own[TRUST_FINGERPRINT_BYTES];
    fingerprint_of(certificate, own);
    return strcmp(own, trusted.fingerprint) == 0;
}

/* An authority that merely lies in the chain proves nothing: the server's certificate must be signed by it. */
static bool is_vouched_for(X509_STORE_CTX *given, X509 *authority)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    bool is_good =
        store != NULL && check != NULL && X509_STORE_add_cert(store, authority) == 1 &&
        X509_STORE_CTX_init(check, store, X509_STORE_CTX_get0_cert(given), X509_STORE_CTX_get0_untrusted(given)) == 1 &&
        X509_STORE_CTX_set_default(check, "ssl_server") == 1;
    if (is_good) {
        X509_STORE_CTX_set_flags(check, X509_V_FLAG_PARTIAL_CHAIN);
        is_good = X509_verify_cert(check) == 1;
        X509_STORE_CTX_set_error(given, X509_STORE_CTX_get_error(check));
    }
    X509_STORE_CTX_free(check);
    X509_STORE_free(store);
    return is_good;
}

static int verify_by_fingerprint(X509_STORE_CTX *given, void *cookie UNUSED)
{
    X509 *own = X509_STORE_CTX_get0_cert(given);
    const STACK_OF(X509) *chain = X509_STORE_CTX_get0_untrusted(given);
    X509_STORE_CTX_set_error(given, X509_V_OK);
    if (own != NULL && is_expected(own))
        return 1;
    for (int i = 0; i < sk_X509_num(chain); i++) {
        X509 *above = sk_X509_value(chain, i);
        if (above != own && is_expected(above))
            return is_vouched_for(given, above);
    }
    if (own != NULL)
        fingerprint_of(own, came);
    X509_STORE_CTX_set_error(given, X509_V_ERR_CERT_REJECTED);
    return 0;
}

static CURLcode set_verification(CURL *curl UNUSED, void *context, void *cookie UNUSED)
{
    came[0] = '\0';
    if (trusted.fingerprint[0] != '\0')
        SSL_CTX_set_cert_verify_callback(context, verify_by_fingerprint, NULL);
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    return CURLE_OK;
}

/* ---- transfers ---- */

void trust_apply(CURL *curl)
{
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(curl, CURLOPT_SSL_SESSIONID_CACHE, 0L); /* another trust may hold by then */
    curl_easy_setopt(curl, CURLOPT_SSL_CTX_FUNCTION, set_verification);
    if (trusted.authorities == NULL && trusted.fingerprint[0] == '\0')
        return;
    curl_easy_setopt(curl, CURLOPT_CAINFO, NULL); /* nobody else; and the system's need not be read */
    curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    if (trusted.fingerprint[0] != '\0')
        return;
    struct curl_blob blob = {trusted.authorities, trusted.authorities_bytes, CURL_BLOB_NOCOPY};
    curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &blob);
}

static bool add_authorities(SSL_CTX *context)
{
    if (trusted.authorities == NULL)
        return SSL_CTX_set_default_verify_paths(context) == 1;
    BIO *bio = BIO_new_mem_buf(trusted.authorities, (int)trusted.authorities_bytes);
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    bool is_good = bio != NULL;
    for (X509 *one; is_good && (one = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL; X509_free(one))
        is_good = X509_STORE_add_cert(store, one) == 1;
    ERR_clear_error();
    BIO_free(bio);
    return is_good;
}

SSL_CTX *trust_context(struct error *err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    bool is_good =
        context != NULL && SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 && add_authorities(context);
    if (is_good) {
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
        return context;
    }
    SSL_CTX_free(context);
    error_set(err, ERROR_INTERNAL, "OpenSSL makes no context for calls");
    return NULL;
}

bool trust_refused(CURLcode code, const char *host, struct error *err)
{
    if (code != CURLE_PEER_FAILED_VERIFICATION)
        return false;
    if (came[0] == '\0')
        error_set(err, ERROR_NODE_UNREACHABLE, "%.80s: its certificate is not trusted, or is for another name", host);
    else
        error_set(err, ERROR_NODE_UNREACHABLE, "%.60s has another certificate: expected sha256 %s, it shows %s", host,
                  trusted.fingerprint, came);
    came[0] = '\0';
    return true;
}
