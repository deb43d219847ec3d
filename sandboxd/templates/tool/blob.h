/** blob.h - one member as it is read: its bytes hashed, unpacked, hashed again, and a tar reader over the rest. */
#pragma once

#include "sandboxd/templates/tool/source.h"

#include <openssl/evp.h>

#define BLOB_DIGEST_BYTES 72 /* "sha256:<64 hex>" with NUL */

/** Not to be moved while open: its own callbacks know its address. Zeroed before blob_open. Private but for tar. */
struct blob {
    struct archive *tar; /* reads the unpacked bytes */
    struct stream stream;
    struct archive *unpacker;
    EVP_MD_CTX *packed_hash, *plain_hash;
    char *packed, *plain; /* buffers */
    uint64_t packed_bytes, plain_bytes, plain_max;
    bool has_ended;
    struct error err; /* why a callback failed */
};

/** What it was, once read to its end. */
struct blob_facts {
    char digest[BLOB_DIGEST_BYTES], plain_digest[BLOB_DIGEST_BYTES];
    uint64_t bytes; /* as it came */
};

/** Opens the member as a layer: a tar, plain or packed by gzip or zstd, of at most `plain_max` bytes. */
bool blob_open(struct blob *blob, const struct source *source, const char *name, uint64_t plain_max,
               struct error *err) MUST_USE;
/** Reads what the tar reader left, and tells what it all was. */
bool blob_finish(struct blob *blob, struct blob_facts *facts, struct error *err) MUST_USE;
/** When reading from blob->tar failed for a reason of the blob's own, puts that into err. */
void blob_explain(const struct blob *blob, struct error *err);
void blob_done(struct blob *blob);
#define AUTO_BLOB __attribute__((cleanup(blob_done))) struct blob

/** The digest of bytes in memory. */
void blob_digest(const void *data, size_t size, char digest[static BLOB_DIGEST_BYTES]);
#define BLOB_NONE ((struct blob){.stream = STREAM_NONE})
