/* Queries and answers, good and hostile, and the replies made of them. */
#include "sandboxd/egress/dns_message.h"

#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <ldns/ldns.h>

static int read_query(const void *data, size_t size, char *name)
{
    struct dns_query query;
    int rcode = dns_query_read(&query, data, size);
    strcpy(name, query.name);
    dns_query_done(&query);
    return rcode;
}

#define HEAD     "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
#define A_IN     "\x00\x01\x00\x01"
#define READ(of) read_query(of, sizeof(of) - 1, name)

static void test_queries(void)
{
    char name[HOST_NAME_BYTES];
    CHECK(READ(HEAD "\4GoOd\4tEsT\0" A_IN) == DNS_OK);
    CHECK_TEXT(name, "good.test");
    CHECK(READ("\x12\x34\x81\x00\0\1\0\0\0\0\0\0\4good\4test\0" A_IN) == -1); /* a response */
    CHECK(READ("\x12\x34\x01\x00\0\1\0\0\0\0\0") == -1);
    CHECK(READ("\x12\x34\x29\x00\0\1\0\0\0\0\0\0\4good\4test\0" A_IN) == DNS_NOTIMP); /* UPDATE */
    CHECK(READ("\x12\x34\x01\x00\0\0\0\0\0\0\0\0") == DNS_FORMERR);                   /* no question */
    CHECK(READ("\x12\x34\x01\x00\0\2\0\0\0\0\0\0\4good\4test\0" A_IN "\4evil\4test\0" A_IN) == DNS_FORMERR);
    CHECK(READ("\x12\x34\x01\x00\xff\xff\0\0\0\0\0\0\4good\4test\0" A_IN) == DNS_FORMERR);
    CHECK(READ(HEAD "\xc0\x0c" A_IN) == DNS_FORMERR);    /* points at itself */
    CHECK(READ(HEAD "\1a\xc0\x0c" A_IN) == DNS_FORMERR); /* a loop */
    CHECK(READ(HEAD "\xc0\xff" A_IN) == DNS_FORMERR);    /* behind the end */
    CHECK(READ(HEAD "\x3f"
                    "abc") == DNS_FORMERR);                            /* cut */
    CHECK(READ(HEAD "\0" A_IN) == DNS_REFUSED);                        /* the root */
    CHECK(READ(HEAD "\4good\4test\0\x00\x01\x00\x03") == DNS_REFUSED); /* class CHAOS */
    CHECK(READ(HEAD "\4go\0d\4test\0" A_IN) == DNS_REFUSED);           /* a NUL in a label */
    CHECK(READ(HEAD "\5go.od\4test\0" A_IN) == DNS_REFUSED);           /* a dot in a label */
    CHECK(READ(HEAD "\3\xff\xfe\xfd\4test\0" A_IN) == DNS_REFUSED);
    uint8_t huge[12 + 4 * 64 + 6] = HEAD;
    for (size_t i = 0; i < 4; i++) { /* 257 bytes: more than a name may have */
        huge[12 + i * 64] = 63;
        memset(huge + 13 + i * 64, 'a', 63);
    }
    memcpy(huge + 12 + 256, "\0" A_IN, 5);
    int rcode = read_query(huge, 12 + 256 + 5, name);
    CHECK(rcode == DNS_FORMERR || rcode == DNS_REFUSED);
    uint8_t long_one[DNS_QUERY_BYTES + 1] = HEAD "\4good\4test\0" A_IN;
    CHECK(read_query(long_one, sizeof long_one, name) == DNS_FORMERR);
}

/* Every query cut short anywhere, and with every byte turned: read or refused, never more. */
static void test_broken_queries(void)
{
    static const uint8_t QUERY[] = HEAD "\4good\4test\0" A_IN;
    char name[HOST_NAME_BYTES];
    for (size_t size = 0; size < sizeof QUERY - 1; size++)
        CHECK(read_query(QUERY, size, name) != DNS_OK);
    for (size_t i = 0; i < sizeof QUERY - 1; i++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t copy[sizeof QUERY];
            memcpy(copy, QUERY, sizeof QUERY);
            copy[i] = (uint8_t)value;
            (void)read_query(copy, sizeof QUERY - 1, name);
        }
    }
}

/* An answer of records in the text form, about `name`. */
static size_t answer_of(const char *name, const char *const *records, uint8_t *to, size_t room)
{
    ldns_pkt *packet = NULL;
    uint8_t *wire = NULL;
    size_t size = 0;
    CHECK(ldns_pkt_query_new_frm_str(&packet, name, LDNS_RR_TYPE_A, LDNS_RR_CLASS_IN, LDNS_RD) == LDNS_STATUS_OK);
    ldns_pkt_set_qr(packet, true);
    for (; *records; records++) {
        ldns_rr *record = NULL;
        CHECK(ldns_rr_new_frm_str(&record, *records, 0, NULL, NULL) == LDNS_STATUS_OK);
        ldns_pkt_push_rr(packet, LDNS_SECTION_ANSWER, record);
    }
    CHECK(ldns_pkt2wire(&wire, packet, &size) == LDNS_STATUS_OK && size <= room);
    memcpy(to, wire, size);
    free(wire);
    ldns_pkt_free(packet);
    return size;
}

#define ANSWER(name, ...) answer_of(name, (const char *const[]){__VA_ARGS__, NULL}, data, sizeof data)

static bool denies(void *cookie, const char *name)
{
    return cookie != NULL && strcmp(cookie, name) == 0;
}

static bool read_denying(struct dns_addresses *to, const char *name, const void *data, size_t size, char *denied)
{
    return dns_addresses_read(to, name, data, size, denies, denied);
}

static bool read_addresses(struct dns_addresses *to, const char *name, const void *data, size_t size)
{
    return read_denying(to, name, data, size, NULL);
}

/* A name that stands for a denied one, at any step, in any case. */
static void test_denied_aliases(void)
{
    char bad[] = "bad.test", other[] = "other.test";
    uint8_t data[4096];
    struct dns_addresses got;
    size_t size = ANSWER("a.test.", "a.test. 10 IN CNAME b.test.", "b.test. 10 IN CNAME BAD.Test.",
                         "bad.test. 10 IN CNAME d.test.", "d.test. 20 IN A 203.0.113.9");
    CHECK(read_denying(&got, "a.test", data, size, other) && got.rcode == DNS_OK && got.count == 1);
    CHECK(read_denying(&got, "a.test", data, size, bad) && got.rcode == DNS_REFUSED && got.count == 0);
    size = ANSWER("a.test.", "a.test. 10 IN CNAME bad.test.", "bad.test. 20 IN A 203.0.113.9");
    CHECK(read_denying(&got, "a.test", data, size, bad) && got.rcode == DNS_REFUSED && got.count == 0);
    size = ANSWER("a.test.", "a.test. 10 IN CNAME bad.test.");
    CHECK(read_denying(&got, "a.test", data, size, bad) && got.rcode == DNS_REFUSED);
    size = ANSWER("a.test.", "a.test. 10 IN A 203.0.113.9", "x.test. 10 IN CNAME bad.test."); /* not on its way */
    CHECK(read_denying(&got, "a.test", data, size, bad) && got.rcode == DNS_OK && got.count == 1);
}

static void test_answers(void)
{
    uint8_t data[4096];
    struct dns_addresses got;
    size_t size = ANSWER("good.test.", "good.test. 60 IN A 203.0.113.7", "evil.test. 9 IN A 203.0.113.66",
                         "good.test. 50 IN A 203.0.113.8");
    CHECK(read_addresses(&got, "good.test", data, size));
    CHECK(got.rcode == DNS_OK && got.count == 2 && got.ttl_s == 50 && got.addresses[0] == inet_addr("203.0.113.7") &&
          got.addresses[1] == inet_addr("203.0.113.8"));
    CHECK(!read_addresses(&got, "evil.test", data, size)); /* about another name */
    size =
        ANSWER("a.test.", "b.test. 20 IN A 203.0.113.9", "a.test. 10 IN CNAME c.test.", "C.TEST. 90 IN CNAME b.test.");
    CHECK(read_addresses(&got, "a.test", data, size) && got.count == 1 && got.ttl_s == 10);
    size = ANSWER("a.test.", "a.test. 1 IN CNAME b.test.", "b.test. 1 IN CNAME a.test.");
    CHECK(read_addresses(&got, "a.test", data, size) && got.count == 0 && got.rcode == DNS_OK);
    size = ANSWER("a.test.", "a.test. 1 IN AAAA ::ffff:10.0.0.1", "a.test. 1 IN TXT \"x\"");
    CHECK(read_addresses(&got, "a.test", data, size) && got.count == 0);
    data[3] = 3;
    CHECK(read_addresses(&got, "a.test", data, size) && got.rcode == DNS_NXDOMAIN);
    data[3] = 5;
    CHECK(read_addresses(&got, "a.test", data, size) && got.rcode == DNS_SERVFAIL);
    data[2] = 1; /* a query */
    CHECK(!read_addresses(&got, "a.test", data, size) && !read_addresses(&got, "a.test", data, 11));
}

static bool keep(uint32_t address)
{
    return address != inet_addr("10.0.0.1");
}

static void test_replies(void)
{
    static const uint8_t QUERY[] = HEAD "\4gOOd\4test\0" A_IN;
    uint8_t data[4096];
    uint8_t out[4096];
    struct dns_query query;
    struct dns_addresses addresses = {.count = 2, .ttl_s = 30, .addresses = {inet_addr("203.0.113.7"), 1}};
    CHECK(dns_query_read(&query, QUERY, sizeof QUERY - 1) == DNS_OK);
    size_t size = dns_reply_write(out, query.udp_bytes, &query, DNS_OK, &addresses);
    CHECK(size > sizeof QUERY && out[0] == 0x12 && out[1] == 0x34 && out[2] == 0x81 && out[3] == 0x80);
    CHECK(memcmp(out + 12, QUERY + 12, sizeof QUERY - 13) == 0); /* the question as it was asked */
    struct dns_addresses got;
    CHECK(read_addresses(&got, "good.test", out, size) && got.count == 2 && got.ttl_s == 30);
    CHECK(dns_reply_write(out, query.udp_bytes, &query, DNS_REFUSED, NULL) == sizeof QUERY - 1 && (out[3] & 15) == 5);
    CHECK(dns_reply_write(out, sizeof QUERY, &query, DNS_OK, &addresses) == sizeof QUERY - 1 && (out[2] & 2)); /* TC */
    CHECK(dns_reply_write(out, 11, &query, DNS_OK, &addresses) == 0);
    size = ANSWER("good.test.", "good.test. 60 IN A 10.0.0.1", "good.test. 60 IN A 203.0.113.1",
                  "good.test. 60 IN AAAA 2001:db8::1", "good.test. 60 IN MX 5 mx.good.test.");
    size = dns_reply_pass(out, sizeof out, &query, data, size, keep);
    ldns_pkt *packet = NULL;
    CHECK(size > 0 && ldns_wire2pkt(&packet, out, size) == LDNS_STATUS_OK && ldns_pkt_ancount(packet) == 2);
    ldns_pkt_free(packet);
    CHECK(dns_reply_pass(out, sizeof out, &query, data, 20, keep) == 0);
    size = ANSWER("evil.test.", "evil.test. 60 IN A 203.0.113.1");
    CHECK(dns_reply_pass(out, sizeof out, &query, data, size, keep) == 0);
    dns_query_done(&query);
    /* Without a question, an error still has a reply. */
    CHECK(dns_query_read(&query, HEAD, 12) == DNS_FORMERR);
    CHECK(dns_reply_write(out, 512, &query, DNS_FORMERR, NULL) == 12);
    dns_query_done(&query);
}

int main(void)
{
    test_queries();
    test_broken_queries();
    test_answers();
    test_denied_aliases();
    test_replies();
    return check_done();
}
