#include "negotiator/dialects/opensandbox/opensandbox.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 64 };

struct plane_rows opensandbox_rows(void)
{
    static struct http_route rows[ROWS_MAX];
    const struct plane_rows parts[] = {
        osb_create_rows(),      osb_sandboxes_rows(), osb_changes_rows(), osb_endpoints_rows(), osb_snapshots_rows(),
        osb_diagnostics_rows(), osb_egress_rows(),    osb_other_rows(),   osb_proxy_rows(),
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (count + parts[i].count > ROWS_MAX)
            abort(); /* a constant of the program: seen at its first start */
        memcpy(&rows[count], parts[i].rows, parts[i].count * sizeof *rows);
        count += parts[i].count;
    }
    return (struct plane_rows){rows, count};
}
