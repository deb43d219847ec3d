/* chunks_fuzz.c - any bytes as a chunked body: whole and byte by byte it reads the same, and never beyond what was
 * given. */
#include "shared/http/chunks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    bool is_broken;
    enum http_chunk_state state;
    size_t used, data_bytes;
};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static struct outcome read_in_steps(const char *text, size_t size, size_t step)
{
    struct http_chunks chunks = {0};
    struct outcome outcome = {0};
    while (outcome.used < size && chunks.state != HTTP_CHUNK_END && !outcome.is_broken) {
        size_t there = size - outcome.used < step ? size - outcome.used : step;
        if (chunks.state == HTTP_CHUNK_DATA && chunks.left > 0) {
            size_t taken = chunks.left < there ? (size_t)chunks.left : there;
            chunks.left -= taken;
            outcome.used += taken;
            outcome.data_bytes += taken;
            continue;
        }
        size_t used = 0;
        struct error err;
        if (!http_chunks_read(&chunks, text + outcome.used, there, &used, &err)) {
            require(err.kind == ERROR_INVALID);
            outcome.is_broken = true;
            break;
        }
        require(used <= there && (used > 0 || chunks.state == HTTP_CHUNK_DATA));
        require(chunks.state != HTTP_CHUNK_DATA || chunks.left <= INT64_MAX);
        outcome.used += used;
    }
    outcome.state = chunks.state;
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    struct outcome whole = read_in_steps(text, size, SIZE_MAX), bytes = read_in_steps(text, size, 1);
    free(text);
    require(whole.is_broken == bytes.is_broken && whole.data_bytes == bytes.data_bytes);
    require(whole.is_broken || (whole.used == bytes.used && whole.state == bytes.state));
    return 0;
}
