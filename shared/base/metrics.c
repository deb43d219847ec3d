#include "shared/base/metrics.h"

#include <stdio.h>
#include <string.h>

static const uint64_t MICROSECOND_NS = 1000;
static const double SECOND_NS = 1e9;

static const struct {
    uint64_t us;
    const char *text;
} BOUNDS[METRICS_BOUNDS] = {{100, "0.0001"},  {500, "0.0005"},  {1000, "0.001"},  {2500, "0.0025"},
                            {5000, "0.005"},  {10000, "0.01"},  {25000, "0.025"}, {50000, "0.05"},
                            {100000, "0.1"},  {250000, "0.25"}, {500000, "0.5"},  {1000000, "1"},
                            {2500000, "2.5"}, {5000000, "5"},   {15000000, "15"}, {60000000, "60"}};

void metrics_add(struct metrics_counter *counter, uint64_t more)
{
    atomic_fetch_add_explicit(&counter->count, more, memory_order_relaxed);
}

uint64_t metrics_count(const struct metrics_counter *counter)
{
    return atomic_load_explicit(&counter->count, memory_order_relaxed);
}

void metrics_observe(struct metrics_histogram *histogram, uint64_t ns)
{
    size_t at = 0;
    while (at < METRICS_BOUNDS && ns > BOUNDS[at].us * MICROSECOND_NS)
        at++;
    atomic_fetch_add_explicit(&histogram->buckets[at], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum_ns, ns, memory_order_relaxed);
}

void metrics_merge(struct metrics_histogram *to, const struct metrics_histogram *from)
{
    for (size_t i = 0; i <= METRICS_BOUNDS; i++)
        atomic_fetch_add_explicit(&to->buckets[i], atomic_load_explicit(&from->buckets[i], memory_order_relaxed),
                                  memory_order_relaxed);
    atomic_fetch_add_explicit(&to->sum_ns, atomic_load_explicit(&from->sum_ns, memory_order_relaxed),
                              memory_order_relaxed);
}

bool metrics_is_empty(const struct metrics_histogram *histogram)
{
    for (size_t i = 0; i <= METRICS_BOUNDS; i++)
        if (atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed) > 0)
            return false;
    return true;
}

/* ---- writing ---- */

static void append_number(struct text *to, double value)
{
    bool is_small = value > -9e15 && value < 9e15; /* every whole number of these is a double of its own */
    if (is_small && value == (double)(int64_t)value)
        text_append_format(to, "%.0f", value);
    else
        text_append_format(to, "%.15g", value);
    text_append_string(to, "\n");
}

/* What is no UTF-8 would have the whole page refused. */
static void append_label(struct text *to, const char *name, const char *value)
{
    size_t length = strlen(value);
    bool is_utf8 = text_utf8_prefix(value, length) == length;
    text_append_format(to, "%s%s=\"", to->length == 0 ? "" : ",", name);
    for (size_t i = 0; i < length; i++) {
        if (value[i] == '\\' || value[i] == '"')
            text_append_format(to, "\\%c", value[i]);
        else if (value[i] == '\n')
            text_append_string(to, "\\n");
        else
            text_append(to, is_utf8 || (unsigned char)value[i] < 0x80 ? &value[i] : "?", 1);
    }
    text_append_string(to, "\"");
}

static void append_labels(struct text *to, va_list list)
{
    for (const char *name = va_arg(list, const char *); name != NULL; name = va_arg(list, const char *)) {
        const char *value = va_arg(list, const char *);
        append_label(to, name, value != NULL ? value : "");
    }
}

static void append_sample(struct text *to, const char *name, const char *suffix, const struct text *labels,
                          double value)
{
    if (labels->length > 0)
        text_append_format(to, "%s%s{%s} ", name, suffix, labels->data);
    else
        text_append_format(to, "%s%s ", name, suffix);
    append_number(to, value);
}

void metrics_family(struct text *to, const char *name, enum metrics_kind kind, const char *help)
{
    static const char *const KINDS[] = {
        [METRICS_COUNTER] = "counter", [METRICS_GAUGE] = "gauge", [METRICS_HISTOGRAM] = "histogram"};
    text_append_format(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, KINDS[kind]);
}

void metrics_sample(struct text *to, const char *name, double value, ...)
{
    AUTO_TEXT labels = {0};
    va_list list;
    va_start(list, value);
    append_labels(&labels, list);
    va_end(list);
    append_sample(to, name, "", &labels, value);
}

void metrics_sample_histogram(struct text *to, const char *name, const struct metrics_histogram *histogram, ...)
{
    AUTO_TEXT labels = {0};
    va_list list;
    va_start(list, histogram);
    append_labels(&labels, list);
    va_end(list);
    uint64_t sum = 0;
    for (size_t i = 0; i <= METRICS_BOUNDS; i++) {
        AUTO_TEXT all = {0};
        sum += atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
        text_append_format(&all, "%s%sle=\"%s\"", labels.length > 0 ? labels.data : "", labels.length > 0 ? "," : "",
                           i < METRICS_BOUNDS ? BOUNDS[i].text : "+Inf");
        append_sample(to, name, "_bucket", &all, (double)sum);
    }
    uint64_t ns = atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed);
    append_sample(to, name, "_sum", &labels, (double)ns / SECOND_NS);
    append_sample(to, name, "_count", &labels, (double)sum);
}

void metrics_single(struct text *to, const char *name, enum metrics_kind kind, const char *help, double value)
{
    metrics_family(to, name, kind, help);
    metrics_sample(to, name, value, NULL);
}
