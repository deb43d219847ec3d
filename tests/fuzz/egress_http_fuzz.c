/* egress_http_fuzz.c - a hostile HTTP client: what goes through is a prefix of what it said, whatever the pieces, and
 * no head goes through whose lines another reader would cut otherwise. */
#include "sandboxd/egress/http_guard.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static bool is_allowed(void *cookie, const char *name)
{
    unsigned *asked = cookie;
    char again[HOST_NAME_BYTES];
    ++*asked;
    require(host_name_read(again, name, strlen(name)) && strcmp(again, name) == 0);
    return strcmp(name, "good.test") == 0;
}

static bool read_in(const uint8_t *data, size_t size, size_t step, struct text *out, unsigned *asked)
{
    struct error err = {0};
    AUTO(http_guard) *guard = http_guard_new(80, is_allowed, asked);
    bool is_good = true;
    for (size_t at = 0; at < size && is_good; at += step)
        is_good = http_guard_read(guard, data + at, size - at < step ? size - at : step, out, &err);
    require(is_good == (err.kind == ERROR_NONE) && out->length <= size);
    require(out->length == 0 || memcmp(out->data, data, out->length) == 0);
    require(out->length == 0 || *asked > 0);
    return is_good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_TEXT whole = {0};
    AUTO_TEXT cut = {0};
    unsigned asked[2] = {0, 0};
    if (size < 2)
        return 0;
    bool is_whole = read_in(data + 1, size - 1, size, &whole, &asked[0]);
    bool is_cut = read_in(data + 1, size - 1, (size_t)data[0] + 1, &cut, &asked[1]);
    require(is_whole == is_cut);
    if (is_whole)
        require(whole.length == cut.length && asked[0] == asked[1]);
    const char *end = whole.length > 0 ? memmem(whole.data, whole.length, "\r\n\r\n", 4) : NULL;
    if (whole.length > 0) { /* the first head, seen by a simpler reader */
        require(end != NULL);
        for (const char *at = whole.data; at < end; at++)
            require(*at != '\n' || (at > whole.data && at[-1] == '\r' && at[1] != ' ' && at[1] != '\t'));
    }
    return 0;
}
