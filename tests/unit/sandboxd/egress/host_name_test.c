/* What is one name and what is none. */
#include "sandboxd/egress/host_name.h"

#include "tests/unit/check.h"

#define READ(text) host_name_read(name, text, sizeof(text) - 1)

int main(void)
{
    char name[HOST_NAME_BYTES] = "untouched";
    CHECK(!READ("") && !READ(".") && !READ("a..b") && !READ(".a") && !READ("a.."));
    CHECK(!READ("a\0b") && !READ("a b") && !READ("a/b") && !READ("user@a") && !READ("a:80") && !READ("b\xc3\xbc.de"));
    CHECK(!READ("203.0.113.7") && !READ("1.2.3.4.") && !READ("0x7f.1") && !READ("2130706433") && !READ("[::1]"));
    CHECK_TEXT(name, "untouched");
    CHECK(READ("PyPI.Org."));
    CHECK_TEXT(name, "pypi.org");
    CHECK(READ("_dmarc.a-1.x9") && READ("xn--bcher-kva.example") && READ("localhost"));
    char label[65];
    memset(label, 'a', sizeof label);
    CHECK(host_name_read(name, label, 63) && !host_name_read(name, label, 64));
    char all[256];
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = i % 2 ? '.' : 'a';
    CHECK(host_name_read(name, all, 253) && !host_name_read(name, all, 255) && host_name_read(name, all, 254));
    return check_done();
}
