/* egress_dns_fuzz.c - hostile DNS queries of a sandbox, and hostile answers of whoever runs a name's servers. */
#include "sandboxd/egress/dns_message.h"

#include <ldns/ldns.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static bool keep(uint32_t address)
{
    return (address & 255) != 10;
}

static void check_name(const char *name)
{
    char again[HOST_NAME_BYTES];
    require(host_name_read(again, name, strlen(name)) && strcmp(again, name) == 0);
}

/* Whatever was asked, the reply is one, with the id, and not longer than it may be. */
static void check_reply(const struct dns_query *query, const uint8_t *reply, size_t size, size_t room)
{
    require(size >= 12 && size <= room);
    require((reply[0] << 8 | reply[1]) == query->id && (reply[2] & 0x80) != 0);
    ldns_pkt *packet = NULL;
    require(ldns_wire2pkt(&packet, reply, size) == LDNS_STATUS_OK);
    ldns_pkt_free(packet);
}

static void read_query(const uint8_t *data, size_t size)
{
    static uint8_t reply[DNS_MESSAGE_BYTES];
    struct dns_query query;
    struct dns_addresses addresses = {.count = DNS_ADDRESSES, .ttl_s = 60, .addresses = {1, 2, 3}};
    int rcode = dns_query_read(&query, data, size);
    require(rcode >= -1 && rcode <= DNS_REFUSED);
    require(query.udp_bytes >= DNS_UDP_BYTES && query.udp_bytes <= DNS_UDP_BYTES_MOST);
    if (rcode == DNS_OK)
        check_name(query.name);
    if (rcode >= 0) {
        size_t length = dns_reply_write(reply, query.udp_bytes, &query, (enum dns_rcode)rcode, &addresses);
        check_reply(&query, reply, length, query.udp_bytes);
    }
    dns_query_done(&query);
}

static bool denies(void *cookie UNUSED, const char *name)
{
    return name[0] == 'e';
}

/* The answer's question decides which query it may be for. */
static void read_answer(const uint8_t *data, size_t size)
{
    static const uint8_t QUERY[] = "\x12\x34\x01\x00\0\1\0\0\0\0\0\0\4good\4test\0\0\1\0\1";
    static uint8_t reply[DNS_MESSAGE_BYTES];
    struct dns_query query;
    struct dns_addresses addresses;
    require(dns_query_read(&query, QUERY, sizeof QUERY - 1) == DNS_OK);
    if (dns_addresses_read(&addresses, "good.test", data, size, denies, NULL))
        require(addresses.count <= DNS_ADDRESSES && (addresses.count == 0 || addresses.rcode == DNS_OK));
    size_t length = dns_reply_pass(reply, sizeof reply, &query, data, size, keep);
    if (length > 0)
        check_reply(&query, reply, length, sizeof reply);
    dns_query_done(&query);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] & 1)
        read_answer(data + 1, size - 1);
    else
        read_query(data + 1, size - 1);
    return 0;
}
