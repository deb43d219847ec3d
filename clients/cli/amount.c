#include "clients/cli/amount.h"

#include "shared/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* digits[.digits], nothing else: strtod also knows "inf", "0x10" and blanks. Returns what follows; NULL. */
static const char *parse_decimal(const char *text, double *value)
{
    size_t whole = strspn(text, "0123456789");
    size_t length = whole;
    if (text[whole] == '.') {
        size_t part = strspn(text + whole + 1, "0123456789");
        if (part == 0)
            return NULL;
        length += 1 + part;
    }
    char number[32];
    if (whole == 0 || !text_format(number, sizeof number, "%.*s", (int)length, text))
        return NULL;
    *value = strtod(number, NULL);
    return text + length;
}

/* KiB of one unit; 0 when it is none. */
static double unit_kib(const char *unit)
{
    static const char LETTERS[] = "kmgt";
    char letter[2] = {(char)(*unit | 0x20), '\0'};
    size_t power = strcspn(LETTERS, letter);
    bool is_unit = *unit && power < sizeof LETTERS - 1 &&
                   (unit[1] == '\0' || strcasecmp(unit + 1, "b") == 0 || strcasecmp(unit + 1, "ib") == 0);
    return is_unit ? (double)(UINT64_C(1) << (10 * power)) : 0;
}

bool amount_parse_mib(const char *text, uint64_t least, uint64_t most, uint64_t *mib, struct error *err)
{
    double value = 0;
    const char *unit = parse_decimal(text, &value);
    if (unit && *unit == '\0')
        return error_set(err, ERROR_INVALID, "a size with its unit, such as %.20sm or %.20sg", text, text);
    double kib = unit ? unit_kib(unit) : 0;
    double wanted = value * kib / 1024;
    if (kib == 0)
        return error_set(err, ERROR_INVALID, "a size such as 512m or 2g (k, m, g or t)");
    if (wanted < (double)least || wanted > (double)most || wanted != (double)(uint64_t)wanted)
        return error_set(err, ERROR_INVALID, "%llum to %llug in whole MiB", (unsigned long long)least,
                         (unsigned long long)most / 1024);
    *mib = (uint64_t)wanted;
    return true;
}

bool amount_parse_cores(const char *text, double least, double most, double *cores)
{
    double value;
    const char *rest = parse_decimal(text, &value);
    if (!rest || *rest || value < least || value > most)
        return false;
    double off = value * 1000 - (double)(uint64_t)(value * 1000 + 0.5);
    if (off > 1e-6 || off < -1e-6)
        return false;
    *cores = value;
    return true;
}

void amount_format(char to[static 16], uint64_t bytes)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof UNITS / sizeof *UNITS; unit++)
        value /= 1024;
    snprintf(to, 16, unit ? "%.1f %s" : "%.0f %s", value, UNITS[unit]);
}
