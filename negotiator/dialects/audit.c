/* audit.c - the audit chain as JSON: records, head, proof (protocol.md, 7). */
#include "negotiator/dialects/plane.h"

struct plane_rows audit_rows(void)
{
    return (struct plane_rows){NULL, 0};
}
