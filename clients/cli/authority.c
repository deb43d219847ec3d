/* authority.c - writes X.509 by mbedTLS. 2.28 knows no alternative names and no extended key usage to write, so those
 * two extensions are written by its ASN.1. */
#include "clients/cli/authority.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <arpa/inet.h>
#include <mbedtls/asn1write.h>
#include <mbedtls/ecp.h>
#include <mbedtls/error.h>
#include <mbedtls/oid.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { PEM_BYTES = 8192, NAMES_BYTES = 4096, SERIAL_BYTES = 16, BACKDATED_S = 3600, HOST_BYTES = 254 };

static const char CA_NAME[] = "CN=Parley local CA,O=Parley";

static int random_for(void *cookie UNUSED, unsigned char *to, size_t size)
{
    random_bytes(to, size);
    return 0;
}

static bool failed(struct error *err, int code, const char *what)
{
    char why[128];
    mbedtls_strerror(code, why, sizeof why);
    return error_set(err, ERROR_INTERNAL, "%s: %s", what, why);
}

/* ---- keys ---- */

static void pk_done(mbedtls_pk_context *key)
{
    mbedtls_pk_free(key);
}
#define AUTO_PK __attribute__((cleanup(pk_done))) mbedtls_pk_context

static void crt_done(mbedtls_x509_crt *certificate)
{
    mbedtls_x509_crt_free(certificate);
}
#define AUTO_CRT __attribute__((cleanup(crt_done))) mbedtls_x509_crt

static bool make_key(mbedtls_pk_context *key, struct error *err)
{
    int code = mbedtls_pk_setup(key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY));
    if (code == 0)
        code = mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(*key), random_for, NULL);
    return code == 0 || failed(err, code, "make a key");
}

static bool write_key(mbedtls_pk_context *key, const char *folder, const char *name, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/%s", folder, name);
    unsigned char pem[PEM_BYTES];
    int code = mbedtls_pk_write_key_pem(key, pem, sizeof pem);
    bool is_written = code == 0 ? fd_write_file(path, 0600, pem, strlen((char *)pem), err) : failed(err, code, path);
    sodium_memzero(pem, sizeof pem);
    return is_written;
}

/* ---- names ---- */

struct names {
    unsigned char bytes[NAMES_BYTES]; /* ASN.1 is written from the end */
    unsigned char *at;
    unsigned count;
};

static bool put_name(struct names *names, const void *data, size_t size, unsigned char tag, struct error *err)
{
    int code = mbedtls_asn1_write_raw_buffer(&names->at, names->bytes, data, size);
    if (code >= 0)
        code = mbedtls_asn1_write_len(&names->at, names->bytes, size);
    if (code >= 0)
        code = mbedtls_asn1_write_tag(&names->at, names->bytes, (unsigned char)(MBEDTLS_ASN1_CONTEXT_SPECIFIC | tag));
    return code >= 0 || failed(err, code, "alternative names");
}

static bool is_dns_name(const char *host)
{
    const char *name = text_starts_with(host, "*.") ? host + 2 : host;
    return text_is_made_of(name, HOST_BYTES - 3, "-.") && name[0] != '.' && name[0] != '-' && !strstr(name, "..");
}

static bool put_host(struct names *names, const char *host, struct error *err)
{
    unsigned char address[sizeof(struct in6_addr)];
    if (++names->count > AUTHORITY_HOSTS_MAX)
        return error_set(err, ERROR_INVALID, "--host: more than %d hosts", AUTHORITY_HOSTS_MAX);
    if (inet_pton(AF_INET, host, address) == 1)
        return put_name(names, address, sizeof(struct in_addr), 7, err);
    if (inet_pton(AF_INET6, host, address) == 1)
        return put_name(names, address, sizeof(struct in6_addr), 7, err);
    return is_dns_name(host) ? put_name(names, host, strlen(host), 2, err)
                             : error_set(err, ERROR_INVALID, "--host: \"%.64s\" is neither a DNS name nor an IP", host);
}

static bool put_hosts(struct names *names, const char *hosts, struct error *err)
{
    AUTO_FREE char *copy = memory_string(hosts);
    char *rest = copy;
    names->at = names->bytes + sizeof names->bytes;
    for (char *host; (host = strsep(&rest, ",")) != NULL;) {
        if (!put_host(names, host, err))
            return false;
    }
    size_t size = (size_t)(names->bytes + sizeof names->bytes - names->at);
    int code = mbedtls_asn1_write_len(&names->at, names->bytes, size);
    if (code >= 0)
        code = mbedtls_asn1_write_tag(&names->at, names->bytes, MBEDTLS_ASN1_CONSTRUCTED | MBEDTLS_ASN1_SEQUENCE);
    return code >= 0 || failed(err, code, "alternative names");
}

/* ---- certificates ---- */

static void format_time(char to[static 16], time_t when)
{
    struct tm parts;
    gmtime_r(&when, &parts);
    strftime(to, 16, "%Y%m%d%H%M%S", &parts);
}

/* Positive and not zero (RFC 5280, 4.1.2.2). */
static int set_serial(mbedtls_x509write_cert *write)
{
    unsigned char bytes[SERIAL_BYTES];
    mbedtls_mpi serial;
    random_bytes(bytes, sizeof bytes);
    bytes[0] = (unsigned char)((bytes[0] & 0x7f) | 0x40);
    mbedtls_mpi_init(&serial);
    int code = mbedtls_mpi_read_binary(&serial, bytes, sizeof bytes);
    if (code == 0)
        code = mbedtls_x509write_crt_set_serial(write, &serial);
    mbedtls_mpi_free(&serial);
    return code;
}

/* What both kinds have. */
static int fill(mbedtls_x509write_cert *write, const char *subject, mbedtls_pk_context *own, mbedtls_pk_context *issuer,
                unsigned days)
{
    char from[16], until[16];
    time_t now = (time_t)(clock_wall_ms() / 1000);
    format_time(from, now - BACKDATED_S);
    format_time(until, now + (time_t)days * 86400);
    mbedtls_x509write_crt_set_version(write, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(write, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(write, own);
    mbedtls_x509write_crt_set_issuer_key(write, issuer);
    int code = set_serial(write);
    code = code ? code : mbedtls_x509write_crt_set_validity(write, from, until);
    code = code ? code : mbedtls_x509write_crt_set_subject_name(write, subject);
    code = code ? code : mbedtls_x509write_crt_set_issuer_name(write, CA_NAME);
    code = code ? code : mbedtls_x509write_crt_set_subject_key_identifier(write);
    return code ? code : mbedtls_x509write_crt_set_authority_key_identifier(write);
}

bool authority_make(const char *folder, unsigned days, struct error *err)
{
    AUTO_FREE char *file = memory_printf("%s/ca.pem", folder);
    AUTO_PK key;
    mbedtls_x509write_cert write;
    unsigned char pem[PEM_BYTES];
    struct stat there;
    mbedtls_pk_init(&key);
    if (stat(file, &there) == 0)
        return error_set(err, ERROR_CONFLICT, "%s is there already", file);
    if (!fd_make_folders(folder, 0711, err) || !make_key(&key, err))
        return false;
    mbedtls_x509write_crt_init(&write);
    int code = fill(&write, CA_NAME, &key, &key, days);
    code = code ? code : mbedtls_x509write_crt_set_basic_constraints(&write, 1, 0);
    code = code ? code
                : mbedtls_x509write_crt_set_key_usage(&write, MBEDTLS_X509_KU_KEY_CERT_SIGN | MBEDTLS_X509_KU_CRL_SIGN);
    code = code ? code : mbedtls_x509write_crt_pem(&write, pem, sizeof pem, random_for, NULL);
    mbedtls_x509write_crt_free(&write);
    if (code != 0)
        return failed(err, code, "write the authority's certificate");
    return write_key(&key, folder, "ca.key", err) && fd_write_file(file, 0644, pem, strlen((char *)pem), err);
}

static int extend_server(mbedtls_x509write_cert *write, const struct names *names)
{
    static const unsigned char SERVER_AUTH[] = {0x30, 0x0a, 0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01};
    size_t size = (size_t)(names->bytes + sizeof names->bytes - names->at);
    int code = mbedtls_x509write_crt_set_extension(write, MBEDTLS_OID_SUBJECT_ALT_NAME,
                                                   MBEDTLS_OID_SIZE(MBEDTLS_OID_SUBJECT_ALT_NAME), 0, names->at, size);
    code = code ? code
                : mbedtls_x509write_crt_set_extension(write, MBEDTLS_OID_EXTENDED_KEY_USAGE,
                                                      MBEDTLS_OID_SIZE(MBEDTLS_OID_EXTENDED_KEY_USAGE), 0, SERVER_AUTH,
                                                      sizeof SERVER_AUTH);
    code = code ? code : mbedtls_x509write_crt_set_basic_constraints(write, 0, -1);
    return code ? code : mbedtls_x509write_crt_set_key_usage(write, MBEDTLS_X509_KU_DIGITAL_SIGNATURE);
}

/* The server's, and behind it the authority's, so that who trusts that by its fingerprint is shown it. */
static bool write_server(const char *to, const unsigned char *own, const char *authority, const char *hosts,
                         struct error *err)
{
    AUTO_FREE char *file = memory_printf("%s/server.pem", to);
    AUTO_FREE char *note = memory_printf("%s/hosts", to);
    AUTO_FREE char *chain = memory_printf("%s%s", (const char *)own, authority);
    return fd_write_file(note, 0644, hosts, strlen(hosts), err) && fd_write_file(file, 0644, chain, strlen(chain), err);
}

static bool load_authority(const char *folder, mbedtls_pk_context *key, char **pem, struct error *err)
{
    AUTO_FREE char *key_file = memory_printf("%s/ca.key", folder);
    AUTO_FREE char *file = memory_printf("%s/ca.pem", folder);
    size_t size = 0;
    char *text = fd_read_file(key_file, PEM_BYTES, &size, err);
    if (text == NULL)
        return false;
    int code = mbedtls_pk_parse_key(key, (unsigned char *)text, size + 1, NULL, 0);
    sodium_memzero(text, size);
    free(text);
    if (code != 0)
        return failed(err, code, key_file);
    *pem = fd_read_file(file, PEM_BYTES, NULL, err);
    return *pem != NULL;
}

bool authority_issue(const char *folder, const char *to, const char *hosts, unsigned days, struct error *err)
{
    AUTO_FREE char *authority = NULL;
    AUTO_PK own, issuer;
    mbedtls_x509write_cert write;
    unsigned char pem[PEM_BYTES];
    struct names names = {.count = 0};
    mbedtls_pk_init(&own);
    mbedtls_pk_init(&issuer);
    if (!put_hosts(&names, hosts, err) || !load_authority(folder, &issuer, &authority, err) ||
        !fd_make_folders(to, 0711, err) || !make_key(&own, err))
        return false;
    mbedtls_x509write_crt_init(&write);
    int code = fill(&write, "CN=Parley,O=Parley", &own, &issuer, days);
    code = code ? code : extend_server(&write, &names);
    code = code ? code : mbedtls_x509write_crt_pem(&write, pem, sizeof pem, random_for, NULL);
    mbedtls_x509write_crt_free(&write);
    if (code != 0)
        return failed(err, code, "write the server's certificate");
    return write_key(&own, to, "server.key", err) && write_server(to, pem, authority, hosts, err);
}

bool authority_view(struct authority_view *view, const char *file, struct error *err)
{
    AUTO_CRT certificate;
    unsigned char digest[32];
    size_t size = 0;
    AUTO_FREE char *pem = fd_read_file(file, (size_t)1 << 20, &size, err);
    mbedtls_x509_crt_init(&certificate);
    if (pem == NULL)
        return false;
    int code = mbedtls_x509_crt_parse(&certificate, (unsigned char *)pem, size + 1);
    if (code != 0)
        return failed(err, code, file);
    code = mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), certificate.raw.p, certificate.raw.len, digest);
    if (code != 0)
        return failed(err, code, file);
    const mbedtls_x509_time *ends = &certificate.valid_to;
    text_hex(view->fingerprint, digest, sizeof digest);
    snprintf(view->ends, sizeof view->ends, "%04d-%02d-%02dT%02d:%02d:%02dZ", ends->year, ends->mon, ends->day,
             ends->hour, ends->min, ends->sec);
    view->is_over = mbedtls_x509_time_is_past(ends);
    return true;
}
