/** cleanup.h - release bound to scope: AUTO(x) frees when the variable goes out of scope, TAKE hands it on. */
#pragma once

#include <stdlib.h>
#include <unistd.h>

#define MUST_USE __attribute__((warn_unused_result))
#define UNUSED   __attribute__((unused))

/** Declares a local `struct x *` that is freed at the end of its scope; DEFINE_AUTO(x) stands in x's header. */
#define AUTO(x) __attribute__((cleanup(x##_cleanup))) struct x

/** Writes the cleanup for AUTO(x) around `x_free(struct x *)`, which must accept NULL. */
#define DEFINE_AUTO(x)                                                                                                 \
    static inline void x##_cleanup(struct x **held)                                                                    \
    {                                                                                                                  \
        x##_free(*held);                                                                                               \
    }

/** Yields the pointer and leaves NULL, so that the scope no longer frees it. */
#define TAKE(pointer)                                                                                                  \
    __extension__({                                                                                                    \
        __typeof__(pointer) taken_ = (pointer);                                                                        \
        (pointer) = NULL;                                                                                              \
        taken_;                                                                                                        \
    })

/** Yields the descriptor and leaves -1. */
#define TAKE_FD(fd)                                                                                                    \
    __extension__({                                                                                                    \
        int taken_ = (fd);                                                                                             \
        (fd) = -1;                                                                                                     \
        taken_;                                                                                                        \
    })

static inline void cleanup_free_(void *held)
{
    free(*(void **)held);
}

static inline void cleanup_fd_(const int *held)
{
    if (*held >= 0)
        close(*held);
}

/** `AUTO_FREE char *text = ...;` and `AUTO_FD int fd = -1;` */
#define AUTO_FREE __attribute__((cleanup(cleanup_free_)))
#define AUTO_FD   __attribute__((cleanup(cleanup_fd_)))
