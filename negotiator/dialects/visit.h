/** visit.h - a question to the rules and its answer: the errand of every question that the rules take, answer once on
 *  the ledger thread, and give back. Private to this folder. */
#pragma once

#include "negotiator/dialects/errand.h"
#include "negotiator/dialects/waiting.h"
#include "shared/base/memory.h"

#include <stdlib.h>

/** For struct `type`, with `refusal`, `answered` and `cookie`, and its type_free. Defines, on the request's loop,
 *
 *    struct type *type_visit(request, question, print)  takes the question and returns it, to be handed to the rules.
 * Its refusal is printed (by waiting_refuse, or what a dialect gives), else print(request, question) is called; neither
 * when the client left void type_visit_cancel(question)                   when the rules did not take it: freed,
 * nothing is printed */
#define DEFINE_VISIT_BY(type, refuse)                                                                                  \
    struct type##_visit {                                                                                              \
        struct errand errand;                                                                                          \
        struct type *question; /* owned; the rules' until they answer */                                               \
        void (*print)(struct http_request * request, const struct type *question);                                     \
    };                                                                                                                 \
                                                                                                                       \
    static void type##_visit_print(struct http_request *request, struct errand *errand)                                \
    {                                                                                                                  \
        const struct type##_visit *visit = (struct type##_visit *)errand;                                              \
        if (visit->question->refusal.kind != ERROR_NONE)                                                               \
            refuse(request, &visit->question->refusal);                                                                \
        else                                                                                                           \
            visit->print(request, visit->question);                                                                    \
    }                                                                                                                  \
                                                                                                                       \
    static void type##_visit_free(struct errand *errand)                                                               \
    {                                                                                                                  \
        struct type##_visit *visit = (struct type##_visit *)errand;                                                    \
        type##_free(visit->question);                                                                                  \
        free(visit);                                                                                                   \
    }                                                                                                                  \
                                                                                                                       \
    static void type##_visit_answered(void *cookie, struct type *question)                                             \
    {                                                                                                                  \
        struct type##_visit *visit = cookie;                                                                           \
        visit->question = question;                                                                                    \
        errand_return(&visit->errand);                                                                                 \
    }                                                                                                                  \
                                                                                                                       \
    static struct type *type##_visit(const struct http_request *request, struct type *question,                        \
                                     void (*print)(struct http_request * request, const struct type *question))        \
    {                                                                                                                  \
        struct type##_visit *visit = memory_new(sizeof *visit);                                                        \
        errand_begin(&visit->errand, request);                                                                         \
        visit->errand.print = type##_visit_print;                                                                      \
        visit->errand.free = type##_visit_free;                                                                        \
        visit->question = question;                                                                                    \
        visit->print = print;                                                                                          \
        question->answered = type##_visit_answered;                                                                    \
        question->cookie = visit;                                                                                      \
        return question;                                                                                               \
    }                                                                                                                  \
                                                                                                                       \
    UNUSED static void type##_visit_cancel(struct type *question)                                                      \
    {                                                                                                                  \
        type##_visit_free(question->cookie);                                                                           \
    }

#define DEFINE_VISIT(type) DEFINE_VISIT_BY(type, waiting_refuse)
