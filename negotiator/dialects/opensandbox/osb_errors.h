/** osb_errors.h - refusals as OpenSandbox clients read them: {"code": "AREA::REASON", "message"}. Private to this
 *  folder. */
#pragma once

#include "negotiator/dialects/plane.h"

/** What went wrong, and its code where the protocol has one of its own; NULL: the kind's. */
struct osb_refusal {
    struct error err;
    const char *code; /* static */
    int status;       /* 0: the kind's */
};

/** Sets the refusal and returns false. */
bool osb_refusal_set(struct osb_refusal *refusal, const char *code, enum error_kind kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** The code of a kind, where nothing more is known. `of_snapshot`: the route is about one. */
const char *osb_code(enum error_kind kind, bool of_snapshot) MUST_USE;

/** The same, as the route has it. */
const char *osb_code_of(const struct http_request *request, enum error_kind kind) MUST_USE;

/** Ends the request with the refusal of a rule, which has recorded it. */
void osb_answer(struct http_request *request, const struct error *err);
/** Ends the request with a refusal of this dialect's, recorded (plane_refuse). */
void osb_refuse(struct http_request *request, const struct osb_refusal *refusal);
/** The same of what changes nothing: not recorded. */
void osb_refuse_quietly(struct http_request *request, const struct osb_refusal *refusal);
