#include "shared/base/clock.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int64_t DAY_MS = 86400000;
static const int64_t YEAR_10000_MS = 253402300800000;

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now); /* cannot fail for the clocks that Linux always has */
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

int64_t clock_wall_ms(void)
{
    return (int64_t)(now_ns(CLOCK_REALTIME) / 1000000U);
}

uint64_t clock_boot_ns(void)
{
    return now_ns(CLOCK_BOOTTIME);
}

uint64_t clock_monotonic_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}

/* Days since 1970-01-01 in the Gregorian calendar. Years are counted from March, so that the leap day is the last. Not
 * gmtime_r: it takes the time zone's lock, which a cloned child must not. */
static int64_t days_of_date(int64_t year, int64_t month, int64_t day)
{
    int64_t from_march = month > 2 ? month - 3 : month + 9;
    year -= month <= 2;
    return year * 365 + year / 4 - year / 100 + year / 400 + (153 * from_march + 2) / 5 + day - 1 - 719468;
}

static void date_of_days(int64_t days, int64_t *year, int64_t *month, int64_t *day)
{
    int64_t left = days + 719468; /* since 0000-03-01 */
    int64_t era = left / 146097;
    left -= era * 146097;
    int64_t year_of_era = (left - left / 1460 + left / 36524 - left / 146096) / 365;
    left -= year_of_era * 365 + year_of_era / 4 - year_of_era / 100;
    int64_t from_march = (5 * left + 2) / 153;
    *day = left - (153 * from_march + 2) / 5 + 1;
    *month = from_march < 10 ? from_march + 3 : from_march - 9;
    *year = era * 400 + year_of_era + (*month <= 2);
}

static void put_digits(char *to, int64_t value, int count)
{
    for (int i = count - 1; i >= 0; i--, value /= 10)
        to[i] = (char)('0' + value % 10);
}

void clock_format(char to[static CLOCK_TEXT_BYTES], int64_t wall_ms)
{
    if (wall_ms < 0)
        wall_ms = 0;
    if (wall_ms >= YEAR_10000_MS)
        wall_ms = YEAR_10000_MS - 1;
    int64_t year = 0;
    int64_t month = 0;
    int64_t day = 0;
    date_of_days(wall_ms / DAY_MS, &year, &month, &day);
    int64_t left = wall_ms % DAY_MS;
    memcpy(to, "0000-00-00T00:00:00.000Z", CLOCK_TEXT_BYTES);
    put_digits(to, year, 4);
    put_digits(to + 5, month, 2);
    put_digits(to + 8, day, 2);
    put_digits(to + 11, left / 3600000, 2);
    put_digits(to + 14, left / 60000 % 60, 2);
    put_digits(to + 17, left / 1000 % 60, 2);
    put_digits(to + 20, left % 1000, 3);
}

static int64_t digits_at(const char *text, int count)
{
    int64_t value = 0;
    for (int i = 0; i < count; i++)
        value = value * 10 + (text[i] - '0');
    return value;
}

bool clock_parse(const char *text, int64_t *wall_ms)
{
    char full[CLOCK_TEXT_BYTES] = {0};
    size_t length = text ? strnlen(text, CLOCK_TEXT_BYTES) : 0;
    if (length == 20 && text[19] == 'Z') {
        memcpy(full, text, 19);
        memcpy(full + 19, ".000Z", 5);
    } else if (length == 24) {
        memcpy(full, text, 24);
    } else {
        return false;
    }
    static const char SHAPE[] = "0000-00-00T00:00:00.000Z";
    for (int i = 0; i < 24; i++) {
        bool right = SHAPE[i] == '0' ? full[i] >= '0' && full[i] <= '9' : full[i] == SHAPE[i];
        if (!right)
            return false;
    }
    int64_t month = digits_at(full + 5, 2);
    if (month < 1 || month > 12)
        return false;
    int64_t days = days_of_date(digits_at(full, 4), month, digits_at(full + 8, 2));
    int64_t time_ms = ((digits_at(full + 11, 2) * 60 + digits_at(full + 14, 2)) * 60 + digits_at(full + 17, 2)) * 1000 +
                      digits_at(full + 20, 3);
    int64_t parsed = days * DAY_MS + time_ms;
    /* 31 February, 24:00 and years before 1970 do not come back as they went. */
    char again[CLOCK_TEXT_BYTES];
    clock_format(again, parsed);
    if (memcmp(again, full, 24) != 0)
        return false;
    *wall_ms = parsed;
    return true;
}

void clock_boot_id(char to[static CLOCK_BOOT_ID_BYTES])
{
    to[0] = '\0';
    AUTO_FD int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    char read_text[CLOCK_BOOT_ID_BYTES] = {0};
    if (read(fd, read_text, CLOCK_BOOT_ID_BYTES - 1) != CLOCK_BOOT_ID_BYTES - 1)
        return;
    if (strspn(read_text, "0123456789abcdef-") == CLOCK_BOOT_ID_BYTES - 1)
        memcpy(to, read_text, CLOCK_BOOT_ID_BYTES);
}
