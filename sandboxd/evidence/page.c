#include "sandboxd/evidence/page.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { IDS = 65536, PATIENCE_S = 20 };
static const int64_t LAST_MS = 253402300799999; /* of year 9999 */

bool page_wants(struct page *page)
{
    if (page->count == EVIDENCE_ITEMS_MAX || page->lines.length >= EVIDENCE_BYTES_MAX) {
        page->is_full = true;
        return false;
    }
    return page->met++ >= page->order->skip;
}

void page_add(struct page *page, json_t *item)
{
    AUTO_FREE char *line = json_dumps(item, JSON_COMPACT);
    json_decref(item);
    text_append_string(&page->lines, line ? line : "{}");
    text_append(&page->lines, "\n", 1);
    page->count++;
}

bool page_end(struct page *page, const char *part, struct error *err)
{
    json_t *next = page->is_full ? json_integer((json_int_t)page->met) : json_null();
    json_t *end = json_pack("{s:b, s:s, s:o, s:b}", "end", 1, "part", part, "next", next, "truncated", page->truncated);
    page_add(page, end);
    bool written = fd_write_all(page->order->out, page->lines.data, page->lines.length, err);
    text_done(&page->lines);
    return written;
}

json_t *page_text(const char *bytes, size_t size)
{
    AUTO_TEXT safe = {0};
    text_append(&safe, "", 0);
    for (size_t at = 0; at < size;) {
        size_t valid = text_utf8_prefix(bytes + at, size - at);
        for (size_t end = at + valid; at < end; at++) {
            if (bytes[at] == '\\')
                text_append_string(&safe, "\\\\");
            else if (bytes[at] == '\0')
                text_append_string(&safe, "\\x00");
            else
                text_append(&safe, bytes + at, 1);
        }
        if (at < size)
            text_append_format(&safe, "\\x%02x", (unsigned char)bytes[at++]);
    }
    return json_stringn(safe.data ? safe.data : "", safe.length);
}

json_t *page_time(int64_t wall_ms)
{
    char text[CLOCK_TEXT_BYTES];
    if (wall_ms < 0 || wall_ms > LAST_MS) /* touch(1) can set others */
        return json_null();
    clock_format(text, wall_ms);
    return json_string(text);
}

json_t *page_id(const struct page *page, uint32_t id)
{
    uint32_t inside = id - page->order->uid_base;
    return json_integer(inside < IDS ? inside : id);
}

bool evidence_give_up_rights(struct error *err)
{
    const uint32_t keep = 1U << CAP_DAC_READ_SEARCH;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{.effective = keep, .permitted = keep}};
    alarm(PATIENCE_S); /* its action is to end us; reading /proc waits for whom it looks at */
    prctl(PR_SET_NAME, "evidence", 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "prctl of evidence");
    return syscall(SYS_capset, &header, sets) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "give up capabilities of evidence");
}
