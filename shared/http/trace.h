/** trace.h - the trace that a request belongs to (W3C Trace Context, level 1): read strictly, as it goes to other
 *  programs and into logs. Knows no sockets. */
#pragma once

#include "shared/base/text.h"

#define HTTP_TRACE_ID_BYTES    33 /* 32 hex digits in small letters and a NUL */
#define HTTP_SPAN_ID_BYTES     17
#define HTTP_TRACEPARENT_BYTES 56 /* "00-<trace id>-<span id>-<flags>" and a NUL */
#define HTTP_TRACESTATE_MAX    512

/** Embedded. */
struct http_trace {
    char trace_id[HTTP_TRACE_ID_BYTES];
    char parent_id[HTTP_SPAN_ID_BYTES]; /* whose caller's span it goes on from; "": it began here */
    char span_id[HTTP_SPAN_ID_BYTES];   /* of this request */
    unsigned flags;                     /* 0..255, as they came; bit 0: sampled */
};

/** Reads `traceparent` into trace_id, parent_id and flags; span_id stays. Version 00 is exactly 55 characters; of a
 *  higher one (ff is none) what 00 has counts, and '-' must follow it if anything does. False for all else, NULL
 *  included: digits in capitals, ids of zeros. *trace is untouched then. */
bool http_trace_parse(struct http_trace *trace, const char *traceparent) MUST_USE;

/** What a call made under this request says, by its own span: always version 00; only the flag "sampled" is told. */
void http_trace_format(const struct http_trace *trace, char to[static HTTP_TRACEPARENT_BYTES]);
