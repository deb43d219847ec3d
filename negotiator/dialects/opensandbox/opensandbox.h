/** opensandbox.h - the OpenSandbox lifecycle protocol below /v1: what its clients send, as questions to the rules, and
 *  what the rules answer, as they read it. specs/opensandbox.md says what is served. Nothing is decided here. */
#pragma once

#include "negotiator/dialects/plane.h"

/* Where the egress policy of a sandbox is. Errors of what is below are plain text. */
#define OSB_EGRESS "/v1/sandboxes/{sandbox_id}/port/18080"

/* Where a request may show its API key. */
#define OSB_KEY (HTTP_OPENSANDBOX | HTTP_BEARER | HTTP_API_KEY)

/** All rows of this folder, one table. */
struct plane_rows opensandbox_rows(void);

/** For http_server_options.error_body: {"code", "message"} of what was asked below /v1; NULL of anything else. */
json_t *opensandbox_error(const struct http_request *request, const struct error *err) MUST_USE;

/** Whether the setting image_templates is "GLOB=TEMPLATE,..."; ERROR_INVALID says what is not. */
bool opensandbox_check_images(const char *map, struct error *err) MUST_USE;

/* ---- one file's rows each; private to this folder ---- */
struct plane_rows osb_create_rows(void);      /* L1 */
struct plane_rows osb_sandboxes_rows(void);   /* L2, L3, L4 */
struct plane_rows osb_changes_rows(void);     /* L5 to L8 */
struct plane_rows osb_endpoints_rows(void);   /* L9 */
struct plane_rows osb_snapshots_rows(void);   /* L10 to L13 */
struct plane_rows osb_diagnostics_rows(void); /* L14 */
struct plane_rows osb_egress_rows(void);      /* port 18080 */
struct plane_rows osb_other_rows(void);       /* health, and what is not served */
struct plane_rows osb_proxy_rows(void);       /* L15 */
