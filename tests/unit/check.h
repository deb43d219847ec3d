/** check.h - the whole of our unit test framework: CHECK counts and tells, check_done ends the program. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition);                                     \
            check_failures++;                                                                                          \
        }                                                                                                              \
    } while (0)

#define CHECK_TEXT(got, want)                                                                                          \
    do {                                                                                                               \
        const char *got_ = (got), *want_ = (want);                                                                     \
        if (got_ == NULL || strcmp(got_, want_) != 0) {                                                                \
            (void)fprintf(stderr, "%s:%d: got \"%s\", want \"%s\"\n", __FILE__, __LINE__, got_ ? got_ : "(null)", want_);    \
            check_failures++;                                                                                          \
        }                                                                                                              \
    } while (0)

/** 0 when everything held; `return check_done();` ends main. */
static inline int check_done(void)
{
    return check_failures ? 1 : 0;
}

/** Ends the program as skipped. */
static inline void check_skip(const char *why)
{
    (void)printf("skipped: %s\n", why);
    exit(77);
}
