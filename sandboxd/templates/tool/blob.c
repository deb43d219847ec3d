#include "sandboxd/templates/tool/blob.h"

#include "shared/base/memory.h"

#include <archive_entry.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER_BYTES = 256 * 1024 };

/* --- hashes --- */

static EVP_MD_CTX *hash_new(void)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    if (hash == NULL || EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
        abort(); /* no memory */
    return hash;
}

static void hash_finish(EVP_MD_CTX *hash, char digest[static BLOB_DIGEST_BYTES])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (EVP_DigestFinal_ex(hash, bytes, &length) != 1 || length != 32)
        abort();
    int at = snprintf(digest, BLOB_DIGEST_BYTES, "sha256:");
    for (unsigned i = 0; i < length; i++)
        at += snprintf(digest + at, BLOB_DIGEST_BYTES - (size_t)at, "%02x", bytes[i]);
}

void blob_digest(const void *data, size_t size, char digest[static BLOB_DIGEST_BYTES])
{
    EVP_MD_CTX *hash = hash_new();
    EVP_DigestUpdate(hash, data, size);
    hash_finish(hash, digest);
    EVP_MD_CTX_free(hash);
}

/* --- the two readers --- */

static la_ssize_t read_packed(struct archive *archive, void *context, const void **data)
{
    struct blob *blob = context;
    ssize_t got = stream_read(&blob->stream, blob->packed, BUFFER_BYTES, &blob->err);
    if (got < 0) {
        archive_set_error(archive, 0, "%s", blob->err.message);
        return -1;
    }
    EVP_DigestUpdate(blob->packed_hash, blob->packed, (size_t)got);
    blob->packed_bytes += (uint64_t)got;
    *data = blob->packed;
    return got;
}

/* The next unpacked bytes; 0 at the end, -1 with blob->err. */
static ssize_t unpack(struct blob *blob)
{
    if (blob->has_ended)
        return 0;
    la_ssize_t got = archive_read_data(blob->unpacker, blob->plain, BUFFER_BYTES);
    blob->has_ended = got <= 0;
    if (got < 0 && blob->err.kind == ERROR_NONE)
        error_set(&blob->err, ERROR_INVALID, "it cannot be unpacked: %.120s",
                  archive_error_string(blob->unpacker) ? archive_error_string(blob->unpacker) : "cut or damaged");
    if (got <= 0)
        return got < 0 ? -1 : 0;
    blob->plain_bytes += (uint64_t)got;
    if (blob->plain_bytes > blob->plain_max) {
        error_set(&blob->err, ERROR_TOO_LARGE, "unpacked it has more than %" PRIu64 " MiB", blob->plain_max >> 20);
        return -1;
    }
    EVP_DigestUpdate(blob->plain_hash, blob->plain, (size_t)got);
    return got;
}

static la_ssize_t read_plain(struct archive *archive, void *context, const void **data)
{
    struct blob *blob = context;
    ssize_t got = unpack(blob);
    if (got < 0)
        archive_set_error(archive, 0, "%s", blob->err.message);
    *data = blob->plain;
    return got;
}

/* --- opening --- */

static bool fail_open(struct archive *archive, struct error *err)
{
    const char *why = archive_error_string(archive);
    return error_set(err, ERROR_INVALID, "it cannot be read: %.120s", why ? why : "damaged");
}

static bool open_unpacker(struct blob *blob, struct error *err)
{
    struct archive_entry *entry = NULL;
    archive_read_support_filter_gzip(blob->unpacker);
    archive_read_support_filter_zstd(blob->unpacker);
    archive_read_support_format_raw(blob->unpacker);
    archive_read_support_format_empty(blob->unpacker);
    if (archive_read_open(blob->unpacker, blob, NULL, read_packed, NULL) != ARCHIVE_OK)
        return fail_open(blob->unpacker, err);
    int status = archive_read_next_header(blob->unpacker, &entry);
    blob->has_ended = status == ARCHIVE_EOF;
    return status >= ARCHIVE_WARN || status == ARCHIVE_EOF || fail_open(blob->unpacker, err);
}

static bool open_tar(struct blob *blob, struct error *err)
{
    archive_read_support_format_tar(blob->tar);
    archive_read_support_format_empty(blob->tar);
    return archive_read_open(blob->tar, blob, NULL, read_plain, NULL) == ARCHIVE_OK || fail_open(blob->tar, err);
}

bool blob_open(struct blob *blob, const struct source *source, const char *name, uint64_t plain_max, struct error *err)
{
    *blob = (struct blob){.stream = STREAM_NONE, .plain_max = plain_max};
    blob->unpacker = archive_read_new();
    blob->tar = archive_read_new();
    blob->packed_hash = hash_new();
    blob->plain_hash = hash_new();
    blob->packed = memory_new(BUFFER_BYTES);
    blob->plain = memory_new(BUFFER_BYTES);
    if (blob->unpacker == NULL || blob->tar == NULL)
        abort(); /* no memory */
    if (stream_open(&blob->stream, source, name, err) && open_unpacker(blob, err) && open_tar(blob, err))
        return true;
    blob_explain(blob, err);
    return false;
}

/* --- ending --- */

void blob_explain(const struct blob *blob, struct error *err)
{
    if (err && blob->err.kind != ERROR_NONE)
        *err = blob->err;
}

bool blob_finish(struct blob *blob, struct blob_facts *facts, struct error *err)
{
    ssize_t got = 1;
    while (got > 0)
        got = unpack(blob);
    /* The unpacker may have stopped before the last packed byte. */
    while (got == 0) {
        const void *data = NULL;
        la_ssize_t more = read_packed(blob->unpacker, blob, &data);
        if (more == 0)
            break;
        got = more < 0 ? -1 : 0;
    }
    if (got < 0) {
        blob_explain(blob, err);
        return false;
    }
    hash_finish(blob->packed_hash, facts->digest);
    hash_finish(blob->plain_hash, facts->plain_digest);
    facts->bytes = blob->packed_bytes;
    return true;
}

void blob_done(struct blob *blob)
{
    if (blob->tar)
        archive_read_free(blob->tar);
    if (blob->unpacker)
        archive_read_free(blob->unpacker);
    EVP_MD_CTX_free(blob->packed_hash);
    EVP_MD_CTX_free(blob->plain_hash);
    free(blob->packed);
    free(blob->plain);
    stream_done(&blob->stream);
    *blob = (struct blob){.stream = STREAM_NONE};
}
