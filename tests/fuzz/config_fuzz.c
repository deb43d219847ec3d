/* config_fuzz.c - the settings file and the flags as hostile bytes: first byte = how many words of flags follow, each
 * ended by a NUL; the rest is the file. */
#include "shared/base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct settings {
    char *state, *listen_address;
    int64_t port, offset;
    bool insecure_http;
};

#define FIELD(name) offsetof(struct settings, name)
static const struct config_row ROWS[] = {
    {"state", CONFIG_TEXT, FIELD(state), NULL, 0, 0, "where state is"},
    {"listen_address", CONFIG_TEXT, FIELD(listen_address), "127.0.0.1", 0, 0, "address to listen on"},
    {"port", CONFIG_NUMBER, FIELD(port), "8700", 1, 65535, "port, 1..65535"},
    {"offset", CONFIG_NUMBER, FIELD(offset), NULL, INT64_MIN, INT64_MAX, "any"},
    {"insecure_http", CONFIG_SWITCH, FIELD(insecure_http), NULL, 0, 0, "plain HTTP"},
};
enum { ROW_COUNT = sizeof ROWS / sizeof ROWS[0], WORDS_MAX = 8 };
static const char *const FOREIGN[] = {"workers", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *words[WORDS_MAX] = {0};
    int count = 0;
    size_t at = size > 0;
    for (int wanted = size ? data[0] % (WORDS_MAX + 1) : 0; count < wanted; count++) {
        const uint8_t *end = at < size ? memchr(data + at, '\0', size - at) : NULL;
        if (end == NULL)
            break;
        words[count] = strdup((const char *)data + at);
        at = (size_t)(end - data) + 1;
    }
    char file[32];
    int fd = memfd_create("config", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + at, size - at) != (ssize_t)(size - at))
        abort();
    snprintf(file, sizeof file, "/proc/self/fd/%d", fd);

    struct settings settings = {0};
    struct error err = {0};
    bool ok = config_load(&settings, ROWS, ROW_COUNT, file, FOREIGN, count, words, &err);
    if (ok && (settings.port < 1 || settings.port > 65535 || settings.listen_address == NULL))
        abort();
    if (!ok && (err.kind == ERROR_NONE || err.message[0] == '\0' || settings.listen_address != NULL))
        abort();
    config_done(&settings, ROWS, ROW_COUNT);
    free(config_state_folder(count, words));
    close(fd);
    for (int i = 0; i < count; i++)
        free(words[i]);
    return 0;
}
