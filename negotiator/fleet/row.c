/* row.c - a node as the store keeps it. */
#include "negotiator/fleet/fleet_internal.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

void fleet_row_key(char key[static FLEET_ROW_KEY_BYTES], const char *node)
{
    snprintf(key, FLEET_ROW_KEY_BYTES, "node/%.*s", LINK_NODE_BYTES - 1, node);
}

static bool read_public_key(struct fleet_row *row, const char *text)
{
    size_t size = 0;
    row->has_public_key = text != NULL;
    return text == NULL || (text_base64url_decode(row->public_key, sizeof row->public_key, &size, text, strlen(text)) &&
                            size == sizeof row->public_key);
}

static bool is_epoch(json_int_t value, json_int_t min)
{
    return value >= min && value <= UINT32_MAX;
}

bool fleet_row_parse(struct fleet_row *row, const struct kv_value *value)
{
    struct fleet_row read = {.revision = value->revision};
    json_int_t incarnation = 0, numbers = 0, epoch = FLEET_EPOCH, next_epoch = 0;
    int draining = 0;
    const char *url = NULL, *public_key = NULL;
    json_t *json = json_loadb(value->data, value->size, 0, NULL);
    bool whole = json &&
                 json_unpack(json, "{s:I, s:s, s?I, s?I, s?I, s?b, s?s}", "incarnation", &incarnation, "url", &url,
                             "numbers", &numbers, "epoch", &epoch, "next_epoch", &next_epoch, "draining", &draining,
                             "public_key", &public_key) == 0 &&
                 text_copy(read.url, sizeof read.url, url) && is_epoch(epoch, FLEET_EPOCH) && is_epoch(next_epoch, 0) &&
                 read_public_key(&read, public_key);
    json_decref(json);
    if (!whole)
        return false;
    read.incarnation = (uint64_t)incarnation;
    read.numbers = (uint64_t)numbers;
    read.epoch = (uint32_t)epoch;
    read.next_epoch = (uint32_t)next_epoch;
    read.draining = draining;
    *row = read;
    return true;
}

bool fleet_row_get(struct fleet_row *row, struct kv *kv, const char *node, struct error *err)
{
    char key[FLEET_ROW_KEY_BYTES];
    AUTO_KV_VALUE value = {0};
    fleet_row_key(key, node);
    if (!kv_get(kv, key, &value, err))
        return false;
    if (value.revision == 0) {
        *row = (struct fleet_row){.epoch = FLEET_EPOCH};
        return true;
    }
    return fleet_row_parse(row, &value) || error_set(err, ERROR_INTERNAL, "the row %s is damaged", key);
}

void fleet_row_put(struct kv_change *change, const struct fleet_row *row, const char *node)
{
    char key[FLEET_ROW_KEY_BYTES], public_key[TEXT_BASE64URL_LENGTH(sizeof row->public_key) + 1] = "";
    fleet_row_key(key, node);
    if (row->has_public_key)
        text_base64url_encode(public_key, row->public_key, sizeof row->public_key);
    json_t *json = json_pack("{s:I, s:s, s:I, s:I, s:I, s:b, s:s*}", "incarnation", (json_int_t)row->incarnation, "url",
                             row->url, "epoch", (json_int_t)row->epoch, "next_epoch", (json_int_t)row->next_epoch,
                             "numbers", (json_int_t)row->numbers, "draining", (int)row->draining, "public_key",
                             row->has_public_key ? public_key : NULL);
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    kv_change_expect(change, key, row->revision);
    kv_change_put(change, key, text, strlen(text));
}
