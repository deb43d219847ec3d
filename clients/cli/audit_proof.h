/** audit_proof.h - the chain as a whole: `parley audit verify` and `export`. They print and return the exit status. */
#pragma once

#include "clients/c/place.h"

#include <stdint.h>

enum { AUDIT_PAGE_RECORDS = 1000 };

struct audit_head {
    uint64_t seq;
    const char *hash; /* 64 hex digits */
};

/** Asks for the proof; `head`, if not NULL, must be part of the chain. */
int audit_verify(const struct place *place, const struct audit_head *head, bool json) MUST_USE;

/** All records from number `from` on (0: the oldest), one a line, each checked to follow the one before. */
int audit_export(const struct place *place, uint64_t from) MUST_USE;
