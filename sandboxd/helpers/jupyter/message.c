#include "sandboxd/helpers/jupyter/message.h"

#include "sandboxd/helpers/jupyter/plain.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <string.h>

static const char DELIMITER[] = "<IDS|MSG>";
enum { HEADER, PARENT, METADATA, CONTENT, DICTIONARIES };
enum { SIGNATURE_BYTES = 2 * crypto_auth_hmacsha256_BYTES, DELIMITER_MAX = 16, RAW_ID_BYTES = 16 };

/* ---- signatures ---- */

static void sign(const struct message_part dictionaries[static DICTIONARIES], const char *key, char *to)
{
    crypto_auth_hmacsha256_state state;
    uint8_t sum[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_init(&state, (const uint8_t *)key, MESSAGE_KEY_BYTES);
    for (size_t i = 0; i < DICTIONARIES; i++)
        crypto_auth_hmacsha256_update(&state, dictionaries[i].data, dictionaries[i].size);
    crypto_auth_hmacsha256_final(&state, sum);
    text_hex(to, sum, sizeof sum);
}

static bool is_signed(const struct message_part *signature, const struct message_part *dictionaries, const char *key)
{
    char expected[SIGNATURE_BYTES + 1];
    if (signature->size != SIGNATURE_BYTES)
        return false;
    sign(dictionaries, key, expected);
    return sodium_memcmp(expected, signature->data, SIGNATURE_BYTES) == 0;
}

/* ---- JSON of a stranger ---- */

struct scan {
    char *text;
    size_t size, at;
    unsigned depth, values;
};

static int hex_of(const char *from)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = from[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static int unit_at(const struct scan *scan, size_t at)
{
    bool is_there = at + 6 <= scan->size && scan->text[at] == '\\' && scan->text[at + 1] == 'u';
    return is_there ? hex_of(scan->text + at + 2) : -1;
}

/* At a backslash: passes the escape; half a surrogate pair, which jansson would not have, becomes \ufffd. */
static void scan_escape(struct scan *scan)
{
    int unit = unit_at(scan, scan->at);
    if (unit < 0xd800 || unit > 0xdfff) {
        scan->at += 2;
        return;
    }
    int next = unit_at(scan, scan->at + 6);
    if (unit < 0xdc00 && next >= 0xdc00 && next <= 0xdfff) {
        scan->at += 12;
        return;
    }
    memcpy(scan->text + scan->at + 2, "fffd", 4);
    scan->at += 6;
}

/* Behind the opening quote; ends behind the closing one. */
static void scan_string(struct scan *scan)
{
    while (scan->at < scan->size && scan->text[scan->at] != '"') {
        if (scan->text[scan->at] == '\\')
            scan_escape(scan);
        else
            scan->at++;
    }
    scan->at++;
}

/* Whether jansson may have it: an array of arrays would take a hundred times its size. */
static bool scan_json(char *text, size_t size, struct error *err)
{
    struct scan scan = {.text = text, .size = size};
    while (scan.at < scan.size) {
        char c = scan.text[scan.at++];
        if (c == '"')
            scan_string(&scan);
        else if (c == '[' || c == '{')
            scan.depth++, scan.values++;
        else if ((c == ']' || c == '}') && scan.depth > 0)
            scan.depth--;
        else if (c == ',' || c == ':')
            scan.values++;
        if (scan.depth > MESSAGE_DEPTH_MAX)
            return error_set(err, ERROR_TOO_LARGE, "JSON deeper than %d", MESSAGE_DEPTH_MAX);
        if (scan.values > MESSAGE_VALUES_MAX)
            return error_set(err, ERROR_TOO_LARGE, "JSON of more than %d values", MESSAGE_VALUES_MAX);
    }
    return true;
}

json_t *message_read_object(const char *text, size_t size, struct error *err)
{
    AUTO_TEXT clean = {0};
    if (size > MESSAGE_BYTES_MAX) {
        error_set(err, ERROR_TOO_LARGE, "a part of %zu bytes", size);
        return NULL;
    }
    plain_append_utf8(&clean, text, size);
    if (clean.data == NULL || !scan_json(clean.data, clean.length, err)) {
        if (clean.data == NULL)
            error_set(err, ERROR_INVALID, "an empty part where an object belongs");
        return NULL;
    }
    json_error_t why;
    json_t *value = json_loadb(clean.data, clean.length, JSON_ALLOW_NUL, &why);
    if (value == NULL) /* integers of any size, as Python has them */
        value = json_loadb(clean.data, clean.length, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (json_is_object(value))
        return value;
    json_decref(value);
    error_set(err, ERROR_INVALID, "not a JSON object: %.120s", value ? "another value" : why.text);
    return NULL;
}

/* ---- in ---- */

static bool is_delimiter(const struct message_part *part)
{
    return part->size == sizeof DELIMITER - 1 && memcmp(part->data, DELIMITER, part->size) == 0;
}

static const struct message_part *find_delimiter(const struct message_part *parts, size_t count)
{
    for (size_t i = 0; i < count && i < DELIMITER_MAX; i++)
        if (is_delimiter(&parts[i]))
            return i + 1 + 1 + DICTIONARIES <= count ? &parts[i] : NULL;
    return NULL;
}

/* An optional text of an object; "" when it is missing, no text or longer than `size`. */
static void copy_text(char *to, size_t size, const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    if (!text || strlen(text) != json_string_length(value) || !text_copy(to, size, text))
        *to = '\0';
}

bool message_parse(const struct message_part *parts, size_t count, const char key[static MESSAGE_KEY_BYTES],
                   struct message *to, struct error *err)
{
    const struct message_part *found = find_delimiter(parts, count);
    if (found == NULL)
        return error_set(err, ERROR_INVALID, "no message: %zu parts without the signed ones", count);
    const struct message_part *dictionaries = found + 2;
    if (!is_signed(found + 1, dictionaries, key))
        return error_set(err, ERROR_FORBIDDEN, "a message that is not signed with the connection's key");
    json_t *header = message_read_object(dictionaries[HEADER].data, dictionaries[HEADER].size, err);
    json_t *parent = header ? message_read_object(dictionaries[PARENT].data, dictionaries[PARENT].size, err) : NULL;
    json_t *content = parent ? message_read_object(dictionaries[CONTENT].data, dictionaries[CONTENT].size, err) : NULL;
    if (content) {
        *to = (struct message){.content = content, .transient = json_object_get(content, "transient")};
        copy_text(to->type, sizeof to->type, header, "msg_type");
        copy_text(to->parent, sizeof to->parent, parent, "msg_id");
    }
    json_decref(header);
    json_decref(parent);
    return content != NULL;
}

void message_done(struct message *message)
{
    json_decref(message->content);
    *message = (struct message){.type = ""};
}

/* ---- out ---- */

static char *dump(const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    return text ? text : memory_string("{}");
}

static char *make_header(const char *type, const char *session, const char *id)
{
    char now[CLOCK_TEXT_BYTES];
    clock_format(now, clock_wall_ms());
    json_t *header = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "msg_id", id, "session", session, "username", "parley",
                               "date", now, "msg_type", type, "version", "5.3");
    char *text = dump(header);
    json_decref(header);
    return text;
}

void message_make(const char *type, const char *session, const json_t *parent, const json_t *content,
                  const char key[static MESSAGE_KEY_BYTES], struct message_made *to)
{
    uint8_t raw[RAW_ID_BYTES];
    random_bytes(raw, sizeof raw);
    text_hex(to->id, raw, sizeof raw);
    char *dictionaries[DICTIONARIES] = {make_header(type, session, to->id), dump(parent), memory_string("{}"),
                                        dump(content)};
    struct message_part signed_parts[DICTIONARIES];
    for (size_t i = 0; i < DICTIONARIES; i++) {
        signed_parts[i] = (struct message_part){dictionaries[i], strlen(dictionaries[i])};
        to->parts[i + 2] = dictionaries[i];
    }
    char signature[SIGNATURE_BYTES + 1];
    sign(signed_parts, key, signature);
    to->parts[0] = memory_string(DELIMITER);
    to->parts[1] = memory_string(signature);
}

void message_made_done(struct message_made *made)
{
    for (size_t i = 0; i < MESSAGE_HEAD_PARTS; i++)
        free(TAKE(made->parts[i]));
}
