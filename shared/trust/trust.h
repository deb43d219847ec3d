/** trust.h - whom this process believes that is called by https: certificate authorities from a file, or one
 * certificate by its fingerprint. For all transfers of libcurl (OpenSSL) that are given to trust_apply. */
#pragma once

#include "shared/base/error.h"

#include <curl/curl.h>
#include <stdbool.h>

enum { TRUST_FINGERPRINT_BYTES = 65 };

/** Believes from now on, besides nobody else, what `ca_file` (PEM, read now; NULL: the system's authorities) vouches
 *  for; or, where `fingerprint` is not NULL, the certificate with that SHA-256: 64 hexadecimal digits, with or without
 *  colons. It may be the server's own or that of an authority above it, which then alone counts. Names are checked in
 *  every case. NULL and NULL: as the system. ERROR_INVALID, ERROR_NOT_FOUND. Before the first transfer and before
 *  threads start; again replaces it. */
bool trust_set(const char *ca_file, const char *fingerprint, struct error *err) MUST_USE;

/** Lets a transfer follow it. */
void trust_apply(CURL *curl);

/** A client's context of OpenSSL that believes the authorities alone, for connections that libcurl does not make; the
 *  caller frees it (SSL_CTX_free), and says which name it expects. ERROR_INTERNAL. */
struct ssl_ctx_st *trust_context(struct error *err) MUST_USE;

/** After a transfer of this thread has failed: true, and why, if it did because of trust; both fingerprints are told
 *  when the one expected did not come. */
bool trust_refused(CURLcode code, const char *host, struct error *err);

/** 64 lower-case digits from what people write. False: it is no SHA-256. */
bool trust_parse_fingerprint(char to[static TRUST_FINGERPRINT_BYTES], const char *text) MUST_USE;
