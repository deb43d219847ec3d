/* trust_test.c - fingerprints as people write them, and files that hold no authority. */
#include "shared/trust/trust.h"

#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

#define HALF "0123456789abcdef0123456789ABCDEF"

static void test_fingerprints(void)
{
    static const char *const BAD[] = {
        "", "ab", HALF, HALF HALF "0", HALF HALF ":", HALF "g" HALF, "sha1:" HALF HALF, "0:1" HALF HALF, " " HALF HALF};
    char parsed[TRUST_FINGERPRINT_BYTES];
    CHECK(trust_parse_fingerprint(parsed, HALF HALF));
    CHECK_TEXT(parsed, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    CHECK(trust_parse_fingerprint(parsed, "sha256:" HALF HALF));
    char colons[100] = "";
    for (int i = 0; i < 32; i++)
        snprintf(colons + strlen(colons), sizeof colons - strlen(colons), "%s%02X", i ? ":" : "", i);
    CHECK(trust_parse_fingerprint(parsed, colons) && strncmp(parsed, "000102", 6) == 0);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(!trust_parse_fingerprint(parsed, BAD[i]));
}

static void test_files(void)
{
    struct error err = {0};
    CHECK(!trust_set("/nowhere/ca.pem", NULL, &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(!trust_set("/etc/passwd", NULL, &err) && err.kind == ERROR_INVALID);
    CHECK(!trust_set(NULL, "ab", &err) && err.kind == ERROR_INVALID);
    CHECK(trust_set(NULL, NULL, &err));
}

int main(void)
{
    test_fingerprints();
    test_files();
    return check_done();
}
