/* metrics_process.c - what every process tells of itself. */
#include "shared/base/clock.h"
#include "shared/base/metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* A page that is looked at each minute is to say the same start each time: 1/100 s since boot, by the first look. */
static double start_time(double ticks)
{
    static _Atomic int64_t kept_ms;
    int64_t ms =
        clock_wall_ms() - (int64_t)(clock_boot_ns() / 1000000) + (int64_t)(ticks * 1000 / (double)sysconf(_SC_CLK_TCK));
    int64_t none = 0;
    if (!atomic_compare_exchange_strong(&kept_ms, &none, ms))
        ms = none;
    return (double)ms / 1000;
}

static void write_cpu(struct text *to)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return;
    double seconds = (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                     (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    metrics_single(to, "process_cpu_seconds_total", METRICS_COUNTER, "User and system CPU time of this process.",
                   seconds);
}

static void write_stat(struct text *to)
{
    FILE *file = fopen("/proc/self/stat", "re");
    if (file == NULL)
        return;
    double start, size, pages;
    /* The name in brackets is ours: it holds no bracket. */
    int read = fscanf(file,
                      "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
                      "%lf %lf %lf",
                      &start, &size, &pages);
    fclose(file);
    if (read != 3)
        return;
    metrics_single(to, "process_start_time_seconds", METRICS_GAUGE, "When this process started, since 1970 UTC.",
                   start_time(start));
    metrics_single(to, "process_virtual_memory_bytes", METRICS_GAUGE, "Virtual memory of this process.", size);
    metrics_single(to, "process_resident_memory_bytes", METRICS_GAUGE, "Resident memory of this process.",
                   pages * (double)sysconf(_SC_PAGESIZE));
}

static void write_descriptors(struct text *to)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;
    if (folder != NULL) {
        for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
            count += entry->d_name[0] != '.';
        closedir(folder);
        metrics_single(to, "process_open_fds", METRICS_GAUGE, "Descriptors that this process has open.",
                       (double)(count - 1)); /* not the one that looks */
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        metrics_single(to, "process_max_fds", METRICS_GAUGE, "Descriptors that this process may have open.",
                       limit.rlim_cur == RLIM_INFINITY ? -1 : (double)limit.rlim_cur);
}

void metrics_process(struct text *to)
{
    write_cpu(to);
    write_stat(to);
    write_descriptors(to);
}
