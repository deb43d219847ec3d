/* The claims reader on any bytes: what it takes, jansson takes too, with the same values, and writing it gives what
 * reads the same again. */
#include "shared/capability/claims.h"
#include "tests/unit/shared/capability/claims_compare.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct capability_claims claims, again;
    char json[CLAIMS_JSON_BYTES];
    if (!claims_read(&claims, data, size, NULL))
        return 0;
    if (!claims_agree(&claims, (const char *)data, size))
        abort();
    claims.epoch = again.epoch = 0;
    if (!claims_write(json, &claims, NULL) || !claims_read(&again, json, strlen(json), NULL) ||
        !claims_agree(&again, json, strlen(json)))
        abort();
    return 0;
}
