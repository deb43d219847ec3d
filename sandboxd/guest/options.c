#include "sandboxd/guest/guest.h"

#include "shared/base/text.h"

#include <string.h>

static bool take_number(const char *word, const char *value, int *fd, struct error *err)
{
    uint64_t number = 0;
    if (!value || !text_parse_u64(value, strlen(value), INT32_MAX, &number))
        return error_set(err, ERROR_INVALID, "%s: the number of an open descriptor must follow", word);
    *fd = (int)number;
    return true;
}

bool guest_take_options(int *argc, char *argv[], struct guest_options *options, struct error *err)
{
    struct guest_options taken = {.letter = -1, .connections = -1};
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        int *fd = strcmp(argv[i], "--guest-letter") == 0        ? &taken.letter
                  : strcmp(argv[i], "--guest-connections") == 0 ? &taken.connections
                                                                : NULL;
        if (!fd) {
            argv[kept++] = argv[i];
            continue;
        }
        if (!take_number(argv[i], i + 1 < *argc ? argv[i + 1] : NULL, fd, err))
            return false;
        i++;
    }
    argv[kept] = NULL;
    *argc = kept;
    *options = taken;
    return true;
}
