/* proxy_fuzz.c - any bytes as another server's answer: whole and byte by byte it reads the same, and what it lets
 * through is sound: a status, tokens as names, no control characters, one framing, no more body than was said. */
#include "shared/http/proxy_answer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    bool is_broken;
    enum http_answer_state state;
    int status;
    size_t body_bytes, field_count, used;
    uint64_t length;
    bool is_by_end, has_body;
};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void on_body(void *cookie, const char *data, size_t size)
{
    struct outcome *outcome = cookie;
    require(size == 0 || data != NULL);
    outcome->body_bytes += size;
}

static void check_head(const struct http_answer *answer)
{
    require(answer->status >= 101 && answer->status <= 599);
    require((answer->status == 101) == (answer->state == HTTP_ANSWER_UPGRADED));
    const char *value;
    size_t count = 0;
    for (const char *name = NULL; (name = http_answer_next(answer, name, &value)) != NULL; count++) {
        require(name[0] != '\0' && strpbrk(name, " :\t\r\n") == NULL);
        require(strpbrk(value, "\r\n") == NULL);
    }
    require(count == answer->field_count && count <= HTTP_ANSWER_FIELDS_MAX);
}

static struct outcome read_in_steps(const char *text, size_t size, size_t step, unsigned flags)
{
    struct http_answer answer;
    struct outcome outcome = {0};
    http_answer_init(&answer, (flags & 1) != 0, (flags & 2) != 0, on_body, &outcome);
    struct error err = {0};
    bool is_ended = false;
    while (!outcome.is_broken && !is_ended && outcome.used < size) {
        size_t there = size - outcome.used < step ? size - outcome.used : step, used = 0;
        outcome.is_broken = !http_answer_read(&answer, text + outcome.used, there, &used, &err);
        require(used <= there);
        is_ended = answer.state == HTTP_ANSWER_END || answer.state == HTTP_ANSWER_UPGRADED;
        require(outcome.is_broken || is_ended || used > 0 || answer.state == HTTP_ANSWER_BODY);
        outcome.used += used;
    }
    if (!outcome.is_broken && !is_ended)
        outcome.is_broken = !http_answer_read_end(&answer, &err);
    require(!outcome.is_broken || err.kind == ERROR_BAD_GATEWAY);
    if (!outcome.is_broken)
        check_head(&answer);
    outcome.state = answer.state;
    outcome.status = answer.status;
    outcome.field_count = answer.field_count;
    outcome.length = answer.length;
    outcome.is_by_end = answer.is_by_end;
    outcome.has_body = answer.has_body;
    http_answer_done(&answer);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    unsigned flags = data[0];
    char *text = malloc(size);
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    struct outcome whole = read_in_steps(text, size - 1, SIZE_MAX, flags);
    struct outcome bytes = read_in_steps(text, size - 1, 1, flags);
    free(text);
    require(whole.is_broken == bytes.is_broken);
    if (whole.is_broken)
        return 0;
    require(whole.state == bytes.state && whole.status == bytes.status && whole.body_bytes == bytes.body_bytes);
    require(whole.used == bytes.used && whole.field_count == bytes.field_count);
    require(whole.has_body || whole.body_bytes == 0);
    require(!whole.has_body || whole.is_by_end || whole.length == UINT64_MAX || whole.body_bytes == whole.length);
    return 0;
}
