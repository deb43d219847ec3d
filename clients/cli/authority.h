/** authority.h - a small certificate authority in a folder: ca.pem, ca.key, and what it issues (mbedTLS, P-256). */
#pragma once

#include "shared/base/error.h"

#include <stdbool.h>

enum { AUTHORITY_HOSTS_MAX = 32, AUTHORITY_FINGERPRINT_BYTES = 65 };

/** A certificate of `folder`, for people; zero is empty. */
struct authority_view {
    char fingerprint[AUTHORITY_FINGERPRINT_BYTES]; /* SHA-256, hexadecimal */
    char ends[32];                                 /* "2027-01-31T12:00:00Z" */
    bool is_over;
};

/** Makes ca.key (0600) and ca.pem (0644) in `folder` (made, 0711), good for `days`. ERROR_CONFLICT when there is one.
 */
bool authority_make(const char *folder, unsigned days, struct error *err) MUST_USE;

/** Issues server.key (0600) and server.pem (0644: its certificate and the authority's) into `to` with the authority of
 *  `folder`, for `hosts`: DNS names (also *.name) and IP addresses, with commas; noted in `to`/hosts. Each file is
 *  replaced whole, the key first. ERROR_INVALID names what is no host; ERROR_NOT_FOUND without an authority. */
bool authority_issue(const char *folder, const char *to, const char *hosts, unsigned days, struct error *err) MUST_USE;

/** The first certificate of a PEM file. */
bool authority_view(struct authority_view *view, const char *file, struct error *err) MUST_USE;
