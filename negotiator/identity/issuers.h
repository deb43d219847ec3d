/** issuers.h - whose tokens are taken beside our own keys, and as whom: read from the operator's identity_file. */
#pragma once

#include "negotiator/leasing/principal.h"

#include <jansson.h>

#define ISSUERS_MAX 16

/** Bits of issuer.algorithms: all there are. */
enum jwt_algorithm { JWT_RS256 = 1, JWT_ES256 = 2 };

struct issuer {
    const char *name;     /* 1..32 of a-z 0-9 - : the principals' prefix */
    const char *issuer;   /* what `iss` is, to the byte */
    const char *audience; /* what `aud` is, or has among its own */
    unsigned algorithms;  /* bits of enum jwt_algorithm */
    const char *jwks;     /* an absolute path, or a URL: https, or http to this host */
    bool is_url;
    char *ca;               /* PEM of the authorities for that URL; NULL: the system's */
    const char *name_claim; /* whose text is the principal's name behind the prefix: "sub" */
    const char *role_claim; /* NULL: all have the default role. "a.b": b of the object a */
    json_t *role_map;       /* text of that claim, or of one in it -> role's name; NULL when there is no claim */
    enum role default_role;
};

struct issuers {
    json_t *document; /* what the texts of the issuers belong to */
    struct issuer each[ISSUERS_MAX];
    size_t count;
};

/** Reads them. ERROR_INVALID names the place and what is allowed there, or the file that cannot be read. */
bool issuers_load(struct issuers *issuers, const char *file, struct error *err) MUST_USE;
/** Frees what it owns, leaves it empty. */
void issuers_done(struct issuers *issuers);
#define AUTO_ISSUERS __attribute__((cleanup(issuers_done))) struct issuers

/** The one of that `iss`; NULL. */
const struct issuer *issuers_find(const struct issuers *issuers, const char *issuer) MUST_USE;
