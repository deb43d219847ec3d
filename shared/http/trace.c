#include "shared/http/trace.h"

#include <stdio.h>
#include <string.h>

static const char HEX[] = "0123456789abcdef";

/* `size` hex digits in small letters at the start of `text`. */
static bool is_hex(const char *text, size_t size)
{
    return strspn(text, HEX) >= size;
}

static bool is_id(const char *text, size_t size)
{
    return is_hex(text, size) && strspn(text, "0") < size;
}

static unsigned byte_of(const char *text)
{
    return (unsigned)(strchr(HEX, text[0]) - HEX) * 16 + (unsigned)(strchr(HEX, text[1]) - HEX);
}

bool http_trace_parse(struct http_trace *trace, const char *traceparent)
{
    enum { TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, LENGTH = 55 };
    size_t length = traceparent != NULL ? strlen(traceparent) : 0;
    if (length < LENGTH || !is_hex(traceparent, 2) || traceparent[2] != '-' || traceparent[SPAN_AT - 1] != '-' ||
        traceparent[FLAGS_AT - 1] != '-')
        return false;
    unsigned version = byte_of(traceparent);
    bool is_whole = length == LENGTH || (version > 0 && traceparent[LENGTH] == '-');
    if (version == 0xFF || !is_whole || !is_id(traceparent + TRACE_AT, 32) || !is_id(traceparent + SPAN_AT, 16) ||
        !is_hex(traceparent + FLAGS_AT, 2))
        return false;
    snprintf(trace->trace_id, sizeof trace->trace_id, "%.32s", traceparent + TRACE_AT);
    snprintf(trace->parent_id, sizeof trace->parent_id, "%.16s", traceparent + SPAN_AT);
    trace->flags = byte_of(traceparent + FLAGS_AT);
    return true;
}

void http_trace_format(const struct http_trace *trace, char to[static HTTP_TRACEPARENT_BYTES])
{
    snprintf(to, HTTP_TRACEPARENT_BYTES, "00-%.32s-%.16s-%02x", trace->trace_id, trace->span_id, trace->flags & 1);
}
