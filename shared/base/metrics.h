/** metrics.h - figures that any thread may add to, and their text for Prometheus (exposition format 0.0.4; names by its
 *  convention: a unit at the end, `_total` of counters). A label never holds an id, a path or a name that strangers
 *  choose: the number of series is bounded by the program. */
#pragma once

#include "shared/base/text.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

/** The content type of /metrics. */
#define METRICS_TYPE       "text/plain; version=0.0.4; charset=utf-8"

#define METRICS_NAME_BYTES 96 /* of a metric's name, with its NUL */

/** A count that only grows; zero is empty. Embedded or static. */
struct metrics_counter {
    _Atomic uint64_t count;
};
/** Any thread, as the next. */
void metrics_add(struct metrics_counter *counter, uint64_t more);
uint64_t metrics_count(const struct metrics_counter *counter) MUST_USE;

#define METRICS_BOUNDS 16 /* 0.1 ms to 60 s, the same of all histograms */

/** How long things took; zero is empty. Embedded or static. */
struct metrics_histogram {
    _Atomic uint64_t buckets[METRICS_BOUNDS + 1]; /* each alone, the last of what took longer than all bounds */
    _Atomic uint64_t sum_ns;
};
/** Any thread. */
void metrics_observe(struct metrics_histogram *histogram, uint64_t ns);
/** Adds what `from` has to `to`: of several threads' to one. */
void metrics_merge(struct metrics_histogram *to, const struct metrics_histogram *from);
bool metrics_is_empty(const struct metrics_histogram *histogram) MUST_USE;

/* ---- writing ---- */

enum metrics_kind { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM };

/** The two lines before the samples of one name, which follow it without another's between. */
void metrics_family(struct text *to, const char *name, enum metrics_kind kind, const char *help);
/** One sample; then names and values of its labels in turn, NULL at the end. Whatever a value holds, it stays one. */
void metrics_sample(struct text *to, const char *name, double value, ...) __attribute__((sentinel));
/** The samples of a histogram, labels as above. */
void metrics_sample_histogram(struct text *to, const char *name, const struct metrics_histogram *histogram, ...)
    __attribute__((sentinel));
/** A family of one sample without labels. */
void metrics_single(struct text *to, const char *name, enum metrics_kind kind, const char *help, double value);

/** The process itself under the names that all clients use: process_cpu_seconds_total, process_open_fds and so on.
 *  What /proc does not tell is left out. */
void metrics_process(struct text *to);
