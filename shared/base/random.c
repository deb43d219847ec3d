#include "shared/base/random.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char ID_ALPHABET[] = "abcdefghijklmnopqrstuvwxyz0123456789";
enum { ID_LETTERS = 36, ID_LENGTH = 20, PREFIX_MAX = 3 };

void random_bytes(void *to, size_t size)
{
    char *at = to;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno != EINTR)
            abort(); /* getrandom(2) fails only where the kernel has none: nothing may go on without */
        if (got > 0) {
            at += got;
            size -= (size_t)got;
        }
    }
}

uint32_t random_below(uint32_t bound)
{
    if (bound < 2)
        return 0;
    uint32_t biased =
        (UINT32_MAX - bound + 1) % bound; /* 2^32 mod bound: the values below it would come once too often */
    uint32_t value = 0;
    do {
        random_bytes(&value, sizeof value);
    } while (value < biased);
    return value % bound;
}

void random_id(char to[static RANDOM_ID_BYTES], const char *prefix)
{
    size_t at = strnlen(prefix, PREFIX_MAX);
    memcpy(to, prefix, at);
    to[at++] = '_';
    size_t end = at + ID_LENGTH;
    while (at < end) {
        uint8_t bytes[2 * ID_LENGTH];
        random_bytes(bytes, sizeof bytes);
        for (size_t i = 0; i < sizeof bytes && at < end; i++) {
            if (bytes[i] < 256 / ID_LETTERS * ID_LETTERS) /* the rest would favour the first letters */
                to[at++] = ID_ALPHABET[bytes[i] % ID_LETTERS];
        }
    }
    to[at] = '\0';
}

_Bool random_is_id(const char *text, const char *prefix)
{
    size_t length = strnlen(prefix, PREFIX_MAX);
    if (text == NULL || strncmp(text, prefix, length) != 0 || text[length] != '_')
        return false;
    const char *letters = text + length + 1;
    return strspn(letters, ID_ALPHABET) == ID_LENGTH && letters[ID_LENGTH] == '\0';
}
