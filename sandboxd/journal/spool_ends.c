/* spool_ends.c - which commands' ends were recorded lately. After a restart of the front init tells each ended command
 * again, and only the records know whether its end was one. They are read at the start; of segments that were deleted
 * since, spool-ends keeps what matters. */
#include "sandboxd/journal/spool_internal.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <sodium.h>
#include <string.h>

enum { KEY_HEX = 16, KEYS_A_LINE = 2000 };

static uint64_t key_of(const char *sandbox_id, const char *command_id, size_t command_length)
{
    uint64_t key = 0;
    crypto_generichash_blake2b_state state;
    (void)crypto_generichash_blake2b_init(&state, NULL, 0, sizeof key);
    (void)crypto_generichash_blake2b_update(&state, (const uint8_t *)sandbox_id, strlen(sandbox_id) + 1);
    (void)crypto_generichash_blake2b_update(&state, (const uint8_t *)command_id, command_length);
    (void)crypto_generichash_blake2b_final(&state, (uint8_t *)&key, sizeof key);
    return key;
}

static struct spool_end_note *note_at(const struct spool_ends *ends, size_t i)
{
    return &ends->notes[(ends->start + i) % ends->capacity];
}

static void grow(struct spool_ends *ends)
{
    size_t capacity = ends->capacity ? ends->capacity * 2 : 1024;
    struct spool_end_note *notes = memory_array(capacity, sizeof *notes);
    for (size_t i = 0; i < ends->count; i++)
        notes[i] = *note_at(ends, i);
    free(ends->notes);
    ends->notes = notes;
    ends->start = 0;
    ends->capacity = capacity;
}

static void add(struct spool_ends *ends, uint64_t key, int64_t at_ms, int64_t now_ms)
{
    while (ends->count && (ends->count == SPOOL_ENDS_MAX || note_at(ends, 0)->at_ms < now_ms - SPOOL_ENDS_MS)) {
        ends->start = (ends->start + 1) % ends->capacity;
        ends->count--;
    }
    if (ends->count == ends->capacity)
        grow(ends);
    *note_at(ends, ends->count++) = (struct spool_end_note){.key = key, .at_ms = at_ms};
    ends->changed = true;
}

void spool_ends_add(struct spool_ends *ends, const char *sandbox_id, const char *command_id, int64_t now_ms)
{
    add(ends, key_of(sandbox_id, command_id, strlen(command_id)), now_ms, now_ms);
}

bool spool_ends_has(const struct spool_ends *ends, const char *sandbox_id, const char *command_id, int64_t now_ms)
{
    uint64_t key = key_of(sandbox_id, command_id, strlen(command_id));
    for (size_t i = 0; i < ends->count; i++)
        if (note_at(ends, i)->key == key && note_at(ends, i)->at_ms >= now_ms - SPOOL_ENDS_MS)
            return true;
    return false;
}

void spool_ends_note(struct spool_ends *ends, const char *text, size_t size)
{
    if (!strstr(text, "\"action\":\"exec.end\"") && !strstr(text, "\"action\":\"code.end\""))
        return;
    json_t *record = json_loadb(text, size, 0, NULL);
    const char *sandbox_id = json_string_value(json_object_get(record, "sandbox_id"));
    const char *detail = json_string_value(json_object_get(record, "detail"));
    int64_t at_ms = json_integer_value(json_object_get(record, "time"));
    if (sandbox_id && detail && text_starts_with(detail, "id="))
        add(ends, key_of(sandbox_id, detail + 3, strcspn(detail + 3, " ")), at_ms, clock_wall_ms());
    json_decref(record);
}

/* "<ms of the last> <key><key>..." */
bool spool_ends_load(void *cookie, const char *text, size_t size UNUSED, struct error *err)
{
    struct spool_ends *ends = cookie;
    const char *space = strchr(text, ' ');
    uint64_t at_ms = 0;
    if (!space || !text_parse_u64(text, (size_t)(space - text), INT64_MAX, &at_ms))
        return error_set(err, ERROR_INTERNAL, "not a line of ends");
    for (const char *hex = space + 1; *hex; hex += KEY_HEX) {
        uint64_t key;
        if (strnlen(hex, KEY_HEX) != KEY_HEX || !text_hex_decode(&key, sizeof key, hex, KEY_HEX))
            return error_set(err, ERROR_INTERNAL, "not a line of ends");
        add(ends, key, (int64_t)at_ms, clock_wall_ms());
    }
    return true;
}

/* Lines of all that are young enough; their number. With the mutex. */
static size_t format_lines(const struct spool_ends *ends, char ***lines, int64_t now_ms)
{
    size_t count = 0;
    *lines = memory_array(ends->count / KEYS_A_LINE + 1, sizeof **lines);
    for (size_t i = 0; i < ends->count; i += KEYS_A_LINE) {
        size_t stop = i + KEYS_A_LINE < ends->count ? i + KEYS_A_LINE : ends->count;
        if (note_at(ends, stop - 1)->at_ms < now_ms - SPOOL_ENDS_MS)
            continue;
        AUTO_TEXT line = {0};
        text_append_format(&line, "%lld ", (long long)note_at(ends, stop - 1)->at_ms);
        for (size_t k = i; k < stop; k++) {
            char hex[KEY_HEX + 1];
            text_hex(hex, &note_at(ends, k)->key, sizeof(uint64_t));
            text_append(&line, hex, KEY_HEX);
        }
        (*lines)[count++] = TAKE(line.data);
    }
    return count;
}

bool spool_ends_save(struct spool *spool, struct error *err)
{
    pthread_mutex_lock(&spool->mutex);
    char **lines = NULL;
    size_t count = 0;
    bool changed = spool->ends.changed;
    if (changed)
        count = format_lines(&spool->ends, &lines, clock_wall_ms());
    spool->ends.changed = false;
    pthread_mutex_unlock(&spool->mutex);
    bool ok = !changed || journal_file_replace(spool->ends_file, (const char *const *)lines, count, err);
    for (size_t i = 0; i < count; i++)
        free(lines[i]);
    free(lines);
    if (ok)
        return true;
    pthread_mutex_lock(&spool->mutex);
    spool->ends.changed = true;
    pthread_mutex_unlock(&spool->mutex);
    return false;
}
