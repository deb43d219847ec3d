#include "clients/c/negotiator.h"

#include "clients/c/call.h"

#include "shared/base/memory.h"

#include <curl/curl.h>
#include <string.h>

enum { PAGE_ITEMS = 200, PAGES_MAX = 1000 }; /* a page may be empty: the negotiator looks at so many rows a call */

bool negotiator_call(const struct place *place, const char *method, const char *path, json_t *body, json_t **reply,
                     struct error *err)
{
    return negotiator_call_matching(place, method, path, NULL, body, reply, err);
}

bool negotiator_call_matching(const struct place *place, const char *method, const char *path, const char *if_match,
                              json_t *body, json_t **reply, struct error *err)
{
    if (place->capability)
        return error_set(
            err, ERROR_INVALID,
            "this asks the negotiator, and a capability URL is no way to it: --url wants the negotiator's");
    AUTO_FREE char *url = memory_printf("%s%s", place->url, path);
    struct call call = {.method = method, .url = url, .credential = place->api_key, .if_match = if_match, .body = body};
    return call_json(&call, reply, NULL, err);
}

void negotiator_query(struct text *path, const char *name, const char *value)
{
    if (!value)
        return;
    char *escaped = curl_easy_escape(NULL, value, 0);
    char before = path->data && strchr(path->data, '?') ? '&' : '?';
    text_append_format(path, "%c%s=%s", before, name, escaped ? escaped : "");
    curl_free(escaped);
}

json_t *negotiator_list(const struct place *place, const struct negotiator_list *wanted, struct error *err)
{
    json_t *list = json_array();
    AUTO_FREE char *cursor = NULL;
    unsigned pages = 0;
    do {
        AUTO_TEXT path = {0};
        size_t left = wanted->most - json_array_size(list);
        text_append_string(&path, wanted->path);
        text_append_format(&path, "%climit=%zu", strchr(wanted->path, '?') ? '&' : '?',
                           left < PAGE_ITEMS ? left : PAGE_ITEMS);
        negotiator_query(&path, "cursor", cursor);
        json_t *page = NULL;
        bool ends = ++pages <= PAGES_MAX || error_set(err, ERROR_INTERNAL, "the negotiator's list does not end");
        if (!ends || !negotiator_call(place, "GET", path.data, NULL, &page, err)) {
            json_decref(list);
            return NULL;
        }
        json_array_extend(list, json_object_get(page, wanted->member));
        free(cursor);
        cursor = memory_string(json_string_value(json_object_get(page, wanted->next)));
        json_decref(page);
    } while (cursor && json_array_size(list) < wanted->most);
    return list;
}

char *negotiator_path(const char *before, const char *name, const char *after)
{
    char *escaped = curl_easy_escape(NULL, name, 0);
    char *path = memory_printf("%s/%s%s%s", before, escaped ? escaped : "", after ? "/" : "", after ? after : "");
    curl_free(escaped);
    return path;
}
