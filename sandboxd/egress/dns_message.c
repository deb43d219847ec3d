#include "sandboxd/egress/dns_message.h"

#include <ldns/ldns.h>
#include <string.h>

enum { HEADER_BYTES = 12, CNAMES_MAX = 16 };

static void packet_cleanup(ldns_pkt **packet)
{
    ldns_pkt_free(*packet);
}

#define AUTO_PACKET __attribute__((cleanup(packet_cleanup))) ldns_pkt

/* ---- a query ---- */

/* The name in our spelling; false for the root and for what is no host's name. */
static bool name_of(const ldns_rdf *owner, char to[static HOST_NAME_BYTES])
{
    AUTO_FREE char *text = ldns_rdf2str(owner);
    return text != NULL && host_name_read(to, text, strlen(text));
}

static int read_question(struct dns_query *query, const ldns_pkt *packet)
{
    const ldns_rr *question = ldns_rr_list_rr(ldns_pkt_question(packet), 0);
    if (ldns_pkt_qdcount(packet) != 1 || question == NULL || ldns_rr_owner(question) == NULL)
        return DNS_FORMERR;
    query->question = ldns_rr_clone(question);
    query->type = (uint16_t)ldns_rr_get_type(question);
    if (ldns_pkt_ancount(packet) != 0 || ldns_pkt_nscount(packet) != 0)
        return DNS_FORMERR;
    if (ldns_rr_get_class(question) != LDNS_RR_CLASS_IN)
        return DNS_REFUSED;
    return name_of(ldns_rr_owner(question), query->name) ? DNS_OK : DNS_REFUSED;
}

int dns_query_read(struct dns_query *query, const void *data, size_t size)
{
    AUTO_PACKET *packet = NULL;
    const uint8_t *bytes = data;
    *query = (struct dns_query){.udp_bytes = DNS_UDP_BYTES};
    if (size < HEADER_BYTES || (bytes[2] & 0x80) != 0) /* a response: never answer one */
        return -1;
    query->id = (uint16_t)(bytes[0] << 8 | bytes[1]);
    query->wants_recursion = bytes[2] & 1;
    if ((bytes[2] >> 3 & 15) != LDNS_PACKET_QUERY)
        return DNS_NOTIMP;
    if (size > DNS_QUERY_BYTES || ldns_wire2pkt(&packet, data, size) != LDNS_STATUS_OK)
        return DNS_FORMERR;
    query->has_edns = ldns_pkt_edns(packet);
    if (query->has_edns) {
        uint16_t said = ldns_pkt_edns_udp_size(packet);
        query->udp_bytes = said < DNS_UDP_BYTES ? DNS_UDP_BYTES : said > DNS_UDP_BYTES_MOST ? DNS_UDP_BYTES_MOST : said;
    }
    return read_question(query, packet);
}

void dns_query_done(struct dns_query *query)
{
    if (query->question != NULL)
        ldns_rr_free(query->question);
    query->question = NULL;
}

/* ---- an answer ---- */

/* The target of the name's CNAME; NULL when it has none. */
static const ldns_rdf *follow(const ldns_rr_list *answers, const ldns_rdf *name, uint32_t *ttl_s)
{
    for (size_t i = 0; i < ldns_rr_list_rr_count(answers); i++) {
        const ldns_rr *record = ldns_rr_list_rr(answers, i);
        if (ldns_rr_get_type(record) != LDNS_RR_TYPE_CNAME || ldns_rr_rd_count(record) != 1 ||
            ldns_dname_compare(ldns_rr_owner(record), name) != 0)
            continue;
        *ttl_s = ldns_rr_ttl(record) < *ttl_s ? ldns_rr_ttl(record) : *ttl_s;
        return ldns_rr_rdf(record, 0);
    }
    return NULL;
}

static void take_addresses(struct dns_addresses *to, const ldns_rr_list *answers, const ldns_rdf *name)
{
    for (size_t i = 0; i < ldns_rr_list_rr_count(answers) && to->count < DNS_ADDRESSES; i++) {
        const ldns_rr *record = ldns_rr_list_rr(answers, i);
        if (ldns_rr_get_type(record) != LDNS_RR_TYPE_A || ldns_rr_get_class(record) != LDNS_RR_CLASS_IN ||
            ldns_rr_rd_count(record) != 1 || ldns_rdf_size(ldns_rr_rdf(record, 0)) != sizeof to->addresses[0] ||
            ldns_dname_compare(ldns_rr_owner(record), name) != 0)
            continue;
        memcpy(&to->addresses[to->count++], ldns_rdf_data(ldns_rr_rdf(record, 0)), sizeof to->addresses[0]);
        to->ttl_s = ldns_rr_ttl(record) < to->ttl_s ? ldns_rr_ttl(record) : to->ttl_s;
    }
}

static bool is_about(const ldns_pkt *packet, const char *name)
{
    char asked[HOST_NAME_BYTES];
    const ldns_rr *question = ldns_rr_list_rr(ldns_pkt_question(packet), 0);
    return ldns_pkt_qr(packet) && ldns_pkt_qdcount(packet) == 1 && question != NULL &&
           name_of(ldns_rr_owner(question), asked) && strcmp(asked, name) == 0;
}

bool dns_addresses_read(struct dns_addresses *to, const char *name, const void *data, size_t size,
                        bool (*denies)(void *cookie, const char *name), void *cookie)
{
    AUTO_PACKET *packet = NULL;
    if (size == 0 || ldns_wire2pkt(&packet, data, size) != LDNS_STATUS_OK || !is_about(packet, name))
        return false;
    ldns_pkt_rcode rcode = ldns_pkt_get_rcode(packet);
    struct dns_addresses got = {.ttl_s = UINT32_MAX,
                                .rcode = rcode == LDNS_RCODE_NOERROR    ? DNS_OK
                                         : rcode == LDNS_RCODE_NXDOMAIN ? DNS_NXDOMAIN
                                                                        : DNS_SERVFAIL};
    const ldns_rr_list *answers = ldns_pkt_answer(packet);
    const ldns_rdf *at = ldns_rr_owner(ldns_rr_list_rr(ldns_pkt_question(packet), 0));
    for (int i = 0; got.rcode == DNS_OK && answers != NULL && at != NULL && i <= CNAMES_MAX && got.count == 0; i++) {
        take_addresses(&got, answers, at);
        at = got.count == 0 ? follow(answers, at, &got.ttl_s) : NULL;
        char alias[HOST_NAME_BYTES];
        if (at != NULL && name_of(at, alias) && denies(cookie, alias))
            got.rcode = DNS_REFUSED;
    }
    got.ttl_s = got.count > 0 ? got.ttl_s : 0;
    *to = got;
    return true;
}

/* ---- a reply ---- */

static ldns_pkt *reply_to(const struct dns_query *query, unsigned rcode)
{
    ldns_pkt *reply = ldns_pkt_new();
    if (reply == NULL)
        abort(); /* no memory: as everywhere */
    ldns_pkt_set_id(reply, query->id);
    ldns_pkt_set_qr(reply, true);
    ldns_pkt_set_rd(reply, query->wants_recursion);
    ldns_pkt_set_ra(reply, true);
    ldns_pkt_set_rcode(reply, (uint8_t)(rcode & 15));
    if (query->question != NULL)
        ldns_pkt_push_rr(reply, LDNS_SECTION_QUESTION, ldns_rr_clone(query->question));
    if (query->has_edns)
        ldns_pkt_set_edns_udp_size(reply, DNS_UDP_BYTES_MOST);
    return reply;
}

static size_t write_packet(uint8_t *to, size_t room, const ldns_pkt *packet)
{
    uint8_t *wire = NULL;
    size_t size = 0;
    if (ldns_pkt2wire(&wire, packet, &size) != LDNS_STATUS_OK)
        size = SIZE_MAX;
    if (size <= room)
        memcpy(to, wire, size);
    free(wire);
    return size <= room ? size : 0;
}

/* The reply, or when it does not fit: without records, marked as cut. */
static size_t write_reply(uint8_t *to, size_t room, const struct dns_query *query, const ldns_pkt *reply)
{
    size_t size = write_packet(to, room, reply);
    if (size > 0)
        return size;
    AUTO_PACKET *cut = reply_to(query, ldns_pkt_get_rcode(reply));
    ldns_pkt_set_tc(cut, true);
    return write_packet(to, room, cut);
}

static void add_address(ldns_pkt *reply, const struct dns_query *query, uint32_t address, uint32_t ttl_s)
{
    ldns_rr *record = ldns_rr_new();
    ldns_rdf *data = ldns_rdf_new_frm_data(LDNS_RDF_TYPE_A, sizeof address, &address);
    if (record == NULL || data == NULL)
        abort();
    ldns_rr_set_owner(record, ldns_rdf_clone(ldns_rr_owner(query->question)));
    ldns_rr_set_type(record, LDNS_RR_TYPE_A);
    ldns_rr_set_class(record, LDNS_RR_CLASS_IN);
    ldns_rr_set_ttl(record, ttl_s);
    ldns_rr_push_rdf(record, data);
    ldns_pkt_push_rr(reply, LDNS_SECTION_ANSWER, record);
}

size_t dns_reply_write(uint8_t *to, size_t room, const struct dns_query *query, enum dns_rcode rcode,
                       const struct dns_addresses *addresses)
{
    AUTO_PACKET *reply = reply_to(query, rcode);
    for (size_t i = 0; rcode == DNS_OK && addresses != NULL && query->question != NULL && i < addresses->count; i++)
        add_address(reply, query, addresses->addresses[i], addresses->ttl_s);
    return write_reply(to, room, query, reply);
}

static bool is_kept(const ldns_rr *record, bool (*keep)(uint32_t address))
{
    uint32_t address = 0;
    ldns_rr_type type = ldns_rr_get_type(record);
    if (type == LDNS_RR_TYPE_AAAA || type == LDNS_RR_TYPE_SVCB || type == LDNS_RR_TYPE_HTTPS)
        return false; /* the latter two carry addresses too, and keys that hide the name */
    if (type != LDNS_RR_TYPE_A)
        return true;
    if (ldns_rr_rd_count(record) != 1 || ldns_rdf_size(ldns_rr_rdf(record, 0)) != sizeof address)
        return false;
    memcpy(&address, ldns_rdf_data(ldns_rr_rdf(record, 0)), sizeof address);
    return keep(address);
}

static void pass_section(ldns_pkt *reply, const ldns_pkt *answer, ldns_pkt_section section, bool (*keep)(uint32_t))
{
    ldns_rr_list *records = ldns_pkt_get_section_clone(answer, section);
    for (size_t i = 0; i < ldns_rr_list_rr_count(records); i++) {
        const ldns_rr *record = ldns_rr_list_rr(records, i);
        if (is_kept(record, keep))
            ldns_pkt_push_rr(reply, section, ldns_rr_clone(record));
    }
    ldns_rr_list_deep_free(records);
}

size_t dns_reply_pass(uint8_t *to, size_t room, const struct dns_query *query, const void *data, size_t size,
                      bool (*keep)(uint32_t address))
{
    AUTO_PACKET *answer = NULL;
    if (size == 0 || ldns_wire2pkt(&answer, data, size) != LDNS_STATUS_OK || !is_about(answer, query->name))
        return 0;
    AUTO_PACKET *reply = reply_to(query, ldns_pkt_get_rcode(answer));
    pass_section(reply, answer, LDNS_SECTION_ANSWER, keep);
    pass_section(reply, answer, LDNS_SECTION_AUTHORITY, keep);
    return write_reply(to, room, query, reply);
}
