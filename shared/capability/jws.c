#include "shared/capability/jws.h"

#include "shared/base/text.h"

#include <string.h>

static const char HEADER_START[] = "{\"alg\":\"HS256\",\"typ\":\"JWT\",\"kid\":\"";
static const char HEADER_END[] = "\"}";

/* Finds the dots; false unless there are 3 to 11 parts with something in each. */
static bool find_parts(struct jws *jws, const char *token, size_t length)
{
    const char *start = token, *end = token + length;
    jws->count = 0;
    for (;;) {
        const char *dot = memchr(start, '.', (size_t)(end - start));
        const char *stop = dot ? dot : end;
        if (stop == start || jws->count == JWS_PARTS_MAX)
            return false;
        jws->parts[jws->count++] = (struct jws_part){.text = start, .length = (size_t)(stop - start)};
        if (!dot)
            return jws->count >= JWS_PARTS_MIN;
        start = dot + 1;
    }
}

enum capability_refusal jws_split(struct jws *jws, const char *token, size_t length)
{
    if (length > JWS_TOKEN_MAX)
        return CAPABILITY_TOO_LONG;
    if (length == 0 || !find_parts(jws, token, length))
        return CAPABILITY_MALFORMED;
    size_t used = 0;
    for (size_t i = 0; i < jws->count; i++) {
        struct jws_part *part = &jws->parts[i];
        uint8_t *to = jws->decoded + used;
        if (!text_base64url_decode(to, sizeof jws->decoded - used, &part->size, part->text, part->length))
            return CAPABILITY_MALFORMED;
        part->bytes = to;
        used += part->size;
    }
    return CAPABILITY_OK;
}

bool jws_is_id(const char *text)
{
    return text_is_made_of(text, CAPABILITY_ID_BYTES - 1, "_-");
}

bool jws_read_header(const void *bytes, size_t size, char sandbox_id[static CAPABILITY_ID_BYTES], uint32_t *epoch)
{
    const size_t before = sizeof HEADER_START - 1, after = sizeof HEADER_END - 1;
    const char *text = bytes;
    if (size < before + after || memcmp(text, HEADER_START, before) != 0 ||
        memcmp(text + size - after, HEADER_END, after) != 0)
        return false;
    const char *kid = text + before;
    size_t length = size - before - after;
    const char *dot = memchr(kid, '.', length);
    if (!dot || (size_t)(dot - kid) >= CAPABILITY_ID_BYTES)
        return false;
    size_t id_length = (size_t)(dot - kid);
    char id[CAPABILITY_ID_BYTES];
    memcpy(id, kid, id_length);
    id[id_length] = '\0';
    uint64_t number = 0;
    if (strlen(id) != id_length || !jws_is_id(id) ||
        !text_parse_u64(dot + 1, length - id_length - 1, UINT32_MAX, &number))
        return false;
    memcpy(sandbox_id, id, id_length + 1);
    *epoch = (uint32_t)number;
    return true;
}

bool jws_write_header(char to[static JWS_HEADER_BYTES], const char *sandbox_id, uint32_t epoch)
{
    return jws_is_id(sandbox_id) &&
           text_format(to, JWS_HEADER_BYTES, "%s%s.%u%s", HEADER_START, sandbox_id, epoch, HEADER_END);
}
