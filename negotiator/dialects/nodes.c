/* nodes.c - the nodes as an admin sees them: join tokens, drain, lost, re-keying; and the enrolment of one. */
#include "negotiator/dialects/plane.h"

struct plane_rows nodes_rows(void)
{
    return (struct plane_rows){NULL, 0};
}
