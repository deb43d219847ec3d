/** device_rows.h - what lies in a sandbox's /dev beside its terminals and its shared memory: names below its root. For
 *  the one file of each program that makes them. */
#pragma once

/* The harmless ones. They are the kernel's: it matters nothing whose mount they lie on. */
static const struct node_row {
    const char *path;
    unsigned major, minor;
} NODES[] = {{"dev/null", 1, 3},   {"dev/zero", 1, 5},    {"dev/full", 1, 7},
             {"dev/random", 1, 8}, {"dev/urandom", 1, 9}, {"dev/tty", 5, 0}};

static const struct link_row {
    const char *path, *to;
} LINKS[] = {{"dev/ptmx", "pts/ptmx"},
             {"dev/fd", "/proc/self/fd"},
             {"dev/stdin", "/proc/self/fd/0"},
             {"dev/stdout", "/proc/self/fd/1"},
             {"dev/stderr", "/proc/self/fd/2"}};
