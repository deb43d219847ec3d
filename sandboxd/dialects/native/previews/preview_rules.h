/** preview_rules.h - what a preview's address, cookies and origins mean (protocol.md, 5 "Ports"), as text. Pure. */
#pragma once

#include "shared/base/error.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREVIEW_TOKEN_MAX_BYTES 3800 /* browsers keep cookies of up to 4096 bytes, name and all */

/** What a host's label names. */
struct preview_label {
    uint16_t port;
    bool is_port_last;                 /* "sbx-1a2b-3000", as OpenSandbox's clients have it */
    char sandbox[CAPABILITY_ID_BYTES]; /* what stands for it: "sbx-1a2b" */
};

/** The label "3000-sbx-1a2b", or "sbx-1a2b-3000", of a preview's host. NOT_FOUND when it is no such. */
bool preview_label_parse(struct preview_label *label, const char *text, struct error *err) MUST_USE;

/** Whether `sandbox` of a label stands for this id: in small letters, with - for _. */
bool preview_label_is_of(const char *sandbox, const char *sandbox_id) MUST_USE;

/** The name of the cookie that holds a preview's token; a secure one nobody but this very host can set. */
const char *preview_cookie_name(bool is_secure) MUST_USE;

/** The value of the next cookie of that name in a Cookie header, *size bytes; NULL: none. `*at` moves behind it. */
const char *preview_cookie_next(const char **at, const char *name, size_t *size) MUST_USE;

/** Appends a Cookie header's value without our cookies; nothing when there are no others. */
void preview_cookie_strip(struct text *to, const char *cookies);

/** Appends what of an app's Set-Cookie goes on: all but Domain, so that it reaches no other sandbox. False: it is ours
 * by name, or has none, which browsers take for one. */
bool preview_set_cookie_filter(struct text *to, const char *cookie) MUST_USE;

/** Whether an Origin is that of the host itself, whatever the scheme. NULL is not. */
bool preview_origin_is_own(const char *origin, const char *host) MUST_USE;

/** Appends `target` ("/path?query") as a Location that no browser takes for another host's. */
void preview_location(struct text *to, const char *target);

/** Whether a credential's text has the shape of our tokens: what has not is the app's own. */
bool preview_is_token(const char *text) MUST_USE;

/** Appends the page for people whose browser has no good credential. */
void preview_page(struct text *to, uint16_t port, const char *why);
