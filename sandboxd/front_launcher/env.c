#include "sandboxd/front_launcher/env.h"

#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

static bool is_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return length > 0;
}

static bool is_variable(const char *text, size_t length)
{
    size_t name = strcspn(text, "=");
    return name < length && is_name(text, name) && text_utf8_prefix(text, length) == length;
}

bool env_is_whole(const char env[static ENV_BYTES])
{
    size_t at = 0;
    while (env[at]) {
        size_t length = strnlen(env + at, ENV_BYTES - at);
        if (at + length + 1 >= ENV_BYTES) /* no room for the empty text */
            return false;
        if (!is_variable(env + at, length))
            return false;
        at += length + 1;
    }
    while (at < ENV_BYTES && env[at] == '\0')
        at++;
    return at == ENV_BYTES;
}

bool env_add(char env[static ENV_BYTES], const char *name, const char *value, struct error *err)
{
    size_t used = 0;
    while (env[used])
        used += strlen(env + used) + 1;
    size_t name_length = strlen(name), value_length = strlen(value);
    if (!is_name(name, name_length))
        return error_set(err, ERROR_INVALID, "env: \"%.64s\" is not a variable's name (A-Z a-z 0-9 _)", name);
    if (text_utf8_prefix(value, value_length) != value_length)
        return error_set(err, ERROR_INVALID, "env: %.64s is not UTF-8", name);
    size_t left = ENV_BYTES - 1 - used;
    if (name_length >= left || value_length >= left || name_length + value_length + 2 > left)
        return error_set(err, ERROR_INVALID, "env has more than %d bytes (a variable: name, value and 2)",
                         ENV_BYTES - 1);
    snprintf(env + used, ENV_BYTES - used, "%s=%s", name, value);
    return true;
}
