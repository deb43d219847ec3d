/* plane.c - the audit line. */
#include "sandboxd/dialects/plane.h"

#include "shared/base/log.h"
#include "shared/base/text.h"

#include <stdarg.h>
#include <stdio.h>

void plane_audit(const struct http_request *request, const char *action, const char *detail, ...)
{
    char text[3072];
    va_list list;
    va_start(list, detail);
    (void)vsnprintf(text, sizeof text, detail, list);
    va_end(list);
    const struct capability_claims *claims = &caller_of(request)->claims;
    AUTO_TEXT links = {0};
    for (size_t i = 0; i < claims->link_count; i++)
        text_append_format(&links, "%s%s", i ? "," : "", claims->link_ids[i]);
    log_info("audit", "action=%s sandbox=%s jti=%s links=%s principal=%s actor=%s thread=%s request=%s remote=%s %s",
             action, claims->sandbox_id, claims->jti, links.length ? links.data : "-", claims->principal,
             claims->actor[0] ? claims->actor : "-", claims->thread_id, http_request_id(request),
             http_request_remote(request), text);
}
