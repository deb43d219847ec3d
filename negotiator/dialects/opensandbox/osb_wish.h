/** osb_wish.h - the body of POST /v1/sandboxes as `wanted` (leasing/wanted.h). Pure. Private to this folder. */
#pragma once

#include "negotiator/dialects/opensandbox/osb_errors.h"
#include "negotiator/leasing/wanted.h"

/** What this deployment makes of what a body leaves open. */
struct osb_defaults {
    const char *image_templates; /* "GLOB=TEMPLATE,..." (fnmatch(3)): the first that an image's URI meets */
    const json_t *templates;     /* as fleet_templates gives them; NULL: none but what the map names */
    const char *egress;          /* "none" or "public": without a networkPolicy */
};

/** Reads the body; fields that this protocol does not know are passed over, as its server does. */
bool osb_wish_read(struct wanted *wanted, json_t *body, const struct osb_defaults *defaults,
                   struct osb_refusal *refusal) MUST_USE;

/** One list of Volume as `wanted->volumes`. */
bool osb_volumes_read(struct wanted *wanted, json_t *list, struct osb_refusal *refusal) MUST_USE;

/** An object of texts by the rules of Kubernetes' labels; `nulls` may be among them (a merge patch). */
bool osb_metadata_check(json_t *metadata, bool nulls, struct osb_refusal *refusal) MUST_USE;
