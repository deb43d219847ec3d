#include "sandboxd/egress/host_name.h"

#include <string.h>

enum { LABEL_MAX = 63 };

static char lower(char byte)
{
    if (byte >= 'A' && byte <= 'Z')
        return "abcdefghijklmnopqrstuvwxyz"[byte - 'A'];
    return byte;
}

static bool is_in_label(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '-' || byte == '_';
}

bool host_name_read(char to[static HOST_NAME_BYTES], const char *from, size_t length)
{
    char name[HOST_NAME_BYTES];
    if (length > 0 && from[length - 1] == '.')
        length--;
    if (length == 0 || length >= sizeof name)
        return false;
    size_t label = 0;
    bool is_number = true;
    for (size_t i = 0; i < length; i++) {
        name[i] = lower(from[i]);
        if (name[i] == '.' && label == 0)
            return false;
        if (name[i] != '.' && (!is_in_label(name[i]) || label == LABEL_MAX))
            return false;
        is_number = name[i] == '.' || (is_number && name[i] >= '0' && name[i] <= '9');
        label = name[i] == '.' ? 0 : label + 1;
    }
    if (label == 0 || is_number)
        return false;
    name[length] = '\0';
    memcpy(to, name, length + 1);
    return true;
}
