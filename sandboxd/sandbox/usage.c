/* usage.c - numbers out of cgroup files. */
#include "sandboxd/sandbox/usage.h"

#include "shared/base/text.h"

#include <string.h>
#include <unistd.h>

static size_t read_small(int fd, char *to, size_t size)
{
    ssize_t got = fd < 0 ? -1 : pread(fd, to, size - 1, 0);
    size_t length = got > 0 ? (size_t)got : 0;
    to[length] = 0;
    return length;
}

static uint64_t number_at(const char *text)
{
    uint64_t value = 0;
    if (!text_parse_u64(text, strspn(text, "0123456789"), UINT64_MAX, &value))
        return 0;
    return value;
}

/* The number after "key " at the start of a line. */
static uint64_t number_of(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return number_at(line + length + 1);
    return 0;
}

uint64_t usage_oom_kills(int fd)
{
    char text[512];
    read_small(fd, text, sizeof text);
    return number_of(text, "oom_kill");
}

uint64_t usage_cpu_ms(int fd)
{
    char text[1024];
    read_small(fd, text, sizeof text);
    return number_of(text, "usage_usec") / 1000;
}

uint64_t usage_memory_bytes(int fd)
{
    char text[64];
    read_small(fd, text, sizeof text);
    return number_at(text);
}

uint64_t usage_pids(int fd)
{
    char text[64];
    read_small(fd, text, sizeof text);
    return number_at(text);
}

bool usage_is_frozen(int fd)
{
    char text[256];
    read_small(fd, text, sizeof text);
    return number_of(text, "frozen") == 1;
}
