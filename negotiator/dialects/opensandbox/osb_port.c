#include "negotiator/dialects/opensandbox/osb_port.h"

#include "shared/base/text.h"

#include <string.h>

enum { SCOPES_BYTES = 64 };

bool osb_port_read(const struct http_request *request, uint16_t *port, struct error *err)
{
    const char *text = http_request_parameter(request, "port");
    uint64_t number = 0;
    size_t digits = strspn(text, "0123456789");
    if (text[digits] != '\0' || text[0] == '0' || !text_parse_u64(text, digits, UINT16_MAX, &number) || number == 0)
        return error_set(err, ERROR_INVALID, "port must be 1 to 65535, without a zero or a sign before it");
    *port = (uint16_t)number;
    return true;
}

bool osb_port_scopes(uint16_t port, struct wanted *wanted, struct error *err)
{
    char scopes[SCOPES_BYTES];
    bool fits = port == OSB_PORT_EXECD    ? text_copy(scopes, sizeof scopes, "fs:rw process shell code port")
                : port == OSB_PORT_EGRESS ? text_copy(scopes, sizeof scopes, "network")
                                          : text_format(scopes, sizeof scopes, "port@%u", port);
    wanted->scopes_given = true;
    return fits && scope_parse(&wanted->scopes, scopes, strlen(scopes), SCOPE_UNKNOWN_REFUSED, err);
}
