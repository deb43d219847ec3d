/* tsc.c - the time stamp counter: see machine_measure_tsc in monitor.h. */
#include "sandboxd/isolation/microvm/monitor/monitor.h"

#include <time.h>

#if defined __x86_64__
#include <x86intrin.h>

enum { TRIES = 50, PAUSE_NS = 20000000 };

/* Of several readings the one that was least interrupted. */
static void read_both(uint64_t *ticks, uint64_t *ns)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        struct timespec now;
        uint64_t before = __rdtsc();
        clock_gettime(CLOCK_MONOTONIC_RAW, &now);
        uint64_t took = __rdtsc() - before;
        if (took >= least)
            continue;
        least = took;
        *ticks = before + took / 2;
        *ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    }
}

uint32_t machine_measure_tsc(void)
{
    static const struct timespec PAUSE = {.tv_nsec = PAUSE_NS};
    uint64_t ticks = 0, ns = 0, later_ticks = 0, later_ns = 0;
    read_both(&ticks, &ns);
    nanosleep(&PAUSE, NULL);
    read_both(&later_ticks, &later_ns);
    if (later_ns <= ns)
        return 0;
    return (uint32_t)((double)(later_ticks - ticks) * 1e6 / (double)(later_ns - ns) + 0.5);
}
#else
uint32_t machine_measure_tsc(void)
{
    return 0;
}
#endif
