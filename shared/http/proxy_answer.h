/** proxy_answer.h - reads what another HTTP/1.1 server answers, over libhttp-parser, and judges it: one framing, sound
 *  headers, bounded. Knows no sockets; the fuzzer's target. */
#pragma once

#include "shared/base/error.h"
#include "shared/base/text.h"

struct http_parser; /* the library's header has names of ours */

#define HTTP_ANSWER_HEAD_MAX_BYTES 65536
#define HTTP_ANSWER_FIELDS_MAX     200
#define HTTP_ANSWER_INTERIM_MAX    16 /* 1xx before the answer itself */

enum http_answer_state {
    HTTP_ANSWER_HEAD,
    HTTP_ANSWER_BODY,    /* the head is whole and sound; its body comes, if it has one */
    HTTP_ANSWER_END,     /* the last byte of the body was read */
    HTTP_ANSWER_UPGRADED /* 101: what follows is no HTTP */
};

/** Embedded; http_answer_init first. */
struct http_answer {
    enum http_answer_state state;
    int status;
    struct text fields; /* name NUL value NUL ...; names in lower case, values trimmed, no control characters */
    size_t field_count;
    uint64_t length;  /* of the body; UINT64_MAX: not said */
    bool has_body;    /* false: HEAD, 204, 304; then `length` is what the body would have had */
    bool is_by_end;   /* the body ends with the connection */
    bool keeps_alive; /* the connection may be used again after END */
    bool has_begun;   /* a byte has come */
    /* private */
    struct http_parser *parser;
    bool is_for_head, may_upgrade, is_in_value, is_broken;
    unsigned interim;
    struct error broken;
    void (*body)(void *cookie, const char *data, size_t size);
    void *cookie;
};

/** `is_for_head`: it answers a HEAD. `may_upgrade`: a 101 was asked for. body(cookie, ...) gets the bytes of the body,
 *  in pieces. */
void http_answer_init(struct http_answer *answer, bool is_for_head, bool may_upgrade,
                      void (*body)(void *cookie, const char *data, size_t size), void *cookie);
void http_answer_done(struct http_answer *answer);

/** Takes bytes up to the end of the head, when `state` becomes BODY, or UPGRADED; called again, up to the END of the
 *  body. Interim answers are skipped. False with BAD_GATEWAY: it is no answer that could be passed on. */
bool http_answer_read(struct http_answer *answer, const char *data, size_t size, size_t *used,
                      struct error *err) MUST_USE;

/** The connection has ended: END when that ends the body. False with BAD_GATEWAY: too early. */
bool http_answer_read_end(struct http_answer *answer, struct error *err) MUST_USE;

/** "Found" for 302. */
const char *http_answer_reason(int status) MUST_USE;

/** The next header behind `at` (NULL: the first), NULL behind the last; its value in *value. */
const char *http_answer_next(const struct http_answer *answer, const char *at, const char **value) MUST_USE;
