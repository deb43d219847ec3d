#include "negotiator/dialects/opensandbox/osb_ask.h"

#include "shared/base/text.h"

#include <string.h>

enum { PAGE_MAX = 1000000, PAGE_SIZE_MAX = 200, PAGE_SIZE = 20 };

DEFINE_VISIT_BY(question, osb_answer)

bool osb_sandbox_id(const struct http_request *request, char to[static RANDOM_ID_BYTES], struct error *err)
{
    const char *id = http_request_parameter(request, "sandbox_id");
    return (random_is_id(id, "sbx") && text_copy(to, RANDOM_ID_BYTES, id)) ||
           error_set(err, ERROR_NOT_FOUND, "no such sandbox; an id looks like sbx_ and 20 of a-z0-9");
}

void osb_ask(struct http_request *request, struct question *question,
             void (*print)(struct http_request *request, const struct question *q))
{
    leasing_ask(plane_of(request)->leasing, question_visit(request, question, print));
}

static bool read_number(const struct http_request *request, const char *name, uint64_t max, size_t *to,
                        struct error *err)
{
    const char *text = http_request_query(request, name);
    uint64_t number = *to;
    if (text && (!text_parse_u64(text, strlen(text), max, &number) || number == 0))
        return error_set(err, ERROR_INVALID, "%s must be a whole number from 1 to %llu", name, (unsigned long long)max);
    *to = (size_t)number;
    return true;
}

bool osb_read_page(const struct http_request *request, size_t *page, size_t *page_size, struct error *err)
{
    *page = 1;
    *page_size = PAGE_SIZE;
    return read_number(request, "page", PAGE_MAX, page, err) &&
           read_number(request, "pageSize", PAGE_SIZE_MAX, page_size, err);
}
