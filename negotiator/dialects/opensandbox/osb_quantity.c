#include "negotiator/dialects/opensandbox/osb_quantity.h"

#include "shared/base/text.h"

#include <string.h>

enum { DIGITS_MAX = 18, FRACTION_MAX = 9, MIB = 1024 * 1024 };

__extension__ typedef unsigned __int128 wide;

/* In thousandths of one; 0: there is no such suffix. */
static wide unit_of(const char *suffix)
{
    static const char *const DECIMAL[] = {"", "k", "M", "G", "T", "P", "E"};
    static const char *const BINARY[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    wide decimal = 1000, binary = 1000;
    if (strcmp(suffix, "m") == 0)
        return 1;
    for (size_t i = 0; i < sizeof DECIMAL / sizeof *DECIMAL; i++) {
        if (strcmp(suffix, DECIMAL[i]) == 0)
            return decimal;
        if (strcmp(suffix, BINARY[i]) == 0)
            return binary;
        decimal *= 1000;
        binary *= 1024;
    }
    return 0;
}

static size_t digits_of(const char *text)
{
    return strspn(text, "0123456789");
}

bool osb_quantity_parse(const char *text, int64_t *thousandths)
{
    size_t whole = digits_of(text), fraction = text[whole] == '.' ? digits_of(text + whole + 1) : 0;
    size_t length = whole + (text[whole] == '.' ? 1 + fraction : 0);
    wide unit = unit_of(text + length), value = 0, scale = 1;
    if (whole + fraction == 0 || whole > DIGITS_MAX || fraction > FRACTION_MAX || unit == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] != '.')
            value = value * 10 + (unsigned char)(text[i] - '0');
        if (i > whole)
            scale *= 10;
    }
    wide limit = (wide)INT64_MAX * scale;
    if (value > 0 && unit > limit / value)
        return false;
    *thousandths = (int64_t)((value * unit + scale - 1) / scale);
    return true;
}

bool osb_quantity_mib(const char *text, int64_t *mib)
{
    int64_t thousandths;
    if (!osb_quantity_parse(text, &thousandths) || thousandths == 0)
        return false;
    int64_t bytes = thousandths / 1000 + (thousandths % 1000 != 0);
    *mib = bytes / MIB + (bytes % MIB != 0);
    return true;
}
