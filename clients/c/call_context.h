/** call_context.h - what all calls of this process say of themselves: one request id and, when the caller is part of a
 *  trace, its W3C traceparent; so that one command is found again in the logs and audit of both planes. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/text.h"

#include <curl/curl.h>

/** For a program, before its first call and before threads start: makes the id. `traceparent` and `tracestate` (NULL:
 *  none) go on as they are when they are header values of at most 512 bytes; servers judge them. A library's user need
 *  not call it: then nothing is said, and servers make ids. */
void call_context_start(const char *traceparent, const char *tracestate);

/** "req_..."; "" before call_context_start. */
const char *call_context_request_id(void) MUST_USE;

/** A call of this process was answered with an error, or not at all. */
void call_context_note_failure(void);
/** The id, when that was; else NULL. */
const char *call_context_failed_id(void) MUST_USE;

/** Adds the headers; returns the list. */
struct curl_slist *call_context_add(struct curl_slist *headers);
/** The same as lines of a request's head. */
void call_context_write(struct text *to);
