#include "negotiator/dialects/opensandbox/osb_time.h"

#include "shared/base/clock.h"
#include "shared/base/text.h"

#include <ctype.h>
#include <string.h>

enum { SECONDS_BYTES = 19 }; /* "2026-01-01T00:00:00" */

/* "+02:00": in minutes; "Z": 0. */
static bool read_offset(const char *text, int64_t *minutes)
{
    uint64_t hours, rest;
    *minutes = 0;
    if ((text[0] == 'Z' || text[0] == 'z') && text[1] == '\0')
        return true;
    if ((text[0] != '+' && text[0] != '-') || strlen(text) != 6 || text[3] != ':' || !isdigit((unsigned char)text[1]) ||
        !isdigit((unsigned char)text[2]) || !isdigit((unsigned char)text[4]) || !isdigit((unsigned char)text[5]))
        return false;
    hours = (uint64_t)(text[1] - '0') * 10 + (uint64_t)(text[2] - '0');
    rest = (uint64_t)(text[4] - '0') * 10 + (uint64_t)(text[5] - '0');
    *minutes = (int64_t)(hours * 60 + rest) * (text[0] == '-' ? -1 : 1);
    return hours < 24 && rest < 60;
}

/* The milliseconds of ".123456"; *length is of all of it. */
static int64_t read_fraction(const char *text, size_t *length)
{
    int64_t ms = 0;
    size_t digits = text[0] == '.' ? strspn(text + 1, "0123456789") : 0;
    *length = digits ? digits + 1 : 0;
    for (size_t i = 0; i < 3; i++)
        ms = ms * 10 + (i < digits ? text[1 + i] - '0' : 0);
    return ms;
}

bool osb_time_parse(const char *text, int64_t *wall_ms)
{
    char seconds[SECONDS_BYTES + 2];
    int64_t minutes;
    size_t length;
    if (strlen(text) <= SECONDS_BYTES || !text_format(seconds, sizeof seconds, "%.*sZ", SECONDS_BYTES, text))
        return false;
    seconds[10] = seconds[10] == 't' || seconds[10] == ' ' ? 'T' : seconds[10];
    int64_t ms = read_fraction(text + SECONDS_BYTES, &length);
    if (!read_offset(text + SECONDS_BYTES + length, &minutes) || !clock_parse(seconds, wall_ms))
        return false;
    *wall_ms += ms - minutes * 60000;
    return *wall_ms >= 0;
}
